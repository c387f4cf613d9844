/*
 * The text Prometheus prints for a syntax tree (Expr.String()). It parses back to the same tree,
 * except that a selector's matchers come sorted and ranges below a millisecond print as 0s. One
 * text differs from Prometheus's: the base of a power prints as Inf, since +Inf ^ 2 would be read
 * as +(Inf ^ 2).
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/float_text.h"
#include "promql/functions.h"
#include "promql/parse/format_internal.h"
#include "promql/parse/text_internal.h"

static void put(struct formatter *f, const char *text)
{
    writer_append(&f->w, text, strlen(text));
}

static void put_str(struct formatter *f, struct str s)
{
    writer_append(&f->w, s.data, s.size);
}

static void put_duration(struct formatter *f, int64_t ms)
{
    char text[DURATION_TEXT_SIZE];

    (void)duration_format(ms, text);
    put(f, text);
}

static void put_labels(struct formatter *f, const struct str *labels, size_t count)
{
    put(f, "(");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            put(f, ", ");
        if (label_name_is_legacy(labels[i]))
            put_str(f, labels[i]);
        else
            str_quote(&f->w, labels[i]);
    }
    put(f, ")");
}

static void put_number(struct formatter *f, double v, bool is_duration)
{
    char text[FLOAT_TEXT_SIZE];

    if (is_duration) {
        if (v < 0)
            put(f, "-");
        put_duration(f, (int64_t)((v < 0 ? -v : v) * 1e9) / 1000000);
        return;
    }
    (void)float_format_f(v, text);
    put(f, text);
}

static void put_duration_expr(struct formatter *f, const struct duration_expr *d);

static void put_duration_parts(struct formatter *f, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                               const struct duration_expr *d)
{
    switch (d->op) {
    case DURATION_NUMBER:
        put_number(f, d->seconds, d->is_duration);
        break;
    case DURATION_STEP:
    case DURATION_RANGE:
        put(f, duration_op_name(d->op));
        put(f, "()");
        break;
    case DURATION_MIN_OF:
    case DURATION_MAX_OF:
        put(f, duration_op_name(d->op));
        put(f, "(");
        put_duration_expr(f, d->lhs);
        put(f, ", ");
        put_duration_expr(f, d->rhs);
        put(f, ")");
        break;
    default:
        if (d->lhs != NULL) {
            put_duration_expr(f, d->lhs);
            put(f, " ");
            put(f, duration_op_name(d->op));
            put(f, " ");
        } else if (d->op == DURATION_SUB) {
            put(f, "-");
        }
        put_duration_expr(f, d->rhs);
        break;
    }
}

static void put_duration_expr(struct formatter *f, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                              const struct duration_expr *d)
{
    if (d->wrapped)
        put(f, "(");
    put_duration_parts(f, d);
    if (d->wrapped)
        put(f, ")");
}

/* A range or a step. */
static void put_duration_or_expr(struct formatter *f, int64_t ms, const struct duration_expr *d)
{
    if (d != NULL)
        put_duration_expr(f, d);
    else
        put_duration(f, ms);
}

static void put_at(struct formatter *f, const struct time_shift *shift)
{
    switch (shift->at) {
    case AT_NONE:
        break;
    case AT_TIME:
        writer_printf(&f->w, " @ %.3f", (double)shift->at_ms / 1000.0);
        break;
    case AT_START:
        put(f, " @ start()");
        break;
    case AT_END:
        put(f, " @ end()");
        break;
    }
}

static void put_offset(struct formatter *f, const struct time_shift *shift)
{
    if (shift->offset_expr != NULL) {
        put(f, " offset ");
        put_duration_expr(f, shift->offset_expr);
    }
    if (shift->offset_ms == 0)
        return;
    put(f, shift->offset_ms < 0 ? " offset -" : " offset ");
    put_duration(f, shift->offset_ms < 0 ? -shift->offset_ms : shift->offset_ms);
}

