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
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "bench/bench_support.h"
#include "bench/fleet_capture.h"
#include "engine/engine.h"
#include "engine/write.h"

enum { REQUEST_SAMPLES = 2000, START_MS_BEHIND = 4 * 3600 * 1000 };

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
    struct fleet_source fleet;
    struct write_batch *batch;
    struct write_result result;
    uint64_t *sequences;
    uint8_t *wire; /* label bytes of the request at hand */
    size_t wire_size, wire_capacity;
    uint64_t samples, engine_ns;
    uint64_t request_best_ns; /* cheapest full request since it was last set to UINT64_MAX */
};

static void figure(const char *name, double value, const char *unit, const char *budget)
{
    (void)printf("%-34s %12.3f %-12s %s\n", name, value, unit, budget);
    (void)fflush(stdout);
}

/* ---- requests ---- */

static void send_request(struct bench *b)
{
    struct errinfo ei = {0};
    uint64_t begin, spent;
    size_t series_count = b->batch->series_count;

    if (series_count == 0)
        return;
    /* The bytes do not move while a request is filled, but pointers are set only now. */
    for (size_t i = 0, at = 0; i < b->batch->series_count; i++) {
        struct write_series *s = &b->batch->series[i];

        s->wire_labels.data = b->wire + at;
        s->sender_key =
            hash128_bytes(engine_hash_secret(b->engine), s->wire_labels.data, s->wire_labels.size);
        at += s->wire_labels.size;
    }
    begin = clock_thread_cpu_ns();
    if (engine_write(b->engine, b->batch, &b->result, &ei) != ERR_OK)
        bench_fail("write", &ei);
    spent = clock_thread_cpu_ns() - begin;
    b->engine_ns += spent;
    if (series_count == REQUEST_SAMPLES && spent < b->request_best_ns)
        b->request_best_ns = spent;
    if (b->result.refused_count > 0) {
        (void)errinfo_set(&ei, ERR_INVALID, 0, "%s", b->result.examples[0]);
        bench_fail("refused", &ei);
    }
    b->samples += b->result.sample_count;
    write_batch_reset(b->batch);
    b->wire_size = 0;
}

static void add_sample(struct bench *b, const struct fleet_sample *sample)
{
    struct write_batch *batch = b->batch;
    struct errinfo ei = {0};

    if (b->wire_size + sample->labels.size > b->wire_capacity || !write_batch_grow_series(batch) ||
        !write_batch_grow_samples(batch))
        bench_fail("request too large", &ei);
    memcpy(b->wire + b->wire_size, sample->labels.data, sample->labels.size);
    b->wire_size += sample->labels.size;
    batch->series[batch->series_count++] = (struct write_series){
        .wire_labels = {NULL, sample->labels.size},
        .sample_first = (uint32_t)batch->sample_count,
        .sample_count = 1,
    };
    batch->samples[batch->sample_count++] = (struct write_sample){sample->t_ms, sample->value};
    if (batch->series_count == REQUEST_SAMPLES)
        send_request(b);
}

/* One scrape of every node. */
static void scrape_all(struct bench *b)
{
    for (uint32_t n = 0; n < b->fleet.node_count; n++) {
        const struct fleet_sample *samples;
        size_t count = fleet_node_scrape(b->fleet.nodes, n, &samples);

        for (size_t i = 0; i < count; i++)
            add_sample(b, &samples[i]);
    }
    send_request(b);
}

