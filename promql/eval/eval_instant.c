/*
 * The instant vector selector: columns of samples become rows, of which each step has the newest
 * sample of its lookback.
 *
 * Which sample that is depends on timestamps only, and the series of a target share those: what was
 * picked for one column stays for the next that has the same timestamps. Then a row is a loop
 * without branches. (Staleness markers are values: they are seen there.)
 */
#include <string.h>

#include "base/assert.h"
#include "promql/eval/eval_internal.h"
#include "promql/eval/label_sets_internal.h"
#include "promql/eval/pairs_internal.h"

enum {
    PICKS_STEPS_MIN = 8, /* for fewer steps, looking each up is cheaper */
    WORD_STEPS = 64,
};

/* For a column of timestamps, the sample of each step: 1 + its index, 0 for none. */
struct picks {
    struct arena arena;
    int64_t *t_ms; /* a copy */
    size_t count, capacity;
    uint32_t *samples; /* per step */
    uint64_t *runs;    /* a bit for 64 steps: they have neighbouring samples, one each */
    bool valid;
};

struct select_sink {
    struct column_sink sink;
    struct eval *ev;
    const struct plan *plan;
    struct sink *next;
    struct picks picks;
};

/* ---- picks ---- */

static enum err picks_reserve(struct picks *w, const struct grid *grid, size_t count,
                              struct errinfo *ei)
{
    if (w->samples == NULL)
        w->samples = ARENA_ARRAY(&w->arena, grid->count, uint32_t);
    if (w->runs == NULL)
        w->runs = ARENA_ARRAY(&w->arena, grid_words(grid) / WORD_STEPS + 1, uint64_t);
    if (w->samples != NULL && count > w->capacity) {
        w->capacity = count < 512 ? 512 : count + count / 2;
        w->t_ms = ARENA_ARRAY(&w->arena, w->capacity, int64_t);
    }
    if (w->samples == NULL || w->runs == NULL || w->t_ms == NULL) {
        w->capacity = 0;
        return arena_refused(&w->arena, ei);
    }
    return ERR_OK;
}

/* The newest sample at or before each step's time and younger than the lookback. */
static enum err picks_fill(struct select_sink *s, const struct column *c, uint32_t *out,
                           struct errinfo *ei)
{
    const struct plan *p = s->plan;
    size_t after = 0; /* first sample that is newer than the step */
    enum err e = ERR_OK;

    for (size_t i = 0, end; e == ERR_OK && i < p->grid.count; i = end) {
        size_t before = after;

        e = eval_piece(s->ev, i, p->grid.count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++) {
            int64_t t = plan_reference_ms(p, &p->grid, k);
            bool any;

            while (after < c->count && c->t_ms[after] <= t)
                after++;
            any = after > 0 && c->t_ms[after - 1] > ms_subtract(t, s->ev->lookback_ms);
            out[k] = any ? (uint32_t)after : 0;
        }
        if (e == ERR_OK)
            e = eval_tick(s->ev, after - before, ei);
    }
    return e;
}

static void runs_find(const uint32_t *samples, size_t count, uint64_t *runs)
{
    memset(runs, 0, ((count + WORD_STEPS - 1) / WORD_STEPS / WORD_STEPS + 1) * sizeof *runs);
    for (size_t k = 0; k < count; k += WORD_STEPS) {
        size_t n = count - k < WORD_STEPS ? count - k : WORD_STEPS;
        bool is_run = samples[k] > 0;

        for (size_t i = 1; is_run && i < n; i++)
            is_run = samples[k + i] == samples[k] + i;
        runs[k / WORD_STEPS / WORD_STEPS] |= (uint64_t)is_run << (k / WORD_STEPS % WORD_STEPS);
    }
}

static enum err picks_prepare(struct select_sink *s, const struct column *c, struct errinfo *ei)
{
    struct picks *w = &s->picks;
    enum err e;

    if (w->valid && w->count == c->count &&
        memcmp(w->t_ms, c->t_ms, c->count * sizeof *w->t_ms) == 0)
        return ERR_OK;
    w->valid = false;
    if (c->count >= UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "too many samples in one series");
    e = picks_reserve(w, &s->plan->grid, c->count, ei);
    if (e == ERR_OK)
        e = picks_fill(s, c, w->samples, ei);
    if (e != ERR_OK)
        return e;
    runs_find(w->samples, s->plan->grid.count, w->runs);
    memcpy(w->t_ms, c->t_ms, c->count * sizeof *w->t_ms);
    w->count = c->count;
    w->valid = true;
    return ERR_OK;
}

