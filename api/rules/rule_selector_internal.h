/*
 * Which stored series a rule with `purge` deletes: all that it would drop by the labels they are
 * stored with. `drop` with a selector is one; relabelling rules that keep or drop by one label are
 * as good as one, {a!~"regex"} or {a=~"regex"}, where a missing label is an empty one in both
 * languages; those that see more labels, or compare some, are filters of the engine (purge.h).
 */
#ifndef RIMSTONE_API_RULES_RULE_SELECTOR_INTERNAL_H
#define RIMSTONE_API_RULES_RULE_SELECTOR_INTERNAL_H

#include "base/arena.h"
#include "engine/drop_rules.h"

/* Why a rule may not purge, a sentence; NULL when it may. */
const char *rule_selector_obstacle(const struct drop_rule *r);
/* The labels that decide; of a rule without obstacle. */
size_t rule_selector_label_count(const struct drop_rule *r);
struct str rule_selector_label(const struct drop_rule *r, size_t i);
/* The selector, or the rule as JSON, as written or in the arena: the same text, the same series.
 * Manifests keep it: another spelling takes back what stands and purges anew. */
MUST_USE enum err rule_selector_text(const struct drop_rule *r, struct arena *arena,
                                     struct str *out, struct errinfo *ei);

struct rule_selector {
    struct str text;
    const struct matcher *matchers; /* the rule's, or `own` */
    size_t matcher_count;
    struct matcher *own;                 /* in the arena; NULL: none */
    const struct relabel_config *filter; /* the rule's; NULL: the matchers */
};
/* Texts and matchers are the rule's or in the arena; rule_selector_done() comes before either's
 * end. On failure there is nothing to be done. */
MUST_USE enum err rule_selector_init(struct rule_selector *out, const struct drop_rule *r,
                                     struct arena *arena, struct errinfo *ei);
void rule_selector_done(struct rule_selector *s);

#endif
