/* Options of verbs: every kind of value, what is refused, operands. */
#include <stddef.h>

#include "tests/lib/test_cmocka.h"
#include "tools/options_internal.h"

struct values {
    bool flag;
    const char *text;
    struct tool_texts texts;
    uint64_t whole;
    double number;
    int64_t time_ms;
    int choice;
    int operands;
};

enum { ARGS_MAX = 200 };

/* Parses `args` (up to NULL) for a verb that takes one or two operands. */
static int parse(struct values *v, const char *const *args)
{
    const struct tool_option options[] = {
        {.name = "flag", .flag = &v->flag},
        {.name = "text", .text = &v->text},
        {.name = "texts", .texts = &v->texts},
        {.name = "whole", .whole = &v->whole, .low = 2, .high = 1e15},
        {.name = "number", .number = &v->number, .low = -1, .high = 0.5},
        {.name = "time", .time_ms = &v->time_ms},
        {.name = "choice", .choice = &v->choice, .choices = {"a", "b"}},
    };
    const struct tool_command command = {"usage\n", options, sizeof options / sizeof options[0], 1,
                                         2};
    char *argv[ARGS_MAX + 2] = {(char *)"rimtool test"};
    int argc = 1;

    for (; *args != NULL; args++)
        argv[argc++] = (char *)*args;
    *v = (struct values){.text = "default", .whole = 7, .choice = -1};
    return tool_options_parse(&command, argc, argv, &v->operands);
}

#define PARSE(v, ...) parse((v), (const char *const[]){__VA_ARGS__, NULL})

static void test_takes_every_kind(void **state)
{
    struct values v;

    (void)state;
    assert_int_equal(PARSE(&v, "--flag", "--text", "x", "--texts=p", "--texts", "q", "--whole",
                           "1000000000000000", "--number", "-1", "--time", "1970-01-01T00:00:01Z",
                           "--choice", "b", "file"),
                     -1);
    assert_true(v.flag);
    assert_string_equal(v.text, "x");
    assert_int_equal(v.texts.count, 2);
    assert_string_equal(v.texts.items[1], "q");
    assert_int_equal(v.whole, 1000000000000000);
    assert_true(v.number == -1);
    assert_int_equal(v.time_ms, 1000);
    assert_int_equal(v.choice, 1);
    assert_int_equal(v.operands, 15);
}

static void test_keeps_what_is_not_named(void **state)
{
    struct values v;

    (void)state;
    assert_int_equal(PARSE(&v, "file"), -1);
    assert_false(v.flag);
    assert_string_equal(v.text, "default");
    assert_int_equal(v.whole, 7);
    assert_int_equal(v.choice, -1);
}

static void test_options_may_stand_behind_operands(void **state)
{
    struct values v;

    (void)state;
    assert_int_equal(PARSE(&v, "one", "--flag", "two"), -1);
    assert_true(v.flag);
    assert_int_equal(v.operands, 2);
    assert_int_equal(PARSE(&v, "--", "--flag"), -1);
    assert_false(v.flag);
}

static void test_refuses_values_that_make_no_sense(void **state)
{
    static const char *const bad[][2] = {
        {"--whole", "1"},        {"--whole", "1000000000000001"},
        {"--whole", ""},         {"--whole", "3x"},
        {"--whole", "-3"},       {"--whole", " 3"},
        {"--number", "0.51"},    {"--number", "nan"},
        {"--number", ""},        {"--number", "0.1s"},
        {"--time", "yesterday"}, {"--choice", "c"},
        {"--choice", ""},        {"--unknown", "x"},
    };
    struct values v;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(PARSE(&v, bad[i][0], bad[i][1], "file"), 2);
    assert_int_equal(PARSE(&v, "file", "--text"), 2);
    assert_int_equal(PARSE(&v, "--flag=yes", "file"), 2);
}

static void test_counts_operands_and_repeats(void **state)
{
    const char *args[ARGS_MAX] = {NULL};
    struct values v;
    size_t n = 0;

    (void)state;
    assert_int_equal(PARSE(&v, "--flag"), 2);
    assert_int_equal(PARSE(&v, "a", "b", "c"), 2);
    assert_int_equal(PARSE(&v, "--help", "--whole", "x"), 0);
    args[n++] = "file";
    for (int i = 0; i < TOOL_TEXTS_MAX; i++)
        args[n++] = "--texts=x";
    assert_int_equal(parse(&v, args), -1);
    args[n++] = "--texts=x";
    assert_int_equal(parse(&v, args), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_every_kind),
        cmocka_unit_test(test_keeps_what_is_not_named),
        cmocka_unit_test(test_options_may_stand_behind_operands),
        cmocka_unit_test(test_refuses_values_that_make_no_sense),
        cmocka_unit_test(test_counts_operands_and_repeats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
