/*
 * See fold_cells_internal.h.
 */
#include "promql/eval/fold_cells_internal.h"

#include <string.h>

#include "promql/eval/pairs_internal.h"

bool fold_takes_any_order(enum aggregate_op op)
{
    return op != AGG_STDDEV && op != AGG_STDVAR;
}

static bool op_has_count(enum aggregate_op op)
{
    return op == AGG_AVG || op == AGG_COUNT || op == AGG_STDDEV || op == AGG_STDVAR;
}

static bool op_sums(enum aggregate_op op)
{
    return op == AGG_SUM || op == AGG_AVG;
}

/* A zeroed column, if it is wanted. */
static enum err column_alloc(struct eval *ev, bool wanted, size_t count, struct arena *arena,
                             double **out, struct errinfo *ei)
{
    if (!wanted)
        return ERR_OK;
    *out = ARENA_ARRAY(arena, count, double);
    return *out == NULL ? arena_refused(arena, ei) : eval_zero(ev, *out, count, ei);
}

enum err cells_alloc(struct eval *ev, enum aggregate_op op, bool any_order, size_t count,
                     struct arena *arena, struct cells *c, struct errinfo *ei)
{
    size_t words = (count + 63) / 64;
    bool is_exact = any_order && op_sums(op);
    enum err e;

    memset(c, 0, sizeof *c);
    if (is_exact)
        exact_sums_init(&c->sums, count, arena);
    e = column_alloc(ev, op != AGG_COUNT && op != AGG_GROUP && !is_exact, count, arena, &c->value,
                     ei);
    if (e == ERR_OK)
        e = column_alloc(ev, op_sums(op) && !is_exact, count, arena, &c->compensation, ei);
    if (e == ERR_OK)
        e = column_alloc(ev, (op == AGG_AVG || !fold_takes_any_order(op)) && !is_exact, count,
                         arena, &c->mean, ei);
    if (e == ERR_OK)
        e = column_alloc(ev, op_has_count(op), count, arena, &c->count, ei);
    if (e != ERR_OK)
        return e;
    if (op == AGG_AVG && !is_exact)
        c->incremental = arena_calloc(arena, words, sizeof *c->incremental);
    c->seen = arena_calloc(arena, words, sizeof *c->seen);
    if (c->seen == NULL || (op == AGG_AVG && !is_exact && c->incremental == NULL))
        return arena_refused(arena, ei);
    return ERR_OK;
}

/* --- in the order of labels --- */

static bool bit(const uint64_t *bits, size_t k)
{
    return (bits[k / 64] >> (k % 64)) & 1;
}

static void bit_set(uint64_t *bits, size_t k)
{
    bits[k / 64] |= UINT64_C(1) << (k % 64);
}

/* Adds one value to a mean that could no longer be kept as a sum. */
static void incremental_add(struct cells *c, size_t k, double v)
{
    double q = (c->count[k] - 1) / c->count[k];

    c->mean[k] *= q;
    c->compensation[k] *= q;
    kahan_add(v / c->count[k], &c->mean[k], &c->compensation[k]);
}

static void avg_add(struct cells *c, size_t k, double v)
{
    double sum = c->value[k], compensation = c->compensation[k];

    c->count[k]++;
    if (!bit(c->incremental, k)) {
        kahan_add(v, &sum, &compensation);
        if (!isinf(sum)) {
            c->value[k] = sum;
            c->compensation[k] = compensation;
            return;
        }
        bit_set(c->incremental, k);
        c->mean[k] = c->value[k] / (c->count[k] - 1);
        c->compensation[k] /= c->count[k] - 1;
    }
    incremental_add(c, k, v);
}

/* The first sample of a cell. */
static void cell_start(enum aggregate_op op, struct cells *c, size_t k, double v)
{
    switch (op) {
    case AGG_SUM:
        c->value[k] = v;
        c->compensation[k] = 0;
        break;
    case AGG_AVG:
        c->value[k] = v;
        c->compensation[k] = 0;
        c->count[k] = 1;
        break;
    case AGG_STDDEV:
    case AGG_STDVAR:
        c->value[k] = isfinite(v) ? 0 : NAN;
        c->mean[k] = v;
        c->count[k] = 1;
        break;
    case AGG_COUNT:
        c->count[k] = 1;
        break;
    case AGG_MIN:
    case AGG_MAX:
        c->value[k] = v;
        break;
    default:
        break;
    }
}

