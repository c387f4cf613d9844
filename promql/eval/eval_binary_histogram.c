/*
 * See eval_binary_internal.h.
 */
#include "promql/eval/eval_binary_internal.h"

#include <string.h>

#include "promql/eval/annotations_histogram_internal.h"
#include "promql/histogram_math.h"

static void bit_set(uint64_t *bits, size_t k)
{
    bits[k / 64] |= UINT64_C(1) << (k % 64);
}

/* --- notes --- */

static enum err note_add(struct histogram_pairs *p, size_t step, enum pair_note note,
                         struct errinfo *ei)
{
    struct pair_notes *n = p->notes;

    if (note == PAIR_FINE)
        return ERR_OK;
    if (n->orders == NULL) {
        n->notes = arena_calloc(p->arena, p->grid->count, sizeof *n->notes);
        n->orders = arena_calloc(p->arena, p->grid->count, sizeof *n->orders);
        if (n->notes == NULL || n->orders == NULL)
            return arena_refused(p->arena, ei);
    }
    if (p->order >= n->orders[step]) {
        n->orders[step] = p->order;
        n->notes[step] = (uint8_t)note;
    }
    return ERR_OK;
}

static enum err note_annotate(struct eval *ev, const struct plan *p, enum pair_note note,
                              struct errinfo *ei)
{
    const struct node *n = p->node;
    const char *op = binary_op_name(n->u.binary.op);
    bool is_addition = n->u.binary.op == OP_ADD;
    struct histogram_annotator a = {.annotations = &ev->annotations, .position = n->position};

    switch (note) {
    case PAIR_BUCKETS:
        return annotations_add(&ev->annotations, ANNOTATION_WARNING, n->position, ei,
                               "incompatible bucket layout encountered for binary operator %s", op);
    case PAIR_HINTS:
        return histogram_annotate(
            &a, is_addition ? HISTOGRAM_HINTS_ADDITION : HISTOGRAM_HINTS_SUBTRACTION, ei);
    case PAIR_BOUNDS:
        return histogram_annotate(
            &a, is_addition ? HISTOGRAM_BOUNDS_ADDITION : HISTOGRAM_BOUNDS_SUBTRACTION, ei);
    default:
        return annotations_add_incompatible(
            &ev->annotations, n->position, op,
            note == PAIR_HISTOGRAM_FLOAT || note == PAIR_HISTOGRAM_HISTOGRAM,
            note == PAIR_FLOAT_HISTOGRAM || note == PAIR_HISTOGRAM_HISTOGRAM, ei);
    }
}

enum err pair_notes_annotate(struct eval *ev, const struct plan *p, const struct pair_notes *notes,
                             struct errinfo *ei)
{
    bool seen[PAIR_NOTE_COUNT] = {false};
    enum err e = eval_tick(ev, p->grid.count / 8, ei);

    for (size_t k = 0; notes->orders != NULL && k < p->grid.count; k++)
        seen[notes->notes[k]] = true;
    for (int note = PAIR_FINE + 1; note < PAIR_NOTE_COUNT && e == ERR_OK; note++) {
        if (seen[note])
            e = note_annotate(ev, p, (enum pair_note)note, ei);
    }
    return e;
}

/* --- one pair of samples --- */

static bool is_between_histograms(enum binary_op op)
{
    return op == OP_ADD || op == OP_SUB || op == OP_EQ || op == OP_NE;
}

/* PAIR_FINE where the operator has an answer for these types. */
static enum pair_note types_check(enum binary_op op, const struct histogram *lhs,
                                  const struct histogram *rhs)
{
    if (lhs == NULL && rhs == NULL)
        return PAIR_FLOAT_FLOAT; /* of a trim */
    if (lhs == NULL)
        return op == OP_MUL ? PAIR_FINE : PAIR_FLOAT_HISTOGRAM;
    if (rhs != NULL)
        return is_between_histograms(op) ? PAIR_FINE : PAIR_HISTOGRAM_HISTOGRAM;
    return op == OP_MUL || op == OP_DIV || binary_op_is_trim(op) ? PAIR_FINE : PAIR_HISTOGRAM_FLOAT;
}

/* A histogram and a float. */
static enum err scale(enum binary_op op, struct histogram *h, double value, struct arena *arena)
{
    if (binary_op_is_trim(op))
        return histogram_trim(h, value, op == OP_TRIM_UPPER, arena);
    if (op == OP_MUL)
        histogram_multiply(h, value);
    else
        histogram_divide(h, value);
    return histogram_compact(h, arena);
}

