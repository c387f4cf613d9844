/*
 * Exact sums against a twin that adds in one whole number of 2,200 bits and rounds that: to the
 * last bit, in any order, over any split into partial sums.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "promql/eval/exact_sum_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

/* ---- the twin ---- */

/* Limb i counts 2^(32 i - LAST_PLACE). */
enum { LIMBS = 72, LAST_PLACE = 1152 };

struct whole {
    int64_t limbs[LIMBS];
};

static void whole_add(struct whole *w, double value)
{
    int exponent;
    double fraction = frexp(value, &exponent);
    int64_t mantissa = (int64_t)ldexp(fraction, 53);
    int place = exponent - 53 + LAST_PLACE;
    unsigned __int128 size = (unsigned __int128)(uint64_t)(mantissa < 0 ? -mantissa : mantissa)
                             << (place % 32);

    for (int i = 0; i < 3; i++, size >>= 32)
        w->limbs[place / 32 + i] += (mantissa < 0 ? -1 : 1) * (int64_t)(uint32_t)size;
    for (int i = 0; i + 1 < LIMBS; i++) {
        int64_t carry = w->limbs[i] >> 32;

        w->limbs[i] -= carry * (INT64_C(1) << 32);
        w->limbs[i + 1] += carry;
    }
}

static int bit_at(const struct whole *w, int i)
{
    return i < 0 ? 0 : (int)((uint64_t)w->limbs[i / 32] >> (i % 32)) & 1;
}

/* To the nearest double times 2^-shift, halves to even. */
static double whole_round(struct whole w, int shift)
{
    bool negative = w.limbs[LIMBS - 1] < 0;
    int top = LIMBS * 32 - 1, last;
    uint64_t mantissa = 0;
    bool rest = false;

    if (negative) {
        struct whole zero = {0};

        for (int i = 0; i < LIMBS; i++)
            zero.limbs[i] = -w.limbs[i];
        w = zero;
        whole_add(&w, 0); /* hands up the borrows */
    }
    while (top >= 0 && bit_at(&w, top) == 0)
        top--;
    if (top < 0)
        return 0;
    last = top - 52 > LAST_PLACE - 1074 ? top - 52 : LAST_PLACE - 1074;
    for (int i = top; i >= last; i--)
        mantissa = mantissa << 1 | (uint64_t)bit_at(&w, i);
    for (int i = last - 2; i >= 0; i--)
        rest = rest || bit_at(&w, i);
    if (bit_at(&w, last - 1) && (rest || (mantissa & 1)))
        mantissa++;
    return ldexp(negative ? -(double)mantissa : (double)mantissa, last - LAST_PLACE - shift);
}

/* ---- the test ---- */

enum { STEPS = 130, ROWS_MAX = 300 };

struct rows {
    size_t count;
    double value[ROWS_MAX][STEPS];
    uint64_t present[ROWS_MAX][(STEPS + 63) / 64];
};

static double random_value(struct test_random *r, int kind)
{
    double unit = test_random_unit(r) - 0.5;

    switch (kind) {
    case 0: /* what rate() gives */
        return test_random_unit(r) * 30;
    case 1:
        return (double)test_random_below(r, 1000);
    case 2: /* all sizes, least and largest too */
        return ldexp(unit, (int)test_random_below(r, 2080) - 1060);
    case 3: /* cancels often, halves are frequent */
        return ldexp((double)test_random_below(r, 5) - 2, 53 * ((int)test_random_below(r, 4) - 1));
    default: /* beyond the range of doubles in sum */
        return ldexp(unit, 1024);
    }
}

static void rows_fill(struct rows *rows, struct test_random *r, int kind)
{
    rows->count = 1 + (size_t)test_random_below(r, ROWS_MAX);
    memset(rows->present, 0, sizeof rows->present);
    for (size_t i = 0; i < rows->count; i++) {
        bool dense = test_random_below(r, 2) == 0;

        for (size_t k = 0; k < STEPS; k++) {
            bool is_present = dense || test_random_below(r, 3) != 0;

            rows->value[i][k] = is_present ? random_value(r, kind) : (double)NAN;
            rows->present[i][k / 64] |= (uint64_t)is_present << (k % 64);
        }
    }
}

static bool has(const struct rows *rows, size_t row, size_t step)
{
    return (rows->present[row][step / 64] >> (step % 64)) & 1;
}

/* Adds all rows in a random order to a random number of partial sums, and merges those. */
static struct exact_sums sums_of(const struct rows *rows, struct test_random *r,
                                 struct arena *arena)
{
    struct exact_sums parts[4];
    size_t part_count = 1 + (size_t)test_random_below(r, 4);
    size_t order[ROWS_MAX];

    for (size_t i = 0; i < part_count; i++)
        exact_sums_init(&parts[i], STEPS, arena);
    for (size_t i = 0; i < rows->count; i++) {
        size_t k = (size_t)test_random_below(r, i + 1);

        order[i] = order[k];
        order[k] = i;
    }
    for (size_t i = 0; i < rows->count; i++) {
        struct exact_sums *s = &parts[test_random_below(r, part_count)];
        size_t row = order[i];

        /* In two pieces, as long columns are. */
        CHECK(exact_sums_add(s, rows->present[row], rows->value[row], 0, 64));
        CHECK(exact_sums_add(s, rows->present[row], rows->value[row], 64, STEPS));
    }
    for (size_t i = 1; i < part_count; i++)
        CHECK(exact_sums_merge(&parts[0], &parts[i]));
    CHECK(exact_sums_finish(&parts[0]));
    return parts[0];
}

