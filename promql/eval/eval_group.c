/*
 * Aggregations that need their groups whole: topk, bottomk, limitk, limit_ratio, quantile,
 * count_values. Barriers; their input is charged to the query.
 */
#include <stdlib.h>
#include <string.h>

#include "base/float_text.h"
#include "promql/eval/annotations_histogram_internal.h"
#include "promql/eval/eval_group_internal.h"
#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"
#include "promql/histogram_text.h"
#include "promql/parse/text_internal.h"

/* Rows of the input by group: members[first[g] .. first[g + 1]) are row indexes in input order. */
struct grouping {
    struct label_table keys;
    size_t *members, *first;
};

struct group_run {
    struct eval *ev;
    const struct plan *plan;
    struct vector *in;
    struct arena arena;
    struct grouping grouping;
    double *parameter; /* per step; NULL for count_values */
    double parameter_min, parameter_max;
    bool parameter_nan;
    bool has_ignored; /* a histogram, where floats alone count */
    double *offsets;  /* of limit_ratio, by row */
};

static enum err group_names(struct group_run *r, bool with_value_label, struct str **out,
                            size_t *out_count, struct errinfo *ei)
{
    const struct node *n = r->plan->node;
    size_t count = n->u.aggregate.label_count;
    struct str *names = ARENA_ARRAY(&r->arena, count + 1, struct str);

    if (names == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t i = 0; i < count; i++)
        names[i] = n->u.aggregate.labels[i];
    if (n->u.aggregate.without)
        names[count++] = LABEL_METRIC_NAME;
    else if (with_value_label)
        names[count++] = node_unwrap(n->u.aggregate.param)->u.string;
    return names_sort(names, count, &r->arena, out, out_count, ei);
}

static enum err group_labels(struct group_run *r, const struct labels *in, const struct str *names,
                             size_t name_count, struct labels *out, struct errinfo *ei)
{
    if (r->plan->node->u.aggregate.without)
        return labels_drop(in, names, name_count, &r->arena, out, ei);
    return labels_keep(in, names, name_count, &r->arena, out, ei);
}

static enum err grouping_make(struct group_run *r, struct errinfo *ei)
{
    struct grouping *g = &r->grouping;
    size_t count = r->in->count, name_count;
    size_t *group_of = ARENA_ARRAY(&r->arena, count, size_t);
    struct str *names;
    enum err e = group_names(r, false, &names, &name_count, ei);

    label_table_init(&g->keys, &r->arena);
    if (group_of == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        struct labels key;
        bool added;

        e = group_labels(r, &r->in->rows[i].labels, names, name_count, &key, ei);
        if (e == ERR_OK)
            e = label_table_add(&g->keys, &key, &group_of[i], &added, ei);
        if (e == ERR_OK)
            e = eval_tick(r->ev, 16, ei);
    }
    if (e != ERR_OK)
        return e;
    g->members = ARENA_ARRAY(&r->arena, count, size_t);
    g->first = arena_calloc(&r->arena, g->keys.count + 2, sizeof *g->first);
    if (g->members == NULL || g->first == NULL)
        return arena_refused(&r->arena, ei);
    /* Counting sort: first[g + 2] counts, then becomes the running start of g + 1. */
    for (size_t i = 0; i < count; i++)
        g->first[group_of[i] + 2]++;
    for (size_t i = 2; i < g->keys.count + 2; i++)
        g->first[i] += g->first[i - 1];
    for (size_t i = 0; i < count; i++)
        g->members[g->first[group_of[i] + 1]++] = i;
    return ERR_OK;
}

/* --- topk, bottomk, limitk, limit_ratio --- */

struct candidate {
    double value;
    size_t row;
};

/* Go's heap.Interface over candidates as Prometheus uses it: NaN is below everything, equal values
 * compare neither way. Which of several equal candidates stays is decided by the heap's own moves,
 * so they are Go's, step by step: users see the same series as in Prometheus. */
static bool candidate_less(const struct candidate *a, const struct candidate *b, bool is_top)
{
    if (isnan(a->value))
        return true;
    return is_top ? a->value < b->value : a->value > b->value;
}

static void candidate_swap(struct candidate *a, struct candidate *b)
{
    struct candidate swap = *a;

    *a = *b;
    *b = swap;
}

