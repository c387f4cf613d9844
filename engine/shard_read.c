/*
 * Reading the memtable. Under the shard's lock a batch's series structs and open chunks are copied;
 * closed chunks are immutable and their blocks live as long as the engine, so they are decoded
 * where they are, after the lock is left.
 */
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/memtable_internal.h"

enum { META_SLICE = 512 };

static void meta_of(const struct series *series, struct series_meta *out)
{
    *out = (struct series_meta){.min_time_ms = INT64_MAX, .max_time_ms = INT64_MIN};
    if (series == NULL)
        return;
    out->fingerprint = series->fingerprint;
    out->generation = series->generation;
    if (series->newest_ms == INT64_MIN)
        return; /* no sample yet */
    out->max_time_ms = series->newest_ms;
    /* With closed chunks the first sample is known by its window only: a superset will do. */
    out->min_time_ms =
        series->closed == 0 ? series->open_first_ms : series_oldest_window_ms(series);
}

void shard_series_meta(struct shard *s, const uint32_t *slots, size_t count,
                       struct series_meta *out)
{
    enum { AHEAD = 16 };

    for (size_t first = 0; first < count; first += META_SLICE) {
        size_t end = count - first < META_SLICE ? count : first + META_SLICE;

        mutex_lock(&s->lock);
        for (size_t i = first; i < end; i++) {
            if (i + AHEAD < end && slots[i + AHEAD] < s->series.slot_end &&
                s->series.pages[slots[i + AHEAD] / SERIES_PAGE_SERIES] != NULL)
                __builtin_prefetch(series_at(&s->series, slots[i + AHEAD]));
            meta_of(series_find(&s->series, slots[i]), &out[i]);
        }
        mutex_unlock(&s->lock);
    }
}

/* ---- samples ---- */

/* What the critical section takes along of one series. */
struct snapshot {
    uint32_t closed; /* newest closed chunk that may overlap the range */
    uint16_t open_size;
    uint8_t open_count;
    int64_t open_first_ms;
    const uint8_t *open_tokens; /* in the arena */
};

/* Open chunks of a batch are copied into pieces of this size, so that little is wasted. */
enum { COPY_PIECE_BYTES = 64 << 10 };

struct copy_room {
    uint8_t *pos, *end;
};

static bool snapshot_take(const struct shard *s, const struct series *series, int64_t min_time_ms,
                          int64_t max_time_ms, struct arena *arena, struct copy_room *room,
                          struct snapshot *out)
{
    *out = (struct snapshot){0};
    if (series->newest_ms < min_time_ms)
        return true;
    if (series->closed != 0 && series_oldest_window_ms(series) <= max_time_ms)
        out->closed = series->closed;
    if (series->open_count == 0 || series->open_first_ms > max_time_ms)
        return true;
    if ((size_t)(room->end - room->pos) < CHUNK_BYTES_MAX) {
        /* Under the lock, but rare and of fixed size. */
        room->pos = arena_alloc(arena, COPY_PIECE_BYTES);
        if (room->pos == NULL)
            return false;
        room->end = room->pos + COPY_PIECE_BYTES;
    }
    out->open_count = (uint8_t)series->open_count;
    out->open_first_ms = series->open_first_ms;
    out->open_tokens = room->pos;
    out->open_size = (uint16_t)chunk_gather_open(s->blocks.pool, series, room->pos);
    room->pos += out->open_size;
    return true;
}

static enum err snapshot_all(struct shard *s, const uint32_t *slots, const uint16_t *generations,
                             size_t count, int64_t min_time_ms, int64_t max_time_ms,
                             struct arena *arena, struct snapshot *out, struct errinfo *ei)
{
    struct copy_room room = {NULL, NULL};
    bool ok = true;

    mutex_lock(&s->lock);
    for (size_t i = 0; i < count; i++) { /* independent loads: their misses overlap */
        const struct series *series = series_find(&s->series, slots[i]);

        if (series != NULL && series->open_head != 0)
            __builtin_prefetch(chunk_block_at(s->blocks.pool, series->open_head));
    }
    for (size_t i = 0; i < count && ok; i++) {
        const struct series *series = series_find(&s->series, slots[i]);

        if (series == NULL || series->generation != generations[i])
            out[i] = (struct snapshot){0};
        else
            ok = snapshot_take(s, series, min_time_ms, max_time_ms, arena, &room, &out[i]);
    }
    mutex_unlock(&s->lock);
    return ok ? ERR_OK : arena_error(arena, ei);
}

