/* Regular expressions: anchoring, what is rewritten and what is not, captures, limits. */
#include "base/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static struct regex *compile_ok(const char *pattern)
{
    struct regex *re = NULL;
    struct errinfo ei = {0};

    CHECK_MSG(regex_compile(str_from(pattern), &re, &ei) == ERR_OK, "%s: %s", pattern, ei.message);
    return re;
}

static bool matches(const char *pattern, const char *text)
{
    struct regex *re = compile_ok(pattern);
    bool matched = regex_match(re, str_from(text));
    struct regex_span whole = {7, 7};

    CHECK(regex_captures(re, str_from(text), &whole, 1) == matched);
    CHECK(!matched || (whole.begin == 0 && whole.end == strlen(text)));
    CHECK(regex_captures(re, str_from(text), &whole, 0) == matched);
    regex_free(re);
    return matched;
}

static void check_invalid(const char *pattern, enum err want)
{
    struct regex *re = (struct regex *)1;
    struct errinfo ei = {0};

    CHECK_MSG(regex_compile(str_from(pattern), &re, &ei) == want, "%s: %s", pattern, ei.message);
    CHECK(re == (struct regex *)1 && ei.code == want && ei.message[0] != '\0');
    CHECK(regex_compile(str_from(pattern), &re, NULL) == want);
}

static void test_anchoring(void **state)
{
    (void)state;
    CHECK(matches("abc", "abc") && !matches("abc", "xabc") && !matches("abc", "abcx"));
    CHECK(matches("a|bc", "bc") && !matches("a|bc", "ac") && !matches("a|b", "ab"));
    CHECK(matches("", "") && !matches("", "a"));
    CHECK(matches(".*", "") && matches(".+", "a\nb")); /* dot takes newlines */
    CHECK(!matches("(?-s:.+)", "a\nb"));
    CHECK(matches("a|ab", "ab")); /* anchors first, then preference */
    CHECK(!matches("abc", "abc\n"));
    CHECK(matches("^abc$", "abc"));
    CHECK(matches("(?i)ABC", "abc"));
    CHECK(matches(".", "\xc3\xa9") && matches("\\pL+", "\xc3\xa9t\xc3\xa9"));
    check_invalid("a)(b", ERR_INVALID); /* cannot close a group around the pattern */
}

