/*
 * The samples of one shard's series since the last seal, read side: what the querier needs. The
 * write side is in shard_internal.h.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "engine/index_internal.h"
#include "engine/querier.h"

struct shard;
struct engine;

struct shard *engine_shard(const struct engine *e, uint32_t shard); /* borrowed */
struct index *shard_index(const struct shard *s);                   /* borrowed */

/* Fingerprint, generation and time bounds (first and newest sample) of `count` slots, in slices
 * under the shard's lock. min > max for a slot without samples or that is gone. */
struct series_meta {
    struct hash128 fingerprint;
    int64_t min_time_ms, max_time_ms;
    uint16_t generation;
};
void shard_series_meta(struct shard *s, const uint32_t *slots, size_t count,
                       struct series_meta *out);

/* The samples in [min, max] of up to QUERIER_READ_BATCH_MAX series of this shard: one critical
 * section checks generations and copies the encoded chunks, decoding runs outside the lock. */
MUST_USE enum err shard_read(struct shard *s, const uint32_t *slots, const uint16_t *generations,
                             size_t count, int64_t min_time_ms, int64_t max_time_ms,
                             struct arena *arena, struct column *out, struct errinfo *ei);

#endif
