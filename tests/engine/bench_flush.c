/*
 * The flush of a window on the GPU-fleet stream: one shard's share of 2 h at 15 s, sealed a few
 * times, made into a part. The sealed file is written as seals write it: series in the order in
 * which they came, up to 512 a slice. One figure a line; budgets stand behind a #.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bench/bench_support.h"
#include "bench/fleet_capture.h"
#include "engine/flush/flush_internal.h"

enum { INTERVAL_MS = 15000, SLICE_SERIES = 512, SCRAPES = 480 };

static const int64_t start_ms = INT64_C(1700006400000);

static const char usage[] =
    "usage: bench_flush [nodes] [shards] [seals] [pass MiB]\n"
    "  default 320 nodes, of which a sixteenth of the entities is taken: 20,000 series; 8 seals;\n"
    "  48 MiB of chunks in memory at a time\n"
    "  by environment: BENCH_JITTER_MS (default 0), BENCH_PROFILE=gpu|cadvisor, BENCH_DIR "
    "(default\n"
    "  TMPDIR or /tmp)\n";

struct bench {
    struct fs *fs;
    struct fleet_capture fleet;
    struct fleet_row **by_slot; /* owned; the slot of a series is its number */
    struct index *index;
    struct budget memory;
    struct part_store *store;
    struct sealed_source source;
    struct sealed_view view;
};

static void index_fill(struct bench *b)
{
    struct errinfo ei = {0};

    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    b->by_slot = calloc(b->fleet.row_count, sizeof *b->by_slot);
    if (b->by_slot == NULL)
        bench_fail("memory", NULL);
    for (size_t i = 0; i < b->fleet.row_count; i++)
        b->by_slot[b->fleet.rows[i].number] = &b->fleet.rows[i];
    bench_check(index_new(NULL, &b->index, &ei), &ei);
    for (uint32_t i = 0; i < b->fleet.row_count; i++)
        bench_check(index_add(b->index, i, &b->by_slot[i]->labels, &ei), &ei);
}

static void slice_add(struct bench *b, struct sealed_writer *w)
{
    struct sealed_slice *slice;
    struct errinfo ei = {0};

    bench_check(sealed_writer_slice(w, 1, &slice, &ei), &ei);
    b->source.slices[b->source.slice_count++] = slice;
}

/* The scrapes of one seal, series by series. */
static void seal(struct bench *b, struct sealed_writer *w, uint32_t first, uint32_t end)
{
    struct errinfo ei = {0};

    for (uint32_t slot = 0; slot < b->fleet.row_count; slot++) {
        size_t at = (size_t)slot * b->fleet.scrape_count + first;

        bench_check(sealed_writer_chunk(w, slot, 1, b->fleet.t_ms + at, b->fleet.value + at,
                                        end - first, &ei),
                    &ei);
        if (slot % SLICE_SERIES == SLICE_SERIES - 1)
            slice_add(b, w);
    }
    if (sealed_writer_chunk_count(w) > 0)
        slice_add(b, w);
}

static void sealed_write(struct bench *b, uint32_t seals)
{
    struct sealed_identity identity = {
        .kind = SEALED_RECENT, .shard_count = b->fleet.shard_count, .number = 1};
    struct sealed_writer *w;
    struct errinfo ei = {0};

    b->source.slices =
        calloc(seals * (b->fleet.row_count / SLICE_SERIES + 1), sizeof(struct sealed_slice *));
    if (b->source.slices == NULL)
        bench_fail("memory", NULL);
    bench_check(sealed_writer_create(b->fs, "sealed", &identity, &b->source.file, &w, &ei), &ei);
    for (uint32_t i = 0; i < seals; i++)
        seal(b, w, SCRAPES * i / seals, SCRAPES * (i + 1) / seals);
    bench_check(sealed_writer_sync(w, &ei), &ei);
    sealed_writer_free(w);
    b->source.generation = generation_of_file(1);
    b->view = (struct sealed_view){&b->source, b->source.slices, b->source.slice_count, INT64_MIN,
                                   INT64_MAX};
}

static void look_up(void *ctx, const uint32_t *slots, size_t count, struct flush_series *out)
{
    const struct bench *b = ctx;

    for (size_t i = 0; i < count; i++)
        out[i] = (struct flush_series){b->by_slot[slots[i]]->fingerprint, 1, true};
}

static void flush(struct bench *b, uint64_t generation, size_t pass_bytes)
{
    struct flush_window f = {.views = &b->view,
                             .view_count = 1,
                             .index = b->index,
                             .lookup = look_up,
                             .ctx = b,
                             .store = b->store,
                             .dir = "",
                             .memory = &b->memory,
                             .pass_bytes = pass_bytes};
    struct flush_window_result result;
    struct errinfo ei = {0};
    uint64_t begin = clock_thread_cpu_ns(), took;

    f.key = (struct part_key){.window_start_ms = start_ms,
                              .window_size_ms = 7200000,
                              .shard_count = b->fleet.shard_count,
                              .generation = generation};
    bench_check(flush_window_write(&f, &result, &ei), &ei);
    took = clock_thread_cpu_ns() - begin;
    bench_figure("flush", (double)result.info.sample_count * 1e3 / (double)took, "Msamples/CPU-s",
                 "budget 30, reading included");
    bench_figure("memory, peak", (double)b->memory.peak_bytes / 1048576, "MiB", "");
    bench_figure("index", (double)result.info.index_size / result.info.series_count, "B/series",
                 "");
    bench_figure("all",
                 (double)(result.info.index_size + result.info.chunks_size) /
                     (double)result.info.sample_count,
                 "B/sample", "budget 1.15; 1.20 with 5 ms of jitter");
}

static void files_free(struct bench *b)
{
    for (size_t i = 0; i < b->source.slice_count; i++)
        free(b->source.slices[i]);
    free(b->source.slices);
    sealed_file_close(b->source.file);
    index_free(b->index);
    free(b->by_slot);
}

int main(int argc, char **argv)
{
    struct fleet_options options = {
        .seed = 1, .interval_ms = INTERVAL_MS, .target_offsets = true, .start_ms = start_ms};
    struct part_store_options so = {.cache_bytes = UINT64_C(1) << 20, .descriptor_count = 16};
    struct errinfo ei = {0};
    struct bench_args args;
    struct bench_dir dir;
    struct bench b = {0};
    uint32_t shard_count, seals, pass_mib;

    bench_args_init(&args, argc, argv, 4, usage);
    options.node_count = bench_args_number(&args, 0, 320);
    shard_count = bench_args_number(&args, 1, 16);
    seals = bench_args_number(&args, 2, 8);
    pass_mib = bench_args_number(&args, 3, 48);
    options.jitter_ms = bench_env_number("BENCH_JITTER_MS", 0, 0);
    options.profile = fleet_profile_from_env();
    fleet_capture_init(&b.fleet, &options, shard_count, SCRAPES);
    fleet_capture_window(&b.fleet);
    bench_dir_open(&dir, FS_IO_AUTO);
    b.fs = so.fs = dir.fs;
    budget_init(&b.memory, "parts", UINT64_MAX, NULL);
    so.memory = &b.memory;
    bench_check(part_store_new(&so, &b.store, &ei), &ei);
    index_fill(&b);
    sealed_write(&b, seals);
    bench_figure("series", (double)b.fleet.row_count, "", "");
    flush(&b, 1, (size_t)pass_mib << 20);
    files_free(&b);
    part_store_free(b.store);
    bench_dir_close(&dir);
    fleet_capture_done(&b.fleet);
    return 0;
}
