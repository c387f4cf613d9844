/*
 * histogram_quantile() and histogram_fraction() on classic histograms: series with an `le` label.
 * The rules for merging equal bounds, for forced monotonicity and for the borders are Prometheus's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/float_text.h"
#include "promql/histogram_classic_internal.h"
#include "promql/label_sets_internal.h"
#include "promql/text_internal.h"

/* Relative differences below this are rounding errors of sums, not decreases. */
static const double small_delta = 1e-12;

static bool nearly_equal(double a, double b)
{
    const double normal_min = 0x1p-1022;
    double sum, diff;

    if (a == b || (isnan(a) && isnan(b)))
        return true;
    sum = fabs(a) + fabs(b);
    diff = fabs(a - b);
    if (a == 0 || b == 0 || sum < normal_min)
        return diff < small_delta * normal_min;
    return diff / fmin(sum, 0x1.fffffffffffffp1023) < small_delta;
}

/* Buckets with the same bound become one. */
static size_t buckets_coalesce(struct bucket *b, size_t count)
{
    size_t n = 0;

    for (size_t i = 1; i < count; i++) {
        if (b[i].upper_bound == b[n].upper_bound)
            b[n].count += b[i].count;
        else
            b[++n] = b[i];
    }
    return n + 1;
}

static bool buckets_make_monotonic(struct bucket *b, size_t count, struct monotonicity_fix *fix)
{
    double highest = b[0].count;
    bool forced = false;

    *fix = (struct monotonicity_fix){.min_bucket = INFINITY, .max_bucket = -INFINITY};
    for (size_t i = 1; i < count; i++) {
        double c = b[i].count;

        if (c == highest)
            continue;
        if (!nearly_equal(highest, c) && !(c < highest)) {
            highest = c;
            continue;
        }
        if (!nearly_equal(highest, c)) {
            forced = true;
            fix->min_bucket = fmin(fix->min_bucket, b[i].upper_bound);
            fix->max_bucket = fmax(fix->max_bucket, b[i].upper_bound);
            fix->max_diff = fmax(fix->max_diff, highest - c);
        }
        b[i].count = highest;
    }
    return forced;
}

/* The first of `count` buckets that reaches `rank`, or `count`. Counts rise, so a search by halves
 * finds what a walk finds; where a count is NaN it finds what Prometheus's search by halves does.
 */
static size_t bucket_find(const struct bucket *b, size_t count, double rank)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (b[middle].count >= rank)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

double buckets_quantile(double q, struct bucket *b, size_t count, bool *forced,
                        struct monotonicity_fix *fix)
{
    double rank, start = 0, end, in_bucket;
    size_t i;

    *forced = false;
    if (isnan(q))
        return NAN;
    if (q < 0)
        return -INFINITY;
    if (q > 1)
        return INFINITY;
    if (count == 0 || b[count - 1].upper_bound != INFINITY)
        return NAN;
    count = buckets_coalesce(b, count);
    *forced = buckets_make_monotonic(b, count, fix);
    if (count < 2 || b[count - 1].count == 0)
        return NAN;
    rank = q * b[count - 1].count;
    i = bucket_find(b, count - 1, rank);
    if (i == count - 1)
        return b[count - 2].upper_bound; /* in the +Inf bucket: its lower bound */
    if (i == 0 && b[0].upper_bound <= 0)
        return b[0].upper_bound;
    end = b[i].upper_bound;
    in_bucket = b[i].count;
    if (i > 0) {
        start = b[i - 1].upper_bound;
        in_bucket -= b[i - 1].count;
        rank -= b[i - 1].count;
    }
    return start + (end - start) * (rank / in_bucket);
}

/* Observations up to `v`, interpolated in the bucket that holds it; beyond the last one, all. */
static double buckets_rank(const struct bucket *b, size_t count, double v)
{
    double lower = b[0].upper_bound <= 0 ? -INFINITY : 0, rank = 0;

    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            lower = b[i - 1].upper_bound;
        if (lower >= v)
            return rank;
        if (b[i].upper_bound > v) {
            if (isinf(lower))
                return b[i].count;
            return rank + (b[i].count - rank) * (v - lower) / (b[i].upper_bound - lower);
        }
        rank = b[i].count;
    }
    return b[count - 1].count;
}

