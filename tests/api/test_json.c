/* JSON text: escapes, times and values as Prometheus writes them. */
#include "tests/lib/test_cmocka.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "api/http/grid_text_internal.h"
#include "api/http/json_internal.h"
#include "tests/lib/test_support.h"

static void check_text(struct byte_writer *w, const char *want)
{
    CHECK(!w->failed);
    CHECK_MSG(w->size == strlen(want) && memcmp(w->data, want, w->size) == 0, "got %.*s, want %s",
              (int)w->size, (const char *)w->data, want);
    writer_done(w);
}

static void test_strings(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"qu\"ote\\", "\"qu\\\"ote\\\\\""},
        {"\n\r\t", "\"\\n\\r\\t\""},
        {"\x01\x1f\b\f", "\"\\u0001\\u001f\\u0008\\u000c\""},
        {"<a href='x'>&", "\"<a href='x'>&\""},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80\""},
        {"\x7f", "\"\x7f\""},
        {"a\xff z", "\"a\\ufffd z\""},
        {"\xc0\x80", "\"\\ufffd\\ufffd\""},
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_writer w;

        writer_init(&w);
        json_write_string(&w, str_from(cases[i].text));
        check_text(&w, cases[i].want);
    }
}

/* What grid_points_write() is to give, point by point. */
static void points_write_slowly(struct byte_writer *w, const struct result_series *s,
                                int64_t start_ms, int64_t step_ms, size_t count)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        if (!result_point_present(s, i))
            continue;
        if (any)
            writer_u8(w, ',');
        json_write_point(w, start_ms + (int64_t)i * step_ms, s->value[i]);
        any = true;
    }
}

/* Texts of all lengths, repeats, gaps, times of both signs, any size of a piece. */
static void test_grid_points(void **state)
{
    enum { STEPS = 200 };
    static const double values[] = {0.0, -0.0, 5, 0.125, -1e300, 1e21, NAN, INFINITY, 5e-324, 0.1};
    struct test_random random = test_random_init(11);

    (void)state;
    for (int round = 0; round < 500; round++) {
        double value[STEPS] = {0};
        uint64_t present[(STEPS + 63) / 64] = {0};
        const struct result_series s = {.present = present, .value = value};
        int64_t step_ms = 1 + (int64_t)test_random_below(&random, 100000);
        int64_t start_ms =
            (int64_t)test_random_below(&random, UINT64_C(4000000000000)) - INT64_C(2000000000000);
        size_t count = 1 + (size_t)test_random_below(&random, STEPS), at = 0;
        const struct grid_time *times;
        struct byte_writer fast, slow;
        struct arena arena;
        bool any = false;

        for (size_t i = 0; i < count; i++) {
            uint64_t kind = test_random_below(&random, 16);

            if (kind < sizeof values / sizeof values[0])
                value[i] = values[kind];
            else if (kind > 12 && i > 0)
                value[i] = value[i - 1];
            else
                value[i] = double_from_bits(test_random_u64(&random));
            if (test_random_below(&random, 4) != 0)
                present[i / 64] |= UINT64_C(1) << (i % 64);
        }
        arena_init(&arena, NULL);
        writer_init(&fast);
        writer_init(&slow);
        times = grid_times_new(&arena, start_ms, step_ms, count);
        CHECK(times != NULL);
        while (at < count) {
            size_t before = fast.size, next;

            next = grid_points_write(&fast, times, &s, at, count,
                                     before + 1 + test_random_below(&random, 2000), &any);
            CHECK_MSG(next > at, "round %d stands at %zu", round, at);
            at = next;
        }
        points_write_slowly(&slow, &s, start_ms, step_ms, count);
        CHECK_MSG(fast.size == slow.size &&
                      (fast.size == 0 || memcmp(fast.data, slow.data, fast.size) == 0),
                  "round %d: %.*s", round, (int)fast.size, (const char *)fast.data);
        writer_done(&fast);
        writer_done(&slow);
        arena_done(&arena);
    }
}

