/*
 * Range functions over columns that hold native histograms.
 *
 * The floats of such a column are evaluated first, as if there were nothing else; each window that
 * holds a histogram is then looked at again, and what it gives takes the place of that, or nothing
 * does. Sums and means are computed afresh in each window, in the order of time, as for floats.
 */
#include "promql/range/range_histograms_internal.h"

#include <string.h>

#include "engine/write.h"

/* --- what functions make of a window with histograms --- */

typedef enum err mixed_function(struct mixed_run *m, size_t step);

static const struct histogram *sample_at(const struct mixed_run *m, size_t i)
{
    return m->column->histogram[i];
}

enum err mixed_set(struct mixed_run *m, size_t step, const struct histogram *h,
                   const struct histogram *like)
{
    struct histogram_keeper keeper = {m->run->out, NULL, like};
    const struct histogram *copy;
    enum err e = histogram_keep_made(&keeper, h, &copy, m->ei);

    if (e == ERR_OK)
        row_set_histogram(m->row, step, copy);
    return e;
}

enum err mixed_check(struct mixed_run *m, enum err e, bool *failed)
{
    *failed = e == ERR_INVALID;
    if (e == ERR_INVALID)
        return histogram_annotate(&m->annotator, HISTOGRAM_MIXED_BUCKETS, m->ei);
    return e == ERR_OK ? ERR_OK : arena_refused(&m->scratch, m->ei);
}

/* Functions that count samples of any kind. */
static enum err mixed_count(struct mixed_run *m, size_t step)
{
    row_set(m->row, step, (double)(m->spans[step].end - m->spans[step].first));
    return ERR_OK;
}

static enum err mixed_present(struct mixed_run *m, size_t step)
{
    row_set(m->row, step, 1);
    return ERR_OK;
}

static enum err mixed_ts_of_first(struct mixed_run *m, size_t step)
{
    row_set(m->row, step, (double)m->column->t_ms[m->spans[step].first] / 1000);
    return ERR_OK;
}

static enum err mixed_ts_of_last(struct mixed_run *m, size_t step)
{
    row_set(m->row, step, (double)m->column->t_ms[m->spans[step].end - 1] / 1000);
    return ERR_OK;
}

/* A sample as it is; if it is a float, the row has it already. */
static enum err mixed_pick(struct mixed_run *m, size_t step, size_t i)
{
    const struct histogram *h = sample_at(m, i);

    if (h != NULL)
        row_set_histogram(m->row, step, h);
    return ERR_OK;
}

static enum err mixed_first(struct mixed_run *m, size_t step)
{
    return mixed_pick(m, step, m->spans[step].first);
}

static enum err mixed_last(struct mixed_run *m, size_t step)
{
    return mixed_pick(m, step, m->spans[step].end - 1);
}

/* Nothing once the series has ended. */
static enum err mixed_default_rollup(struct mixed_run *m, size_t step)
{
    size_t last = m->spans[step].end - 1;

    if (double_bits(m->column->value[last]) != STALE_NAN_BITS)
        return mixed_pick(m, step, last);
    row_clear(m->row, step);
    return ERR_OK;
}

/* Resets and changes. */
static enum err mixed_marks(struct mixed_run *m, size_t step)
{
    struct span w = m->spans[step];

    row_set(m->row, step, (double)(m->marks_before[w.end] - m->marks_before[w.first + 1]));
    return ERR_OK;
}

/* Functions of floats alone. */
static enum err mixed_ignore(struct mixed_run *m, size_t step)
{
    if (mixed_float_count(m, m->spans[step]) == 0)
        return ERR_OK;
    return histogram_annotate(&m->annotator, HISTOGRAM_IGNORED_IN_RANGE, m->ei);
}

/* The factors are looked at even where no float is. */
static enum err mixed_smoothing(struct mixed_run *m, size_t step)
{
    struct range_run *run = m->run;

    if (!smoothing_factors_check(run, run->scalars[step], run->scalars2[step]))
        return run->failed;
    return mixed_ignore(m, step);
}

