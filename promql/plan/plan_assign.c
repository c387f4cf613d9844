/*
 * The second pass of the planner: grids, needed labels and order, top down. See plan_internal.h.
 */
#include <string.h>

#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"
#include "promql/plan/plan_internal.h"

/* What a node is asked for by the one above it. */
struct demand {
    struct grid grid;
    struct label_need need;
    enum series_order order;
};

static const struct label_need need_all = {.all = true};
static const struct label_need need_nothing = {.all = false};

int64_t ms_subtract(int64_t a, int64_t b)
{
    int64_t r;

    if (__builtin_sub_overflow(a, b, &r))
        return b > 0 ? INT64_MIN : INT64_MAX;
    return r;
}

int64_t ms_add(int64_t a, int64_t b)
{
    int64_t r;

    if (__builtin_add_overflow(a, b, &r))
        return b > 0 ? INT64_MAX : INT64_MIN;
    return r;
}

static int64_t shifted_ms(const struct plan *p, int64_t t_ms)
{
    return ms_subtract(p->shift.at == AT_TIME ? p->shift.at_ms : t_ms, p->shift.offset_ms);
}

int64_t plan_reference_ms(const struct plan *p, const struct grid *grid, size_t step)
{
    return shifted_ms(p, grid_time_ms(grid, step));
}

/* The child's steps of a subquery: multiples of its step in (first - range, last]. */
static enum err subquery_grid(struct planner *pl, const struct plan *p, const struct grid *parent,
                              struct grid *out)
{
    int64_t step_ms = p->subquery_step_ms;
    int64_t first = plan_reference_ms(p, parent, 0);
    int64_t last = plan_reference_ms(p, parent, parent->count == 0 ? 0 : parent->count - 1);
    int64_t before = ms_subtract(first, p->range_ms);
    uint64_t span;

    if (step_ms <= 0)
        step_ms = pl->settings->default_step_ms;
    if (step_ms <= 0)
        step_ms = 60000;
    out->step_ms = step_ms;
    out->start_ms = before / step_ms * step_ms;
    if (out->start_ms <= before)
        out->start_ms = ms_add(out->start_ms, step_ms);
    out->count = 0;
    out->end_ms = shifted_ms(p, parent->end_ms);
    if (parent->count == 0 || last < out->start_ms)
        return ERR_OK;
    span = ((uint64_t)last - (uint64_t)out->start_ms) / (uint64_t)step_ms;
    if (span >= UINT32_MAX)
        return errinfo_set(pl->ei, ERR_LIMIT, 0, "subquery has too many steps: %llu",
                           (unsigned long long)span);
    out->count = (size_t)span + 1;
    return ERR_OK;
}

/* by (labels): only those. without (labels): all. */
static enum err aggregate_need(struct planner *pl, const struct node *n, struct label_need *out)
{
    struct str *names;

    *out = need_all;
    if (n->u.aggregate.without || aggregate_op_selects(n->u.aggregate.op))
        return ERR_OK;
    out->all = false;
    enum err e = names_sort(n->u.aggregate.labels, n->u.aggregate.label_count, pl->arena, &names,
                            &out->count, pl->ei);
    out->names = names;
    return e;
}

static enum series_order aggregate_order(enum aggregate_op op)
{
    switch (op) {
    case AGG_COUNT:
    case AGG_GROUP:
    case AGG_COUNT_VALUES:
        return ORDER_ANY;
    case AGG_MIN: /* -0 and +0 are equal: of few series the first one stays */
    case AGG_MAX:
    case AGG_SUM:
    case AGG_AVG:
        return ORDER_FOLD;
    case AGG_STDDEV:
    case AGG_STDVAR:
    case AGG_QUANTILE: /* its groups come in the order of their first series */
        return ORDER_FIXED;
    case AGG_TOPK:
    case AGG_BOTTOMK:
    case AGG_LIMITK:
    case AGG_LIMIT_RATIO:
        break;
    }
    return ORDER_LABELS;
}

/* `and on (x)` and `unless on (x)` only look whether the right side has such a series. */
static enum err rhs_demand(struct planner *pl, const struct plan *p, struct demand *d)
{
    const struct vector_matching *m = &p->node->u.binary.matching;
    enum binary_op op = p->node->u.binary.op;
    struct str *names;
    enum err e;

    d->need = need_all;
    d->order = ORDER_LABELS;
    if ((op != OP_AND && op != OP_UNLESS) || !m->on)
        return ERR_OK;
    d->order = ORDER_ANY;
    d->need.all = false;
    e = names_sort(m->labels, m->label_count, pl->arena, &names, &d->need.count, pl->ei);
    d->need.names = names;
    return e;
}

