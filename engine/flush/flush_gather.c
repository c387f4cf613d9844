/*
 * Walking sealed files for a flush: the survey, and the chunks of a pass.
 */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "engine/flush/flush_window_internal.h"
#include "engine/memtable/series_internal.h"

/* ---- the walk ---- */

/* Gets the chunks of a group that lie in the window, ascending by slot. */
typedef enum err group_visitor(struct flush *w, uint32_t view, struct sealed_chunk *chunks,
                               size_t count, struct errinfo *ei);

static bool overlaps(const struct flush *w, int64_t min_time_ms, int64_t max_time_ms)
{
    return max_time_ms >= w->first_ms && min_time_ms <= w->last_ms;
}

static enum err group_walk(struct flush *w, uint32_t view, const struct sealed_slice *slice,
                           uint32_t group, group_visitor *visit, struct errinfo *ei)
{
    const struct sealed_file *file = w->f->views[view].source->file;
    struct sealed_chunk_list list = {0};
    size_t kept = 0;
    enum err e;

    arena_reset(&w->group_arena);
    e = sealed_group_chunks(file, slice, group, &w->group_arena, &list, ei);
    for (size_t i = 0; i < list.count && e == ERR_OK; i++) {
        if (overlaps(w, list.items[i].min_time_ms, list.items[i].max_time_ms))
            list.items[kept++] = list.items[i];
    }
    return e == ERR_OK ? visit(w, view, list.items, kept, ei) : e;
}

static enum err walk(struct flush *w, group_visitor *visit, struct errinfo *ei)
{
    for (uint32_t v = 0; v < w->f->view_count; v++) {
        const struct sealed_view *view = &w->f->views[v];

        for (size_t s = 0; s < view->slice_count; s++) {
            const struct sealed_slice *slice = view->slices[s];
            enum err e = maintain_tick(w->f->control, "stopped", ei);

            if (!overlaps(w, slice->min_time_ms, slice->max_time_ms))
                continue;
            for (uint32_t g = 0; g < slice->group_count && e == ERR_OK; g++) {
                if (overlaps(w, slice->groups[g].min_time_ms, slice->groups[g].max_time_ms))
                    e = group_walk(w, v, slice, g, visit, ei);
            }
            if (e != ERR_OK)
                return e;
        }
    }
    return ERR_OK;
}

/* ---- the survey ---- */

/* Calls `visit` for each group in the window, without reading anything. */
static enum err groups_each(struct flush *w,
                            enum err (*visit)(struct flush *w, const struct sealed_view *view,
                                              const struct sealed_slice *slice,
                                              const struct sealed_group *g, struct errinfo *ei),
                            struct errinfo *ei)
{
    for (uint32_t v = 0; v < w->f->view_count; v++) {
        const struct sealed_view *view = &w->f->views[v];

        for (size_t s = 0; s < view->slice_count; s++) {
            const struct sealed_slice *slice = view->slices[s];

            for (uint32_t g = 0; g < slice->group_count; g++) {
                const struct sealed_group *group = &slice->groups[g];
                enum err e = ERR_OK;

                if (overlaps(w, group->min_time_ms, group->max_time_ms))
                    e = visit(w, view, slice, group, ei);
                if (e != ERR_OK)
                    return e;
            }
        }
    }
    return ERR_OK;
}

static enum err range_widen(struct flush *w, const struct sealed_view *view,
                            const struct sealed_slice *slice, const struct sealed_group *g,
                            struct errinfo *ei)
{
    if (g->last_slot >= SERIES_SLOT_MAX)
        return errinfo_set_at(ei, ERR_CORRUPT, sealed_file_path(view->source->file), slice->offset,
                              "slot %" PRIu32, g->last_slot);
    if (g->first_slot < w->slot_first)
        w->slot_first = g->first_slot;
    if (g->last_slot >= w->slot_end)
        w->slot_end = g->last_slot + 1;
    return ERR_OK;
}

