/* Rules in the write path: what they store, what a change of rules forgets and what it leaves. */
#include "engine/drop_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/limits.h"
#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS

struct world {
    struct fs *fs;
    struct kit kit;
    struct arena arena; /* rules and labels */
    int64_t t_ms;       /* of the last sample */
};

static void world_open(struct world *w)
{
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_new(1, &w->fs, &ei), &ei);
    arena_init(&w->arena, NULL);
    kit_open(&w->kit, w->fs, NULL);
    w->t_ms = T0;
}

static void world_close(struct world *w)
{
    kit_close(&w->kit);
    arena_done(&w->arena);
    fs_free(w->fs);
}

static struct rules_applied apply(struct world *w, const struct drop_rule *rules, size_t count)
{
    struct rules_applied applied;
    struct rule_set *set = NULL;
    struct errinfo ei = {0};

    CHECK_OK(rule_set_new(rules, count, &set, &ei), &ei);
    CHECK_OK(engine_rules_apply(w->kit.engine, set, &applied, &ei), &ei);
    return applied;
}

/* A rule that replaces a label's value, or removes it. */
static struct drop_rule rule_replace(const char *target, const char *text)
{
    struct drop_rule r = {.name = STR_LITERAL("replace"), .comment = STR_LITERAL("")};

    relabel_config_init(&r.relabel);
    r.relabel.target_label = str_from(target);
    r.relabel.replacement = str_from(text);
    return r;
}

enum outcome { STORED, DROPPED, REFUSED };

/* Writes one sample, newer than all before; whether it took the slow path in *slow. */
static enum outcome put(struct world *w, const char *labels, bool *slow)
{
    struct kit *k = &w->kit;
    uint64_t before = atomic_load(&k->engine->slow_path_series);

    w->t_ms += 1000;
    if (w->t_ms > clock_now_ms(&k->clock))
        clock_set_fake(&k->clock, w->t_ms);
    kit_series(k, labels);
    kit_sample(k, w->t_ms, 1);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.stored_count + k->result.dropped_count + k->result.refused_count == 1);
    if (slow != NULL)
        *slow = atomic_load(&k->engine->slow_path_series) != before;
    if (k->result.refused_count > 0)
        return REFUSED;
    return k->result.dropped_count > 0 ? DROPPED : STORED;
}

static void check_put(struct world *w, const char *labels, enum outcome want, bool want_slow)
{
    bool slow = false;

    CHECK_MSG(put(w, labels, &slow) == want, "%s", labels);
    CHECK_MSG(slow == want_slow, "%s", labels);
}

static bool newest_is(struct world *w, const char *labels, int64_t t_ms)
{
    struct column column = {0};
    struct arena arena;
    bool is;

    arena_init(&arena, NULL);
    is = kit_read(&w->kit, &arena, labels, t_ms, t_ms, &column) && column.count == 1;
    arena_done(&arena);
    return is;
}

static void test_drop_and_back(void **state)
{
    struct drop_rule rules[2];
    struct world w;

    (void)state;
    world_open(&w);
    rules[0] = rule_kit_drop("a", "__name__", "=", "noise", &w.arena);
    rules[1] = rule_kit_drop("b", "job", "=~", "x.*", &w.arena);
    (void)apply(&w, rules, 1);
    check_put(&w, "__name__=noise,job=x1", DROPPED, true);
    check_put(&w, "__name__=noise,job=x1", DROPPED, false);
    check_put(&w, "__name__=up,job=x1", STORED, true);
    check_put(&w, "__name__=up,job=y", STORED, true);
    /* An active series is dropped from now on; the others stay known. */
    struct rules_applied applied = apply(&w, rules, 2);
    CHECK(applied.series_forgotten == 1 && applied.keys_removed == 1);
    check_put(&w, "__name__=noise,job=x1", DROPPED, false);
    check_put(&w, "__name__=up,job=y", STORED, false);
    check_put(&w, "__name__=up,job=x1", DROPPED, true);
    check_put(&w, "__name__=up,job=x1", DROPPED, false);
    /* In another order: nothing changes for what is dropped already. */
    struct drop_rule swapped[2] = {rules[1], rules[0]};
    applied = apply(&w, swapped, 2);
    CHECK(applied.series_forgotten == 0 && applied.keys_removed == 0);
    check_put(&w, "__name__=noise,job=x1", DROPPED, false);
    /* A rule goes: what it dropped comes back, what others dropped does not. */
    applied = apply(&w, &rules[1], 1);
    CHECK(applied.keys_removed == 1);
    check_put(&w, "__name__=up,job=x1", DROPPED, false);
    check_put(&w, "__name__=noise,job=x1", DROPPED, true); /* the other rule drops it as well */
    (void)apply(&w, NULL, 0);
    check_put(&w, "__name__=up,job=x1", STORED, true);
    check_put(&w, "__name__=up,job=x1", STORED, false);
    check_put(&w, "__name__=up,job=y", STORED, false);
    rule_kit_done(rules, 2);
    world_close(&w);
}

