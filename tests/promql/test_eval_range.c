/*
 * Range functions against slow twins that scan every window from scratch, on random columns with
 * gaps, resets, NaN, infinities and staleness markers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/write.h"
#include "promql/eval/eval_range_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { SAMPLES_MAX = 200, LOOKBACK_MS = 120000 };

struct series {
    int64_t t_ms[SAMPLES_MAX];
    double value[SAMPLES_MAX];
    size_t count;
};

struct twin_window {
    int64_t start_ms, end_ms, eval_ms;
    double scalar;
};

static double random_value(struct test_random *r, bool plain)
{
    switch (plain ? 99 : test_random_below(r, 24)) {
    case 0:
        return NAN;
    case 1:
        return INFINITY;
    case 2:
        return -INFINITY;
    case 3:
        return -0.0;
    case 4:
        return 0;
    case 5:
        return double_from_bits(STALE_NAN_BITS);
    case 6:
        return 1.7e308;
    default:
        return (double)test_random_below(r, 40) * 0.1 - 1;
    }
}

static void series_make(struct test_random *r, struct series *s, bool plain)
{
    int64_t t = (int64_t)test_random_below(r, 100000);
    uint64_t kind = test_random_below(r, 3); /* values, counters with resets, without */
    double start = (double)test_random_below(r, 3) * 1000;

    s->count = (size_t)test_random_below(r, SAMPLES_MAX + 1);
    for (size_t i = 0; i < s->count; i++) {
        t += 1 + (int64_t)test_random_below(r, test_random_below(r, 10) == 0 ? 100000 : 20000);
        s->t_ms[i] = t;
        s->value[i] = random_value(r, plain);
        if (kind == 1 && i > 0 && test_random_below(r, 8) != 0 && isfinite(s->value[i - 1]))
            s->value[i] = s->value[i - 1] + (double)test_random_below(r, 5);
        if (kind != 2)
            continue;
        if (i == 0 || (!plain && test_random_below(r, 400) == 0))
            s->value[i] = i == 0 ? start : (double)NAN; /* a NaN hides that it falls */
        else
            s->value[i] = isnan(s->value[i - 1])
                              ? start / 2
                              : s->value[i - 1] + (double)test_random_below(r, 5);
    }
}

/* The samples of one window, copied out. */
static size_t window_copy(const struct series *s, int64_t start_ms, int64_t end_ms, int64_t *t_ms,
                          double *value)
{
    size_t n = 0;

    for (size_t i = 0; i < s->count; i++) {
        if (s->t_ms[i] <= start_ms || s->t_ms[i] > end_ms ||
            double_bits(s->value[i]) == STALE_NAN_BITS)
            continue;
        t_ms[n] = s->t_ms[i];
        value[n++] = s->value[i];
    }
    return n;
}

static bool twin_rate(const int64_t *t, const double *v, size_t n, int64_t start_ms, int64_t end_ms,
                      bool counter, bool rate, double *out)
{
    double result, to_start, to_end, sampled, average, factor;

    if (n < 2)
        return false;
    result = v[n - 1] - v[0];
    for (size_t i = 1; counter && i < n; i++) {
        if (v[i] < v[i - 1])
            result += v[i - 1];
    }
    to_start = (double)(t[0] - start_ms) / 1000;
    to_end = (double)(end_ms - t[n - 1]) / 1000;
    sampled = (double)(t[n - 1] - t[0]) / 1000;
    average = sampled / (double)(n - 1);
    if (to_start >= average * 1.1)
        to_start = average / 2;
    if (counter && result > 0 && v[0] >= 0 && sampled * (v[0] / result) < to_start)
        to_start = sampled * (v[0] / result);
    if (to_end >= average * 1.1)
        to_end = average / 2;
    factor = (sampled + to_start + to_end) / sampled;
    if (rate)
        factor /= (double)(end_ms - start_ms) / 1000;
    *out = result * factor;
    return true;
}

