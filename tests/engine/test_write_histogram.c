/*
 * Native histograms through the write path: single cases, and random requests of both kinds against
 * a plain model, with restarts from the log.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/histogram/histogram_pack_internal.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/histogram_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS

/* ---- the model ---- */

enum { SERIES_COUNT = 12, SAMPLES_MAX = 3000 };

struct sample {
    int64_t t_ms;
    bool is_histogram;
    double value;
    struct histogram histogram; /* in the model's arena */
};
struct model {
    struct arena arena;
    struct test_random r;
    size_t counts[SERIES_COUNT];
    struct sample *samples[SERIES_COUNT];                    /* ascending by time */
    uint64_t stored, histograms_stored, repeats, duplicates; /* of the request at hand */
};

static void model_init(struct model *m, uint64_t seed)
{
    *m = (struct model){.r = test_random_init(seed)};
    arena_init(&m->arena, NULL);
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        m->samples[i] = calloc(SAMPLES_MAX, sizeof *m->samples[i]);
        CHECK(m->samples[i] != NULL);
    }
}

static void model_done(struct model *m)
{
    for (size_t i = 0; i < SERIES_COUNT; i++)
        free(m->samples[i]);
    arena_done(&m->arena);
}

static uint64_t bits_of(const struct sample *x)
{
    uint64_t bits = double_bits(x->value);

    CHECK(!x->is_histogram || histogram_value_bits(&x->histogram, &bits));
    return bits;
}

static void model_add(struct model *m, size_t series, const struct sample *x)
{
    struct sample *list = m->samples[series];
    size_t at = m->counts[series];

    while (at > 0 && list[at - 1].t_ms >= x->t_ms)
        at--;
    if (at < m->counts[series] && list[at].t_ms == x->t_ms) {
        *(bits_of(&list[at]) == bits_of(x) ? &m->repeats : &m->duplicates) += 1;
        return;
    }
    CHECK(m->counts[series] < SAMPLES_MAX);
    memmove(list + at + 1, list + at, (m->counts[series] - at) * sizeof *list);
    list[at] = *x;
    m->counts[series]++;
    m->stored++;
    m->histograms_stored += x->is_histogram;
}

static const char *name_of(size_t series, char out[64])
{
    (void)snprintf(out, 64, "__name__=m,i=%zu", series);
    return out;
}

static void check_sample(const struct sample *x, const struct column *c, size_t at)
{
    const struct histogram *h = c->histogram == NULL ? NULL : c->histogram[at];

    CHECK(c->t_ms[at] == x->t_ms);
    CHECK((h != NULL) == x->is_histogram);
    if (h != NULL) {
        struct sample got = {.is_histogram = true, .histogram = *h};

        CHECK(bits_of(&got) == bits_of(x));
        CHECK((h->hint == HISTOGRAM_HINT_GAUGE) == (x->histogram.hint == HISTOGRAM_HINT_GAUGE));
    }
    CHECK(double_bits(c->value[at]) == double_bits(x->is_histogram ? x->histogram.sum : x->value));
}

static void check_series(struct kit *k, const struct model *m, size_t series, int64_t min_ms,
                         int64_t max_ms)
{
    struct column got = {0};
    struct arena arena;
    char name[64];
    size_t n = 0;

    arena_init(&arena, NULL);
    (void)kit_read(k, &arena, name_of(series, name), min_ms, max_ms, &got);
    for (size_t i = 0; i < m->counts[series]; i++) {
        const struct sample *x = &m->samples[series][i];

        if (x->t_ms < min_ms || x->t_ms > max_ms)
            continue;
        CHECK_MSG(n < got.count, "series %zu: %zu samples, sample %zu is missing", series,
                  got.count, i);
        check_sample(x, &got, n++);
    }
    CHECK_MSG(n == got.count, "series %zu: %zu samples, not %zu", series, got.count, n);
    arena_done(&arena);
}

