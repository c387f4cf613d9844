/*
 * Queries that several threads run together: the same bits as on one thread, the same limits, and
 * an end in time.
 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "promql/eval/parallel_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"

enum { SERIES = 12000, END_MS = 1800000, STEP_MS = 60000 };

/* Histograms of several layouts, and sums that depend on the order. */
static void histograms_add(struct engine *e, struct test_random *r)
{
    enum { HISTOGRAM_SERIES = 5000 };

    for (size_t i = 0; i < HISTOGRAM_SERIES; i++) {
        const struct histogram_span span = {(int32_t)(i % 7) - 3, 2};
        char name[96];
        size_t s;

        (void)snprintf(name, sizeof name, "__name__=h,id=%zu,g=%zu", i, i % 30);
        s = fake_engine_add(e, name);
        for (int64_t t = 0; t <= END_MS; t += 300000) {
            double counts[] = {test_random_unit(r) * 1e6, test_random_unit(r) / 3};
            struct histogram h = {.schema = (int32_t)(i % 3),
                                  .count = counts[0] + counts[1],
                                  .sum = test_random_unit(r),
                                  .positive = {&span, 1, counts, 2}};

            fake_engine_histogram(e, s, t, &h);
        }
    }
}

static struct engine *random_engine(struct test_random *r)
{
    struct engine *e = fake_engine_new();

    for (size_t i = 0; i < SERIES; i++) {
        char name[96];
        size_t s;

        (void)snprintf(name, sizeof name, "__name__=%s,id=%zu,g=%zu", i % 2 == 0 ? "x" : "x_total",
                       i, i / 2 % 70);
        s = fake_engine_add(e, name);
        for (int64_t t = 0; t <= END_MS; t += 120000) {
            double unit = test_random_unit(r) - 0.3;

            if (test_random_below(r, 8) != 0)
                fake_engine_sample(e, s, t, i % 3 == 0 ? unit / 3 : unit * 1e9);
        }
    }
    histograms_add(e, r);
    return e;
}

static const char *const queries[] = {
    "sum by (g) (rate(x_total[5m]))",
    "sum(x)",
    "avg by (g) (abs(x) * 2)",
    "min without (id) (x_total * 0)",
    "max by (g) (max_over_time(x[10m]))",
    "count by (g) (x_total > 0)",
    "group by (g) (x)",
    "stddev by (g) (x)",
    "sum by (g) (quantile_over_time(2, x[5m]))",       /* warns */
    "sum by (g) (rate(x[5m])) / sum by (g) (x_total)", /* informs */
    "sum by (g) (avg_over_time(sum by (g) (x_total)[4m:1m]))",
    "avg by (id) (x_total)",
    "sum(clamp_max(x, scalar(avg(x_total))))",
    "sum by (g) (h)",
    "avg by (g) (rate(h[10m]))",
    "sum by (g) ({__name__=~'x|h'})", /* warns of both kinds */
    "max by (g) ({__name__=~'x|h'})", /* informs */
    "count(h)",
    "sum(histogram_count(h))",
};

static void results_check(const struct promql_result *a, const struct promql_result *b,
                          const char *query)
{
    CHECK_MSG(a->series_count == b->series_count && a->step_count == b->step_count, "%s", query);
    for (size_t i = 0; i < a->series_count; i++)
        CHECK_MSG(result_rows_equal(a, b, i), "%s: row %zu", query, i);
    CHECK_MSG(a->annotation_count == b->annotation_count, "%s", query);
    for (size_t i = 0; i < a->annotation_count; i++)
        CHECK(strcmp(a->annotations[i].text, b->annotations[i].text) == 0);
    CHECK(a->samples_read == b->samples_read);
}

static void helped_init(struct query_run *q, struct engine *e, const char *text,
                        struct thread_pool *pool, uint32_t helper_count)
{
    query_init(q, e, text);
    q->settings.helpers = pool;
    q->settings.helper_count = helper_count;
}

static struct thread_pool *pool_new(uint32_t thread_count, uint32_t queue_limit)
{
    struct errinfo ei = {0};
    struct thread_pool *pool;

    CHECK_OK(thread_pool_new("helper", thread_count, queue_limit, &pool, &ei), &ei);
    return pool;
}

static void test_same_bits(void **state)
{
    struct test_random r = test_random_init(21);
    struct engine *e = random_engine(&r);
    struct thread_pool *pool = pool_new(7, 64);

    (void)state;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        struct query_run alone;

        e->order_seed = 0;
        query_init(&alone, e, queries[i]);
        CHECK_OK(query_range(&alone, 0, END_MS, STEP_MS), &alone.ei);
        CHECK_MSG(alone.result.series_count > 0, "%s", queries[i]);
        for (uint32_t helper_count = 1; helper_count <= 7; helper_count += 6) {
            struct query_run helped;

            e->order_seed = helper_count;
            helped_init(&helped, e, queries[i], pool, helper_count);
            CHECK_OK(query_range(&helped, 0, END_MS, STEP_MS), &helped.ei);
            results_check(&alone.result, &helped.result, queries[i]);
            query_done(&helped);
        }
        query_done(&alone);
    }
    CHECK(atomic_load(&e->helped_reads) > 0);
    thread_pool_free(pool);
    fake_engine_free(e);
}

