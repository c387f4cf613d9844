/*
 * The compactor over a store in memory: its jobs one by one in the test's thread, then with all its
 * threads.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "compactor/compactor_internal.h"
#include "compactor/plan.h"
#include "tests/compactor/fake_maintain.h"
#include "tests/lib/test_cmocka.h"

static const uint64_t day_ms = UINT64_C(24) * 3600 * 1000;
static const uint64_t patience_ns = UINT64_C(60) * 1000000000;

struct scene {
    struct engine engine;
    struct budget memory;
    struct clock clock;
    struct compactor *c;
    struct errinfo ei;
    _Atomic uint64_t load;  /* relaxed: what the compactor is told of requests */
    _Atomic uint64_t looks; /* how often it asked */
};

static uint64_t read_load(void *ctx)
{
    struct scene *s = ctx;

    atomic_fetch_add_explicit(&s->looks, 1, memory_order_relaxed);
    return atomic_load_explicit(&s->load, memory_order_relaxed);
}

static void scene_init(struct scene *s, uint64_t seed, uint32_t threads)
{
    struct compactor_options o = {.engine = &s->engine,
                                  .thread_count = threads,
                                  .retention_ms = 15 * day_ms,
                                  .memory = &s->memory,
                                  .load = read_load,
                                  .load_ctx = s};

    memset(s, 0, sizeof *s);
    fake_init(&s->engine, seed);
    budget_init(&s->memory, "test", UINT64_C(1) << 30, NULL);
    o.fs = s->engine.store.fs;
    clock_init_fake(&s->clock, INT64_C(1800000550000)); /* 2027-01-15T08:09:10Z */
    o.clock = &s->clock;
    CHECK_OK(compactor_new(&o, &s->c, &s->ei), &s->ei);
    checkpoint_begin(s->c);
}

static void scene_done(struct scene *s)
{
    CHECK_OK(compactor_stop(s->c, 60000, &s->ei), &s->ei);
    CHECK(budget_used(&s->memory) == 0);
    compactor_free(s->c);
    fake_done(&s->engine);
}

/* Steps until nothing is due; returns how many steps did something. */
static unsigned steps(struct scene *s)
{
    unsigned n = 0;

    while (checkpoint_step(s->c))
        n++;
    return n;
}

static enum job_outcome merge_one(struct scene *s, uint32_t shard)
{
    return merge_job(&s->c->workers[0], shard);
}

/* ---- checkpoint ---- */

static void test_steps_seal(void **state)
{
    struct scene s;
    struct fake_calls *calls = &s.engine.calls;

    (void)state;
    scene_init(&s, 1, 1);
    (void)steps(&s); /* housekeeping */
    CHECK(calls->seals == 0 && calls->flushes == 0 && calls->splits == 0);
    s.engine.states[2].log_entries = 40000000;
    s.engine.states[2].sample_count = 40000000;
    CHECK(steps(&s) == 1);
    CHECK(calls->seals == 1 && calls->last_shard == 2 && calls->last_reason == SEAL_REPLAY_COST);
    CHECK(metric_counter_read(s.c->metrics.seals[SEAL_REPLAY_COST]) == 1);
    CHECK(metric_counter_read(s.c->metrics.seal_samples) == 40000000);
    scene_done(&s);
}

static void test_memory_seals_the_fattest(void **state)
{
    struct scene s;
    struct fake_calls *calls = &s.engine.calls;

    (void)state;
    scene_init(&s, 2, 1);
    (void)steps(&s);
    s.engine.states[0].chunk_bytes = s.engine.states[1].chunk_bytes = 100 << 20;
    s.engine.states[1].late_bytes = 1;
    budget_force(&s.memory, 700 << 20);
    CHECK(checkpoint_step(s.c));
    CHECK(calls->last_shard == 1 && calls->last_reason == SEAL_MEMORY);
    CHECK(checkpoint_step(s.c));
    CHECK(calls->last_shard == 0 && calls->seals == 2);
    CHECK(!checkpoint_step(s.c)); /* the rest is not the memtable's */
    budget_release(&s.memory, 700 << 20);
    scene_done(&s);
}