double buckets_fraction(double lower, double upper, struct bucket *b, size_t count)
{
    double total, below, up_to;

    if (count == 0 || b[count - 1].upper_bound != INFINITY)
        return NAN;
    count = buckets_coalesce(b, count);
    total = b[count - 1].count;
    if (total == 0 || isnan(lower) || isnan(upper))
        return NAN;
    if (lower >= upper)
        return 0;
    below = buckets_rank(b, count, lower);
    up_to = buckets_rank(b, count, upper);
    if (below > total)
        below = total;
    if (up_to > total)
        up_to = total;
    return (up_to - below) / total;
}

/* --- the operator --- */

struct bucket_row {
    double upper_bound;
    size_t group, row;
};

struct histogram_run {
    struct eval *ev;
    const struct plan *plan;
    struct vector *in, *out;
    struct arena arena;
    struct label_table groups;
    struct bucket_row *buckets; /* sorted by group, then bound, then row */
    size_t bucket_count;
    struct bucket *scratch;
    double *first, *second; /* quantile; or lower and upper */
    const struct node *vector_arg;
};

static int bucket_row_compare(const void *a, const void *b, void *context)
{
    const struct bucket_row *x = a, *y = b;

    (void)context; /* buckets need none */
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->upper_bound != y->upper_bound)
        return x->upper_bound < y->upper_bound ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* A series without a usable `le`. */
static enum err annotate_bad_bucket(struct histogram_run *r, const struct labels *labels,
                                    struct str le, struct errinfo *ei)
{
    struct str name = labels_get(labels, LABEL_METRIC_NAME);
    bool with_name = r->ev->delayed_names && name.size > 0;

    return annotations_add(&r->ev->annotations, ANNOTATION_WARNING, r->vector_arg->position, ei,
                           "bucket label \"le\" is missing or has a malformed value of %s%s%s",
                           text_quote(le, &r->arena), with_name ? " for metric name " : "",
                           with_name ? text_quote(name, &r->arena) : "");
}

static enum err buckets_collect(struct histogram_run *r, struct errinfo *ei)
{
    const struct str le_name = STR_LITERAL("le");
    enum err e = ERR_OK;

    r->buckets = ARENA_ARRAY(&r->arena, r->in->count, struct bucket_row);
    r->scratch = ARENA_ARRAY(&r->arena, r->in->count, struct bucket);
    if (r->buckets == NULL || r->scratch == NULL)
        return arena_refused(&r->arena, ei);
    label_table_init(&r->groups, &r->arena);
    for (size_t i = 0; i < r->in->count && e == ERR_OK; i++) {
        const struct labels *labels = &r->in->rows[i].labels;
        struct str le = labels_get(labels, le_name);
        struct bucket_row *b = &r->buckets[r->bucket_count];
        struct labels key;
        bool added;

        if (!float_parse(le, &b->upper_bound)) {
            e = annotate_bad_bucket(r, labels, le, ei);
            if (e == ERR_OK)
                e = eval_tick(r->ev, 16, ei);
            continue;
        }
        b->row = i;
        e = labels_with(labels, le_name, (struct str){NULL, 0}, &r->arena, &key, ei);
        if (e == ERR_OK)
            e = label_table_add(&r->groups, &key, &b->group, &added, ei);
        r->bucket_count++;
        if (e == ERR_OK)
            e = eval_tick(r->ev, 16, ei);
    }
    if (e == ERR_OK)
        e = eval_sort_items(r->ev, r->buckets, r->bucket_count, sizeof *r->buckets,
                            bucket_row_compare, NULL, ei);
    return e;
}

/* The histogram of buckets [begin, end) at one step. */
static enum err step_compute(struct histogram_run *r, const struct bucket_row *begin,
                             const struct bucket_row *end, size_t k, struct row *row,
                             struct errinfo *ei)
{
    struct monotonicity_fix fix;
    struct str name = {NULL, 0};
    size_t count = 0;
    bool forced;

