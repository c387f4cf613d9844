/*
 * One shard of the memtable, write side. Read side: memtable_internal.h. Locks: LOCKING.md.
 */
#ifndef RIMSTONE_ENGINE_SHARD_INTERNAL_H
#define RIMSTONE_ENGINE_SHARD_INTERNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/thread.h"
#include "engine/chunk_internal.h"
#include "engine/index_internal.h"
#include "engine/log_queue_internal.h"
#include "engine/series_internal.h"
#include "engine/write.h"

/* Samples of one shard that wait at replay for the second frame of their series' definition. */
struct held_samples {
    struct log_entry *items; /* in the order of the log */
    size_t count, capacity;
};

struct shard {
    alignas(64) struct mutex lock; /* guards all down to the statistics */
    struct series_table series;
    struct fingerprint_table fingerprints;
    struct chunk_source blocks;
    struct log_queue log;

    /* relaxed: statistics, written under the lock, read anywhere */
    _Atomic uint64_t series_count, chunk_count, sample_count;
    /* INT64_MAX / INT64_MIN while empty. relaxed: a reader may see a bound a moment late */
    _Atomic int64_t min_time_ms, max_time_ms;

    /* One new series at a time: held from the look-up of a fingerprint until its series is
     * published, so that index_add() needs no shard lock. Order: before `lock`. */
    struct mutex create_lock;
    struct index *index;   /* owned; has a lock of its own */
    struct budget *memory; /* borrowed, may be NULL */
    uint32_t number;

    /* Replay only; one thread at a time. */
    struct held_samples held;
    struct log_entry *decoded; /* scratch of the samples of one record */
    size_t decoded_capacity;
    uint64_t held_bytes;
    uint64_t replayed_samples, unknown_ref_samples, conflicting_definitions, stale_samples;
    uint32_t unknown_ref_first; /* a slot to name in the log */
    uint32_t unknown_slot_end;  /* one above the highest slot named by what stayed unknown */
};

MUST_USE enum err shard_init(struct shard *s, uint32_t number, struct chunk_pool *blocks,
                             struct slab *slab, struct log_pool *logs, struct budget *memory,
                             struct errinfo *ei);
/* Accepts a zeroed struct. */
void shard_done(struct shard *s);

/* ---- appending, under shard.lock ---- */

enum append_outcome {
    APPEND_STORED,
    APPEND_REPEAT, /* the same timestamp and bits are in memory already */
    APPEND_OUT_OF_ORDER,
    APPEND_DUPLICATE,
    APPEND_NO_MEMORY,
};

/* The decoded chunk in which older samples of a series were looked up last. */
struct repeat_cache {
    uint32_t slot;
    size_t count; /* 0: nothing cached */
    int64_t t_ms[CHUNK_SAMPLE_MAX];
    double value[CHUNK_SAMPLE_MAX];
    uint32_t decode_count; /* so that the caller can let others have the lock */
};

/* What one critical section changed; added to the statistics before the lock is left. */
struct shard_change {
    uint64_t stored_count;
    uint32_t closed_count, opened_count;
    int64_t min_time_ms, max_time_ms;
};
static inline struct shard_change shard_change_none(void)
{
    return (struct shard_change){.min_time_ms = INT64_MAX, .max_time_ms = INT64_MIN};
}
void shard_change_apply(struct shard *s, struct shard_change *change);

/* Judges a sample that is not newer than its series' newest. */
enum append_outcome shard_judge_old(struct shard *s, uint32_t slot, const struct series *series,
                                    int64_t t_ms, uint64_t bits, struct repeat_cache *cache);

/* Puts a newer sample into the open chunk only; replay does this. False when memory is refused. */
static inline bool shard_store(struct shard *s, struct series *series, int64_t t_ms, uint64_t bits,
                               struct shard_change *change)
{
    uint32_t closed_before = change->closed_count;
    bool was_empty = series->open_count == 0;

    if (UNLIKELY(!chunk_append(series, &s->blocks, t_ms, bits, &change->closed_count)))
        return false;
    change->opened_count += was_empty || change->closed_count != closed_before;
    change->stored_count++;
    if (t_ms < change->min_time_ms)
        change->min_time_ms = t_ms;
    if (t_ms > change->max_time_ms)
        change->max_time_ms = t_ms;
    return true;
}

/* Appends one sample to memtable and log queue, or says why not. t_ms is within the bounds of
 * CHUNK_TIME_*. */
static inline enum append_outcome shard_append(struct shard *s, uint32_t slot,
                                               struct series *series, int64_t t_ms, uint64_t bits,
                                               struct shard_change *change,
                                               struct repeat_cache *cache)
{
    struct log_entry *entry;

    if (UNLIKELY(t_ms <= series->newest_ms))
        return shard_judge_old(s, slot, series, t_ms, bits, cache);
    entry = log_queue_next(&s->log);
    if (UNLIKELY(entry == NULL) || UNLIKELY(!shard_store(s, series, t_ms, bits, change)))
        return APPEND_NO_MEMORY;
    *entry = (struct log_entry){
        .slot = slot,
        .generation = series->generation,
        .scale = (uint8_t)series->scale,
        .t_ms = t_ms,
        .bits = bits,
    };
    log_queue_commit(&s->log);
    return APPEND_STORED;
}

/* ---- series ---- */

/* Publishes a series in a slot whose page exists and whose labels are in the index. Caller holds
 * shard.lock. False when memory is refused; the slot then stays empty for good. */
MUST_USE bool shard_publish_series(struct shard *s, uint32_t slot, uint16_t generation,
                                   struct hash128 fingerprint);

#endif
