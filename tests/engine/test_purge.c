/*
 * Deletions that are taken back: what returns and what a flush has taken for good, restarts,
 * crashes at every operation, merges under way, and the list of them as bytes.
 */
#include "engine/purge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/maintain.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define T0 KIT_NOW_MS
#define KEY STR_LITERAL("{__name__=\"a\"}")
enum { SHARDS = 2, SAMPLES = 6, CRASH_STEPS_MIN = 3, WISHES_MAX = 20 };
static const struct engine_options options = {.shard_count = SHARDS};

/* A purge of the metrics whose names match. */
struct wish {
    struct str key;
    const char *pattern;
};

static enum err purges_try(struct kit *k, const struct wish *wishes, size_t count, size_t *made)
{
    struct purge_request requests[WISHES_MAX];
    struct matcher matchers[WISHES_MAX];
    struct arena arena;
    enum err e;

    CHECK(count <= WISHES_MAX);
    arena_init(&arena, NULL);
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(matcher_init(&matchers[i], MATCHER_REGEX, LABEL_METRIC_NAME,
                              str_from(wishes[i].pattern), &arena, &k->ei),
                 &k->ei);
        requests[i] = (struct purge_request){wishes[i].key, &matchers[i], 1};
    }
    e = engine_purge(k->engine, requests, count, made, &k->ei);
    for (size_t i = 0; i < count; i++)
        matcher_done(&matchers[i]);
    arena_done(&arena);
    return e;
}

static enum err purge_try(struct kit *k, struct str key, const char *name, bool *made)
{
    const struct wish wish = {key, name};
    size_t count = 0;
    enum err e = purges_try(k, &wish, 1, &count);

    if (made != NULL)
        *made = count == 1;
    return e;
}

static void purge_a(struct kit *k)
{
    bool made = false;

    CHECK_OK(purge_try(k, KEY, "a", &made), &k->ei);
    CHECK(made);
}

static struct purge_withdrawn withdraw_key(struct kit *k, struct str key)
{
    struct purge_withdrawn out = {0};

    CHECK_OK(engine_purges_withdraw(k->engine, &key, 1, &out, &k->ei), &k->ei);
    return out;
}

static struct purge_withdrawn withdraw(struct kit *k)
{
    return withdraw_key(k, KEY);
}

static size_t purge_count(struct kit *k)
{
    struct arena arena;
    struct str *keys = NULL;
    size_t count = 0;

    arena_init(&arena, NULL);
    CHECK_OK(engine_purges(k->engine, &arena, &keys, &count, &k->ei), &k->ei);
    for (size_t i = 0; i < count; i++)
        CHECK(keys[i].size > 0 && (i == 0 || str_compare(keys[i - 1], keys[i]) < 0));
    arena_done(&arena);
    return count;
}

static void seal_all(struct kit *k)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct seal_result ignored;

        CHECK_OK(engine_seal(k->engine, s, SEAL_INTERVAL, NULL, &ignored, &k->ei), &k->ei);
    }
}

static void flush_all(struct kit *k)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct flush_result ignored;

        CHECK_OK(engine_flush(k->engine, s, INT64_MAX, NULL, &ignored, &k->ei), &k->ei);
    }
}

static int64_t time_of(size_t i)
{
    return T0 + 15000 * (int64_t)i;
}

/* Two samples of each series in parts, two in sealed files, two in memory. */
static void fill(struct kit *k)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        kit_put(k, "__name__=a", time_of(i), (double)i);
        kit_put(k, "__name__=b", time_of(i), (double)i);
        if (i == 1)
            flush_all(k);
        if (i == 3)
            seal_all(k);
    }
}

static void fill_memory(struct kit *k)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        kit_put(k, "__name__=a", time_of(i), (double)i);
        kit_put(k, "__name__=b", time_of(i), (double)i);
    }
}

/* Series `a` has its samples from `first` on, `b` all of them. */
static void check_from(struct kit *k, size_t first, size_t count)
{
    int64_t t_ms[SAMPLES + 1];
    double value[SAMPLES + 1];

    CHECK(count <= SAMPLES + 1);
    for (size_t i = 0; i < SAMPLES + 1; i++) {
        t_ms[i] = time_of(i);
        value[i] = (double)i;
    }
    kit_check(k, "__name__=a", count, &t_ms[first], &value[first]);
    kit_check(k, "__name__=b", SAMPLES, t_ms, value);
}

