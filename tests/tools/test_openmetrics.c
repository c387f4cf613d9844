/*
 * Lines of OpenMetrics text: names that need quotes, values and times that read back as they were.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tools/openmetrics_internal.h"

static void check_series(size_t count, const struct label *items, const char *want)
{
    struct labels labels = {count, items};
    struct byte_writer w;

    writer_init(&w);
    CHECK(openmetrics_write_series(&w, &labels));
    CHECK_MSG(w.size == strlen(want) && memcmp(w.data, want, w.size) == 0, "%.*s", (int)w.size,
              (const char *)w.data);
    writer_done(&w);
}

static void test_series(void **state)
{
    const struct label name = {LABEL_METRIC_NAME, STR_LITERAL("up:x")};
    const struct label quoted = {LABEL_METRIC_NAME, STR_LITERAL("a\"b.c")};
    const struct label digit = {LABEL_METRIC_NAME, STR_LITERAL("1")};
    const struct label early = {STR_LITERAL("A"), STR_LITERAL("\\\n\"")};
    const struct label late = {STR_LITERAL("b.c"), STR_LITERAL("\x01\xc3\xa9")};
    const struct label several[] = {early, name, late};
    const struct label hard[] = {early, quoted, late};
    struct labels none = {1, &early};
    struct byte_writer w;

    (void)state;
    check_series(1, &name, "up:x");
    check_series(1, &digit, "{\"1\"}");
    check_series(1, &quoted, "{\"a\\\"b.c\"}");
    check_series(3, several, "up:x{A=\"\\\\\\n\\\"\",\"b.c\"=\"\x01\xc3\xa9\"}");
    check_series(3, hard, "{\"a\\\"b.c\",A=\"\\\\\\n\\\"\",\"b.c\"=\"\x01\xc3\xa9\"}");
    writer_init(&w);
    CHECK(!openmetrics_write_series(&w, &none));
    writer_done(&w);
}

static void sample_text(int64_t t_ms, double value, char out[512])
{
    struct byte_writer w;

    writer_init(&w);
    openmetrics_write_sample(&w, t_ms, value);
    CHECK(!w.failed && w.size < 512 && w.data[w.size - 1] == '\n');
    memcpy(out, w.data, w.size);
    out[w.size - 1] = '\0';
    writer_done(&w);
}

static void check_times(int64_t t_ms)
{
    char text[512];
    double seconds;

    sample_text(t_ms, 1, text);
    seconds = strtod(strrchr(text, ' '), NULL);
    /* Readers that cut, as Prometheus, and readers that round. */
    CHECK_MSG((int64_t)(seconds * 1000) == t_ms && llround(seconds * 1000) == t_ms,
              "%" PRId64 ": %s", t_ms, text);
}

static void test_times(void **state)
{
    struct test_random r = test_random_init(1);
    char text[512];

    (void)state;
    sample_text(1700000000050, 1, text);
    CHECK_MSG(strcmp(text, " 1 1700000000.05") == 0, "%s", text);
    sample_text(-1500, 1, text);
    CHECK_MSG(strcmp(text, " 1 -1.5") == 0, "%s", text);
    for (int64_t t = -5000; t <= 5000; t++)
        check_times(t);
    for (int i = 0; i < 100000; i++) {
        check_times(1700000000000 + (int64_t)test_random_below(&r, 100000000000));
        check_times((int64_t)test_random_wide(&r, 23) >> 23);
        check_times(-((int64_t)test_random_wide(&r, 23) >> 23));
    }
}

static void test_values(void **state)
{
    static const double values[] = {0.0,  -0.0, 1e300, 5e-324,   1.0 / 3,  123456789.0,
                                    1e-7, 1e21, -1e22, INFINITY, -INFINITY};
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        sample_text(1000, values[i], text);
        CHECK_MSG(double_bits(strtod(text, NULL)) == double_bits(values[i]), "%s", text);
    }
    sample_text(1000, NAN, text);
    CHECK(strcmp(text, " NaN 1") == 0);
    sample_text(1000, INFINITY, text);
    CHECK(strcmp(text, " +Inf 1") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_series),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
