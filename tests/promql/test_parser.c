/*
 * The parser: what it accepts prints back as Prometheus prints it, and becomes the right tree.
 */
#include <stdio.h>
#include <string.h>

#include "promql/functions.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/parser_kit.h"

static void test_literals(void **state)
{
    static const struct good_case cases[] = {
        {"1", NULL},
        {"0.5", NULL},
        {".5", "0.5"},
        {"5.", "5"},
        {"0x1F", "31"},
        {"0x_1f", "31"},
        {"017", "15"},
        {"089", "89"},
        {"1_000_000", "1000000"},
        {"1e3", "1000"},
        {"1E-3", "0.001"},
        {"-1", NULL},
        {"+1", "1"},
        {"- - -1", "-1"},
        {"Inf", "+Inf"},
        {"-iNf", "-Inf"},
        {"NaN", NULL},
        {"5m", NULL},
        {"-5m", NULL},
        {"90m", "1h30m"},
        {"7d", "1w"},
        {"8d", NULL},
        {"365d", "1y"},
        {"1y2w3d4h5m6s7ms", "382d4h5m6s7ms"},
        {"0s", NULL},
        {"\"a\\tb\"", NULL},
        {"'x\\'y'", "\"x'y\""},
        {"`raw \\n`", "\"raw \\\\n\""},
        {"\"\\x41\\102\\u00e9\\U0001F600\"", "\"AB\xc3\xa9\xf0\x9f\x98\x80\""},
        {"\"\\xff\\u200b\"", NULL},
        {"# first\n1 # second\n# third", "1"},
    };

    (void)state;
    CHECK_GOOD(cases, &parse_stable);
}

static void test_selectors(void **state)
{
    static const struct good_case cases[] = {
        {"up", NULL},
        {"job:up:sum", NULL},
        {"up{}", "up"},
        {"up{job=\"a\",}", "up{job=\"a\"}"},
        {"up{z='1', a!=\"2\", m=~\"x|y\", n!~`.+`}", "up{a!=\"2\",m=~\"x|y\",n!~\".+\",z=\"1\"}"},
        {"{__name__=\"up\"}", NULL},
        {"{__name__=~\"up|down\"}", NULL},
        {"{\"gpu.util\"}", "{__name__=\"gpu.util\"}"},
        {"{\"gpu.util\", \"host.name\"=\"a\"}", "{\"host.name\"=\"a\",__name__=\"gpu.util\"}"},
        {"{__name__=\"\", a=\"x\"}", "{__name__=\"\",a=\"x\"}"},
        {"up{on=\"1\", by=\"2\", offset=\"3\"}", "up{by=\"2\",offset=\"3\",on=\"1\"}"},
        {"up # name\n{ # open\na=\"1\" # matcher\n}", "up{a=\"1\"}"},
        /* keywords as metric names */
        {"sum", NULL},
        {"by + without", NULL},
        {"offset offset 5m", NULL},
        {"start{a=\"b\"}", NULL},
        {"and and or", NULL},
        {"fill + fill_left", NULL},
        {"smoothed", NULL},
        {"step * range / max_of", NULL},
    };

    (void)state;
    CHECK_GOOD(cases, &parse_stable);
}

static void test_ranges_and_shifts(void **state)
{
    static const struct good_case cases[] = {
        {"up[5m]", NULL},
        {"up[300]", "up[5m]"},
        {"up[1.5]", "up[1s500ms]"},
        {"up[0x10]", "up[16s]"},
        {"up[--300]", "up[5m]"},
        {"up[ 5m # comment\n]", "up[5m]"},
        {"up offset 5m", NULL},
        {"up offset -5m", NULL},
        {"up offset +90", "up offset 1m30s"},
        {"up offset 0s", "up"},
        {"up @ 1.5", "up @ 1.500"},
        {"up @ -100", "up @ -100.000"},
        {"up @ 1m", "up @ 60.000"},
        {"up @ start()", NULL},
        {"up @ end() offset 1m", NULL},
        {"up offset 1m @ end()", "up @ end() offset 1m"},
        {"up[5m] offset 1m @ 10", "up[5m] @ 10.000 offset 1m"},
        {"up[1h:5m]", NULL},
        {"up[1h:]", NULL},
        {"up[1h:] offset 1m @ start()", "up[1h:] @ start() offset 1m"},
        {"rate(up[5m])[1h:30] @ 5", "rate(up[5m])[1h:30s] @ 5.000"},
        {"up offset 5m + 3", NULL},
        {"up offset -5m ^ 2", NULL},
        {"(up)[5m:]", NULL},
        {"sum(up)[5m:1m]", NULL},
    };

    (void)state;
    CHECK_GOOD(cases, &parse_stable);
}

