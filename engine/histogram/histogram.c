/*
 * Native histograms as values: copies, equality, and the checks of what comes in. Buckets and their
 * bounds: histogram_buckets.c; changes of the layout: histogram_layout.c.
 *
 * Checks come in the order of Prometheus's, since tests and senders look at the texts.
 */
#include "engine/histogram.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/float_text.h"
#include "engine/write.h"

enum { INDEX_LIMIT = 1 << 30 }; /* of bucket indexes, either way */

bool histogram_is_stale(const struct histogram *h)
{
    return double_bits(h->sum) == STALE_NAN_BITS;
}

static enum err invalid(struct errinfo *ei, const char *where, const char *what)
{
    return errinfo_set(ei, ERR_INVALID, 0, "%s%s", where, what);
}

/* --- Layout --- */

static enum err check_spans(const struct histogram_side *side, bool is_custom, size_t custom_count,
                            const char *where, struct errinfo *ei)
{
    uint64_t buckets = 0;
    int64_t reach = 0;

    for (size_t i = 0; i < side->span_count; i++) {
        const struct histogram_span *span = &side->spans[i];

        if ((i > 0 || is_custom) && span->offset < 0)
            return errinfo_set(ei, ERR_INVALID, 0,
                               "%sspan number %zu with offset %" PRId32
                               ": histogram has a span whose offset is negative",
                               where, i + 1, span->offset);
        buckets += span->length;
        reach += (int64_t)span->offset + span->length;
    }
    if (buckets != side->bucket_count)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "%sspans need %" PRIu64
                           " buckets, have %zu buckets: histogram spans specify different number "
                           "of buckets than provided",
                           where, buckets, side->bucket_count);
    if (is_custom && reach > (int64_t)custom_count + 1)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "%sonly %zu custom bounds defined which is insufficient to cover total "
                           "span length of %" PRId64 ": histogram custom bounds are too few",
                           where, custom_count, reach);
    /* Prometheus lets indexes wrap around; no bound lies beyond some hundred thousand. */
    if (reach > INDEX_LIMIT || (side->span_count > 0 && side->spans[0].offset < -INDEX_LIMIT))
        return errinfo_set(ei, ERR_INVALID, 0, "%sspans reach beyond all buckets", where);
    return ERR_OK;
}

/* As Go prints it. */
enum { BOUND_TEXT_SIZE = 330 };
static void bound_format(double bound, char out[BOUND_TEXT_SIZE])
{
    if (isinf(bound))
        (void)snprintf(out, BOUND_TEXT_SIZE, "%cInf", bound > 0 ? '+' : '-');
    else
        (void)snprintf(out, BOUND_TEXT_SIZE, "%f", bound);
}

static enum err bounds_fall(double before, double bound, struct errinfo *ei)
{
    char a[BOUND_TEXT_SIZE], b[BOUND_TEXT_SIZE];

    bound_format(before, a);
    bound_format(bound, b);
    return errinfo_set(ei, ERR_INVALID, 0,
                       "custom buckets: previous bound is %s and current is %s: histogram custom "
                       "bounds must be in strictly increasing order",
                       a, b);
}

static enum err check_bounds(const double *bounds, size_t count, struct errinfo *ei)
{
    static const char where[] = "custom buckets: ";

    for (size_t i = 0; i < count; i++) {
        if (isnan(bounds[i]))
            return invalid(ei, where, "histogram custom bounds must not be NaN");
        if (i > 0 && bounds[i] <= bounds[i - 1])
            return bounds_fall(bounds[i - 1], bounds[i], ei);
    }
    if (count > 0 && isinf(bounds[count - 1]) && bounds[count - 1] > 0)
        return invalid(ei, where,
                       "last +Inf bound must not be explicitly defined: histogram custom bounds "
                       "must be finite");
    return ERR_OK;
}

static enum err check_custom(const struct histogram *h, struct errinfo *ei)
{
    enum err e = check_bounds(h->custom_values, h->custom_count, ei);

    if (e == ERR_OK)
        e = check_spans(&h->positive, true, h->custom_count, "custom buckets: ", ei);
    if (e != ERR_OK)
        return e;
    if (h->zero_count != 0)
        return invalid(ei, "", "custom buckets: must have zero count of 0");
    if (h->zero_threshold != 0)
        return invalid(ei, "", "custom buckets: must have zero threshold of 0");
    if (h->negative.span_count > 0)
        return invalid(ei, "", "custom buckets: must not have negative spans");
    if (h->negative.bucket_count > 0)
        return invalid(ei, "", "custom buckets: must not have negative buckets");
    return ERR_OK;
}

