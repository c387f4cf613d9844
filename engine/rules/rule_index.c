#include "engine/rules/rule_index_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/fingerprint.h"
#include "engine/rules/rule_set_internal.h"

enum { SET_ANCHORS_MAX = 1024 }; /* literals of one pattern that become entries */

/* What a filter needs of one label. */
struct anchor {
    struct str name, text;
    bool is_prefix; /* the value begins with the text; else it is the text */
    uint32_t rule;
    uint32_t next; /* of the same place, 1 + its index; 0: none */
};

/* Prefix lengths that the anchors of one label have. */
struct anchor_name {
    struct str name;
    bool has_exact;
    uint32_t *sizes; /* ascending, distinct */
    uint32_t size_count, size_capacity;
};

struct rule_index {
    const struct rule *rules; /* borrowed */
    struct anchor *anchors;
    size_t anchor_count, anchor_capacity;
    uint32_t *places; /* 1 + index of the first anchor, 0: none; a power of two */
    size_t place_count;
    struct anchor_name *names; /* sorted by name */
    size_t name_count, name_capacity;
    uint32_t *others; /* filters without an anchor, ascending */
    size_t other_count;
    struct arena *arena; /* while it is built */
};

/* ---- anchors ---- */

static bool anchor_add(struct rule_index *ix, uint32_t rule, struct str name, struct str text,
                       bool is_prefix)
{
    if (ix->anchor_count == ix->anchor_capacity) {
        size_t capacity = ix->anchor_capacity == 0 ? 16 : 2 * ix->anchor_capacity;
        struct anchor *grown =
            arena_grow_array(ix->arena, ix->anchors, ix->anchor_count, capacity, sizeof *grown);

        if (grown == NULL)
            return false;
        ix->anchors = grown;
        ix->anchor_capacity = capacity;
    }
    ix->anchors[ix->anchor_count++] = (struct anchor){name, text, is_prefix, rule, 0};
    return true;
}

/* What every text that a positive matcher accepts has in common, as texts of its own. */
struct needs {
    struct str one;          /* storage of a single text */
    const struct str *texts; /* count 0: nothing */
    size_t count;
    bool are_prefixes;
};

static void needs_of(const struct matcher *m, struct needs *out)
{
    *out = (struct needs){0};
    if (m->kind == MATCHER_EQUAL && m->value.size > 0) {
        out->one = m->value;
        out->texts = &out->one;
        out->count = 1;
    } else if (m->kind == MATCHER_REGEX && m->form == MATCHER_FORM_SET) {
        bool has_empty = m->set_count > 0 && m->set[0].size == 0; /* sorted */

        out->texts = m->set;
        out->count = has_empty || m->set_count > SET_ANCHORS_MAX ? 0 : m->set_count;
    } else if (m->kind == MATCHER_REGEX && m->prefix.size > 0) {
        out->one = m->prefix;
        out->texts = &out->one;
        out->count = 1;
        out->are_prefixes = true;
    }
}

/* How well a matcher narrows down: more is better, 0 not at all. */
static size_t needs_rank(const struct needs *n)
{
    if (n->count == 0)
        return 0;
    return n->are_prefixes ? 1 + n->one.size : SIZE_MAX - n->count;
}

static bool add_needs(struct rule_index *ix, uint32_t rule, struct str name, const struct needs *n)
{
    for (size_t i = 0; i < n->count; i++) {
        if (!anchor_add(ix, rule, name, n->texts[i], n->are_prefixes))
            return false;
    }
    return true;
}

/* Of values joined by a separator, only what stands before the first separator is sure to be the
 * first label's. False in *anchored where that is nothing. */
