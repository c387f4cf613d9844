/*
 * Columns of native histograms: every model comes back bit for bit, equal input gives equal bytes,
 * damaged columns are refused or give histograms that hold together; and columns of format version
 * 1 as they were written when it was made (golden/codec_histogram_v1.bin, a list of
 *   | model u8 | seed le32 | count le16 | size le32 | the column |
 * whose histograms the generator makes again; test_engine_codec_histogram --write FILE makes it).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/codec_histogram.h"
#include "tests/engine/codec_columns.h"
#include "tests/engine/histogram_kit.h"
#include "tests/lib/test_cmocka.h"

enum { ROUNDS = 40, GOLDEN_SAMPLES_MAX = 40, GOLDEN_ROUNDS = 3, FILE_SIZE_MAX = 1 << 20 };

static const char *const golden_path = CODEC_GOLDEN_DIR "/codec_histogram_v1.bin";

struct bench {
    struct codec_scratch scratch;
    struct histogram h[CODEC_SAMPLES_MAX], got[CODEC_SAMPLES_MAX];
    struct arena arena, other;
    struct byte_writer w;
};

static struct bench *bench_new(void)
{
    struct bench *b = malloc(sizeof *b);

    CHECK(b != NULL);
    arena_init(&b->arena, NULL);
    arena_init(&b->other, NULL);
    writer_init(&b->w);
    return b;
}

static void bench_free(struct bench *b)
{
    arena_done(&b->arena);
    arena_done(&b->other);
    writer_done(&b->w);
    free(b);
}

static void encode(struct bench *b, size_t n)
{
    writer_reset(&b->w);
    CHECK(codec_histograms_encode(b->h, n, &b->scratch, &b->other, &b->w) == ERR_OK);
}

/* Decodes from a copy of exactly that size, so that a sanitizer sees a byte too many. */
static enum err decode(struct bench *b, const uint8_t *data, size_t size, size_t n)
{
    uint8_t *exact = malloc(size + 1);
    enum err e;

    CHECK(exact != NULL);
    memcpy(exact + 1, data, size);
    arena_reset(&b->other);
    e = codec_histograms_decode(exact + 1, size, n, &b->other, b->got);
    free(exact);
    return e;
}

static void check_same(struct bench *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK_MSG(histogram_same_bits(&b->h[i], &b->got[i]), "sample %zu of %zu", i, n);
}

static void models_come_back(void **state)
{
    struct test_random r = test_random_init(3);
    struct bench *b = bench_new();

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned model = 0; model < HISTOGRAMS_MODEL_COUNT; model++) {
            size_t n = round == 0 ? 500 : 1 + test_random_below(&r, round % 2 == 0 ? 20 : 200);

            arena_reset(&b->arena);
            histograms_fill(&r, (enum histogram_model)model, &b->arena, b->h, n);
            encode(b, n);
            CHECK(decode(b, b->w.data, b->w.size, n) == ERR_OK);
            check_same(b, n);
        }
    }
    bench_free(b);
}

static void a_full_column_comes_back(void **state)
{
    struct test_random r = test_random_init(4);
    struct bench *b = bench_new();

    (void)state;
    for (unsigned model = 0; model < HISTOGRAMS_MODEL_COUNT; model += HISTOGRAMS_HOSTILE) {
        arena_reset(&b->arena);
        histograms_fill(&r, (enum histogram_model)model, &b->arena, b->h, CODEC_SAMPLES_MAX);
        encode(b, CODEC_SAMPLES_MAX);
        CHECK(decode(b, b->w.data, b->w.size, CODEC_SAMPLES_MAX) == ERR_OK);
        check_same(b, CODEC_SAMPLES_MAX);
    }
    bench_free(b);
}

/* Many custom bounds: more than a value column holds. */
static void many_bounds_come_back(void **state)
{
    enum { BOUNDS = CODEC_SAMPLES_MAX + 5 };
    struct bench *b = bench_new();
    double *bounds = malloc(BOUNDS * sizeof *bounds);

    (void)state;
    CHECK(bounds != NULL);
    for (size_t i = 0; i < BOUNDS; i++)
        bounds[i] = (double)i;
    b->h[0] = (struct histogram){
        .schema = HISTOGRAM_SCHEMA_CUSTOM, .custom_values = bounds, .custom_count = BOUNDS};
    encode(b, 1);
    CHECK(decode(b, b->w.data, b->w.size, 1) == ERR_OK);
    check_same(b, 1);
    free(bounds);
    bench_free(b);
}

