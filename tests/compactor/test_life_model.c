/*
 * Random lives of a whole store against a plain model: samples in order, late, repeated, filled in
 * hours later and caught up; series that end and come back; seals, flushes, splits, merges,
 * deletions, purges that are taken back, retention, rebuilds, snapshots; clean ends, kills and
 * power losses. After each few steps everything that was acknowledged is there once, and nothing
 * else.
 *
 * RIMSTONE_SEED replays one life, RIMSTONE_ROUNDS sets how many are lived, RIMSTONE_STEPS how long.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/compactor/life_kit.h"
#include "tests/lib/test_cmocka.h"

enum {
    ROUNDS = 1000, /* as far as SECONDS allow */
    SECONDS = 20,
    STEPS = 220,
    SERIES_MAX = 2400,
    ACTIVE_MAX = 48,
    WIDE = 1300, /* active series of a few lives: more than one slice of a seal */
};

struct world {
    struct life life;
    struct test_random random;
    uint32_t active[SERIES_MAX]; /* series that get samples */
    size_t active_count, active_max;
    uint32_t named_count;        /* series that were ever begun */
    int64_t sent_ms[SERIES_MAX]; /* newest time of each */
    double value[SERIES_MAX];
    int64_t interval_ms;
    /* What is older may have gone with its part, and yet be known as the newest sample of its
     * series: that is refused as a repeat. */
    int64_t kept_from_ms;
    unsigned snapshot_count;
};

static uint64_t below(struct world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

static bool one_in(struct world *w, uint64_t n)
{
    return below(w, n) == 0;
}

static uint64_t from_env(const char *name, uint64_t fallback)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): nobody writes */

    return text == NULL ? fallback : strtoull(text, NULL, 0);
}

/* ---- samples ---- */

static double next_value(struct world *w, uint32_t series)
{
    static const uint64_t odd[] = {STALE_NAN_BITS, 0x8000000000000000U, 0x7ff8000000000001U,
                                   0x7ff0000000000000U, 1};

    switch (series % 4) {
    case 0:
        return 7; /* constant */
    case 1:
        w->value[series] += (double)below(w, 500) / 100;
        return w->value[series];
    case 2:
        w->value[series] += (double)below(w, 6000);
        return w->value[series];
    default:
        if (one_in(w, 20))
            return double_from_bits(odd[below(w, 5)]);
        return (double)below(w, 1000000) * 1e-6;
    }
}

static void put_newest(struct world *w, uint32_t series, int64_t t_ms, double value)
{
    life_put(&w->life, series, t_ms, value);
    if (t_ms > w->sent_ms[series])
        w->sent_ms[series] = t_ms;
}

static void send_all(struct world *w)
{
    CHECK_OK(life_send(&w->life), &w->life.kit.ei);
    if (one_in(w, 8))
        CHECK_OK(life_wait(&w->life), &w->life.kit.ei);
}

static void move_now(struct world *w, int64_t by_ms)
{
    life_set_now(&w->life, w->life.now_ms + by_ms);
}

static void begin_series(struct world *w)
{
    uint32_t series;

    if (w->active_count == w->active_max || w->named_count == SERIES_MAX)
        return;
    series = w->named_count++;
    w->active[w->active_count++] = series;
}

static void step_scrape(struct world *w)
{
    uint64_t rounds = 1 + below(w, 6);

    for (uint64_t n = 0; n < rounds; n++) {
        int64_t jitter = one_in(w, 3) ? 0 : (int64_t)below(w, 50);

        move_now(w, w->interval_ms);
        for (size_t i = 0; i < w->active_count; i++)
            put_newest(w, w->active[i], w->life.now_ms - jitter, next_value(w, w->active[i]));
        if (w->active_count > 0)
            send_all(w);
    }
}

