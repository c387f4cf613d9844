/*
 * Arithmetic of native histograms against vectors that Prometheus 3.14's own code gave for random
 * histograms: sums, differences, resets, trims, resolutions, quantiles, fractions, folds, texts.
 * Bit for bit, except where logarithms come in: Go has its own.
 *
 * golden/histogram_vectors.txt, or the file named as argument. Tokens are separated by blanks:
 *   h SCHEMA HINT THRESHOLD ZERO COUNT SUM SIDE SIDE BOUNDS   a histogram
 *   SIDE: how many spans, OFFSET LENGTH each; how many buckets, their counts. BOUNDS: how many,
 * each. pair H H, then what was done to the first (and the second) with the result; `fold N H...
 * sum H H` gives the sum and the mean. Doubles are their bits in hexadecimal.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "promql/histogram_math.h"
#include "promql/histogram_text.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static const char *vectors_path = HISTOGRAM_GOLDEN_DIR "/histogram_vectors.txt";

enum { FILE_SIZE_MAX = 16 << 20, FOLD_MAX = 16 };

struct vectors {
    char *text, *pos;
    unsigned line;
    struct arena arena;
    size_t checked;
};

/* The next token, NUL-terminated in place. */
static char *token(struct vectors *v)
{
    char *t;

    while (*v->pos == ' ' || *v->pos == '\n')
        v->line += *v->pos++ == '\n';
    t = v->pos;
    while (*v->pos != ' ' && *v->pos != '\n' && *v->pos != 0)
        v->pos++;
    CHECK_MSG(*v->pos != 0, "line %u: the file ends", v->line);
    v->line += *v->pos == '\n';
    *v->pos++ = 0;
    return t;
}

static char *rest_of_line(struct vectors *v)
{
    char *t = v->pos;

    v->pos = strchr(v->pos, '\n');
    CHECK(v->pos != NULL);
    *v->pos++ = 0;
    v->line++;
    return t;
}

static int64_t number(struct vectors *v)
{
    return strtoll(token(v), NULL, 10);
}

static double value(struct vectors *v)
{
    return double_from_bits(strtoull(token(v), NULL, 16));
}

static double *values(struct vectors *v, size_t *count)
{
    double *out;

    *count = (size_t)number(v);
    out = ARENA_ARRAY(&v->arena, *count, double);
    CHECK(out != NULL);
    for (size_t i = 0; i < *count; i++)
        out[i] = value(v);
    return out;
}

static void read_side(struct vectors *v, struct histogram_side *side)
{
    struct histogram_span *spans;

    side->span_count = (size_t)number(v);
    spans = ARENA_ARRAY(&v->arena, side->span_count, struct histogram_span);
    CHECK(spans != NULL);
    for (size_t i = 0; i < side->span_count; i++) {
        spans[i].offset = (int32_t)number(v);
        spans[i].length = (uint32_t)number(v);
    }
    side->spans = spans;
    side->buckets = values(v, &side->bucket_count);
}

static struct histogram read_histogram(struct vectors *v)
{
    struct histogram h = {0};

    CHECK_MSG(strcmp(token(v), "h") == 0, "line %u: no histogram", v->line);
    h.schema = (int32_t)number(v);
    h.hint = (enum histogram_hint)number(v);
    h.zero_threshold = value(v);
    h.zero_count = value(v);
    h.count = value(v);
    h.sum = value(v);
    read_side(v, &h.positive);
    read_side(v, &h.negative);
    h.custom_values = values(v, &h.custom_count);
    return h;
}

static char *text_of(const struct histogram *h)
{
    static struct byte_writer w;

    writer_reset(&w);
    histogram_write_text(&w, h);
    writer_u8(&w, 0);
    CHECK(!w.failed);
    return (char *)w.data;
}

