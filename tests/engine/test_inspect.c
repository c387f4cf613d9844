/*
 * Verification of whole directories: no damage goes unnoticed, the file and the place are named,
 * and nothing on disk changes.
 */
#include "engine/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/log.h"
#include "tests/engine/inspect_world.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"

enum { FOUND_MAX = 16, TEXT = 320 };

struct found_item {
    bool is_damage, has_offset;
    enum err code;
    uint64_t offset;
    char path[TEXT], what[TEXT];
};

struct found {
    struct found_item items[FOUND_MAX];
    size_t count, damage_count;
    struct inspect_verify_result result;
};

static void text_copy(char out[TEXT], const char *text)
{
    CHECK(snprintf(out, TEXT, "%s", text) < TEXT);
}

static void note_finding(void *ctx, const struct inspect_finding *f)
{
    struct found *found = ctx;
    struct found_item *item = &found->items[found->count++];

    CHECK(found->count <= FOUND_MAX);
    *item = (struct found_item){.is_damage = f->is_damage,
                                .has_offset = f->has_offset,
                                .code = f->code,
                                .offset = f->offset};
    text_copy(item->path, f->path);
    text_copy(item->what, f->what);
    found->damage_count += f->is_damage;
}

static enum err verify_try(struct fs *fs, uint32_t threads, struct found *found, struct errinfo *ei)
{
    struct inspect_options o = {.fs = fs, .thread_count = threads};
    uint64_t before = fs_sim_op_count(fs);
    enum err e;

    *found = (struct found){.count = 0};
    e = inspect_verify(&o, note_finding, found, &found->result, ei);
    CHECK(fs_sim_op_count(fs) == before);
    if (e == ERR_OK)
        CHECK(found->result.damaged_file_count + found->result.unknown_file_count ==
                  found->damage_count &&
              found->result.note_count == found->count - found->damage_count);
    return e;
}

static void verify(struct fs *fs, struct found *found)
{
    struct errinfo ei = {0};

    CHECK_OK(verify_try(fs, 2, found, &ei), &ei);
}

static void check_clean(struct fs *fs)
{
    struct found found;

    verify(fs, &found);
    CHECK_MSG(found.count == 0, "%s: %s", found.items[0].path, found.items[0].what);
}

static void flip(struct world *w, const char *path, uint64_t bit)
{
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_flip_bit(w->fs, path, bit, &ei), &ei);
}

static void test_whole_directory(void **state)
{
    struct found found;
    uint64_t bytes = 0;
    struct world w;

    (void)state;
    world_init(&w, 1);
    for (size_t i = 0; i < w.file_count; i++)
        bytes += strcmp(w.files[i].path, MANIFEST_PATH) == 0 ? 0 : w.files[i].size;
    verify(w.fs, &found);
    CHECK_MSG(found.count == 0, "%s: %s", found.items[0].path, found.items[0].what);
    CHECK(found.result.file_count == w.file_count && found.result.byte_count == bytes);
    CHECK(found.result.part_count == 2 && found.result.sealed_count == 2);
    CHECK(found.result.late_count == 1 && found.result.series_file_count == 1);
    CHECK(found.result.segment_count == w.segment_count);
    world_done(&w);
}

/* The file is named, and a place at or before the flipped byte, within a page or a slice. */
static void check_located(const struct found *found, const struct world_file *f, uint64_t byte,
                          bool may_be_tail)
{
    const struct found_item *item = &found->items[0];
    size_t damage = found->damage_count, wanted = may_be_tail ? 0 : 1;

    CHECK_MSG(damage == 1 || damage == wanted, "byte %" PRIu64 " of %s: %zu damaged files", byte,
              f->path, damage);
    CHECK_MSG(strcmp(item->path, f->path) == 0, "byte %" PRIu64 " of %s: %s: %s", byte, f->path,
              item->path, item->what);
    CHECK_MSG(item->has_offset && item->offset <= byte,
              "byte %" PRIu64 " of %s: offset %" PRIu64 ": %s", byte, f->path, item->offset,
              item->what);
    if (item->is_damage)
        CHECK(item->code == ERR_CORRUPT || item->code == ERR_UNSUPPORTED);
}

/* A torn tail cannot be told from a bad last frame: that is a note. */
static bool in_last_frame(const struct world *w, const struct world_file *f)
{
    return f == &w->files[w->file_count - 1];
}

static void test_every_byte(void **state)
{
    struct test_random r = test_random_init(2);
    struct world w;

    (void)state;
    world_init(&w, 2);
    for (size_t i = 0; i < w.file_count; i++) {
        const struct world_file *f = &w.files[i];

        for (uint64_t byte = 0; byte < f->size; byte++) {
            uint64_t bit = byte * 8 + test_random_below(&r, 8);
            struct found found;

            flip(&w, f->path, bit);
            verify(w.fs, &found);
            check_located(&found, f, byte, in_last_frame(&w, f));
            flip(&w, f->path, bit);
        }
    }
    check_clean(w.fs);
    world_done(&w);
}

