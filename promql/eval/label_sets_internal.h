/*
 * Work on label sets in the evaluator: building changed ones, and tables keyed by them.
 */
#ifndef RIMSTONE_PROMQL_EVAL_LABEL_SETS_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_LABEL_SETS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/labels.h"

/* True for the labels that go with the metric name: __name__, __type__, __unit__. */
bool label_is_metadata(struct str name);
/* All of these give new arrays in `arena` whose strings are borrowed from `in`; NULL items never
 * stand for failure, the code does. */
MUST_USE enum err labels_without_metadata(const struct labels *in, struct arena *arena,
                                          struct labels *out, struct errinfo *ei);
/* Only / without the labels of `names` (sorted). */
MUST_USE enum err labels_keep(const struct labels *in, const struct str *names, size_t name_count,
                              struct arena *arena, struct labels *out, struct errinfo *ei);
MUST_USE enum err labels_drop(const struct labels *in, const struct str *names, size_t name_count,
                              struct arena *arena, struct labels *out, struct errinfo *ei);
/* One label set to a value; an empty value deletes it. */
MUST_USE enum err labels_with(const struct labels *in, struct str name, struct str value,
                              struct arena *arena, struct labels *out, struct errinfo *ei);
/* Copies the strings too. */
MUST_USE enum err labels_copy(const struct labels *in, struct arena *arena, struct labels *out,
                              struct errinfo *ei);
/* `{a="b", c="d"}` with the name as a label among them, as Prometheus prints label sets in errors.
 */
char *labels_text(const struct labels *in, struct arena *arena);
/* A sorted copy without repeats. */
MUST_USE enum err names_sort(const struct str *in, size_t count, struct arena *arena,
                             struct str **out, size_t *out_count, struct errinfo *ei);
bool names_contain(const struct str *sorted, size_t count, struct str name);

/* A table from label sets to small numbers 0, 1, 2, ... in the order of their first appearance. */
struct label_table {
    struct arena *arena; /* borrowed: slots and copies of keys */
    uint64_t *hashes;    /* by slot */
    uint32_t *slots;     /* index + 1, 0: free */
    size_t slot_count;   /* a power of two, or 0 */
    struct labels *keys; /* by index */
    size_t count, capacity;
};

void label_table_init(struct label_table *t, struct arena *arena);
/* The index of `key`; a new key is copied. *added tells which. */
MUST_USE enum err label_table_add(struct label_table *t, const struct labels *key, size_t *index,
                                  bool *added, struct errinfo *ei);
/* SIZE_MAX when absent. */
size_t label_table_find(const struct label_table *t, const struct labels *key);

#endif