static void put_shift(struct formatter *f, const struct time_shift *shift)
{
    put_at(f, shift);
    put_offset(f, shift);
}

static void put_extension(struct formatter *f, const struct node *selector)
{
    static const char *const texts[] = {
        [EXTENSION_NONE] = "",
        [EXTENSION_ANCHORED] = " anchored",
        [EXTENSION_SMOOTHED] = " smoothed",
    };

    put(f, texts[selector->u.selector.extension]);
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The matcher that stands for the name before the braces is left out. */
static bool matcher_is_name(const struct node *n, const struct matcher *m)
{
    return m->kind == MATCHER_EQUAL && m->value.size > 0 && str_equal(m->name, LABEL_METRIC_NAME) &&
           str_equal(m->value, n->u.selector.name);
}

static void format_selector(struct formatter *f, const struct node *n)
{
    size_t count = 0;
    char **texts = ARENA_ARRAY(f->arena, n->u.selector.matcher_count, char *);

    f->failed |= texts == NULL;
    for (size_t i = 0; texts != NULL && i < n->u.selector.matcher_count; i++) {
        const struct matcher *m = &n->u.selector.matchers[i];

        if (matcher_is_name(n, m))
            continue;
        texts[count] = matcher_format(m, f->arena);
        if (texts[count] == NULL) {
            f->failed = true;
            return;
        }
        count++;
    }
    put_str(f, n->u.selector.name);
    if (count == 0)
        return;
    qsort(texts, count, sizeof *texts, compare_text);
    for (size_t i = 0; i < count; i++) {
        put(f, i == 0 ? "{" : ",");
        put(f, texts[i]);
    }
    put(f, "}");
}

bool format_drops_plus(const struct node *binary)
{
    const struct node *n = binary->u.binary.lhs;

    return binary->u.binary.op == OP_POW && n->kind == NODE_NUMBER && isinf(n->u.number.value) &&
           n->u.number.value > 0;
}

static void put_fill(struct formatter *f, const char *name, double value)
{
    char text[FLOAT_TEXT_SIZE];

    (void)float_format_g(value, text);
    writer_printf(&f->w, " %s (%s)", name, text);
}

static void format_fills(struct formatter *f, const struct vector_matching *m)
{
    if (m->fill_left.given && m->fill_right.given && m->fill_left.value == m->fill_right.value) {
        put_fill(f, "fill", m->fill_left.value);
        return;
    }
    if (m->fill_left.given)
        put_fill(f, "fill_left", m->fill_left.value);
    if (m->fill_right.given)
        put_fill(f, "fill_right", m->fill_right.value);
}

static void format_matching(struct formatter *f, const struct vector_matching *m)
{
    bool grouped = m->cardinality == MATCH_MANY_TO_ONE || m->cardinality == MATCH_ONE_TO_MANY;

    if (m->label_count > 0 || m->on || grouped) {
        put(f, m->on ? " on " : " ignoring ");
        put_labels(f, m->labels, m->label_count);
    }
    if (grouped) {
        put(f, m->cardinality == MATCH_MANY_TO_ONE ? " group_left " : " group_right ");
        put_labels(f, m->include, m->include_count);
    }
    format_fills(f, m);
}

void format_operator(struct formatter *f, const struct node *n)
{
    put(f, binary_op_name(n->u.binary.op));
    if (n->u.binary.return_bool)
        put(f, " bool");
    format_matching(f, &n->u.binary.matching);
}

/* The chain of left-hand sides by a loop, from its innermost operand outwards. */
static void format_binary(struct formatter *f, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                          const struct node *n)
{
    size_t count = 0;
    const struct node **chain, *first = n;
    size_t start = f->w.size;

    for (; first->kind == NODE_BINARY; first = first->u.binary.lhs)
        count++;
    chain = ARENA_ARRAY(f->arena, count, const struct node *);
    if (chain == NULL) {
        f->failed = true;
        return;
    }
    for (size_t i = count; i > 0; i--, n = n->u.binary.lhs)
        chain[i - 1] = n;
    if (format_drops_plus(chain[0]))
        put(f, "Inf");
    else
        format_node(f, first);
    for (size_t i = 0; i < count; i++) {
        put(f, " ");
        format_operator(f, chain[i]);
        put(f, " ");
        format_node(f, chain[i]->u.binary.rhs);
        if (f->sizes != NULL)
            f->sizes[chain[i]->id] = f->w.size - start;
    }
}

void format_aggregate_head(struct formatter *f, const struct node *n)
{
    put(f, aggregate_op_name(n->u.aggregate.op));
    if (n->u.aggregate.without || n->u.aggregate.label_count > 0) {
        put(f, n->u.aggregate.without ? " without " : " by ");
        put_labels(f, n->u.aggregate.labels, n->u.aggregate.label_count);
        put(f, " ");
    }
}

static void format_aggregate(struct formatter *f, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                             const struct node *n)
{
    format_aggregate_head(f, n);
    put(f, "(");
    if (n->u.aggregate.param != NULL) {
        format_node(f, n->u.aggregate.param);
        put(f, ", ");
    }
    format_node(f, n->u.aggregate.expr);
    put(f, ")");
}

static void format_call(struct formatter *f, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                        const struct node *n)
{
    put(f, n->u.call.function->name);
    put(f, "(");
    for (size_t i = 0; i < n->u.call.arg_count; i++) {
        if (i > 0)
            put(f, ", ");
        format_node(f, n->u.call.args[i]);
    }
    put(f, ")");
}

void format_subquery_suffix(struct formatter *f, const struct node *n)
{
    put(f, "[");
    put_duration_or_expr(f, n->u.subquery.range_ms, n->u.subquery.range_expr);
    put(f, ":");
    if (n->u.subquery.step_ms != 0 || n->u.subquery.step_expr != NULL)
        put_duration_or_expr(f, n->u.subquery.step_ms, n->u.subquery.step_expr);
    put(f, "]");
    put_shift(f, &n->u.subquery.shift);
}

void format_node(struct formatter *f, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                 const struct node *n)
{
    size_t start = f->w.size;

    switch (n->kind) {
    case NODE_NUMBER:
        put_number(f, n->u.number.value, n->u.number.is_duration);
        break;
    case NODE_STRING:
        str_quote(&f->w, n->u.string);
        break;
    case NODE_SELECTOR:
        format_selector(f, n);
        put_at(f, &n->u.selector.shift);
        put_extension(f, n);
        put_offset(f, &n->u.selector.shift);
        break;
    case NODE_MATRIX:
        format_selector(f, n->u.matrix.selector);
        put(f, "[");
        put_duration_or_expr(f, n->u.matrix.range_ms, n->u.matrix.range_expr);
        put(f, "]");
        put_extension(f, n->u.matrix.selector);
        put_shift(f, &n->u.matrix.selector->u.selector.shift);
        break;
    case NODE_SUBQUERY:
        format_node(f, n->u.subquery.expr);
        format_subquery_suffix(f, n);
        break;
    case NODE_UNARY:
        put(f, n->u.unary.negative ? "-" : "+");
        format_node(f, n->u.unary.expr);
        break;
    case NODE_BINARY:
        format_binary(f, n);
        break;
    case NODE_AGGREGATE:
        format_aggregate(f, n);
        break;
    case NODE_CALL:
        format_call(f, n);
        break;
    case NODE_PAREN:
        put(f, "(");
        format_node(f, n->u.paren);
        put(f, ")");
        break;
    }
    if (f->sizes != NULL)
        f->sizes[n->id] = f->w.size - start;
}

char *promql_node_format(const struct node *n, struct arena *arena)
{
    struct formatter f = {.arena = arena};
    char *out = NULL;

    writer_init(&f.w);
    format_node(&f, n);
    if (!f.failed && !f.w.failed)
        out = arena_memdup0(arena, f.w.data, f.w.size);
    writer_done(&f.w);
    return out;
}
