/*
 * XXH3 built for AVX2: CMake compiles this file alone with -mavx2, and fingerprint.c calls it only
 * where the CPU has it. Nothing else may live here.
 */
#include "base/fingerprint_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if XXH_VECTOR != XXH_AVX2
#error "this file must be compiled with -mavx2"
#endif

/*
 * Our callers are SSE code. Where it meets upper halves that are in use, many Intel processors save
 * and restore them, some 10 ns each way: as much as the hash. GCC 12 leaves this instruction out
 * here, against its own rule.
 */
static inline void upper_clear(void)
{
    _mm256_zeroupper();
}

struct hash128 fingerprint_hash128_avx2(const uint8_t *secret, const void *data, size_t size)
{
    XXH128_hash_t h = XXH3_128bits_withSecret(data, size, secret, HASH_SECRET_SIZE);

    upper_clear();
    return (struct hash128){h.low64, h.high64};
}

uint64_t fingerprint_hash64_avx2(const uint8_t *secret, const void *data, size_t size)
{
    uint64_t h = XXH3_64bits_withSecret(data, size, secret, HASH_SECRET_SIZE);

    upper_clear();
    return h;
}
#endif
