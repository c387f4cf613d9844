/*
 * Parts on the GPU-fleet stream: one shard's share of a 2 h window at 15 s, written to and read
 * from a real directory. One figure a line: name, value, unit; budgets stand behind a #.
 *
 *   bench_part [nodes] [shards]     default 320 nodes, of which a sixteenth of the entities is
 *                                   taken: 20,000 series
 *   by environment: BENCH_JITTER_MS, BENCH_PROFILE=cadvisor, BENCH_DIR (default TMPDIR or /tmp),
 *                   BENCH_WINDOW_S (default 7200)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "engine/codec.h"
#include "engine/part.h"
#include "tools/fleet_stream.h"

enum { INTERVAL_MS = 15000, LABEL_MAX = 64, BATCH = 512 };

static const int64_t start_ms = INT64_C(1700006400000);

struct row {
    struct labels labels;
    struct hash128 fingerprint;
    size_t number; /* of its samples */
};

struct bench {
    struct arena arena;
    struct hash_secret secret;
    struct fleet_nodes *nodes;
    uint32_t node_count, shard_count, scrape_count;
    struct row *rows; /* owned */
    size_t row_count, row_capacity;
    int64_t *t_ms; /* owned: [number][scrape] */
    double *value; /* owned: the same */
    struct part_key key;
    struct fs *fs;
    struct budget memory;
    struct part_store *store;
};

static _Noreturn void fail(const char *what, const struct errinfo *ei)
{
    (void)fprintf(stderr, "bench_part: %s: %s\n", what, ei->message);
    exit(1); // NOLINT(concurrency-mt-unsafe): nothing else calls exit
}

static void figure(const char *name, double value, const char *unit, const char *budget)
{
    (void)printf("%-44s %14.3f %-18s%s%s\n", name, value, unit, budget[0] != '\0' ? "# " : "",
                 budget);
    (void)fflush(stdout);
}

static uint32_t number_from_env(const char *name, uint32_t fallback)
{
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe): nobody writes

    return text == NULL ? fallback : (uint32_t)strtoul(text, NULL, 10);
}

/* ---- the stream ---- */

static struct str read_field(struct byte_reader *r)
{
    size_t size;

    (void)reader_varint(r); /* the tag */
    size = (size_t)reader_varint(r);
    return (struct str){(const char *)reader_take(r, size), size};
}

/* Labels of remote write 1.0, borrowed from `wire`. */
static size_t parse_labels(struct bytes wire, struct label items[LABEL_MAX])
{
    struct byte_reader r = reader_init(wire.data, wire.size);
    size_t n = 0;

    while (reader_left(&r) > 0 && n < LABEL_MAX) {
        struct str message = read_field(&r);
        struct byte_reader m = reader_init(message.data, message.size);

        items[n].name = read_field(&m);
        items[n++].value = read_field(&m);
    }
    return n;
}

/* The shard goes by the labels without the name, as the engine's does. */
static bool is_ours(const struct bench *b, const struct label *items, size_t count)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < count; i++) {
        if (!str_equal(items[i].name, LABEL_METRIC_NAME))
            hash = hash * 31 + hash64_bytes(&b->secret, items[i].value.data, items[i].value.size);
    }
    return (hash ^ hash >> 32) % b->shard_count == 0;
}

static void add_row(struct bench *b, struct bytes wire)
{
    struct errinfo ei = {0};
    struct label *items = ARENA_ARRAY(&b->arena, LABEL_MAX, struct label);
    char *copy = arena_memdup0(&b->arena, wire.data, wire.size);
    struct row *row;

    if (b->row_count == b->row_capacity) {
        b->row_capacity = b->row_capacity == 0 ? 4096 : b->row_capacity * 2;
        b->rows = realloc(b->rows, b->row_capacity * sizeof *b->rows);
    }
    if (items == NULL || copy == NULL || b->rows == NULL)
        fail("memory", &ei);
    row = &b->rows[b->row_count];
    row->number = b->row_count++;
    row->labels.count = parse_labels((struct bytes){(const uint8_t *)copy, wire.size}, items);
    row->labels.items = items;
    row->fingerprint = hash128_bytes(&b->secret, copy, wire.size);
}

/* The first scrape decides which series are ours: their numbers + 1, 0 for all others. */
static size_t *choose_rows(struct bench *b, size_t series_count)
{
    struct errinfo ei = {0};
    size_t *mine = calloc(series_count, sizeof *mine), at = 0;

    if (mine == NULL)
        fail("memory", &ei);
    for (uint32_t n = 0; n < b->node_count; n++) {
        const struct fleet_sample *samples;
        size_t count = fleet_node_scrape(b->nodes, n, &samples);

        for (size_t i = 0; i < count && at < series_count; i++, at++) {
            struct label items[LABEL_MAX];

            if (is_ours(b, items, parse_labels(samples[i].labels, items))) {
                add_row(b, samples[i].labels);
                mine[at] = b->row_count;
            }
        }
    }
    return mine;
}

