/* A series that is stored and dropped from now on ends with one staleness marker, and where it must
 * not get one. */
#include <stdlib.h>

#include "base/file_sim.h"
#include "engine/drop_rules.h"
#include "engine/purge.h"
#include "engine/write/write_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS
#define A "__name__=a,job=x"
#define B "__name__=b,job=x"

enum { STEP_MS = 15000 };

struct world {
    struct fs *fs;
    struct kit kit;
    struct arena arena; /* of rules */
};

static void world_open(struct world *w, uint64_t seed)
{
    w->fs = test_fs_new(seed);
    arena_init(&w->arena, NULL);
    kit_open(&w->kit, w->fs, NULL);
}

static void world_close(struct world *w)
{
    kit_close(&w->kit);
    arena_done(&w->arena);
    fs_free(w->fs);
}

static void apply(struct world *w, const struct drop_rule *rules, size_t count)
{
    struct rules_applied ignored;
    struct rule_set *set = NULL;
    struct errinfo ei = {0};

    CHECK_OK(rule_set_new(rules, count, &set, &ei), &ei);
    CHECK_OK(engine_rules_apply(w->kit.engine, set, &ignored, &ei), &ei);
}

static struct drop_rule drop_a(struct world *w)
{
    return rule_kit_drop("a", "__name__", "=", "a", &w->arena);
}

static int64_t time_of(size_t i)
{
    return T0 + STEP_MS * (int64_t)i;
}

/* Samples i, i + 1, ... of a series in one request; all stored, or all dropped. */
static void put_many(struct world *w, const char *labels, size_t first, size_t count,
                     bool is_dropped)
{
    struct kit *k = &w->kit;

    if (time_of(first + count) > clock_now_ms(&k->clock))
        clock_set_fake(&k->clock, time_of(first + count));
    kit_series(k, labels);
    for (size_t i = first; i < first + count; i++)
        kit_sample(k, time_of(i), (double)i);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.dropped_count == (is_dropped ? count : 0));
    CHECK(k->result.stored_count == (is_dropped ? 0 : count));
    CHECK(kit_wait(k) == ERR_OK);
}

static void put(struct world *w, const char *labels, size_t i, bool is_dropped)
{
    put_many(w, labels, i, 1, is_dropped);
}

static uint64_t ended_count(struct world *w)
{
    struct rules_stats stats;

    engine_rules_stats(w->kit.engine, &stats);
    return stats.series_ended;
}

/* The series has samples 0 to count - 1, of which `marker` is a staleness marker. */
static void check_samples(struct world *w, const char *labels, size_t count, size_t marker)
{
    int64_t t_ms[16];
    double value[16];

    CHECK(count <= 16);
    for (size_t i = 0; i < count; i++) {
        t_ms[i] = time_of(i);
        value[i] = i == marker ? double_from_bits(STALE_NAN_BITS) : (double)i;
    }
    kit_check(&w->kit, labels, count, t_ms, value);
}

static void reopen(struct world *w)
{
    kit_abandon(&w->kit);
    kit_open(&w->kit, w->fs, NULL);
}

/* At the first sample that is dropped, durable with the answer, and once; a rule that goes lets the
 * series go on behind it. */
static void test_ends_once(void **state)
{
    (void)state;
    for (unsigned crashes = 0; crashes < 2; crashes++) {
        struct drop_rule rule;
        struct world w;

        world_open(&w, 1 + crashes);
        rule = drop_a(&w);
        put_many(&w, A, 0, 3, false);
        put_many(&w, B, 0, 3, false);
        apply(&w, &rule, 1);
        check_samples(&w, A, 3, SIZE_MAX); /* nothing has come for it since */
        put_many(&w, A, 3, 2, true);
        put_many(&w, B, 3, 2, false);
        check_samples(&w, A, 4, 3);
        CHECK(ended_count(&w) == 1);
        if (crashes == 1) {
            reopen(&w);
            check_samples(&w, A, 4, 3);
            apply(&w, &rule, 1);
        }
        put(&w, A, 5, true);
        check_samples(&w, A, 4, 3);
        CHECK(ended_count(&w) == 1 - crashes);
        apply(&w, NULL, 0);
        put(&w, A, 4, false);
        check_samples(&w, A, 5, 3);
        check_samples(&w, B, 5, SIZE_MAX);
        rule_kit_done(&rule, 1);
        world_close(&w);
    }
}

/* What comes is no newer than what is stored: the series ends a moment behind that. */
static void test_late_sample(void **state)
{
    struct drop_rule rule;
    struct world w;

    (void)state;
    world_open(&w, 3);
    rule = drop_a(&w);
    put_many(&w, A, 0, 3, false);
    apply(&w, &rule, 1);
    put(&w, A, 1, true);
    const int64_t t_ms[] = {time_of(0), time_of(1), time_of(2), time_of(2) + 1};
    const double value[] = {0, 1, 2, double_from_bits(STALE_NAN_BITS)};
    kit_check(&w.kit, A, 4, t_ms, value);
    rule_kit_done(&rule, 1);
    world_close(&w);
}

