/*
 * Tokens of chunks in memory: both decoders must stay within what they may read and write, and
 * agree on any bytes. The first byte is the number of samples, the rest the tokens.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/chunk_tokens_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t first_ms = 1767225600000;
    int64_t t_ms[CHUNK_DECODE_ROOM], *other_t_ms;
    double value[CHUNK_DECODE_ROOM], *other_value;
    uint8_t *tokens;
    size_t count;
    bool ok;

    if (size == 0 || size > CHUNK_BYTES_MAX)
        return 0;
    count = *data++ % (CHUNK_SAMPLE_MAX + 1U);
    size--;
    /* Exactly as much as may be touched, so that a sanitizer sees the first one too many. */
    tokens = malloc(size + CHUNK_TOKENS_SLACK);
    other_t_ms = malloc((count + CHUNK_DECODE_SLACK) * sizeof *other_t_ms);
    other_value = malloc((count + CHUNK_DECODE_SLACK) * sizeof *other_value);
    ASSERT(tokens != NULL && other_t_ms != NULL && other_value != NULL);
    memcpy(tokens, data, size);
    memset(tokens + size, 0x5a, CHUNK_TOKENS_SLACK);
    ok = chunk_decode_portable(tokens, size, first_ms, count, t_ms, value);
    ASSERT(chunk_decode(tokens, size, first_ms, count, other_t_ms, other_value) == ok);
    ASSERT(!ok || memcmp(t_ms, other_t_ms, count * sizeof *t_ms) == 0);
    ASSERT(!ok || memcmp(value, other_value, count * sizeof *value) == 0);
    free(tokens);
    free(other_t_ms);
    free(other_value);
    return 0;
}