static void check_counts(struct world *w, size_t rule, uint64_t series, uint64_t samples)
{
    struct drop_rule_state *states = NULL;
    struct errinfo ei = {0};
    size_t count = 0;

    CHECK_OK(engine_rules_state(w->kit.engine, &w->arena, &states, &count, &ei), &ei);
    CHECK(rule < count);
    CHECK_MSG(states[rule].series_dropped == series && states[rule].samples_dropped == samples,
              "%d series, %d samples", (int)states[rule].series_dropped,
              (int)states[rule].samples_dropped);
}

static void test_counters(void **state)
{
    struct rules_stats stats;
    struct drop_rule rules[3];
    struct world w;

    (void)state;
    world_open(&w);
    rules[0] = rule_kit_drop("a", "__name__", "=", "noise", &w.arena);
    rules[1] = rule_replace("zone", "z");
    rules[2] = rule_kit_drop("b", "job", "=", "x", &w.arena);
    (void)apply(&w, rules, 3);
    for (int i = 0; i < 3; i++) {
        CHECK(put(&w, "__name__=noise,job=x", NULL) == DROPPED);
        CHECK(put(&w, "__name__=noise,job=y", NULL) == DROPPED);
        CHECK(put(&w, "__name__=up,job=x", NULL) == DROPPED);
        CHECK(put(&w, "__name__=up,job=y", NULL) == STORED);
    }
    check_counts(&w, 0, 2, 6);
    check_counts(&w, 1, 0, 0);
    check_counts(&w, 2, 1, 3);
    /* Counts go on while the rule stands. */
    struct drop_rule fewer[2] = {rules[1], rules[2]};
    (void)apply(&w, fewer, 2);
    CHECK(put(&w, "__name__=up,job=x", NULL) == DROPPED);
    CHECK(put(&w, "__name__=noise,job=x", NULL) == DROPPED);
    check_counts(&w, 1, 2, 5);
    engine_rules_stats(w.kit.engine, &stats);
    CHECK(stats.rule_count == 2 && stats.dropped_keys == 2 && stats.samples_dropped == 11);
    CHECK(stats.dropped_keys_not_kept == 0 && stats.collisions == 0);
    CHECK(engine_alias_count(w.kit.engine) == 0);
    rule_kit_done(rules, 3);
    world_close(&w);
}

static void test_rewriting(void **state)
{
    struct drop_rule rules[3];
    struct rules_stats stats;
    struct world w;

    (void)state;
    world_open(&w);
    check_put(&w, "__name__=up,pod=1", STORED, true);
    check_put(&w, "__name__=up", STORED, true);
    rules[0] = rule_replace("pod", ""); /* removes it */
    struct rules_applied applied = apply(&w, rules, 1);
    CHECK(applied.series_forgotten == 1);
    check_put(&w, "__name__=up", STORED, false);
    check_put(&w, "__name__=up,pod=1", STORED, true);
    CHECK(newest_is(&w, "__name__=up", w.t_ms) && !newest_is(&w, "__name__=up,pod=1", w.t_ms));
    check_put(&w, "__name__=up,pod=1", STORED, false);
    engine_rules_stats(w.kit.engine, &stats);
    CHECK(stats.collisions == 1);
    check_put(&w, "__name__=down,pod=1", STORED, true);
    engine_rules_stats(w.kit.engine, &stats);
    CHECK(stats.collisions == 1);
    /* A filter behind it sees what is stored; one before it does not, so all rewritten ones are
     * asked again. */
    rules[1] = rule_kit_drop("b", "__name__", "=", "other", &w.arena);
    applied = apply(&w, rules, 2);
    CHECK(applied.series_forgotten == 0);
    check_put(&w, "__name__=down,pod=1", STORED, false);
    struct drop_rule before[3] = {rule_kit_drop("c", "pod", "=", "1", &w.arena), rules[0],
                                  rules[1]};
    applied = apply(&w, before, 3);
    CHECK(applied.series_forgotten > 0);
    check_put(&w, "__name__=down,pod=1", DROPPED, true);
    check_put(&w, "__name__=up,pod=1", DROPPED, true);
    check_put(&w, "__name__=up,pod=2", STORED, true);
    /* Rules may leave nothing to store under, or give what was missing. */
    rules[0] = rule_replace("__name__", "");
    (void)apply(&w, rules, 1);
    check_put(&w, "__name__=up,pod=9", REFUSED, true);
    rules[0] = rule_replace("__name__", "given");
    (void)apply(&w, rules, 1);
    check_put(&w, "pod=9", STORED, true);
    CHECK(newest_is(&w, "__name__=given,pod=9", w.t_ms));
    rule_kit_done(before, 1);
    rule_kit_done(&rules[1], 1);
    world_close(&w);
}

