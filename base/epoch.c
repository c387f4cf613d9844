/*
 * A reader claims a slot with the global epoch as it saw it; a writer stamps what it retires with
 * the global epoch and moves that on by one. What carries stamp s may be freed once no slot holds
 * an epoch <= s.
 *
 * Why that is enough. A reader that is not seen by a scan has written its slot after the scan read
 * it; both the claim and the scan's stamp are locked instructions, full barriers on x86, so the
 * reader's loads come after the writer's unlinking store (Dekker's pattern). A reader that is seen
 * with a later epoch read it from the writer's increment and so sees the unlinking as well. A
 * reader that saw an old epoch and claims late merely holds memory back a little longer.
 * Elsewhere than on x86 an explicit fence completes the pattern.
 *
 * Slots start at a place chosen by the CPU the reader runs on, so that readers on different CPUs
 * do not share a cache line.
 */
#include "base/epoch.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"

enum {
    EPOCH_SLOT_COUNT = 1024,
    EPOCH_SLOTS_PER_CPU = 8,
    CACHE_LINE_BYTES = 64,
    /* A scan reads up to 1,024 cache lines; this many retired objects share its cost. */
    EPOCH_COLLECT_EVERY = 64,
};

struct epoch_slot {
    /* 0: free. Claimed by compare-and-swap (seq_cst), given back by a release store, so that the
     * scan's acquire load orders the reader's last loads before the memory is freed. */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t epoch;
};

struct retired {
    struct retired *next;
    void *object;
    void (*release)(void *object);
    uint64_t stamp;
};

struct epoch_domain {
    struct epoch_slot slots[EPOCH_SLOT_COUNT];
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t global; /* seq_cst; starts at 1 */
    /* Slots below this index have been used: what a scan must read. Raised (seq_cst) before the
     * slot is claimed. */
    _Atomic uint32_t slot_limit;
    struct mutex lock;      /* guards the queue; no other lock is taken under it */
    struct retired *oldest; /* stamps ascend */
    struct retired **newest_link;
    uint32_t since_collect; /* retired since the last scan */
};

enum err epoch_domain_new(struct epoch_domain **out, struct errinfo *ei)
{
    struct epoch_domain *d = aligned_alloc(CACHE_LINE_BYTES, sizeof *d);

    if (d == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "epoch domain");
    for (size_t i = 0; i < EPOCH_SLOT_COUNT; i++)
        atomic_init(&d->slots[i].epoch, 0);
    atomic_init(&d->global, 1);
    atomic_init(&d->slot_limit, 0);
    mutex_init(&d->lock);
    d->oldest = NULL;
    d->newest_link = &d->oldest;
    d->since_collect = 0;
    *out = d;
    return ERR_OK;
}

static void release_list(struct retired *r)
{
    while (r != NULL) {
        struct retired *next = r->next;

        r->release(r->object);
        free(r);
        r = next;
    }
}

void epoch_domain_free(struct epoch_domain *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < EPOCH_SLOT_COUNT; i++)
        ASSERT(atomic_load_explicit(&d->slots[i].epoch, memory_order_acquire) == 0);
    /* A release function may retire more. */
    while (d->oldest != NULL) {
        struct retired *list = d->oldest;

        d->oldest = NULL;
        d->newest_link = &d->oldest;
        release_list(list);
    }
    mutex_done(&d->lock);
    free(d);
}

static void raise_slot_limit(struct epoch_domain *d, uint32_t index)
{
    uint32_t limit = atomic_load_explicit(&d->slot_limit, memory_order_seq_cst);

    while (limit <= index &&
           !atomic_compare_exchange_weak_explicit(&d->slot_limit, &limit, index + 1,
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
}

static bool claim_slot(struct epoch_domain *d, uint32_t index)
{
    uint64_t expected = 0;

    if (atomic_load_explicit(&d->slots[index].epoch, memory_order_relaxed) != 0)
        return false; /* only a hint: the swap decides */
    raise_slot_limit(d, index);
    uint64_t now = atomic_load_explicit(&d->global, memory_order_seq_cst);
    if (!atomic_compare_exchange_strong_explicit(&d->slots[index].epoch, &expected, now,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return false;
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
    return true;
}

uint32_t epoch_enter(struct epoch_domain *d)
{
    int cpu = sched_getcpu();
    uint32_t start = cpu < 0 ? 0 : (uint32_t)cpu * EPOCH_SLOTS_PER_CPU;

    for (;;) {
        for (uint32_t i = 0; i < EPOCH_SLOT_COUNT; i++) {
            uint32_t index = (start + i) % EPOCH_SLOT_COUNT;

            if (claim_slot(d, index))
                return index;
        }
        (void)sched_yield(); /* all taken; cannot fail on Linux */
    }
}

void epoch_leave(struct epoch_domain *d, uint32_t token)
{
    ASSERT(token < EPOCH_SLOT_COUNT);
    DEBUG_ASSERT(atomic_load_explicit(&d->slots[token].epoch, memory_order_relaxed) != 0);
    atomic_store_explicit(&d->slots[token].epoch, 0, memory_order_release);
}

/* Stamps below the result are free of readers. `before` is the global epoch of the caller's stamp:
 * what was retired later is not ours to judge. */
static uint64_t oldest_reader(struct epoch_domain *d, uint64_t before)
{
    uint64_t oldest = before;
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
    uint32_t limit = atomic_load_explicit(&d->slot_limit, memory_order_seq_cst);

    for (uint32_t i = 0; i < limit; i++) {
        uint64_t epoch = atomic_load_explicit(&d->slots[i].epoch, memory_order_seq_cst);

        if (epoch != 0 && epoch < oldest)
            oldest = epoch;
    }
    return oldest;
}

/* Moves the global epoch on; returns the stamp that readers from now on are above. */
static uint64_t epoch_advance(struct epoch_domain *d)
{
    return atomic_fetch_add_explicit(&d->global, 1, memory_order_seq_cst);
}

/* Cuts off the retired objects no reader can see. Needs d->lock. */
static struct retired *take_unseen(struct epoch_domain *d, uint64_t oldest)
{
    struct retired *first = d->oldest, **link = &d->oldest;

    while (*link != NULL && (*link)->stamp < oldest)
        link = &(*link)->next;
    if (link == &d->oldest)
        return NULL;
    d->oldest = *link;
    *link = NULL;
    if (d->oldest == NULL)
        d->newest_link = &d->oldest;
    return first;
}

void epoch_collect(struct epoch_domain *d)
{
    mutex_lock(&d->lock);
    d->since_collect = 0;
    uint64_t stamp = epoch_advance(d);
    struct retired *list = take_unseen(d, oldest_reader(d, stamp + 1));
    mutex_unlock(&d->lock);
    release_list(list);
}

void epoch_wait(struct epoch_domain *d)
{
    uint64_t stamp = epoch_advance(d);

    while (oldest_reader(d, stamp + 1) <= stamp)
        (void)sched_yield(); /* cannot fail on Linux */
}

void epoch_retire(struct epoch_domain *d, void *object, void (*release)(void *object))
{
    struct retired *r = malloc(sizeof *r);

    if (r == NULL) {
        epoch_wait(d);
        release(object);
        return;
    }
    *r = (struct retired){.object = object, .release = release};
    mutex_lock(&d->lock);
    r->stamp = epoch_advance(d);
    *d->newest_link = r;
    d->newest_link = &r->next;
    bool due = ++d->since_collect >= EPOCH_COLLECT_EVERY;
    mutex_unlock(&d->lock);
    if (due)
        epoch_collect(d);
}
