/* Readers and writers of bytes: round trips, and input that lies about its length. */
#include "base/bytes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

/* The twin of reader_varint(): the definition, with every check spelled out. */
static bool varint_by_definition(const uint8_t *p, size_t size, uint64_t *out, size_t *used)
{
    unsigned __int128 v = 0;

    for (size_t i = 0; i < size && i < 10; i++) {
        v |= (unsigned __int128)(p[i] & 0x7f) << (7 * i);
        if ((p[i] & 0x80) == 0) {
            *out = (uint64_t)v;
            *used = i + 1;
            return v >> 64 == 0;
        }
    }
    return false;
}

static void check_varint(const uint8_t *p, size_t size)
{
    uint8_t *exact = malloc(size + (size == 0)); /* so that AddressSanitizer sees one byte more */
    uint64_t want = 0;
    size_t used = 0;

    CHECK(exact != NULL);
    memcpy(exact, p, size);
    struct byte_reader r = reader_init(exact, size);
    bool ok = varint_by_definition(exact, size, &want, &used);
    uint64_t got = reader_varint(&r);
    CHECK(r.failed == !ok);
    CHECK(got == (ok ? want : 0));
    CHECK(reader_left(&r) == (ok ? size - used : size));
    CHECK(reader_varint(&r) == 0 || ok); /* failure is sticky */
    free(exact);
}

static void test_varint_equals_twin(void **state)
{
    struct test_random r = test_random_init(0x7a51);
    uint8_t bytes[16];

    (void)state;
    for (int i = 0; i < 200000; i++) {
        size_t size = test_random_below(&r, 13);
        uint64_t continued = test_random_below(&r, 4); /* how likely bit 7 is */

        for (size_t k = 0; k < size; k++) {
            bytes[k] = (uint8_t)(test_random_below(&r, 8) == 0 ? 0 : test_random_u64(&r));
            if (test_random_below(&r, 4) < continued)
                bytes[k] |= 0x80;
        }
        check_varint(bytes, size);
    }
}

static void test_varint_edges(void **state)
{
    static const uint8_t max[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1};
    static const uint8_t past_64[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
    static const uint8_t padded[] = {0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0};
    static const uint8_t eleven[] = {0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0};

    (void)state;
    struct byte_reader r = reader_init(max, sizeof max);
    CHECK(reader_varint(&r) == UINT64_MAX && !r.failed && reader_left(&r) == 0);
    r = reader_init(past_64, sizeof past_64);
    CHECK(reader_varint(&r) == 0 && r.failed);
    r = reader_init(padded, sizeof padded);
    CHECK(reader_varint(&r) == 1 && !r.failed);
    r = reader_init(eleven, sizeof eleven);
    CHECK(reader_varint(&r) == 0 && r.failed);
    r = reader_init(NULL, 0);
    CHECK(reader_varint(&r) == 0 && r.failed);
}

static void test_varint_round_trip(void **state)
{
    struct test_random r = test_random_init(0x2051);
    uint8_t bytes[10];

    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint64_t v = test_random_wide(&r, 64);
        size_t n = varint_write(bytes, v);
        struct byte_reader reader = reader_init(bytes, n);

        CHECK(reader_varint(&reader) == v && !reader.failed && reader_left(&reader) == 0);
        CHECK(zigzag_encode(zigzag_decode(v)) == v);
        CHECK(zigzag_decode(zigzag_encode((int64_t)v)) == (int64_t)v);
    }
    CHECK(zigzag_encode(0) == 0 && zigzag_encode(-1) == 1 && zigzag_encode(1) == 2);
    CHECK(zigzag_encode(INT64_MIN) == UINT64_MAX);
    CHECK(signbit(double_from_bits(double_bits(-0.0))) != 0);
}

/* A random sequence of writes reads back, and every truncation of it fails without a stray byte. */
enum { FIELD_COUNT = 40 };

struct field {
    uint64_t value;
    int kind;
    char text[20];
};

static void write_field(struct byte_writer *w, const struct field *f)
{
    switch (f->kind) {
    case 0:
        writer_u8(w, (uint8_t)f->value);
        break;
    case 1:
        writer_le16(w, (uint16_t)f->value);
        break;
    case 2:
        writer_le32(w, (uint32_t)f->value);
        break;
    case 3:
        writer_le64(w, f->value);
        break;
    case 4:
        writer_varint(w, f->value);
        break;
    default:
        writer_str(w, (struct str){f->text, f->value % sizeof f->text});
        break;
    }
}

