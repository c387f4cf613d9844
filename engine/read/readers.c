/*
 * The list of queriers that are open, in the order in which they came.
 */
#include "engine/read/readers_internal.h"

#include <stddef.h>

#include "base/assert.h"

void readers_init(struct reader_registry *r)
{
    *r = (struct reader_registry){.stamp = 1};
    mutex_init(&r->lock);
}

void readers_done(struct reader_registry *r)
{
    ASSERT(r->oldest == NULL);
    mutex_done(&r->lock);
}

void readers_enter(struct reader_registry *r, struct reader *self)
{
    mutex_lock(&r->lock);
    *self = (struct reader){.before = r->newest, .stamp = r->stamp++};
    if (r->newest == NULL)
        r->oldest = self;
    else
        r->newest->next = self;
    r->newest = self;
    mutex_unlock(&r->lock);
}

void readers_leave(struct reader_registry *r, struct reader *self)
{
    mutex_lock(&r->lock);
    if (self->before == NULL)
        r->oldest = self->next;
    else
        self->before->next = self->next;
    if (self->next == NULL)
        r->newest = self->before;
    else
        self->next->before = self->before;
    mutex_unlock(&r->lock);
}

uint64_t readers_stamp(struct reader_registry *r)
{
    uint64_t stamp;

    mutex_lock(&r->lock);
    stamp = r->stamp;
    mutex_unlock(&r->lock);
    return stamp;
}

bool readers_passed(struct reader_registry *r, uint64_t stamp)
{
    bool passed;

    mutex_lock(&r->lock);
    /* Stamps ascend along the list. */
    passed = r->oldest == NULL || r->oldest->stamp >= stamp;
    mutex_unlock(&r->lock);
    return passed;
}
