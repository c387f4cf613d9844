/* The log from end to end without damage: commit, rotation, pacing, waiters, replay, restart. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file_sim.h"
#include "base/log.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/wal/fake_owner.h"

static struct fs *sim_new(void)
{
    struct errinfo ei = {0};
    struct fs *fs;

    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    return fs;
}

/* Random writes over several lives of one log; every acknowledged entry is there in the next. */
static void lives(struct fs *fs, uint64_t seed, bool compressible, uint64_t segment_size)
{
    enum { SHARDS = 5, LIVES = 4, WRITES = 40 };
    struct test_random r = test_random_init(seed);
    uint64_t written[SHARDS] = {0};

    for (int life = 0; life < LIVES; life++) {
        struct fake_owner *o = fake_new(SHARDS);
        struct wal_options options = fake_options(o, fs);
        struct wal_replay_result result;
        struct errinfo ei = {0};
        struct wal *w;
        uint64_t sum = 0;

        options.segment_size_bytes = segment_size;
        CHECK_OK(fake_start(o, &options, &w, &result, &ei), &ei);
        for (uint32_t s = 0; s < SHARDS; s++) {
            CHECK(wal_next_sequence(w, s) == written[s] + 1);
            CHECK(wal_durable_sequence(w, s) == written[s]);
            CHECK(o->shards[s].applied_count == written[s]);
            sum += written[s];
        }
        CHECK(result.entry_count == sum && result.lost_entry_count == 0);
        CHECK(result.bad_frame_count == 0 && result.torn_tail_bytes == 0);
        o->entry_words = 1 + (uint32_t)test_random_below(&r, 40);
        o->compressible = compressible;
        for (int i = 0; i < WRITES; i++) {
            uint32_t shard = (uint32_t)test_random_below(&r, SHARDS);
            uint64_t count = 1 + test_random_below(&r, 200);

            CHECK_OK(fake_write(o, w, shard, count, &ei), &ei);
            written[shard] += count;
            CHECK(wal_durable_sequence(w, shard) == written[shard]);
        }
        if (life % 2 == 0)
            CHECK_OK(wal_close(w, 1000, &ei), &ei);
        else
            wal_abandon(w);
        fake_free(o);
    }
}

static void test_lives_sim(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct fs *fs = sim_new();

        lives(fs, seed, seed % 2 == 0, seed < 3 ? 0 : 20000);
        fs_free(fs);
    }
}

static void lives_on_disk(enum fs_io io)
{
    char *dir = test_dir_new();
    struct errinfo ei = {0};
    struct fs *fs;
    enum err e = fs_open(dir, io, &fs, &ei);

    if (e == ERR_UNSUPPORTED) {
        print_message("io_uring is refused here: skipped\n");
    } else {
        CHECK_OK(e, &ei);
        lives(fs, 9, true, 50000);
        fs_free(fs);
    }
    test_dir_remove(dir);
}

static void test_lives_posix(void **state)
{
    (void)state;
    lives_on_disk(FS_IO_POSIX);
}

static void test_lives_uring(void **state)
{
    (void)state;
    lives_on_disk(FS_IO_URING);
}

static void test_rotation_makes_segments_of_the_size(void **state)
{
    enum { SEGMENT = 4096, WRITES = 30 };
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(1);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w;
    struct wal_stats stats;

    (void)state;
    options.segment_size_bytes = SEGMENT;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    o->entry_words = 100; /* 800 bytes of payload: five frames a segment, below 1 KiB */
    for (int i = 0; i < WRITES; i++)
        CHECK_OK(fake_write(o, w, 0, 1, &ei), &ei);
    o->entry_words = 2000; /* more than a segment: gets one of its own */
    CHECK_OK(fake_write(o, w, 0, 1, &ei), &ei);
    wal_stats_get(w, &stats);
    CHECK(stats.segment_current == 9);
    CHECK(stats.frames_written == WRITES + 1 && stats.commits == WRITES + 1);
    CHECK(stats.samples_written == WRITES + 1 && stats.backlog_bytes == 0);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    for (int i = 1; i <= 8; i++) {
        char path[32];
        uint8_t *data;
        size_t size;

        (void)snprintf(path, sizeof path, "wal/%08d.wal", i);
        size = fake_file_read(fs, path, &data);
        CHECK(size <= SEGMENT && size > SEGMENT / 4);
        free(data);
    }
    o = fake_replay(fs, 1, 1, &result);
    CHECK(result.segment_count == 9 && result.entry_count == WRITES + 1);
    CHECK(result.frame_count == WRITES + 1);
    fake_free(o);
    fs_free(fs);
}

