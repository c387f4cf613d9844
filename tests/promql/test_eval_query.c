/*
 * Whole queries over a store in memory: what each operator gives, errors with Prometheus's texts,
 * annotations, both ways of removing names.
 */
#include <math.h>
#include <string.h>

#include "engine/write.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"

/* A minute's step from 0 to 10 min; values grow by the series' number. */
static struct engine *sample_engine(void)
{
    static const char *const names[] = {
        "__name__=requests_total,job=api,instance=0,group=a",
        "__name__=requests_total,job=api,instance=1,group=a",
        "__name__=requests_total,job=app,instance=0,group=b",
        "__name__=requests_total,job=app,instance=1,group=b",
        "__name__=memory,job=api,instance=0",
        "__name__=memory,job=app,instance=0",
        "__name__=memory,job=app,instance=1",
        "__name__=info,job=api,version=v1",
        "__name__=info,job=app,version=v2",
        "__name__=latency_bucket,le=0.1",
        "__name__=latency_bucket,le=1",
        "__name__=latency_bucket,le=+Inf",
        "__name__=memory_alias,job=api,instance=0",
    };
    struct engine *e = fake_engine_new();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t s = fake_engine_add(e, names[i]);
        double slope = i < 4 ? (double)i + 1 : 0, base = i < 4   ? 0
                                                         : i < 7 ? 10 * (double)(i - 3)
                                                                 : 1;

        if (i >= 9)
            base = i == 9 ? 10 : i == 10 ? 30 : 40;
        for (int k = 0; k <= 10; k++)
            fake_engine_sample(e, s, (int64_t)k * 60000, base + slope * k);
    }
    return e;
}

struct expectation {
    const char *query, *want;
};

static void check_instant(struct engine *e, const char *query, const char *want)
{
    struct query_run r;

    query_init(&r, e, query);
    CHECK_MSG(query_instant(&r, 600000) == ERR_OK, "%s: %s", query, r.ei.message);
    CHECK_MSG(strcmp(query_text(&r), want) == 0, "%s gave\n%swanted\n%s", query, query_text(&r),
              want);
    query_done(&r);
}

