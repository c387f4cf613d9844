/*
 * What a fold keeps of a group: one cell a step. Rows are folded in the order of labels as
 * Prometheus does it, or in any order, so that what comes out does not depend on it: then sums are
 * exact, and extrema prefer -0 to +0 or the other way round. Only such cells can be merged.
 */
#ifndef RIMSTONE_PROMQL_EVAL_FOLD_CELLS_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_FOLD_CELLS_INTERNAL_H

#include "promql/eval/eval_internal.h"
#include "promql/eval/exact_sum_internal.h"

/* Which columns exist depends on the operator and the order. */
struct cells {
    uint64_t *seen;         /* steps with at least one sample; NULL: nothing yet */
    uint64_t *incremental;  /* avg in order: the sum has overflowed, `mean` counts */
    double *value;          /* sum, extremum, or sum of squares about the mean */
    double *compensation;   /* sum, avg in order */
    double *mean;           /* avg in order, stddev, stdvar */
    double *count;          /* avg, count, stddev, stdvar */
    struct exact_sums sums; /* sum, avg in any order */
};

/* Whether the operator gives the same in any order. Not stddev and stdvar. */
bool fold_takes_any_order(enum aggregate_op op);
/* Memory of cells is the arena's. */
MUST_USE enum err cells_alloc(struct eval *ev, enum aggregate_op op, bool any_order, size_t count,
                              struct arena *arena, struct cells *c, struct errinfo *ei);
/* Folds all steps of a row. */
MUST_USE enum err cells_fold(struct eval *ev, enum aggregate_op op, bool any_order, struct cells *c,
                             const struct row *row, size_t count, struct errinfo *ei);
/* Both folded in any order; `from` is used up. */
MUST_USE enum err cells_merge(struct eval *ev, enum aggregate_op op, struct cells *to,
                              struct cells *from, size_t count, struct errinfo *ei);
/* The group's row: `row` has room, its bits are clear. */
MUST_USE enum err cells_result(struct eval *ev, enum aggregate_op op, bool any_order,
                               struct cells *c, size_t count, struct row *row, struct errinfo *ei);

#endif
