/*
 * What queries cost by themselves: CPU of promql_query_run() over a store that is filled through
 * engine_write() in this process. One figure a line: name, value, unit, budget.
 *
 *   rate   sum by (instance)(rate(node_cpu_seconds_total[5m])) over 44,800 series of the GPU-fleet
 *          stream's CPU counters, two hours at 15 s, a point every minute; out of memory, after a
 *          seal out of sealed files, and after a flush out of parts
 *   count  count({__name__=~".+"}) over 1 M series with one sample each
 *
 * The best of five runs, of this thread's CPU time: the log's threads do not count.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/bench_support.h"
#include "bench/query_timing.h"
#include "engine/engine.h"
#include "engine/maintain.h"
#include "engine/write.h"
#include "promql/promql.h"

enum {
    INTERVAL_MS = 15000,
    RATE_SAMPLES = 480, /* two hours */
    RATE_NODES = 700,
    RATE_CPUS = 8,
    RATE_MODES = 8,
    COUNT_SERIES = 1000000,
    BATCH_SERIES = 2000,
    RUNS = 5,
};
#define START_MS INT64_C(1767225600000) /* 2026-01-01T00:00:00Z */

static const char usage[] = "usage: bench_query\n"
                            "  by environment: BENCH_DIR (default TMPDIR or /tmp)\n";

struct bench {
    struct clock clock;
    struct engine *engine;
    struct write_batch *batch;
    struct write_result result;
    struct arena arena; /* wire labels of the batch at hand */
    struct bench_dir dir;
};

/* The benchmark's own wire form: varint-length strings, names and values in turn. */
static enum err wire_parse(const void *ctx, struct bytes wire, struct arena *arena,
                           struct labels *out)
{
    struct byte_reader in = reader_init(wire.data, wire.size);
    struct label *items = ARENA_ARRAY(arena, wire.size / 2 + 1, struct label);
    size_t count = 0;

    (void)ctx;
    if (items == NULL)
        return ERR_NOMEM;
    for (; reader_left(&in) > 0; count++) {
        struct str part[2];

        for (int i = 0; i < 2; i++) {
            part[i].size = (size_t)reader_varint(&in);
            part[i].data = (const char *)reader_take(&in, part[i].size);
        }
        if (in.failed)
            return ERR_INVALID;
        items[count] = (struct label){part[0], part[1]};
    }
    *out = (struct labels){count, items};
    return ERR_OK;
}

static void bench_open(struct bench *b, int64_t now_ms)
{
    struct errinfo ei = {0};
    struct engine_options options;
    struct engine_replay_result replay;

    memset(b, 0, sizeof *b);
    bench_dir_open(&b->dir, FS_IO_POSIX);
    clock_init_fake(&b->clock, now_ms);
    options = (struct engine_options){
        .fs = b->dir.fs, .clock = &b->clock, .wal_sync = WAL_SYNC_NEVER, .hash_secret_seed = 1};
    bench_check(engine_open(&options, &b->engine, &ei), &ei);
    bench_check(engine_replay(b->engine, 1, &replay, &ei), &ei);
    bench_check(write_batch_new(&b->batch, &ei), &ei);
    b->batch->labels_parse = wire_parse;
    b->result.sequences = calloc(engine_shard_count(b->engine), sizeof(uint64_t));
    if (b->result.sequences == NULL)
        bench_fail("no memory", NULL);
    arena_init(&b->arena, NULL);
}

static void bench_close(struct bench *b)
{
    struct errinfo ei = {0};

    bench_check(engine_close(b->engine, 60000, &ei), &ei);
    write_batch_free(b->batch);
    free(b->result.sequences);
    arena_done(&b->arena);
    bench_dir_close(&b->dir);
}

/* Stores the batch; waits while the log is behind. */
static void batch_store(struct bench *b)
{
    struct errinfo ei = {0};
    enum err e;

    while ((e = engine_write(b->engine, b->batch, &b->result, &ei)) == ERR_UNAVAILABLE) {
        errinfo_clear(&ei);
        (void)usleep(2000); /* the log's committer needs a moment */
    }
    bench_check(e, &ei);
    if (b->result.refused_count != 0)
        bench_fail("samples were refused", NULL);
    write_batch_reset(b->batch);
    arena_reset(&b->arena);
}

/* `text` is "name=value,name=value". */
static void batch_add(struct bench *b, const char *text, int64_t t_ms, double value)
{
    struct write_batch *batch = b->batch;
    size_t size = 0;
    uint8_t *wire = arena_alloc(&b->arena, 2 * strlen(text) + 32);

    if (wire == NULL || !write_batch_grow_series(batch) || !write_batch_grow_samples(batch))
        bench_fail("no memory for the batch", NULL);
    for (const char *p = text; *p != '\0';) {
        size_t length = strcspn(p, "=,");

        size += varint_write(wire + size, length);
        memcpy(wire + size, p, length);
        size += length;
        p += length + (p[length] != '\0');
    }
    batch->series[batch->series_count++] = (struct write_series){
        .sender_key = hash128_bytes(engine_hash_secret(b->engine), wire, size),
        .wire_labels = {wire, size},
        .sample_first = (uint32_t)batch->sample_count,
        .sample_count = 1,
    };
    batch->samples[batch->sample_count++] = (struct write_sample){t_ms, value};
    if (batch->series_count == BATCH_SERIES)
        batch_store(b);
}

