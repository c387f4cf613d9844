/*
 * The syntax tree of a PromQL expression, made by promql_parse() in one arena and immutable
 * afterwards. Positions are byte offsets into the query text; errors and annotations print them as
 * line:column.
 *
 * Chains of equal left-associative operators may be deeper than the limit on nesting: walk the
 * left-hand side of NODE_BINARY by a loop.
 */
#ifndef RIMSTONE_PROMQL_AST_H
#define RIMSTONE_PROMQL_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/labels.h"

enum { PROMQL_DEPTH_MAX = 500, PROMQL_QUERY_BYTES_MAX = 1 << 20 };

struct position_range {
    uint32_t start, end; /* [start, end) bytes of the query text */
};

enum value_type { VALUE_SCALAR, VALUE_VECTOR, VALUE_MATRIX, VALUE_STRING };
/* "scalar", "instant vector", "range vector", "string" as in Prometheus's error texts. */
const char *value_type_name(enum value_type t);

enum node_kind {
    NODE_NUMBER,
    NODE_STRING,
    NODE_SELECTOR, /* instant vector selector */
    NODE_MATRIX,   /* selector[range] */
    NODE_SUBQUERY, /* expr[range:step] */
    NODE_UNARY,
    NODE_BINARY,
    NODE_AGGREGATE,
    NODE_CALL,
    NODE_PAREN,
};

enum binary_op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_MOD,
    OP_POW,
    OP_ATAN2,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_AND,
    OP_OR,
    OP_UNLESS,
};
const char *binary_op_name(enum binary_op op);
static inline bool binary_op_is_comparison(enum binary_op op)
{
    return op >= OP_EQ && op <= OP_GE;
}
static inline bool binary_op_is_set(enum binary_op op)
{
    return op >= OP_AND;
}

enum aggregate_op {
    AGG_SUM,
    AGG_AVG,
    AGG_COUNT,
    AGG_MIN,
    AGG_MAX,
    AGG_GROUP,
    AGG_STDDEV,
    AGG_STDVAR,
    AGG_TOPK,
    AGG_BOTTOMK,
    AGG_COUNT_VALUES,
    AGG_QUANTILE,
};
const char *aggregate_op_name(enum aggregate_op op);

enum match_cardinality {
    MATCH_ONE_TO_ONE,
    MATCH_MANY_TO_ONE,
    MATCH_ONE_TO_MANY,
    MATCH_MANY_TO_MANY
};

struct vector_matching {
    enum match_cardinality cardinality;
    bool on; /* on(labels), else ignoring(labels) */
    const struct str *labels;
    size_t label_count;
    const struct str *include; /* group_left/group_right labels */
    size_t include_count;
};

enum at_kind { AT_NONE, AT_TIME, AT_START, AT_END };

/* offset and @ of selectors and subqueries. */
struct time_shift {
    int64_t offset_ms;
    enum at_kind at;
    int64_t at_ms; /* for AT_TIME */
};

struct promql_function; /* functions.h */

struct node {
    enum node_kind kind;
    enum value_type type;
    struct position_range position;
    /* Levels from here down, at most PROMQL_DEPTH_MAX; a chain of left-hand sides counts once. */
    uint32_t depth;
    union {
        struct {
            double value;
            bool is_duration; /* written as a duration (5m) */
        } number;
        struct str string;
        struct {
            struct str name;                /* metric name as written before the braces, or empty */
            const struct matcher *matchers; /* includes the one for name */
            size_t matcher_count;
            struct time_shift shift;
        } selector;
        struct {
            struct node *selector; /* NODE_SELECTOR; offset and @ live there */
            int64_t range_ms;
        } matrix;
        struct {
            struct node *expr;
            int64_t range_ms;
            int64_t step_ms; /* 0: the default evaluation interval */
            struct time_shift shift;
        } subquery;
        struct {
            struct node *expr;
            bool negative;
        } unary;
        struct {
            enum binary_op op;
            bool return_bool;
            struct node *lhs, *rhs;
            struct vector_matching matching; /* only when both sides are vectors */
            struct position_range op_position;
        } binary;
        struct {
            enum aggregate_op op;
            struct node *expr;
            struct node *param; /* NULL where the operator takes none */
            bool without;       /* without(labels), else by(labels) */
            const struct str *labels;
            size_t label_count;
        } aggregate;
        struct {
            const struct promql_function *function;
            struct node **args;
            size_t arg_count;
        } call;
        struct node *paren;
    } u;
};

struct promql_expr {
    struct str text; /* a copy in the arena */
    struct node *root;
    /* Compiled matchers of the whole tree own regular expressions: freed by promql_expr_done(). */
    struct matcher **matchers;
    size_t matcher_count;
    /* The expressions' memory, charged to the arena's budget until promql_expr_done(). */
    struct budget *budget;
    size_t regex_bytes;
};

struct promql_parse_options {
    bool experimental_functions; /* promql-experimental-functions */
    /* What is known but not built (native histograms' functions, fill, smoothed, ...) is refused
     * with ERR_UNSUPPORTED, by name and position. */
};

/*
 * Parses `text` into `arena`. ERR_INVALID with Prometheus's message and position, in the form
 * `1:5: parse error: unexpected ...`; ERR_UNSUPPORTED for language that is known but not built;
 * ERR_LIMIT for text over PROMQL_QUERY_BYTES_MAX, nesting over PROMQL_DEPTH_MAX, or more memory
 * than the arena's budget has, that of compiled regular expressions included.
 */
MUST_USE enum err promql_parse(struct str text, const struct promql_parse_options *options,
                               struct arena *arena, struct promql_expr **out, struct errinfo *ei);
/* Frees the compiled matchers and their charge; the tree goes with the arena. The arena's budget
 * must still be there. Accepts NULL. */
void promql_expr_done(struct promql_expr *expr);
/* Parses `name{matchers}` alone, for match[] parameters; freed by matcher_done() each. A selector
 * without any matcher that refuses the empty value is accepted: callers decide. */
MUST_USE enum err promql_parse_selector(struct str text, struct arena *arena, struct matcher **out,
                                        size_t *out_count, struct errinfo *ei);
/* The text Prometheus would print for the tree (Expr.String()). NULL when the arena refuses. */
char *promql_node_format(const struct node *n, struct arena *arena);
/* "line:column" (1-based, columns in bytes) of an offset into text. */
void promql_position_text(struct str text, uint32_t offset, char *out, size_t out_size);
/* A number as PromQL writes it: decimal and hexadecimal integers, octal by a leading zero, floats,
 * Inf and NaN in any case, digits separated by `_`; no sign. ERR_INVALID when it is none, ERR_LIMIT
 * when it is too large for a double. */
MUST_USE enum err promql_number_parse(struct str text, double *out);
/* A duration such as "1h30m", "5m", "100ms"; ERR_INVALID with the reason. */
MUST_USE enum err promql_duration_parse(struct str text, int64_t *out_ms, struct errinfo *ei);

#endif
