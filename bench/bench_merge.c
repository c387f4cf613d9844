/*
 * Merges of parts on the GPU-fleet stream: one shard's share of a day at 15 s in parts of 2 h, on a
 * real directory. One figure a line: name, value, unit; budgets stand behind a #.
 *
 *   bench_merge [nodes] [shards]    default 80 nodes, of which a sixteenth of the entities is
 *                                   taken: 5,000 series
 *   by environment: BENCH_JITTER_MS, BENCH_DIR (default TMPDIR or /tmp)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "compactor/merge.h"
#include "engine/codec.h"
#include "engine/part.h"
#include "tools/fleet_stream.h"

enum { INTERVAL_MS = 15000, LABEL_MAX = 64, WINDOWS = 12, SCRAPES = 480 };

static const int64_t start_ms = INT64_C(1700006400000);
static const int64_t window_ms = INT64_C(7200000);

struct row {
    struct labels labels;
    struct hash128 fingerprint;
    size_t number; /* of its samples */
};

struct bench {
    struct arena arena;
    struct hash_secret secret;
    struct fleet_nodes *nodes;
    uint32_t node_count, shard_count;
    size_t *mine; /* owned: row of each series of the fleet, or SIZE_MAX */
    struct row *rows;
    size_t row_count, row_capacity;
    int64_t *t_ms; /* owned: [number][scrape] of the window at hand */
    double *value;
    struct fs *fs;
    struct budget memory;
    struct part_store *store;
    struct part *parts[WINDOWS];
    struct part_key keys[WINDOWS];
};

static _Noreturn void fail(const char *what, const struct errinfo *ei)
{
    (void)fprintf(stderr, "bench_merge: %s: %s\n", what, ei->message);
    exit(1); // NOLINT(concurrency-mt-unsafe): nothing else calls exit
}

