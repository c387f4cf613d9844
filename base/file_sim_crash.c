/*
 * What a crash of the simulated layer leaves, as a new layer.
 *
 * The whole old layer is copied first, pending operations included, and the copy then loses what
 * the kind of crash takes. After a power loss the copy has nothing pending: what is there is on the
 * platter. After a killed process the kernel still holds what was not synced, so the copy keeps it
 * pending, and a power loss may follow.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file_sim.h"
#include "base/file_sim_internal.h"

static bool copy_content(struct sim_content *to, const struct sim_content *from)
{
    return sim_content_write(to, 0, from->data, from->size);
}

static bool copy_entries(struct sim_dir *to, const struct sim_dir *from)
{
    for (size_t i = 0; i < from->count; i++)
        if (!sim_dir_set(to, from->entries[i].name, from->entries[i].inode->copy))
            return false;
    return true;
}

static bool copy_inode(const struct sim_inode *from)
{
    struct sim_inode *to = from->copy;

    for (const struct sim_data_op *op = from->ops; op != NULL; op = op->next) {
        struct sim_data_op *op_copy = sim_data_op_new(op);

        if (op_copy == NULL)
            return false;
        sim_data_op_add(to, op_copy);
    }
    return copy_content(&to->content, &from->content) &&
           copy_content(&to->durable_content, &from->durable_content) &&
           copy_entries(&to->dir, &from->dir) && copy_entries(&to->durable_dir, &from->durable_dir);
}

static bool copy_dir_op(struct sim_fs *to, const struct sim_dir_op *from)
{
    struct sim_dir_op *op = calloc(1, sizeof *op);

    if (op == NULL)
        return false;
    op->number = from->number;
    op->kind = from->kind;
    op->dir = sim_inode_ref(from->dir->copy);
    op->to_dir = from->to_dir != NULL ? sim_inode_ref(from->to_dir->copy) : NULL;
    op->inode = from->inode != NULL ? sim_inode_ref(from->inode->copy) : NULL;
    op->name = strdup(from->name);
    op->to_name = from->to_name != NULL ? strdup(from->to_name) : NULL;
    sim_dir_op_add(to, op);
    return op->name != NULL && (op->to_name != NULL || from->to_name == NULL);
}

/* Everything of `from` into the empty layer `to`. Needs from->lock. False: no memory; `to` can
 * still be freed, once sim_release_copies() has run. */
static bool copy_layer(struct sim_fs *from, struct sim_fs *to)
{
    for (struct sim_inode *i = from->inodes.next; i != &from->inodes; i = i->next)
        i->copy = NULL;
    from->root->copy = sim_inode_ref(to->root);
    for (struct sim_inode *i = from->inodes.next; i != &from->inodes; i = i->next) {
        if (i->copy != NULL)
            continue;
        i->copy = sim_inode_new(to, i->is_dir);
        if (i->copy == NULL)
            return false;
        (void)sim_inode_ref(i->copy); /* keeps it until everything that names it is copied */
    }
    for (const struct sim_inode *i = from->inodes.next; i != &from->inodes; i = i->next)
        if (!copy_inode(i))
            return false;
    for (const struct sim_dir_op *op = from->dir_ops; op != NULL; op = op->next)
        if (!copy_dir_op(to, op))
            return false;
    to->op_count = from->op_count;
    return true;
}

/* Files that only an open handle kept alive go here. */
static void release_copies(struct sim_fs *from)
{
    for (struct sim_inode *i = from->inodes.next; i != &from->inodes; i = i->next) {
        sim_inode_unref(i->copy);
        i->copy = NULL;
    }
}

/* A write that was under way: each sector on its own reaches the platter or not, and one may be cut
 * at any byte. */
static bool apply_torn(struct sim_fs *s, struct sim_content *c, const struct sim_data_op *op)
{
    uint64_t cut = op->offset + sim_random_below(s, op->size + 1);

    for (uint64_t at = op->offset, end = op->offset + op->size; at < end;) {
        uint64_t sector_end = (at / SIM_SECTOR_BYTES + 1) * SIM_SECTOR_BYTES;
        uint64_t piece_end = sector_end < end ? sector_end : end;
        bool survives = (sim_random(s) & 1) != 0;

        if (at <= cut && cut < piece_end) { /* the sector that is cut: its first bytes only */
            if (!sim_content_write(c, at, op->data + (at - op->offset), (size_t)(cut - at)))
                return false;
        } else if (survives && !sim_content_write(c, at, op->data + (at - op->offset),
                                                  (size_t)(piece_end - at))) {
            return false;
        }
        at = piece_end;
    }
    return true;
}

static bool apply_by_chance(struct sim_fs *s, struct sim_content *c, const struct sim_data_op *op)
{
    uint64_t chance = sim_random_below(s, 3);

    if (chance == 0)
        return true; /* lost */
    if (op->truncation)
        return sim_content_resize(c, op->offset);
    if (chance == 1)
        return sim_content_write(c, op->offset, op->data, op->size);
    return apply_torn(s, c, op);
}

