/*
 * Whether a native histogram, as a counter, was reset since the sample before it.
 */
#include <math.h>

#include "promql/histograms/histogram_internal.h"

/* A populated bucket of before that is gone, or has less. */
static bool side_reset(const struct histogram *h, const struct histogram_side *side,
                       const struct histogram *previous, const struct histogram_side *before)
{
    struct bucket_stream now, then;
    bool has_now, has_then;

    bucket_stream_init(&now, side, h->schema, h->schema);
    bucket_stream_init(&then, before, previous->schema, h->schema);
    has_now = bucket_stream_begin(&now, h->zero_threshold);
    has_then = bucket_stream_begin(&then, h->zero_threshold);
    for (; has_then; has_then = bucket_stream_next(&then)) {
        while (has_now && now.index < then.index)
            has_now = bucket_stream_next(&now);
        /* Prometheus 3.14 looks at no bucket behind the one at which ours have run out. */
        if (!has_now)
            return then.count != 0;
        if (now.index == then.index ? now.count < then.count : then.count != 0)
            return true;
    }
    return false;
}

/* Runs through custom buckets; the next one is looked at before it is taken. */
struct custom_run {
    const struct histogram *histogram;
    struct histogram_cursor cursor;
    bool has_next;
};

static void custom_run_init(struct custom_run *r, const struct histogram *h)
{
    r->histogram = h;
    histogram_cursor_init(&r->cursor, &h->positive);
    r->has_next = histogram_cursor_next(&r->cursor);
}

static double bound_of(const struct histogram *h, size_t i)
{
    return i < h->custom_count ? h->custom_values[i] : (double)INFINITY;
}

/* The sum of the buckets up to `bound` that have not been taken. */
static double custom_run_take(struct custom_run *r, double bound)
{
    const struct histogram *h = r->histogram;
    double sum = 0;

    while (r->has_next && bound_of(h, (size_t)r->cursor.index) <= bound) {
        sum += h->positive.buckets[r->cursor.position];
        r->has_next = histogram_cursor_next(&r->cursor);
    }
    return sum;
}

/* Compares what lies between the bounds that both have. */
static bool custom_reset(const struct histogram *h, const struct histogram *previous)
{
    struct custom_run now, then;
    size_t i = 0, k = 0;

    custom_run_init(&now, h);
    custom_run_init(&then, previous);
    while (i <= h->custom_count && k <= previous->custom_count) {
        double a = bound_of(h, i), b = bound_of(previous, k);

        if (a == b && custom_run_take(&now, a) < custom_run_take(&then, a))
            return true;
        i += a <= b;
        k += b <= a;
    }
    return false;
}

bool histogram_detect_reset(const struct histogram *h, const struct histogram *previous)
{
    double zero_count, low, threshold = h->zero_threshold;

    if (h->hint == HISTOGRAM_HINT_RESET || h->hint == HISTOGRAM_HINT_NOT_RESET)
        return h->hint == HISTOGRAM_HINT_RESET;
    if (h->count < previous->count)
        return true;
    if (histogram_is_custom(h)) {
        if (!histogram_is_custom(previous))
            return true;
        if (!histogram_bounds_equal(h, previous))
            return custom_reset(h, previous);
    }
    if (h->schema > previous->schema || h->zero_threshold < previous->zero_threshold)
        return true;
    /* Equal with custom buckets, so that no bounds are asked for. */
    zero_count = histogram_zero_count_for(previous, NULL, &threshold, &low);
    if (threshold != h->zero_threshold || h->zero_count < zero_count)
        return true;
    return side_reset(h, &h->positive, previous, &previous->positive) ||
           side_reset(h, &h->negative, previous, &previous->negative);
}
