/*
 * Series-drop rules: an ordered list that each incoming series goes through once, when its sender
 * key is new. A rule keeps, drops or rewrites (relabel.h), or drops what a selector matches.
 *
 * Life: rule_set_new() compiles a list; engine_rules_apply() puts it into effect, also for series
 * that are active, while writes go on.
 */
#ifndef RIMSTONE_ENGINE_DROP_RULES_H
#define RIMSTONE_ENGINE_DROP_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/labels.h"
#include "engine/relabel.h"

struct engine;

enum drop_rule_origin { DROP_RULE_API, DROP_RULE_FILE };

enum { DROP_RULES_MAX = 100000 };

/* A rule as it is written. Everything is borrowed. */
struct drop_rule {
    struct str name, comment;
    enum drop_rule_origin origin;
    bool purge; /* what is stored shall be deleted as well: the caller's to do */
    /* Either a selector, as it was written and as matchers, or the fields of a relabel_config. */
    struct str selector;
    const struct matcher *matchers; /* NULL: a relabel_config */
    size_t matcher_count;
    struct relabel_config relabel;
};

struct rule_set;

/* Compiles rules in their order; copies all it needs. ERR_INVALID naming the rule, ERR_LIMIT. */
MUST_USE enum err rule_set_new(const struct drop_rule *rules, size_t count, struct rule_set **out,
                               struct errinfo *ei);
/* Accepts NULL. Not for a set that engine_rules_apply() has taken. */
void rule_set_free(struct rule_set *set);
size_t rule_set_count(const struct rule_set *set);
/* The i-th rule; as long as the set lives. */
const struct drop_rule *rule_set_rule(const struct rule_set *set, size_t i);

enum { RULE_NONE = UINT32_MAX };

/* What rules make of a series. */
struct rule_verdict {
    uint32_t dropped_by;  /* index of the rule, or RULE_NONE */
    bool is_rewritten;    /* `labels` are not those that came in */
    struct labels labels; /* sorted; not checked: rules may leave no name, or an empty one */
};
/* Judges labels (sorted, unique). What the verdict points to lives in `arena` or is borrowed from
 * `labels`. False when the arena refuses. Any number of threads. */
MUST_USE bool rule_set_judge(const struct rule_set *set, const struct labels *labels,
                             struct arena *arena, struct rule_verdict *out);

struct rules_applied {
    uint64_t series_forgotten; /* active series that are judged anew with their next sample */
    uint64_t keys_removed;     /* sender keys of these, and of dropped series that may come back */
};

/*
 * Puts a set into effect; it is the engine's from then on (also when this fails). Returns when all
 * samples of requests that begin later go by the new rules. Active series that the change cannot
 * concern are left alone: their keys stay known, as those of dropped series do as long as the rule
 * that dropped them and all rules before it that rewrite are unchanged. Calls wait for each other.
 * Before engine_replay() too. ERR_NOMEM, ERR_LIMIT: the rules from before hold.
 */
MUST_USE enum err engine_rules_apply(struct engine *e, struct rule_set *set,
                                     struct rules_applied *out, struct errinfo *ei);

/* A rule in effect, with what it has done since the start. */
struct drop_rule_state {
    struct drop_rule rule;   /* without matchers; texts in the caller's arena */
    uint64_t series_dropped; /* sender series that are known to be dropped by it now */
    uint64_t samples_dropped;
};
/* Rules in effect, in order; arrays and texts in `arena`. */
MUST_USE enum err engine_rules_state(struct engine *e, struct arena *arena,
                                     struct drop_rule_state **out, size_t *count,
                                     struct errinfo *ei);

/* Of all rules together. */
struct rules_stats {
    uint64_t rule_count, dropped_keys, dropped_keys_max;
    uint64_t dropped_keys_not_kept; /* since too many were: each sample of theirs is judged anew */
    uint64_t samples_dropped;
    uint64_t series_ended; /* stored series that got a staleness marker when they were dropped */
    uint64_t collisions;   /* times a rewritten series met one that another key leads to */
};
void engine_rules_stats(struct engine *e, struct rules_stats *out);

#endif
