/*
 * What is merged next, and whether it may be: rules one by one, then random lists against the
 * order in which readers would see the samples.
 */
#include <stdlib.h>
#include <string.h>

#include "compactor/plan.h"
#include "tests/compactor/merge_kit.h"
#include "tests/lib/test_cmocka.h"

enum { PARTS_MAX = 64 };

static const uint64_t day_ms = UINT64_C(24) * 3600 * 1000;

struct scene {
    struct plan_part parts[PARTS_MAX];
    size_t count;
    struct plan_options options;
    struct arena arena;
    struct plan plan;
};

static void scene_init(struct scene *s)
{
    memset(s, 0, sizeof *s);
    s->options.retention_ms = 15 * day_ms;
    s->options.closed_until_ms = MERGE_KIT_START + 1000 * MERGE_KIT_HOUR;
    arena_init(&s->arena, NULL);
}

static void add(struct scene *s, int64_t first_hour, int64_t hours, uint64_t generation,
                uint64_t megabytes)
{
    CHECK(s->count < PARTS_MAX);
    s->parts[s->count++] = (struct plan_part){.key = merge_kit_key(first_hour, hours, generation),
                                              .size_bytes = megabytes << 20};
}

static enum plan_reason plan(struct scene *s)
{
    struct errinfo ei = {0};

    CHECK_OK(plan_next(s->parts, s->count, &s->options, &s->arena, &s->plan, &ei), &ei);
    return s->plan.reason;
}

static bool chose(const struct scene *s, const char *pattern)
{
    CHECK(strlen(pattern) == s->count);
    for (size_t i = 0; i < s->count; i++) {
        if (s->plan.chosen[i] != (pattern[i] == 'x'))
            return false;
    }
    return true;
}

/* MERGE_KIT_START is a border of 8 h; the day before it began this many hours earlier. */
static int64_t day_offset(void)
{
    return MERGE_KIT_START % (int64_t)day_ms / MERGE_KIT_HOUR;
}

static void test_window_max(void **state)
{
    (void)state;
    CHECK(plan_window_max_ms(15 * day_ms) == day_ms);
    CHECK(plan_window_max_ms(10 * day_ms) == day_ms);
    CHECK(plan_window_max_ms(10 * day_ms - 10) == day_ms / 3);
    CHECK(plan_window_max_ms(365 * day_ms) == 27 * day_ms);
    CHECK(plan_window_max_ms(3600000) == day_ms / 12);
    CHECK(plan_window_max_ms(0) == 27 * day_ms);
}

static void test_nothing(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    CHECK(plan(&s) == PLAN_NOTHING);
    add(&s, 0, 2, 1, 50);
    CHECK(plan(&s) == PLAN_NOTHING && s.plan.chosen == NULL);
    add(&s, 100, 2, 2, 50);
    CHECK(plan(&s) == PLAN_NOTHING);
    arena_done(&s.arena);
}

static void test_four_windows(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    s.options.retention_ms = 4 * day_ms;
    for (int64_t i = 3; i >= 0; i--)
        add(&s, 2 * i, 2, 1 + (uint64_t)i, 50);
    add(&s, 8, 2, 5, 50);
    CHECK(plan(&s) == PLAN_WINDOW && chose(&s, "xxxx."));
    CHECK(s.plan.key.window_start_ms == MERGE_KIT_START && s.plan.key.generation == 4 &&
          s.plan.key.window_size_ms == day_ms / 3 && s.plan.chosen_count == 4);
    /* The last of the four is not flushed: more is to come. */
    s.options.closed_until_ms = MERGE_KIT_START + 8 * MERGE_KIT_HOUR - 1;
    CHECK(plan(&s) == PLAN_NOTHING);
    s.options.closed_until_ms++;
    CHECK(plan(&s) == PLAN_WINDOW);
    arena_done(&s.arena);
}

/* A gap in the data does not keep the others apart, and the window is whole. */
static void test_window_with_gaps(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    s.options.retention_ms = 4 * day_ms;
    add(&s, 2, 2, 1, 50);
    add(&s, 6, 2, 2, 50);
    CHECK(plan(&s) == PLAN_WINDOW && chose(&s, "xx"));
    CHECK(s.plan.key.window_start_ms == MERGE_KIT_START && s.plan.key.window_size_ms == day_ms / 3);
    arena_done(&s.arena);
}

