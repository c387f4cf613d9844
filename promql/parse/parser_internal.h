/*
 * The parser's state and what its files share: parser.c (expressions), parser_binary.c
 * (operators), parser_selector.c (braces, groupings, literals), parser_duration.c (brackets,
 * offset,
 * @), check.c (types).
 *
 * Every function that can fail has told p->ei why. The first error ends the parse. Language that
 * is known but not built is noted and parsed on, so that a wrong query is called wrong first.
 */
#ifndef RIMSTONE_PROMQL_PARSE_PARSER_INTERNAL_H
#define RIMSTONE_PROMQL_PARSE_PARSER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/err.h"
#include "promql/ast.h"
#include "promql/parse/lexer_internal.h"

struct parser {
    struct lexer lexer;
    struct token token; /* read, not taken yet */
    uint32_t last_end;  /* end of the token taken last */
    unsigned depth;     /* of parse_expression() calls */
    /* How many aggregations are open: inside one, an unexpected token is "in aggregation". */
    unsigned aggregation_depth;
    const struct promql_parse_options *options;
    struct arena *arena;
    struct promql_expr *expr; /* collects the matchers to free */
    size_t matcher_capacity;
    struct matcher *selector_matchers; /* of the selector parsed last, writable */
    struct errinfo unsupported;        /* the first such piece of language; code ERR_OK when none */
    struct errinfo *ei;
};

enum err parser_out_of_memory(struct parser *p);
/* The error that has been told already. */
static inline enum err parser_error(const struct parser *p)
{
    ASSERT(p->ei->code != ERR_OK);
    return p->ei->code;
}
/* Sets `line:column: parse error: ...` for a position in the query; returns ERR_INVALID. */
enum err parser_fail(struct parser *p, uint32_t start, const char *format, ...) PRINTF_LIKE(3, 4);
/* Notes "... is not supported yet" at a position. */
void parser_note_unsupported(struct parser *p, uint32_t start, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* The error for the current token: the scanner's own, or "unexpected ... in context, expected
 * ...". Both texts may be empty. */
enum err parser_unexpected(struct parser *p, const char *context, const char *expected);
/* The same where no rule knows better. */
enum err parser_unexpected_here(struct parser *p);

static inline bool parser_at(const struct parser *p, enum token_kind kind)
{
    return p->token.kind == kind;
}
/* Takes the current token and reads the next. */
struct token parser_take(struct parser *p);
/* Takes the token if it is of that kind. */
bool parser_accept(struct parser *p, enum token_kind kind);

/* NULL: out of memory, told. */
struct node *parser_node_new(struct parser *p, enum node_kind kind, enum value_type type,
                             uint32_t start, uint32_t end);
/* Counts one more level of recursion; the caller steps p->depth back on success. */
MUST_USE enum err parser_enter(struct parser *p);
/* Room for one more item behind `count`, by doubling; NULL: out of memory, told. */
void *parser_grow(struct parser *p, void *array, size_t count, size_t *capacity, size_t size);
/* Tells that the nesting at `start` is too deep: ERR_LIMIT. */
enum err parser_fail_depth(struct parser *p, uint32_t start);
/* Levels of nesting from `n` down; the left sides of a chain of binary operators count as one. */
MUST_USE enum err parser_set_depth(struct parser *p, struct node *n, uint32_t depth);

MUST_USE enum err parse_number(struct parser *p, struct node **out);
MUST_USE enum err parse_string(struct parser *p, struct node **out);
/* A selector; `name` is the metric name's token, already taken, or NULL. */
MUST_USE enum err parse_selector(struct parser *p, const struct token *name, struct node **out);
/* The labels in parentheses behind by, on, group_left, ... */
MUST_USE enum err parse_grouping_labels(struct parser *p, const struct str **out,
                                        size_t *out_count);
/* `[...]`, offset, @, smoothed and anchored behind an expression; *n is replaced. */
MUST_USE enum err parse_modifiers(struct parser *p, struct node **n);
/* bool, on/ignoring, group_left/group_right and fill behind the operator of n. */
MUST_USE enum err parse_matching(struct parser *p, struct node *n);

/* Precedence of binary operators, loosest first. */
enum binary_level {
    LEVEL_NONE,
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_COMPARE,
    LEVEL_ADD,
    LEVEL_MUL,
    LEVEL_POW,
};
/* LEVEL_NONE when the token is no binary operator. The histogram trims share a level with the
 * comparisons; *op is a stand-in for them, since they are refused. */
enum binary_level binary_op_of(enum token_kind k, enum binary_op *op);

bool token_is_metric_identifier(enum token_kind k);
bool token_starts_expression(enum token_kind k);

/* Type checks in Prometheus's order, so that the same error is found first. */
MUST_USE enum err check_types(struct parser *p, struct node *root);

#endif
