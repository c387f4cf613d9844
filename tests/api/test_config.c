/* The configuration file: what it sets, what it warns of, and where it is wrong. */
#include "tests/lib/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/config.h"
#include "tests/lib/test_support.h"

static void test_meaningful_keys(void **state)
{
    static const char text[] = "global:\n"
                               "  evaluation_interval: 30s\n"
                               "  external_labels:\n"
                               "    region: west\n"
                               "    cluster: \"a b\"\n"
                               "storage:\n"
                               "  tsdb:\n"
                               "    out_of_order_time_window: 0s\n";
    struct config c;
    struct errinfo ei = {0};

    (void)state;
    config_init(&c);
    CHECK(c.evaluation_interval_ms == 60000);
    CHECK_OK(config_parse(&c, "x.yml", str_from(text), &ei), &ei);
    CHECK(c.evaluation_interval_ms == 30000);
    CHECK(c.external_labels.count == 2); /* sorted */
    CHECK(str_equal(c.external_labels.items[0].name, STR_LITERAL("cluster")));
    CHECK(str_equal(c.external_labels.items[0].value, STR_LITERAL("a b")));
    CHECK(c.warning_count == 1); /* external labels have no effect yet */
    CHECK(strcmp(c.text, text) == 0);
    config_done(&c);
}

static void test_empty(void **state)
{
    static const char *const texts[] = {
        "", "# nothing\n", "---\n", "global:\n", "{}\n", "global: {external_labels: }\n"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct config c;
        struct errinfo ei = {0};

        config_init(&c);
        CHECK_OK(config_parse(&c, "x.yml", str_from(texts[i]), &ei), &ei);
        CHECK(c.external_labels.count == 0);
        config_done(&c);
    }
}

static void test_warnings(void **state)
{
    static const char text[] = "global: {scrape_interval: 15s}\n"
                               "scrape_configs:\n"
                               "  - job_name: x\n"
                               "    static_configs: [{targets: ['a:1', 'b:2']}]\n"
                               "rule_files: [a.yml]\n"
                               "storage: {tsdb: {out_of_order_time_window: 30m}}\n";
    static const char *const named[] = {"scrape_interval", "scrape_configs", "rule_files"};
    struct config c;
    struct errinfo ei = {0};

    (void)state;
    config_init(&c);
    CHECK_OK(config_parse(&c, "x.yml", str_from(text), &ei), &ei);
    CHECK(c.warning_count == 3);
    for (size_t i = 0; i < 3; i++)
        CHECK(strstr(c.warnings[i], named[i]) != NULL);
    CHECK(c.out_of_order_time_window_ms == 1800000);
    config_done(&c);
}

static void test_retention(void **state)
{
    static const struct {
        const char *text;
        bool is_given;
        int64_t time_ms;
        uint64_t size_bytes;
        const char *time, *size;
    } cases[] = {
        {"storage: {tsdb: {}}\n", false, 0, 0, NULL, NULL},
        {"storage: {tsdb: {retention: }}\n", false, 0, 0, NULL, NULL},
        {"storage: {tsdb: {retention: {time: 30d}}}\n", true, 30 * INT64_C(86400000), 0, "30d",
         "0"},
        {"storage: {tsdb: {retention: {size: 2GB, time: 1h30m}}}\n", true, 5400000,
         UINT64_C(2) << 30, "1h30m", "2GB"},
        {"storage: {tsdb: {retention: {size: 0}}}\n", true, 0, 0, "0", "0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct config_retention *r;
        struct errinfo ei = {0};
        struct config c;

        config_init(&c);
        CHECK_OK(config_parse(&c, "x.yml", str_from(cases[i].text), &ei), &ei);
        r = &c.retention;
        CHECK_MSG(r->is_given == cases[i].is_given && r->time_ms == cases[i].time_ms &&
                      r->size_bytes == cases[i].size_bytes,
                  "%s", cases[i].text);
        CHECK(!r->is_given ||
              (strcmp(r->time, cases[i].time) == 0 && strcmp(r->size, cases[i].size) == 0));
        CHECK(c.warning_count == 0);
        config_done(&c);
    }
}

static void test_environment_variables(void **state)
{
    static const struct {
        const char *value, *want;
        size_t warnings;
    } cases[] = {
        {"plain", "plain", 0},
        {"$RIMSTONE_TEST", "west", 0},
        {"a-${RIMSTONE_TEST}-b", "a-west-b", 0},
        {"$$RIMSTONE_TEST", "$RIMSTONE_TEST", 0},
        {"x$RIMSTONE_NOT_SET.y", "x.y", 1},
        {"end$", "end", 1},
        {"${RIMSTONE_TEST", "RIMSTONE_TEST", 1},
    };

    (void)state;
    CHECK(setenv("RIMSTONE_TEST", "west", 1) == 0); /* NOLINT(concurrency-mt-unsafe): one thread */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        struct config c;
        struct errinfo ei = {0};

        (void)snprintf(text, sizeof text, "global: {external_labels: {a: \"%s\"}}", cases[i].value);
        config_init(&c);
        CHECK_OK(config_parse(&c, "x.yml", str_from(text), &ei), &ei);
        CHECK_MSG(str_equal(c.external_labels.items[0].value, str_from(cases[i].want)), "%.*s",
                  STR_ARGS(c.external_labels.items[0].value));
        CHECK(c.warning_count == cases[i].warnings + 1); /* and that they have no effect yet */
        config_done(&c);
    }
}

