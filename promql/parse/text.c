/*
 * Text as Go prints and reads it. The forms are those of strconv.Quote, fmt's %q and %#U, and of
 * Prometheus's durations; clients compare such texts, so they are followed to the letter.
 */
#include "promql/parse/text_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/float_text.h"
#include "base/unicode.h"
#include "engine/labels.h"
#include "promql/ast.h"

int32_t rune_decode(struct str text, unsigned *width)
{
    *width = 0;
    return text.size == 0 ? RUNE_EOF : (int32_t)utf8_decode(text, width);
}

static unsigned rune_encode(int32_t rune, char *out)
{
    uint32_t r = (uint32_t)rune;

    if (rune < 0 || r > 0x10FFFF || (r >= 0xD800 && r < 0xE000))
        r = RUNE_ERROR;
    if (r < 0x80) {
        out[0] = (char)r;
        return 1;
    }
    if (r < 0x800) {
        out[0] = (char)(0xC0 | r >> 6);
        out[1] = (char)(0x80 | (r & 0x3F));
        return 2;
    }
    if (r < 0x10000) {
        out[0] = (char)(0xE0 | r >> 12);
        out[1] = (char)(0x80 | (r >> 6 & 0x3F));
        out[2] = (char)(0x80 | (r & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | r >> 18);
    out[1] = (char)(0x80 | (r >> 12 & 0x3F));
    out[2] = (char)(0x80 | (r >> 6 & 0x3F));
    out[3] = (char)(0x80 | (r & 0x3F));
    return 4;
}

/* The inside of the character's quoted form, as str_quote() decides it; `writer` holds it. */
static struct str rune_escape(int32_t rune, struct byte_writer *writer)
{
    char encoded[4];
    unsigned n = rune_encode(rune, encoded);

    writer_init(writer);
    str_quote(writer, (struct str){encoded, n});
    if (writer->failed || writer->size < 2)
        return (struct str){NULL, 0};
    return (struct str){(char *)writer->data + 1, writer->size - 2};
}

void rune_quote(int32_t rune, char out[RUNE_TEXT_SIZE])
{
    struct byte_writer w;
    struct str escaped = rune_escape(rune, &w);

    /* Which quote needs the backslash depends on the quotes around it. */
    if (rune == '\'' || rune == '"')
        escaped = rune == '"' ? STR_LITERAL("\"") : STR_LITERAL("\\'");
    (void)snprintf(out, RUNE_TEXT_SIZE, "'%.*s'", STR_ARGS(escaped));
    writer_done(&w);
}

void rune_format_unicode(int32_t rune, char out[RUNE_TEXT_SIZE])
{
    struct byte_writer w;
    char encoded[4];
    struct str plain = {encoded, rune_encode(rune, encoded)};
    struct str escaped = rune_escape(rune, &w);
    bool printable = str_equal(plain, escaped) || rune == '"' || rune == '\\';
    int n = snprintf(out, RUNE_TEXT_SIZE, "U+%04" PRIX32, (uint32_t)rune);

    if (printable)
        (void)snprintf(out + n, (size_t)(RUNE_TEXT_SIZE - n), " '%.*s'", STR_ARGS(plain));
    writer_done(&w);
}

const char *text_quote(struct str text, struct arena *arena)
{
    struct byte_writer w;
    const char *out = NULL;

    writer_init(&w);
    str_quote(&w, text);
    if (!w.failed)
        out = arena_memdup0(arena, w.data, w.size);
    writer_done(&w);
    return out != NULL ? out : "\"...\"";
}

/* Reads `count` digits of `base` from *p; false when there are not that many. */
static bool read_digits(struct str *s, unsigned count, unsigned base, uint32_t *out)
{
    uint32_t v = 0;

    if (s->size < count)
        return false;
    for (unsigned i = 0; i < count; i++) {
        int digit = hex_digit_value(s->data[i]);

        if (digit < 0 || (unsigned)digit >= base)
            return false;
        v = v * base + (uint32_t)digit;
    }
    s->data += count;
    s->size -= count;
    *out = v;
    return true;
}

/* What follows a backslash; writes 1 to 4 bytes. */
static bool unescape(struct str *s, char quote, char *out, unsigned *out_size)
{
    static const char letters[] = "abfnrtv\\";
    static const char values[] = "\a\b\f\n\r\t\v\\";
    char c = s->data[0];
    const char *letter = c == '\0' ? NULL : strchr(letters, c);
    uint32_t v;

    *out_size = 1;
    if (letter != NULL || c == quote) {
        out[0] = quote;
        if (letter != NULL)
            out[0] = values[letter - letters];
        s->data++;
        s->size--;
        return true;
    }
    if (c >= '0' && c <= '7') {
        if (!read_digits(s, 3, 8, &v) || v > 255)
            return false;
        out[0] = (char)v;
        return true;
    }
    s->data++;
    s->size--;
    if (c == 'x') {
        if (!read_digits(s, 2, 16, &v))
            return false;
        out[0] = (char)v;
        return true;
    }
    if ((c != 'u' && c != 'U') || !read_digits(s, c == 'u' ? 4 : 8, 16, &v) || v > 0x10FFFF)
        return false;
    *out_size = rune_encode((int32_t)v, out);
    return true;
}

enum err text_unquote(struct str literal, struct arena *arena, struct str *out)
{
    struct str s;
    char quote, *text;
    size_t n = 0;

    if (literal.size < 2 || literal.data[0] != literal.data[literal.size - 1])
        return ERR_INVALID;
    quote = literal.data[0];
    s = (struct str){literal.data + 1, literal.size - 2};
    text = arena_alloc(arena, s.size + 1);
    if (text == NULL)
        return arena_error(arena, NULL);
    while (s.size > 0) {
        unsigned size = 1;

        if (s.data[0] == quote || (quote != '`' && s.data[0] == '\n'))
            return ERR_INVALID;
        if (quote == '`' || s.data[0] != '\\') {
            text[n++] = *s.data++;
            s.size--;
            continue;
        }
        s.data++;
        s.size--;
        /* An escape never writes more bytes than it takes, so `text` is large enough. */
        if (s.size == 0 || !unescape(&s, quote, text + n, &size))
            return ERR_INVALID;
        n += size;
    }
    text[n] = '\0';
    *out = (struct str){text, n};
    return ERR_OK;
}

size_t duration_format(int64_t ms, char out[DURATION_TEXT_SIZE])
{
    static const struct {
        const char *name;
        int64_t ms;
        bool exact; /* only when nothing is left over: 90d reads better than 12w6d */
    } units[] = {
        {"y", 365LL * 24 * 3600 * 1000, true},
        {"w", 7LL * 24 * 3600 * 1000, true},
        {"d", 24LL * 3600 * 1000, false},
        {"h", 3600LL * 1000, false},
        {"m", 60LL * 1000, false},
        {"s", 1000, false},
        {"ms", 1, false},
    };
    size_t n = 0;

    if (ms == 0)
        return (size_t)snprintf(out, DURATION_TEXT_SIZE, "0s");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if ((units[i].exact && ms % units[i].ms != 0) || ms / units[i].ms <= 0)
            continue;
        n += (size_t)snprintf(out + n, DURATION_TEXT_SIZE - n, "%" PRId64 "%s", ms / units[i].ms,
                              units[i].name);
        ms %= units[i].ms;
    }
    return n;
}

struct duration_unit {
    const char *name;
    unsigned rank; /* units must come in this order, each at most once */
    uint64_t ns;
};

static const struct duration_unit *duration_unit_find(struct str name)
{
    static const struct duration_unit units[] = {
        {"y", 1, 365ULL * 24 * 3600 * 1000000000},
        {"w", 2, 7ULL * 24 * 3600 * 1000000000},
        {"d", 3, 24ULL * 3600 * 1000000000},
        {"h", 4, 3600ULL * 1000000000},
        {"m", 5, 60ULL * 1000000000},
        {"s", 6, 1000000000},
        {"ms", 7, 1000000},
    };

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (str_equal(name, str_from(units[i].name)))
            return &units[i];
    }
    return NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

enum duration_fault { DURATION_OK, DURATION_MALFORMED, DURATION_UNKNOWN_UNIT, DURATION_TOO_LARGE };

/* Takes one number with its unit off *rest. */
static enum duration_fault duration_part_parse(struct str *rest, unsigned *rank, uint64_t *total,
                                               struct str *unit_name)
{
    const struct duration_unit *unit;
    uint64_t v = 0;
    size_t i = 0, unit_start;

    for (; i < rest->size && is_digit(rest->data[i]); i++) {
        if (__builtin_mul_overflow(v, 10U, &v) ||
            __builtin_add_overflow(v, (uint64_t)(rest->data[i] - '0'), &v))
            return DURATION_MALFORMED;
    }
    unit_start = i;
    while (i < rest->size && !is_digit(rest->data[i]))
        i++;
    if (unit_start == 0 || i == unit_start)
        return DURATION_MALFORMED;
    *unit_name = (struct str){rest->data + unit_start, i - unit_start};
    unit = duration_unit_find(*unit_name);
    if (unit == NULL)
        return DURATION_UNKNOWN_UNIT;
    if (unit->rank <= *rank)
        return DURATION_MALFORMED;
    if (v > ((uint64_t)1 << 63) / unit->ns || *total + v * unit->ns > INT64_MAX)
        return DURATION_TOO_LARGE;
    *rank = unit->rank;
    *total += v * unit->ns;
    rest->data += i;
    rest->size -= i;
    return DURATION_OK;
}

static const char *duration_fault_text(enum duration_fault fault, struct str text, struct str unit,
                                       struct arena *arena)
{
    const char *reason;

    if (fault == DURATION_TOO_LARGE)
        return "duration out of range";
    if (fault == DURATION_UNKNOWN_UNIT)
        reason = arena_printf(arena, "unknown unit %s in duration %s", text_quote(unit, arena),
                              text_quote(text, arena));
    else
        reason = arena_printf(arena, "not a valid duration string: %s", text_quote(text, arena));
    return reason != NULL ? reason : "not a valid duration string";
}

bool duration_parse_ns(struct str text, struct arena *arena, uint64_t *out_ns, const char **reason)
{
    struct str rest = text, unit = {NULL, 0};
    unsigned rank = 0;
    uint64_t total = 0;

    if (text.size == 0) {
        *reason = "empty duration string";
        return false;
    }
    while (rest.size > 0 && !str_equal(text, STR_LITERAL("0"))) {
        enum duration_fault fault = duration_part_parse(&rest, &rank, &total, &unit);

        if (fault != DURATION_OK) {
            *reason = duration_fault_text(fault, text, unit, arena);
            return false;
        }
    }
    *out_ns = total;
    return true;
}

enum err promql_duration_parse(struct str text, int64_t *out_ms, struct errinfo *ei)
{
    struct arena arena;
    const char *reason = NULL;
    uint64_t ns = 0;
    enum err e = ERR_OK;

    arena_init(&arena, NULL);
    if (duration_parse_ns(text, &arena, &ns, &reason))
        *out_ms = (int64_t)(ns / 1000000);
    else
        e = errinfo_set(ei, ERR_INVALID, 0, "%s", reason);
    arena_done(&arena);
    return e;
}

void promql_position_text(struct str text, uint32_t offset, char *out, size_t out_size)
{
    size_t line = 1, line_start = 0;

    if (text.size == 0) {
        (void)snprintf(out, out_size, "unknown position");
        return;
    }
    if (offset > text.size) {
        (void)snprintf(out, out_size, "invalid position");
        return;
    }
    for (size_t i = 0; i < offset; i++) {
        if (text.data[i] == '\n') {
            line++;
            line_start = i + 1;
        }
    }
    (void)snprintf(out, out_size, "%zu:%zu", line, offset - line_start + 1);
}