static enum err fold_window(struct mixed_run *m, size_t step, struct histogram_fold *f)
{
    struct span w = m->spans[step];
    bool is_mean = m->run->plan->function->id == FUNCTION_AVG_OVER_TIME;
    enum err e = histogram_fold_init(f, sample_at(m, w.first), &m->scratch);

    for (size_t i = w.first + 1; i < w.end && e == ERR_OK; i++) {
        if (is_mean)
            e = histogram_fold_mean(f, sample_at(m, i), &m->scratch);
        else
            e = histogram_fold_sum(f, sample_at(m, i), &m->scratch);
        if (e == ERR_OK)
            e = eval_tick(m->run->ev, histogram_weight(sample_at(m, i)), m->ei);
    }
    if (e == ERR_OK && is_mean)
        histogram_fold_mean_end(f);
    else if (e == ERR_OK)
        histogram_fold_sum_end(f);
    return e;
}

static enum err mixed_fold(struct mixed_run *m, size_t step)
{
    struct histogram_fold f;
    bool failed;
    enum err e;

    if (mixed_float_count(m, m->spans[step]) > 0) {
        row_clear(m->row, step);
        return histogram_annotate(&m->annotator, HISTOGRAM_MIXED_WITH_FLOATS, m->ei);
    }
    e = fold_window(m, step, &f);
    if (e == ERR_CANCELED || e == ERR_TIMEOUT)
        return e;
    e = mixed_check(m, e, &failed);
    if (e != ERR_OK || failed)
        return e;
    if (f.saw_reset && f.saw_no_reset)
        e = histogram_annotate(&m->annotator, HISTOGRAM_HINTS_AGGREGATION, m->ei);
    if (e == ERR_OK && f.notes.bounds_reconciled)
        e = histogram_annotate(&m->annotator, HISTOGRAM_BOUNDS_AGGREGATION, m->ei);
    return e == ERR_OK ? mixed_set(m, step, &f.value, sample_at(m, m->spans[step].first)) : e;
}

static mixed_function *const mixed_functions[FUNCTION_COUNT] = {
    [FUNCTION_ABSENT_OVER_TIME] = mixed_present,
    [FUNCTION_AVG_OVER_TIME] = mixed_fold,
    [FUNCTION_CHANGES] = mixed_marks,
    [FUNCTION_COUNT_OVER_TIME] = mixed_count,
    [FUNCTION_DEFAULT_ROLLUP] = mixed_default_rollup,
    [FUNCTION_DELTA] = mixed_rate,
    [FUNCTION_DERIV] = mixed_ignore,
    [FUNCTION_DOUBLE_EXPONENTIAL_SMOOTHING] = mixed_smoothing,
    [FUNCTION_FIRST_OVER_TIME] = mixed_first,
    [FUNCTION_IDELTA] = mixed_last_two,
    [FUNCTION_INCREASE] = mixed_rate,
    [FUNCTION_IRATE] = mixed_last_two,
    [FUNCTION_LAST_OVER_TIME] = mixed_last,
    [FUNCTION_MAD_OVER_TIME] = mixed_ignore,
    [FUNCTION_MAX_OVER_TIME] = mixed_ignore,
    [FUNCTION_MIN_OVER_TIME] = mixed_ignore,
    [FUNCTION_PREDICT_LINEAR] = mixed_ignore,
    [FUNCTION_PRESENT_OVER_TIME] = mixed_present,
    [FUNCTION_QUANTILE_OVER_TIME] = mixed_ignore,
    [FUNCTION_RATE] = mixed_rate,
    [FUNCTION_RESETS] = mixed_marks,
    [FUNCTION_STDDEV_OVER_TIME] = mixed_ignore,
    [FUNCTION_STDVAR_OVER_TIME] = mixed_ignore,
    [FUNCTION_SUM_OVER_TIME] = mixed_fold,
    [FUNCTION_TS_OF_FIRST_OVER_TIME] = mixed_ts_of_first,
    [FUNCTION_TS_OF_LAST_OVER_TIME] = mixed_ts_of_last,
    [FUNCTION_TS_OF_MAX_OVER_TIME] = mixed_ignore,
    [FUNCTION_TS_OF_MIN_OVER_TIME] = mixed_ignore,
};

