/*
 * The whole life cycle with everybody at work at once (run under TSan too): writers with samples in
 * order, late ones and series that end, readers, two maintainers that seal, flush, split, merge and
 * rebuild, and one who deletes what it wrote.
 *
 * A sample's value follows from its series and time, so readers know what they may see: what was
 * acknowledged before the query began, nothing that nobody wrote, ascending times.
 *
 * RIMSTONE_SECONDS sets how long.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "tests/compactor/life_kit.h"
#include "tests/lib/test_cmocka.h"

enum {
    WRITERS = 2,
    READERS = 2,
    MAINTAINERS = 2,
    SHARDS = 4,
    SECONDS = 8,
    STEADY = 24, /* series of a writer that live for ever */
    SHORT = 8,   /* and series that live for LIFE_ROUNDS each, then make room for others */
    LIFE_ROUNDS = 40,
    LATE_ROUNDS = 25, /* late samples are that old */
    LATE_EVERY = 5,
    INTERVAL_MS = 60000,
    WRITER_SERIES = 1000000, /* numbers of a writer's series begin at a multiple */
    DELETED = 900000,        /* of the one who deletes */
};

struct shared {
    struct life *life;
    _Atomic uint64_t sent[WRITERS + 1];         /* release: rounds below may be visible */
    _Atomic uint64_t acknowledged[WRITERS + 1]; /* release: rounds below are durable */
    _Atomic uint64_t deleted; /* rounds below of the deleter's series are deleted */
    _Atomic int64_t now_ms;
    uint64_t end_ns;
    uint64_t reads, merges; /* each by one thread, looked at when it has ended */
};

struct worker {
    struct shared *shared;
    uint32_t number;
    struct thread thread;
};

static bool is_over(const struct shared *s)
{
    return clock_mono_ns() >= s->end_ns;
}

static int64_t time_of(uint64_t round)
{
    return LIFE_T0 + (int64_t)round * INTERVAL_MS;
}
static double value_of(uint32_t series, int64_t t_ms)
{
    return series % 3 == 0 ? 1 : (double)(t_ms - LIFE_T0) / 1000 + series;
}

/* The writers' clock only moves forward. */
static void reach_now(struct shared *s, int64_t t_ms)
{
    int64_t now = atomic_load_explicit(&s->now_ms, memory_order_relaxed);

    while (now < t_ms && !atomic_compare_exchange_weak_explicit(
                             &s->now_ms, &now, t_ms, memory_order_relaxed, memory_order_relaxed))
        ;
    clock_set_fake(&s->life->kit.clock, now < t_ms ? t_ms : now);
}

static void put(struct kit *k, uint32_t series, int64_t t_ms, double value)
{
    char text[LIFE_LABELS_SIZE];

    life_labels_text(series, 0, text);
    kit_series(k, text);
    kit_sample_of(k, series, t_ms, value);
}

/* The number of a short-lived series in a round. */
static uint32_t short_series(uint32_t writer, uint64_t round, uint32_t n)
{
    return writer * WRITER_SERIES + STEADY + (uint32_t)(round / LIFE_ROUNDS) * SHORT + n;
}

static void put_round(struct kit *k, uint32_t writer, uint64_t round)
{
    bool is_last = round % LIFE_ROUNDS == LIFE_ROUNDS - 1;

    for (uint32_t n = 0; n < STEADY; n++) {
        uint32_t series = writer * WRITER_SERIES + n;

        put(k, series, time_of(round), value_of(series, time_of(round)));
        if (round >= LATE_ROUNDS && n % LATE_EVERY == 0) {
            int64_t late = time_of(round - LATE_ROUNDS) + 1;

            put(k, series, late, value_of(series, late));
        }
    }
    for (uint32_t n = 0; n < SHORT; n++) {
        uint32_t series = short_series(writer, round, n);
        double value = value_of(series, time_of(round));

        put(k, series, time_of(round), is_last ? double_from_bits(STALE_NAN_BITS) : value);
    }
}

static void send_round(struct worker *w, struct kit *k, uint64_t round)
{
    struct shared *s = w->shared;

    atomic_store_explicit(&s->sent[w->number], round + 1, memory_order_release);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK_MSG(k->result.refused_count == 0, "%s", k->result.examples[0]);
    CHECK_OK(kit_wait(k), &k->ei);
    atomic_store_explicit(&s->acknowledged[w->number], round + 1, memory_order_release);
}

static void *write_rounds(void *arg)
{
    struct worker *w = arg;
    struct kit k;

    kit_join(&k, w->shared->life->kit.engine);
    for (uint64_t round = 0; !is_over(w->shared); round++) {
        reach_now(w->shared, time_of(round));
        put_round(&k, w->number, round);
        send_round(w, &k, round);
    }
    kit_leave(&k);
    return NULL;
}

/* ---- reading ---- */

/* What a reader knows before and after it reads. */
struct view {
    uint64_t before[WRITERS + 1], after[WRITERS + 1];
    uint64_t deleted;
};

