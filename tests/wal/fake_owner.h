/*
 * A simple owner of the log for tests: shards whose entries are numbers that follow from shard and
 * sequence, a source that hands them over, and a sink that checks each one it gets: content, order,
 * once only.
 */
#ifndef RIMSTONE_TESTS_WAL_FAKE_OWNER_H
#define RIMSTONE_TESTS_WAL_FAKE_OWNER_H

#include "base/file.h"
#include "base/thread.h"
#include "wal/wal.h"

struct fake_shard {
    struct mutex lock;    /* guards the rest */
    uint64_t queue_begin; /* queued entries are [queue_begin, queue_end) */
    uint64_t queue_end;
    /* What the sink got: one flag a sequence number. */
    bool *applied;
    uint64_t applied_capacity, applied_end, applied_count;
    uint64_t lost_count;
    uint64_t lost_from_min;      /* 0: nothing was reported lost */
    uint64_t covered_mate_count; /* covered entries that came in a frame with others */
};

struct fake_owner {
    struct fake_shard *shards;
    uint32_t shard_count;
    uint32_t entry_words; /* payload words an entry; the first is its value */
    bool compressible;
    uint64_t batch_limit;          /* entries a batch; 0: all */
    _Atomic uint64_t encode_fails; /* this many encode calls fail with ERR_NOMEM */
    _Atomic int64_t held_batches;  /* taken and not released */
    const uint64_t *covered;       /* the sink's covered_sequences; borrowed, may be NULL */
};

struct fake_owner *fake_new(uint32_t shard_count);
void fake_free(struct fake_owner *o);
struct wal_source fake_source(struct fake_owner *o);
struct wal_sink fake_sink(struct fake_owner *o);
/* Options for quick tests: every commit starts at once. */
struct wal_options fake_options(struct fake_owner *o, struct fs *fs);
uint64_t fake_entry_value(uint32_t shard, uint64_t sequence);

/* open, replay into `o` (must be fresh), start. Any of them may fail on a broken layer; then *out
 * is NULL. result may be NULL. */
MUST_USE enum err fake_start(struct fake_owner *o, const struct wal_options *options,
                             struct wal **out, struct wal_replay_result *result,
                             struct errinfo *ei);
/* Queues `count` entries without telling the log; returns the shard's newest sequence number. */
uint64_t fake_queue(struct fake_owner *o, uint32_t shard, uint64_t count);
/* Queues, notifies, waits until durable. */
MUST_USE enum err fake_write(struct fake_owner *o, struct wal *w, uint32_t shard, uint64_t count,
                             struct errinfo *ei);
bool fake_has(struct fake_owner *o, uint32_t shard, uint64_t sequence);
/* Sum over shards of what the sink got. */
uint64_t fake_applied(const struct fake_owner *o);
uint64_t fake_lost(const struct fake_owner *o);

/* Replays `fs` into a fresh owner without starting; the caller frees it. */
struct fake_owner *fake_replay(struct fs *fs, uint32_t shard_count, uint32_t threads,
                               struct wal_replay_result *result);
struct fake_owner *fake_replay_covered(struct fs *fs, uint32_t shard_count, uint32_t threads,
                                       const uint64_t *covered, struct wal_replay_result *result);
/* The whole file; *out is malloc()ed. */
size_t fake_file_read(struct fs *fs, const char *path, uint8_t **out);
/* Creates or replaces the file and makes it durable. */
void fake_file_write(struct fs *fs, const char *path, const void *data, size_t size);

#endif
