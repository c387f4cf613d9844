/*
 * Age and size of what is kept: see retention_internal.h.
 */
#include "compactor/retention_internal.h"

#include <stdlib.h>

#include "compactor/merge_internal.h"

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/* The last moment of the window; the end of time for one that is none, which then stays. */
static int64_t last_moment(const struct retention_part *p)
{
    int64_t first_ms = 0, last_ms = INT64_MAX;

    return merge_window(&p->key, &first_ms, &last_ms) ? last_ms : INT64_MAX;
}

static int oldest_first(const void *a, const void *b)
{
    const struct retention_part *x = a, *y = b;
    int c = COMPARE(last_moment(x), last_moment(y));

    c = c != 0 ? c : COMPARE(x->key.window_start_ms, y->key.window_start_ms);
    c = c != 0 ? c : COMPARE(x->shard, y->shard);
    return c != 0 ? c : COMPARE(x->key.generation, y->key.generation);
}

void retention_choose(struct retention_part *parts, size_t count, const struct retention_limits *l)
{
    uint64_t total = l->other_bytes;
    int64_t newest_ms = INT64_MIN; /* of a proper window */

    if (count > 1)
        qsort(parts, count, sizeof *parts, oldest_first);
    for (size_t i = count; i-- > 0 && newest_ms == INT64_MIN;) {
        if (last_moment(&parts[i]) != INT64_MAX)
            newest_ms = last_moment(&parts[i]);
    }
    for (size_t i = 0; i < count; i++) {
        int64_t last_ms = last_moment(&parts[i]);
        /* Unsigned: two moments may lie further apart than an int64_t counts. */
        uint64_t age_ms = last_ms < newest_ms ? (uint64_t)newest_ms - (uint64_t)last_ms : 0;

        parts[i].reason = l->time_ms != 0 && age_ms >= l->time_ms ? RETENTION_TIME : RETENTION_KEEP;
        if (parts[i].reason == RETENTION_KEEP)
            total += parts[i].size_bytes;
    }
    for (size_t i = 0; i < count && l->size_bytes != 0 && total > l->size_bytes; i++) {
        if (parts[i].reason != RETENTION_KEEP)
            continue;
        parts[i].reason = RETENTION_SIZE;
        total -= parts[i].size_bytes;
    }
}
