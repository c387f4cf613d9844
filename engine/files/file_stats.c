/*
 * How much of what is on disk, by the manifest.
 */
#include "engine/engine_internal.h"
#include "engine/maintain.h"

static void add_file(const struct manifest_file *f, struct engine_file_stats *out)
{
    switch (f->kind) {
    case MANIFEST_SEALED:
        out->sealed_count++;
        out->sealed_bytes += f->durable_size;
        break;
    case MANIFEST_LATE:
        out->late_count++;
        out->late_bytes += f->durable_size;
        break;
    case MANIFEST_SERIES:
        out->series_bytes += f->durable_size;
        break;
    }
}

void engine_file_stats_get(struct engine *e, struct engine_file_stats *out)
{
    *out = (struct engine_file_stats){.part_min_time_ms = INT64_MAX};
    mutex_lock(&e->manifest_lock);
    for (size_t i = 0; i < e->manifest.file_count; i++)
        add_file(&e->manifest.files[i], out);
    for (size_t i = 0; i < e->manifest.part_count; i++) {
        const struct manifest_part *p = &e->manifest.parts[i];

        out->part_bytes += p->index_size + p->chunks_size;
        if (p->min_time_ms <= p->max_time_ms && p->min_time_ms < out->part_min_time_ms)
            out->part_min_time_ms = p->min_time_ms;
    }
    out->part_count = e->manifest.part_count;
    mutex_unlock(&e->manifest_lock);
}
