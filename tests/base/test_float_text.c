/* Float text against outputs of Go's strconv, and against glibc's correctly rounded strtod(). */
#include "base/float_text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static void check_format(size_t (*format)(double, char *), double v, const char *want)
{
    char text[FLOAT_TEXT_SIZE];
    size_t n = format(v, text);

    CHECK_MSG(strcmp(text, want) == 0 && n == strlen(want), "got %s, want %s", text, want);
}

static void test_f(void **state)
{
    (void)state;
    check_format(float_format_f, 0, "0");
    check_format(float_format_f, -0.0, "-0");
    check_format(float_format_f, 1, "1");
    check_format(float_format_f, -1.5, "-1.5");
    check_format(float_format_f, 100000, "100000");
    check_format(float_format_f, 0.000001, "0.000001");
    check_format(float_format_f, 0.1, "0.1");
    check_format(float_format_f, 123456789.125, "123456789.125");
    check_format(float_format_f, 1e21, "1000000000000000000000");
    check_format(float_format_f, 1.5e22, "15000000000000000000000");
    check_format(float_format_f, 1e-7, "0.0000001");
    check_format(float_format_f, 0.30000000000000004, "0.30000000000000004");
    check_format(float_format_f, NAN, "NaN");
    check_format(float_format_f, INFINITY, "+Inf");
    check_format(float_format_f, -INFINITY, "-Inf");
}

static void test_e(void **state)
{
    (void)state;
    check_format(float_format_e, 0, "0e+00");
    check_format(float_format_e, -0.0, "-0e+00");
    check_format(float_format_e, 1, "1e+00");
    check_format(float_format_e, 1e-7, "1e-07");
    check_format(float_format_e, 1e21, "1e+21");
    check_format(float_format_e, -123.456, "-1.23456e+02");
    check_format(float_format_e, 5e-324, "5e-324");
    check_format(float_format_e, DBL_MAX, "1.7976931348623157e+308");
    check_format(float_format_e, 2.2250738585072014e-308, "2.2250738585072014e-308");
    check_format(float_format_e, NAN, "NaN");
}

static void test_g(void **state)
{
    (void)state;
    check_format(float_format_g, 0, "0");
    check_format(float_format_g, 20, "20");
    check_format(float_format_g, 200000, "200000");
    check_format(float_format_g, 2000000, "2e+06");
    check_format(float_format_g, 1234567.8, "1.2345678e+06");
    check_format(float_format_g, 0.0001, "0.0001");
    check_format(float_format_g, 0.00001, "1e-05");
    check_format(float_format_g, 999999.5, "999999.5");
    check_format(float_format_g, -1e100, "-1e+100");
    check_format(float_format_g, INFINITY, "+Inf");
}

static void test_json(void **state)
{
    (void)state;
    check_format(float_format_json, 0, "0");
    check_format(float_format_json, -0.0, "-0");
    check_format(float_format_json, 0.000001, "0.000001");
    check_format(float_format_json, 0.00000099, "9.9e-07");
    check_format(float_format_json, 1e-7, "1e-07");
    check_format(float_format_json, 1e20, "100000000000000000000");
    check_format(float_format_json, -1e21, "-1e+21");
    check_format(float_format_json, 999999999999999900000.0, "999999999999999900000");
    check_format(float_format_json, DBL_MAX, "1.7976931348623157e+308");
    check_format(float_format_json, 5e-324, "5e-324");
    check_format(float_format_json, NAN, "NaN");
    check_format(float_format_json, -INFINITY, "-Inf");
}

static void check_parse(const char *text, double want)
{
    double got = 42;

    CHECK_MSG(float_parse(str_from(text), &got), "\"%s\" is refused", text);
    CHECK_MSG(isnan(want) ? isnan(got) : double_bits(got) == double_bits(want), "\"%s\": got %.17g",
              text, got);
}

static void check_refused(const char *text)
{
    double got = 42;

    CHECK_MSG(!float_parse(str_from(text), &got), "\"%s\" is taken as %.17g", text, got);
    CHECK(got == 42); /* outputs are written only on success */
}

