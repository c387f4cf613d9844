/* An index rebuilt while new series come: it has every live series and nothing else, and what it
 * leaves behind is used again. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/thread.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/memtable/rebuild_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS

static void open_one(struct kit *k, struct fs **fs, uint32_t shard_count)
{
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_new(1, fs, &ei), &ei);
    kit_open(k, *fs, &(struct engine_options){.shard_count = shard_count});
}

static void write_series(struct kit *k, const char *kind, int first, int end)
{
    char labels[64];

    for (int i = first; i < end; i++) {
        (void)snprintf(labels, sizeof labels, "__name__=%s,i=%d,p=%d", kind, i, i / 10);
        kit_series(k, labels);
        kit_sample(k, T0 + i, (double)i);
    }
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.refused_count == 0);
}

static size_t count_in_index(struct shard *s, const char *kind)
{
    struct errinfo ei = {0};
    struct arena arena;
    struct matcher m;
    uint32_t *slots;
    size_t count;

    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, str_from(kind), &arena, &ei), &ei);
    CHECK_OK(index_select(s->index, &m, 1, NULL, &arena, &slots, &count, &ei), &ei);
    matcher_done(&m);
    arena_done(&arena);
    return count;
}

/* As if every series of `kind` had ended and its samples were in parts. */
static void kill(struct kit *k, struct shard *s, const char *kind)
{
    struct slot_batch *b = slot_batch_new(&s->slots, s->series.slot_end);
    struct arena arena;
    struct matcher m;
    uint32_t *slots;
    size_t count;

    CHECK(b != NULL);
    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, str_from(kind), &arena, &k->ei),
             &k->ei);
    CHECK_OK(index_select(s->index, &m, 1, NULL, &arena, &slots, &count, &k->ei), &k->ei);
    mutex_lock(&s->create_lock);
    mutex_lock(&s->lock);
    for (size_t i = 0; i < count; i++) {
        struct series *series = series_at(&s->series, slots[i]);

        series->open_count = 0;
        series->closed = 0;
        shard_unpublish_series(s, slots[i]);
        slot_batch_add(b, slots[i]);
    }
    mutex_unlock(&s->lock);
    slot_pool_bury(&s->slots, b);
    mutex_unlock(&s->create_lock);
    matcher_done(&m);
    arena_done(&arena);
}

static void rebuild(struct kit *k, struct shard *s)
{
    CHECK_OK(shard_index_rebuild(k->engine, s, NULL, &k->ei), &k->ei);
    shard_housekeep(k->engine, s);
}

static void dead_series_leave_the_index(void **state)
{
    struct index_stats before, after;
    struct reader reader;
    struct kit k;
    struct shard *s;
    struct fs *fs;
    uint32_t end;

    (void)state;
    open_one(&k, &fs, 1);
    s = &k.engine->shards[0];
    write_series(&k, "stays", 0, 500);
    write_series(&k, "ends", 0, 3000);
    index_stats_get(s->index, &before);
    kill(&k, s, "ends");
    CHECK(s->slots.dead_count == 3000 && count_in_index(s, "ends") == 3000);

    /* A reader of before keeps the old index, and with it the slots. */
    readers_enter(&k.engine->readers, &reader);
    rebuild(&k, s);
    index_stats_get(s->index, &after);
    CHECK(after.slot_count == 500 && after.memory_bytes < before.memory_bytes / 3);
    CHECK(count_in_index(s, "ends") == 0 && count_in_index(s, "stays") == 500);
    CHECK(s->slots.dead_count == 0 && s->slots.waiting_count == 3000 && s->slots.free_count == 0);
    CHECK(s->slots.retired_first != NULL);
    readers_leave(&k.engine->readers, &reader);
    shard_housekeep(k.engine, s);
    CHECK(s->slots.free_count == 3000 && s->slots.retired_first == NULL);

    /* New series take their slots, and the same labels are another series. */
    end = s->series.slot_end;
    write_series(&k, "ends", 2000, 5000);
    CHECK(s->series.slot_end == end && s->slots.free_count == 0);
    write_series(&k, "more", 0, 1);
    CHECK(s->series.slot_end == end + 1);
    CHECK(count_in_index(s, "ends") == 3000 && s->series.series_count == 3501);
    for (uint32_t slot = 0; slot < end; slot++)
        CHECK(series_at(&s->series, slot)->generation == (slot < 500 ? 0 : 1));
    kit_check(&k, "__name__=ends,i=2500,p=250", 1, (int64_t[]){T0 + 2500}, (double[]){2500});
    kit_check(&k, "__name__=ends,i=1500,p=150", 0, NULL, NULL);
    kit_check(&k, "__name__=stays,i=77,p=7", 1, (int64_t[]){T0 + 77}, (double[]){77});
    kit_close(&k);
    fs_free(fs);
}

