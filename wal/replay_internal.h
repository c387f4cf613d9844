/*
 * Replay: the reader's plan of the segments, and the ring of chunks between it and the workers.
 */
#ifndef RIMSTONE_WAL_REPLAY_INTERNAL_H
#define RIMSTONE_WAL_REPLAY_INTERNAL_H

#include "wal/scan_internal.h"
#include "wal/wal_internal.h"

/* One segment file as found. */
struct replay_segment {
    uint32_t number;
    uint64_t size;
    uint64_t live_size; /* bytes behind this were never acknowledged, says a later segment */
    uint64_t kept_size; /* where the file is cut once all has been read */
    uint64_t *highest;  /* owned: per shard, the highest sequence number of frames that count */
    enum segment_verdict verdict;
    struct segment_header header; /* when SEGMENT_GOOD */
};

struct replay_plan {
    struct replay_segment *segments; /* owned, ascending by number */
    size_t count;
    uint64_t byte_count;
};

/* Reads names, sizes and headers. ERR_UNSUPPORTED, ERR_INVALID (shard count), ERR_IO. */
MUST_USE enum err replay_plan_read(struct wal *w, struct replay_plan *out, struct errinfo *ei);
void replay_plan_done(struct replay_plan *plan);
/* Cuts each segment to kept_size and syncs it: what replay believed must still be there after a
 * power loss, since requests may be answered by it. */
MUST_USE enum err replay_plan_cut(struct wal *w, const struct replay_plan *plan,
                                  struct errinfo *ei);

static inline void replay_report(const struct wal_sink *sink, uint32_t segment, uint64_t offset,
                                 const char *what)
{
    const struct wal_damage damage = {segment, offset, what};

    if (sink->bad != NULL)
        sink->bad(sink->ctx, &damage);
}

/* A piece of one segment with the frames found in it. */
struct replay_chunk {
    uint8_t *data; /* owned */
    size_t capacity;
    struct scan_frame *frames; /* owned; payloads point into data */
    size_t frame_count, frame_capacity;
    bool last_segment;
    uint32_t readers_left; /* workers that have not finished it; guarded by the ring's lock */
};

/* Chunks in order; every worker sees every chunk and picks its shards' frames. The reader waits
 * while the slot it needs is still in use, which bounds replay's memory. */
struct replay_ring {
    struct mutex lock; /* guards published, ended, readers_left, error; a leaf lock */
    struct cond filled, freed;
    struct replay_chunk *chunks; /* owned */
    uint32_t chunk_count, worker_count;
    uint64_t published;
    bool ended;
    struct errinfo error; /* the first one of any worker */
    /* relaxed: a hint to stop early; `error` is read after all threads have ended */
    _Atomic bool failed;
};

MUST_USE enum err replay_ring_init(struct replay_ring *ring, uint32_t worker_count,
                                   struct errinfo *ei);
void replay_ring_done(struct replay_ring *ring);
/* The next free chunk, empty; waits for it. Reader only. */
struct replay_chunk *replay_ring_chunk(struct replay_ring *ring);
/* Hands it to the workers. */
void replay_ring_publish(struct replay_ring *ring);
void replay_ring_end(struct replay_ring *ring);
/* The chunk number `index`, or NULL at the end; waits for it. */
struct replay_chunk *replay_ring_take(struct replay_ring *ring, uint64_t index);
void replay_ring_return(struct replay_ring *ring, struct replay_chunk *chunk);
/* Keeps the first error of any thread and stops the others soon. */
void replay_ring_fail(struct replay_ring *ring, const struct errinfo *ei);
bool replay_ring_failed(const struct replay_ring *ring);

/* What is known of a shard; its worker's alone until the threads have ended. */
struct replay_shard {
    uint64_t next_sequence; /* first one not applied; 0: no frame yet */
    uint64_t covered;       /* the owner has all up to this one; does not change */
    uint64_t last_epoch;    /* of the frame before; 0: none yet */
};

struct replay_worker {
    struct replay_ring *ring;
    const struct wal_sink *sink;
    struct replay_shard *shards; /* all shards; this worker's are index % worker_count == index */
    uint32_t index;
    struct thread thread;
    struct wal_replay_result result; /* this worker's share */
    uint64_t recovered_end;          /* end of the last verified frame of the last segment */
    void *zstd;                      /* ZSTD_DCtx, owned */
    uint8_t *raw;                    /* owned: the frame being applied, decompressed */
    size_t raw_capacity;
};

MUST_USE enum err replay_worker_init(struct replay_worker *k, struct errinfo *ei);
void replay_worker_done(struct replay_worker *k);
void *replay_worker_thread(void *arg);

#endif