static enum err check_structure(const struct histogram *h, int32_t schema_max, struct errinfo *ei)
{
    enum err e;

    if (h->start_ms > HISTOGRAM_START_MAX_MS || h->start_ms < -HISTOGRAM_START_MAX_MS)
        return invalid(ei, "", "start timestamp out of range");
    if (histogram_is_custom(h))
        return check_custom(h, ei);
    if (h->schema < HISTOGRAM_SCHEMA_MIN || h->schema > schema_max)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "histogram has an invalid schema, which must be between %d and %d for "
                           "exponential buckets, or %d for custom buckets, got schema %" PRId32,
                           HISTOGRAM_SCHEMA_MIN, HISTOGRAM_SCHEMA_MAX, HISTOGRAM_SCHEMA_CUSTOM,
                           h->schema);
    e = check_spans(&h->positive, false, 0, "positive side: ", ei);
    if (e == ERR_OK)
        e = check_spans(&h->negative, false, 0, "negative side: ", ei);
    if (e == ERR_OK && h->custom_count > 0)
        return invalid(ei, "", "histogram with exponential schema must not have custom bounds");
    return e;
}

/* Nothing but the sum. */
static enum err check_float(const struct histogram *h, struct errinfo *ei)
{
    struct histogram all_but = *h;

    if (h->count != 0 || h->zero_count != 0 || h->zero_threshold != 0 ||
        h->positive.span_count + h->negative.span_count > 0)
        return invalid(ei, "", "a float with counts of a histogram");
    all_but.schema = 0;
    return check_structure(&all_but, HISTOGRAM_SCHEMA_MAX, ei);
}

enum err histogram_check_layout(const struct histogram *h, struct errinfo *ei)
{
    if (histogram_is_float(h))
        return check_float(h, ei);
    return check_structure(h, HISTOGRAM_SCHEMA_MAX, ei);
}

/* --- Counts --- */

static enum err negative_bucket(struct errinfo *ei, const char *where, double count)
{
    char text[FLOAT_TEXT_SIZE];

    (void)float_format_g(count, text);
    return errinfo_set(ei, ERR_INVALID, 0,
                       "%s has observation count of %s: histogram has a bucket whose observation "
                       "count is negative",
                       where, text);
}

static enum err check_counts(const struct histogram_side *side, const char *name,
                             struct errinfo *ei)
{
    char where[64];

    for (size_t i = 0; i < side->bucket_count; i++) {
        if (side->buckets[i] < 0) {
            (void)snprintf(where, sizeof where, "%s side: bucket number %zu", name, i + 1);
            return negative_bucket(ei, where, side->buckets[i]);
        }
    }
    return ERR_OK;
}

/* Reduces what is finer than we store; the structure has been checked. */
static enum err reduce_reserved(struct histogram *h, struct arena *arena, struct errinfo *ei)
{
    if (h->schema <= HISTOGRAM_SCHEMA_MAX)
        return ERR_OK;
    return histogram_reduce(h, HISTOGRAM_SCHEMA_MAX, arena) == ERR_OK ? ERR_OK
                                                                      : arena_error(arena, ei);
}

static enum err check_incoming(const struct histogram *h, struct errinfo *ei)
{
    size_t numbers = h->positive.bucket_count + h->negative.bucket_count + h->positive.span_count +
                     h->negative.span_count + h->custom_count;
    enum err e = check_structure(h, HISTOGRAM_SCHEMA_MAX_RESERVED, ei);

    return e != ERR_OK || numbers <= HISTOGRAM_NUMBERS_MAX
               ? e
               : errinfo_set(ei, ERR_INVALID, 0,
                             "histogram with %zu buckets, spans and custom bounds, more than %d",
                             numbers, HISTOGRAM_NUMBERS_MAX);
}

enum err histogram_accept(struct histogram *h, struct arena *arena, struct errinfo *ei)
{
    enum err e = check_incoming(h, ei);

