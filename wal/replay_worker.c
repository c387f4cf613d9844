/*
 * Replay workers and the ring that feeds them. A worker verifies, decompresses and applies the
 * frames of its shards in the order of the log; shards never meet.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <zstd.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "wal/replay_internal.h"

enum err replay_ring_init(struct replay_ring *ring, uint32_t worker_count, struct errinfo *ei)
{
    *ring = (struct replay_ring){.worker_count = worker_count, .chunk_count = worker_count + 3};
    mutex_init(&ring->lock);
    cond_init(&ring->filled);
    cond_init(&ring->freed);
    ring->chunks = calloc(ring->chunk_count, sizeof *ring->chunks);
    if (ring->chunks == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "replay ring");
    return ERR_OK;
}

void replay_ring_done(struct replay_ring *ring)
{
    for (uint32_t i = 0; ring->chunks != NULL && i < ring->chunk_count; i++) {
        free(ring->chunks[i].data);
        free(ring->chunks[i].frames);
    }
    free(ring->chunks);
    cond_done(&ring->filled);
    cond_done(&ring->freed);
    mutex_done(&ring->lock);
}

struct replay_chunk *replay_ring_chunk(struct replay_ring *ring)
{
    struct replay_chunk *chunk;

    mutex_lock(&ring->lock);
    chunk = &ring->chunks[ring->published % ring->chunk_count];
    while (chunk->readers_left > 0)
        cond_wait(&ring->freed, &ring->lock);
    mutex_unlock(&ring->lock);
    chunk->frame_count = 0;
    return chunk;
}

void replay_ring_publish(struct replay_ring *ring)
{
    mutex_lock(&ring->lock);
    ring->chunks[ring->published % ring->chunk_count].readers_left = ring->worker_count;
    ring->published++;
    cond_broadcast(&ring->filled);
    mutex_unlock(&ring->lock);
}

void replay_ring_end(struct replay_ring *ring)
{
    mutex_lock(&ring->lock);
    ring->ended = true;
    cond_broadcast(&ring->filled);
    mutex_unlock(&ring->lock);
}

struct replay_chunk *replay_ring_take(struct replay_ring *ring, uint64_t index)
{
    struct replay_chunk *chunk = NULL;

    mutex_lock(&ring->lock);
    while (index == ring->published && !ring->ended)
        cond_wait(&ring->filled, &ring->lock);
    if (index < ring->published)
        chunk = &ring->chunks[index % ring->chunk_count];
    mutex_unlock(&ring->lock);
    return chunk;
}

void replay_ring_return(struct replay_ring *ring, struct replay_chunk *chunk)
{
    mutex_lock(&ring->lock);
    ASSERT(chunk->readers_left > 0);
    if (--chunk->readers_left == 0)
        cond_signal(&ring->freed);
    mutex_unlock(&ring->lock);
}

void replay_ring_fail(struct replay_ring *ring, const struct errinfo *ei)
{
    mutex_lock(&ring->lock);
    if (ring->error.code == ERR_OK)
        ring->error = *ei;
    mutex_unlock(&ring->lock);
    atomic_store_explicit(&ring->failed, true, memory_order_relaxed);
}

bool replay_ring_failed(const struct replay_ring *ring)
{
    return atomic_load_explicit(&ring->failed, memory_order_relaxed);
}

enum err replay_worker_init(struct replay_worker *k, struct errinfo *ei)
{
    k->zstd = ZSTD_createDCtx();
    if (k->zstd == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "replay worker");
    return ERR_OK;
}

void replay_worker_done(struct replay_worker *k)
{
    ZSTD_freeDCtx(k->zstd);
    free(k->raw);
}

static enum err raw_reserve(struct replay_worker *k, size_t size)
{
    uint8_t *raw;

    if (size <= k->raw_capacity)
        return ERR_OK;
    raw = malloc(size);
    if (raw == NULL)
        return ERR_NOMEM;
    free(k->raw);
    k->raw = raw;
    k->raw_capacity = size;
    return ERR_OK;
}

/* The frame's payload as the owner wrote it, borrowed until the next call. ERR_CORRUPT when it
 * cannot be that. */
static enum err payload_open(struct replay_worker *k, const struct scan_frame *f, struct bytes *out)
{
    const struct frame_header *h = &f->header;
    size_t n;

    if (h->codec == FRAME_CODEC_RAW) {
        if (h->raw_size != h->stored_size)
            return ERR_CORRUPT;
        *out = (struct bytes){f->payload, h->stored_size};
        return ERR_OK;
    }
    if (h->codec != FRAME_CODEC_ZSTD ||
        ZSTD_getFrameContentSize(f->payload, h->stored_size) != h->raw_size)
        return ERR_CORRUPT;
    if (raw_reserve(k, h->raw_size) != ERR_OK)
        return ERR_NOMEM;
    n = ZSTD_decompressDCtx(k->zstd, k->raw, h->raw_size, f->payload, h->stored_size);
    if (ZSTD_isError(n) || n != h->raw_size)
        return ERR_CORRUPT;
    *out = (struct bytes){k->raw, n};
    return ERR_OK;
}

