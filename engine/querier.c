/*
 * The querier: selection over all shards, samples, and labels. Sorting is in querier_sort.c, label
 * names and values are in querier_names.c.
 */
#include "engine/querier_internal.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

enum err querier_open(struct engine *e, struct querier **out, struct errinfo *ei)
{
    struct querier *q = calloc(1, sizeof *q);

    if (q == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "querier");
    q->engine = e;
    q->memory = e->memory;
    q->shard_count = engine_shard_count(e);
    ASSERT(q->shard_count <= QUERIER_SHARDS_MAX);
    *out = q;
    return ERR_OK;
}

void querier_close(struct querier *q)
{
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

enum err querier_by_shard(struct querier *q, const struct series_handle *items, size_t count,
                          enum err (*run)(void *ctx, const struct shard_group *group,
                                          struct errinfo *ei),
                          void *ctx, struct errinfo *ei)
{
    struct shard_group group;
    uint16_t order[QUERIER_GROUP_MAX] = {0};
    uint16_t starts[QUERIER_SHARDS_MAX + 1] = {0}; /* after placing: where the next shard begins */

    ASSERT(count <= QUERIER_GROUP_MAX);
    for (size_t i = 0; i < count; i++) {
        ASSERT(items[i].shard < q->shard_count);
        starts[items[i].shard + 1]++;
    }
    for (uint32_t s = 0; s < q->shard_count; s++)
        starts[s + 1] = (uint16_t)(starts[s + 1] + starts[s]);
    for (size_t i = 0; i < count; i++)
        order[starts[items[i].shard]++] = (uint16_t)i;
    for (size_t i = 0; i < count;) {
        enum err e;

        group.shard = items[order[i]].shard;
        group.count = 0;
        for (; i < count && items[order[i]].shard == group.shard; i++) {
            group.slots[group.count] = items[order[i]].slot;
            group.rows[group.count++] = order[i];
        }
        e = run(ctx, &group, ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

void time_filter_keep(void *ctx, const uint32_t *slots, size_t count, bool *keep)
{
    const struct time_filter *f = ctx;
    struct series_meta meta[QUERIER_META_SLICE];

    for (size_t i = 0; i < count; i += QUERIER_META_SLICE) {
        size_t n = count - i < QUERIER_META_SLICE ? count - i : QUERIER_META_SLICE;

        shard_series_meta(f->shard, slots + i, n, meta);
        for (size_t k = 0; k < n; k++)
            keep[i + k] = time_filter_accepts(f->min_time_ms, f->max_time_ms, &meta[k]);
    }
}

/* ---- selection ---- */

struct slot_list {
    uint32_t *slots;
    size_t count;
};

static enum err select_slots(struct querier *q, const struct matcher *matchers,
                             size_t matcher_count, struct arena *scratch, struct slot_list *lists,
                             size_t *total, struct errinfo *ei)
{
    *total = 0;
    for (uint32_t s = 0; s < q->shard_count; s++) {
        enum err e = querier_check_stop(q, ei);

        if (e == ERR_OK)
            e = index_select(querier_index(q, s), matchers, matcher_count, q->stop, scratch,
                             &lists[s].slots, &lists[s].count, ei);
        if (e != ERR_OK)
            return e;
        *total += lists[s].count;
    }
    return ERR_OK;
}

/* Handles of one shard's slots that may have samples in the range. */
static enum err give_handles(struct querier *q, uint32_t shard, const struct slot_list *list,
                             int64_t min_time_ms, int64_t max_time_ms, struct series_list *out,
                             struct errinfo *ei)
{
    struct series_meta meta[QUERIER_META_SLICE];

    for (size_t i = 0; i < list->count; i += QUERIER_META_SLICE) {
        size_t n = list->count - i < QUERIER_META_SLICE ? list->count - i : QUERIER_META_SLICE;
        enum err e = querier_check_stop(q, ei);

        if (e != ERR_OK)
            return e;
        shard_series_meta(engine_shard(q->engine, shard), list->slots + i, n, meta);
        for (size_t k = 0; k < n; k++) {
            if (!time_filter_accepts(min_time_ms, max_time_ms, &meta[k]))
                continue;
            out->items[out->count++] = (struct series_handle){.fingerprint = meta[k].fingerprint,
                                                              .shard = shard,
                                                              .slot = list->slots[i + k],
                                                              .generation = meta[k].generation};
        }
    }
    return ERR_OK;
}

static enum err select_into(struct querier *q, const struct matcher *matchers, size_t matcher_count,
                            int64_t min_time_ms, int64_t max_time_ms, struct arena *scratch,
                            struct arena *arena, struct series_list *out, struct errinfo *ei)
{
    struct slot_list *lists = arena_calloc(scratch, q->shard_count, sizeof *lists);
    struct series_list list = {0, NULL};
    size_t total;
    enum err e;

    if (lists == NULL)
        return arena_error(scratch, ei);
    e = select_slots(q, matchers, matcher_count, scratch, lists, &total, ei);
    if (e != ERR_OK)
        return e;
    list.items = ARENA_ARRAY(arena, total, struct series_handle);
    if (list.items == NULL)
        return arena_error(arena, ei);
    for (uint32_t s = 0; s < q->shard_count && e == ERR_OK; s++)
        e = give_handles(q, s, &lists[s], min_time_ms, max_time_ms, &list, ei);
    if (e == ERR_OK)
        *out = list;
    return e;
}

enum err querier_select(struct querier *q, const struct matcher *matchers, size_t matcher_count,
                        int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                        struct series_list *out, struct errinfo *ei)
{
    struct arena scratch;
    enum err e;

    /* Slots and matching tables go before the call returns; they count against the same budget. */
    arena_init(&scratch, arena->budget);
    e = select_into(q, matchers, matcher_count, min_time_ms, max_time_ms, &scratch, arena, out, ei);
    arena_done(&scratch);
    return e;
}

/* ---- samples ---- */

struct read_call {
    struct querier *q;
    const struct series_handle *items;
    int64_t min_time_ms, max_time_ms;
    struct arena *arena;
    struct column *out;
};

static enum err read_group(void *ctx, const struct shard_group *group, struct errinfo *ei)
{
    const struct read_call *c = ctx;
    struct column columns[QUERIER_READ_BATCH_MAX];
    uint16_t generations[QUERIER_READ_BATCH_MAX];
    enum err e = querier_check_stop(c->q, ei);

    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < group->count; i++)
        generations[i] = c->items[group->rows[i]].generation;
    e = shard_read(engine_shard(c->q->engine, group->shard), group->slots, generations,
                   group->count, c->min_time_ms, c->max_time_ms, c->arena, columns, ei);
    for (size_t i = 0; i < group->count && e == ERR_OK; i++)
        c->out[group->rows[i]] = columns[i];
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
        e = index_labels(querier_index(c->q, group->shard), group->slots, group->count, c->arena,
                         sets, ei);
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

    index_values_of_rows(querier_index(c->q, group->shard), group->slots, group->rows, group->count,
                         c->names, c->name_count, c->out);
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