    if (e == ERR_OK)
        e = check_counts(&h->negative, "negative", ei);
    if (e == ERR_OK && h->zero_count < 0)
        e = negative_bucket(ei, "zero bucket", h->zero_count);
    if (e == ERR_OK && h->count < 0) {
        char text[FLOAT_TEXT_SIZE];

        (void)float_format_g(h->count, text);
        e = errinfo_set(ei, ERR_INVALID, 0,
                        "observation count is %s: histogram's observation count is negative", text);
    }
    if (e == ERR_OK)
        e = check_counts(&h->positive, "positive", ei);
    return e == ERR_OK ? reduce_reserved(h, arena, ei) : e;
}

/* Turns differences into counts and adds them to *total; sums wrap as in Prometheus, where a
 * negative count is an error and too large a total does not match. */
static enum err side_from_deltas(struct histogram_side *side, const int64_t *deltas, size_t count,
                                 const char *name, struct arena *arena, uint64_t *total,
                                 struct errinfo *ei)
{
    uint64_t bucket = 0;
    char where[64];

    side->bucket_count = count;
    side->buckets = count == 0 ? NULL : ARENA_ARRAY(arena, count, double);
    if (count > 0 && side->buckets == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < count; i++) {
        bucket += (uint64_t)deltas[i];
        if ((int64_t)bucket < 0) {
            (void)snprintf(where, sizeof where, "%s side: bucket number %zu", name, i + 1);
            return negative_bucket(ei, where, (double)(int64_t)bucket);
        }
        side->buckets[i] = (double)bucket;
        *total += bucket;
    }
    return ERR_OK;
}

enum err histogram_from_integers(struct histogram *h, const struct histogram_integers *in,
                                 struct arena *arena, struct errinfo *ei)
{
    uint64_t total = in->zero_count;
    enum err e;

    h->count = (double)in->count;
    h->zero_count = (double)in->zero_count;
    h->positive.bucket_count = in->positive_count;
    h->negative.bucket_count = in->negative_count;
    e = check_incoming(h, ei);
    if (e == ERR_OK)
        e = side_from_deltas(&h->negative, in->negative_deltas, in->negative_count, "negative",
                             arena, &total, ei);
    if (e == ERR_OK)
        e = side_from_deltas(&h->positive, in->positive_deltas, in->positive_count, "positive",
                             arena, &total, ei);
    if (e != ERR_OK)
        return e;
    if (isnan(h->sum) ? total > in->count : total != in->count)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "%" PRIu64 " observations found in buckets, but the Count field is "
                           "%" PRIu64 ": histogram's observation count should %s",
                           total, in->count,
                           isnan(h->sum)
                               ? "be at least the number of observations found in the buckets"
                               : "equal the number of observations found in the buckets (in "
                                 "absence of NaN)");
    return reduce_reserved(h, arena, ei);
}

/* --- Copies and equality --- */

static void *copy_array(struct arena *arena, const void *data, size_t count, size_t size)
{
    void *copy = arena_alloc_array(arena, count, size);

    if (copy != NULL && count > 0)
        memcpy(copy, data, count * size);
    return copy;
}

static bool side_copy(struct histogram_side *side, struct arena *arena, bool with_spans)
{
    side->buckets = copy_array(arena, side->buckets, side->bucket_count, sizeof(double));
    if (with_spans)
        side->spans = copy_array(arena, side->spans, side->span_count, sizeof *side->spans);
    return side->buckets != NULL && (!with_spans || side->spans != NULL);
}

static enum err copy(const struct histogram *h, struct arena *arena, bool is_deep,
                     struct histogram *out)
{
    struct histogram c = *h;

    if (!side_copy(&c.positive, arena, is_deep) || !side_copy(&c.negative, arena, is_deep))
        return arena_error(arena, NULL);
    if (is_deep) {
        c.custom_values = copy_array(arena, h->custom_values, h->custom_count, sizeof(double));
        if (c.custom_values == NULL)
            return arena_error(arena, NULL);
    }
    *out = c;
    return ERR_OK;
}

enum err histogram_copy(const struct histogram *h, struct arena *arena, struct histogram *out)
{
    return copy(h, arena, false, out);
}

enum err histogram_copy_deep(const struct histogram *h, struct arena *arena, struct histogram *out)
{
    return copy(h, arena, true, out);
}

/* The next span with buckets, the offsets of empty ones before it added to its own. */
static bool span_next(const struct histogram_side *side, size_t *at, struct histogram_span *out)
{
    uint32_t offset = 0; /* wraps rather than overflows */

    while (*at < side->span_count) {
        const struct histogram_span *span = &side->spans[(*at)++];

        offset += (uint32_t)span->offset;
        if (span->length > 0) {
            *out = (struct histogram_span){(int32_t)offset, span->length};
            return true;
        }
    }
    return false;
}

