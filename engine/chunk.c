/*
 * The open chunk's codec: append-only, byte-oriented tokens, exact for every bit of every double.
 *
 * Half of all series are constant and most of the rest are integers or centiseconds that move by
 * little, so a sample is one or two bytes as a rule and a constant costs a counter. Values
 * are compared and kept as bits; a decimal form is used only where the very same division that the
 * decoder does gives the bits back. docs/formats/memtable-chunk.md:
 *
 *   00nnnnnn                n + 1 samples, same time step, same bits
 *   01vvvvvv vvvvvvvv       one sample, same step, zigzag difference of 14 bits (high byte first)
 *   10vvvvvv                one sample, same step, zigzag difference of 6 bits
 *   110ttttt                the step changes by t - 16 ms; a value token follows
 *   11100nnn + n+3 bytes    one sample, same step, zigzag difference, little-endian (n <= 5)
 *   111010ss + varint       one sample, same step, zigzag integer at exponent s
 *   111100nn + n+1 bytes    the step changes by a zigzag number of ms; a value token follows
 *   11111000 + 8 bytes      one sample, same step, raw bits
 */
#include "engine/chunk_internal.h"

#include <string.h>

#include "base/bytes.h"

enum {
    TOKEN_RUN = 0x00,
    TOKEN_DIFF14 = 0x40,
    TOKEN_DIFF6 = 0x80,
    TOKEN_STEP5 = 0xc0,
    TOKEN_DIFF_LONG = 0xe0,
    TOKEN_ABSOLUTE = 0xe8,
    TOKEN_STEP_LONG = 0xf0,
    TOKEN_RAW = 0xf8,

    RUN_MAX = 64,
    STEP5_BIAS = 16,
    DIFF_LONG_BYTES_MIN = 3,
};

void series_init(struct series *s, struct hash128 fingerprint, uint16_t generation)
{
    *s = (struct series){
        .fingerprint = fingerprint,
        .newest_ms = INT64_MIN,
        .generation = generation,
        .scale = CHUNK_SCALE_RAW,
        .defined = 1,
    };
}

/* ---- writing ---- */

/* Tokens before they go to the blocks: at most those of a run, a step and a value. In registers,
 * since bytes that are stored one by one and read as a word wait for each other. */
struct tokens {
    unsigned __int128 bytes; /* the first one lowest */
    unsigned size;
};
enum { TOKENS_SIZE_MAX = sizeof(unsigned __int128) };
static_assert(1 + CHUNK_SAMPLE_BYTES_MAX <= TOKENS_SIZE_MAX, "a run and a sample fit");

static inline void put_le(struct tokens *k, uint64_t v, unsigned size)
{
    k->bytes |= (unsigned __int128)v << (8 * k->size);
    k->size += size;
}

static inline unsigned byte_length(uint64_t v)
{
    return v == 0 ? 1 : (71 - (unsigned)__builtin_clzll(v)) / 8;
}

static inline void put_run(struct tokens *k, const struct series *s)
{
    uint8_t token;
    unsigned size = (unsigned)chunk_run_token(s->run_count, &token);

    if (size > 0)
        put_le(k, token, size);
}

static void put_step(struct tokens *k, int64_t change_ms)
{
    if (change_ms >= -STEP5_BIAS && change_ms < STEP5_BIAS) {
        put_le(k, TOKEN_STEP5 | (uint8_t)(change_ms + STEP5_BIAS), 1);
        return;
    }
    uint64_t u = zigzag_encode(change_ms);
    unsigned size = byte_length(u);

    ASSERT(size <= 4); /* both steps are below CHUNK_SPAN_MAX_MS */
    put_le(k, TOKEN_STEP_LONG | (size - 1), 1);
    put_le(k, u, size);
}

/* A value that does not continue the current exponent; returns the new state. */
static unsigned put_fresh_value(struct tokens *k, uint64_t bits)
{
    double v = double_from_bits(bits);
    int64_t i;

    for (unsigned scale = 0; scale < CHUNK_SCALE_COUNT; scale++) {
        uint64_t varint = 0;

        if (!chunk_scale_exact(v, scale, &i))
            continue;
        uint64_t u = zigzag_encode(i);
        if (u >> 56 != 0)
            break; /* longer than raw */
        put_le(k, TOKEN_ABSOLUTE | scale, 1);
        unsigned size = (unsigned)varint_write((uint8_t *)&varint, u);
        put_le(k, varint, size);
        return scale;
    }
    put_le(k, TOKEN_RAW, 1);
    put_le(k, bits, sizeof bits);
    return CHUNK_SCALE_RAW;
}

