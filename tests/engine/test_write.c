/* The write path: every rule for labels and samples, and what the answer says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/read_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS

static struct fs *fs_new(void)
{
    struct fs *fs;
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    return fs;
}

static void expect(const struct kit *k, uint64_t stored, uint64_t repeats, uint64_t refused)
{
    CHECK_MSG(k->result.stored_count == stored && k->result.repeat_count == repeats &&
                  k->result.refused_count == refused,
              "stored %d, repeated %d, refused %d: %s", (int)k->result.stored_count,
              (int)k->result.repeat_count, (int)k->result.refused_count, k->result.examples[0]);
    CHECK(k->result.sample_count == stored + repeats + refused);
}

static void test_store_and_read(void **state)
{
    struct fs *fs = fs_new();
    struct kit k;
    const double v[] = {1.5, -0.0, NAN, 1e300};
    const int64_t t[] = {T0, T0 + 15000, T0 + 30000, T0 + 30001};

    (void)state;
    kit_open(&k, fs, NULL);
    CHECK(engine_shard_count(k.engine) == 16);
    kit_series(&k, "__name__=up,job=a");
    for (int i = 0; i < 4; i++)
        kit_sample(&k, t[i], v[i]);
    kit_series(&k, "__name__=up,job=b");
    kit_sample(&k, T0, 7);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 5, 0, 0);
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_check(&k, "__name__=up,job=a", 4, t, v);
    kit_check(&k, "__name__=up,job=b", 1, t, (double[]){7});
    kit_check(&k, "__name__=up,job=c", 0, NULL, NULL);
    kit_close(&k);
    fs_free(fs);
}

/* More labels than the index takes is a refusal: a 503 would be retried for ever. */
static void test_label_count_limit(void **state)
{
    struct byte_writer w;
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    writer_init(&w);
    writer_printf(&w, "__name__=wide");
    for (int i = 1; i < INDEX_LABEL_COUNT_MAX; i++)
        writer_printf(&w, ",a%04d=x", i);
    writer_u8(&w, 0);
    CHECK(!w.failed);
    kit_open(&k, fs, NULL);
    kit_series(&k, (const char *)w.data);
    kit_sample(&k, T0, 1);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 1, 0, 0);
    w.size--;
    writer_printf(&w, ",b=x");
    writer_u8(&w, 0);
    CHECK(!w.failed);
    kit_series(&k, (const char *)w.data);
    kit_sample(&k, T0, 1);
    kit_series(&k, "__name__=good");
    kit_sample(&k, T0, 1);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 1, 0, 1);
    CHECK(k.result.refused[REFUSAL_LIMIT] == 1);
    kit_close(&k);
    fs_free(fs);
    writer_done(&w);
}

/* The rest of a request is stored when one series is refused. */
static void test_refused_labels(void **state)
{
    static const struct {
        const char *labels, *example;
        enum refusal reason;
    } cases[] = {
        {"job=a", "invalid_labels: {job=\"a\"} 1767225600000", REFUSAL_INVALID_LABELS},
        {"__name__=,job=a", "invalid_labels: {job=\"a\"} 1767225600000", REFUSAL_INVALID_LABELS},
        {"__name__=up,=a", NULL, REFUSAL_INVALID_LABELS},
        {"__name__=up,=", NULL, REFUSAL_INVALID_LABELS},
        {"__name__=up,a=1,a=2", NULL, REFUSAL_DUPLICATE_LABEL},
        {"__name__=up,a=1,b=2,a=1", NULL, REFUSAL_DUPLICATE_LABEL},
        {"__name__=up,__name__=up", NULL, REFUSAL_DUPLICATE_LABEL},
        {"__name__=up,a=\xff", NULL, REFUSAL_INVALID_UTF8},
        {"__name__=up,\xc0\x80=1", NULL, REFUSAL_INVALID_UTF8},
        {"__name__=\xed\xa0\x80,b=1", NULL, REFUSAL_INVALID_UTF8},
    };
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kit_series(&k, cases[i].labels);
        kit_sample(&k, T0, 1);
        kit_sample(&k, T0 + 1, 1);
        kit_series(&k, "__name__=good");
        kit_sample(&k, T0 + (int64_t)i, 1);
        CHECK_OK(kit_write(&k), &k.ei);
        expect(&k, 1, 0, 2);
        CHECK_MSG(k.result.refused[cases[i].reason] == 2, "case %zu", i);
        CHECK(k.result.example_count == 2);
        if (cases[i].example != NULL)
            CHECK_MSG(strcmp(k.result.examples[0], cases[i].example) == 0, "%s",
                      k.result.examples[0]);
        CHECK(strncmp(k.result.examples[0], refusal_name(cases[i].reason),
                      strlen(refusal_name(cases[i].reason))) == 0);
    }
    /* Bytes that are no labels at all. */
    kit_series_wire(&k, (struct bytes){(const uint8_t *)"\x05", 1});
    kit_sample(&k, T0, 1);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 0, 0, 1);
    CHECK(k.result.refused[REFUSAL_INVALID_LABELS] == 1);
    kit_close(&k);
    fs_free(fs);
}

