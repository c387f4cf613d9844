/*
 * Starts on what a disk has lost or changed: damaged and missing files of every kind, newer
 * formats, debris. The start succeeds, serves the rest, and says what is not there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file_sim.h"
#include "tests/engine/seal_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

struct world {
    struct fs *fs; /* owned: after a clean end */
    struct seal_model *m;
    struct manifest manifest;
};

/* Three seals in two lives, late samples, and a log behind them; the last seal has new series. */
static void world_init(struct world *w, uint64_t seed)
{
    struct errinfo ei = {0};
    struct kit k;

    *w = (struct world){.fs = test_fs_new(seed), .m = malloc(sizeof *w->m)};
    CHECK(w->m != NULL);
    seal_model_init(w->m, 60, seed);
    w->m->series_count = 40;
    for (int life = 0; life < 2; life++) {
        seal_open(&k, w->fs, w->m);
        for (int i = 0; i < 3; i++) {
            CHECK(seal_send(&k, w->m, 90));
            seal_advance(&k, w->m, INT64_C(10) * 60 * 1000);
            CHECK(seal_send_late(&k, w->m, INT64_C(30) * 60 * 1000));
            if (i == 1 || (i == 0 && life == 1))
                CHECK_OK(seal_all(&k, NULL), &k.ei);
            w->m->series_count += life == 1 && i == 0 ? 20 : 0;
        }
        kit_close(&k);
    }
    CHECK_OK(manifest_read(w->fs, &w->manifest, &ei), &ei);
}

static void world_done(struct world *w)
{
    manifest_done(&w->manifest);
    seal_model_done(w->m);
    free(w->m);
    fs_free(w->fs);
}

static bool exists(struct fs *fs, const char *path)
{
    struct errinfo ei = {0};
    bool there = false;

    CHECK_OK(fs_exists(fs, path, &there, &ei), &ei);
    return there;
}

static uint64_t set_aside_count(struct kit *k)
{
    return atomic_load(&k->engine->files_set_aside);
}

/* How many acknowledged samples can still be read; what is there must be right. */
static size_t readable(struct kit *k, const struct seal_model *m, size_t *failed)
{
    size_t count = 0;
    char name[64];

    *failed = 0;
    for (size_t s = 0; s < m->series_count; s++) {
        const struct seal_samples *had = &m->series[s];
        struct errinfo ei = {0};
        struct column got = {0};
        struct arena arena;
        size_t at = 0;

        arena_init(&arena, NULL);
        enum err e =
            kit_try_read(k, &arena, seal_series_name(s, name), INT64_MIN, INT64_MAX, &got, &ei);
        CHECK(e == ERR_OK || e == ERR_NOT_FOUND || e == ERR_CORRUPT);
        *failed += e == ERR_CORRUPT;
        if (e != ERR_OK)
            got.count = 0;
        for (size_t i = 0; i < got.count; i++, at++) {
            while (at < had->count && had->t_ms[at] != got.t_ms[i])
                at++;
            CHECK(at < had->count && double_bits(had->value[at]) == double_bits(got.value[i]));
        }
        count += got.count;
        arena_done(&arena);
    }
    return count;
}

static size_t sent_count(const struct seal_model *m)
{
    size_t count = 0;

    for (size_t s = 0; s < m->series_count; s++)
        count += m->series[s].count;
    return count;
}

static void path_of(const struct manifest_file *f, const char *prefix, char out[MANIFEST_PATH_SIZE])
{
    char plain[MANIFEST_PATH_SIZE];

    manifest_file_path(f, plain);
    (void)snprintf(out, MANIFEST_PATH_SIZE, "%.7s%s%.160s", plain, prefix,
                   plain + 7); /* "shards/" */
}

