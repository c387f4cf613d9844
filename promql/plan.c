/*
 * The first pass of the planner: syntax tree to plan nodes, bottom up. See plan_internal.h; the
 * second pass is in plan_assign.c.
 */
#include "promql/plan_internal.h"

#include <math.h>
#include <string.h>

#include "promql/eval_internal.h"

static enum err build(struct planner *pl, const struct node *node, struct plan **out);

const struct node *node_unwrap(const struct node *n)
{
    while (n->kind == NODE_PAREN)
        n = n->u.paren;
    return n;
}

/* NULL when the arena refuses: the caller returns plan_no_memory(). */
static struct plan *plan_new(struct planner *pl, enum plan_kind kind, const struct node *node)
{
    struct plan *p = ARENA_NEW(pl->arena, struct plan);

    if (p == NULL)
        return NULL;
    p->kind = kind;
    p->node = node;
    p->name_state = NAME_FIXED; /* most nodes drop the name or have none */
    return p;
}

static enum err plan_no_memory(struct planner *pl)
{
    return arena_refused(pl->arena, pl->ei);
}

/* start() and end() become plain times here. */
static struct time_shift shift_resolve(const struct planner *pl, struct time_shift s)
{
    if (s.at == AT_START)
        s.at_ms = pl->grid.start_ms;
    else if (s.at == AT_END)
        s.at_ms = pl->end_ms;
    if (s.at != AT_NONE)
        s.at = AT_TIME;
    return s;
}

static void selector_name(const struct node *selector, struct plan *p)
{
    p->name_state = NAME_VARIES;
    for (size_t i = 0; i < selector->u.selector.matcher_count; i++) {
        const struct matcher *m = &selector->u.selector.matchers[i];

        if (m->kind == MATCHER_EQUAL && m->value.size > 0 &&
            str_equal(m->name, LABEL_METRIC_NAME)) {
            p->name_state = NAME_FIXED;
            p->name = m->value;
        }
    }
}

static enum err build_selector(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_SELECTOR, n);

    if (p == NULL)
        return plan_no_memory(pl);
    p->selector = n;
    p->shift = shift_resolve(pl, n->u.selector.shift);
    p->invariant = p->shift.at != AT_NONE;
    selector_name(n, p);
    *out = p;
    return ERR_OK;
}

static enum err build_constant(struct planner *pl, const struct node *n, double value,
                               struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_CONSTANT, n);

    if (p == NULL)
        return plan_no_memory(pl);
    p->constant = value;
    p->invariant = true;
    *out = p;
    return ERR_OK;
}

/* Adds a stage on top of `input`, to its PLAN_MAP where it is one. A stage that varies with time
 * does not join an invariant map: that one is computed once and spread. */
static enum err map_stage_add(struct planner *pl, struct plan *input, struct map_stage stage,
                              struct plan **out)
{
    struct map_stage *s = ARENA_NEW(pl->arena, struct map_stage);
    bool stage_invariant = true;
    struct plan *p = input;

    if (s == NULL)
        return plan_no_memory(pl);
    for (int i = 0; i < 2; i++) {
        if (stage.scalars[i] != NULL && !stage.scalars[i]->invariant)
            stage_invariant = false;
    }
    if (stage.kind == MAP_FUNCTION && stage.function != NULL &&
        stage.function->id == FUNCTION_TIMESTAMP)
        stage_invariant = false;
    *s = stage;
    if (stage.drops_name && input->name_state == NAME_VARIES && !pl->settings->delayed_name_removal)
        s->checks_labelset = true;
    if (input->kind != PLAN_MAP || (input->invariant && !stage_invariant)) {
        p = plan_new(pl, PLAN_MAP, stage.node);
        if (p == NULL)
            return plan_no_memory(pl);
        p->input = input;
        p->name_state = input->name_state;
        p->name = input->name;
        p->invariant = input->invariant;
    }
    p->invariant = p->invariant && stage_invariant;
    if (stage.drops_name && !pl->settings->delayed_name_removal) {
        p->name_state = NAME_FIXED;
        p->name = (struct str){NULL, 0};
    }
    if (p->last_stage != NULL)
        p->last_stage->next = s;
    else
        p->stages = s;
    p->last_stage = s;
    p->node = stage.node;
    *out = p;
    return ERR_OK;
}

