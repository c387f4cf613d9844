/* Parameters: forms, times, durations, limits and escaped names, with Prometheus's texts. */
#include "tests/lib/test_cmocka.h"

#include <stdlib.h>
#include <string.h>

#include "api/http/params_internal.h"
#include "tests/lib/test_support.h"

static void check_str(struct str got, const char *want)
{
    CHECK_MSG(str_equal(got, str_from(want)), "got \"%.*s\", want \"%s\"", STR_ARGS(got), want);
}

static void test_form(void **state)
{
    struct params p = {0};
    struct arena arena;
    struct errinfo ei = {0};

    (void)state;
    arena_init(&arena, NULL);
    CHECK_OK(params_parse(&p, str_from("query=a%2Bb+c&match[]=x&match%5B%5D=y&empty=&bare&&"),
                          &arena, &ei),
             &ei);
    CHECK_OK(params_parse(&p, str_from("query=second&time=4"), &arena, &ei), &ei);
    check_str(params_get(&p, "query"), "a+b c"); /* the first one counts */
    check_str(params_get(&p, "time"), "4");
    check_str(params_get(&p, "empty"), "");
    check_str(params_get(&p, "nothing"), "");
    CHECK(params_count(&p, "match[]") == 2);
    CHECK(params_count(&p, "bare") == 1);
    arena_done(&arena);
}

static void test_form_errors(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"a=%zz", "invalid URL escape \"%zz\""},
        {"a=%", "invalid URL escape \"%\""},
        {"a=%4", "invalid URL escape \"%4\""},
        {"a=1;b=2", "invalid semicolon separator in query"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct params p = {0};
        struct arena arena;
        struct errinfo ei = {0};

        arena_init(&arena, NULL);
        CHECK(params_parse(&p, str_from(cases[i].text), &arena, &ei) == ERR_INVALID);
        CHECK_MSG(strcmp(ei.message, cases[i].why) == 0, "%s", ei.message);
        arena_done(&arena);
    }
}

static void test_times(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"0", 0},
        {"4", 4000},
        {"-1.5", -1500},
        {"1435781451.781", 1435781451781},
        {"4.0625", 4063}, /* to the nearest */
        {"1e3", 1000000},
        {"+Inf", TIME_MAX_MS},
        {"-1e300", TIME_MIN_MS},
        {"2015-07-01T20:10:51.781Z", 1435781451781},
        {"2015-07-01T22:10:51.781+02:00", 1435781451781},
        {"2015-07-01T20:10:51Z", 1435781451000},
        {"2015-07-01T20:10:51.123456789Z", 1435781451123},
        {"1969-12-31T23:59:59Z", -1000},
        {"2000-02-29T00:00:00Z", 951782400000},
        {"0001-01-01T00:00:00Z", -62135596800000},
        {"9999-12-31T23:59:59Z", 253402300799000},
        {"-292273086-05-16T16:47:06Z", TIME_MIN_MS},
        {"292277025-08-18T07:12:54.999999999Z", TIME_MAX_MS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t ms = -7;
        struct errinfo ei = {0};

        CHECK_OK(time_parse(str_from(cases[i].text), &ms, &ei), &ei);
        CHECK_MSG(ms == cases[i].ms, "%s: %lld", cases[i].text, (long long)ms);
    }
}

static void test_no_times(void **state)
{
    static const char *const cases[] = {"",
                                        "now",
                                        "NaN",
                                        "2015-07-01",
                                        "2015-07-01T20:10:51",
                                        "2015-13-01T20:10:51Z",
                                        "2015-02-29T20:10:51Z",
                                        "2015-07-01T24:10:51Z",
                                        "2015-07-01T20:10:51.Z",
                                        "2015-07-01T20:10:51+2:00",
                                        "2015-07-01T20:10:51ZZ",
                                        "12:00"};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t ms = 0;
        struct errinfo ei = {0};

        CHECK(time_parse(str_from(cases[i]), &ms, &ei) == ERR_INVALID);
        CHECK(strncmp(ei.message, "cannot parse \"", 14) == 0);
        CHECK(strstr(ei.message, "\" to a valid timestamp") != NULL);
    }
}

static void test_durations(void **state)
{
    int64_t ms = 0;
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(param_duration_parse(str_from("15"), &ms, &ei), &ei);
    CHECK(ms == 15000);
    CHECK_OK(param_duration_parse(str_from("0.5"), &ms, &ei), &ei);
    CHECK(ms == 500);
    CHECK_OK(param_duration_parse(str_from("0.0001"), &ms, &ei), &ei);
    CHECK(ms == 1); /* not zero, which would be refused as a step */
    CHECK_OK(param_duration_parse(str_from("1h30m"), &ms, &ei), &ei);
    CHECK(ms == 5400000);
    CHECK_OK(param_duration_parse(str_from("-5"), &ms, &ei), &ei);
    CHECK(ms == -5000);
    CHECK(param_duration_parse(str_from("x"), &ms, &ei) == ERR_INVALID);
    CHECK(strcmp(ei.message, "cannot parse \"x\" to a valid duration") == 0);
    errinfo_clear(&ei);
    CHECK(param_duration_parse(str_from("1e10"), &ms, &ei) == ERR_INVALID);
    CHECK(strstr(ei.message, "It overflows int64") != NULL);
    CHECK(param_duration_parse(str_from(""), &ms, NULL) == ERR_INVALID);
}

static void test_limits(void **state)
{
    size_t limit = 7;
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(param_limit_parse(str_from(""), &limit, &ei), &ei);
    CHECK(limit == 0);
    CHECK_OK(param_limit_parse(str_from("40000"), &limit, &ei), &ei);
    CHECK(limit == 40000);
    CHECK(param_limit_parse(str_from("-1"), &limit, &ei) == ERR_INVALID);
    CHECK(strcmp(ei.message, "limit must be non-negative") == 0);
    errinfo_clear(&ei);
    CHECK(param_limit_parse(str_from("1.5"), &limit, &ei) == ERR_INVALID);
    CHECK(strcmp(ei.message, "strconv.Atoi: parsing \"1.5\": invalid syntax") == 0);
    errinfo_clear(&ei);
    CHECK(param_limit_parse(str_from("99999999999999999999"), &limit, &ei) == ERR_INVALID);
    CHECK(strstr(ei.message, "value out of range") != NULL);
    CHECK(param_limit_parse(str_from("-"), &limit, NULL) == ERR_INVALID);
}

static void test_unescape(void **state)
{
    static const struct {
        const char *text, *name;
    } cases[] = {
        {"plain", "plain"},
        {"U__", ""},
        {"U__dotted_2e_name", "dotted.name"},
        {"U__a__b", "a_b"},
        {"U___1F600_", "\xf0\x9f\x98\x80"},
        {"U___e9__2f_x", "\xc3\xa9/x"},
        {"U__bad_zz_", "U__bad_zz_"},
        {"U__open_2e", "U__open_2e"},
        {"U__end_", "U__end_"},
        {"U___d800_", "U___d800_"},
        {"U___1234567_", "U___1234567_"},
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_str(label_name_unescape(str_from(cases[i].text), &arena), cases[i].name);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),      cmocka_unit_test(test_form_errors),
        cmocka_unit_test(test_times),     cmocka_unit_test(test_no_times),
        cmocka_unit_test(test_durations), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_unescape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
