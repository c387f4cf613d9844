/*
 * The parser: what it accepts prints back as Prometheus prints it, what it refuses gets
 * Prometheus's message and position, random trees survive a round trip, and limits hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "promql/ast.h"
#include "promql/functions.h"
#include "tests/lib/test_support.h"

static const struct promql_parse_options stable = {.experimental_functions = false};
static const struct promql_parse_options experimental = {.experimental_functions = true};

struct parsed {
    struct arena arena;
    struct promql_expr *expr;
    struct errinfo ei;
    enum err e;
};

static void parse(struct parsed *out, struct str text, const struct promql_parse_options *options)
{
    *out = (struct parsed){0};
    arena_init(&out->arena, NULL);
    out->e = promql_parse(text, options, &out->arena, &out->expr, &out->ei);
}

static void parsed_done(struct parsed *p)
{
    promql_expr_done(p->expr);
    arena_done(&p->arena);
}

struct good_case {
    const char *text, *printed; /* NULL: as written */
};

static void check_good(const struct good_case *cases, size_t count,
                       const struct promql_parse_options *options)
{
    for (size_t i = 0; i < count; i++) {
        const char *want = cases[i].printed != NULL ? cases[i].printed : cases[i].text;
        struct parsed p;
        char *got;

        parse(&p, str_from(cases[i].text), options);
        CHECK_MSG(p.e == ERR_OK, "%s: %s", cases[i].text, p.ei.message);
        got = promql_node_format(p.expr->root, &p.arena);
        CHECK_MSG(got != NULL && strcmp(got, want) == 0, "%s: printed as %s, want %s",
                  cases[i].text, got, want);
        parsed_done(&p);
    }
}

#define CHECK_GOOD(cases, options) check_good(cases, sizeof(cases) / sizeof((cases)[0]), options)

struct bad_case {
    const char *text, *message;
};

static void check_bad(const struct bad_case *cases, size_t count, enum err want,
                      const struct promql_parse_options *options)
{
    for (size_t i = 0; i < count; i++) {
        struct parsed p;

        parse(&p, str_from(cases[i].text), options);
        CHECK_MSG(p.e == want, "%s: %s, %s", cases[i].text, err_name(p.e), p.ei.message);
        CHECK_MSG(strcmp(p.ei.message, cases[i].message) == 0, "%s: got  %s\nwant %s",
                  cases[i].text, p.ei.message, cases[i].message);
        parsed_done(&p);
    }
}

