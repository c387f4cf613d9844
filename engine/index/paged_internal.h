/*
 * An array whose items never move: pages that start small and double up to 512 items. Growing it
 * costs one page, never a copy of the whole, so a writer can grow it while it holds a lock. The
 * page directory itself is copied when it doubles: 8 bytes for every 512 items.
 */
#ifndef RIMSTONE_ENGINE_INDEX_PAGED_INTERNAL_H
#define RIMSTONE_ENGINE_INDEX_PAGED_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/budget.h"
#include "base/err.h"

enum {
    PAGED_FIRST_BITS = 2, /* page 0 holds 4 items, page k up to 7 holds 2 << k */
    PAGED_FULL_BITS = 9,  /* later pages hold 512 */
    PAGED_FULL_ITEMS = 1 << PAGED_FULL_BITS,
};

/* Memory of one index: what is charged, and growth that waits to be charged. */
struct index_memory {
    struct budget *budget;    /* borrowed, may be NULL */
    uint64_t charged_bytes;   /* returned to the budget by index_memory_done() */
    uint64_t uncharged_bytes; /* growth of bitmaps that could not be refused; settled by the next
                               * index_memory_settle() */
};

/* Zeroed memory, charged. ERR_LIMIT when the budget refuses, ERR_NOMEM when the machine does. */
MUST_USE enum err index_memory_alloc(struct index_memory *m, size_t size, void **out,
                                     struct errinfo *ei);
void index_memory_free(struct index_memory *m, void *p, size_t size);
/* Charges what is outstanding once it is worth an atomic operation. */
MUST_USE enum err index_memory_settle(struct index_memory *m, struct errinfo *ei);
/* Releases whatever is charged. */
void index_memory_done(struct index_memory *m);

struct paged {
    void **pages; /* owned, with every page; NULL entries: never touched */
    uint32_t page_capacity;
    uint32_t item_size;
};

static inline uint32_t paged_page_of(uint32_t i, uint32_t *offset)
{
    uint32_t bit;

    if (LIKELY(i >= PAGED_FULL_ITEMS)) {
        *offset = i & (PAGED_FULL_ITEMS - 1);
        return (i >> PAGED_FULL_BITS) + PAGED_FULL_BITS - PAGED_FIRST_BITS;
    }
    if (i < 1U << PAGED_FIRST_BITS) {
        *offset = i;
        return 0;
    }
    bit = 31U - (uint32_t)__builtin_clz(i);
    *offset = i - (1U << bit);
    return bit - PAGED_FIRST_BITS + 1;
}

/* Item i, whose page must exist. */
static inline void *paged_at(const struct paged *p, uint32_t i)
{
    uint32_t offset;
    uint32_t page = paged_page_of(i, &offset);

    return (char *)p->pages[page] + (size_t)offset * p->item_size;
}
/* Item i, or NULL when its page was never made. */
static inline void *paged_find(const struct paged *p, uint32_t i)
{
    uint32_t offset;
    uint32_t page = paged_page_of(i, &offset);

    if (page >= p->page_capacity || p->pages[page] == NULL)
        return NULL;
    return (char *)p->pages[page] + (size_t)offset * p->item_size;
}

/* Makes the page of item i, zeroed, if it is not there yet. Nothing changes on failure. */
MUST_USE enum err paged_ensure(struct paged *p, struct index_memory *m, uint32_t i,
                               struct errinfo *ei);
/* Frees the pages; the charge goes with index_memory_done(). */
void paged_done(struct paged *p);

#endif
