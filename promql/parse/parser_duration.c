/*
 * What is bound to an expression from the right: [range], [range:step], offset, @, and the range
 * modifiers smoothed and anchored. Durations are expressions; durations.c evaluates them.
 */
#include "promql/parse/parser_internal.h"

#include <math.h>

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

/* Precedence of a duration's operators, loosest first. */
enum duration_level {
    LEVEL_DURATION_NONE,
    LEVEL_DURATION_ADD,
    LEVEL_DURATION_MUL,
    LEVEL_DURATION_POW,
};

static enum err unexpected_at(struct parser *p, const struct place *place)
{
    return parser_unexpected(p, place->context, place->expected);
}

/* A node over up to two others; `start` is where it begins unless both are there. */
static enum err duration_new(struct parser *p, enum duration_op op, const struct duration_expr *lhs,
                             const struct duration_expr *rhs, struct position_range position,
                             struct duration_expr **out)
{
    struct duration_expr *d = ARENA_NEW(p->arena, struct duration_expr);
    uint32_t left = lhs != NULL ? lhs->depth : 0, right = rhs != NULL ? rhs->depth : 0;

    if (d == NULL)
        return parser_out_of_memory(p);
    *d = (struct duration_expr){.op = op,
                                .lhs = lhs,
                                .rhs = rhs,
                                .position = position,
                                .depth = (left > right ? left : right) + 1};
    if (lhs != NULL)
        d->position.start = lhs->position.start;
    if (rhs != NULL)
        d->position.end = rhs->position.end;
    *out = d;
    return d->depth > PROMQL_DEPTH_MAX ? parser_fail_depth(p, position.start) : ERR_OK;
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
static enum err duration_number(struct parser *p, struct duration_expr **out)
{
    struct node *n = NULL;
    enum err e = parse_number(p, &n);

    if (e == ERR_OK)
        e = duration_new(p, DURATION_NUMBER, NULL, NULL, n->position, out);
    if (e != ERR_OK)
        return e;
    ASSERT(*out != NULL);
    (*out)->seconds = n->u.number.value;
    (*out)->is_duration = n->u.number.is_duration;
    return ERR_OK;
}

static enum err duration_literal(struct parser *p, struct duration_expr **out)
{
    enum err e = duration_number(p, out);

    return e == ERR_OK ? check_range(p, (*out)->seconds, (*out)->position.start) : e;
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
                               const struct place *place, struct duration_expr **out);

static bool at_duration_function(const struct parser *p)
{
    return p->token.kind >= TOKEN_STEP && p->token.kind <= TOKEN_MIN_OF;
}

/* step(), range(), max_of(a, b) or min_of(a, b). */
static enum err duration_function(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                  const struct place *place, struct duration_expr **out)
{
    static const enum duration_op ops[] = {
        [0] = DURATION_STEP,
        [TOKEN_RANGE - TOKEN_STEP] = DURATION_RANGE,
        [TOKEN_MAX_OF - TOKEN_STEP] = DURATION_MAX_OF,
        [TOKEN_MIN_OF - TOKEN_STEP] = DURATION_MIN_OF,
    };
    struct token name = parser_take(p);
    bool two_args = name.kind == TOKEN_MAX_OF || name.kind == TOKEN_MIN_OF;
    struct duration_expr *args[2] = {NULL, NULL};
    enum err e;

    if (!parser_accept(p, TOKEN_LEFT_PAREN))
        return unexpected_at(p, place);
    for (int i = 0; two_args && i < 2; i++) {
        if (i > 0 && !parser_accept(p, TOKEN_COMMA))
            return unexpected_at(p, place);
        e = parse_duration(p, LEVEL_DURATION_ADD, place, &args[i]);
        if (e != ERR_OK)
            return e;
    }
    if (!parser_accept(p, TOKEN_RIGHT_PAREN))
        return unexpected_at(p, place);
    return duration_new(p, ops[name.kind - TOKEN_STEP], args[0], args[1],
                        (struct position_range){name.start, p->last_end}, out);
}

static enum err duration_paren(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                               const struct place *place, struct duration_expr **out)
{
    enum err e;

    (void)parser_take(p);
    e = parse_duration(p, LEVEL_DURATION_ADD, place, out);
    if (e != ERR_OK)
        return e;
    if (!parser_accept(p, TOKEN_RIGHT_PAREN))
        return unexpected_at(p, place);
    (*out)->wrapped = (*out)->op != DURATION_NUMBER;
    return ERR_OK;
}

/* Literals take their sign in; a plus in front of anything else leaves no trace, except where
 * `keeps_plus` is set. */
static enum err duration_apply_sign(struct parser *p, const struct token *sign, bool keeps_plus,
                                    struct duration_expr **d)
{
    bool negative = sign->kind == TOKEN_SUB;