/* Samples of both kinds are dropped, and counted. */
static void test_histograms(void **state)
{
    const struct histogram h = {.sum = 1}; /* an empty one */
    struct drop_rule rule;
    struct world w;

    (void)state;
    world_open(&w);
    rule = rule_kit_drop("a", "__name__", "=", "noise", &w.arena);
    (void)apply(&w, &rule, 1);
    for (int i = 0; i < 2; i++) {
        kit_series(&w.kit, "__name__=noise");
        kit_histogram(&w.kit, T0 + i, &h);
        kit_series(&w.kit, "__name__=noise,x=1");
        kit_sample(&w.kit, T0 + i, 1);
        CHECK_OK(kit_write(&w.kit), &w.kit.ei);
        CHECK(w.kit.result.dropped_count == 2 && w.kit.result.stored_count == 0);
    }
    check_counts(&w, 0, 2, 4);
    rule_kit_done(&rule, 1);
    world_close(&w);
}

/* ---- random ---- */

enum { LIVES = 60, STEPS = 30, RULES_MAX = 6, SERIES = 40 };

static char *labels_text(const struct labels *l, struct arena *arena)
{
    struct byte_writer w;
    char *text;

    writer_init(&w);
    for (size_t i = 0; i < l->count; i++)
        writer_printf(&w, "%s%.*s=%.*s", i == 0 ? "" : ",", STR_ARGS(l->items[i].name),
                      STR_ARGS(l->items[i].value));
    text =
        w.failed ? NULL : arena_memdup0(arena, w.data == NULL ? (const void *)"" : w.data, w.size);
    writer_done(&w);
    CHECK(text != NULL);
    return text;
}

static bool has_name(const struct labels *l)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->items[i].name.size == 0)
            return false;
    }
    return labels_get(l, LABEL_METRIC_NAME).size > 0;
}

/* Each series' fate is that of the slow judge under the rules in effect, whatever was before. */
static void check_fates(struct world *w, const struct drop_rule *rules, size_t count,
                        const struct labels *series)
{
    struct arena arena;

    arena_init(&arena, NULL);
    for (int i = 0; i < SERIES; i++) {
        struct rule_verdict v = rule_kit_judge(rules, count, &series[i], &arena);
        enum outcome got = put(w, labels_text(&series[i], &arena), NULL);
        enum outcome want = v.dropped_by != RULE_NONE ? DROPPED
                            : has_name(&v.labels)     ? STORED
                                                      : REFUSED;

        CHECK_MSG(got == want, "%s: %d, not %d", labels_text(&series[i], &arena), (int)got,
                  (int)want);
        CHECK(got != STORED || newest_is(w, labels_text(&v.labels, &arena), w->t_ms));
        arena_reset(&arena);
    }
    arena_done(&arena);
}

