/*
 * Queries over several lines, as Prometheus 3.14's format_query prints them.
 */
#include <string.h>

#include "promql/ast.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static const struct promql_parse_options options = {true, true, true};

static enum err pretty(struct arena *arena, struct str query, struct str *out, struct errinfo *ei)
{
    struct promql_expr *expr = NULL;
    enum err e = promql_parse(query, &options, arena, &expr, ei);

    if (e == ERR_OK)
        e = promql_expr_pretty(expr, arena, out, ei);
    promql_expr_done(expr);
    return e;
}

static void test_texts(void **state)
{
    static const struct {
        const char *query, *want;
    } cases[] = {
        {"sum(x)by(a)", "sum by (a) (x)"},
        {"sum by (job, instance) (rate(http_requests_total{job=\"api\",instance=\"a\"}[5m])) / "
         "ignoring (code) group_left (x) sum(rate(http_requests_total[5m]))",
         "  sum by (job, instance) (rate(http_requests_total{instance=\"a\",job=\"api\"}[5m]))\n"
         "/ ignoring (code) group_left (x)\n"
         "  sum(rate(http_requests_total[5m]))"},
        {"-sum_over_time((aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa + "
         "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)[10m:1m] offset 5m)",
         "-sum_over_time(\n"
         "  (\n"
         "      aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
         "    +\n"
         "      bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
         "  )[10m:1m] offset 5m\n"
         ")"},
        {"quantile without (x) (0.5, "
         "max_over_time(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{a="
         "\"bbbbbbbbbbbbbbbbbbbbbbb\"}[5m:1m] offset 3m) or bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)",
         "quantile without (x) (\n"
         "  0.5,\n"
         "    max_over_time(\n"
         "      "
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{a=\"bbbbbbbbbbbbbbbbbbbbbbb\"}["
         "5m:1m] offset 3m\n"
         "    )\n"
         "  or\n"
         "    bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
         ")"},
        {"clamp(max_over_time((-(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa > bool 5 "
         "and bbbbbbbbbbbbbbbbbbbbbbbbbbb))[5m:]), 1, -(2))",
         "clamp(\n"
         "  max_over_time(\n"
         "    (\n"
         "      -(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa > bool 5 and "
         "bbbbbbbbbbbbbbbbbbbbbbbbbbb)\n"
         "    )[5m:]\n"
         "  ),\n"
         "  1,\n"
         "  -(2)\n"
         ")"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa + bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb + "
         "ccccccccccccccccccccccccccccccc + ddddddddddddddddd",
         "    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa + bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
         "  +\n"
         "    ccccccccccccccccccccccccccccccc\n"
         "+\n"
         "  ddddddddddddddddd"},
        {"{__name__=\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",b="
         "\"ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\"}",
         "{__name__=\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",b="
         "\"ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc\"}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct errinfo ei = {0};
        struct str got = {NULL, 0}, again = {NULL, 0};
        struct arena arena;

        arena_init(&arena, NULL);
        CHECK_OK(pretty(&arena, str_from(cases[i].query), &got, &ei), &ei);
        CHECK_MSG(str_equal(got, str_from(cases[i].want)), "%.*s", STR_ARGS(got));
        /* What has been formatted stays as it is. */
        CHECK_OK(pretty(&arena, got, &again, &ei), &ei);
        CHECK(str_equal(got, again));
        arena_done(&arena);
    }
}

/* Every operand of a chain stands a level deeper: a long one outgrows the limit, not the machine.
 */
static void test_long_chain(void **state)
{
    static char text[2 * 200000 + 1];
    struct errinfo ei = {0};
    struct str got = {NULL, 0};
    struct arena arena;

    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "a+", 2); /* NOLINT(bugprone-not-null-terminated-result) */
    text[sizeof text - 1] = 'a';
    arena_init(&arena, NULL);
    CHECK_OK(pretty(&arena, (struct str){text, 4001}, &got, &ei), &ei);
    CHECK(got.size > 1000000);
    CHECK(pretty(&arena, (struct str){text, sizeof text}, &got, &ei) == ERR_LIMIT);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_long_chain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
