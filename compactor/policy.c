/*
 * When to seal, flush, split and pause: see policy_internal.h.
 */
#include "compactor/policy_internal.h"

enum {
    MEMORY_SHARE = 64, /* a seal for memory must free this part of the limit, per shard */
    MEMORY_URGENT_SHARE = 16 * MEMORY_SHARE,
    LATE_SHARE = 16,
    ENDED_SHARE = 20, /* 5 % */
    ENDED_LEAST = 64,
    SPLIT_SHARE = 6,
    CHUNKS_AGAIN_SHARE = 6, /* of the seal interval */
    BACKOFF_DOUBLINGS = 6,
    WINDOW_MS = 2 * 3600 * 1000, /* what a flush makes a part of */
};

static const uint64_t second_ns = UINT64_C(1000000000);
static const uint64_t again_ns = UINT64_C(60) * 1000000000;
static const uint64_t late_default_bytes = UINT64_C(4) << 20;
static const uint64_t late_least_bytes = UINT64_C(256) << 10;
static const uint64_t split_bytes = UINT64_C(16) << 20;
static const uint64_t backoff_most_ns = UINT64_C(300) * 1000000000;
static const uint64_t pause_most_ns = UINT64_C(100) * 1000000;

uint64_t policy_interval_due_ns(const struct policy_settings *s, uint32_t shard, uint64_t sealed_ns)
{
    uint64_t interval = s->seal_interval_ns;
    uint64_t phase = s->start_ns + interval / s->shard_count * shard;
    uint64_t behind, wait; /* since the shard's moment before the seal; until the next one */

    if (sealed_ns >= phase)
        behind = (sealed_ns - phase) % interval;
    else
        behind = (interval - (phase - sealed_ns) % interval) % interval;
    wait = interval - behind;
    return sealed_ns + (wait < interval / 2 ? wait + interval / 2 : wait);
}

static uint64_t held_bytes(const struct seal_state *st)
{
    return st->chunk_bytes + st->histogram_bytes + st->late_bytes;
}

static bool has_something(const struct seal_state *st)
{
    return st->sample_count != 0 || st->late_sample_count != 0 || st->log_entries != 0;
}

/* 0: memory is no reason to seal; else the least a shard must hold for it. */
static uint64_t memory_least(const struct policy_settings *s, const struct policy_moment *m)
{
    uint64_t limit = s->memory_limit_bytes, least;

    if (limit == 0 || m->memory_used_bytes <= limit / 100 * POLICY_MEMORY_EARLY_PERCENT)
        return 0;
    least = limit / s->shard_count /
            (m->memory_used_bytes > limit / 100 * POLICY_MEMORY_URGENT_PERCENT ? MEMORY_URGENT_SHARE
                                                                               : MEMORY_SHARE);
    return least == 0 ? 1 : least;
}

static uint64_t late_most(const struct policy_settings *s)
{
    uint64_t most = s->memory_limit_bytes == 0
                        ? late_default_bytes
                        : s->memory_limit_bytes / LATE_SHARE / s->shard_count;

    return most < late_least_bytes ? late_least_bytes : most;
}

static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? now_ns - then_ns : 0;
}

/* Whether the chunks of all shards take so much that one should be sealed. */
static bool chunks_are_many(const struct policy_settings *s, const struct policy_shard *shards)
{
    uint64_t bytes = 0, series_count = 0;

    for (uint32_t i = 0; i < s->shard_count; i++) {
        bytes += shards[i].state.chunk_bytes;
        series_count += shards[i].state.series_count;
    }
    return bytes > POLICY_CHUNK_BYTES_LEAST && bytes / POLICY_CHUNK_BYTES_A_SERIES > series_count;
}

/* Bytes a series, in 256ths, of a shard that chunks may be taken from; else 0. */
static uint64_t chunks_urge(const struct policy_settings *s, const struct policy_moment *m,
                            const struct policy_shard *p)
{
    uint64_t series_count = p->state.series_count == 0 ? 1 : p->state.series_count;

    if (p->state.chunk_bytes / POLICY_CHUNK_BYTES_A_SERIES < series_count ||
        since(m->age_ns, p->sealed_ns) < s->seal_interval_ns / CHUNKS_AGAIN_SHARE)
        return 0;
    return p->state.chunk_bytes * 256 / series_count;
}