/* ---- rows ---- */

static void select_set(const struct plan *p, const struct column *c, size_t i, struct row *row,
                       size_t step)
{
    if (p->wants_timestamp)
        row_set(row, step, (double)c->t_ms[i] / 1000);
    else if (p->wants_start)
        row_set(row, step, c->start_ms == NULL ? 0 : (double)c->start_ms[i] / 1000);
    else if (c->histogram == NULL || c->histogram[i] == NULL)
        row_set(row, step, c->value[i]);
    else
        row_set_histogram(row, step, c->histogram[i]);
}

/* Values of floats at up to 64 steps; gives their bits of the bitmap. Absent steps get zeros. */
static inline uint64_t values_pick(const double *value, const uint32_t *samples, size_t count,
                                   double *out)
{
    uint64_t present = 0;

    for (size_t k = 0; k < count; k++) {
        double v = value[samples[k] - (samples[k] > 0)];
        bool is_there = samples[k] > 0 && !is_stale(v);

        out[k] = is_there ? v : 0;
        present |= (uint64_t)is_there << k;
    }
    return present;
}

/* The same for samples that are neighbours; false, and nothing is of use, if one is a NaN. */
static inline bool values_copy(const double *value, size_t count, double *out)
{
    pair_mask nans = {0};
    size_t k = 0;

    for (; k + 2 <= count; k += 2) {
        pair v = pair_load(value + k);

        pair_store(out + k, v);
        nans |= v != v; /* NOLINT(misc-redundant-expression): true of a NaN */
    }
    if (k < count)
        out[k] = value[k];
    return !pair_any(nans) && (k == count || !isnan(value[k]));
}

/* Up to 64 steps of a column of floats; gives their bits of the bitmap. */
static inline uint64_t word_pick(const double *value, const uint32_t *samples, bool is_run,
                                 size_t count, double *out)
{
    DEBUG_ASSERT(count > 0);
    if (is_run && values_copy(value + samples[0] - 1, count, out))
        return ~UINT64_C(0) >> (WORD_STEPS - count);
    return values_pick(value, samples, count, out);
}

/* Floats: row_pick() sets every step. */
static bool is_plain(const struct plan *p, const struct column *c)
{
    return !p->wants_timestamp && !p->wants_start && c->histogram == NULL;
}

/* Steps [begin, end), whole words of the bitmap. A staleness marker as the newest sample means that
 * the series has ended. */
static void row_pick(const struct plan *p, const struct column *c, const uint32_t *samples,
                     const uint64_t *runs, size_t begin, size_t end, struct row *row)
{
    bool plain = is_plain(p, c);

    for (size_t k = begin; k < end; k += WORD_STEPS) {
        size_t count = end - k < WORD_STEPS ? end - k : WORD_STEPS;

        if (plain) {
            size_t word = k / WORD_STEPS;

            row->present[word] = word_pick(c->value, samples + k,
                                           (runs[word / WORD_STEPS] >> (word % WORD_STEPS)) & 1,
                                           count, row->value + k);
            continue;
        }
        for (size_t i = k; i < k + count; i++)
            if (samples[i] > 0 && !is_stale(c->value[samples[i] - 1]))
                select_set(p, c, samples[i] - 1, row, i);
    }
}

/* `p` says what of a sample goes into the row; its grid is that of the sink's plan. */
static enum err select_fill(struct select_sink *s, const struct plan *p, const struct column *c,
                            struct row *row, struct errinfo *ei)
{
    uint32_t few[PICKS_STEPS_MIN] = {0};
    const uint32_t *samples = few;
    const uint64_t no_runs = 0, *runs = &no_runs; /* few steps are less than a word */
    enum err e;

    if (p->grid.count < PICKS_STEPS_MIN) {
        e = picks_fill(s, c, few, ei);
    } else {
        e = picks_prepare(s, c, ei);
        samples = s->picks.samples;
        runs = s->picks.runs;
    }
    for (size_t i = 0, end; e == ERR_OK && i < p->grid.count; i = end) {
        e = eval_piece(s->ev, i, p->grid.count, &end, ei);
        if (e == ERR_OK)
            row_pick(p, c, samples, runs, i, end, row);
    }
    return e;
}

