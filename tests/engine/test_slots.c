/* Dead slots on their way to a new series, against a model that knows every slot's state. */
#include <stdlib.h>
#include <string.h>

#include "engine/memtable/slots_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { SLOTS = 300, FILES_MAX = 400, READERS_MAX = 8 };

/* What the model knows of a slot. */
struct model_slot {
    enum { LIVE, DEAD } state;
    uint16_t generation;   /* of the series it holds or held */
    uint64_t died_version; /* of the index that knew it */
    uint64_t barrier;      /* 0: none */
};

struct world {
    struct test_random r;
    struct budget memory;
    struct slab slab;
    struct series_table series;
    struct slot_pool pool;
    struct reader_registry registry;
    struct reader readers[READERS_MAX];
    uint64_t reader_version[READERS_MAX]; /* of the index it holds; 0: not there */
    struct model_slot slots[SLOTS];
    struct index *current;
    uint64_t version;
    uint64_t oldest_held;           /* of the indexes that are not freed */
    uint64_t first_file, next_file; /* live files: [first, next) */
    uint64_t reused;
};

static struct index *new_index(struct world *w)
{
    struct index *ix;

    CHECK(index_new(&w->memory, &ix, NULL) == ERR_OK);
    return ix;
}

static struct world *world_new(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);

    CHECK(w != NULL);
    w->r = test_random_init(seed);
    budget_init(&w->memory, "test", UINT64_MAX, NULL);
    slab_init(&w->slab, NULL);
    CHECK(series_table_init(&w->series, &w->slab) == ERR_OK);
    slot_pool_init(&w->pool, &w->memory);
    readers_init(&w->registry);
    w->current = new_index(w);
    w->version = w->oldest_held = 1;
    w->first_file = w->next_file = 1;
    for (uint32_t i = 0; i < SLOTS; i++) {
        CHECK(series_table_reserve(&w->series, i));
        w->slots[i].generation = (uint16_t)(SLOT_GENERATION_QUARTER - 3 + i % 3);
        series_at(&w->series, i)->generation = w->slots[i].generation;
        series_at(&w->series, i)->defined = 1;
    }
    return w;
}

static void world_free(struct world *w)
{
    slot_pool_done(&w->pool);
    index_free(w->current);
    for (int i = 0; i < READERS_MAX; i++)
        if (w->reader_version[i] != 0)
            readers_leave(&w->registry, &w->readers[i]);
    readers_done(&w->registry);
    series_table_done(&w->series);
    slab_done(&w->slab);
    CHECK(budget_used(&w->memory) == 0);
    free(w);
}

static void some_die(struct world *w)
{
    struct slot_batch *b = slot_batch_new(&w->pool, SLOTS);

    CHECK(b != NULL);
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (w->slots[i].state != LIVE || test_random_below(&w->r, 6) != 0)
            continue;
        series_at(&w->series, i)->defined = 0;
        w->slots[i].state = DEAD;
        w->slots[i].died_version = w->version;
        w->slots[i].barrier = 0;
        slot_batch_add(b, i);
    }
    slot_pool_bury(&w->pool, b);
}

static void rebuild(struct world *w)
{
    struct retired_index *retired = retired_index_new(&w->pool);

    CHECK(retired != NULL);
    slot_pool_retire(&w->pool, retired, w->current, readers_stamp(&w->registry));
    w->current = new_index(w);
    w->version++;
    CHECK(w->pool.dead_count == 0);
}

static void reader_comes_or_goes(struct world *w)
{
    int i = (int)test_random_below(&w->r, READERS_MAX);

    if (w->reader_version[i] == 0) {
        readers_enter(&w->registry, &w->readers[i]);
        w->reader_version[i] = w->version;
    } else {
        readers_leave(&w->registry, &w->readers[i]);
        w->reader_version[i] = 0;
    }
}

/* The oldest index that a reader may hold, or the current one. */
static uint64_t oldest_version(const struct world *w)
{
    uint64_t oldest = w->version;

    for (int i = 0; i < READERS_MAX; i++)
        if (w->reader_version[i] != 0 && w->reader_version[i] < oldest)
            oldest = w->reader_version[i];
    return oldest;
}

