/*
 * Taking samples out of the memtable: a cut closes open chunks and notes what stands there, a
 * detach takes that off again once it is in a file. LIFECYCLE.md has the whole sequence.
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_SHARD_CUT_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_SHARD_CUT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/memtable/shard_internal.h"

enum {
    CUT_SERIES_MAX = 512,  /* series with samples in one slice */
    CUT_VISITS_MAX = 4096, /* slots looked at in one slice */
};

/* What a cut notes of a series that has samples in memory. */
struct series_cut {
    uint32_t slot;
    uint16_t generation;
    uint32_t closed; /* newest closed chunk's descriptor: it and all older ones are to be sealed */
    uint32_t histogram_blocks; /* of the lane of histograms, from the oldest on, likewise */
    int64_t newest_ms;
    uint64_t newest_bits;
};

/*
 * Under shard.lock: goes on from *slot_cursor, closes the open chunks of at most CUT_SERIES_MAX
 * series and notes them, ascending by slot; *slot_cursor is where the next slice begins. Fewer are
 * noted when a block for a descriptor is refused: *refused is set, and the cursor stands on that
 * series.
 */
size_t shard_cut(struct shard *s, uint32_t *slot_cursor, uint32_t slot_end,
                 struct series_cut cuts[CUT_SERIES_MAX], bool *refused);
/* The cut of a whole shard at once, for a delete: all slots in one critical section. */
struct cut_list {
    struct series_cut *items; /* owned; ascending by slot */
    size_t count, capacity;
};
void cut_list_done(struct cut_list *list);
/* Without the lock: makes room for all series the shard has now. False when memory is refused. */
MUST_USE bool cut_list_reserve(struct cut_list *list, struct shard *s);
/* Under shard.lock: closes all open chunks and notes every series with samples. False when the list
 * is too small (series came since: reserve and try again) or, with *refused set, when a block is
 * refused. Chunks may have been closed then, which harms nothing. */
MUST_USE bool shard_cut_all(struct shard *s, struct cut_list *list, bool *refused);

/* The closed chunks of a cut, oldest first. Only the shard's maintainer frees blocks, so no epoch
 * section is needed, nor the lock. */
struct cut_chunks {
    uint32_t *descriptors; /* owned by the iterator; oldest first */
    size_t count, capacity, at;
    size_t given; /* samples of the chunk `at` that were given already */
};
void cut_chunks_init(struct cut_chunks *c);
void cut_chunks_done(struct cut_chunks *c);
/* Collects the descriptors of a cut. False when memory is refused. */
MUST_USE bool cut_chunks_begin(struct cut_chunks *c, const struct chunk_pool *pool,
                               const struct series_cut *cut);
/* Decodes the next run of samples that lie in one window into t_ms/value (`capacity` >=
 * CHUNK_SAMPLE_MAX samples, and room for CHUNK_DECODE_SLACK more; a chunk is split at the border of
 * a window only); returns their number, 0 after the last. */
size_t cut_chunks_next(struct cut_chunks *c, const struct chunk_pool *pool, int64_t *t_ms,
                       double *value, size_t capacity);

/* The histograms of a cut, oldest first: for the shard's maintainer, who alone detaches. */
struct cut_histograms {
    struct histogram_block **blocks; /* owned array of blocks that the lane owns */
    size_t count, capacity, at;
};
void cut_histograms_init(struct cut_histograms *c);
void cut_histograms_done(struct cut_histograms *c);
/* Collects the blocks of a cut; takes shard.lock for a moment. False when memory is refused. */
MUST_USE bool cut_histograms_begin(struct cut_histograms *c, struct shard *s,
                                   const struct series_cut *cut);
/* Samples of one series that lie in one window, ascending strictly by time; at most
 * CODEC_SAMPLES_MAX. */
struct histogram_run {
    size_t count; /* 0: there are no more */
    int64_t *t_ms;
    struct histogram *values; /* many share spans and custom values */
};
/* Decodes the next run, into the arena: no lock is needed. ERR_NOMEM or ERR_LIMIT. */
MUST_USE enum err cut_histograms_next(struct cut_histograms *c, struct arena *arena,
                                      struct histogram_run *out, struct errinfo *ei);
/* The same for a series of the frozen lane of late ones: begins with its first sample. */
MUST_USE bool cut_histograms_begin_late(struct cut_histograms *c,
                                        const struct histogram_series *series);

/* Under shard.lock: takes the noted chunks off their series (newer ones stay) and adds them to
 * *freed, which is given to chunk_chains_retire() after the lock is left. Series whose generation
 * has changed are passed over. When a block is refused, a series that has newer closed chunks keeps
 * the noted ones too: they are sealed once more, as repeats. */
void shard_detach(struct shard *s, const struct series_cut *cuts, size_t count,
                  struct chunk_chains *freed);
/* Under shard.lock: the same for the noted blocks of histograms, which always go; *freed is given
 * to histogram_blocks_free() after the lock is left. */
void shard_detach_histograms(struct shard *s, const struct series_cut *cuts, size_t count,
                             struct histogram_block **freed);

#endif
