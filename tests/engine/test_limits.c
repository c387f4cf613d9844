/* Limits: who is refused, what the answer says, and who is let in again. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "base/thread.h"
#include "engine/maintain.h"
#include "engine/memtable/memtable_internal.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS
#define KEY_MS 62000 /* a refused key has expired */

static struct fs *fs_new(void)
{
    struct fs *fs;
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    return fs;
}

static void apply(struct kit *k, const struct limits *limits)
{
    CHECK_OK(engine_limits_apply(k->engine, limits, &k->ei), &k->ei);
}

static struct limits per_metric(uint64_t max)
{
    return (struct limits){.items = {[LIMIT_SERIES_PER_METRIC] = {.max = max}}};
}

/* Sends series first..end of a metric, one sample each; how many were stored. */
static uint64_t send(struct kit *k, const char *metric, int first, int end, int64_t t_ms,
                     double value)
{
    char labels[96];

    for (int i = first; i < end; i++) {
        (void)snprintf(labels, sizeof labels, "__name__=%s,i=%d,pod=p%d", metric, i, i / 10);
        kit_series(k, labels);
        kit_sample(k, t_ms, value);
    }
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.stored_count + k->result.refused_count + k->result.repeat_count ==
          (uint64_t)(end - first));
    CHECK(k->result.refused[REFUSAL_LIMIT] == k->result.refused_count);
    return k->result.stored_count;
}

static double stale(void)
{
    return double_from_bits(STALE_NAN_BITS);
}

static uint64_t series_count(const struct kit *k)
{
    struct engine_stats stats;

    engine_stats_get(k->engine, &stats);
    return stats.series_count;
}

/* Series that have ended leave memory: those settled by one round go in a later one. */
static void rebuild_all(struct kit *k)
{
    for (int round = 0; round < 3; round++) {
        /* Definitions must have had their second copy. */
        atomic_store_explicit(&k->engine->logs.repeat_delay_ns, 0, memory_order_relaxed);
        CHECK_OK(kit_wait(k), &k->ei);
        for (uint32_t i = 0; i < k->engine->shard_count; i++) {
            struct shard *s = &k->engine->shards[i];

            for (bool done = false; !done;) {
                engine_tick_poke(k->engine);
                mutex_lock(&s->lock);
                done = s->log.repeated_count >= s->log.defined_count;
                mutex_unlock(&s->lock);
                if (!done)
                    sched_yield();
            }
            CHECK_OK(engine_rebuild(k->engine, i, NULL, &k->ei), &k->ei);
        }
    }
    engine_housekeep(k->engine);
}

static void a_series_past_the_limit_is_refused_alone(void **state)
{
    const struct limits limits = per_metric(10);
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    apply(&k, &limits);
    CHECK(send(&k, "other", 0, 1, T0, 1) == 1);
    CHECK(send(&k, "m", 0, 13, T0, 1) == 10);
    CHECK(k.result.refused_count == 3 && series_count(&k) == 11);
    CHECK(k.result.example_count == 3);
    CHECK_MSG(strcmp(k.result.examples[0],
                     "limit (series_per_metric: max 10 of __name__=\"m\"): {__name__=\"m\", "
                     "i=\"10\", pod=\"p1\"} 1767225600000") == 0,
              "%s", k.result.examples[0]);
    kit_check(&k, "__name__=m,i=9,pod=p0", 1, (int64_t[]){T0}, (double[]){1});
    kit_check(&k, "__name__=m,i=10,pod=p1", 0, NULL, NULL);
    /* Those that are in go on, others stay out. */
    CHECK(send(&k, "m", 0, 13, T0 + 15000, 2) == 10);
    kit_close(&k);
    fs_free(fs);
}

