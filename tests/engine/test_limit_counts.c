/* The table of series by label value, against a plain array. */
#include <string.h>

#include "engine/limits/limit_counts_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { KEYS = 3000, STEPS = 200000 };

struct twin {
    uint32_t series[KEYS], ended[KEYS];
};

/* Few distinct low bits, so that chains are long and wrap around. */
static uint64_t key_at(uint64_t i)
{
    return i == 0 ? 0 : (i * UINT64_C(0x9e3779b97f4a7c15)) & ~UINT64_C(0xfff00);
}

static void step(struct limit_counts *c, struct twin *t, struct test_random *r)
{
    uint64_t i = test_random_below(r, KEYS), max = test_random_below(r, 4), active = 0;
    uint64_t what = test_random_below(r, 8);
    enum err e;

    if (what < 4) {
        bool full = max > 0 && t->series[i] - t->ended[i] >= max;

        e = limit_counts_take(c, key_at(i), max, &active);
        CHECK(e == (full ? ERR_LIMIT : ERR_OK));
        t->series[i] += !full;
        CHECK(active == t->series[i] - t->ended[i]);
    } else if (what < 7) {
        limit_counts_drop(c, key_at(i));
        t->ended[i] -= t->ended[i] > 0;
        t->series[i] -= t->series[i] > 0;
    } else {
        uint64_t ended = test_random_below(r, 3);

        limit_counts_set_ended(c, key_at(i), ended);
        t->ended[i] = ended < t->series[i] ? (uint32_t)ended : t->series[i];
    }
    if (t->series[i] == 0)
        t->ended[i] = 0;
}

static void it_counts_as_the_twin(void **state)
{
    static struct twin twin;
    struct test_random r = test_random_init(1);
    struct limit_counts c;
    struct budget memory;

    (void)state;
    budget_init(&memory, "test", UINT64_MAX, NULL);
    limit_counts_init(&c, &memory);
    for (int i = 0; i < STEPS; i++)
        step(&c, &twin, &r);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK(limit_counts_active(&c, key_at(i)) == twin.series[i] - twin.ended[i]);
    /* Nothing is left of values without series. */
    for (uint64_t i = 0; i < KEYS; i++)
        for (uint32_t n = twin.series[i]; n > 0; n--)
            limit_counts_drop(&c, key_at(i));
    for (size_t i = 0; i < LIMIT_STRIPE_COUNT; i++)
        CHECK(c.stripes[i].used == 0);
    CHECK(budget_used(&memory) <= (size_t)LIMIT_STRIPE_COUNT * 16 * 2 * sizeof(struct limit_count));
    limit_counts_done(&c);
    CHECK(budget_used(&memory) == 0);
}

static void refused_memory_changes_nothing(void **state)
{
    struct limit_counts c;
    struct budget memory;
    uint64_t active = 7;

    (void)state;
    budget_init(&memory, "test", 10, NULL);
    limit_counts_init(&c, &memory);
    CHECK(limit_counts_take(&c, 5, 0, &active) == ERR_NOMEM);
    CHECK(limit_counts_add(&c, 5, 1) == ERR_NOMEM);
    CHECK(limit_counts_active(&c, 5) == 0 && active == 7);
    limit_counts_drop(&c, 5);
    limit_counts_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_counts_as_the_twin),
        cmocka_unit_test(refused_memory_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
