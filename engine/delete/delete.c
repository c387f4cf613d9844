/*
 * Deletion. What is to be deleted is brought into files first: all shards are sealed, each cut in
 * one critical section. Then the tombstones get their numbers, above those of all files there are,
 * and the files that come later are above them. LIFECYCLE.md.
 *
 * The maintain_locks of all shards are held meanwhile, so that no seal begins a file between.
 */
#include <stdlib.h>

#include "engine/delete/delete_internal.h"
#include "engine/flush/flush_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/seal/seal_internal.h"

/* A matching series whose newest sample is deleted, as it stood at the cut. */
struct newest_sample {
    uint32_t slot;
    uint16_t generation;
    bool is_deleted;
    int64_t t_ms;
    uint64_t bits;
};

struct shard_delete {
    const struct delete *d;
    struct newest_sample *newest; /* owned: of the series that match */
    size_t count;
    struct file_set *next; /* owned until it is published */
};

struct delete
{
    struct engine *engine;
    const struct delete_target *targets;
    size_t target_count;
    int64_t min_time_ms, max_time_ms;
    struct shard_delete *shards;      /* owned */
    struct tombstone_list *list;      /* counted: with the new ones */
    const struct delete_extra *extra; /* NULL: none */
    uint64_t *generations;            /* owned: of the new ones, by target */
};

/* ---- locks of all shards ---- */

void engine_maintain_lock_all(struct engine *e)
{
    for (uint32_t i = 0; i < e->shard_count; i++)
        mutex_lock(&e->shards[i].maintain_lock);
}

void engine_maintain_unlock_all(struct engine *e)
{
    for (uint32_t i = e->shard_count; i-- > 0;)
        mutex_unlock(&e->shards[i].maintain_lock);
}

/* ---- the list in effect ---- */

static struct tombstone_list *list_get(struct engine *e)
{
    struct tombstone_list *list;

    mutex_lock(&e->tombstones_lock);
    list = tombstone_list_ref(e->tombstones);
    mutex_unlock(&e->tombstones_lock);
    return list;
}

void engine_tombstones_set(struct engine *e, struct tombstone_list *list)
{
    struct tombstone_list *before;

    mutex_lock(&e->tombstones_lock);
    before = e->tombstones;
    e->tombstones = tombstone_list_ref(list);
    /* relaxed: see there */
    atomic_store_explicit(&e->tombstone_count, list == NULL ? 0 : list->count,
                          memory_order_relaxed);
    mutex_unlock(&e->tombstones_lock);
    tombstone_list_unref(before);
}

/* A change of the manifest. */
struct list_change {
    struct tombstone_list *list;
    tombstones_also *also; /* NULL: nothing */
    void *ctx;
};

static enum err list_name(void *ctx, struct manifest *m, struct errinfo *ei)
{
    const struct list_change *c = ctx;

    tombstone_list_unref(m->tombstones);
    m->tombstones = tombstone_list_ref(c->list);
    return c->also == NULL ? ERR_OK : c->also(c->ctx, m, ei);
}

/* Builds the sets of all shards with another list. Nobody replaces them meanwhile. */
static enum err sets_build(struct engine *e, struct tombstone_list *list,
                           struct shard_delete *shards, struct errinfo *ei)
{
    const struct file_set_change change = {.set_tombstones = true, .tombstones = list};
    enum err err = ERR_OK;

    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++) {
        struct shard *s = &e->shards[i];

        mutex_lock(&s->files_lock);
        err = file_set_new(s->files, &change, &shards[i].next, ei);
        mutex_unlock(&s->files_lock);
    }
    return err;
}

/* Of a series whose newest sample is deleted: the same one may come again. A purge that can be
 * taken back leaves the times alone, by which samples are found; an equal one takes the way of late
 * ones.
 */
static void newest_hide(const struct delete *d, struct series *series)
{
    if (d->extra == NULL)
        series_lower_newest(series, d->min_time_ms);
    else
        series->newest_bits = SERIES_BITS_UNKNOWN;
}