static void reopen(struct kit *k, struct fs *fs)
{
    kit_abandon(k);
    kit_open(k, fs, &options);
}

/* Everything comes back, whether a start lies before or behind; and what comes next is stored. */
static void test_withdrawn_restores(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct fs *fs = test_fs_new(1);
        struct purge_withdrawn w;
        bool made = true;
        struct kit k;

        kit_open(&k, fs, &options);
        fill(&k);
        purge_a(&k);
        check_from(&k, 0, 0);
        CHECK(purge_count(&k) == 1 && engine_tombstone_count(k.engine) == 1);
        CHECK_OK(purge_try(&k, KEY, "a", &made), &k.ei); /* stands already */
        CHECK(!made && engine_tombstone_count(k.engine) == 1);
        if ((i & 1) != 0)
            reopen(&k, fs);
        check_from(&k, 0, 0);
        w = withdraw(&k);
        CHECK(w.file_count > 0 && w.file_left == w.file_count);
        check_from(&k, 0, SAMPLES);
        CHECK(purge_count(&k) == 0 && engine_tombstone_count(k.engine) == 0);
        CHECK(engine_purges_withdraw(k.engine, &KEY, 1, &w, NULL) == ERR_NOT_FOUND);
        if ((i & 2) != 0)
            reopen(&k, fs);
        check_from(&k, 0, SAMPLES);
        kit_put(&k, "__name__=a", time_of(SAMPLES), SAMPLES);
        kit_put(&k, "__name__=a", time_of(2), 2); /* sent again */
        check_from(&k, 0, SAMPLES + 1);
        if ((i & 4) != 0)
            flush_all(&k);
        check_from(&k, 0, SAMPLES + 1);
        reopen(&k, fs);
        check_from(&k, 0, SAMPLES + 1);
        kit_close(&k);
        fs_free(fs);
    }
}

/* What a flush has written anew is gone, and that is told; what stood in parts is back. */
static void test_flushed_is_gone(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct fs *fs = test_fs_new(2);
        struct purge_withdrawn w;
        struct kit k;

        kit_open(&k, fs, &options);
        fill(&k);
        purge_a(&k);
        flush_all(&k);
        CHECK_OK(engine_tombstones_retire(k.engine, &k.ei), &k.ei);
        CHECK(engine_tombstone_count(k.engine) == 1); /* parts need it */
        if (i == 1)
            reopen(&k, fs);
        w = withdraw(&k);
        CHECK(w.file_left > 0 && w.file_left < w.file_count);
        check_from(&k, 0, 2);
        reopen(&k, fs);
        check_from(&k, 0, 2);
        kit_close(&k);
        fs_free(fs);
    }
}

/* When its tombstone has been forgotten, the key stays until it is withdrawn. */
static void test_retired(void **state)
{
    struct fs *fs = test_fs_new(3);
    struct purge_withdrawn w;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    fill_memory(&k);
    purge_a(&k);
    flush_all(&k);
    CHECK_OK(engine_tombstones_retire(k.engine, &k.ei), &k.ei);
    CHECK(engine_tombstone_count(k.engine) == 0 && purge_count(&k) == 1);
    reopen(&k, fs);
    CHECK(purge_count(&k) == 1);
    w = withdraw(&k);
    CHECK(w.file_count > 0 && w.file_left == 0 && purge_count(&k) == 0);
    check_from(&k, 0, 0);
    /* The newest one of before is no repeat. */
    kit_put(&k, "__name__=a", time_of(SAMPLES - 1), SAMPLES - 1);
    CHECK(k.result.stored_count == 1);
    check_from(&k, SAMPLES - 1, 1);
    kit_close(&k);
    fs_free(fs);
}

/* Series without a sample that shows leave memory; what sealed files hold of them can come back all
 * the same, and new samples join it. */
