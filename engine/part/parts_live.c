/*
 * The live parts of a shard as merges and retention see them, and their exchange.
 */
#include <stdlib.h>

#include "engine/flush/flush_internal.h"
#include "engine/memtable/memtable_internal.h"

/* The present set, counted; NULL: no files. */
static struct file_set *set_get(struct shard *s)
{
    struct file_set *set;

    mutex_lock(&s->lock);
    set = s->files == NULL ? NULL : file_set_ref(s->files);
    mutex_unlock(&s->lock);
    return set;
}

static bool is_touched(const struct part_source *source, const struct tombstone_list *tombstones)
{
    const struct part_info *info = part_info(source->part);
    uint64_t generation = source->key.generation > source->purged_generation
                              ? source->key.generation
                              : source->purged_generation;

    return tombstone_list_concerns(tombstones, generation, info->min_time_ms, info->max_time_ms);
}

static struct engine_part part_of(const struct file_set *set, struct part_source *source)
{
    const struct part_info *info = part_info(source->part);

    return (struct engine_part){
        .part = source->part,
        .key = source->key,
        .size_bytes = info->index_size + info->chunks_size,
        .is_foreign = source->is_foreign,
        .is_touched_by_delete = is_touched(source, set->tombstones),
        .source = source,
    };
}

/* How a part of the file would be named; false: it holds nothing. A file of a window may yet get
 * samples from all of it. */
static bool file_key(const struct sealed_view *v, struct part_key *out)
{
    const struct sealed_source *source = v->source;
    int64_t first_ms = v->min_time_ms, last_ms = v->max_time_ms;

    if (source->kind == SEALED_RECENT) {
        first_ms = chunk_window_start_ms(source->window);
        last_ms = first_ms + CHUNK_WINDOW_MS - 1;
    }
    if (first_ms > last_ms)
        return false;
    *out = (struct part_key){.window_start_ms = first_ms,
                             .window_size_ms = (uint64_t)last_ms - (uint64_t)first_ms + 1,
                             .shard = source->shard,
                             .shard_count = source->shard_count,
                             .generation = source->generation};
    return true;
}

static size_t file_keys(const struct file_set *set, struct part_key *out)
{
    size_t count = 0;

    for (size_t i = 0; set != NULL && i < set->sealed_count; i++)
        count += file_key(&set->sealed[i], &out[count]);
    return count;
}

enum err engine_parts_get(struct engine *e, uint32_t shard, struct arena *arena,
                          struct engine_parts *out, struct errinfo *ei)
{
    uint64_t purged = engine_withdrawn_generation(e); /* before the set: see there */
    struct file_set *set = set_get(engine_shard(e, shard));
    uint64_t newest = set == NULL ? 0 : flush_purged_generation(set->tombstones);
    size_t count = set == NULL ? 0 : set->part_count;
    struct engine_part *items = ARENA_ARRAY(arena, count, struct engine_part);
    struct part_key *files =
        ARENA_ARRAY(arena, set == NULL ? 0 : set->sealed_count, struct part_key);

    if (items == NULL || files == NULL) {
        file_set_unref(set);
        return arena_error(arena, ei);
    }
    for (size_t i = 0; i < count; i++)
        items[i] = part_of(set, set->parts[i]);
    *out = (struct engine_parts){
        .count = count,
        .items = items,
        .purged_generation = newest > purged ? newest : purged,
        .files = files,
        .file_count = file_keys(set, files),
        .set = set,
    };
    return ERR_OK;
}

void engine_parts_release(struct engine_parts *parts)
{
    file_set_unref(parts->set);
    *parts = (struct engine_parts){0};
}

/* ---- the exchange ---- */

static struct part_source *part_find_live(const struct shard *s, const struct part_key *key)
{
    for (size_t i = 0; s->files != NULL && i < s->files->part_count; i++) {
        if (part_key_equal(&s->files->parts[i]->key, key))
            return s->files->parts[i];
    }
    return NULL;
}