/* Many samples of one series, over a border of a window as a rule. */
static void step_burst(struct world *w)
{
    uint32_t series;
    int64_t border = (w->life.now_ms / LIFE_WINDOW + 1) * LIFE_WINDOW;
    uint64_t count = 1 + below(w, 300);
    int64_t t_ms = border - 1000 * (int64_t)below(w, 300);

    if (w->active_count == 0)
        return;
    series = w->active[below(w, w->active_count)];
    if (t_ms <= w->sent_ms[series])
        t_ms = w->sent_ms[series] + 1;
    for (uint64_t n = 0; n < count; n++) {
        put_newest(w, series, t_ms, next_value(w, series));
        t_ms += 1 + (int64_t)below(w, 2000);
    }
    if (w->life.now_ms < t_ms)
        life_set_now(&w->life, t_ms);
    send_all(w);
}

static int64_t past_ms(struct world *w)
{
    int64_t reach = one_in(w, 3) ? 12 * LIFE_HOUR : 20 * LIFE_MINUTE;
    int64_t t_ms = w->life.now_ms - (int64_t)below(w, (uint64_t)reach);

    return t_ms < LIFE_T0 - 4 * LIFE_HOUR ? LIFE_T0 - 4 * LIFE_HOUR : t_ms;
}

static void step_late(struct world *w)
{
    uint64_t count = 1 + below(w, 8);

    for (uint64_t n = 0; n < count && w->named_count > 0; n++) {
        uint32_t series = (uint32_t)below(w, w->named_count);
        int64_t t_ms = past_ms(w);

        for (uint64_t k = 1 + below(w, 5); k > 0 && t_ms <= w->life.now_ms; k--) {
            put_newest(w, series, t_ms, next_value(w, series));
            t_ms += 1 + (int64_t)below(w, 60000);
        }
    }
    send_all(w);
}

/* What is there already, with the same value or another one. */
static void step_repeat(struct world *w)
{
    const struct life_model *m = &w->life.model;
    uint64_t sent = 0;

    for (uint64_t n = 1 + below(w, 12); n > 0 && m->count > 0; n--) {
        uint32_t series = (uint32_t)below(w, m->count);
        const struct life_series *s = &m->series[series];

        if (s->count == 0)
            continue;
        uint64_t back = one_in(w, 2) && s->count > 8 ? 8 : s->count;
        const struct life_sample *known = &s->items[s->count - 1 - below(w, back)];
        double value = one_in(w, 2) ? double_from_bits(known->bits) : next_value(w, series);

        if (known->t_ms < w->kept_from_ms)
            continue;
        put_newest(w, series, known->t_ms, value);
        sent++;
    }
    if (sent > 0)
        send_all(w);
}

/* Hours of one series, long ago, in order. */
static void step_backfill(struct world *w)
{
    int64_t t_ms = past_ms(w);
    uint32_t series;

    if (w->named_count == 0)
        return;
    series = (uint32_t)below(w, w->named_count);
    for (uint64_t n = 20 + below(w, 200); n > 0 && t_ms <= w->life.now_ms; n--) {
        put_newest(w, series, t_ms, next_value(w, series));
        t_ms += 1 + (int64_t)below(w, 90000);
    }
    send_all(w);
}

static void step_churn(struct world *w)
{
    bool is_silent = one_in(w, 2);
    uint64_t count = 1 + below(w, 6);
    size_t sent = 0;

    for (uint64_t n = 0; n < count && w->active_count > 0; n++) {
        size_t at = below(w, w->active_count);
        uint32_t series = w->active[at];

        if (!is_silent && w->life.now_ms > w->sent_ms[series]) {
            put_newest(w, series, w->life.now_ms, double_from_bits(STALE_NAN_BITS));
            sent++;
        }
        w->active[at] = w->active[--w->active_count];
    }
    if (sent > 0)
        send_all(w);
    for (uint64_t n = 0; n < count; n++)
        begin_series(w);
}

