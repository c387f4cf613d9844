/*
 * The io_uring back end: the plain one, with the log's write-and-sync and batched reads going
 * through rings. A commit is one system call: a vectored write linked to an fdatasync, submitted
 * and waited for together. A short write severs the link, and the kernel then cancels the sync; so
 * a sync that reports success covers everything before it.
 *
 * Both rings are entered by one thread at a time, under their own mutex, until every completion of
 * that call is in: buffers and vectors on the caller's stack stay valid for the kernel. A ring that
 * refuses a submission is retired and the plain calls take over.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file_internal.h"

enum { WRITE_RING_DEPTH = 4, READ_RING_DEPTH = 64 };

/* Larger reads are rare and gain nothing from a ring. */
static const size_t ring_read_bytes_max = 1U << 30;

struct uring {
    struct mutex lock; /* guards all below; a leaf lock */
    struct io_uring ring;
    bool live;
};

struct uring_fs {
    struct posix_fs posix;
    struct fs_ops ops; /* the plain ones with ours in their place */
    struct uring writes, reads;
};

static struct uring_fs *uring_of(struct fs *fs)
{
    return (struct uring_fs *)fs;
}

static int ring_open(struct uring *u, unsigned depth)
{
    mutex_init(&u->lock);
    int rc = io_uring_queue_init(depth, &u->ring, 0);
    u->live = rc == 0;
    return rc;
}

static void ring_close(struct uring *u)
{
    if (u->live)
        io_uring_queue_exit(&u->ring);
    mutex_done(&u->lock);
}

/*
 * Submits what was prepared and waits for all of it. results[user_data] gets each completion's
 * result. Returns how many entries the kernel took; fewer than `count` means that the ring is
 * retired, and the entries it did not take have -ECANCELED. Needs u->lock.
 */
static unsigned ring_run(struct uring *u, unsigned count, int *results)
{
    unsigned taken = 0, reaped = 0;

    for (unsigned i = 0; i < count; i++)
        results[i] = -ECANCELED;
    while (taken < count) {
        int rc = io_uring_submit_and_wait(&u->ring, count);

        if (rc > 0)
            taken += (unsigned)rc;
        else if (rc != -EINTR && rc != -EAGAIN)
            break;
    }
    while (reaped < taken) {
        struct io_uring_cqe *cqe;
        int rc = io_uring_wait_cqe(&u->ring, &cqe);

        /* Nothing may be returned to the caller while the kernel still writes to its memory. */
        ASSERT(rc == 0 || rc == -EINTR || rc == -EAGAIN);
        if (rc != 0)
            continue;
        uint64_t index = io_uring_cqe_get_data64(cqe);
        ASSERT(index < count);
        results[index] = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        reaped++;
    }
    if (taken < count) {
        io_uring_queue_exit(&u->ring);
        u->live = false;
    }
    return taken;
}

static struct io_uring_sqe *next_sqe(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

    ASSERT(sqe != NULL); /* the ring is empty when a call begins, and deep enough for one */
    return sqe;
}

enum { RESULT_WRITE, RESULT_SYNC, RESULT_COUNT };

/* One round: as much as one vector holds, synced when that is the rest. */
static unsigned run_write_sync(struct uring *u, int fd, const struct iovec *iov, int iov_count,
                               uint64_t offset, bool with_sync, int results[RESULT_COUNT])
{
    struct io_uring_sqe *sqe = next_sqe(u);

    io_uring_prep_writev(sqe, fd, iov, (unsigned)iov_count, offset);
    io_uring_sqe_set_data64(sqe, RESULT_WRITE);
    if (with_sync) {
        sqe->flags |= IOSQE_IO_LINK;
        sqe = next_sqe(u);
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        io_uring_sqe_set_data64(sqe, RESULT_SYNC);
    }
    return ring_run(u, with_sync ? 2 : 1, results);
}

/*
 * Writes and syncs until done. *out_synced tells whether a linked sync has covered everything;
 * where it is false with ERR_OK the caller finishes with plain calls from the cursor on.
 */
static enum err write_linked(struct uring *u, struct file *f, struct iov_cursor *c,
                             uint64_t *offset, bool *out_synced, struct errinfo *ei)
{
    struct iovec local[IOV_LOCAL_COUNT];
    int fd = ((struct posix_file *)f)->fd;

    *out_synced = false;
    while (u->live && c->left_bytes > 0) {
        int results[RESULT_COUNT] = {0};
        uint64_t bytes;
        int n = iov_cursor_fill(c, local, IOV_LOCAL_COUNT, &bytes);
        bool last = bytes == c->left_bytes;

        (void)run_write_sync(u, fd, local, n, *offset, last, results); /* results say it all */
        int written = results[RESULT_WRITE];
        if (written == 0)
            return errinfo_set(ei, ERR_IO, 0, "write %s: nothing was written", f->path);
        if (written == -ECANCELED)
            break; /* the ring is retired */
        if (written == -EINTR || written == -EAGAIN)
            continue;
        if (written < 0)
            return errinfo_set(ei, err_from_errno(-written), -written, "write %s/%s", f->fs->dir,
                               f->path);
        *offset += (uint64_t)written;
        iov_cursor_advance(c, (uint64_t)written);
        if (c->left_bytes > 0 || !last)
            continue; /* a short write: its sync was cancelled */
        if (results[RESULT_SYNC] == 0)
            *out_synced = true;
        else if (results[RESULT_SYNC] != -ECANCELED) /* cancelled: it never ran */
            return errinfo_set(ei, err_from_errno(-results[RESULT_SYNC]), -results[RESULT_SYNC],
                               "sync %s/%s", f->fs->dir, f->path);
    }
    return ERR_OK;
}

