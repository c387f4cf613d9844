/*
 * Native histograms in queries, over a store in memory. Series and expected histograms are written
 * in the test language's notation, points a minute apart.
 */
#include <stdio.h>
#include <string.h>

#include "engine/write.h"
#include "promql/eval/eval_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"
#include "tools/promqltest_internal.h"

enum { STEP_MS = 60000 };

static void load(struct engine *e, const char *text)
{
    struct errinfo ei = {0};
    struct series_line line;
    struct arena arena;
    const char *labels = "";
    size_t series;

    arena_init(&arena, NULL);
    CHECK_OK(series_line_parse(str_from(text), &arena, &line, &ei), &ei);
    for (size_t i = 0; i < line.labels.count; i++)
        labels =
            arena_printf(&arena, "%s%s%.*s=%.*s", labels, i > 0 ? "," : "",
                         STR_ARGS(line.labels.items[i].name), STR_ARGS(line.labels.items[i].value));
    series = fake_engine_add(e, labels);
    for (size_t i = 0; i < line.points.count; i++) {
        if (line.points.kinds[i] == POINT_FLOAT)
            fake_engine_sample(e, series, (int64_t)i * STEP_MS, line.points.values[i]);
        else if (line.points.kinds[i] == POINT_HISTOGRAM)
            fake_engine_histogram(e, series, (int64_t)i * STEP_MS,
                                  &line.points.histograms[i]->value);
    }
    arena_done(&arena);
}

static void check_text(struct query_run *r, const char *want)
{
    CHECK_MSG(strcmp(query_text(r), want) == 0, "%.*s gave\n%swanted\n%s", STR_ARGS(r->query.text),
              query_text(r), want);
}

static void check_instant(struct engine *e, const char *query, int minute, const char *want)
{
    struct query_run r;

    query_init(&r, e, query);
    CHECK_MSG(query_instant(&r, (int64_t)minute * STEP_MS) == ERR_OK, "%s: %s", query,
              r.ei.message);
    check_text(&r, want);
    query_done(&r);
}

/* From minute 0 to `minutes`, minute by minute. */
static void check_range(struct engine *e, const char *query, int minutes, const char *want)
{
    struct query_run r;

    query_init(&r, e, query);
    CHECK_MSG(query_range(&r, 0, (int64_t)minutes * STEP_MS, STEP_MS) == ERR_OK, "%s: %s", query,
              r.ei.message);
    check_text(&r, want);
    query_done(&r);
}

static void fake_engine_histogram_stale(struct engine *e, size_t series, int minute)
{
    struct histogram h = {.sum = double_from_bits(STALE_NAN_BITS)};

    fake_engine_histogram(e, series, (int64_t)minute * STEP_MS, &h);
}

#define FIRST "{{schema:1 count:3 sum:4.5 buckets:[1 2]}}"
#define SECOND "{{schema:1 count:5 sum:6 buckets:[2 3]}}"

static void selectors_give_histograms(void **state)
{
    struct engine *e = fake_engine_new();

    (void)state;
    load(e, "h " FIRST " _ " SECOND " 7");
    fake_engine_histogram_stale(e, 0, 4);
    check_range(e, "h", 5, "{__name__=\"h\"} " FIRST " " FIRST " " SECOND " 7 _ _\n");
    check_range(e, "h offset 1m", 2, "{__name__=\"h\"} _ " FIRST " " FIRST "\n");
    check_range(e, "h @ 120", 1, "{__name__=\"h\"} " SECOND " " SECOND "\n");
    check_instant(e, "h", 2, "{__name__=\"h\"} " SECOND "\n");
    check_instant(e, "h", 4, "");
    check_instant(e, "h[5m]", 4, "{__name__=\"h\"} " FIRST "@0 " SECOND "@120000 7@180000\n");
    check_instant(e, "h[5m:1m]", 3,
                  "{__name__=\"h\"} " FIRST "@0 " FIRST "@60000 " SECOND "@120000 7@180000\n");
    check_range(e, "timestamp(h)", 2, "{} 0 0 120\n");
    fake_engine_free(e);
}

