/* The log through engine_open(), write, crash and replay, on the simulated file layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/files/manifest_internal.h"
#include "engine/histogram/histogram_pack_internal.h"
#include "engine/maintain.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS

/* The state after a crash; the old layer goes. */
static struct fs *fs_crash(struct fs *fs, enum fs_sim_loss loss, uint64_t seed)
{
    struct fs *after = test_fs_after(fs, loss, seed);

    fs_free(fs);
    return after;
}

static void test_restart(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct kit k;
    const int64_t t[] = {T0, T0 + 1, T0 + 2};
    const double v[] = {0.1, NAN, -0.0};

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m,a=1", t[0], v[0]);
    kit_put(&k, "__name__=m,a=1", t[1], v[1]);
    kit_put(&k, "__name__=m,a=2", t[0], 5);
    kit_close(&k);
    kit_open(&k, fs, NULL);
    CHECK(k.replay.series_count == 2 && k.replay.sample_count == 3);
    CHECK(k.replay.unknown_ref_samples == 0 && k.replay.wal.bad_frame_count == 0);
    kit_check(&k, "__name__=m,a=1", 2, t, v);
    /* Known again by its labels, and judged by what was replayed. */
    kit_series(&k, "__name__=m,a=1");
    kit_sample(&k, t[1], v[1]);
    kit_sample(&k, t[2], v[2]);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.repeat_count == 1 && k.result.stored_count == 1);
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_abandon(&k);
    fs = fs_crash(fs, FS_SIM_DROP_ALL, 1);
    kit_open(&k, fs, NULL);
    CHECK(k.replay.series_count == 2 && k.replay.sample_count == 4);
    kit_check(&k, "__name__=m,a=1", 3, t, v);
    kit_check(&k, "__name__=m,a=2", 1, t, (double[]){5});
    kit_close(&k);
    fs_free(fs);
}

/* Damage is told until all shards have been sealed: then that log is gone. */
static void test_damage_is_told_once(void **state)
{
    static const struct engine_options options = {.shard_count = 2};
    struct fs *fs = test_fs_new(1);
    struct errinfo ei = {0};
    struct seal_result sealed;
    struct seal_state seal_state;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    for (int i = 0; i < 8; i++) {
        char labels[32];

        (void)snprintf(labels, sizeof labels, "__name__=m,a=%d", i);
        kit_put(&k, labels, T0, i); /* a commit each */
    }
    kit_close(&k);
    CHECK_OK(fs_sim_flip_bit(fs, "wal/00000001.wal", UINT64_C(8) * 150, &ei), &ei);
    for (int start = 0; start < 2; start++) {
        kit_open(&k, fs, &options);
        CHECK(k.replay.wal.bad_frame_count > 0);
        kit_close(&k);
    }
    kit_open(&k, fs, &options);
    for (uint32_t s = 0; s < options.shard_count; s++) {
        engine_seal_state(k.engine, s, &seal_state);
        CHECK(seal_state.log_is_damaged);
        CHECK_OK(engine_seal(k.engine, s, SEAL_LOG_SIZE, NULL, &sealed, &k.ei), &k.ei);
        engine_seal_state(k.engine, s, &seal_state);
        CHECK(!seal_state.log_is_damaged);
    }
    kit_close(&k);
    kit_open(&k, fs, &options);
    CHECK(k.replay.wal.bad_frame_count == 0 && k.replay.wal.lost_entry_count == 0);
    kit_close(&k);
    fs_free(fs);
}

/* What was acknowledged is loaded even if the limit has become too small for it. */
static void test_limit_lowered(void **state)
{
    struct fs *fs = test_fs_new(3);
    struct budget budget;
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m", T0, 1);
    kit_close(&k);
    budget_init(&budget, "storage", 1 << 20, NULL);
    kit_open(&k, fs, &(struct engine_options){.memory = &budget});
    CHECK(budget_used(&budget) > 1 << 20);
    kit_check(&k, "__name__=m", 1, (int64_t[]){T0}, (double[]){1});
    kit_series(&k, "__name__=m");
    kit_sample(&k, T0 + 1, 1);
    CHECK(kit_write(&k) == ERR_UNAVAILABLE);
    kit_close(&k);
    CHECK(budget_used(&budget) == 0);
    fs_free(fs);
}