static void cell_add(enum aggregate_op op, struct cells *c, size_t k, double v)
{
    double delta;

    switch (op) {
    case AGG_SUM:
        kahan_add(v, &c->value[k], &c->compensation[k]);
        break;
    case AGG_AVG:
        avg_add(c, k, v);
        break;
    case AGG_STDDEV:
    case AGG_STDVAR:
        c->count[k]++;
        delta = v - c->mean[k];
        c->mean[k] += delta / c->count[k];
        c->value[k] += delta * (v - c->mean[k]);
        break;
    case AGG_COUNT:
        c->count[k]++;
        break;
    case AGG_MIN:
        if (c->value[k] > v || isnan(c->value[k]))
            c->value[k] = v;
        break;
    case AGG_MAX:
        if (c->value[k] < v || isnan(c->value[k]))
            c->value[k] = v;
        break;
    default:
        break;
    }
}

/* The common case of sums and means: both sides have the same steps. kahan_add() for two steps at a
 * time, without a branch. */
static void sum_add_dense(double *sum, double *compensation, const double *v, size_t count)
{
    size_t k = 0;

    for (; k + 2 <= count; k += 2) {
        pair s = pair_load(sum + k), x = pair_load(v + k), t = s + x;
        pair_mask larger = pair_abs(s) >= pair_abs(x);
        pair high = pair_select(larger, s, x), low = pair_select(larger, x, s);
        pair more = pair_load(compensation + k) + ((high - t) + low);

        pair_store(compensation + k, pair_select(pair_abs(t) == INFINITY, (pair){0, 0}, more));
        pair_store(sum + k, t);
    }
    for (; k < count; k++)
        kahan_add(v[k], &sum[k], &compensation[k]);
}

/* Whether no sum of two columns is infinite: all are then kept as sums, not as means. */
static bool sums_stay_finite(const double *sum, const double *v, size_t count)
{
    pair_mask infinite = {0, 0};
    size_t k = 0;

    for (; k + 2 <= count; k += 2)
        infinite |= pair_abs(pair_load(sum + k) + pair_load(v + k)) == INFINITY;
    return !pair_any(infinite) && (k == count || !isinf(sum[k] + v[k]));
}

/* A whole word of steps at once; false where its cells must be gone through. With the same steps on
 * both sides the absent ones are added as well: their cells mean nothing. */
static bool word_fold(enum aggregate_op op, struct cells *c, size_t word, uint64_t present,
                      const double *v, size_t count)
{
    size_t base = word * 64;

    if (present == 0)
        return true;
    if (op != AGG_SUM && op != AGG_AVG)
        return false;
    if (c->seen[word] == 0 && present == ~UINT64_C(0) >> (64 - count)) { /* the first row */
        memcpy(c->value + base, v, count * sizeof *v);
        memset(c->compensation + base, 0, count * sizeof *v);
        for (size_t k = 0; op == AGG_AVG && k < count; k++)
            c->count[base + k] = 1;
        c->seen[word] = present;
        return true;
    }
    if (present != c->seen[word])
        return false;
    if (op == AGG_AVG) {
        if (c->incremental[word] != 0 || !sums_stay_finite(c->value + base, v, count))
            return false;
        for (size_t k = 0; k < count; k++)
            c->count[base + k]++;
    }
    sum_add_dense(c->value + base, c->compensation + base, v, count);
    return true;
}

/* Steps [begin, end); `begin` is that of a word. */
static void ordered_fold(enum aggregate_op op, struct cells *c, const struct row *row, size_t begin,
                         size_t end)
{
    for (size_t word = begin / 64; word * 64 < end; word++) {
        uint64_t present = row->present[word], fresh = present & ~c->seen[word];
        size_t base = word * 64, left = end - base < 64 ? end - base : 64;

        if (word_fold(op, c, word, present, row->value + base, left))
            continue;
        c->seen[word] |= present;
        for (; present != 0; present &= present - 1) {
            size_t k = base + (size_t)__builtin_ctzll(present);

            if (fresh & (present & -present))
                cell_start(op, c, k, row->value[k]);
            else
                cell_add(op, c, k, row->value[k]);
        }
    }
}

/* --- in any order --- */

static bool extremum_replaces(enum aggregate_op op, double old, double v)
{
    if (isnan(old))
        return !isnan(v) || double_bits(v) < double_bits(old);
    if (v == old) /* zeros */
        return (op == AGG_MIN) == (signbit(v) > signbit(old)) && signbit(v) != signbit(old);
    return op == AGG_MIN ? v < old : v > old;
}