static void test_series_that_left(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct fs *fs = test_fs_new(9);
        struct purge_withdrawn w;
        struct kit k;

        kit_open(&k, fs, &options);
        fill_memory(&k);
        if ((i & 1) != 0)
            seal_all(&k);
        purge_a(&k);
        if ((i & 2) != 0)
            reopen(&k, fs);
        clock_set_fake(&k.clock, T0 + 3600000);
        for (unsigned round = 0; round < 3; round++) {
            seal_all(&k);
            for (uint32_t s = 0; s < SHARDS; s++)
                CHECK_OK(engine_rebuild(k.engine, s, NULL, &k.ei), &k.ei);
        }
        check_from(&k, 0, 0);
        CHECK(engine_tombstone_count(k.engine) == 1);
        if ((i & 4) != 0)
            reopen(&k, fs);
        w = withdraw(&k);
        CHECK(w.file_count > 0 && w.file_left == w.file_count);
        check_from(&k, 0, SAMPLES);
        clock_set_fake(&k.clock, T0 + 3600000);
        kit_put(&k, "__name__=a", time_of(SAMPLES), SAMPLES);
        check_from(&k, 0, SAMPLES + 1);
        flush_all(&k);
        check_from(&k, 0, SAMPLES + 1);
        reopen(&k, fs);
        check_from(&k, 0, SAMPLES + 1);
        kit_close(&k);
        fs_free(fs);
    }
}

/* A deletion of the same samples is not taken back with the purge; nor another purge. */
static void test_others_stand(void **state)
{
    struct fs *fs = test_fs_new(4);
    struct arena arena;
    struct matcher m;
    bool made = false;
    struct kit k;

    (void)state;
    arena_init(&arena, NULL);
    kit_open(&k, fs, &options);
    fill(&k);
    purge_a(&k);
    CHECK_OK(matcher_init(&m, MATCHER_EQUAL, LABEL_METRIC_NAME, STR_LITERAL("a"), &arena, &k.ei),
             &k.ei);
    CHECK_OK(engine_delete(k.engine, &m, 1, INT64_MIN, time_of(3), &k.ei), &k.ei);
    CHECK_OK(purge_try(&k, STR_LITERAL("other"), "c", &made), &k.ei);
    CHECK(made && purge_count(&k) == 2);
    CHECK(purge_try(&k, STR_LITERAL(""), "c", &made) == ERR_INVALID);
    (void)withdraw(&k);
    CHECK(purge_count(&k) == 1);
    check_from(&k, 4, 2);
    reopen(&k, fs);
    CHECK(purge_count(&k) == 1);
    check_from(&k, 4, 2);
    kit_close(&k);
    matcher_done(&m);
    arena_done(&arena);
    fs_free(fs);
}

static void check_counts(struct kit *k, size_t of_a, size_t of_b)
{
    int64_t t_ms[SAMPLES];
    double value[SAMPLES];

    for (size_t i = 0; i < SAMPLES; i++) {
        t_ms[i] = time_of(i);
        value[i] = (double)i;
    }
    kit_check(k, "__name__=a", of_a, t_ms, value);
    kit_check(k, "__name__=b", of_b, t_ms, value);
}

/* Several at once, which find the same series too: each is taken back alone, and new samples are
 * stored whichever stand. */
static void test_many(void **state)
{
    const struct wish wishes[] = {{STR_LITERAL("any"), ".+"},
                                  {STR_LITERAL("a"), "a"},
                                  {STR_LITERAL("b"), "b"},
                                  {STR_LITERAL("none"), "c"},
                                  {STR_LITERAL("a"), "a"}};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct fs *fs = test_fs_new(10);
        struct kit k;
        size_t made = 0;

        kit_open(&k, fs, &options);
        fill(&k);
        if ((i & 1) != 0)
            CHECK_OK(purge_try(&k, STR_LITERAL("b"), "b", NULL), &k.ei);
        CHECK_OK(purges_try(&k, wishes, 5, &made), &k.ei);
        CHECK(made == ((i & 1) != 0 ? 3 : 4) && purge_count(&k) == 4);
        CHECK(engine_tombstone_count(k.engine) == 4);
        if ((i & 2) != 0)
            reopen(&k, fs);
        CHECK_OK(purges_try(&k, wishes, 5, &made), &k.ei);
        CHECK(made == 0);
        check_counts(&k, 0, 0);
        (void)withdraw_key(&k, STR_LITERAL("a"));
        (void)withdraw_key(&k, STR_LITERAL("none"));
        check_counts(&k, 0, 0);
        (void)withdraw_key(&k, STR_LITERAL("any"));
        check_counts(&k, SAMPLES, 0);
        (void)withdraw_key(&k, STR_LITERAL("b"));
        check_counts(&k, SAMPLES, SAMPLES);
        kit_put(&k, "__name__=a", time_of(SAMPLES), SAMPLES);
        check_from(&k, 0, SAMPLES + 1);
        reopen(&k, fs);
        check_from(&k, 0, SAMPLES + 1);
        kit_close(&k);
        fs_free(fs);
    }
}

