/*
 * The log's handle. Three groups of fields: set before threads start; the committer thread's own;
 * and shared ones, each with its rule.
 */
#ifndef RIMSTONE_WAL_WAL_INTERNAL_H
#define RIMSTONE_WAL_WAL_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/metrics.h"
#include "base/thread.h"
#include "wal/cut_internal.h"
#include "wal/encode_internal.h"
#include "wal/segment_internal.h"
#include "wal/wal.h"

/* Where the committer sleeps, so that wal_notify() knows whether to wake it. */
enum sleep_state {
    SLEEP_AWAKE,
    SLEEP_IDLE,   /* until anything is queued */
    SLEEP_PACING, /* until wake_at_samples are queued or the delay is over */
};

enum stop_mode {
    STOP_NOT,
    STOP_CLOSE,   /* commit what is queued, then end */
    STOP_ABANDON, /* end after the call under way */
};

/* All NULL without a registry. */
struct wal_metrics {
    struct metric_counter *bytes_written, *commits, *frames, *samples, *fsync_failures;
    struct metric_counter *commit_failures, *writes_failed, *corruptions, *lost_entries;
    struct metric_histogram *commit_seconds, *fsync_seconds;
    struct metric_counter *cuts, *cut_failures;
    struct metric_gauge *segment_current, *backlog_bytes, *replay_seconds, *log_bytes;
};

struct waiter_list {
    struct mutex lock; /* guards the rest; a leaf lock, done() is called without it */
    struct wal_waiter *first;
    bool closed; /* nothing will be committed any more */
};

struct wal {
    /* Set by wal_open(), wal_replay() and wal_start(), before the committer runs. */
    struct wal_options options;
    struct fs *fs;
    struct wal_metrics metrics;
    struct encode_team *team;
    uint64_t start_epoch;
    uint64_t *next_sequences; /* per shard, what replay found */
    bool replayed, started;

    /* The committer thread's own. */
    struct segment *segment;      /* NULL: the next commit creates one */
    uint32_t segment_number_last; /* highest number ever tried */
    uint32_t resume_segment;      /* what the next segment's header says, see format.c */
    uint64_t resume_size;
    struct frame **pending; /* taken and not durable yet, in order; owned */
    size_t pending_count, pending_capacity;
    struct frame *unused_frames; /* pool; owned */
    size_t unused_bytes;
    uint64_t *taken_sequences; /* per shard, next one expected from take() */
    uint64_t seen_bytes, seen_samples;
    uint64_t sweep_ns;         /* monotonic time of the last sweep */
    uint64_t unsynced_ns;      /* since when something written is not synced */
    uint64_t retry_ns;         /* monotonic; 0: the last commit was well */
    uint32_t failure_count;    /* failed commits in a row */
    uint32_t shards_per_sweep; /* shards that had something the last time; at least 1 */
    enum err last_failure;
    bool close_tried;           /* a commit has begun since wal_close() */
    uint64_t close_deadline_ns; /* written under `lock` before stop */

    struct thread committer;
    struct mutex lock; /* guards stop, close_deadline_ns, rotate and the sleep on `wake` */
    struct cond wake;
    enum stop_mode stop;
    bool rotate;                  /* wal_rotate() was called */
    struct segment_ledger ledger; /* has its own lock */
    struct waiter_list waiters;

    /* wal_notify() adds to the three sums and then loads sleep_state; the committer stores
     * sleep_state and then loads the sums. Both need one total order (seq_cst), or each could
     * miss the other and an entry would wait for the next one. */
    _Atomic uint32_t sleep_state; /* enum sleep_state */
    _Atomic uint64_t notified_entries, notified_samples;
    _Atomic uint64_t notified_bytes;  /* relaxed: read by the committer only, after the entries */
    _Atomic uint64_t wake_at_samples; /* relaxed: stored before sleep_state, read after it */
    /* relaxed: notified_entries at the last sweep. Decides only whether a notifier stamps
     * first_queued_ns, which is off by at most one commit if it misses. */
    _Atomic uint64_t seen_entries;
    _Atomic uint64_t first_queued_ns; /* relaxed, see above */
    _Atomic uint64_t bytes_per_entry; /* relaxed: a guess for wal_notify() */

    /* Release when the entries are durable, acquire at whoever answers a client. */
    _Atomic uint64_t *durable_sequences; /* per shard */
    /* relaxed, both: they steer admission, and being late by a request harms nothing */
    _Atomic int64_t backlog_bytes;
    _Atomic uint32_t admit_code; /* enum err */

    /* relaxed: statistics */
    _Atomic uint64_t stat_bytes, stat_frames, stat_commits, stat_samples, stat_failures;
    _Atomic uint64_t stat_segment;
    _Atomic uint64_t stat_log_bytes, stat_segment_count; /* of all segment files */
    _Atomic uint64_t replay_segment_min, replay_segment_max, replay_segment_current;
    _Atomic uint64_t replay_bytes_done, replay_bytes_total;
};

/* wal.c */
void wal_metrics_register(struct wal_metrics *m, struct metrics_registry *r);
void wal_counter_add(struct metric_counter *c, uint64_t n); /* accepts NULL */
void wal_gauge_set(struct metric_gauge *g, double v);
void wal_histogram_observe(struct metric_histogram *h, double v);

/* commit.c */
/* Creates the segment after the last; the old one, if any, stays current when it fails. */
MUST_USE enum err commit_segment_open(struct wal *w, struct errinfo *ei);
/* Ends the current segment when it holds a frame. */
MUST_USE enum err commit_segment_rotate(struct wal *w, struct errinfo *ei);
/* Takes, encodes and writes once; waiters are told. */
void commit_once(struct wal *w);
/* Syncs what SYNC_INTERVAL or SYNC_NEVER left unsynced. */
MUST_USE enum err commit_sync(struct wal *w, struct errinfo *ei);
bool commit_sync_needed(const struct wal *w);
/* A failed commit's effect on admission, retries and waiters. */
void commit_failed(struct wal *w, const struct errinfo *ei);
void commit_frames_free(struct wal *w);

/* cut.c */
/* Bytes and files that came or went; also to the metric. */
void log_size_add(struct wal *w, int64_t bytes, int64_t segments);

/* committer.c */
void *committer_thread(void *arg);

/* wait.c */
void waiter_list_init(struct waiter_list *list);
void waiter_list_done(struct waiter_list *list);
/* Ends every waiter whose sequences are durable with ERR_OK, and, unless `code` is ERR_OK, all
 * others with `code`. */
void waiter_list_resolve(struct wal *w, enum err code);
/* From now on nobody waits: ends all, and later ones at once, with `code`. */
void waiter_list_close(struct wal *w, enum err code);

#endif
