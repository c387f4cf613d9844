#include "tests/engine/histogram_kit.h"

#include <string.h>

#include "base/bytes.h"
#include "engine/write.h"
#include "tests/engine/codec_columns.h"

enum { SPANS_MAX = 4, LENGTH_MAX = 5 };

static void *room(struct arena *arena, size_t count, size_t size)
{
    void *p = arena_calloc(arena, count, size);

    CHECK(p != NULL);
    return p;
}

/* Spans for at most `limit` indexes (custom buckets), or any. */
static void any_side(struct test_random *r, struct arena *arena, bool is_custom, size_t limit,
                     struct histogram_side *side)
{
    struct histogram_span *spans = room(arena, SPANS_MAX, sizeof *spans);
    size_t wanted = test_random_below(r, SPANS_MAX + 1), reach = 0;

    *side = (struct histogram_side){.spans = spans};
    while (side->span_count < wanted) {
        bool is_first = side->span_count == 0;
        int32_t offset = (int32_t)test_random_below(r, 4);
        uint32_t length = (uint32_t)test_random_below(r, LENGTH_MAX);

        if (!is_custom && is_first)
            offset = (int32_t)test_random_below(r, 60) - 30;
        if (is_custom && reach + (size_t)offset + length > limit)
            break;
        reach += (size_t)offset + length;
        spans[side->span_count++] = (struct histogram_span){offset, length};
        side->bucket_count += length;
    }
    side->buckets = room(arena, side->bucket_count, sizeof(double));
}

static void any_layout(struct test_random *r, struct arena *arena, struct histogram *h)
{
    static const double bounds[] = {-5, -1, 0, 0.005, 0.01, 0.025, 0.05, 0.1, 1, 10};
    static const double thresholds[] = {0, 0x1p-128, 0.001, 1, 1.5};
    bool is_custom = test_random_below(r, 4) == 0;

    *h = (struct histogram){.schema = (int32_t)test_random_below(r, 13) - 4};
    h->hint = (enum histogram_hint)test_random_below(r, 4);
    if (is_custom) {
        h->schema = HISTOGRAM_SCHEMA_CUSTOM;
        h->custom_values = bounds;
        h->custom_count = test_random_below(r, 11);
    } else {
        h->zero_threshold = thresholds[test_random_below(r, 5)];
        any_side(r, arena, false, 0, &h->negative);
    }
    any_side(r, arena, is_custom, h->custom_count + 1, &h->positive);
}

struct histogram histogram_any(struct test_random *r, struct arena *arena)
{
    struct histogram h;

    any_layout(r, arena, &h);
    for (size_t i = 0; i < h.positive.bucket_count; i++)
        h.count += h.positive.buckets[i] = (double)test_random_below(r, 4);
    for (size_t i = 0; i < h.negative.bucket_count; i++)
        h.count += h.negative.buckets[i] = (double)test_random_below(r, 4);
    if (!histogram_is_custom(&h))
        h.count += h.zero_count = (double)test_random_below(r, 3);
    h.sum = (double)test_random_below(r, 100) - 50;
    return h;
}

/* A histogram that grows; at times a bucket more. */
static void grow(struct test_random *r, struct arena *arena, const struct histogram *before,
                 bool is_whole, struct histogram *out)
{
    CHECK(histogram_copy(before, arena, out) == ERR_OK);
    for (size_t i = 0; i < out->positive.bucket_count; i++) {
        double more = (double)test_random_below(r, 20 * (i % 7));

        more = is_whole ? more : more * test_random_unit(r);
        out->positive.buckets[i] += more;
        out->count += more;
        out->sum += more * 0.7;
    }
}

static void widen(struct arena *arena, struct histogram *h)
{
    struct histogram_span *span = room(arena, 1, sizeof *span);
    double *buckets = room(arena, h->positive.bucket_count + 1, sizeof *buckets);

    if (h->positive.bucket_count > 0)
        memcpy(buckets, h->positive.buckets, h->positive.bucket_count * sizeof *buckets);
    *span = (struct histogram_span){-4, (uint32_t)h->positive.bucket_count + 1};
    h->positive = (struct histogram_side){span, 1, buckets, span->length};
}

static struct histogram first_of(struct arena *arena, bool is_custom)
{
    static const double bounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
    struct histogram h = {.schema = 3, .zero_threshold = 0x1p-128};

    if (is_custom) {
        struct histogram_span *span = room(arena, 1, sizeof *span);

        *span = (struct histogram_span){0, 12};
        h = (struct histogram){.schema = HISTOGRAM_SCHEMA_CUSTOM,
                               .custom_values = bounds,
                               .custom_count = 11,
                               .positive = {span, 1, room(arena, 12, sizeof(double)), 12}};
    } else {
        for (int i = 0; i < 12; i++)
            widen(arena, &h);
    }
    return h;
}

