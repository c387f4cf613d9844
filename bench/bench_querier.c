/*
 * The querier on 1 M series of the GPU-fleet stream, 5 samples each, in memory: CPU time of the
 * calls a query is made of. One figure a line, with the number of series, samples or values it is
 * about.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file_sim.h"
#include "bench/bench_support.h"
#include "bench/fleet_capture.h"
#include "engine/engine.h"
#include "engine/querier.h"
#include "engine/write.h"

enum { START_SCRAPES_AGO = 30 };

static const char usage[] = "usage: bench_querier [nodes] [scrapes]\n"
                            "  default 1000 nodes of 1,000 series, 5 scrapes\n";

struct bench {
    struct engine *engine;
    struct querier *querier;
    struct write_batch *batch;
    struct write_result result;
    struct errinfo ei;
};

static void write_samples(struct bench *b, const struct fleet_sample *samples, size_t count)
{
    write_batch_reset(b->batch);
    for (size_t i = 0; i < count; i++) {
        if (!write_batch_grow_series(b->batch) || !write_batch_grow_samples(b->batch))
            bench_fail("memory", &b->ei);
        b->batch->series[b->batch->series_count++] = (struct write_series){
            .sender_key = hash128_bytes(engine_hash_secret(b->engine), samples[i].labels.data,
                                        samples[i].labels.size),
            .wire_labels = samples[i].labels,
            .sample_first = (uint32_t)b->batch->sample_count,
            .sample_count = 1};
        b->batch->samples[b->batch->sample_count++] =
            (struct write_sample){samples[i].t_ms, samples[i].value};
    }
    /* The log's queue refuses for a moment when the disk is slower than we are. */
    while (engine_write(b->engine, b->batch, &b->result, &b->ei) == ERR_UNAVAILABLE)
        errinfo_clear(&b->ei);
    if (b->ei.code != ERR_OK || b->result.refused_count != 0)
        bench_fail("write", &b->ei);
}

static void load(struct bench *b, uint32_t node_count, uint32_t scrapes)
{
    struct fleet_options options = {
        .profile = FLEET_GPU, .seed = 1, .node_count = node_count, .interval_ms = 15000};
    struct clock clock;
    struct fleet_source fleet;

    clock_init_real(&clock);
    options.start_ms = clock_now_ms(&clock) - START_SCRAPES_AGO * options.interval_ms;
    fleet_source_init(&fleet, &options);
    for (uint32_t s = 0; s < scrapes; s++) {
        for (uint32_t i = 0; i < node_count; i++) {
            const struct fleet_sample *samples;
            size_t n = fleet_node_scrape(fleet.nodes, i, &samples);

            write_samples(b, samples, n);
        }
    }
    fleet_source_done(&fleet);
}

static void report(const char *call, const char *what, uint64_t ns, size_t count)
{
    printf("querier_%s_%s_cpu %.2f ms (%zu)\n", call, what, (double)ns / 1e6, count);
}

struct pattern {
    enum matcher_kind kind;
    const char *name, *value;
};

/* Selects, sorts, and reads labels and samples as a query of the last five minutes would. */
static void time_query(struct bench *b, const char *what, struct pattern pattern)
{
    const struct str by[] = {STR_LITERAL("instance")};
    struct matcher m;
    struct arena arena;
    struct series_list list;
    struct str *values;
    uint64_t start;
    uint64_t samples = 0;
    uint64_t read_ns = 0;

    arena_init(&arena, NULL);
    if (matcher_init(&m, pattern.kind, str_from(pattern.name), str_from(pattern.value), &arena,
                     &b->ei) != ERR_OK)
        bench_fail("matcher", &b->ei);
    start = clock_thread_cpu_ns();
    if (querier_select(b->querier, &m, 1, INT64_MIN, INT64_MAX, &arena, &list, &b->ei) != ERR_OK)
        bench_fail("select", &b->ei);
    report("select", what, clock_thread_cpu_ns() - start, list.count);
    start = clock_thread_cpu_ns();
    if (querier_sort(b->querier, &list, &b->ei) != ERR_OK)
        bench_fail("sort", &b->ei);
    report("sort", what, clock_thread_cpu_ns() - start, list.count);
    values = ARENA_ARRAY(&arena, list.count, struct str);
    start = clock_thread_cpu_ns();
    if (values == NULL || querier_label_values_of(b->querier, list.items, list.count, by, 1, values,
                                                  &b->ei) != ERR_OK)
        bench_fail("values of", &b->ei);
    report("values_of", what, clock_thread_cpu_ns() - start, list.count);
    for (size_t i = 0; i < list.count; i += QUERIER_READ_BATCH_MAX) {
        size_t n =
            list.count - i < QUERIER_READ_BATCH_MAX ? list.count - i : QUERIER_READ_BATCH_MAX;
        struct column columns[QUERIER_READ_BATCH_MAX];
        struct arena_mark mark = arena_mark_get(&arena);

        start = clock_thread_cpu_ns();
        if (querier_read(b->querier, list.items + i, n, INT64_MIN, INT64_MAX, &arena, columns,
                         &b->ei) != ERR_OK)
            bench_fail("read", &b->ei);
        read_ns += clock_thread_cpu_ns() - start;
        for (size_t k = 0; k < n; k++)
            samples += columns[k].count;
        arena_mark_return(&arena, mark);
    }
    report("read", what, read_ns, samples);
    matcher_done(&m);
    arena_done(&arena);
}