static void test_instant(void **state)
{
    static const struct expectation cases[] = {
        {"1 + 2 * 3", "{} 7\n"},
        {"'text'", "\"text\"\n"},
        {"-2 ^ 2", "{} -4\n"},
        {"time()", "{} 600\n"},
        {"memory", "{__name__=\"memory\", instance=\"0\", job=\"api\"} 10\n"
                   "{__name__=\"memory\", instance=\"0\", job=\"app\"} 20\n"
                   "{__name__=\"memory\", instance=\"1\", job=\"app\"} 30\n"},
        {"memory offset 20m", ""},
        {"memory{job='api'} @ 60 * 2", "{instance=\"0\", job=\"api\"} 20\n"},
        {"sum(memory)", "{} 60\n"},
        {"sum by (job) (memory)", "{job=\"api\"} 10\n{job=\"app\"} 50\n"},
        {"avg without (instance) (memory)", "{job=\"api\"} 10\n{job=\"app\"} 25\n"},
        {"count(memory) + max(memory) - min(memory)", "{} 23\n"},
        {"stdvar(memory{job='app'})", "{} 25\n"},
        {"group by (nothing) (memory)", "{} 1\n"},
        {"quantile(0.5, memory)", "{} 20\n"},
        {"topk(1, memory)", "{__name__=\"memory\", instance=\"1\", job=\"app\"} 30\n"},
        {"topk by (job) (1, memory)", "{__name__=\"memory\", instance=\"0\", job=\"api\"} 10\n"
                                      "{__name__=\"memory\", instance=\"1\", job=\"app\"} 30\n"},
        /* Of equal values Prometheus's heap lets the first go. */
        {"topk(2, memory * 0 or on (job) vector(1))", "{} 1\n{instance=\"0\", job=\"app\"} 0\n"},
        {"bottomk(2, memory)", "{__name__=\"memory\", instance=\"0\", job=\"api\"} 10\n"
                               "{__name__=\"memory\", instance=\"0\", job=\"app\"} 20\n"},
        {"count_values('v', memory > bool 10)", "{v=\"0\"} 1\n{v=\"1\"} 2\n"},
        {"rate(requests_total{job='api'}[5m])",
         "{group=\"a\", instance=\"0\", job=\"api\"} 0.01666666667\n"
         "{group=\"a\", instance=\"1\", job=\"api\"} 0.03333333333\n"},
        {"sum(increase(requests_total[5m]))", "{} 50\n"},
        {"memory + on (job, instance) requests_total{job='api'}",
         "{instance=\"0\", job=\"api\"} 20\n"},
        {"memory * on (job) group_left (version) info",
         "{instance=\"0\", job=\"api\", version=\"v1\"} 10\n"
         "{instance=\"0\", job=\"app\", version=\"v2\"} 20\n"
         "{instance=\"1\", job=\"app\", version=\"v2\"} 30\n"},
        {"info * on (job) group_right () memory", "{instance=\"0\", job=\"api\"} 10\n"
                                                  "{instance=\"0\", job=\"app\"} 20\n"
                                                  "{instance=\"1\", job=\"app\"} 30\n"},
        {"memory and on (job) info{version='v1'}",
         "{__name__=\"memory\", instance=\"0\", job=\"api\"} 10\n"},
        {"memory unless on (job) info{version='v1'}",
         "{__name__=\"memory\", instance=\"0\", job=\"app\"} 20\n"
         "{__name__=\"memory\", instance=\"1\", job=\"app\"} 30\n"},
        {"info{version='v1'} or on (job) info",
         "{__name__=\"info\", job=\"api\", version=\"v1\"} 1\n"
         "{__name__=\"info\", job=\"app\", version=\"v2\"} 1\n"},
        {"20 < memory", "{__name__=\"memory\", instance=\"1\", job=\"app\"} 30\n"},
        {"-memory{job='api'}", "{instance=\"0\", job=\"api\"} -10\n"},
        {"clamp(memory, 15, 25)", "{instance=\"0\", job=\"api\"} 15\n"
                                  "{instance=\"0\", job=\"app\"} 20\n"
                                  "{instance=\"1\", job=\"app\"} 25\n"},
        {"clamp(memory, 25, 15)", ""},
        {"round(vector(1.26), 0.1)", "{} 1.3\n"},
        {"absent(nothing{a='b', c=~'d'})", "{a=\"b\"} 1\n"},
        {"absent(memory)", ""},
        {"absent_over_time(nothing{a='b'}[5m])", "{a=\"b\"} 1\n"},
        {"scalar(memory)", "{} nan\n"},
        {"scalar(memory{job='api'}) + 1", "{} 11\n"},
        {"vector(3)", "{} 3\n"},
        {"histogram_quantile(0.5, latency_bucket)", "{} 0.55\n"},
        {"histogram_fraction(0, 1, latency_bucket)", "{} 0.75\n"},
        {"label_replace(info{job='api'}, 'x', '$1-${1}-$$', 'version', 'v(.*)')",
         "{__name__=\"info\", job=\"api\", version=\"v1\", x=\"1-1-$\"} 1\n"},
        {"label_join(info{job='api'}, 'x', '/', 'job', 'none', 'version')",
         "{__name__=\"info\", job=\"api\", version=\"v1\", x=\"api//v1\"} 1\n"},
        {"sort_desc(memory)", "{__name__=\"memory\", instance=\"1\", job=\"app\"} 30\n"
                              "{__name__=\"memory\", instance=\"0\", job=\"app\"} 20\n"
                              "{__name__=\"memory\", instance=\"0\", job=\"api\"} 10\n"},
        {"info{job='api'}[150s]",
         "{__name__=\"info\", job=\"api\", version=\"v1\"} 1@480000 1@540000 1@600000\n"},
        {"vector(1)[2m:1m]", "{} 1@540000 1@600000\n"},
        {"sum_over_time(vector(time())[3m:1m])", "{} 1620\n"},
        {"max_over_time(sum(requests_total)[10m:90s])", "{} 90\n"},
        {"last_over_time(memory{job='api'}[1m])",
         "{__name__=\"memory\", instance=\"0\", job=\"api\"} 10\n"},
        {"timestamp(memory{job='api'} offset 30s)", "{instance=\"0\", job=\"api\"} 540\n"},
        {"day_of_week(vector(1136239445)) + year(vector(1136239445))", "{} 2007\n"},
        {"hour()", "{} 0\n"},
        {"minute()", "{} 10\n"},
        {"predict_linear(requests_total{job='api',instance='0'}[5m], 60)",
         "{group=\"a\", instance=\"0\", job=\"api\"} 11\n"},
    };
    struct engine *e = sample_engine();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_instant(e, cases[i].query, cases[i].want);
    fake_engine_free(e);
}

