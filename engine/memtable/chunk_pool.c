/*
 * The pool of 32-byte blocks. Blocks are named by 32-bit numbers rather than by pointers, which
 * halves the links; a shard takes a slice of up to 256 at once, so the pool's lock is rare.
 *
 * Blocks come back when the chunks they hold are in a file. Readers may still decode those chunks,
 * so that nothing in them is changed until no epoch section can see them; then the blocks are put
 * together to slices, out of any lock: taking one is as cheap as a fresh one.
 */
#include "engine/memtable/chunk_internal.h"

#include <stdlib.h>
#include <string.h>

/* The first block of a free slice; the others are linked by `next`. */
struct free_slice {
    uint32_t next_slice, count;
    uint8_t unused[20];
    uint32_t next; /* that of the block */
};
static_assert(sizeof(struct free_slice) == sizeof(struct chunk_block), "in a block's place");
static_assert(offsetof(struct free_slice, next) == offsetof(struct chunk_block, next), "its link");

static struct free_slice *slice_at(const struct chunk_pool *pool, uint32_t number)
{
    return (struct free_slice *)(void *)chunk_block_at(pool, number);
}

enum err chunk_pool_init(struct chunk_pool *pool, struct slab *slab)
{
    *pool = (struct chunk_pool){.slab = slab};
    atomic_init(&pool->free_count, 0);
    if (epoch_domain_new(&pool->epoch, NULL) != ERR_OK)
        return ERR_NOMEM;
    /* 512 KiB of address space; the kernel backs only the pages that are written. */
    pool->regions = calloc(CHUNK_REGION_MAX, sizeof(struct chunk_block *));
    if (pool->regions == NULL) {
        epoch_domain_free(pool->epoch);
        pool->epoch = NULL;
        return ERR_NOMEM;
    }
    mutex_init(&pool->lock);
    return ERR_OK;
}

void chunk_pool_done(struct chunk_pool *pool)
{
    if (pool->regions == NULL)
        return;
    epoch_domain_free(pool->epoch); /* what waits is still given back */
    free(pool->regions);
    pool->epoch = NULL;
    pool->regions = NULL;
    mutex_done(&pool->lock);
}

uint64_t chunk_pool_free_bytes(const struct chunk_pool *pool)
{
    return atomic_load_explicit(&pool->free_count, memory_order_relaxed) *
           sizeof(struct chunk_block);
}

static void count_free(struct chunk_pool *pool, int64_t change)
{
    uint64_t count = atomic_load_explicit(&pool->free_count, memory_order_relaxed);

    atomic_store_explicit(&pool->free_count, count + (uint64_t)change, memory_order_relaxed);
}

/* ---- taking ---- */

/* A slice of blocks that nobody ever had, linked in order; 0 when memory is refused. Caller holds
 * the lock. */
static uint32_t slice_fresh(struct chunk_pool *pool, uint32_t *count)
{
    uint32_t first, end;

    if (pool->next == (uint64_t)pool->region_count * CHUNK_REGION_BLOCKS) {
        struct chunk_block *region = NULL;

        if (pool->region_count < CHUNK_REGION_MAX)
            region = slab_alloc(pool->slab, SLAB_REGION_BYTES);
        if (region == NULL)
            return 0;
        pool->regions[pool->region_count++] = region;
    }
    first = (uint32_t)pool->next;
    end = first + CHUNK_SLICE_BLOCKS;
    pool->next += CHUNK_SLICE_BLOCKS;
    if (first == 0)
        first = 1; /* number 0 means none */
    *count = end - first;
    return first;
}

static uint32_t slice_take(struct chunk_pool *pool, uint32_t *count, bool *is_fresh)
{
    uint32_t first;

    mutex_lock(&pool->lock);
    first = pool->free_slice;
    *is_fresh = first == 0;
    if (*is_fresh) {
        first = slice_fresh(pool, count);
    } else {
        *count = slice_at(pool, first)->count;
        pool->free_slice = slice_at(pool, first)->next_slice;
        count_free(pool, -(int64_t)*count);
    }
    mutex_unlock(&pool->lock);
    return first;
}

bool chunk_source_refill(struct chunk_source *source)
{
    struct chunk_pool *pool = source->pool;

    while (source->count < CHUNK_APPEND_BLOCKS_MAX) {
        uint32_t left[CHUNK_APPEND_BLOCKS_MAX], left_count = 0, count = 0;
        bool is_fresh;
        uint32_t first = slice_take(pool, &count, &is_fresh);

        if (first == 0)
            return false;
        while (source->count > 0)
            left[left_count++] = chunk_source_take(source);
        for (uint32_t i = 0; is_fresh && i < count; i++)
            chunk_block_at(pool, first + i)->next = first + i + 1; /* the last one's is rubbish */
        source->first = first;
        source->count = count;
        source->taken += count;
        while (left_count > 0) /* fewer than an append may need; they stay in front, in order */
            chunk_source_put_back(source, left[--left_count]);
    }
    return true;
}

