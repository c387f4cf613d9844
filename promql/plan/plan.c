/*
 * The first pass of the planner: syntax tree to plan nodes, bottom up. See plan_internal.h; calls
 * are in plan_call.c, the second pass is in plan_assign.c.
 */
#include "promql/plan/plan_build_internal.h"

#include <string.h>

#include "promql/eval/eval_internal.h"

const struct node *node_unwrap(const struct node *n)
{
    while (n->kind == NODE_PAREN)
        n = n->u.paren;
    return n;
}

struct plan *plan_new(struct planner *pl, enum plan_kind kind, const struct node *node)
{
    struct plan *p = ARENA_NEW(pl->arena, struct plan);

    if (p == NULL)
        return NULL;
    p->kind = kind;
    p->node = node;
    p->name_state = NAME_FIXED; /* most nodes drop the name or have none */
    return p;
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

/* As in Prometheus: whoever reads only counts and sums gets no buckets, unless anything above needs
 * them, such as a subquery to tell resets. */
static bool planner_counts_only(const struct planner *pl)
{
    return pl->count_readers > 0 && pl->bucket_readers == 0;
}

enum err plan_set_matrix(const struct planner *pl, struct plan *p, const struct node *n)
{
    enum err e = plan_duration_resolve(pl, n->u.matrix.range_expr, n->u.matrix.range_ms, false,
                                       &p->range_ms);

    p->selector = n->u.matrix.selector;
    p->counts_only = planner_counts_only(pl);
    p->extension = p->selector->u.selector.extension;
    selector_name(p->selector, p);
    return e == ERR_OK ? plan_shift_resolve(pl, p->selector->u.selector.shift, &p->shift) : e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err plan_set_subquery(struct planner *pl, struct plan *p, const struct node *n)
{
    enum err e = plan_shift_resolve(pl, n->u.subquery.shift, &p->shift);

    p->subquery = n;
    if (e == ERR_OK)
        e = plan_duration_resolve(pl, n->u.subquery.step_expr, n->u.subquery.step_ms, false,
                                  &p->subquery_step_ms);
    if (e == ERR_OK)
        e = plan_duration_resolve(pl, n->u.subquery.range_expr, n->u.subquery.range_ms, false,
                                  &p->range_ms);
    pl->bucket_readers++;
    if (e == ERR_OK)
        e = plan_build(pl, n->u.subquery.expr, &p->input);
    pl->bucket_readers--;
    return e;
}

static enum err build_selector(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_SELECTOR, n);

    if (p == NULL)
        return plan_no_memory(pl);
    p->selector = n;
    p->counts_only = planner_counts_only(pl);
    p->extension = n->u.selector.extension;
    p->invariant = n->u.selector.shift.at != AT_NONE;
    selector_name(n, p);
    *out = p;
    return plan_shift_resolve(pl, n->u.selector.shift, &p->shift);
}

enum err plan_build_constant(struct planner *pl, const struct node *n, double value,
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

enum err plan_map_stage_add(struct planner *pl, struct plan *input, struct map_stage stage,
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

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_aggregate(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *p = plan_new(pl, PLAN_AGGREGATE, n);
    enum err e;

    if (p == NULL)
        return plan_no_memory(pl);
    e = plan_build(pl, n->u.aggregate.expr, &p->input);
    if (e != ERR_OK)
        return e;
    p->invariant = p->input->invariant;
    p->name_state = NAME_VARIES; /* by (__name__) and topk keep it */
    if (n->u.aggregate.param != NULL && n->u.aggregate.param->type != VALUE_STRING) {
        /* As in Prometheus the parameter does not count: topk(k, x @ t) takes the first step's k.
         */
        e = plan_build(pl, n->u.aggregate.param, &p->parameter);
    }
    *out = p;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err build_unary(struct planner *pl, const struct node *n, struct plan **out)
{
    struct plan *input = NULL, *p;
    enum err e = plan_build(pl, n->u.unary.expr, &input);

    if (e != ERR_OK)
        return e;
    ASSERT(input != NULL);
    if (!n->u.unary.negative) {
        *out = input;
        return ERR_OK;
    }
    if (n->type != VALUE_SCALAR)
        return plan_map_stage_add(
            pl, input, (struct map_stage){.kind = MAP_NEGATE, .drops_name = true, .node = n}, out);
    if (input->kind == PLAN_CONSTANT)
        return plan_build_constant(pl, n, -input->constant, out);
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
    enum err e = plan_build(pl, n->u.binary.rhs, &rhs);

    if (e != ERR_OK)
        return e;
    ASSERT(lhs != NULL);
    if (left_scalar && right_scalar && binary_op_is_trim(n->u.binary.op))
        return errinfo_set(pl->ei, ERR_EXECUTION, 0,
                           "operator \"%s\" not allowed for Scalar operations",
                           binary_op_name(n->u.binary.op));
    if (left_scalar && right_scalar && lhs->kind == PLAN_CONSTANT && rhs->kind == PLAN_CONSTANT)
        return plan_build_constant(
            pl, n, binary_op_apply(n->u.binary.op, lhs->constant, rhs->constant), out);
    if (left_scalar != right_scalar) {
        struct map_stage stage = {
            .kind = right_scalar ? MAP_BINARY_RIGHT : MAP_BINARY_LEFT,
            .op = n->u.binary.op,
            .return_bool = n->u.binary.return_bool,
            .drops_name = binary_op_changes_schema(n->u.binary.op) || n->u.binary.return_bool,
            .scalars = {right_scalar ? rhs : lhs, NULL},
            .node = n,
        };
        return plan_map_stage_add(pl, right_scalar ? lhs : rhs, stage, out);
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
    for (size_t i = count; i-- > 0; leftmost = node_unwrap(leftmost->u.binary.lhs)) {
        chain[i] = leftmost;
        pl->bucket_readers += binary_op_is_trim(leftmost->u.binary.op);
    }
    e = plan_build(pl, leftmost, &p);
    for (size_t i = 0; i < count; i++) {
        if (e == ERR_OK)
            e = build_operator(pl, chain[i], p, &p);
        pl->bucket_readers -= binary_op_is_trim(chain[i]->u.binary.op);
    }
    if (e == ERR_OK)
        *out = p;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err plan_build(struct planner *pl, const struct node *node, struct plan **out)
{
    const struct node *n = node_unwrap(node);

    switch (n->kind) {
    case NODE_NUMBER:
        return plan_build_constant(pl, n, n->u.number.value, out);
    case NODE_SELECTOR:
        return build_selector(pl, n, out);
    case NODE_UNARY:
        return build_unary(pl, n, out);
    case NODE_BINARY:
        return build_binary(pl, n, out);
    case NODE_AGGREGATE:
        return build_aggregate(pl, n, out);
    case NODE_CALL:
        return plan_build_call(pl, n, out);
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
        return plan_build(pl, n, out);
    p = plan_new(pl, PLAN_STRING, n);
    if (p == NULL)
        return plan_no_memory(pl);
    *out = p;
    p->never_spread = true;
    if (n->kind == NODE_MATRIX) {
        p->kind = PLAN_MATRIX;
        return plan_set_matrix(pl, p, n);
    } else if (n->kind == NODE_SUBQUERY) {
        p->kind = PLAN_SUBQUERY;
        return plan_set_subquery(pl, p, n);
    }
    return ERR_OK;
}

enum err plan_query(struct planner *pl, const struct node *root, struct plan **out)
{
    enum err e = build_root(pl, root, out);

    return e == ERR_OK ? plan_assign(pl, out) : e;
}
