/* Rules change again and again while requests come from several threads (run under TSan too). */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file_sim.h"
#include "base/thread.h"
#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_cmocka.h"

#define T0 KIT_NOW_MS

enum { WRITERS = 3, CHANGES = 60, METRICS = 8, SERIES = 64 };

/* Change number c drops metric c % METRICS and every metric above METRICS / 2 on odd changes. */
static bool drops(uint64_t change, int metric)
{
    return metric == (int)(change % METRICS) || (change % 2 == 1 && metric > METRICS / 2);
}

struct shared {
    struct kit kit;
    /* Changes that have begun (seq_cst, before) and that are done (seq_cst, after): a request that
     * saw both the same before and after it ran under exactly that change. */
    _Atomic uint64_t begun, done;
    _Atomic bool stop;
    _Atomic uint64_t judged;
};

static void change_rules(struct shared *s, uint64_t change)
{
    struct drop_rule rules[3];
    struct rules_applied applied;
    struct rule_set *set = NULL;
    struct errinfo ei = {0};
    struct arena arena;
    char name[16], others[64];
    size_t count = 0;

    arena_init(&arena, NULL);
    (void)snprintf(name, sizeof name, "m%d", (int)(change % METRICS));
    (void)snprintf(others, sizeof others, "m(%d|%d|%d)", METRICS / 2 + 1, METRICS / 2 + 2,
                   METRICS / 2 + 3);
    rules[count++] = rule_kit_drop("one", "__name__", "=", name, &arena);
    if (change % 2 == 1)
        rules[count++] = rule_kit_drop("many", "__name__", "=~", others, &arena);
    if (change % 3 == 0) {
        rules[count] = (struct drop_rule){.name = STR_LITERAL("zone"), .comment = {"", 0}};
        relabel_config_init(&rules[count].relabel);
        rules[count].relabel.target_label = STR_LITERAL("zone");
        rules[count].relabel.replacement = STR_LITERAL("z");
        count++;
    }
    CHECK_OK(rule_set_new(rules, count, &set, &ei), &ei);
    atomic_store(&s->begun, change);
    CHECK_OK(engine_rules_apply(s->kit.engine, set, &applied, &ei), &ei);
    atomic_store(&s->done, change);
    rule_kit_done(rules, change % 2 == 1 ? 2 : 1);
    arena_done(&arena);
}

static void write_series(struct shared *s, struct kit *k, uint64_t writer, int64_t t_ms)
{
    uint64_t before = atomic_load(&s->done), dropped = 0;

    if (atomic_load(&s->begun) != before)
        before = UINT64_MAX; /* a change is under way: either may hold */
    for (int i = 0; i < SERIES; i++) {
        char labels[64];

        (void)snprintf(labels, sizeof labels, "__name__=m%d,s=%d,w=%d", i % METRICS, i,
                       (int)writer);
        kit_series(k, labels);
        kit_sample(k, t_ms, 1);
        dropped += drops(before, i % METRICS);
    }
    CHECK_OK(kit_write(k), &k->ei);
    CHECK(k->result.refused_count == 0);
    CHECK(k->result.stored_count + k->result.dropped_count == SERIES);
    if (before == UINT64_MAX || atomic_load(&s->begun) != before)
        return;
    CHECK_MSG(k->result.dropped_count == dropped, "change %d: %d dropped, not %d", (int)before,
              (int)k->result.dropped_count, (int)dropped);
    atomic_fetch_add(&s->judged, 1);
}

struct writer {
    struct shared *shared;
    uint64_t number;
    struct thread thread;
};

static void *writer_run(void *arg)
{
    struct writer *w = arg;
    struct kit k;

    kit_join(&k, w->shared->kit.engine);
    for (int64_t t_ms = T0; !atomic_load(&w->shared->stop); t_ms++)
        write_series(w->shared, &k, w->number, t_ms);
    kit_leave(&k);
    return NULL;
}

static void test_changes_under_load(void **state)
{
    struct writer writers[WRITERS];
    static struct shared s;
    struct rules_stats stats;
    struct errinfo ei = {0};
    struct fs *fs;

    (void)state;
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    kit_open(&s.kit, fs, NULL);
    change_rules(&s, 1);
    for (uint64_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.shared = &s, .number = i};
        CHECK_OK(thread_start(&writers[i].thread, "writer", writer_run, &writers[i], &ei), &ei);
    }
    for (uint64_t change = 2; change < CHANGES; change++) {
        uint64_t judged = atomic_load(&s.judged);

        change_rules(&s, change);
        engine_housekeep(s.kit.engine);
        while (atomic_load(&s.judged) < judged + 2) {
            engine_rules_stats(s.kit.engine, &stats);
            CHECK(stats.dropped_keys <= (uint64_t)WRITERS * SERIES);
        }
    }
    atomic_store(&s.stop, true);
    for (int i = 0; i < WRITERS; i++)
        thread_join(&writers[i].thread);
    struct rules_applied applied;
    struct rule_set *none = NULL;
    CHECK_OK(rule_set_new(NULL, 0, &none, &ei), &ei);
    CHECK_OK(engine_rules_apply(s.kit.engine, none, &applied, &ei), &ei);
    engine_rules_stats(s.kit.engine, &stats);
    CHECK(stats.dropped_keys == 0); /* nothing was counted twice, or not at all */
    kit_close(&s.kit);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changes_under_load)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
