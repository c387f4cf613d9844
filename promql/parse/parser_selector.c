/*
 * The leaves of an expression: numbers, strings, selectors, and the label lists of groupings.
 */
#include "promql/parse/parser_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/float_text.h"
#include "promql/parse/text_internal.h"

/* Of one text whose expressions nobody charges. */
enum { UNCHARGED_REGEX_BYTES_MAX = 64 << 20 };

bool token_is_metric_identifier(enum token_kind k)
{
    switch (k) {
    case TOKEN_IDENTIFIER:
    case TOKEN_METRIC_IDENTIFIER:
    case TOKEN_BY:
    case TOKEN_WITHOUT:
    case TOKEN_OFFSET:
    case TOKEN_FILL:
    case TOKEN_FILL_LEFT:
    case TOKEN_FILL_RIGHT:
    case TOKEN_SMOOTHED:
    case TOKEN_ANCHORED:
    case TOKEN_LAND:
    case TOKEN_LOR:
    case TOKEN_LUNLESS:
        return true;
    default:
        return token_is_aggregator(k) || (k >= TOKEN_START && k <= TOKEN_MIN_OF);
    }
}

bool token_starts_expression(enum token_kind k)
{
    return token_is_metric_identifier(k) || k == TOKEN_NUMBER || k == TOKEN_DURATION ||
           k == TOKEN_STRING || k == TOKEN_LEFT_PAREN || k == TOKEN_LEFT_BRACE || k == TOKEN_ADD ||
           k == TOKEN_SUB;
}

/* Keywords are label names too, in groupings; `without` is not, as in Prometheus. */
static bool token_is_label(enum token_kind k)
{
    return (token_is_metric_identifier(k) && k != TOKEN_WITHOUT) || k == TOKEN_BOOL ||
           k == TOKEN_GROUP_LEFT || k == TOKEN_GROUP_RIGHT || k == TOKEN_IGNORING ||
           k == TOKEN_ON || k == TOKEN_ATAN2;
}

/* Go's rule: an underscore stands between digits, or behind the base prefix. */
static bool underscores_valid(struct str s)
{
    bool hex = s.size >= 2 && s.data[0] == '0' && (s.data[1] | 0x20) == 'x';
    char before = hex ? '0' : '^';

    for (size_t i = hex ? 2 : 0; i < s.size; i++) {
        char c = s.data[i], lower = (char)(c | 0x20);

        if ((c >= '0' && c <= '9') || (hex && lower >= 'a' && lower <= 'f')) {
            before = '0';
        } else if (c == '_') {
            if (before != '0')
                return false;
            before = '_';
        } else {
            if (before == '_')
                return false;
            before = '!';
        }
    }
    return before != '_';
}

/* An integer as Go's ParseInt reads it with base 0: hexadecimal, octal by a leading zero, decimal.
 * False when it is none or larger than int64. */
static bool parse_integer(struct str s, double *out)
{
    uint64_t base = 10, v = 0;
    size_t i = 0;

    if (s.size >= 2 && s.data[0] == '0' && (s.data[1] | 0x20) == 'x') {
        base = 16;
        i = 2;
    } else if (s.size >= 2 && s.data[0] == '0') {
        base = 8;
        i = 1;
    }
    if (i == s.size)
        return false;
    for (; i < s.size; i++) {
        char c = s.data[i], lower = (char)(c | 0x20);
        uint64_t digit = c >= '0' && c <= '9'           ? (uint64_t)(c - '0')
                         : lower >= 'a' && lower <= 'f' ? (uint64_t)(lower - 'a') + 10
                                                        : 16;

        if (digit >= base || v > (INT64_MAX - digit) / base)
            return false;
        v = v * base + digit;
    }
    *out = (double)(int64_t)v;
    return true;
}

/* A number without underscores. */
static enum err parse_digits(struct str s, double *out)
{
    if (parse_integer(s, out))
        return ERR_OK;
    if (!float_parse(s, out))
        return ERR_INVALID;
    return isinf(*out) && (s.data[0] | 0x20) != 'i' ? ERR_LIMIT : ERR_OK;
}

enum err promql_number_parse(struct str text, double *out)
{
    struct arena arena;
    char *digits;
    size_t count = 0;
    enum err e = ERR_NOMEM;

    if (text.size == 0)
        return ERR_INVALID;
    if (memchr(text.data, '_', text.size) == NULL)
        return parse_digits(text, out);
    if (!underscores_valid(text))
        return ERR_INVALID;
    arena_init(&arena, NULL);
    digits = arena_alloc(&arena, text.size);
    for (size_t i = 0; digits != NULL && i < text.size; i++) {
        if (text.data[i] != '_')
            digits[count++] = text.data[i];
    }
    if (digits != NULL)
        e = parse_digits((struct str){digits, count}, out);
    arena_done(&arena);
    return e;
}