/* Settles a file's pending operations and makes the platter what calls see. */
static bool lose_data(struct sim_fs *s, struct sim_inode *inode, enum fs_sim_loss loss)
{
    bool ok = true;
    bool any_pending = inode->ops != NULL;
    size_t volatile_size = inode->content.size;

    while (inode->ops != NULL) {
        struct sim_data_op *op = inode->ops;

        if (loss == FS_SIM_DROP_RANDOM && ok)
            ok = apply_by_chance(s, &inode->durable_content, op);
        inode->ops = op->next;
        sim_data_op_free(op);
    }
    inode->ops_end = &inode->ops;
    /* The new length may reach the journal although the data did not: a tail of zeros. */
    if (ok && loss == FS_SIM_DROP_RANDOM && any_pending &&
        volatile_size > inode->durable_content.size && sim_random_below(s, 4) == 0)
        ok = sim_content_resize(&inode->durable_content, volatile_size);
    return ok && sim_content_resize(&inode->content, 0) &&
           copy_content(&inode->content, &inode->durable_content);
}

static void dir_clear(struct sim_dir *dir)
{
    while (dir->count > 0)
        sim_dir_remove(dir, dir->entries[0].name);
}

static bool lose_entries(struct sim_fs *s, enum fs_sim_loss loss)
{
    bool ok = true;

    while (s->dir_ops != NULL) {
        struct sim_dir_op *op = s->dir_ops;

        if (ok && loss == FS_SIM_DROP_RANDOM && (sim_random(s) & 1) != 0)
            ok = sim_dir_op_apply(op);
        s->dir_ops = op->next;
        sim_dir_op_free(op);
    }
    s->dir_ops_end = &s->dir_ops;
    return ok;
}

/* Needs the references of copy_layer(), so that no inode goes while the ring is walked. */
static bool lose_power(struct sim_fs *s, enum fs_sim_loss loss)
{
    if (!lose_entries(s, loss))
        return false;
    for (struct sim_inode *i = s->inodes.next; i != &s->inodes; i = i->next) {
        if (!i->is_dir && !lose_data(s, i, loss))
            return false;
        if (!i->is_dir)
            continue;
        dir_clear(&i->dir);
        for (size_t k = 0; k < i->durable_dir.count; k++)
            if (!sim_dir_set(&i->dir, i->durable_dir.entries[k].name,
                             i->durable_dir.entries[k].inode))
                return false;
    }
    return true;
}

enum err fs_sim_after_crash(struct fs *fs, enum fs_sim_loss loss, uint64_t seed, struct fs **out,
                            struct errinfo *ei)
{
    struct sim_fs *from = (struct sim_fs *)fs;
    struct fs *made = NULL;
    enum err e = fs_sim_new(seed, &made, ei);

    ASSERT(fs->kind == FS_SIM);
    if (e != ERR_OK)
        return e;
    struct sim_fs *to = (struct sim_fs *)made;
    mutex_lock(&from->lock);
    bool ok = copy_layer(from, to);
    if (ok && loss != FS_SIM_KEEP_ALL)
        ok = lose_power(to, loss);
    release_copies(from);
    mutex_unlock(&from->lock);
    if (!ok) {
        fs_free(made);
        return errinfo_set(ei, ERR_NOMEM, 0, "simulated crash");
    }
    *out = made;
    return ERR_OK;
}

static void flip(uint8_t *data, size_t size, uint64_t at, uint8_t mask)
{
    if (at < size)
        data[at] ^= mask;
}

enum err fs_sim_flip_bit(struct fs *fs, const char *path, uint64_t bit, struct errinfo *ei)
{
    struct sim_fs *s = (struct sim_fs *)fs;
    uint64_t at = bit / 8;
    uint8_t mask = (uint8_t)(1U << bit % 8);
    enum err e = ERR_OK;

    ASSERT(fs->kind == FS_SIM);
    mutex_lock(&s->lock);
    struct sim_inode *inode = sim_lookup(s, path);
    if (inode == NULL || inode->is_dir) {
        e = errinfo_set(ei, ERR_NOT_FOUND, 0, "flip a bit of %s", path);
    } else if (at >= inode->content.size) {
        e = errinfo_set(ei, ERR_INVALID, 0, "%s has no bit %" PRIu64, path, bit);
    } else {
        flip(inode->content.data, inode->content.size, at, mask);
        flip(inode->durable_content.data, inode->durable_content.size, at, mask);
        /* A later sync must not bring the old bit back. */
        for (struct sim_data_op *op = inode->ops; op != NULL; op = op->next)
            if (!op->truncation && at >= op->offset)
                flip(op->data, op->size, at - op->offset, mask);
    }
    mutex_unlock(&s->lock);
    return e;
}
