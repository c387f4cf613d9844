/* crc32c against its bitwise definition; XXH3 builds against each other. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/checksum_internal.h"
#include "base/fingerprint.h"
#include "base/fingerprint_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

/* The twin: RFC 3720's definition, one bit at a time. */
static uint32_t crc32c_bitwise(uint32_t crc, const uint8_t *p, size_t size)
{
    uint32_t v = ~crc;

    for (size_t i = 0; i < size; i++) {
        v ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            v = (v & 1) != 0 ? v >> 1 ^ 0x82f63b78U : v >> 1;
    }
    return ~v;
}

static void fill(struct test_random *r, uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        p[i] = (uint8_t)test_random_u64(r);
}

static void test_known_values(void **state)
{
    uint8_t bytes[32];

    (void)state;
    CHECK(crc32c("123456789", 9) == 0xe3069283);
    CHECK(crc32c("", 0) == 0);
    /* RFC 3720 appendix B.4 */
    memset(bytes, 0, sizeof bytes);
    CHECK(crc32c(bytes, sizeof bytes) == 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    CHECK(crc32c(bytes, sizeof bytes) == 0x62a8ab43);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    CHECK(crc32c(bytes, sizeof bytes) == 0x46dd794e);
}

static void test_crc_equals_twin(void **state)
{
    enum { SIZE_MAX_TESTED = 20000 };
    struct test_random r = test_random_init(0xc4c);
    uint8_t *data = malloc(SIZE_MAX_TESTED + 16);

    (void)state;
    CHECK(data != NULL);
    fill(&r, data, SIZE_MAX_TESTED + 16);
    for (size_t size = 0; size < 1200; size++) { /* every path of short inputs */
        uint32_t want = crc32c_bitwise(0, data + size % 9, size);

        CHECK_MSG(crc32c(data + size % 9, size) == want, "size %zu", size);
        CHECK_MSG(crc32c_extend_software(0, data + size % 9, size) == want, "size %zu", size);
    }
    for (int i = 0; i < 200; i++) {
        size_t size = test_random_below(&r, SIZE_MAX_TESTED + 1);
        size_t offset = test_random_below(&r, 16);
        size_t cut = test_random_below(&r, size + 1);
        uint32_t before = (uint32_t)test_random_u64(&r);
        const uint8_t *p = data + offset;
        uint32_t want = crc32c_bitwise(before, p, size);

        CHECK_MSG(crc32c_extend(before, p, size) == want, "size %zu", size);
        CHECK_MSG(crc32c_extend_software(before, p, size) == want, "size %zu", size);
        CHECK(crc32c_extend(crc32c_extend(before, p, cut), p + cut, size - cut) == want);
    }
    free(data);
}

static void test_hash_builds_agree(void **state)
{
    struct test_random r = test_random_init(0x4a54);
    struct hash_secret secret, other;
    uint8_t data[5000];

    (void)state;
    fill(&r, data, sizeof data);
    hash_secret_init(&secret, 7);
    hash_secret_init(&other, 8);
    for (size_t i = 0; i < 3000; i++) {
        size_t size = i < 1100 ? i : test_random_below(&r, sizeof data - 8);
        const uint8_t *p = data + i % 8;
        struct hash128 want = fingerprint_hash128_baseline(secret.bytes, p, size);
        uint64_t want64 = fingerprint_hash64_baseline(secret.bytes, p, size);

        CHECK(hash128_equal(hash128_bytes(&secret, p, size), want));
        CHECK(hash64_bytes(&secret, p, size) == want64);
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2")) {
            CHECK(hash128_equal(fingerprint_hash128_avx2(secret.bytes, p, size), want));
            CHECK(fingerprint_hash64_avx2(secret.bytes, p, size) == want64);
        }
#endif
        CHECK(!hash128_equal(hash128_bytes(&other, p, size), want));
    }
}

static void test_hash_sees_every_bit(void **state)
{
    struct hash_secret secret;
    uint8_t data[700] = {0};

    (void)state;
    hash_secret_init(&secret, 3);
    for (size_t size = 1; size <= sizeof data; size += 37) {
        struct hash128 before = hash128_bytes(&secret, data, size);

        for (size_t bit = 0; bit < 8 * size; bit += 5) {
            data[bit / 8] ^= (uint8_t)(1U << bit % 8);
            CHECK(!hash128_equal(hash128_bytes(&secret, data, size), before));
            data[bit / 8] ^= (uint8_t)(1U << bit % 8);
        }
    }
}

static void test_secrets(void **state)
{
    struct hash_secret a, b, random_1, random_2;

    (void)state;
    hash_secret_init(&a, 1);
    hash_secret_init(&b, 1);
    CHECK(a.id == b.id && memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0);
    hash_secret_from_bytes(&b, a.bytes);
    CHECK(a.id == b.id);
    hash_secret_init(&random_1, 0);
    hash_secret_init(&random_2, 0);
    CHECK(random_1.id != random_2.id);
    CHECK(memcmp(random_1.bytes, random_2.bytes, sizeof random_1.bytes) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),      cmocka_unit_test(test_crc_equals_twin),
        cmocka_unit_test(test_hash_builds_agree), cmocka_unit_test(test_hash_sees_every_bit),
        cmocka_unit_test(test_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
