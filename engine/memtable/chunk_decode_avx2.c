/*
 * Reading chunks in memory with AVX2: CMake compiles this file alone for it, and only
 * chunk_decode.c chooses it, where the CPU has all it needs.
 *
 * Two passes. The first one turns tokens into columns of small numbers: a difference of integers
 * and a change of the time step for each sample. Most tokens have one byte or two, in any mixture,
 * and a look at one to find the next would be a chain of loads or of branches that nobody can
 * foretell. So 32 bytes are looked at together: which of them begin a token follows from their
 * upper bits by a subtraction, as escaped characters of a text do, and shuffles bring the numbers
 * of those together. The second pass sums up and scales, without a look at tokens.
 *
 * The division by a power of ten is a multiplication by its reciprocal, which is mended by two
 * fused multiply-adds: a quotient within one unit of its last place becomes the nearest one that
 * way, if the reciprocal is the nearest itself (Markstein, IBM Journal of Research and Development
 * 34(1), 1990). It is within one for 1, 100, 1,000 and 1,000,000: their reciprocals are nearer than
 * half of what rounding allows. Every bit is that of the division.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/chunk_tokens_internal.h"

#if !defined(__AVX2__) || !defined(__FMA__)
#error "this file must be compiled with -mavx2 -mfma"
#endif

enum {
    LANES = 8,           /* samples of the second pass at a time */
    WINDOW_BYTES = 32,   /* of tokens at a time */
    WINDOW_RUN_MAX = 16, /* a longer run is no matter for a window */
    /* A window's samples are counted only when they stand there. */
    COLUMN_ROOM = CHUNK_SAMPLE_MAX + WINDOW_BYTES * WINDOW_RUN_MAX + 2 * LANES,
};

/* What is known of a chunk while it is read. Sums are unsigned: malformed input may wrap them. */
struct scan {
    const uint8_t *p, *end;
    size_t count, count_max; /* samples so far */
    size_t value_count;      /* those whose values are in place */
    size_t time_count;       /* and times */
    int64_t *t_ms;
    double *value;
    uint64_t integer;         /* of sample value_count - 1, unless the state is RAW */
    uint64_t now_ms, step_ms; /* of sample time_count - 1, and behind it */
    unsigned scale;
    bool is_changing; /* a step token was read, and its sample was not */
    bool has_changes; /* among the samples without times, or in front of the next one */
    bool has_zeros;   /* difference[] is 0 from `count` on */
    /* Of each sample, against the one before. While has_changes, change[] is good from time_count
     * on, and 0 from `count` on but for what is_changing. */
    int32_t difference[COLUMN_ROOM];
    int32_t change[COLUMN_ROOM];
};

/* ---- second pass ---- */

/* Sums of lanes 0 to i. */
static inline __m256i prefix_sum(__m256i x)
{
    __m256i low;

    x = _mm256_add_epi32(x, _mm256_slli_si256(x, 4));
    x = _mm256_add_epi32(x, _mm256_slli_si256(x, 8));
    low = _mm256_permutevar8x32_epi32(x, _mm256_set1_epi32(3));
    return _mm256_add_epi32(x, _mm256_blend_epi32(_mm256_setzero_si256(), low, 0xf0));
}

struct divisor {
    __m256d value, reciprocal;
};

static inline __m256d divide(__m256d x, struct divisor d)
{
    __m256d q = _mm256_mul_pd(x, d.reciprocal);

    return _mm256_fmadd_pd(_mm256_fnmadd_pd(q, d.value, x), d.reciprocal, q);
}