/* Windows of other sizes, as no plan makes them: what they reach into is left alone. */
static void test_windows_that_do_not_nest(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    s.options.retention_ms = 4 * day_ms;
    add(&s, 4, 2, 1, 50);
    add(&s, 6, 2, 2, 50);
    add(&s, -2, 4, 3, 50);
    CHECK(plan(&s) == PLAN_NOTHING);
    s.parts[2].key = merge_kit_key(7, 4, 3);
    s.parts[1].key = merge_kit_key(0, 2, 2);
    CHECK(plan(&s) == PLAN_NOTHING);
    arena_done(&s.arena);
}

/* A day at once, without the step between. */
static void test_largest_window_first(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, -day_offset(), 8, 4, 200);
    for (int64_t i = 4; i < 12; i++)
        add(&s, -day_offset() + 2 * i, 2, 4 + (uint64_t)i, 50);
    CHECK(plan(&s) == PLAN_WINDOW && chose(&s, "xxxxxxxxx"));
    CHECK(s.plan.key.window_size_ms == day_ms &&
          s.plan.key.window_start_ms == MERGE_KIT_START - day_offset() * MERGE_KIT_HOUR);
    arena_done(&s.arena);
}

/* Late parts are merged with each other before the large part that they lie over. */
static void test_late_parts_wait(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, -day_offset(), 24, 10, 1000);
    add(&s, -day_offset(), 2, 20, 5);
    CHECK(plan(&s) == PLAN_NOTHING);
    add(&s, -day_offset(), 2, 30, 5);
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, ".xx"));
    CHECK(s.plan.key.generation == 31); /* 30 is taken: an input bears that name */
    s.parts[2].size_bytes = UINT64_C(125) << 20;
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, "xxx"));
    arena_done(&s.arena);
}

static void test_small_parts_do_not_wait(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 0, 8, 1, 4);
    add(&s, 2, 2, 2, 0);
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, "xx"));
    CHECK(s.plan.key.window_size_ms == day_ms / 3);
    arena_done(&s.arena);
}

/* The parts of one late file, one generation, more than one merge takes. */
static void test_many_of_one_generation(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    s.options.input_count_max = 4;
    add(&s, -day_offset(), 24, 1, 10);
    for (int64_t i = 0; i < 12; i++)
        add(&s, -day_offset() + 2 * i, 2, 50, 1);
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, ".xxxx........"));
    CHECK(s.plan.key.window_size_ms == day_ms / 3 && s.plan.key.generation == 50);
    arena_done(&s.arena);
}

/* Resolutions, retention classes and other counts of shards are worlds of their own. */
static void test_families_do_not_mix(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    for (int64_t i = 0; i < 4; i++)
        add(&s, 0, 2, 1 + (uint64_t)i, 1);
    s.parts[1].key.resolution_ms = 60000;
    s.parts[2].key.retention_class = 1;
    s.parts[3].key.shard_count = 8;
    CHECK(plan(&s) == PLAN_NOTHING);
    add(&s, 0, 2, 9, 1);
    s.parts[4].key.retention_class = 1;
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, "..x.x"));
    arena_done(&s.arena);
}

/* The number of shards went from 16 to 32 and back: the part of 32 lies between two of 16. */
static void test_another_shard_count_in_between(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 0, 2, 5, 1);
    add(&s, 0, 2, 10, 1);
    add(&s, 0, 2, 20, 1);
    s.parts[1].key.shard_count = 32;
    s.parts[1].key.shard = 7; /* of which shard 3 of 16 holds the series */
    s.parts[1].is_fixed = true;
    CHECK(plan(&s) == PLAN_NOTHING);
    s.parts[1].key.shard = 8;
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, "x.x"));
    s.parts[1].key.shard_count = 8;
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, "x.x"));
    s.parts[1].key.shard = 1;
    CHECK(plan(&s) == PLAN_NOTHING);
    arena_done(&s.arena);
}

/* What may not be chosen does not keep others from it. */
static void test_fixed_part(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 0, 2, 1, 1);
    add(&s, 0, 2, 2, 1);
    add(&s, 0, 2, 3, 1);
    s.parts[0].is_fixed = true;
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, ".xx"));
    s.parts[0].is_fixed = false;
    s.parts[1].is_fixed = true;
    CHECK(plan(&s) == PLAN_NOTHING);
    arena_done(&s.arena);
}

