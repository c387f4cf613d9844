/*
 * Damaged parts: single bits and truncations anywhere in both files. A reader gives an error that
 * names one of the part's files, or the right answers; part_verify() always finds the damage.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"

struct damage_world {
    struct kit_store k;
    struct kit_model m;
    char names[2][PART_NAME_SIZE];
    uint64_t sizes[2];
};

static void world_init(struct damage_world *w, uint64_t seed, struct kit_shape shape)
{
    struct test_random r = test_random_init(seed);
    struct part_info info;
    struct errinfo ei = {0};

    kit_model_init(&w->m, &r, shape);
    kit_store_init(&w->k, seed, 1 << 20);
    CHECK_OK(kit_write(w->k.store, "", &w->m, 0, &info, &ei), &ei);
    for (int f = 0; f < 2; f++)
        part_name_format(&kit_key, (enum part_file)f, false, w->names[f]);
    w->sizes[PART_FILE_INDEX] = info.index_size;
    w->sizes[PART_FILE_CHUNKS] = info.chunks_size;
}

static void world_done(struct damage_world *w)
{
    kit_store_done(&w->k);
    kit_model_done(&w->m);
}

static bool names_part(const struct errinfo *ei)
{
    return strstr(ei->message, "part-1700006400000") != NULL;
}

/* Opens and reads everything. True if there was an error, which must name the part. */
static bool read_finds(struct damage_world *w)
{
    struct errinfo ei = {0};
    struct part *p = NULL;
    enum err e = part_open(w->k.store, "", &kit_key, &p, &ei);

    if (e == ERR_OK)
        e = kit_check_or_error(p, &w->m, &ei);
    part_close(p);
    CHECK_MSG(e == ERR_OK || e == ERR_CORRUPT || e == ERR_UNSUPPORTED, "%s: %s", err_name(e),
              ei.message);
    CHECK_MSG(e == ERR_OK || names_part(&ei), "%s", ei.message);
    return e != ERR_OK;
}

static bool verify_finds(struct damage_world *w)
{
    struct errinfo ei = {0};
    struct part_info info;
    enum err e = part_verify(w->k.store, "", &kit_key, NULL, &info, &ei);

    CHECK_MSG(e == ERR_OK || names_part(&ei), "%s", ei.message);
    return e != ERR_OK;
}

static void flip(struct damage_world *w, int file, uint64_t bit)
{
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_flip_bit(w->k.fs, w->names[file], bit, &ei), &ei);
}

/* Every byte of a small part, one bit of each. */
static void test_every_byte(void **state)
{
    struct kit_shape shape = {
        .series_count = 12, .spread = 3, .samples_max = 8, .chunks_max = 2, .has_histograms = true};
    struct test_random r = test_random_init(11);
    struct damage_world w;

    (void)state;
    world_init(&w, 11, shape);
    CHECK(!read_finds(&w) && !verify_finds(&w));
    for (int f = 0; f < 2; f++) {
        for (uint64_t at = 0; at < w.sizes[f]; at++) {
            uint64_t bit = at * 8 + test_random_below(&r, 8);

            flip(&w, f, bit);
            (void)read_finds(&w);
            CHECK_MSG(verify_finds(&w), "file %d, byte %" PRIu64 " of %" PRIu64, f, at, w.sizes[f]);
            flip(&w, f, bit);
        }
    }
    CHECK(!read_finds(&w) && !verify_finds(&w));
    world_done(&w);
}

/* Sampled bits of a larger part, whose sections have several pages. */
static void test_sampled_bits(void **state)
{
    enum { FLIPS = 1200 };
    struct kit_shape shape = {.series_count = 1500,
                              .spread = 600,
                              .samples_max = 12,
                              .chunks_max = 3,
                              .has_histograms = true};
    struct test_random r = test_random_init(12);
    struct damage_world w;
    size_t found = 0;

    (void)state;
    world_init(&w, 12, shape);
    for (size_t i = 0; i < FLIPS; i++) {
        int f = i % 2 == 0 ? PART_FILE_INDEX : PART_FILE_CHUNKS;
        uint64_t bit = test_random_below(&r, w.sizes[f] * 8);

        flip(&w, f, bit);
        found += read_finds(&w);
        if (i % 20 == 0)
            CHECK(verify_finds(&w));
        flip(&w, f, bit);
    }
    /* What a reader of everything does not look at: postings, values of the metric name's scan. */
    CHECK_MSG(found > FLIPS * 3 / 4, "%zu of %d", found, FLIPS);
    CHECK(!read_finds(&w));
    world_done(&w);
}

