/*
 * Cut and detach.
 *
 * A detach must change nothing that a reader may be looking at without the lock: such a reader took
 * the list's head along, together with the file set of that moment, and needs every chunk of it. So
 * a list that is taken off as a whole stays as it is; and when chunks were closed after the cut,
 * their descriptors are copied, the last copy ending the list, and the old ones go with the rest.
 */
#include "engine/memtable/shard_cut_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/codec.h"

/* What the blocks of a run take unpacked, but for the last one's. */
enum { RUN_WEIGHT = 1 << 20 };

/* ---- cut ---- */

static struct series_cut cut_of(uint32_t slot, const struct series *series,
                                uint32_t histogram_blocks)
{
    return (struct series_cut){
        .slot = slot,
        .generation = series->generation,
        .closed = series->closed,
        .histogram_blocks = histogram_blocks,
        .newest_ms = series->newest_ms,
        .newest_bits = series->newest_bits,
    };
}

/* Closing walks the open chunk's blocks: fetches the first of a series some way ahead. */
static void prefetch_open(const struct shard *s, uint32_t slot)
{
    const struct series *series = series_find(&s->series, slot);

    if (series != NULL && series->open_count > 0)
        __builtin_prefetch(chunk_block_at(s->blocks.pool, series->open_head));
}

/* One series: true when it was noted. */
static bool cut_series(struct shard *s, uint32_t slot, struct series_cut *out, bool *refused)
{
    enum { AHEAD = 8 };
    struct series *series = series_find(&s->series, slot);
    uint32_t histogram_blocks = 0;

    if (slot + AHEAD > slot)
        prefetch_open(s, slot + AHEAD);
    if (series != NULL && s->histograms.series_count > 0)
        histogram_blocks = histogram_lane_cut(&s->histograms, slot, series->generation);
    if (series == NULL || (series->open_count == 0 && series->closed == 0 && histogram_blocks == 0))
        return false;
    if (!chunk_cut(series, &s->blocks)) {
        *refused = true;
        return false;
    }
    *out = cut_of(slot, series, histogram_blocks);
    return true;
}

size_t shard_cut(struct shard *s, uint32_t *slot_cursor, uint32_t slot_end,
                 struct series_cut cuts[CUT_SERIES_MAX], bool *refused)
{
    uint32_t slot = *slot_cursor, end = slot_end;
    size_t count = 0;

    *refused = false;
    if (end > slot && end - slot > CUT_VISITS_MAX)
        end = slot + CUT_VISITS_MAX;
    for (; slot < end && count < CUT_SERIES_MAX; slot++) {
        count += cut_series(s, slot, &cuts[count], refused);
        if (*refused)
            break;
    }
    *slot_cursor = slot;
    return count;
}

void cut_list_done(struct cut_list *list)
{
    free(list->items);
    *list = (struct cut_list){0};
}

bool cut_list_reserve(struct cut_list *list, struct shard *s)
{
    size_t wanted;

    mutex_lock(&s->lock);
    wanted = s->series.series_count;
    mutex_unlock(&s->lock);
    if (wanted <= list->capacity)
        return true;
    wanted += wanted / 16 + 64; /* those that come meanwhile */
    struct series_cut *grown = realloc(list->items, wanted * sizeof *grown);
    if (grown == NULL)
        return false;
    list->items = grown;
    list->capacity = wanted;
    return true;
}

bool shard_cut_all(struct shard *s, struct cut_list *list, bool *refused)
{
    struct series_cut cut;

    *refused = false;
    list->count = 0;
    for (uint32_t slot = 0; slot < s->series.slot_end && !*refused; slot++) {
        if (!cut_series(s, slot, &cut, refused))
            continue;
        if (list->count == list->capacity)
            return false;
        list->items[list->count++] = cut;
    }
    return !*refused;
}

/* ---- decoding ---- */

void cut_chunks_init(struct cut_chunks *c)
{
    *c = (struct cut_chunks){0};
}

void cut_chunks_done(struct cut_chunks *c)
{
    free(c->descriptors);
    *c = (struct cut_chunks){0};
}

bool cut_chunks_begin(struct cut_chunks *c, const struct chunk_pool *pool,
                      const struct series_cut *cut)
{
    size_t count = 0;

    c->count = c->at = c->given = 0;
    for (uint32_t n = cut->closed; n != 0; n = chunk_descriptor_at(pool, n)->older)
        count++;
    if (count > c->capacity) {
        size_t capacity = count < 64 ? 64 : count + count / 2;
        uint32_t *grown = realloc(c->descriptors, capacity * sizeof *grown);

        if (grown == NULL)
            return false;
        c->descriptors = grown;
        c->capacity = capacity;
    }
    c->count = count;
    for (uint32_t n = cut->closed; n != 0; n = chunk_descriptor_at(pool, n)->older)
        c->descriptors[--count] = n;
    return true;
}

