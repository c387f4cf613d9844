/*
 * Value and timestamp columns against a plain copy: every model, hostile values, every length that
 * matters; sizes that the format promises; damaged columns.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/codec/codec_internal.h"
#include "tests/engine/codec_columns.h"
#include "tests/engine/codec_twin.h"
#include "tests/lib/test_cmocka.h"

enum { ROUNDS = 150, GUARD = 64, GUARD_BYTE = 0xa5 };

struct fixture {
    struct codec_scratch scratch;
    double v[CODEC_SAMPLES_MAX], got[CODEC_SAMPLES_MAX + 1];
    int64_t t[CODEC_SAMPLES_MAX], got_t[CODEC_SAMPLES_MAX + 1];
    uint8_t bytes[8 * CODEC_SAMPLES_MAX + CODEC_BOUND_SLACK + GUARD];
};

static struct fixture *fixture_new(void)
{
    struct fixture *f = calloc(1, sizeof *f);

    CHECK(f != NULL);
    return f;
}

/* Encodes f->v[0..n) and checks that nothing was written past the bound. */
static size_t encode(struct fixture *f, size_t n)
{
    size_t size;

    memset(f->bytes + codec_bound(n), GUARD_BYTE, GUARD);
    size = codec_values_encode(f->v, n, &f->scratch, f->bytes);
    CHECK(size <= 8 * n + 1);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(f->bytes[codec_bound(n) + i] == GUARD_BYTE);
    return size;
}

/* Decodes a copy of exactly `size` bytes into an array of exactly n, so that a sanitizer sees a
 * step outside of either. The twin must say the same. */
static bool decode(const uint8_t *data, size_t size, size_t n, double *out)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    double *values = malloc((n > 0 ? n : 1) * sizeof *values);
    uint64_t *twin = malloc((n > 0 ? n : 1) * sizeof *twin);
    bool good;

    CHECK(copy != NULL && values != NULL && twin != NULL);
    memcpy(copy, data, size);
    good = codec_values_decode(copy, size, n, values);
    CHECK(twin_values_decode(copy, size, n, twin) == good);
    if (good)
        memcpy(out, values, n * sizeof *out);
    for (size_t i = 0; good && i < n; i++)
        CHECK(double_bits(values[i]) == twin[i]);
    free(twin);
    free(copy);
    free(values);
    return good;
}

static size_t round_trip(struct fixture *f, size_t n, uint64_t seed, int model)
{
    size_t size = encode(f, n);

    CHECK_MSG(decode(f->bytes, size, n, f->got), "model %d n %zu seed %llu", model, n,
              (unsigned long long)seed);
    for (size_t i = 0; i < n; i++)
        CHECK_MSG(double_bits(f->got[i]) == double_bits(f->v[i]),
                  "model %d n %zu i %zu: %a, not %a (kind %u)", model, n, i, f->got[i], f->v[i],
                  codec_values_kind(f->bytes, size));
    return size;
}

static void values_come_back_bit_for_bit(void **state)
{
    struct fixture *f = fixture_new();
    size_t kinds[16] = {0};

    (void)state;
    for (int model = 0; model < COLUMN_MODEL_COUNT; model++) {
        for (uint64_t round = 0; round < ROUNDS; round++) {
            struct test_random r = test_random_init((uint64_t)model << 32 | round);
            size_t n = column_length(&r), size;

            column_fill(&r, (enum column_model)model, f->v, n);
            size = round_trip(f, n, r.seed, model);
            kinds[codec_values_kind(f->bytes, size)]++;
        }
    }
    /* A test that never sees a form does not test it. */
    for (unsigned kind = CODEC_RAW; kind <= CODEC_SPLIT; kind++)
        CHECK_MSG(kinds[kind] > 0, "no column of kind %s", codec_kind_name(kind));
    free(f);
}

static void longest_columns_come_back(void **state)
{
    struct fixture *f = fixture_new();

    (void)state;
    for (int model = 0; model < COLUMN_MODEL_COUNT; model++) {
        struct test_random r = test_random_init((uint64_t)model + 77);

        column_fill(&r, (enum column_model)model, f->v, CODEC_SAMPLES_MAX);
        round_trip(f, CODEC_SAMPLES_MAX, r.seed, model);
    }
    free(f);
}

