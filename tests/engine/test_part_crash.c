/*
 * The part writer on a disk that fails: power loss, kills, errors and a full disk at every file
 * operation. Afterwards the part is whole, or what is left bears names that are known as debris,
 * and the same part can be written again.
 */
#include <inttypes.h>
#include <string.h>

#include "tests/engine/part_kit.h"
#include "tests/lib/test_cmocka.h"

static const struct kit_shape shape = {
    .series_count = 60, .spread = 20, .samples_max = 10, .chunks_max = 2};

static struct part_store *store_on(struct fs *fs)
{
    struct part_store_options o = {.fs = fs, .cache_bytes = 1 << 20, .descriptor_count = 2};
    struct part_store *s;
    struct errinfo ei = {0};

    CHECK_OK(part_store_new(&o, &s, &ei), &ei);
    return s;
}

/* Everything in the directory has a name that tells what it is. */
struct listing {
    unsigned temporary, final;
};
static enum err visit_name(void *ctx, const char *name, struct errinfo *ei)
{
    struct listing *l = ctx;
    struct part_key key;
    enum part_file file;
    bool temporary;

    (void)ei;
    CHECK_MSG(part_name_parse(name, &key, &file, &temporary), "%s", name);
    CHECK(part_key_equal(&key, &kit_key));
    *(temporary ? &l->temporary : &l->final) += 1;
    return ERR_OK;
}

static struct listing list(struct fs *fs)
{
    struct listing l = {0, 0};
    struct errinfo ei = {0};

    CHECK_OK(fs_list(fs, "parts", visit_name, &l, &ei), &ei);
    return l;
}

static void remove_all(struct fs *fs)
{
    struct errinfo ei = {0};

    for (int i = 0; i < 4; i++) {
        char path[PART_NAME_SIZE + 8] = "parts/";
        bool exists;

        part_name_format(&kit_key, (enum part_file)(i % 2), i >= 2, path + 6);
        CHECK_OK(fs_exists(fs, path, &exists, &ei), &ei);
        if (exists)
            CHECK_OK(fs_unlink(fs, path, &ei), &ei);
    }
}

static void check_whole(struct fs *fs, const struct kit_model *m)
{
    struct part_store *s = store_on(fs);
    struct part_info info;
    struct errinfo ei = {0};
    struct part *p;

    CHECK_OK(part_open(s, "parts", &kit_key, &p, &ei), &ei);
    kit_check_all(p, m);
    part_close(p);
    CHECK_OK(part_verify(s, "parts", &kit_key, NULL, &info, &ei), &ei);
    part_store_free(s);
}

/* Debris is removed, as a start does, and the part written anew. */
static void check_again(struct fs *fs, const struct kit_model *m)
{
    struct part_store *s = store_on(fs);
    struct part_info info;
    struct errinfo ei = {0};

    remove_all(fs);
    CHECK_OK(kit_write(s, "parts", m, 0, &info, &ei), &ei);
    part_store_free(s);
    check_whole(fs, m);
}

static struct fs *disk_new(uint64_t seed)
{
    struct errinfo ei = {0};
    struct fs *fs;

    CHECK_OK(fs_sim_new(seed, &fs, &ei), &ei);
    CHECK_OK(fs_mkdir(fs, "parts", &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    return fs;
}

static uint64_t op_count(const struct kit_model *m, uint64_t *first)
{
    struct fs *fs = disk_new(1);
    struct part_store *s = store_on(fs);
    struct part_info info;
    struct errinfo ei = {0};
    uint64_t end;

    *first = fs_sim_op_count(fs);
    CHECK_OK(kit_write(s, "parts", m, 0, &info, &ei), &ei);
    end = fs_sim_op_count(fs);
    part_store_free(s);
    fs_free(fs);
    return end;
}

static void crash_at(const struct kit_model *m, uint64_t op, enum fs_sim_loss loss, uint64_t seed)
{
    struct fs *fs = disk_new(seed), *after;
    struct part_store *s = store_on(fs);
    struct part_info info;
    struct errinfo ei = {0};
    enum err e;

    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, op);
    e = kit_write(s, "parts", m, 0, &info, &ei);
    part_store_free(s);
    /* The last operation is the directory's sync: until it has succeeded nothing is promised. */
    CHECK(e == ERR_IO);
    CHECK_OK(fs_sim_after_crash(fs, loss, seed, &after, &ei), &ei);
    (void)list(after);
    check_again(after, m);
    fs_free(after);
    fs_free(fs);
}

static void test_crash_everywhere(void **state)
{
    struct test_random r = test_random_init(21);
    struct kit_model m;
    uint64_t first, end;

    (void)state;
    kit_model_init(&m, &r, shape);
    end = op_count(&m, &first);
    CHECK(end - first >= 8); /* create, write, sync and rename twice, and the directory */
    for (uint64_t op = first; op < end; op++) {
        crash_at(&m, op, FS_SIM_KEEP_ALL, 100 + op);
        crash_at(&m, op, FS_SIM_DROP_ALL, 200 + op);
        for (uint64_t seed = 0; seed < 5; seed++)
            crash_at(&m, op, FS_SIM_DROP_RANDOM, 1000 * seed + op);
    }
    kit_model_done(&m);
}

/* What part_writer_finish() has promised survives the loss of everything unsynced. */
static void test_finished_is_durable(void **state)
{
    struct test_random r = test_random_init(22);
    struct fs *fs = disk_new(22), *after;
    struct part_store *s = store_on(fs);
    struct kit_model m;
    struct part_info info;
    struct errinfo ei = {0};

    (void)state;
    kit_model_init(&m, &r, shape);
    CHECK_OK(kit_write(s, "parts", &m, 0, &info, &ei), &ei);
    part_store_free(s);
    CHECK_OK(fs_sim_after_crash(fs, FS_SIM_DROP_ALL, 1, &after, &ei), &ei);
    check_whole(after, &m);
    fs_free(after);
    fs_free(fs);
    kit_model_done(&m);
}

static void fail_at(const struct kit_model *m, uint64_t op, enum fs_sim_fault fault,
                    enum err expected)
{
    struct fs *fs = disk_new(op);
    struct part_store *s = store_on(fs);
    struct part_info info;
    struct errinfo ei = {0};
    struct listing l;

