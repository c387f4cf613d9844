/*
 * The evaluator's shared types. Operators are functions of a plan node that either push batches of
 * series into a sink (streams) or give a whole vector (barriers).
 *
 * A row is one series on the grid of its plan node: a bitmap of steps at which it has a sample and
 * a column of doubles; a value means nothing where its bit is clear (but it is initialised, so that
 * dense loops may compute with it), and NaN is a value like any other. A row with native histograms
 * has a column of pointers to them beside that, NULL at steps that hold a float; rows of floats
 * only do not have it. Histograms in rows are shared and never changed: an operator makes new ones.
 *
 * Several rows of a stream may carry the same label set as long as no step has both: they are one
 * series whose parts came from different stored series. vector_merge() joins them where it matters.
 *
 * Memory: everything an operator makes lives in arenas charged to the query's budget. A vector owns
 * its arena and goes with vector_free(); a batch is valid until the sink's push returns.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_INTERNAL_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/err.h"
#include "engine/histogram.h"
#include "engine/labels.h"
#include "engine/querier.h"
#include "engine/write.h"
#include "promql/eval/annotations_internal.h"
#include "promql/eval/arena_refused_internal.h"
#include "promql/plan/plan_internal.h"
#include "promql/promql.h"

/* Of a query, by all its threads. Relaxed: for a limit and for statistics, nothing is ordered by
 * them. */
struct eval_counters {
    _Atomic uint64_t samples_held, samples_peak, samples_read, samples_queryable;
    uint64_t *per_step; /* queryable samples at each of the query's steps; NULL: not wanted */
    size_t step_count;  /* of the query */
    uint64_t sort_ns;   /* spent on sorting the result; the query's own thread only */
    /* The selector that took most memory, with all that was made of its series while they came, and
     * how much that was. The query's own thread only. */
    struct position_range largest_selector;
    uint64_t largest_bytes;
};

struct share;
struct series_queue;

/* State that all operators of a query share, those that run on one thread. */
struct eval {
    const struct promql_query *query;
    const struct promql_settings *settings;
    struct querier *querier;
    struct arena *arena; /* the query's, or a helper's own: that of the thread */
    int64_t lookback_ms;
    bool delayed_names;
    struct annotations annotations;
    struct eval_counters *counters; /* borrowed */
    struct share *share;            /* the next selector may offer its series to others; or NULL */
    struct series_queue *queue;     /* of a helper: what its selector reads; else NULL */
    /* Selectors give series in the order of labels, with all of them, whatever the plan asks for.
     */
    bool in_label_order;
    /* Inside a subquery of a range function, whose windows are counted and not what they see. */
    bool in_subquery;
    uint64_t work_since_check; /* units of work since eval_check() last looked at the clock */
};

struct row {
    struct labels labels; /* what the plan's need asked for, or more */
    bool drop_name;       /* delayed name removal: drop it when the query ends */
    bool lost_metadata;   /* more than the name is gone: __type__ or __unit__ */
    uint64_t *present;
    double *value;
    /* NULL: all samples are floats. Else a pointer a step: NULL where the sample is a float; it
     * means nothing where the step's bit is clear. They live as long as the row. */
    const struct histogram **histogram;
};

/* Rows that travel together. Arrays belong to whoever pushes. */
struct batch {
    size_t count;
    struct row *rows;
    const struct grid *grid;
    struct arena *arena; /* scratch of the batch: a sink may allocate what dies with it */
    bool any_order;      /* whoever pushes gives no order; the same all through a stream */
    /* Label strings belong to the querier: the same pointers mean the same text all through the
     * query. */
    bool stable_strings;
};

struct sink {
    /* May change rows in place (values, bitmaps, labels), not keep them. */
    enum err (*push)(struct sink *sink, struct batch *batch, struct errinfo *ei);
};

struct vector {
    struct arena arena;
    struct eval *eval;
    struct grid grid;
    size_t count, capacity;
    struct row *rows;
    uint64_t sample_count; /* charged to eval->samples_held */
};

/* --- eval.c --- */

/* Deadline and stop flag, at once. ERR_TIMEOUT or ERR_CANCELED. */
MUST_USE enum err eval_check(struct eval *ev, struct errinfo *ei);
/* Counts `work` (about a sample each) and looks at flag and clock every 200,000 or so, which is a
 * few milliseconds. No loop may do more than that without a tick: see eval_piece(). */
