/*
 * Range functions: each looks at the samples of one series in one window. The driver moves windows
 * over a column with two indexes that only go forward; what a function can prepare once a series
 * (where the counter resets, say) it keeps in the run, so that a step costs what is new in it.
 * Incremental tricks are used only where the result is the same to the last bit as scanning the
 * window from scratch; the tests compare with exactly that.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_RANGE_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_RANGE_INTERNAL_H

#include "promql/eval/eval_internal.h"

/* A window of a column: samples [first, end); never empty. */
struct window {
    const struct column *column;
    size_t first, end;
    int64_t eval_ms; /* the step's own time, without offset and @ */
    /* The function's scalar arguments at this step, or 0. */
    double scalar, scalar2;
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

/* The same by columns, for loops without branches. Steps without two samples have index 0 and a
 * factor of 0. */
struct rate_column {
    uint32_t *first, *last; /* samples */
    double *factor, *sampled;
    double *reach;                    /* 1.001 * to_start: what reaches_zero() asks first */
    uint64_t *present;                /* steps with two samples */
    double sampled_least, reach_most; /* of these steps */
};

/* Windows depend on timestamps only, and the series of a target share those: what was worked out
 * for one column of timestamps stays for the next series that has the same. */
struct windows {
    int64_t *t_ms; /* the column they are for, a copy */
    size_t count, capacity;
    size_t longest;     /* samples of the longest window */
    uint64_t total;     /* samples of all windows */
    struct span *spans; /* per step */
    struct rate_step *rate;
    struct rate_column rates;
    bool valid;
};

struct range_run {
    struct eval *ev;
    struct windows windows;
    const struct plan *plan;
    const struct range_function *function;
    struct arena arena;         /* scalars and scratch for the whole run */
    double *scalars, *scalars2; /* per step, or NULL */
    double range_seconds;
    /* Per series: indexes i where sample i differs from i - 1 in the way the function counts
     * (reset, change), ascending, and the part of them inside the window. */
    uint32_t *marks;
    size_t mark_count, mark_first, mark_end;
    bool is_rising; /* no value is less than the one before it, or NaN; set with resets */
    /* Per series: candidates of a sliding extremum, indexes in marks' manner. */
    uint32_t *queue;
    size_t queue_first, queue_end;
    size_t scanned; /* samples that went through the queue */
    /* Per series without NaNs, for an extremum of values: values[i] is that of [i, turned) as far
     * back as the window goes, `newer` that of [turned, scanned). */
    size_t turned;
    double newer;
    bool has_nan;
    double *values; /* scratch: of a window for quantiles, of a series for extrema */
    size_t scratch_capacity;
    /* Windows and columns may be as long as a query's memory: functions scan them piece by piece,
     * and what stops them goes here. */
    enum err failed;
    struct errinfo *ei;     /* of the call that runs, borrowed */
    struct arena *out;      /* for histograms of the rows: that of the batch, borrowed */
    struct str metric_name; /* of the series, borrowed */
    double quantile_warned; /* last out-of-range quantile that was annotated */
    bool any_quantile_warned, name_annotated;
    bool overlap_annotated; /* of the series */
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
    bool wants_stale;  /* sees staleness markers among the samples */
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

/* The position that annotations about the range show. */
static inline struct position_range range_argument_position(const struct range_run *run)
{
    return node_unwrap(run->plan->node->u.call.args[0])->position;
}
/* Evaluates `run->function` on a column of floats whose windows have been prepared. */
MUST_USE enum err range_windows_evaluate(struct range_run *run, const struct column *c,
                                         struct row *row, struct errinfo *ei);
/* Whether both factors of double_exponential_smoothing() are right; else run->failed. */
bool smoothing_factors_check(struct range_run *run, double smoothing, double trend);

/* --- range_histograms.c --- */

/* All steps of a column with histograms; their memory is run->out. */
MUST_USE enum err range_mixed_run(struct range_run *run, const struct column *c,
                                  struct str metric_name, struct row *row, struct errinfo *ei);

/* --- range_functions.c --- */

/* The factor of the increase at a step with two samples, the zero rule heeded: `first` is the
 * window's first value, of a counter. */
double rate_factor(const struct range_run *run, const struct rate_step *r, double first,
                   double increase);

/* --- range_starts.c: of columns with start timestamps; without, nothing is --- */

/* Whether sample i has begun to count anew since the one before it. */
bool start_is_reset(const struct column *c, size_t i);
/* Warns, once a series, where a window has samples whose times of counting overlap. */
MUST_USE enum err starts_annotate(struct range_run *run, const struct column *c, struct span w,
                                  struct errinfo *ei);
/* Whether the window's first sample, which may be the only one, began to count within it: then it
 * has come from zero since, and *factor is that of the increase from there on. */
bool start_in_window(const struct range_run *run, const struct column *c, size_t step,
                     struct span w, double *factor);
/* rate() and increase() of floats. */
void starts_extrapolate(struct range_run *run, const struct column *c, struct row *row);

/* --- range_windows.c --- */

/* Makes run->windows those of the column, unless they are already. */
MUST_USE enum err windows_prepare(struct range_run *run, const struct column *c,
                                  struct errinfo *ei);

/* --- range_extended.c --- */

/* The function over an anchored or smoothed range. ERR_EXECUTION when it takes none. */
MUST_USE enum err range_function_extended(enum range_extension extension,
                                          const struct promql_function *function,
                                          const struct range_function **out, struct errinfo *ei);
/* The samples that an extended window looks at, given those inside its borders: [first, end). Empty
 * when there is nothing to tell. */
struct span extended_span(const struct column *c, size_t first, size_t end, int64_t start_ms,
                          int64_t end_ms, const struct eval *ev, const struct plan *p);
/* An anchored or smoothed range as a result, with a sample at either border. `in` has no staleness
 * markers and reaches beyond the borders as the extension does. */
MUST_USE enum err extended_column(struct eval *ev, const struct plan *p, const struct column *in,
                                  int64_t end_ms, struct arena *arena, struct column *out,
                                  struct errinfo *ei);

/* The histogram at `t_ms` on the line between two samples of one kind of buckets; of a counter that
 * was reset in between, on the line from nothing. It lives in the arena. ERR_INVALID: of two kinds;
 * else the arena's error. */
struct histogram_notes;
MUST_USE enum err histogram_interpolate(const struct histogram *from, int64_t from_ms,
                                        const struct histogram *to, int64_t to_ms, int64_t t_ms,
                                        bool is_counter, struct arena *arena, struct histogram *out,
                                        struct histogram_notes *subtracting,
                                        struct histogram_notes *adding);

/* NULL when it is not a range function that is built. */
const struct range_function *range_function_find(enum function_id id);
/* Evaluates `run->function` on all steps of the plan's grid; c has no staleness markers. */
MUST_USE enum err range_column_run(struct range_run *run, const struct column *c,
                                   struct str metric_name, struct row *row, struct errinfo *ei);

#endif
