/*
 * A request on its way through engine_write(): what its steps share.
 */
#ifndef RIMSTONE_ENGINE_WRITE_INTERNAL_H
#define RIMSTONE_ENGINE_WRITE_INTERNAL_H

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
    uint32_t unused;
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
};

/* A refusal that will be spelled out in the answer. */
struct refusal_example {
    uint32_t series;
    enum refusal reason;
    int64_t t_ms;
};

struct write_request {
    struct engine *engine;
    struct write_batch *batch;
    struct write_scratch *scratch;
    struct write_result *result;
    int64_t time_max_ms;                   /* the clock and ten minutes */
    uint64_t queued_entries, queued_bytes; /* for the log's notice */
    uint32_t example_count;
    struct refusal_example examples[WRITE_EXAMPLE_COUNT];
    struct repeat_cache cache; /* of the shard at hand */
};

/* Counts one refused sample and keeps the first few for the answer. */
void write_refuse(struct write_request *r, uint32_t series, int64_t t_ms, enum refusal reason);

/* A shard's lock, held while a request's samples go in. */
struct shard_session {
    struct shard *shard;
    struct shard_change change;
    uint64_t sequence_before; /* to count what was queued */
    uint32_t work_count;      /* samples since the lock was taken */
};
void write_session_begin(struct write_request *r, struct shard_session *session, struct shard *s);
void write_session_end(struct write_request *r, struct shard_session *session);
/* Appends all samples of a series of the batch, letting others have the lock now and then. Fails
 * only with ERR_NOMEM. */
MUST_USE enum err write_series_samples(struct write_request *r, struct shard_session *session,
                                       const struct write_item *item, struct series *series);

/* The slow path: a series whose sender key leads nowhere. Takes locks itself. */
MUST_USE enum err write_unknown_series(struct write_request *r, uint32_t series_index,
                                       struct errinfo *ei);
/* Labels of a series for a message: parsed, empty values removed, sorted, not checked. */
MUST_USE enum err write_labels_plain(struct write_request *r, uint32_t series_index,
                                     struct labels *out);

#endif
