/*
 * Reading chunks in memory: the decoder for any CPU, and the choice between the two. It is also
 * what the other one is compared with (tests/engine/test_chunk.c).
 */
#include <string.h>

#include "base/bytes.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/chunk_tokens_internal.h"

enum { MIXED_TOKENS = 8 }; /* bytes decoded one by one before whole words are tried again */

/* What the decoder knows after each sample. Sums are unsigned: malformed input may wrap them. */
struct decoder {
    struct byte_reader in;
    int64_t *t_ms;
    double *value;
    size_t count, count_max;
    uint64_t now_ms, step_ms;
    uint64_t integer; /* of the newest value, unless the state is RAW */
    double newest;
    unsigned scale;
    bool has_value;
};

static uint64_t read_le(struct byte_reader *in, size_t size)
{
    uint64_t v = 0;
    const uint8_t *p = reader_take(in, size);

    if (p != NULL)
        memcpy(&v, p, size);
    return v;
}

static inline bool emit(struct decoder *d, double v)
{
    if (d->count == d->count_max)
        return false;
    if (d->count > 0)
        d->now_ms += d->step_ms;
    d->t_ms[d->count] = (int64_t)d->now_ms;
    d->value[d->count++] = v;
    d->newest = v;
    d->has_value = true;
    return true;
}

static inline bool emit_difference(struct decoder *d, uint64_t zigzag)
{
    if (d->scale == CHUNK_SCALE_RAW)
        return false;
    d->integer += (uint64_t)zigzag_decode(zigzag);
    return emit(d, chunk_scale_value((int64_t)d->integer, d->scale));
}

static bool emit_run(struct decoder *d, size_t count)
{
    if (!d->has_value)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!emit(d, d->newest))
            return false;
    return true;
}

static bool decode_extended(struct decoder *d, uint8_t token)
{
    if (token < TOKEN_DIFF_LONG) {
        d->step_ms += (uint64_t)((int64_t)(token & 31) - STEP5_BIAS);
        return true;
    }
    if (token < TOKEN_ABSOLUTE) {
        size_t size = (size_t)(token & 7) + DIFF_LONG_BYTES_MIN;

        return size <= 8 && emit_difference(d, read_le(&d->in, size));
    }
    if (token < TOKEN_ABSOLUTE + CHUNK_SCALE_COUNT) {
        d->scale = token & 3;
        d->integer = (uint64_t)zigzag_decode(reader_varint(&d->in));
        return emit(d, chunk_scale_value((int64_t)d->integer, d->scale));
    }
    if (token >= TOKEN_STEP_LONG && token < TOKEN_STEP_LONG + 4) {
        d->step_ms += (uint64_t)zigzag_decode(read_le(&d->in, (size_t)(token & 3) + 1));
        return true;
    }
    if (token == TOKEN_RAW) {
        d->scale = CHUNK_SCALE_RAW;
        return emit(d, double_from_bits(reader_le64(&d->in)));
    }
    return false;
}

static inline bool decode_token(struct decoder *d)
{
    uint8_t token = reader_u8(&d->in);

    switch (token >> 6) {
    case 0:
        return emit_run(d, (size_t)token + 1);
    case 1:
        return emit_difference(d, (uint64_t)(token & 63) << 8 | reader_u8(&d->in));
    case 2:
        return emit_difference(d, token & 63);
    default:
        return decode_extended(d, token);
    }
}

/* Words of tokens of one kind: bits that tell the kind, and what they are. */
#define WORD_DIFF14_MASK UINT64_C(0x00c000c000c000c0)
#define WORD_DIFF14 UINT64_C(0x0040004000400040)
#define WORD_DIFF6_MASK UINT64_C(0xc0c0c0c0c0c0c0c0)
#define WORD_DIFF6 UINT64_C(0x8080808080808080)

/* Where a decoder stands, in registers while words are read. */
struct word_state {
    double *restrict value; /* of the next sample */
    int64_t *restrict t_ms;
    uint64_t integer, now_ms, step_ms;
    double factor;
};

/* The samples of a word of `count` differences. Two divisions at once: they take longest. */
static inline void word_emit(struct word_state *w, const uint64_t *zigzag, size_t count)
{
    typedef double pair __attribute__((vector_size(16)));

#pragma GCC unroll 4
    for (size_t i = 0; i < count; i += 2) {
        uint64_t first = w->integer + (uint64_t)zigzag_decode(zigzag[i]);
        uint64_t second = first + (uint64_t)zigzag_decode(zigzag[i + 1]);
        pair values = {(double)(int64_t)first, (double)(int64_t)second};

        values /= w->factor;
        memcpy(w->value + i, &values, sizeof values);
        w->t_ms[i] = (int64_t)(w->now_ms + w->step_ms);
        w->now_ms += 2 * w->step_ms;
        w->t_ms[i + 1] = (int64_t)w->now_ms;
        w->integer = second;
    }
    w->value += count;
    w->t_ms += count;
}

