/* Threads, the pool, and epoch reclamation under threads (run under TSan too). */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/epoch.h"
#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { THREAD_COUNT = 4, ROUND_COUNT = 20000 };

struct counter {
    struct mutex lock;
    struct rwlock rwlock;
    uint64_t by_mutex, by_rwlock;
};

static void *count_up(void *arg)
{
    struct counter *c = arg;

    for (int i = 0; i < ROUND_COUNT; i++) {
        mutex_lock(&c->lock);
        c->by_mutex++;
        mutex_unlock(&c->lock);
        if (i % 4 == 0) {
            rwlock_write_lock(&c->rwlock);
            c->by_rwlock++;
            rwlock_write_unlock(&c->rwlock);
        } else {
            rwlock_read_lock(&c->rwlock);
            CHECK(c->by_rwlock <= (uint64_t)THREAD_COUNT * ROUND_COUNT);
            rwlock_read_unlock(&c->rwlock);
        }
    }
    return NULL;
}

static void test_locks(void **state)
{
    struct counter c = {0};
    struct thread threads[THREAD_COUNT];
    struct errinfo ei = {0};

    (void)state;
    mutex_init(&c.lock);
    rwlock_init(&c.rwlock);
    for (int i = 0; i < THREAD_COUNT; i++)
        CHECK_OK(thread_start(&threads[i], "a-name-of-more-than-15", count_up, &c, &ei), &ei);
    for (int i = 0; i < THREAD_COUNT; i++)
        thread_join(&threads[i]);
    CHECK(c.by_mutex == (uint64_t)THREAD_COUNT * ROUND_COUNT);
    CHECK(c.by_rwlock == (uint64_t)THREAD_COUNT * ROUND_COUNT / 4);
    CHECK(mutex_trylock(&c.lock));
    CHECK(!mutex_trylock(&c.lock));
    mutex_unlock(&c.lock);
    rwlock_done(&c.rwlock);
    mutex_done(&c.lock);
}

static void test_cond_times_out(void **state)
{
    struct mutex m;
    struct cond c;
    uint64_t start = clock_mono_ns();

    (void)state;
    mutex_init(&m);
    cond_init(&c);
    mutex_lock(&m);
    /* Spurious wake-ups are allowed, so loop as callers do. */
    while (cond_wait_until(&c, &m, start + 2000000))
        ;
    mutex_unlock(&m);
    CHECK(clock_mono_ns() - start >= 2000000);
    cond_done(&c);
    mutex_done(&m);
}

static void *read_mask(void *arg)
{
    sigset_t set;

    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set) == 0);
    *(bool *)arg = sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGINT) == 1;
    return NULL;
}

static void test_thread_blocks_signals(void **state)
{
    struct thread t;
    struct thread never = {0};
    bool blocked = false;
    sigset_t set;
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(thread_start(&t, "mask", read_mask, &blocked, &ei), &ei);
    thread_join(&t);
    thread_join(&t); /* a second join does nothing */
    thread_join(&never);
    CHECK(blocked);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set) == 0 && sigismember(&set, SIGTERM) == 0);
    CHECK(thread_cpu_count() >= 1);
}

struct gate {
    struct mutex lock;
    struct cond opened;
    bool open;
    _Atomic uint32_t ran;
};

static void wait_at_gate(void *arg)
{
    struct gate *g = arg;

    mutex_lock(&g->lock);
    while (!g->open)
        cond_wait(&g->opened, &g->lock);
    mutex_unlock(&g->lock);
    atomic_fetch_add(&g->ran, 1);
}