static bool add_joined(struct rule_index *ix, uint32_t rule, const struct relabel_config *c,
                       const struct needs *n, bool *anchored)
{
    size_t sizes[SET_ANCHORS_MAX];

    *anchored = false;
    if (c->separator.size == 0 || n->count > SET_ANCHORS_MAX)
        return true;
    for (size_t i = 0; i < n->count; i++) {
        const char *end =
            memmem(n->texts[i].data, n->texts[i].size, c->separator.data, c->separator.size);

        /* Without a whole separator its first bytes may stand at the end of a prefix. */
        if (end == NULL && c->separator.size > 1)
            return true;
        sizes[i] = end == NULL ? n->texts[i].size : (size_t)(end - n->texts[i].data);
        if (sizes[i] == 0)
            return true;
    }
    for (size_t i = 0; i < n->count; i++) {
        if (!anchor_add(ix, rule, c->source_labels[0], (struct str){n->texts[i].data, sizes[i]},
                        true))
            return false;
    }
    *anchored = n->count > 0;
    return true;
}

/* Enters what a filter needs; *anchored tells whether it needs anything. False: no memory. */
static bool rule_anchor(struct rule_index *ix, uint32_t number, bool *anchored)
{
    const struct rule *r = &ix->rules[number];
    const struct matcher *best = NULL;
    struct needs n, best_needs = {0};

    *anchored = false;
    if (r->relabel != NULL) {
        const struct relabel_config *c = relabel_config_of(r->relabel);

        if (c->action != RELABEL_DROP || c->source_label_count == 0)
            return true;
        needs_of(relabel_matcher_of(r->relabel), &n);
        if (c->source_label_count > 1)
            return add_joined(ix, number, c, &n, anchored);
        *anchored = n.count > 0;
        return add_needs(ix, number, c->source_labels[0], &n);
    }
    for (size_t i = 0; i < r->definition.matcher_count; i++) {
        needs_of(&r->matchers[i], &n);
        if (needs_rank(&n) > needs_rank(&best_needs)) {
            best_needs = n;
            best = &r->matchers[i];
            if (best_needs.texts == &n.one)
                best_needs.texts = &best_needs.one;
        }
    }
    *anchored = best != NULL;
    return best == NULL || add_needs(ix, number, best->name, &best_needs);
}

/* ---- names and their prefix lengths ---- */

static struct anchor_name *name_find(const struct rule_index *ix, struct str name, size_t *place)
{
    size_t low = 0, high = ix->name_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int c = str_compare(ix->names[middle].name, name);

        if (c == 0)
            return &ix->names[middle];
        if (c < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (place != NULL)
        *place = low;
    return NULL;
}

static struct anchor_name *name_get(struct rule_index *ix, struct str name)
{
    size_t place = 0;
    struct anchor_name *found = name_find(ix, name, &place);

