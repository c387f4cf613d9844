/*
 * The calls of the simulated layer, and its faults. Every mutating call passes sim_step(), which
 * counts it and decides whether it succeeds; the state itself is in file_sim_state.c and what a
 * crash makes of it in file_sim_crash.c.
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

/* What becomes of one mutating call. */
struct sim_step {
    enum err e;
    bool power_cut;  /* this call is the one the power went out in: it may have happened or not */
    uint64_t number; /* which operation it is */
};

static const uint64_t sim_disk_bytes = UINT64_C(1) << 40;

static struct sim_fs *sim_of(struct fs *fs)
{
    return (struct sim_fs *)fs;
}

static struct sim_file *sim_file_of(struct file *f)
{
    return (struct sim_file *)f;
}

static bool coin(struct sim_fs *s)
{
    return (sim_random(s) & 1) != 0;
}

static enum err power_is_gone(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_IO, EIO, "simulated power loss");
}

/* Called first, under the lock, by every call that changes something. */
static struct sim_step sim_step(struct sim_fs *s, bool needs_space, struct errinfo *ei)
{
    struct sim_step step = {.e = ERR_OK};

    if (s->power_gone) {
        step.e = power_is_gone(ei);
        return step;
    }
    step.number = s->op_count++;
    if (s->fault == FS_SIM_FAULT_NONE || step.number < s->fault_at)
        return step;
    switch (s->fault) {
    case FS_SIM_FAULT_CRASH:
        s->power_gone = s->fault_hit = true;
        step.power_cut = true;
        step.e = power_is_gone(ei);
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
static void sim_wait_while_slow(struct sim_fs *s, struct sim_step *step, struct errinfo *ei)
{
    while (!s->power_gone && s->fault == FS_SIM_FAULT_SLOW && step->number >= s->fault_at) {
        s->fault_hit = true;
        cond_wait(&s->slow_over, &s->lock);
    }
    if (s->power_gone && step->e == ERR_OK)
        step->e = power_is_gone(ei);
}

static enum err no_memory(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOMEM, 0, "simulated file layer");
}

static enum err no_such(const char *what, const char *path, struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOT_FOUND, ENOENT, "%s %s", what, path);
}

static enum err refused(int sys_errno, const char *what, const char *path, struct errinfo *ei)
{
    return errinfo_set(ei, err_from_errno(sys_errno), sys_errno, "%s %s", what, path);
}

/* The directory that holds (or would hold) `path`, and the last part of the path. */
static struct sim_inode *sim_parent(const struct sim_fs *s, const char *path, const char **out_name)
{
    const char *slash = strrchr(path, '/');
    char parent_path[4096];

    *out_name = slash != NULL ? slash + 1 : path;
    if (slash == NULL)
        return s->root;
    size_t size = (size_t)(slash - path);
    if (size >= sizeof parent_path)
        return NULL;
    memcpy(parent_path, path, size);
    parent_path[size] = '\0';
    struct sim_inode *parent = sim_lookup(s, parent_path);
    return parent != NULL && parent->is_dir ? parent : NULL;
}

/* A pending directory operation; NULL: no memory. It holds references to all it names. */
static struct sim_dir_op *dir_op_new(const struct sim_step *step, enum sim_dir_op_kind kind,
                                     struct sim_inode *dir, const char *name,
                                     struct sim_inode *inode)
{
    struct sim_dir_op *op = calloc(1, sizeof *op);

    if (op == NULL)
        return NULL;
    op->number = step->number;
    op->kind = kind;
    op->dir = sim_inode_ref(dir);
    op->inode = inode != NULL ? sim_inode_ref(inode) : NULL;
    op->name = strdup(name);
    if (op->name == NULL) {
        sim_dir_op_free(op);
        return NULL;
    }
    return op;
}

/* Sets an entry in the volatile state and notes it as pending. */
static enum err set_entry(struct sim_fs *s, const struct sim_step *step, struct sim_inode *dir,
                          const char *name, struct sim_inode *inode, struct errinfo *ei)
{
    struct sim_dir_op *op = dir_op_new(step, SIM_SET, dir, name, inode);

    if (op == NULL || !sim_dir_set(&dir->dir, name, inode)) {
        sim_dir_op_free(op);
        return no_memory(ei);
    }
    sim_dir_op_add(s, op);
    return ERR_OK;
}

