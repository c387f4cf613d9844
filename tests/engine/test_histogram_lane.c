/* A lane of histograms against a plain list: appends, insertions, cuts, detaches, and readers who
 * keep what they took. */
#include <stdlib.h>
#include <string.h>

#include "engine/histogram/histogram_pack_internal.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/histogram_lane_internal.h"
#include "engine/write.h"
#include "tests/engine/histogram_kit.h"
#include "tests/lib/test_cmocka.h"

enum { SLOT_COUNT = 40, GENERATION_COUNT = 2, SERIES_SAMPLES = 400 };

#define T0 1767225600000

struct twin_series {
    size_t count, cut_count; /* samples; those in blocks that a cut has noted */
    uint32_t cut_blocks;
    int64_t t_ms[SERIES_SAMPLES];
    struct histogram value[SERIES_SAMPLES];
};
struct world {
    struct test_random r;
    struct arena arena;
    struct budget budget;
    struct histogram_lane lane;
    struct twin_series *series; /* SLOT_COUNT * GENERATION_COUNT */
};

static struct twin_series *twin_at(struct world *w, uint32_t slot, uint16_t generation)
{
    return &w->series[slot * GENERATION_COUNT + generation];
}

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.r = test_random_init(seed)};
    arena_init(&w->arena, NULL);
    budget_init(&w->budget, "lane", UINT64_MAX, NULL);
    histogram_lane_init(&w->lane, &w->budget);
    w->series = calloc((size_t)SLOT_COUNT * GENERATION_COUNT, sizeof *w->series);
    CHECK(w->series != NULL);
}

static void world_done(struct world *w)
{
    histogram_lane_done(&w->lane);
    CHECK(budget_used(&w->budget) == 0);
    arena_done(&w->arena);
    free(w->series);
}

static struct histogram any(struct world *w)
{
    struct histogram h[4];

    if (test_random_below(&w->r, 2) == 0)
        return histogram_any(&w->r, &w->arena);
    histograms_fill(&w->r, (enum histogram_model)test_random_below(&w->r, HISTOGRAMS_MODEL_COUNT),
                    &w->arena, h, 4);
    return h[test_random_below(&w->r, 4)];
}

/* As a client sends: like the one before, with more in its buckets. */
static struct histogram next_of(struct world *w, const struct twin_series *t)
{
    struct histogram h;

    if (t->count == 0 || test_random_below(&w->r, 20) == 0)
        return any(w);
    CHECK(histogram_copy(&t->value[t->count - 1], &w->arena, &h) == ERR_OK);
    for (size_t i = 0; i < h.positive.bucket_count; i++)
        h.positive.buckets[i] += (double)test_random_below(&w->r, 3);
    h.sum += 1.25;
    return h;
}

static uint64_t bits_of(const struct histogram *h)
{
    uint64_t bits = 0;

    CHECK(histogram_value_bits(h, &bits));
    return bits;
}

/* The same but for the hint, which tells how it goes on from the one before, if anything. */
static void check_stored(const struct histogram *got, const struct histogram *sent,
                         const struct histogram *before)
{
    struct histogram like_sent = *got;

    like_sent.hint = sent->hint;
    CHECK(histogram_same_bits(&like_sent, sent));
    CHECK(got->hint != HISTOGRAM_HINT_RESET);
    CHECK((got->hint == HISTOGRAM_HINT_GAUGE) == (sent->hint == HISTOGRAM_HINT_GAUGE));
    if (before != NULL && got->hint == HISTOGRAM_HINT_NOT_RESET)
        CHECK(histogram_hint_behind(sent, before) == HISTOGRAM_HINT_NOT_RESET);
}

static void check_column(const struct twin_series *t, int64_t min_ms, int64_t max_ms,
                         const struct column *c)
{
    size_t n = 0;

    for (size_t i = 0; i < t->count; i++) {
        if (t->t_ms[i] < min_ms || t->t_ms[i] > max_ms)
            continue;
        CHECK(n < c->count && c->t_ms[n] == t->t_ms[i]);
        check_stored(c->histogram[n], &t->value[i], n > 0 ? c->histogram[n - 1] : NULL);
        CHECK(double_bits(c->value[n]) == double_bits(t->value[i].sum));
        n++;
    }
    CHECK(n == c->count);
}

