/* Cut, decode and detach of a shard's chunks against plain arrays, alone and beside others. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/memtable/shard_cut_internal.h"
#include "tests/engine/read_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { SERIES_COUNT = 1500, SLOT_STEP = 3, COLUMN_MAX = 500 };

/* What one series was given, and from which sample on it is still in memory. */
struct model {
    struct {
        int64_t t_ms;
        uint64_t bits;
    } * items;
    size_t count, capacity;
    size_t memory_first; /* samples before this one were detached */
    size_t cut_end;      /* samples before this one are in the cut at hand */
};

struct world {
    struct budget memory;
    struct slab slab;
    struct chunk_pool pool;
    struct log_pool logs;
    struct shard *shard;
    struct model models[SERIES_COUNT];
};

static uint32_t slot_of(size_t series)
{
    return (uint32_t)series * SLOT_STEP; /* there are holes */
}

static struct world *world_new(uint64_t memory_limit)
{
    struct world *w = calloc(1, sizeof *w);
    struct errinfo ei = {0};

    CHECK(w != NULL);
    budget_init(&w->memory, "test", memory_limit, NULL);
    slab_init(&w->slab, &w->memory);
    log_pool_init(&w->logs, NULL);
    CHECK(chunk_pool_init(&w->pool, &w->slab) == ERR_OK);
    w->shard = aligned_alloc(alignof(struct shard), sizeof *w->shard);
    CHECK(w->shard != NULL);
    CHECK_OK(shard_init(w->shard, 0, &w->pool, &w->slab, &w->logs, NULL, &ei), &ei);
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        CHECK(series_table_reserve(&w->shard->series, slot_of(i)));
        CHECK(shard_publish_series(w->shard, slot_of(i), 1, (struct hash128){i, i << 40}));
    }
    return w;
}

static void world_free(struct world *w)
{
    shard_done(w->shard);
    free(w->shard);
    log_pool_done(&w->logs);
    chunk_pool_done(&w->pool);
    slab_done(&w->slab);
    CHECK(budget_used(&w->memory) == 0);
    for (size_t i = 0; i < SERIES_COUNT; i++)
        free(w->models[i].items);
    free(w);
}

static struct series *series_of(struct world *w, size_t i)
{
    return series_at(&w->shard->series, slot_of(i));
}

/* Caller holds the lock. */
static bool store(struct world *w, size_t i, int64_t t_ms, uint64_t bits)
{
    struct shard_change change = shard_change_none();
    struct model *m = &w->models[i];

    if (!shard_store(w->shard, series_of(w, i), t_ms, bits, &change))
        return false;
    shard_change_apply(w->shard, &change);
    if (m->count == m->capacity) {
        m->capacity = m->capacity == 0 ? 64 : 2 * m->capacity;
        m->items = realloc(m->items, m->capacity * sizeof *m->items);
        CHECK(m->items != NULL);
    }
    m->items[m->count].t_ms = t_ms;
    m->items[m->count++].bits = bits;
    return true;
}

static void store_random(struct world *w, struct test_random *r, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        size_t i = test_random_below(r, SERIES_COUNT);
        const struct model *m = &w->models[i];
        int64_t t = m->count > 0 ? m->items[m->count - 1].t_ms : -(int64_t)CHUNK_WINDOW_MS;
        size_t burst = test_random_below(r, 20) == 0 ? 200 : 1 + test_random_below(r, 3);

        for (size_t n = 0; n < burst; n++) {
            t += test_random_below(r, 100) == 0 ? (int64_t)test_random_below(r, 40000000) + 1
                                                : (int64_t)test_random_below(r, 3) * 7 + 15000;
            CHECK(store(w, i, t, test_random_below(r, 2) ? 7 : test_random_wide(r, 60)));
        }
    }
}

