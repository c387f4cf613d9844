/*
 * Native histograms as values: bounds, what is refused on the way in and with which words, layouts
 * against a plain list of buckets by index, iteration.
 */
#include "engine/histogram.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/write.h"
#include "tests/engine/histogram_kit.h"
#include "tests/lib/test_cmocka.h"

static void bounds_are_those_of_all_clients(void **state)
{
    (void)state;
    CHECK(histogram_bound_exponential(0, 0) == 1 && histogram_bound_exponential(1, 0) == 2);
    CHECK(histogram_bound_exponential(-1, 0) == 0.5 && histogram_bound_exponential(0, 8) == 1);
    CHECK(histogram_bound_exponential(1, -4) == 65536);
    CHECK(histogram_bound_exponential(1, 1) == 1.414213562373095);
    CHECK(histogram_bound_exponential(-1, -4) == 1.0 / 65536);
    for (int32_t schema = HISTOGRAM_SCHEMA_MIN; schema < HISTOGRAM_SCHEMA_MAX; schema++) {
        for (int32_t i = -300; i < 300; i++) {
            double bound = histogram_bound_exponential(i, schema);

            CHECK(bound == histogram_bound_exponential(2 * i, schema + 1));
            CHECK(histogram_bound_exponential(i + 1, schema) > bound || isinf(bound) || bound == 0);
            CHECK(bound == 0 || bound >= DBL_MAX || schema < 0 ||
                  fabs(bound / exp2(ldexp(i, -schema)) - 1) < 2e-15);
        }
    }
    /* The last finite bucket ends at the largest double, the next one holds infinities. */
    for (int32_t schema = HISTOGRAM_SCHEMA_MIN; schema <= HISTOGRAM_SCHEMA_MAX; schema++) {
        int32_t last = schema < 0 ? 1024 >> -schema : 1024 << schema;

        CHECK(histogram_bound_exponential(last, schema) == DBL_MAX);
        CHECK(isinf(histogram_bound_exponential(last + 1, schema)));
    }
    CHECK(isinf(histogram_bound_exponential(INT32_MAX, 8)));
    CHECK(histogram_bound_exponential(INT32_MIN, -4) == 0);
}

/* --- Coming in --- */

static const struct histogram_span one_span[] = {{0, 2}};
static const struct histogram_span back_span[] = {{0, 1}, {-1, 1}};
static const double bounds_12[] = {1, 2}, bounds_21[] = {2, 1}, bounds_inf[] = {1, INFINITY};
static const double bounds_fall[] = {INFINITY, -INFINITY};
static const double bounds_nan[] = {NAN, 2};

static void floats_are_checked(void **state)
{
    static double two[] = {1, 2}, minus[] = {1, -2};
    const struct {
        struct histogram h;
        const char *text; /* "": accepted */
    } cases[] = {
        {{.count = 3, .positive = {one_span, 1, two, 2}}, ""},
        {{.count = 99, .positive = {one_span, 1, two, 2}}, ""},
        {{.schema = -5},
         "must be between -4 and 8 for exponential buckets, or -53 for custom "
         "buckets, got schema -5"},
        {{.schema = 53}, "got schema 53"},
        {{.schema = -53, .custom_values = bounds_12, .custom_count = 2}, ""},
        {{.positive = {one_span, 1, two, 1}},
         "positive side: spans need 2 buckets, have 1 buckets: histogram spans specify different "
         "number of buckets than provided"},
        {{.negative = {back_span, 2, two, 2}},
         "negative side: span number 2 with offset -1: histogram has a span whose offset is "
         "negative"},
        {{.negative = {one_span, 1, minus, 2}},
         "negative side: bucket number 2 has observation count of -2: histogram has a bucket whose "
         "observation count is negative"},
        {{.zero_count = -1}, "zero bucket has observation count of -1"},
        {{.count = -1}, "observation count is -1: histogram's observation count is negative"},
        {{.custom_values = bounds_12, .custom_count = 2},
         "histogram with exponential schema must not have custom bounds"},
        {{.schema = -53, .custom_values = bounds_21, .custom_count = 2},
         "custom buckets: previous bound is 2.000000 and current is 1.000000: histogram custom "
         "bounds must be in strictly increasing order"},
        {{.schema = -53, .custom_values = bounds_fall, .custom_count = 2},
         "custom buckets: previous bound is +Inf and current is -Inf: histogram custom bounds"},
        {{.schema = -53, .custom_values = bounds_inf, .custom_count = 2},
         "last +Inf bound must not be explicitly defined: histogram custom bounds must be finite"},
        {{.schema = -53, .custom_values = bounds_nan, .custom_count = 2}, "must not be NaN"},
        {{.schema = -53, .positive = {one_span, 1, two, 2}},
         "custom buckets: only 0 custom bounds defined which is insufficient to cover total span "
         "length of 2: histogram custom bounds are too few"},
        {{.schema = -53, .zero_count = 1}, "custom buckets: must have zero count of 0"},
        {{.schema = -53, .zero_threshold = 1}, "custom buckets: must have zero threshold of 0"},
        {{.schema = -53, .negative = {one_span, 1, two, 2}}, "must not have negative spans"},
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct histogram h = cases[i].h;
        struct errinfo ei = {0};
        enum err e = histogram_accept(&h, &arena, &ei);

        CHECK_MSG(e == (cases[i].text[0] == 0 ? ERR_OK : ERR_INVALID), "case %zu: %s", i,
                  ei.message);
        CHECK_MSG(strstr(ei.message, cases[i].text) != NULL, "case %zu: %s", i, ei.message);
        CHECK(histogram_same_bits(&h, &cases[i].h));
    }
    arena_done(&arena);
}

