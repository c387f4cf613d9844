/*
 * Merges of parts on the GPU-fleet stream: one shard's share of a day at 15 s in parts of 2 h, on a
 * real directory. One figure a line: name, value, unit; budgets stand behind a #.
 *
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "bench/bench_support.h"
#include "bench/fleet_capture.h"
#include "compactor/merge.h"
#include "engine/codec.h"
#include "engine/part.h"

enum { INTERVAL_MS = 15000, WINDOWS = 12, SCRAPES = 480 };

static const int64_t start_ms = INT64_C(1700006400000);
static const int64_t window_ms = INT64_C(7200000);

static const char usage[] =
    "usage: bench_merge [nodes] [shards]\n"
    "  default 80 nodes, of which a sixteenth of the entities is taken: 5,000 series\n"
    "  by environment: BENCH_JITTER_MS (default 0), BENCH_DIR (default TMPDIR or /tmp)\n";

struct bench {
    struct fleet_capture fleet;
    struct fs *fs; /* borrowed */
    struct budget memory;
    struct part_store *store;
    struct part *parts[WINDOWS];
    struct part_key keys[WINDOWS];
};

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
        bench_fail("create", &ei);
    for (size_t i = 0; i < b->fleet.row_count; i++) {
        const struct fleet_row *row = &b->fleet.rows[i];
        int64_t t_ms[SCRAPES];
        double value[SCRAPES];
        size_t n = 0;

        for (size_t s = first; s < SCRAPES; s += step) {
            int64_t t = b->fleet.t_ms[row->number * SCRAPES + s];

            if (t < key->window_start_ms || t > last_ms) /* jitter, over the border */
                continue;
            t_ms[n] = t;
            value[n++] = b->fleet.value[row->number * SCRAPES + s];
        }
        if (part_writer_series(w, &row->labels, row->fingerprint, &ei) != ERR_OK ||
            part_writer_samples(w, t_ms, value, n, &ei) != ERR_OK)
            bench_fail("write", &ei);
    }
    if (part_writer_finish(w, 1, &info, &ei) != ERR_OK)
        bench_fail("finish", &ei);
    part_writer_free(w);
    if (part_open(b->store, ".", key, out, &ei) != ERR_OK)
        bench_fail("open", &ei);
}

static struct part_key key_of(const struct bench *b, int64_t window, uint64_t generation)
{
    return (struct part_key){.window_start_ms = start_ms + window * window_ms,
                             .window_size_ms = (uint64_t)window_ms,
                             .shard_count = b->fleet.shard_count,
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

    bench_figure(name, (double)r->info.sample_count * 1e3 / (double)cpu_ns, "Msamples/CPU-s",
                 budget);
    bench_figure("  of them copied", (double)s->samples_copied / (double)r->info.sample_count, "",
                 "");
    bench_figure("  samples in a chunk", (double)r->info.sample_count / (double)r->info.chunk_count,
                 "", "");
    bench_figure("  before",
                 (double)s->input_bytes / (double)(r->info.sample_count + s->samples_repeated),
                 "B/sample", "");
    bench_figure("  after",
                 (double)(r->info.index_size + r->info.chunks_size) / (double)r->info.sample_count,
                 "B/sample", "");
    bench_figure("  extra memory, peak", (double)memory_bytes / (1 << 20), "MiB", "");
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
        bench_fail(name, &ei);
    atomic_store(&b->memory.peak_bytes, before);
    begin = clock_process_cpu_ns();
    if (merge_run(&o, &result, &ei) != ERR_OK)
        bench_fail(name, &ei);
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
        fleet_capture_window(&b->fleet);
        b->keys[i] = key_of(b, i, 1 + (uint64_t)i);
        write_part(b, &b->keys[i], 0, 1, &b->parts[i]);
    }
    bench_figure("series", (double)b->fleet.row_count, "", "");
    merge(b, "8 h of 2 h, copied", 0, 4, 0, 0, "budget 100");
    merge(b, "8 h of 2 h, written anew", 0, 4, 0, CODEC_SAMPLES_MAX, "budget 30");
    merge(b, "1 d of 2 h, by default", 0, WINDOWS, 0, 0, "budget 30");
    merge(b, "1 d of 2 h, copied", 0, WINDOWS, 0, 1, "budget 100");
    interleave(b);
    merge(b, "2 h of two, interleaved", WINDOWS - 2, 2, 0, 0, "budget 30");
    for (size_t i = 0; i < WINDOWS; i++)
        part_close(b->parts[i]);
}

int main(int argc, char **argv)
{
    /* One scrape before the first window decides which series are ours. */
    struct fleet_options options = {.seed = 1,
                                    .interval_ms = INTERVAL_MS,
                                    .target_offsets = true,
                                    .start_ms = start_ms - INTERVAL_MS};
    struct part_store_options so = {.cache_bytes = UINT64_C(1) << 20, .descriptor_count = 64};
    struct errinfo ei = {0};
    struct bench_args args;
    struct bench_dir dir;
    struct bench b = {0};

    bench_args_init(&args, argc, argv, 2, usage);
    options.node_count = bench_args_number(&args, 0, 80);
    options.jitter_ms = bench_env_number("BENCH_JITTER_MS", 0, 0);
    fleet_capture_init(&b.fleet, &options, bench_args_number(&args, 1, 16), SCRAPES);
    bench_dir_open(&dir, FS_IO_AUTO);
    budget_init(&b.memory, "parts", UINT64_MAX, NULL);
    b.fs = dir.fs;
    so.fs = b.fs;
    so.memory = &b.memory;
    if (part_store_new(&so, &b.store, &ei) != ERR_OK)
        bench_fail("part store", &ei);
    run(&b);
    part_store_free(b.store);
    bench_dir_close(&dir);
    fleet_capture_done(&b.fleet);
    return 0;
}
