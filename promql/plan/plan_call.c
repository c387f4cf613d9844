/*
 * The first pass of the planner: calls of functions.
 */
#include "promql/plan/plan_build_internal.h"

#include <math.h>

#include "promql/eval/eval_internal.h"

/* A function of a range vector: what it reads is a selector or the points of a subquery. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_range_call(struct planner *pl, const struct node *n, struct plan **out)
{
    const struct promql_function *f = n->u.call.function;
    struct plan *p = plan_new(pl, PLAN_RANGE_CALL, n);
    struct plan **scalar_slot;
    enum err e = ERR_OK;

    if (p == NULL)
        return plan_no_memory(pl);
    p->function = f;
    scalar_slot = &p->parameter;
    p->invariant = f->id != FUNCTION_PREDICT_LINEAR;
    for (size_t i = 0; i < n->u.call.arg_count && e == ERR_OK; i++) {
        const struct node *arg = node_unwrap(n->u.call.args[i]);

        if (arg->kind == NODE_MATRIX) {
            e = plan_set_matrix(pl, p, arg);
        } else if (arg->kind == NODE_SUBQUERY) {
            e = plan_set_subquery(pl, p, arg);
            if (e == ERR_OK) {
                p->name_state = p->input->name_state;
                p->name = p->input->name;
            }
        } else {
            e = plan_build(pl, arg, scalar_slot);
            if (e == ERR_OK && !(*scalar_slot)->invariant)
                p->invariant = false;
            scalar_slot = &p->parameter2;
        }
    }
    if (e != ERR_OK)
        return e;
    p->invariant = p->invariant && p->shift.at != AT_NONE;
    p->input_name_state = p->name_state;
    p->input_name = p->name;
    if (!pl->settings->delayed_name_removal && !function_keeps_name(f->id)) {
        p->checks_labelset = p->name_state == NAME_VARIES && f->id != FUNCTION_ABSENT_OVER_TIME;
        p->name_state = NAME_FIXED;
        p->name = (struct str){NULL, 0};
    }
    *out = p;
    return ERR_OK;
}

/* The quantiles of histogram_quantiles(v, "label", q, ...). */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_quantiles(struct planner *pl, const struct node *n, struct plan *p)
{
    enum err e = ERR_OK;

    ASSERT(n->u.call.arg_count > 2);
    p->quantiles = ARENA_ARRAY(pl->arena, n->u.call.arg_count - 2, struct plan *);
    if (p->quantiles == NULL)
        return plan_no_memory(pl);
    for (size_t i = 2; i < n->u.call.arg_count && e == ERR_OK; i++) {
        struct plan **q = &p->quantiles[p->quantile_count];

        e = plan_build(pl, n->u.call.args[i], q);
        if (e == ERR_OK && !(*q)->invariant)
            p->invariant = false;
        if (e == ERR_OK)
            p->quantile_count++;
    }
    return e;
}

/* Functions whose last vector argument goes through a barrier of their own. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_barrier_call(struct planner *pl, const struct node *n, enum plan_kind kind,
                                   size_t input_index, struct plan **out)
{
    struct plan *p = plan_new(pl, kind, n);
    struct plan **slot[2];
    enum err e;

    if (p == NULL)
        return plan_no_memory(pl);
    p->function = n->u.call.function;
    e = plan_build(pl, n->u.call.args[input_index], &p->input);
    p->invariant = e == ERR_OK && p->input->invariant;
    slot[0] = &p->parameter;
    slot[1] = &p->parameter2;
    for (size_t i = 0, used = 0; i < n->u.call.arg_count && e == ERR_OK; i++) {
        const struct node *arg = n->u.call.args[i];

        if (i == input_index || arg->type != VALUE_SCALAR ||
            p->function->id == FUNCTION_HISTOGRAM_QUANTILES)
            continue;
        ASSERT(used < 2);
        e = plan_build(pl, arg, slot[used]);
        if (e == ERR_OK && !(*slot[used])->invariant)
            p->invariant = false;
        used++;
    }
    if (e == ERR_OK && p->function->id == FUNCTION_HISTOGRAM_QUANTILES)
        e = build_quantiles(pl, n, p);
    if (e != ERR_OK)
        return e;
    if (kind == PLAN_LABELS || pl->settings->delayed_name_removal)
        p->name_state = NAME_VARIES;
    if (kind == PLAN_SORT) {
        p->name_state = p->input->name_state;
        p->name = p->input->name;
    }
    *out = p;
    return ERR_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_absent(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_ABSENT, n);
    enum err e;

    if (p == NULL)
        return plan_no_memory(pl);
    p->function = n->u.call.function;
    if (p->function->id == FUNCTION_ABSENT_OVER_TIME)
        e = build_range_call(pl, n, &p->input);
    else
        e = plan_build(pl, n->u.call.args[0], &p->input);
    if (e != ERR_OK)
        return e;
    p->invariant = p->input->invariant;
    *out = p;
    return ERR_OK;
}

static enum err build_scalar_leaf(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_TIME, n);

    if (p == NULL)
        return plan_no_memory(pl);
    *out = p;
    return ERR_OK;
}

/* vector(s), and date functions without argument, which are date(vector(time())). */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_vector(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_VECTOR, n);
    enum err e;

    if (p == NULL)
        return plan_no_memory(pl);
    if (n->u.call.arg_count > 0)
        e = plan_build(pl, n->u.call.args[0], &p->parameter);
    else
        e = build_scalar_leaf(pl, n, &p->parameter);
    if (e != ERR_OK)
        return e;
    p->invariant = p->parameter->invariant;
    *out = p;
    return ERR_OK;
}