/* ---- giving back ---- */

struct slice_builder {
    struct chunk_pool *pool;
    uint32_t first, count;
};

static void slice_publish(struct slice_builder *b)
{
    struct free_slice *slice;

    if (b->count == 0)
        return;
    slice = slice_at(b->pool, b->first);
    slice->count = b->count;
    mutex_lock(&b->pool->lock);
    slice->next_slice = b->pool->free_slice;
    b->pool->free_slice = b->first;
    count_free(b->pool, b->count);
    mutex_unlock(&b->pool->lock);
    b->first = b->count = 0;
}

static void slice_add(struct slice_builder *b, uint32_t number)
{
    chunk_block_at(b->pool, number)->next = b->first;
    b->first = number;
    if (++b->count == CHUNK_SLICE_BLOCKS)
        slice_publish(b);
}

/* The blocks of what is given back: collected to be put in order, or, where there was no memory for
 * that, straight into slices. */
struct block_sink {
    struct slice_builder builder;
    uint32_t *numbers; /* NULL: no memory */
    size_t count, capacity;
};

static void sink_add(struct block_sink *s, uint32_t number)
{
    if (s->count < s->capacity)
        s->numbers[s->count++] = number;
    else
        slice_add(&s->builder, number);
}

/* The descriptors of one list, and their tokens. */
static void list_free(struct block_sink *s, uint32_t newest)
{
    const struct chunk_pool *pool = s->builder.pool;

    for (uint32_t n = newest; n != 0;) {
        const struct chunk_descriptor d = *chunk_descriptor_at(pool, n);
        uint32_t left = d.is_moved ? 0 : chunk_block_count(d.size_bytes);

        for (uint32_t t = d.head; left > 0; left--) {
            uint32_t next = chunk_block_at(pool, t)->next;

            sink_add(s, t);
            t = next;
        }
        sink_add(s, n);
        n = d.older;
    }
}

/* Ascending, by counting digits; `spare` has room for as many. */
static void numbers_sort(uint32_t *numbers, uint32_t *spare, size_t count)
{
    enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
    uint32_t ends[DIGITS];

    for (unsigned shift = 0; shift < 32; shift += DIGIT_BITS) {
        uint32_t sum = 0;

        memset(ends, 0, sizeof ends);
        for (size_t i = 0; i < count; i++)
            ends[numbers[i] >> shift & (DIGITS - 1)]++;
        for (size_t d = 0; d < DIGITS; d++) {
            uint32_t begin = sum;

            sum += ends[d];
            ends[d] = begin;
        }
        for (size_t i = 0; i < count; i++)
            spare[ends[numbers[i] >> shift & (DIGITS - 1)]++] = numbers[i];
        memcpy(numbers, spare, count * sizeof *numbers);
    }
}

/* Blocks that lie side by side come to be taken one after the other again: without that the pool
 * would be shuffled once with every seal, and each block a sample goes to a cache miss. */
static void chains_free(struct chunk_pool *pool, uint32_t head, size_t block_count)
{
    struct block_sink s = {.builder = {.pool = pool}};

    s.numbers = calloc(2 * block_count, sizeof *s.numbers);
    s.capacity = s.numbers == NULL ? 0 : block_count;
    while (head != 0) {
        uint32_t next = chunk_descriptor_at(pool, head)->detached;

        list_free(&s, head);
        head = next;
    }
    if (s.numbers != NULL) {
        numbers_sort(s.numbers, s.numbers + s.capacity, s.count);
        while (s.count > 0) /* the last one added is the first to be taken */
            slice_add(&s.builder, s.numbers[--s.count]);
    }
    slice_publish(&s.builder);
    free(s.numbers);
}

struct retired_chains {
    struct chunk_pool *pool;
    uint32_t head;
    size_t block_count;
};

static void release_chains(void *object)
{
    struct retired_chains *r = object;

    chains_free(r->pool, r->head, r->block_count);
    free(r);
}

void chunk_chains_retire(struct chunk_pool *pool, struct chunk_chains *freed)
{
    uint32_t head = freed->head;
    size_t block_count = freed->block_count;
    struct retired_chains *r;

    *freed = (struct chunk_chains){0};
    if (head == 0)
        return;
    r = malloc(sizeof *r);
    if (r == NULL) {
        epoch_wait(pool->epoch);
        chains_free(pool, head, block_count);
        return;
    }
    *r = (struct retired_chains){pool, head, block_count};
    epoch_retire(pool->epoch, r, release_chains);
    /* Few and large, so that waiting for the domain's own turn would hold much memory back. */
    epoch_collect(pool->epoch);
}
