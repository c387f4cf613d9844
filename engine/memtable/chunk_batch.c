/*
 * Reading chunks of a batch of series.
 *
 * Blocks of one chunk are far apart: between two of them stands what all other series got
 * meanwhile. So following one chain waits for memory at every block, some 100 ns for 28 bytes, and
 * that was most of a range query. Here many chains are followed at once, first those of
 * descriptors, then those of tokens: each step fetches the next block of its chain and goes on with
 * another chain. Tokens are put together in a small buffer and decoded from there, while they are
 * in the cache.
 */
#include "engine/memtable/chunk_batch_internal.h"

#include <string.h>

#include "base/assert.h"

enum {
    GATHER_CHAINS = 32, /* followed at once; their tokens should fit the first-level cache */
    REF_NONE = -1,
};

void chunk_snapshot_take(const struct chunk_pool *pool, const struct series *series,
                         int64_t min_time_ms, int64_t max_time_ms, struct chunk_snapshot *out)
{
    out->closed = 0;
    out->open_count = 0;
    if (series->newest_ms < min_time_ms)
        return;
    if (series->closed != 0 && series_oldest_window_ms(series) <= max_time_ms)
        out->closed = series->closed;
    if (series->open_count == 0 || series->open_first_ms > max_time_ms)
        return;
    out->open_count = (uint8_t)series->open_count;
    out->open_first_ms = series->open_first_ms;
    out->open_head = series->open_head;
    out->open_tail = series->open_tail;
    memcpy(out->tail, chunk_block_at(pool, series->open_tail)->data, CHUNK_BLOCK_PAYLOAD);
    out->tail_used = (uint8_t)(series->tail_used +
                               chunk_run_token(series->run_count, out->tail + series->tail_used));
}

/* ---- closed chunks ---- */

/* A closed chunk that overlaps the range. */
struct chunk_ref {
    const struct chunk_descriptor *chunk;
    int32_t newer; /* of the same series; REF_NONE: the newest */
};

/* One series on its way through the list of its closed chunks. */
struct walk {
    uint32_t next;  /* descriptor to look at */
    int32_t oldest; /* of those found */
    uint32_t sample_count;
};

struct batch_read {
    const struct chunk_pool *pool;
    const struct chunk_snapshot *snaps;
    size_t count;
    int64_t min_time_ms, max_time_ms;
    struct arena *arena;
    struct errinfo *ei;
    struct walk *walks; /* by series */
    struct chunk_ref *refs;
    size_t ref_count, ref_capacity;
    size_t chain_count; /* open chunks included */
    /* Before the timestamps of the column at hand: what was allocated last. */
    struct arena_mark times_mark;
    const struct column *times_before; /* the last column that has timestamps of its own */
};

static bool ref_add(struct batch_read *b, struct walk *w, const struct chunk_descriptor *d)
{
    if (b->ref_count == b->ref_capacity) {
        size_t capacity = b->ref_capacity * 2 + b->count;

        b->refs = arena_grow_array(b->arena, b->refs, b->ref_capacity, capacity, sizeof *b->refs);
        if (b->refs == NULL)
            return false;
        b->ref_capacity = capacity;
    }
    b->refs[b->ref_count] = (struct chunk_ref){d, w->oldest};
    w->oldest = (int32_t)b->ref_count++;
    w->sample_count += d->sample_count;
    return true;
}

/* One step along a list; *done once nothing older matters. False when memory is refused. */
static bool walk_step(struct batch_read *b, struct walk *w, bool *done)
{
    const struct chunk_descriptor *d = chunk_descriptor_at(b->pool, w->next);

    *done = true;
    if (d->max_time_ms < b->min_time_ms)
        return true; /* all others are older */
    if (d->min_time_ms <= b->max_time_ms && !ref_add(b, w, d))
        return false;
    w->next = d->older;
    if (w->next != 0) {
        __builtin_prefetch(chunk_descriptor_at(b->pool, w->next));
        *done = false;
    }
    return true;
}

static enum err closed_find(struct batch_read *b)
{
    uint32_t active[QUERIER_READ_BATCH_MAX];
    size_t active_count = 0;

    for (size_t i = 0; i < b->count; i++) {
        b->walks[i] = (struct walk){.next = b->snaps[i].closed, .oldest = REF_NONE};
        if (b->walks[i].next == 0)
            continue;
        __builtin_prefetch(chunk_descriptor_at(b->pool, b->walks[i].next));
        active[active_count++] = (uint32_t)i;
    }
    while (active_count > 0) {
        size_t kept = 0;

        for (size_t i = 0; i < active_count; i++) {
            bool done;

            if (!walk_step(b, &b->walks[active[i]], &done))
                return arena_error(b->arena, b->ei);
            if (!done)
                active[kept++] = active[i];
        }
        active_count = kept;
    }
    return ERR_OK;
}

