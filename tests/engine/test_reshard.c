/*
 * Starts with another number of shards: everything is there afterwards, also when the power fails
 * at any operation of the change, and the change is done by the next start.
 */
#include <stdlib.h>

#include "base/file_sim.h"
#include "engine/maintain.h"
#include "tests/engine/seal_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

/* Files of two kinds, samples in the log only, late ones too. */
static struct fs *store_new(struct seal_model *m, size_t series_count, uint64_t seed)
{
    struct fs *fs = test_fs_new(seed);
    struct kit k;

    seal_model_init(m, series_count, seed);
    seal_open(&k, fs, m);
    for (int i = 0; i < 5; i++) {
        CHECK(seal_send(&k, m, 80));
        seal_advance(&k, m, INT64_C(50) * 60 * 1000);
        CHECK(seal_send_late(&k, m, INT64_C(2) * 3600 * 1000));
        if (i % 2 == 1)
            CHECK_OK(seal_all(&k, NULL), &k.ei);
    }
    kit_close(&k);
    return fs;
}

static void open_with(struct kit *k, struct fs *fs, const struct seal_model *m, uint32_t count)
{
    CHECK_OK(seal_try_open_with(k, fs, m, count), &k->ei);
    CHECK(count == 0 || engine_shard_count(k->engine) == count);
}

static void test_counts(void **state)
{
    static const uint32_t counts[] = {8, 1, 16, 2, 4, 0};
    struct seal_model *m = malloc(sizeof *m);
    struct fs *fs = store_new(m, 80, 1);
    struct kit k;

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        open_with(&k, fs, m, counts[i]);
        CHECK(k.replay.wal.lost_entry_count == 0 && k.replay.unknown_ref_samples == 0);
        seal_check(&k, m);
        seal_advance(&k, m, 15000);
        CHECK(seal_send(&k, m, 60)); /* in the log, or sealed under the new count */
        if (i % 2 == 0)
            CHECK_OK(seal_all(&k, NULL), &k.ei);
        seal_check(&k, m);
        kit_close(&k);
    }
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

static size_t parts_count(struct kit *k, struct part_key *first)
{
    size_t count = 0;

    for (uint32_t i = 0; i < engine_shard_count(k->engine); i++) {
        struct engine_parts parts;
        struct arena arena;

        arena_init(&arena, NULL);
        CHECK_OK(engine_parts_get(k->engine, i, &arena, &parts, &k->ei), &k->ei);
        for (size_t p = 0; p < parts.count; p++) {
            CHECK(parts.items[p].is_foreign);
            *first = parts.items[p].key;
            count++;
        }
        engine_parts_release(&parts);
        arena_done(&arena);
    }
    return count;
}

static enum err no_file(void *ctx, const char *name, struct errinfo *ei)
{
    (void)ctx;
    (void)ei;
    CHECK_MSG(false, "%s is left", name);
    return ERR_OK;
}

/* Parts of the old count leave all shards that read them, and the disk. */
static void test_removal_of_old_parts(void **state)
{
    struct seal_model *m = malloc(sizeof *m);
    struct fs *fs = store_new(m, 80, 3);
    struct part_key key = {0};
    struct querier *reader;
    struct kit k;
    size_t before;

    (void)state;
    open_with(&k, fs, m, 32);
    before = parts_count(&k, &key);
    CHECK(before > 0);
    CHECK_OK(querier_open(k.engine, &reader, &k.ei), &k.ei);
    while (parts_count(&k, &key) > 0) {
        CHECK_OK(engine_foreign_part_remove(k.engine, &key, &k.ei), &k.ei);
        CHECK_OK(engine_foreign_part_remove(k.engine, &key, &k.ei), &k.ei); /* harmless */
        CHECK(parts_count(&k, &key) < before);
        before = parts_count(&k, &key);
    }
    key.shard_count = 32;
    CHECK(engine_foreign_part_remove(k.engine, &key, &k.ei) == ERR_INVALID);
    k.ei = (struct errinfo){0};
    querier_close(reader);
    CHECK_OK(fs_list(fs, engine_parts_dir(), no_file, NULL, &k.ei), &k.ei);
    kit_close(&k);
    open_with(&k, fs, m, 32);
    CHECK(parts_count(&k, &key) == 0);
    kit_close(&k);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* True when the fault was hit. */
static bool crash_at(struct fs *before, const struct seal_model *m, uint64_t op)
{
    struct fs *fs = test_fs_after(before, FS_SIM_KEEP_ALL, op);
    bool hit;
    struct kit k;

    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, op);
    if (seal_try_open_with(&k, fs, m, 8) == ERR_OK)
        kit_abandon(&k);
    hit = fs_sim_fault_hit(fs);
    for (int loss = 0; loss < 3; loss++) {
        /* Of the old count or of the new one; then once more. */
        struct fs *after = test_fs_after(fs, (enum fs_sim_loss)loss, op);

        open_with(&k, after, m, op % 2 == 0 ? 0 : 8);
        seal_check(&k, m);
        kit_close(&k);
        open_with(&k, after, m, 8);
        seal_check(&k, m);
        CHECK(k.replay.wal.lost_entry_count == 0);
        kit_close(&k);
        fs_free(after);
    }
    fs_free(fs);
    return hit;
}

static void test_power_loss_everywhere(void **state)
{
    struct seal_model *m = malloc(sizeof *m);
    struct fs *fs = store_new(m, 20, 2);
    uint64_t op = 0;

    (void)state;
    while (crash_at(fs, m, op))
        op++;
    CHECK(op > 100);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_removal_of_old_parts),
        cmocka_unit_test(test_power_loss_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
