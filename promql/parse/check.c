/*
 * Types: every operator and function gets what it takes. Runs over a tree that is syntactically
 * right, in the order of Prometheus's checks, since the first error is the one reported.
 */
#include <stdlib.h>
#include <string.h>

#include "promql/functions.h"
#include "promql/parse/parser_internal.h"
#include "promql/parse/text_internal.h"

static enum err check_node(struct parser *p, struct node *n);

/* Prometheus's internal names of types, which some of its messages show. */
static const char *internal_type_name(enum value_type t)
{
    switch (t) {
    case VALUE_VECTOR:
        return "vector";
    case VALUE_MATRIX:
        return "matrix";
    default:
        return value_type_name(t);
    }
}

static enum err expect_type(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                            struct node *n, enum value_type want, const char *context)
{
    enum err e = check_node(p, n);

    if (e == ERR_OK && n->type != want)
        return parser_fail(p, n->position.start, "expected type %s in %s, got %s",
                           value_type_name(want), context, value_type_name(n->type));
    return e;
}

static enum err check_aggregate(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                struct node *n)
{
    enum err e = expect_type(p, n->u.aggregate.expr, VALUE_VECTOR, "aggregation expression");

    if (e != ERR_OK || n->u.aggregate.param == NULL)
        return e;
    return expect_type(p, n->u.aggregate.param,
                       n->u.aggregate.op == AGG_COUNT_VALUES ? VALUE_STRING : VALUE_SCALAR,
                       "aggregation parameter");
}

static enum err check_arg_count(struct parser *p, struct node *n)
{
    const struct promql_function *f = n->u.call.function;
    size_t count = n->u.call.arg_count, least = f->arg_count - 1;

    if (f->variadic == 0) {
        if (count != f->arg_count)
            return parser_fail(p, n->position.start,
                               "expected %u argument(s) in call to \"%s\", got %zu", f->arg_count,
                               f->name, count);
        return ERR_OK;
    }
    if (count < least)
        return parser_fail(p, n->position.start,
                           "expected at least %zu argument(s) in call to \"%s\", got %zu", least,
                           f->name, count);
    if (f->variadic > 0 && count > least + (unsigned)f->variadic)
        return parser_fail(p, n->position.start,
                           "expected at most %zu argument(s) in call to \"%s\", got %zu",
                           least + (unsigned)f->variadic, f->name, count);
    return ERR_OK;
}

/* The second argument of info() is a selector that stands for its matchers only. */
static enum err check_info_selector(struct parser *p, const struct node *n)
{
    const struct node *arg;

    if (n->u.call.arg_count < 2)
        return ERR_OK;
    arg = n->u.call.args[1];
    if (arg->type != VALUE_VECTOR)
        return parser_fail(p, n->position.start,
                           "expected type %s in call to function \"info\", got %s",
                           value_type_name(VALUE_VECTOR), value_type_name(arg->type));
    if (arg->kind != NODE_SELECTOR)
        return parser_fail(p, arg->position.start, "expected label selectors only");
    if (arg->u.selector.name.size > 0)
        return parser_fail(p, arg->position.start,
                           "expected label selectors only, got vector selector instead");
    return ERR_OK;
}

static enum err check_call(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                           struct node *n)
{
    const struct promql_function *f = n->u.call.function;
    enum err e = check_arg_count(p, n);

    if (e == ERR_OK && f->id == FUNCTION_INFO)
        e = check_info_selector(p, n);
    for (size_t i = 0; e == ERR_OK && i < n->u.call.arg_count; i++) {
        size_t declared = i < f->arg_count ? i : f->arg_count - 1;
        const char *context = arena_printf(p->arena, "call to function \"%s\"", f->name);

        if (context == NULL)
            return parser_out_of_memory(p);
        if (f->id == FUNCTION_INFO && i == 1)
            break; /* has been checked, and may match the empty value */
        e = expect_type(p, n->u.call.args[i], f->args[declared], context);
    }
    return e;
}

/* Where Prometheus reports faults of an operator: behind the left side and its white space. */
static uint32_t operator_start(const struct parser *p, const struct node *n)
{
    struct str text = p->lexer.input;
    uint32_t i = n->u.binary.lhs->position.end;

    while (i < text.size && (text.data[i] == ' ' || text.data[i] == '\t' || text.data[i] == '\n' ||
                             text.data[i] == '\r'))
        i++;
    return i;
}

static enum err check_bool(struct parser *p, const struct node *n)
{
    bool comparison = binary_op_is_comparison(n->u.binary.op);

    if (n->u.binary.return_bool && !comparison)
        return parser_fail(p, operator_start(p, n),
                           "bool modifier can only be used on comparison operators");
    if (comparison && !n->u.binary.return_bool && n->type == VALUE_SCALAR)
        return parser_fail(p, operator_start(p, n),
                           "comparisons between scalars must use BOOL modifier");
    return ERR_OK;
}