static double twin_extremum(const double *v, size_t n, bool max)
{
    double best = v[0];

    for (size_t i = 0; i < n; i++) {
        if (isnan(best) || (max ? v[i] > best : v[i] < best))
            best = v[i];
    }
    return best;
}

/* The time of the extremum, the last of equal ones, in seconds. */
static double twin_extremum_time(const int64_t *t, const double *v, size_t n, bool max)
{
    size_t best = 0;

    for (size_t i = 0; i < n; i++) {
        if (isnan(v[best]) || (max ? v[i] >= v[best] : v[i] <= v[best]))
            best = i;
    }
    return (double)t[best] / 1000;
}

/* Level and trend from the definition, the trend a step behind. */
static double twin_smoothing(const double *v, size_t n, double smoothing, double trending)
{
    double level = v[0], trend = v[1] - v[0], before = level;

    for (size_t i = 1; i < n; i++) {
        if (i >= 2)
            trend = trending * (level - before) + (1 - trending) * trend;
        before = level;
        level = smoothing * v[i] + (1 - smoothing) * (level + trend);
    }
    return level;
}

static double twin_count(const double *v, size_t n, bool resets)
{
    size_t count = 0;

    for (size_t i = 1; i < n; i++) {
        if (resets)
            count += v[i] < v[i - 1];
        else
            count += v[i] != v[i - 1] && !(isnan(v[i]) && isnan(v[i - 1]));
    }
    return (double)count;
}

static double twin_instant(const int64_t *t, const double *v, size_t n, bool rate)
{
    double difference = v[n - 1] - v[n - 2];

    if (rate && v[n - 1] < v[n - 2])
        difference = v[n - 1];
    return rate ? difference / ((double)(t[n - 1] - t[n - 2]) / 1000) : difference;
}

/* Plain sums in long double: the compensated ones must come close on finite input. */
static double twin_moment(const double *v, size_t n, enum function_id id)
{
    long double sum = 0, squares = 0, mean;

    for (size_t i = 0; i < n; i++)
        sum += (long double)v[i];
    mean = sum / (long double)n;
    for (size_t i = 0; i < n; i++)
        squares += ((long double)v[i] - mean) * ((long double)v[i] - mean);
    switch (id) {
    case FUNCTION_SUM_OVER_TIME:
        return (double)sum;
    case FUNCTION_AVG_OVER_TIME:
        return (double)mean;
    case FUNCTION_STDVAR_OVER_TIME:
        return (double)(squares / (long double)n);
    default:
        return (double)sqrtl(squares / (long double)n);
    }
}

static double twin_slope(const int64_t *t, const double *v, size_t n, int64_t at_ms,
                         double *intercept)
{
    long double sx = 0, sy = 0, sxy = 0, sxx = 0, slope;

    for (size_t i = 0; i < n; i++) {
        long double x = (long double)(t[i] - t[0]) / 1000;

        sx += x;
        sy += (long double)v[i];
        sxy += x * (long double)v[i];
        sxx += x * x;
    }
    slope = (sxy - sx * sy / (long double)n) / (sxx - sx * sx / (long double)n);
    *intercept =
        (double)((sy - slope * sx) / (long double)n + slope * (long double)(at_ms - t[0]) / 1000);
    return (double)slope;
}

static int double_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double twin_quantile(const double *v, size_t n, double q)
{
    double sorted[SAMPLES_MAX], rank = q * (double)(n - 1);
    size_t low = (size_t)rank, high = low + 1 < n ? low + 1 : n - 1;

    memcpy(sorted, v, n * sizeof *v);
    qsort(sorted, n, sizeof *sorted, double_order);
    return sorted[low] + (sorted[high] - sorted[low]) * (rank - (double)low);
}

