/*
 * The encode team: a few threads that turn batches into frames, so that zstd (most of the log's
 * CPU) neither sits on the committer nor on the request threads. The committer posts an array of
 * frames, takes part, and waits. Small commits it does alone: waking a thread costs more than
 * encoding a few kilobytes.
 */
#include "wal/encode_internal.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/thread.h"

enum {
    ENCODE_ALONE_BYTES = 64 << 10, /* batches below this in sum: no thread is woken */
    ENCODE_SCRATCH_KEEP_BYTES = 4 << 20,
    /* Samples (3.4 bytes each before) at level 1: 2.75 bytes, 15 ns to write and 5.9 to read;
     * so: 2.82 bytes, 7.2 and 1.9 ns, since literals are stored as they are. Definitions take a
     * fifth more. */
    ENCODE_LEVEL = -3,
    ENCODE_MATCH_MIN = 4,
};

/* What one thread reuses from frame to frame. */
struct encode_context {
    struct encode_team *team;
    ZSTD_CCtx *zstd;
    struct byte_writer raw, compressed;
};

struct encode_team {
    struct wal_source source;
    _Atomic int64_t *backlog_bytes;
    struct mutex lock; /* guards the job below; taken after no other lock */
    struct cond posted, left;
    struct frame **frames; /* the job, borrowed from the committer; NULL: none */
    size_t frame_count;
    uint32_t inside; /* threads at work on the job */
    bool stop;
    /* relaxed: only hands out indices; the job itself is published by the lock */
    _Atomic size_t next;
    /* relaxed: read after every thread has left under the lock */
    _Atomic bool failed;
    struct encode_context *contexts; /* [0] is the caller's */
    struct thread *threads;
    uint32_t thread_count;
};

static enum err context_init(struct encode_context *c, struct encode_team *team)
{
    c->team = team;
    writer_init(&c->raw);
    writer_init(&c->compressed);
    c->zstd = ZSTD_createCCtx();
    if (c->zstd == NULL)
        return ERR_NOMEM;
    /* The frame header carries size and checksum already; the size stays, since the reader checks
     * one against the other before it allocates. */
    if (ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_compressionLevel, ENCODE_LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_minMatch, ENCODE_MATCH_MIN)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_checksumFlag, 0)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_contentSizeFlag, 1)))
        return ERR_INTERNAL;
    return ERR_OK;
}

static void context_done(struct encode_context *c)
{
    ZSTD_freeCCtx(c->zstd);
    writer_done(&c->raw);
    writer_done(&c->compressed);
}

/* One giant batch must not leave its scratch memory behind for good. */
static void scratch_trim(struct byte_writer *w)
{
    if (w->capacity <= ENCODE_SCRATCH_KEEP_BYTES)
        return;
    writer_done(w);
    writer_init(w);
}

/* Compresses c->raw into c->compressed; the bytes to store, with their codec. */
static struct bytes compress(struct encode_context *c, uint32_t *codec)
{
    struct bytes raw = {c->raw.data, c->raw.size};
    size_t bound, n;

    *codec = FRAME_CODEC_RAW;
    if (raw.size < FRAME_COMPRESS_MIN_BYTES)
        return raw;
    bound = ZSTD_compressBound(raw.size);
    writer_reset(&c->compressed);
    if (writer_reserve(&c->compressed, bound) == NULL)
        return raw; /* short of memory: uncompressed is right as well */
    n = ZSTD_compress2(c->zstd, c->compressed.data, bound, raw.data, raw.size);
    if (ZSTD_isError(n) || n >= raw.size - raw.size / 16)
        return raw; /* saves too little to make replay pay for it */
    *codec = FRAME_CODEC_ZSTD;
    return (struct bytes){c->compressed.data, n};
}

static enum err payload_store(struct frame *f, struct bytes stored)
{
    if (f->payload_capacity < stored.size) {
        uint8_t *payload = malloc(stored.size);

        if (payload == NULL)
            return ERR_NOMEM;
        free(f->payload);
        f->payload = payload;
        f->payload_capacity = stored.size;
    }
    if (stored.size > 0)
        memcpy(f->payload, stored.data, stored.size);
    return ERR_OK;
}

static enum err frame_encode(struct encode_context *c, struct frame *f)
{
    const struct wal_source *source = &c->team->source;
    struct bytes stored;
    uint32_t codec;
    enum err e;

    writer_reset(&c->raw);
    e = source->encode(source->ctx, f->header.shard, &f->batch, &c->raw);
    if (e != ERR_OK || c->raw.failed)
        return ERR_NOMEM; /* encode has no other reason to fail */
    ASSERT(c->raw.size <= WAL_PAYLOAD_SIZE_MAX);
    stored = compress(c, &codec);
    e = payload_store(f, stored);
    if (e != ERR_OK)
        return e;
    f->header.stored_size = (uint32_t)stored.size;
    f->header.raw_size = (uint32_t)c->raw.size;
    f->header.codec = codec;
    f->header.payload_crc = crc32c(f->payload, stored.size);
    atomic_fetch_add_explicit(c->team->backlog_bytes,
                              (int64_t)stored.size - (int64_t)f->batch.memory_bytes,
                              memory_order_relaxed);
    source->release(source->ctx, f->header.shard, &f->batch);
    f->encoded = true;
    scratch_trim(&c->raw);
    scratch_trim(&c->compressed);
    return ERR_OK;
}