/* A server may stop before replay: nothing is written, nothing is lost. */
static void test_close_before_replay(void **state)
{
    struct fs *fs = test_fs_new(4);
    struct clock clock;
    struct engine_options options = {.fs = fs, .clock = &clock};
    struct errinfo ei = {0};
    struct engine *e;
    struct kit k;

    (void)state;
    clock_init_fake(&clock, T0);
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m", T0, 1);
    kit_close(&k);
    CHECK_OK(engine_open(&options, &e, &ei), &ei);
    CHECK(engine_admit(e, NULL) == ERR_UNAVAILABLE);
    CHECK_OK(engine_close(e, 1000, &ei), &ei);
    CHECK_OK(engine_open(&options, &e, &ei), &ei);
    engine_abandon(e);
    kit_open(&k, fs, NULL);
    kit_check(&k, "__name__=m", 1, (int64_t[]){T0}, (double[]){1});
    kit_close(&k);
    fs_free(fs);
}

/* The manifest decides, not what a new directory would get. */
static void test_manifest_rules(void **state)
{
    struct fs *fs = test_fs_new(2);
    struct kit k;
    struct hash_secret secret;
    struct errinfo ei = {0};

    (void)state;
    CHECK(kit_try_open(&k, fs, &(struct engine_options){.shard_count = 3}) == ERR_INVALID);
    kit_open(&k, fs, &(struct engine_options){.shard_count = 4, .hash_secret_seed = 99});
    secret = *engine_hash_secret(k.engine);
    kit_put(&k, "__name__=m", T0, 1);
    struct kit second;
    CHECK(kit_try_open(&second, fs, NULL) == ERR_LOCKED);
    kit_close(&k);
    kit_open(&k, fs, &(struct engine_options){.new_shard_count = 8, .hash_secret_seed = 7});
    CHECK(engine_shard_count(k.engine) == 4);
    CHECK(memcmp(&secret, engine_hash_secret(k.engine), sizeof secret) == 0);
    kit_check(&k, "__name__=m", 1, (int64_t[]){T0}, (double[]){1});
    kit_close(&k);
    CHECK_OK(fs_sim_flip_bit(fs, MANIFEST_PATH, 800, &ei), &ei);
    CHECK(kit_try_open(&k, fs, NULL) == ERR_CORRUPT);
    CHECK_OK(fs_unlink(fs, MANIFEST_PATH, &ei), &ei); /* a log without a manifest */
    CHECK(kit_try_open(&k, fs, NULL) == ERR_CORRUPT);
    fs_free(fs);
}

/* ---- random requests against a plain model ---- */

enum { MODEL_SERIES = 40, MODEL_SAMPLES = 3000, MODEL_STEPS = 600 };

struct model_series {
    size_t count;
    int64_t t_ms[MODEL_SAMPLES];
    double value[MODEL_SAMPLES];
};

static double model_value(struct test_random *r, double before)
{
    switch (test_random_below(r, 6)) {
    case 0:
        return before;
    case 1:
        return double_from_bits(test_random_u64(r));
    case 2:
        return double_from_bits(STALE_NAN_BITS);
    case 3:
        return round(before) + (double)test_random_below(r, 100);
    default:
        return (double)test_random_below(r, 100000) / 100;
    }
}

/* What the rules say of one sample; puts it into the model when it is stored, late or not. */
static void model_expect(struct model_series *m, int64_t t_ms, double v, uint64_t expected[3])
{
    enum { STORED, REPEAT, DUPLICATE };
    size_t i = m->count;

    while (i > 0 && m->t_ms[i - 1] >= t_ms)
        i--;
    if (i < m->count && m->t_ms[i] == t_ms) {
        expected[double_bits(m->value[i]) == double_bits(v) ? REPEAT : DUPLICATE]++;
        return;
    }
    memmove(&m->t_ms[i + 1], &m->t_ms[i], (m->count - i) * sizeof m->t_ms[0]);
    memmove(&m->value[i + 1], &m->value[i], (m->count - i) * sizeof m->value[0]);
    m->t_ms[i] = t_ms;
    m->value[i] = v;
    m->count++;
    expected[STORED]++;
}

