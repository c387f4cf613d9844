/*
 * Cardinality over the shards of a real engine, against plain counting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/cardinality.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"

enum { SERIES = 400, METRICS = 7, JOBS = 11, PATHS = 97, ROWS_MAX = 600 };

/* What should come out, as a list of counts by text. */
struct twin {
    struct {
        char text[64];
        uint64_t value;
    } rows[ROWS_MAX];
    size_t count;
};

static void twin_add(struct twin *t, const char *text, uint64_t value)
{
    size_t i = 0;

    while (i < t->count && strcmp(t->rows[i].text, text) != 0)
        i++;
    if (i == t->count) {
        CHECK(t->count < ROWS_MAX);
        (void)snprintf(t->rows[t->count].text, sizeof t->rows[0].text, "%s", text);
        t->rows[t->count++].value = 0;
    }
    t->rows[i].value += value;
}

/* The `limit` largest, by plain selection. */
static void check_list(const struct twin *t, size_t limit, const struct cardinality_list *got)
{
    bool taken[ROWS_MAX] = {false};

    CHECK(got->count == (t->count < limit ? t->count : limit));
    for (size_t i = 0; i < got->count; i++) {
        size_t best = SIZE_MAX;

        for (size_t k = 0; k < t->count; k++) {
            if (!taken[k] && (best == SIZE_MAX || t->rows[k].value > t->rows[best].value ||
                              (t->rows[k].value == t->rows[best].value &&
                               strcmp(t->rows[k].text, t->rows[best].text) < 0)))
                best = k;
        }
        taken[best] = true;
        CHECK_MSG(str_equal(got->rows[i].name, str_from(t->rows[best].text)) &&
                      got->rows[i].value == t->rows[best].value,
                  "row %zu: %.*s %llu, expected %s %llu", i, STR_ARGS(got->rows[i].name),
                  (unsigned long long)got->rows[i].value, t->rows[best].text,
                  (unsigned long long)t->rows[best].value);
    }
}

struct scene {
    struct fs *fs;
    struct kit kit;
    struct querier *querier;
    struct arena arena;
    struct budget memory;
    struct errinfo ei;
    struct twin metrics, values, bytes, pairs;
};

/* One label of one series. */
static void add_label(struct scene *s, const char *name, const char *value)
{
    char pair[64];
    size_t before = s->pairs.count;

    (void)snprintf(pair, sizeof pair, "%s=%s", name, value);
    twin_add(&s->pairs, pair, 1);
    twin_add(&s->values, name, s->pairs.count - before);
    twin_add(&s->bytes, name, strlen(value));
}

static void add_series(struct scene *s, unsigned i)
{
    char text[200], metric[16], job[16], path[32];

    (void)snprintf(metric, sizeof metric, "m%u", i * i % METRICS);
    (void)snprintf(job, sizeof job, "j%u", i % JOBS);
    (void)snprintf(path, sizeof path, "p%u", i % PATHS * 1000);
    (void)snprintf(text, sizeof text, "__name__=%s,job=%s,path=%s,n=%u", metric, job, path, i);
    kit_series(&s->kit, text);
    kit_sample(&s->kit, KIT_NOW_MS, 1);
    (void)snprintf(text, sizeof text, "%u", i);
    add_label(s, "__name__", metric);
    add_label(s, "job", job);
    add_label(s, "path", path);
    add_label(s, "n", text);
    twin_add(&s->metrics, metric, 1);
}

static void scene_init(struct scene *s, unsigned series)
{
    memset(s, 0, sizeof *s);
    CHECK_OK(fs_sim_new(1, &s->fs, &s->ei), &s->ei);
    kit_open(&s->kit, s->fs, NULL);
    for (unsigned i = 0; i < series; i++)
        add_series(s, i);
    CHECK(kit_write(&s->kit) == ERR_OK);
    CHECK_OK(querier_open(s->kit.engine, &s->querier, &s->ei), &s->ei);
    budget_init(&s->memory, "test", UINT64_MAX, NULL);
    arena_init(&s->arena, &s->memory);
}

static void scene_done(struct scene *s)
{
    arena_done(&s->arena);
    CHECK(budget_used(&s->memory) == 0);
    querier_close(s->querier);
    kit_close(&s->kit);
    fs_free(s->fs);
}

static void test_counts(void **state)
{
    static const size_t limits[] = {1, 2, 10, 150, 10000};
    static struct scene s; /* large */

    (void)state;
    scene_init(&s, SERIES);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct cardinality c;

        CHECK_OK(querier_cardinality(s.querier, limits[i], &s.arena, &c, &s.ei), &s.ei);
        CHECK(c.label_pair_count == s.pairs.count);
        check_list(&s.metrics, limits[i], &c.series_by_metric);
        check_list(&s.values, limits[i], &c.values_by_label);
        check_list(&s.bytes, limits[i], &c.bytes_by_label);
        check_list(&s.pairs, limits[i], &c.series_by_pair);
        arena_reset(&s.arena);
    }
    scene_done(&s);
}

static void test_empty_store(void **state)
{
    static struct scene s;
    struct cardinality c;

    (void)state;
    scene_init(&s, 0);
    CHECK_OK(querier_cardinality(s.querier, 10, &s.arena, &c, &s.ei), &s.ei);
    CHECK(c.label_pair_count == 0 && c.series_by_pair.count == 0);
    scene_done(&s);
}

static void test_refusals(void **state)
{
    static struct scene s;
    struct cardinality c;
    struct budget small;
    struct arena arena;
    const _Atomic bool stop = true;

    (void)state;
    scene_init(&s, SERIES);
    budget_init(&small, "small", 4096, NULL);
    arena_init(&arena, &small);
    CHECK(querier_cardinality(s.querier, 1000, &arena, &c, &s.ei) == ERR_LIMIT);
    arena_done(&arena);
    CHECK(budget_used(&small) == 0);
    querier_set_stop(s.querier, &stop);
    s.ei = (struct errinfo){0};
    CHECK(querier_cardinality(s.querier, 10, &s.arena, &c, &s.ei) == ERR_CANCELED);
    scene_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_empty_store),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