/* A series that has had nothing since the cut begins anew below the range. */
static void newest_lower(struct shard_delete *x, struct shard *s)
{
    for (size_t i = 0; i < x->count; i++) {
        const struct newest_sample *n = &x->newest[i];
        struct series *series = n->is_deleted ? series_find(&s->series, n->slot) : NULL;

        if (series != NULL && series->generation == n->generation && series->newest_ms == n->t_ms &&
            series->newest_bits == n->bits && series->open_count == 0 && series->closed == 0)
            newest_hide(x->d, series);
    }
}

static void sets_publish(struct engine *e, struct shard_delete *shards)
{
    for (uint32_t i = 0; i < e->shard_count; i++) {
        struct shard *s = &e->shards[i];
        struct file_set *before;

        mutex_lock(&s->files_lock);
        mutex_lock(&s->lock);
        before = s->files;
        s->files = TAKE(shards[i].next);
        newest_lower(&shards[i], s);
        mutex_unlock(&s->lock);
        mutex_unlock(&s->files_lock);
        file_set_unref(before);
    }
}

/* Makes `list` the one in effect: on disk, for merges, for readers. */
static enum err list_publish(struct engine *e, const struct list_change *c,
                             struct shard_delete *shards, struct errinfo *ei)
{
    enum err err = sets_build(e, c->list, shards, ei);

    if (err == ERR_OK)
        err = engine_manifest_update(e, list_name, (void *)(uintptr_t)c, ei);
    if (err != ERR_OK)
        return err;
    engine_tombstones_set(e, c->list);
    sets_publish(e, shards);
    return ERR_OK;
}

static struct shard_delete *shards_new(const struct engine *e)
{
    return calloc(e->shard_count, sizeof(struct shard_delete));
}

static void shards_free(const struct engine *e, struct shard_delete *shards)
{
    for (uint32_t i = 0; shards != NULL && i < e->shard_count; i++) {
        file_set_unref(shards[i].next);
        free(shards[i].newest);
    }
    free(shards);
}

/* ---- sealing ---- */

/* The series file gets the newest samples as they will be: lowered for its notes only, since what
 * was cut is in memory until its slice is detached. */
static void cut_begin(void *ctx, struct shard *s)
{
    struct shard_delete *x = ctx;

    /* A replay must not deliver again what was deleted: the log's frames end here. */
    log_queue_split(&s->log);
    for (size_t i = 0; i < x->count; i++) {
        struct newest_sample *n = &x->newest[i];
        struct series *series = series_find(&s->series, n->slot);

        n->is_deleted = series != NULL && series->newest_ms >= x->d->min_time_ms &&
                        series->newest_ms <= x->d->max_time_ms;
        if (!n->is_deleted)
            continue;
        n->generation = series->generation;
        n->t_ms = series->newest_ms;
        n->bits = series->newest_bits;
        newest_hide(x->d, series);
    }
}

static void cut_end(void *ctx, struct shard *s)
{
    struct shard_delete *x = ctx;

    for (size_t i = 0; i < x->count; i++) {
        const struct newest_sample *n = &x->newest[i];

        if (n->is_deleted) {
            struct series *series = series_at(&s->series, n->slot);

            series->newest_ms = n->t_ms;
            series->newest_bits = n->bits;
        }
    }
}

struct filter_marking {
    const struct delete *d;
    struct slot_bits *marks;
};

/* Whether any target's filter drops a series. */
static enum err is_dropped(const struct delete *d, const struct labels *labels,
                           struct arena *scratch, bool *out, struct errinfo *ei)
{
    *out = false;
    for (size_t i = 0; i < d->target_count && !*out; i++) {
        const struct relabel *filter = d->targets[i].filter;

        if (filter != NULL && !relabel_drops(filter, labels, scratch, out))
            return arena_error(scratch, ei);
    }
    return ERR_OK;
}

static enum err dropped_mark(void *ctx, const uint32_t *slots, const struct labels *sets,
                             size_t count, struct arena *scratch, struct errinfo *ei)
{
    const struct filter_marking *x = ctx;
    enum err err = ERR_OK;

    for (size_t i = 0; i < count && err == ERR_OK; i++) {
        bool drops = false;

        if (sets[i].count > 0)
            err = is_dropped(x->d, &sets[i], scratch, &drops, ei);
        if (drops)
            slot_bits_set(x->marks, slots[i]);
    }
    return err;
}

