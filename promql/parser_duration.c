/*
 * What is bound to an expression from the right: [range], [range:step], offset, @, and the range
 * modifiers smoothed and anchored.
 *
 * Durations are expressions in Prometheus 3.14. Their whole grammar is read here, but only signed
 * literals are built; everything else is noted as unsupported.
 */
#include "promql/parser_internal.h"

#include <math.h>

/* A duration as far as it is known: in seconds when it is a literal. */
struct duration {
    bool literal;
    double seconds;
    uint32_t start;
};

/* Where a duration stands, for "unexpected ... in `context`, expected `expected`". */
struct place {
    const char *context, *expected;
};

static const struct place place_range = {"subquery or range selector",
                                         "number, duration, step(), or range()"};
static const struct place place_range_end = {"subquery or range", "\":\" or \"]\""};
static const struct place place_step = {"subquery selector",
                                        "number, duration, step(), range(), or \"]\""};
static const struct place place_step_end = {"subquery selector", "\"]\""};
static const struct place place_offset = {"offset", "number, duration, step(), or range()"};

enum duration_level { DURATION_ADD, DURATION_MUL, DURATION_POW, DURATION_TIGHTEST };

static enum err unexpected_at(struct parser *p, const struct place *place)
{
    return parser_unexpected(p, place->context, place->expected);
}

/* Called before the parts are read, so that the outermost expression is the one named. */
static void note_expression(struct parser *p, struct duration *d)
{
    d->literal = false;
    d->seconds = 0;
    parser_note_unsupported(p, d->start, "duration expression");
}

/* Nanoseconds must fit an int64, in which Prometheus keeps them. It lets NaN pass, by which no
 * duration can be meant. */
static enum err check_range(struct parser *p, double seconds, uint32_t start)
{
    if (!(seconds <= 0x1p63 / 1e9 && seconds >= -0x1p63 / 1e9))
        return parser_fail(p, start, "duration out of range");
    return ERR_OK;
}

/* A number without its check, for callers that have a sign to apply first. */
static enum err duration_number(struct parser *p, struct duration *out)
{
    struct node *number = NULL;
    uint32_t start = p->token.start;
    enum err e = parse_number(p, &number);

    if (e == ERR_OK)
        *out = (struct duration){true, number->u.number.value, start};
    return e;
}

static enum err duration_literal(struct parser *p, struct duration *out)
{
    enum err e = duration_number(p, out);

    return e == ERR_OK ? check_range(p, out->seconds, out->start) : e;
}

static bool at_number(const struct parser *p)
{
    return parser_at(p, TOKEN_NUMBER) || parser_at(p, TOKEN_DURATION);
}

static bool at_sign(const struct parser *p)
{
    return parser_at(p, TOKEN_ADD) || parser_at(p, TOKEN_SUB);
}

static enum err parse_duration(struct parser *p, enum duration_level level,
                               const struct place *place, struct duration *out);

/* step(), range(), max_of(a, b) or min_of(a, b). */
static enum err duration_function(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                  const struct place *place, struct duration *out)
{
    struct token name = parser_take(p);
    bool two_args = name.kind == TOKEN_MAX_OF || name.kind == TOKEN_MIN_OF;
    struct duration arg = {0};
    enum err e;

    out->start = name.start;
    note_expression(p, out);
    if (!parser_accept(p, TOKEN_LEFT_PAREN))
        return unexpected_at(p, place);
    for (int i = 0; two_args && i < 2; i++) {
        if (i > 0 && !parser_accept(p, TOKEN_COMMA))
            return unexpected_at(p, place);
        e = parse_duration(p, DURATION_ADD, place, &arg);
        if (e != ERR_OK)
            return e;
    }
    if (!parser_accept(p, TOKEN_RIGHT_PAREN))
        return unexpected_at(p, place);
    return ERR_OK;
}

static enum err duration_paren(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                               const struct place *place, struct duration *out)
{
    struct duration inner = {0};
    enum err e;