/* Nothing is merged across a part that stays, and no window is made around it. */
static void test_parts_that_stay(void **state)
{
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 0, 2, 1, 1);
    add(&s, 0, 2, 5, 1);
    add(&s, 0, 2, 3, 1);
    s.parts[2].is_fixed = true;
    s.parts[2].key.shard_count /= 4;
    s.parts[2].key.shard /= 4;
    CHECK(plan(&s) == PLAN_NOTHING);
    add(&s, 0, 2, 7, 1);
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, ".x.x"));
    s.count = 3;
    s.parts[2].key = merge_kit_key(0, 2, 8);
    s.parts[2].key.shard_count *= 4;
    s.parts[2].key.shard *= 4;
    s.parts[2].is_fixed = true;
    CHECK(plan(&s) == PLAN_OVERLAP && chose(&s, "xx.")); /* younger than both */
    s.parts[1].key = merge_kit_key(2, 2, 5);
    s.parts[2].key.window_start_ms += 4 * MERGE_KIT_HOUR;
    s.options.retention_ms = 4 * day_ms;
    CHECK(plan(&s) == PLAN_NOTHING);
    s.parts[2].key.shard += 4; /* other hashes */
    CHECK(plan(&s) == PLAN_WINDOW && chose(&s, "xx."));
    arena_done(&s.arena);
}

static void test_improper_window(void **state)
{
    struct scene s;
    struct errinfo ei = {0};

    (void)state;
    scene_init(&s);
    add(&s, 0, 2, 1, 1);
    s.parts[0].key.window_size_ms = 0;
    CHECK(plan_next(s.parts, s.count, &s.options, &s.arena, &s.plan, &ei) == ERR_INVALID);
    s.parts[0].key.window_size_ms = UINT64_MAX;
    CHECK(plan_next(s.parts, s.count, &s.options, &s.arena, &s.plan, &ei) == ERR_INVALID);
    arena_done(&s.arena);
}

/* ---- validity ---- */

static enum err valid(const struct scene *s, const char *pattern, struct part_key *out)
{
    struct part_key keys[PARTS_MAX];
    bool chosen[PARTS_MAX];
    struct errinfo ei = {0};
    enum err e;

    CHECK(strlen(pattern) == s->count);
    for (size_t i = 0; i < s->count; i++) {
        keys[i] = s->parts[i].key;
        chosen[i] = pattern[i] == 'x';
    }
    e = merge_inputs_valid(keys, chosen, s->count, out, &ei);
    CHECK((e == ERR_OK) == (ei.message[0] == '\0'));
    return e;
}

static void test_generation_in_between(void **state)
{
    struct part_key key;
    struct scene s;

    (void)state;
    scene_init(&s);
    add(&s, 0, 2, 1, 1);
    add(&s, 0, 2, 2, 1);
    add(&s, 0, 2, 3, 1);
    CHECK(valid(&s, "x.x", &key) == ERR_INVALID);
    CHECK(valid(&s, "xx.", &key) == ERR_INVALID); /* 3 is taken, 4 lies beyond it */
    CHECK(valid(&s, ".xx", &key) == ERR_OK && key.generation == 4);
    CHECK(valid(&s, "xxx", &key) == ERR_OK && key.generation == 4);
    CHECK(valid(&s, "...", &key) == ERR_INVALID);
    s.parts[2].key.generation = 100;
    CHECK(valid(&s, "xx.", &key) == ERR_OK && key.generation == 3);
    /* It stays between the two, but overlaps only the younger one, and is older than that. */
    s.parts[0].key = merge_kit_key(2, 2, 1);
    CHECK(valid(&s, "x.x", &key) == ERR_OK && key.generation == 100);
    s.parts[1].key = merge_kit_key(2, 2, 2);
    CHECK(valid(&s, "x.x", &key) == ERR_INVALID);
    s.parts[1].key.shard = 4;
    CHECK(valid(&s, "x.x", &key) == ERR_OK);
    CHECK(valid(&s, "xx.", &key) == ERR_INVALID);
    arena_done(&s.arena);
}

/* Whether part a's samples win over b's: what readers go by. */
static bool wins(const struct part_key *a, const struct part_key *b)
{
    return a->generation < b->generation;
}
static bool overlap(const struct part_key *a, const struct part_key *b)
{
    return a->window_start_ms < b->window_start_ms + (int64_t)b->window_size_ms &&
           b->window_start_ms < a->window_start_ms + (int64_t)a->window_size_ms;
}

static void random_parts(struct scene *s, struct test_random *r)
{
    static const int64_t hours[] = {2, 2, 2, 8, 24};
    size_t count = test_random_below(r, 14);

    for (size_t i = 0; i < count; i++) {
        int64_t h = hours[test_random_below(r, 5)];
        int64_t window = (int64_t)test_random_below(r, 48 / (uint64_t)h);

        add(s, -day_offset() + h * window, h, 8 * (1 + i * 7 % 17), test_random_below(r, 40));
    }
}

