/*
 * The calls of the simulated layer, and its faults. Every mutating call passes sim_step_begin(),
 * which counts it and decides whether it succeeds; the state itself is in file_sim_state.c and what
 * a crash makes of it in file_sim_crash.c. Calls that deal with names are in file_sim_names.c.
 */
#include "base/file_sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file_sim_internal.h"

struct sim_file {
    struct file base;
    struct sim_inode *inode; /* counted */
    bool writable;
};

static const uint64_t sim_disk_bytes = UINT64_C(1) << 40;

static struct sim_file *sim_file_of(struct file *f)
{
    return (struct sim_file *)f;
}

bool sim_coin(struct sim_fs *s)
{
    return (sim_random(s) & 1) != 0;
}

enum err sim_power_is_gone(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_IO, EIO, "simulated power loss");
}

struct sim_step sim_step_begin(struct sim_fs *s, bool needs_space, struct errinfo *ei)
{
    struct sim_step step = {.e = ERR_OK};

    if (s->power_gone) {
        step.e = sim_power_is_gone(ei);
        return step;
    }
    step.number = s->op_count++;
    if (s->fault == FS_SIM_FAULT_NONE || step.number < s->fault_at)
        return step;
    switch (s->fault) {
    case FS_SIM_FAULT_CRASH:
        s->power_gone = s->fault_hit = true;
        step.power_cut = true;
        step.e = sim_power_is_gone(ei);
        break;
    case FS_SIM_FAULT_EIO:
        s->fault = FS_SIM_FAULT_NONE; /* this one operation only */
        s->fault_hit = true;
        step.e =
            errinfo_set(ei, ERR_IO, EIO, "simulated failure of operation %" PRIu64, step.number);
        break;
    case FS_SIM_FAULT_NO_SPACE:
        if (needs_space) {
            s->fault_hit = true;
            step.e = errinfo_set(ei, ERR_NO_SPACE, ENOSPC, "simulated full disk");
        }
        break;
    case FS_SIM_FAULT_SLOW: /* see sim_wait_while_slow() */
    case FS_SIM_FAULT_NONE:
        break;
    }
    return step;
}

/* Syncs only: blocks while FS_SIM_FAULT_SLOW is armed for this operation. */
void sim_wait_while_slow(struct sim_fs *s, struct sim_step *step, struct errinfo *ei)
{
    while (!s->power_gone && s->fault == FS_SIM_FAULT_SLOW && step->number >= s->fault_at) {
        s->fault_hit = true;
        cond_wait(&s->slow_over, &s->lock);
    }
    if (s->power_gone && step->e == ERR_OK)
        step->e = sim_power_is_gone(ei);
}

enum err sim_no_memory(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOMEM, 0, "simulated file layer");
}

enum err sim_no_such(const char *what, const char *path, struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOT_FOUND, ENOENT, "%s %s", what, path);
}

enum err sim_refused(int sys_errno, const char *what, const char *path, struct errinfo *ei)
{
    return errinfo_set(ei, err_from_errno(sys_errno), sys_errno, "%s %s", what, path);
}

static enum err find_file(struct sim_fs *s, const char *path, struct sim_inode **out,
                          struct errinfo *ei)
{
    struct sim_inode *inode = sim_lookup(s, path);

    if (s->power_gone)
        return sim_power_is_gone(ei);
    if (inode == NULL)
        return sim_no_such("open", path, ei);
    if (inode->is_dir)
        return sim_refused(EISDIR, "open", path, ei);
    *out = inode;
    return ERR_OK;
}

static enum err sim_open(struct fs *fs, const char *path, enum file_mode mode, struct file **out,
                         struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    struct sim_file *f = calloc(1, sizeof *f);
    char *path_copy = strdup(path);
    struct sim_inode *inode = NULL;
    enum err e = ERR_OK;

    if (f == NULL || path_copy == NULL) {
        e = sim_no_memory(ei);
        goto out;
    }
    mutex_lock(&s->lock);
    e = mode == FILE_CREATE ? sim_create_entry(s, path, false, &inode, ei)
                            : find_file(s, path, &inode, ei);
    if (e != ERR_OK && s->power_gone)
        e = ERR_IO; /* whatever else was wrong with the call */
    if (e == ERR_OK) {
        f->base = (struct file){fs, TAKE(path_copy)};
        f->inode = sim_inode_ref(inode);
        f->writable = mode != FILE_READ;
        s->open_count++;
        *out = &TAKE(f)->base;
    }
    mutex_unlock(&s->lock);
out:
    free(path_copy);
    free(f);
    return e;
}