/* A call's node over the plan of its first argument. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_over_first(struct planner *pl, const struct node *n, enum plan_kind kind,
                                 struct plan **out)
{
    struct plan *p = plan_new(pl, kind, n);
    enum err e;

    if (p == NULL)
        return plan_no_memory(pl);
    p->function = n->u.call.function;
    e = plan_build(pl, n->u.call.args[0], &p->input);
    if (e != ERR_OK)
        return e;
    p->invariant = p->input->invariant;
    *out = p;
    return ERR_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_info(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = NULL;
    enum err e = build_over_first(pl, n, PLAN_INFO, &p);

    if (e == ERR_OK)
        e = plan_first_shift(pl, n->u.call.args[0], &p->shift);
    if (e != ERR_OK)
        return e;
    p->name_state = p->input->name_state;
    p->name = p->input->name;
    p->invariant = p->input->invariant &&
                   (n->u.call.arg_count == 1 || n->u.call.args[1]->u.selector.shift.at != AT_NONE);
    *out = p;
    return ERR_OK;
}

/* max_of(a, b) and min_of(a, b). */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_scalar_choice(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = NULL;
    enum err e = build_over_first(pl, n, PLAN_SCALAR_CHOICE, &p);

    if (e == ERR_OK)
        e = plan_build(pl, n->u.call.args[1], &p->rhs);
    if (e != ERR_OK)
        return e;
    p->invariant = p->invariant && p->rhs->invariant;
    *out = p;
    return ERR_OK;
}

/* start(), end(), range() and step() of the whole query, in seconds. They are the same everywhere
 * in it, in subqueries too. */
static double query_bound(const struct planner *pl, enum function_id id)
{
    int64_t start_ms = pl->grid.start_ms;

    switch (id) {
    case FUNCTION_START:
        return (double)start_ms / 1000;
    case FUNCTION_END:
        return (double)pl->end_ms / 1000;
    case FUNCTION_RANGE:
        return ms_seconds(ms_subtract(pl->end_ms, start_ms));
    default:
        return pl->end_ms == start_ms ? 0 : ms_seconds(pl->grid.step_ms);
    }
}

