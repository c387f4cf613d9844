/* What the simulated layer loses, tears, reorders and refuses: tests above it rely on each rule. */
#include "base/file_sim.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static struct errinfo ei;

static struct fs *sim_new(uint64_t seed)
{
    struct fs *fs = NULL;

    errinfo_clear(&ei);
    CHECK_OK(fs_sim_new(seed, &fs, &ei), &ei);
    return fs;
}

static struct fs *crash(struct fs *fs, enum fs_sim_loss loss, uint64_t seed)
{
    struct fs *after = NULL;

    CHECK_OK(fs_sim_after_crash(fs, loss, seed, &after, &ei), &ei);
    CHECK(fs_kind_of(after) == FS_SIM);
    return after;
}

static struct file *open_file(struct fs *fs, const char *path, enum file_mode mode)
{
    struct file *f = NULL;

    CHECK_OK(file_open(fs, path, mode, &f, &ei), &ei);
    return f;
}

static enum err write_text(struct file *f, const char *text, uint64_t offset)
{
    struct iovec iov = {(char *)text, strlen(text)};

    return file_write(f, &iov, 1, offset, NULL);
}

static enum err write_sync_text(struct file *f, const char *text, uint64_t offset)
{
    struct iovec iov = {(char *)text, strlen(text)};

    return file_write_sync(f, &iov, 1, offset, NULL);
}

/* "-" when the file is not there. */
static const char *content(struct fs *fs, const char *path)
{
    static char text[256];
    struct file *f = NULL;
    size_t n = 0;
    enum err e = file_open(fs, path, FILE_READ, &f, NULL);

    if (e == ERR_NOT_FOUND)
        return "-";
    CHECK(e == ERR_OK);
    CHECK_OK(file_read_some(f, text, sizeof text - 1, 0, &n, &ei), &ei);
    text[n] = '\0';
    file_close(f);
    return text;
}

static void check_content(struct fs *fs, const char *path, const char *want)
{
    const char *got = content(fs, path);

    CHECK_MSG(strcmp(got, want) == 0, "%s: \"%s\", not \"%s\"", path, got, want);
}

/* Checks a file after a crash of `fs` and drops the crashed state. */
static void check_after(struct fs *fs, enum fs_sim_loss loss, const char *path, const char *want)
{
    struct fs *after = crash(fs, loss, 1);

    check_content(after, path, want);
    fs_free(after);
}

/* A durable file that holds `text`. */
static void create_durable(struct fs *fs, const char *path, const char *text)
{
    struct file *f = open_file(fs, path, FILE_CREATE);

    CHECK(write_sync_text(f, text, 0) == ERR_OK);
    file_close(f);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
}

static void test_only_synced_data_survives_power_loss(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    create_durable(fs, "a", "old");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE);
    CHECK(write_text(f, "NEW, longer", 0) == ERR_OK);
    check_after(fs, FS_SIM_DROP_ALL, "a", "old");
    check_after(fs, FS_SIM_KEEP_ALL, "a", "NEW, longer");
    CHECK_OK(file_sync(f, &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "NEW, longer");
    CHECK_OK(file_truncate(f, 3, &ei), &ei);
    check_content(fs, "a", "NEW");
    check_after(fs, FS_SIM_DROP_ALL, "a", "NEW, longer");
    CHECK_OK(file_sync(f, &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "NEW");
    file_close(f);
    fs_free(fs);
}

static void test_names_need_their_directory_synced(void **state)
{
    struct fs *fs = sim_new(1);
    struct file *f = open_file(fs, "a", FILE_CREATE);

    (void)state;
    CHECK(write_sync_text(f, "text", 0) == ERR_OK);
    file_close(f);
    check_after(fs, FS_SIM_DROP_ALL, "a", "-");
    check_after(fs, FS_SIM_KEEP_ALL, "a", "text");
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "text");

    CHECK_OK(fs_rename(fs, "a", "b", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "text");
    check_after(fs, FS_SIM_DROP_ALL, "b", "-");
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "-");
    check_after(fs, FS_SIM_DROP_ALL, "b", "text");

    CHECK_OK(fs_link(fs, "b", "c", &ei), &ei);
    CHECK_OK(fs_unlink(fs, "b", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "b", "text");
    check_after(fs, FS_SIM_DROP_ALL, "c", "-");
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "b", "-");
    check_after(fs, FS_SIM_DROP_ALL, "c", "text");
    fs_free(fs);
}