#define CHECK_BAD(cases, code, options)                                                            \
    check_bad(cases, sizeof(cases) / sizeof((cases)[0]), code, options)

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
    CHECK_GOOD(cases, &stable);
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
    CHECK_GOOD(cases, &stable);
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
    CHECK_GOOD(cases, &stable);
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
    CHECK_GOOD(cases, &stable);
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
    CHECK_GOOD(cases, &stable);
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
    CHECK_BAD(cases, ERR_INVALID, &experimental);
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
    CHECK_GOOD(good, &experimental);
    CHECK_BAD(bad, ERR_INVALID, &stable);
}

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
    CHECK_GOOD(good, &stable);
    CHECK_BAD(bad, ERR_INVALID, &stable);
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
    CHECK(promql_parse((struct str){text, used}, &stable, &arena, &expr, &ei) == ERR_LIMIT);
    text[used - 3] = ']';
    CHECK_OK(promql_parse((struct str){text, used - 2}, &stable, &arena, &expr, &ei), &ei);
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
        CHECK_OK(promql_parse(str_from(arena_printf(&arena, "a[%s]", cases[i].text)), &stable,
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
    CHECK_BAD(disabled, ERR_INVALID, &stable);
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
    CHECK_BAD(disabled, ERR_INVALID, &stable);
}

static void test_scanner_errors(void **state)
{
    static const struct bad_case cases[] = {
        {"", "unknown position: parse error: no expression found in input"},
        {" # nothing\n", "1:1: parse error: no expression found in input"},
        {".", "1:1: parse error: unexpected character: '.'"},
        {"a $ b", "1:3: parse error: unexpected character: '$'"},
        {"a \xc3\xa9", "1:3: parse error: unexpected character: '\xc3\xa9'"},
        {"a \x01", "1:3: parse error: unexpected character: '\\x01'"},
        {"a \xff", "1:3: parse error: unexpected character: '\xef\xbf\xbd'"},
        {"1..5", "1:1: parse error: bad number or duration syntax: \"1..\""},
        {"1 + 5mm", "1:5: parse error: bad number or duration syntax: \"5mm\""},
        {"1_", "1:1: parse error: bad number or duration syntax: \"1_\""},
        {"1__0", "1:1: parse error: bad number or duration syntax: \"1__\""},
        {"0x1.8p1", "1:1: parse error: bad number or duration syntax: \"0x1.\""},
        {"0xbeef", "1:1: parse error: bad number or duration syntax: \"0xbee\""},
        {"(1", "1:3: parse error: unclosed left parenthesis"},
        {"1)", "1:3: parse error: unexpected right parenthesis ')'"},
        {"a]", "1:2: parse error: unexpected right bracket ']'"},
        {"a}", "1:2: parse error: unexpected character: '}'"},
        {"a{", "1:3: parse error: unexpected end of input inside braces"},
        {"a{{", "1:3: parse error: unexpected left brace '{'"},
        {"a{b*\"c\"}", "1:4: parse error: unexpected character inside braces: '*'"},
        {"a{b!c}", "1:4: parse error: unexpected character after '!' inside braces: 'c'"},
        {"1 ! 2", "1:3: parse error: unexpected character after '!': ' '"},
        {"1 =~ 2", "1:3: parse error: unexpected character after '=': '~'"},
        {"\"open", "1:1: parse error: unterminated quoted string"},
        {"\"line\nbreak\"", "1:1: parse error: unterminated quoted string"},
        {"`open", "1:1: parse error: unterminated raw string"},
        {"'\xff'", "1:1: parse error: invalid UTF-8 rune"},
        {"\"\\q\"", "1:1: parse error: unknown escape sequence U+0071 'q'"},
        {"\"\\x4g\"", "1:1: parse error: illegal character U+0067 'g' in escape sequence"},
        {"\"\\ud800\"", "1:1: parse error: escape sequence is an invalid Unicode code point"},
        {"\"\\", "1:1: parse error: escape sequence not terminated"},
        {"a[", "1:3: parse error: unexpected end of input in duration expression"},
        {"a[5m", "1:5: parse error: unclosed left bracket"},
        {"a[:5m]", "1:4: parse error: unexpected colon before duration in duration expression"},
        {"a[5m x]", "1:6: parse error: unexpected character: 'x', expected ':'"},
        {"a[\"5m\"]", "1:3: parse error: unexpected character in duration expression: '\"'"},
        {"a[5m:1m:2m]", "1:8: parse error: unexpected colon ':'"},
        {"a[5m[", "1:5: parse error: unexpected left bracket '['"},
    };

    (void)state;
    CHECK_BAD(cases, ERR_INVALID, &stable);
}

static void test_syntax_errors(void **state)
{
    static const struct bad_case cases[] = {
        {"1 +", "1:4: parse error: unexpected end of input"},
        {"* 1", "1:1: parse error: unexpected <op:*>"},
        {"-=", "1:2: parse error: unexpected \"=\""},
        {"a b", "1:3: parse error: unexpected identifier \"b\""},
        {"a\n  b", "2:3: parse error: unexpected identifier \"b\""},
        {"a 5", "1:3: parse error: unexpected number \"5\""},
        {"a 5m", "1:3: parse error: unexpected duration \"5m\""},
        {"a:b a:c", "1:5: parse error: unexpected metric identifier \"a:c\""},
        {"a \"a long string\"", "1:3: parse error: unexpected string \"\\\"a long st\"..."},
        {"a by", "1:3: parse error: unexpected <by>"},
        {"a sum", "1:3: parse error: unexpected <aggr:sum>"},
        {"a:b()", "1:4: parse error: unexpected \"(\""},
        {"bool", "1:1: parse error: unexpected <bool>"},
        {"a + group_left(b) c", "1:5: parse error: unexpected <group_left>"},
        {"a + on(x) ignoring(y) b", "1:11: parse error: unexpected <ignoring>"},
        {"sum by (a) (b) by (c)", "1:16: parse error: unexpected <by>"},
        {"sum(a b)", "1:7: parse error: unexpected identifier \"b\" in aggregation"},
        {"sum(abs(a b))", "1:11: parse error: unexpected identifier \"b\" in aggregation"},
        {"sum by (a) b", "1:12: parse error: unexpected identifier \"b\" in aggregation"},
        {"sum a", "1:5: parse error: unexpected identifier \"a\""},
        {"sum by a", "1:8: parse error: unexpected identifier \"a\" in grouping opts, "
                     "expected \"(\""},
        {"sum by (1) (a)",
         "1:9: parse error: unexpected number \"1\" in grouping opts, expected label"},
        {"sum by (without) (a)",
         "1:9: parse error: unexpected <without> in grouping opts, expected label"},
        {"sum by (a b) (c)", "1:11: parse error: unexpected identifier \"b\" in grouping opts, "
                             "expected \",\" or \")\""},
        {"sum by (,) (a)", "1:9: parse error: unexpected \",\" in grouping opts, expected label"},
        {"sum by (\"\") (a)", "1:9: parse error: invalid label name for grouping: \"\""},
        {"sum by (\"\\xff\") (a)", "1:9: parse error: invalid label name for grouping: \"\\xff\""},
        {"sum()", "1:1: parse error: no arguments for aggregate expression provided"},
        {"topk(a)", "1:1: parse error: wrong number of arguments for aggregate expression "
                    "provided, expected 2, got 1"},
        {"sum(a, b)", "1:1: parse error: wrong number of arguments for aggregate expression "
                      "provided, expected 1, got 2"},
        {"abs(a,)", "1:6: parse error: trailing commas not allowed in function call args"},
        {"nope(a)", "1:1: parse error: unknown function with name \"nope\""},
        {"nope(a) + $", "1:1: parse error: unknown function with name \"nope\""},
        {"a{,}", "1:3: parse error: unexpected \",\" in label matching, expected identifier or "
                 "\"}\""},
        {"a{b}", "1:4: parse error: unexpected \"}\" in label matching, expected label matching "
                 "operator"},
        {"a{b=}", "1:5: parse error: unexpected \"}\" in label matching, expected string"},
        {"a{b=\"c\" d}", "1:9: parse error: unexpected identifier \"d\" in label matching, "
                         "expected \",\" or \"}\""},
        {"a[]", "1:3: parse error: unexpected \"]\" in subquery or range selector, expected "
                "number, duration, step(), or range()"},
        {"a[5m 5m]", "1:6: parse error: unexpected duration \"5m\" in subquery or range, "
                     "expected \":\" or \"]\""},
        {"a[5m:(]", "1:7: parse error: unexpected \"]\" in subquery selector, expected number, "
                    "duration, step(), range(), or \"]\""},
        {"a[5m:1m 1m]", "1:9: parse error: unexpected duration \"1m\" in subquery selector, "
                        "expected \"]\""},
        {"a[0]", "1:3: parse error: duration must be greater than 0"},
        {"a[-5m]", "1:3: parse error: duration must be greater than 0"},
        {"a[5m:0s]", "1:6: parse error: duration must be greater than 0"},
        {"a[9.5e10]", "1:3: parse error: duration out of range"},
        {"a[300y]", "1:3: parse error: duration out of range"},
        {"a[1m1h]", "1:3: parse error: not a valid duration string: \"1m1h\""},
        {"a[1hs]", "1:3: parse error: unknown unit \"hs\" in duration \"1hs\""},
        {"a[5s/0]", "1:5: parse error: division by zero"},
        {"(a + b)[5m]", "1:8: parse error: ranges only allowed for vector selectors"},
        {"a offset 1m[5m]", "1:12: parse error: no offset modifiers allowed before range"},
        {"a @ 1 [5m]", "1:7: parse error: no @ modifiers allowed before range"},
        {"a offset", "1:9: parse error: unexpected end of input in offset, expected number, "
                     "duration, step(), or range()"},
        {"a offset b", "1:10: parse error: unexpected identifier \"b\" in offset, expected "
                       "number, duration, step(), or range()"},
        {"a offset 1m offset 2m", "1:1: parse error: offset may not be set multiple times"},
        {"1 + abs(a) offset 1m",
         "1:5: parse error: offset modifier must be preceded by an instant vector selector or "
         "range vector selector or a subquery"},
        {"a @", "1:4: parse error: unexpected end of input in @, expected timestamp"},
        {"a @ start", "1:10: parse error: unexpected end of input in @, expected timestamp"},
        {"a @ 1 @ 2", "1:1: parse error: @ <timestamp> may not be set multiple times"},
        {"a @ Inf", "1:1: parse error: timestamp out of bounds for @ modifier: +Inf"},
        {"a @ 1e19",
         "1:1: parse error: timestamp out of bounds for @ modifier: 10000000000000000000.000000"},
        {"1 @ 2", "1:1: parse error: @ modifier must be preceded by an instant vector selector "
                  "or range vector selector or a subquery"},
        {"1e999", "1:1: parse error: error parsing number: strconv.ParseFloat: parsing "
                  "\"1e999\": value out of range"},
        {"a / on (b) group_left",
         "1:22: parse error: unexpected end of input in grouping opts, expected \"(\""},
        {"a / on (b) group_left * c",
         "1:23: parse error: unexpected <op:*> in grouping opts, expected \"(\""},
        {"a offset -Inf", "1:10: parse error: duration out of range"},
        {"a offset NaN", "1:10: parse error: duration out of range"},
        {"a[5m/0$]", "1:7: parse error: unexpected character: '$'"},
        {"1_a", "1:1: parse error: bad number or duration syntax: \"1_\""},
    };

    (void)state;
    CHECK_BAD(cases, ERR_INVALID, &stable);
}

static void test_type_errors(void **state)
{
    static const struct bad_case cases[] = {
        {"rate(a)", "1:6: parse error: expected type range vector in call to function \"rate\", "
                    "got instant vector"},
        {"abs(a[5m])", "1:5: parse error: expected type instant vector in call to function "
                       "\"abs\", got range vector"},
        {"abs(\"x\")", "1:5: parse error: expected type instant vector in call to function "
                       "\"abs\", got string"},
        {"label_join(a, \"b\", \"c\", d)", "1:25: parse error: expected type string in call to "
                                           "function \"label_join\", got instant vector"},
        {"abs()", "1:1: parse error: expected 1 argument(s) in call to \"abs\", got 0"},
        {"time(a)", "1:1: parse error: expected 0 argument(s) in call to \"time\", got 1"},
        {"round()", "1:1: parse error: expected at least 1 argument(s) in call to \"round\", "
                    "got 0"},
        {"hour(a, b)", "1:1: parse error: expected at most 1 argument(s) in call to \"hour\", "
                       "got 2"},
        {"label_join(a)", "1:1: parse error: expected at least 3 argument(s) in call to "
                          "\"label_join\", got 1"},
        {"sum(1)", "1:5: parse error: expected type instant vector in aggregation expression, "
                   "got scalar"},
        {"topk(a, b)", "1:6: parse error: expected type scalar in aggregation parameter, got "
                       "instant vector"},
        {"count_values(1, a)", "1:14: parse error: expected type string in aggregation "
                               "parameter, got scalar"},
        {"1 == 2", "1:3: parse error: comparisons between scalars must use BOOL modifier"},
        {"a + bool b", "1:3: parse error: bool modifier can only be used on comparison "
                       "operators"},
        {"a and 1", "1:1: parse error: set operator \"and\" not allowed in binary scalar "
                    "expression"},
        {"a + on(x) 1", "1:1: parse error: vector matching only allowed between instant "
                        "vectors"},
        {"a or on(x) group_left(y) b", "1:1: parse error: no grouping allowed for \"or\" "
                                       "operation"},
        {"a + on(x) group_left(x) b", "1:3: parse error: label \"x\" must not occur in ON and "
                                      "GROUP clause at once"},
        {"a[5m] + b", "1:1: parse error: binary expression must contain only scalar and instant "
                      "vector types"},
        {"1 + \"x\"", "1:5: parse error: binary expression must contain only scalar and instant "
                      "vector types"},
        {"-a[5m]", "1:1: parse error: unary expression only allowed on expressions of type "
                   "scalar or instant vector, got \"range vector\""},
        {"a[5m][5m:]", "1:1: parse error: subquery is only allowed on instant vector, got "
                       "matrix instead"},
        {"1[5m:]", "1:1: parse error: subquery is only allowed on instant vector, got scalar "
                   "instead"},
        {"{}", "1:1: parse error: vector selector must contain at least one non-empty matcher"},
        {"{a=\"\"}",
         "1:1: parse error: vector selector must contain at least one non-empty matcher"},
        {"{a=~\".*\"}",
         "1:1: parse error: vector selector must contain at least one non-empty matcher"},
        {"{a!=\"x\"}",
         "1:1: parse error: vector selector must contain at least one non-empty matcher"},
        {"1 + a{__name__=\"b\"}",
         "1:5: parse error: metric name must not be set twice: \"a\" or \"b\""},
    };

    (void)state;
    CHECK_BAD(cases, ERR_INVALID, &stable);
}

static void test_regex_error(void **state)
{
    struct parsed p;

    (void)state;
    parse(&p, STR_LITERAL("a{b=\"c\", d=~\"(\", e=~\"f+\"} $"), &stable);
    CHECK(p.e == ERR_INVALID);
    CHECK_MSG(strncmp(p.ei.message, "1:10: parse error: ", 19) == 0, "%s", p.ei.message);
    parsed_done(&p);
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

        parse(&p, str_from(cases[i].text), &stable);
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
    parse(&p, STR_LITERAL("1 + sum by (a) (rate(up{x=\"y\"}[300] offset -1.5 @ 10))"), &stable);
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

    parse(&p, str_from(text), &stable);
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
        CHECK_MSG(promql_parse(str_from(text), &stable, &arena, &expr, &ei) ==
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
        e = promql_parse(STR_LITERAL(text), &stable, &arena, &expr, &ei);
        /* The text ends wrongly (offset on a call), so success is that error. */
        CHECK_MSG(e == ERR_LIMIT || e == ERR_INVALID, "%s: %s", err_name(e), ei.message);
        successes += e == ERR_INVALID;
        arena_done(&arena);
        CHECK(budget_used(&budget) == 0);
    }
    CHECK(successes > 0);
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

/* A random expression of the wanted type; deeper levels get rarer. */
static void generate(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                     struct byte_writer *w, enum value_type type, int depth);

static const char *choose(struct test_random *r, const char *const *from, size_t count)
{
    return from[test_random_below(r, count)];
}
#define CHOOSE(r, ...)                                                                             \
    choose(r, (const char *const[]){__VA_ARGS__},                                                  \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void generate_shift(struct test_random *r, struct byte_writer *w)
{
    if (test_random_below(r, 4) == 0)
        writer_printf(w, "%s", CHOOSE(r, " @ 5", " @ start()", " @ end()", " @ -1.25"));
    if (test_random_below(r, 4) == 0)
        writer_printf(w, "%s", CHOOSE(r, " offset 5m", " offset -90", " OFFSET 1.5"));
}

static void generate_selector(struct test_random *r, struct byte_writer *w)
{
    writer_printf(w, "%s",
                  CHOOSE(r, "up", "sum", "a:b", "{\"x.y\",k='v'}", "m{a=\"1\",b!=\"\"}", "by{}",
                         "{z=~\"a|b\",__name__!~\"c.*\"}", "offset{\"o o\"=`\\`}"));
}

static void generate_scalar(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                            struct byte_writer *w, int depth)
{
    switch (test_random_below(r, depth > 0 ? 6 : 2)) {
    case 0:
        writer_printf(w, "%s", CHOOSE(r, "1", "-0.5", "Inf", "NaN", "5m", "0x1f", "1e-3", "017"));
        break;
    case 1:
        writer_printf(w, "%s", CHOOSE(r, "time()", "pi()"));
        break;
    case 2:
        writer_printf(w, "scalar(");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")");
        break;
    case 3:
        writer_printf(w, "(");
        generate(r, w, VALUE_SCALAR, depth - 1);
        writer_printf(w, ")");
        break;
    case 4:
        writer_printf(w, "%s", CHOOSE(r, "-", "+"));
        generate(r, w, VALUE_SCALAR, depth - 1);
        break;
    default:
        generate(r, w, VALUE_SCALAR, depth - 1);
        writer_printf(w, " %s ", CHOOSE(r, "+", "-", "*", "/", "%", "^", "atan2", "== bool"));
        generate(r, w, VALUE_SCALAR, depth - 1);
    }
}

static void generate_binary(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                            struct byte_writer *w, int depth)
{
    generate(r, w, VALUE_VECTOR, depth - 1);
    writer_printf(w, " ");
    switch (test_random_below(r, 3)) {
    case 0:
        writer_printf(w, "%s", CHOOSE(r, "and", "or on(a)", "unless ignoring(b, \"c d\")"));
        break;
    case 1:
        writer_printf(w, "%s", CHOOSE(r, "> bool", "<= on() group_left()", "!= bool on(a)"));
        break;
    default:
        writer_printf(w, "%s%s", CHOOSE(r, "+", "-", "*", "/", "%", "^", "atan2"),
                      CHOOSE(r, "", " on(a)", " ignoring(a) group_right(b,c)"));
    }
    writer_printf(w, " ");
    generate(r, w, VALUE_VECTOR, depth - 1);
}

static void generate_vector(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                            struct byte_writer *w, int depth)
{
    switch (test_random_below(r, depth > 0 ? 7 : 1)) {
    case 0:
        generate_selector(r, w);
        generate_shift(r, w);
        break;
    case 1:
        writer_printf(w, "%s(", CHOOSE(r, "rate", "avg_over_time", "changes", "absent_over_time"));
        generate(r, w, VALUE_MATRIX, depth - 1);
        writer_printf(w, ")");
        break;
    case 2:
        writer_printf(w, "%s(", CHOOSE(r, "sum", "min by(a)", "max without()", "avg by(\"b c\")"));
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")");
        break;
    case 3:
        writer_printf(w, "topk(");
        generate(r, w, VALUE_SCALAR, depth - 1);
        writer_printf(w, ",");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")%s", CHOOSE(r, "", " by (x)", " without (\"y.z\",)"));
        break;
    case 4:
        writer_printf(w, "(");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")");
        break;
    case 5:
        writer_printf(w, "-");
        generate(r, w, VALUE_VECTOR, depth - 1);
        break;
    default:
        generate_binary(r, w, depth);
    }
}