/* A refused key is remembered: its next scrapes do not parse labels. */
static void refused_keys_are_cheap(void **state)
{
    const struct limits limits = per_metric(10);
    struct fs *fs = fs_new();
    struct kit k;
    uint64_t slow;

    (void)state;
    kit_open(&k, fs, NULL);
    apply(&k, &limits);
    CHECK(send(&k, "m", 0, 100, T0, 1) == 10);
    slow = atomic_load(&k.engine->slow_path_series);
    for (int i = 1; i <= 5; i++) {
        CHECK(send(&k, "m", 0, 100, T0 + i, 1) == 10);
        CHECK(k.result.example_count == WRITE_EXAMPLE_COUNT);
        CHECK(strncmp(k.result.examples[0], "limit (series_per_metric: max 10 of ", 36) == 0);
    }
    CHECK(atomic_load(&k.engine->slow_path_series) == slow);
    CHECK(atomic_load(&k.engine->limiter.refused_keys) == 90 && engine_alias_count(k.engine) == 0);
    CHECK(atomic_load(&k.engine->limiter.refusals[LIMIT_SERIES_PER_METRIC]) == 90);
    CHECK(atomic_load(&k.engine->limiter.samples_refused[LIMIT_SERIES_PER_METRIC]) == 540);
    clock_set_fake(&k.clock, T0 + KEY_MS);
    CHECK(send(&k, "m", 0, 100, T0 + KEY_MS, 1) == 10);
    CHECK(atomic_load(&k.engine->slow_path_series) == slow + 90);
    /* A clock that is set back does not keep them out for long. */
    clock_set_fake(&k.clock, T0);
    CHECK(send(&k, "m", 0, 100, T0 + KEY_MS + 1, 1) == 10);
    CHECK(atomic_load(&k.engine->slow_path_series) == slow + 180);
    CHECK(atomic_load(&k.engine->limiter.refused_keys) == 90 && engine_alias_count(k.engine) == 0);
    kit_close(&k);
    fs_free(fs);
}

/* Other limits hold from the next request on, also for keys that were refused a moment ago. */
static void limits_apply_at_once(void **state)
{
    struct limits limits = per_metric(10);
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    apply(&k, &limits);
    CHECK(send(&k, "m", 0, 100, T0, 1) == 10);
    limits = per_metric(60);
    apply(&k, &limits);
    CHECK(send(&k, "m", 0, 100, T0 + 1, 1) == 60);
    CHECK(atomic_load(&k.engine->limiter.refused_keys) == 40);
    /* Lowered: what is there stays. */
    limits = per_metric(20);
    apply(&k, &limits);
    CHECK(send(&k, "m", 0, 100, T0 + 2, 1) == 60);
    limits = (struct limits){0};
    apply(&k, &limits);
    CHECK(send(&k, "m", 0, 100, T0 + 3, 1) == 100);
    CHECK(atomic_load(&k.engine->limiter.refused_keys) == 0 && engine_alias_count(k.engine) == 0);
    kit_close(&k);
    fs_free(fs);
}

/* A label that gets a limit later has its series counted; so has one after a restart. */
static void series_are_counted_when_a_limit_comes(void **state)
{
    const struct label_limit label = {STR_LITERAL("pod"), {.max = 12}};
    const struct limits limits = {
        .items = {[LIMIT_ACTIVE_SERIES] = {.max = 46}}, .labels = &label, .label_count = 1};
    struct fs *fs = fs_new();
    struct engine_options o = {0};
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    CHECK(send(&k, "a", 0, 40, T0, 1) == 40); /* ten of each pod */
    apply(&k, &limits);
    CHECK(send(&k, "b", 0, 5, T0, 1) == 2);
    CHECK_MSG(strstr(k.result.examples[0],
                     "limit (series_per_label_value: max 12 of pod=\"p0\"): ") != NULL,
              "%s", k.result.examples[0]);
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_close(&k);

    kit_open(&k, fs, &o);
    apply(&k, &limits);
    CHECK(send(&k, "b", 0, 5, T0 + 1, 1) == 2);
    CHECK(send(&k, "b", 10, 20, T0 + 1, 1) == 2);
    CHECK(send(&k, "b", 20, 22, T0 + 1, 1) == 2); /* 46 in all */
    CHECK(send(&k, "b", 30, 31, T0 + 1, 1) == 0);
    CHECK_MSG(strstr(k.result.examples[0], "limit (active_series: max 46): ") != NULL, "%s",
              k.result.examples[0]);
    CHECK(send(&k, "a", 0, 40, T0 + 2, 1) == 40); /* they are no new ones */
    kit_close(&k);
    fs_free(fs);
}