static int compare_labels(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

/* No label may stand in on() and in group_left() or group_right(). Both lists may fill a query, so
 * one is sorted rather than compared label by label. */
static enum err check_labels_distinct(struct parser *p, const struct node *n)
{
    const struct vector_matching *m = &n->u.binary.matching;
    struct str *include;

    if (!m->on || m->include_count == 0)
        return ERR_OK;
    include = ARENA_ARRAY(p->arena, m->include_count, struct str);
    if (include == NULL)
        return parser_out_of_memory(p);
    memcpy(include, m->include, m->include_count * sizeof *include);
    qsort(include, m->include_count, sizeof *include, compare_labels);
    for (size_t i = 0; i < m->label_count; i++) {
        if (bsearch(&m->labels[i], include, m->include_count, sizeof *include, compare_labels))
            return parser_fail(p, operator_start(p, n),
                               "label %s must not occur in ON and GROUP clause at once",
                               text_quote(m->labels[i], p->arena));
    }
    return ERR_OK;
}

static bool is_operand_type(enum value_type t)
{
    return t == VALUE_SCALAR || t == VALUE_VECTOR;
}

static enum err check_matching(struct parser *p, struct node *n)
{
    struct vector_matching *m = &n->u.binary.matching;
    bool vectors = n->u.binary.lhs->type == VALUE_VECTOR && n->u.binary.rhs->type == VALUE_VECTOR;
    bool set = binary_op_is_set(n->u.binary.op);
    bool fills = m->fill_left.given || m->fill_right.given;
    uint32_t start = n->position.start;

    if (!vectors) {
        if (m->label_count > 0)
            return parser_fail(p, start, "vector matching only allowed between instant vectors");
        if (fills)
            return parser_fail(p, start,
                               "filling in missing series only allowed between instant vectors");
        *m = (struct vector_matching){0};
        if (set)
            return parser_fail(p, start,
                               "set operator \"%s\" not allowed in binary scalar expression",
                               binary_op_name(n->u.binary.op));
        return ERR_OK;
    }
    if (set && m->cardinality != MATCH_ONE_TO_ONE)
        return parser_fail(p, start, "no grouping allowed for \"%s\" operation",
                           binary_op_name(n->u.binary.op));
    if (set && fills)
        return parser_fail(p, start, "filling in missing series not allowed for set operators");
    if (set)
        m->cardinality = MATCH_MANY_TO_MANY;
    return ERR_OK;
}

/* One binary node whose left side has been checked. */
static enum err check_binary_node(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                  struct node *n)
{
    static const char operands[] =
        "binary expression must contain only scalar and instant vector types";
    enum err e = check_node(p, n->u.binary.rhs);

    if (e == ERR_OK)
        e = check_bool(p, n);
    if (e == ERR_OK)
        e = check_labels_distinct(p, n);
    if (e == ERR_OK && !is_operand_type(n->u.binary.lhs->type))
        e = parser_fail(p, n->u.binary.lhs->position.start, "%s", operands);
    if (e == ERR_OK && !is_operand_type(n->u.binary.rhs->type))
        e = parser_fail(p, n->u.binary.rhs->position.start, "%s", operands);
    return e == ERR_OK ? check_matching(p, n) : e;
}

/* A chain of left-hand sides is walked by a loop, innermost first. */
static enum err check_binary(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                             struct node *n)
{
    size_t count = 0;
    struct node **chain, *first = n;
    enum err e;

    for (; first->kind == NODE_BINARY; first = first->u.binary.lhs)
        count++;
    chain = ARENA_ARRAY(p->arena, count, struct node *);
    if (chain == NULL)
        return parser_out_of_memory(p);
    for (size_t i = count; i > 0; i--, n = n->u.binary.lhs)
        chain[i - 1] = n;
    e = check_node(p, first);
    for (size_t i = 0; e == ERR_OK && i < count; i++)
        e = check_binary_node(p, chain[i]);
    return e;
}

static enum err check_selector(struct parser *p, struct node *n)
{
    const struct matcher *m = n->u.selector.matchers;
    size_t count = n->u.selector.matcher_count;

    if (n->u.selector.name.size > 0) { /* its matcher is the last one */
        for (size_t i = 0; i + 1 < count; i++) {
            if (str_equal(m[i].name, LABEL_METRIC_NAME))
                return parser_fail(
                    p, n->position.start, "metric name must not be set twice: %s or %s",
                    text_quote(n->u.selector.name, p->arena), text_quote(m[i].value, p->arena));
        }
        return ERR_OK;
    }
    for (size_t i = 0; i < count; i++) {
        if (!matcher_matches_empty(&m[i]))
            return ERR_OK;
    }
    return parser_fail(p, n->position.start,
                       "vector selector must contain at least one non-empty matcher");
}

static enum err check_unary(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                            struct node *n)
{
    enum err e = check_node(p, n->u.unary.expr);

    if (e == ERR_OK && !is_operand_type(n->type))
        return parser_fail(p, n->position.start,
                           "unary expression only allowed on expressions of type scalar or "
                           "instant vector, got \"%s\"",
                           value_type_name(n->type));
    return e;
}

static enum err check_subquery(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                               struct node *n)
{
    enum err e = check_node(p, n->u.subquery.expr);

    if (e == ERR_OK && n->u.subquery.expr->type != VALUE_VECTOR)
        return parser_fail(p, n->position.start,
                           "subquery is only allowed on instant vector, got %s instead",
                           internal_type_name(n->u.subquery.expr->type));
    return e;
}

static enum err check_node(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                           struct node *n)
{
    switch (n->kind) {
    case NODE_NUMBER:
    case NODE_STRING:
        return ERR_OK;
    case NODE_SELECTOR:
        return check_selector(p, n);
    case NODE_MATRIX:
        return check_selector(p, n->u.matrix.selector);
    case NODE_SUBQUERY:
        return check_subquery(p, n);
    case NODE_UNARY:
        return check_unary(p, n);
    case NODE_BINARY:
        return check_binary(p, n);
    case NODE_AGGREGATE:
        return check_aggregate(p, n);
    case NODE_CALL:
        return check_call(p, n);
    case NODE_PAREN:
        return check_node(p, n->u.paren);
    }
    return ERR_OK;
}

enum err check_types(struct parser *p, struct node *root)
{
    return check_node(p, root);
}
