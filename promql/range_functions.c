/*
 * The range functions on floats. See eval_range_internal.h. Formulas and their order of operations
 * follow Prometheus 3, since answers are compared bit by bit where they can be.
 */
#include <stdlib.h>
#include <string.h>

#include "promql/eval_range_internal.h"

/* --- counters: rate, increase, delta, irate, idelta, resets, changes --- */

static void prepare_resets(struct range_run *run, const struct column *c)
{
    for (size_t i = 1, end; (end = scan_piece(run, i, c->count)) > i;) {
        for (; i < end; i++) {
            if (c->value[i] < c->value[i - 1])
                run->marks[run->mark_count++] = (uint32_t)i;
        }
    }
}

static void prepare_changes(struct range_run *run, const struct column *c)
{
    for (size_t i = 1, end; (end = scan_piece(run, i, c->count)) > i;) {
        for (; i < end; i++) {
            double a = c->value[i - 1], b = c->value[i];

            if (a != b && !(isnan(a) && isnan(b)))
                run->marks[run->mark_count++] = (uint32_t)i;
        }
    }
}

/* Moves the part of the marks to those whose both samples lie in the window. */
static void marks_slide(struct range_run *run, const struct window *w)
{
    while (run->mark_end < run->mark_count && run->marks[run->mark_end] < w->end)
        run->mark_end++;
    while (run->mark_first < run->mark_end && run->marks[run->mark_first] <= w->first)
        run->mark_first++;
}

static bool window_marks(struct range_run *run, const struct window *w, double *out)
{
    marks_slide(run, w);
    *out = (double)(run->mark_end - run->mark_first);
    return true;
}

/* Adds what the counter had reached before each reset inside the span. */
static double resets_add(struct range_run *run, const struct column *c, struct span span,
                         double increase)
{
    while (run->mark_end < run->mark_count && run->marks[run->mark_end] < span.end)
        run->mark_end++;
    while (run->mark_first < run->mark_end && run->marks[run->mark_first] <= span.first)
        run->mark_first++;
    /* Many resets in many windows are much work of a column. */
    if (run->failed == ERR_OK)
        run->failed = eval_tick(run->ev, run->mark_end - run->mark_first, run->ei);
    for (size_t i = run->mark_first, end; (end = scan_piece(run, i, run->mark_end)) > i;) {
        for (; i < end; i++)
            increase += c->value[run->marks[i] - 1];
    }
    return increase;
}

/* A counter was not below zero: its line is not followed further back than to there. True if that
 * is nearer than to_start. The first test only spares the division where it cannot be. */
static bool reaches_zero(const struct rate_step *r, double first, double increase, double *to_zero)
{
    if (!(increase > 0 && first >= 0) || first * r->sampled > 1.001 * r->to_start * increase)
        return false;
    *to_zero = r->sampled * (first / increase);
    return *to_zero < r->to_start;
}

static inline void extrapolated(struct range_run *run, const struct column *c, struct row *row,
                                bool is_counter, bool is_rate)
{
    for (size_t k = 0, end; (end = scan_piece(run, k, run->plan->grid.count)) > k;) {
        for (; k < end; k++) {
            const struct rate_step *r = &run->windows.rate[k];
            struct span span = run->windows.spans[k];
            double increase, factor = r->factor, to_zero;

            if (span.end - span.first < 2)
                continue;
            increase = c->value[span.end - 1] - c->value[span.first];
            if (is_counter && run->mark_count > 0)
                increase = resets_add(run, c, span, increase);
            if (is_counter && reaches_zero(r, c->value[span.first], increase, &to_zero)) {
                factor = (r->sampled + to_zero + r->to_end) / r->sampled;
                if (is_rate)
                    factor /= run->range_seconds;
            }
            row_set(row, k, increase * factor);
        }
    }
}

static void column_rate(struct range_run *run, const struct column *c, struct row *row)
{
    extrapolated(run, c, row, true, true);
}

static void column_increase(struct range_run *run, const struct column *c, struct row *row)
{
    extrapolated(run, c, row, true, false);
}

