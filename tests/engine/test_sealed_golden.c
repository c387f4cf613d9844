/*
 * Sealed files of format version 1 as they were written when the format was made, and when it got
 * histograms: they must be read for ever. That the writer still writes the same bytes is checked
 * too, so that a change is a decision: it gets a golden file of its own beside these, which stay as
 * they are. Histograms are made by histogram_kit.h.
 *
 * test_engine_sealed_golden --write FILE makes the first one, --write-histograms FILE the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "tests/engine/histogram_kit.h"
#include "tests/engine/sealed_twin.h"
#include "tests/lib/test_cmocka.h"

#define PATH "golden"

enum { SLICES = 3, FILE_SIZE_MAX = 1 << 20 };

static const char *const golden_paths[] = {SEALED_GOLDEN_DIR "/sealed_v1.bin",
                                           SEALED_GOLDEN_DIR "/sealed_v1_histograms.bin"};

/* Values from plain arithmetic only: the same on every machine. */
static double golden_value(uint32_t slot, size_t i)
{
    switch (slot % 4) {
    case 0:
        return 42;
    case 1:
        return (double)(i * i + slot);
    case 2:
        return (double)(i % 7) / 8.0 + (double)slot;
    default:
        return double_from_bits(0x9e3779b97f4a7c15U * (i + 1 + slot));
    }
}

static void golden_histograms(struct twin_file *twin, uint32_t seed, struct twin_chunk *c)
{
    struct test_random r = test_random_init(seed + 1);

    c->histogram = ARENA_ARRAY(&twin->arena, c->count, struct histogram);
    CHECK(c->histogram != NULL);
    histograms_fill(&r, (enum histogram_model)(seed % HISTOGRAMS_MODEL_COUNT), &twin->arena,
                    c->histogram, c->count);
    for (size_t k = 0; k < c->count; k++) {
        c->histogram[k].hint = (enum histogram_hint)((k + seed) % 4);
        c->value[k] = c->histogram[k].sum;
    }
}

static void golden_fill(struct twin_file *twin, bool has_histograms)
{
    *twin = (struct twin_file){.has_histograms = has_histograms};
    arena_init(&twin->arena, NULL);
    twin->slice_count = SLICES;
    twin->slices = calloc(SLICES, sizeof *twin->slices);
    CHECK(twin->slices != NULL);
    for (uint32_t s = 0; s < SLICES; s++) {
        struct twin_slice *slice = &twin->slices[s];

        *slice = (struct twin_slice){.sequence = 1000 * ((uint64_t)s + 1),
                                     .chunk_count = 12 + 520 * (s == 1)};
        slice->chunks = calloc(slice->chunk_count, sizeof *slice->chunks);
        CHECK(slice->chunks != NULL);
        for (uint32_t i = 0; i < slice->chunk_count; i++) {
            struct twin_chunk *c = &slice->chunks[i];
            bool second = i == 5; /* another chunk of the slot before */

            *c = (struct twin_chunk){.slot = second ? 4 : i, .generation = 1, .count = 3 + i % 5};
            c->t_ms = malloc(c->count * sizeof *c->t_ms);
            c->value = malloc(c->count * sizeof *c->value);
            CHECK(c->t_ms != NULL && c->value != NULL);
            for (size_t k = 0; k < c->count; k++) {
                c->t_ms[k] = 1767225600000 + 1000000 * (int64_t)s + 15000 * (int64_t)k +
                             INT64_C(7) * (i % 3) + INT64_C(500000) * second;
                c->value[k] = golden_value(i, k);
            }
            if (has_histograms && i < 100 && i % 2 == 0)
                golden_histograms(twin, i, c);
        }
    }
}

static size_t made_bytes(bool has_histograms, uint8_t *out)
{
    struct errinfo ei = {0};
    struct twin_file twin = {0};
    struct file *f;
    struct fs *fs;
    size_t size;

    golden_fill(&twin, has_histograms);
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    twin_file_write(fs, PATH, &twin, true);
    CHECK_OK(file_open(fs, PATH, FILE_READ, &f, &ei), &ei);
    CHECK_OK(file_read_some(f, out, FILE_SIZE_MAX, 0, &size, &ei), &ei);
    file_close(f);
    fs_free(fs);
    twin_file_free(&twin);
    return size;
}

static void check_unchanged(bool has_histograms)
{
    uint8_t *golden = malloc(FILE_SIZE_MAX), *made = malloc(FILE_SIZE_MAX);
    FILE *file = fopen(golden_paths[has_histograms], "rb");
    struct twin_file twin = {0};
    struct errinfo ei = {0};
    struct sealed_opened o;
    struct iovec iov;
    struct file *f;
    struct fs *fs;
    size_t bad;

    CHECK(golden != NULL && made != NULL && file != NULL);
    iov = (struct iovec){golden, fread(golden, 1, FILE_SIZE_MAX, file)};
    (void)fclose(file); /* read only: nothing to lose */
    CHECK(iov.iov_len > 0);
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    CHECK_OK(file_open(fs, PATH, FILE_CREATE, &f, &ei), &ei);
    CHECK_OK(file_write(f, &iov, 1, 0, &ei), &ei);
    file_close(f);
    CHECK_OK(sealed_open(fs, PATH, &twin_identity, iov.iov_len, &o, &ei), &ei);
    CHECK(o.is_finished && o.slice_count == SLICES);
    golden_fill(&twin, has_histograms);
    twin_file_compare(&o, &twin, &bad);
    CHECK(bad == 0);
    CHECK(made_bytes(has_histograms, made) == iov.iov_len &&
          memcmp(made, golden, iov.iov_len) == 0);
    sealed_opened_done(&o);
    twin_file_free(&twin);
    fs_free(fs);
    free(golden);
    free(made);
}

static void version_1_is_unchanged(void **state)
{
    (void)state;
    check_unchanged(false);
    check_unchanged(true);
}

static int write_golden(const char *path, bool has_histograms)
{
    uint8_t *data = malloc(FILE_SIZE_MAX);
    FILE *f = fopen(path, "wb");
    size_t size;

    CHECK(data != NULL && f != NULL);
    size = made_bytes(has_histograms, data);
    CHECK(fwrite(data, 1, size, f) == size);
    free(data);
    return fclose(f) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(version_1_is_unchanged)};

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2], false);
    if (argc == 3 && strcmp(argv[1], "--write-histograms") == 0)
        return write_golden(argv[2], true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
