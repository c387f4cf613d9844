/*
 * The evaluator's frame: limits, and the dispatch from plan nodes to operators. Streams and
 * barriers are told apart here alone: eval_stream() of a barrier makes its vector and pushes it,
 * eval_vector() of a stream collects it.
 */
#include "promql/eval/eval_internal.h"

#include <string.h>

#include "base/clock.h"
#include "promql/eval/eval_map_internal.h"
#include "promql/eval/label_sets_internal.h"

static bool eval_is_stopped(const struct eval *ev)
{
    /* acquire is not needed: the flag orders nothing but itself */
    return ev->query->stop != NULL && atomic_load_explicit(ev->query->stop, memory_order_relaxed);
}

enum err eval_check(struct eval *ev, struct errinfo *ei)
{
    const struct promql_query *q = ev->query;

    ev->work_since_check = 0;
    if (eval_is_stopped(ev))
        return errinfo_set(ei, ERR_CANCELED, 0, "query was canceled in expression evaluation");
    if (q->deadline_mono_ns != 0 && clock_mono_ns() > q->deadline_mono_ns)
        return errinfo_set(ei, ERR_TIMEOUT, 0, "query timed out in expression evaluation");
    return ERR_OK;
}

enum err eval_samples_hold(struct eval *ev, uint64_t count, struct errinfo *ei)
{
    uint64_t held =
        atomic_fetch_add_explicit(&ev->counters->samples_held, count, memory_order_relaxed) + count;
    uint64_t peak;

