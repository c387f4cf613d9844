/*
 * Series files: all series of one shard, with their labels as numbers, for a restart without the
 * log that defined them. One file a shard: an image, written in batches, and then a batch a seal
 * with what is new, what has ended and the newest samples. Format: docs/formats/series.md.
 *
 * The writer is pushed: whoever walks a shard's series calls it for each. The reader loads a file
 * into flat columns, a group a batch and schema; wiring them into index and series table is the
 * caller's. Writer and image belong to one thread at a time; an image that does not change may be
 * read by many.
 */
#ifndef RIMSTONE_ENGINE_SEALED_SERIES_FILE_INTERNAL_H
#define RIMSTONE_ENGINE_SEALED_SERIES_FILE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "engine/codec.h"

enum {
    SERIES_FILE_VERSION = 1,
    SERIES_FILE_HEADER_SIZE = 64,
    SERIES_FILE_BATCH_HEADER_SIZE = 48,
    SERIES_FILE_BATCH_SIZE_MAX = 512 << 20,
    SERIES_FILE_BATCH_SERIES = 65536, /* a good size of a batch, for whoever writes an image */
    SERIES_FILE_SLOT_MAX = 1 << 26,
    SERIES_FILE_NAMES_MAX = 4096, /* of a schema */
};

/* What a file says of itself. */
struct series_file_identity {
    uint32_t shard, shard_count;
    uint64_t number;    /* of the file, never used twice in a directory */
    uint64_t secret_id; /* of the directory; fingerprints depend on it */
    uint64_t epoch;     /* 0 when a file is created: drawn at random; not compared when opened */
};

/* ---- writing ---- */

struct series_file_writer;

/* Creates the file and writes its header. The name is durable after the first sync. */
MUST_USE enum err series_file_create(struct fs *fs, const char *path,
                                     const struct series_file_identity *identity,
                                     struct series_file_writer **out, struct errinfo *ei);
struct series_image;
/*
 * Goes on with a loaded file: cuts its torn tail, writes what lies behind `durable_size` (as it was
 * given to series_file_load()) once more and syncs, since after a failed sync the page cache may
 * show what the disk does not have. Ids of names and schemas go on behind the image's.
 */
MUST_USE enum err series_file_resume(struct fs *fs, const char *path,
                                     const struct series_image *image, uint64_t durable_size,
                                     struct series_file_writer **out, struct errinfo *ei);
/*
 * What goes into the batch being made. Ids of names and schemas are dense: each new one is the next
 * number, over the life of the file. Value ids are any; a value may be defined anew once no series
 * uses it. Everything must be defined before it is used, in this batch or an earlier one. Text is
 * copied. ERR_INVALID names what is out of order; ERR_NOMEM. Nothing has changed then.
 */
MUST_USE enum err series_file_name(struct series_file_writer *w, uint32_t name_id, struct str name,
                                   struct errinfo *ei);
MUST_USE enum err series_file_value(struct series_file_writer *w, uint32_t name_id,
                                    uint32_t value_id, struct str value, struct errinfo *ei);
/* `name_ids` in byte order of the names. */
MUST_USE enum err series_file_schema(struct series_file_writer *w, uint32_t schema_id,
                                     const uint32_t *name_ids, uint32_t name_count,
                                     struct errinfo *ei);

struct series_file_entry {
    uint32_t slot, schema_id;
    const uint32_t *value_ids; /* one for each name of the schema */
    struct hash128 fingerprint;
    int64_t newest_ms; /* INT64_MIN: no sample yet */
    uint64_t newest_bits;
    uint16_t generation;
};
/* A series. Of one schema and batch, slots ascend strictly. */
MUST_USE enum err series_file_add(struct series_file_writer *w,
                                  const struct series_file_entry *entry, struct errinfo *ei);
/* The newest sample of a series of an earlier batch; slots ascend as above. */
MUST_USE enum err series_file_newest(struct series_file_writer *w, uint32_t schema_id,
                                     uint32_t slot, uint16_t generation, int64_t newest_ms,
                                     uint64_t newest_bits, struct errinfo *ei);
/* A series of an earlier batch has ended; its slot may be another's from this batch on. */
MUST_USE enum err series_file_ended(struct series_file_writer *w, uint32_t schema_id, uint32_t slot,
                                    uint16_t generation, struct errinfo *ei);
