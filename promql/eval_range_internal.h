/*
 * Range functions: each looks at the samples of one series in one window. The driver moves windows
 * over a column with two indexes that only go forward; what a function can prepare once a series
 * (where the counter resets, say) it keeps in the run, so that a step costs what is new in it.
 * Incremental tricks are used only where the result is the same to the last bit as scanning the
 * window from scratch; the tests compare with exactly that.
 */
#ifndef RIMSTONE_PROMQL_EVAL_RANGE_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_RANGE_INTERNAL_H

#include "promql/eval_internal.h"

/* A window of a column: samples [first, end) lie in (start_ms, end_ms]; never empty. */
struct window {
    const struct column *column;
    size_t first, end;
    int64_t start_ms, end_ms;
    int64_t eval_ms; /* the step's own time, without offset and @ */
    double scalar;   /* the function's scalar argument at this step, or 0 */
};

struct range_run {
    struct eval *ev;
    const struct plan *plan;
    const struct range_function *function;
    struct arena arena; /* scalars and scratch for the whole run */
    double *scalars;    /* per step, or NULL */
    double range_seconds;
    /* Per series: indexes i where sample i differs from i - 1 in the way the function counts
     * (reset, change), ascending, and the part of them inside the window. */
    uint32_t *marks;
    size_t mark_count, mark_first, mark_end;
    /* Per series: candidates of a sliding extremum, indexes in marks' manner. */
    uint32_t *queue;
    size_t queue_first, queue_end;
    size_t scanned; /* samples that went through the queue */
    double *values; /* scratch of a window, for quantiles */
    size_t scratch_capacity;
    double quantile_warned; /* last out-of-range quantile that was annotated */
    bool any_quantile_warned, name_annotated;
};

struct range_function {
    /* Before the windows of a series. May be NULL. */
    void (*prepare)(struct range_run *run, const struct column *c);
    /* False: no sample at this step. */
    bool (*window)(struct range_run *run, const struct window *w, double *out);
    bool needs_values; /* wants run->values */
};

/* NULL when it is not a range function that is built. */
const struct range_function *range_function_find(enum function_id id);
/* Evaluates `run->function` on all steps of the plan's grid; c has no staleness markers. */
MUST_USE enum err range_column_run(struct range_run *run, const struct column *c, struct row *row,
                                   struct errinfo *ei);

#endif