static void test_parse_accepts(void **state)
{
    (void)state;
    check_parse("0", 0);
    check_parse("-0", -0.0);
    check_parse("+1", 1);
    check_parse("1.", 1);
    check_parse(".5", .5);
    check_parse("1e3", 1000);
    check_parse("1E+03", 1000);
    check_parse("5e-324", 5e-324);
    check_parse("2e-324", 0);
    check_parse("1.7976931348623157e308", DBL_MAX);
    check_parse("1e309", INFINITY);
    check_parse("-1e999999999999999999999", -INFINITY);
    check_parse("1e-999999999999999999999", 0);
    check_parse("0e999999999999999999999", 0);
    check_parse("inf", INFINITY);
    check_parse("+Inf", INFINITY);
    check_parse("-INFINITY", -INFINITY);
    check_parse("NaN", NAN);
    check_parse("nan", NAN);
    double nan = 0;
    CHECK(float_parse(STR_LITERAL("NAN"), &nan) && double_bits(nan) == 0x7ff8000000000001);
    check_parse("0x1p0", 1);
    check_parse("0X1.8P+1", 3);
    check_parse("-0x.8p-1", -.25);
    check_parse("0x1.fffffffffffffp1023", DBL_MAX);
    check_parse("0x1p1024", INFINITY);
    check_parse("0x1.fffffffffffff8p1023", INFINITY); /* a tie that rounds up */
    check_parse("0x1p-1074", 5e-324);
    check_parse("0x1p-1075", 0); /* a tie, to even */
    check_parse("0x1.0000000000000000001p-1075", 5e-324);
    check_parse("0x1p-99999999999999999999", 0);
    check_parse("0x0p99999999999999999999", 0);
}

static void test_parse_refuses(void **state)
{
    static const char *const bad[] = {
        "",      " ",       "1 ",    " 1",   "+",   "-",       ".",     "e5",
        "1e",    "1e+",     "1e5.0", "1..2", "1_0", "0x1_0p0", "0x",    "0x1",
        "0x1.8", "0xp1",    "0x.p1", "0x1p", "1p5", "+nan",    "-nan",  "nano",
        "infi",  "infinit", "--1",   "1e5x", "0b1", "1,5",     "0x1e5", "\xff",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(bad[i]);
    double v;
    CHECK(!float_parse((struct str){NULL, 0}, &v));
    CHECK(!float_parse((struct str){"1\0", 2}, &v));
    CHECK(float_parse((struct str){"15", 1}, &v) && v == 1); /* the size counts, not a NUL */
}

static double random_double(struct test_random *r)
{
    for (;;) {
        static const double scales[] = {1, 10, 1e2, 1e3, 1e4, 1e6, 1e7};
        double v;

        switch (test_random_below(r, 4)) {
        case 0:
            v = (double)(int64_t)test_random_u64(r) / (double)(1 + test_random_below(r, 1000));
            break;
        case 1: /* decimals of up to 19 digits, and their neighbours */
            v = (double)(int64_t)(test_random_u64(r) >> test_random_below(r, 64)) /
                scales[test_random_below(r, sizeof scales / sizeof *scales)];
            if (test_random_below(r, 4) == 0)
                v = nextafter(v, test_random_below(r, 2) == 0 ? INFINITY : -INFINITY);
            break;
        default:
            v = double_from_bits(test_random_u64(r));
            break;
        }
        if (isfinite(v))
            return v;
    }
}

/* The twin of shortest: the first %.Ne that reads back. */
static void shortest_by_trial(double v, char *out)
{
    for (int precision = 0; precision <= 17; precision++) {
        (void)snprintf(out, FLOAT_TEXT_SIZE, "%.*e", precision, v);
        if (strtod(out, NULL) == v) /* NOLINT(cert-err34-c): a twin, and it always parses */
            return;
    }
}

/* The twin of 'f': the digits of 'e' with the point moved. */
static void expand_exponent(const char *e, char *out)
{
    const char *mark = strchr(e, 'e');
    int exponent = (int)strtol(mark + 1, NULL, 10), count = 0;
    char digits[FLOAT_TEXT_SIZE];

    if (*e == '-')
        *out++ = *e++;
    for (; e < mark; e++)
        if (*e != '.')
            digits[count++] = *e;
    for (int i = exponent < 0 ? exponent : 0; i <= exponent || i < count; i++) {
        if (i == exponent + 1)
            *out++ = '.';
        *out++ = (char)(i < 0 || i >= count ? '0' : digits[i]);
    }
    *out = '\0';
}

static void test_shortest_equals_twin(void **state)
{
    struct test_random r = test_random_init(0xf107);
    char got[FLOAT_TEXT_SIZE], want[FLOAT_TEXT_SIZE];
    size_t (*const formats[])(double, char *) = {float_format_f, float_format_e, float_format_g,
                                                 float_format_json};

    (void)state;
    for (int i = 0; i < 40000; i++) {
        double v = i == 0 ? -0.0 : random_double(&r), back;

        (void)float_format_e(v, got);
        shortest_by_trial(v, want);
        CHECK_MSG(strcmp(got, want) == 0, "got %s, want %s", got, want);
        expand_exponent(got, want);
        (void)float_format_f(v, got);
        CHECK_MSG(strcmp(got, want) == 0, "got %s, want %s", got, want);
        for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
            size_t n = formats[k](v, got);

            CHECK(n == strlen(got) && n < FLOAT_TEXT_SIZE);
            CHECK_MSG(float_parse((struct str){got, n}, &back) &&
                          double_bits(back) == double_bits(v),
                      "%s", got);
        }
    }
}

