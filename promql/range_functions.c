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
    for (size_t i = 1; i < c->count; i++) {
        if (c->value[i] < c->value[i - 1])
            run->marks[run->mark_count++] = (uint32_t)i;
    }
}

static void prepare_changes(struct range_run *run, const struct column *c)
{
    for (size_t i = 1; i < c->count; i++) {
        double a = c->value[i - 1], b = c->value[i];

        if (a != b && !(isnan(a) && isnan(b)))
            run->marks[run->mark_count++] = (uint32_t)i;
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

/* How far the increase between first and last sample is stretched towards the window's borders. */
static double extrapolation_factor(const struct window *w, double increase, bool is_counter)
{
    const struct column *c = w->column;
    int64_t first_ms = c->t_ms[w->first], last_ms = c->t_ms[w->end - 1];
    double to_start = (double)(first_ms - w->start_ms) / 1000;
    double to_end = (double)(w->end_ms - last_ms) / 1000;
    double sampled = (double)(last_ms - first_ms) / 1000;
    double average = sampled / (double)(w->end - w->first - 1);
    double threshold = average * 1.1;

    if (to_start >= threshold)
        to_start = average / 2;
    if (is_counter) {
        double to_zero = to_start;

        /* A counter was not below zero: its line is not followed further back than that. */
        if (increase > 0 && c->value[w->first] >= 0)
            to_zero = sampled * (c->value[w->first] / increase);
        if (to_zero < to_start)
            to_start = to_zero;
    }
    if (to_end >= threshold)
        to_end = average / 2;
    return (sampled + to_start + to_end) / sampled;
}

static bool extrapolated(struct range_run *run, const struct window *w, bool is_counter,
                         bool is_rate, double *out)
{
    const struct column *c = w->column;
    double increase, factor;

    if (w->end - w->first < 2) {
        if (is_counter)
            marks_slide(run, w);
        return false;
    }
    increase = c->value[w->end - 1] - c->value[w->first];
    if (is_counter) {
        marks_slide(run, w);
        for (size_t i = run->mark_first; i < run->mark_end; i++)
            increase += c->value[run->marks[i] - 1];
    }
    factor = extrapolation_factor(w, increase, is_counter);
    if (is_rate)
        factor /= run->range_seconds;
    *out = increase * factor;
    return true;
}

static bool window_rate(struct range_run *run, const struct window *w, double *out)
{
    return extrapolated(run, w, true, true, out);
}

static bool window_increase(struct range_run *run, const struct window *w, double *out)
{
    return extrapolated(run, w, true, false, out);
}

static bool window_delta(struct range_run *run, const struct window *w, double *out)
{
    return extrapolated(run, w, false, false, out);
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

    (void)run; /* sums are not updated step by step: that would round otherwise */
    for (size_t i = w->first; i < w->end; i++)
        kahan_add(w->column->value[i], &sum, &compensation);
    *out = isinf(sum) ? sum : sum + compensation;
    return true;
}

/* The mean of the sum while it is finite; from its overflow on an incremental mean. */
static bool window_avg(struct range_run *run, const struct window *w, double *out)
{
    const double *value = w->column->value + w->first;
    size_t n = w->end - w->first;
    double sum = value[0], mean = 0, compensation = 0, count = 1;
    bool incremental = false;

    (void)run; /* as for sums */
    for (size_t i = 1; i < n; i++) {
        double new_sum = sum, new_compensation = compensation, q;

        count = (double)(i + 1);
        if (!incremental) {
            kahan_add(value[i], &new_sum, &new_compensation);
            if (!isinf(new_sum)) {
                sum = new_sum;
                compensation = new_compensation;
                continue;
            }
            incremental = true;
            mean = sum / (count - 1);
            compensation /= count - 1;
        }
        q = (count - 1) / count;
        mean *= q;
        compensation *= q;
        kahan_add(value[i] / count, &mean, &compensation);
    }
    *out = incremental ? mean + compensation : sum / count + compensation / count;
    return true;
}

/* Welford's method with compensated mean and sum of squares. */
static double window_variance(const struct window *w)
{
    double count = 0, mean = 0, mean_c = 0, squares = 0, squares_c = 0;

    for (size_t i = w->first; i < w->end; i++) {
        double v = w->column->value[i], delta;

        count++;
        delta = v - (mean + mean_c);
        kahan_add(delta / count, &mean, &mean_c);
        kahan_add(delta * (v - (mean + mean_c)), &squares, &squares_c);
    }
    return (squares + squares_c) / count;
}

static bool window_stdvar(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* as for sums */
    *out = window_variance(w);
    return true;
}

static bool window_stddev(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* as for sums */
    *out = sqrt(window_variance(w));
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
    for (; run->scanned < w->end; run->scanned++) {
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

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    if (isnan(x) || isnan(y))
        return (int)isnan(y) - (int)isnan(x) == 0 ? 0 : isnan(x) ? -1 : 1;
    return (x > y) - (x < y);
}

double quantile_of(double q, double *values, size_t count)
{
    double rank, lower, upper, weight;

    if (count == 0 || isnan(q))
        return NAN;
    if (q < 0)
        return -INFINITY;
    if (q > 1)
        return INFINITY;
    qsort(values, count, sizeof *values, double_compare);
    rank = q * ((double)count - 1);
    lower = fmax(0, floor(rank));
    upper = fmin((double)count - 1, lower + 1);
    weight = rank - floor(rank);
    return values[(size_t)lower] * (1 - weight) + values[(size_t)upper] * weight;
}

static bool window_quantile(struct range_run *run, const struct window *w, double *out)
{
    size_t n = w->end - w->first;

    memcpy(run->values, w->column->value + w->first, n * sizeof *run->values);
    *out = quantile_of(w->scalar, run->values, n);
    return true;
}

static bool window_mad(struct range_run *run, const struct window *w, double *out)
{
    size_t n = w->end - w->first;
    double median;

    memcpy(run->values, w->column->value + w->first, n * sizeof *run->values);
    for (size_t i = 0; i < n; i++) {
        if (isnan(run->values[i])) {
            *out = NAN;
            return true;
        }
    }
    median = quantile_of(0.5, run->values, n);
    for (size_t i = 0; i < n; i++)
        run->values[i] = fabs(run->values[i] - median);
    *out = quantile_of(0.5, run->values, n);
    return true;
}

/* --- linear regression --- */

/* Least squares over the window, time counted in seconds from `intercept_ms`. */
static void regression(const struct window *w, int64_t intercept_ms, double *slope,
                       double *intercept)
{
    const int64_t *t_ms = w->column->t_ms;
    const double *value = w->column->value;
    double n = (double)(w->end - w->first);
    double x_sum = 0, x_c = 0, y_sum = 0, y_c = 0, xy_sum = 0, xy_c = 0, xx_sum = 0, xx_c = 0;
    double covariance, variance;
    bool constant = true;

    for (size_t i = w->first; i < w->end; i++) {
        double x = (double)(t_ms[i] - intercept_ms) / 1e3, y = value[i];

        if (i > w->first && y != value[w->first])
            constant = false;
        kahan_add(x, &x_sum, &x_c);
        kahan_add(y, &y_sum, &y_c);
        kahan_add(x * y, &xy_sum, &xy_c);
        kahan_add(x * x, &xx_sum, &xx_c);
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

    (void)run; /* as for sums */
    if (w->end - w->first < 2)
        return false;
    /* From the window's first sample, lest large timestamps eat the precision. */
    regression(w, w->column->t_ms[w->first], out, &intercept);
    return true;
}

static bool window_predict_linear(struct range_run *run, const struct window *w, double *out)
{
    double slope, intercept;

    (void)run; /* as for sums */
    if (w->end - w->first < 2)
        return false;
    regression(w, w->eval_ms, &slope, &intercept);
    *out = slope * w->scalar + intercept;
    return true;
}

static const struct range_function range_functions[FUNCTION_COUNT] = {
    [FUNCTION_ABSENT_OVER_TIME] = {NULL, window_present, false},
    [FUNCTION_AVG_OVER_TIME] = {NULL, window_avg, false},
    [FUNCTION_CHANGES] = {prepare_changes, window_marks, false},
    [FUNCTION_COUNT_OVER_TIME] = {NULL, window_count, false},
    [FUNCTION_DELTA] = {NULL, window_delta, false},
    [FUNCTION_DERIV] = {NULL, window_deriv, false},
    [FUNCTION_FIRST_OVER_TIME] = {NULL, window_first, false},
    [FUNCTION_IDELTA] = {NULL, window_idelta, false},
    [FUNCTION_INCREASE] = {prepare_resets, window_increase, false},
    [FUNCTION_IRATE] = {NULL, window_irate, false},
    [FUNCTION_LAST_OVER_TIME] = {NULL, window_last, false},
    [FUNCTION_MAD_OVER_TIME] = {NULL, window_mad, true},
    [FUNCTION_MAX_OVER_TIME] = {NULL, window_max, false},
    [FUNCTION_MIN_OVER_TIME] = {NULL, window_min, false},
    [FUNCTION_PREDICT_LINEAR] = {NULL, window_predict_linear, false},
    [FUNCTION_PRESENT_OVER_TIME] = {NULL, window_present, false},
    [FUNCTION_QUANTILE_OVER_TIME] = {NULL, window_quantile, true},
    [FUNCTION_RATE] = {prepare_resets, window_rate, false},
    [FUNCTION_RESETS] = {prepare_resets, window_marks, false},
    [FUNCTION_STDDEV_OVER_TIME] = {NULL, window_stddev, false},
    [FUNCTION_STDVAR_OVER_TIME] = {NULL, window_stdvar, false},
    [FUNCTION_SUM_OVER_TIME] = {NULL, window_sum, false},
};

const struct range_function *range_function_find(enum function_id id)
{
    return range_functions[id].window == NULL ? NULL : &range_functions[id];
}