static void heap_up(struct candidate *heap, size_t i, bool is_top)
{
    while (i > 0) {
        size_t parent = (i - 1) / 2;

        if (!candidate_less(&heap[i], &heap[parent], is_top))
            return;
        candidate_swap(&heap[i], &heap[parent]);
        i = parent;
    }
}

static void heap_down(struct candidate *heap, size_t count, bool is_top)
{
    for (size_t i = 0, child = 1; child < count; child = 2 * i + 1) {
        if (child + 1 < count && candidate_less(&heap[child + 1], &heap[child], is_top))
            child++;
        if (!candidate_less(&heap[child], &heap[i], is_top))
            return;
        candidate_swap(&heap[i], &heap[child]);
        i = child;
    }
}

/* Offers a candidate to a heap of at most k; the root is the next to go. */
static size_t heap_offer(struct candidate *heap, size_t count, size_t k, struct candidate c,
                         bool is_top)
{
    if (count < k) {
        heap[count] = c;
        heap_up(heap, count, is_top);
        return count + 1;
    }
    if ((is_top ? heap[0].value < c.value : heap[0].value > c.value) ||
        (isnan(heap[0].value) && !isnan(c.value))) {
        heap[0] = c;
        heap_down(heap, count, is_top);
    }
    return count;
}

/* Best first; equal ones stay as the heap has them. Insertion sort is what Go runs up to twelve
 * elements; more of them go through a merge of the same stability. */
