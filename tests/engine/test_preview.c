/*
 * A preview against plain counting, and what it says of files against files without the series.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "engine/maintain.h"
#include "engine/preview.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS
#define MINUTE INT64_C(60000)
#define HOUR (60 * MINUTE)

enum { SERIES = 2000, METRICS = 10, HOURS = 4 };

struct scene {
    struct fs *fs;
    struct kit k;
    struct arena arena;
    struct budget memory;
    struct querier *q;
};

static void labels_of(int i, char out[96])
{
    (void)snprintf(out, 96, "__name__=metric_%d,job=job_%d,pod=pod_%d", i % METRICS,
                   i / METRICS % 7, i / METRICS);
}

/* Every series that `wanted` says, four hours of it, a step of a random walk a minute. */
static void scene_open(struct scene *s, bool (*wanted)(int i))
{
    struct test_random r = test_random_init(5);
    static double values[SERIES];
    struct errinfo ei = {0};

    memset(s, 0, sizeof *s);
    memset(values, 0, sizeof values);
    budget_init(&s->memory, "preview", 256 << 20, NULL);
    arena_init(&s->arena, &s->memory);
    CHECK_OK(fs_sim_new(1, &s->fs, &ei), &ei);
    kit_open(&s->k, s->fs, &(struct engine_options){.shard_count = 2});
    for (int minute = 0; minute < 60 * HOURS; minute++) {
        clock_set_fake(&s->k.clock, T0 + minute * MINUTE);
        for (int i = 0; i < SERIES; i++) {
            char labels[96];

            values[i] += (double)test_random_below(&r, 1000) - 500;
            if (!wanted(i))
                continue;
            labels_of(i, labels);
            kit_series(&s->k, labels);
            kit_sample(&s->k, T0 + minute * MINUTE, values[i]);
        }
        CHECK_OK(kit_write(&s->k), &s->k.ei);
    }
    CHECK_OK(kit_wait(&s->k), &s->k.ei);
    CHECK_OK(querier_open(s->k.engine, &s->q, &s->k.ei), &s->k.ei);
}

static void scene_close(struct scene *s)
{
    querier_close(s->q);
    arena_done(&s->arena);
    CHECK(budget_used(&s->memory) == 0);
    kit_close(&s->k);
    fs_free(s->fs);
}

/* All samples into parts; their size. */
static double flush_all(struct scene *s)
{
    double bytes = 0;

    for (uint32_t i = 0; i < 2; i++) {
        struct flush_result flushed = {0};
        struct engine_parts parts;
        struct arena arena;

        CHECK_OK(engine_flush(s->k.engine, i, INT64_MAX, NULL, &flushed, &s->k.ei), &s->k.ei);
        arena_init(&arena, NULL);
        CHECK_OK(engine_parts_get(s->k.engine, i, &arena, &parts, &s->k.ei), &s->k.ei);
        for (size_t k = 0; k < parts.count; k++)
            bytes += (double)parts.items[k].size_bytes;
        engine_parts_release(&parts);
        arena_done(&arena);
    }
    return bytes;
}

struct rule_kit {
    struct rule_set *set;
    struct matcher matchers[4];
    size_t matcher_count;
    struct arena arena;
};

/* A rule that drops by a selector of one matcher. */
static struct drop_rule selector_rule(struct rule_kit *r, const char *label, const char *regex)
{
    struct matcher *m = &r->matchers[r->matcher_count++];
    struct errinfo ei = {0};

    CHECK_OK(matcher_init(m, MATCHER_REGEX, str_from(label), str_from(regex), &r->arena, &ei), &ei);
    return (struct drop_rule){.name = str_from(label), .matchers = m, .matcher_count = 1};
}

static struct drop_rule relabel_rule(const struct str *label, const char *regex)
{
    struct drop_rule rule = {.name = STR_LITERAL("relabel")};
    struct relabel_config *c = &rule.relabel;

    relabel_config_init(c);
    c->action = RELABEL_DROP;
    c->source_labels = label;
    c->source_label_count = 1;
    c->has_source_labels = c->has_regex = true;
    c->regex = str_from(regex);
    return rule;
}

static void rule_kit_make(struct rule_kit *r, const struct drop_rule *rules, size_t count)
{
    struct errinfo ei = {0};

    CHECK_OK(rule_set_new(rules, count, &r->set, &ei), &ei);
}

static void rule_kit_done(struct rule_kit *r)
{
    rule_set_free(r->set);
    for (size_t i = 0; i < r->matcher_count; i++)
        matcher_done(&r->matchers[i]);
    arena_done(&r->arena);
}

static bool any(int i)
{
    (void)i;
    return true;
}

/* Metrics 3 and 4, and job_2 of all. */
static bool is_dropped(int i)
{
    return i % METRICS == 3 || i % METRICS == 4 || i / METRICS % 7 == 2;
}

static bool is_kept(int i)
{
    return !is_dropped(i);
}

