/* The front table against a plain array, alone and with readers beside the writers (TSan). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "engine/write/front_table_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static struct hash128 key_of(uint64_t i)
{
    struct test_random r = {i * 2 + 1, 0};
    uint64_t low = test_random_u64(&r);

    return (struct hash128){low, test_random_u64(&r)};
}

static front_target find_one(struct front_table *t, struct hash128 key)
{
    front_target out = 0;

    front_table_find(t, &key, sizeof key, 1, &out);
    return out;
}

static void test_against_array(void **state)
{
    enum { KEYS = 60000 };
    struct test_random r = test_random_init(11);
    front_target *model = calloc(KEYS, sizeof *model), *found = calloc(KEYS, sizeof *found);
    struct hash128 *keys = calloc(KEYS, sizeof *keys);
    struct front_table *t;
    struct front_table_stats stats;
    struct errinfo ei = {0};
    uint64_t count = 0;

    (void)state;
    CHECK(model != NULL && found != NULL && keys != NULL);
    CHECK_OK(front_table_new(16, NULL, &t, &ei), &ei);
    for (size_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    for (size_t step = 0; step < (size_t)2 * KEYS; step++) {
        size_t i = test_random_below(&r, KEYS);
        bool added = false, is_new = model[i] == 0;
        uint32_t shard = (uint32_t)test_random_below(&r, 16);
        uint32_t slot = (uint32_t)test_random_below(&r, 1 << 26);

        model[i] = front_target_series(shard, slot, (uint16_t)test_random_u64(&r));
        CHECK(front_table_put(t, keys[i], model[i], &added));
        CHECK(added == is_new);
        count += added;
        if (step % 997 == 0)
            CHECK(find_one(t, keys[i]) == model[i]);
    }
    front_table_find(t, keys, sizeof *keys, KEYS, found);
    for (size_t i = 0; i < KEYS; i++)
        CHECK(found[i] == model[i]);
    for (size_t i = KEYS; i < (size_t)2 * KEYS; i++)
        CHECK(find_one(t, key_of(i)) == 0);
    front_table_stats_get(t, &stats);
    CHECK(stats.entry_count == count);
    /* Memory follows the number of keys: between 60 and 80 per cent full. */
    CHECK(stats.memory_bytes < count * 16 * 10 / 6);
    front_table_free(t);
    free(model);
    free(found);
    free(keys);
}

static void test_target_fields(void **state)
{
    front_target t = front_target_series(4095, (1 << 26) - 1, UINT16_MAX);

    (void)state;
    CHECK(front_target_kind(t) == FRONT_SERIES && front_target_shard(t) == 4095);
    CHECK(front_target_slot(t) == (1 << 26) - 1 && front_target_generation(t) == UINT16_MAX);
    t = front_target_series(0, 0, 0);
    CHECK(t != 0 && front_target_kind(t) == FRONT_SERIES && front_target_slot(t) == 0);
}

/* Keys that share the stored word: told apart by the bits of the second one; and the zero word. */
static void test_near_keys(void **state)
{
    struct front_table *t;
    struct errinfo ei = {0};
    bool added;

    (void)state;
    CHECK_OK(front_table_new(4096, NULL, &t, &ei), &ei);
    CHECK(
        front_table_put(t, (struct hash128){0, 1ULL << 60}, front_target_series(1, 1, 1), &added));
    CHECK(
        front_table_put(t, (struct hash128){0, 2ULL << 60}, front_target_series(2, 2, 2), &added));
    CHECK(added);
    CHECK(front_target_slot(find_one(t, (struct hash128){0, 1ULL << 60})) == 1);
    CHECK(front_target_slot(find_one(t, (struct hash128){0, 2ULL << 60})) == 2);
    CHECK(find_one(t, (struct hash128){0, 3ULL << 60}) == 0);
    CHECK(find_one(t, (struct hash128){2, 1ULL << 60}) == 0);
    front_table_free(t);
}

static void test_budget(void **state)
{
    struct budget budget;
    struct front_table *t;
    struct errinfo ei = {0};
    bool added, ok = true;
    uint64_t i;

    (void)state;
    budget_init(&budget, "test", 200000, NULL);
    CHECK_OK(front_table_new(1, &budget, &t, &ei), &ei);
    for (i = 0; i < 100000 && ok; i++)
        ok = front_table_put(t, key_of(i), front_target_series(0, (uint32_t)i, 0), &added);
    CHECK(!ok && i > 1000);
    for (uint64_t k = 0; k + 1 < i; k++) /* what is in stays readable */
        CHECK(front_target_slot(find_one(t, key_of(k))) == k);
    front_table_free(t);
    CHECK(budget_used(&budget) == 0);
}

/* ---- sweeps ---- */

/* Dead are the targets of generations below `alive`, but for the slots that `spared` divides. */
struct mortality {
    uint16_t alive;
    uint32_t spared; /* 0: none */
    uint64_t asked;
};

static bool is_kept(const struct mortality *m, front_target t)
{
    return front_target_generation(t) >= m->alive ||
           (m->spared != 0 && front_target_slot(t) % m->spared == 0);
}

