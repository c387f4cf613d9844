#include "engine/rules/rules_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/limits/limits_internal.h"

enum {
    KEYS_MAX_UNLIMITED = 1 << 26,
    KEYS_MAX_LEAST = 1 << 16,
    /* Dropped keys may take this share of the memory limit, at this many bytes each. */
    KEYS_MEMORY_SHARE = 16,
    KEY_BYTES = 24,
    STAMP_MS = 3600 * 1000,
};

enum err rules_init(struct rules *r, struct errinfo *ei)
{
    struct rule_set *none = NULL;
    enum err e = rule_set_new(NULL, 0, &none, ei);

    if (e == ERR_OK)
        e = epoch_domain_new(&r->epochs, ei);
    if (e != ERR_OK) {
        rule_set_free(none);
        return e;
    }
    mutex_init(&r->apply_lock);
    atomic_init(&r->current, none);
    return ERR_OK;
}

void rules_done(struct rules *r)
{
    if (r->epochs == NULL)
        return;
    for (uint32_t i = 0; i < DECIDER_PAGE_MAX; i++)
        free(r->pages[i]);
    rule_set_free(atomic_load_explicit(&r->current, memory_order_relaxed));
    epoch_domain_free(r->epochs);
    mutex_done(&r->apply_lock);
}

const struct rule_set *rules_enter(struct rules *r, uint32_t *token)
{
    *token = epoch_enter(r->epochs);
    return atomic_load_explicit(&r->current, memory_order_acquire);
}

void rules_leave(struct rules *r, uint32_t token)
{
    epoch_leave(r->epochs, token);
}

/* ---- dropped keys ---- */

uint16_t rules_stamp(const struct engine *e)
{
    return (uint16_t)(clock_now_ms(e->clock) / STAMP_MS);
}

uint64_t rules_keys_max(const struct engine *e)
{
    uint64_t max = KEYS_MAX_UNLIMITED;

    if (e->memory_limit != NULL &&
        e->memory_limit->limit_bytes / KEYS_MEMORY_SHARE / KEY_BYTES < max)
        max = e->memory_limit->limit_bytes / KEYS_MEMORY_SHARE / KEY_BYTES;
    return max < KEYS_MAX_LEAST ? KEYS_MAX_LEAST : max;
}

void rules_key_gone(struct engine *e, front_target before)
{
    struct decider *d;

    if (front_target_kind(before) == FRONT_REFUSED)
        limits_key_count(e, -1);
    if (front_target_kind(before) != FRONT_DROPPED)
        return;
    d = rules_decider_at(&e->rules, front_target_slot(before));
    atomic_fetch_sub_explicit(&d->keys, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&e->rules.dropped_keys, 1, memory_order_relaxed);
}

/* The bound is soft: requests that ask at once may all be let through. */
static bool key_allowed(struct engine *e)
{
    int64_t keys = atomic_load_explicit(&e->rules.dropped_keys, memory_order_relaxed);

    if (keys < 0 || (uint64_t)keys < rules_keys_max(e))
        return true;
    atomic_fetch_add_explicit(&e->rules.dropped_keys_not_kept, 1, memory_order_relaxed);
    return false;
}

void rules_remember(struct engine *e, struct hash128 key, const struct decider *decider,
                    uint16_t stamp, bool is_known)
{
    struct decider *d = rules_decider_at(&e->rules, decider->id);
    front_target before = 0;

    if (!is_known && !key_allowed(e))
        return;
    if (!front_table_exchange(e->front, key, rules_target(d, stamp), &before))
        return; /* no memory: the next sample is judged anew */
    atomic_fetch_add_explicit(&d->keys, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->rules.dropped_keys, 1, memory_order_relaxed);
    if (before == 0)
        atomic_fetch_add_explicit(&e->rules.keys_added, 1, memory_order_relaxed);
    rules_key_gone(e, before);
}

/* ---- what was done ---- */

static struct str copy_text(struct str text, struct arena *arena, bool *ok)
{
    char *copy = arena_memdup0(arena, text.size == 0 ? "" : text.data, text.size);

    *ok = *ok && copy != NULL;
    return (struct str){copy, text.size};
}

/* The texts of a rule in another arena. */
static bool definition_copy(const struct drop_rule *from, struct arena *arena,
                            struct drop_rule *out)
{
    size_t count = from->relabel.source_label_count;
    struct str *sources = ARENA_ARRAY(arena, count + 1, struct str);
    bool ok = sources != NULL;

    *out = *from;
    out->matchers = NULL;
    out->name = copy_text(from->name, arena, &ok);
    out->comment = copy_text(from->comment, arena, &ok);
    out->selector = copy_text(from->selector, arena, &ok);
    out->relabel.separator = copy_text(from->relabel.separator, arena, &ok);
    out->relabel.regex = copy_text(from->relabel.regex, arena, &ok);
    out->relabel.target_label = copy_text(from->relabel.target_label, arena, &ok);
    out->relabel.replacement = copy_text(from->relabel.replacement, arena, &ok);
    for (size_t i = 0; i < count && ok; i++)
        sources[i] = copy_text(from->relabel.source_labels[i], arena, &ok);
    out->relabel.source_labels = sources;
    return ok;
}

static bool state_fill(const struct rule_set *set, struct arena *arena, struct drop_rule_state *out)
{
    for (uint32_t i = 0; i < set->rule_count; i++) {
        const struct decider *d = set->deciders[i];
        int64_t keys = 0;

        out[i] = (struct drop_rule_state){0};
        if (!definition_copy(&set->rules[i].definition, arena, &out[i].rule))
            return false;
        if (d == NULL)
            continue;
        keys = atomic_load_explicit(&d->keys, memory_order_relaxed);
        out[i].series_dropped = keys < 0 ? 0 : (uint64_t)keys;
        out[i].samples_dropped = atomic_load_explicit(&d->samples, memory_order_relaxed);
    }
    return true;
}

enum err engine_rules_state(struct engine *e, struct arena *arena, struct drop_rule_state **out,
                            size_t *count, struct errinfo *ei)
{
    uint32_t token = 0;
    const struct rule_set *set = rules_enter(&e->rules, &token);
    struct drop_rule_state *states =
        ARENA_ARRAY(arena, (size_t)set->rule_count + 1, struct drop_rule_state);
    bool ok = states != NULL && state_fill(set, arena, states);

    *count = set->rule_count;
    rules_leave(&e->rules, token);
    if (!ok)
        return arena_error(arena, ei);
    *out = states;
    return ERR_OK;
}

void engine_rules_stats(struct engine *e, struct rules_stats *out)
{
    struct rules *r = &e->rules;
    int64_t keys = atomic_load_explicit(&r->dropped_keys, memory_order_relaxed);
    uint32_t token = 0;

    out->rule_count = rules_enter(r, &token)->rule_count;
    rules_leave(r, token);
    out->dropped_keys = keys < 0 ? 0 : (uint64_t)keys;
    out->dropped_keys_max = rules_keys_max(e);
    out->dropped_keys_not_kept =
        atomic_load_explicit(&r->dropped_keys_not_kept, memory_order_relaxed);
    out->samples_dropped = atomic_load_explicit(&r->samples_dropped, memory_order_relaxed);
    out->series_ended = atomic_load_explicit(&r->series_ended, memory_order_relaxed);
    out->collisions = atomic_load_explicit(&r->collisions, memory_order_relaxed);
}
