/* The log through engine_open(), write, crash and replay, on the simulated file layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/manifest_internal.h"
#include "engine/memtable_internal.h"
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

/* The manifest decides, not the options. */
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
    kit_open(&k, fs, &(struct engine_options){.shard_count = 8, .hash_secret_seed = 7});
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

/* What the rules say of one sample; appends it to the model when it is stored. */
static void model_expect(struct model_series *m, int64_t t_ms, double v, uint64_t expected[4])
{
    enum { STORED, REPEAT, OUT_OF_ORDER, DUPLICATE };
    size_t i = 0;

    if (m->count == 0 || t_ms > m->t_ms[m->count - 1]) {
        m->t_ms[m->count] = t_ms;
        m->value[m->count++] = v;
        expected[STORED]++;
        return;
    }
    while (i < m->count && m->t_ms[i] != t_ms)
        i++;
    if (i == m->count)
        expected[OUT_OF_ORDER]++;
    else
        expected[double_bits(m->value[i]) == double_bits(v) ? REPEAT : DUPLICATE]++;
}

static void model_request(struct kit *k, struct test_random *r, struct model_series *model)
{
    uint64_t expected[4] = {0};
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
    CHECK(k->result.refused[REFUSAL_OUT_OF_ORDER] == expected[2]);
    CHECK(k->result.refused[REFUSAL_DUPLICATE_TIMESTAMP] == expected[3]);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_limit_lowered),
        cmocka_unit_test(test_close_before_replay),
        cmocka_unit_test(test_manifest_rules),
        cmocka_unit_test(test_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
