/*
 * Zero buckets of two histograms made alike, and buckets merged to a coarser schema on the fly.
 *
 * Steps and their order are Prometheus's, since each addition rounds. One thing is not: a threshold
 * that is NaN, which its receiver lets through, would keep it searching for ever; here it is taken
 * as equal to any other.
 */
#include <math.h>

#include "promql/eval/eval_internal.h"
#include "promql/histograms/histogram_internal.h"

static void stream_start(struct bucket_stream *s)
{
    histogram_cursor_init(&s->cursor, s->cursor.side);
    s->has_next = histogram_cursor_next(&s->cursor);
}

void bucket_stream_init(struct bucket_stream *s, const struct histogram_side *side, int32_t from,
                        int32_t to)
{
    *s = (struct bucket_stream){.cursor = {.side = side}, .from = from, .to = to};
    stream_start(s);
}

void bucket_stream_init_compensated(struct bucket_stream *s, const struct histogram_side *side,
                                    const double *lows, int32_t from, int32_t to)
{
    *s = (struct bucket_stream){
        .cursor = {.side = side}, .from = from, .to = to, .is_compensated = true, .lows = lows};
    stream_start(s);
}

static double low_at(const struct bucket_stream *s)
{
    return s->lows == NULL ? 0 : s->lows[s->cursor.position];
}

static void stream_merge(struct bucket_stream *s)
{
    double count = s->cursor.side->buckets[s->cursor.position];

    if (!s->is_compensated) {
        s->count += count;
        return;
    }
    kahan_add(count, &s->count, &s->low);
    kahan_add(low_at(s), &s->count, &s->low);
}

bool bucket_stream_next(struct bucket_stream *s)
{
    if (!s->has_next)
        return false;
    s->index = histogram_index_reduce(s->cursor.index, s->from, s->to);
    s->count = s->cursor.side->buckets[s->cursor.position];
    s->low = low_at(s);
    while ((s->has_next = histogram_cursor_next(&s->cursor))) {
        if (histogram_index_reduce(s->cursor.index, s->from, s->to) != s->index)
            break;
        stream_merge(s);
    }
    return true;
}

bool bucket_stream_begin(struct bucket_stream *s, double threshold)
{
    while (bucket_stream_next(s)) {
        if (s->to == HISTOGRAM_SCHEMA_CUSTOM ||
            !(histogram_bound_exponential(s->index, s->to) <= threshold))
            return true;
    }
    return false;
}

/* --- Zero buckets --- */

/* Adds the buckets of a side that begin below the threshold. True when the last of them reaches
 * beyond it and is populated: *threshold is then its end. */
static bool side_absorb(const struct histogram *h, const struct histogram_side *side,
                        const double *lows, double *threshold, double *count, double *low)
{
    struct histogram_cursor c;

    histogram_cursor_init(&c, side);
    while (histogram_cursor_next(&c)) {
        double far = histogram_bound_exponential(c.index, h->schema);

        if (histogram_bound_exponential(c.index - 1, h->schema) >= *threshold)
            break;
        kahan_add(side->buckets[c.position], count, low);
        if (lows != NULL)
            kahan_add(lows[c.position], count, low);
        if (far > *threshold) {
            if (side->buckets[c.position] == 0)
                break;
            *threshold = far;
            return true;
        }
    }
    return false;
}

double histogram_zero_count_for(const struct histogram *h,
                                const struct histogram_compensation *lows, double *threshold,
                                double *low)
{
    double count;

    *low = lows == NULL ? 0 : lows->zero_count;
    if (*threshold == h->zero_threshold)
        return h->zero_count;
    do {
        count = h->zero_count; /* but *low goes on, as in Prometheus */
        (void)side_absorb(h, &h->positive, lows == NULL ? NULL : lows->positive, threshold, &count,
                          low);
    } while (
        side_absorb(h, &h->negative, lows == NULL ? NULL : lows->negative, threshold, &count, low));
    return count;
}

/* Removes the buckets that the zero bucket has absorbed. */
static enum err side_trim(const struct histogram *h, struct histogram_side *side, double *lows,
                          struct arena *arena)
{
    struct histogram_cursor c;

    histogram_cursor_init(&c, side);
    while (histogram_cursor_next(&c) &&
           !(histogram_bound_exponential(c.index - 1, h->schema) >= h->zero_threshold)) {
        side->buckets[c.position] = 0;
        if (lows != NULL)
            lows[c.position] = 0;
    }
    return histogram_side_compact(side, lows, arena);
}

enum err histogram_zero_reconcile(struct histogram *h, struct histogram_compensation *lows,
                                  const struct histogram *other, struct arena *arena,
                                  double *out_count, double *out_low)
{
    double count = other->zero_count, low = 0, threshold = other->zero_threshold;
    enum err e = ERR_OK;

    while (e == ERR_OK && (h->zero_threshold > threshold || threshold > h->zero_threshold)) {
        if (h->zero_threshold > threshold) {
            threshold = h->zero_threshold;
            count = histogram_zero_count_for(other, NULL, &threshold, &low);
        }
        if (threshold > h->zero_threshold) {
            double own_low, own_threshold = threshold;

            h->zero_count = histogram_zero_count_for(h, lows, &own_threshold, &own_low);
            h->zero_threshold = own_threshold;
            if (lows != NULL)
                lows->zero_count = own_low;
            e = side_trim(h, &h->positive, lows == NULL ? NULL : lows->positive, arena);
            if (e == ERR_OK)
                e = side_trim(h, &h->negative, lows == NULL ? NULL : lows->negative, arena);
        }
    }
    *out_count = count;
    *out_low = low;
    return e;
}
