/*
 * Late files into parts, one a window. What a late file holds is of any time: where its windows are
 * is read from the directories first.
 */
#include <stdlib.h>

#include "engine/flush/flush_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/part/part_writer_internal.h"
#include "engine/seal/seal_internal.h"

/* Windows as they are met, later sorted and distinct. */
struct window_list {
    struct budget *memory;
    struct part_array items; /* uint32_t */
};

static uint32_t *windows_of(const struct window_list *l)
{
    return l->items.data;
}

static enum err window_add(struct window_list *l, uint32_t window, struct errinfo *ei)
{
    enum err e;

    if (l->items.count > 0 && windows_of(l)[l->items.count - 1] == window)
        return ERR_OK;
    e = part_array_reserve(&l->items, l->memory, sizeof window, 1, ei);
    if (e == ERR_OK)
        windows_of(l)[l->items.count++] = window;
    return e;
}

/* A chunk that lies across borders: its samples tell. */
static enum err wide_chunk_add(struct window_list *l, const struct sealed_file *file,
                               const struct sealed_chunk *chunk, struct arena *arena,
                               struct errinfo *ei)
{
    struct column c;
    enum err e = sealed_read(file, chunk, 1, arena, arena, &c, ei);

    for (size_t i = 0; e == ERR_OK && i < c.count; i++)
        e = window_add(l, chunk_window(c.t_ms[i]), ei);
    return e;
}

static enum err group_windows(struct window_list *l, const struct sealed_file *file,
                              const struct sealed_slice *slice, uint32_t group, struct arena *arena,
                              struct errinfo *ei)
{
    struct sealed_chunk_list list = {0};
    enum err e;

    arena_reset(arena);
    e = sealed_group_chunks(file, slice, group, arena, &list, ei);
    for (size_t i = 0; i < list.count && e == ERR_OK; i++) {
        uint32_t window = chunk_window(list.items[i].min_time_ms);

        e = window == chunk_window(list.items[i].max_time_ms)
                ? window_add(l, window, ei)
                : wide_chunk_add(l, file, &list.items[i], arena, ei);
    }
    return e;
}

static int compare_windows(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void windows_settle(struct window_list *l)
{
    uint32_t *w = windows_of(l);
    size_t kept = 0;

    if (l->items.count == 0)
        return;
    qsort(w, l->items.count, sizeof *w, compare_windows);
    for (size_t i = 1; i < l->items.count; i++) {
        if (w[i] != w[kept])
            w[++kept] = w[i];
    }
    l->items.count = kept + 1;
}

static enum err windows_find(struct window_list *l, const struct sealed_view *view,
                             const struct maintain_control *control, struct errinfo *ei)
{
    struct arena arena;
    enum err e = ERR_OK;

    arena_init(&arena, l->memory);
    for (size_t s = 0; s < view->slice_count && e == ERR_OK; s++) {
        for (uint32_t g = 0; g < view->slices[s]->group_count && e == ERR_OK; g++)
            e = group_windows(l, view->source->file, view->slices[s], g, &arena, ei);
        if (e == ERR_OK)
            e = maintain_tick(control, "stopped", ei);
    }
    arena_done(&arena);
    windows_settle(l);
    return e;
}

/* ---- one file ---- */

static enum err parts_write(struct engine *e, struct shard *s, const struct sealed_view *view,
                            const struct maintain_control *control, struct flush_parts *parts,
                            struct flush_result *result, struct errinfo *ei)
{
    struct window_list windows = {.memory = e->memory};
    struct flush_window f = flush_window_of(e, s, control);
    enum err err = windows_find(&windows, view, control, ei);

    f.views = view;
    f.view_count = 1;
    for (size_t i = 0; i < windows.items.count && err == ERR_OK; i++) {
        f.key = flush_part_key(e, s, windows_of(&windows)[i], view->source->generation);
        err = flush_part_add(e, &f, parts, result, ei);
    }
    part_array_done(&windows.items, e->memory);
    return err;
}

static enum err file_split(struct engine *e, struct shard *s, struct sealed_view view,
                           const struct maintain_control *control, struct flush_result *out,
                           struct errinfo *ei)
{
    struct flush_parts parts = {0};
    struct flush_exchange x = {
        .parts_added = &parts, .sealed_removed = &view.source, .sealed_removed_count = 1};
    struct flush_result result = *out;
    enum err err = parts_write(e, s, &view, control, &parts, &result, ei);

    if (err == ERR_OK)
        err = flush_exchange_run(e, s, &x, ei);
    flush_parts_done(e, &parts, err == ERR_OK);
    if (err == ERR_OK)
        *out = result;
    return err;
}

/* The first late file in the present set. */
static const struct sealed_view *late_view(const struct shard *s)
{
    for (size_t i = 0; s->files != NULL && i < s->files->sealed_count; i++) {
        if (s->files->sealed[i].source->kind == SEALED_LATE)
            return &s->files->sealed[i];
    }
    return NULL;
}

enum err flush_split_late(struct engine *e, struct shard *s, const struct maintain_control *control,
                          struct flush_result *out, struct errinfo *ei)
{
    const struct sealed_view *view;
    enum err err = ERR_OK;

    while (err == ERR_OK && (view = late_view(s)) != NULL)
        err = file_split(e, s, *view, control, out, ei);
    /* What a failed seal has left: a file that stays may have slices that wait for their sync. */
    if (err == ERR_OK)
        sealer_end_window(s, SEALED_LATE, 0);
    return err;
}

enum err engine_split_late(struct engine *e, uint32_t shard, const struct maintain_control *control,
                           struct flush_result *out, struct errinfo *ei)
{
    struct shard *s = engine_shard(e, shard);
    struct flush_result result = {0};
    enum err err = flush_admit(e, ei);

    if (err != ERR_OK)
        return err;
    mutex_lock(&s->maintain_lock);
    err = flush_split_late(e, s, control, &result, ei);
    mutex_unlock(&s->maintain_lock);
    if (err == ERR_OK)
        *out = result;
    return err;
}