static void test_histograms(void **state)
{
    struct drop_rule rule;
    struct column column = {0};
    struct arena arena;
    struct world w;
    size_t count = 2;

    (void)state;
    world_open(&w, 4);
    rule = drop_a(&w);
    while (!kit_is_histogram(count, T0))
        count++; /* a series whose samples are histograms */
    kit_series(&w.kit, A);
    kit_sample_of(&w.kit, count, T0, 7);
    CHECK_OK(kit_write(&w.kit), &w.kit.ei);
    CHECK(w.kit.result.histogram_stored_count == 1);
    apply(&w, &rule, 1);
    put(&w, A, 1, true);
    arena_init(&arena, NULL);
    CHECK(kit_read(&w.kit, &arena, A, T0, time_of(3), &column) && column.count == 2);
    CHECK(column.t_ms[1] == time_of(1));
    CHECK(double_bits(column.value[1]) == STALE_NAN_BITS);
    arena_done(&arena);
    rule_kit_done(&rule, 1);
    world_close(&w);
}

/* Series that are not stored, that have ended, and that were deleted. */
static void test_what_does_not_end(void **state)
{
    struct purge_request request = {.key = STR_LITERAL("a")};
    struct drop_rule rules[2];
    struct world w;

    (void)state;
    world_open(&w, 5);
    rules[0] = drop_a(&w);
    rules[1] = rule_kit_drop("b", "__name__", "=", "b", &w.arena);
    apply(&w, rules, 1);
    put(&w, A, 0, true);
    CHECK(ended_count(&w) == 0);
    apply(&w, NULL, 0);
    put(&w, A, 0, false);
    put(&w, B, 0, false);
    apply(&w, rules, 2);
    request.matchers = rules[0].matchers;
    request.matcher_count = rules[0].matcher_count;
    CHECK_OK(engine_purge(w.kit.engine, &request, 1, NULL, &w.kit.ei), &w.kit.ei);
    put(&w, A, 1, true); /* deleted */
    check_samples(&w, A, 0, 0);
    put(&w, B, 50, true); /* silent for more than ten minutes */
    check_samples(&w, B, 1, SIZE_MAX);
    CHECK(ended_count(&w) == 0);
    rule_kit_done(rules, 2);
    world_close(&w);
}

/* Where rules rewrite the labels of what they drop, others may send the same series. */
static void test_rewritten(void **state)
{
    struct drop_rule rules[2];
    struct world w;

    (void)state;
    world_open(&w, 6);
    rules[0] = rule_kit_drop("second replica", "replica", "=", "2", &w.arena);
    rules[1] = (struct drop_rule){.name = STR_LITERAL("labeldrop")};
    relabel_config_init(&rules[1].relabel);
    rules[1].relabel.action = RELABEL_LABELDROP;
    rules[1].relabel.regex = STR_LITERAL("replica");
    rules[1].relabel.has_regex = true;
    apply(&w, rules, 2);
    put(&w, A ",replica=1", 0, false);
    put(&w, A ",replica=2", 1, true);
    put(&w, A ",replica=1", 1, false);
    check_samples(&w, A, 2, SIZE_MAX);
    CHECK(ended_count(&w) == 0);
    /* Beside a rule that rewrites others, a series whose labels stay ends. */
    rule_kit_done(rules, 1);
    rules[0] = drop_a(&w);
    put_many(&w, B, 0, 2, false);
    apply(&w, rules, 2);
    put(&w, A, 2, true);
    check_samples(&w, A, 3, 2);
    CHECK(ended_count(&w) == 1);
    rule_kit_done(rules, 1);
    world_close(&w);
}

/* A while after the last change what is stored has come under the same rules: it is of another
 * sender, and no series that is dropped looks for it. */
static void test_old_rules(void **state)
{
    struct drop_rule rules[2];
    struct world w;

    (void)state;
    for (unsigned is_old = 0; is_old < 2; is_old++) {
        world_open(&w, 7);
        rules[0] = rule_kit_drop("no replica", "replica", "=", "", &w.arena);
        rules[1] = (struct drop_rule){.name = STR_LITERAL("labeldrop")};
        relabel_config_init(&rules[1].relabel);
        rules[1].relabel.action = RELABEL_LABELDROP;
        rules[1].relabel.regex = STR_LITERAL("replica");
        rules[1].relabel.has_regex = true;
        apply(&w, rules, 2);
        if (is_old == 1) {
            clock_set_fake(&w.kit.clock, T0 + INT64_C(16) * 60000);
            apply(&w, rules, 2); /* the same are no newer */
        }
        put(&w, A ",replica=1", (size_t)is_old * 60, false);
        put(&w, A, is_old * 60 + 1, true);
        CHECK(ended_count(&w) == 1 - is_old);
        rule_kit_done(rules, 1);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_once),  cmocka_unit_test(test_late_sample),
        cmocka_unit_test(test_histograms), cmocka_unit_test(test_what_does_not_end),
        cmocka_unit_test(test_rewritten),  cmocka_unit_test(test_old_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
