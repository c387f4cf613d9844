/*
 * Encoding a value column. Every form that might win is weighed by its exact size, and the smallest
 * is written; what cannot win is ruled out cheaply first (engine/codec/README.md has the order and
 * the reasons).
 *
 * A column is flat (one form for all values) or runs: where values change seldom, the starts of the
 * runs and a flat column of their values.
 */
#include <string.h>

#include "base/assert.h"
#include "engine/codec/codec_internal.h"

enum {
    SAMPLE_COUNT = 32,        /* values looked at to guess the decimal exponent */
    EXPONENT_TRIES = 4,       /* conversions of a whole column */
    DICTIONARY_SLOT_BITS = 8, /* of the hash table, twice the entries */
};

const double codec_powers[CODEC_EXPONENT_MAX + 1] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};

static uint8_t first_byte(enum codec_kind kind, unsigned exponent)
{
    return (uint8_t)((unsigned)kind | exponent << CODEC_EXPONENT_BIT);
}

static uint8_t *write_word(uint8_t *out, uint64_t bits)
{
    memcpy(out, &bits, sizeof bits);
    return out + sizeof bits;
}

/* --- Decimal exponents --- */

/* Whether v is a whole number of 10^-exponent, as one division gives it back; *x is that number. */
static bool decimal_fits(double v, unsigned exponent, uint64_t *x)
{
    if (codec_kernels_portable.decimal_from(&v, 1, codec_powers[exponent], x) == 0)
        return true;
    /* Whole numbers up to 2^63 need no rounding trick. -0 and NaN fail the comparison of bits. */
    if (exponent != 0 || !(v >= -0x1p63 && v < 0x1p63))
        return false;
    *x = (uint64_t)(int64_t)v;
    return double_bits((double)(int64_t)v) == double_bits(v);
}

/*
 * The smallest exponent from `from` on that fits, or CODEC_EXPONENT_MAX + 1. What fits one exponent
 * fits all larger ones until the integer reaches 2^51 (ten times the integer over ten times the
 * power is the same quotient), so the largest of these tells whether any does.
 */
static unsigned exponent_of(double v, unsigned from)
{
    unsigned largest = CODEC_EXPONENT_MAX;
    uint64_t x;

    if (decimal_fits(v, from, &x))
        return from;
    while (largest > from && !(__builtin_fabs(v) * codec_powers[largest] < 0x1p51))
        largest--;
    if (largest == from || !decimal_fits(v, largest, &x))
        return CODEC_EXPONENT_MAX + 1;
    do
        from++;
    while (from < largest && !decimal_fits(v, from, &x));
    return from;
}

static bool is_finite(double v)
{
    return __builtin_isfinite(v);
}

/* A first guess from some values. False when most of them are no decimal numbers. */
static bool guess_exponent(const double *v, size_t n, unsigned *exponent)
{
    size_t count = n < SAMPLE_COUNT ? n : SAMPLE_COUNT, looked = 0, missed = 0;

    *exponent = 0;
    for (size_t i = 0; i < count; i++) {
        double value = v[i * n / count];
        unsigned e;

        if (!is_finite(value) || (value == 0 && double_bits(value) != 0))
            continue; /* exceptions under any exponent */
        looked++;
        e = exponent_of(value, *exponent);
        if (e > CODEC_EXPONENT_MAX)
            missed++;
        else
            *exponent = e;
        if (missed * 2 > count)
            return false;
    }
    return missed * 2 <= looked;
}

struct decimal {
    unsigned exponent;
    size_t exception_count; /* positions in scratch->exceptions */
};

/* Lists what does not fit d->exponent. *raise is an exponent under which `raised` of those fit. */
static void list_exceptions(struct codec_scratch *s, const double *v, size_t n, struct decimal *d,
                            unsigned *raise, size_t *raised)
{
    *raise = d->exponent;
    *raised = 0;
    d->exception_count = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned e;

        if (decimal_fits(v[i], d->exponent, &s->residuals[0][i]))
            continue;
        s->exceptions[d->exception_count++] = (uint16_t)i;
        if (!is_finite(v[i]))
            continue;
        e = exponent_of(v[i], *raise);
        if (e > CODEC_EXPONENT_MAX)
            continue;
        *raise = e;
        *raised += 1;
    }
}

/* Exceptions need some integer in their place: one between their neighbours keeps both values and
 * differences in the range of the others. */
