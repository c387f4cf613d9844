/*
 * Matchers against RE2: whatever is simplified must answer as the compiled pattern does.
 */
#include <stdlib.h>
#include <string.h>

#include "base/regex.h"
#include "engine/labels.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

struct text {
    char bytes[256];
    size_t size;
};

static void add(struct text *t, const char *piece)
{
    size_t n = strlen(piece);

    if (t->size + n <= sizeof t->bytes) {
        memcpy(t->bytes + t->size, piece, n);
        t->size += n;
    }
}
static struct str str_of(const struct text *t)
{
    return (struct str){t->bytes, t->size};
}

static struct text random_text(struct test_random *r)
{
    static const char *const PIECES[] = {"a", "b", "ab", "c", "\xc3\xa9", "\n", ".", "|", "A"};
    struct text t = {.size = 0};
    size_t n = test_random_below(r, 6);

    while (n-- > 0)
        add(&t, PIECES[test_random_below(r, sizeof PIECES / sizeof PIECES[0])]);
    return t;
}

/* Patterns that the simplifier knows, those near to them, and broken ones. */
static struct text random_pattern(struct test_random *r)
{
    static const char *const PIECES[] = {
        "a",     "b",    "ab",     "c",   "a",      "b",   "|",    "|",   "(",     ")",
        "(?:",   "(a|b", ")",      ".*",  ".+",     ".",   "\\.",  "\\|", "?",     "*",
        "\\d",   "\\_",  "[ab]",   "[|]", "(?i)",   "{2}", "^",    "$",   "\\Qa|", "\xc3\xa9",
        "(a|b)", "()",   "(|a|b)", "\\n", "(?:ab)", "\n",  "\\",   "a|b", "}",     "(?P<n>a)",
        "-",     "\\-",  ".*a",    "a.*", ".+b.+",  "a?",  "\xc3", "ab*", "]",     "A"};
    struct text t = {.size = 0};
    size_t n = test_random_below(r, 8);
    /* Half of the patterns keep to the first, harmless pieces. */
    size_t kinds = test_random_below(r, 2) == 0 ? 13 : sizeof PIECES / sizeof PIECES[0];

    if (test_random_below(r, 4) == 0)
        add(&t, test_random_below(r, 2) == 0 ? ".*" : ".+");
    while (n-- > 0)
        add(&t, PIECES[test_random_below(r, kinds)]);
    if (test_random_below(r, 4) == 0)
        add(&t, test_random_below(r, 2) == 0 ? ".*" : ".+");
    return t;
}

static void check_texts(struct test_random *r, const struct matcher *m, const struct regex *re,
                        bool negative)
{
    for (int i = 0; i < 30; i++) {
        struct text t = random_text(r);
        bool matched = regex_match(re, str_of(&t));

        CHECK_MSG(matcher_matches(m, str_of(&t)) == (matched != negative),
                  "pattern %.*s text %.*s form %d seed %llu", STR_ARGS(m->value),
                  STR_ARGS(str_of(&t)), (int)m->form, (unsigned long long)r->seed);
    }
    /* The literals of the pattern themselves, which random text seldom hits. */
    for (size_t i = 0; i < m->set_count; i++)
        CHECK(regex_match(re, m->set[i]) && matcher_matches(m, m->set[i]) != negative);
    CHECK(matcher_matches(m, m->literal) == (regex_match(re, m->literal) != negative));
}

static void simplified_patterns_equal_re2(void **state)
{
    struct test_random r = test_random_init(11);
    size_t forms[4] = {0};
    size_t with_prefix = 0;

    (void)state;
    for (int round = 0; round < 60000; round++) {
        struct text p = random_pattern(&r);
        bool negative = test_random_below(&r, 2) == 0;
        struct arena arena;
        struct matcher m;
        struct regex *re = NULL;
        enum err compiled = regex_compile(str_of(&p), &re, NULL);
        enum err e;

        arena_init(&arena, NULL);
        e = matcher_init(&m, negative ? MATCHER_NOT_REGEX : MATCHER_REGEX, STR_LITERAL("n"),
                         str_of(&p), &arena, NULL);
        CHECK_MSG(e == compiled, "pattern %.*s", STR_ARGS(str_of(&p)));
        if (e == ERR_OK) {
            forms[m.form]++;
            with_prefix += m.form == MATCHER_FORM_REGEX && m.prefix.size > 0;
            check_texts(&r, &m, re, negative);
            matcher_done(&m);
        }
        regex_free(re);
        arena_done(&arena);
    }
    CHECK(forms[MATCHER_FORM_LITERAL] == 0);
    CHECK(forms[MATCHER_FORM_SET] > 2000 && forms[MATCHER_FORM_WILD] > 2000);
    CHECK(forms[MATCHER_FORM_REGEX] > 2000 && with_prefix > 200);
}

static void check_form(const char *pattern, enum matcher_form form, size_t set_count,
                       const char *prefix)
{
    struct arena arena;
    struct matcher m;
    struct errinfo ei = {0};

    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("n"), str_from(pattern), &arena, &ei),
             &ei);
    CHECK_MSG(m.form == form, "%s: %d", pattern, (int)m.form);
    CHECK_MSG(m.set_count == set_count, "%s: %zu", pattern, m.set_count);
    CHECK_MSG(str_equal(m.prefix, str_from(prefix)), "%s: %.*s", pattern, STR_ARGS(m.prefix));
    matcher_done(&m);
    arena_done(&arena);
}

