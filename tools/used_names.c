/*
 * Expressions: variables are put in place of, the real parser reads the rest.
 */
#include "tools/used_names_internal.h"

#include <ctype.h>
#include <string.h>

#include "base/fingerprint.h"
#include "promql/ast.h"

/* What stands for a variable: no metric is called so. It may begin or continue a name. */
#define MARK "RIMTOOLvariable"

enum { SET_FIRST = 64, TRIES = 2 };

/* ---- sets ---- */

static uint32_t place_of(const struct text_set *s, struct str text)
{
    uint32_t mask = (uint32_t)(2 * s->capacity) - 1;
    uint32_t at = (uint32_t)hash64_unkeyed(text.data, text.size) & mask;

    while (s->places[at] != 0 && !str_equal(s->items[s->places[at] - 1], text))
        at = (at + 1) & mask;
    return at;
}

static bool set_grow(struct text_set *s, struct arena *arena)
{
    size_t capacity = s->capacity == 0 ? SET_FIRST : 2 * s->capacity;
    uint32_t *places = arena_calloc(arena, 2 * capacity, sizeof *places);
    struct str *items = arena_grow_array(arena, s->items, s->count, capacity, sizeof *items);

    if (places == NULL || items == NULL)
        return false;
    s->items = items;
    s->places = places;
    s->capacity = capacity;
    for (size_t i = 0; i < s->count; i++)
        places[place_of(s, items[i])] = (uint32_t)i + 1;
    return true;
}

bool text_set_has(const struct text_set *s, struct str text)
{
    return s->capacity > 0 && s->places[place_of(s, text)] != 0;
}

bool text_set_add(struct text_set *s, struct arena *arena, struct str text)
{
    char *copy;

    if (text_set_has(s, text))
        return true;
    if (s->count == s->capacity && !set_grow(s, arena))
        return false;
    copy = arena_memdup0(arena, text.data, text.size);
    if (copy == NULL)
        return false;
    s->items[s->count] = (struct str){copy, text.size};
    s->places[place_of(s, text)] = (uint32_t)++s->count;
    return true;
}

void used_names_init(struct used_names *u)
{
    *u = (struct used_names){.file = ""};
    arena_init(&u->arena, NULL);
}

void used_names_done(struct used_names *u)
{
    arena_done(&u->arena);
}

/* ---- variables ---- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Bytes of a variable at the text's begin, 0: there is none. *name: without its signs. */
static size_t variable_size(struct str text, struct str *name)
{
    const char *end = NULL;
    size_t size;

    if (text.size > 3 && text.data[0] == '[' && text.data[1] == '[') {
        end = memmem(text.data, text.size, "]]", 2);
        if (end == NULL || !is_word(text.data[2]))
            return 0;
        *name = (struct str){text.data + 2, (size_t)(end - text.data) - 2};
        return name->size + 4;
    }
    if (text.size < 2 || text.data[0] != '$')
        return 0;
    if (text.data[1] == '{') {
        end = memchr(text.data, '}', text.size);
        if (end == NULL)
            return 0;
        *name = (struct str){text.data + 2, (size_t)(end - text.data) - 2};
        return name->size + 3;
    }
    for (size = 1; size < text.size && is_word(text.data[size]); size++) {
    }
    *name = (struct str){text.data + 1, size - 1};
    return size > 1 ? size : 0;
}

/* Where the expression is at the moment. */
struct context {
    char quote;      /* ', ", ` or 0 */
    unsigned ranges; /* open brackets */
    bool after_offset;
};

static void context_step(struct context *c, struct str text, size_t at)
{
    char ch = text.data[at];

    if (c->quote != 0) {
        if (ch == c->quote && (c->quote == '`' || at == 0 || text.data[at - 1] != '\\'))
            c->quote = 0;
        return;
    }
    if (ch == '"' || ch == '\'' || ch == '`')
        c->quote = ch;
    else if (ch == '[')
        c->ranges++;
    else if (ch == ']' && c->ranges > 0)
        c->ranges--;
    if (ch != ' ' && ch != '-')
        c->after_offset = at >= 5 && memcmp(text.data + at - 5, "offset", 6) == 0;
}