static void test_operators(void **state)
{
    static const struct good_case cases[] = {
        {"1+2*3", "1 + 2 * 3"},
        {"a==bool b", "a == bool b"},
        {"a==b", "a == b"},
        {"a</1>/b", "a </ 1 >/ b"},
        {"a!=bool 1", "a != bool 1"},
        {"1 < bool 2", NULL},
        {"a and b or c unless d", NULL},
        {"a atan2 b", NULL},
        {"a - on() b", "a - on () b"},
        {"a - ignoring() b", "a - b"},
        {"a - on(x,) b", "a - on (x) b"},
        {"a / on(x, y) group_left(z) b", "a / on (x, y) group_left (z) b"},
        {"a / on(x) group_right b", "a / on (x) group_right () b"},
        {"a / ignoring(x) group_left() (b)", "a / ignoring (x) group_left () (b)"},
        {"a > bool ignoring(bool, by) b", "a > bool ignoring (bool, by) b"},
        {"a * on(\"x.y\", `z`) b", "a * on (\"x.y\", z) b"},
        {"a and on(x) b", "a and on (x) b"},
        {"+a", NULL},
        {"-a ^ 2", NULL},
        {"2 ^ 3 ^ 2", NULL},
        {"Inf ^ 2 + +Inf", "Inf ^ 2 + +Inf"},
        {"2 ^ -1", NULL},
    };

    (void)state;
    CHECK_GOOD(cases, &parse_stable);
}

static void test_calls_and_aggregations(void **state)
{
    static const struct good_case cases[] = {
        {"sum(up)", NULL},
        {"SUM(up)", "sum(up)"},
        {"sum by() (up)", "sum(up)"},
        {"sum by(a,b,) (up)", "sum by (a, b) (up)"},
        {"sum(up) by (a)", "sum by (a) (up)"},
        {"sum without() (up)", "sum without () (up)"},
        {"count without(\"a.b\", sum) (up)", "count without (\"a.b\", sum) (up)"},
        {"topk(5, up)", NULL},
        {"count_values(\"v\", up)", NULL},
        {"quantile(0.5, sum by (a) (up))", NULL},
        {"group by (a) (min(max(avg(stddev(stdvar(bottomk(1, up)))))))", NULL},
        {"time()", NULL},
        {"pi() + 1", NULL},
        {"rate(up[5m])", NULL},
        {"hour()", NULL},
        {"hour(up)", NULL},
        {"round(up, 5)", NULL},
        {"label_join(up, \"d\", \",\")", NULL},
        {"label_join(up, \"d\", \",\", \"a\", \"b\", \"c\")", NULL},
        {"label_replace(up, \"d\", \"$1\", \"s\", \"(.*)\")", NULL},
        {"histogram_quantile(0.9, sum by (le) (rate(b[5m])))", NULL},
        {"absent_over_time(up[5m:1m])", NULL},
    };

    (void)state;
    CHECK_GOOD(cases, &parse_stable);
}