static void test_limits(void **state)
{
    static const char text[] = "limits:\n"
                               "  active_series: {max: 10_000_000, warn: 8000000}\n"
                               "  series_per_label_value:\n"
                               "    - {label: namespace, max: 5}\n"
                               "    - label: pod\n"
                               "      warn: 7\n"
                               "  labels_per_series: {max: 0}\n"
                               "  label_name_bytes:\n";
    struct config c;
    struct errinfo ei = {0};

    (void)state;
    config_init(&c);
    CHECK(c.limits.items[LIMIT_LABELS_PER_SERIES].max == 64);
    CHECK_OK(config_parse(&c, "x.yml", str_from(text), &ei), &ei);
    CHECK(c.limits.items[LIMIT_ACTIVE_SERIES].max == 10000000);
    CHECK(c.limits.items[LIMIT_ACTIVE_SERIES].warn == 8000000);
    CHECK(c.limits.items[LIMIT_SERIES_PER_METRIC].max == 0);
    CHECK(c.limits.items[LIMIT_LABELS_PER_SERIES].max == 0);
    CHECK(c.limits.items[LIMIT_LABEL_NAME_BYTES].max == 1024);
    CHECK(c.limits.items[LIMIT_LABEL_VALUE_BYTES].max == 4096);
    CHECK(c.limits.items[LIMIT_SAMPLES_PER_REQUEST].max == 100000);
    CHECK(c.limits.label_count == 2);
    CHECK(str_equal(c.limits.labels[0].label, STR_LITERAL("namespace")));
    CHECK(c.limits.labels[0].limit.max == 5 && c.limits.labels[0].limit.warn == 0);
    CHECK(str_equal(c.limits.labels[1].label, STR_LITERAL("pod")));
    CHECK(c.limits.labels[1].limit.max == 0 && c.limits.labels[1].limit.warn == 7);
    config_done(&c);
}

