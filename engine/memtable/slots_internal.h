/*
 * Slots of a shard that have died and wait to be another series', and the indexes that were
 * replaced. LIFECYCLE.md, "Ended series, slots, the index".
 *
 * A dead slot is still in the shard's index, and in those before it that a querier holds. It is
 * free once the index was rebuilt without it and every older index has been freed. Its generation
 * is raised then, so that a handle, a log record or a chunk of a sealed file that names the old
 * series does not name the new one.
 *
 * Two kinds of slots wait longer, behind a barrier: until no sealed or late file of the shard is
 * left that was there when the barrier was put up. Slots of series that ended before a restart:
 * their generation is not known any more. And slots whose generation crosses a quarter of its
 * range: so no file that is left can name a generation that comes around again.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_SLOTS_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_SLOTS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "engine/index/index_internal.h"
#include "engine/memtable/series_internal.h"
#include "engine/read/readers_internal.h"

enum { SLOT_GENERATION_QUARTER = 1 << 14 };

/* Slots that died together, ascending. */
struct slot_batch {
    struct slot_batch *next;
    uint64_t version; /* of the index that was current when they died */
    uint64_t barrier; /* number of a file */
    uint32_t capacity, count;
    uint32_t done; /* of them: generation raised; once free: given out */
    bool crosses;  /* a generation has come to a new quarter */
    uint32_t slots[];
};

/* Guarded by the shard's create_lock. */
struct slot_pool {
    struct budget *memory; /* borrowed, may be NULL: for everything here */
    /* Owned lists: dead and in some index, oldest first; out of every index and behind a barrier;
     * and free. */
    struct slot_batch *dead_first, *dead_last, *barred, *free;
    struct retired_index *retired_first, *retired_last; /* oldest first; owned, the indexes too */
    uint64_t index_version;                             /* of the current index */
    uint64_t dead_count;                                /* dead slots in the current index */
    uint64_t waiting_count, free_count;                 /* of all dead slots; those that are free */
};

void slot_pool_init(struct slot_pool *p, struct budget *memory);
/* Frees retired indexes, whoever may hold them. Accepts a zeroed struct. */
void slot_pool_done(struct slot_pool *p);

/* Room for `capacity` slots, to be added in ascending order; NULL when memory is refused. Needs no
 * lock. */
struct slot_batch *slot_batch_new(struct slot_pool *p, size_t capacity);
void slot_batch_free(struct slot_pool *p, struct slot_batch *b);
void slot_batch_add(struct slot_batch *b, uint32_t slot);
/* The slots have died while the current index knew them. Takes the batch over; frees an empty one.
 */
void slot_pool_bury(struct slot_pool *p, struct slot_batch *b);
/* The slots, whose structs hold the generation of their next series, wait only until no file below
 * `next_file` is left. Takes the batch over. */
void slot_pool_bar(struct slot_pool *p, struct slot_batch *b, uint64_t next_file);

/* What slot_pool_retire() needs; NULL when memory is refused. Needs no lock. */
struct retired_index *retired_index_new(struct slot_pool *p);
void retired_index_free(struct slot_pool *p, struct retired_index *r); /* unused; accepts NULL */
/* The current index is now one that knows no dead slot. The old one may be freed when every reader
 * that entered before `stamp` has left. */
void slot_pool_retire(struct slot_pool *p, struct retired_index *r, struct index *old,
                      uint64_t stamp);
/* A replaced index that nobody can hold any more; the caller frees it, best without a lock. NULL:
 * none. */
struct index *slot_pool_take_retired(struct slot_pool *p, struct reader_registry *readers);

/*
 * Frees slots for which the time has come, at most about `most`; true if there is more to do.
 * `oldest_file`: the lowest number of a live sealed or late file of the shard, UINT64_MAX without
 * any; `next_file`: that of the next one. Generations are raised in the structs: the caller also
 * holds shard.lock.
 */
bool slot_pool_release(struct slot_pool *p, struct series_table *series, uint64_t oldest_file,
                       uint64_t next_file, size_t most);

/* A free slot, whose struct holds the generation of its next series; false: none. */
MUST_USE bool slot_pool_take(struct slot_pool *p, uint32_t *slot);
/* Returns the slot that was taken last and has not been used. */
void slot_pool_put_back(struct slot_pool *p);

#endif
