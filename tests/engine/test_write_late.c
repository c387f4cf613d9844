/* Samples older than their series' newest: what is stored, what is refused, and by which clock. */
#include <math.h>

#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS

static void put_one(struct kit *k, int64_t t_ms, double value, uint64_t stored, uint64_t repeats)
{
    kit_series(k, "__name__=m");
    kit_sample(k, t_ms, value);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK_MSG(k->result.stored_count == stored && k->result.repeat_count == repeats, "%s",
              k->result.examples[0]);
    CHECK(k->result.refused_count == 1 - stored - repeats);
}

static void refuse_one(struct kit *k, int64_t t_ms, double value, enum refusal reason)
{
    put_one(k, t_ms, value, 0, 0);
    CHECK_MSG(k->result.refused[reason] == 1, "%s", k->result.examples[0]);
}

/* A series whose first samples come in any order, with bits that a comparison would lose. */
static void test_late_samples(void **state)
{
    const int64_t t[] = {T0 - 40000000, T0 - 2, T0 - 1, T0};
    const double v[] = {double_from_bits(STALE_NAN_BITS), -0.0, 0.1, 4};
    struct fs *fs = test_fs_new(1);
    struct engine_stats stats;
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    kit_series(&k, "__name__=m");
    for (int i = 0; i < 4; i++)
        kit_sample(&k, t[3 - i], v[3 - i]);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.stored_count == 4);
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_check(&k, "__name__=m", 4, t, v);
    for (int i = 0; i < 4; i++)
        put_one(&k, t[i], v[i], 0, 1);
    refuse_one(&k, t[1], 0.0, REFUSAL_DUPLICATE_TIMESTAMP);
    refuse_one(&k, t[0], NAN, REFUSAL_DUPLICATE_TIMESTAMP);
    engine_stats_get(k.engine, &stats);
    CHECK(stats.sample_count == 1 && stats.late_sample_count == 3 && stats.late_bytes > 0);
    CHECK(stats.min_time_ms == t[0] && stats.max_time_ms == T0);
    kit_close(&k);
    kit_open(&k, fs, NULL); /* through the log */
    CHECK(k.replay.sample_count == 4);
    kit_check(&k, "__name__=m", 4, t, v);
    put_one(&k, t[0], v[0], 0, 1);
    kit_close(&k);
    fs_free(fs);
}

/* What a seal is writing is judged, and read, as if it were still in the buffer. */
static void test_frozen_late_samples(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct histogram_lane taken_histograms;
    struct late_buffer taken;
    struct shard *s;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    s = engine_shard(k.engine, 0);
    put_one(&k, T0, 1, 1, 0);
    put_one(&k, T0 - 5, 2, 1, 0);
    shard_late_freeze(s);
    put_one(&k, T0 - 5, 2, 0, 1);
    refuse_one(&k, T0 - 5, 3, REFUSAL_DUPLICATE_TIMESTAMP);
    put_one(&k, T0 - 6, 4, 1, 0);
    shard_late_freeze(s); /* not while the other is there */
    CHECK(s->late.sample_count == 1 && s->late_frozen.sample_count == 1);
    CHECK(atomic_load(&s->late_count) == 2);
    kit_check(&k, "__name__=m", 3, (int64_t[]){T0 - 6, T0 - 5, T0}, (double[]){4, 2, 1});
    shard_late_take(s, &taken, &taken_histograms);
    CHECK(taken.sample_count == 1 && atomic_load(&s->late_count) == 1);
    late_buffer_done(&taken);
    histogram_lane_done(&taken_histograms);
    kit_check(&k, "__name__=m", 2, (int64_t[]){T0 - 6, T0}, (double[]){4, 1});
    put_one(&k, T0 - 5, 3, 1, 0); /* a file has it: that is for the readers and merges */
    kit_close(&k);
    fs_free(fs);
}

static void test_retention(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.retention_ms = 1000});
    CHECK(engine_now_ms(k.engine) == T0);
    put_one(&k, T0 - 1000, 1, 1, 0);
    refuse_one(&k, T0 - 1001, 1, REFUSAL_TOO_OLD);
    put_one(&k, T0, 1, 1, 0);
    put_one(&k, T0 - 999, 1, 1, 0); /* late */
    refuse_one(&k, T0 - 1001, 1, REFUSAL_TOO_OLD);
    clock_set_fake(&k.clock, T0 + 1);
    refuse_one(&k, T0 - 1000, 1, REFUSAL_TOO_OLD); /* time goes on */
    kit_close(&k);
    fs_free(fs);
}

static void test_retention_by_data(void **state)
{
    const int64_t old = T0 - INT64_C(400000000000);
    struct fs *fs = test_fs_new(1);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.retention_ms = 1000, .clock_is_data = true});
    CHECK(engine_now_ms(k.engine) == CHUNK_TIME_MIN_MS);
    put_one(&k, old, 1, 1, 0);
    CHECK(engine_now_ms(k.engine) == old);
    put_one(&k, old - 1000, 1, 1, 0);
    refuse_one(&k, old - 1001, 1, REFUSAL_TOO_OLD);
    put_one(&k, T0 + 600000, 1, 1, 0);
    CHECK(engine_now_ms(k.engine) == T0); /* never past the wall clock */
    put_one(&k, T0 - 1000, 1, 1, 0);
    refuse_one(&k, T0 - 1001, 1, REFUSAL_TOO_OLD);
    kit_close(&k);
    fs_free(fs);
}

