/*
 * A part under analysis. Its index says everything but how values are encoded, which stands in the
 * first byte of each column: then the data pages are read as well, each once.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/codec.h"
#include "engine/inspect/inspect_internal.h"
#include "engine/part/part_store_internal.h"

enum { GROUP_SERIES = 128 };

struct part_walk {
    struct analysis *a;
    struct part *p;
    uint32_t *times_sizes, *times_uses; /* owned; of each timestamp column */
    double series_bytes;                /* of the index, for each series */
    double chunk_bytes;                 /* of headers and checksums, for each chunk */
    struct errinfo *ei;

    /* The group at hand. */
    uint32_t numbers[GROUP_SERIES], count;
    struct labels labels[GROUP_SERIES];
    struct hash128 prints[GROUP_SERIES];
    struct part_chunk_list chunks[GROUP_SERIES];
    struct page *page; /* pinned: that of the chunk before; NULL: none */
    uint64_t page_offset;
};

static enum err group_chunks(struct part_walk *w, uint32_t first)
{
    uint32_t left = w->p->footer.info.series_count - first;

    arena_reset(&w->a->arena);
    w->count = left < GROUP_SERIES ? left : GROUP_SERIES;
    for (uint32_t i = 0; i < w->count; i++)
        w->numbers[i] = first + i;
    return part_chunks(w->p, w->numbers, w->count, INT64_MIN, INT64_MAX, &w->a->arena, w->chunks,
                       w->ei);
}

/* ---- what is shared ---- */

static enum err times_measure(struct part_walk *w, uint64_t *total)
{
    enum err e = ERR_OK;

    *total = 0;
    for (uint32_t i = 0; i < w->p->footer.tables[PART_SECTION_TIMES].count && e == ERR_OK; i++) {
        struct part_times_view view;

        arena_reset(&w->a->arena);
        e = part_times_page_read(w->p, i, &w->a->arena, &view, w->ei);
        if (e != ERR_OK)
            break;
        for (uint32_t k = 0; k < view.count; k++) {
            w->times_sizes[view.first + k] = view.sizes[k];
            *total += view.sizes[k];
        }
        page_release(view.page);
    }
    return e;
}

/* How many chunks use each timestamp column, and the sum of all other columns. */
static enum err uses_count(struct part_walk *w, uint64_t *columns)
{
    uint32_t series_count = w->p->footer.info.series_count;
    enum err e = ERR_OK;

    *columns = 0;
    for (uint32_t first = 0; first < series_count && e == ERR_OK; first += GROUP_SERIES) {
        e = group_chunks(w, first);
        for (uint32_t i = 0; i < w->count && e == ERR_OK; i++) {
            for (size_t k = 0; k < w->chunks[i].count; k++) {
                const struct part_chunk *c = &w->chunks[i].items[k];

                w->times_uses[c->times]++;
                for (uint32_t column = 0; column < c->column_count; column++)
                    *columns += c->column_size[column];
            }
        }
        if (e == ERR_OK)
            e = analysis_check_stop(w->a, w->ei);
    }
    return e;
}

static enum err shares_compute(struct part_walk *w)
{
    const struct part_info *info = &w->p->footer.info;
    uint64_t times, columns;
    enum err e;

    w->times_sizes = calloc(info->times_count + (size_t)1, sizeof *w->times_sizes);
    w->times_uses = calloc(info->times_count + (size_t)1, sizeof *w->times_uses);
    if (w->times_sizes == NULL || w->times_uses == NULL)
        return errinfo_set(w->ei, ERR_NOMEM, 0, "timestamp columns of a part");
    if ((e = times_measure(w, &times)) != ERR_OK || (e = uses_count(w, &columns)) != ERR_OK)
        return e;
    if (info->series_count > 0)
        w->series_bytes = ((double)info->index_size - (double)times) / info->series_count;
    if (info->chunk_count > 0)
        w->chunk_bytes = ((double)info->chunks_size - (double)columns) / (double)info->chunk_count;
    return ERR_OK;
}

/* ---- chunks ---- */

