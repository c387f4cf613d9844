/*
 * Query text to syntax tree: a hand-written precedence parser for the grammar of PromQL 3.
 *
 * Prometheus's parser is made by yacc, whose error messages depend on which rules are open. The
 * few that matter are kept by hand: inside braces, groupings, brackets, offset, @ and aggregations
 * an unexpected token is described by its context, elsewhere it is only named.
 *
 * Recursion is bounded by PROMQL_DEPTH_MAX; chains of left-associative operators are loops.
 */
#include "promql/parse/parser_internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "promql/functions.h"
#include "promql/parse/text_internal.h"

enum { POSITION_TEXT_SIZE = 48 };

enum err parser_out_of_memory(struct parser *p)
{
    (void)arena_error(p->arena, p->ei); /* parser_error() gives its code */
    return parser_error(p);
}

PRINTF_LIKE(4, 0)
static enum err fail_v(struct parser *p, enum err code, uint32_t start, const char *format,
                       va_list args)
{
    char position[POSITION_TEXT_SIZE], text[ERRINFO_MESSAGE_SIZE];

    promql_position_text(p->lexer.input, start, position, sizeof position);
    (void)vsnprintf(text, sizeof text, format, args);
    (void)errinfo_set(p->ei, code, 0, "%s: parse error: %s", position, text);
    return code;
}

enum err parser_fail(struct parser *p, uint32_t start, const char *format, ...)
{
    va_list args;
    enum err e;

    va_start(args, format);
    e = fail_v(p, ERR_INVALID, start, format, args);
    va_end(args);
    return e;
}

void parser_note_unsupported(struct parser *p, uint32_t start, const char *format, ...)
{
    char what[128];
    va_list args;
    char position[POSITION_TEXT_SIZE];

    if (p->unsupported.code != ERR_OK)
        return;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    promql_position_text(p->lexer.input, start, position, sizeof position);
    (void)errinfo_set(&p->unsupported, ERR_UNSUPPORTED, 0,
                      "%s: parse error: %s is not supported yet", position, what);
}

/* The first ten characters of a longer text. */
static struct str shorten(struct str text)
{
    size_t i = 0;

    for (unsigned n = 0; n < 10 && i < text.size; n++) {
        unsigned width;

        (void)rune_decode((struct str){text.data + i, text.size - i}, &width);
        i += width;
    }
    return (struct str){text.data, i};
}

/* The token as Prometheus names it in errors. */
static const char *token_describe(struct parser *p, const struct token *t)
{
    const char *kind = "", *dots = "", *out;
    struct str text = t->text;

    switch (t->kind) {
    case TOKEN_EOF:
        return "end of input";
    case TOKEN_IDENTIFIER:
        kind = "identifier ";
        break;
    case TOKEN_METRIC_IDENTIFIER:
        kind = "metric identifier ";
        break;
    case TOKEN_STRING:
        kind = "string ";
        break;
    case TOKEN_NUMBER:
        kind = "number ";
        break;
    case TOKEN_DURATION:
        kind = "duration ";
        break;
    default:
        break;
    }
    if (token_is_operator(t->kind))
        out = arena_printf(p->arena, "<op:%.*s>", STR_ARGS(text));
    else if (token_is_aggregator(t->kind))
        out = arena_printf(p->arena, "<aggr:%.*s>", STR_ARGS(text));
    else if (token_is_keyword(t->kind))
        out = arena_printf(p->arena, "<%.*s>", STR_ARGS(text));
    else {
        bool is_name = t->kind == TOKEN_IDENTIFIER || t->kind == TOKEN_METRIC_IDENTIFIER;

        if (text.size > 10 && !is_name) {
            text = shorten(text);
            dots = "...";
        }
        out = arena_printf(p->arena, "%s%s%s", kind, text_quote(text, p->arena), dots);
    }
    return out != NULL ? out : "token";
}

enum err parser_unexpected(struct parser *p, const char *context, const char *expected)
{
    if (parser_at(p, TOKEN_ERROR))
        return parser_fail(p, p->token.start, "%s", p->lexer.error);
    return parser_fail(p, p->token.start, "unexpected %s%s%s%s%s", token_describe(p, &p->token),
                       context[0] != '\0' ? " in " : "", context,
                       expected[0] != '\0' ? ", expected " : "", expected);
}