/* Applied before the replay, as a server does, they count what it brings. */
static void limits_hold_after_a_replay(void **state)
{
    const struct limits limits = per_metric(10);
    struct fs *fs = fs_new();
    struct engine_options o = {.fs = fs, .hash_secret_seed = 1};
    struct engine_replay_result replay;
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    CHECK(send(&k, "m", 0, 8, T0, 1) == 8);
    CHECK_OK(kit_wait(&k), &k.ei);
    kit_close(&k);
    o.clock = &k.clock;
    CHECK_OK(engine_open(&o, &k.engine, &k.ei), &k.ei);
    CHECK_OK(engine_limits_apply(k.engine, &limits, &k.ei), &k.ei);
    CHECK_OK(engine_replay(k.engine, 1, &replay, &k.ei), &k.ei);
    struct clock clock = k.clock;
    kit_join(&k, k.engine);
    k.clock = clock;
    CHECK(send(&k, "m", 0, 20, T0 + 1, 1) == 10);
    kit_close(&k);
    fs_free(fs);
}

/* What has ended makes room: at once by its marker, and for good when it leaves memory. */
static void ended_series_make_room(void **state)
{
    struct limits limits = per_metric(100);
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    limits.items[LIMIT_ACTIVE_SERIES].max = 150;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 4});
    apply(&k, &limits);
    CHECK(send(&k, "other", 0, 50, T0, 1) == 50);
    CHECK(send(&k, "m", 0, 120, T0, 1) == 100);
    CHECK(send(&k, "m", 0, 30, T0 + 1000, stale()) == 30);
    clock_set_fake(&k.clock, T0 + KEY_MS);
    /* Thirty have ended, so thirty new ones fit, of the metric and of all. */
    CHECK(send(&k, "m", 200, 240, T0 + KEY_MS, 1) == 30);
    CHECK(series_count(&k) == 180);
    rebuild_all(&k);
    CHECK_MSG(series_count(&k) == 150, "%d series", (int)series_count(&k));
    CHECK(atomic_load(&k.engine->limiter.series) == 150);
    CHECK(atomic_load(&k.engine->limiter.ended) == 0);
    clock_set_fake(&k.clock, T0 + INT64_C(2) * KEY_MS);
    CHECK(send(&k, "m", 300, 310, T0 + INT64_C(2) * KEY_MS, 1) == 0);
    /* Silent for long is ended too. */
    clock_set_fake(&k.clock, T0 + INT64_C(3) * KEY_MS + 600000);
    CHECK(send(&k, "other", 0, 45, T0 + INT64_C(3) * KEY_MS + 600000, 1) == 45);
    rebuild_all(&k);
    CHECK_MSG(series_count(&k) == 45, "%d series", (int)series_count(&k));
    CHECK(send(&k, "m", 400, 600, T0 + INT64_C(3) * KEY_MS + 600000, 1) == 100);
    kit_close(&k);
    fs_free(fs);
}

/* Series of a metric that are in memory, by looking at all of them. */
static uint64_t live_series(struct kit *k, const char *metric)
{
    const struct str name = LABEL_METRIC_NAME;
    uint64_t count = 0;

    for (uint32_t i = 0; i < k->engine->shard_count; i++) {
        struct shard *s = &k->engine->shards[i];

        for (uint32_t slot = 0; slot < s->series.slot_end; slot++) {
            struct str value;

            if (series_find_any(&s->series, slot) == NULL)
                continue;
            index_values_of(s->index, &slot, 1, &name, 1, &value);
            count += str_equal(value, str_from(metric));
        }
    }
    return count;
}

