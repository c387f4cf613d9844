/*
 * Cutting the log: which segments go, what a later replay makes of it, and crashes, errors and
 * writers at the same time. Whatever is not covered must come back exactly once; what is covered
 * is never asked for again, and its absence is no loss.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"
#include "tests/lib/test_support.h"
#include "tests/wal/fake_owner.h"

enum { SHARDS = 3, SEQUENCE_MAX = 4096 };

static struct wal_stats stats_of(const struct wal *w)
{
    struct wal_stats stats;

    wal_stats_get(w, &stats);
    return stats;
}

/* What lies in the folder, compared with what the log says of itself. */
struct folder {
    struct fs *fs;
    uint64_t count, bytes;
};

static enum err folder_visit(void *ctx, const char *name, struct errinfo *ei)
{
    struct folder *folder = ctx;
    char path[64];
    struct file *f;
    uint64_t size;

    CHECK(snprintf(path, sizeof path, "wal/%s", name) < (int)sizeof path);
    CHECK_OK(file_open(folder->fs, path, FILE_READ, &f, ei), ei);
    CHECK_OK(file_size(f, &size, ei), ei);
    file_close(f);
    folder->count++;
    folder->bytes += size;
    return ERR_OK;
}

static void check_size(struct fs *fs, const struct wal *w)
{
    uint64_t deadline = clock_mono_ns() + UINT64_C(10000000000);
    struct folder folder;
    struct errinfo ei = {0};
    struct wal_stats stats;

    do { /* a rotation that was asked for may just have made the next segment */
        folder = (struct folder){.fs = fs};
        CHECK_OK(fs_list(fs, "wal", folder_visit, &folder, &ei), &ei);
        stats = stats_of(w);
    } while ((stats.segment_count != folder.count || stats.log_bytes != folder.bytes) &&
             clock_mono_ns() < deadline);
    CHECK(stats.segment_count == folder.count);
    CHECK_MSG(stats.log_bytes == folder.bytes, "%lu instead of %lu", (unsigned long)stats.log_bytes,
              (unsigned long)folder.bytes);
}

/* Ends the segment and waits for it; gives up once a fault has been hit. */
static void rotate(struct fs *fs, struct wal *w)
{
    uint64_t before = stats_of(w).segment_current;
    uint64_t deadline = clock_mono_ns() + UINT64_C(60000000000);

    wal_rotate(w);
    while (stats_of(w).segment_current == before && !fs_sim_fault_hit(fs))
        CHECK(clock_mono_ns() < deadline);
}

static uint64_t cut(struct wal *w, const uint64_t *covered)
{
    struct errinfo ei = {0};
    uint64_t removed = 99;

    CHECK_OK(wal_cut(w, covered, &removed, &ei), &ei);
    return removed;
}

/* A log of one frame a segment: shard i % SHARDS has `count` entries in segment i + 1. */
static struct wal *log_of_segments(struct fs *fs, struct fake_owner *o, uint32_t segments,
                                   uint64_t count)
{
    struct wal_options options = fake_options(o, fs);
    struct errinfo ei = {0};
    struct wal *w;

    options.segment_size_bytes = 1;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    for (uint32_t i = 0; i < segments; i++)
        CHECK_OK(fake_write(o, w, i % SHARDS, count, &ei), &ei);
    return w;
}

static void test_oldest_covered_segments_go(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS), *back;
    struct wal *w = log_of_segments(fs, o, 9, 4);
    struct wal_replay_result result;

    (void)state;
    CHECK(stats_of(w).segment_count == 9);
    check_size(fs, w);
    CHECK(cut(w, (uint64_t[]){0, 0, 0}) == 0);
    CHECK(cut(w, (uint64_t[]){3, 12, 12}) == 0); /* the oldest holds entry 4 of shard 0 */
    CHECK(cut(w, (uint64_t[]){4, 3, 12}) == 1);  /* the next holds entry 4 of shard 1 */
    CHECK(cut(w, (uint64_t[]){8, 4, 12}) == 3);
    CHECK(stats_of(w).segment_count == 5);
    check_size(fs, w);
    wal_abandon(w);
    fake_free(o);
    /* Covered inside of a frame: 9 of [9, 12] in shard 0. */
    back = fake_replay_covered(fs, SHARDS, 2, (uint64_t[]){9, 4, 4}, &result);
    CHECK(result.lost_entry_count == 0 && result.bad_frame_count == 0);
    CHECK(back->shards[0].covered_mate_count == 1 && back->shards[0].applied_count == 3);
    CHECK(back->shards[1].applied_count == 8 && back->shards[2].applied_count == 8);
    fake_free(back);
    fs_free(fs);
}

