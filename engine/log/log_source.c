/*
 * The engine as the log's source: hands batches over, encodes them on the log's threads, and lets
 * definitions wait for their second frame. The tick thread wakes the log for those when no traffic
 * does; it sleeps for good while there are none.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/engine_internal.h"

enum { TICK_MIN_NS = 1000 * 1000 };

static bool source_take(void *ctx, uint32_t shard, struct wal_batch *out)
{
    struct engine *e = ctx;
    struct shard *s = &e->shards[shard];
    uint64_t now_ns = clock_mono_ns();
    /* Before the lock. When it fails the entries stay queued, and the next notice or the tick has
     * them taken. */
    struct log_batch *batch = calloc(1, sizeof *batch);
    bool any;

    if (batch == NULL)
        return false;
    mutex_lock(&s->lock);
    any = log_queue_take(&s->log, now_ns, batch, out);
    mutex_unlock(&s->lock);
    if (!any) {
        free(batch);
        return false;
    }
    out->data = batch;
    return true;
}

static enum err source_encode(void *ctx, uint32_t shard, const struct wal_batch *batch,
                              struct byte_writer *payload)
{
    (void)ctx;
    (void)shard;
    return log_batch_encode(batch->data, payload);
}

static void source_release(void *ctx, uint32_t shard, struct wal_batch *batch)
{
    struct engine *e = ctx;
    struct shard *s = &e->shards[shard];
    struct log_batch *b = batch->data;

    if (b == NULL)
        return;
    batch->data = NULL;
    log_batch_release_samples(b, &e->logs);
    if (b->fresh.first != NULL || b->repeated.first != NULL) {
        mutex_lock(&s->lock);
        log_batch_release_definitions(b, &s->log, clock_mono_ns());
        mutex_unlock(&s->lock);
        engine_tick_poke(e);
    }
    free(b);
}

struct wal_source engine_log_source(struct engine *e)
{
    return (struct wal_source){
        .ctx = e,
        .take = source_take,
        .encode = source_encode,
        .release = source_release,
    };
}

/* ---- the tick ---- */

static void *tick_run(void *arg)
{
    struct engine *e = arg;

    mutex_lock(&e->tick_lock);
    while (!e->tick_stop) {
        uint64_t waiting = atomic_load_explicit(&e->logs.recent_count, memory_order_relaxed);

        if (waiting == 0) {
            atomic_store_explicit(&e->tick_is_idle, true, memory_order_relaxed);
            cond_wait(&e->tick_wake, &e->tick_lock);
            continue;
        }
        uint64_t delay_ns = atomic_load_explicit(&e->logs.repeat_delay_ns, memory_order_relaxed);
        if (delay_ns < TICK_MIN_NS)
            delay_ns = TICK_MIN_NS;
        (void)cond_wait_until(&e->tick_wake, &e->tick_lock, clock_mono_ns() + delay_ns);
        if (e->tick_stop)
            break;
        mutex_unlock(&e->tick_lock);
        wal_notify_bytes(e->wal, waiting, 0, 0);
        mutex_lock(&e->tick_lock);
    }
    mutex_unlock(&e->tick_lock);
    return NULL;
}

void engine_tick_poke(struct engine *e)
{
    mutex_lock(&e->tick_lock);
    /* Under the lock, so that a tick that just found nothing is either seen idle or looks again. */
    if (atomic_load_explicit(&e->tick_is_idle, memory_order_relaxed)) {
        atomic_store_explicit(&e->tick_is_idle, false, memory_order_relaxed);
        cond_signal(&e->tick_wake);
    }
    mutex_unlock(&e->tick_lock);
}

enum err engine_tick_start(struct engine *e, struct errinfo *ei)
{
    return thread_start(&e->tick, "engine-tick", tick_run, e, ei);
}

void engine_tick_stop(struct engine *e)
{
    mutex_lock(&e->tick_lock);
    e->tick_stop = true;
    cond_signal(&e->tick_wake);
    mutex_unlock(&e->tick_lock);
    thread_join(&e->tick);
}
