/*
 * One piece of work that several threads of a shared pool do together with the caller.
 */
#ifndef RIMSTONE_PROMQL_EVAL_PARALLEL_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_PARALLEL_INTERNAL_H

#include <stdint.h>

#include "base/thread.h"

struct parallel;

/* Asks `pool` to call `run(context, i)` for i below `count`, at once as far as it has free threads.
 * Some or all of them may never be called: whoever joins must have done the work by itself. NULL,
 * with nothing called, when memory is short. */
struct parallel *parallel_start(struct thread_pool *pool, uint32_t count,
                                void (*run)(void *context, uint32_t index), void *context);
/* No call begins any more; waits for those that run, not for the pool. Accepts NULL. */
void parallel_join(struct parallel *p);

#endif
