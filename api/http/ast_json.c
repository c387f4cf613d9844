/*
 * The JSON tree of parse_query. Keys stand in the order of the alphabet, as Go's maps are printed.
 */
#include "api/http/ast_json_internal.h"

#include <inttypes.h>
#include <math.h>

#include "api/http/json_internal.h"
#include "base/float_text.h"
#include "promql/functions.h"

struct tree_writer {
    struct byte_writer *w;
    struct arena *arena;
    size_t size_max; /* of w */
    bool failed;     /* the arena refused, or the text is too long */
};

static void put(struct tree_writer *t, const char *text)
{
    json_write_raw(t->w, text);
    t->failed = t->failed || t->w->size > t->size_max;
}

static void put_bool(struct tree_writer *t, const char *key, bool value)
{
    put(t, key);
    put(t, value ? "true" : "false");
}

static void put_str(struct tree_writer *t, const char *key, struct str value)
{
    put(t, key);
    json_write_string(t->w, value);
}

static void put_int(struct tree_writer *t, const char *key, int64_t value)
{
    put(t, key);
    writer_printf(t->w, "%" PRId64, value);
}

static void put_strings(struct tree_writer *t, const char *key, const struct str *items,
                        size_t count)
{
    put(t, key);
    put(t, "[");
    for (size_t i = 0; i < count; i++) {
        put(t, i > 0 ? "," : "");
        json_write_string(t->w, items[i]);
    }
    put(t, "]");
}

const char *value_type_text(enum value_type type)
{
    switch (type) {
    case VALUE_SCALAR:
        return "scalar";
    case VALUE_VECTOR:
        return "vector";
    case VALUE_MATRIX:
        return "matrix";
    case VALUE_STRING:
        break;
    }
    return "string";
}

/* NULL is null. */
static void put_duration(struct tree_writer *t, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                         const char *key, const struct duration_expr *d)
{
    char text[FLOAT_TEXT_SIZE];

    put(t, key);
    if (d == NULL) {
        put(t, "null");
    } else if (d->op == DURATION_NUMBER) {
        put_bool(t, "{\"duration\":", d->is_duration);
        put(t, ",\"type\":\"numberLiteral\",\"val\":\"");
        (void)float_format_f(d->seconds, text); /* the length is not needed */
        put(t, text);
        put(t, "\"}");
    } else {
        put_duration(t, "{\"lhs\":", d->lhs);
        put_str(t, ",\"op\":", str_from(duration_op_name(d->op)));
        put_duration(t, ",\"rhs\":", d->rhs);
        put(t, ",\"type\":\"durationExpr\"");
        put_bool(t, ",\"wrapped\":", d->wrapped);
        put(t, "}");
    }
}

static void put_start_or_end(struct tree_writer *t, const struct time_shift *shift)
{
    put(t, ",\"startOrEnd\":");
    put(t, shift->at == AT_START ? "\"start\"" : shift->at == AT_END ? "\"end\"" : "null");
}

static void put_timestamp(struct tree_writer *t, const struct time_shift *shift)
{
    if (shift->at == AT_TIME)
        put_int(t, ",\"timestamp\":", shift->at_ms);
    else
        put(t, ",\"timestamp\":null");
}

static void put_offset(struct tree_writer *t, const struct time_shift *shift)
{
    put_int(t, ",\"offset\":", shift->offset_ms);
    put_duration(t, ",\"offsetExpr\":", shift->offset_expr);
}

static void put_matchers(struct tree_writer *t, const struct node *selector)
{
    static const char *const kinds[] = {
        [MATCHER_EQUAL] = "=",
        [MATCHER_NOT_EQUAL] = "!=",
        [MATCHER_REGEX] = "=~",
        [MATCHER_NOT_REGEX] = "!~",
    };

    put(t, "\"matchers\":[");
    for (size_t i = 0; i < selector->u.selector.matcher_count; i++) {
        const struct matcher *m = &selector->u.selector.matchers[i];

        put_str(t, i > 0 ? ",{\"name\":" : "{\"name\":", m->name);
        put_str(t, ",\"type\":", str_from(kinds[m->kind]));
        put_str(t, ",\"value\":", m->value);
        put(t, "}");
    }
    put(t, "]");
}

