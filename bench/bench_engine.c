/*
 * The engine alone on the GPU-fleet stream: no HTTP, requests prebuilt, the log on a real
 * directory. One figure a line.
 *
 *   steady   CPU per sample with all series known
 *   create   every series new, then more scrapes of them: CPU per sample and per series, bytes a
 *            series, log bytes a sample, then replay of that log
 *
 * CPU time is the whole process's (log threads included) less what making the stream costs, which
 * is measured on the same thread.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "bench/bench_support.h"
#include "bench/fleet_feed.h"
#include "engine/engine.h"

enum { START_MS_BEHIND = 4 * 3600 * 1000 };

static const char usage[] = "usage: bench_engine [steady|create] [nodes] [scrapes]\n"
                            "  default steady, 100 nodes of 1,000 series, 20 scrapes\n"
                            "  by environment: BENCH_JITTER_MS (default 0), "
                            "BENCH_PROFILE=gpu|cadvisor, BENCH_DIR (default\n"
                            "  TMPDIR or /tmp)\n";

struct bench {
    struct fs *fs; /* borrowed */
    struct clock clock;
    struct budget memory;
    struct engine *engine;
    struct fleet_feed feed;
};

static void figure(const char *name, double value, const char *unit, const char *budget)
{
    (void)printf("%-34s %12.3f %-12s %s\n", name, value, unit, budget);
    (void)fflush(stdout);
}

/* ---- life ---- */

static void bench_open(struct bench *b)
{
    struct engine_options options = {.clock = &b->clock, .memory = &b->memory};
    struct engine_replay_result replayed;
    struct errinfo ei = {0};
    uint64_t begin = clock_process_cpu_ns();

    options.fs = b->fs;
    if (engine_open(&options, &b->engine, &ei) != ERR_OK ||
        engine_replay(b->engine, 0, &replayed, &ei) != ERR_OK)
        bench_fail("open", &ei);
    if (replayed.sample_count > 0) {
        double ns = (double)(clock_process_cpu_ns() - begin);

        figure("replay cpu", ns / 1e9, "s", "budget 2 at 1 M series, 20 M samples");
        figure("replay cpu per sample", ns / (double)replayed.sample_count, "ns", "");
        figure("replay series", (double)replayed.series_count, "", "");
        figure("replay samples", (double)replayed.sample_count, "", "");
    }
}

/* `fleet` lacks the start only: it is set so that the newest sample stays behind the clock. */
static void bench_init(struct bench *b, struct fs *fs, struct fleet_options fleet)
{
    memset(b, 0, sizeof *b);
    b->fs = fs;
    clock_init_real(&b->clock);
    budget_init(&b->memory, "storage", UINT64_MAX, NULL);
    fleet.start_ms = clock_now_ms(&b->clock) - START_MS_BEHIND;
    bench_open(b);
    fleet_feed_init(&b->feed, b->engine, &fleet);
}

static void bench_close(struct bench *b)
{
    struct errinfo ei = {0};

    if (engine_close(b->engine, 10000, &ei) != ERR_OK)
        bench_fail("close", &ei);
}

static void bench_done(struct bench *b)
{
    fleet_feed_done(&b->feed);
}

/* CPU of the process from here on, without what the stream costs. */
struct meter {
    uint64_t process_ns, thread_ns, engine_ns, samples, log_bytes;
};

static void meter_start(struct bench *b, struct meter *m)
{
    struct engine_stats stats;

    engine_stats_get(b->engine, &stats);
    m->process_ns = clock_process_cpu_ns();
    m->thread_ns = clock_thread_cpu_ns();
    m->engine_ns = b->feed.engine_ns;
    m->samples = b->feed.samples;
    m->log_bytes = stats.wal.bytes_written;
}

