/* Rimstone's own endpoints. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "engine/limits.h"
#include "tests/api/http_client.h"
#include "tests/api/test_server.h"
#include "tests/api/write_body.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

/* Sends series first..end of a metric with labels i, job and pod; the answer's status. */
static int send_series(struct test_server *s, const char *metric, int first, int end)
{
    struct byte_writer body, series, wire;
    struct http_answer a;
    char number[32];
    int status;

    writer_init(&body);
    writer_init(&wire);
    for (int i = first; i < end; i++) {
        writer_init(&series);
        body_label(&series, "__name__", metric);
        (void)snprintf(number, sizeof number, "%d", i);
        body_label(&series, "i", number);
        body_label(&series, "job", i % 2 == 0 ? "even" : "odd");
        body_sample(&series, clock_now_ms(&s->clock), i);
        body_series(&body, &series);
        writer_done(&series);
    }
    body_snappy(&body, &wire);
    http_call(s->port, "POST", "/api/v1/write", "", wire.data, wire.size, &a);
    status = a.status;
    http_answer_done(&a);
    writer_done(&body);
    writer_done(&wire);
    return status;
}

/* `data` of a JSON answer with status 200; the caller's. */
static json_t *get_data(struct test_server *s, const char *path)
{
    struct http_answer a;
    json_error_t error;
    json_t *root, *data;

    http_get(s->port, path, &a);
    CHECK_MSG(a.status == 200, "%s: %d %.*s", path, a.status, (int)a.body.size,
              (const char *)a.body.data);
    root = json_loadb((const char *)a.body.data, a.body.size, 0, &error);
    CHECK_MSG(root != NULL, "%s: %s", path, error.text);
    data = json_incref(json_object_get(root, "data"));
    json_decref(root);
    http_answer_done(&a);
    CHECK(data != NULL);
    return data;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static void test_limits(void **state)
{
    const struct label_limit label = {STR_LITERAL("job"), {.max = 40, .warn = 30}};
    struct limits limits = {
        .items = {[LIMIT_SERIES_PER_METRIC] = {.max = 5}}, .labels = &label, .label_count = 1};
    struct test_server s;
    struct errinfo ei = {0};
    json_t *data, *at;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    data = get_data(&s, "/api/v1/rimstone/limits");
    CHECK(json_array_size(json_object_get(data, "limits")) == 0);
    json_decref(data);
    CHECK_OK(engine_limits_apply(s.engine, &limits, &ei), &ei);
    CHECK(send_series(&s, "m", 0, 8) == 400);
    data = get_data(&s, "/api/v1/rimstone/limits");
    CHECK(integer_of(data, "activeSeries") == 5);
    CHECK(json_array_size(json_object_get(data, "limits")) == 7);
    at = json_array_get(json_object_get(data, "limits"), 1);
    CHECK(strcmp(text_of(at, "limit"), "series_per_metric") == 0 && integer_of(at, "max") == 5);
    CHECK(integer_of(at, "refusals") == 3 && integer_of(at, "samplesRefused") == 3);
    at = json_array_get(json_object_get(data, "limits"), 6);
    CHECK(strcmp(text_of(at, "limit"), "series_per_label_value") == 0);
    CHECK(strcmp(text_of(at, "label"), "job") == 0 && integer_of(at, "warn") == 30);
    at = json_array_get(json_object_get(data, "offenders"), 0);
    CHECK(strcmp(text_of(at, "label"), "__name__") == 0 && strcmp(text_of(at, "value"), "m") == 0);
    CHECK(integer_of(at, "series") == 5 && integer_of(at, "refusals") == 3);
    json_decref(data);
    test_server_stop(&s);
}

static void get_ok(struct test_server *s, const char *path)
{
    json_decref(get_data(s, path));
}

static void test_usage(void **state)
{
    struct test_server s;
    json_t *data, *at, *by;
    char path[200];

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    CHECK(send_series(&s, "m", 0, 8) == 204 && send_series(&s, "n", 0, 8) == 204);
    get_ok(&s, "/api/v1/query?query=m");
    get_ok(&s, "/api/v1/query?query=count(%7Bjob=%22even%22%7D)");
    get_ok(&s, "/api/v1/series?match[]=n");
    get_ok(&s, "/api/v1/label/job/values?match[]=n&match[]=gone");
    get_ok(&s, "/api/v1/labels"); /* reads no metric in particular */
    (void)snprintf(path, sizeof path, "/api/v1/query_range?query=n&start=%lld&end=%lld&step=60",
                   (long long)(clock_now_ms(&s.clock) / 1000 - 60),
                   (long long)(clock_now_ms(&s.clock) / 1000));
    get_ok(&s, path);
    data = get_data(&s, "/api/v1/rimstone/usage");
    CHECK(integer_of(data, "since") > 1700000000 &&
          integer_of(data, "since") == integer_of(data, "completeSince"));
    CHECK(json_array_size(json_object_get(data, "metrics")) == 3);
    at = json_array_get(json_object_get(data, "metrics"), 0);
    CHECK(strcmp(text_of(at, "name"), "gone") == 0);
    at = json_array_get(json_object_get(data, "metrics"), 2);
    by = json_object_get(at, "byEndpoint");
    CHECK(strcmp(text_of(at, "name"), "n") == 0 && integer_of(at, "count") == 4);
    CHECK(integer_of(json_object_get(by, "query"), "count") == 1);
    CHECK(integer_of(json_object_get(by, "query_range"), "count") == 1);
    CHECK(integer_of(json_object_get(by, "series"), "count") == 1);
    CHECK(integer_of(json_object_get(by, "labels"), "count") == 1);
    CHECK(integer_of(json_object_get(by, "labels"), "lastQueried") > 1700000000);
    CHECK(json_array_size(json_object_get(data, "recentQueries")) == 5);
    json_decref(data);
    data = get_data(&s, "/api/v1/rimstone/usage?name=m&name=x&limit=2");
    CHECK(json_array_size(json_object_get(data, "metrics")) == 1);
    CHECK(json_array_size(json_object_get(data, "recentQueries")) == 2);
    json_decref(data);
    test_server_stop(&s);
}

static void expect_status(struct test_server *s, const char *path, int status)
{
    struct http_answer a;

    http_get(s->port, path, &a);
    CHECK_MSG(a.status == status, "%s: %d", path, a.status);
    http_answer_done(&a);
}

static void test_cardinality(void **state)
{
    static const char *const wrong[] = {"limit=0",     "limit=100001",       "limit=x",
                                        "day=today",   "day=2026-02-30",     "day=2026-1-31",
                                        "match[]=%7B", "match[]=a&match[]=b"};
    struct test_server s;
    json_t *data, *list;

    (void)state;
    test_server_start(&s, &(struct test_server_options){0});
    CHECK(send_series(&s, "m", 0, 9) == 204 && send_series(&s, "n", 0, 4) == 204);
    data = get_data(&s, "/api/v1/rimstone/cardinality?label=job&limit=3");
    CHECK(strcmp(text_of(data, "source"), "memory") == 0 && integer_of(data, "series") == 13);
    CHECK(integer_of(data, "created") == 13 && integer_of(data, "ended") == 0);
    CHECK(integer_of(data, "labelPairs") == 2 + 2 + 9);
    list = json_object_get(data, "seriesCountByMetricName");
    CHECK(json_array_size(list) == 2 && integer_of(json_array_get(list, 0), "value") == 9);
    CHECK(strcmp(text_of(json_array_get(list, 1), "name"), "n") == 0);
    list = json_object_get(data, "seriesCountByLabelName");
    CHECK(json_array_size(list) == 3);
    CHECK(strcmp(text_of(json_array_get(list, 1), "name"), "i") == 0);
    CHECK(integer_of(json_array_get(list, 1), "distinctValues") == 9);
    list = json_object_get(data, "seriesCountByFocusLabelValue");
    CHECK(json_array_size(list) == 2);
    CHECK(strcmp(text_of(json_array_get(list, 0), "name"), "even") == 0);
    CHECK(integer_of(json_array_get(list, 0), "value") == 7);
    list = json_object_get(data, "seriesCountByLabelValuePair");
    CHECK(strcmp(text_of(json_array_get(list, 0), "name"), "__name__=m") == 0);
    json_decref(data);
    data = get_data(&s, "/api/v1/rimstone/cardinality?match[]=%7Bjob=%22odd%22%7D");
    CHECK(integer_of(data, "series") == 6);
    CHECK(json_object_get(data, "seriesCountByFocusLabelValue") == NULL);
    json_decref(data);
    data = get_data(&s, "/api/v1/rimstone/cardinality?day=2020-02-29");
    CHECK(strcmp(text_of(data, "source"), "parts") == 0 && integer_of(data, "series") == 0);
    CHECK(strcmp(text_of(data, "day"), "2020-02-29") == 0);
    json_decref(data);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char path[128];

        (void)snprintf(path, sizeof path, "/api/v1/rimstone/cardinality?%s", wrong[i]);
        expect_status(&s, path, 400);
    }
    test_server_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_cardinality),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
