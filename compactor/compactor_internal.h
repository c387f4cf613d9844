/*
 * The compactor's handle, as its own files see it.
 */
#ifndef RIMSTONE_COMPACTOR_COMPACTOR_INTERNAL_H
#define RIMSTONE_COMPACTOR_COMPACTOR_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/thread.h"
#include "compactor/compactor.h"
#include "compactor/merge.h"
#include "compactor/policy_internal.h"
#include "compactor/retention_internal.h"
#include "engine/maintain.h"

enum { COMPACTOR_THREAD_COUNT_MAX = 256 };

/* Failures in a row, and until when to let it be. */
struct backoff {
    uint32_t failures;
    uint64_t until_mono_ns;
};
void backoff_add(struct backoff *b, uint64_t mono_ns);

struct shard_work {
    /* Held by the checkpoint thread over a flush or a split, by workers while they list the parts
     * and look for late files: a late file that becomes a part in between would be jumped over by
     * the merge. First of all locks. */
    struct mutex files_lock;
    _Atomic bool split_wanted; /* a merge waits for the late files; relaxed: a hint */

    /* The checkpoint thread's own. */
    struct backoff seal, flush, split;
    uint64_t late_seen_mono_ns; /* since when there are late files; 0: there are none */

    /* Guarded by compactor.lock. */
    bool is_running; /* a worker has the shard */
    bool has_news;   /* something has changed since a worker found nothing to do */
    bool purge_wanted;
    struct backoff merge;

    /* Whoever has is_running. */
    struct part_key *damaged; /* owned: set aside until they go or the process ends */
    size_t damaged_count, damaged_capacity;
};

/* One thread of the pool. */
struct worker {
    struct compactor *compactor;
    struct thread thread;
    struct merge_progress progress; /* of the running merge; zeros between */
    /* The merge's purge hook. */
    struct arena ranges_arena;
    /* Pace. */
    uint64_t batch_mono_ns; /* when the batch at hand began */
    uint64_t paused_ns;     /* of the running job */
};

enum { WINDOW_CLASS_COUNT = 7 }; /* 2 h, 8 h, 1 d, 3 d, 9 d, 27 d, other */

struct compactor_metrics {
    struct metric_counter *seals[SEAL_REASON_COUNT], *seal_failures, *seal_bytes;
    struct metric_counter *seal_samples, *seal_late_samples, *seal_ended_series;
    struct metric_histogram *seal_seconds;
    struct metric_gauge *seal_hold_max;
    struct metric_counter *flushes, *flush_failures, *flush_samples, *flush_bytes, *flush_parts;
    struct metric_histogram *flush_seconds;
    struct metric_counter *splits, *split_failures;
    struct metric_counter *merges_triggered, *merges, *merge_failures;
    struct metric_histogram *merge_seconds;
    struct metric_gauge *merges_running;
    struct metric_counter *merge_copied, *merge_encoded, *merge_repeated, *merge_purged;
    struct metric_counter *merge_bytes_in, *merge_bytes_out;
    struct metric_counter *merge_pause_ms;
    struct metric_histogram *clean_seconds;
    struct metric_counter *retentions[RETENTION_REASON_COUNT];
    struct metric_counter *retained_parts[RETENTION_REASON_COUNT];
    struct metric_counter *retained_bytes[RETENTION_REASON_COUNT];
    struct metric_gauge *parts_damaged;
    struct metric_gauge *parts, *part_bytes;
    struct metric_gauge *parts_by_window[WINDOW_CLASS_COUNT];
    struct metric_gauge *part_bytes_by_window[WINDOW_CLASS_COUNT];
    struct metric_gauge *sealed_files, *sealed_bytes, *late_files, *late_bytes, *series_bytes;
    struct metric_gauge *tombstones;
    struct metric_gauge *flushed_to;
};

struct compactor {
    struct compactor_options options; /* constant */
    struct engine *engine;            /* borrowed */
    uint32_t shard_count, thread_count, core_count;
    struct policy_settings settings;       /* constant after start */
    struct budget memory;                  /* of merges; child of options.memory */
    struct metrics_registry *own_registry; /* owned; when the options have none */
    struct compactor_metrics metrics;

