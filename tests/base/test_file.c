/*
 * One conformance suite over all back ends of the file seam: what holds for plain files holds for
 * io_uring and for the simulated layer, or tests above it would prove nothing.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_sim.h"
#include "base/thread.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

struct backend {
    struct fs *fs;
    char *dir; /* NULL: simulated */
};

static struct errinfo ei;

static int backend_open(void **state, enum fs_kind kind)
{
    struct backend *b = calloc(1, sizeof *b);

    CHECK(b != NULL);
    *state = b;
    errinfo_clear(&ei);
    if (kind == FS_SIM) {
        CHECK_OK(fs_sim_new(1, &b->fs, &ei), &ei);
        return 0;
    }
    b->dir = test_dir_new();
    enum err e = fs_open(b->dir, kind == FS_URING ? FS_IO_URING : FS_IO_POSIX, &b->fs, &ei);
    if (e == ERR_UNSUPPORTED && kind == FS_URING)
        return 0; /* each test then lists itself as skipped */
    CHECK_OK(e, &ei);
    CHECK(fs_kind_of(b->fs) == kind);
    CHECK(strcmp(fs_dir(b->fs), b->dir) == 0);
    return 0;
}

static int setup_posix(void **state)
{
    return backend_open(state, FS_POSIX);
}

static int setup_uring(void **state)
{
    return backend_open(state, FS_URING);
}

static int setup_sim(void **state)
{
    return backend_open(state, FS_SIM);
}

static int teardown(void **state)
{
    struct backend *b = *state;

    fs_free(b->fs);
    if (b->dir != NULL)
        test_dir_remove(b->dir);
    free(b);
    return 0;
}

static struct fs *fs_of(void **state)
{
    struct backend *b = *state;

    errinfo_clear(&ei);
    if (b->fs == NULL)
        skip(); /* the kernel refuses io_uring */
    return b->fs;
}

static struct file *open_ok(struct fs *fs, const char *path, enum file_mode mode)
{
    struct file *f = NULL;

    CHECK_OK(file_open(fs, path, mode, &f, &ei), &ei);
    CHECK(strcmp(file_path(f), path) == 0);
    return f;
}

static enum err open_code(struct fs *fs, const char *path, enum file_mode mode)
{
    struct file *f = NULL;
    struct errinfo local = {0};
    enum err e = file_open(fs, path, mode, &f, &local);

    CHECK(e == ERR_OK || (local.code == e && local.message[0] != '\0'));
    file_close(f);
    return e;
}

static void write_text(struct file *f, const char *text, uint64_t offset)
{
    struct iovec iov = {(char *)text, strlen(text)};

    CHECK_OK(file_write(f, &iov, 1, offset, &ei), &ei);
}

static bool exists(struct fs *fs, const char *path)
{
    bool found = false;

    CHECK_OK(fs_exists(fs, path, &found, &ei), &ei);
    return found;
}

static void create_with(struct fs *fs, const char *path, const char *text)
{
    struct file *f = open_ok(fs, path, FILE_CREATE);

    write_text(f, text, 0);
    file_close(f);
}

static void check_text(struct fs *fs, const char *path, const char *text)
{
    struct file *f = open_ok(fs, path, FILE_READ);
    char buffer[256];
    size_t n = 0;

    CHECK_OK(file_read_some(f, buffer, sizeof buffer, 0, &n, &ei), &ei);
    CHECK_MSG(n == strlen(text) && memcmp(buffer, text, n) == 0, "%s: \"%.*s\"", path, (int)n,
              buffer);
    file_close(f);
}

