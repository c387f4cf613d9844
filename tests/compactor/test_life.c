/*
 * Plans and merges together over a random life: windows arrive in order and late, ranges are
 * deleted and filled again, whatever plan_next() chooses is merged. After every step the live
 * parts, read under the one rule for repeats and the tombstones of older files, give what a plain
 * list of samples gives.
 */
#include <stdlib.h>
#include <string.h>

#include "compactor/plan.h"
#include "tests/compactor/merge_kit.h"
#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"

enum { LIVE_MAX = 128, TOMBSTONES_MAX = 32, GENERATION_STEP = 64 };

struct tombstone {
    uint32_t series;
    struct merge_range range;
    uint64_t generation; /* hits files below it */
};

struct life {
    struct test_random random;
    struct kit_store store;
    struct merge_kit kit; /* kit.written: what should be there */
    struct part *live[LIVE_MAX];
    size_t live_count;
    uint64_t generation;
    struct tombstone tombstones[TOMBSTONES_MAX];
    size_t tombstone_count;
    struct merge_range ranges[TOMBSTONES_MAX]; /* what the hook gave last */
    unsigned merges, purges;
};

static void life_init(struct life *l, uint64_t seed)
{
    memset(l, 0, sizeof *l);
    l->random = test_random_init(seed);
    kit_store_init(&l->store, seed, 1 << 20);
    merge_kit_init(&l->kit, &l->random, 12);
}

static void life_done(struct life *l)
{
    for (size_t i = 0; i < l->live_count; i++)
        part_close(l->live[i]);
    merge_kit_done(&l->kit);
    kit_store_done(&l->store);
}

static void live_add(struct life *l, const struct part_key *key)
{
    struct errinfo ei = {0};

    CHECK(l->live_count < LIVE_MAX);
    CHECK_OK(part_open(l->store.store, "", key, &l->live[l->live_count++], &ei), &ei);
}

/* A part of one or, as a late file gives, two windows of one generation. */
static void write_parts(struct life *l)
{
    struct test_random *r = &l->random;
    struct merge_kit_shape shape = {.presence_percent = 60, .chunks_max = 3, .samples_max = 200};
    int64_t window = (int64_t)test_random_below(r, 24);
    size_t windows = 1 + test_random_below(r, 2);

    l->generation += GENERATION_STEP;
    for (size_t i = 0; i < windows; i++) {
        struct part_key key = merge_kit_key(2 * (window + (int64_t)i), 2, l->generation);

        merge_kit_part(&l->kit, l->store.store, "", &key, shape);
        live_add(l, &key);
    }
}

static bool hit(const struct tombstone *t, const struct merge_kit_sample *s)
{
    return t->series == s->series && s->generation < t->generation &&
           t->range.min_time_ms <= s->t_ms && s->t_ms <= t->range.max_time_ms;
}