/* Day, hour and month functions of the AT-unsafe list of Prometheus: without an argument they
 * read the evaluation time. With one they could be invariant, but Prometheus never treats them so;
 * the answer is the same. */
static bool function_is_date(enum function_id id)
{
    switch (id) {
    case FUNCTION_DAYS_IN_MONTH:
    case FUNCTION_DAY_OF_MONTH:
    case FUNCTION_DAY_OF_WEEK:
    case FUNCTION_DAY_OF_YEAR:
    case FUNCTION_HOUR:
    case FUNCTION_MINUTE:
    case FUNCTION_MONTH:
    case FUNCTION_YEAR:
        return true;
    default:
        return false;
    }
}

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
            p->selector = arg->u.matrix.selector;
            p->range_ms = arg->u.matrix.range_ms;
            p->shift = shift_resolve(pl, p->selector->u.selector.shift);
            selector_name(p->selector, p);
        } else if (arg->kind == NODE_SUBQUERY) {
            p->subquery = arg;
            p->range_ms = arg->u.subquery.range_ms;
            p->shift = shift_resolve(pl, arg->u.subquery.shift);
            e = build(pl, arg->u.subquery.expr, &p->input);
            if (e == ERR_OK) {
                p->name_state = p->input->name_state;
                p->name = p->input->name;
            }
        } else {
            e = build(pl, arg, scalar_slot);
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
    if (!pl->settings->delayed_name_removal && f->id != FUNCTION_LAST_OVER_TIME &&
        f->id != FUNCTION_FIRST_OVER_TIME) {
        p->checks_labelset = p->name_state == NAME_VARIES && f->id != FUNCTION_ABSENT_OVER_TIME;
        p->name_state = NAME_FIXED;
        p->name = (struct str){NULL, 0};
    }
    *out = p;
    return ERR_OK;
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
    e = build(pl, n->u.call.args[input_index], &p->input);
    p->invariant = e == ERR_OK && p->input->invariant;
    slot[0] = &p->parameter;
    slot[1] = &p->parameter2;
    for (size_t i = 0, used = 0; i < n->u.call.arg_count && e == ERR_OK; i++) {
        const struct node *arg = n->u.call.args[i];

        if (i == input_index || arg->type != VALUE_SCALAR)
            continue;
        ASSERT(used < 2);
        e = build(pl, arg, slot[used]);
        if (e == ERR_OK && !(*slot[used])->invariant)
            p->invariant = false;
        used++;
    }
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
        e = build(pl, n->u.call.args[0], &p->input);
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
        e = build(pl, n->u.call.args[0], &p->parameter);
    else
        e = build_scalar_leaf(pl, n, &p->parameter);
    if (e != ERR_OK)
        return e;
    p->invariant = p->parameter->invariant;
    *out = p;
    return ERR_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_scalar_of(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_SCALAR_OF, n);
    enum err e;

    if (p == NULL)
        return plan_no_memory(pl);
    e = build(pl, n->u.call.args[0], &p->input);
    if (e != ERR_OK)
        return e;
    p->invariant = p->input->invariant;
    *out = p;
    return ERR_OK;
}