/* Each hostile value alone, as one stranger among counters, and next to each other one. */
static void every_hostile_value_comes_back(void **state)
{
    struct fixture *f = fixture_new();

    (void)state;
    for (size_t a = 0; a < COLUMN_HOSTILE_COUNT; a++) {
        f->v[0] = double_from_bits(column_hostile_bits[a]);
        round_trip(f, 1, 0, 0);
        for (size_t at = 0; at < 100; at++) {
            for (size_t i = 0; i < 100; i++)
                f->v[i] = (double)(i * i * 3);
            f->v[at] = double_from_bits(column_hostile_bits[a]);
            round_trip(f, 100, at, 0);
        }
        for (size_t b = 0; b < COLUMN_HOSTILE_COUNT; b++) {
            for (size_t i = 0; i < 70; i++)
                f->v[i] = double_from_bits(column_hostile_bits[i % 3 == 0 ? a : b]);
            for (size_t n = 1; n <= 70; n += 3)
                round_trip(f, n, b, 0);
        }
    }
    free(f);
}

static size_t size_of(struct fixture *f, size_t n)
{
    return round_trip(f, n, 0, 0);
}

/* Half of all series hardly ever change: what they cost is promised. */
static void quiet_columns_are_tiny(void **state)
{
    struct fixture *f = fixture_new();
    const uint64_t stale = UINT64_C(0x7ff0000000000002);

    (void)state;
    for (size_t i = 0; i < 480; i++)
        f->v[i] = 0;
    assert_int_equal(size_of(f, 480), 2);
    for (size_t i = 0; i < 480; i++)
        f->v[i] = 81559.0;
    assert_int_equal(size_of(f, 480), 4);
    for (size_t i = 0; i < 480; i++)
        f->v[i] = 0.1 + 0.2;
    assert_int_equal(size_of(f, 480), 9);
    /* One event. */
    for (size_t i = 0; i < 480; i++)
        f->v[i] = i < 300 ? 17 : 18;
    assert_true(size_of(f, 480) <= 10);
    /* A series that ended. */
    f->v[479] = double_from_bits(stale);
    assert_true(size_of(f, 480) <= 16);
    /* A counter at an even pace. */
    for (size_t i = 0; i < 480; i++)
        f->v[i] = (double)(1000000 + 15 * i) / 100;
    assert_true(size_of(f, 480) <= 10);
    free(f);
}

/* One reset, one outage and one stray value cost some bytes, not a wider column. */
static void strangers_cost_bytes_each(void **state)
{
    struct fixture *f = fixture_new();
    struct test_random r = test_random_init(5);
    double x = 1e9;
    size_t plain, reset, nan;

    (void)state;
    for (size_t i = 0; i < 480; i++) {
        x += 900 + (double)test_random_below(&r, 200);
        f->v[i] = x;
    }
    plain = size_of(f, 480);
    f->v[100] = double_from_bits(UINT64_C(0x7ff8000000000001));
    nan = size_of(f, 480);
    assert_in_range(nan, plain, plain + 75); /* a step of two scrapes is one bit wider */
    for (size_t i = 300; i < 480; i++)
        f->v[i] -= f->v[299];
    f->v[100] = f->v[99] + 1000;
    reset = size_of(f, 480);
    assert_in_range(reset, plain, plain + 75);
    free(f);
}

/* --- Damage --- */