/* Gives p its grid, puts a PLAN_SPREAD above it where it is the same at every step. */
static enum err spread(struct planner *pl, struct plan **slot, struct demand *d)
{
    struct plan *p = *slot, *top;

    if (p->kind != PLAN_CONSTANT && p->invariant && !p->never_spread && d->grid.count > 1) {
        top = ARENA_NEW(pl->arena, struct plan);
        if (top == NULL)
            return arena_refused(pl->arena, pl->ei);
        *top = (struct plan){.kind = PLAN_SPREAD,
                             .node = p->node,
                             .input = p,
                             .invariant = true,
                             .name_state = p->name_state,
                             .name = p->name,
                             .grid = d->grid,
                             .need = d->need,
                             .order = d->order};
        *slot = top;
        d->grid.count = 1;
    }
    if (p->invariant)
        d->grid.end_ms = d->grid.start_ms;
    p->grid = d->grid;
    return ERR_OK;
}

static enum err assign(struct planner *pl, struct plan **slot, struct demand d);

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err assign_scalar(struct planner *pl, struct plan **slot, const struct grid *grid)
{
    if (*slot == NULL)
        return ERR_OK;
    return assign(pl, slot, (struct demand){*grid, need_nothing, ORDER_ANY});
}

/* The demand on p's main input; other inputs are assigned at once. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err input_demand(struct planner *pl, struct plan *p, struct demand *d)
{
    struct demand right = *d;
    enum err e = ERR_OK;

    switch (p->kind) {
    case PLAN_SELECTOR:
        /* What is said of lines between samples of two kinds tells the name. */
        if (p->extension == EXTENSION_SMOOTHED && p->name_state == NAME_VARIES)
            p->need = need_all;
        return ERR_OK;
    case PLAN_MAP:
        for (struct map_stage *s = p->stages; s != NULL && e == ERR_OK; s = s->next) {
            if (s->checks_labelset)
                d->need = need_all;
            e = assign_scalar(pl, &s->scalars[0], &p->grid);
            if (e == ERR_OK)
                e = assign_scalar(pl, &s->scalars[1], &p->grid);
        }
        p->need = d->need;
        return e;
    case PLAN_AGGREGATE:
        d->order = aggregate_order(p->node->u.aggregate.op);
        return aggregate_need(pl, p->node, &d->need);
    case PLAN_BINARY:
        e = rhs_demand(pl, p, &right);
        d->need = need_all;
        d->order = ORDER_LABELS;
        return e == ERR_OK ? assign(pl, &p->rhs, right) : e;
    case PLAN_SCALAR_BINARY:
    case PLAN_SCALAR_CHOICE:
        return assign_scalar(pl, &p->rhs, &p->grid);
    case PLAN_ABSENT:
    case PLAN_SCALAR_OF:
        d->need = need_nothing;
        d->order = ORDER_ANY;
        return ERR_OK;
    case PLAN_RANGE_CALL:
        /* Where names vary, equal label sets are looked for and annotations tell the name. */
        if ((p->input_name_state == NAME_VARIES && p->function->id != FUNCTION_ABSENT_OVER_TIME) ||
            (pl->settings->type_and_unit_labels && function_wants_counter(p->function->id)))
            d->need = need_all;
        p->need = d->need;
        return p->subquery != NULL ? subquery_grid(pl, p, &p->grid, &d->grid) : ERR_OK;
    case PLAN_SUBQUERY:
        d->need = need_all;
        d->order = ORDER_LABELS;
        return subquery_grid(pl, p, &p->grid, &d->grid);
    default:
        d->need = need_all;
        d->order = ORDER_LABELS;
        return ERR_OK;
    }
}

/* NOLINTNEXTLINE(misc-no-recursion): loops along `input`, recurses into other inputs only. */
static enum err assign(struct planner *pl, struct plan **slot, struct demand d)
{
    for (; *slot != NULL;) {
        enum err e = spread(pl, slot, &d);
        struct plan *p = *slot;

        if (e != ERR_OK)
            return e;
        if (p->kind == PLAN_SPREAD)
            p = p->input;
        p->need = d.need;
        p->order = d.order;
        e = input_demand(pl, p, &d);
        if (e == ERR_OK)
            e = assign_scalar(pl, &p->parameter, &p->grid);
        if (e == ERR_OK)
            e = assign_scalar(pl, &p->parameter2, &p->grid);
        for (size_t i = 0; i < p->quantile_count && e == ERR_OK; i++)
            e = assign_scalar(pl, &p->quantiles[i], &p->grid);
        if (e != ERR_OK)
            return e;
        slot = &p->input;
    }
    return ERR_OK;
}

enum err plan_assign(struct planner *pl, struct plan **slot)
{
    return assign(pl, slot, (struct demand){pl->grid, need_all, ORDER_LABELS});
}
