/*
 * rate(), increase(), delta(), irate() and idelta() of native histograms, and the first three over
 * anchored and smoothed ranges. The order of operations is Prometheus's.
 */
#include "promql/range/range_histograms_internal.h"

static const struct histogram *sample_at(const struct mixed_run *m, size_t i)
{
    return m->column->histogram[i];
}

static bool is_gauge(const struct histogram *h)
{
    return h->hint == HISTOGRAM_HINT_GAUGE;
}

static enum err annotate(struct mixed_run *m, enum histogram_annotation what)
{
    return histogram_annotate(&m->annotator, what, m->ei);
}

/* A histogram under construction, in the scratch arena of a step. */
struct making {
    struct mixed_run *mixed;
    struct histogram value;
    struct histogram_notes notes;
};

/* *failed: no result, which has been annotated. */
static enum err making_begin(struct making *x, const struct histogram *h)
{
    bool failed; /* copies do not */

    return mixed_check(x->mixed, histogram_copy(h, &x->mixed->scratch, &x->value), &failed);
}

static enum err making_subtract(struct making *x, const struct histogram *h, bool *failed)
{
    struct mixed_run *m = x->mixed;
    enum err e = mixed_check(m, histogram_subtract(&x->value, h, &m->scratch, &x->notes), failed);

    if (e == ERR_OK && x->notes.bounds_reconciled)
        e = annotate(m, HISTOGRAM_BOUNDS_SUBTRACTION);
    x->notes = (struct histogram_notes){0};
    return e;
}

static enum err making_add(struct making *x, const struct histogram *h, bool *failed)
{
    struct mixed_run *m = x->mixed;
    enum err e = mixed_check(m, histogram_add(&x->value, h, &m->scratch, &x->notes), failed);

    if (e == ERR_OK && x->notes.bounds_reconciled)
        e = annotate(m, HISTOGRAM_BOUNDS_ADDITION);
    x->notes = (struct histogram_notes){0};
    return e;
}

static enum err making_compact(struct making *x)
{
    bool failed; /* only for want of memory */

    x->value.hint = HISTOGRAM_HINT_GAUGE;
    return mixed_check(x->mixed, histogram_compact(&x->value, &x->mixed->scratch), &failed);
}

/* --- rate, increase, delta --- */

/* The histograms of a window as a rate looks at them. */
struct rate_window {
    struct span span;
    bool is_counter;
    bool skips_first;   /* reset right behind it: it does not take part */
    int32_t schema_min; /* of those that do */
};

static bool rate_reads_gauge(const struct mixed_run *m, struct span w)
{
    for (size_t i = w.first; i < w.end; i++) {
        if (is_gauge(sample_at(m, i)))
            return true;
    }
    return false;
}

/* Whether all that take part have buckets of one kind; finds the lowest schema on the way. */
static bool rate_is_uniform(const struct mixed_run *m, struct rate_window *w)
{
    size_t first = w->span.first + (w->skips_first ? 1 : 0), last = w->span.end - 1;
    bool is_custom = histogram_is_custom(sample_at(m, first));

    w->schema_min = sample_at(m, first)->schema;
    for (size_t i = first + 1; i <= last; i++) {
        const struct histogram *h = sample_at(m, i);

        if (!w->is_counter && i < last)
            continue; /* a difference looks at both ends only */
        if (histogram_is_custom(h) != is_custom)
            return false;
        if (h->schema < w->schema_min)
            w->schema_min = h->schema;
    }
    return true;
}

/* What the window is measured from: its first sample, or, where the second one is a reset, a
 * histogram of the second one's layout that has not counted yet. */
static struct histogram rate_base(const struct mixed_run *m, const struct rate_window *w)
{
    const struct histogram *second;

    if (!w->skips_first)
        return *sample_at(m, w->span.first);
    second = sample_at(m, w->span.first + 1);
    return (struct histogram){.schema = second->schema,
                              .custom_values = second->custom_values,
                              .custom_count = second->custom_count};
}

/* Whether sample i, behind the first, starts from 0. */
static bool rate_is_reset(const struct mixed_run *m, const struct rate_window *w,
                          const struct histogram *base, size_t i)
{
    if (!w->skips_first || i != w->span.first + 1)
        return mixed_is_marked(m, i);
    return start_is_reset(m->column, i) || histogram_detect_reset(sample_at(m, i), base);
}

/* The increase over the window, before extrapolation. */
static enum err rate_increase(struct making *x, const struct rate_window *w, bool *failed)
{
    struct mixed_run *m = x->mixed;
    size_t first = w->span.first, last = w->span.end - 1;
    struct histogram base = rate_base(m, w);
    enum err e = making_begin(x, sample_at(m, last));

