/*
 * Putting rules into effect. In this order:
 *   1. the new set gets its deciders: those of the old one where keys agree, so that counts go on;
 *   2. it is published; dropped keys of rules that are gone are dead from here on;
 *   3. writes that still use the old set are waited for;
 *   4. active series that the change may concern are found (rules_judge.c);
 *   5. their keys, and dead ones, leave the front table: the next sample is judged anew.
 * Nothing waits for 4 and 5 but the caller; what a write enters meanwhile is by the new set.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine/limits/limits_internal.h"
#include "engine/rules/rules_internal.h"

/* Longer than a series may be silent and go on, and a replay at the start takes. */
enum { NEW_MS = 15 * 60 * 1000 };

/* ---- deciders ---- */

/* Deciders by key, while a set gets its own. */
struct decider_table {
    struct decider **places;
    size_t place_count; /* a power of two */
};

static size_t table_start(const struct decider_table *t, const struct rule_key *key)
{
    uint64_t word;

    memcpy(&word, key->bytes, sizeof word);
    return (size_t)word & (t->place_count - 1);
}

static struct decider **table_find(const struct decider_table *t, const struct rule_key *key)
{
    size_t i = table_start(t, key);

    while (t->places[i] != NULL && !rule_key_equal(&t->places[i]->key, key))
        i = (i + 1) & (t->place_count - 1);
    return &t->places[i];
}

static bool table_build(struct decider_table *t, const struct rules *r, uint32_t more)
{
    t->place_count = 16;
    while (t->place_count < 2 * ((size_t)r->decider_end + more))
        t->place_count *= 2;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    t->places = calloc(t->place_count, sizeof *t->places);
    for (uint32_t i = 0; i < r->decider_end && t->places != NULL; i++) {
        struct decider *d = rules_decider_at(r, i);

        if (d->is_used)
            *table_find(t, &d->key) = d;
    }
    return t->places != NULL;
}

/* A decider without an owner, or NULL. *hint is where to look from. */
static struct decider *decider_new(struct rules *r, uint32_t *hint)
{
    uint32_t page;

    for (; *hint < r->decider_end; (*hint)++) {
        if (!rules_decider_at(r, *hint)->is_used)
            return rules_decider_at(r, (*hint)++);
    }
    page = r->decider_end / DECIDERS_PER_PAGE;
    if (page == DECIDER_PAGE_MAX)
        return NULL;
    if (r->pages[page] == NULL)
        r->pages[page] = calloc(DECIDERS_PER_PAGE, sizeof **r->pages);
    if (r->pages[page] == NULL)
        return NULL;
    *hint = ++r->decider_end;
    rules_decider_at(r, r->decider_end - 1)->id = r->decider_end - 1;
    return rules_decider_at(r, r->decider_end - 1);
}

static void deciders_claim(struct rules *r, const struct rule_set *set)
{
    for (uint32_t i = 0; i < r->decider_end; i++)
        rules_decider_at(r, i)->is_live = false;
    for (uint32_t i = 0; i < set->rule_count; i++) {
        if (set->deciders[i] != NULL)
            set->deciders[i]->is_live = true;
    }
}

/* A decider for each filter; of two filters that do the same the second drops nothing and gets
 * none. False when memory or ids are short. */
static bool deciders_assign(struct rules *r, struct rule_set *set, struct decider_table *t)
{
    uint32_t hint = 0;

    for (uint32_t i = 0; i < r->decider_end; i++)
        rules_decider_at(r, i)->is_live = false;
    for (uint32_t i = 0; i < set->rule_count; i++) {
        struct decider **place = table_find(t, &set->rules[i].key), *d = *place;

        if (!set->rules[i].is_filter || (d != NULL && d->is_live))
            continue;
        if (d == NULL) {
            d = decider_new(r, &hint);
            if (d == NULL)
                return false;
            d->key = set->rules[i].key;
            d->is_used = true;
            atomic_store_explicit(&d->samples, 0, memory_order_relaxed);
            atomic_store_explicit(&d->keys, 0, memory_order_relaxed);
            *place = d;
        }
        d->is_live = true;
        set->deciders[i] = d;
    }
    set->id_count = r->decider_end;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    set->by_id = calloc((size_t)set->id_count + 1, sizeof *set->by_id);
    for (uint32_t i = 0; i < set->rule_count && set->by_id != NULL; i++) {
        if (set->deciders[i] != NULL)
            set->by_id[set->deciders[i]->id] = set->deciders[i];
    }
    return set->by_id != NULL;
}

