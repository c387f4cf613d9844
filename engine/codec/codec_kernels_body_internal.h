/*
 * The codecs' inner loops, included by codec_kernels.c and by codec_kernels_avx2.c, which CMake
 * compiles for AVX2 and fused multiply-adds. They are plain loops that the compiler turns into
 * vectors; unpacking, sums and divisions have forms of their own for AVX2. Both files are compiled
 * with -ffp-contract=off: a fused multiply-add that the compiler makes would round once where the
 * other build rounds twice, and the encoder's choices would differ.
 */
#include <string.h>

#include "engine/codec/codec_internal.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

static void differences(const uint64_t *restrict x, uint64_t *restrict out, size_t m)
{
    for (size_t i = 0; i < m; i++)
        out[i] = x[i + 1] - x[i];
}

static uint64_t ranges(const uint64_t *d, size_t m, int64_t *mins, int64_t *maxs)
{
    uint64_t differ = 0, first = d[0];

    for (size_t b = 0; b * CODEC_STAT_BLOCK < m; b++) {
        const uint64_t *p = d + b * CODEC_STAT_BLOCK;
        size_t count = m - b * CODEC_STAT_BLOCK;
        int64_t low = (int64_t)p[0], high = low;

        if (count > CODEC_STAT_BLOCK)
            count = CODEC_STAT_BLOCK;
        for (size_t i = 0; i < count; i++) {
            int64_t v = (int64_t)p[i];

            low = v < low ? v : low;
            high = v > high ? v : high;
            differ |= p[i] ^ first;
        }
        mins[b] = low;
        maxs[b] = high;
    }
    return differ;
}

static size_t changes(const double *v, size_t n)
{
    const codec_word *bits = (const codec_word *)v;
    size_t count = 0;

    for (size_t i = 1; i < n; i++)
        count += bits[i] != bits[i - 1];
    return count;
}

/* 1.5 * 2^52: adding it to a number below 2^51 in size leaves the rounded number in the low bits
 * of the sum (round to nearest, the only mode we run in). */
#define ROUNDER 0x1.8p52
#define ROUNDER_BITS UINT64_C(0x4338000000000000)
#define ROUNDER_LIMIT 0x1p51

static size_t decimal_from(const double *restrict v, size_t n, double power, uint64_t *restrict x)
{
    size_t bad = 0;

    /* Two loops: whole numbers need neither multiplication nor division. */
    if (power == 1) { // exact: a constant of our table
        for (size_t i = 0; i < n; i++) {
            double sum = v[i] + ROUNDER;
            uint64_t fits = __builtin_fabs(v[i]) < ROUNDER_LIMIT;

            x[i] = double_bits(sum) - ROUNDER_BITS;
            bad += !(fits & (double_bits(sum - ROUNDER) == double_bits(v[i])));
        }
        return bad;
    }
    for (size_t i = 0; i < n; i++) {
        double scaled = v[i] * power;
        double sum = scaled + ROUNDER;
        uint64_t fits = __builtin_fabs(scaled) < ROUNDER_LIMIT;

        x[i] = double_bits(sum) - ROUNDER_BITS;
        bad += !(fits & (double_bits((sum - ROUNDER) / power) == double_bits(v[i])));
    }
    return bad;
}

/*
 * int64 to double in vectors, for CPUs without an instruction for it: the high half becomes the
 * mantissa of a number near 2^84, the low half that of one near 2^52, and the difference of the
 * biases is exact, so that only the last addition rounds, as the scalar conversion would.
 */
static inline double double_from_int(uint64_t v)
{
    double high = double_from_bits((v >> 32) ^ UINT64_C(0x4530000080000000));
    double low = double_from_bits((v & UINT32_MAX) | UINT64_C(0x4330000000000000));

    return (high - 0x1.00000801p84) + low; /* 2^84 + 2^63 + 2^52 */
}

#if defined(__AVX2__)
/*
 * Division by multiplications, which are several times cheaper, with every bit of the quotient. The
 * reciprocal in two parts gives a quotient within one unit of its last place; the remainder, which
 * a fused multiply-add has exactly, makes it the nearest one (Markstein, IBM Journal of Research
 * and Development 34(1), 1990).
 */
static inline __m256d quotient(__m256d x, __m256d power, __m256d reciprocal, __m256d rest)
{
    __m256d q = _mm256_fmadd_pd(x, reciprocal, _mm256_mul_pd(x, rest));

    return _mm256_fmadd_pd(_mm256_fnmadd_pd(q, power, x), reciprocal, q);
}

