/*
 * Operators between two vectors where a sample is a native histogram, or would have to be one.
 */
#ifndef RIMSTONE_PROMQL_EVAL_EVAL_BINARY_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_EVAL_BINARY_INTERNAL_H

#include "promql/eval/eval_internal.h"

/* What is to be said of a pair. */
enum pair_note {
    PAIR_FINE,
    PAIR_FLOAT_FLOAT, /* sample types that the operator has no answer for */
    PAIR_FLOAT_HISTOGRAM,
    PAIR_HISTOGRAM_FLOAT,
    PAIR_HISTOGRAM_HISTOGRAM,
    PAIR_BUCKETS, /* exponential and custom ones */
    PAIR_HINTS,   /* they collide; no result */
    PAIR_BOUNDS,  /* reconciled; there is a result */
    PAIR_NOTE_COUNT,
};

/* By step, of all pairs of an operator: only what the last pair with a note says comes through, in
 * Prometheus's order of pairs. */
struct pair_notes {
    uint64_t *orders; /* of that pair; NULL: no notes at all */
    uint8_t *notes;   /* enum pair_note */
};

/* Two rows with samples at the same steps, and the row of their results. */
struct histogram_pairs {
    struct eval *ev;
    enum binary_op op;
    bool return_bool;
    const struct grid *grid;
    const struct row *lhs, *rhs;
    struct row *row;         /* its values and histograms are set, not its bits */
    struct arena *out_arena; /* of that row */
    struct arena *arena;     /* of the operator: notes */
    struct pair_notes *notes;
    uint64_t order; /* of this pair among all */
    /* Bitmaps: the steps at which both have a sample, of which those of two floats are left; the
     * others that have a result; those that, as in Prometheus, count as if they had not matched. */
    uint64_t *steps, *results, *unmatched;
};

/* Whether a pair of rows needs pairs_compute(). */
static inline bool pair_needs_histograms(enum binary_op op, const struct row *lhs,
                                         const struct row *rhs)
{
    return lhs->histogram != NULL || rhs->histogram != NULL || binary_op_is_trim(op);
}
MUST_USE enum err pairs_compute(struct histogram_pairs *p, struct errinfo *ei);
/* Annotates the operator `p` with what the notes say. */
MUST_USE enum err pair_notes_annotate(struct eval *ev, const struct plan *p,
                                      const struct pair_notes *notes, struct errinfo *ei);

#endif
