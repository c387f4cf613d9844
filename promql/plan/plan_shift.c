/*
 * Durations, offsets and @ as the planner needs them: numbers in place of expressions, times in
 * place of start() and end().
 */
#include "promql/eval/eval_internal.h"
#include "promql/plan/plan_internal.h"

enum err plan_duration_resolve(const struct planner *pl, const struct duration_expr *d, int64_t ms,
                               bool negative_allowed, int64_t *out)
{
    const struct duration_bounds bounds = {
        .step_s = pl->query->is_range ? ms_seconds(pl->query->step_ms) : 0,
        .range_s = ms_seconds(ms_subtract(pl->end_ms, pl->grid.start_ms)),
    };

    *out = ms;
    return d == NULL ? ERR_OK : promql_duration_evaluate(d, &bounds, negative_allowed, out, pl->ei);
}

enum err plan_shift_resolve(const struct planner *pl, struct time_shift s, struct time_shift *out)
{
    enum err e = plan_duration_resolve(pl, s.offset_expr, s.offset_ms, true, &s.offset_ms);

    if (s.at == AT_START)
        s.at_ms = pl->grid.start_ms;
    else if (s.at == AT_END)
        s.at_ms = pl->end_ms;
    if (s.at != AT_NONE)
        s.at = AT_TIME;
    *out = s;
    return e;
}

/* A shift seen through that of a subquery around it: what is innermost anchors the time. */
static struct time_shift shift_compose(struct time_shift outer, struct time_shift inner)
{
    if (inner.at == AT_NONE) {
        inner.at = outer.at;
        inner.at_ms = outer.at_ms;
        inner.offset_ms = ms_add(inner.offset_ms, outer.offset_ms);
    }
    return inner;
}

static enum err first_shift(struct planner *pl, const struct node *n, struct time_shift around,
                            struct time_shift *out, bool *found);

/* The operands of a chain, from the left. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err first_shift_binary(struct planner *pl, const struct node *n,
                                   struct time_shift around, struct time_shift *out, bool *found)
{
    const struct node *left = n, **chain;
    size_t count = 0;
    enum err e;

    for (; left->kind == NODE_BINARY; left = left->u.binary.lhs)
        count++;
    chain = ARENA_ARRAY(pl->arena, count, const struct node *);
    if (chain == NULL)
        return arena_refused(pl->arena, pl->ei);
    for (size_t i = count; i-- > 0; n = n->u.binary.lhs)
        chain[i] = n;
    e = first_shift(pl, left, around, out, found);
    for (size_t i = 0; e == ERR_OK && !*found && i < count; i++)
        e = first_shift(pl, chain[i]->u.binary.rhs, around, out, found);
    return e;
}

/* The time at which the first selector of a tree reads, through all subqueries around it. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err first_shift(struct planner *pl, const struct node *n, struct time_shift around,
                            struct time_shift *out, bool *found)
{
    struct time_shift own = {0};
    enum err e = ERR_OK;

    switch (n->kind) {
    case NODE_NUMBER:
    case NODE_STRING:
        return ERR_OK;
    case NODE_MATRIX:
        return first_shift(pl, n->u.matrix.selector, around, out, found);
    case NODE_SELECTOR:
        *found = true;
        e = plan_shift_resolve(pl, n->u.selector.shift, &own);
        *out = shift_compose(around, own);
        return e;
    case NODE_SUBQUERY:
        e = plan_shift_resolve(pl, n->u.subquery.shift, &own);
        return e == ERR_OK
                   ? first_shift(pl, n->u.subquery.expr, shift_compose(around, own), out, found)
                   : e;
    case NODE_UNARY:
        return first_shift(pl, n->u.unary.expr, around, out, found);
    case NODE_PAREN:
        return first_shift(pl, n->u.paren, around, out, found);
    case NODE_BINARY:
        return first_shift_binary(pl, n, around, out, found);
    case NODE_AGGREGATE:
        e = first_shift(pl, n->u.aggregate.expr, around, out, found);
        if (e == ERR_OK && !*found && n->u.aggregate.param != NULL)
            e = first_shift(pl, n->u.aggregate.param, around, out, found);
        return e;
    case NODE_CALL:
        for (size_t i = 0; i < n->u.call.arg_count && e == ERR_OK && !*found; i++)
            e = first_shift(pl, n->u.call.args[i], around, out, found);
        return e;
    }
    return ERR_OK;
}

enum err plan_first_shift(struct planner *pl, const struct node *n, struct time_shift *out)
{
    bool found = false;

    *out = (struct time_shift){0};
    return first_shift(pl, n, *out, out, &found);
}
