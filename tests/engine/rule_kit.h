/*
 * Random rules and label sets for tests, and what rules make of a label set, done the slow way.
 */
#ifndef RIMSTONE_TESTS_RULE_KIT_H
#define RIMSTONE_TESTS_RULE_KIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "engine/drop_rules.h"
#include "tests/lib/test_support.h"

/* A random rule; texts and matchers in `arena`. Compiled expressions of matchers are the caller's
 * to free with rule_kit_done(). `filters_only`: none that rewrites. */
struct drop_rule rule_kit_random(struct test_random *random, struct arena *arena, size_t number,
                                 bool filters_only);
void rule_kit_done(struct drop_rule *rules, size_t count);
/* A rule that drops what a `name=value` or `name=~value` selector matches. */
struct drop_rule rule_kit_drop(const char *rule_name, const char *label, const char *op,
                               const char *value, struct arena *arena);
/* Random labels with a name, sorted; at most RULE_KIT_LABELS. */
enum { RULE_KIT_LABELS = 6 };
struct labels rule_kit_labels(struct test_random *random, struct arena *arena);

/* A random rule that only keeps or drops; texts in `arena`. */
struct relabel_config rule_kit_filter(struct test_random *random, struct arena *arena);
/* Whether it drops these labels, told from its fields alone: values put together in a buffer, and a
 * regular expression that is compiled anew. */
bool rule_kit_filter_drops(const struct relabel_config *c, const struct labels *labels);

/* Rules one after the other, each compiled anew. */
struct rule_verdict rule_kit_judge(const struct drop_rule *rules, size_t count,
                                   const struct labels *labels, struct arena *arena);

#endif
