/* What rules with `purge` delete: of random rules those that may, that their selector or filter
 * finds the series that they drop, and the texts that purges are known by. */
#include "api/rules/rule_selector_internal.h"

#include <string.h>

#include "api/config.h"
#include "engine/purge.h"
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

static bool filters(const struct drop_rule *r)
{
    return r->matchers != NULL || relabel_action_filters(r->relabel.action);
}

static bool is_dropped(const struct drop_rule *r, const struct labels *labels, struct arena *arena)
{
    return rule_kit_judge(r, 1, labels, arena).dropped_by == 0;
}

/* A filter is the rule itself, and so is its text. */
static void check_filter(const struct rule_selector *s, const struct drop_rule *r,
                         struct test_random *random, struct arena *arena)
{
    struct config read;
    struct errinfo ei = {0};
    char *rule =
        arena_printf(arena, "{\"name\":\"x\",%.*s", (int)s->text.size - 1, s->text.data + 1);

    CHECK(s->matchers == NULL && rule != NULL);
    config_init(&read);
    CHECK_OK(config_rules_parse(&read, "x", str_from(rule), DROP_RULE_API, &ei), &ei);
    CHECK(read.drop_rule_count == 1);
    for (int i = 0; i < SETS; i++) {
        struct labels labels = rule_kit_labels(random, arena);
        bool drops = is_dropped(r, &labels, arena);

        CHECK(rule_kit_filter_drops(s->filter, &labels) == drops);
        CHECK(is_dropped(&read.drop_rules[0], &labels, arena) == drops);
    }
    for (size_t i = 0; i < rule_selector_label_count(r); i++)
        CHECK(str_equal(rule_selector_label(r, i), i < r->relabel.source_label_count
                                                       ? r->relabel.source_labels[i]
                                                       : r->relabel.target_label));
    config_done(&read);
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
    if (s.filter != NULL) {
        check_filter(&s, r, random, arena);
        rule_selector_done(&s);
        return;
    }
    CHECK(rule_selector_label_count(r) == s.matcher_count);
    if (r->matchers == NULL)
        CHECK_OK(promql_parse_selector(s.text, arena, &parsed, &parsed_count, &ei), &ei);
    else
        CHECK(str_equal(s.text, r->selector));
    for (int i = 0; i < SETS; i++) {
        struct labels labels = rule_kit_labels(random, arena);
        bool drops = is_dropped(r, &labels, arena);

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

/* A rule that filters is refused when it drops all series, or none. */
static void check_refused(const struct drop_rule *r, struct test_random *random,
                          struct arena *arena)
{
    size_t dropped = 0;

    for (int i = 0; i < SETS; i++) {
        struct labels labels = rule_kit_labels(random, arena);

        dropped += is_dropped(r, &labels, arena);
    }
    CHECK(dropped == 0 || dropped == SETS);
}

static void test_finds_what_is_dropped(void **state)
{
    struct test_random random = test_random_init(1);
    size_t by_action[RELABEL_UPPERCASE + 1] = {0}, refused = 0, useless = 0;
    struct arena arena;

    (void)state;
    for (size_t i = 0; i < ROUNDS; i++) {
        arena_init(&arena, NULL);
        struct drop_rule r = rule_kit_random(&random, &arena, i, false);

        if (rule_selector_obstacle(&r) == NULL) {
            CHECK(filters(&r));
            by_action[r.relabel.action] += r.matchers == NULL;
            check_same(&r, &random, &arena);
        } else if (filters(&r)) {
            check_refused(&r, &random, &arena);
            useless++;
        } else {
            refused++;
        }
        rule_kit_done(&r, 1);
        arena_done(&arena);
    }
    CHECK(refused > COVERED_LEAST && useless > COVERED_LEAST);
    for (int i = 0; i <= RELABEL_UPPERCASE; i++)
        CHECK((by_action[i] > COVERED_LEAST) == relabel_action_filters((enum relabel_action)i));
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

/* The rule in the form of requests; what it says by default is left out. */
static void test_texts_of_filters(void **state)
{
    static const char *const texts[] = {
        "{\"action\":\"drop\",\"source_labels\":[\"a\",\"b\"],\"regex\":\"x;y\"}",
        "{\"action\":\"keep\",\"source_labels\":[\"a\",\"b\"],\"separator\":\"\",\"regex\":\"\"}",
        "{\"action\":\"dropequal\",\"source_labels\":[\"a\"],\"target_label\":\"b\"}",
        "{\"action\":\"keepequal\",\"source_labels\":[],\"target_label\":\"b\"}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct str text = {"", 0};
        struct errinfo ei = {0};
        struct config read;
        struct arena arena;

        arena_init(&arena, NULL);
        config_init(&read);
        CHECK_OK(config_rules_parse(
                     &read, "x", str_from(arena_printf(&arena, "{\"name\":\"x\",%s", texts[i] + 1)),
                     DROP_RULE_API, &ei),
                 &ei);
        CHECK_OK(rule_selector_text(&read.drop_rules[0], &arena, &text, &ei), &ei);
        CHECK_MSG(str_equal(text, str_from(texts[i])), "%.*s", STR_ARGS(text));
        config_done(&read);
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
    CHECK(strstr(rule_selector_obstacle(&r), "a rule that drops series") != NULL); /* replace */
    r.relabel.action = RELABEL_DROP;
    CHECK(strstr(rule_selector_obstacle(&r), "everything") != NULL); /* the default's regex */
    r.relabel.action = RELABEL_KEEP;
    CHECK(rule_selector_obstacle(&r) == NULL); /* drops nothing */
    r.relabel.source_label_count = 2;
    CHECK(rule_selector_obstacle(&r) == NULL);
    r.relabel.source_label_count = 0;
    CHECK(strstr(rule_selector_obstacle(&r), "needs a source label") != NULL);
    r.relabel.action = RELABEL_DROPEQUAL;
    r.relabel.target_label = labels[0];
    CHECK(rule_selector_obstacle(&r) == NULL);
    r.relabel.source_label_count = 1;
    CHECK(strstr(rule_selector_obstacle(&r), "everything") != NULL);
    r.relabel.action = RELABEL_KEEPEQUAL;
    CHECK(strstr(rule_selector_obstacle(&r), "never drops") != NULL);
}

/* What the engine would not take is refused before it stands in the way of other purges. */
static void test_size_limits(void **state)
{
    enum { LABEL_SIZE = 150, FITTING = 1000 };
    static const char zeros[LABEL_SIZE]; /* as long as a text gets when it is escaped */
    struct drop_rule r = {.name = STR_LITERAL("x")};
    struct str labels[PURGE_LABELS_MAX + 1], text;
    static struct matcher matchers[1];
    struct errinfo ei = {0};
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    relabel_config_init(&r.relabel);
    r.relabel.action = RELABEL_KEEP;
    r.relabel.source_labels = labels;
    for (size_t i = 0; i <= PURGE_LABELS_MAX; i++)
        labels[i] = STR_LITERAL("a");
    r.relabel.source_label_count = PURGE_LABELS_MAX;
    CHECK(rule_selector_obstacle(&r) == NULL);
    r.relabel.source_label_count++;
    CHECK(strstr(rule_selector_obstacle(&r), "at most 1024") != NULL);
    r.relabel.source_label_count = FITTING;
    for (size_t i = 0; i < FITTING; i++)
        labels[i] = (struct str){zeros, LABEL_SIZE};
    CHECK(rule_selector_obstacle(&r) == NULL);
    CHECK_OK(rule_selector_text(&r, &arena, &text, &ei), &ei);
    CHECK(text.size <= PURGE_KEY_SIZE_MAX && text.size > PURGE_KEY_SIZE_MAX / 2);
    labels[0].size = PURGE_KEY_SIZE_MAX / 6;
    CHECK(strstr(rule_selector_obstacle(&r), "at most 1024") != NULL);
    r.matchers = matchers;
    r.matcher_count = PURGE_LABELS_MAX;
    CHECK(rule_selector_obstacle(&r) == NULL);
    r.matcher_count++;
    CHECK(strstr(rule_selector_obstacle(&r), "at most 1024") != NULL);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_is_dropped), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_texts_of_filters),      cmocka_unit_test(test_obstacles),
        cmocka_unit_test(test_size_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
