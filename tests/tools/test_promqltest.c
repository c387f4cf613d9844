/*
 * The promqltest runner itself: the language's lines, errors with their places, and that an eval
 * fails or is skipped when it should.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/float_text.h"
#include "engine/maintain.h"
#include "engine/write.h"
#include "promql/functions.h"
#include "tests/lib/test_support.h"
#include "tools/promqltest_internal.h"

/* A sequence as text: floats as Go prints them, `_`, `h`, `stale`. */
static void sequence_format(const struct sequence *s, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < s->count && n < size; i++) {
        char number[FLOAT_TEXT_SIZE];
        const char *text = number;

        if (s->kinds[i] == POINT_OMITTED)
            text = "_";
        else if (s->kinds[i] == POINT_HISTOGRAM)
            text = "h";
        else if (double_bits(s->values[i]) == STALE_NAN_BITS)
            text = "stale";
        else
            (void)float_format_g(s->values[i], number);
        n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? " " : "", text);
    }
}

static void test_series_lines(void **state)
{
    static const struct {
        const char *line, *labels, *points;
    } cases[] = {
        {"m", "m", ""},
        {"m 1 -2.5 +3 .5 1e3 1E-2", "m", "1 -2.5 3 0.5 1000 0.01"},
        {"m  1\t 2  ", "m", "1 2"},
        {"m 1x2 5", "m", "1 1 1 5"},
        {"m 1+2x3", "m", "1 3 5 7"},
        {"m 1-1x2", "m", "1 0 -1"},
        {"m -1--1x1 -1+-1x1", "m", NULL},
        {"m 0x0", "m", "0"},
        {"m -5x2", "m", "-5 -5 -5"},
        {"m _ 1 _x3 2", "m", "_ 1 _ _ _ 2"},
        {"m 1 stale NaN Inf -Inf +Inf stalex1", "m", "1 stale NaN +Inf -Inf +Inf stale stale"},
        {"m Inf+1x1", "m", "+Inf +Inf"},
        {"m{b=\"2\", a='1',} 1", "m{a=\"1\", b=\"2\"}", "1"},
        {"m{a=\"} \\\" {\", b=`}`} 1", "m{a=\"} \\\" {\", b=\"}\"}", "1"},
        {"{} 1", "{}", "1"},
        {"{a=\"\"} 1", "{}", "1"},
        {"{\"x.y\", \"k k\"=\"v\"} 1", "{\"x.y\", \"k k\"=\"v\"}", "1"},
        {"sum{by=\"a\"} 1", "sum{by=\"a\"}", "1"},
        {"m {{}} 1 {{schema:1 sum:-0.3 count:3.1 z_bucket:7.1 z_bucket_w:0.05 buckets:[5.1 10 -7] "
         "offset:-3 n_buckets:[4.1 5] n_offset:-5 counter_reset_hint:gauge}}",
         "m", "h 1 h"},
        {"m {{ schema:0 custom_values:[1 +Inf] }}x2 {{sum:1}}+{{sum:2}}x1", "m", "h h h h h"},
        {"m {{count:1 counter_reset_hint:not_reset}}-{{count:1}}x0", "m", "h"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena arena;
        struct series_line line;
        struct errinfo ei = {0};
        enum err e;
        char points[512], *labels;

        arena_init(&arena, NULL);
        e = series_line_parse(str_from(cases[i].line), &arena, &line, &ei);
        CHECK_MSG((e == ERR_OK) == (cases[i].points != NULL), "%s: %s", cases[i].line, ei.message);
        if (e == ERR_OK) {
            sequence_format(&line.points, points, sizeof points);
            labels = labels_format(&line.labels, &arena);
            CHECK(labels != NULL);
            assert_string_equal(labels, cases[i].labels);
            assert_string_equal(points, cases[i].points);
            CHECK(line.points.has_histogram == (strchr(points, 'h') != NULL));
        }
        arena_done(&arena);
    }
}

static void test_wrong_series_lines(void **state)
{
    static const char *const lines[] = {
        "m 1a",
        "m 1x",
        "m 1+2",
        "m x3",
        "m 1x99999999",
        "m 1+x3",
        "m nope",
        "m {{",
        "m {{a:1}}",
        "m {{sum:1 sum:2}}",
        "m {{sum}}",
        "m {{sum:x}}",
        "m {{buckets:[]}}",
        "m {{buckets:[1,2]}}",
        "m {{schema:1.5}}",
        "m {{}}x",
        "m {{}}+{{}}",
        "m{a=~\"b\"} 1",
        "m{a=\"b\"}1",
        "m{a=\"b\", a=\"c\"} 1",
        "m{a} 1",
        "1",
        "m{a=\"b\" 1",
        "m _x",
        "m 1_0",
        "m {{counter_reset_hint:maybe}}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct arena arena;
        struct series_line line;
        struct errinfo ei = {0};

        arena_init(&arena, NULL);
        CHECK_MSG(series_line_parse(str_from(lines[i]), &arena, &line, &ei) == ERR_INVALID, "%s",
                  lines[i]);
        CHECK(ei.message[0] != '\0');
        arena_done(&arena);
    }
}

static void test_start_timestamps(void **state)
{
    static const struct {
        const char *text;
        size_t count; /* SIZE_MAX: refused */
    } cases[] = {
        {"", 0},          {"_ _x3 -1m", 5},     {"-30s-1mx2", 3},
        {"-0msx15", 16},  {"0+10sx1 +5s", 3},   {"-59999ms-1mx2", 3},
        {"5", SIZE_MAX},  {"-1m-1m", SIZE_MAX}, {"1mx", SIZE_MAX},
        {"_1", SIZE_MAX}, {"1m,", SIZE_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct start_offsets starts = {.count = SIZE_MAX};
        struct arena arena;
        enum err e;

        arena_init(&arena, NULL);
        e = start_timestamps_parse(str_from(cases[i].text), &arena, &starts, NULL);
        CHECK_MSG(starts.count == cases[i].count && (e == ERR_OK) == (starts.count != SIZE_MAX),
                  "%s: %zu", cases[i].text, starts.count);
        arena_done(&arena);
    }
}

static void test_script_errors(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"frobnicate", "s:1: invalid command \"frobnicate\""},
        {"\n# comment\nload", "s:3: empty duration string"},
        {"load 5x", "s:1: unknown unit \"x\" in duration \"5x\""},
        {"load 1m\n  m 1 2\n  m{ 1", NULL},
        {"load 1m\n  m@st -1m\n", "s:2: @st line has no following sample line"},
        {"load 1m\n  m@st -1m\n  m 1 2", "s:2: @st line has 1 values but sample line has 2"},
        {"load 1m\n  m@st -1m\n  n 1", "s:2: @st metric does not match the following sample line"},
        {"eval up", "s:1: expected `instant` or `range`"},
        {"eval instant at 5 up", "s:1: not a valid duration string: \"5\""},
        {"eval instant at 5m", "s:1: expression is missing"},
        {"eval range from 5m to 1m step 1m up", "s:1: the end is before the start"},
        {"eval range from 5m step 1m up", "s:1: expected `to`"},
        {"eval_never instant at 0 up", "s:1: invalid eval command"},
        {"eval instant at 0 up\n  expect something", "s:2: invalid expect line"},
        {"eval instant at 0 up\n  expect warn\n  expect no_warn",
         "s:3: an annotation is both expected and not"},
        {"eval instant at 0 up\n  expect fail\n  expect fail", "s:3: an eval can fail only once"},
        {"eval instant at 0 up\n  expect fail regex: (", NULL},
        {"eval instant at 0 up\n  expect string text", "s:2: a quoted string is expected"},
        {"eval instant at 0 up\n  m 1 2",
         "s:2: several values in an instant evaluation need `expect range vector`"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct script script;
        struct errinfo ei = {0};

        CHECK_MSG(script_parse("s", str_from(cases[i].text), &script, &ei) == ERR_INVALID, "%s",
                  cases[i].text);
        CHECK_MSG(cases[i].message == NULL || strcmp(ei.message, cases[i].message) == 0, "%s: %s",
                  cases[i].text, ei.message);
        script_done(&script);
    }
}

static const char data[] = "load 1m\n"
                           "  a{x=\"1\"} 1 2 3\n"
                           "  a{x=\"2\"} 10 NaN stale\n"
                           "  c_total 0 60 120\n"
                           "  g 1 2 3\n"
                           "  h{x=\"1\"} {{sum:1 count:1}} 1\n"
                           "  st_total@st _ -30s -50s\n"
                           "  st_total 1 2 3\n\n"
                           "load_with_nhcb 1m\n"
                           "  k_bucket{le=\"1\", x=\"1\"} 1\n"
                           "  k_bucket{le=\"+Inf\", x=\"1\"} 2\n"
                           "  k_sum{x=\"1\"} 7\n"
                           "  odd_bucket{le=\"none\"} 1\n";

/* Runs `data` and one eval; the eval's report is left in *report. */
static enum eval_outcome run(const char *eval, bool experimental, struct byte_writer *report)
{
    struct byte_writer text;
    struct script script;
    struct store store;
    struct errinfo ei = {0};
    enum eval_outcome outcome = EVAL_SKIPPED;
    size_t evals = 0;

    writer_init(&text);
    writer_printf(&text, "%s\n%s\n", data, eval);
    CHECK(!text.failed);
    CHECK_OK(store_open(&store, false, &ei), &ei);
    CHECK_OK(script_parse("s", (struct str){(char *)text.data, text.size}, &script, &ei), &ei);
    for (size_t i = 0; i < script.command_count; i++) {
        struct eval_context ctx = {.store = &store, .experimental = experimental};

        if (script.commands[i].kind == COMMAND_LOAD) {
            CHECK_OK(store_load(&store, &script.commands[i].u.load, &ei), &ei);
        } else {
            outcome = eval_run(&ctx, &script.commands[i].u.eval, report);
            evals++;
        }
    }
    CHECK(evals == 1);
    script_done(&script);
    store_close(&store);
    writer_done(&text);
    return outcome;
}

struct outcome_case {
    const char *eval;
    enum eval_outcome outcome;
    const char *report; /* a part of it */
};

static void check_outcomes(const struct outcome_case *cases, size_t count, bool experimental)
{
    for (size_t i = 0; i < count; i++) {
        struct byte_writer report;
        enum eval_outcome outcome;

        writer_init(&report);
        outcome = run(cases[i].eval, experimental, &report);
        writer_u8(&report, 0);
        CHECK(!report.failed);
        CHECK_MSG(outcome == cases[i].outcome && strstr((char *)report.data, cases[i].report),
                  "%s: outcome %d, %s", cases[i].eval, (int)outcome, (char *)report.data);
        writer_done(&report);
    }
}

static void test_failing_evals(void **state)
{
    static const struct outcome_case cases[] = {
        {"eval instant at 0 a\n a{x=\"1\"} 1\n a{x=\"2\"} 10", EVAL_PASSED, ""},
        {"eval instant at 0 a\n a{x=\"1\"} 1\n a{x=\"2\"} 10.00001", EVAL_PASSED, ""},
        {"eval instant at 0 a\n a{x=\"1\"} 1\n a{x=\"2\"} 10.0001", EVAL_FAILED,
         "values differ\n  expected a{x=\"2\"} 10.0001\n  got      a{x=\"2\"} 10@0"},
        {"eval instant at 0 a\n a{x=\"1\"} 1", EVAL_FAILED,
         "unexpected series\n  got      a{x=\"2\"} 10@0"},
        {"eval instant at 0 a\n a{x=\"1\"} 1\n a{x=\"2\"} 10\n b 1", EVAL_FAILED,
         "missing series\n  expected b 1"},
        {"eval instant at 0 a{x=\"1\"}\n {x=\"1\"} 1", EVAL_FAILED, "unexpected series"},
        {"eval instant at 1m a{x=\"2\"}\n a{x=\"2\"} NaN", EVAL_PASSED, ""},
        {"eval instant at 1m a{x=\"2\"}\n a{x=\"2\"} stale", EVAL_FAILED, "values differ"},
        {"eval instant at 1m a{x=\"2\"}\n a{x=\"2\"} 0", EVAL_FAILED, "values differ"},
        {"eval instant at 0 sort_desc(a)\n expect ordered\n a{x=\"2\"} 10\n a{x=\"1\"} 1",
         EVAL_PASSED, ""},
        {"eval instant at 0 sort(a)\n expect ordered\n a{x=\"2\"} 10\n a{x=\"1\"} 1", EVAL_FAILED,
         "another position in the order"},
        {"eval instant at 0 1 + 1\n 3", EVAL_FAILED, "expected 3\n  got      2"},
        {"eval instant at 0 vector(2)\n 2", EVAL_FAILED, "expected a scalar"},
        {"eval instant at 0 2\n {} 2", EVAL_FAILED, "expected no scalar"},
        {"eval instant at 0 \"x\"\n expect string \"y\"", EVAL_FAILED, "expected \"y\""},
        {"eval range from 0 to 2m step 1m a{x=\"1\"}\n a{x=\"1\"} 1 2 3", EVAL_PASSED, ""},
        {"eval range from 0 to 2m step 1m a{x=\"1\"}\n a{x=\"1\"} 1 2", EVAL_FAILED,
         "too many points"},
        {"eval range from 0 to 2m step 1m a{x=\"1\"}\n a{x=\"1\"} 1 2 4", EVAL_FAILED,
         "values differ"},
        {"eval range from 0 to 2m step 1m a{x=\"2\"}\n a{x=\"2\"} 10 NaN 3", EVAL_FAILED,
         "too few points"},
        {"eval range from 0 to 2m step 1m a{x=\"2\"}\n a{x=\"2\"} _ 10 NaN", EVAL_FAILED,
         "timestamps differ"},
        {"eval range from 0 to 1m step 1m a{x=\"1\"}\n a{x=\"1\"} 1 2 3", EVAL_FAILED,
         "more points expected than the range has"},
        {"eval instant at 2m a[3m]\n expect range vector from 0 to 2m step 1m\n"
         " a{x=\"1\"} 1 2 3\n a{x=\"2\"} 10 NaN",
         EVAL_PASSED, ""},
        {"eval instant at 2m a[3m]\n expect range vector from 1m to 2m step 1m\n"
         " a{x=\"1\"} 1 2\n a{x=\"2\"} NaN",
         EVAL_FAILED, "timestamps differ"},
    };

    (void)state;
    check_outcomes(cases, sizeof cases / sizeof cases[0], false);
}

static void test_errors_and_annotations(void **state)
{
    static const struct outcome_case cases[] = {
        {"eval instant at 0 1 +", EVAL_FAILED, "got      error: 1:4: parse error"},
        {"eval instant at 0 1 +\n expect fail", EVAL_PASSED, ""},
        {"eval instant at 0 1\n expect fail", EVAL_FAILED, "expected an error, got a result"},
        {"eval instant at 0 1 +\n expect fail msg: 1:4: parse error: unexpected end of input",
         EVAL_PASSED, ""},
        {"eval instant at 0 1 +\n expect fail msg: unexpected end", EVAL_FAILED,
         "expected error unexpected end\n  got      1:4: parse error: unexpected end of input"},
        {"eval instant at 0 1 +\n expect fail regex: end of .*put$", EVAL_PASSED, ""},
        {"eval instant at 0 1 +\n expect fail regex: ^end", EVAL_FAILED, "expected error ^end"},
        {"eval_fail instant at 0 1 +\n expected_fail_message nope", EVAL_FAILED,
         "expected error nope"},
        {"eval instant at 2m rate(a{x=\"1\"}[3m])\n expect info\n {x=\"1\"} 0.016666666666666666",
         EVAL_PASSED, ""},
        {"eval instant at 2m rate(a{x=\"1\"}[3m])\n expect no_info\n {x=\"1\"} 0.0166666666",
         EVAL_FAILED, "no info annotation expected\n  got      PromQL info"},
        {"eval instant at 2m rate(a{x=\"1\"}[3m])\n expect info msg: x\n {x=\"1\"} 0.0166666666",
         EVAL_FAILED, "expected info annotation x\n  got      PromQL info"},
        {"eval instant at 2m rate(a{x=\"1\"}[3m])\n expect warn\n {x=\"1\"} 0.0166666666",
         EVAL_FAILED, "expected warn annotation"},
        {"eval instant at 2m rate(c_total[3m])\n expect info\n {} 1", EVAL_FAILED,
         "expected info annotation"},
        /* one of two infos is not expected */
        {"eval instant at 2m rate(a{x=\"1\"}[3m]) + on() rate(g[3m])\n"
         " expect info regex: \\(1:6\\)\n {} 0.0333333333",
         EVAL_FAILED, "unexpected annotation"},
    };

    (void)state;
    check_outcomes(cases, sizeof cases / sizeof cases[0], false);
}

static void test_skips(void **state)
{
    static const struct outcome_case cases[] = {
        {"eval instant at 2m mad_over_time(a{x=\"1\"}[3m])\n {x=\"1\"} 1", EVAL_SKIPPED,
         "needs --experimental"},
        {"eval instant at 0 a + fill(0) a", EVAL_SKIPPED, "needs --experimental"},
        {"eval instant at 0 histogram_count(a smoothed)", EVAL_SKIPPED, "needs --experimental"},
    };
    static const struct outcome_case with_flag[] = {
        {"eval instant at 2m mad_over_time(a{x=\"1\"}[3m])\n {x=\"1\"} 1", EVAL_PASSED, ""},
    };

    (void)state;
    check_outcomes(cases, sizeof cases / sizeof cases[0], false);
    check_outcomes(with_flag, 1, true);
}

static void test_histograms(void **state)
{
    static const struct outcome_case cases[] = {
        {"eval instant at 0 h\n h{x=\"1\"} {{sum:1 count:1}}", EVAL_PASSED, ""},
        {"eval instant at 0 h\n h{x=\"1\"} {{sum:1 count:2}}", EVAL_FAILED, "values differ"},
        {"eval instant at 0 h\n h{x=\"1\"} 1", EVAL_FAILED, "values differ"},
        {"eval instant at 1m h\n h{x=\"1\"} 1", EVAL_PASSED, ""},
        {"eval range from 0 to 1m step 1m h\n h{x=\"1\"} {{sum:1 count:1}} 1", EVAL_PASSED, ""},
        {"eval instant at 1m h[2m]\n expect range vector from 0 to 1m step 1m\n"
         " h{x=\"1\"} {{sum:1 count:1}} 1",
         EVAL_PASSED, ""},
        {"eval instant at 0 a{x=\"1\"}\n a{x=\"1\"} {{count:1}}", EVAL_FAILED, "values differ"},
        /* the conversion goes by the base name; the classic series are there too */
        {"eval instant at 0 k\n k{x=\"1\"} {{schema:-53 sum:7 count:2 custom_values:[1] "
         "buckets:[1 1]}}",
         EVAL_PASSED, ""},
        {"eval instant at 0 k{le=\"1\"}", EVAL_PASSED, ""},
        {"eval instant at 0 histogram_quantile(0.25, k_bucket)\n {x=\"1\"} 0.5", EVAL_PASSED, ""},
        {"eval instant at 0 odd", EVAL_PASSED, ""},
    };

    (void)state;
    check_outcomes(cases, sizeof cases / sizeof cases[0], false);
}

static void test_stored_start_timestamps(void **state)
{
    static const struct outcome_case cases[] = {
        /* counted anew since the sample before */
        {"eval instant at 2m resets(st_total[5m])\n {} 2", EVAL_PASSED, ""},
        {"eval instant at 2m start_timestamp(st_total)\n {} 70", EVAL_PASSED, ""},
        {"eval instant at 1m st_total\n st_total 2", EVAL_PASSED, ""},
        {"eval instant at 1m sum_over_time(st_total[5m])\n {} 3", EVAL_PASSED, ""},
        {"eval instant at 0 start_timestamp(-a)", EVAL_PASSED, ""},
        {"eval instant at 0 start_timestamp(a{x=\"1\"})\n {x=\"1\"} 0", EVAL_PASSED, ""},
    };

    (void)state;
    check_outcomes(cases, sizeof cases / sizeof cases[0], true);
}

static void store_with(struct store *store, bool is_aged, const char *text)
{
    struct script script;
    struct errinfo ei = {0};

    CHECK_OK(store_open(store, is_aged, &ei), &ei);
    CHECK_OK(script_parse("s", str_from(text), &script, &ei), &ei);
    CHECK_OK(store_load(store, &script.commands[0].u.load, &ei), &ei);
    script_done(&script);
}

static void test_aged_store(void **state)
{
    static const char text[] = "load 1m\n  a{x=\"1\"} 0+1x300\n  a{x=\"2\"} 1x300\n"
                               "  a{x=\"3\"} 1x2 _x298 4\n  a{x=\"4\"} 0-1x9\n  b 5x300\n";
    struct engine_file_stats stats;
    struct store store;

    (void)state;
    store_with(&store, true, text);
    engine_file_stats_get(store.engine, &stats);
    CHECK_MSG(stats.part_count > 0 && stats.sealed_count > 0 && stats.late_count == 0,
              "%llu parts, %llu sealed files", (unsigned long long)stats.part_count,
              (unsigned long long)stats.sealed_count);
    store_close(&store);
}

/* An eval on a store and its twin. */
static enum eval_outcome run_beside(struct store *store, struct store *twin, const char *eval,
                                    struct byte_writer *report)
{
    struct eval_context ctx = {.store = store, .twin = twin};
    struct script script;
    struct errinfo ei = {0};
    enum eval_outcome outcome;

    CHECK_OK(script_parse("s", str_from(eval), &script, &ei), &ei);
    outcome = eval_run(&ctx, &script.commands[0].u.eval, report);
    writer_u8(report, 0);
    CHECK(!report->failed);
    script_done(&script);
    return outcome;
}

/* Answers that a script takes for the same are not when they come from a twin. */
static void test_twins(void **state)
{
    static const struct {
        const char *twin, *eval, *report; /* NULL: passes */
    } cases[] = {
        {"load 1m\n  a{x=\"1\"} 1 2\n  a{x=\"2\"} 3 4",
         "eval instant at 0 a\n  a{x=\"1\"} 1\n  a{x=\"2\"} 3", NULL},
        {"load 1m\n  a{x=\"1\"} 1.00000001 2\n  a{x=\"2\"} 3 4",
         "eval instant at 0 a\n  a{x=\"1\"} 1\n  a{x=\"2\"} 3", "more threads: a value"},
        {"load 1m\n  a{x=\"1\"} 1 2.00000001\n  a{x=\"2\"} 3 4",
         "eval instant at 0 a\n  a{x=\"1\"} 1\n  a{x=\"2\"} 3", "more threads: a value"},
        {"load 1m\n  a{x=\"1\"} 1 2\n  a{x=\"2\"} 3 4.00000001",
         "eval range from 0 to 1m step 1m a\n  a{x=\"1\"} 1 2\n  a{x=\"2\"} 3 4",
         "more threads: a value"},
        {"load 1m\n  a{x=\"1\"} 1\n  a{x=\"2\"} 3 4",
         "eval instant at 1m a[2m]\n  expect range vector from 0 to 1m step 1m\n"
         "  a{x=\"1\"} 1 2\n  a{x=\"2\"} 3 4",
         "more threads: a value"},
        {"load 1m\n  a{x=\"1\"} 1 2", "eval instant at 0 a{x=\"1\"}\n  a{x=\"1\"} 1", NULL},
        {"load 1m\n  a{x=\"1\"} 1 2", "eval instant at 0 a\n  a{x=\"1\"} 1\n  a{x=\"2\"} 3",
         "more threads: the shape"},
        {"load 1m\n  a{x=\"1\"} 1\n  a{x=\"3\"} 3",
         "eval instant at 0 a\n  a{x=\"1\"} 1\n  a{x=\"2\"} 3", "more threads: a series"},
        {"load 1m\n  a{x=\"1\"} 1\n  a{x=\"2\"} 3\n  a{y=\"1\",x=\"1\"} 3",
         "eval instant at 0 sum by(x)(a) + on(x) a\n  {x=\"1\"} 2\n  {x=\"2\"} 6",
         "more threads: found duplicate series"},
    };
    struct store store;

    (void)state;
    store_with(&store, false, "load 1m\n  a{x=\"1\"} 1 2\n  a{x=\"2\"} 3 4");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_writer report;
        struct store twin;
        enum eval_outcome outcome;

        writer_init(&report);
        store_with(&twin, i % 2 == 0, cases[i].twin);
        outcome = run_beside(&store, &twin, cases[i].eval, &report);
        CHECK_MSG(
            (outcome == EVAL_PASSED) == (cases[i].report == NULL) &&
                (cases[i].report == NULL || strstr((char *)report.data, cases[i].report) != NULL),
            "%zu: outcome %d, %s", i, (int)outcome, (char *)report.data);
        store_close(&twin);
        writer_done(&report);
    }
    store_close(&store);
}

