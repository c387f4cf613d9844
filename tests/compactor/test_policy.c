/*
 * When to seal, flush, split and pause, as tables; and which parts retention takes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "compactor/policy_internal.h"
#include "compactor/retention_internal.h"
#include "tests/compactor/merge_kit.h"
#include "tests/lib/test_cmocka.h"

enum { SHARDS = 4 };

static const uint64_t second = UINT64_C(1000000000);
static const uint64_t mebi = UINT64_C(1) << 20;

/* An hour after the start, all shards sealed a minute ago and a little in memory: nothing is due
 * for minutes. */
struct scene {
    struct policy_settings settings;
    struct policy_moment moment;
    struct policy_shard shards[SHARDS];
    uint32_t shard;
    enum seal_reason reason;
};

static struct scene scene_new(void)
{
    struct scene s = {
        .settings = {.shard_count = SHARDS,
                     .memory_limit_bytes = 1024 * mebi,
                     .log_limit_bytes = 2048 * mebi,
                     .seal_interval_ns = 1800 * second,
                     .replay_ns_per_entry = 100,
                     .start_ns = 1000 * second},
        .moment = {.mono_ns = 4700 * second,
                   .age_ns = 4700 * second,
                   .now_ms = MERGE_KIT_START,
                   .memory_used_bytes = 100 * mebi,
                   .log_bytes = 100 * mebi},
    };

    for (uint32_t i = 0; i < SHARDS; i++)
        s.shards[i] = (struct policy_shard){.sealed_ns = 4640 * second,
                                            .flushed_until_ms = INT64_MAX,
                                            .state = {.log_entries = 1000,
                                                      .sample_count = 1000,
                                                      .chunk_bytes = mebi / 2,
                                                      .series_count = 10000,
                                                      .sealed_mono_ns = 4640 * second,
                                                      .oldest_sealed_window_end_ms = INT64_MAX}};
    return s;
}

static bool next(struct scene *s)
{
    s->reason = SEAL_NONE;
    s->shard = UINT32_MAX;
    return policy_seal_next(&s->settings, &s->moment, s->shards, &s->shard, &s->reason);
}

static bool seals(struct scene *s, uint32_t shard, enum seal_reason reason)
{
    return next(s) && s->shard == shard && s->reason == reason;
}

static void test_nothing_is_due(void **state)
{
    struct scene s = scene_new();

    (void)state;
    CHECK(!next(&s));
}

static void test_replay_cost(void **state)
{
    struct scene s = scene_new();

    (void)state;
    s.shards[2].state.log_entries = 25000000; /* 2.5 s: a quarter of ten, exactly */
    CHECK(!next(&s));
    s.shards[2].state.log_entries++;
    CHECK(seals(&s, 2, SEAL_REPLAY_COST));
    s.shards[1].state.log_entries = 30000000;
    CHECK(seals(&s, 1, SEAL_REPLAY_COST));
    s.shards[1].is_blocked = true;
    CHECK(seals(&s, 2, SEAL_REPLAY_COST));
    s.settings.replay_ns_per_entry = 50;
    CHECK(!next(&s));
}

static void test_memory(void **state)
{
    struct scene s = scene_new();

    (void)state;
    s.shards[0].state.chunk_bytes = 50 * mebi;
    s.shards[3].state.chunk_bytes = 30 * mebi;
    s.shards[3].state.late_bytes = 30 * mebi; /* counts as well */
    s.settings.memory_limit_bytes = 4096 * mebi;
    s.moment.memory_used_bytes = 2600 * mebi; /* below 65 % */
    CHECK(!next(&s));
    s.moment.memory_used_bytes = 2700 * mebi;
    CHECK(seals(&s, 3, SEAL_MEMORY));
    s.shards[3].is_blocked = true;
    CHECK(seals(&s, 0, SEAL_MEMORY));
    /* A share of a 64th over four shards is 16 MiB; what is less frees too little. */
    s.shards[0].state.chunk_bytes = 16 * mebi - 1;
    CHECK(!next(&s));
    s.moment.memory_used_bytes = 3300 * mebi; /* above 80 % it counts */
    CHECK(seals(&s, 0, SEAL_MEMORY));
    s.shards[0].state.chunk_bytes = mebi - 1;
    s.shards[1].state.chunk_bytes = s.shards[2].state.chunk_bytes = 0;
    CHECK(!next(&s));
    s.settings.memory_limit_bytes = 0; /* no limit */
    s.shards[3].is_blocked = false;
    s.shards[3].state.late_bytes = 0;
    CHECK(!next(&s));
}

