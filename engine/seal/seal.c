/*
 * The seal of a shard: samples out of memory into files, and a checkpoint.
 *
 * Slice by slice: cut under the shard's lock, encode and write without it, publish and detach in
 * one critical section. A slice that could not be written stays in memory, where it is. What was
 * written and not published, or not taken off, is written once more by the next seal: readers and
 * flushes pass over repeats.
 *
 * The checkpoint is one manifest: durable sizes of files, the series file with the newest samples
 * as they were cut, the covered sequence. Until it is written the log has everything.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/files/maintain_tick_internal.h"
#include "engine/memtable/ended_internal.h"
#include "engine/memtable/rebuild_internal.h"
#include "engine/seal/seal_run_internal.h"

enum {
    RETIRE_BLOCKS = 256 << 10, /* 8 MiB wait for the end of the seal at most */
    /* So long after its end a window has a sealed file of its own: until it is flushed, and beyond
     * for shards whose turn comes late and for stragglers. What is older goes to the late file,
     * which takes any number of windows. */
    WINDOW_GRACE_MS = CHUNK_WINDOW_MS + 10 * 60 * 1000,
};

/* ---- what is kept between seals ---- */

static void files_end(struct shard_sealer *z, size_t first)
{
    for (size_t i = first; i < z->file_count; i++) {
        sealed_writer_free(z->files[i].writer);
        sealed_source_unref(z->files[i].source);
    }
    z->file_count = first;
}

void shard_sealer_free(struct shard_sealer *z)
{
    if (z == NULL)
        return;
    files_end(z, 0);
    free(z->files);
    seal_series_done(&z->series);
    free(z);
}

void sealer_end_files(struct shard *s)
{
    if (s->sealer != NULL)
        files_end(s->sealer, 0);
}

void sealer_end_window(struct shard *s, enum sealed_kind kind, uint32_t window)
{
    struct shard_sealer *z = s->sealer;
    size_t kept = 0;

    for (size_t i = 0; z != NULL && i < z->file_count; i++) {
        struct seal_file f = z->files[i];

        if (f.source->kind != kind || f.window != window) {
            z->files[kept++] = f;
            continue;
        }
        sealed_writer_free(f.writer);
        sealed_source_unref(f.source);
    }
    if (z != NULL)
        z->file_count = kept;
}

/* ---- cut ---- */

static void hold_note(struct seal_run *r, uint64_t work)
{
    if (work > r->result.hold_samples_max)
        r->result.hold_samples_max = work;
}

/* Under shard.lock, in the critical section of the first cut. */
static void cut_first(struct seal_run *r)
{
    struct shard *s = r->shard;

    r->is_cut = true;
    r->sequence = s->log.sequence;
    r->slot_end = s->series.slot_end;
    /* What the next slices cut and came after this only makes the bound lower than it need be. */
    r->memory_min_ms = s->memory_min_ms;
    s->memory_min_ms = INT64_MAX;
    ASSERT(s->late_frozen.series_count == 0); /* finished before */
    ASSERT(s->histograms_late_frozen.series_count == 0);
    late_buffer_move(&s->late, &s->late_frozen);
    histogram_lane_move(&s->histograms_late, &s->histograms_late_frozen);
}

/* Cuts the next slice of slots. */
static enum err cut_slice(struct seal_run *r, struct errinfo *ei)
{
    struct shard *s = r->shard;
    struct seal_series *n = &s->sealer->series;
    uint32_t begin = r->slot_cursor;

    if (!seal_series_reserve(n, CUT_VISITS_MAX))
        return errinfo_set(ei, ERR_NOMEM, 0, "notes of a seal");
    mutex_lock(&s->lock);
    if (!r->is_cut)
        cut_first(r);
    r->cuts = r->cut_room;
    r->cut_count = shard_cut(s, &r->slot_cursor, r->slot_end, r->cut_room, &r->refused);
    r->cut_sequence = s->log.sequence;
    r->has_histograms |= s->histograms.series_count > 0;
    seal_series_note(n, s, begin, r->slot_cursor);
    mutex_unlock(&s->lock);
    hold_note(r, r->slot_cursor - begin);
    if (r->refused && r->cut_count == 0)
        return errinfo_set(ei, ERR_NOMEM, 0, "shard %u: closing chunks needs memory", s->number);
    return ERR_OK;
}

