/*
 * Operators between two vectors. Series of both sides are grouped by their signature (the labels
 * that take part in matching); within a signature whole rows are combined at once, with bitmaps
 * saying at which steps both have a sample. Errors about ambiguous matches are per step, as in
 * Prometheus: two series of the "one" side may share a signature as long as they never meet.
 */
#include <string.h>

#include "promql/eval/eval_binary_internal.h"
#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"

/* One side and its rows' signatures. Of the "one" side also rows by signature:
 * rows[first[s] .. first[s + 1]). */
struct side {
    struct vector *vector;
    size_t *signature; /* by row */
    size_t *rows, *first;
    uint64_t *any; /* steps at which this side has any sample */
};

struct join {
    struct eval *ev;
    const struct plan *plan;
    const struct vector_matching *matching;
    enum binary_op op;
    bool return_bool;
    bool swapped; /* group_right: `many` is the right side */
    struct arena arena;
    struct str *names; /* sorted matching labels; with __name__ for ignoring() */
    size_t name_count;
    struct label_table signatures;
    struct side many, one;
    double *fill; /* a column of one fill value at a time, or NULL */
    /* For histograms: three bitmaps as in struct histogram_pairs, NULL until they are needed. */
    uint64_t *pair_bits;
    struct pair_notes notes;
    struct vector *out;
};

static enum err join_names(struct join *j, struct errinfo *ei)
{
    const struct vector_matching *m = j->matching;
    size_t count = m->label_count;
    struct str *names = ARENA_ARRAY(&j->arena, count + 1, struct str);

    if (names == NULL)
        return arena_refused(&j->arena, ei);
    for (size_t i = 0; i < count; i++)
        names[i] = m->labels[i];
    if (!m->on)
        names[count++] = LABEL_METRIC_NAME;
    return names_sort(names, count, &j->arena, &j->names, &j->name_count, ei);
}

static enum err signature_of(struct join *j, const struct labels *in, struct arena *arena,
                             struct labels *out, struct errinfo *ei)
{
    if (j->matching->on)
        return labels_keep(in, j->names, j->name_count, arena, out, ei);
    return labels_drop(in, j->names, j->name_count, arena, out, ei);
}

static enum err side_sign(struct join *j, struct side *s, struct errinfo *ei)
{
    const struct grid *grid = &j->plan->grid;
    enum err e = ERR_OK;

    s->signature = ARENA_ARRAY(&j->arena, s->vector->count, size_t);
    s->any = arena_calloc(&j->arena, grid_words(grid), sizeof *s->any);
    if (s->signature == NULL || s->any == NULL)
        return arena_refused(&j->arena, ei);
    for (size_t i = 0; i < s->vector->count && e == ERR_OK; i++) {
        const struct row *row = &s->vector->rows[i];
        struct labels key;
        bool added;

        e = signature_of(j, &row->labels, &j->arena, &key, ei);
        if (e == ERR_OK)
            e = label_table_add(&j->signatures, &key, &s->signature[i], &added, ei);
        for (size_t w = 0; w < grid_words(grid); w++)
            s->any[w] |= row->present[w];
        if (e == ERR_OK)
            e = eval_tick(j->ev, 16 + grid_words(grid), ei);
    }
    return e;
}

/* Groups the rows of a side by signature, in row order. */
static enum err side_group(struct join *j, struct side *s, struct errinfo *ei)
{
    size_t signatures = j->signatures.count;

    s->rows = ARENA_ARRAY(&j->arena, s->vector->count, size_t);
    s->first = arena_calloc(&j->arena, signatures + 2, sizeof *s->first);
    if (s->rows == NULL || s->first == NULL)
        return arena_refused(&j->arena, ei);
    for (size_t i = 0; i < s->vector->count; i++)
        s->first[s->signature[i] + 2]++;
    for (size_t i = 2; i < signatures + 2; i++)
        s->first[i] += s->first[i - 1];
    for (size_t i = 0; i < s->vector->count; i++)
        s->rows[s->first[s->signature[i] + 1]++] = i;
    return ERR_OK;
}

