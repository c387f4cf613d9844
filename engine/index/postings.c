/*
 * Posting lists in three forms.
 *
 * CRoaring allocates by itself and cannot be told of a budget, so the bytes of a bitmap are
 * followed from outside: its containers' capacities are read after each addition that may have
 * grown one. CRoaring 0.2.66 does not check its allocations; the memory limit, which refuses writes
 * long before the machine is out of memory, is what keeps that from mattering.
 */
#include "engine/index/postings_internal.h"

#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static const uint8_t CLASS_SLOTS[POSTINGS_CLASS_COUNT] = {4, 6, 8, 12, 16, 24, 32, 48, 64};

enum { POOL_CHUNK_MIN_BYTES = 1024, POOL_CHUNK_MAX_BYTES = 32768, BITMAP_UNIT_BYTES = 16 };

#define POSTINGS_SIZE_MASK 0x3fffffffU

struct pool_chunk {
    struct pool_chunk *next;
    uint64_t pad; /* keeps what follows 16-byte aligned */
};

void postings_pool_init(struct postings_pool *pool, struct index_memory *memory)
{
    memset(pool, 0, sizeof *pool);
    pool->memory = memory;
    pool->next_chunk_bytes = POOL_CHUNK_MIN_BYTES;
}

void postings_pool_done(struct postings_pool *pool)
{
    struct pool_chunk *c = pool->chunks;

    while (c != NULL) {
        struct pool_chunk *next = c->next;

        free(c);
        c = next;
    }
    pool->chunks = NULL;
}

static enum err pool_grow(struct postings_pool *pool, struct errinfo *ei)
{
    size_t size = pool->next_chunk_bytes;
    void *memory;
    struct pool_chunk *c;
    enum err e = index_memory_alloc(pool->memory, size, &memory, ei);

    if (e != ERR_OK)
        return e;
    c = memory;
    c->next = pool->chunks;
    pool->chunks = c;
    pool->pos = (char *)(c + 1);
    pool->end = (char *)c + size;
    if (size < POOL_CHUNK_MAX_BYTES)
        pool->next_chunk_bytes = size * 2;
    return ERR_OK;
}

static enum err pool_take(struct postings_pool *pool, uint32_t class, uint32_t **out,
                          struct errinfo *ei)
{
    size_t size = CLASS_SLOTS[class] * sizeof(uint32_t);
    uint32_t *array = pool->free[class];
    enum err e;

    if (array != NULL) {
        void *next;

        memcpy(&next, array, sizeof next);
        pool->free[class] = next;
        *out = array;
        return ERR_OK;
    }
    if ((size_t)(pool->end - pool->pos) < size && (e = pool_grow(pool, ei)) != ERR_OK)
        return e;
    /* The tail of the old chunk, under 256 bytes, is left unused. */
    *out = (uint32_t *)(void *)pool->pos;
    pool->pos += size;
    return ERR_OK;
}

static void pool_return(struct postings_pool *pool, uint32_t class, uint32_t *array)
{
    void *next = pool->free[class];

    memcpy(array, &next, sizeof next); /* the smallest array has room for a pointer */
    pool->free[class] = array;
}

static size_t container_bytes(const roaring_array_t *ra, int32_t i)
{
    const void *c = ra->containers[i];

    if (ra->typecodes[i] == BITSET_CONTAINER_TYPE_CODE)
        return sizeof(bitset_container_t) + BITSET_CONTAINER_SIZE_IN_WORDS * sizeof(uint64_t);
    /* Only additions are made, so there are no runs and nothing is shared. */
    return sizeof(array_container_t) +
           (size_t)((const array_container_t *)c)->capacity * sizeof(uint16_t);
}

static size_t directory_bytes(const roaring_array_t *ra)
{
    return sizeof(roaring_bitmap_t) +
           (size_t)ra->allocation_size * (sizeof(void *) + sizeof(uint16_t) + sizeof(uint8_t));
}