static void test_newest_segment_stays(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS);
    struct wal *w = log_of_segments(fs, o, 3, 2);
    struct errinfo ei = {0};
    const uint64_t all[SHARDS] = {2, 2, 2};

    (void)state;
    CHECK(cut(w, all) == 2);
    CHECK(cut(w, all) == 0);
    CHECK(stats_of(w).segment_count == 1 && stats_of(w).segment_current == 3);
    rotate(fs, w); /* nothing is queued: it happens all the same */
    CHECK(stats_of(w).segment_count == 2);
    CHECK(cut(w, all) == 1);
    check_size(fs, w);
    CHECK_OK(fake_write(o, w, 1, 1, &ei), &ei);
    wal_rotate(w);
    CHECK_OK(fake_write(o, w, 1, 1, &ei), &ei);
    CHECK(stats_of(w).segment_current == 5);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    fs_free(fs);
}

/* What replay finds is known to the cut as well as what was written since. */
static void test_cut_after_restart(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS);
    const uint64_t covered[SHARDS] = {4, 4, 2};
    struct wal_options options;
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w = log_of_segments(fs, o, 6, 2);

    (void)state;
    wal_abandon(w);
    fake_free(o);
    o = fake_new(SHARDS);
    o->covered = covered;
    options = fake_options(o, fs);
    CHECK_OK(fake_start(o, &options, &w, &result, &ei), &ei);
    CHECK(result.covered_frame_count == 5 && result.frame_count == 1);
    CHECK(fake_applied(o) == 2 && result.lost_entry_count == 0);
    check_size(fs, w);
    CHECK(cut(w, covered) == 5);
    check_size(fs, w);
    CHECK(cut(w, (uint64_t[]){4, 4, 4}) == 1);
    CHECK(stats_of(w).segment_count == 1);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    fs_free(fs);
}

/* The numbers go on above what is covered even if no file tells of it. */
static void test_covered_beyond_the_log(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS), *back;
    const uint64_t covered[SHARDS] = {100, 1, 0};
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w;

    (void)state;
    o->covered = covered;
    CHECK_OK(fake_start(o, &options, &w, &result, &ei), &ei);
    for (uint32_t i = 0; i < SHARDS; i++) {
        CHECK(wal_next_sequence(w, i) == covered[i] + 1);
        CHECK(wal_durable_sequence(w, i) == covered[i]);
        CHECK_OK(fake_write(o, w, i, 5, &ei), &ei);
    }
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    back = fake_replay_covered(fs, SHARDS, 1, covered, &result);
    CHECK(fake_applied(back) == 15 && result.lost_entry_count == 0);
    fake_free(back);
    fs_free(fs);
}

/* Loss is counted from the first entry that is not covered. */
static void test_gaps_count_above_covered(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS), *back;
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w = log_of_segments(fs, o, 9, 4);

    (void)state;
    wal_abandon(w);
    fake_free(o);
    CHECK_OK(fs_unlink(fs, "wal/00000001.wal", &ei), &ei);
    CHECK_OK(fs_unlink(fs, "wal/00000004.wal", &ei), &ei); /* entries 5 to 8 of shard 0 */
    CHECK_OK(fs_sim_flip_bit(fs, "wal/00000005.wal", 8 * (64 + 48) + 3, &ei), &ei);
    back = fake_replay_covered(fs, SHARDS, 2, (uint64_t[]){8, 8, 0}, &result);
    CHECK(result.lost_entry_count == 0 && result.bad_frame_count == 0);
    fake_free(back);
    back = fake_replay_covered(fs, SHARDS, 2, (uint64_t[]){6, 5, 0}, &result);
    CHECK(result.lost_entry_count == 5 && result.bad_frame_count == 1);
    CHECK(back->shards[0].lost_from_min == 7 && back->shards[0].lost_count == 2);
    CHECK(back->shards[1].lost_from_min == 6 && back->shards[1].lost_count == 3);
    fake_free(back);
    back = fake_replay_covered(fs, SHARDS, 2, (uint64_t[]){0, 0, 0}, &result);
    CHECK(back->shards[0].lost_from_min == 1 && back->shards[0].lost_count == 8);
    fake_free(back);
    fs_free(fs);
}

