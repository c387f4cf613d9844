/*
 * A syntax tree over several lines, as Prometheus's format_query shows it: what is longer than
 * LINE_BYTES_MAX is split at its operator, arguments or parentheses, two spaces deeper each time.
 */
#include <string.h>

#include "promql/eval/arena_refused_internal.h"
#include "promql/functions.h"
#include "promql/parse/format_internal.h"

enum { LINE_BYTES_MAX = 100, INDENT_BYTES = 2 };

struct pretty {
    struct formatter f;
    const size_t *sizes; /* of each node on one line, by id */
    bool skip_indent;    /* behind a sign: what comes next goes on in its line */
    bool too_long;
};

static void put(struct pretty *p, const char *text)
{
    writer_append(&p->f.w, text, strlen(text));
}

/* Chains may nest deeper than anybody reads: their indentation alone can outgrow any limit. */
static void put_indent(struct pretty *p, size_t level)
{
    bool skip = p->skip_indent;

    p->skip_indent = false;
    p->too_long = p->too_long || level > PROMQL_PRETTY_BYTES_MAX / INDENT_BYTES ||
                  p->f.w.size + level * INDENT_BYTES > PROMQL_PRETTY_BYTES_MAX;
    for (size_t i = 0; !skip && !p->too_long && i < level; i++)
        put(p, "  ");
}

static bool fits(const struct pretty *p, const struct node *n)
{
    return p->sizes[n->id] <= LINE_BYTES_MAX;
}

static void pretty_node(struct pretty *p, const struct node *n, size_t level);

static void pretty_aggregate(struct pretty *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                             const struct node *n, size_t level)
{
    format_aggregate_head(&p->f, n);
    put(p, "(\n");
    if (n->u.aggregate.param != NULL) {
        pretty_node(p, n->u.aggregate.param, level + 1);
        put(p, ",\n");
    }
    pretty_node(p, n->u.aggregate.expr, level + 1);
    put(p, "\n");
    put_indent(p, level);
    put(p, ")");
}

static void pretty_call(struct pretty *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                        const struct node *n, size_t level)
{
    put(p, n->u.call.function->name);
    put(p, "(\n");
    for (size_t i = 0; i < n->u.call.arg_count; i++) {
        if (i > 0)
            put(p, ",\n");
        pretty_node(p, n->u.call.args[i], level + 1);
    }
    put(p, "\n");
    put_indent(p, level);
    put(p, ")");
}

/* Each left-hand side is a level deeper; a chain of them is walked by loops. */
static void pretty_binary(struct pretty *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                          const struct node *n, size_t level)
{
    const struct node *left = n, **chain;
    size_t count = 0;

    for (; left->kind == NODE_BINARY && !fits(p, left); left = left->u.binary.lhs)
        count++;
    chain = ARENA_ARRAY(p->f.arena, count, const struct node *);
    p->f.failed = p->f.failed || chain == NULL;
    if (p->f.failed)
        return;
    for (size_t i = 0; i < count; i++, n = n->u.binary.lhs)
        chain[i] = n;
    if (format_drops_plus(chain[count - 1])) {
        put_indent(p, level + count);
        put(p, "Inf");
    } else {
        pretty_node(p, left, level + count);
    }
    for (size_t i = count; i-- > 0 && !p->too_long;) {
        put(p, "\n");
        put_indent(p, level + i);
        format_operator(&p->f, chain[i]);
        put(p, "\n");
        pretty_node(p, chain[i]->u.binary.rhs, level + i + 1);
    }
}

static void pretty_unary(struct pretty *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                         const struct node *n, size_t level)
{
    put_indent(p, level);
    put(p, n->u.unary.negative ? "-" : "+");
    p->skip_indent = true;
    pretty_node(p, n->u.unary.expr, level);
}

/* One that does not fit in a line. */
static void pretty_split(struct pretty *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                         const struct node *n, size_t level)
{
    switch (n->kind) {
    case NODE_BINARY: /* its left-hand side begins the line */
        pretty_binary(p, n, level);
        break;
    case NODE_SUBQUERY:
        pretty_node(p, n->u.subquery.expr, level);
        format_subquery_suffix(&p->f, n);
        break;
    case NODE_AGGREGATE:
        put_indent(p, level);
        pretty_aggregate(p, n, level);
        break;
    case NODE_CALL:
        put_indent(p, level);
        pretty_call(p, n, level);
        break;
    case NODE_PAREN:
        put_indent(p, level);
        put(p, "(\n");
        pretty_node(p, n->u.paren, level + 1);
        put(p, "\n");
        put_indent(p, level);
        put(p, ")");
        break;
    default: /* leaves are never split */
        put_indent(p, level);
        format_node(&p->f, n);
        break;
    }
}

static void pretty_node(struct pretty *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                        const struct node *n, size_t level)
{
    if (p->too_long || p->f.failed)
        return;
    if (n->kind == NODE_UNARY) {
        pretty_unary(p, n, level);
    } else if (!fits(p, n)) {
        pretty_split(p, n, level);
    } else {
        /* Prometheus forgets the indentation of a subquery that fits. */
        put_indent(p, n->kind == NODE_SUBQUERY ? 0 : level);
        format_node(&p->f, n);
    }
}

static enum err pretty_finish(struct pretty *p, struct arena *arena, struct str *out,
                              struct errinfo *ei)
{
    const char *text;

    if (p->too_long || p->f.w.size > PROMQL_PRETTY_BYTES_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "formatted query is longer than %d bytes",
                           PROMQL_PRETTY_BYTES_MAX);
    if (p->f.w.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "formatted query");
    text = p->f.failed ? NULL : arena_memdup0(arena, p->f.w.data, p->f.w.size);
    if (text == NULL)
        return arena_refused(arena, ei);
    *out = (struct str){text, p->f.w.size};
    return ERR_OK;
}

enum err promql_expr_pretty(const struct promql_expr *expr, struct arena *arena, struct str *out,
                            struct errinfo *ei)
{
    size_t *sizes = ARENA_ARRAY(arena, expr->node_count, size_t);
    struct pretty p = {.f = {.arena = arena, .sizes = sizes}, .sizes = sizes};
    enum err e;

    if (sizes == NULL)
        return arena_refused(arena, ei);
    writer_init(&p.f.w);
    format_node(&p.f, expr->root); /* for the sizes alone */
    writer_reset(&p.f.w);
    p.f.sizes = NULL;
    pretty_node(&p, expr->root, 0);
    e = pretty_finish(&p, arena, out, ei);
    writer_done(&p.f.w);
    return e;
}
