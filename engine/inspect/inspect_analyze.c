/*
 * Analysis of a data directory: series files first, since they name what sealed files and the log
 * hold, then file by file. What each series costs is an attribution: what several chunks share
 * (timestamps, directories, checksums) is divided between them, an index between its series.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/inspect/inspect_internal.h"

enum { PARTS_CACHE_BYTES = 16 << 20 };

/* ---- names of a shard ---- */

static enum err shard_names_index(struct shard_names *n, struct errinfo *ei)
{
    const struct series_image *image = &n->image;

    n->groups = calloc(image->slot_end + (size_t)1, sizeof *n->groups);
    n->rows = calloc(image->slot_end + (size_t)1, sizeof *n->rows);
    if (n->groups == NULL || n->rows == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%" PRIu32 " slots", image->slot_end);
    for (size_t i = 0; i < image->group_count; i++) {
        for (uint32_t k = 0; k < image->groups[i].count; k++) {
            n->groups[image->groups[i].slots[k]] = (uint32_t)i + 1;
            n->rows[image->groups[i].slots[k]] = k;
        }
    }
    return ERR_OK;
}

static void shard_names_done(struct shard_names *n)
{
    if (n->is_loaded)
        series_image_done(&n->image);
    free(n->groups);
    free(n->rows);
}

bool shard_names_find(const struct shard_names *n, uint32_t slot, uint16_t generation,
                      const struct series_image_group **group, uint32_t *row)
{
    if (n == NULL || !n->is_loaded || n->groups == NULL || slot >= n->image.slot_end ||
        n->groups[slot] == 0)
        return false;
    *group = &n->image.groups[n->groups[slot] - 1];
    *row = n->rows[slot];
    return (*group)->generations[*row] == generation;
}

bool shard_names_labels(const struct shard_names *n, const struct series_image_group *group,
                        uint32_t row, struct arena *arena, struct labels *out)
{
    const struct series_image_schema *schema = &n->image.schemas[group->schema];
    struct label *items = ARENA_ARRAY(arena, schema->name_count, struct label);

    if (items == NULL)
        return false;
    for (uint32_t k = 0; k < schema->name_count; k++) {
        const struct series_image_name *name = &n->image.names[schema->names[k]];

        items[k] = (struct label){name->text,
                                  name->values[group->values[(size_t)k * group->count + row]].text};
    }
    *out = (struct labels){schema->name_count, items};
    return true;
}

static enum err series_file_take(struct analysis *a, const struct manifest_file *file,
                                 const char *path, struct errinfo *ei)
{
    const struct series_file_identity id = inspect_series_identity(&a->manifest, file);
    struct inspect_kind_total *total = &a->result.kinds[INSPECT_SERIES_FILE];
    struct shard_names *n;
    enum err e;

    if (file->shard >= a->manifest.shard_count || a->shards[file->shard].is_loaded)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: the manifest names it for a shard that %s",
                           path, file->shard >= a->manifest.shard_count ? "is not" : "has one");
    n = &a->shards[file->shard];
    e = series_file_load(a->o->fs, path, &id, file->durable_size, a->o->memory, &n->image, ei);
    if (e != ERR_OK)
        return e;
    n->is_loaded = true;
    total->file_count++;
    total->byte_count += n->image.end;
    return shard_names_index(n, ei);
}

/* ---- handing out ---- */

enum err analysis_check_stop(const struct analysis *a, struct errinfo *ei)
{
    /* relaxed: a flag that orders nothing */
    if (a->o->stop != NULL && atomic_load_explicit(a->o->stop, memory_order_relaxed))
        return errinfo_set(ei, ERR_CANCELED, 0, "analysis was stopped");
    return ERR_OK;
}

enum err analysis_give(struct analysis *a, const struct inspect_series *series, struct errinfo *ei)
{
    struct inspect_kind_total *total = &a->result.kinds[series->kind];
    enum err e = analysis_check_stop(a, ei);

    if (e != ERR_OK)
        return e;
    total->chunk_count += series->chunk_count;
    for (size_t i = 0; i < series->chunk_count; i++)
        total->sample_count += series->chunks[i].sample_count;
    return a->analyzer->series(a->analyzer->ctx, series, ei);
}

/* ---- files ---- */

