/* The metrics registry: exact exposition text, and counting under threads. */
#include "base/metrics.h"

#include <math.h>
#include <string.h>

#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static struct errinfo ei;

static double read_answer(void *ctx)
{
    return *(double *)ctx;
}

static void check_text(struct metrics_registry *r, const char *want)
{
    struct byte_writer out;

    writer_init(&out);
    CHECK_OK(metrics_write_text(r, &out, &ei), &ei);
    writer_u8(&out, 0);
    CHECK_MSG(strcmp((const char *)out.data, want) == 0, "got:\n%s", (const char *)out.data);
    writer_done(&out);
}

static void test_exposition(void **state)
{
    struct metrics_registry *r = NULL;
    double answer = 1e6;
    const double bounds[] = {0.005, 1, 2.5};

    (void)state;
    CHECK_OK(metrics_registry_new(&r, &ei), &ei);
    struct metric_gauge *g = metrics_gauge(r, "z_bytes", "", "Line\nwith \\ and \"quotes\".");
    struct metric_counter *old = metrics_counter(r, "m_total", "reason=\"too_old\"", "Refused.");
    metrics_callback(r, "gauge", "a", "", "Computed.", read_answer, &answer);
    struct metric_counter *limit = metrics_counter(r, "m_total", "reason=\"limit\"", "Refused.");
    struct metric_histogram *h =
        metrics_histogram(r, "h_seconds", "path=\"/\"", "Durations.", bounds, 3);

    metric_gauge_set(g, 4);
    metric_gauge_add(g, -1.5);
    CHECK(metric_gauge_read(g) == 2.5);
    metric_counter_add(old, 2);
    metric_counter_add(old, 40);
    metric_counter_add(limit, UINT64_C(1) << 60);
    CHECK(metric_counter_read(old) == 42);
    metric_histogram_observe(h, 0.005); /* bounds are inclusive */
    metric_histogram_observe(h, 2);
    metric_histogram_observe(h, 100);
    check_text(r, "# HELP a Computed.\n"
                  "# TYPE a gauge\n"
                  "a 1e+06\n"
                  "# HELP h_seconds Durations.\n"
                  "# TYPE h_seconds histogram\n"
                  "h_seconds_bucket{path=\"/\",le=\"0.005\"} 1\n"
                  "h_seconds_bucket{path=\"/\",le=\"1\"} 1\n"
                  "h_seconds_bucket{path=\"/\",le=\"2.5\"} 2\n"
                  "h_seconds_bucket{path=\"/\",le=\"+Inf\"} 3\n"
                  "h_seconds_sum{path=\"/\"} 102.005\n"
                  "h_seconds_count{path=\"/\"} 3\n"
                  "# HELP m_total Refused.\n"
                  "# TYPE m_total counter\n"
                  "m_total{reason=\"too_old\"} 42\n"
                  "m_total{reason=\"limit\"} 1152921504606846976\n"
                  "# HELP z_bytes Line\\nwith \\\\ and \"quotes\".\n"
                  "# TYPE z_bytes gauge\n"
                  "z_bytes 2.5\n");
    answer = NAN;
    metric_gauge_set(g, -INFINITY);
    metrics_registry_free(r);
}

static void test_empty_and_special(void **state)
{
    struct metrics_registry *r = NULL;
    double answer = NAN;

    (void)state;
    CHECK_OK(metrics_registry_new(&r, &ei), &ei);
    check_text(r, "");
    struct metric_histogram *h = metrics_histogram(r, "h", "", "H.", NULL, 0);
    metrics_callback(r, "counter", "n", "", "N.", read_answer, &answer);
    metric_histogram_observe(h, NAN);
    check_text(r, "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum NaN\nh_count 1\n"
                  "# HELP n N.\n# TYPE n counter\nn NaN\n");
    metrics_registry_free(r);
    metrics_registry_free(NULL);
}

enum { THREAD_COUNT = 4, ADDS = 20000 };

struct shared {
    struct metrics_registry *registry;
    struct metric_counter *counter;
    struct metric_gauge *gauge;
    struct metric_histogram *histogram;
};

static void *update(void *arg)
{
    struct shared *s = arg;
    struct byte_writer out;

    writer_init(&out);
    for (int i = 0; i < ADDS; i++) {
        metric_counter_add(s->counter, 3);
        metric_gauge_add(s->gauge, 1);
        metric_histogram_observe(s->histogram, i % 4);
        if (i % 5000 == 0) {
            writer_reset(&out);
            CHECK(metrics_write_text(s->registry, &out, NULL) == ERR_OK);
        }
    }
    writer_done(&out);
    return NULL;
}

static void test_nothing_is_lost_under_threads(void **state)
{
    struct shared s = {0};
    struct thread threads[THREAD_COUNT];
    const double bounds[] = {0, 1, 2};

    (void)state;
    CHECK_OK(metrics_registry_new(&s.registry, &ei), &ei);
    s.counter = metrics_counter(s.registry, "c", "", "C.");
    s.gauge = metrics_gauge(s.registry, "g", "", "G.");
    s.histogram = metrics_histogram(s.registry, "h", "", "H.", bounds, 3);
    for (int i = 0; i < THREAD_COUNT; i++)
        CHECK_OK(thread_start(&threads[i], "metrics", update, &s, &ei), &ei);
    for (int i = 0; i < THREAD_COUNT; i++)
        thread_join(&threads[i]);
    check_text(s.registry, "# HELP c C.\n# TYPE c counter\nc 240000\n"
                           "# HELP g G.\n# TYPE g gauge\ng 80000\n"
                           "# HELP h H.\n# TYPE h histogram\n"
                           "h_bucket{le=\"0\"} 20000\nh_bucket{le=\"1\"} 40000\n"
                           "h_bucket{le=\"2\"} 60000\nh_bucket{le=\"+Inf\"} 80000\n"
                           "h_sum 120000\nh_count 80000\n");
    metrics_registry_free(s.registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exposition),
        cmocka_unit_test(test_empty_and_special),
        cmocka_unit_test(test_nothing_is_lost_under_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