static enum err join_prepare(struct join *j, struct errinfo *ei)
{
    enum err e = join_names(j, ei);

    label_table_init(&j->signatures, &j->arena);
    if (e == ERR_OK)
        e = side_sign(j, &j->many, ei);
    if (e == ERR_OK)
        e = side_sign(j, &j->one, ei);
    if (e == ERR_OK)
        e = side_group(j, &j->one, ei);
    return e;
}

/* --- set operators --- */

/* Steps at which a signature has a sample on side `s`: one bitmap per signature. */
static enum err signature_bitmaps(struct join *j, const struct side *s, uint64_t **out,
                                  struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid);
    uint64_t *bits = NULL;
    enum err e = ERR_OK;

    if (j->signatures.count <= SIZE_MAX / (words + 1))
        bits = arena_calloc(&j->arena, j->signatures.count * words, sizeof *bits);
    if (bits == NULL)
        return arena_refused(&j->arena, ei);
    for (size_t i = 0; i < s->vector->count && e == ERR_OK; i++) {
        for (size_t w = 0; w < words; w++)
            bits[s->signature[i] * words + w] |= s->vector->rows[i].present[w];
        e = eval_tick(j->ev, 4 + words, ei);
    }
    *out = bits;
    return e;
}

/* Keeps those steps of a side's rows at which the bitmap of their signature is `wanted`. */
static enum err side_filter(struct join *j, struct side *s, const uint64_t *bits, bool wanted,
                            struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid);
    enum err e = ERR_OK;

    for (size_t i = 0; i < s->vector->count && e == ERR_OK; i++) {
        for (size_t w = 0; w < words; w++) {
            uint64_t b = bits[s->signature[i] * words + w];

            s->vector->rows[i].present[w] &= wanted ? b : ~b;
        }
        e = eval_tick(j->ev, 4 + words, ei);
    }
    return e;
}

static enum err join_set(struct join *j, struct errinfo *ei)
{
    struct side *lhs = &j->many, *rhs = &j->one;
    uint64_t *bits;
    enum err e = signature_bitmaps(j, j->op == OP_OR ? lhs : rhs, &bits, ei);

    if (e == ERR_OK && j->op != OP_OR) {
        e = side_filter(j, lhs, bits, j->op == OP_AND, ei);
    } else if (e == ERR_OK) {
        e = side_filter(j, rhs, bits, false, ei);
        for (size_t i = 0; i < rhs->vector->count && e == ERR_OK; i++) {
            if (!row_is_empty(&rhs->vector->rows[i], &j->plan->grid))
                e = vector_add_copy(lhs->vector, &rhs->vector->rows[i], ei);
        }
    }
    j->out = lhs->vector;
    return e;
}

/* --- arithmetic and comparisons --- */

/* Names the match group and both series, as Prometheus does. */
static enum err duplicate_refuse(struct join *j, const struct row *a, const struct row *b,
                                 struct errinfo *ei)
{
    struct labels key;
    char *group = NULL, *first, *second;

    if (signature_of(j, &a->labels, &j->arena, &key, ei) == ERR_OK)
        group = labels_text(&key, &j->arena);
    first = labels_text(&a->labels, &j->arena);
    second = labels_text(&b->labels, &j->arena);
    if (group == NULL || first == NULL || second == NULL)
        return arena_refused(&j->arena, ei);
    if (strcmp(first, second) > 0) {
        char *swap = first;

        first = second;
        second = swap;
    }
    return errinfo_set(ei, ERR_EXECUTION, 0,
                       "found duplicate series for the match group %s on the %s hand-side of the "
                       "operation: [%s, %s];many-to-many matching not allowed: matching labels "
                       "must be unique on one side",
                       group, j->swapped ? "left" : "right", first, second);
}

/* The first place where two series of the "one" side meet: Prometheus looks step by step, and at a
 * step in the order of the series. */
struct duplicate {
    size_t step, row, earlier; /* step SIZE_MAX: none */
};