static void make_samples(struct bench *b, size_t series_count)
{
    struct errinfo ei = {0};
    size_t *mine = choose_rows(b, series_count), count = b->row_count * b->scrape_count;

    b->t_ms = malloc(count * sizeof *b->t_ms);
    b->value = malloc(count * sizeof *b->value);
    if (b->t_ms == NULL || b->value == NULL)
        fail("memory", &ei);
    for (uint32_t s = 0; s < b->scrape_count; s++) {
        size_t at = 0;

        for (uint32_t n = 0; n < b->node_count; n++) {
            const struct fleet_sample *samples;
            size_t got = fleet_node_scrape(b->nodes, n, &samples);

            for (size_t i = 0; i < got && at < series_count; i++, at++) {
                if (mine[at] == 0)
                    continue;
                b->t_ms[(mine[at] - 1) * b->scrape_count + s] = samples[i].t_ms;
                b->value[(mine[at] - 1) * b->scrape_count + s] = samples[i].value;
            }
        }
    }
    free(mine);
}

static int compare_rows(const void *a, const void *b)
{
    return part_labels_compare(&((const struct row *)a)->labels, &((const struct row *)b)->labels);
}

/* ---- writing ---- */

static void write_part(struct bench *b, struct part_info *info)
{
    struct part_writer_options o = {.dir = "", .key = b->key};
    struct errinfo ei = {0};
    struct part_writer *w;

    if (part_writer_new(b->store, &o, &w, &ei) != ERR_OK)
        fail("create", &ei);
    for (size_t i = 0; i < b->row_count; i++) {
        const struct row *row = &b->rows[i];
        size_t at = row->number * b->scrape_count;

        if (part_writer_series(w, &row->labels, row->fingerprint, &ei) != ERR_OK)
            fail("series", &ei);
        for (size_t done = 0, n; done < b->scrape_count; done += n) {
            n = b->scrape_count - done;
            n = n < CODEC_SAMPLES_MAX ? n : CODEC_SAMPLES_MAX;
            if (part_writer_samples(w, b->t_ms + at + done, b->value + at + done, n, &ei) != ERR_OK)
                fail("samples", &ei);
        }
    }
    if (part_writer_finish(w, 1, info, &ei) != ERR_OK)
        fail("finish", &ei);
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
        fail("create", &ei);
    for (;;) {
        if (part_iter_next(it, &s, &ei) != ERR_OK)
            fail("next", &ei);
        if (s == NULL)
            break;
        if (part_writer_series(w, &s->labels, s->fingerprint, &ei) != ERR_OK)
            fail("series", &ei);
        for (size_t i = 0; i < s->chunk_count; i++) {
            if (part_writer_chunk(w, &s->chunks[i], &ei) != ERR_OK)
                fail("chunk", &ei);
        }
    }
    part_iter_free(it);
    if (part_writer_finish(w, 1, &info, &ei) != ERR_OK)
        fail("finish", &ei);
    part_writer_free(w);
    figure("copy, chunks not decoded",
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
        if (part_read(p, series, n, INT64_MIN, INT64_MAX, &arena, columns, &ei) != ERR_OK)
            fail("read", &ei);
        for (uint32_t k = 0; k < n; k++)
            samples += columns[k].count;
        arena_reset(&arena);
    }
    arena_done(&arena);
    figure(name, (double)samples * 1e3 / (double)(clock_thread_cpu_ns() - begin), "Msamples/CPU-s",
           "");
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
        fail("matcher", &ei);
    for (int i = 0; i < REPEATS; i++) {
        uint64_t begin = clock_thread_cpu_ns(), took;

        if (part_select(p, m, metric[0] == '\0' ? 1 : 2, NULL, &arena, &found, &count, &ei) !=
            ERR_OK)
            fail("select", &ei);
        took = clock_thread_cpu_ns() - begin;
        best = took < best ? took : best;
        arena_reset(&arena);
    }
    matcher_done(&m[0]);
    matcher_done(&m[1]);
    arena_done(&arena);
    arena_done(&texts);
    (void)snprintf(text, sizeof text, "select %s, %zu series", name, count);
    figure(text, (double)best / 1e3, "us", "");
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
        fail("select", &ei);
    columns = ARENA_ARRAY(&arena, count, struct column);
    part_store_stats_get(b->store, &before);
    begin = clock_thread_cpu_ns();
    if (columns == NULL ||
        part_read(p, found, count, INT64_MIN, INT64_MAX, &arena, columns, &ei) != ERR_OK)
        fail("read", &ei);
    part_store_stats_get(b->store, &after);
    figure("read one host, pages not in our cache",
           (double)(clock_thread_cpu_ns() - begin) / 1e3 / (double)count, "us/series", "");
    figure("read one host", (double)(after.read_bytes - before.read_bytes) / (double)count,
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
            fail("labels", &ei);
        times[1] = clock_thread_cpu_ns();
        if (part_values_of(p, series, n, &name, 1, &arena, values, &ei) != ERR_OK ||
            part_fingerprints(p, series, n, prints, &ei) != ERR_OK)
            fail("values", &ei);
        times[2] = clock_thread_cpu_ns();
        if (part_find(p, prints, n, series, &ei) != ERR_OK)
            fail("find", &ei);
        times[3] = clock_thread_cpu_ns();
        labels_ns += times[1] - times[0];
        values_ns += times[2] - times[1];
        find_ns += times[3] - times[2];
        arena_reset(&arena);
    }
    arena_done(&arena);
    figure("labels", (double)labels_ns / total, "ns/series", "");
    figure("one label's value, and fingerprint", (double)values_ns / total, "ns/series", "");
    figure("look-up by fingerprint", (double)find_ns / total, "ns/series", "");
}

