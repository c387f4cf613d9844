/* Rules as selectors: of random rules those that have one, and that both find the same series. */
#include "api/rule_selector_internal.h"

#include <string.h>

#include "promql/ast.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { ROUNDS = 10000, SETS = 20, COVERED_LEAST = 50 };

static bool selector_matches(const struct matcher *matchers, size_t count, const struct labels *l)
{
    for (size_t i = 0; i < count; i++) {
        if (!matcher_matches(&matchers[i], labels_get(l, matchers[i].name)))
            return false;
    }
    return true;
}

static bool may_have_selector(const struct drop_rule *r)
{
    return r->matchers != NULL ||
           ((r->relabel.action == RELABEL_DROP || r->relabel.action == RELABEL_KEEP) &&
            r->relabel.source_label_count == 1);
}

/* What the selector finds, as matchers and as text read back, is what the rule drops. */
static void check_same(struct drop_rule *r, struct test_random *random, struct arena *arena)
{
    struct rule_selector s;
    struct matcher *parsed = NULL;
    struct errinfo ei = {0};
    size_t parsed_count = 0;

    if (r->matchers != NULL)
        r->selector = STR_LITERAL("{job=\"as written\"}");
    CHECK_OK(rule_selector_init(&s, r, arena, &ei), &ei);
    CHECK(rule_selector_label_count(r) == s.matcher_count);
    if (r->matchers == NULL)
        CHECK_OK(promql_parse_selector(s.text, arena, &parsed, &parsed_count, &ei), &ei);
    else
        CHECK(str_equal(s.text, r->selector));
    for (int i = 0; i < SETS; i++) {
        struct labels labels = rule_kit_labels(random, arena);
        struct rule_verdict v = rule_kit_judge(r, 1, &labels, arena);
        bool drops = v.dropped_by == 0;

        CHECK_MSG(selector_matches(s.matchers, s.matcher_count, &labels) == drops, "%.*s of %s",
                  STR_ARGS(s.text), labels_format_braces(&labels, arena));
        if (parsed != NULL)
            CHECK(selector_matches(parsed, parsed_count, &labels) == drops);
    }
    for (size_t i = 0; i < parsed_count; i++)
        matcher_done(&parsed[i]);
    for (size_t i = 0; i < s.matcher_count; i++)
        CHECK(str_equal(rule_selector_label(r, i), s.matchers[i].name));
    rule_selector_done(&s);
}

static void test_finds_what_is_dropped(void **state)
{
    struct test_random random = test_random_init(1);
    size_t relabelling = 0, keeping = 0, refused = 0;
    struct arena arena;

    (void)state;
    for (size_t i = 0; i < ROUNDS; i++) {
        arena_init(&arena, NULL);
        struct drop_rule r = rule_kit_random(&random, &arena, i, false);

        if (rule_selector_obstacle(&r) == NULL) {
            CHECK(may_have_selector(&r));
            relabelling += r.matchers == NULL && r.relabel.action == RELABEL_DROP;
            keeping += r.matchers == NULL && r.relabel.action == RELABEL_KEEP;
            check_same(&r, &random, &arena);
        } else {
            CHECK(!may_have_selector(&r) || (r.relabel.action == RELABEL_DROP &&
                                             str_equal(r.relabel.regex, STR_LITERAL(".*"))));
            refused++;
        }
        rule_kit_done(&r, 1);
        arena_done(&arena);
    }
    CHECK(relabelling > COVERED_LEAST && keeping > COVERED_LEAST && refused > COVERED_LEAST);
}

static void test_texts(void **state)
{
    static const struct {
        enum relabel_action action;
        const char *label, *regex, *text;
    } cases[] = {
        {RELABEL_DROP, "job", "a|b", "{job=~\"a|b\"}"},
        {RELABEL_KEEP, "job", "a", "{job!~\"a\"}"},
        {RELABEL_DROP, "__name__", "x_.*", "{__name__=~\"x_.*\"}"},
        {RELABEL_DROP, "host.name", "a\"\\d", "{\"host.name\"=~\"a\\\"\\\\d\"}"},
        {RELABEL_DROP, "team", "", "{team=~\"\"}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct str label = str_from(cases[i].label), text = {"", 0};
        struct drop_rule r = {.name = STR_LITERAL("x")};
        struct errinfo ei = {0};
        struct arena arena;

        arena_init(&arena, NULL);
        relabel_config_init(&r.relabel);
        r.relabel.action = cases[i].action;
        r.relabel.source_labels = &label;
        r.relabel.source_label_count = 1;
        r.relabel.regex = str_from(cases[i].regex);
        CHECK(rule_selector_obstacle(&r) == NULL);
        CHECK_OK(rule_selector_text(&r, &arena, &text, &ei), &ei);
        CHECK_MSG(str_equal(text, str_from(cases[i].text)), "%.*s", STR_ARGS(text));
        arena_done(&arena);
    }
}

static void test_obstacles(void **state)
{
    struct str labels[] = {STR_LITERAL("a"), STR_LITERAL("b")};
    struct drop_rule r = {.name = STR_LITERAL("x")};

    (void)state;
    relabel_config_init(&r.relabel);
    r.relabel.source_labels = labels;
    r.relabel.source_label_count = 1;
    CHECK(strstr(rule_selector_obstacle(&r), "the action drop or keep") != NULL); /* replace */
    r.relabel.action = RELABEL_DROP;
    CHECK(strstr(rule_selector_obstacle(&r), "everything") != NULL); /* the default's regex */
    r.relabel.action = RELABEL_KEEP;
    CHECK(rule_selector_obstacle(&r) == NULL); /* drops nothing */
    r.relabel.source_label_count = 2;
    CHECK(strstr(rule_selector_obstacle(&r),
                 "needs one source label: write the rule as \"drop\"") != NULL);
    r.relabel.source_label_count = 0;
    CHECK(strstr(rule_selector_obstacle(&r), "needs one source label") != NULL);
    r.relabel.action = RELABEL_DROPEQUAL;
    CHECK(strstr(rule_selector_obstacle(&r), "the action drop or keep") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_is_dropped),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_obstacles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