static void model_request(struct kit *k, struct test_random *r, struct model_series *model)
{
    uint64_t expected[3] = {0};
    size_t series_count = 1 + test_random_below(r, 30);
    size_t first = test_random_below(r, MODEL_SERIES);

    for (size_t n = 0; n < series_count; n++) {
        /* Each series once: known and new spellings of one are not taken in the order sent. */
        size_t s = (first + n * 7) % MODEL_SERIES, samples = test_random_below(r, 12);
        struct model_series *m = &model[s];
        char labels[96];

        /* The same series in several spellings. */
        (void)snprintf(labels, sizeof labels,
                       test_random_below(r, 4) ? "__name__=m,id=%zu" : "id=%zu,__name__=m,x=", s);
        kit_series(k, labels);
        for (size_t i = 0; i < samples && m->count + 1 < MODEL_SAMPLES; i++) {
            bool is_new = m->count == 0 || test_random_below(r, 4) > 0;
            size_t old = m->count == 0 ? 0 : test_random_below(r, m->count);
            int64_t t = is_new ? (m->count == 0 ? T0 : m->t_ms[m->count - 1]) +
                                     (int64_t)test_random_below(r, 40000)
                               : m->t_ms[old] + (int64_t)test_random_below(r, 2);
            double v = is_new || test_random_below(r, 2) ? model_value(r, 5) : m->value[old];

            kit_sample(k, t, v);
            model_expect(m, t, v, expected);
        }
    }
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.stored_count == expected[0] && k->result.repeat_count == expected[1]);
    CHECK(k->result.refused[REFUSAL_DUPLICATE_TIMESTAMP] == expected[2]);
}

static void model_check(struct kit *k, const struct model_series *model)
{
    for (size_t s = 0; s < MODEL_SERIES; s++) {
        char labels[64];

        (void)snprintf(labels, sizeof labels, "__name__=m,id=%zu", s);
        kit_check(k, labels, model[s].count, model[s].t_ms, model[s].value);
    }
}

static void test_model(void **state)
{
    struct test_random r = test_random_init(2026);
    struct model_series *model = calloc(MODEL_SERIES, sizeof *model);
    struct fs *fs = test_fs_new(8);
    struct kit k;

    (void)state;
    CHECK(model != NULL);
    kit_open(&k, fs, &(struct engine_options){.shard_count = 4});
    for (int step = 0; step < MODEL_STEPS; step++) {
        clock_set_fake(&k.clock, T0 + ((int64_t)1 << 40));
        model_request(&k, &r, model);
        if (test_random_below(&r, 60) != 0)
            continue;
        model_check(&k, model);
        if (test_random_below(&r, 2)) {
            kit_close(&k);
        } else { /* power loss after an acknowledgement of everything */
            for (uint32_t i = 0; i < 4; i++) {
                mutex_lock(&k.engine->shards[i].lock);
                k.sequences[i] = k.engine->shards[i].log.sequence;
                mutex_unlock(&k.engine->shards[i].lock);
            }
            CHECK_OK(kit_wait(&k), &k.ei);
            kit_abandon(&k);
            fs = fs_crash(fs, FS_SIM_DROP_ALL, test_random_u64(&r));
        }
        kit_open(&k, fs, NULL);
        CHECK(k.replay.wal.lost_entry_count == 0 && k.replay.unknown_ref_samples == 0);
        model_check(&k, model);
    }
    model_check(&k, model);
    kit_close(&k);
    fs_free(fs);
    free(model);
}

/* ---- records as no writer of this version puts them ---- */

static void apply(struct kit *k, const struct byte_writer *payload)
{
    struct wal_sink sink = engine_replay_sink(k->engine);

    CHECK(!payload->failed);
    CHECK_OK(sink.apply(sink.ctx, 0, 1, 1, (struct bytes){payload->data, payload->size}, &k->ei),
             &k->ei);
}

static void put_sample(struct byte_writer *out, enum record_type type, uint32_t slot, int64_t t_ms,
                       double value)
{
    struct log_segment *seg = calloc(1, sizeof *seg);

    CHECK(seg != NULL);
    seg->count = 1;
    seg->items[0] = (struct log_entry){
        .slot = slot, .scale = CHUNK_SCALE_RAW, .t_ms = t_ms, .bits = double_bits(value)};
    record_samples_write(out, type, seg);
    free(seg);
}