static void test_open_modes(void **state)
{
    struct fs *fs = fs_of(state);
    struct iovec iov = {(char *)"x", 1};

    CHECK(open_code(fs, "a", FILE_READ) == ERR_NOT_FOUND);
    CHECK(open_code(fs, "a", FILE_READ_WRITE) == ERR_NOT_FOUND);
    CHECK(open_code(fs, "no/a", FILE_CREATE) == ERR_NOT_FOUND);
    CHECK(open_code(fs, "a", FILE_CREATE) == ERR_OK);
    CHECK(open_code(fs, "a", FILE_CREATE) == ERR_EXISTS);
    CHECK(open_code(fs, "a", FILE_READ) == ERR_OK);
    CHECK(open_code(fs, "a", FILE_READ_WRITE) == ERR_OK);
    struct file *f = open_ok(fs, "a", FILE_READ);
    CHECK(file_write(f, &iov, 1, 0, NULL) == ERR_IO);
    CHECK(file_truncate(f, 0, NULL) == ERR_IO);
    file_close(f);
    file_close(NULL);
}

static void test_paths_stay_inside(void **state)
{
    struct fs *fs = fs_of(state);
    static const char *const bad[] = {"",  "/etc/passwd", "../a", "a/../b",
                                      ".", "a//b",        "a/",   "./a"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(open_code(fs, bad[i], FILE_CREATE) == ERR_INVALID, "%s", bad[i]);
        CHECK(fs_mkdir(fs, bad[i], NULL) == ERR_INVALID);
        CHECK(fs_unlink(fs, bad[i], NULL) == ERR_INVALID);
        CHECK(fs_rename(fs, "a", bad[i], NULL) == ERR_INVALID);
        CHECK(fs_link(fs, bad[i], "a", NULL) == ERR_INVALID);
    }
    CHECK(exists(fs, "."));
}

static void test_reads(void **state)
{
    struct fs *fs = fs_of(state);
    struct file *f = open_ok(fs, "a", FILE_CREATE);
    char buffer[16] = "";
    size_t n = 99;
    uint64_t size = 99;

    CHECK_OK(file_size(f, &size, &ei), &ei);
    CHECK(size == 0);
    write_text(f, "0123456789", 0);
    CHECK_OK(file_read(f, buffer, 4, 3, &ei), &ei);
    CHECK(memcmp(buffer, "3456", 4) == 0);
    CHECK_OK(file_read_some(f, buffer, 16, 7, &n, &ei), &ei);
    CHECK(n == 3 && memcmp(buffer, "789", 3) == 0);
    CHECK_OK(file_read_some(f, buffer, 16, 10, &n, &ei), &ei);
    CHECK(n == 0);
    CHECK_OK(file_read_some(f, buffer, 16, 1000, &n, &ei), &ei);
    CHECK(n == 0);
    CHECK(file_read(f, buffer, 4, 7, &ei) == ERR_CORRUPT);
    CHECK(strstr(ei.message, "a") != NULL && strstr(ei.message, "7") != NULL);
    CHECK(file_read(f, buffer, 1, UINT64_MAX, NULL) == ERR_INVALID);
    CHECK_OK(file_size(f, &size, NULL), &ei);
    CHECK(size == 10);
    file_close(f);
}

static void test_writes_extend_and_leave_zeros(void **state)
{
    struct fs *fs = fs_of(state);
    struct file *f = open_ok(fs, "a", FILE_CREATE);
    char buffer[16];
    uint64_t size = 0;
    struct iovec bad = {buffer, 1};

    write_text(f, "end", 10);
    write_text(f, "be", 0);
    CHECK_OK(file_size(f, &size, &ei), &ei);
    CHECK(size == 13);
    CHECK_OK(file_read(f, buffer, 13, 0, &ei), &ei);
    CHECK(memcmp(buffer, "be\0\0\0\0\0\0\0\0end", 13) == 0);
    CHECK(file_write(f, &bad, 1, UINT64_MAX, NULL) == ERR_INVALID);
    CHECK(file_write_sync(f, &bad, 1, INT64_MAX, NULL) == ERR_INVALID);
    file_close(f);
}