static enum err candidates_sort(struct eval *ev, struct candidate *items, struct candidate *scratch,
                                size_t count, bool is_top, struct errinfo *ei)
{
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t low = 0; low < count; low += 2 * width) {
            size_t middle = low + width < count ? low + width : count;
            size_t high = middle + width < count ? middle + width : count;
            size_t a = low, b = middle;

            for (size_t n = low; n < high; n++) {
                /* NaN is less than NaN: they change places, as they do in Go */
                bool take_b =
                    a == middle || (b < high && candidate_less(&items[a], &items[b], is_top));

                scratch[n] = take_b ? items[b++] : items[a++];
            }
        }
        memcpy(items, scratch, count * sizeof *items);
        enum err e = eval_tick(ev, 4 * count, ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err parameter_refuse(double v, const char *what, struct errinfo *ei)
{
    char text[FLOAT_TEXT_SIZE];

    (void)float_format_g(v, text); /* the length is not needed */
    return errinfo_set(ei, ERR_EXECUTION, 0, "Scalar value %s %s int64", text, what);
}

static enum err parameter_check_k(struct group_run *r, bool *empty, struct errinfo *ei)
{
    *empty = r->parameter_max < 1;
    if (*empty)
        return ERR_OK;
    if (r->parameter_nan)
        return errinfo_set(ei, ERR_EXECUTION, 0, "Parameter value is NaN");
    if (r->parameter_min <= -9223372036854775808.0)
        return parameter_refuse(r->parameter_min, "underflows", ei);
    if (r->parameter_max >= 9223372036854775808.0)
        return parameter_refuse(r->parameter_max, "overflows", ei);
    return ERR_OK;
}

static enum err ratio_annotate(struct group_run *r, double ratio, int limit, struct errinfo *ei)
{
    char text[FLOAT_TEXT_SIZE];

    (void)float_format_g(ratio, text); /* the length is not needed */
    return annotations_add(&r->ev->annotations, ANNOTATION_WARNING,
                           node_unwrap(r->plan->node->u.aggregate.param)->position, ei,
                           "ratio value should be between -1 and 1, got %s, capping to %d", text,
                           limit);
}

static enum err parameter_check_ratio(struct group_run *r, bool *empty, struct errinfo *ei)
{
    enum err e = ERR_OK;

    *empty = r->parameter_max == 0 && r->parameter_min == 0;
    if (*empty)
        return ERR_OK;
    if (r->parameter_nan)
        return errinfo_set(ei, ERR_EXECUTION, 0, "Ratio value is NaN");
    if (r->parameter_max > 1)
        e = ratio_annotate(r, r->parameter_max, 1, ei);
    if (e == ERR_OK && r->parameter_min < -1)
        e = ratio_annotate(r, r->parameter_min, -1, ei);
    return e == ERR_OK ? ratio_offsets(r->in, &r->arena, &r->offsets, ei) : e;
}

/* How many a group keeps at a step; what limit_ratio() keeps is up to each series. */
static size_t step_limit(const struct group_run *r, size_t step)
{
    double k = r->parameter[step];

    if (r->offsets != NULL)
        return k != 0 ? r->in->count : 0;
    return !(k >= 1) ? 0 : k < (double)r->in->count ? (size_t)k : r->in->count;
}

/* limitk() keeps the first k, but both limits leave them in the order of a heap by value. */
static size_t step_offer(const struct group_run *r, size_t step, struct candidate *items,
                         size_t count, size_t k, struct candidate c)
{
    enum aggregate_op op = r->plan->node->u.aggregate.op;

    if ((op == AGG_LIMITK && count == k) ||
        (op == AGG_LIMIT_RATIO && !ratio_keeps(r->parameter[step], r->offsets[c.row])))
        return count;
    return heap_offer(items, count, k, c, op != AGG_BOTTOMK);
}

/* Those that choose by value look at floats alone. */
static bool ignores_histogram(const struct group_run *r, const struct row *row, size_t step)
{
    enum aggregate_op op = r->plan->node->u.aggregate.op;

    return row_histogram(row, step) != NULL && op != AGG_LIMITK && op != AGG_LIMIT_RATIO;
}

/* Chooses from one group at one step: the bits of what stays in `kept`, and itself in `items`. */
static enum err step_select(struct group_run *r, size_t group, size_t step, struct candidate *items,
                            uint64_t *const *kept, size_t *out, struct errinfo *ei)
{
    const struct grouping *g = &r->grouping;
    size_t count = 0, k = step_limit(r, step);
    enum err e = ERR_OK;

    *out = 0;
    if (k == 0)
        return eval_tick(r->ev, 1, ei);
    for (size_t i = g->first[group]; i < g->first[group + 1] && e == ERR_OK; i++) {
        const struct row *row = &r->in->rows[g->members[i]];

        if (row_has(row, step) && ignores_histogram(r, row, step))
            r->has_ignored = true;
        else if (row_has(row, step))
            count = step_offer(r, step, items, count, k,
                               (struct candidate){row->value[step], g->members[i]});
        e = eval_tick(r->ev, 4, ei);
    }
    for (size_t i = 0; i < count; i++)
        kept[items[i].row][step / 64] |= UINT64_C(1) << (step % 64);
    *out = count;
    return e;
}

/* An instant result stands group by group, the best first where there is one. */
static enum err order_instant(struct group_run *r, const struct candidate *ordered, size_t count,
                              struct errinfo *ei)
{
    struct row *rows = ARENA_ARRAY(&r->in->arena, count, struct row);

    if (rows == NULL)
        return arena_refused(&r->in->arena, ei);
    for (size_t i = 0; i < count; i++)
        rows[i] = r->in->rows[ordered[i].row];
    r->in->rows = rows;
    r->in->count = r->in->capacity = count;
    return ERR_OK;
}

static enum err run_select(struct group_run *r, struct errinfo *ei)
{
    struct vector *in = r->in;
    const struct grid *grid = &r->plan->grid;
    struct candidate *items = ARENA_ARRAY(&r->arena, in->count, struct candidate);
    struct candidate *scratch = ARENA_ARRAY(&r->arena, in->count, struct candidate);
    uint64_t **kept = ARENA_ARRAY(&r->arena, in->count, uint64_t *);
    enum aggregate_op op = r->plan->node->u.aggregate.op;
    size_t ordered = 0;
    bool empty;
    enum err e = op == AGG_LIMIT_RATIO ? parameter_check_ratio(r, &empty, ei)
                                       : parameter_check_k(r, &empty, ei);

    if (e != ERR_OK)
        return e;
    if (empty) {
        in->count = 0;
        return ERR_OK;
    }
    if (items == NULL || scratch == NULL || kept == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t i = 0; i < in->count; i++) {
        kept[i] = arena_calloc(&in->arena, grid_words(grid), sizeof **kept);
        if (kept[i] == NULL)
            return arena_refused(&in->arena, ei);
        e = eval_tick(r->ev, 8, ei);
        if (e != ERR_OK)
            return e;
    }
    for (size_t g = 0; g < r->grouping.keys.count && e == ERR_OK; g++) {
        for (size_t k = 0; k < grid->count && e == ERR_OK; k++) {
            size_t n;

            e = step_select(r, g, k, items + ordered, kept, &n, ei);
            if (e == ERR_OK && grid->count == 1 && (op == AGG_TOPK || op == AGG_BOTTOMK))
                e = candidates_sort(r->ev, items + ordered, scratch, n, op == AGG_TOPK, ei);
            if (grid->count == 1)
                ordered += n;
        }
    }
    for (size_t i = 0; i < in->count; i++)
        in->rows[i].present = kept[i];
    if (e == ERR_OK && grid->count == 1)
        e = order_instant(r, items, ordered, ei);
    return e;
}

/* --- quantile --- */

static enum err annotate_quantile(struct group_run *r, struct errinfo *ei)
{
    struct annotations *a = &r->ev->annotations;
    struct position_range position = node_unwrap(r->plan->node->u.aggregate.param)->position;
    enum err e = ERR_OK;

    if (r->parameter_nan)
        e = annotations_add_quantile(a, position, NAN, ei);
    if (e == ERR_OK && r->parameter_max > 1)
        e = annotations_add_quantile(a, position, r->parameter_max, ei);
    if (e == ERR_OK && r->parameter_min < 0)
        e = annotations_add_quantile(a, position, r->parameter_min, ei);
    return e;
}

static enum err run_quantile(struct group_run *r, struct vector *out, struct errinfo *ei)
{
    const struct grouping *g = &r->grouping;
    double *values = ARENA_ARRAY(&r->arena, r->in->count, double);
    enum err e = annotate_quantile(r, ei);

    if (values == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t group = 0; group < g->keys.count && e == ERR_OK; group++) {
        struct row *row;

        e = vector_add(out, &row, ei);
        if (e == ERR_OK)
            e = labels_copy(&g->keys.keys[group], &out->arena, &row->labels, ei);
        for (size_t k = 0; e == ERR_OK && k < r->plan->grid.count; k++) {
            double quantile;
            size_t count = 0;

            for (size_t i = g->first[group]; i < g->first[group + 1] && e == ERR_OK; i++) {
                const struct row *member = &r->in->rows[g->members[i]];

                if (row_has(member, k) && ignores_histogram(r, member, k))
                    r->has_ignored = true;
                else if (row_has(member, k))
                    values[count++] = member->value[k];
                row->drop_name = row->drop_name || member->drop_name;
                e = eval_tick(r->ev, 4, ei);
            }
            if (e == ERR_OK && count > 0) {
                e = quantile_of(r->ev, r->parameter[k], values, count, &quantile, ei);
                row_set(row, k, quantile);
            }
        }
    }
    return e;
}

/* --- count_values --- */

/* A sample's value as a label. */
static enum err value_text(const struct row *in, size_t step, struct arena *arena, struct str *out,
                           struct errinfo *ei)
{
    const struct histogram *h = row_histogram(in, step);
    char text[FLOAT_TEXT_SIZE], *copy;
    struct byte_writer w;
    enum err e = ERR_OK;

    writer_init(&w);
    if (h != NULL)
        histogram_write_text(&w, h);
    else
        writer_append(&w, text, float_format_f(in->value[step], text));
    copy = arena_memdup0(arena, w.data, w.size);
    *out = (struct str){copy, w.size};
    if (w.failed)
        e = errinfo_set(ei, ERR_NOMEM, 0, "label value of a query");
    else if (copy == NULL)
        e = arena_refused(arena, ei);
    writer_done(&w);
    return e;
}

/* The result row for a value of a row: labels of its group and the value as text. */
static enum err value_row(struct group_run *r, const struct row *in, size_t step,
                          struct label_table *table, const struct str *names, size_t name_count,
                          struct vector *out, size_t *index, struct errinfo *ei)
{
    struct str label = node_unwrap(r->plan->node->u.aggregate.param)->u.string, text;
    struct arena_mark mark = arena_mark_get(&r->arena);
    struct labels with_value, key;
    struct row *row;
    bool added;
    enum err e = value_text(in, step, &r->arena, &text, ei);

    if (e == ERR_OK)
        e = labels_with(&in->labels, label, text, &r->arena, &with_value, ei);
    if (e == ERR_OK)
        e = group_labels(r, &with_value, names, name_count, &key, ei);
    if (e == ERR_OK)
        e = label_table_add(table, &key, index, &added, ei);
    if (e == ERR_OK && added) {
        e = vector_add(out, &row, ei);
        if (e == ERR_OK)
            row->labels = table->keys[*index]; /* the table's arena is the result's */
    }
    arena_mark_return(&r->arena, mark);
    return e;
}

/* Whether two steps of a row surely have the same value. */
static bool is_same_value(const struct row *row, size_t a, size_t b)
{
    return row_histogram(row, a) == row_histogram(row, b) &&
           double_bits(row->value[a]) == double_bits(row->value[b]);
}

static enum err run_count_values(struct group_run *r, struct vector *out, struct errinfo *ei)
{
    struct str label = node_unwrap(r->plan->node->u.aggregate.param)->u.string;
    struct label_table table;
    struct str *names;
    size_t name_count;
    enum err e = group_names(r, true, &names, &name_count, ei);

    if (label.size == 0 || !utf8_is_valid(label))
        return errinfo_set(ei, ERR_EXECUTION, 0, "invalid label name %s",
                           text_quote(label, &r->arena));
    label_table_init(&table, &out->arena);
    for (size_t i = 0; i < r->in->count && e == ERR_OK; i++) {
        const struct row *row = &r->in->rows[i];
        size_t previous = 0, index = SIZE_MAX; /* step and row of the previous value */

        for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
            e = eval_tick(r->ev, 1, ei);
            if (e != ERR_OK || !row_has(row, k))
                continue;
            if (index == SIZE_MAX || !is_same_value(row, previous, k))
                e = value_row(r, row, k, &table, names, name_count, out, &index, ei);
            if (e != ERR_OK)
                break;
            previous = k;
            row_set(&out->rows[index], k,
                    row_has(&out->rows[index], k) ? out->rows[index].value[k] + 1 : 1);
            e = eval_tick(r->ev, 8, ei);
        }
    }
    return e == ERR_OK ? vector_sort_labels(out, ei) : e;
}

