/*
 * Byte buffers that requests borrow: compressed bodies as they arrive and what they decode to.
 *
 * A buffer grows with the bytes that have really come, never with what a header claims, and every
 * byte of capacity is charged to the pool's budget, idle buffers included. The pool keeps a bounded
 * amount of idle memory, so that steady traffic allocates nothing.
 */
#ifndef RIMSTONE_API_REMOTE_WRITE_BUFFER_POOL_INTERNAL_H
#define RIMSTONE_API_REMOTE_WRITE_BUFFER_POOL_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/thread.h"

struct buffer {
    struct buffer *next; /* the pool's */
    uint8_t *data;
    size_t size, capacity;
};

enum {
    BUFFER_POOL_IDLE_COUNT_MAX = 64,
    BUFFER_POOL_IDLE_BYTES_MAX = 32 << 20,
    BUFFER_KEEP_BYTES_MAX = 4 << 20, /* larger buffers are freed, not kept */
};

struct buffer_pool {
    struct mutex lock; /* guards what follows */
    struct buffer *idle;
    size_t idle_count, idle_bytes;
    size_t idle_bytes_max; /* constant after init */
    struct budget *budget; /* borrowed; constant after init */
};

void buffer_pool_init(struct buffer_pool *p, struct budget *budget);
/* All buffers must be back. */
void buffer_pool_done(struct buffer_pool *p);
/* An empty buffer, perhaps with capacity already; NULL when memory is short. Any thread. */
struct buffer *buffer_pool_get(struct buffer_pool *p);
/* Accepts NULL. Any thread. */
void buffer_pool_put(struct buffer_pool *p, struct buffer *b);
/* Capacity of at least `capacity` bytes; the content stays. ERR_LIMIT when the budget is spent. */
MUST_USE enum err buffer_reserve(struct buffer_pool *p, struct buffer *b, size_t capacity,
                                 struct errinfo *ei);
/* Appends, growing by doubling. */
MUST_USE enum err buffer_append(struct buffer_pool *p, struct buffer *b, const void *data,
                                size_t size, struct errinfo *ei);

#endif
