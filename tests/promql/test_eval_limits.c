/*
 * Limits and determinism: sums that do not depend on the order of series, cancellation, deadline,
 * sample and memory limits, and every allocation of a query failing in turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"

/* --- allocations that fail: the linker sends these calls here --- */

static uint64_t fail_at, call_count; /* the fail_at-th call fails; 0: none */

static bool call_fails(void)
{
    return fail_at != 0 && ++call_count == fail_at;
}

/* NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names */
enum err __real_budget_charge(struct budget *b, size_t bytes, struct errinfo *ei);
enum err __wrap_budget_charge(struct budget *b, size_t bytes, struct errinfo *ei);
enum err __wrap_budget_charge(struct budget *b, size_t bytes, struct errinfo *ei)
{
    if (call_fails())
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: refused by the test", b->name);
    return __real_budget_charge(b, bytes, ei);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return call_fails() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return call_fails() ? NULL : __real_calloc(count, size);
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
    return call_fails() ? NULL : __real_realloc(p, size);
}
/* NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming) */

/* Histograms in series h, and with custom buckets in c: growing, shrinking, or of changing
 * resolution; a float now and then. */
static void histograms_add(struct engine *e, struct test_random *r, size_t series_count)
{
    static const struct histogram_span spans[] = {{0, 2}, {1, 1}};
    static const double bounds[] = {1, 2, 5};

    for (size_t i = 0; i < series_count; i++) {
        bool is_custom = i % 4 == 3;
        char name[96];
        size_t s;

        (void)snprintf(name, sizeof name, "__name__=%s,id=%zu,g=%zu", is_custom ? "c" : "h", i,
                       i % 3);
        s = fake_engine_add(e, name);
        for (int64_t t = 0; t <= 600000; t += 30000) {
            double counts[] = {(double)test_random_below(r, 9), 1, (double)t / 30000};
            struct histogram h = {.count = counts[0] + counts[1] + counts[2],
                                  .sum = test_random_unit(r),
                                  .positive = {spans, 2, counts, 3}};

            if (is_custom) {
                h.schema = HISTOGRAM_SCHEMA_CUSTOM;
                h.custom_values = bounds;
                h.custom_count = i % 8 == 3 ? 3 : 2;
                h.positive.span_count = 1;
                h.positive.bucket_count = 2;
            } else {
                h.schema = (int32_t)test_random_below(r, 3);
            }
            if (test_random_below(r, 16) == 0)
                fake_engine_sample(e, s, t, 1);
            else
                fake_engine_histogram(e, s, t, &h);
        }
    }
}

static struct engine *random_engine(struct test_random *r, size_t series_count)
{
    struct engine *e = fake_engine_new();
    size_t info = fake_engine_add(e, "__name__=info,job=1,version=a");

    for (int64_t t = 0; t <= 600000; t += 30000)
        fake_engine_sample(e, info, t, 1);
    for (size_t i = 0; i < series_count; i++) {
        char name[96];
        size_t s;

        (void)snprintf(name, sizeof name, "__name__=x_total,id=%zu,g=%zu,le=%s", i, i % 7,
                       i % 3 == 0   ? "1"
                       : i % 3 == 1 ? "2"
                                    : "+Inf");
        s = fake_engine_add(e, name);
        for (int64_t t = 0; t <= 600000; t += 30000) {
            if (test_random_below(r, 8) != 0)
                fake_engine_sample(e, s, t, (test_random_unit(r) - 0.3) * 1e6 / 3);
        }
    }
    histograms_add(e, r, series_count < 16 ? series_count : 16);
    return e;
}

static bool results_equal(const struct promql_result *a, const struct promql_result *b)
{
    bool equal = a->series_count == b->series_count && a->step_count == b->step_count;

    for (size_t i = 0; equal && i < a->series_count; i++)
        equal = result_rows_equal(a, b, i);
    return equal;
}

