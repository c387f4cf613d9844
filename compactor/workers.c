/*
 * The pool: each worker takes the next shard that has news, purges it if asked, and merges until
 * nothing is left to do. One merge at a time in a shard; shards take turns.
 */
#include "base/clock.h"
#include "compactor/compactor_internal.h"

enum { WORKER_NICE = 10 };

/* Under the lock: the next shard to work on, or the moment at which one may be due. */
static bool shard_take(struct compactor *c, uint32_t *out, uint64_t *due_ns)
{
    uint64_t now_ns = clock_mono_ns();

    *due_ns = UINT64_MAX;
    for (uint32_t k = 0; k < c->shard_count; k++) {
        uint32_t i = (c->next_shard + k) % c->shard_count;
        struct shard_work *s = &c->shards[i];

        if (s->is_running || (!s->has_news && !s->purge_wanted))
            continue;
        if (!s->purge_wanted && s->merge.until_mono_ns > now_ns) {
            if (s->merge.until_mono_ns < *due_ns)
                *due_ns = s->merge.until_mono_ns;
            continue;
        }
        c->next_shard = (i + 1) % c->shard_count;
        *out = i;
        return true;
    }
    return false;
}

/* Waits for a shard; false when the compactor stops. The shard is then the caller's. */
static bool shard_wait(struct compactor *c, uint32_t *shard, bool *purge, uint64_t *clean_number)
{
    uint64_t due_ns = 0;
    bool taken = false;

    mutex_lock(&c->lock);
    while (!is_stopping(c) && !taken) {
        taken = shard_take(c, shard, &due_ns);
        if (taken)
            break;
        if (due_ns == UINT64_MAX)
            cond_wait(&c->changed, &c->lock);
        else
            (void)cond_wait_until(&c->changed, &c->lock, due_ns);
    }
    if (taken) {
        struct shard_work *s = &c->shards[*shard];

        s->is_running = true;
        s->has_news = false;
        *purge = s->purge_wanted;
        s->purge_wanted = false;
        *clean_number = c->clean_number;
    }
    mutex_unlock(&c->lock);
    return taken;
}

static void purge_run(struct worker *w, uint32_t shard, uint64_t clean_number)
{
    struct compactor *c = w->compactor;
    struct errinfo ei = {0};
    enum err e = purge_job(w, shard, &ei);

    mutex_lock(&c->lock);
    if (clean_number == c->clean_number && c->purges_left > 0) {
        if (e != ERR_OK && c->clean_error.code == ERR_OK)
            c->clean_error = ei;
        c->purges_left--;
    }
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

static void shard_give(struct compactor *c, uint32_t shard, enum job_outcome outcome)
{
    struct shard_work *s = &c->shards[shard];

    mutex_lock(&c->lock);
    s->is_running = false;
    if (outcome == JOB_FAILED) {
        backoff_add(&s->merge, clock_mono_ns());
    } else {
        s->merge = (struct backoff){0};
    }
    if (outcome != JOB_NOTHING)
        s->has_news = true;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
}

void *worker_run(void *worker)
{
    struct worker *w = worker;
    struct compactor *c = w->compactor;
    uint32_t shard = 0;
    uint64_t clean_number = 0;
    bool purge = false;

    thread_set_nice(WORKER_NICE);
    while (shard_wait(c, &shard, &purge, &clean_number)) {
        if (purge)
            purge_run(w, shard, clean_number);
        shard_give(c, shard, merge_job(w, shard));
    }
    mutex_lock(&c->lock);
    c->running_count--;
    cond_broadcast(&c->changed);
    mutex_unlock(&c->lock);
    return NULL;
}
