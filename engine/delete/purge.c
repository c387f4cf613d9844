/*
 * Purges: deletions under a key, which the manifest keeps beside the tombstones. Withdrawing
 * takes keys and tombstones out in one manifest, so that a crash leaves both or neither.
 */
#include "engine/purge.h"

#include <stdlib.h>

#include "base/assert.h"
#include "engine/delete/delete_internal.h"
#include "engine/flush/flush_internal.h"
#include "engine/maintain.h"

uint64_t engine_withdrawn_generation(const struct engine *e)
{
    /* acquire: the list of tombstones that it came after is seen too */
    return atomic_load_explicit(&e->withdrawn_generation, memory_order_acquire);
}

enum err engine_purged_check(const struct engine *e, uint64_t purged_generation, struct errinfo *ei)
{
    if (purged_generation >= engine_withdrawn_generation(e))
        return ERR_OK;
    return errinfo_set(ei, ERR_NOT_FOUND, 0, "a deletion was withdrawn meanwhile");
}

static struct purge_list *purges_get(struct engine *e)
{
    struct purge_list *list;

    mutex_lock(&e->manifest_lock);
    list = purge_list_ref(e->manifest.purges);
    mutex_unlock(&e->manifest_lock);
    return list;
}

/* Files with samples that a tombstone of that generation has not been applied to. */
static uint64_t files_below(const struct manifest *m, uint64_t generation)
{
    uint64_t count = 0;

    for (size_t i = 0; i < m->file_count; i++)
        count += m->files[i].kind != MANIFEST_SERIES &&
                 generation_of_file(m->files[i].number) < generation;
    for (size_t i = 0; i < m->part_count; i++)
        count +=
            m->parts[i].key.generation < generation && m->parts[i].purged_generation < generation;
    return count;
}

bool engine_purges_stand(struct engine *e)
{
    struct purge_list *list = purges_get(e);
    bool any = false;

    for (size_t i = 0; list != NULL && i < list->count; i++)
        any |= list->items[i].generation != 0;
    purge_list_unref(list);
    return any;
}

/* Parts that a tombstone of that generation has been applied to. */
static uint64_t parts_purged(const struct manifest *m, uint64_t generation)
{
    uint64_t count = 0;

    for (size_t i = 0; i < m->part_count; i++)
        count +=
            m->parts[i].key.generation < generation && m->parts[i].purged_generation >= generation;
    return count;
}

/* ---- making ---- */

/* Those that do not stand, ascending by key. */
struct making {
    struct purge_item *items;
    struct delete_target *targets; /* their filters are ours */
    size_t count;
};

static enum err purges_name(void *ctx, struct manifest *m, const uint64_t *generations,
                            struct errinfo *ei)
{
    const struct making *w = ctx;
    struct purge_list *next = NULL;
    /* All are younger than every file there is. */
    uint64_t file_count = files_below(m, generations[0]);
    enum err err;

    for (size_t i = 0; i < w->count; i++) {
        w->items[i].generation = generations[i];
        w->items[i].file_count = file_count;
    }
    err = purge_list_add(m->purges, w->items, w->count, &next, ei);
    if (err == ERR_OK) {
        purge_list_unref(m->purges);
        m->purges = next;
    }
    return err;
}

static int compare_requests(const void *a, const void *b)
{
    return str_compare((*(const struct purge_request *const *)a)->key,
                       (*(const struct purge_request *const *)b)->key);
}

static enum err target_make(const struct purge_request *r, struct arena *arena,
                            struct delete_target *out, struct errinfo *ei)
{
    struct relabel *filter = NULL;
    enum err err = ERR_OK;

    if (r->filter != NULL && !relabel_action_filters(r->filter->action))
        return errinfo_set(ei, ERR_INVALID, 0, "a rule that drops nothing purges nothing");
    if (r->filter != NULL)
        err = relabel_compile(r->filter, arena, &filter, ei);
    if (err == ERR_OK)
        *out = (struct delete_target){r->matchers, r->matcher_count, filter};
    return err;
}

static void making_done(struct making *w)
{
    for (size_t i = 0; i < w->count; i++)
        relabel_done((struct relabel *)(uintptr_t)w->targets[i].filter);
}

/* To be ended by making_done(), also after a failure. */
static enum err making_list(const struct purge_list *standing, const struct purge_request *requests,
                            size_t count, struct arena *arena, struct making *out,
                            struct errinfo *ei)
{
    const struct purge_request **sorted =
        ARENA_ARRAY(arena, count + 1, const struct purge_request *);
    enum err err = ERR_OK;

