/*
 * The parser's bounds: depth, length, memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/parser_kit.h"

static char *repeat(const char *head, const char *piece, size_t count, const char *tail)
{
    size_t piece_size = strlen(piece), size = strlen(head) + piece_size * count + strlen(tail) + 1;
    char *out = malloc(size), *at = out;

    CHECK(out != NULL);
    at += snprintf(at, size, "%s", head);
    for (size_t i = 0; i < count; i++, at += piece_size)
        memcpy(at, piece, piece_size);
    (void)snprintf(at, strlen(tail) + 1, "%s", tail);
    return out;
}

static enum err parse_code(const char *text, char message[ERRINFO_MESSAGE_SIZE])
{
    struct parsed p;
    enum err e;

    parse(&p, str_from(text), &parse_stable);
    e = p.e;
    (void)snprintf(message, ERRINFO_MESSAGE_SIZE, "%s", p.ei.message);
    if (e == ERR_OK)
        CHECK(promql_node_format(p.expr->root, &p.arena) != NULL);
    parsed_done(&p);
    return e;
}

static void test_nesting_limit(void **state)
{
    static const struct {
        const char *head, *piece, *tail;
        size_t fits; /* pieces of the largest query within 500 levels */
    } cases[] = {
        {"", "(", "1", 499},    {"", "-", "a", 499},    {"a", "^a", "", 499},
        {"", "abs(", "a", 499}, {"", "sum(", "a", 499}, {"", "1+(", "1", 249},
    };
    char message[ERRINFO_MESSAGE_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool closes = strchr(cases[i].piece, '(') != NULL;

        for (size_t extra = 0; extra < 2; extra++) {
            size_t count = cases[i].fits + extra;
            char *close = repeat(cases[i].tail, ")", closes ? count : 0, "");
            char *text = repeat(cases[i].head, cases[i].piece, count, close);
            enum err e = parse_code(text, message);

            CHECK_MSG(e == (extra == 0 ? ERR_OK : ERR_LIMIT), "%s x %zu: %s", cases[i].piece, count,
                      message);
            free(text);
            free(close);
        }
    }
    {
        char *text = repeat("abs(a)", "[1m:]", 100000, "");

        CHECK(parse_code(text, message) == ERR_LIMIT);
        CHECK_MSG(strstr(message, "nested deeper than 500 levels") != NULL, "%s", message);
        free(text);
    }
}

static void test_long_chains(void **state)
{
    static const char *const pieces[] = {" + 1", " * a", " or b", " == bool 2", " - 1 * 2"};
    char message[ERRINFO_MESSAGE_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        char *text = repeat("a", pieces[i], 10000, "");

        CHECK_MSG(parse_code(text, message) == ERR_OK, "%s", message);
        free(text);
    }
    {
        char *args = repeat("label_join(a, \"d\", \",\"", ", \"x\"", 100000, ")");

        CHECK_MSG(parse_code(args, message) == ERR_OK, "%s", message);
        free(args);
    }
    { /* half a megabyte of labels on either side: no pair by pair comparison */
        char *include = repeat(") group_left (", "b,", 250000, ") c");
        char *text = repeat("a + on (", "a,", 250000, include);

        CHECK_MSG(parse_code(text, message) == ERR_OK, "%s", message);
        free(text);
        free(include);
    }
}

static void test_size_limit(void **state)
{
    char message[ERRINFO_MESSAGE_SIZE];
    char *fits = repeat("", " ", PROMQL_QUERY_BYTES_MAX - 1, "1");
    char *large = repeat("", " ", PROMQL_QUERY_BYTES_MAX, "1");

    (void)state;
    CHECK(parse_code(fits, message) == ERR_OK);
    CHECK(parse_code(large, message) == ERR_LIMIT);
    free(fits);
    free(large);
}

/* Compiled expressions count too, and are given back. */
static void test_regex_budget(void **state)
{
    char *text = repeat("a", " + a{b=~\"[a-z]{50}x\"}", 200, "");
    enum { FITS = 64 << 20, SPENT = 1 << 20 };
    struct matcher *matchers = NULL;
    size_t count = 0;
    char *selector = repeat("{", "a=~\"[a-z]{999}x\",", 5000, "}");

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct budget budget;
        struct arena arena;
        struct promql_expr *expr = NULL;
        struct errinfo ei = {0};
        size_t arena_bytes;

        budget_init(&budget, "query memory", i == 0 ? FITS : SPENT, NULL);
        arena_init(&arena, &budget);
        CHECK_MSG(promql_parse(str_from(text), &parse_stable, &arena, &expr, &ei) ==
                      (i == 0 ? ERR_OK : ERR_LIMIT),
                  "%s", ei.message);
        arena_bytes = arena.used_bytes;
        if (i == 0)
            CHECK(budget_used(&budget) > arena_bytes + 200 * sizeof(struct matcher));
        promql_expr_done(expr);
        CHECK(budget_used(&budget) == arena_bytes);
        arena_done(&arena);
    }
    {
        struct arena arena;

        arena_init(&arena, NULL);
        CHECK(promql_parse_selector(str_from(selector), &arena, &matchers, &count, NULL) ==
              ERR_LIMIT);
        arena_done(&arena);
    }
    free(selector);
    free(text);
}

/* Every budget from nothing to enough: a refused allocation is ERR_LIMIT, and nothing leaks. */
static void test_budget(void **state)
{
    static const char text[] = "sum by (a) (rate(up{a=~\"x.+y\", b!=\"c\"}[5m])) + "
                               "label_replace(b, \"d\", \"$1\", \"s\", \"\\x41(.*)\") offset 5m";
    size_t successes = 0;

    (void)state;
    for (uint64_t limit = 0; limit < 64 << 10; limit += 512) {
        struct budget budget;
        struct arena arena;
        struct promql_expr *expr = NULL;
        struct errinfo ei = {0};
        enum err e;

        budget_init(&budget, "query memory", limit, NULL);
        arena_init(&arena, &budget);
        e = promql_parse(STR_LITERAL(text), &parse_stable, &arena, &expr, &ei);
        /* The text ends wrongly (offset on a call), so success is that error. */
        CHECK_MSG(e == ERR_LIMIT || e == ERR_INVALID, "%s: %s", err_name(e), ei.message);
        successes += e == ERR_INVALID;
        arena_done(&arena);
        CHECK(budget_used(&budget) == 0);
    }
    CHECK(successes > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting_limit), cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_size_limit),    cmocka_unit_test(test_regex_budget),
        cmocka_unit_test(test_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
