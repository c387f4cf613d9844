/*
 * Purges of what relabelling rules drop: random rules over series in memory, in sealed and late
 * files, in parts, and out of memory, beside a plain reading of the rules' fields; taken back, over
 * restarts, and with what comes after them.
 */
#include "engine/purge.h"

#include <stdio.h>
#include <string.h>

#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS
enum { SHARDS = 2, SERIES = 30, TICKS = 8, NEW_TICK = TICKS, RULES_MAX = 4 };
static const struct engine_options options = {.shard_count = SHARDS};

struct own_series {
    struct labels labels;
    const char *text; /* of labels, as the kit takes them */
    bool has[TICKS + 1];
};

struct world {
    struct kit kit;
    struct fs *fs;
    struct test_random random;
    struct arena arena;
    struct own_series series[SERIES];
};

static int64_t time_of(size_t tick)
{
    return T0 + 15000 * (int64_t)tick;
}

static const char *text_of(const struct labels *labels, struct arena *arena)
{
    const char *text = "";

    for (size_t i = 0; i < labels->count; i++) {
        const struct label *l = &labels->items[i];

        text = arena_printf(arena, "%s%s%.*s=%.*s", text, i == 0 ? "" : ",", STR_ARGS(l->name),
                            STR_ARGS(l->value));
        CHECK(text != NULL);
    }
    return text;
}

static bool is_new(const struct world *w, size_t count, const struct labels *labels)
{
    for (size_t i = 0; i < count; i++) {
        if (labels_equal(&w->series[i].labels, labels))
            return false;
    }
    return true;
}

static void series_draw(struct world *w)
{
    for (size_t i = 0; i < SERIES;) {
        struct own_series *s = &w->series[i];

        s->labels = rule_kit_labels(&w->random, &w->arena);
        s->text = text_of(&s->labels, &w->arena);
        i += is_new(w, i, &s->labels);
    }
}

/* To be sent by send_all(). */
static void put(struct world *w, struct own_series *s, size_t tick)
{
    kit_series(&w->kit, s->text);
    kit_sample(&w->kit, time_of(tick), (double)tick);
    s->has[tick] = true;
}

static void send_all(struct world *w)
{
    CHECK_OK(kit_write(&w->kit), &w->kit.ei);
    CHECK(w->kit.result.refused_count == 0);
    CHECK_OK(kit_wait(&w->kit), &w->kit.ei);
}

static void seal_all(struct world *w)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct seal_result ignored;

        CHECK_OK(engine_seal(w->kit.engine, s, SEAL_INTERVAL, NULL, &ignored, &w->kit.ei),
                 &w->kit.ei);
    }
}

static void flush_all(struct world *w)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct flush_result ignored;

        CHECK_OK(engine_flush(w->kit.engine, s, INT64_MAX, NULL, &ignored, &w->kit.ei), &w->kit.ei);
    }
}

/* Ticks 1 and 3 into parts, 5 and the late 2 into sealed and late files, 6 and the late 0 stay in
 * memory; each series has some of them. */
static void fill(struct world *w, bool has_late)
{
    static const size_t ticks[] = {1, 3, 5, 2, 6, 0};

    for (size_t n = 0; n < sizeof ticks / sizeof ticks[0]; n++) {
        for (size_t i = 0; i < SERIES && (has_late || ticks[n] % 2 == 1 || ticks[n] == 6); i++) {
            if (test_random_below(&w->random, 3) > 0)
                put(w, &w->series[i], ticks[n]);
        }
        send_all(w);
        if (n == 1)
            flush_all(w);
        if (n == 3)
            seal_all(w);
    }
}

/* Series leave memory: only files know them. */
static void leave(struct world *w)
{
    clock_set_fake(&w->kit.clock, T0 + 3600000);
    for (unsigned round = 0; round < 3; round++) {
        seal_all(w);
        for (uint32_t s = 0; s < SHARDS; s++)
            CHECK_OK(engine_rebuild(w->kit.engine, s, NULL, &w->kit.ei), &w->kit.ei);
    }
}

static void world_open(struct world *w, uint64_t seed, bool has_late)
{
    memset(w, 0, sizeof *w);
    w->random = test_random_init(seed);
    w->fs = test_fs_new(seed);
    arena_init(&w->arena, NULL);
    kit_open(&w->kit, w->fs, &options);
    series_draw(w);
    fill(w, has_late);
}

static void world_close(struct world *w)
{
    kit_close(&w->kit);
    arena_done(&w->arena);
    fs_free(w->fs);
}

static void reopen(struct world *w)
{
    kit_abandon(&w->kit);
    kit_open(&w->kit, w->fs, &options);
}

/* ---- rules ---- */

/* A rule of the test: a filter, or a selector. */
struct own_rule {
    struct str key;
    struct relabel_config filter;
    struct matcher matcher;
    bool is_selector, stands;
};