    ASSERT(*d != NULL);
    if ((*d)->op == DURATION_NUMBER) {
        (*d)->position.start = sign->start;
        if (negative)
            (*d)->seconds = -(*d)->seconds;
        return check_range(p, (*d)->seconds, sign->start);
    }
    if (!negative && !keeps_plus)
        return ERR_OK;
    return duration_new(p, negative ? DURATION_SUB : DURATION_ADD, NULL, *d,
                        (struct position_range){sign->start, sign->start}, d);
}

static enum err duration_operand(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                 const struct place *place, struct duration_expr **out)
{
    if (at_number(p))
        return duration_literal(p, out);
    if (at_sign(p)) {
        struct token sign = parser_take(p);
        enum err e = parse_duration(p, LEVEL_DURATION_POW, place, out);

        return e == ERR_OK ? duration_apply_sign(p, &sign, false, out) : e;
    }
    if (at_duration_function(p))
        return duration_function(p, place, out);
    if (parser_at(p, TOKEN_LEFT_PAREN))
        return duration_paren(p, place, out);
    return unexpected_at(p, place);
}

/* Level of a duration operator; LEVEL_DURATION_NONE when the token is none. */
static enum duration_level duration_operator(enum token_kind k, enum duration_op *op)
{
    static const struct {
        enum duration_level level;
        enum duration_op op;
    } table[] = {
        [TOKEN_ADD] = {LEVEL_DURATION_ADD, DURATION_ADD},
        [TOKEN_SUB] = {LEVEL_DURATION_ADD, DURATION_SUB},
        [TOKEN_MUL] = {LEVEL_DURATION_MUL, DURATION_MUL},
        [TOKEN_DIV] = {LEVEL_DURATION_MUL, DURATION_DIV},
        [TOKEN_MOD] = {LEVEL_DURATION_MUL, DURATION_MOD},
        [TOKEN_POW] = {LEVEL_DURATION_POW, DURATION_POW},
    };

    if ((size_t)k >= sizeof table / sizeof table[0])
        return LEVEL_DURATION_NONE;
    *op = table[k].op;
    return table[k].level;
}

/* Operators of `level` or tighter behind *d. */
static enum err duration_operators(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                                   enum duration_level level, const struct place *place,
                                   struct duration_expr **d)
{
    for (;;) {
        enum duration_op op = DURATION_ADD;
        enum duration_level found = duration_operator(p->token.kind, &op);
        struct token t;
        struct duration_expr *rhs = NULL;
        enum err e;

        if (found == LEVEL_DURATION_NONE || found < level)
            return ERR_OK;
        t = parser_take(p);
        e = parse_duration(p, found == LEVEL_DURATION_POW ? found : found + 1, place, &rhs);
        if (e != ERR_OK)
            return e;
        if (parser_at(p, TOKEN_ERROR)) /* found while looking for a tighter operator */
            return unexpected_at(p, place);
        if ((op == DURATION_DIV || op == DURATION_MOD) && rhs->op == DURATION_NUMBER &&
            rhs->seconds == 0)
            return parser_fail(p, t.start, "%s by zero",
                               op == DURATION_DIV ? "division" : "modulo");
        ASSERT(*d != NULL);
        e = duration_new(p, op, *d, rhs, (*d)->position, d);
        if (e != ERR_OK)
            return e;
    }
}

static enum err parse_duration(struct parser *p, // NOLINT(misc-no-recursion): PROMQL_DEPTH_MAX
                               enum duration_level level, const struct place *place,
                               struct duration_expr **out)
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
static enum err parse_offset_duration(struct parser *p, struct duration_expr **out)
{
    struct token sign = p->token;
    bool has_sign = at_sign(p);
    bool goes_on, keeps_plus;
    enum err e;

    if (has_sign)
        (void)parser_take(p);
    goes_on = has_sign ? at_sign(p) : parser_at(p, TOKEN_LEFT_PAREN);
    keeps_plus = at_duration_function(p);
    e = has_sign && at_number(p) ? duration_number(p, out)
                                 : duration_operand(p, &place_offset, out);
    if (e == ERR_OK && has_sign)
        e = duration_apply_sign(p, &sign, keeps_plus, out);
    if (e == ERR_OK && goes_on)
        e = duration_operators(p, LEVEL_DURATION_ADD, &place_offset, out);
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
                                        struct duration_expr **out)
{
    enum err e = parse_duration(p, LEVEL_DURATION_ADD, place, out);