static uint64_t round_of(uint32_t series, int64_t t_ms)
{
    int64_t since = t_ms - LIFE_T0;
    bool is_late = since % INTERVAL_MS == 1;

    CHECK_MSG(since >= 0 && (is_late || since % INTERVAL_MS == 0), "series %" PRIu32 " at %" PRId64,
              series, t_ms);
    return (uint64_t)(since / INTERVAL_MS) + (is_late ? LATE_ROUNDS : 0);
}

/* How many samples there must be of rounds below `end`. */
static uint64_t expected(uint32_t series, uint64_t end)
{
    uint32_t n = series % WRITER_SERIES;
    uint64_t first;

    if (n < STEADY)
        return end + (n % LATE_EVERY == 0 && end > LATE_ROUNDS ? end - LATE_ROUNDS : 0);
    first = (n - STEADY) / SHORT * (uint64_t)LIFE_ROUNDS;
    if (end <= first)
        return 0;
    return end - first > LIFE_ROUNDS ? LIFE_ROUNDS : end - first;
}

static void check_column(const struct view *v, uint32_t series, const struct column *got)
{
    uint32_t writer = series / WRITER_SERIES;
    uint64_t count = 0;

    CHECK(writer < WRITERS);
    for (size_t i = 0; i < got->count; i++) {
        uint64_t round = round_of(series, got->t_ms[i]);
        uint64_t bits = double_bits(got->value[i]);

        CHECK(i == 0 || got->t_ms[i] > got->t_ms[i - 1]);
        CHECK_MSG(round < v->after[writer], "series %" PRIu32 ": round %" PRIu64, series, round);
        CHECK_MSG(bits == double_bits(value_of(series, got->t_ms[i])) ||
                      (bits == STALE_NAN_BITS && series % WRITER_SERIES >= STEADY),
                  "series %" PRIu32 " at %" PRId64, series, got->t_ms[i]);
        kit_check_kind(series, got, i);
        count += round < v->before[writer];
    }
    CHECK_MSG(count == expected(series, v->before[writer]),
              "series %" PRIu32 ": %" PRIu64 " samples, not %" PRIu64, series, count,
              expected(series, v->before[writer]));
}

/* The deleter's series: rounds that were deleted before the query began are not there. */
static void check_deleted(const struct view *v, const struct column *got)
{
    uint64_t count = 0;

    for (size_t i = 0; i < got->count; i++) {
        uint64_t round = round_of(DELETED, got->t_ms[i]);

        CHECK(i == 0 || got->t_ms[i] > got->t_ms[i - 1]);
        CHECK_MSG(round >= v->deleted && round < v->after[WRITERS],
                  "round %" PRIu64 " is back, deleted up to %" PRIu64, round, v->deleted);
        count += round < v->before[WRITERS];
    }
    (void)count; /* some of them may have been deleted meanwhile */
}

static void look_before(const struct shared *s, struct view *v)
{
    v->deleted = atomic_load_explicit(&s->deleted, memory_order_acquire);
    for (int i = 0; i <= WRITERS; i++)
        v->before[i] = atomic_load_explicit(&s->acknowledged[i], memory_order_acquire);
}

static void read_all(struct shared *s, struct querier *q, struct view *v, struct arena *arena)
{
    struct series_list list;
    struct errinfo ei = {0};
    struct labels *labels;

    CHECK_OK(querier_select(q, NULL, 0, INT64_MIN, INT64_MAX, arena, &list, &ei), &ei);
    labels = ARENA_ARRAY(arena, list.count + 1, struct labels);
    CHECK(labels != NULL);
    CHECK_OK(querier_labels(q, list.items, list.count, arena, labels, &ei), &ei);
    for (size_t i = 0; i < list.count; i += QUERIER_READ_BATCH_MAX) {
        struct column columns[QUERIER_READ_BATCH_MAX];
        size_t count = list.count - i;

        if (count > QUERIER_READ_BATCH_MAX)
            count = QUERIER_READ_BATCH_MAX;
        CHECK_OK(querier_read(q, list.items + i, count, INT64_MIN, INT64_MAX, arena, columns, &ei),
                 &ei);
        for (int n = 0; n <= WRITERS; n++)
            v->after[n] = atomic_load_explicit(&s->sent[n], memory_order_acquire);
        for (size_t k = 0; k < count; k++) {
            uint32_t series = life_series_of(&labels[i + k]);

            if (series == DELETED)
                check_deleted(v, &columns[k]);
            else
                check_column(v, series, &columns[k]);
        }
    }
}

static void *read_rounds(void *arg)
{
    struct worker *w = arg;
    struct errinfo ei = {0};

    while (!is_over(w->shared)) {
        struct querier *q;
        struct arena arena;
        struct view view;

        arena_init(&arena, NULL);
        look_before(w->shared, &view);
        CHECK_OK(querier_open(w->shared->life->kit.engine, &q, &ei), &ei);
        read_all(w->shared, q, &view, &arena);
        querier_close(q);
        arena_done(&arena);
        if (w->number == 0)
            w->shared->reads++;
    }
    return NULL;
}

/* ---- maintenance ---- */

