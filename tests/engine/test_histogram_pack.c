/* Histograms as bytes: every bit comes back, alone and as differences; damage is noticed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/histogram/histogram_pack_internal.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/write.h"
#include "tests/engine/histogram_kit.h"
#include "tests/lib/test_cmocka.h"

enum { COUNT = 60, SIZE_MAX_BYTES = 1 << 16 };

/* Packs into memory of exactly the room that was promised. */
static size_t pack(const struct histogram *h, const struct histogram *before, uint8_t *out)
{
    size_t room = histogram_pack_size_max(h), size;
    uint8_t *exact = malloc(room + 1);

    CHECK(exact != NULL && room <= SIZE_MAX_BYTES);
    size = histogram_pack(exact, h, before);
    CHECK(size <= room);
    memcpy(out, exact, size);
    free(exact);
    return size;
}

static enum err unpack(const uint8_t *data, size_t size, const struct histogram *before,
                       struct arena *arena, struct histogram *out, size_t *left)
{
    uint8_t *exact = malloc(size + 1); /* so that ASan sees a read too far */
    struct byte_reader in;
    enum err e;

    CHECK(exact != NULL);
    if (size > 0)
        memcpy(exact + 1, data, size);
    in = reader_init(exact + 1, size);
    e = histogram_unpack(&in, before, arena, out);
    *left = reader_left(&in);
    free(exact);
    return e;
}

static void test_round_trip(void **state)
{
    struct test_random r = test_random_init(1);
    uint8_t *bytes = malloc(SIZE_MAX_BYTES);

    (void)state;
    CHECK(bytes != NULL);
    for (int round = 0; round < 300; round++) {
        enum histogram_model model = (enum histogram_model)(round % HISTOGRAMS_MODEL_COUNT);
        struct histogram h[COUNT], got, before = {0};
        struct arena arena;
        size_t left;

        arena_init(&arena, NULL);
        histograms_fill(&r, model, &arena, h, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            size_t size = pack(&h[i], NULL, bytes);
            uint64_t bits = histogram_packed_bits((struct bytes){bytes, size}), again;

            CHECK(unpack(bytes, size, NULL, &arena, &got, &left) == ERR_OK && left == 0);
            CHECK(histogram_same_bits(&h[i], &got));
            CHECK((bits == STALE_NAN_BITS) == histogram_is_stale(&h[i]));
            if (histogram_is_float(&h[i]))
                CHECK(bits == double_bits(h[i].sum));
            else
                CHECK(bits != SERIES_BITS_UNKNOWN && isnan(double_from_bits(bits)));
            CHECK(histogram_value_bits(&got, &again) && again == bits);
            if (i == 0) {
                before = got;
                continue;
            }
            size = pack(&h[i], &before, bytes);
            CHECK(unpack(bytes, size, &before, &arena, &got, &left) == ERR_OK && left == 0);
            CHECK(histogram_same_bits(&h[i], &got));
            before = got;
        }
        arena_done(&arena);
    }
    free(bytes);
}

/* Hints say nothing about the value; everything else does. */
static void test_bits(void **state)
{
    struct test_random r = test_random_init(2);
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (int round = 0; round < 2000; round++) {
        struct histogram a = histogram_any(&r, &arena), b = histogram_any(&r, &arena), c = a;
        uint64_t x, y, z;

        c.hint = (enum histogram_hint)((c.hint + 1) % 4);
        CHECK(histogram_value_bits(&a, &x) && histogram_value_bits(&b, &y) &&
              histogram_value_bits(&c, &z));
        CHECK(x == z);
        if (x == y)
            CHECK(histogram_equal(&a, &b));
        c.sum += 1;
        CHECK(histogram_value_bits(&c, &z) && x != z);
    }
    arena_done(&arena);
}

static void check_bytes(const struct histogram *h, const struct histogram *before,
                        const uint8_t *wanted, size_t wanted_size, uint64_t wanted_bits)
{
    uint8_t out[256];
    size_t size = histogram_pack(out, h, before);
    uint64_t bits;

    CHECK_MSG(size == wanted_size, "%zu bytes, not %zu", size, wanted_size);
    CHECK(memcmp(out, wanted, size) == 0);
    CHECK(histogram_value_bits(h, &bits));
    CHECK_MSG(bits == wanted_bits, "%016llx", (unsigned long long)bits);
}

