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
    static const char *const named[] = {"scrape_interval", "scrape_configs", "rule_files",
                                        "out_of_order_time_window"};
    struct config c;
    struct errinfo ei = {0};

    (void)state;
    config_init(&c);
    CHECK_OK(config_parse(&c, "x.yml", str_from(text), &ei), &ei);
    CHECK(c.warning_count == 4);
    for (size_t i = 0; i < 4; i++)
        CHECK(strstr(c.warnings[i], named[i]) != NULL);
    CHECK(c.out_of_order_time_window_ms == 1800000);
    config_done(&c);
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
        {"global: {evaluation_interval: soon}\n", "x.yml:1:31: ", "no duration"},
        {"global: {evaluation_interval: 0s}\n", "x.yml:1:31: ", "positive"},
        {"storage: {tsdb: {out_of_order_time_window: -5m}}\n", "x.yml:1:44: ", "no duration"},
        {"global: 5\n", "x.yml:1:9: ", "must be a mapping"},
        {"- a\n", "x.yml:1:1: ", "must be a mapping"},
        {"a: &x 1\nb: *x\n", "x.yml:1:1: ", "unknown key"},
        {"scrape_configs: &x [1]\nrule_files: *x\n", "x.yml:2:13: ", "aliases"},
        {"global: {\n", "x.yml:2:1: ", ""},
        {"global: [\n", "x.yml:1:9: ", "must be a mapping"},
        {"global: {}\n---\nglobal: {}\n", "x.yml:2:1: ", "more than one document"},
        {"\tglobal: {}\n", "x.yml:1:1: ", ""},
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
        cmocka_unit_test(test_warnings),        cmocka_unit_test(test_environment_variables),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_missing_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