    if (e != ERR_OK)
        return e;
    if (parser_at(p, TOKEN_ERROR)) /* found while looking for an operator */
        return unexpected_at(p, place);
    ASSERT(*out != NULL);
    if ((*out)->op == DURATION_NUMBER && !((*out)->seconds > 0))
        return parser_fail(p, (*out)->position.start, "duration must be greater than 0");
    return ERR_OK;
}

/* Literals are turned into milliseconds at once, other expressions when the query runs. */
static void duration_store(const struct duration_expr *d, int64_t *ms,
                           const struct duration_expr **expr)
{
    bool literal;

    ASSERT(d != NULL);
    literal = d->op == DURATION_NUMBER;
    *ms = literal ? duration_ms(d->seconds) : 0;
    *expr = literal ? NULL : d;
}

static enum err matrix_new(struct parser *p, struct node **n, uint32_t bracket,
                           const struct duration_expr *range)
{
    struct node *selector = *n;
    const char *fault = NULL;

    if (selector->kind != NODE_SELECTOR)
        fault = "ranges only allowed for vector selectors";
    else if (selector->u.selector.shift.offset_ms != 0)
        fault = "no offset modifiers allowed before range";
    else if (selector->u.selector.shift.at == AT_TIME) /* start() and end() are let pass */
        fault = "no @ modifiers allowed before range";
    if (fault != NULL)
        return parser_fail(p, bracket, "%s", fault);
    *n = parser_node_new(p, NODE_MATRIX, VALUE_MATRIX, selector->position.start, p->last_end);
    if (*n == NULL)
        return parser_error(p);
    (*n)->u.matrix.selector = selector;
    duration_store(range, &(*n)->u.matrix.range_ms, &(*n)->u.matrix.range_expr);
    return parser_set_depth(p, *n, selector->depth + 1);
}

/* `step` is NULL where none is given. */
static enum err subquery_new(struct parser *p, struct node **n, const struct duration_expr *range,
                             const struct duration_expr *step)
{
    struct node *inner = *n;

    *n = parser_node_new(p, NODE_SUBQUERY, VALUE_MATRIX, inner->position.start, p->last_end);
    if (*n == NULL)
        return parser_error(p);
    (*n)->u.subquery.expr = inner;
    duration_store(range, &(*n)->u.subquery.range_ms, &(*n)->u.subquery.range_expr);
    if (step != NULL)
        duration_store(step, &(*n)->u.subquery.step_ms, &(*n)->u.subquery.step_expr);
    return parser_set_depth(p, *n, inner->depth + 1);
}

static enum err parse_bracket(struct parser *p, struct node **n)
{
    uint32_t bracket = parser_take(p).start;
    struct duration_expr *range = NULL, *step = NULL;
    enum err e = parse_positive_duration(p, &place_range, &range);

    if (e != ERR_OK)
        return e;
    if (parser_accept(p, TOKEN_RIGHT_BRACKET))
        return matrix_new(p, n, bracket, range);
    if (!parser_accept(p, TOKEN_COLON))
        return unexpected_at(p, &place_range_end);
    if (!parser_at(p, TOKEN_RIGHT_BRACKET)) {
        e = parse_positive_duration(p, &place_step, &step);
        if (e != ERR_OK)
            return e;
    }
    if (!parser_accept(p, TOKEN_RIGHT_BRACKET))
        return unexpected_at(p, &place_step_end);
    return subquery_new(p, n, range, step);
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
    struct duration_expr *d = NULL;
    enum err e;

    (void)parser_take(p);
    e = parse_offset_duration(p, &d);
    if (e != ERR_OK)
        return e;
    if (shift == NULL)
        return parser_fail(p, n->position.start, "offset %s", must_follow_selector);
    if (shift->offset_ms != 0 || shift->offset_expr != NULL)
        return parser_fail(p, n->position.start, "offset may not be set multiple times");
    duration_store(d, &shift->offset_ms, &shift->offset_expr);
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

/* smoothed and anchored. */
static enum err parse_range_modifier(struct parser *p, struct node *n)
{
    bool smoothed = parser_take(p).kind == TOKEN_SMOOTHED;
    const char *name = smoothed ? "smoothed" : "anchored";
    enum range_extension wanted = smoothed ? EXTENSION_SMOOTHED : EXTENSION_ANCHORED, *extension;

    if (!p->options->extended_range_selectors)
        return parser_fail(p, n->position.start, "%s modifier is experimental and not enabled",
                           name);
    if (n->kind == NODE_SUBQUERY)
        return parser_fail(p, n->position.start, "%s modifier is not supported for subqueries",
                           name);
    if (n->kind != NODE_SELECTOR && n->kind != NODE_MATRIX)
        return parser_fail(p, n->position.start, "%s modifier not implemented", name);
    extension = &(n->kind == NODE_MATRIX ? n->u.matrix.selector : n)->u.selector.extension;
    if (*extension != EXTENSION_NONE && *extension != wanted)
        return parser_fail(p, n->position.start,
                           "anchored and smoothed modifiers cannot be used together");
    *extension = wanted;
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