static void test_log_size(void **state)
{
    struct scene s = scene_new();

    (void)state;
    s.moment.log_bytes = 2048 * mebi + 1;
    s.shards[1].state.sealed_mono_ns = 4600 * second;
    s.shards[2].state.sealed_mono_ns = 4500 * second;
    s.shards[2].state.log_entries = 0; /* holds nothing of the log */
    CHECK(seals(&s, 1, SEAL_LOG_SIZE));
    /* Sealed a moment ago: once more would not help. */
    for (uint32_t i = 0; i < SHARDS; i++)
        s.shards[i].state.sealed_mono_ns = 4641 * second;
    CHECK(!next(&s));
}

static void test_late(void **state)
{
    struct scene s = scene_new();

    (void)state;
    s.shards[1].state.late_bytes = 16 * mebi; /* a sixteenth of 1 GiB over four shards */
    CHECK(!next(&s));
    s.shards[1].state.late_bytes++;
    CHECK(seals(&s, 1, SEAL_LATE));
    s.settings.memory_limit_bytes = 4 * mebi; /* a small store does not seal for every sample */
    s.moment.memory_used_bytes = 0;
    s.shards[1].state.late_bytes = 256 << 10;
    CHECK(!next(&s));
    s.settings.memory_limit_bytes = 0;
    s.shards[1].state.late_bytes = 4 * mebi + 1;
    CHECK(seals(&s, 1, SEAL_LATE));
}

static void test_ended(void **state)
{
    struct scene s = scene_new();

    (void)state;
    s.shards[0].state.ended_series_count = 500; /* 5 % */
    CHECK(!next(&s));
    s.shards[0].state.ended_series_count++;
    CHECK(seals(&s, 0, SEAL_ENDED));
    s.shards[0].state.sample_count = s.shards[0].state.log_entries =
        0; /* all sealed: they go all the same */
    CHECK(seals(&s, 0, SEAL_ENDED));
    s.shards[0].sealed_ns = s.moment.age_ns - 59 * second;
    CHECK(!next(&s));
    s.shards[1].state.series_count = 100;
    s.shards[1].state.ended_series_count = 63; /* a handful of series is no reason */
    CHECK(!next(&s));
    s.shards[1].state.ended_series_count = 64;
    CHECK(seals(&s, 1, SEAL_ENDED));
}

/* All chunks together decide whether, bytes a series decide where. */
static void test_chunks(void **state)
{
    const uint64_t most = POLICY_CHUNK_BYTES_A_SERIES;
    struct scene s = scene_new();

    (void)state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        s.shards[i].state.series_count = UINT64_C(10000) * (i + 1); /* 100,000 in all */
        s.shards[i].state.chunk_bytes = most * 10000 * (i + 1);
    }
    s.moment.age_ns = 4940 * second; /* five minutes after the seals; no shard's turn by time */
    CHECK(!next(&s));                /* the bound, exactly */
    s.shards[3].state.chunk_bytes += 100000;
    CHECK(seals(&s, 3, SEAL_CHUNKS));
    s.shards[0].state.chunk_bytes += 30000; /* more a series, less in all */
    CHECK(seals(&s, 0, SEAL_CHUNKS));
    s.shards[0].sealed_ns += 1; /* not yet again */
    CHECK(seals(&s, 3, SEAL_CHUNKS));
    s.shards[3].is_blocked = true;
    CHECK(seals(&s, 1, SEAL_CHUNKS));
    /* What lies below the bound stays, also when nobody else can go. */
    s.shards[1].state.chunk_bytes -= 1;
    s.shards[2].state.chunk_bytes -= 1;
    CHECK(!next(&s));
    s.shards[1].state.ended_series_count = 2000; /* goes first */
    CHECK(seals(&s, 1, SEAL_ENDED));
    /* A seal's worth of bytes is needed before it pays. */
    s = scene_new();
    s.moment.age_ns = 4940 * second;
    for (uint32_t i = 0; i < SHARDS; i++) {
        s.shards[i].state.series_count = 10;
        s.shards[i].state.chunk_bytes = mebi / SHARDS;
    }
    CHECK(!next(&s));
    s.shards[2].state.chunk_bytes++;
    CHECK(seals(&s, 2, SEAL_CHUNKS));
}