static bool join_fills(const struct join *j)
{
    return j->matching->fill_left.given || j->matching->fill_right.given;
}

/* The "one" side must have at most one sample of a signature at a step. Steps at which either side
 * has nothing at all are not looked at, unless something stands in for it. */
static enum err one_side_check(struct join *j, size_t signature, struct duplicate *first,
                               struct errinfo *ei)
{
    const struct side *s = &j->one;
    size_t words = grid_words(&j->plan->grid);

    enum err e = ERR_OK;

    for (size_t a = s->first[signature]; a < s->first[signature + 1]; a++) {
        for (size_t b = s->first[signature]; b < a && e == ERR_OK; b++) {
            const struct row *x = &s->vector->rows[s->rows[a]];
            const struct row *y = &s->vector->rows[s->rows[b]];

            for (size_t w = 0; w < words; w++) {
                uint64_t looked_at = j->many.any[w] | (join_fills(j) ? UINT64_MAX : 0);
                uint64_t both = x->present[w] & y->present[w] & looked_at;
                size_t step = both == 0 ? SIZE_MAX : w * 64 + (size_t)__builtin_ctzll(both);

                if (step < first->step ||
                    (both != 0 && step == first->step && s->rows[a] < first->row))
                    *first = (struct duplicate){step, s->rows[a], s->rows[b]};
                if (both != 0)
                    break;
            }
            e = eval_tick(j->ev, 2 + words, ei);
        }
    }
    return e;
}

static enum err one_side_check_all(struct join *j, struct duplicate *first, struct errinfo *ei)
{
    enum err e = ERR_OK;

    *first = (struct duplicate){.step = SIZE_MAX};
    for (size_t s = 0; s < j->signatures.count && e == ERR_OK; s++)
        e = one_side_check(j, s, first, ei);
    return e;
}

static enum err result_labels(struct join *j, const struct row *many, const struct row *one,
                              struct arena *arena, struct labels *out, struct errinfo *ei)
{
    const struct vector_matching *m = j->matching;
    bool arithmetic = binary_op_changes_schema(j->op);
    struct labels l = many->labels;
    enum err e = ERR_OK;

    if (arithmetic || (j->return_bool && !j->ev->delayed_names))
        e = labels_without_metadata(&l, arena, &l, ei);
    if (e == ERR_OK && m->cardinality == MATCH_ONE_TO_ONE && m->on)
        e = labels_keep(&l, j->names, j->name_count, arena, &l, ei);
    else if (e == ERR_OK && m->cardinality == MATCH_ONE_TO_ONE)
        for (size_t i = 0; i < m->label_count && e == ERR_OK; i++)
            e = labels_with(&l, m->labels[i], (struct str){NULL, 0}, arena, &l, ei);
    for (size_t i = 0; i < m->include_count && e == ERR_OK; i++)
        e = labels_with(&l, m->include[i], labels_get(&one->labels, m->include[i]), arena, &l, ei);
    if (e == ERR_OK)
        *out = l;
    return e;
}

/* Computes those steps of [begin, end) that are in `row->present`; comparisons without bool clear
 * those that do not hold. */
static void pair_compute(const struct join *j, const struct row *many, const struct row *one,
                         struct row *row, size_t begin, size_t end)
{
    const struct row *lhs = j->swapped ? one : many, *rhs = j->swapped ? many : one;
    bool filters = binary_op_is_comparison(j->op) && !j->return_bool;

    for (size_t k = begin; k < end; k++) {
        if (!row_has(row, k))
            continue;
        if (!filters)
            row->value[k] = binary_op_apply(j->op, lhs->value[k], rhs->value[k]);
        else if (binary_op_compare(j->op, lhs->value[k], rhs->value[k]))
            row->value[k] = lhs->value[k];
        else
            row_clear(row, k);
    }
}

/* What has been matched within one signature: steps (one-to-one), or steps by result labels. */
struct matched {
    uint64_t *steps;
    struct label_table by_labels;
    uint64_t **label_steps;
    size_t label_capacity;
};

