/*
 * Parts that were written under another shard count. Several shards read one, so that it leaves all
 * of their sets.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "engine/flush/flush_internal.h"

static enum err name_remove(void *ctx, struct manifest *m, struct errinfo *ei)
{
    (void)ei;
    /* Gone already: an earlier call could not take it out of every set. */
    (void)manifest_part_remove(m, ctx);
    return ERR_OK;
}

static struct part_source *source_find(const struct file_set *set, const struct part_key *key)
{
    for (size_t i = 0; set != NULL && i < set->part_count; i++) {
        if (part_key_equal(&set->parts[i]->key, key))
            return set->parts[i];
    }
    return NULL;
}

/* Publishes a set without the part, if the shard has it. Caller holds maintain_lock. */
static enum err set_remove(struct shard *s, const struct part_key *key, struct errinfo *ei)
{
    struct part_source *source = source_find(s->files, key);
    const struct file_set_change change = {.part_remove = &source, .part_remove_count = 1};
    struct file_set *next = NULL, *before;
    enum err err;

    if (source == NULL)
        return ERR_OK;
    mutex_lock(&s->files_lock);
    err = file_set_new(s->files, &change, &next, ei);
    mutex_unlock(&s->files_lock);
    if (err != ERR_OK)
        return err;
    /* relaxed: the counts of references order it; the last one unlinks */
    atomic_store_explicit(&source->is_removed, true, memory_order_relaxed);
    mutex_lock(&s->files_lock);
    mutex_lock(&s->lock);
    before = s->files;
    s->files = next;
    mutex_unlock(&s->lock);
    mutex_unlock(&s->files_lock);
    file_set_unref(before);
    return ERR_OK;
}

enum err engine_foreign_part_remove(struct engine *e, const struct part_key *key,
                                    struct errinfo *ei)
{
    struct part_key copy = *key;
    enum err err;

    if (key->shard_count == e->shard_count)
        return errinfo_set(ei, ERR_INVALID, 0, "shard %u: a part of this shard count", key->shard);
    err = engine_manifest_update(e, name_remove, &copy, ei);
    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++) {
        struct shard *s = &e->shards[i];

        mutex_lock(&s->maintain_lock);
        err = set_remove(s, key, ei);
        mutex_unlock(&s->maintain_lock);
    }
    return err;
}

/* ---- the exchange ---- */

struct regrouping {
    const struct part_key *removed;
    size_t removed_count;
    uint64_t purged_generation;
    struct flush_parts added;
    uint32_t first, count;  /* the shards concerned */
    struct file_set **next; /* owned, as what it holds until it is published: by shard from first */
};

/* Shards of the store that share hashes with what goes. */
static void shards_find(const struct engine *e, struct regrouping *g)
{
    uint32_t end = 0;

    g->first = e->shard_count;
    for (uint32_t i = 0; i < e->shard_count; i++) {
        const struct part_key own = {.shard = i, .shard_count = e->shard_count};

        for (size_t k = 0; k < g->removed_count; k++) {
            if (!part_key_shards_meet(&own, &g->removed[k]))
                continue;
            g->first = i < g->first ? i : g->first;
            end = i + 1;
        }
    }
    g->count = end - g->first;
}

/* The change of one shard's set; the arrays have room. */
static enum err change_fill(const struct engine *e, const struct shard *s,
                            const struct regrouping *g, struct part_source **removed,
                            struct part_source **added, struct file_set_change *out,
                            struct errinfo *ei)
{
    const struct part_key own = {.shard = s->number, .shard_count = e->shard_count};

    *out = (struct file_set_change){.part_remove = removed, .part_add = added};
    for (size_t i = 0; i < g->removed_count; i++) {
        struct part_source *source = source_find(s->files, &g->removed[i]);

        if (!part_key_shards_meet(&own, &g->removed[i]))
            continue;
        if (source == NULL)
            return errinfo_set(ei, ERR_NOT_FOUND, 0, "shard %u: a part has gone", s->number);
        DEBUG_ASSERT(removed != NULL);
        removed[out->part_remove_count++] = source;
    }
    for (size_t i = 0; i < g->added.count; i++) {
        if (part_key_shards_meet(&own, &g->added.named[i].key))
            added[out->part_add_count++] = g->added.sources[i];
    }
    return ERR_OK;
}

