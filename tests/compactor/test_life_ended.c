/*
 * Series that end in masses: they leave memory, their slots and index entries are used again, and
 * no sample is lost on the way, whatever happens between the steps.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memtable/ended_internal.h"
#include "tests/compactor/life_kit.h"
#include "tests/lib/test_cmocka.h"

enum { SHARDS = 2 };

static void life_begin(struct life *l, uint64_t seed)
{
    memset(l, 0, sizeof *l);
    life_init(l, test_fs_new(seed), SHARDS);
    life_open_checked(l);
    life_set_now(l, LIFE_T0);
}

/* One sample of each series at the present time, which then moves on. */
static void scrape(struct life *l, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        life_put(l, i, l->now_ms, (double)(l->now_ms - LIFE_T0) / 1000 + i);
    life_send_checked(l);
    life_set_now(l, l->now_ms + 30000);
}

static void mark_ended(struct life *l, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        life_put(l, i, l->now_ms, double_from_bits(STALE_NAN_BITS));
    life_send_checked(l);
    life_set_now(l, l->now_ms + 1000);
}

/* All definitions have been logged twice. */
static void wait_repeated(struct life *l)
{
    struct engine *e = l->kit.engine;

    while (atomic_load_explicit(&e->logs.recent_count, memory_order_relaxed) > 0)
        CHECK(life_wait(l) == ERR_OK);
}

static uint64_t seal_all(struct life *l)
{
    uint64_t ended = 0;

    for (uint32_t s = 0; s < SHARDS; s++) {
        struct seal_result r = {0};

        CHECK_OK(engine_seal(l->kit.engine, s, SEAL_INTERVAL, NULL, &r, &l->kit.ei), &l->kit.ei);
        ended += r.ended_series_count;
    }
    return ended;
}

/* Every series is in the series file, and may leave after the next seal. */
static void settle(struct life *l)
{
    wait_repeated(l);
    CHECK(seal_all(l) == 0);
}

static void rebuild_all(struct life *l)
{
    for (uint32_t s = 0; s < SHARDS; s++)
        CHECK_OK(engine_rebuild(l->kit.engine, s, NULL, &l->kit.ei), &l->kit.ei);
    engine_housekeep(l->kit.engine);
}

/* Figures of all shards. */
struct figures {
    uint64_t series, slot_end, in_index, dead, waiting, free, ended;
};

static struct figures figures_of(const struct life *l)
{
    struct figures f = {0};

    for (uint32_t i = 0; i < SHARDS; i++) {
        struct shard *s = &l->kit.engine->shards[i];
        struct index_stats index;
        struct seal_state state;

        index_stats_get(s->index, &index);
        engine_seal_state(l->kit.engine, i, &state);
        f.series += s->series.series_count;
        f.slot_end += s->series.slot_end;
        f.in_index += index.slot_count;
        f.dead += s->slots.dead_count;
        f.waiting += s->slots.waiting_count;
        f.free += s->slots.free_count;
        f.ended += state.ended_series_count;
    }
    return f;
}

static void restart(struct life *l, int how)
{
    if (how == 0)
        life_close(l);
    else if (how == 1)
        life_abandon(l);
    else
        life_lose_power(l, &test_crash_modes[0], 7);
    life_open_checked(l);
    life_check(l);
    life_check_files(l);
}

/* ---- the way out ---- */

static void ended_series_leave(void **state)
{
    struct figures f;
    struct life l;

    (void)state;
    life_begin(&l, 1);
    for (int i = 0; i < 40; i++)
        scrape(&l, 0, 400);
    settle(&l);
    mark_ended(&l, 0, 200); /* some with a marker, some without a word */
    for (int i = 0; i < 25; i++)
        scrape(&l, 300, 400);
    f = figures_of(&l);
    CHECK(f.series == 400 && f.ended == 200); /* the silent ones are seen at the next look */
    CHECK(seal_all(&l) == 300);
    f = figures_of(&l);
    CHECK(f.series == 100 && f.ended == 0);
    CHECK(f.in_index == 100 && f.dead == 0 && f.free == 300); /* the index was worn */
    life_check(&l);

    /* Others take their slots. */
    scrape(&l, 400, 600);
    CHECK(figures_of(&l).slot_end == f.slot_end);
    life_check(&l);
    restart(&l, 1);
    CHECK(figures_of(&l).series == 300);
    settle(&l);
    restart(&l, 2);

    /* And some come back, as other series. */
    scrape(&l, 0, 120);
    life_check(&l);
    CHECK(figures_of(&l).series == 420);
    settle(&l);
    restart(&l, 0);
    for (uint32_t s = 0; s < SHARDS; s++)
        CHECK(life_flush(&l, s, INT64_MAX) == ERR_OK);
    engine_housekeep(l.kit.engine);
    life_check(&l);
    f = figures_of(&l);
    CHECK(f.waiting == 0 && f.free + f.series == f.slot_end); /* no file names a slot any more */
    restart(&l, 2);
    life_done(&l);
}

