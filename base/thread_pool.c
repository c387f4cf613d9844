/*
 * A fixed pool of workers: one ring of tasks under one mutex. Tasks are coarse (a frame to
 * compress, a query to run), so that one lock is not felt.
 *
 * Whoever became idle last is woken first. Under light load one worker then runs everything, with
 * its stack and its part of the allocator in the caches: a condition that all wait for wakes the
 * one that has slept longest, which made a short query cost a fifth more.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"

struct pool_entry {
    pool_task run;
    void *arg;
};

struct pool_worker {
    struct thread_pool *pool;
    struct thread thread;
    struct cond wake;        /* has an entry, or the pool stops */
    struct pool_entry entry; /* run NULL: none */
    struct pool_worker *next_idle;
};

struct thread_pool {
    struct mutex lock;               /* guards everything below but the threads themselves */
    struct cond all_done;            /* queue empty and nobody running */
    struct pool_worker *newest_idle; /* a stack; empty while anything is queued */
    struct pool_entry *queue;        /* a ring of queue_limit entries */
    uint32_t queue_limit, head, queued_count, running_count;
    bool stopping;
    uint32_t thread_count;
    struct pool_worker *workers;
};

/* Under the lock: the next task of the queue, or one that is handed over; false when the pool has
 * stopped and every queued task has run. */
static bool entry_get(struct pool_worker *w, struct pool_entry *out)
{
    struct thread_pool *p = w->pool;

    if (p->queued_count > 0) {
        *out = p->queue[p->head];
        p->head = (p->head + 1) % p->queue_limit;
        p->queued_count--;
        p->running_count++;
        return true;
    }
    if (p->stopping)
        return false;
    w->next_idle = p->newest_idle;
    p->newest_idle = w;
    while (w->entry.run == NULL && !p->stopping)
        cond_wait(&w->wake, &p->lock);
    *out = w->entry;
    w->entry = (struct pool_entry){NULL, NULL};
    return out->run != NULL;
}

static void *pool_work(void *arg)
{
    struct pool_worker *w = arg;
    struct thread_pool *p = w->pool;
    struct pool_entry entry;

    mutex_lock(&p->lock);
    while (entry_get(w, &entry)) {
        mutex_unlock(&p->lock);
        entry.run(entry.arg);
        mutex_lock(&p->lock);
        p->running_count--;
        if (p->running_count == 0 && p->queued_count == 0)
            cond_broadcast(&p->all_done);
    }
    mutex_unlock(&p->lock);
    return NULL;
}

static enum err workers_start(struct thread_pool *p, const char *name, uint32_t count,
                              struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < count && e == ERR_OK; i++) {
        struct pool_worker *w = &p->workers[i];
        char thread_name[32]; /* thread_start() cuts it */

        w->pool = p;
        cond_init(&w->wake);
        (void)snprintf(thread_name, sizeof thread_name, "%.10s-%u", name, i); /* always fits */
        e = thread_start(&w->thread, thread_name, pool_work, w, ei);
        if (e == ERR_OK)
            p->thread_count++;
        else
            cond_done(&w->wake);
    }
    return e;
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
    cond_init(&p->all_done);
    p->queue_limit = queue_limit;
    p->queue = calloc(queue_limit, sizeof *p->queue);
    p->workers = calloc(thread_count, sizeof *p->workers);
    if (p->queue == NULL || p->workers == NULL) {
        e = errinfo_set(ei, ERR_NOMEM, 0, "thread pool %s", name);
        goto out;
    }
    e = workers_start(p, name, thread_count, ei);
    if (e == ERR_OK)
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
    for (struct pool_worker *w = p->newest_idle; w != NULL; w = w->next_idle)
        cond_signal(&w->wake);
    mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->thread_count; i++) {
        thread_join(&p->workers[i].thread);
        cond_done(&p->workers[i].wake);
    }
    cond_done(&p->all_done);
    mutex_done(&p->lock);
    free(p->workers);
    free(p->queue);
    free(p);
}

enum err thread_pool_submit(struct thread_pool *p, pool_task run, void *arg)
{
    struct pool_worker *idle;
    enum err e = ERR_LIMIT;

    mutex_lock(&p->lock);
    ASSERT(!p->stopping);
    idle = p->newest_idle;
    if (idle != NULL) {
        p->newest_idle = idle->next_idle;
        idle->entry = (struct pool_entry){run, arg};
        p->running_count++;
        cond_signal(&idle->wake);
        e = ERR_OK;
    } else if (p->queued_count < p->queue_limit) {
        uint32_t tail = (uint32_t)(((uint64_t)p->head + p->queued_count) % p->queue_limit);

        p->queue[tail] = (struct pool_entry){run, arg};
        p->queued_count++;
        e = ERR_OK;
    }
    mutex_unlock(&p->lock);
    return e;
}

void thread_pool_wait(struct thread_pool *p)
{
    mutex_lock(&p->lock);
    while (p->queued_count > 0 || p->running_count > 0)
        cond_wait(&p->all_done, &p->lock);
    mutex_unlock(&p->lock);
}
