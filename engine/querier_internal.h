/*
 * What the querier's files share: the handle, grouping of series by shard, time filters.
 */
#ifndef RIMSTONE_ENGINE_QUERIER_INTERNAL_H
#define RIMSTONE_ENGINE_QUERIER_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "engine/memtable_internal.h"
#include "engine/querier.h"

enum {
    QUERIER_GROUP_MAX = 1024, /* series handled at a time by calls that go shard by shard */
    QUERIER_META_SLICE = 256,
    QUERIER_SHARDS_MAX = 4096,
};

struct querier {
    struct engine *engine; /* borrowed */
    const _Atomic bool *stop;
    uint64_t deadline_mono_ns; /* 0: none */
    struct budget *memory;     /* borrowed, may be NULL: for what is not in a caller's arena */
    uint32_t shard_count;
};

static inline struct index *querier_index(const struct querier *q, uint32_t shard)
{
    return shard_index(engine_shard(q->engine, shard));
}

/* ERR_CANCELED once *stop is true, ERR_TIMEOUT once the deadline has passed. */
MUST_USE enum err querier_check_stop(const struct querier *q, struct errinfo *ei);

/* Series of one shard out of a list: their slots and where they stand in the list. */
struct shard_group {
    uint32_t shard;
    size_t count;
    uint32_t slots[QUERIER_GROUP_MAX];
    size_t rows[QUERIER_GROUP_MAX];
};
/* Calls `run` for each shard of up to QUERIER_GROUP_MAX items; rows count from the first item. Ends
 * at the first error. */
MUST_USE enum err
querier_by_shard(struct querier *q, const struct series_handle *items, size_t count,
                 enum err (*run)(void *ctx, const struct shard_group *group, struct errinfo *ei),
                 void *ctx, struct errinfo *ei);

/* Keeps slots that may have a sample in [min, max]: for slot_filter and querier_filter_slots(). */
struct time_filter {
    struct shard *shard; /* borrowed */
    int64_t min_time_ms, max_time_ms;
};
void time_filter_keep(void *ctx, const uint32_t *slots, size_t count, bool *keep);
static inline bool time_filter_accepts(int64_t min_time_ms, int64_t max_time_ms,
                                       const struct series_meta *m)
{
    return m->min_time_ms <= m->max_time_ms && m->min_time_ms <= max_time_ms &&
           m->max_time_ms >= min_time_ms;
}

#endif