/* What is in memory of each series, and the statistics. */
static void world_check(struct world *w)
{
    struct shard *s = w->shard;
    uint64_t samples = 0;

    for (size_t i = 0; i < SERIES_COUNT; i++) {
        const struct model *m = &w->models[i];
        uint32_t slot = slot_of(i);
        uint16_t generation = 1;
        struct series_meta meta;
        struct errinfo ei = {0};
        struct arena arena;
        struct column c;

        arena_init(&arena, NULL);
        CHECK_OK(kit_read_slots(s, &slot, &generation, 1, INT64_MIN, INT64_MAX, &arena, &c, &ei),
                 &ei);
        CHECK_MSG(c.count == m->count - m->memory_first, "series %zu", i);
        for (size_t k = 0; k < c.count; k++) {
            CHECK(c.t_ms[k] == m->items[m->memory_first + k].t_ms);
            CHECK(double_bits(c.value[k]) == m->items[m->memory_first + k].bits);
        }
        samples += c.count;
        shard_series_meta(s, &slot, 1, &meta);
        if (m->count > 0) {
            CHECK(meta.max_time_ms == m->items[m->count - 1].t_ms);
            CHECK(meta.min_time_ms <= m->items[0].t_ms);
            CHECK(meta.min_time_ms > m->items[0].t_ms - CHUNK_WINDOW_MS);
        }
        arena_done(&arena);
    }
    CHECK(atomic_load(&s->sample_count) == samples);
    if (samples == 0)
        CHECK(atomic_load(&s->chunk_count) == 0);
}

/* Decodes a cut and compares it with what the model says is in it. */
static void check_decode(struct world *w, struct cut_chunks *chunks, const struct series_cut *cut,
                         size_t capacity)
{
    struct model *m = &w->models[cut->slot / SLOT_STEP];
    int64_t t_ms[COLUMN_MAX + CHUNK_DECODE_SLACK];
    double value[COLUMN_MAX + CHUNK_DECODE_SLACK];
    size_t at = m->memory_first, n;

    CHECK(cut->generation == 1 && cut->closed != 0 && cut->slot % SLOT_STEP == 0);
    CHECK(cut_chunks_begin(chunks, &w->pool, cut));
    while ((n = cut_chunks_next(chunks, &w->pool, t_ms, value, capacity)) > 0) {
        CHECK(n <= capacity);
        for (size_t k = 0; k < n; k++, at++) {
            CHECK(at < m->cut_end);
            CHECK(t_ms[k] == m->items[at].t_ms && double_bits(value[k]) == m->items[at].bits);
            CHECK(chunk_window(t_ms[k]) == chunk_window(t_ms[0]));
        }
    }
    CHECK_MSG(at == m->cut_end, "slot %u: %zu of %zu", cut->slot, at, m->cut_end);
    CHECK(cut->newest_ms == m->items[m->cut_end - 1].t_ms);
    CHECK(cut->newest_bits == m->items[m->cut_end - 1].bits);
}

static void note_cuts(struct world *w, const struct series_cut *cuts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct model *m = &w->models[cuts[i].slot / SLOT_STEP];

        m->cut_end = m->count;
        CHECK(i == 0 || cuts[i - 1].slot < cuts[i].slot);
        CHECK(series_of(w, cuts[i].slot / SLOT_STEP)->open_count == 0);
    }
}

static void detach(struct world *w, const struct series_cut *cuts, size_t count)
{
    struct chunk_chains freed = {0};
    uint64_t free_before, blocks;

    mutex_lock(&w->shard->lock);
    shard_detach(w->shard, cuts, count, &freed);
    mutex_unlock(&w->shard->lock);
    for (size_t i = 0; i < count; i++) {
        struct model *m = &w->models[cuts[i].slot / SLOT_STEP];
        const struct series *s = series_of(w, cuts[i].slot / SLOT_STEP);

        m->memory_first = m->cut_end;
        if (m->memory_first == m->count)
            CHECK(s->closed == 0 && s->open_count == 0);
        CHECK(s->newest_ms == m->items[m->count - 1].t_ms);
        CHECK(s->newest_bits == m->items[m->count - 1].bits);
        CHECK(s->has_files == 1);
    }
    free_before = chunk_pool_free_bytes(&w->pool);
    blocks = freed.block_count;
    CHECK((blocks == 0) == (count == 0));
    chunk_chains_retire(&w->pool, &freed);
    CHECK(freed.head == 0 && freed.block_count == 0);
    /* Nobody reads, so that they are free at once. */
    CHECK(chunk_pool_free_bytes(&w->pool) - free_before == blocks * sizeof(struct chunk_block));
}

