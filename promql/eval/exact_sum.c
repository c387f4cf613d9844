/*
 * See exact_sum_internal.h.
 *
 * Why this is exact. Bin b counts in units of u = 2^(40 b). Bins take a value from the highest on:
 * the highest is chosen so that |x| < 2^40 u, and what a bin leaves is at most u/2, which is 2^39
 * units of the next. So an addition changes a bin by at most 2^40 units; a bin that has handed up
 * its carries holds at most as much, and after 4,096 additions less than 2^53: sums of whole
 * numbers of units that no addition has rounded. The constant 1.5 * 2^52 u makes the sum with x
 * have u as its last place as long as |x| < 2^51 u, so adding and subtracting it rounds to whole
 * units, and the rest is exact, too.
 */
#include "promql/eval/exact_sum_internal.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "promql/eval/pairs_internal.h"

enum {
    BIN_BITS = 40,
    BIN_FIRST = -27, /* 2^-1080: the least double is in it */
    BIN_END = 25,    /* 2^960 of bin 24 is the largest unit */
    BIN_COUNT = BIN_END - BIN_FIRST,
    ADDS_MAX = 4096,
    HUGE_EXPONENT = 960, /* from here on scaled; carries of less reach 2^992 */
    HUGE_SCALE = 256,
    BLOCK = 64,
};

/* 2^exponent, without a call where it is a normal number. */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;

    if (exponent < -1022)
        return ldexp(1, exponent);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double bin_magic(int bin)
{
    return 1.5 * power_of_two(52 + BIN_BITS * bin);
}

void exact_sums_init(struct exact_sums *s, size_t count, struct arena *arena)
{
    *s = (struct exact_sums){.count = count, .arena = arena};
}

/* ---- which bins there are ---- */

/* Makes [low, high) of them exist. */
static bool bins_grow(struct exact_sums *s, int low, int high)
{
    size_t old_count = (size_t)(s->high - s->low), count = (size_t)(high - low);
    size_t below = s->high == s->low ? 0 : (size_t)(s->low - low);
    double **bins;

    ASSERT(low >= BIN_FIRST && high <= BIN_END && low < high);
    bins = arena_calloc(s->arena, count, sizeof *bins);
    if (bins == NULL)
        return false;
    if (old_count > 0)
        memcpy(bins + below, s->bins, old_count * sizeof *bins);
    for (size_t i = 0; i < count; i++) {
        if (bins[i] == NULL)
            bins[i] = arena_calloc(s->arena, s->count, sizeof **bins);
        if (bins[i] == NULL)
            return false;
    }
    s->bins = bins;
    s->low = low;
    s->high = high;
    return true;
}

/* The bin whose 2^40 units are more than `size` and those of the bin below are not. */
static int bin_of(double size)
{
    int exponent, shifted;

    (void)frexp(size, &exponent); /* size < 2^exponent */
    shifted = exponent - BIN_BITS + BIN_BITS * -BIN_FIRST;
    return shifted <= 0 ? BIN_FIRST : (shifted + BIN_BITS - 1) / BIN_BITS + BIN_FIRST;
}

static bool bins_reach(struct exact_sums *s, double size)
{
    int bin = bin_of(size);

    if (s->high == s->low)
        return bins_grow(s, bin, bin + 1);
    return bin < s->high || bins_grow(s, s->low, bin + 1);
}

/* ---- adding ---- */

/* Moves whole units out of rest[] into a bin; whether anything is left. */
static bool bin_take(double *restrict bin, double *restrict rest, size_t count, double magic)
{
    uint64_t left = 0;

    for (size_t k = 0; k < count; k++) {
        double q = (rest[k] + magic) - magic;
        uint64_t bits;

        bin[k] += q;
        rest[k] -= q;
        memcpy(&bits, &rest[k], sizeof bits);
        left |= bits << 1; /* either zero */
    }
    return left != 0;
}

static bool all_below(const double *value, size_t count, double limit)
{
    pair_mask below = {-1, -1};

    for (size_t k = 0; k < count / 2 * 2; k += 2)
        below &= pair_abs(pair_load(value + k)) < limit; /* not a NaN */
    return (below[0] & below[1]) != 0 && (count % 2 == 0 || fabs(value[count - 1]) < limit);
}

static bool flag_set(struct exact_sums *s, uint64_t **bits, size_t step)
{
    if (*bits == NULL)
        *bits = arena_calloc(s->arena, (s->count + 63) / 64, sizeof **bits);
    if (*bits == NULL)
        return false;
    (*bits)[step / 64] |= UINT64_C(1) << (step % 64);
    return true;
}

/* Spreads values that the highest bin can take. */
static bool block_take(struct exact_sums *s, size_t base, double *rest, size_t count)
{
    bool left = true;

    for (int b = s->high - 1; left; b--) {
        if (b < s->low && !bins_grow(s, b, s->high))
            return false;
        left = bin_take(s->bins[b - s->low] + base, rest, count, bin_magic(b));
    }
    return true;
}