static void column_delta(struct range_run *run, const struct column *c, struct row *row)
{
    extrapolated(run, c, row, false, false);
}

static bool last_two(const struct window *w, bool is_rate, double *out)
{
    const struct column *c = w->column;
    double last, before;
    int64_t interval_ms;

    if (w->end - w->first < 2)
        return false;
    last = c->value[w->end - 1];
    before = c->value[w->end - 2];
    interval_ms = c->t_ms[w->end - 1] - c->t_ms[w->end - 2];
    *out = is_rate && last < before ? last : last - before;
    if (is_rate)
        *out /= (double)interval_ms / 1000;
    return true;
}

static bool window_irate(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    return last_two(w, true, out);
}

static bool window_idelta(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    return last_two(w, false, out);
}

/* --- aggregations over time --- */

static bool window_count(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    *out = (double)(w->end - w->first);
    return true;
}

static bool window_present(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    (void)w;   /* never empty */
    *out = 1;
    return true;
}

static bool window_first(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    *out = w->column->value[w->first];
    return true;
}

static bool window_last(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    *out = w->column->value[w->end - 1];
    return true;
}

static bool window_sum(struct range_run *run, const struct window *w, double *out)
{
    double sum = 0, compensation = 0;

    /* Sums are not updated step by step: that would round otherwise. */
    for (size_t i = w->first, end; (end = scan_piece(run, i, w->end)) > i;) {
        for (; i < end; i++)
            kahan_add(w->column->value[i], &sum, &compensation);
    }
    *out = isinf(sum) ? sum : sum + compensation;
    return true;
}

/* State of avg_over_time(): the mean of the sum while that is finite; from its overflow on an
 * incremental mean. */
struct mean_state {
    double sum, mean, compensation, count;
    bool incremental;
};

static void mean_add(struct mean_state *m, double value)
{
    double new_sum = m->sum, new_compensation = m->compensation, q;

    m->count++;
    if (!m->incremental) {
        kahan_add(value, &new_sum, &new_compensation);
        if (!isinf(new_sum)) {
            m->sum = new_sum;
            m->compensation = new_compensation;
            return;
        }
        m->incremental = true;
        m->mean = m->sum / (m->count - 1);
        m->compensation /= m->count - 1;
    }
    q = (m->count - 1) / m->count;
    m->mean *= q;
    m->compensation *= q;
    kahan_add(value / m->count, &m->mean, &m->compensation);
}

static bool window_avg(struct range_run *run, const struct window *w, double *out)
{
    struct mean_state m = {.sum = w->column->value[w->first], .count = 1};

    for (size_t i = w->first + 1, end; (end = scan_piece(run, i, w->end)) > i;) {
        for (; i < end; i++)
            mean_add(&m, w->column->value[i]);
    }
    *out = m.incremental ? m.mean + m.compensation : m.sum / m.count + m.compensation / m.count;
    return true;
}

/* Welford's method with compensated mean and sum of squares. */
static double window_variance(struct range_run *run, const struct window *w)
{
    double count = 0, mean = 0, mean_c = 0, squares = 0, squares_c = 0;

    for (size_t i = w->first, end; (end = scan_piece(run, i, w->end)) > i;) {
        for (; i < end; i++) {
            double v = w->column->value[i], delta;

            count++;
            delta = v - (mean + mean_c);
            kahan_add(delta / count, &mean, &mean_c);
            kahan_add(delta * (v - (mean + mean_c)), &squares, &squares_c);
        }
    }
    return (squares + squares_c) / count;
}

static bool window_stdvar(struct range_run *run, const struct window *w, double *out)
{
    *out = window_variance(run, w);
    return true;
}

static bool window_stddev(struct range_run *run, const struct window *w, double *out)
{
    *out = sqrt(window_variance(run, w));
    return true;
}

/* Sliding extremum: a queue of indexes whose values get worse from front to back, so that the front
 * is the window's best and, among equals, its first. NaN never enters: a window of nothing else
 * gives its last NaN. */
