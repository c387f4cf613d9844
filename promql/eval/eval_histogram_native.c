/*
 * See eval_histogram_internal.h.
 */
#include <string.h>

#include "promql/eval/annotations_histogram_internal.h"
#include "promql/eval/eval_histogram_internal.h"
#include "promql/histogram_math.h"

/* With delayed names annotations tell whose histogram it is. */
static struct str annotated_name(const struct histogram_run *r, const struct labels *labels)
{
    return r->ev->delayed_names ? labels_get(labels, LABEL_METRIC_NAME) : (struct str){NULL, 0};
}

/* --- native beside classic --- */

/* The first bucket of a group, or beyond. */
static size_t group_begin(const struct histogram_run *r, size_t group)
{
    size_t low = 0, high = r->bucket_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (r->buckets[middle].group < group)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has_float(const struct row *row, size_t k)
{
    return row_has(row, k) && row_histogram(row, k) == NULL;
}

/* Whether the group has any bucket at a step; they are taken away if so. */
static bool classic_take(const struct histogram_run *r, size_t group, size_t begin, size_t k)
{
    bool any = false;

    for (size_t i = begin; i < r->bucket_count && r->buckets[i].group == group; i++) {
        struct row *row = &r->in->rows[r->buckets[i].row];

        if (has_float(row, k)) {
            row_clear(row, k);
            any = true;
        }
    }
    return any;
}

static enum err native_refuse(struct histogram_run *r, struct row *row, size_t group,
                              struct errinfo *ei)
{
    struct histogram_annotator a = {&r->ev->annotations, r->vector_arg->position,
                                    annotated_name(r, &row->labels), 0};
    size_t begin = group_begin(r, group);
    enum err e = ERR_OK;

    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
        e = eval_tick(r->ev, 4, ei);
        if (e != ERR_OK || !row_has(row, k) || row_histogram(row, k) == NULL ||
            !classic_take(r, group, begin, k))
            continue;
        row_clear(row, k);
        e = histogram_annotate(&a, HISTOGRAM_MIXED_WITH_CLASSIC, ei);
    }
    return e;
}

enum err natives_refuse(struct histogram_run *r, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->in->count && e == ERR_OK; i++) {
        struct row *row = &r->in->rows[i];
        size_t group;

        if (row->histogram == NULL)
            continue;
        group = label_table_find(&r->groups, &row->labels);
        if (group != SIZE_MAX)
            e = native_refuse(r, row, group, ei);
    }
    return e;
}

/* --- statistics --- */

/* One statistic of a histogram; NaN observations are annotated. */
static enum err statistic(const struct histogram_run *r, struct histogram_annotator *a,
                          const struct histogram *h, double first, double second, double *out,
                          struct errinfo *ei)
{
    enum histogram_nans nans;
    bool has_nans;
    enum err e = eval_tick(r->ev, histogram_weight(h), ei);

    if (e != ERR_OK)
        return e;
    if (r->plan->function->id == FUNCTION_HISTOGRAM_FRACTION) {
        *out = histogram_fraction(first, second, h, &has_nans);
        return has_nans ? histogram_annotate(a, HISTOGRAM_NAN_FRACTION, ei) : ERR_OK;
    }
    *out = histogram_quantile(first, h, &nans);
    if (nans == HISTOGRAM_NANS_NONE)
        return ERR_OK;
    return histogram_annotate(
        a, nans == HISTOGRAM_NANS_RESULT ? HISTOGRAM_NAN_QUANTILE : HISTOGRAM_NAN_SKEW, ei);
}

/* histogram_quantile() and histogram_fraction(). */
static enum err native_compute(struct histogram_run *r, const struct row *in,
                               struct histogram_annotator *a, struct errinfo *ei)
{
    struct row *row;
    enum err e = result_row_add(r, &in->labels, &row, ei);

    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
        double value;

        if (!row_has(in, k) || in->histogram[k] == NULL)
            continue;
        e = statistic(r, a, in->histogram[k], r->first[k], r->second == NULL ? 0 : r->second[k],
                      &value, ei);
        if (e == ERR_OK)
            row_set(row, k, value);
    }
    if (e == ERR_OK && !r->ev->delayed_names)
        e = labels_without_metadata(&row->labels, &r->out->arena, &row->labels, ei);
    return e;
}

static enum err step_quantiles(struct histogram_run *r, const struct row *in, size_t k,
                               struct histogram_annotator *a, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->plan->quantile_count && e == ERR_OK; i++) {
        struct quantile_column *q = &r->quantiles[i];
        struct row *row = NULL;
        double value = 0;

        e = statistic(r, a, in->histogram[k], q->values[k], 0, &value, ei);
        if (e == ERR_OK)
            e = quantile_row(r, &in->labels, q, k, &row, ei);
        if (e == ERR_OK)
            row_set(row, k, value);
    }
    return e;
}

static enum err native_quantiles(struct histogram_run *r, const struct row *in,
                                 struct histogram_annotator *a, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->plan->quantile_count; i++)
        r->quantiles[i].row = SIZE_MAX;
    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
        if (row_has(in, k) && in->histogram[k] != NULL)
            e = step_quantiles(r, in, k, a, ei);
    }
    return e;
}

enum err natives_compute(struct histogram_run *r, struct errinfo *ei)
{
    bool is_quantiles = r->plan->function->id == FUNCTION_HISTOGRAM_QUANTILES;
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->in->count && e == ERR_OK; i++) {
        const struct row *in = &r->in->rows[i];
        struct histogram_annotator a = {.annotations = &r->ev->annotations,
                                        .position = r->vector_arg->position,
                                        .metric_name = annotated_name(r, &in->labels)};

        if (!row_any_histogram(in, r->plan->grid.count))
            continue;
        e = is_quantiles ? native_quantiles(r, in, &a, ei) : native_compute(r, in, &a, ei);
    }
    return e;
}