/* ---- crashes ---- */

/* What any life may rely on. */
struct promise {
    bool entry[SHARDS][SEQUENCE_MAX]; /* acknowledged, or read back by a life that got going */
    uint64_t newest[SHARDS];          /* highest sequence ever queued */
    uint64_t covered[SHARDS];         /* what the owner has durable elsewhere */
    uint64_t rotated_frames;          /* frames this life had written at its last rotation */
};

static void promise_check(const struct promise *p, struct fake_owner *o)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        for (uint64_t s = p->covered[shard] + 1; s < SEQUENCE_MAX; s++) {
            if (p->entry[shard][s])
                CHECK_MSG(fake_has(o, shard, s), "shard %u entry %lu ", shard, (unsigned long)s);
            else if (s > p->newest[shard])
                CHECK(!fake_has(o, shard, s));
        }
        if (o->shards[shard].lost_from_min != 0)
            CHECK(!p->entry[shard][o->shards[shard].lost_from_min]);
    }
}

static void promise_read_back(struct promise *p, struct fake_owner *o, const struct wal *w)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        CHECK(wal_next_sequence(w, shard) > p->covered[shard]);
        for (uint64_t s = p->covered[shard] + 1; s < SEQUENCE_MAX; s++)
            p->entry[shard][s] |= fake_has(o, shard, s);
    }
}

static void promise_acknowledged(struct promise *p, const struct wal *w, uint32_t shard,
                                 uint64_t first)
{
    uint64_t durable = wal_durable_sequence(w, shard);

    CHECK(durable < SEQUENCE_MAX);
    for (uint64_t s = first; s <= durable; s++)
        p->entry[shard][s] = true;
}

/* The owner seals: raises what is covered, at random, and cuts. */
static bool seal_and_cut(struct fs *fs, struct wal *w, struct promise *p, struct test_random *r)
{
    struct errinfo ei = {0};

    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        uint64_t durable = wal_durable_sequence(w, shard);

        if (durable > p->covered[shard])
            p->covered[shard] += test_random_below(r, 2 * (durable - p->covered[shard]));
        if (p->covered[shard] > durable)
            p->covered[shard] = durable;
    }
    if (test_random_below(r, 2) == 0 && stats_of(w).frames_written > p->rotated_frames) {
        p->rotated_frames = stats_of(w).frames_written;
        rotate(fs, w);
    }
    return wal_cut(w, p->covered, NULL, &ei) == ERR_OK;
}

struct life {
    struct fs *fs;
    enum wal_sync sync;
    uint64_t writes, seed;
    bool stop_at_error;
};

static bool life_write(const struct life *life, struct fake_owner *o, struct wal *w,
                       struct promise *p, struct test_random *r)
{
    struct errinfo ei = {0};
    uint32_t shard = (uint32_t)test_random_below(r, SHARDS);
    uint64_t count = 1 + test_random_below(r, 6), first;
    bool well;

    if (test_random_below(r, 4) == 0)
        return seal_and_cut(life->fs, w, p, r);
    first = o->shards[shard].queue_end;
    p->newest[shard] = first + count - 1;
    well = fake_write(o, w, shard, count, &ei) == ERR_OK;
    promise_acknowledged(p, w, shard, first);
    return well;
}

