/*
 * Merges that do not come to their end: power loss, errors and a full disk at every file operation,
 * a memory limit, damaged inputs, a stop. The inputs are never touched, nothing of the result stays
 * (after a crash: only names that are known as debris), and the next attempt succeeds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim.h"
#include "tests/compactor/merge_kit.h"
#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"

enum { INPUTS = 3 };

static const struct merge_kit_shape shape = {
    .presence_percent = 70, .chunks_max = 4, .samples_max = 30};

/* A disk with three parts, two of which overlap. */
struct scene {
    struct test_random random;
    struct merge_kit kit;
    struct part_key keys[INPUTS], result;
};

static struct part_store *store_on(struct fs *fs, struct budget *memory)
{
    struct part_store_options o = {
        .fs = fs, .memory = memory, .cache_bytes = 1 << 20, .descriptor_count = 4};
    struct part_store *s;
    struct errinfo ei = {0};

    CHECK_OK(part_store_new(&o, &s, &ei), &ei);
    return s;
}

static void scene_init(struct scene *s, uint64_t seed)
{
    const bool chosen[INPUTS] = {true, true, true};
    struct errinfo ei = {0};

    s->random = test_random_init(seed);
    merge_kit_init(&s->kit, &s->random, 40);
    s->keys[0] = merge_kit_key(0, 2, 1);
    s->keys[1] = merge_kit_key(2, 2, 2);
    s->keys[2] = merge_kit_key(0, 2, 7);
    CHECK_OK(merge_inputs_valid(s->keys, chosen, INPUTS, &s->result, &ei), &ei);
}

/* The same parts each time. */
static struct fs *scene_disk(struct scene *s, uint64_t seed)
{
    struct errinfo ei = {0};
    struct part_store *store;
    struct fs *fs;

