/*
 * Arithmetic and statistics of native histograms, to the bit what Prometheus 3.14 computes where it
 * only adds, multiplies and divides (logarithms and powers come from libm).
 *
 * Where a function changes a histogram, its buckets are the caller's to change
 * (histogram_copy()), and what it needs to grow comes from the arena that both then live in. Two
 * histograms are compatible when both have exponential buckets or both custom ones; the result has
 * the coarser schema, the wider zero bucket, or the custom bounds that both have. ERR_INVALID means
 * incompatible: nothing has changed. Any other error is the arena's, and the histogram is spoilt.
 */
#ifndef RIMSTONE_PROMQL_HISTOGRAM_MATH_H
#define RIMSTONE_PROMQL_HISTOGRAM_MATH_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/histogram.h"

/* What deserves an annotation; only ever set to true. */
struct histogram_notes {
    bool hints_collide;     /* "reset" met "no reset" */
    bool bounds_reconciled; /* custom bounds differed */
};

/* h += other, h -= other. Empty buckets stay: histogram_compact() where it shows. The hint of a
 * difference is the caller's to set to gauge. */
MUST_USE enum err histogram_add(struct histogram *h, const struct histogram *other,
                                struct arena *arena, struct histogram_notes *notes);
MUST_USE enum err histogram_subtract(struct histogram *h, const struct histogram *other,
                                     struct arena *arena, struct histogram_notes *notes);
/* A negative factor makes a gauge of it. Division by 0 drops all buckets. */
void histogram_multiply(struct histogram *h, double factor);
void histogram_divide(struct histogram *h, double divisor);

/* Whether `h`, the sample after `previous`, tells of a counter reset: by its hint, else because
 * any count or a populated bucket is less, or the resolution more, than before. */
bool histogram_detect_reset(const struct histogram *h, const struct histogram *previous);

/* --- Sums and means of many --- */

/* The low parts of a histogram's counts in a compensated (Neumaier) sum; the arrays run beside the
 * buckets. */
struct histogram_compensation {
    double zero_count, count, sum;
    double *positive, *negative;
};

/* Sums as long as that does not overflow, else a running mean. Starts with the first histogram;
 * what it was given may go at once, except spans and custom values. */
struct histogram_fold {
    struct histogram value; /* the sum; the mean once `is_mean` */
    struct histogram_compensation low;
    bool has_low, is_mean;
    double count;
    bool saw_reset, saw_no_reset; /* both: the collision warning */
    struct histogram_notes notes;
};
MUST_USE enum err histogram_fold_init(struct histogram_fold *f, const struct histogram *h,
                                      struct arena *arena);
MUST_USE enum err histogram_fold_sum(struct histogram_fold *f, const struct histogram *h,
                                     struct arena *arena);
MUST_USE enum err histogram_fold_mean(struct histogram_fold *f, const struct histogram *h,
                                      struct arena *arena);
/* The result is in f->value, not compacted. */
void histogram_fold_sum_end(struct histogram_fold *f);
void histogram_fold_mean_end(struct histogram_fold *f);

/* --- Statistics --- */

/* What NaN observations did to a result. */
enum histogram_nans {
    HISTOGRAM_NANS_NONE,
    HISTOGRAM_NANS_SKEW,   /* counted above all others */
    HISTOGRAM_NANS_RESULT, /* the quantile is among them: NaN */
};
/* Interpolated exponentially, or linearly in custom buckets and the zero bucket. */
double histogram_quantile(double q, const struct histogram *h, enum histogram_nans *out_nans);
/* The fraction of observations between two values; *out_has_nans: some are NaN and in neither. */
double histogram_fraction(double lower, double upper, const struct histogram *h,
                          bool *out_has_nans);
double histogram_average(const struct histogram *h);
/* Estimated with every observation in the middle of its bucket. */
double histogram_variance(const struct histogram *h);

/* Keeps what is at or below `limit` (</, `keeps_lower`) or above it (>/), estimating inside of the
 * bucket that it cuts; count and sum then come from the buckets. */
MUST_USE enum err histogram_trim(struct histogram *h, double limit, bool keeps_lower,
                                 struct arena *arena);

#endif
