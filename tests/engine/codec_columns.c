/*
 * See codec_columns.h.
 */
#include "tests/engine/codec_columns.h"

#include <math.h>

#include "base/bytes.h"

/* What is easy to get wrong: NaN payloads, the staleness marker, zeros of both signs, infinities,
 * denormals, and the borders of the decimal form (2^51, 2^53, 2^63). */
const uint64_t column_hostile_bits[COLUMN_HOSTILE_COUNT] = {
    0x0000000000000000, 0x8000000000000000, 0x7ff0000000000000, 0xfff0000000000000,
    0x7ff0000000000002, 0x7ff8000000000000, 0x7ff8000000000001, 0xfff8000000000000,
    0x7ff0000000000001, 0xffffffffffffffff, 0x7fffffffffffffff, 0x0000000000000001,
    0x8000000000000001, 0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff,
    0xffefffffffffffff, 0x3ff0000000000000, 0x3ff0000000000001, 0x3fefffffffffffff,
    0x4320000000000000, 0x431fffffffffffff, 0x4320000000000001, 0x4330000000000000,
    0x4340000000000000, 0x433fffffffffffff, 0x4340000000000001, 0xc340000000000000,
    0x43e0000000000000, 0x43dfffffffffffff, 0xc3e0000000000000, 0xc3e0000000000001,
};

double column_hostile(struct test_random *r)
{
    if (test_random_below(r, 4) == 0)
        return double_from_bits(test_random_u64(r));
    return double_from_bits(column_hostile_bits[test_random_below(r, COLUMN_HOSTILE_COUNT)]);
}

/* Of any number of bits, each as likely. */
static uint64_t random_magnitude(struct test_random *r)
{
    return test_random_wide(r, 64);
}

static double decimal(int64_t x, unsigned exponent)
{
    static const double powers[] = {1, 1e1, 1e2, 1e3, 1e6, 1e9, 1e14};

    return (double)x / powers[exponent % 7];
}

static void fill_model(struct test_random *r, enum column_model model, double *v, size_t n)
{
    uint64_t range = random_magnitude(r) >> 12, rare = 1 + test_random_below(r, 200);
    unsigned exponent = (unsigned)test_random_below(r, 7);
    int64_t x = (int64_t)(random_magnitude(r) >> 12);
    double walk = test_random_unit(r), first = column_hostile(r), second = column_hostile(r);
    uint64_t stride = UINT64_C(1) << test_random_below(r, 20);

    for (size_t i = 0; i < n; i++) {
        switch (model) {
        case COLUMN_CONSTANT:
            v[i] = first;
            break;
        case COLUMN_COUNTER:
            x += (int64_t)test_random_below(r, range + 1);
            v[i] = decimal(x, exponent);
            break;
        case COLUMN_COUNTER_RESETS:
            x = test_random_below(r, rare) == 0
                    ? 0
                    : x + 100 + (int64_t)test_random_below(r, range % 1000 + 1);
            v[i] = decimal(x, exponent);
            break;
        case COLUMN_GAUGE:
            if (test_random_below(r, 3) == 0)
                x += (int64_t)test_random_below(r, 7) - 3;
            v[i] = decimal(x, exponent);
            break;
        case COLUMN_NOISE:
            v[i] =
                decimal((int64_t)test_random_below(r, range + 1) - (int64_t)(range / 3), exponent);
            break;
        case COLUMN_RARE:
            x += test_random_below(r, rare) == 0;
            v[i] = (double)x;
            break;
        case COLUMN_PAGES:
            v[i] = (double)((uint64_t)x % 1000 + test_random_below(r, 500) * stride);
            break;
        case COLUMN_BURSTS:
            x += (int64_t)test_random_below(r, i / 64 % 2 == 0 ? 3 : range + 1);
            v[i] = (double)x;
            break;
        case COLUMN_CURVE:
            v[i] = (double)(x % 1000 + (int64_t)(i * i) * 7 + (int64_t)i);
            break;
        case COLUMN_DOUBLES:
            v[i] = test_random_unit(r);
            break;
        case COLUMN_SIGNED_DOUBLES:
            v[i] = (test_random_unit(r) - 0.5) * 10;
            break;
        case COLUMN_WALK:
            walk += test_random_unit(r) - 0.5;
            v[i] = walk;
            break;
        case COLUMN_FLOATS:
            v[i] = (double)(float)test_random_unit(r);
            break;
        case COLUMN_TOGGLE:
            v[i] = test_random_below(r, 2) == 0 ? first : second;
            break;
        case COLUMN_STEPS:
            v[i] = test_random_below(r, rare) == 0 || i == 0 ? column_hostile(r) : v[i - 1];
            break;
        case COLUMN_HOSTILE:
            v[i] = column_hostile(r);
            break;
        case COLUMN_BITS:
            v[i] = double_from_bits(test_random_u64(r));
            break;
        case COLUMN_HUGE:
            v[i] = (double)(int64_t)test_random_wide(r, 8);
            break;
        case COLUMN_MODEL_COUNT:
            break;
        }
    }
}

