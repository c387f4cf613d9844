/*
 * Rules as selectors: which stored series a rule with `purge` deletes. Besides `drop` with a
 * selector that is known of relabelling rules that keep or drop by one label: {a=~"regex"} is what
 * they drop, or {a!~"regex"}, where a missing label is an empty one in both languages.
 */
#ifndef RIMSTONE_API_RULE_SELECTOR_INTERNAL_H
#define RIMSTONE_API_RULE_SELECTOR_INTERNAL_H

#include "base/arena.h"
#include "engine/drop_rules.h"

/* Why a rule has no selector that may be purged; NULL when it has one. */
const char *rule_selector_obstacle(const struct drop_rule *r);
/* The labels that decide; of a rule without obstacle. */
size_t rule_selector_label_count(const struct drop_rule *r);
struct str rule_selector_label(const struct drop_rule *r, size_t i);
/* The selector as text, as written or in the arena: the same text, the same series. */
MUST_USE enum err rule_selector_text(const struct drop_rule *r, struct arena *arena,
                                     struct str *out, struct errinfo *ei);

struct rule_selector {
    struct str text;
    const struct matcher *matchers; /* the rule's, or `own` */
    size_t matcher_count;
    struct matcher *own; /* in the arena; NULL: none */
};
/* Texts and matchers are the rule's or in the arena; rule_selector_done() comes before either's
 * end. On failure there is nothing to be done. */
MUST_USE enum err rule_selector_init(struct rule_selector *out, const struct drop_rule *r,
                                     struct arena *arena, struct errinfo *ei);
void rule_selector_done(struct rule_selector *s);

#endif
