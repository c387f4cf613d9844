/*
 * Columns of one series out of several sources made one: the rule for repeats.
 */
#ifndef RIMSTONE_ENGINE_READ_COLUMN_MERGE_INTERNAL_H
#define RIMSTONE_ENGINE_READ_COLUMN_MERGE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/histogram.h"
#include "engine/querier.h"

/* The first sample at or after `t_ms`. */
static inline size_t column_lower_bound(const struct column *c, int64_t t_ms)
{
    size_t low = 0, high = c->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->t_ms[middle] < t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* `count` samples from number `first` on; the arrays stay where they are. */
static inline struct column column_slice(const struct column *c, size_t first, size_t count)
{
    return (struct column){
        .count = count,
        .t_ms = c->t_ms + first,
        .value = c->value + first,
        .histogram = c->histogram == NULL ? NULL : c->histogram + first,
    };
}

/* Leaves out what is not in [min_time_ms, max_time_ms]; the arrays stay where they are. */
static inline void column_trim(struct column *c, int64_t min_time_ms, int64_t max_time_ms)
{
    size_t first, end;

    if (c->count == 0 || (c->t_ms[0] >= min_time_ms && c->t_ms[c->count - 1] <= max_time_ms))
        return;
    first = column_lower_bound(c, min_time_ms);
    end = max_time_ms == INT64_MAX ? c->count : column_lower_bound(c, max_time_ms + 1);
    *c = column_slice(c, first, end > first ? end - first : 0);
}

/* Samples of one source, not empty. */
struct column_piece {
    struct column column;
    bool is_scratch; /* its arrays are in memory that goes before the result does */
};

/* Timestamps that were put together for one series are shared with others that have the same
 * pieces: this remembers them. Zero-initialise, but for the arenas. */
enum { COLUMN_MEMO_BITS = 7 };

struct column_memo {
    const struct column_piece *pieces; /* NULL: free */
    size_t count;
    const int64_t *t_ms;
};
struct column_merger {
    struct arena *arena;   /* of results */
    struct arena *scratch; /* lives as long as the merger */
    struct column_memo memo[1 << COLUMN_MEMO_BITS];
};

/*
 * One column of `count` pieces, in order of precedence: of samples with one timestamp, that of the
 * first piece stays, float or histogram. A single piece is passed through. `pieces` must stay as
 * long as the merger. What histograms are stays where it is, also that of scratch pieces; where the
 * sample before is of another piece the histogram's hint says so.
 */
MUST_USE enum err column_merge(struct column_merger *m, const struct column_piece *pieces,
                               size_t count, struct column *out, struct errinfo *ei);

/* --- column_starts.c --- */

/* The last step to what readers see: floats that stand among histograms for the sake of their start
 * timestamps become floats, and c->start_ms is filled. False when the arena refuses. */
MUST_USE bool column_take_starts(struct column *c, struct arena *arena);

#endif
