/*
 * Byte budgets: a tree of counters with limits. Whoever holds memory that grows with input charges
 * it to a budget first; a charge that would pass the limit of the budget or of any parent fails
 * with ERR_LIMIT and changes nothing. Thread-safe.
 */
#ifndef RIMSTONE_BASE_BUDGET_H
#define RIMSTONE_BASE_BUDGET_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct budget {
    const char *name;      /* borrowed, a literal: used in error texts ("query memory") */
    struct budget *parent; /* borrowed, NULL at the root */
    uint64_t limit_bytes;  /* UINT64_MAX: no limit of its own. Constant after init. */
    /* relaxed: the limit is enforced with a compare-and-add, nothing is ordered by it */
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t peak_bytes; /* relaxed: a statistic */
};

void budget_init(struct budget *b, const char *name, uint64_t limit_bytes, struct budget *parent);
/* Charges `bytes` here and in every parent, or fails with ERR_LIMIT and charges nothing. */
MUST_USE enum err budget_charge(struct budget *b, size_t bytes, struct errinfo *ei);
/* Charges without a check, for memory that exists already (mappings, growth that cannot fail). */
void budget_force(struct budget *b, size_t bytes);
void budget_release(struct budget *b, size_t bytes);
/* Which of `b` and its parents an error speaks of that began as one of budget_charge(); NULL: none.
 */
const struct budget *budget_refusing(const struct budget *b, const struct errinfo *ei);
static inline uint64_t budget_used(const struct budget *b)
{
    return atomic_load_explicit(&b->used_bytes, memory_order_relaxed);
}

#endif
