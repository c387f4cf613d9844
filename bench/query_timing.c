#include "bench/query_timing.h"

#include "base/clock.h"
#include "bench/bench_support.h"

struct query_timing query_time(struct promql_query query, uint32_t runs)
{
    struct query_timing out = {0};

    for (uint32_t i = 0; i < runs; i++) {
        struct promql_handle *handle = NULL;
        struct promql_result result;
        struct errinfo ei = {0};
        struct budget memory;
        struct arena arena;
        uint64_t before;
        double cpu_s;

        budget_init(&memory, "query memory", UINT64_MAX, NULL);
        query.memory = &memory;
        arena_init(&arena, &memory);
        before = clock_thread_cpu_ns();
        bench_check(promql_query_run(&query, &arena, &result, &handle, &ei), &ei);
        cpu_s = (double)(clock_thread_cpu_ns() - before) / 1e9;
        out = (struct query_timing){
            .cpu_s = i == 0 || cpu_s < out.cpu_s ? cpu_s : out.cpu_s,
            .series_count = result.series_count,
            .samples_read = result.samples_read,
            .peak_bytes = atomic_load_explicit(&memory.peak_bytes, memory_order_relaxed)};
        promql_query_done(handle);
        arena_done(&arena);
    }
    return out;
}