static void test_invalid(void **state)
{
    static const char *const bad[] = {"(",       "[",    "*",       "a**",
                                      "a{2001}", "\\",   "(?<=a)b", "(?<!a)b",
                                      "(?=a)",   "\\1",  "[z-a]",   "(?P<n>a)(?P<n>b)",
                                      "\xff",    "(?<n", "(?<>a)",  "\\8",
                                      "a\\C",    "\\C",  "[\\C]",   "x\\Q\\C\\E\\C"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_invalid(bad[i], ERR_INVALID);
}

static void test_limits(void **state)
{
    char *pattern = malloc(REGEX_MAX_PATTERN_BYTES + 2);

    (void)state;
    CHECK(pattern != NULL);
    memset(pattern, 'a', REGEX_MAX_PATTERN_BYTES + 1);
    pattern[REGEX_MAX_PATTERN_BYTES + 1] = '\0';
    check_invalid(pattern, ERR_LIMIT);
    pattern[REGEX_MAX_PATTERN_BYTES] = '\0';
    struct regex *re = compile_ok(pattern);
    CHECK(regex_memory(re) > REGEX_MAX_PATTERN_BYTES);
    CHECK(regex_match(re, str_from(pattern)));
    regex_free(re);
    /* An alternation as long as a pattern may be compiles; what repetitions blow up does not. */
    for (size_t i = 7; i < REGEX_MAX_PATTERN_BYTES; i += 8)
        pattern[i] = '|';
    for (size_t i = 0; i < REGEX_MAX_PATTERN_BYTES; i += 8)
        pattern[i] = (char)('b' + i / 8 % 20);
    re = compile_ok(pattern);
    CHECK(regex_match(re, str_from("baaaaaa")));
    regex_free(re);
    for (size_t i = 0; i < 100; i++)
        memcpy(pattern + i * 9, "\\pL{1000}", 10);
    check_invalid(pattern, ERR_LIMIT);
    free(pattern);
    regex_free(compile_ok("\\pL{1000}"));
    check_invalid("((a{1000}){1000}){1000}", ERR_INVALID);
    regex_free(NULL);
}

static void test_named_groups(void **state)
{
    struct regex *re = compile_ok("(?<first>a+)-(?P<second>b)?(c)?");
    struct regex_span spans[6];

    (void)state;
    CHECK(regex_group_count(re) == 3);
    CHECK(regex_group_index(re, STR_LITERAL("first")) == 1);
    CHECK(regex_group_index(re, STR_LITERAL("second")) == 2);
    CHECK(regex_group_index(re, STR_LITERAL("third")) == 0);
    CHECK(regex_group_index(re, (struct str){NULL, 0}) == 0);
    CHECK(regex_captures(re, STR_LITERAL("aa-c"), spans, 6));
    CHECK(spans[0].begin == 0 && spans[0].end == 4);
    CHECK(spans[1].begin == 0 && spans[1].end == 2);
    CHECK(spans[2].begin == SIZE_MAX && spans[2].end == SIZE_MAX);
    CHECK(spans[3].begin == 3 && spans[3].end == 4);
    CHECK(spans[4].begin == SIZE_MAX && spans[5].begin == SIZE_MAX); /* beyond the last group */
    CHECK(!regex_captures(re, STR_LITERAL("-"), spans, 6));
    regex_free(re);
}

static void test_empty_text_captures(void **state)
{
    struct regex *re = compile_ok("(a*)(b)?");
    struct regex_span spans[3];

    (void)state;
    CHECK(regex_match(re, (struct str){NULL, 0}));
    CHECK(regex_captures(re, (struct str){NULL, 0}, spans, 3));
    CHECK(spans[0].begin == 0 && spans[0].end == 0);
    CHECK(spans[1].begin == 0 && spans[1].end == 0);
    CHECK(spans[2].begin == SIZE_MAX);
    regex_free(re);
}

/* `(?<` is text, not a group, in each of these. */
static void test_rewriting_respects_context(void **state)
{
    (void)state;
    CHECK(matches("\\(?<a>", "(<a>") && matches("\\(?<a>", "<a>"));
    CHECK(matches("[(?<n>]+", "<n>(?"));
    CHECK(matches("[](?<n>]+", "](?<n>"));
    CHECK(matches("[^](?<n>]+", "abc") && !matches("[^](?<n>]+", "P"
                                                                 "<"));
    CHECK(matches("[[:alpha:](?<n>]+", "(?<n>abc"));
    CHECK(!matches("[[:digit:](?<n>]+", "P")); /* a rewritten class would take it */
    CHECK(matches("[\\](?<n>]+", "](?<n>"));
    CHECK(!matches("[(?<n>]+", "P"));
    CHECK(matches("\\Q(?<n>\\E", "(?<n>"));
    CHECK(matches("\\Q(?<n>", "(?<n>"));
    CHECK(matches("\\\\(?<n>a)", "\\a")); /* an escaped backslash, then a group */
    CHECK(matches("\\\\C", "\\C") && matches("\\Q\\C\\E", "\\C"));
    CHECK(matches("\\Qa\\E(?<n>b)", "ab"));
    CHECK(matches("[[](?<n>b)", "[b"));
}

static void test_invalid_utf8_text_is_survived(void **state)
{
    struct test_random r = test_random_init(0x8f8);
    static const char *const patterns[] = {".*", "(a|.)*b", "[^x]+", "(?i)\xc3\xa9+", "\\pL*"};
    char text[64];

    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct regex *re = compile_ok(patterns[i]);
        struct regex_span spans[2];

        for (int k = 0; k < 2000; k++) {
            size_t n = test_random_below(&r, sizeof text);

            for (size_t j = 0; j < n; j++)
                text[j] = (char)test_random_u64(&r);
            bool matched = regex_match(re, (struct str){text, n});
            CHECK(matched == regex_captures(re, (struct str){text, n}, spans, 2));
        }
        regex_free(re);
    }
}