/* Also the annotations, one a line. */
static void check_noted(struct engine *e, const char *query, int minute, const char *want)
{
    const char *text;
    struct query_run r;

    query_init(&r, e, query);
    CHECK_MSG(query_instant(&r, (int64_t)minute * STEP_MS) == ERR_OK, "%s: %s", query,
              r.ei.message);
    text = query_text(&r);
    for (size_t i = 0; i < r.result.annotation_count; i++)
        text = arena_printf(&r.arena, "%s%s\n", text, r.result.annotations[i].text);
    CHECK_MSG(strcmp(text, want) == 0, "%s gave\n%swanted\n%s", query, text, want);
    query_done(&r);
}

/* Floats and histograms, side by side and one after the other. */
static struct engine *mixed_engine(void)
{
    struct engine *e = fake_engine_new();

    load(e, "h{x=\"1\"} {{count:4 sum:10 buckets:[1 3]}}x10");
    load(e, "h{x=\"2\"} {{count:2 sum:8 buckets:[1 0 1]}}x10");
    load(e, "h{x=\"3\"} 1 2 3 {{count:1 sum:1 buckets:[1]}}x7");
    load(e, "c{x=\"1\"} {{schema:-53 count:3 sum:5 custom_values:[5 10] buckets:[1 2]}}x10");
    load(e, "f 5x10");
    return e;
}

static void functions_of_one_value(void **state)
{
    struct engine *e = mixed_engine();

    (void)state;
    check_range(e, "histogram_count(h)", 3,
                "{x=\"1\"} 4 4 4 4\n{x=\"2\"} 2 2 2 2\n{x=\"3\"} _ _ _ 1\n");
    check_instant(e, "histogram_sum(h) + 1", 1, "{x=\"1\"} 11\n{x=\"2\"} 9\n");
    check_instant(e, "histogram_avg(h{x='1'})", 1, "{x=\"1\"} 2.5\n");
    check_instant(e, "histogram_stdvar(h{x='1'})", 1, "{x=\"1\"} 1.687815665\n");
    check_instant(e, "histogram_stddev(h{x='1'})", 1, "{x=\"1\"} 1.299159599\n");
    check_instant(e, "histogram_count(f)", 1, "");
    check_range(e, "abs(h)", 3, "{x=\"3\"} 1 2 3 _\n");
    check_range(e, "clamp_max(h, 2)", 3, "{x=\"3\"} 1 2 2 _\n");
    check_range(e, "timestamp(h{x='3'})", 3, "{x=\"3\"} 0 60 120 180\n");
    check_range(e, "timestamp(h{x='3'} * 2)", 3, "{x=\"3\"} 0 60 120 180\n");
    check_instant(e, "scalar(h)", 1, "{} 2\n");
    check_range(e, "-h{x='3'}", 3,
                "{x=\"3\"} -1 -2 -3 {{count:-1 sum:-1 counter_reset_hint:gauge buckets:[-1]}}\n");
    check_instant(e, "label_replace(h{x='1'}, 'y', '$1', 'x', '(.*)')", 1,
                  "{__name__=\"h\", x=\"1\", y=\"1\"} {{count:4 sum:10 buckets:[1 3]}}\n");
    check_instant(e, "sort(h)", 1, "{__name__=\"h\", x=\"3\"} 2\n");
    check_instant(e, "absent(h{x='1'})", 1, "");
    fake_engine_free(e);
}

static void scalars_meet_histograms(void **state)
{
    struct engine *e = mixed_engine();

    (void)state;
    check_instant(e, "h{x='1'} * 2", 1, "{x=\"1\"} {{count:8 sum:20 buckets:[2 6]}}\n");
    check_instant(e, "2 * h{x='2'} / 4", 1, "{x=\"2\"} {{count:1 sum:4 buckets:[0.5 0 0.5]}}\n");
    check_instant(e, "c </ 5", 1,
                  "{__name__=\"c\", x=\"1\"} {{schema:-53 count:1 sum:2.5 custom_values:[5 10] "
                  "buckets:[1]}}\n");
    check_instant(e, "c >/ 5", 1,
                  "{__name__=\"c\", x=\"1\"} {{schema:-53 count:2 sum:15 custom_values:[5 10] "
                  "offset:1 buckets:[2]}}\n");
    check_noted(e, "h + 1", 1,
                "{x=\"3\"} 3\nPromQL info: incompatible sample types encountered for binary "
                "operator \"+\": histogram + float (1:1)\n");
    check_noted(e, "2 / h{x='1'}", 1,
                "PromQL info: incompatible sample types encountered for binary operator \"/\": "
                "float / histogram (1:1)\n");
    check_noted(e, "f </ 1", 1,
                "PromQL info: incompatible sample types encountered for binary operator \"</\": "
                "float </ float (1:1)\n");
    check_noted(e, "h{x='1'} > bool 1", 1,
                "PromQL info: incompatible sample types encountered for binary operator \">\": "
                "histogram > float (1:1)\n");
    fake_engine_free(e);
}

