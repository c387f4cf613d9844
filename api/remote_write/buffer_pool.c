#include "api/remote_write/buffer_pool_internal.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER_FIRST_BYTES = 32 << 10 };

void buffer_pool_init(struct buffer_pool *p, struct budget *budget)
{
    *p = (struct buffer_pool){.budget = budget, .idle_bytes_max = BUFFER_POOL_IDLE_BYTES_MAX};
    /* What is idle here is missing elsewhere: decoders charge the same budget. */
    if (budget != NULL && budget->limit_bytes / 4 < p->idle_bytes_max)
        p->idle_bytes_max = (size_t)(budget->limit_bytes / 4);
    mutex_init(&p->lock);
}

static void buffer_free(struct buffer_pool *p, struct buffer *b)
{
    if (p->budget != NULL)
        budget_release(p->budget, b->capacity);
    free(b->data);
    free(b);
}

void buffer_pool_done(struct buffer_pool *p)
{
    while (p->idle != NULL) {
        struct buffer *b = p->idle;

        p->idle = b->next;
        buffer_free(p, b);
    }
    mutex_done(&p->lock);
}

struct buffer *buffer_pool_get(struct buffer_pool *p)
{
    struct buffer *b = NULL;

    mutex_lock(&p->lock);
    if (p->idle != NULL) {
        b = p->idle;
        p->idle = b->next;
        p->idle_count--;
        p->idle_bytes -= b->capacity;
    }
    mutex_unlock(&p->lock);
    if (b == NULL)
        return calloc(1, sizeof *b);
    b->next = NULL;
    b->size = 0;
    return b;
}

void buffer_pool_put(struct buffer_pool *p, struct buffer *b)
{
    bool kept = false;

    if (b == NULL)
        return;
    if (b->capacity > 0 && b->capacity <= BUFFER_KEEP_BYTES_MAX) {
        mutex_lock(&p->lock);
        if (p->idle_count < BUFFER_POOL_IDLE_COUNT_MAX &&
            p->idle_bytes + b->capacity <= p->idle_bytes_max) {
            b->next = p->idle;
            p->idle = b;
            p->idle_count++;
            p->idle_bytes += b->capacity;
            kept = true;
        }
        mutex_unlock(&p->lock);
    }
    if (!kept)
        buffer_free(p, b);
}

enum err buffer_reserve(struct buffer_pool *p, struct buffer *b, size_t capacity,
                        struct errinfo *ei)
{
    uint8_t *grown = NULL;
    size_t extra = 0;
    enum err e = ERR_OK;

    if (capacity <= b->capacity)
        return ERR_OK;
    extra = capacity - b->capacity;
    if (p->budget != NULL) {
        e = budget_charge(p->budget, extra, ei);
        if (e != ERR_OK)
            return e;
    }
    grown = realloc(b->data, capacity);
    if (grown == NULL) {
        if (p->budget != NULL)
            budget_release(p->budget, extra);
        return errinfo_set(ei, ERR_NOMEM, 0, "request buffer of %zu bytes", capacity);
    }
    b->data = grown;
    b->capacity = capacity;
    return ERR_OK;
}

enum err buffer_append(struct buffer_pool *p, struct buffer *b, const void *data, size_t size,
                       struct errinfo *ei)
{
    if (size > b->capacity - b->size) {
        size_t want = b->capacity == 0 ? BUFFER_FIRST_BYTES : b->capacity;
        enum err e = ERR_OK;

        while (want - b->size < size) {
            if (want > SIZE_MAX / 2)
                return errinfo_set(ei, ERR_LIMIT, 0, "request body too large");
            want *= 2;
        }
        e = buffer_reserve(p, b, want, ei);
        if (e != ERR_OK)
            return e;
    }
    if (size > 0)
        memcpy(b->data + b->size, data, size);
    b->size += size;
    return ERR_OK;
}