    *failed = false;
    if (e == ERR_OK && x->value.schema > w->schema_min)
        e = mixed_check(m, histogram_reduce(&x->value, w->schema_min, &m->scratch), failed);
    if (e == ERR_OK)
        e = making_subtract(x, &base, failed);
    for (size_t i = first + 1; w->is_counter && i <= last && e == ERR_OK && !*failed; i++) {
        if (rate_is_reset(m, w, &base, i))
            e = making_add(x, i == first + 1 ? &base : sample_at(m, i - 1), failed);
    }
    return e == ERR_OK && !*failed ? making_compact(x) : e;
}

/* As of floats, with the count as the value. */
static double factor_of(const struct mixed_run *m, size_t step, const struct histogram *increase,
                        bool is_counter)
{
    const struct rate_step *r = &m->rates[step];
    double first = sample_at(m, m->spans[step].first)->count;

    return is_counter ? rate_factor(m->run, r, first, increase->count) : r->factor;
}

/* A counter that began to count within the window, at the time that its first sample tells. */
static enum err rate_from_start(struct making *x, size_t step, double factor, bool *failed)
{
    struct mixed_run *m = x->mixed;
    struct span w = m->spans[step];
    const struct histogram *first = sample_at(m, w.first);
    enum err e = w.end - w.first < 2 ? making_begin(x, first) : making_add(x, first, failed);

    if (e == ERR_OK && !*failed)
        histogram_multiply(&x->value, factor);
    return e;
}

static enum err rate_plain(struct mixed_run *m, size_t step)
{
    struct rate_window w = {.span = m->spans[step],
                            .is_counter = m->run->plan->function->id != FUNCTION_DELTA};
    size_t last = w.span.end - 1;
    struct making x = {.mixed = m};
    bool failed = false, has_start;
    double factor;
    enum err e = ERR_OK;

    has_start = w.is_counter && start_in_window(m->run, m->column, step, w.span, &factor);
    if (w.span.end - w.span.first < 2) {
        if (has_start)
            e = rate_from_start(&x, step, factor, &failed);
        return e == ERR_OK && has_start ? mixed_set(m, step, &x.value, sample_at(m, last)) : e;
    }
    w.skips_first = w.is_counter && mixed_is_marked(m, w.span.first + 1);
    if (!rate_is_uniform(m, &w))
        return annotate(m, HISTOGRAM_MIXED_BUCKETS);
    if (w.is_counter && rate_reads_gauge(m, w.span))
        e = annotate(m, HISTOGRAM_NOT_COUNTER);
    if (e == ERR_OK && w.is_counter)
        e = starts_annotate(m->run, m->column, w.span, m->ei);
    if (e == ERR_OK)
        e = rate_increase(&x, &w, &failed);
    if (e == ERR_OK && !failed && has_start)
        e = rate_from_start(&x, step, factor, &failed);
    if (e != ERR_OK || failed)
        return e;
    if (!w.is_counter && !(is_gauge(sample_at(m, w.span.first)) && is_gauge(sample_at(m, last))))
        e = annotate(m, HISTOGRAM_NOT_GAUGE);
    if (!has_start)
        histogram_multiply(&x.value, factor_of(m, step, &x.value, w.is_counter));
    return e == ERR_OK ? mixed_set(m, step, &x.value, sample_at(m, last)) : e;
}

/* --- anchored and smoothed --- */

enum err histogram_interpolate(const struct histogram *from, int64_t from_ms,
                               const struct histogram *to, int64_t to_ms, int64_t t_ms,
                               bool is_counter, struct arena *arena, struct histogram *out,
                               struct histogram_notes *subtracting, struct histogram_notes *adding)
{
    double fraction = (double)(t_ms - from_ms) / (double)(to_ms - from_ms);
    enum err e;

    if (t_ms == from_ms)
        return histogram_copy(from, arena, out);
    e = histogram_copy(to, arena, out);
    if (t_ms == to_ms || e != ERR_OK)
        return e;
    if (is_counter && histogram_detect_reset(to, from)) {
        histogram_multiply(out, fraction); /* it has come from zero */
        return ERR_OK;
    }
    e = histogram_subtract(out, from, arena, subtracting);
    if (e != ERR_OK)
        return e;
    histogram_multiply(out, fraction);
    return histogram_add(out, from, arena, adding);
}