static void check_range(struct engine *e, const char *query, const char *want)
{
    struct query_run r;

    query_init(&r, e, query);
    CHECK_MSG(query_range(&r, 0, 900000, 180000) == ERR_OK, "%s: %s", query, r.ei.message);
    CHECK_MSG(strcmp(query_text(&r), want) == 0, "%s gave\n%swanted\n%s", query, query_text(&r),
              want);
    query_done(&r);
}

static void test_range(void **state)
{
    static const struct expectation cases[] = {
        {"1", "{} 1 1 1 1 1 1\n"},
        {"time()", "{} 0 180 360 540 720 900\n"},
        {"requests_total{job='api',instance='0'}",
         "{__name__=\"requests_total\", group=\"a\", instance=\"0\", job=\"api\"} 0 3 6 9 10 _\n"},
        {"sum(requests_total)", "{} 0 30 60 90 100 _\n"},
        {"sum(requests_total @ 60)", "{} 10 10 10 10 10 10\n"},
        {"sum(requests_total @ end() offset 5m)", "{} 100 100 100 100 100 100\n"},
        {"sum(requests_total @ start() offset -1m) + time()", "{} 10 190 370 550 730 910\n"},
        {"count_over_time(info{job='api'}[3m])", "{job=\"api\", version=\"v1\"} 1 3 3 3 1 _\n"},
        {"topk(1, requests_total) > 20", "{__name__=\"requests_total\", group=\"b\", "
                                         "instance=\"1\", job=\"app\"} _ _ 24 36 40 _\n"},
        {"absent(requests_total)", "{} _ _ _ _ _ 1\n"},
        {"sum_over_time(sum(requests_total)[2m:1m] offset 1m)", "{} _ 30 90 150 200 200\n"},
        {"vector(1) or memory",
         "{} 1 1 1 1 1 1\n"
         "{__name__=\"memory\", instance=\"0\", job=\"api\"} 10 10 10 10 10 _\n"
         "{__name__=\"memory\", instance=\"0\", job=\"app\"} 20 20 20 20 20 _\n"
         "{__name__=\"memory\", instance=\"1\", job=\"app\"} 30 30 30 30 30 _\n"},
    };
    struct engine *e = sample_engine();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_range(e, cases[i].query, cases[i].want);
    fake_engine_free(e);
}

static void test_errors(void **state)
{
    static const struct expectation cases[] = {
        {"memory + on () info",
         "found duplicate series for the match group {} on the right hand-side of the operation: "
         "[{__name__=\"info\", job=\"api\", version=\"v1\"}, {__name__=\"info\", job=\"app\", "
         "version=\"v2\"}];many-to-many matching not allowed: matching labels must be unique on "
         "one side"},
        {"memory + on (job) info", "multiple matches for labels: many-to-one matching must be "
                                   "explicit (group_left/group_right)"},
        {"memory * on (job) group_left (instance) info",
         "multiple matches for labels: grouping labels must ensure unique matches"},
        {"abs({__name__=~'memory.*'})", "vector cannot contain metrics with the same labelset"},
        {"sum(abs({__name__=~'memory.*'}))",
         "vector cannot contain metrics with the same labelset"},
        {"sum(rate({__name__=~'memory.*'}[5m]))",
         "vector cannot contain metrics with the same labelset"},
        /* What a later stage filters has clashed before. */
        {"round({__name__=~'memory.*'}) == 12345",
         "vector cannot contain metrics with the same labelset"},
        {"sum(clamp(ceil({__name__=~'memory.*'}), 1, 0))",
         "vector cannot contain metrics with the same labelset"},
        {"label_replace(memory, 'instance', 'x', '', '')",
         "vector cannot contain metrics with the same labelset"},
        {"label_replace(memory, 'x', '', 'y', '(')",
         "invalid regular expression in label_replace(): ("},
        {"label_replace(memory, '', '', 'y', '')",
         "invalid destination label name in label_replace(): "},
        {"topk(NaN, memory)", "Parameter value is NaN"},
        {"topk(1e30, memory)", "Scalar value 1e+30 overflows int64"},
        {"count_values('', memory)", "invalid label name \"\""},
    };
    struct engine *e = sample_engine();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct query_run r;

        query_init(&r, e, cases[i].query);
        CHECK_MSG(query_instant(&r, 600000) == ERR_EXECUTION, "%s: %s", cases[i].query,
                  r.ei.message);
        CHECK_MSG(strcmp(r.ei.message, cases[i].want) == 0, "%s: %s", cases[i].query, r.ei.message);
        query_done(&r);
    }
    fake_engine_free(e);
}

