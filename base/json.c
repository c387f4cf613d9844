#include "base/json.h"

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

size_t json_format_sample_time(int64_t t_ms, char out[JSON_TIME_SIZE])
{
    uint64_t ms = t_ms < 0 ? 0 - (uint64_t)t_ms : (uint64_t)t_ms;
    uint64_t fraction = ms % 1000;
    size_t used = 0;

    if (t_ms < 0)
        out[used++] = '-';
    used += uint_format(ms / 1000, out + used);
    if (fraction != 0) {
        out[used++] = '.';
        out[used++] = (char)('0' + fraction / 100);
        out[used++] = (char)('0' + fraction / 10 % 10);
        out[used++] = (char)('0' + fraction % 10);
    }
    return used;
}

size_t json_format_time(int64_t t_ms, char out[JSON_TIME_SIZE])
{
    size_t used = json_format_sample_time(t_ms, out);

    while (t_ms % 1000 != 0 && out[used - 1] == '0')
        used--;
    return used;
}

void json_write_sample_time(struct byte_writer *w, int64_t t_ms)
{
    char text[JSON_TIME_SIZE];

    writer_append(w, text, json_format_sample_time(t_ms, text));
}

void json_write_time(struct byte_writer *w, int64_t t_ms)
{
    char text[JSON_TIME_SIZE];

    writer_append(w, text, json_format_time(t_ms, text));
}

void json_write_number(struct byte_writer *w, double value)
{
    char text[FLOAT_TEXT_SIZE];

    writer_append(w, text, float_format_json(value, text));
}