MUST_USE static inline enum err eval_tick(struct eval *ev, uint64_t work, struct errinfo *ei)
{
    ev->work_since_check += work;
    if (LIKELY(ev->work_since_check < 200000))
        return ERR_OK;
    return eval_check(ev, ei);
}
/* Long loops over steps or samples go piece by piece with a tick before each:
 *
 *     for (size_t i = 0, end; e == ERR_OK && i < count; i = end) {
 *         e = eval_piece(ev, i, count, &end, ei);
 *         for (size_t k = i; e == ERR_OK && k < end; k++) ...
 *     }
 *
 * A piece is a whole number of bitmap words. */
enum { EVAL_PIECE = 1 << 16 };
MUST_USE static inline enum err eval_piece(struct eval *ev, size_t begin, size_t count, size_t *end,
                                           struct errinfo *ei)
{
    size_t size = count - begin < EVAL_PIECE ? count - begin : EVAL_PIECE;

    *end = begin + size;
    return eval_tick(ev, size, ei);
}
/* memset(0) and memcpy() of columns, piece by piece. */
MUST_USE enum err eval_zero(struct eval *ev, double *out, size_t count, struct errinfo *ei);
MUST_USE enum err eval_copy(struct eval *ev, double *out, const double *in, size_t count,
                            struct errinfo *ei);
/* A stable sort of `count` items of `size` bytes that ends early, with the items in no order, when
 * the query must stop. Scratch of long sorts is charged to the query. */
MUST_USE enum err eval_sort_items(struct eval *ev, void *items, size_t count, size_t size,
                                  int (*compare)(const void *a, const void *b, void *context),
                                  void *context, struct errinfo *ei);
/* Samples that are held in memory, against --query.max-samples. ERR_LIMIT with Prometheus's text.
 */
MUST_USE enum err eval_samples_hold(struct eval *ev, uint64_t count, struct errinfo *ei);
void eval_samples_release(struct eval *ev, uint64_t count);
/* Counts queryable samples, given at step `step` of `grid`, or summed over its steps where nobody
 * wants them by step. A grid of one step stands for all steps of the query; where a result is a
 * subquery, its points count for the last step. */
static inline bool eval_counts_steps(const struct eval *ev)
{
    return ev->counters->per_step != NULL && !ev->in_subquery;
}
void eval_count_queryable(struct eval *ev, const struct grid *grid, size_t step, uint64_t count);
/* A row's samples. */
void eval_count_row(struct eval *ev, const struct grid *grid, const struct row *row);

/* An empty vector on `grid`; freed by vector_free(). */
MUST_USE enum err vector_new(struct eval *ev, const struct grid *grid, struct vector **out,
                             struct errinfo *ei);
void vector_free(struct vector *v); /* accepts NULL */
/* Appends a row with cleared bitmap and room for values. */
MUST_USE enum err vector_add(struct vector *v, struct row **out, struct errinfo *ei);
/* Appends a deep copy. */
MUST_USE enum err vector_add_copy(struct vector *v, const struct row *row, struct errinfo *ei);
/* Charges the samples of all rows as held; once, when the vector is complete. */
MUST_USE enum err vector_hold(struct vector *v, struct errinfo *ei);
/* Joins rows with equal labels, keeping the place of the first; ERR_EXECUTION with Prometheus's
 * text if two of them have a sample at the same step. Drops rows without samples. */
MUST_USE enum err vector_merge(struct vector *v, struct errinfo *ei);
/* Drops the names that delayed removal has marked, then joins as above. */
MUST_USE enum err vector_finish_names(struct vector *v, struct errinfo *ei);
/* Sorts the rows, stably. */
struct sort_context {
    const struct row *rows; /* set by rows_sort() */
    const void *context;    /* of `compare` */
    int (*compare)(const struct row *a, const struct row *b, const void *context);
};
MUST_USE enum err rows_sort(struct vector *v, struct sort_context *context, struct errinfo *ei);
/* Stable sort by labels. */
MUST_USE enum err vector_sort_labels(struct vector *v, struct errinfo *ei);

/* Evaluates a vector plan: pushes its rows into `sink`, or gives all of them. */
MUST_USE enum err eval_stream(struct eval *ev, const struct plan *p, struct sink *sink,
                              struct errinfo *ei);
MUST_USE enum err eval_vector(struct eval *ev, const struct plan *p, struct vector **out,
                              struct errinfo *ei);
/* Evaluates a scalar plan: one value per step of p->grid, in `arena`. */
MUST_USE enum err eval_scalar(struct eval *ev, const struct plan *p, struct arena *arena,
                              double **out, struct errinfo *ei);
/* Pushes a vector's rows in batches. */
MUST_USE enum err vector_push(struct vector *v, struct sink *sink, struct errinfo *ei);

