/*
 * Recognises regular expressions that need no regular expression engine.
 */
#ifndef RIMSTONE_ENGINE_LABELS_MATCHER_INTERNAL_H
#define RIMSTONE_ENGINE_LABELS_MATCHER_INTERNAL_H

#include <stdbool.h>

#include "base/arena.h"
#include "engine/labels.h"

/* Sets form, set, literal, before, after and prefix of *m from m->value, a pattern that is to be
 * read as RE2 reads ^(?s:pattern)$. Leaves form REGEX where it is not sure of the meaning, also for
 * malformed patterns. Exact for well-formed UTF-8 text. False when the arena refuses. */
MUST_USE bool matcher_simplify(struct matcher *m, struct arena *arena);

#endif
