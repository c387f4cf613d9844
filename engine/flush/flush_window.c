/*
 * One part out of sealed and late files, from beginning to end. flush_window_internal.h says how
 * the files are walked.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/flush/flush_window_internal.h"

enum { PASS_BYTES_DEFAULT = 48 << 20 };

/* ---- before ---- */

/* Tombstones that may hit a view in this window. */
static enum err tombstones_collect(struct flush *w, struct errinfo *ei)
{
    const struct tombstone_list *list = w->f->tombstones;

    if (list == NULL || w->f->view_count == 0)
        return ERR_OK;
    w->tombstones = ARENA_ARRAY(&w->slots_arena, list->count, const struct tombstone *);
    w->tombstone_hits = ARENA_ARRAY(&w->slots_arena, list->count, bool);
    if (w->tombstones == NULL || w->tombstone_hits == NULL)
        return arena_error(&w->slots_arena, ei);
    for (size_t i = 0; i < list->count; i++) {
        const struct tombstone *t = &list->items[i];

        if (t->generation > w->f->views[0].source->generation && t->min_time_ms <= w->last_ms &&
            t->max_time_ms >= w->first_ms)
            w->tombstones[w->tombstone_count++] = t;
    }
    return ERR_OK;
}

/* Lists the slots that have chunks, in label order, and gives them their ranks. */
static enum err order_make(struct flush *w, struct errinfo *ei)
{
    uint32_t slot_count = w->slot_end - w->slot_first;
    enum err e;

    for (uint32_t i = 0; i < slot_count; i++)
        w->order_count += w->slots[i].chunk_count > 0;
    w->order = ARENA_ARRAY(&w->slots_arena, w->order_count, uint32_t);
    if (w->order == NULL)
        return arena_error(&w->slots_arena, ei);
    w->order_count = 0;
    for (uint32_t i = 0; i < slot_count; i++) {
        if (w->slots[i].chunk_count > 0)
            w->order[w->order_count++] = w->slot_first + i;
    }
    e = flush_order_slots(w->f->index, w->order, w->order_count, w->f->memory, w->f->control, ei);
    for (uint32_t i = 0; i < w->order_count; i++)
        w->slots[w->order[i] - w->slot_first].rank = i;
    return e;
}

static enum err prepare(struct flush *w, struct errinfo *ei)
{
    const struct part_writer_options wo = {.dir = w->f->dir, .key = w->f->key};
    enum err e;

    w->target_samples = part_chunk_target(w->f->key.window_size_ms);
    w->pending_t_ms = ARENA_ARRAY(&w->slots_arena, 2 * (size_t)w->target_samples, int64_t);
    w->pending_value = ARENA_ARRAY(&w->slots_arena, 2 * (size_t)w->target_samples, double);
    w->decoded_t_ms = ARENA_ARRAY(&w->slots_arena, CODEC_SAMPLES_MAX, int64_t);
    w->decoded_value = ARENA_ARRAY(&w->slots_arena, CODEC_SAMPLES_MAX, double);
    if (w->pending_t_ms == NULL || w->pending_value == NULL || w->decoded_t_ms == NULL ||
        w->decoded_value == NULL)
        return arena_error(&w->slots_arena, ei);
    if ((e = tombstones_collect(w, ei)) != ERR_OK || (e = flush_survey(w, ei)) != ERR_OK ||
        w->slots == NULL || (e = order_make(w, ei)) != ERR_OK || w->order_count == 0)
        return e;
    return part_writer_new(w->f->store, &wo, &w->writer, ei);
}

/* ---- series ---- */

/* Series [first, end) of the pass. */
static enum err batch_write(struct flush *w, uint32_t first, uint32_t end, struct errinfo *ei)
{
    struct flush_series series[FLUSH_BATCH_SERIES];
    struct labels labels[FLUSH_BATCH_SERIES];
    const uint32_t *slots = w->order + first;
    enum err e;