static void test_info(void **state)
{
    static const struct bad_case cases[] = {
        {"1 + info(a, b)",
         "1:13: parse error: expected label selectors only, got vector selector instead"},
        {"info(a, ({b=\"c\"}))", "1:9: parse error: expected label selectors only"},
        {"1 + info(a, 1)", "1:5: parse error: expected type instant vector in call to function "
                           "\"info\", got scalar"},
        {"info(a, {a=\"\"}, 1)",
         "1:1: parse error: expected at most 2 argument(s) in call to \"info\", got 3"},
        {"info({}, {})",
         "1:6: parse error: vector selector must contain at least one non-empty matcher"},
    };

    (void)state;
    CHECK_BAD(cases, ERR_INVALID, &parse_experimental);
}

static void test_experimental_functions(void **state)
{
    static const struct good_case good[] = {
        {"mad_over_time(up[5m])", NULL},
        {"sort_by_label(up, \"a\", \"b\")", NULL},
        {"info(a)", NULL},
        {"info(a, {})", "info(a, )"},
        {"info(a, {b=\"c\"} @ 3)", "info(a, {b=\"c\"} @ 3.000)"},
        {"limitk by (a) (2, up)", NULL},
        {"limit_ratio(-0.5, up)", NULL},
        {"sort_by_label_desc(up)", NULL},
        {"step() + range() + start() + end()", NULL},
        {"max_of(1, min_of(2, step()))", NULL},
    };
    static const struct bad_case bad[] = {
        {"1 + mad_over_time(up[5m])",
         "1:5: parse error: function \"mad_over_time\" is not enabled"},
        {"1 + limitk(a)", "1:5: parse error: limitk() is experimental and must be enabled with "
                          "--enable-feature=promql-experimental-functions"},
        {"limit_ratio()", "1:1: parse error: no arguments for aggregate expression provided"},
    };

    (void)state;
    CHECK_GOOD(good, &parse_experimental);
    CHECK_BAD(bad, ERR_INVALID, &parse_stable);
}

/* Texts as Prometheus 3.14 prints them. */
static void test_extended_ranges(void **state)
{
    static const struct promql_parse_options extended = {.extended_range_selectors = true};
    static const struct good_case good[] = {
        {"rate(a[5m] smoothed)", NULL},
        {"a anchored", NULL},
        {"rate(a anchored [5m] offset 1m @ 3)", "rate(a[5m] anchored @ 3.000 offset 1m)"},
        {"a smoothed offset 1m @ 3", "a @ 3.000 smoothed offset 1m"},
        {"a smoothed smoothed", "a smoothed"},
        {"smoothed + anchored anchored", NULL},
    };
    static const struct bad_case bad[] = {
        {"1 + a smoothed anchored",
         "1:5: parse error: anchored and smoothed modifiers cannot be used together"},
        {"1 + a[5m:] anchored",
         "1:5: parse error: anchored modifier is not supported for subqueries"},
        {"1 + abs(a) smoothed", "1:5: parse error: smoothed modifier not implemented"},
    };
    static const struct bad_case disabled[] = {
        {"rate(a[5m] smoothed)",
         "1:6: parse error: smoothed modifier is experimental and not enabled"},
        {"1 + abs(a) anchored",
         "1:5: parse error: anchored modifier is experimental and not enabled"},
    };

    (void)state;
    CHECK_GOOD(good, &extended);
    CHECK_BAD(bad, ERR_INVALID, &extended);
    CHECK_BAD(disabled, ERR_INVALID, &parse_stable);
}