/* Decodes a chunk without its first `skip` samples; returns how many there are. */
static size_t decode_behind(const struct chunk_pool *pool, const struct chunk_descriptor *d,
                            size_t skip, int64_t *t_ms, double *value)
{
    uint8_t tokens[CHUNK_TOKENS_ROOM];
    size_t size = chunk_gather(pool, d->head, d->size_bytes, tokens);
    bool ok = chunk_decode(tokens, size, d->min_time_ms, d->sample_count, t_ms, value);

    ASSERT(ok); /* our own memory */
    if (skip > 0) {
        memmove(t_ms, t_ms + skip, (d->sample_count - skip) * sizeof *t_ms);
        memmove(value, value + skip, (d->sample_count - skip) * sizeof *value);
    }
    return d->sample_count - skip;
}

size_t cut_chunks_next(struct cut_chunks *c, const struct chunk_pool *pool, int64_t *t_ms,
                       double *value, size_t capacity)
{
    int64_t end_ms = INT64_MIN; /* of the run's window */
    size_t done = 0;

    ASSERT(capacity >= CHUNK_SAMPLE_MAX);
    while (c->at < c->count) {
        const struct chunk_descriptor *d = chunk_descriptor_at(pool, c->descriptors[c->at]);
        size_t count, fitting;

        if (d->sample_count > capacity - done || (done > 0 && d->min_time_ms >= end_ms))
            break;
        count = fitting = decode_behind(pool, d, c->given, t_ms + done, value + done);
        if (done == 0)
            end_ms = chunk_window_start_ms(chunk_window(t_ms[0]) + 1);
        while (t_ms[done + fitting - 1] >= end_ms) /* the first one is not */
            fitting--;
        done += fitting;
        c->given += fitting;
        if (fitting < count) /* the rest of the chunk begins the next run */
            break;
        c->given = 0;
        c->at++;
    }
    return done;
}

void cut_histograms_init(struct cut_histograms *c)
{
    *c = (struct cut_histograms){0};
}

void cut_histograms_done(struct cut_histograms *c)
{
    free(c->blocks);
    *c = (struct cut_histograms){0};
}

static bool blocks_reserve(struct cut_histograms *c, size_t count)
{
    struct histogram_block **grown;

    c->count = c->at = 0;
    if (count <= c->capacity)
        return true;
    grown = reallocarray(c->blocks, count + count / 2, sizeof(struct histogram_block *));
    if (grown == NULL)
        return false;
    c->blocks = grown;
    c->capacity = count + count / 2;
    return true;
}

bool cut_histograms_begin_late(struct cut_histograms *c, const struct histogram_series *series)
{
    if (!blocks_reserve(c, series->block_count))
        return false;
    c->count = series->block_count;
    memcpy(c->blocks, series->blocks, c->count * sizeof(struct histogram_block *));
    return true;
}

bool cut_histograms_begin(struct cut_histograms *c, struct shard *s, const struct series_cut *cut)
{
    const struct histogram_series *series;

    if (!blocks_reserve(c, cut->histogram_blocks))
        return false;
    if (cut->histogram_blocks == 0)
        return true;
    /* The blocks stay, but the lane's arrays move when it grows. */
    mutex_lock(&s->lock);
    series = histogram_lane_find(&s->histograms, cut->slot, cut->generation);
    ASSERT(series != NULL && series->block_count >= cut->histogram_blocks);
    c->count = cut->histogram_blocks;
    memcpy(c->blocks, series->blocks, c->count * sizeof(struct histogram_block *));
    mutex_unlock(&s->lock);
    return true;
}

/* How many samples the next blocks have that lie in one window, up to some size; *end is behind the
 * last of them. */
static size_t run_count(const struct cut_histograms *c, size_t *end)
{
    uint32_t window = chunk_window(c->blocks[c->at]->t_ms[0]);
    size_t count = 0, weight = 0, at = c->at;

    for (; at < c->count && count + c->blocks[at]->count <= CODEC_SAMPLES_MAX; at++) {
        if (chunk_window(c->blocks[at]->t_ms[0]) != window || weight >= RUN_WEIGHT)
            break;
        count += c->blocks[at]->count;
        weight += c->blocks[at]->weight;
    }
    *end = at;
    return count;
}

enum err cut_histograms_next(struct cut_histograms *c, struct arena *arena,
                             struct histogram_run *out, struct errinfo *ei)
{
    struct histogram_run run = {0};
    size_t total, end = 0;

