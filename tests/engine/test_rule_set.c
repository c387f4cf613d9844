/* Compiled rules against the slow way: the same rule drops, the same labels stay. */
#include <stdlib.h>
#include <string.h>

#include "engine/drop_rules.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_cmocka.h"

enum { SETS = 600, RULES_MAX = 24, SERIES = 60 };

static void check_series(const struct rule_set *set, const struct drop_rule *rules, size_t count,
                         struct test_random *random)
{
    struct arena arena;

    arena_init(&arena, NULL);
    for (int i = 0; i < SERIES; i++) {
        struct labels labels = rule_kit_labels(random, &arena);
        struct rule_verdict want = rule_kit_judge(rules, count, &labels, &arena), got;

        CHECK(rule_set_judge(set, &labels, &arena, &got));
        CHECK_MSG(got.dropped_by == want.dropped_by, "%s: dropped by %d, not %d",
                  labels_format_braces(&labels, &arena), (int)got.dropped_by, (int)want.dropped_by);
        CHECK(got.dropped_by != RULE_NONE ||
              (got.is_rewritten == want.is_rewritten && labels_equal(&got.labels, &want.labels)));
    }
    arena_done(&arena);
}

static void test_against_twin(void **state)
{
    struct test_random random = test_random_init(7);

    (void)state;
    for (int round = 0; round < SETS; round++) {
        struct drop_rule rules[RULES_MAX];
        size_t count = test_random_below(&random, RULES_MAX + 1);
        struct rule_set *set = NULL;
        struct errinfo ei = {0};
        struct arena arena;

        arena_init(&arena, NULL);
        for (size_t i = 0; i < count; i++)
            rules[i] = rule_kit_random(&random, &arena, i, round % 2 == 0);
        CHECK_OK(rule_set_new(rules, count, &set, &ei), &ei);
        CHECK(rule_set_count(set) == count);
        check_series(set, rules, count, &random);
        rule_set_free(set);
        rule_kit_done(rules, count);
        arena_done(&arena);
    }
}

/* Thousands of rules: each metric is dropped by its own. */
static void test_many_rules(void **state)
{
    enum { COUNT = 5000 };
    struct drop_rule *rules = calloc(COUNT, sizeof *rules);
    struct rule_set *set = NULL;
    struct errinfo ei = {0};
    struct arena arena;

    (void)state;
    CHECK(rules != NULL);
    arena_init(&arena, NULL);
    for (int i = 0; i < COUNT; i++)
        rules[i] = rule_kit_drop("r", "__name__", i % 2 == 0 ? "=" : "=~",
                                 arena_printf(&arena, i % 2 == 0 ? "metric_%d" : "metric_%d_.*", i),
                                 &arena);
    CHECK_OK(rule_set_new(rules, COUNT, &set, &ei), &ei);
    for (int i = 0; i < COUNT; i++) {
        char *text = arena_printf(&arena, i % 2 == 0 ? "metric_%d" : "metric_%d_x", i);
        const struct label name = {LABEL_METRIC_NAME, str_from(text)};
        const struct labels labels = {1, &name};
        struct rule_verdict v;

        CHECK(rule_set_judge(set, &labels, &arena, &v) && v.dropped_by == (uint32_t)i);
    }
    rule_set_free(set);
    rule_kit_done(rules, COUNT);
    arena_done(&arena);
    free(rules);
}

static void test_bad_rule(void **state)
{
    struct drop_rule rule = {.name = STR_LITERAL("bad"), .comment = STR_LITERAL("")};
    struct rule_set *set = NULL;
    struct errinfo ei = {0};

    (void)state;
    relabel_config_init(&rule.relabel);
    CHECK(rule_set_new(&rule, 1, &set, &ei) == ERR_INVALID && set == NULL);
    CHECK(strcmp(ei.message, "rule \"bad\": relabel configuration for replace action requires "
                             "'target_label' value") == 0);
    CHECK(rule_set_new(&rule, DROP_RULES_MAX + 1, &set, &ei) == ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_twin),
        cmocka_unit_test(test_many_rules),
        cmocka_unit_test(test_bad_rule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