static enum err matched_steps(struct join *j, struct matched *m, const struct labels *labels,
                              uint64_t **out, struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid), index;
    bool added;
    enum err e;

    if (j->matching->cardinality == MATCH_ONE_TO_ONE) {
        if (m->steps == NULL)
            m->steps = arena_calloc(&j->arena, words, sizeof *m->steps);
        *out = m->steps;
        return m->steps == NULL ? arena_refused(&j->arena, ei) : ERR_OK;
    }
    e = label_table_add(&m->by_labels, labels, &index, &added, ei);
    if (e != ERR_OK)
        return e;
    if (index >= m->label_capacity) {
        size_t capacity = m->label_capacity == 0 ? 8 : m->label_capacity * 2;

        m->label_steps = arena_grow_array(&j->arena, m->label_steps, m->label_capacity, capacity,
                                          sizeof *m->label_steps);
        if (m->label_steps == NULL)
            return arena_refused(&j->arena, ei);
        m->label_capacity = capacity;
    }
    if (added)
        m->label_steps[index] = arena_calloc(&j->arena, words, sizeof **m->label_steps);
    *out = m->label_steps[index];
    return *out == NULL ? arena_refused(&j->arena, ei) : ERR_OK;
}

/* Computes the steps of `row` that are not two floats. What they give goes to the bitmap *results,
 * and the row's bits are then those of two floats; *unmatched as in struct histogram_pairs. */
static enum err pair_histograms(struct join *j, const struct row *many, const struct row *one,
                                uint64_t order, struct row *row, const uint64_t **results,
                                const uint64_t **unmatched, struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid);
    struct histogram_pairs p = {.ev = j->ev,
                                .op = j->op,
                                .return_bool = j->return_bool,
                                .grid = &j->plan->grid,
                                .lhs = j->swapped ? one : many,
                                .rhs = j->swapped ? many : one,
                                .row = row,
                                .out_arena = &j->out->arena,
                                .arena = &j->arena,
                                .notes = &j->notes,
                                .order = order,
                                .steps = row->present};

    if (j->pair_bits == NULL)
        j->pair_bits = arena_alloc_array(&j->arena, words, 2 * sizeof *j->pair_bits);
    if (j->pair_bits == NULL)
        return arena_refused(&j->arena, ei);
    p.results = j->pair_bits;
    p.unmatched = j->pair_bits + words;
    *results = p.results;
    *unmatched = p.unmatched;
    return pairs_compute(&p, ei);
}

/* The steps of a pair that match count as taken; two pairs must not take the same. */
static enum err pair_take(const struct join *j, const struct row *many, const struct row *one,
                          const uint64_t *unmatched, uint64_t *steps, struct errinfo *ei)
{
    for (size_t w = 0; w < grid_words(&j->plan->grid); w++) {
        uint64_t both = many->present[w] & one->present[w];

        if (unmatched != NULL)
            both &= ~unmatched[w];
        if (steps[w] & both)
            return errinfo_set(ei, ERR_EXECUTION, 0, "multiple matches for labels: %s",
                               j->matching->cardinality == MATCH_ONE_TO_ONE
                                   ? "many-to-one matching must be explicit "
                                     "(group_left/group_right)"
                                   : "grouping labels must ensure unique matches");
        steps[w] |= both;
    }
    return ERR_OK;
}

