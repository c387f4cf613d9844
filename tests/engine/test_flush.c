/*
 * Parts out of sealed and late files against a plain list; the order of slots; failing disks.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/engine/flush_kit.h"
#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define KEY(first_hour) merge_kit_key(first_hour, 2, 77)

static struct flush_window window_of(struct flush_kit *k, struct kit_store *store,
                                     const struct part_key *key)
{
    return (struct flush_window){.views = k->views,
                                 .view_count = k->view_count,
                                 .key = *key,
                                 .index = k->index,
                                 .lookup = flush_kit_lookup,
                                 .ctx = k,
                                 .store = store->store,
                                 .dir = "parts",
                                 .memory = &store->memory};
}

static void check_part(const struct flush_kit *k, struct kit_store *store,
                       const struct flush_window *f, const struct flush_window_result *result)
{
    struct merge_kit_list expected = {0}, got = {0};
    struct part_info info;
    struct part *part;
    struct errinfo ei = {0};

    flush_kit_expect(k, &f->key, f->tombstones, &expected);
    CHECK(result->is_written == (expected.count > 0));
    if (result->is_written) {
        CHECK_OK(part_verify(store->store, f->dir, &f->key, NULL, &info, &ei), &ei);
        CHECK_OK(part_open(store->store, f->dir, &f->key, &part, &ei), &ei);
        merge_kit_read(&k->merge, part, &got);
        part_close(part);
        merge_kit_check_equal(&expected, &got);
        CHECK(result->info.sample_count == expected.count);
    }
    merge_kit_list_done(&expected);
    merge_kit_list_done(&got);
}

static void random_run(uint64_t seed)
{
    struct test_random r = test_random_init(seed);
    struct kit_store store;
    struct flush_kit k;
    struct errinfo ei = {0};
    size_t files = 1 + test_random_below(&r, 4);

    kit_store_init(&store, seed, 1 << 20);
    CHECK_OK(fs_mkdir(store.fs, "parts", &ei), &ei);
    flush_kit_init(&k, &r, store.fs, 1 + test_random_below(&r, seed % 3 == 0 ? 60 : 300));
    k.merge.histogram_percent = seed % 3 == 0 ? 10 + (unsigned)test_random_below(&r, 91) : 0;
    for (size_t i = 0; i < files; i++)
        flush_kit_file(&k, test_random_below(&r, 3) == 0 ? SEALED_LATE : SEALED_RECENT,
                       2 * (int64_t)test_random_below(&r, 2), 1 + (int64_t)test_random_below(&r, 4),
                       1 + test_random_below(&r, 6));
    for (int64_t hour = 0; hour < 8; hour += 2) {
        struct part_key key = KEY(hour);
        struct flush_window f = window_of(&k, &store, &key);
        struct flush_window_result result;

        f.pass_bytes = test_random_below(&r, 2) == 0 ? 0 : 1 + test_random_below(&r, 50000);
        CHECK_OK(flush_window_write(&f, &result, &ei), &ei);
        check_part(&k, &store, &f, &result);
    }
    flush_kit_done(&k);
    kit_store_done(&store);
}

static void test_random_files(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        random_run(seed);
}

static void test_order_of_slots(void **state)
{
    struct test_random r = test_random_init(3);

    (void)state;
    for (size_t round = 0; round < 50; round++) {
        struct flush_kit k;
        struct errinfo ei = {0};
        struct budget memory;
        uint32_t *slots;

        flush_kit_init(&k, &r, NULL, 1 + test_random_below(&r, 1000));
        slots = calloc(k.merge.series_count, sizeof *slots);
        CHECK(slots != NULL);
        for (size_t i = 0, at = 0; i < k.slot_end; i++) {
            if (k.number_of[i] != 0)
                slots[at++] = (uint32_t)i;
        }
        budget_init(&memory, "test", UINT64_MAX, NULL);
        CHECK_OK(flush_order_slots(k.index, slots, k.merge.series_count, &memory, NULL, &ei), &ei);
        for (size_t i = 0; i < k.merge.series_count; i++)
            CHECK(slots[i] == k.series[i].slot);
        CHECK(budget_used(&memory) == 0);
        free(slots);
        flush_kit_done(&k);
    }
}

/* More labels than fit into the sorted words. */
static void test_order_of_wide_label_sets(void **state)
{
    enum { SERIES = 400, NAMES = 60 };
    struct test_random r = test_random_init(4);
    struct label items[NAMES];
    struct labels sets[SERIES];
    uint32_t slots[SERIES];
    int values[NAMES];
    struct errinfo ei = {0};
    struct arena arena;
    struct index *ix;

    (void)state;
    arena_init(&arena, NULL);
    CHECK_OK(index_new(NULL, &ix, &ei), &ei);
    for (uint32_t i = 0; i < SERIES; i++) {
        /* Half of them differ from the one before in the last names only. */
        bool resembles = i > 0 && test_random_below(&r, 2) == 0;
        struct labels l = {0, items};

        for (size_t n = 0; n < NAMES; n++) {
            bool is_new = !resembles || n >= NAMES - 4;

            if (is_new)
                values[n] = (int)test_random_below(&r, 300) - 2;
            if (values[n] >= 0)
                items[l.count++] = (struct label){str_from(arena_printf(&arena, "name%02zu", n)),
                                                  str_from(arena_printf(&arena, "%d", values[n]))};
        }
        sets[i] = (struct labels){l.count, NULL};
        sets[i].items = memcpy(arena_alloc(&arena, sizeof items), items, sizeof items);
        CHECK_OK(index_add(ix, i, &sets[i], &ei), &ei);
        slots[i] = i;
    }
    CHECK_OK(flush_order_slots(ix, slots, SERIES, NULL, NULL, &ei), &ei);
    for (size_t i = 1; i < SERIES; i++)
        CHECK(part_labels_compare(&sets[slots[i - 1]], &sets[slots[i]]) <= 0);
    index_free(ix);
    arena_done(&arena);
}

