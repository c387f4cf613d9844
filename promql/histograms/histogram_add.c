/*
 * Sums and differences of two native histograms, plain or compensated.
 *
 * Buckets of both sides are merged as streams at the coarser schema. Most additions meet a layout
 * that they have already: then the sum is made in place. Otherwise the side gets new arrays.
 */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "promql/eval/eval_internal.h"
#include "promql/histograms/histogram_internal.h"

/* How the buckets of a second histogram are added to those of a first one. */
struct addition {
    int32_t from, other_from, to; /* schemas */
    double threshold;             /* what lies below is in the zero count already */
    bool is_negative, is_compensated;
    struct arena *arena;
};

static void other_stream(const struct addition *a, const struct histogram_side *other,
                         struct bucket_stream *s)
{
    if (a->is_compensated)
        bucket_stream_init_compensated(s, other, NULL, a->other_from, a->to);
    else
        bucket_stream_init(s, other, a->other_from, a->to);
}

static void add_bucket(const struct addition *a, const struct bucket_stream *s, double *count,
                       double *low)
{
    if (!a->is_compensated) {
        *count += a->is_negative ? -s->count : s->count;
        return;
    }
    kahan_add(s->count, count, low);
    if (s->low != 0)
        kahan_add(s->low, count, low);
}

/* Whether every bucket to be added has its like; if so and `adds`, adds them. */
static bool add_in_place(const struct addition *a, struct histogram_side *side, double *lows,
                         const struct histogram_side *other, bool adds)
{
    struct bucket_stream s;
    struct histogram_cursor c;
    bool more;

    if (a->from != a->to)
        return false;
    other_stream(a, other, &s);
    histogram_cursor_init(&c, side);
    for (more = bucket_stream_begin(&s, a->threshold); more; more = bucket_stream_next(&s)) {
        do {
            if (!histogram_cursor_next(&c))
                return false;
        } while (c.index < s.index);
        if (c.index != s.index)
            return false;
        if (adds)
            add_bucket(a, &s, &side->buckets[c.position],
                       a->is_compensated ? &lows[c.position] : NULL);
    }
    return true;
}

/* A side under construction. */
struct side_builder {
    struct histogram_span_builder spans;
    double *buckets, *lows; /* lows NULL: not compensated */
    size_t count;
};

static double *builder_add(struct side_builder *b, int32_t index, double count, double low)
{
    histogram_span_builder_add(&b->spans, index);
    b->buckets[b->count] = count;
    if (b->lows != NULL)
        b->lows[b->count] = low;
    return &b->buckets[b->count++];
}

static void merge_streams(const struct addition *a, struct bucket_stream *own,
                          struct bucket_stream *other, struct side_builder *b)
{
    bool has_own = bucket_stream_next(own), has_other = bucket_stream_begin(other, a->threshold);

    while (has_own || has_other) {
        if (has_own && (!has_other || own->index <= other->index)) {
            double *count = builder_add(b, own->index, own->count, own->low);

            if (has_other && own->index == other->index) {
                add_bucket(a, other, count, b->lows == NULL ? NULL : &b->lows[b->count - 1]);
                has_other = bucket_stream_next(other);
            }
            has_own = bucket_stream_next(own);
        } else {
            (void)builder_add(b, other->index, a->is_negative ? -other->count : other->count,
                              other->low);
            has_other = bucket_stream_next(other);
        }
    }
}

static enum err add_side(const struct addition *a, struct histogram_side *side, double **lows,
                         const struct histogram_side *other)
{
    size_t room = side->bucket_count + other->bucket_count;
    struct bucket_stream own_stream, added;
    struct side_builder b = {0};

    if (add_in_place(a, side, lows == NULL ? NULL : *lows, other, false)) {
        (void)add_in_place(a, side, lows == NULL ? NULL : *lows, other, true);
        return ERR_OK;
    }
    b.spans.spans =
        ARENA_ARRAY(a->arena, side->span_count + other->span_count, struct histogram_span);
    b.buckets = ARENA_ARRAY(a->arena, room, double);
    b.lows = a->is_compensated ? ARENA_ARRAY(a->arena, room, double) : NULL;
    if (b.spans.spans == NULL || b.buckets == NULL || (a->is_compensated && b.lows == NULL))
        return arena_error(a->arena, NULL);
    if (a->is_compensated)
        bucket_stream_init_compensated(&own_stream, side, *lows, a->from, a->to);
    else
        bucket_stream_init(&own_stream, side, a->from, a->to);
    other_stream(a, other, &added);
    merge_streams(a, &own_stream, &added, &b);
    *side = (struct histogram_side){b.spans.spans, b.spans.count, b.buckets, b.count};
    if (lows != NULL)
        *lows = b.lows;
    return ERR_OK;
}