static void test_pool_runs_refuses_and_drains(void **state)
{
    struct gate g = {0};
    struct thread_pool *p = NULL;
    struct errinfo ei = {0};
    uint32_t accepted = 0;

    (void)state;
    mutex_init(&g.lock);
    cond_init(&g.opened);
    CHECK_OK(thread_pool_new("test", 2, 5, &p, &ei), &ei);
    /* Two may run and five may wait: the pool must refuse by the eighth. */
    for (int i = 0; i < 8; i++)
        accepted += thread_pool_submit(p, wait_at_gate, &g) == ERR_OK;
    CHECK(accepted >= 5 && accepted <= 7);
    mutex_lock(&g.lock);
    g.open = true;
    cond_broadcast(&g.opened);
    mutex_unlock(&g.lock);
    thread_pool_wait(p);
    CHECK(atomic_load(&g.ran) == accepted);
    for (int i = 0; i < 5; i++)
        accepted += thread_pool_submit(p, wait_at_gate, &g) == ERR_OK;
    thread_pool_free(p); /* runs what is queued */
    CHECK(atomic_load(&g.ran) == accepted);
    thread_pool_free(NULL);
    cond_done(&g.opened);
    mutex_done(&g.lock);
}

enum { SUBMITTERS = 3, TASKS_EACH = 2000 };

struct crowd {
    struct thread_pool *pool;
    _Atomic uint32_t accepted, ran;
};

static void count_task(void *arg)
{
    atomic_fetch_add(&((struct crowd *)arg)->ran, 1);
}

static void *submit_many(void *arg)
{
    struct crowd *c = arg;

    for (int i = 0; i < TASKS_EACH; i++)
        atomic_fetch_add(&c->accepted, thread_pool_submit(c->pool, count_task, c) == ERR_OK);
    return NULL;
}

/* Tasks are handed to workers that are idle, or queued, or refused, by several threads at once:
 * what was taken runs once. */
static void test_pool_takes_tasks_from_many(void **state)
{
    struct crowd c = {0};
    struct thread submitters[SUBMITTERS];
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(thread_pool_new("crowd", 3, 4, &c.pool, &ei), &ei);
    for (int i = 0; i < SUBMITTERS; i++)
        CHECK_OK(thread_start(&submitters[i], "submit", submit_many, &c, &ei), &ei);
    for (int i = 0; i < SUBMITTERS; i++)
        thread_join(&submitters[i]);
    thread_pool_wait(c.pool);
    CHECK(c.accepted > 0 && c.ran == c.accepted);
    (void)submit_many(&c);
    thread_pool_free(c.pool);
    CHECK(c.ran == c.accepted);
}

/* One shared pointer that writers replace; readers check that what they see is alive. */
enum { ALIVE = 0x600d, DEAD = 0xdead };
struct object {
    uint32_t state;
    uint32_t pad[15];
};

struct epoch_test {
    struct epoch_domain *domain;
    _Atomic(struct object *) current;
    _Atomic bool stop;
    _Atomic uint64_t released, retired, reads;
};

static struct epoch_test *released_of; /* set before threads start: release() takes no context */

static void object_release(void *p)
{
    struct object *o = p;

    CHECK(o->state == ALIVE);
    o->state = DEAD;
    free(o);
    atomic_fetch_add(&released_of->released, 1);
}

static void *epoch_reader(void *arg)
{
    struct epoch_test *t = arg;
    uint64_t reads = 0;

    while (!atomic_load(&t->stop)) {
        uint32_t token = epoch_enter(t->domain);
        const struct object *o = atomic_load_explicit(&t->current, memory_order_acquire);

        for (int i = 0; i < 8; i++)
            CHECK(o->state == ALIVE);
        if (reads % 64 == 0)
            (void)sched_yield();
        CHECK(o->state == ALIVE);
        epoch_leave(t->domain, token);
        reads++;
    }
    atomic_fetch_add(&t->reads, reads);
    return NULL;
}

static struct object *object_new(void)
{
    struct object *o = malloc(sizeof *o);

    CHECK(o != NULL);
    memset(o, 0, sizeof *o);
    o->state = ALIVE;
    return o;
}