/* False when the reader ran out. */
static bool read_field(struct byte_reader *r, const struct field *f)
{
    size_t size;
    const uint8_t *p;

    switch (f->kind) {
    case 0:
        return reader_u8(r) == (uint8_t)f->value && !r->failed;
    case 1:
        return reader_le16(r) == (uint16_t)f->value && !r->failed;
    case 2:
        return reader_le32(r) == (uint32_t)f->value && !r->failed;
    case 3:
        return reader_le64(r) == f->value && !r->failed;
    case 4:
        return reader_varint(r) == f->value && !r->failed;
    default:
        size = reader_varint(r);
        p = reader_take(r, size);
        return p != NULL && size == f->value % sizeof f->text && memcmp(p, f->text, size) == 0;
    }
}

static void test_sequences(void **state)
{
    struct test_random r = test_random_init(0x5e9);
    struct field fields[FIELD_COUNT];
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    for (int round = 0; round < 50; round++) {
        writer_reset(&w);
        for (int i = 0; i < FIELD_COUNT; i++) {
            fields[i].kind = (int)test_random_below(&r, 6);
            fields[i].value = test_random_wide(&r, 64);
            for (size_t k = 0; k < sizeof fields[i].text; k++)
                fields[i].text[k] = (char)test_random_u64(&r);
            write_field(&w, &fields[i]);
        }
        CHECK(!w.failed);
        for (size_t cut = 0; cut <= w.size; cut++) {
            uint8_t *exact = malloc(cut + (cut == 0));
            int got = 0;

            CHECK(exact != NULL);
            memcpy(exact, w.data, cut);
            struct byte_reader reader = reader_init(exact, cut);
            while (got < FIELD_COUNT && read_field(&reader, &fields[got]))
                got++;
            CHECK((got == FIELD_COUNT) == (cut == w.size));
            CHECK(reader.failed == (cut < w.size));
            CHECK(reader.pos >= exact && reader.pos <= exact + cut);
            free(exact);
        }
    }
    writer_done(&w);
}

static void test_reader_take_refuses_lies(void **state)
{
    static const uint8_t bytes[4] = {1, 2, 3, 4};
    struct byte_reader r = reader_init(bytes, sizeof bytes);

    (void)state;
    CHECK(reader_take(&r, 2) == bytes);
    CHECK(reader_take(&r, SIZE_MAX) == NULL && r.failed);
    CHECK(reader_take(&r, 1) == NULL); /* sticky, although there are two left */
    CHECK(reader_u8(&r) == 0 && reader_le64(&r) == 0);
}

static void test_writer_failure_is_sticky(void **state)
{
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    writer_append(&w, NULL, 0);
    writer_u8(&w, 1);
    CHECK(writer_reserve(&w, SIZE_MAX) == NULL && w.failed);
    CHECK(writer_reserve(&w, SIZE_MAX / 2) == NULL);
    writer_u8(&w, 2);
    CHECK(w.size == 1);
    writer_reset(&w);
    writer_u8(&w, 3);
    CHECK(!w.failed && w.size == 1 && w.data[0] == 3);
    writer_done(&w);
    CHECK(w.data == NULL && w.size == 0);
}

static void test_writer_printf(void **state)
{
    struct byte_writer w;
    char text[1000];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    writer_init(&w);
    writer_printf(&w, "%s", "");
    CHECK(w.size == 0);
    writer_printf(&w, "<%d|%s>", 42, text); /* longer than one guess */
    writer_printf(&w, "!");
    CHECK(w.size == 1004 + 1 && memcmp(w.data, "<42|x", 5) == 0);
    CHECK(memcmp(w.data + w.size - 3, "x>!", 3) == 0);
    for (size_t n = 120; n < 140; n++) { /* around the first guess's size */
        writer_reset(&w);
        writer_printf(&w, "%.*s", (int)n, text);
        CHECK(w.size == n && memcmp(w.data, text, n) == 0);
    }
    writer_done(&w);
}

static void test_str(void **state)
{
    (void)state;
    CHECK(str_equal(STR_LITERAL("ab"), str_from("ab")));
    CHECK(str_equal((struct str){NULL, 0}, STR_LITERAL("")));
    CHECK(!str_equal(STR_LITERAL("ab"), STR_LITERAL("abc")));
    CHECK(str_compare(STR_LITERAL("ab"), STR_LITERAL("abc")) < 0);
    CHECK(str_compare(STR_LITERAL("b"), STR_LITERAL("abc")) > 0);
    CHECK(str_compare(STR_LITERAL("\xff"), STR_LITERAL("a")) > 0);
    CHECK(str_compare((struct str){NULL, 0}, STR_LITERAL("")) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_varint_equals_twin),
        cmocka_unit_test(test_varint_edges),
        cmocka_unit_test(test_varint_round_trip),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_reader_take_refuses_lies),
        cmocka_unit_test(test_writer_failure_is_sticky),
        cmocka_unit_test(test_writer_printf),
        cmocka_unit_test(test_str),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
