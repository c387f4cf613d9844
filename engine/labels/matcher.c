/*
 * Matchers: preparation, and the comparison itself.
 */
#include <string.h>

#include "engine/labels.h"
#include "engine/labels/matcher_internal.h"

static enum err copy_text(struct str from, struct arena *arena, struct str *out, struct errinfo *ei)
{
    char *copy = arena_memdup0(arena, from.data, from.size);

    if (copy == NULL)
        return arena_error(arena, ei);
    *out = (struct str){copy, from.size};
    return ERR_OK;
}

/* Program and first cached states; what the cache grows to later has RE2's own limit. */
static enum err charge_regex(struct matcher *m, struct budget *budget, struct errinfo *ei)
{
    size_t bytes = regex_memory(m->regex);
    enum err e = budget == NULL ? ERR_OK : budget_charge(budget, bytes, ei);

    if (e == ERR_OK && budget != NULL) {
        m->budget = budget;
        m->regex_bytes = bytes;
    }
    return e;
}

enum err matcher_init(struct matcher *out, enum matcher_kind kind, struct str name,
                      struct str value, struct arena *arena, struct errinfo *ei)
{
    struct matcher m = {.kind = kind, .form = MATCHER_FORM_LITERAL};
    enum err e;

    if ((e = copy_text(name, arena, &m.name, ei)) != ERR_OK ||
        (e = copy_text(value, arena, &m.value, ei)) != ERR_OK)
        return e;
    if (kind == MATCHER_REGEX || kind == MATCHER_NOT_REGEX) {
        m.form = MATCHER_FORM_REGEX;
        if (value.size <= REGEX_MAX_PATTERN_BYTES && !matcher_simplify(&m, arena))
            return arena_error(arena, ei);
    }
    if (m.form == MATCHER_FORM_REGEX) {
        e = regex_compile(m.value, &m.regex, ei);
        if (e == ERR_OK)
            e = charge_regex(&m, arena->budget, ei);
        if (e != ERR_OK) {
            matcher_done(&m);
            return e;
        }
    }
    *out = m;
    return ERR_OK;
}

void matcher_done(struct matcher *m)
{
    if (m == NULL)
        return;
    regex_free(m->regex);
    m->regex = NULL;
    if (m->budget != NULL)
        budget_release(m->budget, m->regex_bytes);
    m->budget = NULL;
}

static bool has_prefix(struct str text, struct str prefix)
{
    return text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(text.data, prefix.data, prefix.size) == 0);
}

static bool set_holds(const struct matcher *m, struct str value)
{
    size_t low = 0;
    size_t high = m->set_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = str_compare(m->set[mid], value);

        if (c == 0)
            return true;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

/* Bytes stand for characters here: a literal of whole characters is only ever found at character
 * borders of well-formed text, and "one or more characters" is "one or more bytes". */
static bool wild_matches(const struct matcher *m, struct str text)
{
    size_t head = m->before == MATCHER_WILD_SOME;
    size_t tail = m->after == MATCHER_WILD_SOME;
    struct str rest;

    if (text.size < head + m->literal.size + tail)
        return false;
    if (m->literal.size == 0)
        return true;
    if (m->before == MATCHER_WILD_NONE)
        return has_prefix(text, m->literal);
    if (m->after == MATCHER_WILD_NONE)
        return memcmp(text.data + text.size - m->literal.size, m->literal.data, m->literal.size) ==
               0;
    rest = (struct str){text.data + head, text.size - head - tail};
    return memmem(rest.data, rest.size, m->literal.data, m->literal.size) != NULL;
}

static bool form_matches(const struct matcher *m, struct str value)
{
    switch (m->form) {
    case MATCHER_FORM_LITERAL:
        return str_equal(m->value, value);
    case MATCHER_FORM_SET:
        return set_holds(m, value);
    case MATCHER_FORM_WILD:
        return wild_matches(m, value);
    case MATCHER_FORM_REGEX:
        break;
    }
    return has_prefix(value, m->prefix) && regex_match(m->regex, value);
}

bool matcher_matches(const struct matcher *m, struct str value)
{
    bool negative = m->kind == MATCHER_NOT_EQUAL || m->kind == MATCHER_NOT_REGEX;

    return form_matches(m, value) != negative;
}
