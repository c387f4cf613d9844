/*
 * The explorer, over memory and over the parts of a day, against plain counting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/explore.h"
#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS /* a midnight */
#define MINUTE INT64_C(60000)
#define HOUR (60 * MINUTE)

enum { SERIES = 600, METRICS = 7, JOBS = 11, PODS = 97, ROWS_MAX = 1000, HOURS = 6 };

/* Minutes of the first and last sample of a series: all day, from 3 h on, up to 4 h, or short. */
struct span {
    int first, end;
};

static struct span span_of(int i)
{
    static const struct span spans[] = {{0, 60 * HOURS}, {180, 60 * HOURS}, {0, 240}, {100, 110}};

    return spans[i % 10 < 7 ? 0 : i % 10 - 6];
}

static bool is_created(int i)
{
    return span_of(i).first > 0;
}

static bool is_ended(int i)
{
    return span_of(i).end < 60 * HOURS;
}

struct twin_row {
    char text[64];
    uint64_t series, created, ended, values;
};
struct twin {
    struct twin_row rows[ROWS_MAX];
    size_t count;
};

static struct twin_row *twin_row(struct twin *t, const char *text)
{
    size_t i = 0;

    while (i < t->count && strcmp(t->rows[i].text, text) != 0)
        i++;
    if (i == t->count) {
        CHECK(t->count < ROWS_MAX);
        (void)snprintf(t->rows[t->count++].text, sizeof t->rows[0].text, "%s", text);
    }
    return &t->rows[i];
}

static bool twin_add(struct twin *t, const char *text, bool created, bool ended)
{
    struct twin_row *row = twin_row(t, text);

    row->series++;
    row->created += created;
    row->ended += ended;
    return row->series == 1;
}

struct scene {
    struct fs *fs;
    struct kit k;
    struct arena arena;
    struct budget memory;
    struct explore x;
    struct twin metrics, labels, jobs, pairs;
    uint64_t series, created, ended;
};

struct fields {
    const char *name[4];
    char value[4][32];
    int count;
};

static void fields_of(int i, struct fields *f)
{
    f->count = 3;
    f->name[0] = "__name__";
    (void)snprintf(f->value[0], 32, "metric_%d", i % METRICS);
    f->name[1] = "job";
    (void)snprintf(f->value[1], 32, "job_%d", i % JOBS);
    f->name[2] = "pod";
    (void)snprintf(f->value[2], 32, "pod_%d", i % PODS);
    if (i % 3 == 0) {
        f->name[3] = "zone";
        (void)snprintf(f->value[3], 32, "z%d", i % 2);
        f->count = 4;
    }
}

static void put_minute(struct scene *s, int minute)
{
    for (int i = 0; i < SERIES; i++) {
        struct span span = span_of(i);
        struct fields f;
        char labels[160];
        int size = 0;

        if (minute < span.first || minute >= span.end)
            continue;
        fields_of(i, &f);
        for (int n = 0; n < f.count; n++)
            size += snprintf(labels + size, sizeof labels - (size_t)size, "%s%s=%s",
                             n == 0 ? "" : ",", f.name[n], f.value[n]);
        kit_series(&s->k, labels);
        kit_sample(&s->k, T0 + minute * MINUTE, (double)(i * minute % 1000));
    }
    CHECK_OK(kit_write(&s->k), &s->k.ei);
    CHECK(s->k.result.refused_count == 0);
}

static void scene_open(struct scene *s)
{
    struct errinfo ei = {0};

    memset(s, 0, sizeof *s);
    budget_init(&s->memory, "explorer", 64 << 20, NULL);
    arena_init(&s->arena, &s->memory);
    CHECK_OK(fs_sim_new(1, &s->fs, &ei), &ei);
    kit_open(&s->k, s->fs, &(struct engine_options){.shard_count = 4});
    for (int minute = 0; minute < 60 * HOURS; minute++) {
        clock_set_fake(&s->k.clock, T0 + minute * MINUTE);
        put_minute(s, minute);
    }
    CHECK_OK(kit_wait(&s->k), &s->k.ei);
}

static void scene_close(struct scene *s)
{
    arena_done(&s->arena);
    CHECK(budget_used(&s->memory) == 0);
    kit_close(&s->k);
    fs_free(s->fs);
}

