/*
 * Bounds of histogram chunks, for writers and readers of files.
 */
#include "engine/histogram_chunk.h"

#include <string.h>

static bool same_bytes(const void *a, size_t a_count, const void *b, size_t b_count, size_t size)
{
    return a_count == b_count && (a == b || a_count == 0 || memcmp(a, b, a_count * size) == 0);
}

/* Down to empty spans: a chunk gives back what it was given. */
static bool same_layout(const struct histogram *a, const struct histogram *b)
{
    return same_bytes(a->positive.spans, a->positive.span_count, b->positive.spans,
                      b->positive.span_count, sizeof *a->positive.spans) &&
           same_bytes(a->negative.spans, a->negative.span_count, b->negative.spans,
                      b->negative.span_count, sizeof *a->negative.spans) &&
           same_bytes(a->custom_values, a->custom_count, b->custom_values, b->custom_count,
                      sizeof *a->custom_values);
}

size_t histogram_chunk_weight(const struct histogram *h, const struct histogram *before)
{
    size_t numbers = h->positive.bucket_count + h->negative.bucket_count;

    if (before == NULL || !same_layout(h, before))
        numbers += h->positive.span_count + h->negative.span_count + h->custom_count;
    return sizeof *h + numbers * sizeof(double);
}

/* The arena charges through a narrower budget for the length of the call; what it has charged to
 * the parent stays there. */
enum err histogram_chunk_decode(struct bytes column, size_t n, struct arena *arena,
                                struct histogram **out, struct errinfo *ei)
{
    struct budget *own = arena->budget, limit;
    struct histogram *items;
    enum err e = ERR_OK;

    budget_init(&limit, "a chunk of histograms", HISTOGRAM_CHUNK_DECODED_MAX, own);
    arena->budget = &limit;
    items = ARENA_ARRAY(arena, n, struct histogram);
    e = items == NULL ? arena_error(arena, ei)
                      : codec_histograms_decode(column.data, column.size, n, arena, items);
    if (items != NULL && (e == ERR_LIMIT || e == ERR_NOMEM))
        e = arena_error(arena, ei);
    arena->budget = own;
    if (e == ERR_OK)
        *out = items;
    return e;
}

/* ---- runs ---- */

void histogram_chunk_builder_init(struct histogram_chunk_builder *r, struct budget *memory)
{
    *r = (struct histogram_chunk_builder){.count = 0};
    arena_init(&r->arena, memory);
}

void histogram_chunk_builder_done(struct histogram_chunk_builder *r)
{
    arena_done(&r->arena);
    r->items = NULL;
    r->count = r->capacity = r->bytes = 0;
}

void histogram_chunk_builder_reset(struct histogram_chunk_builder *r)
{
    arena_reset(&r->arena);
    r->items = NULL; /* was in the arena */
    r->count = r->capacity = r->bytes = 0;
}

/* A copy that shares what it can with the sample before, which lives as long. */
static enum err copy_near(const struct histogram *h, const struct histogram *before,
                          struct arena *arena, struct histogram *out)
{
    struct histogram near = *h;

    if (before == NULL || !same_layout(h, before))
        return histogram_copy_deep(h, arena, out);
    near.positive.spans = before->positive.spans;
    near.negative.spans = before->negative.spans;
    near.custom_values = before->custom_values;
    return histogram_copy(&near, arena, out);
}

enum err histogram_chunk_builder_add(struct histogram_chunk_builder *r, const struct histogram *h,
                                     bool is_border, struct errinfo *ei)
{
    const struct histogram *before = r->count > 0 ? &r->items[r->count - 1] : NULL;
    struct histogram copy;

    if (r->count == r->capacity) {
        size_t capacity = r->capacity == 0 ? 32 : 2 * r->capacity;
        struct histogram *grown =
            arena_grow_array(&r->arena, r->items, r->count, capacity, sizeof *grown);

        if (grown == NULL)
            return arena_error(&r->arena, ei);
        r->items = grown;
        r->capacity = capacity;
        before = r->count > 0 ? &r->items[r->count - 1] : NULL;
    }
    if (copy_near(h, before, &r->arena, &copy) != ERR_OK)
        return arena_error(&r->arena, ei);
    if (is_border)
        copy.hint = histogram_hint_at_border(copy.hint);
    r->bytes += histogram_chunk_weight(&copy, before);
    r->items[r->count++] = copy;
    return ERR_OK;
}
