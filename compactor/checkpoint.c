/*
 * The checkpoint thread: one thing after the other, the most urgent first, and after each it looks
 * again. So between two shards' flushes a seal gets its turn. A store that seals without pause,
 * short of memory or time, still gets one of the other things done after as many seals as it has
 * shards.
 */
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "compactor/compactor_internal.h"
#include "engine/engine.h"

enum {
    LOOK_MS = 250,           /* how often memory, log and clock are looked at */
    RETENTION_MS = 5000,     /* retention, what ended series have left, figures of the disk */
    HOUSEKEEPING_MS = 60000, /* workers look at the clock, tombstones are retired */
    CLEAN_TOMBSTONES = 64,   /* from here on tombstones are purged without being asked to */
    CLEAN_AGAIN_MS = 3600000,
};

static const uint64_t ms_ns = 1000000;

static double seconds_since(uint64_t start_ns)
{
    return (double)(clock_mono_ns() - start_ns) / 1e9;
}

/* Counts and logs a failure; a stop is none. */
static void failed(struct compactor *c, struct backoff *b, struct metric_counter *counter,
                   const char *what, uint32_t shard, enum err e, const struct errinfo *ei)
{
    if (e == ERR_CANCELED || is_stopping(c))
        return;
    backoff_add(b, clock_mono_ns());
    metric_counter_add(counter, 1);
    LOG_ERROR(what, LOG_U64("shard", shard), LOG_STR("code", err_name(e)),
              LOG_STR("error", ei->message), LOG_U64("failures", b->failures),
              LOG_F64("again_in_seconds", (double)policy_backoff_ns(b->failures) / 1e9));
}

/* ---- seal ---- */

static void count_seal(struct compactor *c, enum seal_reason reason, const struct seal_result *r,
                       double seconds)
{
    struct compactor_metrics *m = &c->metrics;

    metric_counter_add(m->seals[reason], 1);
    metric_histogram_observe(m->seal_seconds, seconds);
    metric_counter_add(m->seal_samples, r->sample_count);
    metric_counter_add(m->seal_late_samples, r->late_sample_count);
    metric_counter_add(m->seal_ended_series, r->ended_series_count);
    metric_counter_add(m->seal_bytes, r->byte_count);
    if ((double)r->hold_samples_max > metric_gauge_read(m->seal_hold_max))
        metric_gauge_set(m->seal_hold_max, (double)r->hold_samples_max);
}

static void seal(struct compactor *c, uint32_t shard, enum seal_reason reason)
{
    const struct maintain_control control = {.stop = &c->stop};
    struct seal_result r = {0};
    struct errinfo ei = {0};
    uint64_t start_ns = clock_mono_ns();
    enum err e;

    LOG_DEBUG("seal begins", LOG_U64("shard", shard), LOG_STR("reason", seal_reason_name(reason)));
    e = engine_seal(c->engine, shard, reason, &control, &r, &ei);
    compactor_step_ended(c);
    if (e != ERR_OK) {
        failed(c, &c->shards[shard].seal, c->metrics.seal_failures, "seal failed", shard, e, &ei);
        return;
    }
    c->shards[shard].seal = (struct backoff){0};
    c->states[shard].sealed_for_chunks = reason == SEAL_CHUNKS;
    count_seal(c, reason, &r, seconds_since(start_ns));
    LOG_INFO("seal ends", LOG_U64("shard", shard), LOG_STR("reason", seal_reason_name(reason)),
             LOG_U64("series", r.series_count), LOG_U64("samples", r.sample_count),
             LOG_U64("late_samples", r.late_sample_count),
             LOG_U64("ended_series", r.ended_series_count), LOG_U64("slices", r.slice_count),
             LOG_U64("bytes", r.byte_count), LOG_F64("seconds", seconds_since(start_ns)));
}

static void moment_read(struct compactor *c, struct policy_moment *m)
{
    struct engine_stats stats;
    uint64_t used = c->options.memory == NULL ? 0 : budget_used(c->options.memory);

    engine_stats_get(c->engine, &stats);
    *m = (struct policy_moment){
        .mono_ns = clock_mono_ns(),
        .now_ms = engine_now_ms(c->engine),
        .memory_used_bytes = used > stats.free_block_bytes ? used - stats.free_block_bytes : 0,
        .log_bytes = stats.wal.log_bytes,
    };
    m->age_ns = m->mono_ns;
    if (c->options.clock_is_data) /* before any data it stands at the beginning of time */
        m->age_ns = m->now_ms > 0 ? (uint64_t)m->now_ms * ms_ns : 0;
}

void checkpoint_begin(struct compactor *c)
{
    struct policy_moment m;

    moment_read(c, &m);
    c->settings.start_ns = m.age_ns;
    for (uint32_t i = 0; i < c->shard_count; i++)
        c->states[i].flushed_until_ms = policy_flush_border_ms(m.now_ms);
}