/* Unsorted labels, empty values and other spellings are one series; each further key is an alias.
 */
static void test_spellings(void **state)
{
    struct fs *fs = fs_new();
    struct engine_stats stats;
    struct kit k;
    const int64_t t[] = {T0, T0 + 1, T0 + 2, T0 + 3};
    const double v[] = {1, 2, 3, 4};

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m,a=1,b=2", t[0], v[0]);
    kit_put(&k, "b=2,a=1,__name__=m", t[1], v[1]);
    kit_put(&k, "__name__=m,a=1,b=2,c=", t[2], v[2]);
    kit_put(&k, "b=2,a=1,__name__=m", t[3], v[3]);
    kit_check(&k, "__name__=m,a=1,b=2", 4, t, v);
    engine_stats_get(k.engine, &stats);
    CHECK(stats.series_count == 1 && stats.front_table_entries == 3);
    CHECK(stats.front_table_aliases == 2);
    CHECK(atomic_load(&k.engine->slow_path_series) == 3);
    /* UTF-8 beyond legacy names is fine, as in Prometheus 3. */
    kit_put(&k, "__name__=temp\xc3\xa9rature,\xe6\xb8\xa9 \xe5\xba\xa6=1.5", T0, 1);
    kit_close(&k);
    fs_free(fs);
}

static void test_alias_bound(void **state)
{
    struct fs *fs = fs_new();
    struct engine_stats stats;
    struct kit k;
    uint64_t bound = ENGINE_ALIASES_FREE + ENGINE_ALIASES_PER_SERIES;

    (void)state;
    kit_open(&k, fs, NULL);
    for (uint64_t i = 0; i < bound + 100; i++) {
        char labels[128];

        /* A label with an empty value is left out: all are the same series. */
        snprintf(labels, sizeof labels, "__name__=m,x%llu=", (unsigned long long)i);
        kit_series(&k, labels);
        kit_sample(&k, T0 + (int64_t)i, 1);
        CHECK_OK(kit_write(&k), &k.ei);
        expect(&k, 1, 0, 0);
    }
    engine_stats_get(k.engine, &stats);
    CHECK(stats.series_count == 1 && stats.front_table_aliases == bound);
    CHECK(stats.front_table_entries == bound + 1);
    kit_close(&k);
    fs_free(fs);
}

static bool check_size(const void *ctx, struct bytes wire)
{
    return wire.size != *(const size_t *)ctx;
}

