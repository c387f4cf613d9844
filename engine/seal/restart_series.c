/*
 * The series of a shard out of its series file.
 */
#include <inttypes.h>

#include "base/log.h"
#include "engine/seal/restart_internal.h"
#include "engine/sealed/series_file_internal.h"

static enum err nomem(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOMEM, 0, "memory for series was refused");
}

/* One group's series into the tables; their labels are in the index. */
static enum err group_publish(struct shard *s, const struct series_image_group *g,
                              int64_t oldest_ms, struct errinfo *ei)
{
    enum { AHEAD = 16 };

    for (uint32_t i = 0; i < g->count; i++) {
        struct series *series;

        if (i + AHEAD < g->count)
            fingerprint_table_prefetch(&s->fingerprints, g->fingerprints[i + AHEAD]);
        if (!series_table_reserve(&s->series, g->slots[i]) ||
            !shard_publish_series(s, g->slots[i], g->generations[i], g->fingerprints[i]))
            return nomem(ei);
        series = series_at(&s->series, g->slots[i]);
        if (g->newest_ms[i] == INT64_MIN)
            continue;
        series_lower_oldest(series, oldest_ms < g->newest_ms[i] ? oldest_ms : g->newest_ms[i]);
        series->newest_ms = g->newest_ms[i];
        series->newest_bits = g->newest_bits[i];
        series->has_files = 1;
    }
    return ERR_OK;
}

static enum err image_apply(struct shard *s, const struct series_image *image, int64_t oldest_ms,
                            struct errinfo *ei)
{
    struct index *loaded = NULL;
    enum err e = index_new(s->memory, &loaded, ei);

    if (e == ERR_OK)
        e = index_load_image(loaded, image, ei);
    if (e != ERR_OK) {
        index_free(loaded);
        return e;
    }
    mutex_lock(&s->lock); /* nobody contends; it orders this with later readers */
    index_free(s->index);
    s->index = loaded;
    for (size_t i = 0; i < image->group_count && e == ERR_OK; i++)
        e = group_publish(s, &image->groups[i], oldest_ms, ei);
    if (s->series.slot_end < image->slot_end)
        s->series.slot_end = image->slot_end;
    mutex_unlock(&s->lock);
    return e;
}

/* Loads what can be read of a damaged file; ERR_NOT_FOUND: nothing. */
static enum err image_salvage(struct engine *e, const char *path,
                              const struct series_file_identity *identity,
                              const struct manifest_file *file, struct series_image *image)
{
    struct errinfo ignored = {0};
    /* With nothing taken for durable, the first batch that is not whole ends the file. */
    enum err err = series_file_load_prefix(e->fs, path, identity, 0, file->durable_size, e->memory,
                                           image, &ignored);

    return err == ERR_OK || err == ERR_NOMEM ? err : ERR_NOT_FOUND;
}

static void damage_tell(const struct manifest_file *file, const char *path,
                        const struct errinfo *story, const struct shard *s)
{
    LOG_ERROR("the series file of a shard is damaged: series that it alone defined are lost, with "
              "their samples since the last window flush, until they are sent again",
              LOG_U64("shard", file->shard), LOG_STR("file", path),
              LOG_STR("error", story->message), LOG_U64("series_kept", s->series.series_count));
}

static enum err load(struct engine *e, struct shard *s, const char *path,
                     const struct manifest_file *file, int64_t oldest_ms, bool *is_damaged,
                     struct errinfo *story)
{
    const struct series_file_identity identity = {.shard = file->shard,
                                                  .shard_count = file->shard_count,
                                                  .number = file->number,
                                                  .secret_id = e->secret.id};
    struct series_image image = {0};
    enum err err = series_file_load_prefix(e->fs, path, &identity, file->durable_size,
                                           file->durable_size, e->memory, &image, story);

    if (err == ERR_OK)
        err = image_apply(s, &image, oldest_ms, story);
    if (err == ERR_OK)
        s->file_slot_end = image.slot_end;
    series_image_done(&image);
    *is_damaged = err == ERR_CORRUPT || err == ERR_NOT_FOUND;
    if (err != ERR_CORRUPT)
        return *is_damaged ? ERR_OK : err;
    image = (struct series_image){0};
    err = image_salvage(e, path, &identity, file, &image);
    if (err == ERR_OK)
        err = image_apply(s, &image, oldest_ms, NULL);
    series_image_done(&image);
    return err == ERR_NOMEM ? err : ERR_OK; /* else without any series */
}

enum err restart_series(struct engine *e, struct shard *s, const struct manifest_file *file,
                        const struct shard_bounds *bounds, bool *is_damaged, struct errinfo *ei)
{
    struct errinfo story = {0};
    char path[MANIFEST_PATH_SIZE];
    enum err err;

    manifest_file_path(file, path);
    err = load(e, s, path, file, bounds->min_time_ms, is_damaged, &story);
    if (err != ERR_OK && ei != NULL)
        *ei = story;
    if (err == ERR_OK && *is_damaged) {
        s->is_salvaged = true;
        s->salvaged = *bounds;
        atomic_fetch_add_explicit(&e->series_files_damaged, 1, memory_order_relaxed);
        damage_tell(file, path, &story, s);
    }
    return err;
}

enum err restart_series_raise(struct shard *s, struct errinfo *ei)
{
    const struct shard_bounds *b = &s->salvaged;
    enum err e = ERR_OK;

    mutex_lock(&s->lock); /* nobody contends; it orders this with later writers */
    for (uint32_t slot = 0; slot < s->series.slot_end && b->max_time_ms >= CHUNK_TIME_MIN_MS;
         slot++) {
        struct series *series = series_find(&s->series, slot);

        if (series == NULL)
            continue;
        if (!chunk_cut(series, &s->blocks)) {
            e = nomem(ei);
            break;
        }
        series_lower_oldest(series, b->min_time_ms);
        series->has_files = 1;
        if (series->newest_ms >= b->max_time_ms)
            continue;
        series->newest_ms = b->max_time_ms;
        series->newest_bits = SERIES_BITS_UNKNOWN;
    }
    mutex_unlock(&s->lock);
    return e;
}
