/*
 * Decompression of request bodies: the snappy block format and zstd. What a body claims about its
 * size is checked against the limit, and against what its length could possibly give, before any
 * memory is allocated for it.
 */
#ifndef RIMSTONE_API_REMOTE_WRITE_BODY_DECODE_INTERNAL_H
#define RIMSTONE_API_REMOTE_WRITE_BODY_DECODE_INTERNAL_H

#include <stddef.h>

#include "api/remote_write/buffer_pool_internal.h"
#include "base/bytes.h"
#include "base/err.h"

enum body_encoding { BODY_SNAPPY, BODY_ZSTD };

/* What decoding keeps from body to body; one thread at a time. Zero-initialise. */
struct body_decoder {
    struct ZSTD_DCtx_s *zstd; /* owned; made at the first zstd body */
};
void body_decoder_done(struct body_decoder *d);

/*
 * Decodes all of `body` into `out` (emptied first). ERR_INVALID: not that format, truncated, or a
 * length that lies. ERR_LIMIT: more than limit_bytes decoded (HTTP 413). ERR_UNAVAILABLE: the
 * pool's budget is spent; ERR_NOMEM. On an error *out holds nothing.
 */
MUST_USE enum err body_decode(struct body_decoder *d, enum body_encoding encoding,
                              struct bytes body, size_t limit_bytes, struct buffer_pool *pool,
                              struct buffer *out, struct errinfo *ei);
/* The largest compressed body that could decode to `limit_bytes`: what may be collected. */
size_t body_compressed_max(size_t limit_bytes);

#endif