/* Closed chunks that overlap [min, max], newest first; count and, if `list` is given, their
 * numbers. */
static size_t closed_overlapping(const struct chunk_pool *pool, uint32_t newest,
                                 int64_t min_time_ms, int64_t max_time_ms, uint32_t *list,
                                 size_t *sample_count)
{
    size_t count = 0;

    for (uint32_t n = newest; n != 0;) {
        const struct chunk_descriptor *d = chunk_descriptor_at(pool, n);

        if (d->max_time_ms < min_time_ms)
            break; /* all others are older */
        if (d->min_time_ms <= max_time_ms) {
            if (list != NULL)
                list[count] = n;
            count++;
            *sample_count += d->sample_count;
        }
        n = d->older;
    }
    return count;
}

struct column_writer {
    int64_t *t_ms;
    double *value;
    size_t count;
    int64_t min_time_ms, max_time_ms;
};

/* Decodes a chunk behind what is there, then drops what lies outside the range. */
static bool column_decode(struct column_writer *w, const uint8_t *tokens, size_t size,
                          int64_t first_ms, size_t count)
{
    int64_t *t_ms = w->t_ms + w->count;
    double *value = w->value + w->count;
    size_t begin = 0, end = count;

    if (!chunk_decode(tokens, size, first_ms, count, t_ms, value))
        return false;
    while (begin < end && t_ms[begin] < w->min_time_ms)
        begin++;
    while (end > begin && t_ms[end - 1] > w->max_time_ms)
        end--;
    if (begin > 0) {
        memmove(t_ms, t_ms + begin, (end - begin) * sizeof *t_ms);
        memmove(value, value + begin, (end - begin) * sizeof *value);
    }
    w->count += end - begin;
    return true;
}

static enum err column_fill(const struct chunk_pool *pool, const struct snapshot *snap,
                            struct column_writer *w, const uint32_t *closed, size_t closed_count,
                            struct errinfo *ei)
{
    uint8_t tokens[CHUNK_BYTES_MAX];
    bool ok = true;

    for (size_t i = closed_count; i-- > 0 && ok;) { /* oldest first */
        const struct chunk_descriptor *d = chunk_descriptor_at(pool, closed[i]);
        size_t size = chunk_gather(pool, d->head, d->size_bytes, tokens);

        ok = column_decode(w, tokens, size, d->min_time_ms, d->sample_count);
    }
    if (ok && snap->open_count > 0)
        ok = column_decode(w, snap->open_tokens, snap->open_size, snap->open_first_ms,
                           snap->open_count);
    return ok ? ERR_OK : errinfo_set(ei, ERR_INTERNAL, 0, "a chunk in memory does not decode");
}

static enum err column_read(const struct chunk_pool *pool, const struct snapshot *snap,
                            int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                            struct column *out, struct errinfo *ei)
{
    struct column_writer w = {.min_time_ms = min_time_ms, .max_time_ms = max_time_ms};
    size_t sample_count = snap->open_count;
    size_t closed_count =
        closed_overlapping(pool, snap->closed, min_time_ms, max_time_ms, NULL, &sample_count);
    uint32_t *closed = NULL;
    enum err e;

    *out = (struct column){0, NULL, NULL};
    if (sample_count == 0)
        return ERR_OK;
    w.t_ms = ARENA_ARRAY(arena, sample_count, int64_t);
    w.value = ARENA_ARRAY(arena, sample_count, double);
    closed = ARENA_ARRAY(arena, closed_count, uint32_t);
    if (w.t_ms == NULL || w.value == NULL || closed == NULL)
        return arena_error(arena, ei);
    (void)closed_overlapping(pool, snap->closed, min_time_ms, max_time_ms, closed, &sample_count);
    e = column_fill(pool, snap, &w, closed, closed_count, ei);
    if (e == ERR_OK)
        *out = (struct column){w.count, w.t_ms, w.value};
    return e;
}

enum err shard_read(struct shard *s, const uint32_t *slots, const uint16_t *generations,
                    size_t count, int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                    struct column *out, struct errinfo *ei)
{
    struct snapshot *snaps;
    enum err e;

    ASSERT(count <= QUERIER_READ_BATCH_MAX);
    snaps = ARENA_ARRAY(arena, count, struct snapshot);
    if (snaps == NULL)
        return arena_error(arena, ei);
    e = snapshot_all(s, slots, generations, count, min_time_ms, max_time_ms, arena, snaps, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = column_read(s->blocks.pool, &snaps[i], min_time_ms, max_time_ms, arena, &out[i], ei);
    return e;
}
