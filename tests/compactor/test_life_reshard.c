/*
 * Lives that change their number of shards: what was acknowledged first stays what is read, however
 * parts of several counts are merged.
 */
#include <sched.h>
#include <stdio.h>

#include "compactor/compactor.h"
#include "tests/compactor/life_kit.h"
#include "tests/lib/test_cmocka.h"

enum { SERIES = 40 };

static void restart_with(struct life *l, uint32_t shard_count)
{
    life_close(l);
    l->shard_count = shard_count;
    life_open_checked(l);
    CHECK(engine_shard_count(l->kit.engine) == shard_count);
    life_check(l);
}

static void put_all(struct life *l, int64_t t_ms, double value)
{
    for (uint32_t i = 0; i < SERIES; i++)
        life_put(l, i, t_ms, value + i);
    life_send_checked(l);
}

static void flush_all(struct life *l)
{
    for (uint32_t s = 0; s < engine_shard_count(l->kit.engine); s++) {
        CHECK_OK(life_flush(l, s, INT64_MAX), &l->kit.ei);
        CHECK_OK(life_split_late(l, s), &l->kit.ei);
    }
}

static size_t foreign_count(struct life *l)
{
    size_t count = 0;

    for (uint32_t s = 0; s < engine_shard_count(l->kit.engine); s++) {
        struct engine_parts parts;
        struct arena arena;

        arena_init(&arena, NULL);
        CHECK_OK(engine_parts_get(l->kit.engine, s, &arena, &parts, &l->kit.ei), &l->kit.ei);
        for (size_t i = 0; i < parts.count; i++)
            count += parts.items[i].is_foreign;
        engine_parts_release(&parts);
        arena_done(&arena);
    }
    return count;
}

/* Step by step; what is read is the same after each. */
static void regroup_all(struct life *l)
{
    bool any = true;

    while (any) {
        any = false;
        for (uint32_t s = 0; s < engine_shard_count(l->kit.engine); s++) {
            bool done = true;

            while (done) {
                CHECK_OK(life_regroup(l, s, &done), &l->kit.ei);
                any |= done;
                if (done)
                    life_check(l);
            }
        }
    }
    CHECK(foreign_count(l) == 0);
    life_check_files(l);
}

static void merge_all(struct life *l)
{
    for (uint32_t s = 0; s < engine_shard_count(l->kit.engine); s++) {
        bool merged = true;

        while (merged)
            CHECK_OK(life_merge(l, s, &merged), &l->kit.ei);
    }
}

/* Parts of the count of today, with parts of another one between them by generation. */
static void test_merge_does_not_jump(void **state)
{
    struct life l;

    (void)state;
    life_init(&l, test_fs_new(1), 2);
    life_open_checked(&l);
    put_all(&l, LIFE_T0, 1);
    put_all(&l, LIFE_T0 + 1000, 2);
    flush_all(&l);
    restart_with(&l, 8);
    put_all(&l, LIFE_T0 + 500, 3); /* acknowledged before what comes under two shards again */
    flush_all(&l);
    restart_with(&l, 2);
    put_all(&l, LIFE_T0 + 500, 4);
    put_all(&l, LIFE_T0 + 2000, 5);
    flush_all(&l);
    life_check(&l);
    merge_all(&l);
    life_check(&l);
    restart_with(&l, 4);
    merge_all(&l);
    restart_with(&l, 1);
    life_done(&l);
}

/* Up and down, in one step of 16 and in several, with late samples and a deletion between. */
static void test_regrouping(void **state)
{
    static const uint32_t counts[] = {16, 1, 8, 2, 4, 16, 4, 1};
    struct life l;
    bool purged = true;

    (void)state;
    life_init(&l, test_fs_new(2), 1);
    life_open_checked(&l);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        put_all(&l, LIFE_T0 + 60000 * (int64_t)i, (double)i);
        put_all(&l, LIFE_T0 + 30000, (double)i + 0.5); /* late from the second time on */
        if (i == 3)
            CHECK_OK(life_delete_series(&l, 5, LIFE_T0, LIFE_T0 + 60000), &l.kit.ei);
        flush_all(&l);
        restart_with(&l, counts[i]);
        CHECK(foreign_count(&l) > 0);
        regroup_all(&l);
        if (i % 3 == 1)
            merge_all(&l);
        life_check(&l);
    }
    merge_all(&l);
    while (purged)
        CHECK_OK(life_purge(&l, 0, &purged), &l.kit.ei);
    CHECK_OK(life_retire_tombstones(&l), &l.kit.ei);
    CHECK(engine_tombstone_count(l.kit.engine) == 0);
    life_check(&l);
    restart_with(&l, 2);
    life_done(&l);
}

/* Power loss at every operation of a split, and of a join. True when it ended the step. */
static bool crash_at(const struct life *base, uint32_t shard, uint64_t op)
{
    struct life l;
    bool done, died;

    life_init_like(&l, test_fs_after(base->fs, FS_SIM_KEEP_ALL, op), base);
    life_open_checked(&l);
    fs_sim_set_fault(l.fs, FS_SIM_FAULT_CRASH, op);
    died = life_regroup(&l, shard, &done) != ERR_OK;
    CHECK(died != done);
    CHECK(!died || fs_sim_fault_hit(l.fs));
    life_lose_power(&l, &test_crash_modes[op % TEST_CRASH_MODE_COUNT], op);
    life_open_checked(&l);
    life_check(&l);
    life_check_files(&l);
    regroup_all(&l);
    life_check(&l);
    life_done(&l);
    return died;
}