/* Shards that were all sealed at once, as by a flush, come to seal at even distances: what all hold
 * together then stays at the bound, and each goes with twice of it. */
static void test_chunks_fall_out_of_step(void **state)
{
    struct scene s = scene_new();
    uint64_t highest = 0, gone = 0, seal_count = 0;

    (void)state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        s.shards[i].state.chunk_bytes = 0;
        s.shards[i].sealed_ns = s.moment.age_ns;
    }
    for (int step = 0; step < 4000; step++) {
        uint64_t all = 0;

        s.moment.age_ns += 15 * second;
        for (uint32_t i = 0; i < SHARDS; i++)
            all += s.shards[i].state.chunk_bytes += 2 * s.shards[i].state.series_count;
        highest = all > highest ? all : highest;
        while (next(&s)) {
            CHECK(step < 2000 || s.reason == SEAL_CHUNKS); /* before any turn by time */
            gone += step >= 2000 ? s.shards[s.shard].state.chunk_bytes : 0;
            seal_count += step >= 2000;
            s.shards[s.shard].state.chunk_bytes = 0;
            s.shards[s.shard].sealed_ns = s.moment.age_ns;
            s.shards[s.shard].sealed_for_chunks = s.reason == SEAL_CHUNKS;
        }
    }
    CHECK(highest <= (POLICY_CHUNK_BYTES_A_SERIES + 2) * 10000 * SHARDS);
    /* Of four shards the fullest has 4/10 of all. */
    CHECK(gone / seal_count > POLICY_CHUNK_BYTES_A_SERIES * 10000 * SHARDS * 38 / 100);
}

/* Memory before log size before replay cost before late data before ended series. */
static void test_order_of_reasons(void **state)
{
    struct scene s = scene_new();

    (void)state;
    s.shards[0].state.ended_series_count = 9000;
    s.shards[1].state.late_bytes = 17 * mebi;
    CHECK(seals(&s, 1, SEAL_LATE));
    s.shards[2].state.log_entries = 60000000;
    CHECK(seals(&s, 2, SEAL_REPLAY_COST));
    s.moment.log_bytes = 4096 * mebi;
    s.shards[3].state.sealed_mono_ns = 4000 * second;
    CHECK(seals(&s, 3, SEAL_LOG_SIZE));
    s.moment.memory_used_bytes = 900 * mebi;
    s.shards[0].state.chunk_bytes = 100 * mebi;
    CHECK(seals(&s, 0, SEAL_MEMORY));
}

/* Each shard's turn comes once in an interval, a quarter of it behind the shard before, wherever
 * the last seal fell: half an interval to a whole one after it, and on the shard's moment the
 * second time at the latest. */
static void test_interval_is_staggered(void **state)
{
    struct scene s = scene_new();
    uint64_t interval = s.settings.seal_interval_ns, start = s.settings.start_ns;
    struct test_random r = test_random_init(5);

    (void)state;
    for (uint32_t i = 0; i < SHARDS; i++) {
        uint64_t phase = i * interval / SHARDS;

        CHECK(policy_interval_due_ns(&s.settings, i, start) == start + (i == 0   ? interval
                                                                        : i == 1 ? 3 * phase
                                                                                 : phase));
        CHECK(policy_interval_due_ns(&s.settings, i, start + phase) == start + phase + interval);
        CHECK(policy_interval_due_ns(&s.settings, i, start + phase + interval / 2) ==
              start + phase + interval);
        CHECK(policy_interval_due_ns(&s.settings, i, start + phase + interval / 2 + 1) ==
              start + phase + 3 * (interval / 2));
        for (int k = 0; k < 1000; k++) {
            /* Sealed before the start, too: when the store was opened. */
            uint64_t sealed = start / 2 + test_random_below(&r, 5 * interval);
            uint64_t due = policy_interval_due_ns(&s.settings, i, sealed);

            CHECK(due >= sealed + interval / 2 && due <= sealed + interval);
            due = policy_interval_due_ns(&s.settings, i, due);
            CHECK((due + interval - start - phase) % interval == 0);
        }
    }
}