static const char *const queries[] = {
    "sum by (g) (x_total)",
    "avg(x_total)",
    "min by (g) (x_total * 0) or max by (le) (x_total * 0)", /* zeros of both signs */
    "avg by (g) (x_total * 1e302) or sum by (le) (1 / (x_total > 1e5) * 1e308 * 1e308)",
    "stddev by (g) (x_total)",
    "sum(rate(x_total[2m]))",
    "topk by (g) (3, x_total)",
    "quantile(0.9, x_total)",
    "count_values('v', round(x_total, 100000))",
    "histogram_quantile(0.5, sum by (le, g) (x_total))",
    "limitk by (g) (2, x_total) or limit_ratio(0.4, x_total)",
    "histogram_quantiles(sum by (le, g) (x_total), 'q', 0.5, 1)",
    "sum(increase(x_total[1m] smoothed)) + sum(rate(x_total[1m] anchored)) + sum(x_total smoothed)",
    "sum by (g) (x_total) - on (g) group_left () fill (0) sum by (g) (x_total{g='1'})",
    "info(label_replace(sum by (g) (x_total), 'job', '$1', 'g', '(.*)'), {__name__='info'})",
    "max_over_time(x_total[min_of(2m, step() * 3)]) + on (id, g, le) default_rollup(x_total[2m])",
    "min(x_total) + on () group_right () sum by (g) (x_total)",
    "label_replace(max by (g) (x_total), 'h', '$1', 'g', '(.*)') or vector(1)",
    "sum by (g) (avg_over_time(sum by (g, le) (x_total)[3m:1m]))",
    "absent(x_total) or (count without (id, le) (x_total) unless on (g) topk(1, x_total))",
    "sort(sum by (g) (-x_total)) > bool 0",
    "scalar(sum(x_total)) + time()",
    "sum by (g) (rate(h[2m])) - sum by (g) (h offset 1m)",
    "avg by (g) (h) * 2 or -h",
    "avg_over_time(h[3m]) </ 3 or sum_over_time(c[2m]) >/ 1",
    "histogram_quantile(0.5, h) + on (id, g) histogram_fraction(0, 1, h)",
    "histogram_quantiles({__name__=~'h|c'}, 'q', 0.5, 0.9)",
    "histogram_count(sum by (g) (increase(h[2m] smoothed))) or histogram_stddev(h smoothed)",
    "increase(h[1m] anchored) or last_over_time(h[2m]) or sort(h)",
    "changes(h[3m]) + resets(h[3m]) + count_over_time(h[2m])",
    "irate(h[2m]) == idelta(h[2m]) or irate(c[2m])",
    "count_values('v', h)",
    "sum_over_time(sum by (g) (h)[3m:1m]) + on (g) group_right () h",
    "topk(2, h) or limitk(2, h) or h @ 60",
    "info(label_replace(h, 'job', '$1', 'g', '(.*)'), {__name__='info'})",
    "sum by (g) ({__name__=~'h|c'}) or h unless on (g) c{g='1'}",
    "c + on (g) group_left () c{id='3'}",
    "max_over_time(h[5m]) or max(h)",
};

static void test_order_independence(void **state)
{
    struct test_random r = test_random_init(7);
    struct engine *e = random_engine(&r, 3000);

    (void)state;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        struct query_run first;

        e->order_seed = 0;
        query_init(&first, e, queries[i]);
        CHECK_OK(query_range(&first, 0, 600000, 60000), &first.ei);
        CHECK_MSG(first.result.series_count > 0, "%s", queries[i]);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            struct query_run again;

            e->order_seed = seed;
            query_init(&again, e, queries[i]);
            CHECK_OK(query_range(&again, 0, 600000, 60000), &again.ei);
            CHECK_MSG(results_equal(&first.result, &again.result), "%s", queries[i]);
            query_done(&again);
        }
        query_done(&first);
    }
    fake_engine_free(e);
}

static void test_cancel(void **state)
{
    struct test_random r = test_random_init(8);
    struct engine *e = random_engine(&r, 1200);

    (void)state;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        _Atomic bool stop = false;
        struct query_run q;

        e->set_on_read = &stop;
        query_init(&q, e, queries[i]);
        q.query.stop = &stop;
        CHECK_MSG(query_range(&q, 0, 60000000, 10000) == ERR_CANCELED, "%s: %s", queries[i],
                  q.ei.message);
        query_done(&q);
        e->set_on_read = NULL;
        query_init(&q, e, queries[i]);
        q.query.deadline_mono_ns = clock_mono_ns();
        CHECK(query_range(&q, 0, 600000, 60000) == ERR_TIMEOUT);
        CHECK(strcmp(q.ei.message, "query timed out in expression evaluation") == 0);
        query_done(&q);
    }
    fake_engine_free(e);
}

