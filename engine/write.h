/*
 * The write path's input: what one remote-write request holds, as flat arrays that point into the
 * decoded body. Filled by the api without building objects, consumed by engine_write().
 */
#ifndef RIMSTONE_ENGINE_WRITE_H
#define RIMSTONE_ENGINE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "engine/histogram.h"
#include "engine/labels.h"

struct engine;

/* The staleness marker, the one NaN that ends a series. */
#define STALE_NAN_BITS 0x7ff0000000000002U

struct write_sample {
    int64_t t_ms;
    double value;
};

struct write_histogram {
    int64_t t_ms;
    struct histogram value; /* as histogram_accept() left it; arrays in the batch's arena */
};

struct write_series {
    struct hash128 sender_key; /* hash of the labels as they stand on the wire */
    struct bytes wire_labels;  /* borrowed from the body; parsed only when the key is unknown */
    uint32_t sample_first, sample_count;
    uint32_t histogram_first, histogram_count; /* in `histograms`; as a rule one of the two is 0 */
};

enum { WRITE_EXAMPLE_COUNT = 10, WRITE_EXAMPLE_SIZE = 512, WRITE_INVALID_TEXT_SIZE = 200 };

/* A histogram that histogram_accept() has refused. */
struct write_invalid {
    uint32_t series; /* index in the batch, which then has the series also without samples */
    int64_t t_ms;
    char text[WRITE_INVALID_TEXT_SIZE];
};

/* Reused from request to request; one thread at a time. Grow with write_batch_reserve_*(). */
struct write_batch {
    struct write_series *series; /* owned */
    size_t series_count, series_capacity;
    struct write_sample *samples; /* owned */
    size_t sample_count, sample_capacity;
    struct write_histogram *histograms; /* owned */
    size_t histogram_count, histogram_capacity;
    struct arena histogram_arena; /* what `histograms` point into; emptied by a reset */
    uint64_t invalid_count;       /* of histograms; the first few are told */
    struct write_invalid invalid[WRITE_EXAMPLE_COUNT];
    /* Parses wire labels into *out, unsorted and unchecked as they came; strings are borrowed from
     * the body, the array from `arena`. ERR_INVALID only when the bytes are no labels at all. */
    enum err (*labels_parse)(const void *ctx, struct bytes wire, struct arena *arena,
                             struct labels *out);
    /* Whether wire labels are labels at all; asked, before anything is stored, of those whose key
     * is unknown: what a known key stands for was labels once. NULL: all of them are. */
    bool (*labels_check)(const void *ctx, struct bytes wire);
    const void *labels_ctx; /* of both */
    void *scratch;          /* the engine's; freed by write_batch_free() */
};

MUST_USE enum err write_batch_new(struct write_batch **out, struct errinfo *ei);
void write_batch_free(struct write_batch *b);
/* Empties it and keeps the memory. */
void write_batch_reset(struct write_batch *b);
/* Room for at least one more; the pointers may move. False on allocation failure. */
MUST_USE bool write_batch_grow_series(struct write_batch *b);
MUST_USE bool write_batch_grow_samples(struct write_batch *b);
MUST_USE bool write_batch_grow_histograms(struct write_batch *b);

enum refusal {
    REFUSAL_INVALID_LABELS,
    REFUSAL_DUPLICATE_LABEL,
    REFUSAL_INVALID_UTF8,
    REFUSAL_TOO_FAR_IN_FUTURE,
    REFUSAL_TOO_OLD,
    REFUSAL_OUT_OF_ORDER,
    REFUSAL_DUPLICATE_TIMESTAMP,
    REFUSAL_INVALID_HISTOGRAM,
    REFUSAL_LIMIT,
    REFUSAL_COUNT,
};
/* "invalid_labels", ... as in rimstone_samples_refused_total{reason}. */
const char *refusal_name(enum refusal r);

struct write_result {
    uint64_t sample_count;           /* of the request, of both kinds */
    uint64_t stored_count;           /* newly appended */
    uint64_t histogram_stored_count; /* how many of these are histograms */
    uint64_t repeat_count;           /* already there with the same bits: success */
    uint64_t dropped_count;          /* by rules: success */
    uint64_t refused_count;          /* sum of refused[] */
    uint64_t refused[REFUSAL_COUNT];
    uint32_t example_count; /* first few refusals as text: "reason: {labels} timestamp_ms"; of
                             * an invalid histogram with why behind it */
    char examples[WRITE_EXAMPLE_COUNT][WRITE_EXAMPLE_SIZE];
    /* Per shard the newest sequence number at the moment the request left it, 0: not touched. The
     * caller provides engine_shard_count() entries. Filled also for repeats and refusals, so that
     * an answer never tells of state that is not durable. */
    uint64_t *sequences;
};

/*
 * Stores a batch. Samples that cannot be stored are refused one by one and counted in *result; the
 * rest is stored. ERR_UNAVAILABLE (memory above 90 % of its limit, or the log refuses) and
 * ERR_NOMEM: the caller answers 503; what was stored before the failure stays stored, and a retry
 * of the whole request is harmless. ERR_INVALID: labels_check has refused some labels, and nothing
 * has changed. Any thread; batch and result are the caller's.
 * Durable only once engine_wait_durable() says so for result->sequences.
 */
MUST_USE enum err engine_write(struct engine *e, struct write_batch *b, struct write_result *result,
                               struct errinfo *ei);

#endif
