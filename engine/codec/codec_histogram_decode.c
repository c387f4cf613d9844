/*
 * Reading a column of native histograms. Nothing is allocated or run through by a number that the
 * bytes that are left could not stand for, except that a column of equal counts takes three bytes
 * whatever its sample count: the arena's budget bounds that.
 */
#include "engine/codec/codec_histogram_internal.h"

struct layout {
    struct histogram histogram; /* everything but counts */
    size_t sample_count;
    double *buckets; /* of all its samples, one after the other, positive ones first */
    size_t next;     /* the sample to be given its buckets next */
};

struct decoder {
    struct byte_reader r;
    size_t n;
    struct arena *arena;
    struct histogram *out;
    struct layout *layouts;
    size_t layout_count;
    uint16_t *layout_of; /* n */
    double *column;      /* n */
};

static enum err read_column(struct decoder *d, size_t n, double *out)
{
    uint64_t size = reader_varint(&d->r);
    const uint8_t *data;

    if (d->r.failed || size > reader_left(&d->r))
        return ERR_CORRUPT;
    data = reader_take(&d->r, (size_t)size);
    return codec_values_decode(data, (size_t)size, n, out) ? ERR_OK : ERR_CORRUPT;
}

/* --- Layouts --- */

static enum err read_side_layout(struct decoder *d, struct histogram_side *side)
{
    uint64_t count = reader_varint(&d->r), buckets = 0;
    struct histogram_span *spans;

    if (d->r.failed || count > reader_left(&d->r) / 2)
        return ERR_CORRUPT;
    spans = ARENA_ARRAY(d->arena, (size_t)count, struct histogram_span);
    if (spans == NULL)
        return arena_error(d->arena, NULL);
    for (size_t i = 0; i < count; i++) {
        int64_t offset = zigzag_decode(reader_varint(&d->r));
        uint64_t length = reader_varint(&d->r);

        if (d->r.failed || offset < INT32_MIN || offset > INT32_MAX || length > UINT32_MAX)
            return ERR_CORRUPT;
        spans[i] = (struct histogram_span){(int32_t)offset, (uint32_t)length};
        buckets += length;
    }
    side->spans = spans;
    side->span_count = (size_t)count;
    side->bucket_count = (size_t)buckets;
    return ERR_OK;
}

static enum err read_bounds(struct decoder *d, struct histogram *h)
{
    uint64_t count = reader_varint(&d->r);
    double *bounds;

    /* Evenly spaced bounds take a few bytes however many they are. */
    if (d->r.failed || count / CODEC_SAMPLES_MAX > reader_left(&d->r))
        return ERR_CORRUPT;
    bounds = ARENA_ARRAY(d->arena, (size_t)count, double);
    if (bounds == NULL)
        return arena_error(d->arena, NULL);
    for (size_t at = 0; at < count; at += CODEC_SAMPLES_MAX) {
        size_t left = (size_t)count - at;
        enum err e =
            read_column(d, left < CODEC_SAMPLES_MAX ? left : CODEC_SAMPLES_MAX, bounds + at);

        if (e != ERR_OK)
            return e;
    }
    h->custom_values = bounds;
    h->custom_count = (size_t)count;
    return ERR_OK;
}

static enum err read_layout(struct decoder *d, struct histogram *h)
{
    int64_t schema = zigzag_decode(reader_varint(&d->r));
    enum err e;

    if (schema < HISTOGRAM_SCHEMA_FLOAT || schema > HISTOGRAM_SCHEMA_MAX)
        return ERR_CORRUPT;
    *h = (struct histogram){.schema = (int32_t)schema};
    h->zero_threshold = double_from_bits(reader_le64(&d->r));
    e = read_side_layout(d, &h->positive);
    if (e == ERR_OK)
        e = read_side_layout(d, &h->negative);
    if (e == ERR_OK && histogram_is_custom(h))
        e = read_bounds(d, h);
    if (e == ERR_OK && histogram_check_layout(h, NULL) != ERR_OK)
        e = ERR_CORRUPT;
    return e;
}

static enum err read_layouts(struct decoder *d)
{
    uint64_t count = reader_varint(&d->r);

