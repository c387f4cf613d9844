/*
 * One shard, read side: what the querier needs. The write side is in shard_internal.h.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_MEMTABLE_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_MEMTABLE_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "engine/files/file_set_internal.h"
#include "engine/index/index_internal.h"
#include "engine/querier.h"

struct shard;
struct engine;

struct shard *engine_shard(const struct engine *e, uint32_t shard); /* borrowed */
struct index *shard_index(const struct shard *s);                   /* borrowed */
/* The index of this moment, for a registered reader: it stays until that one has left. */
struct index *shard_index_pin(struct shard *s);

/* All slots there were by now are below. */
uint32_t shard_slot_end(struct shard *s);

/* Fingerprint, generation and time bounds (first and newest sample ever) of `count` slots, in
 * slices under the shard's lock. min > max for a slot without samples or that is gone. */
struct series_meta {
    struct hash128 fingerprint;
    int64_t min_time_ms, max_time_ms;
    uint16_t generation;
    bool is_live;
};
void shard_series_meta(struct shard *s, const uint32_t *slots, size_t count,
                       struct series_meta *out);

/*
 * The samples in [min, max] of up to QUERIER_READ_BATCH_MAX series of this shard, from memory and
 * files. One critical section checks generations, copies open chunks and late samples, and takes
 * the file set; decoding and files come after it. A series that has ended, or an item without a
 * slot, is read from parts by its fingerprint.
 */
struct shard_read {
    const struct file_read_item *items;
    size_t count;
    int64_t min_time_ms, max_time_ms;
    labels_source *labels_of; /* of the items; called when tombstones must be matched */
    void *ctx;
    struct arena *arena;
};
MUST_USE enum err shard_read(struct shard *s, const struct shard_read *r, struct column *out,
                             struct errinfo *ei);
/* The files at this moment, counted; NULL: none. */
struct file_set *shard_files(struct shard *s);

#endif
