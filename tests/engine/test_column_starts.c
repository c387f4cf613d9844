/* Start timestamps out of stored columns: floats that stand among histograms become floats. */
#include "engine/histogram.h"
#include "engine/read/column_merge_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { COUNT = 4 };

static const int64_t times[COUNT] = {1, 2, 3, 4};
static const double values[COUNT] = {10, 20, 30, 40};

static struct column column_of(const struct histogram *const *h)
{
    static const int64_t garbage[COUNT];

    /* Whoever makes columns need not think of start timestamps. */
    return (struct column){COUNT, times, values, h, garbage};
}

static void nothing_is_made_where_nothing_is(void **state)
{
    const struct histogram plain = {.sum = 20};
    const struct histogram *const h[COUNT] = {NULL, &plain, NULL, NULL};
    struct column floats = column_of(NULL), both = column_of(h);
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    CHECK(column_take_starts(&floats, &arena));
    CHECK(floats.start_ms == NULL && floats.histogram == NULL && floats.count == COUNT);
    CHECK(column_take_starts(&both, &arena));
    CHECK(both.start_ms == NULL && both.histogram == h);
    arena_done(&arena);
}

static void floats_come_out(void **state)
{
    const struct histogram counted = {.schema = HISTOGRAM_SCHEMA_FLOAT, .sum = 20, .start_ms = -7};
    const struct histogram since = {.sum = 30, .start_ms = 5}, plain = {.sum = 40};
    const struct histogram *const h[COUNT] = {NULL, &counted, &since, &plain};
    const struct histogram *const only[COUNT] = {NULL, &counted, &counted, NULL};
    struct column c = column_of(h);
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    CHECK(column_take_starts(&c, &arena));
    CHECK(c.t_ms == times && c.value == values);
    CHECK(c.start_ms[0] == 0 && c.start_ms[1] == -7 && c.start_ms[2] == 5 && c.start_ms[3] == 0);
    CHECK(c.histogram[0] == NULL && c.histogram[1] == NULL && c.histogram[2] == &since &&
          c.histogram[3] == &plain);
    c = column_of(only);
    CHECK(column_take_starts(&c, &arena));
    CHECK(c.histogram == NULL && c.start_ms[1] == -7 && c.start_ms[3] == 0);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_made_where_nothing_is),
        cmocka_unit_test(floats_come_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