/* Counts the series that `wanted` says, with what it says of them. */
static void twins_fill(struct scene *s, bool (*wanted)(int i), bool (*created)(int i),
                       bool (*ended)(int i))
{
    s->metrics.count = s->labels.count = s->jobs.count = s->pairs.count = 0;
    memset(&s->metrics, 0, sizeof s->metrics);
    memset(&s->labels, 0, sizeof s->labels);
    memset(&s->jobs, 0, sizeof s->jobs);
    memset(&s->pairs, 0, sizeof s->pairs);
    s->series = s->created = s->ended = 0;
    for (int i = 0; i < SERIES; i++) {
        struct fields f;

        if (!wanted(i))
            continue;
        fields_of(i, &f);
        s->series++;
        s->created += created(i);
        s->ended += ended(i);
        for (int n = 0; n < f.count; n++) {
            char pair[80];

            (void)snprintf(pair, sizeof pair, "%s=%s", f.name[n], f.value[n]);
            if (twin_add(&s->pairs, pair, created(i), ended(i)))
                twin_row(&s->labels, f.name[n])->values++;
            (void)twin_add(&s->labels, f.name[n], created(i), ended(i));
        }
        (void)twin_add(&s->metrics, f.value[0], created(i), ended(i));
        (void)twin_add(&s->jobs, f.value[1], created(i), ended(i));
    }
}

static void check_list(const struct twin *t, size_t limit, const struct explore_list *got)
{
    bool taken[ROWS_MAX] = {false};

    CHECK(got->count == (t->count < limit ? t->count : limit));
    for (size_t i = 0; i < got->count; i++) {
        const struct explore_row *row = &got->rows[i];
        const struct twin_row *want;
        size_t best = SIZE_MAX;

        for (size_t k = 0; k < t->count; k++)
            if (!taken[k] && (best == SIZE_MAX || t->rows[k].series > t->rows[best].series ||
                              (t->rows[k].series == t->rows[best].series &&
                               strcmp(t->rows[k].text, t->rows[best].text) < 0)))
                best = k;
        taken[best] = true;
        want = &t->rows[best];
        CHECK_MSG(str_equal(row->name, str_from(want->text)) && row->series == want->series &&
                      row->created == want->created && row->ended == want->ended &&
                      row->values == want->values,
                  "row %d: %.*s %d %d %d %d, expected %s %d %d %d %d", (int)i, STR_ARGS(row->name),
                  (int)row->series, (int)row->created, (int)row->ended, (int)row->values,
                  want->text, (int)want->series, (int)want->created, (int)want->ended,
                  (int)want->values);
    }
}

static enum err explore(struct scene *s, const struct explore_options *o)
{
    struct querier *q;
    enum err e;

    arena_reset(&s->arena);
    CHECK_OK(querier_open(s->k.engine, &q, &s->k.ei), &s->k.ei);
    e = querier_explore(q, o, &s->arena, &s->x, &s->k.ei);
    querier_close(q);
    return e;
}

static void check(struct scene *s, const struct explore_options *o)
{
    CHECK_OK(explore(s, o), &s->k.ei);
    CHECK_MSG(s->x.all.series == s->series && s->x.all.created == s->created &&
                  s->x.all.ended == s->ended,
              "%d %d %d, expected %d %d %d", (int)s->x.all.series, (int)s->x.all.created,
              (int)s->x.all.ended, (int)s->series, (int)s->created, (int)s->ended);
    CHECK(s->x.label_pair_count == s->pairs.count);
    check_list(&s->metrics, o->limit, &s->x.by_metric);
    check_list(&s->labels, o->limit, &s->x.by_label);
    check_list(&s->jobs, o->focus.size > 0 ? o->limit : 0, &s->x.by_value);
    check_list(&s->pairs, o->limit, &s->x.by_pair);
}

static bool any(int i)
{
    (void)i;
    return true;
}

static bool of_few_jobs(int i)
{
    return (i % JOBS == 3 || i % JOBS == 5) && i % 3 == 0;
}

static bool of_nothing(int i)
{
    (void)i;
    return false;
}

/* Just before 6 h the windows from 2 h and 4 h on count. */
static bool is_new_in_memory(int i)
{
    return span_of(i).first >= 120;
}

struct selector {
    struct matcher matchers[2];
    size_t count;
};

static void selector_init(struct selector *sel, struct arena *arena, struct errinfo *ei)
{
    CHECK_OK(matcher_init(&sel->matchers[0], MATCHER_REGEX, STR_LITERAL("job"),
                          STR_LITERAL("job_(3|5)"), arena, ei),
             ei);
    CHECK_OK(matcher_init(&sel->matchers[1], MATCHER_NOT_EQUAL, STR_LITERAL("zone"),
                          STR_LITERAL(""), arena, ei),
             ei);
    sel->count = 2;
}

static void selector_done(struct selector *sel)
{
    for (size_t i = 0; i < sel->count; i++)
        matcher_done(&sel->matchers[i]);
}

