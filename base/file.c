/*
 * The front of the file seam: checks what every back end would have to check, dispatches, and
 * builds the calls that are the same everywhere.
 */
#include "base/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file_internal.h"

/* Relative, without empty, "." or ".." parts: nothing outside the directory can be named. */
static enum err check_path(const char *path, struct errinfo *ei)
{
    const char *part = path;

    for (;;) {
        size_t size = strcspn(part, "/");

        if (size == 0 || (size == 1 && part[0] == '.') ||
            (size == 2 && part[0] == '.' && part[1] == '.') || size > 255)
            return errinfo_set(ei, ERR_INVALID, 0, "not a path below the directory: \"%s\"", path);
        if (part[size] == '\0')
            return ERR_OK;
        part += size + 1;
    }
}

static enum err check_dir_path(const char *path, struct errinfo *ei)
{
    return strcmp(path, ".") == 0 ? ERR_OK : check_path(path, ei);
}

enum err fs_open(const char *dir, enum fs_io io, struct fs **out, struct errinfo *ei)
{
    if (io == FS_IO_POSIX)
        return posix_fs_new(dir, out, ei);
    if (io == FS_IO_URING)
        return uring_fs_new(dir, out, ei);
    struct errinfo refused = {0};
    enum err e = uring_fs_new(dir, out, &refused);
    if (e == ERR_OK)
        return e;
    /* Whatever is wrong with the directory itself is found again, and reported, here. */
    return posix_fs_new(dir, out, ei);
}

void fs_free(struct fs *fs)
{
    if (fs != NULL)
        fs->ops->free(fs);
}

enum fs_kind fs_kind_of(const struct fs *fs)
{
    return fs->kind;
}

const char *fs_dir(const struct fs *fs)
{
    return fs->dir;
}

enum err fs_lock(struct fs *fs, struct errinfo *ei)
{
    return fs->ops->lock(fs, ei);
}

enum err fs_lock_shared(struct fs *fs, struct errinfo *ei)
{
    return fs->ops->lock_shared(fs, ei);
}

void fs_unlock(struct fs *fs)
{
    fs->ops->unlock(fs);
}

enum err file_open(struct fs *fs, const char *path, enum file_mode mode, struct file **out,
                   struct errinfo *ei)
{
    enum err e = check_path(path, ei);

    return e != ERR_OK ? e : fs->ops->open(fs, path, mode, out, ei);
}

void file_close(struct file *f)
{
    if (f != NULL)
        f->fs->ops->close(f);
}

const char *file_path(const struct file *f)
{
    return f->path;
}

enum err file_size(struct file *f, uint64_t *out, struct errinfo *ei)
{
    return f->fs->ops->size(f, out, ei);
}

/* Offsets are int64_t in the kernel's interface. */
static enum err check_range(const struct file *f, size_t size, uint64_t offset, struct errinfo *ei)
{
    if (offset > INT64_MAX || size > INT64_MAX - offset)
        return errinfo_set(ei, ERR_INVALID, 0, "%s: offset %" PRIu64 " is too large", f->path,
                           offset);
    return ERR_OK;
}

enum err file_read_some(struct file *f, void *buffer, size_t size, uint64_t offset,
                        size_t *out_size, struct errinfo *ei)
{
    enum err e = check_range(f, size, offset, ei);

    return e != ERR_OK ? e : f->fs->ops->read_some(f, buffer, size, offset, out_size, ei);
}

enum err file_read(struct file *f, void *buffer, size_t size, uint64_t offset, struct errinfo *ei)
{
    size_t got;
    enum err e = file_read_some(f, buffer, size, offset, &got, ei);

    if (e == ERR_OK && got < size)
        return errinfo_set_at(ei, ERR_CORRUPT, f->path, offset + got,
                              "the file ends, %zu bytes expected at %" PRIu64, size, offset);
    return e;
}

enum err file_write(struct file *f, const struct iovec *iov, int iov_count, uint64_t offset,
                    struct errinfo *ei)
{
    return f->fs->ops->write(f, iov, iov_count, offset, ei);
}

enum err file_write_bytes(struct file *f, const void *data, size_t size, uint64_t offset,
                          struct errinfo *ei)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};

    return file_write(f, &iov, 1, offset, ei);
}

enum err file_sync(struct file *f, struct errinfo *ei)
{
    return f->fs->ops->sync(f, ei);
}

enum err file_write_sync(struct file *f, const struct iovec *iov, int iov_count, uint64_t offset,
                         struct errinfo *ei)
{
    return f->fs->ops->write_sync(f, iov, iov_count, offset, ei);
}

enum err file_truncate(struct file *f, uint64_t size, struct errinfo *ei)
{
    enum err e = check_range(f, 0, size, ei);

    return e != ERR_OK ? e : f->fs->ops->truncate(f, size, ei);
}

enum err fs_read_batch(struct fs *fs, struct file_read_op *ops, size_t op_count, struct errinfo *ei)
{
    enum err first = ERR_OK;