static bool same(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

static void check_values(struct vectors *v, const double *got, const double *want, size_t n,
                         double tolerance)
{
    for (size_t i = 0; i < n; i++)
        CHECK_MSG(same(got[i], want[i], tolerance), "line %u: value %zu is %.17g, not %.17g",
                  v->line, i, got[i], want[i]);
}

/* Compares with the histogram that comes next in the file. */
static void expect(struct vectors *v, const struct histogram *got, double tolerance)
{
    struct histogram want = read_histogram(v);
    const double scalars[2][4] = {{got->zero_threshold, got->zero_count, got->count, got->sum},
                                  {want.zero_threshold, want.zero_count, want.count, want.sum}};

    CHECK_MSG(got->schema == want.schema && got->hint == want.hint &&
                  histogram_spans_equal(&got->positive, &want.positive) &&
                  histogram_spans_equal(&got->negative, &want.negative) &&
                  histogram_bounds_equal(got, &want),
              "line %u: %d %d %s", v->line, got->schema, (int)got->hint, text_of(got));
    check_values(v, scalars[0], scalars[1], 4, tolerance);
    check_values(v, got->positive.buckets, want.positive.buckets, want.positive.bucket_count,
                 tolerance);
    check_values(v, got->negative.buckets, want.negative.buckets, want.negative.bucket_count,
                 tolerance);
    v->checked++;
}

static struct histogram copy_of(struct vectors *v, const struct histogram *h)
{
    struct histogram copy;

    CHECK(histogram_copy(h, &v->arena, &copy) == ERR_OK);
    return copy;
}

static void check_sum(struct vectors *v, bool is_negative, const struct histogram *a,
                      const struct histogram *b)
{
    struct histogram h = copy_of(v, a);
    struct histogram_notes notes = {0};

    CHECK((is_negative ? histogram_subtract : histogram_add)(&h, b, &v->arena, &notes) == ERR_OK);
    CHECK(histogram_compact(&h, &v->arena) == ERR_OK);
    CHECK_MSG(notes.hints_collide == (number(v) == 1), "line %u: hints", v->line);
    CHECK_MSG(notes.bounds_reconciled == (number(v) == 1), "line %u: bounds", v->line);
    expect(v, &h, 0);
}

static void check_trim(struct vectors *v, const struct histogram *a)
{
    double limit = value(v);

    for (int keeps_lower = 1; keeps_lower >= 0; keeps_lower--) {
        struct histogram h = copy_of(v, a);

        CHECK(histogram_trim(&h, limit, keeps_lower, &v->arena) == ERR_OK);
        expect(v, &h, 1e-12);
    }
}

static void check_statistic(struct vectors *v, const char *name, const struct histogram *h)
{
    double a = value(v), b = value(v), want = value(v), got;
    int64_t nans = number(v);
    enum histogram_nans got_nans;
    bool has_nans;

    if (strcmp(name, "quantile") == 0) {
        got = histogram_quantile(a, h, &got_nans);
        CHECK_MSG((int64_t)got_nans == nans, "line %u: NaNs", v->line);
    } else {
        got = histogram_fraction(a, b, h, &has_nans);
        CHECK_MSG(has_nans == (nans == 1), "line %u: NaNs", v->line);
    }
    CHECK_MSG(same(got, want, 1e-12) || fabs(got - want) < 1e-15, "line %u: %.17g, not %.17g",
              v->line, got, want);
}

static void check_fold(struct vectors *v)
{
    struct histogram_fold sum, mean;
    size_t n = (size_t)number(v);

    CHECK(n >= 2 && n <= FOLD_MAX);
    for (size_t i = 0; i < n; i++) {
        struct histogram h = read_histogram(v);

        if (i == 0) {
            CHECK(histogram_fold_init(&sum, &h, &v->arena) == ERR_OK);
            CHECK(histogram_fold_init(&mean, &h, &v->arena) == ERR_OK);
        } else {
            CHECK(histogram_fold_sum(&sum, &h, &v->arena) == ERR_OK);
            CHECK(histogram_fold_mean(&mean, &h, &v->arena) == ERR_OK);
        }
    }
    CHECK(strcmp(token(v), "sum") == 0);
    histogram_fold_sum_end(&sum);
    histogram_fold_mean_end(&mean);
    CHECK(histogram_compact(&sum.value, &v->arena) == ERR_OK);
    CHECK(histogram_compact(&mean.value, &v->arena) == ERR_OK);
    expect(v, &sum.value, 0);
    expect(v, &mean.value, 0);
}

static void check_one(struct vectors *v, const char *what, struct histogram *a, struct histogram *b)
{
    static struct histogram subject;

    if (strcmp(what, "pair") == 0) {
        arena_reset(&v->arena);
        *a = read_histogram(v);
        *b = read_histogram(v);
    } else if (strcmp(what, "add") == 0 || strcmp(what, "sub") == 0) {
        check_sum(v, what[0] == 's', a, b);
    } else if (strcmp(what, "reset") == 0) {
        CHECK_MSG(histogram_detect_reset(a, b) == (number(v) == 1), "line %u", v->line);
        CHECK_MSG(histogram_detect_reset(b, a) == (number(v) == 1), "line %u", v->line);
    } else if (strcmp(what, "equal") == 0) {
        CHECK_MSG(histogram_equal(a, b) == (number(v) == 1), "line %u", v->line);
        CHECK(histogram_equal(a, a));
    } else if (strcmp(what, "trim") == 0) {
        check_trim(v, a);
    } else if (strcmp(what, "stats") == 0) {
        subject = read_histogram(v);
    } else if (strcmp(what, "quantile") == 0 || strcmp(what, "fraction") == 0) {
        check_statistic(v, what, &subject);
    } else if (strcmp(what, "text") == 0) {
        assert_string_equal(text_of(a), rest_of_line(v));
    } else if (strcmp(what, "reduce") == 0) {
        struct histogram h = copy_of(v, a);

        CHECK(histogram_reduce(&h, (int32_t)number(v), &v->arena) == ERR_OK);
        h.hint = a->hint;
        expect(v, &h, 0);
    } else {
        CHECK_MSG(strcmp(what, "fold") == 0, "line %u: %s", v->line, what);
        check_fold(v);
    }
}

static void vectors_agree(void **state)
{
    FILE *f = fopen(vectors_path, "rb");
    struct vectors v = {.text = malloc(FILE_SIZE_MAX + 1), .line = 1};
    struct histogram a = {0}, b = {0};
    char *what;
    size_t size;

    (void)state;
    CHECK(f != NULL && v.text != NULL);
    size = fread(v.text, 1, FILE_SIZE_MAX, f);
    (void)fclose(f); /* read only: nothing to lose */
    v.text[size] = 0;
    v.pos = v.text;
    arena_init(&v.arena, NULL);
    while (strcmp(what = token(&v), "end") != 0)
        check_one(&v, what, &a, &b);
    CHECK(v.checked > 300);
    arena_done(&v.arena);
    free(v.text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors_agree)};

    if (argc == 2)
        vectors_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
