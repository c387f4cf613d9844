/* Decompression: limits before memory, claims that lie, and what is cut short. */
#include "tests/lib/test_cmocka.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "api/remote_write/body_decode_internal.h"
#include "tests/api/write_body.h"
#include "tests/lib/test_support.h"

struct fixture {
    struct budget budget;
    struct buffer_pool pool;
    struct body_decoder decoder;
    struct buffer *out;
    struct byte_writer text, packed;
    struct errinfo ei;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    CHECK(f != NULL);
    budget_init(&f->budget, "test memory", 64 << 20, NULL);
    buffer_pool_init(&f->pool, &f->budget);
    f->out = buffer_pool_get(&f->pool);
    CHECK(f->out != NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    buffer_pool_put(&f->pool, f->out);
    buffer_pool_done(&f->pool);
    body_decoder_done(&f->decoder);
    writer_done(&f->text);
    writer_done(&f->packed);
    CHECK(budget_used(&f->budget) == 0);
    free(f);
    return 0;
}

static enum err decode(struct fixture *f, enum body_encoding encoding, size_t limit)
{
    errinfo_clear(&f->ei);
    return body_decode(&f->decoder, encoding, (struct bytes){f->packed.data, f->packed.size}, limit,
                       &f->pool, f->out, &f->ei);
}

static void text_fill(struct fixture *f, size_t size)
{
    for (size_t i = 0; i < size; i++)
        writer_u8(&f->text, (uint8_t)(i * i >> 3));
}

static void zstd_add(struct fixture *f, bool with_size, size_t first, size_t size)
{
    size_t bound = ZSTD_compressBound(size);
    uint8_t *to = writer_reserve(&f->packed, bound);
    ZSTD_CCtx *ctx = ZSTD_createCCtx();

    CHECK(to != NULL && ctx != NULL);
    (void)ZSTD_CCtx_setParameter(ctx, ZSTD_c_contentSizeFlag, with_size);
    bound = ZSTD_compress2(ctx, to, bound, f->text.data + first, size);
    CHECK(!ZSTD_isError(bound));
    f->packed.size += bound;
    (void)ZSTD_freeCCtx(ctx);
}

static void check_text(const struct fixture *f)
{
    CHECK(f->out->size == f->text.size);
    CHECK(memcmp(f->out->data, f->text.data, f->text.size) == 0);
}

static void test_snappy(void **state)
{
    struct fixture *f = *state;

    text_fill(f, 100000);
    body_snappy(&f->text, &f->packed);
    CHECK_OK(decode(f, BODY_SNAPPY, 100000), &f->ei);
    check_text(f);
    CHECK(decode(f, BODY_SNAPPY, 99999) == ERR_LIMIT);
    CHECK(f->out->size == 0);
}

static void test_snappy_of_nothing(void **state)
{
    struct fixture *f = *state;

    CHECK(decode(f, BODY_SNAPPY, 100) == ERR_INVALID); /* not even a length */
    body_snappy(&f->text, &f->packed);
    CHECK_OK(decode(f, BODY_SNAPPY, 100), &f->ei);
    CHECK(f->out->size == 0);
    writer_u8(&f->packed, 0);
    CHECK(decode(f, BODY_SNAPPY, 100) == ERR_INVALID);
}

/* A length of 1 GiB in five bytes costs no memory. */
static void test_snappy_lying_length(void **state)
{
    struct fixture *f = *state;
    uint64_t before = budget_used(&f->budget);

    body_varint(&f->packed, 1 << 24, 0);
    writer_append(&f->packed, "\0a", 2);
    CHECK(decode(f, BODY_SNAPPY, 1 << 25) == ERR_INVALID);
    CHECK(budget_used(&f->budget) == before);
    writer_reset(&f->packed);
    body_varint(&f->packed, 1 << 30, 0);
    CHECK(decode(f, BODY_SNAPPY, 1 << 25) == ERR_LIMIT);
    CHECK(budget_used(&f->budget) == before);
    writer_reset(&f->packed);
    body_varint(&f->packed, (uint64_t)1 << 40, 0);
    CHECK(decode(f, BODY_SNAPPY, 1 << 25) == ERR_INVALID);
}

static void test_snappy_every_truncation(void **state)
{
    struct fixture *f = *state;
    size_t size = 0;

    text_fill(f, 500);
    body_snappy(&f->text, &f->packed);
    size = f->packed.size;
    for (f->packed.size = 0; f->packed.size < size; f->packed.size++)
        CHECK(decode(f, BODY_SNAPPY, 1000) == ERR_INVALID);
}

static void test_zstd(void **state)
{
    struct fixture *f = *state;

    text_fill(f, 100000);
    for (int with_size = 0; with_size < 2; with_size++) {
        writer_reset(&f->packed);
        zstd_add(f, with_size != 0, 0, 100000);
        CHECK_OK(decode(f, BODY_ZSTD, 100000), &f->ei);
        check_text(f);
        CHECK(decode(f, BODY_ZSTD, 99999) == ERR_LIMIT);
    }
}

static void test_zstd_several_frames(void **state)
{
    struct fixture *f = *state;

    text_fill(f, 100000);
    zstd_add(f, true, 0, 30000);
    zstd_add(f, false, 30000, 70000);
    CHECK_OK(decode(f, BODY_ZSTD, 100000), &f->ei);
    check_text(f);
    writer_append(&f->packed, "junk", 4);
    CHECK(decode(f, BODY_ZSTD, 100000) == ERR_INVALID);
}

/* 32 MiB of zeros in a few bytes: what comes out is bounded, whatever the frame says. */
static void test_zstd_bomb(void **state)
{
    struct fixture *f = *state;
    uint8_t *zeros = writer_reserve(&f->text, 32 << 20);

    CHECK(zeros != NULL);
    memset(zeros, 0, 32 << 20);
    f->text.size = 32 << 20;
    zstd_add(f, false, 0, f->text.size);
    CHECK(decode(f, BODY_ZSTD, 1 << 20) == ERR_LIMIT);
    CHECK(budget_used(&f->budget) <= 2 << 20);
    CHECK_OK(decode(f, BODY_ZSTD, 32 << 20), &f->ei);
    check_text(f);
}

static void test_zstd_every_truncation(void **state)
{
    struct fixture *f = *state;
    size_t size = 0;

    text_fill(f, 500);
    for (int with_size = 0; with_size < 2; with_size++) {
        writer_reset(&f->packed);
        zstd_add(f, with_size != 0, 0, 500);
        size = f->packed.size;
        for (f->packed.size = 0; f->packed.size < size; f->packed.size++)
            CHECK(decode(f, BODY_ZSTD, 1000) == ERR_INVALID);
        f->packed.size = size;
    }
}

static void test_spent_budget_is_unavailable(void **state)
{
    struct fixture *f = *state;

    text_fill(f, 200000);
    body_snappy(&f->text, &f->packed);
    budget_force(&f->budget, (64 << 20) - 100000);
    CHECK(decode(f, BODY_SNAPPY, 1 << 20) == ERR_UNAVAILABLE);
    budget_release(&f->budget, (64 << 20) - 100000);
}

static void test_pool_keeps_and_limits(void **state)
{
    struct fixture *f = *state;
    struct buffer *big = buffer_pool_get(&f->pool), *small = buffer_pool_get(&f->pool);

    CHECK(big != NULL && small != NULL);
    CHECK_OK(buffer_reserve(&f->pool, big, BUFFER_KEEP_BYTES_MAX + 1, &f->ei), &f->ei);
    CHECK_OK(buffer_append(&f->pool, small, "text", 4, &f->ei), &f->ei);
    buffer_pool_put(&f->pool, big); /* too large to keep */
    buffer_pool_put(&f->pool, small);
    CHECK(f->pool.idle_count == 1);
    CHECK(buffer_pool_get(&f->pool) == small);
    CHECK(small->size == 0 && small->capacity > 0);
    buffer_pool_put(&f->pool, small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_snappy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snappy_of_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snappy_lying_length, setup, teardown),
        cmocka_unit_test_setup_teardown(test_snappy_every_truncation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zstd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zstd_several_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zstd_bomb, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zstd_every_truncation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_spent_budget_is_unavailable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pool_keeps_and_limits, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
