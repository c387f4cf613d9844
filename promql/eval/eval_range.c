/*
 * Calls of range functions: the driver that moves windows over columns, over selectors and over
 * the points of subqueries; and range vectors as results.
 */
#include "promql/eval/eval_range_internal.h"

#include <string.h>

#include "promql/eval/label_sets_internal.h"
#include "promql/parse/text_internal.h"

static bool name_is_counter(struct str name)
{
    static const char *const suffixes[] = {"_total", "_sum", "_count", "_bucket"};

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t size = strlen(suffixes[i]);

        if (name.size >= size && memcmp(name.data + name.size - size, suffixes[i], size) == 0)
            return true;
    }
    return false;
}

/* Room for marks, queue and values of a column. */
static enum err scratch_reserve(struct range_run *run, size_t count, struct errinfo *ei)
{
    if (count <= run->scratch_capacity)
        return ERR_OK;
    if (count > UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "too many samples in one series");
    count = count < 512 ? 512 : count + count / 2;
    run->marks = ARENA_ARRAY(&run->arena, count, uint32_t);
    run->queue = ARENA_ARRAY(&run->arena, count, uint32_t);
    run->values = run->function->needs_values ? ARENA_ARRAY(&run->arena, count, double) : NULL;
    if (run->marks == NULL || run->queue == NULL ||
        (run->function->needs_values && run->values == NULL))
        return arena_refused(&run->arena, ei);
    run->scratch_capacity = count;
    return ERR_OK;
}

static enum err quantile_check(struct range_run *run, double q, struct errinfo *ei)
{
    if (q >= 0 && q <= 1)
        return ERR_OK;
    if (run->any_quantile_warned && double_bits(q) == double_bits(run->quantile_warned))
        return ERR_OK;
    run->any_quantile_warned = true;
    run->quantile_warned = q;
    return annotations_add_quantile(&run->ev->annotations, range_argument_position(run), q, ei);
}

/* Step by step, for functions that look at one window at a time. */
static enum err windows_run(struct range_run *run, const struct column *c, struct row *row,
                            struct errinfo *ei)
{
    const struct plan *p = run->plan;
    struct window w = {.column = c};
    bool is_quantile = p->function->id == FUNCTION_QUANTILE_OVER_TIME;

    for (size_t k = 0; k < p->grid.count; k++) {
        enum err e;
        double value;

        w.first = run->windows.spans[k].first;
        w.end = run->windows.spans[k].end;
        if (w.first == w.end) {
            e = eval_tick(run->ev, 1, ei);
            if (e != ERR_OK)
                return e;
            continue;
        }
        w.eval_ms = grid_time_ms(&p->grid, k);
        w.scalar = run->scalars != NULL ? run->scalars[k] : 0;
        w.scalar2 = run->scalars2 != NULL ? run->scalars2[k] : 0;
        /* A long window is scanned at every step by most functions. */
        e = eval_tick(run->ev, w.end - w.first, ei);
        if (e == ERR_OK && is_quantile)
            e = quantile_check(run, w.scalar, ei);
        if (e != ERR_OK)
            return e;
        if (run->function->window(run, &w, &value))
            row_set(row, k, value);
        if (run->failed != ERR_OK)
            return run->failed;
    }
    return ERR_OK;
}

/* What a series counts as while its windows are looked at, one at a time: the longest of them, or
 * all points of a subquery. */
static uint64_t held_count(const struct range_run *run, const struct column *c)
{
    return run->plan->subquery != NULL ? c->count : run->windows.longest;
}

static void windows_count(struct range_run *run)
{
    const struct grid *grid = &run->plan->grid;

    if (!eval_counts_steps(run->ev)) {
        eval_count_queryable(run->ev, grid, 0, run->windows.total);
        return;
    }
    for (size_t k = 0; k < grid->count; k++)
        eval_count_queryable(run->ev, grid, k,
                             run->windows.spans[k].end - run->windows.spans[k].first);
}

enum err range_windows_evaluate(struct range_run *run, const struct column *c, struct row *row,
                                struct errinfo *ei)
{
    run->mark_count = run->mark_first = run->mark_end = 0;
    run->queue_first = run->queue_end = run->scanned = run->turned = 0;
    if (run->function->prepare != NULL)
        run->function->prepare(run, c);
    if (run->failed != ERR_OK)
        return run->failed;
    if (run->function->column == NULL)
        return windows_run(run, c, row, ei);
    run->function->column(run, c, row);
    return run->failed;
}

