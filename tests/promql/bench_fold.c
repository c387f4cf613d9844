/*
 * What the evaluator costs by itself: samples a CPU-second of folds over columns that are decoded
 * already, handed over by the fake engine (a copy of each column, which is counted too). Labels are
 * worked out once a series, so they are in it as well. One figure a line.
 *
 * 1,200 counters of 480 samples (two hours at 15 s), timestamps shared by each 100 series, as a
 * target's are: more than are summed in label order, and so few that columns come from a cache, as
 * decoded ones do. The best of many runs, of this thread's CPU time.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bench/bench_support.h"
#include "tests/promql/query_support.h"

enum {
    SERIES = 1200,
    TARGET_SERIES = 100,
    SAMPLES = 480,
    INTERVAL_MS = 15000,
    RUNS = 60,
};
#define START_MS INT64_C(1767225600000) /* 2026-01-01T00:00:00Z */

static const char usage[] = "usage: bench_fold\n";

static struct engine *filled(void)
{
    struct engine *e = fake_engine_new();
    uint64_t random = 1;

    for (int i = 0; i < SERIES; i++) {
        char text[128];
        size_t series;
        double value = 0;

        (void)snprintf(text, sizeof text, "__name__=m,instance=node-%03d,mode=m%d",
                       i / TARGET_SERIES, i % TARGET_SERIES);
        series = fake_engine_add(e, text);
        for (int k = 0; k < SAMPLES; k++) {
            value += (double)(bench_random(&random) % 1500) / 100;
            fake_engine_sample(e, series, START_MS + (int64_t)k * INTERVAL_MS + i / TARGET_SERIES,
                               value);
        }
    }
    return e;
}

static void measure(struct engine *e, const char *name, const char *text, int64_t step_ms)
{
    const int64_t end_ms = START_MS + (int64_t)SAMPLES * INTERVAL_MS;
    double best = 0;

    for (int i = 0; i < RUNS; i++) {
        struct query_run r;
        uint64_t before;
        double cpu_s;

        query_init(&r, e, text);
        before = clock_thread_cpu_ns();
        bench_check(query_range(&r, START_MS, end_ms, step_ms), &r.ei);
        cpu_s = (double)(clock_thread_cpu_ns() - before) / 1e9;
        best = i == 0 || cpu_s < best ? cpu_s : best;
        if (r.result.series_count == 0)
            bench_fail("no result", NULL);
        query_done(&r);
    }
    bench_figure(name, (double)SERIES * SAMPLES / best / 1e6, "M samples/CPU-s", "budget 500");
}

int main(int argc, char **argv)
{
    struct bench_args args;
    struct engine *e;

    bench_args_init(&args, argc, argv, 0, usage);
    e = filled();
    measure(e, "fold_rate", "sum by (instance)(rate(m[5m]))", 60000);
    measure(e, "fold_sum", "sum by (instance)(m)", INTERVAL_MS);
    measure(e, "fold_sum_60s", "sum by (instance)(m)", 60000);
    measure(e, "fold_increase_one_group", "sum(increase(m[5m]))", 60000);
    fake_engine_free(e);
    return 0;
}
