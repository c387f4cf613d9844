/*
 * Recognises regular expressions that need no regular expression engine: alternations of literals,
 * nested or not, and one literal with .* or .+ around it. Dashboards send little else, with
 * thousands of alternatives at times.
 *
 * Only the constructs below are read; anything else ends the attempt and RE2 decides, about errors
 * too. So it is enough to be right about: literal characters, a backslash before ASCII that is no
 * word character, (...), (?:...), | and, at the ends, .* and .+ not followed by another operator.
 * (Escapes with word characters are classes, code points or errors.) Groups nest with a stack of
 * our own, eight deep.
 */
#include "engine/labels/matcher_internal.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP_DEPTH_MAX = 8, PRODUCT_COUNT_MAX = 4096, PRODUCT_BYTES_MAX = 1 << 20 };

/* A growing list of strings in the arena. */
struct words {
    struct str *items;
    size_t count, capacity;
};

struct scan {
    struct arena *arena;
    struct str pattern;
    size_t pos;
    char *literals;      /* unescaped characters go here; room for the whole pattern */
    size_t literal_size; /* used */
    bool out_of_memory;
};

/* One character as a literal, appended to scan->literals; false, and nothing changes, if the next
 * character means something else. Characters past ASCII are copied byte by byte. */
static bool take_literal(struct scan *s)
{
    unsigned char c;

    if (s->pos == s->pattern.size)
        return false;
    c = (unsigned char)s->pattern.data[s->pos];
    if (c == '\\') {
        unsigned char next;

        if (s->pos + 1 == s->pattern.size)
            return false;
        next = (unsigned char)s->pattern.data[s->pos + 1];
        if (next >= 0x80 || next == '_' || (next >= '0' && next <= '9') ||
            (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z'))
            return false;
        s->literals[s->literal_size++] = (char)next;
        s->pos += 2;
        return true;
    }
    if (c != '\0' && strchr(".*+?()|[]{}^$", c) != NULL)
        return false;
    s->literals[s->literal_size++] = (char)c;
    s->pos++;
    return true;
}

/* The longest run of literal characters from here; may be empty. */
static struct str take_run(struct scan *s)
{
    size_t start = s->literal_size;

    while (take_literal(s))
        ;
    return (struct str){s->literals + start, s->literal_size - start};
}

static enum matcher_wild take_wild(struct scan *s)
{
    const char *p = s->pattern.data + s->pos;

    if (s->pattern.size - s->pos < 2 || p[0] != '.' || (p[1] != '*' && p[1] != '+'))
        return MATCHER_WILD_NONE;
    s->pos += 2;
    return p[1] == '*' ? MATCHER_WILD_ANY : MATCHER_WILD_SOME;
}

static bool try_wild(struct matcher *m, struct scan *s)
{
    enum matcher_wild before = take_wild(s);
    struct str literal = take_run(s);
    enum matcher_wild after = take_wild(s);

    if (s->pos != s->pattern.size || (before == MATCHER_WILD_NONE && after == MATCHER_WILD_NONE) ||
        (before != MATCHER_WILD_NONE && after != MATCHER_WILD_NONE && literal.size == 0))
        return false;
    m->form = MATCHER_FORM_WILD;
    m->before = before;
    m->after = after;
    m->literal = literal;
    if (before == MATCHER_WILD_NONE)
        m->prefix = literal;
    return true;
}

static bool words_add(struct scan *s, struct words *w, struct str text)
{
    if (w->count == w->capacity) {
        size_t grown = w->capacity == 0 ? 4 : w->capacity * 2;
        struct str *items = arena_grow_array(s->arena, w->items, w->capacity, grown, sizeof *items);

        if (items == NULL) {
            s->out_of_memory = true;
            return false;
        }
        w->items = items;
        w->capacity = grown;
    }
    w->items[w->count++] = text;
    return true;
}

static bool words_add_all(struct scan *s, struct words *w, const struct words *from)
{
    for (size_t i = 0; i < from->count; i++) {
        if (!words_add(s, w, from->items[i]))
            return false;
    }
    return true;
}

static struct str join(struct scan *s, struct str a, struct str b)
{
    char *text;

    if (a.size == 0)
        return b;
    if (b.size == 0)
        return a;
    text = arena_alloc(s->arena, a.size + b.size);
    if (text == NULL) {
        s->out_of_memory = true;
        return (struct str){NULL, 0};
    }
    memcpy(text, a.data, a.size);
    memcpy(text + a.size, b.data, b.size);
    return (struct str){text, a.size + b.size};
}

static size_t words_bytes(const struct words *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->count; i++)
        n += w->items[i].size;
    return n;
}

/* Every word of *w followed by every word of `next`. False when that is too much, or no memory. */
static bool words_multiply(struct scan *s, struct words *w, const struct words *next)
{
    struct words product = {NULL, 0, 0};

    if (w->count == 1 && w->items[0].size == 0) {
        *w = (struct words){NULL, 0, 0};
        return words_add_all(s, w, next);
    }
    if (w->count > PRODUCT_COUNT_MAX / next->count ||
        words_bytes(w) * next->count + words_bytes(next) * w->count > PRODUCT_BYTES_MAX)
        return false;
    for (size_t i = 0; i < w->count; i++) {
        for (size_t k = 0; k < next->count; k++) {
            if (!words_add(s, &product, join(s, w->items[i], next->items[k])))
                return false;
        }
    }
    *w = product;
    return !s->out_of_memory;
}

/* An open group: the alternatives that are complete, and the words of the one being read. */
struct group {
    struct words done, current;
};

static bool group_begin(struct scan *s, struct group *g)
{
    memset(g, 0, sizeof *g);
    return words_add(s, &g->current, (struct str){"", 0});
}

static bool group_next_alternative(struct scan *s, struct group *g)
{
    if (!words_add_all(s, &g->done, &g->current))
        return false;
    g->current.count = 0;
    return words_add(s, &g->current, (struct str){"", 0});
}

static bool skip_group_open(struct scan *s)
{
    const char *p = s->pattern.data + s->pos;
    size_t left = s->pattern.size - s->pos;

    if (left >= 2 && p[1] == '?') {
        if (left < 3 || p[2] != ':')
            return false; /* flags and names are RE2's business */
        s->pos += 3;
    } else {
        s->pos++;
    }
    return true;
}

/* Reads a whole pattern of literals, groups and alternatives into *out. False: something else was
 * found, or s->out_of_memory. */
static bool read_alternation(struct scan *s, struct words *out)
{
    struct group stack[GROUP_DEPTH_MAX];
    size_t depth = 0;

    if (!group_begin(s, &stack[0]))
        return false;
    while (s->pos < s->pattern.size) {
        struct group *g = &stack[depth];
        struct str run = take_run(s);

        if (run.size != 0) {
            struct words one = {&run, 1, 1};

            if (!words_multiply(s, &g->current, &one))
                return false;
        } else if (s->pattern.data[s->pos] == '|') {
            s->pos++;
            if (!group_next_alternative(s, g))
                return false;
        } else if (s->pattern.data[s->pos] == '(') {
            if (depth + 1 == GROUP_DEPTH_MAX || !skip_group_open(s) ||
                !group_begin(s, &stack[++depth]))
                return false;
        } else if (s->pattern.data[s->pos] == ')' && depth > 0) {
            s->pos++;
            if (!words_add_all(s, &g->done, &g->current) ||
                !words_multiply(s, &stack[--depth].current, &g->done))
                return false;
        } else {
            return false;
        }
    }
    if (depth != 0 || !words_add_all(s, &stack[0].done, &stack[0].current))
        return false;
    *out = stack[0].done;
    return true;
}

static int compare_words(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static bool try_set(struct matcher *m, struct scan *s)
{
    struct words w;
    size_t n = 0;

    if (!read_alternation(s, &w))
        return false;
    qsort(w.items, w.count, sizeof *w.items, compare_words);
    for (size_t i = 0; i < w.count; i++) {
        if (n == 0 || !str_equal(w.items[n - 1], w.items[i]))
            w.items[n++] = w.items[i];
    }
    m->form = MATCHER_FORM_SET;
    m->set = w.items;
    m->set_count = n;
    return true;
}

/* True if no alternative stands outside of groups from `pos` on. Gives up (false) on what would
 * need a real parser to skip: classes and \Q. */
static bool has_single_branch(struct str pattern, size_t pos)
{
    size_t depth = 0;

    for (; pos < pattern.size; pos++) {
        switch (pattern.data[pos]) {
        case '\\':
            pos++;
            if (pos == pattern.size || pattern.data[pos] == 'Q')
                return false;
            break;
        case '[':
            return memchr(pattern.data + pos, '|', pattern.size - pos) == NULL &&
                   memchr(pattern.data + pos, ')', pattern.size - pos) == NULL;
        case '(':
            depth++;
            break;
        case ')':
            if (depth == 0)
                return false;
            depth--;
            break;
        case '|':
            if (depth == 0)
                return false;
            break;
        default:
            break;
        }
    }
    return true;
}

/* The literal that every match of a general expression starts with. */
static void find_prefix(struct matcher *m, struct scan *s)
{
    struct str run = take_run(s);

    if (run.size == 0 || s->pos == s->pattern.size || !has_single_branch(s->pattern, s->pos))
        return;
    if (strchr("*?+{", s->pattern.data[s->pos]) != NULL) {
        /* The operator is about the last character alone. */
        do
            run.size--;
        while (run.size > 0 && ((unsigned char)run.data[run.size] & 0xc0) == 0x80);
    }
    m->prefix = run;
}

bool matcher_simplify(struct matcher *m, struct arena *arena)
{
    struct scan s = {.arena = arena, .pattern = m->value};

    if (!utf8_is_valid(m->value))
        return true;
    s.literals = arena_alloc(arena, m->value.size);
    if (s.literals == NULL)
        return false;
    if (try_wild(m, &s))
        return true;
    s.pos = 0;
    s.literal_size = 0;
    if (try_set(m, &s))
        return true;
    if (s.out_of_memory)
        return false;
    s.pos = 0;
    s.literal_size = 0;
    find_prefix(m, &s);
    return true;
}
