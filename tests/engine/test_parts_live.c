/*
 * The exchange of live parts: what is refused, and that a refused part leaves nothing.
 */
#include <stdlib.h>

#include "engine/flush/flush_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS
static const struct engine_options options = {.shard_count = 1};

static void flush(struct kit *k)
{
    struct flush_result ignored;

    CHECK_OK(engine_flush(k->engine, 0, INT64_MAX, NULL, &ignored, &k->ei), &k->ei);
}

/* A part in place of others: one series with two samples. */
static struct part_info part_make(struct kit *k, const struct part_key *key)
{
    static const int64_t t_ms[] = {T0, T0 + 15000};
    static const double value[] = {1, 2};
    const struct label label = {LABEL_METRIC_NAME, STR_LITERAL("a")};
    const struct labels labels = {1, &label};
    struct part_writer_options o = {.dir = engine_parts_dir(), .key = *key};
    struct part_writer *w;
    struct part_info info;

    CHECK_OK(engine_part_clear(k->engine, key, &k->ei), &k->ei);
    CHECK_OK(part_writer_new(engine_part_store(k->engine), &o, &w, &k->ei), &k->ei);
    CHECK_OK(part_writer_series(w, &labels, (struct hash128){1, 2}, &k->ei), &k->ei);
    CHECK_OK(part_writer_samples(w, t_ms, value, 2, &k->ei), &k->ei);
    CHECK_OK(part_writer_finish(w, 1, &info, &k->ei), &k->ei);
    part_writer_free(w);
    return info;
}

static size_t part_keys(struct kit *k, struct part_key *keys, size_t room)
{
    struct engine_parts parts;
    struct arena arena;
    size_t count;

    arena_init(&arena, NULL);
    CHECK_OK(engine_parts_get(k->engine, 0, &arena, &parts, &k->ei), &k->ei);
    count = parts.count;
    CHECK(count <= room);
    for (size_t i = 0; i < count; i++)
        keys[i] = parts.items[i].key;
    engine_parts_release(&parts);
    arena_done(&arena);
    return count;
}

/* Nothing lies about that the manifest does not name, and no name is taken. */
static void check_gone(struct kit *k, const struct part_key *key)
{
    struct manifest_paths debris = {0};

    CHECK_OK(manifest_debris(k->fs, &k->engine->manifest, &debris, &k->ei), &k->ei);
    CHECK(debris.count == 0);
    manifest_paths_done(&debris);
    CHECK_OK(engine_part_clear(k->engine, key, &k->ei), &k->ei);
}

static void test_exchange(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct part_key keys[4], wrong, key;
    struct part_info info;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    kit_put(&k, "__name__=a", T0, 1);
    kit_put(&k, "__name__=a", T0 + 15000, 2);
    flush(&k);
    CHECK(part_keys(&k, keys, 4) == 1);
    CHECK(engine_part_clear(k.engine, &keys[0], NULL) == ERR_EXISTS);
    key = wrong = keys[0];
    key.generation++;
    wrong.generation += 5;
    info = part_make(&k, &key);
    CHECK(engine_parts_exchange(k.engine, 0, &wrong, 1, &info, 0, NULL) == ERR_NOT_FOUND);
    check_gone(&k, &key);
    CHECK(part_keys(&k, keys, 4) == 1 && keys[0].generation + 1 == key.generation);
    info = part_make(&k, &key);
    CHECK_OK(engine_parts_exchange(k.engine, 0, keys, 1, &info, 0, &k.ei), &k.ei);
    CHECK(part_keys(&k, keys, 4) == 1 && part_key_equal(&keys[0], &key));
    CHECK_OK(engine_parts_exchange(k.engine, 0, keys, 1, NULL, 0, &k.ei), &k.ei);
    CHECK(part_keys(&k, keys, 4) == 0);
    check_gone(&k, &key);
    kit_close(&k);
    fs_free(fs);
}

/* A part that stays lies between the one that goes and what comes in its place. */
static void test_part_between(void **state)
{
    struct fs *fs = test_fs_new(3);
    struct part_key keys[4], key;
    struct part_info info;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    kit_put(&k, "__name__=a", T0, 1);
    flush(&k);
    kit_put(&k, "__name__=a", T0 + 15000, 2);
    flush(&k);
    CHECK(part_keys(&k, keys, 4) == 2 && keys[0].generation < keys[1].generation);
    key = keys[0];
    key.generation = keys[1].generation + 1;
    info = part_make(&k, &key);
    CHECK(engine_parts_exchange(k.engine, 0, keys, 1, &info, 0, NULL) == ERR_INVALID);
    check_gone(&k, &key);
    info = part_make(&k, &key);
    CHECK_OK(engine_parts_exchange(k.engine, 0, keys, 2, &info, 0, &k.ei), &k.ei);
    kit_close(&k);
    fs_free(fs);
}

/* A late file contradicts the older of two parts: the merge of both would be younger than it. */
static void test_late_file_between(void **state)
{
    struct fs *fs = test_fs_new(2);
    static const int64_t t_ms[] = {T0, T0 + 15000};
    static const double value[] = {1, 2};
    struct part_key keys[4], key;
    struct seal_result sealed;
    struct flush_result split;
    struct part_info info;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    kit_put(&k, "__name__=a", T0, 1);
    flush(&k);
    kit_put(&k, "__name__=a", T0 + 15000, 2);
    kit_series(&k, "__name__=a");
    kit_sample(&k, T0, 77);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK_OK(kit_wait(&k), &k.ei);
    CHECK_OK(engine_seal(k.engine, 0, SEAL_LATE, NULL, &sealed, &k.ei), &k.ei);
    CHECK(sealed.late_sample_count == 1);
    kit_abandon(&k); /* the next sample goes to another file */
    kit_open(&k, fs, &options);
    kit_put(&k, "__name__=b", T0 + 15000, 2);
    flush(&k);
    /* The files on both sides of the late one were not put into one part. */
    CHECK(part_keys(&k, keys, 4) == 3);
    kit_check(&k, "__name__=a", 2, t_ms, value);
    key = keys[2];
    key.generation++;
    info = part_make(&k, &key);
    CHECK(engine_parts_exchange(k.engine, 0, keys, 3, &info, 0, NULL) == ERR_UNAVAILABLE);
    check_gone(&k, &key);
    kit_check(&k, "__name__=a", 2, t_ms, value);
    CHECK_OK(engine_split_late(k.engine, 0, NULL, &split, &k.ei), &k.ei);
    CHECK(split.part_count == 1 && part_keys(&k, keys, 4) == 4);
    kit_check(&k, "__name__=a", 2, t_ms, value);
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_part_between),
        cmocka_unit_test(test_late_file_between),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