/* A frame larger than the reader's piece, among small ones, and many pieces for many threads. */
static void test_large_log_through_the_ring(void **state)
{
    enum { SHARDS = 7 };
    struct test_random r = test_random_init(5);
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w;
    uint64_t sum = 0;

    (void)state;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    o->entry_words = 10;
    for (int i = 0; i < 200; i++) {
        uint64_t count = i % 50 == 7 ? 30000 : 1 + test_random_below(&r, 3000);

        CHECK_OK(fake_write(o, w, (uint32_t)test_random_below(&r, SHARDS), count, &ei), &ei);
        sum += count;
    }
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    for (uint32_t threads = 1; threads <= 9; threads += 4) {
        o = fake_replay(fs, SHARDS, threads, &result);
        CHECK(result.entry_count == sum && result.frame_count == 200);
        CHECK(result.byte_count > 4 << 20);
        CHECK(result.lost_entry_count == 0 && result.bad_frame_count == 0);
        fake_free(o);
    }
    fs_free(fs);
}

static void test_payload_is_compressed_where_it_pays(void **state)
{
    struct {
        uint32_t words;
        bool compressible, smaller;
    } cases[] = {{100, true, false}, {1000, true, true}, {1000, false, false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fs *fs = sim_new();
        struct fake_owner *o = fake_new(1);
        struct wal_options options = fake_options(o, fs);
        struct errinfo ei = {0};
        struct wal_stats stats;
        struct wal *w;

        CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
        o->entry_words = cases[i].words;
        o->compressible = cases[i].compressible;
        CHECK_OK(fake_write(o, w, 0, 1, &ei), &ei);
        wal_stats_get(w, &stats);
        if (cases[i].smaller)
            CHECK(stats.bytes_written < cases[i].words * 8 / 2);
        else
            CHECK(stats.bytes_written == 48 + cases[i].words * 8);
        CHECK_OK(wal_close(w, 1000, &ei), &ei);
        fake_free(o);
        fs_free(fs);
    }
}

/* All shards' queues in one commit, batches of one shard in order. */
static void test_one_commit_takes_all_shards(void **state)
{
    enum { SHARDS = 40, ENTRIES = SHARDS * 100 };
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal_stats stats;
    struct wal *w;
    uint64_t sequences[SHARDS];

    (void)state;
    options.encode_threads = 3;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    o->entry_words = 64;
    o->batch_limit = 30;
    for (uint32_t s = 0; s < SHARDS; s++)
        sequences[s] = fake_queue(o, s, 100);
    wal_notify(w, ENTRIES, ENTRIES);
    CHECK_OK(wal_wait_blocking(w, sequences, &ei), &ei);
    wal_stats_get(w, &stats);
    CHECK(stats.commits == 1 && stats.frames_written == ENTRIES / 25);
    CHECK(stats.samples_written == ENTRIES && stats.backlog_bytes == 0);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    o = fake_replay(fs, SHARDS, 4, &result);
    CHECK(result.entry_count == ENTRIES);
    fake_free(o);
    fs_free(fs);
}

/* More frames than one write call takes. */
static void test_commit_of_thousands_of_frames(void **state)
{
    enum { SHARDS = 1500, ENTRIES = SHARDS * 2 };
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(SHARDS);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal_stats stats;
    struct wal *w;
    uint64_t *sequences = calloc(SHARDS, sizeof *sequences);

    (void)state;
    CHECK(sequences != NULL);
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    for (uint32_t s = 0; s < SHARDS; s++)
        sequences[s] = fake_queue(o, s, 2);
    wal_notify(w, ENTRIES, ENTRIES);
    CHECK_OK(wal_wait_blocking(w, sequences, &ei), &ei);
    wal_stats_get(w, &stats);
    CHECK(stats.commits == 1 && stats.frames_written == SHARDS);
    wal_abandon(w);
    fake_free(o);
    o = fake_replay(fs, SHARDS, 2, &result);
    CHECK(result.frame_count == SHARDS && result.entry_count == ENTRIES);
    fake_free(o);
    free(sequences);
    fs_free(fs);
}

/* A commit waits for a fuller frame, but no longer than the delay; enough samples end the wait. */
static void test_pacing(void **state)
{
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(2);
    struct wal_options options = fake_options(o, fs);
    struct errinfo ei = {0};
    struct wal_stats stats;
    uint64_t begin, took;
    struct wal *w;

    (void)state;
    options.commit_sample_target = 100;
    options.commit_delay_ms = 60;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    begin = clock_mono_ns();
    CHECK_OK(fake_write(o, w, 0, 1, &ei), &ei); /* too few: the delay ends it */
    took = clock_mono_ns() - begin;
    CHECK(took >= 59 * UINT64_C(1000000));
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);

    o = fake_new(2);
    options = fake_options(o, fs);
    options.commit_sample_target = 100;
    options.commit_delay_ms = 3600 * 1000; /* only the target can end it */
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    for (int i = 0; i < 10; i++) {
        (void)fake_queue(o, 0, 9);
        wal_notify(w, 9, 9);
    }
    wal_stats_get(w, &stats);
    CHECK(stats.commits == 0);
    CHECK_OK(fake_write(o, w, 0, 10, &ei), &ei);
    wal_stats_get(w, &stats);
    CHECK(stats.commits == 1 && stats.samples_written == 100);
    (void)fake_queue(o, 1, 5); /* closing waits for nothing */
    wal_notify(w, 5, 5);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    fs_free(fs);
}