/* `order` is the pair's among all, as Prometheus goes through them. */
static enum err pair_join(struct join *j, struct matched *m, const struct row *many,
                          const struct row *one, uint64_t order, struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid);
    const uint64_t *results = NULL, *unmatched = NULL;
    uint64_t *steps = NULL, common = 0;
    struct row *row;
    enum err e;

    for (size_t w = 0; w < words; w++)
        common |= many->present[w] & one->present[w];
    if (common == 0)
        return eval_tick(j->ev, 2 + words, ei);
    e = vector_add(j->out, &row, ei);
    if (e == ERR_OK)
        e = result_labels(j, many, one, &j->out->arena, &row->labels, ei);
    if (e == ERR_OK)
        e = labels_copy(&row->labels, &j->out->arena, &row->labels, ei);
    if (e == ERR_OK)
        e = matched_steps(j, m, &row->labels, &steps, ei);
    if (e != ERR_OK)
        return e;
    ASSERT(steps != NULL);
    for (size_t w = 0; w < words; w++)
        row->present[w] = many->present[w] & one->present[w];
    if (UNLIKELY(pair_needs_histograms(j->op, many, one)))
        e = pair_histograms(j, many, one, order, row, &results, &unmatched, ei);
    if (e == ERR_OK)
        e = pair_take(j, many, one, unmatched, steps, ei);
    row->drop_name = j->return_bool;
    for (size_t k = 0, end; e == ERR_OK && k < j->plan->grid.count; k = end) {
        e = eval_piece(j->ev, k, j->plan->grid.count, &end, ei);
        if (e == ERR_OK)
            pair_compute(j, many, one, row, k, end);
    }
    for (size_t w = 0; results != NULL && w < words; w++)
        row->present[w] |= results[w];
    return e;
}

/* --- fill modifiers --- */

/* The row that stands in for a missing partner of `present_row`: its signature, `value` at those
 * steps of its own that are not in `taken`. */
static enum err stand_in_make(struct join *j, const struct row *present_row, const uint64_t *taken,
                              double value, struct row *out, struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid), count = j->plan->grid.count;
    enum err e = ERR_OK;

    *out = (struct row){.present = ARENA_ARRAY(&j->arena, words, uint64_t)};
    if (j->fill == NULL)
        j->fill = ARENA_ARRAY(&j->arena, count, double);
    if (out->present == NULL || j->fill == NULL)
        return arena_refused(&j->arena, ei);
    for (size_t w = 0; w < words; w++)
        out->present[w] = present_row->present[w] & (taken == NULL ? UINT64_MAX : ~taken[w]);
    out->value = j->fill;
    for (size_t k = 0, end; e == ERR_OK && k < count; k = end) {
        e = eval_piece(j->ev, k, count, &end, ei);
        for (; e == ERR_OK && k < end; k++)
            j->fill[k] = value;
    }
    return e == ERR_OK ? signature_of(j, &present_row->labels, &j->arena, &out->labels, ei) : e;
}

/* Rows of the "many" side where the "one" side has none. */
static enum err fill_one_side(struct join *j, struct matched *matched, struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid);
    uint64_t *taken = NULL;
    enum err e = signature_bitmaps(j, &j->one, &taken, ei);

    for (size_t a = 0; a < j->many.vector->count && e == ERR_OK; a++) {
        size_t s = j->many.signature[a];
        const struct row *many = &j->many.vector->rows[a];
        struct row one;

        e = stand_in_make(j, many, taken + s * words, j->matching->fill_right.value, &one, ei);
        if (e == ERR_OK)
            e = pair_join(j, &matched[s], many, &one, a, ei);
    }
    return e;
}

/* The steps of a signature at which anything has been matched, into `steps`. */
static void matched_union(const struct join *j, const struct matched *m, uint64_t *steps)
{
    size_t words = grid_words(&j->plan->grid);

    memset(steps, 0, words * sizeof *steps);
    for (size_t w = 0; m->steps != NULL && w < words; w++)
        steps[w] |= m->steps[w];
    for (size_t i = 0; i < m->by_labels.count; i++) {
        for (size_t w = 0; w < words; w++)
            steps[w] |= m->label_steps[i][w];
    }
}

/* Rows of the "one" side that have had no partner. */
static enum err fill_many_side(struct join *j, struct matched *matched, struct errinfo *ei)
{
    size_t words = grid_words(&j->plan->grid);
    uint64_t *taken = ARENA_ARRAY(&j->arena, words, uint64_t);
    enum err e = ERR_OK;

