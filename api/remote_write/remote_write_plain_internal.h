/*
 * The layout in which every encoder writes labels and samples of a WriteRequest: one-byte tags and
 * lengths, name before value. What these do not take is not wrong, only unusual: remote_write_v1.c
 * has the general walker for it.
 */
#ifndef RIMSTONE_API_REMOTE_WRITE_REMOTE_WRITE_PLAIN_INTERNAL_H
#define RIMSTONE_API_REMOTE_WRITE_REMOTE_WRITE_PLAIN_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/remote_write/wire_internal.h"
#include "base/bytes.h"
#include "engine/write.h"

static inline uint16_t load_le16(const uint8_t *p)
{
    uint16_t v = 0;

    memcpy(&v, p, sizeof v); /* the product is little-endian throughout */
    return v;
}

static inline uint32_t load_le32(const uint8_t *p)
{
    uint32_t v = 0;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load_le64(const uint8_t *p)
{
    uint64_t v = 0;

    memcpy(&v, p, sizeof v);
    return v;
}

enum { PLAIN_SAMPLE_BYTES = 18, PLAIN_ZERO_BYTES = 9 };

/* The tags of a label and of its name, one byte apart, below sizes that fit seven bits. */
#define PLAIN_LABEL_HEAD 0x000a000aU

/*
 * The end of a label field of the common layout at `p`, or NULL:
 *   0x0a size 0x0a name_size name... 0x12 value_size value...      (every size below 128)
 * The four bytes before the name are looked at as one word, the two before the value too.
 */
static inline const uint8_t *plain_label_end(const uint8_t *p, const uint8_t *end)
{
    uint32_t head = 0;
    size_t size = 0, name_size = 0;

    if (end - p < 6)
        return NULL;
    head = load_le32(p);
    size = head >> 8 & 0x7f;
    name_size = head >> 24;
    if ((head & 0x80ff80ffU) != PLAIN_LABEL_HEAD || name_size + 4 > size ||
        size + 2 > (size_t)(end - p) ||
        load_le16(p + 4 + name_size) != (WIRE_TAG(2, WIRE_BYTES) | (size - name_size - 4) << 8))
        return NULL;
    return p + 2 + size;
}

static inline const uint8_t *plain_labels_skip(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *next = NULL;

    while ((next = plain_label_end(p, end)) != NULL)
        p = next;
    return p;
}

/*
 * The same for two series at once. Where a label ends is known only from the one before it, so a
 * single walk waits for its loads; two walks wait together.
 */
static inline void plain_labels_skip_two(const uint8_t **a, const uint8_t *a_end, const uint8_t **b,
                                         const uint8_t *b_end)
{
    const uint8_t *p = *a, *q = *b;

    for (;;) {
        const uint8_t *p_next = plain_label_end(p, a_end);
        const uint8_t *q_next = plain_label_end(q, b_end);

        if (p_next == NULL || q_next == NULL)
            break;
        p = p_next;
        q = q_next;
    }
    *a = plain_labels_skip(p, a_end);
    *b = plain_labels_skip(q, b_end);
}

/* Six bytes of a varint in the low 48 bits of `w`: every timestamp from 2004 to 2109. */
static inline bool varint6_read(uint64_t w, int64_t *out)
{
    if ((w & 0x808080808080U) != 0x008080808080U)
        return false;
    *out = (int64_t)((w & 0x7f) | (w >> 1 & 0x7fU << 7) | (w >> 2 & 0x7fU << 14) |
                     (w >> 3 & 0x7fU << 21) | (w >> 4 & (uint64_t)0x7f << 28) |
                     (w >> 5 & (uint64_t)0x7f << 35));
    return true;
}

/*
 * Reads one sample field of the common layouts and returns what follows it, or NULL:
 *   0x12 16 0x09 value[8] 0x10 timestamp[6]
 *   0x12  7 0x10 timestamp[6]                  a value of zero is left out by the encoder
 */
static inline const uint8_t *plain_sample_read(const uint8_t *p, const uint8_t *end,
                                               struct write_sample *out)
{
    if (end - p >= PLAIN_SAMPLE_BYTES && p[1] == 16) {
        if (p[0] != WIRE_TAG(2, WIRE_BYTES) || p[2] != WIRE_TAG(1, WIRE_FIXED64) ||
            p[11] != WIRE_TAG(2, WIRE_VARINT) || !varint6_read(load_le64(p + 10) >> 16, &out->t_ms))
            return NULL;
        out->value = double_from_bits(load_le64(p + 3));
        return p + PLAIN_SAMPLE_BYTES;
    }
    if (end - p >= PLAIN_ZERO_BYTES && p[1] == 7) {
        if (p[0] != WIRE_TAG(2, WIRE_BYTES) || p[2] != WIRE_TAG(2, WIRE_VARINT) ||
            !varint6_read(load_le64(p + 1) >> 16, &out->t_ms))
            return NULL;
        out->value = 0;
        return p + PLAIN_ZERO_BYTES;
    }
    return NULL;
}

/* Where the samples in the common layout at the end of a series begin, as far as its last bytes
 * tell: the end of a label may look like one. */
static inline const uint8_t *plain_samples_begin(struct bytes series)
{
    const uint8_t *begin = series.data + series.size;
    struct write_sample s;

    for (;;) {
        size_t before = (size_t)(begin - series.data);

        if (before >= PLAIN_SAMPLE_BYTES &&
            plain_sample_read(begin - PLAIN_SAMPLE_BYTES, begin, &s) == begin)
            begin -= PLAIN_SAMPLE_BYTES;
        else if (before >= PLAIN_ZERO_BYTES &&
                 plain_sample_read(begin - PLAIN_ZERO_BYTES, begin, &s) == begin)
            begin -= PLAIN_ZERO_BYTES;
        else
            return begin;
    }
}

#endif