/* Starts, checks, writes and cuts, ends without closing; true if all went well. */
static bool live(const struct life *life, struct promise *p)
{
    struct test_random r = {life->seed, life->seed};
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, life->fs);
    uint64_t covered[SHARDS];
    struct errinfo ei = {0};
    bool well = true;
    struct wal *w;

    options.segment_size_bytes = 500;
    options.sync = life->sync;
    options.sync_interval_ms = 1;
    memcpy(covered, p->covered, sizeof covered);
    p->rotated_frames = 0;
    o->covered = covered;
    if (fake_start(o, &options, &w, NULL, &ei) != ERR_OK) {
        fake_free(o);
        return false;
    }
    promise_check(p, o);
    promise_read_back(p, o, w);
    o->entry_words = 3;
    for (uint64_t i = 0; i < life->writes && (well || !life->stop_at_error); i++)
        well = life_write(life, o, w, p, &r) && well;
    wal_abandon(w);
    fake_free(o);
    return well;
}

static struct promise *promise_copy(const struct promise *p)
{
    struct promise *copy = malloc(sizeof *copy);

    CHECK(copy != NULL);
    if (p != NULL)
        *copy = *p;
    else
        memset(copy, 0, sizeof *copy);
    return copy;
}

static void live_well(struct fs *fs, struct promise *p, uint64_t writes, uint64_t seed)
{
    CHECK(live(&(struct life){fs, WAL_SYNC_ALWAYS, writes, seed, true}, p));
}

/* The life after the crash, itself cut at every few operations, then lives that must succeed. */
static void recover_with_second_crash(struct fs *crashed, const struct test_crash_mode *mode,
                                      const struct promise *before, uint64_t seed)
{
    static const uint64_t steps[] = {1, 2, 3}; /* a different stride a seed: all are covered */
    uint64_t step = steps[seed % 3];
    bool hit = true;

    for (uint64_t op = seed % step; hit; op += step) {
        struct fs *second = test_fs_after_crash(crashed, mode, seed), *third;
        struct promise *p = promise_copy(before);

        fs_sim_set_fault(second, FS_SIM_FAULT_CRASH, fs_sim_op_count(second) + op);
        (void)live(&(struct life){second, WAL_SYNC_ALWAYS, 5, seed + 100, true}, p);
        hit = fs_sim_fault_hit(second);
        third =
            test_fs_after_crash(second, &test_crash_modes[(op + seed) % TEST_CRASH_MODE_COUNT], op);
        live_well(third, p, 4, seed + 200);
        live_well(third, p, 0, 0);
        fs_free(third);
        fs_free(second);
        free(p);
    }
}

static void test_power_loss_at_every_operation(void **state)
{
    bool hit = true;

    (void)state;
    for (uint64_t op = 0; hit; op++) {
        struct fs *fs = test_fs_new(op + 1);
        struct promise *p = promise_copy(NULL);

        fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, op);
        (void)live(&(struct life){fs, WAL_SYNC_ALWAYS, 24, 11, true}, p);
        hit = fs_sim_fault_hit(fs);
        for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++)
            recover_with_second_crash(fs, &test_crash_modes[m], p, op);
        fs_free(fs);
        free(p);
    }
}

/* Every operation fails once, the log goes on, and then the power goes; in every sync mode. With
 * interval and never, only a kill keeps what was acknowledged. */
static void test_error_at_every_operation(void **state)
{
    static const enum wal_sync modes[] = {WAL_SYNC_ALWAYS, WAL_SYNC_INTERVAL, WAL_SYNC_NEVER};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        bool hit = true;

        for (uint64_t op = 0; hit; op++) {
            struct fs *fs = test_fs_new(op + 1);
            struct promise *p = promise_copy(NULL);

            fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, op);
            (void)live(&(struct life){fs, modes[i], 24, 13, false}, p);
            hit = fs_sim_fault_hit(fs);
            for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++) {
                struct fs *after = test_fs_after_crash(fs, &test_crash_modes[m], op);
                struct promise *q = promise_copy(p);

                if (modes[i] != WAL_SYNC_ALWAYS && test_crash_modes[m].loss != FS_SIM_KEEP_ALL)
                    memset(q->entry, 0, sizeof q->entry);
                live_well(after, q, 6, 17);
                live_well(after, q, 0, 17);
                fs_free(after);
                free(q);
            }
            fs_free(fs);
            free(p);
        }
    }
}