/* abs, clamp, round, timestamp and all others of one vector and up to two scalars. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_map_call(struct planner *pl, const struct node *n, struct plan **out)
{
    const struct promql_function *f = n->u.call.function;
    struct map_stage stage = {.kind = MAP_FUNCTION, .function = f, .drops_name = true, .node = n};
    struct plan *input;
    enum err e;

    if (function_is_date(f->id) && n->u.call.arg_count == 0)
        e = build_vector(pl, n, &input);
    else
        e = build(pl, n->u.call.args[0], &input);
    for (size_t i = 1; i < n->u.call.arg_count && e == ERR_OK; i++) {
        ASSERT(i <= 2);
        e = build(pl, n->u.call.args[i], &stage.scalars[i - 1]);
    }
    if (e != ERR_OK)
        return e;
    if (f->id == FUNCTION_CLAMP || f->id == FUNCTION_CLAMP_MIN || f->id == FUNCTION_CLAMP_MAX)
        stage.kind = MAP_KEEP_IF_CLAMP;
    /* The tree decides: `+x` has the selector's plan, but is none. */
    if (f->id == FUNCTION_TIMESTAMP && node_unwrap(n->u.call.args[0])->kind == NODE_SELECTOR) {
        input->wants_timestamp = true;
        stage.function = NULL; /* the selector already gives the time */
    }
    return map_stage_add(pl, input, stage, out);
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
        return build_constant(pl, n, M_PI, out);
    case FUNCTION_VECTOR:
        return build_vector(pl, n, out);
    case FUNCTION_SCALAR:
        return build_scalar_of(pl, n, out);
    case FUNCTION_ABSENT:
    case FUNCTION_ABSENT_OVER_TIME:
        return build_absent(pl, n, out);
    case FUNCTION_HISTOGRAM_QUANTILE:
        return build_barrier_call(pl, n, PLAN_HISTOGRAM, 1, out);
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
static enum err build_aggregate(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_AGGREGATE, n);
    enum err e;

    if (p == NULL)
        return plan_no_memory(pl);
    e = build(pl, n->u.aggregate.expr, &p->input);
    if (e != ERR_OK)
        return e;
    p->invariant = p->input->invariant;
    p->name_state = NAME_VARIES; /* by (__name__) and topk keep it */
    if (n->u.aggregate.param != NULL && n->u.aggregate.param->type != VALUE_STRING) {
        /* As in Prometheus the parameter does not count: topk(k, x @ t) takes the first step's k.
         */
        e = build(pl, n->u.aggregate.param, &p->parameter);
    }
    *out = p;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_unary(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *input = NULL, *p;
    enum err e = build(pl, n->u.unary.expr, &input);

    if (e != ERR_OK)
        return e;
    ASSERT(input != NULL);
    if (!n->u.unary.negative) {
        *out = input;
        return ERR_OK;
    }
    if (n->type != VALUE_SCALAR)
        return map_stage_add(
            pl, input, (struct map_stage){.kind = MAP_NEGATE, .drops_name = true, .node = n}, out);
    if (input->kind == PLAN_CONSTANT)
        return build_constant(pl, n, -input->constant, out);
    p = plan_new(pl, PLAN_SCALAR_NEGATE, n);
    if (p == NULL)
        return plan_no_memory(pl);
    p->input = input;
    p->invariant = input->invariant;
    *out = p;
    return ERR_OK;
}

