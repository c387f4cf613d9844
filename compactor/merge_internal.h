/*
 * What the files of the merge share.
 */
#ifndef RIMSTONE_COMPACTOR_MERGE_INTERNAL_H
#define RIMSTONE_COMPACTOR_MERGE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compactor/merge.h"
#include "engine/codec.h"
#include "engine/histogram_chunk.h"

/* One input: where it is in label order, and within the series at hand in time. */
struct merge_cursor {
    struct part *part;                /* borrowed */
    struct part_iter *it;             /* owned */
    const struct part_series *series; /* borrowed from `it`; NULL after the last */
    int64_t first_ms, last_ms;        /* of its window */

    /* The series at hand. */
    size_t chunk; /* the next that was neither copied nor decoded */
    bool decoded; /* samples [at, count) of the chunk before are still to come */
    size_t at, count;
    int64_t *t_ms; /* owned, with `value`: CODEC_SAMPLES_MAX each; NULL until first needed */
    double *value;
    struct histogram *histogram; /* `count` in `arena`, and no values; NULL: floats */
    struct arena arena;          /* of the decoded chunk's histograms */
    bool
        has_gap; /* samples were dropped in front of the next chunk: its first hint is about them */
    struct merge_range *ranges; /* owned: to be purged; ascending, apart from each other */
    size_t range_count, range_capacity;
};

struct merge {
    const struct merge_options *o;
    struct part_writer *writer;                   /* of the series at hand; one of `writers` */
    struct part_writer *writers[MERGE_SPLIT_MAX]; /* owned */
    uint32_t writer_count;
    struct merge_cursor cursors[MERGE_INPUTS_MAX]; /* by generation */
    struct merge_cursor *group[MERGE_INPUTS_MAX];  /* those that have the series, by generation */
    size_t cursor_count, group_count;
    uint32_t target_samples, copy_min_samples;
    uint64_t charged_bytes;

    /* Samples on their way into a chunk. Chunks are cut at fixed borders of time, `cuts`,
     * so that series that are scraped together share timestamp columns
     * wherever they began. */
    int64_t *t_ms; /* owned, with `value`: CODEC_SAMPLES_MAX each */
    double *value;
    struct histogram_chunk_builder histograms; /* if not empty: `count` of them, and no values */
    const struct merge_cursor *newest; /* whose sample came last; NULL: the series has none yet */
    size_t count;
    int64_t border_ms; /* the last moment that belongs to the chunk at hand */
    int64_t first_ms, last_ms;
    struct part_cuts cuts;

    uint64_t batch_samples; /* since the last yield */
    struct merge_stats stats;
};

/* First and last moment of a key's window; false when there is none or it passes the end of time.
 */
bool merge_window(const struct part_key *key, int64_t *first_ms, int64_t *last_ms);
/* Same shard, resolution and retention class. */
bool merge_same_family(const struct part_key *a, const struct part_key *b);

/* `count` items, charged. */
MUST_USE enum err merge_alloc(struct merge *m, size_t count, size_t size, void **out,
                              struct errinfo *ei);
/* An error about the series at hand of an input, by the name of its file; takes the place of what
 * `ei` holds. */
enum err merge_input_error(const struct merge *m, const struct merge_cursor *c, enum err code,
                           enum part_file file, const char *what, struct errinfo *ei);
static inline enum err merge_corrupt(const struct merge *m, const struct merge_cursor *c,
                                     enum part_file file, const char *what, struct errinfo *ei)
{
    return merge_input_error(m, c, ERR_CORRUPT, file, what, ei);
}
/* Counts samples of the inputs, looks at the stop flag, yields after a batch. */
MUST_USE enum err merge_tick(struct merge *m, uint64_t samples, struct errinfo *ei);
/* Writes the chunks of the series that all of m->group have. */
MUST_USE enum err merge_series_chunks(struct merge *m, struct errinfo *ei);

#endif
