/*
 * Sums and means of few series, to the last bit what adding them one by one in the order of labels
 * gives: over gaps, staleness markers, steps that lie beside samples, and values whose sum
 * overflows.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "promql/promql.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"

#define START_MS INT64_C(1767225600000) /* 2026-01-01T00:00:00Z */
#define STALE_BITS UINT64_C(0x7ff0000000000002)
enum { SERIES = 12, SAMPLES = 300, INTERVAL_MS = 15000, LOOKBACK_MS = 300000 };

struct store {
    size_t count[SERIES];
    int64_t t_ms[SERIES][SAMPLES];
    double value[SERIES][SAMPLES];
};

static double value_random(struct test_random *r, bool extreme)
{
    static const double odd[] = {1e308, -1e308, INFINITY, -INFINITY, NAN, -0.0, 5e-324};

    if (extreme && test_random_below(r, 8) == 0)
        return odd[test_random_below(r, sizeof odd / sizeof odd[0])];
    return ((double)test_random_below(r, 2000001) - 1e6) / (double)(1 + test_random_below(r, 1000));
}

/* `gaps`: one sample in so many is missing, 0: none. */
static void store_fill(struct test_random *r, struct store *s, uint64_t gaps, bool extreme)
{
    for (size_t i = 0; i < SERIES; i++) {
        int64_t late_ms = test_random_below(r, 2) == 0 ? 0 : (int64_t)test_random_below(r, 20000);

        s->count[i] = 0;
        for (int k = 0; k < SAMPLES; k++) {
            size_t at = s->count[i];

            if (gaps != 0 && test_random_below(r, gaps) == 0) {
                k += (int)test_random_below(r, 40);
                continue;
            }
            s->t_ms[i][at] = START_MS + (int64_t)k * INTERVAL_MS + late_ms;
            s->value[i][at] = gaps != 0 && test_random_below(r, 50) == 0
                                  ? double_from_bits(STALE_BITS)
                                  : value_random(r, extreme);
            s->count[i]++;
        }
    }
}

static struct engine *engine_fill(const struct store *s)
{
    struct engine *e = fake_engine_new();

    for (size_t i = 0; i < SERIES; i++) {
        char text[64];
        size_t series;

        (void)snprintf(text, sizeof text, "__name__=m,i=%02zu", i);
        series = fake_engine_add(e, text);
        for (size_t k = 0; k < s->count[i]; k++)
            fake_engine_sample(e, series, s->t_ms[i][k], s->value[i][k]);
    }
    return e;
}

/* The series' value at a time; false: it has none. */
static bool value_at(const struct store *s, size_t series, int64_t t_ms, double *out)
{
    bool any = false;

    for (size_t k = 0; k < s->count[series] && s->t_ms[series][k] <= t_ms; k++) {
        *out = s->value[series][k];
        any = s->t_ms[series][k] > t_ms - LOOKBACK_MS && double_bits(*out) != STALE_BITS;
    }
    return any;
}

static void add(double v, double *sum, double *compensation)
{
    double t = *sum + v;

    if (isinf(t))
        *compensation = 0;
    else if (fabs(*sum) >= fabs(v))
        *compensation += (*sum - t) + v;
    else
        *compensation += (v - t) + *sum;
    *sum = t;
}

/* Prometheus's avg: a mean that is kept up once the sum would overflow. */
static bool avg_at(const struct store *s, int64_t t_ms, double *out)
{
    double sum = 0, c = 0, mean = 0, n = 0, v;
    bool is_mean = false;

    for (size_t i = 0; i < SERIES; i++) {
        double next = sum, next_c = c;

        if (!value_at(s, i, t_ms, &v))
            continue;
        n++;
        if (n == 1) {
            sum = v;
            continue;
        }
        if (!is_mean) {
            add(v, &next, &next_c);
            if (!isinf(next)) {
                sum = next;
                c = next_c;
                continue;
            }
            is_mean = true;
            mean = sum / (n - 1);
            c /= n - 1;
        }
        mean *= (n - 1) / n;
        c *= (n - 1) / n;
        add(v / n, &mean, &c);
    }
    *out = is_mean ? mean + c : sum / n + c / n;
    return n > 0;
}

static bool sum_at(const struct store *s, int64_t t_ms, double *out)
{
    double sum = 0, c = 0, v;
    bool any = false;

    for (size_t i = 0; i < SERIES; i++) {
        if (!value_at(s, i, t_ms, &v))
            continue;
        if (any)
            add(v, &sum, &c);
        else
            sum = v;
        any = true;
    }
    *out = sum + c;
    return any;
}

static void check_query(struct engine *e, const struct store *s, const char *text,
                        bool (*at)(const struct store *s, int64_t t_ms, double *out),
                        int64_t start_ms, int64_t step_ms, uint64_t seed)
{
    const int64_t end_ms = START_MS + (int64_t)SAMPLES * INTERVAL_MS;
    struct query_run r;

    query_init(&r, e, text);
    CHECK_OK(query_range(&r, start_ms, end_ms, step_ms), &r.ei);
    CHECK(r.result.series_count <= 1);
    for (size_t k = 0; r.result.series_count == 1 && k < r.result.step_count; k++) {
        const struct result_series *got = &r.result.series[0];
        double want;
        bool any = at(s, start_ms + (int64_t)k * step_ms, &want);

        CHECK_MSG(result_point_present(got, k) == any, "seed %" PRIu64 ": %s, step %zu", seed, text,
                  k);
        CHECK_MSG(!any || double_bits(got->value[k]) == double_bits(want) ||
                      (isnan(want) && isnan(got->value[k])),
                  "seed %" PRIu64 ": %s, step %zu: %a, not %a", seed, text, k, got->value[k], want);
    }
    query_done(&r);
}

static void test_random_stores(void **state)
{
    static struct store s;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct test_random r = test_random_init(seed);
        /* At each sample, beside them, sparser, denser. */
        static const int64_t steps[] = {INTERVAL_MS, INTERVAL_MS, 60000, 7000};
        int64_t step_ms = steps[seed % 4];
        int64_t start_ms = START_MS + (seed % 3 == 0 ? 0 : (int64_t)test_random_below(&r, 900000));
        struct engine *e;

        store_fill(&r, &s, seed % 3 == 0 ? 0 : 2 + test_random_below(&r, 200), seed % 2 == 0);
        e = engine_fill(&s);
        check_query(e, &s, "sum(m)", sum_at, start_ms, step_ms, seed);
        check_query(e, &s, "avg(m)", avg_at, start_ms, step_ms, seed);
        fake_engine_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_stores)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