static void test_interval(void **state)
{
    struct scene s = scene_new();

    (void)state;
    s.moment.age_ns = 1000 * second + UINT64_C(2) * 1800 * second; /* shard 0's moment */
    for (uint32_t i = 0; i < SHARDS; i++)
        s.shards[i].sealed_ns = s.moment.age_ns - 900 * second;
    CHECK(seals(&s, 0, SEAL_INTERVAL));
    s.shards[0].sealed_ns = s.moment.age_ns;
    CHECK(!next(&s));
    s.moment.age_ns += 450 * second;
    CHECK(seals(&s, 1, SEAL_INTERVAL));
    /* The one that waits longest comes first. */
    s.moment.age_ns += 450 * second;
    CHECK(seals(&s, 1, SEAL_INTERVAL));
    s.shards[1].sealed_for_chunks = true; /* not before an interval has passed */
    s.shards[1].sealed_ns = s.moment.age_ns - 1799 * second;
    CHECK(seals(&s, 3, SEAL_INTERVAL)); /* half an interval after its moment, which came too soon */
    s.shards[3].sealed_ns = s.moment.age_ns;
    CHECK(seals(&s, 2, SEAL_INTERVAL));
    s.shards[1].sealed_ns = s.moment.age_ns - 1801 * second;
    CHECK(seals(&s, 1, SEAL_INTERVAL));
    s.shards[1] = (struct policy_shard){.sealed_ns = 1}; /* nothing to seal */
    CHECK(seals(&s, 2, SEAL_INTERVAL));
}

static void test_flush(void **state)
{
    struct policy_shard p = {.state = {.oldest_sealed_window_end_ms = MERGE_KIT_START},
                             .flushed_until_ms = MERGE_KIT_START};
    int64_t until = 0;

    (void)state;
    CHECK(!policy_flush_due(&p, MERGE_KIT_START + 599999, &until));
    CHECK(policy_flush_due(&p, MERGE_KIT_START + 600000, &until) && until == MERGE_KIT_START);
    CHECK(policy_flush_due(&p, MERGE_KIT_START + 700000, &until));
    CHECK(until == MERGE_KIT_START + 100000);
    p.state.oldest_sealed_window_end_ms = MERGE_KIT_START;
    CHECK(!policy_flush_due(&p, INT64_MIN, &until)); /* the data's clock, before any */
    p.state.oldest_sealed_window_end_ms = INT64_MAX;
    CHECK(!policy_flush_due(&p, INT64_MAX, &until));
    p.state.sample_count = 1; /* of a window that is over, maybe */
    CHECK(policy_flush_due(&p, INT64_MAX, &until));
    CHECK(!policy_flush_due(&p, MERGE_KIT_START + 600000, &until));
}

/* A window's border is reached ten minutes late. */
static void test_flush_border(void **state)
{
    const int64_t window = INT64_C(2) * 3600 * 1000, grace = 600000;

    (void)state;
    CHECK(policy_flush_border_ms(MERGE_KIT_START + grace) == MERGE_KIT_START);
    CHECK(policy_flush_border_ms(MERGE_KIT_START + grace - 1) == MERGE_KIT_START - window);
    CHECK(policy_flush_border_ms(MERGE_KIT_START + grace + window - 1) == MERGE_KIT_START);
    CHECK(policy_flush_border_ms(grace - 1) == -window);
    CHECK(policy_flush_border_ms(INT64_MIN) == INT64_MIN);
}

