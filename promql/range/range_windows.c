/*
 * The windows of a column of timestamps, and what rate() and its kin derive from timestamps alone.
 */
#include <string.h>

#include "promql/eval/eval_range_internal.h"

static bool rates_alloc(struct range_run *run)
{
    struct rate_column *r = &run->windows.rates;
    const struct grid *grid = &run->plan->grid;

    r->first = ARENA_ARRAY(&run->arena, grid->count, uint32_t);
    r->last = ARENA_ARRAY(&run->arena, grid->count, uint32_t);
    r->factor = ARENA_ARRAY(&run->arena, grid->count, double);
    r->sampled = ARENA_ARRAY(&run->arena, grid->count, double);
    r->reach = ARENA_ARRAY(&run->arena, grid->count, double);
    r->present = ARENA_ARRAY(&run->arena, grid_words(grid), uint64_t);
    return r->first != NULL && r->last != NULL && r->factor != NULL && r->sampled != NULL &&
           r->reach != NULL && r->present != NULL;
}

static enum err windows_reserve(struct range_run *run, size_t count, struct errinfo *ei)
{
    struct windows *w = &run->windows;
    const struct grid *grid = &run->plan->grid;

    if (w->spans == NULL) {
        w->spans = ARENA_ARRAY(&run->arena, grid->count, struct span);
        if (run->function->needs_rate)
            w->rate = ARENA_ARRAY(&run->arena, grid->count, struct rate_step);
        if (w->spans == NULL || (run->function->needs_rate && w->rate == NULL) ||
            (run->function->needs_rate && !rates_alloc(run)))
            return arena_refused(&run->arena, ei);
    }
    if (count <= w->capacity)
        return ERR_OK;
    if (count > UINT32_MAX / 2)
        return errinfo_set(ei, ERR_LIMIT, 0, "too many samples in one series");
    count = count < 512 ? 512 : count + count / 2;
    w->t_ms = ARENA_ARRAY(&run->arena, count, int64_t);
    if (w->t_ms == NULL)
        return arena_refused(&run->arena, ei);
    w->capacity = count;
    return ERR_OK;
}

/* Both ends only go forward with the steps; a fixed time (@) keeps them where they are. */
static void spans_fill(struct range_run *run, const struct column *c)
{
    const struct plan *p = run->plan;
    size_t first = 0, end = 0, longest = 0;
    uint64_t total = 0;

    for (size_t k = 0, piece_end; (piece_end = scan_piece(run, k, p->grid.count)) > k;) {
        for (; k < piece_end; k++) {
            int64_t end_ms = plan_reference_ms(p, &p->grid, k);
            int64_t start_ms = ms_subtract(end_ms, p->range_ms);
            struct span span;

            while (end < c->count && c->t_ms[end] <= end_ms)
                end++;
            while (first < end && c->t_ms[first] <= start_ms)
                first++;
            span = (struct span){(uint32_t)first, (uint32_t)end};
            if (p->extension != EXTENSION_NONE)
                span = extended_span(c, first, end, start_ms, end_ms, run->ev, p);
            run->windows.spans[k] = span;
            total += span.end - span.first;
            longest = span.end - span.first > longest ? span.end - span.first : longest;
        }
    }
    run->windows.longest = longest;
    run->windows.total = total;
}

/* Prometheus's extrapolation: up to the window's border where that is at most 1.1 sample distances
 * away, else by half a distance. */
static void rate_step_fill(const struct range_run *run, const struct column *c, size_t k)
{
    const struct plan *p = run->plan;
    struct span span = run->windows.spans[k];
    struct rate_step *r = &run->windows.rate[k];
    int64_t end_ms = plan_reference_ms(p, &p->grid, k);
    int64_t start_ms = ms_subtract(end_ms, p->range_ms);
    int64_t first_ms, last_ms;
    double average, threshold;

    if (span.end - span.first < 2)
        return;
    first_ms = c->t_ms[span.first];
    last_ms = c->t_ms[span.end - 1];
    r->to_start = (double)(first_ms - start_ms) / 1000;
    r->to_end = (double)(end_ms - last_ms) / 1000;
    r->sampled = (double)(last_ms - first_ms) / 1000;
    average = r->sampled / (double)(span.end - span.first - 1);
    threshold = average * 1.1;
    if (r->to_start >= threshold)
        r->to_start = average / 2;
    if (r->to_end >= threshold)
        r->to_end = average / 2;
    r->factor = (r->sampled + r->to_start + r->to_end) / r->sampled;
    if (p->function->id == FUNCTION_RATE)
        r->factor /= run->range_seconds;
}

static void rates_fill(struct windows *w, size_t k)
{
    const struct rate_step *s = &w->rate[k];
    struct span span = w->spans[k];
    bool two = span.end - span.first >= 2;
    struct rate_column *r = &w->rates;

    if (k == 0) {
        r->sampled_least = (double)INFINITY;
        r->reach_most = 0;
    }
    if (k % 64 == 0)
        r->present[k / 64] = 0;
    r->present[k / 64] |= (uint64_t)two << (k % 64);
    r->first[k] = two ? span.first : 0;
    r->last[k] = two ? span.end - 1 : 0;
    r->factor[k] = two ? s->factor : 0;
    r->sampled[k] = two ? s->sampled : 0;
    r->reach[k] = two ? 1.001 * s->to_start : 0;
    if (two && s->sampled < r->sampled_least)
        r->sampled_least = s->sampled;
    if (r->reach[k] > r->reach_most)
        r->reach_most = r->reach[k];
}

enum err windows_prepare(struct range_run *run, const struct column *c, struct errinfo *ei)
{
    struct windows *w = &run->windows;
    enum err e;

    if (w->valid && w->count == c->count &&
        (c->count == 0 || memcmp(w->t_ms, c->t_ms, c->count * sizeof *w->t_ms) == 0))
        return ERR_OK;
    w->valid = false;
    e = windows_reserve(run, c->count, ei);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0, end; (end = scan_piece(run, i, c->count)) > i; i = end)
        memcpy(w->t_ms + i, c->t_ms + i, (end - i) * sizeof *w->t_ms);
    w->count = c->count;
    spans_fill(run, c);
    if (run->function->needs_rate) {
        for (size_t k = 0, end; (end = scan_piece(run, k, run->plan->grid.count)) > k;) {
            for (; k < end; k++) {
                rate_step_fill(run, c, k);
                rates_fill(w, k);
            }
        }
    }
    w->valid = run->failed == ERR_OK;
    return run->failed;
}
