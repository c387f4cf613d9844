/*
 * Results and annotations against what a script expects, by the rules of Prometheus's harness:
 * values agree within a relative 1e-6 of each other, NaN equals NaN, staleness markers only
 * themselves; histograms agree in layout, empty buckets left out, and value by value, their hints
 * only where one is expected; matrices must be sorted; `expect warn` and `expect info` account for
 * every annotation of their kind.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/float_text.h"
#include "engine/write.h"
#include "promql/histogram_text.h"
#include "tools/promqltest_internal.h"

static bool values_agree(double expected, double got)
{
    static const double epsilon = 0.000001;
    double sum = fabs(expected) + fabs(got), difference = fabs(expected - got);
    bool stale = double_bits(expected) == STALE_NAN_BITS, got_stale;

    got_stale = double_bits(got) == STALE_NAN_BITS;
    if (stale || got_stale)
        return stale && got_stale;
    if (isnan(expected) && isnan(got))
        return true;
    if (expected == got)
        return true;
    if (expected == 0 || got == 0 || sum < DBL_MIN)
        return difference < epsilon * DBL_MIN;
    return difference / fmin(sum, DBL_MAX) < epsilon;
}

static bool sides_agree(const struct histogram_side *expected, const struct histogram_side *got)
{
    if (!histogram_spans_equal(expected, got))
        return false;
    for (size_t i = 0; i < expected->bucket_count; i++) {
        if (!values_agree(expected->buckets[i], got->buckets[i]))
            return false;
    }
    return true;
}

/* Empty buckets do not count; the hint does where the script gives one. */
static bool histograms_agree(const struct point_histogram *expected, const struct histogram *got)
{
    struct histogram x, y;
    struct arena arena;
    bool agree = false;

    arena_init(&arena, NULL);
    if (histogram_copy(&expected->value, &arena, &x) == ERR_OK &&
        histogram_copy(got, &arena, &y) == ERR_OK && histogram_compact(&x, &arena) == ERR_OK &&
        histogram_compact(&y, &arena) == ERR_OK)
        agree = x.schema == y.schema && values_agree(x.count, y.count) &&
                values_agree(x.sum, y.sum) &&
                (!histogram_is_custom(&x) || histogram_bounds_equal(&x, &y)) &&
                x.zero_threshold == y.zero_threshold && values_agree(x.zero_count, y.zero_count) &&
                sides_agree(&x.positive, &y.positive) && sides_agree(&x.negative, &y.negative) &&
                (!expected->has_hint || x.hint == y.hint);
    arena_done(&arena);
    return agree;
}

/* Point `i` of an expectation, which is not omitted. */
static bool points_agree(const struct sequence *expected, size_t i, double value,
                         const struct histogram *histogram)
{
    if (expected->kinds[i] == POINT_HISTOGRAM)
        return histogram != NULL && histograms_agree(expected->histograms[i], histogram);
    return histogram == NULL && values_agree(expected->values[i], value);
}

static void print_value(struct byte_writer *w, double v)
{
    char text[FLOAT_TEXT_SIZE];

    if (double_bits(v) == STALE_NAN_BITS) {
        writer_printf(w, "stale");
        return;
    }
    (void)float_format_g(v, text);
    writer_printf(w, "%s", text);
}

static void print_labels(struct byte_writer *w, const struct labels *l)
{
    struct arena arena;
    char *text;

    arena_init(&arena, NULL);
    text = labels_format(l, &arena);
    writer_printf(w, "%s", text != NULL ? text : "{?}");
    arena_done(&arena);
}

/* One series of a result as points in time, whichever form it came in. */
struct points {
    const struct promql_result *result;
    size_t series;
};

/* A value of a result. */
struct cell {
    int64_t t_ms;
    double value;
    const struct histogram *histogram; /* NULL: a float */
};

/* Point `i` of at most points_limit(); false where it is absent. */
static bool points_get(const struct points *p, size_t i, struct cell *out)
{
    const struct promql_result *r = p->result;
    const struct result_series *row = &r->series[p->series];

    if (r->raw != NULL) {
        const struct column *c = &r->raw[p->series];

        *out =
            (struct cell){c->t_ms[i], c->value[i], c->histogram != NULL ? c->histogram[i] : NULL};
        return true;
    }
    if (!result_point_present(row, i))
        return false;
    *out = (struct cell){r->start_ms + (int64_t)i * r->step_ms, row->value[i],
                         result_point_histogram(row, i)};
    return true;
}

