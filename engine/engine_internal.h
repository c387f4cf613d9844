/*
 * The engine's handle, as its own files see it.
 */
#ifndef RIMSTONE_ENGINE_ENGINE_INTERNAL_H
#define RIMSTONE_ENGINE_ENGINE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "engine/engine.h"
#include "engine/front_table_internal.h"
#include "engine/shard_internal.h"
#include "engine/write.h"

enum {
    ENGINE_SHARD_COUNT_DEFAULT = 16,
    ENGINE_FUTURE_LIMIT_MS = 10 * 60 * 1000, /* how far a sample may be ahead of the clock */
    ENGINE_ALIASES_PER_SERIES = 4,
    ENGINE_ALIASES_FREE = 1024, /* allowed whatever the number of series */
};

/* What a metrics callback gets: the engine and which figure. */
struct engine_figure {
    const struct engine *engine;
    uint32_t which;
};

struct engine {
    struct fs *fs;               /* borrowed */
    const struct clock *clock;   /* borrowed */
    struct budget *memory_limit; /* borrowed, may be NULL */
    /* What the engine holds. Its parent is memory_limit from the end of replay on: what was
     * acknowledged is loaded even if it needs more than the limit, else a start would fail. */
    struct budget storage;
    struct budget *memory; /* = &storage */
    struct hash_secret secret;
    uint32_t shard_count; /* a power of two */
    uint32_t shard_bits;
    struct slab slab;
    struct chunk_pool blocks;
    struct log_pool logs;
    struct front_table *front; /* owned */
    struct shard *shards;      /* owned, shard_count of them */
    struct wal *wal;           /* owned */
    bool is_locked;            /* we hold the directory's lock */
    /* Release after replay, acquire before the first write: everything replayed is visible. */
    _Atomic bool is_ready;
    _Atomic uint32_t first_shard; /* relaxed: spreads where requests start */

    /* relaxed: statistics */
    _Atomic uint64_t samples_appended, samples_repeated, alias_count;
    _Atomic uint64_t samples_refused[REFUSAL_COUNT];
    _Atomic uint64_t slow_path_series, alias_refused;

    /* The tick: has definitions repeated in the log when no traffic does it. */
    struct thread tick;
    struct mutex tick_lock; /* guards tick_stop, tick_is_idle */
    struct cond tick_wake;
    bool tick_stop;
    _Atomic bool tick_is_idle; /* written under tick_lock; read relaxed as a hint */

    struct engine_figure *figures; /* owned; contexts of metrics callbacks */
};

/* ---- write_slow.c ---- */

struct write_request; /* write_internal.h */

/* ---- log_source.c ---- */
struct wal_source engine_log_source(struct engine *e);
MUST_USE enum err engine_tick_start(struct engine *e, struct errinfo *ei);
void engine_tick_stop(struct engine *e);
/* Tells the tick that definitions were queued. */
void engine_tick_poke(struct engine *e);

/* ---- replay.c ---- */
struct wal_sink engine_replay_sink(struct engine *e);
/* Counts what is still held and frees replay's memory. */
void engine_replay_finish(struct engine *e, struct engine_replay_result *out);

/* ---- engine_metrics.c ---- */
MUST_USE enum err engine_metrics_register(struct engine *e, struct metrics_registry *registry,
                                          struct errinfo *ei);

/* ---- labels of incoming series ---- */
struct series_identity {
    struct hash128 fingerprint;
    uint32_t shard;
};
/* Fingerprint and shard of canonical fields; [name_begin, name_end) is the metric name's field
 * within them. `scratch` is overwritten. False when memory is refused. */
MUST_USE bool engine_identify(const struct engine *e, struct bytes canonical, size_t name_begin,
                              size_t name_end, struct byte_writer *scratch,
                              struct series_identity *out);

#endif
