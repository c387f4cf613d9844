/*
 * Tokens of chunks in memory (docs/formats/memtable-chunk.md), and the two decoders of them.
 *
 *   00nnnnnn                n + 1 samples, same time step, same bits
 *   01vvvvvv vvvvvvvv       one sample, same step, zigzag difference of 14 bits (high byte first)
 *   10vvvvvv                one sample, same step, zigzag difference of 6 bits
 *   110ttttt                the step changes by t - 16 ms; a value token follows
 *   11100nnn + n+3 bytes    one sample, same step, zigzag difference, little-endian (n <= 5)
 *   111010ss + varint       one sample, same step, zigzag integer at exponent s
 *   111100nn + n+1 bytes    the step changes by a zigzag number of ms; a value token follows
 *   11111000 + 8 bytes      one sample, same step, raw bits
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_CHUNK_TOKENS_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_CHUNK_TOKENS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    TOKEN_RUN = 0x00,
    TOKEN_DIFF14 = 0x40,
    TOKEN_DIFF6 = 0x80,
    TOKEN_STEP5 = 0xc0,
    TOKEN_DIFF_LONG = 0xe0,
    TOKEN_ABSOLUTE = 0xe8,
    TOKEN_STEP_LONG = 0xf0,
    TOKEN_RAW = 0xf8,

    RUN_MAX = 64,
    STEP5_BIAS = 16,
    DIFF_LONG_BYTES_MIN = 3,
};

/* chunk_decode() for any CPU, and for those with AVX2 and what came with it. Both give the same,
 * for malformed tokens too; tests compare them. */
MUST_USE bool chunk_decode_portable(const uint8_t *data, size_t size, int64_t first_ms,
                                    size_t sample_count, int64_t *t_ms, double *value);
#if defined(__x86_64__)
/* Once, before the first chunk_decode_avx2(). */
void chunk_decode_avx2_init(void);
MUST_USE bool chunk_decode_avx2(const uint8_t *data, size_t size, int64_t first_ms,
                                size_t sample_count, int64_t *t_ms, double *value);
#endif

#endif