/* What is told of a shard that has flushed up to a border, or not yet. */
static void test_flushed_to(void **state)
{
    const int64_t window = INT64_C(2) * 3600 * 1000, grace = 600000, now = MERGE_KIT_START + grace;
    struct policy_shard p = {.state = {.oldest_sealed_window_end_ms = INT64_MAX},
                             .flushed_until_ms = MERGE_KIT_START - window + 1};

    (void)state;
    CHECK(policy_flushed_to_ms(&p, now) == MERGE_KIT_START); /* nothing that could be flushed */
    p.state.sample_count = 1;
    CHECK(policy_flushed_to_ms(&p, now) == MERGE_KIT_START - window);
    CHECK(policy_flushed_to_ms(&p, now - 1) == MERGE_KIT_START - window);
    p.flushed_until_ms = MERGE_KIT_START + 1;
    CHECK(policy_flushed_to_ms(&p, now) == MERGE_KIT_START);
    p.state.oldest_sealed_window_end_ms = MERGE_KIT_START - window; /* late, or a flush failed */
    CHECK(policy_flushed_to_ms(&p, now) == MERGE_KIT_START - 2 * window);
    CHECK(policy_flushed_to_ms(&p, INT64_MIN) == INT64_MIN); /* the data's clock, before any */
}

static void test_flushed_until(void **state)
{
    struct seal_state st = {.oldest_sealed_window_end_ms = INT64_MAX};

    (void)state;
    CHECK(policy_flushed_until_ms(&st, 5000000) == 4400000);
    st.oldest_sealed_window_end_ms = 4400001;
    CHECK(policy_flushed_until_ms(&st, 5000000) == 4400000);
    st.oldest_sealed_window_end_ms = 4400000; /* about to be flushed: it is not yet */
    CHECK(policy_flushed_until_ms(&st, 5000000) == 4399999);
    st.oldest_sealed_window_end_ms = 1000;
    CHECK(policy_flushed_until_ms(&st, 5000000) == 999);
    CHECK(policy_flushed_until_ms(&st, INT64_MIN + 5) == INT64_MIN);
}

static void test_split(void **state)
{
    const struct policy_settings settings = {.seal_interval_ns = 1800 * second};
    struct seal_state st = {.late_file_bytes = 1000};

    (void)state;
    CHECK(!policy_split_due(&settings, &st, 100 * second, false, 399 * second));
    CHECK(policy_split_due(&settings, &st, 100 * second, false, 400 * second));
    CHECK(policy_split_due(&settings, &st, 100 * second, true, 101 * second));
    st.late_file_bytes = 16 * mebi;
    CHECK(policy_split_due(&settings, &st, 100 * second, false, 100 * second));
    st.late_file_bytes = 0;
    CHECK(!policy_split_due(&settings, &st, 0, true, 400 * second));
}

static void test_backoff(void **state)
{
    (void)state;
    CHECK(policy_backoff_ns(1) == 5 * second);
    CHECK(policy_backoff_ns(2) == 10 * second);
    CHECK(policy_backoff_ns(6) == 160 * second);
    CHECK(policy_backoff_ns(7) == 300 * second);
    CHECK(policy_backoff_ns(UINT32_MAX) == 300 * second);
}

static void test_pause(void **state)
{
    const uint64_t ms = 1000000;

    (void)state;
    CHECK(policy_pause_ns(5 * ms, 0, 4) == 0);
    CHECK(policy_pause_ns(5 * ms, 1, 4) == 5 * ms);
    CHECK(policy_pause_ns(5 * ms, 4, 4) == 15 * ms);
    CHECK(policy_pause_ns(UINT64_MAX, 4, 4) == 100 * ms);
    CHECK(policy_pause_ns(UINT64_MAX, 1, 4) == 100 * ms);
}

/* ---- retention ---- */

static struct retention_part part(int64_t first_hour, int64_t hours, uint64_t generation,
                                  uint64_t bytes)
{
    return (struct retention_part){.key = merge_kit_key(first_hour, hours, generation),
                                   .size_bytes = bytes};
}

/* The reason of the part that begins at first_hour with that generation. */
static enum retention_reason reason_of(const struct retention_part *parts, size_t count,
                                       int64_t first_hour, uint64_t generation)
{
    for (size_t i = 0; i < count; i++) {
        if (parts[i].key.window_start_ms == MERGE_KIT_START + first_hour * MERGE_KIT_HOUR &&
            parts[i].key.generation == generation)
            return parts[i].reason;
    }
    CHECK(false);
    return RETENTION_KEEP;
}

