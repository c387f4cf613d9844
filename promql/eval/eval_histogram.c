/*
 * histogram_quantile(), histogram_quantiles() and histogram_fraction(): the operator, and what it
 * does with classic histograms.
 */
#include <stdlib.h>
#include <string.h>

#include "base/float_text.h"
#include "promql/eval/eval_histogram_internal.h"
#include "promql/parse/text_internal.h"

static int bucket_row_compare(const void *a, const void *b, void *context)
{
    const struct bucket_row *x = a, *y = b;

    (void)context; /* buckets need none */
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->upper_bound != y->upper_bound)
        return x->upper_bound < y->upper_bound ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* A series without a usable `le`. */
static enum err annotate_bad_bucket(struct histogram_run *r, const struct labels *labels,
                                    struct str le, struct errinfo *ei)
{
    struct str name = labels_get(labels, LABEL_METRIC_NAME);
    bool with_name = r->ev->delayed_names && name.size > 0;

    return annotations_add(&r->ev->annotations, ANNOTATION_WARNING, r->vector_arg->position, ei,
                           "bucket label \"le\" is missing or has a malformed value of %s%s%s",
                           text_quote(le, &r->arena), with_name ? " for metric name " : "",
                           with_name ? text_quote(name, &r->arena) : "");
}

static enum err buckets_collect(struct histogram_run *r, struct errinfo *ei)
{
    const struct str le_name = STR_LITERAL("le");
    enum err e = ERR_OK;

    r->buckets = ARENA_ARRAY(&r->arena, r->in->count, struct bucket_row);
    r->scratch = ARENA_ARRAY(&r->arena, r->in->count, struct bucket);
    if (r->buckets == NULL || r->scratch == NULL)
        return arena_refused(&r->arena, ei);
    label_table_init(&r->groups, &r->arena);
    for (size_t i = 0; i < r->in->count && e == ERR_OK; i++) {
        const struct labels *labels = &r->in->rows[i].labels;
        struct str le = labels_get(labels, le_name);
        struct bucket_row *b = &r->buckets[r->bucket_count];
        struct labels key;
        bool added;

        if (!row_any_float(&r->in->rows[i], &r->plan->grid))
            continue;
        if (!float_parse(le, &b->upper_bound)) {
            e = annotate_bad_bucket(r, labels, le, ei);
            if (e == ERR_OK)
                e = eval_tick(r->ev, 16, ei);
            continue;
        }
        b->row = i;
        e = labels_with(labels, le_name, (struct str){NULL, 0}, &r->arena, &key, ei);
        if (e == ERR_OK)
            e = label_table_add(&r->groups, &key, &b->group, &added, ei);
        r->bucket_count++;
        if (e == ERR_OK)
            e = eval_tick(r->ev, 16, ei);
    }
    if (e == ERR_OK)
        e = eval_sort_items(r->ev, r->buckets, r->bucket_count, sizeof *r->buckets,
                            bucket_row_compare, NULL, ei);
    return e;
}

/* Reads the histogram of buckets [begin, end) at one step into the scratch. */
static size_t step_read(struct histogram_run *r, const struct bucket_row *begin,
                        const struct bucket_row *end, size_t k)
{
    size_t count = 0;

    for (const struct bucket_row *b = begin; b < end; b++) {
        const struct row *in = &r->in->rows[b->row];

        if (row_has(in, k) && row_histogram(in, k) == NULL)
            r->scratch[count++] = (struct bucket){b->upper_bound, in->value[k]};
    }
    return count;
}

static enum err annotate_monotonicity(struct histogram_run *r, const struct row *row, size_t k,
                                      struct monotonicity_fix *fix, struct errinfo *ei)
{
    struct str name = {NULL, 0};

    fix->t_ms = grid_time_ms(&r->plan->grid, k);
    if (r->ev->delayed_names)
        name = labels_get(&row->labels, LABEL_METRIC_NAME);
    return annotations_add_monotonicity(&r->ev->annotations, r->vector_arg->position, name, fix,
                                        ei);
}

/* The histogram of buckets [begin, end) at one step. */
static enum err step_compute(struct histogram_run *r, const struct bucket_row *begin,
                             const struct bucket_row *end, size_t k, struct row *row,
                             struct errinfo *ei)
{
    struct monotonicity_fix fix;
    size_t count = step_read(r, begin, end, k);
    bool forced;