/* Reports the entries between what was applied and `f`. */
static void report_gap(struct replay_worker *k, const struct scan_frame *f)
{
    struct replay_shard *shard = &k->shards[f->header.shard];

    if (f->header.first_sequence <= shard->next_sequence)
        return;
    k->result.lost_entry_count += f->header.first_sequence - shard->next_sequence;
    /* What a crash tore off has used up its numbers. */
    if (shard->last_epoch != f->header.start_epoch)
        k->result.lost_at_start_count += f->header.first_sequence - shard->next_sequence;
    k->sink->lost(k->sink->ctx, f->header.shard, shard->next_sequence, f->header.first_sequence);
    shard->next_sequence = f->header.first_sequence;
}

/* Applies one verified frame. ERR_CORRUPT: it is bad all the same. */
static enum err frame_apply(struct replay_worker *k, const struct scan_frame *f, struct errinfo *ei)
{
    const struct frame_header *h = &f->header;
    struct replay_shard *shard = &k->shards[h->shard];
    uint64_t end = h->first_sequence + h->entry_count;
    struct bytes payload;
    enum err e;

    if (end <= shard->next_sequence)
        return ERR_OK; /* written twice: a sync failed in between; or covered */
    /* A batch is never cut differently the second time; what is covered may end within one. */
    if (h->first_sequence < shard->next_sequence && shard->next_sequence != shard->covered + 1)
        return ERR_CORRUPT;
    e = payload_open(k, f, &payload);
    if (e == ERR_NOMEM)
        return errinfo_set(ei, e, 0, "log frame of %" PRIu32 " bytes", h->raw_size);
    if (e != ERR_OK)
        return e;
    report_gap(k, f);
    e = k->sink->apply(k->sink->ctx, h->shard, h->first_sequence, h->entry_count, payload, ei);
    if (e != ERR_OK)
        return e;
    shard->next_sequence = end;
    k->result.frame_count++;
    k->result.entry_count += h->entry_count;
    return ERR_OK;
}

/* One frame of this worker's shards; bad ones are counted. Other errors stop the replay. */
static enum err frame_replay(struct replay_worker *k, const struct replay_chunk *chunk,
                             const struct scan_frame *f, struct errinfo *ei)
{
    const struct frame_header *h = &f->header;
    struct replay_shard *shard = &k->shards[h->shard];
    enum err e;

    if (h->first_sequence + h->entry_count - 1 <= shard->covered) {
        k->result.covered_frame_count++;
        if (!chunk->last_segment && !k->sink->verify_covered)
            return ERR_OK; /* the last one's frames are verified all the same: where is its tail? */
    }
    /* Also a bad frame says where the shard's entries begin. */
    if (shard->next_sequence == 0)
        shard->next_sequence = h->first_sequence;
    if (crc32c(f->payload, h->stored_size) != h->payload_crc) {
        k->result.bad_frame_count++;
        replay_report(k->sink, h->segment_number, f->offset, "the checksum of a frame is wrong");
        return ERR_OK;
    }
    if (chunk->last_segment)
        k->recovered_end = f->offset + FRAME_HEADER_SIZE + h->stored_size;
    e = frame_apply(k, f, ei);
    if (e != ERR_CORRUPT)
        return e;
    k->result.bad_frame_count++;
    replay_report(k->sink, h->segment_number, f->offset, "the content of a frame makes no sense");
    errinfo_clear(ei);
    return ERR_OK;
}

static enum err chunk_replay(struct replay_worker *k, const struct replay_chunk *chunk,
                             struct errinfo *ei)
{
    for (size_t i = 0; i < chunk->frame_count; i++) {
        const struct scan_frame *f = &chunk->frames[i];

        if (f->header.shard % k->ring->worker_count != k->index)
            continue;
        if (frame_replay(k, chunk, f, ei) != ERR_OK)
            return ei->code;
        k->shards[f->header.shard].last_epoch = f->header.start_epoch;
    }
    return ERR_OK;
}

void *replay_worker_thread(void *arg)
{
    struct replay_worker *k = arg;
    struct errinfo ei = {0};

    for (uint64_t index = 0;; index++) {
        struct replay_chunk *chunk = replay_ring_take(k->ring, index);

        if (chunk == NULL)
            return NULL;
        /* After a failure the chunks still go round, so that the reader is never stuck. */
        if (!replay_ring_failed(k->ring)) {
            enum err e = chunk_replay(k, chunk, &ei);

            if (e != ERR_OK)
                replay_ring_fail(k->ring, &ei);
        }
        replay_ring_return(k->ring, chunk);
    }
}