static enum err parameter_read(struct group_run *r, struct errinfo *ei)
{
    size_t count = r->plan->grid.count;
    enum err e;

    if (r->plan->parameter == NULL)
        return ERR_OK;
    e = eval_scalar(r->ev, r->plan->parameter, &r->arena, &r->parameter, ei);
    if (e != ERR_OK)
        return e;
    r->parameter_min = r->parameter_max = r->parameter[0];
    for (size_t k = 0; k < count; k++) {
        double v = r->parameter[k];

        e = eval_tick(r->ev, 1, ei);
        if (e != ERR_OK)
            return e;

        if (isnan(v)) {
            r->parameter_nan = true;
            r->parameter_min = r->parameter_max = NAN; /* as Go's math.Min and math.Max */
            return ERR_OK;
        }
        r->parameter_min = v < r->parameter_min ? v : r->parameter_min;
        r->parameter_max = v > r->parameter_max ? v : r->parameter_max;
    }
    return ERR_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_group_select(struct eval *ev, const struct plan *p, struct vector **out,
                           struct errinfo *ei)
{
    enum aggregate_op op = p->node->u.aggregate.op;
    struct group_run r = {.ev = ev, .plan = p};
    struct vector *result = NULL;
    enum err e;

    arena_init(&r.arena, ev->query->memory);
    e = parameter_read(&r, ei);
    if (e == ERR_OK)
        e = eval_vector(ev, p->input, &r.in, ei);
    if (e == ERR_OK && op != AGG_COUNT_VALUES)
        e = grouping_make(&r, ei);
    if (e == ERR_OK && aggregate_op_selects(op)) {
        e = run_select(&r, ei);
        result = TAKE(r.in);
    } else if (e == ERR_OK) {
        e = vector_new(ev, &p->grid, &result, ei);
        if (e == ERR_OK)
            e = op == AGG_QUANTILE ? run_quantile(&r, result, ei)
                                   : run_count_values(&r, result, ei);
    }
    if (e == ERR_OK && r.has_ignored)
        e = annotations_add_ignored(&ev->annotations,
                                    op == AGG_QUANTILE
                                        ? node_unwrap(p->node->u.aggregate.expr)->position
                                        : p->node->position,
                                    aggregate_op_name(op), ei);
    if (e == ERR_OK)
        e = vector_hold(result, ei);
    if (e == ERR_OK)
        *out = TAKE(result);
    vector_free(result);
    vector_free(r.in);
    arena_done(&r.arena);
    return e;
}