/* The value at a border, between samples i and i + 1. */
static enum err border_make(struct mixed_run *m, size_t i, int64_t t_ms, bool is_counter,
                            struct histogram *out, bool *failed)
{
    struct histogram_notes subtracting = {0}, adding = {0};
    const int64_t *t = m->column->t_ms;
    enum err e = histogram_interpolate(sample_at(m, i), t[i], sample_at(m, i + 1), t[i + 1], t_ms,
                                       is_counter, &m->scratch, out, &subtracting, &adding);

    e = mixed_check(m, e, failed);
    if (e == ERR_OK && subtracting.bounds_reconciled)
        e = annotate(m, HISTOGRAM_BOUNDS_SUBTRACTION);
    if (e == ERR_OK && adding.bounds_reconciled)
        e = annotate(m, HISTOGRAM_BOUNDS_ADDITION);
    return e;
}

/* An extended window: samples [first, last], values at both borders. */
struct extended_window {
    size_t first, last;
    int64_t start_ms, end_ms;
    bool is_counter, is_smoothed;
    struct histogram left, right;
};

static enum err borders_make(struct mixed_run *m, struct extended_window *w, bool *failed)
{
    const int64_t *t = m->column->t_ms;
    enum err e;

    *failed = false;
    if (w->is_smoothed && t[w->first] < w->start_ms)
        e = border_make(m, w->first, w->start_ms, w->is_counter, &w->left, failed);
    else
        e = mixed_check(m, histogram_copy(sample_at(m, w->first), &m->scratch, &w->left), failed);
    if (e != ERR_OK || *failed)
        return e;
    if (w->is_smoothed && w->last > w->first && t[w->last] > w->end_ms)
        return border_make(m, w->last - 1, w->end_ms, w->is_counter, &w->right, failed);
    return mixed_check(m, histogram_copy(sample_at(m, w->last), &m->scratch, &w->right), failed);
}

static enum err window_check(struct mixed_run *m, const struct extended_window *w, bool *failed)
{
    bool is_custom = histogram_is_custom(sample_at(m, w->first));
    enum err e = ERR_OK;

    *failed = false;
    for (size_t i = w->first; i <= w->last && e == ERR_OK; i++) {
        if (histogram_is_custom(sample_at(m, i)) != is_custom) {
            *failed = true;
            return annotate(m, HISTOGRAM_MIXED_BUCKETS);
        }
        if (w->is_counter && is_gauge(sample_at(m, i)))
            e = annotate(m, HISTOGRAM_NOT_COUNTER);
    }
    return e;
}

/* What a counter had reached before each reset, from border to border. */
struct correction {
    struct making sum;
    bool any;
};

static enum err correction_add(struct correction *c, const struct histogram *before, bool *failed)
{
    if (c->any)
        return making_add(&c->sum, before, failed);
    c->any = true;
    return making_begin(&c->sum, before);
}

static enum err correction_make(struct mixed_run *m, const struct extended_window *w,
                                struct correction *c, bool *failed)
{
    const struct histogram *before = &w->left;
    size_t i = w->first + 1;
    enum err e = ERR_OK;

    *c = (struct correction){.sum.mixed = m};
    *failed = false;
    /* A reset that the left border lies in is in its value already. */
    if (w->is_smoothed && m->column->t_ms[w->first] < w->start_ms &&
        histogram_detect_reset(sample_at(m, i), sample_at(m, w->first)))
        before = sample_at(m, i++);
    if (i > w->last)
        return ERR_OK; /* one segment holds both borders */
    /* The last sample stands for itself or for the right border, whose hint is its hint. */
    for (; i < w->last && e == ERR_OK && !*failed; i++) {
        if (histogram_detect_reset(sample_at(m, i), before))
            e = correction_add(c, before, failed);
        before = sample_at(m, i);
    }
    if (e == ERR_OK && !*failed && histogram_detect_reset(&w->right, before))
        e = correction_add(c, before, failed);
    return e;
}

/* The increase from border to border. */
static enum err extended_increase(struct mixed_run *m, const struct extended_window *w,
                                  struct making *x, bool *failed)
{
    struct correction c;
    enum err e = making_begin(x, &w->right);

    if (e == ERR_OK)
        e = making_subtract(x, &w->left, failed);
    if (e != ERR_OK || *failed || !w->is_counter)
        return e;
    e = correction_make(m, w, &c, failed);
    if (e == ERR_OK && !*failed && c.any)
        e = making_add(x, &c.sum.value, failed);
    return e;
}