/* A seal that fails is left alone for a while; another shard's goes on. */
static void test_failed_seal_backs_off(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 3, 1);
    (void)steps(&s);
    s.engine.states[0].log_entries = 50000000;
    s.engine.states[1].log_entries = 40000000;
    s.engine.seal_fails = (struct fake_failure){ERR_NO_SPACE, 1};
    CHECK(steps(&s) == 2);
    CHECK(s.engine.calls.seals == 2 && s.engine.calls.last_shard == 1);
    CHECK(metric_counter_read(s.c->metrics.seal_failures) == 1);
    s.c->shards[0].seal.until_mono_ns = 0;
    CHECK(steps(&s) == 1 && s.engine.calls.last_shard == 0);
    CHECK(s.c->shards[0].seal.failures == 0);
    scene_done(&s);
}

static void test_steps_flush(void **state)
{
    struct scene s;
    struct fake_calls *calls = &s.engine.calls;

    (void)state;
    scene_init(&s, 4, 1);
    (void)steps(&s);
    s.c->shards[1].has_news = false;
    s.engine.states[1].oldest_sealed_window_end_ms = s.engine.now_ms - 599999;
    CHECK(steps(&s) == 0);
    s.engine.now_ms++;
    s.engine.flush_fails = (struct fake_failure){ERR_IO, 1};
    CHECK(steps(&s) == 1); /* the failure; then it is left alone */
    CHECK(metric_counter_read(s.c->metrics.flush_failures) == 1);
    s.c->shards[1].flush.until_mono_ns = 0;
    CHECK(steps(&s) == 2); /* the flush, and retention behind it */
    CHECK(calls->flushes == 2 && calls->last_shard == 1);
    CHECK(calls->last_until_ms == s.engine.now_ms - 600000);
    CHECK(s.c->shards[1].has_news);
    scene_done(&s);
}

/* After a start that met damage in the log all shards are sealed, once. */
static void test_damaged_log_is_sealed(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 8, 1);
    (void)steps(&s);
    s.engine.states[1].log_is_damaged = s.engine.states[2].log_is_damaged = true;
    s.engine.seal_fails = (struct fake_failure){ERR_IO, 1};
    CHECK(steps(&s) == 2 && s.engine.calls.seals == 2); /* one fails, and is left alone */
    s.c->shards[1].seal.until_mono_ns = 0;
    CHECK(steps(&s) == 1 && s.engine.calls.seals == 3 && s.engine.calls.last_shard == 1);
    CHECK(steps(&s) == 0);
    scene_done(&s);
}

/* Seals without end delay a flush and retention by a round, no more. */
static void test_seals_starve_nothing(void **state)
{
    struct scene s;
    struct fake_calls *calls = &s.engine.calls;
    unsigned n = 0;

    (void)state;
    scene_init(&s, 6, 1);
    (void)steps(&s);
    s.engine.states[1].oldest_sealed_window_end_ms = s.engine.now_ms - 600000;
    s.c->look_due_mono_ns = 0; /* housekeeping is due */
    for (; calls->flushes == 0; n++) {
        s.engine.states[n % s.c->shard_count].log_entries = 40000000;
        s.engine.states[n % s.c->shard_count].sample_count = 1;
        CHECK(checkpoint_step(s.c) && n <= s.c->shard_count);
    }
    CHECK(calls->seals == s.c->shard_count && s.c->look_due_mono_ns != 0);
    CHECK(calls->last_shard == 1);
    s.engine.states[0].log_entries = 40000000;
    CHECK(checkpoint_step(s.c) && calls->seals == s.c->shard_count + 1);
    scene_done(&s);
}

/* A merge that would jump over a late file has it split first. */
static void test_merge_waits_for_split(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 5, 1);
    (void)steps(&s);
    fake_part_add(&s.engine, 0, 0, 2, 1 << 16);
    fake_part_add(&s.engine, 0, 2, 2, 3 << 16);
    s.engine.states[0].late_file_bytes = 1000; /* of generation 2 << 16, say */
    CHECK(steps(&s) == 0);                     /* young and small: it can wait */
    CHECK(merge_one(&s, 0) == JOB_NOTHING);
    CHECK(steps(&s) == 2 && s.engine.calls.splits == 1); /* the second: figures of the disk */
    CHECK(merge_one(&s, 0) == JOB_DONE);
    CHECK(fake_live_count(&s.engine, 0) == 1);
    fake_check(&s.engine);
    /* While the checkpoint thread makes parts, none are listed. */
    mutex_lock(&s.c->shards[0].files_lock);
    CHECK(merge_one(&s, 0) == JOB_NOTHING);
    mutex_unlock(&s.c->shards[0].files_lock);
    scene_done(&s);
}