static void truncate_file(struct fs *fs, const char *path, uint64_t size)
{
    struct errinfo ei = {0};
    struct file *f;

    CHECK_OK(file_open(fs, path, FILE_READ_WRITE, &f, &ei), &ei);
    CHECK_OK(file_truncate(f, size, &ei), &ei);
    file_close(f);
}

/* What a log that ends early says: the bad rest of a frame, entries that are missing, or nothing
 * where whole frames are gone that no later one misses. */
static void check_log_cut(const struct found *found, const struct world_file *f)
{
    for (size_t i = 0; i < found->count; i++)
        CHECK_MSG(strcmp(found->items[i].path, f->path) == 0 ||
                      strcmp(found->items[i].path, "wal") == 0,
                  "%s: %s: %s", f->path, found->items[i].path, found->items[i].what);
}

static void test_truncations(void **state)
{
    enum { ROUNDS = 400 };
    struct test_random r = test_random_init(3);
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    world_init(&w, 3);
    for (size_t i = 0; i < ROUNDS; i++) {
        const struct world_file *f = &w.files[i % w.file_count];
        uint64_t size = test_random_below(&r, f->size);
        struct found found;
        struct fs *fs;

        CHECK_OK(fs_sim_after_crash(w.fs, FS_SIM_KEEP_ALL, 1, &fs, &ei), &ei);
        truncate_file(fs, f->path, size);
        verify(fs, &found);
        if (f->is_log)
            check_log_cut(&found, f);
        else
            check_located(&found, f, f->size, false);
        fs_free(fs);
    }
    world_done(&w);
}

static void test_missing_files(void **state)
{
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    world_init(&w, 4);
    for (size_t i = 0; i < w.file_count; i++) {
        const struct world_file *f = &w.files[i];
        struct found found;
        struct fs *fs;

        CHECK_OK(fs_sim_after_crash(w.fs, FS_SIM_KEEP_ALL, 1, &fs, &ei), &ei);
        CHECK_OK(fs_unlink(fs, f->path, &ei), &ei);
        verify(fs, &found);
        if (f->is_log) {
            check_log_cut(&found, f);
        } else {
            CHECK(found.damage_count == 1 && found.items[0].code == ERR_NOT_FOUND);
            CHECK_MSG(strcmp(found.items[0].path, f->path) == 0, "%s: %s", f->path,
                      found.items[0].path);
            CHECK(strcmp(found.items[0].what, "the file is missing") == 0);
        }
        fs_free(fs);
    }
    world_done(&w);
}

/* A log segment from the middle that is gone is noticed by the numbers of the entries. */
static void test_missing_segment(void **state)
{
    struct errinfo ei = {0};
    struct found found;
    struct world w;

    (void)state;
    world_init(&w, 5);
    CHECK_OK(fs_unlink(w.fs, w.files[w.file_count - 2].path, &ei), &ei);
    verify(w.fs, &found);
    CHECK(found.damage_count == 1 && strcmp(found.items[0].path, "wal") == 0);
    CHECK_MSG(strstr(found.items[0].what, "entries are missing") != NULL, "%s",
              found.items[0].what);
    world_done(&w);
}

static void append(struct fs *fs, const char *path, uint64_t size, const char *text)
{
    struct errinfo ei = {0};
    struct file *f;

    CHECK_OK(file_open(fs, path, FILE_READ_WRITE, &f, &ei), &ei);
    CHECK_OK(file_write_bytes(f, text, strlen(text), size, &ei), &ei);
    file_close(f);
}

/* Behind what counts in files that grow: a note with the place, no damage. Behind a finished log
 * segment nothing counts, says the next one. All other files have an end. */
static void test_tails(void **state)
{
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    world_init(&w, 6);
    for (size_t i = 0; i < w.file_count; i++) {
        const struct world_file *f = &w.files[i];
        bool is_last = i + 1 == w.file_count;
        bool grows = is_last || i == 0 || strstr(f->path, ".series") != NULL;
        struct found found;
        struct fs *fs;

        CHECK_OK(fs_sim_after_crash(w.fs, FS_SIM_KEEP_ALL, 1, &fs, &ei), &ei);
        append(fs, f->path, f->size, "some torn bytes");
        verify(fs, &found);
        if (f->is_log && !is_last) {
            CHECK(found.count == 0);
        } else {
            CHECK_MSG(found.count > 0 && strcmp(found.items[0].path, f->path) == 0, "%s", f->path);
            CHECK_MSG(found.damage_count == !grows, "%s: %s", f->path, found.items[0].what);
            CHECK(!grows || (found.items[0].has_offset && found.items[0].offset == f->size));
        }
        fs_free(fs);
    }
    world_done(&w);
}

