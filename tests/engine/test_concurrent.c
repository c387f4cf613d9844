/* Writers, readers and the log at once (run under TSan too). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/thread.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS

enum { WRITERS = 3, READERS = 2, ROUNDS = 150, SERIES_A_ROUND = 40 };

struct shared {
    struct kit *kit;                        /* the engine; its request belongs to nobody here */
    _Atomic uint64_t acknowledged[WRITERS]; /* release: rounds below are durable */
    _Atomic int writing;
};

struct worker {
    struct shared *shared;
    uint64_t number;
    struct thread thread;
};

static void labels_of(uint64_t writer, uint64_t series, char out[64])
{
    /* Every fifth series is shared by all writers, who race to create it. */
    if (series % 5 == 0)
        (void)snprintf(out, 64, "__name__=shared,s=%d", (int)series);
    else
        (void)snprintf(out, 64, "__name__=own,s=%d,w=%d", (int)series, (int)writer);
}

static void *write_rounds(void *arg)
{
    struct worker *w = arg;
    struct kit k;
    char labels[64];

    kit_join(&k, w->shared->kit->engine);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        /* New series all the time: the last few of a sliding window. */
        for (uint64_t s = round; s < round + SERIES_A_ROUND; s++) {
            labels_of(w->number, s, labels);
            kit_series(&k, labels);
            kit_sample(&k, T0 + (int64_t)round * 1000, (double)round);
        }
        CHECK_OK(kit_write(&k), &k.ei);
        /* Shared series: somebody else may have been ahead; then these are late, or repeats. */
        CHECK(k.result.refused_count == 0);
        CHECK_OK(kit_wait(&k), &k.ei);
        atomic_store_explicit(&w->shared->acknowledged[w->number], round + 1, memory_order_release);
    }
    kit_leave(&k);
    atomic_fetch_sub_explicit(&w->shared->writing, 1, memory_order_release);
    return NULL;
}

static void *read_rounds(void *arg)
{
    struct worker *w = arg;
    struct kit k = *w->shared->kit;
    struct test_random r = {w->number, 0};
    char labels[64];

    while (atomic_load_explicit(&w->shared->writing, memory_order_acquire) > 0) {
        uint64_t writer = test_random_below(&r, WRITERS);
        uint64_t rounds =
            atomic_load_explicit(&w->shared->acknowledged[writer], memory_order_acquire);
        struct engine_stats stats;
        struct arena arena;
        struct column got;

        engine_stats_get(k.engine, &stats);
        if (rounds == 0)
            continue;
        uint64_t series = 1 + 5 * test_random_below(&r, rounds / 5 + 1); /* an own one */
        labels_of(writer, series, labels);
        arena_init(&arena, NULL);
        CHECK(kit_read(&k, &arena, labels, INT64_MIN, INT64_MAX, &got));
        /* Rounds that wrote it: (series - SERIES_A_ROUND, series], as far as acknowledged. */
        uint64_t first = series + 1 > SERIES_A_ROUND ? series + 1 - SERIES_A_ROUND : 0;
        uint64_t end = series + 1 < rounds ? series + 1 : rounds;
        CHECK(got.count >= end - first);
        for (size_t i = 0; i < got.count; i++)
            CHECK(got.t_ms[i] == T0 + (int64_t)(first + i) * 1000 &&
                  got.value[i] == (double)(first + i));
        arena_done(&arena);
    }
    return NULL;
}

