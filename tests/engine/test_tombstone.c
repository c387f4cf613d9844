/*
 * Lists of tombstones: successors, what they hit, and their bytes, good and bad.
 *
 * test_engine_tombstone --write DIR makes the fuzzer's inputs with filters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/delete/tombstone_internal.h"
#include "tests/engine/rule_kit.h"
#include "tests/engine/tombstone_kit.h"
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
    CHECK(tombstone_kit_hits(&list->items[0], &labels));
    CHECK(!tombstone_kit_hits(&list->items[1], &labels));
    CHECK(!tombstone_kit_hits(&list->items[2], &labels));
    items[1].value = STR_LITERAL("a");
    items[0].value = STR_LITERAL("z");
    CHECK(!tombstone_kit_hits(&list->items[0], &labels));
    CHECK(tombstone_kit_hits(&list->items[1], &labels));
    CHECK(tombstone_kit_hits(&list->items[2], &labels));

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

/* ---- filters ---- */

static struct relabel_config filter_of(enum relabel_action action, const struct str *sources,
                                       size_t source_count, const char *value)
{
    struct relabel_config c;

    relabel_config_init(&c);
    c.action = action;
    c.source_labels = sources;
    c.source_label_count = source_count;
    *(action == RELABEL_DROP || action == RELABEL_KEEP ? &c.regex : &c.target_label) =
        str_from(value);
    return c;
}

static struct tombstone_list *add_filter(struct tombstone_list *base,
                                         const struct relabel_config *c, uint64_t generation)
{
    struct tombstone_list *list = NULL;
    struct errinfo ei = {0};

    CHECK_OK(relabel_config_check(c, &ei), &ei);
    CHECK_OK(tombstone_list_add_filter(base, c, -5, 100, generation, &list, &ei), &ei);
    tombstone_list_unref(base);
    return list;
}

static const struct str host_and_job[] = {{"host", 4}, {"job", 3}};

/* Beside matchers, one of each kind. */
static struct tombstone_list *with_filters(void)
{
    struct relabel_config drop = filter_of(RELABEL_DROP, host_and_job, 2, "x-q[0-9]+|.*-a"),
                          keep = filter_of(RELABEL_KEEP, host_and_job, 1, "(x|y)"),
                          none = filter_of(RELABEL_DROP, NULL, 0, "|a"),
                          equal = filter_of(RELABEL_DROPEQUAL, host_and_job, 1, "job"),
                          differs = filter_of(RELABEL_KEEPEQUAL, host_and_job, 2, "both");
    struct tombstone_list *list = three();

    drop.separator = STR_LITERAL("-");
    none.separator = STR_LITERAL("");
    list = add_filter(list, &drop, 40);
    list = add_filter(list, &keep, 15);
    list = add_filter(list, &none, 50);
    list = add_filter(list, &equal, 60);
    return add_filter(list, &differs, 70);
}

static void test_what_filters_hit(void **state)
{
    static const struct {
        const char *host, *job, *both;
        const char *hit; /* of: keep (1), drop (4), no label (5), equal (6), differs (7) */
    } cases[] = {
        {"x", "q17", "", "457"}, {"x", "q17", "x;q17", "45"}, {"z", "a", "", "1457"},
        {"y", "y", "y", "567"},  {"", "", "", "1567"},        {"", "", ";", "156"},
        {"", "a", "", "1457"},   {"x", "q", "", "57"},        {"x;q", "17", "x;q;17", "15"},
        {"a", "", "a;", "15"},
    };
    struct tombstone_list *list = with_filters();

    (void)state;
    CHECK(list->count == 8 && tombstone_list_has_filters(list));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const values[] = {cases[i].both, cases[i].host, cases[i].job};
        static const char *const names[] = {"both", "host", "job"};
        static const size_t filters[] = {1, 4, 5, 6, 7};
        struct label items[3];
        struct labels labels = {0, items};

        for (size_t k = 0; k < 3; k++) {
            if (*values[k] != '\0')
                items[labels.count++] = (struct label){str_from(names[k]), str_from(values[k])};
        }
        for (size_t k = 0; k < sizeof filters / sizeof filters[0]; k++) {
            bool want = strchr(cases[i].hit, (int)('0' + filters[k])) != NULL;

            CHECK_MSG(tombstone_kit_hits(&list->items[filters[k]], &labels) == want,
                      "case %zu, filter %zu", i, filters[k]);
        }
    }
    tombstone_list_unref(list);
}

