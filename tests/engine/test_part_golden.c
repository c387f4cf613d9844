/*
 * Parts as version 1 wrote them: today's reader must give what was put in, for ever. That the
 * writer still writes the same bytes is checked too, so that a change of it is noticed; if it is
 * meant, and the format is still version 1, keep the old files beside the new ones. The second part
 * has chunks of histograms too; they are made by histogram_kit.h.
 *
 *   test_engine_part_golden --write DIR     makes the files
 *   test_engine_part_golden --corpus FILE   makes a fuzz input of the first part
 *   test_engine_part_golden --corpus-histograms FILE   of the second one
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/histogram_kit.h"
#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

enum { SERIES = 45 };
#define GOLDEN_ID UINT64_C(0x0123456789abcdef)

enum { FLOATS, HISTOGRAMS, PARTS };
static const char *const files[PARTS][2] = {
    {"part_v1.index", "part_v1.chunks"},
    {"part_v1_histograms.index", "part_v1_histograms.chunks"},
};

/* ---- what is in it: no random numbers, nothing that may change ---- */

static struct str text(struct kit_model *m, const char *format, size_t n)
{
    char buffer[64];
    char *copy;

    (void)snprintf(buffer, sizeof buffer, "%s%zu", format, n);
    copy = arena_memdup0(&m->arena, buffer, strlen(buffer));
    CHECK(copy != NULL);
    return str_from(copy);
}

/* Nine entities, five metrics, one of them the missing one. */
static void golden_labels(struct kit_model *m, size_t i, struct labels *out)
{
    static const char *const metrics[] = {"", "http_requests_total", "up", "x\xc3\xa9", "z:sum"};
    size_t metric = i / 9, entity = i % 9, n = 0;
    struct label *items = ARENA_ARRAY(&m->arena, 5, struct label);

    CHECK(items != NULL);
    if (entity % 2 == 0)
        items[n++] = (struct label){STR_LITERAL("A"), STR_LITERAL("before the name")};
    if (metric > 0)
        items[n++] = (struct label){LABEL_METRIC_NAME, str_from(metrics[metric])};
    items[n++] = (struct label){STR_LITERAL("instance"), text(m, "host-0", entity)};
    if (entity % 3 != 0)
        items[n++] = (struct label){STR_LITERAL("job"), text(m, "j", entity / 4)};
    *out = (struct labels){n, items};
}

static double golden_value(size_t series, size_t sample)
{
    static const uint64_t odd[] = {UINT64_C(0x7ff0000000000002), UINT64_C(1) << 63, 1,
                                   UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000001)};

    switch (series % 5) {
    case 0:
        return 42;
    case 1:
        return (double)(series * 1000 + sample * sample) / 100;
    case 2:
        return (double)((sample * 7919 + series) % 1000003) / 1e6;
    case 3:
        return double_from_bits((sample + 1) * UINT64_C(0x9e3779b97f4a7c15));
    default:
        return double_from_bits(odd[sample % 5]);
    }
}

static void golden_histograms(struct kit_model *m, size_t seed, struct kit_chunk *k)
{
    struct test_random r = test_random_init(seed + 1);

    k->histogram = ARENA_ARRAY(&m->arena, k->count, struct histogram);
    CHECK(k->histogram != NULL);
    histograms_fill(&r, (enum histogram_model)(seed % HISTOGRAMS_MODEL_COUNT), &m->arena,
                    k->histogram, k->count);
    for (size_t n = 0; n < k->count; n++) {
        k->histogram[n].hint = (enum histogram_hint)((n + seed) % 4);
        k->value[n] = k->histogram[n].sum;
    }
}

static void golden_chunks(struct kit_model *m, size_t i, int which, struct kit_series *s)
{
    int64_t t = kit_key.window_start_ms + (int64_t)(i % 9) * 100;

    s->chunk_count = 1 + i % 3;
    s->chunks = arena_calloc(&m->arena, s->chunk_count, sizeof *s->chunks);
    CHECK(s->chunks != NULL);
    for (size_t c = 0; c < s->chunk_count; c++) {
        struct kit_chunk *k = &s->chunks[c];

        k->count = 1 + (i * 5 + c * 3) % 24;
        k->t_ms = ARENA_ARRAY(&m->arena, k->count, int64_t);
        k->value = ARENA_ARRAY(&m->arena, k->count, double);
        CHECK(k->t_ms != NULL && k->value != NULL);
        for (size_t n = 0; n < k->count; n++) {
            k->t_ms[n] = t;
            k->value[n] = golden_value(i, c * 100 + n);
            t += 15000 + (i % 4 == 0 ? (int64_t)(n % 7) : 0);
        }
        if (which == HISTOGRAMS && (i + c) % 2 == 0)
            golden_histograms(m, i * 3 + c, k);
    }
}

static int compare_series(const void *a, const void *b)
{
    return part_labels_compare(&((const struct kit_series *)a)->labels,
                               &((const struct kit_series *)b)->labels);
}

static void golden_model(struct kit_model *m, int which)
{
    arena_init(&m->arena, NULL);
    m->count = SERIES;
    m->series = calloc(SERIES, sizeof *m->series);
    CHECK(m->series != NULL);
    for (size_t i = 0; i < SERIES; i++) {
        struct kit_series *s = &m->series[i];

        golden_labels(m, i, &s->labels);
        golden_chunks(m, i, which, s);
        s->fingerprint =
            (struct hash128){i * UINT64_C(0xbf58476d1ce4e5b9), i * UINT64_C(0x94d049bb133111eb)};
    }
    qsort(m->series, SERIES, sizeof *m->series, compare_series);
}

