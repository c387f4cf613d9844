/*
 * The ledger of finished segments: what each holds of each shard, so that wal_cut() knows which of
 * them are needed no more. The committer adds, wal_cut() removes.
 */
#ifndef RIMSTONE_WAL_CUT_INTERNAL_H
#define RIMSTONE_WAL_CUT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"

struct segment_record {
    uint32_t number;
    uint64_t size;     /* bytes that count */
    uint64_t *highest; /* owned: per shard, the highest sequence number in it, 0: none */
};

struct segment_ledger {
    /* One cut at a time, and no segment given up meanwhile. Held over file calls; taken before
     * `lock`. */
    struct mutex cut_lock;
    struct mutex lock;             /* guards the rest; a leaf */
    struct segment_record *closed; /* owned, ascending by number */
    size_t count, capacity;
    uint32_t current; /* number of the segment being written, 0: none */
};

void ledger_init(struct segment_ledger *ledger);
void ledger_done(struct segment_ledger *ledger);
/* Makes room, so that ledger_push() cannot fail `count` times from now. */
MUST_USE enum err ledger_reserve(struct segment_ledger *ledger, size_t count, struct errinfo *ei);
/* A finished segment, newer than all others. Takes over `highest`. */
void ledger_push(struct segment_ledger *ledger, uint32_t number, uint64_t size, uint64_t *highest);
/* The segment being written, 0: none. True if there is no finished one. */
bool ledger_set_current(struct segment_ledger *ledger, uint32_t number);

#endif