/* Integers stay below 2^53 on the way, where doubles are exact: sums go on in doubles. */
static void values_fill(struct scan *s, double factor)
{
    struct divisor d = {_mm256_set1_pd(factor), _mm256_set1_pd(1 / factor)};
    __m256d base = _mm256_set1_pd((double)(int64_t)s->integer);

    for (size_t i = s->value_count; i < s->count; i += LANES) {
        __m256i sums = prefix_sum(_mm256_loadu_si256((const __m256i *)(s->difference + i)));
        __m256d low = _mm256_cvtepi32_pd(_mm256_castsi256_si128(sums));
        __m256d high = _mm256_cvtepi32_pd(_mm256_extracti128_si256(sums, 1));

        low = _mm256_add_pd(low, base);
        high = _mm256_add_pd(high, base);
        base = _mm256_permute4x64_pd(high, 0xff);
        _mm256_storeu_pd(s->value + i, divide(low, d));
        _mm256_storeu_pd(s->value + i + 4, divide(high, d));
    }
    s->integer = (uint64_t)(int64_t)_mm256_cvtsd_f64(base);
}

/* Values of all samples so far. */
static void values_finish(struct scan *s)
{
    const uint64_t limit = (uint64_t)1 << 51;

    if (s->value_count == s->count)
        return;
    /* Lanes behind the last sample are summed up, too. */
    _mm256_storeu_si256((__m256i *)(s->difference + s->count), _mm256_setzero_si256());
    if (LIKELY(s->integer + limit <= 2 * limit)) {
        values_fill(s, chunk_scale_factor(s->scale));
    } else {
        for (size_t i = s->value_count; i < s->count; i++) {
            s->integer += (uint64_t)(int64_t)s->difference[i]; /* NOLINT: they are set */
            s->value[i] = chunk_scale_value((int64_t)s->integer, s->scale);
        }
    }
    s->value_count = s->count;
}

/* {x, 2x, 3x, 4x} */
static inline __m256i multiples(__m256i x)
{
    const __m256i odd = _mm256_set_epi64x(-1, 0, -1, 0), upper = _mm256_set_epi64x(-1, -1, 0, 0);
    __m256i twice = _mm256_add_epi64(x, x);

    return _mm256_add_epi64(_mm256_add_epi64(x, _mm256_and_si256(x, odd)),
                            _mm256_and_si256(twice, upper));
}

static void times_fill_even(struct scan *s)
{
    __m256i step = _mm256_set1_epi64x((int64_t)s->step_ms);
    __m256i four = _mm256_slli_epi64(step, 2);
    __m256i t = _mm256_add_epi64(_mm256_set1_epi64x((int64_t)s->now_ms), multiples(step));

    for (size_t i = s->time_count; i < s->count; i += LANES) {
        _mm256_storeu_si256((__m256i *)(s->t_ms + i), t);
        t = _mm256_add_epi64(t, four);
        _mm256_storeu_si256((__m256i *)(s->t_ms + i + 4), t);
        t = _mm256_add_epi64(t, four);
    }
}

/* Changes are summed twice: to what steps are more than the first, and to what times are. */
static void times_fill_uneven(struct scan *s)
{
    __m256i step = _mm256_set1_epi64x((int64_t)s->step_ms);
    __m256i now = _mm256_set1_epi64x((int64_t)s->now_ms);

    for (size_t i = s->time_count; i < s->count; i += LANES) {
        __m256i steps = prefix_sum(_mm256_loadu_si256((const __m256i *)(s->change + i)));
        __m256i times = prefix_sum(steps);
        __m256i low = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(times));
        __m256i high = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(times, 1));
        __m256i t = _mm256_add_epi64(now, multiples(step));

        low = _mm256_add_epi64(low, t);
        high = _mm256_add_epi64(high, _mm256_add_epi64(t, _mm256_slli_epi64(step, 2)));
        _mm256_storeu_si256((__m256i *)(s->t_ms + i), low);
        _mm256_storeu_si256((__m256i *)(s->t_ms + i + 4), high);
        now = _mm256_permute4x64_epi64(high, 0xff);
        steps = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(steps, 1));
        step = _mm256_add_epi64(step, _mm256_permute4x64_epi64(steps, 0xff));
    }
    s->step_ms = (uint64_t)_mm256_extract_epi64(step, 0);
}