/* Those of no set that no key leads to. No write may be left that uses an older set. */
static void deciders_retire(struct rules *r)
{
    for (uint32_t i = 0; i < r->decider_end; i++) {
        struct decider *d = rules_decider_at(r, i);

        if (!d->is_live && atomic_load_explicit(&d->keys, memory_order_relaxed) <= 0)
            d->is_used = false;
    }
}

enum err rules_decide(struct rules *r, struct rule_set *set, struct errinfo *ei)
{
    struct decider_table t = {0};
    bool ok = table_build(&t, r, set->rule_count) && deciders_assign(r, set, &t);

    free(t.places);
    if (ok)
        return ERR_OK;
    deciders_claim(r, atomic_load_explicit(&r->current, memory_order_relaxed));
    deciders_retire(r);
    return errinfo_set(ei, ERR_NOMEM, 0, "rules");
}

/* ---- keys ---- */

struct key_sweep {
    struct engine *engine;
    const struct rule_set *set;
    const struct rule_marks *marks; /* by shard; NULL: forget no series */
    uint16_t stamp, age_max;        /* dropped keys that are older go; age_max 0: any age */
    bool forgets_all;               /* all series, marked or not */
};

static void keep_keys(void *ctx, const front_target *targets, size_t count, bool *keep)
{
    const struct key_sweep *w = ctx;

    for (size_t i = 0; i < count; i++) {
        front_target t = targets[i];

        keep[i] = true;
        if (front_target_kind(t) == FRONT_SERIES)
            keep[i] = !w->forgets_all &&
                      (w->marks == NULL ||
                       !rule_marks_has(&w->marks[front_target_shard(t)], front_target_slot(t)));
        else if (front_target_kind(t) == FRONT_DROPPED)
            keep[i] = rules_decider(w->set, t) != NULL &&
                      (w->age_max == 0 ||
                       (uint16_t)(w->stamp - front_target_generation(t)) <= w->age_max);
    }
}

static void note_removed(void *ctx, front_target target)
{
    const struct key_sweep *w = ctx;

    rules_key_gone(w->engine, target);
}

static enum err sweep(struct key_sweep *w, uint64_t *removed, struct errinfo *ei)
{
    const struct front_filter filter = {keep_keys, w, note_removed};
    enum err e;

    mutex_lock(&w->engine->sweep_lock);
    e = front_table_sweep(w->engine->front, &filter, removed, ei);
    mutex_unlock(&w->engine->sweep_lock);
    return e;
}

static bool has_dead_keys(const struct rules *r)
{
    for (uint32_t i = 0; i < r->decider_end; i++) {
        const struct decider *d = rules_decider_at(r, i);

        if (d->is_used && !d->is_live && atomic_load_explicit(&d->keys, memory_order_relaxed) > 0)
            return true;
    }
    return false;
}

static void series_forget(struct engine *e, const struct rule_set *before,
                          const struct rule_set *after, struct rules_applied *out)
{
    struct rule_marks *marks = calloc(e->shard_count, sizeof *marks);
    struct key_sweep w = {.engine = e, .set = after, .marks = marks, .forgets_all = marks == NULL};
    struct errinfo ignored = {0};
    bool has_marks = marks == NULL;

    if (marks != NULL)
        rules_mark(e, before, after, marks);
    for (uint32_t i = 0; i < e->shard_count && marks != NULL; i++) {
        has_marks = has_marks || marks[i].all || marks[i].count > 0;
        out->series_forgotten += marks[i].count;
    }
    if ((has_marks || has_dead_keys(&e->rules)) &&
        sweep(&w, &out->keys_removed, &ignored) != ERR_OK)
        e->rules.forgets_all = has_marks; /* memory is short: maintenance tries again */
    if (marks != NULL)
        rules_marks_done(marks, e->shard_count);
    free(marks);
}