bool histogram_spans_equal(const struct histogram_side *a, const struct histogram_side *b)
{
    struct histogram_span x = {0, 0}, y = {0, 0};
    size_t i = 0, k = 0;

    if (a->spans == b->spans && a->span_count == b->span_count)
        return true;
    for (;;) {
        bool more = span_next(a, &i, &x);

        if (more != span_next(b, &k, &y))
            return false;
        if (!more)
            return true;
        if (x.offset != y.offset || x.length != y.length)
            return false;
    }
}

bool histogram_bounds_equal(const struct histogram *a, const struct histogram *b)
{
    if (a->custom_count != b->custom_count)
        return false;
    if (a->custom_values == b->custom_values)
        return true;
    for (size_t i = 0; i < a->custom_count; i++) {
        if (a->custom_values[i] != b->custom_values[i])
            return false;
    }
    return true;
}

static bool same_array(const void *a, size_t a_count, const void *b, size_t b_count, size_t size)
{
    return a_count == b_count && (a == b || a_count == 0 || memcmp(a, b, a_count * size) == 0);
}

static bool same_spans(const struct histogram_side *a, const struct histogram_side *b)
{
    return same_array(a->spans, a->span_count, b->spans, b->span_count, sizeof *a->spans);
}

/* Every populated bucket of `before` is there, and has no less. */
static bool side_continues(const struct histogram_side *side, const struct histogram_side *before)
{
    struct histogram_cursor a, b;
    bool has_a;

    histogram_cursor_init(&a, side);
    histogram_cursor_init(&b, before);
    has_a = histogram_cursor_next(&a);
    while (histogram_cursor_next(&b)) {
        while (has_a && a.index < b.index)
            has_a = histogram_cursor_next(&a);
        if (has_a && a.index == b.index ? side->buckets[a.position] < before->buckets[b.position]
                                        : before->buckets[b.position] != 0)
            return false;
    }
    return true;
}

bool histogram_continues(const struct histogram *h, const struct histogram *before)
{
    return h->schema == before->schema && h->zero_threshold == before->zero_threshold &&
           !(h->count < before->count) && !(h->zero_count < before->zero_count) &&
           (!histogram_is_custom(h) || histogram_bounds_equal(h, before)) &&
           side_continues(&h->positive, &before->positive) &&
           side_continues(&h->negative, &before->negative);
}

enum histogram_hint histogram_hint_behind(const struct histogram *h, const struct histogram *before)
{
    if (h->hint == HISTOGRAM_HINT_GAUGE)
        return HISTOGRAM_HINT_GAUGE;
    if (before == NULL || h->hint == HISTOGRAM_HINT_RESET || before->hint == HISTOGRAM_HINT_GAUGE ||
        histogram_is_stale(before) || histogram_is_float(h) || !histogram_continues(h, before))
        return HISTOGRAM_HINT_UNKNOWN;
    return HISTOGRAM_HINT_NOT_RESET;
}

bool histogram_layout_same(const struct histogram *a, const struct histogram *b)
{
    return a->schema == b->schema &&
           double_bits(a->zero_threshold) == double_bits(b->zero_threshold) &&
           same_spans(&a->positive, &b->positive) && same_spans(&a->negative, &b->negative) &&
           same_array(a->custom_values, a->custom_count, b->custom_values, b->custom_count,
                      sizeof *a->custom_values);
}

static bool side_equal(const struct histogram_side *a, const struct histogram_side *b)
{
    return a->bucket_count == b->bucket_count && histogram_spans_equal(a, b) &&
           (a->bucket_count == 0 ||
            memcmp(a->buckets, b->buckets, a->bucket_count * sizeof(double)) == 0);
}

bool histogram_equal(const struct histogram *a, const struct histogram *b)
{
    return a->schema == b->schema && double_bits(a->count) == double_bits(b->count) &&
           double_bits(a->sum) == double_bits(b->sum) &&
           (!histogram_is_custom(a) || histogram_bounds_equal(a, b)) &&
           a->zero_threshold == b->zero_threshold &&
           double_bits(a->zero_count) == double_bits(b->zero_count) &&
           side_equal(&a->negative, &b->negative) && side_equal(&a->positive, &b->positive);
}