static void fill_exceptions(struct codec_scratch *s, size_t n, const struct decimal *d)
{
    uint64_t *x = s->residuals[0];

    for (size_t i = 0; i < d->exception_count;) {
        size_t from = s->exceptions[i], to = from + 1;
        uint64_t step = 0;

        while (++i < d->exception_count && s->exceptions[i] == to)
            to++;
        if (from == 0) {
            for (size_t j = 0; j < to; j++)
                x[j] = to < n ? x[to] : 0;
            continue;
        }
        if (to < n)
            step = (uint64_t)((int64_t)(x[to] - x[from - 1]) / (int64_t)(to - from + 1));
        else if (from >= 2)
            step = x[from - 1] - x[from - 2];
        for (size_t j = from; j < to; j++)
            x[j] = x[j - 1] + step;
    }
}

/* Turns the column into integers in s->residuals[0]. False: not worth it. */
static bool decimal_convert(struct codec_scratch *s, const double *v, size_t n, struct decimal *d)
{
    const struct codec_kernels *k = codec_kernels_get();

    if (!guess_exponent(v, n, &d->exponent))
        return false;
    for (unsigned attempt = 0; attempt < EXPONENT_TRIES; attempt++) {
        unsigned raise;
        size_t raised;

        d->exception_count = 0;
        if (k->decimal_from(v, n, codec_powers[d->exponent], s->residuals[0]) == 0)
            return true;
        list_exceptions(s, v, n, d, &raise, &raised);
        /* An exception takes some ten bytes, another digit in all values 3 to 4 bits each. */
        if (raised <= n / 24)
            break;
        d->exponent = raise;
    }
    if (d->exception_count * 2 > n)
        return false;
    fill_exceptions(s, n, d);
    return true;
}

static enum codec_exceptions exceptions_form(const struct codec_scratch *s, const double *v,
                                             const struct decimal *d)
{
    uint64_t first = double_bits(v[s->exceptions[0]]);

    for (size_t i = 1; i < d->exception_count; i++) {
        if (double_bits(v[s->exceptions[i]]) != first)
            return CODEC_EXCEPTIONS_OWN;
    }
    return first == CODEC_STALE_BITS ? CODEC_EXCEPTIONS_STALE : CODEC_EXCEPTIONS_SAME;
}

static size_t exceptions_size(const struct codec_scratch *s, const double *v,
                              const struct decimal *d)
{
    static const size_t same_size[] = {[CODEC_EXCEPTIONS_SAME] = 8, [CODEC_EXCEPTIONS_STALE] = 0};
    enum codec_exceptions form;

    if (d->exception_count == 0)
        return 0;
    form = exceptions_form(s, v, d);
    return 1 + codec_varint_size(d->exception_count) +
           codec_positions_size(s->exceptions, d->exception_count) +
           (form == CODEC_EXCEPTIONS_OWN ? 8 * d->exception_count : same_size[form]);
}

static uint8_t *write_exceptions(const struct codec_scratch *s, const double *v,
                                 const struct decimal *d, uint8_t *out)
{
    enum codec_exceptions form = exceptions_form(s, v, d);

    *out++ = (uint8_t)form;
    out += varint_write(out, d->exception_count);
    out = codec_positions_write(out, s->exceptions, d->exception_count);
    if (form == CODEC_EXCEPTIONS_SAME)
        out = write_word(out, double_bits(v[s->exceptions[0]]));
    for (size_t i = 0; form == CODEC_EXCEPTIONS_OWN && i < d->exception_count; i++)
        out = write_word(out, double_bits(v[s->exceptions[i]]));
    return out;
}

/* --- Flat forms. Each writes and returns its size if that is below `limit`, else `limit`. --- */

static size_t constant_encode(double v, uint8_t *out, size_t limit)
{
    unsigned exponent = exponent_of(v, 0);
    uint64_t x;
    size_t size = 9;

    if (exponent <= CODEC_EXPONENT_MAX && decimal_fits(v, exponent, &x) &&
        codec_varint_size(codec_zigzag(x)) < 8)
        size = 1 + codec_varint_size(codec_zigzag(x));
    if (size >= limit)
        return limit;
    if (size < 9) {
        *out++ = first_byte(CODEC_CONSTANT, exponent);
        varint_write(out, codec_zigzag(x));
    } else {
        *out++ = first_byte(CODEC_CONSTANT, CODEC_CONSTANT_RAW);
        write_word(out, double_bits(v));
    }
    return size;
}

static size_t decimal_encode(struct codec_scratch *s, const double *v, size_t n,
                             const struct decimal *d, uint8_t *out, size_t limit)
{
    struct codec_ints_plan plan;
    size_t size;

    codec_ints_plan(s, n, &plan);
    size = 1 + plan.size + exceptions_size(s, v, d);
    if (size >= limit)
        return limit;
    *out++ =
        first_byte(d->exception_count > 0 ? CODEC_DECIMAL_PATCHED : CODEC_DECIMAL, d->exponent);
    out += codec_ints_write(s, n, &plan, out);
    if (d->exception_count > 0)
        write_exceptions(s, v, d, out);
    return size;
}