    struct shard_work *shards; /* owned */
    struct worker *workers;    /* owned, thread_count of them */
    struct thread checkpoint;
    struct policy_shard *states;                      /* owned; the checkpoint thread's */
    uint64_t retention_due_mono_ns, look_due_mono_ns; /* the checkpoint thread's */
    uint64_t clean_due_mono_ns;
    uint32_t seals_in_row; /* the checkpoint thread's: without anything else in between */

    _Atomic int64_t oldest_ms; /* relaxed: a lone value */

    _Atomic bool stop;   /* relaxed to read: threads look again and again, and also under `lock` */
    struct mutex lock;   /* guards what follows and parts of shard_work; after files_lock */
    struct cond changed; /* of anything below */
    uint32_t running_count; /* threads that have not ended */
    uint32_t next_shard;    /* where workers begin to look: each shard gets its turn */
    uint32_t purges_left;   /* shards of the running clean that have not been purged */
    bool is_cleaning;
    bool is_poked;              /* the checkpoint thread should look at once */
    struct errinfo clean_error; /* the first of the running clean */
    /* Of the running or the last clean: one that was given up has late ends. */
    uint64_t clean_number;
    uint64_t step_count; /* seals and flushes that have ended */
};

static inline bool is_stopping(const struct compactor *c)
{
    return atomic_load_explicit(&c->stop, memory_order_relaxed);
}
/* Waits until `deadline_mono_ns`, or the compactor stops. */
void compactor_wait(struct compactor *c, uint64_t deadline_mono_ns);
/* A seal or a flush has ended, well or not: for compactor_wait_for_seal(). */
void compactor_step_ended(struct compactor *c);
/* A shard's files have changed: workers look at it again. */
void compactor_shard_changed(struct compactor *c, uint32_t shard);
void compactor_all_changed(struct compactor *c);
void compactor_poke(struct compactor *c);

/* ---- checkpoint.c ---- */
/* Before the thread starts: what is flushed by now, and from when phases count. */
void checkpoint_begin(struct compactor *c);
void *checkpoint_run(void *compactor);
/* One thing that is due, as checkpoint_run() does them; false: nothing is. Tests call it. */
bool checkpoint_step(struct compactor *c);

/* ---- snapshot.c ---- */

/* Removes what snapshots that were cut off have left; before anybody can ask for one. */
void compactor_snapshots_sweep(struct compactor *c);

/* ---- retention_run.c ---- */
void retention_run(struct compactor *c);

/* ---- workers.c ---- */
void *worker_run(void *worker);

/* ---- merge_job.c ---- */
enum job_outcome {
    JOB_DONE,    /* look again */
    JOB_NOTHING, /* until something changes */
    JOB_FAILED,  /* after a while */
};
/* Merges what is to be merged next in the shard. The caller has it (is_running). */
enum job_outcome merge_job(struct worker *w, uint32_t shard);
/* Rewrites each part of the shard that a tombstone touches. */
MUST_USE enum err purge_job(struct worker *w, uint32_t shard, struct errinfo *ei);

/* ---- set_aside.c ---- */
bool part_is_set_aside(const struct shard_work *s, const struct part_key *key);
/* Sets aside the input that an error names, or all of them when it names none. */
void parts_set_aside(struct compactor *c, struct shard_work *s, const struct engine_part *parts,
                     const bool *chosen, size_t count, const struct errinfo *why);
/* Forgets those that are not among the live parts any more. */
void set_aside_refresh(struct compactor *c, struct shard_work *s, const struct engine_part *parts,
                       size_t count);
/* usable[i]: whether a part may be planned with: neither set aside nor connected, by overlapping
 * windows, with one that is. */
void parts_usable(const struct shard_work *s, const struct engine_part *parts, size_t count,
                  bool *usable);

/* ---- pace.c ---- */
void pace_begin(struct worker *w);
/* The merge's yield hook; ctx is the worker. */
void pace_yield(void *worker);

/* ---- compactor_metrics.c ---- */
MUST_USE enum err compactor_metrics_register(struct compactor *c, struct errinfo *ei);
/* The gauges of what is on disk. */
void compactor_metrics_files(struct compactor *c, const struct retention_part *parts, size_t count,
                             const struct engine_file_stats *files);

#endif
