/*
 * histogram_quantile(), histogram_quantiles() and histogram_fraction() at work: eval_histogram.c
 * has the operator and classic histograms, eval_histogram_native.c native ones.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_HISTOGRAM_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_HISTOGRAM_INTERNAL_H

#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"
#include "promql/histograms/histogram_classic_internal.h"

struct bucket_row {
    double upper_bound;
    size_t group, row;
};

struct quantile_column {
    const double *values;
    size_t row; /* SIZE_MAX: none yet */
    double row_value;
};

struct histogram_run {
    struct eval *ev;
    const struct plan *plan;
    struct vector *in, *out;
    struct arena arena;
    struct label_table groups;
    struct bucket_row *buckets; /* sorted by group, then bound, then row */
    size_t bucket_count;
    struct bucket *scratch;
    double *first, *second; /* quantile; or lower and upper */
    /* Of histogram_quantiles(): a column of each quantile, and where the row is for its value at
     * the step and group worked on. */
    struct quantile_column *quantiles;
    const struct node *vector_arg;
};

/* Adds the row of a series or group with these labels. */
MUST_USE enum err result_row_add(struct histogram_run *r, const struct labels *labels,
                                 struct row **out, struct errinfo *ei);
/* The row for the value of a quantile at a step. One that changes from step to step gets more rows;
 * those with equal labels are joined later. */
MUST_USE enum err quantile_row(struct histogram_run *r, const struct labels *labels,
                               struct quantile_column *q, size_t k, struct row **out,
                               struct errinfo *ei);

/* --- eval_histogram_native.c --- */

/* Where a native histogram has the labels of a classic one neither counts: such steps are taken out
 * of their rows. The buckets are sorted. */
MUST_USE enum err natives_refuse(struct histogram_run *r, struct errinfo *ei);
/* Adds the rows of the native histograms. */
MUST_USE enum err natives_compute(struct histogram_run *r, struct errinfo *ei);

#endif