static void integers_are_converted_and_counted(void **state)
{
    static const int64_t deltas[] = {5, -2}, below[] = {1, -2};
    static const int64_t big[] = {(INT64_C(1) << 53) + 1, 0};
    const struct {
        struct histogram_integers in;
        double sum;
        const char *text;
    } cases[] = {
        {{9, 1, deltas, NULL, 2, 0}, 1, ""},
        {{10, 1, deltas, NULL, 2, 0},
         1,
         "9 observations found in buckets, but the Count field is 10: histogram's observation "
         "count should equal the number of observations found in the buckets (in absence of NaN)"},
        {{10, 1, deltas, NULL, 2, 0}, NAN, ""},
        {{8, 1, deltas, NULL, 2, 0},
         NAN,
         "9 observations found in buckets, but the Count field is 8: histogram's observation count "
         "should be at least the number of observations found in the buckets"},
        {{1, 0, below, NULL, 2, 0},
         1,
         "positive side: bucket number 2 has observation count of -1"},
        {{8, 0, deltas, NULL, 1, 0}, 1, "spans need 2 buckets, have 1 buckets"},
        {{(UINT64_C(2) << 53) + 2, 0, big, NULL, 2, 0}, 1, ""},
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct histogram h = {.sum = cases[i].sum,
                              .positive = {.spans = one_span, .span_count = 1}};
        struct errinfo ei = {0};
        enum err e = histogram_from_integers(&h, &cases[i].in, &arena, &ei);

        CHECK_MSG(e == (cases[i].text[0] == 0 ? ERR_OK : ERR_INVALID), "case %zu: %s", i,
                  ei.message);
        CHECK_MSG(strstr(ei.message, cases[i].text) != NULL, "case %zu: %s", i, ei.message);
        if (i == 0)
            CHECK(h.count == 9 && h.zero_count == 1 && h.positive.buckets[0] == 5 &&
                  h.positive.buckets[1] == 3);
    }
    arena_done(&arena);
}

static void finer_schemas_are_reduced(void **state)
{
    static const struct histogram_span spans[] = {{-1, 3}, {5, 1}};
    double counts[] = {1, 2, 3, 4};
    struct histogram h = {.schema = 10, .positive = {spans, 2, counts, 4}};
    struct errinfo ei = {0};
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    /* Four buckets go into one: indexes -1, 0 into 0; 1 into 1; 7 into 2. */
    CHECK_OK(histogram_accept(&h, &arena, &ei), &ei);
    CHECK(h.schema == 8 && h.positive.bucket_count == 3 && h.positive.span_count == 1);
    CHECK(h.positive.spans[0].offset == 0 && h.positive.spans[0].length == 3);
    CHECK(counts[0] == 3 && counts[1] == 3 && counts[2] == 4);
    h = (struct histogram){.schema = 52};
    CHECK_OK(histogram_accept(&h, &arena, &ei), &ei);
    CHECK(h.schema == 8);
    arena_done(&arena);
}

