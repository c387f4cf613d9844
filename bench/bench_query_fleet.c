/*
 * What the queries of dashboards cost inside of one process: the heavy queries of
 * bench_query_peers.py over the GPU-fleet stream, two hours at 15 s, out of memory, sealed files
 * and parts, without HTTP and on one thread. For work on decoders and the evaluator: it is short,
 * and one query in one place can be profiled by itself.
 *
 * One figure a line: the best of some runs, of this thread's CPU time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "bench/bench_support.h"
#include "bench/fleet_feed.h"
#include "bench/query_timing.h"
#include "engine/maintain.h"
#include "promql/promql.h"

enum {
    INTERVAL_MS = 15000,
    SCRAPES = 480,
    MINUTE_SCRAPES = 60000 / INTERVAL_MS,
    TEAMS = 12,
    GPU_MAX = 1 << 16,
    UUID_SIZE = 64,
};
/* The end of a window of two hours, 8 s before it: nearly all samples share it. */
#define START_MS (INT64_C(1767225600000) + 8000)

static const char usage[] =
    "usage: bench_query_fleet [nodes] [runs] [place] [query]\n"
    "  default 100 nodes of 1,000 series, 9 runs, all places (1 memory, 2 sealed, 3 parts)\n"
    "  and all queries (1 rate, 2 quantile, 3 topk, 4 avg, 5 join, 6 count)\n";

static const struct {
    const char *name, *text;
    int64_t step_ms; /* 0: an instant query */
} queries[] = {
    {"rate", "sum by (instance) (rate(node_cpu_seconds_total{mode!=\"idle\"}[5m]))", 60000},
    {"quantile",
     "histogram_quantile(0.99, sum by (le) "
     "(rate(kubelet_http_requests_duration_seconds_bucket[5m])))",
     60000},
    {"topk", "topk(10, max_over_time(DCGM_FI_DEV_GPU_TEMP[1h]))", 60000},
    {"avg", "avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)", 15000},
    {"join", "sum by (team) (DCGM_FI_DEV_POWER_USAGE * on (UUID) group_left (team) gpu_owner_info)",
     60000},
    {"count", "count({__name__=~\".+\"})", 0},
};
enum { QUERY_COUNT = sizeof queries / sizeof queries[0] };

struct bench {
    struct clock clock;
    struct engine *engine;
    struct fleet_feed feed;
    char (*uuids)[UUID_SIZE]; /* owned: of all GPUs */
    size_t uuid_count;
    uint32_t runs, place, query; /* 0: all */
};

/* ---- the data ---- */

static size_t wire_string(uint8_t *out, unsigned field, const char *text)
{
    size_t size = strlen(text), at = 0;

    out[at++] = (uint8_t)(field << 3 | 2);
    at += varint_write(out + at, size);
    for (size_t i = 0; i < size; i++) /* memcpy() would be told to copy the NUL, too */
        out[at + i] = (uint8_t)text[i];
    return at + size;
}

static size_t wire_label(uint8_t *out, const char *name, const char *value)
{
    uint8_t body[2 * UUID_SIZE];
    size_t size = wire_string(body, 1, name), at = 0;

    size += wire_string(body + size, 2, value);
    out[at++] = 1 << 3 | 2;
    at += varint_write(out + at, size);
    memcpy(out + at, body, size);
    return at + size;
}

/* Notes the GPUs of a node: their UUIDs stand in the labels of one of their metrics. */
static void uuids_collect(struct bench *b, const struct fleet_sample *samples, size_t count)
{
    struct label labels[FLEET_LABEL_MAX];

    for (size_t i = 0; i < count; i++) {
        size_t n = fleet_labels_parse(samples[i].labels, labels);
        bool is_power = false;

        for (size_t k = 0; k < n; k++)
            is_power |= str_equal(labels[k].value, STR_LITERAL("DCGM_FI_DEV_POWER_USAGE"));
        for (size_t k = 0; k < n && is_power; k++) {
            if (!str_equal(labels[k].name, STR_LITERAL("UUID")))
                continue;
            if (b->uuid_count == GPU_MAX || labels[k].value.size >= UUID_SIZE)
                bench_fail("more GPUs, or longer UUIDs, than the benchmark is made for", NULL);
            memcpy(b->uuids[b->uuid_count++], labels[k].value.data, labels[k].value.size);
        }
    }
}

/* An info series for every GPU: which team it belongs to. */
static void feed_owners(struct bench *b, int64_t t_ms)
{
    for (size_t i = 0; i < b->uuid_count; i++) {
        uint8_t wire[8 * UUID_SIZE];
        char team[32];
        size_t size = wire_label(wire, "UUID", b->uuids[i]);

        (void)snprintf(team, sizeof team, "team-%02zu", i % TEAMS);
        size += wire_label(wire + size, "__name__", "gpu_owner_info");
        size += wire_label(wire + size, "team", team);
        fleet_feed_sample(&b->feed, &(struct fleet_sample){{wire, size}, t_ms, 1});
    }
    fleet_feed_send(&b->feed);
}

