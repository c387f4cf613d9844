/*
 * Series without a slot: a table a shard from a number, which stands in handles, to a part that has
 * the labels. Their samples are read by fingerprint from whatever files are there then.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/engine_internal.h"
#include "engine/read/querier_internal.h"

enum { ORPHANS_MIN = 64 };

/* ---- the table; all under querier.lock ---- */

static uint32_t *place_find(const struct orphan_table *t, uint32_t *places, size_t place_count,
                            struct hash128 fingerprint)
{
    for (uint64_t i = fingerprint.low;; i++) {
        uint32_t *at = &places[i & (place_count - 1)];

        if (*at == 0 || hash128_equal(t->items[*at - 1].fingerprint, fingerprint))
            return at;
    }
}

static enum err charge(struct querier *q, struct orphan_table *t, size_t bytes, struct errinfo *ei)
{
    enum err e = q->memory == NULL ? ERR_OK : budget_charge(q->memory, bytes, ei);

    if (e == ERR_OK)
        t->charged_bytes += bytes;
    return e;
}

/* Doubles items and places; at most half of the places are in use. */
static enum err table_grow(struct querier *q, struct orphan_table *t, struct errinfo *ei)
{
    uint32_t capacity = t->capacity == 0 ? ORPHANS_MIN : 2 * t->capacity;
    size_t bytes = (capacity - t->capacity) * (sizeof *t->items + 2 * sizeof *t->places);
    struct orphan *items;
    uint32_t *places;
    enum err e;

    if (capacity >= ORPHAN_SLOT_BIT)
        return errinfo_set(ei, ERR_LIMIT, 0, "more than 2^30 series without a slot");
    e = charge(q, t, bytes, ei);
    if (e != ERR_OK)
        return e;
    places = calloc(2 * (size_t)capacity, sizeof *places);
    items = realloc(t->items, capacity * sizeof *items);
    if (items != NULL)
        t->items = items;
    if (places == NULL || items == NULL) {
        free(places);
        return errinfo_set(ei, ERR_NOMEM, 0, "series without a slot");
    }
    for (uint32_t i = 0; i < t->count; i++)
        *place_find(t, places, 2 * (size_t)capacity, t->items[i].fingerprint) = i + 1;
    free(t->places);
    t->places = places;
    t->place_count = 2 * (size_t)capacity;
    t->capacity = capacity;
    return ERR_OK;
}

/* Holds a part until the querier is closed. */
static enum err part_hold(struct orphan_table *t, struct part_source *part, struct errinfo *ei)
{
    for (size_t i = t->held_count; i-- > 0;) {
        if (t->held[i] == part)
            return ERR_OK;
    }
    if (t->held_count == t->held_capacity) {
        size_t capacity = t->held_capacity == 0 ? 8 : 2 * t->held_capacity;
        struct part_source **grown = realloc(t->held, capacity * sizeof(struct part_source *));

        if (grown == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "parts of a querier");
        t->held = grown;
        t->held_capacity = capacity;
    }
    t->held[t->held_count++] = part_source_ref(part);
    return ERR_OK;
}

static enum err orphan_add(struct querier *q, struct orphan_table *t, struct orphan orphan,
                           uint32_t *out_slot, struct errinfo *ei)
{
    uint32_t *at;
    enum err e = t->count < t->capacity ? ERR_OK : table_grow(q, t, ei);

    if (e != ERR_OK)
        return e;
    at = place_find(t, t->places, t->place_count, orphan.fingerprint);
    if (*at == 0) {
        e = part_hold(t, orphan.part, ei);
        if (e != ERR_OK)
            return e;
        t->items[t->count++] = orphan;
        *at = t->count;
    }
    *out_slot = ORPHAN_SLOT_BIT | (*at - 1);
    return ERR_OK;
}

enum err orphans_add(struct querier *q, uint32_t shard, struct part_source *part,
                     const uint32_t *series, const struct hash128 *fingerprints, size_t count,
                     uint32_t *out_slots, struct errinfo *ei)
{
    enum err e = ERR_OK;

    mutex_lock(&q->lock);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = orphan_add(q, &q->shards[shard].orphans,
                       (struct orphan){fingerprints[i], part, series[i]}, &out_slots[i], ei);
    mutex_unlock(&q->lock);
    return e;
}

void orphans_done(struct querier *q)
{
    for (uint32_t i = 0; i < q->shard_count; i++) {
        struct orphan_table *t = &q->shards[i].orphans;

        for (size_t k = 0; k < t->held_count; k++)
            part_source_unref(t->held[k]);
        free(t->held);
        free(t->items);
        free(t->places);
        if (q->memory != NULL && t->charged_bytes > 0)
            budget_release(q->memory, t->charged_bytes);
    }
}

/* ---- by part ---- */

