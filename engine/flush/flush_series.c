/*
 * One series of a flush: its chunks, decoded, merged where they overlap, and cut into the chunks of
 * a part, each of floats or of histograms.
 *
 * Chunks are taken by time. One that overlaps no other is decoded and goes out; those that overlap
 * are merged in the order of generations, so that of a repeated sample the first acknowledged
 * stays. What tombstones hit is dropped before a chunk meets another one.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/flush/flush_window_internal.h"
#include "engine/read/column_merge_internal.h"

/* ---- decoding ---- */

static const struct flush_times *chunk_times(const struct flush *w, const struct flush_chunk *c)
{
    return (const struct flush_times *)w->times.data + c->times;
}

static enum err corrupt(const struct flush *w, const struct flush_chunk *c, uint64_t offset,
                        const char *what, struct errinfo *ei)
{
    return errinfo_set_at(ei, ERR_CORRUPT, sealed_file_path(w->f->views[c->view].source->file),
                          offset, "%s", what);
}

static bool times_are_right(const struct flush_times *t, const int64_t *t_ms)
{
    bool ascend = true;

    for (uint32_t i = 1; i < t->sample_count; i++)
        ascend &= t_ms[i - 1] < t_ms[i];
    return ascend && t_ms[0] == t->min_time_ms && t_ms[t->sample_count - 1] == t->max_time_ms;
}

static size_t count_up_to(const struct column *c, int64_t limit_ms)
{
    if (c->count == 0 || c->t_ms[c->count - 1] <= limit_ms)
        return c->count;
    return column_lower_bound(c, limit_ms + 1);
}

/* The arrays of a chunk at hand. */
struct decoded {
    int64_t *t_ms;
    double *value;
    struct histogram **histogram; /* NULL: floats */
    size_t count;
};

/* Takes the samples from min_ms to max_ms out. */
static void samples_drop(struct decoded *d, int64_t min_ms, int64_t max_ms)
{
    const struct column c = {.count = d->count, .t_ms = d->t_ms, .value = d->value};
    size_t first = column_lower_bound(&c, min_ms), end = count_up_to(&c, max_ms);
    size_t behind = d->count - end;

    if (first >= end)
        return;
    memmove(d->t_ms + first, d->t_ms + end, behind * sizeof *d->t_ms);
    memmove(d->value + first, d->value + end, behind * sizeof *d->value);
    d->count -= end - first;
    if (d->histogram == NULL || behind == 0)
        return;
    memmove(d->histogram + first, d->histogram + end, behind * sizeof(struct histogram *));
    d->histogram[first]->hint = histogram_hint_at_border(d->histogram[first]->hint);
}

/* Decodes the values of a chunk into `d`, whose count is set. */
static enum err values_decode(struct flush *w, const struct flush_chunk *c, struct decoded *d,
                              struct errinfo *ei)
{
    const struct bytes column = {c->values, c->value_size};
    struct histogram *h = NULL;
    enum err e;

    if (!c->is_histograms)
        return codec_values_decode(column.data, column.size, d->count, d->value)
                   ? ERR_OK
                   : corrupt(w, c, c->page_offset, "a value column does not decode", ei);
    e = histogram_chunk_decode(column, d->count, &w->histogram_arena, &h, ei);
    if (e == ERR_CORRUPT)
        return corrupt(w, c, c->page_offset, "a column of histograms does not decode", ei);
    if (e != ERR_OK)
        return e;
    d->histogram = arena_alloc_array(&w->histogram_arena, d->count, sizeof(struct histogram *));
    if (d->histogram == NULL)
        return arena_error(&w->histogram_arena, ei);
    for (size_t i = 0; i < d->count; i++) {
        d->histogram[i] = &h[i];
        d->value[i] = h[i].sum;
    }
    return ERR_OK;
}

/* What is left of a chunk within the window and outside of all tombstones, in arrays with room for
 * all of it. */
static enum err decode(struct flush *w, const struct flush_chunk *c, int64_t *t_ms, double *value,
                       struct column *out, struct errinfo *ei)
{
    const struct flush_times *t = chunk_times(w, c);
    uint64_t generation = w->f->views[c->view].source->generation;
    struct decoded d = {.t_ms = t_ms, .value = value, .count = t->sample_count};
    enum err e;

