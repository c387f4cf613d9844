/*
 * Parts on the GPU-fleet stream: one shard's share of a 2 h window at 15 s, written to and read
 * from a real directory. One figure a line: name, value, unit; budgets stand behind a #.
 */
#include <stdio.h>

#include "base/clock.h"
#include "bench/bench_support.h"
#include "bench/fleet_capture.h"
#include "engine/codec.h"
#include "engine/part.h"

enum { INTERVAL_MS = 15000, BATCH = 512 };

static const int64_t start_ms = INT64_C(1700006400000);

static const char usage[] =
    "usage: bench_part [nodes] [shards]\n"
    "  default 320 nodes, of which a sixteenth of the entities is taken: 20,000 series\n"
    "  by environment: BENCH_JITTER_MS (default 0), BENCH_PROFILE=gpu|cadvisor, BENCH_DIR "
    "(default\n"
    "  TMPDIR or /tmp), BENCH_WINDOW_S (default 7200)\n";

struct bench {
    struct fleet_capture fleet;
    struct part_key key;
    struct budget memory;
    struct part_store *store;
};

/* ---- writing ---- */

static void write_part(struct bench *b, struct part_info *info)
{
    struct part_writer_options o = {.dir = "", .key = b->key};
    struct errinfo ei = {0};
    struct part_writer *w;

    if (part_writer_new(b->store, &o, &w, &ei) != ERR_OK)
        bench_fail("create", &ei);
    for (size_t i = 0; i < b->fleet.row_count; i++) {
        const struct fleet_row *row = &b->fleet.rows[i];
        size_t at = row->number * b->fleet.scrape_count;

        if (part_writer_series(w, &row->labels, row->fingerprint, &ei) != ERR_OK)
            bench_fail("series", &ei);
        for (size_t done = 0, n; done < b->fleet.scrape_count; done += n) {
            n = b->fleet.scrape_count - done;
            n = n < CODEC_SAMPLES_MAX ? n : CODEC_SAMPLES_MAX;
            if (part_writer_samples(w, b->fleet.t_ms + at + done, b->fleet.value + at + done, n,
                                    &ei) != ERR_OK)
                bench_fail("samples", &ei);
        }
    }
    if (part_writer_finish(w, 1, info, &ei) != ERR_OK)
        bench_fail("finish", &ei);
    part_writer_free(w);
}

static void copy_part(struct bench *b, struct part *p)
{
    struct part_writer_options o = {.dir = "", .key = b->key};
    const struct part_series *s;
    struct errinfo ei = {0};
    struct part_info info;
    struct part_writer *w;
    struct part_iter *it;
    uint64_t begin = clock_thread_cpu_ns();

    o.key.generation++;
    if (part_writer_new(b->store, &o, &w, &ei) != ERR_OK || part_iter_new(p, &it, &ei) != ERR_OK)
        bench_fail("create", &ei);
    for (;;) {
        if (part_iter_next(it, &s, &ei) != ERR_OK)
            bench_fail("next", &ei);
        if (s == NULL)
            break;
        if (part_writer_series(w, &s->labels, s->fingerprint, &ei) != ERR_OK)
            bench_fail("series", &ei);
        for (size_t i = 0; i < s->chunk_count; i++) {
            if (part_writer_chunk(w, &s->chunks[i], &ei) != ERR_OK)
                bench_fail("chunk", &ei);
        }
    }
    part_iter_free(it);
    if (part_writer_finish(w, 1, &info, &ei) != ERR_OK)
        bench_fail("finish", &ei);
    part_writer_free(w);
    bench_figure("copy, chunks not decoded",
                 (double)info.sample_count * 1e3 / (double)(clock_thread_cpu_ns() - begin),
                 "Msamples/CPU-s", "budget 100");
}

/* ---- reading ---- */

static void read_part(struct bench *b, struct part *p, const char *name)
{
    uint32_t series[BATCH], total = part_info(p)->series_count;
    struct column columns[BATCH];
    struct errinfo ei = {0};
    struct arena arena;
    uint64_t begin = clock_thread_cpu_ns(), samples = 0;

    (void)b;
    arena_init(&arena, NULL);
    for (uint32_t i = 0, n; i < total; i += n) {
        n = total - i < BATCH ? total - i : BATCH;
        for (uint32_t k = 0; k < n; k++)
            series[k] = i + k;
        if (part_read(p, series, n, INT64_MIN, INT64_MAX, &arena, &arena, columns, &ei) != ERR_OK)
            bench_fail("read", &ei);
        for (uint32_t k = 0; k < n; k++)
            samples += columns[k].count;
        arena_reset(&arena);
    }
    arena_done(&arena);
    bench_figure(name, (double)samples * 1e3 / (double)(clock_thread_cpu_ns() - begin),
                 "Msamples/CPU-s", "");
}

