/*
 * Label sets: order, equality, hash, text.
 */
#include "engine/labels.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct str labels_get(const struct labels *l, struct str name)
{
    /* A dozen or two labels: a plain walk wins, and the order lets it end early. */
    for (size_t i = 0; i < l->count; i++) {
        int c = str_compare(l->items[i].name, name);

        if (c == 0)
            return l->items[i].value;
        if (c > 0)
            break;
    }
    return (struct str){NULL, 0};
}

int labels_compare(const struct labels *a, const struct labels *b)
{
    size_t n = a->count < b->count ? a->count : b->count;

    for (size_t i = 0; i < n; i++) {
        int c = str_compare(a->items[i].name, b->items[i].name);

        if (c == 0)
            c = str_compare(a->items[i].value, b->items[i].value);
        if (c != 0)
            return c;
    }
    return a->count < b->count ? -1 : a->count > b->count;
}

bool labels_are_canonical(const struct labels *l)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->items[i].value.size == 0 ||
            (i > 0 && str_compare(l->items[i - 1].name, l->items[i].name) >= 0))
            return false;
    }
    return true;
}

bool labels_equal(const struct labels *a, const struct labels *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (!str_equal(a->items[i].name, b->items[i].name) ||
            !str_equal(a->items[i].value, b->items[i].value))
            return false;
    }
    return true;
}

uint64_t labels_hash(const struct labels *l)
{
    uint64_t h = l->count;

    /* Each string's own hash, folded in order: lengths take part, so moving a byte from a name to
     * its value changes the result. */
    for (size_t i = 0; i < l->count; i++) {
        const struct label *item = &l->items[i];

        h = XXH3_64bits_withSeed(item->name.data, item->name.size, h);
        h = XXH3_64bits_withSeed(item->value.data, item->value.size, h + 1);
    }
    return h;
}

static char *writer_to_arena(struct byte_writer *w, struct arena *arena)
{
    char *text = w->failed ? NULL : arena_memdup0(arena, w->data, w->size);

    writer_done(w);
    return text;
}

static void write_name(struct byte_writer *w, struct str name)
{
    if (label_name_is_legacy(name))
        writer_append(w, name.data, name.size);
    else
        str_quote(w, name);
}

/* Metric names may hold colons too. */
static bool metric_name_is_legacy(struct str name)
{
    for (size_t i = 0; i < name.size; i++) {
        char c = (char)(name.data[i] == ':' ? '_' : name.data[i]);

        if (!label_name_is_legacy((struct str){&c, 1}) && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return name.size != 0;
}

static void write_pairs(struct byte_writer *w, const struct labels *l, bool skip_metric_name,
                        bool comma)
{
    for (size_t i = 0; i < l->count; i++) {
        if (skip_metric_name && str_equal(l->items[i].name, LABEL_METRIC_NAME))
            continue;
        if (comma)
            writer_append(w, ", ", 2);
        write_name(w, l->items[i].name);
        writer_u8(w, '=');
        str_quote(w, l->items[i].value);
        comma = true;
    }
}

char *labels_format(const struct labels *l, struct arena *arena)
{
    struct str name = labels_get(l, LABEL_METRIC_NAME);
    bool plain = metric_name_is_legacy(name);
    size_t pairs = l->count - (name.size != 0);
    struct byte_writer w;

    writer_init(&w);
    if (plain)
        writer_append(&w, name.data, name.size);
    if (!plain || pairs != 0) {
        writer_u8(&w, '{');
        if (name.size != 0 && !plain)
            str_quote(&w, name);
        write_pairs(&w, l, true, name.size != 0 && !plain);
        writer_u8(&w, '}');
    }
    return writer_to_arena(&w, arena);
}

char *labels_format_braces(const struct labels *l, struct arena *arena)
{
    struct byte_writer w;

    writer_init(&w);
    writer_u8(&w, '{');
    write_pairs(&w, l, false, false);
    writer_u8(&w, '}');
    return writer_to_arena(&w, arena);
}

char *matcher_format(const struct matcher *m, struct arena *arena)
{
    static const char *const OPERATORS[] = {[MATCHER_EQUAL] = "=",
                                            [MATCHER_NOT_EQUAL] = "!=",
                                            [MATCHER_REGEX] = "=~",
                                            [MATCHER_NOT_REGEX] = "!~"};
    struct byte_writer w;

    writer_init(&w);
    write_name(&w, m->name);
    writer_printf(&w, "%s", OPERATORS[m->kind]);
    str_quote(&w, m->value);
    return writer_to_arena(&w, arena);
}