    if (!codec_times_decode(t->data, t->size, d.count, t_ms) || !times_are_right(t, t_ms))
        return corrupt(w, c, t->offset, "a timestamp column does not decode", ei);
    e = values_decode(w, c, &d, ei);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < w->tombstone_count; i++) {
        const struct tombstone *dead = w->tombstones[i];

        if (w->tombstone_hits[i] && generation < dead->generation)
            samples_drop(&d, dead->min_time_ms, dead->max_time_ms);
    }
    *out = (struct column){.count = d.count,
                           .t_ms = t_ms,
                           .value = value,
                           .histogram = (const struct histogram *const *)d.histogram};
    column_trim(out, w->first_ms, w->last_ms);
    return ERR_OK;
}

/* ---- out ---- */

static enum err pending_write(struct flush *w, struct errinfo *ei)
{
    size_t count = w->pending_count;
    enum err e;

    w->pending_count = 0;
    if (count == 0)
        return ERR_OK;
    if (w->pending_histograms.count == 0)
        return part_writer_samples(w->writer, w->pending_t_ms, w->pending_value, count, ei);
    e = part_writer_histograms(w->writer, w->pending_t_ms, w->pending_histograms.items, count, ei);
    histogram_chunk_builder_reset(&w->pending_histograms);
    return e;
}

static enum err floats_put(struct flush *w, struct column c, struct errinfo *ei)
{
    enum err e = w->pending_histograms.count > 0 ? pending_write(w, ei) : ERR_OK;

    while (c.count > 0 && e == ERR_OK) {
        size_t room = 2 * (size_t)w->target_samples - w->pending_count, n;

        if (w->pending_count == 0)
            w->cut_end_ms = part_cuts_end(&w->cuts, c.t_ms[0]);
        n = count_up_to(&c, w->cut_end_ms);
        n = n < room ? n : room;
        memcpy(w->pending_t_ms + w->pending_count, c.t_ms, n * sizeof *c.t_ms);
        memcpy(w->pending_value + w->pending_count, c.value, n * sizeof *c.value);
        w->pending_count += (uint32_t)n;
        c = (struct column){.count = c.count - n, .t_ms = c.t_ms + n, .value = c.value + n};
        if (n == room || c.count > 0)
            e = pending_write(w, ei);
    }
    return e;
}

static enum err histogram_put(struct flush *w, int64_t t_ms, const struct histogram *h,
                              bool is_border, struct errinfo *ei)
{
    bool is_full = w->pending_histograms.count == 0 || t_ms > w->cut_end_ms ||
                   w->pending_count == 2 * w->target_samples ||
                   histogram_chunk_builder_is_full(&w->pending_histograms);
    enum err e = is_full ? pending_write(w, ei) : ERR_OK;

    if (e == ERR_OK)
        e = histogram_chunk_builder_add(&w->pending_histograms, h, is_border, ei);
    if (e != ERR_OK)
        return e;
    if (is_full)
        w->cut_end_ms = part_cuts_end(&w->cuts, t_ms);
    w->pending_t_ms[w->pending_count++] = t_ms;
    return ERR_OK;
}

/* What comes from one source or has been merged: only its first sample may stand behind one of
 * another source without saying so. */
static enum err samples_put(struct flush *w, struct column c, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (c.histogram == NULL)
        return floats_put(w, c, ei);
    for (size_t i = 0, end; i < c.count && e == ERR_OK; i = end) {
        struct column floats;

        for (end = i; end < c.count && c.histogram[end] == NULL;)
            end++;
        floats = column_slice(&c, i, end - i);
        floats.histogram = NULL;
        if (end > i)
            e = floats_put(w, floats, ei);
        for (; end < c.count && c.histogram[end] != NULL && e == ERR_OK; end++)
            e = histogram_put(w, c.t_ms[end], c.histogram[end], end == 0, ei);
    }
    return e;
}

/* ---- chunks that overlap ---- */

static int compare_places(const void *a, const void *b)
{
    uint32_t x = ((const struct flush_chunk *)a)->place, y = ((const struct flush_chunk *)b)->place;

    return x < y ? -1 : x > y;
}