/* The window counts from the newest sample of all series, and concerns only late ones. */
static void test_out_of_order_window(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.out_of_order_window_ms = 1000});
    kit_put(&k, "__name__=other", T0, 1);
    put_one(&k, T0 - 5000, 1, 1, 0); /* the series' newest: not late */
    put_one(&k, T0 - 3000, 2, 1, 0);
    put_one(&k, T0 - 5000, 1, 0, 1); /* a repeat of any age */
    refuse_one(&k, T0 - 5000, 2, REFUSAL_DUPLICATE_TIMESTAMP);
    refuse_one(&k, T0 - 4000, 1, REFUSAL_OUT_OF_ORDER);
    put_one(&k, T0, 1, 1, 0);
    put_one(&k, T0 - 1000, 5, 1, 0);
    refuse_one(&k, T0 - 1001, 5, REFUSAL_OUT_OF_ORDER);
    kit_put(&k, "__name__=other", T0 + 500, 1);
    put_one(&k, T0 - 1000, 5, 0, 1); /* out of the window by now, but known */
    refuse_one(&k, T0 - 1000, 6, REFUSAL_DUPLICATE_TIMESTAMP);
    refuse_one(&k, T0 - 999, 5, REFUSAL_OUT_OF_ORDER);
    kit_close(&k);
    fs_free(fs);
}

/* Runs of late samples across many chunks and the gaps between them, from either end. */
static void test_gaps(void **state)
{
    enum { CHUNKS = 30, EVERY = 10 };
    struct fs *fs = test_fs_new(1);
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    kit_series(&k, "__name__=m");
    for (int64_t i = 0; i < CHUNKS; i++)
        for (int64_t n = 0; n < CHUNK_SAMPLE_MAX; n++) /* chunks are 1 s, with 1 s between them */
            kit_sample(&k, T0 - 1000000 + i * 2000 + n * EVERY, (double)n);
    CHECK_OK(kit_write(&k), &k.ei);
    for (int pass = 0; pass < 4; pass++) {
        uint64_t repeats = 0, late = 0;

        kit_series(&k, "__name__=m");
        for (int64_t i = 0; i < CHUNKS * 2000 / EVERY; i++) {
            int64_t at = (pass % 2 == 0 ? i : CHUNKS * 2000 / EVERY - 1 - i) * EVERY;
            int64_t n = at % 2000 / EVERY;

            if (at > (CHUNKS - 1) * 2000 + (CHUNK_SAMPLE_MAX - 1) * EVERY)
                continue;
            kit_sample(&k, T0 - 1000000 + at, n < CHUNK_SAMPLE_MAX ? (double)n : (double)-at);
            repeats += n < CHUNK_SAMPLE_MAX;
            late += n >= CHUNK_SAMPLE_MAX;
        }
        CHECK_OK(kit_write(&k), &k.ei);
        CHECK(k.result.repeat_count == repeats + (pass == 0 ? 0 : late));
        CHECK(k.result.stored_count == (pass == 0 ? late : 0));
    }
    put_one(&k, T0 - 2000000, 1, 1, 0); /* before all */
    put_one(&k, T0 - 2000000, 1, 0, 1);
    kit_close(&k);
    fs_free(fs);
}

/* After a delete only a bound of the newest time is known: it is no sample's. */
static void test_newest_lowered(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct series *series;
    struct shard *s;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    s = engine_shard(k.engine, 0);
    put_one(&k, T0, 1, 1, 0);
    series = series_at(&s->series, 0);
    CHECK(chunk_cut(series, &s->blocks));
    series_lower_newest(series, T0 + 1); /* nothing to lower */
    put_one(&k, T0, 1, 0, 1);
    series->closed = 0; /* the delete seals it */
    series_lower_newest(series, T0);
    CHECK(series->newest_ms == T0 - 1);
    put_one(&k, T0 - 1, 2, 1, 0);
    put_one(&k, T0 - 1, 2, 0, 1);
    refuse_one(&k, T0 - 1, 3, REFUSAL_DUPLICATE_TIMESTAMP);
    put_one(&k, T0, 4, 1, 0); /* filled again, in order */
    CHECK(series->open_count == 1 && series->newest_ms == T0);
    kit_check(&k, "__name__=m", 2, (int64_t[]){T0 - 1, T0}, (double[]){2, 4});
    CHECK(chunk_cut(series, &s->blocks));
    series_lower_newest(series, INT64_MIN);
    CHECK(series->newest_ms == INT64_MIN);
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_samples),        cmocka_unit_test(test_frozen_late_samples),
        cmocka_unit_test(test_retention),           cmocka_unit_test(test_retention_by_data),
        cmocka_unit_test(test_out_of_order_window), cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_newest_lowered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