/* --- the series --- */

static bool is_change(const struct column *c, size_t i)
{
    const struct histogram *h = c->histogram[i], *before = c->histogram[i - 1];

    if (h != NULL && before != NULL)
        return !histogram_equal(h, before);
    return h != before ||
           (c->value[i] != c->value[i - 1] && !(isnan(c->value[i]) && isnan(c->value[i - 1])));
}

static bool is_reset(const struct column *c, size_t i)
{
    const struct histogram *h = c->histogram[i], *before = c->histogram[i - 1];

    if (h != NULL && before != NULL)
        return start_is_reset(c, i) || histogram_detect_reset(h, before);
    return h != before || c->value[i] < c->value[i - 1] || start_is_reset(c, i);
}

static bool function_counts_resets(enum function_id id)
{
    return id == FUNCTION_RATE || id == FUNCTION_INCREASE || id == FUNCTION_RESETS ||
           id == FUNCTION_IRATE;
}

/* Fills what runs beside the column. */
static enum err sums_fill(struct mixed_run *m, struct errinfo *ei)
{
    const struct column *c = m->column;
    enum function_id id = m->run->plan->function->id;
    enum err e = ERR_OK;

    m->floats_before = arena_calloc(&m->arena, c->count + 1, sizeof *m->floats_before);
    m->marks_before = arena_calloc(&m->arena, c->count + 1, sizeof *m->marks_before);
    m->weight_before = arena_calloc(&m->arena, c->count + 1, sizeof *m->weight_before);
    if (m->floats_before == NULL || m->marks_before == NULL || m->weight_before == NULL)
        return arena_refused(&m->arena, ei);
    for (size_t i = 0; i < c->count && e == ERR_OK; i++) {
        const struct histogram *h = sample_at(m, i);
        uint64_t weight = h == NULL ? 1 : histogram_weight(h);
        bool is_marked = false;

        if (i > 0 && id == FUNCTION_CHANGES)
            is_marked = is_change(c, i);
        else if (i > 0 && function_counts_resets(id))
            is_marked = is_reset(c, i);
        m->floats_before[i + 1] = m->floats_before[i] + (h == NULL);
        m->marks_before[i + 1] = m->marks_before[i] + is_marked;
        m->weight_before[i + 1] = m->weight_before[i] + weight;
        e = eval_tick(m->run->ev, weight, ei);
    }
    return e;
}

/* Takes over the windows of the whole column, before those of its floats take their place. */
static enum err windows_take(struct mixed_run *m, struct errinfo *ei)
{
    struct range_run *run = m->run;
    size_t steps = run->plan->grid.count;
    struct rate_step *rates = NULL;
    enum err e = windows_prepare(run, m->column, ei);

    if (e != ERR_OK)
        return e;
    m->spans = ARENA_ARRAY(&m->arena, steps, struct span);
    if (run->windows.rate != NULL)
        rates = ARENA_ARRAY(&m->arena, steps, struct rate_step);
    if (m->spans == NULL || (run->windows.rate != NULL && rates == NULL))
        return arena_refused(&m->arena, ei);
    memcpy(m->spans, run->windows.spans, steps * sizeof *m->spans);
    if (rates != NULL)
        memcpy(rates, run->windows.rate, steps * sizeof *rates);
    m->rates = rates;
    return eval_tick(run->ev, 4 * steps, ei);
}

/* Counts the samples of windows; *longest is what the longest of them has. */
static enum err windows_weigh(struct mixed_run *m, uint64_t *longest, struct errinfo *ei)
{
    struct eval *ev = m->run->ev;
    const struct grid *grid = &m->run->plan->grid;
    enum err e = ERR_OK;

