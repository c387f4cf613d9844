/*
 * Merges against a plain list of samples: overlaps, repeats with other values, hostile doubles,
 * series that only some inputs have, ranges that are dropped.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/codec.h"
#include "tests/compactor/merge_kit.h"
#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"

enum { INPUTS_MAX = 8 };

struct inputs {
    struct part *parts[INPUTS_MAX];
    struct part_key keys[INPUTS_MAX];
    size_t count;
};

static void inputs_close(struct inputs *in)
{
    for (size_t i = 0; i < in->count; i++)
        part_close(in->parts[i]);
}

static void input_add(struct inputs *in, struct merge_kit *k, struct part_store *s,
                      struct part_key key, struct merge_kit_shape shape)
{
    struct errinfo ei = {0};

    CHECK(in->count < INPUTS_MAX);
    merge_kit_part(k, s, "", &key, shape);
    in->keys[in->count] = key;
    CHECK_OK(part_open(s, "", &key, &in->parts[in->count++], &ei), &ei);
}

static struct merge_options options_for(const struct inputs *in, struct kit_store *store)
{
    struct merge_options o = {.store = store->store,
                              .dir = "",
                              .inputs = in->parts,
                              .input_count = in->count,
                              .memory = &store->memory};
    bool chosen[INPUTS_MAX];
    struct errinfo ei = {0};

    memset(chosen, true, sizeof chosen);
    CHECK_OK(merge_inputs_valid(in->keys, chosen, in->count, &o.key, &ei), &ei);
    return o;
}

/* Opens the result, has every byte of it verified, and compares it with what is expected. */
static void check_result(const struct merge_kit *k, const struct merge_options *o,
                         const struct merge_result *r, const struct merge_kit_list *expected)
{
    struct merge_kit_list got = {0};
    struct part_info info;
    struct errinfo ei = {0};
    struct part *p;

    CHECK(r->written == (expected->count > 0));
    if (!r->written)
        return;
    CHECK_OK(part_open(o->store, o->dir, &o->key, &p, &ei), &ei);
    merge_kit_read(k, p, &got);
    merge_kit_check_equal(expected, &got);
    CHECK(part_info(p)->series_count == r->stats.series_count);
    part_close(p);
    CHECK_OK(part_verify(o->store, o->dir, &o->key, NULL, &info, &ei), &ei);
    CHECK(info.sample_count == expected->count);
    merge_kit_list_done(&got);
}

static void check_sums(const struct merge_options *o, const struct merge_result *r)
{
    const struct merge_stats *s = &r->stats;
    uint64_t samples = 0, sequence = 0;

    for (size_t i = 0; i < o->input_count; i++) {
        const struct part_info *info = part_info(o->inputs[i]);

        samples += info->sample_count;
        sequence = info->highest_sequence > sequence ? info->highest_sequence : sequence;
    }
    CHECK(samples ==
          s->samples_copied + s->samples_encoded + s->samples_repeated + s->samples_purged);
    if (!r->written)
        return;
    CHECK(r->info.sample_count == s->samples_copied + s->samples_encoded);
    CHECK(r->info.chunk_count == s->chunks_copied + s->chunks_encoded);
    CHECK(r->info.highest_sequence == sequence);
    CHECK(part_key_equal(&r->info.key, &o->key));
}

/* ---- ranges that are dropped ---- */

struct purge {
    uint64_t seed;
    struct merge_range ranges[4];
};

static size_t purge_ranges(uint64_t seed, struct hash128 print, uint64_t generation,
                           struct merge_range out[4])
{
    struct test_random r = {.state = seed ^ print.low ^ generation * 31};
    size_t count = test_random_below(&r, 5);

    for (size_t i = 0; i < count; i++) {
        out[i].min_time_ms = MERGE_KIT_START + (int64_t)test_random_below(&r, 8) * MERGE_KIT_HOUR +
                             (int64_t)test_random_below(&r, 5000000) - 100;
        out[i].max_time_ms = out[i].min_time_ms + (int64_t)test_random_below(&r, 9000000) - 1;
        if (test_random_below(&r, 20) == 0)
            out[i] = (struct merge_range){INT64_MIN, INT64_MAX};
    }
    return count;
}

