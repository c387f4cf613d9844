/*
 * Functions of single values and texts: Go's special cases of powers and extrema, dates against
 * gmtime_r(), templates of label_replace(), natural order, classic histograms by hand.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "promql/eval/eval_labels_internal.h"
#include "promql/eval/eval_map_internal.h"
#include "promql/histograms/histogram_classic_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || double_bits(a) == double_bits(b);
}

/* The special cases of Go's documentation of math.Pow, math.Max and math.Min. */
static void test_go_math(void **state)
{
    static const struct {
        double x, y, want;
    } powers[] = {
        {NAN, 0, 1},
        {0, -0.0, 1},
        {1, NAN, 1},
        {3, 1, 3},
        {NAN, 2, NAN},
        {2, NAN, NAN},
        {-0.0, -3, -INFINITY},
        {0, -INFINITY, INFINITY},
        {-0.0, INFINITY, 0},
        {0, -2, INFINITY},
        {-0.0, 3, -0.0},
        {-0.0, 2, 0},
        {-1, INFINITY, 1},
        {-1, -INFINITY, 1},
        {2, INFINITY, INFINITY},
        {2, -INFINITY, 0},
        {0.5, INFINITY, 0},
        {0.5, -INFINITY, INFINITY},
        {INFINITY, 2, INFINITY},
        {INFINITY, -2, 0},
        {-INFINITY, 3, -INFINITY},
        {-2, 0.5, NAN},
        {-2, 3, -8},
    };

    (void)state;
    for (size_t i = 0; i < sizeof powers / sizeof powers[0]; i++)
        CHECK_MSG(same(go_pow(powers[i].x, powers[i].y), powers[i].want), "%g ^ %g", powers[i].x,
                  powers[i].y);
    CHECK(same(go_max(NAN, INFINITY), INFINITY) && same(go_max(-INFINITY, NAN), NAN));
    CHECK(same(go_min(NAN, -INFINITY), -INFINITY) && same(go_min(INFINITY, NAN), NAN));
    CHECK(same(go_max(-0.0, 0), 0) && same(go_max(0, -0.0), 0) && same(go_max(1, 2), 2));
    CHECK(same(go_min(-0.0, 0), -0.0) && same(go_min(0, -0.0), -0.0) && same(go_min(1, 2), 1));
}

static double date(enum function_id id, double v)
{
    map_function *f = map_function_find(id);

    CHECK(f != NULL);
    return f(v, 1);
}

static void check_date(int64_t seconds)
{
    time_t t = (time_t)seconds;
    double v = (double)seconds;
    struct tm tm, next;

    CHECK(gmtime_r(&t, &tm) != NULL);
    CHECK_MSG(date(FUNCTION_YEAR, v) == tm.tm_year + 1900.0, "%lld", (long long)seconds);
    CHECK_MSG(date(FUNCTION_MONTH, v) == tm.tm_mon + 1, "%lld", (long long)seconds);
    CHECK(date(FUNCTION_DAY_OF_MONTH, v) == tm.tm_mday);
    CHECK(date(FUNCTION_DAY_OF_WEEK, v) == tm.tm_wday);
    CHECK(date(FUNCTION_DAY_OF_YEAR, v) == tm.tm_yday + 1);
    CHECK(date(FUNCTION_HOUR, v) == tm.tm_hour);
    CHECK(date(FUNCTION_MINUTE, v) == tm.tm_min);
    /* The month's last day is followed by a first. */
    t += ((int64_t)date(FUNCTION_DAYS_IN_MONTH, v) - tm.tm_mday) * 86400;
    CHECK(gmtime_r(&t, &next) != NULL && next.tm_mon == tm.tm_mon);
    t += 86400;
    CHECK(gmtime_r(&t, &next) != NULL && next.tm_mday == 1);
}

