/*
 * Two answers to one query: the same to the last bit, notes and errors included. Only the order of
 * an instant vector is left open where nothing in the query fixes it.
 */
#include <string.h>

#include "base/float_text.h"
#include "tools/promqltest_internal.h"

static bool same_double(double a, double b)
{
    return double_bits(a) == double_bits(b);
}

static bool same_histogram(const struct histogram *a, const struct histogram *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || histogram_equal(a, b));
}

static const struct histogram *column_histogram(const struct column *c, size_t i)
{
    return c->histogram != NULL ? c->histogram[i] : NULL;
}

static bool same_column(const struct column *a, const struct column *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct histogram *h = column_histogram(a, i);

        if (a->t_ms[i] != b->t_ms[i] || !same_histogram(h, column_histogram(b, i)) ||
            (h == NULL && !same_double(a->value[i], b->value[i])))
            return false;
    }
    return true;
}

static bool same_row(const struct result_series *a, const struct result_series *b, size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        const struct histogram *h;

        if (result_point_present(a, i) != result_point_present(b, i))
            return false;
        if (!result_point_present(a, i))
            continue;
        h = result_point_histogram(a, i);
        if (!same_histogram(h, result_point_histogram(b, i)) ||
            (h == NULL && !same_double(a->value[i], b->value[i])))
            return false;
    }
    return true;
}

/* The row of `b` with the labels of row `i` of `a`: the same row, or any of an unordered vector;
 * SIZE_MAX: there is none. */
static size_t row_of(const struct promql_result *a, size_t i, const struct promql_result *b,
                     bool is_ordered)
{
    const struct labels *labels = &a->series[i].labels;

    if (labels_equal(labels, &b->series[i].labels))
        return i;
    for (size_t k = 0; !is_ordered && k < b->series_count; k++) {
        if (labels_equal(labels, &b->series[k].labels))
            return k;
    }
    return SIZE_MAX;
}

static const char *rows_differ(const struct promql_result *a, const struct promql_result *b,
                               bool is_ordered)
{
    if (a->series_count != b->series_count || a->step_count != b->step_count ||
        a->start_ms != b->start_ms || a->step_ms != b->step_ms ||
        (a->raw == NULL) != (b->raw == NULL))
        return "the shape";
    for (size_t i = 0; i < a->series_count; i++) {
        size_t k = row_of(a, i, b, is_ordered);

        if (k == SIZE_MAX)
            return "a series or the order of series";
        if (a->raw != NULL ? !same_column(&a->raw[i], &b->raw[k])
                           : !same_row(&a->series[i], &b->series[k], a->step_count))
            return "a value";
    }
    return NULL;
}

static bool same_notes(const struct promql_result *a, const struct promql_result *b)
{
    if (a->annotation_count != b->annotation_count)
        return false;
    for (size_t i = 0; i < a->annotation_count; i++) {
        if (strcmp(a->annotations[i].text, b->annotations[i].text) != 0)
            return false;
    }
    return true;
}

const char *results_differ(const struct promql_result *a, const struct promql_result *b,
                           bool is_ordered)
{
    if (a->type != b->type)
        return "the type";
    if (!same_notes(a, b))
        return "a warning or an info";
    if (a->type == VALUE_STRING)
        return str_equal(a->string, b->string) ? NULL : "the string";
    return rows_differ(a, b, is_ordered || a->type != VALUE_VECTOR);
}
