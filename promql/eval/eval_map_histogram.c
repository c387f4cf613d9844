/*
 * Stages on native histograms: arithmetic with a scalar, trims, unary minus, and the functions that
 * make a float of a histogram. All other functions of one value drop histograms.
 */
#include <string.h>

#include "promql/eval/annotations_histogram_internal.h"
#include "promql/eval/eval_map_internal.h"
#include "promql/histogram_math.h"

/* The steps of [begin, end) that hold a histogram, as bits of `word`. */
static uint64_t word_histograms(const struct row *row, size_t word, size_t count)
{
    uint64_t bits = 0;

    for (uint64_t left = row->present[word]; left != 0; left &= left - 1) {
        size_t k = word * 64 + (size_t)__builtin_ctzll(left);

        if (k < count && row->histogram[k] != NULL)
            bits |= left & -left;
    }
    return bits;
}

enum err row_split(struct eval *ev, struct row *row, const struct grid *grid,
                   uint64_t *histogram_steps, bool *any, struct errinfo *ei)
{
    *any = false;
    for (size_t w = 0; w < grid_words(grid); w++) {
        histogram_steps[w] = word_histograms(row, w, grid->count);
        row->present[w] &= ~histogram_steps[w];
        *any = *any || histogram_steps[w] != 0;
    }
    return eval_tick(ev, grid->count, ei);
}

/* The float that a function makes of a histogram. */
static double statistic(enum function_id id, const struct histogram *h)
{
    switch (id) {
    case FUNCTION_HISTOGRAM_COUNT:
        return h->count;
    case FUNCTION_HISTOGRAM_SUM:
        return h->sum;
    case FUNCTION_HISTOGRAM_AVG:
        return histogram_average(h);
    case FUNCTION_HISTOGRAM_STDVAR:
        return histogram_variance(h);
    default:
        return sqrt(histogram_variance(h));
    }
}

/* Whether `histogram op scalar`, or the other way round, has an answer. */
static bool binary_is_possible(const struct map_stage *m)
{
    if (m->op == OP_MUL)
        return true;
    return m->kind == MAP_BINARY_RIGHT && (m->op == OP_DIV || binary_op_is_trim(m->op));
}

static enum err binary_apply(const struct map_stage *m, double scalar, struct histogram *h,
                             struct arena *arena)
{
    if (binary_op_is_trim(m->op))
        return histogram_trim(h, scalar, m->op == OP_TRIM_UPPER, arena);
    if (m->op == OP_MUL)
        histogram_multiply(h, scalar);
    else
        histogram_divide(h, scalar);
    return histogram_compact(h, arena);
}

/* A histogram of a row, changed; steps that share one share what comes of it. */
struct change {
    const struct histogram *from, *to;
    double scalar;
};

static enum err step_change(const struct map_stage *m, struct change *last,
                            const struct histogram *h, double scalar, struct arena *arena,
                            struct errinfo *ei)
{
    struct histogram *copy;
    enum err e;

    if (last->from == h && double_bits(last->scalar) == double_bits(scalar))
        return ERR_OK;
    copy = ARENA_NEW(arena, struct histogram);
    if (copy == NULL)
        return arena_refused(arena, ei);
    e = histogram_copy(h, arena, copy);
    if (e == ERR_OK && m->kind == MAP_NEGATE)
        histogram_multiply(copy, -1);
    else if (e == ERR_OK)
        e = binary_apply(m, scalar, copy, arena);
    if (e != ERR_OK)
        return arena_refused(arena, ei);
    *last = (struct change){h, copy, scalar};
    return ERR_OK;
}

static enum err steps_change(struct eval *ev, const struct map_stage *m, const double *scalars,
                             const uint64_t *steps, size_t count, struct row *row,
                             struct arena *arena, struct errinfo *ei)
{
    struct change last = {0};
    enum err e = ERR_OK;

    for (size_t k = 0; k < count && e == ERR_OK; k++) {
        if (!((steps[k / 64] >> (k % 64)) & 1))
            continue;
        e = step_change(m, &last, row->histogram[k], scalars == NULL ? 0 : scalars[k], arena, ei);
        if (e == ERR_OK) {
            row_set_histogram(row, k, last.to);
            e = eval_tick(ev, histogram_weight(last.to), ei);
        }
    }
    return e;
}

/* The other stages give floats, if anything. */
static enum err steps_to_floats(struct eval *ev, const struct map_stage *m, const uint64_t *steps,
                                const struct grid *grid, struct row *row, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t k = 0; k < grid->count && e == ERR_OK; k++) {
        if (!((steps[k / 64] >> (k % 64)) & 1))
            continue;
        if (m->kind == MAP_HISTOGRAM) {
            row_set(row, k, statistic(m->function->id, row->histogram[k]));
            e = eval_tick(ev, histogram_weight(row->histogram[k]), ei);
        } else if (m->kind == MAP_FUNCTION && m->function == NULL) {
            row_set(row, k, row->value[k]); /* timestamp(): of a selector floats already */
        } else if (m->kind == MAP_FUNCTION && m->function->id == FUNCTION_TIMESTAMP) {
            row_set(row, k, (double)grid_time_ms(grid, k) / 1000);
        }
    }
    row->histogram = NULL;
    return e;
}

enum err stage_histograms(struct eval *ev, const struct map_stage *m, const double *scalars,
                          const uint64_t *steps, const struct grid *grid, struct row *row,
                          struct arena *arena, struct errinfo *ei)
{
    bool is_binary = m->kind == MAP_BINARY_LEFT || m->kind == MAP_BINARY_RIGHT;

    if (m->kind == MAP_NEGATE || (is_binary && binary_is_possible(m)))
        return steps_change(ev, m, scalars, steps, grid->count, row, arena, ei);
    if (!is_binary)
        return steps_to_floats(ev, m, steps, grid, row, ei);
    row->histogram = NULL;
    return annotations_add_incompatible(&ev->annotations, m->node->position, binary_op_name(m->op),
                                        m->kind == MAP_BINARY_RIGHT, m->kind == MAP_BINARY_LEFT,
                                        ei);
}

enum err stage_trims_floats(struct eval *ev, const struct map_stage *m, const struct grid *grid,
                            struct row *row, struct errinfo *ei)
{
    if (row_is_empty(row, grid))
        return ERR_OK;
    memset(row->present, 0, grid_words(grid) * sizeof *row->present);
    return annotations_add_incompatible(&ev->annotations, m->node->position, binary_op_name(m->op),
                                        false, false, ei);
}