static void generate(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                     struct byte_writer *w, enum value_type type, int depth)
{
    if (type == VALUE_SCALAR) {
        generate_scalar(r, w, depth);
    } else if (type == VALUE_VECTOR) {
        generate_vector(r, w, depth);
    } else if (depth > 0 && test_random_below(r, 2) == 0) {
        writer_printf(w, "(");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")%s", CHOOSE(r, "[1h:]", "[90:1m]", "[1.5:0.5]"));
        generate_shift(r, w);
    } else {
        generate_selector(r, w);
        writer_printf(w, "%s", CHOOSE(r, "[5m]", "[300]", "[1h30m]", "[0.25]"));
        generate_shift(r, w);
    }
}

static void test_round_trip(void **state)
{
    struct test_random r = test_random_init(0x9a55e4);
    struct byte_writer w;
    size_t parsed_count = 0;

    (void)state;
    writer_init(&w);
    for (int i = 0; i < 4000; i++) {
        struct parsed first, second;
        char *once, *twice;

        writer_reset(&w);
        generate(&r, &w, test_random_below(&r, 5) == 0 ? VALUE_SCALAR : VALUE_VECTOR, 5);
        CHECK(!w.failed);
        parse(&first, (struct str){(char *)w.data, w.size}, &stable);
        /* A sign or an operator in front of another expression may bind another way than it was
         * made, and then types may clash: that is the only error there can be. */
        if (first.e != ERR_OK) {
            CHECK_MSG(strstr(first.ei.message, "must use BOOL") != NULL ||
                          strstr(first.ei.message, "matching only allowed") != NULL ||
                          strstr(first.ei.message, "not allowed in binary scalar") != NULL,
                      "%.*s: %s", (int)w.size, (char *)w.data, first.ei.message);
            parsed_done(&first);
            continue;
        }
        parsed_count++;
        once = promql_node_format(first.expr->root, &first.arena);
        CHECK(once != NULL);
        parse(&second, str_from(once), &stable);
        CHECK_MSG(second.e == ERR_OK, "%.*s printed as %s: %s", (int)w.size, (char *)w.data, once,
                  second.ei.message);
        twice = promql_node_format(second.expr->root, &second.arena);
        CHECK_MSG(twice != NULL && strcmp(once, twice) == 0, "%s printed as %s", once, twice);
        parsed_done(&second);
        parsed_done(&first);
    }
    CHECK_MSG(parsed_count > 3000, "%zu", parsed_count);
    writer_done(&w);
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
        cmocka_unit_test(test_duration_expressions),
        cmocka_unit_test(test_duration_depth),
        cmocka_unit_test(test_duration_values),
        cmocka_unit_test(test_scanner_errors),
        cmocka_unit_test(test_syntax_errors),
        cmocka_unit_test(test_type_errors),
        cmocka_unit_test(test_regex_error),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_nesting_limit),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_size_limit),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_regex_budget),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_parse_selector),
        cmocka_unit_test(test_round_trip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
