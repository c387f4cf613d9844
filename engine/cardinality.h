/*
 * Where the series come from: which names and values have most of them. For status/tsdb.
 */
#ifndef RIMSTONE_ENGINE_CARDINALITY_H
#define RIMSTONE_ENGINE_CARDINALITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

struct querier;

struct cardinality_row {
    struct str name; /* in the arena */
    uint64_t value;
};
struct cardinality_list {
    size_t count;
    struct cardinality_row *rows; /* in the arena; the largest first, then by name */
};

struct cardinality {
    uint64_t label_pair_count;                /* distinct pairs of name and value */
    struct cardinality_list series_by_metric; /* series of each metric name */
    struct cardinality_list values_by_label;  /* distinct values of each label name */
    struct cardinality_list bytes_by_label;   /* size of the value, summed over all series */
    struct cardinality_list series_by_pair;   /* series of each "name=value" */
};

/*
 * The `limit` largest of each list, over the series that are in the index: those of memory, and
 * ended ones until their slots are reused. One label name at a time, 24 bytes a value and shard of
 * it on top of what the arena keeps; charged to the arena's budget, ERR_LIMIT when it is spent.
 */
MUST_USE enum err querier_cardinality(struct querier *q, size_t limit, struct arena *arena,
                                      struct cardinality *out, struct errinfo *ei);

#endif
