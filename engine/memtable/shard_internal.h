/*
 * One shard of the memtable, write side. Read side: memtable_internal.h. Locks: LOCKING.md.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_SHARD_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_SHARD_INTERNAL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/thread.h"
#include "engine/files/file_set_internal.h"
#include "engine/index/index_internal.h"
#include "engine/log/log_queue_internal.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/histogram_lane_internal.h"
#include "engine/memtable/late_internal.h"
#include "engine/memtable/series_internal.h"
#include "engine/memtable/slot_bits_internal.h"
#include "engine/memtable/slots_internal.h"
#include "engine/write.h"

/* Times of some samples, inclusive; min > max without any. */
struct shard_bounds {
    int64_t min_time_ms, max_time_ms;
};

/* Samples of one shard that wait at replay for the second frame of their series' definition. */
struct held_samples {
    struct log_entry *items; /* in the order of the log; histograms point to memory of their own */
    size_t count, capacity;
    size_t histogram_bytes;
    uint64_t
        ended_left_out;  /* samples of slots that files have named, for which there was no room */
    uint32_t ended_slot; /* one of theirs */
};

struct shard_sealer;  /* seal_internal.h */
struct index_rebuild; /* rebuild_internal.h */

/* Ended series on their way out: ended_internal.h. */
struct series_leave {
    uint64_t settled_definitions; /* that were queued before a series was last marked settled */
    struct slot_batch *slots;     /* owned: leaving; NULL: none */
    bool is_durable;              /* the manifest has a checkpoint without them */
};

struct shard {
    alignas(64) struct mutex lock; /* guards all down to the statistics */
    struct series_table series;
    struct fingerprint_table fingerprints;
    struct chunk_source blocks;
    struct log_queue log;
    /* No sample in memory is older. INT64_MAX: there is none; too low after samples were taken out
     * by a seal that failed. */
    int64_t memory_min_ms;
    struct late_buffer late;        /* older samples; LIFECYCLE.md */
    struct late_buffer late_frozen; /* what a seal is writing out of it; still read */
    /* The same of native histograms: in order, late, and what a seal is writing of the latter. */
    struct histogram_lane histograms, histograms_late, histograms_late_frozen;
    struct slot_bits rewritten; /* series that a sender key leads to whose labels rules rewrote */
    uint64_t stale_count;       /* live series whose newest sample is a staleness marker */
    uint64_t silent_count;      /* others that had no sample for long, at the last look */
    struct file_set *files;     /* counted; replaced under `lock` by the holder of files_lock */

    /* relaxed: statistics, written under the lock, read anywhere */
    _Atomic uint64_t series_count, chunk_count, sample_count; /* of the open and closed chunks */
    _Atomic uint64_t late_count, late_bytes; /* late samples of both kinds, frozen ones too */
    _Atomic uint64_t histogram_count, histogram_bytes; /* of the lane of those in order */
    _Atomic uint64_t keyed_count; /* live series that some sender key leads to */
    /* INT64_MAX / INT64_MIN while empty. relaxed: a reader may see a bound a moment late */
    _Atomic int64_t min_time_ms, max_time_ms;

    /* One new series at a time: held from the look-up of a fingerprint until its series is
     * published, so that index_add() needs no shard lock. Order: before `lock`. */
    struct mutex create_lock;
    /* One maintenance call at a time; held over whole seals and flushes. First of all locks. */
    struct mutex maintain_lock;
    /* Who builds and publishes the next file set; held for a few copies. Before create_lock. */
    struct mutex files_lock;
    /* As the manifest names it, and when that was. relaxed: for engine_seal_state() */
    _Atomic uint64_t covered_sequence, sealed_mono_ns;
    struct shard_sealer *sealer; /* owned; guarded by maintain_lock; NULL before the first seal */
    /* Owned; has a lock of its own. Replaced under create_lock and `lock`, by whoever holds
     * maintain_lock: read under one of the three. Queriers keep one for their life (readers). */
    struct index *index;
    struct index_rebuild *rebuild; /* guarded by create_lock; NULL: none */
    struct slot_pool slots;        /* guarded by create_lock */
    struct series_leave leave;     /* guarded by maintain_lock */
    struct budget *memory;         /* borrowed, may be NULL */
    uint32_t number;

