/*
 * Posting lists: which slots carry a label value. Most are short, a few hold every slot of the
 * shard, so there are three forms: up to 2 slots inline, a sorted array up to 64 from a pool of
 * size classes, and a roaring bitmap above. Not thread-safe: index.lock covers them.
 */
#ifndef RIMSTONE_ENGINE_INDEX_POSTINGS_INTERNAL_H
#define RIMSTONE_ENGINE_INDEX_POSTINGS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/index/paged_internal.h"

struct roaring_bitmap_s;

enum { POSTINGS_INLINE_MAX = 2, POSTINGS_ARRAY_MAX = 64, POSTINGS_CLASS_COUNT = 9 };

enum postings_form { POSTINGS_INLINE, POSTINGS_ARRAY, POSTINGS_BITMAP };

/* 16 bytes; zero is an empty list. */
struct postings {
    union {
        uint32_t few[POSTINGS_INLINE_MAX]; /* ascending */
        uint32_t *slots;                   /* ascending; in the pool */
        struct roaring_bitmap_s *bitmap;   /* owned */
    };
    uint32_t count;
    uint32_t form : 2; /* enum postings_form */
    /* Array: its class. Bitmap: bytes accounted for, in units of 16. */
    uint32_t size : 30;
};

/* Arrays of the classes, cut from chunks and never given back to the machine before the end. */
struct postings_pool {
    struct index_memory *memory; /* borrowed */
    void *chunks;                /* owned, a chain */
    char *pos, *end;
    size_t next_chunk_bytes;
    uint32_t *free[POSTINGS_CLASS_COUNT]; /* chains of returned arrays */
};

void postings_pool_init(struct postings_pool *pool, struct index_memory *memory);
void postings_pool_done(struct postings_pool *pool);

/* Makes room for one more slot, so that postings_add() cannot fail. */
MUST_USE enum err postings_reserve(struct postings_pool *pool, struct postings *p,
                                   struct errinfo *ei);
/* Adds a slot that is not in the list; cheapest when it is the largest. The growth of a bitmap is
 * noted as uncharged memory: CRoaring has no way to refuse it. */
void postings_add(struct postings_pool *pool, struct postings *p, uint32_t slot);
/* Fills an empty list with `count` slots, which ascend. Nothing changes on failure. */
MUST_USE enum err postings_fill(struct postings_pool *pool, struct postings *p,
                                const uint32_t *slots, uint32_t count, struct errinfo *ei);
/* Frees a bitmap; arrays go with the pool. */
void postings_done(struct postings *p);

/* Up to `max` slots >= from, ascending; returns how many. */
size_t postings_read(const struct postings *p, uint32_t from, uint32_t *out, size_t max);
/* target |= p, target &= p, target -= p. */
void postings_or_into(const struct postings *p, struct roaring_bitmap_s *target);
void postings_and_into(const struct postings *p, struct roaring_bitmap_s *target);
void postings_andnot_into(const struct postings *p, struct roaring_bitmap_s *target);
/* What an operation on p costs, in slots touched: a bitmap works by words. For slicing. */
static inline size_t postings_cost(const struct postings *p)
{
    return p->form == POSTINGS_BITMAP ? 64 + p->count / 32 : 1 + p->count;
}

#endif
