/*
 * Start timestamps in rate(), increase(), irate() and resets(): samples that say since when they
 * have counted tell of resets that their values do not, and the first of a window where the counter
 * was zero. The rules are Prometheus's.
 */
#include "promql/eval/eval_range_internal.h"
#include "promql/parse/text_internal.h"

bool start_is_reset(const struct column *c, size_t i)
{
    int64_t start_ms, before_ms, before_start_ms;

    if (c->start_ms == NULL)
        return false;
    start_ms = c->start_ms[i];
    before_ms = c->t_ms[i - 1];
    before_start_ms = c->start_ms[i - 1];
    /* Not known, or claimed to lie behind the sample; at the sample is OpenTelemetry's "unknown".
     */
    if (start_ms == 0 || start_ms >= c->t_ms[i])
        return false;
    if (start_ms != before_ms)
        return start_ms > before_ms;
    /* Counted since the sample before: a delta, unless that one did not know its own start. */
    return before_start_ms != 0 && before_start_ms < before_ms;
}

/* A sample that has counted since before the one before it, yet not since the same time. */
static bool overlaps(const struct column *c, size_t i)
{
    return c->start_ms[i] != 0 && c->start_ms[i] < c->t_ms[i - 1] &&
           c->start_ms[i] != c->start_ms[i - 1];
}

enum err starts_annotate(struct range_run *run, const struct column *c, struct span w,
                         struct errinfo *ei)
{
    struct arena_mark mark = arena_mark_get(&run->arena);
    enum err e = ERR_OK;

    if (c->start_ms == NULL || run->overlap_annotated)
        return ERR_OK;
    for (size_t i = w.first + 1; i < w.end && !run->overlap_annotated; i++)
        run->overlap_annotated = overlaps(c, i);
    if (run->overlap_annotated)
        e = annotations_add(
            &run->ev->annotations, ANNOTATION_WARNING, range_argument_position(run), ei,
            "sample has start time that overlaps with previous sample timestamp for metric %s",
            text_quote(run->metric_name, &run->arena));
    arena_mark_return(&run->arena, mark);
    return e;
}

bool start_in_window(const struct range_run *run, const struct column *c, size_t step,
                     struct span w, double *factor)
{
    const struct plan *p = run->plan;
    int64_t end_ms = plan_reference_ms(p, &p->grid, step), first_ms = c->t_ms[w.first];
    int64_t last_ms = c->t_ms[w.end - 1], start_ms;
    double sampled, average = 0, to_end = (double)(end_ms - last_ms) / 1000;

    start_ms = c->start_ms == NULL ? 0 : c->start_ms[w.first];
    if (start_ms == 0 || start_ms <= ms_subtract(end_ms, p->range_ms) || start_ms >= first_ms)
        return false;
    if (w.end - w.first > 1)
        average = (double)(last_ms - first_ms) / 1000 / (double)(w.end - w.first - 1);
    if (to_end >= average * 1.1)
        to_end = average / 2;
    sampled = (double)(last_ms - start_ms) / 1000;
    *factor = (sampled + to_end) / sampled;
    if (p->function->id == FUNCTION_RATE)
        *factor /= run->range_seconds;
    return true;
}

/* What the counter has gone up in a window, as far as its samples tell. */
static double increase_of(struct range_run *run, const struct column *c, struct span w)
{
    double increase = c->value[w.end - 1] - c->value[w.first];

    for (size_t i = w.first + 1, end; (end = scan_piece(run, i, w.end)) > i;) {
        for (; i < end; i++) {
            if (c->value[i] < c->value[i - 1] || start_is_reset(c, i))
                increase += c->value[i - 1];
        }
    }
    return increase;
}

void starts_extrapolate(struct range_run *run, const struct column *c, struct row *row)
{
    for (size_t k = 0; k < run->plan->grid.count && run->failed == ERR_OK; k++) {
        struct span w = run->windows.spans[k];
        double increase, factor;

        run->failed = eval_tick(run->ev, 1 + w.end - w.first, run->ei);
        if (run->failed != ERR_OK || w.first == w.end)
            continue;
        run->failed = starts_annotate(run, c, w, run->ei);
        increase = increase_of(run, c, w);
        if (start_in_window(run, c, k, w, &factor))
            row_set(row, k, (increase + c->value[w.first]) * factor);
        else if (w.end - w.first > 1)
            row_set(row, k,
                    increase *
                        rate_factor(run, &run->windows.rate[k], c->value[w.first], increase));
    }
}