static void a_few_stay(void **state)
{
    struct life l;

    (void)state;
    life_begin(&l, 2);
    scrape(&l, 0, 200);
    settle(&l);
    mark_ended(&l, 0, 4); /* in no shard more than one in twenty */
    CHECK(seal_all(&l) == 0 && figures_of(&l).ended == 4);
    rebuild_all(&l); /* but they do when asked for */
    CHECK(figures_of(&l).series == 196 && figures_of(&l).ended == 0);
    life_check(&l);
    life_done(&l);
}

static void young_series_stay(void **state)
{
    struct life l;

    (void)state;
    life_begin(&l, 3);
    atomic_store_explicit(&l.kit.engine->logs.repeat_delay_ns, UINT64_MAX / 2,
                          memory_order_relaxed);
    scrape(&l, 0, 200);
    mark_ended(&l, 0, 200);
    for (int i = 0; i < 3; i++) /* their definitions stand in the log once */
        CHECK(seal_all(&l) == 0);
    atomic_store_explicit(&l.kit.engine->logs.repeat_delay_ns, 0, memory_order_relaxed);
    while (atomic_load_explicit(&l.kit.engine->logs.recent_count, memory_order_relaxed) > 0)
        scrape(&l, 200, 210);
    CHECK(seal_all(&l) == 200);
    restart(&l, 1);
    CHECK(figures_of(&l).series == 10);
    life_done(&l);
}

/* A late sample, then the series ends and begins anew with another value at that time, in order
 * this time and in a window whose sealed file is older than the late one. */
static void what_contradicts_late_samples_loses(void **state)
{
    struct life l;

    (void)state;
    life_begin(&l, 4);
    scrape(&l, 0, 200);
    scrape(&l, 0, 200);
    settle(&l);
    for (uint32_t i = 0; i < 100; i++)
        life_put(&l, i, LIFE_T0 + 500, (double)i);
    life_send_checked(&l);
    mark_ended(&l, 0, 100);
    CHECK(seal_all(&l) == 100);
    for (uint32_t i = 0; i < 100; i++)
        life_put(&l, i, LIFE_T0 + 500, (double)i + 1);
    life_send_checked(&l);
    CHECK(seal_all(&l) == 0);
    life_check(&l);
    for (uint32_t s = 0; s < SHARDS; s++)
        CHECK_OK(life_flush(&l, s, INT64_MAX), &l.kit.ei);
    life_check(&l);
    restart(&l, 2);
    life_done(&l);
}

/* ---- between the steps ---- */

/* Does something the nth time a step gives way. */
struct meddler {
    struct life *life;
    int at, count;
    uint32_t first, end; /* series that come back */
    bool dies;           /* everything after that is cut off */
    _Atomic bool stop;
};

static void meddle(void *ctx)
{
    struct meddler *m = ctx;

    if (m->count++ != m->at)
        return;
    for (uint32_t i = m->first; i < m->end; i++)
        life_put(m->life, i, m->life->now_ms + 1, (double)i);
    life_send_checked(m->life);
    atomic_store_explicit(&m->stop, m->dies, memory_order_relaxed);
}

/* One run in which series come back at the nth pause of a rebuild. False: there are fewer pauses.
 */
