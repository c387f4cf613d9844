/*
 * One event is one write(2) of one line, built in a buffer on the stack: no lock, no allocation, so
 * that logging works when memory has run out. A line that does not fit is cut; the fields that do
 * not fit are left out whole.
 */
#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/float_text.h"

enum { LOG_LINE_SIZE = 8 << 10 };

/* Process-wide since the log is: one standard error. Relaxed: set before threads start. */
static _Atomic int configured_level = LOG_LEVEL_INFO;
static _Atomic int configured_format = LOG_FORMAT_LOGFMT;

struct log_line {
    char text[LOG_LINE_SIZE];
    size_t size;
    bool full; /* sticky: nothing more is added */
    enum log_format format;
};

void log_configure(enum log_level level, enum log_format format)
{
    atomic_store_explicit(&configured_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&configured_format, (int)format, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&configured_level, memory_order_relaxed);
}

static void line_append(struct log_line *line, const char *text, size_t size)
{
    /* Room for the closing "}" and newline stays. */
    if (line->full || size > sizeof line->text - 2 - line->size) {
        line->full = true;
        return;
    }
    memcpy(line->text + line->size, text, size);
    line->size += size;
}

static void line_append0(struct log_line *line, const char *text)
{
    line_append(line, text, strlen(text));
}

/* Inside quotes, for both formats: control characters would break the line or the terminal. */
static void line_append_escaped(struct log_line *line, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        char escaped[8];

        if (c == '"' || c == '\\') {
            escaped[0] = '\\';
            escaped[1] = (char)c;
            line_append(line, escaped, 2);
        } else if (c == '\n') {
            line_append(line, "\\n", 2);
        } else if (c < 0x20 || c == 0x7f) {
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", c); /* always fits */
            line_append0(line, escaped);
        } else {
            line_append(line, (const char *)text, 1);
        }
    }
}

/* logfmt leaves plain words bare, which keeps lines readable. */
static bool needs_quotes(const char *text)
{
    if (*text == '\0')
        return true;
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c <= 0x20 || c == 0x7f || c == '"' || c == '\\' || c == '=')
            return true;
    }
    return false;
}

static void line_append_string(struct log_line *line, const char *text)
{
    if (line->format == LOG_FORMAT_LOGFMT && !needs_quotes(text)) {
        line_append0(line, text);
        return;
    }
    line_append(line, "\"", 1);
    line_append_escaped(line, text);
    line_append(line, "\"", 1);
}

static void line_append_key(struct log_line *line, const char *key)
{
    if (line->format == LOG_FORMAT_JSON) {
        line_append0(line, line->size == 0 ? "{\"" : ",\"");
        line_append_escaped(line, key);
        line_append(line, "\":", 2);
        return;
    }
    if (line->size != 0)
        line_append(line, " ", 1);
    line_append0(line, key);
    line_append(line, "=", 1);
}

static void line_append_value(struct log_line *line, const struct log_field *field)
{
    char number[FLOAT_TEXT_SIZE];

    switch (field->kind) {
    case LOG_FIELD_STR:
        line_append_string(line, field->value.str != NULL ? field->value.str : "");
        return;
    case LOG_FIELD_BOOL:
        line_append0(line, field->value.boolean ? "true" : "false");
        return;
    case LOG_FIELD_I64:
        (void)snprintf(number, sizeof number, "%" PRId64, field->value.i64);
        break;
    case LOG_FIELD_U64:
        (void)snprintf(number, sizeof number, "%" PRIu64, field->value.u64);
        break;
    case LOG_FIELD_F64:
        (void)float_format_g(field->value.f64, number); /* the length is not needed */
        if (!isfinite(field->value.f64)) {              /* not a JSON number */
            line_append_string(line, number);
            return;
        }
        break;
    }
    line_append0(line, number);
}

static void line_append_field(struct log_line *line, const struct log_field *field)
{
    size_t before = line->size;

    line_append_key(line, field->key);
    line_append_value(line, field);
    if (line->full)
        line->size = before; /* half a field would break the format */
}

static void format_now(char *out, size_t size)
{
    struct clock real;
    struct tm tm;
    int64_t now_ms;
    time_t now_s;

    clock_init_real(&real); /* a log line tells when it was written, whatever tests pretend */
    now_ms = clock_now_ms(&real);
    now_s = (time_t)(now_ms / 1000);
    (void)gmtime_r(&now_s, &tm);
    size_t n = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, size - n, ".%03dZ", (int)(now_ms % 1000)); /* always fits */
}

void log_event(enum log_level level, const char *message, const struct log_field *fields,
               size_t field_count)
{
    static const char *const level_names[] = {"debug", "info", "warn", "error"};
    struct log_line line = {
        .format = (enum log_format)atomic_load_explicit(&configured_format, memory_order_relaxed)};
    char now[64];

    format_now(now, sizeof now);
    line_append_field(&line, &LOG_STR("ts", now));
    line_append_field(&line, &LOG_STR("level", level_names[level]));
    line_append_field(&line, &LOG_STR("msg", message));
    for (size_t i = 0; i < field_count; i++)
        line_append_field(&line, &fields[i]);
    if (line.format == LOG_FORMAT_JSON)
        line.text[line.size++] = '}'; /* line_append() left room for this and the newline */
    line.text[line.size++] = '\n';
    /* There is nowhere to report a failing standard error to. */
    ssize_t ignored = write(STDERR_FILENO, line.text, line.size);
    (void)ignored;
}
