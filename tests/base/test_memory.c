/* Budgets and arenas: limits, marks, growth; nothing is charged twice or forgotten. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/arena_blocks_internal.h"
#include "base/budget.h"
#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static void test_budget_tree(void **state)
{
    struct budget root, a, b;
    struct errinfo ei = {0};

    (void)state;
    budget_init(&root, "all memory", 100, NULL);
    budget_init(&a, "queries", 80, &root);
    budget_init(&b, "ingest", UINT64_MAX, &root);
    CHECK_OK(budget_charge(&a, 60, &ei), &ei);
    CHECK(budget_charge(&a, 21, &ei) == ERR_LIMIT); /* its own limit */
    CHECK(strstr(ei.message, "queries") != NULL && budget_refusing(&a, &ei) == &a);
    CHECK(budget_used(&a) == 60 && budget_used(&root) == 60);
    errinfo_clear(&ei);
    CHECK(budget_charge(&b, 41, &ei) == ERR_LIMIT); /* the parent's */
    CHECK(strstr(ei.message, "all memory") != NULL && budget_refusing(&b, &ei) == &root);
    errinfo_prefix(&ei, "a query");
    CHECK(budget_refusing(&b, &ei) == &root && budget_refusing(&a, &ei) == &root);
    errinfo_clear(&ei);
    CHECK(errinfo_set(&ei, ERR_LIMIT, 0, "too many steps") == ERR_LIMIT);
    CHECK(budget_refusing(&b, &ei) == NULL);
    errinfo_clear(&ei);
    CHECK(errinfo_set(&ei, ERR_IO, 0, "all memory") == ERR_IO && budget_refusing(&b, &ei) == NULL);
    CHECK(budget_used(&b) == 0 && budget_used(&root) == 60);
    CHECK(budget_charge(&b, SIZE_MAX, NULL) == ERR_LIMIT);
    CHECK(budget_used(&b) == 0);
    CHECK(budget_charge(&b, 40, NULL) == ERR_OK && budget_charge(&b, 0, NULL) == ERR_OK);
    budget_force(&a, 500);
    CHECK(budget_used(&root) == 600 && atomic_load(&root.peak_bytes) == 600);
    CHECK(budget_charge(&a, 1, NULL) == ERR_LIMIT); /* above the limit already */
    budget_release(&a, 560);
    budget_release(&b, 40);
    CHECK(budget_used(&root) == 0 && budget_used(&a) == 0 && budget_used(&b) == 0);
    CHECK(atomic_load(&a.peak_bytes) == 560);
}

enum { THREAD_COUNT = 4, CHARGES = 20000 };

static void *charge_often(void *arg)
{
    struct budget *b = arg;
    uint64_t held = 0;

    for (int i = 0; i < CHARGES; i++) {
        if (budget_charge(b, 7, NULL) == ERR_OK)
            held += 7;
        CHECK(budget_used(b) <= 50);
        if (held >= 14) {
            budget_release(b, held);
            held = 0;
        }
    }
    budget_release(b, held);
    return NULL;
}

static void test_budget_under_threads(void **state)
{
    struct budget root, child;
    struct thread threads[THREAD_COUNT];
    struct errinfo ei = {0};

    (void)state;
    budget_init(&root, "root", UINT64_MAX, NULL);
    budget_init(&child, "child", 50, &root);
    for (int i = 0; i < THREAD_COUNT; i++)
        CHECK_OK(thread_start(&threads[i], "budget", charge_often, &child, &ei), &ei);
    for (int i = 0; i < THREAD_COUNT; i++)
        thread_join(&threads[i]);
    CHECK(budget_used(&child) == 0 && budget_used(&root) == 0);
    CHECK(atomic_load(&child.peak_bytes) <= 50 && atomic_load(&child.peak_bytes) >= 7);
}

/* Random allocations, each filled with its own pattern, between marks; all patterns survive what
 * comes after them. */
enum { PIECES_MAX = 400, MARKS_MAX = 20 };

struct piece {
    uint8_t *data;
    size_t size;
    uint8_t pattern;
};

static void check_pieces(const struct piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < pieces[i].size; k++)
            CHECK(pieces[i].data[k] == pieces[i].pattern);
}

static size_t random_size(struct test_random *r)
{
    return test_random_below(r, test_random_below(r, 20) == 0 ? 100000 : 200);
}

