#include "base/md5.h"

#include <nettle/md5.h>

_Static_assert((int)MD5_BYTES == (int)MD5_DIGEST_SIZE, "the size of a digest");

void md5_bytes(const void *data, size_t size, uint8_t out[MD5_BYTES])
{
    struct md5_ctx context;

    md5_init(&context);
    md5_update(&context, size, data);
    md5_digest(&context, MD5_BYTES, out);
}