static void test_close_commits_what_is_queued(void **state)
{
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(3);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct fs *after;
    struct wal *w;

    (void)state;
    options.commit_delay_ms = 3600 * 1000;
    options.commit_sample_target = 1 << 30;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    for (uint32_t s = 0; s < 3; s++) {
        (void)fake_queue(o, s, 7);
        wal_notify(w, 7, 7);
    }
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
    o = fake_replay(after, 3, 1, &result);
    CHECK(result.entry_count == 21);
    fake_free(o);
    fs_free(after);
    fs_free(fs);
}

/* An idle log makes no file call at all, whatever the sync mode; interval syncs by itself. */
static void test_sync_modes(void **state)
{
    static const enum wal_sync modes[] = {WAL_SYNC_ALWAYS, WAL_SYNC_INTERVAL, WAL_SYNC_NEVER};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct fs *fs = sim_new(), *after;
        struct fake_owner *o = fake_new(1);
        struct wal_options options = fake_options(o, fs);
        struct wal_replay_result result;
        struct errinfo ei = {0};
        uint64_t before;
        struct wal *w;

        options.sync = modes[i];
        options.sync_interval_ms = 3600 * 1000;
        CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
        CHECK_OK(fake_write(o, w, 0, 3, &ei), &ei);
        before = fs_sim_op_count(fs);
        CHECK_OK(fake_write(o, w, 0, 3, &ei), &ei);
        CHECK(fs_sim_op_count(fs) - before == (modes[i] == WAL_SYNC_ALWAYS ? 2 : 1));
        CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
        fake_free(fake_replay(after, 1, 1, &result));
        CHECK(result.entry_count == (modes[i] == WAL_SYNC_ALWAYS ? 6 : 0));
        fs_free(after);
        CHECK_OK(wal_close(w, 1000, &ei), &ei); /* syncs in every mode */
        fake_free(o);
        CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
        fake_free(fake_replay(after, 1, 1, &result));
        CHECK(result.entry_count == 6);
        fs_free(after);
        fs_free(fs);
    }
}

static void test_interval_syncs_by_itself(void **state)
{
    struct fs *fs = sim_new(), *after;
    struct fake_owner *o = fake_new(1);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result = {0};
    struct errinfo ei = {0};
    uint64_t before, deadline = clock_mono_ns() + UINT64_C(60000000000);
    struct wal *w;

    (void)state;
    options.sync = WAL_SYNC_INTERVAL;
    options.sync_interval_ms = 1;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    CHECK_OK(fake_write(o, w, 0, 3, &ei), &ei);
    /* Nothing tells when: ask the durable state until it is there. */
    while (result.entry_count == 0) {
        CHECK(clock_mono_ns() < deadline);
        CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
        fake_free(fake_replay(after, 1, 1, &result));
        fs_free(after);
    }
    CHECK(result.entry_count == 3);
    before = fs_sim_op_count(fs);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    CHECK(fs_sim_op_count(fs) == before); /* and then it rests */
    fake_free(o);
    fs_free(fs);
}

struct counting_waiter {
    struct wal_waiter waiter;
    int calls;
    enum err code;
};