static void sim_close(struct file *f)
{
    struct sim_fs *s = sim_of(f->fs);

    mutex_lock(&s->lock);
    sim_inode_unref(sim_file_of(f)->inode);
    s->open_count--;
    mutex_unlock(&s->lock);
    free(f->path);
    free(f);
}

static enum err sim_size(struct file *f, uint64_t *out, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);

    mutex_lock(&s->lock);
    enum err e = s->power_gone ? sim_power_is_gone(ei) : ERR_OK;
    if (e == ERR_OK)
        *out = sim_file_of(f)->inode->content.size;
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_read_some(struct file *f, void *buffer, size_t size, uint64_t offset,
                              size_t *out_size, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);
    const struct sim_content *c = &sim_file_of(f)->inode->content;

    mutex_lock(&s->lock);
    enum err e = s->power_gone ? sim_power_is_gone(ei) : ERR_OK;
    if (e == ERR_OK) {
        size_t n = offset < c->size ? c->size - (size_t)offset : 0;

        n = n < size ? n : size;
        if (n > 0)
            memcpy(buffer, c->data + offset, n);
        *out_size = n;
    }
    mutex_unlock(&s->lock);
    return e;
}

/* Changes the page cache and notes the operation as pending. */
static enum err add_data_op(struct sim_inode *inode, const struct sim_data_op *like,
                            struct errinfo *ei)
{
    struct sim_data_op *op = sim_data_op_new(like);
    bool ok = op != NULL;

    if (ok && like->truncation)
        ok = sim_content_resize(&inode->content, like->offset);
    else if (ok)
        ok = sim_content_write(&inode->content, like->offset, like->data, like->size);
    if (!ok) {
        sim_data_op_free(op);
        return sim_no_memory(ei);
    }
    sim_data_op_add(inode, op);
    return ERR_OK;
}

/* How much of a failing write happened all the same: nothing, everything, or a part. */
static size_t torn_size(struct sim_fs *s, size_t size)
{
    switch (sim_random_below(s, 4)) {
    case 0:
        return 0;
    case 1:
        return size;
    default:
        return (size_t)sim_random_below(s, size + 1);
    }
}

/* Gathers the vector; NULL: no memory or nothing to write. */
static uint8_t *gather(const struct iovec *iov, int iov_count, size_t size)
{
    uint8_t *data = size > 0 ? malloc(size) : NULL;
    size_t at = 0;

    for (int i = 0; data != NULL && i < iov_count; i++) {
        if (iov[i].iov_len > 0)
            memcpy(data + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    return data;
}

/* Needs the lock. */
static enum err write_locked(struct file *f, const struct iovec *iov, int iov_count,
                             uint64_t offset, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);
    struct iov_cursor c;

    if (!sim_file_of(f)->writable)
        return sim_refused(EBADF, "write", f->path, ei);
    enum err e = iov_cursor_init(&c, iov, iov_count, offset, ei);
    if (e != ERR_OK)
        return e;
    size_t size = (size_t)c.left_bytes;
    uint8_t *data = gather(iov, iov_count, size);
    if (data == NULL && size > 0)
        return sim_no_memory(ei);
    bool was_gone = s->power_gone;
    struct sim_step step = sim_step_begin(s, true, ei);
    if (step.e != ERR_OK)
        size = was_gone ? 0 : torn_size(s, size);
    if (size > 0) {
        struct sim_data_op like = {
            .number = step.number, .offset = offset, .size = size, .data = data};

        e = add_data_op(sim_file_of(f)->inode, &like, ei);
    }
    free(data);
    return step.e != ERR_OK ? step.e : e;
}

static enum err sim_write(struct file *f, const struct iovec *iov, int iov_count, uint64_t offset,
                          struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);

    mutex_lock(&s->lock);
    enum err e = write_locked(f, iov, iov_count, offset, ei);
    mutex_unlock(&s->lock);
    return e;
}