static void states_read(struct compactor *c, const struct policy_moment *m)
{
    for (uint32_t i = 0; i < c->shard_count; i++) {
        struct shard_work *s = &c->shards[i];
        struct policy_shard *p = &c->states[i];
        uint64_t sealed_before = p->state.sealed_mono_ns;

        engine_seal_state(c->engine, i, &p->state);
        p->is_blocked = s->seal.until_mono_ns > m->mono_ns;
        if (!c->options.clock_is_data)
            p->sealed_ns = p->state.sealed_mono_ns;
        else if (p->state.sealed_mono_ns != sealed_before)
            p->sealed_ns = m->age_ns; /* some moments late, which is nothing to an interval */
        if (p->state.late_file_bytes == 0)
            s->late_seen_mono_ns = 0;
        else if (s->late_seen_mono_ns == 0)
            s->late_seen_mono_ns = m->mono_ns;
    }
}

/* How far the slowest shard has flushed, for operators: it falls behind when flushes fail. */
static void flushed_tell(struct compactor *c, int64_t now_ms)
{
    int64_t least_ms = INT64_MAX;

    for (uint32_t i = 0; i < c->shard_count; i++) {
        int64_t to_ms = policy_flushed_to_ms(&c->states[i], now_ms);

        least_ms = to_ms < least_ms ? to_ms : least_ms;
    }
    metric_gauge_set(c->metrics.flushed_to, least_ms == INT64_MIN ? 0 : (double)least_ms / 1000);
}

/* ---- flush and split ---- */

static void flush(struct compactor *c, uint32_t shard, int64_t until_ms)
{
    const struct maintain_control control = {.stop = &c->stop};
    struct shard_work *s = &c->shards[shard];
    struct compactor_metrics *m = &c->metrics;
    int64_t window_end_ms = c->states[shard].state.oldest_sealed_window_end_ms;
    struct flush_result r = {0};
    struct errinfo ei = {0};
    uint64_t start_ns = clock_mono_ns();
    enum err e;

    LOG_DEBUG("flush begins", LOG_U64("shard", shard), LOG_I64("window_end_ms", window_end_ms));
    mutex_lock(&s->files_lock);
    e = engine_flush(c->engine, shard, until_ms, &control, &r, &ei);
    mutex_unlock(&s->files_lock);
    compactor_step_ended(c);
    compactor_shard_changed(c, shard);
    if (e != ERR_OK) {
        failed(c, &s->flush, m->flush_failures, "flush failed", shard, e, &ei);
        return;
    }
    s->flush = (struct backoff){0};
    c->states[shard].flushed_until_ms = until_ms;
    metric_counter_add(m->flushes, 1);
    metric_counter_add(m->flush_samples, r.sample_count);
    metric_counter_add(m->flush_bytes, r.byte_count);
    metric_counter_add(m->flush_parts, r.part_count);
    metric_histogram_observe(m->flush_seconds, seconds_since(start_ns));
    c->retention_due_mono_ns = 0;
    if (r.part_count == 0)
        return; /* a border of windows was passed, and nothing was there */
    LOG_INFO("flush ends", LOG_U64("shard", shard), LOG_I64("until_ms", until_ms),
             LOG_U64("parts", r.part_count), LOG_U64("series", r.series_count),
             LOG_U64("samples", r.sample_count), LOG_U64("bytes", r.byte_count),
             LOG_F64("seconds", seconds_since(start_ns)));
}

static void split(struct compactor *c, uint32_t shard)
{
    const struct maintain_control control = {.stop = &c->stop};
    struct shard_work *s = &c->shards[shard];
    struct compactor_metrics *m = &c->metrics;
    struct flush_result r = {0};
    struct errinfo ei = {0};
    uint64_t start_ns = clock_mono_ns();
    enum err e;

    LOG_DEBUG("split of late files begins", LOG_U64("shard", shard),
              LOG_U64("bytes", c->states[shard].state.late_file_bytes));
    atomic_store_explicit(&s->split_wanted, false, memory_order_relaxed);
    mutex_lock(&s->files_lock);
    e = engine_split_late(c->engine, shard, &control, &r, &ei);
    mutex_unlock(&s->files_lock);
    compactor_shard_changed(c, shard);
    if (e != ERR_OK) {
        failed(c, &s->split, m->split_failures, "split of late files failed", shard, e, &ei);
        return;
    }
    s->split = (struct backoff){0};
    s->late_seen_mono_ns = 0;
    c->retention_due_mono_ns = 0;
    metric_counter_add(m->splits, 1);
    LOG_INFO("split of late files ends", LOG_U64("shard", shard), LOG_U64("parts", r.part_count),
             LOG_U64("series", r.series_count), LOG_U64("samples", r.sample_count),
             LOG_U64("bytes", r.byte_count), LOG_F64("seconds", seconds_since(start_ns)));
}