static void test_new_directories_need_their_parent_synced(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    CHECK_OK(fs_mkdir(fs, "d", &ei), &ei);
    struct file *f = open_file(fs, "d/a", FILE_CREATE);
    CHECK(write_sync_text(f, "text", 0) == ERR_OK);
    file_close(f);
    CHECK_OK(fs_sync_dir(fs, "d", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "d/a", "-");
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "d/a", "text");
    CHECK_OK(fs_unlink(fs, "d/a", &ei), &ei);
    CHECK_OK(fs_unlink(fs, "d", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "d/a", "text");
    fs_free(fs);
}

/* A rename between directories is one transaction, and takes along what came before it. */
static void test_rename_between_directories(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    CHECK_OK(fs_mkdir(fs, "d", &ei), &ei);
    create_durable(fs, "a", "text");
    struct file *f = open_file(fs, "d/a", FILE_CREATE);
    file_close(f);
    CHECK_OK(fs_unlink(fs, "d/a", &ei), &ei);
    CHECK_OK(fs_rename(fs, "a", "d/a", &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "-");
    check_after(fs, FS_SIM_DROP_ALL, "d/a", "text");
    CHECK_OK(fs_sync_dir(fs, "d", &ei), &ei); /* must not replay the removal that came before */
    check_after(fs, FS_SIM_DROP_ALL, "d/a", "text");
    fs_free(fs);
}

static void test_hard_links_stay_one_file(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    create_durable(fs, "a", "text");
    CHECK_OK(fs_link(fs, "a", "b", &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    struct fs *after = crash(fs, FS_SIM_DROP_ALL, 1);
    struct file *f = open_file(after, "a", FILE_READ_WRITE);
    CHECK(write_text(f, "T", 0) == ERR_OK);
    file_close(f);
    check_content(after, "b", "Text");
    check_content(fs, "b", "text"); /* the old layer is not touched */
    fs_free(after);
    fs_free(fs);
}

static void test_kill_leaves_unsynced_data_unsynced(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    create_durable(fs, "a", "old");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE);
    CHECK(write_text(f, "new", 0) == ERR_OK);
    CHECK_OK(fs_rename(fs, "a", "b", &ei), &ei);
    struct fs *killed = crash(fs, FS_SIM_KEEP_ALL, 1);
    check_content(killed, "b", "new");
    check_after(killed, FS_SIM_DROP_ALL, "a", "old");
    struct file *again = open_file(killed, "b", FILE_READ_WRITE);
    CHECK_OK(file_sync(again, &ei), &ei);
    CHECK_OK(fs_sync_dir(killed, ".", &ei), &ei);
    check_after(killed, FS_SIM_DROP_ALL, "b", "new");
    file_close(again);
    fs_free(killed);
    file_close(f);
    fs_free(fs);
}

enum { TORN_SIZE = 4096 + 100, TORN_OFFSET = 300 };

struct torn_seen {
    int none, all, part, cut_inside_sector, later_without_earlier;
};

/* Two unsynced writes over a durable file of 'o': 'a' at TORN_OFFSET, then 'b' right behind. Every
 * byte afterwards is the old one or the written one. */
static void look_at_torn(const uint8_t *p, size_t size, struct torn_seen *seen)
{
    size_t a_count = 0, b_count = 0;

    for (size_t i = 0; i < size; i++) {
        bool in_a = i >= TORN_OFFSET && i < TORN_OFFSET + TORN_SIZE;
        bool in_b = i >= TORN_OFFSET + TORN_SIZE && i < TORN_OFFSET + 2 * TORN_SIZE;

        CHECK_MSG(p[i] == 'o' || (in_a && p[i] == 'a') || (in_b && p[i] == 'b'), "byte %zu", i);
        a_count += in_a && p[i] == 'a';
        b_count += in_b && p[i] == 'b';
        if (i > TORN_OFFSET && in_a && p[i] != p[i - 1] && i % 512 != 0)
            seen->cut_inside_sector++;
    }
    seen->none += a_count == 0 && b_count == 0;
    seen->all += a_count == TORN_SIZE && b_count == TORN_SIZE;
    seen->part += a_count > 0 && a_count < TORN_SIZE;
    seen->later_without_earlier += a_count == 0 && b_count == TORN_SIZE;
}

static void test_random_loss_tears_and_reorders(void **state)
{
    enum { FILE_SIZE = 10000 };
    struct fs *fs = sim_new(1);
    static uint8_t data[FILE_SIZE], again[FILE_SIZE];
    struct torn_seen seen = {0};

    (void)state;
    memset(data, 'o', sizeof data);
    struct file *f = open_file(fs, "a", FILE_CREATE);
    struct iovec old = {data, FILE_SIZE};
    CHECK_OK(file_write_sync(f, &old, 1, 0, &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    memset(data, 'a', TORN_SIZE);
    struct iovec first = {data, TORN_SIZE}, second = {again, TORN_SIZE};
    CHECK_OK(file_write(f, &first, 1, TORN_OFFSET, &ei), &ei);
    memset(again, 'b', TORN_SIZE);
    CHECK_OK(file_write(f, &second, 1, TORN_OFFSET + TORN_SIZE, &ei), &ei);
    for (uint64_t seed = 0; seed < 300; seed++) {
        for (int k = 0; k < 2; k++) { /* the same seed loses the same */
            struct fs *after = crash(fs, FS_SIM_DROP_RANDOM, seed);
            struct file *g = open_file(after, "a", FILE_READ);

            CHECK_OK(file_read(g, k == 0 ? data : again, FILE_SIZE, 0, &ei), &ei);
            file_close(g);
            fs_free(after);
        }
        CHECK(memcmp(data, again, FILE_SIZE) == 0);
        look_at_torn(data, FILE_SIZE, &seen);
    }
    CHECK(seen.none > 5 && seen.all > 5 && seen.part > 30);
    CHECK(seen.cut_inside_sector > 5 && seen.later_without_earlier > 5);
    file_close(f);
    fs_free(fs);
}

/* Appended data may be missing while the new length is there: zeros. */
static void test_random_loss_can_leave_zeros(void **state)
{
    struct fs *fs = sim_new(1);
    int zeros = 0, shorter = 0;

    (void)state;
    create_durable(fs, "a", "old");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE);
    CHECK(write_text(f, "appended", 3) == ERR_OK);
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct fs *after = crash(fs, FS_SIM_DROP_RANDOM, seed);
        struct file *g = open_file(after, "a", FILE_READ);
        uint64_t size = 0;
        char text[11] = "";

        CHECK_OK(file_size(g, &size, &ei), &ei);
        CHECK(size >= 3 && size <= 11);
        CHECK_OK(file_read(g, text, (size_t)size, 0, &ei), &ei);
        CHECK(memcmp(text, "old", 3) == 0);
        zeros += size == 11 && text[10] == '\0';
        shorter += size < 11;
        file_close(g);
        fs_free(after);
    }
    CHECK(zeros > 0 && shorter > 0);
    file_close(f);
    fs_free(fs);
}

static void test_random_loss_of_names_is_whole(void **state)
{
    struct fs *fs = sim_new(1);
    int old_name = 0, new_name = 0, link_only = 0;

    (void)state;
    create_durable(fs, "a", "text");
    create_durable(fs, "b", "replaced");
    CHECK_OK(fs_rename(fs, "a", "b", &ei), &ei);
    CHECK_OK(fs_link(fs, "b", "c", &ei), &ei);
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct fs *after = crash(fs, FS_SIM_DROP_RANDOM, seed);
        bool renamed = strcmp(content(after, "a"), "-") == 0;
        bool linked = strcmp(content(after, "c"), "-") != 0;

        check_content(after, "a", renamed ? "-" : "text");
        check_content(after, "b", renamed ? "text" : "replaced");
        check_content(after, "c", linked ? "text" : "-");
        old_name += !renamed;
        new_name += renamed;
        link_only += linked && !renamed;
        fs_free(after);
    }
    CHECK(old_name > 10 && new_name > 10 && link_only > 5);
    fs_free(fs);
}

static void test_failed_sync_drops_dirty_pages(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    create_durable(fs, "a", "old");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE);
    CHECK(write_text(f, "new", 0) == ERR_OK);
    fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fs_sim_op_count(fs));
    CHECK(!fs_sim_fault_hit(fs));
    CHECK(file_sync(f, NULL) == ERR_IO);
    CHECK(fs_sim_fault_hit(fs));
    check_content(fs, "a", "new"); /* the page cache shows it, and */
    CHECK_OK(file_sync(f, &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "old"); /* no later sync brings it to the platter */
    CHECK(write_sync_text(f, "x", 4) == ERR_OK);
    struct fs *after = crash(fs, FS_SIM_DROP_ALL, 1);
    CHECK(memcmp(content(after, "a"), "old\0x", 5) == 0);
    fs_free(after);
    file_close(f);
    fs_free(fs);
}

static void test_single_failures(void **state)
{
    struct fs *fs = sim_new(1);
    struct file *f = NULL;

    (void)state;
    fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, 1); /* the second operation */
    CHECK_OK(fs_mkdir(fs, "d", &ei), &ei);
    CHECK(file_open(fs, "a", FILE_CREATE, &f, NULL) == ERR_IO);
    CHECK_OK(file_open(fs, "a", FILE_CREATE, &f, &ei), &ei);
    fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fs_sim_op_count(fs) + 1);
    CHECK(write_sync_text(f, "text", 0) == ERR_IO); /* the write succeeds, its sync fails */
    check_content(fs, "a", "text");
    fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fs_sim_op_count(fs));
    CHECK(fs_rename(fs, "a", "b", NULL) == ERR_IO);
    check_content(fs, "a", "text");
    fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fs_sim_op_count(fs));
    CHECK(fs_unlink(fs, "a", NULL) == ERR_IO);
    fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fs_sim_op_count(fs));
    CHECK(file_truncate(f, 0, NULL) == ERR_IO);
    fs_sim_set_fault(fs, FS_SIM_FAULT_EIO, fs_sim_op_count(fs));
    CHECK(fs_sync_dir(fs, ".", NULL) == ERR_IO);
    check_content(fs, "a", "text");
    file_close(f);
    fs_free(fs);
}