/* Orphans in the order of their parts: labels are cheapest in ascending order. */
struct orphan_ref {
    struct part_source *part; /* held by the table */
    uint32_t series, item;
};

static int compare_refs(const void *a, const void *b)
{
    const struct orphan_ref *x = a, *y = b;

    if (x->part != y->part)
        return (uintptr_t)x->part < (uintptr_t)y->part ? -1 : 1;
    return (x->series > y->series) - (x->series < y->series);
}

static void refs_get(struct querier *q, uint32_t shard, const uint32_t *slots, size_t count,
                     struct orphan_ref *out)
{
    const struct orphan_table *t = &q->shards[shard].orphans;

    mutex_lock(&q->lock);
    for (size_t i = 0; i < count; i++) {
        uint32_t number = slots[i] & ~ORPHAN_SLOT_BIT;

        ASSERT(slot_is_orphan(slots[i]) && number < t->count);
        out[i] = (struct orphan_ref){t->items[number].part, t->items[number].series, (uint32_t)i};
    }
    mutex_unlock(&q->lock);
    if (count > 1)
        qsort(out, count, sizeof *out, compare_refs);
}

/* Calls `run` for the orphans of each part. */
struct part_run {
    struct part *part;
    const struct orphan_ref *refs;
    size_t count;
    uint32_t series[QUERIER_GROUP_MAX];
};
static enum err by_part(struct querier *q, uint32_t shard, const uint32_t *slots, size_t count,
                        enum err (*run)(void *ctx, const struct part_run *r, struct errinfo *ei),
                        void *ctx, struct errinfo *ei)
{
    struct orphan_ref refs[QUERIER_GROUP_MAX];
    struct part_run r;

    ASSERT(count <= QUERIER_GROUP_MAX);
    refs_get(q, shard, slots, count, refs);
    for (size_t i = 0; i < count; i += r.count) {
        enum err e;

        r.part = refs[i].part->part;
        r.refs = refs + i;
        for (r.count = 0; i + r.count < count && refs[i + r.count].part == refs[i].part; r.count++)
            r.series[r.count] = refs[i + r.count].series;
        e = run(ctx, &r, ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

struct labels_run {
    struct arena *arena;
    struct labels *out;
};

static enum err run_labels(void *ctx, const struct part_run *r, struct errinfo *ei)
{
    const struct labels_run *c = ctx;
    struct labels sets[QUERIER_GROUP_MAX];
    enum err e = part_labels(r->part, r->series, r->count, c->arena, sets, ei);

    for (size_t i = 0; i < r->count && e == ERR_OK; i++)
        c->out[r->refs[i].item] = sets[i];
    return e;
}

enum err orphans_labels(struct querier *q, uint32_t shard, const uint32_t *slots, size_t count,
                        struct arena *arena, struct labels *out, struct errinfo *ei)
{
    struct labels_run c = {arena, out};

    return by_part(q, shard, slots, count, run_labels, &c, ei);
}

struct values_run {
    struct querier *q;
    const size_t *rows;
    const struct str *names;
    size_t name_count;
    struct str *out;
};

/* Gives the querier's copies of what a part answered, row by row. */
static enum err values_lend(const struct values_run *c, const struct part_run *r,
                            const struct str *values, struct errinfo *ei)
{
    struct querier *q = c->q;
    enum err e = ERR_OK;
    bool is_new;

    mutex_lock(&q->lock);
    for (size_t i = 0; i < r->count && e == ERR_OK; i++) {
        struct str *row = c->out + c->rows[r->refs[i].item] * c->name_count;

        DEBUG_ASSERT(values != NULL);
        for (size_t k = 0; k < c->name_count && e == ERR_OK; k++) {
            row[k] = values[i * c->name_count + k];
            if (!str_pool_intern(&q->texts, &row[k], &is_new))
                e = arena_error(&q->texts.arena, ei);
        }
    }
    mutex_unlock(&q->lock);
    return e;
}

static enum err run_values(void *ctx, const struct part_run *r, struct errinfo *ei)
{
    const struct values_run *c = ctx;
    struct arena arena;
    struct str *values;
    enum err e;

    arena_init(&arena, c->q->memory);
    values = arena_alloc_array(&arena, r->count, c->name_count * sizeof *values);
    e = values == NULL ? arena_error(&arena, ei)
                       : part_values_of(r->part, r->series, r->count, c->names, c->name_count,
                                        &arena, values, ei);
    if (e == ERR_OK)
        e = values_lend(c, r, values, ei);
    arena_done(&arena);
    return e;
}

enum err orphans_values(struct querier *q, uint32_t shard, const uint32_t *slots,
                        const size_t *rows, size_t count, const struct str *names,
                        size_t name_count, struct str *out, struct errinfo *ei)
{
    struct values_run c = {q, rows, names, name_count, out};

    return by_part(q, shard, slots, count, run_values, &c, ei);
}