bool rules_are_new(const struct engine *e)
{
    int64_t changed_ms = atomic_load_explicit(&e->rules.changed_ms, memory_order_relaxed);
    int64_t age_ms = clock_now_ms(e->clock) - changed_ms;

    return age_ms < NEW_MS; /* also where the clock was set back */
}

static bool is_same(const struct rule_set *a, const struct rule_set *b)
{
    bool same = a->rule_count == b->rule_count;

    for (uint32_t i = 0; i < a->rule_count && same; i++)
        same = rule_key_equal(&a->rules[i].key, &b->rules[i].key);
    return same;
}

enum err engine_rules_apply(struct engine *e, struct rule_set *set, struct rules_applied *out,
                            struct errinfo *ei)
{
    struct rules *r = &e->rules;
    struct rule_set *before;
    bool is_other;
    enum err err;

    *out = (struct rules_applied){0};
    mutex_lock(&r->apply_lock);
    err = rules_decide(r, set, ei);
    if (err != ERR_OK) {
        mutex_unlock(&r->apply_lock);
        rule_set_free(set);
        return err;
    }
    /* relaxed: only who holds the lock changes it */
    is_other = !is_same(atomic_load_explicit(&r->current, memory_order_relaxed), set);
    if (is_other)
        atomic_store_explicit(&r->changed_ms, clock_now_ms(e->clock), memory_order_relaxed);
    before = atomic_exchange_explicit(&r->current, set, memory_order_acq_rel);
    epoch_wait(r->epochs);
    /* What a limit has refused may be dropped now, or have other labels. */
    if (is_other)
        limits_keys_expire(e);
    /* Before the end of the replay no key is known, and no write runs. */
    if (atomic_load_explicit(&e->is_ready, memory_order_acquire))
        series_forget(e, before, set, out);
    deciders_retire(r);
    mutex_unlock(&r->apply_lock);
    rule_set_free(before);
    return ERR_OK;
}

/* ---- eviction ---- */

enum { UNUSED_HOURS_MAX = 2 };

void rules_housekeep(struct engine *e)
{
    struct rules *r = &e->rules;
    uint16_t stamp = rules_stamp(e);
    struct errinfo ignored = {0};
    uint64_t removed = 0;

    if (!mutex_trylock(&r->apply_lock))
        return;
    struct key_sweep w = {.engine = e,
                          .set = atomic_load_explicit(&r->current, memory_order_relaxed),
                          .stamp = stamp,
                          .age_max = UNUSED_HOURS_MAX,
                          .forgets_all = r->forgets_all};
    bool is_due = stamp != r->evicted_stamp &&
                  atomic_load_explicit(&r->dropped_keys, memory_order_relaxed) > 0;

    if ((is_due || r->forgets_all) && sweep(&w, &removed, &ignored) == ERR_OK) {
        r->evicted_stamp = stamp;
        r->forgets_all = false;
    }
    if (!e->is_read_only && rules_keys_save_due(e) && rules_keys_save(e, &ignored) != ERR_OK)
        LOG_WARN("dropped series could not be saved: a start judges them anew",
                 LOG_STR("error", ignored.message));
    mutex_unlock(&r->apply_lock);
}

void rules_close(struct engine *e)
{
    struct errinfo ignored = {0};

    mutex_lock(&e->rules.apply_lock);
    if (rules_keys_save(e, &ignored) != ERR_OK)
        LOG_WARN("dropped series could not be saved: a start judges them anew",
                 LOG_STR("error", ignored.message));
    mutex_unlock(&e->rules.apply_lock);
}