/* Whatever the bytes, decoding must not step outside; what it accepts is n values. */
static void damaged_columns_do_no_harm(void **state)
{
    struct fixture *f = fixture_new();
    size_t refused = 0, tried = 0;

    (void)state;
    for (int model = 0; model < COLUMN_MODEL_COUNT; model++) {
        for (uint64_t round = 0; round < 6; round++) {
            struct test_random r = test_random_init((uint64_t)model << 32 | round | 1U << 20);
            size_t n = 1 + test_random_below(&r, 130), size;

            column_fill(&r, (enum column_model)model, f->v, n);
            size = encode(f, n);
            for (size_t cut = 0; cut < size; cut++)
                CHECK(!decode(f->bytes, cut, n, f->got));
            f->bytes[size] = 0;
            CHECK(!decode(f->bytes, size + 1, n, f->got));
            for (size_t bit = 0; bit < 8 * size; bit++) {
                f->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
                refused += !decode(f->bytes, size, n, f->got);
                tried++;
                f->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
            }
            /* Another count than the column was made for. */
            (void)decode(f->bytes, size, n + 1, f->got);
            (void)decode(f->bytes, size, 1, f->got);
            (void)decode(f->bytes, size, CODEC_SAMPLES_MAX, f->v);
            for (int noise = 0; noise < 50; noise++) {
                for (size_t i = 0; i < 4; i++) {
                    size_t at = test_random_below(&r, size);

                    f->bytes[at] = (uint8_t)test_random_u64(&r);
                }
                (void)decode(f->bytes, size, n, f->got);
            }
        }
    }
    CHECK(refused > 0 && refused < tried);
    CHECK(!codec_values_decode(f->bytes, 0, 1, f->got));
    CHECK(!codec_values_decode(f->bytes, 2, 0, f->got));
    CHECK(!codec_values_decode(f->bytes, 2, CODEC_SAMPLES_MAX + 1, f->got));
    free(f);
}

static void unknown_forms_are_refused(void **state)
{
    static const uint8_t columns[][4] = {
        {0},                        /* no kind */
        {10},                       /* unknown kind */
        {15},                       /* unknown kind */
        {CODEC_RAW | 0x10},         /* an exponent where none belongs */
        {CODEC_DECIMAL | 0xf0},     /* exponent 15 */
        {CODEC_DECIMAL, 3},         /* differences of order 3 */
        {CODEC_DECIMAL, 0x60},      /* block size code 6 */
        {CODEC_DECIMAL, 0x80},      /* the zero bit */
        {CODEC_DECIMAL, 4, 64},     /* shift by 64 */
        {CODEC_DECIMAL, 0, 58},     /* width 58 */
        {CODEC_DICTIONARY, 0},      /* no entries */
        {CODEC_DICTIONARY, 129},    /* too many */
        {CODEC_RUNS_LIST, 0},       /* no run */
        {CODEC_RUNS_LIST, 1, 0},    /* a run that starts where the first does */
        {CODEC_RUNS_LIST, 1, 1, 7}, /* runs of runs */
        {CODEC_RUNS_BITMAP, 2},     /* a run past the end */
        {CODEC_SPLIT, 53},          /* cut above bit 52 */
        {CODEC_SPLIT, 52, 52, 1},   /* more low bits than there are */
        {CODEC_CONSTANT, 0x80},     /* a varint that does not end */
        {CODEC_CONSTANT | 0xf0, 0}, /* 8 bytes that are not there */
    };
    double out[2];

    (void)state;
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        CHECK_MSG(!codec_values_decode(columns[i], sizeof columns[i], 2, out), "column %zu", i);
}

/* --- Timestamps --- */

/* As decode() above. */
static bool times_decode(const uint8_t *data, size_t size, size_t n, int64_t *out)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    int64_t *times = malloc(n * sizeof *times);
    uint64_t *twin = malloc(n * sizeof *twin);
    bool good;

    CHECK(copy != NULL && times != NULL && twin != NULL);
    memcpy(copy, data, size);
    good = codec_times_decode(copy, size, n, times);
    CHECK(twin_times_decode(copy, size, n, twin) == good);
    if (good)
        memcpy(out, times, n * sizeof *out);
    for (size_t i = 0; good && i < n; i++)
        CHECK((uint64_t)times[i] == twin[i]);
    free(copy);
    free(times);
    free(twin);
    return good;
}