/* A series that had ended comes back, perhaps with times that it had before. */
static void step_revive(struct world *w)
{
    uint32_t series;

    if (w->named_count == 0 || w->active_count == w->active_max)
        return;
    series = (uint32_t)below(w, w->named_count);
    for (size_t i = 0; i < w->active_count; i++) {
        if (w->active[i] == series)
            return;
    }
    w->active[w->active_count++] = series;
    if (one_in(w, 2) && w->life.model.series[series].count > 0) {
        const struct life_series *s = &w->life.model.series[series];
        int64_t t_ms = s->items[below(w, s->count)].t_ms;

        if (t_ms >= w->kept_from_ms) {
            put_newest(w, series, t_ms, next_value(w, series));
            send_all(w);
        }
    }
}

/* A sender was away and sends what it kept, oldest first. */
static void step_catch_up(struct world *w)
{
    size_t count = 1 + below(w, 1 + w->active_count);

    move_now(w, (int64_t)below(w, (uint64_t)(3 * LIFE_HOUR)));
    for (size_t i = 0; i < count && i < w->active_count; i++) {
        uint32_t series = w->active[i];
        int64_t t_ms = w->sent_ms[series] + w->interval_ms;

        if (w->sent_ms[series] < w->life.now_ms - 5 * LIFE_HOUR)
            t_ms = w->life.now_ms - 5 * LIFE_HOUR;
        for (; t_ms <= w->life.now_ms; t_ms += 4 * w->interval_ms)
            put_newest(w, series, t_ms, next_value(w, series));
    }
    send_all(w);
}

static void step_jump(struct world *w)
{
    move_now(w, (int64_t)below(w, (uint64_t)(3 * LIFE_HOUR)));
    step_scrape(w);
}

/* ---- maintenance ---- */

/* What is written between the slices of a step, while it is half done. */
static void write_between(void *ctx)
{
    struct world *w = ctx;

    if (!one_in(w, 6))
        return;
    if (one_in(w, 3))
        step_repeat(w);
    if (one_in(w, 3))
        step_late(w);
    for (uint64_t n = below(w, 4); n > 0 && w->active_count > 0; n--) {
        move_now(w, 1);
        put_newest(w, w->active[below(w, w->active_count)], w->life.now_ms, (double)n);
        send_all(w);
    }
}

static uint32_t shard_count(const struct world *w)
{
    return engine_shard_count(w->life.kit.engine);
}

static void step_seal(struct world *w)
{
    uint32_t only = (uint32_t)below(w, UINT64_C(2) * shard_count(w));

    for (uint32_t s = 0; s < shard_count(w); s++) {
        if (only >= shard_count(w) || s == only)
            CHECK_OK(life_seal(&w->life, s), &w->life.kit.ei);
    }
}

static void step_flush(struct world *w)
{
    int64_t until = (w->life.now_ms - 10 * LIFE_MINUTE) / LIFE_WINDOW * LIFE_WINDOW;
    uint32_t only = (uint32_t)below(w, UINT64_C(2) * shard_count(w));

    if (one_in(w, 6))
        until = INT64_MAX;
    for (uint32_t s = 0; s < shard_count(w); s++) {
        if (only >= shard_count(w) || s == only)
            CHECK_OK(life_flush(&w->life, s, until), &w->life.kit.ei);
    }
}

static void step_split(struct world *w)
{
    for (uint32_t s = 0; s < shard_count(w); s++)
        CHECK_OK(life_split_late(&w->life, s), &w->life.kit.ei);
}

static void step_merge(struct world *w)
{
    uint64_t most = 1 + below(w, 6);

    for (uint32_t s = 0; s < shard_count(w); s++) {
        bool merged = true;

        for (uint64_t n = 0; n < most && merged; n++)
            CHECK_OK(life_merge(&w->life, s, &merged), &w->life.kit.ei);
    }
}

/* One of them, or all. */
static void step_regroup(struct world *w)
{
    bool all = one_in(w, 3);

    for (uint32_t s = 0; s < shard_count(w); s++) {
        bool done = true;

        for (uint64_t n = 1 + below(w, 3); done && (all || n > 0); n -= n > 0)
            CHECK_OK(life_regroup(&w->life, s, &done), &w->life.kit.ei);
    }
}

