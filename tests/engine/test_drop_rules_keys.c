/* Dropped keys over restarts: who takes the slow path, and what a damaged file does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS

enum { SERIES = 9000 }; /* several segments of the front table */

/* Opens, with rules that drop metric names that match. */
static void open_with(struct kit *k, struct fs *fs, const char *first, const char *second)
{
    struct drop_rule rules[2];
    struct rules_applied applied;
    struct engine_options options = {0};
    struct rule_set *set = NULL;
    struct errinfo ei = {0};
    struct arena arena;
    size_t count = 0;

    arena_init(&arena, NULL);
    if (first != NULL)
        rules[count++] = rule_kit_drop("first", "__name__", "=~", first, &arena);
    if (second != NULL)
        rules[count++] = rule_kit_drop("second", "__name__", "=~", second, &arena);
    CHECK_OK(rule_set_new(rules, count, &set, &ei), &ei);
    memset(k, 0, sizeof *k);
    k->fs = fs;
    clock_init_fake(&k->clock, T0);
    options.fs = fs;
    options.clock = &k->clock;
    CHECK_OK(engine_open(&options, &k->engine, &ei), &ei);
    CHECK_OK(engine_rules_apply(k->engine, set, &applied, &ei), &ei); /* before the replay */
    CHECK_OK(engine_replay(k->engine, 1, &k->replay, &ei), &ei);
    rule_kit_done(rules, count);
    arena_done(&arena);
}

/* Sends all series; how many were dropped and how many took the slow path. */
static void send(struct kit *k, int64_t t_ms, uint64_t *dropped, uint64_t *slow)
{
    uint64_t before = atomic_load(&k->engine->slow_path_series);
    struct kit user;

    kit_join(&user, k->engine);
    *dropped = 0;
    for (int i = 0; i < SERIES; i++) {
        char labels[64];

        (void)snprintf(labels, sizeof labels, "__name__=%s,i=%d",
                       i % 3 == 0   ? "kept"
                       : i % 3 == 1 ? "noise"
                                    : "other",
                       i);
        kit_series(&user, labels);
        kit_sample(&user, t_ms, 1);
        if (i % 1000 == 999) {
            CHECK_OK(kit_write(&user), &user.ei);
            *dropped += user.result.dropped_count;
        }
    }
    kit_leave(&user);
    *slow = atomic_load(&k->engine->slow_path_series) - before;
}

static void check_send(struct kit *k, int64_t t_ms, uint64_t dropped, uint64_t slow)
{
    uint64_t got_dropped, got_slow;

    send(k, t_ms, &got_dropped, &got_slow);
    CHECK_MSG(got_dropped == dropped && got_slow == slow, "%d dropped, %d slow", (int)got_dropped,
              (int)got_slow);
}

static void close_it(struct kit *k)
{
    struct errinfo ei = {0};

    CHECK_OK(engine_close(k->engine, 1000, &ei), &ei);
}

static struct fs *fs_new(uint64_t seed)
{
    struct fs *fs = NULL;
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_new(seed, &fs, &ei), &ei);
    return fs;
}

static bool exists(struct fs *fs)
{
    struct errinfo ei = {0};
    bool is = false;

    CHECK_OK(fs_exists(fs, RULES_KEYS_PATH, &is, &ei), &ei);
    return is;
}

static void test_restarts(void **state)
{
    struct fs *fs = fs_new(1);
    struct rules_stats stats;
    struct kit k;

    (void)state;
    open_with(&k, fs, "noise", "other");
    check_send(&k, T0, (uint64_t)SERIES / 3 * 2, SERIES);
    check_send(&k, T0 + 1, (uint64_t)SERIES / 3 * 2, 0);
    close_it(&k);
    CHECK(exists(fs));
    /* Only what is stored takes the slow path. */
    open_with(&k, fs, "noise", "other");
    engine_rules_stats(k.engine, &stats);
    CHECK(stats.dropped_keys == (size_t)SERIES / 3 * 2);
    check_send(&k, T0 + 2, (uint64_t)SERIES / 3 * 2, SERIES / 3);
    close_it(&k);
    /* Other rules: those of the rule that is gone are judged anew. */
    open_with(&k, fs, "nothing", "noise");
    engine_rules_stats(k.engine, &stats);
    CHECK(stats.dropped_keys == SERIES / 3);
    check_send(&k, T0 + 3, SERIES / 3, (uint64_t)SERIES / 3 * 2);
    close_it(&k);
    open_with(&k, fs, NULL, NULL);
    check_send(&k, T0 + 4, 0, SERIES);
    close_it(&k);
    CHECK(!exists(fs));
    fs_free(fs);
}