static void rows_check(const struct rows *rows, const struct exact_sums *s)
{
    for (size_t k = 0; k < STEPS; k++) {
        struct whole w = {{0}};
        double sum, mean, count = 0;

        for (size_t i = 0; i < rows->count; i++) {
            if (!has(rows, i, k))
                continue;
            whole_add(&w, rows->value[i][k]);
            count++;
        }
        sum = exact_sums_get(s, k, 1);
        CHECK_MSG(sum == whole_round(w, 0), "step %zu: %a, expected %a", k, sum, whole_round(w, 0));
        CHECK(!signbit(sum) || sum != 0);
        if (count == 0)
            continue;
        /* One rounding more. */
        mean = exact_sums_get(s, k, count);
        if (isfinite(sum))
            CHECK(mean == sum / count);
        else
            CHECK(mean == ldexp(whole_round(w, 64) / count, 64));
    }
}

static void test_twin(void **state)
{
    struct test_random r = test_random_init(11);
    struct rows *rows = malloc(sizeof *rows);
    struct arena arena;

    (void)state;
    CHECK(rows != NULL);
    arena_init(&arena, NULL);
    for (int round = 0; round < 60; round++) {
        struct exact_sums s;

        rows_fill(rows, &r, round % 5);
        for (int i = 0; i < 2; i++) {
            s = sums_of(rows, &r, &arena);
            rows_check(rows, &s);
        }
        arena_reset(&arena);
    }
    arena_done(&arena);
    free(rows);
}

/* More rows than may be added between carries, the largest and the least that a bin takes. */
static void test_many_rows(void **state)
{
    static const double values[] = {0x1.fffffffffffffp39, 0x1.fffffffffffffp-1, -0x1p39, 0x1p-1074,
                                    0x1.fffffffffffffp959};
    const uint64_t present = 1;
    struct arena arena;

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct exact_sums s;
        struct whole w = {{0}};

        arena_init(&arena, NULL);
        exact_sums_init(&s, 1, &arena);
        for (int n = 0; n < 50000; n++) {
            CHECK(exact_sums_add(&s, &present, &values[i], 0, 1));
            whole_add(&w, values[i]);
        }
        CHECK(exact_sums_finish(&s));
        CHECK(exact_sums_get(&s, 0, 1) == whole_round(w, 0));
        arena_done(&arena);
    }
}

/* NaN and infinities are told after everything else, in whatever order they came. */
static void test_specials(void **state)
{
    const double inf = (double)INFINITY;
    /* By step: NaN; both infinities; one with the largest number of the other sign; minus infinity
     * and a number; zeros of both signs. */
    const double values[2][5] = {{(double)NAN, inf, inf, -inf, -0.0},
                                 {inf, -inf, -0x1.fffffffffffffp1023, 1, -0.0}};
    const uint64_t present = 31;
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t order = 0; order < 2; order++) {
        struct exact_sums s[2];

        for (size_t i = 0; i < 2; i++) {
            exact_sums_init(&s[i], 5, &arena);
            CHECK(exact_sums_add(&s[i], &present, values[i], 0, 5));
        }
        CHECK(exact_sums_merge(&s[order], &s[1 - order]));
        CHECK(exact_sums_finish(&s[order]));
        CHECK(isnan(exact_sums_get(&s[order], 0, 2)));
        CHECK(isnan(exact_sums_get(&s[order], 1, 2)));
        CHECK(exact_sums_get(&s[order], 2, 2) == inf);
        CHECK(exact_sums_get(&s[order], 3, 2) == -inf);
        CHECK(exact_sums_get(&s[order], 4, 2) == 0 && !signbit(exact_sums_get(&s[order], 4, 2)));
    }
    arena_done(&arena);
}

/* Memory is charged, and bounded whatever the values are. */
static void test_memory(void **state)
{
    struct test_random r = test_random_init(12);
    struct budget budget;
    struct arena arena;
    struct exact_sums s;

    (void)state;
    budget_init(&budget, "test", 1 << 20, NULL);
    arena_init(&arena, &budget);
    exact_sums_init(&s, STEPS, &arena);
    for (int i = 0; i < 2000; i++) {
        double value[STEPS];
        uint64_t present[(STEPS + 63) / 64] = {~UINT64_C(0), ~UINT64_C(0), 3};

        for (size_t k = 0; k < STEPS; k++)
            value[k] = random_value(&r, 2);
        CHECK(exact_sums_add(&s, present, value, 0, STEPS));
    }
    CHECK(atomic_load(&budget.used_bytes) < sizeof(double) * 4 * 52 * STEPS);
    arena_done(&arena);
    budget_init(&budget, "test", 1 << 10, NULL);
    arena_init(&arena, &budget);
    exact_sums_init(&s, STEPS, &arena);
    {
        const double value[STEPS] = {1};
        const uint64_t present[(STEPS + 63) / 64] = {1};

        CHECK(!exact_sums_add(&s, present, value, 0, STEPS));
    }
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_specials),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
