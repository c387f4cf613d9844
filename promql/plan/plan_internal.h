/*
 * The plan of a query: what the evaluator walks. It is made from the syntax tree in two passes.
 *
 *   1. Bottom up: one plan node per operator. Parentheses vanish, per-series functions of one value
 *      and operators with a scalar become the stages of one PLAN_MAP, scalars that do not depend on
 *      time are folded, and each node learns whether its result is the same at every step.
 *   2. Top down: each node gets its grid (a subquery's child its own, absolutely aligned), the
 *      labels that somebody above it needs, and the order in which it must deliver series.
 *      Step-invariant subtrees get a grid of one step and a PLAN_SPREAD on top.
 *
 * A plan is immutable once made and lives in the query's arena. Chains of left-associative
 * operators are linked through `input` and are walked by loops, never by recursion.
 */
#ifndef RIMSTONE_PROMQL_PLAN_PLAN_INTERNAL_H
#define RIMSTONE_PROMQL_PLAN_PLAN_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "promql/ast.h"
#include "promql/functions.h"
#include "promql/promql.h"

/* The steps at which a node is evaluated: start_ms + i * step_ms for i < count. */
struct grid {
    int64_t start_ms, step_ms;
    size_t count;
    int64_t end_ms; /* as asked for, not before the last step; start_ms: an instant, no range */
};

static inline int64_t grid_time_ms(const struct grid *g, size_t step)
{
    return g->start_ms + (int64_t)step * g->step_ms;
}
static inline size_t grid_words(const struct grid *g)
{
    return (g->count + 63) / 64;
}

/* The labels that somebody above a node looks at: all of them, or only `names` (sorted, distinct).
 * A node may deliver more; what is missing of the needed ones would be a wrong answer. */
struct label_need {
    bool all;
    const struct str *names;
    size_t count;
};

/* The order in which a node delivers series. */
enum series_order {
    ORDER_ANY,    /* the consumer does not care: count, min, max */
    ORDER_FOLD,   /* by labels where there are few, as in Prometheus; any where there are many */
    ORDER_FIXED,  /* the same whatever the number of threads or shards: variances */
    ORDER_LABELS, /* by labels: results, ties */
};

enum plan_kind {
    /* Vectors. */
    PLAN_SELECTOR,
    PLAN_RANGE_CALL, /* a range function over a selector or a subquery */
    PLAN_MAP,        /* stages of per-sample work on `input` */
    PLAN_AGGREGATE,
    PLAN_BINARY, /* vector and vector */
    PLAN_LABELS, /* label_replace, label_join */
    PLAN_ABSENT,
    PLAN_HISTOGRAM, /* histogram_quantile, histogram_fraction */
    PLAN_SORT,
    PLAN_INFO,   /* info(); shift says when the info series are read */
    PLAN_VECTOR, /* vector(scalar), and date functions without argument */
    /* Scalars. */
    PLAN_CONSTANT,
    PLAN_TIME,
    PLAN_SCALAR_OF,     /* scalar(vector) */
    PLAN_SCALAR_BINARY, /* input op rhs */
    PLAN_SCALAR_NEGATE,
    PLAN_SCALAR_CHOICE, /* max_of(input, rhs), min_of(input, rhs) */
    /* Either. */
    PLAN_SPREAD, /* input has one step; its result stands for every step */
    /* Only at the root of an instant query. */
    PLAN_STRING,
    PLAN_MATRIX,   /* raw samples of a selector */
    PLAN_SUBQUERY, /* a subquery's points as samples */
};

/* One per-sample operation of a PLAN_MAP. */
enum map_kind {
    MAP_FUNCTION,      /* a function of one value: abs, ln, ..., clamp, round, dates */
    MAP_BINARY_RIGHT,  /* sample op scalar */
    MAP_BINARY_LEFT,   /* scalar op sample */
    MAP_NEGATE,        /* unary minus */
    MAP_KEEP_IF_CLAMP, /* clamp, clamp_min, clamp_max */
    MAP_HISTOGRAM,     /* a float of a histogram: histogram_count, ... */
    MAP_NOTHING,       /* no result: start_timestamp() of anything but a selector */
};

