/*
 * Maintenance of the store: what the compactor, the admin API and tools call. Mechanics only; when
 * to do what is the caller's. Any thread; each call takes the shard's maintain_lock for its length,
 * so calls for one shard wait for each other, while ingest and queries go on.
 *
 * On a failure (ERR_IO, ERR_NO_SPACE, ERR_NOMEM, ERR_CORRUPT with file and offset) nothing that was
 * acknowledged is lost and the call may be repeated.
 */
#ifndef RIMSTONE_ENGINE_MAINTAIN_H
#define RIMSTONE_ENGINE_MAINTAIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/engine.h"
#include "engine/labels.h"
#include "engine/part.h"

/* How a long call is stopped and made to give way; both may be NULL. */
struct maintain_control {
    const _Atomic bool *stop; /* ERR_CANCELED once true */
    void (*yield)(void *ctx); /* called between slices, with no lock held */
    void *yield_ctx;
};

/* ---- what there is ---- */

/* Files that the manifest names; reading it waits for a replacement under way. */
struct engine_file_stats {
    uint64_t sealed_count, sealed_bytes; /* late files not among them */
    uint64_t late_count, late_bytes;
    uint64_t series_bytes;
    uint64_t part_count, part_bytes;
    int64_t part_min_time_ms; /* of the oldest sample in a part; INT64_MAX: none */
};
void engine_file_stats_get(struct engine *e, struct engine_file_stats *out);

/* ---- seal ---- */

enum seal_reason {
    SEAL_NONE,
    SEAL_REPLAY_COST, /* replaying the shard's log tail would cost more than its share */
    SEAL_LOG_SIZE,
    SEAL_MEMORY,
    SEAL_INTERVAL, /* --storage.seal-interval */
    SEAL_LATE,     /* the late buffer is large */
    SEAL_ENDED,    /* more than 5 % of the series have ended */
    SEAL_CHUNKS,   /* chunks of all shards take too many bytes a series */
    SEAL_FLUSH,    /* asked for by a flush, a snapshot, a delete or the end of the process */
    SEAL_REASON_COUNT,
};
const char *seal_reason_name(enum seal_reason r);

struct seal_result {
    uint64_t sample_count, late_sample_count, series_count, slice_count, byte_count;
    uint64_t ended_series_count; /* whose slots were freed */
    uint64_t hold_samples_max;   /* most samples' work done in one critical section */
};
/* What is waiting to be sealed, for the policy. Cheap. */
struct seal_state {
    uint64_t
        log_entries; /* queued or logged above the covered sequence: what a replay would apply */
    bool log_is_damaged; /* the log of before the start: it goes when all such shards are sealed */
    uint64_t sample_count; /* in memory, histograms among them */
    uint64_t chunk_bytes, histogram_bytes;
    uint64_t late_sample_count, late_bytes;
    uint64_t series_count, ended_series_count; /* ended: an estimate */
    uint64_t dead_slot_count;                  /* in the index: a rebuild rids it of them */
    uint64_t sealed_mono_ns;             /* when the last seal ended, or the store was opened */
    int64_t oldest_sealed_window_end_ms; /* INT64_MAX: no sealed file */
    uint64_t late_file_bytes;
};
void engine_seal_state(const struct engine *e, uint32_t shard, struct seal_state *out);
/* Seals one shard: a checkpoint, durable when it returns; cuts the log as far as all shards allow.
 * When more than 5 % of the series have ended, or the reason is SEAL_ENDED, those leave memory; and
 * an index of which a good part is dead is rebuilt. */
MUST_USE enum err engine_seal(struct engine *e, uint32_t shard, enum seal_reason reason,
                              const struct maintain_control *control, struct seal_result *out,
                              struct errinfo *ei);

/* ---- from sealed files to parts ---- */

struct flush_result {
    uint64_t sample_count, series_count, part_count, byte_count;
};
/* Seals the shard where needed and makes a part of each window that ends at or before `until_ms`;
 * INT64_MAX: also of open ones. The sealed files go. */
MUST_USE enum err engine_flush(struct engine *e, uint32_t shard, int64_t until_ms,
                               const struct maintain_control *control, struct flush_result *out,
                               struct errinfo *ei);
/* Splits the shard's late files into parts. */
MUST_USE enum err engine_split_late(struct engine *e, uint32_t shard,
                                    const struct maintain_control *control,
                                    struct flush_result *out, struct errinfo *ei);

/* ---- parts ---- */

struct engine_part {
    struct part *part; /* borrowed until engine_parts_release() */
    struct part_key key;
    uint64_t size_bytes;       /* of both files */
    bool is_foreign;           /* of another shard count */
    bool is_touched_by_delete; /* a tombstone may hit samples of it */
    void *source;              /* the engine's */
};
struct engine_parts {
    size_t count;
    struct engine_part *items; /* in the arena */
    /* What a part is purged of that is made of these, if engine_deleted_ranges() is asked for each
     * series of each input. */
    uint64_t purged_generation;
    /* Its sealed and late files, as parts of them would be named; in the arena. Nothing may be
     * merged across them. */
    const struct part_key *files;
    size_t file_count;
    void *set; /* the engine's */
};
/* The live parts of a shard, kept open until they are released. */
MUST_USE enum err engine_parts_get(struct engine *e, uint32_t shard, struct arena *arena,
                                   struct engine_parts *out, struct errinfo *ei);