static void keep_alive(void *ctx, const front_target *targets, size_t count, bool *keep)
{
    struct mortality *m = ctx;

    for (size_t i = 0; i < count; i++) {
        CHECK(front_target_kind(targets[i]) == FRONT_SERIES);
        keep[i] = is_kept(m, targets[i]);
    }
    m->asked += count;
}

static uint64_t sweep(struct front_table *t, struct mortality *m)
{
    const struct front_filter filter = {keep_alive, m};
    struct errinfo ei = {0};
    uint64_t removed = 0;

    m->asked = 0;
    CHECK_OK(front_table_sweep(t, &filter, &removed, &ei), &ei);
    return removed;
}

/* Rounds of puts and sweeps against an array: what is dead goes, everything else stays. */
static void test_sweeps_against_array(void **state)
{
    enum { KEYS = 40000, ROUNDS = 12 };
    struct test_random r = test_random_init(12);
    front_target *model = calloc(KEYS, sizeof *model);
    struct budget budget;
    struct front_table *t;
    struct errinfo ei = {0};

    (void)state;
    CHECK(model != NULL);
    budget_init(&budget, "test", UINT64_MAX, NULL);
    CHECK_OK(front_table_new(16, &budget, &t, &ei), &ei);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct mortality m = {(uint16_t)round, (uint32_t)test_random_below(&r, 4) * 3, 0};
        size_t puts = test_random_below(&r, UINT64_C(2) * KEYS);
        uint64_t dead = 0, count = 0;
        struct front_table_stats stats;
        bool added;

        for (size_t i = 0; i < puts; i++) {
            size_t k = test_random_below(&r, KEYS);

            model[k] =
                front_target_series((uint32_t)test_random_below(&r, 16),
                                    (uint32_t)test_random_below(&r, 1 << 26), (uint16_t)round);
            CHECK(front_table_put(t, key_of(k), model[k], &added));
        }
        for (size_t k = 0; k < KEYS; k++) {
            count += model[k] != 0;
            dead += model[k] != 0 && !is_kept(&m, model[k]);
        }
        CHECK(sweep(t, &m) == dead && m.asked == count);
        for (size_t k = 0; k < KEYS; k++) {
            if (!is_kept(&m, model[k]))
                model[k] = 0;
            CHECK(find_one(t, key_of(k)) == model[k]);
        }
        front_table_stats_get(t, &stats);
        CHECK(stats.entry_count == count - dead && stats.memory_bytes == budget_used(&budget));
    }
    front_table_free(t);
    CHECK(budget_used(&budget) == 0);
    free(model);
}

/* A table that has shrunk gives its memory back, and grows again. */
static void test_sweep_shrinks(void **state)
{
    enum { KEYS = 200000 };
    struct mortality few = {1, 1000, 0}, none = {1, 0, 0};
    struct front_table_stats stats;
    struct front_table *t;
    struct errinfo ei = {0};
    bool added;

    (void)state;
    CHECK_OK(front_table_new(1, NULL, &t, &ei), &ei);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < KEYS; i++)
            CHECK(front_table_put(t, key_of(i), front_target_series(0, i, 0), &added));
        CHECK(sweep(t, &few) == KEYS - KEYS / 1000);
        front_table_stats_get(t, &stats);
        CHECK(stats.entry_count == KEYS / 1000 && stats.segment_count <= 2);
        for (uint32_t i = 0; i < KEYS; i++)
            CHECK((find_one(t, key_of(i)) != 0) == (i % 1000 == 0));
    }
    CHECK(sweep(t, &none) == KEYS / 1000);
    front_table_stats_get(t, &stats);
    CHECK(stats.entry_count == 0 && stats.segment_count == 1);
    front_table_free(t);
}

/* Under a spent budget a sweep leaves what it cannot copy, and loses nothing. */
static void test_sweep_without_memory(void **state)
{
    enum { KEYS = 20000 };
    struct mortality m = {1, 2, 0};
    struct budget budget;
    struct front_table *t;
    struct errinfo ei = {0};
    bool added;

    (void)state;
    budget_init(&budget, "test", UINT64_MAX, NULL);
    CHECK_OK(front_table_new(1, &budget, &t, &ei), &ei);
    for (uint32_t i = 0; i < KEYS; i++)
        CHECK(front_table_put(t, key_of(i), front_target_series(0, i, 0), &added));
    budget.limit_bytes = budget_used(&budget);
    CHECK(sweep(t, &m) == 0);
    for (uint32_t i = 0; i < KEYS; i++)
        CHECK(find_one(t, key_of(i)) != 0);
    budget.limit_bytes = UINT64_MAX;
    CHECK(sweep(t, &m) == KEYS / 2);
    front_table_free(t);
    CHECK(budget_used(&budget) == 0);
}

/* ---- threads ---- */

