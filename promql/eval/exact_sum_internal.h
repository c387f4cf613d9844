/*
 * Exact sums: what they give depends on the set of values that were added and on nothing else, not
 * on their order and not on how they were spread over partial sums. One struct holds the sums of a
 * group, a column of steps.
 *
 * A value is cut into multiples of 2^(40 b) for the bins b, each at most 2^40 units of its bin, by
 * adding and subtracting a constant that rounds it there (as in Demmel and Nguyen, "Parallel
 * Reproducible Summation", IEEE ToC 2015, but with as many bins as the values need, so that nothing
 * is dropped). A double counts up to 2^53 units exactly, so 4,096 values may be added before bins
 * hand carries upwards. A value of rate() takes three bins, a whole number one or two, the whole
 * range of doubles 52. At the end a cell's bins are rounded once: the sum is the nearest double of
 * the exact one.
 *
 * From 2^960 on values are added elsewhere, scaled by 2^-256, so that intermediate sums cannot
 * overflow. Infinities and NaN are bits beside the bins.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EXACT_SUM_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EXACT_SUM_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

struct exact_sums {
    size_t count;        /* steps */
    struct arena *arena; /* borrowed: bins and bitmaps; at most 52 columns of doubles */
    int low, high;       /* bins [low, high) exist; none while low == high */
    double **bins;       /* bins[b - low]: by step */
    uint32_t add_count;  /* since carries were handed up last */
    uint64_t *nans, *plus_infinities, *minus_infinities; /* NULL: none so far */
    struct exact_sums *huge;                             /* NULL: none so far */
};

void exact_sums_init(struct exact_sums *s, size_t count, struct arena *arena);
/* Adds the values of the steps [begin, end) whose bits are set. `begin` is that of a word, and all
 * steps must be gone through before the next row. False when memory is refused: the sums are of no
 * use then. */
bool exact_sums_add(struct exact_sums *s, const uint64_t *present, const double *value,
                    size_t begin, size_t end);
/* Adds the sums of `from`, which has the same steps; its bins are changed, its sums are not. */
bool exact_sums_merge(struct exact_sums *to, struct exact_sums *from);
/* Hands up carries; before exact_sums_get(), once all is added. */
bool exact_sums_finish(struct exact_sums *s);
/* The sum of a step divided by `divisor`; the sum may be beyond the range of doubles if the
 * quotient is not. NaN with a NaN or both infinities among the values. */
double exact_sums_get(const struct exact_sums *s, size_t step, double divisor);

#endif
