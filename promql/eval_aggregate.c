/*
 * Aggregations that fold: sum, avg, count, min, max, group, stddev, stdvar. Rows are folded into
 * their group's cells as they come, so that memory follows the number of groups.
 *
 * A stream may come in units (eval_selector.c): each unit is folded by itself and merged into the
 * total when it ends, in the order of the units, sum and compensation both. Units could therefore
 * be folded by several threads; what a fold does may not depend on the state of another unit.
 */
#include <string.h>

#include "promql/eval_internal.h"
#include "promql/label_sets_internal.h"

/* A group's state per step; which columns exist depends on the operator. */
struct cells {
    uint64_t *seen;        /* steps with at least one sample; NULL: nothing folded yet */
    uint64_t *incremental; /* avg: the sum has overflowed, `mean` counts */
    double *value;         /* sum, extremum, or sum of squares about the mean */
    double *compensation;  /* sum, avg */
    double *mean;          /* avg, stddev, stdvar */
    double *count;         /* avg, count, stddev, stdvar */
};

struct group {
    struct cells unit, total;
    bool drop_name;
};

/* Groups by the pointers of their label values, for rows whose strings stay: most rows then find
 * their group without touching the text. Direct-mapped; what does not fit is looked up. */
enum { POINTER_CACHE_BITS = 14, POINTER_CACHE_LABELS = 2 };

struct pointer_entry {
    uint32_t group; /* index + 1, 0: free */
    uint32_t label_count;
    const char *name[POINTER_CACHE_LABELS], *value[POINTER_CACHE_LABELS];
    size_t size[POINTER_CACHE_LABELS];
};

struct fold {
    struct sink sink;
    struct pointer_entry *pointers; /* NULL until a batch can use them */
    struct eval *ev;
    const struct plan *plan;
    enum aggregate_op op;
    struct arena arena; /* groups, cells, keys; lives until the result is made */
    struct label_table keys;
    struct group *groups;
    size_t group_capacity;
    struct str *names; /* sorted; of by or without */
    size_t name_count;
    uint32_t unit;
};

static bool op_has_count(enum aggregate_op op)
{
    return op == AGG_AVG || op == AGG_COUNT || op == AGG_STDDEV || op == AGG_STDVAR;
}

/* A zeroed column, if it is wanted. */
static enum err cells_column(struct fold *f, bool wanted, double **out, struct errinfo *ei)
{
    size_t count = f->plan->grid.count;

    if (!wanted)
        return ERR_OK;
    *out = ARENA_ARRAY(&f->arena, count, double);
    return *out == NULL ? arena_refused(&f->arena, ei) : eval_zero(f->ev, *out, count, ei);
}

static enum err cells_alloc(struct fold *f, struct cells *c, struct errinfo *ei)
{
    size_t words = grid_words(&f->plan->grid);
    enum aggregate_op op = f->op;
    enum err e;

    memset(c, 0, sizeof *c);
    e = cells_column(f, op != AGG_COUNT && op != AGG_GROUP, &c->value, ei);
    if (e == ERR_OK)
        e = cells_column(f, op == AGG_SUM || op == AGG_AVG, &c->compensation, ei);
    if (e == ERR_OK)
        e = cells_column(f, op == AGG_AVG || op == AGG_STDDEV || op == AGG_STDVAR, &c->mean, ei);
    if (e == ERR_OK)
        e = cells_column(f, op_has_count(op), &c->count, ei);
    if (e != ERR_OK)
        return e;
    if (op == AGG_AVG)
        c->incremental = arena_calloc(&f->arena, words, sizeof *c->incremental);
    c->seen = arena_calloc(&f->arena, words, sizeof *c->seen);
    if (c->seen == NULL || (op == AGG_AVG && c->incremental == NULL))
        return arena_refused(&f->arena, ei);
    return ERR_OK;
}

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

/* The common case of sums: both sides have the same steps. Without a branch per step. */
static void sum_add_dense(double *sum, double *compensation, const double *v, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        double s = sum[k], x = v[k], t = s + x;
        double error = fabs(s) >= fabs(x) ? (s - t) + x : (x - t) + s;

        compensation[k] = isinf(t) ? 0 : compensation[k] + error;
        sum[k] = t;
    }
}

