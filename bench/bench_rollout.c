/*
 * What a rollout of all pods costs in memory: the GPU-fleet stream into an engine, on the clock of
 * the data, with the seals and flushes a compactor would ask for. First a steady time, then every
 * pod is relabelled within some minutes, then a while without. One figure a line; peaks are taken
 * after every scrape.
 *
 * Half of the rollout's pods are drawn twice and some not at all: the number of new series is that
 * of one whole rollout.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/process.h"
#include "bench/bench_support.h"
#include "bench/fleet_feed.h"
#include "engine/engine.h"
#include "engine/maintain.h"

enum {
    INTERVAL_MS = 15000,
    MINUTE_SCRAPES = 60000 / INTERVAL_MS,
    STEADY_MINUTES = 150,
    AFTER_MINUTES = 45,
    SEAL_MINUTES = 30,
    ENDED_AGAIN_MINUTES = 1,
    WINDOW_GRACE_MS = 10 * 60 * 1000,
};

static const char usage[] = "usage: bench_rollout [gpu|cadvisor] [nodes] [minutes]\n"
                            "  default gpu, 100 nodes of 1,000 series, a rollout of 10 minutes\n";

struct bench {
    struct clock clock;
    struct budget memory;
    struct engine *engine;
    struct fleet_feed feed;
    uint32_t shard_count, scrape;
    uint32_t *sealed_at; /* owned: per shard, the scrape of its last seal */
    uint64_t maintain_ns, ended_count, seal_count;
};

/* The highest figures of a time. */
struct peak {
    uint64_t charged, resident, series;
};

static void figure(const char *name, double value, const char *unit, const char *note)
{
    (void)printf("%-36s %12.3f %-8s %s\n", name, value, unit, note);
    (void)fflush(stdout);
}

/* ---- maintenance, as the compactor's policy has it ---- */

static void seal(struct bench *b, uint32_t shard, enum seal_reason reason)
{
    struct seal_result result = {0};
    struct errinfo ei = {0};

    if (engine_seal(b->engine, shard, reason, NULL, &result, &ei) != ERR_OK)
        bench_fail("seal", &ei);
    b->sealed_at[shard] = b->scrape;
    b->ended_count += result.ended_series_count;
    b->seal_count++;
}

static void flush(struct bench *b, uint32_t shard, int64_t until_ms)
{
    struct flush_result result;
    struct errinfo ei = {0};

    if (engine_flush(b->engine, shard, until_ms, NULL, &result, &ei) != ERR_OK)
        bench_fail("flush", &ei);
}

static void maintain_shard(struct bench *b, uint32_t shard)
{
    uint32_t age = b->scrape - b->sealed_at[shard];
    int64_t closed_ms = engine_now_ms(b->engine) - WINDOW_GRACE_MS;
    struct seal_state state;

    engine_seal_state(b->engine, shard, &state);
    if (state.ended_series_count * 20 > state.series_count && state.ended_series_count >= 64 &&
        age >= ENDED_AGAIN_MINUTES * MINUTE_SCRAPES)
        seal(b, shard, SEAL_ENDED);
    else if (age >= SEAL_MINUTES * MINUTE_SCRAPES)
        seal(b, shard, SEAL_INTERVAL);
    if (state.oldest_sealed_window_end_ms <= closed_ms)
        flush(b, shard, closed_ms);
}

static void maintain(struct bench *b)
{
    uint64_t begin = clock_thread_cpu_ns();

    for (uint32_t i = 0; i < b->shard_count; i++)
        maintain_shard(b, i);
    engine_housekeep(b->engine);
    if (b->scrape % MINUTE_SCRAPES == 0)
        arena_spare_release();
    b->maintain_ns += clock_thread_cpu_ns() - begin;
}

/* ---- times ---- */

static void run_minutes(struct bench *b, uint32_t minutes, struct peak *peak)
{
    *peak = (struct peak){0};
    for (uint32_t i = 0; i < minutes * MINUTE_SCRAPES; i++, b->scrape++) {
        struct engine_stats stats;
        uint64_t resident;

        fleet_feed_scrape(&b->feed);
        fleet_feed_wait(&b->feed);
        maintain(b);
        engine_stats_get(b->engine, &stats);
        resident = fleet_resident_bytes();
        peak->charged = stats.memory_bytes > peak->charged ? stats.memory_bytes : peak->charged;
        peak->resident = resident > peak->resident ? resident : peak->resident;
        peak->series = stats.series_count > peak->series ? stats.series_count : peak->series;
    }
}