static void check_damaged(struct bench *b, const uint8_t *data, size_t size, size_t n)
{
    enum err e = decode(b, data, size, n);

    CHECK(e == ERR_OK || e == ERR_CORRUPT || e == ERR_LIMIT);
    for (size_t i = 0; e == ERR_OK && i < n; i++)
        CHECK(histogram_check_layout(&b->got[i], NULL) == ERR_OK);
}

static void damage_is_refused_or_harmless(void **state)
{
    struct test_random r = test_random_init(5);
    struct budget budget;
    struct bench *b = bench_new();

    (void)state;
    budget_init(&budget, "test", 64 << 20, NULL);
    arena_init(&b->other, &budget);
    for (unsigned round = 0; round < 12; round++) {
        size_t n = 1 + test_random_below(&r, 12);
        uint8_t *bytes;

        arena_reset(&b->arena);
        histograms_fill(&r, (enum histogram_model)(round % HISTOGRAMS_MODEL_COUNT), &b->arena, b->h,
                        n);
        encode(b, n);
        bytes = calloc(1, b->w.size + 1);
        CHECK(bytes != NULL);
        for (size_t size = 0; size < b->w.size; size++)
            CHECK(decode(b, b->w.data, size, n) == ERR_CORRUPT);
        memcpy(bytes, b->w.data, b->w.size);
        bytes[b->w.size] = 0;
        CHECK(decode(b, bytes, b->w.size + 1, n) == ERR_CORRUPT);
        for (size_t i = 0; i < b->w.size; i++) {
            bytes[i] ^= (uint8_t)(1 + test_random_below(&r, 255));
            check_damaged(b, bytes, b->w.size, n);
            check_damaged(b, bytes, b->w.size, n + 1);
            bytes[i] = b->w.data[i];
        }
        free(bytes);
    }
    bench_free(b);
}

/* --- Golden --- */

static void golden_histograms(struct bench *b, unsigned model, uint32_t seed, size_t n)
{
    struct test_random r = {.state = seed, .seed = seed}; /* TEST_SEED must not change it */

    arena_reset(&b->arena);
    histograms_fill(&r, (enum histogram_model)model, &b->arena, b->h, n);
    encode(b, n);
}

static void version_1_is_unchanged(void **state)
{
    uint8_t *data = malloc(FILE_SIZE_MAX);
    FILE *f = fopen(golden_path, "rb");
    struct bench *b = bench_new();
    struct byte_reader r;

    (void)state;
    CHECK(data != NULL && f != NULL);
    r = reader_init(data, fread(data, 1, FILE_SIZE_MAX, f));
    (void)fclose(f); /* read only: nothing to lose */
    CHECK(reader_left(&r) > 0);
    while (reader_left(&r) > 0) {
        unsigned model = reader_u8(&r);
        uint32_t seed = reader_le32(&r);
        size_t n = reader_le16(&r), size = reader_le32(&r);
        const uint8_t *column = reader_take(&r, size);

        CHECK(!r.failed && n > 0 && n <= GOLDEN_SAMPLES_MAX);
        golden_histograms(b, model, seed, n);
        CHECK(b->w.size == size && memcmp(b->w.data, column, size) == 0);
        CHECK(decode(b, column, size, n) == ERR_OK);
        check_same(b, n);
    }
    free(data);
    bench_free(b);
}

static int write_golden(const char *path)
{
    FILE *f = fopen(path, "wb");
    struct bench *b = bench_new();
    struct byte_writer head;

    CHECK(f != NULL);
    writer_init(&head);
    for (uint32_t round = 0; round < GOLDEN_ROUNDS; round++) {
        for (unsigned model = 0; model < HISTOGRAMS_MODEL_COUNT; model++) {
            size_t n = round == 0 ? 1 : GOLDEN_SAMPLES_MAX / (1 + model % 2 * round);

            golden_histograms(b, model, 10 * round + model, n);
            writer_reset(&head);
            writer_u8(&head, (uint8_t)model);
            writer_le32(&head, 10 * round + model);
            writer_le16(&head, (uint16_t)n);
            writer_le32(&head, (uint32_t)b->w.size);
            CHECK(!head.failed && fwrite(head.data, 1, head.size, f) == head.size);
            CHECK(fwrite(b->w.data, 1, b->w.size, f) == b->w.size);
        }
    }
    writer_done(&head);
    bench_free(b);
    return fclose(f) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_come_back),       cmocka_unit_test(a_full_column_comes_back),
        cmocka_unit_test(many_bounds_come_back),  cmocka_unit_test(damage_is_refused_or_harmless),
        cmocka_unit_test(version_1_is_unchanged),
    };

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