/* Cuts everything in one critical section; the slices come out of the list. */
static enum err cut_whole(struct seal_run *r, struct errinfo *ei)
{
    struct shard *s = r->shard;
    struct seal_series *n = &s->sealer->series;
    bool done = false, refused = false;

    while (!done) {
        mutex_lock(&s->lock);
        uint32_t slot_end = s->series.slot_end;
        mutex_unlock(&s->lock);
        if (!cut_list_reserve(&r->whole, s) || !seal_series_reserve(n, slot_end))
            return errinfo_set(ei, ERR_NOMEM, 0, "cut of a whole shard");
        mutex_lock(&s->lock);
        /* Series came since: once more. */
        done = s->series.slot_end == slot_end && shard_cut_all(s, &r->whole, &refused);
        if (done) {
            cut_first(r);
            r->has_histograms = s->histograms.series_count > 0;
            if (r->options->at_cut != NULL)
                r->options->at_cut(r->options->ctx, s);
            seal_series_note(n, s, 0, slot_end);
            r->cut_sequence = r->sequence;
            if (r->options->after_cut != NULL)
                r->options->after_cut(r->options->ctx, s);
        }
        mutex_unlock(&s->lock);
        if (refused)
            return errinfo_set(ei, ERR_NOMEM, 0, "shard %u: closing chunks needs memory",
                               s->number);
    }
    hold_note(r, r->slot_end);
    r->slot_cursor = r->slot_end;
    return ERR_OK;
}

/* The next slice's cuts; false after the last. */
static enum err next_cuts(struct seal_run *r, bool *any, struct errinfo *ei)
{
    if (!r->options->cut_whole) {
        *any = !r->is_cut || r->slot_cursor < r->slot_end;
        return *any ? cut_slice(r, ei) : ERR_OK;
    }
    if (!r->is_cut) {
        enum err e = cut_whole(r, ei);

        if (e != ERR_OK)
            return e;
    }
    r->cuts = r->whole.items + r->whole_done;
    r->cut_count = r->whole.count - r->whole_done;
    if (r->cut_count > CUT_SERIES_MAX)
        r->cut_count = CUT_SERIES_MAX;
    r->whole_done += r->cut_count;
    *any = r->cut_count > 0;
    return ERR_OK;
}

/* ---- encode ---- */

enum err seal_chunk_put(struct seal_run *r, struct seal_file *f, const struct sealed_key *key,
                        const int64_t *t_ms, const double *value, size_t count, struct errinfo *ei)
{
    struct errinfo own = {0};
    enum err e =
        sealed_writer_chunk(f->writer, key->slot, key->generation, t_ms, value, count, &own);

    if (e != ERR_LIMIT) {
        if (e != ERR_OK && ei != NULL)
            *ei = own;
        return e;
    }
    e = seal_files_write(r->shard, r->cut_sequence, &r->result, ei);
    return e == ERR_OK
               ? sealed_writer_chunk(f->writer, key->slot, key->generation, t_ms, value, count, ei)
               : e;
}

bool seal_window_is_open(const struct seal_run *r, uint32_t window)
{
    return chunk_window_start_ms(window + 1) + WINDOW_GRACE_MS > r->now_ms;
}

static enum err cut_encode(struct seal_run *r, const struct series_cut *cut, struct errinfo *ei)
{
    const struct chunk_pool *pool = r->shard->blocks.pool;
    const struct sealed_key key = {cut->slot, cut->generation};
    struct seal_file *f = NULL;
    enum err e = ERR_OK;
    size_t count;

    if (!cut_chunks_begin(&r->chunks, pool, cut))
        return errinfo_set(ei, ERR_NOMEM, 0, "chunks of a series");
    while (e == ERR_OK &&
           (count = cut_chunks_next(&r->chunks, pool, r->t_ms, r->value, CODEC_SAMPLES_MAX)) > 0) {
        uint32_t window = chunk_window(r->t_ms[0]);

        /* In the late file the in-order samples come first: earlier slices win. */
        e = seal_window_is_open(r, window)
                ? seal_file_recent(r->engine, r->shard, window, r->has_histograms, &f, ei)
                : seal_file_late(r->engine, r->shard, false, r->has_histograms, &f, ei);
        if (e == ERR_OK)
            e = seal_chunk_put(r, f, &key, r->t_ms, r->value, count, ei);
        r->result.sample_count += count;
    }
    return e;
}