static size_t points_limit(const struct points *p)
{
    return p->result->raw != NULL ? p->result->raw[p->series].count : p->result->step_count;
}

static void print_cell(struct byte_writer *w, double value, const struct histogram *h)
{
    if (h != NULL)
        histogram_write_script(w, h);
    else
        print_value(w, value);
}

static void print_points(struct byte_writer *w, const struct points *p)
{
    for (size_t i = 0; i < points_limit(p); i++) {
        struct cell cell;

        if (!points_get(p, i, &cell))
            continue;
        writer_printf(w, " ");
        print_cell(w, cell.value, cell.histogram);
        writer_printf(w, "@%" PRId64, cell.t_ms);
    }
}

static void print_expected_points(struct byte_writer *w, const struct sequence *s)
{
    for (size_t i = 0; i < s->count; i++) {
        writer_printf(w, " ");
        if (s->kinds[i] == POINT_OMITTED)
            writer_printf(w, "_");
        else if (s->kinds[i] == POINT_HISTOGRAM)
            histogram_write_script(w, &s->histograms[i]->value);
        else
            print_value(w, s->values[i]);
    }
}

static bool fail_series(struct byte_writer *report, const char *what,
                        const struct expected_series *x, const struct points *got)
{
    writer_printf(report, "  %s\n  expected ", what);
    print_labels(report, &x->line.labels);
    print_expected_points(report, &x->line.points);
    writer_printf(report, "\n  got      ");
    print_labels(report, &got->result->series[got->series].labels);
    print_points(report, got);
    writer_printf(report, "\n");
    return false;
}

static const struct expected_series *expected_find(const struct eval_command *c,
                                                   const struct labels *labels)
{
    for (size_t i = 0; i < c->series_count; i++) {
        if (labels_equal(&c->series[i].line.labels, labels))
            return &c->series[i];
    }
    return NULL;
}

static bool fail_unexpected(struct byte_writer *report, const struct promql_result *r, size_t i)
{
    struct points got = {r, i};

    writer_printf(report, "  unexpected series\n  got      ");
    print_labels(report, &r->series[i].labels);
    print_points(report, &got);
    writer_printf(report, "\n");
    return false;
}

/* Every expected series must be in the result; `present` picks the rows that count. */
static bool check_missing(const struct eval_command *c, const struct promql_result *r,
                          bool (*present)(const struct promql_result *r, size_t series),
                          struct byte_writer *report)
{
    for (size_t k = 0; k < c->series_count; k++) {
        bool found = false;

        for (size_t i = 0; i < r->series_count && !found; i++)
            found = present(r, i) && labels_equal(&c->series[k].line.labels, &r->series[i].labels);
        if (found)
            continue;
        writer_printf(report, "  missing series\n  expected ");
        print_labels(report, &c->series[k].line.labels);
        print_expected_points(report, &c->series[k].line.points);
        writer_printf(report, "\n");
        return false;
    }
    return true;
}

/* A matrix row: the same points at the same times. */
static bool compare_row(const struct eval_command *c, const struct expected_series *x,
                        const struct points *got, struct byte_writer *report)
{
    const struct sequence *want = &x->line.points;
    size_t limit = points_limit(got), next = 0;
    struct cell cell = {0};

    for (size_t i = 0; i < want->count; i++) {
        int64_t want_t_ms = c->start_ms + (int64_t)i * c->step_ms;

        if (want_t_ms > c->end_ms)
            return fail_series(report, "more points expected than the range has", x, got);
        if (want->kinds[i] == POINT_OMITTED)
            continue;
        while (next < limit && !points_get(got, next, &cell))
            next++;
        if (next == limit)
            return fail_series(report, "too few points", x, got);
        next++;
        if (cell.t_ms != want_t_ms)
            return fail_series(report, "timestamps differ", x, got);
        if (!points_agree(want, i, cell.value, cell.histogram))
            return fail_series(report, "values differ", x, got);
    }
    while (next < limit && !points_get(got, next, &cell))
        next++;
    return next == limit || fail_series(report, "too many points", x, got);
}

