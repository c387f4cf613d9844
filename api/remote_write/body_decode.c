#include "api/remote_write/body_decode_internal.h"

#include <zstd.h>

#include "api/remote_write/snappy_block_internal.h"

/* A snappy element of 3 bytes copies at most 64: nothing expands further. */
enum { SNAPPY_RATIO_MAX = 22 };
/* Frames whose claim is below this multiple of the body are decoded in one call; what claims more
 * grows its buffer with the bytes that really come out. */
enum { ZSTD_TRUSTED_RATIO = 64 };
/* Frames that need a larger window are refused: 8 MiB is what zstd's levels up to 19 use, and the
 * decoder would allocate the window by the frame's claim. */
enum { ZSTD_WINDOW_LOG_MAX = 23 };
/* A decoder that holds more than this (a window, after streaming) is not kept. */
enum { ZSTD_KEEP_BYTES_MAX = 1 << 20 };

void body_decoder_done(struct body_decoder *d)
{
    (void)ZSTD_freeDCtx(d->zstd); /* always 0; accepts NULL */
    d->zstd = NULL;
}

size_t body_compressed_max(size_t limit_bytes)
{
    return limit_bytes + limit_bytes / 6 + 64; /* snappy's bound; zstd's is smaller */
}

static enum err too_large(size_t size, size_t limit, struct errinfo *ei)
{
    return errinfo_set(ei, ERR_LIMIT, 0,
                       "decoded body of %zu bytes is larger than the limit of %zu", size, limit);
}

/* A spent budget is the server's trouble, not the body's. */
static enum err reserve(struct buffer_pool *pool, struct buffer *out, size_t capacity,
                        struct errinfo *ei)
{
    struct errinfo why = {0};
    enum err e = buffer_reserve(pool, out, capacity, &why);

    if (e == ERR_LIMIT)
        return errinfo_set(ei, ERR_UNAVAILABLE, 0, "%s", why.message);
    return e == ERR_OK ? e : errinfo_set(ei, e, 0, "%s", why.message);
}

static enum err snappy_decode(struct bytes body, size_t limit, struct buffer_pool *pool,
                              struct buffer *out, struct errinfo *ei)
{
    size_t size = 0;
    enum err e = ERR_OK;

    if (!snappy_block_length(body, &size))
        return errinfo_set(ei, ERR_INVALID, 0, "body is not snappy: no length");
    if (size > limit)
        return too_large(size, limit, ei);
    if (size / SNAPPY_RATIO_MAX > body.size)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "snappy body of %zu bytes cannot hold the %zu bytes it claims",
                           body.size, size);
    e = reserve(pool, out, size, ei);
    if (e != ERR_OK)
        return e;
    if (!snappy_block_decode(body, out->data, size))
        return errinfo_set(ei, ERR_INVALID, 0, "snappy body of %zu bytes is damaged", body.size);
    out->size = size;
    return ERR_OK;
}

static enum err zstd_grow(size_t limit, struct buffer_pool *pool, struct buffer *out,
                          struct errinfo *ei)
{
    size_t want = out->capacity < (64 << 10) ? (64 << 10) : out->capacity;

    if (out->size >= want)
        want *= 2;
    /* One byte beyond the limit shows that there is more without holding much of it. */
    return reserve(pool, out, want > limit + 1 ? limit + 1 : want, ei);
}

static enum err zstd_stream(ZSTD_DCtx *ctx, struct bytes body, size_t limit,
                            struct buffer_pool *pool, struct buffer *out, struct errinfo *ei)
{
    ZSTD_inBuffer in = {body.data, body.size, 0};
    size_t hint = 1; /* 0 at the end of a frame */

    for (;;) {
        ZSTD_outBuffer to = {0};
        size_t in_before = in.pos;
        enum err e = ERR_OK;

        if (out->size == out->capacity) { /* at most `limit` so far: there is room to grow */
            e = zstd_grow(limit, pool, out, ei);
            if (e != ERR_OK)
                return e;
        }
        to = (ZSTD_outBuffer){out->data, out->capacity, out->size};
        hint = ZSTD_decompressStream(ctx, &to, &in);
        if (ZSTD_isError(hint))
            return errinfo_set(ei, ERR_INVALID, 0, "zstd body: %s", ZSTD_getErrorName(hint));
        if (to.pos > limit)
            return too_large(to.pos, limit, ei);
        if (to.pos == out->size && in.pos == in_before) /* neither fed nor drained: cut short */
            return errinfo_set(ei, ERR_INVALID, 0, "zstd body of %zu bytes is cut short",
                               body.size);
        out->size = to.pos;
        if (hint == 0 && in.pos == in.size)
            return ERR_OK;
    }
}

static enum err zstd_decode(struct body_decoder *d, struct bytes body, size_t limit,
                            struct buffer_pool *pool, struct buffer *out, struct errinfo *ei)
{
    unsigned long long claim = ZSTD_getFrameContentSize(body.data, body.size);
    enum err e = ERR_OK;

    if (claim == ZSTD_CONTENTSIZE_ERROR)
        return errinfo_set(ei, ERR_INVALID, 0, "body is not zstd");
    if (claim != ZSTD_CONTENTSIZE_UNKNOWN && claim > limit)
        return errinfo_set(ei, ERR_LIMIT, 0,
                           "decoded body of %llu bytes is larger than the limit of %zu", claim,
                           limit);
    if (d->zstd == NULL)
        d->zstd = ZSTD_createDCtx();
    if (d->zstd == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "zstd decoder");
    if (claim != ZSTD_CONTENTSIZE_UNKNOWN && claim / ZSTD_TRUSTED_RATIO <= body.size) {
        size_t size = 0;

        e = reserve(pool, out, (size_t)claim + 1, ei); /* + 1: never NULL */
        if (e != ERR_OK)
            return e;
        size = ZSTD_decompressDCtx(d->zstd, out->data, (size_t)claim, body.data, body.size);
        if (!ZSTD_isError(size)) {
            out->size = size;
            return ERR_OK;
        }
        /* Several frames, or a damaged one: the stream decoder tells which. */
    }
    (void)ZSTD_DCtx_reset(d->zstd, ZSTD_reset_session_and_parameters); /* fails in no state */
    (void)ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX); /* in range */
    e = zstd_stream(d->zstd, body, limit, pool, out, ei);
    if (ZSTD_sizeof_DCtx(d->zstd) > ZSTD_KEEP_BYTES_MAX)
        body_decoder_done(d);
    return e;
}

enum err body_decode(struct body_decoder *d, enum body_encoding encoding, struct bytes body,
                     size_t limit_bytes, struct buffer_pool *pool, struct buffer *out,
                     struct errinfo *ei)
{
    enum err e = ERR_OK;

    out->size = 0;
    e = encoding == BODY_SNAPPY ? snappy_decode(body, limit_bytes, pool, out, ei)
                                : zstd_decode(d, body, limit_bytes, pool, out, ei);
    if (e != ERR_OK)
        out->size = 0;
    return e;
}
