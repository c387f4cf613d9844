/*
 * What comes free after series have ended: replaced indexes when their last querier has left, the
 * slots that only these knew, and the sender keys that led to dead series.
 */
#include "engine/memtable/rebuild_internal.h"

#include <stdlib.h>

#include "engine/flush/flush_internal.h"
#include "engine/memtable/ended_internal.h"
#include "engine/seal/seal_internal.h"

enum {
    RELEASE_SLOTS = 1024,    /* in one critical section: each a cache miss */
    SWEEP_SERIES = 512,      /* likewise */
    SWEEP_DEAD_PERCENT = 10, /* of the front table's entries */
    SWEEP_DEAD_LEAST = 1024,
};

/* The lowest number of a sealed or late file that is live, and one above the highest. Caller holds
 * shard.lock. */
static void file_bounds(const struct file_set *set, uint64_t *oldest, uint64_t *next)
{
    *oldest = UINT64_MAX;
    *next = 0;
    for (size_t i = 0; set != NULL && i < set->sealed_count; i++) {
        uint64_t number = set->sealed[i].source->number;

        *oldest = number < *oldest ? number : *oldest;
        *next = number >= *next ? number + 1 : *next;
    }
}

static bool release_some(struct shard *s)
{
    uint64_t oldest, next;
    bool more;

    mutex_lock(&s->create_lock);
    mutex_lock(&s->lock);
    file_bounds(s->files, &oldest, &next);
    more = slot_pool_release(&s->slots, &s->series, oldest, next, RELEASE_SLOTS);
    mutex_unlock(&s->lock);
    mutex_unlock(&s->create_lock);
    return more;
}

static struct index *take_retired(struct engine *e, struct shard *s)
{
    struct index *ix;

    mutex_lock(&s->create_lock);
    ix = slot_pool_take_retired(&s->slots, &e->readers);
    mutex_unlock(&s->create_lock);
    return ix;
}

void shard_housekeep(struct engine *e, struct shard *s)
{
    struct index *ix;

    ended_finish(e, s);
    while ((ix = take_retired(e, s)) != NULL)
        index_free(ix);
    while (release_some(s)) {
    }
}

enum err engine_rebuild(struct engine *e, uint32_t shard, const struct maintain_control *control,
                        struct errinfo *ei)
{
    const struct seal_options options = {.reason = SEAL_ENDED, .control = control};
    struct shard *s = &e->shards[shard];
    struct seal_result ignored;
    uint64_t ended = 0;
    enum err err = flush_admit(e, ei);

    ASSERT(shard < e->shard_count);
    if (err != ERR_OK)
        return err;
    mutex_lock(&s->maintain_lock);
    uint64_t repeated = ended_repeated(s);
    err = seal_shard(e, s, &options, &ignored, ei);
    if (err == ERR_OK)
        err = ended_leave(e, s, repeated, true, control, &ended, ei);
    if (err == ERR_OK)
        err = shard_index_rebuild(e, s, control, ei);
    shard_housekeep(e, s);
    mutex_unlock(&s->maintain_lock);
    return err;
}

/* ---- sender keys ---- */

/* Targets of one look, by shard. */
struct sweep_look {
    const struct engine *engine;
    uint64_t refused_kept; /* keys of refused series that have not expired */
    uint32_t *ends;        /* per shard: its end in `order`; one more in front */
    uint32_t *order;       /* owned, like `ends` */
};

static void look_at_shard(struct shard *s, const front_target *targets, const uint32_t *order,
                          size_t count, bool *keep)
{
    for (size_t i = 0; i < count;) {
        mutex_lock(&s->lock);
        for (size_t n = 0; i < count && n < SWEEP_SERIES; i++, n++) {
            front_target t = targets[order[i]];
            const struct series *series = series_find_any(&s->series, front_target_slot(t));

            keep[order[i]] = series != NULL && series->generation == front_target_generation(t);
        }
        mutex_unlock(&s->lock);
    }
}

/* Decides about a key that leads to no series. */
static bool keep_other(struct sweep_look *l, front_target target)
{
    uint32_t limit;

    if (front_target_kind(target) == FRONT_DROPPED)
        return true; /* rules_housekeep() decides */
    bool holds =
        front_target_kind(target) == FRONT_REFUSED && limits_key_holds(l->engine, target, &limit);

    l->refused_kept += holds;
    return holds;
}

static void keep_live(void *ctx, const front_target *targets, size_t count, bool *keep)
{
    struct sweep_look *l = ctx;
    uint32_t shard_count = l->engine->shard_count, *at = l->ends;

    for (uint32_t i = 0; i <= shard_count; i++)
        at[i] = 0;
    for (size_t i = 0; i < count; i++)
        if (front_target_kind(targets[i]) == FRONT_SERIES)
            at[front_target_shard(targets[i]) + 1]++;
    for (uint32_t i = 0; i < shard_count; i++)
        at[i + 1] += at[i];
    for (size_t i = 0; i < count; i++) {
        if (front_target_kind(targets[i]) == FRONT_SERIES)
            l->order[at[front_target_shard(targets[i])]++] = (uint32_t)i;
        else
            keep[i] = keep_other(l, targets[i]);
    }
    for (uint32_t i = 0, begin = 0; i < shard_count; begin = at[i++])
        look_at_shard(&l->engine->shards[i], targets, l->order + begin, at[i] - begin, keep);
}

static void front_sweep(struct engine *e)
{
    struct sweep_look l = {.engine = e,
                           .ends = calloc(e->shard_count + 1, sizeof *l.ends),
                           .order = calloc(FRONT_SEGMENT_ENTRIES_MAX, sizeof *l.order)};
    const struct front_filter filter = {keep_live, &l};
    uint64_t removed = 0, dead = atomic_load_explicit(&e->dead_keys, memory_order_relaxed);
    struct errinfo ignored = {0};

    /* Where memory is short the table stays as it is, and the next call tries again. */
    if (l.ends != NULL && l.order != NULL &&
        front_table_sweep(e->front, &filter, &removed, &ignored) == ERR_OK) {
        atomic_fetch_sub_explicit(&e->dead_keys, dead, memory_order_relaxed);
        limits_keys_swept(e, l.refused_kept);
    }
    free(l.ends);
    free(l.order);
}

static bool is_sweep_due(const struct engine *e)
{
    uint64_t dead = atomic_load_explicit(&e->dead_keys, memory_order_relaxed);
    struct front_table_stats stats;

    front_table_stats_get(e->front, &stats);
    dead += limits_keys_worn(e);
    return dead >= SWEEP_DEAD_LEAST && dead * 100 > stats.entry_count * SWEEP_DEAD_PERCENT;
}

void engine_housekeep(struct engine *e)
{
    for (uint32_t i = 0; i < e->shard_count; i++) {
        struct shard *s = &e->shards[i];

        if (!mutex_trylock(&s->maintain_lock))
            continue;
        shard_housekeep(e, s);
        mutex_unlock(&s->maintain_lock);
    }
    rules_housekeep(e);
    if (!is_sweep_due(e) || !mutex_trylock(&e->sweep_lock))
        return;
    front_sweep(e);
    mutex_unlock(&e->sweep_lock);
}
