/*
 * Memory of the memtable: large regions that live as long as the engine, handed out in pieces.
 *
 * Series pages and chunk blocks are never returned to the machine one by one, and they make up most
 * of the process. Asking for 2 MiB regions lets the kernel back them with huge pages: a batch of
 * random series otherwise spends its time on TLB misses.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_SLAB_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_SLAB_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/thread.h"

enum { SLAB_REGION_BYTES = 2 << 20 };

struct slab_region;

struct slab {
    struct budget *memory; /* borrowed, may be NULL; charged by whole regions */
    struct mutex lock;     /* guards everything below */
    struct slab_region *regions;
    size_t region_count, region_capacity;
    size_t used_bytes; /* of the newest region */
};

void slab_init(struct slab *slab, struct budget *memory);
/* Frees every region; nothing handed out may be used afterwards. */
void slab_done(struct slab *slab);
/* A zeroed piece that is never freed before slab_done(). `size_bytes` divides SLAB_REGION_BYTES.
 * NULL when the budget or the machine refuses. Any thread. */
void *slab_alloc(struct slab *slab, size_t size_bytes);

#endif