static enum err uring_write_sync(struct file *f, const struct iovec *iov, int iov_count,
                                 uint64_t offset, struct errinfo *ei)
{
    struct uring *u = &uring_of(f->fs)->writes;
    struct iov_cursor c;
    bool synced;
    enum err e = iov_cursor_init(&c, iov, iov_count, offset, ei);

    if (e != ERR_OK)
        return e;
    mutex_lock(&u->lock);
    e = write_linked(u, f, &c, &offset, &synced, ei);
    mutex_unlock(&u->lock);
    if (e != ERR_OK || synced)
        return e;
    e = posix_write_rest((struct posix_file *)f, &c, offset, ei);
    return e != ERR_OK ? e : posix_fs_ops.sync(f, ei);
}

/* Up to READ_RING_DEPTH reads. results[i] is what the kernel said of ops[i]. */
static void run_reads(struct uring *u, const struct file_read_op *ops, unsigned count, int *results)
{
    unsigned prepared = 0;
    int index_of[READ_RING_DEPTH], ring_results[READ_RING_DEPTH];

    mutex_lock(&u->lock);
    for (unsigned i = 0; i < count; i++) {
        results[i] = -ECANCELED;
        if (!u->live || ops[i].size > ring_read_bytes_max)
            continue;
        struct io_uring_sqe *sqe = next_sqe(u);
        io_uring_prep_read(sqe, ((struct posix_file *)ops[i].file)->fd, ops[i].buffer,
                           (unsigned)ops[i].size, ops[i].offset);
        io_uring_sqe_set_data64(sqe, prepared);
        index_of[prepared++] = (int)i;
    }
    if (prepared > 0) {
        (void)ring_run(u, prepared, ring_results); /* the results say what was taken */
        for (unsigned i = 0; i < prepared; i++)
            results[index_of[i]] = ring_results[i];
    }
    mutex_unlock(&u->lock);
}

static enum err uring_read_batch(struct fs *fs, struct file_read_op *ops, size_t op_count,
                                 struct errinfo *ei)
{
    struct uring *u = &uring_of(fs)->reads;
    enum err first = ERR_OK;
    int results[READ_RING_DEPTH];

    for (size_t done = 0; done < op_count;) {
        size_t left = op_count - done;
        unsigned count = left < READ_RING_DEPTH ? (unsigned)left : READ_RING_DEPTH;

        run_reads(u, ops + done, count, results);
        for (unsigned i = 0; i < count; i++) {
            struct file_read_op *op = &ops[done + i];

            /* Anything but a full read goes the plain way, which tells short files, errors and
             * interruptions apart. */
            op->result = ERR_OK;
            if (results[i] < 0 || (size_t)results[i] != op->size)
                op->result = file_read(op->file, op->buffer, op->size, op->offset, ei);
            if (first == ERR_OK)
                first = op->result;
        }
        done += count;
    }
    return first;
}

static void uring_free(struct fs *fs)
{
    struct uring_fs *p = uring_of(fs);

    ring_close(&p->writes);
    ring_close(&p->reads);
    posix_fs_done(&p->posix);
    free(p);
}

/* A scratch file in the directory that vanishes with its descriptor; in memory where the file
 * system cannot do that. */
static int probe_file_open(const struct uring_fs *p)
{
    int fd = openat(p->posix.dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return fd >= 0 ? fd : memfd_create("rimstone-probe", MFD_CLOEXEC);
}

/* Really does what we shall do, since a kernel or a seccomp profile may allow the set-up call and
 * refuse an operation: a linked write and sync, then a read of what was written. */
static int probe(struct uring_fs *p)
{
    static const char text[] = "rimstone";
    char back[sizeof text] = "";
    struct iovec iov = {(char *)text, sizeof text};
    int results[RESULT_COUNT] = {0}, read_result = 0;
    int fd = probe_file_open(p);

    if (fd < 0)
        return -errno;
    (void)run_write_sync(&p->writes, fd, &iov, 1, 0, true, results);
    if (results[RESULT_WRITE] == (int)sizeof text && results[RESULT_SYNC] == 0) {
        struct io_uring_sqe *sqe = next_sqe(&p->reads);

        io_uring_prep_read(sqe, fd, back, sizeof back, 0);
        io_uring_sqe_set_data64(sqe, 0);
        (void)ring_run(&p->reads, 1, &read_result);
    }
    (void)close(fd); /* a scratch file */
    if (results[RESULT_WRITE] < 0)
        return results[RESULT_WRITE];
    if (results[RESULT_SYNC] < 0)
        return results[RESULT_SYNC];
    if (read_result < 0)
        return read_result;
    return memcmp(text, back, sizeof text) == 0 ? 0 : -EIO;
}

enum err uring_fs_new(const char *dir, struct fs **out, struct errinfo *ei)
{
    struct uring_fs *p = calloc(1, sizeof *p);

    if (p == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "open %s", dir);
    enum err e = posix_fs_init(&p->posix, dir, ei);
    int rc = ring_open(&p->writes, WRITE_RING_DEPTH);
    int rc_reads = ring_open(&p->reads, READ_RING_DEPTH);
    if (e != ERR_OK)
        goto out;
    p->ops = posix_fs_ops;
    p->ops.free = uring_free;
    p->ops.write_sync = uring_write_sync;
    p->ops.read_batch = uring_read_batch;
    p->posix.base.ops = &p->ops;
    p->posix.base.kind = FS_URING;
    if (rc == 0)
        rc = rc_reads;
    if (rc == 0)
        rc = probe(p);
    if (rc != 0) {
        e = errinfo_set(ei, ERR_UNSUPPORTED, -rc, "io_uring");
        goto out;
    }
    *out = &TAKE(p)->posix.base;
out:
    if (p != NULL)
        uring_free(&p->posix.base);
    return e;
}
