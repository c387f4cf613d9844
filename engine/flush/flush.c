/*
 * The flush of windows: their sealed files become parts.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "engine/flush/flush_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/seal/seal_internal.h"

enum { PASS_SHARE = 16, PASS_BYTES_LEAST = 8 << 20, PASS_BYTES_MOST = 48 << 20 };

enum err flush_admit(const struct engine *e, struct errinfo *ei)
{
    if (e->is_read_only)
        return errinfo_set(ei, ERR_INVALID, 0, "the store is open for reading only");
    return ERR_OK;
}

/* ---- what a shard gives ---- */

void flush_look_up_live(void *ctx, const uint32_t *slots, size_t count, struct flush_series *out)
{
    struct shard *s = ctx;

    mutex_lock(&s->lock);
    for (size_t i = 0; i < count; i++) {
        const struct series *series = series_find(&s->series, slots[i]);

        out[i] = (struct flush_series){.is_wanted = false};
        if (series != NULL)
            out[i] = (struct flush_series){series->fingerprint, series->generation, true};
    }
    mutex_unlock(&s->lock);
}

/* A small store shall not feel the flush of a shard; where shards are large, more passes would
 * cost. */
static size_t pass_bytes(const struct engine *e)
{
    uint64_t share = e->memory == NULL ? PASS_BYTES_MOST : budget_used(e->memory) / PASS_SHARE;

    if (share > PASS_BYTES_MOST)
        return PASS_BYTES_MOST;
    return share < PASS_BYTES_LEAST ? PASS_BYTES_LEAST : (size_t)share;
}

struct flush_window flush_window_of(struct engine *e, struct shard *s,
                                    const struct maintain_control *control)
{
    return (struct flush_window){
        .index = s->index,
        .lookup = flush_look_up_live,
        .ctx = s,
        .tombstones = s->files == NULL ? NULL : s->files->tombstones,
        .store = e->parts,
        .dir = MANIFEST_PARTS_DIR,
        .memory = e->memory,
        .pass_bytes = pass_bytes(e),
        .control = control,
    };
}

struct part_key flush_part_key(const struct engine *e, const struct shard *s, uint32_t window,
                               uint64_t generation)
{
    return (struct part_key){.window_start_ms = chunk_window_start_ms(window),
                             .window_size_ms = CHUNK_WINDOW_MS,
                             .shard = s->number,
                             .shard_count = e->shard_count,
                             .generation = generation};
}

enum err flush_part_add(struct engine *e, struct flush_window *f, struct flush_parts *parts,
                        struct flush_result *result, struct errinfo *ei)
{
    struct flush_window_result written = {.is_written = false};
    enum err err = flush_part_name(e, &f->key, f->name_step == 0 ? 1 : f->name_step, ei);

    if (err == ERR_OK)
        err = flush_window_write(f, &written, ei);
    if (err == ERR_OK && written.is_written)
        err = flush_parts_add(e, parts, &written.info, flush_purged_generation(f->tombstones), ei);
    if (err != ERR_OK || !written.is_written)
        return err;
    result->sample_count += written.info.sample_count;
    result->series_count += written.info.series_count;
    result->byte_count += written.info.index_size + written.info.chunks_size;
    result->part_count++;
    return ERR_OK;
}

/* ---- groups of files ---- */

/* Whether something that shares timestamps with the window stands between two of its files. */
static bool is_between(uint64_t generation, uint64_t below, uint64_t above)
{
    return generation > below && generation < above;
}

size_t flush_group_end(const struct file_set *set, const struct sealed_view *views, size_t count,
                       size_t first, bool by_tombstones)
{
    int64_t min_ms = chunk_window_start_ms(views[first].source->window);
    int64_t max_ms = min_ms + CHUNK_WINDOW_MS - 1;
    const struct tombstone_list *dead = set->tombstones;

    for (size_t end = first + 1; end < count; end++) {
        uint64_t below = views[end - 1].source->generation, above = views[end].source->generation;

        for (size_t i = 0; i < set->sealed_count; i++) {
            const struct sealed_view *v = &set->sealed[i];

            if (v->source->kind == SEALED_LATE && is_between(v->source->generation, below, above) &&
                v->min_time_ms <= max_ms && v->max_time_ms >= min_ms)
                return end;
        }
        for (size_t i = 0; i < set->part_count; i++) {
            if (is_between(set->parts[i]->key.generation, below, above) &&
                part_source_overlaps(set->parts[i], min_ms, max_ms))
                return end;
        }
        for (size_t i = 0; by_tombstones && dead != NULL && i < dead->count; i++) {
            if (is_between(dead->items[i].generation, below, above))
                return end;
        }
    }
    return count;
}

size_t flush_window_views(const struct file_set *set, uint32_t window, struct sealed_view *views,
                          struct sealed_source **sources)
{
    size_t count = 0;