    if (count == 0)
        return ERR_OK;
    if (r->plan->function->id == FUNCTION_HISTOGRAM_FRACTION) {
        row_set(row, k, buckets_fraction(r->first[k], r->second[k], r->scratch, count));
        return ERR_OK;
    }
    row_set(row, k, buckets_quantile(r->first[k], r->scratch, count, &forced, &fix));
    return forced ? annotate_monotonicity(r, row, k, &fix, ei) : ERR_OK;
}

enum err result_row_add(struct histogram_run *r, const struct labels *labels, struct row **out,
                        struct errinfo *ei)
{
    enum err e = vector_add(r->out, out, ei);

    if (e == ERR_OK)
        e = labels_copy(labels, &r->out->arena, &(*out)->labels, ei);
    if (e == ERR_OK && r->ev->delayed_names)
        (*out)->drop_name = true;
    return e;
}

/* A quantile as a label's value: 0.5, 1.0, 1e-09. */
static size_t quantile_text(double q, char *out)
{
    size_t size = q == 0 ? 0 : float_format_g(q, out);

    if (q == 0) { /* no sign */
        memcpy(out, "0", 2);
        size = 1;
    }
    if (!isfinite(q) || memchr(out, '.', size) != NULL || memchr(out, 'e', size) != NULL)
        return size;
    memcpy(out + size, ".0", 3);
    return size + 2;
}

enum err quantile_row(struct histogram_run *r, const struct labels *labels,
                      struct quantile_column *q, size_t k, struct row **out, struct errinfo *ei)
{
    struct str label = node_unwrap(r->plan->node->u.call.args[1])->u.string;
    char text[FLOAT_TEXT_SIZE + 2];
    size_t size;
    char *copy;
    enum err e;

    if (q->row != SIZE_MAX && double_bits(q->row_value) == double_bits(q->values[k])) {
        *out = &r->out->rows[q->row];
        return ERR_OK;
    }
    e = result_row_add(r, labels, out, ei);
    if (e == ERR_OK && !r->ev->delayed_names)
        e = labels_without_metadata(&(*out)->labels, &r->out->arena, &(*out)->labels, ei);
    if (e != ERR_OK)
        return e;
    size = quantile_text(q->values[k], text);
    copy = arena_memdup0(&r->out->arena, text, size);
    if (copy == NULL)
        return arena_refused(&r->out->arena, ei);
    q->row = r->out->count - 1;
    q->row_value = q->values[k];
    return labels_with(&(*out)->labels, label, (struct str){copy, size}, &r->out->arena,
                       &(*out)->labels, ei);
}

/* All quantiles of a group at one step. A forced monotonicity is told once. */
static enum err step_quantiles(struct histogram_run *r, const struct bucket_row *begin,
                               const struct bucket_row *end, size_t k, struct errinfo *ei)
{
    struct monotonicity_fix fix;
    bool told = false, forced;
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->plan->quantile_count && e == ERR_OK; i++) {
        struct quantile_column *q = &r->quantiles[i];
        size_t count = step_read(r, begin, end, k);
        struct row *row = NULL;

        if (count == 0)
            return ERR_OK;
        e = quantile_row(r, &r->groups.keys[begin->group], q, k, &row, ei);
        if (e != ERR_OK)
            return e;
        row_set(row, k, buckets_quantile(q->values[k], r->scratch, count, &forced, &fix));
        if (forced && !told)
            e = annotate_monotonicity(r, row, k, &fix, ei);
        told = told || forced;
        if (e == ERR_OK)
            e = eval_tick(r->ev, 2 * (uint64_t)(end - begin), ei);
    }
    return e;
}

static enum err group_quantiles(struct histogram_run *r, const struct bucket_row *begin,
                                const struct bucket_row *end, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->plan->quantile_count; i++)
        r->quantiles[i].row = SIZE_MAX;
    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++)
        e = step_quantiles(r, begin, end, k, ei);
    return e;
}