/* All that are named go, or none when one does not stand. */
static void test_many_withdrawn(void **state)
{
    const struct wish wishes[] = {{STR_LITERAL("any"), ".+"},
                                  {STR_LITERAL("a"), "a"},
                                  {STR_LITERAL("b"), "b"},
                                  {STR_LITERAL("none"), "c"}};
    const struct str unknown[] = {STR_LITERAL("a"), STR_LITERAL("any"), STR_LITERAL("anyone")};
    struct purge_withdrawn w[3] = {{7, 7}, {7, 7}, {7, 7}};
    struct fs *fs = test_fs_new(13);
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    fill(&k);
    CHECK_OK(purges_try(&k, wishes, 4, NULL), &k.ei);
    CHECK(engine_purges_withdraw(k.engine, unknown, 3, w, NULL) == ERR_NOT_FOUND);
    CHECK(w[0].file_count == 7 && purge_count(&k) == 4 && engine_tombstone_count(k.engine) == 4);
    CHECK_OK(engine_purges_withdraw(k.engine, unknown, 0, w, &k.ei), &k.ei);
    CHECK_OK(engine_purges_withdraw(k.engine, unknown, 2, w, &k.ei), &k.ei);
    for (size_t i = 0; i < 2; i++)
        CHECK(w[i].file_count > 0 && w[i].file_left == w[i].file_count);
    CHECK(w[2].file_count == 7 && purge_count(&k) == 2 && engine_tombstone_count(k.engine) == 2);
    check_counts(&k, SAMPLES, 0);
    reopen(&k, fs);
    CHECK(purge_count(&k) == 2);
    check_counts(&k, SAMPLES, 0);
    kit_close(&k);
    fs_free(fs);
}

/* File operations of so many purges in one call, and of as many withdrawals. */
static uint64_t operations_of(size_t count)
{
    struct purge_withdrawn withdrawn[WISHES_MAX];
    struct str ascending[WISHES_MAX];
    struct wish wishes[WISHES_MAX];
    char keys[WISHES_MAX][24];
    struct fs *fs = test_fs_new(11);
    struct kit k;
    uint64_t before;

    kit_open(&k, fs, &options);
    fill(&k);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "k%02zu", i);
        wishes[i] = (struct wish){str_from(keys[i]), ".+"};
        ascending[i] = str_from(keys[i]);
    }
    before = fs_sim_op_count(fs);
    CHECK_OK(purges_try(&k, wishes, count, NULL), &k.ei);
    check_counts(&k, 0, 0);
    CHECK_OK(engine_purges_withdraw(k.engine, ascending, count, withdrawn, &k.ei), &k.ei);
    before = fs_sim_op_count(fs) - before;
    check_counts(&k, SAMPLES, SAMPLES);
    kit_close(&k);
    fs_free(fs);
    return before;
}

/* Shards are sealed once, and there is one manifest for all, and one to take them back. */
static void test_many_cost_as_one(void **state)
{
    (void)state;
    CHECK(operations_of(WISHES_MAX) == operations_of(1));
}

/* Nothing is there: the key is kept, and there is no tombstone. */
static void test_of_nothing(void **state)
{
    struct fs *fs = test_fs_new(5);
    struct purge_withdrawn w;
    struct kit k;

    (void)state;
    kit_open(&k, fs, &options);
    purge_a(&k);
    CHECK(purge_count(&k) == 1 && engine_tombstone_count(k.engine) == 0);
    fill(&k);
    reopen(&k, fs);
    check_from(&k, 0, SAMPLES); /* of after the purge */
    w = withdraw(&k);
    CHECK(w.file_count == 0 && w.file_left == 0 && purge_count(&k) == 0);
    kit_close(&k);
    fs_free(fs);
}

/* ---- merges ---- */