static enum err rate_extended(struct mixed_run *m, size_t step)
{
    const struct plan *p = m->run->plan;
    struct extended_window w = {.first = m->spans[step].first,
                                .last = m->spans[step].end - 1,
                                .is_counter = p->function->id != FUNCTION_DELTA,
                                .is_smoothed = p->extension == EXTENSION_SMOOTHED};
    struct making x = {.mixed = m};
    bool failed;
    enum err e = window_check(m, &w, &failed);

    w.end_ms = plan_reference_ms(p, &p->grid, step);
    w.start_ms = ms_subtract(w.end_ms, p->range_ms);
    if (e == ERR_OK && !failed)
        e = borders_make(m, &w, &failed);
    if (e == ERR_OK && !failed && !w.is_counter && !(is_gauge(&w.left) && is_gauge(&w.right)))
        e = annotate(m, HISTOGRAM_NOT_GAUGE);
    if (e == ERR_OK && !failed)
        e = extended_increase(m, &w, &x, &failed);
    if (e != ERR_OK || failed)
        return e;
    if (p->function->id == FUNCTION_RATE)
        histogram_divide(&x.value, m->run->range_seconds);
    e = making_compact(&x);
    return e == ERR_OK ? mixed_set(m, step, &x.value, sample_at(m, w.last)) : e;
}

struct span mixed_reach(const struct mixed_run *m, size_t step)
{
    const struct plan *p = m->run->plan;
    const struct column *c = m->column;
    int64_t end_ms = plan_reference_ms(p, &p->grid, step);
    int64_t from_ms =
        ms_subtract(ms_subtract(end_ms, p->range_ms), extension_before_ms(m->run->ev, p));
    struct span w = m->spans[step];

    if (p->extension == EXTENSION_NONE || !function_interpolates(p->function->id))
        return w;
    if (w.first == w.end) {
        while (w.end < c->count && c->t_ms[w.end] <= from_ms)
            w.end++;
        w.first = w.end;
    }
    end_ms = ms_add(end_ms, extension_after_ms(m->run->ev, p));
    while (w.first > 0 && c->t_ms[w.first - 1] > from_ms)
        w.first--;
    while (w.end < c->count && c->t_ms[w.end] <= end_ms)
        w.end++;
    return w;
}

enum err mixed_rate(struct mixed_run *m, size_t step)
{
    struct span w = m->spans[step];

    if (mixed_float_count(m, mixed_reach(m, step)) > 0) {
        row_clear(m->row, step);
        return annotate(m, HISTOGRAM_MIXED_WITH_FLOATS);
    }
    if (m->run->plan->extension == EXTENSION_NONE)
        return rate_plain(m, step);
    return w.first == w.end ? ERR_OK : rate_extended(m, step);
}

/* --- irate, idelta --- */

/* Both are histograms. */
static enum err last_two(struct mixed_run *m, size_t step, size_t last)
{
    bool is_rate = m->run->plan->function->id == FUNCTION_IRATE, failed = false;
    bool a_gauge = is_gauge(sample_at(m, last - 1)), b_gauge = is_gauge(sample_at(m, last));
    const int64_t *t = m->column->t_ms;
    struct making x = {.mixed = m};
    enum err e = making_begin(&x, sample_at(m, last));

    if (e == ERR_OK && is_rate && (a_gauge || b_gauge))
        e = annotate(m, HISTOGRAM_NOT_COUNTER);
    if (e == ERR_OK && !is_rate && !(a_gauge && b_gauge))
        e = annotate(m, HISTOGRAM_NOT_GAUGE);
    if (e == ERR_OK && !(is_rate && mixed_is_marked(m, last)))
        e = making_subtract(&x, sample_at(m, last - 1), &failed);
    if (e == ERR_OK && !failed)
        e = making_compact(&x);
    if (e != ERR_OK || failed)
        return e;
    if (is_rate)
        histogram_divide(&x.value, (double)(t[last] - t[last - 1]) / 1000);
    return mixed_set(m, step, &x.value, sample_at(m, last));
}

enum err mixed_last_two(struct mixed_run *m, size_t step)
{
    struct span w = m->spans[step];
    size_t last = w.end - 1;

    if (w.end - w.first < 2)
        return ERR_OK;
    if (sample_at(m, last) != NULL && sample_at(m, last - 1) != NULL) {
        row_clear(m->row, step); /* of the floats before them */
        return last_two(m, step, last);
    }
    if (sample_at(m, last) == NULL && sample_at(m, last - 1) == NULL)
        return ERR_OK;
    row_clear(m->row, step);
    return annotate(m, HISTOGRAM_MIXED_WITH_FLOATS);
}
