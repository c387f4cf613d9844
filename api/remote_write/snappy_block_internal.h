/*
 * The snappy block format, read. What every Prometheus sender compresses with, so that an eighth of
 * what a sample costs was libsnappy: its decoder calls memmove() for each element. This one is
 * compared with it on any bytes (tests/fuzz/fuzz_snappy.c).
 */
#ifndef RIMSTONE_API_REMOTE_WRITE_SNAPPY_BLOCK_INTERNAL_H
#define RIMSTONE_API_REMOTE_WRITE_SNAPPY_BLOCK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* What the block says its content takes, below 2^32; false when it does not begin with a length. */
bool snappy_block_length(struct bytes block, size_t *out);

/* Decodes a block into `out`, which takes the `size` bytes of its length; may be NULL for 0. False
 * when the elements are malformed, or give more or fewer bytes: then `out` holds rubbish. Writes
 * nothing behind `size` bytes and reads nothing behind the block. */
bool snappy_block_decode(struct bytes block, uint8_t *out, size_t size);

#endif