/* What a merge began before the withdrawal has made is not taken: it may lack what is back. */
static void test_merge_under_way(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct fs *fs = test_fs_new(6);
        struct engine_parts parts, later;
        struct arena arena;
        struct kit k;

        arena_init(&arena, NULL);
        kit_open(&k, fs, &options);
        fill(&k);
        flush_all(&k);
        purge_a(&k);
        CHECK_OK(engine_parts_get(k.engine, s, &arena, &parts, &k.ei), &k.ei);
        (void)withdraw(&k);
        CHECK_OK(engine_parts_get(k.engine, s, &arena, &later, &k.ei), &k.ei);
        if (parts.count > 0) {
            CHECK(parts.items[0].is_touched_by_delete && !later.items[0].is_touched_by_delete);
            CHECK(engine_parts_exchange(k.engine, s, &parts.items[0].key, 1, NULL,
                                        parts.purged_generation, NULL) == ERR_NOT_FOUND);
            check_from(&k, 0, SAMPLES);
            CHECK(later.purged_generation > parts.purged_generation);
            CHECK_OK(engine_parts_exchange(k.engine, s, &parts.items[0].key, 1, NULL,
                                           later.purged_generation, &k.ei),
                     &k.ei);
        }
        engine_parts_release(&parts);
        engine_parts_release(&later);
        kit_close(&k);
        arena_done(&arena);
        fs_free(fs);
    }
}

/* ---- crashes ---- */

static bool stands(struct kit *k)
{
    size_t count = purge_count(k);

    CHECK(count <= 1 && engine_tombstone_count(k->engine) == count);
    return count == 1;
}

/* Whichever it is, key, tombstone and samples agree. */
static void check_whole(struct kit *k)
{
    check_from(k, 0, stands(k) ? 0 : SAMPLES);
}

/* Makes the purge or takes it back, with a fault at operation `op`; false when it has fewer. */
static bool fault_at(bool takes_back, enum fs_sim_fault fault, uint64_t op)
{
    struct fs *fs = test_fs_new(op);
    struct purge_withdrawn w;
    struct kit k;
    bool hit;
    enum err e;

    kit_open(&k, fs, &options);
    fill(&k);
    if (takes_back)
        purge_a(&k);
    fs_sim_set_fault(fs, fault, fs_sim_op_count(fs) + op);
    e = takes_back ? engine_purges_withdraw(k.engine, &KEY, 1, &w, &k.ei)
                   : purge_try(&k, KEY, "a", NULL);
    hit = fs_sim_fault_hit(fs);
    CHECK_MSG(hit || e == ERR_OK, "%s: %s", err_name(e), k.ei.message);
    if (fault != FS_SIM_FAULT_CRASH) {
        CHECK(e != ERR_OK || stands(&k) == !takes_back);
        check_whole(&k);
        fs_sim_clear_fault(fs);
    }
    kit_abandon(&k);
    for (size_t i = 0; i < TEST_CRASH_MODE_COUNT; i++) {
        struct fs *after = test_fs_after_crash(fs, &test_crash_modes[i], op);

        kit_open(&k, after, &options);
        CHECK(e != ERR_OK || stands(&k) == !takes_back);
        check_whole(&k);
        if (takes_back && stands(&k))
            (void)withdraw(&k);
        else if (!takes_back)
            CHECK_OK(purge_try(&k, KEY, "a", NULL), &k.ei);
        CHECK(stands(&k) == !takes_back);
        check_whole(&k);
        kit_close(&k);
        fs_free(after);
    }
    fs_free(fs);
    return hit;
}

static void faults_everywhere(enum fs_sim_fault fault)
{
    for (int takes_back = 0; takes_back < 2; takes_back++) {
        uint64_t op = 0;

        while (fault_at(takes_back == 1, fault, op))
            op++;
        CHECK(op > CRASH_STEPS_MIN);
    }
}

static void test_crash_everywhere(void **state)
{
    (void)state;
    faults_everywhere(FS_SIM_FAULT_CRASH);
}

static void test_failure_everywhere(void **state)
{
    (void)state;
    faults_everywhere(FS_SIM_FAULT_EIO);
}

/* ---- bytes ---- */

static struct purge_list *random_list(struct test_random *r, size_t count)
{
    struct purge_list *list = NULL;

