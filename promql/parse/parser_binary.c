/*
 * Binary operators: their precedence, and the modifiers between operator and right-hand side.
 */
#include "promql/parse/parser_internal.h"

enum binary_level binary_op_of(enum token_kind k, enum binary_op *op)
{
    static const struct {
        enum binary_level level;
        enum binary_op op;
    } table[] = {
        [TOKEN_ADD] = {LEVEL_ADD, OP_ADD},
        [TOKEN_SUB] = {LEVEL_ADD, OP_SUB},
        [TOKEN_MUL] = {LEVEL_MUL, OP_MUL},
        [TOKEN_DIV] = {LEVEL_MUL, OP_DIV},
        [TOKEN_MOD] = {LEVEL_MUL, OP_MOD},
        [TOKEN_ATAN2] = {LEVEL_MUL, OP_ATAN2},
        [TOKEN_POW] = {LEVEL_POW, OP_POW},
        [TOKEN_EQLC] = {LEVEL_COMPARE, OP_EQ},
        [TOKEN_NEQ] = {LEVEL_COMPARE, OP_NE},
        [TOKEN_LSS] = {LEVEL_COMPARE, OP_LT},
        [TOKEN_LTE] = {LEVEL_COMPARE, OP_LE},
        [TOKEN_GTR] = {LEVEL_COMPARE, OP_GT},
        [TOKEN_GTE] = {LEVEL_COMPARE, OP_GE},
        [TOKEN_TRIM_UPPER] = {LEVEL_COMPARE, OP_TRIM_UPPER},
        [TOKEN_TRIM_LOWER] = {LEVEL_COMPARE, OP_TRIM_LOWER},
        [TOKEN_LAND] = {LEVEL_AND, OP_AND},
        [TOKEN_LUNLESS] = {LEVEL_AND, OP_UNLESS},
        [TOKEN_LOR] = {LEVEL_OR, OP_OR},
    };

    if ((size_t)k >= sizeof table / sizeof table[0])
        return LEVEL_NONE;
    *op = table[k].op;
    return table[k].level;
}

/* fill(x), fill_left(x), fill_right(x). */
static enum err parse_fill(struct parser *p, struct vector_matching *m)
{
    enum token_kind kind = parser_take(p).kind;
    struct fill_value fill = {.given = true};
    struct node *value;
    bool negative;
    enum err e;

    if (!parser_accept(p, TOKEN_LEFT_PAREN))
        return parser_unexpected_here(p);
    negative = parser_accept(p, TOKEN_SUB);
    if (!negative)
        (void)parser_accept(p, TOKEN_ADD);
    if (!parser_at(p, TOKEN_NUMBER) && !parser_at(p, TOKEN_DURATION))
        return parser_unexpected_here(p);
    e = parse_number(p, &value);
    if (e != ERR_OK)
        return e;
    fill.value = negative ? -value->u.number.value : value->u.number.value;
    if (kind != TOKEN_FILL_RIGHT)
        m->fill_left = fill;
    if (kind != TOKEN_FILL_LEFT)
        m->fill_right = fill;
    return parser_accept(p, TOKEN_RIGHT_PAREN) ? ERR_OK : parser_unexpected_here(p);
}

static enum err parse_fills(struct parser *p, struct vector_matching *m)
{
    enum token_kind first = p->token.kind;
    enum err e = ERR_OK;

    if (first != TOKEN_FILL && first != TOKEN_FILL_LEFT && first != TOKEN_FILL_RIGHT)
        return ERR_OK;
    e = parse_fill(p, m);
    if (e == ERR_OK && ((first == TOKEN_FILL_LEFT && parser_at(p, TOKEN_FILL_RIGHT)) ||
                        (first == TOKEN_FILL_RIGHT && parser_at(p, TOKEN_FILL_LEFT))))
        e = parse_fill(p, m);
    return e;
}

enum err parse_matching(struct parser *p, struct node *n)
{
    struct vector_matching *m = &n->u.binary.matching;
    enum err e;

    n->u.binary.return_bool = parser_accept(p, TOKEN_BOOL);
    if (!parser_at(p, TOKEN_ON) && !parser_at(p, TOKEN_IGNORING))
        return parse_fills(p, m);
    m->on = parser_take(p).kind == TOKEN_ON;
    e = parse_grouping_labels(p, &m->labels, &m->label_count);
    if (e != ERR_OK)
        return e;
    if (parser_at(p, TOKEN_GROUP_LEFT) || parser_at(p, TOKEN_GROUP_RIGHT)) {
        m->cardinality =
            parser_take(p).kind == TOKEN_GROUP_LEFT ? MATCH_MANY_TO_ONE : MATCH_ONE_TO_MANY;
        if (parser_at(p, TOKEN_LEFT_PAREN) || !token_starts_expression(p->token.kind)) {
            e = parse_grouping_labels(p, &m->include, &m->include_count);
            if (e != ERR_OK)
                return e;
        }
    }
    return parse_fills(p, m);
}