    if (found != NULL)
        return found;
    if (ix->name_count == ix->name_capacity) {
        size_t capacity = ix->name_capacity == 0 ? 8 : 2 * ix->name_capacity;
        struct anchor_name *grown =
            arena_grow_array(ix->arena, ix->names, ix->name_count, capacity, sizeof *grown);

        if (grown == NULL)
            return NULL;
        ix->names = grown;
        ix->name_capacity = capacity;
    }
    found = &ix->names[place];
    memmove(found + 1, found, (ix->name_count - place) * sizeof *found);
    ix->name_count++;
    *found = (struct anchor_name){.name = name};
    return found;
}

static bool size_note(struct rule_index *ix, struct anchor_name *n, uint32_t size)
{
    uint32_t i = 0;

    while (i < n->size_count && n->sizes[i] < size)
        i++;
    if (i < n->size_count && n->sizes[i] == size)
        return true;
    if (n->size_count == n->size_capacity) {
        uint32_t capacity = n->size_capacity == 0 ? 8 : 2 * n->size_capacity;
        uint32_t *grown =
            arena_grow_array(ix->arena, n->sizes, n->size_count, capacity, sizeof *grown);

        if (grown == NULL)
            return false;
        n->sizes = grown;
        n->size_capacity = capacity;
    }
    memmove(&n->sizes[i + 1], &n->sizes[i], (n->size_count - i) * sizeof *n->sizes);
    n->sizes[i] = size;
    n->size_count++;
    return true;
}

/* ---- the table ---- */

static size_t place_of(const struct rule_index *ix, struct str name, struct str text,
                       bool is_prefix)
{
    uint64_t hash = hash64_unkeyed(text.data, text.size) ^
                    hash64_unkeyed(name.data, name.size) * UINT64_C(0x9e3779b97f4a7c15) ^ is_prefix;

    return (size_t)(hash * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (ix->place_count - 1);
}

static bool table_build(struct rule_index *ix)
{
    ix->place_count = 16;
    while (ix->place_count < 2 * ix->anchor_count)
        ix->place_count *= 2;
    ix->places = arena_calloc(ix->arena, ix->place_count, sizeof *ix->places);
    if (ix->places == NULL)
        return false;
    for (size_t i = ix->anchor_count; i-- > 0;) { /* so that chains ascend */
        struct anchor *a = &ix->anchors[i];
        uint32_t *place = &ix->places[place_of(ix, a->name, a->text, a->is_prefix)];
        struct anchor_name *n = name_get(ix, a->name);

        if (n == NULL || (a->is_prefix && !size_note(ix, n, (uint32_t)a->text.size)))
            return false;
        n->has_exact = n->has_exact || !a->is_prefix;
        a->next = *place;
        *place = (uint32_t)i + 1;
    }
    return true;
}

enum err rule_index_new(const struct rule *rules, uint32_t first, uint32_t end, struct arena *arena,
                        struct rule_index **out, struct errinfo *ei)
{
    struct rule_index *ix = ARENA_NEW(arena, struct rule_index);

    if (ix == NULL)
        return arena_error(arena, ei);
    ix->rules = rules;
    ix->arena = arena;
    ix->others = ARENA_ARRAY(arena, end - first, uint32_t);
    if (ix->others == NULL)
        return arena_error(arena, ei);
    for (uint32_t i = first; i < end; i++) {
        bool anchored = false;

        if (!rule_anchor(ix, i, &anchored))
            return arena_error(arena, ei);
        if (!anchored)
            ix->others[ix->other_count++] = i;
    }
    if (!table_build(ix))
        return arena_error(arena, ei);
    ix->arena = NULL;
    *out = ix;
    return ERR_OK;
}

/* ---- look-up ---- */

/* The best of the filters that need `text`: the first that drops, if it comes before `best`. */
static uint32_t chain_find(const struct rule_index *ix, struct relabel_set *s, struct str name,
                           struct str text, bool is_prefix, uint32_t best)
{
    for (uint32_t i = ix->places[place_of(ix, name, text, is_prefix)]; i != 0;) {
        const struct anchor *a = &ix->anchors[i - 1];

        if (a->rule < best && a->is_prefix == is_prefix && str_equal(a->text, text) &&
            str_equal(a->name, name) && rule_drops(&ix->rules[a->rule], s))
            best = a->rule;
        i = a->next;
    }
    return best;
}

uint32_t rule_index_find(const struct rule_index *ix, struct relabel_set *s,
                         const struct label *labels, size_t label_count)
{
    uint32_t best = RULE_NONE;

    for (size_t i = 0; i < label_count && ix->name_count > 0; i++) {
        const struct anchor_name *n = name_find(ix, labels[i].name, NULL);
        struct str value = labels[i].value;

        if (n == NULL)
            continue;
        if (n->has_exact)
            best = chain_find(ix, s, n->name, value, false, best);
        for (uint32_t k = 0; k < n->size_count && n->sizes[k] <= value.size; k++)
            best = chain_find(ix, s, n->name, (struct str){value.data, n->sizes[k]}, true, best);
    }
    for (size_t i = 0; i < ix->other_count && ix->others[i] < best; i++) {
        if (rule_drops(&ix->rules[ix->others[i]], s))
            best = ix->others[i];
    }
    return best;
}