/* ---- merges ---- */

static void test_merge_of_open_windows_waits(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 6, 1);
    s.engine.now_ms = MERGE_KIT_START + 8 * MERGE_KIT_HOUR + 599999;
    for (int64_t i = 0; i < 4; i++)
        fake_part_add(&s.engine, 1, 2 * i, 2, (uint64_t)(1 + i) << 16);
    CHECK(merge_one(&s, 1) == JOB_NOTHING);
    s.engine.now_ms++;
    s.engine.states[1].oldest_sealed_window_end_ms = MERGE_KIT_START + 8 * MERGE_KIT_HOUR;
    CHECK(merge_one(&s, 1) == JOB_NOTHING);
    s.engine.states[1].oldest_sealed_window_end_ms = INT64_MAX;
    CHECK(merge_one(&s, 1) == JOB_DONE);
    CHECK(fake_live_count(&s.engine, 1) == 1);
    CHECK(metric_counter_read(s.c->metrics.merges) == 1);
    CHECK(merge_one(&s, 1) == JOB_NOTHING);
    fake_check(&s.engine);
    scene_done(&s);
}

/* The parts went away while they were merged: nothing is left of the result. */
static void test_inputs_gone(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 7, 1);
    fake_part_add(&s.engine, 0, 0, 2, 1 << 16);
    fake_part_add(&s.engine, 0, 0, 2, 2 << 16);
    s.engine.exchange_fails = (struct fake_failure){ERR_NOT_FOUND, 1};
    CHECK(merge_one(&s, 0) == JOB_DONE);
    CHECK(metric_counter_read(s.c->metrics.merge_failures) == 0);
    s.engine.exchange_fails = (struct fake_failure){ERR_IO, 1};
    CHECK(merge_one(&s, 0) == JOB_FAILED);
    CHECK(metric_counter_read(s.c->metrics.merge_failures) == 1);
    CHECK(fake_live_count(&s.engine, 0) == 2);
    fake_check(&s.engine);
    scene_done(&s); /* no file of a result is left */
}

/* A damaged part is set aside, and with it what overlaps it; others are merged. */
static void test_damaged_part_is_set_aside(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 8, 1);
    fake_part_add(&s.engine, 0, 0, 2, 5 << 16); /* damaged, and late data over it */
    fake_part_add(&s.engine, 0, 0, 2, 6 << 16);
    fake_part_add(&s.engine, 0, 8, 2, 1 << 16); /* later that day, in good order */
    fake_part_add(&s.engine, 0, 8, 2, 2 << 16);
    fake_damage(&s.engine, 0, 5 << 16);
    CHECK(merge_one(&s, 0) == JOB_FAILED);
    CHECK(metric_gauge_read(s.c->metrics.parts_damaged) == 1);
    CHECK(s.c->shards[0].damaged[0].generation == 5 << 16);
    CHECK(merge_one(&s, 0) == JOB_DONE);
    CHECK(merge_one(&s, 0) == JOB_NOTHING);
    CHECK(fake_live_count(&s.engine, 0) == 3);
    CHECK(metric_counter_read(s.c->metrics.merge_failures) == 1);
    /* It is forgotten when it goes. */
    s.c->options.retention_ms = 1;
    fake_part_add(&s.engine, 0, 24, 2, 9 << 16);
    retention_run(s.c);
    CHECK(fake_live_count(&s.engine, 0) == 1);
    CHECK(merge_one(&s, 0) == JOB_NOTHING);
    CHECK(metric_gauge_read(s.c->metrics.parts_damaged) == 0);
    scene_done(&s);
}

/* ---- retention ---- */