static size_t bits_encode(struct codec_scratch *s, const double *v, size_t n, uint8_t *out,
                          size_t limit)
{
    struct codec_ints_plan plan;

    memcpy(s->residuals[0], v, n * sizeof *v);
    codec_ints_plan(s, n, &plan);
    if (1 + plan.size >= limit)
        return limit;
    *out++ = first_byte(CODEC_BITS, 0);
    return 1 + codec_ints_write(s, n, &plan, out);
}

struct dictionary {
    size_t count;
    uint64_t keys[CODEC_DICTIONARY_MAX];
    uint8_t slots[1 << DICTIONARY_SLOT_BITS]; /* 1 + index of the key, 0: free */
};

/* The index of `key`, added if new; CODEC_DICTIONARY_MAX when it is full. */
static size_t dictionary_index(struct dictionary *d, uint64_t key)
{
    size_t slot = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - DICTIONARY_SLOT_BITS));

    while (d->slots[slot] != 0) {
        size_t index = d->slots[slot] - 1U;

        if (d->keys[index] == key)
            return index;
        slot = (slot + 1) % (1 << DICTIONARY_SLOT_BITS);
    }
    if (d->count == CODEC_DICTIONARY_MAX)
        return CODEC_DICTIONARY_MAX;
    d->keys[d->count++] = key;
    d->slots[slot] = (uint8_t)d->count;
    return d->count - 1;
}

static void dictionary_init(struct dictionary *d)
{
    d->count = 0;
    memset(d->slots, 0, sizeof d->slots);
}

static size_t dictionary_encode(struct codec_scratch *s, const double *v, size_t n, uint8_t *out,
                                size_t limit)
{
    const struct codec_kernels *k = codec_kernels_get();
    struct dictionary d;
    unsigned width;
    size_t size;

    dictionary_init(&d);
    for (size_t i = 0; i < n; i++) {
        size_t index = dictionary_index(&d, double_bits(v[i]));

        /* Past the limit with the entries alone, or full: no use in going on. */
        if (index == CODEC_DICTIONARY_MAX || 8 * d.count >= limit)
            return limit;
        s->residuals[0][i] = index;
    }
    width = codec_log2_ceiling(d.count);
    size = 2 + 8 * d.count + codec_packed_size(n, width);
    if (size >= limit)
        return limit;
    *out++ = first_byte(CODEC_DICTIONARY, 0);
    *out++ = (uint8_t)d.count;
    for (size_t i = 0; i < d.count; i++)
        out = write_word(out, d.keys[i]);
    k->pack(s->residuals[0], n, 0, 0, width, out);
    return size;
}

/* Doubles whose exponents (and signs) are few, but too far apart for one range. */
static size_t split_encode(struct codec_scratch *s, const double *v, size_t n, unsigned low_bits,
                           uint8_t *out, size_t limit)
{
    const struct codec_kernels *k = codec_kernels_get();
    struct dictionary d;
    uint64_t all = 0;
    unsigned shift, width;
    size_t size;

    dictionary_init(&d);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = double_bits(v[i]), low = bits & ((UINT64_C(1) << low_bits) - 1);

        s->residuals[0][i] = dictionary_index(&d, bits >> low_bits);
        if (s->residuals[0][i] == CODEC_DICTIONARY_MAX)
            return limit;
        s->residuals[1][i] = low;
        all |= low;
    }
    shift = all == 0 ? 0 : (unsigned)__builtin_ctzll(all);
    width = codec_bit_length(all >> shift);
    size = 5 + 2 * d.count + codec_packed_size(n, codec_log2_ceiling(d.count)) +
           codec_packed_size(n, width);
    if (size >= limit)
        return limit;
    *out++ = first_byte(CODEC_SPLIT, 0);
    *out++ = (uint8_t)low_bits;
    *out++ = (uint8_t)shift;
    *out++ = (uint8_t)width;
    *out++ = (uint8_t)d.count;
    for (size_t i = 0; i < d.count; i++) {
        *out++ = (uint8_t)d.keys[i];
        *out++ = (uint8_t)(d.keys[i] >> 8);
    }
    k->pack(s->residuals[0], n, 0, 0, codec_log2_ceiling(d.count), out);
    out += codec_packed_size(n, codec_log2_ceiling(d.count));
    k->pack(s->residuals[1], n, 0, shift, width, out);
    return size;
}

