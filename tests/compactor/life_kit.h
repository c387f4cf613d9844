/*
 * A store on a simulated disk beside the model of what it holds, and each step of the life cycle as
 * one call on both. What the tests of whole lives share.
 *
 * Steps return the engine's error, so that a crash or a full disk may end them; checks abort.
 * One thread, but for whatever the engine runs by itself.
 */
#ifndef RIMSTONE_TESTS_LIFE_KIT_H
#define RIMSTONE_TESTS_LIFE_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file_sim.h"
#include "engine/maintain.h"
#include "tests/compactor/life_model.h"
#include "tests/engine/engine_kit.h"
#include "tests/lib/test_fs.h"

#define LIFE_T0 KIT_NOW_MS
#define LIFE_MINUTE INT64_C(60000)
#define LIFE_HOUR (60 * LIFE_MINUTE)
#define LIFE_WINDOW (2 * LIFE_HOUR)
enum { LIFE_SHARDS_MAX = 16 };

struct life {
    struct fs *fs; /* owned */
    struct kit kit;
    bool is_open;
    struct life_model model;
    int64_t now_ms;
    uint32_t shard_count;                /* of the next start; 0: as stored */
    uint64_t sequences[LIFE_SHARDS_MAX]; /* of all that was sent since the start */
    unsigned variant;                    /* order of labels on the wire */
    bool purge_is_unsure;                /* the next start shows whether it stands */
    bool purge_is_worn;                  /* a file may have been written anew without what it hid */
    unsigned snapshot_count;             /* made, and so durable; for scenarios that count them */
};

/* Takes over `fs`; the model is empty and the store closed. */
void life_init(struct life *l, struct fs *fs, uint32_t shard_count);
/* The same with a copy of a model and what it was of. */
void life_init_like(struct life *l, struct fs *fs, const struct life *other);
void life_done(struct life *l);

MUST_USE enum err life_open(struct life *l, struct errinfo *ei);
void life_open_checked(struct life *l);
void life_close(struct life *l);
/* The process dies; the disk stays as it is, what was not waited for may be lost. */
void life_abandon(struct life *l);
/* The same, and the power fails; the layer is replaced. */
void life_lose_power(struct life *l, const struct test_crash_mode *mode, uint64_t seed);
void life_set_now(struct life *l, int64_t now_ms);

/* Adds a sample to the request at hand. Samples of one series that follow each other share it. */
void life_put(struct life *l, uint32_t series, int64_t t_ms, double value);
/* Sends what was added. On success it is noted in the model; a refusal of anything but a timestamp
 * that is taken already fails the test. */
MUST_USE enum err life_send(struct life *l);
/* Waits until all that was sent is durable. */
MUST_USE enum err life_wait(struct life *l);
/* Both; CHECKed. */
void life_send_checked(struct life *l);

/* ---- steps; `shard` from 0 ---- */

MUST_USE enum err life_seal(struct life *l, uint32_t shard);
/* Series that have ended leave, even a few of them: *count. Only those that were there at the seal
 * before, and whose definitions have been logged twice. */
MUST_USE enum err life_seal_ended(struct life *l, uint32_t shard, uint64_t *count);
/* Waits until all definitions have been logged twice, or a fault has been hit. */
void life_wait_repeated(struct life *l);
MUST_USE enum err life_flush(struct life *l, uint32_t shard, int64_t until_ms);
MUST_USE enum err life_split_late(struct life *l, uint32_t shard);
/* What the planner would do next; *merged: whether there was anything. Ranges that were deleted are
 * dropped on the way. */
MUST_USE enum err life_merge(struct life *l, uint32_t shard, bool *merged);
/* Splits or joins the next parts of another shard count. */
MUST_USE enum err life_regroup(struct life *l, uint32_t shard, bool *done);
/* Rewrites one part that a tombstone concerns; *purged: whether there was one. */
MUST_USE enum err life_purge(struct life *l, uint32_t shard, bool *purged);
MUST_USE enum err life_retire_tombstones(struct life *l);
/* Removes parts whose window ended before the cutoff. */
MUST_USE enum err life_retain(struct life *l, uint32_t shard, int64_t cutoff_ms);
MUST_USE enum err life_delete(struct life *l, const struct matcher *matchers, size_t matcher_count,
                              int64_t min_time_ms, int64_t max_time_ms);
/* One matcher from text, in `arena`. */
struct matcher life_matcher(struct arena *arena, enum matcher_kind kind, const char *name,
                            const char *value);
/* Of one series, likewise. */
struct matcher life_series_matcher(struct arena *arena, uint32_t series);
/* Deletes a range of one series. */
MUST_USE enum err life_delete_series(struct life *l, uint32_t series, int64_t min_time_ms,
                                     int64_t max_time_ms);
/* A purge that can be taken back, one at a time (life_purge.c); model.is_hiding: it stands. */
MUST_USE enum err life_purge_make(struct life *l, const struct matcher *matchers,
                                  size_t matcher_count);
MUST_USE enum err life_purge_make_series(struct life *l, uint32_t series);
MUST_USE enum err life_purge_make_rule(struct life *l, const struct relabel_config *rule);
MUST_USE enum err life_purge_withdraw(struct life *l);
/* Compares what a start has found with the model, or takes it over if that was left open. */
void life_purge_opened(struct life *l);
MUST_USE enum err life_rebuild(struct life *l, uint32_t shard);
MUST_USE enum err life_snapshot(struct life *l, const char *path);
/* Opens the snapshot by itself and compares all of it with what the store holds now. */
void life_check_snapshot(struct life *l, const char *path);
/* For the steps that take one; all zero at the beginning. */
struct maintain_control *life_control(void);

/* ---- checks ---- */

/* All series, all samples. */
void life_check(struct life *l);
/* Series by matchers, samples in a range, names and values of labels. */
void life_check_query(struct life *l, const struct matcher *matchers, size_t matcher_count,
                      int64_t min_time_ms, int64_t max_time_ms);
/* A verification of the directory, which nobody has open, finds no damage. */
void life_verify(struct fs *fs, bool log_may_be_torn);
/* No file of ours but those the manifest names, and these are all there. The store may be open; if
 * it is not, the directory is verified too. */
void life_check_files(struct life *l);

#endif