/* One seal's worth of slices, with samples coming in between cut and detach. */
static void seal_random(struct world *w, struct test_random *r)
{
    struct series_cut *cuts = calloc(CUT_SERIES_MAX, sizeof *cuts);
    struct cut_chunks chunks;
    uint32_t cursor = 0, end = w->shard->series.slot_end;
    size_t slices = 0;

    CHECK(cuts != NULL);
    cut_chunks_init(&chunks);
    while (cursor < end) {
        bool refused = true;
        uint32_t before = cursor;
        mutex_lock(&w->shard->lock);
        size_t count = shard_cut(w->shard, &cursor, end, cuts, &refused);
        mutex_unlock(&w->shard->lock);
        CHECK(!refused && cursor > before && cursor - before <= CUT_VISITS_MAX);
        CHECK(count <= CUT_SERIES_MAX);
        note_cuts(w, cuts, count);
        if (test_random_below(r, 2) == 0)
            store_random(w, r, 1000);
        for (size_t i = 0; i < count; i++)
            check_decode(w, &chunks, &cuts[i],
                         CHUNK_SAMPLE_MAX +
                             test_random_below(r, COLUMN_MAX - CHUNK_SAMPLE_MAX + 1));
        detach(w, cuts, count);
        slices++;
    }
    CHECK(slices >= 2);
    cut_chunks_done(&chunks);
    free(cuts);
}

static void test_random_seals(void **state)
{
    struct test_random r = test_random_init(11);
    struct world *w = world_new(UINT64_MAX);

    (void)state;
    for (int round = 0; round < 6; round++) {
        store_random(w, &r, 2000);
        world_check(w);
        seal_random(w, &r);
        world_check(w);
    }
    world_free(w);
}

/* The same blocks serve again and again: memory stops growing. */
static void test_blocks_are_reused(void **state)
{
    struct world *w = world_new(UINT64_MAX);
    struct cut_list list = {0};
    struct test_random r = test_random_init(12);
    uint64_t used = 0;

    (void)state;
    for (int round = 0; round < 40; round++) {
        bool refused;

        for (size_t i = 0; i < SERIES_COUNT; i++)
            for (int64_t k = 0; k < 10; k++)
                CHECK(store(w, i, round * INT64_C(600000) + k * 15000, test_random_u64(&r)));
        CHECK(cut_list_reserve(&list, w->shard));
        mutex_lock(&w->shard->lock);
        CHECK(shard_cut_all(w->shard, &list, &refused) && !refused);
        mutex_unlock(&w->shard->lock);
        CHECK(list.count == SERIES_COUNT);
        note_cuts(w, list.items, list.count);
        detach(w, list.items, list.count);
        if (round == 4)
            used = budget_used(&w->memory);
    }
    world_check(w);
    CHECK(budget_used(&w->memory) == used);
    cut_list_done(&list);
    world_free(w);
}

/* What comes back together is taken again in the order in which it lies in memory, each block once.
 */
static void test_blocks_come_back_in_order(void **state)
{
    struct world *w = world_new(UINT64_MAX);
    struct test_random r = test_random_init(13);
    struct chunk_source source = {.pool = &w->pool};
    struct cut_list list = {0};
    uint32_t before = 0;
    bool refused;
    uint64_t free_count;

    (void)state;
    store_random(w, &r, 20000);
    CHECK(cut_list_reserve(&list, w->shard));
    CHECK(shard_cut_all(w->shard, &list, &refused) && !refused);
    note_cuts(w, list.items, list.count);
    detach(w, list.items, list.count);
    CHECK(chunk_source_used_bytes(&w->shard->blocks) == 0);
    free_count = chunk_pool_free_bytes(&w->pool) / sizeof(struct chunk_block);
    CHECK(free_count > (uint64_t)10 * CHUNK_SLICE_BLOCKS);
    for (uint64_t i = 0; i < free_count; i++) {
        CHECK(chunk_source_reserve(&source));
        uint32_t number = chunk_source_take(&source);

        /* A source that takes a slice keeps the last block of the one before for later. */
        if (i % CHUNK_SLICE_BLOCKS > 2 && i % CHUNK_SLICE_BLOCKS < CHUNK_SLICE_BLOCKS - 2)
            CHECK_MSG(number > before, "block %u behind %u", number, before);
        before = number;
    }
    CHECK(chunk_pool_free_bytes(&w->pool) == 0);
    cut_list_done(&list);
    world_free(w);
}

