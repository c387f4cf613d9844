/*
 * The plain back end: one system call per operation, relative to a directory descriptor, so that
 * the directory may be renamed while it is in use.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file_internal.h"

enum { DIR_MODE = 0750, FILE_MODE = 0640 };

static struct posix_fs *posix_of(struct fs *fs)
{
    return (struct posix_fs *)fs;
}

static enum err call_failed(const struct fs *fs, const char *what, const char *path,
                            struct errinfo *ei)
{
    int saved = errno;

    return errinfo_set(ei, err_from_errno(saved), saved, "%s %s/%s", what, fs->dir, path);
}

/* fsync()s the directory that holds `path`, so that a new entry in it survives a power loss. */
static int sync_parent(const char *path, size_t size)
{
    char *parent = strndup(path, size);

    if (parent == NULL)
        return -1;
    char *slash = strrchr(parent, '/');
    if (slash == parent)
        slash[1] = '\0';
    else if (slash != NULL)
        *slash = '\0';
    int fd = open(slash != NULL ? parent : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(parent);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    int saved = errno;
    (void)close(fd); /* read only */
    errno = saved;
    return rc;
}

static enum err make_parents(const char *dir, struct errinfo *ei)
{
    char *path = strdup(dir);
    enum err e = ERR_OK;

    if (path == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "create %s", dir);
    for (size_t i = 1; e == ERR_OK && i <= strlen(dir); i++) {
        if (dir[i] != '/' && dir[i] != '\0')
            continue;
        path[i] = '\0';
        if (mkdir(path, DIR_MODE) == 0) {
            if (sync_parent(path, i) != 0)
                e = errinfo_set(ei, err_from_errno(errno), errno, "sync the parent of %s", path);
        } else if (errno != EEXIST) {
            e = errinfo_set(ei, err_from_errno(errno), errno, "create directory %s", path);
        }
        path[i] = dir[i];
    }
    free(path);
    return e;
}

enum err posix_fs_init(struct posix_fs *p, const char *dir, struct errinfo *ei)
{
    *p = (struct posix_fs){.base = {&posix_fs_ops, FS_POSIX, NULL}, .dir_fd = -1, .lock_fd = -1};
    mutex_init(&p->lock);
    if (*dir == '\0')
        return errinfo_set(ei, ERR_INVALID, 0, "the directory's name is empty");
    p->base.dir = strdup(dir);
    if (p->base.dir == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "open %s", dir);
    p->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir_fd < 0 && errno == ENOENT) {
        enum err e = make_parents(dir, ei);

        if (e != ERR_OK)
            return e;
        p->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (p->dir_fd < 0)
        return errinfo_set(ei, err_from_errno(errno), errno, "open directory %s", dir);
    return ERR_OK;
}

static void posix_unlock(struct fs *fs)
{
    struct posix_fs *p = posix_of(fs);

    mutex_lock(&p->lock);
    if (p->lock_fd >= 0) {
        (void)ftruncate(p->lock_fd, 0); /* the pid is only a hint; refused where it is shared */
        (void)close(p->lock_fd);        /* gives the lock back */
        p->lock_fd = -1;
    }
    mutex_unlock(&p->lock);
}

void posix_fs_done(struct posix_fs *p)
{
    posix_unlock(&p->base);
    if (p->dir_fd >= 0)
        (void)close(p->dir_fd); /* read only */
    mutex_done(&p->lock);
    free(p->base.dir);
}

static void posix_free(struct fs *fs)
{
    posix_fs_done(posix_of(fs));
    free(fs);
}

enum err posix_fs_new(const char *dir, struct fs **out, struct errinfo *ei)
{
    struct posix_fs *p = malloc(sizeof *p);

    if (p == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "open %s", dir);
    enum err e = posix_fs_init(p, dir, ei);
    if (e != ERR_OK) {
        posix_free(&p->base);
        return e;
    }
    *out = &p->base;
    return ERR_OK;
}

static enum err locked_by(const struct fs *fs, int fd, struct errinfo *ei)
{
    char pid[16] = "";
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);

    pid[n > 0 ? n : 0] = '\0';
    pid[strspn(pid, "0123456789")] = '\0';
    if (pid[0] == '\0')
        return errinfo_set(ei, ERR_LOCKED, 0, "%s is locked by another process", fs->dir);
    return errinfo_set(ei, ERR_LOCKED, 0, "%s is locked by process %s", fs->dir, pid);
}

/* flock() belongs to the open file description: a second fs object of this very process is refused
 * as well, which fcntl() locks would let pass. */
static enum err flock_try(const struct fs *fs, int fd, int operation, struct errinfo *ei)
{
    int rc;