static void test_full_disk(void **state)
{
    struct fs *fs = sim_new(1);
    uint64_t free_bytes = 0;

    (void)state;
    create_durable(fs, "a", "old");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE), *g = NULL;
    fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, fs_sim_op_count(fs));
    CHECK(write_sync_text(f, "new", 3) == ERR_NO_SPACE);
    CHECK(write_text(f, "new", 3) == ERR_NO_SPACE);
    CHECK(file_open(fs, "b", FILE_CREATE, &g, NULL) == ERR_NO_SPACE);
    CHECK(fs_mkdir(fs, "d", NULL) == ERR_NO_SPACE);
    CHECK_OK(fs_free_bytes(fs, &free_bytes, &ei), &ei);
    CHECK(free_bytes == 0 && fs_sim_fault_hit(fs));
    CHECK_OK(file_sync(f, &ei), &ei);
    CHECK(memcmp(content(fs, "a"), "old", 3) == 0);
    fs_sim_clear_fault(fs);
    CHECK(write_sync_text(f, "new", 3) == ERR_OK);
    check_content(fs, "a", "oldnew");
    CHECK_OK(fs_free_bytes(fs, &free_bytes, &ei), &ei);
    CHECK(free_bytes > 0);
    file_close(f);
    fs_free(fs);
}

