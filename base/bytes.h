/*
 * Bounds-checked reading and growing writes of little-endian bytes and varints. No pointer steps
 * past the end: a short read sets the sticky `failed` flag and every later read returns 0.
 */
#ifndef RIMSTONE_BASE_BYTES_H
#define RIMSTONE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

/* A borrowed run of bytes; not NUL-terminated. */
struct bytes {
    const uint8_t *data;
    size_t size;
};

/* A borrowed piece of text; not NUL-terminated. `data` may be NULL when size is 0. */
struct str {
    const char *data;
    size_t size;
};

#define STR_LITERAL(text) ((struct str){(text), sizeof(text) - 1})
/* For printf's "%.*s". */
#define STR_ARGS(s) (int)(s).size, (s).data

static inline struct str str_from(const char *text)
{
    return (struct str){text, strlen(text)};
}
static inline bool str_equal(struct str a, struct str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}
/* Byte order, shorter first where one is a prefix: <0, 0, >0. */
static inline int str_compare(struct str a, struct str b)
{
    size_t n = a.size < b.size ? a.size : b.size;
    int c = n == 0 ? 0 : memcmp(a.data, b.data, n);

    if (c != 0)
        return c;
    return a.size < b.size ? -1 : a.size > b.size;
}

struct byte_reader {
    const uint8_t *pos, *end;
    bool failed; /* sticky: after the first short read every read returns 0 */
};

static inline struct byte_reader reader_init(const void *data, size_t size)
{
    const uint8_t *p = data;
    return (struct byte_reader){p, size == 0 ? p : p + size, false}; /* NULL + 0 is undefined */
}
static inline size_t reader_left(const struct byte_reader *r)
{
    return (size_t)(r->end - r->pos);
}
/* Borrows `size` bytes and steps over them; NULL and failed when there are fewer. */
static inline const uint8_t *reader_take(struct byte_reader *r, size_t size)
{
    const uint8_t *p = r->pos;

    if (r->failed || size > reader_left(r)) {
        r->failed = true;
        return NULL;
    }
    r->pos += size;
    return p;
}
#define READER_LE(name, type)                                                                      \
    static inline type name(struct byte_reader *r)                                                 \
    {                                                                                              \
        type v = 0;                                                                                \
        const uint8_t *p = reader_take(r, sizeof v);                                               \
        if (p != NULL)                                                                             \
            memcpy(&v, p, sizeof v);                                                               \
        return v;                                                                                  \
    }
READER_LE(reader_u8, uint8_t)
READER_LE(reader_le16, uint16_t)
READER_LE(reader_le32, uint32_t)
READER_LE(reader_le64, uint64_t)
#undef READER_LE

/* LEB128 of up to ten bytes. Over-long forms (padding zero groups) are accepted, as protobuf does;
 * bits past the 64th fail. */
uint64_t reader_varint_slow(struct byte_reader *r);
static inline uint64_t reader_varint(struct byte_reader *r)
{
    if (r->pos < r->end && *r->pos < 0x80 && !r->failed)
        return *r->pos++;
    return reader_varint_slow(r);
}
static inline int64_t zigzag_decode(uint64_t u)
{
    return (int64_t)(u >> 1) ^ -(int64_t)(u & 1);
}
static inline uint64_t zigzag_encode(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline double double_from_bits(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
static inline uint64_t double_bits(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* Writes at most ten bytes at `out`, returns how many. */
static inline size_t varint_write(uint8_t *out, uint64_t v)
{
    size_t n = 0;

    while (v >= 0x80) {
        out[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    out[n++] = (uint8_t)v;
    return n;
}

/* A growing buffer. A failed allocation is sticky (`failed`); the writer then drops what follows,
 * and the caller asks once at the end. */
struct byte_writer {
    uint8_t *data; /* owned; freed by writer_done() */
    size_t size, capacity;
    bool failed;
};

void writer_init(struct byte_writer *w);
void writer_done(struct byte_writer *w);
/* Keeps the memory, forgets the content and the failure. */
void writer_reset(struct byte_writer *w);
/* Room for `size` more bytes at the end; returns where they go, or NULL (failed is set). The caller
 * fills them and adds to w->size itself. */
uint8_t *writer_reserve(struct byte_writer *w, size_t size);
void writer_append(struct byte_writer *w, const void *data, size_t size);
void writer_u8(struct byte_writer *w, uint8_t v);
void writer_le16(struct byte_writer *w, uint16_t v);
void writer_le32(struct byte_writer *w, uint32_t v);
void writer_le64(struct byte_writer *w, uint64_t v);
void writer_varint(struct byte_writer *w, uint64_t v);
void writer_str(struct byte_writer *w, struct str s); /* varint length, bytes */
void writer_printf(struct byte_writer *w, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
