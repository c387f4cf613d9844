/*
 * Changing a histogram's layout: removing empty buckets, merging buckets into a coarser schema.
 * Bucket counts move within their array, which only gets shorter; spans are made anew, since other
 * histograms may share the old ones.
 */
#include "engine/histogram.h"

#include "base/assert.h"

void histogram_span_builder_add(struct histogram_span_builder *b, int32_t index)
{
    if (b->count == 0 || index != b->next) {
        if (b->spans != NULL)
            b->spans[b->count] =
                (struct histogram_span){b->count == 0 ? index : index - b->next, 0};
        b->count++;
    }
    if (b->spans != NULL)
        b->spans[b->count - 1].length++;
    b->next = index + 1;
}

static bool is_empty(const struct histogram_side *side, const double *compensation, size_t i)
{
    return side->buckets[i] == 0 && (compensation == NULL || compensation[i] == 0);
}

static void spans_of_populated(const struct histogram_side *side, const double *compensation,
                               struct histogram_span_builder *b)
{
    struct histogram_cursor c;

    histogram_cursor_init(&c, side);
    while (histogram_cursor_next(&c)) {
        if (!is_empty(side, compensation, c.position))
            histogram_span_builder_add(b, c.index);
    }
}

static bool is_compact(const struct histogram_side *side, const double *compensation)
{
    for (size_t i = 0; i < side->bucket_count; i++) {
        if (is_empty(side, compensation, i))
            return false;
    }
    for (size_t i = 0; i < side->span_count; i++) {
        if (side->spans[i].length == 0 || (i > 0 && side->spans[i].offset == 0))
            return false;
    }
    return true;
}

enum err histogram_side_compact(struct histogram_side *side, double *compensation,
                                struct arena *arena)
{
    struct histogram_span_builder b = {0};
    size_t kept = 0;

    if (is_compact(side, compensation))
        return ERR_OK;
    spans_of_populated(side, compensation, &b);
    b = (struct histogram_span_builder){.spans =
                                            ARENA_ARRAY(arena, b.count, struct histogram_span)};
    if (b.spans == NULL)
        return arena_error(arena, NULL);
    spans_of_populated(side, compensation, &b);
    for (size_t i = 0; i < side->bucket_count; i++) {
        if (is_empty(side, compensation, i))
            continue;
        if (compensation != NULL)
            compensation[kept] = compensation[i];
        side->buckets[kept++] = side->buckets[i];
    }
    side->bucket_count = kept;
    side->spans = b.spans;
    side->span_count = b.count;
    return ERR_OK;
}

enum err histogram_compact(struct histogram *h, struct arena *arena)
{
    enum err e = histogram_side_compact(&h->positive, NULL, arena);

    return e == ERR_OK ? histogram_side_compact(&h->negative, NULL, arena) : e;
}

static enum err side_reduce(struct histogram_side *side, int32_t from, int32_t to,
                            struct arena *arena)
{
    /* Merging never makes more spans than there were: gaps only close. */
    struct histogram_span_builder b = {
        .spans = ARENA_ARRAY(arena, side->span_count, struct histogram_span)};
    struct histogram_cursor c;
    size_t kept = 0;

    if (b.spans == NULL)
        return arena_error(arena, NULL);
    histogram_cursor_init(&c, side);
    while (histogram_cursor_next(&c)) {
        int32_t index = histogram_index_reduce(c.index, from, to);

        if (kept > 0 && index == b.next - 1) {
            side->buckets[kept - 1] += side->buckets[c.position];
            continue;
        }
        histogram_span_builder_add(&b, index);
        side->buckets[kept++] = side->buckets[c.position];
    }
    side->bucket_count = kept;
    side->spans = b.spans;
    side->span_count = b.count;
    return ERR_OK;
}

enum err histogram_reduce(struct histogram *h, int32_t schema, struct arena *arena)
{
    struct histogram reduced = *h;
    enum err e = ERR_OK;

    ASSERT(!histogram_is_custom(h) && schema != HISTOGRAM_SCHEMA_CUSTOM && schema <= h->schema);
    if (schema == h->schema)
        return ERR_OK;
    e = side_reduce(&reduced.positive, h->schema, schema, arena);
    if (e == ERR_OK)
        e = side_reduce(&reduced.negative, h->schema, schema, arena);
    if (e != ERR_OK)
        return e;
    reduced.schema = schema;
    *h = reduced;
    return ERR_OK;
}