/* Chunks over borders of windows are split; the run goes on in the next chunk. */
static void test_border_splits(void **state)
{
    enum { BEFORE = 5, STEP_MS = 60000, BORDER = CHUNK_WINDOW_MS };
    struct world *w = world_new(UINT64_MAX);
    struct cut_chunks chunks;
    struct series_cut cuts[CUT_SERIES_MAX];
    int64_t t_ms[COLUMN_MAX + CHUNK_DECODE_SLACK];
    double value[COLUMN_MAX + CHUNK_DECODE_SLACK];
    uint32_t cursor = 0;
    bool refused;

    (void)state;
    for (int64_t k = -BEFORE; k <= CHUNK_SAMPLE_MAX; k++)
        CHECK(store(w, 0, BORDER + k * STEP_MS, (uint64_t)(k + BEFORE)));
    CHECK(atomic_load(&w->shard->chunk_count) ==
          2); /* the second begins five before the next border */
    CHECK(shard_cut(w->shard, &cursor, slot_of(1), cuts, &refused) == 1);
    cut_chunks_init(&chunks);
    CHECK(cut_chunks_begin(&chunks, &w->pool, cuts));
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, COLUMN_MAX) == BEFORE);
    CHECK(t_ms[0] == BORDER - BEFORE * STEP_MS && t_ms[BEFORE - 1] == BORDER - STEP_MS);
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, COLUMN_MAX) == CHUNK_SAMPLE_MAX);
    CHECK(t_ms[0] == BORDER && double_bits(value[0]) == BEFORE);
    CHECK(t_ms[CHUNK_SAMPLE_MAX - 1] == 2 * (int64_t)BORDER - STEP_MS);
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, COLUMN_MAX) == 1);
    CHECK(t_ms[0] == 2 * (int64_t)BORDER);
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, COLUMN_MAX) == 0);
    /* With room for little more than a chunk the second one is a run of its own. */
    CHECK(cut_chunks_begin(&chunks, &w->pool, cuts));
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, CHUNK_SAMPLE_MAX) == BEFORE);
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, CHUNK_SAMPLE_MAX) ==
          CHUNK_SAMPLE_MAX - BEFORE);
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, CHUNK_SAMPLE_MAX) == BEFORE);
    CHECK(t_ms[BEFORE - 1] == 2 * (int64_t)BORDER - STEP_MS);
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, CHUNK_SAMPLE_MAX) == 1);
    CHECK(cut_chunks_next(&chunks, &w->pool, t_ms, value, CHUNK_SAMPLE_MAX) == 0);
    cut_chunks_done(&chunks);
    world_free(w);
}

static void test_list_too_small(void **state)
{
    struct world *w = world_new(UINT64_MAX);
    struct cut_list list = {.items = calloc(1, sizeof *list.items), .capacity = 1};
    bool refused = true;

    (void)state;
    CHECK(list.items != NULL);
    CHECK(store(w, 0, 1, 1) && store(w, 5, 1, 1));
    CHECK(!shard_cut_all(w->shard, &list, &refused) && !refused);
    CHECK(cut_list_reserve(&list, w->shard));
    CHECK(shard_cut_all(w->shard, &list, &refused));
    CHECK(list.count == 2 && list.items[1].slot == slot_of(5));
    cut_list_done(&list);
    world_free(w);
}

