/*
 * Reading series from the store, in batches of columns.
 *
 * Series are read in batches, so that what is decoded at a time stays small whatever a selector
 * matches. Their order is what the consumer asked for:
 *
 *   ORDER_ANY     as the store gives them.
 *   ORDER_LABELS  by labels.
 *   ORDER_FOLD    by labels up to ORDERED_MAX series (Prometheus's own order, so that small sums
 * round as there); beyond, as the store gives them: folds do not depend on the order then.
 *   ORDER_FIXED   likewise, but beyond by fingerprint. Dear to read: neighbours of that order lie
 *                 anywhere in the store.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "promql/eval/eval_internal.h"
#include "promql/eval/eval_share_internal.h"
#include "promql/eval/label_sets_internal.h"
#include "promql/eval/pairs_internal.h"

enum {
    ORDERED_MAX = 1024,
    /* Decoded columns of a batch should stay in the second-level cache. */
    BATCH_SAMPLES = 32768,
    BATCH_SERIES_FIRST = 64,
    BATCH_SERIES_MIN = 16,
    /* Nothing looks at the stop flag while a batch is decoded: fewer series where they are long. */
    BATCH_SAMPLES_MAX = 1 << 20,
    SAMPLE_DISTANCE_LEAST_MS = 1000, /* guessed, of the first batch */
};

static int fingerprint_compare(const void *a, const void *b, void *context)
{
    (void)context; /* fingerprints need none */
    const struct hash128 *x = &((const struct series_handle *)a)->fingerprint;
    const struct hash128 *y = &((const struct series_handle *)b)->fingerprint;

    if (x->high != y->high)
        return x->high < y->high ? -1 : 1;
    return (x->low > y->low) - (x->low < y->low);
}

/* *any_order: what follows may not depend on the order. */
static enum err series_sort(struct eval *ev, enum series_order order, struct series_list *list,
                            bool *any_order, struct errinfo *ei)
{
    bool few = list->count <= ORDERED_MAX;

    *any_order = order == ORDER_ANY || (order == ORDER_FOLD && !few);
    if (*any_order || list->count < 2)
        return ERR_OK;
    if (order == ORDER_LABELS || few)
        return querier_sort(ev->querier, list, ei);
    return eval_sort_items(ev, list->items, list->count, sizeof *list->items, fingerprint_compare,
                           NULL, ei);
}

/* Label sets of only the needed names. */
static enum err labels_restricted(struct eval *ev, const struct label_need *need,
                                  const struct series_handle *items, size_t count,
                                  struct arena *arena, struct labels *out, struct errinfo *ei)
{
    struct str *values = arena_alloc_array(arena, count, need->count * sizeof *values);
    struct label *labels = arena_alloc_array(arena, count, need->count * sizeof *labels);
    enum err e;

    if (values == NULL || labels == NULL)
        return arena_refused(arena, ei);
    e = querier_label_values_of(ev->querier, items, count, need->names, need->count, values, ei);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < count; i++) {
        out[i] = (struct labels){0, labels};
        for (size_t k = 0; k < need->count; k++) {
            const struct str *value = &values[i * need->count + k];

            if (value->size > 0) {
                *labels++ = (struct label){need->names[k], *value};
                out[i].count++;
            }
        }
    }
    return ERR_OK;
}

static enum err labels_read(struct eval *ev, const struct label_need *need,
                            const struct series_handle *items, size_t count, struct arena *arena,
                            struct labels *out, struct errinfo *ei)
{
    if (need->all || ev->in_label_order)
        return querier_labels(ev->querier, items, count, arena, out, ei);
    if (need->count > 0)
        return labels_restricted(ev, need, items, count, arena, out, ei);
    memset(out, 0, count * sizeof *out);
    return ERR_OK;
}

static enum err batch_read(struct eval *ev, const struct plan *p, const struct series_handle *items,
                           int64_t min_time_ms, int64_t max_time_ms, struct column_batch *b,
                           struct errinfo *ei)
{
    struct column *columns = ARENA_ARRAY(b->arena, b->count, struct column);
    struct labels *labels = ARENA_ARRAY(b->arena, b->count, struct labels);
    uint64_t samples = 0;
    enum err e;

