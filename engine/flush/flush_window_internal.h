/*
 * What the files of a window's flush share.
 *
 * Sealed files stand in the order of slots, slice by slice; a part wants the order of labels, in
 * which the series of one page of a file are far apart. So the files are walked front to back, once
 * for a survey (how much there is of each series) and then once a pass: a pass is a range of series
 * in label order whose chunks fit into memory together. Each walk reads a group's directory, and of
 * its pages those that the pass wants, with one read.
 */
#ifndef RIMSTONE_ENGINE_FLUSH_FLUSH_WINDOW_INTERNAL_H
#define RIMSTONE_ENGINE_FLUSH_FLUSH_WINDOW_INTERNAL_H

#include "base/arena.h"
#include "engine/codec.h"
#include "engine/flush/flush_internal.h"
#include "engine/histogram_chunk.h"
#include "engine/part/part_writer_internal.h"

enum {
    FLUSH_LOOKUP_SLOTS = 512, /* asked for at once */
    FLUSH_BATCH_SERIES = 256, /* whose labels are held at once */
    FLUSH_TIMES_CACHE = 1024, /* a power of two */
};

/* What the survey finds of a slot. */
struct flush_slot {
    uint64_t bytes; /* that its chunks take in a pass */
    uint32_t chunk_count;
    uint32_t rank; /* in label order, of those with chunks */
    uint16_t generation;
    bool is_wanted;
};

/* A timestamp column that chunks of the pass share. */
struct flush_times {
    int64_t min_time_ms, max_time_ms;
    const uint8_t *data; /* encoded; in the pass's arena */
    uint64_t offset;     /* in the file */
    uint32_t size, sample_count;
};

struct flush_chunk {
    uint32_t place; /* in the order of generations */
    uint32_t view;
    uint32_t times; /* of the pass's columns */
    uint32_t value_size : 31;
    uint32_t is_histograms : 1; /* else doubles */
    const uint8_t *values;      /* in the pass's arena */
    uint64_t page_offset;       /* in the file */
};

/* Where a timestamp column of a file went: neighbours share theirs. Overwritten at a collision: the
 * column is then held twice. */
struct flush_times_memo {
    uint64_t offset;
    uint32_t view;
    uint32_t times; /* number + 1; 0: empty */
};

struct flush {
    const struct flush_window *f;
    int64_t first_ms, last_ms; /* of the window */

    struct arena slots_arena; /* of the next three */
    struct flush_slot *slots; /* by slot, from slot_first on */
    uint32_t *order;          /* slots with chunks, in label order */
    uint32_t slot_first, slot_end, order_count;

    /* The pass: series [pass_first, pass_end) of order[]. */
    struct arena pass_arena;
    uint32_t pass_first, pass_end;
    struct flush_chunk *chunks; /* by series, then generation */
    uint32_t *starts;           /* of each series' chunks, and one more */
    uint32_t *fills;            /* how many of them have come */
    struct part_array times;    /* struct flush_times */
    struct flush_times_memo memo[FLUSH_TIMES_CACHE];
    struct arena group_arena; /* a group's directory and pages */

    /* Series on their way out. */
    struct arena series_arena; /* labels of a batch */
    struct part_writer *writer;
    const struct tombstone **tombstones; /* that may hit a view; in slots_arena */
    bool *tombstone_hits;                /* the series at hand */
    size_t tombstone_count;
    int64_t *decoded_t_ms; /* in slots_arena, with the next: one chunk */
    double *decoded_value;
    struct arena cluster_arena;   /* of chunks that overlap */
    struct arena histogram_arena; /* what the histograms of the chunks at hand are */
    struct part_cuts cuts;
    int64_t cut_end_ms; /* of the chunk at hand */
    uint32_t target_samples, pending_count;
    int64_t *pending_t_ms; /* in slots_arena, with the next: 2 * target_samples */
    double *pending_value;
    /* What is pending if not empty: then pending_count histograms, no values. */
    struct histogram_chunk_builder pending_histograms;
};

/* ---- flush_gather.c: walking the files ---- */

/* Fills slots[]: which are wanted, and what there is of them. */
MUST_USE enum err flush_survey(struct flush *w, struct errinfo *ei);
/* Loads the chunks of the pass. */
MUST_USE enum err flush_gather(struct flush *w, struct errinfo *ei);

/* ---- flush_series.c: one series ---- */

/* Writes the chunks of series `rank` (of the pass), which part_writer_series() has begun. */
MUST_USE enum err flush_series_write(struct flush *w, uint32_t rank, const struct labels *labels,
                                     struct errinfo *ei);

#endif