/* ---- files ---- */

static uint8_t *read_all(const char *path, size_t *size)
{
    enum { SIZE_MAX_BYTES = 1 << 20 };
    uint8_t *data = malloc(SIZE_MAX_BYTES);
    FILE *f = fopen(path, "rb");

    CHECK_MSG(f != NULL && data != NULL, "%s", path);
    *size = fread(data, 1, SIZE_MAX_BYTES, f);
    CHECK(*size < SIZE_MAX_BYTES);
    (void)fclose(f); /* read only */
    return data;
}

static uint8_t *read_sim(struct fs *fs, enum part_file file, size_t *size)
{
    char name[PART_NAME_SIZE];
    struct errinfo ei = {0};
    uint64_t bytes;
    struct file *f;
    uint8_t *data;

    part_name_format(&kit_key, file, false, name);
    CHECK_OK(file_open(fs, name, FILE_READ, &f, &ei), &ei);
    CHECK_OK(file_size(f, &bytes, &ei), &ei);
    data = malloc(bytes);
    CHECK(data != NULL);
    CHECK_OK(file_read(f, data, bytes, 0, &ei), &ei);
    file_close(f);
    *size = bytes;
    return data;
}

static void put_sim(struct fs *fs, enum part_file file, uint8_t *data, size_t size)
{
    char name[PART_NAME_SIZE];

    part_name_format(&kit_key, file, false, name);
    test_file_create(fs, name, data, size);
}

static void golden_path(int which, int file, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s", PART_GOLDEN_DIR, files[which][file]);
}

/* ---- tests ---- */

static void check_reads(int which)
{
    struct kit_model m;
    struct kit_store k;
    struct part_info info;
    struct errinfo ei = {0};
    struct part *p;

    golden_model(&m, which);
    kit_store_init(&k, 1, 1 << 20);
    for (int f = 0; f < 2; f++) {
        char path[512];
        size_t size;
        uint8_t *data;

        golden_path(which, f, path, sizeof path);
        data = read_all(path, &size);
        put_sim(k.fs, (enum part_file)f, data, size);
        free(data);
    }
    CHECK_OK(part_open(k.store, "", &kit_key, &p, &ei), &ei);
    CHECK(part_info(p)->id == GOLDEN_ID && part_info(p)->entity_count == 9);
    CHECK(part_info(p)->has_histograms == (which == HISTOGRAMS));
    kit_check_all(p, &m);
    part_close(p);
    CHECK_OK(part_verify(k.store, "", &kit_key, NULL, &info, &ei), &ei);
    kit_store_done(&k);
    kit_model_done(&m);
}

static void test_reads(void **state)
{
    (void)state;
    check_reads(FLOATS);
    check_reads(HISTOGRAMS);
}

static void golden_write(struct kit_store *k, int which)
{
    struct kit_model m;
    struct part_info info;
    struct errinfo ei = {0};

    golden_model(&m, which);
    kit_store_init(k, 1, 1 << 20);
    CHECK_OK(kit_write(k->store, "", &m, GOLDEN_ID, &info, &ei), &ei);
    kit_model_done(&m);
}

static void check_writes(int which)
{
    struct kit_store k;

    golden_write(&k, which);
    for (int f = 0; f < 2; f++) {
        char path[512];
        size_t size, golden_size;
        uint8_t *data = read_sim(k.fs, (enum part_file)f, &size), *golden;

        golden_path(which, f, path, sizeof path);
        golden = read_all(path, &golden_size);
        CHECK_MSG(size == golden_size && memcmp(data, golden, size) == 0, "%s", files[which][f]);
        free(data);
        free(golden);
    }
    kit_store_done(&k);
}

static void test_writes_the_same(void **state)
{
    (void)state;
    check_writes(FLOATS);
    check_writes(HISTOGRAMS);
}

static void write_out(FILE *f, const void *data, size_t size)
{
    CHECK(f != NULL && fwrite(data, 1, size, f) == size);
}

static void make_files(const char *dir, int which)
{
    struct kit_store k;

    golden_write(&k, which);
    for (int f = 0; f < 2; f++) {
        char path[512];
        size_t size;
        uint8_t *data = read_sim(k.fs, (enum part_file)f, &size);
        FILE *out;

        (void)snprintf(path, sizeof path, "%s/%s", dir, files[which][f]);
        out = fopen(path, "wb");
        write_out(out, data, size);
        CHECK(fclose(out) == 0);
        free(data);
    }
    kit_store_done(&k);
}

/* The form of fuzz_part: size of the index, index, chunks. */
static void make_corpus(const char *path, int which)
{
    struct kit_store k;
    FILE *out = fopen(path, "wb");

    golden_write(&k, which);
    for (int f = 0; f < 2; f++) {
        size_t size;
        uint8_t *data = read_sim(k.fs, (enum part_file)f, &size);
        uint32_t le32 = (uint32_t)size;

        if (f == 0)
            write_out(out, &le32, sizeof le32);
        write_out(out, data, size);
        free(data);
    }
    CHECK(fclose(out) == 0);
    kit_store_done(&k);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_writes_the_same),
    };

    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        make_files(argv[2], FLOATS);
        make_files(argv[2], HISTOGRAMS);
    } else if (argc == 3 && strcmp(argv[1], "--corpus") == 0)
        make_corpus(argv[2], FLOATS);
    else if (argc == 3 && strcmp(argv[1], "--corpus-histograms") == 0)
        make_corpus(argv[2], HISTOGRAMS);
    else
        return cmocka_run_group_tests(tests, NULL, NULL);
    return 0;
}
