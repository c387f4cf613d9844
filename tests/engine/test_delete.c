/*
 * Deletion by itself: ranges that are filled again, what the log must not bring back, when a
 * tombstone is forgotten. Lives and crashes with deletions are in tests/compactor.
 */
#include <stdlib.h>

#include "engine/log/log_queue_internal.h"
#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS
static const struct engine_options options = {.shard_count = 2};

static void delete_series(struct kit *k, const char *name, int64_t min_ms, int64_t max_ms)
{
    struct arena arena;
    struct matcher m;

    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, str_from(name), &arena, &k->ei),
             &k->ei);
    CHECK_OK(engine_delete(k->engine, &m, 1, min_ms, max_ms, &k->ei), &k->ei);
    matcher_done(&m);
    arena_done(&arena);
}

static void seal_all(struct kit *k)
{
    for (uint32_t s = 0; s < options.shard_count; s++) {
        struct seal_result ignored;

        CHECK_OK(engine_seal(k->engine, s, SEAL_INTERVAL, NULL, &ignored, &k->ei), &k->ei);
    }
}

static void flush_all(struct kit *k)
{
    for (uint32_t s = 0; s < options.shard_count; s++) {
        struct flush_result ignored;

        CHECK_OK(engine_flush(k->engine, s, INT64_MAX, NULL, &ignored, &k->ei), &k->ei);
        CHECK_OK(engine_split_late(k->engine, s, NULL, &ignored, &k->ei), &k->ei);
    }
}

/* What is in memory, in sealed files and in parts goes alike; the same samples may come again, the
 * newest included, whose bits the series still had. */
static void refill(bool sealed, bool flushed, bool restarted)
{
    static const int64_t t_ms[] = {T0, T0 + 15000, T0 + 30000};
    static const double value[] = {1, 2, 3}, other[] = {1, 2, 7};
    struct fs *fs = test_fs_new(1);
    struct kit k;

    kit_open(&k, fs, &options);
    for (size_t i = 0; i < 3; i++) {
        kit_put(&k, "__name__=a", t_ms[i], value[i]);
        kit_put(&k, "__name__=b", t_ms[i], value[i]);
    }
    if (sealed)
        seal_all(&k);
    if (flushed)
        flush_all(&k);
    delete_series(&k, "a", T0 + 1, INT64_MAX);
    kit_check(&k, "__name__=a", 1, t_ms, value);
    kit_check(&k, "__name__=b", 3, t_ms, value);
    CHECK(engine_tombstone_count(k.engine) == 1);
    if (restarted) {
        kit_abandon(&k);
        kit_open(&k, fs, &options);
        CHECK(engine_tombstone_count(k.engine) == 1);
        kit_check(&k, "__name__=a", 1, t_ms, value);
    }
    kit_put(&k, "__name__=a", t_ms[2], other[2]);
    CHECK(k.result.stored_count == 1 && k.result.refused_count == 0);
    kit_put(&k, "__name__=a", t_ms[1], value[1]);
    kit_check(&k, "__name__=a", 3, t_ms, other);
    seal_all(&k);
    kit_check(&k, "__name__=a", 3, t_ms, other);
    flush_all(&k);
    kit_check(&k, "__name__=a", 3, t_ms, other);
    kit_abandon(&k);
    kit_open(&k, fs, &options);
    kit_check(&k, "__name__=a", 3, t_ms, other);
    kit_check(&k, "__name__=b", 3, t_ms, value);
    kit_close(&k);
    fs_free(fs);
}