static enum err removed_find(const struct shard *s, const struct part_key *removed, size_t count,
                             struct part_source **out, struct errinfo *ei)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = part_find_live(s, &removed[i]);
        if (out[i] == NULL)
            return errinfo_set(ei, ERR_NOT_FOUND, 0, "shard %u: a part has gone", s->number);
        /* It stands in the sets of several shards. */
        if (out[i]->is_foreign)
            return errinfo_set(ei, ERR_UNSUPPORTED, 0,
                               "shard %u: a part of %u shards cannot be exchanged", s->number,
                               removed[i].shard_count);
    }
    return ERR_OK;
}

static bool is_removed(const struct part_source *p, struct part_source *const *removed,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (removed[i] == p)
            return true;
    }
    return false;
}

/* Whether something of that key, which stays, would change sides: it is younger than what goes and
 * not younger than what comes in its place. */
static bool is_between(const struct part_key *key, struct part_source *const *removed, size_t count,
                       uint64_t generation)
{
    if (key->generation > generation)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (key->generation > removed[i]->key.generation && part_key_meets(key, &removed[i]->key))
            return true;
    }
    return false;
}

static enum err between_refuse(const struct shard *s, struct part_source *const *removed,
                               size_t count, uint64_t generation, struct errinfo *ei)
{
    for (size_t i = 0; i < s->files->sealed_count; i++) {
        const struct sealed_source *source = s->files->sealed[i].source;
        struct part_key key;

        if (file_key(&s->files->sealed[i], &key) && is_between(&key, removed, count, generation))
            return errinfo_set(ei, source->kind == SEALED_LATE ? ERR_UNAVAILABLE : ERR_INVALID, 0,
                               "shard %u: %s is younger than a part and older than its merge",
                               s->number, sealed_file_path(source->file));
    }
    for (size_t i = 0; i < s->files->part_count; i++) {
        const struct part_source *p = s->files->parts[i];

        if (!is_removed(p, removed, count) && is_between(&p->key, removed, count, generation))
            return errinfo_set(ei, ERR_INVALID, 0,
                               "shard %u: a part that stays is younger than a part and not younger "
                               "than its merge",
                               s->number);
    }
    return ERR_OK;
}

/* Caller holds maintain_lock. */
static enum err exchange(struct engine *e, struct shard *s, const struct part_key *removed,
                         size_t removed_count, const struct flush_parts *added, struct errinfo *ei)
{
    struct part_source **sources = calloc(removed_count + 1, sizeof(struct part_source *));
    const struct flush_exchange x = {
        .parts_added = added, .parts_removed = sources, .parts_removed_count = removed_count};
    enum err err;

    if (sources == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu parts", removed_count);
    err = removed_find(s, removed, removed_count, sources, ei);
    if (err == ERR_OK && added->count > 0)
        err = between_refuse(s, sources, removed_count, added->named[0].key.generation, ei);
    if (err == ERR_OK)
        err = flush_exchange_run(e, s, &x, ei);
    free(sources);
    return err;
}

enum err engine_parts_exchange(struct engine *e, uint32_t shard, const struct part_key *removed,
                               size_t removed_count, const struct part_info *added,
                               uint64_t purged_generation, struct errinfo *ei)
{
    struct shard *s = engine_shard(e, shard);
    struct flush_parts parts = {0};
    enum err err = flush_admit(e, ei);

    if (err == ERR_OK && added != NULL)
        err = flush_parts_add(e, &parts, added, purged_generation, ei);
    if (err == ERR_OK) {
        mutex_lock(&s->maintain_lock);
        err = engine_purged_check(e, purged_generation, ei);
        if (err == ERR_OK)
            err = exchange(e, s, removed, removed_count, &parts, ei);
        mutex_unlock(&s->maintain_lock);
    }
    flush_parts_done(e, &parts, err == ERR_OK);
    return err;
}

struct part_store *engine_part_store(const struct engine *e)
{
    return e->parts;
}

const char *engine_parts_dir(void)
{
    return MANIFEST_PARTS_DIR;
}
