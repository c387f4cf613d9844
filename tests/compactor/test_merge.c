/*
 * Merges against a plain list of samples: overlaps, repeats with other values, hostile doubles,
 * series that only some inputs have, ranges that are dropped.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    merge_kit_init(&kit, &r, 1 + test_random_below(&r, 60));
    /* Generations are not in the order in which the inputs are given. */
    for (size_t i = 0; i < inputs; i++)
        input_add(
            &in, &kit, store.store, random_key(&r, 1 + (i * 5) % 7),
            (struct merge_kit_shape){.presence_percent = 20 + (unsigned)test_random_below(&r, 80),
                                     .chunks_max = 1 + test_random_below(&r, 6),
                                     .samples_max = 1 + test_random_below(&r, 600)});
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

/* Four windows of 2 h with full chunks: nothing is decoded, and timestamp columns stay shared. */
static void test_full_chunks_are_copied(void **state)
{
    struct test_random r = test_random_init(5);
    struct inputs in = {.count = 0};
    struct kit_store store;
    struct merge_kit kit;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    kit_store_init(&store, 5, 1 << 20);
    merge_kit_init(&kit, &r, 30);
    for (int64_t i = 0; i < 4; i++)
        input_add(&in, &kit, store.store, merge_kit_key(2 * i, 2, 1 + (uint64_t)i), full);
    o = options_for(&in, &store);
    CHECK(o.key.generation == 4 && o.key.window_size_ms == 8 * (uint64_t)MERGE_KIT_HOUR);
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    merge_kit_list_settle(&kit.written);
    check_result(&kit, &o, &result, &kit.written);
    CHECK(result.stats.chunks_decoded == 0 && result.stats.chunks_encoded == 0);
    CHECK(result.stats.chunks_copied == 4 * kit.series_count);
    CHECK(result.info.times_count == 4);
    inputs_close(&in);
    merge_kit_done(&kit);
    kit_store_done(&store);
}

/* The same in pieces of 60: written anew, at most 480 in a chunk, the columns shared. */
static void test_small_chunks_are_joined(void **state)
{
    struct test_random r = test_random_init(6);
    struct merge_kit_shape pieces = full;
    struct inputs in = {.count = 0};
    struct kit_store store;
    struct merge_kit kit;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    kit_store_init(&store, 6, 1 << 20);
    merge_kit_init(&kit, &r, 30);
    pieces.samples_max = 60;
    for (int64_t i = 0; i < 4; i++)
        input_add(&in, &kit, store.store, merge_kit_key(2 * i, 2, 1 + (uint64_t)i), pieces);
    o = options_for(&in, &store);
    o.target_samples = 480;
    o.copy_min_samples = 240;
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    merge_kit_list_settle(&kit.written);
    check_result(&kit, &o, &result, &kit.written);
    CHECK(result.stats.chunks_copied == 0);
    CHECK(result.stats.chunks_encoded == 4 * kit.series_count);
    CHECK(result.info.times_count == 4);
    inputs_close(&in);
    merge_kit_done(&kit);
    kit_store_done(&store);
}

/* A late part over one of the windows: only what it overlaps is decoded, and where it repeats a
 * timestamp the value acknowledged first stays. */
static void test_overlap_decodes_what_it_must(void **state)
{
    struct test_random r = test_random_init(7);
    struct inputs in = {.count = 0};
    struct kit_store store;
    struct merge_kit kit;
    struct merge_options o;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    kit_store_init(&store, 7, 1 << 20);
    merge_kit_init(&kit, &r, 30);
    for (int64_t i = 0; i < 4; i++)
        input_add(&in, &kit, store.store, merge_kit_key(2 * i, 2, 1 + (uint64_t)i), full);
    input_add(&in, &kit, store.store, merge_kit_key(2, 2, 9), full);
    o = options_for(&in, &store);
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    merge_kit_list_settle(&kit.written);
    check_result(&kit, &o, &result, &kit.written);
    CHECK(result.stats.chunks_copied == 3 * kit.series_count);
    CHECK(result.stats.chunks_decoded == 2 * kit.series_count);
    CHECK(result.stats.samples_repeated == 480 * kit.series_count);
    inputs_close(&in);
    merge_kit_done(&kit);
    kit_store_done(&store);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_merges),
        cmocka_unit_test(test_full_chunks_are_copied),
        cmocka_unit_test(test_small_chunks_are_joined),
        cmocka_unit_test(test_overlap_decodes_what_it_must),
        cmocka_unit_test(test_memory_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