enum err parser_unexpected_here(struct parser *p)
{
    return parser_unexpected(p, p->aggregation_depth > 0 ? "aggregation" : "", "");
}

struct token parser_take(struct parser *p)
{
    struct token t = p->token;

    p->last_end = t.start + (uint32_t)t.text.size;
    if (t.kind != TOKEN_EOF && t.kind != TOKEN_ERROR)
        p->token = lexer_next(&p->lexer);
    return t;
}

bool parser_accept(struct parser *p, enum token_kind kind)
{
    if (!parser_at(p, kind))
        return false;
    (void)parser_take(p);
    return true;
}

struct node *parser_node_new(struct parser *p, enum node_kind kind, enum value_type type,
                             uint32_t start, uint32_t end)
{
    struct node *n = ARENA_NEW(p->arena, struct node);

    if (n == NULL) {
        (void)parser_out_of_memory(p);
        return NULL;
    }
    n->kind = kind;
    n->id = p->expr->node_count++;
    n->type = type;
    n->position = (struct position_range){start, end};
    n->depth = 1;
    return n;
}

enum err parser_fail_depth(struct parser *p, uint32_t start)
{
    char position[POSITION_TEXT_SIZE];

    promql_position_text(p->lexer.input, start, position, sizeof position);
    (void)errinfo_set(p->ei, ERR_LIMIT, 0,
                      "%s: parse error: expression is nested deeper than %d levels", position,
                      PROMQL_DEPTH_MAX);
    return ERR_LIMIT;
}

enum err parser_set_depth(struct parser *p, struct node *n, uint32_t depth)
{
    n->depth = depth;
    return depth > PROMQL_DEPTH_MAX ? parser_fail_depth(p, n->position.start) : ERR_OK;
}

void *parser_grow(struct parser *p, void *array, size_t count, size_t *capacity, size_t size)
{
    size_t wanted = *capacity == 0 ? 4 : *capacity * 2;

    if (count < *capacity)
        return array;
    array = arena_grow_array(p->arena, array, count, wanted, size);
    if (array == NULL)
        (void)parser_out_of_memory(p);
    else
        *capacity = wanted;
    return array;
}

enum err parser_enter(struct parser *p)
{
    if (p->depth == PROMQL_DEPTH_MAX)
        return parser_fail_depth(p, p->token.start);
    p->depth++;
    return ERR_OK;
}

static enum err parse_expression(struct parser *p, enum binary_level level, struct node **out);

struct argument_list {
    struct node **items;
    size_t count;
    uint32_t depth; /* of the deepest */
};

/* The parenthesised arguments of a call, from the opening parenthesis on. */
static enum err parse_arguments(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                struct argument_list *out)
{
    struct argument_list list = {NULL, 0, 0};
    size_t capacity = 0;

    if (!parser_accept(p, TOKEN_LEFT_PAREN))
        return parser_unexpected_here(p);
    while (!parser_accept(p, TOKEN_RIGHT_PAREN)) {
        uint32_t comma_start = p->token.start;
        enum err e;

        if (list.count > 0) {
            if (!parser_accept(p, TOKEN_COMMA))
                return parser_unexpected_here(p);
            if (!token_starts_expression(p->token.kind) && !parser_at(p, TOKEN_ERROR))
                return parser_fail(p, comma_start,
                                   "trailing commas not allowed in function call args");
        }
        list.items = parser_grow(p, list.items, list.count, &capacity, sizeof(struct node *));
        if (list.items == NULL)
            return parser_error(p);
        e = parse_expression(p, LEVEL_OR, &list.items[list.count]);
        if (e != ERR_OK)
            return e;
        if (list.items[list.count]->depth > list.depth)
            list.depth = list.items[list.count]->depth;
        list.count++;
    }
    *out = list;
    return ERR_OK;
}

static enum err parse_call(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                           const struct token *name, struct node **out)
{
    struct argument_list args = {NULL, 0, 0};
    const struct promql_function *function;
    struct node *n;
    enum err e = parse_arguments(p, &args);

    if (e != ERR_OK)
        return e;
    function = promql_function_find(name->text);
    if (function == NULL)
        return parser_fail(p, name->start, "unknown function with name %s",
                           text_quote(name->text, p->arena));
    if (!function->built)
        parser_note_unsupported(p, name->start, "function \"%s\"", function->name);
    else if (function->experimental && !p->options->experimental_functions)
        return parser_fail(p, name->start, "function \"%s\" is not enabled", function->name);
    n = parser_node_new(p, NODE_CALL, function->result, name->start, p->last_end);
    if (n == NULL)
        return parser_error(p);
    n->u.call.function = function;
    n->u.call.args = args.items;
    n->u.call.arg_count = args.count;
    *out = n;
    return parser_set_depth(p, n, args.depth + 1);
}