static bool apply_data_op(struct sim_content *c, const struct sim_data_op *op)
{
    return op->truncation ? sim_content_resize(c, op->offset)
                          : sim_content_write(c, op->offset, op->data, op->size);
}

/* Takes the pending operations below `number` off the file: to the platter, or into nowhere. */
static enum err settle_data_ops(struct sim_inode *inode, uint64_t number, bool to_platter,
                                struct errinfo *ei)
{
    while (inode->ops != NULL && inode->ops->number < number) {
        struct sim_data_op *op = inode->ops;

        if (to_platter && !apply_data_op(&inode->durable_content, op))
            return sim_no_memory(ei);
        inode->ops = op->next;
        if (inode->ops == NULL)
            inode->ops_end = &inode->ops;
        sim_data_op_free(op);
    }
    return ERR_OK;
}

/* Needs the lock, which it gives back while the disk is slow. Covers what was written before the
 * call, not what is written while it waits. */
static enum err sync_locked(struct file *f, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);
    struct sim_inode *inode = sim_file_of(f)->inode;
    bool was_gone = s->power_gone;
    struct sim_step step = sim_step_begin(s, false, ei);

    sim_wait_while_slow(s, &step, ei);
    if (step.e == ERR_OK || (step.power_cut && sim_coin(s))) {
        enum err e = settle_data_ops(inode, step.number, true, ei);
        return step.e != ERR_OK ? step.e : e;
    }
    if (!was_gone && !s->power_gone)
        (void)settle_data_ops(inode, step.number, false, NULL); /* dropping cannot fail */
    return step.e;
}

