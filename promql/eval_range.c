/*
 * Calls of range functions: the driver that moves windows over columns, over selectors and over
 * the points of subqueries; and range vectors as results.
 */
#include "promql/eval_range_internal.h"

#include <string.h>

#include "promql/label_sets_internal.h"
#include "promql/text_internal.h"

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
    return annotations_add_quantile(&run->ev->annotations,
                                    node_unwrap(run->plan->node->u.call.args[0])->position, q, ei);
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

static enum err windows_evaluate(struct range_run *run, const struct column *c, struct row *row,
                                 struct errinfo *ei)
{
    run->mark_count = run->mark_first = run->mark_end = 0;
    run->queue_first = run->queue_end = run->scanned = 0;
    if (run->function->prepare != NULL)
        run->function->prepare(run, c);
    if (run->failed != ERR_OK)
        return run->failed;
    if (run->function->column == NULL)
        return windows_run(run, c, row, ei);
    run->function->column(run, c, row);
    return run->failed;
}

enum err range_column_run(struct range_run *run, const struct column *c, struct row *row,
                          struct errinfo *ei)
{
    enum err e = scratch_reserve(run, c->count, ei);
    uint64_t held;

    run->ei = ei;
    if (e == ERR_OK)
        e = windows_prepare(run, c, ei);
    if (e != ERR_OK)
        return e;
    held = held_count(run, c);
    e = eval_samples_hold(run->ev, held, ei);
    if (e != ERR_OK)
        return e;
    e = windows_evaluate(run, c, row, ei);
    eval_samples_release(run->ev, held);
    return e;
}

static enum err run_init(struct range_run *run, struct eval *ev, const struct plan *p,
                         struct errinfo *ei)
{
    int64_t seconds = p->range_ms / 1000; /* as Go's Duration.Seconds() adds them up */

    *run = (struct range_run){.ev = ev, .plan = p};
    run->function = range_function_find(p->function->id);
    run->range_seconds = (double)seconds + (double)(p->range_ms % 1000 * 1000000) / 1e9;
    arena_init(&run->arena, ev->query->memory);
    if (run->function == NULL)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "function %s is not supported yet",
                           p->function->name);
    if (p->parameter == NULL)
        return ERR_OK;
    return eval_scalar(ev, p->parameter, &run->arena, &run->scalars, ei);
}

/* rate() and increase() of something that does not look like a counter. */
static enum err annotate_name(struct range_run *run, const struct labels *labels,
                              struct errinfo *ei)
{
    const struct plan *p = run->plan;
    struct str name = p->input_name;
    struct arena_mark mark;
    enum err e;