static void test_retention_by_time(void **state)
{
    struct retention_part p[] = {part(20, 4, 9, 1), part(0, 8, 1, 1), part(6, 2, 2, 1),
                                 part(8, 2, 3, 1), part(8, 8, 4, 1)};
    struct retention_limits l = {.time_ms = 16 * (uint64_t)MERGE_KIT_HOUR};

    (void)state;
    retention_choose(p, 5, &l); /* from hour 24 back to hour 8 */
    CHECK(reason_of(p, 5, 0, 1) == RETENTION_TIME && reason_of(p, 5, 6, 2) == RETENTION_TIME);
    CHECK(reason_of(p, 5, 8, 3) == RETENTION_KEEP && reason_of(p, 5, 8, 4) == RETENTION_KEEP);
    l.time_ms++; /* a moment of the windows that end there is young enough */
    retention_choose(p, 5, &l);
    CHECK(reason_of(p, 5, 0, 1) == RETENTION_KEEP && reason_of(p, 5, 6, 2) == RETENTION_KEEP);
    l.time_ms = 0;
    retention_choose(p, 5, &l);
    CHECK(reason_of(p, 5, 0, 1) == RETENTION_KEEP);
    l.time_ms = 1; /* the newest window stays whatever the limit is */
    retention_choose(p, 5, &l);
    CHECK(reason_of(p, 5, 20, 9) == RETENTION_KEEP && reason_of(p, 5, 8, 4) == RETENTION_TIME);
    retention_choose(NULL, 0, &l);
}

static void test_retention_by_size(void **state)
{
    struct retention_part p[] = {part(4, 2, 3, 100), part(0, 2, 1, 10), part(2, 2, 2, 30),
                                 part(2, 2, 5, 30)};
    struct retention_limits l = {.size_bytes = 200, .other_bytes = 30};

    (void)state;
    retention_choose(p, 4, &l);
    CHECK(reason_of(p, 4, 0, 1) == RETENTION_KEEP); /* 200: it fits */
    l.other_bytes++;
    retention_choose(p, 4, &l);
    CHECK(reason_of(p, 4, 0, 1) == RETENTION_SIZE && reason_of(p, 4, 2, 2) == RETENTION_KEEP);
    l.other_bytes = 61;
    retention_choose(p, 4, &l);
    CHECK(reason_of(p, 4, 2, 2) == RETENTION_SIZE && reason_of(p, 4, 2, 5) == RETENTION_KEEP);
    /* What goes by age makes room first. */
    l.time_ms = 2 * (uint64_t)MERGE_KIT_HOUR;
    retention_choose(p, 4, &l);
    CHECK(reason_of(p, 4, 2, 2) == RETENTION_TIME && reason_of(p, 4, 4, 3) == RETENTION_KEEP);
    l.size_bytes = 1;
    retention_choose(p, 4, &l);
    CHECK(reason_of(p, 4, 4, 3) == RETENTION_SIZE);
}

/* A window that passes the end of time neither goes nor makes others old. */
static void test_retention_of_odd_windows(void **state)
{
    struct retention_part p[] = {part(0, 2, 1, 1), part(2, 2, 2, 1), part(4, 2, 3, 1)};
    struct retention_limits l = {.time_ms = 3600000};

    (void)state;
    p[2].key.window_size_ms = UINT64_MAX;
    p[1].key.window_start_ms = INT64_MIN;
    retention_choose(p, 3, &l);
    for (size_t i = 0; i < 3; i++)
        CHECK(p[i].reason ==
              (p[i].key.window_start_ms == INT64_MIN ? RETENTION_TIME : RETENTION_KEEP));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_due),
        cmocka_unit_test(test_replay_cost),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_log_size),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_ended),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunks_fall_out_of_step),
        cmocka_unit_test(test_order_of_reasons),
        cmocka_unit_test(test_interval_is_staggered),
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_flush_border),
        cmocka_unit_test(test_flushed_to),
        cmocka_unit_test(test_flushed_until),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_backoff),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_retention_by_time),
        cmocka_unit_test(test_retention_by_size),
        cmocka_unit_test(test_retention_of_odd_windows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