/* A log whose only segment fails keeps its number: none is ever used twice. */
static void test_number_survives_failures(void **state)
{
    (void)state;
    for (uint64_t more = 0; more < 6; more++) {
        struct fs *fs = test_fs_new(more + 1), *after;
        struct fake_owner *o = fake_new(SHARDS);
        struct wal *w = log_of_segments(fs, o, 3, 2);
        struct promise *p = promise_copy(NULL);
        struct errinfo ei = {0};
        uint64_t current;
        enum err e;

        for (uint32_t i = 0; i < SHARDS; i++)
            p->covered[i] = p->newest[i] = 2;
        rotate(fs, w);
        fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fs_sim_op_count(fs) + more);
        e = wal_cut(w, p->covered, NULL, &ei); /* one of the removals may be what fails */
        CHECK(e == ERR_OK || e == ERR_IO);
        p->newest[1] = 6;
        errinfo_clear(&ei);
        e = fake_write(o, w, 1, 4, &ei);
        CHECK(e == ERR_OK || e == ERR_IO);
        promise_acknowledged(p, w, 1, 3);
        current = stats_of(w).segment_current;
        wal_abandon(w);
        fake_free(o);
        after = test_fs_after_crash(fs, &test_crash_modes[1], more);
        o = fake_new(SHARDS);
        o->covered = p->covered;
        struct wal_options options = fake_options(o, after);
        errinfo_clear(&ei);
        CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
        CHECK(stats_of(w).segment_current > current);
        promise_check(p, o);
        wal_abandon(w);
        fake_free(o);
        fs_free(after);
        fs_free(fs);
        free(p);
    }
}

/* ---- writers and cuts at once ---- */

struct writer {
    struct fake_owner *owner;
    struct wal *wal;
    uint32_t shard;
    struct thread thread;
};

static void *writer_thread(void *arg)
{
    struct writer *writer = arg;
    struct errinfo ei = {0};

    for (int i = 0; i < 60; i++)
        CHECK_OK(fake_write(writer->owner, writer->wal, writer->shard, 3, &ei), &ei);
    return NULL;
}

static void test_cuts_beside_writers(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct fake_owner *o = fake_new(SHARDS), *back;
    struct wal_options options = fake_options(o, fs);
    struct writer writers[SHARDS];
    uint64_t covered[SHARDS] = {0}, removed, sum = 0;
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w;

    (void)state;
    options.segment_size_bytes = 400;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    for (uint32_t i = 0; i < SHARDS; i++) {
        writers[i] = (struct writer){.owner = o, .wal = w, .shard = i};
        CHECK_OK(thread_start(&writers[i].thread, "writer", writer_thread, &writers[i], &ei), &ei);
    }
    while (wal_durable_sequence(w, 0) + wal_durable_sequence(w, 1) + wal_durable_sequence(w, 2) <
           UINT64_C(3) * 180) {
        for (uint32_t i = 0; i < SHARDS; i++)
            covered[i] = wal_durable_sequence(w, i) / 2;
        wal_rotate(w);
        CHECK_OK(wal_cut(w, covered, &removed, &ei), &ei);
        sum += removed;
    }
    for (uint32_t i = 0; i < SHARDS; i++)
        thread_join(&writers[i].thread);
    for (uint32_t i = 0; i < SHARDS; i++)
        covered[i] = 90;
    sum += cut(w, covered);
    CHECK(sum > 0);
    check_size(fs, w);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    back = fake_replay_covered(fs, SHARDS, 2, covered, &result);
    CHECK(result.lost_entry_count == 0);
    for (uint32_t i = 0; i < SHARDS; i++)
        CHECK(back->shards[i].applied_count == 180 - covered[i]);
    fake_free(back);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oldest_covered_segments_go),
        cmocka_unit_test(test_newest_segment_stays),
        cmocka_unit_test(test_cut_after_restart),
        cmocka_unit_test(test_covered_beyond_the_log),
        cmocka_unit_test(test_gaps_count_above_covered),
        cmocka_unit_test(test_power_loss_at_every_operation),
        cmocka_unit_test(test_error_at_every_operation),
        cmocka_unit_test(test_number_survives_failures),
        cmocka_unit_test(test_cuts_beside_writers),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
