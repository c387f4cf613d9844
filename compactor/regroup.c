/*
 * Splitting and joining parts of another number of shards: see regroup.h.
 */
#include "compactor/regroup.h"

#include <string.h>

#include "base/assert.h"
#include "compactor/merge_internal.h"

/* ---- choosing ---- */

static bool split_choose(const struct part_key *key, uint32_t shard, uint32_t shard_count,
                         struct regroup *out)
{
    uint32_t count;

    ASSERT(key->shard_count > 0); /* the manifest's reader checks it */
    count = shard_count / key->shard_count;
    if (key->shard * count != shard)
        return false; /* another shard's to do */
    count = count < REGROUP_STEP ? count : REGROUP_STEP;
    *out = (struct regroup){.key = *key, .split_count = count};
    out->key.shard = key->shard * count;
    out->key.shard_count = key->shard_count * count;
    return true;
}

/* Takes what belongs to the result: false when nothing more does, or it cannot be used. */
static bool join_grow(const struct part_key *keys, const bool *usable, size_t count, bool *chosen,
                      struct regroup *out, bool *can)
{
    bool grown = false;

    for (size_t i = 0; i < count; i++) {
        int64_t first_ms, last_ms, key_first_ms, key_last_ms;

        if (chosen[i] || keys[i].generation != out->key.generation ||
            !part_key_meets(&keys[i], &out->key))
            continue;
        *can = *can && usable[i] && part_key_shard_within(&keys[i], &out->key) &&
               merge_window(&out->key, &first_ms, &last_ms) &&
               merge_window(&keys[i], &key_first_ms, &key_last_ms);
        if (!*can)
            return false;
        first_ms = key_first_ms < first_ms ? key_first_ms : first_ms;
        last_ms = key_last_ms > last_ms ? key_last_ms : last_ms;
        out->key.window_start_ms = first_ms;
        out->key.window_size_ms = (uint64_t)last_ms - (uint64_t)first_ms + 1;
        chosen[i] = grown = true;
    }
    return grown;
}

static bool join_choose(const struct part_key *keys, const bool *usable, size_t count, size_t at,
                        uint32_t shard_count, bool *chosen, struct regroup *out)
{
    uint32_t ratio = keys[at].shard_count / shard_count;
    size_t inputs = 0;
    bool can = true;

    ratio = ratio < REGROUP_STEP ? ratio : REGROUP_STEP;
    memset(chosen, 0, count * sizeof *chosen);
    *out = (struct regroup){.key = keys[at]};
    out->key.shard /= ratio;
    out->key.shard_count /= ratio;
    while (join_grow(keys, usable, count, chosen, out, &can))
        continue;
    for (size_t i = 0; i < count; i++)
        inputs += chosen[i];
    return can && inputs <= MERGE_INPUTS_MAX;
}

bool regroup_next(const struct part_key *keys, const bool *usable, size_t count, uint32_t shard,
                  uint32_t shard_count, bool *chosen, struct regroup *out)
{
    uint32_t highest = 0;

    /* Those of the most shards first: what a join takes has no finer parts beside it then. */
    for (size_t i = 0; i < count; i++)
        highest = keys[i].shard_count > highest ? keys[i].shard_count : highest;
    for (; highest > shard_count; highest /= 2) {
        for (size_t i = 0; i < count; i++) {
            if (usable[i] && keys[i].shard_count == highest &&
                join_choose(keys, usable, count, i, shard_count, chosen, out))
                return true;
        }
    }
    memset(chosen, 0, count * sizeof *chosen);
    for (size_t i = 0; i < count; i++) {
        if (!usable[i] || keys[i].shard_count >= shard_count ||
            !split_choose(&keys[i], shard, shard_count, out))
            continue;
        chosen[i] = true;
        return true;
    }
    return false;
}

/* ---- doing ---- */

/* Where a series goes. */
struct placing {
    const struct engine *engine;
    const struct regroup *g;
    uint32_t ratio; /* shards of the store in one of the result's */
    struct byte_writer scratch[2];
};

static enum err place(void *ctx, const struct labels *labels, uint32_t *out, struct errinfo *ei)
{
    struct placing *p = ctx;
    uint32_t shard = 0;

    if (!engine_shard_of(p->engine, labels, p->scratch, &shard))
        return errinfo_set(ei, ERR_NOMEM, 0, "shard of a series");
    *out = shard / p->ratio - p->g->key.shard; /* the merge checks it */
    return ERR_OK;
}

static uint32_t result_count(const struct regroup *g)
{
    return g->split_count == 0 ? 1 : g->split_count;
}

static enum err names_clear(struct engine *e, const struct regroup *g, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (uint32_t i = 0; i < result_count(g) && err == ERR_OK; i++) {
        struct part_key key = g->key;

        key.shard += i;
        err = engine_part_clear(e, &key, ei);
    }
    return err;
}

static enum err results_write(struct engine *e, const struct regroup *g, struct merge_options *o,
                              struct merge_result *out, struct errinfo *ei)
{
    struct placing p = {.engine = e, .g = g, .ratio = 1};
    enum err err;

    if (g->split_count > 0) {
        p.ratio = engine_shard_count(e) / g->key.shard_count;
        o->split = (struct merge_split){.count = g->split_count, .place = place, .ctx = &p};
    }
    err = merge_run(o, out, ei);
    writer_done(&p.scratch[0]);
    writer_done(&p.scratch[1]);
    return err;
}

enum err regroup_run(struct engine *e, const struct regroup *g, const struct engine_parts *parts,
                     const bool *chosen, const struct merge_options *o, struct merge_result *out,
                     struct errinfo *ei)
{
    struct part *inputs[MERGE_INPUTS_MAX];
    struct part_key removed[MERGE_INPUTS_MAX];
    struct merge_options own = *o;
    enum err err = names_clear(e, g, ei);

    if (err != ERR_OK)
        return err;
    own.store = engine_part_store(e);
    own.dir = engine_parts_dir();
    own.key = g->key;
    own.inputs = inputs;
    own.input_count = 0;
    for (size_t i = 0; i < parts->count; i++) {
        if (!chosen[i])
            continue;
        inputs[own.input_count] = parts->items[i].part;
        removed[own.input_count++] = parts->items[i].key;
    }
    err = results_write(e, g, &own, out, ei);
    for (uint32_t i = 0; i < result_count(g) && err != ERR_OK; i++) {
        struct part_key key = g->key;

        key.shard += i;
        engine_part_discard(e, &key); /* those that were finished before the failure */
    }
    if (err != ERR_OK)
        return err;
    return engine_foreign_parts_exchange(e, removed, own.input_count, out->infos, out->info_count,
                                         parts->purged_generation, ei);
}