static bool column_any_histogram(const struct column *c)
{
    for (size_t i = 0; c->histogram != NULL && i < c->count; i++) {
        if (c->histogram[i] != NULL)
            return true;
    }
    return false;
}

enum err range_column_run(struct range_run *run, const struct column *c, struct str metric_name,
                          struct row *row, struct errinfo *ei)
{
    enum err e = scratch_reserve(run, c->count, ei);
    uint64_t held;

    run->ei = ei;
    run->metric_name = metric_name;
    run->overlap_annotated = false;
    if (e == ERR_OK && column_any_histogram(c))
        return range_mixed_run(run, c, metric_name, row, ei);
    if (e == ERR_OK)
        e = windows_prepare(run, c, ei);
    if (e != ERR_OK)
        return e;
    held = held_count(run, c);
    e = eval_samples_hold(run->ev, held, ei);
    if (e != ERR_OK)
        return e;
    windows_count(run);
    e = range_windows_evaluate(run, c, row, ei);
    eval_samples_release(run->ev, held);
    return e;
}

static enum err run_init(struct range_run *run, struct eval *ev, const struct plan *p,
                         struct errinfo *ei)
{
    enum err e = ERR_OK;

    *run = (struct range_run){.ev = ev, .plan = p};
    if (p->extension != EXTENSION_NONE)
        e = range_function_extended(p->extension, p->function, &run->function, ei);
    else
        run->function = range_function_find(p->function->id);
    run->range_seconds = ms_seconds(p->range_ms);
    arena_init(&run->arena, ev->query->memory);
    if (e != ERR_OK)
        return e;
    if (run->function == NULL)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "function %s is not supported yet",
                           p->function->name);
    if (p->parameter != NULL)
        e = eval_scalar(ev, p->parameter, &run->arena, &run->scalars, ei);
    if (e == ERR_OK && p->parameter2 != NULL)
        e = eval_scalar(ev, p->parameter2, &run->arena, &run->scalars2, ei);
    return e;
}

/* Where type and unit are labels, a counter is told by its type. */
static enum err annotate_type(struct range_run *run, const struct labels *labels,
                              struct errinfo *ei)
{
    struct str name = labels_get(labels, LABEL_METRIC_NAME);
    struct str type = labels_get(labels, STR_LITERAL("__type__"));
    struct arena_mark mark;
    enum err e;

    if (name.size == 0 || str_equal(type, STR_LITERAL("counter")) ||
        str_equal(type, STR_LITERAL("histogram")))
        return ERR_OK;
    mark = arena_mark_get(&run->arena);
    e = annotations_add(&run->ev->annotations, ANNOTATION_INFO, range_argument_position(run), ei,
                        "metric might not be a counter, __type__ label is not set to \"counter\" "
                        "or \"histogram\", got %s: %s",
                        text_quote(type, &run->arena), text_quote(name, &run->arena));
    arena_mark_return(&run->arena, mark);
    return e;
}

/* rate() and increase() of something that does not look like a counter. */
static enum err annotate_name(struct range_run *run, const struct labels *labels,
                              struct errinfo *ei)
{
    const struct plan *p = run->plan;
    struct str name = p->input_name;
    struct arena_mark mark;
    enum err e;

    if (!function_wants_counter(p->function->id))
        return ERR_OK;
    if (run->ev->settings->type_and_unit_labels)
        return annotate_type(run, labels, ei);
    if (p->input_name_state == NAME_VARIES)
        name = labels_get(labels, LABEL_METRIC_NAME);
    else if (run->name_annotated)
        return ERR_OK;
    run->name_annotated = true;
    if (name.size == 0 || name_is_counter(name))
        return ERR_OK;
    mark = arena_mark_get(&run->arena);
    e = annotations_add(&run->ev->annotations, ANNOTATION_INFO, range_argument_position(run), ei,
                        "metric might not be a counter, name does not end in "
                        "_total/_sum/_count/_bucket: %s",
                        text_quote(name, &run->arena));
    arena_mark_return(&run->arena, mark);
    return e;
}

/* A sink for columns or for a subquery's rows. */
struct range_sink {
    union {
        struct sink rows;
        struct column_sink columns;
    } sink;
    struct range_run run;
    struct sink *next;
    bool is_inside;          /* the call is in a subquery itself */
    struct label_table seen; /* label sets so far, where names vary and are dropped */
};

