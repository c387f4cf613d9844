/*
 * A shard's index anew, without its dead series, while queries and new series go on.
 *
 * The columns of the live series are taken out of the old index and make the new one, which nobody
 * sees yet. Series that come meanwhile go to the old index as ever and are noted; they are added to
 * the new one in small groups, each under create_lock, and the last group's critical section ends
 * with the swap. Who holds the old index (queriers, from open to close) goes on with it: it has all
 * series that were there when they came.
 */
#include <stdlib.h>

#include "engine/files/maintain_tick_internal.h"
#include "engine/memtable/rebuild_internal.h"
#include "engine/sealed/series_file_internal.h"

enum {
    WORN_SHARE = 8, /* a rebuild when dead slots are that part of the live ones */
    WORN_LEAST = 64,
    COLLECT_SLOTS = 4096, /* looked at in one hold of the shard's lock */
    CATCH_UP_SERIES = 64, /* added in one hold of create_lock */
};

void index_rebuild_note(struct shard *s, uint32_t slot)
{
    struct index_rebuild *r = s->rebuild;

    if (r == NULL || r->refused)
        return;
    if (r->fresh_count == r->fresh_capacity) {
        size_t capacity = r->fresh_capacity == 0 ? 1024 : 2 * r->fresh_capacity;
        uint32_t *grown = reallocarray(r->fresh, capacity, sizeof *grown);

        r->refused = grown == NULL;
        if (grown == NULL)
            return;
        r->fresh = grown;
        r->fresh_capacity = capacity;
    }
    r->fresh[r->fresh_count++] = slot;
}

/* Slots that have a series, also those on their way out: queries still find these by the index. */
static enum err live_slots(struct shard *s, const struct maintain_control *control,
                           struct arena *arena, uint32_t **out, size_t *out_count,
                           struct errinfo *ei)
{
    uint32_t *slots, end;
    size_t count = 0;
    enum err e = ERR_OK;

    mutex_lock(&s->lock);
    end = s->series.slot_end; /* what comes later is noted */
    mutex_unlock(&s->lock);
    slots = ARENA_ARRAY(arena, end, uint32_t);
    if (slots == NULL)
        return arena_error(arena, ei);
    for (uint32_t slot = 0; slot < end && e == ERR_OK;) {
        uint32_t stop = end - slot < COLLECT_SLOTS ? end : slot + (uint32_t)COLLECT_SLOTS;

        mutex_lock(&s->lock);
        for (; slot < stop; slot++)
            if (series_find_any(&s->series, slot) != NULL)
                slots[count++] = slot;
        mutex_unlock(&s->lock);
        e = maintain_tick(control, "rebuild was stopped", ei);
    }
    *out = slots;
    *out_count = count;
    return e;
}

static enum err build(struct shard *s, const struct maintain_control *control, struct index *new,
                      struct errinfo *ei)
{
    struct series_image image;
    struct arena arena;
    uint32_t *slots = NULL;
    size_t count = 0;
    enum err e;

    arena_init(&arena, s->memory);
    e = live_slots(s, control, &arena, &slots, &count, ei);
    if (e == ERR_OK)
        e = index_image(s->index, slots, count, &image, ei);
    arena_done(&arena);
    if (e != ERR_OK)
        return e;
    e = maintain_tick(control, "rebuild was stopped", ei);
    if (e == ERR_OK)
        e = index_load_image(new, &image, ei);
    series_image_done(&image);
    return e;
}

/* Adds the last `count` of the noted series to the new index; create_lock is held. */
static enum err add_fresh(struct shard *s, struct index *new, size_t count, struct errinfo *ei)
{
    struct index_rebuild *r = s->rebuild;
    struct labels sets[CATCH_UP_SERIES];
    const uint32_t *slots = r->fresh + r->fresh_count - count;
    struct arena arena;
    enum err e;

    arena_init(&arena, s->memory);
    e = index_labels(s->index, slots, count, &arena, sets, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        bool is_live;

        mutex_lock(&s->lock); /* it may never have come to be */
        is_live = series_find_any(&s->series, slots[i]) != NULL;
        mutex_unlock(&s->lock);
        if (is_live && !index_has(new, slots[i])) /* else it was there before the first pass */
            e = index_add(new, slots[i], &sets[i], ei);
    }
    arena_done(&arena);
    if (e == ERR_OK)
        r->fresh_count -= count;
    return e;
}

/* Adds what came meanwhile; with the last of it the new index takes its place. */
static enum err catch_up(struct engine *e, struct shard *s, const struct maintain_control *control,
                         struct index *new, struct retired_index *retired, struct errinfo *ei)
{
    enum err err = ERR_OK;
    bool is_last = false;

    while (err == ERR_OK && !is_last) {
        struct index *old = s->index;
        size_t count;

        mutex_lock(&s->create_lock);
        is_last = s->rebuild->fresh_count <= CATCH_UP_SERIES;
        count = is_last ? s->rebuild->fresh_count : CATCH_UP_SERIES;
        err = s->rebuild->refused ? errinfo_set(ei, ERR_NOMEM, 0, "new series of a rebuild")
                                  : add_fresh(s, new, count, ei);
        if (err == ERR_OK && is_last) {
            mutex_lock(&s->lock);
            s->index = new;
            mutex_unlock(&s->lock);
            /* Whoever comes from here on finds the new one. */
            slot_pool_retire(&s->slots, retired, old, readers_stamp(&e->readers));
        }
        mutex_unlock(&s->create_lock);
        if (err == ERR_OK && !is_last)
            err = maintain_tick(control, "rebuild was stopped", ei);
    }
    return err;
}

bool shard_index_is_worn(struct shard *s)
{
    uint64_t dead;

    mutex_lock(&s->create_lock);
    dead = s->slots.dead_count;
    mutex_unlock(&s->create_lock);
    return dead >= WORN_LEAST &&
           dead > atomic_load_explicit(&s->series_count, memory_order_relaxed) / WORN_SHARE;
}

enum err shard_index_rebuild(struct engine *e, struct shard *s,
                             const struct maintain_control *control, struct errinfo *ei)
{
    struct index_rebuild rebuild = {0};
    struct retired_index *retired = retired_index_new(&s->slots);
    struct index *new = NULL;
    enum err err;

    if (retired == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "rebuild of an index");
    err = index_new(s->memory, &new, ei);
    if (err != ERR_OK)
        goto out;
    /* Whoever is creating a series is done with it, and all others are noted from here on. */
    mutex_lock(&s->create_lock);
    s->rebuild = &rebuild;
    mutex_unlock(&s->create_lock);
    err = build(s, control, new, ei);
    if (err == ERR_OK)
        err = catch_up(e, s, control, new, retired, ei);
    mutex_lock(&s->create_lock);
    s->rebuild = NULL;
    mutex_unlock(&s->create_lock);
    free(rebuild.fresh);
out:
    if (err != ERR_OK) {
        index_free(new);
        retired_index_free(&s->slots, retired);
    }
    return err;
}