/* Takes some range; between taking and reading the lane may change. */
struct reading {
    struct histogram_take take;
    struct twin_series *wanted; /* owned */
    struct arena arena;
    int64_t min_ms, max_ms;
};

static void reading_begin(struct world *w, struct reading *r)
{
    uint32_t slot = (uint32_t)test_random_below(&w->r, SLOT_COUNT);
    uint16_t generation = (uint16_t)test_random_below(&w->r, GENERATION_COUNT);
    const struct twin_series *t = twin_at(w, slot, generation);

    *r = (struct reading){.min_ms = INT64_MIN, .max_ms = INT64_MAX};
    if (t->count > 0 && test_random_below(&w->r, 2) == 0) {
        r->min_ms = t->t_ms[test_random_below(&w->r, t->count)];
        r->max_ms = t->t_ms[test_random_below(&w->r, t->count)] + 1;
    }
    r->wanted = malloc(sizeof *r->wanted);
    CHECK(r->wanted != NULL);
    *r->wanted = *t;
    arena_init(&r->arena, NULL);
    CHECK(histogram_take_blocks(&r->take, &w->lane, slot, generation, r->min_ms, r->max_ms,
                                &r->arena));
}

static void reading_end(struct reading *r)
{
    struct errinfo ei = {0};
    struct column c;

    if (r->wanted == NULL)
        return;
    CHECK_OK(histogram_take_read(&r->take, r->min_ms, r->max_ms, &r->arena, &c, &ei), &ei);
    check_column(r->wanted, r->min_ms, r->max_ms, &c);
    histogram_take_drop(&r->take);
    arena_done(&r->arena);
    free(r->wanted);
    *r = (struct reading){0};
}

static void check_judge(struct world *w, uint32_t slot, uint16_t generation)
{
    const struct twin_series *t = twin_at(w, slot, generation);
    struct histogram other = any(w);
    size_t at = t->count == 0 ? 0 : test_random_below(&w->r, t->count);

    if (t->count == 0)
        return;
    CHECK(histogram_lane_judge(&w->lane, slot, generation, t->t_ms[at], bits_of(&t->value[at])) ==
          LATE_REPEAT);
    CHECK(histogram_lane_judge(&w->lane, slot, generation, t->t_ms[at],
                               bits_of(&t->value[at]) ^ 1) == LATE_DUPLICATE);
    if (bits_of(&other) != bits_of(&t->value[at]))
        CHECK(histogram_lane_judge(&w->lane, slot, generation, t->t_ms[at], bits_of(&other)) ==
              LATE_DUPLICATE);
    if (at == 0 || t->t_ms[at - 1] < t->t_ms[at] - 1)
        CHECK(histogram_lane_judge(&w->lane, slot, generation, t->t_ms[at] - 1,
                                   bits_of(&t->value[at])) == LATE_STORED);
}

static void check_lane(const struct world *w)
{
    const struct histogram_series **list =
        calloc(w->lane.series_count + 1, sizeof(const struct histogram_series *));
    uint64_t wanted = 0, samples = 0;

    CHECK(list != NULL);
    for (size_t i = 0; i < (size_t)SLOT_COUNT * GENERATION_COUNT; i++)
        wanted += w->series[i].count;
    CHECK(w->lane.sample_count == wanted);
    histogram_lane_list(&w->lane, list);
    for (size_t i = 0; i < w->lane.series_count; i++) {
        CHECK(list[i]->block_count > 0);
        for (uint32_t k = 0; k < list[i]->block_count; k++)
            samples += list[i]->blocks[k]->count;
        if (i > 0)
            CHECK(list[i - 1]->slot < list[i]->slot ||
                  (list[i - 1]->slot == list[i]->slot &&
                   list[i - 1]->generation < list[i]->generation));
    }
    CHECK(samples == wanted);
    CHECK((w->lane.min_time_ms > w->lane.max_time_ms) == (wanted == 0));
    free(list);
}

