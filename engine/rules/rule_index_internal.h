/*
 * Which filters of a stage can drop a series at all: a table by what they need of one label, a
 * value or the beginning of one. Thousands of rules for thousands of metrics then cost a new series
 * a few look-ups; only those that need nothing are tried one by one.
 */
#ifndef RIMSTONE_ENGINE_RULES_RULE_INDEX_INTERNAL_H
#define RIMSTONE_ENGINE_RULES_RULE_INDEX_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/relabel.h"

struct rule;
struct rule_index;

/* Of rules[first..end), all filters; borrowed. Everything lives in `arena`. */
MUST_USE enum err rule_index_new(const struct rule *rules, uint32_t first, uint32_t end,
                                 struct arena *arena, struct rule_index **out, struct errinfo *ei);
/* The first filter in order that drops the set, or RULE_NONE. `labels` are those of the set. */
uint32_t rule_index_find(const struct rule_index *ix, struct relabel_set *s,
                         const struct label *labels, size_t label_count);

#endif
