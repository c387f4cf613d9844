#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"

enum { VARINT_SIZE_MAX = 10 };

uint64_t reader_varint_slow(struct byte_reader *r)
{
    const uint8_t *p = r->pos;
    size_t left = r->failed ? 0 : reader_left(r);
    size_t limit = left < VARINT_SIZE_MAX ? left : VARINT_SIZE_MAX;
    uint64_t v = 0;

    for (size_t i = 0; i < limit; i++) {
        uint8_t b = p[i];

        /* The tenth byte holds bit 63 alone; more would be bits past the 64th. */
        if (i == VARINT_SIZE_MAX - 1 && b > 1)
            break;
        v |= (uint64_t)(b & 0x7f) << (7 * i);
        if (b < 0x80) {
            r->pos = p + i + 1;
            return v;
        }
    }
    r->failed = true;
    return 0;
}

void writer_init(struct byte_writer *w)
{
    *w = (struct byte_writer){0};
}

void writer_done(struct byte_writer *w)
{
    free(w->data);
    *w = (struct byte_writer){0};
}

void writer_reset(struct byte_writer *w)
{
    w->size = 0;
    w->failed = false;
}

static bool writer_grow(struct byte_writer *w, size_t size)
{
    size_t needed, capacity = w->capacity < 64 ? 64 : w->capacity;

    if (__builtin_add_overflow(w->size, size, &needed))
        return false;
    while (capacity < needed) {
        if (capacity > SIZE_MAX / 2)
            return false;
        capacity *= 2;
    }
    uint8_t *data = realloc(w->data, capacity);
    if (data == NULL)
        return false;
    w->data = data;
    w->capacity = capacity;
    return true;
}

uint8_t *writer_reserve(struct byte_writer *w, size_t size)
{
    if (UNLIKELY(w->failed))
        return NULL;
    if (UNLIKELY(w->data == NULL || size > w->capacity - w->size) && !writer_grow(w, size)) {
        w->failed = true;
        return NULL;
    }
    return w->data + w->size;
}

void writer_append(struct byte_writer *w, const void *data, size_t size)
{
    uint8_t *p = writer_reserve(w, size);

    if (p == NULL || size == 0)
        return;
    memcpy(p, data, size);
    w->size += size;
}

void writer_u8(struct byte_writer *w, uint8_t v)
{
    writer_append(w, &v, sizeof v);
}

/* Little-endian hosts only, as everywhere in this code: see the check in checksum.c. */
void writer_le16(struct byte_writer *w, uint16_t v)
{
    writer_append(w, &v, sizeof v);
}

void writer_le32(struct byte_writer *w, uint32_t v)
{
    writer_append(w, &v, sizeof v);
}

void writer_le64(struct byte_writer *w, uint64_t v)
{
    writer_append(w, &v, sizeof v);
}

void writer_varint(struct byte_writer *w, uint64_t v)
{
    uint8_t *p = writer_reserve(w, VARINT_SIZE_MAX);

    if (p != NULL)
        w->size += varint_write(p, v);
}

void writer_str(struct byte_writer *w, struct str s)
{
    writer_varint(w, s.size);
    writer_append(w, s.data, s.size);
}

void writer_printf(struct byte_writer *w, const char *format, ...)
{
    va_list args;
    size_t room = 128; /* most texts fit: one formatting pass */

    for (;;) {
        uint8_t *p = writer_reserve(w, room);
        if (p == NULL)
            return;
        va_start(args, format);
        /* NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm of clang-tidy 14 */
        int n = vsnprintf((char *)p, room, format, args);
        va_end(args);
        ASSERT(n >= 0); /* our formats contain nothing that can fail to convert */
        if ((size_t)n < room) {
            w->size += (size_t)n;
            return;
        }
        room = (size_t)n + 1;
    }
}