static void test_annotations(void **state)
{
    static const struct expectation cases[] = {
        {"rate(memory[5m])", "PromQL info: metric might not be a counter, name does not end in "
                             "_total/_sum/_count/_bucket: \"memory\" (1:6)"},
        {"quantile(1.5, memory)",
         "PromQL warning: quantile value should be between 0 and 1, got 1.5 (1:10)"},
        {"quantile_over_time(-1, memory[5m])",
         "PromQL warning: quantile value should be between 0 and 1, got -1 (1:20)"},
        {"histogram_quantile(0.9, memory)",
         "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"\" (1:25)"},
        {"histogram_quantile(2, latency_bucket)",
         "PromQL warning: quantile value should be between 0 and 1, got 2 (1:20)"},
        {"histogram_quantile(0.9, -latency_bucket)",
         "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see "
         "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile), "
         "from buckets 1 to +Inf, with a max diff of 30, over 1 samples from 1970-01-01T00:10:00Z "
         "to 1970-01-01T00:10:00Z (1:25)"},
        {"quantile_over_time((-1), memory[5m])",
         "PromQL warning: quantile value should be between 0 and 1, got -1 (1:21)"},
        {"quantile((2), memory)",
         "PromQL warning: quantile value should be between 0 and 1, got 2 (1:11)"},
        {"histogram_quantile((2), (latency_bucket))",
         "PromQL warning: quantile value should be between 0 and 1, got 2 (1:21)"},
        {"histogram_quantile(0.9, (memory))",
         "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"\" (1:26)"},
        {"rate(memory[5m]) or rate(memory[6m])", /* the last one's position */
         "PromQL info: metric might not be a counter, name does not end in "
         "_total/_sum/_count/_bucket: \"memory\" (1:26)"},
        {"rate(requests_total[5m])", NULL},
        {"sort(memory)", NULL},
    };
    struct engine *e = sample_engine();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct query_run r;
        const char *got;

        query_init(&r, e, cases[i].query);
        CHECK_MSG(query_instant(&r, 600000) == ERR_OK, "%s: %s", cases[i].query, r.ei.message);
        CHECK_MSG(r.result.annotation_count == (cases[i].want != NULL), "%s", cases[i].query);
        got = cases[i].want == NULL ? "" : r.result.annotations[0].text;
        CHECK_MSG(cases[i].want == NULL || strcmp(got, cases[i].want) == 0, "%s: %s",
                  cases[i].query, got);
        query_done(&r);
    }
    fake_engine_free(e);
}

static void test_annotation_of_types(void **state)
{
    struct engine *e = fake_engine_new();
    static const struct {
        const char *query, *want;
    } cases[] = {
        {"rate(counted[5m])", NULL},
        {"sum(rate({__name__='counted'}[5m]))", NULL},
        {"sum(rate(gauged_total[5m]))",
         "PromQL info: metric might not be a counter, __type__ label is not set to \"counter\" or "
         "\"histogram\", got \"gauge\": \"gauged_total\" (1:10)"},
        {"increase(untyped_total[5m])",
         "PromQL info: metric might not be a counter, __type__ label is not set to \"counter\" or "
         "\"histogram\", got \"\": \"untyped_total\" (1:10)"},
        {"delta(gauged_total[5m])", NULL},
    };
    static const char *const series[] = {"__name__=counted,__type__=counter",
                                         "__name__=gauged_total,__type__=gauge",
                                         "__name__=untyped_total"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        size_t s = fake_engine_add(e, series[i]);

        fake_engine_sample(e, s, 60000, 1);
        fake_engine_sample(e, s, 120000, 2);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct query_run r;

        query_init(&r, e, cases[i].query);
        r.settings.type_and_unit_labels = true;
        CHECK_OK(query_instant(&r, 120000), &r.ei);
        CHECK(r.result.series_count == 1);
        CHECK_MSG(r.result.annotation_count == (cases[i].want != NULL), "%s", cases[i].query);
        CHECK_MSG(cases[i].want == NULL || strcmp(r.result.annotations[0].text, cases[i].want) == 0,
                  "%s: %s", cases[i].query, r.result.annotations[0].text);
        query_done(&r);
    }
    fake_engine_free(e);
}

