/*
 * Changes of a label set under relabelling, for the files that implement it.
 */
#ifndef RIMSTONE_ENGINE_RULES_RELABEL_INTERNAL_H
#define RIMSTONE_ENGINE_RULES_RELABEL_INTERNAL_H

#include "engine/relabel.h"

/* An empty value deletes. Texts are borrowed as long as the set lives. */
void relabel_set_put(struct relabel_set *s, struct str name, struct str value);
void relabel_set_delete(struct relabel_set *s, struct str name);
/* A copy of what is there, in the order in which Prometheus walks it: what is left of the base,
 * then what was set since. NULL and s->failed when the arena refuses. */
const struct label *relabel_set_list(struct relabel_set *s, size_t *count);

#endif
