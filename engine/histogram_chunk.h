/*
 * Chunks of native histograms in files: how many samples go into one, and reading one within
 * bounds. What a column of them looks like is codec_histogram.h's matter.
 *
 * A chunk holds samples of one kind, floats or histograms. The hint of a histogram speaks of the
 * sample before it in the same source. So whoever puts samples of several sources one behind the
 * other gives the first one behind each border histogram_hint_at_border().
 */
#ifndef RIMSTONE_ENGINE_HISTOGRAM_CHUNK_H
#define RIMSTONE_ENGINE_HISTOGRAM_CHUNK_H

#include "base/arena.h"
#include "base/budget.h"
#include "base/err.h"
#include "engine/codec_histogram.h"
#include "engine/histogram.h"

enum {
    /* A chunk ends with the sample that reaches so much memory. Merges hold one chunk of each
     * input, a sealed file's page holds whole chunks. */
    HISTOGRAM_CHUNK_BYTES = 512 << 10,
    HISTOGRAM_CHUNK_SAMPLES_MAX = 2048,
    /* No chunk is decoded into more: a few damaged bytes can stand for any number of buckets. */
    HISTOGRAM_CHUNK_DECODED_MAX = 256 << 20,
};

/* What a histogram takes in memory behind `before` in a chunk (NULL: it is the first). Layouts that
 * follow one another and are equal are counted once. */
size_t histogram_chunk_weight(const struct histogram *h, const struct histogram *before);

/*
 * Decodes a column of n histograms into the arena; *out is an array of n. ERR_CORRUPT when the
 * bytes are no such column, ERR_LIMIT when it takes more than HISTOGRAM_CHUNK_DECODED_MAX or the
 * arena's budget allows; neither with a story.
 */
MUST_USE enum err histogram_chunk_decode(struct bytes column, size_t n, struct arena *arena,
                                         struct histogram **out, struct errinfo *ei);

/* ---- histograms on their way into a chunk ---- */

struct histogram_chunk_builder {
    struct arena arena;      /* of what the items point to */
    struct histogram *items; /* owned; charged to the arena's budget */
    size_t count, capacity;
    size_t bytes;
};
void histogram_chunk_builder_init(struct histogram_chunk_builder *r, struct budget *memory);
void histogram_chunk_builder_done(struct histogram_chunk_builder *r);
/* Leaves it empty and ready for use. */
void histogram_chunk_builder_reset(struct histogram_chunk_builder *r);
/* Whether it is to be written before more is added. */
static inline bool histogram_chunk_builder_is_full(const struct histogram_chunk_builder *r)
{
    return r->bytes >= HISTOGRAM_CHUNK_BYTES || r->count >= HISTOGRAM_CHUNK_SAMPLES_MAX;
}
/* Adds a copy. `is_border`: the sample before it is of another source. ERR_LIMIT, ERR_NOMEM: as
 * before. */
MUST_USE enum err histogram_chunk_builder_add(struct histogram_chunk_builder *r,
                                              const struct histogram *h, bool is_border,
                                              struct errinfo *ei);

#endif
