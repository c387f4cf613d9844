#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compactor/merge.h"
#include "compactor/plan.h"
#include "compactor/regroup.h"
#include "tests/compactor/life_kit.h"

/* Before series leave, late files are split: what a purge hides of them is gone. */
static enum err seal(struct life *l, uint32_t shard, enum seal_reason reason,
                     struct seal_result *out)
{
    struct seal_state state;

    engine_seal_state(l->kit.engine, shard, &state);
    l->purge_is_worn |= state.late_file_bytes > 0;
    return engine_seal(l->kit.engine, shard, reason, life_control(), out, &l->kit.ei);
}

enum err life_seal(struct life *l, uint32_t shard)
{
    struct seal_result result = {0};

    return seal(l, shard, SEAL_INTERVAL, &result);
}

enum err life_seal_ended(struct life *l, uint32_t shard, uint64_t *count)
{
    struct seal_result result = {0};
    enum err e = seal(l, shard, SEAL_ENDED, &result);

    *count = result.ended_series_count;
    return e;
}

void life_wait_repeated(struct life *l)
{
    const struct engine *e = l->kit.engine;

    while (atomic_load_explicit(&e->logs.recent_count, memory_order_relaxed) > 0 &&
           !fs_sim_fault_hit(l->fs))
        (void)sched_yield(); /* the committer does it */
}

enum err life_flush(struct life *l, uint32_t shard, int64_t until_ms)
{
    struct flush_result result;

    l->purge_is_worn = true;
    return engine_flush(l->kit.engine, shard, until_ms, life_control(), &result, &l->kit.ei);
}

enum err life_split_late(struct life *l, uint32_t shard)
{
    struct flush_result result;

    l->purge_is_worn = true;
    return engine_split_late(l->kit.engine, shard, life_control(), &result, &l->kit.ei);
}

/* ---- merges ---- */

struct purge {
    struct engine *engine;
    struct arena arena; /* of the ranges given last */
    struct merge_range *ranges;
};

static enum err purge_ranges(void *ctx, const struct labels *labels, struct hash128 fingerprint,
                             uint64_t generation, const struct merge_range **out, size_t *out_count,
                             struct errinfo *ei)
{
    struct purge *p = ctx;
    struct delete_range *ranges;
    size_t count = 0;
    enum err e;

    (void)fingerprint;
    arena_reset(&p->arena);
    e = engine_deleted_ranges(p->engine, labels, generation, &p->arena, &ranges, &count, ei);
    if (e != ERR_OK)
        return e;
    p->ranges = ARENA_ARRAY(&p->arena, count + 1, struct merge_range);
    CHECK(p->ranges != NULL);
    for (size_t i = 0; i < count; i++)
        p->ranges[i] = (struct merge_range){ranges[i].min_time_ms, ranges[i].max_time_ms};
    *out = p->ranges;
    *out_count = count;
    return ERR_OK;
}

static enum err merge_chosen(struct life *l, uint32_t shard, const struct engine_parts *parts,
                             const bool *chosen, const struct part_key *key, struct arena *arena)
{
    struct part **inputs = ARENA_ARRAY(arena, parts->count, struct part *);
    struct part_key *removed = ARENA_ARRAY(arena, parts->count, struct part_key);
    struct purge purge = {.engine = l->kit.engine};
    struct merge_options o = {.store = engine_part_store(l->kit.engine),
                              .dir = engine_parts_dir(),
                              .key = *key,
                              .purge = {purge_ranges, &purge}};
    struct merge_result result;
    size_t count = 0;
    enum err e;

    CHECK(inputs != NULL && removed != NULL);
    l->purge_is_worn = true;
    for (size_t i = 0; i < parts->count; i++) {
        if (!chosen[i])
            continue;
        inputs[count] = parts->items[i].part;
        removed[count++] = parts->items[i].key;
    }
    o.inputs = inputs;
    o.input_count = count;
    arena_init(&purge.arena, NULL);
    e = engine_part_clear(l->kit.engine, key, &l->kit.ei);
    if (e == ERR_OK)
        e = merge_run(&o, &result, &l->kit.ei);
    arena_done(&purge.arena);
    if (e != ERR_OK)
        return e;
    e = engine_parts_exchange(l->kit.engine, shard, removed, count,
                              result.written ? &result.info : NULL, parts->purged_generation,
                              &l->kit.ei);
    return e;
}

