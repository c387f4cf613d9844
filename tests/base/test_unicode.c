/* UTF-8, case mapping and MD5. The sums are those of Go 1.26's package unicode over all code
 * points: sum = sum * 1099511628211 + f(c). */
#include "base/unicode.h"

#include <string.h>

#include "base/md5.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static void test_tables(void **state)
{
    uint64_t lower = 0, upper = 0, word = 0;

    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        lower = lower * 1099511628211U + unicode_lower(c);
        upper = upper * 1099511628211U + unicode_upper(c);
        word = word * 1099511628211U + unicode_is_letter_or_digit(c);
    }
    CHECK(lower == UINT64_C(0x607908b156dc4128));
    CHECK(upper == UINT64_C(0x462b9ed19a732349));
    CHECK(word == UINT64_C(0x8bbdcfb35e3d4398));
}

static void check_case(const char *text, const char *lower, const char *upper)
{
    struct byte_writer w;

    writer_init(&w);
    unicode_lower_write(&w, str_from(text));
    CHECK(w.size == strlen(lower) && memcmp(w.data, lower, w.size) == 0);
    writer_reset(&w);
    unicode_upper_write(&w, str_from(text));
    CHECK(w.size == strlen(upper) && memcmp(w.data, upper, w.size) == 0);
    writer_done(&w);
}

static void test_case(void **state)
{
    (void)state;
    check_case("Node-7_a", "node-7_a", "NODE-7_A");
    check_case("\u00c4\u00df\u0130", "\u00e4\u00dfi", "\u00c4\u00df\u0130");
    check_case("a\xffZ\xe2\x82", "a\ufffdz\ufffd\ufffd", "A\ufffdZ\ufffd\ufffd");
    check_case("\U00010400", "\U00010428", "\U00010400");
}

static void check_decode(const char *text, uint32_t want, unsigned want_width)
{
    unsigned width = 0;

    CHECK(utf8_decode(str_from(text), &width) == want && width == want_width);
}

static void test_decode(void **state)
{
    (void)state;
    check_decode("a", 'a', 1);
    check_decode("\xc3\xa9", 0xe9, 2);
    check_decode("\xf0\x9f\x98\x80", 0x1f600, 4);
    check_decode("\xc0\x80", UNICODE_REPLACEMENT, 1);         /* over-long */
    check_decode("\xe0\x80\x80", UNICODE_REPLACEMENT, 1);     /* over-long */
    check_decode("\xed\xa0\x80", UNICODE_REPLACEMENT, 1);     /* a surrogate */
    check_decode("\xf4\x90\x80\x80", UNICODE_REPLACEMENT, 1); /* past the last one */
    check_decode("\xe2\x82", UNICODE_REPLACEMENT, 1);         /* cut off */
    check_decode("\xef\xbf\xbd", UNICODE_REPLACEMENT, 3);     /* as it stands */
}

static void check_md5(const char *text, const char *want)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[MD5_BYTES];

    md5_bytes(text, strlen(text), digest);
    for (size_t i = 0; i < MD5_BYTES; i++) {
        CHECK(digits[digest[i] >> 4] == want[2 * i]);
        CHECK(digits[digest[i] & 15] == want[2 * i + 1]);
    }
}

static void test_md5(void **state)
{
    (void)state; /* RFC 1321, A.5 */
    check_md5("", "d41d8cd98f00b204e9800998ecf8427e");
    check_md5("message digest", "f96b697d7cb7938d525a2f31aaf161d0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_case),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_md5),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
