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
    OP_TRIM_UPPER, /* </ */
    OP_TRIM_LOWER, /* >/ */
    OP_AND,
    OP_OR,
    OP_UNLESS,
};
const char *binary_op_name(enum binary_op op);
static inline bool binary_op_is_comparison(enum binary_op op)
{
    return op >= OP_EQ && op <= OP_GE;
}
/* Arithmetic: what comes out is another metric. */
static inline bool binary_op_changes_schema(enum binary_op op)
{
    return op < OP_EQ;
}
static inline bool binary_op_is_trim(enum binary_op op)
{
    return op == OP_TRIM_UPPER || op == OP_TRIM_LOWER;
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
    AGG_TOPK, /* from here on with a parameter */
    AGG_BOTTOMK,
    AGG_COUNT_VALUES,
    AGG_QUANTILE,
    AGG_LIMITK, /* from here on experimental */
    AGG_LIMIT_RATIO,
};
const char *aggregate_op_name(enum aggregate_op op);

/* True where whole series of the input come out. */
static inline bool aggregate_op_selects(enum aggregate_op op)
{
    return op == AGG_TOPK || op == AGG_BOTTOMK || op == AGG_LIMITK || op == AGG_LIMIT_RATIO;
}

enum match_cardinality {
    MATCH_ONE_TO_ONE,
    MATCH_MANY_TO_ONE,
    MATCH_ONE_TO_MANY,
    MATCH_MANY_TO_MANY
};

/* What stands in for a series that has no partner. */
struct fill_value {
    bool given;
    double value;
};

struct vector_matching {
    enum match_cardinality cardinality;
    bool on; /* on(labels), else ignoring(labels) */
    const struct str *labels;
    size_t label_count;
    const struct str *include; /* group_left/group_right labels */
    size_t include_count;
    /* With group_right they change sides, as in Prometheus: fill_left stands in for what is missing
     * on the "many" side, fill_right on the "one" side. */
    struct fill_value fill_left, fill_right;
};

enum at_kind { AT_NONE, AT_TIME, AT_START, AT_END };

enum duration_op {
    DURATION_NUMBER,
    DURATION_STEP,  /* step() */
    DURATION_RANGE, /* range() */
    DURATION_MIN_OF,
    DURATION_MAX_OF,
    DURATION_ADD, /* with lhs NULL: a sign */
    DURATION_SUB, /* with lhs NULL: a sign */
    DURATION_MUL,
    DURATION_DIV,
    DURATION_MOD,
    DURATION_POW,
};

/* "step", "min_of", "+", ...; not of numbers. */
const char *duration_op_name(enum duration_op op);

/* A duration that is not known before the query's step and range are. */
struct duration_expr {
    enum duration_op op;
    bool wrapped;                          /* stands in parentheses */
    bool is_duration;                      /* number: written as one (5m) */
    double seconds;                        /* number */
    const struct duration_expr *lhs, *rhs; /* NULL where the operator has none */
    struct position_range position;
    uint32_t depth; /* as in struct node */
};

/* offset and @ of selectors and subqueries. */
struct time_shift {
    int64_t offset_ms;
    const struct duration_expr *offset_expr; /* in place of offset_ms, or NULL */
    enum at_kind at;
    int64_t at_ms; /* for AT_TIME */
};

/* The modifiers anchored and smoothed. */
enum range_extension { EXTENSION_NONE, EXTENSION_ANCHORED, EXTENSION_SMOOTHED };

struct promql_function; /* functions.h */

struct node {
    enum node_kind kind;
    uint32_t id; /* below node_count of its expression, unlike that of any other node in it */
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
            enum range_extension extension; /* also of the range, where there is one */
        } selector;
        struct {
            struct node *selector; /* NODE_SELECTOR; offset and @ live there */
            int64_t range_ms;
            const struct duration_expr *range_expr; /* in place of range_ms, or NULL */
        } matrix;
        struct {
            struct node *expr;
            int64_t range_ms;
            int64_t step_ms; /* 0: the default evaluation interval */
            /* In place of range_ms and step_ms, or NULL. */
            const struct duration_expr *range_expr, *step_expr;
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
    uint32_t node_count, selector_count;
    /* Compiled matchers of the whole tree own regular expressions: freed by promql_expr_done(). */
    struct matcher **matchers;
    size_t matcher_count;
    /* The expressions' memory, charged to the arena's budget until promql_expr_done(). */
    struct budget *budget;
    size_t regex_bytes;
};

/* The parts of the language that Prometheus switches on by name (--enable-feature). Duration
 * expressions have no switch any more. What is known but not built is refused with ERR_UNSUPPORTED,
 * by name and position. */
struct promql_parse_options {
    bool experimental_functions;   /* promql-experimental-functions; limitk and limit_ratio too */
    bool extended_range_selectors; /* promql-extended-range-selectors: anchored, smoothed */
    bool binop_fill_modifiers;     /* promql-binop-fill-modifiers */
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
/* A selector of an expression; what it reads begins back_ms before the query's start, as far as
 * ranges and offsets say so that are written as numbers. */
struct promql_selector {
    const struct node *node; /* NODE_SELECTOR; NULL: info() without one, is_target_info */
    int64_t back_ms;
    bool is_target_info; /* info() reads target_info by it: it has no matcher for the name */
};
/* Calls `visit` for each selector of the tree, in no particular order. */
void promql_selectors_visit(const struct promql_expr *expr,
                            void (*visit)(void *ctx, const struct promql_selector *selector),
                            void *ctx);
/* Parses `name{matchers}` alone, for match[] parameters; freed by matcher_done() each. A selector
 * without any matcher that refuses the empty value is accepted: callers decide. */
MUST_USE enum err promql_parse_selector(struct str text, struct arena *arena, struct matcher **out,
                                        size_t *out_count, struct errinfo *ei);
/* What durations are relative to: the query's step (0 for an instant query) and its range. */
struct duration_bounds {
    double step_s, range_s;
};
/* A duration in milliseconds. ERR_INVALID with Prometheus's text, whose positions are offsets from
 * 0 rather than lines and columns. */
MUST_USE enum err promql_duration_evaluate(const struct duration_expr *d,
                                           const struct duration_bounds *bounds,
                                           bool negative_allowed, int64_t *out_ms,
                                           struct errinfo *ei);
/* The text Prometheus would print for the tree (Expr.String()). NULL when the arena refuses. */
char *promql_node_format(const struct node *n, struct arena *arena);
/* The same over several lines where it is longer than 100 bytes: Prometheus's Expr.Pretty(0).
 * ERR_LIMIT when the arena refuses or the text has more than PROMQL_PRETTY_BYTES_MAX. */
enum { PROMQL_PRETTY_BYTES_MAX = 16 << 20 };
MUST_USE enum err promql_expr_pretty(const struct promql_expr *expr, struct arena *arena,
                                     struct str *out, struct errinfo *ei);
/* "line:column" (1-based, columns in bytes) of an offset into text. */
void promql_position_text(struct str text, uint32_t offset, char *out, size_t out_size);
/* A number as PromQL writes it: decimal and hexadecimal integers, octal by a leading zero, floats,
 * Inf and NaN in any case, digits separated by `_`; no sign. ERR_INVALID when it is none, ERR_LIMIT
 * when it is too large for a double. */
MUST_USE enum err promql_number_parse(struct str text, double *out);
/* A duration such as "1h30m", "5m", "100ms"; ERR_INVALID with the reason. */
MUST_USE enum err promql_duration_parse(struct str text, int64_t *out_ms, struct errinfo *ei);

#endif