static void test_refill(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++)
        refill((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
}

/* A flush applies a tombstone; then no file needs it. */
static void test_retire(void **state)
{
    static const int64_t t_ms[] = {T0, T0 + 15000};
    static const double value[] = {1, 2};
    struct fs *fs = test_fs_new(2);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    for (size_t i = 0; i < 2; i++)
        kit_put(&k, "__name__=a", t_ms[i], value[i]);
    seal_all(&k);
    delete_series(&k, "a", T0 + 1, T0 + 20000);
    CHECK_OK(engine_tombstones_retire(k.engine, &k.ei), &k.ei);
    CHECK(engine_tombstone_count(k.engine) == 1);
    flush_all(&k);
    CHECK_OK(engine_tombstones_retire(k.engine, &k.ei), &k.ei);
    CHECK(engine_tombstone_count(k.engine) == 0);
    kit_check(&k, "__name__=a", 1, t_ms, value);
    kit_abandon(&k);
    kit_open(&k, fs, &options);
    CHECK(engine_tombstone_count(k.engine) == 0);
    kit_check(&k, "__name__=a", 1, t_ms, value);
    /* In a part that was written before, it stays until a merge has applied it. */
    delete_series(&k, "a", T0, T0);
    flush_all(&k);
    CHECK_OK(engine_tombstones_retire(k.engine, &k.ei), &k.ei);
    CHECK(engine_tombstone_count(k.engine) == 1);
    kit_close(&k);
    fs_free(fs);
}

static void put_at(struct kit *k, const char *labels, int64_t t_ms)
{
    clock_set_fake(&k->clock, t_ms);
    kit_put(k, labels, t_ms, 1);
}

/* Samples that a clock of the future let in keep writes out, until they are deleted: at once, and
 * after a start. */
static void test_samples_ahead_of_the_clock(void **state)
{
    static const int64_t day_ms = 86400000;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct fs *fs = test_fs_new(4);
        struct kit k;

        kit_open(&k, fs, &options);
        put_at(&k, "__name__=a", T0);
        put_at(&k, "__name__=a", T0 + day_ms);
        put_at(&k, "__name__=b", T0 + day_ms);
        if ((i & 1) != 0)
            flush_all(&k);
        clock_set_fake(&k.clock, T0 + 1000);
        CHECK(engine_admit(k.engine, NULL) == ERR_UNAVAILABLE);
        delete_series(&k, "a", T0 + 1, INT64_MAX);
        CHECK(engine_admit(k.engine, NULL) == ERR_UNAVAILABLE);
        delete_series(&k, "b", T0 + 1, INT64_MAX);
        CHECK_OK(engine_admit(k.engine, &k.ei), &k.ei);
        if ((i & 2) != 0) {
            kit_abandon(&k);
            kit_open(&k, fs, &options);
            clock_set_fake(&k.clock, T0 + 1000);
            CHECK_OK(engine_admit(k.engine, &k.ei), &k.ei);
        }
        kit_put(&k, "__name__=a", T0 + 1000, 5);
        kit_put(&k, "__name__=b", T0 + 1000, 5);
        kit_check(&k, "__name__=a", 2, (const int64_t[]){T0, T0 + 1000}, (const double[]){1, 5});
        kit_check(&k, "__name__=b", 1, (const int64_t[]){T0 + 1000}, (const double[]){5});
        kit_close(&k);
        fs_free(fs);
    }
}

static void test_refused(void **state)
{
    struct fs *fs = test_fs_new(3);
    struct arena arena;
    struct matcher m;
    struct kit k;

    (void)state;
    arena_init(&arena, NULL);
    kit_open(&k, fs, &options);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, STR_LITERAL("a"), &arena, &k.ei),
             &k.ei);
    CHECK(engine_delete(k.engine, &m, 1, 5, 4, NULL) == ERR_INVALID);
    CHECK(engine_delete(k.engine, &m, 0, 4, 5, NULL) == ERR_INVALID);
    /* Nothing is there: nothing to remember. */
    CHECK_OK(engine_delete(k.engine, &m, 1, INT64_MIN, INT64_MAX, &k.ei), &k.ei);
    CHECK(engine_tombstone_count(k.engine) == 0);
    kit_close(&k);
    matcher_done(&m);
    arena_done(&arena);
    fs_free(fs);
}

static void queue_sample(struct log_queue *q, struct log_chain *chain, int64_t t_ms)
{
    struct log_entry *e = log_queue_next(q, chain);

    CHECK(e != NULL);
    *e = (struct log_entry){.slot = 1, .t_ms = t_ms};
    log_queue_commit(q, chain);
}

static void check_batch(struct log_queue *q, uint64_t first, uint64_t count, uint64_t samples)
{
    struct log_batch batch = {0};
    struct wal_batch out;

    CHECK(log_queue_take(q, 0, &batch, &out));
    CHECK(out.first_sequence == first && out.entry_count == count && out.sample_count == samples);
    CHECK(batch.in_order.sample_count + batch.late.sample_count == samples);
    log_batch_release_samples(&batch, q->pool);
    log_batch_release_definitions(&batch, q, 0);
}

/* No batch holds entries of both sides, whatever waits on either. */
static void test_split_of_the_queue(void **state)
{
    struct log_pool pool;
    struct log_queue q;
    struct log_batch none = {0};
    struct wal_batch out;

    (void)state;
    log_pool_init(&pool, NULL);
    log_queue_init(&q, &pool);
    log_queue_split(&q); /* of nothing */
    CHECK(!log_queue_take(&q, 0, &none, &out));
    for (int64_t i = 0; i < 3; i++)
        queue_sample(&q, &q.in_order, i);
    queue_sample(&q, &q.late, 9);
    log_queue_split(&q);
    log_queue_split(&q);
    check_batch(&q, 1, 4, 4);
    CHECK(!log_queue_take(&q, 0, &none, &out));
    queue_sample(&q, &q.in_order, 10);
    log_queue_split(&q);
    queue_sample(&q, &q.in_order, 11);
    queue_sample(&q, &q.late, 12);
    log_queue_split(&q); /* the first has not been taken: both go out together */
    queue_sample(&q, &q.in_order, 13);
    check_batch(&q, 5, 3, 3);
    check_batch(&q, 8, 1, 1);
    queue_sample(&q, &q.in_order, 14);
    log_queue_split(&q);
    log_queue_done(&q); /* with something set apart */
    log_pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refill),
        cmocka_unit_test(test_retire),
        cmocka_unit_test(test_samples_ahead_of_the_clock),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_split_of_the_queue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
