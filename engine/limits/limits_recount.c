/*
 * Counting series for limits where no running count will do: all series of a label that gets a
 * limit, and those series of a full limit that have ended.
 */
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/limits/limits_internal.h"
#include "engine/memtable/ended_internal.h"
#include "engine/memtable/memtable_internal.h"

enum {
    COUNT_SLOTS = 512,       /* looked at in one hold of the shard's lock */
    RECOUNT_VALUE_MS = 5000, /* until the same limit and value are looked at again */
    RECOUNT_SHARE = 20,      /* of the time, one in so many parts may be spent looking */
    RECOUNT_PAUSE_MS = 100,
};

uint64_t limits_key_of(const struct engine *e, struct str value)
{
    return hash64_bytes(&e->secret, value.data, value.size);
}

/* ---- series of a label ---- */

/* The slots of [first, end) that have a series, also one that is leaving. */
static size_t live_slots(struct shard *s, uint32_t first, uint32_t end, uint32_t *out)
{
    size_t count = 0;

    mutex_lock(&s->lock);
    for (uint32_t slot = first; slot < end; slot++)
        if (series_find_any(&s->series, slot) != NULL)
            out[count++] = slot;
    mutex_unlock(&s->lock);
    return count;
}

static enum err count_slots(struct engine *e, struct index *ix, struct limit_table *t,
                            const uint32_t *slots, size_t count)
{
    struct str values[COUNT_SLOTS];
    enum err err = ERR_OK;

    index_values_of(ix, slots, count, &t->label, 1, values);
    for (size_t i = 0; i < count && err == ERR_OK; i++)
        if (values[i].size > 0)
            err = limit_counts_add(&t->counts, limits_key_of(e, values[i]), 1);
    return err;
}

static enum err count_shard(struct engine *e, struct shard *s, struct limit_table *t)
{
    struct index *ix = shard_index_pin(s);
    uint32_t slots[COUNT_SLOTS], end;
    enum err err = ERR_OK;

    mutex_lock(&s->lock);
    end = s->series.slot_end; /* nobody makes series meanwhile */
    mutex_unlock(&s->lock);
    for (uint32_t first = 0; first < end && err == ERR_OK;) {
        uint32_t next = end - first < COUNT_SLOTS ? end : first + (uint32_t)COUNT_SLOTS;
        size_t count = live_slots(s, first, next, slots);

        err = count_slots(e, ix, t, slots, count);
        first = next;
    }
    return err;
}

enum err limits_count_label(struct engine *e, struct limit_table *t, struct errinfo *ei)
{
    struct reader reader;
    enum err err = ERR_OK;

    readers_enter(&e->readers, &reader); /* indexes stay while it is in there */
    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++)
        err = count_shard(e, &e->shards[i], t);
    readers_leave(&e->readers, &reader);
    return err == ERR_OK
               ? ERR_OK
               : errinfo_set(ei, err, 0, "memory for counting series of %.*s", STR_ARGS(t->label));
}

/* ---- series that have ended ---- */

static uint64_t ended_of_slots(struct shard *s, const uint32_t *slots, size_t count, int64_t now_ms)
{
    uint64_t ended = 0;

    for (size_t i = 0; i < count;) {
        mutex_lock(&s->lock);
        for (size_t n = 0; i < count && n < COUNT_SLOTS; i++, n++) {
            const struct series *series = series_find_any(&s->series, slots[i]);

            ended += series != NULL && series_has_ended(series, now_ms);
        }
        mutex_unlock(&s->lock);
    }
    return ended;
}

static enum err ended_of_value(struct engine *e, const struct limit_verdict *v, uint64_t *out)
{
    int64_t now_ms = engine_now_ms(e);
    struct reader reader;
    struct arena arena;
    struct matcher m = {0};
    enum err err;

