/*
 * Columns of format version 1 as they were written when it was made. Both decoders must read them
 * for ever. That the encoder still writes the same bytes is checked too, so that a change of its
 * choices is a decision: it gets a golden file of its own beside this one, which stays as it is.
 *
 * golden/codec_v1.bin is a list of
 *   | is_times u8 | count le16 | size le32 | count * 8 bytes of values | the column, size bytes |
 *
 * test_engine_codec_golden --write FILE makes it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/codec.h"
#include "tests/engine/codec_columns.h"
#include "tests/engine/codec_twin.h"
#include "tests/lib/test_cmocka.h"

enum { ROUNDS = 3, LENGTH_MAX = 100, FILE_SIZE_MAX = 1 << 20 };

static const char *const golden_path = CODEC_GOLDEN_DIR "/codec_v1.bin";

static void check_entry(const uint8_t *plain, size_t n, bool is_times, const uint8_t *column,
                        size_t size, struct codec_scratch *s)
{
    double v[LENGTH_MAX], got[LENGTH_MAX];
    int64_t t[LENGTH_MAX], got_ms[LENGTH_MAX];
    uint64_t twin[LENGTH_MAX];
    uint8_t bytes[8 * LENGTH_MAX + CODEC_BOUND_SLACK];

    if (is_times) {
        memcpy(t, plain, n * sizeof *t);
        CHECK(codec_times_encode(t, n, s, bytes) == size);
        CHECK(codec_times_decode(column, size, n, got_ms) && memcmp(got_ms, plain, 8 * n) == 0);
        CHECK(twin_times_decode(column, size, n, twin));
    } else {
        memcpy(v, plain, n * sizeof *v);
        CHECK(codec_values_encode(v, n, s, bytes) == size);
        CHECK(codec_values_decode(column, size, n, got) && memcmp(got, plain, 8 * n) == 0);
        CHECK(twin_values_decode(column, size, n, twin));
    }
    CHECK(memcmp(bytes, column, size) == 0);
    CHECK(memcmp(twin, plain, 8 * n) == 0);
}

static void version_1_is_unchanged(void **state)
{
    uint8_t *data = malloc(FILE_SIZE_MAX);
    struct codec_scratch *s = malloc(sizeof *s);
    FILE *f = fopen(golden_path, "rb");
    struct byte_reader r;
    size_t kinds[16] = {0};

    (void)state;
    CHECK(data != NULL && s != NULL && f != NULL);
    r = reader_init(data, fread(data, 1, FILE_SIZE_MAX, f));
    (void)fclose(f); /* read only: nothing to lose */
    CHECK(reader_left(&r) > 0 && reader_left(&r) < FILE_SIZE_MAX);
    while (reader_left(&r) > 0) {
        bool is_times = reader_u8(&r) != 0;
        size_t n = reader_le16(&r), size = reader_le32(&r);
        const uint8_t *plain = reader_take(&r, 8 * n), *column = reader_take(&r, size);

        CHECK(!r.failed && n > 0 && n <= LENGTH_MAX);
        check_entry(plain, n, is_times, column, size, s);
        if (!is_times)
            kinds[codec_values_kind(column, size)]++;
    }
    for (unsigned kind = CODEC_RAW; kind <= CODEC_SPLIT; kind++)
        CHECK_MSG(kinds[kind] > 0, "no golden column of kind %s", codec_kind_name(kind));
    free(data);
    free(s);
}

static void write_entry(FILE *f, bool is_times, const void *plain, size_t n, const uint8_t *column,
                        size_t size)
{
    struct byte_writer w;

    writer_init(&w);
    writer_u8(&w, is_times);
    writer_le16(&w, (uint16_t)n);
    writer_le32(&w, (uint32_t)size);
    writer_append(&w, plain, 8 * n);
    writer_append(&w, column, size);
    CHECK(!w.failed && fwrite(w.data, 1, w.size, f) == w.size);
    writer_done(&w);
}

static int write_golden(const char *path)
{
    struct codec_scratch *s = malloc(sizeof *s);
    FILE *f = fopen(path, "wb");
    uint8_t bytes[8 * LENGTH_MAX + CODEC_BOUND_SLACK];
    double v[LENGTH_MAX];
    int64_t t[LENGTH_MAX];

    CHECK(s != NULL && f != NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned model = 0; model < COLUMN_MODEL_COUNT; model++) {
            struct test_random r = test_random_init(1000 + round * 100 + model);
            size_t n = round == 0 ? LENGTH_MAX : 1 + test_random_below(&r, LENGTH_MAX);

            column_fill(&r, (enum column_model)model, v, n);
            write_entry(f, false, v, n, bytes, codec_values_encode(v, n, s, bytes));
        }
        for (unsigned model = 0; model < TIMES_MODEL_COUNT; model++) {
            struct test_random r = test_random_init(2000 + round * 100 + model);
            size_t n = round == 0 ? LENGTH_MAX : 1 + test_random_below(&r, LENGTH_MAX);

            times_fill(&r, (enum times_model)model, t, n);
            write_entry(f, true, t, n, bytes, codec_times_encode(t, n, s, bytes));
        }
    }
    free(s);
    return fclose(f) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(version_1_is_unchanged)};

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