/* Texts as Prometheus 3.14 prints them. */
static void test_fill(void **state)
{
    static const struct promql_parse_options fill = {.binop_fill_modifiers = true};
    static const struct good_case good[] = {
        {"a + fill(1e6) b", "a + fill (1e+06) b"},
        {"a+on(x) fill_left(-1) fill_right(2)b", "a + on (x) fill_left (-1) fill_right (2) b"},
        {"a + fill_right(0x10) fill_left(5m) b", "a + fill_left (300) fill_right (16) b"},
        {"a + fill(NaN) b", "a + fill_left (NaN) fill_right (NaN) b"},
        {"a / fill(+Inf) b", "a / fill (+Inf) b"},
        {"a+fill(-0)b", "a + fill (-0) b"},
        {"a + on (x) group_left (y) fill (1) b", NULL},
        {"a + fill", NULL},
    };
    static const struct bad_case bad[] = {
        {"1+fill(1)2", "1:1: parse error: filling in missing series only allowed between instant "
                       "vectors"},
        {"a + on(x) fill(1) 2",
         "1:1: parse error: vector matching only allowed between instant vectors"},
        {"a and fill(1) b",
         "1:1: parse error: filling in missing series not allowed for set operators"},
        {"a + fill(1) fill(2) b", "1:17: parse error: unexpected \"(\""},
        {"a + fill_left(1) group_left b", "1:18: parse error: unexpected <group_left>"},
        {"sum(a + fill() b)", "1:14: parse error: unexpected \")\" in aggregation"},
    };
    static const struct bad_case disabled[] = {
        {"1 + (a + on(x) fill_left(-1) fill_right(2) b)",
         "1:6: parse error: binop fill modifiers are experimental and not enabled"},
    };

    (void)state;
    CHECK_GOOD(good, &fill);
    CHECK_BAD(bad, ERR_INVALID, &fill);
    CHECK_BAD(disabled, ERR_INVALID, &parse_stable);
}

/* The shape of a tree, told by the operators' nesting. */
static void shape(const struct node *n, char *out, size_t size) // NOLINT(misc-no-recursion): small
{
    char a[256], b[256];

    if (n->kind == NODE_BINARY) {
        shape(n->u.binary.lhs, a, sizeof a);
        shape(n->u.binary.rhs, b, sizeof b);
        (void)snprintf(out, size, "(%.100s%s%.100s)", a, binary_op_name(n->u.binary.op), b);
    } else if (n->kind == NODE_UNARY) {
        shape(n->u.unary.expr, a, sizeof a);
        (void)snprintf(out, size, "%s%.200s", n->u.unary.negative ? "-" : "+", a);
    } else {
        (void)snprintf(out, size, "%.*s",
                       n->kind == NODE_SELECTOR ? (int)n->u.selector.name.size : 1,
                       n->kind == NODE_SELECTOR ? n->u.selector.name.data : "#");
    }
}