    if (taken == NULL)
        return arena_refused(&j->arena, ei);
    for (size_t b = 0; b < j->one.vector->count && e == ERR_OK; b++) {
        struct matched *m = &matched[j->one.signature[b]];
        const struct row *one = &j->one.vector->rows[b];
        struct row many;

        matched_union(j, m, taken);
        e = eval_tick(j->ev, m->by_labels.count * words, ei);
        if (e == ERR_OK)
            e = stand_in_make(j, one, taken, j->matching->fill_left.value, &many, ei);
        if (e == ERR_OK)
            e = pair_join(j, m, &many, one, j->many.vector->count + b, ei);
    }
    return e;
}

static enum err join_pairs(struct join *j, struct errinfo *ei)
{
    struct matched *matched = arena_calloc(&j->arena, j->signatures.count, sizeof *matched);
    enum err e = ERR_OK;

    if (matched == NULL)
        return arena_refused(&j->arena, ei);
    for (size_t s = 0; s < j->signatures.count; s++)
        label_table_init(&matched[s].by_labels, &j->arena);
    for (size_t a = 0; a < j->many.vector->count && e == ERR_OK; a++) {
        size_t s = j->many.signature[a];

        for (size_t b = j->one.first[s]; e == ERR_OK && b < j->one.first[s + 1]; b++)
            e = pair_join(j, &matched[s], &j->many.vector->rows[a],
                          &j->one.vector->rows[j->one.rows[b]], a, ei);
    }
    if (e == ERR_OK && j->matching->fill_right.given)
        e = fill_one_side(j, matched, ei);
    if (e == ERR_OK && j->matching->fill_left.given)
        e = fill_many_side(j, matched, ei);
    return e;
}

/* Forgets all steps from `step` on. */
static void vector_cut(struct vector *v, size_t step)
{
    for (size_t i = 0; i < v->count; i++) {
        v->rows[i].present[step / 64] &= (UINT64_C(1) << (step % 64)) - 1;
        for (size_t w = step / 64 + 1; w < grid_words(&v->grid); w++)
            v->rows[i].present[w] = 0;
    }
}

static enum err join_match(struct join *j, struct errinfo *ei)
{
    struct duplicate first;
    enum err e = vector_new(j->ev, &j->plan->grid, &j->out, ei);

    if (e == ERR_OK)
        e = one_side_check_all(j, &first, ei);
    if (e != ERR_OK)
        return e;
    if (first.step == SIZE_MAX)
        return join_pairs(j, ei);
    /* The query fails; an ambiguous match at an earlier step goes first. */
    if (first.step > 0) {
        vector_cut(j->many.vector, first.step);
        vector_cut(j->one.vector, first.step);
        e = join_pairs(j, ei);
    }
    if (e != ERR_OK)
        return e;
    return duplicate_refuse(j, &j->one.vector->rows[first.row], &j->one.vector->rows[first.earlier],
                            ei);
}

enum err eval_binary(struct eval *ev, const struct plan *p, struct vector *lhs, struct vector *rhs,
                     struct vector **out, struct errinfo *ei)
{
    const struct node *n = p->node;
    struct join j = {.ev = ev,
                     .plan = p,
                     .matching = &n->u.binary.matching,
                     .op = n->u.binary.op,
                     .return_bool = n->u.binary.return_bool,
                     .swapped = n->u.binary.matching.cardinality == MATCH_ONE_TO_MANY};
    enum err e;

    j.many.vector = j.swapped ? rhs : lhs;
    j.one.vector = j.swapped ? lhs : rhs;
    arena_init(&j.arena, ev->query->memory);
    e = join_prepare(&j, ei);
    if (e == ERR_OK)
        e = binary_op_is_set(j.op) ? join_set(&j, ei) : join_match(&j, ei);
    if (e == ERR_OK)
        e = pair_notes_annotate(ev, p, &j.notes, ei);
    if (e == ERR_OK) /* both sides come with all labels, whatever is needed above */
        e = vector_merge(j.out, ei);
    if (e == ERR_OK)
        e = vector_hold(j.out, ei);
    if (e == ERR_OK)
        *out = TAKE(j.out);
    if (j.out != lhs)
        vector_free(j.out);
    arena_done(&j.arena);
    return e;
}