    out->start = parser_take(p).start;
    note_expression(p, out);
    e = parse_duration(p, DURATION_ADD, place, &inner);
    if (e != ERR_OK)
        return e;
    return parser_accept(p, TOKEN_RIGHT_PAREN) ? ERR_OK : unexpected_at(p, place);
}

static enum err duration_apply_sign(struct parser *p, const struct token *sign, struct duration *d)
{
    d->start = sign->start;
    if (d->literal && sign->kind == TOKEN_SUB)
        d->seconds = -d->seconds;
    return d->literal ? check_range(p, d->seconds, sign->start) : ERR_OK;
}

static enum err duration_operand(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                 const struct place *place, struct duration *out)
{
    if (at_number(p))
        return duration_literal(p, out);
    if (at_sign(p)) {
        struct token sign = parser_take(p);
        enum err e = parse_duration(p, DURATION_POW, place, out);

        return e == ERR_OK ? duration_apply_sign(p, &sign, out) : e;
    }
    if (p->token.kind >= TOKEN_STEP && p->token.kind <= TOKEN_MIN_OF)
        return duration_function(p, place, out);
    if (parser_at(p, TOKEN_LEFT_PAREN))
        return duration_paren(p, place, out);
    return unexpected_at(p, place);
}

/* Level of a duration operator; DURATION_TIGHTEST + 1 when the token is none. */
static unsigned duration_operator_level(enum token_kind k)
{
    switch (k) {
    case TOKEN_ADD:
    case TOKEN_SUB:
        return DURATION_ADD;
    case TOKEN_MUL:
    case TOKEN_DIV:
    case TOKEN_MOD:
        return DURATION_MUL;
    case TOKEN_POW:
        return DURATION_POW;
    default:
        return DURATION_TIGHTEST + 1;
    }
}

/* Operators of `level` or tighter behind *d. */
static enum err duration_operators(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                   enum duration_level level, const struct place *place,
                                   struct duration *d)
{
    for (;;) {
        unsigned found = duration_operator_level(p->token.kind);
        struct token op;
        struct duration rhs = {0};
        enum err e;

        if (found > DURATION_TIGHTEST || found < level)
            return ERR_OK;
        op = parser_take(p);
        note_expression(p, d);
        e = parse_duration(p, found == DURATION_POW ? DURATION_POW : found + 1, place, &rhs);
        if (e != ERR_OK)
            return e;
        if (parser_at(p, TOKEN_ERROR)) /* found while looking for a tighter operator */
            return unexpected_at(p, place);
        if ((op.kind == TOKEN_DIV || op.kind == TOKEN_MOD) && rhs.literal && rhs.seconds == 0)
            return parser_fail(p, op.start, "%s by zero",
                               op.kind == TOKEN_DIV ? "division" : "modulo");
    }
}

static enum err parse_duration(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                               enum duration_level level, const struct place *place,
                               struct duration *out)
{
    enum err e = parser_enter(p);

    if (e != ERR_OK)
        return e;
    e = duration_operand(p, place, out);
    if (e == ERR_OK)
        e = duration_operators(p, level, place, out);
    p->depth--;
    return e;
}

/* Behind `offset` a literal ends the duration, so that `a offset 5m + 1` adds to `a`. */
static enum err parse_offset_duration(struct parser *p, struct duration *out)
{
    struct token sign = p->token;
    bool has_sign = at_sign(p);
    bool goes_on;
    enum err e;

    if (has_sign)
        (void)parser_take(p);
    goes_on = has_sign ? at_sign(p) : parser_at(p, TOKEN_LEFT_PAREN);
    e = has_sign && at_number(p) ? duration_number(p, out)
                                 : duration_operand(p, &place_offset, out);
    if (e == ERR_OK && has_sign)
        e = duration_apply_sign(p, &sign, out);
    if (e == ERR_OK && goes_on)
        e = duration_operators(p, DURATION_ADD, &place_offset, out);
    return e;
}

