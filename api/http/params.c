#include "api/http/params_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/float_text.h"
#include "base/time_text.h"
#include "engine/labels.h"
#include "promql/ast.h"

enum err percent_decode(struct str text, bool plus_is_space, struct arena *arena, struct str *out,
                        struct errinfo *ei)
{
    char *decoded = arena_alloc(arena, text.size + 1);
    size_t used = 0;

    if (decoded == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];

        if (c == '%') {
            int high = i + 1 < text.size ? hex_digit_value(text.data[i + 1]) : -1;
            int low = i + 2 < text.size ? hex_digit_value(text.data[i + 2]) : -1;

            if (high < 0 || low < 0) {
                struct str bad = {text.data + i, text.size - i < 3 ? text.size - i : 3};

                return errinfo_set(ei, ERR_INVALID, 0, "invalid URL escape \"%.*s\"",
                                   STR_ARGS(bad));
            }
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        decoded[used++] = c;
    }
    decoded[used] = '\0';
    *out = (struct str){decoded, used};
    return ERR_OK;
}

static enum err param_add(struct params *p, struct str name, struct str value, struct arena *arena,
                          struct errinfo *ei)
{
    if (p->count >= PARAM_COUNT_MAX)
        return errinfo_set(ei, ERR_INVALID, 0, "more than %d parameters", PARAM_COUNT_MAX);
    if (p->count == p->capacity) {
        size_t capacity = p->capacity == 0 ? 8 : p->capacity * 2;
        struct param *grown =
            arena_grow_array(arena, p->items, p->capacity, capacity, sizeof *p->items);

        if (grown == NULL)
            return arena_error(arena, ei);
        p->items = grown;
        p->capacity = capacity;
    }
    p->items[p->count++] = (struct param){name, value};
    return ERR_OK;
}

enum err params_parse(struct params *p, struct str text, struct arena *arena, struct errinfo *ei)
{
    size_t pos = 0;

