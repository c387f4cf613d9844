/*
 * The querier: its life, samples, and labels. Selection is in querier_select.c, sorting in
 * querier_sort.c, label names and values are in querier_names.c.
 */
#include "engine/read/column_merge_internal.h"
#include "engine/read/querier_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

enum err querier_open(struct engine *e, struct querier **out, struct errinfo *ei)
{
    struct querier *q = calloc(1, sizeof *q);
    uint32_t shard_count = engine_shard_count(e);

    ASSERT(shard_count <= QUERIER_SHARDS_MAX);
    if (q != NULL)
        q->shards = calloc(shard_count, sizeof *q->shards);
    if (q == NULL || q->shards == NULL) {
        free(q);
        return errinfo_set(ei, ERR_NOMEM, 0, "querier");
    }
    q->engine = e;
    q->memory = e->memory;
    q->shard_count = shard_count;
    mutex_init(&q->lock);
    str_pool_init(&q->texts, q->memory, engine_hash_secret(e));
    /* Before an index is seen: whoever replaces one asks the list afterwards. */
    readers_enter(&e->readers, &q->reader);
    for (uint32_t i = 0; i < shard_count; i++)
        q->shards[i].index = shard_index_pin(engine_shard(e, i));
    *out = q;
    return ERR_OK;
}

void querier_close(struct querier *q)
{
    if (q == NULL)
        return;
    readers_leave(&q->engine->readers, &q->reader);
    orphans_done(q);
    str_pool_done(&q->texts);
    mutex_done(&q->lock);
    free(q->shards);
    free(q);
}

void querier_set_stop(struct querier *q, const _Atomic bool *stop)
{
    q->stop = stop;
}

void querier_set_deadline(struct querier *q, uint64_t mono_ns)
{
    q->deadline_mono_ns = mono_ns;
}

enum err querier_check_stop(const struct querier *q, struct errinfo *ei)
{
    /* relaxed: a flag that orders nothing */
    if (q->stop != NULL && atomic_load_explicit(q->stop, memory_order_relaxed))
        return errinfo_set(ei, ERR_CANCELED, 0, "query was stopped");
    if (q->deadline_mono_ns != 0 && clock_mono_ns() > q->deadline_mono_ns)
        return errinfo_set(ei, ERR_TIMEOUT, 0, "query timed out in expression evaluation");
    return ERR_OK;
}

/* ---- by shard ---- */

/* Adds those of `count` items, all of one shard, that are orphans or are not. */
static void group_fill(struct shard_group *group, const struct series_handle *items,
                       const uint16_t *order, size_t count, bool orphans)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = items[order[i]].slot;

        if (slot_is_orphan(slot) != orphans)
            continue;
        group->slots[group->count] = slot;
        group->rows[group->count++] = order[i];
    }
}