/* A sample that the engine refuses is the script's fault. */
static void test_refused_load(void **state)
{
    struct script script;
    struct store store;
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(store_open(&store, false, &ei), &ei);
    CHECK_OK(script_parse("s", STR_LITERAL("load 1m\n  a 1 2\n\nload 1m\n  a 1 3\n"), &script, &ei),
             &ei);
    CHECK_OK(store_load(&store, &script.commands[0].u.load, &ei), &ei);
    CHECK(store_load(&store, &script.commands[1].u.load, &ei) == ERR_INVALID);
    CHECK_MSG(strstr(ei.message, "1 samples refused") != NULL, "%s", ei.message);
    script_done(&script);
    store_close(&store);
}

/* Appends a file to *out. */
static void read_script(const char *name, struct byte_writer *out)
{
    char path[1024];
    FILE *f;
    size_t n;

    (void)snprintf(path, sizeof path, "%s/%s", SCRIPT_DIR, name);
    f = fopen(path, "re");
    CHECK_MSG(f != NULL, "%s", path);
    do {
        uint8_t *room = writer_reserve(out, 4096);

        CHECK(room != NULL);
        n = fread(room, 1, 4096, f);
        out->size += n;
    } while (n > 0);
    (void)fclose(f); /* only read from */
}

/* The project's own scripts leave out nothing that can be evaluated. */
static void test_scripts_cover_everything(void **state)
{
    static const char *const files[] = {
        "aggregations.test",      "experimental.test", "functions.test", "histograms_classic.test",
        "histograms_native.test", "ranges.test",       "staleness.test", "start_timestamps.test"};
    struct byte_writer all;
    char call[64];

    (void)state;
    writer_init(&all);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        read_script(files[i], &all);
    writer_u8(&all, 0);
    CHECK(!all.failed);
    for (unsigned i = 0; i < FUNCTION_COUNT; i++) {
        const struct promql_function *f = promql_function_get((enum function_id)i);

        (void)snprintf(call, sizeof call, " %s(", f->name);
        CHECK_MSG(!f->built || strstr((char *)all.data, call) != NULL, "no script calls %s",
                  f->name);
    }
    for (int op = AGG_SUM; op <= AGG_LIMIT_RATIO; op++) {
        (void)snprintf(call, sizeof call, " %s", aggregate_op_name((enum aggregate_op)op));
        CHECK_MSG(strstr((char *)all.data, call) != NULL, "no script aggregates by%s", call);
    }
    writer_done(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_series_lines),
        cmocka_unit_test(test_wrong_series_lines),
        cmocka_unit_test(test_start_timestamps),
        cmocka_unit_test(test_script_errors),
        cmocka_unit_test(test_failing_evals),
        cmocka_unit_test(test_errors_and_annotations),
        cmocka_unit_test(test_skips),
        cmocka_unit_test(test_histograms),
        cmocka_unit_test(test_stored_start_timestamps),
        cmocka_unit_test(test_aged_store),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_refused_load),
        cmocka_unit_test(test_scripts_cover_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
