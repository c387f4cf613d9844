/*
 * Chunks of native histograms on their way into files and out of them: copies are exact and share
 * layouts, hints at borders say less, sizes are bounded, and a few bytes that stand for gigabytes
 * are refused.
 */
#include <string.h>

#include "engine/histogram_chunk.h"
#include "tests/engine/histogram_kit.h"
#include "tests/lib/test_cmocka.h"

enum { SAMPLES = 200 };

static void test_builder_copies(void **state)
{
    struct test_random r = test_random_init(1);
    struct histogram_chunk_builder b;
    struct histogram h[SAMPLES];
    struct budget memory;
    struct arena arena;
    struct errinfo ei = {0};

    (void)state;
    budget_init(&memory, "test", UINT64_MAX, NULL);
    histogram_chunk_builder_init(&b, &memory);
    for (int round = 0; round < 60; round++) {
        size_t bytes = 0;

        arena_init(&arena, NULL);
        histograms_fill_any(&r, &arena, h, SAMPLES);
        for (size_t i = 0; i < SAMPLES; i++) {
            bool is_border = test_random_below(&r, 4) == 0;

            CHECK_OK(histogram_chunk_builder_add(&b, &h[i], is_border, &ei), &ei);
            if (is_border)
                h[i].hint = histogram_hint_at_border(h[i].hint);
            bytes += histogram_chunk_weight(&h[i], i == 0 ? NULL : &h[i - 1]);
        }
        CHECK(b.count == SAMPLES && b.bytes == bytes);
        for (size_t i = 0; i < SAMPLES; i++) {
            CHECK(histogram_same_bits(&h[i], &b.items[i]));
            CHECK(h[i].positive.bucket_count == 0 ||
                  b.items[i].positive.buckets != h[i].positive.buckets);
        }
        /* Nothing of it is the caller's. */
        arena_done(&arena);
        CHECK(b.items[SAMPLES - 1].schema >= HISTOGRAM_SCHEMA_FLOAT);
        histogram_chunk_builder_reset(&b);
        CHECK(b.count == 0 && b.bytes == 0);
    }
    histogram_chunk_builder_done(&b);
    CHECK(budget_used(&memory) == 0);
}

static void test_equal_layouts_are_shared(void **state)
{
    struct test_random r = test_random_init(2);
    struct histogram_chunk_builder b;
    struct histogram h[SAMPLES];
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    histogram_chunk_builder_init(&b, NULL);
    histograms_fill(&r, HISTOGRAMS_CUSTOM, &arena, h, SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++) {
        CHECK(histogram_chunk_builder_add(&b, &h[i], false, NULL) == ERR_OK);
        CHECK(b.items[i].custom_values == b.items[0].custom_values);
        CHECK(b.items[i].positive.spans == b.items[0].positive.spans);
    }
    histogram_chunk_builder_done(&b);
    arena_done(&arena);
}

static void test_full_by_size_and_by_number(void **state)
{
    static double buckets[40000];
    static const struct histogram_span span = {0, 40000};
    const struct histogram large = {.positive = {&span, 1, buckets, 40000}}, empty = {0};
    struct histogram_chunk_builder b;

    (void)state;
    histogram_chunk_builder_init(&b, NULL);
    CHECK(histogram_chunk_builder_add(&b, &large, false, NULL) == ERR_OK);
    CHECK(!histogram_chunk_builder_is_full(&b));
    CHECK(histogram_chunk_builder_add(&b, &large, false, NULL) == ERR_OK);
    CHECK(histogram_chunk_builder_is_full(&b));
    histogram_chunk_builder_reset(&b);
    for (size_t i = 0; i < HISTOGRAM_CHUNK_SAMPLES_MAX; i++) {
        CHECK(!histogram_chunk_builder_is_full(&b));
        CHECK(histogram_chunk_builder_add(&b, &empty, false, NULL) == ERR_OK);
    }
    CHECK(histogram_chunk_builder_is_full(&b));
    histogram_chunk_builder_done(&b);
}

/* One layout of `buckets` buckets, all counts equal in all samples. */
static void bomb_make(struct byte_writer *w, uint32_t buckets)
{
    static const uint8_t constant[] = {2, 2, 0}; /* size, kind constant, 0 */

    writer_u8(w, 1 | 2 | 4); /* counts derived, no zero counts, one hint */
    writer_varint(w, 1);     /* layouts */
    writer_varint(w, 0);     /* schema */
    writer_le64(w, 0);       /* zero threshold */
    writer_varint(w, 1);     /* a span */
    writer_varint(w, 0);
    writer_varint(w, buckets);
    writer_varint(w, 0); /* nothing negative */
    writer_append(w, constant, sizeof constant);
    writer_u8(w, 0); /* each bucket is a column */
    for (uint32_t i = 0; i < buckets; i++)
        writer_append(w, constant, sizeof constant);
}

static void test_few_bytes_for_gigabytes(void **state)
{
    struct histogram *h = NULL;
    struct errinfo ei = {0};
    struct budget memory;
    struct byte_writer w;
    struct arena arena;

    (void)state;
    writer_init(&w);
    bomb_make(&w, 60000);
    budget_init(&memory, "test", UINT64_MAX, NULL);
    arena_init(&arena, &memory);
    /* One sample is no harm. */
    CHECK_OK(histogram_chunk_decode((struct bytes){w.data, w.size}, 1, &arena, &h, &ei), &ei);
    CHECK(h[0].positive.bucket_count == 60000 && h[0].count == 0);
    /* 3.9 GB are. */
    CHECK(histogram_chunk_decode((struct bytes){w.data, w.size}, CODEC_SAMPLES_MAX, &arena, &h,
                                 &ei) == ERR_LIMIT);
    CHECK(strstr(ei.message, "histograms") != NULL);
    CHECK(arena.budget == &memory);
    CHECK(atomic_load(&memory.peak_bytes) <= HISTOGRAM_CHUNK_DECODED_MAX);
    arena_done(&arena);
    CHECK(budget_used(&memory) == 0);

    /* The caller's own limit counts too. */
    memory.limit_bytes = 1 << 20;
    CHECK(histogram_chunk_decode((struct bytes){w.data, w.size}, 20, &arena, &h, NULL) ==
          ERR_LIMIT);
    arena_done(&arena);
    arena_init(&arena, NULL);
    CHECK(histogram_chunk_decode((struct bytes){w.data, w.size}, CODEC_SAMPLES_MAX, &arena, &h,
                                 NULL) == ERR_LIMIT);
    CHECK(histogram_chunk_decode((struct bytes){w.data, w.size - 1}, 1, &arena, &h, NULL) ==
          ERR_CORRUPT);
    arena_done(&arena);
    writer_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builder_copies),
        cmocka_unit_test(test_equal_layouts_are_shared),
        cmocka_unit_test(test_full_by_size_and_by_number),
        cmocka_unit_test(test_few_bytes_for_gigabytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