/* Of the series' newest sample, or of a float behind it. */
static int64_t before_of(struct world *w, const struct twin_series *t)
{
    int64_t newest_ms = t->count == 0 ? INT64_MIN : t->t_ms[t->count - 1];

    return newest_ms + (newest_ms != INT64_MIN && test_random_below(&w->r, 8) == 0);
}

static void append_one(struct world *w, uint32_t slot, uint16_t generation)
{
    struct twin_series *t = twin_at(w, slot, generation);
    int64_t t_ms = t->count == 0 ? T0 : t->t_ms[t->count - 1];

    if (t->count == SERIES_SAMPLES)
        return;
    t_ms += test_random_below(&w->r, 50) == 0 ? CHUNK_WINDOW_MS
                                              : 1 + (int64_t)test_random_below(&w->r, 30000);
    t->value[t->count] = next_of(w, t);
    t->t_ms[t->count] = t_ms;
    CHECK(histogram_lane_append(&w->lane, slot, generation, t_ms, &t->value[t->count],
                                before_of(w, t)));
    t->count++;
}

static void detach_one(struct world *w, uint32_t slot, uint16_t generation)
{
    struct twin_series *t = twin_at(w, slot, generation);
    struct histogram_block *freed = NULL;

    histogram_lane_detach(&w->lane, slot, generation, t->cut_blocks, &freed);
    histogram_blocks_free(freed);
    memmove(t->t_ms, t->t_ms + t->cut_count, (t->count - t->cut_count) * sizeof *t->t_ms);
    memmove(t->value, t->value + t->cut_count, (t->count - t->cut_count) * sizeof *t->value);
    t->count -= t->cut_count;
    t->cut_count = t->cut_blocks = 0;
}

static void test_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct reading readings[4] = {0};
        struct world w;

        world_init(&w, seed);
        for (int step = 0; step < 20000; step++) {
            uint32_t slot = (uint32_t)test_random_below(&w.r, SLOT_COUNT);
            uint16_t generation = (uint16_t)(test_random_below(&w.r, 10) == 0);
            struct twin_series *t = twin_at(&w, slot, generation);
            uint64_t what = test_random_below(&w.r, 200);

            if (what == 0) {
                t->cut_blocks = histogram_lane_cut(&w.lane, slot, generation);
                t->cut_count = t->count;
                CHECK((t->cut_blocks == 0) == (t->count == 0));
            } else if (what == 1) {
                detach_one(&w, slot, generation);
            } else if (what < 10) {
                struct reading *r = &readings[what % 4];

                reading_end(r);
                reading_begin(&w, r);
            } else if (what < 15) {
                check_judge(&w, slot, generation);
            } else {
                append_one(&w, slot, generation);
            }
            if (step % 1000 == 0)
                check_lane(&w);
        }
        check_lane(&w);
        for (uint32_t slot = 0; slot < SLOT_COUNT * GENERATION_COUNT; slot++) {
            struct twin_series *t = &w.series[slot];

            t->cut_count = t->count;
            t->cut_blocks = histogram_lane_cut(&w.lane, slot / GENERATION_COUNT,
                                               (uint16_t)(slot % GENERATION_COUNT));
            detach_one(&w, slot / GENERATION_COUNT, (uint16_t)(slot % GENERATION_COUNT));
        }
        check_lane(&w);
        CHECK(w.lane.series_count == 0);
        for (size_t i = 0; i < 4; i++) /* what they hold outlives the lane's own */
            reading_end(&readings[i]);
        world_done(&w);
    }
}