static void crash_everywhere(uint32_t from, uint32_t to)
{
    struct life l;
    uint64_t op = 0;

    life_init(&l, test_fs_new(3), from);
    life_open_checked(&l);
    put_all(&l, LIFE_T0, 1);
    put_all(&l, LIFE_T0 + 1000, 2);
    flush_all(&l);
    restart_with(&l, to);
    life_close(&l);
    while (crash_at(&l, 0, op))
        op++;
    CHECK(op > 10);
    life_done(&l);
}

static void test_power_loss(void **state)
{
    (void)state;
    crash_everywhere(1, 4);
    crash_everywhere(4, 2);
}

/* The only part there is, in shard 0's list. */
static struct part_info only_part(struct life *l)
{
    struct engine_parts parts;
    struct part_info info;
    struct arena arena;

    arena_init(&arena, NULL);
    CHECK_OK(engine_parts_get(l->kit.engine, 0, &arena, &parts, &l->kit.ei), &l->kit.ei);
    CHECK(parts.count == 1 && parts.items[0].is_foreign);
    info = *part_info(parts.items[0].part);
    engine_parts_release(&parts);
    arena_done(&arena);
    return info;
}

/* What is damaged stays as it is, whatever had been written by then, until retention ends it. */
static void test_damage(void **state)
{
    char name[PART_NAME_SIZE], path[MANIFEST_PATH_SIZE];
    struct part_info info;
    struct life l;
    bool done;

    (void)state;
    life_init(&l, test_fs_new(4), 1);
    life_open_checked(&l);
    put_all(&l, LIFE_T0, 1);
    put_all(&l, LIFE_T0 + 1000, 2);
    flush_all(&l);
    life_close(&l);
    l.shard_count = 4;
    life_open_checked(&l);
    info = only_part(&l);
    part_name_format(&info.key, PART_FILE_CHUNKS, false, name);
    (void)snprintf(path, sizeof path, MANIFEST_PARTS_DIR "/%s", name);
    CHECK_OK(fs_sim_flip_bit(l.fs, path, info.chunks_size * 4, &l.kit.ei), &l.kit.ei);
    for (int i = 0; i < 2; i++) {
        CHECK(life_regroup(&l, 0, &done) == ERR_CORRUPT && !done);
        l.kit.ei = (struct errinfo){0};
        life_check_files(&l);
    }
    for (uint32_t s = 1; s < 4; s++) {
        CHECK_OK(life_regroup(&l, s, &done), &l.kit.ei);
        CHECK(!done); /* shard 0's to do */
    }
    CHECK_OK(life_retain(&l, 3, LIFE_T0 + LIFE_WINDOW), &l.kit.ei);
    CHECK(foreign_count(&l) == 0);
    life_check(&l);
    life_check_files(&l);
    life_done(&l);
}

/* The compactor does it by itself, before it merges. */
static void test_workers(void **state)
{
    static const uint32_t counts[] = {16, 2};
    struct life l;

    (void)state;
    life_init(&l, test_fs_new(5), 1);
    life_open_checked(&l);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct compactor_options o = {.fs = l.fs, .thread_count = 2};
        struct compactor *c;

        put_all(&l, LIFE_T0 + 1000 * (int64_t)i, 1);
        flush_all(&l);
        put_all(&l, LIFE_T0 + 500, (double)i);
        flush_all(&l);
        life_close(&l);
        l.shard_count = counts[i];
        life_open_checked(&l);
        o.engine = l.kit.engine;
        o.clock = &l.kit.clock;
        CHECK(foreign_count(&l) > 0);
        CHECK_OK(compactor_new(&o, &c, &l.kit.ei), &l.kit.ei);
        CHECK_OK(compactor_start(c, &l.kit.ei), &l.kit.ei);
        while (foreign_count(&l) > 0)
            (void)sched_yield();
        life_check(&l);
        CHECK_OK(compactor_stop(c, 60000, &l.kit.ei), &l.kit.ei);
        compactor_free(c);
        life_check(&l);
        life_check_files(&l);
    }
    life_done(&l);
}

/* Under a new count all is in parts, and the manifest names no other file. */
static void test_snapshot_has_no_purge(void **state)
{
    struct life l;

    (void)state;
    life_init(&l, test_fs_new(5), 2);
    life_open_checked(&l);
    put_all(&l, LIFE_T0, 1);
    CHECK_OK(life_purge_make_series(&l, 7), &l.kit.ei);
    restart_with(&l, 4);
    CHECK(l.model.is_hiding);
    CHECK_OK(life_snapshot(&l, "snapshot"), &l.kit.ei);
    life_check_snapshot(&l, "snapshot");
    CHECK_OK(life_purge_withdraw(&l), &l.kit.ei);
    life_check(&l);
    life_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_does_not_jump),
        cmocka_unit_test(test_regrouping),
        cmocka_unit_test(test_power_loss),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_snapshot_has_no_purge),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