static void step_purge(struct world *w)
{
    for (uint32_t s = 0; s < shard_count(w); s++) {
        bool purged = true;

        while (purged)
            CHECK_OK(life_purge(&w->life, s, &purged), &w->life.kit.ei);
    }
    CHECK_OK(life_retire_tombstones(&w->life), &w->life.kit.ei);
}

enum { MATCHERS_MAX = 2 };

struct selection {
    struct arena arena;
    struct matcher matchers[MATCHERS_MAX];
    size_t count;
    int64_t min_time_ms, max_time_ms;
};

static size_t draw_matchers(struct world *w, struct arena *arena,
                            struct matcher matchers[MATCHERS_MAX])
{
    uint32_t series = (uint32_t)below(w, w->named_count + 1);
    size_t count = 0;
    char value[LIFE_LABELS_SIZE];

    switch (below(w, 5)) {
    case 0:
        (void)life_label_value(series, STR_LITERAL("id"), value);
        matchers[count++] = life_matcher(arena, MATCHER_EQUAL, "id", value);
        break;
    case 1:
        (void)life_label_value(series, STR_LITERAL("instance"), value);
        matchers[count++] = life_matcher(arena, MATCHER_EQUAL, "instance", value);
        break;
    case 2:
        matchers[count++] = life_matcher(arena, MATCHER_REGEX, "id", "[0-9]*3");
        matchers[count++] = life_matcher(arena, MATCHER_NOT_EQUAL, "job", "job-1");
        break;
    case 3:
        matchers[count++] = life_matcher(arena, MATCHER_REGEX, "__name__", "metric_(1|4)");
        matchers[count++] = life_matcher(arena, MATCHER_NOT_REGEX, "instance", "host-[12].*");
        break;
    default:
        (void)life_label_value(series, LABEL_METRIC_NAME, value);
        matchers[count++] = life_matcher(arena, MATCHER_EQUAL, "__name__", value);
        matchers[count++] = life_matcher(arena, MATCHER_EQUAL, "none", "");
        break;
    }
    return count;
}

static void draw_range(struct world *w, int64_t *min_time_ms, int64_t *max_time_ms)
{
    *min_time_ms = past_ms(w);
    *max_time_ms = *min_time_ms + (int64_t)below(w, (uint64_t)(4 * LIFE_HOUR));
    if (one_in(w, 8))
        *min_time_ms = INT64_MIN;
    if (one_in(w, 8))
        *max_time_ms = INT64_MAX;
}

static void selection_draw(struct world *w, struct selection *s)
{
    arena_init(&s->arena, NULL);
    s->count = draw_matchers(w, &s->arena, s->matchers);
    draw_range(w, &s->min_time_ms, &s->max_time_ms);
}

static void selection_done(struct selection *s)
{
    for (size_t i = 0; i < s->count; i++)
        matcher_done(&s->matchers[i]);
    arena_done(&s->arena);
}

static void step_delete(struct world *w)
{
    struct selection s;

    selection_draw(w, &s);
    CHECK_OK(life_delete(&w->life, s.matchers, s.count, s.min_time_ms, s.max_time_ms),
             &w->life.kit.ei);
    if (one_in(w, 2) && w->named_count > 0) { /* filled again */
        uint32_t series = (uint32_t)below(w, w->named_count);
        int64_t t_ms = s.min_time_ms == INT64_MIN ? past_ms(w) : s.min_time_ms;

        for (int n = 0; n < 20 && t_ms <= w->life.now_ms; n++, t_ms += 30000)
            put_newest(w, series, t_ms, next_value(w, series));
        send_all(w);
    }
    selection_done(&s);
}