/* Prometheus rounds to nanoseconds and drops what is below a millisecond. */
static int64_t duration_ms(double seconds)
{
    double ns = round(seconds * 1e9);

    if (ns >= 0x1p63)
        return INT64_MAX / 1000000;
    if (ns <= -0x1p63)
        return INT64_MIN / 1000000;
    return (int64_t)ns / 1000000;
}

/* A duration in brackets, which must be above zero. */
static enum err parse_positive_duration(struct parser *p, const struct place *place,
                                        struct duration *out)
{
    enum err e = parse_duration(p, DURATION_ADD, place, out);

    if (e != ERR_OK)
        return e;
    if (parser_at(p, TOKEN_ERROR)) /* found while looking for an operator */
        return unexpected_at(p, place);
    if (out->literal && !(out->seconds > 0))
        return parser_fail(p, out->start, "duration must be greater than 0");
    return ERR_OK;
}

static enum err matrix_new(struct parser *p, struct node **n, uint32_t bracket, int64_t range_ms)
{
    struct node *selector = *n;
    const char *fault = NULL;

    if (selector->kind != NODE_SELECTOR)
        fault = "ranges only allowed for vector selectors";
    else if (selector->u.selector.shift.offset_ms != 0)
        fault = "no offset modifiers allowed before range";
    else if (selector->u.selector.shift.at != AT_NONE)
        fault = "no @ modifiers allowed before range";
    if (fault != NULL)
        return parser_fail(p, bracket, "%s", fault);
    *n = parser_node_new(p, NODE_MATRIX, VALUE_MATRIX, selector->position.start, p->last_end);
    if (*n == NULL)
        return parser_error(p);
    (*n)->u.matrix.selector = selector;
    (*n)->u.matrix.range_ms = range_ms;
    return parser_set_depth(p, *n, selector->depth + 1);
}

static enum err subquery_new(struct parser *p, struct node **n, int64_t range_ms, int64_t step_ms)
{
    struct node *inner = *n;

    *n = parser_node_new(p, NODE_SUBQUERY, VALUE_MATRIX, inner->position.start, p->last_end);
    if (*n == NULL)
        return parser_error(p);
    (*n)->u.subquery.expr = inner;
    (*n)->u.subquery.range_ms = range_ms;
    (*n)->u.subquery.step_ms = step_ms;
    return parser_set_depth(p, *n, inner->depth + 1);
}

static enum err parse_bracket(struct parser *p, struct node **n)
{
    uint32_t bracket = parser_take(p).start;
    struct duration range = {0}, step = {true, 0, 0};
    enum err e = parse_positive_duration(p, &place_range, &range);

    if (e != ERR_OK)
        return e;
    if (parser_accept(p, TOKEN_RIGHT_BRACKET))
        return matrix_new(p, n, bracket, duration_ms(range.seconds));
    if (!parser_accept(p, TOKEN_COLON))
        return unexpected_at(p, &place_range_end);
    if (!parser_at(p, TOKEN_RIGHT_BRACKET)) {
        e = parse_positive_duration(p, &place_step, &step);
        if (e != ERR_OK)
            return e;
    }
    if (!parser_accept(p, TOKEN_RIGHT_BRACKET))
        return unexpected_at(p, &place_step_end);
    return subquery_new(p, n, duration_ms(range.seconds), duration_ms(step.seconds));
}

/* Where offset and @ of an expression are kept; NULL when it takes none. */
static struct time_shift *shift_of(struct node *n)
{
    switch (n->kind) {
    case NODE_SELECTOR:
        return &n->u.selector.shift;
    case NODE_MATRIX:
        return &n->u.matrix.selector->u.selector.shift;
    case NODE_SUBQUERY:
        return &n->u.subquery.shift;
    default:
        return NULL;
    }
}

static const char must_follow_selector[] = "modifier must be preceded by an instant vector "
                                           "selector or range vector selector or a subquery";

static enum err parse_offset(struct parser *p, struct node *n)
{
    struct time_shift *shift = shift_of(n);
    struct duration d = {0};
    enum err e;

