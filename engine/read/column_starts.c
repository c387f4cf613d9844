/*
 * Start timestamps out of a column as it was stored. A float that has one lies among the histograms
 * (HISTOGRAM_SCHEMA_FLOAT), since chunks of floats have no room for it; whoever reads the store
 * sees a float, and the start timestamps beside.
 */
#include <string.h>

#include "engine/histogram.h"
#include "engine/read/column_merge_internal.h"

static bool has_start(const struct histogram *h)
{
    return h != NULL && (h->start_ms != 0 || histogram_is_float(h));
}

bool column_take_starts(struct column *c, struct arena *arena)
{
    const struct histogram **histogram;
    int64_t *start_ms;
    bool any = false, any_histogram = false;

    c->start_ms = NULL;
    for (size_t i = 0; c->histogram != NULL && i < c->count && !any; i++)
        any = has_start(c->histogram[i]);
    if (!any)
        return true;
    histogram = arena_calloc(arena, c->count, sizeof(const struct histogram *));
    start_ms = arena_calloc(arena, c->count, sizeof *start_ms);
    if (histogram == NULL || start_ms == NULL)
        return false;
    for (size_t i = 0; i < c->count; i++) {
        const struct histogram *h = c->histogram[i];

        if (h == NULL)
            continue;
        start_ms[i] = h->start_ms;
        histogram[i] = histogram_is_float(h) ? NULL : h;
        any_histogram |= histogram[i] != NULL;
    }
    c->start_ms = start_ms;
    c->histogram = any_histogram ? histogram : NULL;
    return true;
}
