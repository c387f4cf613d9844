/*
 * A fixed pool of workers: one ring of tasks under one mutex. Tasks are coarse (a frame to
 * compress, a query to run), so that one lock is not felt.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"

struct pool_entry {
    pool_task run;
    void *arg;
};

struct thread_pool {
    struct mutex lock;        /* guards everything below but the threads themselves */
    struct cond work;         /* a task was queued, or the pool stops */
    struct cond idle;         /* queue empty and nobody running */
    struct pool_entry *queue; /* a ring of queue_limit entries */
    uint32_t queue_limit, head, queued_count, running_count;
    bool stopping;
    uint32_t thread_count;
    struct thread *threads;
};

static void *pool_worker(void *arg)
{
    struct thread_pool *p = arg;

    mutex_lock(&p->lock);
    for (;;) {
        while (p->queued_count == 0 && !p->stopping)
            cond_wait(&p->work, &p->lock);
        if (p->queued_count == 0)
            break; /* stopping, and every queued task has run */
        struct pool_entry entry = p->queue[p->head];
        p->head = (p->head + 1) % p->queue_limit;
        p->queued_count--;
        p->running_count++;
        mutex_unlock(&p->lock);
        entry.run(entry.arg);
        mutex_lock(&p->lock);
        p->running_count--;
        if (p->running_count == 0 && p->queued_count == 0)
            cond_broadcast(&p->idle);
    }
    mutex_unlock(&p->lock);
    return NULL;
}

enum err thread_pool_new(const char *name, uint32_t thread_count, uint32_t queue_limit,
                         struct thread_pool **out, struct errinfo *ei)
{
    enum err e = ERR_OK;

    ASSERT(thread_count > 0 && queue_limit > 0);
    struct thread_pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "thread pool %s", name);
    mutex_init(&p->lock);
    cond_init(&p->work);
    cond_init(&p->idle);
    p->queue_limit = queue_limit;
    p->queue = calloc(queue_limit, sizeof *p->queue);
    p->threads = calloc(thread_count, sizeof *p->threads);
    if (p->queue == NULL || p->threads == NULL) {
        e = errinfo_set(ei, ERR_NOMEM, 0, "thread pool %s", name);
        goto out;
    }
    for (uint32_t i = 0; i < thread_count; i++) {
        char thread_name[32]; /* thread_start() cuts it */

        (void)snprintf(thread_name, sizeof thread_name, "%.10s-%u", name, i); /* always fits */
        e = thread_start(&p->threads[i], thread_name, pool_worker, p, ei);
        if (e != ERR_OK)
            goto out;
        p->thread_count++;
    }
    *out = TAKE(p);
out:
    thread_pool_free(p);
    return e;
}

void thread_pool_free(struct thread_pool *p)
{
    if (p == NULL)
        return;
    mutex_lock(&p->lock);
    p->stopping = true;
    cond_broadcast(&p->work);
    mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->thread_count; i++)
        thread_join(&p->threads[i]);
    cond_done(&p->idle);
    cond_done(&p->work);
    mutex_done(&p->lock);
    free(p->threads);
    free(p->queue);
    free(p);
}

enum err thread_pool_submit(struct thread_pool *p, pool_task run, void *arg)
{
    enum err e = ERR_LIMIT;

    mutex_lock(&p->lock);
    ASSERT(!p->stopping);
    if (p->queued_count < p->queue_limit) {
        uint32_t tail = (uint32_t)(((uint64_t)p->head + p->queued_count) % p->queue_limit);

        p->queue[tail] = (struct pool_entry){run, arg};
        p->queued_count++;
        cond_signal(&p->work);
        e = ERR_OK;
    }
    mutex_unlock(&p->lock);
    return e;
}

void thread_pool_wait(struct thread_pool *p)
{
    mutex_lock(&p->lock);
    while (p->queued_count > 0 || p->running_count > 0)
        cond_wait(&p->idle, &p->lock);
    mutex_unlock(&p->lock);
}