static void check_counts(struct kit *k)
{
    struct limiter *l = &k->engine->limiter;

    CHECK(atomic_load(&l->series) == series_count(k));
    CHECK(l->set->table_count == 1);
    for (int i = 0; i < 4; i++) {
        char metric[16];

        (void)snprintf(metric, sizeof metric, "m%d", i);
        CHECK(limit_counts_active(&l->set->tables[0]->counts,
                                  limits_key_of(k->engine, str_from(metric))) ==
              live_series(k, metric));
    }
}

/* Series come, end, leave, have their slots taken, and the store starts anew: what is counted is
 * what is there. */
static void random_lives_are_counted(void **state)
{
    const struct limits limits = per_metric(1000000);
    const struct engine_options o = {.shard_count = 2};
    struct test_random r = test_random_init(3);
    int64_t now_ms = T0;
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, &o);
    apply(&k, &limits);
    for (int step = 0; step < 60; step++) {
        uint64_t what = test_random_below(&r, 10);
        int first = (int)test_random_below(&r, 400);
        char metric[16];

        (void)snprintf(metric, sizeof metric, "m%d", (int)test_random_below(&r, 4));
        now_ms += 1000;
        clock_set_fake(&k.clock, now_ms);
        if (what < 5)
            (void)send(&k, metric, first, first + 50, now_ms, step);
        else if (what < 8)
            (void)send(&k, metric, first, first + 50, now_ms, stale());
        else if (what == 8)
            rebuild_all(&k);
        if (what == 9) {
            CHECK_OK(kit_wait(&k), &k.ei);
            kit_close(&k);
            kit_open(&k, fs, &o);
            clock_set_fake(&k.clock, now_ms);
            apply(&k, &limits);
        }
        check_counts(&k);
    }
    kit_close(&k);
    fs_free(fs);
}

static void sizes_are_limited(void **state)
{
    const struct limits limits = {.items = {[LIMIT_LABELS_PER_SERIES] = {.max = 4},
                                            [LIMIT_LABEL_NAME_BYTES] = {.max = 8},
                                            [LIMIT_LABEL_VALUE_BYTES] = {.max = 12},
                                            [LIMIT_SAMPLES_PER_REQUEST] = {.max = 5}}};
    static const struct {
        const char *labels, *story;
    } cases[] = {
        {"__name__=m,a=1,b=2,c=3,d=4", "limit (labels_per_series: max 4): {"},
        {"__name__=m,abcdefghi=1", "limit (label_name_bytes: max 8, label abcdefghi): {"},
        {"__name__=m,a=0123456789012", "limit (label_value_bytes: max 12, label a): {"},
        {"__name__=m,a=1,b=2,c=3,d=", NULL}, /* an empty value is no label */
        {"__name__=m,abcdefgh=012345678901", NULL},
    };
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, NULL);
    apply(&k, &limits);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kit_series(&k, cases[i].labels);
        kit_sample(&k, T0, 1);
        CHECK_OK(kit_write(&k), &k.ei);
        CHECK(k.result.refused[REFUSAL_LIMIT] == (cases[i].story != NULL));
        if (cases[i].story != NULL)
            CHECK_MSG(strncmp(k.result.examples[0], cases[i].story, strlen(cases[i].story)) == 0,
                      "%s", k.result.examples[0]);
    }
    /* The first series of a request that fit, and no other. */
    kit_series(&k, "__name__=x,i=1");
    for (int i = 0; i < 3; i++)
        kit_sample(&k, T0 + i, 1);
    kit_series(&k, "__name__=x,i=2");
    for (int i = 0; i < 3; i++)
        kit_sample(&k, T0 + i, 1);
    kit_series(&k, "__name__=x,i=3");
    kit_sample(&k, T0, 1);
    CHECK_OK(kit_write(&k), &k.ei);
    CHECK(k.result.stored_count == 3 && k.result.refused[REFUSAL_LIMIT] == 4);
    CHECK_MSG(strncmp(k.result.examples[0], "limit (samples_per_request: max 5): {__name__=\"x\"",
                      49) == 0,
              "%s", k.result.examples[0]);
    kit_close(&k);
    fs_free(fs);
}