static void insert_one(struct world *w, uint32_t slot)
{
    struct twin_series *t = twin_at(w, slot, 0);
    struct histogram h = any(w);
    int64_t t_ms = T0 + (int64_t)test_random_below(&w->r, 1000);
    size_t at = 0;
    uint8_t *packed = malloc(histogram_pack_size_max(&h));

    CHECK(packed != NULL);
    while (at < t->count && t->t_ms[at] < t_ms)
        at++;
    if (t->count < SERIES_SAMPLES && (at == t->count || t->t_ms[at] != t_ms)) {
        CHECK(histogram_lane_judge(&w->lane, slot, 0, t_ms, bits_of(&h)) == LATE_STORED);
        CHECK(histogram_lane_insert(&w->lane, slot, 0, t_ms,
                                    (struct bytes){packed, histogram_pack(packed, &h, NULL)}));
        memmove(t->t_ms + at + 1, t->t_ms + at, (t->count - at) * sizeof *t->t_ms);
        memmove(t->value + at + 1, t->value + at, (t->count - at) * sizeof *t->value);
        t->t_ms[at] = t_ms;
        t->value[at] = h;
        t->count++;
    }
    free(packed);
}

static void test_late(void **state)
{
    struct histogram_lane frozen;
    struct reading reading;
    struct world w;

    (void)state;
    world_init(&w, 9);
    for (int step = 0; step < 6000; step++) {
        uint32_t slot = (uint32_t)test_random_below(&w.r, SLOT_COUNT);

        insert_one(&w, slot);
        check_judge(&w, slot, 0);
        if (step % 50 != 0)
            continue;
        reading_begin(&w, &reading);
        insert_one(&w, slot);
        reading_end(&reading);
    }
    check_lane(&w);
    CHECK(w.lane.moved_count > 0);
    histogram_lane_init(&frozen, &w.budget);
    histogram_lane_move(&w.lane, &frozen);
    CHECK(w.lane.sample_count == 0 && w.lane.memory_bytes == 0);
    histogram_lane_move(&frozen, &w.lane);
    check_lane(&w);
    world_done(&w);
}

/* When memory is refused nothing changes. */
static void test_refusals(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 11);
    for (int step = 0; step < 3000; step++) {
        uint32_t slot = (uint32_t)test_random_below(&w.r, SLOT_COUNT);
        struct twin_series *t = twin_at(&w, slot, 0);
        int64_t t_ms = t->count == 0 ? T0 : t->t_ms[t->count - 1] + 15000;
        uint64_t used = budget_used(&w.budget);

        if (t->count == SERIES_SAMPLES)
            continue;
        t->value[t->count] = next_of(&w, t);
        t->t_ms[t->count] = t_ms;
        w.budget.limit_bytes = used + test_random_below(&w.r, 2000) + 1;
        if (histogram_lane_append(&w.lane, slot, 0, t_ms, &t->value[t->count], before_of(&w, t)))
            t->count++;
        w.budget.limit_bytes = UINT64_MAX;
        if (step % 20 == 0) {
            struct reading reading;

            check_lane(&w);
            reading_begin(&w, &reading);
            reading_end(&reading);
        }
    }
    check_lane(&w);
    world_done(&w);
}

/* What a counter with few layouts costs in memory, per sample. */
static void test_memory(void **state)
{
    struct world w;
    struct histogram h[SERIES_SAMPLES / 4];

    (void)state;
    world_init(&w, 12);
    for (uint32_t slot = 0; slot < SLOT_COUNT; slot++) {
        histograms_fill(&w.r, HISTOGRAMS_COUNTER, &w.arena, h, SERIES_SAMPLES / 4);
        for (size_t i = 0; i < SERIES_SAMPLES / 4; i++)
            CHECK(histogram_lane_append(&w.lane, slot, 0, T0 + 15000 * (int64_t)i, &h[i],
                                        T0 + 15000 * ((int64_t)i - 1)));
        histogram_lane_cut(&w.lane, slot, 0);
    }
    CHECK_MSG(w.lane.memory_bytes / w.lane.sample_count < 80, "%zu bytes a sample",
              (size_t)(w.lane.memory_bytes / w.lane.sample_count));
    world_done(&w);
}

