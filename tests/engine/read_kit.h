/*
 * Samples of slots of a shard, without tombstones: shard_read() by plain arrays.
 */
#ifndef RIMSTONE_TESTS_ENGINE_READ_KIT_H
#define RIMSTONE_TESTS_ENGINE_READ_KIT_H

#include "engine/memtable/memtable_internal.h"

static inline enum err kit_read_slots(struct shard *s, const uint32_t *slots,
                                      const uint16_t *generations, size_t count,
                                      int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                                      struct column *out, struct errinfo *ei)
{
    struct file_read_item items[QUERIER_READ_BATCH_MAX];
    const struct shard_read read = {.items = items,
                                    .count = count,
                                    .min_time_ms = min_time_ms,
                                    .max_time_ms = max_time_ms,
                                    .arena = arena};

    for (size_t i = 0; i < count; i++)
        items[i] = (struct file_read_item){.slot = slots[i], .generation = generations[i]};
    return shard_read(s, &read, out, ei);
}

#endif
