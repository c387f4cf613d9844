/*
 * Retention over all shards, and the figures of what is on disk.
 */
#include <string.h>

#include "base/log.h"
#include "compactor/compactor_internal.h"
#include "engine/engine.h"

static const char *const reason_names[RETENTION_REASON_COUNT] = {"keep", "time", "size"};

struct parts_list {
    struct retention_part *items; /* in the arena */
    size_t count;
};

/* Room is there. A part of another shard count stands in the lists of several shards. */
static void list_add(struct parts_list *list, uint32_t shard, const struct engine_part *part)
{
    for (size_t i = 0; part->is_foreign && i < list->count; i++) {
        if (part_key_equal(&list->items[i].key, &part->key))
            return;
    }
    list->items[list->count++] = (struct retention_part){.key = part->key,
                                                         .size_bytes = part->size_bytes,
                                                         .shard = shard,
                                                         .is_foreign = part->is_foreign};
}

static enum err shard_list(struct compactor *c, uint32_t shard, struct arena *arena,
                           struct parts_list *list, struct errinfo *ei)
{
    struct arena scratch;
    struct engine_parts parts;
    struct retention_part *grown = NULL;
    enum err e;

    arena_init(&scratch, &c->memory);
    e = engine_parts_get(c->engine, shard, &scratch, &parts, ei);
    if (e == ERR_OK) {
        grown = arena_grow_array(arena, list->items, list->count, list->count + parts.count,
                                 sizeof *grown);
        if (grown == NULL) {
            e = arena_error(arena, ei);
        } else {
            list->items = grown;
            for (size_t i = 0; i < parts.count; i++)
                list_add(list, shard, &parts.items[i]);
        }
        engine_parts_release(&parts);
    }
    arena_done(&scratch);
    return e;
}

static void removed(struct compactor *c, const struct retention_part *p)
{
    char name[PART_NAME_SIZE];

    part_name_format(&p->key, PART_FILE_INDEX, false, name);
    LOG_INFO("retention removes a part", LOG_STR("reason", reason_names[p->reason]),
             LOG_U64("shard", p->shard), LOG_I64("window_start_ms", p->key.window_start_ms),
             LOG_U64("window_hours", p->key.window_size_ms / 3600000), LOG_STR("part", name),
             LOG_U64("bytes", p->size_bytes));
    metric_counter_add(c->metrics.retained_parts[p->reason], 1);
    metric_counter_add(c->metrics.retained_bytes[p->reason], p->size_bytes);
}

/* All parts of one shard that go, as one change of the manifest. One that a merge has taken
 * meanwhile makes the whole change fail: it is asked for again. */
static enum err shard_remove(struct compactor *c, uint32_t shard, const struct parts_list *list,
                             struct part_key *keys, struct errinfo *ei)
{
    size_t count = 0;
    enum err e;

    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].shard == shard && list->items[i].reason != RETENTION_KEEP &&
            !list->items[i].is_foreign)
            keys[count++] = list->items[i].key;
    }
    if (count == 0)
        return ERR_OK;
    e = engine_parts_exchange(c->engine, shard, keys, count, NULL, PARTS_REMOVED, ei);
    if (e != ERR_OK)
        return e == ERR_NOT_FOUND ? ERR_OK : e;
    for (size_t i = 0; i < list->count; i++) {
        const struct retention_part *p = &list->items[i];

        if (p->shard == shard && p->reason != RETENTION_KEEP && !p->is_foreign)
            removed(c, p);
    }
    return ERR_OK;
}

static enum err foreign_remove(struct compactor *c, const struct parts_list *list,
                               struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < list->count && e == ERR_OK; i++) {
        const struct retention_part *p = &list->items[i];

        if (!p->is_foreign || p->reason == RETENTION_KEEP)
            continue;
        e = engine_foreign_part_remove(c->engine, &p->key, ei);
        if (e == ERR_OK)
            removed(c, p);
    }
    return e;
}

/* Returns whether anything goes. */
static bool choose(struct compactor *c, const struct parts_list *list,
                   const struct engine_file_stats *files)
{
    struct engine_stats stats;
    bool seen[RETENTION_REASON_COUNT] = {false};
    struct retention_limits limits = {.time_ms = c->options.retention_ms,
                                      .size_bytes = c->options.retention_bytes};

    engine_stats_get(c->engine, &stats);
    limits.other_bytes =
        files->sealed_bytes + files->late_bytes + files->series_bytes + stats.wal.log_bytes;
    retention_choose(list->items, list->count, &limits);
    for (size_t i = 0; i < list->count; i++)
        seen[list->items[i].reason] = true;
    for (size_t r = RETENTION_TIME; r < RETENTION_REASON_COUNT; r++)
        metric_counter_add(c->metrics.retentions[r], seen[r]);
    return seen[RETENTION_TIME] || seen[RETENTION_SIZE];
}

static enum err run(struct compactor *c, struct arena *arena, struct errinfo *ei)
{
    struct parts_list list = {0};
    struct engine_file_stats files;
    struct part_key *keys;
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < c->shard_count && e == ERR_OK; i++)
        e = shard_list(c, i, arena, &list, ei);
    if (e != ERR_OK)
        return e;
    engine_file_stats_get(c->engine, &files);
    keys = ARENA_ARRAY(arena, list.count, struct part_key);
    if (keys == NULL)
        return arena_error(arena, ei);
    if (choose(c, &list, &files)) {
        for (uint32_t i = 0; i < c->shard_count && e == ERR_OK; i++)
            e = shard_remove(c, i, &list, keys, ei);
        if (e == ERR_OK)
            e = foreign_remove(c, &list, ei);
    }
    compactor_metrics_files(c, list.items, list.count, &files);
    return e;
}

void retention_run(struct compactor *c)
{
    struct arena arena;
    struct errinfo ei = {0};

    arena_init(&arena, &c->memory);
    if (run(c, &arena, &ei) != ERR_OK)
        LOG_ERROR("retention failed", LOG_STR("error", ei.message));
    arena_done(&arena);
}