static enum aggregate_op aggregate_op_of(const struct token *t)
{
    static const enum aggregate_op ops[] = {
        [TOKEN_SUM] = AGG_SUM,
        [TOKEN_AVG] = AGG_AVG,
        [TOKEN_COUNT] = AGG_COUNT,
        [TOKEN_MIN] = AGG_MIN,
        [TOKEN_MAX] = AGG_MAX,
        [TOKEN_GROUP] = AGG_GROUP,
        [TOKEN_STDDEV] = AGG_STDDEV,
        [TOKEN_STDVAR] = AGG_STDVAR,
        [TOKEN_TOPK] = AGG_TOPK,
        [TOKEN_BOTTOMK] = AGG_BOTTOMK,
        [TOKEN_COUNT_VALUES] = AGG_COUNT_VALUES,
        [TOKEN_QUANTILE] = AGG_QUANTILE,
        [TOKEN_LIMITK] = AGG_LIMITK,
        [TOKEN_LIMIT_RATIO] = AGG_LIMIT_RATIO,
    };

    return ops[t->kind];
}

static bool aggregate_takes_param(enum aggregate_op op)
{
    return op >= AGG_TOPK;
}

static enum err parse_grouping(struct parser *p, struct node *n)
{
    n->u.aggregate.without = parser_take(p).kind == TOKEN_WITHOUT;
    return parse_grouping_labels(p, &n->u.aggregate.labels, &n->u.aggregate.label_count);
}

static bool at_grouping(const struct parser *p)
{
    return parser_at(p, TOKEN_BY) || parser_at(p, TOKEN_WITHOUT);
}

/* Grouping and arguments in either order. */
static enum err
parse_aggregate_parts(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                      struct node *n, struct argument_list *args)
{
    bool grouping_first = at_grouping(p);
    enum err e = grouping_first ? parse_grouping(p, n) : ERR_OK;

    if (e == ERR_OK)
        e = parse_arguments(p, args);
    if (e != ERR_OK || grouping_first)
        return e;
    if (parser_at(p, TOKEN_ERROR)) /* found while looking for by or without */
        return parser_unexpected_here(p);
    return at_grouping(p) ? parse_grouping(p, n) : ERR_OK;
}

static enum err parse_aggregate(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                const struct token *op, struct node **out)
{
    struct node *n = parser_node_new(p, NODE_AGGREGATE, VALUE_VECTOR, op->start, op->start);
    struct argument_list args = {NULL, 0, 0};
    size_t want;
    enum err e;

    if (n == NULL)
        return parser_error(p);
    n->u.aggregate.op = aggregate_op_of(op);
    p->aggregation_depth++;
    e = parse_aggregate_parts(p, n, &args);
    p->aggregation_depth--;
    if (e != ERR_OK)
        return e;
    n->position.end = p->last_end;
    if (args.count == 0)
        return parser_fail(p, op->start, "no arguments for aggregate expression provided");
    if (n->u.aggregate.op >= AGG_LIMITK && !p->options->experimental_functions)
        return parser_fail(p, op->start,
                           "%s() is experimental and must be enabled with "
                           "--enable-feature=promql-experimental-functions",
                           aggregate_op_name(n->u.aggregate.op));
    want = aggregate_takes_param(n->u.aggregate.op) ? 2 : 1;
    if (args.count != want)
        return parser_fail(p, op->start,
                           "wrong number of arguments for aggregate expression provided, "
                           "expected %zu, got %zu",
                           want, args.count);
    n->u.aggregate.param = want == 2 ? args.items[0] : NULL;
    n->u.aggregate.expr = args.items[want - 1];
    *out = n;
    return parser_set_depth(p, n, args.depth + 1);
}

static enum err parse_paren(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                            struct node **out)
{
    uint32_t start = parser_take(p).start;
    struct node *inner, *n;
    enum err e = parse_expression(p, LEVEL_OR, &inner);

