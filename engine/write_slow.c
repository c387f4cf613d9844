/*
 * The slow path of a write: a sender key that leads nowhere. Labels are parsed, put in canonical
 * form, checked and hashed; the series is found by its fingerprint or created; the key is entered
 * into the front table, so that the next request takes the fast path.
 *
 * A series is created under its shard's create_lock, which keeps two requests from creating it
 * twice. It goes to the index first and is published last: nobody can append to a series that a
 * query would not find.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/labels.h"
#include "engine/write_internal.h"

/* ---- labels ---- */

static int compare_by_name(const void *a, const void *b)
{
    return str_compare(((const struct label *)a)->name, ((const struct label *)b)->name);
}

static bool is_sorted(const struct label *items, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (str_compare(items[i - 1].name, items[i].name) > 0)
            return false;
    return true;
}

enum err write_labels_plain(struct write_request *r, uint32_t series_index, struct labels *out)
{
    struct arena *arena = &r->scratch->arena;
    struct labels wire = {0, NULL};
    struct label *items;
    size_t count = 0;

    if (r->batch->labels_parse(r->batch->labels_ctx, r->batch->series[series_index].wire_labels,
                               arena, &wire) != ERR_OK)
        return ERR_INVALID;
    items = ARENA_ARRAY(arena, wire.count, struct label);
    if (items == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < wire.count; i++)
        /* An empty name is kept, whatever its value: it is refused, not dropped. */
        if (wire.items[i].value.size > 0 || wire.items[i].name.size == 0)
            items[count++] = wire.items[i];
    /* Most senders sort; and few labels make qsort()'s order of equal names irrelevant, since
     * equal names are refused. */
    if (!is_sorted(items, count))
        qsort(items, count, sizeof *items, compare_by_name);
    *out = (struct labels){count, items};
    return ERR_OK;
}

/* False with a reason when these cannot be the labels of a series. */
static bool labels_check(const struct labels *l, size_t *name_index, enum refusal *reason)
{
    *name_index = l->count;
    for (size_t i = 0; i < l->count; i++) {
        *reason = REFUSAL_INVALID_LABELS;
        if (l->items[i].name.size == 0)
            return false;
        *reason = REFUSAL_INVALID_UTF8;
        if (!utf8_is_valid(l->items[i].name) || !utf8_is_valid(l->items[i].value))
            return false;
        *reason = REFUSAL_DUPLICATE_LABEL;
        if (i > 0 && str_equal(l->items[i - 1].name, l->items[i].name))
            return false;
        if (str_equal(l->items[i].name, LABEL_METRIC_NAME))
            *name_index = i;
    }
    *reason = REFUSAL_INVALID_LABELS;
    return *name_index < l->count;
}

static uint8_t *put_field(uint8_t *p, struct str s)
{
    p += varint_write(p, s.size);
    if (s.size > 0)
        memcpy(p, s.data, s.size);
    return p + s.size;
}

/* Writes the canonical fields into `out`; false when they are too large or memory is short. */
static bool canonical_write(const struct labels *l, size_t name_index, struct byte_writer *out,
                            size_t *name_begin, size_t *name_end)
{
    size_t size = 0;
    uint8_t *p;

    for (size_t i = 0; i < l->count; i++)
        size += l->items[i].name.size + l->items[i].value.size + 20;
    writer_reset(out);
    p = writer_reserve(out, size);
    if (p == NULL)
        return false;
    for (size_t i = 0; i < l->count; i++) {
        if (i == name_index)
            *name_begin = (size_t)(p - out->data);
        p = put_field(p, l->items[i].name);
        p = put_field(p, l->items[i].value);
        if (i == name_index)
            *name_end = (size_t)(p - out->data);
    }
    out->size = (size_t)(p - out->data);
    return true;
}

bool engine_identify(const struct engine *e, struct bytes canonical, size_t name_begin,
                     size_t name_end, struct byte_writer *scratch, struct series_identity *out)
{
    size_t rest_size = canonical.size - (name_end - name_begin);
    uint8_t *rest;

    writer_reset(scratch);
    rest = writer_reserve(scratch, rest_size + 1);
    if (rest == NULL)
        return false;
    memcpy(rest, canonical.data, name_begin);
    memcpy(rest + name_begin, canonical.data + name_end, canonical.size - name_end);
    out->fingerprint = hash128_bytes(&e->secret, canonical.data, canonical.size);
    /* The top bits: a later power of two splits each shard in two. */
    out->shard =
        e->shard_bits == 0
            ? 0
            : (uint32_t)(hash64_bytes(&e->secret, rest, rest_size) >> (64 - e->shard_bits));
    return true;
}

/* ---- the series ---- */

/* A series on its way in. */
struct newcomer {
    uint32_t series_index;
    struct series_identity identity;
    struct labels labels;
    struct bytes canonical;
};

/* Takes a slot and enters the labels into the index. Caller holds create_lock. */
static enum err slot_prepare(struct shard *s, const struct newcomer *n, uint32_t *slot,
                             struct errinfo *ei)
{
    enum err e;
    bool ok;

    mutex_lock(&s->lock);
    *slot = s->series.slot_end;
    ok = series_table_reserve(&s->series, *slot);
    mutex_unlock(&s->lock);
    if (!ok)
        return *slot >= SERIES_SLOT_MAX - 1 ? ERR_LIMIT : ERR_NOMEM;
    e = index_add(s->index, *slot, &n->labels, ei);
    /* Spent memory is no limit on series: it ends by itself, so the sender must try again. */
    return e == ERR_LIMIT ? ERR_NOMEM : e;
}

/* Publishes the series and queues its definition; caller holds both locks. On failure the slot
 * stays empty for good: the index knows it. */
