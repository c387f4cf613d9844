/*
 * How soon a query ends once its stop flag is up: for each shape of operator a query that runs for
 * long, stopped at several moments by another thread. What counts is the CPU that the query's
 * thread spends after the flag, down to the last byte freed, so that a busy machine does not
 * matter. The bound is ten times what the server promises (100 ms of a release build), since tests
 * run in debug builds and under sanitizers too; the values are printed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"

enum { SERIES = 20000, GROUPS = 50, BUCKETS = 10, STEPS = 400, LATENCY_MAX_MS = 1000 };

/* When the flag goes up: CPU of the query's thread since its start. */
static const double moments_ms[] = {20, 150};

struct shape {
    const char *name, *query;
    bool by_deadline; /* stopped by its deadline, not by the flag */
};

/* Over many points of one series, many series, or both. A query's thread must have work for some
 * milliseconds at least. */
#define POINTS "[20000000s:1s])"
static const struct shape shapes[] = {
    {"nested subqueries", "max_over_time(sum_over_time(vector(time())[1000s:1s])[9000000s:1s])",
     false},
    {"sum_over_time", "sum_over_time(vector(time())" POINTS, false},
    {"avg_over_time", "avg_over_time(vector(time())" POINTS, false},
    {"stddev_over_time", "stddev_over_time(vector(time())" POINTS, false},
    {"max_over_time", "max_over_time(vector(time())" POINTS, false},
    {"quantile_over_time", "quantile_over_time(0.5, vector(time() * 7919 % 1000003)" POINTS, false},
    {"mad_over_time", "mad_over_time(vector(time() * 7919 % 1000003)" POINTS, false},
    {"smoothing", "double_exponential_smoothing(vector(time())[20000000s:1s], 0.5, 0.5)", false},
    {"ts_of_max", "ts_of_max_over_time(vector(time() * 7919 % 1000003)" POINTS, false},
    {"deriv", "deriv(vector(time())" POINTS, false},
    {"rate with resets", "rate(vector(time() % 3)" POINTS, false},
    {"changes", "changes(vector(time() % 3)" POINTS, false},
    {"last_over_time", "last_over_time(vector(1)" POINTS, false},
    {"absent_over_time", "absent_over_time(vector(1)" POINTS, false},
    {"power of a column", "last_over_time((vector(time()) ^ 1.5 % 7 > bool 3)" POINTS, false},
    {"clamp and functions", "last_over_time(clamp(ln(abs(-vector(time()))), 1, 20)" POINTS, false},
    {"scalars", "sum_over_time(vector(-time() ^ scalar(vector(1.5)))" POINTS, false},
    {"avg of a column", "last_over_time(avg(vector(time()))" POINTS, false},
    {"operator", "last_over_time((vector(time()) + on () vector(2))" POINTS, false},
    {"set operator", "last_over_time((vector(time()) > 1e9 or vector(2))" POINTS, false},
    {"absent", "last_over_time(absent(vector(time()) < 0)" POINTS, false},
    {"one to one", "x + x", false},
    {"and", "x and on (id) x", false},
    {"group_left", "x * on (g) group_left () sum by (g) (x)", false},
    {"selector", "x", false},
    {"sum by", "sum by (id) (x)", false},
    {"avg without", "avg without (g) (x)", false},
    {"topk", "topk(15000, x)", false},
    {"limitk", "limitk(15000, x)", false},
    {"limit_ratio", "limit_ratio(0.5, x)", false},
    {"fill", "x - on (id, g, le) fill (1) (x offset 1s)", false},
    {"smoothed", "x smoothed", false},
    {"info", "info(label_replace(label_replace(x, '__name__', 'y', '', ''), 'job', 'j', '', ''))",
     false},
    {"quantile", "quantile by (g) (0.5, x)", false},
    {"count_values", "count_values('v', x)", false},
    {"histogram_quantile", "histogram_quantile(0.9, x)", false},
    {"histogram_quantiles", "histogram_quantiles(x, 'q', 0.9, 0.5, 0.1)", false},
    {"label_replace", "label_replace(x, 'a', '$1', 'id', '(.*)')", false},
    {"label_join", "label_join(x, 'a', ',', 'id', 'g')", false},
    {"sort_by_label", "sort_by_label(x, 'id')", false},
    {"histograms", "h", false},
    {"sum of histograms", "sum by (g) (h)", false},
    {"operator on histograms", "h + h", false},
    {"scaled histograms", "h * 2 / 3", false},
    {"rate of histograms", "rate(h[100s])", false},
    {"mean of histograms over time", "avg_over_time(h[100s])", false},
    {"extended rate of histograms", "increase(h[50s] smoothed)", false},
    {"changes of histograms", "changes(h[200s])", false},
    {"quantile of histograms", "histogram_quantile(0.9, h)", false},
    {"histogram_count", "histogram_count(rate(h[100s]))", false},
    {"deadline of a column", "stddev_over_time(vector(time())" POINTS, true},
    {"deadline of a vector", "x + x", true},
};

/* Growing histograms of 12 buckets. */
static void histograms_add(struct engine *e)
{
    enum { HISTOGRAM_SERIES = 1000, HISTOGRAM_BUCKETS = 12 };
    static const struct histogram_span span = {-5, HISTOGRAM_BUCKETS};

    for (size_t i = 0; i < HISTOGRAM_SERIES; i++) {
        char labels[96];
        size_t s;

        (void)snprintf(labels, sizeof labels, "__name__=h,id=%zu,g=%zu", i, i % GROUPS);
        s = fake_engine_add(e, labels);
        for (int64_t t = 0; t < STEPS; t += 4) {
            double counts[HISTOGRAM_BUCKETS];
            struct histogram h = {.positive = {&span, 1, counts, HISTOGRAM_BUCKETS}};

            for (size_t k = 0; k < HISTOGRAM_BUCKETS; k++)
                h.count += counts[k] = (double)(t * (int64_t)(i % 7 + k));
            fake_engine_histogram(e, s, t * 1000, &h);
        }
    }
}

