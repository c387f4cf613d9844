/*
 * The late buffer of a shard: samples that are older than their series' newest, until a seal writes
 * them into a late file. Guarded by the shard's lock.
 *
 * By slot and generation, a sorted array of samples a series. Most late samples of a series come in
 * ascending order, so an insertion appends as a rule.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_LATE_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_LATE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "engine/querier.h"

enum { LATE_SLOT_NONE = UINT32_MAX };

struct late_series {
    uint32_t slot; /* LATE_SLOT_NONE: an empty place */
    uint16_t generation;
    uint32_t count, capacity;
    int64_t *t_ms; /* owned, ascending strictly; `value` lies behind it in the same allocation */
    double *value;
};

struct late_buffer {
    struct budget *memory;      /* borrowed, may be NULL */
    struct late_series *places; /* owned; open addressing by slot; a power of two, or NULL */
    size_t place_count, series_count;
    uint64_t sample_count, memory_bytes;
    int64_t min_time_ms, max_time_ms; /* INT64_MAX / INT64_MIN while empty */
    uint64_t moved_count; /* samples moved so far: so that a writer can let others have the lock */
};

enum late_outcome {
    LATE_STORED,    /* late_series_judge(): it is not there */
    LATE_REPEAT,    /* there with the same bits */
    LATE_DUPLICATE, /* there with other bits */
    LATE_NO_MEMORY,
};

void late_buffer_init(struct late_buffer *b, struct budget *memory);
/* Leaves it empty and ready for use. */
void late_buffer_done(struct late_buffer *b);
/* Freezes: `to`, which is empty, takes over all that `from` holds. */
void late_buffer_move(struct late_buffer *from, struct late_buffer *to);
/* The series of a slot, or NULL; of that generation only. Good until the next addition. */
const struct late_series *late_buffer_find(const struct late_buffer *b, uint32_t slot,
                                           uint16_t generation);
enum late_outcome late_buffer_add(struct late_buffer *b, uint32_t slot, uint16_t generation,
                                  int64_t t_ms, double value);
/* What a sample would be beside those of a series: LATE_STORED, LATE_REPEAT or LATE_DUPLICATE. */
enum late_outcome late_series_judge(const struct late_series *p, int64_t t_ms, double value);
/* All series (series_count of them), ascending by slot and generation; good as long as nothing is
 * added. */
void late_buffer_list(const struct late_buffer *b, const struct late_series **out);
/* The samples in [min, max] of a series, copied into the arena; false when the arena refuses. */
bool late_buffer_read(const struct late_buffer *b, uint32_t slot, uint16_t generation,
                      int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                      struct column *out);

#endif
