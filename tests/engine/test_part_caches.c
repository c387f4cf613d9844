/*
 * The page cache and the descriptor cache by themselves, and parts read by several threads through
 * caches that are far too small.
 */
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "engine/files/file_cache_internal.h"
#include "engine/files/page_cache_internal.h"
#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"

/* ---- pages ---- */

static struct page *enter(struct page_cache *c, uint64_t file, uint64_t offset, size_t size)
{
    struct errinfo ei = {0};
    struct page *p;

    CHECK_OK(page_new(c, file, offset, size, &p, &ei), &ei);
    memset(p->data, (int)(offset & 0xff), size);
    return page_cache_enter(c, p);
}

static void test_limit_holds(void **state)
{
    enum { LIMIT = 256 << 10, PAGES = 2000, SIZE = 1000 };
    struct page_cache_stats stats;
    struct budget memory;
    struct page_cache *c;
    struct errinfo ei = {0};

    (void)state;
    budget_init(&memory, "test", UINT64_MAX, NULL);
    CHECK_OK(page_cache_new(&memory, LIMIT, &c, &ei), &ei);
    for (uint64_t i = 0; i < PAGES; i++)
        page_release(enter(c, 1, i * 4096, SIZE));
    page_cache_stats_get(c, &stats);
    CHECK(stats.cached_bytes <= LIMIT && stats.cached_bytes > LIMIT / 2);
    CHECK(budget_used(&memory) == stats.cached_bytes);
    CHECK(stats.evictions > PAGES / 2);
    page_cache_free(c);
    CHECK(budget_used(&memory) == 0);
}

/* The pages used last stay; a page in use stays whatever happens. */
static void test_recent_pages_stay(void **state)
{
    enum { PAGES = 200, SIZE = 4000 };
    struct page_cache *c;
    struct errinfo ei = {0};
    struct page *pinned, *again;

    (void)state;
    CHECK_OK(page_cache_new(NULL, 1 << 20, &c, &ei), &ei);
    pinned = enter(c, 1, 0, SIZE);
    for (uint64_t i = 1; i < UINT64_C(20) * PAGES; i++) {
        struct page *hot = page_cache_find(c, 2, 7);

        CHECK(i == 1 || hot != NULL); /* asked for each time, so never the oldest */
        if (hot == NULL)
            hot = enter(c, 2, 7, SIZE);
        page_release(hot);
        page_release(enter(c, 1, i * 4096, SIZE));
    }
    again = page_cache_find(c, 1, 0);
    CHECK(again == pinned && pinned->data[SIZE - 1] == 0);
    page_release(again);
    page_release(pinned);
    CHECK(page_cache_find(c, 1, 4096) == NULL);
    page_cache_free(c);
}

/* However many pages there are, each is found, until its file is dropped. */
static void test_many_pages(void **state)
{
    enum { PAGES = 30000, SIZE = 40 };
    struct page_cache_stats stats;
    struct page_cache *c;
    struct errinfo ei = {0};

    (void)state;
    CHECK_OK(page_cache_new(NULL, 64 << 20, &c, &ei), &ei);
    for (uint64_t i = 0; i < PAGES; i++)
        page_release(enter(c, i % 3, i * 512, SIZE));
    page_cache_drop_file(c, 2);
    for (uint64_t i = 0; i < PAGES; i++) {
        struct page *page = page_cache_find(c, i % 3, i * 512);

        CHECK((page != NULL) == (i % 3 != 2));
        CHECK(page == NULL || (page->file == i % 3 && page->offset == i * 512));
        page_release(page);
    }
    page_cache_stats_get(c, &stats);
    CHECK(stats.hits == UINT64_C(2) * PAGES / 3 && stats.evictions == 0);
    page_cache_free(c);
}

/* Larger than the cache, or dropped while in use: good until it is released, then gone. */
static void test_pages_outside(void **state)
{
    struct page_cache_stats stats;
    struct budget memory;
    struct page_cache *c;
    struct errinfo ei = {0};
    struct page *large, *dropped;

    (void)state;
    budget_init(&memory, "test", UINT64_MAX, NULL);
    CHECK_OK(page_cache_new(&memory, 1 << 20, &c, &ei), &ei);
    large = enter(c, 1, 0, 1 << 20);
    CHECK(page_cache_find(c, 1, 0) == NULL && large->data[5] == 0);
    dropped = enter(c, 2, 3, 100);
    page_cache_drop_file(c, 2);
    CHECK(page_cache_find(c, 2, 3) == NULL && dropped->data[99] == 3);
    page_release(large);
    page_release(dropped);
    page_cache_stats_get(c, &stats);
    CHECK(stats.cached_bytes == 0 && budget_used(&memory) == 0);
    page_cache_free(c);
}