static void check_all_selectors(struct scene *s, int64_t day_ms, bool (*created)(int i),
                                bool (*ended)(int i))
{
    const size_t limits[] = {1, 5, ROWS_MAX};
    struct selector sel;
    struct arena arena;

    arena_init(&arena, NULL);
    selector_init(&sel, &arena, &s->k.ei);
    for (size_t i = 0; i < 3; i++) {
        struct explore_options o = {
            .focus = STR_LITERAL("job"), .limit = limits[i], .day_ms = day_ms};

        twins_fill(s, any, created, ended);
        check(s, &o);
        o.matchers = sel.matchers;
        o.matcher_count = sel.count;
        twins_fill(s, of_few_jobs, created, ended);
        check(s, &o);
    }
    selector_done(&sel);
    arena_done(&arena);
}

static void memory_is_counted(void **state)
{
    struct explore_options o = {.limit = 10, .day_ms = EXPLORE_MEMORY};
    struct scene s;

    (void)state;
    scene_open(&s);
    check_all_selectors(&s, EXPLORE_MEMORY, is_new_in_memory, is_ended);
    CHECK_OK(explore(&s, &o), &s.k.ei);
    /* 480 go on, once a minute. */
    CHECK(s.x.all.samples_per_second > 7.99 && s.x.all.samples_per_second < 8.01);
    CHECK(s.x.by_metric.rows[0].samples_per_second > 1);
    CHECK(s.x.hours > 1.9 && s.x.hours < 4);
    /* A day that has no parts. */
    twins_fill(&s, of_nothing, any, any);
    o.day_ms = T0;
    check(&s, &o);
    /* Too little memory is an error, and nothing is left behind. */
    s.memory.limit_bytes = 3000;
    o.day_ms = EXPLORE_MEMORY;
    CHECK(explore(&s, &o) == ERR_LIMIT);
    scene_close(&s);
}

static void a_day_is_counted(void **state)
{
    struct explore_options o = {.limit = 10, .day_ms = T0 + 5 * HOUR};
    double samples = 0, bytes = 0;
    struct scene s;

    (void)state;
    scene_open(&s);
    clock_set_fake(&s.k.clock, T0 + 9 * HOUR);
    for (uint32_t i = 0; i < 4; i++) {
        struct seal_result sealed = {0};
        struct flush_result flushed = {0};

        CHECK_OK(engine_seal(s.k.engine, i, SEAL_INTERVAL, NULL, &sealed, &s.k.ei), &s.k.ei);
        CHECK_OK(engine_flush(s.k.engine, i, T0 + 9 * HOUR, NULL, &flushed, &s.k.ei), &s.k.ei);
        CHECK_OK(engine_split_late(s.k.engine, i, NULL, &flushed, &s.k.ei), &s.k.ei);
    }
    check_all_selectors(&s, T0, is_created, is_ended);
    check_all_selectors(&s, T0 + 23 * HOUR, is_created, is_ended);
    CHECK(s.x.hours > 5.9 && s.x.hours < 6.1);
    CHECK_OK(explore(&s, &o), &s.k.ei);
    for (int i = 0; i < SERIES; i++)
        samples += span_of(i).end - span_of(i).first;
    CHECK(s.x.all.samples > samples - 0.5 && s.x.all.samples < samples + 0.5);
    for (size_t i = 0; i < s.x.by_metric.count; i++)
        bytes += s.x.by_metric.rows[i].bytes;
    CHECK(bytes > 0.999 * s.x.all.bytes && bytes < 1.001 * s.x.all.bytes);
    /* The day before and the day after have nothing. */
    twins_fill(&s, of_nothing, any, any);
    o.day_ms = T0 - 1;
    check(&s, &o);
    o.day_ms = T0 + 24 * HOUR;
    check(&s, &o);
    s.memory.limit_bytes = 3000;
    o.day_ms = T0;
    CHECK(explore(&s, &o) == ERR_LIMIT);
    scene_close(&s);
}

/* Parts of another shard count are read by several shards: each series counts once. */
static void foreign_parts_are_counted_once(void **state)
{
    const uint32_t shard_counts[] = {8, 2};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct scene s;

        scene_open(&s);
        kit_close(&s.k);
        kit_open(&s.k, s.fs, &(struct engine_options){.shard_count = shard_counts[i]});
        CHECK(engine_shard_count(s.k.engine) == shard_counts[i]);
        check_all_selectors(&s, T0, is_created, is_ended);
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(a_day_is_counted),
        cmocka_unit_test(foreign_parts_are_counted_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