/* Times of all samples so far. */
static void times_finish(struct scan *s)
{
    if (s->time_count >= s->count)
        return;
    if (s->has_changes) {
        int32_t ahead = s->change[s->count]; /* belongs to the next sample */

        s->change[s->count] = 0;
        times_fill_uneven(s);
        s->change[s->count] = ahead;
        s->has_changes = s->is_changing;
    } else {
        times_fill_even(s);
    }
    s->now_ms = (uint64_t)s->t_ms[s->count - 1];
    s->time_count = s->count;
}

/* ---- first pass: token by token ---- */

/* Makes a column 0 from a sample on, as far as anything is read of it. */
static inline void column_clear(const struct scan *s, int32_t *column, size_t from)
{
    size_t end = s->count_max + (size_t)2 * LANES;

    memset(column + from, 0, (end - from) * sizeof *column);
}

static inline void zeros_behind(struct scan *s)
{
    if (s->has_zeros)
        return;
    s->has_zeros = true;
    column_clear(s, s->difference, s->count);
}

static inline void changes_begin(struct scan *s)
{
    if (s->has_changes)
        return;
    s->has_changes = true;
    column_clear(s, s->change, s->time_count);
}

static bool emit_run(struct scan *s, size_t count)
{
    __m256d v;

    if (s->count == 0 || count > s->count_max - s->count)
        return false;
    s->is_changing = false;
    if (count <= WINDOW_RUN_MAX && s->value_count != s->count) {
        zeros_behind(s);
        s->count += count; /* their differences are 0 */
        return true;
    }
    values_finish(s);
    v = _mm256_set1_pd(s->value[s->count - 1]);
    for (size_t i = 0; i < count; i += LANES) {
        _mm256_storeu_pd(s->value + s->count + i, v);
        _mm256_storeu_pd(s->value + s->count + i + 4, v);
    }
    s->count += count;
    s->value_count = s->count;
    return true;
}