/* abs, clamp, round, timestamp and all others of one vector and up to two scalars. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_map_call(struct planner *pl, const struct node *n, struct plan **out)
{
    const struct promql_function *f = n->u.call.function;
    struct map_stage stage = {.kind = MAP_FUNCTION, .function = f, .drops_name = true, .node = n};
    struct plan *input;
    enum err e;

    /* Of the AT-unsafe list of Prometheus. With an argument they could be invariant, but Prometheus
     * never treats them so; the answer is the same. */
    if (function_is_date(f->id) && n->u.call.arg_count == 0)
        e = build_vector(pl, n, &input);
    else
        e = plan_build(pl, n->u.call.args[0], &input);
    for (size_t i = 1; i < n->u.call.arg_count && e == ERR_OK; i++) {
        ASSERT(i <= 2);
        e = plan_build(pl, n->u.call.args[i], &stage.scalars[i - 1]);
    }
    if (e != ERR_OK)
        return e;
    if (f->id == FUNCTION_CLAMP || f->id == FUNCTION_CLAMP_MIN || f->id == FUNCTION_CLAMP_MAX)
        stage.kind = MAP_KEEP_IF_CLAMP;
    if (function_reads_histogram(f->id))
        stage.kind = MAP_HISTOGRAM;
    /* The tree decides: `+x` has the selector's plan, but is none. */
    if (f->id == FUNCTION_TIMESTAMP && node_unwrap(n->u.call.args[0])->kind == NODE_SELECTOR) {
        input->wants_timestamp = true;
        stage.function = NULL; /* the selector already gives the time */
    }
    if (f->id == FUNCTION_START_TIMESTAMP) {
        input->wants_start =
            pl->settings->start_timestamps && node_unwrap(n->u.call.args[0])->kind == NODE_SELECTOR;
        stage.kind = input->wants_start ? MAP_FUNCTION : MAP_NOTHING;
        stage.function = NULL;
    }
    return plan_map_stage_add(pl, input, stage, out);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_call(struct planner *pl, const struct node *n, struct plan **out)
{
    const struct promql_function *f = n->u.call.function;

    if (!f->built)
        return errinfo_set(pl->ei, ERR_UNSUPPORTED, 0, "function %s is not supported yet", f->name);
    switch (f->id) {
    case FUNCTION_TIME:
        return build_scalar_leaf(pl, n, out);
    case FUNCTION_PI:
        return plan_build_constant(pl, n, M_PI, out);
    case FUNCTION_START:
    case FUNCTION_END:
    case FUNCTION_RANGE:
    case FUNCTION_STEP:
        return plan_build_constant(pl, n, query_bound(pl, f->id), out);
    case FUNCTION_MAX_OF:
    case FUNCTION_MIN_OF:
        return build_scalar_choice(pl, n, out);
    case FUNCTION_INFO:
        return build_info(pl, n, out);
    case FUNCTION_VECTOR:
        return build_vector(pl, n, out);
    case FUNCTION_SCALAR:
        return build_over_first(pl, n, PLAN_SCALAR_OF, out);
    case FUNCTION_ABSENT:
    case FUNCTION_ABSENT_OVER_TIME:
        return build_absent(pl, n, out);
    case FUNCTION_HISTOGRAM_QUANTILE:
        return build_barrier_call(pl, n, PLAN_HISTOGRAM, 1, out);
    case FUNCTION_HISTOGRAM_QUANTILES:
        return build_barrier_call(pl, n, PLAN_HISTOGRAM, 0, out);
    case FUNCTION_HISTOGRAM_FRACTION:
        return build_barrier_call(pl, n, PLAN_HISTOGRAM, 2, out);
    case FUNCTION_LABEL_REPLACE:
    case FUNCTION_LABEL_JOIN:
        return build_barrier_call(pl, n, PLAN_LABELS, 0, out);
    case FUNCTION_SORT:
    case FUNCTION_SORT_DESC:
    case FUNCTION_SORT_BY_LABEL:
    case FUNCTION_SORT_BY_LABEL_DESC:
        return build_barrier_call(pl, n, PLAN_SORT, 0, out);
    default:
        break;
    }
    for (size_t i = 0; i < n->u.call.arg_count; i++) {
        if (n->u.call.args[i]->type == VALUE_MATRIX)
            return build_range_call(pl, n, out);
    }
    return build_map_call(pl, n, out);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err plan_build_call(struct planner *pl, const struct node *n, struct plan **out)
{
    enum function_id id = n->u.call.function->id;
    unsigned reads_counts = id == FUNCTION_HISTOGRAM_COUNT || id == FUNCTION_HISTOGRAM_SUM ||
                            id == FUNCTION_HISTOGRAM_AVG;
    unsigned reads_buckets = id == FUNCTION_HISTOGRAM_QUANTILE ||
                             id == FUNCTION_HISTOGRAM_QUANTILES ||
                             id == FUNCTION_HISTOGRAM_FRACTION;
    enum err e;

    pl->count_readers += reads_counts;
    pl->bucket_readers += reads_buckets;
    e = build_call(pl, n, out);
    pl->count_readers -= reads_counts;
    pl->bucket_readers -= reads_buckets;
    return e;
}