/* Goes on with what is there: writes, seals, starts again. */
static void go_on(struct kit *k, struct fs *fs, struct seal_model *m)
{
    size_t failed, before, after;

    before = readable(k, m, &failed);
    kit_put(k, "__name__=after", m->now_ms, 1);
    CHECK_OK(seal_all(k, NULL), &k->ei);
    kit_close(k);
    seal_open(k, fs, m);
    CHECK(set_aside_count(k) == 0);
    after = readable(k, m, &failed);
    CHECK(after == before);
    kit_check(k, "__name__=after", 1, &m->now_ms, (double[]){1});
    kit_close(k);
}

/* ---- sealed and late files ---- */

enum harm { HARM_HEADER, HARM_MISSING, HARM_FOLDER, HARM_COUNT };

static void test_missing_and_bad_headers(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (size_t i = 0; i < w.manifest.file_count; i++) {
        const struct manifest_file *f = &w.manifest.files[i];
        char path[MANIFEST_PATH_SIZE], aside[MANIFEST_PATH_SIZE];

        for (enum harm harm = HARM_HEADER; harm < HARM_COUNT; harm++) {
            bool missing = harm == HARM_MISSING;
            struct fs *fs = test_fs_after(w.fs, FS_SIM_KEEP_ALL, 1);
            struct errinfo ei = {0};
            struct kit k;
            size_t failed, left;

            path_of(f, "", path);
            path_of(f, "damaged-", aside);
            if (harm == HARM_HEADER)
                CHECK_OK(fs_sim_flip_bit(fs, path, UINT64_C(8) * 20, &ei), &ei);
            else
                CHECK_OK(fs_unlink(fs, path, &ei), &ei);
            if (harm == HARM_FOLDER)
                CHECK_OK(fs_mkdir(fs, path, &ei), &ei);
            seal_open(&k, fs, w.m);
            CHECK(set_aside_count(&k) > 0);
            CHECK(exists(fs, aside) == !missing);
            CHECK(!exists(fs, path));
            left = readable(&k, w.m, &failed);
            CHECK(failed == 0 && left > 0 && left < sent_count(w.m));
            CHECK(k.replay.wal.lost_entry_count == 0);
            go_on(&k, fs, w.m);
            CHECK(exists(fs, aside) == !missing); /* nobody removes it */
            fs_free(fs);
        }
    }
    world_done(&w);
}

/* A bad byte in the middle: the start succeeds, and reading that chunk is an error with the file's
 * name, or the slice is known to be bad. */
static void test_bad_slices(void **state)
{
    size_t failed_sum = 0;
    struct world w;

    (void)state;
    world_init(&w, 2);
    for (size_t i = 0; i < w.manifest.file_count; i++) {
        const struct manifest_file *f = &w.manifest.files[i];
        struct fs *fs = test_fs_after(w.fs, FS_SIM_KEEP_ALL, 1);
        char path[MANIFEST_PATH_SIZE];
        struct errinfo ei = {0};
        size_t failed = 0;
        struct kit k;

        if (f->kind == MANIFEST_SERIES) {
            fs_free(fs);
            continue;
        }
        path_of(f, "", path);
        CHECK_OK(fs_sim_flip_bit(fs, path, f->durable_size * 8 / 2, &ei), &ei);
        seal_open(&k, fs, w.m);
        CHECK(set_aside_count(&k) == 0 && exists(fs, path));
        (void)readable(&k, w.m, &failed);
        failed_sum += failed;
        kit_close(&k);
        fs_free(fs);
    }
    CHECK(failed_sum > 0);
    world_done(&w);
}

/* ---- series files ---- */

