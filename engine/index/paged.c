/*
 * Memory of an index: charged allocations and arrays that grow by pages.
 */
#include "engine/index/paged_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SETTLE_BYTES = 4096, PAGE_DIRECTORY_MIN = 4 };

static enum err charge(struct index_memory *m, size_t size, struct errinfo *ei)
{
    enum err e = m->budget == NULL ? ERR_OK : budget_charge(m->budget, size, ei);

    if (e == ERR_OK)
        m->charged_bytes += size;
    return e;
}

enum err index_memory_alloc(struct index_memory *m, size_t size, void **out, struct errinfo *ei)
{
    enum err e = charge(m, size, ei);
    void *p;

    if (e != ERR_OK)
        return e;
    p = calloc(1, size);
    if (p == NULL) {
        index_memory_free(m, NULL, size);
        (void)errinfo_set(ei, ERR_NOMEM, 0, "index: %zu bytes", size);
        return ERR_NOMEM;
    }
    *out = p;
    return ERR_OK;
}

void index_memory_free(struct index_memory *m, void *p, size_t size)
{
    free(p);
    m->charged_bytes -= size;
    if (m->budget != NULL)
        budget_release(m->budget, size);
}

enum err index_memory_settle(struct index_memory *m, struct errinfo *ei)
{
    enum err e;

    if (m->uncharged_bytes < SETTLE_BYTES)
        return ERR_OK;
    e = charge(m, m->uncharged_bytes, ei);
    if (e == ERR_OK)
        m->uncharged_bytes = 0;
    return e;
}

void index_memory_done(struct index_memory *m)
{
    if (m->budget != NULL)
        budget_release(m->budget, m->charged_bytes);
    m->charged_bytes = 0;
    m->uncharged_bytes = 0;
}

static enum err grow_directory(struct paged *p, struct index_memory *m, uint32_t page,
                               struct errinfo *ei)
{
    uint32_t capacity =
        p->page_capacity < PAGE_DIRECTORY_MIN ? PAGE_DIRECTORY_MIN : p->page_capacity * 2;
    void *pages;
    enum err e;

    /* The page number is below 2^23 + 7, so the doubling does not wrap. */
    while (capacity <= page)
        capacity *= 2;
    e = index_memory_alloc(m, capacity * sizeof(void *), &pages, ei);
    if (e != ERR_OK)
        return e;
    if (p->page_capacity != 0)
        memcpy(pages, p->pages, p->page_capacity * sizeof(void *));
    index_memory_free(m, p->pages, p->page_capacity * sizeof(void *));
    p->pages = pages;
    p->page_capacity = capacity;
    return ERR_OK;
}

static size_t page_size_bytes(const struct paged *p, uint32_t page)
{
    size_t items = PAGED_FULL_ITEMS;

    if (page == 0)
        items = 1U << PAGED_FIRST_BITS;
    else if (page <= PAGED_FULL_BITS - PAGED_FIRST_BITS)
        items = 2U << page;
    return items * p->item_size;
}

enum err paged_ensure(struct paged *p, struct index_memory *m, uint32_t i, struct errinfo *ei)
{
    uint32_t offset;
    uint32_t page = paged_page_of(i, &offset);
    enum err e;

    if (page >= p->page_capacity && (e = grow_directory(p, m, page, ei)) != ERR_OK)
        return e;
    if (p->pages[page] != NULL)
        return ERR_OK;
    return index_memory_alloc(m, page_size_bytes(p, page), &p->pages[page], ei);
}

void paged_done(struct paged *p)
{
    for (uint32_t i = 0; i < p->page_capacity; i++)
        free(p->pages[i]);
    free(p->pages);
    p->pages = NULL;
    p->page_capacity = 0;
}
