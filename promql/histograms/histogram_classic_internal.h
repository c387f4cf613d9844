/*
 * Arithmetic of classic histograms, apart from the operator so that tests reach it.
 */
#ifndef RIMSTONE_PROMQL_HISTOGRAMS_HISTOGRAM_CLASSIC_INTERNAL_H
#define RIMSTONE_PROMQL_HISTOGRAMS_HISTOGRAM_CLASSIC_INTERNAL_H

#include "promql/eval/eval_internal.h"

struct bucket {
    double upper_bound, count; /* cumulative */
};

/* `b` is sorted by bound and changed. *fix is filled when *forced. */
double buckets_quantile(double q, struct bucket *b, size_t count, bool *forced,
                        struct monotonicity_fix *fix);
/* Share of the observations in (lower, upper]. */
double buckets_fraction(double lower, double upper, struct bucket *b, size_t count);

#endif