static void test_arena_random(void **state)
{
    struct test_random r = test_random_init(0xa2e4a);
    struct budget b;
    struct arena a;
    struct piece pieces[PIECES_MAX];
    struct {
        struct arena_mark mark;
        size_t piece_count;
    } marks[MARKS_MAX];

    (void)state;
    budget_init(&b, "arena", UINT64_MAX, NULL);
    arena_init(&a, &b);
    for (int round = 0; round < 30; round++) {
        size_t count = 0, mark_count = 0;

        for (int step = 0; step < 300; step++) {
            uint64_t what = test_random_below(&r, 20);

            if (what == 0 && mark_count < MARKS_MAX) {
                marks[mark_count].mark = arena_mark_get(&a);
                marks[mark_count++].piece_count = count;
            } else if (what == 1 && mark_count > 0) {
                mark_count = test_random_below(&r, mark_count); /* skips some, too */
                arena_mark_return(&a, marks[mark_count].mark);
                count = marks[mark_count].piece_count;
            } else if (count < PIECES_MAX) {
                struct piece *p = &pieces[count++];

                p->size = random_size(&r);
                p->pattern = (uint8_t)test_random_u64(&r);
                p->data = arena_alloc(&a, p->size);
                CHECK(p->data != NULL && (uintptr_t)p->data % 16 == 0);
                memset(p->data, p->pattern, p->size);
            }
            CHECK(budget_used(&b) == a.used_bytes);
        }
        check_pieces(pieces, count);
        if (round % 2 == 0)
            arena_reset(&a);
        else
            arena_done(&a);
        CHECK(a.used_bytes <= 1 << 20 && budget_used(&b) == a.used_bytes);
    }
    arena_done(&a);
    CHECK(budget_used(&b) == 0);
}

static void test_arena_limits(void **state)
{
    struct budget b;
    struct arena a;
    struct errinfo ei = {0};

    (void)state;
    budget_init(&b, "query memory", 10000, NULL);
    arena_init(&a, &b);
    CHECK(arena_alloc(&a, 3000) != NULL);
    CHECK(arena_alloc(&a, 9000) == NULL);
    CHECK(arena_error(&a, &ei) == ERR_LIMIT && strstr(ei.message, "query memory") != NULL);
    CHECK(budget_used(&b) == a.used_bytes);
    CHECK(arena_alloc(&a, 500) != NULL); /* what there is room for still works */
    CHECK(arena_alloc_array(&a, SIZE_MAX / 2, 3) == NULL && arena_error(&a, NULL) == ERR_LIMIT);
    CHECK(arena_calloc(&a, SIZE_MAX, SIZE_MAX) == NULL);
    CHECK(arena_alloc(&a, SIZE_MAX) == NULL && arena_alloc(&a, SIZE_MAX - 20) == NULL);
    CHECK(arena_memdup0(&a, "", SIZE_MAX) == NULL);
    arena_done(&a);
    budget_init(&b, "query memory", 20000, NULL);
    arena_init(&a, &b);
    CHECK(arena_alloc(&a, 3000) != NULL && arena_alloc(&a, 25000) == NULL);
    CHECK(arena_alloc(&a, 4000) != NULL && a.used_bytes > 7000); /* another block */
    CHECK(arena_error(&a, NULL) == ERR_LIMIT);                   /* still of what was refused */
    arena_done(&a);
    arena_init(&a, NULL);
    CHECK(arena_alloc(&a, SIZE_MAX - 100) == NULL && arena_error(&a, NULL) != ERR_OK);
    arena_done(&a);
    arena_done(&a); /* harmless */
}

static void test_arena_helpers(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, NULL);
    void *first = arena_alloc(&a, 0), *second = arena_alloc(&a, 0);
    CHECK(first != NULL && second != NULL && first != second);
    memset(arena_alloc(&a, 64), 0xff, 64);
    struct arena_mark mark = arena_mark_get(&a);
    memset(arena_alloc(&a, 64), 0xff, 64);
    arena_mark_return(&a, mark);
    const uint8_t *zeros = arena_calloc(&a, 8, 8);
    for (int i = 0; i < 64; i++)
        CHECK(zeros[i] == 0);
    CHECK(strcmp(arena_memdup0(&a, "abcdef", 3), "abc") == 0);
    CHECK(strcmp(arena_memdup0(&a, NULL, 0), "") == 0);
    CHECK(strcmp(arena_printf(&a, "%s-%d", "x", 7), "x-7") == 0);
    arena_done(&a);
}