static void aggregations(void **state)
{
    struct engine *e = mixed_engine();

    (void)state;
    check_instant(e, "sum(h{x!='3'})", 1, "{} {{count:6 sum:18 buckets:[2 3 1]}}\n");
    check_instant(e, "avg(h{x!='3'})", 1, "{} {{count:3 sum:9 buckets:[1 1.5 0.5]}}\n");
    check_range(e, "sum(h)", 3, "{} _ _ _ {{count:7 sum:19 buckets:[3 3 1]}}\n");
    check_instant(e, "count(h)", 1, "{} 3\n");
    check_instant(e, "group(c)", 1, "{} 1\n");
    check_noted(e, "max(h)", 1, "{} 2\nPromQL info: ignored histogram in max aggregation (1:5)\n");
    check_noted(e, "stddev(c)", 1, "PromQL info: ignored histogram in stddev aggregation (1:8)\n");
    check_noted(e, "quantile(0.5, h)", 1,
                "{} 2\nPromQL info: ignored histogram in quantile aggregation (1:15)\n");
    check_noted(e, "topk(2, h)", 1,
                "{__name__=\"h\", x=\"3\"} 2\n"
                "PromQL info: ignored histogram in topk aggregation (1:1)\n");
    check_instant(e, "limitk(1, h)", 1,
                  "{__name__=\"h\", x=\"1\"} {{count:4 sum:10 buckets:[1 3]}}\n");
    check_instant(e, "count_values('v', h{x='1'})", 1,
                  "{v=\"{count:4, sum:10, (0.5,1]:1, (1,2]:3}\"} 1\n");
    check_noted(e, "sum(h)", 1,
                "PromQL warning: encountered a mix of histograms and floats for aggregation "
                "(1:5)\n");
    check_noted(e, "sum({x='1'})", 1,
                "PromQL warning: vector contains a mix of histograms with exponential and custom "
                "buckets schemas for metric name \"h\" (1:5)\n");
    fake_engine_free(e);
}

#define RATE_OF(count, sum, buckets)                                                               \
    "{{count:" count " sum:" sum " counter_reset_hint:gauge buckets:[" buckets "]}}"

static void rates(void **state)
{
    struct engine *e = fake_engine_new();

    (void)state;
    load(e, "h {{count:4 sum:10 buckets:[1 3]}}+{{count:2 sum:4 buckets:[2]}}x5");
    load(e, "r {{count:4 buckets:[4]}} {{count:6 buckets:[6]}} {{count:1 buckets:[1]}} "
            "{{count:3 buckets:[3]}}");
    load(e, "g {{counter_reset_hint:gauge count:4 buckets:[4]}} "
            "{{counter_reset_hint:gauge count:2 buckets:[2]}}");
    load(e, "m 1 2 {{count:1 buckets:[1]}} {{count:2 buckets:[2]}} 3");
    load(e, "b {{count:1 buckets:[1]}} {{schema:-53 count:1 custom_values:[1] buckets:[1]}}");
    check_instant(e, "increase(h[2m])", 4, "{} " RATE_OF("4", "8", "4") "\n");
    check_instant(
        e, "rate(h[2m])", 4,
        "{} " RATE_OF("0.03333333333333333", "0.06666666666666667", "0.03333333333333333") "\n");
    check_instant(e, "delta(g[2m])", 1, "{} {{count:-4 counter_reset_hint:gauge buckets:[-4]}}\n");
    check_instant(e, "increase(r[3m])", 3,
                  "{} {{count:4.5 counter_reset_hint:gauge "
                  "buckets:[4.5]}}\n");
    check_instant(e, "irate(r[2m])", 2,
                  "{} {{count:0.016666666666666666 counter_reset_hint:gauge "
                  "buckets:[0.016666666666666666]}}\n");
    check_instant(e, "resets(r[10m])", 3, "{} 1\n");
    check_instant(e, "resets(m[10m])", 4, "{} 2\n");
    check_instant(e, "changes(m[10m])", 4, "{} 4\n");
    check_range(e, "changes(m[2m])", 4, "{} 0 1 1 1 1\n");
    check_noted(e, "rate(m[3m])", 2,
                "PromQL warning: encountered a mix of histograms and floats for metric name "
                "\"m\" (1:6)\n");
    check_noted(e, "rate(g[2m])", 1,
                "{} {{count:0.03333333333333333 counter_reset_hint:gauge "
                "buckets:[0.03333333333333333]}}\nPromQL warning: this native histogram metric is "
                "not a counter: \"g\" (1:6)\n");
    check_noted(e, "delta(r[2m])", 1,
                "{} {{count:4 counter_reset_hint:gauge buckets:[4]}}\nPromQL warning: this native "
                "histogram metric is not a gauge: \"r\" (1:7)\n");
    check_noted(e, "delta(b[2m])", 1,
                "PromQL warning: vector contains a mix of histograms with exponential and custom "
                "buckets schemas for metric name \"b\" (1:7)\n");
    fake_engine_free(e);
}