static bool check_sorted(const struct promql_result *r, struct byte_writer *report)
{
    for (size_t i = 1; i < r->series_count; i++) {
        if (labels_compare(&r->series[i - 1].labels, &r->series[i].labels) <= 0)
            continue;
        writer_printf(report, "  matrix is not sorted: ");
        print_labels(report, &r->series[i - 1].labels);
        writer_printf(report, " stands before ");
        print_labels(report, &r->series[i].labels);
        writer_printf(report, "\n");
        return false;
    }
    return true;
}

static bool any_present(const struct promql_result *r, size_t series)
{
    (void)r;
    (void)series;
    return true;
}

static bool compare_matrix(const struct eval_command *c, const struct promql_result *r,
                           struct byte_writer *report)
{
    if (eval_expects(c, EXPECT_ORDERED) || c->expects_scalar) {
        writer_printf(report, "  expected %s, got a matrix\n",
                      c->expects_scalar ? "a scalar" : "an ordered result");
        return false;
    }
    if (!check_sorted(r, report))
        return false;
    for (size_t i = 0; i < r->series_count; i++) {
        const struct expected_series *x = expected_find(c, &r->series[i].labels);
        struct points got = {r, i};

        if (x == NULL)
            return fail_unexpected(report, r, i);
        if (!compare_row(c, x, &got, report))
            return false;
    }
    return check_missing(c, r, any_present, report);
}

static bool present_at_first(const struct promql_result *r, size_t series)
{
    return result_point_present(&r->series[series], 0);
}

static bool present_at_middle(const struct promql_result *r, size_t series)
{
    return result_point_present(&r->series[series], 1);
}

/* The vector at one step of the result. */
static bool compare_vector(const struct eval_command *c, const struct promql_result *r, size_t step,
                           struct byte_writer *report)
{
    bool ordered = eval_expects(c, EXPECT_ORDERED);
    size_t position = 0;

    if (c->expects_scalar) {
        writer_printf(report, "  expected a scalar, got a vector\n");
        return false;
    }
    for (size_t i = 0; i < r->series_count; i++) {
        const struct expected_series *x;
        struct points got = {r, i};
        struct cell cell;

        if (!points_get(&got, step, &cell))
            continue;
        position++;
        x = expected_find(c, &r->series[i].labels);
        if (x == NULL)
            return fail_unexpected(report, r, i);
        if (ordered && x->position != position)
            return fail_series(report, "another position in the order", x, &got);
        if (!points_agree(&x->line.points, 0, cell.value, cell.histogram))
            return fail_series(report, "values differ", x, &got);
    }
    return check_missing(c, r, step == 0 ? present_at_first : present_at_middle, report);
}

static bool compare_scalar(const struct eval_command *c, const struct promql_result *r, size_t step,
                           struct byte_writer *report)
{
    double got;

    if (!c->expects_scalar || r->series_count != 1 || !result_point_present(&r->series[0], step)) {
        writer_printf(report, "  expected %s\n",
                      c->expects_scalar ? "a scalar, got none" : "no scalar");
        return false;
    }
    got = r->series[0].value[step];
    if (values_agree(c->scalar, got))
        return true;
    writer_printf(report, "  expected ");
    print_value(report, c->scalar);
    writer_printf(report, "\n  got      ");
    print_value(report, got);
    writer_printf(report, "\n");
    return false;
}

bool compare_result(const struct eval_command *c, const struct promql_result *r,
                    struct byte_writer *report)
{
    switch (r->type) {
    case VALUE_MATRIX:
        return compare_matrix(c, r, report);
    case VALUE_VECTOR:
        return compare_vector(c, r, 0, report);
    case VALUE_SCALAR:
        return compare_scalar(c, r, 0, report);
    case VALUE_STRING:
        if (str_equal(c->string, r->string))
            return true;
        writer_printf(report, "  expected \"%.*s\"\n  got      \"%.*s\"\n", STR_ARGS(c->string),
                      STR_ARGS(r->string));
        return false;
    }
    return false;
}

