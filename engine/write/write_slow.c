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
#include "engine/limits/limits_internal.h"
#include "engine/memtable/rebuild_internal.h"
#include "engine/write/write_internal.h"

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

/* False with a reason when these cannot be labels of a series, whatever rules add to them. */
static bool labels_check(const struct labels *l, enum refusal *reason)
{
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
    }
    return true;
}

/* The same where rules have had their say: then there must be a name. */
static bool labels_check_name(const struct labels *l, size_t *name_index, enum refusal *reason)
{
    *reason = REFUSAL_INVALID_LABELS;
    *name_index = 0;
    while (*name_index < l->count && !str_equal(l->items[*name_index].name, LABEL_METRIC_NAME))
        (*name_index)++;
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

bool engine_identify_labels(const struct engine *e, const struct labels *labels,
                            struct byte_writer *canonical, struct byte_writer *rest,
                            struct series_identity *out)
{
    size_t name_index = 0, name_begin = 0, name_end = 0;

    while (name_index < labels->count &&
           !str_equal(labels->items[name_index].name, LABEL_METRIC_NAME))
        name_index++;
    return canonical_write(labels, name_index, canonical, &name_begin, &name_end) &&
           engine_identify(e, (struct bytes){canonical->data, canonical->size}, name_begin,
                           name_end, rest, out);
}

bool engine_shard_of(const struct engine *e, const struct labels *labels,
                     struct byte_writer scratch[2], uint32_t *out)
{
    struct series_identity identity;

    if (!engine_identify_labels(e, labels, &scratch[0], &scratch[1], &identity))
        return false;
    *out = identity.shard;
    return true;
}

/* ---- the series ---- */

/* A series on its way in. */
struct newcomer {
    uint32_t series_index;
    struct series_identity identity;
    struct labels labels;
    struct bytes canonical;
    struct limit_verdict verdict; /* of ERR_LIMIT */
    bool is_rewritten;            /* by rules: `labels` are not the sender's */
};

/* A slot for a new series: its index entry is made, and its struct's generation is right. */
struct new_slot {
    uint32_t slot;
    uint16_t generation;
    bool is_reused;
};

/* Takes a slot and enters the labels into the index. Caller holds create_lock. */
static enum err slot_prepare(struct shard *s, const struct newcomer *n, struct new_slot *out,
                             struct errinfo *ei)
{
    enum err e;
    bool ok;

    mutex_lock(&s->lock);
    out->is_reused = slot_pool_take(&s->slots, &out->slot);
    if (!out->is_reused)
        out->slot = s->series.slot_end;
    ok = series_table_reserve(&s->series, out->slot);
    out->generation = ok ? series_at(&s->series, out->slot)->generation : 0;
    mutex_unlock(&s->lock);
    if (!ok)
        return out->slot >= SERIES_SLOT_MAX - 1 ? ERR_LIMIT : ERR_NOMEM;
    e = index_add(s->index, out->slot, &n->labels, ei);
    if (e == ERR_OK)
        index_rebuild_note(s, out->slot);
    else if (out->is_reused)
        slot_pool_put_back(&s->slots);
    /* Spent memory is no limit on series: it ends by itself, so the sender must try again. */
    return e == ERR_LIMIT ? ERR_NOMEM : e;
}

/* The index knows the slot, but there is no series: it waits like a dead one. Caller holds both
 * locks. */
static void slot_waste(struct shard *s, uint32_t slot)
{
    struct slot_batch *b = slot_batch_new(&s->slots, 1);

    if (s->series.slot_end == slot)
        s->series.slot_end++;
    if (b == NULL)
        return; /* memory is short: nobody will use it again */
    slot_batch_add(b, slot);
    slot_pool_bury(&s->slots, b);
}

/* Publishes the series and queues its definition; caller holds both locks. */
static bool slot_publish(struct write_request *r, struct shard *s, const struct newcomer *n,
                         const struct new_slot *slot)
{
    const struct definition d = {slot->slot, slot->generation, n->canonical};

    if (!log_queue_reserve_definition(&s->log, n->canonical.size) ||
        !shard_publish_series(s, slot->slot, d.generation, n->identity.fingerprint)) {
        slot_waste(s, slot->slot);
        return false;
    }
    log_queue_define(&s->log, &d);
    r->queued_bytes += n->canonical.size;
    return true;
}

/* A series that is leaving comes back. A start may not know it any more, so its definition goes to
 * the log again, before its samples. Caller holds both locks. */
static bool slot_revive(struct write_request *r, struct shard *s, const struct newcomer *n,
                        uint32_t slot)
{
    const struct definition d = {slot, series_at(&s->series, slot)->generation, n->canonical};

    if (!log_queue_reserve_definition(&s->log, n->canonical.size))
        return false;
    shard_revive_series(s, slot);
    log_queue_define(&s->log, &d);
    r->queued_bytes += n->canonical.size;
    return true;
}

static enum err append_samples(struct write_request *r, struct shard_session *session,
                               const struct newcomer *n, uint32_t slot, front_target *target,
                               bool *is_alias)
{
    struct shard *s = session->shard;
    struct series *series = series_at(&s->series, slot);
    const struct write_series *ws = &r->batch->series[n->series_index];

    *is_alias = series->keyed;
    shard_series_keyed(s, series, true);
    if (n->is_rewritten)
        slot_bits_set(&s->rewritten, slot);
    *target = front_target_series(s->number, slot, series->generation);
    const struct write_item item = {
        .target = *target,
        .series = n->series_index,
        .sample_first = ws->sample_first,
        .sample_count = ws->sample_count,
        .histogram_count = ws->histogram_count,
    };
    return write_series_samples(r, session, &item, series);
}

/* Makes the series, if no limit is against it. Caller holds create_lock; on ERR_OK and where it was
 * not published, the session holds the shard's lock again. */
static enum err slot_create(struct write_request *r, struct shard_session *session,
                            struct newcomer *n, uint32_t *slot, struct errinfo *ei)
{
    struct shard *s = session->shard;
    struct new_slot fresh;
    enum err e;

    write_session_end(r, session);
    e = limits_admit(r->engine, &n->labels, &n->verdict);
    if (e == ERR_OK) {
        e = slot_prepare(s, n, &fresh, ei);
        if (e != ERR_OK)
            limits_withdraw(r->engine, &n->labels);
    }
    write_session_begin(r, session, s);
    if (e != ERR_OK)
        return e;
    *slot = fresh.slot;
    if (slot_publish(r, s, n, &fresh)) {
        limits_settle(r->engine);
        return ERR_OK;
    }
    limits_withdraw(r->engine, &n->labels);
    return ERR_NOMEM;
}

/* Finds or creates the series and appends the samples; *is_alias tells that another key led to it
 * already. */
static enum err store(struct write_request *r, struct shard *s, struct newcomer *n,
                      front_target *target, bool *is_alias, struct errinfo *ei)
{
    struct shard_session session;
    enum err e = ERR_OK;

    mutex_lock(&s->create_lock);
    do {
        write_session_begin(r, &session, s);
        uint32_t slot = fingerprint_table_find(&s->fingerprints, n->identity.fingerprint);
        if (slot == FINGERPRINT_SLOT_NONE) {
            e = slot_create(r, &session, n, &slot, ei);
        } else if (!series_at(&s->series, slot)->defined) {
            e = slot_revive(r, s, n, slot) ? ERR_OK : ERR_NOMEM;
        }
        if (e == ERR_OK)
            e = append_samples(r, &session, n, slot, target, is_alias);
        write_session_end(r, &session);
    } while (e == ERR_OK && session.is_gone);
    mutex_unlock(&s->create_lock);
    return e;
}

uint64_t engine_alias_count(const struct engine *e)
{
    struct front_table_stats front;
    uint64_t keyed = 0;

    front_table_stats_get(e->front, &front);
    int64_t dropped = atomic_load_explicit(&e->rules.dropped_keys, memory_order_relaxed);
    keyed = atomic_load_explicit(&e->limiter.refused_keys, memory_order_relaxed) +
            (dropped < 0 ? 0 : (uint64_t)dropped);
    for (uint32_t i = 0; i < e->shard_count; i++)
        keyed += atomic_load_explicit(&e->shards[i].keyed_count, memory_order_relaxed);
    /* A series is keyed a moment before its key is entered. */
    return front.entry_count > keyed ? front.entry_count - keyed : 0;
}

/* Whether one more alias may be cached. The bound is soft: requests that ask at once may all be let
 * through. */
static bool alias_allowed(struct engine *e)
{
    uint64_t series = 0, aliases = engine_alias_count(e);

    if (aliases < ENGINE_ALIASES_FREE)
        return true;
    for (uint32_t i = 0; i < e->shard_count; i++)
        series += atomic_load_explicit(&e->shards[i].series_count, memory_order_relaxed);
    return aliases < ENGINE_ALIASES_FREE + ENGINE_ALIASES_PER_SERIES * series;
}

/* Enters the key, so that the next request is fast. The table is a cache: a refusal is no error. */
static void remember_key(struct write_request *r, uint32_t series_index, front_target target,
                         bool is_alias)
{
    struct engine *e = r->engine;
    front_target before = 0;

    if (is_alias && !alias_allowed(e)) {
        atomic_fetch_add_explicit(&e->alias_refused, 1, memory_order_relaxed);
        return;
    }
    if (front_table_exchange(e->front, r->batch->series[series_index].sender_key, target, &before))
        rules_key_gone(e, before);
}

/* Past a limit: what is true of its key for a while. */
static void remember_refusal(struct write_request *r, uint32_t series_index, uint32_t limit)
{
    struct engine *e = r->engine;
    struct hash128 key = r->batch->series[series_index].sender_key;
    front_target before = 0;

    if (front_target_kind(r->scratch->targets[series_index]) != FRONT_REFUSED &&
        !limits_key_allowed(e))
        return;
    if (!front_table_exchange(e->front, key, limits_key_make(e, key.low, limit), &before))
        return;
    limits_key_count(e, 1);
    rules_key_gone(e, before);
}

static void refuse_newcomer(struct write_request *r, const struct newcomer *n)
{
    write_refuse_series(r, n->series_index, REFUSAL_LIMIT, n->verdict.number);
    if (n->verdict.number != LIMIT_STORE)
        remember_refusal(r, n->series_index, n->verdict.number);
}

/* Has the rules in effect judge a newcomer: its labels may be others afterwards. *is_dropped: its
 * samples are counted, and its key is remembered. */
static enum err apply_rules(struct write_request *r, struct newcomer *n, bool *is_dropped)
{
    struct rule_verdict v;
    enum err e;

    *is_dropped = false;
    if (!rule_set_judge(r->rules, &n->labels, &r->scratch->arena, &v))
        return ERR_NOMEM;
    if (v.dropped_by == RULE_NONE) {
        n->labels = v.labels;
        n->is_rewritten = v.is_rewritten;
        return ERR_OK;
    }
    e = write_end_dropped(r, n->series_index, &n->labels);
    if (e != ERR_OK)
        return e;
    struct decider *d = r->rules->deciders[v.dropped_by];
    *is_dropped = true;
    write_drop(r, n->series_index, d);
    rules_remember(r->engine, r->batch->series[n->series_index].sender_key, d, r->rules_stamp,
                   false);
    return ERR_OK;
}

static enum err write_newcomer(struct write_request *r, struct newcomer *n, struct errinfo *ei)
{
    struct shard *s = &r->engine->shards[n->identity.shard];
    front_target target = 0;
    bool is_alias = false;
    enum err err;

    old_samples_reset(&r->old); /* it may be of another shard */
    err = store(r, s, n, &target, &is_alias, ei);
    if (err == ERR_LIMIT && n->verdict.number != LIMIT_STORE &&
        limits_refused(r->engine, &n->verdict)) {
        /* Those that have ended make room. */
        n->verdict = (struct limit_verdict){.number = LIMIT_STORE};
        err = store(r, s, n, &target, &is_alias, ei);
    }
    if (err == ERR_LIMIT) {
        refuse_newcomer(r, n);
        return ERR_OK;
    }
    if (err == ERR_OK && is_alias && n->is_rewritten)
        atomic_fetch_add_explicit(&r->engine->rules.collisions, 1, memory_order_relaxed);
    if (err == ERR_OK)
        remember_key(r, n->series_index, target, is_alias);
    return err;
}

enum err write_unknown_series(struct write_request *r, uint32_t series_index, struct errinfo *ei)
{
    struct newcomer n = {.series_index = series_index};
    enum refusal reason = REFUSAL_INVALID_LABELS;
    size_t name_index = 0, name_begin = 0, name_end = 0;
    enum err e;

    if (r->batch->series[series_index].sample_count +
            r->batch->series[series_index].histogram_count ==
        0)
        return ERR_OK; /* nothing to store: no series either */
    atomic_fetch_add_explicit(&r->engine->slow_path_series, 1, memory_order_relaxed);
    e = write_labels_plain(r, series_index, &n.labels);
    if (e == ERR_NOMEM)
        goto out;
    if (e != ERR_OK || !labels_check(&n.labels, &reason)) {
        write_refuse_series(r, series_index, reason, LIMIT_STORE);
        e = ERR_OK;
        goto out;
    }
    if (r->rules->rule_count > 0) {
        bool is_dropped = false;

        e = apply_rules(r, &n, &is_dropped);
        if (e != ERR_OK || is_dropped)
            goto out;
    }
    if ((n.is_rewritten && !labels_check(&n.labels, &reason)) ||
        !labels_check_name(&n.labels, &name_index, &reason)) {
        write_refuse_series(r, series_index, reason, LIMIT_STORE);
        e = ERR_OK;
        goto out;
    }
    e = ERR_NOMEM;
    if (!canonical_write(&n.labels, name_index, &r->scratch->canonical, &name_begin, &name_end))
        goto out;
    n.canonical = (struct bytes){r->scratch->canonical.data, r->scratch->canonical.size};
    if (n.canonical.size > RECORD_LABELS_SIZE_MAX || n.labels.count > INDEX_LABEL_COUNT_MAX) {
        write_refuse_series(r, series_index, REFUSAL_LIMIT, LIMIT_STORE);
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
