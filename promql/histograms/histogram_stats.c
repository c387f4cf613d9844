/*
 * Quantiles, fractions, means and variances of native histograms.
 *
 * Inside of a bucket observations are taken to lie evenly: on a logarithmic scale in exponential
 * buckets, on a linear one in custom buckets and in the zero bucket. NaN observations are in the
 * count and the sum but in no bucket.
 */
#include <math.h>

#include "promql/eval/eval_internal.h"
#include "promql/histograms/histogram_internal.h"

/* What lies in the zero bucket of a histogram with buckets of one sign has that sign. */
static void narrow_zero_bucket(const struct histogram *h, struct histogram_bucket *b)
{
    if (h->negative.bucket_count == 0 && h->positive.bucket_count > 0)
        b->lower = 0;
    else if (h->positive.bucket_count == 0 && h->negative.bucket_count > 0)
        b->upper = 0;
}

/* --- Quantile --- */

/* The populated bucket in which the rank is reached; *count runs up to and with it. */
static struct histogram_bucket bucket_of_rank(struct histogram_iter *it, double rank, double *count)
{
    while (histogram_iter_next(it)) {
        if (it->bucket.count == 0)
            continue;
        *count += it->bucket.count;
        if (*count >= rank)
            break;
    }
    return it->bucket;
}

/* Cuts off what is not interpolated: true with the answer in *out. */
static bool is_edge(const struct histogram *h, struct histogram_bucket *b, double *out)
{
    if (!histogram_is_custom(h)) {
        if (b->lower < 0 && b->upper > 0)
            narrow_zero_bucket(h, b);
        return false;
    }
    if (isinf(b->lower) && b->lower < 0) {
        *out = b->upper;
        if (b->upper <= 0)
            return true;
        b->lower = 0;
    } else if (isinf(b->upper) && b->upper > 0) {
        *out = b->lower;
        return true;
    }
    return false;
}

static double interpolate(const struct histogram *h, const struct histogram_bucket *b,
                          double fraction)
{
    double low, high;

    if (histogram_is_custom(h) || (b->lower <= 0 && b->upper >= 0))
        return b->lower + (b->upper - b->lower) * fraction;
    low = log2(fabs(b->lower));
    high = log2(fabs(b->upper));
    if (b->lower > 0)
        return exp2(low + (high - low) * fraction);
    return -exp2(high + (low - high) * (1 - fraction));
}

double histogram_quantile(double q, const struct histogram *h, enum histogram_nans *out_nans)
{
    /* From the nearer end, unless NaN observations hide behind the upper one. */
    bool may_have_nans = isnan(h->sum), is_ascending = may_have_nans || q < 0.5;
    struct histogram_iter it;
    struct histogram_bucket b;
    double count = 0, rank, edge;

    *out_nans = HISTOGRAM_NANS_NONE;
    if (q < 0)
        return -(double)INFINITY;
    if (q > 1)
        return (double)INFINITY;
    if (h->count == 0 || isnan(q))
        return (double)NAN;
    rank = (is_ascending ? q : 1 - q) * h->count;
    histogram_iter_init(&it, h, !is_ascending);
    b = bucket_of_rank(&it, rank, &count);
    if (is_edge(h, &b, &edge))
        return edge;
    /* Sums of fractions may exceed the count by rounding. */
    if (count > h->count)
        count = h->count;
    if (count < rank) {
        if (!may_have_nans)
            return b.upper;
        *out_nans = HISTOGRAM_NANS_RESULT;
        return (double)NAN;
    }
    rank = is_ascending ? rank - (count - b.count) : count - rank;
    if (may_have_nans) {
        /* Looking for NaNs Prometheus 3.14 loses the bucket that it found and interpolates in the
         * last one. A mistake, surely, but its answer. */
        while (histogram_iter_next(&it)) {
            b = it.bucket;
            count += b.count;
        }
        if (count < h->count)
            *out_nans = HISTOGRAM_NANS_SKEW;
    }
    return interpolate(h, &b, rank / b.count);
}

/* --- Fraction --- */

/* The part of a bucket's observations below v, which lies within its bounds. */
static double fraction_below(const struct histogram_bucket *b, double v, bool is_linear)
{
    double low, high, at;

    if (is_linear)
        return (v - b->lower) / (b->upper - b->lower);
    low = log2(fabs(b->lower));
    high = log2(fabs(b->upper));
    at = log2(fabs(v));
    return v > 0 ? (at - low) / (high - low) : 1 - (at - high) / (low - high);
}

/* How many observations lie below a limit, found while buckets pass by. */
struct rank_search {
    double limit, rank;
    bool is_found;
};

/* `before` is the count of all lower buckets. */
static void rank_look(struct rank_search *s, const struct histogram_bucket *b, double before,
                      bool is_linear)
{
    if (s->is_found)
        return;
    if (b->lower >= s->limit) {
        s->rank = before;
        s->is_found = true;
    } else if (b->lower < s->limit && b->upper > s->limit) {
        if (is_linear && isinf(b->lower) && b->lower < 0)
            s->rank = b->count; /* nothing to interpolate between */
        else
            s->rank = before + b->count * fraction_below(b, s->limit, is_linear);
        s->is_found = true;
    }
}

double histogram_fraction(double lower, double upper, const struct histogram *h, bool *out_has_nans)
{
    struct rank_search from = {.limit = lower}, to = {.limit = upper};
    struct histogram_iter it;
    double count = 0, before = 0;

    *out_has_nans = false;
    if (h->count == 0 || isnan(lower) || isnan(upper))
        return (double)NAN;
    if (lower >= upper)
        return 0;
    histogram_iter_init(&it, h, false);
    while (!(from.is_found && to.is_found) && histogram_iter_next(&it)) {
        struct histogram_bucket b = it.bucket;
        bool holds_zero = b.lower <= 0 && b.upper >= 0, is_linear;

        count += b.count;
        if (holds_zero)
            narrow_zero_bucket(h, &b);
        is_linear = holds_zero || histogram_is_custom(h);
        rank_look(&from, &b, before, is_linear);
        rank_look(&to, &b, before, is_linear);
        before += b.count;
    }
    if (isnan(h->sum)) {
        while (histogram_iter_next(&it))
            count += it.bucket.count;
        *out_has_nans = count < h->count;
    } else {
        count = h->count;
    }
    if (!from.is_found || from.rank > count)
        from.rank = count;
    if (!to.is_found || to.rank > count)
        to.rank = count;
    return (to.rank - from.rank) / h->count;
}

/* --- Moments --- */

double histogram_average(const struct histogram *h)
{
    return h->sum / h->count;
}

static double middle_of(const struct histogram *h, const struct histogram_bucket *b)
{
    double middle;

    if (histogram_is_custom(h))
        return (b->upper + b->lower) / 2.0;
    if (b->lower <= 0 && b->upper >= 0)
        return 0;
    middle = sqrt(b->upper * b->lower);
    return b->upper < 0 ? -middle : middle;
}

double histogram_variance(const struct histogram *h)
{
    double mean = histogram_average(h), sum = 0, low = 0;
    struct histogram_iter it;

    histogram_iter_init(&it, h, false);
    while (histogram_iter_next(&it)) {
        double distance;

        if (it.bucket.count == 0)
            continue;
        distance = middle_of(h, &it.bucket) - mean;
        kahan_add(it.bucket.count * distance * distance, &sum, &low);
    }
    return (sum + low) / h->count;
}