static void test_truncate(void **state)
{
    struct fs *fs = fs_of(state);
    struct file *f = open_ok(fs, "a", FILE_CREATE);
    char buffer[8];

    write_text(f, "abcdef", 0);
    CHECK_OK(file_truncate(f, 2, &ei), &ei);
    CHECK_OK(file_truncate(f, 5, &ei), &ei);
    CHECK_OK(file_read(f, buffer, 5, 0, &ei), &ei);
    CHECK(memcmp(buffer, "ab\0\0\0", 5) == 0); /* what was cut off does not come back */
    CHECK(file_truncate(f, UINT64_MAX, NULL) == ERR_INVALID);
    file_close(f);
}

/* Random vectored writes against a flat model; more pieces than one system call takes. */
static void test_vectored_writes_equal_model(void **state)
{
    enum { MODEL_SIZE = 1 << 16, PIECES_MAX = 1500 };
    struct fs *fs = fs_of(state);
    struct test_random r = test_random_init(0xf11e);
    struct file *f = open_ok(fs, "a", FILE_CREATE);
    uint8_t *model = calloc(1, MODEL_SIZE), *source = malloc(MODEL_SIZE),
            *back = malloc(MODEL_SIZE);
    struct iovec *iov = calloc(PIECES_MAX, sizeof *iov),
                 *iov_copy = calloc(PIECES_MAX, sizeof *iov);
    uint64_t model_size = 0;

    CHECK(model && source && back && iov && iov_copy);
    for (size_t i = 0; i < MODEL_SIZE; i++)
        source[i] = (uint8_t)test_random_u64(&r);
    for (int round = 0; round < 60; round++) {
        int pieces = (int)test_random_below(&r, round % 10 == 0 ? PIECES_MAX : 6);
        uint64_t offset = test_random_below(&r, MODEL_SIZE / 4), at = offset;

        for (int i = 0; i < pieces; i++) {
            size_t size = test_random_below(&r, 30), from = test_random_below(&r, MODEL_SIZE - 64);

            iov[i] = (struct iovec){source + from, size};
            memcpy(model + at, source + from, size);
            at += size;
        }
        if (at > offset && at > model_size)
            model_size = at;
        memcpy(iov_copy, iov, PIECES_MAX * sizeof *iov);
        if (round % 2 == 0)
            CHECK_OK(file_write_sync(f, iov, pieces, offset, &ei), &ei);
        else
            CHECK_OK(file_write(f, iov, pieces, offset, &ei), &ei);
        CHECK(memcmp(iov_copy, iov, PIECES_MAX * sizeof *iov) == 0);
        uint64_t size = 0;
        CHECK_OK(file_size(f, &size, &ei), &ei);
        CHECK(size == model_size);
        CHECK_OK(file_read(f, back, (size_t)size, 0, &ei), &ei);
        CHECK(memcmp(back, model, (size_t)size) == 0);
    }
    CHECK_OK(file_sync(f, &ei), &ei);
    file_close(f);
    free(model);
    free(source);
    free(back);
    free(iov);
    free(iov_copy);
}

static void test_large_write_sync(void **state)
{
    enum { SIZE = 5 << 20 };
    struct fs *fs = fs_of(state);
    struct file *f = open_ok(fs, "a", FILE_CREATE);
    uint8_t *data = malloc(SIZE), *back = malloc(SIZE);

    CHECK(data != NULL && back != NULL);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 2654435761U >> 13);
    struct iovec iov[2] = {{data, SIZE / 3}, {data + SIZE / 3, SIZE - SIZE / 3}};
    CHECK_OK(file_write_sync(f, iov, 2, 77, &ei), &ei);
    CHECK_OK(file_read(f, back, SIZE, 77, &ei), &ei);
    CHECK(memcmp(data, back, SIZE) == 0);
    CHECK_OK(file_write_sync(f, NULL, 0, 0, &ei), &ei); /* nothing to write: a plain sync */
    file_close(f);
    free(data);
    free(back);
}