void column_fill(struct test_random *r, enum column_model model, double *v, size_t n)
{
    fill_model(r, model, v, n);
    /* A third of the columns get a few strangers, a third of those an ending by staleness. */
    if (test_random_below(r, 3) != 0)
        return;
    for (uint64_t k = test_random_below(r, 1 + n / 16); k > 0; k--)
        v[test_random_below(r, n)] = column_hostile(r);
    if (test_random_below(r, 3) == 0)
        v[n - 1] = double_from_bits(UINT64_C(0x7ff0000000000002));
}

size_t column_length(struct test_random *r)
{
    static const size_t usual[] = {1, 2, 3, 31, 32, 33, 34, 60, 64, 65, 66, 120, 480, 513, 3840};

    switch (test_random_below(r, 4)) {
    case 0:
        return 1 + test_random_below(r, 40);
    case 1:
        return 1 + test_random_below(r, 600);
    default:
        return usual[test_random_below(r, sizeof usual / sizeof usual[0])];
    }
}

void times_fill(struct test_random *r, enum times_model model, int64_t *t, size_t n)
{
    int64_t start = 1700000000000 + (int64_t)test_random_below(r, 1000000);
    int64_t step = 1 + (int64_t)test_random_below(r, 60000);
    int64_t jitter = (int64_t)test_random_below(r, 20), at = start;
    uint64_t rare = 2 + test_random_below(r, 100);

    for (size_t i = 0; i < n; i++) {
        switch (model) {
        case TIMES_REGULAR:
            t[i] = at;
            break;
        case TIMES_MISSED:
            if (test_random_below(r, rare) == 0)
                at += step * (int64_t)(1 + test_random_below(r, 5));
            t[i] = at;
            break;
        case TIMES_MISSED_JITTER:
            if (test_random_below(r, rare) == 0)
                at += step * (int64_t)(1 + test_random_below(r, 5));
            t[i] = at + (int64_t)test_random_below(r, 2 * (uint64_t)jitter + 1) - jitter;
            break;
        case TIMES_JITTER:
            t[i] = at + (int64_t)test_random_below(r, 2 * (uint64_t)jitter + 1) - jitter;
            break;
        case TIMES_DRIFT:
            t[i] = at;
            at += (int64_t)test_random_below(r, 3);
            break;
        case TIMES_EVENTS:
            t[i] = at;
            at += (int64_t)test_random_below(r, 1U << 20);
            break;
        case TIMES_REPEATS:
            t[i] = at;
            at -= test_random_below(r, 3) == 0 ? step : 0;
            break;
        case TIMES_CHAOS:
            t[i] = (int64_t)random_magnitude(r);
            if (test_random_below(r, 4) == 0)
                t[i] = test_random_below(r, 2) == 0 ? INT64_MAX : INT64_MIN;
            break;
        case TIMES_MODEL_COUNT:
            break;
        }
        at += step;
    }
}