    if (p->function->id != FUNCTION_RATE && p->function->id != FUNCTION_INCREASE)
        return ERR_OK;
    if (p->input_name_state == NAME_VARIES)
        name = labels_get(labels, LABEL_METRIC_NAME);
    else if (run->name_annotated)
        return ERR_OK;
    run->name_annotated = true;
    if (name.size == 0 || name_is_counter(name))
        return ERR_OK;
    mark = arena_mark_get(&run->arena);
    e = annotations_add(&run->ev->annotations, ANNOTATION_INFO,
                        node_unwrap(p->node->u.call.args[0])->position, ei,
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
    struct label_table seen; /* label sets so far, where names vary and are dropped */
};

/* Evaluates one series into the next row of the batch. */
static enum err series_run(struct range_sink *s, const struct labels *labels, bool drop_name,
                           const struct column *raw, struct batch *b, struct errinfo *ei)
{
    const struct plan *p = s->run.plan;
    struct row *row = &b->rows[b->count];
    enum function_id id = p->function->id;
    struct column c;
    enum err e;

    e = column_without_stale(s->run.ev, raw, b->arena, &c, ei);
    if (e == ERR_OK)
        e = row_alloc(s->run.ev, row, &p->grid, b->arena, ei);
    if (e == ERR_OK)
        e = range_column_run(&s->run, &c, row, ei);
    if (e == ERR_OK)
        e = eval_tick(s->run.ev, c.count + p->grid.count * 4, ei);
    if (e != ERR_OK || row_is_empty(row, &p->grid))
        return e;
    e = annotate_name(&s->run, labels, ei);
    row->labels = *labels;
    row->drop_name = drop_name;
    if (e == ERR_OK && id != FUNCTION_LAST_OVER_TIME && id != FUNCTION_FIRST_OVER_TIME) {
        row->drop_name = true;
        if (!s->run.ev->delayed_names)
            e = labels_without_metadata(labels, b->arena, &row->labels, ei);
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

/* A row of a subquery as a column: its present steps. */
static enum err row_column(struct eval *ev, const struct row *row, const struct grid *grid,
                           struct arena *arena, struct column *out, struct errinfo *ei)
{
    size_t count = (size_t)row_sample_count(row, grid), n = 0;
    int64_t *t_ms = ARENA_ARRAY(arena, count, int64_t);
    double *value = ARENA_ARRAY(arena, count, double);
    enum err e = ERR_OK;

    if (t_ms == NULL || value == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0, end; e == ERR_OK && i < grid->count; i = end) {
        e = eval_piece(ev, i, grid->count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++) {
            if (!row_has(row, k))
                continue;
            t_ms[n] = grid_time_ms(grid, k);
            value[n++] = row->value[k];
        }
    }
    *out = (struct column){n, t_ms, value};
    return e;
}

static enum err subquery_push(struct sink *sink, struct batch *in, struct errinfo *ei)
{
    struct range_sink *s = (struct range_sink *)sink;
    struct batch b = {.grid = &s->run.plan->grid, .arena = in->arena, .unit = in->unit};
    enum err e = ERR_OK;

    b.rows = ARENA_ARRAY(b.arena, in->count, struct row);
    if (b.rows == NULL)
        return arena_refused(b.arena, ei);
    for (size_t i = 0; i < in->count && e == ERR_OK; i++) {
        struct column c;

        e = row_column(s->run.ev, &in->rows[i], in->grid, b.arena, &c, ei);
        if (e == ERR_OK && c.count > 0)
            e = series_run(s, &in->rows[i].labels, in->rows[i].drop_name, &c, &b, ei);
    }
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
    struct vector *v = NULL;
    enum err e;

    s->sink.rows.push = subquery_push;
    if (!subquery_needs_vector(p->input))
        return eval_stream(s->run.ev, p->input, &s->sink.rows, ei);
    e = eval_vector(s->run.ev, p->input, &v, ei);
    if (e == ERR_OK)
        e = vector_push(v, &s->sink.rows, ei);
    vector_free(v);
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
        e = eval_selector_columns(ev, p, ms_add(ms_subtract(first, p->range_ms), 1), last,
                                  &s.sink.columns, ei);
    }
    arena_done(&s.run.arena);
    return e;
}

/* --- range vectors as results --- */

struct matrix_sink {
    struct column_sink sink;
    struct eval *ev;
    struct promql_result *out;
    size_t capacity;
};

static enum err matrix_add(struct matrix_sink *s, const struct labels *labels,
                           const struct column *c, struct errinfo *ei)
{
    struct arena *arena = s->ev->arena;
    struct promql_result *r = s->out;
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
        e = eval_samples_hold(s->ev, c->count, ei);
    if (e != ERR_OK)
        return e;
    r->raw[r->series_count++] = (struct column){c->count, t_ms, value};
    return ERR_OK;
}

static enum err matrix_push(struct column_sink *sink, struct column_batch *b, struct errinfo *ei)
{
    struct matrix_sink *s = (struct matrix_sink *)sink;
    enum err e = ERR_OK;

    for (size_t i = 0; i < b->count && e == ERR_OK; i++) {
        struct column c;

        e = column_without_stale(s->ev, &b->columns[i], b->arena, &c, ei);
        if (e == ERR_OK)
            e = matrix_add(s, &b->labels[i], &c, ei);
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
    struct matrix_sink s = {.sink.push = matrix_push, .ev = ev, .out = out};
    int64_t last = plan_reference_ms(p, &p->grid, 0);

    if (p->kind == PLAN_SUBQUERY)
        return subquery_matrix(&s, p, ei);
    return eval_selector_columns(ev, p, ms_add(ms_subtract(last, p->range_ms), 1), last, &s.sink,
                                 ei);
}