/* Whole words of 14-bit or of 6-bit differences: most series have either for long, and a word needs
 * no look at one token to find the next. Ends at a word of anything else. */
static void decode_words(struct decoder *d)
{
    struct word_state w = {d->value + d->count, d->t_ms + d->count, d->integer,
                           d->now_ms,           d->step_ms,         chunk_scale_factor(d->scale)};
    const uint8_t *p = d->in.pos;
    const double *value_end = d->value + d->count_max;

    for (; d->in.end - p >= 8 && value_end - w.value >= 8; p += 8) {
        uint64_t word, zigzag[8];

        memcpy(&word, p, sizeof word);
        if ((word & WORD_DIFF14_MASK) == WORD_DIFF14) {
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++)
                zigzag[i] = __builtin_bswap16((uint16_t)(word >> (16 * i))) & 0x3fffU;
            word_emit(&w, zigzag, 4);
        } else if ((word & WORD_DIFF6_MASK) == WORD_DIFF6) {
#pragma GCC unroll 8
            for (size_t i = 0; i < 8; i++)
                zigzag[i] = word >> (8 * i) & 63;
            word_emit(&w, zigzag, 8);
        } else {
            break;
        }
    }
    d->count = (size_t)(w.value - d->value);
    d->newest = d->value[d->count - 1];
    d->in.pos = p;
    d->integer = w.integer;
    d->now_ms = w.now_ms;
}

/* What most samples of most series are, without a look at the state for each: differences of 6 or
 * 14 bits and small changes of the step. Ends at anything else, near the end, or after some tokens.
 */
static void decode_differences(struct decoder *d)
{
    const uint8_t *p = d->in.pos, *end = d->in.end;
    uint64_t integer = d->integer, now_ms = d->now_ms, step_ms = d->step_ms;
    double factor = chunk_scale_factor(d->scale);
    size_t n = d->count;

    if (end - p > MIXED_TOKENS)
        end = p + MIXED_TOKENS;
    while (end - p >= 2 && n < d->count_max) {
        uint8_t token = *p;
        unsigned is_long = token < TOKEN_DIFF6;
        uint64_t zigzag = is_long ? (uint64_t)(token & 63) << 8 | p[1] : token & 63U;

        if (((token ^ token << 1) & 0x80) == 0) { /* neither 01 nor 10 */
            if (token < TOKEN_STEP5 || token >= TOKEN_DIFF_LONG)
                break;
            step_ms += (uint64_t)((int64_t)(token & 31) - STEP5_BIAS);
            p++;
            continue;
        }
        p += 1 + is_long;
        integer += (uint64_t)zigzag_decode(zigzag);
        now_ms += step_ms;
        d->t_ms[n] = (int64_t)now_ms;
        d->value[n++] = (double)(int64_t)integer / factor; /* by 1 gives every bit, too */
    }
    if (n > d->count)
        d->newest = d->value[n - 1];
    d->in.pos = p;
    d->integer = integer;
    d->now_ms = now_ms;
    d->step_ms = step_ms;
    d->count = n;
}

bool chunk_decode_portable(const uint8_t *data, size_t size, int64_t first_ms, size_t sample_count,
                           int64_t *t_ms, double *value)
{
    struct decoder d = {
        .in = reader_init(data, size),
        .t_ms = t_ms,
        .value = value,
        .count_max = sample_count,
        .now_ms = (uint64_t)first_ms,
        .scale = CHUNK_SCALE_RAW,
    };

    while (reader_left(&d.in) > 0) {
        if (d.count > 0 && d.scale != CHUNK_SCALE_RAW) {
            decode_words(&d);
            decode_differences(&d);
        }
        if (reader_left(&d.in) > 0 && (!decode_token(&d) || d.in.failed))
            return false;
    }
    return d.count == sample_count;
}

/* Set by chunk_dispatch() before main() and constant from then on. */
static bool (*chosen)(const uint8_t *, size_t, int64_t, size_t, int64_t *, double *);

__attribute__((constructor(101))) static void chunk_dispatch(void)
{
    chosen = chunk_decode_portable;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt")) {
        chunk_decode_avx2_init();
        chosen = chunk_decode_avx2;
    }
#endif
}

bool chunk_decode(const uint8_t *data, size_t size, int64_t first_ms, size_t sample_count,
                  int64_t *t_ms, double *value)
{
    return chosen(data, size, first_ms, sample_count, t_ms, value);
}