    (void)parser_take(p);
    e = parse_offset_duration(p, &d);
    if (e != ERR_OK)
        return e;
    if (shift == NULL)
        return parser_fail(p, n->position.start, "offset %s", must_follow_selector);
    if (shift->offset_ms != 0)
        return parser_fail(p, n->position.start, "offset may not be set multiple times");
    shift->offset_ms = duration_ms(d.seconds);
    n->position.end = p->last_end;
    return ERR_OK;
}

/* The time behind @: a signed number of seconds, start() or end(). */
static enum err parse_at_time(struct parser *p, enum at_kind *kind, double *seconds)
{
    static const struct place place = {"@", "timestamp"};
    struct token sign = p->token;
    struct node *number;
    enum err e;

    *kind = AT_TIME;
    *seconds = 0;
    if (parser_at(p, TOKEN_START) || parser_at(p, TOKEN_END)) {
        *kind = parser_take(p).kind == TOKEN_START ? AT_START : AT_END;
        if (!parser_accept(p, TOKEN_LEFT_PAREN) || !parser_accept(p, TOKEN_RIGHT_PAREN))
            return unexpected_at(p, &place);
        return ERR_OK;
    }
    if (at_sign(p))
        (void)parser_take(p);
    if (!at_number(p))
        return unexpected_at(p, &place);
    e = parse_number(p, &number);
    if (e == ERR_OK)
        *seconds = sign.kind == TOKEN_SUB ? -number->u.number.value : number->u.number.value;
    return e;
}

static enum err parse_at(struct parser *p, struct node *n)
{
    struct time_shift *shift = shift_of(n);
    enum at_kind kind;
    double seconds, ms;
    enum err e;

    (void)parser_take(p);
    e = parse_at_time(p, &kind, &seconds);
    if (e != ERR_OK)
        return e;
    ms = round(seconds * 1000);
    /* Milliseconds must fit too: Prometheus lets the conversion overflow there. */
    if (!(ms < 0x1p63 && ms > -0x1p63)) {
        if (isfinite(seconds))
            return parser_fail(p, n->position.start, "timestamp out of bounds for @ modifier: %f",
                               seconds);
        return parser_fail(p, n->position.start, "timestamp out of bounds for @ modifier: %s",
                           isnan(seconds) ? "NaN"
                           : seconds > 0  ? "+Inf"
                                          : "-Inf");
    }
    if (shift == NULL)
        return parser_fail(p, n->position.start, "@ %s", must_follow_selector);
    if (shift->at != AT_NONE)
        return parser_fail(p, n->position.start, "@ <timestamp> may not be set multiple times");
    shift->at = kind;
    shift->at_ms = (int64_t)ms;
    n->position.end = p->last_end;
    return ERR_OK;
}

/* smoothed and anchored: refused, as wrong where Prometheus does so too. */
static enum err parse_range_modifier(struct parser *p, const struct node *n)
{
    struct token t = parser_take(p);
    const char *name = t.kind == TOKEN_SMOOTHED ? "smoothed" : "anchored";

    if (n->kind == NODE_SUBQUERY)
        return parser_fail(p, n->position.start, "%s modifier is not supported for subqueries",
                           name);
    if (n->kind != NODE_SELECTOR && n->kind != NODE_MATRIX)
        return parser_fail(p, n->position.start, "%s modifier not implemented", name);
    parser_note_unsupported(p, t.start, "%s modifier", name);
    return ERR_OK;
}

enum err parse_modifiers(struct parser *p, struct node **n)
{
    enum err e = ERR_OK;

    while (e == ERR_OK) {
        if (parser_at(p, TOKEN_LEFT_BRACKET)) {
            e = parse_bracket(p, n);
        } else if (parser_at(p, TOKEN_OFFSET)) {
            e = parse_offset(p, *n);
        } else if (parser_at(p, TOKEN_AT)) {
            e = parse_at(p, *n);
        } else if (parser_at(p, TOKEN_SMOOTHED) || parser_at(p, TOKEN_ANCHORED)) {
            e = parse_range_modifier(p, *n);
        } else {
            break;
        }
    }
    return e;
}