static size_t bitmap_bytes(const roaring_bitmap_t *b)
{
    const roaring_array_t *ra = &b->high_low_container;
    size_t n = directory_bytes(ra);

    for (int32_t i = 0; i < ra->size; i++)
        n += container_bytes(ra, i);
    return n;
}

static void note_bitmap_size(struct postings_pool *pool, struct postings *p)
{
    uint32_t units = (uint32_t)(bitmap_bytes(p->bitmap) / BITMAP_UNIT_BYTES) + 1;

    if (units > p->size)
        pool->memory->uncharged_bytes += (uint64_t)(units - p->size) * BITMAP_UNIT_BYTES;
    p->size = units & POSTINGS_SIZE_MASK; /* a container only shrinks when it turns into a bitset */
}

/* The common case without CRoaring's search: the slot goes behind all others of the last container
 * and nothing grows. */
static bool append_to_last(const roaring_array_t *ra, uint32_t slot)
{
    int32_t last = ra->size - 1;
    uint16_t low = (uint16_t)slot;

    if (ra->keys[last] != slot >> 16)
        return false;
    if (ra->typecodes[last] == ARRAY_CONTAINER_TYPE_CODE) {
        array_container_t *array = ra->containers[last];

        if (array->cardinality == array->capacity || array->array[array->cardinality - 1] >= low)
            return false;
        array->array[array->cardinality++] = low;
        return true;
    }
    bitset_container_t *bits = ra->containers[last];

    DEBUG_ASSERT(ra->typecodes[last] == BITSET_CONTAINER_TYPE_CODE);
    bits->array[low / 64] |= UINT64_C(1) << low % 64; /* a slot is added once */
    bits->cardinality++;
    return true;
}

static void add_to_bitmap(struct postings_pool *pool, struct postings *p, uint32_t slot)
{
    if (append_to_last(&p->bitmap->high_low_container, slot))
        return;
    roaring_bitmap_add(p->bitmap, slot);
    note_bitmap_size(pool, p);
}

/* Moves an inline list or a full array to an array of the next class. */
static enum err grow_array(struct postings_pool *pool, struct postings *p, struct errinfo *ei)
{
    bool was_array = p->form == POSTINGS_ARRAY;
    uint32_t class = was_array ? p->size + 1 : 0;
    uint32_t *array;
    enum err e = pool_take(pool, class, &array, ei);

    if (e != ERR_OK)
        return e;
    memcpy(array, was_array ? p->slots : p->few, p->count * sizeof *array);
    if (was_array)
        pool_return(pool, p->size, p->slots);
    p->slots = array;
    p->form = POSTINGS_ARRAY;
    p->size = class & POSTINGS_SIZE_MASK;
    return ERR_OK;
}

/* Makes p a bitmap of slots that ascend. */
static enum err bitmap_new(struct postings_pool *pool, struct postings *p, const uint32_t *slots,
                           uint32_t count, struct errinfo *ei)
{
    roaring_bitmap_t *b =
        roaring_bitmap_create_with_capacity(1 + (slots[count - 1] >> 16) - (slots[0] >> 16));

    if (b == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "index: posting list");
    roaring_bitmap_add_many(b, count, slots);
    p->bitmap = b;
    p->form = POSTINGS_BITMAP;
    p->size = 0;
    note_bitmap_size(pool, p);
    return ERR_OK;
}

static enum err array_to_bitmap(struct postings_pool *pool, struct postings *p, struct errinfo *ei)
{
    uint32_t *array = p->slots, class = p->size;
    enum err e = bitmap_new(pool, p, array, p->count, ei);

    if (e == ERR_OK)
        pool_return(pool, class, array);
    return e;
}

enum err postings_reserve(struct postings_pool *pool, struct postings *p, struct errinfo *ei)
{
    if (p->form == POSTINGS_BITMAP ||
        (p->form == POSTINGS_INLINE && p->count < POSTINGS_INLINE_MAX))
        return ERR_OK;
    if (p->form == POSTINGS_ARRAY && p->count < CLASS_SLOTS[p->size])
        return ERR_OK;
    if (p->count == POSTINGS_ARRAY_MAX)
        return array_to_bitmap(pool, p, ei);
    return grow_array(pool, p, ei);
}