static void maintain(struct worker *w, struct life *l, struct test_random *r)
{
    uint32_t shard = (uint32_t)test_random_below(r, SHARDS);
    bool merged = false;

    l->now_ms = atomic_load_explicit(&w->shared->now_ms, memory_order_relaxed);
    switch (test_random_below(r, 6)) {
    case 0:
        CHECK_OK(life_flush(l, shard, l->now_ms / LIFE_WINDOW * LIFE_WINDOW), &l->kit.ei);
        break;
    case 1:
        CHECK_OK(life_split_late(l, shard), &l->kit.ei);
        break;
    case 2:
        /* One merger, as there is one worker a shard: two would take each other's inputs. */
        if (w->number == 0) {
            CHECK_OK(life_merge(l, shard, &merged), &l->kit.ei);
            w->shared->merges += merged;
        }
        break;
    case 3:
        CHECK_OK(life_rebuild(l, shard), &l->kit.ei);
        break;
    default:
        CHECK_OK(life_seal(l, shard), &l->kit.ei);
        break;
    }
}

static void *maintain_rounds(void *arg)
{
    struct worker *w = arg;
    struct test_random r = {w->number + 7, 0};
    struct life l = {.fs = w->shared->life->fs};

    kit_join(&l.kit, w->shared->life->kit.engine);
    life_model_init(&l.model);
    while (!is_over(w->shared))
        maintain(w, &l, &r);
    life_model_done(&l.model);
    kit_leave(&l.kit);
    return NULL;
}

static void *delete_rounds(void *arg)
{
    enum { EVERY = 16 };
    struct worker *w = arg;
    struct life l = {.fs = w->shared->life->fs};

    kit_join(&l.kit, w->shared->life->kit.engine);
    life_model_init(&l.model);
    for (uint64_t round = 0; !is_over(w->shared); round++) {
        reach_now(w->shared, time_of(round));
        put(&l.kit, DELETED, time_of(round), value_of(DELETED, time_of(round)));
        send_round(w, &l.kit, round);
        if (round % EVERY != EVERY - 1)
            continue;
        CHECK_OK(life_delete_series(&l, DELETED, INT64_MIN, time_of(round)), &l.kit.ei);
        atomic_store_explicit(&w->shared->deleted, round + 1, memory_order_release);
    }
    life_model_done(&l.model);
    kit_leave(&l.kit);
    return NULL;
}

static void begin(struct worker *w, struct shared *s, uint32_t number, const char *name,
                  void *(*run)(void *))
{
    struct errinfo ei = {0};

    *w = (struct worker){.shared = s, .number = number};
    CHECK_OK(thread_start(&w->thread, name, run, w, &ei), &ei);
}

/* All that was acknowledged, once nobody is at work any more. */
static void check_at_rest(struct shared *s)
{
    struct errinfo ei = {0};
    struct querier *q;
    struct arena arena;
    struct view view;

    arena_init(&arena, NULL);
    look_before(s, &view);
    CHECK_OK(querier_open(s->life->kit.engine, &q, &ei), &ei);
    read_all(s, q, &view, &arena);
    querier_close(q);
    arena_done(&arena);
}

static void test_everybody_at_once(void **state)
{
    enum { WORKERS = WRITERS + READERS + MAINTAINERS + 1 };
    const char *seconds = getenv("RIMSTONE_SECONDS"); /* NOLINT(concurrency-mt-unsafe) */
    struct worker workers[WORKERS];
    struct shared shared = {0};
    struct life life;
    uint32_t at = 0;

    (void)state;
    life_init(&life, test_fs_new(5), SHARDS);
    life_open_checked(&life);
    *life_control() = (struct maintain_control){0};
    shared.life = &life;
    atomic_store(&shared.now_ms, LIFE_T0);
    shared.end_ns = clock_mono_ns() +
                    (seconds == NULL ? SECONDS : strtoull(seconds, NULL, 0)) * UINT64_C(1000000000);
    for (uint32_t i = 0; i < WRITERS; i++)
        begin(&workers[at++], &shared, i, "writer", write_rounds);
    for (uint32_t i = 0; i < READERS; i++)
        begin(&workers[at++], &shared, i, "reader", read_rounds);
    for (uint32_t i = 0; i < MAINTAINERS; i++)
        begin(&workers[at++], &shared, i, "maintainer", maintain_rounds);
    begin(&workers[at++], &shared, WRITERS, "deleter", delete_rounds);
    for (uint32_t i = 0; i < at; i++)
        thread_join(&workers[i].thread);
    fprintf(stderr, "%" PRIu64 " rounds, %" PRIu64 " reads, %" PRIu64 " merges\n",
            atomic_load(&shared.acknowledged[0]), shared.reads, shared.merges);
    CHECK(atomic_load(&shared.acknowledged[0]) > LATE_ROUNDS && shared.reads > 0);
    check_at_rest(&shared);
    life_lose_power(&life, &test_crash_modes[1], 1);
    life_open_checked(&life);
    check_at_rest(&shared);
    life_done(&life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everybody_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
