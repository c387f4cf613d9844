/*
 * Durations: expressions of them, what they come to, and as plain texts.
 */
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/parser_kit.h"

/* Texts as Prometheus 3.14 prints them. */
static void test_duration_expressions(void **state)
{
    static const struct good_case good[] = {
        {"a[5m + 1m]", NULL},
        {"a[(5m)]", "a[5m]"},
        {"a[((step()))*2]", "a[(step()) * 2]"},
        {"a[5m:min_of(1m, range())]", NULL},
        {"a offset -step()", NULL},
        {"a offset +step()", "a offset step()"},
        {"a offset step() + 1", NULL},
        {"a offset (1m) + 1", "a offset 1m + 1"},
        {"a offset -(1m+step())", "a offset -(1m + step())"},
        {"a offset - -5m", "a offset 5m"},
        {"a offset -2^2", "a offset -2s ^ 2"},
        {"a offset -max_of(1m, 2)", NULL},
        {"a[-2^2+9:1+2^3^2]", "a[-2 ^ 2 + 9:1 + 2 ^ 3 ^ 2]"},
        {"a[1h%7m-1]", "a[1h % 7m - 1]"},
        {"a[-(-5m)]", "a[5m]"},
        {"a[+(5m+1m)]", "a[(5m + 1m)]"},
        {"a[1+2+3*4]", "a[1 + 2 + 3 * 4]"},
        {"a offset step()[5m]", "a[5m] offset step()"},
        {"a @ end()[5m]", "a[5m] @ end()"},
    };
    static const struct bad_case bad[] = {
        {"a[min_of(1,2]", "1:13: parse error: unexpected \"]\" in subquery or range selector, "
                          "expected number, duration, step(), or range()"},
        {"a offset step() offset 1m", "1:1: parse error: offset may not be set multiple times"},
        {"a[1/(0)]", "1:4: parse error: division by zero"},
    };

    (void)state;
    CHECK_GOOD(good, &parse_stable);
    CHECK_BAD(bad, ERR_INVALID, &parse_stable);
}

/* A chain of operators nests to the left and is limited like everything that nests. */
static void test_duration_depth(void **state)
{
    char text[2 * PROMQL_DEPTH_MAX + 16] = "a[1";
    size_t used = strlen(text);
    struct promql_expr *expr = NULL;
    struct errinfo ei = {0};
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (int i = 0; i < PROMQL_DEPTH_MAX; i++, used += 2)
        memcpy(text + used, "+1", 2); /* NOLINT(bugprone-not-null-terminated-result) */
    text[used++] = ']';
    CHECK(promql_parse((struct str){text, used}, &parse_stable, &arena, &expr, &ei) == ERR_LIMIT);
    text[used - 3] = ']';
    CHECK_OK(promql_parse((struct str){text, used - 2}, &parse_stable, &arena, &expr, &ei), &ei);
    CHECK(promql_node_format(expr->root, &arena) != NULL);
    promql_expr_done(expr);
    arena_done(&arena);
}

static void test_duration_values(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
        const char *error;
    } cases[] = {
        {"step() * 2 + range()", 130000, NULL},
        {"min_of(step(), 3) ^ 2", 9000, NULL},
        {"max_of(step(), 3) % 4", 3000, NULL},
        {"1 / 3", 333, NULL},
        {"5m / (1-1)", 0, "2:11: division by zero"},
        {"5m % (step()-15)", 0, "2:17: modulo by zero"},
        {"-step()", 0, "2:9: duration must be greater than 0"},
        {"min_of(1, 0) + 0", 0, "9:18: duration must be greater than 0"},
        {"(-1) ^ 0.5", 0, "3:12: duration is NaN or infinite"},
        {"1e9 ^ 2", 0, "2:9: duration is out of range"},
    };
    const struct duration_bounds bounds = {15, 100};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct promql_expr *expr = NULL;
        struct errinfo ei = {0};
        struct arena arena;
        int64_t ms = 0;
        enum err e;

        arena_init(&arena, NULL);
        CHECK_OK(promql_parse(str_from(arena_printf(&arena, "a[%s]", cases[i].text)), &parse_stable,
                              &arena, &expr, &ei),
                 &ei);
        e = promql_duration_evaluate(expr->root->u.matrix.range_expr, &bounds, false, &ms, &ei);
        CHECK_MSG(e == (cases[i].error == NULL ? ERR_OK : ERR_INVALID), "%s", cases[i].text);
        if (cases[i].error == NULL)
            CHECK_MSG(ms == cases[i].ms, "%s: %lld", cases[i].text, (long long)ms);
        else
            CHECK_MSG(strcmp(ei.message, cases[i].error) == 0, "%s: %s", cases[i].text, ei.message);
        promql_expr_done(expr);
        arena_done(&arena);
    }
}

static void test_durations(void **state)
{
    static const struct {
        const char *text;
        int64_t ms; /* -1: refused with `message` */
        const char *message;
    } cases[] = {
        {"5m", 300000, NULL},
        {"1h30m", 5400000, NULL},
        {"100ms", 100, NULL},
        {"1y2w3d", (365LL + 14 + 3) * 86400000, NULL},
        {"0", 0, NULL},
        {"", -1, "empty duration string"},
        {"5", -1, "not a valid duration string: \"5\""},
        {"m", -1, "not a valid duration string: \"m\""},
        {"1m1m", -1, "not a valid duration string: \"1m1m\""},
        {"5x", -1, "unknown unit \"x\" in duration \"5x\""},
        {"300y", -1, "duration out of range"},
        {"99999999999999999999s", -1, "not a valid duration string: \"99999999999999999999s\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct errinfo ei = {0};
        int64_t ms = 0;
        enum err e = promql_duration_parse(str_from(cases[i].text), &ms, &ei);

        if (cases[i].ms >= 0) {
            CHECK_MSG(e == ERR_OK && ms == cases[i].ms, "%s: %s", cases[i].text, ei.message);
        } else {
            CHECK(e == ERR_INVALID);
            assert_string_equal(ei.message, cases[i].message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_duration_expressions),
        cmocka_unit_test(test_duration_depth),
        cmocka_unit_test(test_duration_values),
        cmocka_unit_test(test_durations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
