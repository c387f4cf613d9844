/*
 * The seal of a shard: what it keeps between two seals, and the steps. LIFECYCLE.md has the whole.
 *
 * A shard_sealer is guarded by the shard's maintain_lock. It is made by the first seal after a
 * start: files of an earlier process are never written to again.
 */
#ifndef RIMSTONE_ENGINE_SEAL_SEAL_INTERNAL_H
#define RIMSTONE_ENGINE_SEAL_SEAL_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine_internal.h"
#include "engine/maintain.h"
#include "engine/memtable/shard_cut_internal.h"
#include "engine/sealed/series_file_internal.h"

/* A file that this process writes, or has written and not yet synced. */
struct seal_file {
    struct sealed_source *source; /* counted */
    struct sealed_writer *writer; /* owned */
    uint32_t window;              /* chunk_window() of all its samples; 0 for a late file */
    bool takes_more;              /* false: only waits for its sync */
    bool is_published;            /* the shard's file set names it */
    bool is_dirty;                /* has slices that the manifest does not cover */
};

/* A series as it stood when its slot was cut. */
struct seal_row {
    struct hash128 fingerprint;
    int64_t newest_ms; /* INT64_MIN: no sample yet */
    uint64_t newest_bits;
    uint32_t slot;
    uint16_t generation;
};
struct seal_rows {
    struct seal_row *items; /* owned; ascending by slot */
    size_t count, capacity;
};

/* The series file being written. */
struct seal_series {
    struct series_file_writer *writer; /* owned; NULL: the next batch begins a new file */
    uint64_t number;                   /* of the file */
    uint64_t index_version; /* of the index whose ids the file uses: another one, another file */
    uint32_t names_written, schemas_written;
    uint32_t *values_written; /* owned: per name id */
    uint32_t values_capacity;
    /* Owned: per slot the generation of the series in the file plus one; 0: none. */
    uint32_t *known;
    uint32_t known_capacity;
    struct budget *memory; /* the shard's; NULL: before the first seal, or none */
    size_t charged_bytes;  /* of both arrays */
    /* What the seal at hand has noted. */
    struct seal_rows fresh, sealed, ended; /* not in the file; newest samples; gone */
};

struct shard_sealer {
    struct seal_file *files; /* owned */
    size_t file_count, file_capacity;
    struct seal_series series;
};

void shard_sealer_free(struct shard_sealer *z); /* Accepts NULL. */

/* ---- seal.c ---- */

struct seal_options {
    enum seal_reason reason;
    const struct maintain_control *control; /* may be NULL */
    /* A delete. All slots and the late buffer are cut in one critical section, at whose end
     * at_cut() runs under shard.lock; newest samples are noted after it. */
    bool cut_whole;
    void (*at_cut)(void *ctx, struct shard *s);
    void (*after_cut)(void *ctx, struct shard *s); /* the same, once they have been noted */
    manifest_change *change; /* also applied to the seal's manifest; may be NULL */
    void *ctx;
    bool end_files; /* no file written so far is written to again */
};
/* As engine_seal(); the caller holds maintain_lock. */
MUST_USE enum err seal_shard(struct engine *e, struct shard *s, const struct seal_options *options,
                             struct seal_result *out, struct errinfo *ei);
/* The next seal writes to new files. Caller holds maintain_lock; everything is sealed. */
void sealer_end_files(struct shard *s);
/* The same for the files of one window, or late ones (window 0): before they are taken out of the
 * manifest. */
void sealer_end_window(struct shard *s, enum sealed_kind kind, uint32_t window);

/* ---- seal_files.c: steps of a seal that concern sealed and late files ---- */

/* The file for samples of a window; created when there is none. `histograms`: one that takes them,
 * which takes floats as well, so that a window has two files at most. */
MUST_USE enum err seal_file_recent(struct engine *e, struct shard *s, uint32_t window,
                                   bool histograms, struct seal_file **out, struct errinfo *ei);
/* The late file of this seal, likewise. `after_all`: its number is above those of all sealed files.
 */
MUST_USE enum err seal_file_late(struct engine *e, struct shard *s, bool after_all, bool histograms,
                                 struct seal_file **out, struct errinfo *ei);
/* Writes the slices that were collected in all files, and appends them to their sources; readers do
 * not see them yet. Adds to *result. */
MUST_USE enum err seal_files_write(struct shard *s, uint64_t sequence, struct seal_result *result,
                                   struct errinfo *ei);
/* Drops collected chunks. */
void seal_files_discard(struct shard_sealer *z);
/* Publishes all files with all their slices; `locked` runs in the same critical section of
 * shard.lock. */
MUST_USE enum err seal_files_publish(struct shard *s, void (*locked)(void *ctx, struct shard *s),
                                     void *ctx, struct errinfo *ei);
/* Makes all files durable. What a failed sync put in doubt is written again to a new file. */
MUST_USE enum err seal_files_sync(struct engine *e, struct shard *s, struct errinfo *ei);

/* ---- seal_checkpoint.c ---- */

/* A checkpoint that says no more than that series of these slots, ascending, have gone. *done is
 * false when that is left to the next seal. Caller holds maintain_lock. */
MUST_USE enum err seal_ended(struct engine *e, struct shard *s, const uint32_t *slots, size_t count,
                             bool *done, struct errinfo *ei);

/* ---- seal_series.c ---- */

/* Room for the notes of one slice; no lock held. False when memory is refused. */
MUST_USE bool seal_series_reserve(struct seal_series *n, size_t slot_count);
/* Begins a seal: forgets notes. A new file is begun when the index is another, or `renew`. */
void seal_series_begin(struct seal_series *n, const struct shard *s, bool renew);
/* Under shard.lock, in the critical section of the cut: notes which series of [begin, end) are new
 * to the file, and which have gone. */
void seal_series_note(struct seal_series *n, const struct shard *s, uint32_t begin, uint32_t end);
/* Newest samples as cut, of series that the file knows. False when memory is refused. */
MUST_USE bool seal_series_note_cuts(struct seal_series *n, const struct series_cut *cuts,
                                    size_t count);
/* That these, ascending, have gone, as far as the file knows them. False when memory is refused, or
 * there is no file of the shard's index to go on with. */
MUST_USE bool seal_series_note_ended(struct seal_series *n, const struct shard *s,
                                     const uint32_t *slots, size_t count);
/* Writes the batch of what was noted and syncs it. */
MUST_USE enum err seal_series_write(struct engine *e, struct shard *s, uint64_t sequence,
                                    struct errinfo *ei);
/* After a failure: the next seal writes a new file. */
void seal_series_drop(struct engine *e, struct shard *s);
void seal_series_done(struct seal_series *n);

#endif