static void slots_look_up(struct flush *w, uint32_t first, uint32_t end)
{
    uint32_t slots[FLUSH_LOOKUP_SLOTS];
    struct flush_series found[FLUSH_LOOKUP_SLOTS];

    ASSERT(first < end);
    for (uint32_t slot = first; slot < end; slot++)
        slots[slot - first] = slot;
    w->f->lookup(w->f->ctx, slots, end - first, found);
    for (uint32_t slot = first; slot < end; slot++) {
        struct flush_slot *s = &w->slots[slot - w->slot_first];

        s->generation = found[slot - first].generation;
        s->is_wanted = found[slot - first].is_wanted;
    }
}

/* Looks up the slots of a group, block by block; a block that was looked up has a rank there. */
static enum err group_look_up(struct flush *w, const struct sealed_view *view,
                              const struct sealed_slice *slice, const struct sealed_group *g,
                              struct errinfo *ei)
{
    uint32_t first = g->first_slot - w->slot_first, last = g->last_slot - w->slot_first;

    (void)view;
    (void)slice;
    (void)ei;
    for (uint32_t at = first - first % FLUSH_LOOKUP_SLOTS; at <= last; at += FLUSH_LOOKUP_SLOTS) {
        uint32_t left = w->slot_end - w->slot_first - at;

        if (w->slots[at].rank != 0)
            continue;
        slots_look_up(w, w->slot_first + at,
                      w->slot_first + at + (left < FLUSH_LOOKUP_SLOTS ? left : FLUSH_LOOKUP_SLOTS));
        w->slots[at].rank = 1;
    }
    return ERR_OK;
}

static struct flush_slot *wanted_slot(struct flush *w, const struct sealed_chunk *c)
{
    struct flush_slot *s = &w->slots[c->slot - w->slot_first];

    return s->is_wanted && s->generation == c->generation ? s : NULL;
}

/* A shared timestamp column is counted where its run begins. */
static enum err chunks_count(struct flush *w, uint32_t view, struct sealed_chunk *chunks,
                             size_t count, struct errinfo *ei)
{
    uint64_t times_offset = 0;

    (void)view;
    for (size_t i = 0; i < count; i++) {
        const struct sealed_chunk *c = &chunks[i];
        struct flush_slot *s = wanted_slot(w, c);

        if (s == NULL)
            continue;
        if (s->chunk_count == UINT32_MAX)
            return errinfo_set(ei, ERR_LIMIT, 0, "a series with 2^32 chunks");
        s->chunk_count++;
        s->bytes += sizeof(struct flush_chunk) + c->value_size;
        if (c->times_offset != times_offset)
            s->bytes += sizeof(struct flush_times) + c->times_size;
        times_offset = c->times_offset;
    }
    return ERR_OK;
}

enum err flush_survey(struct flush *w, struct errinfo *ei)
{
    enum err e;

    w->slot_first = UINT32_MAX;
    w->slot_end = 0;
    e = groups_each(w, range_widen, ei);
    if (e != ERR_OK || w->slot_first >= w->slot_end)
        return e;
    w->slots = arena_calloc(&w->slots_arena, w->slot_end - w->slot_first, sizeof *w->slots);
    if (w->slots == NULL)
        return arena_error(&w->slots_arena, ei);
    e = groups_each(w, group_look_up, ei);
    return e == ERR_OK ? walk(w, chunks_count, ei) : e;
}

/* ---- a pass ---- */