/* Random spellings, many digits and ties among them, decimal and hexadecimal. */
static size_t random_number(struct test_random *r, char *out)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    bool hex = test_random_below(r, 3) == 0;
    size_t n = 0, count = 1 + test_random_below(r, test_random_below(r, 8) == 0 ? 60 : 20);
    size_t point = test_random_below(r, count + 3);
    int exponent_max = hex ? 1100 : 330;

    if (test_random_below(r, 3) == 0)
        out[n++] = "+-"[test_random_below(r, 2)];
    if (hex) {
        out[n++] = '0';
        out[n++] = "xX"[test_random_below(r, 2)];
    }
    for (size_t i = 0; i < count; i++) {
        if (i == point)
            out[n++] = '.';
        out[n++] = digits[test_random_below(r, 4) == 0 ? 0 : test_random_below(r, hex ? 22 : 10)];
    }
    if (hex || test_random_below(r, 2) == 0) {
        out[n++] = (hex ? "pP" : "eE")[test_random_below(r, 2)];
        n += (size_t)snprintf(out + n, 8, "%+d",
                              (int)test_random_below(r, (uint64_t)exponent_max * 2) - exponent_max);
    }
    out[n] = '\0';
    return n;
}

static void test_parse_equals_twin(void **state)
{
    struct test_random r = test_random_init(0x9a25e);
    char text[256];

    (void)state;
    for (int i = 0; i < 60000; i++) {
        size_t n = random_number(&r, text);
        double want = strtod(text, NULL), got; /* NOLINT(cert-err34-c): the twin */

        CHECK_MSG(float_parse((struct str){text, n}, &got), "\"%s\"", text);
        CHECK_MSG(double_bits(got) == double_bits(want), "%s: %.17g, not %.17g", text, got, want);
    }
}

static void test_hostile_text_is_survived(void **state)
{
    static const char alphabet[] = "0019.eEpPxX+-_infatyNI \xff";
    struct test_random r = test_random_init(0x4057);
    char text[40];
    double v;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        size_t n = test_random_below(&r, sizeof text);

        for (size_t k = 0; k < n; k++)
            text[k] = alphabet[test_random_below(&r, sizeof alphabet - 1)];
        if (float_parse((struct str){text, n}, &v))
            CHECK(n > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f),
        cmocka_unit_test(test_e),
        cmocka_unit_test(test_g),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_parse_accepts),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_shortest_equals_twin),
        cmocka_unit_test(test_parse_equals_twin),
        cmocka_unit_test(test_hostile_text_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