static void rules_draw(struct world *w, struct own_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct own_rule *r = &rules[i];
        char *key = arena_printf(&w->arena, "rule %zu", i);

        CHECK(key != NULL);
        *r = (struct own_rule){.key = str_from(key)};
        r->is_selector = i > 0 && test_random_below(&w->random, 4) == 0;
        if (!r->is_selector)
            r->filter = rule_kit_filter(&w->random, &w->arena);
        else
            CHECK_OK(matcher_init(&r->matcher, MATCHER_REGEX, STR_LITERAL("job"),
                                  STR_LITERAL("a|b.*"), &w->arena, &w->kit.ei),
                     &w->kit.ei);
    }
}

static bool drops(const struct own_rule *r, const struct labels *labels)
{
    return r->is_selector ? matcher_matches(&r->matcher, labels_get(labels, r->matcher.name))
                          : rule_kit_filter_drops(&r->filter, labels);
}

static bool is_hidden(const struct own_rule *rules, size_t count, const struct labels *labels)
{
    for (size_t i = 0; i < count; i++) {
        if (rules[i].stands && drops(&rules[i], labels))
            return true;
    }
    return false;
}

static void purge(struct world *w, struct own_rule *rules, size_t count)
{
    struct purge_request requests[RULES_MAX];
    size_t made = 0;

    for (size_t i = 0; i < count; i++) {
        requests[i] = (struct purge_request){.key = rules[i].key};
        if (rules[i].is_selector) {
            requests[i].matchers = &rules[i].matcher;
            requests[i].matcher_count = 1;
        } else {
            requests[i].filter = &rules[i].filter;
        }
        rules[i].stands = true;
    }
    CHECK_OK(engine_purge(w->kit.engine, requests, count, &made, &w->kit.ei), &w->kit.ei);
    CHECK(made == count && engine_tombstone_count(w->kit.engine) == count);
}

static struct purge_withdrawn withdraw(struct world *w, struct own_rule *r)
{
    struct purge_withdrawn out = {0};

    CHECK_OK(engine_purges_withdraw(w->kit.engine, &r->key, 1, &out, &w->kit.ei), &w->kit.ei);
    r->stands = false;
    return out;
}

/* ---- checks ---- */

/* The samples of one, all it was given or none of them; in either case what came afterwards. */
static void check_one(struct world *w, const struct own_series *s, bool hidden)
{
    int64_t t_ms[TICKS + 1];
    double value[TICKS + 1];
    size_t count = 0;

    for (size_t tick = 0; tick <= TICKS; tick++) {
        if (!s->has[tick] || (hidden && tick < NEW_TICK))
            continue;
        t_ms[count] = time_of(tick);
        value[count++] = (double)tick;
    }
    kit_check(&w->kit, s->text, count, t_ms, value);
}

static void check_all(struct world *w, const struct own_rule *rules, size_t count)
{
    for (size_t i = 0; i < SERIES; i++)
        check_one(w, &w->series[i], is_hidden(rules, count, &w->series[i].labels));
}

/* What merges are told: a range for each rule that drops the series, of the oldest files. */
static void check_ranges(struct world *w, const struct own_rule *rules, size_t count)
{
    for (size_t i = 0; i < SERIES; i++) {
        struct delete_range *ranges = NULL;
        size_t got = 0, want = 0;
        struct arena arena;

        arena_init(&arena, NULL);
        CHECK_OK(engine_deleted_ranges(w->kit.engine, &w->series[i].labels, 1, &arena, &ranges,
                                       &got, &w->kit.ei),
                 &w->kit.ei);
        for (size_t k = 0; k < count; k++)
            want += rules[k].stands && drops(&rules[k], &w->series[i].labels);
        CHECK(got == want);
        arena_done(&arena);
    }
}

static void own_rules_done(struct own_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        matcher_done(&rules[i].matcher);
}

/* ---- tests ---- */

/* One rule or several hide exactly what each drops, whatever lies between; each is taken back
 * alone, and everything is as it was. */
static void test_hide_what_they_drop(void **state)
{
    size_t hidden = 0, total = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        size_t count = 1 + (size_t)seed % RULES_MAX;
        struct own_rule rules[RULES_MAX];
        struct world w;

        /* Late files are split before series leave, which takes what is hidden out of them. */
        world_open(&w, seed, seed % 5 > 0);
        rules_draw(&w, rules, count);
        if (seed % 3 == 0)
            leave(&w);
        purge(&w, rules, count);
        check_all(&w, rules, count);
        check_ranges(&w, rules, count);
        if (seed % 2 == 0)
            reopen(&w);
        if (seed % 5 == 0)
            leave(&w);
        check_all(&w, rules, count);
        for (size_t i = 0; i < SERIES; i++, total++)
            hidden += is_hidden(rules, count, &w.series[i].labels);
        for (size_t i = 0; i < count; i++) {
            struct purge_withdrawn x = withdraw(&w, &rules[i]);

            CHECK(x.file_count > 0 && x.file_left == x.file_count);
            check_all(&w, rules, count);
            if (seed % 4 == 0)
                reopen(&w);
        }
        check_all(&w, rules, count);
        check_ranges(&w, rules, count);
        CHECK(engine_tombstone_count(w.kit.engine) == 0);
        own_rules_done(rules, count);
        world_close(&w);
    }
    CHECK(hidden > total / 4 && hidden < total - total / 10);
}