    *longest = 0;
    for (size_t k = 0; k < grid->count && e == ERR_OK; k++) {
        struct span w = m->spans[k];
        uint64_t weight = m->weight_before[w.end] - m->weight_before[w.first];

        eval_count_queryable(ev, grid, k, weight);
        *longest = weight > *longest ? weight : *longest;
        e = eval_tick(ev, 1, ei);
    }
    if (m->run->plan->subquery != NULL)
        *longest = m->weight_before[m->column->count];
    return e;
}

/* The floats of the column, as a column. */
static enum err floats_take(struct mixed_run *m, struct column *out, struct errinfo *ei)
{
    const struct column *c = m->column;
    size_t count = m->floats_before[c->count], n = 0;
    int64_t *t_ms = ARENA_ARRAY(&m->arena, count, int64_t);
    double *value = ARENA_ARRAY(&m->arena, count, double);
    int64_t *start_ms = c->start_ms == NULL ? NULL : ARENA_ARRAY(&m->arena, count, int64_t);

    if (t_ms == NULL || value == NULL || (c->start_ms != NULL && start_ms == NULL))
        return arena_refused(&m->arena, ei);
    for (size_t i = 0; i < c->count; i++) {
        if (c->histogram[i] != NULL)
            continue;
        if (start_ms != NULL)
            start_ms[n] = c->start_ms[i];
        t_ms[n] = c->t_ms[i];
        value[n++] = c->value[i];
    }
    *out = (struct column){.count = n, .t_ms = t_ms, .value = value, .start_ms = start_ms};
    return eval_tick(m->run->ev, c->count, ei);
}

static enum err floats_run(struct mixed_run *m, struct errinfo *ei)
{
    struct column floats;
    enum err e;

    if (m->floats_before[m->column->count] == 0)
        return ERR_OK;
    e = floats_take(m, &floats, ei);
    if (e == ERR_OK)
        e = windows_prepare(m->run, &floats, ei);
    return e == ERR_OK ? range_windows_evaluate(m->run, &floats, m->row, ei) : e;
}

static enum err steps_run(struct mixed_run *m, struct errinfo *ei)
{
    struct range_run *run = m->run;
    mixed_function *function = mixed_functions[run->plan->function->id];
    enum err e = row_want_histograms(run->ev, m->row, &run->plan->grid, run->out, ei);

    if (e == ERR_OK && function == NULL)
        return errinfo_set(ei, ERR_INTERNAL, 0, "function %s knows no histograms",
                           run->plan->function->name);
    for (size_t k = 0; k < run->plan->grid.count && e == ERR_OK; k++) {
        struct span w = m->spans[k];

        e = eval_tick(run->ev, 1 + m->weight_before[w.end] - m->weight_before[w.first], ei);
        if (e != ERR_OK || !mixed_has_histogram(m, mixed_reach(m, k)))
            continue;
        e = function(m, k);
        arena_reset(&m->scratch);
    }
    return e;
}

enum err range_mixed_run(struct range_run *run, const struct column *c, struct str metric_name,
                         struct row *row, struct errinfo *ei)
{
    struct mixed_run m = {
        .run = run,
        .column = c,
        .row = row,
        .annotator = {&run->ev->annotations, range_argument_position(run), metric_name, 0},
        .ei = ei};
    uint64_t held = 0;
    enum err e;

    arena_init(&m.arena, run->ev->query->memory);
    arena_init(&m.scratch, run->ev->query->memory);
    e = sums_fill(&m, ei);
    if (e == ERR_OK)
        e = windows_take(&m, ei);
    if (e == ERR_OK)
        e = windows_weigh(&m, &held, ei);
    if (e == ERR_OK)
        e = eval_samples_hold(run->ev, held, ei);
    if (e == ERR_OK) {
        e = floats_run(&m, ei);
        if (e == ERR_OK)
            e = steps_run(&m, ei);
        eval_samples_release(run->ev, held);
    }
    arena_done(&m.scratch);
    arena_done(&m.arena);
    return e;
}
