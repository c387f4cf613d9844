/*
 * The native histogram: one sample's value with exponential buckets (schemas -4 to 8, a power of
 * two is divided into 2^schema buckets) or custom ones (schema -53, NHCB). All counts are doubles,
 * as in Prometheus's float histograms; the integers of the wire are converted.
 *
 * Spans and custom values are immutable once they stand in a histogram, and many histograms may
 * share them; whoever changes a layout makes new spans. Bucket counts belong to one histogram and
 * may be changed in place. All memory lives in arenas: a histogram is copied by value where its
 * arena outlives the copy and neither changes counts, else with histogram_copy().
 *
 * Pure functions, no state: any thread may call them, with one arena each.
 */
#ifndef RIMSTONE_ENGINE_HISTOGRAM_H
#define RIMSTONE_ENGINE_HISTOGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum {
    HISTOGRAM_SCHEMA_MIN = -4,
    HISTOGRAM_SCHEMA_MAX = 8,
    HISTOGRAM_SCHEMA_MAX_RESERVED = 52, /* 9 to here are reduced to 8 when they come in */
    HISTOGRAM_SCHEMA_CUSTOM = -53,
    /* Only within the store: no histogram but a float, its value the sum, that has a start
     * timestamp, for which chunks of floats have no room. */
    HISTOGRAM_SCHEMA_FLOAT = -54,
    /* Buckets, spans and custom values of one from outside, together: far beyond what has a use,
     * and few enough for a chunk of one sample in a file. */
    HISTOGRAM_NUMBERS_MAX = 1 << 17,
};
#define HISTOGRAM_START_MAX_MS (INT64_C(1) << 53) /* of either sign */

/* Numbers as on the wire and in Prometheus's chunks. */
enum histogram_hint {
    HISTOGRAM_HINT_UNKNOWN = 0,
    HISTOGRAM_HINT_RESET = 1,
    HISTOGRAM_HINT_NOT_RESET = 2,
    HISTOGRAM_HINT_GAUGE = 3,
};

/* `length` buckets with consecutive indexes. The first span's offset is the index of its first
 * bucket; a later one's, never negative, is its distance from the end of the span before. A length
 * may be 0. */
struct histogram_span {
    int32_t offset;
    uint32_t length;
};

/* Buckets of one sign, by rising distance from zero. */
struct histogram_side {
    const struct histogram_span *spans; /* shared */
    size_t span_count;
    double *buckets; /* owned; absolute counts, bucket_count = sum of the spans' lengths */
    size_t bucket_count;
};

struct histogram {
    int32_t schema;
    enum histogram_hint hint;
    double zero_threshold, zero_count; /* both 0 with custom buckets */
    double count;
    double sum; /* the stale NaN makes the sample a staleness marker */
    struct histogram_side positive, negative;
    int64_t start_ms;            /* since when the sample has counted; 0: not known */
    const double *custom_values; /* shared; upper bounds, strictly increasing, without +Inf */
    size_t custom_count;
};

static inline bool histogram_is_custom(const struct histogram *h)
{
    return h->schema == HISTOGRAM_SCHEMA_CUSTOM;
}
static inline bool histogram_is_float(const struct histogram *h)
{
    return h->schema == HISTOGRAM_SCHEMA_FLOAT;
}
bool histogram_is_stale(const struct histogram *h);

/* --- Coming in --- */

/*
 * Checks a float histogram from outside as Prometheus's receiver does and reduces schemas 9 to 52
 * to 8 (in `arena`). ERR_INVALID with Prometheus's text; *h is then as before. Counts are not
 * compared with the sum of the buckets: with fractions that may differ by rounding. One with more
 * than HISTOGRAM_NUMBERS_MAX numbers is refused too.
 */
MUST_USE enum err histogram_accept(struct histogram *h, struct arena *arena, struct errinfo *ei);

/* Counts of an integer histogram as they are on the wire: each bucket as the difference from the
 * bucket before it, the first one from 0. Borrowed. */
struct histogram_integers {
    uint64_t count, zero_count;
    const int64_t *positive_deltas, *negative_deltas;
    size_t positive_count, negative_count;
};

/*
 * Fills the counts of *h, whose other members (schema, sum, spans, custom values, ...) the caller
 * has set, and checks and reduces it like histogram_accept(). Here the count must be the sum of all
 * buckets, or at least that if the sum is NaN. Buckets are summed up as integers and rounded once,
 * above 2^53. ERR_INVALID; *h is then undefined.
 */
MUST_USE enum err histogram_from_integers(struct histogram *h, const struct histogram_integers *in,
                                          struct arena *arena, struct errinfo *ei);

/* Whether the structure holds together: a known schema, spans that fit their buckets, no field that
 * its schema does not use. What every other function here relies on; for bytes from disk. */