static void test_writers_and_readers(void **state)
{
    struct errinfo ei = {0};
    struct worker workers[WRITERS + READERS];
    struct shared shared;
    struct engine_stats stats;
    struct fs *fs;
    struct kit k;
    uint64_t own = 0, common = 0;

    (void)state;
    memset(workers, 0, sizeof workers);
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    kit_open(&k, fs, &(struct engine_options){.shard_count = 4});
    atomic_store(&k.engine->logs.repeat_delay_ns, 2000000);
    shared.kit = &k;
    atomic_init(&shared.writing, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        atomic_init(&shared.acknowledged[i], 0);
    clock_set_fake(&k.clock, T0 + (int64_t)ROUNDS * 1000);
    for (int i = 0; i < WRITERS + READERS; i++) {
        workers[i].shared = &shared;
        workers[i].number = (uint64_t)(i < WRITERS ? i : i - WRITERS);
        CHECK_OK(thread_start(&workers[i].thread, "engine-test",
                              i < WRITERS ? write_rounds : read_rounds, &workers[i], &ei),
                 &ei);
    }
    for (int i = 0; i < WRITERS + READERS; i++)
        thread_join(&workers[i].thread);
    for (uint64_t s = 0; s < ROUNDS + SERIES_A_ROUND - 1; s++) {
        own += s % 5 != 0;
        common += s % 5 == 0;
    }
    engine_stats_get(k.engine, &stats);
    CHECK(stats.series_count == own * WRITERS + common);
    kit_close(&k);
    kit_open(&k, fs, NULL);
    CHECK(k.replay.series_count == stats.series_count);
    CHECK(k.replay.sample_count == stats.sample_count + stats.late_sample_count);
    CHECK(k.replay.unknown_ref_samples == 0);
    kit_close(&k);
    fs_free(fs);
}

/* ---- a series that dies while a request appends to it ---- */

enum { MORTAL_SAMPLES = 20000, MORTAL_DEATHS = 3 };

struct killer {
    struct shard *shard;
    struct thread thread;
    int64_t after_ms,
        before_ms;   /* guarded by shard.lock: kill a series whose newest lies between */
    uint32_t deaths; /* guarded by shard.lock */
    _Atomic bool stop;
};

/* Kills slot after slot as the end of a series does: in one critical section. */
static void *kill_series(void *arg)
{
    struct killer *k = arg;
    struct shard *s = k->shard;

    while (!atomic_load_explicit(&k->stop, memory_order_relaxed)) {
        mutex_lock(&s->lock);
        struct series *series =
            s->series.slot_end == 0 ? NULL : series_find(&s->series, s->series.slot_end - 1);
        if (series != NULL && series->newest_ms > k->after_ms && series->newest_ms < k->before_ms) {
            fingerprint_table_remove(&s->fingerprints, s->series.slot_end - 1);
            series->defined = 0;
            k->deaths++;
        }
        mutex_unlock(&s->lock);
    }
    return NULL;
}

/* The whole series of a request is then written to its successor: nothing that was acknowledged is
 * in the dead one alone. */
static void test_death_under_way(void **state)
{
    struct fs *fs;
    struct errinfo ei = {0};
    struct killer killer = {.after_ms = INT64_MAX};
    uint32_t deaths = 0;
    int64_t t = T0;
    struct kit k;

    (void)state;
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    killer.shard = engine_shard(k.engine, 0);
    atomic_init(&killer.stop, false);
    CHECK_OK(thread_start(&killer.thread, "killer", kill_series, &killer, &ei), &ei);
    while (deaths < MORTAL_DEATHS) {
        uint32_t before;

        clock_set_fake(&k.clock, t + MORTAL_SAMPLES);
        kit_series(&k, "__name__=mortal");
        for (int i = 0; i < MORTAL_SAMPLES; i++)
            kit_sample(&k, t + i, i);
        mutex_lock(&killer.shard->lock);
        before = killer.deaths;
        killer.after_ms = t;
        killer.before_ms = t + MORTAL_SAMPLES - 1;
        mutex_unlock(&killer.shard->lock);
        CHECK_OK(kit_write(&k), &k.ei);
        mutex_lock(&killer.shard->lock);
        bool died = killer.deaths != before;
        deaths = killer.deaths;
        killer.after_ms = INT64_MAX;
        mutex_unlock(&killer.shard->lock);
        CHECK(k.result.refused_count == 0 && k.result.stored_count >= MORTAL_SAMPLES);
        if (died) {
            const struct series *s =
                series_find(&killer.shard->series, killer.shard->series.slot_end - 1);

            CHECK(s != NULL && s->newest_ms == t + MORTAL_SAMPLES - 1);
            CHECK(series_oldest_window_ms(s) <= t);
        }
        t += MORTAL_SAMPLES;
    }
    atomic_store_explicit(&killer.stop, true, memory_order_relaxed);
    thread_join(&killer.thread);
    kit_abandon(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writers_and_readers),
        cmocka_unit_test(test_death_under_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