static inline bool emit_difference(struct scan *s, uint64_t zigzag)
{
    if (s->scale == CHUNK_SCALE_RAW || s->count == s->count_max)
        return false;
    s->difference[s->count++] = (int32_t)zigzag_decode(zigzag);
    s->is_changing = false;
    return true;
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline bool is_step5(uint8_t token)
{
    return token >= TOKEN_STEP5 && token < TOKEN_DIFF_LONG;
}

static void short_step(struct scan *s, uint8_t token)
{
    int32_t change_ms = (token & 31) - STEP5_BIAS;

    if (s->count == 0) { /* the first sample has no step */
        s->step_ms += (uint64_t)(int64_t)change_ms;
        return;
    }
    changes_begin(s);
    s->change[s->count] += change_ms;
    s->is_changing = true;
}

/* All differences of 3 to 8 bytes that follow one another, with the steps between them. */
static bool long_differences(struct scan *s)
{
    if (s->scale == CHUNK_SCALE_RAW)
        return false;
    values_finish(s);
    for (; s->p < s->end; s->p++) {
        uint8_t token = *s->p;
        size_t size = (size_t)(token & 7) + DIFF_LONG_BYTES_MIN;

        if (is_step5(token)) {
            short_step(s, token);
            continue;
        }
        if (token < TOKEN_DIFF_LONG || token >= TOKEN_DIFF_LONG + 6)
            break;
        if (size >= (size_t)(s->end - s->p) || s->count == s->count_max)
            return false;
        s->integer += (uint64_t)zigzag_decode(load64(s->p + 1) & UINT64_MAX >> (64 - 8 * size));
        s->value[s->count++] = chunk_scale_value((int64_t)s->integer, s->scale);
        s->is_changing = false;
        s->p += size;
    }
    s->value_count = s->count;
    return true;
}

/* All raw values that follow one another, with the steps between them. */
static bool raw_values(struct scan *s)
{
    values_finish(s);
    for (; s->p < s->end; s->p++) {
        uint8_t token = *s->p;

        if (is_step5(token)) {
            short_step(s, token);
            continue;
        }
        if (token != TOKEN_RAW)
            break;
        if (s->end - s->p < 9 || s->count == s->count_max)
            return false;
        s->scale = CHUNK_SCALE_RAW;
        s->value[s->count++] = double_from_bits(load64(s->p + 1));
        s->is_changing = false;
        s->p += 8;
    }
    s->value_count = s->count;
    return true;
}

static bool absolute_value(struct scan *s, uint8_t token)
{
    struct byte_reader in = reader_init(s->p + 1, (size_t)(s->end - s->p) - 1);
    uint64_t zigzag = reader_varint(&in);

    if (in.failed || s->count == s->count_max)
        return false;
    values_finish(s);
    s->scale = token & 3;
    s->integer = (uint64_t)zigzag_decode(zigzag);
    s->value[s->count++] = chunk_scale_value((int64_t)s->integer, s->scale);
    s->value_count = s->count;
    s->is_changing = false;
    s->p = in.pos;
    return true;
}

static bool long_step(struct scan *s, uint8_t token)
{
    size_t size = (size_t)(token & 3) + 1;

    if (size >= (size_t)(s->end - s->p))
        return false;
    times_finish(s);
    s->step_ms += (uint64_t)zigzag_decode(load64(s->p + 1) & UINT64_MAX >> (64 - 8 * size));
    s->p += 1 + size;
    return true;
}

static bool extended_token(struct scan *s, uint8_t token)
{
    if (token < TOKEN_DIFF_LONG) {
        short_step(s, token);
        s->p++;
        return true;
    }
    if (token < TOKEN_DIFF_LONG + 6)
        return long_differences(s);
    if (token >= TOKEN_ABSOLUTE && token < TOKEN_ABSOLUTE + CHUNK_SCALE_COUNT)
        return absolute_value(s, token);
    if (token >= TOKEN_STEP_LONG && token < TOKEN_STEP_LONG + 4)
        return long_step(s, token);
    return token == TOKEN_RAW && raw_values(s);
}

/* Reads a token, or more. */
static bool token_read(struct scan *s)
{
    uint8_t token = *s->p;

    switch (token >> 6) {
    case 0:
        s->p++;
        return emit_run(s, (size_t)token + 1);
    case 1:
        if (s->end - s->p < 2)
            return false;
        s->p += 2;
        return emit_difference(s, (uint64_t)(token & 63) << 8 | s->p[-1]);
    case 2:
        s->p++;
        return emit_difference(s, token & 63);
    default:
        return extended_token(s, token);
    }
}

/* ---- first pass: many tokens at once ---- */

/* Shuffles that bring the 16-bit lanes of a set of lanes together; what is behind them becomes 0.
 */
static uint8_t compress_shuffles[256][16] __attribute__((aligned(16)));

void chunk_decode_avx2_init(void)
{
    for (size_t set = 0; set < 256; set++) {
        uint8_t *shuffle = compress_shuffles[set];
        size_t n = 0;

        memset(shuffle, 0x80, sizeof compress_shuffles[set]);
        for (size_t lane = 0; lane < 8; lane++) {
            if ((set >> lane & 1) == 0)
                continue;
            shuffle[n++] = (uint8_t)(2 * lane);
            shuffle[n++] = (uint8_t)(2 * lane + 1);
        }
    }
}

static inline __m128i compress(__m128i x, uint32_t set)
{
    return _mm_shuffle_epi8(x, _mm_load_si128((const __m128i *)compress_shuffles[set]));
}

/* The lanes of the set (16 bits), together, at `out`, which has room for 16. */
static inline void compress_to32(__m256i x, uint32_t set, int32_t *out)
{
    __m128i low = compress(_mm256_castsi256_si128(x), set & 0xff);
    __m128i high = compress(_mm256_extracti128_si256(x, 1), set >> 8);

    _mm256_storeu_si256((__m256i *)out, _mm256_cvtepi16_epi32(low));
    _mm256_storeu_si256((__m256i *)(out + __builtin_popcount(set & 0xff)),
                        _mm256_cvtepi16_epi32(high));
}

static inline void compress_to16(__m256i x, uint32_t set, int16_t out[24])
{
    __m128i low = compress(_mm256_castsi256_si128(x), set & 0xff);
    __m128i high = compress(_mm256_extracti128_si256(x, 1), set >> 8);

    _mm_storeu_si128((__m128i *)out, low);
    _mm_storeu_si128((__m128i *)(out + 8), _mm_setzero_si128());
    _mm_storeu_si128((__m128i *)(out + __builtin_popcount(set & 0xff)), high);
}

/* A scan in registers. */
struct cursor {
    const uint8_t *p;
    size_t count;
};

/* Differences of 14 bits alone, as counters have them for long. */
static inline struct cursor words14(struct scan *s, struct cursor c)
{
    const __m128i swap = _mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1);
    const __m128i kind = _mm_set1_epi16(0xc0), kind14 = _mm_set1_epi16(TOKEN_DIFF14);

    for (; s->end - c.p >= 16 && s->count_max - c.count >= LANES; c.p += 16, c.count += LANES) {
        __m128i x = _mm_loadu_si128((const __m128i *)c.p), zigzag, sign;

        if (_mm_movemask_epi8(_mm_cmpeq_epi16(_mm_and_si128(x, kind), kind14)) != 0xffff)
            break;
        zigzag = _mm_and_si128(_mm_shuffle_epi8(x, swap), _mm_set1_epi16(0x3fff));
        sign = _mm_sub_epi16(_mm_setzero_si128(), _mm_and_si128(zigzag, _mm_set1_epi16(1)));
        x = _mm_xor_si128(_mm_srli_epi16(zigzag, 1), sign);
        _mm256_storeu_si256((__m256i *)(s->difference + c.count), _mm256_cvtepi16_epi32(x));
    }
    return c;
}

