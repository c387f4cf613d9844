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
#include "engine/files/manifest_internal.h"
#include "engine/limits/limits_internal.h"
#include "engine/memtable/shard_internal.h"
#include "engine/read/readers_internal.h"
#include "engine/rules/rules_internal.h"
#include "engine/write.h"
#include "engine/write/front_table_internal.h"

enum {
    ENGINE_SHARD_COUNT_DEFAULT = 16,
    ENGINE_FUTURE_LIMIT_MS = 10 * 60 * 1000, /* how far a sample may be ahead of the clock */
    ENGINE_ALIASES_PER_SERIES = 4,
    ENGINE_ALIASES_FREE = 1024, /* allowed whatever the number of series */
};

/* What a metrics callback gets: the engine and which figure. */
struct engine_figure {
    struct engine *engine;
    uint32_t which;
};

/* Parts whose exchange failed when it could not be told which manifest the disk holds. */
struct doubtful_parts {
    struct mutex lock;     /* a leaf; guards all of it */
    struct part_key *keys; /* owned */
    size_t count, capacity;
};

struct engine {
    struct fs *fs;                                /* borrowed */
    const struct clock *clock;                    /* borrowed */
    int64_t retention_ms, out_of_order_window_ms; /* as in engine_options */
    bool clock_is_data;
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
    struct front_table *front;  /* owned */
    struct rules rules;         /* which series are dropped or rewritten */
    struct shard *shards;       /* owned, shard_count of them */
    struct wal *wal;            /* owned */
    bool is_locked;             /* we hold the directory's lock */
    bool is_read_only;          /* engine_options.read_only */
    struct part_store *parts;   /* owned */
    struct mutex manifest_lock; /* guards `manifest`; held over its replacement on disk */
    struct manifest manifest;   /* as it stands on disk */
    struct doubtful_parts doubtful;
    /* What is deleted, for merges; queries take the list of their file set. */
    struct mutex tombstones_lock;      /* a leaf; guards the pointer */
    struct tombstone_list *tombstones; /* counted; NULL: none */
    _Atomic size_t tombstone_count;    /* relaxed: a merge that misses a new one changes nothing */
    /* A generation above those of all tombstones that have been withdrawn since the start; 0: none.
     * Merges whose inputs were listed before may have applied one. Stored under the maintain_locks
     * of all shards, after `tombstones` (release); loaded before a file set is taken (acquire), so
     * that who sees it sees the list without them. */
    _Atomic uint64_t withdrawn_generation;
    bool manifest_is_unsettled; /* a failed write left the disk in doubt; under manifest_lock */
    _Atomic uint64_t files_set_aside;      /* relaxed: damaged ones, since the start */
    _Atomic uint64_t series_files_damaged; /* relaxed: of these some or all series are lost */
    struct reader_registry readers;
    struct limiter limiter;
    /* Release after replay, acquire before the first write: everything replayed is visible. */
    _Atomic bool is_ready;
    _Atomic uint32_t first_shard; /* relaxed: spreads where requests start */

    /* relaxed: statistics */
    _Atomic uint64_t samples_appended, histograms_appended, samples_repeated;
    _Atomic uint64_t samples_refused[REFUSAL_COUNT];
    _Atomic uint64_t slow_path_series, alias_refused;
    _Atomic uint64_t dead_keys; /* first keys of series that died since the last sweep */
    struct mutex sweep_lock;    /* who sweeps the front table; first of all locks */

    /* The tick: has definitions repeated in the log when no traffic does it. */
    struct thread tick;
    struct mutex tick_lock; /* guards tick_stop, tick_is_idle */
    struct cond tick_wake;
    bool tick_stop;
    _Atomic bool tick_is_idle; /* written under tick_lock; read relaxed as a hint */

    struct engine_figure *figures; /* owned; contexts of metrics callbacks */
};

/* ---- engine.c ---- */
/* Newest accepted timestamp of all shards; INT64_MIN: none. */
int64_t engine_newest_ms(const struct engine *e);
/* The newest sample lies further ahead of the clock than one is let in. */
bool engine_is_ahead(const struct engine *e);

/* ---- write_slow.c ---- */

struct write_request; /* write_internal.h */

/* Sender keys beyond the first of each series. An entry of the front table does not know which it
 * is, so these are the entries that no live series accounts for; those of dead series count until
 * they are swept. */
uint64_t engine_alias_count(const struct engine *e);

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

/* ---- engine.c ---- */

/* Stops what uses the log, and the log, without a commit. */
void engine_log_abandon(struct engine *e);
/* Everything but the log, which is gone. Accepts a half-built engine. */
void engine_free(struct engine *e);

/* ---- reshard.c ---- */

/* Gives an existing directory options->shard_count shards. Nobody has it open. */
MUST_USE enum err engine_reshard(const struct engine_options *options, struct errinfo *ei);

/* ---- manifest_owner.c ---- */

/* Changes a copy of the manifest. */
typedef enum err manifest_change(void *ctx, struct manifest *m, struct errinfo *ei);
/* Changes the manifest on disk, then the one in memory; the files it names are durable. Changes
 * wait for each other. After a failure the old one holds in memory, and the disk is brought back to
 * it; until that has worked, engine_manifest_is_settled() is false, and nothing that the old or
 * the new one names may be removed: the next start decides. */
MUST_USE enum err engine_manifest_update(struct engine *e, manifest_change *change, void *ctx,
                                         struct errinfo *ei);
bool engine_manifest_is_settled(struct engine *e);
/* A number for a new file, never given out before. */
uint64_t engine_file_number(struct engine *e);
/* Copies the covered sequence of every shard. */
void engine_covered_sequences(struct engine *e, uint64_t *out);

/* ---- delete.c ---- */

/* The maintain_locks of all shards, from the first to the last. */
void engine_maintain_lock_all(struct engine *e);
void engine_maintain_unlock_all(struct engine *e);

/* The list that engine_deleted_ranges() goes by; counted. */
void engine_tombstones_set(struct engine *e, struct tombstone_list *list);

/* ---- purge.c ---- */

/* Whether there is any purge that deletes something. */
bool engine_purges_stand(struct engine *e);
/* engine.withdrawn_generation; before a file set is taken. */
uint64_t engine_withdrawn_generation(const struct engine *e);
/* ERR_NOT_FOUND when what was made of parts listed at that generation may lack samples that a
 * withdrawn purge has given back. Caller holds a maintain_lock. */
MUST_USE enum err engine_purged_check(const struct engine *e, uint64_t purged_generation,
                                      struct errinfo *ei);

/* ---- restart.c ---- */

/* Loads what the manifest names: series, files, parts; debris goes. Before the log is replayed. */
MUST_USE enum err engine_restart(struct engine *e, uint32_t thread_count, struct errinfo *ei);
/* After the replay: has the slots of series that ended before the start wait to be used again. */
MUST_USE enum err engine_restart_finish(struct engine *e, struct errinfo *ei);

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
/* The same of a label set. `canonical` and `rest` are overwritten. */
MUST_USE bool engine_identify_labels(const struct engine *e, const struct labels *labels,
                                     struct byte_writer *canonical, struct byte_writer *rest,
                                     struct series_identity *out);

#endif