static void read_figures(struct bench *b)
{
    struct errinfo ei = {0};
    struct part *p;
    uint64_t begin = clock_thread_cpu_ns();

    if (part_open(b->store, "", &b->key, &p, &ei) != ERR_OK)
        fail("open", &ei);
    figure("open", (double)(clock_thread_cpu_ns() - begin) / 1e3, "us", "");
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
    double series = (double)b->row_count, samples = series * b->scrape_count;
    uint64_t begin = clock_thread_cpu_ns();

    write_part(b, &info);
    figure("write", samples * 1e3 / (double)(clock_thread_cpu_ns() - begin), "Msamples/CPU-s",
           "budget 30, encoding included");
    figure("writer's memory, peak", (double)b->memory.peak_bytes / series, "B/series", "");
    figure("series", series, "", "");
    figure("samples", samples, "", "");
    figure("entities", info.entity_count, "", "");
    figure("timestamp columns", info.times_count, "", "");
    figure("index", (double)info.index_size / series, "B/series",
           "aim 37, timestamp columns included");
    figure("chunks", (double)info.chunks_size / samples, "B/sample", "");
    figure("all", (double)(info.index_size + info.chunks_size) / samples, "B/sample",
           "budget 1.15; 1.20 with 5 ms of jitter");
    read_figures(b);
}

static void remove_parts(struct bench *b)
{
    for (int i = 0; i < 4; i++) {
        struct part_key key = b->key;
        char name[PART_NAME_SIZE];

        key.generation += (uint64_t)i / 2;
        part_name_format(&key, (enum part_file)(i % 2), false, name);
        if (fs_unlink(b->fs, name, NULL) != ERR_OK)
            (void)fprintf(stderr, "bench_part: %s stays\n", name);
    }
}

int main(int argc, char **argv)
{
    const char *base = getenv("BENCH_DIR");        // NOLINT(concurrency-mt-unsafe): nobody writes
    const char *profile = getenv("BENCH_PROFILE"); // NOLINT(concurrency-mt-unsafe): nobody writes
    struct fleet_options options = {.seed = 1, .interval_ms = INTERVAL_MS, .target_offsets = true};
    struct part_store_options so = {.cache_bytes = UINT64_C(1) << 30, .descriptor_count = 16};
    struct fleet_template *template;
    struct errinfo ei = {0};
    struct bench b = {.node_count = 320, .shard_count = 16};
    char dir[512];

    if (argc > 1)
        b.node_count = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        b.shard_count = (uint32_t)strtoul(argv[2], NULL, 10);
    b.scrape_count = number_from_env("BENCH_WINDOW_S", 7200) / (INTERVAL_MS / 1000);
    b.key = (struct part_key){.window_start_ms = start_ms,
                              .window_size_ms = 7200000,
                              .shard_count = b.shard_count,
                              .generation = 1};
    options.node_count = b.node_count;
    options.start_ms = start_ms;
    options.jitter_ms = number_from_env("BENCH_JITTER_MS", 0);
    if (profile != NULL && strcmp(profile, "cadvisor") == 0)
        options.profile = FLEET_CADVISOR;
    (void)snprintf(dir, sizeof dir, "%s/rimstone-bench-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(dir) == NULL) { /* allow(mkdtemp): the benchmark's own directory */
        perror("bench_part");
        return 1;
    }
    arena_init(&b.arena, NULL);
    hash_secret_init(&b.secret, 1);
    budget_init(&b.memory, "parts", UINT64_MAX, NULL);
    if (fs_open(dir, FS_IO_AUTO, &b.fs, &ei) != ERR_OK)
        fail("open directory", &ei);
    so.fs = b.fs;
    so.memory = &b.memory;
    if (part_store_new(&so, &b.store, &ei) != ERR_OK ||
        fleet_template_new(options.profile, &template, &ei) != ERR_OK ||
        fleet_nodes_new(template, &options, 0, b.node_count, &b.nodes, &ei) != ERR_OK)
        fail("stream", &ei);
    make_samples(&b, (size_t)b.node_count * fleet_series_per_node(template));
    qsort(b.rows, b.row_count, sizeof *b.rows, compare_rows);
    run(&b);
    part_store_free(b.store);
    remove_parts(&b);
    fs_free(b.fs);
    (void)rmdir(dir); /* allow(rmdir): the benchmark's own directory */
    return 0;
}