static enum err matching_mark(const struct delete *d, struct shard *s,
                              const struct matcher *matchers, size_t matcher_count,
                              struct slot_bits *out, struct errinfo *ei)
{
    uint32_t *slots = NULL;
    size_t count = 0;
    struct arena arena;
    enum err err;

    arena_init(&arena, d->engine->memory);
    err = index_select(s->index, matchers, matcher_count, NULL, &arena, &slots, &count, ei);
    for (size_t i = 0; i < count && err == ERR_OK; i++)
        slot_bits_set(out, slots[i]);
    arena_done(&arena);
    return err;
}

/* The slots of all targets, each once. */
static enum err targets_mark(const struct delete *d, struct shard *s, struct slot_bits *out,
                             struct errinfo *ei)
{
    struct filter_marking x = {d, out};
    bool any_filter = false;
    enum err err = ERR_OK;

    for (size_t i = 0; i < d->target_count && err == ERR_OK; i++) {
        const struct delete_target *t = &d->targets[i];

        any_filter |= t->filter != NULL;
        if (t->filter == NULL)
            err = matching_mark(d, s, t->matchers, t->matcher_count, out, ei);
    }
    if (err == ERR_OK && any_filter) /* no postings tell: each series is asked */
        err = index_walk(s->index, shard_slot_end(s), d->engine->memory, dropped_mark, &x, ei);
    return err == ERR_OK && out->unknown ? errinfo_set(ei, ERR_NOMEM, 0, "slots of a deletion")
                                         : err;
}

/* A series that begins after this keeps its newest sample's time, which only means that an equal
 * sample takes the way of late ones. */
static enum err matching_list(struct shard_delete *x, struct shard *s, struct errinfo *ei)
{
    struct slot_bits bits = {0};
    size_t count = 0;
    enum err err = targets_mark(x->d, s, &bits, ei);

    for (size_t w = 0; w < bits.word_count; w++)
        count += (size_t)__builtin_popcountll(bits.words[w]);
    if (err == ERR_OK) {
        x->newest = calloc(count + 1, sizeof *x->newest);
        if (x->newest == NULL)
            err = errinfo_set(ei, ERR_NOMEM, 0, "%zu series", count);
    }
    for (size_t w = 0; w < bits.word_count && x->newest != NULL; w++)
        for (uint64_t left = bits.words[w]; left != 0; left &= left - 1)
            x->newest[x->count++].slot = (uint32_t)(64 * w) + (uint32_t)__builtin_ctzll(left);
    slot_bits_clear(&bits);
    return err;
}

static enum err shard_seal(struct delete *d, uint32_t shard, struct errinfo *ei)
{
    struct shard *s = &d->engine->shards[shard];
    struct shard_delete *x = &d->shards[shard];
    const struct seal_options options = {.reason = SEAL_FLUSH,
                                         .cut_whole = true,
                                         .at_cut = cut_begin,
                                         .after_cut = cut_end,
                                         .ctx = x,
                                         .end_files = true};
    struct seal_result ignored;
    enum err err;

    x->d = d;
    err = matching_list(x, s, ei);
    return err == ERR_OK ? seal_shard(d->engine, s, &options, &ignored, ei) : err;
}

/* The newest sample in any file, now that all are in files. */
static int64_t newest_in_files(const struct engine *e)
{
    int64_t newest = INT64_MIN;

    for (uint32_t i = 0; i < e->shard_count; i++) {
        const struct file_set *set = e->shards[i].files;

        for (size_t k = 0; set != NULL && k < set->sealed_count; k++)
            newest = set->sealed[k].max_time_ms > newest ? set->sealed[k].max_time_ms : newest;
        for (size_t k = 0; set != NULL && k < set->part_count; k++) {
            int64_t own = part_info(set->parts[k]->part)->max_time_ms;

            newest = own > newest ? own : newest;
        }
    }
    return newest;
}

static enum err extra_also(void *ctx, struct manifest *m, struct errinfo *ei)
{
    const struct delete *d = ctx;

    return d->extra->also(d->extra->ctx, m, d->generations, ei);
}

static enum err target_add(const struct delete *d, size_t i, int64_t max_time_ms,
                           struct tombstone_list **out, struct errinfo *ei)
{
    const struct delete_target *t = &d->targets[i];