/* Differences of 3 bytes that follow one another, at most four. */
static inline struct cursor words24(struct scan *s, struct cursor c)
{
    __m128i x = _mm_loadu_si128((const __m128i *)c.p);
    __m128i is_kind =
        _mm_cmpeq_epi32(_mm_and_si128(x, _mm_set1_epi32(0xff)), _mm_set1_epi32(TOKEN_DIFF_LONG));
    uint32_t others = ~(uint32_t)_mm_movemask_ps(_mm_castsi128_ps(is_kind));
    size_t n = (size_t)__builtin_ctz(others), left = (size_t)(s->end - c.p) / 4;
    __m128i zigzag = _mm_srli_epi32(x, 8);
    __m128i sign = _mm_sub_epi32(_mm_setzero_si128(), _mm_and_si128(zigzag, _mm_set1_epi32(1)));

    n = n < left ? n : left;
    n = n < s->count_max - c.count ? n : s->count_max - c.count;
    x = _mm_xor_si128(_mm_srli_epi32(zigzag, 1), sign);
    /* What is behind the last one must be 0. */
    x = _mm_and_si128(x, _mm_cmpgt_epi32(_mm_set1_epi32((int)n), _mm_set_epi32(3, 2, 1, 0)));
    _mm_storeu_si128((__m128i *)(s->difference + c.count), x);
    return (struct cursor){c.p + 4 * n, c.count + n};
}

/* 32 bytes of tokens, by bits: bit i is what byte i is. */
struct window {
    uint32_t samples; /* where a token of a sample begins */
    uint32_t steps;   /* where one of a step does */
    uint32_t runs;    /* where one of more than one sample does */
    size_t size;      /* bytes of these tokens; 0: it must be looked at token by token */
};

/* Which bytes belong to the token of the byte before, given those that have a second byte if they
 * begin a token. In a row of those every second one does: as with backslashes in a text, where the
 * borrow of a subtraction runs through each row (Langdale and Lemire, VLDB Journal 28, 2019). */
static inline uint32_t second_bytes(uint32_t has_second)
{
    const uint32_t odd = 0xaaaaaaaaU;

    return ((((has_second << 1) | odd) - has_second) ^ odd) ^ has_second;
}

static inline uint32_t bits_of(__m256i x)
{
    return (uint32_t)_mm256_movemask_epi8(x);
}