static inline void put_difference(struct tokens *k, int64_t difference)
{
    uint64_t u = zigzag_encode(difference);

    if (u < 1U << 6) {
        put_le(k, TOKEN_DIFF6 | u, 1);
    } else if (u < 1U << 14) {
        put_le(k, TOKEN_DIFF14 | u >> 8 | (u & 0xff) << 8, 2);
    } else {
        unsigned size = byte_length(u);

        if (size < DIFF_LONG_BYTES_MIN)
            size = DIFF_LONG_BYTES_MIN;
        put_le(k, TOKEN_DIFF_LONG | (size - DIFF_LONG_BYTES_MIN), 1);
        put_le(k, u, size);
    }
}

/* Tokens of a value other than the newest; returns the new state. */
static inline unsigned put_value(struct tokens *k, const struct series *s, uint64_t bits)
{
    int64_t now, before;

    if (s->scale != CHUNK_SCALE_RAW && chunk_scale_exact(double_from_bits(bits), s->scale, &now) &&
        chunk_scale_round(double_from_bits(s->newest_bits), s->scale, &before)) {
        put_difference(k, now - before);
        return s->scale;
    }
    return put_fresh_value(k, bits);
}

/* What of the tokens does not fit the tail begins another block; returns the bytes there. */
static unsigned blocks_append_split(struct series *s, struct chunk_source *source,
                                    struct chunk_block *tail, const struct tokens *k)
{
    unsigned head_size = CHUNK_BLOCK_PAYLOAD - s->tail_used, rest_size = k->size - head_size;
    uint32_t number = chunk_source_take(source);
    struct chunk_block *next = chunk_block_at(source->pool, number);

    memcpy(tail->data + s->tail_used, &k->bytes, head_size);
    memcpy(next->data, (const uint8_t *)&k->bytes + head_size, rest_size);
    next->next = 0;
    tail->next = number;
    s->open_tail = number;
    return rest_size;
}

/* Returns how much of the tail block is used then. */
static inline unsigned blocks_append(struct series *s, struct chunk_source *source,
                                     const struct tokens *k)
{
    struct chunk_block *tail = chunk_block_at(source->pool, s->open_tail);
    unsigned used = s->tail_used;

    if (UNLIKELY(k->size > CHUNK_BLOCK_PAYLOAD - used))
        return blocks_append_split(s, source, tail, k);
    if (LIKELY(k->size <= sizeof(uint64_t))) {
        uint64_t word = (uint64_t)k->bytes;

        /* A whole word where it stays within the block: nobody reads the `next` of a tail, which is
         * written when there is one. */
        if (LIKELY(used <= sizeof *tail - sizeof word))
            memcpy((uint8_t *)tail + used, &word, sizeof word);
        else
            memcpy((uint8_t *)tail + used, &word, k->size);
    } else {
        memcpy(tail->data + used, &k->bytes, k->size);
    }
    return used + k->size;
}

static size_t chain_size(const struct chunk_pool *pool, const struct series *s)
{
    size_t size = s->tail_used;

    for (uint32_t n = s->open_head; n != s->open_tail; n = chunk_block_at(pool, n)->next)
        size += CHUNK_BLOCK_PAYLOAD;
    return size;
}

/* Puts a descriptor in front of the closed chunks. */
static void chunk_close(struct series *s, struct chunk_source *source)
{
    struct tokens k = {0};
    struct chunk_descriptor *d;
    uint32_t number;

    if (s->run_count > 0) {
        put_run(&k, s);
        s->tail_used = blocks_append(s, source, &k) & 31;
        s->run_count = 0;
    }
    chunk_block_at(source->pool, s->open_tail)->next = 0;
    number = chunk_source_take(source);
    d = (void *)chunk_block_at(source->pool, number);
    *d = (struct chunk_descriptor){
        .min_time_ms = s->open_first_ms,
        .max_time_ms = s->newest_ms,
        .head = s->open_head,
        .size_bytes = (uint16_t)chain_size(source->pool, s),
        .sample_count = s->open_count,
        .older = s->closed,
    };
    s->closed = number;
    s->open_count = 0;
}