static bool bins_carry(struct exact_sums *s, size_t begin, size_t end);

static bool huge_reserve(struct exact_sums *s)
{
    if (s->huge != NULL)
        return true;
    s->huge = arena_alloc(s->arena, sizeof *s->huge);
    if (s->huge != NULL)
        exact_sums_init(s->huge, s->count, s->arena);
    return s->huge != NULL;
}

static bool huge_add(struct exact_sums *s, size_t step, double value)
{
    double scaled = ldexp(value, -HUGE_SCALE);

    if (!huge_reserve(s) || !bins_reach(s->huge, fabs(scaled)))
        return false;
    /* Each value counts as a row: too many carries rather than too few. */
    if (s->huge->add_count++ >= ADDS_MAX) {
        s->huge->add_count = 1;
        if (!bins_carry(s->huge, 0, s->count))
            return false;
    }
    return block_take(s->huge, step, &scaled, 1);
}

/* Values of the block at `base` that are in no bin: they become 0. */
static bool specials_take(struct exact_sums *s, size_t base, double *rest, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        double v = rest[k];
        bool ok = true;

        if (isnan(v))
            ok = flag_set(s, &s->nans, base + k);
        else if (isinf(v))
            ok = flag_set(s, v > 0 ? &s->plus_infinities : &s->minus_infinities, base + k);
        else if (fabs(v) >= power_of_two(HUGE_EXPONENT))
            ok = huge_add(s, base + k, v);
        else
            continue;
        if (!ok)
            return false;
        rest[k] = 0;
    }
    return true;
}

static bool block_prepare(struct exact_sums *s, size_t base, double *rest, size_t count)
{
    double size = 0;

    if (s->high > s->low && all_below(rest, count, power_of_two(BIN_BITS * s->high)))
        return true;
    if (!specials_take(s, base, rest, count))
        return false;
    for (size_t k = 0; k < count; k++)
        size = fabs(rest[k]) > size ? fabs(rest[k]) : size;
    return size == 0 || bins_reach(s, size);
}

static bool block_add(struct exact_sums *s, size_t base, double *rest, size_t count)
{
    if (!block_prepare(s, base, rest, count))
        return false;
    return s->high == s->low || block_take(s, base, rest, count); /* no bins: only zeros so far */
}

/* The block's values with 0 for what is absent; whether there is any. */
static bool block_copy(uint64_t present, const double *value, size_t count, double *rest)
{
    if (present == 0)
        return false;
    if (present == ~UINT64_C(0) >> (64 - count)) {
        memcpy(rest, value, count * sizeof *rest);
        return true;
    }
    for (size_t k = 0; k < count; k++)
        rest[k] = (present >> k) & 1 ? value[k] : 0;
    return true;
}

/* ---- carries ---- */

/* Leaves a bin with more than minus and at most plus half a unit of the next one, so that there is
 * one way only to hold a sum. */
static void bin_carry(double *restrict bin, double *restrict next, size_t count, int next_bin)
{
    const double magic = bin_magic(next_bin), unit = power_of_two(BIN_BITS * next_bin);

    for (size_t k = 0; k < count; k++) {
        double carry = (bin[k] + magic) - magic, rest = bin[k] - carry;
        bool low = rest == -unit / 2;

        next[k] += low ? carry - unit : carry;
        bin[k] = low ? unit / 2 : rest;
    }
}

static bool bins_carry(struct exact_sums *s, size_t begin, size_t end)
{
    for (int b = s->low; b < s->high; b++) {
        double *bin = s->bins[b - s->low] + begin;

        if (b + 1 == s->high) {
            if (b + 1 == BIN_END ||
                all_below(bin, end - begin, power_of_two(BIN_BITS * (b + 1) - 1)))
                break;
            if (!bins_grow(s, s->low, b + 2))
                return false;
        }
        bin_carry(s->bins[b - s->low] + begin, s->bins[b + 1 - s->low] + begin, end - begin, b + 1);
    }
    return true;
}

bool exact_sums_add(struct exact_sums *s, const uint64_t *present, const double *value,
                    size_t begin, size_t end)
{
    double rest[BLOCK];

    if (s->add_count >= ADDS_MAX && !bins_carry(s, begin, end))
        return false;
    for (size_t base = begin; base < end; base += BLOCK) {
        size_t count = end - base < BLOCK ? end - base : BLOCK;

        if (block_copy(present[base / 64], value + base, count, rest) &&
            !block_add(s, base, rest, count))
            return false;
    }
    if (end == s->count)
        s->add_count = s->add_count >= ADDS_MAX ? 1 : s->add_count + 1;
    return true;
}