/* ---- tombstones ---- */

static void tombstone_add(struct tombstone_list **list, const char *name, const char *value,
                          int64_t first_minute, int64_t minutes, uint64_t generation)
{
    struct tombstone_list *grown = NULL;
    struct errinfo ei = {0};
    struct matcher m;
    struct arena arena;
    int64_t begin = MERGE_KIT_START + first_minute * 60000;

    arena_init(&arena, NULL);
    CHECK_OK(matcher_init(&m, MATCHER_REGEX, str_from(name), str_from(value), &arena, &ei), &ei);
    CHECK_OK(
        tombstone_list_add(*list, &m, 1, begin, begin + minutes * 60000, generation, &grown, &ei),
        &ei);
    matcher_done(&m);
    arena_done(&arena);
    tombstone_list_unref(*list);
    *list = grown;
}

static void test_tombstones(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct test_random r = test_random_init(seed);
        struct tombstone_list *list = NULL;
        struct part_key key = KEY(0);
        struct kit_store store;
        struct flush_kit k;
        struct flush_window f;
        struct flush_window_result result;
        struct merge_kit_list without = {0}, with = {0};
        struct errinfo ei = {0};

        kit_store_init(&store, seed, 1 << 20);
        CHECK_OK(fs_mkdir(store.fs, "parts", &ei), &ei);
        flush_kit_init(&k, &r, store.fs, 100);
        k.merge.histogram_percent = seed % 2 == 0 ? 60 : 0;
        for (size_t i = 0; i < 3; i++)
            flush_kit_file(&k, i == 1 ? SEALED_LATE : SEALED_RECENT, 0, 2, 4);
        /* Between the generations of the files, of one whole series and of parts of many. */
        tombstone_add(&list, "__name__", ".*", 0, 30, k.sources[1].generation);
        tombstone_add(&list, "__name__", ".*[a-m].*", 60, 90, k.sources[1].generation + 1);
        tombstone_add(&list, "__name__", ".+", 0, (int64_t)test_random_below(&r, 200),
                      k.sources[2].generation);
        /* Out of the middle of chunks. */
        for (int64_t minute = 32; minute < 120; minute += 4)
            tombstone_add(&list, "__name__", ".*", minute, 1, k.sources[2].generation + 1);
        f = window_of(&k, &store, &key);
        f.tombstones = list;
        flush_kit_expect(&k, &key, NULL, &without);
        flush_kit_expect(&k, &key, list, &with);
        CHECK(with.count < without.count && with.count > 0);
        CHECK_OK(flush_window_write(&f, &result, &ei), &ei);
        check_part(&k, &store, &f, &result);
        merge_kit_list_done(&without);
        merge_kit_list_done(&with);
        tombstone_list_unref(list);
        flush_kit_done(&k);
        kit_store_done(&store);
    }
}

