/*
 * The files of one shard that hold samples, as readers see them: an immutable list that is replaced
 * as a whole. Who publishes which list when: LIFECYCLE.md.
 *
 * Sources (a sealed or late file, a part) are counted; the list that names one holds a reference.
 * The last reference closes the file and, if it was removed from the manifest, unlinks it: a file
 * is opened again by name when descriptors are short, so its name must stay until then.
 */
#ifndef RIMSTONE_ENGINE_FILES_FILE_SET_INTERNAL_H
#define RIMSTONE_ENGINE_FILES_FILE_SET_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "engine/delete/tombstone_internal.h"
#include "engine/files/manifest_internal.h"
#include "engine/part.h"
#include "engine/sealed/sealed_internal.h"

/* A generation is a file's number and 16 more bits. A file's own stands in the middle: parts of
 * series that ended, out of it, come before it, and what is made of the file's part behind it. */
enum { GENERATION_SHIFT = 16, GENERATION_FILE = 1 << 15 };
static inline uint64_t generation_of_file(uint64_t number)
{
    return number << GENERATION_SHIFT | GENERATION_FILE;
}
static inline uint64_t generation_file_number(uint64_t generation)
{
    return generation >> GENERATION_SHIFT;
}

/* ---- sources ---- */

/* A sealed or late file. It only grows, by whoever holds the shard's files_lock; readers look at
 * the view in their set and never at the fields from `slices` on. */
struct sealed_source {
    _Atomic uint32_t refs;
    _Atomic bool is_removed;  /* unlink when the last reference goes */
    struct fs *fs;            /* borrowed */
    struct sealed_file *file; /* owned */
    enum sealed_kind kind;
    uint32_t shard, shard_count;
    uint64_t number, generation;
    uint32_t window; /* chunk_window() of all its samples; 0 for SEALED_LATE */
    /* Owned, each of them too. Views share the array: a place is written before any view counts it.
     * When it is full a larger one takes over, and `outgrown` keeps the old one for old views. */
    struct sealed_slice **slices;
    size_t slice_count, slice_capacity;
    struct sealed_outgrown *outgrown;
    int64_t min_time_ms, max_time_ms; /* of the slices; min > max without any */
};
struct part_store;
/* Takes over `file`; one reference. What is decoded of its directories is kept in the cache of
 * `store`, which may be NULL. NULL when memory is refused: then `file` is still the caller's. */
struct sealed_source *sealed_source_new(struct fs *fs, struct part_store *store,
                                        struct sealed_file *file, uint32_t window);

struct part_source {
    _Atomic uint32_t refs;
    _Atomic bool is_removed;
    struct fs *fs;     /* borrowed */
    struct part *part; /* owned */
    struct part_key key;
    /* Written under another shard count: holds series of other shards too (see file_set_read's
     * callers), or not all of this one's. */
    bool is_foreign;
    /* As in struct manifest_part; 0 until the owner of a new source sets it, before anybody else
     * has it. */
    uint64_t purged_generation;
};
struct part_source *part_source_new(struct fs *fs, struct part *part, bool is_foreign);
struct sealed_source *sealed_source_ref(struct sealed_source *s);
struct part_source *part_source_ref(struct part_source *p);
/* Close the file with the last reference, and unlink it when it is_removed: never under a lock.
 * Accept NULL. Set is_removed before the set without the source is published. */
void sealed_source_unref(struct sealed_source *s);
void part_source_unref(struct part_source *p);
/* Adds a slice, which becomes the source's; sets made from now on show it. Under files_lock. False,
 * with nothing changed, when memory is refused. */
MUST_USE bool sealed_source_append(struct sealed_source *s, struct sealed_slice *slice);

/* ---- sets ---- */

struct sealed_view {
    struct sealed_source *source;       /* counted */
    struct sealed_slice *const *slices; /* the source's, ascending by index */
    size_t slice_count;
    int64_t min_time_ms, max_time_ms; /* of the slices; min > max without any */
};

struct file_set {
    _Atomic uint32_t refs;
    struct sealed_view *sealed; /* ascending by generation */
    size_t sealed_count;
    struct part_source **parts; /* ascending by window start, then generation */
    size_t part_count;
    struct tombstone_list *tombstones; /* counted; NULL: none */
};

/* What a successor has more and less. Everything in here is borrowed; the successor counts what it
 * names. */
struct file_set_change {
    struct sealed_source *const *sealed_add;
    size_t sealed_add_count;
    struct sealed_source *const *sealed_remove;
    size_t sealed_remove_count;
    struct part_source *const *part_add;
    size_t part_add_count;
    struct part_source *const *part_remove;
    size_t part_remove_count;
    bool set_tombstones;
    struct tombstone_list *tombstones; /* if set_tombstones */
};
/* A set with one reference; `base` NULL: an empty one. The views of sources show all slices that
 * the sources have at this moment. */
MUST_USE enum err file_set_new(const struct file_set *base, const struct file_set_change *change,
                               struct file_set **out, struct errinfo *ei);
struct file_set *file_set_ref(struct file_set *set);
/* May close and unlink files: never under a lock. Accepts NULL. */
void file_set_unref(struct file_set *set);

/* Whether files of the set may hold samples in a range of time. */
bool file_set_overlaps(const struct file_set *set, int64_t min_time_ms, int64_t max_time_ms);
bool part_source_overlaps(const struct part_source *p, int64_t min_time_ms, int64_t max_time_ms);

/* ---- reading ---- */

/* One series to be read from a set. */
struct file_read_item {
    struct hash128 fingerprint;
    uint32_t slot; /* UINT32_MAX: none; then only parts are searched */
    uint16_t generation;
};
/* Gives label sets of some of the items of a read, by their index, into the arena or borrowed until
 * the read has ended. */
typedef enum err labels_source(void *ctx, const size_t *items, size_t count, struct arena *arena,
                               struct labels *out, struct errinfo *ei);
/*
 * Merges what a set has of `count` <= QUERIER_READ_BATCH_MAX series with what the caller read from
 * memory: in_order[i] (open and closed chunks), late_frozen[i] and late[i] (late buffers). One
 * sample per timestamp under the rule for repeats: files by generation, then in_order, late_frozen,
 * late. Tombstones are applied to files. Columns in the arena; a column that comes from one
 * source only is not copied. `labels_of` gives label sets (only called when tombstones must be
 * matched).
 */
struct file_read {
    const struct file_set *set; /* NULL: no files */
    const struct file_read_item *items;
    size_t count;
    int64_t min_time_ms, max_time_ms;
    const struct column *in_order;    /* NULL: none */
    const struct column *late_frozen; /* NULL: none */
    const struct column *late;        /* NULL: none */
    labels_source *labels_of;
    void *ctx;
    struct arena *arena;
};
/* ERR_CORRUPT names file and offset of damage. A series may stand in `items` twice. */
MUST_USE enum err file_set_read(const struct file_read *r, struct column *out, struct errinfo *ei);

#endif