/* The lowest `count` bits, up to 32. */
static inline uint32_t low_bits(size_t count)
{
    return (uint32_t)(((uint64_t)1 << count) - 1);
}

static inline struct window window_look(const uint8_t *p, const uint8_t *end)
{
    __m256i b = _mm256_loadu_si256((const __m256i *)p);
    uint32_t bit7 = bits_of(b), bit6 = bits_of(_mm256_slli_epi16(b, 1));
    uint32_t bit5 = bits_of(_mm256_slli_epi16(b, 2)), bit4 = bits_of(_mm256_slli_epi16(b, 3));
    uint32_t is_zero = bits_of(_mm256_cmpeq_epi8(b, _mm256_setzero_si256()));
    uint32_t has_second = ~bit7 & bit6, is_run = ~bit7 & ~bit6;
    uint32_t begins = ~second_bytes(has_second);
    uint32_t others = begins & ((bit7 & bit6 & bit5) | (is_run & (bit5 | bit4)));
    size_t left = (size_t)(end - p), limit = (size_t)__builtin_ctzll(others | (uint64_t)1 << 32);
    struct window w;
    uint32_t last;

    limit = limit < left ? limit : left;
    last = low_bits(limit) ^ low_bits(limit) >> 1;
    begins &= low_bits(limit);
    w.steps = begins & bit7 & bit6 & ~last; /* a sample that is outside keeps its step */
    w.samples = begins & ~(bit7 & bit6);
    w.runs = w.samples & is_run & ~is_zero;
    w.size = limit + ((has_second & begins & last) != 0) - ((bit7 & bit6 & begins & last) != 0);
    if (UNLIKELY(w.size > left || (w.steps & (bit7 & bit6 & begins) >> 1) != 0))
        w.size = 0;
    return w;
}

/* Differences of the tokens that begin at each of 16 bytes. */
static inline __m256i window_differences(const uint8_t *p)
{
    __m256i first = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
    __m256i second = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p + 1)));
    __m256i x = _mm256_or_si256(_mm256_slli_epi16(first, 8), second);
    __m256i is14 = _mm256_cmpeq_epi16(_mm256_and_si256(x, _mm256_set1_epi16((short)0xc000)),
                                      _mm256_set1_epi16(0x4000));
    __m256i of14 = _mm256_and_si256(is14, _mm256_and_si256(x, _mm256_set1_epi16(0x3fff)));
    __m256i of6 =
        _mm256_and_si256(_mm256_srai_epi16(x, 15), _mm256_and_si256(first, _mm256_set1_epi16(63)));
    __m256i zigzag = _mm256_or_si256(of14, of6);
    __m256i sign =
        _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_and_si256(zigzag, _mm256_set1_epi16(1)));

    return _mm256_xor_si256(_mm256_srli_epi16(zigzag, 1), sign);
}

/* Changes of the step in front of the tokens that begin at each of 16 bytes; `follows` has those
 * that follow a step. Something is in front of p: the first token of a chunk is read by itself. */
static inline __m256i window_changes(const uint8_t *p, uint32_t follows)
{
    const __m256i bit = _mm256_set_epi16((short)0x8000, 0x4000, 0x2000, 0x1000, 0x800, 0x400, 0x200,
                                         0x100, 0x80, 0x40, 0x20, 0x10, 8, 4, 2, 1);
    __m256i before = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p - 1)));
    __m256i change = _mm256_sub_epi16(_mm256_and_si256(before, _mm256_set1_epi16(31)),
                                      _mm256_set1_epi16(STEP5_BIAS));
    __m256i set = _mm256_set1_epi16((short)follows);

    return _mm256_and_si256(change, _mm256_cmpeq_epi16(_mm256_and_si256(set, bit), bit));
}

/* Samples that the tokens which begin at each of 16 bytes stand for. */
static inline __m256i window_lengths(const uint8_t *p)
{
    __m128i b = _mm_loadu_si128((const __m128i *)p);
    __m128i is_run = _mm_cmpeq_epi8(_mm_min_epu8(b, _mm_set1_epi8(63)), b);

    return _mm256_add_epi16(_mm256_cvtepu8_epi16(_mm_and_si128(b, is_run)), _mm256_set1_epi16(1));
}