static void test_arena_grows_arrays(void **state)
{
    struct arena a;
    size_t capacity = 0;
    uint32_t *array = NULL;

    (void)state;
    arena_init(&a, NULL);
    for (uint32_t i = 0; i < 100000; i++) {
        if (i == capacity) {
            size_t bigger = capacity == 0 ? 3 : capacity + capacity / 2;

            array = arena_grow_array(&a, array, capacity, bigger, sizeof *array);
            CHECK(array != NULL);
            capacity = bigger;
            if (i % 7 == 0)
                CHECK(arena_alloc(&a, 1) != NULL); /* in the way: the next growth copies */
        }
        array[i] = i;
    }
    for (uint32_t i = 0; i < 100000; i++)
        CHECK(array[i] == i);
    uint32_t *small = arena_grow_array(&a, NULL, 0, 4, sizeof *small);
    CHECK(arena_grow_array(&a, small, 4, 100, sizeof *small) == small); /* the newest: in place */
    CHECK(arena_grow_array(&a, small, 100, SIZE_MAX / 2, sizeof *small) == NULL);
    arena_done(&a);
}

enum { BLOCK_THREADS = 4, BLOCK_ROUNDS = 400 };

/* Fills arenas to random sizes and looks whether anybody else wrote there. */
static void *blocks_run(void *arg)
{
    struct test_random rng = test_random_init(*(const uint64_t *)arg);

    for (int round = 0; round < BLOCK_ROUNDS; round++) {
        uint64_t *runs[8];
        size_t counts[8];
        struct arena a;

        arena_init(&a, NULL);
        for (size_t i = 0; i < 8; i++) {
            counts[i] = test_random_below(&rng, 60000) + 1;
            runs[i] = ARENA_ARRAY(&a, counts[i], uint64_t);
            CHECK(runs[i] != NULL);
            for (size_t k = 0; k < counts[i]; k++)
                runs[i][k] = (uint64_t)(uintptr_t)&a + i;
        }
        if (round % 16 == 0)
            arena_spare_release();
        for (size_t i = 0; i < 8; i++) {
            for (size_t k = 0; k < counts[i]; k++)
                CHECK(runs[i][k] == (uint64_t)(uintptr_t)&a + i);
        }
        arena_done(&a);
    }
    return NULL;
}

static void test_blocks_are_nobody_elses(void **state)
{
    struct thread threads[BLOCK_THREADS] = {0};
    uint64_t seeds[BLOCK_THREADS];
    struct errinfo ei = {0};

    (void)state;
    for (uint32_t i = 0; i < BLOCK_THREADS; i++) {
        seeds[i] = i + 1;
        CHECK_OK(thread_start(&threads[i], "blocks", blocks_run, &seeds[i], &ei), &ei);
    }
    for (uint32_t i = 0; i < BLOCK_THREADS; i++)
        thread_join(&threads[i]);
    arena_spare_release();
    arena_spare_release(); /* what nobody needed since the last call: all of it */
}

/* Such an arena takes kept blocks, and leaves none. */
static void test_arena_gives_back(void **state)
{
    enum { BLOCK = 1 << 20 };
    struct arena keeping, giving;
    void *first, *second;

    (void)state;
    arena_spare_release();
    arena_spare_release();
    arena_init(&giving, NULL);
    giving.gives_back = true;
    for (int i = 0; i < 8; i++)
        CHECK(arena_alloc(&giving, BLOCK / 2) != NULL);
    arena_done(&giving);
    CHECK(arena_spare_bytes() == 0);
    arena_init(&keeping, NULL);
    first = arena_alloc(&keeping, BLOCK / 2);
    CHECK(first != NULL);
    arena_done(&keeping);
    CHECK(arena_spare_bytes() <= 2 * (size_t)BLOCK);
    arena_init(&giving, NULL);
    giving.gives_back = true;
    second = arena_alloc(&giving, BLOCK / 2);
    CHECK(second != NULL);
    arena_done(&giving);
    CHECK(arena_spare_bytes() == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_tree),
        cmocka_unit_test(test_budget_under_threads),
        cmocka_unit_test(test_arena_random),
        cmocka_unit_test(test_arena_limits),
        cmocka_unit_test(test_arena_helpers),
        cmocka_unit_test(test_arena_grows_arrays),
        cmocka_unit_test(test_blocks_are_nobody_elses),
        cmocka_unit_test(test_arena_gives_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