static enum err purge_hook(void *ctx, const struct labels *labels, struct hash128 print,
                           uint64_t generation, const struct merge_range **out, size_t *out_count,
                           struct errinfo *ei)
{
    struct purge *p = ctx;

    (void)ei;
    CHECK(labels != NULL);
    *out_count = purge_ranges(p->seed, print, generation, p->ranges);
    *out = p->ranges;
    return ERR_OK;
}

static void purge_list(const struct merge_kit *k, uint64_t seed, struct merge_kit_list *l)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->count; i++) {
        struct merge_kit_sample s = l->items[i];
        struct merge_range ranges[4];
        size_t count = purge_ranges(seed, k->series[s.series].fingerprint, s.generation, ranges);
        bool dropped = false;

        for (size_t n = 0; n < count; n++)
            dropped |= ranges[n].min_time_ms <= s.t_ms && s.t_ms <= ranges[n].max_time_ms;
        if (!dropped)
            l->items[kept++] = s;
    }
    l->count = kept;
}

/* ---- random merges ---- */

static struct part_key random_key(struct test_random *r, uint64_t generation)
{
    switch (test_random_below(r, 3)) {
    case 0:
        return merge_kit_key(0, 8, generation);
    case 1:
        return merge_kit_key(2 * (int64_t)test_random_below(r, 4), 2, generation);
    default:
        return merge_kit_key(2 + 2 * (int64_t)test_random_below(r, 2), 4, generation);
    }
}

static void merge_once(uint64_t seed)
{
    static const uint32_t sizes[][2] = {{0, 0}, {480, 240}, {30, 10}, {1, 1}, {100, 8192}};
    struct test_random r = test_random_init(seed);
    size_t inputs = 1 + test_random_below(&r, 6), size = test_random_below(&r, 5);
    bool purges = test_random_below(&r, 2) == 0;
    struct purge purge = {.seed = seed};
    struct inputs in = {.count = 0};
    struct merge_kit_list expected = {0};
    struct kit_store store;
    struct merge_kit kit;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    kit_store_init(&store, seed, 1 << 20);
    merge_kit_init(&kit, &r, 1 + test_random_below(&r, seed % 3 == 0 ? 20 : 60));
    kit.histogram_percent = seed % 3 == 0 ? 10 + (unsigned)test_random_below(&r, 91) : 0;
    /* Generations are not in the order in which the inputs are given. */
    for (size_t i = 0; i < inputs; i++) {
        struct merge_kit_shape shape = {0};

        shape.presence_percent = 20 + (unsigned)test_random_below(&r, 80);
        shape.chunks_max = 1 + test_random_below(&r, 6);
        shape.samples_max = 1 + test_random_below(&r, 600);
        input_add(&in, &kit, store.store, random_key(&r, 1 + (i * 5) % 7), shape);
    }
    o = options_for(&in, &store);
    o.target_samples = sizes[size][0];
    o.copy_min_samples = sizes[size][1];
    merge_kit_list_copy(&expected, &kit.written);
    if (purges) {
        o.purge = (struct merge_purge){purge_hook, &purge};
        purge_list(&kit, seed, &expected);
    }
    merge_kit_list_settle(&expected);
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    check_sums(&o, &result);
    check_result(&kit, &o, &result, &expected);
    CHECK(purges || result.stats.samples_purged == 0);
    inputs_close(&in);
    merge_kit_list_done(&expected);
    merge_kit_done(&kit);
    kit_store_done(&store);
}

static void test_random_merges(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++)
        merge_once(seed);
}

/* ---- what is copied ---- */

static const struct merge_kit_shape full = {
    .presence_percent = 100, .samples_max = 480, .regular = true};

/* A merge and all that it needs. */
struct scene {
    struct test_random r;
    struct kit_store store;
    struct merge_kit kit;
    struct inputs in;
    struct merge_options o;
    struct merge_result result;
};

static void scene_init(struct scene *s, uint64_t seed, size_t series)
{
    *s = (struct scene){.r = test_random_init(seed)};
    kit_store_init(&s->store, seed, 1 << 20);
    merge_kit_init(&s->kit, &s->r, series);
}