    if (e != ERR_OK)
        return e;
    if (!parser_accept(p, TOKEN_RIGHT_PAREN))
        return parser_unexpected_here(p);
    n = parser_node_new(p, NODE_PAREN, inner->type, start, p->last_end);
    if (n == NULL)
        return parser_error(p);
    n->u.paren = inner;
    *out = n;
    return parser_set_depth(p, n, inner->depth + 1);
}

/* A word that may name a metric, a function or an aggregation, by what follows it. */
static enum err parse_word(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                           struct node **out)
{
    struct token word = parser_take(p);
    bool paren = parser_at(p, TOKEN_LEFT_PAREN);

    if (token_is_aggregator(word.kind) && (paren || at_grouping(p)))
        return parse_aggregate(p, &word, out);
    if (paren &&
        (word.kind == TOKEN_IDENTIFIER || (word.kind >= TOKEN_START && word.kind <= TOKEN_MIN_OF)))
        return parse_call(p, &word, out);
    return parse_selector(p, &word, out);
}

/* An operand with what is bound to it: [range], offset, @. */
static enum err parse_primary(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                              struct node **out)
{
    enum err e;

    if (parser_at(p, TOKEN_NUMBER) || parser_at(p, TOKEN_DURATION))
        e = parse_number(p, out);
    else if (parser_at(p, TOKEN_STRING))
        e = parse_string(p, out);
    else if (parser_at(p, TOKEN_LEFT_PAREN))
        e = parse_paren(p, out);
    else if (parser_at(p, TOKEN_LEFT_BRACE))
        e = parse_selector(p, NULL, out);
    else if (token_is_metric_identifier(p->token.kind))
        e = parse_word(p, out);
    else
        return parser_unexpected_here(p);
    return e == ERR_OK ? parse_modifiers(p, out) : e;
}

/* A sign binds like `*`, so that -2^2 is -4; in front of a number it becomes part of it. */
static enum err parse_unary(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                            struct node **out)
{
    struct token sign = parser_take(p);
    struct node *operand, *n;
    enum err e = parse_expression(p, LEVEL_POW, &operand);

    if (e != ERR_OK)
        return e;
    if (operand->kind == NODE_NUMBER) {
        if (sign.kind == TOKEN_SUB)
            operand->u.number.value *= -1;
        operand->position.start = sign.start;
        *out = operand;
        return ERR_OK;
    }
    n = parser_node_new(p, NODE_UNARY, operand->type, sign.start, operand->position.end);
    if (n == NULL)
        return parser_error(p);
    n->u.unary.expr = operand;
    n->u.unary.negative = sign.kind == TOKEN_SUB;
    *out = n;
    return parser_set_depth(p, n, operand->depth + 1);
}

/* The operator at the current token and its right-hand side; *lhs becomes the whole. */
static enum err parse_binary(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                             enum binary_level level, enum binary_op op, struct node **lhs)
{
    struct token t = parser_take(p);
    struct node *l = *lhs, *r = NULL;
    struct node *n = parser_node_new(p, NODE_BINARY, VALUE_VECTOR, l->position.start, 0);
    uint32_t left_depth;
    enum err e;

    if (n == NULL)
        return parser_error(p);
    n->u.binary.op = op;
    n->u.binary.op_position = (struct position_range){t.start, t.start + (uint32_t)t.text.size};
    e = parse_matching(p, n);
    if (e == ERR_OK) /* only ^ associates to the right */
        e = parse_expression(p, level == LEVEL_POW ? LEVEL_POW : level + 1, &r);
    if (e != ERR_OK)
        return e;
    if (!p->options->binop_fill_modifiers &&
        (n->u.binary.matching.fill_left.given || n->u.binary.matching.fill_right.given))
        return parser_fail(p, l->position.start,
                           "binop fill modifiers are experimental and not enabled");
    n->u.binary.lhs = l;
    n->u.binary.rhs = r;
    n->position.end = r->position.end;
    if (l->type == VALUE_SCALAR && r->type == VALUE_SCALAR)
        n->type = VALUE_SCALAR;
    *lhs = n;
    left_depth = l->kind == NODE_BINARY ? l->depth : l->depth + 1;
    return parser_set_depth(p, n, left_depth > r->depth + 1 ? left_depth : r->depth + 1);
}

/* Operands joined by operators of `level` or tighter. */
static enum err parse_expression(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                 enum binary_level level, struct node **out)
{
    struct node *n = NULL;
    enum binary_op op = OP_ADD;
    enum binary_level found;
    enum err e;