static void time_values(struct bench *b, const char *name, const struct matcher_set *set)
{
    struct arena arena;
    struct str_list list;
    bool truncated;
    uint64_t start = clock_thread_cpu_ns();

    arena_init(&arena, NULL);
    if (querier_label_values(b->querier, str_from(name), set, set != NULL, INT64_MIN, INT64_MAX, 0,
                             &arena, &list, &truncated, &b->ei) != ERR_OK)
        bench_fail("label values", &b->ei);
    report(set == NULL ? "label_values" : "label_values_matched", name,
           clock_thread_cpu_ns() - start, list.count);
    arena_done(&arena);
}

static void time_all_labels(struct bench *b)
{
    struct arena arena, slice;
    struct series_list list;
    uint64_t start;

    arena_init(&arena, NULL);
    arena_init(&slice, NULL);
    if (querier_select(b->querier, NULL, 0, INT64_MIN, INT64_MAX, &arena, &list, &b->ei) != ERR_OK)
        bench_fail("select", &b->ei);
    start = clock_thread_cpu_ns();
    for (size_t i = 0; i < list.count; i += QUERIER_READ_BATCH_MAX) {
        size_t n =
            list.count - i < QUERIER_READ_BATCH_MAX ? list.count - i : QUERIER_READ_BATCH_MAX;
        struct labels sets[QUERIER_READ_BATCH_MAX];

        if (querier_labels(b->querier, list.items + i, n, &slice, sets, &b->ei) != ERR_OK)
            bench_fail("labels", &b->ei);
        arena_reset(&slice);
    }
    report("labels", "all", clock_thread_cpu_ns() - start, list.count);
    arena_done(&slice);
    arena_done(&arena);
}

static void time_calls(struct bench *b)
{
    struct arena arena;
    struct matcher m;
    struct matcher_set set = {&m, 1};

    arena_init(&arena, NULL);
    time_query(b, "all", (struct pattern){MATCHER_REGEX, "__name__", ".+"});
    time_query(b, "cpu", (struct pattern){MATCHER_EQUAL, "__name__", "node_cpu_seconds_total"});
    time_query(b, "one_instance", (struct pattern){MATCHER_REGEX, "instance", ".*0017.*"});
    time_all_labels(b);
    time_values(b, "__name__", NULL);
    time_values(b, "instance", NULL);
    time_values(b, "pod", NULL);
    if (matcher_init(&m, MATCHER_EQUAL, STR_LITERAL("__name__"),
                     STR_LITERAL("node_cpu_seconds_total"), &arena, &b->ei) != ERR_OK)
        bench_fail("matcher", &b->ei);
    time_values(b, "instance", &set);
    matcher_done(&m);
    arena_done(&arena);
}

int main(int argc, char **argv)
{
    struct bench_args args;
    uint32_t nodes, scrapes;
    struct bench b = {0};
    struct engine_options options = {.hash_secret_seed = 1, .wal_sync = WAL_SYNC_NEVER};
    struct engine_replay_result replayed;
    struct clock clock;

    bench_args_init(&args, argc, argv, 2, usage);
    nodes = bench_args_number(&args, 0, 1000);
    scrapes = bench_args_number(&args, 1, 5);
    clock_init_real(&clock);
    options.clock = &clock;
    /* The log goes to memory: this is about reading. */
    if (fs_sim_new(1, &options.fs, &b.ei) != ERR_OK ||
        engine_open(&options, &b.engine, &b.ei) != ERR_OK ||
        engine_replay(b.engine, 1, &replayed, &b.ei) != ERR_OK ||
        querier_open(b.engine, &b.querier, &b.ei) != ERR_OK ||
        write_batch_new(&b.batch, &b.ei) != ERR_OK)
        bench_fail("open", &b.ei);
    b.batch->labels_parse = fleet_labels_parse_write;
    b.result.sequences = calloc(engine_shard_count(b.engine), sizeof(uint64_t));
    if (b.result.sequences == NULL)
        bench_fail("memory", &b.ei);
    load(&b, nodes, scrapes);
    time_calls(&b);
    querier_close(b.querier);
    write_batch_free(b.batch);
    free(b.result.sequences);
    if (engine_close(b.engine, 10000, &b.ei) != ERR_OK)
        bench_fail("close", &b.ei);
    fs_free(options.fs);
    return 0;
}