    if (columns == NULL || labels == NULL)
        return arena_refused(b->arena, ei);
    e = querier_read(ev->querier, items, b->count, min_time_ms, max_time_ms, b->arena, columns, ei);
    if (e == ERR_OK)
        e = labels_read(ev, &p->need, items, b->count, b->arena, labels, ei);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < b->count; i++) {
        samples += columns[i].count;
        if (!ev->settings->start_timestamps)
            columns[i].start_ms = NULL;
        if (UNLIKELY(columns[i].histogram != NULL) && p->counts_only)
            e = column_strip_buckets(ev, &columns[i], b->arena, ei);
        if (e != ERR_OK)
            return e;
    }
    atomic_fetch_add_explicit(&ev->counters->samples_read, samples, memory_order_relaxed);
    if (ev->query->progress != NULL)
        atomic_fetch_add_explicit(&ev->query->progress->samples_read, samples,
                                  memory_order_relaxed);
    b->columns = columns;
    b->labels = labels;
    return eval_tick(ev, samples + b->count, ei);
}

/* A run of a selector on one thread. */
struct column_run {
    struct eval *ev;
    const struct plan *plan;
    struct series_queue *queue;
    int64_t min_time_ms, max_time_ms;
    struct column_sink *sink;
    size_t batch_count;     /* series of the next batch */
    uint64_t memory_before; /* of the query, in use */
};

/* `count`, or as many series of `samples` each as may be decoded at once; one at least. */
static size_t batch_bound(size_t count, uint64_t samples)
{
    uint64_t bound = samples == 0 ? count : BATCH_SAMPLES_MAX / samples;

    if (bound == 0)
        bound = 1;
    return bound < count ? (size_t)bound : count;
}

static void batch_adapt(struct column_run *run, const struct column_batch *b)
{
    size_t samples = 0, count = BATCH_SAMPLES;

    ASSERT(b->count > 0);
    for (size_t i = 0; i < b->count; i++)
        samples += column_weight(&b->columns[i]);
    if (samples > b->count)
        count = BATCH_SAMPLES / (samples / b->count);
    count = count < BATCH_SERIES_MIN ? BATCH_SERIES_MIN : count;
    count = count < QUERIER_READ_BATCH_MAX ? count : QUERIER_READ_BATCH_MAX;
    run->batch_count = batch_bound(count, samples / b->count);
}

static enum err list_stream(struct column_run *run, const struct series_list *list,
                            struct arena *arena, struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0, n; e == ERR_OK && i < list->count; i += n) {
        struct column_batch b = {.arena = arena,
                                 .any_order = run->queue->any_order,
                                 .stable_strings = run->queue->stable_strings};

        n = list->count - i < run->batch_count ? list->count - i : run->batch_count;
        b.count = n;
        e = batch_read(run->ev, run->plan, list->items + i, run->min_time_ms, run->max_time_ms, &b,
                       ei);
        if (e == ERR_OK) {
            ASSERT(b.columns != NULL);
            e = run->sink->push(run->sink, &b, ei);
        }
        if (e == ERR_OK)
            batch_adapt(run, &b);
        arena_reset(arena);
    }
    return e;
}

/* Notes what this run has taken of the query's memory, its helpers' part included. */
static void memory_note(const struct column_run *run)
{
    struct eval_counters *c = run->ev->counters;
    const struct budget *memory = run->ev->query->memory;
    uint64_t used = memory == NULL ? 0 : budget_used(memory);

    if (run->ev->queue != NULL || used <= run->memory_before + c->largest_bytes)
        return;
    c->largest_bytes = used - run->memory_before;
    c->largest_selector = run->plan->selector->position;
}

static enum err queue_stream(struct column_run *run, struct errinfo *ei)
{
    struct arena arena;
    enum err e = ERR_OK;

    arena_init(&arena, run->ev->query->memory);
    while (e == ERR_OK) {
        struct series_list list = series_queue_take(run->queue);

        if (list.count == 0)
            break;
        e = list_stream(run, &list, &arena, ei);
    }
    if (e != ERR_OK)
        atomic_store_explicit(&run->queue->is_finished, true, memory_order_relaxed);
    memory_note(run);
    arena_done(&arena);
    return e;
}

static enum err queue_fill(struct column_run *run, struct arena *arena, struct errinfo *ei)
{
    const struct plan *p = run->plan;
    const struct node *s = p->selector;
    struct series_queue *q = run->queue;
    struct series_list list;
    enum err e =
        querier_select(run->ev->querier, s->u.selector.matchers, s->u.selector.matcher_count,
                       run->min_time_ms, run->max_time_ms, arena, &list, ei);

    if (e == ERR_OK)
        e = series_sort(run->ev, run->ev->in_label_order ? ORDER_LABELS : p->order, &list,
                        &q->any_order, ei);
    if (e != ERR_OK)
        return e;
    q->items = list.items;
    q->count = q->take_count = list.count;
    /* For few series a cache of pointers costs more than it saves. */
    q->stable_strings = !p->need.all && !run->ev->in_label_order && list.count > ORDERED_MAX;
    return ERR_OK;
}

