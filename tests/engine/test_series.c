/* The fingerprint table against an array: additions, removals and look-ups in any order. */
#include <stdlib.h>
#include <string.h>

#include "engine/memtable/series_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { SLOTS = 6000, STEPS = 120000 };

/* A table over structs of our own. */
struct world {
    struct slab slab;
    struct series_table series;
    struct fingerprint_table table;
    struct budget memory;
    bool present[SLOTS];
};

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof *w);

    CHECK(w != NULL);
    budget_init(&w->memory, "test", UINT64_MAX, NULL);
    slab_init(&w->slab, NULL);
    CHECK(series_table_init(&w->series, &w->slab) == ERR_OK);
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK(series_table_reserve(&w->series, i));
    CHECK(fingerprint_table_init(&w->table, &w->series, &w->memory) == ERR_OK);
    return w;
}

static void world_free(struct world *w)
{
    fingerprint_table_done(&w->table);
    CHECK(budget_used(&w->memory) == 0);
    series_table_done(&w->series);
    slab_done(&w->slab);
    free(w);
}

/* Few places and tags, so that runs are long and wrap around the end of a segment. */
static struct hash128 crowded(struct test_random *r, uint32_t slot)
{
    uint64_t place = (1000 + test_random_below(r, 60)) % 1024;

    return (struct hash128){place | test_random_below(r, 3) << 32 | (uint64_t)slot << 40,
                            test_random_u64(r)};
}
static struct hash128 spread(struct test_random *r, uint32_t slot)
{
    (void)slot;
    return (struct hash128){test_random_u64(r), test_random_u64(r)};
}

static void check_all(const struct world *w, uint32_t slots)
{
    for (uint32_t i = 0; i < slots; i++) {
        struct hash128 f = series_at(&w->series, i)->fingerprint;

        CHECK(fingerprint_table_find(&w->table, f) ==
              (w->present[i] ? i : (uint32_t)FINGERPRINT_SLOT_NONE));
    }
}

static void run(uint64_t seed, uint32_t slots, uint32_t steps,
                struct hash128 (*draw)(struct test_random *, uint32_t))
{
    struct test_random r = test_random_init(seed);
    struct world *w = world_new();

    for (uint32_t i = 0; i < slots; i++)
        series_at(&w->series, i)->fingerprint = draw(&r, i);
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t slot = (uint32_t)test_random_below(&r, slots);

        if (w->present[slot]) {
            fingerprint_table_remove(&w->table, slot);
            /* A slot that is free may be another's. */
            if (test_random_below(&r, 2) == 0)
                series_at(&w->series, slot)->fingerprint = draw(&r, slot);
        } else {
            CHECK(fingerprint_table_add(&w->table, slot));
        }
        w->present[slot] = !w->present[slot];
        if (step % (steps / 40) == 0)
            check_all(w, slots);
    }
    check_all(w, slots);
    for (uint32_t i = 0; i < slots; i++)
        if (w->present[i])
            fingerprint_table_remove(&w->table, i);
    memset(w->present, 0, sizeof w->present);
    check_all(w, slots);
    world_free(w);
}

static void spread_fingerprints(void **state)
{
    (void)state;
    run(1, SLOTS, STEPS, spread);
}

static void crowded_fingerprints(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++)
        run(seed, 400, STEPS / 10, crowded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_fingerprints),
        cmocka_unit_test(crowded_fingerprints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