static enum err page_pin(struct part_walk *w, const struct part_chunk *c)
{
    struct part_page_request r = {PART_FILE_CHUNKS, c->page_offset, c->page_size, NULL};
    enum err e;

    if (w->page != NULL && w->page_offset == c->page_offset)
        return ERR_OK;
    page_release(w->page);
    w->page = NULL;
    e = part_pages_get(w->p, &r, 1, w->ei);
    w->page = r.page;
    w->page_offset = c->page_offset;
    return e;
}

static enum err codec_read(struct part_walk *w, const struct part_chunk *c, unsigned *out)
{
    uint32_t at = c->data_offset;
    enum err e = page_pin(w, c);

    for (uint32_t i = 0; i < c->column_count && e == ERR_OK; i++) {
        if (c->column_kind[i] == PART_COLUMN_VALUES) {
            *out = codec_values_kind(w->page->data + at, c->column_size[i]);
            break;
        }
        at += c->column_size[i];
    }
    return e;
}

static enum err chunk_describe(struct part_walk *w, const struct part_chunk *c,
                               struct inspect_chunk *out)
{
    double bytes = w->chunk_bytes + (double)w->times_sizes[c->times] / w->times_uses[c->times];

    for (uint32_t i = 0; i < c->column_count; i++)
        bytes += c->column_size[i];
    *out = (struct inspect_chunk){
        .min_time_ms = c->min_time_ms,
        .max_time_ms = c->max_time_ms,
        .sample_count = c->sample_count,
        .bytes = bytes,
        .is_histograms = memchr(c->column_kind, PART_COLUMN_HISTOGRAMS, c->column_count) != NULL};
    return w->a->analyzer->with_codecs ? codec_read(w, c, &out->codec) : ERR_OK;
}

static enum err series_give(struct part_walk *w, uint32_t i)
{
    const struct part_chunk_list *list = &w->chunks[i];
    struct arena_mark mark = arena_mark_get(&w->a->arena);
    struct inspect_chunk *chunks = ARENA_ARRAY(&w->a->arena, list->count, struct inspect_chunk);
    const struct inspect_series series = {.kind = INSPECT_PART,
                                          .labels = w->labels[i],
                                          .fingerprint = w->prints[i],
                                          .index_bytes = w->series_bytes,
                                          .chunk_count = list->count,
                                          .chunks = chunks};
    enum err e = ERR_OK;

    if (chunks == NULL)
        return arena_error(&w->a->arena, w->ei);
    for (size_t k = 0; k < list->count && e == ERR_OK; k++)
        e = chunk_describe(w, &list->items[k], &chunks[k]);
    if (e == ERR_OK)
        e = analysis_give(w->a, &series, w->ei);
    arena_mark_return(&w->a->arena, mark);
    return e;
}

static enum err walk(struct part_walk *w)
{
    uint32_t series_count = w->p->footer.info.series_count;
    enum err e = shares_compute(w);

    for (uint32_t first = 0; first < series_count && e == ERR_OK; first += GROUP_SERIES) {
        if ((e = group_chunks(w, first)) != ERR_OK ||
            (e = part_labels(w->p, w->numbers, w->count, &w->a->arena, w->labels, w->ei)) !=
                ERR_OK ||
            (e = part_fingerprints(w->p, w->numbers, w->count, w->prints, w->ei)) != ERR_OK)
            break;
        for (uint32_t i = 0; i < w->count && e == ERR_OK; i++)
            e = series_give(w, i);
    }
    return e;
}

enum err analyze_part(struct analysis *a, const struct manifest_part *part, struct errinfo *ei)
{
    struct part_walk *w = calloc(1, sizeof *w);
    enum err e;

    if (w == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "analysis of a part");
    w->a = a;
    w->ei = ei;
    e = part_open(a->parts, MANIFEST_PARTS_DIR, &part->key, &w->p, ei);
    if (e == ERR_OK)
        e = walk(w);
    page_release(w->page);
    part_close(w->p);
    free(w->times_sizes);
    free(w->times_uses);
    free(w);
    return e;
}
