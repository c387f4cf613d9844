/*
 * The open chunk's codec: append-only, byte-oriented tokens, exact for every bit of every double.
 *
 * Half of all series are constant and most of the rest are integers or centiseconds that move by
 * little, so a sample is one or two bytes as a rule and a constant costs a counter. Values
 * are compared and kept as bits; a decimal form is used only where the very same division that the
 * decoder does gives the bits back. The tokens are listed in chunk_tokens_internal.h;
 * chunk_decode.c and chunk_decode_avx2.c read them.
 */
#include "engine/memtable/chunk_internal.h"

#include <string.h>

#include "base/bytes.h"
#include "engine/memtable/chunk_tokens_internal.h"

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
    memset(out + done, 0, CHUNK_TOKENS_SLACK);
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
    done += chunk_run_token(s->run_count, out + done);
    memset(out + done, 0, CHUNK_TOKENS_SLACK);
    return done;
}