/* Labels of unknown keys are asked about before anything is stored or counted. */
static void test_labels_check(void **state)
{
    struct fs *fs = fs_new();
    struct engine_stats stats;
    size_t bad_size = 0;
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=known", T0, 1);
    for (int i = 0; i < 3; i++) {
        kit_series(&k, "__name__=known");
        kit_sample(&k, T0 + 1000, 2);
        kit_series(&k, i == 1 ? "__name__=unknown" : "__name__=new");
        bad_size = k.batch->series[i == 2 ? 0 : 1].wire_labels.size;
        kit_sample(&k, T0 + 1000, 2);
        k.batch->labels_check = check_size;
        k.batch->labels_ctx = &bad_size;
        k.batch->invalid_count = 1; /* a refused histogram is not counted either */
        k.batch->invalid[0] = (struct write_invalid){.series = 0, .t_ms = T0, .text = "bad"};
        if (i < 2) {
            CHECK(kit_write(&k) == ERR_INVALID);
            engine_stats_get(k.engine, &stats);
            CHECK(stats.samples_appended == 1);
            CHECK(atomic_load(&k.engine->samples_refused[REFUSAL_INVALID_HISTOGRAM]) == 0);
            kit_check(&k, "__name__=known", 1, (int64_t[]){T0}, (double[]){1});
            kit_check(&k, "__name__=new", 0, NULL, NULL);
        } else { /* that of the known one: nobody asks */
            CHECK_OK(kit_write(&k), &k.ei);
            expect(&k, 2, 0, 1);
        }
        k.batch->labels_check = NULL;
        k.batch->labels_ctx = NULL;
    }
    kit_check(&k, "__name__=known", 2, (int64_t[]){T0, T0 + 1000}, (double[]){1, 2});
    kit_check(&k, "__name__=new", 1, (int64_t[]){T0 + 1000}, (double[]){2});
    kit_close(&k);
    fs_free(fs);
}

static void test_time_rules(void **state)
{
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m", T0, 1);

    kit_series(&k, "__name__=m"); /* the newest once more */
    kit_sample(&k, T0, 1);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 0, 1, 0);

    kit_series(&k, "__name__=m");
    kit_sample(&k, T0, 2);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 0, 0, 1);
    CHECK(k.result.refused[REFUSAL_DUPLICATE_TIMESTAMP] == 1);
    CHECK(strcmp(k.result.examples[0], "duplicate_timestamp: {__name__=\"m\"} 1767225600000") == 0);

    kit_put(&k, "__name__=m", T0 + 10, 3);
    kit_put(&k, "__name__=m", T0 + 20, 4);
    kit_series(&k, "__name__=m");
    kit_sample(&k, T0 + 10, 3);             /* in memory: a repeat */
    kit_sample(&k, T0, 5);                  /* in memory, another value */
    kit_sample(&k, T0 + 15, 3);             /* between two: late */
    kit_sample(&k, T0 - 1, 3);              /* before all */
    kit_sample(&k, T0 + 15, 3);             /* and once more */
    kit_sample(&k, T0 - 1, 4);              /* with another value */
    kit_sample(&k, -((int64_t)1 << 50), 3); /* no year of ours */
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 2, 2, 3);
    CHECK(k.result.refused[REFUSAL_DUPLICATE_TIMESTAMP] == 2);
    CHECK(k.result.refused[REFUSAL_TOO_OLD] == 1);

    kit_series(&k, "__name__=m"); /* ten minutes ahead is the last that goes */
    kit_sample(&k, T0 + 600000, 1);
    kit_sample(&k, T0 + 600001, 1);
    kit_sample(&k, INT64_MAX, 1);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 1, 0, 2);
    CHECK(k.result.refused[REFUSAL_TOO_FAR_IN_FUTURE] == 2);
    CHECK(strcmp(k.result.examples[1], "too_far_in_future: {__name__=\"m\"} 9223372036854775807") ==
          0);
    kit_close(&k);
    fs_free(fs);
}

/* Two NaN of different payload are two values; zero and minus zero too. */
static void test_bits_decide(void **state)
{
    struct fs *fs = fs_new();
    struct kit k;
    double stale = double_from_bits(STALE_NAN_BITS);

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m", T0, stale);
    kit_series(&k, "__name__=m");
    kit_sample(&k, T0, stale);
    kit_sample(&k, T0, NAN);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 0, 1, 1);
    kit_put(&k, "__name__=m", T0 + 1, 0.0);
    kit_series(&k, "__name__=m");
    kit_sample(&k, T0 + 1, -0.0);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 0, 0, 1);
    kit_close(&k);
    fs_free(fs);
}

