/*
 * arena_error() for code paths where the arena has just refused: never ERR_OK, which also tells
 * static analysis that outputs need not be set there.
 */
#ifndef RIMSTONE_PROMQL_EVAL_ARENA_REFUSED_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_ARENA_REFUSED_INTERNAL_H

#include "base/arena.h"
#include "base/err.h"

MUST_USE static inline enum err arena_refused(const struct arena *a, struct errinfo *ei)
{
    enum err e = arena_error(a, ei);

    return e == ERR_OK ? ERR_NOMEM : e;
}

#endif
