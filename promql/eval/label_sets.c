/*
 * See label_sets_internal.h.
 */
#include "promql/eval/label_sets_internal.h"

#include <stdlib.h>
#include <string.h>

#include "promql/eval/arena_refused_internal.h"
#include "promql/parse/text_internal.h"

bool label_is_metadata(struct str name)
{
    return name.size > 5 && name.data[0] == '_' &&
           (str_equal(name, LABEL_METRIC_NAME) || str_equal(name, STR_LITERAL("__type__")) ||
            str_equal(name, STR_LITERAL("__unit__")));
}

/* Room for `count` labels; the caller fills items and sets the count. */
static struct label *items_new(struct arena *arena, size_t count, struct errinfo *ei, enum err *e)
{
    struct label *items = ARENA_ARRAY(arena, count, struct label);

    *e = items == NULL ? arena_refused(arena, ei) : ERR_OK;
    return items;
}

enum err labels_without_metadata(const struct labels *in, struct arena *arena, struct labels *out,
                                 struct errinfo *ei)
{
    struct label *items;
    size_t n = 0, found = 0;
    enum err e;

    for (size_t i = 0; i < in->count; i++)
        found += label_is_metadata(in->items[i].name);
    if (found == 0) {
        *out = *in;
        return ERR_OK;
    }
    items = items_new(arena, in->count, ei, &e);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < in->count; i++) {
        if (!label_is_metadata(in->items[i].name))
            items[n++] = in->items[i];
    }
    *out = (struct labels){n, items};
    return ERR_OK;
}

bool names_contain(const struct str *sorted, size_t count, struct str name)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int c = str_compare(sorted[middle], name);

        if (c == 0)
            return true;
        if (c < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static enum err labels_filter(const struct labels *in, const struct str *names, size_t name_count,
                              bool keep, struct arena *arena, struct labels *out,
                              struct errinfo *ei)
{
    size_t n = 0;
    enum err e;
    struct label *items = items_new(arena, in->count, ei, &e);

    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < in->count; i++) {
        if (names_contain(names, name_count, in->items[i].name) == keep)
            items[n++] = in->items[i];
    }
    *out = (struct labels){n, items};
    return ERR_OK;
}

enum err labels_keep(const struct labels *in, const struct str *names, size_t name_count,
                     struct arena *arena, struct labels *out, struct errinfo *ei)
{
    return labels_filter(in, names, name_count, true, arena, out, ei);
}

enum err labels_drop(const struct labels *in, const struct str *names, size_t name_count,
                     struct arena *arena, struct labels *out, struct errinfo *ei)
{
    return labels_filter(in, names, name_count, false, arena, out, ei);
}

enum err labels_with(const struct labels *in, struct str name, struct str value,
                     struct arena *arena, struct labels *out, struct errinfo *ei)
{
    size_t n = 0, i = 0;
    enum err e;
    struct label *items = items_new(arena, in->count + 1, ei, &e);

    if (e != ERR_OK)
        return e;
    while (i < in->count && str_compare(in->items[i].name, name) < 0)
        items[n++] = in->items[i++];
    if (value.size > 0)
        items[n++] = (struct label){name, value};
    if (i < in->count && str_equal(in->items[i].name, name))
        i++;
    while (i < in->count)
        items[n++] = in->items[i++];
    *out = (struct labels){n, items};
    return ERR_OK;
}

enum err labels_copy(const struct labels *in, struct arena *arena, struct labels *out,
                     struct errinfo *ei)
{
    struct label *items;
    size_t bytes = 0;
    char *text;
    enum err e;

    for (size_t i = 0; i < in->count; i++)
        bytes += in->items[i].name.size + in->items[i].value.size;
    items = items_new(arena, in->count, ei, &e);
    if (e != ERR_OK)
        return e;
    text = arena_alloc(arena, bytes);
    if (text == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0; i < in->count; i++) {
        const struct label *l = &in->items[i];

        if (l->name.size > 0)
            memcpy(text, l->name.data, l->name.size);
        items[i].name = (struct str){text, l->name.size};
        text += l->name.size;
        if (l->value.size > 0)
            memcpy(text, l->value.data, l->value.size);
        items[i].value = (struct str){text, l->value.size};
        text += l->value.size;
    }
    *out = (struct labels){in->count, items};
    return ERR_OK;
}