static void test_retention_over_all_shards(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 9, 1);
    fake_part_add(&s.engine, 0, 0, 2, 1 << 16);
    fake_part_add(&s.engine, 1, 0, 2, 1 << 16);
    fake_part_add(&s.engine, 1, 2, 2, 2 << 16);
    s.engine.now_ms = INT64_MAX; /* the clock is not asked */
    retention_run(s.c);
    CHECK(fake_live_count(&s.engine, 1) == 2);
    CHECK(metric_gauge_read(s.c->metrics.parts_by_window[0]) == 3);
    fake_part_add(&s.engine, 2, INT64_C(15) * 24, 2, 3 << 16); /* another shard's newest counts */
    retention_run(s.c);
    CHECK(fake_live_count(&s.engine, 0) == 0 && fake_live_count(&s.engine, 1) == 1);
    CHECK(fake_live_count(&s.engine, 2) == 1);
    CHECK(metric_counter_read(s.c->metrics.retained_parts[RETENTION_TIME]) == 2);
    CHECK(metric_counter_read(s.c->metrics.retentions[RETENTION_TIME]) == 1);
    CHECK(metric_gauge_read(s.c->metrics.parts_by_window[0]) == 2);
    s.c->options.retention_bytes = 1000;
    s.engine.files.sealed_bytes = 1000;
    retention_run(s.c);
    CHECK(fake_live_count(&s.engine, 1) == 0 && fake_live_count(&s.engine, 2) == 0);
    CHECK(metric_counter_read(s.c->metrics.retained_parts[RETENTION_SIZE]) == 2);
    scene_done(&s);
}

/* ---- with threads ---- */

static bool has_plan(struct engine *e, uint32_t shard)
{
    const struct plan_options o = {.retention_ms = 15 * day_ms, .closed_until_ms = e->now_ms};
    struct plan_part list[FAKE_PARTS_MAX];
    struct errinfo ei = {0};
    struct arena arena;
    struct plan plan;
    size_t n = 0;

    for (size_t i = 0; i < e->part_counts[shard]; i++) {
        const struct fake_part *p = &e->parts[shard][i];

        if (p->is_live)
            list[n++] =
                (struct plan_part){part_info(p->part)->key, part_info(p->part)->index_size +
                                                                part_info(p->part)->chunks_size};
    }
    arena_init(&arena, NULL);
    CHECK_OK(plan_next(list, n, &o, &arena, &plan, &ei), &ei);
    arena_done(&arena);
    return plan.reason != PLAN_NOTHING;
}

static void wait_until_merged(struct engine *e)
{
    uint64_t deadline_ns = clock_mono_ns() + patience_ns;

    mutex_lock(&e->lock);
    for (uint32_t i = 0; i < FAKE_SHARDS; i++) {
        while (has_plan(e, i))
            CHECK(fake_wait(e, deadline_ns));
    }
    mutex_unlock(&e->lock);
}

static void add_days(struct engine *e, uint64_t first_generation)
{
    for (uint32_t shard = 0; shard < FAKE_SHARDS; shard++) {
        for (int64_t i = 0; i < 14; i++) {
            int64_t hour = i < 12 ? 2 * i : 2 * (i - 12); /* twelve windows and late data */

            fake_part_add(e, shard, hour, 2, (first_generation + (uint64_t)i) << 16);
        }
    }
}

static void test_pool_merges_all_shards(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 10, 3);
    add_days(&s.engine, 1);
    CHECK_OK(compactor_start(s.c, &s.ei), &s.ei);
    wait_until_merged(&s.engine);
    CHECK_OK(compactor_stop(s.c, 60000, &s.ei), &s.ei);
    for (uint32_t i = 0; i < FAKE_SHARDS; i++)
        CHECK(fake_live_count(&s.engine, i) < 5);
    fake_check(&s.engine);
    CHECK(metric_gauge_read(s.c->metrics.merges_running) == 0);
    scene_done(&s);
}

static void test_clean(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 11, 2);
    add_days(&s.engine, 1);
    fake_delete(&s.engine, 0, 3, 0, 24, 5 << 16); /* older parts only */
    fake_delete(&s.engine, 0, 4, 3, 2, 99 << 16);
    fake_delete(&s.engine, 2, 1, 6, 1, 99 << 16);
    CHECK(fake_hidden_count(&s.engine) > 0);
    CHECK_OK(compactor_start(s.c, &s.ei), &s.ei);
    CHECK_OK(compactor_clean(s.c, NULL, &s.ei), &s.ei);
    CHECK(engine_tombstone_count(&s.engine) == 0);
    CHECK_OK(compactor_clean(s.c, NULL, &s.ei), &s.ei); /* nothing to do */
    CHECK_OK(compactor_stop(s.c, 60000, &s.ei), &s.ei);
    fake_check(&s.engine);
    CHECK(metric_counter_read(s.c->metrics.merge_purged) > 0);
    scene_done(&s);
}

