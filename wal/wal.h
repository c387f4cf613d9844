/*
 * The log: one sequence of segment files for all shards, written by one committer thread, so that
 * one write and one fdatasync make the queued entries of every shard durable at once.
 *
 * The log does not know what an entry is. Each shard numbers its entries 1, 2, 3, ...; a frame
 * holds a run of one shard's entries as an opaque payload. Entries wait in the owner (the engine),
 * which hands them over batch by batch through `struct wal_source`. Format: docs/formats/wal.md.
 *
 * Life: wal_open() -> wal_replay() -> wal_start() -> wal_notify()/wal_wait() ... -> wal_close().
 * What the owner has made durable elsewhere leaves the log segment by segment: wal_cut().
 */
#ifndef RIMSTONE_WAL_WAL_H
#define RIMSTONE_WAL_WAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/metrics.h"

struct wal;

#define WAL_DIR "wal" /* the folder of the data directory */
enum { WAL_PATH_SIZE = 32 };
/* "wal/00000001.wal"; more digits when eight are not enough. */
void wal_segment_path(uint32_t number, char out[WAL_PATH_SIZE]);
/* True for exactly the names wal_segment_path() makes, without the folder. */
bool wal_segment_name_parse(const char *name, uint32_t *number);

enum wal_sync {
    WAL_SYNC_ALWAYS,   /* durable means fdatasync has returned */
    WAL_SYNC_INTERVAL, /* synced every sync_interval_ms; "durable" means written to the file */
    WAL_SYNC_NEVER,    /* never synced; "durable" means written to the file */
};

enum {
    WAL_SHARD_COUNT_MAX = 4096,
    WAL_BACKLOG_LIMIT_BYTES = 64 << 20, /* queued beyond this: new requests get 503 */
    WAL_PAYLOAD_SIZE_MAX = 256 << 20,   /* of one batch, encoded; more is the owner's bug */
};

/* A run of one shard's entries on its way to the disk. */
struct wal_batch {
    uint64_t first_sequence;
    uint64_t entry_count;  /* > 0; covers [first_sequence, first_sequence + entry_count) */
    uint64_t sample_count; /* for pacing and statistics */
    size_t memory_bytes;   /* what it holds in memory until released, counted as backlog */
    void *data;            /* the owner's */
};

/* The owner of the entries. All functions are called by the log's threads. */
struct wal_source {
    void *ctx;
    /* Committer thread. Takes what that shard has queued, in order; false if there is nothing. Is
     * called again until it is false, so an owner may hand over a long queue in several batches.
     * Must be cheap: it may hold the shard's lock only to swap a buffer. The first batch starts at
     * wal_next_sequence(), each later one where the last ended. */
    bool (*take)(void *ctx, uint32_t shard, struct wal_batch *out);
    /* Any log thread, several batches at once. Appends the payload; fails only with ERR_NOMEM, and
     * then the batch stays queued and is tried again (waiters are told ERR_NOMEM). */
    enum err (*encode)(void *ctx, uint32_t shard, const struct wal_batch *batch,
                       struct byte_writer *payload);
    /* Gives the batch's memory back, once its frame exists in full. */
    void (*release)(void *ctx, uint32_t shard, struct wal_batch *batch);
};

struct wal_options {
    struct fs *fs; /* borrowed; the log's files live in its folder "wal" */
    /* For whoever only looks: nothing on disk changes, there is no wal_start(). The folder may be
     * missing. */
    bool read_only;
    uint32_t shard_count;
    enum wal_sync sync;
    uint32_t sync_interval_ms;     /* for WAL_SYNC_INTERVAL */
    uint64_t segment_size_bytes;   /* 0: 128 MiB */
    uint32_t commit_sample_target; /* average samples a frame before a commit starts; 0: 512 */
    uint32_t commit_delay_ms;      /* longest wait of a queued entry for a fuller frame; 0: 10 */
    uint32_t encode_threads;       /* frames are encoded and compressed by these, at most 64;
                                    * 0: half the cores, at least 1; the committer helps */
    struct wal_source source;
    struct metrics_registry *metrics; /* borrowed, may be NULL */
};

