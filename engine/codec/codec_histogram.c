/*
 * Writing a column of native histograms. Samples with the same layout (schema, zero threshold,
 * custom bounds, spans) belong together: the layout is written once, and each of its buckets is a
 * value column over those samples, so that a bucket that counts evenly costs what a counter does,
 * and one that rests nearly nothing.
 *
 * With few samples the columns' own bytes weigh more than the counts. Then all buckets are also
 * tried as one column, bucket after bucket, and the smaller form is kept.
 */
#include <string.h>

#include "base/assert.h"
#include "base/fingerprint.h"
#include "engine/codec/codec_histogram_internal.h"

enum { JOINED_SAMPLES_MAX = 16 }; /* beyond, columns of their own are smaller unless poor */

struct encoder {
    const struct histogram *h;
    size_t n;
    struct codec_scratch *scratch;
    struct byte_writer *w;
    struct arena *temp;
    uint16_t *layout_of;     /* n; of each sample */
    uint16_t *first_of;      /* at most n; the first sample of each layout */
    uint64_t *layout_hashes; /* at most n; to tell layouts apart quickly */
    size_t layout_count;
    uint16_t *members;     /* n; samples by layout */
    size_t *member_ends;   /* layout_count; where each layout's samples end in it */
    double *column;        /* CODEC_SAMPLES_MAX */
    uint8_t *column_bytes; /* codec_bound(CODEC_SAMPLES_MAX) */
};

/* --- Layouts --- */

