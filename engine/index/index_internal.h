/*
 * The inverted index of one shard: label dictionaries, posting lists, and the label set of every
 * slot. One writer at a time (the shard's slow path) and any number of readers.
 *
 * A label set is a schema (list of name ids) and one varint value id per name. A dictionary entry
 * (name, value) holds its posting list of slots: inline up to 2, a sorted array up to 64, roaring
 * above. The index has a lock of its own, which appends to known series never take; readers hold it
 * in slices, so a long query never keeps a new series waiting.
 *
 * Lock order: shard.lock (if held at all), then index.lock. Functions below take index.lock
 * themselves.
 */
#ifndef RIMSTONE_ENGINE_INDEX_INDEX_INTERNAL_H
#define RIMSTONE_ENGINE_INDEX_INDEX_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/err.h"
#include "engine/labels.h"

struct index;

/* A label set with more is refused with ERR_LIMIT: a record must fit its chunk. */
enum { INDEX_LABEL_COUNT_MAX = 4096 };

MUST_USE enum err index_new(struct budget *memory, struct index **out, struct errinfo *ei);
void index_free(struct index *ix);

/* Adds slot with a canonical label set (sorted, unique, checked). Slots come in any order, each at
 * most once between index_add and index_remove. On failure nothing has changed. */
MUST_USE enum err index_add(struct index *ix, uint32_t slot, const struct labels *labels,
                            struct errinfo *ei);

struct series_image;
/*
 * Fills an empty index with all series of an image (series_file_internal.h), many times faster than
 * index_add() one by one. Names, schemas and values keep the ids of the image (of its values:
 * series_image_value.id). Of the image's groups only slots and values are looked at. Its texts are
 * copied. ERR_CORRUPT: a text stands there twice, or ids of values are wildly sparse. After a
 * failure the index is good for index_free() only. Nobody else may use it yet.
 */
MUST_USE enum err index_load_image(struct index *ix, const struct series_image *image,
                                   struct errinfo *ei);

/*
 * The other way: an image of `count` series of an index, at ascending slots, with dense ids that
 * have nothing in them that these series do not use. One group a schema; its columns besides slots
 * and values are NULL. Texts are the index's and go with it; everything else is the image's,
 * charged to the index's budget; series_image_done() frees it. The index may grow meanwhile.
 */
MUST_USE enum err index_image(struct index *ix, const uint32_t *slots, size_t count,
                              struct series_image *out, struct errinfo *ei);

/* Slots that match all matchers, ascending, in `arena`. Looks at *stop (may be NULL) between
 * slices. */
MUST_USE enum err index_select(struct index *ix, const struct matcher *matchers,
                               size_t matcher_count, const _Atomic bool *stop, struct arena *arena,
                               uint32_t **out_slots, size_t *out_count, struct errinfo *ei);

/* Label sets of `count` slots, copied into the arena; an empty set for a slot that is not there. */
MUST_USE enum err index_labels(struct index *ix, const uint32_t *slots, size_t count,
                               struct arena *arena, struct labels *out, struct errinfo *ei);
/* Called for a batch of slots, with an empty set for each that is not there; `scratch` is empty
 * again with the next batch. */
typedef enum err index_label_visitor(void *ctx, const uint32_t *slots, const struct labels *sets,
                                     size_t count, struct arena *scratch, struct errinfo *ei);
/* Visits all slots below `slot_end`, ascending, until a visitor fails; scratch is charged to
 * `memory` (NULL: nobody). */
MUST_USE enum err index_walk(struct index *ix, uint32_t slot_end, struct budget *memory,
                             index_label_visitor *visit, void *ctx, struct errinfo *ei);
/* True if slot has exactly these labels (no allocation): confirms a fingerprint hit in tests. */
bool index_labels_equal(struct index *ix, uint32_t slot, const struct labels *labels);
/* Whether the slot is in the index. */
bool index_has(struct index *ix, uint32_t slot);
/* As querier_label_values_of(), for one shard: out[i * name_count + k]. Strings are borrowed and
 * stay valid as long as the index lives (dictionary text is never moved or freed while open). */
void index_values_of(struct index *ix, const uint32_t *slots, size_t count, const struct str *names,
                     size_t name_count, struct str *out);
/* The same, series i into row rows[i] of out. */
void index_values_of_rows(struct index *ix, const uint32_t *slots, const size_t *rows, size_t count,
                          const struct str *names, size_t name_count, struct str *out);

/* Decides about slots in bulk: keep[i] tells whether slots[i] counts. Called without index.lock. */
struct slot_filter {
    void (*keep)(void *ctx, const uint32_t *slots, size_t count, bool *keep);
    void *ctx;
};

/* Label names in use, in no order. Strings are the dictionaries', the array is in `arena`. */
MUST_USE enum err index_names(struct index *ix, struct arena *arena, struct str **out,
                              size_t *out_count, struct errinfo *ei);
/* Only names of a slot that passes the filter (NULL: any slot). */
MUST_USE enum err index_names_live(struct index *ix, const struct slot_filter *filter,
                                   struct arena *arena, struct str **out, size_t *out_count,
                                   struct errinfo *ei);
/* Values of one name, in no order; strings and array as above. */
MUST_USE enum err index_values(struct index *ix, struct str name, struct arena *arena,
                               struct str **out, size_t *out_count, struct errinfo *ei);
/* Only values of a slot that passes the filter (NULL: any slot). Looks at *stop (may be NULL). */
MUST_USE enum err index_values_live(struct index *ix, struct str name,
                                    const struct slot_filter *filter, const _Atomic bool *stop,
                                    struct arena *arena, struct str **out, size_t *out_count,
                                    struct errinfo *ei);

/* Values of one name that some slot has, and how many slots do. In no order; texts as above. */
struct index_count {
    struct str text;
    uint64_t slots;
};
MUST_USE enum err index_value_counts(struct index *ix, struct str name, struct arena *arena,
                                     struct index_count **out, size_t *out_count,
                                     struct errinfo *ei);

/* One series as numbers: ids of the shard's dictionaries, names in byte order of their text. */
struct index_series {
    size_t item; /* which of the slots asked for */
    uint32_t schema_id, name_count;
    const uint32_t *names;  /* as long as the index lives */
    const uint32_t *values; /* until the visitor returns */
};
/* Called with index.lock held for reading: must be quick and must not call the index. name_count 0
 * for a slot that is not there. */
typedef void index_visitor(void *ctx, const struct index_series *series);
void index_visit(struct index *ix, const uint32_t *slots, size_t count, index_visitor *visit,
                 void *ctx);
/* Ids are below these counts, which only grow. */
uint32_t index_name_count(struct index *ix);
uint32_t index_value_count(struct index *ix, uint32_t name_id);
/* UINT32_MAX if no series ever had the name. */
uint32_t index_name_id(struct index *ix, struct str name);
struct str index_name_text(struct index *ix, uint32_t name_id);
uint32_t index_schema_count(struct index *ix);
/* Name ids of a schema, in byte order of the names; as long as the index lives. */
const uint32_t *index_schema_names(struct index *ix, uint32_t schema_id, uint32_t *name_count);
void index_value_texts(struct index *ix, uint32_t name_id, uint32_t first, uint32_t count,
                       struct str *out);

struct index_stats {
    uint64_t slot_count, value_count, value_bytes, memory_bytes;
};
void index_stats_get(struct index *ix, struct index_stats *out);

#endif