bool compare_middle_step(const struct eval_command *c, const struct promql_result *r,
                         enum value_type instant_type, struct byte_writer *report)
{
    if (r->type != VALUE_MATRIX || r->step_count != 3) {
        writer_printf(report, "  a range query of three steps gave no matrix of three steps\n");
        return false;
    }
    if (!check_sorted(r, report))
        return false;
    if (instant_type == VALUE_SCALAR)
        return compare_scalar(c, r, 1, report);
    return compare_vector(c, r, 1, report);
}

/* Go's expressions take a byte that is no UTF-8 for a character, RE2 matches it with nothing: such
 * bytes are shown to it as question marks. */
static bool matches_pattern(const struct regex *re, const char *text)
{
    char copy[ERRINFO_MESSAGE_SIZE];
    size_t size = strlen(text);

    if (utf8_is_valid(str_from(text)) || size >= sizeof copy)
        return regex_match(re, str_from(text));
    for (size_t i = 0; i < size; i++) {
        copy[i] = '?';
        if ((unsigned char)text[i] < 0x80)
            copy[i] = text[i];
    }
    return regex_match(re, (struct str){copy, size});
}

static bool expectation_matches(const struct expectation *x, const char *text)
{
    if (x->regex != NULL)
        return matches_pattern(x->regex, text);
    return x->text.size == 0 || str_equal(x->text, str_from(text));
}

static void print_annotations(struct byte_writer *report, const struct promql_result *r)
{
    for (size_t i = 0; i < r->annotation_count; i++)
        writer_printf(report, "  got      %s\n", r->annotations[i].text);
}

/* Expectations and annotations of one kind account for each other. */
static bool compare_annotation_kind(const struct eval_command *c, const struct promql_result *r,
                                    enum expect_kind expected, enum annotation_kind kind,
                                    struct byte_writer *report)
{
    for (size_t k = 0; k < c->expectation_count; k++) {
        const struct expectation *x = &c->expectations[k];
        bool found = x->kind != expected;

        for (size_t i = 0; i < r->annotation_count && !found; i++)
            found =
                r->annotations[i].kind == kind && expectation_matches(x, r->annotations[i].text);
        if (found)
            continue;
        writer_printf(report, "  expected %s annotation %.*s\n",
                      kind == ANNOTATION_WARNING ? "warn" : "info", STR_ARGS(x->text));
        print_annotations(report, r);
        return false;
    }
    for (size_t i = 0; i < r->annotation_count && eval_expects(c, expected); i++) {
        bool found = r->annotations[i].kind != kind;

        for (size_t k = 0; k < c->expectation_count && !found; k++)
            found = c->expectations[k].kind == expected &&
                    expectation_matches(&c->expectations[k], r->annotations[i].text);
        if (found)
            continue;
        writer_printf(report, "  unexpected annotation\n  got      %s\n", r->annotations[i].text);
        return false;
    }
    return true;
}

static bool check_none(const struct eval_command *c, const struct promql_result *r,
                       enum expect_kind expected, enum annotation_kind kind,
                       struct byte_writer *report)
{
    for (size_t i = 0; i < r->annotation_count && eval_expects(c, expected); i++) {
        if (r->annotations[i].kind != kind)
            continue;
        writer_printf(report, "  no %s annotation expected\n  got      %s\n",
                      kind == ANNOTATION_WARNING ? "warn" : "info", r->annotations[i].text);
        return false;
    }
    return true;
}

bool compare_annotations(const struct eval_command *c, const struct promql_result *r,
                         struct byte_writer *report)
{
    return compare_annotation_kind(c, r, EXPECT_WARN, ANNOTATION_WARNING, report) &&
           compare_annotation_kind(c, r, EXPECT_INFO, ANNOTATION_INFO, report) &&
           check_none(c, r, EXPECT_NO_WARN, ANNOTATION_WARNING, report) &&
           check_none(c, r, EXPECT_NO_INFO, ANNOTATION_INFO, report);
}

bool compare_failure(const struct eval_command *c, const char *message, struct byte_writer *report)
{
    for (size_t i = 0; i < c->expectation_count; i++) {
        const struct expectation *x = &c->expectations[i];

        if (x->kind != EXPECT_FAIL || expectation_matches(x, message))
            continue;
        writer_printf(report, "  expected error %.*s\n  got      %s\n", STR_ARGS(x->text), message);
        return false;
    }
    return true;
}