void postings_add(struct postings_pool *pool, struct postings *p, uint32_t slot)
{
    uint32_t *slots = p->form == POSTINGS_INLINE ? p->few : p->slots;
    uint32_t i = p->count++;

    if (p->form == POSTINGS_BITMAP) {
        add_to_bitmap(pool, p, slot);
        return;
    }
    while (i > 0 && slots[i - 1] > slot) {
        slots[i] = slots[i - 1];
        i--;
    }
    slots[i] = slot;
}

enum err postings_fill(struct postings_pool *pool, struct postings *p, const uint32_t *slots,
                       uint32_t count, struct errinfo *ei)
{
    uint32_t class = 0, *array;
    enum err e;

    ASSERT(p->count == 0 && p->form == POSTINGS_INLINE);
    if (count <= POSTINGS_INLINE_MAX) {
        memcpy(p->few, slots, count * sizeof *slots);
    } else if (count <= POSTINGS_ARRAY_MAX) {
        while (CLASS_SLOTS[class] < count)
            class ++;
        e = pool_take(pool, class, &array, ei);
        if (e != ERR_OK)
            return e;
        memcpy(array, slots, count * sizeof *slots);
        p->slots = array;
        p->form = POSTINGS_ARRAY;
        p->size = class & POSTINGS_SIZE_MASK;
    } else {
        e = bitmap_new(pool, p, slots, count, ei);
        if (e != ERR_OK)
            return e;
    }
    p->count = count;
    return ERR_OK;
}

void postings_done(struct postings *p)
{
    if (p->form == POSTINGS_BITMAP)
        roaring_bitmap_free(p->bitmap);
    memset(p, 0, sizeof *p);
}

static const uint32_t *sorted_slots(const struct postings *p)
{
    return p->form == POSTINGS_INLINE ? p->few : p->slots;
}

size_t postings_read(const struct postings *p, uint32_t from, uint32_t *out, size_t max)
{
    const uint32_t *slots = sorted_slots(p);
    size_t n = 0;

    if (p->form == POSTINGS_BITMAP) {
        roaring_uint32_iterator_t it;

        roaring_init_iterator(p->bitmap, &it);
        if (from != 0 && !roaring_move_uint32_iterator_equalorlarger(&it, from))
            return 0;
        return roaring_read_uint32_iterator(&it, out, max > INT32_MAX ? INT32_MAX : (uint32_t)max);
    }
    for (uint32_t i = 0; i < p->count && n < max; i++) {
        if (slots[i] >= from)
            out[n++] = slots[i];
    }
    return n;
}

void postings_or_into(const struct postings *p, roaring_bitmap_t *target)
{
    if (p->form == POSTINGS_BITMAP)
        roaring_bitmap_or_inplace(target, p->bitmap);
    else
        roaring_bitmap_add_many(target, p->count, sorted_slots(p));
}

void postings_and_into(const struct postings *p, roaring_bitmap_t *target)
{
    uint32_t kept[POSTINGS_ARRAY_MAX];
    size_t n = 0;

    if (p->form == POSTINGS_BITMAP) {
        roaring_bitmap_and_inplace(target, p->bitmap);
        return;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        if (roaring_bitmap_contains(target, sorted_slots(p)[i]))
            kept[n++] = sorted_slots(p)[i];
    }
    roaring_bitmap_clear(target);
    roaring_bitmap_add_many(target, n, kept);
}

void postings_andnot_into(const struct postings *p, roaring_bitmap_t *target)
{
    if (p->form == POSTINGS_BITMAP) {
        roaring_bitmap_andnot_inplace(target, p->bitmap);
        return;
    }
    for (uint32_t i = 0; i < p->count; i++)
        roaring_bitmap_remove(target, sorted_slots(p)[i]);
}
