/*
 * Statistics and texts of native histograms with values that Prometheus's reference scripts expect
 * or that can be checked by hand; what is refused, and what deserves an annotation. Histograms are
 * written in the scripts' notation. Random ones: test_histogram_vectors.c.
 */
#include <math.h>
#include <string.h>

#include "promql/histogram_math.h"
#include "promql/histogram_text.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tools/promqltest_internal.h"

static struct arena arena;

static struct histogram parse(const char *text)
{
    struct series_line line;
    struct errinfo ei = {0};
    char *whole = arena_printf(&arena, "m %s", text);

    CHECK(whole != NULL);
    CHECK_OK(series_line_parse(str_from(whole), &arena, &line, &ei), &ei);
    CHECK(line.points.count == 1);
    return line.points.histograms[0]->value;
}

static bool is_near(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= 1e-9 * fabs(b);
}

static void statistics_are_estimated(void **state)
{
    static const char full[] = "{{schema:0 sum:100 count:100 z_bucket:4 z_bucket_w:0.001 "
                               "buckets:[5 10 20 30 18] n_buckets:[3 5 5]}}";
    struct histogram h = parse(full), empty = parse("{{}}");
    struct histogram single = parse("{{schema:0 sum:20 count:7 z_bucket:1 z_bucket_w:0.001 "
                                    "buckets:[0 1 2 3]}}");
    enum histogram_nans nans;
    bool has_nans;

    (void)state;
    CHECK(histogram_average(&h) == 1 && isnan(histogram_average(&empty)));
    CHECK(isnan(histogram_quantile(0.5, &empty, &nans)) && nans == HISTOGRAM_NANS_NONE);
    CHECK(histogram_quantile(-1, &h, &nans) == -INFINITY);
    CHECK(histogram_quantile(2, &h, &nans) == INFINITY);
    CHECK(histogram_quantile(1, &h, &nans) == 16 && histogram_quantile(0, &h, &nans) == -4);
    /* From above: 18 in (8,16], then half of the 30 in (4,8]. */
    CHECK(is_near(histogram_quantile(0.67, &h, &nans), exp2(2.5)));
    CHECK(is_near(histogram_fraction(1, 2, &h, &has_nans), 0.1) && !has_nans);
    CHECK(is_near(histogram_fraction(-INFINITY, INFINITY, &h, &has_nans), 1));
    CHECK(histogram_fraction(2, 1, &h, &has_nans) == 0);
    CHECK(isnan(histogram_fraction(NAN, 1, &h, &has_nans)));
    /* Middles: 0 once, 2^0.5 once, 2^1.5 twice, 2^2.5 three times; the mean is 20 / 7. */
    {
        double mean = 20.0 / 7, sum = mean * mean + pow(sqrt(2) - mean, 2);

        sum += 2 * pow(sqrt(8) - mean, 2) + 3 * pow(sqrt(32) - mean, 2);
        CHECK(is_near(histogram_variance(&single), sum / 7));
    }
}

static void custom_buckets_are_linear(void **state)
{
    struct histogram h = parse("{{schema:-53 sum:5 count:4 custom_values:[5 10] buckets:[1 2 1]}}");
    enum histogram_nans nans;
    bool has_nans;

    (void)state;
    CHECK(histogram_quantile(0.5, &h, &nans) == 7.5);
    CHECK(histogram_quantile(0.125, &h, &nans) == 2.5);
    CHECK(histogram_quantile(0.9, &h, &nans) == 10);
    CHECK(histogram_fraction(5, 7.5, &h, &has_nans) == 0.25);
}

static void nan_observations_are_told(void **state)
{
    struct histogram h = parse("{{schema:0 sum:NaN count:12 buckets:[5 5]}}");
    enum histogram_nans nans;
    bool has_nans;

    (void)state;
    CHECK(isnan(histogram_quantile(0.99, &h, &nans)) && nans == HISTOGRAM_NANS_RESULT);
    CHECK(histogram_quantile(10.0 / 12, &h, &nans) == 2 && nans == HISTOGRAM_NANS_SKEW);
    CHECK(is_near(histogram_fraction(-INFINITY, INFINITY, &h, &has_nans), 10.0 / 12) && has_nans);
    h.count = 10;
    CHECK(histogram_quantile(1, &h, &nans) == 2 && nans == HISTOGRAM_NANS_NONE);
}