static void any_bits(struct test_random *r, struct histogram *h)
{
    h->count = column_hostile(r);
    h->sum = column_hostile(r);
    h->zero_count = histogram_is_custom(h) ? 0 : column_hostile(r);
    for (size_t i = 0; i < h->positive.bucket_count; i++)
        h->positive.buckets[i] = column_hostile(r);
    for (size_t i = 0; i < h->negative.bucket_count; i++)
        h->negative.buckets[i] = column_hostile(r);
}

static int64_t any_start(struct test_random *r)
{
    static const int64_t edges[] = {0, 1, -1, HISTOGRAM_START_MAX_MS, -HISTOGRAM_START_MAX_MS};

    if (test_random_below(r, 4) == 0)
        return edges[test_random_below(r, sizeof edges / sizeof edges[0])];
    return 1700000000000 + (int64_t)test_random_below(r, 3) * 15000;
}

void histograms_fill(struct test_random *r, enum histogram_model model, struct arena *arena,
                     struct histogram *h, size_t n)
{
    struct histogram last = first_of(arena, model == HISTOGRAMS_CUSTOM);

    for (size_t i = 0; i < n; i++) {
        if (model == HISTOGRAMS_HOSTILE) {
            if (i == 0 || test_random_below(r, 3) == 0)
                any_layout(r, arena, &last);
            CHECK(histogram_copy(&last, arena, &h[i]) == ERR_OK);
            h[i].hint = (enum histogram_hint)test_random_below(r, 4);
            any_bits(r, &h[i]);
            continue;
        }
        if (model != HISTOGRAMS_CUSTOM && test_random_below(r, 40) == 0)
            widen(arena, &last);
        if (model == HISTOGRAMS_STALE && test_random_below(r, 10) == 0) {
            h[i] = (struct histogram){.sum = double_from_bits(STALE_NAN_BITS)};
            continue;
        }
        if (model == HISTOGRAMS_SINCE && test_random_below(r, 3) > 0) {
            h[i] = (struct histogram){.schema = HISTOGRAM_SCHEMA_FLOAT,
                                      .sum = column_hostile(r),
                                      .start_ms = any_start(r)};
            continue;
        }
        if (model == HISTOGRAMS_RESTS && i > 0)
            CHECK(histogram_copy(&last, arena, &h[i]) == ERR_OK);
        else
            grow(r, arena, &last, model != HISTOGRAMS_FRACTIONS, &h[i]);
        last = h[i];
        if (model == HISTOGRAMS_SINCE)
            h[i].start_ms = any_start(r);
    }
}

void histograms_fill_any(struct test_random *r, struct arena *arena, struct histogram *h, size_t n)
{
    histograms_fill(r, (enum histogram_model)test_random_below(r, HISTOGRAMS_MODEL_COUNT), arena, h,
                    n);
    for (size_t i = 0; i < n; i++)
        h[i].hint = (enum histogram_hint)test_random_below(r, 4);
}

bool histogram_is_answer(const struct histogram *h, const struct histogram *got, bool follows)
{
    struct histogram less = *h;

    less.hint = histogram_hint_at_border(h->hint);
    return histogram_same_bits(&less, got) || (follows && histogram_same_bits(h, got));
}

static bool same_side(const struct histogram_side *a, const struct histogram_side *b)
{
    return a->span_count == b->span_count && a->bucket_count == b->bucket_count &&
           (a->span_count == 0 ||
            memcmp(a->spans, b->spans, a->span_count * sizeof *a->spans) == 0) &&
           (a->bucket_count == 0 ||
            memcmp(a->buckets, b->buckets, a->bucket_count * sizeof *a->buckets) == 0);
}

bool histogram_same_bits(const struct histogram *a, const struct histogram *b)
{
    return a->schema == b->schema && a->hint == b->hint && a->start_ms == b->start_ms &&
           double_bits(a->zero_threshold) == double_bits(b->zero_threshold) &&
           double_bits(a->zero_count) == double_bits(b->zero_count) &&
           double_bits(a->count) == double_bits(b->count) &&
           double_bits(a->sum) == double_bits(b->sum) && a->custom_count == b->custom_count &&
           (a->custom_count == 0 ||
            memcmp(a->custom_values, b->custom_values, a->custom_count * sizeof(double)) == 0) &&
           same_side(&a->positive, &b->positive) && same_side(&a->negative, &b->negative);
}