static double twin_mad(const double *v, size_t n)
{
    double distance[SAMPLES_MAX], median = twin_quantile(v, n, 0.5);

    for (size_t i = 0; i < n; i++)
        distance[i] = fabs(v[i] - median);
    return twin_quantile(distance, n, 0.5);
}

/* The value of the line through two samples; a counter's fall begins at 0. */
static double twin_line(const struct series *s, size_t i, int64_t t_ms, bool counter)
{
    double a = counter && s->value[i + 1] < s->value[i] ? 0 : s->value[i];

    return a + (s->value[i + 1] - a) * (double)(t_ms - s->t_ms[i]) /
                   (double)(s->t_ms[i + 1] - s->t_ms[i]);
}

/* Values at both borders and what lies strictly between them, then one pass for the resets. */
static bool twin_extended(const struct series *all, const struct twin_window *w, bool smoothed,
                          enum function_id id, double *out)
{
    bool counter = id != FUNCTION_DELTA;
    struct series s;
    size_t n = 0;
    double path[SAMPLES_MAX + 2], lost = 0;

    s.count = window_copy(all, w->start_ms - LOOKBACK_MS, w->end_ms + (smoothed ? LOOKBACK_MS : 0),
                          s.t_ms, s.value);
    if (s.count == 0 || s.t_ms[s.count - 1] <= w->start_ms)
        return false;
    for (size_t i = 0; i < s.count; i++) {
        bool has_next = i + 1 < s.count;

        if (s.t_ms[i] <= w->start_ms && s.t_ms[i + 1] <= w->start_ms)
            continue;
        if (n == 0 && s.t_ms[i] > w->end_ms)
            return false;
        if (n == 0 && smoothed && s.t_ms[i] < w->start_ms)
            path[n++] = twin_line(&s, i, w->start_ms, counter);
        else if (n == 0 || s.t_ms[i] < w->end_ms)
            path[n++] = s.value[i];
        if (s.t_ms[i] >= w->end_ms && !smoothed)
            path[n++] = s.value[i];
        if (smoothed && s.t_ms[i] == w->end_ms)
            path[n++] = s.value[i];
        if (smoothed && has_next && s.t_ms[i] < w->end_ms && s.t_ms[i + 1] > w->end_ms)
            path[n++] = twin_line(&s, i, w->end_ms, counter);
        if (s.t_ms[i] < w->end_ms && !has_next)
            path[n++] = s.value[i];
        if (s.t_ms[i] >= w->end_ms || (has_next && s.t_ms[i + 1] > w->end_ms && smoothed))
            break;
    }
    for (size_t i = 1; counter && i < n; i++)
        lost += path[i] < path[i - 1] ? path[i - 1] : 0;
    *out = path[n - 1] - path[0] + lost;
    if (id == FUNCTION_RATE)
        *out /= (double)(w->end_ms - w->start_ms) / 1000;
    return true;
}

/* changes() and resets() from the newest sample at or before the range on. */
static bool twin_anchored_count(const struct series *all, const struct twin_window *w, bool resets,
                                double *out)
{
    struct series s;
    size_t first = 0;

    s.count = window_copy(all, w->start_ms - LOOKBACK_MS, w->end_ms, s.t_ms, s.value);
    if (s.count == 0 || s.t_ms[s.count - 1] <= w->start_ms)
        return false;
    while (first + 1 < s.count && s.t_ms[first + 1] <= w->start_ms)
        first++;
    *out = twin_count(s.value + first, s.count - first, resets);
    return true;
}

/* ANY: the data is too ill-conditioned to compare, only presence counts. */
enum comparison { SAME_BITS, CLOSE, ROUGH, ANY };

