/*
 * Histograms among the points of a series line, read and written back.
 */
#include <math.h>
#include <string.h>

#include "promql/histogram_text.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tools/promqltest_internal.h"

static void parse(const char *text, struct arena *arena, struct series_line *out)
{
    struct errinfo ei = {0};

    CHECK_OK(series_line_parse(str_from(text), arena, out, &ei), &ei);
}

/* All histograms of a line, blanks between them. */
static const char *written(const struct sequence *points)
{
    static struct byte_writer w;

    writer_reset(&w);
    for (size_t i = 0; i < points->count; i++) {
        if (points->kinds[i] != POINT_HISTOGRAM) {
            CHECK(points->histograms[i] == NULL);
            writer_printf(&w, "_");
        } else {
            histogram_write_script(&w, &points->histograms[i]->value);
        }
        writer_printf(&w, "%s", i + 1 < points->count ? " " : "");
    }
    writer_u8(&w, 0);
    CHECK(!w.failed);
    return (const char *)w.data;
}

static void histograms_are_read(void **state)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"m {{}}", "{{}}"},
        {"m {{schema:1 sum:-0.3 count:3.1 z_bucket:7.1 z_bucket_w:0.05 buckets:[5.1 10 7] "
         "offset:-3 "
         "n_buckets:[4.1 5] n_offset:-5 counter_reset_hint:gauge}}",
         "{{schema:1 count:3.1 sum:-0.3 z_bucket:7.1 z_bucket_w:0.05 counter_reset_hint:gauge "
         "offset:-3 buckets:[5.1 10 7] n_offset:-5 n_buckets:[4.1 5]}}"},
        {"m {{buckets:[0 1 0 2 0]}}", "{{offset:1 buckets:[1 0 2]}}"},
        {"m {{count:1}}x2 3 _", "{{count:1}} {{count:1}} {{count:1}} _ _"},
        {"m {{count:1 sum:2 buckets:[1 2]}}+{{count:2 sum:1 offset:1 buckets:[3]}}x2",
         "{{count:1 sum:2 buckets:[1 2]}} {{count:3 sum:3 buckets:[1 5]}} "
         "{{count:5 sum:4 buckets:[1 8]}}"},
        {"m {{count:5 buckets:[5]}}-{{count:2 buckets:[2]}}x1",
         "{{count:5 buckets:[5]}} {{count:3 buckets:[3]}}"},
        {"m {{buckets:[1 1 1 1]}}+{{schema:1 offset:1 buckets:[2 3]}}x1",
         "{{buckets:[1 1 1 1]}} {{buckets:[1 6 1 1]}}"},
        {"m {{schema:-53 custom_values:[5 10] buckets:[1 2 3]}}+"
         "{{schema:-53 custom_values:[5] buckets:[1 1]}}x1",
         "{{schema:-53 custom_values:[5 10] buckets:[1 2 3]}} "
         "{{schema:-53 custom_values:[5] buckets:[2 6]}}"},
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct series_line line;

        parse(cases[i].line, &arena, &line);
        assert_string_equal(written(&line.points), cases[i].want);
    }
    arena_done(&arena);
}

static void hints_are_known_to_be_given(void **state)
{
    struct series_line line;
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    parse("m {{}} {{counter_reset_hint:unknown}} {{}}+{{counter_reset_hint:reset}}x1 "
          "{{counter_reset_hint:reset}}+{{}}x1",
          &arena, &line);
    CHECK(line.points.count == 6);
    for (size_t i = 0; i < 6; i++)
        CHECK(line.points.histograms[i]->has_hint == (i >= 1 && i <= 3));
    arena_done(&arena);
}

static void nonsense_is_refused(void **state)
{
    static const char *const lines[] = {
        "m {{schema:9}}",
        "m {{schema:-53 custom_values:[1] buckets:[1 2 3]}}",
        "m {{schema:-53 custom_values:[2 1]}}",
        "m {{schema:1}}+{{schema:0}}x1",
        "m {{}}+{{schema:-53}}x1",
        "m {{}}+{{}}",
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct series_line line;
        struct errinfo ei = {0};

        CHECK_MSG(series_line_parse(str_from(lines[i]), &arena, &line, &ei) == ERR_INVALID, "%s",
                  lines[i]);
    }
    arena_done(&arena);
}

/* A line's points as the result of an instant query for a range vector, one a minute. */
static void result_of(const struct series_line *line, struct arena *arena, struct promql_result *r)
{
    const struct sequence *points = &line->points;
    int64_t *t_ms = ARENA_ARRAY(arena, points->count, int64_t);
    const struct histogram **h = ARENA_ARRAY(arena, points->count, const struct histogram *);
    struct result_series *row = ARENA_NEW(arena, struct result_series);
    struct column *column = ARENA_NEW(arena, struct column);
    size_t n = 0;

    CHECK(t_ms != NULL && h != NULL && row != NULL && column != NULL);
    for (size_t i = 0; i < points->count; i++) {
        if (points->kinds[i] == POINT_OMITTED)
            continue;
        CHECK(n == i); /* omitted ones stand at the end only: values are taken as they are */
        t_ms[n] = (int64_t)i * 60000;
        h[n++] = points->kinds[i] == POINT_HISTOGRAM ? &points->histograms[i]->value : NULL;
    }
    *row = (struct result_series){.labels = line->labels};
    *column = (struct column){.count = n, .t_ms = t_ms, .value = points->values, .histogram = h};
    *r = (struct promql_result){
        .type = VALUE_MATRIX, .series_count = 1, .series = row, .raw = column};
}

