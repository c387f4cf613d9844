/*
 * A sealed or late file under analysis, slice by slice. Its chunks name slots; the shard's series
 * file says which series those are.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/codec.h"
#include "engine/inspect/inspect_internal.h"

struct sealed_walk {
    struct analysis *a;
    const struct shard_names *names;
    const struct sealed_file *file;
    enum inspect_kind kind;
    double chunk_bytes; /* of headers, directories and checksums, for each chunk */
    uint64_t *times; /* owned: offset of the timestamp column of each chunk of the slice, sorted */
    size_t times_count, times_capacity;
    struct errinfo *ei;
};

static int compare_offsets(const void *a, const void *b)
{
    uint64_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static size_t lower_bound(const struct sealed_walk *w, uint64_t offset)
{
    size_t low = 0, high = w->times_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (w->times[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many chunks of the slice use the column. */
static size_t times_uses(const struct sealed_walk *w, uint64_t offset)
{
    size_t count = lower_bound(w, offset + 1) - lower_bound(w, offset);

    return count > 0 ? count : 1;
}

static enum err group_chunks(struct sealed_walk *w, const struct sealed_slice *slice,
                             uint32_t group, struct sealed_chunk_list *list)
{
    *list = (struct sealed_chunk_list){0};
    arena_reset(&w->a->arena);
    return sealed_group_chunks(w->file, slice, group, &w->a->arena, list, w->ei);
}

/* Collects what is shared in a slice; sums the sizes of columns, each once. */
static enum err slice_measure(struct sealed_walk *w, const struct sealed_slice *slice,
                              uint64_t *columns)
{
    enum err e = ERR_OK;

    w->times_count = 0;
    if (slice->chunk_count > w->times_capacity) {
        uint64_t *grown = reallocarray(w->times, slice->chunk_count, sizeof *grown);

        if (grown == NULL)
            return errinfo_set(w->ei, ERR_NOMEM, 0, "chunks of %s", sealed_file_path(w->file));
        w->times = grown;
        w->times_capacity = slice->chunk_count;
    }
    for (uint32_t g = 0; g < slice->group_count && e == ERR_OK; g++) {
        struct sealed_chunk_list list;

        e = group_chunks(w, slice, g, &list);
        for (size_t i = 0; i < list.count && e == ERR_OK; i++) {
            *columns += list.items[i].value_size;
            if (w->times_count < w->times_capacity)
                w->times[w->times_count++] = list.items[i].times_offset;
        }
    }
    if (w->times_count > 0)
        qsort(w->times, w->times_count, sizeof *w->times, compare_offsets);
    return e;
}

/* The timestamp columns of a slice, each once. */
static enum err slice_times(struct sealed_walk *w, const struct sealed_slice *slice, double *bytes)
{
    enum err e = ERR_OK;

    for (uint32_t g = 0; g < slice->group_count && e == ERR_OK; g++) {
        struct sealed_chunk_list list;

        e = group_chunks(w, slice, g, &list);
        for (size_t i = 0; i < list.count && e == ERR_OK; i++)
            *bytes += (double)list.items[i].times_size /
                      (double)times_uses(w, list.items[i].times_offset);
    }
    return e;
}

static enum err file_measure(struct sealed_walk *w, const struct sealed_opened *o, uint64_t size)
{
    uint64_t columns = 0, chunks = 0;
    double times = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < o->slice_count && e == ERR_OK; i++) {
        if (o->slices[i]->is_damaged)
            continue;
        e = slice_measure(w, o->slices[i], &columns);
        if (e == ERR_OK)
            e = slice_times(w, o->slices[i], &times);
        chunks += o->slices[i]->chunk_count;
        if (e == ERR_OK)
            e = analysis_check_stop(w->a, w->ei);
    }
    if (chunks > 0)
        w->chunk_bytes = ((double)size - (double)columns - times) / (double)chunks;
    return e;
}

/* ---- series ---- */

static enum err codecs_read(struct sealed_walk *w, const struct sealed_chunk_list *list,
                            struct inspect_chunk *out)
{
    struct sealed_raw *raw = ARENA_ARRAY(&w->a->arena, list->count, struct sealed_raw);
    enum err e;

    if (raw == NULL)
        return arena_error(&w->a->arena, w->ei);
    e = sealed_load(w->file, list->items, list->count, &w->a->arena, raw, w->ei);
    for (size_t i = 0; i < list->count && e == ERR_OK; i++) {
        if (list->items[i].column == SEALED_COLUMN_VALUES)
            out[i].codec = codec_values_kind(raw[i].values.data, raw[i].values.size);
    }
    return e;
}

static enum err chunks_describe(struct sealed_walk *w, const struct sealed_chunk_list *list,
                                struct inspect_chunk **out)
{
    struct inspect_chunk *chunks = ARENA_ARRAY(&w->a->arena, list->count, struct inspect_chunk);

    if (chunks == NULL)
        return arena_error(&w->a->arena, w->ei);
    for (size_t i = 0; i < list->count; i++) {
        const struct sealed_chunk *c = &list->items[i];

        chunks[i] = (struct inspect_chunk){.min_time_ms = c->min_time_ms,
                                           .max_time_ms = c->max_time_ms,
                                           .sample_count = c->sample_count,
                                           .is_histograms = c->column == SEALED_COLUMN_HISTOGRAMS,
                                           .bytes = w->chunk_bytes + c->value_size +
                                                    (double)c->times_size /
                                                        (double)times_uses(w, c->times_offset)};
    }
    *out = chunks;
    return w->a->analyzer->with_codecs ? codecs_read(w, list, chunks) : ERR_OK;
}

/* Chunks [first, end) of one slot. */
static enum err slot_give(struct sealed_walk *w, const struct sealed_chunk_list *list,
                          const struct inspect_chunk *chunks, size_t first, size_t end)
{
    const struct sealed_chunk *c = &list->items[first];
    const struct series_image_group *group;
    struct inspect_series series = {
        .kind = w->kind, .chunk_count = end - first, .chunks = chunks + first};
    uint32_t row;

    if (!shard_names_find(w->names, c->slot, c->generation, &group, &row)) {
        w->a->result.unnamed_chunk_count += end - first;
        for (size_t i = first; i < end; i++)
            w->a->result.unnamed_sample_count += list->items[i].sample_count;
        return ERR_OK;
    }
    series.fingerprint = group->fingerprints[row];
    if (!shard_names_labels(w->names, group, row, &w->a->arena, &series.labels))
        return arena_error(&w->a->arena, w->ei);
    return analysis_give(w->a, &series, w->ei);
}

static enum err group_give(struct sealed_walk *w, const struct sealed_slice *slice, uint32_t group)
{
    struct sealed_chunk_list list;
    struct inspect_chunk *chunks = NULL;
    enum err e = group_chunks(w, slice, group, &list);

    if (e == ERR_OK)
        e = chunks_describe(w, &list, &chunks);
    for (size_t i = 0, end; i < list.count && e == ERR_OK; i = end) {
        for (end = i + 1; end < list.count && list.items[end].slot == list.items[i].slot;)
            end++;
        e = slot_give(w, &list, chunks, i, end);
    }
    return e;
}

static enum err slices_give(struct sealed_walk *w, const struct sealed_opened *o)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < o->slice_count && e == ERR_OK; i++) {
        uint64_t ignored = 0;

        if (o->slices[i]->is_damaged)
            return errinfo_set_at(w->ei, ERR_CORRUPT, sealed_file_path(w->file),
                                  o->slices[i]->offset, "the slice is damaged");
        e = slice_measure(w, o->slices[i], &ignored); /* for its timestamp columns */
        for (uint32_t g = 0; g < o->slices[i]->group_count && e == ERR_OK; g++)
            e = group_give(w, o->slices[i], g);
    }
    return e;
}

enum err analyze_sealed(struct analysis *a, const struct manifest_file *file, const char *path,
                        struct errinfo *ei)
{
    const struct sealed_identity id = inspect_sealed_identity(&a->manifest, file);
    struct sealed_walk w = {
        .a = a, .kind = file->kind == MANIFEST_LATE ? INSPECT_LATE : INSPECT_SEALED, .ei = ei};
    struct sealed_opened o = {0};
    enum err e = sealed_open(a->o->fs, path, &id, file->durable_size, &o, ei);

    if (e != ERR_OK)
        return e;
    w.file = o.file;
    if (file->shard < a->manifest.shard_count)
        w.names = &a->shards[file->shard];
    a->result.kinds[w.kind].file_count++;
    a->result.kinds[w.kind].byte_count += o.end;
    e = file_measure(&w, &o, o.end);
    if (e == ERR_OK)
        e = slices_give(&w, &o);
    free(w.times);
    sealed_opened_done(&o);
    return e;
}
