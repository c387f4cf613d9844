/*
 * Threads and locks: thin wrappers over pthreads that abort on misuse (our bug), so that callers
 * need no error paths for locking.
 */
#ifndef RIMSTONE_BASE_THREAD_H
#define RIMSTONE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct mutex {
    pthread_mutex_t handle;
};
struct rwlock {
    pthread_rwlock_t handle; /* prefers writers */
};
struct cond {
    pthread_cond_t handle; /* on the monotonic clock */
};

void mutex_init(struct mutex *m);
void mutex_done(struct mutex *m);
void mutex_lock(struct mutex *m);
bool mutex_trylock(struct mutex *m);
void mutex_unlock(struct mutex *m);

void rwlock_init(struct rwlock *l);
void rwlock_done(struct rwlock *l);
void rwlock_read_lock(struct rwlock *l);
void rwlock_read_unlock(struct rwlock *l);
void rwlock_write_lock(struct rwlock *l);
void rwlock_write_unlock(struct rwlock *l);

void cond_init(struct cond *c);
void cond_done(struct cond *c);
void cond_wait(struct cond *c, struct mutex *m);
/* Waits until signalled or until clock_mono_ns() reaches `deadline_ns`; false on time-out. */
bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t deadline_ns);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

struct thread {
    pthread_t handle;
    bool started;
};
/* Starts a thread named `name` (at most 15 characters). All signals are blocked in it. */
MUST_USE enum err thread_start(struct thread *t, const char *name, void *(*run)(void *), void *arg,
                               struct errinfo *ei);
/* Lowers the calling thread's share of the CPU when others want it too; 19 is the lowest, 0 that of
 * all threads. Where the kernel refuses, nothing changes. */
void thread_set_nice(int nice);
/* Waits for its end; does nothing if it was never started. */
void thread_join(struct thread *t);
/* Online CPUs this process may run on, at least 1; container CPU quotas respected. */
uint32_t thread_cpu_count(void);

/*
 * A fixed pool of workers with one bounded FIFO queue. Of idle workers the one that ran last is
 * taken.
 */
struct thread_pool;
typedef void (*pool_task)(void *arg);
MUST_USE enum err thread_pool_new(const char *name, uint32_t thread_count, uint32_t queue_limit,
                                  struct thread_pool **out, struct errinfo *ei);
/* Runs every queued task, then joins. Accepts NULL. */
void thread_pool_free(struct thread_pool *p);
/* ERR_LIMIT when the queue is full. */
MUST_USE enum err thread_pool_submit(struct thread_pool *p, pool_task run, void *arg);
/* Waits until the queue is empty and all workers are idle. */
void thread_pool_wait(struct thread_pool *p);

#endif