/* With two bad pages part_verify() names the one that comes first in the file. */
static void test_first_bad_page(void **state)
{
    struct kit_shape shape = {
        .series_count = 1500, .spread = 600, .samples_max = 12, .chunks_max = 3};
    struct test_random r = test_random_init(16);
    struct damage_world w;

    (void)state;
    world_init(&w, 16, shape);
    for (size_t i = 0; i < 60; i++) {
        int f = i % 2 == 0 ? PART_FILE_INDEX : PART_FILE_CHUNKS;
        /* Pages only: the end of the index is checked before them. */
        uint64_t end = w.sizes[f] / 10 * 9, low = 40 + test_random_below(&r, end - 40);
        uint64_t high = low + test_random_below(&r, end - low), offset;
        struct errinfo ei = {0};
        struct part_info info;
        const char *at;

        flip(&w, f, low * 8);
        if (high != low)
            flip(&w, f, high * 8);
        CHECK(part_verify(w.k.store, "", &kit_key, NULL, &info, &ei) == ERR_CORRUPT);
        at = strstr(ei.message, "offset ");
        CHECK(at != NULL && strstr(ei.message, w.names[f]) != NULL);
        offset = strtoull(at + strlen("offset "), NULL, 10);
        CHECK_MSG(offset <= low && low - offset < 64 << 10, "byte %" PRIu64 ": %s", low,
                  ei.message);
        flip(&w, f, low * 8);
        if (high != low)
            flip(&w, f, high * 8);
    }
    world_done(&w);
}

static void truncate_to(struct damage_world *w, int file, uint64_t size)
{
    struct errinfo ei = {0};
    struct file *f;

    CHECK_OK(file_open(w->k.fs, w->names[file], FILE_READ_WRITE, &f, &ei), &ei);
    CHECK_OK(file_truncate(f, size, &ei), &ei);
    file_close(f);
}

/* Any cut is noticed at once: the index ends in its footer, and that knows the other file's size.
 */
static void test_truncations(void **state)
{
    struct kit_shape shape = {.series_count = 30, .spread = 5, .samples_max = 20, .chunks_max = 2};

    (void)state;
    for (int f = 0; f < 2; f++) {
        struct damage_world w;

        world_init(&w, 13, shape);
        for (uint64_t size = w.sizes[f]; size-- > 0;) {
            struct errinfo ei = {0};
            struct part *p;

            truncate_to(&w, f, size);
            CHECK(part_open(w.k.store, "", &kit_key, &p, &ei) == ERR_CORRUPT && names_part(&ei));
        }
        world_done(&w);
    }
}

/* A file that is longer, missing, of another part, or under another name. */
static void test_wrong_files(void **state)
{
    struct kit_shape shape = {.series_count = 30, .spread = 5, .samples_max = 20, .chunks_max = 2};
    struct part_key other = kit_key;
    struct damage_world w, v;
    struct errinfo ei = {0};
    struct part *p;
    char name[PART_NAME_SIZE];

    (void)state;
    world_init(&w, 14, shape);
    for (int f = 0; f < 2; f++) {
        truncate_to(&w, f, w.sizes[f] + 1);
        CHECK(part_open(w.k.store, "", &kit_key, &p, NULL) == ERR_CORRUPT);
        truncate_to(&w, f, w.sizes[f]);
    }
    /* The same bytes under the name of another generation. */
    other.generation++;
    for (int f = 0; f < 2; f++) {
        part_name_format(&other, (enum part_file)f, false, name);
        CHECK_OK(fs_link(w.k.fs, w.names[f], name, &ei), &ei);
    }
    CHECK(part_open(w.k.store, "", &other, &p, NULL) == ERR_CORRUPT);
    CHECK_OK(fs_unlink(w.k.fs, w.names[PART_FILE_CHUNKS], &ei), &ei);
    CHECK(part_open(w.k.store, "", &kit_key, &p, NULL) == ERR_NOT_FOUND);
    world_done(&w);

    /* The chunks of a part that was written a second time: same key, same contents, other id. */
    world_init(&v, 14, shape);
    for (int f = 0; f < 2; f++)
        CHECK_OK(fs_rename(v.k.fs, v.names[f], f == 0 ? "index" : "chunks", &ei), &ei);
    struct part_info info;
    CHECK_OK(kit_write(v.k.store, "", &v.m, 0, &info, &ei), &ei);
    CHECK_OK(fs_rename(v.k.fs, "chunks", v.names[PART_FILE_CHUNKS], &ei), &ei);
    CHECK(part_open(v.k.store, "", &kit_key, &p, NULL) == ERR_CORRUPT);
    world_done(&v);
}

/* Bits of unknown features and versions: refused as newer, not as damage. */
static void test_newer_format(void **state)
{
    struct kit_shape shape = {.series_count = 3, .spread = 5, .samples_max = 2, .chunks_max = 1};
    struct damage_world w;
    struct part *p;

    (void)state;
    world_init(&w, 15, shape);
    for (int f = 0; f < 2; f++) {
        flip(&w, f, 8 * 8 + 7); /* version 129 */
        CHECK(part_open(w.k.store, "", &kit_key, &p, NULL) == ERR_UNSUPPORTED);
        flip(&w, f, 8 * 8 + 7);
    }
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte),     cmocka_unit_test(test_sampled_bits),
        cmocka_unit_test(test_first_bad_page), cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_wrong_files),    cmocka_unit_test(test_newer_format),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
