/*
 * Waiters. The committer publishes durable sequences and then scans the list under its lock;
 * wal_wait() looks at the sequences and then joins the list under the same lock. So a waiter either
 * sees what was published or is seen by the scan, and no commit falls between the two.
 */
#include "base/assert.h"
#include "wal/wal_internal.h"

void waiter_list_init(struct waiter_list *list)
{
    mutex_init(&list->lock);
    list->first = NULL;
    list->closed = false;
}

void waiter_list_done(struct waiter_list *list)
{
    ASSERT(list->first == NULL);
    mutex_done(&list->lock);
}

uint64_t wal_durable_sequence(const struct wal *w, uint32_t shard)
{
    ASSERT(shard < w->options.shard_count);
    return atomic_load_explicit(&w->durable_sequences[shard], memory_order_acquire);
}

static bool waiter_satisfied(const struct wal *w, const uint64_t *sequences)
{
    for (uint32_t shard = 0; shard < w->options.shard_count; shard++) {
        if (sequences[shard] > wal_durable_sequence(w, shard))
            return false;
    }
    return true;
}

void wal_wait(struct wal *w, struct wal_waiter *waiter)
{
    enum err code = ERR_OK;
    bool resolved;

    mutex_lock(&w->waiters.lock);
    resolved = waiter_satisfied(w, waiter->sequences);
    if (!resolved && w->waiters.closed) {
        code = ERR_CANCELED;
        resolved = true;
    }
    if (!resolved) {
        waiter->next = w->waiters.first;
        w->waiters.first = waiter;
    }
    mutex_unlock(&w->waiters.lock);
    if (resolved)
        waiter->done(waiter, code);
}

static void waiters_end(struct wal_waiter *first, enum err code)
{
    while (first != NULL) {
        struct wal_waiter *next = first->next; /* done() may free the waiter */

        first->done(first, code);
        first = next;
    }
}

/* Moves the waiters whose sequences are durable to *satisfied. Needs the list's lock. */
static void split_satisfied(struct wal *w, struct wal_waiter **satisfied)
{
    struct wal_waiter **link = &w->waiters.first;

    *satisfied = NULL;
    while (*link != NULL) {
        struct wal_waiter *waiter = *link;

        if (waiter_satisfied(w, waiter->sequences)) {
            *link = waiter->next;
            waiter->next = *satisfied;
            *satisfied = waiter;
        } else {
            link = &waiter->next;
        }
    }
}

void waiter_list_resolve(struct wal *w, enum err code)
{
    struct wal_waiter *satisfied, *refused = NULL;

    mutex_lock(&w->waiters.lock);
    split_satisfied(w, &satisfied);
    if (code != ERR_OK)
        refused = TAKE(w->waiters.first);
    mutex_unlock(&w->waiters.lock);
    waiters_end(satisfied, ERR_OK);
    waiters_end(refused, code);
}

void waiter_list_close(struct wal *w, enum err code)
{
    mutex_lock(&w->waiters.lock);
    w->waiters.closed = true;
    mutex_unlock(&w->waiters.lock);
    waiter_list_resolve(w, code);
}

struct blocking_waiter {
    struct wal_waiter waiter; /* first: done() gets a pointer to it */
    struct mutex lock;        /* guards the rest */
    struct cond ended;
    enum err code;
    bool done;
};

static void blocking_done(struct wal_waiter *waiter, enum err code)
{
    struct blocking_waiter *b = (struct blocking_waiter *)waiter;

    mutex_lock(&b->lock);
    b->code = code;
    b->done = true;
    cond_signal(&b->ended);
    mutex_unlock(&b->lock);
}

enum err wal_wait_blocking(struct wal *w, const uint64_t *sequences, struct errinfo *ei)
{
    struct blocking_waiter b = {.done = false};

    /* The log only reads them. */
    b.waiter.sequences = (uint64_t *)(uintptr_t)sequences;
    b.waiter.done = blocking_done;
    mutex_init(&b.lock);
    cond_init(&b.ended);
    wal_wait(w, &b.waiter);
    mutex_lock(&b.lock);
    while (!b.done)
        cond_wait(&b.ended, &b.lock);
    mutex_unlock(&b.lock);
    cond_done(&b.ended);
    mutex_done(&b.lock);
    if (b.code != ERR_OK)
        return errinfo_set(ei, b.code, 0, "the log could not be written");
    return ERR_OK;
}
