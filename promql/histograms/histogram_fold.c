/*
 * Sums and means of many native histograms: compensated, and a mean that goes over to a running one
 * where the sum would overflow.
 *
 * Prometheus adds into a copy each time, to look for an overflow before it keeps the sum. Here a
 * glance at the magnitudes spares the copy unless numbers are huge or not finite.
 */
#include <math.h>
#include <string.h>

#include "promql/eval/eval_internal.h"
#include "promql/histograms/histogram_internal.h"

/* Sums of this many such numbers stay finite, whatever merges on the way. */
#define SMALL_ENOUGH 0x1p960

static bool all_small(const double *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(v[i]) < SMALL_ENOUGH))
            return false;
    }
    return true;
}

static bool is_small(const struct histogram *h)
{
    return fabs(h->zero_count) < SMALL_ENOUGH && fabs(h->count) < SMALL_ENOUGH &&
           fabs(h->sum) < SMALL_ENOUGH &&
           all_small(h->positive.buckets, h->positive.bucket_count) &&
           all_small(h->negative.buckets, h->negative.bucket_count) &&
           all_small(h->custom_values, h->custom_count);
}

static bool any_infinite(const double *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (isinf(v[i]))
            return true;
    }
    return false;
}

static bool has_overflow(const struct histogram *h)
{
    return isinf(h->zero_count) || isinf(h->count) || isinf(h->sum) ||
           any_infinite(h->positive.buckets, h->positive.bucket_count) ||
           any_infinite(h->negative.buckets, h->negative.bucket_count) ||
           any_infinite(h->custom_values, h->custom_count);
}

static void note_hint(struct histogram_fold *f, const struct histogram *h)
{
    f->saw_reset |= h->hint == HISTOGRAM_HINT_RESET;
    f->saw_no_reset |= h->hint == HISTOGRAM_HINT_NOT_RESET;
}

enum err histogram_fold_init(struct histogram_fold *f, const struct histogram *h,
                             struct arena *arena)
{
    *f = (struct histogram_fold){.count = 1};
    note_hint(f, h);
    return histogram_copy(h, arena, &f->value);
}

static enum err low_parts_new(struct histogram_fold *f, struct arena *arena)
{
    if (f->has_low)
        return ERR_OK;
    f->low.positive = arena_calloc(arena, f->value.positive.bucket_count, sizeof(double));
    f->low.negative = arena_calloc(arena, f->value.negative.bucket_count, sizeof(double));
    if (f->low.positive == NULL || f->low.negative == NULL)
        return arena_error(arena, NULL);
    f->has_low = true;
    return ERR_OK;
}

static enum err fold_add(struct histogram_fold *f, const struct histogram *h, struct arena *arena)
{
    enum err e;

    if (histogram_is_custom(&f->value) != histogram_is_custom(h))
        return ERR_INVALID;
    e = low_parts_new(f, arena);
    if (e != ERR_OK)
        return e;
    return histogram_add_compensated(&f->value, h, &f->low, arena, &f->notes);
}

enum err histogram_fold_sum(struct histogram_fold *f, const struct histogram *h,
                            struct arena *arena)
{
    note_hint(f, h);
    f->count++;
    return fold_add(f, h, arena);
}

static void low_parts_scale(struct histogram_fold *f, double factor, bool divides)
{
    const struct {
        double *v;
        size_t n;
    } parts[] = {{&f->low.zero_count, 1},
                 {&f->low.count, 1},
                 {&f->low.sum, 1},
                 {f->low.positive, f->value.positive.bucket_count},
                 {f->low.negative, f->value.negative.bucket_count}};

    for (size_t i = 0; f->has_low && i < sizeof parts / sizeof parts[0]; i++) {
        for (size_t k = 0; k < parts[i].n; k++)
            parts[i].v[k] = divides ? parts[i].v[k] / factor : parts[i].v[k] * factor;
    }
}

static enum err copy_doubles(double **v, size_t n, struct arena *arena)
{
    double *copy = ARENA_ARRAY(arena, n, double);

    if (copy == NULL)
        return arena_error(arena, NULL);
    if (n > 0)
        memcpy(copy, *v, n * sizeof **v);
    *v = copy;
    return ERR_OK;
}

static enum err fold_copy(const struct histogram_fold *f, struct arena *arena,
                          struct histogram_fold *out)
{
    enum err e;

    *out = *f;
    e = histogram_copy(&f->value, arena, &out->value);
    if (e == ERR_OK && f->has_low)
        e = copy_doubles(&out->low.positive, f->value.positive.bucket_count, arena);
    if (e == ERR_OK && f->has_low)
        e = copy_doubles(&out->low.negative, f->value.negative.bucket_count, arena);
    return e;
}

/* Adds unless the sum overflows: *out_overflow, and the fold stays as it was. */
static enum err try_add(struct histogram_fold *f, const struct histogram *h, struct arena *arena,
                        bool *out_overflow)
{
    struct histogram_fold sum;
    enum err e;

    *out_overflow = false;
    if (is_small(&f->value) && is_small(h))
        return fold_add(f, h, arena);
    e = fold_copy(f, arena, &sum);
    if (e == ERR_OK)
        e = fold_add(&sum, h, arena);
    if (e != ERR_OK)
        return e;
    *out_overflow = has_overflow(&sum.value);
    if (*out_overflow)
        f->notes = sum.notes;
    else
        *f = sum;
    return ERR_OK;
}

enum err histogram_fold_mean(struct histogram_fold *f, const struct histogram *h,
                             struct arena *arena)
{
    struct histogram part;
    double share;
    enum err e;

    note_hint(f, h);
    f->count++;
    if (!f->is_mean) {
        bool overflow;

        e = try_add(f, h, arena, &overflow);
        if (e != ERR_OK || !overflow)
            return e;
        f->is_mean = true;
        histogram_divide(&f->value, f->count - 1);
        low_parts_scale(f, f->count - 1, true);
    }
    share = (f->count - 1) / f->count;
    low_parts_scale(f, share, false);
    histogram_multiply(&f->value, share);
    e = histogram_copy(h, arena, &part);
    if (e != ERR_OK)
        return e;
    histogram_divide(&part, f->count);
    return fold_add(f, &part, arena);
}

/* Low parts of buckets that the zero bucket covers are dropped, as an addition would. */
static void add_low_side(const struct histogram *h, const struct histogram_side *side,
                         const double *lows)
{
    struct histogram_cursor c;

    histogram_cursor_init(&c, side);
    while (histogram_cursor_next(&c)) {
        if (histogram_is_custom(h) ||
            !(histogram_bound_exponential(c.index, h->schema) <= h->zero_threshold))
            side->buckets[c.position] += lows[c.position];
    }
}

void histogram_fold_sum_end(struct histogram_fold *f)
{
    if (!f->has_low)
        return;
    f->value.zero_count += f->low.zero_count;
    f->value.count += f->low.count;
    f->value.sum += f->low.sum;
    add_low_side(&f->value, &f->value.positive, f->low.positive);
    add_low_side(&f->value, &f->value.negative, f->low.negative);
    f->has_low = false;
}

void histogram_fold_mean_end(struct histogram_fold *f)
{
    if (!f->is_mean) {
        histogram_divide(&f->value, f->count);
        low_parts_scale(f, f->count, true);
    }
    histogram_fold_sum_end(f);
}