/* The metric's name, for annotations. Only where names vary are they read in any case. */
static struct str series_name(const struct plan *p, const struct labels *labels)
{
    return p->input_name_state == NAME_FIXED ? p->input_name
                                             : labels_get(labels, LABEL_METRIC_NAME);
}

/* Evaluates one series into the next row of the batch. */
static enum err series_run(struct range_sink *s, const struct labels *labels, bool drop_name,
                           const struct column *raw, struct batch *b, struct errinfo *ei)
{
    const struct plan *p = s->run.plan;
    struct row *row = &b->rows[b->count];
    struct column c = *raw;
    enum err e = ERR_OK;

    if (!s->run.function->wants_stale)
        e = column_without_stale(s->run.ev, raw, b->arena, &c, ei);
    s->run.out = b->arena;
    if (e == ERR_OK)
        e = row_alloc(s->run.ev, row, &p->grid, b->arena, ei);
    if (e == ERR_OK)
        e = range_column_run(&s->run, &c, series_name(p, labels), row, ei);
    if (e == ERR_OK)
        e = eval_tick(s->run.ev, c.count + p->grid.count * 4, ei);
    if (e != ERR_OK || row_is_empty(row, &p->grid))
        return e;
    if (row_any_float(row, &p->grid))
        e = annotate_name(&s->run, labels, ei);
    row->labels = *labels;
    row->drop_name = drop_name;
    if (e == ERR_OK && !function_keeps_name(p->function->id)) {
        row->drop_name = true;
        if (!s->run.ev->delayed_names)
            e = labels_without_metadata(labels, b->arena, &row->labels, ei);
        row->lost_metadata = labels->count > row->labels.count + 1;
    }
    if (e == ERR_OK && p->checks_labelset) {
        size_t index;
        bool added;

        e = label_table_add(&s->seen, &row->labels, &index, &added, ei);
        if (e == ERR_OK && !added)
            e = errinfo_set(ei, ERR_EXECUTION, 0,
                            "vector cannot contain metrics with the same labelset");
    }
    if (e == ERR_OK)
        b->count++;
    return e;
}

static enum err columns_push(struct column_sink *sink, struct column_batch *columns,
                             struct errinfo *ei)
{
    struct range_sink *s = (struct range_sink *)sink;
    struct batch b;
    enum err e = eval_batch_init(&b, &s->run.plan->grid, columns, ei);

    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < columns->count && e == ERR_OK; i++) {
        if (columns->columns[i].count > 0)
            e = series_run(s, &columns->labels[i], false, &columns->columns[i], &b, ei);
    }
    if (e != ERR_OK || b.count == 0)
        return e;
    return s->next->push(s->next, &b, ei);
}

/* A row of a subquery as a column: its present steps. Histograms stay those of the row. */
static enum err row_column(struct eval *ev, const struct row *row, const struct grid *grid,
                           struct arena *arena, struct column *out, struct errinfo *ei)
{
    size_t count = row_step_count(row, grid), n = 0;
    int64_t *t_ms = ARENA_ARRAY(arena, count, int64_t);
    double *value = ARENA_ARRAY(arena, count, double);
    const struct histogram **histogram = NULL;
    enum err e = ERR_OK;

    if (row_any_histogram(row, grid->count)) {
        histogram = ARENA_ARRAY(arena, count, const struct histogram *);
        if (histogram == NULL)
            return arena_refused(arena, ei);
    }
    if (t_ms == NULL || value == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0, end; e == ERR_OK && i < grid->count; i = end) {
        e = eval_piece(ev, i, grid->count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++) {
            if (!row_has(row, k))
                continue;
            t_ms[n] = grid_time_ms(grid, k);
            value[n] = row->value[k];
            if (histogram != NULL)
                histogram[n] = row_histogram(row, k);
            n++;
        }
    }
    *out = (struct column){.count = n, .t_ms = t_ms, .value = value, .histogram = histogram};
    return e;
}

/* What a hint says of the sample before need not hold for the point before: it is not looked at, so
 * that resets are told by the counts. */
static enum err hints_forget(struct eval *ev, struct column *c, struct arena *arena,
                             struct errinfo *ei)
{
    const struct histogram **list, *last = NULL;
    struct histogram *copy = NULL;