/* What logs and series files of earlier programs hold: these bytes and hashes stay. */
static void test_golden(void **state)
{
    static const struct histogram_span spans[] = {{-1, 2}, {3, 1}};
    static const double bounds[] = {1, 2};
    double buckets[] = {3, 300, 5}, more[] = {4, 300, 5}, parts[] = {0.5, 2};
    struct histogram whole = {.schema = 3,
                              .hint = HISTOGRAM_HINT_GAUGE,
                              .zero_threshold = 0x1p-128,
                              .zero_count = 2,
                              .count = 310,
                              .sum = 1.5,
                              .positive = {spans, 2, buckets, 3}};
    struct histogram next = whole;
    struct histogram custom = {.schema = HISTOGRAM_SCHEMA_CUSTOM,
                               .count = 2.5,
                               .sum = 4,
                               .start_ms = 100,
                               .positive = {(const struct histogram_span[]){{0, 2}}, 1, parts, 2},
                               .custom_values = bounds,
                               .custom_count = 2};
    struct histogram stale = {.zero_threshold = 1,
                              .sum = double_from_bits(STALE_NAN_BITS),
                              .negative = {spans, 1, more, 2}};
    static const uint8_t whole_bytes[] = {3, 1, 3, 0, 0, 0, 0, 0, 0,    0xf8, 0x3f, 0xb6,
                                          2, 2, 2, 1, 2, 6, 1, 6, 0xd2, 0x04, 0xcd, 0x04};
    static const uint8_t next_bytes[] = {3, 3, 3, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 2, 0, 2, 0, 1};
    static const uint8_t custom_bytes[] = {
        0, 0x60, 0xcb, 0,    0,    0,    0, 0, 0, 0x10, 0x40, 0xc8, 1, 0,    0, 0, 0,
        0, 0,    4,    0x40, 0,    0,    0, 0, 0, 0,    0,    0,    1, 0,    2, 0, 0,
        0, 0,    0,    0,    0xe0, 0x3f, 0, 0, 0, 0,    0,    0,    0, 0x40, 2, 0, 0,
        0, 0,    0,    0,    0xf0, 0x3f, 0, 0, 0, 0,    0,    0,    0, 0x40};
    static const uint8_t stale_bytes[] = {0,    0x1d, 0, 0, 0, 0, 0, 0, 0,    0xf0,
                                          0x3f, 0,    0, 0, 1, 1, 2, 8, 0xd0, 0x04};

    (void)state;
    next.count++;
    next.positive.buckets = more;
    check_bytes(&whole, NULL, whole_bytes, sizeof whole_bytes, UINT64_C(0xfff8c20b6fecc6aa));
    check_bytes(&next, &whole, next_bytes, sizeof next_bytes, UINT64_C(0xfff918a15f6843de));
    check_bytes(&custom, NULL, custom_bytes, sizeof custom_bytes, UINT64_C(0xfffb9b32f07db82f));
    check_bytes(&stale, NULL, stale_bytes, sizeof stale_bytes, STALE_NAN_BITS);
}

/* Neighbours that rest, or count in a few buckets, cost little. */
static void test_sizes(void **state)
{
    struct histogram_span span = {-3, 50};
    double counts[50] = {0}, more[50] = {0};
    struct histogram h = {.schema = 3, .zero_threshold = 0x1p-128, .sum = 1.5};
    struct histogram next;
    uint8_t out[1024];

    (void)state;
    h.positive = (struct histogram_side){&span, 1, counts, 50};
    for (size_t i = 0; i < 50; i++) {
        counts[i] = more[i] = (double)(1000 + 7 * i);
        h.count += counts[i];
    }
    CHECK(histogram_pack(out, &h, NULL) < 3 + 8 + 4 + 4 + 52);
    next = h;
    CHECK(histogram_pack(out, &next, &h) <= 3 + 8 + 2 + 3);
    next.positive.buckets = more;
    more[20]++;
    next.count++;
    CHECK(histogram_pack(out, &next, &h) <= 3 + 8 + 2 + 2 + 1 + 2);
}

/* What is cut short is noticed, and what is altered at least holds together. */
static void test_damage(void **state)
{
    struct test_random r = test_random_init(3);
    uint8_t *bytes = malloc(SIZE_MAX_BYTES), *second = malloc(SIZE_MAX_BYTES);

    (void)state;
    CHECK(bytes != NULL && second != NULL);
    for (int round = 0; round < 60; round++) {
        enum histogram_model model = (enum histogram_model)(round % HISTOGRAMS_MODEL_COUNT);
        struct histogram h[2], got, again;
        bool with_before = round % 2 == 1;
        struct arena arena;
        size_t size, left;

        arena_init(&arena, NULL);
        histograms_fill(&r, model, &arena, h, 2);
        size = pack(&h[1], with_before ? &h[0] : NULL, bytes);
        for (size_t cut = 0; cut < size; cut++)
            CHECK(unpack(bytes, cut, with_before ? &h[0] : NULL, &arena, &got, &left) ==
                  ERR_CORRUPT);
        for (size_t bit = 0; bit < size * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (unpack(bytes, size, with_before ? &h[0] : NULL, &arena, &got, &left) == ERR_OK) {
                CHECK(histogram_check_layout(&got, NULL) == ERR_OK);
                CHECK(unpack(second, pack(&got, NULL, second), NULL, &arena, &again, &left) ==
                      ERR_OK);
                CHECK(histogram_same_bits(&got, &again));
            }
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        arena_done(&arena);
    }
    free(bytes);
    free(second);
}

/* Numbers in the bytes do not size allocations. */
static void test_hostile(void **state)
{
    static const uint8_t spans[] = {0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f};
    static const uint8_t length[] = {0, 1, 3, 0,    0,    0,    0,    0,    0, 0, 0, 1,
                                     0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1, 1};
    static const uint8_t custom[] = {0, 1 | 32, 0xcb, 0, 0, 0,    0,    0,   0,
                                     0, 0,      0,    0, 0, 0xff, 0xff, 0x7f};
    static const uint8_t same[] = {0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const struct bytes all[] = {{spans, sizeof spans},
                                {length, sizeof length},
                                {custom, sizeof custom},
                                {same, sizeof same}};
    struct histogram got;
    struct budget budget;
    struct arena arena;
    size_t left;

    (void)state;
    budget_init(&budget, "test", 1 << 20, NULL);
    arena_init(&arena, &budget);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        CHECK(unpack(all[i].data, all[i].size, NULL, &arena, &got, &left) == ERR_CORRUPT);
    CHECK(arena.refused_bytes == 0);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bits),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
