#include "base/unicode.h"

#include <stddef.h>

#include "base/unicode_tables_internal.h"

enum {
    SURROGATE_FIRST = 0xD800,
    SURROGATE_LAST = 0xDFFF,
    CODE_POINT_LAST = 0x10FFFF,
};

uint32_t utf8_decode(struct str text, unsigned *width)
{
    const uint8_t *p = (const uint8_t *)text.data;
    uint32_t c, smallest;
    unsigned need;

    *width = 1;
    if (p[0] < 0x80)
        return p[0];
    if (p[0] >= 0xC2 && p[0] < 0xE0)
        need = 2, c = p[0] & 0x1F, smallest = 0x80;
    else if (p[0] >= 0xE0 && p[0] < 0xF0)
        need = 3, c = p[0] & 0x0F, smallest = 0x800;
    else if (p[0] >= 0xF0 && p[0] < 0xF5)
        need = 4, c = p[0] & 0x07, smallest = 0x10000;
    else
        return UNICODE_REPLACEMENT;
    if (text.size < need)
        return UNICODE_REPLACEMENT;
    for (unsigned i = 1; i < need; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return UNICODE_REPLACEMENT;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < smallest || c > CODE_POINT_LAST || (c >= SURROGATE_FIRST && c <= SURROGATE_LAST))
        return UNICODE_REPLACEMENT;
    *width = need;
    return c;
}

bool unicode_is_letter_or_digit(uint32_t c)
{
    size_t low = 0, high = sizeof UNICODE_WORD_RANGES / sizeof UNICODE_WORD_RANGES[0];

    if (c < 0x80)
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c > UNICODE_WORD_RANGES[middle].last)
            low = middle + 1;
        else if (c < UNICODE_WORD_RANGES[middle].first)
            high = middle;
        else
            return true;
    }
    return false;
}

/* Ranges of different strides may lie inside each other by one, so all that begin at or before `c`
 * within the longest range are looked at: there are few. */
static uint32_t case_map(const struct unicode_case *ranges, size_t count, uint32_t c)
{
    for (size_t i = 0; i < count && ranges[i].first <= c; i++) {
        if (c <= ranges[i].last && (c - ranges[i].first) % ranges[i].stride == 0)
            return (uint32_t)((int64_t)c + ranges[i].delta);
    }
    return c;
}

uint32_t unicode_lower(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    return case_map(UNICODE_LOWER_RANGES,
                    sizeof UNICODE_LOWER_RANGES / sizeof UNICODE_LOWER_RANGES[0], c);
}

uint32_t unicode_upper(uint32_t c)
{
    if (c < 0x80)
        return c >= 'a' && c <= 'z' ? c - ('a' - 'A') : c;
    return case_map(UNICODE_UPPER_RANGES,
                    sizeof UNICODE_UPPER_RANGES / sizeof UNICODE_UPPER_RANGES[0], c);
}

void utf8_write(struct byte_writer *w, uint32_t c)
{
    if (c < 0x80) {
        writer_u8(w, (uint8_t)c);
    } else if (c < 0x800) {
        writer_u8(w, (uint8_t)(0xC0 | c >> 6));
        writer_u8(w, (uint8_t)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        writer_u8(w, (uint8_t)(0xE0 | c >> 12));
        writer_u8(w, (uint8_t)(0x80 | (c >> 6 & 0x3F)));
        writer_u8(w, (uint8_t)(0x80 | (c & 0x3F)));
    } else {
        writer_u8(w, (uint8_t)(0xF0 | c >> 18));
        writer_u8(w, (uint8_t)(0x80 | (c >> 12 & 0x3F)));
        writer_u8(w, (uint8_t)(0x80 | (c >> 6 & 0x3F)));
        writer_u8(w, (uint8_t)(0x80 | (c & 0x3F)));
    }
}

static void map_write(struct byte_writer *w, struct str text, uint32_t (*map)(uint32_t c))
{
    while (text.size > 0) {
        unsigned width = 0;

        utf8_write(w, map(utf8_decode(text, &width)));
        text.data += width;
        text.size -= width;
    }
}

void unicode_lower_write(struct byte_writer *w, struct str text)
{
    map_write(w, text, unicode_lower);
}

void unicode_upper_write(struct byte_writer *w, struct str text)
{
    map_write(w, text, unicode_upper);
}