static inline bool row_has(const struct row *r, size_t step)
{
    return (r->present[step / 64] >> (step % 64)) & 1;
}
/* The histogram of a step that has a sample; NULL: it is a float. */
static inline const struct histogram *row_histogram(const struct row *r, size_t step)
{
    return LIKELY(r->histogram == NULL) ? NULL : r->histogram[step];
}
/* A float, at a step that holds no histogram. */
static inline void row_set(struct row *r, size_t step, double value)
{
    r->present[step / 64] |= UINT64_C(1) << (step % 64);
    r->value[step] = value;
}
static inline void row_clear(struct row *r, size_t step)
{
    r->present[step / 64] &= ~(UINT64_C(1) << (step % 64));
}
bool row_is_empty(const struct row *r, const struct grid *grid);
/* Steps with a sample. */
size_t row_step_count(const struct row *r, const struct grid *grid);
/* The same as counts against limits and in statistics: a histogram is several. */
uint64_t row_sample_count(const struct row *r, const struct grid *grid);
uint64_t column_weight(const struct column *c);
/* All bits of `count` steps set, none beyond. */
void bitmap_fill(uint64_t *bits, size_t count);
MUST_USE enum err row_alloc(struct eval *ev, struct row *r, const struct grid *grid,
                            struct arena *arena, struct errinfo *ei);
/* For a caller that sets the value of every step, zero where it is absent. */
MUST_USE enum err row_alloc_unset(struct row *r, const struct grid *grid, struct arena *arena,
                                  struct errinfo *ei);

/* --- histogram_rows.c --- */

/* What a histogram counts as among samples, which have 16 bytes each: as in Prometheus. */
uint64_t histogram_weight(const struct histogram *h);
/* Gives a row a column of histograms, all of them NULL, unless it has one. */
MUST_USE enum err row_want_histograms(struct eval *ev, struct row *r, const struct grid *grid,
                                      struct arena *arena, struct errinfo *ei);
/* Gives a column histograms with count and sum only, and hints that tell of resets, which need
 * buckets to be seen. */
MUST_USE enum err column_strip_buckets(struct eval *ev, struct column *c, struct arena *arena,
                                       struct errinfo *ei);
/* Whether any of the first `count` steps has a histogram. */
bool row_any_histogram(const struct row *r, size_t count);
/* Whether any step has a float. */
bool row_any_float(const struct row *r, const struct grid *grid);
/* Sets a histogram, which lives as long as the row; the row has a column of them. */
static inline void row_set_histogram(struct row *r, size_t step, const struct histogram *h)
{
    r->present[step / 64] |= UINT64_C(1) << (step % 64);
    r->value[step] = 0;
    r->histogram[step] = h;
}
/* Copies histograms into another lifetime. Those that come one behind the other share there what
 * they can: their layout, or all where it is the same histogram at neighbouring steps. */
struct histogram_keeper {
    struct arena *arena;
    const struct histogram *from, *to; /* the last one; from NULL: one that has gone */
};
MUST_USE enum err histogram_keep(struct histogram_keeper *k, const struct histogram *h,
                                 const struct histogram **out, struct errinfo *ei);
/* The same for one that was just made and may be gone at the next call. */
MUST_USE enum err histogram_keep_made(struct histogram_keeper *k, const struct histogram *h,
                                      const struct histogram **out, struct errinfo *ei);
/* Copies the histograms of a row's present steps, or of a column: NULLs stay. */
MUST_USE enum err histograms_keep(struct eval *ev, const struct histogram *const *in,
                                  const uint64_t *present, size_t count, struct arena *arena,
                                  const struct histogram ***out, struct errinfo *ei);

/* --- eval_instant.c --- */

MUST_USE enum err eval_selector_stream(struct eval *ev, const struct plan *p, struct sink *sink,
                                       struct errinfo *ei);

/* --- eval_selector.c --- */

/* Reads a selector's series in batches with their samples in [min, max], staleness markers still
 * inside. push() gets labels and columns; both die when it returns. */
struct column_batch {
    size_t count;
    const struct column *columns;
    const struct labels *labels;
    struct arena *arena;
    bool any_order;
    bool stable_strings; /* as in struct batch */
};
/* A batch without rows yet, with room in the columns' arena for one of each column. */
MUST_USE enum err eval_batch_init(struct batch *out, const struct grid *grid,
                                  const struct column_batch *columns, struct errinfo *ei);
