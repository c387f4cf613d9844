/*
 * Applying relabelling rules.
 *
 * Whether a text matches is asked of a matcher, which knows many patterns without a regular
 * expression engine; RE2 is left for captures. The engine's own shortcut, `(.*)`, is what nearly
 * all rules without a `regex` use.
 */
#include "engine/relabel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/md5.h"
#include "base/regex.h"
#include "base/unicode.h"
#include "engine/rules/relabel_internal.h"

enum { SPAN_COUNT_SMALL = 16 };

struct relabel {
    struct relabel_config config; /* texts in the arena */
    struct matcher matcher;       /* of config.regex */
    struct regex *captures;       /* owned; of config.regex; NULL when nothing asks for groups */
    size_t span_count;            /* 1 and the number of groups */
    bool matches_all;             /* `(.*)`: the whole text is group 1 */
};

static bool is_template(struct str text)
{
    return text.size > 0 && memchr(text.data, '$', text.size) != NULL;
}

/* ---- compiling ---- */

static enum err copy_text(struct str from, struct arena *arena, struct str *out, struct errinfo *ei)
{
    char *copy = arena_memdup0(arena, from.data, from.size);

    if (copy == NULL)
        return arena_error(arena, ei);
    *out = (struct str){copy, from.size};
    return ERR_OK;
}

static enum err copy_config(const struct relabel_config *from, struct arena *arena,
                            struct relabel_config *out, struct errinfo *ei)
{
    struct str *names = ARENA_ARRAY(arena, from->source_label_count, struct str);
    enum err e = ERR_OK;

    *out = *from;
    if (names == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; e == ERR_OK && i < from->source_label_count; i++)
        e = copy_text(from->source_labels[i], arena, &names[i], ei);
    out->source_labels = names;
    if (e == ERR_OK)
        e = copy_text(from->separator, arena, &out->separator, ei);
    if (e == ERR_OK)
        e = copy_text(from->regex, arena, &out->regex, ei);
    if (e == ERR_OK)
        e = copy_text(from->target_label, arena, &out->target_label, ei);
    if (e == ERR_OK)
        e = copy_text(from->replacement, arena, &out->replacement, ei);
    return e;
}

static bool needs_captures(const struct relabel *r)
{
    const struct relabel_config *c = &r->config;

    if (r->matches_all && c->action == RELABEL_REPLACE && !is_template(c->target_label) &&
        (!is_template(c->replacement) || str_equal(c->replacement, STR_LITERAL("$1"))))
        return false;
    return (c->action == RELABEL_REPLACE &&
            (is_template(c->target_label) || is_template(c->replacement))) ||
           (c->action == RELABEL_LABELMAP && is_template(c->replacement));
}

enum err relabel_compile(const struct relabel_config *c, struct arena *arena, struct relabel **out,
                         struct errinfo *ei)
{
    struct relabel *r = ARENA_NEW(arena, struct relabel);
    enum err e = r == NULL ? arena_error(arena, ei) : copy_config(c, arena, &r->config, ei);

    if (e != ERR_OK)
        return e;
    r->matches_all = str_equal(c->regex, STR_LITERAL("(.*)"));
    e = matcher_init(&r->matcher, MATCHER_REGEX, STR_LITERAL(""), c->regex, arena, ei);
    if (e == ERR_OK && needs_captures(r)) {
        e = regex_compile(c->regex, &r->captures, ei);
        if (e == ERR_OK)
            r->span_count = regex_group_count(r->captures) + 1;
    }
    if (e == ERR_OK)
        *out = TAKE(r);
    relabel_done(r);
    return e;
}

void relabel_done(struct relabel *r)
{
    if (r == NULL)
        return;
    matcher_done(&r->matcher);
    regex_free(r->captures);
    r->captures = NULL;
}

const struct relabel_config *relabel_config_of(const struct relabel *r)
{
    return &r->config;
}

const struct matcher *relabel_matcher_of(const struct relabel *r)
{
    return &r->matcher;
}

/* ---- applying ---- */

static struct str no_memory(struct relabel_set *s)
{
    s->failed = true;
    return (struct str){"", 0};
}

/* What stands in a writer, as a text of the set's arena. */
static struct str keep_text(struct relabel_set *s, struct byte_writer *w)
{
    char *copy =
        w->failed ? NULL
                  : arena_memdup0(s->arena, w->data == NULL ? (const void *)"" : w->data, w->size);
    struct str text = copy == NULL ? no_memory(s) : (struct str){copy, w->size};

    writer_done(w);
    return text;
}

/* The values of the source labels with the separator between them. */
static struct str source_value(const struct relabel_config *c, struct relabel_set *s)
{
    size_t size = 0;
    char *text, *p;

    if (c->source_label_count == 0)
        return (struct str){"", 0};
    if (c->source_label_count == 1)
        return relabel_set_get(s, c->source_labels[0]);
    for (size_t i = 0; i < c->source_label_count; i++)
        size += relabel_set_get(s, c->source_labels[i]).size + c->separator.size;
    p = text = arena_alloc(s->arena, size);
    if (text == NULL)
        return no_memory(s);
    for (size_t i = 0; i < c->source_label_count; i++) {
        struct str value = relabel_set_get(s, c->source_labels[i]);

        if (i > 0 && c->separator.size > 0) {
            memcpy(p, c->separator.data, c->separator.size);
            p += c->separator.size;
        }
        if (value.size > 0)
            memcpy(p, value.data, value.size);
        p += value.size;
    }
    return (struct str){text, (size_t)(p - text)};
}