static void chunk_begin(struct series *s, struct chunk_source *source, int64_t t_ms, uint64_t bits)
{
    struct tokens k = {0};
    uint32_t number = chunk_source_take(source);
    struct chunk_block *head = chunk_block_at(source->pool, number);

    s->scale = put_fresh_value(&k, bits) & 7;
    memcpy(head->data, &k.bytes, sizeof k.bytes);
    head->next = 0;
    s->tail_used = k.size & 31;
    s->run_count = 0;
    s->open_head = s->open_tail = number;
    s->open_first_ms = t_ms;
    s->delta_ms = 0;
    s->open_count = 1;
    s->newest_ms = t_ms;
    s->newest_bits = bits;
}

static void chunk_restart(struct series *s, struct chunk_source *source, int64_t t_ms,
                          uint64_t bits, uint32_t *closed_count)
{
    if (s->open_count > 0) {
        chunk_close(s, source);
        *closed_count += 1;
    }
    series_lower_oldest(s, t_ms);
    chunk_begin(s, source, t_ms, bits);
}

bool chunk_cut(struct series *s, struct chunk_source *source)
{
    if (s->open_count == 0)
        return true;
    if (!chunk_source_reserve(source))
        return false;
    chunk_close(s, source);
    return true;
}

bool chunk_append(struct series *s, struct chunk_source *source, int64_t t_ms, uint64_t bits,
                  uint32_t *closed_count)
{
    if (UNLIKELY(s->open_count == 0 || s->open_count >= CHUNK_SAMPLE_MAX ||
                 t_ms - s->open_first_ms >= CHUNK_SPAN_MAX_MS)) {
        if (!chunk_source_reserve(source))
            return false;
        chunk_restart(s, source, t_ms, bits, closed_count);
        return true;
    }

    int64_t delta_ms = t_ms - s->newest_ms, change_ms = delta_ms - s->delta_ms;
    bool is_same = bits == s->newest_bits;
    if (is_same && change_ms == 0 && s->run_count < RUN_MAX) {
        s->run_count++;
        s->newest_ms = t_ms;
        s->open_count++;
        return true;
    }
    if (!chunk_source_reserve(source))
        return false;
    struct tokens k = {0};
    unsigned scale = s->scale;
    put_run(&k, s);
    if (change_ms != 0)
        put_step(&k, change_ms);
    if (!is_same)
        scale = put_value(&k, s, bits);
    unsigned tail_used = blocks_append(s, source, &k);
    /* Fields that share a word are stored together, or each store would wait for the one before. */
    s->delta_ms = (uint32_t)delta_ms & 0xffffff;
    s->run_count = is_same;
    s->open_count++;
    s->tail_used = tail_used & 31;
    s->scale = scale & 7;
    s->newest_ms = t_ms;
    s->newest_bits = bits;
    return true;
}

/* ---- reading ---- */

size_t chunk_gather(const struct chunk_pool *pool, uint32_t head, size_t size_bytes, uint8_t *out)
{
    size_t done = 0;

    for (uint32_t n = head; done < size_bytes;) {
        const struct chunk_block *block = chunk_block_at(pool, n);
        size_t left = size_bytes - done;

        memcpy(out + done, block->data, left < CHUNK_BLOCK_PAYLOAD ? left : CHUNK_BLOCK_PAYLOAD);
        done += left < CHUNK_BLOCK_PAYLOAD ? left : CHUNK_BLOCK_PAYLOAD;
        n = block->next;
    }
    return done;
}

size_t chunk_gather_open(const struct chunk_pool *pool, const struct series *s, uint8_t *out)
{
    size_t done = 0;
    uint32_t n = s->open_head;

    if (s->open_count == 0)
        return 0;
    for (; n != s->open_tail; done += CHUNK_BLOCK_PAYLOAD) {
        const struct chunk_block *block = chunk_block_at(pool, n);

        memcpy(out + done, block->data, CHUNK_BLOCK_PAYLOAD);
        n = block->next;
    }
    memcpy(out + done, chunk_block_at(pool, n)->data, s->tail_used);
    done += s->tail_used;
    return done + chunk_run_token(s->run_count, out + done);
}

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

bool chunk_decode(const uint8_t *data, size_t size, int64_t first_ms, size_t sample_count,
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