struct column_sink {
    enum err (*push)(struct column_sink *sink, struct column_batch *batch, struct errinfo *ei);
};
MUST_USE enum err eval_selector_columns(struct eval *ev, const struct plan *p, int64_t min_time_ms,
                                        int64_t max_time_ms, struct column_sink *sink,
                                        struct errinfo *ei);
static inline bool is_stale(double value)
{
    return double_bits(value) == STALE_NAN_BITS;
}
/* Without staleness markers; the same arrays when there are none. */
MUST_USE enum err column_without_stale(struct eval *ev, const struct column *in,
                                       struct arena *arena, struct column *out, struct errinfo *ei);

/* --- range_extended.c --- */

/* How far beyond its borders the selector of `p` reads. */
int64_t extension_before_ms(const struct eval *ev, const struct plan *p);
int64_t extension_after_ms(const struct eval *ev, const struct plan *p);
/* An instant vector selector with the modifier smoothed: a step lies on the line between its
 * neighbours, or is the sample before it. c has no staleness markers. */
MUST_USE enum err smoothed_fill(struct eval *ev, const struct plan *p, const struct column *c,
                                struct row *row, struct errinfo *ei);
/* The same of a column that may have histograms; those that are made live in the arena. */
MUST_USE enum err smoothed_fill_histograms(struct eval *ev, const struct plan *p,
                                           const struct column *c, const struct labels *labels,
                                           struct row *row, struct arena *arena,
                                           struct errinfo *ei);

/* --- eval_range.c --- */

MUST_USE enum err eval_range_call_stream(struct eval *ev, const struct plan *p, struct sink *sink,
                                         struct errinfo *ei);
/* Raw samples of an instant query such as x[5m] or x[5m:1m]. */
MUST_USE enum err eval_matrix(struct eval *ev, const struct plan *p, struct promql_result *out,
                              struct errinfo *ei);

/* --- eval_map.c --- */

MUST_USE enum err eval_map_stream(struct eval *ev, const struct plan *p, struct sink *sink,
                                  struct errinfo *ei);
/* Applies the stages to a vector in place. */
MUST_USE enum err eval_map_vector(struct eval *ev, const struct plan *p, struct vector *v,
                                  struct errinfo *ei);
double binary_op_apply(enum binary_op op, double lhs, double rhs); /* comparisons give 0 or 1 */
bool binary_op_compare(enum binary_op op, double lhs, double rhs);

/* --- the other operators --- */

MUST_USE enum err eval_aggregate(struct eval *ev, const struct plan *p, struct vector **out,
                                 struct errinfo *ei);
/* topk, bottomk, limitk, limit_ratio, quantile, count_values: eval_group.c. */
MUST_USE enum err eval_group_select(struct eval *ev, const struct plan *p, struct vector **out,
                                    struct errinfo *ei);
/* Vector and vector. *out may be `lhs` itself, changed; the caller frees what is not *out. On
 * failure *out is NULL or untouched. */
MUST_USE enum err eval_binary(struct eval *ev, const struct plan *p, struct vector *lhs,
                              struct vector *rhs, struct vector **out, struct errinfo *ei);
MUST_USE enum err eval_histogram(struct eval *ev, const struct plan *p, struct vector **out,
                                 struct errinfo *ei);
MUST_USE enum err eval_info(struct eval *ev, const struct plan *p, struct vector **out,
                            struct errinfo *ei);
MUST_USE enum err eval_labels(struct eval *ev, const struct plan *p, struct vector **out,
                              struct errinfo *ei);
MUST_USE enum err eval_sort(struct eval *ev, const struct plan *p, struct vector **out,
                            struct errinfo *ei);
MUST_USE enum err eval_absent(struct eval *ev, const struct plan *p, struct vector **out,
                              struct errinfo *ei);
/* The labels absent() and absent_over_time() give: from the selector's equality matchers. */
MUST_USE enum err absent_labels(const struct node *argument, struct arena *arena,
                                struct labels *out, struct errinfo *ei);

/* --- shared arithmetic --- */

/* One step of Neumaier's compensated summation, as Prometheus does it: the compensation is dropped
 * once the sum is infinite. */
static inline void kahan_add(double increment, double *sum, double *compensation)
{
    double t = *sum + increment;

    if (isinf(t))
        *compensation = 0;
    else if (fabs(*sum) >= fabs(increment))
        *compensation += (*sum - t) + increment;
    else
        *compensation += (increment - t) + *sum;
    *sum = t;
}
/* Quantile by linear interpolation between ranks; sorts `values` (NaN first). */
MUST_USE enum err quantile_of(struct eval *ev, double q, double *values, size_t count, double *out,
                              struct errinfo *ei);

#endif
