/*
 * The snappy decoder beside libsnappy: any bytes as a block, and as the content of one. Both must
 * take the same blocks for the same bytes.
 */
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>

#include "api/remote_write/snappy_block_internal.h"
#include "base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

enum { CONTENT_MAX = 1 << 20 };

static void decode_both(const uint8_t *data, size_t size)
{
    struct bytes block = {data, size};
    size_t length = 0, length_twin = 0;
    bool ok = snappy_block_length(block, &length), ok_twin;
    uint8_t *out, *out_twin;

    ok_twin = snappy_uncompressed_length((const char *)data, size, &length_twin) == SNAPPY_OK;
    ASSERT(ok == ok_twin);
    if (!ok || length > CONTENT_MAX)
        return;
    ASSERT(length == length_twin);
    out = malloc(length); /* exact, so that ASan sees a write behind it */
    out_twin = malloc(length + 1);
    ASSERT((out != NULL || length == 0) && out_twin != NULL);
    ok = snappy_block_decode(block, out, length);
    ok_twin =
        snappy_uncompress((const char *)data, size, (char *)out_twin, &length_twin) == SNAPPY_OK;
    ASSERT(ok == ok_twin);
    ASSERT(!ok || length == 0 || memcmp(out, out_twin, length) == 0);
    free(out);
    free(out_twin);
}

static void round_trip(const uint8_t *data, size_t size)
{
    size_t packed_size = snappy_max_compressed_length(size);
    uint8_t *packed = malloc(packed_size), *exact;

    ASSERT(packed != NULL);
    ASSERT(snappy_compress((const char *)data, size, (char *)packed, &packed_size) == SNAPPY_OK);
    exact = malloc(packed_size);
    ASSERT(exact != NULL);
    memcpy(exact, packed, packed_size);
    decode_both(exact, packed_size);
    free(exact);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    decode_both(data, size);
    round_trip(data, size);
    return 0;
}