    fs_sim_set_fault(fs, fault, op);
    CHECK_MSG(kit_write(s, "parts", m, 0, &info, &ei) == expected, "operation %" PRIu64 ": %s", op,
              ei.message);
    CHECK(fs_sim_fault_hit(fs) && ei.message[0] != '\0');
    fs_sim_clear_fault(fs);
    /* The disk works again: the writer has tidied up, and the next attempt succeeds. */
    l = list(fs);
    CHECK_MSG(l.temporary == 0 && l.final == 0, "operation %" PRIu64, op);
    CHECK_OK(kit_write(s, "parts", m, 0, &info, &ei), &ei);
    part_store_free(s);
    check_whole(fs, m);
    fs_free(fs);
}

static void test_failures_everywhere(void **state)
{
    struct test_random r = test_random_init(23);
    struct kit_model m;
    uint64_t first, end;

    (void)state;
    kit_model_init(&m, &r, shape);
    end = op_count(&m, &first);
    for (uint64_t op = first; op < end; op++)
        fail_at(&m, op, FS_SIM_FAULT_EIO, ERR_IO);
    kit_model_done(&m);
}

/* A full disk: creations and writes fail from some operation on, until there is room. */
static void test_full_disk(void **state)
{
    struct test_random r = test_random_init(24);
    struct kit_model m;
    uint64_t first, end;
    unsigned refused = 0;

    (void)state;
    kit_model_init(&m, &r, shape);
    end = op_count(&m, &first);
    for (uint64_t op = first; op < end; op++) {
        struct fs *fs = disk_new(op);
        struct part_store *s = store_on(fs);
        struct part_info info;
        struct errinfo ei = {0};
        enum err e;

        fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, op);
        e = kit_write(s, "parts", &m, 0, &info, &ei);
        CHECK(e == ERR_OK || e == ERR_NO_SPACE);
        refused += e != ERR_OK;
        fs_sim_clear_fault(fs);
        if (e == ERR_NO_SPACE) {
            struct listing l = list(fs);

            CHECK(l.temporary == 0 && l.final == 0);
            CHECK_OK(kit_write(s, "parts", &m, 0, &info, &ei), &ei);
        }
        part_store_free(s);
        check_whole(fs, &m);
        fs_free(fs);
    }
    CHECK(refused >= 4); /* two creations, two writes at least */
    kit_model_done(&m);
}

/* The memory limit: ERR_LIMIT at any charge, everything given back, nothing left on disk. */
static void test_memory_limit(void **state)
{
    struct test_random r = test_random_init(25);
    struct kit_model m;
    bool succeeded = false;

    (void)state;
    kit_model_init(&m, &r, shape);
    for (uint64_t limit = 64 << 10; limit < (64 << 20) && !succeeded; limit += limit / 16) {
        struct fs *fs = disk_new(1);
        struct budget memory;
        struct part_store_options o = {
            .fs = fs, .memory = &memory, .cache_bytes = 1 << 20, .descriptor_count = 2};
        struct part_store *s;
        struct part_info info;
        struct errinfo ei = {0};
        enum err e;

        budget_init(&memory, "test", limit, NULL);
        CHECK_OK(part_store_new(&o, &s, &ei), &ei);
        e = kit_write(s, "parts", &m, 0, &info, &ei);
        succeeded = e == ERR_OK;
        CHECK(succeeded || e == ERR_LIMIT);
        CHECK(budget_used(&memory) == 0);
        CHECK(list(fs).final == (succeeded ? 2 : 0) && list(fs).temporary == 0);
        part_store_free(s);
        fs_free(fs);
    }
    CHECK(succeeded);
    kit_model_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_everywhere),    cmocka_unit_test(test_finished_is_durable),
        cmocka_unit_test(test_failures_everywhere), cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_memory_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