/* A series whose generation has changed keeps what it has; so does one that was never cut. */
static void test_generation_changed(void **state)
{
    struct world *w = world_new(UINT64_MAX);
    struct series_cut cuts[CUT_SERIES_MAX];
    struct chunk_chains freed = {0};
    uint32_t cursor = 0;
    bool refused;

    (void)state;
    CHECK(store(w, 0, 1, 1) && store(w, 1, 1, 1));
    CHECK(shard_cut(w->shard, &cursor, slot_of(2), cuts, &refused) == 2);
    CHECK(cursor == slot_of(2));
    cuts[0].generation++;
    cuts[1].closed = 0;
    shard_detach(w->shard, cuts, 2, &freed);
    CHECK(freed.head == 0 && atomic_load(&w->shard->sample_count) == 2);
    world_check(w);
    world_free(w);
}

/* Blocks are refused at a cut: it stops there, and goes on when there are some. */
static void test_memory_refused(void **state)
{
    /* Room for a page of series and one region of blocks. */
    struct world *w = world_new((uint64_t)4 * SLAB_REGION_BYTES);
    struct series_cut *cuts = calloc(CUT_SERIES_MAX, sizeof *cuts);
    struct chunk_chains freed = {0};
    uint32_t cursor = 0;
    bool refused = false;
    int64_t t = 1;

    (void)state;
    CHECK(cuts != NULL);
    CHECK(store(w, 0, 1, 1));
    CHECK(shard_cut(w->shard, &cursor, 1, cuts, &refused) == 1);
    note_cuts(w, cuts, 1);
    while (store(w, 1, t, (uint64_t)t * 0x9e3779b97f4a7c15U))
        t += 15000;
    cursor = 0;
    CHECK(shard_cut(w->shard, &cursor, slot_of(2), cuts, &refused) == 1);
    CHECK(refused && cursor == slot_of(1));
    /* With what a detach gives back the cut goes on. */
    shard_detach(w->shard, cuts, 1, &freed);
    CHECK(freed.block_count == 2);
    w->models[0].memory_first = 1;
    chunk_chains_retire(&w->pool, &freed);
    CHECK(shard_cut(w->shard, &cursor, slot_of(2), cuts, &refused) == 1 && !refused);
    world_check(w);
    free(cuts);
    world_free(w);
}

/* Without a block for a descriptor's copy a series keeps what is noted; it can go with the rest. */
static void test_detach_refused(void **state)
{
    struct world *w = world_new((uint64_t)4 * SLAB_REGION_BYTES);
    struct series_cut *first = calloc(CUT_SERIES_MAX, sizeof *first);
    struct series_cut *second = calloc(CUT_SERIES_MAX, sizeof *second);
    struct chunk_chains freed = {0};
    uint32_t cursor = 0;
    bool refused = false;
    int64_t t = 1;

    (void)state;
    CHECK(first != NULL && second != NULL);
    CHECK(store(w, 0, 1, 1));
    CHECK(shard_cut(w->shard, &cursor, 1, first, &refused) == 1);
    CHECK(store(w, 0, 2, 2));
    cursor = 0;
    CHECK(shard_cut(w->shard, &cursor, 1, second, &refused) == 1);
    CHECK(second->closed != first->closed);
    while (store(w, 1, t, (uint64_t)t * 0x9e3779b97f4a7c15U))
        t += 15000;
    shard_detach(w->shard, first, 1, &freed);
    CHECK(freed.head == 0 && freed.block_count == 0);
    world_check(w);
    note_cuts(w, second, 1);
    detach(w, second, 1);
    world_check(w);
    free(second);
    free(first);
    world_free(w);
}

/* ---- beside others ---- */

enum { RACE_SERIES = 64, RACE_SAMPLES = 6000, RACE_READERS = 2 };

struct race {
    struct world *world;
    _Atomic bool is_written; /* relaxed: ends the other threads */
};

static void *race_write(void *arg)
{
    struct race *race = arg;
    struct shard *s = race->world->shard;

    for (int64_t k = 0; k < RACE_SAMPLES; k++) {
        struct shard_change change = shard_change_none();

        mutex_lock(&s->lock);
        for (size_t i = 0; i < RACE_SERIES; i++)
            CHECK(shard_store(s, series_of(race->world, i), k * 15000, double_bits((double)k),
                              &change));
        shard_change_apply(s, &change);
        mutex_unlock(&s->lock);
    }
    atomic_store(&race->is_written, true);
    return NULL;
}