struct map_stage {
    enum map_kind kind;
    enum binary_op op;
    bool return_bool;
    bool drops_name;
    bool checks_labelset; /* names differ below and are dropped here: look for equal label sets */
    const struct promql_function *function;
    struct plan *scalars[2]; /* arguments, or NULL */
    const struct node *node;
    struct map_stage *next;
};

/* What is known about the metric name of a node's series. */
enum name_state {
    NAME_VARIES,
    NAME_FIXED, /* all the same: plan.name, possibly empty (dropped) */
};

struct plan {
    enum plan_kind kind;
    const struct node *node; /* the node it stands for: positions, parameters */
    struct plan *input;      /* main input, NULL at leaves */
    struct plan *rhs;        /* right side of a binary operator */
    struct plan *parameter;  /* of an aggregation; scalar arguments of a range function */
    struct plan *parameter2;
    struct plan **quantiles; /* of histogram_quantiles() */
    size_t quantile_count;
    struct map_stage *stages, *last_stage;
    const struct promql_function *function;
    bool invariant;             /* the same at every step */
    bool never_spread;          /* a range: its caller evaluates it once itself */
    enum name_state name_state; /* of the output */
    struct str name;
    enum name_state input_name_state; /* of what a range function reads, for its annotations */
    struct str input_name;
    double constant;
    /* Selectors, and ranges of a PLAN_RANGE_CALL. */
    const struct node *selector; /* NODE_SELECTOR, or NULL */
    const struct node *subquery; /* NODE_SUBQUERY whose child is `input`, or NULL */
    struct time_shift shift;     /* resolved: a time in place of start() and end(), offset_ms */
    int64_t range_ms;
    int64_t subquery_step_ms;       /* 0: the default */
    enum range_extension extension; /* of the selector */
    bool counts_only;     /* of native histograms nobody above looks at more than count and sum */
    bool wants_timestamp; /* timestamp(selector): the sample's own time instead of its value */
    bool wants_start;     /* start_timestamp(selector): since when the sample has counted */
    bool refuses_histograms; /* of info(), whose series have floats */
    bool checks_labelset;    /* as in struct map_stage */
    /* Set by the second pass. */
    struct grid grid;
    struct label_need need;
    enum series_order order;
};

struct planner {
    const struct promql_query *query;
    const struct promql_settings *settings;
    struct arena *arena; /* the query's: plans live in it */
    struct grid grid;    /* of the root */
    int64_t end_ms;      /* as asked, for @ end() */
    /* While the tree is walked, of the nodes above: functions that look at count and sum alone, and
     * what looks at buckets. */
    unsigned count_readers, bucket_readers;
    struct errinfo *ei;
};

/*
 * Plans `root`. ERR_INVALID for what cannot be evaluated (a bad regular expression in
 * label_replace is ERR_EXECUTION and found later), ERR_UNSUPPORTED for functions that are not
 * built, ERR_LIMIT for a grid too large to count.
 */
MUST_USE enum err plan_query(struct planner *p, const struct node *root, struct plan **out);

/* The second pass alone: grids, needs and orders from the root down. */
MUST_USE enum err plan_assign(struct planner *pl, struct plan **slot);
/* `ms`, unless `d` stands in its place. */
MUST_USE enum err plan_duration_resolve(const struct planner *pl, const struct duration_expr *d,
                                        int64_t ms, bool negative_allowed, int64_t *out);
/* start() and end() become plain times, and durations milliseconds. */
MUST_USE enum err plan_shift_resolve(const struct planner *pl, struct time_shift s,
                                     struct time_shift *out);
/* The time at which the first selector of a tree reads, through all subqueries around it; no shift
 * where there is none. */
MUST_USE enum err plan_first_shift(struct planner *pl, const struct node *n,
                                   struct time_shift *out);
/* Steps over parentheses. */
const struct node *node_unwrap(const struct node *n);
/* The time a step of `grid` looks at, after @ and offset; saturates. */
int64_t plan_reference_ms(const struct plan *p, const struct grid *grid, size_t step);
/* a - b and a + b, clamped to the range of int64_t. */
int64_t ms_subtract(int64_t a, int64_t b);
int64_t ms_add(int64_t a, int64_t b);
/* Whole seconds and the rest apart, as Go's Duration.Seconds() does, so that the bits agree. */
static inline double ms_seconds(int64_t ms)
{
    int64_t whole = ms / 1000;

    return (double)whole + (double)(ms % 1000 * 1000000) / 1e9;
}

#endif