static bool slot_publish(struct write_request *r, struct shard *s, const struct newcomer *n,
                         uint32_t slot)
{
    const struct definition d = {slot, 0, n->canonical};

    if (!log_queue_reserve_definition(&s->log, n->canonical.size) ||
        !shard_publish_series(s, slot, d.generation, n->identity.fingerprint)) {
        if (s->series.slot_end == slot)
            s->series.slot_end++;
        return false;
    }
    log_queue_define(&s->log, &d);
    r->queued_bytes += n->canonical.size;
    return true;
}

/* Finds or creates the series and appends the samples; *is_alias tells that another key led to it
 * already. */
static enum err store(struct write_request *r, struct shard *s, const struct newcomer *n,
                      front_target *target, bool *is_alias, struct errinfo *ei)
{
    struct shard_session session;
    struct series *series;
    uint32_t slot;
    enum err e = ERR_OK;

    mutex_lock(&s->create_lock);
    mutex_lock(&s->lock);
    slot = fingerprint_table_find(&s->fingerprints, n->identity.fingerprint);
    mutex_unlock(&s->lock);
    bool is_new = slot == FINGERPRINT_SLOT_NONE;
    if (is_new)
        e = slot_prepare(s, n, &slot, ei);
    if (e != ERR_OK)
        goto out;
    write_session_begin(r, &session, s);
    if (is_new && !slot_publish(r, s, n, slot)) {
        e = ERR_NOMEM;
    } else {
        series = series_at(&s->series, slot);
        *is_alias = series->keyed;
        series->keyed = 1;
        *target = front_target_series(s->number, slot, series->generation);
        const struct write_series *ws = &r->batch->series[n->series_index];
        const struct write_item item = {
            .target = *target,
            .series = n->series_index,
            .sample_first = ws->sample_first,
            .sample_count = ws->sample_count,
        };
        e = write_series_samples(r, &session, &item, series);
    }
    write_session_end(r, &session);
out:
    mutex_unlock(&s->create_lock);
    return e;
}

/* Whether one more alias may be cached. The bound is soft: requests that ask at once may all be let
 * through. */
static bool alias_allowed(struct engine *e)
{
    uint64_t series = 0, aliases = atomic_load_explicit(&e->alias_count, memory_order_relaxed);

    if (aliases < ENGINE_ALIASES_FREE)
        return true;
    for (uint32_t i = 0; i < e->shard_count; i++)
        series += atomic_load_explicit(&e->shards[i].series_count, memory_order_relaxed);
    return aliases < ENGINE_ALIASES_FREE + ENGINE_ALIASES_PER_SERIES * series;
}

/* Enters the key, so that the next request is fast. The table is a cache: a refusal is no error. */
static void remember_key(struct engine *e, struct hash128 key, front_target target, bool is_alias)
{
    bool added = false;

    if (is_alias && !alias_allowed(e)) {
        atomic_fetch_add_explicit(&e->alias_refused, 1, memory_order_relaxed);
        return;
    }
    (void)front_table_put(e->front, key, target, &added);
    if (added && is_alias)
        atomic_fetch_add_explicit(&e->alias_count, 1, memory_order_relaxed);
}

static void refuse_all(struct write_request *r, uint32_t series_index, enum refusal reason)
{
    const struct write_series *ws = &r->batch->series[series_index];

    for (uint32_t i = 0; i < ws->sample_count; i++)
        write_refuse(r, series_index, r->batch->samples[ws->sample_first + i].t_ms, reason);
}

static enum err write_newcomer(struct write_request *r, struct newcomer *n, struct errinfo *ei)
{
    struct engine *e = r->engine;
    struct shard *s = &e->shards[n->identity.shard];
    front_target target = 0;
    bool is_alias = false;
    enum err err;

    r->cache.count = 0; /* it may be of another shard */
    err = store(r, s, n, &target, &is_alias, ei);
    if (err == ERR_LIMIT) {
        refuse_all(r, n->series_index, REFUSAL_LIMIT);
        return ERR_OK;
    }
    if (err == ERR_OK)
        remember_key(e, r->batch->series[n->series_index].sender_key, target, is_alias);
    return err;
}

enum err write_unknown_series(struct write_request *r, uint32_t series_index, struct errinfo *ei)
{
    struct newcomer n = {.series_index = series_index};
    enum refusal reason = REFUSAL_INVALID_LABELS;
    size_t name_index = 0, name_begin = 0, name_end = 0;
    enum err e;

    if (r->batch->series[series_index].sample_count == 0)
        return ERR_OK; /* nothing to store: no series either */
    atomic_fetch_add_explicit(&r->engine->slow_path_series, 1, memory_order_relaxed);
    e = write_labels_plain(r, series_index, &n.labels);
    if (e == ERR_NOMEM)
        goto out;
    if (e != ERR_OK || !labels_check(&n.labels, &name_index, &reason)) {
        refuse_all(r, series_index, reason);
        e = ERR_OK;
        goto out;
    }
    e = ERR_NOMEM;
    if (!canonical_write(&n.labels, name_index, &r->scratch->canonical, &name_begin, &name_end))
        goto out;
    n.canonical = (struct bytes){r->scratch->canonical.data, r->scratch->canonical.size};
    if (n.canonical.size > RECORD_LABELS_SIZE_MAX || n.labels.count > INDEX_LABEL_COUNT_MAX) {
        refuse_all(r, series_index, REFUSAL_LIMIT);
        e = ERR_OK;
        goto out;
    }
    if (engine_identify(r->engine, n.canonical, name_begin, name_end, &r->scratch->rest,
                        &n.identity))
        e = write_newcomer(r, &n, ei);
out:
    arena_reset(&r->scratch->arena);
    return e;
}
