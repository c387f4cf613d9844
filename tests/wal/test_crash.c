/*
 * Crashes and failing disks on the simulated layer. After every crash: what was acknowledged is
 * there exactly once and bit for bit, nothing is invented (the sink checks content and order), and
 * what one life has read back, and so may have acknowledged again, the next one has too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"
#include "tests/wal/fake_owner.h"

enum { SHARDS = 3, SEQUENCE_MAX = 4096 };

/* What any life may rely on: acknowledged, or read back by a life that got going. */
struct promise {
    bool entry[SHARDS][SEQUENCE_MAX];
    uint64_t newest[SHARDS]; /* highest sequence ever queued */
};

static void promise_acknowledged(struct promise *p, const struct wal *w, uint32_t shard,
                                 uint64_t first)
{
    for (uint64_t s = first; s <= wal_durable_sequence(w, shard); s++) {
        CHECK(s < SEQUENCE_MAX);
        p->entry[shard][s] = true;
    }
}

static void promise_check(const struct promise *p, struct fake_owner *o)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        for (uint64_t s = 0; s < SEQUENCE_MAX; s++) {
            if (p->entry[shard][s])
                CHECK_MSG(fake_has(o, shard, s), "shard %u entry %lu ", shard, (unsigned long)s);
            else if (s > p->newest[shard])
                CHECK(!fake_has(o, shard, s));
        }
    }
}

static void promise_read_back(struct promise *p, struct fake_owner *o)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        for (uint64_t s = 0; s < SEQUENCE_MAX; s++)
            p->entry[shard][s] |= fake_has(o, shard, s);
    }
}

/* One life: start, check, write `writes` times, end without closing. Stops at the first failure
 * when `stop_at_error`; true if all went well. */
static bool live_with(struct fs *fs, enum wal_sync sync, struct promise *p, uint64_t writes,
                      uint64_t seed, bool stop_at_error)
{
    struct test_random r = {seed, seed};
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct errinfo ei = {0};
    bool well = true;
    struct wal *w;

    options.segment_size_bytes = 900;
    options.sync = sync;
    options.sync_interval_ms = 1;
    if (fake_start(o, &options, &w, NULL, &ei) != ERR_OK) {
        fake_free(o);
        return false;
    }
    promise_check(p, o);
    promise_read_back(p, o);
    o->entry_words = 3;
    for (uint64_t i = 0; i < writes && (well || !stop_at_error); i++) {
        uint32_t shard = (uint32_t)test_random_below(&r, SHARDS);
        uint64_t count = 1 + test_random_below(&r, 6);
        uint64_t first = o->shards[shard].queue_end;

        p->newest[shard] = first + count - 1;
        errinfo_clear(&ei);
        if (fake_write(o, w, shard, count, &ei) != ERR_OK)
            well = false;
        promise_acknowledged(p, w, shard, first);
    }
    wal_abandon(w);
    fake_free(o);
    return well;
}

static bool live(struct fs *fs, struct promise *p, uint64_t writes, uint64_t seed,
                 bool stop_at_error)
{
    return live_with(fs, WAL_SYNC_ALWAYS, p, writes, seed, stop_at_error);
}

/* The life after the crash, itself cut at every operation, then one that must succeed. */
static void recover_with_second_crash(struct fs *crashed, const struct test_crash_mode *mode,
                                      const struct promise *before, uint64_t seed)
{
    static const uint64_t steps[] = {1, 2, 3}; /* a different stride a seed: all are covered */
    uint64_t step = steps[seed % 3];

    for (uint64_t op = seed % step;; op += step) {
        struct fs *second = test_fs_after_crash(crashed, mode, seed);
        const struct test_crash_mode *again =
            &test_crash_modes[(op + seed) % TEST_CRASH_MODE_COUNT];
        struct promise *p = malloc(sizeof *p);
        struct fs *third;
        bool hit;

        CHECK(p != NULL);
        *p = *before;
        fs_sim_set_fault(second, FS_SIM_FAULT_CRASH, fs_sim_op_count(second) + op);
        (void)live(second, p, 2, seed + 100, true);
        hit = fs_sim_fault_hit(second);
        third = test_fs_after_crash(second, again, op);
        CHECK(live(third, p, 2, seed + 200, true));
        CHECK(live(third, p, 0, 0, true)); /* and the one after it sees all of that */
        fs_free(third);
        fs_free(second);
        free(p);
        if (!hit)
            return;
    }
}

