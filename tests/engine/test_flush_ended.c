/*
 * Series that leave the sealed files before their window is flushed: what their parts hold, which
 * generation they have, and that readers see the same before and after.
 */
#include <stdlib.h>

#include "engine/flush/flush_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS
static const struct engine_options options = {.shard_count = 1};
static const int64_t t_ms[] = {T0, T0 + 15000, T0 + 30000, T0 + 45000};
static const double value[] = {1, 2, 3, 4};

static void seal(struct kit *k)
{
    struct seal_result ignored;

    CHECK_OK(engine_seal(k->engine, 0, SEAL_ENDED, NULL, &ignored, &k->ei), &k->ei);
}

static uint32_t slot_of(struct kit *k, const char *name)
{
    struct shard *s = engine_shard(k->engine, 0);
    struct arena arena;
    struct matcher m;
    uint32_t *slots, slot;
    size_t count;

    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, str_from(name), &arena, &k->ei),
             &k->ei);
    CHECK_OK(index_select(s->index, &m, 1, NULL, &arena, &slots, &count, &k->ei), &k->ei);
    CHECK(count == 1);
    slot = slots[0];
    matcher_done(&m);
    arena_done(&arena);
    return slot;
}

/* As who lets series end: all but marking them dead. */
static struct part_key leave(struct kit *k, uint32_t slot, uint64_t samples)
{
    struct shard *s = engine_shard(k->engine, 0);
    struct flush_parts parts = {0};
    struct flush_exchange x = {.parts_added = &parts};
    struct flush_result result;
    struct part_key key;

    mutex_lock(&s->maintain_lock);
    CHECK_OK(flush_ended(k->engine, s, &slot, 1, NULL, &parts, &result, &k->ei), &k->ei);
    CHECK(parts.count == 1 && parts.named[0].sample_count == samples);
    key = parts.named[0].key;
    CHECK_OK(flush_exchange_run(k->engine, s, &x, &k->ei), &k->ei);
    mutex_unlock(&s->maintain_lock);
    flush_parts_done(k->engine, &parts, true);
    return key;
}

static void check_all(struct kit *k)
{
    kit_check(k, "__name__=a", 4, t_ms, value);
    kit_check(k, "__name__=b", 4, t_ms, value);
    kit_check(k, "__name__=c", 4, t_ms, value);
}

static void test_parts_of_ended_series(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct part_key first, second;
    struct flush_result flushed;
    uint64_t number;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    for (size_t i = 0; i < 4; i++) {
        kit_put(&k, "__name__=a", t_ms[i], value[i]);
        kit_put(&k, "__name__=b", t_ms[i], value[i]);
        kit_put(&k, "__name__=c", t_ms[i], value[i]);
        if (i % 2 == 1)
            seal(&k);
    }
    number = engine_shard(k.engine, 0)->files->sealed[0].source->number;
    first = leave(&k, slot_of(&k, "b"), 4);
    check_all(&k);
    second = leave(&k, slot_of(&k, "a"), 4);
    check_all(&k);
    /* Before the file, in the order in which they were made, with room between. */
    CHECK(generation_file_number(first.generation) == number);
    CHECK(first.generation + 1 < second.generation);
    CHECK(second.generation < generation_of_file(number));
    kit_abandon(&k);
    kit_open(&k, fs, &options);
    check_all(&k);
    CHECK_OK(engine_flush(k.engine, 0, INT64_MAX, NULL, &flushed, &k.ei), &k.ei);
    CHECK(flushed.part_count == 1 && flushed.sample_count == 12);
    check_all(&k);
    kit_close(&k);
    fs_free(fs);
}

/* Parts that nobody publishes leave nothing. */
static void test_given_up(void **state)
{
    struct fs *fs = test_fs_new(2);
    struct flush_parts parts = {0};
    struct flush_result result;
    struct manifest_paths debris = {0};
    struct shard *s;
    uint32_t slot;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    kit_put(&k, "__name__=a", t_ms[0], value[0]);
    seal(&k);
    s = engine_shard(k.engine, 0);
    slot = slot_of(&k, "a");
    mutex_lock(&s->maintain_lock);
    CHECK_OK(flush_ended(k.engine, s, &slot, 1, NULL, &parts, &result, &k.ei), &k.ei);
    CHECK(parts.count == 1);
    flush_parts_done(k.engine, &parts, false);
    mutex_unlock(&s->maintain_lock);
    CHECK_OK(manifest_debris(fs, &k.engine->manifest, &debris, &k.ei), &k.ei);
    CHECK(debris.count == 0);
    manifest_paths_done(&debris);
    kit_check(&k, "__name__=a", 1, t_ms, value);
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_ended_series),
        cmocka_unit_test(test_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
