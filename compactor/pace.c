/*
 * Giving way. Two means: a lower scheduling priority of the whole thread, which counts when all
 * cores are taken, and pauses between batches while requests run or wait, which also leave the disk
 * and the caches to them. How many requests there are is the server's count of them; the load
 * average of the machine would lag by a minute and count our own threads.
 */
#include "base/clock.h"
#include "compactor/compactor_internal.h"

void pace_begin(struct worker *w)
{
    w->batch_mono_ns = clock_mono_ns();
    w->paused_ns = 0;
}

void pace_yield(void *worker)
{
    struct worker *w = worker;
    struct compactor *c = w->compactor;
    uint64_t load = c->options.load == NULL ? 0 : c->options.load(c->options.load_ctx);
    uint64_t now_ns = clock_mono_ns();
    uint64_t pause_ns = policy_pause_ns(now_ns - w->batch_mono_ns, load, c->core_count);

    if (pause_ns > 0) {
        compactor_wait(c, now_ns + pause_ns);
        w->paused_ns += pause_ns;
    }
    w->batch_mono_ns = clock_mono_ns();
}
