/*
 * What tests of crashes and of damaged files share: layers in memory, the ways a crash may lose
 * what was not synced, whole files. Everything here is CHECKed.
 */
#ifndef RIMSTONE_TESTS_TEST_FS_H
#define RIMSTONE_TESTS_TEST_FS_H

#include "base/file_sim.h"

/* A new simulated layer; the caller frees it. */
struct fs *test_fs_new(uint64_t seed);
/* The same with a directory whose name is durable. */
struct fs *test_fs_new_with(uint64_t seed, const char *dir);

/* One way a crash may go. */
struct test_crash_mode {
    enum fs_sim_loss loss;
    uint64_t seed;
};
enum { TEST_CRASH_MODE_COUNT = 5 };
extern const struct test_crash_mode test_crash_modes[TEST_CRASH_MODE_COUNT];

/* What is left after a crash, for the caller to free; `fs` stays as it is. */
struct fs *test_fs_after(struct fs *fs, enum fs_sim_loss loss, uint64_t seed);
/* The same, drawing from the mode's seed and `seed`. */
struct fs *test_fs_after_crash(struct fs *fs, const struct test_crash_mode *mode, uint64_t seed);

/* Creates the file with this content, unsynced; it must not exist. */
void test_file_create(struct fs *fs, const char *path, const void *data, size_t size);
/* The whole file, malloc()ed; never NULL. */
uint8_t *test_file_read(struct fs *fs, const char *path, size_t *out_size);

#endif