static enum err number_value(struct parser *p, const struct token *t, double *out)
{
    enum err e = promql_number_parse(t->text, out);

    if (e == ERR_OK)
        return ERR_OK;
    return parser_fail(p, t->start, "error parsing number: strconv.ParseFloat: parsing %s: %s",
                       text_quote(t->text, p->arena),
                       e == ERR_LIMIT ? "value out of range" : "invalid syntax");
}

enum err parse_number(struct parser *p, struct node **out)
{
    struct token t = parser_take(p);
    struct node *n;
    const char *reason = NULL;
    uint64_t ns = 0, whole;
    enum err e;

    n = parser_node_new(p, NODE_NUMBER, VALUE_SCALAR, t.start, t.start + (uint32_t)t.text.size);
    if (n == NULL)
        return parser_error(p);
    if (t.kind == TOKEN_NUMBER) {
        e = number_value(p, &t, &n->u.number.value);
        if (e != ERR_OK)
            return e;
    } else {
        if (!duration_parse_ns(t.text, p->arena, &ns, &reason))
            return parser_fail(p, t.start, "%s", reason);
        /* Seconds and the rest apart, as Go's Duration.Seconds() does, so that the bits agree. */
        whole = ns / 1000000000;
        n->u.number.value = (double)whole + (double)(ns % 1000000000) / 1e9;
        n->u.number.is_duration = true;
    }
    *out = n;
    return ERR_OK;
}

static enum err unquote(struct parser *p, const struct token *t, struct str *out)
{
    enum err e = text_unquote(t->text, p->arena, out);

    if (e == ERR_INVALID)
        return parser_fail(p, t->start, "error unquoting string %s: invalid syntax",
                           text_quote(t->text, p->arena));
    return e == ERR_OK ? ERR_OK : parser_out_of_memory(p);
}

enum err parse_string(struct parser *p, struct node **out)
{
    struct token t = parser_take(p);
    struct node *n =
        parser_node_new(p, NODE_STRING, VALUE_STRING, t.start, t.start + (uint32_t)t.text.size);

    if (n == NULL)
        return parser_error(p);
    *out = n;
    return unquote(p, &t, &n->u.string);
}

/* Compiled expressions live outside the arena but count against its budget. */
static enum err charge_regex(struct parser *p, size_t bytes)
{
    struct promql_expr *x = p->expr;
    struct errinfo why = {0};

    if (x->budget != NULL && budget_charge(x->budget, bytes, &why) != ERR_OK) {
        (void)errinfo_set(p->ei, ERR_LIMIT, 0, "%s", why.message);
        return ERR_LIMIT;
    }
    x->regex_bytes += bytes;
    if (x->budget == NULL && x->regex_bytes > UNCHARGED_REGEX_BYTES_MAX) {
        (void)errinfo_set(p->ei, ERR_LIMIT, 0,
                          "regular expressions need more than %d bytes of memory",
                          UNCHARGED_REGEX_BYTES_MAX);
        return ERR_LIMIT;
    }
    return ERR_OK;
}

/* A matcher of its own in the arena, listed to be freed with the expression. */
static enum err matcher_add(struct parser *p, enum matcher_kind kind, struct str name,
                            struct str value, uint32_t start)
{
    struct promql_expr *x = p->expr;
    struct matcher *m = ARENA_NEW(p->arena, struct matcher);
    struct errinfo why = {0};
    enum err e;

    if (m == NULL)
        return parser_out_of_memory(p);
    x->matchers = parser_grow(p, x->matchers, x->matcher_count, &p->matcher_capacity,
                              sizeof(struct matcher *));
    if (x->matchers == NULL)
        return parser_error(p);
    e = matcher_init(m, kind, name, value, p->arena, &why);
    if (e == ERR_INVALID)
        return parser_fail(p, start, "%s", why.message);
    if (e != ERR_OK)
        return errinfo_set(p->ei, e, 0, "%s", why.message);
    x->matchers[x->matcher_count++] = m;
    return m->regex != NULL ? charge_regex(p, regex_memory(m->regex)) : ERR_OK;
}

static bool matcher_kind_of(enum token_kind k, enum matcher_kind *out)
{
    switch (k) {
    case TOKEN_EQL:
        *out = MATCHER_EQUAL;
        return true;
    case TOKEN_NEQ:
        *out = MATCHER_NOT_EQUAL;
        return true;
    case TOKEN_EQL_REGEX:
        *out = MATCHER_REGEX;
        return true;
    case TOKEN_NEQ_REGEX:
        *out = MATCHER_NOT_REGEX;
        return true;
    default:
        return false;
    }
}

/* `name op "value"`, `"quoted name" op "value"`, or a quoted metric name alone. */
static enum err parse_matcher(struct parser *p)
{
    static const char context[] = "label matching";
    struct token t = p->token, quoted;
    struct str name = t.text, value;
    enum matcher_kind kind;
    enum err e;

