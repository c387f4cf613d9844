/*
 * A second decoder of the codecs' columns, written from docs/formats/chunk-codecs.md alone: bit by
 * bit, with copies wherever they make it plainer. It must agree with the real one on every column,
 * sound or damaged.
 */
#ifndef RIMSTONE_TESTS_ENGINE_CODEC_TWIN_H
#define RIMSTONE_TESTS_ENGINE_CODEC_TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills out[0..n) with the bits of the values. False: no such column. */
bool twin_values_decode(const uint8_t *data, size_t size, size_t n, uint64_t *out);
bool twin_times_decode(const uint8_t *data, size_t size, size_t n, uint64_t *out);

#endif