static void detach_locked(void *ctx, struct shard *s)
{
    struct seal_run *r = ctx;

    shard_detach(s, r->cuts, r->cut_count, &r->freed);
    shard_detach_histograms(s, r->cuts, r->cut_count, &r->freed_histograms);
}

/* One slice, from the cut to the publication. */
static enum err slice_seal(struct seal_run *r, struct errinfo *ei)
{
    struct shard *s = r->shard;
    enum err e = ERR_OK;

    for (size_t i = 0; i < r->cut_count && e == ERR_OK; i++)
        e = cut_encode(r, &r->cuts[i], ei);
    if (e == ERR_OK)
        e = seal_files_write(s, r->cut_sequence, &r->result, ei);
    if (e == ERR_OK)
        e = seal_histograms(r, ei);
    if (e == ERR_OK)
        e = seal_files_publish(s, detach_locked, r, ei);
    /* Many at once: the more blocks come back together, the more of them lie side by side. */
    if (r->freed.block_count >= RETIRE_BLOCKS)
        chunk_chains_retire(s->blocks.pool, &r->freed);
    histogram_blocks_free(r->freed_histograms);
    r->freed_histograms = NULL;
    if (e != ERR_OK)
        return e;
    hold_note(r, r->cut_count);
    r->result.series_count += r->cut_count;
    return seal_series_note_cuts(&s->sealer->series, r->cuts, r->cut_count)
               ? ERR_OK
               : errinfo_set(ei, ERR_NOMEM, 0, "notes of a seal");
}

static enum err slices_seal(struct seal_run *r, struct errinfo *ei)
{
    bool any = true;
    enum err e = next_cuts(r, &any, ei);

    while (e == ERR_OK && any) {
        if (r->cut_count > 0)
            e = slice_seal(r, ei);
        if (e == ERR_OK)
            e = maintain_tick(r->options->control, "the seal was stopped", ei);
        if (e == ERR_OK)
            e = next_cuts(r, &any, ei);
    }
    return e;
}

/* ---- all of it ---- */

static enum err run_begin(struct seal_run *r, struct errinfo *ei)
{
    struct shard *s = r->shard;
    struct shard_sealer *z = s->sealer;
    enum err e = ERR_OK;
    bool any_dirty = false;

    if (z == NULL)
        z = s->sealer = calloc(1, sizeof *z);
    if (z == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "seal of shard %u", s->number);
    for (size_t i = 0; i < z->file_count; i++)
        any_dirty |= z->files[i].is_dirty;
    seal_series_begin(&z->series, s, r->options->cut_whole);
    /* An earlier seal failed: first what it has left behind. */
    if (any_dirty)
        e = seal_files_sync(r->engine, s, ei);
    return e == ERR_OK ? seal_late(r, ei) : e;
}

/* After a failure: some of what was cut may still be in memory. */
static void cut_undo(struct seal_run *r)
{
    struct shard *s = r->shard;

    mutex_lock(&s->lock);
    if (r->is_cut && r->memory_min_ms < s->memory_min_ms)
        s->memory_min_ms = r->memory_min_ms;
    mutex_unlock(&s->lock);
}

static enum err run(struct seal_run *r, struct errinfo *ei)
{
    enum err e = run_begin(r, ei);

    if (e == ERR_OK)
        e = slices_seal(r, ei);
    chunk_chains_retire(r->shard->blocks.pool, &r->freed);
    if (e == ERR_OK)
        e = seal_late(r, ei);
    if (e == ERR_OK)
        e = seal_checkpoint(r, ei);
    if (e != ERR_OK)
        cut_undo(r);
    if (e != ERR_OK && r->shard->sealer != NULL) {
        seal_files_discard(r->shard->sealer);
        /* A late file belongs to one seal; and of a file without a slice merges know nothing. */
        for (size_t i = 0; i < r->shard->sealer->file_count; i++) {
            struct seal_file *f = &r->shard->sealer->files[i];

            f->takes_more &= f->source->kind == SEALED_RECENT && f->is_published;
        }
        seal_series_drop(r->engine, r->shard);
    }
    return e;
}

enum err seal_shard(struct engine *e, struct shard *s, const struct seal_options *options,
                    struct seal_result *out, struct errinfo *ei)
{
    struct seal_run *r = calloc(1, sizeof *r);
    enum err err;