static enum err times_add(struct flush *w, uint32_t view, const struct sealed_chunk *c,
                          struct bytes column, uint32_t *out, struct errinfo *ei)
{
    struct flush_times_memo *memo =
        &w->memo[(c->times_offset * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (FLUSH_TIMES_CACHE - 1)];
    struct flush_times *t;
    uint8_t *copy;
    enum err e;

    if (memo->times != 0 && memo->offset == c->times_offset && memo->view == view) {
        *out = memo->times - 1;
        return ERR_OK;
    }
    e = part_array_reserve(&w->times, w->f->memory, sizeof *t, 1, ei);
    if (e != ERR_OK)
        return e;
    copy = arena_alloc(&w->pass_arena, column.size);
    if (copy == NULL)
        return arena_error(&w->pass_arena, ei);
    memcpy(copy, column.data, column.size);
    t = (struct flush_times *)w->times.data + w->times.count;
    *t = (struct flush_times){.min_time_ms = c->min_time_ms,
                              .max_time_ms = c->max_time_ms,
                              .data = copy,
                              .offset = c->times_offset,
                              .size = (uint32_t)column.size,
                              .sample_count = c->sample_count};
    *out = (uint32_t)w->times.count++;
    *memo = (struct flush_times_memo){c->times_offset, view, *out + 1};
    return ERR_OK;
}

static enum err chunk_keep(struct flush *w, uint32_t view, const struct sealed_chunk *c,
                           const struct sealed_raw *raw, struct errinfo *ei)
{
    uint32_t series = w->slots[c->slot - w->slot_first].rank - w->pass_first;
    uint32_t at = w->starts[series] + w->fills[series];
    struct flush_chunk kept = {.place = at,
                               .view = view,
                               .value_size = (uint32_t)raw->values.size & INT32_MAX,
                               .is_histograms = c->column == SEALED_COLUMN_HISTOGRAMS,
                               .page_offset = c->page_offset};
    uint8_t *copy;
    enum err e;

    if (at == w->starts[series + 1])
        return errinfo_set_at(ei, ERR_CORRUPT, sealed_file_path(w->f->views[view].source->file),
                              c->page_offset, "was not there before");
    copy = arena_alloc(&w->pass_arena, raw->values.size);
    if (copy == NULL)
        return arena_error(&w->pass_arena, ei);
    memcpy(copy, raw->values.data, raw->values.size);
    kept.values = copy;
    e = times_add(w, view, c, raw->times, &kept.times, ei);
    if (e != ERR_OK)
        return e;
    w->chunks[at] = kept;
    w->fills[series]++;
    return ERR_OK;
}

static bool in_pass(struct flush *w, const struct sealed_chunk *c)
{
    const struct flush_slot *s = wanted_slot(w, c);

    return s != NULL && s->rank >= w->pass_first && s->rank < w->pass_end;
}

static enum err chunks_load(struct flush *w, uint32_t view, struct sealed_chunk *chunks,
                            size_t count, struct errinfo *ei)
{
    const struct sealed_file *file = w->f->views[view].source->file;
    struct sealed_raw *raws;
    size_t kept = 0;
    enum err e;

    for (size_t i = 0; i < count; i++) {
        if (!in_pass(w, &chunks[i]))
            continue;
        if (chunks[i].column != SEALED_COLUMN_VALUES &&
            chunks[i].column != SEALED_COLUMN_HISTOGRAMS)
            return errinfo_set(ei, ERR_UNSUPPORTED, 0,
                               "%s: offset %" PRIu64 ": a column of kind %u",
                               sealed_file_path(file), chunks[i].page_offset, chunks[i].column);
        chunks[kept++] = chunks[i];
    }
    raws = ARENA_ARRAY(&w->group_arena, kept, struct sealed_raw);
    if (raws == NULL)
        return arena_error(&w->group_arena, ei);
    e = sealed_load(file, chunks, kept, &w->group_arena, raws, ei);
    for (size_t i = 0; i < kept && e == ERR_OK; i++)
        e = chunk_keep(w, view, &chunks[i], &raws[i], ei);
    return e;
}

enum err flush_gather(struct flush *w, struct errinfo *ei)
{
    uint32_t count = w->pass_end - w->pass_first;
    uint64_t chunks = 0;

    arena_reset(&w->pass_arena);
    w->times.count = 0;
    memset(w->memo, 0, sizeof w->memo);
    w->starts = ARENA_ARRAY(&w->pass_arena, (size_t)count + 1, uint32_t);
    w->fills = arena_calloc(&w->pass_arena, count, sizeof *w->fills);
    if (w->starts == NULL || w->fills == NULL)
        return arena_error(&w->pass_arena, ei);
    for (uint32_t i = 0; i <= count; i++) {
        if (chunks > UINT32_MAX)
            return errinfo_set(ei, ERR_LIMIT, 0, "2^32 chunks of one series");
        w->starts[i] = (uint32_t)chunks;
        if (i < count)
            chunks += w->slots[w->order[w->pass_first + i] - w->slot_first].chunk_count;
    }
    w->chunks = ARENA_ARRAY(&w->pass_arena, chunks, struct flush_chunk);
    if (w->chunks == NULL)
        return arena_error(&w->pass_arena, ei);
    return walk(w, chunks_load, ei);
}
