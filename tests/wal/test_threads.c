/*
 * Many threads on one log: writers that wait blocking and by callback, file calls that fail now and
 * then, stats and admission read all the while. For TSan as much as for the checks.
 */
#include <sched.h>
#include <stdlib.h>

#include "base/file_sim.h"
#include "base/log.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/wal/fake_owner.h"

enum { SHARDS = 6, WRITERS = 4, ROUNDS = 150 };

struct crowd {
    struct fake_owner *o;
    struct wal *w;
    struct fs *fs;
    _Atomic bool stop;
    _Atomic uint64_t acknowledged[SHARDS]; /* highest */
    _Atomic uint64_t open_waiters, failed;
    bool may_fail;
};

struct crowd_waiter {
    struct wal_waiter waiter;
    struct crowd *crowd;
    _Atomic int calls;
    uint64_t sequences[SHARDS];
};

static void acknowledge(struct crowd *c, const uint64_t *sequences)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        uint64_t old = c->acknowledged[s];

        CHECK(wal_durable_sequence(c->w, s) >= sequences[s]);
        while (old < sequences[s] &&
               !atomic_compare_exchange_weak(&c->acknowledged[s], &old, sequences[s]))
            ;
    }
}

static void crowd_done(struct wal_waiter *waiter, enum err code)
{
    struct crowd_waiter *cw = (struct crowd_waiter *)waiter;
    struct crowd *c = cw->crowd;

    CHECK(cw->calls++ == 0);
    if (code == ERR_OK) {
        acknowledge(c, cw->sequences);
    } else {
        CHECK(c->may_fail);
        c->failed++;
    }
    free(cw); /* the memory is the owner's again */
    c->open_waiters--;
}

struct writer {
    struct crowd *crowd;
    struct thread thread;
    uint64_t seed;
};

static void *writer_run(void *arg)
{
    struct writer *writer = arg;
    struct crowd *c = writer->crowd;
    struct test_random r = {writer->seed, writer->seed};

    for (int i = 0; i < ROUNDS; i++) {
        struct crowd_waiter *cw = calloc(1, sizeof *cw);
        uint64_t touched = 1 + test_random_below(&r, 3), count = 0;

        CHECK(cw != NULL);
        cw->crowd = c;
        cw->waiter.sequences = cw->sequences;
        cw->waiter.done = crowd_done;
        while (touched-- > 0) {
            uint32_t shard = (uint32_t)test_random_below(&r, SHARDS);
            uint64_t n = 1 + test_random_below(&r, 20);

            cw->sequences[shard] = fake_queue(c->o, shard, n);
            count += n;
        }
        wal_notify(c->w, count, count);
        if (test_random_below(&r, 2) == 0) {
            c->open_waiters++;
            wal_wait(c->w, &cw->waiter);
        } else {
            struct errinfo ei = {0};
            enum err e = wal_wait_blocking(c->w, cw->sequences, &ei);

            CHECK(e == ERR_OK || c->may_fail);
            if (e == ERR_OK)
                acknowledge(c, cw->sequences);
            free(cw);
        }
    }
    return NULL;
}

static void *onlooker_run(void *arg)
{
    struct crowd *c = arg;
    struct test_random r = {99, 99};

    while (!c->stop) {
        struct wal_stats stats;

        wal_stats_get(c->w, &stats);
        (void)wal_admit(c->w);
        if (c->may_fail)
            fs_sim_set_fault(c->fs, FS_SIM_FAULT_EIO,
                             fs_sim_op_count(c->fs) + test_random_below(&r, 40));
        (void)sched_yield();
    }
    if (c->may_fail)
        fs_sim_clear_fault(c->fs);
    return NULL;
}

static void run_crowd(bool may_fail, enum wal_sync sync)
{
    struct writer writers[WRITERS];
    struct crowd c = {.o = fake_new(SHARDS), .may_fail = may_fail};
    struct wal_replay_result result;
    struct wal_options options;
    struct errinfo ei = {0};
    struct fake_owner *o;
    struct thread onlooker;
    struct fs *after;

    CHECK_OK(fs_sim_new(5, &c.fs, &ei), &ei);
    options = fake_options(c.o, c.fs);
    options.sync = sync;
    options.sync_interval_ms = 1;
    options.segment_size_bytes = 20000;
    options.encode_threads = 2;
    options.commit_sample_target = 8;
    CHECK_OK(fake_start(c.o, &options, &c.w, NULL, &ei), &ei);
    c.o->entry_words = 60;
    c.o->batch_limit = 50;
    CHECK_OK(thread_start(&onlooker, "onlooker", onlooker_run, &c, &ei), &ei);
    for (uint64_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.crowd = &c, .seed = i + 1};
        CHECK_OK(thread_start(&writers[i].thread, "writer", writer_run, &writers[i], &ei), &ei);
    }
    for (uint64_t i = 0; i < WRITERS; i++)
        thread_join(&writers[i].thread);
    c.stop = true;
    thread_join(&onlooker);
    CHECK_OK(wal_close(c.w, 60000, &ei), &ei);
    CHECK(c.open_waiters == 0);
    CHECK_OK(fs_sim_after_crash(c.fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
    o = fake_replay(after, SHARDS, 3, &result);
    for (uint32_t s = 0; s < SHARDS; s++) {
        /* Closed in peace: all that was ever queued is there, acknowledged or not. */
        CHECK(c.acknowledged[s] < c.o->shards[s].queue_end);
        CHECK(o->shards[s].applied_count == c.o->shards[s].queue_end - 1);
    }
    CHECK(result.lost_entry_count == 0);
    fake_free(o);
    fake_free(c.o);
    fs_free(after);
    fs_free(c.fs);
}

static void test_crowd(void **state)
{
    (void)state;
    run_crowd(false, WAL_SYNC_ALWAYS);
}

static void test_crowd_with_interval_syncs(void **state)
{
    (void)state;
    run_crowd(false, WAL_SYNC_INTERVAL);
}

static void test_crowd_on_a_failing_disk(void **state)
{
    (void)state;
    run_crowd(true, WAL_SYNC_ALWAYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crowd_with_interval_syncs),
        cmocka_unit_test(test_crowd_on_a_failing_disk),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
