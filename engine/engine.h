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
    uint32_t shard_count;             /* a power of two in 1..4096, 0: as stored, or 16 when new */
    enum wal_sync wal_sync;
    uint32_t wal_sync_interval_ms;
    uint64_t wal_segment_size_bytes; /* 0: default */
    uint64_t hash_secret_seed;       /* 0: random; tests fix it. Only for a new directory */
};

/*
 * Locks the directory (ERR_LOCKED when another server holds it), reads or creates the manifest
 * (shard count, secret, version; ERR_UNSUPPORTED for a newer version) and opens the log. A stored
 * shard count wins over options->shard_count until shards can be split (a warning is the caller's).
 */
MUST_USE enum err engine_open(const struct engine_options *options, struct engine **out,
                              struct errinfo *ei);

struct engine_replay_result {
    struct wal_replay_result wal;
    uint64_t series_count, sample_count;
    uint64_t unknown_ref_samples; /* samples whose series definition was lost: counted, dropped */
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
const struct hash_secret *engine_hash_secret(const struct engine *e);
void engine_wait_durable(struct engine *e, struct wal_waiter *waiter);
/* ERR_OK, or why a request should get 503 before it is even decoded. A few atomic loads. */
enum err engine_admit(const struct engine *e, struct errinfo *ei);

struct engine_stats {
    uint64_t series_count, chunk_count, sample_count; /* in memory */
    uint64_t samples_appended, samples_repeated;
    uint64_t memory_bytes; /* charged to the memory budget */
    uint64_t front_table_entries, front_table_aliases;
    uint64_t label_value_count, label_value_bytes;
    int64_t min_time_ms, max_time_ms; /* INT64_MAX / INT64_MIN when empty */
    struct wal_stats wal;
};
void engine_stats_get(const struct engine *e, struct engine_stats *out);

#endif