static void count_done(struct wal_waiter *waiter, enum err code)
{
    struct counting_waiter *c = (struct counting_waiter *)waiter;

    c->calls++;
    c->code = code;
}

static void test_waiters(void **state)
{
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(2);
    struct wal_options options = fake_options(o, fs);
    struct errinfo ei = {0};
    uint64_t durable[2] = {2, 0}, untouched[2] = {0, 0}, future[2] = {0, 1000};
    struct counting_waiter a = {.waiter = {.sequences = durable, .done = count_done}};
    struct counting_waiter b = {.waiter = {.sequences = untouched, .done = count_done}};
    struct counting_waiter c = {.waiter = {.sequences = future, .done = count_done}};
    struct wal *w;

    (void)state;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    CHECK_OK(fake_write(o, w, 0, 2, &ei), &ei);
    wal_wait(w, &a.waiter); /* nothing is missing: inside the call */
    CHECK(a.calls == 1 && a.code == ERR_OK);
    wal_wait(w, &b.waiter);
    CHECK(b.calls == 1 && b.code == ERR_OK);
    wal_wait(w, &c.waiter);
    CHECK_OK(fake_write(o, w, 1, 3, &ei), &ei);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    CHECK(c.calls == 1 && c.code == ERR_CANCELED);
    fake_free(o);
    fs_free(fs);
}

static void test_no_memory_for_encoding(void **state)
{
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(2);
    struct wal_options options = fake_options(o, fs);
    struct wal_replay_result result;
    struct errinfo ei = {0};
    struct wal *w;

    (void)state;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    o->encode_fails = 1 << 30; /* until the waiter has certainly seen a failure */
    CHECK(fake_write(o, w, 0, 5, &ei) == ERR_NOMEM);
    o->encode_fails = 0;
    CHECK_OK(fake_write(o, w, 0, 5, (errinfo_clear(&ei), &ei)), &ei);
    CHECK(wal_durable_sequence(w, 0) == 10);
    CHECK(wal_admit(w) == ERR_OK);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    o = fake_replay(fs, 2, 1, &result);
    CHECK(result.entry_count == 10);
    fake_free(o);
    fs_free(fs);
}

static void test_progress(void **state)
{
    struct fs *fs = sim_new();
    struct fake_owner *o = fake_new(1);
    struct wal_options options = fake_options(o, fs);
    struct wal_sink sink = fake_sink(o);
    struct wal_replay_result result;
    struct wal_progress p;
    struct errinfo ei = {0};
    struct wal *w;

    (void)state;
    options.segment_size_bytes = 1000;
    CHECK_OK(fake_start(o, &options, &w, NULL, &ei), &ei);
    o->entry_words = 100;
    for (int i = 0; i < 5; i++)
        CHECK_OK(fake_write(o, w, 0, 1, &ei), &ei);
    CHECK_OK(wal_close(w, 1000, &ei), &ei);
    fake_free(o);
    o = fake_new(1);
    sink.ctx = o;
    CHECK_OK(wal_open(&options, &w, &ei), &ei);
    wal_progress_get(w, &p);
    CHECK(p.bytes_total == 0 && p.segment_max == 0);
    CHECK_OK(wal_replay(w, &sink, 1, &result, &ei), &ei);
    wal_progress_get(w, &p);
    CHECK(p.segment_min == 1 && p.segment_max == 5 && p.segment_current == 5);
    CHECK(p.bytes_total == result.byte_count && p.bytes_done == p.bytes_total);
    wal_abandon(w);
    fake_free(o);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lives_sim),
        cmocka_unit_test(test_lives_posix),
        cmocka_unit_test(test_lives_uring),
        cmocka_unit_test(test_rotation_makes_segments_of_the_size),
        cmocka_unit_test(test_large_log_through_the_ring),
        cmocka_unit_test(test_payload_is_compressed_where_it_pays),
        cmocka_unit_test(test_one_commit_takes_all_shards),
        cmocka_unit_test(test_commit_of_thousands_of_frames),
        cmocka_unit_test(test_pacing),
        cmocka_unit_test(test_close_commits_what_is_queued),
        cmocka_unit_test(test_sync_modes),
        cmocka_unit_test(test_interval_syncs_by_itself),
        cmocka_unit_test(test_waiters),
        cmocka_unit_test(test_no_memory_for_encoding),
        cmocka_unit_test(test_progress),
    };

    log_configure(LOG_LEVEL_ERROR, LOG_FORMAT_LOGFMT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