/* Four windows of 2 h, one after the other, of generations 1 to 4. */
static void scene_windows(struct scene *s, struct merge_kit_shape shape)
{
    for (int64_t i = 0; i < 4; i++)
        input_add(&s->in, &s->kit, s->store.store, merge_kit_key(2 * i, 2, 1 + (uint64_t)i), shape);
}

/* Merges into chunks of `target` samples, copies those of `copy_min` (0: the product's numbers). */
static void scene_merge(struct scene *s, uint32_t target, uint32_t copy_min)
{
    struct errinfo ei = {0};

    s->o = options_for(&s->in, &s->store);
    s->o.target_samples = target;
    s->o.copy_min_samples = copy_min;
    CHECK_OK(merge_run(&s->o, &s->result, &ei), &ei);
    merge_kit_list_settle(&s->kit.written);
}

static void scene_merge_checked(struct scene *s, uint32_t target, uint32_t copy_min)
{
    scene_merge(s, target, copy_min);
    check_result(&s->kit, &s->o, &s->result, &s->kit.written);
}

static void scene_done(struct scene *s)
{
    inputs_close(&s->in);
    merge_kit_done(&s->kit);
    kit_store_done(&s->store);
}

/* Nothing is decoded, and timestamp columns stay shared. */
static void test_full_chunks_are_copied(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 5, 30);
    scene_windows(&s, full);
    scene_merge_checked(&s, 0, 0);
    CHECK(s.o.key.generation == 4 && s.o.key.window_size_ms == 8 * (uint64_t)MERGE_KIT_HOUR);
    CHECK(s.result.stats.chunks_decoded == 0 && s.result.stats.chunks_encoded == 0);
    CHECK(s.result.stats.chunks_copied == 4 * s.kit.series_count);
    CHECK(s.result.info.times_count == 4);
    scene_done(&s);
}

/* Large chunks of histograms are copied like those of floats, in runs and at the border of two
 * parts. */
static void test_histograms_are_copied(void **state)
{
    struct merge_kit_shape shape = {
        .presence_percent = 100, .samples_max = MERGE_KIT_HISTOGRAMS_MAX, .regular = true};
    struct scene s;

    (void)state;
    scene_init(&s, 21, 6);
    s.kit.histogram_percent = 100;
    scene_windows(&s, shape);
    scene_merge_checked(&s, MERGE_KIT_HISTOGRAMS_MAX, MERGE_KIT_HISTOGRAMS_MAX);
    CHECK(s.result.info.has_histograms);
    CHECK(s.result.stats.chunks_decoded == 0);
    CHECK(s.result.stats.chunks_copied == (size_t)4 * 8 * s.kit.series_count);
    scene_done(&s);
}

/* Where a part is rewritten by itself, each sample keeps the one that its hint speaks of. */
static void test_hints_stay_within_a_part(void **state)
{
    struct merge_kit_shape shape = {.presence_percent = 100, .samples_max = 40, .regular = true};
    struct merge_kit_list got = {0};
    struct errinfo ei = {0};
    struct scene s;
    struct part *p;

    (void)state;
    scene_init(&s, 22, 6);
    s.kit.histogram_percent = 70;
    input_add(&s.in, &s.kit, s.store.store, merge_kit_key(0, 2, 1 << 16), shape);
    scene_merge(&s, 100, 1000);
    CHECK(s.result.stats.chunks_decoded > 0);
    CHECK_OK(part_open(s.o.store, s.o.dir, &s.o.key, &p, &ei), &ei);
    merge_kit_read(&s.kit, p, &got);
    CHECK(got.count == s.kit.written.count);
    for (size_t i = 1; i < got.count; i++) {
        const struct merge_kit_sample *x = &s.kit.written.items[i];

        if (x->histogram != NULL && x->series == x[-1].series)
            CHECK(got.items[i].histogram->hint == x->histogram->hint);
    }
    merge_kit_list_done(&got);
    part_close(p);
    scene_done(&s);
}