enum err eval_selector_columns(struct eval *ev, const struct plan *p, int64_t min_time_ms,
                               int64_t max_time_ms, struct column_sink *sink, struct errinfo *ei)
{
    struct series_queue queue = {0};
    struct column_run run = {
        ev,
        p,
        ev->queue != NULL ? ev->queue : &queue,
        min_time_ms,
        max_time_ms,
        sink,
        batch_bound(BATCH_SERIES_FIRST,
                    (uint64_t)ms_subtract(max_time_ms, min_time_ms) / SAMPLE_DISTANCE_LEAST_MS),
        ev->query->memory == NULL ? 0 : budget_used(ev->query->memory)};
    struct arena list_arena;
    bool is_shared = false;
    enum err e = eval_check(ev, ei);

    if (e != ERR_OK)
        return e;
    arena_init(&list_arena, ev->query->memory);
    if (ev->queue == NULL)
        e = queue_fill(&run, &list_arena, ei);
    if (e == ERR_OK && ev->share != NULL)
        is_shared = share_offer(ev->share, &queue, ms_subtract(max_time_ms, min_time_ms));
    if (e == ERR_OK)
        e = queue_stream(&run, ei);
    if (is_shared)
        share_join(ev->share);
    memory_note(&run);
    arena_done(&list_arena);
    return e;
}

/* The first staleness marker of [i, end), or `end`. Most columns have no NaN at all. */
static size_t stale_next(const double *value, size_t i, size_t end)
{
    enum { BLOCK = 64 };

    for (; end - i >= BLOCK; i += BLOCK) {
        pair_mask nans = {0};

        for (size_t k = 0; k < BLOCK; k += 2) {
            pair v = pair_load(value + i + k);

            nans |= v != v; /* NOLINT(misc-redundant-expression): true of a NaN */
        }
        for (size_t k = 0; pair_any(nans) && k < BLOCK; k++) {
            if (is_stale(value[i + k]))
                return i + k;
        }
    }
    while (i < end && !is_stale(value[i]))
        i++;
    return i;
}

/* The index of the first staleness marker, or the count. */
static enum err stale_find(struct eval *ev, const struct column *in, size_t *out,
                           struct errinfo *ei)
{
    enum err e = ERR_OK;

    *out = 0;
    for (size_t end; e == ERR_OK && *out < in->count;) {
        e = eval_piece(ev, *out, in->count, &end, ei);
        if (e == ERR_OK)
            *out = stale_next(in->value, *out, end);
        if (*out < end)
            break;
    }
    return e;
}

enum err column_without_stale(struct eval *ev, const struct column *in, struct arena *arena,
                              struct column *out, struct errinfo *ei)
{
    const struct histogram **histogram = NULL;
    size_t first, n = 0;
    int64_t *t_ms, *start_ms = NULL;
    double *value;
    enum err e = stale_find(ev, in, &first, ei);

    if (e != ERR_OK)
        return e;
    *out = *in;
    if (first == in->count)
        return ERR_OK;
    t_ms = ARENA_ARRAY(arena, in->count, int64_t);
    value = ARENA_ARRAY(arena, in->count, double);
    if (in->histogram != NULL)
        histogram = ARENA_ARRAY(arena, in->count, const struct histogram *);
    if (in->start_ms != NULL)
        start_ms = ARENA_ARRAY(arena, in->count, int64_t);
    if (t_ms == NULL || value == NULL || (in->histogram != NULL && histogram == NULL) ||
        (in->start_ms != NULL && start_ms == NULL))
        return arena_refused(arena, ei);
    for (size_t i = 0, end; e == ERR_OK && i < in->count; i = end) {
        e = eval_piece(ev, i, in->count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++) {
            if (is_stale(in->value[k]))
                continue;
            t_ms[n] = in->t_ms[k];
            value[n] = in->value[k];
            if (histogram != NULL)
                histogram[n] = in->histogram[k];
            if (start_ms != NULL)
                start_ms[n] = in->start_ms[k];
            n++;
        }
    }
    *out = (struct column){n, t_ms, value, histogram, start_ms};
    return e;
}

enum err eval_batch_init(struct batch *out, const struct grid *grid,
                         const struct column_batch *columns, struct errinfo *ei)
{
    struct row *rows = ARENA_ARRAY(columns->arena, columns->count, struct row);

    if (rows == NULL)
        return arena_refused(columns->arena, ei);
    *out = (struct batch){.rows = rows,
                          .grid = grid,
                          .arena = columns->arena,
                          .any_order = columns->any_order,
                          .stable_strings = columns->stable_strings};
    return ERR_OK;
}