/* Random rules hit what relabelling drops, and what a plain reading of their fields says. */
static void test_filters_are_the_rules(void **state)
{
    struct test_random random = test_random_init(7);
    size_t hit_count = 0;

    (void)state;
    for (size_t round = 0; round < 1500; round++) {
        struct tombstone_list *list = NULL;
        struct relabel *rule = NULL;
        struct relabel_config c;
        struct errinfo ei = {0};
        struct arena arena;

        arena_init(&arena, NULL);
        c = rule_kit_filter(&random, &arena);
        CHECK_OK(relabel_compile(&c, &arena, &rule, &ei), &ei);
        CHECK_OK(tombstone_list_add_filter(NULL, &c, 0, 1, 1, &list, &ei), &ei);
        for (size_t i = 0; i < 20; i++) {
            struct labels labels = rule_kit_labels(&random, &arena);
            bool is_hit = tombstone_kit_hits(&list->items[0], &labels);
            struct relabel_set set;

            CHECK(relabel_set_begin(&set, &labels, &arena));
            CHECK(is_hit == !relabel_apply(rule, &set) && !set.failed);
            CHECK(is_hit == rule_kit_filter_drops(&c, &labels));
            hit_count += is_hit;
        }
        relabel_done(rule);
        tombstone_list_unref(list);
        arena_done(&arena);
    }
    CHECK(hit_count > 5000 && hit_count < 25000);
}

/* An arena that refuses is told from a series that is not hit. */
static void test_no_memory(void **state)
{
    struct tombstone_list *list = with_filters();
    struct label items[] = {{STR_LITERAL("host"), STR_LITERAL("x")},
                            {STR_LITERAL("job"), STR_LITERAL("q17")}};
    const struct labels labels = {2, items};
    struct budget budget;
    struct arena arena;
    bool is_hit = true;

    (void)state;
    budget_init(&budget, "test", 1, NULL);
    arena_init(&arena, &budget);
    CHECK(!tombstone_matches(&list->items[4], &labels, &arena, &is_hit));
    CHECK(tombstone_matches(&list->items[2], &labels, &arena, &is_hit)); /* by matchers */
    arena_done(&arena);
    tombstone_list_unref(list);
}

static void test_filters_refused(void **state)
{
    struct relabel_config c = filter_of(RELABEL_DROP, host_and_job, 2, "x");
    struct tombstone_list *list = NULL;
    struct errinfo ei = {0};

    (void)state;
    CHECK(tombstone_list_add_filter(NULL, &c, 2, 1, 1, &list, &ei) == ERR_INVALID);
    c.regex = STR_LITERAL("(");
    CHECK(tombstone_list_add_filter(NULL, &c, 1, 2, 1, &list, &ei) == ERR_INVALID);
    c = filter_of(RELABEL_LABELDROP, NULL, 0, "x");
    CHECK(tombstone_list_add_filter(NULL, &c, 1, 2, 1, &list, &ei) == ERR_INVALID);
    CHECK(list == NULL);
}

/* ---- bytes ---- */

static void check_same_filter(const struct relabel_config *a, const struct relabel_config *b)
{
    CHECK(a->action == b->action && a->source_label_count == b->source_label_count);
    CHECK(str_equal(a->separator, b->separator) && str_equal(a->regex, b->regex) &&
          str_equal(a->target_label, b->target_label));
    for (size_t i = 0; i < a->source_label_count; i++)
        CHECK(str_equal(a->source_labels[i], b->source_labels[i]));
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
        CHECK((x->filter == NULL) == (y->filter == NULL));
        if (x->filter != NULL)
            check_same_filter(relabel_config_of(x->filter), relabel_config_of(y->filter));
    }
}

/* Takes over the list. */
static void check_bytes(struct tombstone_list *list)
{
    bool has_filters = tombstone_list_has_filters(list);
    struct tombstone_list *again = NULL;
    struct errinfo ei = {0};
    struct byte_writer w;

    writer_init(&w);
    CHECK_OK(tombstone_list_encode(list, &w, &ei), &ei);
    CHECK_OK(tombstone_list_decode(w.data, w.size, has_filters, &again, &ei), &ei);
    check_same(list, again);
    tombstone_list_unref(again);
    CHECK(tombstone_list_decode(w.data, w.size, !has_filters, &again, NULL) == ERR_CORRUPT);
    for (size_t size = 0; size < w.size; size++) { /* cut anywhere, exactly so much memory */
        uint8_t *cut = malloc(size + 1);

        CHECK(cut != NULL);
        memcpy(cut, w.data, size);
        errinfo_clear(&ei);
        CHECK(tombstone_list_decode(cut, size, has_filters, &again, &ei) == ERR_CORRUPT);
        free(cut);
    }
    writer_u8(&w, 0);
    errinfo_clear(&ei);
    CHECK(tombstone_list_decode(w.data, w.size, has_filters, &again, &ei) == ERR_CORRUPT);
    writer_done(&w);
    tombstone_list_unref(list);
}

