/*
 * See parallel_internal.h. A task that waits in the pool behind other queries' must not hold up the
 * query that asked for it: the query leaves when it is done, and the late task finds the door shut.
 */
#include "promql/eval/parallel_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

struct parallel {
    struct mutex lock; /* guards what follows; a leaf */
    struct cond idle;
    uint32_t refs, started, running;
    bool is_closed;
    void (*run)(void *context, uint32_t index);
    void *context; /* borrowed until it is closed and nothing runs */
};

/* With the lock held, which it gives back. */
static void parallel_unref(struct parallel *p)
{
    bool last = --p->refs == 0;

    mutex_unlock(&p->lock);
    if (!last)
        return;
    cond_done(&p->idle);
    mutex_done(&p->lock);
    free(p);
}

static void task_run(void *arg)
{
    struct parallel *p = arg;

    mutex_lock(&p->lock);
    if (!p->is_closed) {
        uint32_t index = p->started++;

        p->running++;
        mutex_unlock(&p->lock);
        p->run(p->context, index);
        mutex_lock(&p->lock);
        if (--p->running == 0)
            cond_broadcast(&p->idle);
    }
    parallel_unref(p);
}

struct parallel *parallel_start(struct thread_pool *pool, uint32_t count,
                                void (*run)(void *context, uint32_t index), void *context)
{
    struct parallel *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    mutex_init(&p->lock);
    cond_init(&p->idle);
    p->refs = 1;
    p->run = run;
    p->context = context;
    for (uint32_t i = 0; i < count; i++) {
        mutex_lock(&p->lock);
        p->refs++;
        mutex_unlock(&p->lock);
        if (thread_pool_submit(pool, task_run, p) == ERR_OK)
            continue;
        mutex_lock(&p->lock); /* the queue is full: others are busy enough */
        p->refs--;
        mutex_unlock(&p->lock);
        break;
    }
    return p;
}

void parallel_join(struct parallel *p)
{
    if (p == NULL)
        return;
    mutex_lock(&p->lock);
    p->is_closed = true;
    while (p->running > 0)
        cond_wait(&p->idle, &p->lock);
    parallel_unref(p);
}