    CHECK_OK(fs_sim_new(seed, &fs, &ei), &ei);
    CHECK_OK(fs_mkdir(fs, "parts", &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    store = store_on(fs, NULL);
    s->random = test_random_init(77);
    s->kit.written.count = 0;
    for (size_t i = 0; i < INPUTS; i++)
        merge_kit_part(&s->kit, store, "parts", &s->keys[i], shape);
    part_store_free(store);
    return fs;
}

static void scene_done(struct scene *s)
{
    merge_kit_done(&s->kit);
}

/* Opens the inputs and merges them; `o` holds what the test wants otherwise. */
static enum err scene_merge(const struct scene *s, struct part_store *store, struct merge_options o,
                            struct merge_result *result, struct errinfo *ei)
{
    struct part *parts[INPUTS] = {NULL};
    enum err e = ERR_OK;

    for (size_t i = 0; i < INPUTS && e == ERR_OK; i++)
        e = part_open(store, "parts", &s->keys[i], &parts[i], ei);
    o.store = store;
    o.dir = "parts";
    o.key = s->result;
    o.inputs = parts;
    o.input_count = INPUTS;
    if (e == ERR_OK)
        e = merge_run(&o, result, ei);
    for (size_t i = 0; i < INPUTS; i++)
        part_close(parts[i]);
    return e;
}

/* ---- what is on the disk ---- */

struct listing {
    const struct scene *scene;
    unsigned inputs, result, temporary;
};

static enum err visit_name(void *ctx, const char *name, struct errinfo *ei)
{
    struct listing *l = ctx;
    struct part_key key;
    enum part_file file;
    bool temporary, known = false;

    (void)ei;
    CHECK_MSG(part_name_parse(name, &key, &file, &temporary), "%s", name);
    for (size_t i = 0; i < INPUTS; i++)
        known |= part_key_equal(&key, &l->scene->keys[i]);
    CHECK_MSG(known || part_key_equal(&key, &l->scene->result), "%s", name);
    if (known)
        l->inputs += !temporary;
    else
        l->result += !temporary;
    l->temporary += temporary;
    return ERR_OK;
}

static struct listing list(const struct scene *s, struct fs *fs)
{
    struct listing l = {.scene = s};
    struct errinfo ei = {0};

    CHECK_OK(fs_list(fs, "parts", visit_name, &l, &ei), &ei);
    CHECK(l.inputs == 2 * INPUTS);
    return l;
}

static void check_nothing_left(const struct scene *s, struct fs *fs)
{
    struct listing l = list(s, fs);

    CHECK(l.result == 0 && l.temporary == 0);
}

static void check_part(const struct scene *s, struct part_store *store, const struct part_key *key,
                       const struct merge_kit_list *expected)
{
    struct merge_kit_list got = {0};
    struct part_info info;
    struct errinfo ei = {0};
    struct part *p;

    CHECK_OK(part_verify(store, "parts", key, NULL, &info, &ei), &ei);
    CHECK_OK(part_open(store, "parts", key, &p, &ei), &ei);
    merge_kit_read(&s->kit, p, &got);
    merge_kit_check_equal(expected, &got);
    part_close(p);
    merge_kit_list_done(&got);
}

/* The inputs and, when it is said to be there, the result are what they should be. */
static void check_disk(const struct scene *s, struct fs *fs, bool has_result)
{
    struct part_store *store = store_on(fs, NULL);
    struct merge_kit_list all = {0};

    for (size_t i = 0; i < INPUTS; i++) {
        struct merge_kit_list one = {0};

        for (size_t n = 0; n < s->kit.written.count; n++) {
            if (s->kit.written.items[n].generation == s->keys[i].generation)
                merge_kit_list_push(&one, s->kit.written.items[n]);
        }
        check_part(s, store, &s->keys[i], &one);
        merge_kit_list_done(&one);
    }
    if (has_result) {
        merge_kit_list_copy(&all, &s->kit.written);
        merge_kit_list_settle(&all);
        check_part(s, store, &s->result, &all);
        merge_kit_list_done(&all);
    }
    part_store_free(store);
}

/* As a start does: what no manifest names goes. */
static void remove_debris(const struct scene *s, struct fs *fs)
{
    struct errinfo ei = {0};

    for (int i = 0; i < 4; i++) {
        char path[PART_NAME_SIZE + 8] = "parts/";
        bool exists;

        part_name_format(&s->result, (enum part_file)(i % 2), i >= 2, path + 6);
        CHECK_OK(fs_exists(fs, path, &exists, &ei), &ei);
        if (exists)
            CHECK_OK(fs_unlink(fs, path, &ei), &ei);
    }
}

static void check_again(const struct scene *s, struct fs *fs)
{
    struct part_store *store = store_on(fs, NULL);
    struct merge_result result;
    struct errinfo ei = {0};

    CHECK_OK(scene_merge(s, store, (struct merge_options){0}, &result, &ei), &ei);
    part_store_free(store);
    check_disk(s, fs, true);
}

static uint64_t op_count(struct scene *s, uint64_t *first)
{
    struct fs *fs = scene_disk(s, 1);
    uint64_t end;

    *first = fs_sim_op_count(fs);
    check_again(s, fs);
    end = fs_sim_op_count(fs);
    fs_free(fs);
    return end;
}

/* ---- the disk ---- */

static void crash_at(struct scene *s, uint64_t op, enum fs_sim_loss loss, uint64_t seed)
{
    struct fs *fs = scene_disk(s, seed), *after;
    struct part_store *store = store_on(fs, NULL);
    struct merge_result result;
    struct errinfo ei = {0};

    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, op);
    CHECK(scene_merge(s, store, (struct merge_options){0}, &result, &ei) == ERR_IO);
    part_store_free(store);
    CHECK_OK(fs_sim_after_crash(fs, loss, seed, &after, &ei), &ei);
    (void)list(s, after);
    check_disk(s, after, false);
    remove_debris(s, after);
    check_again(s, after);
    fs_free(after);
    fs_free(fs);
}

static void test_crash_everywhere(void **state)
{
    struct scene s;
    uint64_t first, end;

    (void)state;
    scene_init(&s, 31);
    end = op_count(&s, &first);
    CHECK(end - first >= 8);
    for (uint64_t op = first; op < end; op++) {
        crash_at(&s, op, FS_SIM_KEEP_ALL, 100 + op);
        crash_at(&s, op, FS_SIM_DROP_ALL, 200 + op);
        for (uint64_t seed = 0; seed < 5; seed++)
            crash_at(&s, op, FS_SIM_DROP_RANDOM, 1000 * seed + op);
    }
    scene_done(&s);
}

static void test_result_is_durable(void **state)
{
    struct scene s;
    struct fs *fs, *after;
    struct errinfo ei = {0};

    (void)state;
    scene_init(&s, 32);
    fs = scene_disk(&s, 32);
    check_again(&s, fs);
    CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
    check_disk(&s, after, true);
    fs_free(after);
    fs_free(fs);
    scene_done(&s);
}

static void test_failures_everywhere(void **state)
{
    static const enum fs_sim_fault faults[] = {FS_SIM_FAULT_EIO, FS_SIM_FAULT_NO_SPACE};
    unsigned failed[2] = {0, 0};
    struct scene s;
    uint64_t first, end;

    (void)state;
    scene_init(&s, 33);
    end = op_count(&s, &first);
    for (uint64_t op = first; op < end; op++) {
        for (size_t f = 0; f < 2; f++) {
            struct fs *fs = scene_disk(&s, op);
            struct part_store *store = store_on(fs, NULL);
            struct merge_result result;
            struct errinfo ei = {0};
            enum err e;

            fs_sim_set_fault(fs, faults[f], op);
            e = scene_merge(&s, store, (struct merge_options){0}, &result, &ei);
            CHECK(e == ERR_OK || (e == (f == 0 ? ERR_IO : ERR_NO_SPACE) && ei.message[0] != '\0'));
            failed[f] += e != ERR_OK;
            fs_sim_clear_fault(fs);
            part_store_free(store);
            if (e != ERR_OK) {
                check_nothing_left(&s, fs);
                check_again(&s, fs);
            }
            check_disk(&s, fs, true);
            fs_free(fs);
        }
    }
    CHECK(failed[0] == end - first && failed[1] >= 4);
    scene_done(&s);
}

/* ---- memory ---- */

static void test_memory_limit(void **state)
{
    bool succeeded = false;
    unsigned refused = 0;
    struct scene s;

    (void)state;
    scene_init(&s, 34);
    for (uint64_t limit = 64 << 10; limit < (64 << 20) && !succeeded; limit += limit / 8) {
        struct fs *fs = scene_disk(&s, limit);
        struct budget memory;
        struct part_store *store;
        struct merge_result result;
        struct errinfo ei = {0};
        enum err e;

        budget_init(&memory, "test", limit, NULL);
        store = store_on(fs, &memory);
        e = scene_merge(&s, store, (struct merge_options){.memory = &memory}, &result, &ei);
        succeeded = e == ERR_OK;
        CHECK_MSG(succeeded || e == ERR_LIMIT, "%s", ei.message);
        if (!succeeded)
            check_nothing_left(&s, fs);
        refused += !succeeded;
        part_store_free(store);
        CHECK(budget_used(&memory) == 0);
        check_disk(&s, fs, succeeded);
        fs_free(fs);
    }
    CHECK(succeeded && refused > 3);
    scene_done(&s);
}

/* ---- damage ---- */

static uint64_t size_of(struct fs *fs, const char *path)
{
    struct errinfo ei = {0};
    struct file *f;
    uint64_t size;

    CHECK_OK(file_open(fs, path, FILE_READ, &f, &ei), &ei);
    CHECK_OK(file_size(f, &size, &ei), &ei);
    file_close(f);
    return size;
}

/* One bit of an input: the merge gives the right result (the bit lies where a merge does not read)
 * or stops with the input's name, and nothing is left. */
static void test_damaged_inputs(void **state)
{
    unsigned failed = 0;
    struct scene s;

    (void)state;
    scene_init(&s, 35);
    for (uint64_t i = 0; i < 200; i++) {
        struct fs *fs = scene_disk(&s, i);
        char name[PART_NAME_SIZE], path[PART_NAME_SIZE + 8];
        struct test_random r = test_random_init(900 + i);
        struct part_store *store;
        struct merge_result result;
        struct errinfo ei = {0};
        enum err e;
        enum part_file file = (enum part_file)test_random_below(&r, 2);

        part_name_format(&s.keys[test_random_below(&r, INPUTS)], file, false, name);
        (void)snprintf(path, sizeof path, "parts/%s", name);
        CHECK_OK(fs_sim_flip_bit(fs, path, test_random_below(&r, 8 * size_of(fs, path)), &ei), &ei);
        store = store_on(fs, NULL);
        e = scene_merge(&s, store, (struct merge_options){0}, &result, &ei);
        if (e != ERR_OK) {
            CHECK_MSG(e == ERR_CORRUPT || e == ERR_UNSUPPORTED, "%s", ei.message);
            CHECK_MSG(strstr(ei.message, name) != NULL, "%s: %s", name, ei.message);
            check_nothing_left(&s, fs);
            failed++;
        } else {
            struct merge_kit_list all = {0};

            merge_kit_list_copy(&all, &s.kit.written);
            merge_kit_list_settle(&all);
            check_part(&s, store, &s.result, &all);
            merge_kit_list_done(&all);
        }
        part_store_free(store);
        fs_free(fs);
    }
    CHECK(failed > 100);
    scene_done(&s);
}

/* ---- stopping and yielding ---- */

struct stopper {
    _Atomic bool stop;
    unsigned calls, stop_at;
};

static enum err stop_later(void *ctx, const struct labels *labels, struct hash128 print,
                           uint64_t generation, const struct merge_range **out, size_t *out_count,
                           struct errinfo *ei)
{
    struct stopper *s = ctx;