    if (t.kind != TOKEN_IDENTIFIER && t.kind != TOKEN_STRING)
        return parser_unexpected(p, context, "identifier or \"}\"");
    (void)parser_take(p);
    if (t.kind == TOKEN_STRING) {
        e = unquote(p, &t, &name);
        if (e != ERR_OK)
            return e;
    }
    if (!matcher_kind_of(p->token.kind, &kind)) {
        if (t.kind == TOKEN_IDENTIFIER || parser_at(p, TOKEN_ERROR))
            return parser_unexpected(p, context, "label matching operator");
        return matcher_add(p, MATCHER_EQUAL, LABEL_METRIC_NAME, name, t.start);
    }
    (void)parser_take(p);
    if (!parser_at(p, TOKEN_STRING))
        return parser_unexpected(p, context, "string");
    quoted = parser_take(p);
    e = unquote(p, &quoted, &value);
    return e == ERR_OK ? matcher_add(p, kind, name, value, t.start) : e;
}

static enum err parse_braces(struct parser *p)
{
    enum err e;

    (void)parser_take(p);
    while (!parser_accept(p, TOKEN_RIGHT_BRACE)) {
        e = parse_matcher(p);
        if (e != ERR_OK)
            return e;
        if (!parser_accept(p, TOKEN_COMMA) && !parser_at(p, TOKEN_RIGHT_BRACE))
            return parser_unexpected(p, "label matching", "\",\" or \"}\"");
    }
    return ERR_OK;
}

/* Moves the matchers made since `first` into one array, which is what a selector shows. */
static enum err matchers_gather(struct parser *p, size_t first, struct node *n)
{
    struct promql_expr *x = p->expr;
    size_t count = x->matcher_count - first;
    struct matcher *array = ARENA_ARRAY(p->arena, count, struct matcher);

    if (array == NULL)
        return parser_out_of_memory(p);
    for (size_t i = 0; i < count; i++) {
        array[i] = *x->matchers[first + i];
        x->matchers[first + i] = &array[i];
    }
    n->u.selector.matchers = array;
    n->u.selector.matcher_count = count;
    p->selector_matchers = array;
    return ERR_OK;
}

enum err parse_selector(struct parser *p, const struct token *name, struct node **out)
{
    size_t first = p->expr->matcher_count;
    uint32_t start = name != NULL ? name->start : p->token.start;
    struct node *n = parser_node_new(p, NODE_SELECTOR, VALUE_VECTOR, start, start);
    enum err e = ERR_OK;

    if (n == NULL)
        return parser_error(p);
    p->expr->selector_count++;
    if (name != NULL)
        n->position.end = start + (uint32_t)name->text.size;
    if (parser_at(p, TOKEN_LEFT_BRACE)) {
        e = parse_braces(p);
        n->position.end = p->last_end;
    }
    if (e == ERR_OK && name != NULL) {
        n->u.selector.name = name->text;
        e = matcher_add(p, MATCHER_EQUAL, LABEL_METRIC_NAME, name->text, start);
    }
    if (e == ERR_OK)
        e = matchers_gather(p, first, n);
    *out = n;
    return e;
}

/* One label of a grouping: a word, or a quoted name. */
static enum err parse_grouping_label(struct parser *p, struct str *out)
{
    struct token t = p->token;
    enum err e;

    if (token_is_label(t.kind)) {
        *out = parser_take(p).text;
        return ERR_OK;
    }
    if (t.kind != TOKEN_STRING)
        return parser_unexpected(p, "grouping opts", "label");
    (void)parser_take(p);
    e = unquote(p, &t, out);
    if (e == ERR_OK && (out->size == 0 || !utf8_is_valid(*out)))
        return parser_fail(p, t.start, "invalid label name for grouping: %s",
                           text_quote(*out, p->arena));
    return e;
}

enum err parse_grouping_labels(struct parser *p, const struct str **out, size_t *out_count)
{
    struct str *labels = NULL;
    size_t count = 0, capacity = 0;
    enum err e;

    if (!parser_accept(p, TOKEN_LEFT_PAREN))
        return parser_unexpected(p, "grouping opts", "\"(\"");
    while (!parser_accept(p, TOKEN_RIGHT_PAREN)) {
        labels = parser_grow(p, labels, count, &capacity, sizeof *labels);
        if (labels == NULL)
            return parser_error(p);
        e = parse_grouping_label(p, &labels[count]);
        if (e != ERR_OK)
            return e;
        count++;
        if (!parser_accept(p, TOKEN_COMMA) && !parser_at(p, TOKEN_RIGHT_PAREN))
            return parser_unexpected(p, "grouping opts", "\",\" or \")\"");
    }
    *out = labels;
    *out_count = count;
    return ERR_OK;
}