static void test_dates(void **state)
{
    struct test_random r = test_random_init(5);

    (void)state;
    for (int i = 0; i < 200000; i++)
        check_date((int64_t)(test_random_u64(&r) % 200000000000U) - 100000000000);
    check_date(0);
    check_date(-1);
    check_date(951782400);  /* 2000-02-29 */
    check_date(4107542399); /* the last second before 2100-03-01 */
    CHECK(date(FUNCTION_HOUR, 3599.9) == 0 && date(FUNCTION_MINUTE, -0.5) == 0);
    CHECK(date(FUNCTION_HOUR, INFINITY) == 15); /* as Go has it */
    (void)date(FUNCTION_YEAR, NAN);             /* anything but undefined behaviour */
    (void)date(FUNCTION_YEAR, 1e300);
    (void)date(FUNCTION_YEAR, -1e300);
}

static int natural(const char *a, const char *b)
{
    int c = natural_compare(str_from(a), str_from(b));

    return (c > 0) - (c < 0);
}

static void test_natural_order(void **state)
{
    static const char *const sorted[] = {"",   "1",  "2",   "10",   "010x",  "a",
                                         "a1", "a2", "a10", "a10b", "a10b2", "b"};

    (void)state;
    for (size_t i = 0; i < sizeof sorted / sizeof sorted[0]; i++) {
        for (size_t k = 0; k < sizeof sorted / sizeof sorted[0]; k++)
            CHECK_MSG(natural(sorted[i], sorted[k]) == (i > k) - (i < k), "%s %s", sorted[i],
                      sorted[k]);
    }
    CHECK(natural("a01", "a1") == 0);
    CHECK(natural("99999999999999999999998", "99999999999999999999999") == -1);
}

static double quantile(double q, size_t count, const struct bucket *buckets, bool *forced)
{
    struct bucket copy[8];
    struct monotonicity_fix fix;

    memcpy(copy, buckets, count * sizeof *copy);
    return buckets_quantile(q, copy, count, forced, &fix);
}

static void test_buckets(void **state)
{
    const struct bucket b[] = {{1, 10}, {2, 30}, {INFINITY, 40}};
    const struct bucket twice[] = {{1, 5}, {1, 5}, {2, 30}, {INFINITY, 40}};
    const struct bucket falling[] = {{1, 10}, {2, 8}, {INFINITY, 40}};
    const struct bucket noise[] = {{1, 10}, {2, 10 - 1e-13}, {INFINITY, 40}};
    const struct bucket negative[] = {{-2, 10}, {1, 20}, {INFINITY, 20}};
    struct bucket copy[3];
    bool forced;

    (void)state;
    CHECK(quantile(0.5, 3, b, &forced) == 1.5 && !forced);
    CHECK(quantile(0.5, 4, twice, &forced) == 1.5 && !forced);
    CHECK(quantile(0.125, 3, b, &forced) == 0.5); /* from 0 when the first bound is positive */
    CHECK(quantile(0.9, 3, b, &forced) == 2);     /* the last finite bound */
    CHECK(quantile(0.25, 3, negative, &forced) == -2);
    CHECK(isinf(quantile(-1, 3, b, &forced)) && isinf(quantile(2, 3, b, &forced)));
    CHECK(isnan(quantile(NAN, 3, b, &forced)) && isnan(quantile(0.5, 2, b, &forced)));
    CHECK(isnan(quantile(0.5, 1, b + 2, &forced)));
    (void)quantile(0.5, 3, falling, &forced);
    CHECK(forced);
    (void)quantile(0.5, 3, noise, &forced);
    CHECK(!forced); /* rounding errors of sums are put right in silence */
    memcpy(copy, b, sizeof b);
    CHECK(buckets_fraction(0.5, 2, copy, 3) == 25.0 / 40);
    memcpy(copy, b, sizeof b);
    CHECK(buckets_fraction(2, INFINITY, copy, 3) == 0.25);
    memcpy(copy, b, sizeof b);
    CHECK(buckets_fraction(2, 1, copy, 3) == 0 && isnan(buckets_fraction(NAN, 1, copy, 3)));
    memcpy(copy, negative, sizeof negative);
    CHECK(buckets_fraction(-INFINITY, -2, copy, 3) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_go_math),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_natural_order),
        cmocka_unit_test(test_buckets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
