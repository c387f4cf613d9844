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
#ifndef RIMSTONE_ENGINE_INDEX_INTERNAL_H
#define RIMSTONE_ENGINE_INDEX_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/err.h"
#include "engine/labels.h"

struct index;

MUST_USE enum err index_new(struct budget *memory, struct index **out, struct errinfo *ei);
void index_free(struct index *ix);

/* Adds slot with a canonical label set (sorted, unique, checked). Slots come in any order, each at
 * most once between index_add and index_remove. On failure nothing has changed. */
MUST_USE enum err index_add(struct index *ix, uint32_t slot, const struct labels *labels,
                            struct errinfo *ei);

/* Slots that match all matchers, ascending, in `arena`. Looks at *stop (may be NULL) between
 * slices. */
MUST_USE enum err index_select(struct index *ix, const struct matcher *matchers,
                               size_t matcher_count, const _Atomic bool *stop, struct arena *arena,
                               uint32_t **out_slots, size_t *out_count, struct errinfo *ei);

/* Label sets of `count` slots, copied into the arena; an empty set for a slot that is not there. */
MUST_USE enum err index_labels(struct index *ix, const uint32_t *slots, size_t count,
                               struct arena *arena, struct labels *out, struct errinfo *ei);
/* True if slot has exactly these labels (no allocation): confirms a fingerprint hit in tests. */
bool index_labels_equal(struct index *ix, uint32_t slot, const struct labels *labels);
/* As querier_label_values_of(), for one shard: out[i * out_stride + k]. Strings are borrowed and
 * stay valid as long as the index lives (dictionary text is never moved or freed while open). */
void index_values_of(struct index *ix, const uint32_t *slots, size_t count, const struct str *names,
                     size_t name_count, struct str *out);

/* Label names in use, in no order. */
MUST_USE enum err index_names(struct index *ix, struct arena *arena, struct str **out,
                              size_t *out_count, struct errinfo *ei);
/* Values of one name, in no order. */
MUST_USE enum err index_values(struct index *ix, struct str name, struct arena *arena,
                               struct str **out, size_t *out_count, struct errinfo *ei);

struct index_stats {
    uint64_t slot_count, value_count, value_bytes, memory_bytes;
};
void index_stats_get(struct index *ix, struct index_stats *out);

#endif