/* By several labels at once. */
static void hide_by_rule(struct world *w)
{
    static const struct str names[] = {{"job", 3}, {"__name__", 8}, {"none", 4}, {"instance", 8}};
    static const struct {
        enum relabel_action action;
        size_t first, count;
        const char *value;
    } rules[] = {
        {RELABEL_DROP, 0, 2, "job-[01]/metric_(1|4)"},
        {RELABEL_DROP, 0, 4, "job-2/.*//host-[0-9]*[02468]\\..*"},
        {RELABEL_KEEP, 0, 2, ".*/metric_[^3]|job-1/.*"},
        {RELABEL_KEEP, 2, 2, "/host-[1-7].*"},
        {RELABEL_DROPEQUAL, 2, 1, "id"},       /* none */
        {RELABEL_KEEPEQUAL, 0, 1, "job"},      /* none */
        {RELABEL_KEEPEQUAL, 3, 1, "__name__"}, /* all */
    };
    size_t which = below(w, sizeof rules / sizeof rules[0]);
    struct relabel_config c;

    relabel_config_init(&c);
    c.action = rules[which].action;
    c.source_labels = &names[rules[which].first];
    c.source_label_count = rules[which].count;
    if (c.action == RELABEL_DROP || c.action == RELABEL_KEEP) {
        c.separator = STR_LITERAL("/");
        c.regex = str_from(rules[which].value);
    } else {
        c.target_label = str_from(rules[which].value);
    }
    CHECK_OK(life_purge_make_rule(&w->life, &c), &w->life.kit.ei);
}

/* Of all times, as drop rules do it; may be taken back later. */
static void step_hide(struct world *w)
{
    struct selection s;

    if (w->life.model.is_hiding)
        return;
    if (one_in(w, 2)) {
        hide_by_rule(w);
        return;
    }
    selection_draw(w, &s);
    CHECK_OK(life_purge_make(&w->life, s.matchers, s.count), &w->life.kit.ei);
    selection_done(&s);
}

static void step_withdraw(struct world *w)
{
    if (w->life.model.is_hiding)
        CHECK_OK(life_purge_withdraw(&w->life), &w->life.kit.ei);
}

static void step_retain(struct world *w)
{
    int64_t cutoff = w->life.now_ms - 18 * LIFE_HOUR;

    if (cutoff > w->kept_from_ms)
        w->kept_from_ms = cutoff;
    for (uint32_t s = 0; s < shard_count(w); s++)
        CHECK_OK(life_retain(&w->life, s, cutoff), &w->life.kit.ei);
}

static void step_rebuild(struct world *w)
{
    for (uint32_t s = 0; s < shard_count(w); s++)
        CHECK_OK(life_rebuild(&w->life, s), &w->life.kit.ei);
}

static void step_snapshot(struct world *w)
{
    char path[32];

    (void)snprintf(path, sizeof path, "snapshot-%u", w->snapshot_count++);
    CHECK_OK(life_snapshot(&w->life, path), &w->life.kit.ei);
    life_check_snapshot(&w->life, path);
}

static void step_restart(struct world *w)
{
    uint64_t how = below(w, 4);

    if (from_env("RIMSTONE_TRACE", 0) != 0)
        fprintf(stderr, "how: %" PRIu64 "\n", how);
    switch (how) {
    case 0:
        life_close(&w->life);
        break;
    case 1:
        life_abandon(&w->life);
        break;
    default:
        life_lose_power(&w->life, &test_crash_modes[below(w, TEST_CRASH_MODE_COUNT)],
                        test_random_u64(&w->random));
        break;
    }
    if (one_in(w, 3)) {
        w->life.shard_count = 1U << below(w, 4);
        w->life.purge_is_worn = true;
    }
    life_open_checked(&w->life);
    life_check(&w->life);
    life_check_files(&w->life);
}

static void step_query(struct world *w)
{
    struct selection s;

    selection_draw(w, &s);
    life_check_query(&w->life, s.matchers, s.count, s.min_time_ms, s.max_time_ms);
    selection_done(&s);
}

static void step_check(struct world *w)
{
    life_check(&w->life);
}

/* ---- lives ---- */