/* Floats and histograms of one series. */
static void test_interleave(void **state)
{
    static const struct histogram h = {.sum = 5};
    const struct histogram *const pointers[] = {&h, &h, &h};
    const struct column floats = {3, (int64_t[]){1, 4, 6}, (double[]){1, 2, 3}, NULL};
    const struct column histograms = {3, (int64_t[]){2, 4, 9}, (double[]){5, 5, 5}, pointers};
    const struct column none = {0};
    struct column out;
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    CHECK(columns_interleave(&floats, &none, &arena, &out) && out.value == floats.value);
    CHECK(columns_interleave(&none, &histograms, &arena, &out) && out.histogram == pointers);
    CHECK(columns_interleave(&floats, &histograms, &arena, &out) && out.count == 5);
    for (size_t i = 0; i < 5; i++) {
        CHECK(out.t_ms[i] == ((int64_t[]){1, 2, 4, 6, 9})[i]);
        CHECK(out.value[i] == ((double[]){1, 5, 2, 3, 5})[i]);
        CHECK((out.histogram[i] == NULL) == (i == 0 || i == 2 || i == 3));
    }
    arena_done(&arena);
}

static void check_hint(const char *what, const struct histogram *h, const struct histogram *before,
                       enum histogram_hint want)
{
    enum histogram_hint got = histogram_hint_behind(h, before);

    CHECK_MSG(got == want, "%s: %d", what, (int)got);
}

static void test_hints(void **state)
{
    static const struct histogram_span two = {0, 2}, three = {0, 3}, later = {1, 2};
    static const double bounds[] = {1, 2}, others[] = {1, 3};
    double a[] = {1, 2}, b[] = {1, 3}, c[] = {0, 2}, d[] = {1, 2, 0};
    const struct histogram base = {
        .count = 3, .zero_count = 1, .sum = 5, .positive = {&two, 1, a, 2}};
    struct histogram h = base, before = base;

    (void)state;
    check_hint("the first", &h, NULL, HISTOGRAM_HINT_UNKNOWN);
    check_hint("equal", &h, &before, HISTOGRAM_HINT_NOT_RESET);
    h.positive.buckets = b;
    check_hint("more", &h, &before, HISTOGRAM_HINT_NOT_RESET);
    check_hint("less", &before, &h, HISTOGRAM_HINT_UNKNOWN);
    h.hint = HISTOGRAM_HINT_RESET;
    check_hint("a client's word", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    h.hint = HISTOGRAM_HINT_NOT_RESET;
    h.count = 2;
    check_hint("an untrue word", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    h = base;
    h.zero_count = 0;
    check_hint("the zero bucket", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    h = base;
    h.schema = 1;
    check_hint("the schema", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    h = base;
    h.zero_threshold = 1;
    check_hint("the threshold", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    h = base;
    h.positive = (struct histogram_side){&three, 1, d, 3};
    check_hint("a bucket more", &h, &before, HISTOGRAM_HINT_NOT_RESET);
    check_hint("an empty bucket less", &before, &h, HISTOGRAM_HINT_NOT_RESET);
    h.positive = (struct histogram_side){&later, 1, a, 2};
    check_hint("a populated bucket less", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    before.positive.buckets = c;
    check_hint("less in a bucket", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    h = before = base;
    before.sum = double_from_bits(STALE_NAN_BITS);
    check_hint("behind a staleness marker", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    before = base;
    before.hint = HISTOGRAM_HINT_GAUGE;
    check_hint("behind a gauge", &h, &before, HISTOGRAM_HINT_UNKNOWN);
    h.hint = HISTOGRAM_HINT_GAUGE;
    check_hint("a gauge", &h, &base, HISTOGRAM_HINT_GAUGE);
    check_hint("a gauge alone", &h, NULL, HISTOGRAM_HINT_GAUGE);
    h = before = (struct histogram){
        .schema = HISTOGRAM_SCHEMA_CUSTOM, .custom_values = bounds, .custom_count = 2};
    check_hint("bounds", &h, &before, HISTOGRAM_HINT_NOT_RESET);
    h.custom_values = others;
    check_hint("other bounds", &h, &before, HISTOGRAM_HINT_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),   cmocka_unit_test(test_late),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_interleave), cmocka_unit_test(test_hints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