/* --- Against a plain list of counts by index --- */

enum { LIST_ZERO = 200, LIST_SIZE = 2 * LIST_ZERO };

static void list_fill(const struct histogram_side *side, int32_t shift, double *list)
{
    int32_t index = 0;
    size_t position = 0;

    memset(list, 0, LIST_SIZE * sizeof *list);
    for (size_t i = 0; i < side->span_count; i++) {
        index += side->spans[i].offset;
        for (uint32_t k = 0; k < side->spans[i].length; k++, index++)
            list[LIST_ZERO + (int32_t)ceil(ldexp(index, -shift))] += side->buckets[position++];
    }
    CHECK(position == side->bucket_count);
}

static void check_side(const struct histogram_side *before, const struct histogram_side *after,
                       int32_t shift, bool is_compact)
{
    double want[LIST_SIZE], got[LIST_SIZE];

    list_fill(before, shift, want);
    list_fill(after, 0, got);
    for (size_t i = 0; i < LIST_SIZE; i++)
        CHECK(want[i] == got[i]);
    for (size_t i = 0; i < after->bucket_count && is_compact; i++)
        CHECK(after->buckets[i] != 0);
    for (size_t i = 0; i < after->span_count && is_compact; i++)
        CHECK(after->spans[i].length > 0 && (i == 0 || after->spans[i].offset > 0));
}

static void layouts_change_without_loss(void **state)
{
    struct test_random r = test_random_init(1);
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (int round = 0; round < 2000; round++) {
        struct histogram h = histogram_any(&r, &arena), c, untouched;

        CHECK(histogram_copy(&h, &arena, &c) == ERR_OK);
        CHECK(histogram_copy_deep(&h, &arena, &untouched) == ERR_OK);
        CHECK(histogram_same_bits(&h, &c) && histogram_equal(&h, &c));
        CHECK(histogram_compact(&c, &arena) == ERR_OK);
        check_side(&h.positive, &c.positive, 0, true);
        check_side(&h.negative, &c.negative, 0, true);
        if (!histogram_is_custom(&h)) {
            int32_t schema = h.schema - (int32_t)test_random_below(&r, (uint64_t)h.schema + 5);

            CHECK(histogram_copy(&h, &arena, &c) == ERR_OK);
            CHECK(histogram_reduce(&c, schema, &arena) == ERR_OK && c.schema == schema);
            check_side(&h.positive, &c.positive, h.schema - schema, false);
            check_side(&h.negative, &c.negative, h.schema - schema, false);
            CHECK(histogram_check_layout(&c, NULL) == ERR_OK);
        }
        CHECK(histogram_same_bits(&h, &untouched)); /* shared spans stay as they are */
        arena_reset(&arena);
    }
    arena_done(&arena);
}

static void iteration_goes_up_and_down(void **state)
{
    struct test_random r = test_random_init(2);
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (int round = 0; round < 2000; round++) {
        struct histogram h = histogram_any(&r, &arena);
        struct histogram_bucket up[64];
        struct histogram_iter it;
        size_t n = 0;
        double sum = 0;

        histogram_iter_init(&it, &h, false);
        for (; histogram_iter_next(&it); n++) {
            CHECK(n < 64);
            CHECK(n == 0 || h.zero_threshold > 0 || it.bucket.lower >= up[n - 1].lower);
            up[n] = it.bucket;
            sum += it.bucket.count;
        }
        CHECK(sum == h.count);
        histogram_iter_init(&it, &h, true);
        while (histogram_iter_next(&it))
            CHECK(n-- > 0 && up[n].lower == it.bucket.lower && up[n].upper == it.bucket.upper &&
                  up[n].count == it.bucket.count);
        CHECK(n == 0 && !histogram_iter_next(&it));
        arena_reset(&arena);
    }
    arena_done(&arena);
}

