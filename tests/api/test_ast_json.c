/*
 * Syntax trees as JSON: the texts are Prometheus 3.14's answers of parse_query.
 */
#include <string.h>

#include "api/http/ast_json_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

#define SELECTOR(name, offset, offset_expr, timestamp)                                             \
    "{\"anchored\":false,\"matchers\":[{\"name\":\"__name__\",\"type\":\"=\",\"value\":\"" name    \
    "\"}],\"name\":\"" name "\",\"offset\":" offset ",\"offsetExpr\":" offset_expr                 \
    ",\"smoothed\":false,\"startOrEnd\":null,\"timestamp\":" timestamp                             \
    ",\"type\":\"vectorSelector\"}"
#define PLAIN(name) SELECTOR(name, "0", "null", "null")

static enum err tree(const char *query, size_t size_max, struct byte_writer *w, struct errinfo *ei)
{
    static const struct promql_parse_options options = {true, true, true};
    struct promql_expr *expr = NULL;
    struct arena arena;
    enum err e;

    arena_init(&arena, NULL);
    e = promql_parse(str_from(query), &options, &arena, &expr, ei);
    CHECK_OK(e, ei);
    e = json_write_ast(w, expr->root, size_max, &arena, ei);
    promql_expr_done(expr);
    arena_done(&arena);
    return e;
}

static void test_trees(void **state)
{
    static const struct {
        const char *query, *want;
    } cases[] = {
        {"-a", "{\"expr\":" PLAIN("a") ",\"op\":\"-\",\"type\":\"unaryExpr\"}"},
        {"(1e3)",
         "{\"expr\":{\"type\":\"numberLiteral\",\"val\":\"1000\"},\"type\":\"parenExpr\"}"},
        {"1 + 2 * 3", "{\"bool\":false,\"lhs\":{\"type\":\"numberLiteral\",\"val\":\"1\"},"
                      "\"matching\":null,\"op\":\"+\",\"rhs\":{\"bool\":false,\"lhs\":{\"type\":"
                      "\"numberLiteral\",\"val\":\"2\"},\"matching\":null,\"op\":\"*\",\"rhs\":{"
                      "\"type\":\"numberLiteral\",\"val\":\"3\"},\"type\":\"binaryExpr\"},\"type\":"
                      "\"binaryExpr\"}"},
        {"a - b @ 3.5 offset +step()",
         "{\"bool\":false,\"lhs\":" PLAIN("a") ",\"matching\":{\"card\":\"one-to-one\","
                                               "\"fillValues\":{\"lhs\":null,\"rhs\":null},"
                                               "\"include\":[],\"labels\":[],\"on\":false},"
                                               "\"op\":\"-\",\"rhs\":" SELECTOR(
                                                   "b", "0",
                                                   "{\"lhs\":null,\"op\":\"+\",\"rhs\":{\"lhs\":"
                                                   "null,\"op\":\"step\",\"rhs\":null,"
                                                   "\"type\":\"durationExpr\",\"wrapped\":false},"
                                                   "\"type\":\"durationExpr\",\"wrapped\":"
                                                   "false}",
                                                   "3500") ",\"type\":\"binaryExpr\"}"},
        {"a == bool on (x) group_left (y) fill (1.5) b",
         "{\"bool\":true,\"lhs\":" PLAIN("a") ",\"matching\":{\"card\":\"many-to-one\","
                                              "\"fillValues\":{\"lhs\":1.5,\"rhs\":1.5},"
                                              "\"include\":[\"y\"],\"labels\":[\"x\"],\"on\":"
                                              "true},\"op\":\"==\",\"rhs\":" PLAIN(
                                                  "b") ",\"type\":\"binaryExpr\"}"},
        {"a[5m + step()] anchored offset -(3)",
         "{\"anchored\":true,\"matchers\":[{\"name\":\"__name__\",\"type\":\"=\",\"value\":\"a\"}],"
         "\"name\":\"a\",\"offset\":-3000,\"offsetExpr\":null,\"range\":0,\"rangeExpr\":{\"lhs\":{"
         "\"duration\":true,\"type\":\"numberLiteral\",\"val\":\"300\"},\"op\":\"+\",\"rhs\":{"
         "\"lhs\":null,\"op\":\"step\",\"rhs\":null,\"type\":\"durationExpr\",\"wrapped\":false},"
         "\"type\":\"durationExpr\",\"wrapped\":false},\"smoothed\":false,\"startOrEnd\":null,"
         "\"timestamp\":null,\"type\":\"matrixSelector\"}"},
        {"count_values(\"v\\n\", a) without (b)",
         "{\"expr\":" PLAIN("a") ",\"grouping\":[\"b\"],\"op\":\"count_values\",\"param\":{"
                                 "\"type\":\"stringLiteral\",\"val\":\"v\\n\"},\"type\":"
                                 "\"aggregation\",\"without\":true}"},
        {"abs(a)", "{\"args\":[" PLAIN(
                       "a") "],\"func\":{\"argTypes\":[\"vector\"],\"name\":"
                            "\"abs\",\"returnType\":\"vector\",\"variadic\":0},\"type\":\"call\"}"},
        {"a[5m:] @ end()",
         "{\"expr\":" PLAIN("a") ",\"offset\":0,\"offsetExpr\":null,\"range\":300000,\"rangeExpr\":"
                                 "null,\"startOrEnd\":\"end\",\"step\":0,\"stepExpr\":null,"
                                 "\"timestamp\":null,\"type\":"
                                 "\"subquery\"}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct errinfo ei = {0};
        struct byte_writer w;

        writer_init(&w);
        CHECK_OK(tree(cases[i].query, 1 << 20, &w, &ei), &ei);
        CHECK_MSG(str_equal((struct str){(const char *)w.data, w.size}, str_from(cases[i].want)),
                  "%s: %.*s", cases[i].query, (int)w.size, (const char *)w.data);
        writer_done(&w);
    }
}

/* A chain is as deep as it is long, and its tree a hundred times as large as its text. */
static void test_limit(void **state)
{
    static char query[2 * 10000 + 2];
    struct errinfo ei = {0};
    struct byte_writer w;

    (void)state;
    for (size_t i = 0; i + 2 < sizeof query; i += 2)
        memcpy(query + i, "1+", 2); /* NOLINT(bugprone-not-null-terminated-result) */
    query[sizeof query - 2] = '1';
    writer_init(&w);
    CHECK_OK(tree(query, 16 << 20, &w, &ei), &ei);
    writer_reset(&w);
    CHECK(tree(query, 1 << 20, &w, &ei) == ERR_LIMIT);
    writer_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