    (void)labels, (void)print, (void)generation, (void)ei;
    *out = NULL;
    *out_count = 0;
    if (++s->calls == s->stop_at)
        atomic_store(&s->stop, true);
    return ERR_OK;
}

/* At any series: ERR_CANCELED, nothing left. */
static void test_stop_in_the_middle(void **state)
{
    struct scene s;
    bool finished = false;

    (void)state;
    scene_init(&s, 36);
    for (unsigned at = 1; !finished; at++) {
        struct fs *fs = scene_disk(&s, at);
        struct part_store *store = store_on(fs, NULL);
        struct stopper stopper = {.stop_at = at};
        struct merge_options o = {.purge = {stop_later, &stopper}, .stop = &stopper.stop};
        struct merge_result result;
        struct errinfo ei = {0};
        enum err e = scene_merge(&s, store, o, &result, &ei);

        part_store_free(store);
        finished = stopper.calls < at;
        CHECK(e == (finished ? ERR_OK : ERR_CANCELED));
        if (!finished) {
            CHECK(stopper.calls <= at + INPUTS); /* not a series more */
            check_nothing_left(&s, fs);
        }
        fs_free(fs);
        CHECK(at < 1000);
    }
    scene_done(&s);
}

static enum err purge_fails(void *ctx, const struct labels *labels, struct hash128 print,
                            uint64_t generation, const struct merge_range **out, size_t *out_count,
                            struct errinfo *ei)
{
    (void)ctx, (void)labels, (void)print, (void)generation, (void)out, (void)out_count;
    return errinfo_set(ei, ERR_LIMIT, 0, "tombstones");
}

static enum err purge_all(void *ctx, const struct labels *labels, struct hash128 print,
                          uint64_t generation, const struct merge_range **out, size_t *out_count,
                          struct errinfo *ei)
{
    static const struct merge_range all = {INT64_MIN, INT64_MAX};

