/*
 * See page_cache_internal.h. A shard's table has as many chains as pages, about: those of a store
 * that has thousands of small parts are some hundred bytes each, and with chains of five a query
 * over it spent a third of its time walking them.
 */
#include "engine/files/page_cache_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/thread.h"

enum { PAGE_SHARD_COUNT = 16, PAGE_CHAIN_COUNT_FIRST = 256 };

struct page_shard {
    struct mutex lock;              /* guards all below; nothing else is locked while it is held */
    struct page **chains;           /* owned; at most 16 bytes a page, which are not charged */
    size_t chain_count, page_count; /* the former a power of two */
    struct page *newest, *oldest;
    uint64_t used_bytes, limit_bytes;
    uint64_t hits, misses, evictions;
};

struct page_cache {
    struct budget *memory;
    struct page_shard shards[PAGE_SHARD_COUNT];
};

static uint64_t page_hash(uint64_t file, uint64_t offset)
{
    uint64_t h = (file * UINT64_C(0x9e3779b97f4a7c15)) ^ offset;

    h *= UINT64_C(0xbf58476d1ce4e5b9);
    return h ^ (h >> 32);
}

static struct page_shard *shard_of(struct page_cache *c, uint64_t hash)
{
    return &c->shards[hash % PAGE_SHARD_COUNT];
}

static struct page **chain_of(struct page_shard *s, uint64_t hash)
{
    return &s->chains[hash / PAGE_SHARD_COUNT & (s->chain_count - 1)];
}

static size_t page_bytes(const struct page *p)
{
    return sizeof *p + p->size;
}

enum err page_cache_new(struct budget *memory, uint64_t limit_bytes, struct page_cache **out,
                        struct errinfo *ei)
{
    struct page_cache *c = calloc(1, sizeof *c);
    bool failed = false;

    if (c == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "page cache");
    c->memory = memory;
    for (size_t i = 0; i < PAGE_SHARD_COUNT; i++) {
        struct page_shard *s = &c->shards[i];

        mutex_init(&s->lock);
        s->limit_bytes = limit_bytes / PAGE_SHARD_COUNT;
        s->chains = calloc(PAGE_CHAIN_COUNT_FIRST, sizeof(struct page *));
        s->chain_count = PAGE_CHAIN_COUNT_FIRST;
        failed |= s->chains == NULL;
    }
    if (failed) {
        page_cache_free(c);
        return errinfo_set(ei, ERR_NOMEM, 0, "page cache");
    }
    *out = c;
    return ERR_OK;
}

static void page_free(struct page *p)
{
    if (p->owner->memory != NULL)
        budget_release(p->owner->memory, page_bytes(p));
    free(p);
}

static void list_remove(struct page_shard *s, struct page *p)
{
    *(p->newer != NULL ? &p->newer->older : &s->newest) = p->older;
    *(p->older != NULL ? &p->older->newer : &s->oldest) = p->newer;
    p->newer = p->older = NULL;
}

static void list_push(struct page_shard *s, struct page *p)
{
    p->older = s->newest;
    *(p->older != NULL ? &p->older->newer : &s->oldest) = p;
    s->newest = p;
}

/* Takes a page out of the shard's table and list. */
static void shard_remove(struct page_shard *s, struct page *p)
{
    struct page **at = chain_of(s, page_hash(p->file, p->offset));

    while (*at != p)
        at = &(*at)->hash_next;
    *at = p->hash_next;
    list_remove(s, p);
    s->used_bytes -= page_bytes(p);
    s->page_count--;
    p->cached = false;
}

/* Evicts idle pages until `room` more bytes fit below `limit`: oldest first, but one that was used
 * since the last time gets another turn. */
static void shard_evict(struct page_shard *s, uint64_t room, uint64_t limit)
{
    struct page *p = s->oldest;

    while (p != NULL && s->used_bytes + room > limit) {
        struct page *next = p->newer;

        if (p->touched && next != NULL) {
            p->touched = false;
            list_remove(s, p);
            list_push(s, p);
        } else if (p->references == 0) {
            shard_remove(s, p);
            page_free(p);
            s->evictions++;
        }
        p = next;
    }
}

void page_cache_free(struct page_cache *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < PAGE_SHARD_COUNT; i++) {
        shard_evict(&c->shards[i], 1, 0);
        ASSERT(c->shards[i].newest == NULL);
        free((void *)c->shards[i].chains);
        mutex_done(&c->shards[i].lock);
    }
    free(c);
}

static struct page *shard_find(struct page_shard *s, uint64_t hash, uint64_t file, uint64_t offset)
{
    struct page *p = *chain_of(s, hash);

    while (p != NULL && (p->file != file || p->offset != offset))
        p = p->hash_next;
    if (p != NULL) {
        p->references++;
        p->touched = true;
    }
    return p;
}

