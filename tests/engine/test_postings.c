/*
 * Posting lists against a sorted array, through all three forms and in any order of addition.
 */
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#include "engine/index/postings_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { LIST_MAX = 20000 };

struct model {
    uint32_t slots[LIST_MAX];
    size_t count;
};

static bool model_add(struct model *m, uint32_t slot)
{
    size_t i = m->count;

    while (i > 0 && m->slots[i - 1] > slot)
        i--;
    if (i > 0 && m->slots[i - 1] == slot)
        return false;
    memmove(m->slots + i + 1, m->slots + i, (m->count - i) * sizeof *m->slots);
    m->slots[i] = slot;
    m->count++;
    return true;
}

static int compare_slots(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Reads it whole in pieces of `max`. */
static void check_read(const struct postings *p, const struct model *m, size_t max)
{
    uint32_t piece[64];
    uint32_t from = 0;
    size_t seen = 0;
    size_t n;

    CHECK(p->count == m->count);
    while ((n = postings_read(p, from, piece, max)) > 0) {
        CHECK(n <= max && seen + n <= m->count);
        CHECK(memcmp(piece, m->slots + seen, n * sizeof *piece) == 0);
        seen += n;
        if (piece[n - 1] == UINT32_MAX)
            break;
        from = piece[n - 1] + 1;
    }
    CHECK(seen == m->count);
}

static void check_combined(struct test_random *r, const struct postings *p, const struct model *m)
{
    enum { OPERATIONS = 3 };
    roaring_bitmap_t *got[OPERATIONS];
    roaring_bitmap_t *want[OPERATIONS];

    for (int op = 0; op < OPERATIONS; op++) {
        got[op] = roaring_bitmap_create();
        want[op] = roaring_bitmap_create();
        for (int i = 0; i < 100; i++) {
            /* Half of the other operand's slots are in the list. */
            uint32_t slot = m->count == 0 || i % 2 == 0 ? (uint32_t)test_random_below(r, 300000)
                                                        : m->slots[test_random_below(r, m->count)];
            bool held = bsearch(&slot, m->slots, m->count, sizeof slot, compare_slots) != NULL;

            roaring_bitmap_add(got[op], slot);
            if (op == 0 || held == (op == 1))
                roaring_bitmap_add(want[op], slot);
        }
    }
    for (size_t i = 0; i < m->count; i++)
        roaring_bitmap_add(want[0], m->slots[i]);
    postings_or_into(p, got[0]);
    postings_and_into(p, got[1]);
    postings_andnot_into(p, got[2]);
    for (int op = 0; op < OPERATIONS; op++) {
        CHECK(roaring_bitmap_equals(got[op], want[op]));
        roaring_bitmap_free(got[op]);
        roaring_bitmap_free(want[op]);
    }
}

/* What malloc holds for the bitmap, as CRoaring itself counts it, must be what was accounted for,
 * but for the directory and rounding. */
static void check_memory(const struct postings *p)
{
    roaring_statistics_t stats;
    uint64_t contents;

    if (p->form != POSTINGS_BITMAP)
        return;
    roaring_bitmap_statistics(p->bitmap, &stats);
    contents = stats.n_bytes_array_containers + stats.n_bytes_bitset_containers;
    CHECK(p->size * UINT64_C(16) >= contents);
    CHECK(p->size * UINT64_C(16) <= contents * 2 + 256 + stats.n_containers * UINT64_C(64));
}

static void check_list(struct test_random *r, size_t count, bool ascending, uint64_t gap)
{
    struct index_memory memory = {0};
    struct postings_pool pool;
    struct postings p = {0};
    struct model *m = calloc(1, sizeof *m);
    uint32_t slot = 0;

    CHECK(m != NULL);
    postings_pool_init(&pool, &memory);
    for (size_t i = 0; i < count; i++) {
        slot = ascending ? slot + 1 + (uint32_t)test_random_below(r, gap)
                         : (uint32_t)test_random_below(r, 2 * gap * count);
        if (!model_add(m, slot))
            continue;
        CHECK(postings_reserve(&pool, &p, NULL) == ERR_OK);
        postings_add(&pool, &p, slot);
        check_memory(&p);
    }
    check_read(&p, m, 1 + test_random_below(r, 64));
    check_combined(r, &p, m);
    postings_done(&p);
    postings_pool_done(&pool);
    free(m);
}

static void lists_equal_the_model(void **state)
{
    struct test_random r = test_random_init(31);

    (void)state;
    for (int round = 0; round < 400; round++) {
        size_t count = test_random_below(&r, 200);

        check_list(&r, count, round % 2 == 0, UINT64_C(1) << test_random_below(&r, 16));
    }
    for (int round = 0; round < 8; round++)
        check_list(&r, LIST_MAX, round % 2 == 0, UINT64_C(1) << round);
}

static void forms_follow_the_count(void **state)
{
    struct index_memory memory = {0};
    struct postings_pool pool;
    struct postings p = {0};

    (void)state;
    postings_pool_init(&pool, &memory);
    for (uint32_t i = 0; i < 200; i++) {
        CHECK(postings_reserve(&pool, &p, NULL) == ERR_OK);
        postings_add(&pool, &p, i);
        CHECK(p.form == (i < 2 ? POSTINGS_INLINE : i < 64 ? POSTINGS_ARRAY : POSTINGS_BITMAP));
    }
    postings_done(&p);
    postings_pool_done(&pool);
}

/* Arrays that a list has outgrown serve the next lists. */
static void outgrown_arrays_are_reused(void **state)
{
    struct index_memory memory = {0};
    struct postings_pool pool;
    uint64_t first_bytes = 0;

    (void)state;
    postings_pool_init(&pool, &memory);
    for (int list = 0; list < 1000; list++) {
        struct postings p = {0};

        for (uint32_t i = 0; i < 65; i++) {
            CHECK(postings_reserve(&pool, &p, NULL) == ERR_OK);
            postings_add(&pool, &p, i);
        }
        postings_done(&p);
        if (list == 0)
            first_bytes = memory.charged_bytes;
    }
    CHECK(memory.charged_bytes == first_bytes);
    postings_pool_done(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_equal_the_model),
        cmocka_unit_test(forms_follow_the_count),
        cmocka_unit_test(outgrown_arrays_are_reused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