static size_t times_round_trip(struct fixture *f, size_t n, int model)
{
    size_t size;

    memset(f->bytes + codec_bound(n), GUARD_BYTE, GUARD);
    size = codec_times_encode(f->t, n, &f->scratch, f->bytes);
    CHECK(size <= codec_bound(n));
    for (size_t i = 0; i < GUARD; i++)
        CHECK(f->bytes[codec_bound(n) + i] == GUARD_BYTE);
    CHECK_MSG(times_decode(f->bytes, size, n, f->got_t), "model %d n %zu", model, n);
    for (size_t i = 0; i < n; i++)
        CHECK_MSG(f->got_t[i] == f->t[i], "model %d n %zu i %zu", model, n, i);
    CHECK(codec_times_hash(f->got_t, n) == codec_times_hash(f->t, n));
    return size;
}

static void times_come_back(void **state)
{
    struct fixture *f = fixture_new();

    (void)state;
    for (int model = 0; model < TIMES_MODEL_COUNT; model++) {
        for (uint64_t round = 0; round < ROUNDS; round++) {
            struct test_random r = test_random_init((uint64_t)model << 32 | round);
            size_t n = round == 0 ? CODEC_SAMPLES_MAX : column_length(&r);

            times_fill(&r, (enum times_model)model, f->t, n);
            times_round_trip(f, n, model);
        }
    }
    free(f);
}

static void usual_times_are_small(void **state)
{
    struct fixture *f = fixture_new();
    struct test_random r = test_random_init(9);

    (void)state;
    for (size_t i = 0; i < 480; i++)
        f->t[i] = 1700000000123 + 15000 * (int64_t)i;
    assert_true(times_round_trip(f, 480, 0) <= 9);
    for (size_t i = 200; i < 480; i++) /* two scrapes missed */
        f->t[i] += 30000;
    assert_true(times_round_trip(f, 480, 0) <= 13);
    for (size_t i = 0; i < 480; i++) /* 5 ms either way: 11 values, 4 bits */
        f->t[i] += (int64_t)test_random_below(&r, 11) - 5;
    assert_true(times_round_trip(f, 480, 0) <= 240 + 24);
    free(f);
}

static void different_times_hash_apart(void **state)
{
    int64_t a[3] = {1, 2, 3};
    uint64_t h = codec_times_hash(a, 3);

    (void)state;
    assert_true(h != codec_times_hash(a, 2));
    a[1]++;
    assert_true(h != codec_times_hash(a, 3));
}

static void damaged_times_do_no_harm(void **state)
{
    struct fixture *f = fixture_new();
    size_t accepted = 0;

    (void)state;
    for (int model = 0; model < TIMES_MODEL_COUNT; model++) {
        for (uint64_t round = 0; round < 5; round++) {
            struct test_random r = test_random_init((uint64_t)model << 32 | round | 1U << 20);
            size_t n = 1 + test_random_below(&r, 100), size;

            times_fill(&r, (enum times_model)model, f->t, n);
            size = codec_times_encode(f->t, n, &f->scratch, f->bytes);
            for (size_t cut = 0; cut < size; cut++)
                CHECK(!times_decode(f->bytes, cut, n, f->got_t));
            for (size_t bit = 0; bit < 8 * size; bit++) {
                f->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
                accepted += times_decode(f->bytes, size, n, f->got_t);
                f->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
            }
        }
    }
    CHECK(accepted > 0); /* a flipped bit of a packed number is another number */
    CHECK(!codec_times_decode(f->bytes, 9, 0, f->got_t));
    CHECK(!codec_times_decode(f->bytes, 9, CODEC_SAMPLES_MAX + 1, f->got_t));
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back_bit_for_bit),
        cmocka_unit_test(longest_columns_come_back),
        cmocka_unit_test(every_hostile_value_comes_back),
        cmocka_unit_test(quiet_columns_are_tiny),
        cmocka_unit_test(strangers_cost_bytes_each),
        cmocka_unit_test(damaged_columns_do_no_harm),
        cmocka_unit_test(unknown_forms_are_refused),
        cmocka_unit_test(times_come_back),
        cmocka_unit_test(usual_times_are_small),
        cmocka_unit_test(different_times_hash_apart),
        cmocka_unit_test(damaged_times_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
