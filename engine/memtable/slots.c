/*
 * Dead slots on their way to a new series. They go in batches, as they died: no step but raising
 * the generations touches a slot, and that is done in slices.
 */
#include "engine/memtable/slots_internal.h"

#include <stdlib.h>

#include "base/assert.h"

struct retired_index {
    struct retired_index *next;
    struct index *index; /* owned */
    uint64_t version, stamp;
};

static void *charged_alloc(struct slot_pool *p, size_t size)
{
    void *m;

    if (p->memory != NULL && budget_charge(p->memory, size, NULL) != ERR_OK)
        return NULL;
    m = calloc(1, size);
    if (m == NULL && p->memory != NULL)
        budget_release(p->memory, size);
    return m;
}
static void charged_free(struct slot_pool *p, void *m, size_t size)
{
    if (p->memory != NULL)
        budget_release(p->memory, size);
    free(m);
}

/* ---- batches ---- */

static size_t batch_bytes(size_t capacity)
{
    return sizeof(struct slot_batch) + capacity * sizeof(uint32_t);
}

struct slot_batch *slot_batch_new(struct slot_pool *p, size_t capacity)
{
    struct slot_batch *b;

    ASSERT(capacity <= SERIES_SLOT_MAX);
    b = charged_alloc(p, batch_bytes(capacity));
    if (b != NULL)
        b->capacity = (uint32_t)capacity;
    return b;
}

void slot_batch_free(struct slot_pool *p, struct slot_batch *b)
{
    charged_free(p, b, batch_bytes(b->capacity));
}

static void batches_free(struct slot_pool *p, struct slot_batch *b)
{
    while (b != NULL) {
        struct slot_batch *next = b->next;

        slot_batch_free(p, b);
        b = next;
    }
}

void slot_batch_add(struct slot_batch *b, uint32_t slot)
{
    ASSERT(b->count < b->capacity && (b->count == 0 || b->slots[b->count - 1] < slot));
    b->slots[b->count++] = slot;
}

/* ---- the pool ---- */

void slot_pool_init(struct slot_pool *p, struct budget *memory)
{
    *p = (struct slot_pool){.memory = memory, .index_version = 1};
}

void slot_pool_done(struct slot_pool *p)
{
    batches_free(p, p->dead_first);
    batches_free(p, p->barred);
    batches_free(p, p->free);
    while (p->retired_first != NULL) {
        struct retired_index *next = p->retired_first->next;

        index_free(p->retired_first->index);
        retired_index_free(p, p->retired_first);
        p->retired_first = next;
    }
    *p = (struct slot_pool){0};
}

void slot_pool_bury(struct slot_pool *p, struct slot_batch *b)
{
    if (b->count == 0) {
        slot_batch_free(p, b);
        return;
    }
    b->version = p->index_version;
    b->next = NULL;
    if (p->dead_last == NULL)
        p->dead_first = b;
    else
        p->dead_last->next = b;
    p->dead_last = b;
    p->dead_count += b->count;
    p->waiting_count += b->count;
}

void slot_pool_bar(struct slot_pool *p, struct slot_batch *b, uint64_t next_file)
{
    if (b->count == 0) {
        slot_batch_free(p, b);
        return;
    }
    b->barrier = next_file;
    b->next = p->barred;
    p->barred = b;
    p->waiting_count += b->count;
}

/* ---- indexes that were replaced ---- */

struct retired_index *retired_index_new(struct slot_pool *p)
{
    return charged_alloc(p, sizeof(struct retired_index));
}

void retired_index_free(struct slot_pool *p, struct retired_index *r)
{
    if (r != NULL)
        charged_free(p, r, sizeof *r);
}

void slot_pool_retire(struct slot_pool *p, struct retired_index *r, struct index *old,
                      uint64_t stamp)
{
    *r = (struct retired_index){NULL, old, p->index_version, stamp};
    if (p->retired_last == NULL)
        p->retired_first = r;
    else
        p->retired_last->next = r;
    p->retired_last = r;
    p->index_version++;
    p->dead_count = 0;
}

struct index *slot_pool_take_retired(struct slot_pool *p, struct reader_registry *readers)
{
    struct retired_index *r = p->retired_first;
    struct index *ix;

    if (r == NULL || !readers_passed(readers, r->stamp))
        return NULL;
    p->retired_first = r->next;
    if (r->next == NULL)
        p->retired_last = NULL;
    ix = r->index;
    retired_index_free(p, r);
    return ix;
}

/* ---- from dead to free ---- */

static void batch_is_free(struct slot_pool *p, struct slot_batch *b)
{
    b->done = 0;
    b->next = p->free;
    p->free = b;
    p->waiting_count -= b->count;
    p->free_count += b->count;
}

/* Raises generations of up to `most` slots; how many. */
static size_t batch_raise(struct slot_batch *b, struct series_table *series, size_t most)
{
    size_t n = 0;

    for (; b->done < b->count && n < most; b->done++, n++) {
        struct series *s = series_at(series, b->slots[b->done]);

        ASSERT(!s->defined);
        s->generation++; /* and around again */
        b->crosses |= s->generation % SLOT_GENERATION_QUARTER == 0;
    }
    return n;
}

static void barred_release(struct slot_pool *p, uint64_t oldest_file)
{
    for (struct slot_batch **at = &p->barred; *at != NULL;) {
        struct slot_batch *b = *at;

        if (b->barrier > oldest_file) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        batch_is_free(p, b);
    }
}

bool slot_pool_release(struct slot_pool *p, struct series_table *series, uint64_t oldest_file,
                       uint64_t next_file, size_t most)
{
    uint64_t oldest_index = p->retired_first == NULL ? p->index_version : p->retired_first->version;

    barred_release(p, oldest_file);
    while (p->dead_first != NULL && p->dead_first->version < oldest_index) {
        struct slot_batch *b = p->dead_first;

        most -= batch_raise(b, series, most);
        if (b->done < b->count)
            return true;
        p->dead_first = b->next;
        if (b->next == NULL)
            p->dead_last = NULL;
        p->waiting_count -= b->crosses ? b->count : 0;
        if (b->crosses)
            slot_pool_bar(p, b, next_file);
        else
            batch_is_free(p, b);
    }
    return false;
}

/* ---- taking ---- */

bool slot_pool_take(struct slot_pool *p, uint32_t *slot)
{
    struct slot_batch *b = p->free;

    /* One that is used up stays until the next call, for slot_pool_put_back(). */
    while (b != NULL && b->done == b->count) {
        p->free = b->next;
        slot_batch_free(p, b);
        b = p->free;
    }
    if (b == NULL)
        return false;
    *slot = b->slots[b->done++];
    p->free_count--;
    return true;
}

void slot_pool_put_back(struct slot_pool *p)
{
    ASSERT(p->free != NULL && p->free->done > 0);
    p->free->done--;
    p->free_count++;
}
