/*
 * 128-bit hashes: XXH3 with a random secret of the data directory, so that no sender can aim at
 * collisions. AVX2 code is chosen once at start (`fingerprint_dispatch`).
 */
#ifndef RIMSTONE_BASE_FINGERPRINT_H
#define RIMSTONE_BASE_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HASH_SECRET_SIZE = 192 };

struct hash128 {
    uint64_t low, high;
};

struct hash_secret {
    uint64_t id; /* names the secret in files; hash of its bytes */
    uint8_t bytes[HASH_SECRET_SIZE];
};

/* Fills `secret` from the kernel's random source; `seed` != 0 makes it deterministic (tests). */
void hash_secret_init(struct hash_secret *secret, uint64_t seed);
void hash_secret_from_bytes(struct hash_secret *secret, const uint8_t bytes[HASH_SECRET_SIZE]);
struct hash128 hash128_bytes(const struct hash_secret *secret, const void *data, size_t size);
uint64_t hash64_bytes(const struct hash_secret *secret, const void *data, size_t size);
/* XXH64 without a secret, for what must agree with other programs. */
uint64_t hash64_unkeyed(const void *data, size_t size);
static inline bool hash128_equal(struct hash128 a, struct hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