enum err life_merge(struct life *l, uint32_t shard, bool *merged)
{
    const struct plan_options options = {
        .retention_ms = UINT64_C(100) * 86400000, .closed_until_ms = l->now_ms, .small_bytes = 1};
    struct engine_parts parts;
    struct seal_state state;
    struct plan_part *items;
    struct arena arena;
    struct plan plan;
    enum err e;

    *merged = false;
    engine_seal_state(l->kit.engine, shard, &state);
    if (state.late_file_bytes > 0) /* which may lie between the parts */
        return ERR_OK;
    arena_init(&arena, NULL);
    e = engine_parts_get(l->kit.engine, shard, &arena, &parts, &l->kit.ei);
    if (e != ERR_OK)
        goto out;
    items = ARENA_ARRAY(&arena, parts.count + parts.file_count + 1, struct plan_part);
    CHECK(items != NULL);
    for (size_t i = 0; i < parts.count; i++)
        items[i] = (struct plan_part){parts.items[i].key, parts.items[i].size_bytes,
                                      .is_fixed = parts.items[i].is_foreign};
    for (size_t i = 0; i < parts.file_count; i++)
        items[parts.count + i] = (struct plan_part){.key = parts.files[i], .is_fixed = true};
    CHECK_OK(plan_next(items, parts.count + parts.file_count, &options, &arena, &plan, &l->kit.ei),
             &l->kit.ei);
    if (plan.reason != PLAN_NOTHING) {
        e = merge_chosen(l, shard, &parts, plan.chosen, &plan.key, &arena);
        *merged = e == ERR_OK;
    }
    engine_parts_release(&parts);
out:
    arena_done(&arena);
    return e;
}

enum err life_regroup(struct life *l, uint32_t shard, bool *done)
{
    struct purge purge = {.engine = l->kit.engine};
    const struct merge_options o = {.purge = {purge_ranges, &purge}};
    struct engine_parts parts;
    struct merge_result result;
    struct part_key *keys;
    struct regroup g;
    struct arena arena;
    bool *usable, *chosen;
    enum err e;

    *done = false;
    l->purge_is_worn = true;
    arena_init(&arena, NULL);
    arena_init(&purge.arena, NULL);
    e = engine_parts_get(l->kit.engine, shard, &arena, &parts, &l->kit.ei);
    if (e != ERR_OK)
        goto out;
    keys = ARENA_ARRAY(&arena, parts.count + 1, struct part_key);
    usable = ARENA_ARRAY(&arena, parts.count + 1, bool);
    chosen = ARENA_ARRAY(&arena, parts.count + 1, bool);
    CHECK(keys != NULL && usable != NULL && chosen != NULL);
    for (size_t i = 0; i < parts.count; i++) {
        keys[i] = parts.items[i].key;
        usable[i] = parts.items[i].is_foreign;
    }
    if (regroup_next(keys, usable, parts.count, shard, engine_shard_count(l->kit.engine), chosen,
                     &g)) {
        e = regroup_run(l->kit.engine, &g, &parts, chosen, &o, &result, &l->kit.ei);
        *done = e == ERR_OK;
    }
    engine_parts_release(&parts);
out:
    arena_done(&purge.arena);
    arena_done(&arena);
    return e;
}

enum err life_purge(struct life *l, uint32_t shard, bool *purged)
{
    struct engine_parts parts;
    struct arena arena;
    struct part_key *keys;
    size_t key_count;
    bool *chosen;
    enum err e;