/* Pieces of 60: written anew, at most 480 in a chunk, the columns shared. */
static void test_small_chunks_are_joined(void **state)
{
    struct merge_kit_shape pieces = full;
    struct scene s;

    (void)state;
    scene_init(&s, 6, 30);
    pieces.samples_max = 60;
    scene_windows(&s, pieces);
    scene_merge_checked(&s, 480, 240);
    CHECK(s.result.stats.chunks_copied == 0);
    CHECK(s.result.stats.chunks_encoded == 4 * s.kit.series_count);
    CHECK(s.result.info.times_count == 4);
    scene_done(&s);
}

/* A late part over one of the windows: only what it overlaps is decoded, and where it repeats a
 * timestamp the value acknowledged first stays. */
static void test_overlap_decodes_what_it_must(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s, 7, 30);
    scene_windows(&s, full);
    input_add(&s.in, &s.kit, s.store.store, merge_kit_key(2, 2, 9), full);
    scene_merge_checked(&s, 0, 0);
    CHECK(s.result.stats.chunks_copied == 3 * s.kit.series_count);
    CHECK(s.result.stats.chunks_decoded == 2 * s.kit.series_count);
    CHECK(s.result.stats.samples_repeated == 480 * s.kit.series_count);
    scene_done(&s);
}

/* ---- memory ---- */

static uint64_t peak_of(size_t series)
{
    struct test_random r = test_random_init(8);
    struct inputs in = {.count = 0};
    struct kit_store store;
    struct merge_kit kit;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};
    uint64_t before, peak;

    kit_store_init(&store, 8, 0);
    merge_kit_init(&kit, &r, series);
    input_add(&in, &kit, store.store, merge_kit_key(0, 2, 1), full);
    input_add(&in, &kit, store.store, merge_kit_key(0, 2, 2), full);
    o = options_for(&in, &store);
    before = budget_used(&store.memory);
    atomic_store(&store.memory.peak_bytes, before);
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    peak = atomic_load(&store.memory.peak_bytes) - before;
    inputs_close(&in);
    merge_kit_done(&kit);
    kit_store_done(&store);
    return peak;
}

/* Sixteen times the samples cost only what the writer keeps of each series. */
static void test_memory_is_bounded(void **state)
{
    enum { WRITER_BYTES_PER_SERIES = 300 };
    uint64_t small = peak_of(256), large = peak_of(4096);

    (void)state;
    CHECK_MSG(small < 10 << 20, "%" PRIu64 " bytes", small);
    CHECK_MSG(large < small + UINT64_C(4096) * WRITER_BYTES_PER_SERIES, "%" PRIu64 " and %" PRIu64,
              small, large);
}

/* ---- edges ---- */

/* One series of one input, its chunks given as counts of samples 1 ms apart, `gap_ms` between the
 * chunks. */
static void write_edge(struct part_store *s, const struct part_key *key, int64_t first_ms,
                       size_t chunks, size_t samples, uint64_t gap_ms)
{
    static const struct label label = {{"a", 1}, {"b", 1}};
    const struct labels labels = {1, &label};
    struct part_writer_options o = {.dir = "", .key = *key};
    int64_t *t_ms = malloc(samples * sizeof *t_ms);
    double *value = malloc(samples * sizeof *value);
    uint64_t t = (uint64_t)first_ms;
    struct part_writer *w;
    struct part_info info;
    struct errinfo ei = {0};

    CHECK(t_ms != NULL && value != NULL);
    CHECK_OK(part_writer_new(s, &o, &w, &ei), &ei);
    CHECK_OK(
        part_writer_series(w, &labels, (struct hash128){1, key->generation == 99 ? 3 : 2}, &ei),
        &ei);
    for (size_t c = 0; c < chunks; c++, t += gap_ms) {
        for (size_t i = 0; i < samples; i++) {
            t_ms[i] = (int64_t)t++;
            value[i] = (double)key->generation;
        }
        CHECK_OK(part_writer_samples(w, t_ms, value, samples, &ei), &ei);
    }
    CHECK_OK(part_writer_finish(w, 1, &info, &ei), &ei);
    part_writer_free(w);
    free(t_ms);
    free(value);
}