static enum err group_compute(struct histogram_run *r, const struct bucket_row *begin,
                              const struct bucket_row *end, struct errinfo *ei)
{
    struct row *row;
    enum err e = result_row_add(r, &r->groups.keys[begin->group], &row, ei);

    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
        e = step_compute(r, begin, end, k, row, ei);
        if (e == ERR_OK)
            e = eval_tick(r->ev, 2 * (uint64_t)(end - begin), ei);
    }
    if (e == ERR_OK && !r->ev->delayed_names)
        e = labels_without_metadata(&row->labels, &r->out->arena, &row->labels, ei);
    return e;
}

static enum err groups_compute(struct histogram_run *r, struct errinfo *ei)
{
    const struct bucket_row *end = r->buckets + r->bucket_count, *next;
    enum err e = vector_new(r->ev, &r->plan->grid, &r->out, ei);

    for (const struct bucket_row *b = r->buckets; b < end && e == ERR_OK; b = next) {
        for (next = b; next < end && next->group == b->group;)
            next++;
        e = r->plan->function->id == FUNCTION_HISTOGRAM_QUANTILES ? group_quantiles(r, b, next, ei)
                                                                  : group_compute(r, b, next, ei);
    }
    return e;
}

/* Warns of quantiles outside of [0, 1], which argument `arg` gives. */
static enum err quantiles_check(struct histogram_run *r, const double *values, size_t arg,
                                struct errinfo *ei)
{
    const struct node *n = node_unwrap(r->plan->node->u.call.args[arg]);
    enum err e = ERR_OK;

    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
        double q = values[k];

        e = eval_tick(r->ev, 1, ei);
        if (e == ERR_OK && !(q >= 0 && q <= 1) &&
            (k == 0 || double_bits(q) != double_bits(values[k - 1])))
            e = annotations_add_quantile(&r->ev->annotations, n->position, q, ei);
    }
    return e;
}

static enum err quantiles_read(struct histogram_run *r, struct errinfo *ei)
{
    enum err e = ERR_OK;

    r->vector_arg = node_unwrap(r->plan->node->u.call.args[0]);
    r->quantiles = ARENA_ARRAY(&r->arena, r->plan->quantile_count, struct quantile_column);
    if (r->quantiles == NULL)
        return arena_refused(&r->arena, ei);
    for (size_t i = 0; i < r->plan->quantile_count && e == ERR_OK; i++) {
        double *values = NULL;

        e = eval_scalar(r->ev, r->plan->quantiles[i], &r->arena, &values, ei);
        if (e == ERR_OK)
            e = quantiles_check(r, values, i + 2, ei);
        r->quantiles[i].values = values;
    }
    return e;
}

static enum err arguments_read(struct histogram_run *r, struct errinfo *ei)
{
    const struct node *n = r->plan->node;
    enum err e;

    if (r->plan->function->id == FUNCTION_HISTOGRAM_QUANTILES)
        return quantiles_read(r, ei);
    e = eval_scalar(r->ev, r->plan->parameter, &r->arena, &r->first, ei);
    if (r->plan->function->id == FUNCTION_HISTOGRAM_FRACTION) {
        r->vector_arg = node_unwrap(n->u.call.args[2]);
        return e == ERR_OK ? eval_scalar(r->ev, r->plan->parameter2, &r->arena, &r->second, ei) : e;
    }
    r->vector_arg = node_unwrap(n->u.call.args[1]);
    return e == ERR_OK ? quantiles_check(r, r->first, 0, ei) : e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_histogram(struct eval *ev, const struct plan *p, struct vector **out,
                        struct errinfo *ei)
{
    struct histogram_run r = {.ev = ev, .plan = p};
    enum err e;

    arena_init(&r.arena, ev->query->memory);
    e = arguments_read(&r, ei);
    if (e == ERR_OK)
        e = eval_vector(ev, p->input, &r.in, ei);
    if (e == ERR_OK)
        e = buckets_collect(&r, ei);
    if (e == ERR_OK)
        e = natives_refuse(&r, ei);
    if (e == ERR_OK)
        e = groups_compute(&r, ei);
    if (e == ERR_OK)
        e = natives_compute(&r, ei);
    if (e == ERR_OK)
        e = vector_merge(r.out, ei);
    if (e == ERR_OK)
        e = vector_hold(r.out, ei);
    if (e == ERR_OK)
        *out = TAKE(r.out);
    vector_free(r.out);
    vector_free(r.in);
    arena_done(&r.arena);
    return e;
}
