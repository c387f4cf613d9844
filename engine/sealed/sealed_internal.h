/*
 * Sealed and late files: what a shard's seals have taken out of memory, until a window flush has
 * made parts of it. One file a shard and kind, which grows by slices. Format and diagrams:
 * docs/formats/sealed.md.
 *
 * A slice holds chunks of some slots and the log's sequence number up to which it holds all of
 * their samples. It is readable as soon as sealed_writer_slice() has returned; sealed_writer_sync()
 * only decides when the log may be cut. Whoever keeps a file keeps its `struct sealed_slice`s: they
 * are all that stays in memory, 40 bytes for up to 512 chunks.
 *
 * A sealed_file and a sealed_slice may be used by any number of threads at once, while a writer
 * appends to the file. A writer belongs to one thread at a time.
 */
#ifndef RIMSTONE_ENGINE_SEALED_SEALED_INTERNAL_H
#define RIMSTONE_ENGINE_SEALED_SEALED_INTERNAL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"
#include "engine/codec.h"
#include "engine/histogram.h"
#include "engine/querier.h"

enum {
    SEALED_GROUP_CHUNKS = 512,          /* chunks of a group, at most */
    SEALED_SLICE_SIZE_MAX = 256 << 20,  /* of a slice in the file */
    SEALED_SLICE_CHUNKS_MAX = 1 << 20,  /* chunks of a slice */
    SEALED_VALUES_SIZE_MAX = 256 << 10, /* of one chunk's column of doubles, or of unknown kind */
    SEALED_HISTOGRAMS_SIZE_MAX = 64 << 20, /* of one chunk's column of histograms */
};

enum sealed_kind {
    SEALED_RECENT = 1, /* chunks of windows that were open when they were sealed */
    SEALED_LATE = 2,   /* chunks of closed windows, any number of them */
};

/* What a column of a chunk is. Other kinds are stepped over by their size. */
enum sealed_column {
    SEALED_COLUMN_VALUES = 1,     /* doubles: codec_values_decode() */
    SEALED_COLUMN_HISTOGRAMS = 2, /* codec_histograms_decode(); only where the header says so */
};

/* What a file says of itself. */
struct sealed_identity {
    enum sealed_kind kind;
    uint32_t shard, shard_count;
    /* Chunks of native histograms may come: older readers refuse the file. Settled when it is
     * created; not compared when it is opened. */
    bool has_histograms;
    uint64_t number;    /* of the file, never used twice in a directory */
    uint64_t secret_id; /* of the directory */
    /* Stands in every slice, so that bytes of another file never pass for this one's. 0 when a file
     * is created: drawn at random. Not compared when one is opened. */
    uint64_t epoch;
};

/* Up to SEALED_GROUP_CHUNKS chunks that share a directory; one read finds any of them. */
struct sealed_group {
    int64_t min_time_ms, max_time_ms;
    uint32_t first_slot, last_slot; /* inclusive */
    uint32_t offset;                /* from the slice's first byte */
    uint32_t directory_size;        /* checksum included */
    uint32_t data_size;             /* of the pages behind the directory */
    uint32_t chunk_count;
};
static_assert(sizeof(struct sealed_group) == 40, "what stays in memory of up to 512 chunks");

/* Immutable. Owned by whoever got it; freed with free(). */
struct sealed_slice {
    uint64_t offset, size;            /* in the file */
    uint64_t sequence;                /* of the log: all samples of its slots up to this one */
    int64_t min_time_ms, max_time_ms; /* of the samples */
    uint64_t sample_count;
    uint32_t index; /* in the file, from 0 */
    uint32_t chunk_count, group_count;
    bool is_damaged;              /* cannot be read; every call on it says so */
    struct sealed_group groups[]; /* ascending by slot; two may share a slot at the border */
};

struct page_cache;
struct sealed_file;

/* ---- opening ---- */

struct sealed_opened {
    struct sealed_file *file;     /* owned */
    struct sealed_slice **slices; /* owned, each of them too; in the file's order */
    size_t slice_count;
    uint64_t end;          /* of the last slice that counts, or of a good footer */
    uint64_t durable_size; /* as it was given */
    uint64_t torn_bytes; /* behind it: a torn tail, or the footer of a finished file that is bad */
    bool is_finished;    /* has a good footer */
    size_t damaged_count;
};