enum {
    WRITER_COUNT = 2,
    READER_COUNT = 2,
    SWEEPER_COUNT = 1,
    WORKER_COUNT = WRITER_COUNT + READER_COUNT + SWEEPER_COUNT,
    KEYS_PER_WRITER = 30000,
    SWEPT_SLOT = 1 << 20, /* of the sweeper's own keys */
    SWEPT_FIRST = 1 << 30,
};

struct shared {
    struct front_table *table;
    _Atomic uint64_t published[WRITER_COUNT]; /* release: keys below are in the table */
    _Atomic int running;
};

struct worker {
    struct shared *shared;
    uint64_t number;
    struct thread thread;
};

static void *write_keys(void *arg)
{
    struct worker *w = arg;
    bool added;

    for (uint64_t i = 0; i < KEYS_PER_WRITER; i++) {
        uint64_t id = i * WRITER_COUNT + w->number;

        CHECK(front_table_put(w->shared->table, key_of(id),
                              front_target_series((uint32_t)w->number, (uint32_t)i, 0), &added));
        CHECK(added);
        if (i % 3 == 0) /* and a change in place */
            CHECK(front_table_put(w->shared->table, key_of(id),
                                  front_target_series((uint32_t)w->number, (uint32_t)i, 1),
                                  &added));
        atomic_store_explicit(&w->shared->published[w->number], i + 1, memory_order_release);
    }
    atomic_fetch_sub_explicit(&w->shared->running, 1, memory_order_release);
    return NULL;
}

static void *read_keys(void *arg)
{
    enum { BATCH = 100 };
    struct worker *w = arg;
    struct test_random r = {w->number, 0};
    struct hash128 keys[BATCH];
    front_target found[BATCH];
    uint64_t ids[BATCH];

    while (atomic_load_explicit(&w->shared->running, memory_order_acquire) > 0) {
        for (int i = 0; i < BATCH; i++) {
            uint64_t writer = test_random_below(&r, WRITER_COUNT);
            uint64_t end =
                atomic_load_explicit(&w->shared->published[writer], memory_order_acquire);

            ids[i] = end == 0 ? UINT64_MAX : test_random_below(&r, end) * WRITER_COUNT + writer;
            keys[i] = key_of(ids[i]);
        }
        front_table_find(w->shared->table, keys, sizeof keys[0], BATCH, found);
        for (int i = 0; i < BATCH; i++) {
            if (ids[i] == UINT64_MAX)
                continue;
            CHECK(front_target_kind(found[i]) == FRONT_SERIES);
            CHECK(front_target_shard(found[i]) == ids[i] % WRITER_COUNT);
            CHECK(front_target_slot(found[i]) == ids[i] / WRITER_COUNT);
        }
    }
    return NULL;
}

static void keep_others(void *ctx, const front_target *targets, size_t count, bool *keep)
{
    (void)ctx;
    for (size_t i = 0; i < count; i++)
        keep[i] = front_target_slot(targets[i]) != SWEPT_SLOT;
}

/* Enters keys of its own and sweeps them away, while readers must find all of the writers'. */
static void *sweep_keys(void *arg)
{
    struct worker *w = arg;
    uint64_t removed = 0, entered = 0;
    bool added;

    do {
        const struct front_filter filter = {keep_others, NULL};
        struct errinfo ei = {0};
        uint64_t n = 0;

        for (uint32_t i = 0; i < 3000; i++, entered++)
            CHECK(front_table_put(w->shared->table, key_of(SWEPT_FIRST + entered),
                                  front_target_series(1, SWEPT_SLOT, 0), &added));
        CHECK_OK(front_table_sweep(w->shared->table, &filter, &n, &ei), &ei);
        removed += n;
    } while (atomic_load_explicit(&w->shared->running, memory_order_acquire) > 0);
    CHECK(removed <= entered && removed > 0);
    return NULL;
}

static void test_concurrent(void **state)
{
    struct shared shared;
    struct worker workers[WORKER_COUNT];
    void *(*const roles[])(void *) = {write_keys, write_keys, read_keys, read_keys, sweep_keys};
    struct errinfo ei = {0};

    (void)state;
    memset(workers, 0, sizeof workers);
    CHECK_OK(front_table_new(2, NULL, &shared.table, &ei), &ei);
    for (int i = 0; i < WRITER_COUNT; i++)
        atomic_init(&shared.published[i], 0);
    atomic_init(&shared.running, WRITER_COUNT);
    for (int i = 0; i < WORKER_COUNT; i++) {
        workers[i].shared = &shared;
        workers[i].number = (uint64_t)(i < WRITER_COUNT ? i : i - WRITER_COUNT);
        CHECK_OK(thread_start(&workers[i].thread, "front-test", roles[i], &workers[i], &ei), &ei);
    }
    for (int i = 0; i < WORKER_COUNT; i++)
        thread_join(&workers[i].thread);
    front_table_free(shared.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_array),
        cmocka_unit_test(test_target_fields),
        cmocka_unit_test(test_near_keys),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_sweeps_against_array),
        cmocka_unit_test(test_sweep_shrinks),
        cmocka_unit_test(test_sweep_without_memory),
        cmocka_unit_test(test_concurrent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
