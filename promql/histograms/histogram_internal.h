/*
 * What the histogram files share: buckets at a coarser schema, and zero buckets made alike.
 */
#ifndef RIMSTONE_PROMQL_HISTOGRAMS_HISTOGRAM_INTERNAL_H
#define RIMSTONE_PROMQL_HISTOGRAMS_HISTOGRAM_INTERNAL_H

#include <stdbool.h>

#include "promql/histogram_math.h"

/*
 * One side's buckets merged to a schema, by rising distance from zero. Merging adds plainly, or
 * compensated, and then the low parts that run beside the buckets (NULL: 0) count too.
 */
struct bucket_stream {
    struct histogram_cursor cursor; /* one ahead of the current bucket while has_next */
    int32_t from, to;
    bool is_compensated, has_next;
    const double *lows;
    /* the current bucket */
    int32_t index;
    double count, low;
};
void bucket_stream_init(struct bucket_stream *s, const struct histogram_side *side, int32_t from,
                        int32_t to);
void bucket_stream_init_compensated(struct bucket_stream *s, const struct histogram_side *side,
                                    const double *lows, int32_t from, int32_t to);
bool bucket_stream_next(struct bucket_stream *s);
/* Goes to the first bucket that reaches beyond `threshold` (custom buckets: the first one). */
bool bucket_stream_begin(struct bucket_stream *s, double threshold);

/* The zero count that `h` would have with the threshold *threshold, not below its own. A threshold
 * inside of a populated bucket is moved out to that bucket's far end. *low is the compensation of
 * the sum; `lows` those of h's buckets, or NULL. */
double histogram_zero_count_for(const struct histogram *h,
                                const struct histogram_compensation *lows, double *threshold,
                                double *low);
/* Gives `h` a zero bucket that covers both; returns other's zero count for it, and its low part.
 * `lows` (NULL: none) belongs to h. */
MUST_USE enum err histogram_zero_reconcile(struct histogram *h, struct histogram_compensation *lows,
                                           const struct histogram *other, struct arena *arena,
                                           double *out_count, double *out_low);

/* h += other with compensation; *f's low parts are made at the first call. */
MUST_USE enum err histogram_add_compensated(struct histogram *h, const struct histogram *other,
                                            struct histogram_compensation *lows,
                                            struct arena *arena, struct histogram_notes *notes);

#endif
