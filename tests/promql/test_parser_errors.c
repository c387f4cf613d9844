/*
 * What the parser refuses: Prometheus's message and position, word for word.
 */
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/parser_kit.h"

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
    CHECK_BAD(cases, ERR_INVALID, &parse_stable);
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
    CHECK_BAD(cases, ERR_INVALID, &parse_stable);
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
    CHECK_BAD(cases, ERR_INVALID, &parse_stable);
}

static void test_regex_error(void **state)
{
    struct parsed p;

    (void)state;
    parse(&p, STR_LITERAL("a{b=\"c\", d=~\"(\", e=~\"f+\"} $"), &parse_stable);
    CHECK(p.e == ERR_INVALID);
    CHECK_MSG(strncmp(p.ei.message, "1:10: parse error: ", 19) == 0, "%s", p.ei.message);
    parsed_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scanner_errors),
        cmocka_unit_test(test_syntax_errors),
        cmocka_unit_test(test_type_errors),
        cmocka_unit_test(test_regex_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