/* What is read is a run of samples without a gap: the sample k has the value k. */
static void *race_read(void *arg)
{
    struct race *race = arg;
    struct shard *s = race->world->shard;
    uint32_t slots[RACE_SERIES];
    uint16_t generations[RACE_SERIES];
    struct column c[RACE_SERIES];
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < RACE_SERIES; i++) {
        slots[i] = slot_of(i);
        generations[i] = 1;
    }
    while (!atomic_load(&race->is_written)) {
        CHECK_OK(kit_read_slots(s, slots, generations, RACE_SERIES, INT64_MIN, INT64_MAX, &arena, c,
                                &ei),
                 &ei);
        for (size_t i = 0; i < RACE_SERIES; i++)
            for (size_t k = 0; k < c[i].count; k++) {
                CHECK(c[i].t_ms[k] == c[i].t_ms[0] + (int64_t)k * 15000);
                CHECK(c[i].value[k] * 15000 == (double)c[i].t_ms[k]);
            }
        arena_reset(&arena);
    }
    arena_done(&arena);
    return NULL;
}

static void *race_seal(void *arg)
{
    struct race *race = arg;
    struct shard *s = race->world->shard;
    struct series_cut *cuts = calloc(CUT_SERIES_MAX, sizeof *cuts);
    int64_t *sealed_ms = calloc(RACE_SERIES, sizeof *sealed_ms),
            t_ms[COLUMN_MAX + CHUNK_DECODE_SLACK];
    double value[COLUMN_MAX + CHUNK_DECODE_SLACK];
    struct cut_chunks chunks;

    CHECK(cuts != NULL && sealed_ms != NULL);
    cut_chunks_init(&chunks);
    while (!atomic_load(&race->is_written)) {
        struct chunk_chains freed = {0};
        uint32_t cursor = 0;
        bool refused;

        mutex_lock(&s->lock);
        size_t count = shard_cut(s, &cursor, slot_of(RACE_SERIES), cuts, &refused), n;
        mutex_unlock(&s->lock);
        CHECK(!refused);
        for (size_t i = 0; i < count; i++) {
            int64_t *next_ms = &sealed_ms[cuts[i].slot / SLOT_STEP];

            CHECK(cut_chunks_begin(&chunks, &race->world->pool, &cuts[i]));
            while ((n = cut_chunks_next(&chunks, &race->world->pool, t_ms, value, COLUMN_MAX)) > 0)
                for (size_t k = 0; k < n; k++, *next_ms += 15000)
                    CHECK(t_ms[k] == *next_ms && value[k] * 15000 == (double)t_ms[k]);
        }
        mutex_lock(&s->lock);
        shard_detach(s, cuts, count, &freed);
        mutex_unlock(&s->lock);
        chunk_chains_retire(&race->world->pool, &freed);
    }
    cut_chunks_done(&chunks);
    free(sealed_ms);
    free(cuts);
    return NULL;
}

static void test_beside_readers(void **state)
{
    struct race race = {.world = world_new(UINT64_MAX)};
    struct thread threads[2 + RACE_READERS] = {0};
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(thread_start(&threads[0], "write", race_write, &race, &ei), &ei);
    CHECK_OK(thread_start(&threads[1], "seal", race_seal, &race, &ei), &ei);
    for (size_t i = 2; i < 2 + RACE_READERS; i++)
        CHECK_OK(thread_start(&threads[i], "read", race_read, &race, &ei), &ei);
    for (size_t i = 0; i < 2 + RACE_READERS; i++)
        thread_join(&threads[i]);
    epoch_collect(race.world->pool.epoch);
    CHECK(chunk_pool_free_bytes(&race.world->pool) > 0);
    world_free(race.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_seals),   cmocka_unit_test(test_blocks_are_reused),
        cmocka_unit_test(test_border_splits),  cmocka_unit_test(test_blocks_come_back_in_order),
        cmocka_unit_test(test_list_too_small), cmocka_unit_test(test_generation_changed),
        cmocka_unit_test(test_memory_refused), cmocka_unit_test(test_detach_refused),
        cmocka_unit_test(test_beside_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