static void aggregations_over_time(void **state)
{
    struct engine *e = fake_engine_new();

    (void)state;
    load(e, "h {{count:4 sum:10 buckets:[1 3]}}+{{count:2 sum:4 buckets:[2]}}x5");
    load(e, "m 1 2 {{count:1 buckets:[1]}} {{count:2 buckets:[2]}} 3");
    check_instant(e, "sum_over_time(h[2m])", 1, "{} {{count:10 sum:24 buckets:[4 6]}}\n");
    check_instant(e, "avg_over_time(h[2m])", 1, "{} {{count:5 sum:12 buckets:[2 3]}}\n");
    check_instant(e, "last_over_time(h[2m])", 0,
                  "{__name__=\"h\"} {{count:4 sum:10 buckets:[1 3]}}\n");
    check_range(e, "first_over_time(m[2m])", 4,
                "{__name__=\"m\"} 1 1 2 {{count:1 buckets:[1]}} {{count:2 buckets:[2]}}\n");
    check_range(e, "count_over_time(m[3m])", 4, "{} 1 2 3 3 3\n");
    check_range(e, "max_over_time(m[2m])", 4, "{} 1 2 2 _ 3\n");
    check_range(e, "ts_of_last_over_time(m[1m])", 4, "{} 0 60 120 180 240\n");
    check_range(e, "present_over_time(m[1m])", 4, "{} 1 1 1 1 1\n");
    check_instant(e, "absent_over_time(h[1m])", 1, "");
    check_noted(e, "max_over_time(m[2m])", 2,
                "{} 2\nPromQL info: ignored histograms in a range containing both floats and "
                "histograms for metric name \"m\" (1:15)\n");
    check_noted(e, "sum_over_time(m[2m])", 2,
                "PromQL warning: encountered a mix of histograms and floats for metric name "
                "\"m\" (1:15)\n");
    check_instant(e, "sum_over_time(histogram_count(h)[2m:1m])", 1, "{} 10\n");
    check_instant(e, "sum_over_time(sum(h)[2m:1m])", 1, "{} {{count:10 sum:24 buckets:[4 6]}}\n");
    fake_engine_free(e);
}

