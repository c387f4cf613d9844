/*
 * Crashes through the whole engine on the simulated file layer: power loss at every file operation,
 * again after recovery, full disks, slow syncs, and frames that are damaged later. After each,
 * every acknowledged sample is there once and none is invented.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/thread.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"
#include "wal/format_internal.h"

#define T0 KIT_NOW_MS

enum { SERIES_COUNT = 12, ROUND_COUNT = 10, SAMPLES_A_ROUND = 3, SAMPLE_MAX = 128 };

/* What was sent (per series samples [0, sent)) and which of it was acknowledged. */
struct model {
    size_t sent[SERIES_COUNT];
    bool acknowledged[SERIES_COUNT][SAMPLE_MAX];
};

static const char *name_of(size_t series, char *out)
{
    (void)snprintf(out, 64, "__name__=metric_%zu,instance=host-%zu", series % 3, series);
    return out;
}
static int64_t time_of(size_t i)
{
    return T0 + (int64_t)i * 10;
}
static double value_of(size_t series, size_t i)
{
    return i % 7 == 0 ? double_from_bits(STALE_NAN_BITS) : (double)(series * 1000 + i) / 100;
}

/* One request with new samples of some series; true when it was acknowledged. */
static bool send_round(struct kit *k, struct model *m, size_t round)
{
    char name[64];
    enum err e;

    for (size_t s = round % 2; s < SERIES_COUNT; s += 1 + round % 3) {
        kit_series(k, name_of(s, name));
        for (int i = 0; i < SAMPLES_A_ROUND; i++) {
            kit_sample_of(k, s, time_of(m->sent[s]), value_of(s, m->sent[s]));
            m->sent[s]++;
        }
    }
    e = kit_write(k);
    if (e == ERR_OK) {
        CHECK_MSG(k->result.refused_count == 0, "%s", k->result.examples[0]);
        e = kit_wait(k);
    }
    if (e != ERR_OK)
        return false;
    for (size_t s = round % 2; s < SERIES_COUNT; s += 1 + round % 3)
        for (size_t i = m->sent[s] - SAMPLES_A_ROUND; i < m->sent[s]; i++)
            m->acknowledged[s][i] = true;
    return true;
}

/* Passes over samples that are not there; none of them may have been acknowledged. */
static size_t skip_lost(const struct model *m, size_t series, size_t i, int64_t until_ms)
{
    for (; i < m->sent[series] && time_of(i) != until_ms; i++)
        CHECK_MSG(!m->acknowledged[series][i], "series %zu lost sample %zu", series, i);
    return i;
}

static void check_model(struct kit *k, const struct model *m)
{
    char name[64];

    for (size_t s = 0; s < SERIES_COUNT; s++) {
        struct arena arena;
        struct column got = {0};
        size_t i = 0;

        arena_init(&arena, NULL);
        (void)kit_read(k, &arena, name_of(s, name), INT64_MIN, INT64_MAX, &got);
        for (size_t n = 0; n < got.count; n++, i++) {
            i = skip_lost(m, s, i, got.t_ms[n]);
            CHECK_MSG(i < m->sent[s], "series %zu has an invented sample", s);
            CHECK(double_bits(got.value[n]) == double_bits(value_of(s, i)));
            kit_check_kind(s, &got, n);
        }
        CHECK(skip_lost(m, s, i, INT64_MAX) == m->sent[s]);
        arena_done(&arena);
    }
    CHECK(k->replay.unknown_ref_samples == 0 || k->replay.wal.lost_entry_count > 0);
}

/* Reopens what is left of `fs`, checks it, writes more, loses the power again, checks again. */
static void recover_twice(struct fs *fs, struct model m, enum fs_sim_loss loss, uint64_t seed)
{
    struct fs *first = test_fs_after(fs, loss, seed), *second;
    struct kit k;

    kit_open(&k, first, NULL);
    check_model(&k, &m);
    for (size_t round = 0; round < 3; round++)
        CHECK(send_round(&k, &m, round));
    kit_abandon(&k);
    second = test_fs_after(first, seed % 2 ? FS_SIM_DROP_ALL : FS_SIM_DROP_RANDOM, seed);
    kit_open(&k, second, NULL);
    check_model(&k, &m);
    CHECK(send_round(&k, &m, 1));
    kit_close(&k);
    fs_free(first);
    fs_free(second);
}