static enum err sets_build(struct engine *e, struct regrouping *g, struct errinfo *ei)
{
    struct part_source **removed = calloc(g->removed_count + 1, sizeof(struct part_source *));
    struct part_source **added = calloc(g->added.count + 1, sizeof(struct part_source *));
    enum err err = ERR_OK;

    g->next = calloc(g->count + 1, sizeof(struct file_set *));
    if (removed == NULL || added == NULL || g->next == NULL)
        err = errinfo_set(ei, ERR_NOMEM, 0, "sets of %u shards", g->count);
    for (uint32_t i = 0; i < g->count && err == ERR_OK; i++) {
        struct shard *s = &e->shards[g->first + i];
        struct file_set_change change;

        err = change_fill(e, s, g, removed, added, &change, ei);
        mutex_lock(&s->files_lock);
        if (err == ERR_OK)
            err = file_set_new(s->files, &change, &g->next[i], ei);
        mutex_unlock(&s->files_lock);
    }
    free(removed);
    free(added);
    return err;
}

static enum err regrouping_name(void *ctx, struct manifest *m, struct errinfo *ei)
{
    const struct regrouping *g = ctx;
    enum err err = ERR_OK;

    for (size_t i = 0; i < g->removed_count; i++) {
        if (!manifest_part_remove(m, &g->removed[i]))
            return errinfo_set(ei, ERR_NOT_FOUND, 0, "shard %u of %u: a part has gone",
                               g->removed[i].shard, g->removed[i].shard_count);
    }
    for (size_t i = 0; i < g->added.count && err == ERR_OK; i++)
        err = manifest_part_add(m, &g->added.named[i], ei);
    return err;
}

static void sets_publish(struct engine *e, struct regrouping *g)
{
    for (uint32_t i = 0; i < g->count; i++) {
        struct shard *s = &e->shards[g->first + i];

        for (size_t k = 0; k < g->removed_count; k++) {
            struct part_source *source = source_find(s->files, &g->removed[k]);

            /* relaxed: the counts of references order it; the last one unlinks */
            if (source != NULL)
                atomic_store_explicit(&source->is_removed, true, memory_order_relaxed);
        }
    }
    for (uint32_t i = 0; i < g->count; i++) {
        struct shard *s = &e->shards[g->first + i];
        struct file_set *before;

        mutex_lock(&s->files_lock);
        mutex_lock(&s->lock);
        before = s->files;
        s->files = TAKE(g->next[i]);
        mutex_unlock(&s->lock);
        mutex_unlock(&s->files_lock);
        file_set_unref(before);
    }
}

static enum err regroup(struct engine *e, struct regrouping *g, struct errinfo *ei)
{
    enum err err;

    shards_find(e, g);
    for (uint32_t i = 0; i < g->count; i++)
        mutex_lock(&e->shards[g->first + i].maintain_lock);
    err = engine_purged_check(e, g->purged_generation, ei);
    if (err == ERR_OK)
        err = sets_build(e, g, ei);
    if (err == ERR_OK)
        err = engine_manifest_update(e, regrouping_name, g, ei);
    if (err == ERR_OK)
        sets_publish(e, g);
    for (uint32_t i = g->count; i-- > 0;)
        mutex_unlock(&e->shards[g->first + i].maintain_lock);
    for (uint32_t i = 0; i < g->count && g->next != NULL; i++)
        file_set_unref(g->next[i]);
    free(g->next);
    return err;
}

enum err engine_foreign_parts_exchange(struct engine *e, const struct part_key *removed,
                                       size_t removed_count, const struct part_info *added,
                                       size_t added_count, uint64_t purged_generation,
                                       struct errinfo *ei)
{
    struct regrouping g = {
        .removed = removed, .removed_count = removed_count, .purged_generation = purged_generation};
    enum err err = flush_admit(e, ei);
    size_t opened = 0;

    while (opened < added_count && err == ERR_OK)
        err = flush_parts_add(e, &g.added, &added[opened++], purged_generation, ei);
    for (size_t i = opened; i < added_count; i++)
        engine_part_discard(e, &added[i].key);
    if (err == ERR_OK)
        err = regroup(e, &g, ei);
    flush_parts_done(e, &g.added, err == ERR_OK);
    return err;
}