static void fill(struct bench *b, const struct fleet_options *fleet)
{
    struct fleet_source twin; /* tells the labels */

    fleet_source_init(&twin, fleet);
    for (uint32_t n = 0; n < twin.node_count; n++) {
        const struct fleet_sample *samples;
        size_t count = fleet_node_scrape(twin.nodes, n, &samples);

        uuids_collect(b, samples, count);
    }
    fleet_source_done(&twin);
    for (int k = 0; k < SCRAPES; k++) {
        fleet_feed_scrape(&b->feed);
        if (k % MINUTE_SCRAPES == 0)
            feed_owners(b, START_MS + (int64_t)k * INTERVAL_MS);
        fleet_feed_wait(&b->feed);
    }
}

/* ---- queries ---- */

static double query_cpu_s(struct bench *b, size_t which)
{
    const struct promql_settings settings = {.lookback_delta_ms = 300000, .default_step_ms = 60000};
    int64_t end_ms = START_MS + (int64_t)(SCRAPES - 1) * INTERVAL_MS;
    bool is_range = queries[which].step_ms > 0;
    const struct promql_query query = {.engine = b->engine,
                                       .settings = &settings,
                                       .text = str_from(queries[which].text),
                                       .is_range = is_range,
                                       .start_ms = is_range ? START_MS : end_ms,
                                       .end_ms = end_ms,
                                       .step_ms = queries[which].step_ms};
    struct query_timing t = query_time(query, b->runs);

    if (t.series_count == 0)
        bench_fail("a query without an answer", NULL);
    return t.cpu_s;
}

static void measure(struct bench *b, uint32_t place, const char *name)
{
    if (b->place != 0 && b->place != place)
        return;
    for (size_t i = 0; i < QUERY_COUNT; i++) {
        char text[64];

        if (b->query != 0 && b->query != i + 1)
            continue;
        (void)snprintf(text, sizeof text, "query_fleet_%s_%s_cpu", queries[i].name, name);
        bench_figure(text, query_cpu_s(b, i) * 1000, "ms", "");
        (void)fflush(stdout);
    }
}

static void run(struct bench *b)
{
    struct errinfo ei = {0};

    measure(b, 1, "memory");
    for (uint32_t i = 0; i < engine_shard_count(b->engine); i++) {
        struct seal_result sealed;

        bench_check(engine_seal(b->engine, i, SEAL_INTERVAL, NULL, &sealed, &ei), &ei);
    }
    measure(b, 2, "sealed");
    for (uint32_t i = 0; i < engine_shard_count(b->engine); i++) {
        struct flush_result flushed;

        bench_check(engine_flush(b->engine, i, INT64_MAX, NULL, &flushed, &ei), &ei);
    }
    measure(b, 3, "parts");
}

int main(int argc, char **argv)
{
    struct fleet_options fleet = {
        .profile = FLEET_GPU, .seed = 1, .interval_ms = INTERVAL_MS, .start_ms = START_MS};
    struct bench b = {.uuids = calloc(GPU_MAX, UUID_SIZE)};
    struct engine_replay_result replayed;
    struct engine_options options;
    struct errinfo ei = {0};
    struct bench_args args;
    struct bench_dir dir;

    if (b.uuids == NULL)
        bench_fail("out of memory", NULL);
    bench_args_init(&args, argc, argv, 4, usage);
    fleet.node_count = bench_args_number(&args, 0, 100);
    b.runs = bench_args_number(&args, 1, 9);
    b.place = args.count > 2 ? bench_args_number(&args, 2, 1) : 0;
    b.query = args.count > 3 ? bench_args_number(&args, 3, 1) : 0;
    process_memory_setup(); /* as the server does */
    bench_dir_open(&dir, FS_IO_POSIX);
    clock_init_fake(&b.clock, START_MS + (int64_t)SCRAPES * INTERVAL_MS);
    options = (struct engine_options){
        .fs = dir.fs, .clock = &b.clock, .wal_sync = WAL_SYNC_NEVER, .hash_secret_seed = 1};
    bench_check(engine_open(&options, &b.engine, &ei), &ei);
    bench_check(engine_replay(b.engine, 1, &replayed, &ei), &ei);
    fleet_feed_init(&b.feed, b.engine, &fleet);
    fill(&b, &fleet);
    run(&b);
    bench_check(engine_close(b.engine, 60000, &ei), &ei);
    fleet_feed_done(&b.feed);
    free(b.uuids);
    bench_dir_close(&dir);
    return 0;
}