    *out = 0;
    arena_init(&arena, e->memory);
    err = matcher_init(&m, MATCHER_EQUAL, v->label, v->value, &arena, NULL);
    readers_enter(&e->readers, &reader);
    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++) {
        struct arena_mark mark = arena_mark_get(&arena);
        uint32_t *slots = NULL;
        size_t count = 0;

        err =
            index_select(shard_index_pin(&e->shards[i]), &m, 1, NULL, &arena, &slots, &count, NULL);
        if (err == ERR_OK)
            *out += ended_of_slots(&e->shards[i], slots, count, now_ms);
        arena_mark_return(&arena, mark);
    }
    readers_leave(&e->readers, &reader);
    matcher_done(&m);
    arena_done(&arena);
    return err;
}

/* What the shards know of all series. */
static uint64_t ended_of_all(struct engine *e)
{
    uint64_t ended = 0;

    for (uint32_t i = 0; i < e->shard_count; i++) {
        struct shard *s = &e->shards[i];

        mutex_lock(&s->lock);
        ended += s->stale_count + s->silent_count;
        mutex_unlock(&s->lock);
    }
    return ended;
}

/* Enters what was found, unless series have died meanwhile, whom it counts too. */
static bool ended_enter(struct engine *e, const struct limit_verdict *v, uint64_t ended,
                        uint64_t end_count)
{
    struct limiter *l = &e->limiter;
    bool is_current;

    rwlock_write_lock(&l->lock); /* nobody dies, nobody comes */
    is_current = atomic_load_explicit(&l->end_count, memory_order_relaxed) == end_count;
    if (is_current && v->number == LIMIT_ACTIVE_SERIES)
        atomic_store_explicit(&l->ended, ended, memory_order_relaxed);
    for (size_t i = 0; is_current && l->set != NULL && i < l->set->table_count; i++)
        if (l->set->tables[i]->number == v->number && str_equal(l->set->tables[i]->label, v->label))
            limit_counts_set_ended(&l->set->tables[i]->counts, limits_key_of(e, v->value), ended);
    rwlock_write_unlock(&l->lock);
    return is_current;
}

/* False when memory is short or series have died: the limit stays as it is for now. */
static bool recount(struct engine *e, const struct limit_verdict *v)
{
    uint64_t end_count = atomic_load_explicit(&e->limiter.end_count, memory_order_relaxed);
    uint64_t ended = 0;

    if (v->number == LIMIT_ACTIVE_SERIES)
        ended = ended_of_all(e);
    else if (ended_of_value(e, v, &ended) != ERR_OK)
        return false;
    return ended_enter(e, v, ended, end_count);
}

/* Whether the value's turn has come, which it then has had. */
static bool is_due(struct limiter *l, const struct limit_verdict *v, uint64_t key, int64_t now_ms)
{
    bool due = false;

    mutex_lock(&l->watch_lock);
    for (size_t i = 0; i < LIMIT_OFFENDERS_MAX; i++) {
        struct limit_watch *w = &l->watches[i];

        if (w->number != v->number || w->key != key)
            continue;
        due = now_ms >= w->next_recount_ms ||
              w->next_recount_ms > now_ms + RECOUNT_VALUE_MS; /* the clock was set back */
        if (due)
            w->next_recount_ms = now_ms + RECOUNT_VALUE_MS;
    }
    mutex_unlock(&l->watch_lock);
    return due;
}

bool limits_recount(struct engine *e, const struct limit_verdict *v)
{
    struct limiter *l = &e->limiter;
    int64_t now_ms = clock_now_ms(e->clock);
    uint64_t key = limits_watch_key(e, v), start_ns, spent_ms;
    bool done = false;

    if (!mutex_trylock(&l->recount_lock))
        return false;
    /* Time that passes by another clock than the engine's: what it costs is real. */
    start_ns = clock_mono_ns();
    if (start_ns >= l->next_recount_ns && is_due(l, v, key, now_ms)) {
        done = recount(e, v);
        spent_ms = (clock_mono_ns() - start_ns) / 1000000;
        l->next_recount_ns = spent_ms == 0
                                 ? 0
                                 : clock_mono_ns() + (RECOUNT_PAUSE_MS + RECOUNT_SHARE * spent_ms) *
                                                         UINT64_C(1000000);
    }
    mutex_unlock(&l->recount_lock);
    return done;
}
