/*
 * Text rules of the data model: UTF-8, legacy label names, and Go's quoting.
 */
#include <string.h>

#include "engine/labels.h"
#include "engine/labels/unicode_print_internal.h"

/* Length of the well-formed sequence at p, 0 if there is none. The table of RFC 3629: what the
 * second byte may be depends on the first (no over-long forms, surrogates, or past U+10FFFF). */
static size_t sequence_size(const uint8_t *p, size_t left)
{
    uint8_t low = 0x80;
    uint8_t high = 0xbf;
    size_t size;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    size = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (size > left || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return size;
}

bool utf8_is_valid(struct str text)
{
    const uint8_t *p = (const uint8_t *)text.data;
    size_t left = text.size;

    while (left > 0) {
        uint64_t word;
        size_t n;

        /* Eight ASCII bytes at a time: nearly all label text. */
        if (left >= sizeof word) {
            memcpy(&word, p, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                p += sizeof word;
                left -= sizeof word;
                continue;
            }
        }
        n = sequence_size(p, left);
        if (n == 0)
            return false;
        p += n;
        left -= n;
    }
    return true;
}

bool label_name_is_legacy(struct str name)
{
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return name.size != 0;
}

static uint32_t decode(const uint8_t *p, size_t size)
{
    static const uint8_t LEAD_MASK[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t r = p[0] & LEAD_MASK[size];

    for (size_t i = 1; i < size; i++)
        r = r << 6 | (p[i] & 0x3f);
    return r;
}

static bool is_printable(uint32_t r)
{
    size_t low = 0;
    size_t high = sizeof UNICODE_PRINT_RANGES / sizeof UNICODE_PRINT_RANGES[0];

    if (r < 0x7f)
        return r >= ' ';
    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (UNICODE_PRINT_RANGES[mid][1] < r)
            low = mid + 1;
        else
            high = mid;
    }
    return low < sizeof UNICODE_PRINT_RANGES / sizeof UNICODE_PRINT_RANGES[0] &&
           UNICODE_PRINT_RANGES[low][0] <= r;
}

/* The letter of a short escape, or 0. */
static char short_escape(uint32_t r)
{
    static const char LETTERS[] = "abtnvfr"; /* 7 .. 13 */

    if (r >= 7 && r <= 13)
        return LETTERS[r - 7];
    return (char)(r == '"' || r == '\\' ? r : 0);
}

static void quote_rune(struct byte_writer *w, const uint8_t *p, size_t size)
{
    uint32_t r = decode(p, size);
    char letter = short_escape(r);

    if (letter != 0)
        writer_printf(w, "\\%c", letter);
    else if (is_printable(r))
        writer_append(w, p, size);
    else if (r < ' ' || r == 0x7f)
        writer_printf(w, "\\x%02x", r);
    else if (r < 0x10000)
        writer_printf(w, "\\u%04x", r);
    else
        writer_printf(w, "\\U%08x", r);
}

void str_quote(struct byte_writer *w, struct str text)
{
    const uint8_t *p = (const uint8_t *)text.data;
    size_t plain = 0; /* printable ASCII not yet written */

    writer_u8(w, '"');
    for (size_t i = 0; i < text.size;) {
        size_t n;

        if (p[i] >= ' ' && p[i] < 0x7f && p[i] != '"' && p[i] != '\\') {
            plain++;
            i++;
            continue;
        }
        writer_append(w, p + i - plain, plain);
        plain = 0;
        n = sequence_size(p + i, text.size - i);
        if (n == 0)
            writer_printf(w, "\\x%02x", p[i]);
        else
            quote_rune(w, p + i, n);
        i += n == 0 ? 1 : n;
    }
    if (plain > 0) /* the text may be empty and its data NULL */
        writer_append(w, p + text.size - plain, plain);
    writer_u8(w, '"');
}