/* ---- tokens ---- */

/* One chunk whose tokens are being put together. */
struct chain {
    uint32_t next, tail; /* blocks; `tail`: of an open chunk, copied under the lock. 0: none */
    size_t left;         /* bytes from the blocks on; of an open chunk unknown: more than enough */
    uint8_t *tokens, *end;
    const struct chunk_snapshot *snap; /* of an open chunk */
    int64_t first_ms;
    uint32_t series, sample_count;
};

/* Takes one block; false once the chain is at its end. */
static bool chain_step(const struct chunk_pool *pool, struct chain *c)
{
    const struct chunk_block *block;

    if (c->tail != 0 && c->next == c->tail)
        return false;
    block = chunk_block_at(pool, c->next);
    memcpy(c->end, block->data, CHUNK_BLOCK_PAYLOAD); /* there is room for a whole one */
    if (c->left <= CHUNK_BLOCK_PAYLOAD) {
        c->end += c->left;
        return false;
    }
    c->end += CHUNK_BLOCK_PAYLOAD;
    c->left -= CHUNK_BLOCK_PAYLOAD;
    c->next = block->next;
    __builtin_prefetch(chunk_block_at(pool, c->next));
    return true;
}

static void chains_gather(const struct chunk_pool *pool, struct chain *chains, size_t count)
{
    uint32_t active[GATHER_CHAINS];
    size_t active_count = count;

    for (size_t i = 0; i < count; i++) {
        active[i] = (uint32_t)i;
        __builtin_prefetch(chunk_block_at(pool, chains[i].next));
    }
    while (active_count > 0) {
        size_t kept = 0;

        for (size_t i = 0; i < active_count; i++) {
            if (chain_step(pool, &chains[active[i]]))
                active[kept++] = active[i];
        }
        active_count = kept;
    }
    for (size_t i = 0; i < count; i++) {
        struct chain *c = &chains[i];

        if (c->tail != 0) {
            memcpy(c->end, c->snap->tail, sizeof c->snap->tail);
            c->end += c->snap->tail_used;
        }
        memset(c->end, 0, CHUNK_TOKENS_SLACK);
    }
}

/* ---- columns ---- */

static enum err times_begin(struct batch_read *b, size_t series, struct column *column)
{
    size_t sample_count = b->walks[series].sample_count + b->snaps[series].open_count;

    b->times_mark = arena_mark_get(b->arena);
    column->t_ms = ARENA_ARRAY(b->arena, sample_count + CHUNK_DECODE_SLACK, int64_t);
    return column->t_ms == NULL ? arena_error(b->arena, b->ei) : ERR_OK;
}

/* The series of a target were scraped together and stand side by side: mostly the column before has
 * the same timestamps. They are shared then, which keeps half of what is decoded out of the cache,
 * and lets readers tell by the pointer. */
static void times_finish(struct batch_read *b, struct column *column)
{
    const struct column *before = b->times_before;

    if (before != NULL && before->count == column->count &&
        memcmp(before->t_ms, column->t_ms, column->count * sizeof *column->t_ms) == 0) {
        column->t_ms = before->t_ms;
        arena_mark_return(b->arena, b->times_mark);
        return;
    }
    b->times_before = column;
}

/* Decodes a chunk behind what the column has, then drops what lies outside the range. */
static bool chain_decode(const struct batch_read *b, const struct chain *c, struct column *column)
{
    /* The arrays are the batch's own. */
    int64_t *t_ms = (int64_t *)(uintptr_t)column->t_ms + column->count;
    double *value = (double *)(uintptr_t)column->value + column->count;
    size_t begin = 0, end = c->sample_count;

    if (!chunk_decode(c->tokens, (size_t)(c->end - c->tokens), c->first_ms, c->sample_count, t_ms,
                      value))
        return false;
    while (begin < end && t_ms[begin] < b->min_time_ms)
        begin++;
    while (end > begin && t_ms[end - 1] > b->max_time_ms)
        end--;
    if (begin > 0) {
        memmove(t_ms, t_ms + begin, (end - begin) * sizeof *t_ms);
        memmove(value, value + begin, (end - begin) * sizeof *value);
    }
    column->count += end - begin;
    return true;
}

static enum err columns_make(struct batch_read *b, struct column *out)
{
    for (size_t i = 0; i < b->count; i++) {
        size_t sample_count = b->walks[i].sample_count + b->snaps[i].open_count;

        out[i] = (struct column){0};
        if (sample_count == 0)
            continue;
        out[i].value = ARENA_ARRAY(b->arena, sample_count + CHUNK_DECODE_SLACK, double);
        if (out[i].value == NULL)
            return arena_error(b->arena, b->ei);
        b->chain_count += b->snaps[i].open_count > 0;
    }
    b->chain_count += b->ref_count;
    return ERR_OK;
}

