#include "tests/compactor/life_scenarios.h"

#include <stdio.h>

enum {
    SERIES = LIFE_SCRAPED + 4,
    SILENT = LIFE_SCRAPED + 2, /* before it with a staleness marker, from here on in silence */
    ROUNDS_MAX = 64,           /* of a step that is done until nothing is left to do */
    SNAPSHOT_PATH_SIZE = 32,
};

static enum err of_each_shard(struct life *l, enum err (*step)(struct life *l, uint32_t shard))
{
    enum err e = ERR_OK;

    for (uint32_t s = 0; s < engine_shard_count(l->kit.engine) && e == ERR_OK; s++)
        e = step(l, s);
    return e;
}

/* ---- the store that a step finds ---- */

void life_put_round(struct life *l, uint32_t first, uint32_t end, unsigned round)
{
    for (uint32_t s = first; s < end; s++) {
        double value = s % 3 == 0 ? 5 : s % 3 == 1 ? s + round * 0.25 : 1e9 + round * s;

        life_put(l, s, l->now_ms - s % 4, value);
    }
}

void life_scrape(struct life *l, uint32_t series_count, unsigned rounds, int64_t interval_ms)
{
    for (unsigned n = 0; n < rounds; n++) {
        life_set_now(l, l->now_ms + interval_ms);
        life_put_round(l, 0, series_count, n);
        life_send_checked(l);
    }
}

void life_put_late(struct life *l, int64_t t_ms, double value)
{
    for (uint32_t s = 0; s < 6; s++) {
        life_put(l, s, t_ms + s, value + s);
        life_put(l, s, t_ms + 60000, value - s);
    }
    life_send_checked(l);
}

/* Fills the first window: some of its series end with a marker, some in silence. */
static void fill_first_window(struct life *l)
{
    life_scrape(l, SERIES, 6, 10 * LIFE_MINUTE);
    life_set_now(l, l->now_ms + LIFE_MINUTE);
    for (uint32_t s = LIFE_SCRAPED; s < SILENT; s++)
        life_put(l, s, l->now_ms, double_from_bits(STALE_NAN_BITS));
    life_send_checked(l);
    life_scrape(l, LIFE_SCRAPED, 3, 10 * LIFE_MINUTE);
}

/* One window, and late samples over it, of series that end and others: the seal that lets them
 * leave has to split the late file first. */
static void fill_ending(struct life *l)
{
    fill_first_window(l);
    life_put_late(l, LIFE_T0 + 15 * LIFE_MINUTE + 7, 100);
    for (uint32_t s = LIFE_SCRAPED; s < SERIES; s++)
        life_put(l, s, LIFE_T0 + 25 * LIFE_MINUTE + 7, s);
    life_send_checked(l);
}

/* Everything in memory: three windows, late samples over the first. */
static void fill_memory(struct life *l)
{
    fill_first_window(l);
    life_scrape(l, LIFE_SCRAPED, 6, 20 * LIFE_MINUTE);
    life_put_late(l, LIFE_T0 + 15 * LIFE_MINUTE + 7, 100);
    life_scrape(l, LIFE_SCRAPED, 3, 20 * LIFE_MINUTE);
}

static void seal_all(struct life *l)
{
    CHECK_OK(of_each_shard(l, life_seal), &l->kit.ei);
}

/* Two seals, and more in memory. */
static void fill_sealed(struct life *l)
{
    fill_memory(l);
    seal_all(l);
    life_scrape(l, LIFE_SCRAPED, 2, LIFE_MINUTE);
    life_put_late(l, LIFE_T0 + 35 * LIFE_MINUTE + 7, 200);
    seal_all(l);
    life_scrape(l, LIFE_SCRAPED + 4, 2, LIFE_MINUTE);
    life_put_late(l, LIFE_T0 + 35 * LIFE_MINUTE + 7, 300); /* there already, by another seal */
}