/* --- Custom buckets with different bounds --- */

/* The bounds that both have; NULL if the arena refuses. */
static double *bounds_intersect(const struct histogram *a, const struct histogram *b,
                                struct arena *arena, size_t *out_count)
{
    size_t smaller = a->custom_count < b->custom_count ? a->custom_count : b->custom_count;
    double *common = ARENA_ARRAY(arena, smaller, double);
    size_t i = 0, k = 0, n = 0;

    while (common != NULL && i < a->custom_count && k < b->custom_count) {
        double x = a->custom_values[i], y = b->custom_values[k];

        if (x == y)
            common[n++] = x;
        i += x <= y;
        k += y <= x;
    }
    *out_count = n;
    return common;
}

/* Adds the buckets of `h` to those between the common bounds, each to the one that holds it. */
static void custom_spread(const struct histogram *h, const double *lows, bool is_negative,
                          const double *common, size_t common_count, double *counts, double *out)
{
    struct histogram_cursor c;
    size_t at = 0;

    histogram_cursor_init(&c, &h->positive);
    while (histogram_cursor_next(&c)) {
        double count = h->positive.buckets[c.position];

        if (c.index < 0 || (size_t)c.index >= h->custom_count)
            at = common_count; /* the last one, up to +Inf */
        while (at < common_count && common[at] < h->custom_values[c.index])
            at++;
        kahan_add(is_negative ? -count : count, &counts[at], &out[at]);
        if (lows != NULL)
            kahan_add(lows[c.position], &counts[at], &out[at]);
    }
}

/* Both histograms between the bounds that they have in common, added up; always compensated
 * within. */
static enum err add_custom(struct histogram *h, const struct histogram *other, bool is_negative,
                           struct histogram_compensation *lows, struct arena *arena)
{
    size_t bound_count;
    double *common = bounds_intersect(h, other, arena, &bound_count);
    struct side_builder b = {
        .spans = {.spans = ARENA_ARRAY(arena, bound_count + 1, struct histogram_span)},
        .buckets = arena_calloc(arena, bound_count + 1, sizeof(double)),
        .lows = arena_calloc(arena, bound_count + 1, sizeof(double)),
    };

    if (common == NULL || b.spans.spans == NULL || b.buckets == NULL || b.lows == NULL)
        return arena_error(arena, NULL);
    custom_spread(h, lows == NULL ? NULL : lows->positive, false, common, bound_count, b.buckets,
                  b.lows);
    custom_spread(other, NULL, is_negative, common, bound_count, b.buckets, b.lows);
    for (size_t i = 0; i <= bound_count; i++) {
        if (b.buckets[i] != 0 || b.lows[i] != 0)
            (void)builder_add(&b, (int32_t)i, b.buckets[i], b.lows[i]);
    }
    h->positive = (struct histogram_side){b.spans.spans, b.spans.count, b.buckets, b.count};
    h->custom_values = common;
    h->custom_count = bound_count;
    if (lows != NULL)
        lows->positive = b.lows;
    return ERR_OK;
}

/* --- Whole histograms --- */

static void hints_meet(struct histogram *h, enum histogram_hint other,
                       struct histogram_notes *notes)
{
    if (h->hint == other || h->hint == HISTOGRAM_HINT_GAUGE)
        return;
    if (other == HISTOGRAM_HINT_GAUGE) {
        h->hint = HISTOGRAM_HINT_GAUGE;
        return;
    }
    if (h->hint != HISTOGRAM_HINT_UNKNOWN && other != HISTOGRAM_HINT_UNKNOWN)
        notes->hints_collide = true;
    h->hint = HISTOGRAM_HINT_UNKNOWN;
}