/* A request of many series and samples may be sent again as a whole, also after others. */
static void test_retry_whole_request(void **state)
{
    enum { SERIES = 50, SAMPLES = 300, TOTAL = SERIES * SAMPLES };
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    clock_set_fake(&k.clock, T0 + (int64_t)SAMPLES * 15000);
    for (int pass = 0; pass < 3; pass++) {
        for (int s = 0; s < SERIES; s++) {
            char labels[64];

            snprintf(labels, sizeof labels, "__name__=m,s=%d", s);
            kit_series(&k, labels);
            for (int i = 0; i < SAMPLES; i++)
                kit_sample(&k, T0 + (int64_t)15000 * i, i * 0.25 + s);
        }
        CHECK_OK(kit_write(&k), &k.ei);
        if (pass == 0)
            expect(&k, TOTAL, 0, 0);
        else
            expect(&k, 0, TOTAL, 0);
        for (uint32_t i = 0; i < 16; i++) /* touched shards are waited for in every pass */
            CHECK(k.sequences[i] == 0 || k.sequences[i] >= SAMPLES);
    }
    /* One chunk is decoded once for all its samples. */
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_close(&k);
    fs_free(fs);
}

static void test_sequences(void **state)
{
    struct fs *fs = fs_new();
    struct kit k;
    uint64_t total = 0, touched = 0;

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m", T0, 1);
    for (uint32_t i = 0; i < 16; i++) {
        total += k.sequences[i];
        touched += k.sequences[i] > 0;
    }
    CHECK(touched == 1 && total == 2); /* a definition and a sample */
    kit_series(&k, "__name__=m");
    kit_sample(&k, T0, 99); /* refused, and yet the answer must wait for the shard */
    CHECK_OK(kit_write(&k), &k.ei);
    uint64_t again = 0;
    for (uint32_t i = 0; i < 16; i++)
        again += k.sequences[i];
    CHECK(again >= 2);
    kit_series(&k, "job=x"); /* refused at the door: no shard */
    kit_sample(&k, T0, 1);
    CHECK_OK(kit_write(&k), &k.ei);
    for (uint32_t i = 0; i < 16; i++)
        CHECK(k.sequences[i] == 0);
    kit_close(&k);
    fs_free(fs);
}

/* A series without samples is not created; an empty request is fine. */
static void test_nothing_to_store(void **state)
{
    struct fs *fs = fs_new();
    struct engine_stats stats;
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 0, 0, 0);
    kit_series(&k, "__name__=m");
    CHECK_OK(kit_write(&k), &k.ei);
    engine_stats_get(k.engine, &stats);
    CHECK(stats.series_count == 0 && stats.min_time_ms == INT64_MAX);
    kit_close(&k);
    fs_free(fs);
}

static void test_example_limits(void **state)
{
    struct fs *fs = fs_new();
    struct kit k;
    char labels[2000];

    (void)state;
    kit_open(&k, fs, NULL);
    memset(labels, 'x', sizeof labels);
    memcpy(labels, "job=", 4);
    labels[sizeof labels - 1] = '\0';
    for (int i = 0; i < 30; i++) {
        kit_series(&k, labels);
        kit_sample(&k, T0 + i, 1);
    }
    CHECK_OK(kit_write(&k), &k.ei);
    expect(&k, 0, 0, 30);
    CHECK(k.result.example_count == WRITE_EXAMPLE_COUNT);
    for (int i = 0; i < WRITE_EXAMPLE_COUNT; i++) {
        char tail[64];
        size_t size = strlen(k.result.examples[i]);

        snprintf(tail, sizeof tail, "... %lld", (long long)T0 + i);
        CHECK(size < WRITE_EXAMPLE_SIZE && strstr(k.result.examples[i], tail) != NULL);
    }
    kit_close(&k);
    fs_free(fs);
}

static void test_memory_limit(void **state)
{
    struct fs *fs = fs_new();
    struct budget budget;
    struct kit k;
    enum err e = ERR_OK;
    int written = 0;

    (void)state;
    budget_init(&budget, "storage", 40 << 20, NULL); /* a region is less than 10 % of it */
    kit_open(&k, fs, &(struct engine_options){.memory = &budget});
    while (e == ERR_OK && written < 200000) {
        for (int i = 0; i < 100; i++, written++) {
            char labels[64];

            snprintf(labels, sizeof labels, "__name__=m,s=%d", written);
            kit_series(&k, labels);
            kit_sample(&k, T0, 1);
        }
        e = kit_write(&k);
    }
    CHECK(e == ERR_UNAVAILABLE && strstr(k.ei.message, "90 %") != NULL);
    CHECK(engine_admit(k.engine, NULL) == ERR_UNAVAILABLE);
    /* Queries go on. */
    kit_check(&k, "__name__=m,s=0", 1, (int64_t[]){T0}, (double[]){1});
    kit_close(&k);
    CHECK(budget_used(&budget) == 0);
    fs_free(fs);
}