char *labels_text(const struct labels *in, struct arena *arena)
{
    char *text = arena_memdup0(arena, "{", 1);

    for (size_t i = 0; i < in->count && text != NULL; i++) {
        const struct label *l = &in->items[i];
        const char *value = text_quote(l->value, arena);
        const char *name = label_name_is_legacy(l->name)
                               ? arena_memdup0(arena, l->name.data, l->name.size)
                               : text_quote(l->name, arena);

        if (name == NULL)
            return NULL;
        text = arena_printf(arena, "%s%s%s=%s", text, i > 0 ? ", " : "", name, value);
    }
    return text == NULL ? NULL : arena_printf(arena, "%s}", text);
}

static int name_compare(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

enum err names_sort(const struct str *in, size_t count, struct arena *arena, struct str **out,
                    size_t *out_count, struct errinfo *ei)
{
    struct str *names = ARENA_ARRAY(arena, count, struct str);
    size_t n = 0;

    if (names == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0; i < count; i++)
        names[i] = in[i];
    if (count > 1)
        qsort(names, count, sizeof *names, name_compare);
    for (size_t i = 0; i < count; i++) {
        if (n == 0 || !str_equal(names[n - 1], names[i]))
            names[n++] = names[i];
    }
    *out = names;
    *out_count = n;
    return ERR_OK;
}

void label_table_init(struct label_table *t, struct arena *arena)
{
    *t = (struct label_table){.arena = arena};
}

/* The slot of a key, or the free slot where it would go. */
static size_t slot_of(const struct label_table *t, uint64_t hash, const struct labels *key)
{
    size_t mask = t->slot_count - 1;
    size_t slot = (size_t)hash & mask;

    for (; t->slots[slot] != 0; slot = (slot + 1) & mask) {
        if (t->hashes[slot] == hash && labels_equal(&t->keys[t->slots[slot] - 1], key))
            return slot;
    }
    return slot;
}

/* Doubles the table; old slots stay behind in the arena, at most as much again as the new ones. */
static enum err table_grow(struct label_table *t, struct errinfo *ei)
{
    size_t slot_count = t->slot_count == 0 ? 64 : t->slot_count * 2;
    uint32_t *slots = arena_calloc(t->arena, slot_count, sizeof *slots);
    uint64_t *hashes = ARENA_ARRAY(t->arena, slot_count, uint64_t);

    if (slots == NULL || hashes == NULL)
        return arena_refused(t->arena, ei);
    for (size_t i = 0; i < t->slot_count; i++) {
        size_t slot = (size_t)t->hashes[i] & (slot_count - 1);

        if (t->slots[i] == 0)
            continue;
        while (slots[slot] != 0)
            slot = (slot + 1) & (slot_count - 1);
        slots[slot] = t->slots[i];
        hashes[slot] = t->hashes[i];
    }
    t->slots = slots;
    t->hashes = hashes;
    t->slot_count = slot_count;
    return ERR_OK;
}

enum err label_table_add(struct label_table *t, const struct labels *key, size_t *index,
                         bool *added, struct errinfo *ei)
{
    uint64_t hash = labels_hash(key);
    size_t slot;
    enum err e;

    if (t->count + t->count / 2 >= t->slot_count) {
        e = table_grow(t, ei);
        if (e != ERR_OK)
            return e;
    }
    slot = slot_of(t, hash, key);
    *added = t->slots[slot] == 0;
    if (!*added) {
        *index = t->slots[slot] - 1;
        return ERR_OK;
    }
    if (t->count == t->capacity) {
        size_t capacity = t->capacity == 0 ? 16 : t->capacity * 2;
        struct labels *keys =
            arena_grow_array(t->arena, t->keys, t->count, capacity, sizeof *t->keys);

        if (keys == NULL)
            return arena_refused(t->arena, ei);
        t->keys = keys;
        t->capacity = capacity;
    }
    if (t->count == UINT32_MAX - 1)
        return errinfo_set(ei, ERR_LIMIT, 0, "too many label sets in a query");
    e = labels_copy(key, t->arena, &t->keys[t->count], ei);
    if (e != ERR_OK)
        return e;
    *index = t->count++;
    t->hashes[slot] = hash;
    t->slots[slot] = (uint32_t)t->count;
    return ERR_OK;
}

size_t label_table_find(const struct label_table *t, const struct labels *key)
{
    size_t slot;

    if (t->slot_count == 0)
        return SIZE_MAX;
    slot = slot_of(t, labels_hash(key), key);
    return t->slots[slot] == 0 ? SIZE_MAX : t->slots[slot] - 1;
}
