/*
 * One seal at work: what its files share. Lives on one thread, with the shard's maintain_lock held.
 */
#ifndef RIMSTONE_ENGINE_SEAL_SEAL_RUN_INTERNAL_H
#define RIMSTONE_ENGINE_SEAL_SEAL_RUN_INTERNAL_H

#include "engine/seal/seal_internal.h"

struct seal_run {
    struct engine *engine;
    struct shard *shard;
    const struct seal_options *options;
    struct seal_result result;
    uint32_t slot_cursor, slot_end;
    uint64_t sequence; /* covered when it is done: of the first cut */
    int64_t now_ms;
    int64_t memory_min_ms; /* of the shard, when it was cut first */
    bool is_cut;           /* the first one is done */
    bool refused;          /* a block for a descriptor */
    bool has_histograms;   /* the shard had some at the last cut: files are to take both kinds */
    struct cut_list whole; /* of a cut of everything */
    size_t whole_done;
    struct series_cut *cuts; /* of the slice at hand: `cut_room`, or within `whole` */
    size_t cut_count;
    uint64_t cut_sequence;
    struct series_cut cut_room[CUT_SERIES_MAX];
    struct cut_chunks chunks;
    struct cut_histograms histograms;
    struct histogram_block *freed_histograms;
    struct chunk_chains freed;
    struct late_buffer late; /* what was written, to be freed */
    struct histogram_lane late_histograms;
    int64_t t_ms[CODEC_SAMPLES_MAX + CHUNK_DECODE_SLACK];
    double value[CODEC_SAMPLES_MAX + CHUNK_DECODE_SLACK];
};

/* ---- seal.c ---- */

/* Gives a chunk to a file's writer; a slice that is full is written first. */
MUST_USE enum err seal_chunk_put(struct seal_run *r, struct seal_file *f,
                                 const struct sealed_key *key, const int64_t *t_ms,
                                 const double *value, size_t count, struct errinfo *ei);

/* ---- seal_histograms.c ---- */

/* Gives the histograms of the slice's cuts to their files: a slice of their own, written. */
MUST_USE enum err seal_histograms(struct seal_run *r, struct errinfo *ei);
/* The same for the frozen lane of late ones. */
MUST_USE enum err seal_late_histograms(struct seal_run *r, struct errinfo *ei);
/* Whether samples of a window have sealed files of their own. */
bool seal_window_is_open(const struct seal_run *r, uint32_t window);

/* ---- seal_late.c ---- */

/* Writes the frozen late buffer and lane, if there is anything in them, and drops them. */
MUST_USE enum err seal_late(struct seal_run *r, struct errinfo *ei);

/* ---- seal_checkpoint.c ---- */

/* Makes everything durable, names it in the manifest, and cuts the log. */
MUST_USE enum err seal_checkpoint(struct seal_run *r, struct errinfo *ei);

#endif