static size_t raw_encode(const double *v, size_t n, uint8_t *out, size_t limit)
{
    if (8 * n + 1 >= limit)
        return limit;
    *out++ = first_byte(CODEC_RAW, 0);
    memcpy(out, v, n * sizeof *v);
    return 8 * n + 1;
}

/* The smallest flat form below `limit` bytes, or `limit`. */
static size_t flat_encode(struct codec_scratch *s, const double *v, size_t n, uint8_t *out,
                          size_t limit)
{
    struct decimal d;
    bool is_decimal;

    if (memcmp(v, v + 1, (n - 1) * sizeof *v) == 0)
        return constant_encode(v[0], out, limit);
    is_decimal = decimal_convert(s, v, n, &d);
    if (is_decimal)
        limit = decimal_encode(s, v, n, &d, out, limit);
    if (!is_decimal || d.exception_count * 8 > n || limit > 6 * n)
        limit = bits_encode(s, v, n, out, limit);
    if (!is_decimal || d.exception_count > 0 || limit > n)
        limit = dictionary_encode(s, v, n, out, limit);
    if (limit > 6 * n) {
        limit = split_encode(s, v, n, CODEC_SPLIT_LOW_MAX, out, limit);
        limit = split_encode(s, v, n, CODEC_SPLIT_LOW_MIN, out, limit);
    }
    return raw_encode(v, n, out, limit);
}

/* --- Runs --- */

static void find_runs(struct codec_scratch *s, const double *v, size_t n)
{
    size_t count = 1;

    s->run_values[0] = v[0];
    for (size_t i = 1; i < n; i++) {
        /* Without a branch: where values change is what nobody can predict. */
        s->run_values[count] = v[i];
        s->run_starts[count - 1] = (uint16_t)i;
        count += double_bits(v[i]) != double_bits(v[i - 1]);
    }
}

/* A column of n values that change `changes` times, more than 0 and less than n - 1. */
static size_t runs_encode(struct codec_scratch *s, const double *v, size_t n, size_t changes,
                          uint8_t *out, size_t limit)
{
    size_t list_size, bitmap_size = (n - 1 + 7) / 8, head_size, size;

    find_runs(s, v, n);
    list_size = codec_varint_size(changes) + codec_positions_size(s->run_starts, changes);
    head_size = 1 + (list_size <= bitmap_size ? list_size : bitmap_size);
    if (head_size >= limit)
        return limit;
    size = flat_encode(s, s->run_values, changes + 1, out + head_size, limit - head_size);
    if (size == limit - head_size)
        return limit;
    if (list_size <= bitmap_size) {
        *out++ = first_byte(CODEC_RUNS_LIST, 0);
        out += varint_write(out, changes);
        codec_positions_write(out, s->run_starts, changes);
        return head_size + size;
    }
    *out++ = first_byte(CODEC_RUNS_BITMAP, 0);
    memset(out, 0, bitmap_size);
    for (size_t i = 0; i < changes; i++) {
        size_t bit = s->run_starts[i] - 1U;

        out[bit / 8] = (uint8_t)(out[bit / 8] | 1U << bit % 8);
    }
    return head_size + size;
}

size_t codec_values_encode(const double *v, size_t n, struct codec_scratch *s, uint8_t *out)
{
    size_t changes, limit = 8 * n + 2; /* raw is one byte below */

    ASSERT(n > 0 && n <= CODEC_SAMPLES_MAX);
    if (memcmp(v, v + 1, (n - 1) * sizeof *v) == 0)
        return constant_encode(v[0], out, SIZE_MAX);
    changes = codec_kernels_get()->changes(v, n);
    if (changes * 2 < n) {
        limit = runs_encode(s, v, n, changes, out, limit);
        if (changes * 16 < n) /* fewer than a bit a value: a flat form would not be smaller */
            return limit;
    }
    return flat_encode(s, v, n, out, limit);
}

unsigned codec_values_kind(const uint8_t *data, size_t size)
{
    unsigned kind = size == 0 ? 0 : data[0] & CODEC_KIND_MASK;

    return kind > CODEC_SPLIT ? 0 : kind;
}

const char *codec_kind_name(unsigned kind)
{
    static const char *const names[] = {
        [CODEC_RAW] = "raw",
        [CODEC_CONSTANT] = "constant",
        [CODEC_DECIMAL] = "decimal",
        [CODEC_DECIMAL_PATCHED] = "decimal_patched",
        [CODEC_BITS] = "bits",
        [CODEC_DICTIONARY] = "dictionary",
        [CODEC_RUNS_LIST] = "runs_list",
        [CODEC_RUNS_BITMAP] = "runs_bitmap",
        [CODEC_SPLIT] = "split",
    };

    return kind == 0 || kind >= sizeof names / sizeof names[0] ? "unknown" : names[kind];
}
