/*
 * Random queries: each step of a range query must be what the instant query at that time gives, to
 * the last bit. Grids, spreading, windows that slide, subqueries and merges all have to agree for
 * that. Staleness, gaps and special values are in the data.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/write.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"

enum { TEXT_SIZE = 4096, STEPS = 7 };

struct text {
    char data[TEXT_SIZE];
    size_t size;
    struct test_random *random;
};

static void __attribute__((format(printf, 2, 3))) put(struct text *t, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(t->data + t->size, sizeof t->data - t->size, format, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < sizeof t->data - t->size);
    t->size += (size_t)n;
}

static size_t pick(struct text *t, size_t count)
{
    return (size_t)test_random_below(t->random, count);
}

#define PICK(t, array) ((array)[pick((t), sizeof(array) / sizeof(array)[0])])

/* NOLINTBEGIN(misc-no-recursion): `depth` counts down. */
static void put_vector(struct text *t, int depth);

static void put_shift(struct text *t)
{
    switch (pick(t, 8)) {
    case 0:
        put(t, " offset %d%s", 10 + (int)pick(t, 90), pick(t, 3) == 0 ? "s" : "m");
        break;
    case 1:
        put(t, " offset -%ds", (int)pick(t, 200));
        break;
    case 2:
        put(t, " @ %d", (int)pick(t, 4000));
        break;
    case 3:
        put(t, " @ %d offset %ds", (int)pick(t, 4000), (int)pick(t, 400));
        break;
    default:
        break;
    }
}

static void put_selector(struct text *t)
{
    static const char *const selectors[] = {
        "a_total",        "b",       "a_total{g='1'}", "b{g!='0'}", "{__name__=~'a_total|b',i='1'}",
        "b{i=~'[01]|x'}", "nothing", "a_total{i='2'}",
    };

    put(t, "%s", PICK(t, selectors));
}

/* `extension` is a modifier, or empty. */
static void put_range(struct text *t, int depth, const char *extension)
{
    if (extension[0] == '\0' && depth > 0 && pick(t, 3) == 0) {
        put(t, "(");
        put_vector(t, depth - 1);
        put(t, ")[%dm:%ds]", 1 + (int)pick(t, 9), 20 + (int)pick(t, 100));
    } else {
        put_selector(t);
        put(t, "[%ds]", 1 + (int)pick(t, 900));
        if (extension[0] != '\0')
            put(t, " %s", extension);
    }
    put_shift(t);
}

static void put_scalar(struct text *t, int depth)
{
    switch (pick(t, depth > 0 ? 5 : 3)) {
    case 0:
        put(t, "%d", (int)pick(t, 5) - 1);
        break;
    case 1:
        put(t, "time()");
        break;
    case 2:
        put(t, "0.5");
        break;
    case 3:
        put(t, "scalar(");
        put_vector(t, depth - 1);
        put(t, ")");
        break;
    default:
        put(t, "(");
        put_scalar(t, depth - 1);
        put(t, " %s ", pick(t, 2) == 0 ? "*" : "-");
        put_scalar(t, depth - 1);
        put(t, ")");
        break;
    }
}

static void put_range_call(struct text *t, int depth)
{
    static const char *const functions[] = {
        "rate",
        "increase",
        "delta",
        "irate",
        "idelta",
        "sum_over_time",
        "avg_over_time",
        "min_over_time",
        "max_over_time",
        "changes",
        "resets",
        "stddev_over_time",
        "deriv",
        "mad_over_time",
        "count_over_time",
        "last_over_time",
        "first_over_time",
        "present_over_time",
        "absent_over_time",
        "ts_of_max_over_time",
        "ts_of_last_over_time",
    };

    static const char *const extendable[] = {"rate", "increase", "delta"};

    switch (pick(t, 9)) {
    case 0:
        put(t, "quantile_over_time(");
        put_scalar(t, 0);
        put(t, ", ");
        put_range(t, depth, "");
        put(t, ")");
        break;
    case 1:
        put(t, "predict_linear(");
        put_range(t, depth, "");
        put(t, ", ");
        put_scalar(t, 0);
        put(t, ")");
        break;
    case 2:
        put(t, "%s(", PICK(t, extendable));
        put_range(t, depth, pick(t, 2) == 0 ? "anchored" : "smoothed");
        put(t, ")");
        break;
    default:
        put(t, "%s(", PICK(t, functions));
        put_range(t, depth, "");
        put(t, ")");
        break;
    }
}