static int64_t closed_ms(const struct life *l)
{
    return l->now_ms / LIFE_WINDOW * LIFE_WINDOW;
}

static void flush_all(struct life *l, int64_t until_ms)
{
    for (uint32_t s = 0; s < engine_shard_count(l->kit.engine); s++) {
        CHECK_OK(life_flush(l, s, until_ms), &l->kit.ei);
        CHECK_OK(life_split_late(l, s), &l->kit.ei);
    }
}

/* Parts that overlap, sealed files, late ones, memory. */
static void fill_parts(struct life *l)
{
    fill_memory(l);
    flush_all(l, closed_ms(l));
    fill_sealed(l);
    life_scrape(l, LIFE_SCRAPED, 8, 20 * LIFE_MINUTE);
    life_put_late(l, LIFE_T0 + 25 * LIFE_MINUTE + 7, 400);
    flush_all(l, closed_ms(l));
    life_put_late(l, LIFE_T0 + 25 * LIFE_MINUTE + 7, 500);
    seal_all(l);
    life_scrape(l, LIFE_SCRAPED, 2, LIFE_MINUTE);
}

/* Merges wait for late files. */
static void split_all(struct life *l)
{
    CHECK_OK(of_each_shard(l, life_split_late), &l->kit.ei);
}

static void fill_for_merge(struct life *l)
{
    fill_parts(l);
    split_all(l);
}

/* A deletion that all files there are still hold, and the range partly filled again. */
static void delete_and_refill(struct life *l)
{
    CHECK_OK(life_delete_series(l, 1, LIFE_T0, INT64_MAX), &l->kit.ei);
    life_put(l, 1, LIFE_T0 + 10 * LIFE_MINUTE - 1, 77);
    life_put(l, 1, l->now_ms, 78);
    life_send_checked(l);
}

static void fill_deleted_for_merge(struct life *l)
{
    fill_parts(l);
    delete_and_refill(l);
    split_all(l);
}

/* A purge of series 2 by two labels, so that a relabelling rule has to tell. */
static enum err purge_by_rule(struct life *l)
{
    static const struct str names[] = {{"id", 2}, {"instance", 8}};
    struct relabel_config rule;

    relabel_config_init(&rule);
    rule.action = RELABEL_DROP;
    rule.source_labels = names;
    rule.source_label_count = 2;
    rule.regex = STR_LITERAL("2;host-0.*");
    return life_purge_make_rule(l, &rule);
}

/* All that a series has is hidden; some of it is written again, as it was and otherwise. */
static void fill_purged(struct life *l)
{
    const int64_t late_ms = LIFE_T0 + 25 * LIFE_MINUTE + 7 + 2;

    fill_parts(l);
    CHECK_OK(purge_by_rule(l), &l->kit.ei);
    life_put(l, 2, late_ms, 402);
    life_put(l, 2, late_ms + 60000, 77);
    life_put(l, 2, l->now_ms, 78);
    life_send_checked(l);
}

/* For steps that rewrite every part by itself: in each shard parts of two windows, of late samples
 * over them, a sealed file, memory; the deletion. */
static void fill_few_deleted(struct life *l)
{
    fill_memory(l);
    flush_all(l, closed_ms(l));
    life_put_late(l, LIFE_T0 + 25 * LIFE_MINUTE + 7, 400);
    seal_all(l);
    split_all(l);
    life_scrape(l, LIFE_SCRAPED, 1, LIFE_MINUTE);
    delete_and_refill(l);
}

/* For a step that every recovery does as a whole: in each shard a part, a sealed file and memory;
 * in one a late sample. */
static void fill_least(struct life *l)
{
    fill_first_window(l);
    life_scrape(l, LIFE_SCRAPED, 2, 20 * LIFE_MINUTE);
    flush_all(l, closed_ms(l));
    life_scrape(l, LIFE_SCRAPED, 1, LIFE_MINUTE);
    life_put(l, 0, LIFE_T0 + 25 * LIFE_MINUTE + 7, 400);
    life_send_checked(l);
}