/* Best CPU time of a query in seconds; prints the size of the answer to stderr, so that a benchmark
 * of nothing is seen. */
static double query_cpu_s(struct bench *b, const char *text, int64_t start_ms, int64_t end_ms,
                          int64_t step_ms)
{
    const struct promql_settings settings = {.lookback_delta_ms = 300000, .default_step_ms = 60000};
    const struct promql_query query = {.engine = b->engine,
                                       .settings = &settings,
                                       .text = str_from(text),
                                       .is_range = step_ms > 0,
                                       .start_ms = start_ms,
                                       .end_ms = end_ms,
                                       .step_ms = step_ms};
    struct query_timing t = query_time(query, RUNS);

    fprintf(stderr, "%s: %zu series, %" PRIu64 " samples read, peak %" PRIu64 " bytes\n", text,
            t.series_count, t.samples_read, t.peak_bytes);
    return t.cpu_s;
}

/* Centisecond counters whose step is uniform below the interval, as the stream's are. */
static void fill_rate(struct bench *b)
{
    static const char *const modes[RATE_MODES] = {"idle",    "iowait", "irq",    "nice",
                                                  "softirq", "steal",  "system", "user"};
    const size_t count = (size_t)RATE_NODES * RATE_CPUS * RATE_MODES;
    uint64_t *counters = calloc(count, sizeof *counters), random = 1;

    if (counters == NULL)
        bench_fail("no memory for the counters", NULL);
    for (int k = 0; k < RATE_SAMPLES; k++) {
        for (size_t i = 0; i < count; i++) {
            char text[256];

            random = random * 6364136223846793005U + 1442695040888963407U;
            counters[i] += (random >> 33) % 1500;
            (void)snprintf(text, sizeof text,
                           "__name__=node_cpu_seconds_total,cluster=gpu-1,cpu=%zu,instance=node-"
                           "%05zu:9100,job=node,mode=%s,namespace=monitoring",
                           i / RATE_MODES % RATE_CPUS, i / RATE_MODES / RATE_CPUS,
                           modes[i % RATE_MODES]);
            batch_add(b, text, START_MS + (int64_t)k * INTERVAL_MS, (double)counters[i] / 100);
        }
    }
    if (b->batch->series_count > 0)
        batch_store(b);
    free(counters);
}

static void rate_query(struct bench *b, const char *what, int64_t end_ms)
{
    printf("query_rate_44800_series_2h%s_cpu %.4f s budget 0.10\n", what,
           query_cpu_s(b, "sum by (instance)(rate(node_cpu_seconds_total[5m]))", START_MS, end_ms,
                       60000));
    (void)fflush(stdout);
}

static void bench_rate(void)
{
    const int64_t end_ms = START_MS + (int64_t)RATE_SAMPLES * INTERVAL_MS;
    struct errinfo ei = {0};
    struct bench b;

    bench_open(&b, end_ms);
    fill_rate(&b);
    rate_query(&b, "", end_ms);
    for (uint32_t i = 0; i < engine_shard_count(b.engine); i++) {
        struct seal_result sealed;

        bench_check(engine_seal(b.engine, i, SEAL_INTERVAL, NULL, &sealed, &ei), &ei);
    }
    rate_query(&b, "_sealed", end_ms);
    for (uint32_t i = 0; i < engine_shard_count(b.engine); i++) {
        struct flush_result flushed;

        bench_check(engine_flush(b.engine, i, INT64_MAX, NULL, &flushed, &ei), &ei);
    }
    rate_query(&b, "_parts", end_ms);
    bench_close(&b);
}

static void bench_count(void)
{
    struct bench b;

    bench_open(&b, START_MS + 60000);
    for (size_t i = 0; i < COUNT_SERIES; i++) {
        char text[256];

        (void)snprintf(text, sizeof text,
                       "__name__=metric_%03zu,cluster=gpu-1,instance=node-%05zu:9400,gpu=%zu,"
                       "job=dcgm,namespace=gpu",
                       i % 100, i / 800, i / 100 % 8);
        batch_add(&b, text, START_MS, (double)i);
    }
    if (b.batch->series_count > 0)
        batch_store(&b);
    printf("query_count_1m_series_cpu %.4f s budget 0.30\n",
           query_cpu_s(&b, "count({__name__=~\".+\"})", START_MS + 30000, START_MS + 30000, 0));
    bench_close(&b);
}

int main(int argc, char **argv)
{
    struct bench_args args;

    bench_args_init(&args, argc, argv, 0, usage);
    bench_rate();
    bench_count();
    return 0;
}