/* Four of double_from_int(). */
static inline __m256d doubles_from_ints(__m256i v)
{
    const __m256i high_bias = _mm256_set1_epi64x(0x4530000080000000);
    __m256i high = _mm256_xor_si256(_mm256_srli_epi64(v, 32), high_bias);
    __m256i low = _mm256_blend_epi32(v, _mm256_set1_epi32(0x43300000), 0xaa);

    return _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), _mm256_set1_pd(0x1.00000801p84)),
                         _mm256_castsi256_pd(low));
}

/* Returns how many were done, a multiple of 4. */
static size_t decimal_fours(codec_word *a, size_t n, double power)
{
    double reciprocal = 1 / power;
    const __m256d powers = _mm256_set1_pd(power), reciprocals = _mm256_set1_pd(reciprocal);
    const __m256d rest = _mm256_set1_pd(__builtin_fma(-power, reciprocal, 1) / power);
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        __m256d x = doubles_from_ints(_mm256_loadu_si256((const __m256i *)(a + i)));

        x = quotient(x, powers, reciprocals, rest);
        _mm256_storeu_si256((__m256i *)(a + i), _mm256_castpd_si256(x));
    }
    return i;
}
#endif

static void decimal_to(codec_word *a, size_t n, double power)
{
    size_t i = 0;

    if (power == 1) { // exact: a constant of our table
        for (; i < n; i++)
            a[i] = double_bits(double_from_int(a[i]));
        return;
    }
#if defined(__AVX2__)
    i = decimal_fours(a, n, power);
#endif
    for (; i < n; i++)
        a[i] = double_bits(double_from_int(a[i]) / power);
}

/* The bit buffer never holds more than 7 bits between two steps, so `width` bits up to 57 fit. */
struct bit_writer {
    uint8_t *pos;
    uint64_t buffer;
    unsigned fill;
};

static inline void put_bits(struct bit_writer *w, uint64_t v, unsigned width)
{
    w->buffer |= v << w->fill;
    w->fill += width;
    store64(w->pos, w->buffer);
    w->pos += w->fill >> 3;
    /* fill may reach 64, and a shift by 64 is undefined: hence two shifts. */
    w->buffer = w->buffer >> (w->fill >> 3 << 2) >> (w->fill >> 3 << 2);
    w->fill &= 7;
}

static void pack(const uint64_t *d, size_t count, uint64_t base, unsigned shift, unsigned width,
                 uint8_t *out)
{
    struct bit_writer w = {out, 0, 0};
    size_t i = 0;

    if (width == 0)
        return;
    if (width == 64) {
        for (; i < count; i++)
            store64(out + 8 * i, (d[i] - base) >> shift);
        return;
    }
    /* The chain through the buffer costs a few cycles a step: narrow numbers are joined first. */
    if (width <= 14) {
        for (; i + 4 <= count; i += 4) {
            uint64_t low = ((d[i] - base) >> shift) | ((d[i + 1] - base) >> shift << width);
            uint64_t high = ((d[i + 2] - base) >> shift) | ((d[i + 3] - base) >> shift << width);

            put_bits(&w, low | high << (2 * width), 4 * width);
        }
    } else if (width <= 28) {
        for (; i + 2 <= count; i += 2)
            put_bits(&w, ((d[i] - base) >> shift) | ((d[i + 1] - base) >> shift << width),
                     2 * width);
    }
    for (; i < count; i++)
        put_bits(&w, (d[i] - base) >> shift, width);
}

#if defined(__AVX2__)
/*
 * Eight numbers of up to 57 bits start at a byte and end at one. Four loads of 16 bytes hold two of
 * them each; a byte shuffle brings every number to the bottom of a 64-bit lane, and a shift and a
 * mask finish it. Returns how many numbers were unpacked, a multiple of 8.
 */