/* Power loss at every operation of a life, in every mode, then a second one in the recovery. */
static void test_power_loss_at_every_operation(void **state)
{
    (void)state;
    for (uint64_t op = 0;; op++) {
        struct fs *fs = test_fs_new(op + 1);
        struct promise *p = calloc(1, sizeof *p);
        bool hit;

        CHECK(p != NULL);
        fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, op);
        (void)live(fs, p, 14, 7, true);
        hit = fs_sim_fault_hit(fs);
        for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++)
            recover_with_second_crash(fs, &test_crash_modes[m], p, op);
        fs_free(fs);
        free(p);
        if (!hit)
            break;
    }
}

/* Every operation fails once; the log goes on by itself, and then the power goes. */
static void test_error_at_every_operation(void **state)
{
    (void)state;
    for (uint64_t op = 0;; op++) {
        struct fs *fs = test_fs_new(op + 1);
        struct promise *p = calloc(1, sizeof *p);
        bool hit;

        CHECK(p != NULL);
        fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, op);
        (void)live(fs, p, 14, 7, false);
        hit = fs_sim_fault_hit(fs);
        for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++) {
            struct promise *q = malloc(sizeof *q);
            struct fs *after = test_fs_after_crash(fs, &test_crash_modes[m], op);

            CHECK(q != NULL);
            *q = *p;
            CHECK(live(after, q, 3, 8, true));
            CHECK(live(after, q, 0, 8, true));
            fs_free(after);
            free(q);
        }
        fs_free(fs);
        free(p);
        if (!hit)
            break;
    }
}

/* With sync=interval and never an answer means "written": a kill loses nothing of that, also when
 * operations failed before. A power loss may lose it, but must not invent anything or stop a start.
 */
static void test_other_sync_modes_survive_a_kill(void **state)
{
    static const enum wal_sync modes[] = {WAL_SYNC_INTERVAL, WAL_SYNC_NEVER};
    static const enum fs_sim_fault faults[] = {FS_SIM_FAULT_CRASH, FS_SIM_FAULT_EIO};

    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        bool hit = true;

        for (uint64_t op = 0; hit; op++) {
            struct fs *fs = test_fs_new(op + 1);
            struct promise *p = calloc(1, sizeof *p);

            CHECK(p != NULL);
            fs_sim_set_fault(fs, faults[i % 2], op);
            (void)live_with(fs, modes[i / 2], p, 14, 7, faults[i % 2] == FS_SIM_FAULT_CRASH);
            hit = fs_sim_fault_hit(fs);
            for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++) {
                struct fs *after = test_fs_after_crash(fs, &test_crash_modes[m], op);
                struct promise *q = malloc(sizeof *q);

                CHECK(q != NULL);
                *q = *p;
                if (test_crash_modes[m].loss != FS_SIM_KEEP_ALL)
                    memset(q->entry, 0, sizeof q->entry);
                CHECK(live(after, q, 3, 8, true));
                CHECK(live(after, q, 0, 8, true));
                fs_free(after);
                free(q);
            }
            fs_free(fs);
            free(p);
        }
    }
}

/* A sync fails, the rewrite is cut off by power loss at every operation behind it. */
static void test_failed_sync_then_power_loss(void **state)
{
    (void)state;
    for (uint64_t fail_op = 6; fail_op < 12; fail_op++) {
        for (uint64_t more = 1; more < 8; more++) {
            struct fs *fs = test_fs_new(fail_op * 100 + more);
            struct fake_owner *o = fake_new(SHARDS);
            struct wal_options options = fake_options(o, fs);
            struct promise *p = calloc(1, sizeof *p);
            struct errinfo ei = {0};
            struct wal *w;

            CHECK(p != NULL);
            CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
            fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fail_op);
            for (int i = 0; i < 10; i++) {
                uint32_t shard = (uint32_t)i % SHARDS;
                uint64_t first = o->shards[shard].queue_end;
                bool armed = fs_sim_fault_hit(fs);

                p->newest[shard] = first + 3;
                errinfo_clear(&ei);
                if (fake_write(o, w, shard, 4, &ei) != ERR_OK && !armed)
                    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, fs_sim_op_count(fs) + more - 1);
                promise_acknowledged(p, w, shard, first);
            }
            wal_abandon(w);
            fake_free(o);
            for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++)
                recover_with_second_crash(fs, &test_crash_modes[m], p, fail_op + more);
            fs_free(fs);
            free(p);
        }
    }
}

struct seen_waiter {
    struct wal_waiter waiter;
    _Atomic int calls;
    _Atomic uint32_t code;
};

static void seen_done(struct wal_waiter *waiter, enum err code)
{
    struct seen_waiter *s = (struct seen_waiter *)waiter;

    s->code = code;
    s->calls++;
}