static void test_read_batch(void **state)
{
    enum { OP_COUNT = 300, RECORD = 40 };
    struct fs *fs = fs_of(state);
    struct test_random r = test_random_init(0xba7c);
    struct file *files[2] = {open_ok(fs, "a", FILE_CREATE), open_ok(fs, "b", FILE_CREATE)};
    static char content[2][10000], got[OP_COUNT][RECORD];
    static struct file_read_op ops[OP_COUNT];

    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof content[k]; i++)
            content[k][i] = (char)test_random_u64(&r);
        struct iovec iov = {content[k], sizeof content[k]};
        CHECK_OK(file_write(files[k], &iov, 1, 0, &ei), &ei);
    }
    for (int i = 0; i < OP_COUNT; i++) {
        size_t size = test_random_below(&r, RECORD + 1);

        ops[i] = (struct file_read_op){.file = files[i % 2],
                                       .buffer = got[i],
                                       .size = size,
                                       .offset = test_random_below(&r, sizeof content[0] - RECORD),
                                       .result = ERR_INTERNAL};
    }
    CHECK_OK(fs_read_batch(fs, ops, OP_COUNT, &ei), &ei);
    for (int i = 0; i < OP_COUNT; i++) {
        CHECK(ops[i].result == ERR_OK);
        CHECK(memcmp(got[i], content[i % 2] + ops[i].offset, ops[i].size) == 0);
    }
    ops[17].offset = sizeof content[0] - 1; /* one short read fails, the others succeed */
    ops[17].size = 5;
    CHECK(fs_read_batch(fs, ops, OP_COUNT, &ei) == ERR_CORRUPT);
    CHECK(ei.code == ERR_CORRUPT);
    for (int i = 0; i < OP_COUNT; i++)
        CHECK(ops[i].result == (i == 17 ? ERR_CORRUPT : ERR_OK));
    CHECK_OK(fs_read_batch(fs, NULL, 0, NULL), &ei);
    file_close(files[0]);
    file_close(files[1]);
}

static void test_names(void **state)
{
    struct fs *fs = fs_of(state);

    CHECK(!exists(fs, "d"));
    CHECK_OK(fs_mkdir(fs, "d", &ei), &ei);
    CHECK_OK(fs_mkdir(fs, "d", &ei), &ei); /* existing: OK */
    CHECK_OK(fs_mkdir(fs, "d/e", &ei), &ei);
    CHECK(fs_mkdir(fs, "x/y", NULL) == ERR_NOT_FOUND);
    create_with(fs, "d/a", "one");
    create_with(fs, "b", "two");
    CHECK(exists(fs, "d") && exists(fs, "d/a") && !exists(fs, "d/b") && !exists(fs, "d/a/x"));
    CHECK(fs_mkdir(fs, "b", NULL) == ERR_EXISTS);
    CHECK_OK(fs_rename(fs, "d/a", "d/e/a", &ei), &ei);
    CHECK(!exists(fs, "d/a"));
    check_text(fs, "d/e/a", "one");
    CHECK_OK(fs_rename(fs, "b", "d/e/a", &ei), &ei); /* replaces */
    check_text(fs, "d/e/a", "two");
    CHECK(fs_rename(fs, "b", "c", NULL) == ERR_NOT_FOUND);
    CHECK(fs_rename(fs, "d", "d/e/d", NULL) == ERR_IO);
    CHECK_OK(fs_link(fs, "d/e/a", "l", &ei), &ei);
    CHECK(fs_link(fs, "d/e/a", "l", NULL) == ERR_EXISTS);
    CHECK(fs_link(fs, "nothing", "m", NULL) == ERR_NOT_FOUND);
    CHECK_OK(fs_rename(fs, "d/e/a", "l", &ei), &ei); /* two names of one file: nothing happens */
    check_text(fs, "d/e/a", "two");
    CHECK(fs_unlink(fs, "d/e", NULL) != ERR_OK); /* not empty */
    CHECK_OK(fs_unlink(fs, "d/e/a", &ei), &ei);
    check_text(fs, "l", "two");
    CHECK_OK(fs_unlink(fs, "d/e", &ei), &ei);
    CHECK(fs_unlink(fs, "d/e", NULL) == ERR_NOT_FOUND);
    CHECK_OK(fs_sync_dir(fs, ".", &ei), &ei);
    CHECK_OK(fs_sync_dir(fs, "d", &ei), &ei);
    CHECK(fs_sync_dir(fs, "no", NULL) == ERR_NOT_FOUND);
}