/* A sender's key that led to a dead series leads to the new one. */
static void old_keys_find_new_series(void **state)
{
    struct kit k;
    struct shard *s;
    struct fs *fs;

    (void)state;
    open_one(&k, &fs, 1);
    s = &k.engine->shards[0];
    for (int round = 0; round < 5; round++) {
        write_series(&k, "comes_and_goes", 0, 200);
        write_series(&k, "comes_and_goes", 0, 200); /* repeats, by the fast path */
        CHECK(k.result.repeat_count == 200);
        CHECK(s->series.series_count == 200 && s->series.slot_end == 200);
        CHECK(series_at(&s->series, 11)->generation == round);
        CHECK(engine_alias_count(k.engine) == 0);
        kill(&k, s, "comes_and_goes");
        rebuild(&k, s);
    }
    kit_close(&k);
    fs_free(fs);
}

static void a_refused_rebuild_changes_nothing(void **state)
{
    size_t refused = 0, done = 0;
    struct kit k;
    struct shard *s;
    struct fs *fs;

    (void)state;
    open_one(&k, &fs, 1);
    s = &k.engine->shards[0];
    write_series(&k, "stays", 0, 1000);
    for (uint64_t room = 1000; done < 2; room += room / 3) {
        uint64_t used = budget_used(k.engine->memory);
        struct index *before = s->index;
        enum err e;

        k.engine->memory->limit_bytes = used + room;
        e = shard_index_rebuild(k.engine, s, NULL, &k.ei);
        k.engine->memory->limit_bytes = UINT64_MAX;
        CHECK(e == ERR_OK || e == ERR_LIMIT || e == ERR_NOMEM);
        if (e != ERR_OK)
            CHECK(s->index == before && budget_used(k.engine->memory) == used);
        shard_housekeep(k.engine, s);
        CHECK(count_in_index(s, "stays") == 1000 && s->rebuild == NULL);
        done += e == ERR_OK;
        refused += e != ERR_OK;
    }
    CHECK(refused > 5);
    kit_close(&k);
    fs_free(fs);
}

static void a_stopped_rebuild_changes_nothing(void **state)
{
    _Atomic bool stop = true;
    const struct maintain_control control = {.stop = &stop};
    struct kit k;
    struct shard *s;
    struct index *before;
    struct fs *fs;

    (void)state;
    open_one(&k, &fs, 1);
    s = &k.engine->shards[0];
    write_series(&k, "stays", 0, 10);
    before = s->index;
    CHECK(shard_index_rebuild(k.engine, s, &control, &k.ei) == ERR_CANCELED);
    CHECK(s->index == before && s->rebuild == NULL);
    kit_close(&k);
    fs_free(fs);
}

/* ---- beside writers ---- */

enum { WRITERS = 2, ROUNDS = 60, SERIES_A_ROUND = 100, SHARDS = 2 };

struct shared {
    struct kit *kit;
    _Atomic int writing;
    _Atomic int rebuilds; /* relaxed: writers go on only while there are some */
};

struct worker {
    struct shared *shared;
    int number;
    struct thread thread;
};

static void *create_series(void *arg)
{
    struct worker *w = arg;
    struct kit k;
    char kind[32];

    kit_join(&k, w->shared->kit->engine);
    (void)snprintf(kind, sizeof kind, "kind_%d", w->number);
    for (int round = 0; round < ROUNDS; round++) {
        while (atomic_load_explicit(&w->shared->rebuilds, memory_order_relaxed) < round / 10)
            sched_yield();
        write_series(&k, kind, round * SERIES_A_ROUND, (round + 1) * SERIES_A_ROUND);
    }
    kit_leave(&k);
    atomic_fetch_sub_explicit(&w->shared->writing, 1, memory_order_release);
    return NULL;
}

static void rebuilds_run_beside_writers(void **state)
{
    struct worker workers[WRITERS];
    struct errinfo ei = {0};
    struct shared shared;
    struct kit k;
    struct fs *fs;

    (void)state;
    memset(workers, 0, sizeof workers);
    open_one(&k, &fs, SHARDS);
    shared.kit = &k;
    atomic_init(&shared.writing, WRITERS);
    atomic_init(&shared.rebuilds, 0);
    for (int i = 0; i < WRITERS; i++) {
        workers[i].shared = &shared;
        workers[i].number = i;
        CHECK_OK(thread_start(&workers[i].thread, "creator", create_series, &workers[i], &ei), &ei);
    }
    while (atomic_load_explicit(&shared.writing, memory_order_acquire) > 0) {
        struct engine_stats stats;

        for (uint32_t s = 0; s < SHARDS; s++)
            rebuild(&k, &k.engine->shards[s]);
        engine_stats_get(k.engine, &stats);
        atomic_fetch_add_explicit(&shared.rebuilds, 1, memory_order_relaxed);
    }
    for (int i = 0; i < WRITERS; i++)
        thread_join(&workers[i].thread);
    for (int i = 0; i < WRITERS; i++) {
        char kind[32];
        size_t count = 0;

        (void)snprintf(kind, sizeof kind, "kind_%d", i);
        for (uint32_t s = 0; s < SHARDS; s++)
            count += count_in_index(&k.engine->shards[s], kind);
        CHECK(count == (size_t)ROUNDS * SERIES_A_ROUND);
    }
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_series_leave_the_index),
        cmocka_unit_test(old_keys_find_new_series),
        cmocka_unit_test(a_refused_rebuild_changes_nothing),
        cmocka_unit_test(a_stopped_rebuild_changes_nothing),
        cmocka_unit_test(rebuilds_run_beside_writers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