static void select_part(struct part *p, const char *name, enum matcher_kind kind,
                        const char *metric, const char *label, const char *value)
{
    enum { REPEATS = 20 };
    struct matcher m[2];
    struct errinfo ei = {0};
    struct arena arena, texts;
    uint32_t *found;
    size_t count = 0;
    uint64_t best = UINT64_MAX;
    char text[96];

    arena_init(&texts, NULL);
    arena_init(&arena, NULL);
    if (matcher_init(&m[0], kind, str_from(label), str_from(value), &texts, &ei) != ERR_OK ||
        matcher_init(&m[1], MATCHER_EQUAL, LABEL_METRIC_NAME, str_from(metric), &texts, &ei) !=
            ERR_OK)
        bench_fail("matcher", &ei);
    for (int i = 0; i < REPEATS; i++) {
        uint64_t begin = clock_thread_cpu_ns(), took;

        if (part_select(p, m, metric[0] == '\0' ? 1 : 2, NULL, &arena, &found, &count, &ei) !=
            ERR_OK)
            bench_fail("select", &ei);
        took = clock_thread_cpu_ns() - begin;
        best = took < best ? took : best;
        arena_reset(&arena);
    }
    matcher_done(&m[0]);
    matcher_done(&m[1]);
    arena_done(&arena);
    arena_done(&texts);
    (void)snprintf(text, sizeof text, "select %s, %zu series", name, count);
    bench_figure(text, (double)best / 1e3, "us", "");
}

/* A dashboard of one host: few series of each metric, all over the file. */
static void read_host(struct bench *b, struct part *p)
{
    struct part_store_stats before, after;
    struct column *columns;
    struct errinfo ei = {0};
    struct arena arena;
    struct matcher m;
    uint32_t *found;
    size_t count;
    uint64_t begin;

    arena_init(&arena, NULL);
    if (matcher_init(&m, MATCHER_REGEX, STR_LITERAL("instance"), STR_LITERAL("gpu-node-00007:.*"),
                     &arena, &ei) != ERR_OK ||
        part_select(p, &m, 1, NULL, &arena, &found, &count, &ei) != ERR_OK)
        bench_fail("select", &ei);
    columns = ARENA_ARRAY(&arena, count, struct column);
    part_store_stats_get(b->store, &before);
    begin = clock_thread_cpu_ns();
    if (columns == NULL ||
        part_read(p, found, count, INT64_MIN, INT64_MAX, &arena, &arena, columns, &ei) != ERR_OK)
        bench_fail("read", &ei);
    part_store_stats_get(b->store, &after);
    bench_figure("read one host, pages not in our cache",
                 (double)(clock_thread_cpu_ns() - begin) / 1e3 / (double)count, "us/series", "");
    bench_figure("read one host", (double)(after.read_bytes - before.read_bytes) / (double)count,
                 "B/series", "from the files");
    matcher_done(&m);
    arena_done(&arena);
}

static void labels_part(struct part *p)
{
    uint32_t series[BATCH], total = part_info(p)->series_count;
    struct labels labels[BATCH];
    struct hash128 prints[BATCH];
    struct str values[BATCH], name = STR_LITERAL("instance");
    struct errinfo ei = {0};
    struct arena arena;
    uint64_t labels_ns = 0, values_ns = 0, find_ns = 0;

    arena_init(&arena, NULL);
    for (uint32_t i = 0, n; i < total; i += n) {
        uint64_t times[4];

        n = total - i < BATCH ? total - i : BATCH;
        for (uint32_t k = 0; k < n; k++)
            series[k] = i + k;
        times[0] = clock_thread_cpu_ns();
        if (part_labels(p, series, n, &arena, labels, &ei) != ERR_OK)
            bench_fail("labels", &ei);
        times[1] = clock_thread_cpu_ns();
        if (part_values_of(p, series, n, &name, 1, &arena, values, &ei) != ERR_OK ||
            part_fingerprints(p, series, n, prints, &ei) != ERR_OK)
            bench_fail("values", &ei);
        times[2] = clock_thread_cpu_ns();
        if (part_find(p, prints, n, series, &ei) != ERR_OK)
            bench_fail("find", &ei);
        times[3] = clock_thread_cpu_ns();
        labels_ns += times[1] - times[0];
        values_ns += times[2] - times[1];
        find_ns += times[3] - times[2];
        arena_reset(&arena);
    }
    arena_done(&arena);
    bench_figure("labels", (double)labels_ns / total, "ns/series", "");
    bench_figure("one label's value, and fingerprint", (double)values_ns / total, "ns/series", "");
    bench_figure("look-up by fingerprint", (double)find_ns / total, "ns/series", "");
}

