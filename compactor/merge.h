/*
 * Merges parts of one shard into one. Streaming: series in label order, of each series the chunks
 * in order of time; memory does not grow with the parts (see merge_run()).
 *
 * One rule for repeats: of several samples with one timestamp the one of the lowest generation
 * stays, float or histogram. Chunks that overlap nothing and are large enough are copied as bytes;
 * small neighbours are decoded and written as larger chunks; what overlaps is merged sample by
 * sample. Where samples of two parts meet, a histogram's hint no longer speaks of the sample
 * before.
 */
#ifndef RIMSTONE_COMPACTOR_MERGE_H
#define RIMSTONE_COMPACTOR_MERGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "engine/labels.h"
#include "engine/part.h"

enum { MERGE_INPUTS_MAX = 256, MERGE_SPLIT_MAX = 16 };

/*
 * Whether the parts keys[i] with chosen[i] may be merged while the others of `count` live parts
 * stay; *out is then the key of the result. The choice is refused, with ERR_INVALID and the story:
 *   - when it is empty, too large, or of several shards, resolutions or retention classes;
 *   - when a part that stays overlaps an input and its generation lies between that input's and
 *     the result's: it would change sides, and with it which of two repeated samples wins (a part
 *     of another shard count overlaps where its shard has hashes of the result's);
 *   - when parts that overlap bear the same generation, since none of them is then the first.
 * The result's window covers those of the inputs; its generation is the highest among them. Where a
 * live part bears that very key (a merge within one window, a part rewritten by itself) it is the
 * next number that no live part of the window bears: whoever hands out generations must leave gaps,
 * or the second rule refuses more than it needs to.
 */
MUST_USE enum err merge_inputs_valid(const struct part_key *keys, const bool *chosen, size_t count,
                                     struct part_key *out, struct errinfo *ei);

/* Both ends belong to it. */
struct merge_range {
    int64_t min_time_ms, max_time_ms;
};

/*
 * What is dropped on the way: asked once for each series of each input. *out (in any order, may
 * overlap) is borrowed until the next call or the end of the merge. `generation` is the input's:
 * samples of older files fall to a tombstone, younger ones do not.
 */
struct merge_purge {
    enum err (*ranges)(void *ctx, const struct labels *labels, struct hash128 fingerprint,
                       uint64_t generation, const struct merge_range **out, size_t *out_count,
                       struct errinfo *ei); /* NULL: nothing is dropped */
    void *ctx;
};

/*
 * A result of several parts, by the hashes of the series: result i has the key of the merge with
 * its shard + i. `place` says which one a series goes to.
 */
struct merge_split {
    uint32_t count; /* 2 to MERGE_SPLIT_MAX; 0: one result */
    enum err (*place)(void *ctx, const struct labels *labels, uint32_t *out, struct errinfo *ei);
    void *ctx;
};

/* For whoever watches from another thread; relaxed: counters that decide nothing. */
struct merge_progress {
    _Atomic uint64_t samples_total; /* of the inputs; set when the merge begins */
    _Atomic uint64_t samples_done;  /* of the inputs; lags by a batch */
    _Atomic uint64_t series_done;   /* of the result */
};

struct merge_options {
    struct part_store *store; /* of the result */
    const char *dir;          /* of the result and, for messages, of the inputs */
    /* From merge_inputs_valid(); the window may be larger. The inputs' shards lie within its
     * shard, or those of the results of a split within each of theirs. */
    struct part_key key;
    struct part *const *inputs;
    size_t input_count;    /* 1 to MERGE_INPUTS_MAX */
    struct budget *memory; /* what the merge itself holds; may be NULL */
    /* Samples in a chunk that is written anew: about, and never above 2 * target_samples. A chunk
     * of at least copy_min_samples is copied. 0: merge_chunk_sizes(). */
    uint32_t target_samples, copy_min_samples;
    struct merge_purge purge;
    struct merge_split split;
    const _Atomic bool *stop; /* looked at for every chunk; may be NULL */
    /* Called between batches (some 65,000 samples), with nothing locked: may wait, so that ingest
     * and queries go first. NULL: never. */
    void (*yield)(void *ctx);
    void *yield_ctx;
    struct merge_progress *progress; /* may be NULL */
};

struct merge_stats {
    uint64_t series_count;
    uint64_t chunks_copied, chunks_decoded, chunks_encoded;
    uint64_t samples_copied, samples_encoded;
    uint64_t samples_repeated; /* dropped under the rule for repeats */
    uint64_t samples_purged;
    uint64_t input_bytes, output_bytes;
};

struct merge_result {
    bool written; /* false: no sample is left, and there is no part */
    struct part_info info;
    struct part_info infos[MERGE_SPLIT_MAX]; /* of all parts that were written; the first is info */
    uint32_t info_count;
    struct merge_stats stats;
};

/* The sizes for a result of that window: 480 samples in 2 h, up to 3840 from 16 h on. */
void merge_chunk_sizes(uint64_t window_size_ms, uint32_t *target_samples,
                       uint32_t *copy_min_samples);

/*
 * Merges, in the calling thread. Holds per input an iterator (about a megabyte of pages, or those
 * of its largest series) and 128 KiB where chunks are decoded, of histograms some megabyte more,
 * besides one part writer; all charged to budgets, ERR_LIMIT when one is spent.
 *
 * ERR_CORRUPT names the file of the input; ERR_CANCELED after *stop; ERR_UNSUPPORTED when chunks
 * of a kind that this program does not know overlap or are purged in part. After any failure
 * nothing of the result is left (debris where the disk refuses even that), the inputs are
 * untouched, and *out is not written; of a split some results may be left. On success the result is
 * durable; the caller names it in the manifest and then removes the inputs.
 */
MUST_USE enum err merge_run(const struct merge_options *o, struct merge_result *out,
                            struct errinfo *ei);

#endif
