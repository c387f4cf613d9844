/*
 * Random trees print to a text that is read back as the same tree.
 */
#include <string.h>

#include "base/bytes.h"
#include "promql/functions.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/parser_kit.h"

/* A random expression of the wanted type; deeper levels get rarer. */
static void generate(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                     struct byte_writer *w, enum value_type type, int depth);

static const char *choose(struct test_random *r, const char *const *from, size_t count)
{
    return from[test_random_below(r, count)];
}
#define CHOOSE(r, ...)                                                                             \
    choose(r, (const char *const[]){__VA_ARGS__},                                                  \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void generate_shift(struct test_random *r, struct byte_writer *w)
{
    if (test_random_below(r, 4) == 0)
        writer_printf(w, "%s", CHOOSE(r, " @ 5", " @ start()", " @ end()", " @ -1.25"));
    if (test_random_below(r, 4) == 0)
        writer_printf(w, "%s", CHOOSE(r, " offset 5m", " offset -90", " OFFSET 1.5"));
}

static void generate_selector(struct test_random *r, struct byte_writer *w)
{
    writer_printf(w, "%s",
                  CHOOSE(r, "up", "sum", "a:b", "{\"x.y\",k='v'}", "m{a=\"1\",b!=\"\"}", "by{}",
                         "{z=~\"a|b\",__name__!~\"c.*\"}", "offset{\"o o\"=`\\`}"));
}

static void generate_scalar(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                            struct byte_writer *w, int depth)
{
    switch (test_random_below(r, depth > 0 ? 6 : 2)) {
    case 0:
        writer_printf(w, "%s", CHOOSE(r, "1", "-0.5", "Inf", "NaN", "5m", "0x1f", "1e-3", "017"));
        break;
    case 1:
        writer_printf(w, "%s", CHOOSE(r, "time()", "pi()"));
        break;
    case 2:
        writer_printf(w, "scalar(");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")");
        break;
    case 3:
        writer_printf(w, "(");
        generate(r, w, VALUE_SCALAR, depth - 1);
        writer_printf(w, ")");
        break;
    case 4:
        writer_printf(w, "%s", CHOOSE(r, "-", "+"));
        generate(r, w, VALUE_SCALAR, depth - 1);
        break;
    default:
        generate(r, w, VALUE_SCALAR, depth - 1);
        writer_printf(w, " %s ", CHOOSE(r, "+", "-", "*", "/", "%", "^", "atan2", "== bool"));
        generate(r, w, VALUE_SCALAR, depth - 1);
    }
}

static void generate_binary(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                            struct byte_writer *w, int depth)
{
    generate(r, w, VALUE_VECTOR, depth - 1);
    writer_printf(w, " ");
    switch (test_random_below(r, 3)) {
    case 0:
        writer_printf(w, "%s", CHOOSE(r, "and", "or on(a)", "unless ignoring(b, \"c d\")"));
        break;
    case 1:
        writer_printf(w, "%s", CHOOSE(r, "> bool", "<= on() group_left()", "!= bool on(a)"));
        break;
    default:
        writer_printf(w, "%s%s", CHOOSE(r, "+", "-", "*", "/", "%", "^", "atan2"),
                      CHOOSE(r, "", " on(a)", " ignoring(a) group_right(b,c)"));
    }
    writer_printf(w, " ");
    generate(r, w, VALUE_VECTOR, depth - 1);
}

static void generate_vector(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                            struct byte_writer *w, int depth)
{
    switch (test_random_below(r, depth > 0 ? 7 : 1)) {
    case 0:
        generate_selector(r, w);
        generate_shift(r, w);
        break;
    case 1:
        writer_printf(w, "%s(", CHOOSE(r, "rate", "avg_over_time", "changes", "absent_over_time"));
        generate(r, w, VALUE_MATRIX, depth - 1);
        writer_printf(w, ")");
        break;
    case 2:
        writer_printf(w, "%s(", CHOOSE(r, "sum", "min by(a)", "max without()", "avg by(\"b c\")"));
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")");
        break;
    case 3:
        writer_printf(w, "topk(");
        generate(r, w, VALUE_SCALAR, depth - 1);
        writer_printf(w, ",");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")%s", CHOOSE(r, "", " by (x)", " without (\"y.z\",)"));
        break;
    case 4:
        writer_printf(w, "(");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")");
        break;
    case 5:
        writer_printf(w, "-");
        generate(r, w, VALUE_VECTOR, depth - 1);
        break;
    default:
        generate_binary(r, w, depth);
    }
}

static void generate(struct test_random *r, // NOLINT(misc-no-recursion): bounded by depth
                     struct byte_writer *w, enum value_type type, int depth)
{
    if (type == VALUE_SCALAR) {
        generate_scalar(r, w, depth);
    } else if (type == VALUE_VECTOR) {
        generate_vector(r, w, depth);
    } else if (depth > 0 && test_random_below(r, 2) == 0) {
        writer_printf(w, "(");
        generate(r, w, VALUE_VECTOR, depth - 1);
        writer_printf(w, ")%s", CHOOSE(r, "[1h:]", "[90:1m]", "[1.5:0.5]"));
        generate_shift(r, w);
    } else {
        generate_selector(r, w);
        writer_printf(w, "%s", CHOOSE(r, "[5m]", "[300]", "[1h30m]", "[0.25]"));
        generate_shift(r, w);
    }
}

static void test_round_trip(void **state)
{
    struct test_random r = test_random_init(0x9a55e4);
    struct byte_writer w;
    size_t parsed_count = 0;

    (void)state;
    writer_init(&w);
    for (int i = 0; i < 4000; i++) {
        struct parsed first, second;
        char *once, *twice;

        writer_reset(&w);
        generate(&r, &w, test_random_below(&r, 5) == 0 ? VALUE_SCALAR : VALUE_VECTOR, 5);
        CHECK(!w.failed);
        parse(&first, (struct str){(char *)w.data, w.size}, &parse_stable);
        /* A sign or an operator in front of another expression may bind another way than it was
         * made, and then types may clash: that is the only error there can be. */
        if (first.e != ERR_OK) {
            CHECK_MSG(strstr(first.ei.message, "must use BOOL") != NULL ||
                          strstr(first.ei.message, "matching only allowed") != NULL ||
                          strstr(first.ei.message, "not allowed in binary scalar") != NULL,
                      "%.*s: %s", (int)w.size, (char *)w.data, first.ei.message);
            parsed_done(&first);
            continue;
        }
        parsed_count++;
        once = promql_node_format(first.expr->root, &first.arena);
        CHECK(once != NULL);
        parse(&second, str_from(once), &parse_stable);
        CHECK_MSG(second.e == ERR_OK, "%.*s printed as %s: %s", (int)w.size, (char *)w.data, once,
                  second.ei.message);
        twice = promql_node_format(second.expr->root, &second.arena);
        CHECK_MSG(twice != NULL && strcmp(once, twice) == 0, "%s printed as %s", once, twice);
        parsed_done(&second);
        parsed_done(&first);
    }
    CHECK_MSG(parsed_count > 3000, "%zu", parsed_count);
    writer_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