    if (c->histogram == NULL)
        return ERR_OK;
    list = ARENA_ARRAY(arena, c->count, const struct histogram *);
    if (list == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0; i < c->count; i++) {
        const struct histogram *h = c->histogram[i];

        list[i] = h;
        if (h == NULL || h->hint == HISTOGRAM_HINT_UNKNOWN || h->hint == HISTOGRAM_HINT_GAUGE)
            continue;
        if (h != last) {
            copy = ARENA_NEW(arena, struct histogram);
            if (copy == NULL)
                return arena_refused(arena, ei);
            *copy = *h; /* buckets stay shared: nobody changes them */
            copy->hint = HISTOGRAM_HINT_UNKNOWN;
            last = h;
        }
        list[i] = copy;
    }
    c->histogram = list;
    return eval_tick(ev, c->count, ei);
}

static enum err subquery_push(struct sink *sink, struct batch *in, struct errinfo *ei)
{
    struct range_sink *s = (struct range_sink *)sink;
    struct batch b = {.grid = &s->run.plan->grid, .arena = in->arena, .any_order = in->any_order};
    enum err e = ERR_OK;

    b.rows = ARENA_ARRAY(b.arena, in->count, struct row);
    if (b.rows == NULL)
        return arena_refused(b.arena, ei);
    s->run.ev->in_subquery = s->is_inside; /* the windows are the call's */
    for (size_t i = 0; i < in->count && e == ERR_OK; i++) {
        struct column c;

        e = row_column(s->run.ev, &in->rows[i], in->grid, b.arena, &c, ei);
        if (e == ERR_OK)
            e = hints_forget(s->run.ev, &c, b.arena, ei);
        if (e == ERR_OK && c.count > 0)
            e = series_run(s, &in->rows[i].labels, in->rows[i].drop_name, &c, &b, ei);
    }
    s->run.ev->in_subquery = true;
    if (e != ERR_OK || b.count == 0)
        return e;
    return s->next->push(s->next, &b, ei);
}

/* Where a subquery's rows may be parts of one series (names dropped at different steps), the parts
 * must meet before a window looks at them: a barrier then. */
