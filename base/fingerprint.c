/*
 * The secret is compiled in as a length constant and the XXH3 code is inlined here and in
 * fingerprint_avx2.c, so that one indirect call is all a hash of a series costs on top of XXH3.
 */
#include "base/fingerprint.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "base/fingerprint_internal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct hash128 (*hash128_function)(const uint8_t *secret, const void *data, size_t size);
typedef uint64_t (*hash64_function)(const uint8_t *secret, const void *data, size_t size);

/* Set by fingerprint_dispatch() before main() and constant from then on. */
static hash128_function hash128_chosen;
static hash64_function hash64_chosen;

struct hash128 fingerprint_hash128_baseline(const uint8_t *secret, const void *data, size_t size)
{
    XXH128_hash_t h = XXH3_128bits_withSecret(data, size, secret, HASH_SECRET_SIZE);

    return (struct hash128){h.low64, h.high64};
}

uint64_t fingerprint_hash64_baseline(const uint8_t *secret, const void *data, size_t size)
{
    return XXH3_64bits_withSecret(data, size, secret, HASH_SECRET_SIZE);
}

__attribute__((constructor(101))) static void fingerprint_dispatch(void)
{
    hash128_chosen = fingerprint_hash128_baseline;
    hash64_chosen = fingerprint_hash64_baseline;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) {
        hash128_chosen = fingerprint_hash128_avx2;
        hash64_chosen = fingerprint_hash64_avx2;
    }
#endif
}

void hash_secret_from_bytes(struct hash_secret *secret, const uint8_t bytes[HASH_SECRET_SIZE])
{
    memmove(secret->bytes, bytes, HASH_SECRET_SIZE);
    secret->id = XXH3_64bits(secret->bytes, HASH_SECRET_SIZE);
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): for tests that need the same secret every run. */
static void fill_from_seed(uint8_t bytes[HASH_SECRET_SIZE], uint64_t seed)
{
    for (size_t i = 0; i < HASH_SECRET_SIZE; i += sizeof(uint64_t)) {
        uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        memcpy(bytes + i, &z, sizeof z);
    }
}

static void fill_from_kernel(uint8_t bytes[HASH_SECRET_SIZE])
{
    size_t filled = 0;

    while (filled < HASH_SECRET_SIZE) {
        ssize_t n = getrandom(bytes + filled, HASH_SECRET_SIZE - filled, 0);

        /* Nothing but EINTR can fail here (getrandom(2)); going on without a secret would be worse
         * than stopping. */
        ASSERT(n >= 0 || errno == EINTR);
        if (n > 0)
            filled += (size_t)n;
    }
}

void hash_secret_init(struct hash_secret *secret, uint64_t seed)
{
    uint8_t bytes[HASH_SECRET_SIZE];

    if (seed != 0)
        fill_from_seed(bytes, seed);
    else
        fill_from_kernel(bytes);
    hash_secret_from_bytes(secret, bytes);
}

struct hash128 hash128_bytes(const struct hash_secret *secret, const void *data, size_t size)
{
    return hash128_chosen(secret->bytes, data, size);
}

uint64_t hash64_bytes(const struct hash_secret *secret, const void *data, size_t size)
{
    return hash64_chosen(secret->bytes, data, size);
}

uint64_t hash64_unkeyed(const void *data, size_t size)
{
    DEBUG_ASSERT(data != NULL || size == 0);
    return XXH64(data, size, 0);
}