    /* Replay only; one thread at a time. */
    struct held_samples held;
    struct log_entry *decoded; /* scratch of the samples of one record */
    size_t decoded_capacity;
    uint64_t held_bytes;
    /* What the replay met damage in is in the log still; until the next seal. Relaxed: a wish. */
    _Atomic bool log_is_damaged;
    uint64_t replayed_samples, unknown_ref_samples, conflicting_definitions, stale_samples;
    uint64_t sealed_samples;    /* not newer, in a shard with a covered sequence: files have them */
    uint32_t unknown_ref_first; /* a slot to name in the log */
    bool is_salvaged;           /* the series file is damaged */
    struct shard_bounds salvaged; /* of its files then */
    uint32_t file_slot_end;       /* one above the highest slot that its files name; 0 if damaged */
    uint32_t unknown_slot_end;    /* one above the highest slot named by what stayed unknown */
};

MUST_USE enum err shard_init(struct shard *s, uint32_t number, struct chunk_pool *blocks,
                             struct slab *slab, struct log_pool *logs, struct budget *memory,
                             struct errinfo *ei);
/* Accepts a zeroed struct. */
void shard_done(struct shard *s);

/* Notes that a sender key leads to the series, or that it is gone. Caller holds `lock`. */
void shard_series_keyed(struct shard *s, struct series *series, bool keyed);

/* ---- appending, under shard.lock ---- */

enum append_outcome {
    APPEND_STORED,
    APPEND_REPEAT,       /* the same timestamp and bits are in memory already */
    APPEND_OUT_OF_ORDER, /* older than the late samples that are taken */
    APPEND_DUPLICATE,
    APPEND_NO_MEMORY,
};

/* What a request keeps for samples that are older than their series' newest. */
struct old_samples {
    int64_t late_min_ms; /* those before it that are not there yet are out of order */
    uint64_t work_count; /* in samples, so that the caller can let others have the lock */
    /* The series of the last look-up, and the decoded chunk or the gap between chunks it found. */
    uint32_t slot;
    size_t count;                   /* 0: no chunk */
    int64_t gap_min_ms, gap_max_ms; /* no chunk has a sample in it; min > max: none is known */
    int64_t t_ms[CHUNK_DECODE_ROOM];
    double value[CHUNK_DECODE_ROOM];
};
/* Forgets the last look-up: before another shard, and after others had the lock. */
static inline void old_samples_reset(struct old_samples *old)
{
    old->count = 0;
    old->gap_min_ms = INT64_MAX;
    old->gap_max_ms = INT64_MIN;
}

/* What one critical section changed; added to the statistics before the lock is left. */
struct shard_change {
    uint64_t stored_count;
    uint32_t closed_count, opened_count;
    int32_t stale_count; /* series whose newest sample has become a staleness marker, less others */
    int64_t min_time_ms, max_time_ms;
};
static inline struct shard_change shard_change_none(void)
{
    return (struct shard_change){.min_time_ms = INT64_MAX, .max_time_ms = INT64_MIN};
}
void shard_change_apply(struct shard *s, struct shard_change *change);
/* For samples that come into memory. Caller holds shard.lock. */
void shard_widen_bounds(struct shard *s, int64_t min_time_ms, int64_t max_time_ms);
/* Lowers the shard's newest time to that of its live series: after the deletion of samples that lie
 * ahead of the clock, which would keep writes out. Walks all slots; the caller holds the lock. */
void shard_settle_newest(struct shard *s);
/* Samples that left the chunks in memory. Caller holds shard.lock. */
void shard_count_detached(struct shard *s, uint64_t chunk_count, uint64_t sample_count);

/* A sample that is not newer than its series' newest: a repeat, a duplicate, or for the late buffer
 * and the log. */
enum append_outcome shard_append_old(struct shard *s, uint32_t slot, struct series *series,
                                     int64_t t_ms, uint64_t bits, struct old_samples *old);
/* Puts a sample into the late buffer only, unless that or the frozen one has its timestamp; replay
 * does this. */
enum late_outcome shard_store_late(struct shard *s, uint32_t slot, struct series *series,
                                   int64_t t_ms, uint64_t bits);
/* What memory says of a sample of either kind that is not newer than its series' newest:
 * APPEND_STORED when it may go to the late ones (which have not been asked yet), else a repeat, a
 * duplicate, out of order, or APPEND_NO_MEMORY. A histogram's bits are those of
 * histogram_packed_bits(). */
