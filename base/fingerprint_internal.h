/*
 * The two builds of the same XXH3 code. They give identical results; the tests of base compare
 * them.
 */
#ifndef RIMSTONE_BASE_FINGERPRINT_INTERNAL_H
#define RIMSTONE_BASE_FINGERPRINT_INTERNAL_H

#include "base/fingerprint.h"

struct hash128 fingerprint_hash128_baseline(const uint8_t *secret, const void *data, size_t size);
uint64_t fingerprint_hash64_baseline(const uint8_t *secret, const void *data, size_t size);
#if defined(__x86_64__)
struct hash128 fingerprint_hash128_avx2(const uint8_t *secret, const void *data, size_t size);
uint64_t fingerprint_hash64_avx2(const uint8_t *secret, const void *data, size_t size);
#endif

#endif
