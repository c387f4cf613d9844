/*
 * See fold_histograms_internal.h.
 */
#include "promql/eval/fold_histograms_internal.h"

#include "promql/histogram_math.h"

static bool bit(const uint64_t *bits, size_t k)
{
    return (bits[k / 64] >> (k % 64)) & 1;
}

static void bit_set(uint64_t *bits, size_t k)
{
    bits[k / 64] |= UINT64_C(1) << (k % 64);
}

static enum err cells_new(struct arena *arena, const struct grid *grid,
                          struct histogram_cells **out, struct errinfo *ei)
{
    struct histogram_cells *c = ARENA_NEW(arena, struct histogram_cells);

    if (c == NULL)
        return arena_refused(arena, ei);
    c->seen = arena_calloc(arena, grid_words(grid), sizeof *c->seen);
    c->incompatible = arena_calloc(arena, grid_words(grid), sizeof *c->incompatible);
    c->folds = arena_calloc(arena, grid->count, sizeof(struct histogram_fold *));
    if (c->seen == NULL || c->incompatible == NULL || c->folds == NULL)
        return arena_refused(arena, ei);
    *out = c;
    return ERR_OK;
}

/* The first histogram of a step; spans and bounds of its own, since the batch goes. */
static enum err fold_start(struct histogram_folding *f, const struct histogram *h,
                           struct histogram_fold **out)
{
    struct histogram_fold *fold = ARENA_NEW(f->arena, struct histogram_fold);
    struct histogram copy;
    enum err e;

    if (fold == NULL)
        return arena_error(f->arena, NULL);
    e = histogram_copy_deep(h, f->arena, &copy);
    if (e == ERR_OK)
        e = histogram_fold_init(fold, &copy, f->arena);
    if (e == ERR_OK)
        *out = fold;
    return e;
}

static enum err fold_add(struct histogram_folding *f, const struct histogram *h,
                         struct histogram_fold *fold)
{
    return f->is_mean ? histogram_fold_mean(fold, h, f->arena)
                      : histogram_fold_sum(fold, h, f->arena);
}

/* One histogram of a row. */
static enum err cell_fold(struct histogram_folding *f, struct histogram_cells *c,
                          const uint64_t *float_seen, size_t k, const struct histogram *h,
                          struct errinfo *ei)
{
    bool is_first = c->folds[k] == NULL && !bit(float_seen, k);
    enum err e = ERR_OK;

    if (bit(c->incompatible, k))
        return ERR_OK;
    bit_set(c->seen, k);
    if (is_first)
        e = fold_start(f, h, &c->folds[k]);
    else if (c->folds[k] != NULL)
        e = fold_add(f, h, c->folds[k]);
    if (e == ERR_INVALID) {
        bit_set(c->incompatible, k);
        c->any_incompatible = true;
        f->met_incompatible = true;
        return ERR_OK;
    }
    return e == ERR_OK ? eval_tick(f->ev, histogram_weight(h), ei) : arena_refused(f->arena, ei);
}

enum err histogram_cells_fold(struct histogram_folding *f, struct histogram_cells **cells,
                              const uint64_t *float_seen, struct row *row, const struct grid *grid,
                              struct errinfo *ei)
{
    enum err e = eval_tick(f->ev, grid->count / 4, ei);

    if (e == ERR_OK && *cells == NULL)
        e = cells_new(f->arena, grid, cells, ei);
    for (size_t k = 0; e == ERR_OK && k < grid->count; k++) {
        const struct histogram *h = row_histogram(row, k);

        if (!row_has(row, k))
            continue;
        if (h != NULL)
            e = cell_fold(f, *cells, float_seen, k, h, ei);
        if (h != NULL || bit((*cells)->incompatible, k))
            row_clear(row, k);
    }
    return e;
}

/* What a fold of one step comes to. */
static enum err cell_end(struct histogram_folding *f, struct histogram_fold *fold,
                         struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (f->is_mean)
        histogram_fold_mean_end(fold);
    else
        histogram_fold_sum_end(fold);
    if (fold->saw_reset && fold->saw_no_reset)
        e = histogram_annotate(f->annotator, HISTOGRAM_HINTS_AGGREGATION, ei);
    if (e == ERR_OK && histogram_compact(&fold->value, f->arena) != ERR_OK)
        e = arena_refused(f->arena, ei);
    return e;
}

enum err histogram_cells_result(struct histogram_folding *f, struct histogram_cells *cells,
                                struct row *row, const struct grid *grid, struct arena *arena,
                                struct errinfo *ei)
{
    struct histogram_keeper keeper = {.arena = arena};
    enum err e = row_want_histograms(f->ev, row, grid, arena, ei);

    for (size_t k = 0; e == ERR_OK && k < grid->count; k++) {
        struct histogram_fold *fold = cells->folds[k];
        const struct histogram *copy = NULL;

        if (!bit(cells->seen, k))
            continue;
        if (fold != NULL && fold->notes.bounds_reconciled)
            e = histogram_annotate(f->annotator, HISTOGRAM_BOUNDS_AGGREGATION, ei);
        if (e == ERR_OK && row_has(row, k)) {
            row_clear(row, k);
            e = histogram_annotate(f->annotator, HISTOGRAM_MIXED_IN_AGGREGATION, ei);
            continue;
        }
        if (e != ERR_OK || bit(cells->incompatible, k) || fold == NULL)
            continue;
        e = cell_end(f, fold, ei);
        if (e == ERR_OK)
            e = histogram_keep(&keeper, &fold->value, &copy, ei);
        if (e == ERR_OK) {
            row_set_histogram(row, k, copy);
            e = eval_tick(f->ev, histogram_weight(copy), ei);
        }
    }
    return e;
}