    for (size_t i = 0; i < op_count; i++) {
        ASSERT(ops[i].file->fs == fs);
        enum err e = check_range(ops[i].file, ops[i].size, ops[i].offset, ei);
        if (e != ERR_OK)
            return e;
    }
    if (fs->ops->read_batch != NULL)
        return fs->ops->read_batch(fs, ops, op_count, ei);
    for (size_t i = 0; i < op_count; i++) {
        ops[i].result = file_read(ops[i].file, ops[i].buffer, ops[i].size, ops[i].offset, ei);
        if (first == ERR_OK)
            first = ops[i].result;
    }
    return first;
}

enum err fs_mkdir(struct fs *fs, const char *path, struct errinfo *ei)
{
    enum err e = check_path(path, ei);

    return e != ERR_OK ? e : fs->ops->mkdir(fs, path, ei);
}

enum err fs_rename(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
{
    enum err e = check_path(from, ei);

    if (e == ERR_OK)
        e = check_path(to, ei);
    return e != ERR_OK ? e : fs->ops->rename(fs, from, to, ei);
}

enum err fs_link(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
{
    enum err e = check_path(from, ei);

    if (e == ERR_OK)
        e = check_path(to, ei);
    return e != ERR_OK ? e : fs->ops->link(fs, from, to, ei);
}

enum err fs_unlink(struct fs *fs, const char *path, struct errinfo *ei)
{
    enum err e = check_path(path, ei);

    return e != ERR_OK ? e : fs->ops->unlink(fs, path, ei);
}

enum err fs_exists(struct fs *fs, const char *path, bool *out, struct errinfo *ei)
{
    enum err e = check_dir_path(path, ei);

    return e != ERR_OK ? e : fs->ops->exists(fs, path, out, ei);
}

enum err fs_sync_dir(struct fs *fs, const char *path, struct errinfo *ei)
{
    enum err e = check_dir_path(path, ei);

    return e != ERR_OK ? e : fs->ops->sync_dir(fs, path, ei);
}

enum err name_list_add(struct name_list *list, const char *name, struct errinfo *ei)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        char **names = reallocarray(list->names, capacity, sizeof *names);

        if (names == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "directory listing");
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count] = strdup(name);
    if (list->names[list->count] == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "directory listing");
    list->count++;
    return ERR_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum err fs_list(struct fs *fs, const char *path,
                 enum err (*visit)(void *ctx, const char *name, struct errinfo *ei), void *ctx,
                 struct errinfo *ei)
{
    struct name_list list = {0};
    enum err e = check_dir_path(path, ei);

    if (e == ERR_OK)
        e = fs->ops->list(fs, path, &list, ei);
    if (e == ERR_OK && list.count > 1)
        qsort(list.names, list.count, sizeof *list.names, compare_names);
    for (size_t i = 0; i < list.count && e == ERR_OK; i++)
        e = visit(ctx, list.names[i], ei);
    for (size_t i = 0; i < list.count; i++)
        free(list.names[i]);
    free(list.names);
    return e;
}

enum err fs_free_bytes(struct fs *fs, uint64_t *out, struct errinfo *ei)
{
    return fs->ops->free_bytes(fs, out, ei);
}

enum err iov_cursor_init(struct iov_cursor *c, const struct iovec *iov, int iov_count,
                         uint64_t offset, struct errinfo *ei)
{
    uint64_t sum = offset;

    for (int i = 0; i < iov_count; i++)
        if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
            sum = UINT64_MAX;
    if (offset > INT64_MAX || sum > INT64_MAX)
        return errinfo_set(ei, ERR_INVALID, 0, "write at %" PRIu64 ": too large", offset);
    *c = (struct iov_cursor){iov, iov_count, 0, sum - offset};
    return ERR_OK;
}

int iov_cursor_fill(const struct iov_cursor *c, struct iovec *out, int out_max, uint64_t *out_bytes)
{
    /* Linux moves at most 0x7ffff000 bytes a call; staying below keeps short writes exceptional. */
    const uint64_t bytes_max = 1U << 30;
    size_t skip = c->skip;
    int n = 0;

    *out_bytes = 0;
    for (int i = 0; i < c->count && n < out_max && *out_bytes < bytes_max; i++, skip = 0) {
        size_t size = c->iov[i].iov_len - skip;

        if (size == 0)
            continue;
        if (size > bytes_max - *out_bytes)
            size = (size_t)(bytes_max - *out_bytes);
        out[n++] = (struct iovec){(char *)c->iov[i].iov_base + skip, size};
        *out_bytes += size;
    }
    return n;
}

void iov_cursor_advance(struct iov_cursor *c, uint64_t bytes)
{
    ASSERT(bytes <= c->left_bytes);
    c->left_bytes -= bytes;
    while (bytes > 0) {
        uint64_t here = c->iov->iov_len - c->skip;

        if (bytes < here) {
            c->skip += (size_t)bytes;
            return;
        }
        bytes -= here;
        c->iov++;
        c->count--;
        c->skip = 0;
    }
}