/* A clock that jumped back answers 503: a 400 would make senders drop what they hold. */
static void test_clock_behind(void **state)
{
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    kit_put(&k, "__name__=m", T0, 1);
    clock_set_fake(&k.clock, T0 - 600001);
    kit_series(&k, "__name__=m");
    kit_sample(&k, T0 + 1, 1);
    CHECK(kit_write(&k) == ERR_UNAVAILABLE);
    clock_set_fake(&k.clock, T0 - 600000);
    kit_put(&k, "__name__=m", T0 + 0, 1);
    kit_close(&k);
    fs_free(fs);
}

/* Reads cut by time, across chunks and windows. */
static void test_read_ranges(void **state)
{
    enum { SAMPLES = 1000 };
    struct fs *fs = fs_new();
    struct test_random r = test_random_init(9);
    struct kit k;
    int64_t t[SAMPLES];
    double v[SAMPLES];

    (void)state;
    kit_open(&k, fs, NULL);
    clock_set_fake(&k.clock, T0 + (int64_t)SAMPLES * 60000);
    kit_series(&k, "__name__=m");
    for (int i = 0; i < SAMPLES; i++) {
        t[i] = T0 + (int64_t)i * 60000 + (int64_t)test_random_below(&r, 100);
        v[i] = test_random_unit(&r);
        kit_sample(&k, t[i], v[i]);
    }
    CHECK_OK(kit_write(&k), &k.ei);
    for (int round = 0; round < 300; round++) {
        int64_t shift = (int64_t)test_random_below(&r, 3) - 1;
        int64_t min = t[test_random_below(&r, SAMPLES)] + shift;
        int64_t max = min + (int64_t)test_random_below(&r, (uint64_t)SAMPLES * 60000);
        struct arena arena;
        struct column got;
        size_t begin = 0, end;

        while (begin < SAMPLES && t[begin] < min)
            begin++;
        for (end = begin; end < SAMPLES && t[end] <= max;)
            end++;
        arena_init(&arena, NULL);
        CHECK(kit_read(&k, &arena, "__name__=m", min, max, &got));
        CHECK(got.count == end - begin);
        for (size_t i = 0; i < got.count; i++)
            CHECK(got.t_ms[i] == t[begin + i] && got.value[i] == v[begin + i]);
        arena_done(&arena);
    }
    kit_close(&k);
    fs_free(fs);
}

/* Slots and generations nobody has are answered with nothing. */
static void test_read_unknown(void **state)
{
    struct fs *fs = fs_new();
    struct kit k;
    struct arena arena;
    uint32_t slots[] = {0, 1, 5000, UINT32_MAX};
    uint16_t generations[] = {1, 0, 0, 0};
    struct column out[4];
    struct series_meta meta[4];

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    kit_put(&k, "__name__=m", T0, 1); /* slot 0, generation 0 */
    arena_init(&arena, NULL);
    CHECK_OK(kit_read_slots(engine_shard(k.engine, 0), slots, generations, 4, INT64_MIN, INT64_MAX,
                            &arena, out, &k.ei),
             &k.ei);
    shard_series_meta(engine_shard(k.engine, 0), slots, 4, meta);
    for (int i = 0; i < 4; i++)
        CHECK(out[i].count == 0);
    CHECK(meta[0].min_time_ms == T0 && meta[0].max_time_ms == T0);
    for (int i = 1; i < 4; i++)
        CHECK(meta[i].min_time_ms > meta[i].max_time_ms);
    arena_done(&arena);
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_and_read),      cmocka_unit_test(test_refused_labels),
        cmocka_unit_test(test_spellings),           cmocka_unit_test(test_alias_bound),
        cmocka_unit_test(test_time_rules),          cmocka_unit_test(test_bits_decide),
        cmocka_unit_test(test_retry_whole_request), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_label_count_limit),   cmocka_unit_test(test_nothing_to_store),
        cmocka_unit_test(test_example_limits),      cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_clock_behind),        cmocka_unit_test(test_read_ranges),
        cmocka_unit_test(test_read_unknown),        cmocka_unit_test(test_labels_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