static const struct step {
    const char *name;
    unsigned weight;
    void (*run)(struct world *w);
} steps[] = {
    {"scrape", 30, step_scrape},    {"burst", 4, step_burst},       {"late", 10, step_late},
    {"repeat", 6, step_repeat},     {"backfill", 3, step_backfill}, {"churn", 6, step_churn},
    {"revive", 4, step_revive},     {"catch up", 2, step_catch_up}, {"jump", 4, step_jump},
    {"seal", 10, step_seal},        {"flush", 5, step_flush},       {"split", 4, step_split},
    {"merge", 5, step_merge},       {"regroup", 6, step_regroup},   {"purge", 2, step_purge},
    {"delete", 4, step_delete},     {"retain", 1, step_retain},     {"rebuild", 3, step_rebuild},
    {"snapshot", 1, step_snapshot}, {"restart", 4, step_restart},   {"query", 8, step_query},
    {"check", 5, step_check},       {"hide", 4, step_hide},         {"withdraw", 4, step_withdraw},
};
enum { STEP_COUNT = sizeof steps / sizeof steps[0] };

static size_t draw_step(struct world *w)
{
    unsigned total = 0;
    uint64_t at;

    for (size_t i = 0; i < STEP_COUNT; i++)
        total += steps[i].weight;
    at = below(w, total);
    for (size_t i = 0;; i++) {
        unsigned weight = steps[i].weight;

        if (at < weight)
            return i;
        at -= weight;
    }
}

static void live(uint64_t seed, uint64_t step_count, uint64_t counts[STEP_COUNT], bool is_loud)
{
    static const int64_t intervals[] = {15000, 60000, 300000};
    static struct world w;

    memset(&w, 0, sizeof w);
    w.random = (struct test_random){seed, seed};
    w.interval_ms = intervals[below(&w, 3)];
    w.kept_from_ms = INT64_MIN;
    life_init(&w.life, test_fs_new(seed), 1U << below(&w, 3));
    life_open_checked(&w.life);
    w.active_max = one_in(&w, 8) ? WIDE : ACTIVE_MAX;
    for (uint64_t n = w.active_max / 2 + below(&w, w.active_max / 2); n > 0; n--)
        begin_series(&w);
    *life_control() = (struct maintain_control){.yield = write_between, .yield_ctx = &w};
    for (uint64_t i = 0; i < step_count; i++) {
        size_t step = draw_step(&w);

        w.life.variant = (unsigned)(i / 64);
        if (is_loud || from_env("RIMSTONE_TRACE", 0) != 0)
            fprintf(stderr, "%" PRIu64 ": %s\n", i, steps[step].name);
        steps[step].run(&w);
        counts[step]++;
        if (is_loud)
            life_check(&w.life);
    }
    step_restart(&w);
    life_done(&w.life);
}

static void test_random_lives(void **state)
{
    uint64_t seed = from_env("RIMSTONE_SEED", 0), rounds = from_env("RIMSTONE_ROUNDS", 0);
    uint64_t step_count = from_env("RIMSTONE_STEPS", STEPS), lived = 0;
    uint64_t end_ns = clock_mono_ns() + SECONDS * UINT64_C(1000000000);
    uint64_t counts[STEP_COUNT] = {0};

    (void)state;
    if (rounds == 0) {
        rounds = seed != 0 ? 1 : ROUNDS;
        end_ns = seed != 0 ? UINT64_MAX : end_ns;
    } else {
        end_ns = UINT64_MAX;
    }
    for (uint64_t n = 0; n < rounds && clock_mono_ns() < end_ns; n++) {
        uint64_t life_seed = seed != 0 ? seed + n : 1000 + n;

        fprintf(stderr, "RIMSTONE_SEED=%" PRIu64 "\n", life_seed);
        live(life_seed, step_count, counts, seed != 0 && rounds == 1);
        lived++;
    }
    for (size_t i = 0; i < STEP_COUNT; i++) {
        fprintf(stderr, "%s %" PRIu64 "\n", steps[i].name, counts[i]);
        /* On a busy machine the time is up before every step has had its turn. */
        CHECK_MSG(counts[i] > 0 || seed != 0 || lived < rounds, "%s never ran", steps[i].name);
    }
    CHECK(lived > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
