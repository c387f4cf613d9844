/*
 * Rules in effect: which set, what dropped keys stand for, and what was counted.
 *
 * A dropped key's entry of the front table holds the id of a decider: a filter and all rules before
 * it that rewrite, as one hash. The set in effect says which ids still stand for something; a key
 * of any other id is unknown, and its next sample takes the slow path. So a reload touches no entry
 * that it does not concern, and those it does concern are dead at once.
 *
 * Requests use the set inside a section of `epochs`; who replaces it waits for older sections, and
 * only then looks at what they have left in the front table.
 */
#ifndef RIMSTONE_ENGINE_RULES_RULES_INTERNAL_H
#define RIMSTONE_ENGINE_RULES_RULES_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/epoch.h"
#include "base/thread.h"
#include "engine/rules/rule_set_internal.h"
#include "engine/write/front_table_internal.h"

struct engine;

/* What drops series: outlives the sets that have it, so that counts go on. Its id is given away
 * again when no set has it and no key leads to it. */
struct decider {
    struct rule_key key;
    uint32_t id;
    bool is_used;             /* under rules.apply_lock, like `key` */
    bool is_live;             /* of the set in effect, or the next one; under apply_lock */
    _Atomic uint64_t samples; /* relaxed: dropped since the start */
    _Atomic int64_t keys;     /* relaxed: entries of the front table */
};

enum { DECIDERS_PER_PAGE = 1024, DECIDER_PAGE_MAX = 1024 };

struct rules {
    struct epoch_domain *epochs;        /* owned */
    _Atomic(struct rule_set *) current; /* owned, never NULL; release / acquire */
    struct mutex apply_lock;            /* before all other locks; guards down to the statistics */
    struct decider *pages[DECIDER_PAGE_MAX]; /* owned; never moved; written before the first set
                                              * that has an id of the page is published */
    uint32_t decider_end;
    uint16_t evicted_stamp; /* the hour of the last eviction */
    bool forgets_all;       /* a change has left keys of series that it may concern */
    struct {
        uint64_t mono_ns, added; /* when dropped keys were last saved, and keys_added then */
    } saved;

    /* When other rules were put into effect. Relaxed: the exchange of `current` orders it. */
    _Atomic int64_t changed_ms;

    /* relaxed: statistics */
    _Atomic int64_t dropped_keys;
    _Atomic uint64_t keys_added;
    _Atomic uint64_t dropped_keys_not_kept, samples_dropped, series_ended, collisions;
};

MUST_USE enum err rules_init(struct rules *r, struct errinfo *ei);
/* Accepts a zeroed struct. */
void rules_done(struct rules *r);

/* The set in effect, until rules_leave(). */
const struct rule_set *rules_enter(struct rules *r, uint32_t *token);
void rules_leave(struct rules *r, uint32_t token);

/* Whether series that go on may have come in under rules from before. */
bool rules_are_new(const struct engine *e);
/* The hour, which dropped keys carry to show when they were last used. */
uint16_t rules_stamp(const struct engine *e);
/* What a dropped key leads to. */
static inline front_target rules_target(const struct decider *d, uint16_t stamp)
{
    return front_target_dropped(d->id, stamp);
}
/* The decider of a dropped key under a set; NULL: the key is as good as unknown. */
static inline struct decider *rules_decider(const struct rule_set *set, front_target t)
{
    uint32_t id = front_target_slot(t);

    return id < set->id_count ? set->by_id[id] : NULL;
}
/* Whoever has an id out of a target that was put by one of the engine's sets. */
static inline struct decider *rules_decider_at(const struct rules *r, uint32_t id)
{
    return &r->pages[id / DECIDERS_PER_PAGE][id % DECIDERS_PER_PAGE];
}
/* How many dropped keys are kept at most. */
uint64_t rules_keys_max(const struct engine *e);
/* Enters a dropped key, or, of a known one, that it is still used. Keys are bounded: a new one may
 * be left out. */
void rules_remember(struct engine *e, struct hash128 key, const struct decider *d, uint16_t stamp,
                    bool is_known);
/* A key that led to `before` (of any kind, or 0) does so no more. */
void rules_key_gone(struct engine *e, front_target before);

/* Removes keys that were not used for hours, once an hour, and has the others saved now and then.
 * Called by maintenance. */
void rules_housekeep(struct engine *e);

/* Before the engine's end, when no write is left: saves the dropped keys. */
void rules_close(struct engine *e);

/* ---- rules_apply.c ---- */

/* Makes the deciders of a set that is not in effect yet. Caller holds apply_lock. */
MUST_USE enum err rules_decide(struct rules *r, struct rule_set *set, struct errinfo *ei);

/* ---- rules_keys.c ---- */

#define RULES_KEYS_PATH "dropped_keys"

/* Writes the dropped keys to their file. Caller holds apply_lock. */
MUST_USE enum err rules_keys_save(struct engine *e, struct errinfo *ei);
/* Whether enough is new, and enough time has passed. Caller holds apply_lock. */
bool rules_keys_save_due(const struct engine *e);
/* Enters what the file has of the rules in effect. Nobody else uses the engine yet. */
void rules_keys_load(struct engine *e);

/* ---- rules_judge.c: active series under new rules ---- */

/* Which slots of a shard are to be forgotten. */
struct rule_marks {
    bool all; /* memory was short: every one */
    uint32_t slot_end;
    uint64_t *bits; /* owned; NULL: none */
    uint64_t count;
};

/* Marks what the change from one set to another may concern, in all shards; out[i] for shard i,
 * freed by rules_marks_done(). Both sets stay for the call, and no write that uses the old one is
 * left. */
void rules_mark(struct engine *e, const struct rule_set *before, const struct rule_set *after,
                struct rule_marks *out);
void rules_marks_done(struct rule_marks *marks, uint32_t shard_count);
static inline bool rule_marks_has(const struct rule_marks *m, uint32_t slot)
{
    return m->all ||
           (slot < m->slot_end && m->bits != NULL && (m->bits[slot / 64] >> slot % 64 & 1) != 0);
}

#endif
