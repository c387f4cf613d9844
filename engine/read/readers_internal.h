/*
 * Who may still name a slot or an index: queriers, from open to close. They live for up to a
 * query's time limit, too long for an epoch section, and there are few of them, so a list under a
 * lock will do.
 */
#ifndef RIMSTONE_ENGINE_READ_READERS_INTERNAL_H
#define RIMSTONE_ENGINE_READ_READERS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"

struct reader {
    struct reader *before, *next; /* the registry's */
    uint64_t stamp;
};

struct reader_registry {
    struct mutex lock; /* a leaf */
    struct reader *oldest, *newest;
    uint64_t stamp; /* of the next reader */
};

void readers_init(struct reader_registry *r);
void readers_done(struct reader_registry *r);
void readers_enter(struct reader_registry *r, struct reader *self);
void readers_leave(struct reader_registry *r, struct reader *self);
/* What is unlinked before this call may go once readers_passed(stamp). */
uint64_t readers_stamp(struct reader_registry *r);
/* Whether every reader that entered before the stamp was taken has left. */
bool readers_passed(struct reader_registry *r, uint64_t stamp);

#endif
