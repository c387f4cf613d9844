/*
 * Samples on their way through a store's files: sealed, flushed into parts, merged. Evals on such a
 * store must give the same answers, to the last bit, as on one that has them in memory.
 *
 * Every second shard keeps its newest windows in sealed files, so that queries meet those as well.
 * There are no deletions in scripts: merges drop nothing.
 */
#include "compactor/merge.h"
#include "compactor/plan.h"
#include "engine/maintain.h"
#include "tools/promqltest_internal.h"

/* The chosen parts become one of the planned key. */
static enum err merge_planned(struct engine *engine, uint32_t shard,
                              const struct engine_parts *parts, const struct plan *plan,
                              struct arena *arena, struct errinfo *ei)
{
    struct part **inputs = ARENA_ARRAY(arena, parts->count, struct part *);
    struct part_key *removed = ARENA_ARRAY(arena, parts->count, struct part_key);
    struct merge_options o = {.store = engine_part_store(engine),
                              .dir = engine_parts_dir(),
                              .key = plan->key,
                              .inputs = inputs};
    struct merge_result result;
    enum err e;

    if (inputs == NULL || removed == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < parts->count; i++) {
        if (!plan->chosen[i])
            continue;
        inputs[o.input_count] = parts->items[i].part;
        removed[o.input_count++] = parts->items[i].key;
    }
    e = engine_part_clear(engine, &plan->key, ei);
    if (e == ERR_OK)
        e = merge_run(&o, &result, ei);
    return e == ERR_OK ? engine_parts_exchange(engine, shard, removed, o.input_count,
                                               result.written ? &result.info : NULL,
                                               parts->purged_generation, ei)
                       : e;
}

static enum err plan_parts(const struct engine_parts *parts, struct arena *arena, struct plan *out,
                           struct errinfo *ei)
{
    static const struct plan_options options = {.closed_until_ms = INT64_MAX};
    size_t count = parts->count + parts->file_count;
    struct plan_part *items = ARENA_ARRAY(arena, count, struct plan_part);

    if (items == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < parts->count; i++)
        items[i] = (struct plan_part){.key = parts->items[i].key,
                                      .size_bytes = parts->items[i].size_bytes};
    for (size_t i = 0; i < parts->file_count; i++)
        items[parts->count + i] = (struct plan_part){.key = parts->files[i], .is_fixed = true};
    return plan_next(items, count, &options, arena, out, ei);
}

/* *merged: there may be more to merge. */
static enum err merge_once(struct engine *engine, uint32_t shard, bool *merged, struct errinfo *ei)
{
    struct engine_parts parts;
    struct arena arena;
    struct plan plan = {.reason = PLAN_NOTHING};
    enum err e;

    *merged = false;
    arena_init(&arena, NULL);
    e = engine_parts_get(engine, shard, &arena, &parts, ei);
    if (e != ERR_OK)
        goto out;
    e = plan_parts(&parts, &arena, &plan, ei);
    if (e == ERR_OK && plan.reason != PLAN_NOTHING) {
        e = merge_planned(engine, shard, &parts, &plan, &arena, ei);
        *merged = e == ERR_OK;
    }
    engine_parts_release(&parts);
out:
    arena_done(&arena);
    return e;
}

static enum err shard_age(struct engine *engine, uint32_t shard, struct errinfo *ei)
{
    struct seal_result sealed;
    struct flush_result flushed;
    bool merged = true;
    enum err e = engine_seal(engine, shard, SEAL_INTERVAL, NULL, &sealed, ei);

    if (e == ERR_OK && shard % 2 == 0)
        e = engine_flush(engine, shard, INT64_MAX, NULL, &flushed, ei);
    if (e == ERR_OK)
        e = engine_split_late(engine, shard, NULL, &flushed, ei);
    while (e == ERR_OK && merged)
        e = merge_once(engine, shard, &merged, ei);
    return e;
}

enum err store_age(struct store *s, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (uint32_t i = 0; e == ERR_OK && i < engine_shard_count(s->engine); i++)
        e = shard_age(s->engine, i, ei);
    return e;
}