static void test_notes(void **state)
{
    static const char *const debris[] = {
        "manifest.tmp", "shards/0001-0000000077.sealed",
        "parts/part-1700006400000-7200000-1of2-r0-c0-g9.chunks.tmp"};
    static const char *const others[] = {"parts/hello", "readme.txt", "shards/x.sealed",
                                         "wal/1.wal", "shards/damaged-0001-0000000001.sealed"};
    struct errinfo ei = {0};
    struct found found;
    struct world w;

    (void)state;
    world_init(&w, 7);
    for (size_t i = 0; i < 3; i++)
        test_file_create(w.fs, debris[i], "x", 1);
    for (size_t i = 0; i < 5; i++)
        test_file_create(w.fs, others[i], "x", 1);
    CHECK_OK(fs_mkdir(w.fs, "snapshots", &ei), &ei);
    verify(w.fs, &found);
    CHECK(found.count == 8 && found.damage_count == 0);
    for (size_t i = 0; i < found.count; i++) {
        bool is_debris = strstr(found.items[i].what, "debris") != NULL;
        const char *const *list = is_debris ? debris : others;
        size_t count = is_debris ? 3 : 5, k = 0;

        while (k < count && strcmp(list[k], found.items[i].path) != 0)
            k++;
        CHECK_MSG(k < count, "%s: %s", found.items[i].path, found.items[i].what);
        CHECK((strstr(found.items[i].path, "damaged-") != NULL) ==
              (strstr(found.items[i].what, "set aside") != NULL));
    }
    world_done(&w);
}

/* A file under the name of another one, and a part that the manifest knows otherwise. */
static void test_mistaken_files(void **state)
{
    struct errinfo ei = {0};
    struct manifest m;
    struct found found;
    uint8_t *data;
    struct world w;
    size_t size;

    (void)state;
    world_init(&w, 8);
    CHECK(strstr(w.files[0].path, ".sealed") != NULL && strstr(w.files[1].path, ".sealed") != NULL);
    data = test_file_read(w.fs, w.files[0].path, &size);
    CHECK_OK(fs_unlink(w.fs, w.files[1].path, &ei), &ei);
    test_file_create(w.fs, w.files[1].path, data, size);
    free(data);
    verify(w.fs, &found);
    CHECK(found.damage_count == 1 && strcmp(found.items[0].path, w.files[1].path) == 0);
    CHECK(found.items[0].has_offset && found.items[0].offset == 0);

    CHECK_OK(manifest_read(w.fs, &m, &ei), &ei);
    CHECK(manifest_file_remove(&m, m.files[1].number));
    m.parts[0].sample_count++;
    CHECK_OK(manifest_write(w.fs, &m, &ei), &ei);
    manifest_done(&m);
    verify(w.fs, &found);
    CHECK(found.damage_count == 1 && strstr(found.items[0].path, ".index") != NULL);
    CHECK(found.count == 2); /* and the debris */
    world_done(&w);
}

static void test_refusals(void **state)
{
    static _Atomic bool stop = true;
    struct fs *empty = test_fs_new(9);
    struct errinfo ei = {0};
    struct found found;
    struct world w;

    (void)state;
    CHECK(verify_try(empty, 1, &found, &ei) == ERR_NOT_FOUND);
    fs_free(empty);
    world_init(&w, 9);
    CHECK_OK(fs_lock(w.fs, &ei), &ei);
    CHECK(verify_try(w.fs, 1, &found, NULL) == ERR_LOCKED);
    fs_unlock(w.fs);
    {
        struct inspect_options o = {.fs = w.fs, .thread_count = 1, .stop = &stop};

        CHECK(inspect_verify(&o, note_finding, &found, &found.result, NULL) == ERR_CANCELED);
    }
    CHECK_OK(fs_lock(w.fs, &ei), &ei); /* it was given back */
    fs_unlock(w.fs);
    for (uint32_t threads = 1; threads < 9; threads++) {
        errinfo_clear(&ei);
        CHECK_OK(verify_try(w.fs, threads, &found, &ei), &ei);
        CHECK(found.count == 0);
    }
    world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_directory), cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_truncations),     cmocka_unit_test(test_missing_files),
        cmocka_unit_test(test_missing_segment), cmocka_unit_test(test_tails),
        cmocka_unit_test(test_notes),           cmocka_unit_test(test_mistaken_files),
        cmocka_unit_test(test_refusals),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
