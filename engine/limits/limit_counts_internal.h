/*
 * Series by the value of one label, exact under many threads: a striped hash table that is touched
 * only when a series is made or dies. A value is its keyed 64-bit hash; values without series take
 * no room.
 */
#ifndef RIMSTONE_ENGINE_LIMITS_LIMIT_COUNTS_INTERNAL_H
#define RIMSTONE_ENGINE_LIMITS_LIMIT_COUNTS_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/thread.h"

enum { LIMIT_STRIPE_COUNT = 64 };

struct limit_count {
    uint64_t key;    /* hash of the value, never 0: an empty place */
    uint32_t series; /* that are in memory */
    /* Of these, some that were found to have ended: the limit is that much higher until they are
     * gone. */
    uint32_t ended;
};

struct limit_stripe {
    struct mutex lock;          /* a leaf; guards the rest */
    struct limit_count *places; /* owned, 2^n of them; linear probing */
    uint32_t capacity, used;
};

struct limit_counts {
    struct budget *memory; /* borrowed, may be NULL */
    struct limit_stripe stripes[LIMIT_STRIPE_COUNT];
};

void limit_counts_init(struct limit_counts *c, struct budget *memory);
void limit_counts_done(struct limit_counts *c);
/* Counts one series more, unless `max` (0: none) is reached: ERR_LIMIT. *active: how many count
 * then. ERR_NOMEM changes nothing. */
MUST_USE enum err limit_counts_take(struct limit_counts *c, uint64_t key, uint64_t max,
                                    uint64_t *active);
/* Counts `series` more, whatever the limit. */
MUST_USE enum err limit_counts_add(struct limit_counts *c, uint64_t key, uint32_t series);
/* One series less; not below none. */
void limit_counts_drop(struct limit_counts *c, uint64_t key);
/* So many of the series have ended; not more than there are. */
void limit_counts_set_ended(struct limit_counts *c, uint64_t key, uint64_t ended);
/* Series that count. */
uint64_t limit_counts_active(struct limit_counts *c, uint64_t key);

#endif