    do {
        rc = flock(fd, operation | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return ERR_OK;
    return errno == EWOULDBLOCK ? locked_by(fs, fd, ei) : call_failed(fs, "lock", "lock", ei);
}

static enum err posix_lock(struct fs *fs, struct errinfo *ei)
{
    struct posix_fs *p = posix_of(fs);
    char pid[16];
    enum err e = ERR_OK;

    mutex_lock(&p->lock);
    int fd = openat(p->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE);
    if (fd < 0) {
        e = call_failed(fs, "open", "lock", ei);
        goto out;
    }
    e = flock_try(fs, fd, LOCK_EX, ei);
    if (e != ERR_OK)
        goto out;
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    /* A full disk must not keep the server from starting: the pid is only for messages. */
    (void)ftruncate(fd, 0);
    (void)pwrite(fd, pid, (size_t)n, 0);
    p->lock_fd = fd;
    fd = -1;
out:
    if (fd >= 0)
        (void)close(fd); /* nothing was written */
    mutex_unlock(&p->lock);
    return e;
}

static enum err posix_lock_shared(struct fs *fs, struct errinfo *ei)
{
    struct posix_fs *p = posix_of(fs);
    enum err e = ERR_OK;
    int fd;

    mutex_lock(&p->lock);
    fd = openat(p->dir_fd, "lock", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && p->lock_fd >= 0)
        e = locked_by(fs, fd, ei);
    else if (fd >= 0)
        e = flock_try(fs, fd, LOCK_SH, ei);
    else if (errno != ENOENT)
        e = call_failed(fs, "open", "lock", ei);
    if (e != ERR_OK && fd >= 0)
        (void)close(fd); /* read only */
    else
        p->lock_fd = fd;
    mutex_unlock(&p->lock);
    return e;
}

static enum err posix_open(struct fs *fs, const char *path, enum file_mode mode, struct file **out,
                           struct errinfo *ei)
{
    static const int flags[] = {
        [FILE_READ] = O_RDONLY,
        [FILE_READ_WRITE] = O_RDWR,
        [FILE_CREATE] = O_RDWR | O_CREAT | O_EXCL,
    };
    struct posix_file *f = calloc(1, sizeof *f);
    char *path_copy = strdup(path);

    if (f == NULL || path_copy == NULL) {
        free(f);
        free(path_copy);
        return errinfo_set(ei, ERR_NOMEM, 0, "open %s", path);
    }
    f->base = (struct file){fs, path_copy};
    f->fd = openat(posix_of(fs)->dir_fd, path, flags[mode] | O_CLOEXEC, FILE_MODE);
    if (f->fd < 0) {
        enum err e = call_failed(fs, mode == FILE_CREATE ? "create" : "open", path, ei);

        free(path_copy);
        free(f);
        return e;
    }
    *out = &f->base;
    return ERR_OK;
}

static void posix_close(struct file *f)
{
    (void)close(((struct posix_file *)f)->fd); /* who needs the data has synced it */
    free(f->path);
    free(f);
}

static enum err posix_size(struct file *f, uint64_t *out, struct errinfo *ei)
{
    struct stat st;

    if (fstat(((struct posix_file *)f)->fd, &st) != 0)
        return call_failed(f->fs, "stat", f->path, ei);
    *out = (uint64_t)st.st_size;
    return ERR_OK;
}

static enum err posix_read_some(struct file *f, void *buffer, size_t size, uint64_t offset,
                                size_t *out_size, struct errinfo *ei)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(((struct posix_file *)f)->fd, (char *)buffer + done, size - done,
                          (off_t)(offset + done));

        if (n == 0)
            break;
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            return call_failed(f->fs, "read", f->path, ei);
    }
    *out_size = done;
    return ERR_OK;
}

enum err posix_write_rest(struct posix_file *f, struct iov_cursor *c, uint64_t offset,
                          struct errinfo *ei)
{
    struct iovec local[IOV_LOCAL_COUNT];

    while (c->left_bytes > 0) {
        uint64_t bytes;
        int n = iov_cursor_fill(c, local, IOV_LOCAL_COUNT, &bytes);
        ssize_t written = pwritev(f->fd, local, n, (off_t)offset);

        if (written > 0) {
            offset += (uint64_t)written;
            iov_cursor_advance(c, (uint64_t)written);
        } else if (written == 0) {
            return errinfo_set(ei, ERR_IO, 0, "write %s: nothing was written", f->base.path);
        } else if (errno != EINTR) {
            return call_failed(f->base.fs, "write", f->base.path, ei);
        }
    }
    return ERR_OK;
}

static enum err posix_write(struct file *f, const struct iovec *iov, int iov_count, uint64_t offset,
                            struct errinfo *ei)
{
    struct iov_cursor c;
    enum err e = iov_cursor_init(&c, iov, iov_count, offset, ei);

    return e != ERR_OK ? e : posix_write_rest((struct posix_file *)f, &c, offset, ei);
}

/* No retry, not even after EINTR: the kernel may have dropped the pages it could not write. */
static enum err posix_sync(struct file *f, struct errinfo *ei)
{
    if (fdatasync(((struct posix_file *)f)->fd) != 0)
        return call_failed(f->fs, "sync", f->path, ei);
    return ERR_OK;
}