static void test_saved_while_it_runs(void **state)
{
    struct fs *fs = fs_new(1), *after = NULL;
    struct errinfo ei = {0};
    struct kit k;

    (void)state;
    open_with(&k, fs, "noise", NULL);
    check_send(&k, T0, SERIES / 3, SERIES);
    engine_housekeep(k.engine); /* too soon */
    CHECK(!exists(fs));
    mutex_lock(&k.engine->rules.apply_lock);
    k.engine->rules.saved.mono_ns -= UINT64_C(601) * 1000000000; /* ten minutes later */
    mutex_unlock(&k.engine->rules.apply_lock);
    engine_housekeep(k.engine);
    CHECK(exists(fs));
    CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
    engine_abandon(k.engine);
    open_with(&k, after, "noise", NULL);
    check_send(&k, T0 + 1, SERIES / 3, (uint64_t)SERIES / 3 * 2);
    close_it(&k);
    fs_free(after);
    fs_free(fs);
}

/* Whatever is wrong with the file, what is dropped is right; only the slow path tells. */
static void check_start(struct fs *fs)
{
    uint64_t dropped, slow;
    struct kit k;

    open_with(&k, fs, "noise", NULL);
    send(&k, T0 + 1, &dropped, &slow);
    CHECK(dropped == SERIES / 3 && slow >= (size_t)SERIES / 3 * 2);
    close_it(&k);
}

static void test_damages(void **state)
{
    struct test_random random = test_random_init(3);
    struct fs *fs = fs_new(1);
    struct errinfo ei = {0};
    struct file *file = NULL;
    uint64_t size = 0;
    struct kit k;

    (void)state;
    open_with(&k, fs, "noise", NULL);
    check_send(&k, T0, SERIES / 3, SERIES);
    close_it(&k);
    for (int i = 0; i < 40; i++) {
        struct fs *copy = NULL;

        CHECK_OK(fs_sim_after_crash(fs, FS_SIM_KEEP_ALL, 1, &copy, &ei), &ei);
        CHECK_OK(file_open(copy, RULES_KEYS_PATH, FILE_READ_WRITE, &file, &ei), &ei);
        CHECK_OK(file_size(file, &size, &ei), &ei);
        if (i % 2 == 0)
            CHECK_OK(file_truncate(file, test_random_below(&random, size), &ei), &ei);
        file_close(file);
        if (i % 2 == 1)
            CHECK_OK(fs_sim_flip_bit(copy, RULES_KEYS_PATH,
                                     test_random_below(&random, i < 20 ? 600 : 8 * size), &ei),
                     &ei);
        check_start(copy);
        fs_free(copy);
    }
    fs_free(fs);
}

/* A crash at any operation of saving. */
static void test_crashes(void **state)
{
    struct errinfo ei = {0};
    bool done = false;

    (void)state;
    for (uint64_t op = 0; !done; op++) {
        struct fs *fs = fs_new(op + 1), *after = NULL;
        struct kit k;

        CHECK(op < 40);
        open_with(&k, fs, "noise", NULL);
        check_send(&k, T0, SERIES / 3, SERIES);
        mutex_lock(&k.engine->rules.apply_lock);
        if (op % 2 == 0) /* over an older one */
            CHECK_OK(rules_keys_save(k.engine, &ei), &ei);
        fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, fs_sim_op_count(fs) + op / 2);
        done = rules_keys_save(k.engine, &ei) == ERR_OK;
        mutex_unlock(&k.engine->rules.apply_lock);
        CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_RANDOM, op, &after, &ei), &ei);
        engine_abandon(k.engine);
        check_start(after);
        fs_free(after);
        fs_free(fs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_saved_while_it_runs),
        cmocka_unit_test(test_damages),
        cmocka_unit_test(test_crashes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