/* True when the fault was hit. */
static bool crash_at(uint64_t op, uint64_t seed)
{
    struct fs *fs = test_fs_new(seed);
    struct model m = {0};
    struct kit k;
    bool hit;

    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, op);
    if (kit_try_open(&k, fs, NULL) == ERR_OK) {
        for (size_t round = 0; round < ROUND_COUNT && send_round(&k, &m, round);)
            round++;
        kit_abandon(&k);
    }
    hit = fs_sim_fault_hit(fs);
    recover_twice(fs, m, FS_SIM_DROP_ALL, seed);
    recover_twice(fs, m, FS_SIM_DROP_RANDOM, seed);
    recover_twice(fs, m, FS_SIM_KEEP_ALL, seed);
    fs_free(fs);
    return hit;
}

static void test_power_loss_everywhere(void **state)
{
    struct test_random r = test_random_init(31);
    uint64_t op = 0;

    (void)state;
    while (crash_at(op, test_random_u64(&r)))
        op++;
    CHECK(op > (uint64_t)2 * ROUND_COUNT); /* a write and a sync a round, at least */
}

/* A single failed write or sync: nothing acknowledged is lost, and the log goes on by itself. */
static void test_io_error_everywhere(void **state)
{
    struct test_random r = test_random_init(32);

    (void)state;
    for (uint64_t op = 8;; op++) {
        struct fs *fs = test_fs_new(test_random_u64(&r)), *after;
        struct model m = {0};
        struct kit k;
        bool hit;

        fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, op);
        if (kit_try_open(&k, fs, NULL) != ERR_OK) {
            fs_free(fs);
            continue;
        }
        for (size_t round = 0; round < ROUND_COUNT; round++)
            (void)send_round(&k, &m, round);
        hit = fs_sim_fault_hit(fs);
        check_model(&k, &m);
        kit_abandon(&k);
        after = test_fs_after(fs, FS_SIM_DROP_ALL, 1);
        kit_open(&k, after, NULL);
        check_model(&k, &m);
        kit_close(&k);
        fs_free(after);
        fs_free(fs);
        if (!hit)
            break;
    }
}

/* A full disk: 503, then the same request again succeeds once there is room, and is durable. */
static void test_no_space_then_power_loss(void **state)
{
    struct fs *fs = test_fs_new(3), *after;
    struct model m = {0};
    struct kit k;
    char name[64];

    (void)state;
    kit_open(&k, fs, NULL);
    CHECK(send_round(&k, &m, 0));
    fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, fs_sim_op_count(fs));
    size_t before = m.sent[0];
    CHECK(!send_round(&k, &m, 0));
    /* Queries go on; new requests are refused before they touch anything. */
    check_model(&k, &m);
    fs_sim_clear_fault(fs);
    while (engine_admit(k.engine, NULL) != ERR_OK)
        (void)sched_yield();
    for (size_t s = 0; s < SERIES_COUNT; s++) {
        kit_series(&k, name_of(s, name));
        for (size_t i = before; i < m.sent[s]; i++) {
            kit_sample_of(&k, s, time_of(i), value_of(s, i));
            m.acknowledged[s][i] = true; /* as checked below */
        }
    }
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.refused_count == 0 && k.result.repeat_count > 0);
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_abandon(&k);
    after = test_fs_after(fs, FS_SIM_DROP_ALL, 4);
    kit_open(&k, after, NULL);
    check_model(&k, &m);
    kit_close(&k);
    fs_free(after);
    fs_free(fs);
}

struct answer {
    struct wal_waiter waiter;
    _Atomic int count; /* release: `code` is set */
    enum err code;
};

static void answer_done(struct wal_waiter *waiter, enum err code)
{
    struct answer *a = (struct answer *)(void *)waiter;

    a->code = code;
    atomic_fetch_add_explicit(&a->count, 1, memory_order_release);
}