/* Buckets of both signs; zero buckets, counts and hints are done. */
static enum err add_buckets(struct histogram *h, const struct histogram *other, bool is_negative,
                            struct histogram_compensation *lows, struct arena *arena,
                            struct histogram_notes *notes)
{
    struct addition a = {.from = h->schema,
                         .other_from = other->schema,
                         .to = h->schema < other->schema ? h->schema : other->schema,
                         .threshold = h->zero_threshold,
                         .is_negative = is_negative,
                         .is_compensated = lows != NULL,
                         .arena = arena};
    enum err e;

    if (histogram_is_custom(h) && !histogram_bounds_equal(h, other)) {
        notes->bounds_reconciled = true;
        return add_custom(h, other, is_negative, lows, arena);
    }
    e = add_side(&a, &h->positive, lows == NULL ? NULL : &lows->positive, &other->positive);
    if (e == ERR_OK && !histogram_is_custom(h))
        e = add_side(&a, &h->negative, lows == NULL ? NULL : &lows->negative, &other->negative);
    h->schema = a.to;
    return e;
}

static enum err add(struct histogram *h, const struct histogram *other, bool is_negative,
                    struct arena *arena, struct histogram_notes *notes)
{
    double sign = is_negative ? -1 : 1, zero_count, low;
    enum err e = ERR_OK;

    if (histogram_is_custom(h) != histogram_is_custom(other))
        return ERR_INVALID;
    hints_meet(h, other->hint, notes);
    if (!histogram_is_custom(h)) {
        e = histogram_zero_reconcile(h, NULL, other, arena, &zero_count, &low);
        h->zero_count += sign * zero_count;
    }
    h->count += sign * other->count;
    h->sum += sign * other->sum;
    return e == ERR_OK ? add_buckets(h, other, is_negative, NULL, arena, notes) : e;
}

enum err histogram_add(struct histogram *h, const struct histogram *other, struct arena *arena,
                       struct histogram_notes *notes)
{
    return add(h, other, false, arena, notes);
}

enum err histogram_subtract(struct histogram *h, const struct histogram *other, struct arena *arena,
                            struct histogram_notes *notes)
{
    return add(h, other, true, arena, notes);
}

enum err histogram_add_compensated(struct histogram *h, const struct histogram *other,
                                   struct histogram_compensation *lows, struct arena *arena,
                                   struct histogram_notes *notes)
{
    double zero_count, low;
    enum err e = ERR_OK;

    if (histogram_is_custom(h) != histogram_is_custom(other))
        return ERR_INVALID;
    hints_meet(h, other->hint, notes);
    if (!histogram_is_custom(h)) {
        e = histogram_zero_reconcile(h, lows, other, arena, &zero_count, &low);
        kahan_add(zero_count, &h->zero_count, &lows->zero_count);
        kahan_add(low, &h->zero_count, &lows->zero_count);
    }
    kahan_add(other->count, &h->count, &lows->count);
    kahan_add(other->sum, &h->sum, &lows->sum);
    return e == ERR_OK ? add_buckets(h, other, false, lows, arena, notes) : e;
}

static void side_scale(struct histogram_side *side, double factor, bool divides)
{
    for (size_t i = 0; i < side->bucket_count; i++)
        side->buckets[i] = divides ? side->buckets[i] / factor : side->buckets[i] * factor;
}

void histogram_multiply(struct histogram *h, double factor)
{
    h->zero_count *= factor;
    h->count *= factor;
    h->sum *= factor;
    side_scale(&h->positive, factor, false);
    side_scale(&h->negative, factor, false);
    if (factor < 0)
        h->hint = HISTOGRAM_HINT_GAUGE;
}

void histogram_divide(struct histogram *h, double divisor)
{
    h->zero_count /= divisor;
    h->count /= divisor;
    h->sum /= divisor;
    if (divisor == 0) {
        h->positive = h->negative = (struct histogram_side){0};
        return;
    }
    side_scale(&h->positive, divisor, true);
    side_scale(&h->negative, divisor, true);
    if (divisor < 0)
        h->hint = HISTOGRAM_HINT_GAUGE;
}