static void test_operations_are_counted(void **state)
{
    struct fs *fs = sim_new(1);
    uint64_t at = fs_sim_op_count(fs);
    bool found;
    uint64_t size;

    (void)state;
    CHECK(at == 0);
    struct file *f = open_file(fs, "a", FILE_CREATE);
    CHECK(fs_sim_op_count(fs) == 1);
    CHECK(write_text(f, "x", 0) == ERR_OK && fs_sim_op_count(fs) == 2);
    CHECK(write_sync_text(f, "x", 0) == ERR_OK && fs_sim_op_count(fs) == 4);
    CHECK(file_sync(f, NULL) == ERR_OK && fs_sim_op_count(fs) == 5);
    CHECK(file_truncate(f, 0, NULL) == ERR_OK && fs_sim_op_count(fs) == 6);
    CHECK(fs_rename(fs, "a", "b", NULL) == ERR_OK && fs_sim_op_count(fs) == 7);
    CHECK(fs_link(fs, "b", "c", NULL) == ERR_OK && fs_sim_op_count(fs) == 8);
    CHECK(fs_unlink(fs, "c", NULL) == ERR_OK && fs_sim_op_count(fs) == 9);
    CHECK(fs_mkdir(fs, "d", NULL) == ERR_OK && fs_sim_op_count(fs) == 10);
    CHECK(fs_sync_dir(fs, ".", NULL) == ERR_OK && fs_sim_op_count(fs) == 11);
    CHECK(fs_exists(fs, "d", &found, NULL) == ERR_OK && file_size(f, &size, NULL) == ERR_OK);
    CHECK(fs_sim_op_count(fs) == 11); /* looking does not count */
    file_close(f);
    fs_free(fs);
}

