/*
 * The engine as the compactor sees it (engine/maintain.h), in memory: shards whose state a test
 * sets, real parts on a simulated disk, tombstones of one series each. It defines the functions of
 * maintain.h itself, so the program must not need the real ones.
 */
#ifndef RIMSTONE_TESTS_COMPACTOR_FAKE_MAINTAIN_H
#define RIMSTONE_TESTS_COMPACTOR_FAKE_MAINTAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "engine/maintain.h"
#include "tests/compactor/merge_kit.h"
#include "tests/engine/part_kit.h"

enum { FAKE_SHARDS = 3, FAKE_PARTS_MAX = 128, FAKE_TOMBSTONES_MAX = 32, FAKE_SERIES = 10 };

struct fake_part {
    struct part *part; /* owned; closed, and its files removed, by the last reference */
    uint32_t refs;
    bool is_live;
};

struct fake_tombstone {
    uint32_t shard, series;
    struct merge_range range;
    uint64_t generation;
};

/* What to fail with, how often; -1: always. */
struct fake_failure {
    enum err code;
    int times;
};

struct fake_calls {
    unsigned seals, flushes, splits, exchanges;
    uint32_t last_shard;
    enum seal_reason last_reason;
    int64_t last_until_ms;
};

struct engine {
    struct mutex lock; /* guards all but the store */
    struct cond changed;
    int64_t now_ms;
    struct seal_state states[FAKE_SHARDS];
    struct fake_part parts[FAKE_SHARDS][FAKE_PARTS_MAX];
    size_t part_counts[FAKE_SHARDS]; /* gone ones included */
    struct fake_tombstone tombstones[FAKE_TOMBSTONES_MAX];
    size_t tombstone_count;
    struct engine_file_stats files;
    uint64_t log_bytes;
    struct fake_failure seal_fails, flush_fails, exchange_fails, snapshot_fails;
    struct fake_calls calls;
    char snapshot_path[128]; /* of the last one */
    /* Constant after fake_init(). */
    struct test_random random;
    struct kit_store store;
    struct merge_kit kits[FAKE_SHARDS]; /* .written: what should be there */
};

void fake_init(struct engine *e, uint64_t seed);
/* Checks that nobody holds a part and that no other file is left. */
void fake_done(struct engine *e);
/* Writes a random part and makes it live. */
void fake_part_add(struct engine *e, uint32_t shard, int64_t first_hour, int64_t hours,
                   uint64_t generation);
size_t fake_live_count(struct engine *e, uint32_t shard);
/* Deletes what is there now of a series in a range. */
void fake_delete(struct engine *e, uint32_t shard, uint32_t series, int64_t first_hour,
                 int64_t hours, uint64_t generation);
/* The live parts, read under the rule for repeats and the tombstones, hold what was written. */
void fake_check(struct engine *e);
/* Samples of live parts that a tombstone hides. */
size_t fake_hidden_count(struct engine *e);
/* Flips a bit in the middle of a file of the live part of that generation. */
void fake_damage(struct engine *e, uint32_t shard, uint64_t generation);
/* Waits for a change of anything, at most until the deadline; false on time-out. Under the lock. */
bool fake_wait(struct engine *e, uint64_t deadline_mono_ns);

#endif