static void check_limit(struct engine *e, const char *text, uint64_t max_samples, enum err want)
{
    struct query_run q;
    enum err got;

    query_init(&q, e, text);
    q.settings.max_samples = max_samples;
    got = query_instant(&q, 600000);
    CHECK_MSG(got == want, "%s: %s: %s", text, err_name(got), q.ei.message);
    CHECK(got == ERR_OK || strcmp(q.ei.message, "query processing would load too many samples into "
                                                "memory in query execution") == 0);
    query_done(&q);
}

/* A window's samples count while it is looked at, one window at a time; as does what a subquery
 * gave. */
static void check_windows_count(struct engine *e)
{
    size_t s = fake_engine_add(e, "__name__=window");

    for (int64_t t = 0; t < 2000; t++)
        fake_engine_sample(e, s, t * 250, 1);
    check_limit(e, "sum_over_time(window[1h])", 1999, ERR_LIMIT);
    check_limit(e, "sum_over_time(window[1h])", 2000, ERR_OK);
    check_limit(e, "count(sum_over_time(window[1h]))", 1999, ERR_LIMIT);
    check_limit(e, "rate(window[1h])", 1999, ERR_LIMIT);
    check_limit(e, "window[1h]", 1999, ERR_LIMIT);
    check_limit(e, "window[1h]", 2000, ERR_OK);
    check_limit(e, "sum_over_time(window[200s])", 400, ERR_OK);    /* the window, not the series */
    check_limit(e, "sum(max_over_time(x_total[1h]))", 25, ERR_OK); /* one series at a time */
    check_limit(e, "max_over_time(vector(1)[100s:1s])", 199, ERR_LIMIT);
    check_limit(e, "max_over_time(vector(1)[100s:1s])", 200, ERR_OK);
    check_limit(e, "sum_over_time(vector(time())[100s:1s]) > 0", 199, ERR_LIMIT);
    check_limit(e, "max_over_time(vector(1)[4000000000s:1s])", 50000000, ERR_LIMIT);
}

static void test_max_samples(void **state)
{
    struct test_random r = test_random_init(9);
    struct engine *e = random_engine(&r, 300);
    struct query_run q;

    (void)state;
    query_init(&q, e, "x_total");
    q.settings.max_samples = 1000;
    CHECK(query_range(&q, 0, 600000, 60000) == ERR_LIMIT);
    CHECK(strcmp(q.ei.message, "query processing would load too many samples into memory in query "
                               "execution") == 0);
    query_done(&q);
    /* A fold holds its groups, not its input. */
    query_init(&q, e, "sum by (g) (x_total)");
    q.settings.max_samples = 1000;
    CHECK_OK(query_range(&q, 0, 600000, 60000), &q.ei);
    CHECK(q.result.samples_peak == 77 && q.result.samples_read > 3000);
    query_done(&q);
    check_windows_count(e);
    fake_engine_free(e);
}

/* The greater of two selectors is named, wherever the query fails, and a parent's budget too. */
static void check_selector_named(struct engine *e)
{
    struct budget all;
    struct query_run q;

    budget_init(&all, "memory of all queries (--all)", 3 << 20, NULL);
    for (size_t i = 0; i < 2; i++) {
        query_init(&q, e,
                   i == 0 ? "x_total + on (id) group_left () max(x_total{g='a'})"
                          : "max(x_total{g='a'}) + on (id) group_right () x_total");
        q.budget.parent = &all;
        CHECK(query_range(&q, 0, 600000, 1000) == ERR_LIMIT);
        CHECK_MSG(strstr(q.ei.message, "memory of all queries (--all): ") != NULL, "%s",
                  q.ei.message);
        CHECK_MSG(strstr(q.ei.message, "the selector x_total took most, ") != NULL, "%s",
                  q.ei.message);
        query_done(&q);
        CHECK(budget_used(&all) == 0);
    }
}