static enum err ignore_name(void *ctx, const char *name, struct errinfo *e)
{
    (void)ctx;
    (void)name;
    (void)e;
    return ERR_OK;
}

static void test_nothing_works_after_power_loss(void **state)
{
    struct fs *fs = sim_new(1);
    bool found;
    uint64_t n;
    char byte;
    struct file *g = NULL;

    (void)state;
    struct file *f = open_file(fs, "a", FILE_CREATE);
    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, fs_sim_op_count(fs) + 1);
    CHECK(write_text(f, "x", 0) == ERR_OK && !fs_sim_fault_hit(fs));
    CHECK(file_sync(f, NULL) == ERR_IO && fs_sim_fault_hit(fs));
    CHECK(write_text(f, "x", 0) == ERR_IO && file_sync(f, NULL) == ERR_IO);
    CHECK(write_sync_text(f, "x", 0) == ERR_IO && file_truncate(f, 0, NULL) == ERR_IO);
    CHECK(file_read(f, &byte, 1, 0, NULL) == ERR_IO && file_size(f, &n, NULL) == ERR_IO);
    CHECK(file_open(fs, "a", FILE_READ, &g, NULL) == ERR_IO);
    CHECK(file_open(fs, "no", FILE_READ, &g, NULL) == ERR_IO);
    CHECK(file_open(fs, "b", FILE_CREATE, &g, NULL) == ERR_IO);
    CHECK(fs_rename(fs, "no", "b", NULL) == ERR_IO && fs_link(fs, "a", "b", NULL) == ERR_IO);
    CHECK(fs_unlink(fs, "no", NULL) == ERR_IO && fs_mkdir(fs, "d", NULL) == ERR_IO);
    CHECK(fs_exists(fs, "a", &found, NULL) == ERR_IO && fs_sync_dir(fs, ".", NULL) == ERR_IO);
    CHECK(fs_list(fs, ".", ignore_name, NULL, NULL) == ERR_IO && fs_lock(fs, NULL) == ERR_IO);
    CHECK(fs_free_bytes(fs, &n, NULL) == ERR_IO);
    struct fs *after = crash(fs, FS_SIM_KEEP_ALL, 1);
    check_content(after, "a", "x");
    fs_free(after);
    file_close(f);
    fs_free(fs);
}

