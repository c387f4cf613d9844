/*
 * What the back ends of the file seam share. file.c checks paths and dispatches; a back end embeds
 * struct fs and struct file as the first member of its own objects.
 */
#ifndef RIMSTONE_BASE_FILE_INTERNAL_H
#define RIMSTONE_BASE_FILE_INTERNAL_H

#include "base/file.h"
#include "base/thread.h"

/* Names of a directory, owned. */
struct name_list {
    char **names;
    size_t count, capacity;
};

struct fs_ops {
    void (*free)(struct fs *fs);
    enum err (*lock)(struct fs *fs, struct errinfo *ei);
    enum err (*lock_shared)(struct fs *fs, struct errinfo *ei);
    void (*unlock)(struct fs *fs);
    /* Allocates with file_init() done. */
    enum err (*open)(struct fs *fs, const char *path, enum file_mode mode, struct file **out,
                     struct errinfo *ei);
    void (*close)(struct file *f);
    enum err (*size)(struct file *f, uint64_t *out, struct errinfo *ei);
    enum err (*read_some)(struct file *f, void *buffer, size_t size, uint64_t offset,
                          size_t *out_size, struct errinfo *ei);
    enum err (*write)(struct file *f, const struct iovec *iov, int iov_count, uint64_t offset,
                      struct errinfo *ei);
    enum err (*sync)(struct file *f, struct errinfo *ei);
    enum err (*write_sync)(struct file *f, const struct iovec *iov, int iov_count, uint64_t offset,
                           struct errinfo *ei);
    enum err (*truncate)(struct file *f, uint64_t size, struct errinfo *ei);
    /* NULL: file.c reads one after the other. */
    enum err (*read_batch)(struct fs *fs, struct file_read_op *ops, size_t op_count,
                           struct errinfo *ei);
    enum err (*mkdir)(struct fs *fs, const char *path, struct errinfo *ei);
    enum err (*rename)(struct fs *fs, const char *from, const char *to, struct errinfo *ei);
    enum err (*link)(struct fs *fs, const char *from, const char *to, struct errinfo *ei);
    enum err (*unlink)(struct fs *fs, const char *path, struct errinfo *ei);
    enum err (*exists)(struct fs *fs, const char *path, bool *out, struct errinfo *ei);
    enum err (*sync_dir)(struct fs *fs, const char *path, struct errinfo *ei);
    /* In any order; file.c sorts. */
    enum err (*list)(struct fs *fs, const char *path, struct name_list *out, struct errinfo *ei);
    enum err (*free_bytes)(struct fs *fs, uint64_t *out, struct errinfo *ei);
};

struct fs {
    const struct fs_ops *ops;
    enum fs_kind kind;
    char *dir; /* owned */
};

struct file {
    struct fs *fs; /* borrowed */
    char *path;    /* owned */
};

MUST_USE enum err name_list_add(struct name_list *list, const char *name, struct errinfo *ei);

/* Where a vectored write stands; the caller's iov is never changed. */
struct iov_cursor {
    const struct iovec *iov;
    int count;
    size_t skip; /* bytes of iov[0] that are done */
    uint64_t left_bytes;
};

/* ERR_INVALID when the sizes add up past what a file offset can hold. */
MUST_USE enum err iov_cursor_init(struct iov_cursor *c, const struct iovec *iov, int iov_count,
                                  uint64_t offset, struct errinfo *ei);
/* Copies the next pieces to out[0..out_max), returns how many; *out_bytes is their sum. */
int iov_cursor_fill(const struct iov_cursor *c, struct iovec *out, int out_max,
                    uint64_t *out_bytes);
void iov_cursor_advance(struct iov_cursor *c, uint64_t bytes);

/* The plain back end, which io_uring extends. */
struct posix_fs {
    struct fs base;
    int dir_fd;
    struct mutex lock; /* guards lock_fd */
    int lock_fd;       /* -1: not held */
};

struct posix_file {
    struct file base;
    int fd;
};

enum { IOV_LOCAL_COUNT = 128 };

extern const struct fs_ops posix_fs_ops;
/* Opens the directory, creating it with its parents. */
MUST_USE enum err posix_fs_init(struct posix_fs *p, const char *dir, struct errinfo *ei);
/* Closes everything but does not free `p` itself. Accepts a half-built object. */
void posix_fs_done(struct posix_fs *p);
MUST_USE enum err posix_fs_new(const char *dir, struct fs **out, struct errinfo *ei);
/* The part of the range the cursor still has to write, with pwritev(). */
MUST_USE enum err posix_write_rest(struct posix_file *f, struct iov_cursor *c, uint64_t offset,
                                   struct errinfo *ei);

/* ERR_UNSUPPORTED when the kernel refuses io_uring or one of the operations we need. */
MUST_USE enum err uring_fs_new(const char *dir, struct fs **out, struct errinfo *ei);

#endif