static void check_figures(struct scene *s, const struct rule_kit *rules, struct preview_result *out)
{
    const struct preview_options o = {.rules = rules->set, .limit = 12};
    uint64_t series = 0, metric_3 = 0, metric_5 = 0;
    struct preview *p;
    struct matcher m;
    bool meets;

    for (int i = 0; i < SERIES; i++) {
        series += is_dropped(i);
        metric_3 += i % METRICS == 3;
        metric_5 += i % METRICS == 5 && is_dropped(i);
    }
    CHECK_OK(querier_preview(s->q, &o, &s->arena, out, &p, &s->k.ei), &s->k.ei);
    CHECK_MSG(out->series == series, "%d, expected %d", (int)out->series, (int)series);
    CHECK(out->samples_per_second > (double)series / 60.1 &&
          out->samples_per_second < (double)series / 59.9);
    CHECK(out->metrics.count == METRICS && out->metrics.rows[0].series == metric_3);
    CHECK(str_equal(out->metrics.rows[0].name, STR_LITERAL("metric_3")));
    CHECK(out->metrics.rows[5].series == metric_5);
    CHECK(out->label_values.count == 12 && out->label_values.rows[0].series >= metric_3);
    CHECK(out->example_count == 12 && strncmp(out->examples[0], "metric_", 7) == 0);
    CHECK(out->memory_bytes > 100.0 * (double)series);
    /* Who reads it. */
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, STR_LITERAL("metric_5"), &s->arena,
                          &s->k.ei),
             &s->k.ei);
    CHECK_OK(preview_meets(p, &m, 1, &meets, &s->k.ei), &s->k.ei);
    CHECK(meets);
    matcher_done(&m);
    CHECK_OK(matcher_init(&m, MATCHER_REGEX, STR_LITERAL("pod"), STR_LITERAL("pod_(3|4)"),
                          &s->arena, &s->k.ei),
             &s->k.ei);
    CHECK_OK(preview_meets(p, &m, 1, &meets, &s->k.ei), &s->k.ei);
    CHECK(meets); /* their metric_3 */
    matcher_done(&m);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, STR_LITERAL("none"), &s->arena,
                          &s->k.ei),
             &s->k.ei);
    CHECK_OK(preview_meets(p, &m, 1, &meets, &s->k.ei), &s->k.ei);
    CHECK(!meets);
    matcher_done(&m);
}

static void figures_are_right(void **state)
{
    const struct str job = STR_LITERAL("job");
    struct preview_result by_selectors, by_labels;
    struct rule_kit selectors = {0}, labels = {0};
    struct drop_rule rules[2];
    struct scene s, without;
    double all, rest;

    (void)state;
    arena_init(&selectors.arena, NULL);
    arena_init(&labels.arena, NULL);
    rules[0] = selector_rule(&selectors, "__name__", "metric_(3|4)");
    rules[1] = selector_rule(&selectors, "job", "job_2");
    rule_kit_make(&selectors, rules, 2);
    rules[0] = selector_rule(&labels, "__name__", "metric_[34]");
    rules[1] = relabel_rule(&job, "job_2");
    rule_kit_make(&labels, rules, 2);
    scene_open(&s, any);
    all = flush_all(&s);
    check_figures(&s, &selectors, &by_selectors);
    check_figures(&s, &labels, &by_labels);
    CHECK(by_selectors.disk_is_whole && !by_labels.disk_is_whole);

    /* The same store without those series is that much smaller. */
    scene_open(&without, is_kept);
    rest = flush_all(&without);
    CHECK_MSG(by_selectors.disk_bytes > 0.99 * (all - rest) &&
                  by_selectors.disk_bytes < 1.01 * (all - rest),
              "%.0f, expected %.0f of %.0f", by_selectors.disk_bytes, all - rest, all);
    CHECK(by_labels.disk_bytes > 0.99 * by_selectors.disk_bytes &&
          by_labels.disk_bytes < 1.01 * by_selectors.disk_bytes);
    scene_close(&without);
    scene_close(&s);
    rule_kit_done(&selectors);
    rule_kit_done(&labels);
}

static void what_is_wrong_ends_it(void **state)
{
    struct preview_result out;
    struct rule_kit rules = {0};
    struct drop_rule rule;
    struct preview *p;
    struct scene s;
    _Atomic bool stop = true;

    (void)state;
    arena_init(&rules.arena, NULL);
    rule = selector_rule(&rules, "__name__", "nothing");
    rule_kit_make(&rules, &rule, 1);
    const struct preview_options o = {.rules = rules.set, .limit = 1};

    scene_open(&s, any);
    CHECK_OK(querier_preview(s.q, &o, &s.arena, &out, &p, &s.k.ei), &s.k.ei);
    CHECK(out.series == 0 && out.metrics.count == 0 && out.example_count == 0);
    querier_set_stop(s.q, &stop);
    CHECK(querier_preview(s.q, &o, &s.arena, &out, &p, &s.k.ei) == ERR_CANCELED);
    atomic_store(&stop, false);
    s.memory.limit_bytes = budget_used(&s.memory) + 100;
    CHECK(querier_preview(s.q, &o, &s.arena, &out, &p, &s.k.ei) == ERR_LIMIT);
    scene_close(&s);
    rule_kit_done(&rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_right),
        cmocka_unit_test(what_is_wrong_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