/* What stands for it: a duration, a number, or any word. */
static const char *variable_text(const struct context *c, struct str name, bool numbers,
                                 bool is_part_of_word)
{
    if (c->quote != 0)
        return MARK;
    if (c->ranges > 0 || c->after_offset)
        return "5m";
    if (name.size > 3 && memcmp(name.data + name.size - 3, "_ms", 3) == 0)
        return "300000";
    if (str_equal(name, STR_LITERAL("__range_s")))
        return "3600";
    if (str_equal(name, STR_LITERAL("__interval")) || str_equal(name, STR_LITERAL("__range")) ||
        str_equal(name, STR_LITERAL("__rate_interval")))
        return "5m";
    return numbers && !is_part_of_word ? "1" : MARK;
}

static bool variables_replace(struct str text, bool numbers, struct byte_writer *out)
{
    struct context c = {0};

    for (size_t i = 0; i < text.size;) {
        struct str name = {"", 0}, rest = {text.data + i, text.size - i};
        size_t size = variable_size(rest, &name);

        if (size == 0) {
            context_step(&c, text, i);
            writer_u8(out, (uint8_t)text.data[i++]);
            continue;
        }
        bool joined =
            (i > 0 && is_word(text.data[i - 1])) ||
            (i + size < text.size && (is_word(text.data[i + size]) || text.data[i + size] == ':' ||
                                      text.data[i + size] == '{'));
        const char *put = variable_text(&c, name, numbers, joined);

        writer_append(out, put, strlen(put));
        i += size;
    }
    return !out->failed;
}

/* ---- selectors ---- */

struct reading {
    struct used_names *u;
    struct str expression; /* for warnings */
    bool failed;           /* memory */
};

static bool has_mark(struct str text)
{
    return memmem(text.data, text.size, MARK, sizeof MARK - 1) != NULL;
}

static void warn(struct reading *r, const char *what)
{
    struct used_names *u = r->u;

    if (u->warn != NULL)
        u->warn(u->warn_ctx, u->file, r->expression, what);
}

/* A value with variables as a regular expression: what they stand for is anything. */
static void pattern_write(struct byte_writer *w, struct str value, bool is_regex)
{
    for (size_t i = 0; i < value.size;) {
        if (value.size - i >= sizeof MARK - 1 &&
            memcmp(value.data + i, MARK, sizeof MARK - 1) == 0) {
            writer_append(w, ".*", 2);
            i += sizeof MARK - 1;
            continue;
        }
        if (!is_regex && strchr("\\.+*?()|[]{}^$", value.data[i]) != NULL)
            writer_u8(w, '\\');
        writer_u8(w, (uint8_t)value.data[i++]);
    }
}

static void matcher_write(struct byte_writer *w, struct str name, const char *op, struct str value)
{
    if (w->size > 1)
        writer_append(w, ", ", 2);
    if (label_name_is_legacy(name))
        writer_append(w, name.data, name.size);
    else
        str_quote(w, name);
    writer_append(w, op, strlen(op));
    str_quote(w, value);
}

static const char *op_text(enum matcher_kind kind)
{
    static const char *const texts[] = {[MATCHER_EQUAL] = "=",
                                        [MATCHER_NOT_EQUAL] = "!=",
                                        [MATCHER_REGEX] = "=~",
                                        [MATCHER_NOT_REGEX] = "!~"};

    return texts[kind];
}

/* A matcher without variables as it is; with them only a name's, as what it could be. */
static void matcher_put(struct byte_writer *w, const struct matcher *m)
{
    struct byte_writer pattern;

    if (has_mark(m->name))
        return;
    if (!has_mark(m->value)) {
        matcher_write(w, m->name, op_text(m->kind), m->value);
        return;
    }
    if (!str_equal(m->name, LABEL_METRIC_NAME) || m->kind == MATCHER_NOT_EQUAL ||
        m->kind == MATCHER_NOT_REGEX)
        return; /* anything */
    writer_init(&pattern);
    pattern_write(&pattern, m->value, m->kind == MATCHER_REGEX);
    matcher_write(w, m->name, "=~", (struct str){(const char *)pattern.data, pattern.size});
    w->failed |= pattern.failed;
    writer_done(&pattern);
}

