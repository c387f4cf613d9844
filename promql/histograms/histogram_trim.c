/*
 * The trim operators: a native histogram without its observations above (</) or below (>/) a limit.
 *
 * The bucket that the limit cuts keeps an estimated part. A new sum can only be estimated as well,
 * each kept part at its middle; count and sum are replaced only if anything was cut. Of buckets
 * without a lower or upper bound nobody knows where in them observations lie: the rules for those
 * are Prometheus's.
 */
#include <math.h>

#include "promql/histograms/histogram_internal.h"

struct trim {
    double limit;
    bool keeps_lower, is_custom;
    double count, sum; /* of what is kept */
    bool has_cut;
};

static double zero_if_infinite(double v)
{
    return isinf(v) ? 0 : v;
}

/* What is kept of a bucket, and where its middle lies. */
struct part {
    double count, middle;
};

static double middle_between(double lower, double upper, bool is_positive, bool is_linear)
{
    double middle;

    if (isinf(lower)) {
        if (isinf(upper))
            return 0;
        return upper > 0 ? upper / 2 : upper;
    }
    if (isinf(upper))
        return lower;
    if (is_linear)
        return (lower + upper) / 2;
    middle = sqrt(fabs(lower * upper));
    return is_positive ? middle : -middle;
}

/* Bound -Inf below: a custom bucket is taken to begin at 0 if it ends above. */
static struct part part_of_lowest(const struct trim *t, const struct histogram_bucket *b)
{
    bool ends_above = b->upper > 0 && !isinf(b->upper);

    if (t->keeps_lower) {
        if (t->limit >= b->upper)
            return (struct part){b->count, 0};
        if (t->limit > 0 && ends_above)
            return (struct part){b->count * t->limit / b->upper, t->limit / 2};
        if (b->upper <= 0)
            return (struct part){b->count, t->limit};
        return (struct part){0, zero_if_infinite(b->upper)};
    }
    if (t->limit <= b->lower)
        return (struct part){b->count, 0};
    if (t->limit >= 0 && b->upper > t->limit && !isinf(b->upper))
        return (struct part){b->count * (1 - t->limit / b->upper), (t->limit + b->upper) / 2};
    return (struct part){0, zero_if_infinite(b->upper)};
}

/* Bound +Inf above: kept whole or not at all. */
static struct part part_of_highest(const struct trim *t, const struct histogram_bucket *b)
{
    if (!t->keeps_lower && t->limit >= b->lower)
        return (struct part){b->count, t->limit};
    return (struct part){0, zero_if_infinite(b->lower)};
}

/* The count at or below the limit, which lies inside of the bucket. */
static double count_below(const struct trim *t, const struct histogram_bucket *b)
{
    double low, high, at;

    if (t->limit <= b->lower)
        return 0;
    if (t->limit >= b->upper)
        return b->count;
    if (t->is_custom)
        return b->count * ((t->limit - b->lower) / (b->upper - b->lower));
    low = log2(fabs(b->lower));
    high = log2(fabs(b->upper));
    at = log2(fabs(t->limit));
    return b->count * (t->limit > 0 ? (at - low) / (high - low) : 1 - (at - high) / (low - high));
}

static struct part part_of_cut(const struct trim *t, const struct histogram_bucket *b,
                               bool is_positive)
{
    double below;

    if (isinf(b->lower) && b->lower < 0)
        return part_of_lowest(t, b);
    if (isinf(b->upper) && b->upper > 0)
        return part_of_highest(t, b);
    below = count_below(t, b);
    if (t->keeps_lower)
        return (struct part){below, middle_between(b->lower, t->limit, is_positive, t->is_custom)};
    return (struct part){b->count - below,
                         middle_between(t->limit, b->upper, is_positive, t->is_custom)};
}

static void keep(struct trim *t, double *count, struct part p)
{
    t->count += p.count;
    t->sum += p.middle * p.count;
    if (*count != p.count) {
        *count = p.count;
        t->has_cut = true;
    }
}

/* Returns whether the side was populated. */
static bool trim_side(struct trim *t, const struct histogram *h, struct histogram_side *side)
{
    bool is_positive = side == &h->positive, is_populated = false;
    struct histogram_cursor c;

    histogram_cursor_init(&c, side);
    while (histogram_cursor_next(&c)) {
        double *count = &side->buckets[c.position];
        struct histogram_bucket b = histogram_bucket_at(h, is_positive, c.index, *count);

        if (*count == 0)
            continue;
        is_populated = true;
        if (t->keeps_lower ? b.upper <= t->limit : b.lower >= t->limit) {
            keep(
                t, count,
                (struct part){*count, middle_between(b.lower, b.upper, is_positive, t->is_custom)});
        } else if (t->keeps_lower ? b.lower < t->limit : b.upper > t->limit) {
            keep(t, count, part_of_cut(t, &b, is_positive));
        } else {
            *count = 0;
            t->has_cut = true;
        }
    }
    return is_populated;
}

static struct part part_of_zero(const struct trim *t, double lower, double upper, double count)
{
    if (t->limit <= lower || t->limit >= upper) {
        if (t->keeps_lower ? t->limit <= lower : t->limit > lower)
            return (struct part){0, 0};
        return (struct part){count, (lower + upper) / 2};
    }
    if (t->keeps_lower)
        return (struct part){count * ((t->limit - lower) / (upper - lower)),
                             (lower + t->limit) / 2};
    return (struct part){count * ((upper - t->limit) / (upper - lower)), (t->limit + upper) / 2};
}

enum err histogram_trim(struct histogram *h, double limit, bool keeps_lower, struct arena *arena)
{
    struct trim t = {
        .limit = limit, .keeps_lower = keeps_lower, .is_custom = histogram_is_custom(h)};
    bool has_positive = trim_side(&t, h, &h->positive);
    bool has_negative = trim_side(&t, h, &h->negative);

    if (h->zero_count > 0) {
        double lower = has_positive && !has_negative ? 0 : -h->zero_threshold;
        double upper = has_negative && !has_positive ? 0 : h->zero_threshold;
        struct part p = part_of_zero(&t, lower, upper, h->zero_count);

        keep(&t, &h->zero_count, p);
    }
    if (!t.has_cut)
        return ERR_OK;
    h->count = t.count;
    h->sum = t.sum;
    return histogram_compact(h, arena);
}