    *purged = false;
    arena_init(&arena, NULL);
    e = engine_parts_get(l->kit.engine, shard, &arena, &parts, &l->kit.ei);
    if (e != ERR_OK)
        goto out;
    key_count = parts.count + parts.file_count;
    keys = ARENA_ARRAY(&arena, key_count + 1, struct part_key);
    chosen = ARENA_ARRAY(&arena, key_count + 1, bool);
    CHECK(keys != NULL && chosen != NULL);
    for (size_t i = 0; i < parts.count; i++)
        keys[i] = parts.items[i].key;
    for (size_t i = 0; i < parts.file_count; i++)
        keys[parts.count + i] = parts.files[i];
    for (size_t i = 0; i < parts.count && e == ERR_OK && !*purged; i++) {
        struct part_key key;

        memset(chosen, 0, key_count * sizeof *chosen);
        chosen[i] = true;
        if (!parts.items[i].is_touched_by_delete || parts.items[i].is_foreign ||
            merge_inputs_valid(keys, chosen, key_count, &key, &l->kit.ei) != ERR_OK)
            continue;
        e = merge_chosen(l, shard, &parts, chosen, &key, &arena);
        *purged = e == ERR_OK;
    }
    engine_parts_release(&parts);
out:
    arena_done(&arena);
    return e;
}

enum err life_retire_tombstones(struct life *l)
{
    return engine_tombstones_retire(l->kit.engine, &l->kit.ei);
}

enum err life_retain(struct life *l, uint32_t shard, int64_t cutoff_ms)
{
    struct engine_parts parts;
    struct part_key *removed;
    struct arena arena;
    size_t count = 0;
    enum err e;

    arena_init(&arena, NULL);
    e = engine_parts_get(l->kit.engine, shard, &arena, &parts, &l->kit.ei);
    if (e != ERR_OK)
        goto out;
    removed = ARENA_ARRAY(&arena, parts.count + 1, struct part_key);
    CHECK(removed != NULL);
    life_model_retain(&l->model, cutoff_ms);
    l->purge_is_worn = true;
    for (size_t i = 0; i < parts.count && e == ERR_OK; i++) {
        const struct part_key *key = &parts.items[i].key;

        if (key->window_start_ms + (int64_t)key->window_size_ms > cutoff_ms)
            continue;
        if (parts.items[i].is_foreign)
            e = engine_foreign_part_remove(l->kit.engine, key, &l->kit.ei);
        else
            removed[count++] = *key;
    }
    if (e == ERR_OK && count > 0)
        e = engine_parts_exchange(l->kit.engine, shard, removed, count, NULL, PARTS_REMOVED,
                                  &l->kit.ei);
    engine_parts_release(&parts);
out:
    arena_done(&arena);
    return e;
}

/* ---- deletion, the rest ---- */

struct matcher life_matcher(struct arena *arena, enum matcher_kind kind, const char *name,
                            const char *value)
{
    struct errinfo ei = {0};
    struct matcher m;

    CHECK_OK(matcher_init(&m, kind, str_from(name), str_from(value), arena, &ei), &ei);
    return m;
}

struct matcher life_series_matcher(struct arena *arena, uint32_t series)
{
    char id[LIFE_LABELS_SIZE];

    (void)life_label_value(series, STR_LITERAL("id"), id);
    return life_matcher(arena, MATCHER_EQUAL, "id", id);
}

enum err life_delete(struct life *l, const struct matcher *matchers, size_t matcher_count,
                     int64_t min_time_ms, int64_t max_time_ms)
{
    enum err e =
        engine_delete(l->kit.engine, matchers, matcher_count, min_time_ms, max_time_ms, &l->kit.ei);

    l->purge_is_worn = true;
    (void)life_model_delete(&l->model, matchers, matcher_count, min_time_ms, max_time_ms,
                            e != ERR_OK);
    return e;
}

enum err life_delete_series(struct life *l, uint32_t series, int64_t min_time_ms,
                            int64_t max_time_ms)
{
    struct arena arena;
    struct matcher m;
    enum err e;

    arena_init(&arena, NULL);
    m = life_series_matcher(&arena, series);
    e = life_delete(l, &m, 1, min_time_ms, max_time_ms);
    matcher_done(&m);
    arena_done(&arena);
    return e;
}

enum err life_rebuild(struct life *l, uint32_t shard)
{
    enum err e = engine_rebuild(l->kit.engine, shard, life_control(), &l->kit.ei);

    l->purge_is_worn = true;
    engine_housekeep(l->kit.engine);
    return e;
}

enum err life_snapshot(struct life *l, const char *path)
{
    l->purge_is_worn = true;
    /* Nothing is written meanwhile: it might be in the snapshot or not. */
    return engine_snapshot(l->kit.engine, path, NULL, &l->kit.ei);
}