/* Whether the selector as it was written narrows anything but by variables. */
static bool is_known(const struct matcher *matchers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct matcher *m = &matchers[i];

        if (has_mark(m->name) || str_equal(m->value, STR_LITERAL(MARK)))
            continue;
        if (!matcher_matches_empty(m))
            return true;
    }
    return false;
}

static void selector_add(struct reading *r, const struct matcher *matchers, size_t count)
{
    struct byte_writer w;

    for (size_t i = 0; i < count; i++) {
        const struct matcher *m = &matchers[i];

        if (m->kind == MATCHER_EQUAL && m->value.size > 0 && !has_mark(m->value) &&
            str_equal(m->name, LABEL_METRIC_NAME)) {
            r->failed |= !text_set_add(&r->u->names, &r->u->arena, m->value);
            return;
        }
    }
    if (!is_known(matchers, count)) {
        r->u->unknown_count++;
        warn(r, "a selector says nothing of its metric: what it reads is not counted");
        return;
    }
    writer_init(&w);
    writer_u8(&w, '{');
    for (size_t i = 0; i < count; i++)
        matcher_put(&w, &matchers[i]);
    writer_u8(&w, '}');
    r->failed |= w.failed || !text_set_add(&r->u->selectors, &r->u->arena,
                                           (struct str){(const char *)w.data, w.size});
    writer_done(&w);
}

static void visit(void *ctx, const struct promql_selector *selector)
{
    struct reading *r = ctx;

    if (selector->is_target_info)
        r->failed |= !text_set_add(&r->u->names, &r->u->arena, STR_LITERAL("target_info"));
    else
        selector_add(r, selector->node->u.selector.matchers,
                     selector->node->u.selector.matcher_count);
}

static enum err parse(struct reading *r, struct str text)
{
    static const struct promql_parse_options options = {true, true, true};
    struct promql_expr *expr = NULL;
    struct arena arena;
    enum err e;

    arena_init(&arena, NULL);
    e = promql_parse(text, &options, &arena, &expr, NULL);
    if (e == ERR_OK)
        promql_selectors_visit(expr, visit, r);
    promql_expr_done(expr);
    arena_done(&arena);
    return e;
}

/* What cannot be parsed: all its words, so that nothing in use is taken for unused. */
static void words_add(struct reading *r, struct str text)
{
    struct context c = {0};

    for (size_t i = 0; i < text.size;) {
        size_t end = i;

        while (c.quote == 0 && end < text.size &&
               (is_word(text.data[end]) || text.data[end] == ':'))
            end++;
        if (end > i && !isdigit((unsigned char)text.data[i]))
            r->failed |=
                !text_set_add(&r->u->names, &r->u->arena, (struct str){text.data + i, end - i});
        for (end = end > i ? end : i + 1; i < end; i++)
            context_step(&c, text, i);
    }
}

enum err used_names_expression(struct used_names *u, struct str text, bool has_variables,
                               struct errinfo *ei)
{
    struct reading r = {.u = u, .expression = text};
    enum err e = ERR_INVALID;

    u->expression_count++;
    if (!has_variables)
        e = parse(&r, text);
    for (int i = 0; has_variables && e != ERR_OK && i < TRIES; i++) {
        struct byte_writer w;

        writer_init(&w);
        r.failed |= !variables_replace(text, i == 1, &w);
        if (!r.failed)
            e = parse(&r, (struct str){(const char *)w.data, w.size});
        writer_done(&w);
    }
    if (e != ERR_OK) {
        u->unparsed_count++;
        warn(&r, "an expression cannot be parsed: each of its words counts as a metric");
        words_add(&r, text);
    }
    return r.failed ? errinfo_set(ei, ERR_NOMEM, 0, "names of metrics") : ERR_OK;
}
