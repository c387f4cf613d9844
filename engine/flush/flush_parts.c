/*
 * Parts between the writer and the manifest, and the exchange of a shard's files.
 *
 * After a failed replacement of the manifest the disk may hold the old one or the new one, so that
 * files which either of them names stay where they are until it is settled.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/flush/flush_internal.h"
#include "engine/part/part_store_internal.h"

/* ---- files ---- */

static enum err part_file_exists(struct engine *e, const struct part_key *key, enum part_file file,
                                 bool *out, struct errinfo *ei)
{
    char *path = part_path_new(MANIFEST_PARTS_DIR, key, file, false);
    enum err err;

    if (path == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "part in %s", MANIFEST_PARTS_DIR);
    err = fs_exists(e->fs, path, out, ei);
    free(path);
    return err;
}

void engine_part_discard(struct engine *e, const struct part_key *key)
{
    enum err ignored;

    for (int file = PART_FILE_INDEX; file <= PART_FILE_CHUNKS; file++) {
        char *path = part_path_new(MANIFEST_PARTS_DIR, key, (enum part_file)file, false);

        ignored = path == NULL ? ERR_NOMEM : fs_unlink(e->fs, path, NULL);
        (void)ignored; /* debris, which the next start removes */
        free(path);
    }
}

/* ---- names ---- */

static void doubtful_add(struct engine *e, const struct part_key *key)
{
    struct doubtful_parts *d = &e->doubtful;
    size_t capacity = d->capacity == 0 ? 8 : 2 * d->capacity;

    mutex_lock(&d->lock);
    if (d->count == d->capacity) {
        struct part_key *grown = reallocarray(d->keys, capacity, sizeof *grown);

        if (grown != NULL) {
            d->keys = grown;
            d->capacity = capacity;
        }
    }
    if (d->count < d->capacity) /* else its name stays taken until the next start */
        d->keys[d->count++] = *key;
    mutex_unlock(&d->lock);
}

static bool doubtful_take(struct engine *e, const struct part_key *key)
{
    struct doubtful_parts *d = &e->doubtful;
    bool found = false;

    mutex_lock(&d->lock);
    for (size_t i = 0; i < d->count && !found; i++) {
        found = part_key_equal(&d->keys[i], key);
        if (found)
            d->keys[i] = d->keys[--d->count];
    }
    mutex_unlock(&d->lock);
    return found;
}

enum err engine_part_clear(struct engine *e, const struct part_key *key, struct errinfo *ei)
{
    bool has_index = false, has_chunks = false;
    enum err err;

    if (engine_manifest_is_settled(e) && doubtful_take(e, key))
        engine_part_discard(e, key);
    if ((err = part_file_exists(e, key, PART_FILE_INDEX, &has_index, ei)) != ERR_OK ||
        (err = part_file_exists(e, key, PART_FILE_CHUNKS, &has_chunks, ei)) != ERR_OK)
        return err;
    /* A live part's; or one's that was removed and has readers, the last of which unlinks it. */
    if (has_index || has_chunks)
        return errinfo_set(ei, ERR_EXISTS, 0, "shard %u: the name of a part is taken", key->shard);
    return ERR_OK;
}

enum err flush_part_name(struct engine *e, struct part_key *key, uint64_t step, struct errinfo *ei)
{
    for (;; key->generation += step) {
        struct errinfo own = {0};
        enum err err = engine_part_clear(e, key, &own);

        if (err == ERR_EXISTS)
            continue;
        if (err != ERR_OK && ei != NULL)
            *ei = own;
        return err;
    }
}

/* ---- parts ---- */

static enum err parts_reserve(struct flush_parts *p, struct errinfo *ei)
{
    size_t capacity = p->capacity == 0 ? 4 : 2 * p->capacity;
    void *sources, *named;

    if (p->count < p->capacity)
        return ERR_OK;
    sources = reallocarray(p->sources, capacity, sizeof(struct part_source *));
    if (sources != NULL)
        p->sources = sources;
    named = reallocarray(p->named, capacity, sizeof *p->named);
    if (named != NULL)
        p->named = named;
    if (sources == NULL || named == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu parts", capacity);
    p->capacity = capacity;
    return ERR_OK;
}

static enum err source_open(struct engine *e, const struct part_key *key, struct part_source **out,
                            struct errinfo *ei)
{
    struct part *part = NULL;
    enum err err = part_open(e->parts, MANIFEST_PARTS_DIR, key, &part, ei);

