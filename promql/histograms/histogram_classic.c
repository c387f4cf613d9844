/*
 * Quantiles and fractions of classic histograms: series with an `le` label. The rules for merging
 * equal bounds, for forced monotonicity and for the borders are Prometheus's.
 */
#include "promql/histograms/histogram_classic_internal.h"

/* Relative differences below this are rounding errors of sums, not decreases. */
static const double small_delta = 1e-12;

static bool nearly_equal(double a, double b)
{
    const double normal_min = 0x1p-1022;
    double sum, diff;

    if (a == b || (isnan(a) && isnan(b)))
        return true;
    sum = fabs(a) + fabs(b);
    diff = fabs(a - b);
    if (a == 0 || b == 0 || sum < normal_min)
        return diff < small_delta * normal_min;
    return diff / fmin(sum, 0x1.fffffffffffffp1023) < small_delta;
}

/* Buckets with the same bound become one. */
static size_t buckets_coalesce(struct bucket *b, size_t count)
{
    size_t n = 0;

    for (size_t i = 1; i < count; i++) {
        if (b[i].upper_bound == b[n].upper_bound)
            b[n].count += b[i].count;
        else
            b[++n] = b[i];
    }
    return n + 1;
}

static bool buckets_make_monotonic(struct bucket *b, size_t count, struct monotonicity_fix *fix)
{
    double highest = b[0].count;
    bool forced = false;

    *fix = (struct monotonicity_fix){.min_bucket = INFINITY, .max_bucket = -INFINITY};
    for (size_t i = 1; i < count; i++) {
        double c = b[i].count;

        if (c == highest)
            continue;
        if (!nearly_equal(highest, c) && !(c < highest)) {
            highest = c;
            continue;
        }
        if (!nearly_equal(highest, c)) {
            forced = true;
            fix->min_bucket = fmin(fix->min_bucket, b[i].upper_bound);
            fix->max_bucket = fmax(fix->max_bucket, b[i].upper_bound);
            fix->max_diff = fmax(fix->max_diff, highest - c);
        }
        b[i].count = highest;
    }
    return forced;
}

/* The first of `count` buckets that reaches `rank`, or `count`. Counts rise, so a search by halves
 * finds what a walk finds; where a count is NaN it finds what Prometheus's search by halves does.
 */
static size_t bucket_find(const struct bucket *b, size_t count, double rank)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (b[middle].count >= rank)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

double buckets_quantile(double q, struct bucket *b, size_t count, bool *forced,
                        struct monotonicity_fix *fix)
{
    double rank, start = 0, end, in_bucket;
    size_t i;

    *forced = false;
    if (isnan(q))
        return NAN;
    if (q < 0)
        return -INFINITY;
    if (q > 1)
        return INFINITY;
    if (count == 0 || b[count - 1].upper_bound != INFINITY)
        return NAN;
    count = buckets_coalesce(b, count);
    *forced = buckets_make_monotonic(b, count, fix);
    if (count < 2 || b[count - 1].count == 0)
        return NAN;
    rank = q * b[count - 1].count;
    i = bucket_find(b, count - 1, rank);
    if (i == count - 1)
        return b[count - 2].upper_bound; /* in the +Inf bucket: its lower bound */
    if (i == 0 && b[0].upper_bound <= 0)
        return b[0].upper_bound;
    end = b[i].upper_bound;
    in_bucket = b[i].count;
    if (i > 0) {
        start = b[i - 1].upper_bound;
        in_bucket -= b[i - 1].count;
        rank -= b[i - 1].count;
    }
    return start + (end - start) * (rank / in_bucket);
}

/* Observations up to `v`, interpolated in the bucket that holds it; beyond the last one, all. */
static double buckets_rank(const struct bucket *b, size_t count, double v)
{
    double lower = b[0].upper_bound <= 0 ? -INFINITY : 0, rank = 0;

    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            lower = b[i - 1].upper_bound;
        if (lower >= v)
            return rank;
        if (b[i].upper_bound > v) {
            if (isinf(lower))
                return b[i].count;
            return rank + (b[i].count - rank) * (v - lower) / (b[i].upper_bound - lower);
        }
        rank = b[i].count;
    }
    return b[count - 1].count;
}

double buckets_fraction(double lower, double upper, struct bucket *b, size_t count)
{
    double total, below, up_to;

    if (count == 0 || b[count - 1].upper_bound != INFINITY)
        return NAN;
    count = buckets_coalesce(b, count);
    total = b[count - 1].count;
    if (total == 0 || isnan(lower) || isnan(upper))
        return NAN;
    if (lower >= upper)
        return 0;
    below = buckets_rank(b, count, lower);
    up_to = buckets_rank(b, count, upper);
    if (below > total)
        below = total;
    if (up_to > total)
        up_to = total;
    return (up_to - below) / total;
}