/* ---- steps ---- */

/* In each shard until nothing is left to do. */
static enum err to_the_end(struct life *l,
                           enum err (*step)(struct life *l, uint32_t shard, bool *done))
{
    enum err e = ERR_OK;

    for (uint32_t s = 0; s < engine_shard_count(l->kit.engine) && e == ERR_OK; s++) {
        bool done = true;

        for (unsigned n = 0; n < ROUNDS_MAX && done && e == ERR_OK; n++)
            e = step(l, s, &done);
        CHECK(!done || e != ERR_OK);
    }
    return e;
}

static enum err run_seal(struct life *l)
{
    return of_each_shard(l, life_seal);
}

static enum err put_ended(struct life *l)
{
    enum err e;

    life_put_round(l, LIFE_SCRAPED, SERIES, 1);
    e = life_send(l);
    return e == ERR_OK ? life_wait(l) : e;
}

/* Series go silent and leave, then come back; writers between the slices are others. */
static enum err run_seal_ended(struct life *l)
{
    enum err e = put_ended(l);
    uint64_t left = 0;

    if (e != ERR_OK)
        return e;
    life_set_now(l, l->now_ms + 11 * LIFE_MINUTE);
    life_wait_repeated(l);
    e = run_seal(l);
    for (uint32_t s = 0; s < LIFE_SHARDS && e == ERR_OK; s++) {
        uint64_t count;

        e = life_seal_ended(l, s, &count);
        left += count;
    }
    CHECK(e != ERR_OK || left > 0 || fs_sim_fault_hit(l->fs));
    return e == ERR_OK ? put_ended(l) : e;
}

static enum err flush_closed(struct life *l, uint32_t shard)
{
    return life_flush(l, shard, closed_ms(l));
}

static enum err run_flush(struct life *l)
{
    return of_each_shard(l, flush_closed);
}

static enum err flush_all_windows(struct life *l, uint32_t shard)
{
    return life_flush(l, shard, INT64_MAX);
}

static enum err run_flush_all_windows(struct life *l)
{
    return of_each_shard(l, flush_all_windows);
}

static enum err run_split(struct life *l)
{
    return of_each_shard(l, life_split_late);
}

static enum err run_merge(struct life *l)
{
    return to_the_end(l, life_merge);
}

static enum err run_delete(struct life *l)
{
    return life_delete_series(l, 2, LIFE_T0 + 20 * LIFE_MINUTE, INT64_MAX);
}

static enum err run_delete_and_clean(struct life *l)
{
    enum err e = run_delete(l);

    if (e == ERR_OK)
        e = to_the_end(l, life_purge);
    return e == ERR_OK ? life_retire_tombstones(l) : e;
}

static enum err run_purge(struct life *l)
{
    enum err e = l->model.is_hiding ? life_purge_withdraw(l) : ERR_OK;

    return e == ERR_OK ? life_purge_make_series(l, 2) : e;
}

static enum err run_withdraw(struct life *l)
{
    enum err e = l->model.is_hiding ? ERR_OK : purge_by_rule(l);

    return e == ERR_OK ? life_purge_withdraw(l) : e;
}

static enum err retain(struct life *l, uint32_t shard)
{
    return life_retain(l, shard, LIFE_T0 + LIFE_WINDOW);
}

static enum err run_retain(struct life *l)
{
    return of_each_shard(l, retain);
}

static enum err run_rebuild(struct life *l)
{
    return of_each_shard(l, life_rebuild);
}

static void snapshot_path(unsigned n, char path[SNAPSHOT_PATH_SIZE])
{
    (void)snprintf(path, SNAPSHOT_PATH_SIZE, "snapshot-%u", n);
}