MUST_USE enum err histogram_check_layout(const struct histogram *h, struct errinfo *ei);

/* --- Values --- */

/* Copies h with buckets of its own; spans and custom values stay shared. */
MUST_USE enum err histogram_copy(const struct histogram *h, struct arena *arena,
                                 struct histogram *out);
/* The same with spans and custom values copied too, for another lifetime. */
MUST_USE enum err histogram_copy_deep(const struct histogram *h, struct arena *arena,
                                      struct histogram *out);

/* Equal bit for bit in all counts, with the same buckets, empty ones included. Hints do not count;
 * spans may differ by empty ones. What Prometheus's == and changes() mean by equal. */
bool histogram_equal(const struct histogram *a, const struct histogram *b);
bool histogram_spans_equal(const struct histogram_side *a, const struct histogram_side *b);
bool histogram_bounds_equal(const struct histogram *a, const struct histogram *b);
/* Whether schema, zero threshold, spans and custom values are the same in every bit, so that
 * buckets stand at the same places of both. */
bool histogram_layout_same(const struct histogram *a, const struct histogram *b);

/* Removes all empty buckets; spans become as few as possible. */
MUST_USE enum err histogram_compact(struct histogram *h, struct arena *arena);
/* The same for one side. `compensation` (NULL: none) runs beside the buckets: those where it is not
 * 0 stay, and it is moved along. */
MUST_USE enum err histogram_side_compact(struct histogram_side *side, double *compensation,
                                         struct arena *arena);
/* Merges buckets until the schema is `schema`, not above the present one, exponential both. */
MUST_USE enum err histogram_reduce(struct histogram *h, int32_t schema, struct arena *arena);

/* The hint of a sample that follows one of another source, where "no reset" would claim more than
 * anybody looked at. */
static inline enum histogram_hint histogram_hint_at_border(enum histogram_hint hint)
{
    return hint == HISTOGRAM_HINT_GAUGE ? hint : HISTOGRAM_HINT_UNKNOWN;
}

/* Whether h, of a counter, goes on from `before` without a reset, by the rules that make
 * Prometheus's store say so: the same kind of buckets, and no count has fallen. */
bool histogram_continues(const struct histogram *h, const struct histogram *before);
/* The hint that h is stored with behind `before` (NULL: nothing, or nothing known): what a client
 * says counts if it speaks of a gauge or a reset only. */
enum histogram_hint histogram_hint_behind(const struct histogram *h,
                                          const struct histogram *before);

/* Makes the spans of buckets that come one by one with rising indexes. `spans` has room for them;
 * NULL: they are only counted. */
struct histogram_span_builder {
    struct histogram_span *spans;
    size_t count;
    int32_t next; /* the index behind the last bucket */
};
void histogram_span_builder_add(struct histogram_span_builder *b, int32_t index);

/* --- Buckets --- */

struct histogram_bucket {
    double lower, upper, count;
    bool lower_inclusive, upper_inclusive;
};

/* The upper bound of an exponential bucket, in terms of absolute values. */
double histogram_bound_exponential(int32_t index, int32_t schema);
/* The bucket of this index on one side. */
struct histogram_bucket histogram_bucket_at(const struct histogram *h, bool is_positive,
                                            int32_t index, double count);
struct histogram_bucket histogram_bucket_zero(const struct histogram *h);
/* The index, in a coarser schema, of the bucket that holds bucket `index` of a finer one. */
static inline int32_t histogram_index_reduce(int32_t index, int32_t from, int32_t to)
{
    return (int32_t)((((int64_t)index - 1) >> (from - to)) + 1);
}

/* Runs through one side's buckets by rising distance from zero; after a true _next(), `index` and
 * `position` (in `buckets`) are the current bucket's. */
struct histogram_cursor {
    const struct histogram_side *side;
    size_t span, position;
    uint32_t in_span;
    int32_t index;
};
void histogram_cursor_init(struct histogram_cursor *c, const struct histogram_side *side);
bool histogram_cursor_next(struct histogram_cursor *c);
/* The other direction: begin at the end, then step down. */
void histogram_cursor_end(struct histogram_cursor *c, const struct histogram_side *side);
bool histogram_cursor_previous(struct histogram_cursor *c);

/* All buckets from the lowest to the highest or back, empty ones too except an empty zero bucket.
 * Bounds inside of the zero bucket are moved to its threshold. */
struct histogram_iter {
    const struct histogram *histogram;
    struct histogram_cursor first, last; /* the side that comes first, and the other one */
    bool is_descending;
    int state;
    struct histogram_bucket bucket; /* the current one */
};
void histogram_iter_init(struct histogram_iter *it, const struct histogram *h, bool is_descending);
bool histogram_iter_next(struct histogram_iter *it);

#endif