static void drop_hit(const struct tombstone *t, struct merge_kit_list *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        if (!hit(t, &list->items[i]))
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

static void delete_range(struct life *l)
{
    struct tombstone *t;

    if (l->tombstone_count == TOMBSTONES_MAX)
        return;
    t = &l->tombstones[l->tombstone_count++];
    l->generation += GENERATION_STEP;
    t->generation = l->generation;
    t->series = (uint32_t)test_random_below(&l->random, l->kit.series_count);
    t->range.min_time_ms =
        MERGE_KIT_START + (int64_t)test_random_below(&l->random, 48) * MERGE_KIT_HOUR;
    t->range.max_time_ms =
        t->range.min_time_ms + (int64_t)test_random_below(&l->random, 12) * MERGE_KIT_HOUR;
    drop_hit(t, &l->kit.written);
}

static enum err tombstone_ranges(void *ctx, const struct labels *labels, struct hash128 print,
                                 uint64_t generation, const struct merge_range **out,
                                 size_t *out_count, struct errinfo *ei)
{
    struct life *l = ctx;
    size_t n = 0;

    (void)ei;
    for (size_t i = 0; i < l->tombstone_count; i++) {
        const struct tombstone *t = &l->tombstones[i];
        const struct merge_kit_series *s = &l->kit.series[t->series];

        if (t->generation > generation && hash128_equal(print, s->fingerprint)) {
            CHECK(labels_equal(labels, &s->labels));
            l->ranges[n++] = t->range;
        }
    }
    *out = l->ranges;
    *out_count = n;
    return ERR_OK;
}

static void remove_part(struct life *l, struct part *p)
{
    struct part_key key = part_info(p)->key;
    struct errinfo ei = {0};

    part_close(p);
    for (int i = 0; i < 2; i++) {
        char name[PART_NAME_SIZE];

        part_name_format(&key, (enum part_file)i, false, name);
        CHECK_OK(fs_unlink(l->store.fs, name, &ei), &ei);
    }
}

static void merge_planned(struct life *l, const struct plan *plan)
{
    struct part *inputs[LIVE_MAX];
    struct merge_options o = {.store = l->store.store,
                              .dir = "",
                              .key = plan->key,
                              .inputs = inputs,
                              .purge = {tombstone_ranges, l},
                              .memory = &l->store.memory};
    struct merge_result result;
    struct errinfo ei = {0};
    size_t kept = 0;

    for (size_t i = 0; i < l->live_count; i++) {
        if (plan->chosen[i])
            inputs[o.input_count++] = l->live[i];
        else
            l->live[kept++] = l->live[i];
    }
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    for (size_t i = 0; i < o.input_count; i++)
        remove_part(l, inputs[i]);
    l->live_count = kept;
    if (result.written)
        live_add(l, &plan->key);
    l->merges++;
    l->purges += result.stats.samples_purged > 0;
}

/* Plans and merges once; false when there is nothing to do. */
static bool compact(struct life *l)
{
    int64_t hours = (int64_t)test_random_below(&l->random, 60);
    struct plan_options o = {.retention_ms = UINT64_C(15) * 86400000,
                             .closed_until_ms = MERGE_KIT_START + hours * MERGE_KIT_HOUR,
                             .input_count_max = 2 + (uint32_t)test_random_below(&l->random, 20),
                             .small_bytes = 1};
    struct plan_part parts[LIVE_MAX];
    struct errinfo ei = {0};
    struct arena arena;
    struct plan plan;
    bool merges;

    for (size_t i = 0; i < l->live_count; i++) {
        const struct part_info *info = part_info(l->live[i]);

        parts[i] = (struct plan_part){info->key, info->index_size + info->chunks_size};
    }
    arena_init(&arena, NULL);
    CHECK_OK(plan_next(parts, l->live_count, &o, &arena, &plan, &ei), &ei);
    merges = plan.reason != PLAN_NOTHING;
    if (merges)
        merge_planned(l, &plan);
    arena_done(&arena);
    return merges;
}

static void check_samples(struct life *l)
{
    struct merge_kit_list expected = {0}, got = {0};

    merge_kit_list_copy(&expected, &l->kit.written);
    merge_kit_list_settle(&expected);
    for (size_t i = 0; i < l->live_count; i++)
        merge_kit_read(&l->kit, l->live[i], &got);
    for (size_t i = 0; i < l->tombstone_count; i++)
        drop_hit(&l->tombstones[i], &got);
    merge_kit_list_settle(&got);
    merge_kit_check_equal(&expected, &got);
    merge_kit_list_done(&expected);
    merge_kit_list_done(&got);
}

static void test_random_lives(void **state)
{
    enum { SEEDS = 12, STEPS = 60 };
    unsigned merges = 0, purges = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct life l;

        life_init(&l, 500 + seed);
        for (int i = 0; i < STEPS; i++) {
            if (test_random_below(&l.random, 6) == 0)
                delete_range(&l);
            else if (l.live_count + 2 <= LIVE_MAX)
                write_parts(&l);
            for (uint64_t n = test_random_below(&l.random, 3); n > 0 && compact(&l); n--)
                check_samples(&l);
        }
        while (compact(&l))
            check_samples(&l);
        check_samples(&l);
        merges += l.merges;
        purges += l.purges;
        life_done(&l);
    }
    CHECK(merges > 5 * SEEDS && purges > SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