/* How much a shard wants to be sealed for one reason: 0 not at all; more is more urgent. */
static uint64_t urge(const struct policy_settings *s, const struct policy_moment *m, uint32_t shard,
                     const struct policy_shard *p, enum seal_reason reason)
{
    const struct seal_state *st = &p->state;
    uint64_t age_ns = since(m->mono_ns, st->sealed_mono_ns), least;

    switch (reason) {
    case SEAL_MEMORY:
        least = memory_least(s, m);
        return least != 0 && held_bytes(st) >= least ? held_bytes(st) : 0;
    case SEAL_LOG_SIZE:
        return m->log_bytes > s->log_limit_bytes && st->log_entries != 0 && age_ns >= again_ns
                   ? age_ns
                   : 0;
    case SEAL_REPLAY_COST:
        least = POLICY_REPLAY_SECONDS * second_ns / s->shard_count / s->replay_ns_per_entry;
        return st->log_entries > least ? st->log_entries : 0;
    case SEAL_LATE:
        return st->late_bytes > late_most(s) ? st->late_bytes : 0;
    case SEAL_ENDED:
        return st->ended_series_count >= ENDED_LEAST &&
                       since(m->age_ns, p->sealed_ns) >= again_ns &&
                       st->ended_series_count > st->series_count / ENDED_SHARE
                   ? st->ended_series_count
                   : 0;
    case SEAL_CHUNKS:
        return chunks_urge(s, m, p);
    case SEAL_INTERVAL:
        /* Where chunks decide, shards are out of step by that already. */
        least = p->sealed_for_chunks ? p->sealed_ns + s->seal_interval_ns
                                     : policy_interval_due_ns(s, shard, p->sealed_ns);
        return m->age_ns >= least && has_something(st) ? m->age_ns - least + 1 : 0;
    default:
        return 0;
    }
}

bool policy_seal_next(const struct policy_settings *s, const struct policy_moment *m,
                      const struct policy_shard *shards, uint32_t *out_shard,
                      enum seal_reason *out_reason)
{
    static const enum seal_reason reasons[] = {SEAL_MEMORY,  SEAL_LOG_SIZE, SEAL_REPLAY_COST,
                                               SEAL_LATE,    SEAL_ENDED,    SEAL_CHUNKS,
                                               SEAL_INTERVAL};

    for (size_t r = 0; r < sizeof reasons / sizeof reasons[0]; r++) {
        uint64_t most = 0;

        if (reasons[r] == SEAL_CHUNKS && !chunks_are_many(s, shards))
            continue;
        for (uint32_t i = 0; i < s->shard_count; i++) {
            uint64_t u = shards[i].is_blocked ? 0 : urge(s, m, i, &shards[i], reasons[r]);

            if (u > most) {
                most = u;
                *out_shard = i;
            }
        }
        if (most > 0) {
            *out_reason = reasons[r];
            return true;
        }
    }
    return false;
}

/* now_ms less the time a window stays open behind its end; the clock may stand anywhere. */
static int64_t closed_until(int64_t now_ms)
{
    return now_ms < INT64_MIN + POLICY_WINDOW_CLOSED_MS ? INT64_MIN
                                                        : now_ms - POLICY_WINDOW_CLOSED_MS;
}

static int64_t window_floor(int64_t t_ms)
{
    int64_t behind = t_ms % WINDOW_MS;

    if (behind < 0)
        behind += WINDOW_MS;
    return t_ms < INT64_MIN + behind ? INT64_MIN : t_ms - behind;
}

int64_t policy_flush_border_ms(int64_t now_ms)
{
    return window_floor(closed_until(now_ms));
}

bool policy_flush_due(const struct policy_shard *shard, int64_t now_ms, int64_t *until_ms)
{
    const struct seal_state *st = &shard->state;

    *until_ms = closed_until(now_ms);
    if (policy_flush_border_ms(now_ms) > shard->flushed_until_ms && has_something(st))
        return true;
    return st->oldest_sealed_window_end_ms != INT64_MAX &&
           st->oldest_sealed_window_end_ms <= *until_ms;
}

bool policy_split_due(const struct policy_settings *s, const struct seal_state *state,
                      uint64_t first_seen_mono_ns, bool wanted, uint64_t mono_ns)
{
    if (state->late_file_bytes == 0)
        return false;
    return wanted || state->late_file_bytes >= split_bytes ||
           since(mono_ns, first_seen_mono_ns) >= s->seal_interval_ns / SPLIT_SHARE;
}

int64_t policy_flushed_until_ms(const struct seal_state *state, int64_t now_ms)
{
    int64_t until_ms = closed_until(now_ms), sealed_ms = state->oldest_sealed_window_end_ms;

    /* Of the oldest sealed window nothing is a part yet, maybe. */
    return sealed_ms > until_ms || sealed_ms == INT64_MIN ? until_ms : sealed_ms - 1;
}

int64_t policy_flushed_to_ms(const struct policy_shard *shard, int64_t now_ms)
{
    int64_t until_ms = 0, to_ms = policy_flushed_until_ms(&shard->state, now_ms);

    if (policy_flush_due(shard, now_ms, &until_ms) && shard->flushed_until_ms < to_ms)
        to_ms = shard->flushed_until_ms; /* what is in memory may be of a window that is over */
    return window_floor(to_ms);
}

uint64_t policy_backoff_ns(uint32_t failures)
{
    uint32_t doublings = failures == 0 ? 0 : failures - 1;
    uint64_t wait_ns = 5 * second_ns
                       << (doublings < BACKOFF_DOUBLINGS ? doublings : BACKOFF_DOUBLINGS);

    return wait_ns < backoff_most_ns ? wait_ns : backoff_most_ns;
}

uint64_t policy_pause_ns(uint64_t worked_ns, uint64_t load, uint32_t cores)
{
    uint64_t pause_ns = worked_ns < pause_most_ns ? worked_ns : pause_most_ns;

    if (load == 0)
        return 0;
    if (load >= cores)
        pause_ns *= 3;
    return pause_ns < pause_most_ns ? pause_ns : pause_most_ns;
}