static void zero_bucket_cuts_its_neighbours(void **state)
{
    static const struct histogram_span spans[] = {{0, 2}};
    double positive[] = {1, 2}, negative[] = {3, 4};
    struct histogram h = {.zero_threshold = 0.75,
                          .zero_count = 5,
                          .positive = {spans, 1, positive, 2},
                          .negative = {spans, 1, negative, 2}};
    const double want[5][5] = {{-2, -1, 4, 1, 0},
                               {-1, -0.75, 3, 1, 0},
                               {-0.75, 0.75, 5, 1, 1},
                               {0.75, 1, 1, 0, 1},
                               {1, 2, 2, 0, 1}};
    struct histogram_iter it;

    (void)state;
    histogram_iter_init(&it, &h, false);
    for (size_t i = 0; i < 5; i++) {
        CHECK(histogram_iter_next(&it));
        CHECK(it.bucket.lower == want[i][0] && it.bucket.upper == want[i][1] &&
              it.bucket.count == want[i][2]);
        CHECK(it.bucket.lower_inclusive == (want[i][3] != 0) &&
              it.bucket.upper_inclusive == (want[i][4] != 0));
    }
    CHECK(!histogram_iter_next(&it));
}

static void equality_is_of_bits_and_buckets(void **state)
{
    static const struct histogram_span plain[] = {{1, 2}}, padded[] = {{-2, 0}, {3, 2}, {7, 0}};
    static const struct histogram_span split[] = {{1, 1}, {0, 1}};
    double counts[] = {1, 2};
    struct histogram a = {.count = 3, .positive = {plain, 1, counts, 2}}, b = a;

    (void)state;
    b.positive.spans = padded;
    b.positive.span_count = 3;
    b.hint = HISTOGRAM_HINT_GAUGE;
    CHECK(histogram_equal(&a, &b));
    b.positive.spans = split;
    b.positive.span_count = 2;
    CHECK(!histogram_equal(&a, &b));
    b = a;
    b.sum = -0.0;
    CHECK(!histogram_equal(&a, &b));
    a.sum = b.sum = double_from_bits(STALE_NAN_BITS);
    CHECK(histogram_equal(&a, &b) && histogram_is_stale(&a));
    a.sum = NAN;
    CHECK(!histogram_equal(&a, &b) && !histogram_is_stale(&a));
}

static void too_large_ones_are_refused(void **state)
{
    enum { BUCKETS = HISTOGRAM_NUMBERS_MAX };
    double *buckets = calloc(BUCKETS, sizeof *buckets);
    int64_t *deltas = calloc(BUCKETS, sizeof *deltas);
    const struct histogram_span fits = {0, BUCKETS - 1}, exceeds = {0, BUCKETS};
    struct histogram h = {.positive = {&fits, 1, buckets, BUCKETS - 1}};
    struct histogram_integers in = {.positive_deltas = deltas, .positive_count = BUCKETS - 1};
    struct errinfo ei = {0};
    struct arena arena;

    (void)state;
    CHECK(buckets != NULL && deltas != NULL);
    arena_init(&arena, NULL);
    CHECK_OK(histogram_accept(&h, &arena, &ei), &ei);
    CHECK_OK(histogram_from_integers(&h, &in, &arena, &ei), &ei);
    h = (struct histogram){.positive = {&exceeds, 1, buckets, BUCKETS}};
    in.positive_count = BUCKETS;
    CHECK(histogram_accept(&h, &arena, &ei) == ERR_INVALID);
    CHECK(strstr(ei.message, "131073 buckets") != NULL);
    CHECK(histogram_from_integers(&h, &in, &arena, NULL) == ERR_INVALID);
    arena_done(&arena);
    free(deltas);
    free(buckets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_those_of_all_clients),
        cmocka_unit_test(floats_are_checked),
        cmocka_unit_test(integers_are_converted_and_counted),
        cmocka_unit_test(finer_schemas_are_reduced),
        cmocka_unit_test(layouts_change_without_loss),
        cmocka_unit_test(iteration_goes_up_and_down),
        cmocka_unit_test(zero_bucket_cuts_its_neighbours),
        cmocka_unit_test(equality_is_of_bits_and_buckets),
        cmocka_unit_test(too_large_ones_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