static void vectors_meet(void **state)
{
    struct engine *e = mixed_engine();

    (void)state;
    load(e, "e{x=\"1\"} {{count:4 sum:10 buckets:[1 3]}}x10");
    load(e, "d{x=\"1\"} {{schema:-53 count:3 sum:5 custom_values:[5] buckets:[1 2]}}x10");
    load(e, "z{x=\"1\"} 2x10");
    load(e, "late{x=\"1\"} {{count:1 sum:1 buckets:[1]}} {{count:2 sum:1 buckets:[2]}} 7");
    check_instant(e, "h + e", 1, "{x=\"1\"} {{count:8 sum:20 buckets:[2 6]}}\n");
    check_instant(e, "h - on (x) e", 1, "{x=\"1\"} {{counter_reset_hint:gauge}}\n");
    check_instant(e, "h * z", 1, "{x=\"1\"} {{count:8 sum:20 buckets:[2 6]}}\n");
    check_instant(e, "h / on (x) group_left z", 1,
                  "{x=\"1\"} {{count:2 sum:5 buckets:[0.5 1.5]}}\n");
    check_instant(e, "h == e", 1, "{__name__=\"h\", x=\"1\"} {{count:4 sum:10 buckets:[1 3]}}\n");
    check_instant(e, "h != e", 1, "");
    check_instant(e, "h == bool on (x) e", 1, "{x=\"1\"} 1\n");
    check_instant(e, "h != bool e", 1, "{x=\"1\"} 0\n");
    check_instant(e, "h </ z", 1, "{__name__=\"h\", x=\"1\"} {{count:4 sum:10 buckets:[1 3]}}\n");
    check_range(e, "late * z", 2,
                "{x=\"1\"} {{count:2 sum:2 buckets:[2]}} {{count:4 sum:2 buckets:[4]}} 14\n");
    check_range(e, "late + late", 2,
                "{x=\"1\"} {{count:2 sum:2 buckets:[2]}} {{count:4 sum:2 buckets:[4]}} 14\n");
    check_instant(e, "h and e", 1, "{__name__=\"h\", x=\"1\"} {{count:4 sum:10 buckets:[1 3]}}\n");
    check_instant(e, "z or on () h", 1, "{__name__=\"z\", x=\"1\"} 2\n");
    check_instant(e, "e unless z", 1, "");
    check_instant(e, "e or h{x='2'}", 1,
                  "{__name__=\"e\", x=\"1\"} {{count:4 sum:10 buckets:[1 3]}}\n"
                  "{__name__=\"h\", x=\"2\"} {{count:2 sum:8 buckets:[1 0 1]}}\n");
    check_noted(e, "h + z", 1,
                "PromQL info: incompatible sample types encountered for binary operator \"+\": "
                "histogram + float (1:1)\n");
    check_noted(e, "e + c", 1,
                "PromQL warning: incompatible bucket layout encountered for binary operator + "
                "(1:1)\n");
    check_noted(e, "d + c", 1,
                "{x=\"1\"} {{schema:-53 count:6 sum:10 custom_values:[5] buckets:[2 4]}}\n"
                "PromQL info: mismatched custom buckets were reconciled during addition (1:1)\n");
    check_noted(e, "e ^ h", 1,
                "PromQL info: incompatible sample types encountered for binary operator \"^\": "
                "histogram ^ histogram (1:1)\n");
    /* What has no answer counts as not matched, so that a fill value steps in. */
    check_noted(e, "h{x='1'} + fill (3) z", 1,
                "{x=\"1\"} 5\nPromQL info: incompatible sample types encountered for binary "
                "operator \"+\": histogram + float (1:1)\n");
    fake_engine_free(e);
}

static void quantiles(void **state)
{
    struct engine *e = mixed_engine();

    (void)state;
    load(e, "b{x=\"1\"} {{count:4 sum:10 buckets:[1 3]}} _");
    load(e, "b{x=\"1\",le=\"1\"} _ 1x8");
    load(e, "b{x=\"1\",le=\"+Inf\"} 2x9");
    load(e, "odd{x=\"1\"} {{count:4 sum:NaN buckets:[1]}}x9");
    check_instant(e, "histogram_quantile(0.25, h)", 1, "{x=\"1\"} 1\n{x=\"2\"} 0.7071067812\n");
    check_range(e, "histogram_quantile(1, h)", 3,
                "{x=\"1\"} 2 2 2 2\n{x=\"2\"} 4 4 4 4\n{x=\"3\"} _ _ _ 1\n");
    check_instant(e, "histogram_fraction(0, 1, h)", 4,
                  "{x=\"1\"} 0.25\n{x=\"2\"} 0.5\n{x=\"3\"} 1\n");
    check_instant(e, "histogram_quantiles(c, 'q', 0.5, 1)", 1,
                  "{q=\"0.5\", x=\"1\"} 6.25\n{q=\"1.0\", x=\"1\"} 10\n");
    check_noted(e, "histogram_quantile(0.5, b)", 0,
                "PromQL warning: vector contains a mix of classic and native histograms (1:25)\n");
    check_noted(e, "histogram_quantile(0.9, odd)", 0,
                "{x=\"1\"} nan\nPromQL info: input to histogram_quantile has NaN observations, "
                "result is NaN (1:25)\n");
    check_noted(e, "histogram_fraction(0, 1, odd)", 0,
                "{x=\"1\"} 0.25\nPromQL info: input to histogram_fraction has NaN observations, "
                "which are excluded from all fractions (1:26)\n");
    fake_engine_free(e);
}