struct page *page_cache_find(struct page_cache *c, uint64_t file, uint64_t offset)
{
    uint64_t hash = page_hash(file, offset);
    struct page_shard *s = shard_of(c, hash);
    struct page *p;

    mutex_lock(&s->lock);
    p = shard_find(s, hash, file, offset);
    if (p != NULL)
        s->hits++;
    else
        s->misses++;
    mutex_unlock(&s->lock);
    return p;
}

static void cache_evict_idle(struct page_cache *c)
{
    for (size_t i = 0; i < PAGE_SHARD_COUNT; i++) {
        mutex_lock(&c->shards[i].lock);
        shard_evict(&c->shards[i], 1, 0);
        mutex_unlock(&c->shards[i].lock);
    }
}

static enum err cache_charge(struct page_cache *c, size_t bytes, struct errinfo *ei)
{
    if (c->memory == NULL || budget_charge(c->memory, bytes, NULL) == ERR_OK)
        return ERR_OK;
    cache_evict_idle(c);
    return budget_charge(c->memory, bytes, ei);
}

enum err page_new(struct page_cache *c, uint64_t file, uint64_t offset, size_t size,
                  struct page **out, struct errinfo *ei)
{
    struct page *p;
    enum err e;

    if (size > SIZE_MAX / 2 - sizeof *p)
        return errinfo_set(ei, ERR_LIMIT, 0, "page of %zu bytes", size);
    e = cache_charge(c, sizeof *p + size, ei);
    if (e != ERR_OK)
        return e;
    p = malloc(sizeof *p + size);
    if (p == NULL) {
        if (c->memory != NULL)
            budget_release(c->memory, sizeof *p + size);
        return errinfo_set(ei, ERR_NOMEM, 0, "page of %zu bytes", size);
    }
    memset(p, 0, sizeof *p);
    p->owner = c;
    p->file = file;
    p->offset = offset;
    p->size = size;
    p->references = 1;
    *out = p;
    return ERR_OK;
}

static void shard_add(struct page_shard *s, struct page *p)
{
    struct page **chain = chain_of(s, page_hash(p->file, p->offset));

    p->hash_next = *chain;
    *chain = p;
}

/* Doubles the chains once there is a page for each; without memory they get longer. */
static void shard_grow(struct page_shard *s)
{
    size_t count = s->chain_count * 2;
    struct page **chains;

    if (s->page_count < s->chain_count)
        return;
    chains = calloc(count, sizeof(struct page *));
    if (chains == NULL)
        return;
    free((void *)s->chains);
    s->chains = chains;
    s->chain_count = count;
    for (struct page *p = s->oldest; p != NULL; p = p->newer)
        shard_add(s, p);
}

struct page *page_cache_enter(struct page_cache *c, struct page *page)
{
    uint64_t hash = page_hash(page->file, page->offset);
    struct page_shard *s = shard_of(c, hash);
    struct page *other;

    mutex_lock(&s->lock);
    other = shard_find(s, hash, page->file, page->offset);
    if (other == NULL) {
        shard_evict(s, page_bytes(page), s->limit_bytes);
        if (s->used_bytes + page_bytes(page) <= s->limit_bytes) {
            shard_grow(s);
            shard_add(s, page);
            list_push(s, page);
            s->page_count++;
            s->used_bytes += page_bytes(page);
            page->cached = true;
        }
    }
    mutex_unlock(&s->lock);
    if (other == NULL)
        return page;
    page_free(page);
    return other;
}

void page_release(struct page *page)
{
    struct page_shard *s;
    bool gone;

    if (page == NULL)
        return;
    s = shard_of(page->owner, page_hash(page->file, page->offset));
    mutex_lock(&s->lock);
    ASSERT(page->references > 0);
    page->references--;
    gone = page->references == 0 && !page->cached;
    mutex_unlock(&s->lock);
    if (gone)
        page_free(page);
}

void page_cache_drop_file(struct page_cache *c, uint64_t file)
{
    for (size_t i = 0; i < PAGE_SHARD_COUNT; i++) {
        struct page_shard *s = &c->shards[i];

        mutex_lock(&s->lock);
        for (struct page *p = s->oldest, *next; p != NULL; p = next) {
            next = p->newer;
            if (p->file != file)
                continue;
            shard_remove(s, p);
            if (p->references == 0)
                page_free(p);
        }
        mutex_unlock(&s->lock);
    }
}

void page_cache_stats_get(struct page_cache *c, struct page_cache_stats *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < PAGE_SHARD_COUNT; i++) {
        struct page_shard *s = &c->shards[i];

        mutex_lock(&s->lock);
        out->hits += s->hits;
        out->misses += s->misses;
        out->evictions += s->evictions;
        out->cached_bytes += s->used_bytes;
        mutex_unlock(&s->lock);
    }
}