static void test_open_file_outlives_its_name(void **state)
{
    struct fs *fs = fs_of(state);
    struct file *f = open_ok(fs, "a", FILE_CREATE);
    char buffer[4];

    write_text(f, "abcd", 0);
    CHECK_OK(fs_unlink(fs, "a", &ei), &ei);
    create_with(fs, "a", "other");
    CHECK_OK(file_read(f, buffer, 4, 0, &ei), &ei);
    CHECK(memcmp(buffer, "abcd", 4) == 0);
    CHECK_OK(file_sync(f, &ei), &ei);
    file_close(f);
    check_text(fs, "a", "other");
}

static enum err append_name(void *ctx, const char *name, struct errinfo *e)
{
    char *text = ctx;

    (void)e;
    size_t at = strlen(text);
    CHECK(at + strlen(name) + 2 <= 256);
    (void)snprintf(text + at, 256 - at, " %s", name); /* just checked: it fits */
    return strcmp(name, "stop") == 0 ? ERR_CANCELED : ERR_OK;
}

static void test_list_is_sorted(void **state)
{
    struct fs *fs = fs_of(state);
    char text[256] = "";

    CHECK_OK(fs_mkdir(fs, "d", &ei), &ei);
    CHECK_OK(fs_list(fs, "d", append_name, text, &ei), &ei);
    CHECK(strcmp(text, "") == 0);
    create_with(fs, "d/b", "");
    create_with(fs, "d/a2", "");
    create_with(fs, "d/a10", "");
    create_with(fs, "d/B", "");
    memset(text, 0, sizeof text);
    CHECK_OK(fs_list(fs, "d", append_name, text, &ei), &ei);
    CHECK_MSG(strcmp(text, " B a10 a2 b") == 0, "%s", text);
    create_with(fs, "d/stop", "");
    create_with(fs, "d/zzz", "");
    memset(text, 0, sizeof text);
    CHECK(fs_list(fs, "d", append_name, text, NULL) == ERR_CANCELED);
    CHECK(strstr(text, "zzz") == NULL);
    CHECK(fs_list(fs, "no", append_name, text, NULL) == ERR_NOT_FOUND);
}

static void test_lock(void **state)
{
    struct fs *fs = fs_of(state);

    CHECK_OK(fs_lock(fs, &ei), &ei);
    CHECK(fs_lock(fs, NULL) == ERR_LOCKED);
    CHECK(exists(fs, "lock"));
    fs_unlock(fs);
    CHECK_OK(fs_lock(fs, &ei), &ei); /* left held: teardown's fs_free() gives it back */
}

/* Creates nothing; is refused while the lock is held, and keeps others from taking it. */
static void test_lock_shared(void **state)
{
    struct fs *fs = fs_of(state);

    CHECK_OK(fs_lock_shared(fs, &ei), &ei);
    CHECK(!exists(fs, "lock"));
    fs_unlock(fs);
    CHECK_OK(fs_lock(fs, &ei), &ei);
    CHECK(fs_lock_shared(fs, NULL) == ERR_LOCKED);
    fs_unlock(fs);
    CHECK_OK(fs_lock_shared(fs, &ei), &ei);
    CHECK(fs_lock(fs, NULL) == ERR_LOCKED);
    CHECK(fs_lock_shared(fs, NULL) == ERR_LOCKED);
    fs_unlock(fs);
    CHECK_OK(fs_lock(fs, &ei), &ei);
}

static void test_free_bytes(void **state)
{
    uint64_t bytes = 0;

    CHECK_OK(fs_free_bytes(fs_of(state), &bytes, &ei), &ei);
    CHECK(bytes > 0);
}

/* Several threads at one layer, each at its own range of one file and at its own files. */
enum { WORKER_COUNT = 4, WORKER_ROUNDS = 40, WORKER_BYTES = 3000 };