static void test_lock_is_free_after_a_crash(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    CHECK_OK(fs_lock(fs, &ei), &ei);
    struct fs *after = crash(fs, FS_SIM_KEEP_ALL, 1);
    CHECK_OK(fs_lock(after, &ei), &ei);
    CHECK(fs_lock(after, NULL) == ERR_LOCKED);
    fs_free(after);
    fs_free(fs);
}

static void *sync_in_thread(void *arg)
{
    CHECK(write_sync_text(arg, "new", 0) == ERR_OK);
    return NULL;
}

/* Starts a write and sync that blocks, and waits until it does. */
static struct thread start_slow_sync(struct fs *fs, void *(*run)(void *), void *arg)
{
    struct thread t;

    fs_sim_set_fault(fs, FS_SIM_FAULT_SLOW, fs_sim_op_count(fs));
    CHECK_OK(thread_start(&t, "slow", run, arg, &ei), &ei);
    while (!fs_sim_fault_hit(fs))
        (void)sched_yield();
    return t;
}

static void test_slow_sync(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    create_durable(fs, "a", "old");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE);
    struct thread t = start_slow_sync(fs, sync_in_thread, f);
    check_content(fs, "a", "new"); /* everything else goes on */
    check_after(fs, FS_SIM_DROP_ALL, "a", "old");
    CHECK(write_text(f, "!", 3) == ERR_OK);
    fs_sim_clear_fault(fs);
    thread_join(&t);
    check_after(fs, FS_SIM_DROP_ALL, "a", "new"); /* not what was written while it waited */
    file_close(f);
    fs_free(fs);
}

static void *sync_without_power(void *arg)
{
    CHECK(write_sync_text(arg, "new", 0) == ERR_IO);
    return NULL;
}

static void test_power_loss_during_slow_sync(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    create_durable(fs, "a", "old");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE);
    struct thread t = start_slow_sync(fs, sync_without_power, f);
    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, 0);
    thread_join(&t);
    check_after(fs, FS_SIM_DROP_ALL, "a", "old");
    file_close(f);
    fs_free(fs);
}

static void test_flip_bit(void **state)
{
    struct fs *fs = sim_new(1);

    (void)state;
    create_durable(fs, "a", "abc");
    struct file *f = open_file(fs, "a", FILE_READ_WRITE);
    CHECK(write_text(f, "d", 3) == ERR_OK);
    CHECK_OK(fs_sim_flip_bit(fs, "a", 8 + 5, &ei), &ei);  /* durable */
    CHECK_OK(fs_sim_flip_bit(fs, "a", 24 + 5, &ei), &ei); /* not yet */
    check_content(fs, "a", "aBcD");
    check_after(fs, FS_SIM_DROP_ALL, "a", "aBc");
    CHECK_OK(file_sync(f, &ei), &ei);
    check_after(fs, FS_SIM_DROP_ALL, "a", "aBcD");
    CHECK(fs_sim_flip_bit(fs, "a", 32, NULL) == ERR_INVALID);
    CHECK(fs_sim_flip_bit(fs, "no", 0, NULL) == ERR_NOT_FOUND);
    file_close(f);
    fs_free(fs);
}

/* The protocol every module uses for a new file: write aside, sync, rename, sync the directory. */
static enum err publish(struct fs *fs, const char *name, const char *text)
{
    struct file *f = NULL;
    enum err e = file_open(fs, "tmp", FILE_CREATE, &f, NULL);

    if (e == ERR_EXISTS) { /* left by a crash */
        e = fs_unlink(fs, "tmp", NULL);
        if (e == ERR_OK)
            e = file_open(fs, "tmp", FILE_CREATE, &f, NULL);
    }
    if (e != ERR_OK)
        return e;
    e = write_text(f, text, 0);
    if (e == ERR_OK)
        e = file_sync(f, NULL);
    file_close(f);
    if (e == ERR_OK)
        e = fs_rename(fs, "tmp", name, NULL);
    return e != ERR_OK ? e : fs_sync_dir(fs, ".", NULL);
}

