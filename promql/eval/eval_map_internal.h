/*
 * Functions of one value, and the places where Go's math differs from C's.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_MAP_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_MAP_INTERNAL_H

#include "promql/eval/eval_internal.h"
#include "promql/functions.h"

/* `argument` is the function's scalar where it has one (round), else 1. */
typedef double map_function(double value, double argument);
/* NULL when the function is not one of a single value. */
map_function *map_function_find(enum function_id id);

/* --- eval_map_histogram.c --- */

/* Takes the steps with a histogram out of the row's bitmap and into `histogram_steps`, which has as
 * many words. */
MUST_USE enum err row_split(struct eval *ev, struct row *row, const struct grid *grid,
                            uint64_t *histogram_steps, bool *any, struct errinfo *ei);
/* One stage on the histograms at `steps`, which are not in the row's bitmap; what comes of them is,
 * afterwards. The row's column goes when only floats are left. `scalars` as in struct map_stage. */
MUST_USE enum err stage_histograms(struct eval *ev, const struct map_stage *m,
                                   const double *scalars, const uint64_t *steps,
                                   const struct grid *grid, struct row *row, struct arena *arena,
                                   struct errinfo *ei);
/* A trim operator on the floats of a row: nothing is left of them. */
MUST_USE enum err stage_trims_floats(struct eval *ev, const struct map_stage *m,
                                     const struct grid *grid, struct row *row, struct errinfo *ei);

/* Go's math.Max and math.Min: NaN wins unless the other is the infinity that decides, -0 < +0. */
double go_max(double a, double b);
double go_min(double a, double b);
/* Go's math.Pow: C's pow() has the same special cases; test_eval_functions.c lists them. */
double go_pow(double x, double y);

#endif
