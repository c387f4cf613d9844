/*
 * Regions of 2 MiB, aligned to their size, asked to be huge pages. Pages of anonymous memory arrive
 * zeroed, so that no piece is cleared by hand while somebody waits.
 */
#include "engine/memtable/slab_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"

struct slab_region {
    char *memory;
};

void slab_init(struct slab *slab, struct budget *memory)
{
    *slab = (struct slab){.memory = memory};
    mutex_init(&slab->lock);
}

void slab_done(struct slab *slab)
{
    for (size_t i = 0; i < slab->region_count; i++) {
        (void)munmap(slab->regions[i].memory, SLAB_REGION_BYTES); /* only our bug makes it fail */
        if (slab->memory != NULL)
            budget_release(slab->memory, SLAB_REGION_BYTES);
    }
    free(slab->regions);
    slab->regions = NULL;
    slab->region_count = slab->region_capacity = 0;
    mutex_done(&slab->lock);
}

/* Maps twice the size and gives the unaligned ends back. */
static char *region_map(void)
{
    /* allow(mmap): anonymous memory, not a file */
    char *p = mmap(NULL, (size_t)2 * SLAB_REGION_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *aligned;

    if (p == MAP_FAILED)
        return NULL;
    aligned = p + (SLAB_REGION_BYTES - (uintptr_t)p % SLAB_REGION_BYTES) % SLAB_REGION_BYTES;
    if (aligned > p)
        (void)munmap(p, (size_t)(aligned - p));
    if (aligned < p + SLAB_REGION_BYTES)
        (void)munmap(aligned + SLAB_REGION_BYTES, (size_t)(p + SLAB_REGION_BYTES - aligned));
    /* Advice only: without huge pages everything works, a little slower. */
    (void)madvise(aligned, SLAB_REGION_BYTES, MADV_HUGEPAGE);
    return aligned;
}

static bool slab_grow(struct slab *slab)
{
    char *memory;

    if (slab->region_count == slab->region_capacity) {
        size_t capacity = slab->region_capacity == 0 ? 64 : 2 * slab->region_capacity;
        void *grown = realloc(slab->regions, capacity * sizeof *slab->regions);

        if (grown == NULL)
            return false;
        slab->regions = grown;
        slab->region_capacity = capacity;
    }
    if (slab->memory != NULL && budget_charge(slab->memory, SLAB_REGION_BYTES, NULL) != ERR_OK)
        return false;
    memory = region_map();
    if (memory == NULL) {
        if (slab->memory != NULL)
            budget_release(slab->memory, SLAB_REGION_BYTES);
        return false;
    }
    slab->regions[slab->region_count++].memory = memory;
    slab->used_bytes = 0;
    return true;
}

void *slab_alloc(struct slab *slab, size_t size_bytes)
{
    void *out = NULL;

    ASSERT(size_bytes > 0 && SLAB_REGION_BYTES % size_bytes == 0);
    mutex_lock(&slab->lock);
    if (slab->region_count == 0 || slab->used_bytes + size_bytes > SLAB_REGION_BYTES) {
        if (!slab_grow(slab))
            goto out;
    }
    out = slab->regions[slab->region_count - 1].memory + slab->used_bytes;
    slab->used_bytes += size_bytes;
out:
    mutex_unlock(&slab->lock);
    return out;
}