static struct str expand(const struct relabel *r, struct relabel_set *s, struct str template,
                         struct str source, const struct regex_span *spans)
{
    struct byte_writer w;

    if (!is_template(template))
        return template;
    writer_init(&w);
    regex_expand(r->captures, template, source, spans, r->span_count, &w);
    return keep_text(s, &w);
}

/* Room for a rule's spans: `small`, or more of the arena. NULL when that refuses. */
static struct regex_span *spans_of(const struct relabel *r, struct relabel_set *s,
                                   struct regex_span small[SPAN_COUNT_SMALL])
{
    struct regex_span *spans = small;

    if (r->span_count > SPAN_COUNT_SMALL)
        spans = ARENA_ARRAY(s->arena, r->span_count, struct regex_span);
    if (spans == NULL)
        s->failed = true;
    return spans;
}

static void replace(const struct relabel *r, struct relabel_set *s, struct str value)
{
    struct regex_span small[SPAN_COUNT_SMALL];
    struct str target = r->config.target_label, text = r->config.replacement;

    if (r->captures == NULL) {
        if (!matcher_matches(&r->matcher, value))
            return;
        if (is_template(text))
            text = value; /* $1 of (.*) */
    } else {
        struct regex_span *spans = spans_of(r, s, small);

        if (spans == NULL || !regex_captures(r->captures, value, spans, r->span_count))
            return;
        target = expand(r, s, target, value, spans);
        if (target.size == 0 || !utf8_is_valid(target))
            return;
        text = expand(r, s, text, value, spans);
    }
    relabel_set_put(s, target, text);
}

static void hashmod(const struct relabel *r, struct relabel_set *s, struct str value)
{
    uint8_t digest[MD5_BYTES];
    uint64_t number = 0;
    char *text;

    md5_bytes(value.data, value.size, digest);
    for (size_t i = MD5_BYTES / 2; i < MD5_BYTES; i++)
        number = number << 8 | digest[i];
    text = arena_printf(s->arena, "%" PRIu64, number % r->config.modulus);
    relabel_set_put(s, r->config.target_label, text == NULL ? no_memory(s) : str_from(text));
}

static void change_case(const struct relabel *r, struct relabel_set *s, struct str value)
{
    struct byte_writer w;

    writer_init(&w);
    if (r->config.action == RELABEL_LOWERCASE)
        unicode_lower_write(&w, value);
    else
        unicode_upper_write(&w, value);
    relabel_set_put(s, r->config.target_label, keep_text(s, &w));
}

static void labelmap(const struct relabel *r, struct relabel_set *s)
{
    struct regex_span small[SPAN_COUNT_SMALL], *spans = spans_of(r, s, small);
    size_t count = 0;
    const struct label *list = spans == NULL ? NULL : relabel_set_list(s, &count);

    for (size_t i = 0; i < count; i++) {
        struct str name = list[i].name;

        if (!matcher_matches(&r->matcher, name))
            continue;
        if (r->captures != NULL && !regex_captures(r->captures, name, spans, r->span_count))
            continue; /* cannot be: both have matched the same pattern */
        relabel_set_put(s, expand(r, s, r->config.replacement, name, spans), list[i].value);
    }
}

static void delete_names(const struct relabel *r, struct relabel_set *s, bool that_match)
{
    size_t count = 0;
    const struct label *list = relabel_set_list(s, &count);

    for (size_t i = 0; i < count; i++) {
        if (matcher_matches(&r->matcher, list[i].name) == that_match)
            relabel_set_delete(s, list[i].name);
    }
}

bool relabel_apply(const struct relabel *r, struct relabel_set *s)
{
    const struct relabel_config *c = &r->config;
    struct str value = source_value(c, s);

    switch (c->action) {
    case RELABEL_DROP:
        return !matcher_matches(&r->matcher, value);
    case RELABEL_KEEP:
        return matcher_matches(&r->matcher, value);
    case RELABEL_DROPEQUAL:
        return !str_equal(relabel_set_get(s, c->target_label), value);
    case RELABEL_KEEPEQUAL:
        return str_equal(relabel_set_get(s, c->target_label), value);
    case RELABEL_REPLACE:
        replace(r, s, value);
        break;
    case RELABEL_LOWERCASE:
    case RELABEL_UPPERCASE:
        change_case(r, s, value);
        break;
    case RELABEL_HASHMOD:
        hashmod(r, s, value);
        break;
    case RELABEL_LABELMAP:
        labelmap(r, s);
        break;
    case RELABEL_LABELDROP:
        delete_names(r, s, true);
        break;
    case RELABEL_LABELKEEP:
        delete_names(r, s, false);
        break;
    }
    return true;
}

bool relabel_drops(const struct relabel *r, const struct labels *labels, struct arena *arena,
                   bool *out)
{
    struct arena_mark mark = arena_mark_get(arena);
    struct relabel_set s;
    bool ok = relabel_set_begin(&s, labels, arena);

    ASSERT(relabel_action_filters(r->config.action));
    if (ok) {
        *out = !relabel_apply(r, &s);
        ok = !s.failed;
    }
    arena_mark_return(arena, mark);
    return ok;
}