static void life(struct test_random *random)
{
    struct drop_rule pool[3 * RULES_MAX], rules[RULES_MAX];
    struct labels series[SERIES];
    struct world w;

    world_open(&w);
    for (size_t i = 0; i < (size_t)3 * RULES_MAX; i++)
        pool[i] = rule_kit_random(random, &w.arena, i, test_random_below(random, 3) > 0);
    for (int i = 0; i < SERIES; i++)
        series[i] = rule_kit_labels(random, &w.arena);
    for (int step = 0; step < STEPS; step++) {
        size_t count = test_random_below(random, RULES_MAX + 1);

        for (size_t i = 0; i < count; i++)
            rules[i] = pool[test_random_below(random, UINT64_C(3) * RULES_MAX)];
        (void)apply(&w, rules, count);
        check_fates(&w, rules, count, series);
    }
    rule_kit_done(pool, (size_t)3 * RULES_MAX);
    world_close(&w);
}

static void test_random_changes(void **state)
{
    struct test_random random = test_random_init(11);

    (void)state;
    for (int i = 0; i < LIVES; i++)
        life(&random);
}

/* ---- bounds ---- */

/* A series that a limit has refused is dropped at once, and not looked at again by the same rules.
 */
static void test_refused_by_a_limit(void **state)
{
    struct limits limits = {0};
    struct drop_rule rule;
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    world_open(&w);
    limits.items[LIMIT_SERIES_PER_METRIC].max = 1;
    CHECK_OK(engine_limits_apply(w.kit.engine, &limits, &ei), &ei);
    check_put(&w, "__name__=a,job=x", STORED, true);
    check_put(&w, "__name__=a,job=y", REFUSED, true);
    check_put(&w, "__name__=a,job=y", REFUSED, false);
    (void)apply(&w, NULL, 0);
    check_put(&w, "__name__=a,job=y", REFUSED, false);
    rule = rule_kit_drop("y", "job", "=", "y", &w.arena);
    (void)apply(&w, &rule, 1);
    check_put(&w, "__name__=a,job=y", DROPPED, true);
    check_put(&w, "__name__=a,job=y", DROPPED, false);
    check_put(&w, "__name__=a,job=x", STORED, false);
    (void)apply(&w, NULL, 0);
    check_put(&w, "__name__=a,job=y", REFUSED, true);
    rule_kit_done(&rule, 1);
    world_close(&w);
}

static void test_keys_are_bounded(void **state)
{
    struct engine_options options = {0};
    struct drop_rule rule;
    struct rules_stats stats;
    struct budget memory;
    struct world w;
    struct errinfo ei = {0};
    char labels[64];

    (void)state;
    CHECK_OK(fs_sim_new(1, &w.fs, &ei), &ei);
    arena_init(&w.arena, NULL);
    budget_init(&memory, "test", (uint64_t)256 << 20, NULL);
    options.memory = &memory;
    kit_open(&w.kit, w.fs, &options);
    w.t_ms = T0;
    rule = rule_kit_drop("a", "__name__", "=", "noise", &w.arena);
    (void)apply(&w, &rule, 1);
    engine_rules_stats(w.kit.engine, &stats);
    uint64_t max = stats.dropped_keys_max;
    for (uint64_t i = 0; i < max + 1000; i++) {
        (void)snprintf(labels, sizeof labels, "__name__=noise,i=%d", (int)i);
        kit_series(&w.kit, labels);
        kit_sample(&w.kit, T0, 1);
        if (i % 1000 == 999 || i + 1 == max + 1000)
            CHECK_OK(kit_write(&w.kit), &w.kit.ei);
    }
    engine_rules_stats(w.kit.engine, &stats);
    CHECK(stats.dropped_keys == max && stats.dropped_keys_not_kept == 1000);
    /* Those that nobody has sent for hours make room. */
    clock_set_fake(&w.kit.clock, T0 + INT64_C(2) * 3600 * 1000);
    check_put(&w, "__name__=noise,i=7", DROPPED, false);
    clock_set_fake(&w.kit.clock, T0 + INT64_C(4) * 3600 * 1000);
    engine_housekeep(w.kit.engine);
    engine_rules_stats(w.kit.engine, &stats);
    CHECK(stats.dropped_keys == 1);
    check_put(&w, "__name__=noise,i=7", DROPPED, false);
    check_put(&w, "__name__=noise,i=8", DROPPED, true);
    rule_kit_done(&rule, 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drop_and_back),      cmocka_unit_test(test_counters),
        cmocka_unit_test(test_histograms),         cmocka_unit_test(test_rewriting),
        cmocka_unit_test(test_random_changes),     cmocka_unit_test(test_keys_are_bounded),
        cmocka_unit_test(test_refused_by_a_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
