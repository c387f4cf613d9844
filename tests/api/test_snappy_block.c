/* The snappy decoder beside libsnappy: what it compresses, and elements of every kind. */
#include "tests/lib/test_cmocka.h"

#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>

#include "api/remote_write/snappy_block_internal.h"
#include "tests/api/write_body.h"
#include "tests/lib/test_support.h"

/* Both decoders on the same bytes, in buffers without a byte to spare; whether they took them. */
static bool check_both(const struct byte_writer *block)
{
    uint8_t *data = malloc(block->size + 1), *in = data + 1, *out, *twin;
    size_t size = 0, size_twin = 0;
    bool ok, ok_twin;

    CHECK(data != NULL);
    if (block->size > 0)
        memcpy(in, block->data, block->size);
    ok = snappy_block_length((struct bytes){in, block->size}, &size);
    ok_twin = snappy_uncompressed_length((const char *)in, block->size, &size_twin) == SNAPPY_OK;
    CHECK(ok == ok_twin && (!ok || size == size_twin));
    if (ok) {
        out = malloc(size + 1);
        twin = malloc(size + 1);
        CHECK(out != NULL && twin != NULL);
        ok = snappy_block_decode((struct bytes){in, block->size}, out + 1, size);
        ok_twin =
            snappy_uncompress((const char *)in, block->size, (char *)twin, &size_twin) == SNAPPY_OK;
        CHECK(ok == ok_twin);
        CHECK(!ok || size == 0 || memcmp(out + 1, twin, size) == 0);
        free(out);
        free(twin);
    }
    free(data);
    return ok;
}

/* Text as requests are: a few phrases again and again, with noise between. */
static void text_fill(struct byte_writer *text, struct test_random *r, size_t size)
{
    uint8_t noise[100];

    while (text->size < size) {
        size_t count = 1 + test_random_below(r, 99);

        if (text->size > 100 && test_random_below(r, 4) != 0) {
            size_t from = test_random_below(r, text->size - 99);

            memcpy(noise, text->data + from, count);
        } else {
            for (size_t i = 0; i < count; i++)
                noise[i] = (uint8_t)test_random_u64(r);
        }
        writer_append(text, noise, count);
    }
}

static void test_what_libsnappy_writes(void **state)
{
    static const size_t sizes[] = {0,  1,   17,  59,   60,    61,    64,
                                   65, 127, 128, 1000, 65535, 65537, 300000};
    struct test_random r = test_random_init(20261130);
    struct byte_writer text, block;

    (void)state;
    writer_init(&text);
    writer_init(&block);
    for (int round = 0; round < 300; round++) {
        size_t known = sizes[test_random_below(&r, sizeof sizes / sizeof sizes[0])];

        writer_reset(&text);
        writer_reset(&block);
        text_fill(&text, &r, round % 2 == 0 ? known : test_random_below(&r, 2000));
        body_snappy(&text, &block);
        CHECK(check_both(&block));
        for (int damage = 0; damage < 8; damage++) { /* must not pass for other bytes */
            size_t at = test_random_below(&r, block.size);
            uint8_t before = block.data[at];

            block.data[at] ^= (uint8_t)(1 << test_random_below(&r, 8));
            (void)check_both(&block);
            block.data[at] = before;
        }
        block.size = test_random_below(&r, block.size);
        CHECK(!check_both(&block) || block.size == 0);
    }
    writer_done(&text);
    writer_done(&block);
}

static void element_literal(struct byte_writer *w, struct test_random *r, size_t *size)
{
    unsigned extra = (unsigned)test_random_below(r, 5); /* bytes of the length */
    size_t count = 1 + test_random_below(r, extra == 0 ? 60 : 300);

    if (extra == 1 && count > 256)
        count = 256;
    writer_u8(w, extra == 0 ? (uint8_t)((count - 1) << 2) : (uint8_t)((59 + extra) << 2));
    for (unsigned i = 0; i < extra; i++)
        writer_u8(w, (uint8_t)((count - 1) >> (8 * i)));
    for (size_t i = 0; i < count; i++)
        writer_u8(w, (uint8_t)test_random_u64(r));
    *size += count;
}

/* One in some reaches back too far, or nowhere. */
static void element_copy(struct byte_writer *w, struct test_random *r, size_t *size)
{
    unsigned kind = 1 + (unsigned)test_random_below(r, 3);
    size_t length = kind == 1 ? 4 + test_random_below(r, 8) : 1 + test_random_below(r, 64);
    size_t reach = test_random_below(r, 2) == 0 ? 70 : *size;
    size_t offset = 1 + test_random_below(r, reach < *size ? reach : *size);

    if (test_random_below(r, 400) == 0)
        offset = test_random_below(r, 2) * (*size + 1);
    if (kind == 1) {
        offset &= 0x7ff;
        writer_u8(w, (uint8_t)((offset >> 8) << 5 | (length - 4) << 2 | kind));
        writer_u8(w, (uint8_t)offset);
    } else {
        writer_u8(w, (uint8_t)((length - 1) << 2 | kind));
        for (unsigned i = 0; i < (kind == 2 ? 2 : 4); i++)
            writer_u8(w, (uint8_t)(offset >> (8 * i)));
    }
    *size += length;
}

static void test_every_element(void **state)
{
    struct test_random r = test_random_init(20261201);
    struct byte_writer elements, block;
    int taken = 0;

    (void)state;
    writer_init(&elements);
    writer_init(&block);
    for (int round = 0; round < 4000; round++) {
        size_t size = 0;

        writer_reset(&elements);
        writer_reset(&block);
        element_literal(&elements, &r, &size);
        for (size_t n = test_random_below(&r, 60); n > 0; n--) {
            if (test_random_below(&r, 5) == 0)
                element_literal(&elements, &r, &size);
            else
                element_copy(&elements, &r, &size);
        }
        if (test_random_below(&r, 10) == 0) /* a length that is not true */
            size += test_random_below(&r, 3) - 1;
        body_varint(&block, size, (unsigned)test_random_below(&r, 3));
        writer_append(&block, elements.data, elements.size);
        taken += check_both(&block);
    }
    CHECK(taken > 1000 && taken < 4000);
    writer_done(&elements);
    writer_done(&block);
}

static void test_lengths(void **state)
{
    struct byte_writer block;

    (void)state;
    writer_init(&block);
    CHECK(!check_both(&block));
    body_varint(&block, UINT32_MAX, 0);
    size_t size = 0;
    CHECK(snappy_block_length((struct bytes){block.data, block.size}, &size) && size == UINT32_MAX);
    writer_reset(&block);
    body_varint(&block, (uint64_t)UINT32_MAX + 1, 0);
    CHECK(!check_both(&block));
    writer_reset(&block);
    body_varint(&block, 0, 4);
    CHECK(check_both(&block));
    writer_reset(&block);
    body_varint(&block, 0, 5);
    CHECK(!check_both(&block));
    writer_done(&block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_libsnappy_writes),
        cmocka_unit_test(test_every_element),
        cmocka_unit_test(test_lengths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
