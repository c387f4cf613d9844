/*
 * Patterns are scanned once before RE2 sees them, for the two places where Prometheus's Go engine
 * and this RE2 differ: Go names groups with `(?<name>` as well, and RE2 has `\C`, one byte of a
 * character, which Go refuses. The scan knows escapes, \Q...\E and character classes, inside which
 * neither means anything.
 *
 * Anchoring is left to the match call, so that "a)(b" cannot close a group we wrapped around it.
 */
#include "base/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/regex_shim_internal.h"

struct regex {
    struct regex_shim *shim; /* owned */
    size_t pattern_bytes;
};

/* Steps over a character class that begins at `p` ('['); `end` when it is not closed. */
static const char *class_end(const char *p, const char *end)
{
    p++;
    if (p < end && *p == '^')
        p++;
    if (p < end && *p == ']') /* first: a member, not the end */
        p++;
    while (p < end && *p != ']') {
        if (*p == '\\' && end - p >= 2) {
            p += 2;
        } else if (end - p >= 2 && p[0] == '[' && p[1] == ':') { /* [:alpha:] */
            const char *close = memmem(p + 2, (size_t)(end - p - 2), ":]", 2);

            p = close != NULL ? close + 2 : p + 1;
        } else {
            p++;
        }
    }
    return p < end ? p + 1 : end;
}

/* Steps over \Q...\E; without \E it lasts to the end. */
static const char *quote_end(const char *p, const char *end)
{
    const char *close = memmem(p + 2, (size_t)(end - p - 2), "\\E", 2);

    return close != NULL ? close + 2 : end;
}

static bool begins_named_group(const char *p, const char *end)
{
    return end - p >= 4 && memcmp(p, "(?<", 3) == 0 && p[3] != '=' && p[3] != '!';
}

/* One unit of the pattern: what is copied as it is. */
static const char *unit_end(const char *p, const char *end)
{
    if (*p == '[')
        return class_end(p, end);
    if (*p == '\\' && end - p >= 2)
        return p[1] == 'Q' ? quote_end(p, end) : p + 2;
    return p + 1;
}

static enum err rewrite(struct str pattern, struct byte_writer *out, struct errinfo *ei)
{
    const char *p = pattern.data, *end = p + pattern.size;

    while (p < end) {
        if (begins_named_group(p, end)) {
            writer_append(out, "(?P<", 4);
            p += 3;
            continue;
        }
        if (*p == '\\' && end - p >= 2 && p[1] == 'C')
            return errinfo_set(ei, ERR_INVALID, 0, "invalid escape sequence: `\\C`");
        const char *next = unit_end(p, end);
        writer_append(out, p, (size_t)(next - p));
        p = next;
    }
    return out->failed ? errinfo_set(ei, ERR_NOMEM, 0, "regular expression") : ERR_OK;
}

static enum err compile(const struct byte_writer *pattern, struct regex_shim **out,
                        struct errinfo *ei)
{
    char error[ERRINFO_MESSAGE_SIZE / 2] = "";

    switch (regex_shim_new(pattern->data != NULL ? (const char *)pattern->data : "", pattern->size,
                           REGEX_MAX_MEMORY_BYTES, out, error, sizeof error)) {
    case REGEX_SHIM_OK:
        return ERR_OK;
    case REGEX_SHIM_INVALID:
        return errinfo_set(ei, ERR_INVALID, 0, "invalid regular expression: %s", error);
    case REGEX_SHIM_TOO_LARGE:
        return errinfo_set(ei, ERR_LIMIT, 0, "regular expression is too large when compiled");
    case REGEX_SHIM_NOMEM:
        break;
    }
    return errinfo_set(ei, ERR_NOMEM, 0, "regular expression");
}

enum err regex_compile(struct str pattern, struct regex **out, struct errinfo *ei)
{
    struct byte_writer rewritten;

    if (pattern.size > REGEX_MAX_PATTERN_BYTES)
        return errinfo_set(ei, ERR_LIMIT, 0,
                           "regular expression of %zu bytes: at most %d are taken", pattern.size,
                           (int)REGEX_MAX_PATTERN_BYTES);
    struct regex *re = malloc(sizeof *re);
    if (re == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "regular expression");
    re->shim = NULL;
    re->pattern_bytes = pattern.size;
    writer_init(&rewritten);
    enum err e = pattern.size > 0 ? rewrite(pattern, &rewritten, ei) : ERR_OK;
    if (e == ERR_OK)
        e = compile(&rewritten, &re->shim, ei);
    writer_done(&rewritten);
    if (e == ERR_OK)
        *out = TAKE(re);
    regex_free(re);
    return e;
}

void regex_free(struct regex *re)
{
    if (re == NULL)
        return;
    regex_shim_free(re->shim);
    free(re);
}

/* RE2 marks a group that took no part by a null pointer; an empty text must not look like one. */
static const char *text_data(struct str text)
{
    return text.size == 0 ? "" : text.data;
}

bool regex_match(const struct regex *re, struct str text)
{
    return regex_shim_match(re->shim, text_data(text), text.size);
}

_Static_assert(sizeof(struct regex_span) == 2 * sizeof(size_t), "spans are filled as pairs");

bool regex_captures(const struct regex *re, struct str text, struct regex_span *spans,
                    size_t span_count)
{
    ASSERT(span_count <= REGEX_MAX_PATTERN_BYTES); /* there cannot be more groups */
    return regex_shim_captures(re->shim, text_data(text), text.size, &spans->begin, span_count);
}

size_t regex_group_count(const struct regex *re)
{
    return regex_shim_group_count(re->shim);
}

size_t regex_group_index(const struct regex *re, struct str name)
{
    return name.size == 0 ? 0 : regex_shim_group_index(re->shim, name.data, name.size);
}

size_t regex_memory(const struct regex *re)
{
    /* Per instruction: itself, its place in work queues, and a share of the first cached states.
     * The cache of states may grow from there up to REGEX_MAX_MEMORY_BYTES. */
    const size_t instruction_bytes = 64;

    return sizeof *re + 1024 + 4 * re->pattern_bytes +
           instruction_bytes * regex_shim_program_size(re->shim);
}