    out->items = ARENA_ARRAY(arena, count + 1, struct purge_item);
    out->targets = ARENA_ARRAY(arena, count + 1, struct delete_target);
    out->count = 0;
    if (sorted == NULL || out->items == NULL || out->targets == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &requests[i];
    qsort(sorted, count, sizeof(void *), compare_requests);
    for (size_t i = 0; i < count && err == ERR_OK; i++) {
        const struct purge_request *r = sorted[i];

        if ((i > 0 && str_equal(sorted[i - 1]->key, r->key)) ||
            purge_list_find(standing, r->key) != NULL)
            continue;
        err = target_make(r, arena, &out->targets[out->count], ei);
        if (err == ERR_OK)
            out->items[out->count++] = (struct purge_item){.key = r->key};
    }
    return err;
}

enum err engine_purge(struct engine *e, const struct purge_request *requests, size_t count,
                      size_t *made, struct errinfo *ei)
{
    struct making w = {0};
    const struct delete_extra extra = {purges_name, &w};
    struct purge_list *list;
    struct arena arena;
    enum err err = flush_admit(e, ei);

    if (err != ERR_OK)
        return err;
    arena_init(&arena, NULL);
    engine_maintain_lock_all(e);
    list = purges_get(e);
    err = making_list(list, requests, count, &arena, &w, ei);
    purge_list_unref(list);
    if (err == ERR_OK && w.count > 0)
        err = delete_locked(e, w.targets, w.count, INT64_MIN, INT64_MAX, &extra, ei);
    engine_maintain_unlock_all(e);
    making_done(&w);
    arena_done(&arena);
    if (err == ERR_OK && made != NULL)
        *made = w.count;
    return err;
}

/* ---- taking back ---- */

struct withdrawal {
    const struct str *keys; /* ascending */
    size_t count;
    uint64_t *generations; /* by key, as are the results */
    struct purge_withdrawn *results;
};

/* What stands of the files that a purge found. */
static uint64_t files_left(const struct manifest *m, uint64_t generation, uint64_t file_count)
{
    uint64_t left = files_below(m, generation), purged = parts_purged(m, generation);
    /* Parts of ended series have come since, with samples that other files have as well. */
    uint64_t most = purged < file_count ? file_count - purged : 0;

    return left < most ? left : most;
}

static enum err withdrawal_name(void *ctx, struct manifest *m, struct errinfo *ei)
{
    struct withdrawal *w = ctx;
    struct purge_list *next = NULL;
    enum err err = purge_list_remove(m->purges, w->keys, w->count, &next, ei);

    if (err != ERR_OK)
        return err;
    purge_list_unref(m->purges);
    m->purges = next;
    for (size_t i = 0; i < w->count; i++)
        w->results[i].file_left = files_left(m, w->generations[i], w->results[i].file_count);
    return ERR_OK;
}

static bool withdraws(const struct withdrawal *w, uint64_t generation)
{
    for (size_t i = 0; i < w->count; i++) {
        if (w->generations[i] == generation)
            return true;
    }
    return false;
}

/* *out: the list without their tombstones; counted. */
static enum err tombstones_drop(const struct tombstone_list *list, const struct withdrawal *w,
                                struct tombstone_list **out, struct errinfo *ei)
{
    size_t count = list == NULL ? 0 : list->count;
    bool *keep = calloc(count + 1, sizeof *keep);
    enum err err;

    if (keep == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu tombstones", count);
    for (size_t i = 0; i < count; i++)
        keep[i] = !withdraws(w, list->items[i].generation);
    err = tombstone_list_keep(list, keep, out, ei);
    free(keep);
    return err;
}

/* Looks the keys up. */
static enum err withdrawal_init(struct withdrawal *w, const struct purge_list *list,
                                struct arena *arena, struct errinfo *ei)
{
    w->generations = ARENA_ARRAY(arena, w->count, uint64_t);
    w->results = arena_calloc(arena, w->count, sizeof *w->results);
    if (w->generations == NULL || w->results == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < w->count; i++) {
        const struct purge_item *found = purge_list_find(list, w->keys[i]);

        ASSERT(i == 0 || str_compare(w->keys[i - 1], w->keys[i]) < 0);
        if (found == NULL)
            return errinfo_set(ei, ERR_NOT_FOUND, 0, "no such purge");
        w->generations[i] = found->generation;
        w->results[i].file_count = found->file_count;
    }
    return ERR_OK;
}

/* The locks of all shards are held. */
static enum err withdraw(struct engine *e, struct withdrawal *w, struct errinfo *ei)
{
    struct tombstone_list *next = NULL;
    enum err err = tombstones_drop(e->tombstones, w, &next, ei);
    bool any = false;

    if (err == ERR_OK)
        err = tombstones_replace(e, next, withdrawal_name, w, ei);
    tombstone_list_unref(next);
    for (size_t i = 0; i < w->count; i++)
        any |= w->generations[i] != 0;
    if (err == ERR_OK && any) {
        uint64_t now = generation_of_file(engine_file_number(e));

        atomic_store_explicit(&e->withdrawn_generation, now, memory_order_release);
    }
    return err;
}

enum err engine_purges_withdraw(struct engine *e, const struct str *keys, size_t count,
                                struct purge_withdrawn *out, struct errinfo *ei)
{
    struct withdrawal w = {.keys = keys, .count = count};
    struct purge_list *list;
    struct arena arena;
    enum err err = flush_admit(e, ei);

    if (err != ERR_OK || count == 0)
        return err;
    arena_init(&arena, NULL);
    engine_maintain_lock_all(e);
    list = purges_get(e);
    err = withdrawal_init(&w, list, &arena, ei);
    if (err == ERR_OK)
        err = withdraw(e, &w, ei);
    engine_maintain_unlock_all(e);
    purge_list_unref(list);
    for (size_t i = 0; i < count && err == ERR_OK; i++)
        out[i] = w.results[i];
    arena_done(&arena);
    return err;
}

enum err engine_purges(struct engine *e, struct arena *arena, struct str **out, size_t *count,
                       struct errinfo *ei)
{
    struct purge_list *list = purges_get(e);
    size_t n = list == NULL ? 0 : list->count;
    struct str *keys = ARENA_ARRAY(arena, n + 1, struct str);

    for (size_t i = 0; keys != NULL && i < n; i++) {
        keys[i] = list->items[i].key;
        keys[i].data = arena_memdup0(arena, keys[i].data, keys[i].size);
        if (keys[i].data == NULL)
            keys = NULL;
    }
    purge_list_unref(list);
    if (keys == NULL)
        return arena_error(arena, ei);
    *out = keys;
    *count = n;
    return ERR_OK;
}
