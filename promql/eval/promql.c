/*
 * promql_query_run(): parse, plan, evaluate, and shape the result.
 */
#include "promql/promql.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"

/* What a result may borrow from: labels of the parsed text, strings of the querier. */
struct promql_handle {
    struct querier *querier;
    struct promql_expr *expr;
};

void promql_query_done(struct promql_handle *handle)
{
    if (handle == NULL)
        return;
    if (handle->querier != NULL)
        querier_close(handle->querier);
    promql_expr_done(handle->expr);
    free(handle);
}

static enum err query_grid(const struct promql_query *q, struct grid *out, struct errinfo *ei)
{
    uint64_t span;

    *out = (struct grid){q->start_ms, q->is_range ? q->step_ms : 1, 1, q->start_ms};
    if (!q->is_range)
        return ERR_OK;
    if (q->step_ms <= 0)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "zero or negative query resolution step widths are not accepted");
    if (q->end_ms < q->start_ms)
        return errinfo_set(ei, ERR_INVALID, 0, "end timestamp must not be before start time");
    span = ((uint64_t)q->end_ms - (uint64_t)q->start_ms) / (uint64_t)q->step_ms;
    if (span >= UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "query has too many steps");
    out->count = (size_t)span + 1;
    out->end_ms = q->end_ms;
    return ERR_OK;
}

/* Range queries give matrices of what has a value at every step. */
static enum err type_check(const struct promql_query *q, const struct node *root,
                           struct errinfo *ei)
{
    if (!q->is_range || root->type == VALUE_SCALAR || root->type == VALUE_VECTOR)
        return ERR_OK;
    return errinfo_set(ei, ERR_INVALID, 0,
                       "invalid expression type \"%s\" for range query, must be Scalar or instant "
                       "Vector",
                       value_type_name(root->type));
}

static enum err result_scalar(struct eval *ev, const struct plan *p, struct promql_result *out,
                              struct errinfo *ei)
{
    uint64_t *present = arena_calloc(ev->arena, grid_words(&p->grid), sizeof *present);
    double *values = NULL;
    enum err e = eval_scalar(ev, p, ev->arena, &values, ei);

    if (e != ERR_OK)
        return e;
    out->series = ARENA_NEW(ev->arena, struct result_series);
    if (present == NULL || out->series == NULL)
        return arena_refused(ev->arena, ei);
    bitmap_fill(present, p->grid.count);
    out->series[0] = (struct result_series){.present = present, .value = values};
    out->series_count = 1;
    return eval_samples_hold(ev, p->grid.count, ei);
}

/* A row that turns out to have no histogram any more has none in the result. */
static enum err result_histograms(struct eval *ev, const struct row *row, size_t count,
                                  struct result_series *out, struct errinfo *ei)
{
    const struct histogram **copies;
    enum err e;

    if (!row_any_histogram(row, count))
        return ERR_OK;
    e = histograms_keep(ev, row->histogram, row->present, count, ev->arena, &copies, ei);
    if (e == ERR_OK)
        out->histogram = copies;
    return e;
}

/* Moves a vector's rows into the query's arena. */
static enum err result_rows(struct eval *ev, const struct vector *v, struct promql_result *out,
                            struct errinfo *ei)
{
    size_t words = grid_words(&v->grid);

    out->series = ARENA_ARRAY(ev->arena, v->count, struct result_series);
    if (out->series == NULL)
        return arena_refused(ev->arena, ei);
    memset(out->series, 0, v->count * sizeof *out->series);
    for (size_t i = 0; i < v->count; i++) {
        struct result_series *s = &out->series[i];
        uint64_t *present = ARENA_ARRAY(ev->arena, words, uint64_t);
        double *value = ARENA_ARRAY(ev->arena, v->grid.count, double);
        enum err e = labels_copy(&v->rows[i].labels, ev->arena, &s->labels, ei);

        if (e != ERR_OK)
            return e;
        if (present == NULL || value == NULL)
            return arena_refused(ev->arena, ei);
        memcpy(present, v->rows[i].present, words * sizeof *present);
        for (size_t at = 0, end; e == ERR_OK && at < v->grid.count; at = end) {
            e = eval_piece(ev, at, v->grid.count, &end, ei);
            for (size_t k = at; e == ERR_OK && k < end; k++)
                value[k] = row_has(&v->rows[i], k) ? v->rows[i].value[k] : 0;
        }
        if (e == ERR_OK)
            e = eval_tick(ev, 16, ei); /* labels */
        if (e != ERR_OK)
            return e;
        s->present = present;
        s->value = value;
        e = result_histograms(ev, &v->rows[i], v->grid.count, s, ei);
        if (e != ERR_OK)
            return e;
    }
    out->series_count = v->count;
    return ERR_OK;
}

static enum err result_vector(struct eval *ev, const struct plan *p, struct promql_result *out,
                              struct errinfo *ei)
{
    struct vector *v = NULL;
    enum err e = eval_vector(ev, p, &v, ei);

    if (e == ERR_OK)
        e = vector_finish_names(v, ei);
    if (e == ERR_OK && ev->query->is_range) {
        uint64_t start_ns = clock_mono_ns();

        e = vector_sort_labels(v, ei);
        ev->counters->sort_ns = clock_mono_ns() - start_ns;
    }
    if (e == ERR_OK)
        e = result_rows(ev, v, out, ei);
    vector_free(v);
    return e;
}