/* Patterns of any bytes compile or are refused; the scanner never leaves its text. */
static void test_hostile_patterns_are_survived(void **state)
{
    static const char alphabet[] = "(?<P=!>)[]^\\QEC:ab*+{}|.\xc3";
    struct test_random r = test_random_init(0x9057);

    (void)state;
    for (int i = 0; i < 20000; i++) {
        size_t n = test_random_below(&r, 16);
        char *pattern = malloc(n + 1); /* exactly sized, for AddressSanitizer */
        struct regex *re = NULL;

        CHECK(pattern != NULL);
        for (size_t k = 0; k < n; k++)
            pattern[k] = alphabet[test_random_below(&r, sizeof alphabet - 1)];
        if (regex_compile((struct str){pattern, n}, &re, NULL) == ERR_OK)
            (void)regex_match(re, STR_LITERAL("ab(?<"));
        regex_free(re);
        free(pattern);
    }
}

static void *match_often(void *arg)
{
    const struct regex *re = arg;

    for (int i = 0; i < 500; i++) {
        CHECK(regex_match(re, STR_LITERAL("node-1234.example")));
        CHECK(!regex_match(re, STR_LITERAL("node-x.example")));
    }
    return NULL;
}

static void test_threads_share_an_expression(void **state)
{
    struct regex *re = compile_ok("node-[0-9]+\\.(example|test)");
    struct thread threads[4];
    struct errinfo ei = {0};

    (void)state;
    for (int i = 0; i < 4; i++)
        CHECK_OK(thread_start(&threads[i], "regex", match_often, re, &ei), &ei);
    for (int i = 0; i < 4; i++)
        thread_join(&threads[i]);
    regex_free(re);
}

static void check_template(const char *pattern, const char *source, const char *template,
                           const char *want)
{
    struct regex_span spans[8];
    struct regex *re = NULL;
    struct errinfo ei = {0};
    struct byte_writer out;
    size_t count;

    CHECK_OK(regex_compile(str_from(pattern), &re, &ei), &ei);
    count = regex_group_count(re) + 1;
    CHECK(count <= 8 && regex_captures(re, str_from(source), spans, count));
    writer_init(&out);
    regex_expand(re, str_from(template), str_from(source), spans, count, &out);
    CHECK_MSG(out.size == strlen(want) && (out.size == 0 || memcmp(out.data, want, out.size) == 0),
              "%s gave %.*s", template, (int)out.size, (const char *)out.data);
    writer_done(&out);
    regex_free(re);
}

static void test_templates(void **state)
{
    (void)state;
    check_template("(a)(b)?(?P<name>c)", "ac", "$1-$2-$3-$name", "a--c-c");
    check_template("(a)(b)", "ab", "${1}x$2", "axb");
    check_template("(a)(b)", "ab", "$1x", ""); /* the group 1x does not exist */
    check_template("(a)", "a", "$$1$", "$1$");
    check_template("(a)", "a", "${1", "${1");
    check_template("(a)", "a", "${}$ $-", "${}$ $-");
    check_template("(a)", "a", "$0|$9|$01|${nope}", "a|||");
    check_template("(?P<x>a)", "a", "$99999999999", "");
    check_template("(a)", "a", "", "");
    check_template("(a)", "a", "$1\u2013x", "a\u2013x"); /* a dash ends the name */
    check_template("(a)", "a", "$1\u00e9x", "");         /* a letter does not */
    check_template("(a)", "a", "$1\xff", "a\xff");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_anchoring),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_named_groups),
        cmocka_unit_test(test_empty_text_captures),
        cmocka_unit_test(test_rewriting_respects_context),
        cmocka_unit_test(test_invalid_utf8_text_is_survived),
        cmocka_unit_test(test_hostile_patterns_are_survived),
        cmocka_unit_test(test_threads_share_an_expression),
        cmocka_unit_test(test_templates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
