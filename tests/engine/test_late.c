/* The late buffer against a plain list, and the list of readers. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/memtable/late_internal.h"
#include "engine/read/readers_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { TWIN_MAX = 20000 };

struct twin_sample {
    uint32_t slot;
    uint16_t generation;
    int64_t t_ms;
    uint64_t bits;
};

/* Everything that was stored, unsorted. */
struct twin {
    struct twin_sample *items;
    size_t count;
};

static enum late_outcome twin_add(struct twin *w, struct twin_sample x)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct twin_sample *y = &w->items[i];

        if (y->slot == x.slot && y->generation == x.generation && y->t_ms == x.t_ms)
            return y->bits == x.bits ? LATE_REPEAT : LATE_DUPLICATE;
    }
    CHECK(w->count < TWIN_MAX);
    w->items[w->count++] = x;
    return LATE_STORED;
}

static int compare_times(const void *a, const void *b)
{
    const struct twin_sample *x = a, *y = b;

    return x->t_ms < y->t_ms ? -1 : x->t_ms > y->t_ms;
}

/* The twin's samples of a series in [min, max], by time. */
static size_t twin_read(const struct twin *w, uint32_t slot, uint16_t generation, int64_t min_ms,
                        int64_t max_ms, struct twin_sample *out)
{
    size_t count = 0;

    for (size_t i = 0; i < w->count; i++) {
        const struct twin_sample *x = &w->items[i];

        if (x->slot == slot && x->generation == generation && x->t_ms >= min_ms &&
            x->t_ms <= max_ms)
            out[count++] = *x;
    }
    qsort(out, count, sizeof *out, compare_times);
    return count;
}

static void check_series(const struct late_buffer *b, const struct twin *w, uint32_t slot,
                         uint16_t generation, int64_t min_ms, int64_t max_ms)
{
    struct twin_sample *wanted = calloc(TWIN_MAX, sizeof *wanted);
    struct arena arena;
    struct column got;
    size_t count;

    CHECK(wanted != NULL);
    arena_init(&arena, NULL);
    count = twin_read(w, slot, generation, min_ms, max_ms, wanted);
    CHECK(late_buffer_read(b, slot, generation, min_ms, max_ms, &arena, &got));
    CHECK_MSG(got.count == count, "slot %u: %zu samples, not %zu", slot, got.count, count);
    for (size_t i = 0; i < count; i++) {
        CHECK(got.t_ms[i] == wanted[i].t_ms);
        CHECK(double_bits(got.value[i]) == wanted[i].bits);
    }
    arena_done(&arena);
    free(wanted);
}

static void check_figures(const struct late_buffer *b, const struct twin *w)
{
    int64_t min_ms = INT64_MAX, max_ms = INT64_MIN;

    CHECK(b->sample_count == w->count);
    for (size_t i = 0; i < w->count; i++) {
        min_ms = w->items[i].t_ms < min_ms ? w->items[i].t_ms : min_ms;
        max_ms = w->items[i].t_ms > max_ms ? w->items[i].t_ms : max_ms;
    }
    CHECK(b->min_time_ms == min_ms && b->max_time_ms == max_ms);
}

static void check_list(const struct late_buffer *b)
{
    const struct late_series **list =
        calloc(b->series_count + 1, sizeof(const struct late_series *));
    uint64_t samples = 0;

    CHECK(list != NULL);
    late_buffer_list(b, list);
    for (size_t i = 0; i < b->series_count; i++) {
        samples += list[i]->count;
        CHECK(list[i]->count > 0);
        if (i > 0)
            CHECK(list[i - 1]->slot < list[i]->slot ||
                  (list[i - 1]->slot == list[i]->slot &&
                   list[i - 1]->generation < list[i]->generation));
    }
    CHECK(samples == b->sample_count);
    free(list);
}

static struct twin_sample random_sample(struct test_random *r, uint32_t slots)
{
    struct twin_sample x = {.slot = (uint32_t)test_random_below(r, slots) * 3};

    if (test_random_below(r, 50) == 0)
        x.slot = LATE_SLOT_NONE - 1;
    x.generation = (uint16_t)(test_random_below(r, 8) == 0);
    x.t_ms = (int64_t)test_random_below(r, 300) - 100;
    x.bits = test_random_below(r, 3) == 0 ? 0x7ff0000000000002U : test_random_below(r, 2);
    return x;
}

