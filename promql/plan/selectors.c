/*
 * The selectors of an expression, for whoever wants to know what it reads.
 */
#include "promql/ast.h"

#include <string.h>

#include "promql/functions.h"

struct walk {
    void (*visit)(void *ctx, const struct promql_selector *selector);
    void *ctx;
};

static int64_t shift_back_ms(const struct time_shift *shift)
{
    return shift->offset_ms > 0 ? shift->offset_ms : 0;
}

static bool has_name(const struct node *selector)
{
    for (size_t i = 0; selector != NULL && i < selector->u.selector.matcher_count; i++)
        if (str_equal(selector->u.selector.matchers[i].name, LABEL_METRIC_NAME))
            return true;
    return false;
}

static void found(const struct walk *w, const struct node *selector, int64_t back_ms, bool of_info)
{
    const struct promql_selector selected = {
        .node = selector,
        .back_ms = back_ms + (selector == NULL ? 0 : shift_back_ms(&selector->u.selector.shift)),
        .is_target_info = of_info && !has_name(selector),
    };

    w->visit(w->ctx, &selected);
}

static void walk_node(const struct walk *w, const struct node *n, int64_t back_ms);

static void walk_call(const struct walk *w, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                      const struct node *n, int64_t back_ms)
{
    bool is_info = strcmp(n->u.call.function->name, "info") == 0;

    for (size_t i = 0; i < n->u.call.arg_count; i++) {
        const struct node *arg = n->u.call.args[i];

        if (is_info && i == 1 && arg->kind == NODE_SELECTOR)
            found(w, arg, back_ms, true);
        else
            walk_node(w, arg, back_ms);
    }
    if (is_info && n->u.call.arg_count == 1)
        found(w, NULL, back_ms, true);
}

/* A chain of left-hand sides is walked by the loop. */
static void walk_node(const struct walk *w, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                      const struct node *n, int64_t back_ms)
{
    for (;;) {
        switch (n->kind) {
        case NODE_NUMBER:
        case NODE_STRING:
            return;
        case NODE_SELECTOR:
            found(w, n, back_ms, false);
            return;
        case NODE_MATRIX:
            back_ms += n->u.matrix.range_ms;
            n = n->u.matrix.selector;
            break;
        case NODE_SUBQUERY:
            back_ms += n->u.subquery.range_ms + shift_back_ms(&n->u.subquery.shift);
            n = n->u.subquery.expr;
            break;
        case NODE_UNARY:
            n = n->u.unary.expr;
            break;
        case NODE_PAREN:
            n = n->u.paren;
            break;
        case NODE_BINARY:
            walk_node(w, n->u.binary.rhs, back_ms);
            n = n->u.binary.lhs;
            break;
        case NODE_AGGREGATE:
            if (n->u.aggregate.param != NULL)
                walk_node(w, n->u.aggregate.param, back_ms);
            n = n->u.aggregate.expr;
            break;
        case NODE_CALL:
            walk_call(w, n, back_ms);
            return;
        }
    }
}

void promql_selectors_visit(const struct promql_expr *expr,
                            void (*visit)(void *ctx, const struct promql_selector *selector),
                            void *ctx)
{
    const struct walk w = {visit, ctx};

    walk_node(&w, expr->root, 0);
}
