/*
 * Life of the compactor, and the calls of others.
 */
#include "compactor/compactor.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "compactor/compactor_internal.h"
#include "engine/engine.h"

enum { MERGE_MEMORY_SHARE = 4, CLEAN_LOOK_MS = 100 };

static const uint64_t merge_memory_least = UINT64_C(64) << 20;
static const uint64_t ms_ns = 1000000;

void backoff_add(struct backoff *b, uint64_t mono_ns)
{
    b->failures += b->failures < UINT32_MAX;
    b->until_mono_ns = mono_ns + policy_backoff_ns(b->failures);
}

/* ---- new and free ---- */

static void settings_fill(struct compactor *c)
{
    const struct compactor_options *o = &c->options;
    uint64_t interval_ms = o->seal_interval_ms == 0 ? POLICY_SEAL_INTERVAL_MS : o->seal_interval_ms;
    uint64_t limit = o->memory == NULL ? UINT64_MAX : o->memory->limit_bytes;

    c->settings = (struct policy_settings){
        .shard_count = c->shard_count,
        .memory_limit_bytes = limit == UINT64_MAX ? 0 : limit,
        .log_limit_bytes = o->log_limit_bytes == 0 ? POLICY_LOG_LIMIT_BYTES : o->log_limit_bytes,
        .seal_interval_ns =
            interval_ms > UINT64_MAX / 4 / ms_ns ? UINT64_MAX / 4 : interval_ms * ms_ns,
        .replay_ns_per_entry =
            o->replay_ns_per_entry == 0 ? POLICY_REPLAY_NS_PER_ENTRY : o->replay_ns_per_entry,
    };
    if (limit != UINT64_MAX)
        limit = limit / MERGE_MEMORY_SHARE > merge_memory_least ? limit / MERGE_MEMORY_SHARE
                                                                : merge_memory_least;
    budget_init(&c->memory, "memory for merges", limit, o->memory);
}

static enum err parts_alloc(struct compactor *c, struct errinfo *ei)
{
    c->shards = calloc(c->shard_count, sizeof *c->shards);
    c->workers = calloc(c->thread_count, sizeof *c->workers);
    c->states = calloc(c->shard_count, sizeof *c->states);
    if (c->shards == NULL || c->workers == NULL || c->states == NULL) {
        free(c->shards);
        free(c->workers);
        c->shards = NULL;
        c->workers = NULL;
        return errinfo_set(ei, ERR_NOMEM, 0, "compactor");
    }
    for (uint32_t i = 0; i < c->shard_count; i++) {
        mutex_init(&c->shards[i].files_lock);
        c->shards[i].has_news = true;
    }
    for (uint32_t i = 0; i < c->thread_count; i++) {
        c->workers[i].compactor = c;
        arena_init(&c->workers[i].ranges_arena, &c->memory);
    }
    return ERR_OK;
}

enum err compactor_new(const struct compactor_options *options, struct compactor **out,
                       struct errinfo *ei)
{
    struct compactor *c = calloc(1, sizeof *c);
    enum err e;

    if (c == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "compactor");
    c->options = *options;
    c->engine = options->engine;
    atomic_init(&c->oldest_ms, INT64_MAX);
    c->shard_count = engine_shard_count(options->engine);
    c->core_count = thread_cpu_count();
    c->thread_count = options->thread_count;
    if (c->thread_count == 0)
        c->thread_count = c->core_count / 2;
    if (c->thread_count == 0)
        c->thread_count = 1;
    if (c->thread_count > COMPACTOR_THREAD_COUNT_MAX)
        c->thread_count = COMPACTOR_THREAD_COUNT_MAX;
    mutex_init(&c->lock);
    cond_init(&c->changed);
    settings_fill(c);
    e = parts_alloc(c, ei);
    if (e == ERR_OK)
        e = compactor_metrics_register(c, ei);
    if (e == ERR_OK)
        *out = TAKE(c);
    compactor_free(c);
    return e;
}

void compactor_free(struct compactor *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < c->thread_count && c->workers != NULL; i++)
        arena_done(&c->workers[i].ranges_arena);
    for (uint32_t i = 0; i < c->shard_count && c->shards != NULL; i++) {
        mutex_done(&c->shards[i].files_lock);
        free(c->shards[i].damaged);
    }
    metrics_registry_free(c->own_registry);
    cond_done(&c->changed);
    mutex_done(&c->lock);
    free(c->states);
    free(c->workers);
    free(c->shards);
    free(c);
}

/* ---- start and stop ---- */

static void threads_join(struct compactor *c)
{
    thread_join(&c->checkpoint);
    for (uint32_t i = 0; i < c->thread_count; i++)
        thread_join(&c->workers[i].thread);
}