struct file_worker {
    struct fs *fs;
    struct file *shared;
    int index;
};

static void *file_worker_run(void *arg)
{
    struct file_worker *w = arg;
    char data[WORKER_BYTES], back[WORKER_BYTES], name[32];
    struct errinfo local = {0};

    for (int round = 0; round < WORKER_ROUNDS; round++) {
        memset(data, w->index * 50 + round, sizeof data);
        struct iovec iov = {data, sizeof data};
        uint64_t offset = (uint64_t)w->index * WORKER_BYTES;
        struct file_read_op op = {
            .file = w->shared, .buffer = back, .size = sizeof back, .offset = offset};
        struct file *own = NULL;

        CHECK_OK(file_write_sync(w->shared, &iov, 1, offset, &local), &local);
        CHECK_OK(fs_read_batch(w->fs, &op, 1, &local), &local);
        CHECK(memcmp(data, back, sizeof data) == 0);
        (void)snprintf(name, sizeof name, "own-%d-%d", w->index, round);
        CHECK_OK(file_open(w->fs, name, FILE_CREATE, &own, &local), &local);
        CHECK_OK(file_write(own, &iov, 1, 0, &local), &local);
        file_close(own);
        CHECK_OK(fs_unlink(w->fs, name, &local), &local);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct fs *fs = fs_of(state);
    struct file *f = open_ok(fs, "shared", FILE_CREATE);
    struct file_worker workers[WORKER_COUNT];
    struct thread threads[WORKER_COUNT];

    for (int i = 0; i < WORKER_COUNT; i++) {
        workers[i] = (struct file_worker){fs, f, i};
        CHECK_OK(thread_start(&threads[i], "file", file_worker_run, &workers[i], &ei), &ei);
    }
    for (int i = 0; i < WORKER_COUNT; i++)
        thread_join(&threads[i]);
    file_close(f);
}

/* Below: what only the real back ends have. */

static void test_second_opener_is_refused(void **state)
{
    struct fs *fs = fs_of(state), *other = NULL;
    char want[64];

    CHECK_OK(fs_lock(fs, &ei), &ei);
    CHECK_OK(fs_open(fs_dir(fs), FS_IO_POSIX, &other, &ei), &ei);
    CHECK(fs_lock(other, &ei) == ERR_LOCKED);
    (void)snprintf(want, sizeof want, "process %ld", (long)getpid());
    CHECK_MSG(strstr(ei.message, want) != NULL, "%s", ei.message);
    fs_unlock(fs);
    errinfo_clear(&ei);
    CHECK_OK(fs_lock(other, &ei), &ei);
    fs_free(other);
    CHECK_OK(fs_lock(fs, &ei), &ei);
}

static void test_readers_share_the_lock(void **state)
{
    struct fs *fs = fs_of(state), *readers[2] = {NULL, NULL};

    CHECK_OK(fs_lock(fs, &ei), &ei);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(fs_open(fs_dir(fs), FS_IO_POSIX, &readers[i], &ei), &ei);
        CHECK(fs_lock_shared(readers[i], NULL) == ERR_LOCKED);
    }
    fs_unlock(fs);
    for (int i = 0; i < 2; i++)
        CHECK_OK(fs_lock_shared(readers[i], &ei), &ei);
    CHECK(fs_lock(fs, NULL) == ERR_LOCKED);
    for (int i = 0; i < 2; i++)
        fs_free(readers[i]);
    CHECK_OK(fs_lock(fs, &ei), &ei);
}

