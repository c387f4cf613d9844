/*
 * The calls of the simulated layer that deal with names: creating, renaming, linking, removing,
 * listing, and making all that durable.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_sim_internal.h"

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
        return sim_no_memory(ei);
    }
    sim_dir_op_add(s, op);
    return ERR_OK;
}

/* A new file or directory. *out is borrowed from its entry. */
enum err sim_create_entry(struct sim_fs *s, const char *path, bool is_dir, struct sim_inode **out,
                          struct errinfo *ei)
{
    const char *name;
    struct sim_inode *dir = sim_parent(s, path, &name);
    struct sim_step step = sim_step_begin(s, true, ei);

    if (step.e != ERR_OK && !(step.power_cut && sim_coin(s)))
        return step.e;
    if (dir == NULL)
        return sim_no_such("create", path, ei);
    if (sim_dir_get(&dir->dir, name) != NULL)
        return sim_refused(EEXIST, "create", path, ei);
    struct sim_inode *inode = sim_inode_new(s, is_dir);
    if (inode == NULL)
        return sim_no_memory(ei);
    (void)sim_inode_ref(inode); /* so that the failure below frees it */
    enum err e = set_entry(s, &step, dir, name, inode, ei);
    sim_inode_unref(inode);
    if (e == ERR_OK && step.e == ERR_OK)
        *out = inode;
    return e != ERR_OK ? e : step.e;
}

enum err sim_mkdir(struct fs *fs, const char *path, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    struct sim_inode *made;
    enum err e = ERR_OK;

    mutex_lock(&s->lock);
    const struct sim_inode *there = sim_lookup(s, path);
    if (s->power_gone)
        e = sim_power_is_gone(ei);
    else if (there == NULL)
        e = sim_create_entry(s, path, true, &made, ei);
    else if (!there->is_dir)
        e = sim_refused(EEXIST, "create directory", path, ei);
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
        return sim_refused(EINVAL, "rename into itself", from, ei);
    if (target == NULL || target == inode)
        return ERR_OK;
    if (target->is_dir && !inode->is_dir)
        return sim_refused(EISDIR, "rename", from, ei);
    if (!target->is_dir && inode->is_dir)
        return sim_refused(ENOTDIR, "rename", from, ei);
    if (target->is_dir && target->dir.count > 0)
        return sim_refused(ENOTEMPTY, "rename", from, ei);
    return ERR_OK;
}

static enum err rename_locked(struct sim_fs *s, const char *from, const char *to,
                              struct errinfo *ei)
{
    const char *name, *to_name;
    struct sim_inode *dir = sim_parent(s, from, &name), *to_dir = sim_parent(s, to, &to_name);
    struct sim_step step = sim_step_begin(s, false, ei);

    if (step.e != ERR_OK && !(step.power_cut && sim_coin(s)))
        return step.e;
    struct sim_inode *inode = dir != NULL ? sim_dir_get(&dir->dir, name) : NULL;
    if (inode == NULL || to_dir == NULL)
        return sim_no_such("rename", from, ei);
    enum err e = check_rename(s, from, to, inode, ei);
    if (e != ERR_OK || sim_lookup(s, to) == inode)
        return e; /* two names of one file: rename(2) does nothing */
    struct sim_dir_op *op = dir_op_new(&step, SIM_RENAME, dir, name, inode);
    if (op == NULL)
        return sim_no_memory(ei);
    op->to_dir = sim_inode_ref(to_dir);
    op->to_name = strdup(to_name);
    if (op->to_name == NULL || !sim_dir_set(&to_dir->dir, to_name, inode)) {
        sim_dir_op_free(op);
        return sim_no_memory(ei);
    }
    sim_dir_remove(&dir->dir, name);
    sim_dir_op_add(s, op);
    return step.e;
}

enum err sim_rename(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
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
    struct sim_step step = sim_step_begin(s, true, ei);

    if (step.e != ERR_OK && !(step.power_cut && sim_coin(s)))
        return step.e;
    if (inode == NULL || to_dir == NULL)
        return sim_no_such("link", from, ei);
    if (inode->is_dir)
        return sim_refused(EPERM, "link", from, ei);
    if (sim_dir_get(&to_dir->dir, to_name) != NULL)
        return sim_refused(EEXIST, "link", to, ei);
    enum err e = set_entry(s, &step, to_dir, to_name, inode, ei);
    return e != ERR_OK ? e : step.e;
}

enum err sim_link(struct fs *fs, const char *from, const char *to, struct errinfo *ei)
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
    struct sim_step step = sim_step_begin(s, false, ei);

    if (step.e != ERR_OK && !(step.power_cut && sim_coin(s)))
        return step.e;
    const struct sim_inode *inode = dir != NULL ? sim_dir_get(&dir->dir, name) : NULL;
    if (inode == NULL)
        return sim_no_such("remove", path, ei);
    if (inode->is_dir && inode->dir.count > 0)
        return sim_refused(ENOTEMPTY, "remove", path, ei);
    struct sim_dir_op *op = dir_op_new(&step, SIM_REMOVE, dir, name, NULL);
    if (op == NULL)
        return sim_no_memory(ei);
    sim_dir_remove(&dir->dir, name);
    sim_dir_op_add(s, op);
    return step.e;
}

enum err sim_unlink(struct fs *fs, const char *path, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = unlink_locked(s, path, ei);
    if (e != ERR_OK && s->power_gone)
        e = ERR_IO; /* whatever else was wrong with the call */
    mutex_unlock(&s->lock);
    return e;
}

enum err sim_exists(struct fs *fs, const char *path, bool *out, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = s->power_gone ? sim_power_is_gone(ei) : ERR_OK;
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
            return sim_no_memory(ei);
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
    struct sim_step step = sim_step_begin(s, false, ei);

    if (step.e == ERR_OK && dir == NULL)
        return sim_no_such("sync directory", path, ei);
    if (step.e == ERR_OK && !dir->is_dir)
        return sim_refused(ENOTDIR, "sync directory", path, ei);
    if (dir != NULL)
        (void)sim_inode_ref(dir); /* waiting gives the lock back */
    sim_wait_while_slow(s, &step, ei);
    enum err e = step.e;
    /* A failed one keeps its operations pending: a journal either takes them or stops for good. */
    if (dir != NULL && (e == ERR_OK || (step.power_cut && sim_coin(s)))) {
        enum err e_settle = settle_dir_ops(s, dir, step.number, ei);

        e = e != ERR_OK ? e : e_settle;
    }
    sim_inode_unref(dir);
    return e;
}

enum err sim_sync_dir(struct fs *fs, const char *path, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);

    mutex_lock(&s->lock);
    enum err e = sync_dir_locked(s, path, ei);
    mutex_unlock(&s->lock);
    return e;
}

enum err sim_list(struct fs *fs, const char *path, struct name_list *out, struct errinfo *ei)
{
    struct sim_fs *s = sim_of(fs);
    enum err e = ERR_OK;

    mutex_lock(&s->lock);
    const struct sim_inode *dir = sim_lookup(s, path);
    if (s->power_gone)
        e = sim_power_is_gone(ei);
    else if (dir == NULL)
        e = sim_no_such("list", path, ei);
    else if (!dir->is_dir)
        e = sim_refused(ENOTDIR, "list", path, ei);
    else
        for (size_t i = 0; e == ERR_OK && i < dir->dir.count; i++)
            e = name_list_add(out, dir->dir.entries[i].name, ei);
    mutex_unlock(&s->lock);
    return e;
}