/* The whole of time as one window, samples at both of its ends, twice. */
static void test_ends_of_time(void **state)
{
    struct part_key keys[3] = {
        {.window_start_ms = INT64_MIN, .window_size_ms = 10, .shard_count = 1, .generation = 1},
        {.window_start_ms = INT64_MAX - 9, .window_size_ms = 10, .shard_count = 1, .generation = 2},
        {.window_start_ms = INT64_MIN + 1,
         .window_size_ms = UINT64_MAX,
         .shard_count = 1,
         .generation = 3}};
    const bool chosen[3] = {true, true, true};
    struct part *parts[3];
    struct kit_store store;
    struct merge_options o = {.dir = "", .inputs = parts, .target_samples = 3};
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    kit_store_init(&store, 9, 1 << 20);
    write_edge(store.store, &keys[0], INT64_MIN + 1, 3, 2, 1);
    write_edge(store.store, &keys[1], INT64_MAX - 4, 1, 5, 0);
    write_edge(store.store, &keys[2], INT64_MIN + 1, 2, 6, UINT64_MAX - 12);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(part_open(store.store, "", &keys[i], &parts[i], &ei), &ei);
    /* A window of 2^64 moments has no size. */
    CHECK(merge_inputs_valid(keys, chosen, 3, &o.key, &ei) == ERR_INVALID);
    errinfo_clear(&ei);
    o.store = store.store;
    o.inputs = parts + 1;
    o.input_count = 2;
    CHECK_OK(merge_inputs_valid(keys + 1, chosen, 2, &o.key, &ei), &ei);
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    CHECK_MSG(result.info.sample_count == 12 && result.stats.samples_repeated == 5,
              "%" PRIu64 " and %" PRIu64, result.info.sample_count, result.stats.samples_repeated);
    CHECK(result.info.min_time_ms == INT64_MIN + 1 && result.info.max_time_ms == INT64_MAX);
    for (size_t i = 0; i < 3; i++)
        part_close(parts[i]);
    kit_store_done(&store);
}

/* Writes such an input and opens it. */
static void edge_add(struct inputs *in, struct kit_store *s, uint64_t generation, int64_t first_ms,
                     size_t chunks, size_t samples)
{
    struct part_key key = merge_kit_key(0, 2, generation);
    struct errinfo ei = {0};

    write_edge(s->store, &key, first_ms, chunks, samples, 0);
    in->keys[in->count] = key;
    CHECK_OK(part_open(s->store, "", &key, &in->parts[in->count++], &ei), &ei);
}

/* A burst in an otherwise quiet window: more samples between two cuts than a chunk may have. */
static void test_burst(void **state)
{
    struct inputs in = {.count = 0};
    struct kit_store store;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    kit_store_init(&store, 10, 1 << 20);
    edge_add(&in, &store, 1, MERGE_KIT_START, 2, 8000);
    edge_add(&in, &store, 2, MERGE_KIT_START + 7000000, 1, 1);
    o = options_for(&in, &store);
    o.copy_min_samples = CODEC_SAMPLES_MAX;
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    CHECK(result.info.sample_count == 16001);
    CHECK(result.stats.chunks_encoded == 17); /* of 960 */
    CHECK(result.stats.chunks_copied == 1);
    inputs_close(&in);
    kit_store_done(&store);
}

/* A few samples and then a chunk that could be copied: together they still fit into one. */
static void test_few_samples_join_a_large_chunk(void **state)
{
    struct inputs in = {.count = 0};
    struct kit_store store;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    kit_store_init(&store, 12, 1 << 20);
    edge_add(&in, &store, 1, MERGE_KIT_START, 1, 5);
    edge_add(&in, &store, 2, MERGE_KIT_START + 5, 1, 300);
    o = options_for(&in, &store);
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    CHECK(result.info.sample_count == 305 && result.info.chunk_count == 1);
    inputs_close(&in);
    kit_store_done(&store);
}