/* In-order entries that a seal has taken are passed over without a word; late ones come again. */
static void test_covered_entries(void **state)
{
    struct fs *fs = test_fs_new(5);
    struct byte_writer w;
    struct shard *s;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    kit_put(&k, "__name__=m", T0, 1);
    s = engine_shard(k.engine, 0);
    writer_init(&w);
    put_sample(&w, RECORD_SAMPLES, 0, T0 - 5, 2);
    apply(&k, &w);
    CHECK(s->stale_samples == 1 && s->sealed_samples == 0);
    s->covered_sequence = 1;
    put_sample(&w, RECORD_LATE, 0, T0 - 7, 3);
    put_sample(&w, RECORD_LATE, 0, T0 - 7, 4);
    put_sample(&w, RECORD_LATE, 0, CHUNK_TIME_MIN_MS - 1, 4);
    put_sample(&w, RECORD_LATE, 0, T0 + 1, 5);
    apply(&k, &w);
    apply(&k, &w);
    CHECK(s->stale_samples == 3 && s->sealed_samples == 2);
    kit_check(&k, "__name__=m", 3, (int64_t[]){T0 - 7, T0, T0 + 1}, (double[]){3, 1, 5});
    writer_done(&w);
    kit_close(&k);
    fs_free(fs);
}

/* Samples of a slot that the files have named but no series has: of one that ended, unless the log
 * is damaged. */
static void test_slots_of_ended_series(void **state)
{
    struct fs *fs = test_fs_new(8);
    struct byte_writer w;

    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        struct engine_replay_result result = {.wal = {.bad_frame_count = (uint64_t)damaged}};
        struct shard *s;
        struct kit k;

        kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
        s = engine_shard(k.engine, 0);
        s->file_slot_end = 7;
        writer_init(&w);
        put_sample(&w, RECORD_SAMPLES, 6, T0, 2);
        apply(&k, &w);
        CHECK(s->held.count == 1 && s->unknown_slot_end == 0);
        engine_replay_finish(k.engine, &result);
        CHECK(s->held.count == 0 && result.unknown_ref_samples == (uint64_t)damaged);
        CHECK(s->unknown_slot_end == (damaged != 0 ? 7U : 0U));
        writer_reset(&w);
        put_sample(&w, RECORD_SAMPLES, 7, T0, 2); /* beyond what files have named */
        apply(&k, &w);
        engine_replay_finish(k.engine, &result);
        CHECK(s->unknown_ref_samples == 1 + (uint64_t)damaged && s->unknown_slot_end == 8);
        writer_done(&w);
        kit_close(&k);
    }
    fs_free(fs);
}

/* Late samples are held too until their series is defined. */
static void test_held_late(void **state)
{
    static const uint8_t labels[] = "\010__name__\001z";
    const struct definition d = {1, 0, {labels, sizeof labels - 1}}, none = {0};
    struct fs *fs = test_fs_new(6);
    uint8_t definition[64];
    struct byte_writer w;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    kit_put(&k, "__name__=m", T0, 1);
    writer_init(&w);
    put_sample(&w, RECORD_SAMPLES, 1, T0, 2);
    put_sample(&w, RECORD_LATE, 1, T0 - 7, 3);
    put_sample(&w, RECORD_SAMPLES, 1, T0 + 1, 4);
    apply(&k, &w);
    kit_check(&k, "__name__=z", 0, NULL, NULL);
    writer_reset(&w);
    record_series_write(&w, (struct bytes){definition, definition_write(definition, &d, &none)}, 1);
    apply(&k, &w);
    kit_check(&k, "__name__=z", 3, (int64_t[]){T0 - 7, T0, T0 + 1}, (double[]){3, 2, 4});
    CHECK(engine_shard(k.engine, 0)->late_count == 1);
    writer_done(&w);
    kit_close(&k);
    fs_free(fs);
}