static void put_aggregate(struct text *t, int depth)
{
    static const char *const operators[] = {
        "sum",
        "avg",
        "count",
        "min",
        "max",
        "group",
        "stddev",
        "stdvar",
        "topk(2, ",
        "bottomk(1, ",
        "quantile(0.3, ",
        "count_values('v', ",
        "limitk(1, ",
        "limit_ratio(0.5, ",
        "limit_ratio(-0.4, ",
    };
    static const char *const groups[] = {"", " by (g)", " without (i)", " by (g, i)"};
    const char *operator= PICK(t, operators);
    const char *open = strchr(operator, '(');

    put(t, "%.*s%s (%s", open == NULL ? (int)strlen(operator) : (int)(open - operator), operator,
        PICK(t, groups), open == NULL ? "" : open + 1);
    put_vector(t, depth - 1);
    put(t, ")");
}

static void put_binary(struct text *t, int depth)
{
    static const char *const operators[] = {
        "+",
        "*",
        "%",
        "> ",
        "!= bool ",
        "and",
        "or",
        "unless",
        "and on (g)",
        "or on (i)",
        "- on (g, i)",
        "/ ignoring (x)",
        "+ on (g) group_left ()",
        "* on (i) group_right (g)",
        "+ fill (0)",
        "- on (g, i) fill_left (1)",
        "> bool on (g) group_left (i) fill_right (2)",
        "+ on (i) group_right fill (1)",
    };

    put(t, "(");
    put_vector(t, depth - 1);
    put(t, " %s ", PICK(t, operators));
    put_vector(t, depth - 1);
    put(t, ")");
}

static void put_map(struct text *t, int depth)
{
    static const char *const functions[] = {"abs",  "ceil", "sqrt",   "timestamp",
                                            "hour", "-",    "absent", "sgn"};

    switch (pick(t, 4)) {
    case 0:
        put(t, "clamp(");
        put_vector(t, depth - 1);
        put(t, ", ");
        put_scalar(t, 0);
        put(t, ", ");
        put_scalar(t, 0);
        put(t, ")");
        break;
    case 1:
        put(t, "(");
        put_vector(t, depth - 1);
        put(t, " %s ", pick(t, 2) == 0 ? ">" : "/");
        put_scalar(t, depth - 1);
        put(t, ")");
        break;
    case 2:
        put(t, "label_replace(");
        put_vector(t, depth - 1);
        put(t, ", '%s', 'z$1', 'i', '(.)')", pick(t, 2) == 0 ? "i" : "n");
        break;
    default:
        put(t, "%s(", PICK(t, functions));
        put_vector(t, depth - 1);
        put(t, ")");
        break;
    }
}

static void put_vector(struct text *t, int depth)
{
    switch (depth > 0 ? pick(t, 7) : pick(t, 2)) {
    case 0:
        put_selector(t);
        if (pick(t, 8) == 0)
            put(t, " smoothed");
        put_shift(t);
        break;
    case 1:
        put_range_call(t, depth);
        break;
    case 2:
    case 3:
        put_aggregate(t, depth);
        break;
    case 4:
        put_binary(t, depth);
        break;
    case 5:
        put_map(t, depth);
        break;
    default:
        put(t, "vector(");
        put_scalar(t, depth - 1);
        put(t, ")");
        break;
    }
}

/* NOLINTEND(misc-no-recursion) */

static struct engine *random_engine(struct test_random *r)
{
    struct engine *e = fake_engine_new();

    for (int i = 0; i < 12; i++) {
        char labels[64];
        size_t s;
        double value = 0;
        int64_t t = (int64_t)test_random_below(r, 60000);

        (void)snprintf(labels, sizeof labels, "__name__=%s,g=%d,i=%d", i < 6 ? "a_total" : "b",
                       i % 2, i % 6 / 2);
        s = fake_engine_add(e, labels);
        for (; t < 4000000; t += 1000 + (int64_t)test_random_below(r, 60000)) {
            uint64_t what = test_random_below(r, 40);

            value = what < 3 ? 0 : value + (double)test_random_below(r, 9) / 2;
            if (what == 4)
                t += 400000;
            fake_engine_sample(e, s, t,
                               what == 5   ? double_from_bits(STALE_NAN_BITS)
                               : what == 6 ? NAN
                               : what == 7 ? INFINITY
                                           : value);
        }
    }
    return e;
}