/* Tokens of 16 bytes to columns where some stand for many samples: the first of those has the
 * numbers. Returns how many samples there are then. */
static inline size_t half_spread(struct scan *s, const uint8_t *p, uint32_t samples,
                                 uint32_t follows, size_t n)
{
    int16_t differences[24], changes[24], lengths[24];

    compress_to16(window_differences(p), samples, differences);
    compress_to16(window_lengths(p), samples, lengths);
    if (follows != 0) {
        compress_to16(window_changes(p, follows), samples, changes);
        for (size_t i = 0; i < 16; i++) {
            s->difference[n] = differences[i];
            s->change[n] = changes[i];
            n += (size_t)lengths[i];
        }
    } else {
        for (size_t i = 0; i < 16; i++) {
            s->difference[n] = differences[i];
            n += (size_t)lengths[i];
        }
    }
    return n;
}

static inline size_t half_read(struct scan *s, const uint8_t *p, uint32_t samples, uint32_t runs,
                               uint32_t follows, size_t n)
{
    if (runs != 0)
        return half_spread(s, p, samples, follows, n);
    compress_to32(window_differences(p), samples, s->difference + n);
    if (follows != 0)
        compress_to32(window_changes(p, follows), samples, s->change + n);
    return n + (size_t)__builtin_popcount(samples);
}

/* Reads tokens of one and two bytes, at most 32 bytes of them. Stays where it is if there are none,
 * or if they must be read one by one. */
static inline struct cursor window_read(struct scan *s, struct cursor c)
{
    struct window w = window_look(c.p, s->end);
    uint32_t follows = w.steps << 1;

    if (w.size == 0)
        return c;
    s->count = c.count;
    if (w.steps != 0)
        changes_begin(s);
    if (w.runs != 0)
        zeros_behind(s);
    c.count = half_read(s, c.p, w.samples & 0xffff, w.runs & 0xffff, follows & 0xffff, c.count);
    if (w.samples >> 16 != 0)
        c.count = half_read(s, c.p + 16, w.samples >> 16, w.runs >> 16, follows >> 16, c.count);
    c.p += w.size;
    return c;
}

/* Reads tokens of differences and short runs, as many as there are; false once there are too many
 * samples. */
static bool differences_read(struct scan *s)
{
    struct cursor c = {s->p, s->count};

    while (c.p < s->end) {
        const uint8_t *before = c.p;

        c = words14(s, c);
        if (s->end - c.p >= 4 && *c.p == TOKEN_DIFF_LONG)
            c = words24(s, c);
        else if (c.p < s->end)
            c = window_read(s, c);
        if (c.p == before || c.count > s->count_max)
            break;
    }
    s->p = c.p;
    s->count = c.count;
    return c.count <= s->count_max;
}

bool chunk_decode_avx2(const uint8_t *data, size_t size, int64_t first_ms, size_t sample_count,
                       int64_t *t_ms, double *value)
{
    struct scan s;

    if (sample_count > CHUNK_SAMPLE_MAX)
        return false;
    s.p = data;
    s.end = data + size;
    s.count = s.value_count = 0;
    s.count_max = sample_count;
    s.time_count = 1;
    s.t_ms = t_ms;
    s.value = value;
    s.integer = 0;
    s.now_ms = (uint64_t)first_ms;
    s.step_ms = 0;
    s.scale = CHUNK_SCALE_RAW;
    s.is_changing = s.has_changes = s.has_zeros = false;
    t_ms[0] = first_ms;
    while (s.p < s.end) {
        if (s.scale != CHUNK_SCALE_RAW && !s.is_changing && !differences_read(&s))
            return false;
        if (s.p < s.end && !token_read(&s))
            return false;
    }
    values_finish(&s);
    times_finish(&s);
    return s.count == sample_count;
}
#endif
