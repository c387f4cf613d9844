#include "base/budget.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

void budget_init(struct budget *b, const char *name, uint64_t limit_bytes, struct budget *parent)
{
    b->name = name;
    b->parent = parent;
    b->limit_bytes = limit_bytes;
    atomic_init(&b->used_bytes, 0);
    atomic_init(&b->peak_bytes, 0);
}

static void note_peak(struct budget *b, uint64_t used)
{
    uint64_t peak = atomic_load_explicit(&b->peak_bytes, memory_order_relaxed);

    while (used > peak &&
           !atomic_compare_exchange_weak_explicit(&b->peak_bytes, &peak, used, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

/* Adds to this budget alone unless that would pass its limit. */
static bool add_within_limit(struct budget *b, uint64_t bytes)
{
    if (b->limit_bytes == UINT64_MAX) {
        note_peak(b,
                  atomic_fetch_add_explicit(&b->used_bytes, bytes, memory_order_relaxed) + bytes);
        return true;
    }
    uint64_t used = atomic_load_explicit(&b->used_bytes, memory_order_relaxed);
    do {
        /* used may exceed the limit after budget_force() */
        if (used > b->limit_bytes || bytes > b->limit_bytes - used)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&b->used_bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    note_peak(b, used + bytes);
    return true;
}

static void release_up_to(struct budget *b, const struct budget *stop, uint64_t bytes)
{
    for (; b != stop; b = b->parent) {
        uint64_t before = atomic_fetch_sub_explicit(&b->used_bytes, bytes, memory_order_relaxed);

        ASSERT(before >= bytes);
    }
}

enum err budget_charge(struct budget *b, size_t bytes, struct errinfo *ei)
{
    for (struct budget *at = b; at != NULL; at = at->parent) {
        if (!add_within_limit(at, bytes)) {
            release_up_to(b, at, bytes);
            return errinfo_set(ei, ERR_LIMIT, 0,
                               "%s: %zu bytes more would pass the limit of %" PRIu64 " bytes",
                               at->name, bytes, at->limit_bytes);
        }
    }
    return ERR_OK;
}

void budget_force(struct budget *b, size_t bytes)
{
    for (; b != NULL; b = b->parent)
        note_peak(b,
                  atomic_fetch_add_explicit(&b->used_bytes, bytes, memory_order_relaxed) + bytes);
}

void budget_release(struct budget *b, size_t bytes)
{
    release_up_to(b, NULL, bytes);
}

const struct budget *budget_refusing(const struct budget *b, const struct errinfo *ei)
{
    if (ei->code != ERR_LIMIT)
        return NULL;
    while (b != NULL && strstr(ei->message, b->name) == NULL)
        b = b->parent;
    return b;
}