void engine_parts_release(struct engine_parts *parts);
/* Names `added` (NULL: none; its files are durable) in the manifest instead of the `removed_count`
 * parts, publishes that, and unlinks them when their last reader has left. `purged_generation`:
 * that of the engine_parts whose parts `added` was made of. ERR_NOT_FOUND when one of them is not
 * there any more; ERR_UNAVAILABLE when a late file lies between them and `added` by generation, and
 * must be split first; ERR_INVALID when another file or part does. With `added` NULL it is
 * PARTS_REMOVED for a removal that no merge has led to. ERR_NOT_FOUND also when a purge that the
 * merge may have applied was withdrawn since (purge.h). After a failure the files of
 * `added` are gone as well, or left to the next start where the disk may hold either manifest: the
 * caller leaves them alone. */
#define PARTS_REMOVED UINT64_MAX
MUST_USE enum err engine_parts_exchange(struct engine *e, uint32_t shard,
                                        const struct part_key *removed, size_t removed_count,
                                        const struct part_info *added, uint64_t purged_generation,
                                        struct errinfo *ei);
/* The same for a part of another shard count (engine_part.is_foreign), which several shards list.
 * May be repeated after a failure: then some shards may read it still, and no manifest names it. */
MUST_USE enum err engine_foreign_part_remove(struct engine *e, const struct part_key *key,
                                             struct errinfo *ei);
/* Names `added` in the manifest instead of parts of other shard counts, of whose shards they have
 * the same hashes, and publishes that in all shards concerned: a part that is split, or parts that
 * are joined. `added` may be of another shard count as well. Errors and files of `added` as with
 * engine_parts_exchange(). Takes the maintain_locks of the shards concerned. */
MUST_USE enum err engine_foreign_parts_exchange(struct engine *e, const struct part_key *removed,
                                                size_t removed_count, const struct part_info *added,
                                                size_t added_count, uint64_t purged_generation,
                                                struct errinfo *ei);
/* The shard of a series in this store. Both scratches are overwritten; the caller frees them. False
 * when memory is refused. */
MUST_USE bool engine_shard_of(const struct engine *e, const struct labels *labels,
                              struct byte_writer scratch[2], uint32_t *out);
/* Removes the files of a part that was written and that no exchange was asked to name. */
void engine_part_discard(struct engine *e, const struct part_key *key);
/* Before a part is written: removes files of its name that an exchange which failed has left.
 * ERR_EXISTS: the name is taken, by a live part or one that a reader still has, or the manifest on
 * disk may name it. */
MUST_USE enum err engine_part_clear(struct engine *e, const struct part_key *key,
                                    struct errinfo *ei);
struct part_store *engine_part_store(const struct engine *e);
/* Folder of the parts within the file layer. */
const char *engine_parts_dir(void);

/* ---- deletion ---- */

/* Deletes the samples in [min, max] (max clamped to the newest sample) of the series that match all
 * matchers; durable when it returns. */
MUST_USE enum err engine_delete(struct engine *e, const struct matcher *matchers,
                                size_t matcher_count, int64_t min_time_ms, int64_t max_time_ms,
                                struct errinfo *ei);
/* What of a file of that generation is deleted of a series, in the arena; for merges. */
struct delete_range {
    int64_t min_time_ms, max_time_ms; /* inclusive */
};
MUST_USE enum err engine_deleted_ranges(struct engine *e, const struct labels *labels,
                                        uint64_t generation, struct arena *arena,
                                        struct delete_range **out, size_t *out_count,
                                        struct errinfo *ei);
/* Whether any tombstone concerns a file. */
bool engine_is_touched_by_delete(struct engine *e, uint64_t generation, int64_t min_time_ms,
                                 int64_t max_time_ms);
size_t engine_tombstone_count(struct engine *e);
/* Forgets tombstones that no file needs any more. */
MUST_USE enum err engine_tombstones_retire(struct engine *e, struct errinfo *ei);

/* ---- snapshot ---- */

#define ENGINE_SNAPSHOT_SUFFIX ".tmp" /* behind the path while it is being made */
/* Seals every shard and copies the directory into `path` (within the file layer, must not exist):
 * immutable files are linked, growing ones copied up to the length the manifest names. */
MUST_USE enum err engine_snapshot(struct engine *e, const char *path,
                                  const struct maintain_control *control, struct errinfo *ei);

/* Removes what an engine_snapshot() of that path that was cut off has left. */
MUST_USE enum err engine_snapshot_discard(struct engine *e, const char *path, struct errinfo *ei);

/* ---- ended series, the index ---- */

/* Seals the shard, lets all series leave that have ended, and rebuilds its index from the others;
 * the next seal writes the series file anew. Frees what dead series held, and makes slots reusable
 * where nobody can name them any more. engine_seal() does the same by itself when it is worth it.
 */
MUST_USE enum err engine_rebuild(struct engine *e, uint32_t shard,
                                 const struct maintain_control *control, struct errinfo *ei);
/* Frees what the last querier has given up since, and takes dead keys out of the front table when
 * they are many. For a call every few seconds; shards that are under maintenance are passed over.
 */
void engine_housekeep(struct engine *e);

#endif
