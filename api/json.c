#include "api/json_internal.h"

#include <string.h>

#include "base/float_text.h"

void json_write_raw(struct byte_writer *w, const char *text)
{
    writer_append(w, text, strlen(text));
}

static void escape_write(struct byte_writer *w, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

    switch (c) {
    case '"':
    case '\\':
        text[1] = (char)c;
        writer_append(w, text, 2);
        break;
    case '\n':
        writer_append(w, "\\n", 2);
        break;
    case '\r':
        writer_append(w, "\\r", 2);
        break;
    case '\t':
        writer_append(w, "\\t", 2);
        break;
    default:
        writer_append(w, text, sizeof text);
    }
}

/* Length of the well-formed UTF-8 sequence at data, 0 if there is none (Unicode table 3-7). */
static size_t utf8_sequence(const unsigned char *data, size_t size)
{
    unsigned char c = data[0], low = 0x80, high = 0xbf;
    size_t length = 0;

    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    length = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (length > size)
        return 0;
    if (c == 0xe0)
        low = 0xa0;
    else if (c == 0xed)
        high = 0x9f;
    else if (c == 0xf0)
        low = 0x90;
    else if (c == 0xf4)
        high = 0x8f;
    if (data[1] < low || data[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((data[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

void json_write_string(struct byte_writer *w, struct str s)
{
    const unsigned char *data = (const unsigned char *)s.data;
    size_t start = 0, i = 0;

    writer_u8(w, '"');
    while (i < s.size) {
        size_t length = 1;

        if (data[i] >= 0x20 && data[i] < 0x80 && data[i] != '"' && data[i] != '\\') {
            i++;
            continue;
        }
        if (data[i] >= 0x80) {
            length = utf8_sequence(data + i, s.size - i);
            if (length != 0) {
                i += length;
                continue;
            }
        }
        writer_append(w, s.data + start, i - start);
        if (length == 0)
            json_write_raw(w, "\\ufffd");
        else
            escape_write(w, data[i]);
        start = ++i;
    }
    if (i > start)
        writer_append(w, s.data + start, i - start);
    writer_u8(w, '"');
}

/* Decimal digits of v, least significant last; returns how many. */
static size_t digits_write(char *out, uint64_t v)
{
    char reversed[20];
    size_t count = 0;

    do {
        reversed[count++] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    for (size_t i = 0; i < count; i++)
        out[i] = reversed[count - 1 - i];
    return count;
}

static size_t time_write(char *out, int64_t t_ms)
{
    uint64_t ms = t_ms < 0 ? 0 - (uint64_t)t_ms : (uint64_t)t_ms;
    uint64_t fraction = ms % 1000;
    size_t used = 0;

    if (t_ms < 0)
        out[used++] = '-';
    used += digits_write(out + used, ms / 1000);
    if (fraction != 0) {
        out[used++] = '.';
        out[used++] = (char)('0' + fraction / 100);
        if (fraction % 100 != 0)
            out[used++] = (char)('0' + fraction / 10 % 10);
        if (fraction % 10 != 0)
            out[used++] = (char)('0' + fraction % 10);
    }
    return used;
}

void json_write_time(struct byte_writer *w, int64_t t_ms)
{
    char text[32];

    writer_append(w, text, time_write(text, t_ms));
}

void json_write_labels(struct byte_writer *w, const struct labels *l)
{
    writer_u8(w, '{');
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0)
            writer_u8(w, ',');
        json_write_string(w, l->items[i].name);
        writer_u8(w, ':');
        json_write_string(w, l->items[i].value);
    }
    writer_u8(w, '}');
}

static void point_write(struct byte_writer *w, int64_t t_ms, double value,
                        size_t (*format)(double v, char *out))
{
    char *out = (char *)writer_reserve(w, FLOAT_TEXT_SIZE + 48);
    size_t used = 0;

    if (out == NULL)
        return;
    out[used++] = '[';
    used += time_write(out + used, t_ms);
    out[used++] = ',';
    out[used++] = '"';
    used += format(value, out + used);
    out[used++] = '"';
    out[used++] = ']';
    w->size += used;
}

void json_write_point(struct byte_writer *w, int64_t t_ms, double value)
{
    point_write(w, t_ms, value, float_format_json);
}

void json_write_point_f(struct byte_writer *w, int64_t t_ms, double value)
{
    point_write(w, t_ms, value, float_format_f);
}

void json_write_number(struct byte_writer *w, double value)
{
    char text[FLOAT_TEXT_SIZE];

    writer_append(w, text, float_format_json(value, text));
}