static bool twin(enum function_id id, const int64_t *t, const double *v, size_t n,
                 const struct twin_window *w, double *out, enum comparison *how)
{
    double other;

    *how = SAME_BITS;
    switch (id) {
    case FUNCTION_RATE:
        return twin_rate(t, v, n, w->start_ms, w->end_ms, true, true, out);
    case FUNCTION_INCREASE:
        return twin_rate(t, v, n, w->start_ms, w->end_ms, true, false, out);
    case FUNCTION_DELTA:
        return twin_rate(t, v, n, w->start_ms, w->end_ms, false, false, out);
    case FUNCTION_IRATE:
    case FUNCTION_IDELTA:
        if (n >= 2)
            *out = twin_instant(t, v, n, id == FUNCTION_IRATE);
        return n >= 2;
    case FUNCTION_DERIV:
    case FUNCTION_PREDICT_LINEAR:
        if (n < 2)
            return false;
        *how = t[n - 1] - t[0] >= 10000 ? ROUGH : ANY;
        *out = twin_slope(t, v, n, w->eval_ms, &other);
        if (id == FUNCTION_PREDICT_LINEAR)
            *out = other + *out * w->scalar;
        return true;
    default:
        break;
    }
    if (n == 0)
        return false;
    switch (id) {
    case FUNCTION_COUNT_OVER_TIME:
        *out = (double)n;
        break;
    case FUNCTION_PRESENT_OVER_TIME:
    case FUNCTION_ABSENT_OVER_TIME:
        *out = 1;
        break;
    case FUNCTION_FIRST_OVER_TIME:
        *out = v[0];
        break;
    case FUNCTION_LAST_OVER_TIME:
        *out = v[n - 1];
        break;
    case FUNCTION_MAX_OVER_TIME:
    case FUNCTION_MIN_OVER_TIME:
        *out = twin_extremum(v, n, id == FUNCTION_MAX_OVER_TIME);
        break;
    case FUNCTION_TS_OF_FIRST_OVER_TIME:
    case FUNCTION_TS_OF_LAST_OVER_TIME:
        *out = (double)t[id == FUNCTION_TS_OF_FIRST_OVER_TIME ? 0 : n - 1] / 1000;
        break;
    case FUNCTION_TS_OF_MAX_OVER_TIME:
    case FUNCTION_TS_OF_MIN_OVER_TIME:
        *out = twin_extremum_time(t, v, n, id == FUNCTION_TS_OF_MAX_OVER_TIME);
        break;
    case FUNCTION_DOUBLE_EXPONENTIAL_SMOOTHING:
        if (n < 2)
            return false;
        *out = twin_smoothing(v, n, w->scalar, w->scalar);
        *how = CLOSE;
        break;
    case FUNCTION_RESETS:
    case FUNCTION_CHANGES:
        *out = twin_count(v, n, id == FUNCTION_RESETS);
        break;
    case FUNCTION_QUANTILE_OVER_TIME:
        *out = twin_quantile(v, n, w->scalar);
        *how = CLOSE;
        break;
    case FUNCTION_MAD_OVER_TIME:
        *out = twin_mad(v, n);
        *how = CLOSE;
        break;
    default:
        *out = twin_moment(v, n, id);
        *how = CLOSE;
        break;
    }
    return true;
}

static bool agrees(double got, double want, enum comparison how)
{
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    if (how == SAME_BITS)
        return double_bits(got) == double_bits(want);
    return how == ANY || fabs(got - want) <= (how == CLOSE ? 1e-9 : 1e-5) * (1 + fabs(want));
}

