/*
 * The inner loops of the codecs: both builds against loops that do the obvious.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/codec/codec_internal.h"
#include "tests/engine/codec_columns.h"
#include "tests/lib/test_cmocka.h"

enum { COUNT_MAX = 300 };

/* The builds this CPU can run, one after the other: NULL gives the first, the last gives NULL. */
static const struct codec_kernels *build_after(const struct codec_kernels *k)
{
    if (k == NULL)
        return &codec_kernels_portable;
#if defined(__x86_64__)
    if (k == &codec_kernels_portable && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return &codec_kernels_avx2;
#endif
    return NULL;
}

static size_t random_count(struct test_random *r)
{
    return 1 + test_random_below(r, test_random_below(r, 4) == 0 ? COUNT_MAX : 40);
}

/* Every width and shift, in buffers of exactly the size that may be touched. */
static void packed_numbers_come_back(void **state)
{
    struct test_random r = test_random_init(1);
    uint64_t d[COUNT_MAX], plain;
    codec_word got[COUNT_MAX];

    (void)state;
    for (unsigned width = 0; width <= 64; width += width == CODEC_WIDTH_MAX ? 7 : 1) {
        for (int round = 0; round < 40; round++) {
            unsigned shift_max = width == 0 ? 63 : 64 - width;
            unsigned shift = (unsigned)test_random_below(&r, round % 2 == 0 ? 1 : shift_max + 1);
            uint64_t base = round % 3 == 0 ? 0 : test_random_u64(&r);
            size_t count = random_count(&r), size = codec_packed_size(count, width);
            uint8_t *packed = malloc(size + 8), *exact = malloc(size > 0 ? size : 1);

            CHECK(packed != NULL && exact != NULL);
            for (size_t i = 0; i < count; i++) {
                plain = width == 0 ? 0 : test_random_u64(&r) >> (64 - width);
                d[i] = (plain << shift) + base;
            }
            for (const struct codec_kernels *k = build_after(NULL); k != NULL; k = build_after(k)) {
                k->pack(d, count, base, shift, width, packed);
                memcpy(exact, packed, size);
                for (const struct codec_kernels *o = build_after(NULL); o != NULL;
                     o = build_after(o)) {
                    memset(got, 0xee, sizeof got);
                    o->unpack(exact, size, count, base, shift, width, got);
                    for (size_t i = 0; i < count; i++)
                        CHECK_MSG(got[i] == d[i], "width %u shift %u i %zu of %zu", width, shift, i,
                                  count);
                    if (count < COUNT_MAX)
                        CHECK(got[count] == UINT64_C(0xeeeeeeeeeeeeeeee));
                }
                /* The bits stand where the format says. */
                for (size_t bit = 0; bit < count * width; bit++) {
                    plain = (d[bit / width] - base) >> shift;
                    CHECK((exact[bit / 8] >> bit % 8 & 1) == (plain >> bit % width & 1));
                }
            }
            free(packed);
            free(exact);
        }
    }
}

static void ranges_and_differences_are_right(void **state)
{
    struct test_random r = test_random_init(2);
    uint64_t x[COUNT_MAX + 1], d[COUNT_MAX];
    int64_t mins[COUNT_MAX], maxs[COUNT_MAX];

    (void)state;
    for (int round = 0; round < 300; round++) {
        size_t m = random_count(&r);
        unsigned narrow = (unsigned)test_random_below(&r, 64);
        uint64_t differ = 0;

        for (size_t i = 0; i <= m; i++)
            x[i] = (test_random_u64(&r) >> narrow) - (UINT64_C(1) << 63 >> narrow);
        for (const struct codec_kernels *k = build_after(NULL); k != NULL; k = build_after(k)) {
            k->differences(x, d, m);
            differ = k->ranges(d, m, mins, maxs);
            for (size_t b = 0; b * CODEC_STAT_BLOCK < m; b++) {
                int64_t low = INT64_MAX, high = INT64_MIN;

                for (size_t i = b * CODEC_STAT_BLOCK; i < m && i < (b + 1) * CODEC_STAT_BLOCK;
                     i++) {
                    CHECK(d[i] == x[i + 1] - x[i]);
                    low = (int64_t)d[i] < low ? (int64_t)d[i] : low;
                    high = (int64_t)d[i] > high ? (int64_t)d[i] : high;
                }
                CHECK(mins[b] == low && maxs[b] == high);
            }
            for (size_t i = 0; i < m; i++)
                differ &= ~(d[i] ^ d[0]);
            for (uint64_t bit = 1; bit != 0; bit <<= 1) { /* what is left must differ nowhere */
                bool differs = false;

                for (size_t i = 0; i < m; i++)
                    differs |= ((d[i] ^ d[0]) & bit) != 0;
                CHECK(differs || (differ & bit) == 0);
            }
        }
    }
}

static void sums_and_changes_are_right(void **state)
{
    struct test_random r = test_random_init(3);
    codec_word a[COUNT_MAX];
    double v[COUNT_MAX];

    (void)state;
    for (int round = 0; round < 200; round++) {
        size_t n = random_count(&r), changes = 0;

        column_fill(&r, round % 2 == 0 ? COLUMN_TOGGLE : COLUMN_STEPS, v, n);
        for (size_t i = 1; i < n; i++)
            changes += double_bits(v[i]) != double_bits(v[i - 1]);
        for (const struct codec_kernels *k = build_after(NULL); k != NULL; k = build_after(k)) {
            uint64_t sum = 0;

            CHECK(k->changes(v, n) == changes);
            memcpy(a, v, n * sizeof *v);
            k->prefix_sum(a, n);
            for (size_t i = 0; i < n; i++)
                CHECK(a[i] == (sum += double_bits(v[i])));
        }
    }
}

/* An integer that a power of ten divides into nearly the middle between two doubles. */
static uint64_t hard_to_divide(struct test_random *r, unsigned exponent)
{
    uint64_t middle = test_random_u64(r) >> 10 | (uint64_t)1 << 53 | 1; /* 54 bits */
    unsigned __int128 x = (unsigned __int128)middle * (uint64_t)codec_powers[exponent];

    for (unsigned size = 10 + (unsigned)test_random_below(r, 53); x >> size != 0;)
        x >>= 1;
    return (uint64_t)x + test_random_below(r, 3) - 1;
}

/* Integers of every size become the double that the CPU's own conversion and division give. */
static void integers_become_doubles(void **state)
{
    struct test_random r = test_random_init(4);
    uint64_t x[COUNT_MAX];
    codec_word a[COUNT_MAX];

    (void)state;
    for (int round = 0; round < 500; round++) {
        size_t n = random_count(&r);
        unsigned e = (unsigned)test_random_below(&r, CODEC_EXPONENT_MAX + 1);

        for (size_t i = 0; i < n; i++) {
            x[i] = i % 2 == 0 ? hard_to_divide(&r, e) : test_random_wide(&r, 64);
            x[i] = test_random_below(&r, 2) == 0 ? x[i] : 0 - x[i];
        }
        for (const struct codec_kernels *k = build_after(NULL); k != NULL; k = build_after(k)) {
            for (size_t i = 0; i < n; i++)
                a[i] = x[i];
            k->decimal_to(a, n, codec_powers[e]);
            for (size_t i = 0; i < n; i++)
                CHECK(a[i] == double_bits((double)(int64_t)x[i] / codec_powers[e]));
        }
    }
}

/* A value counts as an integer only if the integer gives it back, and both builds say the same. */
static void decimals_are_proved(void **state)
{
    struct test_random r = test_random_init(5);
    double v[COUNT_MAX];
    uint64_t x[COUNT_MAX];

    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t n = random_count(&r), bad_before = SIZE_MAX;
        unsigned e = (unsigned)test_random_below(&r, CODEC_EXPONENT_MAX + 1);

        column_fill(&r, (enum column_model)test_random_below(&r, COLUMN_MODEL_COUNT), v, n);
        for (const struct codec_kernels *k = build_after(NULL); k != NULL; k = build_after(k)) {
            size_t bad = k->decimal_from(v, n, codec_powers[e], x), refuted = 0;

            for (size_t i = 0; i < n; i++)
                refuted +=
                    double_bits((double)(int64_t)x[i] / codec_powers[e]) != double_bits(v[i]);
            CHECK(bad >= refuted);
            CHECK(bad_before == SIZE_MAX || bad == bad_before);
            bad_before = bad;
        }
    }
    for (const struct codec_kernels *k = build_after(NULL); k != NULL; k = build_after(k)) {
        const double sound[] = {0, 1, -1, 12.34, -0.01, 0x1p51 / 100 - 1, 99999999.99};
        const double unsound[] = {-0.0, 0.001, 1e300, -1e18, 0x1p52, __builtin_inf()};

        for (size_t i = 0; i < sizeof sound / sizeof *sound; i++)
            CHECK(k->decimal_from(&sound[i], 1, 100, x) == 0);
        for (size_t i = 0; i < sizeof unsound / sizeof *unsound; i++)
            CHECK(k->decimal_from(&unsound[i], 1, 100, x) == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_numbers_come_back),
        cmocka_unit_test(ranges_and_differences_are_right),
        cmocka_unit_test(sums_and_changes_are_right),
        cmocka_unit_test(integers_become_doubles),
        cmocka_unit_test(decimals_are_proved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