    *out = run;
    if (c->at == c->count)
        return ERR_OK;
    total = run_count(c, &end);
    run.t_ms = ARENA_ARRAY(arena, total, int64_t);
    run.values = ARENA_ARRAY(arena, total, struct histogram);
    if (run.t_ms == NULL || run.values == NULL)
        return arena_error(arena, ei);
    for (; c->at < end; c->at++) {
        const struct histogram_block *b = c->blocks[c->at];
        enum err e = histogram_block_read(b, arena, run.values + run.count, ei);

        if (e != ERR_OK)
            return e;
        memcpy(run.t_ms + run.count, b->t_ms, b->count * sizeof *b->t_ms);
        run.count += b->count;
    }
    *out = run;
    return ERR_OK;
}

/* ---- detach ---- */

static struct chunk_descriptor *descriptor_at(const struct chunk_pool *pool, uint32_t number)
{
    return (void *)chunk_block_at(pool, number);
}

/* Copies the descriptors from `newest` down to the one in front of `stop`; returns the number of
 * the first copy, or 0 with nothing changed when a block is refused. The old ones are marked: what
 * they hold lives on. */
static uint32_t copy_newer(struct chunk_source *source, uint32_t newest, uint32_t stop)
{
    const struct chunk_pool *pool = source->pool;
    uint32_t first = 0, last = 0;

    for (uint32_t n = newest; n != stop; n = descriptor_at(pool, n)->older) {
        if (!chunk_source_reserve(source)) {
            while (first != 0) {
                uint32_t older = descriptor_at(pool, first)->older;

                chunk_source_put_back(source, first);
                first = older;
            }
            return 0;
        }
        uint32_t copy = chunk_source_take(source);
        const struct chunk_descriptor *d = descriptor_at(pool, n);
        *descriptor_at(pool, copy) = (struct chunk_descriptor){
            .min_time_ms = d->min_time_ms,
            .max_time_ms = d->max_time_ms,
            .head = d->head,
            .size_bytes = d->size_bytes,
            .sample_count = d->sample_count,
        };
        if (first == 0)
            first = copy;
        else
            descriptor_at(pool, last)->older = copy;
        last = copy;
    }
    for (uint32_t n = newest; n != stop; n = descriptor_at(pool, n)->older)
        descriptor_at(pool, n)->is_moved = 1;
    return first;
}

/* What one detach takes along. */
struct detach_count {
    uint64_t chunk_count, sample_count;
};

static bool is_listed(const struct chunk_pool *pool, uint32_t newest, uint32_t wanted)
{
    uint32_t n = newest;

    while (n != 0 && n != wanted)
        n = descriptor_at(pool, n)->older;
    return n != 0;
}

static void detach_series(struct shard *s, struct series *series, uint32_t noted,
                          struct chunk_chains *freed, struct detach_count *count)
{
    const struct chunk_pool *pool = s->blocks.pool;
    uint32_t list = series->closed, newer = 0;

    if (noted == 0 || !is_listed(pool, list, noted))
        return;
    if (list != noted) {
        newer = copy_newer(&s->blocks, list, noted);
        if (newer == 0)
            return;
    }
    for (uint32_t n = list; n != 0; n = descriptor_at(pool, n)->older) {
        const struct chunk_descriptor *d = descriptor_at(pool, n);

        freed->block_count++;
        if (d->is_moved)
            continue;
        freed->block_count += chunk_block_count(d->size_bytes);
        count->chunk_count++;
        count->sample_count += d->sample_count;
    }
    descriptor_at(pool, list)->detached = freed->head;
    freed->head = list;
    series->closed = newer;
    series->has_files = 1;
}

void shard_detach(struct shard *s, const struct series_cut *cuts, size_t count,
                  struct chunk_chains *freed)
{
    enum { AHEAD = 16 };
    struct detach_count gone = {0};
    uint64_t freed_before = freed->block_count;

    for (size_t i = 0; i < count; i++) {
        struct series *series = series_find(&s->series, cuts[i].slot);

        if (i + AHEAD < count && cuts[i + AHEAD].closed != 0)
            __builtin_prefetch(chunk_block_at(s->blocks.pool, cuts[i + AHEAD].closed));
        if (series != NULL && series->generation == cuts[i].generation)
            detach_series(s, series, cuts[i].closed, freed, &gone);
    }
    s->blocks.given += freed->block_count - freed_before;
    shard_count_detached(s, gone.chunk_count, gone.sample_count);
}

void shard_detach_histograms(struct shard *s, const struct series_cut *cuts, size_t count,
                             struct histogram_block **freed)
{
    for (size_t i = 0; i < count; i++)
        histogram_lane_detach(&s->histograms, cuts[i].slot, cuts[i].generation,
                              cuts[i].histogram_blocks, freed);
    shard_histogram_statistics(s);
}