/* Ended parts whose generations leave no number between them are rewritten together. */
static void test_clean_of_neighbours(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 12, 1);
    for (uint64_t i = 0; i < 3; i++)
        fake_part_add(&s.engine, 0, 0, 2, (1 << 16) + i);
    for (uint32_t i = 0; i < FAKE_SERIES; i++)
        fake_delete(&s.engine, 0, i, 0, 1, 9 << 16);
    CHECK_OK(purge_job(&s.c->workers[0], 0, &s.ei), &s.ei);
    CHECK(fake_hidden_count(&s.engine) == 0);
    fake_check(&s.engine);
    scene_done(&s);
}

static void test_clean_reports_failure(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 13, 2);
    fake_part_add(&s.engine, 0, 0, 2, 1 << 16);
    fake_part_add(&s.engine, 1, 0, 2, 1 << 16);
    for (uint32_t shard = 0; shard < 2; shard++)
        for (uint32_t i = 0; i < FAKE_SERIES; i++)
            fake_delete(&s.engine, shard, i, 0, 2, 9 << 16);
    s.engine.exchange_fails = (struct fake_failure){ERR_IO, 1};
    CHECK_OK(compactor_start(s.c, &s.ei), &s.ei);
    CHECK(compactor_clean(s.c, NULL, &s.ei) == ERR_IO);
    CHECK(fake_live_count(&s.engine, 0) + fake_live_count(&s.engine, 1) == 1);
    s.ei = (struct errinfo){0};
    CHECK_OK(compactor_clean(s.c, NULL, &s.ei), &s.ei);
    /* Every sample was deleted: no part is left. */
    CHECK(fake_live_count(&s.engine, 0) + fake_live_count(&s.engine, 1) == 0);
    CHECK(engine_tombstone_count(&s.engine) == 0);
    scene_done(&s);
}

/* Named as Prometheus names them, in a folder that is made when the first comes. */
/* A start removes what snapshots that were cut off have left, and nothing else. */
static void test_snapshots_swept(void **state)
{
    static const char *const names[] = {
        "snapshots/20270115T080910Z-0123456789abcdef.tmp", /* goes */
        "snapshots/20270115T080910Z-0123456789abcdef",
        "snapshots/20270115T080910Z-0123456789abcdeF.tmp",
        "snapshots/2027011xT080910Z-0123456789abcdef.tmp",
        "snapshots/mine.tmp",
    };
    struct scene s;

    (void)state;
    scene_init(&s, 7, 1);
    CHECK_OK(fs_mkdir(s.engine.store.fs, "snapshots", &s.ei), &s.ei);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_OK(fs_mkdir(s.engine.store.fs, names[i], &s.ei), &s.ei);
    compactor_snapshots_sweep(s.c);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool exists = false;

        CHECK_OK(fs_exists(s.engine.store.fs, names[i], &exists, &s.ei), &s.ei);
        CHECK_MSG(exists == (i > 0), "%s", names[i]);
    }
    scene_done(&s);
}

static void test_snapshot(void **state)
{
    static const char folder[] = "snapshots/20270115T080910Z-";
    struct scene s;
    char name[COMPACTOR_SNAPSHOT_NAME_SIZE];
    bool exists = false;

    (void)state;
    scene_init(&s, 18, 1);
    CHECK_OK(compactor_snapshot(s.c, NULL, name, &s.ei), &s.ei);
    CHECK(strncmp(s.engine.snapshot_path, folder, sizeof folder - 1) == 0);
    CHECK(strcmp(s.engine.snapshot_path + strlen("snapshots/"), name) == 0);
    CHECK(strlen(name) == 33 && strspn(name + 17, "0123456789abcdef") == 16);
    CHECK_OK(fs_exists(s.engine.store.fs, "snapshots", &exists, &s.ei), &s.ei);
    CHECK(exists);
    s.engine.snapshot_fails = (struct fake_failure){ERR_NO_SPACE, 1};
    CHECK(compactor_snapshot(s.c, NULL, name, &s.ei) == ERR_NO_SPACE);
    scene_done(&s);
}

