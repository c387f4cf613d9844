/*
 * Which parts of another number of shards are split or joined next.
 */
#include <string.h>

#include "compactor/regroup.h"
#include "tests/compactor/merge_kit.h"
#include "tests/lib/test_cmocka.h"

enum { KEYS_MAX = 16 };

struct scene {
    struct part_key keys[KEYS_MAX];
    bool usable[KEYS_MAX], chosen[KEYS_MAX];
    size_t count;
    struct regroup g;
};

static void add(struct scene *s, uint32_t shard, uint32_t shard_count, int64_t first_hour,
                int64_t hours, uint64_t generation)
{
    CHECK(s->count < KEYS_MAX);
    s->keys[s->count] = merge_kit_key(first_hour, hours, generation);
    s->keys[s->count].shard = shard;
    s->keys[s->count].shard_count = shard_count;
    s->usable[s->count++] = true;
}

static bool next(struct scene *s, uint32_t shard, uint32_t shard_count)
{
    return regroup_next(s->keys, s->usable, s->count, shard, shard_count, s->chosen, &s->g);
}

static bool chose(const struct scene *s, const char *pattern)
{
    CHECK(strlen(pattern) == s->count);
    for (size_t i = 0; i < s->count; i++) {
        if (s->chosen[i] != (pattern[i] == 'x'))
            return false;
    }
    return true;
}

static void test_split(void **state)
{
    struct scene s = {.count = 0};

    (void)state;
    add(&s, 1, 4, 0, 2, 7);
    add(&s, 3, 4, 0, 2, 7);
    CHECK(!next(&s, 1, 4) && !next(&s, 5, 16));
    CHECK(next(&s, 4, 16) && chose(&s, "x.") && s.g.split_count == 4);
    CHECK(s.g.key.shard == 4 && s.g.key.shard_count == 16 && s.g.key.generation == 7);
    /* In two steps: the first makes parts of 64. */
    CHECK(next(&s, 256, 1024) && chose(&s, "x.") && s.g.split_count == 16);
    CHECK(s.g.key.shard == 16 && s.g.key.shard_count == 64);
    s.usable[0] = false;
    CHECK(!next(&s, 4, 16));
}

/* All of one generation that lie in the shard and overlap in time, and no other. */
static void test_join(void **state)
{
    struct scene s = {.count = 0};

    (void)state;
    add(&s, 4, 8, 0, 2, 7);
    add(&s, 5, 8, 0, 8, 7);
    add(&s, 3, 4, 4, 2, 7);
    add(&s, 4, 8, 8, 2, 7);
    add(&s, 5, 8, 0, 2, 6);
    add(&s, 1, 2, 0, 8, 8);
    CHECK(next(&s, 1, 2) && chose(&s, "xxx...") && s.g.split_count == 0);
    CHECK(s.g.key.shard == 1 && s.g.key.shard_count == 2 && s.g.key.generation == 7);
    CHECK(s.g.key.window_start_ms == MERGE_KIT_START &&
          s.g.key.window_size_ms == 8 * (uint64_t)MERGE_KIT_HOUR);
    /* A damaged one keeps those that would be joined with it. */
    s.usable[1] = false;
    CHECK(next(&s, 1, 2) && chose(&s, "...x.."));
    s.keys[3] = s.keys[5];
    CHECK(next(&s, 1, 2) && chose(&s, "....x."));
    s.keys[4] = s.keys[5];
    CHECK(!next(&s, 1, 2));
}

static void test_join_in_steps(void **state)
{
    struct scene s = {.count = 0};

    (void)state;
    add(&s, 0, 1024, 0, 2, 7);
    add(&s, 15, 1024, 0, 2, 7);
    add(&s, 16, 1024, 0, 2, 7);
    CHECK(next(&s, 0, 1) && chose(&s, "xx."));
    CHECK(s.g.key.shard == 0 && s.g.key.shard_count == 64);
    s.count = 0;
    add(&s, 0, 64, 0, 2, 7);
    add(&s, 16, 1024, 0, 2, 7);
    CHECK(next(&s, 0, 1) && chose(&s, ".x") && s.g.key.shard == 1 && s.g.key.shard_count == 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_join_in_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