enum append_outcome shard_judge_old(struct shard *s, uint32_t slot, const struct series *series,
                                    int64_t t_ms, uint64_t bits, struct old_samples *old);
/* The statistics of late samples, after a change. */
void shard_late_statistics(struct shard *s);
/* The late buffer and lane are frozen for a seal, unless those before were not dropped: they go
 * first. */
void shard_late_freeze(struct shard *s);
/* Takes the frozen buffer of floats, which is in a file now; `out` is the caller's, to be done with
 * late_buffer_done() after the lock is left. The frozen lane likewise. */
void shard_late_take(struct shard *s, struct late_buffer *out,
                     struct histogram_lane *out_histograms);

/* Puts a newer sample into the open chunk only; replay does this. False when memory is refused. */
static inline bool shard_store(struct shard *s, struct series *series, int64_t t_ms, uint64_t bits,
                               struct shard_change *change)
{
    uint32_t closed_before = change->closed_count;
    bool was_empty = series->open_count == 0;
    bool was_stale = series->newest_bits == STALE_NAN_BITS;

    if (UNLIKELY(!chunk_append(series, &s->blocks, t_ms, bits, &change->closed_count)))
        return false;
    change->opened_count += was_empty || change->closed_count != closed_before;
    change->stored_count++;
    change->stale_count += (bits == STALE_NAN_BITS) - was_stale;
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
                                               struct shard_change *change, struct old_samples *old)
{
    struct log_entry *entry;

    if (UNLIKELY(t_ms <= series->newest_ms))
        return shard_append_old(s, slot, series, t_ms, bits, old);
    entry = log_queue_next(&s->log, &s->log.in_order);
    if (UNLIKELY(entry == NULL) || UNLIKELY(!shard_store(s, series, t_ms, bits, change)))
        return APPEND_NO_MEMORY;
    *entry = (struct log_entry){
        .slot = slot,
        .generation = series->generation,
        .scale = (uint8_t)series->scale,
        .t_ms = t_ms,
        .bits = bits,
    };
    log_queue_commit(&s->log, &s->log.in_order);
    return APPEND_STORED;
}

/* ---- histograms: shard_histogram.c ---- */

/* A histogram on its way in: the value, and its packed form, which stands by itself. */
struct histogram_sample {
    int64_t t_ms;
    const struct histogram *value;
    struct bytes packed;
    uint64_t bits; /* histogram_packed_bits() */
};
/* As shard_append(). */
enum append_outcome shard_append_histogram(struct shard *s, uint32_t slot, struct series *series,
                                           const struct histogram_sample *h,
                                           struct old_samples *old);
/* As shard_store(): a newer one, into the lane only. */
MUST_USE bool shard_store_histogram(struct shard *s, uint32_t slot, struct series *series,
                                    const struct histogram_sample *h);
/* As shard_store_late(). */
enum late_outcome shard_store_late_histogram(struct shard *s, uint32_t slot, struct series *series,
                                             const struct histogram_sample *h);
/* What the lanes of late histograms say of a sample of either kind. */
enum late_outcome shard_judge_late_histograms(const struct shard *s, uint32_t slot,
                                              const struct series *series, int64_t t_ms,
                                              uint64_t bits);
/* The statistics of the lane, after a change. */
void shard_histogram_statistics(struct shard *s);
/* Whether a lane has something of the series. */
bool shard_has_histograms(const struct shard *s, uint32_t slot, uint16_t generation);

/* ---- series ---- */

/* Publishes a series in a slot whose page exists and whose labels are in the index. Caller holds
 * shard.lock. False when memory is refused; the slot then stays empty for good. */
MUST_USE bool shard_publish_series(struct shard *s, uint32_t slot, uint16_t generation,
                                   struct hash128 fingerprint);
/* A series that is leaving comes back, as new: its definition must be logged. Caller holds
 * shard.lock.
 */
void shard_revive_series(struct shard *s, uint32_t slot);
/* The other way: no look-up finds the series any more. It has no samples in memory. The slot goes
 * to the shard's slot pool, in a batch; its generation stays until it comes out of there. Caller
 * holds create_lock and shard.lock. */
void shard_unpublish_series(struct shard *s, uint32_t slot);

#endif