static void encode_until_empty(struct encode_context *c, struct frame **frames, size_t count)
{
    struct encode_team *team = c->team;
    size_t i;

    while ((i = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed)) < count) {
        if (!frames[i]->encoded && frame_encode(c, frames[i]) != ERR_OK)
            atomic_store_explicit(&team->failed, true, memory_order_relaxed);
    }
}

static void *encode_thread(void *arg)
{
    struct encode_context *c = arg;
    struct encode_team *team = c->team;

    mutex_lock(&team->lock);
    for (;;) {
        struct frame **frames;
        size_t count;

        while (!team->stop &&
               (team->frames == NULL ||
                atomic_load_explicit(&team->next, memory_order_relaxed) >= team->frame_count))
            cond_wait(&team->posted, &team->lock);
        if (team->stop)
            break;
        frames = team->frames;
        count = team->frame_count;
        team->inside++;
        mutex_unlock(&team->lock);
        encode_until_empty(c, frames, count);
        mutex_lock(&team->lock);
        if (--team->inside == 0)
            cond_signal(&team->left);
    }
    mutex_unlock(&team->lock);
    return NULL;
}

enum err encode_team_new(const struct wal_source *source, uint32_t thread_count,
                         _Atomic int64_t *backlog_bytes, struct encode_team **out,
                         struct errinfo *ei)
{
    struct encode_team *team = calloc(1, sizeof *team);
    enum err e = ERR_OK;

    if (team == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "log encoders");
    mutex_init(&team->lock);
    cond_init(&team->posted);
    cond_init(&team->left);
    team->source = *source;
    team->backlog_bytes = backlog_bytes;
    team->contexts = calloc((size_t)thread_count + 1, sizeof *team->contexts);
    team->threads = calloc(thread_count, sizeof *team->threads);
    if (team->contexts == NULL || team->threads == NULL) {
        e = errinfo_set(ei, ERR_NOMEM, 0, "log encoders");
        goto out;
    }
    team->thread_count = thread_count;
    for (uint32_t i = 0; i <= thread_count && e == ERR_OK; i++)
        e = context_init(&team->contexts[i], team);
    if (e != ERR_OK) {
        e = errinfo_set(ei, e, 0, "log encoders: zstd");
        goto out;
    }
    for (uint32_t i = 0; i < thread_count && e == ERR_OK; i++)
        e = thread_start(&team->threads[i], "wal-encode", encode_thread, &team->contexts[i + 1],
                         ei);
    if (e == ERR_OK)
        *out = TAKE(team);
out:
    encode_team_free(team);
    return e;
}

static bool worth_waking(struct frame **frames, size_t frame_count)
{
    size_t open_count = 0, sum = 0;

    for (size_t i = 0; i < frame_count; i++) {
        if (frames[i]->encoded)
            continue;
        open_count++;
        sum += frames[i]->batch.memory_bytes;
    }
    return open_count > 1 && sum >= ENCODE_ALONE_BYTES;
}

enum err encode_team_run(struct encode_team *team, struct frame **frames, size_t frame_count)
{
    bool wake = worth_waking(frames, frame_count);

    mutex_lock(&team->lock);
    ASSERT(team->inside == 0);
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    atomic_store_explicit(&team->failed, false, memory_order_relaxed);
    if (wake) {
        team->frames = frames;
        team->frame_count = frame_count;
        cond_broadcast(&team->posted);
    }
    mutex_unlock(&team->lock);
    encode_until_empty(&team->contexts[0], frames, frame_count);
    mutex_lock(&team->lock);
    while (team->inside > 0)
        cond_wait(&team->left, &team->lock);
    team->frames = NULL;
    mutex_unlock(&team->lock);
    return atomic_load_explicit(&team->failed, memory_order_relaxed) ? ERR_NOMEM : ERR_OK;
}

void encode_team_free(struct encode_team *team)
{
    if (team == NULL)
        return;
    mutex_lock(&team->lock);
    team->stop = true;
    cond_broadcast(&team->posted);
    mutex_unlock(&team->lock);
    for (uint32_t i = 0; i < team->thread_count; i++)
        thread_join(&team->threads[i]);
    for (uint32_t i = 0; team->contexts != NULL && i <= team->thread_count; i++)
        context_done(&team->contexts[i]);
    free(team->contexts);
    free(team->threads);
    cond_done(&team->posted);
    cond_done(&team->left);
    mutex_done(&team->lock);
    free(team);
}