static void *epoch_writer(void *arg)
{
    struct epoch_test *t = arg;

    for (int i = 0; i < ROUND_COUNT; i++) {
        struct object *old =
            atomic_exchange_explicit(&t->current, object_new(), memory_order_acq_rel);

        epoch_retire(t->domain, old, object_release);
        atomic_fetch_add(&t->retired, 1);
    }
    return NULL;
}

static void test_epoch_under_threads(void **state)
{
    uint64_t deadline_ns = clock_mono_ns() + 60000000000U;
    struct epoch_test t = {0};
    struct thread readers[THREAD_COUNT], writers[2];
    struct errinfo ei = {0};

    (void)state;
    released_of = &t;
    CHECK_OK(epoch_domain_new(&t.domain, &ei), &ei);
    atomic_store(&t.current, object_new());
    for (int i = 0; i < THREAD_COUNT; i++)
        CHECK_OK(thread_start(&readers[i], "reader", epoch_reader, &t, &ei), &ei);
    for (int i = 0; i < 2; i++)
        CHECK_OK(thread_start(&writers[i], "writer", epoch_writer, &t, &ei), &ei);
    for (int i = 0; i < 2; i++)
        thread_join(&writers[i]);
    /* Readers come and go, so something is released while they run; but no sooner than each has
     * left once, and a loaded machine may keep one of them from running for as long as it likes. */
    while (atomic_load(&t.released) == 0) {
        CHECK(clock_mono_ns() < deadline_ns);
        epoch_collect(t.domain);
        (void)sched_yield();
    }
    atomic_store(&t.stop, true);
    for (int i = 0; i < THREAD_COUNT; i++)
        thread_join(&readers[i]);
    epoch_collect(t.domain);
    CHECK(atomic_load(&t.released) == atomic_load(&t.retired)); /* nobody reads any more */
    epoch_domain_free(t.domain);
    free(atomic_load(&t.current));
}

static void test_epoch_holds_back_for_old_readers_only(void **state)
{
    struct epoch_test t = {0};
    struct errinfo ei = {0};

    (void)state;
    released_of = &t;
    CHECK_OK(epoch_domain_new(&t.domain, &ei), &ei);
    uint32_t old_reader = epoch_enter(t.domain);
    epoch_retire(t.domain, object_new(), object_release);
    epoch_collect(t.domain);
    CHECK(atomic_load(&t.released) == 0);
    uint32_t new_reader = epoch_enter(t.domain);
    epoch_leave(t.domain, old_reader);
    epoch_collect(t.domain);
    CHECK(atomic_load(&t.released) == 1); /* the new reader came after the retirement */
    epoch_retire(t.domain, object_new(), object_release);
    epoch_collect(t.domain);
    CHECK(atomic_load(&t.released) == 1);
    epoch_leave(t.domain, new_reader);
    epoch_domain_free(t.domain); /* frees what is left */
    CHECK(atomic_load(&t.released) == 2);
}

static void test_epoch_slots_can_all_be_taken(void **state)
{
    enum { SLOT_COUNT = 1024 };
    struct epoch_domain *d = NULL;
    static uint32_t tokens[SLOT_COUNT];
    static bool seen[SLOT_COUNT];
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(epoch_domain_new(&d, &ei), &ei);
    for (int i = 0; i < SLOT_COUNT; i++) {
        tokens[i] = epoch_enter(d);
        CHECK(tokens[i] < SLOT_COUNT && !seen[tokens[i]]);
        seen[tokens[i]] = true;
    }
    for (int i = 0; i < SLOT_COUNT; i++)
        epoch_leave(d, tokens[i]);
    epoch_domain_free(d);
    epoch_domain_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locks),
        cmocka_unit_test(test_cond_times_out),
        cmocka_unit_test(test_thread_blocks_signals),
        cmocka_unit_test(test_pool_runs_refuses_and_drains),
        cmocka_unit_test(test_pool_takes_tasks_from_many),
        cmocka_unit_test(test_epoch_holds_back_for_old_readers_only),
        cmocka_unit_test(test_epoch_slots_can_all_be_taken),
        cmocka_unit_test(test_epoch_under_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