static void test_directory_is_created_with_parents(void **state)
{
    struct backend *b = *state;
    struct fs *fs = fs_of(state), *made = NULL;
    enum fs_io io = fs_kind_of(fs) == FS_URING ? FS_IO_URING : FS_IO_POSIX;
    char *dir = NULL;
    struct stat st;

    CHECK(asprintf(&dir, "%s/x/y//z/", b->dir) > 0);
    CHECK_OK(fs_open(dir, io, &made, &ei), &ei);
    CHECK(stat(dir, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07027) == 0);
    create_with(made, "a", "text");
    fs_free(made);
    check_text(fs, "x/y/z/a", "text");
    free(dir);
    CHECK(asprintf(&dir, "%s/x/y/z/a", b->dir) > 0);
    CHECK(fs_open(dir, io, &made, NULL) != ERR_OK); /* a file is in the way */
    CHECK(fs_open("", io, &made, NULL) == ERR_INVALID);
    free(dir);
    fs_free(NULL);
}

static void test_disk_errors_keep_their_code(void **state)
{
    struct fs *fs = fs_of(state);
    struct backend *b = *state;
    char *link_path = NULL;
    struct file *f = NULL;
    struct iovec iov = {(char *)"data", 4};

    /* /dev/full answers every write with ENOSPC. */
    CHECK(asprintf(&link_path, "%s/full", b->dir) > 0);
    CHECK(symlink("/dev/full", link_path) == 0);
    CHECK_OK(file_open(fs, "full", FILE_READ_WRITE, &f, &ei), &ei);
    CHECK(file_write(f, &iov, 1, 0, NULL) == ERR_NO_SPACE);
    CHECK(file_write_sync(f, &iov, 1, 0, &ei) == ERR_NO_SPACE);
    CHECK(strstr(ei.message, "full") != NULL && ei.sys_errno != 0);
    file_close(f);
    free(link_path);
}

/* A child that holds the lock of `dir` until it is killed. */
static pid_t start_lock_holder(const char *dir)
{
    int ready[2];
    char byte;

    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct fs *fs = NULL;

        if (fs_open(dir, FS_IO_POSIX, &fs, NULL) == ERR_OK && fs_lock(fs, NULL) == ERR_OK)
            (void)write(ready[1], "x", 1); /* a failure shows as end of file */
        (void)close(ready[1]);
        for (;;)
            (void)pause();
    }
    (void)close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    (void)close(ready[0]);
    return pid;
}

static void test_lock_dies_with_its_process(void **state)
{
    struct fs *fs = fs_of(state);
    pid_t pid = start_lock_holder(fs_dir(fs));
    char want[64];

    CHECK(fs_lock(fs, &ei) == ERR_LOCKED);
    (void)snprintf(want, sizeof want, "process %ld", (long)pid);
    CHECK_MSG(strstr(ei.message, want) != NULL, "%s", ei.message);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    errinfo_clear(&ei);
    CHECK_OK(fs_lock(fs, &ei), &ei);
}

/* Makes the kernel refuse one system call from here on, as container profiles do. */
static bool refuse_syscall(unsigned number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { CHILD_OK, CHILD_NO_SECCOMP, CHILD_FAILED };

static int open_without(unsigned number, const char *dir)
{
    struct fs *fs = NULL;
    struct errinfo refused = {0};

    if (!refuse_syscall(number))
        return CHILD_NO_SECCOMP;
    if (fs_open(dir, FS_IO_URING, &fs, &refused) != ERR_UNSUPPORTED || refused.message[0] == '\0')
        return CHILD_FAILED;
    if (fs_open(dir, FS_IO_AUTO, &fs, NULL) != ERR_OK || fs_kind_of(fs) != FS_POSIX)
        return CHILD_FAILED;
    create_with(fs, number == __NR_io_uring_setup ? "setup" : "enter", "text");
    fs_free(fs);
    return CHILD_OK;
}

/* Without the set-up call, and with a set-up call that works and an enter call that does not. */
static void test_auto_falls_back(void **state)
{
    struct fs *fs = fs_of(state);
    static const unsigned numbers[] = {__NR_io_uring_setup, __NR_io_uring_enter};

    for (size_t i = 0; i < 2; i++) {
        int status;
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0)
            _exit(open_without(numbers[i], fs_dir(fs)));
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        if (WEXITSTATUS(status) == CHILD_NO_SECCOMP)
            skip();
        CHECK(WEXITSTATUS(status) == CHILD_OK);
    }
    check_text(fs, "setup", "text");
    check_text(fs, "enter", "text");
}