    if (t->filter != NULL)
        return tombstone_list_add_filter(d->list, relabel_config_of(t->filter), d->min_time_ms,
                                         max_time_ms, d->generations[i], out, ei);
    return tombstone_list_add(d->list, t->matchers, t->matcher_count, d->min_time_ms, max_time_ms,
                              d->generations[i], out, ei);
}

/* d->list: the list in effect with the new ones. */
static enum err list_extend(struct delete *d, int64_t max_time_ms, struct errinfo *ei)
{
    enum err err = ERR_OK;

    d->list = tombstone_list_ref(d->engine->tombstones);
    for (size_t i = 0; i < d->target_count && err == ERR_OK; i++) {
        struct tombstone_list *next = NULL;

        d->generations[i] = generation_of_file(engine_file_number(d->engine));
        err = target_add(d, i, max_time_ms, &next, ei);
        if (err == ERR_OK) {
            tombstone_list_unref(d->list);
            d->list = next;
        }
    }
    return err;
}

static enum err tombstones_make(struct delete *d, struct errinfo *ei)
{
    struct engine *e = d->engine;
    int64_t newest_ms = newest_in_files(e);
    int64_t max_ms = d->max_time_ms < newest_ms ? d->max_time_ms : newest_ms;
    bool is_empty = newest_ms == INT64_MIN || max_ms < d->min_time_ms; /* nothing lies there */
    struct list_change change = {.also = d->extra == NULL ? NULL : extra_also, .ctx = d};
    enum err err = ERR_OK;

    if (is_empty && d->extra == NULL)
        return ERR_OK;
    if (is_empty)
        d->list = tombstone_list_ref(e->tombstones);
    else
        err = list_extend(d, max_ms, ei);
    change.list = d->list;
    return err == ERR_OK ? list_publish(e, &change, d->shards, ei) : err;
}

/* What was deleted may be what keeps writes out. */
static void newest_settle(struct engine *e)
{
    for (uint32_t i = 0; i < e->shard_count && engine_is_ahead(e); i++) {
        mutex_lock(&e->shards[i].lock);
        shard_settle_newest(&e->shards[i]);
        mutex_unlock(&e->shards[i].lock);
    }
}

/* The lists are there. */
static enum err delete_steps(struct delete *d, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (uint32_t i = 0; i < d->engine->shard_count && err == ERR_OK; i++)
        err = shard_seal(d, i, ei);
    if (err == ERR_OK)
        err = tombstones_make(d, ei);
    if (err == ERR_OK)
        newest_settle(d->engine);
    return err;
}

static enum err delete_run(struct delete *d, struct errinfo *ei)
{
    enum err err;

    d->shards = shards_new(d->engine);
    d->generations = calloc(d->target_count, sizeof *d->generations);
    err = d->shards == NULL || d->generations == NULL ? errinfo_set(ei, ERR_NOMEM, 0, "deletion")
                                                      : delete_steps(d, ei);
    shards_free(d->engine, d->shards);
    free(d->generations);
    tombstone_list_unref(d->list);
    return err;
}

enum err delete_locked(struct engine *e, const struct delete_target *targets, size_t target_count,
                       int64_t min_time_ms, int64_t max_time_ms, const struct delete_extra *extra,
                       struct errinfo *ei)
{
    struct delete d = {.engine = e,
                       .targets = targets,
                       .target_count = target_count,
                       .min_time_ms = min_time_ms,
                       .max_time_ms = max_time_ms,
                       .extra = extra};

    for (size_t i = 0; i < target_count; i++)
        if ((targets[i].matcher_count == 0 && targets[i].filter == NULL) ||
            min_time_ms > max_time_ms)
            return errinfo_set(ei, ERR_INVALID, 0, "a deletion needs matchers and a range");
    return delete_run(&d, ei);
}

enum err engine_delete(struct engine *e, const struct matcher *matchers, size_t matcher_count,
                       int64_t min_time_ms, int64_t max_time_ms, struct errinfo *ei)
{
    const struct delete_target target = {matchers, matcher_count, NULL};
    enum err err = flush_admit(e, ei);

    if (err != ERR_OK)
        return err;
    engine_maintain_lock_all(e);
    err = delete_locked(e, &target, 1, min_time_ms, max_time_ms, NULL, ei);
    engine_maintain_unlock_all(e);
    return err;
}