/* Steps [begin, end); `begin` is that of a word. */
static void row_fold(enum aggregate_op op, struct cells *c, const struct row *row, size_t begin,
                     size_t end)
{
    for (size_t word = begin / 64; word * 64 < end; word++) {
        uint64_t present = row->present[word], fresh = present & ~c->seen[word];
        size_t base = word * 64, left = end - base < 64 ? end - base : 64;

        /* With the same steps on both sides the absent ones are added as well: their cells mean
         * nothing. */
        if (op == AGG_SUM && present == c->seen[word]) {
            sum_add_dense(c->value + base, c->compensation + base, row->value + base, left);
            continue;
        }
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

/* --- merging a unit into the total --- */

static void avg_merge(struct cells *to, const struct cells *from, size_t k)
{
    double n1 = to->count[k], n2 = from->count[k], n = n1 + n2;
    bool incremental = bit(to->incremental, k) || bit(from->incremental, k);
    double sum = to->value[k], compensation = to->compensation[k];
    double mean1, mean2, c1, c2;

    to->count[k] = n;
    if (!incremental) {
        kahan_add(from->value[k], &sum, &compensation);
        if (!isinf(sum)) {
            to->value[k] = sum;
            to->compensation[k] = compensation + from->compensation[k];
            return;
        }
    }
    mean1 = bit(to->incremental, k) ? to->mean[k] : to->value[k] / n1;
    mean2 = bit(from->incremental, k) ? from->mean[k] : from->value[k] / n2;
    c1 = bit(to->incremental, k) ? to->compensation[k] : to->compensation[k] / n1;
    c2 = bit(from->incremental, k) ? from->compensation[k] : from->compensation[k] / n2;
    bit_set(to->incremental, k);
    to->mean[k] = mean1 * (n1 / n);
    to->compensation[k] = c1 * (n1 / n) + c2 * (n2 / n);
    kahan_add(mean2 * (n2 / n), &to->mean[k], &to->compensation[k]);
}

/* Chan, Golub and LeVeque's update for two partial variances. */
static void variance_merge(struct cells *to, const struct cells *from, size_t k)
{
    double n1 = to->count[k], n2 = from->count[k], n = n1 + n2;
    double delta = from->mean[k] - to->mean[k];

    to->value[k] += from->value[k] + delta * delta * (n1 * n2 / n);
    to->mean[k] += delta * (n2 / n);
    to->count[k] = n;
}

static void cell_merge(enum aggregate_op op, struct cells *to, const struct cells *from, size_t k)
{
    switch (op) {
    case AGG_SUM:
        kahan_add(from->value[k], &to->value[k], &to->compensation[k]);
        if (!isinf(to->value[k]))
            to->compensation[k] += from->compensation[k];
        break;
    case AGG_AVG:
        avg_merge(to, from, k);
        break;
    case AGG_STDDEV:
    case AGG_STDVAR:
        variance_merge(to, from, k);
        break;
    case AGG_COUNT:
        to->count[k] += from->count[k];
        break;
    case AGG_MIN:
    case AGG_MAX:
        cell_add(op, to, k, from->value[k]);
        break;
    default:
        break;
    }
}

static void cell_copy(struct cells *to, const struct cells *from, size_t k)
{
    if (to->value != NULL)
        to->value[k] = from->value[k];
    if (to->compensation != NULL)
        to->compensation[k] = from->compensation[k];
    if (to->mean != NULL)
        to->mean[k] = from->mean[k];
    if (to->count != NULL)
        to->count[k] = from->count[k];
    if (to->incremental != NULL && bit(from->incremental, k))
        bit_set(to->incremental, k);
}

static void cells_merge(enum aggregate_op op, struct cells *to, const struct cells *from,
                        size_t begin, size_t end)
{
    for (size_t k = begin; k < end; k++) {
        if (!bit(from->seen, k))
            continue;
        if (bit(to->seen, k))
            cell_merge(op, to, from, k);
        else
            cell_copy(to, from, k);
        bit_set(to->seen, k);
    }
}

/* The common case: sums, both with the same steps. False: not that case. */
static bool sums_merge_dense(struct cells *to, const struct cells *from, size_t begin, size_t end)
{
    for (size_t word = begin / 64; word * 64 < end; word++) {
        if (to->seen[word] != from->seen[word])
            return false;
    }
    sum_add_dense(to->value + begin, to->compensation + begin, from->value + begin, end - begin);
    for (size_t k = begin; k < end; k++)
        to->compensation[k] += isinf(to->value[k]) ? 0 : from->compensation[k];
    return true;
}

static enum err unit_merge(struct fold *f, struct errinfo *ei)
{
    const struct grid *grid = &f->plan->grid;
    enum err e = ERR_OK;

    for (size_t i = 0; i < f->keys.count && e == ERR_OK; i++) {
        struct group *g = &f->groups[i];

        if (g->unit.seen == NULL)
            continue;
        if (g->total.seen == NULL) {
            g->total = g->unit;
            g->unit = (struct cells){0};
            continue;
        }
        for (size_t k = 0, end; e == ERR_OK && k < grid->count; k = end) {
            e = eval_piece(f->ev, k, grid->count, &end, ei);
            if (e == ERR_OK && (f->op != AGG_SUM || !sums_merge_dense(&g->total, &g->unit, k, end)))
                cells_merge(f->op, &g->total, &g->unit, k, end);
        }
        memset(g->unit.seen, 0, grid_words(grid) * sizeof *g->unit.seen);
        if (g->unit.incremental != NULL)
            memset(g->unit.incremental, 0, grid_words(grid) * sizeof *g->unit.incremental);
    }
    return e == ERR_OK ? eval_tick(f->ev, f->keys.count, ei) : e;
}

/* --- groups --- */

static bool labels_within(const struct labels *l, const struct str *names, size_t count)
{
    if (l->count > count)
        return false;
    for (size_t i = 0; i < l->count; i++) {
        if (!names_contain(names, count, l->items[i].name))
            return false;
    }
    return true;
}

static enum err group_key(struct fold *f, const struct labels *in, struct arena *arena,
                          struct labels *out, struct errinfo *ei)
{
    if (f->plan->node->u.aggregate.without)
        return labels_drop(in, f->names, f->name_count, arena, out, ei);
    if (labels_within(in, f->names, f->name_count)) {
        *out = *in;
        return ERR_OK;
    }
    return labels_keep(in, f->names, f->name_count, arena, out, ei);
}

static enum err group_find(struct fold *f, const struct row *row, struct arena *arena,
                           struct group **out, struct errinfo *ei)
{
    struct labels key;
    size_t index;
    bool added;
    enum err e = group_key(f, &row->labels, arena, &key, ei);

    if (e == ERR_OK)
        e = label_table_add(&f->keys, &key, &index, &added, ei);
    if (e != ERR_OK)
        return e;
    if (f->keys.count > f->group_capacity) {
        size_t capacity = f->group_capacity == 0 ? 16 : f->group_capacity * 2;

        f->groups =
            arena_grow_array(&f->arena, f->groups, f->group_capacity, capacity, sizeof *f->groups);
        if (f->groups == NULL)
            return arena_refused(&f->arena, ei);
        f->group_capacity = capacity;
    }
    if (added)
        memset(&f->groups[index], 0, sizeof f->groups[index]);
    *out = &f->groups[index];
    return ERR_OK;
}

static struct pointer_entry *pointer_slot(struct fold *f, const struct labels *l)
{
    uint64_t h = 0;

    for (size_t i = 0; i < l->count; i++)
        h = (h ^ (uintptr_t)l->items[i].value.data) * 0x9e3779b97f4a7c15U;
    return &f->pointers[h >> (64 - POINTER_CACHE_BITS)];
}

static bool pointers_equal(const struct pointer_entry *p, const struct labels *l)
{
    if (p->group == 0 || p->label_count != l->count)
        return false;
    for (size_t i = 0; i < l->count; i++) {
        if (p->value[i] != l->items[i].value.data || p->size[i] != l->items[i].value.size ||
            p->name[i] != l->items[i].name.data)
            return false;
    }
    return true;
}

/* group_find() through the cache of pointers. */
static enum err group_find_stable(struct fold *f, const struct row *row, struct arena *arena,
                                  struct group **out, struct errinfo *ei)
{
    const struct labels *l = &row->labels;
    struct pointer_entry *p;
    enum err e;

    if (l->count > POINTER_CACHE_LABELS)
        return group_find(f, row, arena, out, ei);
    if (f->pointers == NULL)
        f->pointers = arena_calloc(&f->arena, (size_t)1 << POINTER_CACHE_BITS, sizeof *f->pointers);
    if (f->pointers == NULL)
        return arena_refused(&f->arena, ei);
    p = pointer_slot(f, l);
    if (pointers_equal(p, l)) {
        *out = &f->groups[p->group - 1];
        return ERR_OK;
    }
    e = group_find(f, row, arena, out, ei);
    if (e != ERR_OK)
        return e;
    p->group = (uint32_t)(*out - f->groups) + 1;
    p->label_count = (uint32_t)l->count;
    for (size_t i = 0; i < l->count; i++) {
        p->name[i] = l->items[i].name.data;
        p->value[i] = l->items[i].value.data;
        p->size[i] = l->items[i].value.size;
    }
    return ERR_OK;
}

static enum err fold_push(struct sink *sink, struct batch *b, struct errinfo *ei)
{
    struct fold *f = (struct fold *)sink;
    enum err e = ERR_OK;

    if (b->unit != f->unit) {
        e = unit_merge(f, ei);
        f->unit = b->unit;
    }
    for (size_t i = 0; i < b->count && e == ERR_OK; i++) {
        struct group *g;

        if (b->stable_strings)
            e = group_find_stable(f, &b->rows[i], b->arena, &g, ei);
        else
            e = group_find(f, &b->rows[i], b->arena, &g, ei);
        if (e == ERR_OK && g->unit.seen == NULL)
            e = cells_alloc(f, &g->unit, ei);
        if (e != ERR_OK)
            break;
        g->drop_name = g->drop_name || b->rows[i].drop_name;
        for (size_t k = 0, end; e == ERR_OK && k < b->grid->count; k = end) {
            e = eval_piece(f->ev, k, b->grid->count, &end, ei);
            if (e == ERR_OK)
                row_fold(f->op, &g->unit, &b->rows[i], k, end);
        }
    }
    return e;
}

/* --- the result --- */

static double cell_result(enum aggregate_op op, const struct cells *c, size_t k)
{
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

static enum err fold_result(struct fold *f, struct vector **out, struct errinfo *ei)
{
    const struct grid *grid = &f->plan->grid;
    struct vector *v = NULL;
    enum err e = vector_new(f->ev, grid, &v, ei);

    for (size_t i = 0; e == ERR_OK && i < f->keys.count; i++) {
        const struct group *g = &f->groups[i];
        struct row *row;

        e = vector_add(v, &row, ei);
        if (e == ERR_OK)
            e = labels_copy(&f->keys.keys[i], &v->arena, &row->labels, ei);
        if (e != ERR_OK)
            break;
        row->drop_name = g->drop_name;
        memcpy(row->present, g->total.seen, grid_words(grid) * sizeof *row->present);
        for (size_t at = 0, end; e == ERR_OK && at < grid->count; at = end) {
            e = eval_piece(f->ev, at, grid->count, &end, ei);
            for (size_t k = at; e == ERR_OK && k < end; k++) {
                if (row_has(row, k))
                    row->value[k] = cell_result(f->op, &g->total, k);
            }
        }
    }
    /* Groups stand in the order of their first member where series came by labels; otherwise that
     * order means nothing. */
    if (e == ERR_OK && (f->unit != 0 || f->plan->input->order == ORDER_ANY))
        e = vector_sort_labels(v, ei);
    if (e == ERR_OK)
        e = vector_hold(v, ei);
    if (e == ERR_OK)
        *out = TAKE(v);
    vector_free(v);
    return e;
}

/* The names of by(), or those that without() removes. */
static enum err fold_names(struct fold *f, struct errinfo *ei)
{
    const struct node *n = f->plan->node;
    size_t count = n->u.aggregate.label_count;
    struct str *names = ARENA_ARRAY(&f->arena, count + 1, struct str);

    if (names == NULL)
        return arena_refused(&f->arena, ei);
    for (size_t i = 0; i < count; i++)
        names[i] = n->u.aggregate.labels[i];
    if (n->u.aggregate.without)
        names[count++] = LABEL_METRIC_NAME;
    return names_sort(names, count, &f->arena, &f->names, &f->name_count, ei);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_aggregate(struct eval *ev, const struct plan *p, struct vector **out,
                        struct errinfo *ei)
{
    struct fold f = {.sink.push = fold_push, .ev = ev, .plan = p, .op = p->node->u.aggregate.op};
    enum err e;

    if (f.op == AGG_TOPK || f.op == AGG_BOTTOMK || f.op == AGG_QUANTILE || f.op == AGG_COUNT_VALUES)
        return eval_group_select(ev, p, out, ei);
    arena_init(&f.arena, ev->query->memory);
    label_table_init(&f.keys, &f.arena);
    e = fold_names(&f, ei);
    if (e == ERR_OK)
        e = eval_stream(ev, p->input, &f.sink, ei);
    if (e == ERR_OK)
        e = unit_merge(&f, ei);
    if (e == ERR_OK)
        e = fold_result(&f, out, ei);
    arena_done(&f.arena);
    return e;
}