static void wait_for_fault(struct fs *fs)
{
    uint64_t deadline = clock_mono_ns() + UINT64_C(60000000000);

    while (!fs_sim_fault_hit(fs))
        CHECK(clock_mono_ns() < deadline);
}

/* While a sync hangs, a retried request waits with the first one; neither is answered before it
 * ends, and power loss in between owes nobody anything. */
static void test_retry_during_slow_sync(void **state)
{
    struct fs *fs = test_fs_new(1), *after;
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct promise *p = calloc(1, sizeof *p);
    struct errinfo ei = {0};
    uint64_t sequences[SHARDS] = {0};
    struct seen_waiter first = {.waiter = {.sequences = sequences, .done = seen_done}};
    struct seen_waiter retry = {.waiter = {.sequences = sequences, .done = seen_done}};
    struct wal *w;

    (void)state;
    CHECK(p != NULL);
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    CHECK_OK(fake_write(o, w, 0, 3, &ei), &ei);
    promise_acknowledged(p, w, 0, 1);
    fs_sim_set_fault(fs, FS_SIM_FAULT_SLOW, fs_sim_op_count(fs));
    sequences[0] = fake_queue(o, 0, 5);
    p->newest[0] = sequences[0];
    wal_notify(w, 5, 5);
    wal_wait(w, &first.waiter);
    wait_for_fault(fs);
    wal_wait(w, &retry.waiter);
    CHECK(first.calls == 0 && retry.calls == 0);
    CHECK(wal_durable_sequence(w, 0) == 3);
    for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++) {
        struct promise *q = malloc(sizeof *q);

        CHECK(q != NULL);
        *q = *p;
        after = test_fs_after_crash(fs, &test_crash_modes[m], m);
        CHECK(live(after, q, 3, 9, true));
        CHECK(live(after, q, 0, 9, true));
        fs_free(after);
        free(q);
    }
    CHECK(first.calls == 0 && retry.calls == 0);
    fs_sim_clear_fault(fs);
    CHECK_OK(wal_wait_blocking(w, sequences, &ei), &ei);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    CHECK(first.calls == 1 && first.code == ERR_OK);
    CHECK(retry.calls == 1 && retry.code == ERR_OK);
    fake_free(o);
    free(p);
    fs_free(fs);
}

/* The backlog is known, and new requests are refused, while a sync hangs and nothing is taken. */
static void test_backlog_during_slow_sync(void **state)
{
    enum { WORDS = 1 << 14, ENTRY_BYTES = WORDS * 8 };
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct errinfo ei = {0};
    uint64_t sequences[SHARDS] = {0}, count = 0;
    struct wal_stats stats;
    struct wal *w;

    (void)state;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    o->entry_words = WORDS;
    o->compressible = true;
    fs_sim_set_fault(fs, FS_SIM_FAULT_SLOW, fs_sim_op_count(fs));
    (void)fake_queue(o, 1, 1);
    wal_notify_bytes(w, 1, 1, ENTRY_BYTES);
    wait_for_fault(fs);
    while (wal_admit(w) == ERR_OK) {
        sequences[0] = fake_queue(o, 0, 1);
        wal_notify_bytes(w, 1, 1, ENTRY_BYTES);
        count++;
        CHECK(count * ENTRY_BYTES <= WAL_BACKLOG_LIMIT_BYTES + ENTRY_BYTES);
    }
    CHECK(wal_admit(w) == ERR_UNAVAILABLE);
    CHECK(count * ENTRY_BYTES >= WAL_BACKLOG_LIMIT_BYTES - ENTRY_BYTES);
    fs_sim_clear_fault(fs);
    CHECK_OK(wal_wait_blocking(w, sequences, &ei), &ei);
    CHECK(wal_admit(w) == ERR_OK);
    wal_stats_get(w, &stats);
    CHECK(stats.backlog_bytes == 0);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    fs_free(fs);
}

/* How many segment files there are: retries on a full disk must not leave a trail of them. */
static enum err count_visit(void *ctx, const char *name, struct errinfo *ei)
{
    size_t *count = ctx;

    (void)name;
    (void)ei;
    (*count)++;
    return ERR_OK;
}

static size_t file_count(struct fs *fs)
{
    struct errinfo ei = {0};
    size_t count = 0;

    CHECK_OK(fs_list(fs, "wal", count_visit, &count, &ei), &ei);
    return count;
}

/* Space runs out at any moment of a life: writes are refused, nothing acknowledged is lost, and
 * when there is room again the log resumes by itself. */