static uint64_t hash_mix(uint64_t hash, const void *data, size_t size)
{
    return (hash ^ hash64_unkeyed(data, size)) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t layout_hash(const struct histogram *h)
{
    uint64_t hash = (uint64_t)(int64_t)h->schema ^ double_bits(h->zero_threshold);

    hash = hash_mix(hash, h->positive.spans, h->positive.span_count * sizeof *h->positive.spans);
    hash = hash_mix(hash, h->negative.spans, h->negative.span_count * sizeof *h->negative.spans);
    return hash_mix(hash, h->custom_values, h->custom_count * sizeof *h->custom_values);
}

static uint16_t layout_find(struct encoder *c, size_t sample)
{
    const struct histogram *h = &c->h[sample];
    uint64_t hash;

    if (sample > 0 && histogram_layout_same(h, &c->h[sample - 1]))
        return c->layout_of[sample - 1];
    hash = layout_hash(h);
    for (size_t i = 0; i < c->layout_count; i++) {
        if (c->layout_hashes[i] == hash && histogram_layout_same(h, &c->h[c->first_of[i]]))
            return (uint16_t)i;
    }
    c->layout_hashes[c->layout_count] = hash;
    c->first_of[c->layout_count] = (uint16_t)sample;
    return (uint16_t)c->layout_count++;
}

/* Samples by layout, in their order. */
static void group_samples(struct encoder *c)
{
    size_t at = 0;

    for (size_t i = 0; i < c->n; i++)
        c->layout_of[i] = layout_find(c, i);
    memset(c->member_ends, 0, c->layout_count * sizeof *c->member_ends);
    for (size_t i = 0; i < c->n; i++)
        c->member_ends[c->layout_of[i]]++;
    for (size_t i = 0; i < c->layout_count; i++) {
        size_t count = c->member_ends[i];

        c->member_ends[i] = at; /* its beginning until all are placed */
        at += count;
    }
    for (size_t i = 0; i < c->n; i++)
        c->members[c->member_ends[c->layout_of[i]]++] = (uint16_t)i;
}

/* --- Pieces --- */

static void write_column(struct encoder *c, const double *v, size_t n)
{
    size_t size = codec_values_encode(v, n, c->scratch, c->column_bytes);

    writer_varint(c->w, size);
    writer_append(c->w, c->column_bytes, size);
}

static void write_side_layout(struct encoder *c, const struct histogram_side *side)
{
    writer_varint(c->w, side->span_count);
    for (size_t i = 0; i < side->span_count; i++) {
        writer_varint(c->w, zigzag_encode(side->spans[i].offset));
        writer_varint(c->w, side->spans[i].length);
    }
}

static void write_layout(struct encoder *c, const struct histogram *h)
{
    writer_varint(c->w, zigzag_encode(h->schema));
    writer_le64(c->w, double_bits(h->zero_threshold));
    write_side_layout(c, &h->positive);
    write_side_layout(c, &h->negative);
    if (h->schema != HISTOGRAM_SCHEMA_CUSTOM)
        return;
    writer_varint(c->w, h->custom_count);
    for (size_t at = 0; at < h->custom_count; at += CODEC_SAMPLES_MAX) {
        size_t left = h->custom_count - at;

        write_column(c, h->custom_values + at, left < CODEC_SAMPLES_MAX ? left : CODEC_SAMPLES_MAX);
    }
}

static size_t run_length(const struct encoder *c, size_t at)
{
    size_t end = at + 1;

    while (end < c->n && c->layout_of[end] == c->layout_of[at])
        end++;
    return end - at;
}

static size_t hint_length(const struct encoder *c, size_t at)
{
    size_t end = at + 1;

    while (end < c->n && c->h[end].hint == c->h[at].hint)
        end++;
    return end - at;
}

/* Which layout each sample has, as runs; with one layout nothing. */
static void write_layout_runs(struct encoder *c)
{
    size_t runs = 0;

    if (c->layout_count == 1)
        return;
    for (size_t at = 0; at < c->n; at += run_length(c, at))
        runs++;
    writer_varint(c->w, runs);
    for (size_t at = 0, length; at < c->n; at += length) {
        length = run_length(c, at);
        writer_varint(c->w, c->layout_of[at]);
        writer_varint(c->w, length);
    }
}

static void write_hint_runs(struct encoder *c)
{
    size_t runs = 0;

    for (size_t at = 0; at < c->n; at += hint_length(c, at))
        runs++;
    writer_varint(c->w, runs);
    for (size_t at = 0, length; at < c->n; at += length) {
        length = hint_length(c, at);
        writer_varint(c->w, length << HISTOGRAMS_HINT_BITS | c->h[at].hint);
    }
}

static uint8_t flags_of(const struct encoder *c)
{
    unsigned flags = HISTOGRAMS_COUNT_DERIVED | HISTOGRAMS_ZERO_EMPTY;

    for (size_t i = 0; i < c->n; i++) {
        if (double_bits(c->h[i].zero_count) != 0)
            flags &= ~(unsigned)HISTOGRAMS_ZERO_EMPTY;
        if (c->h[i].start_ms != 0)
            flags |= HISTOGRAMS_STARTS;
        if (double_bits(c->h[i].count) != double_bits(histogram_bucket_sum(&c->h[i])))
            flags &= ~(unsigned)HISTOGRAMS_COUNT_DERIVED;
    }
    if (hint_length(c, 0) == c->n)
        flags |= HISTOGRAMS_HINT_SAME | (unsigned)c->h[0].hint << HISTOGRAMS_HINT_SHIFT;
    return (uint8_t)flags;
}

/* --- Columns --- */

static void write_scalars(struct encoder *c, unsigned flags)
{
    for (size_t i = 0; i < c->n; i++)
        c->column[i] = c->h[i].sum;
    write_column(c, c->column, c->n);
    if (!(flags & HISTOGRAMS_ZERO_EMPTY)) {
        for (size_t i = 0; i < c->n; i++)
            c->column[i] = c->h[i].zero_count;
        write_column(c, c->column, c->n);
    }
    if (!(flags & HISTOGRAMS_COUNT_DERIVED)) {
        for (size_t i = 0; i < c->n; i++)
            c->column[i] = c->h[i].count;
        write_column(c, c->column, c->n);
    }
    if (flags & HISTOGRAMS_STARTS) {
        for (size_t i = 0; i < c->n; i++)
            c->column[i] = (double)c->h[i].start_ms; /* exact: histogram_check_layout() */
        write_column(c, c->column, c->n);
    }
}

/* One bucket of all samples of a layout; positive ones come first. */
static void gather_bucket(const struct encoder *c, const uint16_t *members, size_t count,
                          size_t bucket, double *out)
{
    size_t positive = c->h[members[0]].positive.bucket_count;

    for (size_t i = 0; i < count; i++) {
        const struct histogram *h = &c->h[members[i]];

        out[i] = bucket < positive ? h->positive.buckets[bucket]
                                   : h->negative.buckets[bucket - positive];
    }
}

static void write_each(struct encoder *c, const uint16_t *members, size_t count, size_t buckets)
{
    writer_u8(c->w, BUCKETS_EACH);
    for (size_t b = 0; b < buckets; b++) {
        gather_bucket(c, members, count, b, c->column);
        write_column(c, c->column, count);
    }
}

static void write_joined(struct encoder *c, const uint16_t *members, size_t count, size_t buckets)
{
    writer_u8(c->w, BUCKETS_JOINED);
    for (size_t b = 0; b < buckets; b++)
        gather_bucket(c, members, count, b, c->column + b * count);
    write_column(c, c->column, count * buckets);
}

/* Six bits a value and more: few different numbers in many columns, such as the rates of rare
 * events, whose tables one column could share. */
static bool is_poor(size_t size, size_t values)
{
    return size >= values * 6 / 8;
}

static void write_buckets(struct encoder *c, size_t layout)
{
    size_t begin = layout == 0 ? 0 : c->member_ends[layout - 1];
    const uint16_t *members = c->members + begin;
    size_t count = c->member_ends[layout] - begin;
    const struct histogram *h = &c->h[members[0]];
    size_t buckets = h->positive.bucket_count + h->negative.bucket_count;
    size_t start = c->w->size, each;

    if (buckets == 0)
        return;
    write_each(c, members, count, buckets);
    each = c->w->size;
    if (buckets == 1 || buckets > CODEC_SAMPLES_MAX / count ||
        (count > JOINED_SAMPLES_MAX && !is_poor(each - start, count * buckets)))
        return;
    write_joined(c, members, count, buckets);
    if (c->w->failed)
        return;
    if (c->w->size - each < each - start) {
        memmove(c->w->data + start, c->w->data + each, c->w->size - each);
        c->w->size = start + (c->w->size - each);
    } else {
        c->w->size = each;
    }
}

static bool encoder_init(struct encoder *c)
{
    c->layout_of = ARENA_ARRAY(c->temp, c->n, uint16_t);
    c->first_of = ARENA_ARRAY(c->temp, c->n, uint16_t);
    c->layout_hashes = ARENA_ARRAY(c->temp, c->n, uint64_t);
    c->members = ARENA_ARRAY(c->temp, c->n, uint16_t);
    c->member_ends = ARENA_ARRAY(c->temp, c->n, size_t);
    c->column = ARENA_ARRAY(c->temp, CODEC_SAMPLES_MAX, double);
    c->column_bytes = arena_alloc(c->temp, codec_bound(CODEC_SAMPLES_MAX));
    return c->layout_of != NULL && c->first_of != NULL && c->layout_hashes != NULL &&
           c->members != NULL && c->member_ends != NULL && c->column != NULL &&
           c->column_bytes != NULL;
}

static void encode(struct encoder *c)
{
    unsigned flags;

    group_samples(c);
    flags = flags_of(c);
    writer_u8(c->w, (uint8_t)flags);
    writer_varint(c->w, c->layout_count);
    for (size_t i = 0; i < c->layout_count; i++)
        write_layout(c, &c->h[c->first_of[i]]);
    write_layout_runs(c);
    if (!(flags & HISTOGRAMS_HINT_SAME))
        write_hint_runs(c);
    write_scalars(c, flags);
    for (size_t i = 0; i < c->layout_count; i++)
        write_buckets(c, i);
}

enum err codec_histograms_encode(const struct histogram *h, size_t n, struct codec_scratch *s,
                                 struct arena *temp, struct byte_writer *w)
{
    struct arena_mark mark = arena_mark_get(temp);
    struct encoder c = {.h = h, .n = n, .scratch = s, .w = w, .temp = temp};
    enum err e = ERR_OK;

    ASSERT(n > 0 && n <= CODEC_SAMPLES_MAX);
    if (encoder_init(&c))
        encode(&c);
    else
        e = arena_error(temp, NULL);
    arena_mark_return(temp, mark);
    return e == ERR_OK && w->failed ? ERR_NOMEM : e;
}