static void check_all(struct kit *k, struct model *m)
{
    uint64_t total = 0;
    struct engine_stats stats;

    for (size_t i = 0; i < SERIES_COUNT; i++) {
        const struct sample *list = m->samples[i];
        size_t count = m->counts[i];

        check_series(k, m, i, INT64_MIN, INT64_MAX);
        if (count > 0)
            check_series(k, m, i, list[test_random_below(&m->r, count)].t_ms,
                         list[test_random_below(&m->r, count)].t_ms);
        total += count;
    }
    engine_stats_get(k->engine, &stats);
    CHECK(stats.sample_count + stats.late_sample_count + stats.histogram_count == total);
    CHECK(stats.histogram_bytes > 0 || stats.histogram_count == 0);
}

/* ---- random requests ---- */

static int64_t any_time(struct model *m, size_t series)
{
    const struct sample *list = m->samples[series];
    size_t count = m->counts[series];
    int64_t newest = count == 0 ? T0 - INT64_C(6) * 3600 * 1000 : list[count - 1].t_ms;

    if (count > 0 && test_random_below(&m->r, 4) == 0) /* known, or beside it */
        return list[test_random_below(&m->r, count)].t_ms - (int64_t)test_random_below(&m->r, 2);
    if (test_random_below(&m->r, 100) == 0)
        newest += CHUNK_WINDOW_MS;
    newest += 1 + (int64_t)test_random_below(&m->r, 20000);
    return newest > T0 ? T0 - (int64_t)test_random_below(&m->r, 3600000) : newest;
}

static struct sample any_sample(struct model *m, size_t series)
{
    struct sample x = {.t_ms = any_time(m, series)};
    const struct sample *list = m->samples[series];
    size_t count = m->counts[series];
    struct histogram h[2];

    for (size_t i = 0; i < count; i++) /* often what is there already */
        if (list[i].t_ms == x.t_ms && test_random_below(&m->r, 2) == 0)
            return list[i];
    /* Most series have one kind, some change at times, one all the time. */
    x.is_histogram = series % 2 == 0;
    if (series == 5 || test_random_below(&m->r, 50) == 0)
        x.is_histogram = test_random_below(&m->r, 2) == 0;
    if (test_random_below(&m->r, 40) == 0 && !x.is_histogram) {
        x.value = double_from_bits(STALE_NAN_BITS);
    } else if (!x.is_histogram) {
        x.value = (double)test_random_below(&m->r, 100);
    } else if (test_random_below(&m->r, 3) > 0) {
        x.histogram = histogram_any(&m->r, &m->arena);
    } else {
        histograms_fill(&m->r, (enum histogram_model)test_random_below(&m->r, HISTOGRAMS_STALE + 1),
                        &m->arena, h, 2);
        x.histogram = h[1];
    }
    return x;
}

static void random_request(struct kit *k, struct model *m)
{
    size_t series_count = 1 + test_random_below(&m->r, 4);
    char name[64];

    m->stored = m->histograms_stored = m->repeats = m->duplicates = 0;
    for (size_t n = 0; n < series_count; n++) {
        size_t series = test_random_below(&m->r, SERIES_COUNT);
        size_t count = test_random_below(&m->r, 20) == 0 ? 150 : 1 + test_random_below(&m->r, 6);
        struct sample *list = calloc(count, sizeof *list);

        CHECK(list != NULL);
        kit_series(k, name_of(series, name));
        for (size_t i = 0; i < count; i++) {
            list[i] = any_sample(m, series);
            if (list[i].is_histogram) {
                kit_histogram(k, list[i].t_ms, &list[i].histogram);
                continue;
            }
            kit_sample(k, list[i].t_ms, list[i].value);
            model_add(m, series, &list[i]);
        }
        for (size_t i = 0; i < count; i++) /* they come after the floats */
            if (list[i].is_histogram)
                model_add(m, series, &list[i]);
        free(list);
    }
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.stored_count == m->stored);
    CHECK(k->result.histogram_stored_count == m->histograms_stored);
    CHECK(k->result.repeat_count == m->repeats);
    CHECK(k->result.refused_count == m->duplicates);
    CHECK(k->result.refused[REFUSAL_DUPLICATE_TIMESTAMP] == m->duplicates);
}