static void figure(const char *name, double value, const char *unit, const char *budget)
{
    (void)printf("%-44s %14.3f %-18s%s%s\n", name, value, unit, budget[0] != '\0' ? "# " : "",
                 budget);
    (void)fflush(stdout);
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

static int compare_rows(const void *a, const void *b)
{
    return part_labels_compare(&((const struct row *)a)->labels, &((const struct row *)b)->labels);
}

/* A scrape of its own decides which series are ours. */
static void choose_rows(struct bench *b)
{
    struct errinfo ei = {0};
    size_t total = 0;

    for (uint32_t n = 0; n < b->node_count; n++) {
        const struct fleet_sample *samples;
        size_t count = fleet_node_scrape(b->nodes, n, &samples);

        b->mine = realloc(b->mine, (total + count) * sizeof *b->mine);
        if (b->mine == NULL)
            fail("memory", &ei);
        for (size_t i = 0; i < count; i++) {
            struct label items[LABEL_MAX];
            bool ours = is_ours(b, items, parse_labels(samples[i].labels, items));

            b->mine[total + i] = ours ? b->row_count : SIZE_MAX;
            if (ours)
                add_row(b, samples[i].labels);
        }
        total += count;
    }
    qsort(b->rows, b->row_count, sizeof *b->rows, compare_rows);
    b->t_ms = malloc(b->row_count * SCRAPES * sizeof *b->t_ms);
    b->value = malloc(b->row_count * SCRAPES * sizeof *b->value);
    if (b->t_ms == NULL || b->value == NULL)
        fail("memory", &ei);
}

static void scrape_window(struct bench *b)
{
    for (size_t s = 0; s < SCRAPES; s++) {
        size_t at = 0;

        for (uint32_t n = 0; n < b->node_count; n++) {
            const struct fleet_sample *samples;
            size_t got = fleet_node_scrape(b->nodes, n, &samples);

            for (size_t i = 0; i < got; i++, at++) {
                if (b->mine[at] == SIZE_MAX)
                    continue;
                b->t_ms[b->mine[at] * SCRAPES + s] = samples[i].t_ms;
                b->value[b->mine[at] * SCRAPES + s] = samples[i].value;
            }
        }
    }
}

/* ---- parts ---- */

/* Of each series the samples of the window at hand, from `first` on and every `step`-th. */
static void write_part(struct bench *b, const struct part_key *key, size_t first, size_t step,
                       struct part **out)
{
    struct part_writer_options o = {.dir = ".", .key = *key};
    int64_t last_ms = key->window_start_ms + window_ms - 1;
    struct errinfo ei = {0};
    struct part_writer *w;
    struct part_info info;

    if (part_writer_new(b->store, &o, &w, &ei) != ERR_OK)
        fail("create", &ei);
    for (size_t i = 0; i < b->row_count; i++) {
        const struct row *row = &b->rows[i];
        int64_t t_ms[SCRAPES];
        double value[SCRAPES];
        size_t n = 0;

        for (size_t s = first; s < SCRAPES; s += step) {
            int64_t t = b->t_ms[row->number * SCRAPES + s];

            if (t < key->window_start_ms || t > last_ms) /* jitter, over the border */
                continue;
            t_ms[n] = t;
            value[n++] = b->value[row->number * SCRAPES + s];
        }
        if (part_writer_series(w, &row->labels, row->fingerprint, &ei) != ERR_OK ||
            part_writer_samples(w, t_ms, value, n, &ei) != ERR_OK)
            fail("write", &ei);
    }
    if (part_writer_finish(w, 1, &info, &ei) != ERR_OK)
        fail("finish", &ei);
    part_writer_free(w);
    if (part_open(b->store, ".", key, out, &ei) != ERR_OK)
        fail("open", &ei);
}

static struct part_key key_of(const struct bench *b, int64_t window, uint64_t generation)
{
    return (struct part_key){.window_start_ms = start_ms + window * window_ms,
                             .window_size_ms = (uint64_t)window_ms,
                             .shard_count = b->shard_count,
                             .generation = generation};
}

static void remove_part(struct bench *b, const struct part_key *key)
{
    for (int i = 0; i < 2; i++) {
        char name[PART_NAME_SIZE];

        part_name_format(key, (enum part_file)i, false, name);
        if (fs_unlink(b->fs, name, NULL) != ERR_OK)
            (void)fprintf(stderr, "bench_merge: %s stays\n", name);
    }
}

/* ---- merges ---- */

static void print_result(const char *name, const struct merge_result *r, uint64_t cpu_ns,
                         uint64_t memory_bytes, const char *budget)
{
    const struct merge_stats *s = &r->stats;

    figure(name, (double)r->info.sample_count * 1e3 / (double)cpu_ns, "Msamples/CPU-s", budget);
    figure("  of them copied", (double)s->samples_copied / (double)r->info.sample_count, "", "");
    figure("  samples in a chunk", (double)r->info.sample_count / (double)r->info.chunk_count, "",
           "");
    figure("  before",
           (double)s->input_bytes / (double)(r->info.sample_count + s->samples_repeated),
           "B/sample", "");
    figure("  after",
           (double)(r->info.index_size + r->info.chunks_size) / (double)r->info.sample_count,
           "B/sample", "");
    figure("  extra memory, peak", (double)memory_bytes / (1 << 20), "MiB", "");
}

static void merge(struct bench *b, const char *name, size_t first, size_t count,
                  uint32_t target_samples, uint32_t copy_min_samples, const char *budget)
{
    struct merge_options o = {.store = b->store,
                              .dir = ".",
                              .inputs = b->parts + first,
                              .input_count = count,
                              .memory = &b->memory,
                              .target_samples = target_samples,
                              .copy_min_samples = copy_min_samples};
    uint64_t before = budget_used(&b->memory), begin;
    bool chosen[WINDOWS];
    struct merge_result result;
    struct errinfo ei = {0};

    memset(chosen, true, sizeof chosen);
    if (merge_inputs_valid(b->keys + first, chosen, count, &o.key, &ei) != ERR_OK)
        fail(name, &ei);
    atomic_store(&b->memory.peak_bytes, before);
    begin = clock_process_cpu_ns();
    if (merge_run(&o, &result, &ei) != ERR_OK)
        fail(name, &ei);
    print_result(name, &result, clock_process_cpu_ns() - begin,
                 atomic_load(&b->memory.peak_bytes) - before, budget);
    remove_part(b, &o.key);
}

/* The last two parts become the two halves of one window: every other sample. */
static void interleave(struct bench *b)
{
    for (size_t i = WINDOWS - 2; i < WINDOWS; i++) {
        part_close(b->parts[i]);
        remove_part(b, &b->keys[i]);
        b->keys[i] = key_of(b, WINDOWS - 1, WINDOWS + i);
        write_part(b, &b->keys[i], i % 2, 2, &b->parts[i]);
    }
}

static void run(struct bench *b)
{
    for (int64_t i = 0; i < WINDOWS; i++) {
        scrape_window(b);
        b->keys[i] = key_of(b, i, 1 + (uint64_t)i);
        write_part(b, &b->keys[i], 0, 1, &b->parts[i]);
    }
    figure("series", (double)b->row_count, "", "");
    merge(b, "8 h of 2 h, copied", 0, 4, 0, 0, "budget 100");
    merge(b, "8 h of 2 h, written anew", 0, 4, 0, CODEC_SAMPLES_MAX, "budget 30");
    merge(b, "1 d of 2 h, by default", 0, WINDOWS, 0, 0, "budget 30");
    merge(b, "1 d of 2 h, copied", 0, WINDOWS, 0, 1, "budget 100");
    interleave(b);
    merge(b, "2 h of two, interleaved", WINDOWS - 2, 2, 0, 0, "budget 30");
    for (size_t i = 0; i < WINDOWS; i++) {
        part_close(b->parts[i]);
        remove_part(b, &b->keys[i]);
    }
}

int main(int argc, char **argv)
{
    const char *base = getenv("BENCH_DIR");         // NOLINT(concurrency-mt-unsafe): nobody writes
    const char *jitter = getenv("BENCH_JITTER_MS"); // NOLINT(concurrency-mt-unsafe): nobody writes
    /* One scrape before the first window decides which series are ours. */
    struct fleet_options options = {.seed = 1,
                                    .interval_ms = INTERVAL_MS,
                                    .target_offsets = true,
                                    .start_ms = start_ms - INTERVAL_MS};
    struct part_store_options so = {.cache_bytes = UINT64_C(1) << 20, .descriptor_count = 64};
    struct fleet_template *template;
    struct errinfo ei = {0};
    struct bench b = {.node_count = 80, .shard_count = 16};
    char dir[512];

    if (argc > 1)
        b.node_count = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        b.shard_count = (uint32_t)strtoul(argv[2], NULL, 10);
    options.node_count = b.node_count;
    options.jitter_ms = jitter == NULL ? 0 : (uint32_t)strtoul(jitter, NULL, 10);
    (void)snprintf(dir, sizeof dir, "%s/rimstone-bench-XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(dir) == NULL) { /* allow(mkdtemp): the benchmark's own directory */
        perror("bench_merge");
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
    choose_rows(&b);
    run(&b);
    part_store_free(b.store);
    fs_free(b.fs);
    (void)rmdir(dir); /* allow(rmdir): the benchmark's own directory */
    return 0;
}
