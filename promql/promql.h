/*
 * PromQL as one call: text in, a result of columns out. Prometheus 3 semantics.
 */
#ifndef RIMSTONE_PROMQL_PROMQL_H
#define RIMSTONE_PROMQL_PROMQL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/err.h"
#include "engine/histogram.h"
#include "engine/labels.h"
#include "engine/querier.h"
#include "promql/ast.h"

/* What stays the same from query to query. */
struct thread_pool;
struct promql_settings {
    int64_t lookback_delta_ms; /* 5 min */
    int64_t default_step_ms;   /* of a subquery without a step: the evaluation interval, 1 min */
    uint64_t max_samples;      /* held at once; --query.max-samples */
    uint64_t max_memory_bytes; /* a query's budget; --query.max-memory */
    struct promql_parse_options language;
    bool type_and_unit_labels; /* rate() looks at __type__ rather than at the name's suffix */
    bool delayed_name_removal; /* promqltest runs with it; servers without */
    bool start_timestamps;     /* rate() and its kin heed them; start_timestamp() gives them */
    /* Threads that help queries with many series, shared by all; NULL: none. Borrowed. */
    struct thread_pool *helpers;
    uint32_t helper_count; /* of one query at most */
};

/* Warnings and infos, distinct by text, in the order of their positions in Prometheus's format:
 * "PromQL info: metric might not be a counter, ... (1:6)". */
enum annotation_kind { ANNOTATION_WARNING, ANNOTATION_INFO };
struct annotation {
    enum annotation_kind kind;
    const char *text; /* in the query's arena, complete with prefix and position */
    struct position_range position;
};

/* A row of the result. A point is present where its bit is set (bit i of word i / 64). */
struct result_series {
    struct labels labels;
    const uint64_t *present; /* bitmap over steps */
    const double *value;     /* one per step; undefined where absent, or where a histogram is */
    /* NULL: all points are floats. Else one pointer a step, NULL where the point is a float. */
    const struct histogram *const *histogram;
};

struct promql_result {
    enum value_type type;      /* VALUE_MATRIX for range queries; instant: any */
    int64_t start_ms, step_ms; /* grid of the rows; one step for instant queries */
    size_t step_count;
    size_t series_count;
    struct result_series *series; /* scalar: one without labels. Matrices are sorted by labels,
                                   * vectors stand in the engine's order. */
    /* Instant query of a range vector (`x[5m]`): raw samples instead of a grid. */
    struct column *raw; /* series_count of them, or NULL */
    struct str string;  /* VALUE_STRING */
    const struct annotation *annotations;
    size_t annotation_count;
    uint64_t samples_read, samples_peak;
    /* Prometheus's total of queryable samples: what selectors gave at each step, and range
     * functions saw in each window. */
    uint64_t samples_queryable;
    /* The same by step; NULL unless the query wanted it. In the query's arena. */
    const uint64_t *queryable_per_step;
    uint64_t prepare_ns, sort_ns; /* of the query's time */
};

/* What a query has done so far; any thread may look. */
struct promql_progress {
    _Atomic uint64_t samples_read; /* relaxed: a statistic */
};

struct promql_query {
    struct engine *engine;                  /* borrowed */
    const struct promql_settings *settings; /* borrowed */
    struct str text;
    bool is_range;
    int64_t start_ms, end_ms, step_ms; /* instant: start == end, step ignored */
    int64_t lookback_delta_ms;         /* 0: the setting's */
    uint64_t deadline_mono_ns;         /* 0: none; ERR_TIMEOUT once clock_mono_ns() has passed it */
    const _Atomic bool *stop;          /* may be NULL; ERR_CANCELED within 100 ms once true */
    /* Borrowed: the query's budget; arenas charge to it. Its name and those of its parents stand in
     * errors and should tell which flag sets them. */
    struct budget *memory;
    struct promql_progress *progress; /* borrowed; NULL: nobody looks */
    bool wants_steps;                 /* count samples by step; one thread runs the query then */
};

/*
 * Runs a query. The result lives in `arena` (which should charge query->memory) and in *out_handle,
 * which keeps the querier open, since labels may borrow from it; free it with promql_query_done().
 * ERR_INVALID (400, parse errors and wrong types, with position), ERR_UNSUPPORTED (400, known but
 * not built), ERR_EXECUTION (422), ERR_LIMIT (422: samples or memory, Prometheus's text where it
 * has one: "query processing would load too many samples into memory in query execution"; memory:
 * the budget that is spent and the selector that took most), ERR_TIMEOUT (503), ERR_CANCELED (499).
 */
struct promql_handle;
MUST_USE enum err promql_query_run(const struct promql_query *query, struct arena *arena,
                                   struct promql_result *out, struct promql_handle **out_handle,
                                   struct errinfo *ei);
void promql_query_done(struct promql_handle *handle);

static inline bool result_point_present(const struct result_series *s, size_t step)
{
    return (s->present[step / 64] >> (step % 64)) & 1;
}

/* The histogram of a present point; NULL: it is a float. */
static inline const struct histogram *result_point_histogram(const struct result_series *s,
                                                             size_t step)
{
    return s->histogram == NULL ? NULL : s->histogram[step];
}

#endif