static void test_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct fs *fs = test_fs_new(seed);
        struct model m;
        struct kit k;

        model_init(&m, seed);
        kit_open(&k, fs, &(struct engine_options){.shard_count = 2});
        for (int step = 0; step < 400; step++) {
            random_request(&k, &m);
            if (step % 100 != 99)
                continue;
            check_all(&k, &m);
            CHECK_OK(kit_wait(&k), &k.ei);
            if (test_random_below(&m.r, 2) == 0)
                kit_close(&k);
            else
                kit_abandon(&k);
            kit_open(&k, fs, &(struct engine_options){.shard_count = 2});
            check_all(&k, &m);
        }
        kit_close(&k);
        model_done(&m);
        fs_free(fs);
    }
}

/* ---- single cases ---- */

static struct histogram small(double *bucket, double count)
{
    static const struct histogram_span span = {1, 1};
    struct histogram h = {.schema = 1, .zero_threshold = 0x1p-128, .count = count, .sum = count};

    *bucket = count;
    h.positive = (struct histogram_side){&span, 1, bucket, 1};
    return h;
}

static void put_histogram(struct kit *k, int64_t t_ms, double count, uint64_t stored,
                          uint64_t repeats, uint64_t refused)
{
    double bucket;
    struct histogram h = small(&bucket, count);

    kit_series(k, "__name__=m");
    kit_histogram(k, t_ms, &h);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.sample_count == 1 && k->result.stored_count == stored);
    CHECK(k->result.histogram_stored_count == stored && k->result.repeat_count == repeats);
    CHECK(k->result.refused_count == refused);
    CHECK(k->result.refused[REFUSAL_DUPLICATE_TIMESTAMP] == refused);
}

static void put_float(struct kit *k, int64_t t_ms, double value, uint64_t stored, uint64_t repeats,
                      uint64_t refused)
{
    kit_series(k, "__name__=m");
    kit_sample(k, t_ms, value);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.stored_count == stored && k->result.repeat_count == repeats);
    CHECK(k->result.refused[REFUSAL_DUPLICATE_TIMESTAMP] == refused);
}

static void test_repeats(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    put_histogram(&k, T0 - 100, 1, 1, 0, 0);
    put_histogram(&k, T0 - 100, 1, 0, 1, 0);
    put_histogram(&k, T0 - 100, 2, 0, 0, 1);
    put_float(&k, T0 - 100, 1, 0, 0, 1); /* of the other kind */
    put_float(&k, T0 - 90, 1, 1, 0, 0);
    put_histogram(&k, T0 - 90, 1, 0, 0, 1);
    put_histogram(&k, T0 - 100, 1, 0, 1, 0); /* not the newest any more */
    put_float(&k, T0 - 100, 1, 0, 0, 1);
    put_histogram(&k, T0 - 95, 3, 1, 0, 0); /* late */
    put_histogram(&k, T0 - 95, 3, 0, 1, 0);
    put_histogram(&k, T0 - 95, 4, 0, 0, 1);
    put_float(&k, T0 - 95, 4, 0, 0, 1);
    put_float(&k, T0 - 97, 4, 1, 0, 0);
    put_histogram(&k, T0 - 97, 4, 0, 0, 1);
    shard_late_freeze(engine_shard(k.engine, 0));
    put_histogram(&k, T0 - 95, 3, 0, 1, 0);
    put_histogram(&k, T0 - 95, 4, 0, 0, 1);
    put_histogram(&k, T0 - 97, 4, 0, 0, 1);
    put_float(&k, T0 - 95, 4, 0, 0, 1);
    kit_check(&k, "__name__=m", 4, (int64_t[]){T0 - 100, T0 - 97, T0 - 95, T0 - 90},
              (double[]){1, 4, 3, 1});
    kit_close(&k);
    fs_free(fs);
}

/* A staleness marker ends a series whatever kind it has; two markers of one time are the same. */
static void test_stale(void **state)
{
    struct histogram h = {.sum = double_from_bits(STALE_NAN_BITS)};
    struct fs *fs = test_fs_new(1);
    struct shard *s;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    s = engine_shard(k.engine, 0);
    put_histogram(&k, T0 - 100, 1, 1, 0, 0);
    CHECK(s->stale_count == 0);
    kit_series(&k, "__name__=m");
    kit_histogram(&k, T0 - 90, &h);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.stored_count == 1 && s->stale_count == 1);
    CHECK(series_at(&s->series, 0)->newest_bits == STALE_NAN_BITS);
    put_float(&k, T0 - 90, double_from_bits(STALE_NAN_BITS), 0, 1, 0);
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_abandon(&k);
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1});
    s = engine_shard(k.engine, 0);
    CHECK(s->stale_count == 1);
    put_histogram(&k, T0 - 80, 2, 1, 0, 0);
    CHECK(s->stale_count == 0);
    put_float(&k, T0 - 70, double_from_bits(STALE_NAN_BITS), 1, 0, 0);
    kit_series(&k, "__name__=m");
    kit_histogram(&k, T0 - 70, &h);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.repeat_count == 1 && s->stale_count == 1);
    kit_close(&k);
    fs_free(fs);
}