/* One operator of a chain, given the plan of its left side. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_operator(struct planner *pl, const struct node *n, struct plan *lhs,
                               struct plan **out)
{
    bool left_scalar = n->u.binary.lhs->type == VALUE_SCALAR;
    bool right_scalar = n->u.binary.rhs->type == VALUE_SCALAR;
    struct plan *rhs, *p;
    enum err e = build(pl, n->u.binary.rhs, &rhs);

    if (e != ERR_OK)
        return e;
    ASSERT(lhs != NULL);
    if (left_scalar && right_scalar && lhs->kind == PLAN_CONSTANT && rhs->kind == PLAN_CONSTANT)
        return build_constant(pl, n, binary_op_apply(n->u.binary.op, lhs->constant, rhs->constant),
                              out);
    if (left_scalar != right_scalar) {
        struct map_stage stage = {
            .kind = right_scalar ? MAP_BINARY_RIGHT : MAP_BINARY_LEFT,
            .op = n->u.binary.op,
            .return_bool = n->u.binary.return_bool,
            .drops_name = !binary_op_is_comparison(n->u.binary.op) || n->u.binary.return_bool,
            .scalars = {right_scalar ? rhs : lhs, NULL},
            .node = n,
        };
        return map_stage_add(pl, right_scalar ? lhs : rhs, stage, out);
    }
    p = plan_new(pl, left_scalar ? PLAN_SCALAR_BINARY : PLAN_BINARY, n);
    if (p == NULL)
        return plan_no_memory(pl);
    p->input = lhs;
    p->rhs = rhs;
    p->invariant = lhs->invariant && rhs->invariant;
    p->name_state = NAME_VARIES;
    *out = p;
    return ERR_OK;
}

/* A chain a + b + c is deeper on the left than the parser's limit on nesting: a loop. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_binary(struct planner *pl, const struct node *n, struct plan **out)
{
    const struct node *leftmost = n, **chain;
    size_t count = 0;
    struct plan *p = NULL;
    enum err e;

    for (; leftmost->kind == NODE_BINARY; leftmost = node_unwrap(leftmost->u.binary.lhs))
        count++;
    chain = ARENA_ARRAY(pl->arena, count, const struct node *);
    if (chain == NULL)
        return plan_no_memory(pl);
    leftmost = n;
    for (size_t i = count; i-- > 0; leftmost = node_unwrap(leftmost->u.binary.lhs))
        chain[i] = leftmost;
    e = build(pl, leftmost, &p);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = build_operator(pl, chain[i], p, &p);
    if (e == ERR_OK)
        *out = p;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build(struct planner *pl, const struct node *node, struct plan **out)
{
    const struct node *n = node_unwrap(node);

    switch (n->kind) {
    case NODE_NUMBER:
        return build_constant(pl, n, n->u.number.value, out);
    case NODE_SELECTOR:
        return build_selector(pl, n, out);
    case NODE_UNARY:
        return build_unary(pl, n, out);
    case NODE_BINARY:
        return build_binary(pl, n, out);
    case NODE_AGGREGATE:
        return build_aggregate(pl, n, out);
    case NODE_CALL:
        return build_call(pl, n, out);
    case NODE_STRING:
    case NODE_MATRIX:
    case NODE_SUBQUERY:
    case NODE_PAREN:
        break;
    }
    return errinfo_set(pl->ei, ERR_INTERNAL, 0, "a %s where none can stand",
                       value_type_name(n->type));
}

/* What only stands at the root of an instant query. */
static enum err build_root(struct planner *pl, const struct node *root, struct plan **out)
{
    const struct node *n = node_unwrap(root);
    struct plan *p;

    if (n->kind != NODE_STRING && n->kind != NODE_MATRIX && n->kind != NODE_SUBQUERY)
        return build(pl, n, out);
    p = plan_new(pl, PLAN_STRING, n);
    if (p == NULL)
        return plan_no_memory(pl);
    *out = p;
    p->never_spread = true;
    if (n->kind == NODE_MATRIX) {
        p->kind = PLAN_MATRIX;
        p->selector = n->u.matrix.selector;
        p->range_ms = n->u.matrix.range_ms;
        p->shift = shift_resolve(pl, p->selector->u.selector.shift);
        selector_name(p->selector, p);
    } else if (n->kind == NODE_SUBQUERY) {
        p->kind = PLAN_SUBQUERY;
        p->subquery = n;
        p->range_ms = n->u.subquery.range_ms;
        p->shift = shift_resolve(pl, n->u.subquery.shift);
        return build(pl, n->u.subquery.expr, &p->input);
    }
    return ERR_OK;
}

enum err plan_query(struct planner *pl, const struct node *root, struct plan **out)
{
    enum err e = build_root(pl, root, out);

    return e == ERR_OK ? plan_assign(pl, out) : e;
}
