/*
 * Label sets and text rules: order, equality, formatting, quoting, UTF-8.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/labels.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static struct labels set_of(const struct label *items, size_t count)
{
    return (struct labels){count, items};
}
#define L(n, v)                                                                                    \
    {                                                                                              \
        STR_LITERAL(n), STR_LITERAL(v)                                                             \
    }
#define SET(...)                                                                                   \
    set_of((const struct label[]){__VA_ARGS__},                                                    \
           sizeof((const struct label[]){__VA_ARGS__}) / sizeof(struct label))

static void order_is_pair_by_pair(void **state)
{
    /* Ascending as Prometheus sorts: upper case before __name__, a prefix before what follows it.
     */
    const struct labels sets[] = {
        SET(L("A", "z")),
        SET(L("A", "z"), L("__name__", "a")),
        SET(L("__name__", "a")),
        SET(L("__name__", "a"), L("b", "1")),
        SET(L("__name__", "a"), L("b", "1"), L("c", "0")),
        SET(L("__name__", "a"), L("b", "10")),
        SET(L("__name__", "a"), L("c", "0")),
        SET(L("__name__", "ab")),
        SET(L("a", "0")),
    };
    size_t n = sizeof sets / sizeof sets[0];

    (void)state;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            int c = labels_compare(&sets[i], &sets[k]);

            CHECK_MSG((c > 0) - (c < 0) == (i > k) - (i < k), "%zu %zu", i, k);
            CHECK(labels_equal(&sets[i], &sets[k]) == (i == k));
            CHECK((labels_hash(&sets[i]) == labels_hash(&sets[k])) == (i == k));
        }
    }
    CHECK(str_equal(labels_get(&sets[4], STR_LITERAL("b")), STR_LITERAL("1")));
    CHECK(labels_get(&sets[4], STR_LITERAL("bb")).size == 0);
}

static void hash_tells_names_from_values(void **state)
{
    struct labels a = SET(L("ab", "c"));
    struct labels b = SET(L("a", "bc"));

    (void)state;
    CHECK(labels_hash(&a) != labels_hash(&b));
}

static void metrics_are_formatted_as_prometheus_does(void **state)
{
    static const struct {
        const char *plain, *braces;
    } want[] = {
        {"{}", "{}"},
        {"up", "{__name__=\"up\"}"},
        {"a:b{job=\"x\", z=\"\\\"\\\\\\n\"}", "{__name__=\"a:b\", job=\"x\", z=\"\\\"\\\\\\n\"}"},
        {"{job=\"x\"}", "{job=\"x\"}"},
        {"{\"my.metric\"}", "{__name__=\"my.metric\"}"},
        {"{\"my.metric\", \"a.b\"=\"1\", c=\"\xc3\xa9\"}",
         "{__name__=\"my.metric\", \"a.b\"=\"1\", c=\"\xc3\xa9\"}"},
        {"m{\"9x\"=\"1\"}", "{\"9x\"=\"1\", __name__=\"m\"}"},
    };
    const struct labels sets[] = {
        {0, NULL},
        SET(L("__name__", "up")),
        SET(L("__name__", "a:b"), L("job", "x"), L("z", "\"\\\n")),
        SET(L("job", "x")),
        SET(L("__name__", "my.metric")),
        SET(L("__name__", "my.metric"), L("a.b", "1"), L("c", "\xc3\xa9")),
        SET(L("9x", "1"), L("__name__", "m")),
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        char *plain = labels_format(&sets[i], &arena);
        char *braces = labels_format_braces(&sets[i], &arena);

        CHECK_MSG(strcmp(plain, want[i].plain) == 0, "%s", plain);
        CHECK_MSG(strcmp(braces, want[i].braces) == 0, "%s", braces);
    }
    arena_done(&arena);
}