/* What is refused, with its reason; a series gets no slot for it. */
static void test_refusals(void **state)
{
    struct fs *fs = test_fs_new(1);
    struct engine_stats stats;
    double bucket;
    struct histogram h = small(&bucket, 1);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.retention_ms = 1000, .out_of_order_window_ms = 100});
    put_histogram(&k, T0, 1, 1, 0, 0);
    kit_series(&k, "__name__=only_invalid");
    k.batch->invalid_count = 12;
    for (size_t i = 0; i < WRITE_EXAMPLE_COUNT; i++)
        k.batch->invalid[i] = (struct write_invalid){.t_ms = T0, .text = "no good"};
    kit_series(&k, "__name__=m");
    kit_histogram(&k, T0 + ENGINE_FUTURE_LIMIT_MS + 1, &h);
    kit_histogram(&k, T0 - 1001, &h);
    kit_histogram(&k, T0, &h);
    kit_histogram(&k, T0 - 101, &h);
    kit_histogram(&k, T0 - 100, &h);
    kit_series(&k, "__name__=m,__name__=n");
    kit_histogram(&k, T0, &h);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.sample_count == 18 && k.result.stored_count == 1 && k.result.repeat_count == 1);
    CHECK(k.result.refused_count == 16);
    CHECK(k.result.refused[REFUSAL_INVALID_HISTOGRAM] == 12);
    CHECK(k.result.refused[REFUSAL_TOO_FAR_IN_FUTURE] == 1);
    CHECK(k.result.refused[REFUSAL_TOO_OLD] == 1);
    CHECK(k.result.refused[REFUSAL_OUT_OF_ORDER] == 1);
    CHECK(k.result.refused[REFUSAL_DUPLICATE_LABEL] == 1);
    CHECK(k.result.example_count == WRITE_EXAMPLE_COUNT);
    CHECK(strcmp(k.result.examples[0],
                 "invalid_histogram: {__name__=\"only_invalid\"} 1767225600000: no good") == 0);
    engine_stats_get(k.engine, &stats);
    CHECK(stats.series_count == 1 && stats.histograms_appended == 2);
    CHECK(stats.histogram_count == 1 && stats.late_sample_count == 1);
    kit_close(&k);
    fs_free(fs);
}

/* Memory is charged, and comes back; a write that is refused loses nothing. */
static void test_memory(void **state)
{
    struct budget limit;
    struct fs *fs = test_fs_new(1);
    struct test_random r = test_random_init(4);
    struct arena arena;
    struct column got;
    uint64_t stored = 0;
    enum err e = ERR_OK;
    struct kit k;

    (void)state;
    arena_init(&arena, NULL);
    budget_init(&limit, "storage memory", 64 << 20, NULL);
    kit_open(&k, fs, &(struct engine_options){.shard_count = 1, .memory = &limit});
    for (int64_t i = 0; e == ERR_OK && i < 2000000; i++) {
        struct histogram h = histogram_any(&r, &arena);

        kit_series(&k, "__name__=m");
        for (int n = 0; n < 100; n++)
            kit_histogram(&k, T0 - 400000000 + i * 100 + n, &h);
        e = kit_write(&k);
        stored += k.result.stored_count;
    }
    CHECK(e == ERR_UNAVAILABLE || e == ERR_NOMEM);
    CHECK(kit_read(&k, &arena, "__name__=m", INT64_MIN, INT64_MAX, &got));
    CHECK(got.count == stored && stored > 100000);
    kit_abandon(&k);
    CHECK(budget_used(&limit) == 0);
    arena_done(&arena);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeats),  cmocka_unit_test(test_stale),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
