/*
 * Seals against a model: the same samples before and after, in memory, in files and in both; window
 * borders; failing writes and syncs; restarts.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/seal/seal_internal.h"
#include "tests/engine/seal_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

/* What is in memory of all shards. */
static uint64_t memory_samples(struct kit *k)
{
    struct engine_stats stats;

    engine_stats_get(k->engine, &stats);
    return stats.sample_count;
}

/* What a sealer keeps between two seals is charged, and given back. */
static void test_sealer_is_charged(void **state)
{
    struct engine_options options = {.shard_count = 1};
    struct fs *fs = test_fs_new(1);
    const struct seal_series *n;
    struct budget memory;
    struct kit k;

    (void)state;
    budget_init(&memory, "test", UINT64_MAX, NULL);
    options.memory = &memory;
    kit_open(&k, fs, &options);
    for (int i = 0; i < 300; i++) {
        char labels[32];

        (void)snprintf(labels, sizeof labels, "__name__=m,a=%d", i);
        kit_put(&k, labels, KIT_NOW_MS, i);
        if (i % 100 == 99)
            CHECK_OK(seal_all(&k, NULL), &k.ei);
    }
    n = &k.engine->shards[0].sealer->series;
    CHECK(n->known_capacity >= 300 && n->values_capacity == 2);
    CHECK(n->charged_bytes == sizeof(uint32_t) * ((size_t)n->known_capacity + n->values_capacity));
    kit_close(&k);
    CHECK(budget_used(&memory) == 0);
    fs_free(fs);
}

static void test_contents_stay(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct seal_result total = {0};
    struct seal_model *m = malloc(sizeof *m);
    struct kit k;

    (void)state;
    seal_model_init(m, 300, 1);
    seal_open(&k, fs, m);
    for (int round = 0; round < 40; round++) {
        CHECK(seal_send(&k, m, 80));
        seal_advance(&k, m, 15000);
        if (round % 10 == 9) {
            CHECK_OK(seal_all(&k, &total), &k.ei);
            CHECK(memory_samples(&k) == 0);
            seal_check(&k, m);
        }
    }
    uint64_t sent = 0;
    for (size_t i = 0; i < m->series_count; i++)
        sent += m->series[i].count;
    CHECK(total.sample_count == sent && total.late_sample_count == 0);
    CHECK(total.hold_samples_max > 0 && total.byte_count > 0);
    CHECK(seal_send(&k, m, 50)); /* in memory and in files */
    seal_check(&k, m);
    kit_close(&k);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* ---- where samples go ---- */

/* Checks the files of a shard; counts them. */
static void check_files(struct shard *s, int64_t now_ms, size_t *recent, size_t *late)
{
    struct file_set *set;

    mutex_lock(&s->lock);
    set = file_set_ref(s->files);
    mutex_unlock(&s->lock);
    *recent = *late = 0;
    for (size_t i = 0; set != NULL && i < set->sealed_count; i++) {
        const struct sealed_view *v = &set->sealed[i];

        CHECK(i == 0 || set->sealed[i - 1].source->generation < v->source->generation);
        if (v->source->kind == SEALED_LATE) {
            ++*late;
            continue;
        }
        ++*recent;
        for (size_t k = 0; k < v->slice_count; k++) {
            CHECK(chunk_window(v->slices[k]->min_time_ms) == v->source->window);
            CHECK(chunk_window(v->slices[k]->max_time_ms) == v->source->window);
            CHECK(v->slices[k]->max_time_ms <= now_ms);
        }
    }
    file_set_unref(set);
}

/* A window has a sealed file of its own until two hours and ten minutes after its end; a fleet that
 * catches up, and late samples, go to late files, which belong to one seal each. */
static void test_windows(void **state)
{
    enum { WINDOW = CHUNK_WINDOW_MS };
    struct fs *fs = test_fs_new(3);
    struct seal_model *m = malloc(sizeof *m);
    struct seal_result total = {0};
    size_t recent, late;
    struct kit k;

    (void)state;
    seal_model_init(m, 40, 3);
    seal_open(&k, fs, m);
    CHECK(seal_send(&k, m, 100)); /* an hour into the window */
    seal_advance(&k, m, WINDOW / 2 + 9 * 60 * 1000);
    CHECK(seal_send(&k, m, 100)); /* the next one; the first is still open */
    CHECK_OK(seal_all(&k, &total), &k.ei);
    CHECK(total.sample_count == 80 && total.late_sample_count == 0);
    for (uint32_t i = 0; i < SEAL_SHARDS; i++) {
        check_files(&k.engine->shards[i], m->now_ms, &recent, &late);
        CHECK(recent == 2 && late == 0);
    }
    /* In order, but of a window that is closed when they are sealed. */
    seal_advance(&k, m, INT64_C(60) * 1000);
    CHECK(seal_send(&k, m, 100));
    seal_advance(&k, m, 2 * WINDOW + WINDOW / 2);
    CHECK(seal_send_late(&k, m, WINDOW));
    CHECK_OK(seal_all(&k, &total), &k.ei);
    for (uint32_t i = 0; i < SEAL_SHARDS; i++) {
        check_files(&k.engine->shards[i], m->now_ms, &recent, &late);
        CHECK(recent == 2 && late == 1);
    }
    CHECK(seal_send(&k, m, 100));
    CHECK(seal_send_late(&k, m, INT64_C(2) * WINDOW));
    CHECK_OK(seal_all(&k, &total), &k.ei);
    CHECK(total.late_sample_count > 0);
    for (uint32_t i = 0; i < SEAL_SHARDS; i++) {
        check_files(&k.engine->shards[i], m->now_ms, &recent, &late);
        CHECK(recent == 3 && late == 2);
    }
    seal_check(&k, m);
    kit_abandon(&k);
    seal_open(&k, fs, m);
    seal_check(&k, m);
    kit_close(&k);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* ---- flushes ---- */

static uint64_t samples_in_memory(struct kit *k)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < SEAL_SHARDS; i++)
        count += atomic_load(&k->engine->shards[i].sample_count) +
                 atomic_load(&k->engine->shards[i].histogram_count);
    return count;
}