static void test_random_twin(void **state)
{
    struct test_random r = test_random_init(8);
    struct twin w = {.items = calloc(TWIN_MAX, sizeof *w.items)};

    (void)state;
    CHECK(w.items != NULL);
    for (int round = 0; round < 30; round++) {
        struct budget memory;
        struct late_buffer b;
        uint32_t slots = 1 + (uint32_t)test_random_below(&r, 400);
        bool counted[4] = {false};

        budget_init(&memory, "test", UINT64_MAX, NULL);
        late_buffer_init(&b, &memory);
        w.count = 0;
        for (int i = 0; i < 3000; i++) {
            struct twin_sample x = random_sample(&r, slots);
            enum late_outcome got =
                late_buffer_add(&b, x.slot, x.generation, x.t_ms, double_from_bits(x.bits));

            counted[got] = true;
            CHECK(got == twin_add(&w, x));
        }
        CHECK(counted[LATE_STORED] && counted[LATE_REPEAT] && counted[LATE_DUPLICATE]);
        CHECK(budget_used(&memory) == b.memory_bytes);
        check_figures(&b, &w);
        check_list(&b);
        for (int i = 0; i < 40; i++) {
            struct twin_sample x = random_sample(&r, slots);
            int64_t width = (int64_t)test_random_below(&r, 100);

            check_series(&b, &w, x.slot, x.generation, x.t_ms, x.t_ms + width);
            check_series(&b, &w, x.slot, x.generation, INT64_MIN, INT64_MAX);
        }
        late_buffer_done(&b);
        CHECK(budget_used(&memory) == 0 && b.sample_count == 0);
    }
    free(w.items);
}

static void test_move(void **state)
{
    struct late_buffer late, frozen;

    (void)state;
    late_buffer_init(&late, NULL);
    late_buffer_init(&frozen, NULL);
    CHECK(late_buffer_find(&late, 1, 0) == NULL);
    CHECK(late_buffer_add(&late, 1, 0, 5, 1.0) == LATE_STORED);
    late_buffer_move(&late, &frozen);
    CHECK(late_buffer_find(&late, 1, 0) == NULL && late.sample_count == 0);
    CHECK(late.min_time_ms == INT64_MAX);
    CHECK(late_series_judge(late_buffer_find(&frozen, 1, 0), 5, 1.0) == LATE_REPEAT);
    CHECK(late_series_judge(late_buffer_find(&frozen, 1, 0), 6, 1.0) == LATE_STORED);
    CHECK(late_buffer_add(&late, 1, 0, 5, 2.0) == LATE_STORED);
    late_buffer_done(&frozen);
    late_buffer_done(&late);
}

/* A refused sample changes nothing, and no budget is too small to be exact. */
static void test_memory_refused(void **state)
{
    bool stored = false;

    (void)state;
    for (size_t limit = 0; limit < 32768; limit += 128) {
        struct budget memory;
        struct late_buffer b;
        uint64_t count = 0;

        budget_init(&memory, "test", limit, NULL);
        late_buffer_init(&b, &memory);
        for (uint32_t i = 0; i < 200; i++) {
            uint64_t before = budget_used(&memory);
            enum late_outcome got = late_buffer_add(&b, i % 40, 0, i, 1.0);

            CHECK(got == LATE_STORED || got == LATE_NO_MEMORY);
            if (got == LATE_NO_MEMORY)
                CHECK(budget_used(&memory) >= before);
            count += got == LATE_STORED;
            CHECK(b.sample_count == count && b.memory_bytes == budget_used(&memory));
        }
        check_list(&b);
        stored |= count == 200;
        late_buffer_done(&b);
        CHECK(budget_used(&memory) == 0);
    }
    CHECK(stored);
}

static void test_readers(void **state)
{
    struct reader_registry r;
    struct reader a, b, c;
    uint64_t before, between, after;

    (void)state;
    readers_init(&r);
    before = readers_stamp(&r);
    CHECK(readers_passed(&r, before));
    readers_enter(&r, &a);
    CHECK(readers_passed(&r, before)); /* it came later */
    between = readers_stamp(&r);
    CHECK(!readers_passed(&r, between));
    readers_enter(&r, &b);
    readers_enter(&r, &c);
    after = readers_stamp(&r);
    readers_leave(&r, &b); /* out of the middle */
    CHECK(!readers_passed(&r, between) && !readers_passed(&r, after));
    readers_leave(&r, &a);
    CHECK(readers_passed(&r, between) && !readers_passed(&r, after));
    readers_enter(&r, &a);
    readers_leave(&r, &c);
    CHECK(readers_passed(&r, after));
    readers_leave(&r, &a);
    readers_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_twin),
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_memory_refused),
        cmocka_unit_test(test_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