/* timestamp() and start_timestamp() look at samples, not at lines between them. */
static bool is_smoothed(const struct plan *p)
{
    return p->extension == EXTENSION_SMOOTHED && !p->wants_timestamp && !p->wants_start;
}

static enum err select_smoothed(struct select_sink *s, const struct column *raw,
                                const struct labels *labels, struct arena *arena, struct row *row,
                                struct errinfo *ei)
{
    struct column c;
    enum err e = column_without_stale(s->ev, raw, arena, &c, ei);

    if (e == ERR_OK && c.histogram != NULL)
        return smoothed_fill_histograms(s->ev, s->plan, &c, labels, row, arena, ei);
    return e == ERR_OK ? smoothed_fill(s->ev, s->plan, &c, row, ei) : e;
}

/* An info series that gives a histogram at any step is an error. */
static enum err select_refuse(struct select_sink *s, const struct column *c,
                              const struct labels *labels, struct arena *arena, struct errinfo *ei)
{
    struct plan plan = *s->plan;
    const char *text;
    struct row row;
    enum err e = row_alloc(s->ev, &row, &plan.grid, arena, ei);

    plan.wants_timestamp = false;
    if (e == ERR_OK)
        e = row_want_histograms(s->ev, &row, &plan.grid, arena, ei);
    if (e == ERR_OK)
        e = select_fill(s, &plan, c, &row, ei);
    if (e != ERR_OK || !row_any_histogram(&row, plan.grid.count))
        return e;
    text = labels_text(labels, arena);
    if (text == NULL)
        return arena_refused(arena, ei);
    return errinfo_set(ei, ERR_EXECUTION, 0,
                       "this should be an info metric, with float samples: %s", text);
}

/* One series into an empty row. */
static enum err select_row(struct select_sink *s, const struct column *c,
                           const struct labels *labels, struct arena *arena, struct row *row,
                           struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (c->histogram != NULL && s->plan->refuses_histograms)
        e = select_refuse(s, c, labels, arena, ei);
    if (e == ERR_OK && c->histogram != NULL)
        e = row_want_histograms(s->ev, row, &s->plan->grid, arena, ei);
    if (e == ERR_OK && is_smoothed(s->plan))
        e = select_smoothed(s, c, labels, arena, row, ei);
    else if (e == ERR_OK)
        e = select_fill(s, s->plan, c, row, ei);
    return e;
}

static enum err select_push(struct column_sink *sink, struct column_batch *columns,
                            struct errinfo *ei)
{
    struct select_sink *s = (struct select_sink *)sink;
    const struct grid *grid = &s->plan->grid;
    struct batch b;
    enum err e = eval_batch_init(&b, grid, columns, ei);

    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < columns->count && e == ERR_OK; i++) {
        struct row *row = &b.rows[b.count];

        if (columns->columns[i].count == 0)
            continue;
        if (is_plain(s->plan, &columns->columns[i]) && !is_smoothed(s->plan))
            e = row_alloc_unset(row, grid, b.arena, ei);
        else
            e = row_alloc(s->ev, row, grid, b.arena, ei);
        if (e == ERR_OK)
            e = select_row(s, &columns->columns[i], &columns->labels[i], b.arena, row, ei);
        if (e != ERR_OK)
            break;
        eval_count_row(s->ev, grid, row);
        row->labels = columns->labels[i];
        b.count += !row_is_empty(row, grid);
    }
    if (e != ERR_OK || b.count == 0)
        return e;
    return s->next->push(s->next, &b, ei);
}

enum err eval_selector_stream(struct eval *ev, const struct plan *p, struct sink *sink,
                              struct errinfo *ei)
{
    struct select_sink s = {.sink.push = select_push, .ev = ev, .plan = p, .next = sink};
    int64_t first = plan_reference_ms(p, &p->grid, 0);
    int64_t last = plan_reference_ms(p, &p->grid, p->grid.count - 1);
    enum err e;

    arena_init(&s.picks.arena, ev->query->memory);
    /* The lookback is open on the left. */
    e = eval_selector_columns(ev, p, ms_add(ms_subtract(first, ev->lookback_ms), 1),
                              is_smoothed(p) ? ms_add(last, ev->lookback_ms) : last, &s.sink, ei);
    arena_done(&s.picks.arena);
    return e;
}