/* One label set under two fingerprints: one of the files lies. */
static void test_fingerprints_that_differ(void **state)
{
    struct inputs in = {.count = 0};
    struct kit_store store;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    kit_store_init(&store, 13, 1 << 20);
    edge_add(&in, &store, 1, MERGE_KIT_START, 1, 5);
    edge_add(&in, &store, 99, MERGE_KIT_START, 1, 5);
    o = options_for(&in, &store);
    CHECK(merge_run(&o, &result, &ei) == ERR_CORRUPT);
    CHECK(strstr(ei.message, "-g99.index") != NULL);
    inputs_close(&in);
    kit_store_done(&store);
}

/* ---- other kinds of columns ---- */

/* Rewrites a part with every chunk bearing a second column of an unknown kind. */
static void add_columns(struct part_store *s, struct part *from, const struct part_key *key)
{
    struct part_writer_options o = {.dir = "", .key = *key};
    const struct part_series *series;
    struct part_writer *w;
    struct part_iter *it;
    struct part_info info;
    struct errinfo ei = {0};

    CHECK_OK(part_writer_new(s, &o, &w, &ei), &ei);
    CHECK_OK(part_iter_new(from, &it, &ei), &ei);
    for (;;) {
        CHECK_OK(part_iter_next(it, &series, &ei), &ei);
        if (series == NULL)
            break;
        CHECK_OK(part_writer_series(w, &series->labels, series->fingerprint, &ei), &ei);
        for (size_t i = 0; i < series->chunk_count; i++) {
            struct part_chunk_raw c = series->chunks[i];
            uint8_t *both = malloc(c.columns.size + 3);

            CHECK(both != NULL);
            memcpy(both, c.columns.data, c.columns.size);
            memset(both + c.columns.size, 77, 3);
            c.columns = (struct bytes){both, c.columns.size + 3};
            c.column_kind[1] = 200;
            c.column_size[1] = 3;
            c.column_count = 2;
            CHECK_OK(part_writer_chunk(w, &c, &ei), &ei);
            free(both);
        }
    }
    part_iter_free(it);
    CHECK_OK(part_writer_finish(w, 1, &info, &ei), &ei);
    part_writer_free(w);
}

/* They are carried on as they are, however small; where they overlap the merge refuses, by name. */
static void test_unknown_columns(void **state)
{
    struct test_random r = test_random_init(11);
    struct merge_kit_shape pieces = full;
    struct part_key plain = merge_kit_key(0, 2, 1);
    struct inputs in = {.count = 2};
    struct kit_store store;
    struct merge_kit kit;
    struct part *p;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    pieces.samples_max = 10;
    kit_store_init(&store, 11, 1 << 20);
    merge_kit_init(&kit, &r, 10);
    merge_kit_part(&kit, store.store, "", &plain, pieces);
    CHECK_OK(part_open(store.store, "", &plain, &p, &ei), &ei);
    in.keys[0] = merge_kit_key(0, 2, 2);
    in.keys[1] = merge_kit_key(0, 2, 3);
    for (size_t i = 0; i < 2; i++) {
        add_columns(store.store, p, &in.keys[i]);
        CHECK_OK(part_open(store.store, "", &in.keys[i], &in.parts[i], &ei), &ei);
    }
    part_close(p);
    o = options_for(&in, &store);
    CHECK(merge_run(&o, &result, &ei) == ERR_UNSUPPORTED);
    CHECK(strstr(ei.message, "-g2.chunks") != NULL);
    errinfo_clear(&ei);
    in.count = 1;
    o = options_for(&in, &store);
    o.key.generation = 9;
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    CHECK(result.stats.chunks_copied == 48 * kit.series_count && result.stats.chunks_encoded == 0);
    in.count = 2;
    inputs_close(&in);
    merge_kit_done(&kit);
    kit_store_done(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histograms_are_copied),
        cmocka_unit_test(test_hints_stay_within_a_part),
        cmocka_unit_test(test_random_merges),
        cmocka_unit_test(test_full_chunks_are_copied),
        cmocka_unit_test(test_small_chunks_are_joined),
        cmocka_unit_test(test_overlap_decodes_what_it_must),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_ends_of_time),
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_fingerprints_that_differ),
        cmocka_unit_test(test_few_samples_join_a_large_chunk),
        cmocka_unit_test(test_unknown_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