static void test_full_disk_at_every_operation(void **state)
{
    (void)state;
    for (uint64_t op = 5; op < 24; op++) {
        struct fs *fs = test_fs_new(op);
        struct fake_owner *o = fake_new(SHARDS);
        struct wal_options options = fake_options(o, fs);
        struct promise *p = calloc(1, sizeof *p);
        struct errinfo ei = {0};
        uint64_t sequences[SHARDS] = {0};
        enum err e;
        struct wal *w;

        CHECK(p != NULL);
        options.segment_size_bytes = 900;
        CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
        o->entry_words = 3;
        fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, op);
        for (uint32_t i = 0; !fs_sim_fault_hit(fs); i++) {
            uint32_t shard = i % SHARDS;
            uint64_t first = o->shards[shard].queue_end;

            sequences[shard] = p->newest[shard] = first + 3;
            e = fake_write(o, w, shard, 4, &ei);
            CHECK(e == (fs_sim_fault_hit(fs) ? ERR_NO_SPACE : ERR_OK));
            promise_acknowledged(p, w, shard, first);
        }
        CHECK(wal_admit(w) == ERR_NO_SPACE);
        for (int i = 0; i < 2; i++) { /* still full: every later waiter is told as well */
            errinfo_clear(&ei);
            CHECK(wal_wait_blocking(w, sequences, &ei) == ERR_NO_SPACE);
        }
        CHECK(file_count(fs) <= 4);
        for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++) { /* power loss while it is full */
            struct fs *after = test_fs_after_crash(fs, &test_crash_modes[m], op);
            struct promise *q = malloc(sizeof *q);

            CHECK(q != NULL);
            *q = *p;
            CHECK(live(after, q, 3, 10, true));
            CHECK(live(after, q, 0, 10, true));
            fs_free(after);
            free(q);
        }
        fs_sim_clear_fault(fs);
        do {
            errinfo_clear(&ei);
            e = wal_wait_blocking(w, sequences, &ei);
            CHECK(e == ERR_OK || e == ERR_NO_SPACE);
        } while (e != ERR_OK);
        for (uint32_t shard = 0; shard < SHARDS; shard++)
            promise_acknowledged(p, w, shard, 1);
        CHECK(wal_admit(w) == ERR_OK);
        CHECK_OK(fake_write(o, w, 0, 2, &ei), &ei);
        p->newest[0] += 2;
        promise_acknowledged(p, w, 0, 1);
        wal_abandon(w);
        fake_free(o);
        for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++)
            recover_with_second_crash(fs, &test_crash_modes[m], p, op);
        fs_free(fs);
        free(p);
    }
}

/* A full disk at start: the log starts, refuses, and opens its segment when there is room. */
static void test_start_on_a_full_disk(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct promise *p = calloc(1, sizeof *p);
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct errinfo ei = {0};
    uint64_t deadline = clock_mono_ns() + UINT64_C(60000000000);
    struct wal *w;

    (void)state;
    CHECK(p != NULL);
    CHECK(live(fs, p, 5, 1, true));
    fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, fs_sim_op_count(fs));
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    promise_check(p, o);
    CHECK(wal_admit(w) == ERR_NO_SPACE);
    fs_sim_clear_fault(fs);
    while (wal_admit(w) != ERR_OK)
        CHECK(clock_mono_ns() < deadline);
    CHECK_OK(fake_write(o, w, 0, 2, &ei), &ei);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    fs_free(fs);
    free(p);
}

static void test_close_on_a_dead_disk(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct errinfo ei = {0};
    uint64_t sequences[SHARDS] = {0}, begin;
    struct seen_waiter waiter = {.waiter = {.sequences = sequences, .done = seen_done}};
    struct wal *w;

    (void)state;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, fs_sim_op_count(fs));
    sequences[0] = fake_queue(o, 0, 5);
    wal_notify(w, 5, 5);
    wal_wait(w, &waiter.waiter);
    begin = clock_mono_ns();
    CHECK(wal_close(w, 50, &ei) == ERR_NO_SPACE);
    CHECK(clock_mono_ns() - begin < UINT64_C(20000000000));
    CHECK(waiter.calls == 1 && waiter.code == ERR_NO_SPACE);
    fake_free(o);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_loss_at_every_operation),
        cmocka_unit_test(test_error_at_every_operation),
        cmocka_unit_test(test_other_sync_modes_survive_a_kill),
        cmocka_unit_test(test_failed_sync_then_power_loss),
        cmocka_unit_test(test_retry_during_slow_sync),
        cmocka_unit_test(test_backlog_during_slow_sync),
        cmocka_unit_test(test_full_disk_at_every_operation),
        cmocka_unit_test(test_start_on_a_full_disk),
        cmocka_unit_test(test_close_on_a_dead_disk),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
