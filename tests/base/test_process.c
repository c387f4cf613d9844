/* What the allocator keeps of memory that was freed: nobody is charged for it. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define ALLOCATOR_IS_REPLACED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOCATOR_IS_REPLACED
#endif

enum { BLOCKS = 4096, BLOCK_BYTES_MIN = 1 << 10, BLOCK_BYTES_MAX = 20 << 10 };

struct blocks {
    void *items[BLOCKS];
    struct test_random rng;
};

/* Replaces each `step`th block, if there is one, by another of a size by chance: the new one first,
 * as the index of a shard is made anew. */
static void blocks_replace(struct blocks *b, size_t step)
{
    for (size_t i = 0; i < BLOCKS; i += step) {
        size_t size = BLOCK_BYTES_MIN +
                      test_random_below(&b->rng, BLOCK_BYTES_MAX - (uint64_t)BLOCK_BYTES_MIN);
        void *fresh = malloc(size);

        CHECK(fresh != NULL);
        memset(fresh, 1, size);
        free(b->items[i]);
        b->items[i] = fresh;
    }
}

static void *blocks_fill(void *arg)
{
    blocks_replace(arg, 1);
    return NULL;
}

static void skip_unless_glibc(void)
{
#ifdef ALLOCATOR_IS_REPLACED
    skip();
#endif
}

/* What one thread has allocated and another frees serves the next allocation, whosever it is. */
static void test_freed_memory_serves_all_threads(void **state)
{
    struct thread thread = {0};
    struct errinfo ei = {0};
    struct mallinfo2 info;
    struct blocks *b;

    (void)state;
    skip_unless_glibc();
    b = calloc(1, sizeof *b);
    CHECK(b != NULL);
    b->rng = test_random_init(7);
    CHECK_OK(thread_start(&thread, "blocks", blocks_fill, b, &ei), &ei);
    thread_join(&thread);
    for (int round = 0; round < 4; round++)
        blocks_replace(b, 2);
    info = mallinfo2();
    /* With a heap for each thread every second block of one would be a hole. */
    CHECK(info.uordblks > (size_t)BLOCKS * BLOCK_BYTES_MAX / 4);
    CHECK(info.fordblks < info.uordblks / 3);
    for (size_t i = 0; i < BLOCKS; i++)
        free(b->items[i]);
    free(b);
}

/* The places that segments of hash tables leave behind when they grow. */
static void test_large_blocks_go_back(void **state)
{
    enum { LARGE_BYTES = 40 << 10, SMALL_BYTES = 2 << 10, PAIRS = 500 };
    static void *large[PAIRS], *small[PAIRS];
    size_t free_before;

    (void)state;
    skip_unless_glibc();
    process_memory_trim();
    free_before = mallinfo2().fordblks;
    for (size_t i = 0; i < PAIRS; i++) {
        large[i] = malloc(LARGE_BYTES);
        small[i] = malloc(SMALL_BYTES);
        CHECK(large[i] != NULL && small[i] != NULL);
    }
    for (size_t i = 0; i < PAIRS; i++)
        free(large[i]);
    CHECK(mallinfo2().fordblks < free_before + (size_t)PAIRS * LARGE_BYTES / 10);
    for (size_t i = 0; i < PAIRS; i++)
        free(small[i]);
}

static void test_usage_is_that_of_the_process(void **state)
{
    enum { BYTES = 16 << 20 };
    struct process_usage before = process_usage_get(0), after;
    volatile char *memory = malloc(BYTES); /* else the compiler sees that nobody reads it */

    (void)state;
    CHECK(memory != NULL);
    for (size_t i = 0; i < BYTES; i += 4096)
        memory[i] = 1;
    after = process_usage_get(0);
    CHECK(after.resident_bytes >= before.resident_bytes + BYTES / 2);
    CHECK(after.virtual_bytes >= after.resident_bytes);
    CHECK(after.open_fd_count > 0);
    free((void *)memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_blocks_go_back), /* on a heap that has no holes yet */
        cmocka_unit_test(test_freed_memory_serves_all_threads),
        cmocka_unit_test(test_usage_is_that_of_the_process),
    };

    process_memory_setup(); /* as the server does, before there are threads */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