    arena_reset(&w->series_arena);
    e = index_labels(w->f->index, slots, end - first, &w->series_arena, labels, ei);
    if (e != ERR_OK)
        return e;
    w->f->lookup(w->f->ctx, slots, end - first, series);
    for (uint32_t i = first; i < end && e == ERR_OK; i++) {
        const struct labels *l = &labels[i - first];

        e = part_writer_series(w->writer, l, series[i - first].fingerprint, ei);
        if (e == ERR_OK)
            e = flush_series_write(w, i, l, ei);
    }
    return e == ERR_OK ? maintain_tick(w->f->control, "stopped", ei) : e;
}

/* As many series as fit, one at least. */
static void pass_plan(struct flush *w)
{
    uint64_t limit = w->f->pass_bytes != 0 ? w->f->pass_bytes : PASS_BYTES_DEFAULT, bytes = 0;

    w->pass_first = w->pass_end;
    while (w->pass_end < w->order_count) {
        bytes += w->slots[w->order[w->pass_end] - w->slot_first].bytes;
        if (bytes > limit && w->pass_end > w->pass_first)
            break;
        w->pass_end++;
    }
}

static enum err passes_run(struct flush *w, struct errinfo *ei)
{
    enum err e = ERR_OK;

    while (w->pass_end < w->order_count && e == ERR_OK) {
        pass_plan(w);
        e = flush_gather(w, ei);
        for (uint32_t i = w->pass_first, end; i < w->pass_end && e == ERR_OK; i = end) {
            uint32_t left = w->pass_end - i;

            end = i + (left < FLUSH_BATCH_SERIES ? left : FLUSH_BATCH_SERIES);
            e = batch_write(w, i, end, ei);
        }
    }
    return e;
}

/* ---- the whole ---- */

static uint64_t highest_sequence(const struct flush_window *f)
{
    uint64_t highest = 0;

    for (size_t v = 0; v < f->view_count; v++) {
        for (size_t s = 0; s < f->views[v].slice_count; s++) {
            uint64_t own = f->views[v].slices[s]->sequence;

            highest = own > highest ? own : highest;
        }
    }
    return highest;
}

static void flush_done(struct flush *w)
{
    part_writer_free(w->writer);
    part_array_done(&w->times, w->f->memory);
    histogram_chunk_builder_done(&w->pending_histograms);
    arena_done(&w->histogram_arena);
    arena_done(&w->cluster_arena);
    arena_done(&w->series_arena);
    arena_done(&w->group_arena);
    arena_done(&w->pass_arena);
    arena_done(&w->slots_arena);
    free(w);
}

enum err flush_window_write(const struct flush_window *f, struct flush_window_result *out,
                            struct errinfo *ei)
{
    struct flush_window_result result = {.is_written = false};
    struct flush *w = calloc(1, sizeof *w);
    enum err e;

    if (w == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "flush");
    w->f = f;
    w->first_ms = f->key.window_start_ms;
    w->last_ms = (int64_t)((uint64_t)w->first_ms + (f->key.window_size_ms - 1));
    arena_init(&w->slots_arena, f->memory);
    arena_init(&w->pass_arena, f->memory);
    /* Every two hours, in a thread that does not mind page faults. */
    w->slots_arena.gives_back = w->pass_arena.gives_back = true;
    arena_init(&w->group_arena, f->memory);
    arena_init(&w->series_arena, f->memory);
    arena_init(&w->cluster_arena, f->memory);
    arena_init(&w->histogram_arena, f->memory);
    histogram_chunk_builder_init(&w->pending_histograms, f->memory);
    e = prepare(w, ei);
    if (e == ERR_OK && w->writer != NULL)
        e = passes_run(w, ei);
    result.is_written = w->writer != NULL && part_writer_sample_count(w->writer) > 0;
    if (e == ERR_OK && result.is_written)
        e = part_writer_finish(w->writer, highest_sequence(f), &result.info, ei);
    if (e == ERR_OK)
        *out = result;
    flush_done(w);
    return e;
}
