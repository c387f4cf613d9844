/*
 * Histograms in rows: their column, and copies into another lifetime. Histograms of one series
 * mostly share their layout, and a lookback gives the same one at many steps, so copies share too.
 */
#include "promql/eval/eval_internal.h"
#include "promql/histogram_math.h"

uint64_t histogram_weight(const struct histogram *h)
{
    enum { STRUCT_BYTES = 168, TIME_BYTES = 8, ITEM_BYTES = 8, SAMPLE_BYTES = 16 };
    size_t items = h->positive.span_count + h->negative.span_count + h->positive.bucket_count +
                   h->negative.bucket_count + h->custom_count;

    return (STRUCT_BYTES + TIME_BYTES + ITEM_BYTES * items) / SAMPLE_BYTES;
}

uint64_t column_weight(const struct column *c)
{
    uint64_t weight = c->count;

    for (size_t i = 0; c->histogram != NULL && i < c->count; i++)
        weight += c->histogram[i] == NULL ? 0 : histogram_weight(c->histogram[i]) - 1;
    return weight;
}

/* The hint of a sample behind `before`, the last one that is no staleness marker; NULL: none. */
static enum histogram_hint hint_behind(const struct histogram *h, const struct histogram *before)
{
    if (h->hint != HISTOGRAM_HINT_UNKNOWN || before == NULL)
        return h->hint;
    return histogram_detect_reset(h, before) ? HISTOGRAM_HINT_RESET : HISTOGRAM_HINT_NOT_RESET;
}

enum err column_strip_buckets(struct eval *ev, struct column *c, struct arena *arena,
                              struct errinfo *ei)
{
    struct histogram *made = ARENA_ARRAY(arena, c->count, struct histogram);
    const struct histogram **list = arena_calloc(arena, c->count, sizeof(const struct histogram *));
    const struct histogram *before = NULL;
    enum err e = ERR_OK;

    if (made == NULL || list == NULL)
        return arena_refused(arena, ei);
    for (size_t i = 0; i < c->count && e == ERR_OK; i++) {
        const struct histogram *h = c->histogram[i];

        if (h == NULL)
            continue;
        made[i] = (struct histogram){
            .schema = h->schema, .hint = h->hint, .count = h->count, .sum = h->sum};
        list[i] = &made[i];
        if (histogram_is_stale(h))
            continue;
        made[i].hint = hint_behind(h, before);
        before = h;
        e = eval_tick(ev, histogram_weight(h), ei);
    }
    c->histogram = list;
    return e;
}

enum err row_want_histograms(struct eval *ev, struct row *r, const struct grid *grid,
                             struct arena *arena, struct errinfo *ei)
{
    if (r->histogram != NULL)
        return ERR_OK;
    r->histogram = arena_calloc(arena, grid->count, sizeof(const struct histogram *));
    if (r->histogram == NULL)
        return arena_refused(arena, ei);
    return eval_tick(ev, grid->count / 8, ei);
}

bool row_any_histogram(const struct row *r, size_t count)
{
    for (size_t k = 0; r->histogram != NULL && k < count; k++) {
        if (row_has(r, k) && r->histogram[k] != NULL)
            return true;
    }
    return false;
}

bool row_any_float(const struct row *r, const struct grid *grid)
{
    if (r->histogram == NULL)
        return !row_is_empty(r, grid);
    for (size_t k = 0; k < grid->count; k++) {
        if (row_has(r, k) && r->histogram[k] == NULL)
            return true;
    }
    return false;
}

enum err histogram_keep_made(struct histogram_keeper *k, const struct histogram *h,
                             const struct histogram **out, struct errinfo *ei)
{
    struct histogram *copy = ARENA_NEW(k->arena, struct histogram);
    enum err e;

    if (copy == NULL)
        return arena_refused(k->arena, ei);
    if (k->to != NULL && histogram_layout_same(h, k->to)) {
        e = histogram_copy(h, k->arena, copy);
        copy->positive.spans = k->to->positive.spans;
        copy->negative.spans = k->to->negative.spans;
        copy->custom_values = k->to->custom_values;
    } else {
        e = histogram_copy_deep(h, k->arena, copy);
    }
    if (e != ERR_OK)
        return arena_refused(k->arena, ei);
    k->from = NULL;
    k->to = *out = copy;
    return ERR_OK;
}

enum err histogram_keep(struct histogram_keeper *k, const struct histogram *h,
                        const struct histogram **out, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (h == k->from && h != NULL)
        *out = k->to;
    else
        e = histogram_keep_made(k, h, out, ei);
    k->from = h;
    return e;
}

enum err histograms_keep(struct eval *ev, const struct histogram *const *in,
                         const uint64_t *present, size_t count, struct arena *arena,
                         const struct histogram ***out, struct errinfo *ei)
{
    struct histogram_keeper keeper = {.arena = arena};
    const struct histogram **copies = arena_calloc(arena, count, sizeof(const struct histogram *));
    enum err e = eval_tick(ev, count / 8, ei);

    if (copies == NULL)
        return arena_refused(arena, ei);
    for (size_t k = 0; e == ERR_OK && k < count; k++) {
        if (in[k] == NULL || (present != NULL && !((present[k / 64] >> (k % 64)) & 1)))
            continue;
        e = histogram_keep(&keeper, in[k], &copies[k], ei);
        if (e == ERR_OK)
            e = eval_tick(ev, histogram_weight(in[k]), ei);
    }
    *out = copies;
    return e;
}