/* Where the budget is spent, idle pages make room before anything is refused. */
static void test_budget(void **state)
{
    struct budget memory;
    struct page_cache *c;
    struct errinfo ei = {0};
    struct page *p, *second;

    (void)state;
    budget_init(&memory, "test", 100000, NULL);
    CHECK_OK(page_cache_new(&memory, 16 << 20, &c, &ei), &ei);
    for (uint64_t i = 0; i < 50; i++)
        page_release(enter(c, 1, i, 10000));
    p = enter(c, 1, 1000, 90000);
    CHECK(page_new(c, 1, 2000, 90000, &second, &ei) == ERR_LIMIT);
    page_release(p);
    page_cache_free(c);
    CHECK(budget_used(&memory) == 0);
}

/* ---- descriptors ---- */

static void test_descriptors(void **state)
{
    enum { FILES = 20, LIMIT = 4 };
    struct cached_file files[FILES] = {{.path = NULL}};
    char paths[FILES][16];
    struct file_cache *c;
    struct fs *fs;
    struct errinfo ei = {0};
    struct file *f, *held;

    (void)state;
    CHECK_OK(fs_sim_new(1, &fs, &ei), &ei);
    CHECK_OK(file_cache_new(fs, LIMIT, &c, &ei), &ei);
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "f%d", i);
        files[i].path = paths[i];
        CHECK_OK(file_open(fs, paths[i], FILE_CREATE, &f, &ei), &ei);
        file_close(f);
    }
    CHECK_OK(file_cache_acquire(c, &files[0], &held, &ei), &ei);
    for (int i = 1; i < FILES; i++) {
        CHECK_OK(file_cache_acquire(c, &files[i], &f, &ei), &ei);
        CHECK(strcmp(file_path(f), paths[i]) == 0);
        file_cache_release(c, &files[i]);
        CHECK(file_cache_open_count(c) <= LIMIT);
    }
    CHECK(files[0].file == held);
    file_cache_release(c, &files[0]);
    CHECK_OK(fs_unlink(fs, "f1", &ei), &ei);
    CHECK(file_cache_acquire(c, &files[1], &f, NULL) == ERR_NOT_FOUND);
    for (int i = 0; i < FILES; i++)
        file_cache_drop(c, &files[i]);
    CHECK(file_cache_open_count(c) == 0);
    file_cache_free(c);
    fs_free(fs);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 6 };

struct reader {
    struct thread thread;
    struct part *part;
    const struct kit_model *model;
};

static void *read_run(void *arg)
{
    const struct reader *self = arg;

    for (int i = 0; i < ROUNDS; i++) {
        struct matcher m;
        struct errinfo ei = {0};
        struct arena arena;
        uint32_t *found;
        size_t count, wanted = 0;

        kit_check_all(self->part, self->model);
        arena_init(&arena, NULL);
        CHECK_OK(
            matcher_init(&m, MATCHER_REGEX, STR_LITERAL("a"), STR_LITERAL("x[0-9]+"), &arena, &ei),
            &ei);
        CHECK_OK(part_select(self->part, &m, 1, NULL, &arena, &found, &count, &ei), &ei);
        for (size_t k = 0; k < self->model->count; k++)
            wanted +=
                matcher_matches(&m, labels_get(&self->model->series[k].labels, STR_LITERAL("a")));
        CHECK(count == wanted);
        matcher_done(&m);
        arena_done(&arena);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct kit_shape shape = {
        .series_count = 600, .spread = 50, .samples_max = 20, .chunks_max = 2};
    struct test_random r = test_random_init(31);
    struct reader readers[THREADS];
    struct part_store_stats stats;
    struct kit_model m;
    struct kit_store k;
    struct part_info info;
    struct errinfo ei = {0};
    struct part *p;

    (void)state;
    kit_model_init(&m, &r, shape);
    kit_store_init(&k, 31, 160 << 10);
    CHECK_OK(kit_write(k.store, "", &m, 0, &info, &ei), &ei);
    CHECK_OK(part_open(k.store, "", &kit_key, &p, &ei), &ei);
    for (size_t i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.part = p, .model = &m};
        CHECK_OK(thread_start(&readers[i].thread, "reader", read_run, &readers[i], &ei), &ei);
    }
    for (size_t i = 0; i < THREADS; i++)
        thread_join(&readers[i].thread);
    part_store_stats_get(k.store, &stats);
    CHECK(stats.page_hits > 0 && stats.page_evictions > 0 && stats.open_descriptors == 2);
    part_close(p);
    kit_store_done(&k);
    kit_model_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_holds), cmocka_unit_test(test_recent_pages_stay),
        cmocka_unit_test(test_many_pages),  cmocka_unit_test(test_pages_outside),
        cmocka_unit_test(test_budget),      cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
