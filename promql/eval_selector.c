/*
 * Reading series from the store, and the instant vector selector.
 *
 * Series are read in batches, so that what is decoded at a time stays small whatever a selector
 * matches. Their order is what the consumer asked for:
 *
 *   ORDER_ANY     as the store gives them.
 *   ORDER_LABELS  by labels.
 *   ORDER_FIXED   by labels up to FIXED_BY_LABELS_MAX series (Prometheus's own order, so that small
 *                 sums round as there); beyond, by fingerprint in 64 units of its top bits. A batch
 *                 never crosses units. Folds merge units in order, so that a unit may be folded
 *                 anywhere and the answer is the same to the last bit.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/write.h"
#include "promql/eval_internal.h"

enum {
    FIXED_BY_LABELS_MAX = 1024,
    UNIT_SHIFT = 64 - 6,
    LONG_RANGE_MS = 10 * 60 * 1000,
    LONG_RANGE_BATCH = 128, /* decoded columns of a batch should stay near the caches */
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

static enum err series_sort(struct eval *ev, enum series_order order, struct series_list *list,
                            bool *by_units, struct errinfo *ei)
{
    *by_units = false;
    if (order == ORDER_ANY || list->count < 2)
        return ERR_OK;
    if (order == ORDER_LABELS || list->count <= FIXED_BY_LABELS_MAX)
        return querier_sort(ev->querier, list, ei);
    *by_units = true;
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
    if (need->all)
        return querier_labels(ev->querier, items, count, arena, out, ei);
    if (need->count > 0)
        return labels_restricted(ev, need, items, count, arena, out, ei);
    memset(out, 0, count * sizeof *out);
    return ERR_OK;
}

/* How many series from `first` on make the next batch. */
static size_t batch_count(const struct series_list *list, size_t first, size_t max, bool by_units)
{
    size_t count = list->count - first < max ? list->count - first : max;

    for (size_t i = 1; by_units && i < count; i++) {
        if (list->items[first + i].fingerprint.high >> UNIT_SHIFT !=
            list->items[first].fingerprint.high >> UNIT_SHIFT)
            return i;
    }
    return count;
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
    for (size_t i = 0; i < b->count; i++)
        samples += columns[i].count;
    atomic_fetch_add_explicit(&ev->samples_read, samples, memory_order_relaxed);
    b->columns = columns;
    b->labels = labels;
    return eval_tick(ev, samples + b->count, ei);
}

enum err eval_selector_columns(struct eval *ev, const struct plan *p, int64_t min_time_ms,
                               int64_t max_time_ms, struct column_sink *sink, struct errinfo *ei)
{
    const struct node *s = p->selector;
    size_t max = ms_subtract(max_time_ms, min_time_ms) > LONG_RANGE_MS ? LONG_RANGE_BATCH
                                                                       : QUERIER_READ_BATCH_MAX;
    struct series_list list;
    struct arena list_arena, arena;
    bool by_units = false;
    enum err e = eval_check(ev, ei);

    if (e != ERR_OK)
        return e;
    arena_init(&list_arena, ev->query->memory);
    arena_init(&arena, ev->query->memory);
    e = querier_select(ev->querier, s->u.selector.matchers, s->u.selector.matcher_count,
                       min_time_ms, max_time_ms, &list_arena, &list, ei);
    if (e == ERR_OK)
        e = series_sort(ev, p->order, &list, &by_units, ei);
    for (size_t i = 0, n; e == ERR_OK && i < list.count; i += n) {
        /* For few series a cache of pointers costs more than it saves. */
        bool stable = !p->need.all && list.count > FIXED_BY_LABELS_MAX;
        struct column_batch b = {.arena = &arena, .stable_strings = stable};

        n = batch_count(&list, i, max, by_units);
        b.count = n;
        b.unit = by_units ? (uint32_t)(list.items[i].fingerprint.high >> UNIT_SHIFT) : 0;
        e = batch_read(ev, p, list.items + i, min_time_ms, max_time_ms, &b, ei);
        if (e == ERR_OK)
            e = sink->push(sink, &b, ei);
        arena_reset(&arena);
    }
    arena_done(&arena);
    arena_done(&list_arena);
    return e;
}

static bool is_stale(double value)
{
    return double_bits(value) == STALE_NAN_BITS;
}

/* The index of the first staleness marker, or the count. */
static enum err stale_find(struct eval *ev, const struct column *in, size_t *out,
                           struct errinfo *ei)
{
    enum err e = ERR_OK;

    *out = 0;
    for (size_t end; e == ERR_OK && *out < in->count;) {
        e = eval_piece(ev, *out, in->count, &end, ei);
        while (*out < end && !is_stale(in->value[*out]))
            (*out)++;
        if (*out < end)
            break;
    }
    return e;
}

enum err column_without_stale(struct eval *ev, const struct column *in, struct arena *arena,
                              struct column *out, struct errinfo *ei)
{
    size_t first, n = 0;
    int64_t *t_ms;
    double *value;
    enum err e = stale_find(ev, in, &first, ei);

    if (e != ERR_OK)
        return e;
    *out = *in;
    if (first == in->count)
        return ERR_OK;
    t_ms = ARENA_ARRAY(arena, in->count, int64_t);
    value = ARENA_ARRAY(arena, in->count, double);
    if (t_ms == NULL || value == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0, end; e == ERR_OK && i < in->count; i = end) {
        e = eval_piece(ev, i, in->count, &end, ei);
        for (size_t k = i; e == ERR_OK && k < end; k++) {
            if (is_stale(in->value[k]))
                continue;
            t_ms[n] = in->t_ms[k];
            value[n++] = in->value[k];
        }
    }
    *out = (struct column){n, t_ms, value};
    return e;
}

/* Turns columns into rows of an instant vector. */
struct select_sink {
    struct column_sink sink;
    struct eval *ev;
    const struct plan *plan;
    struct sink *next;
};

/* The newest sample at or before each step's time and younger than the lookback; a staleness
 * marker there means that the series has ended. */
static enum err select_fill(const struct select_sink *s, const struct column *c, struct row *row,
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

            while (after < c->count && c->t_ms[after] <= t)
                after++;
            if (after == 0 || c->t_ms[after - 1] <= ms_subtract(t, s->ev->lookback_ms) ||
                is_stale(c->value[after - 1]))
                continue;
            row_set(row, k,
                    p->wants_timestamp ? (double)c->t_ms[after - 1] / 1000 : c->value[after - 1]);
        }
        if (e == ERR_OK)
            e = eval_tick(s->ev, after - before, ei);
    }
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
                          .unit = columns->unit,
                          .stable_strings = columns->stable_strings};
    return ERR_OK;
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
        e = row_alloc(s->ev, row, grid, b.arena, ei);
        if (e == ERR_OK)
            e = select_fill(s, &columns->columns[i], row, ei);
        if (e != ERR_OK)
            break;
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

    /* The lookback is open on the left. */
    return eval_selector_columns(ev, p, ms_add(ms_subtract(first, ev->lookback_ms), 1), last,
                                 &s.sink, ei);
}