static void wait_quiet(struct bench *b)
{
    struct engine_stats stats;

    do {                    /* the log has written all that was sent */
        (void)usleep(1000); /* allow(usleep): a benchmark polls */
        engine_stats_get(b->engine, &stats);
    } while (stats.wal.samples_written < b->samples);
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
    struct errinfo ei = {0};

    memset(b, 0, sizeof *b);
    b->fs = fs;
    clock_init_real(&b->clock);
    budget_init(&b->memory, "storage", UINT64_MAX, NULL);
    fleet.start_ms = clock_now_ms(&b->clock) - START_MS_BEHIND;
    fleet_source_init(&b->fleet, &fleet);
    if (write_batch_new(&b->batch, &ei) != ERR_OK)
        bench_fail("batch", &ei);
    b->batch->labels_parse = fleet_labels_parse_write;
    b->wire_capacity = (size_t)REQUEST_SAMPLES * 2048;
    b->wire = malloc(b->wire_capacity);
    bench_open(b);
    b->sequences = calloc(engine_shard_count(b->engine), sizeof *b->sequences);
    b->result.sequences = b->sequences;
    if (b->wire == NULL || b->sequences == NULL)
        bench_fail("memory", &ei);
}

static void bench_close(struct bench *b)
{
    struct errinfo ei = {0};

    if (engine_close(b->engine, 10000, &ei) != ERR_OK)
        bench_fail("close", &ei);
}

static void bench_done(struct bench *b)
{
    write_batch_free(b->batch);
    free(b->sequences);
    free(b->wire);
    fleet_source_done(&b->fleet);
}

static uint64_t resident_bytes(void)
{
    char text[256] = "";
    char *second;
    FILE *f = fopen("/proc/self/statm", "r"); /* allow(fopen): not a file of the product */

    if (f == NULL || fgets(text, sizeof text, f) == NULL)
        text[0] = '\0';
    if (f != NULL)
        (void)fclose(f);
    (void)strtoull(text, &second, 10); /* total; the second number is what is resident */
    return strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
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
    m->engine_ns = b->engine_ns;
    m->samples = b->samples;
    m->log_bytes = stats.wal.bytes_written;
}

static void scrapes_measured(struct bench *b, const char *name, uint32_t scrapes)
{
    struct meter m;
    struct engine_stats stats;

    meter_start(b, &m);
    b->request_best_ns = UINT64_MAX;
    for (uint32_t i = 0; i < scrapes; i++)
        scrape_all(b);
    wait_quiet(b);
    engine_stats_get(b->engine, &stats);
    double samples = (double)(b->samples - m.samples);
    double process = (double)(clock_process_cpu_ns() - m.process_ns);
    double thread = (double)(clock_thread_cpu_ns() - m.thread_ns);
    char text[64];
    (void)snprintf(text, sizeof text, "%s cpu in other threads", name);
    figure(text, (process - thread) / samples, "ns/sample", "log: encode, zstd, write");
    (void)snprintf(text, sizeof text, "%s cpu in engine_write", name);
    figure(text, (double)(b->engine_ns - m.engine_ns) / samples, "ns/sample",
           "prebuilt requests of 2,000");
    (void)snprintf(text, sizeof text, "%s cheapest request", name);
    figure(text, (double)b->request_best_ns / REQUEST_SAMPLES, "ns/sample",
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
    scrape_all(&b);
    scrape_all(&b);
    wait_quiet(&b);
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
    before = resident_bytes();
    uint64_t begin = b.engine_ns;
    scrape_all(&b);
    double series = (double)b.samples;
    figure("new series", (double)(b.engine_ns - begin) / series / 1e3, "us/series",
           "in engine_write, one sample each");
    scrapes_measured(&b, "next scrapes", scrapes - 1);
    engine_stats_get(b.engine, &stats);
    malloc_trim(0);
    figure("resident", (double)(resident_bytes() - before) / series, "B/series", "budget 300");
    figure("charged", (double)stats.memory_bytes / series, "B/series", "");
    figure("series", (double)stats.series_count, "", "");
    figure("chunks", (double)stats.chunk_count, "", "");
    figure("front table entries", (double)stats.front_table_entries, "", "");
    figure("log", (double)stats.wal.bytes_written / (double)b.samples, "B/sample",
           "definitions included");
    bench_close(&b);
    bench_open(&b);
    figure("resident after replay", (double)resident_bytes() / series, "B/series",
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