/* ---- failures ---- */

static enum err count_name(void *ctx, const char *name, struct errinfo *ei)
{
    (void)name;
    (void)ei;
    ++*(size_t *)ctx;
    return ERR_OK;
}

static size_t files_in(struct fs *fs, const char *dir)
{
    struct errinfo ei = {0};
    size_t count = 0;

    CHECK_OK(fs_list(fs, dir, count_name, &count, &ei), &ei);
    return count;
}

struct fixture {
    struct test_random random;
    struct kit_store store;
    struct flush_kit kit;
    struct part_key key;
};

static void fixture_init(struct fixture *x, uint64_t seed)
{
    struct errinfo ei = {0};

    x->random = test_random_init(seed);
    x->key = KEY(0);
    kit_store_init(&x->store, seed, 1 << 20);
    CHECK_OK(fs_mkdir(x->store.fs, "parts", &ei), &ei);
    CHECK_OK(fs_sync_dir(x->store.fs, ".", &ei), &ei);
    flush_kit_init(&x->kit, &x->random, x->store.fs, 60);
    x->kit.merge.histogram_percent = 20;
    flush_kit_file(&x->kit, SEALED_RECENT, 0, 2, 3);
    flush_kit_file(&x->kit, SEALED_LATE, 0, 4, 2);
}

static void fixture_done(struct fixture *x)
{
    flush_kit_done(&x->kit);
    kit_store_done(&x->store);
}

static void check_after_crash(struct fixture *x, size_t mode, uint64_t op)
{
    struct fs *after = test_fs_after_crash(x->store.fs, &test_crash_modes[mode], op);
    struct kit_store store = {.fs = after};
    struct flush_window f = window_of(&x->kit, &store, &x->key);
    struct flush_window_result result = {.is_written = true};
    struct part_store_options o = {.fs = after, .memory = &store.memory, .descriptor_count = 2};
    struct errinfo ei = {0};

    budget_init(&store.memory, "test", UINT64_MAX, NULL);
    CHECK_OK(part_store_new(&o, &store.store, &ei), &ei);
    f.dir = "parts";
    CHECK_OK(part_verify(store.store, f.dir, &f.key, NULL, &result.info, &ei), &ei);
    check_part(&x->kit, &store, &f, &result);
    part_store_free(store.store);
    fs_free(after);
}

/* What was said to be written is there after any crash; what was not leaves nothing where the disk
 * still takes orders. */
static void fail_everywhere(enum fs_sim_fault fault)
{
    bool hit = true;

    for (uint64_t op = 0; hit; op++) {
        struct flush_window_result result;
        struct flush_window f;
        struct fixture x;
        enum err e;

        fixture_init(&x, 7);
        f = window_of(&x.kit, &x.store, &x.key);
        fs_sim_set_fault(x.store.fs, fault, fs_sim_op_count(x.store.fs) + op);
        e = flush_window_write(&f, &result, NULL);
        hit = fs_sim_fault_hit(x.store.fs);
        fs_sim_clear_fault(x.store.fs);
        if (e == ERR_OK) {
            CHECK(!hit && result.is_written);
            for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++)
                check_after_crash(&x, m, op);
        } else {
            CHECK(hit && e == ERR_IO);
            CHECK(fault == FS_SIM_FAULT_CRASH || files_in(x.store.fs, "parts") == 0);
        }
        fixture_done(&x);
    }
}