static enum err cluster_merge(struct flush *w, struct flush_chunk *chunks, size_t count,
                              struct column *out, struct errinfo *ei)
{
    struct column_merger merger = {.arena = &w->cluster_arena, .scratch = &w->cluster_arena};
    struct column_piece *pieces = ARENA_ARRAY(&w->cluster_arena, count, struct column_piece);
    size_t kept = 0;

    if (pieces == NULL)
        return arena_error(&w->cluster_arena, ei);
    qsort(chunks, count, sizeof *chunks, compare_places);
    for (size_t i = 0; i < count; i++) {
        uint32_t samples = chunk_times(w, &chunks[i])->sample_count;
        int64_t *t_ms = ARENA_ARRAY(&w->cluster_arena, samples, int64_t);
        double *value = ARENA_ARRAY(&w->cluster_arena, samples, double);
        enum err e;

        if (t_ms == NULL || value == NULL)
            return arena_error(&w->cluster_arena, ei);
        e = decode(w, &chunks[i], t_ms, value, &pieces[kept].column, ei);
        if (e != ERR_OK)
            return e;
        pieces[kept].is_scratch = false;
        kept += pieces[kept].column.count > 0;
    }
    *out = (struct column){0};
    return kept == 0 ? ERR_OK : column_merge(&merger, pieces, kept, out, ei);
}

static enum err cluster_put(struct flush *w, struct flush_chunk *chunks, size_t count,
                            struct errinfo *ei)
{
    struct column c = {.count = 0};
    enum err e;

    arena_reset(&w->histogram_arena);
    if (count == 1) {
        e = decode(w, chunks, w->decoded_t_ms, w->decoded_value, &c, ei);
    } else {
        arena_reset(&w->cluster_arena);
        e = cluster_merge(w, chunks, count, &c, ei);
    }
    return e == ERR_OK ? samples_put(w, c, ei) : e;
}

/* ---- the series ---- */

static int compare_times(const void *a, const void *b, void *ctx)
{
    const struct flush *w = ctx;
    int64_t x = chunk_times(w, a)->min_time_ms, y = chunk_times(w, b)->min_time_ms;

    if (x != y)
        return x < y ? -1 : 1;
    return compare_places(a, b);
}

/* Chunks come by generation, as a rule by time as well. */
static void chunks_sort(struct flush *w, struct flush_chunk *chunks, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (compare_times(&chunks[i - 1], &chunks[i], w) > 0) {
            qsort_r(chunks, count, sizeof *chunks, compare_times, w);
            return;
        }
    }
}

static void cuts_choose(struct flush *w, const struct flush_chunk *chunks, size_t count)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    uint64_t samples = 0;

    for (size_t i = 0; i < count; i++) {
        const struct flush_times *t = chunk_times(w, &chunks[i]);

        samples += t->sample_count;
        first = t->min_time_ms < first ? t->min_time_ms : first;
        last = t->max_time_ms > last ? t->max_time_ms : last;
    }
    w->cuts = part_cuts_choose(w->first_ms, w->last_ms, w->target_samples, samples, first, last);
}

enum err flush_series_write(struct flush *w, uint32_t rank, const struct labels *labels,
                            struct errinfo *ei)
{
    uint32_t series = rank - w->pass_first, count = w->fills[series];
    struct flush_chunk *chunks = w->chunks + w->starts[series];
    enum err e = ERR_OK;

    for (size_t i = 0; i < w->tombstone_count; i++) {
        if (!tombstone_matches(w->tombstones[i], labels, &w->series_arena, &w->tombstone_hits[i]))
            return arena_error(&w->series_arena, ei);
    }
    chunks_sort(w, chunks, count);
    cuts_choose(w, chunks, count);
    for (uint32_t i = 0, end; i < count && e == ERR_OK; i = end) {
        int64_t last = chunk_times(w, &chunks[i])->max_time_ms;

        for (end = i + 1; end < count && chunk_times(w, &chunks[end])->min_time_ms <= last; end++) {
            int64_t own = chunk_times(w, &chunks[end])->max_time_ms;

            last = own > last ? own : last;
        }
        e = cluster_put(w, chunks + i, end - i, ei);
    }
    return e == ERR_OK ? pending_write(w, ei) : e;
}