/* Every refusal begins with the file, the line and the column. */
static void test_refused(void **state)
{
    static const struct {
        const char *text, *place, *what;
    } cases[] = {
        {"globl: {}\n", "x.yml:1:1: ", "unknown key \"globl\""},
        {"global:\n  external_labels: {}\n  extrenal_labels: {}\n",
         "x.yml:3:3: ", "extrenal_labels"},
        {"global:\n  external_labels: {a: 1}\n  external_labels: {b: 1}\n", "x.yml:3:3: ", "twice"},
        {"global: {external_labels: {a: 1, a: 2}}\n", "x.yml:1:34: ", "stands twice"},
        {"global: {external_labels: {a: [1]}}\n", "x.yml:1:31: ", "must be a text"},
        {"global: {external_labels: [a]}\n", "x.yml:1:27: ", "must be a mapping"},
        {"global: {evaluation_interval: soon}\n", "x.yml:1:31: ", "must be a duration such as 90s"},
        {"global: {evaluation_interval: 0s}\n", "x.yml:1:31: ", "positive"},
        {"storage: {tsdb: {out_of_order_time_window: -5m}}\n",
         "x.yml:1:44: ", "must be a duration such as 90s"},
        {"storage: {tsdb: {retention: {size: much}}}\n",
         "x.yml:1:36: ", "must be a size such as 512MiB"},
        {"storage: {tsdb: {retention: {time: 5}}}\n",
         "x.yml:1:36: ", "must be a duration such as 90s"},
        {"storage: {tsdb: {retention: {times: 5d}}}\n", "x.yml:1:30: ", "unknown key"},
        {"global: 5\n", "x.yml:1:9: ", "must be a mapping"},
        {"- a\n", "x.yml:1:1: ", "must be a mapping"},
        {"a: &x 1\nb: *x\n", "x.yml:1:1: ", "unknown key"},
        {"scrape_configs: &x [1]\nrule_files: *x\n", "x.yml:2:13: ", "aliases"},
        {"limits: 5\n", "x.yml:1:9: ", "must be a mapping"},
        {"limits: {active: {max: 5}}\n", "x.yml:1:10: ", "unknown key \"active\""},
        {"limits:\n  active_series: 5\n", "x.yml:2:18: ", "must be a mapping such as {max: ...}"},
        {"limits: {active_series: {max: -1}}\n", "x.yml:1:31: ", "must be a whole number, not"},
        {"limits: {active_series: {max: 1e6}}\n", "x.yml:1:31: ", "must be a whole number, not"},
        {"limits: {active_series: {max: }}\n", "x.yml:1:31: ", "must be a number"},
        {"limits: {active_series: {max: [1]}}\n", "x.yml:1:31: ", "must be a number"},
        {"limits: {active_series: {max: 9007199254740992}}\n", "x.yml:1:31: ", "too large"},
        {"limits: {active_series: {max: 5, warn: 6}}\n", "x.yml:1:25: ", "warn is above max"},
        {"limits: {labels_per_series: {warn: 6}}\n", "x.yml:1:30: ", "unknown key \"warn\""},
        {"limits: {series_per_label_value: {max: 5}}\n", "x.yml:1:34: ", "must be a list"},
        {"limits: {series_per_label_value: [{max: 5}]}\n", "x.yml:1:35: ", "needs a label"},
        {"limits: {series_per_label_value: [{label: }]}\n", "x.yml:1:43: ", "name is empty"},
        {"limits: {series_per_label_value: [{label: __name__, max: 1}]}\n",
         "x.yml:1:43: ", "series_per_metric"},
        {"limits: {series_per_label_value: [{label: a}, {label: a}]}\n",
         "x.yml:1:47: ", "\"a\" stands twice"},
        {"global: {\n", "x.yml:2:1: ", ""},
        {"global: [\n", "x.yml:1:9: ", "must be a mapping"},
        {"global: {}\n---\nglobal: {}\n", "x.yml:2:1: ", "more than one document"},
        {"\tglobal: {}\n", "x.yml:1:1: ", "not tabs"},
        {"global:\n  a: 1\n b: 2\n", "x.yml:2:3: ", "unknown key"},
        {"global:\n  external_labels: {}\n evaluation_interval: 1m\n",
         "x.yml:3:2: ", "is it indented as far"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config c;
        struct errinfo ei = {0};

        config_init(&c);
        CHECK_MSG(config_parse(&c, "x.yml", str_from(cases[i].text), &ei) == ERR_INVALID, "%s",
                  cases[i].text);
        CHECK_MSG(strncmp(ei.message, cases[i].place, strlen(cases[i].place)) == 0, "%s: %s",
                  cases[i].text, ei.message);
        CHECK_MSG(strstr(ei.message, cases[i].what) != NULL, "%s: %s", cases[i].text, ei.message);
        config_done(&c);
    }
}

static void test_deep_nesting_is_refused(void **state)
{
    char text[4096] = "scrape_configs: ";
    size_t size = strlen(text);
    struct config c;
    struct errinfo ei = {0};

    (void)state;
    memset(text + size, '[', 1000);
    config_init(&c);
    CHECK(config_parse(&c, "x.yml", str_from(text), &ei) == ERR_INVALID);
    config_done(&c);
}

static void test_missing_file(void **state)
{
    struct config c;
    struct errinfo ei = {0};

    (void)state;
    config_init(&c);
    CHECK(config_load(&c, "/nonexistent/x.yml", &ei) == ERR_NOT_FOUND);
    CHECK(strstr(ei.message, "/nonexistent/x.yml") != NULL);
    config_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meaningful_keys), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_retention),       cmocka_unit_test(test_environment_variables),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_missing_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