static void peak_print(const char *time, const struct peak *p)
{
    char name[64];

    (void)snprintf(name, sizeof name, "%s: charged", time);
    figure(name, (double)p->charged / 1e6, "MB", "");
    (void)snprintf(name, sizeof name, "%s: resident", time);
    figure(name, (double)p->resident / 1e6, "MB", "stream generator included");
    (void)snprintf(name, sizeof name, "%s: series", time);
    figure(name, (double)p->series, "", "");
}

static void bench_open(struct bench *b, struct fs *fs, const struct fleet_options *fleet)
{
    const struct engine_options options = {
        .fs = fs, .clock = &b->clock, .memory = &b->memory, .clock_is_data = true};
    struct engine_replay_result replayed;
    struct errinfo ei = {0};

    if (engine_open(&options, &b->engine, &ei) != ERR_OK ||
        engine_replay(b->engine, 0, &replayed, &ei) != ERR_OK)
        bench_fail("open", &ei);
    fleet_feed_init(&b->feed, b->engine, fleet);
    b->shard_count = engine_shard_count(b->engine);
    b->sealed_at = calloc(b->shard_count, sizeof *b->sealed_at);
    if (b->sealed_at == NULL)
        bench_fail("out of memory", NULL);
    /* Shards take turns, as the compactor has them do. */
    for (uint32_t i = 0; i < b->shard_count; i++)
        b->sealed_at[i] = 0U - i * SEAL_MINUTES * MINUTE_SCRAPES / b->shard_count;
}

static void run(struct fs *fs, struct fleet_options fleet, uint32_t minutes)
{
    struct bench b = {.scrape = 0};
    struct peak before, during, after;
    struct errinfo ei = {0};
    uint32_t units = fleet.profile == FLEET_GPU ? 8 : 16;

    clock_init_real(&b.clock);
    budget_init(&b.memory, "storage", UINT64_MAX, NULL);
    fleet.start_ms =
        clock_now_ms(&b.clock) - (int64_t)(STEADY_MINUTES + AFTER_MINUTES + minutes + 60) * 60000;
    bench_open(&b, fs, &fleet);
    run_minutes(&b, STEADY_MINUTES, &before);
    b.feed.samples = b.feed.engine_ns = 0;
    run_minutes(&b, SEAL_MINUTES, &before); /* one turn of seals */
    peak_print("steady", &before);
    figure("steady: engine_write", (double)b.feed.engine_ns / (double)b.feed.samples, "ns",
           "a sample");
    b.maintain_ns = b.seal_count = b.ended_count = 0;
    fleet_nodes_churn(b.feed.fleet.nodes, (double)units * fleet.node_count / minutes);
    run_minutes(&b, minutes, &during);
    fleet_nodes_churn(b.feed.fleet.nodes, 0);
    peak_print("rollout", &during);
    run_minutes(&b, AFTER_MINUTES, &after);
    peak_print("after", &after);
    during.charged = after.charged > during.charged ? after.charged : during.charged;
    during.resident = after.resident > during.resident ? after.resident : during.resident;
    figure("peak by steady: charged", (double)during.charged / (double)before.charged, "",
           "budget 1.3");
    figure("peak by steady: resident", (double)during.resident / (double)before.resident, "",
           "budget 1.3");
    figure("series that left", (double)b.ended_count, "", "");
    figure("seals", (double)b.seal_count, "", "since the rollout began");
    figure("maintenance cpu", (double)b.maintain_ns / 1e9, "s", "since the rollout began");
    if (engine_close(b.engine, 10000, &ei) != ERR_OK)
        bench_fail("close", &ei);
    fleet_feed_done(&b.feed);
    free(b.sealed_at);
}

int main(int argc, char **argv)
{
    struct fleet_options fleet = {.seed = 1, .interval_ms = INTERVAL_MS, .target_offsets = true};
    struct bench_args args;
    struct bench_dir dir;
    uint32_t minutes;

    bench_args_init(&args, argc, argv, 3, usage);
    fleet.profile = bench_args_is_second(&args, 0, "gpu", "cadvisor") ? FLEET_CADVISOR : FLEET_GPU;
    fleet.node_count = bench_args_number(&args, 1, 100);
    minutes = bench_args_number(&args, 2, 10);
    process_memory_setup(); /* as the server does */
    bench_dir_open(&dir, FS_IO_AUTO);
    run(dir.fs, fleet, minutes);
    bench_dir_close(&dir);
    return 0;
}
