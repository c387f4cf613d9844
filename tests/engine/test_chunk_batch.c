/*
 * Chunks of many series read at once, against plain arrays. Appends are interleaved as ingest does
 * it, and go on after the snapshots were taken: what is read must be what was there then.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/memtable/chunk_batch_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { SERIES = 90, SAMPLE_MAX = 700, ROUNDS = 40 };

struct samples {
    size_t count;
    int64_t t_ms[SAMPLE_MAX];
    double value[SAMPLE_MAX];
};

struct world {
    struct test_random random;
    struct slab slab;
    struct chunk_pool pool;
    struct chunk_source source;
    struct series series[SERIES];
    struct samples *samples; /* owned, by series */
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

static void world_init(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = test_random_init(seed);
    slab_init(&w->slab, NULL);
    CHECK(chunk_pool_init(&w->pool, &w->slab) == ERR_OK);
    w->source = (struct chunk_source){.pool = &w->pool};
    w->samples = calloc(SERIES, sizeof *w->samples);
    CHECK(w->samples != NULL);
    for (size_t i = 0; i < SERIES; i++)
        series_init(&w->series[i], (struct hash128){i, 2}, 7);
}

static void world_done(struct world *w)
{
    chunk_pool_done(&w->pool);
    slab_done(&w->slab);
    free(w->samples);
}

/* By the series: constants, counters of centiseconds, gauges, any bits; steady or jittered. */
static double value_next(struct world *w, size_t i, const struct samples *s)
{
    double last = s->count == 0 ? 17 : s->value[s->count - 1];

    switch (i % 5) {
    case 0:
        return last;
    case 1:
        return (double)(int64_t)(last * 100 + (double)below(w, 1500)) / 100;
    case 2:
        return (double)below(w, 40);
    case 3:
        return double_from_bits(test_random_u64(&w->random));
    default:
        return below(w, 10) == 0 ? 1e9 + (double)below(w, 1u << 20) : last + 1;
    }
}

static void world_append(struct world *w, size_t i)
{
    struct samples *s = &w->samples[i];
    int64_t step = i % 3 == 0 ? 15000 : 15000 + (int64_t)below(w, i % 3 == 1 ? 12 : 9000);
    int64_t t_ms = s->count == 0 ? 1767225600000 : s->t_ms[s->count - 1] + step;
    double value = value_next(w, i, s);
    uint32_t closed = 0;

    if (s->count == SAMPLE_MAX)
        return;
    CHECK(chunk_append(&w->series[i], &w->source, t_ms, double_bits(value), &closed));
    s->t_ms[s->count] = t_ms;
    s->value[s->count++] = value;
}

static void world_round(struct world *w)
{
    for (size_t k = below(w, 60); k > 0; k--) {
        for (size_t i = 0; i < SERIES; i++) {
            if (i % 7 != 6 || below(w, 20) == 0) /* some have few samples, or none */
                world_append(w, i);
        }
    }
    if (below(w, 4) == 0)
        CHECK(chunk_cut(&w->series[below(w, SERIES)], &w->source));
}

static void check_series(const struct samples *s, size_t count, int64_t min_ms, int64_t max_ms,
                         const struct column *got)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        if (s->t_ms[i] < min_ms || s->t_ms[i] > max_ms)
            continue;
        CHECK(at < got->count && got->t_ms[at] == s->t_ms[i]);
        CHECK(double_bits(got->value[at]) == double_bits(s->value[i]));
        at++;
    }
    CHECK(at == got->count);
}

static void world_check(struct world *w)
{
    struct chunk_snapshot snaps[SERIES];
    struct column out[SERIES];
    size_t counts[SERIES];
    struct errinfo ei = {0};
    struct arena arena;
    int64_t min_ms = below(w, 3) == 0 ? INT64_MIN : 1767225600000 + (int64_t)below(w, 9000000);
    int64_t max_ms = below(w, 3) == 0 ? INT64_MAX : 1767225600000 + (int64_t)below(w, 9000000);

    arena_init(&arena, NULL);
    for (size_t i = 0; i < SERIES; i++) {
        counts[i] = w->samples[i].count;
        chunk_snapshot_take(&w->pool, &w->series[i], min_ms, max_ms, &snaps[i]);
    }
    world_round(w);
    CHECK_OK(chunk_batch_read(&w->pool, snaps, SERIES, min_ms, max_ms, &arena, out, &ei), &ei);
    for (size_t i = 0; i < SERIES; i++)
        check_series(&w->samples[i], counts[i], min_ms, max_ms, &out[i]);
    arena_done(&arena);
}

static void test_against_arrays(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world w;

        world_init(&w, seed);
        for (int i = 0; i < ROUNDS; i++)
            world_check(&w);
        world_done(&w);
    }
}

/* Neighbours of one target share their timestamps, whether these are steady or not; others do not.
 */
static void test_shared_times(void **state)
{
    enum { TARGET_SERIES = 3, SAMPLES = 300 };
    struct chunk_snapshot snaps[2 * TARGET_SERIES];
    struct column out[2 * TARGET_SERIES];
    struct errinfo ei = {0};
    struct arena arena;
    struct world w;

    (void)state;
    world_init(&w, 10);
    for (int64_t k = 0; k < SAMPLES; k++) {
        int64_t jitter_ms = (int64_t)below(&w, 10);

        for (size_t i = 0; i < (size_t)2 * TARGET_SERIES; i++) {
            int64_t t_ms = 15000 * k + (i < TARGET_SERIES ? 0 : jitter_ms);
            uint32_t closed = 0;

            CHECK(chunk_append(&w.series[i], &w.source, t_ms, below(&w, 1000), &closed));
        }
    }
    arena_init(&arena, NULL);
    for (size_t i = 0; i < (size_t)2 * TARGET_SERIES; i++)
        chunk_snapshot_take(&w.pool, &w.series[i], INT64_MIN, INT64_MAX, &snaps[i]);
    CHECK_OK(chunk_batch_read(&w.pool, snaps, (size_t)2 * TARGET_SERIES, INT64_MIN, INT64_MAX,
                              &arena, out, &ei),
             &ei);
    for (size_t i = 1; i < (size_t)2 * TARGET_SERIES; i++) {
        CHECK(out[i].count == SAMPLES);
        CHECK((out[i].t_ms == out[i - 1].t_ms) == (i != TARGET_SERIES));
    }
    CHECK(out[0].t_ms[SAMPLES - 1] == (int64_t)(SAMPLES - 1) * 15000);
    arena_done(&arena);
    world_done(&w);
}

static void test_memory_limit(void **state)
{
    struct chunk_snapshot snaps[SERIES];
    struct column out[SERIES];
    struct errinfo ei = {0};
    struct budget small;
    struct arena arena;
    struct world w;

    (void)state;
    world_init(&w, 9);
    for (int i = 0; i < 10; i++)
        world_round(&w);
    for (size_t i = 0; i < SERIES; i++)
        chunk_snapshot_take(&w.pool, &w.series[i], INT64_MIN, INT64_MAX, &snaps[i]);
    budget_init(&small, "small", 40000, NULL);
    arena_init(&arena, &small);
    CHECK(chunk_batch_read(&w.pool, snaps, SERIES, INT64_MIN, INT64_MAX, &arena, out, &ei) ==
          ERR_LIMIT);
    arena_done(&arena);
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_arrays),
        cmocka_unit_test(test_shared_times),
        cmocka_unit_test(test_memory_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