static void test_power_loss_at_every_operation(void **state)
{
    (void)state;
    fail_everywhere(FS_SIM_FAULT_CRASH);
}

static void test_error_at_every_operation(void **state)
{
    (void)state;
    fail_everywhere(FS_SIM_FAULT_EIO);
}

static void test_any_limit_of_memory(void **state)
{
    enum err e = ERR_LIMIT;

    (void)state;
    for (uint64_t limit = 1000; e != ERR_OK; limit += limit / 50) {
        struct flush_window_result result;
        struct flush_window f;
        struct fixture x;
        struct errinfo ei = {0};

        fixture_init(&x, 8);
        f = window_of(&x.kit, &x.store, &x.key);
        x.store.memory.limit_bytes = limit;
        e = flush_window_write(&f, &result, &ei);
        CHECK_MSG(e == ERR_OK || e == ERR_LIMIT, "%s", ei.message);
        CHECK(e == ERR_OK || files_in(x.store.fs, "parts") == 0);
        x.store.memory.limit_bytes = UINT64_MAX;
        if (e == ERR_OK)
            check_part(&x.kit, &x.store, &f, &result);
        fixture_done(&x);
    }
}

struct stopper {
    _Atomic bool stop;
    size_t left;
};

static void stop_later(void *ctx)
{
    struct stopper *s = ctx;

    if (s->left-- == 0)
        atomic_store(&s->stop, true);
}

static void test_stop_at_any_time(void **state)
{
    enum err e = ERR_CANCELED;

    (void)state;
    for (size_t ticks = 0; e != ERR_OK; ticks++) {
        struct stopper s = {.left = ticks};
        struct maintain_control control = {&s.stop, stop_later, &s};
        struct flush_window_result result;
        struct flush_window f;
        struct fixture x;

        fixture_init(&x, 9);
        f = window_of(&x.kit, &x.store, &x.key);
        f.control = &control;
        f.pass_bytes = 10000;
        e = flush_window_write(&f, &result, NULL);
        CHECK(e == ERR_OK || (e == ERR_CANCELED && files_in(x.store.fs, "parts") == 0));
        fixture_done(&x);
    }
}

/* The right part, or an error that names the file. */
static void test_damaged_files(void **state)
{
    size_t refused = 0;

    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        struct flush_window_result result;
        struct flush_window f;
        struct fixture x;
        const char *path;
        struct errinfo ei = {0};
        const struct sealed_slice *slice;
        enum err e;

        fixture_init(&x, 10);
        path = sealed_file_path(x.kit.sources[round % 2].file);
        slice = x.kit.views[round % 2].slices[0];
        CHECK_OK(fs_sim_flip_bit(x.store.fs, path,
                                 8 * slice->offset + (round * UINT64_C(0x9e3779b97f4a7c15) >> 8) %
                                                         (8 * slice->size),
                                 &ei),
                 &ei);
        f = window_of(&x.kit, &x.store, &x.key);
        e = flush_window_write(&f, &result, &ei);
        if (e == ERR_OK)
            check_part(&x.kit, &x.store, &f, &result);
        else
            CHECK_MSG(e == ERR_CORRUPT && strstr(ei.message, path) != NULL, "%s", ei.message);
        refused += e != ERR_OK;
        fixture_done(&x);
    }
    CHECK(refused > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_files),
        cmocka_unit_test(test_order_of_slots),
        cmocka_unit_test(test_order_of_wide_label_sets),
        cmocka_unit_test(test_tombstones),
        cmocka_unit_test(test_power_loss_at_every_operation),
        cmocka_unit_test(test_error_at_every_operation),
        cmocka_unit_test(test_any_limit_of_memory),
        cmocka_unit_test(test_stop_at_any_time),
        cmocka_unit_test(test_damaged_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