enum err tombstones_replace(struct engine *e, struct tombstone_list *list, tombstones_also *also,
                            void *ctx, struct errinfo *ei)
{
    const struct list_change change = {list, also, ctx};
    struct shard_delete *shards = shards_new(e);
    enum err err = shards == NULL ? errinfo_set(ei, ERR_NOMEM, 0, "lists of tombstones")
                                  : list_publish(e, &change, shards, ei);

    shards_free(e, shards);
    return err;
}

/* ---- for merges ---- */

size_t engine_tombstone_count(struct engine *e)
{
    /* relaxed: see there */
    return atomic_load_explicit(&e->tombstone_count, memory_order_relaxed);
}

bool engine_is_touched_by_delete(struct engine *e, uint64_t generation, int64_t min_time_ms,
                                 int64_t max_time_ms)
{
    struct tombstone_list *list = list_get(e);
    bool touched = tombstone_list_concerns(list, generation, min_time_ms, max_time_ms);

    tombstone_list_unref(list);
    return touched;
}

enum err engine_deleted_ranges(struct engine *e, const struct labels *labels, uint64_t generation,
                               struct arena *arena, struct delete_range **out, size_t *out_count,
                               struct errinfo *ei)
{
    struct tombstone_list *list = list_get(e);
    size_t room = list == NULL ? 0 : list->count, count = 0;
    struct delete_range *ranges = ARENA_ARRAY(arena, room, struct delete_range);

    for (size_t i = 0; i < room && ranges != NULL; i++) {
        const struct tombstone *t = &list->items[i];
        bool hits = false;

        if (generation >= t->generation)
            continue;
        if (!tombstone_matches(t, labels, arena, &hits))
            ranges = NULL;
        else if (hits)
            ranges[count++] = (struct delete_range){t->min_time_ms, t->max_time_ms};
    }
    tombstone_list_unref(list);
    if (ranges == NULL)
        return arena_error(arena, ei);
    *out = ranges;
    *out_count = count;
    return ERR_OK;
}

/* ---- retiring ---- */

static bool set_needs(const struct file_set *set, const struct tombstone *t)
{
    for (size_t i = 0; set != NULL && i < set->sealed_count; i++) {
        const struct sealed_view *v = &set->sealed[i];

        if (v->source->generation < t->generation && v->min_time_ms <= t->max_time_ms &&
            v->max_time_ms >= t->min_time_ms)
            return true;
    }
    for (size_t i = 0; set != NULL && i < set->part_count; i++) {
        const struct part_source *p = set->parts[i];

        if (p->key.generation < t->generation && p->purged_generation < t->generation &&
            part_source_overlaps(p, t->min_time_ms, t->max_time_ms))
            return true;
    }
    return false;
}

static bool is_needed(const struct engine *e, const struct tombstone *t)
{
    for (uint32_t i = 0; i < e->shard_count; i++) {
        if (set_needs(e->shards[i].files, t))
            return true;
    }
    return false;
}

/* The locks of all shards are held. */
static enum err retire(struct engine *e, struct errinfo *ei)
{
    const struct tombstone_list *list = e->tombstones;
    bool *keep = calloc(list->count, sizeof *keep);
    struct tombstone_list *kept = NULL;
    size_t gone = 0;
    enum err err = ERR_OK;

    if (keep == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu tombstones", list->count);
    for (size_t i = 0; i < list->count; i++) {
        keep[i] = is_needed(e, &list->items[i]);
        gone += !keep[i];
    }
    if (gone > 0)
        err = tombstone_list_keep(list, keep, &kept, ei);
    if (err == ERR_OK && gone > 0)
        err = tombstones_replace(e, kept, NULL, NULL, ei);
    tombstone_list_unref(kept);
    free(keep);
    return err;
}

enum err engine_tombstones_retire(struct engine *e, struct errinfo *ei)
{
    enum err err = flush_admit(e, ei);

    if (err != ERR_OK || engine_tombstone_count(e) == 0)
        return err;
    engine_maintain_lock_all(e);
    /* Only who holds these locks changes the list. */
    err = e->tombstones == NULL ? ERR_OK : retire(e, ei);
    engine_maintain_unlock_all(e);
    return err;
}