    peak = atomic_load_explicit(&ev->counters->samples_peak, memory_order_relaxed);
    while (held > peak &&
           !atomic_compare_exchange_weak_explicit(&ev->counters->samples_peak, &peak, held,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    if (ev->settings->max_samples != 0 && held > ev->settings->max_samples) {
        eval_samples_release(ev, count);
        return errinfo_set(ei, ERR_LIMIT, 0,
                           "query processing would load too many samples into memory in "
                           "query execution");
    }
    return ERR_OK;
}

void eval_samples_release(struct eval *ev, uint64_t count)
{
    atomic_fetch_sub_explicit(&ev->counters->samples_held, count, memory_order_relaxed);
}

void eval_count_queryable(struct eval *ev, const struct grid *grid, size_t step, uint64_t count)
{
    struct eval_counters *c = ev->counters;
    bool is_spread = grid->count == 1;

    if (ev->in_subquery || count == 0)
        return;
    atomic_fetch_add_explicit(&c->samples_queryable, is_spread ? count * c->step_count : count,
                              memory_order_relaxed);
    if (c->per_step == NULL)
        return;
    for (size_t k = 0; is_spread && k < c->step_count; k++)
        c->per_step[k] += count;
    if (!is_spread)
        c->per_step[grid->count == c->step_count ? step : c->step_count - 1] += count;
}

void eval_count_row(struct eval *ev, const struct grid *grid, const struct row *row)
{
    if (!eval_counts_steps(ev)) {
        eval_count_queryable(ev, grid, 0, row_sample_count(row, grid));
        return;
    }
    for (size_t k = 0; k < grid->count; k++) {
        const struct histogram *h = row_has(row, k) ? row_histogram(row, k) : NULL;

        eval_count_queryable(ev, grid, k, h != NULL ? histogram_weight(h) : row_has(row, k));
    }
}

/* Collects a stream into a vector. */
struct collect_sink {
    struct sink sink;
    struct vector *vector;
    bool lost_metadata; /* of any row */
};

static enum err collect_push(struct sink *sink, struct batch *b, struct errinfo *ei)
{
    struct collect_sink *s = (struct collect_sink *)sink;
    uint64_t count = 0;

    for (size_t i = 0; i < b->count; i++) {
        enum err e;

        if (row_is_empty(&b->rows[i], b->grid))
            continue;
        e = vector_add_copy(s->vector, &b->rows[i], ei);
        if (e != ERR_OK)
            return e;
        count += row_sample_count(&b->rows[i], b->grid);
        s->lost_metadata |= b->rows[i].lost_metadata;
    }
    /* Held as they come, so that the limit stops a query before its memory does. */
    enum err e = eval_samples_hold(s->vector->eval, count, ei);
    if (e == ERR_OK)
        s->vector->sample_count += count;
    return e;
}

static bool plan_is_stream(const struct plan *p)
{
    return p->kind == PLAN_SELECTOR || p->kind == PLAN_RANGE_CALL;
}

/* Whether no two rows can have the same labels: stored series differ, and do so without a name that
 * all of them share, unless more than that has gone. */
static bool rows_are_distinct(const struct plan *p)
{
    return p->kind == PLAN_RANGE_CALL ? p->subquery == NULL && p->input_name_state == NAME_FIXED
                                      : p->name_state == NAME_FIXED;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err collect(struct eval *ev, const struct plan *p, struct vector **out,
                        struct errinfo *ei)
{
    struct collect_sink s = {.sink.push = collect_push};
    enum err e = vector_new(ev, &p->grid, &s.vector, ei);

    if (e == ERR_OK)
        e = eval_stream(ev, p, &s.sink, ei);
    if (e == ERR_OK && p->need.all &&
        (s.lost_metadata || !plan_is_stream(p) || !rows_are_distinct(p)))
        e = vector_merge(s.vector, ei);
    if (e == ERR_OK)
        *out = TAKE(s.vector);
    vector_free(s.vector);
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err vector_of_scalar(struct eval *ev, const struct plan *p, struct vector **out,
                                 struct errinfo *ei)
{
    struct vector *v = NULL;
    struct row *row;
    double *values;
    enum err e = vector_new(ev, &p->grid, &v, ei);

    if (e == ERR_OK)
        e = eval_scalar(ev, p->parameter, &v->arena, &values, ei);
    if (e == ERR_OK)
        e = vector_add(v, &row, ei);
    if (e == ERR_OK)
        e = eval_copy(ev, row->value, values, p->grid.count, ei);
    if (e == ERR_OK) {
        bitmap_fill(row->present, p->grid.count);
        e = vector_hold(v, ei);
    }
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}

static enum err column_fill(struct eval *ev, double *out, size_t count, double value,
                            struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0, end; e == ERR_OK && i < count; i = end) {
        e = eval_piece(ev, i, count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++)
            out[k] = value;
    }
    return e;
}

/* A row of one step, at every step of `v`. */
static enum err row_spread(struct vector *v, const struct row *in, struct errinfo *ei)
{
    const struct histogram *h = row_histogram(in, 0), *copy = NULL;
    struct histogram_keeper keeper = {.arena = &v->arena};
    uint64_t held = v->grid.count * (h != NULL ? histogram_weight(h) : 1);
    struct row *row;
    enum err e = eval_samples_hold(v->eval, held, ei); /* before memory is touched */

    if (e != ERR_OK)
        return e;
    v->sample_count += held;
    e = vector_add(v, &row, ei);
    if (e == ERR_OK)
        e = labels_copy(&in->labels, &v->arena, &row->labels, ei);
    if (e == ERR_OK)
        e = column_fill(v->eval, row->value, v->grid.count, in->value[0], ei);
    if (e == ERR_OK && h != NULL)
        e = histogram_keep(&keeper, h, &copy, ei);
    if (e == ERR_OK && h != NULL)
        e = row_want_histograms(v->eval, row, &v->grid, &v->arena, ei);
    if (e != ERR_OK)
        return e;
    for (size_t k = 0; h != NULL && k < v->grid.count; k++)
        row->histogram[k] = copy;
    row->drop_name = in->drop_name;
    bitmap_fill(row->present, v->grid.count);
    return ERR_OK;
}

/* A vector of one step stands for every step. */
static enum err vector_spread(struct eval *ev, const struct plan *p, const struct vector *in,
                              struct vector **out, struct errinfo *ei)
{
    struct vector *v = NULL;
    enum err e = vector_new(ev, &p->grid, &v, ei);

    for (size_t i = 0; e == ERR_OK && i < in->count; i++) {
        if (row_has(&in->rows[i], 0))
            e = row_spread(v, &in->rows[i], ei);
    }
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}

/* A barrier of one vector input, or a leaf: anything that is no link of a chain. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err eval_barrier(struct eval *ev, const struct plan *p, struct vector **out,
                             struct errinfo *ei)
{
    switch (p->kind) {
    case PLAN_SELECTOR:
    case PLAN_RANGE_CALL:
        return collect(ev, p, out, ei);
    case PLAN_AGGREGATE:
        return eval_aggregate(ev, p, out, ei);
    case PLAN_LABELS:
        return eval_labels(ev, p, out, ei);
    case PLAN_ABSENT:
        return eval_absent(ev, p, out, ei);
    case PLAN_HISTOGRAM:
        return eval_histogram(ev, p, out, ei);
    case PLAN_INFO:
        return eval_info(ev, p, out, ei);
    case PLAN_SORT:
        return eval_sort(ev, p, out, ei);
    case PLAN_VECTOR:
        return vector_of_scalar(ev, p, out, ei);
    default:
        break;
    }
    return errinfo_set(ei, ERR_INTERNAL, 0, "plan node %d gives no vector", (int)p->kind);
}

/* True for the links of a chain, which are walked by a loop since chains have no limit. */
static bool plan_is_link(const struct plan *p)
{
    return p->kind == PLAN_MAP || p->kind == PLAN_BINARY || p->kind == PLAN_SPREAD;
}

/* Applies one link to the vector of its input; takes *v and replaces it. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err link_apply(struct eval *ev, const struct plan *p, struct vector **v,
                           struct errinfo *ei)
{
    struct vector *rhs = NULL, *result = NULL;
    enum err e;

    if (p->kind == PLAN_MAP) {
        e = eval_map_vector(ev, p, *v, ei);
        return e == ERR_OK && p->need.all ? vector_merge(*v, ei) : e;
    }
    if (p->kind == PLAN_SPREAD) {
        e = vector_spread(ev, p, *v, &result, ei);
    } else {
        e = eval_vector(ev, p->rhs, &rhs, ei);
        if (e == ERR_OK)
            e = eval_binary(ev, p, *v, rhs, &result, ei);
    }
    vector_free(rhs);
    if (result != *v) /* set operators work in place */
        vector_free(*v);
    *v = result;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_vector(struct eval *ev, const struct plan *p, struct vector **out, struct errinfo *ei)
{
    const struct plan *leaf = p, **chain;
    struct vector *v = NULL;
    struct arena scratch;
    size_t count = 0;
    enum err e = eval_check(ev, ei);

    if (e != ERR_OK)
        return e;
    if (p->grid.count == 0)
        return vector_new(ev, &p->grid, out, ei);
    for (; plan_is_link(leaf); leaf = leaf->input)
        count++;
    arena_init(&scratch, ev->query->memory);
    chain = ARENA_ARRAY(&scratch, count, const struct plan *);
    if (chain == NULL) {
        e = arena_refused(&scratch, ei);
        goto out;
    }
    leaf = p;
    for (size_t i = count; i-- > 0; leaf = leaf->input)
        chain[i] = leaf;
    e = eval_barrier(ev, leaf, &v, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = link_apply(ev, chain[i], &v, ei);
    if (e == ERR_OK)
        *out = TAKE(v);
out:
    vector_free(v);
    arena_done(&scratch);
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_stream(struct eval *ev, const struct plan *p, struct sink *sink, struct errinfo *ei)
{
    struct vector *v = NULL;
    enum err e;

    if (p->grid.count == 0)
        return ERR_OK;
    if (p->kind == PLAN_SELECTOR)
        return eval_selector_stream(ev, p, sink, ei);
    if (p->kind == PLAN_RANGE_CALL)
        return eval_range_call_stream(ev, p, sink, ei);
    if (p->kind == PLAN_MAP && plan_is_stream(p->input))
        return eval_map_stream(ev, p, sink, ei);
    e = eval_vector(ev, p, &v, ei);
    if (e == ERR_OK)
        e = vector_push(v, sink, ei);
    vector_free(v);
    return e;
}

/* scalar(vector): the value where exactly one series has a float, else NaN. Restricted labels do
 * no harm: rows are counted, not label sets. */
struct scalar_sink {
    struct sink sink;
    struct eval *ev;
    double *values;
    uint8_t *seen;
};

static enum err scalar_push(struct sink *sink, struct batch *b, struct errinfo *ei)
{
    struct scalar_sink *s = (struct scalar_sink *)sink;
    enum err e = ERR_OK;

    for (size_t i = 0; i < b->count; i++) {
        for (size_t from = 0, end; e == ERR_OK && from < b->grid->count; from = end) {
            e = eval_piece(s->ev, from, b->grid->count, &end, ei);
            for (size_t k = from; e == ERR_OK && k < end; k++) {
                if (!row_has(&b->rows[i], k) || row_histogram(&b->rows[i], k) != NULL)
                    continue;
                s->values[k] = s->seen[k] ? NAN : b->rows[i].value[k];
                s->seen[k] = 1;
            }
        }
    }
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err eval_scalar_of(struct eval *ev, const struct plan *p, struct arena *arena,
                               double *values, struct errinfo *ei)
{
    struct scalar_sink s = {.sink.push = scalar_push, .ev = ev, .values = values};
    enum err e;

    s.seen = arena_calloc(arena, p->grid.count, 1);
    if (s.seen == NULL)
        return arena_refused(arena, ei);
    e = column_fill(ev, values, p->grid.count, NAN, ei);
    return e == ERR_OK ? eval_stream(ev, p->input, &s.sink, ei) : e;
}

static enum err time_fill(struct eval *ev, const struct grid *grid, double *values,
                          struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0, end; e == ERR_OK && i < grid->count; i = end) {
        e = eval_piece(ev, i, grid->count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++)
            values[k] = (double)grid_time_ms(grid, k) / 1000;
    }
    return e;
}

/* The leaf of a chain of scalar operators. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err scalar_leaf(struct eval *ev, const struct plan *p, struct arena *arena,
                            double *values, struct errinfo *ei)
{
    switch (p->kind) {
    case PLAN_CONSTANT:
        return column_fill(ev, values, p->grid.count, p->constant, ei);
    case PLAN_TIME:
        return time_fill(ev, &p->grid, values, ei);
    case PLAN_SCALAR_OF:
        return eval_scalar_of(ev, p, arena, values, ei);
    default:
        return errinfo_set(ei, ERR_INTERNAL, 0, "plan node %d gives no scalar", (int)p->kind);
    }
}

static bool scalar_is_link(const struct plan *p)
{
    return p->kind == PLAN_SPREAD || p->kind == PLAN_SCALAR_NEGATE ||
           p->kind == PLAN_SCALAR_BINARY || p->kind == PLAN_SCALAR_CHOICE;
}

/* One step of a scalar operator; `rhs` is nothing to a negation. */
static double scalar_apply(const struct plan *p, double lhs, double rhs)
{
    if (p->kind == PLAN_SCALAR_NEGATE)
        return -lhs;
    if (p->kind == PLAN_SCALAR_CHOICE)
        return p->function->id == FUNCTION_MAX_OF ? go_max(lhs, rhs) : go_min(lhs, rhs);
    return binary_op_apply(p->node->u.binary.op, lhs, rhs);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err scalar_link(struct eval *ev, const struct plan *p, struct arena *arena,
                            double *values, struct errinfo *ei)
{
    double *rhs = NULL;
    enum err e = ERR_OK;

    if (p->kind == PLAN_SPREAD)
        return column_fill(ev, values, p->grid.count, values[0], ei);
    if (p->rhs != NULL) {
        e = eval_scalar(ev, p->rhs, arena, &rhs, ei);
        ASSERT(e != ERR_OK || rhs != NULL);
    }
    for (size_t i = 0, end; e == ERR_OK && i < p->grid.count; i = end) {
        e = eval_piece(ev, i, p->grid.count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++)
            values[k] = scalar_apply(p, values[k], rhs == NULL ? 0 : rhs[k]);
    }
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_scalar(struct eval *ev, const struct plan *p, struct arena *arena, double **out,
                     struct errinfo *ei)
{
    const struct plan *leaf = p, **chain;
    double *values;
    size_t count = 0;
    enum err e;

    for (; scalar_is_link(leaf); leaf = leaf->input)
        count++;
    /* A column alone that is too long: refused before its memory is touched. */
    e = eval_samples_hold(ev, p->grid.count, ei);
    if (e != ERR_OK)
        return e;
    eval_samples_release(ev, p->grid.count);
    chain = ARENA_ARRAY(arena, count, const struct plan *);
    values = ARENA_ARRAY(arena, p->grid.count, double);
    if (chain == NULL || values == NULL)
        return arena_refused(arena, ei);
    leaf = p;
    for (size_t i = count; i-- > 0; leaf = leaf->input)
        chain[i] = leaf;
    e = scalar_leaf(ev, leaf, arena, values, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = scalar_link(ev, chain[i], arena, values, ei);
    if (e == ERR_OK)
        *out = values;
    return e;
}