/* Appends the batch with one write and begins another. With it the file holds all definitions of
 * the shard's log up to `sequence`. After a failure the batch stays and the call may be repeated.
 */
MUST_USE enum err series_file_batch(struct series_file_writer *w, uint64_t sequence,
                                    struct errinfo *ei);
/* Gives back the memory of columns and scratch; between batches. */
void series_file_trim(struct series_file_writer *w);
/* As sealed_writer_sync(). */
MUST_USE enum err series_file_sync(struct series_file_writer *w, struct errinfo *ei);
uint64_t series_file_durable_size(const struct series_file_writer *w);
void series_file_writer_free(struct series_file_writer *w); /* Accepts NULL. */

/* ---- reading ---- */

struct series_image_value {
    struct str text;
    uint32_t id; /* as it was written */
};

struct series_image_name {
    struct str text;
    struct series_image_value *values; /* ascending by id */
    uint32_t value_count, value_capacity;
};

struct series_image_schema {
    uint32_t name_count;
    const uint32_t *names; /* numbers of names */
};

/* Series of one schema that came in one batch. Columns of `count` each. */
struct series_image_group {
    uint32_t schema, count;
    uint32_t *slots; /* ascending */
    uint16_t *generations;
    struct hash128 *fingerprints;
    int64_t *newest_ms;
    uint64_t *newest_bits;
    uint32_t *values; /* [k * count + i]: of the schema's k-th name, as an index of its values */
};

struct series_image {
    struct series_image_name *names;
    struct series_image_schema *schemas;
    struct series_image_group *groups; /* in the order of the batches; no slot stands there twice */
    uint32_t name_count, schema_count;
    size_t group_count;
    uint64_t series_count;
    uint32_t slot_end;   /* one above the highest slot */
    uint64_t sequence;   /* of the last batch; 0 without one */
    uint64_t end;        /* of the last batch */
    uint64_t torn_bytes; /* behind it */
    uint32_t batch_count;
    uint64_t epoch; /* of the file */
    size_t data_size;
    uint8_t *data;      /* owned: the file; texts point into it */
    struct arena arena; /* everything else */
};

/*
 * Loads a file. Up to `durable_size` (what the manifest names) everything must be right, else
 * ERR_CORRUPT names file and offset; behind it the first batch that is not whole ends the file, and
 * what it held is still in the log. Every number is checked against what it refers to.
 * ERR_UNSUPPORTED: a newer version. ERR_LIMIT when `memory` (may be NULL) is spent.
 */
MUST_USE enum err series_file_load(struct fs *fs, const char *path,
                                   const struct series_file_identity *expected,
                                   uint64_t durable_size, struct budget *memory,
                                   struct series_image *out, struct errinfo *ei);
/* The same of the first `end` bytes. A start takes a file as the manifest names it: newest samples
 * of a later batch are in slices that do not count either. */
MUST_USE enum err series_file_load_prefix(struct fs *fs, const char *path,
                                          const struct series_file_identity *expected,
                                          uint64_t durable_size, uint64_t end,
                                          struct budget *memory, struct series_image *out,
                                          struct errinfo *ei);
void series_image_done(struct series_image *image);

/* Scratch for sorting an image's series by value, name after name; its memory is the arena's. */
struct series_image_sorter {
    const struct series_image *image; /* borrowed */
    uint32_t *by_slot;
    uint64_t *seen; /* a bit a slot; clear between calls */
    size_t word_count;
};
MUST_USE enum err series_image_sorter_init(struct series_image_sorter *s,
                                           const struct series_image *image, struct arena *arena,
                                           struct errinfo *ei);
/* The series of every value of one name: those of value v are slots[offsets[v]..offsets[v + 1]),
 * ascending. Both arrays in `arena`. */
struct series_image_postings {
    uint32_t *offsets; /* value_count + 1 */
    uint32_t *slots;
};
MUST_USE enum err series_image_postings(struct series_image_sorter *s, uint32_t name,
                                        struct arena *arena, struct series_image_postings *out,
                                        struct errinfo *ei);
/* The same by schema. */
MUST_USE enum err series_image_schema_postings(struct series_image_sorter *s, struct arena *arena,
                                               struct series_image_postings *out,
                                               struct errinfo *ei);
/* All slots, series_count of them, ascending. */
void series_image_slots(struct series_image_sorter *s, uint32_t *out);

#endif