static bool extremum(struct range_run *run, const struct window *w, bool is_max, double *out)
{
    const double *value = w->column->value;

    if (run->scanned < w->first) {
        run->scanned = w->first;
        run->queue_first = run->queue_end = 0;
    }
    for (size_t end; (end = scan_piece(run, run->scanned, w->end)) > run->scanned;) {
        for (; run->scanned < end; run->scanned++) {
            double v = value[run->scanned];

            if (isnan(v))
                continue;
            while (run->queue_end > run->queue_first) {
                double back = value[run->queue[run->queue_end - 1]];

                if (is_max ? v <= back : v >= back)
                    break;
                run->queue_end--;
            }
            run->queue[run->queue_end++] = (uint32_t)run->scanned;
        }
    }
    while (run->queue_first < run->queue_end && run->queue[run->queue_first] < w->first)
        run->queue_first++;
    *out =
        run->queue_first < run->queue_end ? value[run->queue[run->queue_first]] : value[w->end - 1];
    return true;
}

static bool window_max(struct range_run *run, const struct window *w, double *out)
{
    return extremum(run, w, true, out);
}

static bool window_min(struct range_run *run, const struct window *w, double *out)
{
    return extremum(run, w, false, out);
}

/* --- quantiles --- */

static int double_compare(const void *a, const void *b, void *context)
{
    double x = *(const double *)a, y = *(const double *)b;

    (void)context; /* values need none */
    if (isnan(x) || isnan(y))
        return (int)isnan(y) - (int)isnan(x) == 0 ? 0 : isnan(x) ? -1 : 1;
    return (x > y) - (x < y);
}

enum err quantile_of(struct eval *ev, double q, double *values, size_t count, double *out,
                     struct errinfo *ei)
{
    double rank, lower, upper, weight;
    enum err e;

    *out = isnan(q) ? NAN : q < 0 ? -INFINITY : INFINITY;
    if (count == 0)
        *out = NAN;
    if (count == 0 || !(q >= 0 && q <= 1))
        return ERR_OK;
    e = eval_sort_items(ev, values, count, sizeof *values, double_compare, NULL, ei);
    if (e != ERR_OK)
        return e;
    rank = q * ((double)count - 1);
    lower = fmax(0, floor(rank));
    upper = fmin((double)count - 1, lower + 1);
    weight = rank - floor(rank);
    *out = values[(size_t)lower] * (1 - weight) + values[(size_t)upper] * weight;
    return ERR_OK;
}

/* The window's values into the scratch. True: one of them is NaN. */
static bool values_copy(struct range_run *run, const struct window *w)
{
    const double *value = w->column->value + w->first;
    bool any_nan = false;

    for (size_t i = 0, end; (end = scan_piece(run, i, w->end - w->first)) > i;) {
        for (; i < end; i++) {
            run->values[i] = value[i];
            any_nan = any_nan || isnan(value[i]);
        }
    }
    return any_nan;
}

static double values_quantile(struct range_run *run, double q, size_t count)
{
    double quantile = NAN;

    if (run->failed == ERR_OK)
        run->failed = quantile_of(run->ev, q, run->values, count, &quantile, run->ei);
    return quantile;
}

static bool window_quantile(struct range_run *run, const struct window *w, double *out)
{
    (void)values_copy(run, w); /* NaN is a value here, the smallest */
    *out = values_quantile(run, w->scalar, w->end - w->first);
    return true;
}

static bool window_mad(struct range_run *run, const struct window *w, double *out)
{
    size_t n = w->end - w->first;
    double median;

    *out = NAN;
    if (values_copy(run, w))
        return true;
    median = values_quantile(run, 0.5, n);
    for (size_t i = 0, end; (end = scan_piece(run, i, n)) > i;) {
        for (; i < end; i++)
            run->values[i] = fabs(run->values[i] - median);
    }
    *out = values_quantile(run, 0.5, n);
    return true;
}

/* --- linear regression --- */