/* Cut short in the middle: the series of the whole batches, and the sealed files kept twice. */
static void test_series_file_salvaged(void **state)
{
    struct world w;
    size_t series_before = 0;

    (void)state;
    world_init(&w, 3);
    for (size_t i = 0; i < w.manifest.file_count; i++) {
        const struct manifest_file *f = &w.manifest.files[i];
        struct fs *fs = test_fs_after(w.fs, FS_SIM_KEEP_ALL, 1);
        char path[MANIFEST_PATH_SIZE];
        struct errinfo ei = {0};
        size_t failed;
        struct kit k;

        if (f->kind == MANIFEST_SERIES) {
            path_of(f, "", path);
            CHECK_OK(fs_sim_flip_bit(fs, path, (f->durable_size - 3) * 8, &ei), &ei);
            seal_open(&k, fs, w.m);
            series_before += k.replay.series_count;
            (void)readable(&k, w.m, &failed);
            CHECK(failed == 0);
            CHECK(k.replay.wal.lost_entry_count == 0); /* all of it is covered */
            path_of(f, "damaged-", path);
            CHECK(exists(fs, path));
            go_on(&k, fs, w.m);
        }
        fs_free(fs);
    }
    CHECK(series_before >= 3 * 60 + 40);
    world_done(&w);
}

/* ---- parts ---- */

/* A part with one sample of a series of its own, named by the manifest; of shard 0 of
 * `shard_count`. */
static struct part_key add_part(struct fs *fs, struct seal_model *m, uint32_t shard_count)
{
    const struct part_store_options store_options = {
        .fs = fs, .cache_bytes = 1 << 20, .descriptor_count = 4};
    const struct part_writer_options o = {
        .dir = MANIFEST_PARTS_DIR,
        .key = {.window_start_ms = m->now_ms / CHUNK_WINDOW_MS * CHUNK_WINDOW_MS,
                .window_size_ms = CHUNK_WINDOW_MS,
                .generation = 1,
                .shard_count = shard_count}};
    const struct label label = {STR_LITERAL("__name__"), STR_LITERAL("in_part")};
    const struct labels labels = {1, &label};
    const struct hash128 fingerprint = {1, 2};
    struct manifest manifest = {0};
    struct part_writer *w = NULL;
    struct part_store *store;
    struct errinfo ei = {0};
    struct part_info info;
    double value = 7;

    CHECK_OK(part_store_new(&store_options, &store, &ei), &ei);
    CHECK_OK(part_writer_new(store, &o, &w, &ei), &ei);
    CHECK_OK(part_writer_series(w, &labels, fingerprint, &ei), &ei);
    CHECK_OK(part_writer_samples(w, &m->now_ms, &value, 1, &ei), &ei);
    CHECK_OK(part_writer_finish(w, 0, &info, &ei), &ei);
    part_writer_free(w);
    part_store_free(store);
    const struct manifest_part named = {.key = info.key,
                                        .min_time_ms = info.min_time_ms,
                                        .max_time_ms = info.max_time_ms,
                                        .sample_count = 1,
                                        .index_size = info.index_size,
                                        .chunks_size = info.chunks_size};
    CHECK_OK(manifest_read(fs, &manifest, &ei), &ei);
    CHECK_OK(manifest_part_add(&manifest, &named, &ei), &ei);
    CHECK_OK(manifest_write(fs, &manifest, &ei), &ei);
    manifest_done(&manifest);
    return info.key;
}

/* How many shards have that part, beside those of series that have ended. */
static size_t shards_with_part(struct kit *k, const struct part_key *key)
{
    size_t count = 0;

    for (uint32_t i = 0; i < SEAL_SHARDS; i++) {
        const struct file_set *set = k->engine->shards[i].files;

        for (size_t n = 0; n < set->part_count; n++)
            count += part_key_equal(&set->parts[n]->key, key);
    }
    return count;
}