/* Type and unit go with the name, so that series which share a name become one as well: that is an
 * error also where the rows are only compared. */
static void test_series_that_lose_their_type(void **state)
{
    static const struct {
        const char *query;
        enum err want;
    } cases[] = {
        {"rate(m[5m])", ERR_EXECUTION},
        {"sort(rate(m[5m]))", ERR_EXECUTION},
        {"rate(m[5m]) and m", ERR_EXECUTION},
        {"vector(1) unless rate(m[5m])", ERR_EXECUTION},
        {"vector(1) unless on() rate(m[5m])", ERR_EXECUTION},
        {"avg_over_time(m[5m]) and m", ERR_EXECUTION},
        {"last_over_time(m[5m]) and m", ERR_OK},
        {"vector(1) unless on() rate(one[5m])", ERR_OK},
    };
    static const char *const series[] = {"__name__=m,__type__=counter", "__name__=m,__type__=gauge",
                                         "__name__=m,__unit__=s", "__name__=one,__type__=counter"};
    struct engine *e = fake_engine_new();

    (void)state;
    for (size_t i = 0; i < sizeof series / sizeof series[0]; i++) {
        size_t s = fake_engine_add(e, series[i]);

        fake_engine_sample(e, s, 60000, 1);
        fake_engine_sample(e, s, 120000, 2);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct query_run r;
        enum err got;

        query_init(&r, e, cases[i].query);
        r.settings.type_and_unit_labels = true;
        got = query_instant(&r, 120000);
        CHECK_MSG(got == cases[i].want, "%s: %s", cases[i].query, r.ei.message);
        query_done(&r);
    }
    fake_engine_free(e);
}

/* With delayed removal a name lives on inside the query, and by (__name__) finds it. */
static void test_delayed_names(void **state)
{
    struct engine *e = sample_engine();
    struct query_run r;

    (void)state;
    query_init(&r, e,
               "count by (__name__) (abs({job='app'}) and on (job) memory) "
               "or count by (__name__) (memory)");
    r.settings.delayed_name_removal = true;
    CHECK(query_instant(&r, 600000) == ERR_EXECUTION);
    CHECK(strcmp(r.ei.message, "vector cannot contain metrics with the same labelset") == 0);
    query_done(&r);
    query_init(&r, e,
               "count by (__name__) (abs(memory)) or on (__name__) count by (__name__) (info)");
    r.settings.delayed_name_removal = true;
    CHECK_OK(query_instant(&r, 600000), &r.ei);
    CHECK(strcmp(query_text(&r), "{} 3\n{__name__=\"info\"} 2\n") == 0);
    query_done(&r);
    query_init(&r, e, "label_replace(abs(info), '__name__', 'kept', '', '')");
    r.settings.delayed_name_removal = true;
    CHECK_OK(query_instant(&r, 600000), &r.ei);
    CHECK(strcmp(query_text(&r), "{__name__=\"kept\", job=\"api\", version=\"v1\"} 1\n"
                                 "{__name__=\"kept\", job=\"app\", version=\"v2\"} 1\n") == 0);
    query_done(&r);
    fake_engine_free(e);
}

static void test_staleness(void **state)
{
    struct engine *e = fake_engine_new();
    size_t s = fake_engine_add(e, "__name__=x");
    double stale = double_from_bits(STALE_NAN_BITS);

    (void)state;
    fake_engine_sample(e, s, 60000, 1);
    fake_engine_sample(e, s, 120000, NAN);
    fake_engine_sample(e, s, 240000, stale);
    fake_engine_sample(e, s, 480000, 2);
    check_range(e, "x", "{__name__=\"x\"} _ nan _ 2 2 _\n");
    check_range(e, "count_over_time(x[9m])", "{} _ 2 2 3 1 1\n");
    check_instant(e, "x[10m]", "{__name__=\"x\"} 1@60000 nan@120000 2@480000\n");
    fake_engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instant),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_annotations),
        cmocka_unit_test(test_annotation_of_types),
        cmocka_unit_test(test_series_that_lose_their_type),
        cmocka_unit_test(test_delayed_names),
        cmocka_unit_test(test_staleness),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