/* A retry while the first attempt's sync is still running must not be acknowledged before it. */
static void test_retry_during_slow_sync(void **state)
{
    struct fs *fs = test_fs_new(5), *lost, *kept;
    struct answer answers[2] = {0};
    uint64_t sequences[2][16];
    struct model m = {0}, none;
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    CHECK(send_round(&k, &m, 0));
    none = m;
    fs_sim_set_fault(fs, FS_SIM_FAULT_SLOW, fs_sim_op_count(fs));
    for (int attempt = 0; attempt < 2; attempt++) {
        char name[64];

        kit_series(&k, name_of(0, name));
        kit_sample(&k, time_of(SAMPLES_A_ROUND), value_of(0, SAMPLES_A_ROUND));
        CHECK_OK(kit_write(&k), &k.ei);
        CHECK(attempt == 0 ? k.result.stored_count == 1 : k.result.repeat_count == 1);
        memcpy(sequences[attempt], k.sequences, sizeof sequences[attempt]);
        answers[attempt].waiter.sequences = sequences[attempt];
        answers[attempt].waiter.done = answer_done;
        engine_wait_durable(k.engine, &answers[attempt].waiter);
        m.sent[0] = SAMPLES_A_ROUND + 1;
    }
    while (!fs_sim_fault_hit(fs))
        (void)sched_yield();
    CHECK(atomic_load(&answers[0].count) == 0 && atomic_load(&answers[1].count) == 0);
    lost = test_fs_after(fs, FS_SIM_DROP_ALL, 1); /* the power fails here: nothing was promised */
    fs_sim_clear_fault(fs);
    while (atomic_load_explicit(&answers[0].count, memory_order_acquire) == 0 ||
           atomic_load_explicit(&answers[1].count, memory_order_acquire) == 0)
        (void)sched_yield();
    CHECK(answers[0].code == ERR_OK && answers[1].code == ERR_OK);
    kept = test_fs_after(fs, FS_SIM_DROP_ALL, 1); /* here: both were */
    kit_abandon(&k);
    none.sent[0] = m.sent[0];
    kit_open(&k, lost, NULL);
    check_model(&k, &none);
    kit_close(&k);
    m.acknowledged[0][SAMPLES_A_ROUND] = true;
    kit_open(&k, kept, NULL);
    check_model(&k, &m);
    kit_close(&k);
    fs_free(lost);
    fs_free(kept);
    fs_free(fs);
}

/* ---- damage found later ---- */

static void flip_in_first_frame(struct fs *fs)
{
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_flip_bit(fs, "wal/00000001.wal",
                             (uint64_t)(SEGMENT_HEADER_SIZE + FRAME_HEADER_SIZE + 9) * 8, &ei),
             &ei);
}

static void set_repeat_delay(struct kit *k, uint64_t ns)
{
    atomic_store_explicit(&k->engine->logs.repeat_delay_ns, ns, memory_order_relaxed);
}

/* The frame with a series' first definition is bad: the second one saves the later samples. */
static void test_second_definition(void **state)
{
    const struct engine_options one_shard = {.shard_count = 1};
    struct fs *fs = test_fs_new(6);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &one_shard);
    set_repeat_delay(&k, UINT64_MAX / 2);
    kit_put(&k, "__name__=m,a=1", T0, 1);     /* frame 1: definition and sample */
    kit_put(&k, "__name__=m,a=1", T0 + 1, 2); /* frame 2: before the second definition */
    kit_close(&k);                            /* frame 3: the definition again */
    flip_in_first_frame(fs);
    kit_open(&k, fs, &one_shard);
    CHECK(k.replay.wal.bad_frame_count == 1 && k.replay.wal.lost_entry_count == 2);
    CHECK(k.replay.series_count == 1 && k.replay.unknown_ref_samples == 0);
    kit_check(&k, "__name__=m,a=1", 1, (int64_t[]){T0 + 1}, (double[]){2});
    kit_put(&k, "__name__=m,a=1", T0 + 2, 3);
    kit_close(&k);
    fs_free(fs);
}

/* Both definitions are lost: the samples are counted, and their slot is given to nobody. */
static void test_definitions_lost(void **state)
{
    const struct engine_options one_shard = {.shard_count = 1};
    struct fs *fs = test_fs_new(7);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &one_shard);
    set_repeat_delay(&k, UINT64_MAX / 2);
    kit_put(&k, "__name__=m,a=1", T0, 1);
    kit_put(&k, "__name__=m,a=1", T0 + 1, 2);
    kit_abandon(&k); /* no second definition */
    flip_in_first_frame(fs);
    for (int restart = 0; restart < 3; restart++) {
        struct fs *after = test_fs_after(fs, FS_SIM_KEEP_ALL, 1);

        fs_free(fs);
        fs = after;
        kit_open(&k, fs, &one_shard);
        CHECK(k.replay.unknown_ref_samples == 1);
        CHECK(k.replay.series_count == (uint64_t)(restart > 0));
        kit_check(&k, "__name__=m,a=1", 0, NULL, NULL);
        kit_put(&k, "__name__=other", T0 + restart, 9);
        kit_check(&k, "__name__=other", (size_t)restart + 1, (int64_t[]){T0, T0 + 1, T0 + 2},
                  (double[]){9, 9, 9});
        kit_abandon(&k);
    }
    fs_free(fs);
}