/* By labels, as matrices always stand. The querier's order is that of labels already. */
static enum err result_evaluate(struct eval *ev, const struct plan *p, struct promql_result *out,
                                struct errinfo *ei)
{
    switch (p->kind) {
    case PLAN_STRING:
        out->string = p->node->u.string;
        return ERR_OK;
    case PLAN_MATRIX:
    case PLAN_SUBQUERY:
        return eval_matrix(ev, p, out, ei);
    default:
        break;
    }
    if (p->node->type == VALUE_SCALAR)
        return result_scalar(ev, p, out, ei);
    return result_vector(ev, p, out, ei);
}

static enum err query_evaluate(struct eval *ev, const struct promql_expr *expr,
                               const struct plan *p, struct promql_result *out, struct errinfo *ei)
{
    enum err e;

    if (ev->query->wants_steps) {
        ev->counters->per_step = arena_calloc(ev->arena, p->grid.count, sizeof(uint64_t));
        if (ev->counters->per_step == NULL)
            return arena_refused(ev->arena, ei);
    }
    ev->counters->step_count = p->grid.count;
    *out = (struct promql_result){
        .type = ev->query->is_range ? VALUE_MATRIX : expr->root->type,
        .start_ms = p->grid.start_ms,
        .step_ms = p->grid.step_ms,
        .step_count = p->grid.count,
    };
    e = result_evaluate(ev, p, out, ei);
    if (e == ERR_OK)
        e = annotations_finish(&ev->annotations, expr->text, &out->annotations,
                               &out->annotation_count, ei);
    out->samples_read = atomic_load_explicit(&ev->counters->samples_read, memory_order_relaxed);
    out->samples_queryable =
        atomic_load_explicit(&ev->counters->samples_queryable, memory_order_relaxed);
    out->queryable_per_step = ev->counters->per_step;
    out->sort_ns = ev->counters->sort_ns;
    out->samples_peak = atomic_load_explicit(&ev->counters->samples_peak, memory_order_relaxed);
    return e;
}

/* Says which part of the query to look at. The text is a piece of the query, since there may be no
 * memory to print a tree. */
static void memory_error_explain(const struct promql_query *query, const struct eval_counters *c,
                                 struct errinfo *ei)
{
    enum { TEXT_MAX = 300 };
    const struct position_range *at = &c->largest_selector;
    struct errinfo told = *ei;
    int size = (int)(at->end - at->start);

    errinfo_prefix(&told, "query needs too much memory");
    *ei = told;
    if (c->largest_bytes == 0 || at->end > query->text.size)
        return;
    ei->code = ERR_OK; /* to be told anew */
    (void)errinfo_set(ei, ERR_LIMIT, 0, "%s; the selector %.*s%s took most, %" PRIu64 " bytes",
                      told.message, size > TEXT_MAX ? TEXT_MAX : size, query->text.data + at->start,
                      size > TEXT_MAX ? "..." : "", c->largest_bytes);
}

static enum err query_run(const struct promql_query *query, struct arena *arena,
                          struct promql_handle *handle, struct promql_result *out,
                          struct errinfo *ei)
{
    const struct promql_settings *settings = query->settings;
    struct planner planner = {.query = query,
                              .settings = settings,
                              .arena = arena,
                              .end_ms = query->is_range ? query->end_ms : query->start_ms,
                              .ei = ei};
    struct eval_counters counters = {0};
    struct eval ev = {.query = query,
                      .counters = &counters,
                      .settings = settings,
                      .arena = arena,
                      .lookback_ms = query->lookback_delta_ms > 0 ? query->lookback_delta_ms
                                                                  : settings->lookback_delta_ms,
                      .delayed_names = settings->delayed_name_removal};
    uint64_t start_ns = clock_mono_ns(), prepare_ns = 0;
    struct plan *plan;
    enum err e = promql_parse(query->text, &settings->language, arena, &handle->expr, ei);

    if (e == ERR_OK)
        e = type_check(query, handle->expr->root, ei);
    if (e == ERR_OK)
        e = query_grid(query, &planner.grid, ei);
    if (e == ERR_OK)
        e = plan_query(&planner, handle->expr->root, &plan);
    if (e == ERR_OK)
        e = querier_open(query->engine, &handle->querier, ei);
    if (e == ERR_OK) {
        querier_set_stop(handle->querier, query->stop);
        querier_set_deadline(handle->querier, query->deadline_mono_ns);
        ev.querier = handle->querier;
        annotations_init(&ev.annotations, arena);
        prepare_ns = clock_mono_ns() - start_ns;
        e = query_evaluate(&ev, handle->expr, plan, out, ei);
        out->prepare_ns = prepare_ns;
    }
    if (e == ERR_LIMIT && ei != NULL && budget_refusing(query->memory, ei) != NULL)
        memory_error_explain(query, &counters, ei);
    return e;
}

enum err promql_query_run(const struct promql_query *query, struct arena *arena,
                          struct promql_result *out, struct promql_handle **out_handle,
                          struct errinfo *ei)
{
    struct promql_handle *handle = calloc(1, sizeof *handle);
    struct promql_result result = {0};
    enum err e;

    if (handle == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "query");
    e = query_run(query, arena, handle, &result, ei);
    if (e != ERR_OK) {
        promql_query_done(handle);
        return e;
    }
    *out = result;
    *out_handle = handle;
    return ERR_OK;
}
