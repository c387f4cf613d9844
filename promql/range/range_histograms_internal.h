/*
 * Range functions over columns with native histograms, or with both: range_histograms.c moves the
 * windows, range_histogram_rate.c has rates, and what smoothed and anchored ranges make of them.
 */
#ifndef RIMSTONE_PROMQL_RANGE_RANGE_HISTOGRAMS_INTERNAL_H
#define RIMSTONE_PROMQL_RANGE_RANGE_HISTOGRAMS_INTERNAL_H

#include "promql/eval/annotations_histogram_internal.h"
#include "promql/eval/eval_range_internal.h"
#include "promql/histogram_math.h"

/* A series while its windows are looked at. */
struct mixed_run {
    struct range_run *run;
    const struct column *column; /* floats and histograms */
    struct row *row;             /* floats are evaluated before histograms are looked at */
    /* By sample of the column, and one more: how many floats there are before it, how many samples
     * it counts for with all before it, and how many marks. */
    uint32_t *floats_before, *marks_before;
    uint64_t *weight_before;
    /* Marks of resets and changes: sample i is one in comparison with sample i - 1. */
    struct span *spans;            /* windows, by step */
    const struct rate_step *rates; /* of rate() and its kin, by step */
    struct arena arena;            /* of the series */
    struct arena scratch;          /* of a step */
    struct histogram_annotator annotator;
    struct errinfo *ei;
};

static inline size_t mixed_float_count(const struct mixed_run *m, struct span w)
{
    return m->floats_before[w.end] - m->floats_before[w.first];
}
static inline bool mixed_has_histogram(const struct mixed_run *m, struct span w)
{
    return mixed_float_count(m, w) < w.end - w.first;
}
static inline bool mixed_is_marked(const struct mixed_run *m, size_t i)
{
    return m->marks_before[i + 1] > m->marks_before[i];
}
/* Sets the step to a histogram that was made in the scratch arena, of `like`. */
MUST_USE enum err mixed_set(struct mixed_run *m, size_t step, const struct histogram *h,
                            const struct histogram *like);
/* What an operation on histograms says: ERR_INVALID, incompatible buckets, is annotated, and the
 * step has no result (*failed); any other error is the arena's. */
MUST_USE enum err mixed_check(struct mixed_run *m, enum err e, bool *failed);

/* --- range_histogram_rate.c --- */

/* All samples that decide whether a step sees both kinds: those of the window, or, where a rate is
 * taken of an anchored or smoothed range, all within the lookback of its borders. */
struct span mixed_reach(const struct mixed_run *m, size_t step);
/* rate(), increase(), delta() at a step. */
MUST_USE enum err mixed_rate(struct mixed_run *m, size_t step);
/* irate(), idelta(). */
MUST_USE enum err mixed_last_two(struct mixed_run *m, size_t step);

#endif