/* ---- a bit flipped in each frame in turn ---- */

static uint8_t *segment_read(struct fs *fs, uint64_t *size)
{
    struct errinfo ei = {0};
    struct file *f;
    uint8_t *data;

    CHECK_OK(file_open(fs, "wal/00000001.wal", FILE_READ, &f, &ei), &ei);
    CHECK_OK(file_size(f, size, &ei), &ei);
    data = malloc(*size);
    CHECK(data != NULL);
    CHECK_OK(file_read(f, data, *size, 0, &ei), &ei);
    file_close(f);
    return data;
}

/* How many of a frame's entries are samples. */
static size_t frame_sample_count(const uint8_t *payload, const struct frame_header *header)
{
    struct byte_reader in = reader_init(payload, header->stored_size);
    struct record record;
    size_t count = 0, n = 0;

    CHECK(header->codec == FRAME_CODEC_RAW); /* they are small */
    while (record_next(&in, &record))
        if (record_has_samples(record.type) && record_samples_count(record.body, &n))
            count += n;
    CHECK(!in.failed);
    return count;
}

static size_t stored_count(struct kit *k, const struct model *m)
{
    size_t count = 0;
    char name[64];

    for (size_t s = 0; s < SERIES_COUNT; s++) {
        struct arena arena;
        struct column got = {0};
        size_t at = 0;

        arena_init(&arena, NULL);
        (void)kit_read(k, &arena, name_of(s, name), INT64_MIN, INT64_MAX, &got);
        for (size_t i = 0; i < got.count; i++, at++) {
            while (at < m->sent[s] && time_of(at) != got.t_ms[i])
                at++;
            CHECK(at < m->sent[s] && double_bits(got.value[i]) == double_bits(value_of(s, at)));
        }
        count += got.count;
        arena_done(&arena);
    }
    return count;
}

static void flip_and_check(struct fs *fs, const struct model *m, uint64_t payload_at,
                           const struct frame_header *header, size_t total, size_t frame_samples)
{
    struct fs *damaged = test_fs_after(fs, FS_SIM_KEEP_ALL, 1);
    struct errinfo ei = {0};
    struct kit k;

    CHECK_OK(fs_sim_flip_bit(damaged, "wal/00000001.wal",
                             (payload_at + header->stored_size / 2) * 8 + 3, &ei),
             &ei);
    kit_open(&k, damaged, NULL);
    CHECK(k.replay.wal.bad_frame_count == 1);
    CHECK(k.replay.wal.lost_entry_count == header->entry_count);
    CHECK_MSG(k.replay.unknown_ref_samples == 0, "frame at %d", (int)payload_at);
    CHECK(stored_count(&k, m) == total - frame_samples);
    kit_close(&k);
    fs_free(damaged);
}

static void test_bit_flip_in_each_frame(void **state)
{
    struct fs *fs = test_fs_new(9);
    struct model m = {0};
    struct kit k;
    uint64_t size = 0, at = SEGMENT_HEADER_SIZE, frame_count = 0;
    size_t total = 0;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 4});
    set_repeat_delay(&k, 0);
    for (size_t round = 0; round < ROUND_COUNT; round++)
        CHECK(send_round(&k, &m, round));
    kit_close(&k); /* every definition has had its second frame */
    for (size_t s = 0; s < SERIES_COUNT; s++)
        total += m.sent[s];
    uint8_t *data = segment_read(fs, &size);
    while (at + FRAME_HEADER_SIZE <= size) {
        struct frame_header header;

        CHECK(frame_header_decode(data + at, &header));
        at += FRAME_HEADER_SIZE;
        flip_and_check(fs, &m, at, &header, total, frame_sample_count(data + at, &header));
        at += header.stored_size;
        frame_count++;
    }
    CHECK(at == size && frame_count > ROUND_COUNT);
    free(data);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_loss_everywhere),
        cmocka_unit_test(test_io_error_everywhere),
        cmocka_unit_test(test_no_space_then_power_loss),
        cmocka_unit_test(test_retry_during_slow_sync),
        cmocka_unit_test(test_second_definition),
        cmocka_unit_test(test_definitions_lost),
        cmocka_unit_test(test_bit_flip_in_each_frame),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