/* A histogram of one bucket, whose count is its sum. */
static void put_histogram(struct byte_writer *out, enum record_type type, uint32_t slot,
                          int64_t t_ms, double count)
{
    static const struct histogram_span span = {1, 1};
    struct histogram h = {.zero_threshold = 0x1p-128, .count = count, .sum = count};
    struct log_segment *seg = calloc(1, sizeof *seg);
    uint8_t packed[128], sized[130];
    size_t size, head;

    CHECK(seg != NULL);
    h.positive = (struct histogram_side){&span, 1, &count, 1};
    size = histogram_pack(packed, &h, NULL);
    head = varint_write(sized, size);
    memcpy(sized + head, packed, size);
    seg->count = 1;
    seg->items[0] = (struct log_entry){
        .slot = slot, .scale = RECORD_SCALE_HISTOGRAM, .t_ms = t_ms, .bits = (uintptr_t)sized};
    record_samples_write(out, type, seg);
    free(seg);
}

/* So are histograms, and in the order of the log: a float that came later does not overtake them.
 */
static void test_held_histograms(void **state)
{
    static const uint8_t labels[] = "\010__name__\001z";
    const struct definition d = {1, 0, {labels, sizeof labels - 1}}, none = {0};
    struct fs *fs = test_fs_new(7);
    uint8_t definition[64];
    struct column got = {0};
    struct byte_writer w;
    struct arena arena;
    struct shard *s;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    kit_put(&k, "__name__=m", T0, 1);
    s = engine_shard(k.engine, 0);
    writer_init(&w);
    put_histogram(&w, RECORD_MIXED, 1, T0, 2);
    put_histogram(&w, RECORD_LATE_MIXED, 1, T0 - 7, 3);
    put_sample(&w, RECORD_MIXED, 1, T0 + 1, 4);
    put_histogram(&w, RECORD_MIXED, 1, T0 + 2, 5);
    put_histogram(&w, RECORD_MIXED, 7, T0 + 2, 5); /* of a series that nobody defines */
    apply(&k, &w);
    memset(w.data, 0xff, w.size); /* what is held is no part of the frame */
    CHECK(s->held.count == 5 && s->held.histogram_bytes > 0);
    kit_check(&k, "__name__=z", 0, NULL, NULL);
    writer_reset(&w);
    record_series_write(&w, (struct bytes){definition, definition_write(definition, &d, &none)}, 1);
    apply(&k, &w);
    kit_check(&k, "__name__=z", 4, (int64_t[]){T0 - 7, T0, T0 + 1, T0 + 2}, (double[]){3, 2, 4, 5});
    arena_init(&arena, NULL);
    CHECK(kit_read(&k, &arena, "__name__=z", T0, T0 + 1, &got) && got.count == 2);
    CHECK(got.histogram[0] != NULL && got.histogram[0]->count == 2 && got.histogram[1] == NULL);
    arena_done(&arena);
    CHECK(s->late_count == 1 && s->histogram_count == 2 && s->held.count == 1);
    writer_done(&w);
    kit_close(&k);
    fs_free(fs);
}

/* A form that is none is damage of its frame. */
static void test_bad_histogram(void **state)
{
    struct fs *fs = test_fs_new(8);
    struct wal_sink sink;
    struct byte_writer w;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    kit_put(&k, "__name__=m", T0, 1);
    sink = engine_replay_sink(k.engine);
    writer_init(&w);
    put_histogram(&w, RECORD_MIXED, 0, T0 + 1, 2);
    w.data[w.size - 1] ^= 0x80; /* the last varint goes on behind the end */
    CHECK(sink.apply(sink.ctx, 0, 1, 1, (struct bytes){w.data, w.size}, &k.ei) == ERR_CORRUPT);
    kit_check(&k, "__name__=m", 1, (int64_t[]){T0}, (double[]){1});
    writer_done(&w);
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_limit_lowered),
        cmocka_unit_test(test_close_before_replay),
        cmocka_unit_test(test_manifest_rules),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_covered_entries),
        cmocka_unit_test(test_slots_of_ended_series),
        cmocka_unit_test(test_held_late),
        cmocka_unit_test(test_held_histograms),
        cmocka_unit_test(test_bad_histogram),
        cmocka_unit_test(test_damage_is_told_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