    if (d->r.failed || count == 0 || count > d->n || count > reader_left(&d->r))
        return ERR_CORRUPT;
    d->layouts = arena_calloc(d->arena, (size_t)count, sizeof *d->layouts);
    if (d->layouts == NULL)
        return arena_error(d->arena, NULL);
    d->layout_count = (size_t)count;
    for (size_t i = 0; i < count; i++) {
        enum err e = read_layout(d, &d->layouts[i].histogram);

        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

/* Fills layout_of; every layout must be some sample's. */
static enum err read_layout_runs(struct decoder *d)
{
    uint64_t runs = d->layout_count == 1 ? 1 : reader_varint(&d->r);
    size_t at = 0;

    for (uint64_t run = 0; run < runs; run++) {
        uint64_t layout = d->layout_count == 1 ? 0 : reader_varint(&d->r);
        uint64_t length = d->layout_count == 1 ? d->n : reader_varint(&d->r);

        if (d->r.failed || layout >= d->layout_count || length == 0 || length > d->n - at)
            return ERR_CORRUPT;
        d->layouts[layout].sample_count += (size_t)length;
        for (size_t end = at + (size_t)length; at < end; at++)
            d->layout_of[at] = (uint16_t)layout;
    }
    for (size_t i = 0; i < d->layout_count; i++) {
        if (d->layouts[i].sample_count == 0)
            return ERR_CORRUPT;
    }
    return at == d->n ? ERR_OK : ERR_CORRUPT;
}

/* --- Samples --- */

static enum err read_hints(struct decoder *d, unsigned flags)
{
    bool is_same = (flags & HISTOGRAMS_HINT_SAME) != 0;
    uint64_t runs = is_same ? 1 : reader_varint(&d->r);
    uint64_t same = (uint64_t)d->n << HISTOGRAMS_HINT_BITS |
                    (flags >> HISTOGRAMS_HINT_SHIFT & HISTOGRAMS_HINT_MASK);
    size_t at = 0;

    for (uint64_t run = 0; run < runs; run++) {
        uint64_t v = is_same ? same : reader_varint(&d->r);
        uint64_t length = v >> HISTOGRAMS_HINT_BITS;

        if (d->r.failed || length == 0 || length > d->n - at)
            return ERR_CORRUPT;
        for (size_t end = at + (size_t)length; at < end; at++)
            d->out[at].hint = (enum histogram_hint)(v & HISTOGRAMS_HINT_MASK);
    }
    return at == d->n ? ERR_OK : ERR_CORRUPT;
}

static enum err read_starts(struct decoder *d)
{
    enum err e = read_column(d, d->n, d->column);

    for (size_t i = 0; e == ERR_OK && i < d->n; i++) {
        double v = d->column[i];

        /* Not a number compares false. */
        if (!(v >= -(double)HISTOGRAM_START_MAX_MS && v <= (double)HISTOGRAM_START_MAX_MS) ||
            (double)(int64_t)v != v)
            return ERR_CORRUPT;
        d->out[i].start_ms = (int64_t)v;
    }
    return e;
}

static enum err read_scalars(struct decoder *d, unsigned flags)
{
    enum err e = read_column(d, d->n, d->column);

    for (size_t i = 0; e == ERR_OK && i < d->n; i++)
        d->out[i].sum = d->column[i];
    if (e == ERR_OK && !(flags & HISTOGRAMS_ZERO_EMPTY)) {
        e = read_column(d, d->n, d->column);
        for (size_t i = 0; e == ERR_OK && i < d->n; i++)
            d->out[i].zero_count = d->column[i];
    }
    if (e == ERR_OK && !(flags & HISTOGRAMS_COUNT_DERIVED)) {
        e = read_column(d, d->n, d->column);
        for (size_t i = 0; e == ERR_OK && i < d->n; i++)
            d->out[i].count = d->column[i];
    }
    return e == ERR_OK && flags & HISTOGRAMS_STARTS ? read_starts(d) : e;
}

/* From a bucket's column into the samples' rows. */
static void scatter(const struct layout *l, size_t buckets, size_t bucket, const double *column)
{
    double *at = l->buckets + bucket;

    for (size_t i = 0; i < l->sample_count; i++, at += buckets)
        *at = column[i];
}

static enum err read_joined(struct decoder *d, const struct layout *l, size_t buckets)
{
    double *column = ARENA_ARRAY(d->arena, l->sample_count * buckets, double);
    enum err e;

    if (column == NULL)
        return arena_error(d->arena, NULL);
    e = read_column(d, l->sample_count * buckets, column);
    for (size_t b = 0; e == ERR_OK && b < buckets; b++)
        scatter(l, buckets, b, column + b * l->sample_count);
    return e;
}

static enum err read_each(struct decoder *d, const struct layout *l, size_t buckets)
{
    enum err e = ERR_OK;

    for (size_t b = 0; e == ERR_OK && b < buckets; b++) {
        e = read_column(d, l->sample_count, d->column);
        if (e == ERR_OK)
            scatter(l, buckets, b, d->column);
    }
    return e;
}

static enum err read_buckets(struct decoder *d, struct layout *l)
{
    size_t buckets = l->histogram.positive.bucket_count + l->histogram.negative.bucket_count;
    unsigned form;

    if (buckets == 0)
        return ERR_OK;
    form = reader_u8(&d->r);
    if (form == BUCKETS_JOINED ? buckets > CODEC_SAMPLES_MAX / l->sample_count
                               : form != BUCKETS_EACH || buckets > reader_left(&d->r) / 3)
        return ERR_CORRUPT;
    l->buckets = arena_alloc_array(d->arena, l->sample_count, buckets * sizeof *l->buckets);
    if (l->buckets == NULL)
        return arena_error(d->arena, NULL);
    return form == BUCKETS_JOINED ? read_joined(d, l, buckets) : read_each(d, l, buckets);
}

/* Gives a sample its layout and its row of buckets. */
static enum err sample_finish(const struct decoder *d, size_t i, bool derives_count)
{
    struct layout *l = &d->layouts[d->layout_of[i]];
    struct histogram *h = &d->out[i];
    double *row = l->buckets;

    if (row != NULL)
        row +=
            l->next++ * (l->histogram.positive.bucket_count + l->histogram.negative.bucket_count);
    h->schema = l->histogram.schema;
    h->zero_threshold = l->histogram.zero_threshold;
    h->positive = l->histogram.positive;
    h->negative = l->histogram.negative;
    h->custom_values = l->histogram.custom_values;
    h->custom_count = l->histogram.custom_count;
    h->positive.buckets = row;
    h->negative.buckets = row == NULL ? NULL : row + h->positive.bucket_count;
    if (derives_count)
        h->count = histogram_bucket_sum(h);
    if (histogram_is_float(h) && (h->zero_count != 0 || h->count != 0))
        return ERR_CORRUPT;
    return histogram_is_custom(h) && h->zero_count != 0 ? ERR_CORRUPT : ERR_OK;
}

static enum err decode(struct decoder *d)
{
    unsigned flags = reader_u8(&d->r);
    enum err e;

    if (flags >> (HISTOGRAMS_HINT_SHIFT + HISTOGRAMS_HINT_BITS) != 0 ||
        (!(flags & HISTOGRAMS_HINT_SAME) && flags >> HISTOGRAMS_HINT_SHIFT != 0))
        return ERR_CORRUPT;
    e = read_layouts(d);
    if (e == ERR_OK)
        e = read_layout_runs(d);
    if (e == ERR_OK)
        e = read_hints(d, flags);
    if (e == ERR_OK)
        e = read_scalars(d, flags);
    for (size_t i = 0; e == ERR_OK && i < d->layout_count; i++)
        e = read_buckets(d, &d->layouts[i]);
    if (e == ERR_OK && (d->r.failed || reader_left(&d->r) > 0))
        e = ERR_CORRUPT;
    for (size_t i = 0; e == ERR_OK && i < d->n; i++)
        e = sample_finish(d, i, (flags & HISTOGRAMS_COUNT_DERIVED) != 0);
    return e;
}

enum err codec_histograms_decode(const uint8_t *data, size_t size, size_t n, struct arena *arena,
                                 struct histogram *out)
{
    struct decoder d = {.r = reader_init(data, size), .n = n, .arena = arena, .out = out};

    if (n == 0 || n > CODEC_SAMPLES_MAX)
        return ERR_CORRUPT;
    d.layout_of = ARENA_ARRAY(arena, n, uint16_t);
    d.column = ARENA_ARRAY(arena, n, double);
    if (d.layout_of == NULL || d.column == NULL)
        return arena_error(arena, NULL);
    for (size_t i = 0; i < n; i++)
        out[i] = (struct histogram){0};
    return decode(&d);
}