static void kinds_do_not_mix(void **state)
{
    struct histogram a = parse("{{schema:0 buckets:[1]}}"), b = parse("{{schema:-53}}"), before = a;
    struct histogram_notes notes = {0};
    struct histogram_fold f;

    (void)state;
    CHECK(histogram_add(&a, &b, &arena, &notes) == ERR_INVALID);
    CHECK(histogram_subtract(&b, &a, &arena, &notes) == ERR_INVALID);
    CHECK(histogram_equal(&a, &before) && !notes.hints_collide && !notes.bounds_reconciled);
    CHECK(histogram_fold_init(&f, &a, &arena) == ERR_OK);
    CHECK(histogram_fold_sum(&f, &b, &arena) == ERR_INVALID);
    CHECK(histogram_fold_mean(&f, &b, &arena) == ERR_INVALID);
}

static void scaling_keeps_layouts(void **state)
{
    struct histogram h = parse("{{schema:0 sum:4 count:6 z_bucket:2 z_bucket_w:1 buckets:[1 3]}}");

    (void)state;
    histogram_multiply(&h, -2);
    CHECK(h.sum == -8 && h.count == -12 && h.zero_count == -4 && h.positive.buckets[1] == -6);
    CHECK(h.zero_threshold == 1 && h.hint == HISTOGRAM_HINT_GAUGE);
    histogram_divide(&h, 0);
    CHECK(isinf(h.count) && h.positive.bucket_count == 0 && h.positive.span_count == 0);
}

static void a_mean_survives_overflow(void **state)
{
    struct histogram h = parse("{{schema:0 sum:1e308 count:1 buckets:[1]}}");
    struct histogram_fold f;

    (void)state;
    CHECK(histogram_fold_init(&f, &h, &arena) == ERR_OK);
    for (int i = 0; i < 9; i++)
        CHECK(histogram_fold_mean(&f, &h, &arena) == ERR_OK);
    histogram_fold_mean_end(&f);
    CHECK(f.is_mean && is_near(f.value.sum, 1e308) && is_near(f.value.count, 1));
}

static void refused_memory_is_an_error(void **state)
{
    struct histogram a = parse("{{schema:0 buckets:[1]}}");
    struct histogram b = parse("{{schema:0 offset:4000 buckets:[1]}}");
    struct histogram_notes notes = {0};
    struct budget budget;
    struct arena small;

    (void)state;
    budget_init(&budget, "test", 0, NULL);
    arena_init(&small, &budget);
    CHECK(histogram_add(&a, &b, &small, &notes) == ERR_LIMIT);
    arena_done(&small);
}

static void texts_are_written(void **state)
{
    static const struct {
        const char *histogram, *text, *json;
    } cases[] = {
        {"{{}}", "{count:0, sum:0}", "{\"count\":\"0\",\"sum\":\"0\"}"},
        {"{{schema:0 sum:-4.5 count:1e7 z_bucket:3 z_bucket_w:0.001 buckets:[0 1 2] n_buckets:[4 "
         "5]}}",
         "{count:1e+07, sum:-4.5, [-2,-1):5, [-1,-0.5):4, [-0.001,0.001]:3, (1,2]:1, (2,4]:2}",
         "{\"count\":\"10000000\",\"sum\":\"-4.5\",\"buckets\":[[1,\"-2\",\"-1\",\"5\"],"
         "[1,\"-1\",\"-0.5\",\"4\"],[3,\"-0.001\",\"0.001\",\"3\"],[0,\"1\",\"2\",\"1\"],"
         "[0,\"2\",\"4\",\"2\"]]}"},
        {"{{schema:-53 sum:5 count:4 custom_values:[5 10] buckets:[1 2 1]}}",
         "{count:4, sum:5, [-Inf,5]:1, (5,10]:2, (10,+Inf]:1}",
         "{\"count\":\"4\",\"sum\":\"5\",\"buckets\":[[3,\"-Inf\",\"5\",\"1\"],"
         "[0,\"5\",\"10\",\"2\"],[0,\"10\",\"+Inf\",\"1\"]]}"},
    };
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct histogram h = parse(cases[i].histogram);

        writer_reset(&w);
        histogram_write_text(&w, &h);
        writer_u8(&w, 0);
        CHECK(!w.failed);
        assert_string_equal((char *)w.data, cases[i].text);
        writer_reset(&w);
        histogram_write_json(&w, &h);
        writer_u8(&w, 0);
        CHECK(!w.failed);
        assert_string_equal((char *)w.data, cases[i].json);
    }
    writer_done(&w);
}

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_estimated),   cmocka_unit_test(custom_buckets_are_linear),
        cmocka_unit_test(nan_observations_are_told),  cmocka_unit_test(kinds_do_not_mix),
        cmocka_unit_test(scaling_keeps_layouts),      cmocka_unit_test(a_mean_survives_overflow),
        cmocka_unit_test(refused_memory_is_an_error), cmocka_unit_test(texts_are_written),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
