/*
 * The evaluator's frame: limits, and the dispatch from plan nodes to operators. Streams and
 * barriers are told apart here alone: eval_stream() of a barrier makes its vector and pushes it,
 * eval_vector() of a stream collects it.
 */
#include "promql/eval_internal.h"

#include <string.h>

#include "base/clock.h"
#include "promql/label_sets_internal.h"

bool eval_is_stopped(const struct eval *ev)
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
        atomic_fetch_add_explicit(&ev->samples_held, count, memory_order_relaxed) + count;

    if (held > atomic_load_explicit(&ev->samples_peak, memory_order_relaxed))
        atomic_store_explicit(&ev->samples_peak, held, memory_order_relaxed);
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
    atomic_fetch_sub_explicit(&ev->samples_held, count, memory_order_relaxed);
}

/* Collects a stream into a vector. */
struct collect_sink {
    struct sink sink;
    struct vector *vector;
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

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err collect(struct eval *ev, const struct plan *p, struct vector **out,
                        struct errinfo *ei)
{
    struct collect_sink s = {.sink.push = collect_push};
    enum err e = vector_new(ev, &p->grid, &s.vector, ei);

    if (e == ERR_OK)
        e = eval_stream(ev, p, &s.sink, ei);
    if (e == ERR_OK && p->need.all)
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
    if (e == ERR_OK) {
        bitmap_fill(row->present, p->grid.count);
        memcpy(row->value, values, p->grid.count * sizeof *values);
        e = vector_hold(v, ei);
    }
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}

/* A vector of one step stands for every step. */
static enum err vector_spread(struct eval *ev, const struct plan *p, const struct vector *in,
                              struct vector **out, struct errinfo *ei)
{
    struct vector *v = NULL;
    enum err e = vector_new(ev, &p->grid, &v, ei);

    for (size_t i = 0; e == ERR_OK && i < in->count; i++) {
        struct row *row;

        if (!row_has(&in->rows[i], 0))
            continue;
        e = vector_add(v, &row, ei);
        if (e == ERR_OK)
            e = labels_copy(&in->rows[i].labels, &v->arena, &row->labels, ei);
        if (e == ERR_OK)
            e = eval_tick(ev, p->grid.count, ei);
        if (e != ERR_OK)
            break;
        row->drop_name = in->rows[i].drop_name;
        bitmap_fill(row->present, p->grid.count);
        for (size_t k = 0; k < p->grid.count; k++)
            row->value[k] = in->rows[i].value[0];
    }
    if (e == ERR_OK)
        e = vector_hold(v, ei);
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

/* scalar(vector): the value where exactly one series has a sample, else NaN. Restricted labels do
 * no harm: rows are counted, not label sets. */
struct scalar_sink {
    struct sink sink;
    double *values;
    uint8_t *seen;
};

static enum err scalar_push(struct sink *sink, struct batch *b, struct errinfo *ei)
{
    struct scalar_sink *s = (struct scalar_sink *)sink;

    (void)ei; /* nothing here can fail */
    for (size_t i = 0; i < b->count; i++) {
        for (size_t k = 0; k < b->grid->count; k++) {
            if (!row_has(&b->rows[i], k))
                continue;
            s->values[k] = s->seen[k] ? NAN : b->rows[i].value[k];
            s->seen[k] = 1;
        }
    }
    return ERR_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err eval_scalar_of(struct eval *ev, const struct plan *p, struct arena *arena,
                               double *values, struct errinfo *ei)
{
    struct scalar_sink s = {.sink.push = scalar_push, .values = values};

    s.seen = arena_calloc(arena, p->grid.count, 1);
    if (s.seen == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0; i < p->grid.count; i++)
        values[i] = NAN;
    return eval_stream(ev, p->input, &s.sink, ei);
}

/* The leaf of a chain of scalar operators. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err scalar_leaf(struct eval *ev, const struct plan *p, struct arena *arena,
                            double *values, struct errinfo *ei)
{
    switch (p->kind) {
    case PLAN_CONSTANT:
        for (size_t i = 0; i < p->grid.count; i++)
            values[i] = p->constant;
        return ERR_OK;
    case PLAN_TIME:
        for (size_t i = 0; i < p->grid.count; i++)
            values[i] = (double)grid_time_ms(&p->grid, i) / 1000;
        return ERR_OK;
    case PLAN_SCALAR_OF:
        return eval_scalar_of(ev, p, arena, values, ei);
    default:
        return errinfo_set(ei, ERR_INTERNAL, 0, "plan node %d gives no scalar", (int)p->kind);
    }
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err scalar_link(struct eval *ev, const struct plan *p, struct arena *arena,
                            double *values, struct errinfo *ei)
{
    double *rhs = NULL;
    enum err e;

    if (p->kind == PLAN_SPREAD) {
        for (size_t i = 1; i < p->grid.count; i++)
            values[i] = values[0];
        return ERR_OK;
    }
    if (p->kind == PLAN_SCALAR_NEGATE) {
        for (size_t i = 0; i < p->grid.count; i++)
            values[i] = -values[i];
        return ERR_OK;
    }
    e = eval_scalar(ev, p->rhs, arena, &rhs, ei);
    if (e != ERR_OK)
        return e;
    ASSERT(rhs != NULL);
    for (size_t i = 0; i < p->grid.count; i++)
        values[i] = binary_op_apply(p->node->u.binary.op, values[i], rhs[i]);
    return eval_tick(ev, p->grid.count, ei);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_scalar(struct eval *ev, const struct plan *p, struct arena *arena, double **out,
                     struct errinfo *ei)
{
    const struct plan *leaf = p, **chain;
    double *values;
    size_t count = 0;
    enum err e;

    for (; leaf->kind == PLAN_SPREAD || leaf->kind == PLAN_SCALAR_NEGATE ||
           leaf->kind == PLAN_SCALAR_BINARY;
         leaf = leaf->input)
        count++;
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