/* A new file or directory. *out is borrowed from its entry. */
static enum err create_entry(struct sim_fs *s, const char *path, bool is_dir,
                             struct sim_inode **out, struct errinfo *ei)
{
    const char *name;
    struct sim_inode *dir = sim_parent(s, path, &name);
    struct sim_step step = sim_step(s, true, ei);

    if (step.e != ERR_OK && !(step.power_cut && coin(s)))
        return step.e;
    if (dir == NULL)
        return no_such("create", path, ei);
    if (sim_dir_get(&dir->dir, name) != NULL)
        return refused(EEXIST, "create", path, ei);
    struct sim_inode *inode = sim_inode_new(s, is_dir);
    if (inode == NULL)
        return no_memory(ei);
    (void)sim_inode_ref(inode); /* so that the failure below frees it */
    enum err e = set_entry(s, &step, dir, name, inode, ei);
    sim_inode_unref(inode);
    if (e == ERR_OK && step.e == ERR_OK)
        *out = inode;
    return e != ERR_OK ? e : step.e;
}

static enum err find_file(struct sim_fs *s, const char *path, struct sim_inode **out,
                          struct errinfo *ei)
{
    struct sim_inode *inode = sim_lookup(s, path);

    if (s->power_gone)
        return power_is_gone(ei);
    if (inode == NULL)
        return no_such("open", path, ei);
    if (inode->is_dir)
        return refused(EISDIR, "open", path, ei);
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
        e = no_memory(ei);
        goto out;
    }
    mutex_lock(&s->lock);
    e = mode == FILE_CREATE ? create_entry(s, path, false, &inode, ei)
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
    enum err e = s->power_gone ? power_is_gone(ei) : ERR_OK;
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
    enum err e = s->power_gone ? power_is_gone(ei) : ERR_OK;
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
        return no_memory(ei);
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
        return refused(EBADF, "write", f->path, ei);
    enum err e = iov_cursor_init(&c, iov, iov_count, offset, ei);
    if (e != ERR_OK)
        return e;
    size_t size = (size_t)c.left_bytes;
    uint8_t *data = gather(iov, iov_count, size);
    if (data == NULL && size > 0)
        return no_memory(ei);
    bool was_gone = s->power_gone;
    struct sim_step step = sim_step(s, true, ei);
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
            return no_memory(ei);
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
    struct sim_step step = sim_step(s, false, ei);

    sim_wait_while_slow(s, &step, ei);
    if (step.e == ERR_OK || (step.power_cut && coin(s))) {
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
        return refused(EINVAL, "truncate", f->path, ei);
    mutex_lock(&s->lock);
    struct sim_step step = sim_step(s, size > inode->content.size, ei);
    enum err e = step.e;
    if (e == ERR_OK || (step.power_cut && coin(s))) {
        struct sim_data_op like = {.number = step.number, .truncation = true, .offset = size};
        enum err e_add = add_data_op(inode, &like, ei);

        e = e != ERR_OK ? e : e_add;
    }
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_mkdir(struct fs *fs, const char *path, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    struct sim_inode *made;
    enum err e = ERR_OK;

    mutex_lock(&s->lock);
    const struct sim_inode *there = sim_lookup(s, path);
    if (s->power_gone)
        e = power_is_gone(ei);
    else if (there == NULL)
        e = create_entry(s, path, true, &made, ei);
    else if (!there->is_dir)
        e = refused(EEXIST, "create directory", path, ei);
    mutex_unlock(&s->lock);
    return e;
}

/* What rename(2) refuses. */
static enum err check_rename(struct sim_fs *s, const char *from, const char *to,
                             const struct sim_inode *inode, struct errinfo *ei)
{
    const struct sim_inode *target = sim_lookup(s, to);
    size_t from_size = strlen(from);

    if (strncmp(from, to, from_size) == 0 && to[from_size] == '/')
        return refused(EINVAL, "rename into itself", from, ei);
    if (target == NULL || target == inode)
        return ERR_OK;
    if (target->is_dir && !inode->is_dir)
        return refused(EISDIR, "rename", from, ei);
    if (!target->is_dir && inode->is_dir)
        return refused(ENOTDIR, "rename", from, ei);
    if (target->is_dir && target->dir.count > 0)
        return refused(ENOTEMPTY, "rename", from, ei);
    return ERR_OK;
}

static enum err rename_locked(struct sim_fs *s, const char *from, const char *to,
                              struct errinfo *ei)
{
    const char *name, *to_name;
    struct sim_inode *dir = sim_parent(s, from, &name), *to_dir = sim_parent(s, to, &to_name);
    struct sim_step step = sim_step(s, false, ei);

    if (step.e != ERR_OK && !(step.power_cut && coin(s)))
        return step.e;
    struct sim_inode *inode = dir != NULL ? sim_dir_get(&dir->dir, name) : NULL;
    if (inode == NULL || to_dir == NULL)
        return no_such("rename", from, ei);
    enum err e = check_rename(s, from, to, inode, ei);
    if (e != ERR_OK || sim_lookup(s, to) == inode)
        return e; /* two names of one file: rename(2) does nothing */
    struct sim_dir_op *op = dir_op_new(&step, SIM_RENAME, dir, name, inode);
    if (op == NULL)
        return no_memory(ei);
    op->to_dir = sim_inode_ref(to_dir);
    op->to_name = strdup(to_name);
    if (op->to_name == NULL || !sim_dir_set(&to_dir->dir, to_name, inode)) {
        sim_dir_op_free(op);
        return no_memory(ei);
    }
    sim_dir_remove(&dir->dir, name);
    sim_dir_op_add(s, op);
    return step.e;
}

static enum err sim_rename(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = rename_locked(s, from, to, ei);
    if (e != ERR_OK && s->power_gone)
        e = ERR_IO; /* whatever else was wrong with the call */
    mutex_unlock(&s->lock);
    return e;
}

static enum err link_locked(struct sim_fs *s, const char *from, const char *to, struct errinfo *ei)
{
    const char *to_name;
    struct sim_inode *inode = sim_lookup(s, from), *to_dir = sim_parent(s, to, &to_name);
    struct sim_step step = sim_step(s, true, ei);

    if (step.e != ERR_OK && !(step.power_cut && coin(s)))
        return step.e;
    if (inode == NULL || to_dir == NULL)
        return no_such("link", from, ei);
    if (inode->is_dir)
        return refused(EPERM, "link", from, ei);
    if (sim_dir_get(&to_dir->dir, to_name) != NULL)
        return refused(EEXIST, "link", to, ei);
    enum err e = set_entry(s, &step, to_dir, to_name, inode, ei);
    return e != ERR_OK ? e : step.e;
}

static enum err sim_link(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = link_locked(s, from, to, ei);
    if (e != ERR_OK && s->power_gone)
        e = ERR_IO; /* whatever else was wrong with the call */
    mutex_unlock(&s->lock);
    return e;
}

static enum err unlink_locked(struct sim_fs *s, const char *path, struct errinfo *ei)
{
    const char *name;
    struct sim_inode *dir = sim_parent(s, path, &name);
    struct sim_step step = sim_step(s, false, ei);

    if (step.e != ERR_OK && !(step.power_cut && coin(s)))
        return step.e;
    const struct sim_inode *inode = dir != NULL ? sim_dir_get(&dir->dir, name) : NULL;
    if (inode == NULL)
        return no_such("remove", path, ei);
    if (inode->is_dir && inode->dir.count > 0)
        return refused(ENOTEMPTY, "remove", path, ei);
    struct sim_dir_op *op = dir_op_new(&step, SIM_REMOVE, dir, name, NULL);
    if (op == NULL)
        return no_memory(ei);
    sim_dir_remove(&dir->dir, name);
    sim_dir_op_add(s, op);
    return step.e;
}

static enum err sim_unlink(struct fs *fs, const char *path, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = unlink_locked(s, path, ei);
    if (e != ERR_OK && s->power_gone)
        e = ERR_IO; /* whatever else was wrong with the call */
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_exists(struct fs *fs, const char *path, bool *out, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = s->power_gone ? power_is_gone(ei) : ERR_OK;
    if (e == ERR_OK)
        *out = sim_lookup(s, path) != NULL;
    mutex_unlock(&s->lock);
    return e;
}

static bool touches(const struct sim_dir_op *op, const struct sim_inode *dir)
{
    return op->dir == dir || op->to_dir == dir;
}

/*
 * Applies the pending operations of a directory. A rename between two directories is one
 * transaction: it takes everything before it along, in both directories, so that later syncs of
 * the other one do not undo it.
 */
static enum err settle_dir_ops(struct sim_fs *s, const struct sim_inode *dir, uint64_t number,
                               struct errinfo *ei)
{
    uint64_t everything_up_to = 0;

    for (const struct sim_dir_op *op = s->dir_ops; op != NULL; op = op->next)
        if (op->kind == SIM_RENAME && op->dir != op->to_dir && touches(op, dir) &&
            op->number < number)
            everything_up_to = op->number + 1;
    for (struct sim_dir_op **link = &s->dir_ops; *link != NULL;) {
        struct sim_dir_op *op = *link;

        if (op->number >= everything_up_to && (op->number >= number || !touches(op, dir))) {
            link = &op->next;
            continue;
        }
        if (!sim_dir_op_apply(op))
            return no_memory(ei);
        *link = op->next;
        if (*link == NULL)
            s->dir_ops_end = link;
        sim_dir_op_free(op);
    }
    return ERR_OK;
}

static enum err sync_dir_locked(struct sim_fs *s, const char *path, struct errinfo *ei)
{
    struct sim_inode *dir = sim_lookup(s, path);
    struct sim_step step = sim_step(s, false, ei);

    if (step.e == ERR_OK && dir == NULL)
        return no_such("sync directory", path, ei);
    if (step.e == ERR_OK && !dir->is_dir)
        return refused(ENOTDIR, "sync directory", path, ei);
    if (dir != NULL)
        (void)sim_inode_ref(dir); /* waiting gives the lock back */
    sim_wait_while_slow(s, &step, ei);
    enum err e = step.e;
    /* A failed one keeps its operations pending: a journal either takes them or stops for good. */
    if (dir != NULL && (e == ERR_OK || (step.power_cut && coin(s)))) {
        enum err e_settle = settle_dir_ops(s, dir, step.number, ei);

        e = e != ERR_OK ? e : e_settle;
    }
    sim_inode_unref(dir);
    return e;
}

static enum err sim_sync_dir(struct fs *fs, const char *path, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = sync_dir_locked(s, path, ei);
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_list(struct fs *fs, const char *path, struct name_list *out, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    enum err e = ERR_OK;

    mutex_lock(&s->lock);
    const struct sim_inode *dir = sim_lookup(s, path);
    if (s->power_gone)
        e = power_is_gone(ei);
    else if (dir == NULL)
        e = no_such("list", path, ei);
    else if (!dir->is_dir)
        e = refused(ENOTDIR, "list", path, ei);
    else
        for (size_t i = 0; e == ERR_OK && i < dir->dir.count; i++)
            e = name_list_add(out, dir->dir.entries[i].name, ei);
    mutex_unlock(&s->lock);
    return e;
}

static enum err sim_free_bytes(struct fs *fs, uint64_t *out, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = s->power_gone ? power_is_gone(ei) : ERR_OK;
    if (e == ERR_OK)
        *out = s->fault == FS_SIM_FAULT_NO_SPACE && s->op_count >= s->fault_at ? 0 : sim_disk_bytes;
    mutex_unlock(&s->lock);
    return e;
}

/* The real back ends keep the lock in a file of this name, and listings show it. */
static enum err make_lock_file(struct sim_fs *s, struct errinfo *ei)
{
    struct sim_inode *made;

    return sim_lookup(s, "lock") != NULL ? ERR_OK : create_entry(s, "lock", false, &made, ei);
}

static enum err sim_lock(struct fs *fs, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    enum err e;

    mutex_lock(&s->lock);
    if (s->power_gone)
        e = power_is_gone(ei);
    else if (s->locked)
        e = errinfo_set(ei, ERR_LOCKED, 0, "%s is locked", fs->dir);
    else
        e = make_lock_file(s, ei);
    if (e == ERR_OK)
        s->locked = true;
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
        return no_memory(ei);
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
        return no_memory(ei);
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
