/*
 * The store as one handle. Life: engine_open() -> engine_replay() -> use -> engine_close().
 * Queries: engine/querier.h. Writes: engine/write.h.
 */
#ifndef RIMSTONE_ENGINE_ENGINE_H
#define RIMSTONE_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "base/metrics.h"
#include "wal/wal.h"

struct engine;

struct engine_options {
    struct fs *fs;                    /* borrowed; the data directory */
    const struct clock *clock;        /* borrowed */
    struct metrics_registry *metrics; /* borrowed, may be NULL */
    struct budget *memory;            /* borrowed: --storage.memory-limit; NULL: no limit */
    uint32_t shard_count;             /* a power of two in 1..4096, 0: as stored */
    uint32_t new_shard_count;         /* of a new directory when shard_count is 0; 0: 16 */
    enum wal_sync wal_sync;
    uint32_t wal_sync_interval_ms;
    uint64_t wal_segment_size_bytes; /* 0: default */
    uint32_t wal_commit_delay_ms;    /* 0: default; tests shorten it */
    uint64_t hash_secret_seed;       /* 0: random; tests fix it. Only for a new directory */
    /* For tools: queries only. Nothing on disk changes (no debris is removed, no torn tail cut
     * off), the lock is shared with other readers, a directory is not created: ERR_NOT_FOUND. */
    bool read_only;
    int64_t retention_ms; /* older samples are refused; 0: no limit */
    int64_t
        out_of_order_window_ms; /* of samples older than their series' newest, those that are
                                   older than the newest of all less this are refused; 0: none */
    bool clock_is_data;         /* --storage.clock=data; see engine_now_ms() */
};

/*
 * Locks the directory (ERR_LOCKED when another server holds it), reads or creates the manifest
 * (shard count, secret, version; ERR_UNSUPPORTED for a newer version) and opens the log. A
 * directory of another count than options->shard_count is changed first, which replays its log and
 * writes all its samples into parts.
 */
MUST_USE enum err engine_open(const struct engine_options *options, struct engine **out,
                              struct errinfo *ei);

struct engine_replay_result {
    struct wal_replay_result wal;
    uint64_t series_count, sample_count;
    uint64_t unknown_ref_samples;  /* samples whose series definition was lost: counted, dropped */
    uint64_t files_set_aside;      /* damaged or missing ones; the store goes on without them */
    uint64_t series_files_damaged; /* series that only they defined are lost */
};
/* Replays the log with `thread_count` workers (0: all cores), then starts the committer; writes and
 * queries may begin. Blocks; progress through engine_replay_progress() from any thread. */
MUST_USE enum err engine_replay(struct engine *e, uint32_t thread_count,
                                struct engine_replay_result *out, struct errinfo *ei);
void engine_replay_progress(const struct engine *e, struct wal_progress *out);

/* Commits and closes the log (at most deadline_ms), unlocks, frees. */
MUST_USE enum err engine_close(struct engine *e, uint32_t deadline_ms, struct errinfo *ei);
/* Frees without committing, as if the process had died; for crash tests. */
void engine_abandon(struct engine *e);

uint32_t engine_shard_count(const struct engine *e);
/* Files that a store of so many shards may hold open at once: those it writes and sealed ones, what
 * it keeps open of parts, the log, a merge. A store that is started again and again holds more for
 * some hours. */
uint32_t engine_descriptor_count(uint32_t shard_count);
const struct hash_secret *engine_hash_secret(const struct engine *e);
/* The clock of windows and retention: the wall clock or, with clock_is_data, the newest accepted
 * timestamp, never past the wall clock (the earliest possible time while there is none). */
int64_t engine_now_ms(const struct engine *e);
void engine_wait_durable(struct engine *e, struct wal_waiter *waiter);
/* ERR_OK, or why a request should get 503 before it is even decoded. A few atomic loads. */
enum err engine_admit(const struct engine *e, struct errinfo *ei);

struct engine_stats {
    uint64_t series_count, chunk_count, sample_count; /* in memory, late samples not counted */
    uint64_t late_sample_count, late_bytes;           /* late ones, histograms among them */
    uint64_t histogram_count, histogram_bytes;        /* native histograms that are not late */
    uint64_t samples_appended, samples_repeated;      /* the former are floats only */
    uint64_t histograms_appended;
    uint64_t memory_bytes; /* charged to the memory budget */
    /* Of these, blocks that the next samples go into: they do not count when writes stop. */
    uint64_t free_block_bytes;
    uint64_t front_table_entries, front_table_aliases;
    uint64_t label_value_count, label_value_bytes;
    int64_t min_time_ms, max_time_ms; /* INT64_MAX / INT64_MIN when empty */
    struct wal_stats wal;
};
void engine_stats_get(const struct engine *e, struct engine_stats *out);

#endif