/* `matrix` is NULL for an instant vector. */
static void put_selector(struct tree_writer *t, const struct node *selector,
                         const struct node *matrix)
{
    const struct time_shift *shift = &selector->u.selector.shift;
    enum range_extension extension = selector->u.selector.extension;

    put_bool(t, "{\"anchored\":", extension == EXTENSION_ANCHORED);
    put(t, ",");
    put_matchers(t, selector);
    put_str(t, ",\"name\":", selector->u.selector.name);
    put_offset(t, shift);
    if (matrix != NULL) {
        put_int(t, ",\"range\":", matrix->u.matrix.range_ms);
        put_duration(t, ",\"rangeExpr\":", matrix->u.matrix.range_expr);
    }
    put_bool(t, ",\"smoothed\":", extension == EXTENSION_SMOOTHED);
    put_start_or_end(t, shift);
    put_timestamp(t, shift);
    put(t, matrix != NULL ? ",\"type\":\"matrixSelector\"}" : ",\"type\":\"vectorSelector\"}");
}

static void put_node(struct tree_writer *t, const struct node *n);

static void put_subquery(struct tree_writer *t, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                         const struct node *n)
{
    put(t, "{\"expr\":");
    put_node(t, n->u.subquery.expr);
    put_offset(t, &n->u.subquery.shift);
    put_int(t, ",\"range\":", n->u.subquery.range_ms);
    put_duration(t, ",\"rangeExpr\":", n->u.subquery.range_expr);
    put_start_or_end(t, &n->u.subquery.shift);
    put_int(t, ",\"step\":", n->u.subquery.step_ms);
    put_duration(t, ",\"stepExpr\":", n->u.subquery.step_expr);
    put_timestamp(t, &n->u.subquery.shift);
    put(t, ",\"type\":\"subquery\"}");
}

/* NaN and infinities are no JSON; Prometheus fails there. */
static void put_fill(struct tree_writer *t, const char *key, const struct fill_value *fill)
{
    char text[FLOAT_TEXT_SIZE];

    put(t, key);
    if (!fill->given || !isfinite(fill->value)) {
        put(t, "null");
        return;
    }
    (void)float_format_json(fill->value, text); /* the length is not needed */
    put(t, text);
}

static void put_matching(struct tree_writer *t, const struct node *n)
{
    static const char *const cards[] = {
        [MATCH_ONE_TO_ONE] = "one-to-one",
        [MATCH_MANY_TO_ONE] = "many-to-one",
        [MATCH_ONE_TO_MANY] = "one-to-many",
        [MATCH_MANY_TO_MANY] = "many-to-many",
    };
    const struct vector_matching *m = &n->u.binary.matching;

    put(t, ",\"matching\":");
    if (n->u.binary.lhs->type != VALUE_VECTOR || n->u.binary.rhs->type != VALUE_VECTOR) {
        put(t, "null");
        return;
    }
    put_str(t, "{\"card\":", str_from(cards[m->cardinality]));
    put_fill(t, ",\"fillValues\":{\"lhs\":", &m->fill_left);
    put_fill(t, ",\"rhs\":", &m->fill_right);
    put_strings(t, "},\"include\":", m->include, m->include_count);
    put_strings(t, ",\"labels\":", m->labels, m->label_count);
    put_bool(t, ",\"on\":", m->on);
    put(t, "}");
}

/* The chain of left-hand sides by loops: all beginnings, the innermost operand, all ends. */
static void put_binary(struct tree_writer *t, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                       const struct node *n)
{
    const struct node *first = n, **chain;
    size_t count = 0;

    for (; first->kind == NODE_BINARY; first = first->u.binary.lhs)
        count++;
    chain = ARENA_ARRAY(t->arena, count, const struct node *);
    t->failed = t->failed || chain == NULL;
    if (chain == NULL)
        return;
    for (size_t i = 0; i < count; i++, n = n->u.binary.lhs) {
        chain[i] = n;
        put_bool(t, "{\"bool\":", n->u.binary.return_bool);
        put(t, ",\"lhs\":");
    }
    put_node(t, first);
    for (size_t i = count; i-- > 0 && !t->failed;) {
        put_matching(t, chain[i]);
        put_str(t, ",\"op\":", str_from(binary_op_name(chain[i]->u.binary.op)));
        put(t, ",\"rhs\":");
        put_node(t, chain[i]->u.binary.rhs);
        put(t, ",\"type\":\"binaryExpr\"}");
    }
}

