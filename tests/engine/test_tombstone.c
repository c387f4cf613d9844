/*
 * Lists of tombstones: successors, what they hit, and their bytes, good and bad.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/tombstone_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static struct tombstone_list *add(struct tombstone_list *base, enum matcher_kind kind,
                                  const char *name, const char *value, int64_t min, int64_t max,
                                  uint64_t generation)
{
    struct tombstone_list *list;
    struct errinfo ei = {0};
    struct matcher m[2];
    struct arena arena;

    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m[0], kind, str_from(name), str_from(value), &arena, &ei), &ei);
    CHECK_OK(
        matcher_init(&m[1], MATCHER_NOT_EQUAL, STR_LITERAL("never"), STR_LITERAL("x"), &arena, &ei),
        &ei);
    CHECK_OK(tombstone_list_add(base, m, 2, min, max, generation, &list, &ei), &ei);
    matcher_done(&m[0]);
    matcher_done(&m[1]);
    arena_done(&arena); /* the list keeps copies */
    tombstone_list_unref(base);
    return list;
}

static struct tombstone_list *three(void)
{
    struct tombstone_list *list = add(NULL, MATCHER_EQUAL, "job", "a", 0, 100, 30);

    list = add(list, MATCHER_REGEX, "job", "a.+z|q[0-9]*", 50, INT64_MAX, 10);
    return add(list, MATCHER_NOT_REGEX, "host", "(x|y)", INT64_MIN, 20, 20);
}

static void test_lists_ascend(void **state)
{
    struct tombstone_list *list = three();

    (void)state;
    CHECK(list->count == 3);
    CHECK(list->items[0].generation == 10 && list->items[1].generation == 20 &&
          list->items[2].generation == 30);
    tombstone_list_unref(list);
    CHECK(tombstone_list_ref(NULL) == NULL);
    tombstone_list_unref(NULL);
}

static void test_what_they_hit(void **state)
{
    struct tombstone_list *list = three();
    struct label items[] = {{STR_LITERAL("host"), STR_LITERAL("x")},
                            {STR_LITERAL("job"), STR_LITERAL("q17")}};
    struct labels labels = {2, items};

    (void)state;
    CHECK(tombstone_matches(&list->items[0], &labels));
    CHECK(!tombstone_matches(&list->items[1], &labels));
    CHECK(!tombstone_matches(&list->items[2], &labels));
    items[1].value = STR_LITERAL("a");
    items[0].value = STR_LITERAL("z");
    CHECK(!tombstone_matches(&list->items[0], &labels));
    CHECK(tombstone_matches(&list->items[1], &labels));
    CHECK(tombstone_matches(&list->items[2], &labels));

    CHECK(tombstone_list_concerns(list, 0, 200, 300));   /* the first */
    CHECK(!tombstone_list_concerns(list, 10, 200, 300)); /* not below its generation */
    CHECK(tombstone_list_concerns(list, 29, 100, 300));
    CHECK(!tombstone_list_concerns(list, 29, 101, 300));
    CHECK(!tombstone_list_concerns(list, 30, INT64_MIN, INT64_MAX));
    CHECK(tombstone_list_concerns(list, 15, INT64_MIN, -7));
    CHECK(!tombstone_list_concerns(NULL, 0, INT64_MIN, INT64_MAX));
    tombstone_list_unref(list);
}

static void test_keep(void **state)
{
    struct tombstone_list *list = three(), *less;
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(tombstone_list_keep(list, (bool[]){true, false, true}, &less, &ei), &ei);
    tombstone_list_unref(list); /* what stays does not need it */
    CHECK(less->count == 2 && less->items[1].generation == 30);
    CHECK(str_equal(less->items[0].matchers[0].value, STR_LITERAL("a.+z|q[0-9]*")));
    list = less;
    CHECK_OK(tombstone_list_keep(list, (bool[]){false, false}, &less, &ei), &ei);
    CHECK(less == NULL);
    tombstone_list_unref(list);
}