/*
 * Opens a file by its footer or, without a good one, by walking its slices. Up to `durable_size`
 * (what the manifest names: known to be synced) a bad slice is kept as a damaged one, since its log
 * is gone; also when the file ends before. Behind it the first slice that is not whole, every byte
 * verified, ends the file: the log still has the rest. Changes nothing on disk. ERR_CORRUPT: the
 * header is bad or of another file than `expected`. ERR_UNSUPPORTED: a newer version.
 */
MUST_USE enum err sealed_open(struct fs *fs, const char *path,
                              const struct sealed_identity *expected, uint64_t durable_size,
                              struct sealed_opened *out, struct errinfo *ei);
/*
 * Makes durable what counts of an opened file: cuts the torn tail, writes everything behind
 * durable_size once more, syncs. Before that a restart must not build on those slices (cut the log,
 * name them in the manifest): after a failed sync the page cache may show bytes that the disk does
 * not have and that no sync will write. Sets durable_size. No reader may use the file meanwhile.
 */
MUST_USE enum err sealed_opened_persist(struct fs *fs, struct sealed_opened *o, struct errinfo *ei);
/* Frees what was not taken. */
void sealed_opened_done(struct sealed_opened *o);
void sealed_file_close(struct sealed_file *f); /* Accepts NULL. */
enum { SEALED_CACHE_IDS = 2 };
/* Has decoded directories, and what sealed_read_kept() reads, kept in `cache` (borrowed until the
 * file is closed) under SEALED_CACHE_IDS ids from `id` on. Before others see the file. */
void sealed_file_use_cache(struct sealed_file *f, struct page_cache *cache, uint64_t id);
const char *sealed_file_path(const struct sealed_file *f);
const struct sealed_identity *sealed_file_identity(const struct sealed_file *f);

/* ---- writing ---- */

struct sealed_writer;

/* Creates the file and writes its header; the name becomes durable with the first sync. *out_file
 * is owned by the caller, must outlive the writer, and reads what is written. */
MUST_USE enum err sealed_writer_create(struct fs *fs, const char *path,
                                       const struct sealed_identity *identity,
                                       struct sealed_file **out_file, struct sealed_writer **out,
                                       struct errinfo *ei);
/* Goes on with an opened file after sealed_opened_persist(), which it calls. The file must outlive
 * the writer. ERR_INVALID for a finished one, or one with damaged slices. */
MUST_USE enum err sealed_writer_resume(struct fs *fs, struct sealed_opened *opened,
                                       struct sealed_writer **out, struct errinfo *ei);
/*
 * Adds a chunk to the slice being made: `count` (1 to CODEC_SAMPLES_MAX) samples, strictly
 * ascending. Chunks come by ascending slot, those of a slot have one generation and follow one
 * another in time; anything else is ERR_INVALID. ERR_LIMIT: the slice is full and must be written
 * first. Nothing has changed on error.
 */
MUST_USE enum err sealed_writer_chunk(struct sealed_writer *w, uint32_t slot, uint16_t generation,
                                      const int64_t *t_ms, const double *value, size_t count,
                                      struct errinfo *ei);
/*
 * The same for native histograms, each of which passes histogram_check_layout(), else ERR_INVALID;
 * so is a file that was created without has_histograms. The caller bounds what goes into a chunk
 * (histogram_chunk.h): ERR_LIMIT also when a column is larger than SEALED_HISTOGRAMS_SIZE_MAX, in
 * an empty slice.
 */
MUST_USE enum err sealed_writer_histograms(struct sealed_writer *w, uint32_t slot,
                                           uint16_t generation, const int64_t *t_ms,
                                           const struct histogram *h, size_t count,
                                           struct errinfo *ei);
uint32_t sealed_writer_chunk_count(const struct sealed_writer *w);
/*
 * Appends the slice with one write and begins another. `sequence` as in struct sealed_slice. The
 * slice is the caller's; NULL when there was no chunk. On failure (ERR_IO, ERR_NO_SPACE, ERR_NOMEM)
 * the chunks stay and the call may be repeated; what a failed write left behind is overwritten.
 */