/* Creates the folder when it is missing (not with read_only); reads nothing yet. */
MUST_USE enum err wal_open(const struct wal_options *options, struct wal **out, struct errinfo *ei);

/* Bytes of a segment that should be a frame or a header and are none. */
struct wal_damage {
    uint32_t segment; /* its number */
    uint64_t offset;  /* where they begin in its file */
    const char *what; /* constant */
};

/* Receives what the log holds. Called by replay workers: one shard's frames arrive in order and
 * never at the same time; different shards run in parallel. */
struct wal_sink {
    void *ctx;
    /* ERR_CORRUPT: the payload makes no sense although its checksum holds; counted as a bad frame,
     * replay goes on. Any other error stops the replay. A frame whose entries were all seen before
     * (a rewrite after a failed sync) is not delivered; one that overlaps partly cannot occur (the
     * log never cuts a batch differently the second time) and would count as bad. */
    enum err (*apply)(void *ctx, uint32_t shard, uint64_t first_sequence, uint64_t entry_count,
                      struct bytes payload, struct errinfo *ei);
    /* A gap in the shard's sequence: [from, to) is lost, any number of entries. Called before the
     * frame behind it, on its thread; for a bad frame that nothing follows, by wal_replay()'s
     * thread at the end. */
    void (*lost)(void *ctx, uint32_t shard, uint64_t from_sequence, uint64_t to_sequence);
    /*
     * One per shard, borrowed until wal_replay() returns, or NULL: the owner has every entry up to
     * this one elsewhere (0: none). Frames that hold nothing above it are not delivered, and what
     * is missing or bad up to it is no loss; what is missing above it is, from the first entry on.
     * A frame that reaches from below to above is delivered whole: the owner passes over what it
     * has. At least what any wal_cut() before was given.
     */
    const uint64_t *covered_sequences;
    /*
     * What is counted as bad frames, place by place; NULL: only counted. The reader and the workers
     * call it, at the same time and in no order. Places of the last segment at or behind
     * wal_replay_result.last_segment_end turn out to be the torn tail, which is no damage.
     */
    void (*bad)(void *ctx, const struct wal_damage *damage);
    bool verify_covered; /* also check the frames that covered_sequences passes over */
};

struct wal_replay_result {
    uint64_t segment_count, byte_count, frame_count, entry_count;
    uint64_t covered_frame_count; /* not delivered: covered_sequences */
    uint64_t bad_frame_count;     /* frames, and runs of bytes that are none, skipped */
    uint64_t lost_entry_count;    /* entries missing in gaps */
    /* Of these, where a later start of the server goes on, or at the end: torn off by a crash, most
     * likely, for numbers are never used again. */
    uint64_t lost_at_start_count, lost_at_end_count;
    uint64_t torn_tail_bytes;  /* cut from the last segment; with read_only: left there */
    uint64_t last_segment_end; /* of what counts in it */
    uint32_t last_segment;     /* its number, 0: there is none */
};

/*
 * Reads all segments with one reader and `thread_count` workers (0: all cores). One rule for all
 * segments: a bad frame costs only itself, the reader resynchronises behind it. Then truncates and
 * syncs the last segment to what was recovered. Once, between wal_open() and wal_start().
 * ERR_UNSUPPORTED: a segment of a newer version. ERR_INVALID: the log has another shard count.
 * ERR_IO: unreadable. Nothing on disk has changed then.
 */
MUST_USE enum err wal_replay(struct wal *w, const struct wal_sink *sink, uint32_t thread_count,
                             struct wal_replay_result *out, struct errinfo *ei);
/* Segment numbers for /api/v1/status/walreplay and bytes for a rate; any thread, any time. */
struct wal_progress {
    uint64_t segment_min, segment_max, segment_current;
    uint64_t bytes_done, bytes_total;
};
void wal_progress_get(const struct wal *w, struct wal_progress *out);

/* Opens a fresh segment above everything seen and starts the committer. On a full disk the log
 * starts without one, refuses in wal_admit() and opens it when there is room. */
MUST_USE enum err wal_start(struct wal *w, struct errinfo *ei);
/* The sequence number the shard's next entry must have: one above the highest ever seen or covered.
 */
