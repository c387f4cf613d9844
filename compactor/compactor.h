/*
 * The compactor: decides when the engine seals, flushes, merges and drops, and does it in threads
 * of its own.
 *
 *   checkpoint  one thread: seals, window flushes, splits of late files, retention. Nothing that
 *               takes long without end runs there, so that a large merge never delays a seal.
 *   workers     merges and purges, at most one a shard at a time; at a lower priority than what
 *               answers requests, and with pauses while requests wait or run.
 *
 * Life: compactor_new() -> compactor_start() after the replay -> compactor_stop() before
 * engine_close() -> compactor_free().
 */
#ifndef RIMSTONE_COMPACTOR_COMPACTOR_H
#define RIMSTONE_COMPACTOR_COMPACTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/metrics.h"

struct engine;
struct compactor;

/* Everything pointed to is borrowed and outlives the compactor. */
struct compactor_options {
    struct engine *engine;
    struct fs *fs;                    /* the engine's: results that no longer fit are removed */
    const struct clock *clock;        /* the wall clock: names of snapshots */
    bool clock_is_data;               /* the seal interval counts the data's time, not ours */
    uint32_t thread_count;            /* workers; 0: half the cores, at least 1 */
    uint64_t retention_ms;            /* 0: without end */
    uint64_t retention_bytes;         /* parts, sealed files and log together; 0: without end */
    uint64_t seal_interval_ms;        /* longest time between seals of a shard; 0: 30 min */
    uint64_t log_limit_bytes;         /* 0: 2 GiB */
    uint64_t replay_ns_per_entry;     /* CPU time, as measured by a replay; 0: 100 ns */
    struct budget *memory;            /* --storage.memory-limit; merges charge it; NULL: no limit */
    struct metrics_registry *metrics; /* may be NULL */
    /* How many requests run or wait at the moment, those that only wait for the log left out. Any
     * thread. NULL: never any. */
    uint64_t (*load)(void *ctx);
    void *load_ctx;
};

MUST_USE enum err compactor_new(const struct compactor_options *options, struct compactor **out,
                                struct errinfo *ei);
/* After engine_replay(), once. After an error nothing runs. */
MUST_USE enum err compactor_start(struct compactor *c, struct errinfo *ei);
/* Ends running work (what is half done leaves nothing behind) and waits for the threads.
 * ERR_TIMEOUT: they have not ended; the process should end without compactor_free() and
 * engine_close(). May be called again, and before compactor_start(). */
MUST_USE enum err compactor_stop(struct compactor *c, uint32_t deadline_ms, struct errinfo *ei);
/* After compactor_stop(). Accepts NULL. */
void compactor_free(struct compactor *c);

/* Time of the oldest sample in a part, a few seconds old; INT64_MAX: there is none. Never waits. */
int64_t compactor_oldest_ms(const struct compactor *c);

/* Has the checkpoint thread look at once and waits until a seal or a flush has ended, which may
 * have made room in memory, or until the deadline. */
void compactor_wait_for_seal(struct compactor *c, uint64_t deadline_mono_ns);

/*
 * Rewrites every part that a tombstone touches and forgets the tombstones that are not needed any
 * more. Blocks; the workers do it. What is in sealed files is purged when their window is flushed.
 * The first error of any shard is returned after all have been tried; ERR_CANCELED when *stop (may
 * be NULL) became true or the compactor stopped: the parts may still be rewritten then.
 */
MUST_USE enum err compactor_clean(struct compactor *c, const _Atomic bool *stop,
                                  struct errinfo *ei);

enum { COMPACTOR_SNAPSHOT_NAME_SIZE = 40 };
#define COMPACTOR_SNAPSHOT_DIR "snapshots" /* within the data directory */
/* Seals everything and copies the store into COMPACTOR_SNAPSHOT_DIR/<name>, a data directory of its
 * own; the name is Prometheus's: time in UTC and 16 hexadecimal digits. Blocks; *stop may be NULL.
 */
MUST_USE enum err compactor_snapshot(struct compactor *c, const _Atomic bool *stop,
                                     char name[COMPACTOR_SNAPSHOT_NAME_SIZE], struct errinfo *ei);

#endif