    while (pos < text.size) {
        const char *amp = memchr(text.data + pos, '&', text.size - pos);
        size_t end = amp == NULL ? text.size : (size_t)(amp - text.data);
        struct str pair = {text.data + pos, end - pos}, name = pair, value = {"", 0};
        const char *equal = pair.size == 0 ? NULL : memchr(pair.data, '=', pair.size);
        enum err e = ERR_OK;

        pos = end + 1;
        if (pair.size == 0)
            continue;
        if (memchr(pair.data, ';', pair.size) != NULL)
            return errinfo_set(ei, ERR_INVALID, 0, "invalid semicolon separator in query");
        if (equal != NULL) {
            name.size = (size_t)(equal - pair.data);
            value = (struct str){equal + 1, pair.size - name.size - 1};
        }
        e = percent_decode(name, true, arena, &name, ei);
        if (e == ERR_OK)
            e = percent_decode(value, true, arena, &value, ei);
        if (e == ERR_OK)
            e = param_add(p, name, value, arena, ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

struct str params_get(const struct params *p, const char *name)
{
    struct str wanted = str_from(name);

    for (size_t i = 0; i < p->count; i++)
        if (str_equal(p->items[i].name, wanted))
            return p->items[i].value;
    return (struct str){"", 0};
}

size_t params_count(const struct params *p, const char *name)
{
    struct str wanted = str_from(name);
    size_t count = 0;

    for (size_t i = 0; i < p->count; i++)
        count += str_equal(p->items[i].name, wanted);
    return count;
}

enum err param_duration_parse(struct str text, int64_t *out_ms, struct errinfo *ei)
{
    double seconds = 0;

    if (seconds_parse(text, &seconds)) {
        if (fabs(seconds) * 1e9 >= 0x1p63)
            return errinfo_set(ei, ERR_INVALID, 0,
                               "cannot parse \"%.*s\" to a valid duration. It overflows int64",
                               STR_ARGS(text));
        *out_ms = (int64_t)round(seconds * 1000);
        if (*out_ms == 0 && seconds > 0)
            *out_ms = 1;
        return ERR_OK;
    }
    if (promql_duration_parse(text, out_ms, NULL) == ERR_OK)
        return ERR_OK;
    return errinfo_set(ei, ERR_INVALID, 0, "cannot parse \"%.*s\" to a valid duration",
                       STR_ARGS(text));
}

enum err param_limit_parse(struct str text, size_t *out, struct errinfo *ei)
{
    uint64_t v = 0;
    size_t pos = 0;
    bool negative = false;

    if (text.size == 0) {
        *out = 0;
        return ERR_OK;
    }
    if (text.data[0] == '-' || text.data[0] == '+') {
        negative = text.data[0] == '-';
        pos = 1;
    }
    if (pos == text.size)
        goto not_a_number;
    for (; pos < text.size; pos++) {
        char c = text.data[pos];

        if (c < '0' || c > '9')
            goto not_a_number;
        if (v > (uint64_t)(INT64_MAX - (c - '0')) / 10)
            return errinfo_set(ei, ERR_INVALID, 0,
                               "strconv.Atoi: parsing \"%.*s\": value out of range",
                               STR_ARGS(text));
        v = v * 10 + (uint64_t)(c - '0');
    }
    if (negative && v > 0)
        return errinfo_set(ei, ERR_INVALID, 0, "limit must be non-negative");
    *out = (size_t)v;
    return ERR_OK;
not_a_number:
    return errinfo_set(ei, ERR_INVALID, 0, "strconv.Atoi: parsing \"%.*s\": invalid syntax",
                       STR_ARGS(text));
}

/* Writes a code point as UTF-8; 0 when it is none. */
static size_t utf8_write(char *out, uint32_t rune)
{
    if (rune < 0x80) {
        out[0] = (char)rune;
        return 1;
    }
    if (rune < 0x800) {
        out[0] = (char)(0xc0 | rune >> 6);
        out[1] = (char)(0x80 | (rune & 0x3f));
        return 2;
    }
    if (rune >= 0xd800 && rune < 0xe000)
        return 0;
    if (rune < 0x10000) {
        out[0] = (char)(0xe0 | rune >> 12);
        out[1] = (char)(0x80 | (rune >> 6 & 0x3f));
        out[2] = (char)(0x80 | (rune & 0x3f));
        return 3;
    }
    if (rune > 0x10ffff)
        return 0;
    out[0] = (char)(0xf0 | rune >> 18);
    out[1] = (char)(0x80 | (rune >> 12 & 0x3f));
    out[2] = (char)(0x80 | (rune >> 6 & 0x3f));
    out[3] = (char)(0x80 | (rune & 0x3f));
    return 4;
}

/* Reads the hexadecimal digits of `_1F600_` at *pos, past the first underscore; steps behind the
 * second. False when it is no such escape. */
static bool escape_read(struct str text, size_t *pos, uint32_t *out)
{
    uint32_t rune = 0;

    for (size_t digits = 0; *pos < text.size && digits < 6; digits++) {
        char c = text.data[(*pos)++];

        if (c == '_') {
            *out = rune;
            return true;
        }
        if (hex_digit_value(c) < 0)
            return false;
        rune = rune << 4 | (uint32_t)hex_digit_value(c);
    }
    return false; /* no underscore within six characters, as in Prometheus */
}

struct str label_name_unescape(struct str name, struct arena *arena)
{
    char *out = NULL;
    size_t used = 0, pos = 3;

    if (name.size < 3 || memcmp(name.data, "U__", 3) != 0)
        return name;
    out = arena_alloc(arena, name.size + 1);
    if (out == NULL)
        return (struct str){NULL, 0};
    while (pos < name.size) {
        uint32_t rune = 0;
        size_t size = 0;

        if (name.data[pos] != '_') {
            out[used++] = name.data[pos++];
            continue;
        }
        pos++;
        if (pos < name.size && name.data[pos] == '_') { /* "__" stands for one */
            out[used++] = '_';
            pos++;
            continue;
        }
        /* "_0_" is three bytes at least, so the longest rune for its digits always fits. */
        if (!escape_read(name, &pos, &rune))
            return name;
        size = utf8_write(out + used, rune);
        if (size == 0)
            return name;
        used += size;
    }
    out[used] = '\0';
    return (struct str){out, used};
}
