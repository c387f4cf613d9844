/*
 * The range functions on floats. See eval_range_internal.h. Formulas and their order of operations
 * follow Prometheus 3, since answers are compared bit by bit where they can be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_text.h"
#include "engine/write.h"
#include "promql/eval/eval_range_internal.h"
#include "promql/eval/pairs_internal.h"

/* --- counters: rate, increase, delta, irate, idelta, resets, changes --- */

/* Whether each of `count` values, an even number, is at least the one before it. */
static bool all_rise(const double *value, size_t count)
{
    pair_mask rise = {-1, -1};

    for (size_t k = 0; k < count; k += 2)
        rise &= pair_load(value + k) >= pair_load(value + k - 1);
    return (rise[0] & rise[1]) != 0;
}

static void prepare_resets_by_start(struct range_run *run, const struct column *c)
{
    run->is_rising = false;
    for (size_t i = 1, end; (end = scan_piece(run, i, c->count)) > i;) {
        for (; i < end; i++) {
            if (c->value[i] < c->value[i - 1] || start_is_reset(c, i))
                run->marks[run->mark_count++] = (uint32_t)i;
        }
    }
}

static void prepare_resets(struct range_run *run, const struct column *c)
{
    enum { BLOCK = 64 }; /* most have none */

    if (c->start_ms != NULL) {
        prepare_resets_by_start(run, c);
        return;
    }
    run->is_rising = true;
    for (size_t i = 1, end; (end = scan_piece(run, i, c->count)) > i;) {
        while (i < end) {
            size_t block_end = end - i < BLOCK ? end : i + BLOCK;

            if (block_end - i == BLOCK && all_rise(c->value + i, BLOCK)) {
                i = block_end;
                continue;
            }
            for (; i < block_end; i++) {
                run->is_rising = run->is_rising && c->value[i] >= c->value[i - 1];
                if (c->value[i] < c->value[i - 1])
                    run->marks[run->mark_count++] = (uint32_t)i;
            }
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

double rate_factor(const struct range_run *run, const struct rate_step *r, double first,
                   double increase)
{
    double to_zero, factor;

    if (!reaches_zero(r, first, increase, &to_zero))
        return r->factor;
    factor = (r->sampled + to_zero + r->to_end) / r->sampled;
    return run->plan->function->id == FUNCTION_RATE ? factor / run->range_seconds : factor;
}

static inline void extrapolate_step(struct range_run *run, const struct column *c, struct row *row,
                                    size_t k, bool is_counter, bool is_rate)
{
    const struct rate_step *r = &run->windows.rate[k];
    struct span span = run->windows.spans[k];
    double increase, factor = r->factor, to_zero;

    if (span.end - span.first < 2)
        return;
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

/* Whether no step from `step` on reaches_zero(): that of the lowest value, the shortest window and
 * the longest way does not. */
static bool stays_from_zero(const struct range_run *run, const struct column *c, size_t step)
{
    const struct rate_column *rc = &run->windows.rates;
    double lowest = c->value[rc->first[step]];

    return run->is_rising && lowest >= 0 &&
           lowest * rc->sampled_least > rc->reach_most * (c->value[c->count - 1] - lowest);
}

/* The steps [begin, end) of a word without a look at zero. */
static void extrapolate_far(const struct range_run *run, const struct column *c, struct row *row,
                            size_t begin, size_t end)
{
    const struct rate_column *rc = &run->windows.rates;
    double *restrict out = row->value;

    for (size_t k = begin; k < end; k++)
        out[k] = (c->value[rc->last[k]] - c->value[rc->first[k]]) * rc->factor[k];
    row->present[begin / 64] = rc->present[begin / 64];
}

/* Likewise, two by two without a branch; those near zero are told, as bits, and to be done again.
 */
static uint64_t extrapolate_near(const struct range_run *run, const struct column *c,
                                 struct row *row, size_t begin, size_t end)
{
    const struct rate_column *rc = &run->windows.rates;
    double *restrict out = row->value;
    uint64_t near = 0;
    size_t k = begin;

    for (; k + 2 <= end; k += 2) {
        pair from = {c->value[rc->first[k]], c->value[rc->first[k + 1]]};
        pair to = {c->value[rc->last[k]], c->value[rc->last[k + 1]]};
        pair increase = to - from;
        pair_mask is_near =
            (increase > 0) & (from >= 0) &
            (from * pair_load(rc->sampled + k) <= pair_load(rc->reach + k) * increase);

        pair_store(out + k, increase * pair_load(rc->factor + k));
        near |= (uint64_t)((is_near[0] & 1) | (is_near[1] & 2)) << (k - begin);
    }
    row->present[begin / 64] = rc->present[begin / 64];
    if (k < end) /* the last one alone: by the long way */
        near |= (rc->present[begin / 64] >> (k - begin) & 1) << (k - begin);
    return near;
}

static inline void extrapolated(struct range_run *run, const struct column *c, struct row *row,
                                bool is_counter, bool is_rate)
{
    bool plain = c->count >= 2 && (!is_counter || run->mark_count == 0);

    for (size_t k = 0, end; (end = scan_piece(run, k, run->plan->grid.count)) > k;) {
        while (k < end) {
            size_t word_end = end - k < 64 ? end : k + 64;

            if (plain && (!is_counter || stays_from_zero(run, c, k))) {
                extrapolate_far(run, c, row, k, word_end);
                k = word_end;
            } else if (plain) {
                for (uint64_t near = extrapolate_near(run, c, row, k, word_end); near != 0;
                     near &= near - 1)
                    extrapolate_step(run, c, row, k + (size_t)__builtin_ctzll(near), is_counter,
                                     is_rate);
                k = word_end;
            }
            for (; k < word_end; k++)
                extrapolate_step(run, c, row, k, is_counter, is_rate);
        }
    }
}

static void column_rate(struct range_run *run, const struct column *c, struct row *row)
{
    if (c->start_ms != NULL)
        starts_extrapolate(run, c, row);
    else
        extrapolated(run, c, row, true, true);
}

static void column_increase(struct range_run *run, const struct column *c, struct row *row)
{
    if (c->start_ms != NULL)
        starts_extrapolate(run, c, row);
    else
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
    *out = is_rate && (last < before || start_is_reset(c, w->end - 1)) ? last : last - before;
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

/* Nothing once the series has ended. */
static bool window_default_rollup(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    *out = w->column->value[w->end - 1];
    return double_bits(*out) != STALE_NAN_BITS;
}

static bool window_ts_of_first(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    *out = (double)w->column->t_ms[w->first] / 1000;
    return true;
}

static bool window_ts_of_last(struct range_run *run, const struct window *w, double *out)
{
    (void)run; /* no state */
    *out = (double)w->column->t_ms[w->end - 1] / 1000;
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
 * is the window's best and, among equals, its first, or its last where `last` is set. NaN never
 * enters: a window of nothing else gives its last NaN. Returns the index. */
static size_t extremum(struct range_run *run, const struct window *w, bool is_max, bool last)
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

                if (v == back ? !last : is_max == (v < back))
                    break;
                run->queue_end--;
            }
            run->queue[run->queue_end++] = (uint32_t)run->scanned;
        }
    }
    while (run->queue_first < run->queue_end && run->queue[run->queue_first] < w->first)
        run->queue_first++;
    return run->queue_first < run->queue_end ? run->queue[run->queue_first] : w->end - 1;
}

static void prepare_extremum(struct range_run *run, const struct column *c)
{
    bool has_nan = false;

    for (size_t i = 0, end; (end = scan_piece(run, i, c->count)) > i;) {
        for (; i < end; i++)
            has_nan |= isnan(c->value[i]);
    }
    run->has_nan = has_nan;
}

/* The better of two numbers, of equals the first. */
static inline double better(double a, double b, bool is_max)
{
    if (is_max)
        return b > a ? b : a;
    return b < a ? b : a;
}

/*
 * Sliding extremum of numbers, as a queue of two stacks: each sample up to `turned` has the
 * extremum from it to there, those behind have one of all. A window that has left the former behind
 * turns what it has. So a sample is touched twice, without a branch that depends on its value; the
 * queue of candidates above mispredicts at every other one.
 */
static inline double extremum_of_numbers(struct range_run *run, const struct window *w, bool is_max)
{
    const double *value = w->column->value;
    double best;

    if (w->first >= run->turned) {
        size_t count = w->end - w->first;

        best = value[w->end - 1];
        for (size_t i = 0, end; (end = scan_piece(run, i, count)) > i;) {
            for (; i < end; i++) {
                best = better(value[w->end - 1 - i], best, is_max);
                run->values[w->end - 1 - i] = best;
            }
        }
        run->turned = run->scanned = w->end;
        return best;
    }
    if (run->scanned == w->end && run->scanned == run->turned)
        return run->values[w->first];
    best = run->scanned == run->turned ? value[run->scanned] : run->newer;
    for (size_t end; (end = scan_piece(run, run->scanned, w->end)) > run->scanned;) {
        for (; run->scanned < end; run->scanned++)
            best = better(best, value[run->scanned], is_max);
    }
    run->newer = best;
    return better(run->values[w->first], best, is_max);
}

static inline double extremum_value(struct range_run *run, const struct window *w, bool is_max)
{
    return UNLIKELY(run->has_nan) ? w->column->value[extremum(run, w, is_max, false)]
                                  : extremum_of_numbers(run, w, is_max);
}

static bool window_max(struct range_run *run, const struct window *w, double *out)
{
    *out = extremum_value(run, w, true);
    return true;
}

static bool window_min(struct range_run *run, const struct window *w, double *out)
{
    *out = extremum_value(run, w, false);
    return true;
}

static bool window_ts_of_max(struct range_run *run, const struct window *w, double *out)
{
    *out = (double)w->column->t_ms[extremum(run, w, true, true)] / 1000;
    return true;
}

static bool window_ts_of_min(struct range_run *run, const struct window *w, double *out)
{
    *out = (double)w->column->t_ms[extremum(run, w, false, true)] / 1000;
    return true;
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

/* --- smoothing --- */

/* A factor must lie between 0 and 1; NaN passes, as in Prometheus. */
static bool factor_check(struct range_run *run, double factor, const char *name)
{
    char text[FLOAT_TEXT_SIZE];

    if (!(factor <= 0) && !(factor >= 1))
        return true;
    if (isinf(factor))
        (void)snprintf(text, sizeof text, "%s", factor > 0 ? "+Inf" : "-Inf");
    else
        (void)snprintf(text, sizeof text, "%f", factor);
    if (run->failed == ERR_OK)
        run->failed =
            errinfo_set(run->ei, ERR_EXECUTION, 0,
                        "invalid %s factor. Expected: 0 < %cf < 1, got: %s", name, name[0], text);
    return false;
}

bool smoothing_factors_check(struct range_run *run, double smoothing, double trend)
{
    return factor_check(run, smoothing, "smoothing") && factor_check(run, trend, "trend");
}

/* Holt's linear method: `scalar` smooths the level, `scalar2` the trend. */
static bool window_double_smoothing(struct range_run *run, const struct window *w, double *out)
{
    const double *value = w->column->value;
    double before = 0, level, trend;

    if (!smoothing_factors_check(run, w->scalar, w->scalar2) || w->end - w->first < 2)
        return false;
    level = value[w->first];
    trend = value[w->first + 1] - level;
    for (size_t i = w->first + 1, end; (end = scan_piece(run, i, w->end)) > i;) {
        for (; i < end; i++) {
            double scaled = w->scalar * value[i], rest;

            if (i > w->first + 1)
                trend = w->scalar2 * (level - before) + (1 - w->scalar2) * trend;
            rest = (1 - w->scalar) * (level + trend);
            before = level;
            level = scaled + rest;
        }
    }
    *out = level;
    return true;
}

static const struct range_function range_functions[FUNCTION_COUNT] = {
    [FUNCTION_ABSENT_OVER_TIME] = {.window = window_present},
    [FUNCTION_AVG_OVER_TIME] = {.window = window_avg},
    [FUNCTION_CHANGES] = {.prepare = prepare_changes, .window = window_marks},
    [FUNCTION_COUNT_OVER_TIME] = {.window = window_count},
    [FUNCTION_DEFAULT_ROLLUP] = {.window = window_default_rollup, .wants_stale = true},
    [FUNCTION_DELTA] = {.column = column_delta, .needs_rate = true},
    [FUNCTION_DERIV] = {.window = window_deriv},
    [FUNCTION_DOUBLE_EXPONENTIAL_SMOOTHING] = {.window = window_double_smoothing},
    [FUNCTION_FIRST_OVER_TIME] = {.window = window_first},
    [FUNCTION_IDELTA] = {.window = window_idelta},
    [FUNCTION_INCREASE] = {.prepare = prepare_resets,
                           .column = column_increase,
                           .needs_rate = true},
    [FUNCTION_IRATE] = {.window = window_irate},
    [FUNCTION_LAST_OVER_TIME] = {.window = window_last},
    [FUNCTION_MAD_OVER_TIME] = {.window = window_mad, .needs_values = true},
    [FUNCTION_MAX_OVER_TIME] = {.prepare = prepare_extremum,
                                .window = window_max,
                                .needs_values = true},
    [FUNCTION_MIN_OVER_TIME] = {.prepare = prepare_extremum,
                                .window = window_min,
                                .needs_values = true},
    [FUNCTION_PREDICT_LINEAR] = {.window = window_predict_linear},
    [FUNCTION_PRESENT_OVER_TIME] = {.window = window_present},
    [FUNCTION_QUANTILE_OVER_TIME] = {.window = window_quantile, .needs_values = true},
    [FUNCTION_RATE] = {.prepare = prepare_resets, .column = column_rate, .needs_rate = true},
    [FUNCTION_RESETS] = {.prepare = prepare_resets, .window = window_marks},
    [FUNCTION_STDDEV_OVER_TIME] = {.window = window_stddev},
    [FUNCTION_STDVAR_OVER_TIME] = {.window = window_stdvar},
    [FUNCTION_SUM_OVER_TIME] = {.window = window_sum},
    [FUNCTION_TS_OF_FIRST_OVER_TIME] = {.window = window_ts_of_first},
    [FUNCTION_TS_OF_LAST_OVER_TIME] = {.window = window_ts_of_last},
    [FUNCTION_TS_OF_MAX_OVER_TIME] = {.window = window_ts_of_max},
    [FUNCTION_TS_OF_MIN_OVER_TIME] = {.window = window_ts_of_min},
};

const struct range_function *range_function_find(enum function_id id)
{
    const struct range_function *f = &range_functions[id];

    return f->window == NULL && f->column == NULL ? NULL : f;
}