static void quoting_follows_go(void **state)
{
    /* What Go 1.21's strconv.Quote prints. */
    static const struct {
        struct str text;
        const char *quoted;
    } cases[] = {
        {STR_LITERAL(""), "\"\""},
        {STR_LITERAL("plain text'`"), "\"plain text'`\""},
        {STR_LITERAL("\a\b\t\n\v\f\r\"\\"), "\"\\a\\b\\t\\n\\v\\f\\r\\\"\\\\\""},
        {STR_LITERAL("\0\x1b\x7f"), "\"\\x00\\x1b\\x7f\""},
        {STR_LITERAL("\xff\xc3(\xe2\x82"), "\"\\xff\\xc3(\\xe2\\x82\""},
        {STR_LITERAL("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
         "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {STR_LITERAL("\xc2\x80\xc2\xa0\xc2\xad"), "\"\\u0080\\u00a0\\u00ad\""},
        {STR_LITERAL("\xe2\x80\xa8\xef\xbb\xbf\xee\x80\x80"), "\"\\u2028\\ufeff\\ue000\""},
        {STR_LITERAL("\xef\xbf\xbd\xed\xa0\x80"), "\"\xef\xbf\xbd\\xed\\xa0\\x80\""},
        {STR_LITERAL("\xf3\xa0\x80\x81\xf4\x8f\xbf\xbf"), "\"\\U000e0001\\U0010ffff\""},
        {STR_LITERAL("\xcd\xb8"), "\"\\u0378\""}, /* never assigned */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct byte_writer w;

        writer_init(&w);
        str_quote(&w, cases[i].text);
        writer_u8(&w, 0);
        CHECK(!w.failed);
        CHECK_MSG(strcmp((const char *)w.data, cases[i].quoted) == 0, "%s", (const char *)w.data);
        writer_done(&w);
    }
}

static void legacy_names(void **state)
{
    (void)state;
    CHECK(label_name_is_legacy(STR_LITERAL("__name__")));
    CHECK(label_name_is_legacy(STR_LITERAL("a9_Z")));
    CHECK(!label_name_is_legacy(STR_LITERAL("")));
    CHECK(!label_name_is_legacy(STR_LITERAL("9a")));
    CHECK(!label_name_is_legacy(STR_LITERAL("a:b")));
    CHECK(!label_name_is_legacy(STR_LITERAL("\xc3\xa9")));
}

/* The twin decodes to a code point and checks what the standard says about it. */
static bool utf8_is_valid_slowly(const uint8_t *p, size_t size)
{
    static const uint32_t SMALLEST[] = {0, 0, 0x80, 0x800, 0x10000};

    for (size_t i = 0; i < size;) {
        size_t n = p[i] < 0x80             ? 1
                   : (p[i] & 0xe0) == 0xc0 ? 2
                   : (p[i] & 0xf0) == 0xe0 ? 3
                   : (p[i] & 0xf8) == 0xf0 ? 4
                                           : 0;
        uint32_t r = n == 1 ? p[i] : n == 0 ? 0 : p[i] & (0x7fU >> n);

        if (n == 0 || n > size - i)
            return false;
        for (size_t k = 1; k < n; k++) {
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
            r = r << 6 | (p[i + k] & 0x3f);
        }
        if (r < SMALLEST[n] || r > 0x10ffff || (r >= 0xd800 && r <= 0xdfff))
            return false;
        i += n;
    }
    return true;
}

static void utf8_equals_its_twin(void **state)
{
    static const uint8_t EDGES[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
                                    0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xec, 0xed,
                                    0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
    struct test_random r = test_random_init(7);
    size_t valid = 0;

    (void)state;
    for (int round = 0; round < 300000; round++) {
        uint8_t text[24];
        size_t ascii = test_random_below(&r, 14);
        size_t size = ascii + test_random_below(&r, 8);
        bool want;

        memset(text, 'a', ascii);
        for (size_t i = ascii; i < size; i++)
            text[i] = EDGES[test_random_below(&r, sizeof EDGES)];
        want = utf8_is_valid_slowly(text, size);
        CHECK(utf8_is_valid((struct str){(const char *)text, size}) == want);
        valid += want;
    }
    CHECK(valid > 1000 && valid < 200000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_pair_by_pair),
        cmocka_unit_test(hash_tells_names_from_values),
        cmocka_unit_test(metrics_are_formatted_as_prometheus_does),
        cmocka_unit_test(quoting_follows_go),
        cmocka_unit_test(legacy_names),
        cmocka_unit_test(utf8_equals_its_twin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
