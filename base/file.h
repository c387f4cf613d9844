/*
 * The file seam: every file call of the product goes through here. Three back ends: `posix` (plain
 * calls), `uring` (io_uring submission for log writes and batched reads) and `sim` (in memory, for
 * tests: fails, loses, tears and reorders what was not synced).
 *
 * Paths are relative to the directory the layer was opened on, with '/' between parts. Offsets and
 * sizes are uint64_t. All calls are thread-safe; calls on one file may overlap unless said.
 */
#ifndef RIMSTONE_BASE_FILE_H
#define RIMSTONE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"

struct fs;
struct file;

enum fs_kind { FS_POSIX, FS_URING, FS_SIM };
enum fs_io { FS_IO_AUTO, FS_IO_URING, FS_IO_POSIX };

/* Opens `dir` (created with parents when missing, mode 0750). FS_IO_AUTO tries io_uring and falls
 * back; FS_IO_URING fails with ERR_UNSUPPORTED where the kernel refuses it. */
MUST_USE enum err fs_open(const char *dir, enum fs_io io, struct fs **out, struct errinfo *ei);
/* All files must be closed. Accepts NULL. */
void fs_free(struct fs *fs);
enum fs_kind fs_kind_of(const struct fs *fs);
/* The directory as given, for messages. */
const char *fs_dir(const struct fs *fs);

/*
 * Takes the directory's exclusive lock (file "lock", flock-like, freed by the kernel when the
 * process dies). ERR_LOCKED names the holder's pid where known; another struct fs of this process
 * and a second call on this one are refused as well. Freed by fs_unlock() or fs_free().
 */
MUST_USE enum err fs_lock(struct fs *fs, struct errinfo *ei);
/*
 * For whoever only reads: takes the lock shared, so that no server starts meanwhile and others may
 * read too. ERR_LOCKED while a server runs. Creates and writes nothing: a directory without the
 * file "lock" (a snapshot) has no server, and is read without. Freed as above.
 */
MUST_USE enum err fs_lock_shared(struct fs *fs, struct errinfo *ei);
void fs_unlock(struct fs *fs);

enum file_mode {
    FILE_READ,       /* existing, read only */
    FILE_READ_WRITE, /* existing */
    FILE_CREATE,     /* new, ERR_EXISTS when it is there; read and write */
};

MUST_USE enum err file_open(struct fs *fs, const char *path, enum file_mode mode, struct file **out,
                            struct errinfo *ei);
/* Closes without syncing. Accepts NULL. */
void file_close(struct file *f);
const char *file_path(const struct file *f);
MUST_USE enum err file_size(struct file *f, uint64_t *out, struct errinfo *ei);
/* Reads exactly `size` bytes, or ERR_CORRUPT naming path and offset when the file ends before. */
MUST_USE enum err file_read(struct file *f, void *buffer, size_t size, uint64_t offset,
                            struct errinfo *ei);
/* Reads up to `size` bytes; *out_size is smaller only at the end of the file. */
MUST_USE enum err file_read_some(struct file *f, void *buffer, size_t size, uint64_t offset,
                                 size_t *out_size, struct errinfo *ei);
/* Writes all bytes at `offset` (short writes are continued inside). On error any prefix, or any
 * part, of the range may have been written. iov is not changed. */
MUST_USE enum err file_write(struct file *f, const struct iovec *iov, int iov_count,
                             uint64_t offset, struct errinfo *ei);
/* The same for one run of bytes. */
MUST_USE enum err file_write_bytes(struct file *f, const void *data, size_t size, uint64_t offset,
                                   struct errinfo *ei);
/* fdatasync. After a failure the caller must not trust any unsynced write of this file. */
MUST_USE enum err file_sync(struct file *f, struct errinfo *ei);
/* file_write() then file_sync(), as one linked submission where the back end can. The log's one
 * call per commit. */
MUST_USE enum err file_write_sync(struct file *f, const struct iovec *iov, int iov_count,
                                  uint64_t offset, struct errinfo *ei);
MUST_USE enum err file_truncate(struct file *f, uint64_t size, struct errinfo *ei);

/* One read of a batch; `result` is what file_read() would have returned. */
struct file_read_op {
    struct file *file;
    void *buffer;
    size_t size;
    uint64_t offset;
    enum err result;
};
/* Runs all reads, overlapped where the back end can; returns the first failure, if any. */
MUST_USE enum err fs_read_batch(struct fs *fs, struct file_read_op *ops, size_t op_count,
                                struct errinfo *ei);

MUST_USE enum err fs_mkdir(struct fs *fs, const char *path, struct errinfo *ei); /* existing: OK */
MUST_USE enum err fs_rename(struct fs *fs, const char *from, const char *to, struct errinfo *ei);
MUST_USE enum err fs_link(struct fs *fs, const char *from, const char *to, struct errinfo *ei);
/* A file, or an empty directory. */
MUST_USE enum err fs_unlink(struct fs *fs, const char *path, struct errinfo *ei);
MUST_USE enum err fs_exists(struct fs *fs, const char *path, bool *out, struct errinfo *ei);
/* Makes creations, renames and removals in `path` ("." for the root) durable. */
MUST_USE enum err fs_sync_dir(struct fs *fs, const char *path, struct errinfo *ei);

/* Exchanging files of the root as a whole (file_replace.c). FILE_CREATE, after what a write that
 * was cut off has left under the name is gone. */
MUST_USE enum err fs_create_anew(struct fs *fs, const char *path, struct file **out,
                                 struct errinfo *ei);
/* Gives a finished and durable file its name, in place of the one before; durable on return. */
MUST_USE enum err fs_put_in_place(struct fs *fs, const char *temp_path, const char *path,
                                  struct errinfo *ei);
/* All of it: the bytes under `temp_path`, durable, then as `path`. */
MUST_USE enum err fs_replace(struct fs *fs, const char *temp_path, const char *path,
                             const void *data, size_t size, struct errinfo *ei);

/* Calls `visit` for each entry of a directory in byte order, "." and ".." left out. */
MUST_USE enum err fs_list(struct fs *fs, const char *path,
                          enum err (*visit)(void *ctx, const char *name, struct errinfo *ei),
                          void *ctx, struct errinfo *ei);
MUST_USE enum err fs_free_bytes(struct fs *fs, uint64_t *out, struct errinfo *ei);

#endif
