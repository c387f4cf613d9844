/*
 * A bounded cache of file pages that have been verified. Sixteen shards by hash, each a hash table
 * and a list under its own mutex. A hit only marks its page: to move it would touch its neighbours
 * in the list, three cache misses that cost more than all else about a hit. What is evicted is the
 * oldest page that was not used since it was last looked at (a clock).
 *
 * The limit holds for pages that nobody uses; a page in use is never evicted. One that finds no
 * room is handed out all the same and freed with its last reference, so a reader gets on however
 * small the cache is. All pages are charged to the budget.
 */
#ifndef RIMSTONE_ENGINE_FILES_PAGE_CACHE_INTERNAL_H
#define RIMSTONE_ENGINE_FILES_PAGE_CACHE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"

struct page_cache;

struct page {
    struct page_cache *owner;
    struct page *hash_next, *newer, *older; /* the shard's mutex */
    uint64_t file, offset;                  /* constant, as are size and data once it is shared */
    size_t size;
    uint32_t references;        /* the shard's mutex */
    bool cached, touched;       /* the shard's mutex */
    _Alignas(8) uint8_t data[]; /* also arrays of numbers, see part_decoded_new() */
};

MUST_USE enum err page_cache_new(struct budget *memory, uint64_t limit_bytes,
                                 struct page_cache **out, struct errinfo *ei);
/* No page may be in use. Accepts NULL. */
void page_cache_free(struct page_cache *c);

/* The page with a reference for the caller, or NULL. */
struct page *page_cache_find(struct page_cache *c, uint64_t file, uint64_t offset);
/* A page for the caller to fill, with one reference; nobody else sees it yet. Evicts idle pages
 * when the budget is spent; ERR_LIMIT when that does not help. */
MUST_USE enum err page_new(struct page_cache *c, uint64_t file, uint64_t offset, size_t size,
                           struct page **out, struct errinfo *ei);
/* Enters a filled page. Returns it, or the one another thread has entered meanwhile; the caller's
 * reference is on what is returned. */
struct page *page_cache_enter(struct page_cache *c, struct page *page);
void page_release(struct page *page); /* Accepts NULL. */
/* Forgets the pages of a file; those in use go with their last reference. */
void page_cache_drop_file(struct page_cache *c, uint64_t file);

struct page_cache_stats {
    uint64_t hits, misses, evictions, cached_bytes;
};
void page_cache_stats_get(struct page_cache *c, struct page_cache_stats *out);

#endif
