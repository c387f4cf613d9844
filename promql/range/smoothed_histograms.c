/*
 * Instant vector selectors with the modifier smoothed, over series that have native histograms. A
 * step looks at all samples within the lookback on both sides; where floats are among histograms it
 * has no value.
 */
#include "promql/eval/eval_range_internal.h"
#include "promql/range/range_histograms_internal.h"

struct smoothing {
    struct eval *ev;
    const struct column *column;
    struct row *row;
    struct arena *arena;
    struct histogram_annotator annotator;
};

/* The samples around a step: [first, end), those from `next` on not before it. */
struct surroundings {
    int64_t t_ms;
    size_t first, next, end;
};

static bool any_of_kind(const struct smoothing *s, const struct surroundings *at, bool histogram)
{
    for (size_t i = at->first; i < at->end; i++) {
        if ((s->column->histogram[i] != NULL) == histogram)
            return true;
    }
    return false;
}

/* What lies between two samples of the column. */
static enum err between(struct smoothing *s, const struct surroundings *at, struct histogram *out,
                        bool *failed, struct errinfo *ei)
{
    const struct column *c = s->column;
    const struct histogram *from = c->histogram[at->next - 1], *to = c->histogram[at->next];
    struct histogram_notes subtracting = {0}, adding = {0};
    bool is_gauge = from->hint == HISTOGRAM_HINT_GAUGE && to->hint == HISTOGRAM_HINT_GAUGE;
    enum err e;

    *failed = histogram_is_custom(from) != histogram_is_custom(to);
    if (*failed)
        return histogram_annotate(&s->annotator, HISTOGRAM_MIXED_BUCKETS, ei);
    e = histogram_interpolate(from, c->t_ms[at->next - 1], to, c->t_ms[at->next], at->t_ms,
                              !is_gauge, s->arena, out, &subtracting, &adding);
    if (e != ERR_OK)
        return arena_refused(s->arena, ei);
    if (subtracting.bounds_reconciled)
        e = histogram_annotate(&s->annotator, HISTOGRAM_BOUNDS_SUBTRACTION, ei);
    if (e == ERR_OK && adding.bounds_reconciled)
        e = histogram_annotate(&s->annotator, HISTOGRAM_BOUNDS_ADDITION, ei);
    return e;
}

/* A step with nothing but histograms around. */
static enum err step_fill(struct smoothing *s, size_t step, const struct surroundings *at,
                          struct errinfo *ei)
{
    const struct column *c = s->column;
    struct histogram *h;
    bool failed = false;
    enum err e = ERR_OK;

    if (at->next < at->end && c->t_ms[at->next] == at->t_ms) {
        row_set_histogram(s->row, step, c->histogram[at->next]);
        return ERR_OK;
    }
    if (at->next == at->first)
        return ERR_OK;
    h = ARENA_NEW(s->arena, struct histogram);
    if (h == NULL)
        return arena_refused(s->arena, ei);
    if (at->next < at->end) {
        e = between(s, at, h, &failed, ei);
    } else { /* its hint says something of the sample before it, not of this step */
        *h = *c->histogram[at->next - 1];
        h->hint = HISTOGRAM_HINT_UNKNOWN;
    }
    if (e == ERR_OK && !failed)
        row_set_histogram(s->row, step, h);
    return e;
}

/* Moves all three on to the step. */
static void surroundings_move(const struct eval *ev, const struct column *c, int64_t t_ms,
                              struct surroundings *at)
{
    int64_t from_ms = ms_subtract(t_ms, ev->lookback_ms), to_ms = ms_add(t_ms, ev->lookback_ms);

    at->t_ms = t_ms;
    while (at->first < c->count && c->t_ms[at->first] <= from_ms)
        at->first++;
    while (at->next < c->count && c->t_ms[at->next] < t_ms)
        at->next++;
    while (at->end < c->count && c->t_ms[at->end] <= to_ms)
        at->end++;
    if (at->next < at->first)
        at->next = at->first;
}

enum err smoothed_fill_histograms(struct eval *ev, const struct plan *p, const struct column *c,
                                  const struct labels *labels, struct row *row, struct arena *arena,
                                  struct errinfo *ei)
{
    struct smoothing s = {ev,
                          c,
                          row,
                          arena,
                          {.annotations = &ev->annotations,
                           .position = p->node->position,
                           .metric_name = p->name_state == NAME_FIXED
                                              ? p->name
                                              : labels_get(labels, LABEL_METRIC_NAME)}};
    struct surroundings at = {0};
    enum err e = smoothed_fill(ev, p, c, row, ei);

    for (size_t k = 0; k < p->grid.count && e == ERR_OK; k++) {
        surroundings_move(ev, c, plan_reference_ms(p, &p->grid, k), &at);
        e = eval_tick(ev, 1 + at.end - at.first, ei);
        if (e != ERR_OK || !any_of_kind(&s, &at, true))
            continue;
        row_clear(row, k);
        if (any_of_kind(&s, &at, false))
            e = histogram_annotate(&s.annotator, HISTOGRAM_MIXED_WITH_FLOATS, ei);
        else
            e = step_fill(&s, k, &at, ei);
    }
    return e;
}