/* Whatever the limit, both end in the same way. */
static void test_limits(void **state)
{
    struct test_random r = test_random_init(22);
    struct engine *e = random_engine(&r);
    struct thread_pool *pool = pool_new(7, 64);
    size_t refused = 0, granted = 0;

    (void)state;
    for (uint64_t limit = 64 << 10; limit <= (uint64_t)64 << 20; limit += limit / 2) {
        struct query_run runs[2];
        enum err results[2];

        for (size_t i = 0; i < 2; i++) {
            helped_init(&runs[i], e, "avg by (id) (rate(x_total[5m]))", i == 0 ? NULL : pool, 7);
            budget_init(&runs[i].budget, "query memory", limit, NULL);
            results[i] = query_range(&runs[i], 0, END_MS, STEP_MS);
        }
        CHECK_MSG(results[0] == results[1], "limit %llu: %s", (unsigned long long)limit,
                  runs[1].ei.message);
        if (results[0] == ERR_OK)
            results_check(&runs[0].result, &runs[1].result, "limit");
        else
            CHECK(strcmp(runs[0].ei.message, runs[1].ei.message) == 0);
        refused += results[0] == ERR_LIMIT;
        granted += results[0] == ERR_OK;
        for (size_t i = 0; i < 2; i++)
            query_done(&runs[i]);
    }
    CHECK(refused > 2 && granted > 2);
    thread_pool_free(pool);
    fake_engine_free(e);
}

/* No sample more than one thread would hold is refused. */
static void test_sample_limit(void **state)
{
    struct test_random r = test_random_init(23);
    struct engine *e = random_engine(&r);
    struct thread_pool *pool = pool_new(7, 64);

    (void)state;
    for (uint64_t limit = 1; limit < 200; limit += 6) {
        struct query_run runs[2];
        enum err results[2];

        for (size_t i = 0; i < 2; i++) {
            helped_init(&runs[i], e, "sum(sum_over_time(x[30m]))", i == 0 ? NULL : pool, 7);
            runs[i].settings.max_samples = limit;
            results[i] = query_range(&runs[i], 0, END_MS, STEP_MS);
        }
        CHECK(results[0] == results[1]);
        for (size_t i = 0; i < 2; i++)
            query_done(&runs[i]);
    }
    thread_pool_free(pool);
    fake_engine_free(e);
}

static void test_stop(void **state)
{
    struct test_random r = test_random_init(24);
    struct engine *e = random_engine(&r);
    struct thread_pool *pool = pool_new(7, 64);

    (void)state;
    for (size_t i = 0; i < sizeof queries / sizeof queries[0]; i++) {
        _Atomic bool stop = false;
        struct query_run q;

        e->set_on_read = &stop;
        helped_init(&q, e, queries[i], pool, 7);
        q.query.stop = &stop;
        CHECK_MSG(query_range(&q, 0, (int64_t)END_MS * 100, 10000) == ERR_CANCELED, "%s: %s",
                  queries[i], q.ei.message);
        query_done(&q);
        e->set_on_read = NULL;
        helped_init(&q, e, queries[i], pool, 7);
        q.query.deadline_mono_ns = clock_mono_ns() + 2000000;
        CHECK(query_range(&q, 0, (int64_t)END_MS * 1000, 10000) == ERR_TIMEOUT);
        query_done(&q);
    }
    thread_pool_free(pool);
    fake_engine_free(e);
}

struct gate {
    struct mutex lock;
    struct cond changed;
    bool is_open;
};

static void gate_wait(void *arg)
{
    struct gate *g = arg;

    mutex_lock(&g->lock);
    while (!g->is_open)
        cond_wait(&g->changed, &g->lock);
    mutex_unlock(&g->lock);
}

/* A pool that is busy with others helps nobody and holds up nobody; its late tasks do nothing. */
static void test_busy_pool(void **state)
{
    struct test_random r = test_random_init(25);
    struct engine *e = random_engine(&r);
    struct thread_pool *pool = pool_new(1, 3);
    struct gate gate = {.is_open = false};

    (void)state;
    mutex_init(&gate.lock);
    cond_init(&gate.changed);
    CHECK(thread_pool_submit(pool, gate_wait, &gate) == ERR_OK);
    for (size_t i = 0; i < 4; i++) { /* the queue fills */
        struct query_run q;

        helped_init(&q, e, queries[0], pool, 1);
        CHECK_OK(query_range(&q, 0, END_MS, STEP_MS), &q.ei);
        query_done(&q);
    }
    mutex_lock(&gate.lock);
    gate.is_open = true;
    cond_broadcast(&gate.changed);
    mutex_unlock(&gate.lock);
    thread_pool_free(pool);
    cond_done(&gate.changed);
    mutex_done(&gate.lock);
    fake_engine_free(e);
}

static void *query_thread(void *arg)
{
    struct query_run *q = arg;

    for (int i = 0; i < 3; i++) {
        CHECK_OK(query_range(q, 0, END_MS, STEP_MS), &q->ei);
        promql_query_done(q->handle);
        q->handle = NULL;
        arena_reset(&q->arena);
    }
    return NULL;
}

/* Queries at once share a pool. */
static void test_shared_pool(void **state)
{
    enum { QUERIES = 4 };
    struct test_random r = test_random_init(26);
    struct engine *e = random_engine(&r);
    struct thread_pool *pool = pool_new(3, 8);
    struct query_run runs[QUERIES];
    struct thread threads[QUERIES] = {{0}};
    struct errinfo ei = {0};

    (void)state;
    for (size_t i = 0; i < QUERIES; i++) {
        helped_init(&runs[i], e, queries[i], pool, 3);
        CHECK_OK(thread_start(&threads[i], "query", query_thread, &runs[i], &ei), &ei);
    }
    for (size_t i = 0; i < QUERIES; i++) {
        thread_join(&threads[i]);
        query_done(&runs[i]);
    }
    thread_pool_free(pool);
    fake_engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_sample_limit), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_busy_pool),    cmocka_unit_test(test_shared_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