/* The value a result has for a label set at a step; false when there is none. */
static bool value_at(const struct promql_result *r, const struct labels *labels, size_t step,
                     double *out)
{
    for (size_t i = 0; i < r->series_count; i++) {
        if (labels_equal(&r->series[i].labels, labels) &&
            result_point_present(&r->series[i], step)) {
            *out = r->series[i].value[step];
            return true;
        }
    }
    return false;
}

/* Instants of topk() and its like stand in another order than ranges, as in Prometheus, and what is
 * folded in another order rounds otherwise. */
static bool order_differs(const char *text)
{
    return strstr(text, "topk") != NULL || strstr(text, "bottomk") != NULL ||
           strstr(text, "limit") != NULL;
}

static bool same_value(double a, double b, const char *text)
{
    return double_bits(a) == double_bits(b) || (isnan(a) && isnan(b)) ||
           (order_differs(text) && fabs(a - b) <= 1e-9 * (1 + fabs(a)));
}

static void compare_step(const struct promql_result *range, size_t step,
                         const struct promql_result *instant, const char *text)
{
    size_t count = 0;

    for (size_t i = 0; i < range->series_count; i++)
        count += result_point_present(&range->series[i], step);
    CHECK_MSG(count == instant->series_count, "%s: step %zu has %zu series, the instant %zu", text,
              step, count, instant->series_count);
    for (size_t i = 0; i < instant->series_count; i++) {
        double got = 0;

        CHECK_MSG(value_at(range, &instant->series[i].labels, step, &got), "%s: step %zu", text,
                  step);
        CHECK_MSG(same_value(got, instant->series[i].value[0], text),
                  "%s: step %zu: %.17g, instant %.17g", text, step, got,
                  instant->series[i].value[0]);
    }
}

/* Returns whether the query failed. */
static bool compare_query(struct engine *e, const char *text, bool delayed, int64_t start_ms,
                          int64_t step_ms)
{
    struct query_run range;
    bool failed, any_failed = false;

    query_init(&range, e, text);
    range.settings.delayed_name_removal = delayed;
    failed = query_range(&range, start_ms, start_ms + (STEPS - 1) * step_ms, step_ms) != ERR_OK;
    CHECK_MSG(!failed || range.ei.code == ERR_EXECUTION, "%s: %s", text, range.ei.message);
    for (size_t k = 0; k < STEPS; k++) {
        struct query_run instant;
        enum err e_instant;

        query_init(&instant, e, text);
        instant.settings.delayed_name_removal = delayed;
        e_instant = query_instant(&instant, start_ms + (int64_t)k * step_ms);
        any_failed = any_failed || e_instant != ERR_OK;
        CHECK_MSG(e_instant == ERR_OK || failed, "%s: the instant failed: %s", text,
                  instant.ei.message);
        /* Of parts with the same labels `or` joins, the first decides whether the name goes. */
        if (!failed && !(delayed && strstr(text, " or ") != NULL))
            compare_step(&range.result, k, &instant.result, text);
        query_done(&instant);
    }
    /* Range functions find equal label sets even where they never meet, and a subquery's points lie
     * between the windows of the instants too. */
    CHECK_MSG(!failed || any_failed || strstr(range.ei.message, "same labelset") != NULL ||
                  strchr(text, ':') != NULL,
              "%s: %s", text, range.ei.message);
    query_done(&range);
    return failed;
}

static void test_range_is_instants(void **state)
{
    struct test_random r = test_random_init(20260901);
    struct engine *e = NULL;
    size_t failed = 0;
    enum { ROUNDS = 4000 };

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct text t = {.random = &r};

        if (round % 50 == 0) {
            if (e != NULL)
                fake_engine_free(e);
            e = random_engine(&r);
        }
        put_vector(&t, 3);
        bool delayed = test_random_below(&r, 2) == 0;
        int64_t start_ms = (int64_t)test_random_below(&r, 2000000);
        failed +=
            compare_query(e, t.data, delayed, start_ms, 1 + (int64_t)test_random_below(&r, 300000));
    }
    fake_engine_free(e);
    CHECK(failed < ROUNDS / 2); /* most queries have an answer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_range_is_instants)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