static void *clean_run(void *arg)
{
    struct scene *s = arg;
    struct errinfo ei = {0};

    CHECK(compactor_clean(s->c, NULL, &ei) == ERR_CANCELED);
    return NULL;
}

/* A stop in the middle of merges and of a clean: everybody comes back, nothing has changed that
 * should not. */
static void test_stop_in_the_middle(void **state)
{
    struct scene s;
    struct thread cleaner = {0};
    const _Atomic bool gone = true;
    uint64_t deadline_ns = clock_mono_ns() + patience_ns;

    (void)state;
    scene_init(&s, 14, 1);
    atomic_store(&s.load, 1000); /* always busy: merges crawl, but they do go on */
    add_days(&s.engine, 1);
    for (uint32_t i = 0; i < FAKE_SERIES; i++)
        fake_delete(&s.engine, 2, i, 0, 24, 99 << 16);
    CHECK_OK(compactor_start(s.c, &s.ei), &s.ei);
    CHECK(compactor_clean(s.c, &gone, &s.ei) == ERR_CANCELED);
    mutex_lock(&s.engine.lock);
    while (s.engine.calls.exchanges == 0)
        CHECK(fake_wait(&s.engine, deadline_ns));
    mutex_unlock(&s.engine.lock);
    CHECK_OK(compactor_stop(s.c, 60000, &s.ei), &s.ei);
    CHECK_OK(thread_start(&cleaner, "clean", clean_run, &s, &s.ei), &s.ei);
    thread_join(&cleaner);
    fake_check(&s.engine);
    scene_done(&s);
}

/* Without requests no time is given away; with them as much as was worked, or more. */
static void test_pace(void **state)
{
    struct scene s;
    struct worker *w;
    uint64_t begun_ns = clock_mono_ns();

    (void)state;
    scene_init(&s, 16, 1);
    w = &s.c->workers[0];
    pace_begin(w);
    pace_yield(w);
    CHECK(w->paused_ns == 0 && atomic_load(&s.looks) == 1);
    atomic_store(&s.load, 1);
    w->batch_mono_ns = clock_mono_ns() - 2000000;
    pace_yield(w);
    CHECK(w->paused_ns >= 2000000);
    CHECK(clock_mono_ns() >= begun_ns + 2000000);
    scene_done(&s);
}

/* The checkpoint thread does by itself what the steps do. */
static void test_checkpoint_thread(void **state)
{
    struct scene s;
    uint64_t deadline_ns = clock_mono_ns() + patience_ns;

    (void)state;
    scene_init(&s, 15, 1);
    CHECK_OK(compactor_start(s.c, &s.ei), &s.ei);
    mutex_lock(&s.engine.lock);
    s.engine.states[0].log_entries = 50000000;
    s.engine.states[1].oldest_sealed_window_end_ms = MERGE_KIT_START;
    s.engine.states[2].late_file_bytes = 64 << 20;
    while (s.engine.calls.seals == 0 || s.engine.calls.flushes == 0 || s.engine.calls.splits == 0)
        CHECK(fake_wait(&s.engine, deadline_ns));
    mutex_unlock(&s.engine.lock);
    scene_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_seal),
        cmocka_unit_test(test_memory_seals_the_fattest),
        cmocka_unit_test(test_failed_seal_backs_off),
        cmocka_unit_test(test_steps_flush),
        cmocka_unit_test(test_damaged_log_is_sealed),
        cmocka_unit_test(test_seals_starve_nothing),
        cmocka_unit_test(test_merge_waits_for_split),
        cmocka_unit_test(test_merge_of_open_windows_waits),
        cmocka_unit_test(test_inputs_gone),
        cmocka_unit_test(test_damaged_part_is_set_aside),
        cmocka_unit_test(test_retention_over_all_shards),
        cmocka_unit_test(test_pool_merges_all_shards),
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_clean_of_neighbours),
        cmocka_unit_test(test_clean_reports_failure),
        cmocka_unit_test(test_snapshots_swept),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_stop_in_the_middle),
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_checkpoint_thread),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