static void test_bytes(void **state)
{
    struct tombstone_list *again = three();
    struct errinfo ei = {0};
    struct byte_writer w;

    (void)state;
    check_bytes(again);
    check_bytes(with_filters());
    writer_init(&w);
    CHECK_OK(tombstone_list_encode(NULL, &w, &ei), &ei);
    CHECK_OK(tombstone_list_decode(w.data, w.size, false, &again, &ei), &ei);
    CHECK(again == NULL);
    CHECK(tombstone_list_decode(w.data, w.size, true, &again, &ei) == ERR_CORRUPT);
    writer_done(&w);
}

/* What is taken of damaged bytes is the same when it is written. */
static void test_damage(void **state)
{
    struct tombstone_list *list = with_filters(), *got;
    struct byte_writer w, again;
    struct errinfo ei = {0};
    size_t taken = 0;

    (void)state;
    writer_init(&w);
    writer_init(&again);
    CHECK_OK(tombstone_list_encode(list, &w, &ei), &ei);
    for (size_t bit = 0; bit < 8 * w.size; bit++) {
        enum err e;

        w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        got = NULL;
        e = tombstone_list_decode(w.data, w.size, true, &got, NULL);
        CHECK(e == ERR_OK || e == ERR_CORRUPT);
        if (e == ERR_OK) {
            writer_reset(&again);
            CHECK_OK(tombstone_list_encode(got, &again, &ei), &ei);
            CHECK(again.size == w.size && memcmp(again.data, w.data, w.size) == 0);
            tombstone_list_unref(got);
            taken++;
        }
        w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK(taken > 100);
    writer_done(&w);
    writer_done(&again);
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
        {4 + 24, 0, "everything"},
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
        CHECK(tombstone_list_decode(w.data, w.size, false, &again, &ei) == ERR_CORRUPT);
        CHECK_MSG(strstr(ei.message, cases[i].says) != NULL || i == 7, "%zu: %s", i, ei.message);
        writer_done(&w);
    }
    tombstone_list_unref(list);
}

/* The same of a filter: a drop by the labels a and bc, between "-", of what "x.y" matches. */
static void test_bad_filters(void **state)
{
    static const struct {
        size_t at;
        uint8_t byte;
        const char *says;
    } cases[] = {
        {32, 5, "unknown kind"},        {32, 0, "everything"},     {33 + 3, 1, "ends early"},
        {33, 3, "ends early"},          {37 + 2, 1, "ends early"}, {41 + 3, 1, "ends early"},
        {46, '(', "missing"},           {32, 3, "dropequal"}, /* which has no separator */
        {53, 0xff, "valid label name"}, {49, 2, "ends early"},
    };
    static const struct str names[] = {{"a", 1}, {"bc", 2}};
    struct relabel_config c = filter_of(RELABEL_DROP, names, 2, "x.y");
    struct tombstone_list *list, *again = NULL;
    struct byte_writer w;

    (void)state;
    c.separator = STR_LITERAL("-");
    list = add_filter(NULL, &c, 30);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct errinfo ei = {0};

        writer_init(&w);
        CHECK_OK(tombstone_list_encode(list, &w, &ei), &ei);
        CHECK(w.size == 60);
        w.data[cases[i].at] = cases[i].byte;
        CHECK_MSG(tombstone_list_decode(w.data, w.size, true, &again, &ei) == ERR_CORRUPT, "%zu",
                  i);
        CHECK_MSG(strstr(ei.message, cases[i].says) != NULL, "%zu: %s", i, ei.message);
        writer_done(&w);
    }
    tombstone_list_unref(list);
}

/* Takes over the list. */
static void input_write(const char *dir, const char *name, struct tombstone_list *list)
{
    struct errinfo ei = {0};
    struct byte_writer w;
    char path[4096];
    FILE *f;

    writer_init(&w);
    CHECK_OK(tombstone_list_encode(list, &w, &ei), &ei);
    CHECK(snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path);
    f = fopen(path, "wb");
    CHECK(f != NULL && fwrite(w.data, 1, w.size, f) == w.size && fclose(f) == 0);
    writer_done(&w);
    tombstone_list_unref(list);
}

static int inputs_write(const char *dir)
{
    struct relabel_config c = filter_of(RELABEL_KEEP, host_and_job, 2, "a.*;b");

    input_write(dir, "filters", with_filters());
    input_write(dir, "filter_keep", add_filter(NULL, &c, 9));
    c = filter_of(RELABEL_KEEPEQUAL, NULL, 0, "zone");
    input_write(dir, "filter_equal", add_filter(NULL, &c, 9));
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_ascend),
        cmocka_unit_test(test_what_they_hit),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_what_filters_hit),
        cmocka_unit_test(test_filters_are_the_rules),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_filters_refused),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_bad_fields),
        cmocka_unit_test(test_bad_filters),
    };

    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return inputs_write(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
