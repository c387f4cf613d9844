/*
 * The chunks in memory of many series at once.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_CHUNK_BATCH_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_CHUNK_BATCH_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/querier.h"

/* What of a series' chunks must be copied under the shard's lock: where they begin, and the block
 * that the open chunk is being written to, with what the series struct knows of it. All other
 * blocks stay as they are while an epoch section is held that was entered before. */
struct chunk_snapshot {
    uint32_t closed;               /* newest closed chunk that may overlap the range; 0: none */
    uint32_t open_head, open_tail; /* while open_count > 0 */
    int64_t open_first_ms;
    uint8_t open_count, tail_used;
    uint8_t tail[CHUNK_BLOCK_PAYLOAD + 1]; /* a run's token behind it */
};

/* Under the shard's lock. */
void chunk_snapshot_take(const struct chunk_pool *pool, const struct series *series,
                         int64_t min_time_ms, int64_t max_time_ms, struct chunk_snapshot *out);
/* The samples in [min_time_ms, max_time_ms] of `count` series, in the arena. Without a lock, in the
 * epoch section in which the snapshots were taken. */
MUST_USE enum err chunk_batch_read(const struct chunk_pool *pool,
                                   const struct chunk_snapshot *snaps, size_t count,
                                   int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                                   struct column *out, struct errinfo *ei);

#endif
