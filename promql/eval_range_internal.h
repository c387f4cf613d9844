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

/* A window of a column: samples [first, end); never empty. */
struct window {
    const struct column *column;
    size_t first, end;
    int64_t eval_ms; /* the step's own time, without offset and @ */
    double scalar;   /* the function's scalar argument at this step, or 0 */
};

/* The samples of a step's window: indexes [first, end) of the column. */
struct span {
    uint32_t first, end;
};

/* What rate(), increase() and delta() take from timestamps alone, per step. */
struct rate_step {
    double sampled;          /* seconds from first to last sample */
    double to_start, to_end; /* seconds of extrapolation at both ends, before the zero rule */
    double factor;           /* of the increase, when the zero rule does not apply */
};

/* Windows depend on timestamps only, and the series of a target share those: what was worked out
 * for one column of timestamps stays for the next series that has the same. */
struct windows {
    int64_t *t_ms; /* the column they are for, a copy */
    size_t count, capacity;
    size_t longest;     /* samples of the longest window */
    struct span *spans; /* per step */
    struct rate_step *rate;
    bool valid;
};

struct range_run {
    struct eval *ev;
    struct windows windows;
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
    /* Windows and columns may be as long as a query's memory: functions scan them piece by piece,
     * and what stops them goes here. */
    enum err failed;
    struct errinfo *ei;     /* of the call that runs, borrowed */
    double quantile_warned; /* last out-of-range quantile that was annotated */
    bool any_quantile_warned, name_annotated;
};

struct range_function {
    /* Before the windows of a series. May be NULL. */
    void (*prepare)(struct range_run *run, const struct column *c);
    /* One step. False: no sample there. */
    bool (*window)(struct range_run *run, const struct window *w, double *out);
    /* All steps of a series at once, instead of window(). May be NULL. */
    void (*column)(struct range_run *run, const struct column *c, struct row *row);
    bool needs_values; /* wants run->values */
    bool needs_rate;   /* wants run->windows.rate */
};

/* Long scans go `for (size_t i = begin, end; (end = scan_piece(run, i, all_end)) > i;)` around a
 * loop that moves i to `end`. Gives i itself at the end and once the query must stop. The last
 * piece is free: the driver counts it. */
static inline size_t scan_piece(struct range_run *run, size_t i, size_t end)
{
    if (i >= end || run->failed != ERR_OK)
        return i;
    if (LIKELY(end - i <= EVAL_PIECE))
        return end;
    run->failed = eval_tick(run->ev, EVAL_PIECE, run->ei);
    return run->failed == ERR_OK ? i + EVAL_PIECE : i;
}

/* --- range_windows.c --- */

/* Makes run->windows those of the column, unless they are already. */
MUST_USE enum err windows_prepare(struct range_run *run, const struct column *c,
                                  struct errinfo *ei);

/* NULL when it is not a range function that is built. */
const struct range_function *range_function_find(enum function_id id);
/* Evaluates `run->function` on all steps of the plan's grid; c has no staleness markers. */
MUST_USE enum err range_column_run(struct range_run *run, const struct column *c, struct row *row,
                                   struct errinfo *ei);

#endif