static void the_report_names_offenders(void **state)
{
    struct limits limits = per_metric(10);
    struct limits_report report;
    struct arena arena;
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    limits.items[LIMIT_SERIES_PER_METRIC].warn = 5;
    arena_init(&arena, NULL);
    kit_open(&k, fs, NULL);
    apply(&k, &limits);
    CHECK(send(&k, "near", 0, 6, T0, 1) == 6);
    clock_set_fake(&k.clock, T0 + 1000);
    CHECK(send(&k, "past", 0, 15, T0, 1) == 10);
    CHECK_OK(engine_limits_report(k.engine, &arena, &report, &k.ei), &k.ei);
    CHECK(report.active_series == 16 && report.offender_count == 2);
    CHECK(str_equal(report.offenders[0].value, STR_LITERAL("past")));
    CHECK(report.offenders[0].refusals == 5 && report.offenders[0].series == 10);
    CHECK(str_equal(report.offenders[1].value, STR_LITERAL("near")));
    CHECK(str_equal(report.offenders[1].label, LABEL_METRIC_NAME));
    CHECK(report.offenders[1].refusals == 0 && report.offenders[1].series == 5);
    /* More of them than are watched: the latest stay. */
    for (int i = 0; i < 200; i++) {
        char metric[32];

        (void)snprintf(metric, sizeof metric, "metric_%d", i);
        clock_set_fake(&k.clock, T0 + 2000 + i);
        CHECK(send(&k, metric, 0, 11, T0, 1) == 10);
    }
    CHECK_OK(engine_limits_report(k.engine, &arena, &report, &k.ei), &k.ei);
    CHECK(report.offender_count == LIMIT_OFFENDERS_MAX);
    CHECK(str_equal(report.offenders[0].value, STR_LITERAL("metric_199")));
    CHECK(str_equal(report.offenders[63].value, STR_LITERAL("metric_136")));
    /* At most so many lines a minute, and none twice in one. */
    for (int i = 0; i < 3; i++)
        engine_limits_log(k.engine);
    CHECK(k.engine->limiter.log_lines == LIMITS_LOG_LINES);
    arena_done(&arena);
    kit_close(&k);
    fs_free(fs);
}

/* ---- many threads ---- */

enum { WRITERS = 4, OFFERED = 3000, MAX = 2000, MAX_POD = 7 };

struct worker {
    struct engine *engine;
    struct thread thread;
    int number;
    uint64_t stored;
};

static void *offer_series(void *arg)
{
    struct worker *w = arg;
    struct kit k;

    kit_join(&k, w->engine);
    /* Overlapping offers: every second series is somebody else's too. */
    for (int i = 0; i < OFFERED; i += 50) {
        for (int n = i; n < i + 50; n++) {
            char labels[96];

            (void)snprintf(labels, sizeof labels, "__name__=m,i=%d,pod=p%d",
                           n % 2 == 0 ? n : n + OFFERED * w->number, n % 1000);
            kit_series(&k, labels);
            kit_sample(&k, T0 + w->number, 1);
        }
        CHECK_OK(kit_write(&k), &k.ei);
        w->stored += k.result.stored_count;
    }
    kit_leave(&k);
    return NULL;
}