/* Any bytes give JSON that another parser takes. */
static void test_random_strings_parse(void **state)
{
    struct test_random random = test_random_init(5);

    (void)state;
    for (int i = 0; i < 3000; i++) {
        char text[40];
        struct byte_writer w;
        json_t *parsed = NULL;
        json_error_t error;
        size_t size = (size_t)test_random_below(&random, sizeof text);

        for (size_t k = 0; k < size; k++)
            text[k] = (char)test_random_u64(&random);
        writer_init(&w);
        json_write_string(&w, (struct str){text, size});
        parsed = json_loadb((const char *)w.data, w.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        CHECK_MSG(parsed != NULL, "%s in %.*s", error.text, (int)w.size, (const char *)w.data);
        json_decref(parsed);
        writer_done(&w);
    }
}

static void test_times(void **state)
{
    static const struct {
        int64_t ms;
        const char *want, *sample;
    } cases[] = {
        {0, "0", "0"},
        {4000, "4", "4"},
        {1, "0.001", "0.001"},
        {10, "0.01", "0.010"},
        {100, "0.1", "0.100"},
        {10000, "10", "10"},
        {1435781451781, "1435781451.781", "1435781451.781"},
        {1435781451700, "1435781451.7", "1435781451.700"},
        {-1, "-0.001", "-0.001"},
        {-1500, "-1.5", "-1.500"},
        {-10000, "-10", "-10"},
        {INT64_MAX, "9223372036854775.807", "9223372036854775.807"},
        {INT64_MIN, "-9223372036854775.808", "-9223372036854775.808"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_writer w;

        writer_init(&w);
        json_write_time(&w, cases[i].ms);
        check_text(&w, cases[i].want);
        json_write_sample_time(&w, cases[i].ms);
        check_text(&w, cases[i].sample);
    }
}

static void test_points(void **state)
{
    static const struct {
        double value;
        const char *sample, *scalar;
    } cases[] = {
        {2, "[4,\"2\"]", "[4,\"2\"]"},
        {0.1, "[4,\"0.1\"]", "[4,\"0.1\"]"},
        {-0.0, "[4,\"-0\"]", "[4,\"-0\"]"},
        {1e-7, "[4,\"1e-07\"]", "[4,\"0.0000001\"]"},
        {1e21, "[4,\"1e+21\"]", "[4,\"1000000000000000000000\"]"},
        {1e20, "[4,\"100000000000000000000\"]", "[4,\"100000000000000000000\"]"},
        {(double)INFINITY, "[4,\"+Inf\"]", "[4,\"+Inf\"]"},
        {-(double)INFINITY, "[4,\"-Inf\"]", "[4,\"-Inf\"]"},
        {(double)NAN, "[4,\"NaN\"]", "[4,\"NaN\"]"},
    };

    struct byte_writer w;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        writer_init(&w);
        json_write_point(&w, 4000, cases[i].value);
        check_text(&w, cases[i].sample);
        json_write_point_f(&w, 4000, cases[i].value);
        check_text(&w, cases[i].scalar);
    }
    writer_init(&w);
    json_write_point(&w, 4500, 1);
    check_text(&w, "[4.500,\"1\"]");
    json_write_point_f(&w, 4500, 1);
    check_text(&w, "[4.5,\"1\"]");
}

static void test_labels(void **state)
{
    const struct label items[] = {{STR_LITERAL("__name__"), STR_LITERAL("up")},
                                  {STR_LITERAL("a b"), STR_LITERAL("\"")}};
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    json_write_labels(&w, &(struct labels){2, items});
    check_text(&w, "{\"__name__\":\"up\",\"a b\":\"\\\"\"}");
    json_write_labels(&w, &(struct labels){0, NULL});
    check_text(&w, "{}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),     cmocka_unit_test(test_random_strings_parse),
        cmocka_unit_test(test_grid_points), cmocka_unit_test(test_times),
        cmocka_unit_test(test_points),      cmocka_unit_test(test_labels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