static void run_once(struct test_random *r, enum function_id id, enum range_extension extension,
                     bool plain)
{
    struct promql_function function = {.id = id};
    struct promql_settings settings = {0};
    struct promql_query query = {.settings = &settings};
    struct node call = {.kind = NODE_CALL};
    struct eval_counters counters = {0};
    struct eval ev = {
        .query = &query, .settings = &settings, .lookback_ms = LOOKBACK_MS, .counters = &counters};
    struct plan plan = {.node = &call, .function = &function, .extension = extension};
    struct range_run run = {.ev = &ev, .plan = &plan};
    struct series s;
    struct arena arena;
    struct column raw, c;
    struct row row;
    struct errinfo ei = {0};
    double *scalars;

    arena_init(&arena, NULL);
    arena_init(&run.arena, NULL);
    series_make(r, &s, plain);
    plan.range_ms = 1 + (int64_t)test_random_below(r, 300000);
    plan.shift.offset_ms = (int64_t)test_random_below(r, 100000) - 50000;
    plan.grid = (struct grid){0};
    plan.grid.start_ms = (int64_t)test_random_below(r, 200000);
    plan.grid.step_ms = 1 + (int64_t)test_random_below(r, 100000);
    plan.grid.count = 1 + (size_t)test_random_below(r, 150);
    if (test_random_below(r, 4) == 0) {
        plan.shift.at = AT_TIME;
        plan.shift.at_ms = (int64_t)test_random_below(r, 2000000);
    }
    run.function = range_function_find(id);
    if (extension != EXTENSION_NONE)
        CHECK_OK(range_function_extended(extension, &function, &run.function, &ei), &ei);
    CHECK(run.function != NULL);
    run.range_seconds = (double)plan.range_ms / 1000;
    scalars = ARENA_ARRAY(&arena, plan.grid.count, double);
    for (size_t k = 0; k < plan.grid.count; k++)
        scalars[k] = 0.001 + 0.998 * test_random_unit(r);
    run.scalars = run.scalars2 = scalars;
    raw = (struct column){.count = s.count, .t_ms = s.t_ms, .value = s.value};
    CHECK_OK(column_without_stale(&ev, &raw, &arena, &c, &ei), &ei);
    CHECK_OK(row_alloc(&ev, &row, &plan.grid, &arena, &ei), &ei);
    CHECK_OK(range_column_run(&run, &c, (struct str){NULL, 0}, &row, &ei), &ei);
    for (size_t k = 0; k < plan.grid.count; k++) {
        int64_t t_ms[SAMPLES_MAX];
        double value[SAMPLES_MAX], want = 0;
        struct twin_window w = {.scalar = scalars[k]};
        enum comparison how;
        size_t n;
        bool present;

        w.end_ms =
            (plan.shift.at == AT_TIME ? plan.shift.at_ms
                                      : plan.grid.start_ms + (int64_t)k * plan.grid.step_ms) -
            plan.shift.offset_ms;
        w.start_ms = w.end_ms - plan.range_ms;
        w.eval_ms = plan.grid.start_ms + (int64_t)k * plan.grid.step_ms;
        n = window_copy(&s, w.start_ms, w.end_ms, t_ms, value);
        if (extension == EXTENSION_NONE) {
            present = twin(id, t_ms, value, n, &w, &want, &how);
        } else if (id == FUNCTION_CHANGES || id == FUNCTION_RESETS) {
            how = SAME_BITS;
            present = twin_anchored_count(&s, &w, id == FUNCTION_RESETS, &want);
        } else {
            how = CLOSE;
            present = twin_extended(&s, &w, extension == EXTENSION_SMOOTHED, id, &want);
        }
        CHECK_MSG(row_has(&row, k) == present, "function %d seed %llu step %zu", (int)id,
                  (unsigned long long)r->seed, k);
        CHECK_MSG(!present || agrees(row.value[k], want, how),
                  "function %d seed %llu step %zu: got %.17g want %.17g", (int)id,
                  (unsigned long long)r->seed, k, row.value[k], want);
    }
    arena_done(&run.arena);
    arena_done(&arena);
}