static uint64_t series_of(struct kit *k, const char *name, const char *value)
{
    struct series_list list;
    struct querier *q;
    struct matcher m;
    struct arena arena;
    uint64_t count;

    arena_init(&arena, NULL);
    CHECK_OK(querier_open(k->engine, &q, &k->ei), &k->ei);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, str_from(name), str_from(value), &arena, &k->ei),
             &k->ei);
    CHECK_OK(querier_select(q, &m, 1, INT64_MIN, INT64_MAX, &arena, &list, &k->ei), &k->ei);
    count = list.count;
    querier_close(q);
    matcher_done(&m);
    arena_done(&arena);
    return count;
}

static void run_writers(struct kit *k, struct limits *limits, bool changes)
{
    struct worker workers[WRITERS];

    memset(workers, 0, sizeof workers);
    for (int i = 0; i < WRITERS; i++) {
        workers[i].engine = k->engine;
        workers[i].number = i;
        CHECK_OK(thread_start(&workers[i].thread, "offers", offer_series, &workers[i], &k->ei),
                 &k->ei);
    }
    for (int i = 0; changes && i < 50; i++) {
        /* Counting begins anew with each of them. */
        limits->label_count = (size_t)i % 2;
        apply(k, limits);
    }
    for (int i = 0; i < WRITERS; i++)
        thread_join(&workers[i].thread);
}

static void threads_keep_to_the_limit(void **state)
{
    const struct label_limit label = {STR_LITERAL("pod"), {.max = MAX_POD}};
    struct limits limits = per_metric(MAX);
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 8});
    apply(&k, &limits);
    run_writers(&k, &limits, false);
    CHECK(series_count(&k) == MAX && series_of(&k, "__name__", "m") == MAX);
    kit_close(&k);
    fs_free(fs);

    /* By label value: 1,000 pods are offered 9 or 3 series each, depending on who is first. */
    fs = fs_new();
    limits = (struct limits){.labels = &label, .label_count = 1};
    kit_open(&k, fs, &(struct engine_options){.shard_count = 8});
    apply(&k, &limits);
    run_writers(&k, &limits, false);
    for (int i = 0; i < 1000; i += 37) {
        char pod[16];

        (void)snprintf(pod, sizeof pod, "p%d", i);
        CHECK(series_of(&k, "pod", pod) == (i % 2 == 0 ? 3 : MAX_POD));
    }
    kit_close(&k);
    fs_free(fs);
}

/* Limits that come and go while series are made are exact in the end. */
static void limits_change_beside_writers(void **state)
{
    const struct label_limit label = {STR_LITERAL("pod"), {.max = 1000000}};
    struct limits limits = {.labels = &label};
    struct fs *fs = fs_new();
    struct kit k;

    (void)state;
    kit_open(&k, fs, &(struct engine_options){.shard_count = 8});
    run_writers(&k, &limits, true);
    CHECK(atomic_load(&k.engine->limiter.series) == series_count(&k));
    limits.label_count = 1;
    apply(&k, &limits);
    for (int i = 0; i < 1000; i++) {
        char pod[16];
        struct str text;

        (void)snprintf(pod, sizeof pod, "p%d", i);
        text = str_from(pod);
        CHECK(limit_counts_active(&k.engine->limiter.set->tables[0]->counts,
                                  limits_key_of(k.engine, text)) == series_of(&k, "pod", pod));
    }
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_series_past_the_limit_is_refused_alone),
        cmocka_unit_test(refused_keys_are_cheap),
        cmocka_unit_test(limits_apply_at_once),
        cmocka_unit_test(series_are_counted_when_a_limit_comes),
        cmocka_unit_test(limits_hold_after_a_replay),
        cmocka_unit_test(ended_series_make_room),
        cmocka_unit_test(random_lives_are_counted),
        cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(the_report_names_offenders),
        cmocka_unit_test(threads_keep_to_the_limit),
        cmocka_unit_test(limits_change_beside_writers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