enum err querier_by_shard(struct querier *q, const struct series_handle *items, size_t count,
                          enum err (*run)(void *ctx, const struct shard_group *group,
                                          struct errinfo *ei),
                          void *ctx, struct errinfo *ei)
{
    struct shard_group group;
    uint16_t order[QUERIER_GROUP_MAX] = {0};
    uint16_t starts[QUERIER_SHARDS_MAX + 1]; /* after placing: where the next shard begins */

    ASSERT(count <= QUERIER_GROUP_MAX);
    memset(starts, 0, (q->shard_count + 1) * sizeof starts[0]);
    for (size_t i = 0; i < count; i++) {
        ASSERT(items[i].shard < q->shard_count);
        starts[items[i].shard + 1]++;
    }
    for (uint32_t s = 0; s < q->shard_count; s++)
        starts[s + 1] = (uint16_t)(starts[s + 1] + starts[s]);
    for (size_t i = 0; i < count; i++)
        order[starts[items[i].shard]++] = (uint16_t)i;
    for (size_t i = 0; i < count; i += group.count) {
        size_t n = 1;
        enum err e;

        group.shard = items[order[i]].shard;
        while (i + n < count && items[order[i + n]].shard == group.shard)
            n++;
        group.count = 0;
        group_fill(&group, items, order + i, n, false);
        group.live_count = group.count;
        if (group.count < n)
            group_fill(&group, items, order + i, n, true);
        e = run(ctx, &group, ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

/* ---- samples ---- */

struct read_call {
    struct querier *q;
    const struct series_handle *items;
    int64_t min_time_ms, max_time_ms;
    struct arena *arena;
    struct column *out;
};

/* What tombstones are matched with: the label sets of some series of a group. */
struct group_labels {
    struct querier *q;
    const struct shard_group *group;
};

static enum err group_labels_of(void *ctx, const size_t *items, size_t count, struct arena *arena,
                                struct labels *out, struct errinfo *ei)
{
    const struct group_labels *g = ctx;
    uint32_t slots[QUERIER_READ_BATCH_MAX] = {0};
    size_t live_count = 0;
    enum err e;

    for (size_t i = 0; i < count; i++) { /* ascending: orphans come last */
        slots[i] = g->group->slots[items[i]];
        live_count += items[i] < g->group->live_count;
    }
    e = index_labels(querier_index(g->q, g->group->shard), slots, live_count, arena, out, ei);
    if (e == ERR_OK && live_count < count)
        e = orphans_labels(g->q, g->group->shard, slots + live_count, count - live_count, arena,
                           out + live_count, ei);
    return e;
}

static enum err read_group(void *ctx, const struct shard_group *group, struct errinfo *ei)
{
    const struct read_call *c = ctx;
    struct column columns[QUERIER_READ_BATCH_MAX];
    struct file_read_item items[QUERIER_READ_BATCH_MAX];
    struct group_labels labels = {c->q, group};
    const struct shard_read read = {.items = items,
                                    .count = group->count,
                                    .min_time_ms = c->min_time_ms,
                                    .max_time_ms = c->max_time_ms,
                                    .labels_of = group_labels_of,
                                    .ctx = &labels,
                                    .arena = c->arena};
    enum err e = querier_check_stop(c->q, ei);

    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < group->count; i++) {
        const struct series_handle *h = &c->items[group->rows[i]];

        items[i] = (struct file_read_item){
            h->fingerprint, i < group->live_count ? h->slot : UINT32_MAX, h->generation};
    }
    e = shard_read(engine_shard(c->q->engine, group->shard), &read, columns, ei);
    for (size_t i = 0; i < group->count && e == ERR_OK; i++) {
        if (!column_take_starts(&columns[i], c->arena))
            e = arena_error(c->arena, ei);
        c->out[group->rows[i]] = columns[i];
    }
    return e;
}

enum err querier_read(struct querier *q, const struct series_handle *items, size_t count,
                      int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                      struct column *out, struct errinfo *ei)
{
    struct read_call c = {q, items, min_time_ms, max_time_ms, arena, out};

    ASSERT(count <= QUERIER_READ_BATCH_MAX);
    return querier_by_shard(q, items, count, read_group, &c, ei);
}

/* ---- labels ---- */

struct labels_call {
    struct querier *q;
    struct arena *arena;
    struct labels *out;
};

static enum err labels_group(void *ctx, const struct shard_group *group, struct errinfo *ei)
{
    const struct labels_call *c = ctx;
    struct labels sets[QUERIER_GROUP_MAX];
    enum err e = querier_check_stop(c->q, ei);

    if (e == ERR_OK)
        e = index_labels(querier_index(c->q, group->shard), group->slots, group->live_count,
                         c->arena, sets, ei);
    if (e == ERR_OK && group->live_count < group->count)
        e = orphans_labels(c->q, group->shard, group->slots + group->live_count,
                           group->count - group->live_count, c->arena, sets + group->live_count,
                           ei);
    for (size_t i = 0; i < group->count && e == ERR_OK; i++)
        c->out[group->rows[i]] = sets[i];
    return e;
}

enum err querier_labels(struct querier *q, const struct series_handle *items, size_t count,
                        struct arena *arena, struct labels *out, struct errinfo *ei)
{
    for (size_t i = 0; i < count; i += QUERIER_GROUP_MAX) {
        size_t n = count - i < QUERIER_GROUP_MAX ? count - i : QUERIER_GROUP_MAX;
        struct labels_call c = {q, arena, out + i};
        enum err e = querier_by_shard(q, items + i, n, labels_group, &c, ei);

        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

struct values_call {
    struct querier *q;
    const struct str *names;
    size_t name_count;
    struct str *out;
};

static enum err values_group(void *ctx, const struct shard_group *group, struct errinfo *ei)
{
    const struct values_call *c = ctx;

    index_values_of_rows(querier_index(c->q, group->shard), group->slots, group->rows,
                         group->live_count, c->names, c->name_count, c->out);
    if (group->live_count < group->count) {
        enum err e = orphans_values(
            c->q, group->shard, group->slots + group->live_count, group->rows + group->live_count,
            group->count - group->live_count, c->names, c->name_count, c->out, ei);

        if (e != ERR_OK)
            return e;
    }
    return querier_check_stop(c->q, ei);
}

enum err querier_label_values_of(struct querier *q, const struct series_handle *items, size_t count,
                                 const struct str *names, size_t name_count, struct str *out,
                                 struct errinfo *ei)
{
    for (size_t i = 0; i < count; i += QUERIER_GROUP_MAX) {
        size_t n = count - i < QUERIER_GROUP_MAX ? count - i : QUERIER_GROUP_MAX;
        struct values_call c = {q, names, name_count, out + i * name_count};
        enum err e = querier_by_shard(q, items + i, n, values_group, &c, ei);

        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}