    (void)ctx, (void)labels, (void)print, (void)generation, (void)ei;
    *out = &all;
    *out_count = 1;
    return ERR_OK;
}

/* A hook that fails ends the merge with its error; one that drops all leaves no part. */
static void test_purge_hook(void **state)
{
    struct scene s;
    struct fs *fs;
    struct part_store *store;
    struct merge_result result;
    struct errinfo ei = {0};

    (void)state;
    scene_init(&s, 37);
    fs = scene_disk(&s, 37);
    store = store_on(fs, NULL);
    CHECK(scene_merge(&s, store, (struct merge_options){.purge = {purge_fails, NULL}}, &result,
                      &ei) == ERR_LIMIT);
    CHECK(strstr(ei.message, "tombstones") != NULL);
    check_nothing_left(&s, fs);
    errinfo_clear(&ei);
    CHECK_OK(
        scene_merge(&s, store, (struct merge_options){.purge = {purge_all, NULL}}, &result, &ei),
        &ei);
    CHECK(!result.written && result.stats.samples_purged == s.kit.written.count);
    check_nothing_left(&s, fs);
    part_store_free(store);
    fs_free(fs);
    scene_done(&s);
}

static void count_yield(void *ctx)
{
    ++*(unsigned *)ctx;
}

static void test_yields_and_progress(void **state)
{
    static const struct merge_kit_shape large = {
        .presence_percent = 100, .samples_max = 100, .regular = true};
    struct test_random r = test_random_init(38);
    struct merge_progress progress = {0};
    struct merge_options o = {.dir = "", .input_count = 1, .progress = &progress};
    struct kit_store store;
    struct merge_kit kit;
    struct merge_result result;
    struct errinfo ei = {0};
    unsigned yields = 0;
    const bool chosen = true;
    struct part_key key = merge_kit_key(0, 8, 1);
    struct part *p;

    (void)state;
    kit_store_init(&store, 38, 1 << 20);
    merge_kit_init(&kit, &r, 200);
    merge_kit_part(&kit, store.store, "", &key, large);
    CHECK_OK(part_open(store.store, "", &key, &p, &ei), &ei);
    CHECK_OK(merge_inputs_valid(&key, &chosen, 1, &o.key, &ei), &ei);
    CHECK(o.key.generation == 2); /* a name of its own */
    o.store = store.store;
    o.inputs = &p;
    o.yield = count_yield;
    o.yield_ctx = &yields;
    CHECK_OK(merge_run(&o, &result, &ei), &ei);
    CHECK(yields >= kit.written.count / 70000 && yields <= kit.written.count / 60000 + 1);
    CHECK(atomic_load(&progress.samples_total) == kit.written.count);
    CHECK(atomic_load(&progress.samples_done) == kit.written.count);
    CHECK(atomic_load(&progress.series_done) == kit.series_count);
    part_close(p);
    merge_kit_done(&kit);
    kit_store_done(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_everywhere),    cmocka_unit_test(test_result_is_durable),
        cmocka_unit_test(test_failures_everywhere), cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_damaged_inputs),      cmocka_unit_test(test_stop_in_the_middle),
        cmocka_unit_test(test_purge_hook),          cmocka_unit_test(test_yields_and_progress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
