/*
 * Rebuilding a shard's index from its live series, and what comes free by it. LIFECYCLE.md.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_REBUILD_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_REBUILD_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine_internal.h"
#include "engine/maintain.h"

/* ---- index_rebuild.c ---- */

/* A rebuild under way. Guarded by the shard's create_lock. */
struct index_rebuild {
    uint32_t *fresh; /* owned: slots that came into the index since it began */
    size_t fresh_count, fresh_capacity;
    bool refused; /* memory for one of them was: the rebuild fails */
};
/* The slot was added to the shard's index; caller holds create_lock. */
void index_rebuild_note(struct shard *s, uint32_t slot);

/*
 * Replaces the shard's index by one of its live series, in which nothing but them is left; the old
 * one is retired. Writers wait for some 64 series at a time, readers not at all. Caller holds
 * maintain_lock and no other.
 */
MUST_USE enum err shard_index_rebuild(struct engine *e, struct shard *s,
                                      const struct maintain_control *control, struct errinfo *ei);

/* Whether a good part of what the index has is dead. Caller holds maintain_lock. */
bool shard_index_is_worn(struct shard *s);

/* ---- rebuild.c ---- */

/* Frees what nobody can name any more: replaced indexes, slots. Caller holds maintain_lock and no
 * other. */
void shard_housekeep(struct engine *e, struct shard *s);

#endif