static void test_parts(void **state)
{
    static const struct {
        uint32_t shard_count;
        size_t shards; /* that see it */
    } cases[] = {{SEAL_SHARDS, 1}, {1, SEAL_SHARDS}, {2, SEAL_SHARDS / 2}, {4 * SEAL_SHARDS, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[PART_NAME_SIZE], path[MANIFEST_PATH_SIZE], aside[MANIFEST_PATH_SIZE];
        struct errinfo ei = {0};
        struct part_key key;
        struct world w;
        struct kit k;

        world_init(&w, 6 + i);
        key = add_part(w.fs, w.m, cases[i].shard_count);
        seal_open(&k, w.fs, w.m);
        CHECK(shards_with_part(&k, &key) == cases[i].shards && set_aside_count(&k) == 0);
        seal_check(&k, w.m);
        kit_close(&k);
        part_name_format(&key, PART_FILE_INDEX, false, name);
        (void)snprintf(path, sizeof path, "parts/%s", name);
        (void)snprintf(aside, sizeof aside, "parts/damaged-%s", name);
        CHECK_OK(fs_sim_flip_bit(w.fs, path, UINT64_C(8) * 12, &ei), &ei);
        for (int life = 0; life < 2; life++) { /* once for all */
            seal_open(&k, w.fs, w.m);
            CHECK((set_aside_count(&k) > 0) == (life == 0));
            CHECK(exists(w.fs, aside) && !exists(w.fs, path) && shards_with_part(&k, &key) == 0);
            seal_check(&k, w.m);
            kit_close(&k);
        }
        world_done(&w);
    }
}

/* ---- others ---- */

static void test_debris_goes(void **state)
{
    static const char *const debris[] = {"shards/0001-0000000099.sealed",
                                         "shards/0001-0000000100.series", "manifest.tmp"};
    static const char *const others[] = {"shards/notes", "shards/damaged-0001-0000000099.sealed"};
    struct errinfo ei = {0};
    struct world w;
    struct kit k;

    (void)state;
    world_init(&w, 4);
    for (size_t i = 0; i < 3; i++)
        test_file_create(w.fs, debris[i], "x", 1);
    for (size_t i = 0; i < 2; i++)
        test_file_create(w.fs, others[i], "x", 1);
    /* A folder in the place of debris stays when there is something in it. */
    CHECK_OK(fs_mkdir(w.fs, "shards/0001-0000000101.late", &ei), &ei);
    CHECK_OK(fs_mkdir(w.fs, "shards/0001-0000000102.late", &ei), &ei);
    test_file_create(w.fs, "shards/0001-0000000102.late/x", "x", 1);
    seal_open(&k, w.fs, w.m);
    for (size_t i = 0; i < 3; i++)
        CHECK_MSG(!exists(w.fs, debris[i]), "%s", debris[i]);
    for (size_t i = 0; i < 2; i++)
        CHECK_MSG(exists(w.fs, others[i]), "%s", others[i]);
    CHECK(!exists(w.fs, "shards/0001-0000000101.late"));
    CHECK(exists(w.fs, "shards/0001-0000000102.late/x"));
    seal_check(&k, w.m);
    kit_close(&k);
    world_done(&w);
}

/* The version field of a file's header, with its checksum made right. */
static void make_newer(struct fs *fs, const char *path)
{
    struct errinfo ei = {0};
    struct file *f;
    uint8_t header[64];
    uint32_t crc;

    CHECK_OK(file_open(fs, path, FILE_READ_WRITE, &f, &ei), &ei);
    CHECK_OK(file_read(f, header, sizeof header, 0, &ei), &ei);
    header[8]++;
    crc = crc32c(header, sizeof header - 4);
    memcpy(header + sizeof header - 4, &crc, 4);
    CHECK_OK(file_write_bytes(f, header, sizeof header, 0, &ei), &ei);
    file_close(f);
}

static void test_newer_formats_refused(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 5);
    for (size_t i = 0; i < w.manifest.file_count; i++) {
        struct fs *fs = test_fs_after(w.fs, FS_SIM_KEEP_ALL, 1);
        char path[MANIFEST_PATH_SIZE];
        struct kit k;

        path_of(&w.manifest.files[i], "", path);
        make_newer(fs, path);
        CHECK(seal_try_open(&k, fs, w.m) == ERR_UNSUPPORTED);
        CHECK(strstr(k.ei.message, path) != NULL);
        CHECK(exists(fs, path)); /* nothing was set aside */
        fs_free(fs);
    }
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_and_bad_headers), cmocka_unit_test(test_bad_slices),
        cmocka_unit_test(test_series_file_salvaged),    cmocka_unit_test(test_debris_goes),
        cmocka_unit_test(test_newer_formats_refused),   cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
