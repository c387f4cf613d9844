#include "tests/lib/test_fs.h"

#include <stdlib.h>

#include "tests/lib/test_support.h"

const struct test_crash_mode test_crash_modes[TEST_CRASH_MODE_COUNT] = {{FS_SIM_KEEP_ALL, 1},
                                                                        {FS_SIM_DROP_ALL, 2},
                                                                        {FS_SIM_DROP_RANDOM, 3},
                                                                        {FS_SIM_DROP_RANDOM, 4},
                                                                        {FS_SIM_DROP_RANDOM, 5}};

struct fs *test_fs_new(uint64_t seed)
{
    struct errinfo ei = {0};
    struct fs *fs;

    CHECK_OK(fs_sim_new(seed, &fs, &ei), &ei);
    return fs;
}

struct fs *test_fs_new_with(uint64_t seed, const char *dir)
{
    struct fs *fs = test_fs_new(seed);
    struct errinfo ei = {0};

    CHECK_OK(fs_mkdir(fs, dir, &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    return fs;
}

struct fs *test_fs_after(struct fs *fs, enum fs_sim_loss loss, uint64_t seed)
{
    struct errinfo ei = {0};
    struct fs *after;

    CHECK_OK(fs_sim_after_crash(fs, loss, seed, &after, &ei), &ei);
    return after;
}

struct fs *test_fs_after_crash(struct fs *fs, const struct test_crash_mode *mode, uint64_t seed)
{
    return test_fs_after(fs, mode->loss, mode->seed * 1000 + seed);
}

void test_file_create(struct fs *fs, const char *path, const void *data, size_t size)
{
    struct errinfo ei = {0};
    struct file *f;

    CHECK_OK(file_open(fs, path, FILE_CREATE, &f, &ei), &ei);
    if (size > 0)
        CHECK_OK(file_write_bytes(f, data, size, 0, &ei), &ei);
    file_close(f);
}

uint8_t *test_file_read(struct fs *fs, const char *path, size_t *out_size)
{
    struct errinfo ei = {0};
    struct file *f;
    uint64_t size;
    uint8_t *data;

    CHECK_OK(file_open(fs, path, FILE_READ, &f, &ei), &ei);
    CHECK_OK(file_size(f, &size, &ei), &ei);
    data = malloc(size + 1);
    CHECK(data != NULL);
    CHECK_OK(file_read(f, data, size, 0, &ei), &ei);
    file_close(f);
    *out_size = size;
    return data;
}
