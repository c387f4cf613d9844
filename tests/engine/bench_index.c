/*
 * The index alone, on the label sets of the GPU-fleet stream (or, with the argument `cadvisor`, of
 * its second profile), spread over 16 shards as the engine spreads them: cost of adding a series,
 * bytes a series, and CPU time of selections over all shards. One figure a line.
 *
 *   bench_index [gpu|cadvisor] [nodes]      default: gpu 1000, which is 1 M series
 *
 * Stands here and not in bench/ because it uses private headers.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "engine/index_internal.h"
#include "tools/fleet_stream.h"

enum { SHARD_COUNT = 16, LABEL_MAX = 64, BATCH_MAX = 4096 };

struct bench {
    struct index *shards[SHARD_COUNT];
    uint32_t slot_count[SHARD_COUNT];
    struct hash_secret secret;
    struct budget memory;
    uint64_t add_ns, series;
    double worst_us; /* the longest single addition */
};

static _Noreturn void fail(const char *what, const struct errinfo *ei)
{
    (void)fprintf(stderr, "bench_index: %s: %s\n", what, ei->message);
    exit(1); // NOLINT(concurrency-mt-unsafe): one thread
}

static struct str read_field(struct byte_reader *r)
{
    size_t size;

    (void)reader_varint(r); /* the tag */
    size = (size_t)reader_varint(r);
    return (struct str){(const char *)reader_take(r, size), size};
}

/* The label fields of a remote-write 1.0 series. The stream is our own, so it is well-formed. */
static size_t parse_labels(struct bytes wire, struct label *out)
{
    struct byte_reader r = reader_init(wire.data, wire.size);
    size_t n = 0;

    while (reader_left(&r) > 0 && n < LABEL_MAX) {
        struct str message = read_field(&r);
        struct byte_reader m = reader_init(message.data, message.size);

        out[n].name = read_field(&m);
        out[n++].value = read_field(&m);
    }
    return n;
}

/* An entity's metrics share a shard: the hash leaves the name out. */
static uint32_t shard_of(const struct bench *b, const struct label *items, size_t count)
{
    uint64_t h = 0;

    for (size_t i = 0; i < count; i++) {
        if (!str_equal(items[i].name, LABEL_METRIC_NAME))
            h = h * 31 + hash64_bytes(&b->secret, items[i].value.data, items[i].value.size);
    }
    return (uint32_t)(h >> 40) % SHARD_COUNT;
}

static void add_node(struct bench *b, const struct fleet_sample *samples, size_t count)
{
    static struct label items[BATCH_MAX][LABEL_MAX];
    static struct labels sets[BATCH_MAX];
    static uint32_t shards[BATCH_MAX];
    struct errinfo ei = {0};
    uint64_t cpu_start;

    for (size_t i = 0; i < count; i++) {
        sets[i] = (struct labels){parse_labels(samples[i].labels, items[i]), items[i]};
        shards[i] = shard_of(b, items[i], sets[i].count);
    }
    cpu_start = clock_thread_cpu_ns();
    for (size_t i = 0; i < count; i++) {
        uint64_t start = clock_mono_ns();
        double took_us;

        if (index_add(b->shards[shards[i]], b->slot_count[shards[i]]++, &sets[i], &ei) != ERR_OK)
            fail("add", &ei);
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
    struct fleet_template *t;
    struct fleet_nodes *nodes;
    struct errinfo ei = {0};

    if (fleet_template_new(profile, &t, &ei) != ERR_OK ||
        fleet_nodes_new(t, &options, 0, node_count, &nodes, &ei) != ERR_OK)
        fail("stream", &ei);
    for (uint32_t i = 0; i < node_count; i++) {
        const struct fleet_sample *samples;
        size_t n = fleet_node_scrape(nodes, i, &samples);

        for (size_t k = 0; k < n; k += BATCH_MAX)
            add_node(b, samples + k, n - k < BATCH_MAX ? n - k : BATCH_MAX);
    }
    fleet_nodes_free(nodes);
    fleet_template_free(t);
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
            fail("matcher", &ei);
    }
    start = clock_thread_cpu_ns();
    for (int s = 0; s < SHARD_COUNT; s++) {
        uint32_t *slots;
        size_t n;

        if (index_select(b->shards[s], matchers, count, NULL, &arena, &slots, &n, &ei) != ERR_OK)
            fail("select", &ei);
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

int main(int argc, char **argv)
{
    bool cadvisor = argc > 1 && strcmp(argv[1], "cadvisor") == 0;
    uint32_t nodes = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1000;
    struct bench *b = calloc(1, sizeof *b);
    struct index_stats total = {0};
    struct errinfo ei = {0};
    size_t heap_before;

    if (b == NULL)
        return 1;
    budget_init(&b->memory, "bench", UINT64_MAX, NULL);
    hash_secret_init(&b->secret, 1);
    heap_before = mallinfo2().uordblks;
    for (int s = 0; s < SHARD_COUNT; s++) {
        if (index_new(&b->memory, &b->shards[s], &ei) != ERR_OK)
            fail("new", &ei);
    }
    load(b, cadvisor ? FLEET_CADVISOR : FLEET_GPU, nodes);
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
    for (int s = 0; s < SHARD_COUNT; s++)
        index_free(b->shards[s]);
    free(b);
    return 0;
}
