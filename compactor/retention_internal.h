/*
 * Which parts have to go, as a pure function.
 */
#ifndef RIMSTONE_COMPACTOR_RETENTION_INTERNAL_H
#define RIMSTONE_COMPACTOR_RETENTION_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/part.h"

enum retention_reason { RETENTION_KEEP, RETENTION_TIME, RETENTION_SIZE, RETENTION_REASON_COUNT };

struct retention_part {
    struct part_key key;
    uint64_t size_bytes; /* of both files */
    uint32_t shard;      /* in whose list it stands */
    bool is_foreign;     /* of another shard count: in the lists of others as well */
    enum retention_reason reason;
};

struct retention_limits {
    uint64_t time_ms;     /* 0: without end */
    uint64_t size_bytes;  /* 0: without end */
    uint64_t other_bytes; /* of the log and of sealed files: count as well, but stay */
};

/*
 * Sorts the parts of all shards, oldest window first, and sets their reasons. Time counts back from
 * the end of the newest window among them, so that a clock that jumps removes nothing; a part goes
 * when its whole window is too old. Then the oldest go until the rest fits into the size.
 */
void retention_choose(struct retention_part *parts, size_t count, const struct retention_limits *l);

#endif