/* A damaged file is told and left out; any other error ends the analysis. */
static enum err file_outcome(struct analysis *a, const char *path, enum err e,
                             struct errinfo *file_ei, struct errinfo *ei)
{
    const struct inspect_finding finding = {.is_damage = true,
                                            .code = e,
                                            .path = path,
                                            .has_offset = file_ei->has_offset,
                                            .offset = file_ei->offset,
                                            .what = file_ei->message};

    if (e == ERR_OK)
        return e;
    if (e != ERR_CORRUPT && e != ERR_NOT_FOUND && e != ERR_UNSUPPORTED) {
        if (ei != NULL)
            *ei = *file_ei;
        return e;
    }
    a->result.damaged_file_count++;
    a->analyzer->damaged(a->analyzer->ctx, &finding);
    return ERR_OK;
}

static enum err files_analyze(struct analysis *a, bool series_files, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < a->manifest.file_count && e == ERR_OK; i++) {
        const struct manifest_file *f = &a->manifest.files[i];
        char path[MANIFEST_PATH_SIZE];
        struct errinfo file_ei = {0};

        if ((f->kind == MANIFEST_SERIES) != series_files)
            continue;
        manifest_file_path(f, path);
        e = series_files ? series_file_take(a, f, path, &file_ei)
                         : analyze_sealed(a, f, path, &file_ei);
        e = file_outcome(a, path, e, &file_ei, ei);
    }
    return e;
}

static enum err parts_analyze(struct analysis *a, struct errinfo *ei)
{
    struct inspect_kind_total *total = &a->result.kinds[INSPECT_PART];
    enum err e = ERR_OK;

    for (size_t i = 0; i < a->manifest.part_count && e == ERR_OK; i++) {
        const struct manifest_part *p = &a->manifest.parts[i];
        char path[MANIFEST_PATH_SIZE];
        struct errinfo file_ei = {0};

        total->file_count++;
        total->byte_count += p->index_size + p->chunks_size;
        e = analyze_part(a, p, &file_ei);
        inspect_part_bad_path(&p->key, &file_ei, path);
        e = file_outcome(a, path, e, &file_ei, ei);
    }
    return e;
}

static enum err log_analyze(struct analysis *a, struct errinfo *ei)
{
    struct errinfo log_ei = {0};

    return file_outcome(a, "wal", analyze_log(a, &log_ei), &log_ei, ei);
}

static enum err all_analyze(struct analysis *a, struct errinfo *ei)
{
    const struct part_store_options store = {.fs = a->o->fs,
                                             .memory = a->o->memory,
                                             .cache_bytes = PARTS_CACHE_BYTES,
                                             .descriptor_count = 16};
    enum err e = manifest_read(a->o->fs, &a->manifest, ei);

    if (e == ERR_NOT_FOUND)
        return errinfo_set(ei, e, 0, "%s is no data directory: there is no file '%s'",
                           fs_dir(a->o->fs), MANIFEST_PATH);
    if (e != ERR_OK)
        return e;
    a->shards = calloc(a->manifest.shard_count, sizeof *a->shards);
    if (a->shards == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%" PRIu32 " shards", a->manifest.shard_count);
    if ((e = part_store_new(&store, &a->parts, ei)) != ERR_OK ||
        (e = files_analyze(a, true, ei)) != ERR_OK || (e = parts_analyze(a, ei)) != ERR_OK ||
        (e = files_analyze(a, false, ei)) != ERR_OK)
        return e;
    return log_analyze(a, ei);
}

enum err inspect_analyze(const struct inspect_options *o, const struct inspect_analyzer *analyzer,
                         struct inspect_analyze_result *out, struct errinfo *ei)
{
    struct analysis a = {.o = o, .analyzer = analyzer};
    enum err e = fs_lock_shared(o->fs, ei);

    if (e != ERR_OK)
        return e;
    arena_init(&a.arena, o->memory);
    e = all_analyze(&a, ei);
    if (e == ERR_OK)
        *out = a.result;
    arena_done(&a.arena);
    part_store_free(a.parts);
    for (uint32_t i = 0; a.shards != NULL && i < a.manifest.shard_count; i++)
        shard_names_done(&a.shards[i]);
    free(a.shards);
    manifest_done(&a.manifest);
    fs_unlock(o->fs);
    return e;
}
