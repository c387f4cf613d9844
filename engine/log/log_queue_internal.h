/*
 * What waits for the log at one shard: raw samples, and series definitions.
 *
 * Writers append under the shard's lock, at the cost of a store; the committer takes the whole
 * queue by swapping pointers; encoding runs on the log's threads without the lock.
 *
 * A definition is logged twice, so that one bad frame does not cost a series: it goes out at once,
 * then waits in `recent` and goes out again with a later batch, half a second on or earlier when
 * too much waits.
 */
#ifndef RIMSTONE_ENGINE_LOG_LOG_QUEUE_INTERNAL_H
#define RIMSTONE_ENGINE_LOG_LOG_QUEUE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/thread.h"
#include "engine/log/record_internal.h"
#include "wal/wal.h"

enum {
    LOG_POOL_SPARE_MAX = 64,            /* 1.5 MiB kept for reuse */
    LOG_RECENT_BYTES_MAX = 256 << 10,   /* per shard; beyond, definitions repeat at once */
    LOG_DEFINITION_BUFFER_BYTES = 4096, /* the first of a batch; the next are larger */
    LOG_DEFINITION_BUFFER_MAX = 64 << 10,
    LOG_BEFORE_BYTES_MAX = 2048, /* larger label sets are written in full */
    LOG_HISTOGRAM_BUFFER_BYTES = 32 << 10,
    /* Of histograms that a shard's queue takes: a batch must stay far below what a frame holds. */
    LOG_HISTOGRAM_BYTES_MAX = 64 << 20,
};

/* Spare segments of all shards, and what the queues hold. */
struct log_pool {
    struct budget *memory; /* borrowed, may be NULL */
    struct mutex lock;     /* guards spare, spare_count; taken under a shard's lock */
    struct log_segment *spare;
    uint32_t spare_count;
    _Atomic uint64_t memory_bytes; /* relaxed: a statistic */
    /* Definitions that wait for their second frame, over all shards. Relaxed: the tick looks again
     * when it finds none. */
    _Atomic uint64_t recent_count;
    /* relaxed: tests set it before threads start */
    _Atomic uint64_t repeat_delay_ns;
};

void log_pool_init(struct log_pool *pool, struct budget *memory);
void log_pool_done(struct log_pool *pool);

/* Encoded definitions, one behind the other. */
struct definition_buffer {
    struct definition_buffer *next;
    uint64_t logged_ns; /* when its first frame was made */
    uint32_t count;
    size_t size, capacity;
    uint8_t data[];
};

struct definition_list {
    struct definition_buffer *first, *last;
    uint32_t count;
    size_t size_bytes, memory_bytes;
};

/* Packed histograms, each behind its size. */
struct histogram_buffer {
    struct histogram_buffer *next;
    size_t size, capacity;
    uint8_t data[];
};

/* Queued samples; the last segment may be empty. */
struct log_chain {
    struct log_segment *first, *last;
    uint64_t sample_count;
    struct histogram_buffer *histograms; /* newest first; what entries point into */
    uint64_t histogram_count, histogram_bytes;
};

/* A batch on its way to the disk; wal_batch.data. */
struct log_batch {
    struct log_chain in_order, late;
    struct definition_list fresh, repeated;
};

/* Guarded by the shard's lock. */
struct log_queue {
    struct log_pool *pool;
    struct log_chain in_order;
    struct log_chain late;        /* by itself, so that the usual batch is written in one pass */
    struct definition_list fresh; /* not yet taken */
    struct definition before;     /* the newest of fresh.last; without labels when they are large */
    uint8_t *before_labels;       /* owned; LOG_BEFORE_BYTES_MAX of them, NULL at first */
    struct definition_list recent; /* taken once */
    /* Definitions ever queued, and how many of these, the first ones, were taken twice. */
    uint64_t defined_count, repeated_count;
    struct log_batch ahead;   /* what log_queue_split() has set apart */
    uint64_t ahead_sequence;  /* of its newest entry, if that was not taken yet */
    uint64_t histogram_bytes; /* ever queued, sizes included */
    uint64_t sequence;        /* of the newest entry, queued or durable */
    uint64_t taken_sequence;  /* of the newest entry that was taken */
};

void log_queue_init(struct log_queue *q, struct log_pool *pool);
void log_queue_done(struct log_queue *q);

struct log_segment *log_chain_grow(struct log_queue *q, struct log_chain *chain);
/* Where the next sample of q->in_order or q->late goes, or NULL when memory is refused.
 * log_queue_commit() makes it count. */
static inline struct log_entry *log_queue_next(struct log_queue *q, struct log_chain *chain)
{
    struct log_segment *seg = chain->last;

    if (seg == NULL || seg->count == LOG_SEGMENT_ENTRIES) {
        seg = log_chain_grow(q, chain);
        if (seg == NULL)
            return NULL;
    }
    return &seg->items[seg->count];
}
static inline void log_queue_commit(struct log_queue *q, struct log_chain *chain)
{
    chain->last->count++;
    chain->sample_count++;
    q->sequence++;
}

/* Room in a chain for a histogram whose packed form has that size; false when memory is refused, or
 * too much waits. */
MUST_USE bool log_queue_reserve_histogram(struct log_queue *q, struct log_chain *chain,
                                          size_t size);
/* Queues it; the room was reserved in the same critical section. */
void log_queue_histogram(struct log_queue *q, struct log_chain *chain, uint32_t slot,
                         uint16_t generation, int64_t t_ms, struct bytes packed);

/* Room for a definition with that many bytes of labels; false when memory is refused. */
MUST_USE bool log_queue_reserve_definition(struct log_queue *q, size_t labels_size);
/* Queues it; the room was reserved in the same critical section. */
void log_queue_define(struct log_queue *q, const struct definition *d);

/* What is queued now goes out before what comes later, in frames of its own: a frame never holds
 * entries of both. Caller holds the shard's lock. */
void log_queue_split(struct log_queue *q);
/* Moves all that is queued, up to a split, into `batch` (caller's, zeroed) and fills *out but for
 * its data; false if there is nothing. Caller holds the shard's lock. Allocates nothing. */
bool log_queue_take(struct log_queue *q, uint64_t now_ns, struct log_batch *batch,
                    struct wal_batch *out);
MUST_USE enum err log_batch_encode(const struct log_batch *batch, struct byte_writer *payload);
/* Gives the samples' memory back; needs no lock. */
void log_batch_release_samples(struct log_batch *batch, struct log_pool *pool);
/* Lets the definitions wait for their second frame, or frees those that had it. Caller holds the
 * shard's lock. */
void log_batch_release_definitions(struct log_batch *batch, struct log_queue *q, uint64_t now_ns);

#endif