static bool subquery_needs_vector(const struct plan *p)
{
    if (p->kind != PLAN_MAP)
        return false;
    for (const struct map_stage *s = p->stages; s != NULL; s = s->next) {
        if (s->checks_labelset)
            return true;
    }
    return false;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
static enum err subquery_run(struct range_sink *s, struct errinfo *ei)
{
    const struct plan *p = s->run.plan;
    struct eval *ev = s->run.ev;
    struct vector *v = NULL;
    enum err e;

    s->sink.rows.push = subquery_push;
    s->is_inside = ev->in_subquery;
    ev->in_subquery = true;
    if (!subquery_needs_vector(p->input)) {
        e = eval_stream(ev, p->input, &s->sink.rows, ei);
    } else {
        e = eval_vector(ev, p->input, &v, ei);
        if (e == ERR_OK)
            e = vector_push(v, &s->sink.rows, ei);
    }
    vector_free(v);
    ev->in_subquery = s->is_inside;
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_range_call_stream(struct eval *ev, const struct plan *p, struct sink *sink,
                                struct errinfo *ei)
{
    struct range_sink s = {.next = sink};
    int64_t first = plan_reference_ms(p, &p->grid, 0);
    int64_t last = plan_reference_ms(p, &p->grid, p->grid.count - 1);
    enum err e = run_init(&s.run, ev, p, ei);

    label_table_init(&s.seen, &s.run.arena);
    if (e == ERR_OK && p->subquery != NULL) {
        e = subquery_run(&s, ei);
    } else if (e == ERR_OK) {
        s.sink.columns.push = columns_push;
        first = ms_subtract(first, ms_add(p->range_ms, extension_before_ms(ev, p)));
        e = eval_selector_columns(ev, p, ms_add(first, 1), ms_add(last, extension_after_ms(ev, p)),
                                  &s.sink.columns, ei);
    }
    arena_done(&s.run.arena);
    return e;
}

/* --- range vectors as results --- */

struct matrix_sink {
    struct column_sink sink;
    struct eval *ev;
    const struct plan *plan;
    int64_t end_ms; /* of the range */
    struct promql_result *out;
    size_t capacity;
};

static enum err matrix_add(struct matrix_sink *s, const struct labels *labels,
                           const struct column *c, struct errinfo *ei)
{
    struct arena *arena = s->ev->arena;
    struct promql_result *r = s->out;
    const struct histogram **histogram = NULL;
    int64_t *t_ms;
    double *value;
    enum err e;

    if (c->count == 0)
        return ERR_OK;
    if (r->series_count == s->capacity) {
        size_t capacity = s->capacity == 0 ? 16 : s->capacity * 2;

        r->series =
            arena_grow_array(arena, r->series, r->series_count, capacity, sizeof *r->series);
        r->raw = arena_grow_array(arena, r->raw, r->series_count, capacity, sizeof *r->raw);
        if (r->series == NULL || r->raw == NULL)
            return arena_refused(arena, ei);
        s->capacity = capacity;
    }
    t_ms = ARENA_ARRAY(arena, c->count, int64_t);
    value = ARENA_ARRAY(arena, c->count, double);
    if (t_ms == NULL || value == NULL)
        return arena_refused(arena, ei);
    e = eval_copy(s->ev, value, c->value, c->count, ei);
    if (e != ERR_OK)
        return e;
    memcpy(t_ms, c->t_ms, c->count * sizeof *t_ms);
    r->series[r->series_count] = (struct result_series){0};
    e = labels_copy(labels, arena, &r->series[r->series_count].labels, ei);
    if (e == ERR_OK)
        e = eval_samples_hold(s->ev, column_weight(c), ei);
    if (e != ERR_OK)
        return e;
    if (c->histogram != NULL)
        e = histograms_keep(s->ev, c->histogram, NULL, c->count, arena, &histogram, ei);
    if (e == ERR_OK)
        r->raw[r->series_count++] = (struct column){c->count, t_ms, value, histogram};
    return e;
}

static enum err matrix_push(struct column_sink *sink, struct column_batch *b, struct errinfo *ei)
{
    struct matrix_sink *s = (struct matrix_sink *)sink;
    enum err e = ERR_OK;

    for (size_t i = 0; i < b->count && e == ERR_OK; i++) {
        struct column c;

        e = column_without_stale(s->ev, &b->columns[i], b->arena, &c, ei);
        if (e == ERR_OK && s->plan->extension != EXTENSION_NONE && column_any_histogram(&c))
            return errinfo_set(ei, ERR_EXECUTION, 0, "%s modifier is not supported with histograms",
                               s->plan->extension == EXTENSION_SMOOTHED ? "smoothed" : "anchored");
        if (e == ERR_OK && s->plan->extension != EXTENSION_NONE)
            e = extended_column(s->ev, s->plan, &c, s->end_ms, b->arena, &c, ei);
        if (e == ERR_OK)
            e = matrix_add(s, &b->labels[i], &c, ei);
        if (e == ERR_OK)
            eval_count_queryable(s->ev, &s->plan->grid, 0, column_weight(&c));
    }
    return e;
}

static enum err subquery_matrix(struct matrix_sink *s, const struct plan *p, struct errinfo *ei)
{
    struct vector *v = NULL;
    enum err e = eval_vector(s->ev, p->input, &v, ei);

    if (e == ERR_OK)
        e = vector_finish_names(v, ei);
    if (e == ERR_OK)
        e = vector_sort_labels(v, ei);
    for (size_t i = 0; e == ERR_OK && i < v->count; i++) {
        struct column c;

        e = row_column(s->ev, &v->rows[i], &v->grid, &v->arena, &c, ei);
        if (e == ERR_OK)
            e = matrix_add(s, &v->rows[i].labels, &c, ei);
    }
    vector_free(v);
    return e;
}

enum err eval_matrix(struct eval *ev, const struct plan *p, struct promql_result *out,
                     struct errinfo *ei)
{
    struct matrix_sink s = {.sink.push = matrix_push, .ev = ev, .plan = p, .out = out};
    int64_t first;

    s.end_ms = plan_reference_ms(p, &p->grid, 0);

    if (p->kind == PLAN_SUBQUERY)
        return subquery_matrix(&s, p, ei);
    first = ms_subtract(s.end_ms, ms_add(p->range_ms, extension_before_ms(ev, p)));
    return eval_selector_columns(ev, p, ms_add(first, 1),
                                 ms_add(s.end_ms, extension_after_ms(ev, p)), &s.sink, ei);
}
