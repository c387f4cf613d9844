/*
 * What to do next, as pure functions of what the shards report: no clock, no I/O.
 *
 * Sealing bounds what a restart has to replay, the log and the memory; the earlier a seal comes the
 * fewer samples share a chunk. So each rule below waits as long as its bound allows.
 */
#ifndef RIMSTONE_COMPACTOR_POLICY_INTERNAL_H
#define RIMSTONE_COMPACTOR_POLICY_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/maintain.h"

enum {
    /* CPU time a replay may take over all shards, and what an entry takes where nothing was
     * measured: docs/operations.md has 50 to 140 ns a sample, the seldom definitions included. */
    POLICY_REPLAY_SECONDS = 10,
    POLICY_REPLAY_NS_PER_ENTRY = 100,
    POLICY_WINDOW_CLOSED_MS = 10 * 60 * 1000, /* after its end a window is flushed */
    POLICY_MEMORY_EARLY_PERCENT = 65,         /* of the limit: from here the fattest shard seals */
    POLICY_MEMORY_URGENT_PERCENT = 80,        /* from here also small ones do */
};
/* Chunks in memory over all shards: from the first on one shard after the other seals, that with
 * most bytes a series first, so that each holds twice as much just before its turn. Less than the
 * second is no reason to seal. */
#define POLICY_CHUNK_BYTES_A_SERIES UINT64_C(96)
#define POLICY_CHUNK_BYTES_LEAST (UINT64_C(1) << 20)
#define POLICY_LOG_LIMIT_BYTES (UINT64_C(2) << 30)
#define POLICY_SEAL_INTERVAL_MS (UINT64_C(30) * 60 * 1000)

struct policy_settings {
    uint32_t shard_count;
    uint64_t memory_limit_bytes; /* 0: none */
    uint64_t log_limit_bytes;
    uint64_t seal_interval_ns;
    uint64_t replay_ns_per_entry;
    uint64_t start_ns; /* policy_moment.age_ns when the process began to count the shards' phases */
};

/* What all shards share at one moment. */
struct policy_moment {
    uint64_t mono_ns;
    /* What the seal interval is measured by: mono_ns or, with the data's clock, engine_now_ms() in
     * nanoseconds. So hours of data that pass in minutes are sealed like hours. */
    uint64_t age_ns;
    int64_t now_ms;
    uint64_t memory_used_bytes, log_bytes;
};

/* A shard as the checkpoint thread sees it. */
struct policy_shard {
    struct seal_state state;
    bool is_blocked;          /* its last seal failed a moment ago */
    bool sealed_for_chunks;   /* the last seal that was asked for was */
    uint64_t sealed_ns;       /* when it was sealed last; as policy_moment.age_ns */
    int64_t flushed_until_ms; /* windows up to here have been flushed, as far as was known */
};

/*
 * When the shard's turn by --storage.seal-interval comes (both as policy_moment.age_ns), half an
 * interval after its last seal at the earliest and a whole one at the latest. Each shard has a
 * moment in every interval, shard/shard_count of it behind shard 0's; that is its turn, unless it
 * comes within half an interval: then it comes half an interval later, and on the moment the next
 * time. So shards never fall into step, also when all were opened at once, and nobody seals twice
 * for one reason because others came between.
 */
uint64_t policy_interval_due_ns(const struct policy_settings *s, uint32_t shard,
                                uint64_t sealed_ns);

/*
 * The shard that should be sealed first, and why; false: none. Blocked shards are left
 * out. In order of urgency:
 *   memory      above 65 % of the limit the fattest shard, as long as it holds a share of a 64th of
 *               the limit; above 80 % also one with a sixteenth of that. Writes stop at 90 %.
 *   log size    above log_limit_bytes the shard that was sealed longest ago: it holds the log.
 *   replay cost more entries than the shard's share of POLICY_REPLAY_SECONDS.
 *   late        a late buffer of more than its share of a sixteenth of the limit.
 *   ended       more than 5 % of the series have ended, at least POLICY_ENDED_LEAST.
 *   chunks      all chunks together take more than POLICY_CHUNK_BYTES_A_SERIES: the shard with most
 *               bytes a series, if it has that much. Not within a sixth of the seal interval since
 *               its last seal: chunks would be cut too short.
 *   interval    policy_interval_due_ns() has come, or an interval has passed since a seal for
 * chunks. A shard that has nothing to seal is sealed for no reason but ended series. Log size and
 * ended series, which a seal need not cure, ask again a minute after the last seal at the earliest.
 */
bool policy_seal_next(const struct policy_settings *s, const struct policy_moment *m,
                      const struct policy_shard *shards, uint32_t *out_shard,
                      enum seal_reason *out_reason);

/* Whether a window of the shard is over that is sealed, or, since the last flush, may be in memory;
 * *until_ms is for engine_flush(). */
bool policy_flush_due(const struct policy_shard *shard, int64_t now_ms, int64_t *until_ms);
/* The last border of windows that a flush at that time reaches: policy_shard.flushed_until_ms after
 * it, and when a process starts. */
int64_t policy_flush_border_ms(int64_t now_ms);

/* What a shard has flushed: windows that end here or before are parts, but for samples that came
 * late and, after a start, for what is still in memory. */
int64_t policy_flushed_to_ms(const struct policy_shard *shard, int64_t now_ms);

/* Whether late files should be split now: a sixth of the seal interval after the first was seen
 * (several seals then share the work), at once when they are large or when a merge waits for it. */
bool policy_split_due(const struct policy_settings *s, const struct seal_state *state,
                      uint64_t first_seen_mono_ns, bool wanted, uint64_t mono_ns);

/* Windows of the shard that end here or before are parts, as far as samples came in time. */
int64_t policy_flushed_until_ms(const struct seal_state *state, int64_t now_ms);

/* Wait after `failures` (>= 1) failures in a row: 5 s, doubled each time, at most 5 min. */
uint64_t policy_backoff_ns(uint32_t failures);

/* How long work of `worked_ns` should pause when `load` requests wait or run on `cores`: nothing
 * without load, as long as it worked, three times as long when the requests could use all cores; at
 * most 100 ms, so that it always goes on. */
uint64_t policy_pause_ns(uint64_t worked_ns, uint64_t load, uint32_t cores);

#endif