static enum err sim_sync(struct file *f, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);

    mutex_lock(&s->lock);
    enum err e = sync_locked(f, ei);
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_write_sync(struct file *f, const struct iovec *iov, int iov_count,
                               uint64_t offset, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);

    mutex_lock(&s->lock);
    enum err e = write_locked(f, iov, iov_count, offset, ei);
    if (e == ERR_OK)
        e = sync_locked(f, ei);
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_truncate(struct file *f, uint64_t size, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(f->fs);
    struct sim_inode *inode = sim_file_of(f)->inode;

    if (!sim_file_of(f)->writable)
        return sim_refused(EINVAL, "truncate", f->path, ei);
    mutex_lock(&s->lock);
    struct sim_step step = sim_step_begin(s, size > inode->content.size, ei);
    enum err e = step.e;
    if (e == ERR_OK || (step.power_cut && sim_coin(s))) {
        struct sim_data_op like = {.number = step.number, .truncation = true, .offset = size};
        enum err e_add = add_data_op(inode, &like, ei);

        e = e != ERR_OK ? e : e_add;
    }
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_free_bytes(struct fs *fs, uint64_t *out, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = s->power_gone ? sim_power_is_gone(ei) : ERR_OK;
    if (e == ERR_OK)
        *out = s->fault == FS_SIM_FAULT_NO_SPACE && s->op_count >= s->fault_at ? 0 : sim_disk_bytes;
    mutex_unlock(&s->lock);
    return e;
}

/* The real back ends keep the lock in a file of this name, and listings show it. */
static enum err make_lock_file(struct sim_fs *s, struct errinfo *ei)
{
    struct sim_inode *made;

    return sim_lookup(s, "lock") != NULL ? ERR_OK : sim_create_entry(s, "lock", false, &made, ei);
}

/* Needs the lock. */
static enum err refuse_locked(const struct sim_fs *s, struct errinfo *ei)
{
    if (s->power_gone)
        return sim_power_is_gone(ei);
    return s->locked ? errinfo_set(ei, ERR_LOCKED, 0, "%s is locked", s->base.dir) : ERR_OK;
}

static enum err sim_lock(struct fs *fs, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    enum err e;

    mutex_lock(&s->lock);
    e = refuse_locked(s, ei);
    if (e == ERR_OK)
        e = make_lock_file(s, ei);
    if (e == ERR_OK)
        s->locked = true;
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_lock_shared(struct fs *fs, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    enum err e;

    mutex_lock(&s->lock);
    e = refuse_locked(s, ei);
    if (e == ERR_OK)
        s->locked = true; /* one layer has one user at a time */
    mutex_unlock(&s->lock);
    return e;
}

static void sim_unlock(struct fs *fs)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    s->locked = false;
    mutex_unlock(&s->lock);
}

static void sim_free(struct fs *fs)
{
    struct sim_fs *s = sim_of(fs);

    ASSERT(s->open_count == 0);
    while (s->dir_ops != NULL) {
        struct sim_dir_op *op = s->dir_ops;

        s->dir_ops = op->next;
        sim_dir_op_free(op);
    }
    sim_inode_unref(s->root);
    ASSERT(s->inodes.next == &s->inodes); /* else references were miscounted */
    cond_done(&s->slow_over);
    mutex_done(&s->lock);
    free(s->base.dir);
    free(s);
}

static const struct fs_ops sim_fs_ops = {
    .free = sim_free,
    .lock = sim_lock,
    .lock_shared = sim_lock_shared,
    .unlock = sim_unlock,
    .open = sim_open,
    .close = sim_close,
    .size = sim_size,
    .read_some = sim_read_some,
    .write = sim_write,
    .sync = sim_sync,
    .write_sync = sim_write_sync,
    .truncate = sim_truncate,
    .read_batch = NULL,
    .mkdir = sim_mkdir,
    .rename = sim_rename,
    .link = sim_link,
    .unlink = sim_unlink,
    .exists = sim_exists,
    .sync_dir = sim_sync_dir,
    .list = sim_list,
    .free_bytes = sim_free_bytes,
};

enum err fs_sim_new(uint64_t seed, struct fs **out, struct errinfo *ei)
{
    struct sim_fs *s = calloc(1, sizeof *s);
    char *dir = strdup("sim");

    if (s == NULL || dir == NULL) {
        free(s);
        free(dir);
        return sim_no_memory(ei);
    }
    s->base = (struct fs){&sim_fs_ops, FS_SIM, dir};
    mutex_init(&s->lock);
    cond_init(&s->slow_over);
    s->inodes.next = s->inodes.prev = &s->inodes;
    s->dir_ops_end = &s->dir_ops;
    s->random_state = seed;
    s->root = sim_inode_new(s, true);
    if (s->root == NULL) {
        sim_free(&s->base);
        return sim_no_memory(ei);
    }
    (void)sim_inode_ref(s->root); /* the layer's own reference */
    *out = &s->base;
    return ERR_OK;
}

uint64_t fs_sim_op_count(const struct fs *fs)
{
    struct sim_fs *s = sim_of((struct fs *)fs); /* the lock is not part of what is observed */

    mutex_lock(&s->lock);
    uint64_t count = s->op_count;
    mutex_unlock(&s->lock);
    return count;
}

void fs_sim_set_fault(struct fs *fs, enum fs_sim_fault fault, uint64_t at_op)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    s->fault = fault;
    s->fault_at = at_op;
    s->fault_hit = false;
    /* An operation that has begun already: the power goes now, and a sync that is still waiting
     * for the slow disk fails. */
    if (fault == FS_SIM_FAULT_CRASH && at_op < s->op_count)
        s->power_gone = s->fault_hit = true;
    cond_broadcast(&s->slow_over);
    mutex_unlock(&s->lock);
}

void fs_sim_clear_fault(struct fs *fs)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    s->fault = FS_SIM_FAULT_NONE;
    cond_broadcast(&s->slow_over);
    mutex_unlock(&s->lock);
}

bool fs_sim_fault_hit(const struct fs *fs)
{
    struct sim_fs *s = sim_of((struct fs *)fs); /* as above */

    mutex_lock(&s->lock);
    bool hit = s->fault_hit;
    mutex_unlock(&s->lock);
    return hit;
}
