/*
 * Inodes, directories, contents and pending operations of the simulated layer: plain data
 * structures without locks or faults.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file_sim_internal.h"

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
uint64_t sim_random(struct sim_fs *s)
{
    uint64_t z = (s->random_state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t sim_random_below(struct sim_fs *s, uint64_t bound)
{
    return bound == 0 ? 0 : sim_random(s) % bound; /* the bias of % harms no test */
}

struct sim_inode *sim_inode_new(struct sim_fs *s, bool is_dir)
{
    struct sim_inode *inode = calloc(1, sizeof *inode);

    if (inode == NULL)
        return NULL;
    inode->is_dir = is_dir;
    inode->ops_end = &inode->ops;
    inode->next = &s->inodes;
    inode->prev = s->inodes.prev;
    inode->prev->next = inode;
    s->inodes.prev = inode;
    return inode;
}

struct sim_inode *sim_inode_ref(struct sim_inode *inode)
{
    inode->ref_count++;
    return inode;
}

static void sim_dir_clear(struct sim_dir *dir) /* NOLINT(misc-no-recursion): see below */
{
    for (size_t i = 0; i < dir->count; i++) {
        free(dir->entries[i].name);
        sim_inode_unref(dir->entries[i].inode);
    }
    free(dir->entries);
    *dir = (struct sim_dir){0};
}

/* Recursive over directories; tests nest them a few deep, and check_path() bounds nothing more. */
void sim_inode_unref(struct sim_inode *inode) /* NOLINT(misc-no-recursion) */
{
    if (inode == NULL)
        return;
    ASSERT(inode->ref_count > 0);
    if (--inode->ref_count > 0)
        return;
    while (inode->ops != NULL) {
        struct sim_data_op *op = inode->ops;

        inode->ops = op->next;
        sim_data_op_free(op);
    }
    sim_dir_clear(&inode->dir);
    sim_dir_clear(&inode->durable_dir);
    free(inode->content.data);
    free(inode->durable_content.data);
    inode->prev->next = inode->next;
    inode->next->prev = inode->prev;
    free(inode);
}

static struct sim_entry *entry_find(const struct sim_dir *dir, const char *name)
{
    for (size_t i = 0; i < dir->count; i++)
        if (strcmp(dir->entries[i].name, name) == 0)
            return &dir->entries[i];
    return NULL;
}

struct sim_inode *sim_dir_get(const struct sim_dir *dir, const char *name)
{
    const struct sim_entry *entry = entry_find(dir, name);

    return entry != NULL ? entry->inode : NULL;
}

bool sim_dir_set(struct sim_dir *dir, const char *name, struct sim_inode *inode)
{
    struct sim_entry *entry = entry_find(dir, name);

    if (entry != NULL) {
        struct sim_inode *old = entry->inode;

        entry->inode = sim_inode_ref(inode); /* first, since it may be the same one */
        sim_inode_unref(old);
        return true;
    }
    if (dir->count == dir->capacity) {
        size_t capacity = dir->capacity == 0 ? 8 : 2 * dir->capacity;
        struct sim_entry *entries = reallocarray(dir->entries, capacity, sizeof *entries);

        if (entries == NULL)
            return false;
        dir->entries = entries;
        dir->capacity = capacity;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return false;
    dir->entries[dir->count++] = (struct sim_entry){copy, sim_inode_ref(inode)};
    return true;
}

void sim_dir_remove(struct sim_dir *dir, const char *name)
{
    struct sim_entry *entry = entry_find(dir, name);

    if (entry == NULL)
        return; /* the durable state may never have had it */
    struct sim_entry gone = *entry;
    *entry = dir->entries[--dir->count];
    free(gone.name);
    sim_inode_unref(gone.inode);
}

bool sim_content_resize(struct sim_content *c, uint64_t size)
{
    if (size > c->capacity) {
        size_t capacity = c->capacity < 4096 ? 4096 : c->capacity;

        while (capacity < size) {
            if (capacity > SIZE_MAX / 2)
                return false;
            capacity *= 2;
        }
        uint8_t *data = realloc(c->data, capacity);
        if (data == NULL)
            return false;
        c->data = data;
        c->capacity = capacity;
    }
    if (size > c->size)
        memset(c->data + c->size, 0, (size_t)size - c->size);
    c->size = (size_t)size;
    return true;
}

bool sim_content_write(struct sim_content *c, uint64_t offset, const uint8_t *data, size_t size)
{
    if (size == 0)
        return true;
    if (offset + size > c->size && !sim_content_resize(c, offset + size))
        return false;
    memcpy(c->data + offset, data, size);
    return true;
}

struct sim_data_op *sim_data_op_new(const struct sim_data_op *like)
{
    struct sim_data_op *op = malloc(sizeof *op);
    uint8_t *data = like->size > 0 ? malloc(like->size) : NULL;

    if (op == NULL || (data == NULL && like->size > 0)) {
        free(op);
        free(data);
        return NULL;
    }
    *op = *like;
    op->next = NULL;
    op->data = data;
    if (like->size > 0)
        memcpy(data, like->data, like->size);
    return op;
}

void sim_data_op_free(struct sim_data_op *op)
{
    if (op == NULL)
        return;
    free(op->data);
    free(op);
}

void sim_data_op_add(struct sim_inode *inode, struct sim_data_op *op)
{
    *inode->ops_end = op;
    inode->ops_end = &op->next;
}

bool sim_dir_op_apply(const struct sim_dir_op *op)
{
    switch (op->kind) {
    case SIM_SET:
        return sim_dir_set(&op->dir->durable_dir, op->name, op->inode);
    case SIM_REMOVE:
        sim_dir_remove(&op->dir->durable_dir, op->name);
        return true;
    case SIM_RENAME:
        if (!sim_dir_set(&op->to_dir->durable_dir, op->to_name, op->inode))
            return false;
        /* Only if the old name still means this file: its creation may be what was lost. */
        if (sim_dir_get(&op->dir->durable_dir, op->name) == op->inode)
            sim_dir_remove(&op->dir->durable_dir, op->name);
        return true;
    }
    return true;
}

void sim_dir_op_free(struct sim_dir_op *op)
{
    if (op == NULL)
        return;
    free(op->name);
    free(op->to_name);
    sim_inode_unref(op->dir);
    sim_inode_unref(op->to_dir);
    sim_inode_unref(op->inode);
    free(op);
}

void sim_dir_op_add(struct sim_fs *s, struct sim_dir_op *op)
{
    *s->dir_ops_end = op;
    s->dir_ops_end = &op->next;
}

struct sim_inode *sim_lookup(const struct sim_fs *s, const char *path)
{
    struct sim_inode *at = s->root;
    char part[256];

    if (strcmp(path, ".") == 0)
        return at;
    while (at != NULL && at->is_dir) {
        size_t size = strcspn(path, "/");

        ASSERT(size > 0 && size < sizeof part); /* file.c has checked the path */
        memcpy(part, path, size);
        part[size] = '\0';
        at = sim_dir_get(&at->dir, part);
        if (path[size] == '\0')
            return at;
        path += size + 1;
    }
    return NULL;
}