static bool flush_next(struct compactor *c, const struct policy_moment *m)
{
    int64_t until_ms = 0;

    for (uint32_t i = 0; i < c->shard_count; i++) {
        if (c->shards[i].flush.until_mono_ns <= m->mono_ns &&
            policy_flush_due(&c->states[i], m->now_ms, &until_ms)) {
            flush(c, i, until_ms);
            return true;
        }
    }
    return false;
}

static bool split_next(struct compactor *c, const struct policy_moment *m)
{
    for (uint32_t i = 0; i < c->shard_count; i++) {
        struct shard_work *s = &c->shards[i];
        bool wanted = atomic_load_explicit(&s->split_wanted, memory_order_relaxed);

        if (s->split.until_mono_ns <= m->mono_ns &&
            policy_split_due(&c->settings, &c->states[i].state, s->late_seen_mono_ns, wanted,
                             m->mono_ns)) {
            split(c, i);
            return true;
        }
    }
    return false;
}

/* ---- now and then ---- */

/* Many tombstones slow every reader down, so that they go without anybody asking for it. Nobody
 * waits for the outcome: what was not purged is asked for again. */
static void clean_if_many(struct compactor *c, uint64_t mono_ns)
{
    if (mono_ns < c->clean_due_mono_ns || engine_tombstone_count(c->engine) < CLEAN_TOMBSTONES)
        return;
    c->clean_due_mono_ns = mono_ns + CLEAN_AGAIN_MS * ms_ns;
    mutex_lock(&c->lock);
    for (uint32_t i = 0; i < c->shard_count && !c->is_cleaning; i++)
        c->shards[i].purge_wanted = true;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

static void tombstones_retire(struct compactor *c)
{
    struct errinfo ei = {0};

    if (engine_tombstone_count(c->engine) == 0)
        return;
    if (engine_tombstones_retire(c->engine, &ei) != ERR_OK)
        LOG_ERROR("tombstones cannot be retired", LOG_STR("error", ei.message));
}

static bool housekeep(struct compactor *c, uint64_t mono_ns)
{
    bool look = mono_ns >= c->look_due_mono_ns;

    if (mono_ns < c->retention_due_mono_ns && !look)
        return false;
    c->retention_due_mono_ns = mono_ns + RETENTION_MS * ms_ns;
    retention_run(c);
    engine_housekeep(c->engine);
    arena_spare_release();
    if (look) {
        c->look_due_mono_ns = mono_ns + HOUSEKEEPING_MS * ms_ns;
        tombstones_retire(c);
        clean_if_many(c, mono_ns);
        compactor_all_changed(c);
    }
    return true;
}

/* Damage that a replay met is told at every start until the log of that time is gone. */
static bool damage_next(struct compactor *c)
{
    for (uint32_t i = 0; i < c->shard_count; i++) {
        if (!c->states[i].state.log_is_damaged || c->states[i].is_blocked)
            continue;
        seal(c, i, SEAL_LOG_SIZE);
        return true;
    }
    return false;
}

bool checkpoint_step(struct compactor *c)
{
    /* A round of seals without a pause: now what else is due has its turn. */
    bool is_round = c->seals_in_row >= c->shard_count;
    struct policy_moment m;
    uint32_t shard = 0;
    enum seal_reason reason = SEAL_NONE;

    moment_read(c, &m);
    states_read(c, &m);
    flushed_tell(c, m.now_ms);
    if (!is_round && policy_seal_next(&c->settings, &m, c->states, &shard, &reason)) {
        c->seals_in_row++;
        seal(c, shard, reason);
        return true;
    }
    c->seals_in_row = 0;
    if (damage_next(c))
        return true;
    if (is_round)
        (void)housekeep(c, m.mono_ns); /* not only when nothing is to be flushed */
    return flush_next(c, &m) || split_next(c, &m) || housekeep(c, m.mono_ns) || is_round;
}

/* Until the next look, a poke or the end. */
static void rest(struct compactor *c)
{
    uint64_t deadline_ns = clock_mono_ns() + LOOK_MS * ms_ns;
    bool in_time = true;

    mutex_lock(&c->lock);
    while (in_time && !c->is_poked && !is_stopping(c))
        in_time = cond_wait_until(&c->changed, &c->lock, deadline_ns);
    c->is_poked = false;
    mutex_unlock(&c->lock);
}

void *checkpoint_run(void *compactor)
{
    struct compactor *c = compactor;

    while (!is_stopping(c)) {
        if (!checkpoint_step(c))
            rest(c);
    }
    mutex_lock(&c->lock);
    c->running_count--;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
    return NULL;
}
