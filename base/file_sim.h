/*
 * The simulated file layer: files and directories in memory with a durable and a volatile state,
 * for crash tests. Public because the tests of every module above use it.
 *
 * Every mutating call (create, write, truncate, sync, rename, link, unlink, mkdir, sync_dir) counts
 * as one operation; file_write_sync() counts as two.
 *
 * What is durable: a file's writes and truncations after file_sync() of that file; its name, and
 * every rename, link, removal and new directory, after fs_sync_dir() of the directory it is in. A
 * new directory loses all it holds until its parent has been synced. A rename within one directory
 * happens whole or not at all. A failed file_sync() drops what was unsynced: calls still see it, no
 * later sync makes it durable.
 */
#ifndef RIMSTONE_BASE_FILE_SIM_H
#define RIMSTONE_BASE_FILE_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

MUST_USE enum err fs_sim_new(uint64_t seed, struct fs **out, struct errinfo *ei);

/* Operations so far. */
uint64_t fs_sim_op_count(const struct fs *fs);

enum fs_sim_fault {
    FS_SIM_FAULT_NONE,
    FS_SIM_FAULT_CRASH, /* from this operation on every call fails with ERR_IO: power is gone. The
                         * operation itself may have happened, in part or whole, by the seed. */
    FS_SIM_FAULT_EIO,   /* this one operation fails (a write maybe in part); a failed sync drops
                         * its dirty pages */
    FS_SIM_FAULT_NO_SPACE, /* writes and creations fail until fs_sim_clear_fault() */
    FS_SIM_FAULT_SLOW,     /* syncs block until fs_sim_clear_fault() */
};
/* Arms a fault at operation number `at_op` (compared with fs_sim_op_count()); one at a time. */
void fs_sim_set_fault(struct fs *fs, enum fs_sim_fault fault, uint64_t at_op);
void fs_sim_clear_fault(struct fs *fs);
/* True once an armed fault has been hit. */
bool fs_sim_fault_hit(const struct fs *fs);

enum fs_sim_loss {
    FS_SIM_KEEP_ALL,    /* SIGKILL: everything written survives, what was unsynced stays unsynced */
    FS_SIM_DROP_ALL,    /* power loss: only what was synced survives */
    FS_SIM_DROP_RANDOM, /* unsynced writes survive one by one by the seed: lost, torn at any byte,
                         * reordered; unsynced directory entries likewise */
};
/* The state after a crash as a new, fault-free layer (the old one stays for inspection until
 * fs_free(); open handles on it stay valid). Locks are free. */
MUST_USE enum err fs_sim_after_crash(struct fs *fs, enum fs_sim_loss loss, uint64_t seed,
                                     struct fs **out, struct errinfo *ei);
/* Flips one bit of a file's content, in durable and volatile state. */
MUST_USE enum err fs_sim_flip_bit(struct fs *fs, const char *path, uint64_t bit,
                                  struct errinfo *ei);

#endif