/* Least squares over the window, time counted in seconds from `intercept_ms`. */
static void regression(struct range_run *run, const struct window *w, int64_t intercept_ms,
                       double *slope, double *intercept)
{
    const int64_t *t_ms = w->column->t_ms;
    const double *value = w->column->value;
    double n = (double)(w->end - w->first);
    double x_sum = 0, x_c = 0, y_sum = 0, y_c = 0, xy_sum = 0, xy_c = 0, xx_sum = 0, xx_c = 0;
    double covariance, variance;
    bool constant = true;

    for (size_t i = w->first, end; (end = scan_piece(run, i, w->end)) > i;) {
        for (; i < end; i++) {
            double x = (double)(t_ms[i] - intercept_ms) / 1e3, y = value[i];

            if (i > w->first && y != value[w->first])
                constant = false;
            kahan_add(x, &x_sum, &x_c);
            kahan_add(y, &y_sum, &y_c);
            kahan_add(x * y, &xy_sum, &xy_c);
            kahan_add(x * x, &xx_sum, &xx_c);
        }
    }
    if (constant) {
        *slope = isinf(value[w->first]) ? NAN : 0;
        *intercept = isinf(value[w->first]) ? NAN : value[w->first];
        return;
    }
    x_sum += x_c;
    y_sum += y_c;
    xy_sum += xy_c;
    xx_sum += xx_c;
    covariance = xy_sum - x_sum * y_sum / n;
    variance = xx_sum - x_sum * x_sum / n;
    *slope = covariance / variance;
    *intercept = y_sum / n - *slope * x_sum / n;
}

static bool window_deriv(struct range_run *run, const struct window *w, double *out)
{
    double intercept;

    if (w->end - w->first < 2)
        return false;
    /* From the window's first sample, lest large timestamps eat the precision. */
    regression(run, w, w->column->t_ms[w->first], out, &intercept);
    return true;
}

static bool window_predict_linear(struct range_run *run, const struct window *w, double *out)
{
    double slope, intercept;

    if (w->end - w->first < 2)
        return false;
    regression(run, w, w->eval_ms, &slope, &intercept);
    *out = slope * w->scalar + intercept;
    return true;
}

static const struct range_function range_functions[FUNCTION_COUNT] = {
    [FUNCTION_ABSENT_OVER_TIME] = {.window = window_present},
    [FUNCTION_AVG_OVER_TIME] = {.window = window_avg},
    [FUNCTION_CHANGES] = {.prepare = prepare_changes, .window = window_marks},
    [FUNCTION_COUNT_OVER_TIME] = {.window = window_count},
    [FUNCTION_DELTA] = {.column = column_delta, .needs_rate = true},
    [FUNCTION_DERIV] = {.window = window_deriv},
    [FUNCTION_FIRST_OVER_TIME] = {.window = window_first},
    [FUNCTION_IDELTA] = {.window = window_idelta},
    [FUNCTION_INCREASE] = {.prepare = prepare_resets,
                           .column = column_increase,
                           .needs_rate = true},
    [FUNCTION_IRATE] = {.window = window_irate},
    [FUNCTION_LAST_OVER_TIME] = {.window = window_last},
    [FUNCTION_MAD_OVER_TIME] = {.window = window_mad, .needs_values = true},
    [FUNCTION_MAX_OVER_TIME] = {.window = window_max},
    [FUNCTION_MIN_OVER_TIME] = {.window = window_min},
    [FUNCTION_PREDICT_LINEAR] = {.window = window_predict_linear},
    [FUNCTION_PRESENT_OVER_TIME] = {.window = window_present},
    [FUNCTION_QUANTILE_OVER_TIME] = {.window = window_quantile, .needs_values = true},
    [FUNCTION_RATE] = {.prepare = prepare_resets, .column = column_rate, .needs_rate = true},
    [FUNCTION_RESETS] = {.prepare = prepare_resets, .window = window_marks},
    [FUNCTION_STDDEV_OVER_TIME] = {.window = window_stddev},
    [FUNCTION_STDVAR_OVER_TIME] = {.window = window_stdvar},
    [FUNCTION_SUM_OVER_TIME] = {.window = window_sum},
};

const struct range_function *range_function_find(enum function_id id)
{
    const struct range_function *f = &range_functions[id];

    return f->window == NULL && f->column == NULL ? NULL : f;
}