/* Sum or difference; `h` is the left side. */
static enum err add(enum binary_op op, struct histogram *h, const struct histogram *rhs,
                    struct arena *arena, enum pair_note *note)
{
    struct histogram_notes notes = {0};
    enum err e = op == OP_ADD ? histogram_add(h, rhs, arena, &notes)
                              : histogram_subtract(h, rhs, arena, &notes);

    if (e == ERR_INVALID) {
        *note = PAIR_BUCKETS;
        return ERR_OK;
    }
    if (e != ERR_OK)
        return e;
    if (op == OP_SUB)
        h->hint = HISTOGRAM_HINT_GAUGE;
    if (notes.hints_collide)
        *note = PAIR_HINTS;
    else if (notes.bounds_reconciled)
        *note = PAIR_BOUNDS;
    return histogram_compact(h, arena);
}

/* Arithmetic in the scratch arena. */
static enum err sample_compute(struct histogram_pairs *p, size_t step, struct arena *scratch,
                               struct histogram *h, enum pair_note *note, struct errinfo *ei)
{
    const struct histogram *lhs = row_histogram(p->lhs, step), *rhs = row_histogram(p->rhs, step);
    enum err e = histogram_copy(lhs != NULL ? lhs : rhs, scratch, h);

    if (e == ERR_OK && lhs != NULL && rhs != NULL)
        e = add(p->op, h, rhs, scratch, note);
    else if (e == ERR_OK)
        e = scale(p->op, h, lhs != NULL ? p->rhs->value[step] : p->lhs->value[step], scratch);
    return e == ERR_OK ? ERR_OK : arena_refused(scratch, ei);
}

struct keeping {
    struct histogram_keeper keeper;
    struct arena scratch;
};

/* A comparison of two histograms. */
static enum err step_compare(struct histogram_pairs *p, size_t step, struct keeping *k,
                             struct errinfo *ei)
{
    const struct histogram *lhs = row_histogram(p->lhs, step), *copy;
    bool holds = histogram_equal(lhs, row_histogram(p->rhs, step)) == (p->op == OP_EQ);
    enum err e;

    if (p->return_bool) {
        p->row->value[step] = holds ? 1 : 0;
        bit_set(p->results, step);
    }
    if (p->return_bool || !holds)
        return ERR_OK;
    e = histogram_keep(&k->keeper, lhs, &copy, ei);
    if (e == ERR_OK) {
        p->row->histogram[step] = copy;
        bit_set(p->results, step);
    }
    return e;
}

static enum err step_compute(struct histogram_pairs *p, size_t step, struct keeping *k,
                             struct errinfo *ei)
{
    enum pair_note note =
        types_check(p->op, row_histogram(p->lhs, step), row_histogram(p->rhs, step));
    const struct histogram *copy;
    struct histogram h;
    enum err e = ERR_OK;

    if (note == PAIR_FINE && binary_op_is_comparison(p->op))
        return step_compare(p, step, k, ei);
    if (note == PAIR_FINE)
        e = sample_compute(p, step, &k->scratch, &h, &note, ei);
    if (e == ERR_OK && (note == PAIR_FINE || note == PAIR_BOUNDS)) {
        e = histogram_keep_made(&k->keeper, &h, &copy, ei);
        if (e == ERR_OK) {
            p->row->histogram[step] = copy;
            bit_set(p->results, step);
            e = eval_tick(p->ev, histogram_weight(copy), ei);
        }
    } else if (e == ERR_OK) {
        bit_set(p->unmatched, step);
    }
    arena_reset(&k->scratch);
    return e == ERR_OK ? note_add(p, step, note, ei) : e;
}

enum err pairs_compute(struct histogram_pairs *p, struct errinfo *ei)
{
    struct keeping k = {.keeper = {.arena = p->out_arena}};
    size_t words = grid_words(p->grid);
    enum err e = row_want_histograms(p->ev, p->row, p->grid, p->out_arena, ei);

    memset(p->results, 0, words * sizeof *p->results);
    memset(p->unmatched, 0, words * sizeof *p->unmatched);
    arena_init(&k.scratch, p->ev->query->memory);
    for (size_t step = 0; step < p->grid->count && e == ERR_OK; step++) {
        if (!((p->steps[step / 64] >> (step % 64)) & 1))
            continue;
        if (row_histogram(p->lhs, step) == NULL && row_histogram(p->rhs, step) == NULL &&
            !binary_op_is_trim(p->op))
            continue;
        p->steps[step / 64] &= ~(UINT64_C(1) << (step % 64));
        e = step_compute(p, step, &k, ei);
        if (e == ERR_OK)
            e = eval_tick(p->ev, 4, ei);
    }
    arena_done(&k.scratch);
    return e;
}