    for (const struct bucket_row *b = begin; b < end; b++) {
        const struct row *in = &r->in->rows[b->row];

        if (row_has(in, k))
            r->scratch[count++] = (struct bucket){b->upper_bound, in->value[k]};
    }
    if (count == 0)
        return ERR_OK;
    if (r->plan->function->id == FUNCTION_HISTOGRAM_FRACTION) {
        row_set(row, k, buckets_fraction(r->first[k], r->second[k], r->scratch, count));
        return ERR_OK;
    }
    row_set(row, k, buckets_quantile(r->first[k], r->scratch, count, &forced, &fix));
    if (!forced)
        return ERR_OK;
    fix.t_ms = grid_time_ms(&r->plan->grid, k);
    if (r->ev->delayed_names)
        name = labels_get(&row->labels, LABEL_METRIC_NAME);
    return annotations_add_monotonicity(&r->ev->annotations, r->vector_arg->position, name, &fix,
                                        ei);
}

static enum err groups_compute(struct histogram_run *r, struct errinfo *ei)
{
    const struct bucket_row *end = r->buckets + r->bucket_count, *next;
    enum err e = vector_new(r->ev, &r->plan->grid, &r->out, ei);

    for (const struct bucket_row *b = r->buckets; b < end && e == ERR_OK; b = next) {
        struct row *row;

        for (next = b; next < end && next->group == b->group;)
            next++;
        e = vector_add(r->out, &row, ei);
        if (e == ERR_OK)
            e = labels_copy(&r->groups.keys[b->group], &r->out->arena, &row->labels, ei);
        for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
            e = step_compute(r, b, next, k, row, ei);
            if (e == ERR_OK)
                e = eval_tick(r->ev, 2 * (uint64_t)(next - b), ei);
        }
        if (e == ERR_OK && r->ev->delayed_names)
            row->drop_name = true;
        else if (e == ERR_OK)
            e = labels_without_metadata(&row->labels, &r->out->arena, &row->labels, ei);
    }
    return e;
}

static enum err arguments_read(struct histogram_run *r, struct errinfo *ei)
{
    const struct node *n = r->plan->node;
    enum err e = eval_scalar(r->ev, r->plan->parameter, &r->arena, &r->first, ei);

    if (r->plan->function->id == FUNCTION_HISTOGRAM_FRACTION) {
        r->vector_arg = node_unwrap(n->u.call.args[2]);
        return e == ERR_OK ? eval_scalar(r->ev, r->plan->parameter2, &r->arena, &r->second, ei) : e;
    }
    r->vector_arg = node_unwrap(n->u.call.args[1]);
    for (size_t k = 0; k < r->plan->grid.count && e == ERR_OK; k++) {
        double q = r->first[k];

        e = eval_tick(r->ev, 1, ei);
        if (e != ERR_OK)
            break;
        if (!(q >= 0 && q <= 1) && (k == 0 || double_bits(q) != double_bits(r->first[k - 1])))
            e = annotations_add_quantile(&r->ev->annotations,
                                         node_unwrap(n->u.call.args[0])->position, q, ei);
    }
    return e;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the tree, PROMQL_DEPTH_MAX. */
enum err eval_histogram(struct eval *ev, const struct plan *p, struct vector **out,
                        struct errinfo *ei)
{
    struct histogram_run r = {.ev = ev, .plan = p};
    enum err e;

    arena_init(&r.arena, ev->query->memory);
    e = arguments_read(&r, ei);
    if (e == ERR_OK)
        e = eval_vector(ev, p->input, &r.in, ei);
    if (e == ERR_OK)
        e = buckets_collect(&r, ei);
    if (e == ERR_OK)
        e = groups_compute(&r, ei);
    if (e == ERR_OK)
        e = vector_merge(r.out, ei);
    if (e == ERR_OK)
        e = vector_hold(r.out, ei);
    if (e == ERR_OK)
        *out = TAKE(r.out);
    vector_free(r.out);
    vector_free(r.in);
    arena_done(&r.arena);
    return e;
}
