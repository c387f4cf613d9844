/*
 * The label set that relabelling rules work on.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/rules/relabel_internal.h"

bool relabel_set_begin(struct relabel_set *s, const struct labels *labels, struct arena *arena)
{
    *s = (struct relabel_set){
        .arena = arena,
        .base = labels->items,
        .hidden = arena_calloc(arena, labels->count + 1, sizeof *s->hidden),
        .base_count = labels->count,
    };
    return s->hidden != NULL;
}

/* The index of a name in the base, base_count if it is not there. */
static size_t base_find(const struct relabel_set *s, struct str name)
{
    size_t i = 0;

    while (i < s->base_count && !str_equal(s->base[i].name, name))
        i++;
    return i;
}

static size_t added_find(const struct relabel_set *s, struct str name)
{
    size_t i = 0;

    while (i < s->added_count && !str_equal(s->added[i].name, name))
        i++;
    return i;
}

struct str relabel_set_get(const struct relabel_set *s, struct str name)
{
    size_t i = added_find(s, name);

    if (i < s->added_count)
        return s->added[i].value;
    i = base_find(s, name);
    return i < s->base_count && !s->hidden[i] ? s->base[i].value : (struct str){"", 0};
}

void relabel_set_delete(struct relabel_set *s, struct str name)
{
    size_t i = added_find(s, name);

    if (i < s->added_count) {
        s->added_count--;
        memmove(&s->added[i], &s->added[i + 1], (s->added_count - i) * sizeof *s->added);
        s->changed = true;
    }
    i = base_find(s, name);
    if (i < s->base_count && !s->hidden[i]) {
        s->hidden[i] = true;
        s->changed = true;
    }
}

void relabel_set_put(struct relabel_set *s, struct str name, struct str value)
{
    size_t i;

    if (value.size == 0) {
        relabel_set_delete(s, name);
        return;
    }
    s->changed = true;
    i = added_find(s, name);
    if (i < s->added_count) {
        s->added[i].value = value;
        return;
    }
    if (s->added_count == s->added_capacity) {
        size_t capacity = s->added_capacity == 0 ? 8 : 2 * s->added_capacity;
        struct label *grown =
            arena_grow_array(s->arena, s->added, s->added_count, capacity, sizeof *grown);

        if (grown == NULL) {
            s->failed = true;
            return;
        }
        s->added = grown;
        s->added_capacity = capacity;
    }
    s->added[s->added_count++] = (struct label){name, value};
    i = base_find(s, name);
    if (i < s->base_count)
        s->hidden[i] = true;
}

const struct label *relabel_set_list(struct relabel_set *s, size_t *count)
{
    struct label *items = ARENA_ARRAY(s->arena, s->base_count + s->added_count + 1, struct label);

    *count = 0;
    if (items == NULL) {
        s->failed = true;
        return NULL;
    }
    for (size_t i = 0; i < s->base_count; i++) {
        if (!s->hidden[i])
            items[(*count)++] = s->base[i];
    }
    for (size_t i = 0; i < s->added_count; i++)
        items[(*count)++] = s->added[i];
    return items;
}

static int compare_by_name(const void *a, const void *b)
{
    return str_compare(((const struct label *)a)->name, ((const struct label *)b)->name);
}

bool relabel_set_labels(struct relabel_set *s, struct labels *out)
{
    size_t count = 0;
    const struct label *list = relabel_set_list(s, &count);
    struct label *items = (struct label *)(uintptr_t)list; /* ours until it is given out */

    if (list == NULL)
        return false;
    if (s->added_count > 0)
        qsort(items, count, sizeof *items, compare_by_name);
    *out = (struct labels){count, items};
    return true;
}