MUST_USE enum err sealed_writer_slice(struct sealed_writer *w, uint64_t sequence,
                                      struct sealed_slice **out, struct errinfo *ei);
/* Drops the chunks of the slice being made. */
void sealed_writer_discard(struct sealed_writer *w);
/* The same, and gives back all memory that the next chunk takes again. */
void sealed_writer_trim(struct sealed_writer *w);
/* Makes everything written durable. After a failure the file takes nothing any more (ERR_IO from
 * every call): slices since the last good sync must be written again to another file, before the
 * log is cut. */
MUST_USE enum err sealed_writer_sync(struct sealed_writer *w, struct errinfo *ei);
/* Bytes that the last good sync covers: the manifest's durable size. */
uint64_t sealed_writer_durable_size(const struct sealed_writer *w);
/* Writes the footer and syncs. The writer only waits for sealed_writer_free() afterwards. */
MUST_USE enum err sealed_writer_finish(struct sealed_writer *w, struct errinfo *ei);
void sealed_writer_free(struct sealed_writer *w); /* Accepts NULL. */

/* ---- reading ---- */

struct sealed_key {
    uint32_t slot;
    uint16_t generation;
};

/* Where a chunk is. */
struct sealed_chunk {
    int64_t min_time_ms, max_time_ms;
    uint64_t times_offset, page_offset; /* in the file */
    uint32_t times_size, page_size;     /* without their checksums */
    uint32_t value_offset, value_size;  /* in the page */
    uint32_t sample_count;
    uint32_t slot;
    uint32_t key_index; /* of the keys asked for */
    uint16_t generation;
    uint8_t column; /* enum sealed_column */
};
struct sealed_chunk_list {
    size_t count, capacity;
    struct sealed_chunk *items; /* in the arena */
};

/*
 * Appends to *list the chunks that overlap [min_time_ms, max_time_ms] of the keys, whose slots are
 * strictly ascending; by slot and then time. A chunk of another generation is none of the key's.
 * Reads one directory for up to 512 chunks. ERR_CORRUPT names file and offset.
 */
MUST_USE enum err sealed_find(const struct sealed_file *f, const struct sealed_slice *slice,
                              const struct sealed_key *keys, size_t key_count, int64_t min_time_ms,
                              int64_t max_time_ms, struct arena *arena,
                              struct sealed_chunk_list *list, struct errinfo *ei);
/* All chunks of one group, for whoever walks everything; key_index is 0. */
MUST_USE enum err sealed_group_chunks(const struct sealed_file *f, const struct sealed_slice *slice,
                                      uint32_t group, struct arena *arena,
                                      struct sealed_chunk_list *list, struct errinfo *ei);

/* A chunk as its bytes. */
struct sealed_raw {
    struct bytes times;  /* codec_times_encode() */
    struct bytes values; /* by sealed_chunk.column */
};
/* Reads and verifies the bytes of `count` chunks of one file into the arena, in one batch; chunks
 * that share a page or a timestamp column share its bytes. */
MUST_USE enum err sealed_load(const struct sealed_file *f, const struct sealed_chunk *chunks,
                              size_t count, struct arena *arena, struct sealed_raw *out,
                              struct errinfo *ei);
/* The same, decoded; chunks with equal times_offset share t_ms. What histograms are goes to
 * `histograms`, which may be `arena`: it can outlive the columns. Those of a chunk are one array. A
 * chunk of an unknown column kind is ERR_UNSUPPORTED. */
MUST_USE enum err sealed_read(const struct sealed_file *f, const struct sealed_chunk *chunks,
                              size_t count, struct arena *arena, struct arena *histograms,
                              struct column *out, struct errinfo *ei);
/* The same for a query: through the file's cache of pages where the chunks are a small part of the
 * pages they stand in. */
MUST_USE enum err sealed_read_kept(const struct sealed_file *f, const struct sealed_chunk *chunks,
                                   size_t count, struct arena *arena, struct arena *histograms,
                                   struct column *out, struct errinfo *ei);
/* Verifies every byte of a slice: its payload checksum, and that each chunk decodes to what its
 * directory says. */
MUST_USE enum err sealed_slice_verify(const struct sealed_file *f, const struct sealed_slice *slice,
                                      struct errinfo *ei);

#endif