static void test_memory_limit(void **state)
{
    struct test_random r = test_random_init(10);
    struct engine *e = random_engine(&r, 2000);
    struct query_run q;

    (void)state;
    query_init(&q, e, "x_total * 2");
    q.budget.limit_bytes = 1 << 20;
    CHECK(query_range(&q, 0, 600000, 1000) == ERR_LIMIT);
    CHECK_MSG(strstr(q.ei.message, "query memory") != NULL, "%s", q.ei.message);
    CHECK_MSG(strstr(q.ei.message, "--query.max-memory") != NULL, "%s", q.ei.message);
    CHECK_MSG(strstr(q.ei.message, "the selector x_total took most, ") != NULL, "%s", q.ei.message);
    query_done(&q);
    check_selector_named(e);
    /* Without a selector there is none to name. */
    query_init(&q, e, "sum_over_time(vector(time())[1000000s:1s])");
    q.budget.limit_bytes = 1 << 20;
    CHECK(query_instant(&q, 0) == ERR_LIMIT);
    CHECK_MSG(strstr(q.ei.message, "query memory") != NULL, "%s", q.ei.message);
    CHECK_MSG(strstr(q.ei.message, "selector") == NULL, "%s", q.ei.message);
    query_done(&q);
    fake_engine_free(e);
}

/* Each allocation of each query fails once: an error, nothing lost, nothing broken. */
static void test_every_allocation(void **state)
{
    struct test_random r = test_random_init(11);
    struct engine *e = random_engine(&r, 24);

    (void)state;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        for (uint64_t n = 1;; n++) {
            struct query_run q;
            enum err got;

            query_init(&q, e, queries[i]);
            call_count = 0;
            fail_at = n;
            got = query_range(&q, 0, 600000, 60000);
            fail_at = 0;
            CHECK_MSG(got == ERR_OK || got == ERR_LIMIT || got == ERR_NOMEM, "%s at %llu: %s: %s",
                      queries[i], (unsigned long long)n, err_name(got), q.ei.message);
            CHECK_MSG(got == ERR_OK || (q.ei.code == got && q.ei.message[0] != '\0'), "%s at %llu",
                      queries[i], (unsigned long long)n);
            query_done(&q);
            if (call_count < n)
                break;
            CHECK(n < 100000);
        }
    }
    fake_engine_free(e);
}

/* Bytes without a final NUL: the caller's buffer is zeroed. */
static size_t repeat(char *out, const char *part, size_t count)
{
    size_t size = strlen(part);

    for (size_t i = 0; i < count; i++)
        memcpy(out + i * size, part, size); /* NOLINT(bugprone-not-null-terminated-result) */
    return size * count;
}

/* `count` times `open`, then the middle, then `count` times `close`. */
static char *nest(const char *open, const char *middle, const char *close, size_t count)
{
    char *text = calloc((strlen(open) + strlen(close)) * count + strlen(middle) + 1, 1);
    size_t n;

    CHECK(text != NULL);
    n = repeat(text, open, count);
    n += repeat(text + n, middle, 1);
    (void)repeat(text + n, close, count); /* the rest is zero already */
    return text;
}

static void check_nested(struct engine *e, const char *open, const char *middle, const char *close,
                         size_t count)
{
    char *text = nest(open, middle, close, count);
    struct query_run q;

    query_init(&q, e, text);
    CHECK_MSG(query_range(&q, 0, 120000, 60000) == ERR_OK, "%s: %s", open, q.ei.message);
    CHECK(q.result.series_count > 0);
    query_done(&q);
    free(text);
}

/* As deep as the parser lets a query be, and chains far longer than that. */
static void test_depth(void **state)
{
    struct test_random r = test_random_init(12);
    struct engine *e = random_engine(&r, 4);

    (void)state;
    check_nested(e, "sum(", "x_total", ")", 400);
    check_nested(e, "abs(-", "x_total", ")", 200);
    check_nested(e, "max_over_time(", "x_total", "[2m:1m])", 150);
    check_nested(e, "topk(1, ", "x_total", ")", 400);
    check_nested(e, "label_replace(", "x_total", ", 'a', '$1', 'id', '(.*)')", 200);
    check_nested(e, "1 + (", "x_total", ")", 200);
    check_nested(e, "x_total or (", "x_total", ")", 200);
    check_nested(e, "scalar(vector(", "1", "))", 200);
    check_nested(e, "", "x_total", " + 1", 100000);
    check_nested(e, "", "1", " + time()", 50000);
    check_nested(e, "max_of(1, ", "time()", ")", 400);
    check_nested(e, "info(", "x_total", ")", 300);
    check_nested(e, "info(", "1 + x_total", " + 1)", 1);
    check_nested(e, "", "x_total", " or x_total", 500);
    check_nested(e, "", "x_total", " + 1 or vector(1)", 500);
    fake_engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_independence), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_max_samples),        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_every_allocation),   cmocka_unit_test(test_depth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