/* Every choice that is accepted keeps the order of all pairs that overlap. */
static void test_valid_choices_keep_order(void **state)
{
    struct test_random r = test_random_init(41);
    unsigned accepted = 0, refused = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char pattern[PARTS_MAX + 1] = {0};
        struct part_key key;
        struct scene s;
        bool keeps = true;

        scene_init(&s);
        random_parts(&s, &r);
        for (size_t i = 0; i < s.count; i++)
            pattern[i] = test_random_below(&r, 3) == 0 ? 'x' : '.';
        if (valid(&s, pattern, &key) == ERR_OK) {
            for (size_t i = 0; i < s.count; i++) {
                for (size_t k = 0; k < s.count; k++) {
                    if (pattern[i] == 'x' && pattern[k] != 'x' &&
                        overlap(&s.parts[i].key, &s.parts[k].key))
                        keeps &=
                            wins(&s.parts[i].key, &s.parts[k].key) == wins(&key, &s.parts[k].key);
                }
            }
            CHECK(keeps);
            accepted++;
        } else {
            refused++;
        }
        arena_done(&s.arena);
    }
    CHECK(accepted > 1000 && refused > 1000);
}

/* ---- plans, carried out ---- */

/* Same answer for the list in another order. */
static void check_deterministic(struct scene *s)
{
    struct scene turned = *s;
    enum plan_reason reason = plan(s);

    for (size_t i = 0; i < s->count; i++)
        turned.parts[i] = s->parts[s->count - 1 - i];
    arena_init(&turned.arena, NULL);
    CHECK(plan(&turned) == reason);
    if (reason != PLAN_NOTHING) {
        CHECK(part_key_equal(&turned.plan.key, &s->plan.key));
        for (size_t i = 0; i < s->count; i++)
            CHECK(turned.plan.chosen[s->count - 1 - i] == s->plan.chosen[i]);
    }
    arena_done(&turned.arena);
}

static void carry_out(struct scene *s)
{
    struct plan_part result = {.key = s->plan.key};
    size_t kept = 0, taken = 0;

    for (size_t i = 0; i < s->count; i++) {
        if (s->plan.chosen[i]) {
            result.size_bytes += s->parts[i].size_bytes;
            taken++;
        } else {
            CHECK(!overlap(&s->parts[i].key, &result.key) ||
                  s->parts[i].key.generation != result.key.generation);
            s->parts[kept++] = s->parts[i];
        }
    }
    CHECK(taken == s->plan.chosen_count && taken >= 2);
    s->parts[kept++] = result;
    s->count = kept;
}

/* Plans come to an end, and what is left is in order: no window above the largest, no larger window
 * whose parts could be merged, late data less than an eighth of what it lies over. */
static void test_plans_come_to_an_end(void **state)
{
    struct test_random r = test_random_init(42);

    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct scene s;
        size_t before;

        scene_init(&s);
        random_parts(&s, &r);
        before = s.count;
        for (check_deterministic(&s); s.plan.reason != PLAN_NOTHING; check_deterministic(&s)) {
            CHECK(s.plan.key.window_size_ms <= day_ms);
            carry_out(&s);
            CHECK(s.count < before);
            before = s.count;
        }
        for (size_t i = 0; i < s.count; i++) {
            for (size_t k = 0; k < s.count; k++) {
                if (i != k && overlap(&s.parts[i].key, &s.parts[k].key) &&
                    wins(&s.parts[k].key, &s.parts[i].key))
                    CHECK(s.parts[i].size_bytes < s.parts[k].size_bytes / 8 + 1);
            }
        }
        arena_done(&s.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_max),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_four_windows),
        cmocka_unit_test(test_window_with_gaps),
        cmocka_unit_test(test_windows_that_do_not_nest),
        cmocka_unit_test(test_largest_window_first),
        cmocka_unit_test(test_late_parts_wait),
        cmocka_unit_test(test_small_parts_do_not_wait),
        cmocka_unit_test(test_many_of_one_generation),
        cmocka_unit_test(test_families_do_not_mix),
        cmocka_unit_test(test_another_shard_count_in_between),
        cmocka_unit_test(test_fixed_part),
        cmocka_unit_test(test_parts_that_stay),
        cmocka_unit_test(test_improper_window),
        cmocka_unit_test(test_generation_in_between),
        cmocka_unit_test(test_valid_choices_keep_order),
        cmocka_unit_test(test_plans_come_to_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
