/*
 * Ranges with the modifiers anchored and smoothed: their windows reach one sample beyond their
 * borders, so that increases of adjacent ranges add up. An anchored range begins with the newest
 * sample at or before its start; a smoothed one takes what lies on straight lines between the
 * samples on both sides of its borders. How far they look is the lookback. See also Prometheus's
 * proposal PROM-52.
 */
#include <string.h>

#include "promql/eval/eval_range_internal.h"

/* The value at `t_ms` on the line through samples i and i + 1. A counter that was reset in between
 * has come from 0. */
static double interpolate(const struct column *c, size_t i, int64_t t_ms, bool is_counter)
{
    double from = c->value[i], to = c->value[i + 1];

    if (is_counter && to < from)
        from = 0;
    return from + (to - from) * (double)(t_ms - c->t_ms[i]) / (double)(c->t_ms[i + 1] - c->t_ms[i]);
}

/* A border of a range: samples [first, last] of the column take part. */
struct extended {
    size_t first, last;
    int64_t start_ms, end_ms;
    double left, right; /* values at the borders */
};

static void extended_borders(const struct column *c, bool smoothed, bool is_counter,
                             struct extended *x)
{
    x->left = c->value[x->first];
    x->right = c->value[x->last];
    if (smoothed && c->t_ms[x->first] < x->start_ms)
        x->left = interpolate(c, x->first, x->start_ms, is_counter);
    if (smoothed && x->last > x->first && c->t_ms[x->last] > x->end_ms)
        x->right = interpolate(c, x->last - 1, x->end_ms, is_counter);
}

/* Leaves the samples inside the borders: [*first, *end). */
static void extended_inside(const struct column *c, const struct extended *x, size_t *first,
                            size_t *end)
{
    *first = x->first + (c->t_ms[x->first] <= x->start_ms);
    *end = x->last + (c->t_ms[x->last] < x->end_ms);
}

/* What a counter had reached before each reset, from border to border. */
static double extended_resets(struct range_run *run, const struct column *c,
                              const struct extended *x)
{
    double before = x->left, lost = 0;
    size_t first, end;

    extended_inside(c, x, &first, &end);
    for (size_t i = first, piece_end; (piece_end = scan_piece(run, i, end)) > i;) {
        for (; i < piece_end; i++) {
            if (c->value[i] < before)
                lost += before;
            before = c->value[i];
        }
    }
    return x->right < before ? lost + before : lost;
}

static void column_extended(struct range_run *run, const struct column *c, struct row *row)
{
    const struct plan *p = run->plan;
    enum function_id id = p->function->id;
    bool is_counter = id != FUNCTION_DELTA;

    for (size_t k = 0; k < p->grid.count && run->failed == ERR_OK; k++) {
        struct span span = run->windows.spans[k];
        struct extended x = {.first = span.first, .last = span.end - 1};
        double result;

        run->failed = eval_tick(run->ev, 1 + span.end - span.first, run->ei);
        if (span.first == span.end)
            continue;
        x.end_ms = plan_reference_ms(p, &p->grid, k);
        x.start_ms = ms_subtract(x.end_ms, p->range_ms);
        extended_borders(c, p->extension == EXTENSION_SMOOTHED, is_counter, &x);
        result = x.right - x.left;
        if (is_counter)
            result += extended_resets(run, c, &x);
        if (id == FUNCTION_RATE)
            result /= run->range_seconds;
        row_set(row, k, result);
    }
}

static const struct range_function extended_function = {.column = column_extended};

enum err range_function_extended(enum range_extension extension,
                                 const struct promql_function *function,
                                 const struct range_function **out, struct errinfo *ei)
{
    bool smoothed = extension == EXTENSION_SMOOTHED;

    switch (function->id) {
    case FUNCTION_RATE:
    case FUNCTION_INCREASE:
    case FUNCTION_DELTA:
        *out = &extended_function;
        return ERR_OK;
    case FUNCTION_CHANGES:
    case FUNCTION_RESETS:
        if (smoothed)
            break;
        *out = range_function_find(function->id); /* anchored windows hold all they look at */
        return ERR_OK;
    default:
        break;
    }
    return errinfo_set(ei, ERR_EXECUTION, 0, "%s modifier can only be used with: %s - not with %s",
                       smoothed ? "smoothed" : "anchored",
                       smoothed ? "delta, increase, rate"
                                : "changes, delta, increase, rate, resets",
                       function->name);
}

