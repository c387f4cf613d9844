/*
 * A compiled list of rules, for the files that implement and apply it.
 *
 * Rules that rewrite cut the list into stages: a run of rules that only keep or drop (filters),
 * then one that rewrites, or the end. Within a stage the order of filters decides only which of
 * them is said to have dropped a series, so they can be indexed.
 */
#ifndef RIMSTONE_ENGINE_RULES_RULE_SET_INTERNAL_H
#define RIMSTONE_ENGINE_RULES_RULE_SET_INTERNAL_H

#include "base/md5.h"
#include "engine/drop_rules.h"
#include "engine/rules/rule_index_internal.h"

struct decider; /* rules_internal.h */

struct rule_key {
    uint8_t bytes[MD5_BYTES];
};

struct rule {
    struct drop_rule definition; /* texts in the set's arena; matchers owned through `matchers` */
    struct relabel *relabel;     /* owned; NULL: a selector */
    struct matcher *matchers;    /* owned, definition.matcher_count of them; NULL: relabel */
    bool is_filter;
    uint32_t stage;
    /* Of a filter: what it does and all rules before it that rewrite. What it drops, it drops under
     * any set that has the key. */
    struct rule_key key;
};

struct rule_stage {
    uint32_t first, end;      /* its filters */
    uint32_t rewriting;       /* the rule behind them, or RULE_NONE */
    struct rule_index *index; /* owned */
};

struct rule_set {
    struct arena arena; /* owns what is not said to be owned otherwise */
    struct rule *rules;
    uint32_t rule_count;
    struct rule_stage *stages;
    uint32_t stage_count;
    struct rule_key rewriting; /* of all rules that rewrite, in order */

    /* Set when the rules are put into effect. */
    struct decider **deciders; /* by rule; NULL for those that rewrite */
    struct decider **by_id;    /* what a dropped key's id stands for; NULL: nothing any more */
    uint32_t id_count;
};

/* Whether the rules that rewrite give back these labels (sorted, unique), whatever filters make of
 * them. False when the arena refuses. */
MUST_USE bool rule_set_leaves_alone(const struct rule_set *set, const struct labels *labels,
                                    struct arena *arena, bool *out);

/* Whether a filter drops the set. */
bool rule_drops(const struct rule *r, struct relabel_set *s);
static inline bool rule_key_equal(const struct rule_key *a, const struct rule_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

#endif