static void stop_set(struct compactor *c)
{
    mutex_lock(&c->lock);
    atomic_store_explicit(&c->stop, true, memory_order_relaxed);
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

static enum err one_start(struct compactor *c, struct thread *t, const char *name,
                          void *(*run)(void *), void *arg, struct errinfo *ei)
{
    enum err e;

    mutex_lock(&c->lock);
    c->running_count++; /* it counts itself out */
    mutex_unlock(&c->lock);
    e = thread_start(t, name, run, arg, ei);
    if (e != ERR_OK) {
        mutex_lock(&c->lock);
        c->running_count--;
        mutex_unlock(&c->lock);
    }
    return e;
}

enum err compactor_start(struct compactor *c, struct errinfo *ei)
{
    enum err e;

    compactor_snapshots_sweep(c);
    checkpoint_begin(c);
    e = one_start(c, &c->checkpoint, "checkpoint", checkpoint_run, c, ei);
    for (uint32_t i = 0; i < c->thread_count && e == ERR_OK; i++)
        e = one_start(c, &c->workers[i].thread, "compactor", worker_run, &c->workers[i], ei);
    if (e != ERR_OK) {
        stop_set(c);
        threads_join(c);
        return e;
    }
    LOG_INFO("compactor started", LOG_U64("threads", c->thread_count),
             LOG_U64("shards", c->shard_count),
             LOG_U64("seal_interval_seconds", c->settings.seal_interval_ns / 1000 / ms_ns),
             LOG_U64("replay_ns_per_entry", c->settings.replay_ns_per_entry),
             LOG_U64("retention_seconds", c->options.retention_ms / 1000),
             LOG_U64("retention_bytes", c->options.retention_bytes));
    return ERR_OK;
}

enum err compactor_stop(struct compactor *c, uint32_t deadline_ms, struct errinfo *ei)
{
    uint64_t deadline_ns = clock_mono_ns() + deadline_ms * ms_ns;
    uint32_t left;
    bool in_time = true;

    stop_set(c);
    mutex_lock(&c->lock);
    while (c->running_count > 0 && in_time)
        in_time = cond_wait_until(&c->changed, &c->lock, deadline_ns);
    left = c->running_count;
    mutex_unlock(&c->lock);
    if (left > 0)
        return errinfo_set(ei, ERR_TIMEOUT, 0, "%u threads of the compactor have not ended", left);
    threads_join(c);
    return ERR_OK;
}

int64_t compactor_oldest_ms(const struct compactor *c)
{
    return atomic_load_explicit(&c->oldest_ms, memory_order_relaxed);
}

/* ---- telling each other ---- */

void compactor_wait(struct compactor *c, uint64_t deadline_mono_ns)
{
    bool in_time = true;

    mutex_lock(&c->lock);
    while (in_time && !is_stopping(c))
        in_time = cond_wait_until(&c->changed, &c->lock, deadline_mono_ns);
    mutex_unlock(&c->lock);
}

void compactor_poke(struct compactor *c)
{
    mutex_lock(&c->lock);
    c->is_poked = true;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

void compactor_wait_for_seal(struct compactor *c, uint64_t deadline_mono_ns)
{
    bool in_time = true;
    uint64_t seen;

    mutex_lock(&c->lock);
    seen = c->step_count;
    c->is_poked = true;
    cond_broadcast(&c->changed);
    while (in_time && c->step_count == seen && !is_stopping(c))
        in_time = cond_wait_until(&c->changed, &c->lock, deadline_mono_ns);
    mutex_unlock(&c->lock);
}

void compactor_step_ended(struct compactor *c)
{
    mutex_lock(&c->lock);
    c->step_count++;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

void compactor_shard_changed(struct compactor *c, uint32_t shard)
{
    mutex_lock(&c->lock);
    c->shards[shard].has_news = true;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

void compactor_all_changed(struct compactor *c)
{
    mutex_lock(&c->lock);
    for (uint32_t i = 0; i < c->shard_count; i++)
        c->shards[i].has_news = true;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

/* ---- clean ---- */

static bool is_set(const _Atomic bool *flag)
{
    return flag != NULL && atomic_load_explicit(flag, memory_order_relaxed);
}

/* Has all shards purged; under the lock. */
static enum err clean_locked(struct compactor *c, const _Atomic bool *stop, struct errinfo *ei)
{
    while (c->is_cleaning && !is_stopping(c) && !is_set(stop)) /* somebody else's: then ours */
        (void)cond_wait_until(&c->changed, &c->lock, clock_mono_ns() + CLEAN_LOOK_MS * ms_ns);
    if (is_stopping(c) || is_set(stop))
        return errinfo_set(ei, ERR_CANCELED, 0, "the server stops, or the client has left");
    c->is_cleaning = true;
    c->clean_number++;
    c->clean_error = (struct errinfo){0};
    c->purges_left = c->shard_count;
    for (uint32_t i = 0; i < c->shard_count; i++)
        c->shards[i].purge_wanted = true;
    cond_broadcast(&c->changed);
    while (c->purges_left > 0 && !is_stopping(c) && !is_set(stop))
        (void)cond_wait_until(&c->changed, &c->lock, clock_mono_ns() + CLEAN_LOOK_MS * ms_ns);
    /* Nobody waits any more: what has not begun need not. */
    for (uint32_t i = 0; i < c->shard_count; i++)
        c->shards[i].purge_wanted = false;
    c->is_cleaning = false;
    cond_broadcast(&c->changed);
    if (c->purges_left > 0)
        return errinfo_set(ei, ERR_CANCELED, 0, "the server stops, or the client has left");
    if (c->clean_error.code != ERR_OK)
        return errinfo_set(ei, c->clean_error.code, 0, "%s", c->clean_error.message);
    return ERR_OK;
}

enum err compactor_clean(struct compactor *c, const _Atomic bool *stop, struct errinfo *ei)
{
    uint64_t start_ns = clock_mono_ns();
    size_t before = engine_tombstone_count(c->engine);
    enum err e;

    if (before == 0)
        return ERR_OK;
    LOG_INFO("cleaning tombstones", LOG_U64("tombstones", before));
    mutex_lock(&c->lock);
    e = clean_locked(c, stop, ei);
    mutex_unlock(&c->lock);
    if (e == ERR_OK)
        e = engine_tombstones_retire(c->engine, ei);
    metric_histogram_observe(c->metrics.clean_seconds, (double)(clock_mono_ns() - start_ns) / 1e9);
    LOG_INFO("cleaned tombstones", LOG_STR("outcome", err_name(e)),
             LOG_U64("tombstones_left", engine_tombstone_count(c->engine)),
             LOG_F64("seconds", (double)(clock_mono_ns() - start_ns) / 1e9));
    return e;
}
