/*
 * Native histograms of a shard in memory, beside its float chunks: by slot and generation, blocks
 * of packed samples (histogram_pack_internal.h), each beginning with one that stands by itself. A
 * lane has the samples in order, another one the late ones; which of a series' samples lie where
 * and what is a repeat is the shard's matter (shard_histogram.c).
 *
 * A lane is guarded by the shard's lock. Blocks are counted: a reader counts those it needs under
 * the lock and decodes them without it. Closed blocks never change; the open one, to which samples
 * are still added, is copied instead.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_HISTOGRAM_LANE_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_HISTOGRAM_LANE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/histogram.h"
#include "engine/memtable/late_internal.h"
#include "engine/querier.h"

enum {
    HISTOGRAM_BLOCK_SAMPLES = 120,
    /* A block is closed by the sample that reaches so much unpacked: a few bytes can stand for many
     * buckets, and whoever decodes a block holds all of it. */
    HISTOGRAM_BLOCK_WEIGHT = 256 << 10,
};

struct histogram_block {
    _Atomic uint32_t refs;
    uint32_t count, sample_capacity;
    uint32_t size, capacity;            /* bytes behind the times */
    size_t weight;                      /* what its samples take unpacked, at most */
    struct budget *memory;              /* borrowed; NULL: not charged */
    struct histogram_block *next_freed; /* in a list of those that were taken off */
    int64_t t_ms[];                     /* ascending strictly; the packed samples lie behind it */
};

struct histogram_series {
    uint32_t slot; /* LATE_SLOT_NONE: an empty place */
    uint16_t generation;
    bool is_open; /* the last block takes more */
    uint32_t block_count, block_capacity;
    struct histogram_block **blocks; /* owned, each of them counted; ascending by time */
    struct histogram_state *newest;  /* owned: of the open block, for differences */
};

struct histogram_lane {
    struct budget *memory;           /* borrowed, may be NULL */
    struct histogram_series *places; /* owned; open addressing by slot; a power of two, or NULL */
    size_t place_count, series_count;
    uint64_t sample_count, memory_bytes;
    int64_t min_time_ms, max_time_ms; /* INT64_MAX / INT64_MIN while empty */
    uint64_t moved_count;             /* as in struct late_buffer */
};

void histogram_lane_init(struct histogram_lane *lane, struct budget *memory);
/* Leaves it empty and ready for use. */
void histogram_lane_done(struct histogram_lane *lane);
/* `to`, which is empty, takes over all that `from` holds. */
void histogram_lane_move(struct histogram_lane *from, struct histogram_lane *to);
/* The series of a slot, or NULL; of that generation only. Good until the lane changes. */
const struct histogram_series *histogram_lane_find(const struct histogram_lane *lane, uint32_t slot,
                                                   uint16_t generation);

/* Adds a sample that is newer than all of its series in the lane, with the hint that it has behind
 * its predecessor if that lies in the open block; `before_ms` is the time of the series' newest
 * sample of either kind. False, with nothing changed, when memory is refused. */
MUST_USE bool histogram_lane_append(struct histogram_lane *lane, uint32_t slot, uint16_t generation,
                                    int64_t t_ms, const struct histogram *h, int64_t before_ms);
/* Adds a sample anywhere, in a block of its own; for lanes of late ones, where nothing is appended.
 * Its timestamp is not there yet. `packed` stands by itself; what its hint says of a sample before
 * it is forgotten. */
MUST_USE bool histogram_lane_insert(struct histogram_lane *lane, uint32_t slot, uint16_t generation,
                                    int64_t t_ms, struct bytes packed);
/* What a sample of either kind would be beside those of a series: LATE_STORED (its timestamp is not
 * there), LATE_REPEAT, LATE_DUPLICATE, or LATE_NO_MEMORY. `bits`: a float's, or those of
 * histogram_packed_bits(). */
enum late_outcome histogram_lane_judge(const struct histogram_lane *lane, uint32_t slot,
                                       uint16_t generation, int64_t t_ms, uint64_t bits);
/* All series (series_count of them), ascending by slot and generation; good as long as the lane
 * does not change. */
void histogram_lane_list(const struct histogram_lane *lane, const struct histogram_series **out);

/* ---- out of the lane ---- */

/* Closes the series' open block, if there is one; how many blocks it has now. 0: no such series. */
uint32_t histogram_lane_cut(struct histogram_lane *lane, uint32_t slot, uint16_t generation);
/* Takes the oldest `count` blocks off a series and puts them in front of *freed. */
void histogram_lane_detach(struct histogram_lane *lane, uint32_t slot, uint16_t generation,
                           uint32_t count, struct histogram_block **freed);
/* Lets go of a list that histogram_lane_detach() made. No lock is needed. */
void histogram_blocks_free(struct histogram_block *list);

/* ---- reading ---- */

/* Blocks of one series that overlap a range, oldest first. Zero-initialise. */
struct histogram_take {
    struct histogram_block **blocks; /* in the arena; those below ref_count are counted */
    size_t count, ref_count;
    size_t sample_count;
};
/* Under the shard's lock: takes what a series has in [min, max]. False when the arena refuses; what
 * was taken is counted all the same. */
MUST_USE bool histogram_take_blocks(struct histogram_take *take, const struct histogram_lane *lane,
                                    uint32_t slot, uint16_t generation, int64_t min_time_ms,
                                    int64_t max_time_ms, struct arena *arena);
/* The samples of these blocks in [min, max] as a column with histograms, all in the arena.
 * ERR_LIMIT or ERR_NOMEM. */
MUST_USE enum err histogram_take_read(const struct histogram_take *take, int64_t min_time_ms,
                                      int64_t max_time_ms, struct arena *arena, struct column *out,
                                      struct errinfo *ei);
void histogram_take_drop(struct histogram_take *take);

/* Decodes all samples of a block into out[0..count); arrays in the arena, layouts shared. */
MUST_USE enum err histogram_block_read(const struct histogram_block *block, struct arena *arena,
                                       struct histogram *out, struct errinfo *ei);

/* Two columns of one series as one, ascending by time: of equal timestamps a's sample. An empty one
 * gives the other one as it is. False when the arena refuses. */
MUST_USE bool columns_interleave(const struct column *a, const struct column *b,
                                 struct arena *arena, struct column *out);

#endif