static void scrapes_measured(struct bench *b, const char *name, uint32_t scrapes)
{
    struct meter m;
    struct engine_stats stats;

    meter_start(b, &m);
    b->feed.request_best_ns = UINT64_MAX;
    for (uint32_t i = 0; i < scrapes; i++)
        fleet_feed_scrape(&b->feed);
    fleet_feed_wait(&b->feed);
    engine_stats_get(b->engine, &stats);
    double samples = (double)(b->feed.samples - m.samples);
    double process = (double)(clock_process_cpu_ns() - m.process_ns);
    double thread = (double)(clock_thread_cpu_ns() - m.thread_ns);
    char text[64];
    (void)snprintf(text, sizeof text, "%s cpu in other threads", name);
    figure(text, (process - thread) / samples, "ns/sample", "log: encode, zstd, write");
    (void)snprintf(text, sizeof text, "%s cpu in engine_write", name);
    figure(text, (double)(b->feed.engine_ns - m.engine_ns) / samples, "ns/sample",
           "prebuilt requests of 2,000");
    (void)snprintf(text, sizeof text, "%s cheapest request", name);
    figure(text, (double)b->feed.request_best_ns / FLEET_REQUEST_SAMPLES, "ns/sample",
           "what a busy machine does not add to");
    (void)snprintf(text, sizeof text, "%s log bytes", name);
    figure(text, (double)(stats.wal.bytes_written - m.log_bytes) / samples, "B/sample",
           "budget 3.5");
    (void)snprintf(text, sizeof text, "%s samples a frame", name);
    figure(text, (double)stats.wal.samples_written / (double)stats.wal.frames_written, "", "");
}

static void run_steady(struct fs *fs, const struct fleet_options *fleet, uint32_t scrapes)
{
    struct bench b;

    bench_init(&b, fs, *fleet);
    fleet_feed_scrape(&b.feed);
    fleet_feed_scrape(&b.feed);
    fleet_feed_wait(&b.feed);
    scrapes_measured(&b, "steady", scrapes);
    bench_close(&b);
    bench_done(&b);
}

static void run_create(struct fs *fs, const struct fleet_options *fleet, uint32_t scrapes)
{
    struct bench b;
    struct engine_stats stats;
    uint64_t before;

    bench_init(&b, fs, *fleet);
    before = fleet_resident_bytes();
    uint64_t begin = b.feed.engine_ns;
    fleet_feed_scrape(&b.feed);
    double series = (double)b.feed.samples;
    figure("new series", (double)(b.feed.engine_ns - begin) / series / 1e3, "us/series",
           "in engine_write, one sample each");
    scrapes_measured(&b, "next scrapes", scrapes - 1);
    engine_stats_get(b.engine, &stats);
    malloc_trim(0);
    figure("resident", (double)(fleet_resident_bytes() - before) / series, "B/series",
           "budget 300");
    figure("charged", (double)stats.memory_bytes / series, "B/series", "");
    figure("series", (double)stats.series_count, "", "");
    figure("chunks", (double)stats.chunk_count, "", "");
    figure("front table entries", (double)stats.front_table_entries, "", "");
    figure("log", (double)stats.wal.bytes_written / (double)b.feed.samples, "B/sample",
           "definitions included");
    bench_close(&b);
    bench_open(&b);
    figure("resident after replay", (double)fleet_resident_bytes() / series, "B/series",
           "stream generator included");
    bench_close(&b);
    bench_done(&b);
}

int main(int argc, char **argv)
{
    struct fleet_options fleet = {.seed = 1, .interval_ms = 15000, .target_offsets = true};
    struct bench_args args;
    struct bench_dir dir;
    uint32_t scrapes;
    bool create;

    bench_args_init(&args, argc, argv, 3, usage);
    create = bench_args_is_second(&args, 0, "steady", "create");
    fleet.node_count = bench_args_number(&args, 1, 100);
    scrapes = bench_args_number(&args, 2, 20);
    fleet.jitter_ms = bench_env_number("BENCH_JITTER_MS", 0, 0);
    fleet.profile = fleet_profile_from_env();
    bench_dir_open(&dir, FS_IO_AUTO);
    if (create)
        run_create(dir.fs, &fleet, scrapes);
    else
        run_steady(dir.fs, &fleet, scrapes);
    bench_dir_close(&dir);
    return 0;
}
