/*
 * CRC-32C. The SSE4.2 instruction has a latency of three cycles and a throughput of one, so long
 * inputs run in three lanes side by side. Joining lanes means multiplying a lane's register by
 * x^(8 * bytes that follow) modulo the polynomial: one carry-less multiplication by a constant,
 * whose 64-bit product the crc32 instruction itself reduces. In the reflected representation that
 * pair of steps multiplies by x^33 more than asked, hence the constants x^(8n - 33) below.
 *
 * Without SSE4.2 and PCLMUL: eight table look-ups for eight bytes.
 */
#include "base/checksum.h"

#include <string.h>

#include "base/checksum_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian, so are hosts");

#define CRC32C_POLYNOMIAL_REFLECTED UINT32_C(0x82f63b78)

typedef uint32_t (*crc32c_function)(uint32_t state, const uint8_t *p, size_t size);

/* Filled by checksum_dispatch() before main() and constant from then on. */
static uint32_t software_table[8][256];
static crc32c_function crc32c_update;

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t crc32c_software(uint32_t state, const uint8_t *p, size_t size)
{
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t v = load64(p) ^ state;

        state = software_table[7][v & 0xff] ^ software_table[6][v >> 8 & 0xff] ^
                software_table[5][v >> 16 & 0xff] ^ software_table[4][v >> 24 & 0xff] ^
                software_table[3][v >> 32 & 0xff] ^ software_table[2][v >> 40 & 0xff] ^
                software_table[1][v >> 48 & 0xff] ^ software_table[0][v >> 56];
    }
    for (; size > 0; p++, size--)
        state = state >> 8 ^ software_table[0][(state ^ *p) & 0xff];
    return state;
}

static void software_table_fill(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t v = byte;

        for (int bit = 0; bit < 8; bit++)
            v = v >> 1 ^ ((v & 1) != 0 ? CRC32C_POLYNOMIAL_REFLECTED : 0);
        software_table[0][byte] = v;
    }
    for (size_t k = 1; k < 8; k++)
        for (size_t byte = 0; byte < 256; byte++) {
            uint32_t v = software_table[k - 1][byte];

            software_table[k][byte] = v >> 8 ^ software_table[0][v & 0xff];
        }
}

#if defined(__x86_64__)
#define CRC_TARGET __attribute__((target("sse4.2,pclmul")))

/* One pass of three lanes of `lane_bytes` each. shift_1 and shift_2 are x^(8n - 33) mod P for n one
 * and two lanes. */
CRC_TARGET static inline uint32_t crc32c_three_lanes(uint32_t state, const uint8_t *p,
                                                     size_t lane_bytes, uint64_t shift_1,
                                                     uint64_t shift_2)
{
    uint64_t a = state, b = 0, c = 0;

    for (size_t i = 0; i < lane_bytes; i += 8) {
        a = _mm_crc32_u64(a, load64(p + i));
        b = _mm_crc32_u64(b, load64(p + lane_bytes + i));
        c = _mm_crc32_u64(c, load64(p + 2 * lane_bytes + i));
    }
    __m128i shifts = _mm_set_epi64x((int64_t)shift_1, (int64_t)shift_2);
    __m128i ab = _mm_set_epi64x((int64_t)b, (int64_t)a);
    __m128i product = _mm_xor_si128(_mm_clmulepi64_si128(ab, shifts, 0x00),
                                    _mm_clmulepi64_si128(ab, shifts, 0x11));
    return (uint32_t)(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product)) ^ c);
}

CRC_TARGET static uint32_t crc32c_sse42(uint32_t state, const uint8_t *p, size_t size)
{
    for (; size >= 3072; p += 3072, size -= 3072)
        state = crc32c_three_lanes(state, p, 1024, 0x170076fa, 0xa51b6135);
    for (; size >= 384; p += 384, size -= 384)
        state = crc32c_three_lanes(state, p, 128, 0x0d3b6092, 0xb9e02b86);
    uint64_t wide = state;
    for (; size >= 8; p += 8, size -= 8)
        wide = _mm_crc32_u64(wide, load64(p));
    state = (uint32_t)wide;
    for (; size > 0; p++, size--)
        state = _mm_crc32_u8(state, *p);
    return state;
}
#endif

/* Early, so that other constructors may already checksum. */
__attribute__((constructor(101))) static void checksum_dispatch(void)
{
    software_table_fill();
    crc32c_update = crc32c_software;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        crc32c_update = crc32c_sse42;
#endif
}

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t size)
{
    return ~crc32c_update(~crc, data, size);
}

uint32_t crc32c(const void *data, size_t size)
{
    return crc32c_extend(0, data, size);
}

uint32_t crc32c_extend_software(uint32_t crc, const void *data, size_t size)
{
    return ~crc32c_software(~crc, data, size);
}