/* The file size limit makes the kernel write a part first and refuse the rest: the linked sync is
 * cancelled, the back end goes on from there, and the error is that of the rest. */
static void test_short_writes_are_continued(void **state)
{
    struct fs *fs = fs_of(state);
    struct file *f = open_ok(fs, "a", FILE_CREATE);
    static char data[4000], back[4000];
    struct iovec iov[2] = {{data, 1500}, {data + 1500, 2500}};
    struct rlimit old, small;
    uint64_t size = 0;

    memset(data, 'x', sizeof data);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = 3000;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    enum err e = file_write_sync(f, iov, 2, 0, &ei);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_MSG(e == ERR_IO && ei.sys_errno == EFBIG, "%s", ei.message);
    CHECK_OK(file_size(f, &size, NULL), &ei);
    CHECK(size == 3000);
    CHECK_OK(file_write_sync(f, iov, 2, 0, NULL), &ei);
    CHECK_OK(file_read(f, back, sizeof back, 0, NULL), &ei);
    CHECK(memcmp(data, back, sizeof back) == 0);
    file_close(f);
}

#define COMMON_TESTS(setup)                                                                        \
    cmocka_unit_test_setup_teardown(test_open_modes, setup, teardown),                             \
        cmocka_unit_test_setup_teardown(test_paths_stay_inside, setup, teardown),                  \
        cmocka_unit_test_setup_teardown(test_reads, setup, teardown),                              \
        cmocka_unit_test_setup_teardown(test_writes_extend_and_leave_zeros, setup, teardown),      \
        cmocka_unit_test_setup_teardown(test_truncate, setup, teardown),                           \
        cmocka_unit_test_setup_teardown(test_vectored_writes_equal_model, setup, teardown),        \
        cmocka_unit_test_setup_teardown(test_large_write_sync, setup, teardown),                   \
        cmocka_unit_test_setup_teardown(test_read_batch, setup, teardown),                         \
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),                              \
        cmocka_unit_test_setup_teardown(test_open_file_outlives_its_name, setup, teardown),        \
        cmocka_unit_test_setup_teardown(test_list_is_sorted, setup, teardown),                     \
        cmocka_unit_test_setup_teardown(test_lock, setup, teardown),                               \
        cmocka_unit_test_setup_teardown(test_lock_shared, setup, teardown),                        \
        cmocka_unit_test_setup_teardown(test_free_bytes, setup, teardown),                         \
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown)
#define REAL_TESTS(setup)                                                                          \
    cmocka_unit_test_setup_teardown(test_second_opener_is_refused, setup, teardown),               \
        cmocka_unit_test_setup_teardown(test_readers_share_the_lock, setup, teardown),             \
        cmocka_unit_test_setup_teardown(test_directory_is_created_with_parents, setup, teardown),  \
        cmocka_unit_test_setup_teardown(test_disk_errors_keep_their_code, setup, teardown),        \
        cmocka_unit_test_setup_teardown(test_lock_dies_with_its_process, setup, teardown),         \
        cmocka_unit_test_setup_teardown(test_auto_falls_back, setup, teardown),                    \
        cmocka_unit_test_setup_teardown(test_short_writes_are_continued, setup, teardown)

int main(void)
{
    const struct CMUnitTest posix_tests[] = {COMMON_TESTS(setup_posix), REAL_TESTS(setup_posix)};
    const struct CMUnitTest uring_tests[] = {COMMON_TESTS(setup_uring), REAL_TESTS(setup_uring)};
    const struct CMUnitTest sim_tests[] = {COMMON_TESTS(setup_sim)};
    int failed = cmocka_run_group_tests_name("posix", posix_tests, NULL, NULL);

    failed += cmocka_run_group_tests_name("uring", uring_tests, NULL, NULL);
    failed += cmocka_run_group_tests_name("sim", sim_tests, NULL, NULL);
    return failed;
}
