/* Writers, readers and the log at once (run under TSan too). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/thread.h"
#include "engine/memtable_internal.h"
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
    struct kit k = *w->shared->kit; /* same engine, own request */
    char labels[64];

    CHECK_OK(write_batch_new(&k.batch, &k.ei), &k.ei);
    k.batch->labels_parse = w->shared->kit->batch->labels_parse;
    k.sequences = calloc(engine_shard_count(k.engine), sizeof *k.sequences);
    k.result.sequences = k.sequences;
    arena_init(&k.arena, NULL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        /* New series all the time: the last few of a sliding window. */
        for (uint64_t s = round; s < round + SERIES_A_ROUND; s++) {
            labels_of(w->number, s, labels);
            kit_series(&k, labels);
            kit_sample(&k, T0 + (int64_t)round * 1000, (double)round);
        }
        CHECK_OK(kit_write(&k), &k.ei);
        /* Shared series: somebody else may have been ahead, never wrong. */
        CHECK(k.result.refused_count == k.result.refused[REFUSAL_OUT_OF_ORDER]);
        CHECK_OK(kit_wait(&k), &k.ei);
        atomic_store_explicit(&w->shared->acknowledged[w->number], round + 1, memory_order_release);
    }
    write_batch_free(k.batch);
    free(k.sequences);
    arena_done(&k.arena);
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
    CHECK(k.replay.sample_count == stats.sample_count && k.replay.unknown_ref_samples == 0);
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_writers_and_readers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