static void extended_ranges(void **state)
{
    struct engine *e = fake_engine_new();

    (void)state;
    load(e, "h {{count:4 sum:10 buckets:[1 3]}}+{{count:2 sum:4 buckets:[2]}}x5");
    load(e, "r {{count:4 buckets:[4]}} {{count:6 buckets:[6]}} {{count:1 buckets:[1]}} "
            "{{count:3 buckets:[3]}}");
    load(e, "m 1 {{count:2 buckets:[2]}} {{count:4 buckets:[4]}}");
    check_instant(e, "increase(h[2m] anchored)", 4, "{} " RATE_OF("4", "8", "4") "\n");
    check_instant(e, "increase(h[90s] smoothed)", 4, "{} " RATE_OF("3", "6", "3") "\n");
    check_instant(e, "increase(r[3m] anchored)", 3,
                  "{} {{count:5 counter_reset_hint:gauge buckets:[5]}}\n");
    check_instant(e, "resets(r[3m] anchored)", 3, "{} 1\n");
    check_instant(e, "h smoothed", 1, "{__name__=\"h\"} {{count:6 sum:14 buckets:[3 3]}}\n");
    check_instant(e, "h smoothed @ 90", 1, "{__name__=\"h\"} {{count:7 sum:16 buckets:[4 3]}}\n");
    check_noted(e, "m smoothed", 1,
                "PromQL warning: encountered a mix of histograms and floats for metric name "
                "\"m\" (1:1)\n");
    check_noted(e, "rate(m[1m] anchored)", 2,
                "PromQL warning: encountered a mix of histograms and floats for metric name "
                "\"m\" (1:6)\n");
    fake_engine_free(e);
}

/* Where nobody looks at buckets none are read, and bounds do not matter. */
static void buckets_are_left_out(void **state)
{
    struct engine *e = mixed_engine();

    (void)state;
    load(e, "c{x=\"2\"} {{schema:-53 count:3 sum:5 custom_values:[7] buckets:[1 2]}}x10");
    check_noted(e, "histogram_count(sum(c))", 1, "{} 6\n");
    check_noted(e, "sum(c)", 1,
                "{} {{schema:-53 count:6 sum:10 custom_values:[] buckets:[6]}}\nPromQL info: "
                "mismatched custom "
                "buckets were reconciled during aggregation (1:5)\n");
    fake_engine_free(e);
}

/* More series than are sorted for a sum of floats: the fold starts again, in the order of labels.
 */
static void many_series_are_summed_in_order(void **state)
{
    enum { SERIES = 3000 };
    struct engine *forward = fake_engine_new(), *shuffled = fake_engine_new();
    const char *query = "sum by (half) (h)";
    struct query_run a, b;

    (void)state;
    for (int i = 0; i < SERIES; i++) {
        char text[256];

        (void)snprintf(text, sizeof text,
                       "h{half=\"%d\",x=\"%04d\"} {{schema:%d count:%d.1 sum:0.%d offset:%d "
                       "buckets:[0.%d 1]}}",
                       i % 2, i, i % 3, i, i + 7, i % 5 - 2, i + 1);
        load(forward, text);
        load(shuffled, text);
    }
    shuffled->order_seed = 5;
    query_init(&a, forward, query);
    query_init(&b, shuffled, query);
    CHECK_OK(query_instant(&a, 0), &a.ei);
    CHECK_OK(query_instant(&b, 0), &b.ei);
    check_text(&b, query_text(&a));
    assert_int_equal(a.result.series_count, 2);
    query_done(&a);
    query_done(&b);
    fake_engine_free(forward);
    fake_engine_free(shuffled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selectors_give_histograms),
        cmocka_unit_test(functions_of_one_value),
        cmocka_unit_test(scalars_meet_histograms),
        cmocka_unit_test(aggregations),
        cmocka_unit_test(rates),
        cmocka_unit_test(aggregations_over_time),
        cmocka_unit_test(vectors_meet),
        cmocka_unit_test(quantiles),
        cmocka_unit_test(extended_ranges),
        cmocka_unit_test(buckets_are_left_out),
        cmocka_unit_test(many_series_are_summed_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