static bool path_exists(struct life *l, const char *path)
{
    struct errinfo ei = {0};
    bool exists = false;

    return fs_exists(l->fs, path, &exists, &ei) == ERR_OK && exists; /* a failure: the power */
}

static enum err run_snapshot(struct life *l)
{
    char path[SNAPSHOT_PATH_SIZE], temporary[SNAPSHOT_PATH_SIZE + 8];
    struct errinfo ei = {0};
    unsigned n = 0;
    enum err e;

    for (snapshot_path(n, path); path_exists(l, path);)
        snapshot_path(++n, path);
    (void)snprintf(temporary, sizeof temporary, "%s" ENGINE_SNAPSHOT_SUFFIX, path);
    /* What a crash has left of it goes at a start. */
    e = engine_snapshot_discard(l->kit.engine, path, &ei);
    CHECK(e != ERR_OK || !path_exists(l, temporary));
    if (e == ERR_OK)
        e = life_snapshot(l, path);
    if (e == ERR_OK) {
        l->snapshot_count = n + 1;
        life_check_snapshot(l, path);
    }
    return e;
}

/* Those that were made are there, and what bears the name of one is whole. Nothing is written in
 * the step, so the model is still that of its snapshot. */
static void check_snapshots(struct life *l)
{
    char path[SNAPSHOT_PATH_SIZE];
    unsigned n = 0;

    for (snapshot_path(n, path); path_exists(l, path); snapshot_path(++n, path))
        life_check_snapshot(l, path);
    CHECK_MSG(n >= l->snapshot_count, "%s has gone", path);
}

/* Parts of another number of shards, a deletion over them, and a little in memory. */
static void fill_for_regroup(struct life *l, uint32_t shard_count)
{
    fill_few_deleted(l);
    life_abandon(l);
    l->shard_count = shard_count;
    life_open_checked(l);
    life_scrape(l, LIFE_SCRAPED, 1, LIFE_MINUTE);
}

static void fill_for_parts_to_split(struct life *l)
{
    fill_for_regroup(l, 2 * LIFE_SHARDS);
}

static void fill_for_parts_to_join(struct life *l)
{
    fill_for_regroup(l, LIFE_SHARDS / 2);
}

static enum err run_regroup(struct life *l)
{
    return to_the_end(l, life_regroup);
}

/* A start under another number of shards. */
static enum err run_reshard(struct life *l)
{
    if (l->is_open)
        life_abandon(l);
    l->shard_count = l->shard_count == LIFE_SHARDS ? 2 * LIFE_SHARDS : LIFE_SHARDS;
    return life_open(l, &l->kit.ei);
}

const struct life_scenario life_scenarios[] = {
    {"seal", fill_memory, run_seal, NULL},
    {"seal_again", fill_sealed, run_seal, NULL},
    {"seal_ended", fill_ending, run_seal_ended, NULL},
    {"flush", fill_sealed, run_flush, NULL},
    {"flush_open_windows", fill_parts, run_flush_all_windows, NULL},
    {"split", fill_parts, run_split, NULL},
    {"merge", fill_for_merge, run_merge, NULL},
    {"merge_what_is_deleted", fill_deleted_for_merge, run_merge, NULL},
    {"delete", fill_parts, run_delete, NULL},
    {"delete_and_clean", fill_few_deleted, run_delete_and_clean, NULL},
    {"purge", fill_parts, run_purge, NULL},
    {"withdraw", fill_purged, run_withdraw, NULL},
    {"retention", fill_parts, run_retain, NULL},
    {"rebuild", fill_parts, run_rebuild, NULL},
    {"reshard", fill_least, run_reshard, NULL},
    {"parts_split", fill_for_parts_to_split, run_regroup, NULL},
    {"parts_join", fill_for_parts_to_join, run_regroup, NULL},
    {"snapshot", fill_parts, run_snapshot, check_snapshots},
};
const size_t life_scenario_count = sizeof life_scenarios / sizeof life_scenarios[0];
