/*
 * The simulated file layer's state.
 *
 * An inode is a file or a directory. Each has a volatile state (the page cache: what calls see) and
 * a durable one (the platter: what a power loss leaves). Between them stand pending operations in
 * the order of the calls: data operations per file, directory operations in one list for the whole
 * layer, as a rename may touch two directories. A sync applies the pending operations of its file
 * or directory to the durable state. A failed sync throws them away: the page cache keeps showing
 * data that no later sync will bring to the platter, which is what Linux does.
 */
#ifndef RIMSTONE_BASE_FILE_SIM_INTERNAL_H
#define RIMSTONE_BASE_FILE_SIM_INTERNAL_H

#include "base/bytes.h"
#include "base/file_internal.h"
#include "base/file_sim.h"

enum { SIM_SECTOR_BYTES = 512 };

/* A write or a truncation that is not durable yet. */
struct sim_data_op {
    struct sim_data_op *next;
    uint64_t number; /* ascending over the whole layer */
    bool truncation;
    uint64_t offset; /* of the write; the new size of a truncation */
    size_t size;
    uint8_t *data; /* owned */
};

struct sim_entry {
    char *name;              /* owned */
    struct sim_inode *inode; /* counted */
};

struct sim_dir {
    struct sim_entry *entries;
    size_t count, capacity;
};

struct sim_content {
    uint8_t *data; /* owned */
    size_t size, capacity;
};

struct sim_inode {
    struct sim_inode *prev, *next; /* all inodes of the layer */
    uint32_t ref_count;            /* entries of both states, pending operations, open handles */
    bool is_dir;
    struct sim_content content, durable_content;
    struct sim_data_op *ops, **ops_end;
    struct sim_dir dir, durable_dir;
    struct sim_inode *copy; /* scratch of the crash copy */
};

enum sim_dir_op_kind { SIM_SET, SIM_REMOVE, SIM_RENAME };

struct sim_dir_op {
    struct sim_dir_op *next;
    uint64_t number;
    enum sim_dir_op_kind kind;
    struct sim_inode *dir;    /* counted: where an entry is set or removed, or renamed from */
    char *name;               /* owned */
    struct sim_inode *to_dir; /* counted; rename only */
    char *to_name;            /* owned; rename only */
    struct sim_inode *inode;  /* counted: what is set or moved; NULL for a removal */
};

struct sim_fs {
    struct fs base;
    struct mutex lock; /* guards everything below; a leaf lock */
    struct cond slow_over;
    struct sim_inode inodes; /* head of the ring of all inodes */
    struct sim_inode *root;  /* counted */
    struct sim_dir_op *dir_ops, **dir_ops_end;
    uint64_t op_count;
    uint64_t random_state;
    enum fs_sim_fault fault;
    uint64_t fault_at;
    bool fault_hit, power_gone;
    bool locked;
    uint32_t open_count;
};

uint64_t sim_random(struct sim_fs *s);
uint64_t sim_random_below(struct sim_fs *s, uint64_t bound);

/* An inode with ref_count 0 in the layer's ring; NULL: no memory. */
struct sim_inode *sim_inode_new(struct sim_fs *s, bool is_dir);
struct sim_inode *sim_inode_ref(struct sim_inode *inode);
/* Accepts NULL; frees the inode, and what it alone refers to, with the last reference. */
void sim_inode_unref(struct sim_inode *inode);

struct sim_inode *sim_dir_get(const struct sim_dir *dir, const char *name);
/* Adds or replaces. False: no memory, nothing changed. */
bool sim_dir_set(struct sim_dir *dir, const char *name, struct sim_inode *inode);
void sim_dir_remove(struct sim_dir *dir, const char *name);

/* Writes, extending with zeros where needed. False: no memory, nothing changed. */
bool sim_content_write(struct sim_content *c, uint64_t offset, const uint8_t *data, size_t size);
bool sim_content_resize(struct sim_content *c, uint64_t size);

struct sim_data_op *sim_data_op_new(const struct sim_data_op *like);
void sim_data_op_free(struct sim_data_op *op);
void sim_data_op_add(struct sim_inode *inode, struct sim_data_op *op);
/* Applies a directory operation to the durable entries. False: no memory. */
bool sim_dir_op_apply(const struct sim_dir_op *op);
void sim_dir_op_free(struct sim_dir_op *op);
void sim_dir_op_add(struct sim_fs *s, struct sim_dir_op *op);

/* The inode at a path in the volatile state, or NULL. */
struct sim_inode *sim_lookup(const struct sim_fs *s, const char *path);

/* What becomes of one mutating call. */
struct sim_step {
    enum err e;
    bool power_cut;  /* this call is the one the power went out in: it may have happened or not */
    uint64_t number; /* which operation it is */
};

static inline struct sim_fs *sim_of(struct fs *fs)
{
    return (struct sim_fs *)fs;
}

/* The functions below need the layer's lock. */
bool sim_coin(struct sim_fs *s);
/* Called first by every call that changes something: counts it and decides its fate. */
struct sim_step sim_step_begin(struct sim_fs *s, bool needs_space, struct errinfo *ei);
/* Syncs only: blocks while FS_SIM_FAULT_SLOW is armed for this operation, without the lock. */
void sim_wait_while_slow(struct sim_fs *s, struct sim_step *step, struct errinfo *ei);
/* A new file or directory. *out is borrowed from its entry. */
enum err sim_create_entry(struct sim_fs *s, const char *path, bool is_dir, struct sim_inode **out,
                          struct errinfo *ei);

/* Stories of the usual failures. */
enum err sim_power_is_gone(struct errinfo *ei);
enum err sim_no_memory(struct errinfo *ei);
enum err sim_no_such(const char *what, const char *path, struct errinfo *ei);
enum err sim_refused(int sys_errno, const char *what, const char *path, struct errinfo *ei);

/* file_sim_names.c: operations of struct fs_ops; they take the lock themselves. */
enum err sim_mkdir(struct fs *fs, const char *path, struct errinfo *ei);
enum err sim_rename(struct fs *fs, const char *from, const char *to, struct errinfo *ei);
enum err sim_link(struct fs *fs, const char *from, const char *to, struct errinfo *ei);
enum err sim_unlink(struct fs *fs, const char *path, struct errinfo *ei);
enum err sim_exists(struct fs *fs, const char *path, bool *out, struct errinfo *ei);
enum err sim_sync_dir(struct fs *fs, const char *path, struct errinfo *ei);
enum err sim_list(struct fs *fs, const char *path, struct name_list *out, struct errinfo *ei);

#endif