    e = parser_enter(p);
    if (e != ERR_OK)
        return e;
    e = parser_at(p, TOKEN_ADD) || parser_at(p, TOKEN_SUB) ? parse_unary(p, &n)
                                                           : parse_primary(p, &n);
    while (e == ERR_OK && n != NULL && (found = binary_op_of(p->token.kind, &op)) >= level)
        e = parse_binary(p, found, op, &n);
    p->depth--;
    if (e == ERR_OK)
        *out = n;
    return e;
}

static enum err parser_start(struct parser *p, struct str text,
                             const struct promql_parse_options *options, struct arena *arena,
                             struct errinfo *ei)
{
    const char *copy;

    *p = (struct parser){.options = options, .arena = arena, .ei = ei};
    if (text.size > PROMQL_QUERY_BYTES_MAX) {
        (void)errinfo_set(ei, ERR_LIMIT, 0, "query text has %zu bytes, more than the limit of %d",
                          text.size, PROMQL_QUERY_BYTES_MAX);
        return ERR_LIMIT;
    }
    copy = arena_memdup0(arena, text.data, text.size);
    p->expr = ARENA_NEW(arena, struct promql_expr);
    if (copy == NULL || p->expr == NULL)
        return parser_out_of_memory(p);
    p->expr->text = (struct str){copy, text.size};
    lexer_init(&p->lexer, p->expr->text, arena);
    p->token = lexer_next(&p->lexer);
    return ERR_OK;
}

static enum err parse_query(struct parser *p)
{
    enum err e;

    if (parser_at(p, TOKEN_EOF))
        return parser_fail(p, 0, "no expression found in input");
    e = parse_expression(p, LEVEL_OR, &p->expr->root);
    if (e == ERR_OK && !parser_at(p, TOKEN_EOF))
        e = parser_unexpected_here(p);
    if (e == ERR_OK && p->unsupported.code != ERR_OK)
        return errinfo_set(p->ei, ERR_UNSUPPORTED, 0, "%s", p->unsupported.message);
    return e == ERR_OK ? check_types(p, p->expr->root) : e;
}

enum err promql_parse(struct str text, const struct promql_parse_options *options,
                      struct arena *arena, struct promql_expr **out, struct errinfo *ei)
{
    struct errinfo own = {0}; /* the parser reads its code back */
    struct parser p;
    enum err e = parser_start(&p, text, options, arena, &own);

    if (e == ERR_OK) {
        p.expr->budget = arena->budget;
        e = parse_query(&p);
    }
    if (e == ERR_OK) {
        *out = p.expr;
        return ERR_OK;
    }
    promql_expr_done(p.expr);
    return errinfo_set(ei, e, 0, "%s", own.message);
}

void promql_expr_done(struct promql_expr *expr)
{
    if (expr == NULL)
        return;
    for (size_t i = 0; i < expr->matcher_count; i++)
        matcher_done(expr->matchers[i]);
    expr->matcher_count = 0;
    if (expr->budget != NULL)
        budget_release(expr->budget, expr->regex_bytes);
    expr->regex_bytes = 0;
}

enum err promql_parse_selector(struct str text, struct arena *arena, struct matcher **out,
                               size_t *out_count, struct errinfo *ei)
{
    static const struct promql_parse_options options = {.experimental_functions = true};
    struct errinfo own = {0};
    struct parser p;
    struct node *n = NULL;
    struct token name;
    enum err e = parser_start(&p, text, &options, arena, &own);

    if (e == ERR_OK) {
        if (parser_at(&p, TOKEN_LEFT_BRACE)) {
            e = parse_selector(&p, NULL, &n);
        } else if (token_is_metric_identifier(p.token.kind)) {
            name = parser_take(&p);
            e = parse_selector(&p, &name, &n);
        } else {
            e = parser_unexpected_here(&p);
        }
    }
    if (e == ERR_OK && !parser_at(&p, TOKEN_EOF))
        e = parser_unexpected_here(&p);
    if (e == ERR_OK && n != NULL) {
        /* The array is the parser's own and still writable; the tree only shows it as const. */
        *out = p.selector_matchers;
        *out_count = n->u.selector.matcher_count;
        return ERR_OK;
    }
    promql_expr_done(p.expr);
    return errinfo_set(ei, e, 0, "%s", own.message);
}