static void test_refused(void **state)
{
    struct tombstone_list *list = NULL;
    struct errinfo ei = {0};
    struct arena arena;
    struct matcher m;

    (void)state;
    arena_init(&arena, NULL);
    CHECK(tombstone_list_add(NULL, NULL, 0, 0, 1, 1, &list, &ei) == ERR_INVALID);
    errinfo_clear(&ei);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, STR_LITERAL("a"), STR_LITERAL("b"), &arena, &ei), &ei);
    CHECK(tombstone_list_add(NULL, &m, 1, 2, 1, 1, &list, &ei) == ERR_INVALID);
    CHECK(list == NULL);
    matcher_done(&m);
    arena_done(&arena);
}

static void check_same(const struct tombstone_list *a, const struct tombstone_list *b)
{
    CHECK(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct tombstone *x = &a->items[i], *y = &b->items[i];

        CHECK(x->min_time_ms == y->min_time_ms && x->max_time_ms == y->max_time_ms &&
              x->generation == y->generation && x->matcher_count == y->matcher_count);
        for (size_t k = 0; k < x->matcher_count; k++) {
            CHECK(x->matchers[k].kind == y->matchers[k].kind);
            CHECK(str_equal(x->matchers[k].name, y->matchers[k].name));
            CHECK(str_equal(x->matchers[k].value, y->matchers[k].value));
        }
    }
}

static void test_bytes(void **state)
{
    struct tombstone_list *list = three(), *again = NULL;
    struct errinfo ei = {0};
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    CHECK_OK(tombstone_list_encode(list, &w, &ei), &ei);
    CHECK_OK(tombstone_list_decode(w.data, w.size, &again, &ei), &ei);
    check_same(list, again);
    tombstone_list_unref(again);
    for (size_t size = 0; size < w.size; size++) { /* cut anywhere, exactly so much memory */
        uint8_t *cut = malloc(size + 1);

        CHECK(cut != NULL);
        memcpy(cut, w.data, size);
        errinfo_clear(&ei);
        CHECK(tombstone_list_decode(cut, size, &again, &ei) == ERR_CORRUPT);
        free(cut);
    }
    writer_u8(&w, 0);
    errinfo_clear(&ei);
    CHECK(tombstone_list_decode(w.data, w.size, &again, &ei) == ERR_CORRUPT);
    writer_reset(&w);
    again = list;
    CHECK_OK(tombstone_list_encode(NULL, &w, &ei), &ei);
    CHECK_OK(tombstone_list_decode(w.data, w.size, &again, &ei), &ei);
    CHECK(again == NULL);
    writer_done(&w);
    tombstone_list_unref(list);
}

/* Each field that cannot be, in an otherwise good list of one. */
static void test_bad_fields(void **state)
{
    static const struct {
        size_t at;
        uint8_t byte;
        const char *says;
    } cases[] = {
        {0, 0xff, "number"},
        {0, 2, "early"},
        {4 + 7, 0x7f, "range"}, /* min above max */
        {4 + 24, 0, "range"},
        {4 + 27, 1, "early"},
        {4 + 28, 4, "unknown kind"},
        {4 + 28 + 1 + 3, 1, "early"},
        {4 + 28 + 9 + 1, '(', "regex"},
    };
    struct tombstone_list *list = add(NULL, MATCHER_REGEX, "j", "a[0-9]b", 0, 100, 30), *again;
    struct byte_writer w;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct errinfo ei = {0};

        writer_init(&w);
        CHECK_OK(tombstone_list_encode(list, &w, &ei), &ei);
        w.data[cases[i].at] = cases[i].byte;
        CHECK(tombstone_list_decode(w.data, w.size, &again, &ei) == ERR_CORRUPT);
        CHECK_MSG(strstr(ei.message, cases[i].says) != NULL || i == 7, "%zu: %s", i, ei.message);
        writer_done(&w);
    }
    tombstone_list_unref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_ascend), cmocka_unit_test(test_what_they_hit),
        cmocka_unit_test(test_keep),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_bad_fields),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