static void the_common_patterns_are_recognised(void **state)
{
    (void)state;
    check_form("", MATCHER_FORM_SET, 1, "");
    check_form("node-1\\.example", MATCHER_FORM_SET, 1, "");
    check_form("a|b|c|a", MATCHER_FORM_SET, 3, "");
    check_form("node(1|2(3|4))|", MATCHER_FORM_SET, 4, "");
    check_form("(a|b)(?:c|d)e", MATCHER_FORM_SET, 4, "");
    check_form(".*", MATCHER_FORM_WILD, 0, "");
    check_form(".+", MATCHER_FORM_WILD, 0, "");
    check_form("node.*", MATCHER_FORM_WILD, 0, "node");
    check_form(".*:9100", MATCHER_FORM_WILD, 0, "");
    check_form(".*gpu.+", MATCHER_FORM_WILD, 0, "");
    check_form("node[0-9]+", MATCHER_FORM_REGEX, 0, "node");
    check_form("nodes?(a|b.)", MATCHER_FORM_REGEX, 0, "node");
    check_form("node.|x", MATCHER_FORM_REGEX, 0, "");
    check_form("node\\d", MATCHER_FORM_REGEX, 0, "node");
    check_form("(?i)node", MATCHER_FORM_REGEX, 0, "");
}

static void products_have_a_limit(void **state)
{
    char pattern[64 * 7 + 1] = "";

    (void)state;
    for (int i = 0; i < 64; i++)
        memcpy(pattern + 5 * (size_t)i, "(a|b)", 6); /* 2^64 words */
    check_form(pattern, MATCHER_FORM_REGEX, 0, "");
}

static void a_long_alternation_stays_a_set(void **state)
{
    struct byte_writer w;
    struct arena arena;
    struct matcher m;
    struct errinfo ei = {0};

    (void)state;
    writer_init(&w);
    for (int i = 0; i < 4000; i++)
        writer_printf(&w, "%spod-%d", i == 0 ? "" : "|", i);
    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("pod"),
                          (struct str){(const char *)w.data, w.size}, &arena, &ei),
             &ei);
    CHECK(m.form == MATCHER_FORM_SET && m.set_count == 4000);
    CHECK(matcher_matches(&m, STR_LITERAL("pod-3999")));
    CHECK(!matcher_matches(&m, STR_LITERAL("pod-4000")));
    matcher_done(&m);
    arena_done(&arena);
    writer_done(&w);
}

static void equality_and_format(void **state)
{
    struct arena arena;
    struct matcher m;
    struct errinfo ei = {0};

    (void)state;
    arena_init(&arena, NULL);
    CHECK_OK(
        matcher_init(&m, MATCHER_NOT_EQUAL, STR_LITERAL("a.b"), STR_LITERAL("x\"y"), &arena, &ei),
        &ei);
    CHECK(matcher_matches(&m, STR_LITERAL("x")) && !matcher_matches(&m, STR_LITERAL("x\"y")));
    CHECK(matcher_matches_empty(&m));
    CHECK(strcmp(matcher_format(&m, &arena), "\"a.b\"!=\"x\\\"y\"") == 0);
    matcher_done(&m);
    CHECK_OK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("job"), STR_LITERAL("a|b"), &arena, &ei),
             &ei);
    CHECK(strcmp(matcher_format(&m, &arena), "job=~\"a|b\"") == 0);
    CHECK(!matcher_matches_empty(&m));
    matcher_done(&m);
    arena_done(&arena);
}

static void bad_patterns_are_refused_with_a_reason(void **state)
{
    struct arena arena;
    struct matcher m;
    struct errinfo ei = {0};

    (void)state;
    arena_init(&arena, NULL);
    CHECK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("n"), STR_LITERAL("a(b"), &arena, &ei) ==
          ERR_INVALID);
    CHECK(ei.message[0] != '\0');
    arena_done(&arena);
}

static void a_compiled_regex_counts(void **state)
{
    struct budget budget;
    struct arena arena;
    struct matcher m;
    struct errinfo ei = {0};
    uint64_t before;

    (void)state;
    budget_init(&budget, "query memory", UINT64_MAX, NULL);
    arena_init(&arena, &budget);
    CHECK(arena_alloc(&arena, 1) != NULL); /* so that a block with room is there */
    before = budget_used(&budget);
    CHECK_OK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("n"), STR_LITERAL("a.{100}"), &arena, &ei),
             &ei);
    CHECK(budget_used(&budget) > before + 1000);
    matcher_done(&m);
    CHECK(budget_used(&budget) == before);
    budget.limit_bytes = before + 1000;
    CHECK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("n"), STR_LITERAL("a.{100}"), &arena, &ei) ==
          ERR_LIMIT);
    CHECK(budget_used(&budget) == before);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simplified_patterns_equal_re2),
        cmocka_unit_test(the_common_patterns_are_recognised),
        cmocka_unit_test(products_have_a_limit),
        cmocka_unit_test(a_long_alternation_stays_a_set),
        cmocka_unit_test(equality_and_format),
        cmocka_unit_test(a_compiled_regex_counts),
        cmocka_unit_test(bad_patterns_are_refused_with_a_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
