/*
 * What a fold keeps of a group's native histograms, beside the cells of its floats. Sums and means
 * are compensated and made in the order of labels only.
 */
#ifndef RIMSTONE_PROMQL_EVAL_FOLD_HISTOGRAMS_INTERNAL_H
#define RIMSTONE_PROMQL_EVAL_FOLD_HISTOGRAMS_INTERNAL_H

#include "promql/eval/annotations_histogram_internal.h"
#include "promql/eval/eval_internal.h"

/* By step. Where floats came first nothing is kept but that there are both. */
struct histogram_cells {
    uint64_t *seen;         /* steps with a histogram */
    uint64_t *incompatible; /* exponential and custom buckets: no result, and nothing is added */
    bool any_incompatible;
    struct histogram_fold **folds;
};

/* What a fold of histograms is told. */
struct histogram_folding {
    struct eval *ev;
    bool is_mean;
    struct arena *arena; /* of the cells */
    struct histogram_annotator *annotator;
    /* Set when buckets of two kinds met: then the name of the series is to be annotated. */
    bool met_incompatible;
};

/* Folds the histograms of a row into *cells, made when it is NULL, and takes their steps out of the
 * row's bitmap, also those of floats that no longer count: once `any_incompatible`, rows of floats
 * alone must pass here too. `float_seen`: the group's steps with a
 * float so far. */
MUST_USE enum err histogram_cells_fold(struct histogram_folding *f, struct histogram_cells **cells,
                                       const uint64_t *float_seen, struct row *row,
                                       const struct grid *grid, struct errinfo *ei);
/* Adds the histograms to the group's row, which has its floats; steps with both have nothing. The
 * cells are used up. */
MUST_USE enum err histogram_cells_result(struct histogram_folding *f, struct histogram_cells *cells,
                                         struct row *row, const struct grid *grid,
                                         struct arena *arena, struct errinfo *ei);

#endif
