/*
 * Frames in memory, and the threads that fill them: encode (the owner's callback), compress,
 * checksum.
 */
#ifndef RIMSTONE_WAL_ENCODE_INTERNAL_H
#define RIMSTONE_WAL_ENCODE_INTERNAL_H

#include <stdatomic.h>

#include "wal/format_internal.h"

/* A batch on its way to the disk. Owned by the committer; while encode_team_run() runs, one thread
 * of the team has it. */
struct frame {
    struct frame *next; /* in the pool of unused frames */
    struct wal_batch batch;
    /* All but segment number and start epoch, which are stamped at each write. */
    struct frame_header header;
    uint8_t header_bytes[FRAME_HEADER_SIZE];
    uint8_t *payload; /* owned, header.stored_size bytes */
    size_t payload_capacity;
    bool encoded;  /* the payload stands, the batch has been released */
    bool selected; /* part of the write under way */
};

struct encode_team;

/* `backlog_bytes` (borrowed) follows the memory: it holds batch.memory_bytes of a frame before, and
 * its payload size once it is encoded. */
MUST_USE enum err encode_team_new(const struct wal_source *source, uint32_t thread_count,
                                  _Atomic int64_t *backlog_bytes, struct encode_team **out,
                                  struct errinfo *ei);
/* Encodes every frame that is not encoded yet, the caller's thread helping. ERR_NOMEM when some
 * were left as they are. */
enum err encode_team_run(struct encode_team *team, struct frame **frames, size_t frame_count);
/* Stops the threads. Accepts NULL. */
void encode_team_free(struct encode_team *team);

#endif