static enum err posix_write_sync(struct file *f, const struct iovec *iov, int iov_count,
                                 uint64_t offset, struct errinfo *ei)
{
    enum err e = posix_write(f, iov, iov_count, offset, ei);

    return e != ERR_OK ? e : posix_sync(f, ei);
}

static enum err posix_truncate(struct file *f, uint64_t size, struct errinfo *ei)
{
    int rc;

    do {
        rc = ftruncate(((struct posix_file *)f)->fd, (off_t)size);
    } while (rc != 0 && errno == EINTR);
    return rc != 0 ? call_failed(f->fs, "truncate", f->path, ei) : ERR_OK;
}

static enum err posix_mkdir(struct fs *fs, const char *path, struct errinfo *ei)
{
    struct stat st;
    int dir_fd = posix_of(fs)->dir_fd;

    if (mkdirat(dir_fd, path, DIR_MODE) == 0)
        return ERR_OK;
    if (errno == EEXIST && fstatat(dir_fd, path, &st, 0) == 0 && !S_ISDIR(st.st_mode))
        return errinfo_set(ei, ERR_EXISTS, 0, "%s/%s is not a directory", fs->dir, path);
    return errno == EEXIST ? ERR_OK : call_failed(fs, "create directory", path, ei);
}

static enum err posix_rename(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
{
    int dir_fd = posix_of(fs)->dir_fd;

    return renameat(dir_fd, from, dir_fd, to) != 0 ? call_failed(fs, "rename", from, ei) : ERR_OK;
}

static enum err posix_link(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
{
    int dir_fd = posix_of(fs)->dir_fd;

    return linkat(dir_fd, from, dir_fd, to, 0) != 0 ? call_failed(fs, "link", to, ei) : ERR_OK;
}

static enum err posix_unlink(struct fs *fs, const char *path, struct errinfo *ei)
{
    int dir_fd = posix_of(fs)->dir_fd;

    if (unlinkat(dir_fd, path, 0) == 0)
        return ERR_OK;
    if (errno == EISDIR && unlinkat(dir_fd, path, AT_REMOVEDIR) == 0)
        return ERR_OK;
    return call_failed(fs, "remove", path, ei);
}

static enum err posix_exists(struct fs *fs, const char *path, bool *out, struct errinfo *ei)
{
    struct stat st;

    if (fstatat(posix_of(fs)->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        *out = true;
    else if (errno == ENOENT || errno == ENOTDIR)
        *out = false;
    else
        return call_failed(fs, "look up", path, ei);
    return ERR_OK;
}

static enum err posix_sync_dir(struct fs *fs, const char *path, struct errinfo *ei)
{
    enum err e = ERR_OK;
    int fd = openat(posix_of(fs)->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return call_failed(fs, "open directory", path, ei);
    if (fsync(fd) != 0)
        e = call_failed(fs, "sync directory", path, ei);
    (void)close(fd); /* read only */
    return e;
}

static enum err posix_list(struct fs *fs, const char *path, struct name_list *out,
                           struct errinfo *ei)
{
    enum err e = ERR_OK;
    int fd = openat(posix_of(fs)->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return call_failed(fs, "open directory", path, ei);
    DIR *dir = fdopendir(fd); /* owns fd from here on */
    if (dir == NULL) {
        e = call_failed(fs, "list", path, ei);
        (void)close(fd); /* read only */
        return e;
    }
    while (e == ERR_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe): own stream */

        if (entry == NULL) {
            if (errno != 0)
                e = call_failed(fs, "list", path, ei);
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            e = name_list_add(out, entry->d_name, ei);
    }
    (void)closedir(dir); /* read only */
    return e;
}

static enum err posix_free_bytes(struct fs *fs, uint64_t *out, struct errinfo *ei)
{
    struct statvfs st;

    if (fstatvfs(posix_of(fs)->dir_fd, &st) != 0)
        return call_failed(fs, "statvfs", ".", ei);
    if (__builtin_mul_overflow((uint64_t)st.f_bavail, (uint64_t)st.f_frsize, out))
        *out = UINT64_MAX;
    return ERR_OK;
}

const struct fs_ops posix_fs_ops = {
    .free = posix_free,
    .lock = posix_lock,
    .lock_shared = posix_lock_shared,
    .unlock = posix_unlock,
    .open = posix_open,
    .close = posix_close,
    .size = posix_size,
    .read_some = posix_read_some,
    .write = posix_write,
    .sync = posix_sync,
    .write_sync = posix_write_sync,
    .truncate = posix_truncate,
    .read_batch = NULL,
    .mkdir = posix_mkdir,
    .rename = posix_rename,
    .link = posix_link,
    .unlink = posix_unlink,
    .exists = posix_exists,
    .sync_dir = posix_sync_dir,
    .list = posix_list,
    .free_bytes = posix_free_bytes,
};
