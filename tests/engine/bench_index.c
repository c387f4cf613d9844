/*
 * The index alone, on the label sets of the GPU-fleet stream or of its second profile, spread over
 * 16 shards as the engine spreads them: cost of adding a series, bytes a series, CPU time of
 * selections over all shards, and the cost of making an index anew from another's columns. One
 * figure a line.
 *
 * Stands here and not in bench/ because it uses private headers.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "bench/bench_support.h"
#include "bench/fleet_capture.h"
#include "engine/index/index_internal.h"
#include "engine/sealed/series_file_internal.h"

enum { SHARD_COUNT = 16, BATCH_MAX = 4096 };

static const char usage[] = "usage: bench_index [gpu|cadvisor] [nodes]\n"
                            "  default gpu, 1000 nodes: 1 M series\n";

struct bench {
    struct index *shards[SHARD_COUNT];
    uint32_t slot_count[SHARD_COUNT];
    struct hash_secret secret;
    struct budget memory;
    uint64_t add_ns, series;
    double worst_us; /* the longest single addition */
};

static uint32_t shard_of(const struct bench *b, const struct label *items, size_t count)
{
    return (uint32_t)(fleet_labels_entity_hash(&b->secret, items, count) >> 40) % SHARD_COUNT;
}

static void add_node(struct bench *b, const struct fleet_sample *samples, size_t count)
{
    static struct label items[BATCH_MAX][FLEET_LABEL_MAX];
    static struct labels sets[BATCH_MAX];
    static uint32_t shards[BATCH_MAX];
    struct errinfo ei = {0};
    uint64_t cpu_start;

    for (size_t i = 0; i < count; i++) {
        sets[i] = (struct labels){fleet_labels_parse(samples[i].labels, items[i]), items[i]};
        shards[i] = shard_of(b, items[i], sets[i].count);
    }
    cpu_start = clock_thread_cpu_ns();
    for (size_t i = 0; i < count; i++) {
        uint64_t start = clock_mono_ns();
        double took_us;

        if (index_add(b->shards[shards[i]], b->slot_count[shards[i]]++, &sets[i], &ei) != ERR_OK)
            bench_fail("add", &ei);
        took_us = (double)(clock_mono_ns() - start) / 1e3;
        if (took_us > b->worst_us)
            b->worst_us = took_us;
    }
    b->add_ns += clock_thread_cpu_ns() - cpu_start;
    b->series += count;
}

static void load(struct bench *b, enum fleet_profile profile, uint32_t node_count)
{
    struct fleet_options options = {
        .profile = profile, .seed = 1, .node_count = node_count, .interval_ms = 15000};
    struct fleet_source fleet;

    fleet_source_init(&fleet, &options);
    for (uint32_t i = 0; i < node_count; i++) {
        const struct fleet_sample *samples;
        size_t n = fleet_node_scrape(fleet.nodes, i, &samples);

        for (size_t k = 0; k < n; k += BATCH_MAX)
            add_node(b, samples + k, n - k < BATCH_MAX ? n - k : BATCH_MAX);
    }
    fleet_source_done(&fleet);
}

struct pattern {
    enum matcher_kind kind;
    const char *name, *value;
};

static void time_select(struct bench *b, const char *title, const struct pattern *patterns,
                        size_t count)
{
    struct matcher matchers[4];
    struct arena arena;
    struct errinfo ei = {0};
    size_t found = 0;
    uint64_t start;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < count; i++) {
        if (matcher_init(&matchers[i], patterns[i].kind, str_from(patterns[i].name),
                         str_from(patterns[i].value), &arena, &ei) != ERR_OK)
            bench_fail("matcher", &ei);
    }
    start = clock_thread_cpu_ns();
    for (int s = 0; s < SHARD_COUNT; s++) {
        uint32_t *slots;
        size_t n;

        if (index_select(b->shards[s], matchers, count, NULL, &arena, &slots, &n, &ei) != ERR_OK)
            bench_fail("select", &ei);
        found += n;
    }
    printf("index_select_%s_cpu %.3f ms (%zu series)\n", title,
           (double)(clock_thread_cpu_ns() - start) / 1e6, found);
    for (size_t i = 0; i < count; i++)
        matcher_done(&matchers[i]);
    arena_done(&arena);
}

#define TIME_SELECT(b, title, ...)                                                                 \
    time_select((b), (title), (const struct pattern[]){__VA_ARGS__},                               \
                sizeof((const struct pattern[]){__VA_ARGS__}) / sizeof(struct pattern))

