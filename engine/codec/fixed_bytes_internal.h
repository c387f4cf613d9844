/*
 * Fields at fixed places of headers and trailers, shared by the formats of parts, sealed files and
 * series files.
 */
#ifndef RIMSTONE_ENGINE_CODEC_FIXED_BYTES_INTERNAL_H
#define RIMSTONE_ENGINE_CODEC_FIXED_BYTES_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Writes the low `size` bytes of v, 1 to 8, little-endian. */
static inline void fixed_put(uint8_t *at, uint64_t v, size_t size)
{
    memcpy(at, &v, size);
}

#endif