int64_t extension_before_ms(const struct eval *ev, const struct plan *p)
{
    return p->extension == EXTENSION_NONE ? 0 : ev->lookback_ms;
}

int64_t extension_after_ms(const struct eval *ev, const struct plan *p)
{
    return p->extension == EXTENSION_SMOOTHED ? ev->lookback_ms : 0;
}

struct span extended_span(const struct column *c, size_t first, size_t end, int64_t start_ms,
                          int64_t end_ms, const struct eval *ev, const struct plan *p)
{
    static const struct span none = {0, 0};
    bool smoothed = p->extension == EXTENSION_SMOOTHED;
    int64_t before_ms = ms_subtract(start_ms, extension_before_ms(ev, p));
    int64_t after_ms = ms_add(end_ms, extension_after_ms(ev, p));

    if (smoothed && end < c->count && c->t_ms[end] <= after_ms &&
        (end == 0 || c->t_ms[end - 1] < end_ms))
        end++;
    if (first > 0 && c->t_ms[first - 1] > before_ms)
        first--;
    if (first >= end || c->t_ms[end - 1] <= start_ms || (smoothed && c->t_ms[first] > end_ms))
        return none;
    return (struct span){(uint32_t)first, (uint32_t)end};
}

/* --- as results --- */

enum err extended_column(struct eval *ev, const struct plan *p, const struct column *in,
                         int64_t end_ms, struct arena *arena, struct column *out,
                         struct errinfo *ei)
{
    struct extended x = {.start_ms = ms_subtract(end_ms, p->range_ms), .end_ms = end_ms};
    bool smoothed = p->extension == EXTENSION_SMOOTHED;
    size_t first, end, count;
    int64_t *t_ms;
    double *value;
    enum err e;

    *out = (struct column){0};
    if (in->count == 0 || in->t_ms[in->count - 1] <= x.start_ms)
        return ERR_OK;
    while (x.first + 1 < in->count && in->t_ms[x.first + 1] <= x.start_ms)
        x.first++;
    x.last = in->count - 1;
    while (smoothed && x.last > x.first && in->t_ms[x.last - 1] >= end_ms)
        x.last--;
    e = eval_tick(ev, in->count, ei);
    if (e != ERR_OK)
        return e;
    extended_borders(in, smoothed, false, &x);
    extended_inside(in, &x, &first, &end);
    count = end > first ? end - first : 0;
    t_ms = ARENA_ARRAY(arena, count + 2, int64_t);
    value = ARENA_ARRAY(arena, count + 2, double);
    if (t_ms == NULL || value == NULL)
        return arena_refused(arena, ei);
    memcpy(t_ms + 1, in->t_ms + first, count * sizeof *t_ms);
    memcpy(value + 1, in->value + first, count * sizeof *value);
    t_ms[0] = x.start_ms;
    value[0] = x.left;
    t_ms[count + 1] = end_ms;
    value[count + 1] = x.right;
    *out = (struct column){.count = count + 2, .t_ms = t_ms, .value = value};
    return ERR_OK;
}

enum err smoothed_fill(struct eval *ev, const struct plan *p, const struct column *c,
                       struct row *row, struct errinfo *ei)
{
    size_t next = 0; /* first sample at or after the step */
    enum err e = ERR_OK;

    for (size_t i = 0, end; e == ERR_OK && i < p->grid.count; i = end) {
        size_t before = next;

        e = eval_piece(ev, i, p->grid.count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++) {
            int64_t t = plan_reference_ms(p, &p->grid, k);
            bool has_next, has_previous;

            while (next < c->count && c->t_ms[next] < t)
                next++;
            has_next = next < c->count && c->t_ms[next] <= ms_add(t, ev->lookback_ms);
            has_previous = next > 0 && c->t_ms[next - 1] > ms_subtract(t, ev->lookback_ms);
            if (has_next && c->t_ms[next] == t)
                row_set(row, k, c->value[next]);
            else if (has_next && has_previous)
                row_set(row, k, interpolate(c, next - 1, t, false));
            else if (has_previous)
                row_set(row, k, c->value[next - 1]);
        }
        if (e == ERR_OK)
            e = eval_tick(ev, next - before, ei);
    }
    return e;
}