    if (r == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "seal of shard %u", s->number);
    r->engine = e;
    r->shard = s;
    r->options = options;
    r->now_ms = engine_now_ms(e);
    cut_chunks_init(&r->chunks);
    cut_histograms_init(&r->histograms);
    late_buffer_init(&r->late, s->memory);
    histogram_lane_init(&r->late_histograms, s->memory);
    err = run(r, ei);
    cut_chunks_done(&r->chunks);
    cut_histograms_done(&r->histograms);
    cut_list_done(&r->whole);
    if (err == ERR_OK) {
        atomic_store_explicit(&s->log_is_damaged, false, memory_order_relaxed);
        ended_sealed(s);
        *out = r->result;
    }
    free(r);
    return err;
}

enum err engine_seal(struct engine *e, uint32_t shard, enum seal_reason reason,
                     const struct maintain_control *control, struct seal_result *out,
                     struct errinfo *ei)
{
    const struct seal_options options = {.reason = reason, .control = control};
    struct shard *s = &e->shards[shard];
    enum err err;

    ASSERT(shard < e->shard_count);
    if (e->is_read_only)
        return errinfo_set(ei, ERR_INVALID, 0, "the store is open for reading only");
    mutex_lock(&s->maintain_lock);
    uint64_t repeated = ended_repeated(s);
    err = seal_shard(e, s, &options, out, ei);
    if (err == ERR_OK)
        err = ended_leave(e, s, repeated, reason == SEAL_ENDED, control, &out->ended_series_count,
                          ei);
    if (err == ERR_OK && shard_index_is_worn(s))
        err = shard_index_rebuild(e, s, control, ei);
    shard_housekeep(e, s);
    mutex_unlock(&s->maintain_lock);
    return err;
}

/* ---- what waits ---- */

const char *seal_reason_name(enum seal_reason r)
{
    static const char *const names[SEAL_REASON_COUNT] = {
        [SEAL_NONE] = "none",     [SEAL_REPLAY_COST] = "replay-cost", [SEAL_LOG_SIZE] = "log-size",
        [SEAL_MEMORY] = "memory", [SEAL_INTERVAL] = "interval",       [SEAL_LATE] = "late",
        [SEAL_ENDED] = "ended",   [SEAL_CHUNKS] = "chunks",           [SEAL_FLUSH] = "flush",
    };

    return (unsigned)r < SEAL_REASON_COUNT ? names[r] : "unknown";
}

static void files_state(const struct file_set *set, struct seal_state *out)
{
    out->oldest_sealed_window_end_ms = INT64_MAX;
    for (size_t i = 0; set != NULL && i < set->sealed_count; i++) {
        const struct sealed_view *v = &set->sealed[i];
        int64_t end_ms;

        if (v->source->kind == SEALED_LATE) {
            for (size_t k = 0; k < v->slice_count; k++)
                out->late_file_bytes += v->slices[k]->size;
            continue;
        }
        end_ms = chunk_window_start_ms(v->source->window + 1);
        if (end_ms < out->oldest_sealed_window_end_ms)
            out->oldest_sealed_window_end_ms = end_ms;
    }
}

void engine_seal_state(const struct engine *e, uint32_t shard, struct seal_state *out)
{
    struct shard *s = &e->shards[shard];
    struct file_set *set;

    *out = (struct seal_state){0};
    mutex_lock(&s->lock);
    out->log_entries =
        s->log.sequence - atomic_load_explicit(&s->covered_sequence, memory_order_relaxed);
    out->log_is_damaged = atomic_load_explicit(&s->log_is_damaged, memory_order_relaxed);
    out->late_sample_count = atomic_load_explicit(&s->late_count, memory_order_relaxed);
    out->late_bytes = atomic_load_explicit(&s->late_bytes, memory_order_relaxed);
    out->chunk_bytes = chunk_source_used_bytes(&s->blocks);
    out->histogram_bytes = s->histograms.memory_bytes;
    out->series_count = s->series.series_count;
    out->ended_series_count = s->stale_count + s->silent_count;
    set = file_set_ref(s->files);
    mutex_unlock(&s->lock);
    mutex_lock(&s->create_lock);
    out->dead_slot_count = s->slots.dead_count;
    mutex_unlock(&s->create_lock);
    out->sample_count = atomic_load_explicit(&s->sample_count, memory_order_relaxed);
    out->sample_count += atomic_load_explicit(&s->histogram_count, memory_order_relaxed);
    out->sealed_mono_ns = atomic_load_explicit(&s->sealed_mono_ns, memory_order_relaxed);
    files_state(set, out);
    file_set_unref(set);
}
