/*
 * The pool of 32-byte blocks. Blocks are named by 32-bit numbers rather than by pointers, which
 * halves the links; a shard takes a slice of 256 at once, so the pool's lock is rare. Nothing is
 * given back in this version: memory ends with the engine.
 */
#include "engine/chunk_internal.h"

#include <stdlib.h>

enum err chunk_pool_init(struct chunk_pool *pool, struct slab *slab)
{
    *pool = (struct chunk_pool){.slab = slab};
    /* 512 KiB of address space; the kernel backs only the pages that are written. */
    pool->regions = calloc(CHUNK_REGION_MAX, sizeof(struct chunk_block *));
    if (pool->regions == NULL)
        return ERR_NOMEM;
    pool->next = 0;
    mutex_init(&pool->lock);
    return ERR_OK;
}

void chunk_pool_done(struct chunk_pool *pool)
{
    if (pool->regions == NULL)
        return;
    free(pool->regions);
    pool->regions = NULL;
    mutex_done(&pool->lock);
}

bool chunk_source_refill(struct chunk_source *source)
{
    struct chunk_pool *pool = source->pool;
    bool ok = true;

    mutex_lock(&pool->lock);
    if (pool->next == (uint64_t)pool->region_count * CHUNK_REGION_BLOCKS) {
        struct chunk_block *region = NULL;

        if (pool->region_count < CHUNK_REGION_MAX)
            region = slab_alloc(pool->slab, SLAB_REGION_BYTES);
        if (region == NULL) {
            ok = false;
            goto out;
        }
        pool->regions[pool->region_count++] = region;
    }
    source->next = (uint32_t)pool->next;
    source->end = source->next + CHUNK_SLICE_BLOCKS;
    pool->next += CHUNK_SLICE_BLOCKS;
    if (source->next == 0)
        source->next = 1; /* number 0 means none */
out:
    mutex_unlock(&pool->lock);
    return ok;
}