static void time_selects(struct bench *b)
{
    TIME_SELECT(b, "all", {MATCHER_REGEX, "__name__", ".+"});
    TIME_SELECT(b, "one_metric", {MATCHER_EQUAL, "__name__", "node_cpu_seconds_total"});
    TIME_SELECT(b, "metric_and_instance", {MATCHER_EQUAL, "__name__", "node_cpu_seconds_total"},
                {MATCHER_REGEX, "instance", ".*7.*"});
    TIME_SELECT(b, "metric_regex", {MATCHER_REGEX, "__name__", "DCGM_FI_DEV_.*(TEMP|CLOCK)"});
    TIME_SELECT(b, "metric_without_mode", {MATCHER_EQUAL, "__name__", "node_cpu_seconds_total"},
                {MATCHER_NOT_EQUAL, "mode", "idle"});
    TIME_SELECT(b, "label_missing", {MATCHER_EQUAL, "gpu", ""}, {MATCHER_NOT_REGEX, "le", "1.*"});
    TIME_SELECT(b, "pods_by_regex", {MATCHER_REGEX, "pod", "train-job-[0-3].*"});
}

/* An image of every index and indexes made of these: what a rebuild and a restart cost. */
static void time_images(struct bench *b)
{
    uint64_t image_ns = 0, load_ns = 0, bytes = 0;
    struct errinfo ei = {0};

    for (int s = 0; s < SHARD_COUNT; s++) {
        uint32_t *slots = malloc((b->slot_count[s] + 1) * sizeof *slots);
        struct series_image image;
        struct index_stats stats;
        struct index *loaded;
        uint64_t start, made;

        if (slots == NULL)
            bench_fail("out of memory", NULL);
        for (uint32_t i = 0; i < b->slot_count[s]; i++)
            slots[i] = i;
        start = clock_thread_cpu_ns();
        if (index_image(b->shards[s], slots, b->slot_count[s], &image, &ei) != ERR_OK)
            bench_fail("image", &ei);
        made = clock_thread_cpu_ns();
        if (index_new(&b->memory, &loaded, &ei) != ERR_OK ||
            index_load_image(loaded, &image, &ei) != ERR_OK)
            bench_fail("load", &ei);
        load_ns += clock_thread_cpu_ns() - made;
        image_ns += made - start;
        index_stats_get(loaded, &stats);
        bytes += stats.memory_bytes;
        series_image_done(&image);
        index_free(loaded);
        free(slots);
    }
    printf("index_image_cpu %.0f ns\n", (double)image_ns / (double)b->series);
    printf("index_load_cpu %.0f ns budget 250\n", (double)load_ns / (double)b->series);
    printf("index_loaded_per_series %.1f B budget 100\n", (double)bytes / (double)b->series);
}

int main(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    struct index_stats total = {0};
    struct errinfo ei = {0};
    struct bench_args args;
    enum fleet_profile profile;
    uint32_t nodes;
    size_t heap_before;

    bench_args_init(&args, argc, argv, 2, usage);
    profile = bench_args_is_second(&args, 0, "gpu", "cadvisor") ? FLEET_CADVISOR : FLEET_GPU;
    nodes = bench_args_number(&args, 1, 1000);
    if (b == NULL)
        bench_fail("out of memory", NULL);
    budget_init(&b->memory, "bench", UINT64_MAX, NULL);
    hash_secret_init(&b->secret, 1);
    heap_before = mallinfo2().uordblks;
    for (int s = 0; s < SHARD_COUNT; s++) {
        if (index_new(&b->memory, &b->shards[s], &ei) != ERR_OK)
            bench_fail("new", &ei);
    }
    load(b, profile, nodes);
    for (int s = 0; s < SHARD_COUNT; s++) {
        struct index_stats stats;

        index_stats_get(b->shards[s], &stats);
        total.memory_bytes += stats.memory_bytes;
        total.value_count += stats.value_count;
        total.value_bytes += stats.value_bytes;
    }
    printf("index_series %llu series\n", (unsigned long long)b->series);
    printf("index_add_cpu %.0f ns budget 1500\n", (double)b->add_ns / (double)b->series);
    printf("index_add_worst_wall %.1f us\n", b->worst_us);
    printf("index_charged_per_series %.1f B budget 100\n",
           (double)total.memory_bytes / (double)b->series);
    printf("index_heap_per_series %.1f B budget 100\n",
           (double)(mallinfo2().uordblks - heap_before) / (double)b->series);
    printf("index_dictionary_values %llu values\n", (unsigned long long)total.value_count);
    printf("index_text_per_series %.1f B\n", (double)total.value_bytes / (double)b->series);
    time_selects(b);
    time_images(b);
    for (int s = 0; s < SHARD_COUNT; s++)
        index_free(b->shards[s]);
    free(b);
    return 0;
}