static uint64_t flush_all(struct kit *k, int64_t until_ms)
{
    struct flush_result r;
    uint64_t count = 0;

    for (uint32_t i = 0; i < SEAL_SHARDS; i++) {
        CHECK_OK(engine_flush(k->engine, i, until_ms, NULL, &r, &k->ei), &k->ei);
        count += r.sample_count;
    }
    return count;
}

/* A flush seals a shard only if memory holds samples of what it flushes: neither those in files nor
 * those of open windows count, before and after a restart. */
static void test_flush_seals_if_needed(void **state)
{
    enum { HOUR = 3600 * 1000, WINDOW = CHUNK_WINDOW_MS };
    struct fs *fs = test_fs_new(8);
    struct seal_model *m = malloc(sizeof *m);
    int64_t border_ms = chunk_window_start_ms(chunk_window(KIT_NOW_MS) + 1);
    struct kit k;

    (void)state;
    seal_model_init(m, 40, 8);
    seal_open(&k, fs, m);
    CHECK(seal_send(&k, m, 100));
    CHECK(flush_all(&k, border_ms - 1) == 0 && samples_in_memory(&k) == 40); /* still open */
    CHECK_OK(seal_all(&k, NULL), &k.ei);
    CHECK(samples_in_memory(&k) == 0);
    seal_advance(&k, m, WINDOW + HOUR / 2);
    CHECK(seal_send(&k, m, 100)); /* of the next window */
    CHECK(flush_all(&k, border_ms) == 40);
    CHECK(samples_in_memory(&k) == 40);
    kit_abandon(&k);
    seal_open(&k, fs, m);
    CHECK(flush_all(&k, border_ms + HOUR) == 0);
    CHECK(samples_in_memory(&k) == 40);
    seal_advance(&k, m, WINDOW);
    CHECK(seal_send(&k, m, 100)); /* the same chunks, the window behind */
    CHECK(flush_all(&k, border_ms + WINDOW) == 40);
    CHECK(samples_in_memory(&k) == 0);
    seal_check(&k, m);
    kit_close(&k);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* What a seal that failed has left in memory still counts. */
static void test_flush_after_failed_seal(void **state)
{
    const _Atomic bool stop = true;
    const struct maintain_control stopped = {.stop = &stop};
    struct fs *fs = test_fs_new(9);
    struct seal_model *m = malloc(sizeof *m);
    struct seal_result ignored;
    uint64_t sent;
    struct kit k;

    (void)state;
    seal_model_init(m, SEAL_SERIES_MAX, 9);
    seal_open(&k, fs, m);
    CHECK(seal_send(&k, m, 100));
    sent = samples_in_memory(&k);
    for (uint32_t i = 0; i < SEAL_SHARDS; i++)
        CHECK(engine_seal(k.engine, i, SEAL_INTERVAL, &stopped, &ignored, NULL) == ERR_CANCELED);
    CHECK(samples_in_memory(&k) > 0 && samples_in_memory(&k) < sent);
    seal_advance(&k, m, CHUNK_WINDOW_MS);
    CHECK(seal_send(&k, m, 100));
    CHECK(flush_all(&k, m->now_ms) == sent);
    CHECK(samples_in_memory(&k) == 0);
    seal_check(&k, m);
    kit_close(&k);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* ---- restarts ---- */

static void test_restart(void **state)
{
    struct fs *fs = test_fs_new(2);
    struct seal_model *m = malloc(sizeof *m);
    struct kit k;

    (void)state;
    seal_model_init(m, 200, 2);
    seal_open(&k, fs, m);
    for (int life = 0; life < 8; life++) {
        for (int round = 0; round < 10; round++) {
            CHECK(seal_send(&k, m, 60));
            CHECK(seal_send_late(&k, m, INT64_C(5) * 3600 * 1000));
            seal_advance(&k, m, INT64_C(7) * 60 * 1000);
            if (test_random_below(&m->random, 4) == 0)
                CHECK_OK(seal_all(&k, NULL), &k.ei);
        }
        if (life % 2 == 0)
            kit_close(&k);
        else
            kit_abandon(&k);
        seal_open(&k, fs, m);
        CHECK(k.replay.unknown_ref_samples == 0 && k.replay.wal.lost_entry_count == 0);
        seal_check(&k, m);
    }
    kit_close(&k);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* After a seal the log is not needed for what it covers, and the newest samples are known. */
static void test_newest_after_restart(void **state)
{
    struct fs *fs = test_fs_new(5);
    struct seal_model *m = malloc(sizeof *m);
    char name[64];
    struct kit k;

    (void)state;
    seal_model_init(m, 30, 5);
    seal_open(&k, fs, m);
    CHECK(seal_send(&k, m, 100));
    CHECK_OK(seal_all(&k, NULL), &k.ei);
    kit_abandon(&k);
    seal_open(&k, fs, m);
    CHECK(k.replay.sample_count == 0 && k.replay.series_count == 30);
    for (size_t s = 0; s < m->series_count; s++) {
        kit_series(&k, seal_series_name(s, name));
        kit_sample_of(&k, s, m->series[s].t_ms[0], m->series[s].value[0]);
    }
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.repeat_count == 30 && k.result.stored_count == 0);
    kit_series(&k, seal_series_name(0, name));
    kit_sample_of(&k, 0, m->series[0].t_ms[0], m->series[0].value[0] + 1);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.refused_count == 1);
    kit_close(&k);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* ---- failures ---- */

/* Samples in memory, in files, and late. */
static void fill(struct kit *k, struct seal_model *m)
{
    for (int round = 0; round < 4; round++) {
        CHECK(seal_send(k, m, 80));
        seal_advance(k, m, INT64_C(50) * 60 * 1000);
    }
    CHECK_OK(seal_all(k, NULL), &k->ei);
    for (int round = 0; round < 2; round++) {
        CHECK(seal_send(k, m, 80));
        seal_advance(k, m, INT64_C(5) * 60 * 1000);
    }
    CHECK(seal_send_late(k, m, INT64_C(3) * 3600 * 1000));
}

/* The power fails after everything was sealed: what is synced is enough. */
static void check_after_loss(struct fs *fs, const struct seal_model *m, uint64_t seed)
{
    struct fs *after = test_fs_after(fs, FS_SIM_DROP_ALL, seed);
    struct kit k;

    seal_open(&k, after, m);
    seal_check(&k, m);
    CHECK(k.replay.wal.lost_entry_count == 0);
    kit_close(&k);
    fs_free(after);
}

/* A commit that met the full disk is tried again in a while; until then writes are refused. */
static void wait_admitted(const struct kit *k)
{
    while (wal_admit(k->engine->wal) != ERR_OK)
        (void)sched_yield();
}

/* One operation of the seal fails, a sync perhaps: nothing is lost, and sealing again works. */
static bool fail_at(uint64_t op, enum fs_sim_fault fault, bool *failed)
{
    struct fs *fs = test_fs_new(op + 1);
    struct seal_model *m = malloc(sizeof *m);
    struct kit k;
    bool hit;

    seal_model_init(m, 24, op);
    seal_open(&k, fs, m);
    fill(&k, m);
    fs_sim_set_fault(fs, fault, fs_sim_op_count(fs) + op);
    *failed |= seal_all(&k, NULL) != ERR_OK;
    seal_check(&k, m);
    hit = fs_sim_fault_hit(fs);
    fs_sim_clear_fault(fs);
    wait_admitted(&k);
    CHECK(seal_send(&k, m, 50));
    if (op % 2 == 0) /* from files or from the log: */
        CHECK_OK(seal_all(&k, NULL), &k.ei);
    seal_check(&k, m);
    check_after_loss(fs, m, op);
    CHECK_OK(seal_all(&k, NULL), &k.ei);
    CHECK(memory_samples(&k) == 0);
    seal_check(&k, m);
    kit_abandon(&k);
    check_after_loss(fs, m, op + 1);
    seal_model_done(m);
    free(m);
    fs_free(fs);
    return hit;
}

static void test_io_errors(void **state)
{
    bool failed = false;
    uint64_t op = 0;

    (void)state;
    while (fail_at(op, FS_SIM_FAULT_EIO, &failed))
        op++;
    CHECK(failed && op > 40);
}

static void test_no_space(void **state)
{
    bool failed = false;
    uint64_t op = 0;

    (void)state;
    while (fail_at(op, FS_SIM_FAULT_NO_SPACE, &failed))
        op += 3;
    CHECK(failed && op > 40);
}

/* A seal that is stopped midway, and one after it. */
static void test_stop(void **state)
{
    const _Atomic bool stop = true;
    const struct maintain_control control = {.stop = &stop};
    struct fs *fs = test_fs_new(8);
    struct seal_model *m = malloc(sizeof *m);
    struct seal_result got;
    struct kit k;

    (void)state;
    seal_model_init(m, 1000, 8);
    seal_open(&k, fs, m);
    CHECK(seal_send(&k, m, 100));
    CHECK(engine_seal(k.engine, 0, SEAL_MEMORY, &control, &got, &k.ei) == ERR_CANCELED);
    errinfo_clear(&k.ei);
    seal_check(&k, m);
    CHECK_OK(seal_all(&k, NULL), &k.ei);
    kit_abandon(&k);
    check_after_loss(fs, m, 8);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* ---- writes between the slices of a seal ---- */

struct between {
    struct kit *k;
    struct seal_model *m;
    size_t calls;
    int left; /* of this seal: a look at everything takes long, and there are many pauses */
};

/* What was written since the cut of the first slice stands in one frame of the log with what was
 * written before it, as a rule: nothing waits for the log here. */
static void write_between(void *ctx)
{
    struct between *b = ctx;

    if (b->left-- <= 0)
        return;
    b->calls++;
    seal_advance(b->k, b->m, 1000);
    if (b->m->series_count < SEAL_SERIES_MAX)
        b->m->series_count += 8; /* new series too */
    seal_send_ahead(b->k, b->m, 30);
    seal_check(b->k, b->m);
}

static void test_writes_between_slices(void **state)
{
    struct fs *fs = test_fs_new(9);
    struct seal_model *m = malloc(sizeof *m);
    struct between b = {.m = m};
    const struct maintain_control control = {.yield = write_between, .yield_ctx = &b};
    struct kit k;

    (void)state;
    seal_model_init(m, SEAL_SERIES_MAX, 9);
    m->series_count = 1200;
    for (int life = 0; life < 4; life++) {
        struct seal_result got;
        struct fs *after;

        CHECK_OK(seal_try_open_with(&k, fs, m, 1), &k.ei);
        CHECK(k.replay.wal.lost_entry_count == 0 && k.replay.unknown_ref_samples == 0);
        seal_check(&k, m);
        b.k = &k;
        for (int round = 0; round < 3; round++) {
            seal_advance(&k, m, INT64_C(20) * 60 * 1000);
            seal_send_ahead(&k, m, 70);
            b.left = 5;
            CHECK_OK(engine_seal(k.engine, 0, SEAL_INTERVAL, &control, &got, &k.ei), &k.ei);
        }
        CHECK_OK(kit_wait(&k), &k.ei);
        kit_abandon(&k);
        after = test_fs_after(fs, life % 2 == 0 ? FS_SIM_DROP_ALL : FS_SIM_DROP_RANDOM, 9);
        fs_free(fs);
        fs = after;
    }
    CHECK(b.calls >= (size_t)4 * 3 * 2);
    seal_model_done(m);
    free(m);
    fs_free(fs);
}

/* ---- series that end between the slices of their seal ---- */

enum { AMID_SERIES = 3000, AMID_ENDED = 100 };

static void amid_send(struct kit *k, int first, int64_t t_ms, double value)
{
    for (int i = first; i < AMID_SERIES; i++) {
        char labels[32];

        (void)snprintf(labels, sizeof labels, "__name__=m,a=%d", i);
        kit_series(k, labels);
        kit_sample(k, t_ms, value);
    }
    CHECK_OK(kit_write(k), &k->ei);
    CHECK_OK(kit_wait(k), &k->ei); /* frames of its own in the log */
}

struct amid {
    struct kit *k;
    size_t calls;
};

static void end_amid(void *ctx)
{
    struct amid *a = ctx;

    if (a->calls++ == 0)
        amid_send(a->k, AMID_SERIES - AMID_ENDED, KIT_NOW_MS + 1000,
                  double_from_bits(STALE_NAN_BITS));
}

/* Their markers stand in the log above what the seal covers, and the series file does not have them
 * any more. That is no damage; and it is, where the log has lost something. */
static void test_series_that_end_amid_their_seal(void **state)
{
    struct engine_options options = {.shard_count = 1};
    struct fs *fs = test_fs_new(12), *after;
    struct amid a = {0};
    const struct maintain_control control = {.yield = end_amid, .yield_ctx = &a};
    struct seal_result got;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    atomic_store(&k.engine->logs.repeat_delay_ns, 0);
    a.k = &k;
    for (int round = -3; round <= 0; round++) { /* a series leaves when it was defined twice */
        amid_send(&k, 0, KIT_NOW_MS + round * 1000, 1);
        CHECK_OK(engine_seal(k.engine, 0, SEAL_ENDED, round < 0 ? NULL : &control, &got, &k.ei),
                 &k.ei);
    }
    CHECK_MSG(a.calls >= 1 && got.ended_series_count == AMID_ENDED, "%zu pauses, %u ended", a.calls,
              (unsigned)got.ended_series_count);
    kit_abandon(&k);
    after = test_fs_after(fs, FS_SIM_DROP_ALL, 12);
    fs_free(fs);
    kit_open(&k, after, &options);
    CHECK(k.replay.unknown_ref_samples == 0 && k.replay.wal.lost_entry_count == 0);
    CHECK(k.engine->shards[0].sealed_samples >= AMID_ENDED);
    CHECK(k.replay.series_count == AMID_SERIES - AMID_ENDED);
    /* Their slots can be had again. */
    CHECK(k.engine->shards[0].unknown_slot_end == 0);
    kit_check(&k, "__name__=m,a=1", 4,
              (int64_t[]){KIT_NOW_MS - 3000, KIT_NOW_MS - 2000, KIT_NOW_MS - 1000, KIT_NOW_MS},
              (double[]){1, 1, 1, 1});
    kit_close(&k);
    fs_free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sealer_is_charged),
        cmocka_unit_test(test_contents_stay),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_newest_after_restart),
        cmocka_unit_test(test_io_errors),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_writes_between_slices),
        cmocka_unit_test(test_series_that_end_amid_their_seal),
        cmocka_unit_test(test_flush_seals_if_needed),
        cmocka_unit_test(test_flush_after_failed_seal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