bool exact_sums_finish(struct exact_sums *s)
{
    if (!bins_carry(s, 0, s->count) || (s->huge != NULL && !bins_carry(s->huge, 0, s->count)))
        return false;
    s->add_count = 1;
    if (s->huge != NULL)
        s->huge->add_count = 1;
    return true;
}

/* ---- merging ---- */

static bool flags_merge(struct exact_sums *s, uint64_t **to, const uint64_t *from)
{
    size_t words = (s->count + 63) / 64;

    if (from == NULL)
        return true;
    if (*to == NULL)
        *to = arena_calloc(s->arena, words, sizeof **to);
    for (size_t i = 0; *to != NULL && i < words; i++)
        (*to)[i] |= from[i];
    return *to != NULL;
}

static bool bins_merge(struct exact_sums *to, const struct exact_sums *from)
{
    bool is_empty = to->high == to->low;
    int low = is_empty || from->low < to->low ? from->low : to->low;
    int high = is_empty || from->high > to->high ? from->high : to->high;

    if (from->high == from->low)
        return true;
    if ((is_empty || low < to->low || high > to->high) && !bins_grow(to, low, high))
        return false;
    for (int b = from->low; b < from->high; b++) {
        double *restrict sum = to->bins[b - low];
        const double *restrict more = from->bins[b - from->low];

        for (size_t k = 0; k < to->count; k++)
            sum[k] += more[k];
    }
    to->add_count++;
    return true;
}

bool exact_sums_merge(struct exact_sums *to, struct exact_sums *from)
{
    return exact_sums_finish(from) && exact_sums_finish(to) && bins_merge(to, from) &&
           flags_merge(to, &to->nans, from->nans) &&
           flags_merge(to, &to->plus_infinities, from->plus_infinities) &&
           flags_merge(to, &to->minus_infinities, from->minus_infinities) &&
           (from->huge == NULL || (huge_reserve(to) && bins_merge(to->huge, from->huge)));
}

/* ---- the result ---- */

/* The nearest double to the sum of `count` terms, ascending, each at most half the last place of
 * the next that is not 0. As Python's math.fsum() ends. */
static double terms_round(const double *term, size_t count)
{
    double sum, low = 0;

    while (count > 0 && term[count - 1] == 0)
        count--;
    if (count == 0)
        return 0;
    sum = term[--count];
    while (count > 0 && low == 0) {
        double x = sum, y = term[--count];

        sum = x + y;
        low = y - (sum - x);
    }
    while (count > 0 && term[count - 1] == 0)
        count--;
    /* Halfway between two doubles what follows decides. */
    if (count > 0 && low != 0 && (low < 0) == (term[count - 1] < 0)) {
        double y = low * 2, x = sum + y;

        if (y == x - sum)
            sum = x;
    }
    return sum;
}

/* All bins of a step, with those of its huge values, everything scaled. */
static double huge_round(const struct exact_sums *s, size_t step)
{
    double bins[BIN_COUNT] = {0};
    double terms[2 * BIN_COUNT];
    size_t count = 0;

    for (int b = s->low; b < s->high; b++)
        terms[count++] = ldexp(s->bins[b - s->low][step], -HUGE_SCALE);
    for (int b = s->huge->low; b < s->huge->high; b++)
        terms[count++] = s->huge->bins[b - s->huge->low][step];
    for (size_t i = 0; i < count; i++) {
        for (int b = BIN_END - 1; terms[i] != 0; b--)
            (void)bin_take(&bins[b - BIN_FIRST], &terms[i], 1, bin_magic(b));
    }
    for (int b = BIN_FIRST; b + 1 < BIN_END; b++)
        bin_carry(&bins[b - BIN_FIRST], &bins[b + 1 - BIN_FIRST], 1, b + 1);
    return terms_round(bins, BIN_COUNT);
}

/* Whether a step has huge values that do not cancel out. */
static bool is_huge(const struct exact_sums *s, size_t step)
{
    for (int b = s->low; b < s->high; b++) {
        if (s->bins[b - s->low][step] != 0)
            return true;
    }
    return false;
}

static bool flag(const uint64_t *bits, size_t step)
{
    return bits != NULL && ((bits[step / 64] >> (step % 64)) & 1);
}

double exact_sums_get(const struct exact_sums *s, size_t step, double divisor)
{
    double terms[BIN_COUNT];
    bool plus = flag(s->plus_infinities, step), minus = flag(s->minus_infinities, step);
    size_t count = 0;

    if (flag(s->nans, step) || (plus && minus))
        return (double)NAN;
    if (plus || minus)
        return plus ? (double)INFINITY : -(double)INFINITY;
    if (s->huge != NULL && is_huge(s->huge, step))
        return ldexp(huge_round(s, step) / divisor, HUGE_SCALE);
    for (int b = s->low; b < s->high; b++)
        terms[count++] = s->bins[b - s->low][step];
    return terms_round(terms, count) / divisor;
}
