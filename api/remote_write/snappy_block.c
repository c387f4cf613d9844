/*
 * https://github.com/google/snappy/blob/main/format_description.txt
 *
 *   block: varint of the content's length, then elements; the low bits of the first byte say which
 *   llllll00              literal of l + 1 bytes; l = 60..63: of the length in the next 1..4 bytes,
 * + 1 hhhlll01 oooooooo     copy of l + 4 bytes from `ho` back llllll10 2 bytes      copy of l + 1
 * bytes from that far back llllll11 4 bytes      the same
 *
 * Requests are mostly copies of up to 64 bytes, seven elements a sample, and which comes next can
 * be guessed well by the processor. So elements are told apart by branches, which need not wait for
 * one another, and every copy moves 64 bytes however few count: what is too much is overwritten by
 * the next. Near either end, and for what is rare, elements are taken byte by byte.
 */
#include "api/remote_write/snappy_block_internal.h"

#include <string.h>

#include "base/assert.h"

enum {
    KIND_LITERAL = 0,
    KIND_COPY1 = 1,
    KIND_COPY2 = 2,
    KIND_COPY4 = 3,
    SHORT_LITERAL_MAX = 60,
    COPY_MAX = 64,
    ELEMENT_BYTES_MAX = 1 + COPY_MAX, /* what is read of the block for a short literal */
    LENGTH_BYTES_MAX = 5,
};

struct decoder {
    const uint8_t *in, *in_end;
    uint8_t *out, *out_begin, *out_end;
};

bool snappy_block_length(struct bytes block, size_t *out)
{
    uint64_t v = 0;

    for (size_t i = 0; i < block.size && i < LENGTH_BYTES_MAX; i++) {
        v |= (uint64_t)(block.data[i] & 0x7f) << (7 * i);
        if (block.data[i] < 0x80) {
            *out = (size_t)v;
            return v <= UINT32_MAX;
        }
    }
    return false;
}

static inline uint32_t load_le(const uint8_t *p, size_t size)
{
    uint32_t v = 0;

    memcpy(&v, p, size); /* the product is little-endian throughout */
    return v;
}

static bool literal_take(struct decoder *d, size_t length)
{
    if (length > (size_t)(d->in_end - d->in) || length > (size_t)(d->out_end - d->out))
        return false;
    memcpy(d->out, d->in, length);
    d->in += length;
    d->out += length;
    return true;
}

static bool copy_take(struct decoder *d, size_t length, size_t offset)
{
    if (offset == 0 || offset > (size_t)(d->out - d->out_begin) ||
        length > (size_t)(d->out_end - d->out))
        return false;
    for (; length > 0; length--, d->out++)
        *d->out = *(d->out - offset); /* may overlap: then it repeats what it has just written */
    return true;
}

/* Takes one element of any kind anywhere. */
static bool element_take(struct decoder *d)
{
    static const uint8_t extra_bytes[] = {[KIND_COPY1] = 1, [KIND_COPY2] = 2, [KIND_COPY4] = 4};
    uint8_t tag = *d->in++;
    unsigned kind = tag & 3, high = tag >> 2;
    size_t extra = kind == KIND_LITERAL ? 0 : extra_bytes[kind];
    uint32_t v;

    if (kind == KIND_LITERAL && high >= SHORT_LITERAL_MAX)
        extra = high - SHORT_LITERAL_MAX + 1;
    if (extra > (size_t)(d->in_end - d->in))
        return false;
    v = load_le(d->in, extra);
    d->in += extra;
    if (kind == KIND_LITERAL)
        return literal_take(d, (size_t)(extra == 0 ? high : v) + 1);
    if (kind == KIND_COPY1)
        return copy_take(d, (high & 7) + 4, (size_t)(tag >> 5) << 8 | v);
    return copy_take(d, (size_t)high + 1, v);
}

typedef uint8_t piece __attribute__((vector_size(16)));

static inline void move16(uint8_t *to, const uint8_t *from)
{
    piece p;

    memcpy(&p, from, sizeof p);
    memcpy(to, &p, sizeof p);
}

/* All is read before anything is written, so that what stands between `from` and `to` arrives as it
 * was. */
static inline void move64(uint8_t *to, const uint8_t *from)
{
    piece a, b, c, d; /* an array would be written to the stack */

    memcpy(&a, from, sizeof a);
    memcpy(&b, from + sizeof a, sizeof b);
    memcpy(&c, from + 2 * sizeof a, sizeof c);
    memcpy(&d, from + 3 * sizeof a, sizeof d);
    memcpy(to, &a, sizeof a);
    memcpy(to + sizeof a, &b, sizeof b);
    memcpy(to + 2 * sizeof a, &c, sizeof c);
    memcpy(to + 3 * sizeof a, &d, sizeof d);
}

/* Takes elements while both ends are far, up to one that is rare. */
static void elements_take(struct decoder *d)
{
    const uint8_t *in = d->in, *in_end = d->in_end;
    uint8_t *out = d->out, *out_end = d->out_end, *const begin = d->out_begin;

    while (in_end - in >= ELEMENT_BYTES_MAX && out_end - out >= COPY_MAX) {
        uint32_t word = load_le(in, sizeof word);
        unsigned kind = word & 3;

        if (kind == KIND_COPY2) {
            size_t length = (word >> 2 & 63) + 1, offset = word >> 8 & 0xffff;

            if (UNLIKELY(offset < length || offset > (size_t)(out - begin)))
                break;
            move64(out, out - offset);
            in += 3;
            out += length;
        } else if (kind == KIND_LITERAL) {
            size_t length = (word >> 2 & 63) + 1;

            if (UNLIKELY(length > SHORT_LITERAL_MAX))
                break;
            move16(out, in + 1);
            if (UNLIKELY(length > sizeof(piece)))
                move64(out, in + 1);
            in += 1 + length;
            out += length;
        } else if (kind == KIND_COPY1) {
            size_t length = (word >> 2 & 7) + 4, offset = (word & 0xe0) << 3 | (word >> 8 & 0xff);

            if (UNLIKELY(offset < length || offset > (size_t)(out - begin)))
                break;
            move16(out, out - offset);
            in += 2;
            out += length;
        } else {
            break;
        }
    }
    d->in = in;
    d->out = out;
}

bool snappy_block_decode(struct bytes block, uint8_t *out, size_t size)
{
    struct decoder d = {
        .in = block.data,
        .in_end = block.data + block.size,
        .out = out,
        .out_begin = out,
        .out_end = size == 0 ? out : out + size, /* NULL + 0 is not allowed */
    };
    size_t length = 0;

    if (!snappy_block_length(block, &length) || length != size)
        return false;
    while (*d.in++ >= 0x80)
        ; /* the length ends within the block */
    while (d.in < d.in_end) {
        elements_take(&d);
        if (d.in < d.in_end && !element_take(&d))
            return false;
    }
    return d.out == d.out_end;
}