/* Publishes versions of two files until the power goes; returns how many were acknowledged. */
static int publish_until_crash(struct fs *fs, int from, int acknowledged[2])
{
    int i = from;

    for (; i < from + 6; i++) {
        char text[32];

        (void)snprintf(text, sizeof text, "version %d", i);
        if (publish(fs, i % 2 == 0 ? "even" : "odd", text) != ERR_OK)
            break;
        acknowledged[i % 2] = i;
    }
    return i;
}

/* Each file holds its acknowledged version, or the one the crash interrupted. */
static void check_published(struct fs *fs, const int acknowledged[2], int interrupted)
{
    for (int parity = 0; parity < 2; parity++) {
        const char *got = content(fs, parity == 0 ? "even" : "odd");
        int version = -1;

        if (strcmp(got, "-") != 0)
            CHECK_MSG(sscanf(got, "version %d", &version) == 1, "\"%s\"", got); /* NOLINT */
        CHECK_MSG(version == acknowledged[parity] ||
                      (version == interrupted && interrupted % 2 == parity),
                  "version %d, acknowledged %d", version, acknowledged[parity]);
    }
}

/* What a restarted program finds it also keeps: it syncs the directory before going on. */
static void adopt(struct fs *fs, int acknowledged[2])
{
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    for (int parity = 0; parity < 2; parity++) {
        int version;
        const char *got = content(fs, parity == 0 ? "even" : "odd");

        if (sscanf(got, "version %d", &version) == 1) /* NOLINT(cert-err34-c): we wrote it */
            acknowledged[parity] = version;
    }
}

/* Power loss at every operation, then a second one somewhere in the second life. */
static void test_publishing_survives_power_loss_anywhere(void **state)
{
    struct test_random r = test_random_init(0x9b115);
    int crashed = 0;

    (void)state;
    for (int round = 0; round < 800; round++) {
        int acknowledged[2] = {-1, -1};
        struct fs *fs = sim_new(test_random_u64(&r));
        uint64_t at = (uint64_t)round % 40;

        for (int life = 0, from = 0; life < 2; life++) {
            fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, at);
            int stopped = publish_until_crash(fs, from, acknowledged);
            crashed += fs_sim_fault_hit(fs);
            enum fs_sim_loss loss = (enum fs_sim_loss)test_random_below(&r, 3);
            struct fs *after = crash(fs, loss, test_random_u64(&r));
            fs_free(fs);
            fs = after;
            check_published(fs, acknowledged, stopped);
            adopt(fs, acknowledged);
            at = fs_sim_op_count(fs) + test_random_below(&r, 20);
            from = stopped + 2;
        }
        fs_free(fs);
    }
    CHECK(crashed > 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_synced_data_survives_power_loss),
        cmocka_unit_test(test_names_need_their_directory_synced),
        cmocka_unit_test(test_new_directories_need_their_parent_synced),
        cmocka_unit_test(test_rename_between_directories),
        cmocka_unit_test(test_hard_links_stay_one_file),
        cmocka_unit_test(test_kill_leaves_unsynced_data_unsynced),
        cmocka_unit_test(test_random_loss_tears_and_reorders),
        cmocka_unit_test(test_random_loss_can_leave_zeros),
        cmocka_unit_test(test_random_loss_of_names_is_whole),
        cmocka_unit_test(test_failed_sync_drops_dirty_pages),
        cmocka_unit_test(test_single_failures),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_operations_are_counted),
        cmocka_unit_test(test_nothing_works_after_power_loss),
        cmocka_unit_test(test_lock_is_free_after_a_crash),
        cmocka_unit_test(test_slow_sync),
        cmocka_unit_test(test_power_loss_during_slow_sync),
        cmocka_unit_test(test_flip_bit),
        cmocka_unit_test(test_publishing_survives_power_loss_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