static void release(struct world *w)
{
    uint64_t oldest_file = w->first_file == w->next_file ? UINT64_MAX : w->first_file;
    struct index *ix;

    while ((ix = slot_pool_take_retired(&w->pool, &w->registry)) != NULL) {
        CHECK(w->oldest_held < oldest_version(w)); /* nobody has it */
        w->oldest_held++;
        index_free(ix);
    }
    CHECK(w->oldest_held == oldest_version(w)); /* and all that nobody has are gone */
    while (slot_pool_release(&w->pool, &w->series, oldest_file, w->next_file,
                             1 + test_random_below(&w->r, 20))) {
    }
    /* What has just left all indexes on the border of a quarter waits for the files of now. */
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct model_slot *m = &w->slots[i];

        if (m->state == DEAD && m->barrier == 0 && m->died_version < w->oldest_held)
            m->barrier = (uint16_t)(m->generation + 1) % SLOT_GENERATION_QUARTER == 0 ? w->next_file
                                                                                      : UINT64_MAX;
    }
}

static void take_some(struct world *w)
{
    uint32_t slot;

    for (size_t n = test_random_below(&w->r, 30); n > 0 && slot_pool_take(&w->pool, &slot); n--) {
        struct model_slot *m = &w->slots[slot];
        uint16_t generation = series_at(&w->series, slot)->generation;

        CHECK(m->state == DEAD && generation == (uint16_t)(m->generation + 1));
        CHECK(m->died_version < oldest_version(w)); /* no index names it */
        CHECK(m->barrier != 0);
        if (m->barrier != UINT64_MAX && w->first_file < w->next_file)
            CHECK(w->first_file >= m->barrier);
        if (test_random_below(&w->r, 4) == 0) {
            uint32_t again;

            slot_pool_put_back(&w->pool);
            CHECK(slot_pool_take(&w->pool, &again) && again == slot);
        }
        m->state = LIVE;
        m->generation = generation;
        series_at(&w->series, slot)->defined = 1;
        w->reused++;
    }
}

static void check_counts(const struct world *w)
{
    uint64_t dead = 0, in_index = 0;

    for (uint32_t i = 0; i < SLOTS; i++) {
        dead += w->slots[i].state == DEAD;
        in_index += w->slots[i].state == DEAD && w->slots[i].died_version == w->version;
    }
    CHECK(w->pool.dead_count == in_index);
    CHECK(w->pool.waiting_count + w->pool.free_count == dead);
}

static void slots_equal_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world *w = world_new(seed);

        for (int step = 0; step < 4000; step++) {
            switch (test_random_below(&w->r, 8)) {
            case 0:
                some_die(w);
                break;
            case 1:
                rebuild(w);
                break;
            case 2:
            case 3:
                reader_comes_or_goes(w);
                break;
            case 4: /* a seal begins a file, a flush ends some */
                w->next_file++;
                if (test_random_below(&w->r, 3) == 0)
                    w->first_file += test_random_below(&w->r, w->next_file - w->first_file + 1);
                break;
            case 5:
                take_some(w);
                break;
            default:
                release(w);
                check_counts(w);
                break;
            }
        }
        CHECK(w->reused > 1000);
        world_free(w);
    }
}

/* Slots found free at a start wait for the files of before only. */
static void barred_slots_wait_for_files(void **state)
{
    struct world *w = world_new(9);
    struct slot_batch *b = slot_batch_new(&w->pool, 3);
    uint32_t slot;

    (void)state;
    CHECK(b != NULL);
    for (uint32_t i = 5; i < 8; i++) {
        series_at(&w->series, i)->defined = 0;
        slot_batch_add(b, i);
    }
    slot_pool_bar(&w->pool, b, 10);
    CHECK(!slot_pool_release(&w->pool, &w->series, 9, 12, 100));
    CHECK(!slot_pool_take(&w->pool, &slot));
    CHECK(!slot_pool_release(&w->pool, &w->series, 10, 12, 100));
    for (uint32_t i = 5; i < 8; i++)
        CHECK(slot_pool_take(&w->pool, &slot) && slot == i);
    CHECK(!slot_pool_take(&w->pool, &slot));
    world_free(w);
}

static void a_spent_budget_refuses(void **state)
{
    struct world *w = world_new(10);

    (void)state;
    w->memory.limit_bytes = budget_used(&w->memory);
    CHECK(slot_batch_new(&w->pool, 1) == NULL);
    CHECK(retired_index_new(&w->pool) == NULL);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_equal_the_model),
        cmocka_unit_test(barred_slots_wait_for_files),
        cmocka_unit_test(a_spent_budget_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