    if (err != ERR_OK)
        return err;
    *out = part_source_new(e->fs, part, key->shard_count != e->shard_count);
    if (*out != NULL)
        return ERR_OK;
    part_close(part);
    return errinfo_set(ei, ERR_NOMEM, 0, "part in %s", MANIFEST_PARTS_DIR);
}

enum err flush_parts_add(struct engine *e, struct flush_parts *p, const struct part_info *info,
                         uint64_t purged_generation, struct errinfo *ei)
{
    enum err err = parts_reserve(p, ei);

    if (err == ERR_OK)
        err = source_open(e, &info->key, &p->sources[p->count], ei);
    if (err != ERR_OK) {
        engine_part_discard(e, &info->key); /* no manifest has named it */
        return err;
    }
    p->sources[p->count]->purged_generation = purged_generation;
    p->named[p->count++] = (struct manifest_part){.key = info->key,
                                                  .purged_generation = purged_generation,
                                                  .min_time_ms = info->min_time_ms,
                                                  .max_time_ms = info->max_time_ms,
                                                  .sample_count = info->sample_count,
                                                  .index_size = info->index_size,
                                                  .chunks_size = info->chunks_size};
    return ERR_OK;
}

void flush_parts_done(struct engine *e, struct flush_parts *p, bool published)
{
    bool is_settled = published || p->count == 0 || engine_manifest_is_settled(e);

    for (size_t i = 0; i < p->count; i++) {
        part_source_unref(p->sources[i]);
        if (!published && is_settled)
            engine_part_discard(e, &p->named[i].key);
        if (!is_settled)
            doubtful_add(e, &p->named[i].key);
    }
    free(p->sources);
    free(p->named);
    *p = (struct flush_parts){0};
}

/* ---- the exchange ---- */

struct manifest_exchange {
    const struct shard *shard;
    const struct flush_exchange *x;
};

static enum err exchange_name(void *ctx, struct manifest *m, struct errinfo *ei)
{
    const struct manifest_exchange *c = ctx;
    const struct flush_exchange *x = c->x;
    enum err err = ERR_OK;

    /* A sealed file whose first seal failed has not been named yet. */
    for (size_t i = 0; i < x->sealed_removed_count; i++)
        (void)manifest_file_remove(m, x->sealed_removed[i]->number);
    for (size_t i = 0; i < x->parts_removed_count; i++) {
        if (!manifest_part_remove(m, &x->parts_removed[i]->key))
            return errinfo_set(ei, ERR_NOT_FOUND, 0, "shard %u: a part has gone", c->shard->number);
    }
    for (size_t i = 0; x->parts_added != NULL && i < x->parts_added->count && err == ERR_OK; i++)
        err = manifest_part_add(m, &x->parts_added->named[i], ei);
    if (err == ERR_OK && x->change != NULL)
        err = x->change(x->ctx, m, ei);
    return err;
}

/* Marked before the set without them is published: whoever holds the last reference unlinks. */
static void removed_mark(const struct flush_exchange *x)
{
    /* relaxed: the counts of references order it */
    for (size_t i = 0; i < x->sealed_removed_count; i++)
        atomic_store_explicit(&x->sealed_removed[i]->is_removed, true, memory_order_relaxed);
    for (size_t i = 0; i < x->parts_removed_count; i++)
        atomic_store_explicit(&x->parts_removed[i]->is_removed, true, memory_order_relaxed);
}

enum err flush_exchange_run(struct engine *e, struct shard *s, const struct flush_exchange *x,
                            struct errinfo *ei)
{
    struct manifest_exchange c = {s, x};
    struct file_set_change change = {.sealed_remove = x->sealed_removed,
                                     .sealed_remove_count = x->sealed_removed_count,
                                     .part_remove = x->parts_removed,
                                     .part_remove_count = x->parts_removed_count};
    struct file_set *next = NULL, *before;
    enum err err;

    if (x->parts_added != NULL) {
        change.part_add = x->parts_added->sources;
        change.part_add_count = x->parts_added->count;
    }
    /* Everything that can fail comes first. Nobody else replaces the set meanwhile: that takes
     * maintain_lock. */
    mutex_lock(&s->files_lock);
    err = file_set_new(s->files, &change, &next, ei);
    mutex_unlock(&s->files_lock);
    if (err == ERR_OK)
        err = engine_manifest_update(e, exchange_name, &c, ei);
    if (err != ERR_OK) {
        file_set_unref(next);
        return err;
    }
    removed_mark(x);
    mutex_lock(&s->files_lock);
    mutex_lock(&s->lock);
    before = s->files;
    s->files = next;
    if (x->locked != NULL)
        x->locked(x->ctx, s);
    mutex_unlock(&s->lock);
    mutex_unlock(&s->files_lock);
    file_set_unref(before);
    return ERR_OK;
}

uint64_t flush_purged_generation(const struct tombstone_list *list)
{
    return list == NULL || list->count == 0 ? 0 : list->items[list->count - 1].generation;
}