static void test_precedence(void **state)
{
    static const struct {
        const char *text, *shape;
    } cases[] = {
        {"a+b*c^d", "(a+(b*(c^d)))"},
        {"a^b^c", "(a^(b^c))"},
        {"a-b-c", "((a-b)-c)"},
        {"a*b%c/d", "(((a*b)%c)/d)"},
        {"a atan2 b*c", "((aatan2b)*c)"},
        {"-a^b", "-(a^b)"},
        {"-a*b", "(-a*b)"},
        {"a^-b*c", "((a^-b)*c)"},
        {"a^-b^c", "(a^-(b^c))"},
        {"a+b==c-d", "((a+b)==(c-d))"},
        {"a==b>c", "((a==b)>c)"},
        {"a or b and c unless d", "(aor((bandc)unlessd))"},
        {"a and b==c", "(aand(b==c))"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        char got[256];

        parse(&p, str_from(cases[i].text), &parse_stable);
        CHECK_MSG(p.e == ERR_OK, "%s: %s", cases[i].text, p.ei.message);
        shape(p.expr->root, got, sizeof got);
        CHECK_MSG(strcmp(got, cases[i].shape) == 0, "%s: got %s, want %s", cases[i].text, got,
                  cases[i].shape);
        parsed_done(&p);
    }
}

static void test_tree(void **state)
{
    struct parsed p;
    const struct node *n;

    (void)state;
    parse(&p, STR_LITERAL("1 + sum by (a) (rate(up{x=\"y\"}[300] offset -1.5 @ 10))"),
          &parse_stable);
    CHECK_OK(p.e, &p.ei);
    n = p.expr->root;
    CHECK(n->kind == NODE_BINARY && n->type == VALUE_VECTOR);
    CHECK(n->position.start == 0 && n->position.end == p.expr->text.size);
    CHECK(n->u.binary.op_position.start == 2 && n->u.binary.op_position.end == 3);
    CHECK(n->u.binary.lhs->type == VALUE_SCALAR && n->u.binary.lhs->u.number.value == 1);
    n = n->u.binary.rhs;
    CHECK(n->kind == NODE_AGGREGATE && n->u.aggregate.label_count == 1);
    n = n->u.aggregate.expr;
    CHECK(n->kind == NODE_CALL && n->u.call.function->id == FUNCTION_RATE);
    CHECK(n->position.start == 16 && n->position.end == 53);
    n = n->u.call.args[0];
    CHECK(n->kind == NODE_MATRIX && n->u.matrix.range_ms == 300000 && n->position.end == 52);
    n = n->u.matrix.selector;
    CHECK(n->u.selector.shift.offset_ms == -1500 && n->u.selector.shift.at == AT_TIME);
    CHECK(n->u.selector.shift.at_ms == 10000);
    CHECK(n->u.selector.matcher_count == 2 && p.expr->matcher_count == 2);
    CHECK(str_equal(n->u.selector.matchers[1].name, LABEL_METRIC_NAME));
    CHECK(p.expr->matchers[0] == &n->u.selector.matchers[0]);
    parsed_done(&p);
}

static void test_positions(void **state)
{
    static const struct {
        const char *text;
        uint32_t offset;
        const char *want;
    } cases[] = {
        {"", 0, "unknown position"}, {"a", 0, "1:1"},         {"a", 1, "1:2"},
        {"a\nbc", 3, "2:2"},         {"\xc3\xa9x", 2, "1:3"}, {"a", 2, "invalid position"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[32];

        promql_position_text(str_from(cases[i].text), cases[i].offset, got, sizeof got);
        assert_string_equal(got, cases[i].want);
    }
}

static void test_parse_selector(void **state)
{
    struct arena arena;
    struct matcher *matchers = NULL;
    size_t count = 0;
    struct errinfo ei = {0};

    (void)state;
    arena_init(&arena, NULL);
    CHECK_OK(promql_parse_selector(STR_LITERAL("up{a=~\"b.+c\", d!=\"e\"}"), &arena, &matchers,
                                   &count, &ei),
             &ei);
    CHECK(count == 3);
    CHECK(matchers[0].kind == MATCHER_REGEX && matcher_matches(&matchers[0], str_from("bxc")));
    CHECK(str_equal(matchers[2].value, str_from("up")));
    for (size_t i = 0; i < count; i++)
        matcher_done(&matchers[i]);
    CHECK_OK(promql_parse_selector(STR_LITERAL("{}"), &arena, &matchers, &count, &ei), &ei);
    CHECK(count == 0);
    CHECK(promql_parse_selector(STR_LITERAL("up[5m]"), &arena, &matchers, &count, &ei) ==
          ERR_INVALID);
    assert_string_equal(ei.message, "1:3: parse error: unexpected \"[\"");
    arena_done(&arena);
}

static void test_functions(void **state)
{
    (void)state;
    CHECK(FUNCTION_COUNT == 91); /* Prometheus 3.14's 90 and default_rollup() */
    for (unsigned i = 0; i < FUNCTION_COUNT; i++) {
        const struct promql_function *f = promql_function_get((enum function_id)i);

        CHECK(f->id == i && f->arg_count <= FUNCTION_ARG_MAX);
        CHECK_MSG(promql_function_find(str_from(f->name)) == f, "%s", f->name);
        if (i > 0)
            CHECK(strcmp(promql_function_get((enum function_id)(i - 1))->name, f->name) < 0);
    }
    CHECK(promql_function_find(STR_LITERAL("")) == NULL);
    CHECK(promql_function_find(STR_LITERAL("ab")) == NULL);
    CHECK(promql_function_find(STR_LITERAL("zz")) == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_selectors),
        cmocka_unit_test(test_ranges_and_shifts),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_calls_and_aggregations),
        cmocka_unit_test(test_experimental_functions),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_extended_ranges),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_parse_selector),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