/* All chunks, those of a series from the oldest on. */
static void chains_list(const struct batch_read *b, struct chain *chains)
{
    size_t n = 0;

    for (size_t i = 0; i < b->count; i++) {
        const struct chunk_snapshot *snap = &b->snaps[i];

        for (int32_t at = b->walks[i].oldest; at != REF_NONE; at = b->refs[at].newer) {
            const struct chunk_descriptor *d = b->refs[at].chunk;

            chains[n++] = (struct chain){.next = d->head,
                                         .left = d->size_bytes,
                                         .first_ms = d->min_time_ms,
                                         .series = (uint32_t)i,
                                         .sample_count = d->sample_count};
        }
        if (snap->open_count > 0)
            chains[n++] = (struct chain){.next = snap->open_head,
                                         .tail = snap->open_tail,
                                         .left = SIZE_MAX,
                                         .snap = snap,
                                         .first_ms = snap->open_first_ms,
                                         .series = (uint32_t)i,
                                         .sample_count = snap->open_count};
    }
    ASSERT(n == b->chain_count);
}

/* What a chain may take in the buffer, the last block whole, and what is read behind it. */
static size_t chain_room(const struct chain *c)
{
    size_t size = c->tail == 0 ? c->left : (size_t)c->sample_count * CHUNK_SAMPLE_BYTES_MAX;

    return (size_t)chunk_block_count(size) * CHUNK_BLOCK_PAYLOAD + CHUNK_BLOCK_PAYLOAD +
           CHUNK_TOKENS_SLACK;
}

/* What the chains of a group take in the buffer, at most. */
static size_t chains_room(const struct chain *chains, size_t count)
{
    size_t largest = 0;

    for (size_t i = 0; i < count; i += GATHER_CHAINS) {
        size_t room = 0;

        for (size_t k = i; k < count && k < i + GATHER_CHAINS; k++)
            room += chain_room(&chains[k]);
        largest = room > largest ? room : largest;
    }
    return largest;
}

/* Columns of chains [first, first + count) of those of the batch. */
static enum err chains_read(struct batch_read *b, struct chain *chains, size_t first, size_t count,
                            uint8_t *tokens, struct column *out)
{
    enum err e = ERR_OK;

    for (size_t i = first; i < first + count; i++) {
        chains[i].tokens = chains[i].end = tokens;
        tokens += chain_room(&chains[i]);
    }
    chains_gather(b->pool, chains + first, count);
    for (size_t i = first; i < first + count && e == ERR_OK; i++) {
        uint32_t series = chains[i].series;

        if (i == 0 || chains[i - 1].series != series)
            e = times_begin(b, series, &out[series]);
        if (e == ERR_OK && !chain_decode(b, &chains[i], &out[series]))
            e = errinfo_set(b->ei, ERR_INTERNAL, 0, "a chunk in memory does not decode");
        if (e == ERR_OK && (i + 1 == b->chain_count || chains[i + 1].series != series))
            times_finish(b, &out[series]);
    }
    return e;
}

enum err chunk_batch_read(const struct chunk_pool *pool, const struct chunk_snapshot *snaps,
                          size_t count, int64_t min_time_ms, int64_t max_time_ms,
                          struct arena *arena, struct column *out, struct errinfo *ei)
{
    struct batch_read b = {.pool = pool,
                           .snaps = snaps,
                           .count = count,
                           .min_time_ms = min_time_ms,
                           .max_time_ms = max_time_ms,
                           .arena = arena,
                           .ei = ei};
    struct chain *chains;
    uint8_t *tokens;
    enum err e;

    ASSERT(count <= QUERIER_READ_BATCH_MAX);
    b.walks = ARENA_ARRAY(arena, count, struct walk);
    e = b.walks == NULL ? arena_error(arena, ei) : closed_find(&b);
    if (e == ERR_OK)
        e = columns_make(&b, out);
    if (e != ERR_OK)
        return e;
    chains = ARENA_ARRAY(arena, b.chain_count, struct chain);
    if (chains == NULL)
        return arena_error(arena, ei);
    chains_list(&b, chains);
    tokens = arena_alloc(arena, chains_room(chains, b.chain_count));
    if (tokens == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < b.chain_count && e == ERR_OK; i += GATHER_CHAINS) {
        size_t left = b.chain_count - i;

        e = chains_read(&b, chains, i, left < GATHER_CHAINS ? left : GATHER_CHAINS, tokens, out);
    }
    return e;
}
