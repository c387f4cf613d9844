/*
 * Reading a shard. Under its lock it is noted where a batch's chunks begin, the ends of open chunks
 * and late samples are copied, and the file set is taken: together that is every sample once, since
 * a seal takes chunks off and publishes their file in one critical section too. All other blocks
 * are immutable and live as long as an epoch section that was entered before, so they are read
 * after the lock is left (chunk_batch.c).
 */
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/memtable/chunk_batch_internal.h"
#include "engine/memtable/memtable_internal.h"

enum { META_SLICE = 512 };

static void meta_of(const struct series *series, struct series_meta *out)
{
    *out = (struct series_meta){.min_time_ms = INT64_MAX, .max_time_ms = INT64_MIN};
    if (series == NULL)
        return;
    out->fingerprint = series->fingerprint;
    out->generation = series->generation;
    out->is_live = true;
    if (series->newest_ms == INT64_MIN)
        return; /* no sample yet */
    out->max_time_ms = series->newest_ms;
    /* Beyond the open chunk the first sample is known by its window only: a superset will do. */
    out->min_time_ms = series->closed == 0 && series->has_files == 0
                           ? series->open_first_ms
                           : series_oldest_window_ms(series);
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

enum lane { LANE_IN_ORDER, LANE_LATE_FROZEN, LANE_LATE, LANE_COUNT };

/* What the critical section takes along of a batch. */
struct batch {
    const struct shard_read *r;
    struct file_read_item *items; /* those of r; without a slot where it has another series now */
    struct chunk_snapshot *snaps;
    struct column *late, *late_frozen;        /* NULL: nothing in the range */
    struct histogram_take *takes[LANE_COUNT]; /* by item; NULL: nothing in the range */
    struct file_set *files;                   /* counted */
};

/* The late samples of the batch; *out stays NULL when the buffer has none in the range. */
static bool late_take(const struct late_buffer *b, const struct batch *t, struct column **out)
{
    const struct shard_read *r = t->r;
    struct column *columns;

    if (b->min_time_ms > r->max_time_ms || b->max_time_ms < r->min_time_ms)
        return true;
    columns = arena_calloc(r->arena, r->count, sizeof *columns);
    for (size_t i = 0; columns != NULL && i < r->count; i++) {
        const struct file_read_item *it = &t->items[i];

        if (it->slot != UINT32_MAX && !late_buffer_read(b, it->slot, it->generation, r->min_time_ms,
                                                        r->max_time_ms, r->arena, &columns[i]))
            return false;
    }
    *out = columns;
    return columns != NULL;
}

/* The blocks of histograms of the batch. */
static bool lane_take(const struct histogram_lane *lane, const struct batch *t,
                      struct histogram_take **out)
{
    const struct shard_read *r = t->r;
    bool ok = true;

    if (lane->min_time_ms > r->max_time_ms || lane->max_time_ms < r->min_time_ms)
        return true;
    *out = arena_calloc(r->arena, r->count, sizeof **out);
    for (size_t i = 0; *out != NULL && i < r->count && ok; i++) {
        const struct file_read_item *it = &t->items[i];

        if (it->slot != UINT32_MAX)
            ok = histogram_take_blocks(&(*out)[i], lane, it->slot, it->generation, r->min_time_ms,
                                       r->max_time_ms, r->arena);
    }
    return *out != NULL && ok;
}

static void lanes_drop(struct batch *t)
{
    for (size_t lane = 0; lane < LANE_COUNT; lane++) {
        for (size_t i = 0; t->takes[lane] != NULL && i < t->r->count; i++)
            histogram_take_drop(&t->takes[lane][i]);
    }
}

static bool batch_copy(struct shard *s, struct batch *t)
{
    const struct shard_read *r = t->r;

    for (size_t i = 0; i < r->count; i++) { /* independent loads: their misses overlap */
        const struct series *series = series_find(&s->series, r->items[i].slot);

        if (series != NULL && series->open_count != 0)
            __builtin_prefetch(chunk_block_at(s->blocks.pool, series->open_tail));
    }
    for (size_t i = 0; i < r->count; i++) {
        const struct series *series = series_find(&s->series, r->items[i].slot);

        t->items[i] = r->items[i];
        if (series != NULL && series->generation == r->items[i].generation) {
            chunk_snapshot_take(s->blocks.pool, series, r->min_time_ms, r->max_time_ms,
                                &t->snaps[i]);
        } else {
            t->items[i].slot = UINT32_MAX;
            t->snaps[i].closed = 0;
            t->snaps[i].open_count = 0;
        }
    }
    return late_take(&s->late, t, &t->late) && late_take(&s->late_frozen, t, &t->late_frozen) &&
           lane_take(&s->histograms, t, &t->takes[LANE_IN_ORDER]) &&
           lane_take(&s->histograms_late, t, &t->takes[LANE_LATE]) &&
           lane_take(&s->histograms_late_frozen, t, &t->takes[LANE_LATE_FROZEN]);
}

static enum err batch_take(struct shard *s, struct batch *t, struct errinfo *ei)
{
    bool ok;

    mutex_lock(&s->lock);
    ok = batch_copy(s, t);
    if (ok)
        t->files = file_set_ref(s->files);
    mutex_unlock(&s->lock);
    return ok ? ERR_OK : arena_error(t->r->arena, ei);
}

uint32_t shard_slot_end(struct shard *s)
{
    uint32_t end;

    mutex_lock(&s->lock);
    end = s->series.slot_end;
    mutex_unlock(&s->lock);
    return end;
}

struct index *shard_index_pin(struct shard *s)
{
    struct index *index;

    mutex_lock(&s->lock);
    index = s->index;
    mutex_unlock(&s->lock);
    return index;
}

struct file_set *shard_files(struct shard *s)
{
    struct file_set *files;

    mutex_lock(&s->lock);
    files = file_set_ref(s->files);
    mutex_unlock(&s->lock);
    return files;
}

/* The chunks of the batch. */
static enum err batch_decode(struct shard *s, struct batch *t, struct column *in_order,
                             struct errinfo *ei)
{
    const struct shard_read *r = t->r;
    /* Before the chunks are seen: a detach frees their blocks when the section is left. */
    uint32_t section = epoch_enter(s->blocks.pool->epoch);
    enum err e = batch_take(s, t, ei);

    if (e == ERR_OK)
        e = chunk_batch_read(s->blocks.pool, t->snaps, r->count, r->min_time_ms, r->max_time_ms,
                             r->arena, in_order, ei);
    epoch_leave(s->blocks.pool->epoch, section);
    return e;
}

/* Puts the histograms of a lane into the floats' columns, which may be NULL. */
static enum err lane_read(const struct batch *t, enum lane lane, struct column **columns,
                          struct errinfo *ei)
{
    const struct shard_read *r = t->r;

    if (t->takes[lane] == NULL)
        return ERR_OK;
    if (*columns == NULL)
        *columns = arena_calloc(r->arena, r->count, sizeof **columns);
    if (*columns == NULL)
        return arena_error(r->arena, ei);
    for (size_t i = 0; i < r->count; i++) {
        struct column own;
        enum err e = histogram_take_read(&t->takes[lane][i], r->min_time_ms, r->max_time_ms,
                                         r->arena, &own, ei);

        if (e != ERR_OK)
            return e;
        if (!columns_interleave(&(*columns)[i], &own, r->arena, &(*columns)[i]))
            return arena_error(r->arena, ei);
    }
    return ERR_OK;
}

static enum err lanes_read(struct batch *t, struct column *in_order, struct errinfo *ei)
{
    enum err e = lane_read(t, LANE_IN_ORDER, &in_order, ei);

    if (e == ERR_OK)
        e = lane_read(t, LANE_LATE_FROZEN, &t->late_frozen, ei);
    return e == ERR_OK ? lane_read(t, LANE_LATE, &t->late, ei) : e;
}

enum err shard_read(struct shard *s, const struct shard_read *r, struct column *out,
                    struct errinfo *ei)
{
    struct batch t = {.r = r};
    struct column *in_order = ARENA_ARRAY(r->arena, r->count, struct column);
    enum err e;

    ASSERT(r->count <= QUERIER_READ_BATCH_MAX);
    t.items = ARENA_ARRAY(r->arena, r->count, struct file_read_item);
    t.snaps = ARENA_ARRAY(r->arena, r->count, struct chunk_snapshot);
    if (t.items == NULL || t.snaps == NULL || in_order == NULL)
        return arena_error(r->arena, ei);
    e = batch_decode(s, &t, in_order, ei);
    if (e == ERR_OK)
        e = lanes_read(&t, in_order, ei);
    lanes_drop(&t);
    if (e == ERR_OK) {
        const struct file_read read = {
            .set = t.files,
            .items = t.items,
            .count = r->count,
            .min_time_ms = r->min_time_ms,
            .max_time_ms = r->max_time_ms,
            .in_order = in_order,
            .late_frozen = t.late_frozen,
            .late = t.late,
            .labels_of = r->labels_of,
            .ctx = r->ctx,
            .arena = r->arena,
        };

        e = file_set_read(&read, out, ei);
    }
    file_set_unref(t.files);
    return e;
}