uint64_t wal_next_sequence(const struct wal *w, uint32_t shard);

/* Tells the committer that `entry_count` entries (`sample_count` samples) were queued at the owner.
 * Cheap: an atomic addition, a wake-up only when the committer sleeps. */
void wal_notify(struct wal *w, uint64_t entry_count, uint64_t sample_count);
/* The same for an owner that knows how many bytes of memory the entries hold (what they will add to
 * wal_batch.memory_bytes); wal_notify() guesses from the batches before. The backlog needs it while
 * a commit is stuck in a slow sync and nothing is taken. */
void wal_notify_bytes(struct wal *w, uint64_t entry_count, uint64_t sample_count,
                      uint64_t memory_bytes);
/* Highest durable sequence number of a shard (acquire). */
uint64_t wal_durable_sequence(const struct wal *w, uint32_t shard);

/*
 * A request that waits for durability. The caller fills `sequences` (one per shard, 0: not touched)
 * and `done`; the memory must stay until done() has been called, exactly once.
 */
struct wal_waiter {
    uint64_t *sequences; /* shard_count of them, borrowed */
    /* Runs on the committer's thread, or inside wal_wait() when nothing is missing; must not block.
     * code != ERR_OK: a commit failed since (ERR_NO_SPACE, ERR_IO or ERR_NOMEM); the entries stay
     * queued and will be tried again, but this request must not be acknowledged. ERR_CANCELED: the
     * log was closed first. */
    void (*done)(struct wal_waiter *waiter, enum err code);
    struct wal_waiter *next; /* the log's */
};
void wal_wait(struct wal *w, struct wal_waiter *waiter);
/* Blocking form, for tests and shutdown. */
MUST_USE enum err wal_wait_blocking(struct wal *w, const uint64_t *sequences, struct errinfo *ei);

/* ERR_OK, or why new entries should be refused now: more than WAL_BACKLOG_LIMIT_BYTES are queued
 * (ERR_UNAVAILABLE), the disk is full (ERR_NO_SPACE) or fails again and again (ERR_IO). All of them
 * go away by themselves. Two atomic loads. */
enum err wal_admit(const struct wal *w);

struct wal_stats {
    uint64_t bytes_written, frames_written, commits, samples_written, segment_current;
    uint64_t backlog_bytes, commit_failures;
    uint64_t log_bytes, segment_count; /* on disk now: what a cut would make smaller */
};
void wal_stats_get(const struct wal *w, struct wal_stats *out);

/*
 * Removes segments from the oldest on, as long as all their frames lie at or below `sequences` (one
 * per shard, 0: nothing); never the newest one. The caller has those entries durable elsewhere and
 * gives at least these numbers as covered_sequences to every later replay. *removed_count (may be
 * NULL) counts files, also on ERR_IO: what could not be removed is tried again by the next cut. Any
 * thread, after wal_replay(); cuts wait for each other, commits go on meanwhile.
 */
MUST_USE enum err wal_cut(struct wal *w, const uint64_t *sequences, uint64_t *removed_count,
                          struct errinfo *ei);
/* Has the committer end the current segment soon, also when nothing is queued, so that a later cut
 * can remove it; does nothing when it holds no frame. Returns at once; if no new segment can be
 * made the current one stays and the log says so. */
void wal_rotate(struct wal *w);

/* Removes all segments of a log that nobody has open, durably, from the oldest on: all that it
 * holds is elsewhere and covered (wal_sink.covered_sequences). No folder: nothing to do. */
MUST_USE enum err wal_erase(struct fs *fs, struct errinfo *ei);

/* Commits what is queued (as far as the disk allows, at most `deadline_ms`), syncs, stops the
 * threads, frees. ERR_IO or ERR_NO_SPACE when something queued could not be written, ERR_TIMEOUT
 * when the deadline left some of it. A sync that hangs in the kernel is waited for. */
MUST_USE enum err wal_close(struct wal *w, uint32_t deadline_ms, struct errinfo *ei);
/* For crash tests and a second SIGTERM: stops without committing. */
void wal_abandon(struct wal *w);

#endif