    for (size_t i = 0; i < set->sealed_count; i++) {
        const struct sealed_view *v = &set->sealed[i];

        if (v->source->kind != SEALED_RECENT || v->source->window != window)
            continue;
        views[count] = *v;
        sources[count++] = v->source;
    }
    return count;
}

/* ---- one window ---- */

/* A flush at work. */
struct window_flush {
    struct engine *engine;
    struct shard *shard;
    const struct maintain_control *control;
    struct flush_result result;
};

/* A part for each group of files, as a rule one. */
static enum err groups_write(struct window_flush *w, uint32_t window,
                             const struct sealed_view *views, size_t count,
                             struct flush_parts *parts, struct flush_result *result,
                             struct errinfo *ei)
{
    struct flush_window f = flush_window_of(w->engine, w->shard, w->control);
    enum err err = ERR_OK;

    for (size_t first = 0, end; first < count && err == ERR_OK; first = end) {
        end = flush_group_end(w->shard->files, views, count, first, false);
        f.views = views + first;
        f.view_count = end - first;
        f.key = flush_part_key(w->engine, w->shard, window, views[end - 1].source->generation);
        err = flush_part_add(w->engine, &f, parts, result, ei);
    }
    return err;
}

static enum err window_exchange(struct window_flush *w, uint32_t window,
                                const struct sealed_view *views,
                                struct sealed_source *const *sources, size_t count,
                                struct errinfo *ei)
{
    struct flush_parts parts = {0};
    struct flush_exchange x = {
        .parts_added = &parts, .sealed_removed = sources, .sealed_removed_count = count};
    struct flush_result result = w->result;
    enum err err = groups_write(w, window, views, count, &parts, &result, ei);

    if (err == ERR_OK)
        err = flush_exchange_run(w->engine, w->shard, &x, ei);
    flush_parts_done(w->engine, &parts, err == ERR_OK);
    if (err != ERR_OK)
        return err;
    /* Not before: a file that stays may have slices that wait for their sync. */
    sealer_end_window(w->shard, SEALED_RECENT, window);
    w->result = result;
    return ERR_OK;
}

static enum err window_flush(struct window_flush *w, uint32_t window, struct errinfo *ei)
{
    size_t room = w->shard->files->sealed_count, count;
    struct sealed_view *views = calloc(room, sizeof *views);
    struct sealed_source **sources = calloc(room, sizeof(struct sealed_source *));
    enum err err;

    if (views == NULL || sources == NULL) {
        err = errinfo_set(ei, ERR_NOMEM, 0, "flush of shard %u", w->shard->number);
    } else {
        count = flush_window_views(w->shard->files, window, views, sources);
        ASSERT(count > 0);
        err = window_exchange(w, window, views, sources, count, ei);
    }
    free(views);
    free(sources);
    return err;
}

/* ---- all windows ---- */

bool flush_next_window(const struct shard *s, uint32_t from, int64_t until_ms, uint32_t *out)
{
    uint32_t oldest = UINT32_MAX;

    for (size_t i = 0; s->files != NULL && i < s->files->sealed_count; i++) {
        const struct sealed_source *source = s->files->sealed[i].source;

        if (source->kind == SEALED_RECENT && source->window >= from && source->window < oldest &&
            chunk_window_start_ms(source->window + 1) <= until_ms)
            oldest = source->window;
    }
    *out = oldest;
    return oldest != UINT32_MAX;
}

/* Whether memory may hold samples of windows that end by then. */
static bool needs_seal(struct shard *s, int64_t until_ms)
{
    int64_t min_ms;

    if (until_ms == INT64_MAX)
        return true;
    mutex_lock(&s->lock);
    min_ms = s->memory_min_ms;
    mutex_unlock(&s->lock);
    return min_ms < until_ms && chunk_window_start_ms(chunk_window(min_ms) + 1) <= until_ms;
}

static enum err windows_flush(struct window_flush *w, int64_t until_ms, struct errinfo *ei)
{
    const struct seal_options options = {.reason = SEAL_FLUSH, .control = w->control};
    struct seal_result sealed;
    uint32_t window;
    enum err err = ERR_OK;

    if (needs_seal(w->shard, until_ms))
        err = seal_shard(w->engine, w->shard, &options, &sealed, ei);
    while (err == ERR_OK && flush_next_window(w->shard, 0, until_ms, &window))
        err = window_flush(w, window, ei);
    return err;
}

enum err engine_flush(struct engine *e, uint32_t shard, int64_t until_ms,
                      const struct maintain_control *control, struct flush_result *out,
                      struct errinfo *ei)
{
    struct window_flush w = {.engine = e, .shard = engine_shard(e, shard), .control = control};
    enum err err = flush_admit(e, ei);

    if (err != ERR_OK)
        return err;
    mutex_lock(&w.shard->maintain_lock);
    err = windows_flush(&w, until_ms, ei);
    mutex_unlock(&w.shard->maintain_lock);
    if (err == ERR_OK)
        *out = w.result;
    return err;
}
