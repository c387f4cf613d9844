/*
 * Segment files: names, listing, creation, and giving one up after a failed write.
 */
#ifndef RIMSTONE_WAL_SEGMENT_INTERNAL_H
#define RIMSTONE_WAL_SEGMENT_INTERNAL_H

#include "base/file.h"
#include "wal/format_internal.h"

struct segment_list {
    uint32_t *numbers; /* owned, ascending; freed by segment_list_done() */
    size_t count, capacity;
};
/* Files with other names are left alone. */
MUST_USE enum err segment_list_read(struct fs *fs, struct segment_list *out, struct errinfo *ei);
void segment_list_done(struct segment_list *list);

/* The segment being written. Committer thread only. */
struct segment {
    struct file *file;    /* owned */
    uint64_t size;        /* written without error */
    uint64_t synced_size; /* known to be durable */
    uint64_t *highest;    /* owned: per shard, the highest sequence number in it, 0: none */
    uint32_t number;
};

/* Creates the file, writes its header and makes its directory entry durable; the header becomes so
 * with the first sync. On error nothing is left behind, as far as the disk allows. */
MUST_USE enum err segment_create(struct fs *fs, const struct segment_header *header,
                                 struct segment **out, struct errinfo *ei);
/*
 * Closes a segment that must not be trusted behind `keep_size` any more (its last write or sync
 * failed): cuts it there, or removes it when it holds no frame, unless it `is_only`: the highest
 * segment number must be found on disk. Best effort. True if it was kept.
 */
bool segment_give_up(struct fs *fs, struct segment *segment, uint64_t keep_size, bool is_only);
/* Closes without syncing. Accepts NULL, and a segment whose `highest` was taken. */
void segment_close(struct segment *segment);

#endif