/* Whether a script that expects the first line is content with the second. */
static bool agree(const char *expected, const char *got, char report[1024])
{
    struct byte_writer script, w;
    struct promql_result result;
    struct series_line line;
    struct arena arena;
    struct script s;
    struct errinfo ei = {0};
    bool ok;

    arena_init(&arena, NULL);
    writer_init(&script);
    writer_init(&w);
    writer_printf(&script, "eval range from 0 to 2m step 1m m\n  %s\n", expected);
    CHECK_OK(script_parse("s", (struct str){(char *)script.data, script.size}, &s, &ei), &ei);
    parse(got, &arena, &line);
    result_of(&line, &arena, &result);
    ok = compare_result(&s.commands[0].u.eval, &result, &w);
    CHECK(!script.failed && !w.failed && w.size < 1024);
    if (w.size > 0) /* what agrees has written nothing: no data */
        memcpy(report, w.data, w.size);
    report[w.size] = '\0';
    script_done(&s);
    writer_done(&w);
    writer_done(&script);
    arena_done(&arena);
    return ok;
}

static void results_are_compared(void **state)
{
    static const struct {
        const char *expected, *got;
        bool agree;
    } cases[] = {
        {"m {{}}", "m {{}}", true},
        {"m {{count:1 sum:2}}", "m {{count:1.0000001 sum:2}}", true},
        {"m {{count:1 sum:2}}", "m {{count:1.0001 sum:2}}", false},
        {"m {{count:1 sum:2}}", "m {{count:1 sum:2.1}}", false},
        {"m {{sum:NaN}}", "m {{sum:NaN}}", true},
        {"m {{z_bucket:2}}", "m {{z_bucket:3}}", false},
        /* the zero threshold must be the same */
        {"m {{z_bucket_w:1}}", "m {{z_bucket_w:1.0000001}}", false},
        {"m {{schema:1}}", "m {{schema:2}}", false},
        {"m {{buckets:[1 0 2 0]}}", "m {{buckets:[1 0 2]}}", true},
        {"m {{buckets:[0 1 0 2]}}", "m {{offset:1 buckets:[1 0 2]}}", true},
        {"m {{buckets:[1 2]}}", "m {{offset:1 buckets:[1 2]}}", false},
        {"m {{buckets:[1 2]}}", "m {{buckets:[1 3]}}", false},
        {"m {{buckets:[1 2]}}", "m {{buckets:[1 2 3]}}", false},
        {"m {{n_buckets:[1 2]}}", "m {{buckets:[1 2]}}", false},
        {"m {{n_buckets:[1 2]}}", "m {{n_buckets:[1 2.5]}}", false},
        {"m {{schema:-53 custom_values:[1 2]}}", "m {{schema:-53 custom_values:[1 2]}}", true},
        {"m {{schema:-53 custom_values:[1 2]}}", "m {{schema:-53 custom_values:[1 3]}}", false},
        {"m {{schema:-53 custom_values:[1 2]}}", "m {{schema:-53 custom_values:[1]}}", false},
        /* a hint counts where one is expected */
        {"m {{}}", "m {{counter_reset_hint:gauge}}", true},
        {"m {{counter_reset_hint:gauge}}", "m {{}}", false},
        {"m {{counter_reset_hint:unknown}}", "m {{counter_reset_hint:reset}}", false},
        {"m {{counter_reset_hint:reset}}", "m {{counter_reset_hint:reset}}", true},
        /* the kind of value */
        {"m 0", "m {{}}", false},
        {"m {{}}", "m 0", false},
        {"m 1 {{sum:2}} 3", "m 1 {{sum:2}} 3", true},
        {"m 1 {{sum:2}} 3", "m {{sum:2}} 1 3", false},
        {"m {{}} {{}}", "m {{}}", false},
        {"m {{}}", "m {{}} {{}}", false},
        {"m {{}}", "n {{}}", false},
    };
    char report[1024];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_MSG(agree(cases[i].expected, cases[i].got, report) == cases[i].agree, "%s, %s: %s",
                  cases[i].expected, cases[i].got, report);
    CHECK(!agree("m {{sum:1}} 2", "m {{sum:1}} {{count:3}}", report));
    assert_string_equal(report, "  values differ\n  expected m {{sum:1}} 2\n"
                                "  got      m {{sum:1}}@0 {{count:3}}@60000\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histograms_are_read),
        cmocka_unit_test(hints_are_known_to_be_given),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(results_are_compared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