static bool come_back_at(int at, bool dies, int how)
{
    struct life l;
    struct meddler m = {.life = &l, .at = at, .first = 20, .end = 120, .dies = dies};
    const struct maintain_control control = {.stop = &m.stop, .yield = meddle, .yield_ctx = &m};
    enum err e;

    life_begin(&l, (uint64_t)at + 10);
    for (int i = 0; i < 5; i++)
        scrape(&l, 0, 300);
    settle(&l);
    mark_ended(&l, 0, 250);
    for (uint32_t s = 0; s < SHARDS; s++) {
        e = engine_rebuild(l.kit.engine, s, &control, &l.kit.ei);
        CHECK(e == ERR_OK || (dies && e == ERR_CANCELED));
        if (s == 0)
            life_check(&l);
    }
    life_check(&l);
    restart(&l, how);
    scrape(&l, 0, 300);
    atomic_store_explicit(&m.stop, false, memory_order_relaxed);
    m.at = -1;
    for (uint32_t s = 0; s < SHARDS; s++)
        CHECK_OK(engine_rebuild(l.kit.engine, s, &control, &l.kit.ei), &l.kit.ei);
    life_check(&l);
    CHECK(figures_of(&l).series == 300 && figures_of(&l).in_index == 300);
    restart(&l, 2 - how);
    life_done(&l);
    return m.count > at;
}

static void series_come_back_at_any_step(void **state)
{
    int pauses = 0;

    (void)state;
    for (int at = 0; come_back_at(at, at % 2 == 1, at % 3); at++)
        pauses++;
    CHECK(pauses > 10);
}

/* The checkpoint without them fails: the series stay on their way, and can come back; the next seal
 * finishes it. */
static void a_failed_checkpoint_is_made_up_for(void **state)
{
    int failures = 0;

    (void)state;
    for (int at = 0; at < 60; at++) {
        struct life l;
        enum err e = ERR_OK;

        life_begin(&l, (uint64_t)at + 100);
        for (int i = 0; i < 5; i++)
            scrape(&l, 0, 100);
        settle(&l);
        mark_ended(&l, 0, 80);
        fs_sim_set_fault(l.fs, FS_SIM_FAULT_EIO, fs_sim_op_count(l.fs) + (uint64_t)at);
        for (uint32_t s = 0; s < SHARDS && e == ERR_OK; s++)
            e = engine_rebuild(l.kit.engine, s, NULL, &l.kit.ei);
        failures += e != ERR_OK;
        fs_sim_clear_fault(l.fs);
        while (engine_admit(l.kit.engine, NULL) != ERR_OK)
            (void)sched_yield(); /* the log tries again by itself */
        life_check(&l);
        scrape(&l, 40, 60);
        life_check(&l);
        rebuild_all(&l);
        life_check(&l);
        CHECK(figures_of(&l).series >= 40);
        restart(&l, at % 3);
        life_done(&l);
    }
    CHECK(failures > 5);
}

/* ---- slots again and again ---- */

/* Many generations of short-lived series: neither slots nor index nor keys pile up. */
static void churn_keeps_memory(void **state)
{
    struct engine_stats stats;
    uint64_t slot_end = 0, bytes = 0;
    struct life l;

    (void)state;
    life_begin(&l, 4);
    for (uint32_t round = 0; round < 30; round++) {
        uint32_t first = 1000 + round * 300;

        for (int i = 0; i < 3; i++) {
            scrape(&l, 0, 50);
            scrape(&l, first, first + 300);
        }
        settle(&l);
        mark_ended(&l, first, first + 300);
        rebuild_all(&l);
        if (round % 8 == 7) {
            life_check(&l);
            restart(&l, (int)(round / 8 % 3));
        }
        engine_stats_get(l.kit.engine, &stats);
        CHECK(figures_of(&l).series == 50 && figures_of(&l).in_index == 50);
        if (round == 10) {
            slot_end = figures_of(&l).slot_end;
            bytes = stats.memory_bytes;
        }
    }
    /* Slots that a start has found dead wait for the files of before. */
    CHECK(figures_of(&l).slot_end < slot_end + 800);
    CHECK(stats.memory_bytes < bytes + bytes / 4);
    CHECK(stats.front_table_entries < 50 + 3 * 1024 + 600);
    life_check(&l);
    life_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ended_series_leave),
        cmocka_unit_test(a_few_stay),
        cmocka_unit_test(young_series_stay),
        cmocka_unit_test(what_contradicts_late_samples_loses),
        cmocka_unit_test(series_come_back_at_any_step),
        cmocka_unit_test(a_failed_checkpoint_is_made_up_for),
        cmocka_unit_test(churn_keeps_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
