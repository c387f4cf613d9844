/*
 * What the files of the planner's first pass share: plan.c (operators, selectors), plan_call.c
 * (functions).
 */
#ifndef RIMSTONE_PROMQL_PLAN_PLAN_BUILD_INTERNAL_H
#define RIMSTONE_PROMQL_PLAN_PLAN_BUILD_INTERNAL_H

#include "promql/eval/arena_refused_internal.h"
#include "promql/plan/plan_internal.h"

/* NULL when the arena refuses: the caller returns plan_no_memory(). */
struct plan *plan_new(struct planner *pl, enum plan_kind kind, const struct node *node);
MUST_USE static inline enum err plan_no_memory(struct planner *pl)
{
    return arena_refused(pl->arena, pl->ei);
}

/* The plan of any expression that is no range and no string. */
MUST_USE enum err plan_build(struct planner *pl, const struct node *node, struct plan **out);
MUST_USE enum err plan_build_call(struct planner *pl, const struct node *n, struct plan **out);
MUST_USE enum err plan_build_constant(struct planner *pl, const struct node *n, double value,
                                      struct plan **out);
/* What `p` reads: selector[range], or the points of a subquery. */
MUST_USE enum err plan_set_matrix(const struct planner *pl, struct plan *p, const struct node *n);
MUST_USE enum err plan_set_subquery(struct planner *pl, struct plan *p, const struct node *n);
/* Adds a stage on top of `input`, to its PLAN_MAP where it is one. A stage that varies with time
 * does not join an invariant map: that one is computed once and spread. */
MUST_USE enum err plan_map_stage_add(struct planner *pl, struct plan *input, struct map_stage stage,
                                     struct plan **out);

#endif