static void extremum_add(enum aggregate_op op, struct cells *c, const uint64_t *present,
                         const double *value, size_t begin, size_t end)
{
    for (size_t word = begin / 64; word * 64 < end; word++) {
        for (uint64_t bits = present[word]; bits != 0; bits &= bits - 1) {
            size_t k = word * 64 + (size_t)__builtin_ctzll(bits);

            if (!bit(c->seen, k) || extremum_replaces(op, c->value[k], value[k]))
                c->value[k] = value[k];
        }
    }
}

static void count_add(struct cells *c, const uint64_t *present, size_t begin, size_t end)
{
    for (size_t k = begin; k < end; k++)
        c->count[k] += (double)((present[k / 64] >> (k % 64)) & 1);
}

/* Steps [begin, end); `begin` is that of a word. */
static bool free_fold(enum aggregate_op op, struct cells *c, const struct row *row, size_t begin,
                      size_t end)
{
    if (op == AGG_MIN || op == AGG_MAX)
        extremum_add(op, c, row->present, row->value, begin, end);
    if (op_has_count(op))
        count_add(c, row->present, begin, end);
    for (size_t word = begin / 64; word * 64 < end; word++)
        c->seen[word] |= row->present[word];
    return !op_sums(op) || exact_sums_add(&c->sums, row->present, row->value, begin, end);
}

enum err cells_fold(struct eval *ev, enum aggregate_op op, bool any_order, struct cells *c,
                    const struct row *row, size_t count, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t k = 0, end; e == ERR_OK && k < count; k = end) {
        e = eval_piece(ev, k, count, &end, ei);
        if (e != ERR_OK)
            return e;
        if (!any_order)
            ordered_fold(op, c, row, k, end);
        else if (!free_fold(op, c, row, k, end))
            return arena_refused(c->sums.arena, ei);
    }
    return e;
}

enum err cells_merge(struct eval *ev, enum aggregate_op op, struct cells *to, struct cells *from,
                     size_t count, struct errinfo *ei)
{
    enum err e = eval_tick(ev, 4 * count, ei);

    if (e != ERR_OK)
        return e;
    if (op == AGG_MIN || op == AGG_MAX)
        extremum_add(op, to, from->seen, from->value, 0, count);
    for (size_t k = 0; op_has_count(op) && k < count; k++)
        to->count[k] += from->count[k];
    for (size_t word = 0; word * 64 < count; word++)
        to->seen[word] |= from->seen[word];
    if (op_sums(op) && !exact_sums_merge(&to->sums, &from->sums))
        return to->sums.arena->refused_bytes != 0 ? arena_refused(to->sums.arena, ei)
                                                  : arena_refused(from->sums.arena, ei);
    return ERR_OK;
}

/* --- the result --- */

static double cell_result(enum aggregate_op op, bool any_order, const struct cells *c, size_t k)
{
    if (any_order && op_sums(op))
        return exact_sums_get(&c->sums, k, op == AGG_AVG ? c->count[k] : 1);
    switch (op) {
    case AGG_SUM:
        return c->value[k] + c->compensation[k];
    case AGG_AVG:
        if (bit(c->incremental, k))
            return c->mean[k] + c->compensation[k];
        return c->value[k] / c->count[k] + c->compensation[k] / c->count[k];
    case AGG_STDVAR:
        return c->value[k] / c->count[k];
    case AGG_STDDEV:
        return sqrt(c->value[k] / c->count[k]);
    case AGG_COUNT:
        return c->count[k];
    case AGG_MIN:
    case AGG_MAX:
        return c->value[k];
    default:
        return 1; /* group */
    }
}

enum err cells_result(struct eval *ev, enum aggregate_op op, bool any_order, struct cells *c,
                      size_t count, struct row *row, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (any_order && op_sums(op) && !exact_sums_finish(&c->sums))
        return arena_refused(c->sums.arena, ei);
    memcpy(row->present, c->seen, (count + 63) / 64 * sizeof *row->present);
    for (size_t at = 0, end; e == ERR_OK && at < count; at = end) {
        e = eval_piece(ev, at, count, &end, ei);
        for (size_t k = at; e == ERR_OK && k < end; k++) {
            if (row_has(row, k))
                row->value[k] = cell_result(op, any_order, c, k);
        }
    }
    return e;
}
