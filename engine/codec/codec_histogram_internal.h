/* What the encoder and the decoder of histogram columns share. */
#ifndef RIMSTONE_ENGINE_CODEC_CODEC_HISTOGRAM_INTERNAL_H
#define RIMSTONE_ENGINE_CODEC_CODEC_HISTOGRAM_INTERNAL_H

#include "engine/codec_histogram.h"

enum {
    HISTOGRAMS_COUNT_DERIVED = 1 << 0, /* each count is the sum of the buckets */
    HISTOGRAMS_ZERO_EMPTY = 1 << 1,    /* all zero counts are +0 */
    HISTOGRAMS_HINT_SAME = 1 << 2,     /* one hint for all, in bits 4 and 5 */
    HISTOGRAMS_STARTS = 1 << 3,        /* start timestamps; else all are 0 */
    HISTOGRAMS_HINT_SHIFT = 4,
    HISTOGRAMS_HINT_BITS = 2,
    HISTOGRAMS_HINT_MASK = 3,
};
/* How the buckets of one layout are stored. */
enum { BUCKETS_EACH, BUCKETS_JOINED };

/* The sum that a derived count stands for: the zero bucket, then all others in their order. */
static inline double histogram_bucket_sum(const struct histogram *h)
{
    double sum = h->zero_count;

    for (size_t i = 0; i < h->positive.bucket_count; i++)
        sum += h->positive.buckets[i];
    for (size_t i = 0; i < h->negative.bucket_count; i++)
        sum += h->negative.buckets[i];
    return sum;
}

#endif