/* Functions whose twin is exact take every value; the others only finite ones. */
static void test_twins(void **state)
{
    static const enum function_id exact[] = {
        FUNCTION_RATE,
        FUNCTION_INCREASE,
        FUNCTION_DELTA,
        FUNCTION_IRATE,
        FUNCTION_IDELTA,
        FUNCTION_COUNT_OVER_TIME,
        FUNCTION_FIRST_OVER_TIME,
        FUNCTION_LAST_OVER_TIME,
        FUNCTION_MAX_OVER_TIME,
        FUNCTION_MIN_OVER_TIME,
        FUNCTION_TS_OF_FIRST_OVER_TIME,
        FUNCTION_TS_OF_LAST_OVER_TIME,
        FUNCTION_TS_OF_MAX_OVER_TIME,
        FUNCTION_TS_OF_MIN_OVER_TIME,
        FUNCTION_RESETS,
        FUNCTION_CHANGES,
        FUNCTION_PRESENT_OVER_TIME,
        FUNCTION_ABSENT_OVER_TIME,
    };
    static const enum function_id close[] = {
        FUNCTION_SUM_OVER_TIME,
        FUNCTION_AVG_OVER_TIME,
        FUNCTION_STDDEV_OVER_TIME,
        FUNCTION_STDVAR_OVER_TIME,
        FUNCTION_QUANTILE_OVER_TIME,
        FUNCTION_MAD_OVER_TIME,
        FUNCTION_DOUBLE_EXPONENTIAL_SMOOTHING,
        FUNCTION_DERIV,
        FUNCTION_PREDICT_LINEAR,
    };
    struct test_random r = test_random_init(20260801);

    (void)state;
    for (int round = 0; round < 400; round++) {
        for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++)
            run_once(&r, exact[i], EXTENSION_NONE, round % 4 == 0); /* extrema have two ways */
        for (size_t i = 0; i < sizeof close / sizeof close[0]; i++)
            run_once(&r, close[i], EXTENSION_NONE, true);
    }
}

static void test_extended_twins(void **state)
{
    static const enum function_id functions[] = {FUNCTION_RATE, FUNCTION_INCREASE, FUNCTION_DELTA,
                                                 FUNCTION_CHANGES, FUNCTION_RESETS};
    struct test_random r = test_random_init(20261129);

    (void)state;
    for (int round = 0; round < 1000; round++) {
        for (size_t i = 0; i < 5; i++)
            run_once(&r, functions[i], EXTENSION_ANCHORED, i < 3);
        for (size_t i = 0; i < 3; i++)
            run_once(&r, functions[i], EXTENSION_SMOOTHED, true);
    }
}

static double avg_of(const double *values, size_t count)
{
    struct promql_function function = {.id = FUNCTION_AVG_OVER_TIME};
    struct promql_settings settings = {0};
    struct promql_query query = {.settings = &settings};
    struct eval_counters counters = {0};
    struct eval ev = {.query = &query, .settings = &settings, .counters = &counters};
    struct plan plan = {.function = &function, .range_ms = 1000000, .grid = {100000, 1, 1}};
    struct range_run run = {.ev = &ev, .plan = &plan};
    int64_t t_ms[8];
    struct column c = {count, t_ms, values};
    struct errinfo ei = {0};
    struct row row;
    double got;

    arena_init(&run.arena, NULL);
    for (size_t i = 0; i < count; i++)
        t_ms[i] = (int64_t)i;
    run.function = range_function_find(FUNCTION_AVG_OVER_TIME);
    CHECK_OK(row_alloc(&ev, &row, &plan.grid, &run.arena, &ei), &ei);
    CHECK_OK(range_column_run(&run, &c, (struct str){NULL, 0}, &row, &ei), &ei);
    got = row.value[0];
    arena_done(&run.arena);
    return got;
}

/* A mean whose sum overflows is still a mean. */
static void test_avg_overflow(void **state)
{
    (void)state;
    CHECK(avg_of((double[]){1.5e308, 1.5e308, 1.5e308}, 3) == 1.5e308);
    CHECK(avg_of((double[]){-1.7e308, -1.7e308}, 2) == -1.7e308);
    CHECK(avg_of((double[]){INFINITY, 1}, 2) == INFINITY);
    CHECK(isnan(avg_of((double[]){INFINITY, -INFINITY}, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_extended_twins),
        cmocka_unit_test(test_avg_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
