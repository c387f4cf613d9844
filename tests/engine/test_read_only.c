/*
 * A store opened for reading only: all that a server would find, and not one change on disk.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/log.h"
#include "engine/files/manifest_internal.h"
#include "tests/engine/seal_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

/* A directory that a server left behind when it died: sealed files, and a log above them. */
struct left {
    struct fs *fs;
    struct seal_model *m; /* owned */
};

static void left_init(struct left *l, uint64_t seed)
{
    struct kit k;

    l->fs = test_fs_new(seed);
    l->m = malloc(sizeof *l->m);
    CHECK(l->m != NULL);
    seal_model_init(l->m, 150, seed);
    seal_open(&k, l->fs, l->m);
    for (int round = 0; round < 30; round++) {
        CHECK(seal_send(&k, l->m, 60));
        seal_advance(&k, l->m, INT64_C(7) * 60 * 1000);
        if (round % 10 == 5)
            CHECK_OK(seal_all(&k, NULL), &k.ei);
    }
    kit_abandon(&k);
}

static void left_done(struct left *l)
{
    seal_model_done(l->m);
    free(l->m);
    fs_free(l->fs);
}

static enum err try_open(struct kit *k, struct fs *fs)
{
    const struct engine_options o = {.read_only = true};

    return kit_try_open(k, fs, &o);
}

static void test_nothing_changes(void **state)
{
    struct left l;

    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        uint64_t before;
        struct kit k;

        left_init(&l, seed);
        /* What a server would remove at a start. */
        test_file_create(l.fs, "manifest.tmp", "x", 1);
        test_file_create(l.fs, MANIFEST_SHARDS_DIR "/0001-0000009999.sealed", "x", 1);
        before = fs_sim_op_count(l.fs);
        for (int times = 0; times < 2; times++) {
            CHECK_OK(try_open(&k, l.fs), &k.ei);
            CHECK(k.replay.files_set_aside == 0 && k.replay.sample_count > 0);
            seal_check(&k, l.m);
            kit_close(&k);
        }
        CHECK(fs_sim_op_count(l.fs) == before);
        seal_open(&k, l.fs, l.m); /* a server goes on as if nobody had looked */
        seal_check(&k, l.m);
        CHECK(seal_send(&k, l.m, 100));
        kit_close(&k);
        left_done(&l);
    }
}

static void test_writes_are_refused(void **state)
{
    struct left l;
    struct kit k;

    (void)state;
    left_init(&l, 5);
    CHECK_OK(try_open(&k, l.fs), &k.ei);
    kit_series(&k, "__name__=new");
    kit_sample(&k, KIT_NOW_MS, 1);
    CHECK(kit_write(&k) == ERR_UNAVAILABLE);
    CHECK(strstr(k.ei.message, "reading only") != NULL);
    errinfo_clear(&k.ei);
    kit_close(&k);
    left_done(&l);
}

static void test_refusals(void **state)
{
    struct fs *empty = test_fs_new(6);
    uint64_t before = fs_sim_op_count(empty);
    struct left l;
    struct kit k, other;

    (void)state;
    CHECK(try_open(&k, empty) == ERR_NOT_FOUND && fs_sim_op_count(empty) == before);
    fs_free(empty);
    left_init(&l, 6);
    seal_open(&k, l.fs, l.m);
    CHECK(try_open(&other, l.fs) == ERR_LOCKED);
    kit_close(&k);
    left_done(&l);
}

/* Files that cannot be used are passed over, counted, and stay where they are. */
static void test_damaged_files(void **state)
{
    struct errinfo ei = {0};
    struct manifest m;
    struct left l;

    (void)state;
    left_init(&l, 7);
    CHECK_OK(manifest_read(l.fs, &m, &ei), &ei);
    for (size_t i = 0; i < m.file_count; i++) {
        char path[MANIFEST_PATH_SIZE];
        uint64_t before;
        struct kit k;

        if (m.files[i].kind == MANIFEST_SERIES)
            continue;
        manifest_file_path(&m.files[i], path);
        CHECK_OK(fs_sim_flip_bit(l.fs, path, 3, &ei), &ei);
        before = fs_sim_op_count(l.fs);
        CHECK_OK(try_open(&k, l.fs), &k.ei);
        CHECK(k.replay.files_set_aside == 1);
        kit_close(&k);
        CHECK(fs_sim_op_count(l.fs) == before);
        CHECK_OK(fs_sim_flip_bit(l.fs, path, 3, &ei), &ei);
    }
    manifest_done(&m);
    left_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_changes),
        cmocka_unit_test(test_writes_are_refused),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damaged_files),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