static void put_aggregate(struct tree_writer *t, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                          const struct node *n)
{
    put(t, "{\"expr\":");
    put_node(t, n->u.aggregate.expr);
    put_strings(t, ",\"grouping\":", n->u.aggregate.labels, n->u.aggregate.label_count);
    put_str(t, ",\"op\":", str_from(aggregate_op_name(n->u.aggregate.op)));
    put(t, ",\"param\":");
    if (n->u.aggregate.param != NULL)
        put_node(t, n->u.aggregate.param);
    else
        put(t, "null");
    put(t, ",\"type\":\"aggregation\"");
    put_bool(t, ",\"without\":", n->u.aggregate.without);
    put(t, "}");
}

static void put_call(struct tree_writer *t, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                     const struct node *n)
{
    const struct promql_function *f = n->u.call.function;

    put(t, "{\"args\":[");
    for (size_t i = 0; i < n->u.call.arg_count; i++) {
        put(t, i > 0 ? "," : "");
        put_node(t, n->u.call.args[i]);
    }
    put(t, "],\"func\":{\"argTypes\":[");
    for (size_t i = 0; i < f->arg_count; i++) {
        put(t, i > 0 ? "," : "");
        json_write_string(t->w, str_from(value_type_text(f->args[i])));
    }
    put_str(t, "],\"name\":", str_from(f->name));
    put_str(t, ",\"returnType\":", str_from(value_type_text(f->result)));
    put_int(t, ",\"variadic\":", f->variadic);
    put(t, "},\"type\":\"call\"}");
}

static void put_number(struct tree_writer *t, double value)
{
    char text[FLOAT_TEXT_SIZE];

    (void)float_format_f(value, text); /* the length is not needed */
    put(t, "{\"type\":\"numberLiteral\",\"val\":\"");
    put(t, text);
    put(t, "\"}");
}

static void put_node(struct tree_writer *t, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                     const struct node *n)
{
    if (t->failed)
        return;
    switch (n->kind) {
    case NODE_NUMBER:
        put_number(t, n->u.number.value);
        break;
    case NODE_STRING:
        put_str(t, "{\"type\":\"stringLiteral\",\"val\":", n->u.string);
        put(t, "}");
        break;
    case NODE_SELECTOR:
        put_selector(t, n, NULL);
        break;
    case NODE_MATRIX:
        put_selector(t, n->u.matrix.selector, n);
        break;
    case NODE_SUBQUERY:
        put_subquery(t, n);
        break;
    case NODE_UNARY:
        put(t, "{\"expr\":");
        put_node(t, n->u.unary.expr);
        put(t, n->u.unary.negative ? ",\"op\":\"-\"" : ",\"op\":\"+\"");
        put(t, ",\"type\":\"unaryExpr\"}");
        break;
    case NODE_BINARY:
        put_binary(t, n);
        break;
    case NODE_AGGREGATE:
        put_aggregate(t, n);
        break;
    case NODE_CALL:
        put_call(t, n);
        break;
    case NODE_PAREN:
        put(t, "{\"expr\":");
        put_node(t, n->u.paren);
        put(t, ",\"type\":\"parenExpr\"}");
        break;
    }
}

enum err json_write_ast(struct byte_writer *w, const struct node *n, size_t size_max,
                        struct arena *arena, struct errinfo *ei)
{
    struct tree_writer t = {.w = w, .arena = arena, .size_max = size_max};

    put_node(&t, n);
    if (w->failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "syntax tree of a query");
    if (w->size > size_max)
        return errinfo_set(ei, ERR_LIMIT, 0, "syntax tree is longer than %zu bytes", size_max);
    return t.failed ? arena_error(arena, ei) : ERR_OK;
}