    for (size_t i = 0; i < count; i++) {
        char text[16];
        struct purge_item p = {test_random_u64(r), test_random_u64(r), {text, 1}};
        struct purge_list *next = NULL;
        enum err e;

        p.key.size = 1 + test_random_below(r, sizeof text);
        for (size_t c = 0; c < p.key.size; c++)
            text[c] = (char)('a' + test_random_below(r, 3));
        e = purge_list_add(list, &p, 1, &next, NULL);
        CHECK(e == (purge_list_find(list, p.key) == NULL ? ERR_OK : ERR_EXISTS));
        if (e != ERR_OK)
            continue;
        CHECK(purge_list_find(next, p.key)->generation == p.generation);
        purge_list_unref(list);
        list = next;
    }
    return list;
}

/* Some of the keys, and some that are not there. */
static void check_removal(struct test_random *r, const struct purge_list *list)
{
    struct str keys[128];
    struct purge_list *less = NULL;
    struct errinfo ei = {0};
    size_t count = 0, kept = 0, all = list == NULL ? 0 : list->count;

    for (size_t i = 0; i < all; i++) {
        if (test_random_below(r, 2) == 0)
            keys[count++] = list->items[i].key;
    }
    if (test_random_below(r, 2) == 0)
        keys[count++] = STR_LITERAL("x"); /* keys are of a, b, and c */
    CHECK_OK(purge_list_remove(list, keys, count, &less, &ei), &ei);
    for (size_t i = 0, at = 0; i < all; i++) {
        bool is_removed = at < count && str_equal(keys[at], list->items[i].key);

        at += is_removed;
        kept += !is_removed;
        CHECK((purge_list_find(less, list->items[i].key) == NULL) == is_removed);
    }
    CHECK((less == NULL ? 0 : less->count) == kept && (less != NULL || kept == 0));
    purge_list_unref(less);
}

static void test_bytes(void **state)
{
    struct test_random r = test_random_init(8);
    struct byte_writer w, again;

    (void)state;
    writer_init(&w);
    writer_init(&again);
    for (size_t n = 0; n < 40; n++) {
        struct purge_list *list = random_list(&r, n), *got = NULL, *less = NULL;
        struct errinfo ei = {0};

        writer_reset(&w);
        CHECK_OK(purge_list_encode(list, &w, &ei), &ei);
        CHECK_OK(purge_list_decode(w.data, w.size, &got, &ei), &ei);
        CHECK((got == NULL) == (n == 0));
        for (size_t i = 0; got != NULL && i < got->count; i++)
            CHECK(str_equal(got->items[i].key, list->items[i].key) &&
                  got->items[i].generation == list->items[i].generation &&
                  got->items[i].file_count == list->items[i].file_count);
        if (got != NULL) {
            CHECK_OK(purge_list_remove(list, &got->items[0].key, 1, &less, &ei), &ei);
            CHECK((less == NULL ? 0 : less->count) + 1 == list->count);
            CHECK(purge_list_find(less, got->items[0].key) == NULL);
        }
        purge_list_unref(less);
        check_removal(&r, list);
        purge_list_unref(got);
        for (size_t cut = 0; cut < w.size; cut++)
            CHECK(purge_list_decode(w.data, cut, &got, NULL) == ERR_CORRUPT);
        /* What is taken of damaged bytes is the same when it is written. */
        for (size_t bit = 0; bit < 8 * w.size; bit++) {
            w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            got = NULL;
            if (purge_list_decode(w.data, w.size, &got, NULL) == ERR_OK) {
                writer_reset(&again);
                CHECK_OK(purge_list_encode(got, &again, &ei), &ei);
                CHECK(again.size == w.size && memcmp(again.data, w.data, w.size) == 0);
                purge_list_unref(got);
            }
            w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        purge_list_unref(list);
    }
    writer_done(&w);
    writer_done(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_withdrawn_restores),
        cmocka_unit_test(test_flushed_is_gone),
        cmocka_unit_test(test_retired),
        cmocka_unit_test(test_others_stand),
        cmocka_unit_test(test_series_that_left),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_many_withdrawn),
        cmocka_unit_test(test_many_cost_as_one),
        cmocka_unit_test(test_of_nothing),
        cmocka_unit_test(test_merge_under_way),
        cmocka_unit_test(test_crash_everywhere),
        cmocka_unit_test(test_failure_everywhere),
        cmocka_unit_test(test_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
