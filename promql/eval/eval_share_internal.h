/*
 * A fold's input read by several threads: the selector below offers its series, each thread takes
 * some of them in turn and runs the operators between selector and fold by itself. What is folded
 * must not depend on who folded what (fold_cells_internal.h).
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_SHARE_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_SHARE_INTERNAL_H

#include "promql/eval/eval_internal.h"
#include "promql/eval/parallel_internal.h"

/* Series that one thread reads, or several take in turn. */
struct series_queue {
    const struct series_handle *items; /* borrowed */
    size_t count;
    bool any_order, stable_strings;
    size_t take_count;        /* at a time */
    _Atomic size_t taken;     /* relaxed: what is taken was there before */
    _Atomic bool is_finished; /* relaxed: an error somewhere makes the rest needless */
};
/* The next series of the queue, or none. */
struct series_list series_queue_take(struct series_queue *q);

struct share {
    struct thread_pool *pool;
    uint32_t helper_count;
    /* On a thread of the pool, at most helper_count times, each with an index of its own. */
    void (*help)(void *context, uint32_t index);
    void *context;
    struct series_queue *queue; /* once offered */
    struct parallel *running;   /* once offered */
};

/* Whether the stream under a fold may be run several times over parts of its series: one selector,
 * nothing that looks across series, no other input. */
bool plan_is_shareable(const struct plan *p);
/* Offers series to the helpers; false: too few for that. The caller takes from the queue as well,
 * and calls share_join() before the queue goes. */
bool share_offer(struct share *s, struct series_queue *q, int64_t range_ms);
void share_join(struct share *s);

#endif