/* Parts and late files of before a flush stand: they give back what they hold. */
static void keep_unflushed(struct own_series *s)
{
    bool two_is_late = s->has[3] || s->has[5];
    bool none_is_late = s->has[1] || s->has[2] || s->has[3] || s->has[5] || s->has[6];

    s->has[0] &= none_is_late;
    s->has[2] &= two_is_late;
    s->has[5] = s->has[6] = false;
}

/* What comes later is stored, also what repeats a hidden sample; a flush takes what is hidden out
 * of the files, and nothing else. */
static void test_what_comes_later(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 130; seed++) {
        struct own_rule rule;
        struct world w;

        world_open(&w, seed, true);
        rules_draw(&w, &rule, 1);
        purge(&w, &rule, 1);
        for (size_t i = 0; i < SERIES; i++)
            put(&w, &w.series[i], NEW_TICK);
        send_all(&w);
        check_all(&w, &rule, 1);
        if (seed % 2 == 0)
            reopen(&w);
        flush_all(&w);
        check_all(&w, &rule, 1);
        reopen(&w);
        check_all(&w, &rule, 1);
        CHECK_OK(engine_tombstones_retire(w.kit.engine, &w.kit.ei), &w.kit.ei);
        CHECK(engine_tombstone_count(w.kit.engine) == 1); /* parts need it */
        check_all(&w, &rule, 1);
        (void)withdraw(&w, &rule);
        for (size_t i = 0; i < SERIES; i++) {
            struct own_series *s = &w.series[i];

            if (drops(&rule, &s->labels))
                keep_unflushed(s);
        }
        check_all(&w, &rule, 0);
        world_close(&w);
    }
}

/* Of a series that is hidden the newest sample may come again; of another it is a repeat. */
static void test_newest_again(void **state)
{
    struct own_rule rule;
    struct world w;
    size_t hidden = 0;

    (void)state;
    world_open(&w, 200, true);
    do {
        rules_draw(&w, &rule, 1);
        hidden = 0;
        for (size_t i = 0; i < SERIES; i++)
            hidden += drops(&rule, &w.series[i].labels);
    } while (hidden < 5 || hidden > SERIES - 5);
    for (size_t i = 0; i < SERIES; i++)
        put(&w, &w.series[i], TICKS - 1);
    send_all(&w);
    purge(&w, &rule, 1);
    for (size_t i = 0; i < SERIES; i++) {
        bool is_dropped = drops(&rule, &w.series[i].labels);

        kit_put(&w.kit, w.series[i].text, time_of(TICKS - 1), TICKS - 1);
        CHECK(w.kit.result.stored_count == is_dropped);
        for (size_t tick = 0; tick < TICKS - 1 && is_dropped; tick++)
            w.series[i].has[tick] = false;
    }
    check_all(&w, &rule, 0);
    world_close(&w);
}

/* When files have been written anew without what is hidden, the tombstone goes and the key stays.
 */
static void test_retired(void **state)
{
    struct fs *fs = test_fs_new(9);
    struct relabel_config c;
    static const struct str names[] = {{"job", 3}, {"zone", 4}};
    struct purge_request request = {.key = STR_LITERAL("k"), .filter = &c};
    struct purge_withdrawn out = {0};
    struct kit k;

    (void)state;
    relabel_config_init(&c);
    c.action = RELABEL_DROP;
    c.source_labels = names;
    c.source_label_count = 2;
    c.regex = STR_LITERAL("a;z.*");
    kit_open(&k, fs, &options);
    kit_put(&k, "__name__=x,job=a,zone=z1", T0, 1);
    kit_put(&k, "__name__=x,job=a", T0, 2);
    CHECK_OK(engine_purge(k.engine, &request, 1, NULL, &k.ei), &k.ei);
    kit_check(&k, "__name__=x,job=a,zone=z1", 0, NULL, NULL);
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct flush_result ignored;

        CHECK_OK(engine_flush(k.engine, s, INT64_MAX, NULL, &ignored, &k.ei), &k.ei);
    }
    CHECK_OK(engine_tombstones_retire(k.engine, &k.ei), &k.ei);
    CHECK(engine_tombstone_count(k.engine) == 0);
    kit_abandon(&k);
    kit_open(&k, fs, &options);
    CHECK_OK(engine_purges_withdraw(k.engine, &request.key, 1, &out, &k.ei), &k.ei);
    CHECK(out.file_count > 0 && out.file_left == 0);
    kit_check(&k, "__name__=x,job=a,zone=z1", 0, NULL, NULL);
    kit_check(&k, "__name__=x,job=a", 1, (int64_t[]){T0}, (double[]){2});
    /* What drops nothing is refused before anything is sealed. */
    c.action = RELABEL_REPLACE;
    CHECK(engine_purge(k.engine, &request, 1, NULL, &k.ei) == ERR_INVALID);
    kit_close(&k);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hide_what_they_drop),
        cmocka_unit_test(test_what_comes_later),
        cmocka_unit_test(test_newest_again),
        cmocka_unit_test(test_retired),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
