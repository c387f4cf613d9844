/*
 * See eval_share_internal.h.
 */
#include "promql/eval/eval_share_internal.h"

enum {
    TAKE_COUNT = 1024,         /* neighbours in the store; a few milliseconds of work */
    SHARE_SAMPLES_MIN = 50000, /* below, waking a thread is not worth it */
    SAMPLE_DISTANCE_MS = 15000,
};

struct series_list series_queue_take(struct series_queue *q)
{
    size_t first;

    if (atomic_load_explicit(&q->is_finished, memory_order_relaxed))
        return (struct series_list){0, NULL};
    first = atomic_fetch_add_explicit(&q->taken, q->take_count, memory_order_relaxed);
    if (first >= q->count)
        return (struct series_list){0, NULL};
    return (struct series_list){q->count - first < q->take_count ? q->count - first : q->take_count,
                                (struct series_handle *)(uintptr_t)(q->items + first)};
}

/* Arguments that cost nothing to evaluate again. */
static bool is_constant(const struct plan *p)
{
    if (p != NULL && p->kind == PLAN_SPREAD)
        p = p->input;
    return p == NULL || p->kind == PLAN_CONSTANT;
}

bool plan_is_shareable(const struct plan *p)
{
    if (p->kind == PLAN_MAP) {
        for (const struct map_stage *s = p->stages; s != NULL; s = s->next) {
            if (s->checks_labelset || !is_constant(s->scalars[0]) || !is_constant(s->scalars[1]))
                return false;
        }
        p = p->input;
    }
    if (p->kind == PLAN_RANGE_CALL)
        return p->subquery == NULL && !p->checks_labelset && is_constant(p->parameter) &&
               is_constant(p->parameter2);
    return p->kind == PLAN_SELECTOR;
}

bool share_offer(struct share *s, struct series_queue *q, int64_t range_ms)
{
    uint64_t samples = (uint64_t)range_ms / SAMPLE_DISTANCE_MS + 1;

    if (!q->any_order || q->count < (size_t)2 * TAKE_COUNT ||
        samples < SHARE_SAMPLES_MIN / q->count)
        return false;
    q->take_count = TAKE_COUNT;
    s->queue = q;
    s->running = parallel_start(s->pool, s->helper_count, s->help, s->context);
    return true;
}

void share_join(struct share *s)
{
    parallel_join(s->running);
    s->running = NULL;
}
