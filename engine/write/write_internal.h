/*
 * A request on its way through engine_write(): what its steps share.
 */
#ifndef RIMSTONE_ENGINE_WRITE_WRITE_INTERNAL_H
#define RIMSTONE_ENGINE_WRITE_WRITE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "engine/engine_internal.h"

/* What the passes under a lock need of a series, side by side in the order they need it: picking it
 * out of the request there would be a cache miss each. */
struct write_item {
    front_target target;
    uint32_t series; /* index in the request */
    uint32_t sample_first, sample_count;
    uint32_t histogram_count; /* where they stand is in the request: few series have any */
};

/* Memory that a batch keeps from request to request; write_batch.scratch. */
struct write_scratch {
    front_target *targets;    /* one per series */
    struct write_item *order; /* series by shard, unknown ones last */
    size_t capacity;
    uint32_t *shard_end; /* one per shard and one for the unknown */
    size_t shard_capacity;
    struct arena arena;           /* reset per series of the slow path */
    struct byte_writer canonical; /* fields of the series at hand */
    struct byte_writer rest;      /* the same without the metric name */
    struct byte_writer packed;    /* the histogram at hand */
};

enum { WRITE_DROPPED_SLOTS = 16 };

/* A refusal that will be spelled out in the answer. */
struct refusal_example {
    uint32_t series;
    enum refusal reason;
    uint32_t limit; /* its number, for REFUSAL_LIMIT */
    int64_t t_ms;
    const char *text; /* of the batch: why a histogram is invalid. NULL: none */
};

struct write_request {
    struct engine *engine;
    struct write_batch *batch;
    struct write_scratch *scratch;
    struct write_result *result;
    int64_t time_max_ms;                   /* the clock and ten minutes */
    int64_t time_min_ms;                   /* the clock less the retention */
    uint64_t queued_entries, queued_bytes; /* for the log's notice */
    uint32_t example_count;
    struct refusal_example examples[WRITE_EXAMPLE_COUNT];
    struct old_samples old;       /* of the shard at hand */
    const struct rule_set *rules; /* in effect for the whole request */
    uint16_t rules_stamp;
    struct {
        struct decider *decider; /* NULL: none yet */
        uint64_t samples;
    } dropped[WRITE_DROPPED_SLOTS]; /* not counted yet, by decider id */
};

/* Counts one refused sample and keeps the first few for the answer. */
void write_refuse(struct write_request *r, uint32_t series, int64_t t_ms, enum refusal reason);

/* Refuses all samples of a series; `limit` is the number of the limit it is past. */
void write_refuse_series(struct write_request *r, uint32_t series, enum refusal reason,
                         uint32_t limit);

/* A shard's lock, held while a request's samples go in. */
struct shard_session {
    struct shard *shard;
    struct shard_change change;
    uint64_t sequence_before, histogram_bytes_before; /* to count what was queued */
    uint32_t work_count;                              /* samples since the lock was taken */
    bool is_gone; /* the series at hand died while others had the lock */
};
void write_session_begin(struct write_request *r, struct shard_session *session, struct shard *s);
void write_session_end(struct write_request *r, struct shard_session *session);
/* Appends all samples of a series of the batch, letting others have the lock now and then. When the
 * series dies meanwhile, session->is_gone is set and the caller takes all of them to its successor:
 * what the dead one has got is a repeat for readers. Fails only with ERR_NOMEM. */
MUST_USE enum err write_series_samples(struct write_request *r, struct shard_session *session,
                                       const struct write_item *item, struct series *series);

/* ---- write_dropped.c ---- */

/* Counts the samples of a series as dropped. */
void write_drop(struct write_request *r, uint32_t series, struct decider *decider);
/* The same by what its key leads to; false when that stands for nothing any more. */
bool write_dropped_again(struct write_request *r, uint32_t series, front_target target);
/* A series of the batch is dropped from now on, where its key led nowhere: if samples of these
 * labels (in canonical form) are stored and go on, they end with a staleness marker. ERR_NOMEM. */
MUST_USE enum err write_end_dropped(struct write_request *r, uint32_t series,
                                    const struct labels *labels);
/* Adds what write_drop() has gathered to the rules' counters. */
void write_dropped_count(struct write_request *r);

/* The slow path: a series whose sender key leads nowhere. Takes locks itself. */
MUST_USE enum err write_unknown_series(struct write_request *r, uint32_t series_index,
                                       struct errinfo *ei);
/* Labels of a series for a message: parsed, empty values removed, sorted, not checked. */
MUST_USE enum err write_labels_plain(struct write_request *r, uint32_t series_index,
                                     struct labels *out);

#endif