static size_t unpack_eights(const uint8_t *p, size_t size, size_t count, uint64_t base,
                            unsigned shift, unsigned width, codec_word *out)
{
    const long long eight = 0x0706050403020100, ones = 0x0101010101010101;
    const unsigned pair = 2 * width;
    size_t start[4], i = 0;
    long long byte[8], bit[8];

    for (size_t k = 0; k < 4; k++) {
        unsigned phase = (unsigned)(k * pair) & 7;

        start[k] = (k * pair) >> 3;
        byte[2 * k] = eight;
        bit[2 * k] = phase;
        byte[2 * k + 1] = eight + ones * ((phase + width) >> 3);
        bit[2 * k + 1] = (phase + width) & 7;
    }
    const __m256i byte_a = _mm256_set_epi64x(byte[3], byte[2], byte[1], byte[0]);
    const __m256i byte_b = _mm256_set_epi64x(byte[7], byte[6], byte[5], byte[4]);
    const __m256i bit_a = _mm256_set_epi64x(bit[3], bit[2], bit[1], bit[0]);
    const __m256i bit_b = _mm256_set_epi64x(bit[7], bit[6], bit[5], bit[4]);
    const __m256i mask = _mm256_set1_epi64x((long long)(UINT64_MAX >> (64 - width)));
    const __m256i bases = _mm256_set1_epi64x((long long)base);
    const __m128i shifts = _mm_cvtsi32_si128((int)shift);

    for (; i + 8 <= count && start[3] + 16 <= size; i += 8, p += width, size -= width) {
        __m256i a =
            _mm256_loadu2_m128i((const __m128i *)(p + start[1]), (const __m128i *)(p + start[0]));
        __m256i b =
            _mm256_loadu2_m128i((const __m128i *)(p + start[3]), (const __m128i *)(p + start[2]));

        a = _mm256_and_si256(_mm256_srlv_epi64(_mm256_shuffle_epi8(a, byte_a), bit_a), mask);
        b = _mm256_and_si256(_mm256_srlv_epi64(_mm256_shuffle_epi8(b, byte_b), bit_b), mask);
        a = _mm256_add_epi64(_mm256_sll_epi64(a, shifts), bases);
        b = _mm256_add_epi64(_mm256_sll_epi64(b, shifts), bases);
        _mm256_storeu_si256((__m256i *)(out + i), a);
        _mm256_storeu_si256((__m256i *)(out + i + 4), b);
    }
    return i;
}
#endif

/* Numbers [i, count), as long as 8 bytes can be read where each starts. Returns the first left. */
static size_t unpack_singles(const uint8_t *p, size_t size, size_t i, size_t count, uint64_t base,
                             unsigned shift, unsigned width, codec_word *out)
{
    const uint64_t mask = UINT64_MAX >> (64 - width);
    size_t end;

    if (size < 8)
        return i;
    end = ((size - 8) * 8 + 7) / width + 1;
    if (end > count)
        end = count;
    for (; i < end; i++) {
        size_t at = i * width;

        out[i] = ((load64(p + (at >> 3)) >> (at & 7) & mask) << shift) + base;
    }
    return i;
}

static void unpack(const uint8_t *p, size_t size, size_t count, uint64_t base, unsigned shift,
                   unsigned width, codec_word *out)
{
    uint8_t tail[16] = {0};
    size_t i = 0, start;

    if (width == 0) {
        for (; i < count; i++)
            out[i] = base;
        return;
    }
    if (width == 64) {
        for (; i < count; i++)
            out[i] = (load64(p + 8 * i) << shift) + base;
        return;
    }
#if defined(__AVX2__)
    i = unpack_eights(p, size, count, base, shift, width, out);
#endif
    i = unpack_singles(p, size, i, count, base, shift, width, out);
    if (i == count)
        return;
    /* Fewer than 8 bytes are left from here on: finish in a padded copy. */
    start = (i * width) >> 3;
    memcpy(tail, p + start, size - start);
    for (; i < count; i++) {
        size_t at = i * width - 8 * start;

        out[i] =
            ((load64(tail + (at >> 3)) >> (at & 7) & (UINT64_MAX >> (64 - width))) << shift) + base;
    }
}

#if defined(__AVX2__)
/* Returns how many were done, a multiple of 4, and their sum. */
static size_t sum_fours(codec_word *a, size_t n, uint64_t *sum)
{
    __m256i before = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(a + i));

        x = _mm256_add_epi64(x, _mm256_slli_si256(x, 8));
        x = _mm256_add_epi64(
            x, _mm256_blend_epi32(_mm256_setzero_si256(), _mm256_permute4x64_epi64(x, 0x55), 0xf0));
        _mm256_storeu_si256((__m256i *)(a + i), _mm256_add_epi64(x, before));
        /* Not from what was stored: the chain is one addition that way. */
        before = _mm256_add_epi64(before, _mm256_permute4x64_epi64(x, 0xff));
    }
    *sum = (uint64_t)_mm256_extract_epi64(before, 0);
    return i;
}
#endif

static void prefix_sum(codec_word *a, size_t n)
{
    uint64_t sum = 0;
    size_t i = 0;

#if defined(__AVX2__)
    i = sum_fours(a, n, &sum);
#endif
    for (; i < n; i++) {
        sum += a[i];
        a[i] = sum;
    }
}

#define CODEC_KERNELS                                                                              \
    {                                                                                              \
        .differences = differences, .ranges = ranges, .changes = changes,                          \
        .decimal_from = decimal_from, .decimal_to = decimal_to, .pack = pack, .unpack = unpack,    \
        .prefix_sum = prefix_sum,                                                                  \
    }
