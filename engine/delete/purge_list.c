/*
 * As bytes (the content of the manifest's section 5, docs/formats/manifest.md):
 *
 *   | count (4) | purges, ascending by key ... |
 *   Purge: | generation (8) | file count (8) | key size (4) | key |
 */
#include "engine/delete/purge_list_internal.h"

#include <stdlib.h>

#include "engine/purge.h"

enum { PURGE_SIZE_MIN = 20 /* without its key */ };

struct purge_list *purge_list_ref(struct purge_list *list)
{
    if (list != NULL) /* relaxed: the caller sees a reference that stays meanwhile */
        (void)atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
    return list;
}

void purge_list_unref(struct purge_list *list)
{
    /* acq_rel: whoever frees comes after everything the others did with it */
    if (list == NULL || atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) != 1)
        return;
    arena_done(&list->arena);
    free(list);
}

static enum err no_memory(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOMEM, 0, "a list of purges");
}

static struct purge_list *list_new(size_t capacity)
{
    struct purge_list *list = calloc(1, sizeof *list);

    if (list == NULL)
        return NULL;
    atomic_init(&list->refs, 1);
    arena_init(&list->arena, NULL);
    list->items = ARENA_ARRAY(&list->arena, capacity, struct purge_item);
    if (list->items == NULL) {
        purge_list_unref(list);
        return NULL;
    }
    return list;
}

static bool list_put(struct purge_list *list, const struct purge_item *p)
{
    struct purge_item copy = *p;

    copy.key.data = arena_memdup0(&list->arena, p->key.data, p->key.size);
    if (copy.key.data == NULL)
        return false;
    list->items[list->count++] = copy;
    return true;
}

const struct purge_item *purge_list_find(const struct purge_list *list, struct str key)
{
    size_t low = 0, high = list == NULL ? 0 : list->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = str_compare(list->items[middle].key, key);

        if (order == 0)
            return &list->items[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static enum err added_check(const struct purge_list *base, const struct purge_item *added,
                            size_t count, struct errinfo *ei)
{
    for (size_t i = 0; i < count; i++) {
        if (added[i].key.size == 0 || added[i].key.size > PURGE_KEY_SIZE_MAX)
            return errinfo_set(ei, ERR_INVALID, 0, "a purge needs a key of 1 to %d bytes",
                               (int)PURGE_KEY_SIZE_MAX);
        if (purge_list_find(base, added[i].key) != NULL ||
            (i > 0 && str_compare(added[i - 1].key, added[i].key) >= 0))
            return errinfo_set(ei, ERR_EXISTS, 0, "the purge is known already");
    }
    return ERR_OK;
}

enum err purge_list_add(const struct purge_list *base, const struct purge_item *added,
                        size_t added_count, struct purge_list **out, struct errinfo *ei)
{
    size_t count = base == NULL ? 0 : base->count, at = 0;
    struct purge_list *list;
    enum err e = added_check(base, added, added_count, ei);
    bool ok;

    if (e != ERR_OK)
        return e;
    list = list_new(count + added_count);
    ok = list != NULL;
    for (size_t i = 0; ok && i < added_count; i++) {
        for (; ok && at < count && str_compare(base->items[at].key, added[i].key) < 0; at++)
            ok = list_put(list, &base->items[at]);
        ok = ok && list_put(list, &added[i]);
    }
    for (; ok && at < count; at++)
        ok = list_put(list, &base->items[at]);
    if (!ok) {
        purge_list_unref(list);
        return no_memory(ei);
    }
    *out = list;
    return ERR_OK;
}

enum err purge_list_remove(const struct purge_list *base, const struct str *keys, size_t key_count,
                           struct purge_list **out, struct errinfo *ei)
{
    size_t count = base == NULL ? 0 : base->count, at = 0;
    struct purge_list *list = list_new(count + 1);
    bool ok = list != NULL;

    for (size_t i = 0; ok && i < count; i++) {
        while (at < key_count && str_compare(keys[at], base->items[i].key) < 0)
            at++;
        if (at == key_count || !str_equal(keys[at], base->items[i].key))
            ok = list_put(list, &base->items[i]);
    }
    if (!ok) {
        purge_list_unref(list);
        return no_memory(ei);
    }
    if (list->count == 0) {
        purge_list_unref(list);
        list = NULL;
    }
    *out = list;
    return ERR_OK;
}

/* ---- bytes ---- */

enum err purge_list_encode(const struct purge_list *list, struct byte_writer *w, struct errinfo *ei)
{
    size_t count = list == NULL ? 0 : list->count;

    writer_le32(w, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        const struct purge_item *p = &list->items[i];

        writer_le64(w, p->generation);
        writer_le64(w, p->file_count);
        writer_le32(w, (uint32_t)p->key.size);
        writer_append(w, p->key.data, p->key.size);
    }
    return w->failed ? errinfo_set(ei, ERR_NOMEM, 0, "bytes of purges") : ERR_OK;
}

static enum err corrupt(const char *what, struct errinfo *ei)
{
    return errinfo_set(ei, ERR_CORRUPT, 0, "purges: %s", what);
}

static enum err purge_read(struct byte_reader *r, struct purge_list *list, struct errinfo *ei)
{
    struct purge_item p = {.generation = reader_le64(r), .file_count = reader_le64(r)};

    p.key.size = reader_le32(r);
    if (r->failed || p.key.size == 0 || p.key.size > PURGE_KEY_SIZE_MAX)
        return corrupt("one has no key, or too long a one", ei);
    p.key.data = (const char *)reader_take(r, p.key.size);
    if (r->failed)
        return corrupt("one of them ends early", ei);
    if (list->count > 0 && str_compare(list->items[list->count - 1].key, p.key) >= 0)
        return corrupt("their keys do not ascend", ei);
    return list_put(list, &p) ? ERR_OK : no_memory(ei);
}

enum err purge_list_decode(const uint8_t *data, size_t size, struct purge_list **out,
                           struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    uint32_t count = reader_le32(&r);
    struct purge_list *list = NULL;
    enum err e = ERR_OK;

    if (r.failed || count > reader_left(&r) / PURGE_SIZE_MIN)
        return corrupt("their number does not fit", ei);
    if (count > 0) {
        list = list_new(count);
        if (list == NULL)
            return no_memory(ei);
    }
    for (uint32_t i = 0; i < count && e == ERR_OK; i++)
        e = purge_read(&r, list, ei);
    if (e == ERR_OK && reader_left(&r) > 0)
        e = corrupt("bytes behind the last", ei);
    if (e == ERR_OK)
        *out = list;
    else
        purge_list_unref(list);
    return e;
}