static struct engine *engine_make(void)
{
    struct engine *e = fake_engine_new();

    histograms_add(e);

    for (size_t i = 0; i < SERIES; i++) {
        char labels[96];
        size_t s;

        (void)snprintf(labels, sizeof labels, "__name__=x,id=%zu,g=%zu,le=%zu", i / BUCKETS,
                       i % GROUPS, i % BUCKETS);
        s = fake_engine_add(e, labels);
        for (int64_t t = 0; t < STEPS; t += 4)
            fake_engine_sample(e, s, t * 1000, (double)(i * 7919 % 10007));
    }
    return e;
}

static double clock_read_ms(clockid_t clock)
{
    struct timespec now;

    CHECK(clock_gettime(clock, &now) == 0);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Raises the flag once `clock` reaches `at_ms`, unless the query ends before. */
struct stopper {
    clockid_t clock; /* CPU of the query's thread */
    double at_ms;
    _Atomic bool stop, ended;
    double raised_ms; /* CPU when the flag went up; written before `stop` */
};

static void *stopper_run(void *arg)
{
    struct stopper *s = arg;
    const struct timespec pause = {.tv_nsec = 1000000};

    while (!atomic_load(&s->ended)) {
        s->raised_ms = clock_read_ms(s->clock);
        if (s->raised_ms >= s->at_ms) {
            atomic_store(&s->stop, true);
            return NULL;
        }
        /* allow(nanosleep): a thread's CPU clock gives no event to wait for */
        (void)nanosleep(&pause, NULL); /* an early end only looks sooner */
    }
    return NULL;
}

/* CPU after the flag, in ms; negative: the query ended by itself before. */
static double stop_once(struct engine *e, const struct shape *shape, double moment_ms)
{
    struct stopper s = {.at_ms = clock_read_ms(CLOCK_THREAD_CPUTIME_ID) + moment_ms};
    struct query_run q;
    pthread_t thread;
    double after_ms;
    enum err got;

    CHECK(pthread_getcpuclockid(pthread_self(), &s.clock) == 0);
    CHECK(pthread_create(&thread, NULL, stopper_run, &s) == 0);
    query_init(&q, e, shape->query);
    q.budget.limit_bytes = (uint64_t)3 << 30;
    q.query.stop = &s.stop;
    got = query_range(&q, 0, INT64_C(1000) * (STEPS - 1), 1000);
    CHECK_MSG(got == ERR_OK || got == ERR_CANCELED, "%s: %s", shape->name, q.ei.message);
    query_done(&q);
    after_ms = clock_read_ms(CLOCK_THREAD_CPUTIME_ID);
    atomic_store(&s.ended, true);
    CHECK(pthread_join(thread, NULL) == 0);
    return got == ERR_OK ? -1 : after_ms - s.raised_ms;
}

/* The same for a deadline, which is wall time: CPU cannot exceed what passed after it. */
static double deadline_once(struct engine *e, const struct shape *shape, double moment_ms)
{
    uint64_t deadline_ns = clock_mono_ns() + (uint64_t)(moment_ms * 1e6);
    double cpu_ms = clock_read_ms(CLOCK_THREAD_CPUTIME_ID), after_ms;
    struct query_run q;
    enum err got;

    query_init(&q, e, shape->query);
    q.budget.limit_bytes = (uint64_t)3 << 30;
    q.query.deadline_mono_ns = deadline_ns;
    got = query_range(&q, 0, INT64_C(1000) * (STEPS - 1), 1000);
    CHECK_MSG(got == ERR_OK || got == ERR_TIMEOUT, "%s: %s", shape->name, q.ei.message);
    query_done(&q);
    cpu_ms = clock_read_ms(CLOCK_THREAD_CPUTIME_ID) - cpu_ms;
    after_ms = (double)(clock_mono_ns() - deadline_ns) / 1e6;
    return got == ERR_OK ? -1 : after_ms < cpu_ms ? after_ms : cpu_ms;
}

/* Stops at a moment, or sooner where a fast machine has the answer by then: down to 1 ms. */
static double stop_before_end(struct engine *e, const struct shape *shape, double moment_ms)
{
    double ms = -1;

    for (; ms < 0 && moment_ms >= 1; moment_ms /= 2)
        ms = shape->by_deadline ? deadline_once(e, shape, moment_ms)
                                : stop_once(e, shape, moment_ms);
    return ms;
}

static void test_stop_latency(void **state)
{
    struct engine *e = engine_make();

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct shape *shape = &shapes[i];
        double worst_ms = -1;

        for (size_t m = 0; m < sizeof moments_ms / sizeof moments_ms[0]; m++) {
            double ms = stop_before_end(e, shape, moments_ms[m]);

            CHECK_MSG(ms >= 0, "%s ended before it was stopped", shape->name);
            worst_ms = ms > worst_ms ? ms : worst_ms;
        }
        printf("stop_latency_ms %-20s %.1f\n", shape->name, worst_ms);
        CHECK_MSG(worst_ms < LATENCY_MAX_MS, "%s took %.0f ms of CPU to stop", shape->name,
                  worst_ms);
    }
    fake_engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stop_latency)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