static void read_figures(struct bench *b)
{
    struct errinfo ei = {0};
    struct part *p;
    uint64_t begin = clock_thread_cpu_ns();

    if (part_open(b->store, "", &b->key, &p, &ei) != ERR_OK)
        bench_fail("open", &ei);
    bench_figure("open", (double)(clock_thread_cpu_ns() - begin) / 1e3, "us", "");
    read_host(b, p);
    read_part(b, p, "read, pages not in our cache");
    read_part(b, p, "read, pages in our cache");
    select_part(p, "{metric}", MATCHER_NOT_EQUAL, "node_cpu_seconds_total", "unknown", "x");
    select_part(p, "{metric, instance=}", MATCHER_EQUAL, "node_cpu_seconds_total", "instance",
                "gpu-node-00007:9100");
    select_part(p, "{metric, mode=~}", MATCHER_REGEX, "node_cpu_seconds_total", "mode",
                "idle|iowait");
    select_part(p, "{metric, instance=~regex}", MATCHER_REGEX, "node_cpu_seconds_total", "instance",
                ".*1[0-3]:.*");
    select_part(p, "{cpu=~.+}", MATCHER_REGEX, "", "cpu", ".+");
    select_part(p, "{cpu!~.+}", MATCHER_NOT_REGEX, "", "cpu", ".+");
    select_part(p, "{__name__=~.+}", MATCHER_REGEX, "", "__name__", ".+");
    labels_part(p);
    copy_part(b, p);
    part_close(p);
}

static void run(struct bench *b)
{
    struct part_info info;
    double series = (double)b->fleet.row_count, samples = series * b->fleet.scrape_count;
    uint64_t begin = clock_thread_cpu_ns();

    write_part(b, &info);
    bench_figure("write", samples * 1e3 / (double)(clock_thread_cpu_ns() - begin), "Msamples/CPU-s",
                 "budget 30, encoding included");
    bench_figure("writer's memory, peak", (double)b->memory.peak_bytes / series, "B/series", "");
    bench_figure("series", series, "", "");
    bench_figure("samples", samples, "", "");
    bench_figure("entities", info.entity_count, "", "");
    bench_figure("timestamp columns", info.times_count, "", "");
    bench_figure("index", (double)info.index_size / series, "B/series",
                 "aim 37, timestamp columns included");
    bench_figure("chunks", (double)info.chunks_size / samples, "B/sample", "");
    bench_figure("all", (double)(info.index_size + info.chunks_size) / samples, "B/sample",
                 "budget 1.15; 1.20 with 5 ms of jitter");
    read_figures(b);
}

int main(int argc, char **argv)
{
    struct fleet_options options = {
        .seed = 1, .interval_ms = INTERVAL_MS, .target_offsets = true, .start_ms = start_ms};
    struct part_store_options so = {.cache_bytes = UINT64_C(1) << 30, .descriptor_count = 16};
    struct errinfo ei = {0};
    struct bench_args args;
    struct bench_dir dir;
    struct bench b = {0};
    uint32_t shard_count, scrape_count;

    bench_args_init(&args, argc, argv, 2, usage);
    options.node_count = bench_args_number(&args, 0, 320);
    shard_count = bench_args_number(&args, 1, 16);
    options.jitter_ms = bench_env_number("BENCH_JITTER_MS", 0, 0);
    options.profile = fleet_profile_from_env();
    scrape_count =
        bench_env_number("BENCH_WINDOW_S", 7200, INTERVAL_MS / 1000) / (INTERVAL_MS / 1000);
    b.key = (struct part_key){.window_start_ms = start_ms,
                              .window_size_ms = 7200000,
                              .shard_count = shard_count,
                              .generation = 1};
    fleet_capture_init(&b.fleet, &options, shard_count, scrape_count);
    fleet_capture_window(&b.fleet);
    bench_dir_open(&dir, FS_IO_AUTO);
    budget_init(&b.memory, "parts", UINT64_MAX, NULL);
    so.fs = dir.fs;
    so.memory = &b.memory;
    if (part_store_new(&so, &b.store, &ei) != ERR_OK)
        bench_fail("part store", &ei);
    run(&b);
    part_store_free(b.store);
    bench_dir_close(&dir);
    fleet_capture_done(&b.fleet);
    return 0;
}
