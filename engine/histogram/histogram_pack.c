/*
 * A histogram as bytes. Counts are whole numbers as a rule: then they are varints, those of buckets
 * as the difference from the bucket before, and behind a histogram of the same layout as the
 * difference from that one, where runs of buckets that rest cost two bytes.
 */
#include "engine/histogram/histogram_pack_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fingerprint.h"
#include "engine/write.h"

enum {
    FLAG_WHOLE = 1 << 0,     /* counts are whole numbers, as varints; else 8 bytes each */
    FLAG_SAME = 1 << 1,      /* the layout of the one before; counts are differences */
    FLAG_NEGATIVE = 1 << 2,  /* it has a negative side */
    FLAG_THRESHOLD = 1 << 3, /* a zero threshold other than usual follows */
    FLAG_STALE = 1 << 4,     /* the sum is the staleness marker, and not written */
    FLAG_CUSTOM = 1 << 5,    /* custom values follow */
    FLAG_START = 1 << 6,     /* a start timestamp other than before, or than none */
    FLAGS_KNOWN = (1 << 7) - 1,
    HEAD_BYTES = 3,
    NUMBER_BYTES_MAX = 10,
};

#define WHOLE_MAX 0x1p53

/* Prometheus's default; without exponential buckets 0. */
static double usual_threshold(const struct histogram *h)
{
    return histogram_is_custom(h) || histogram_is_float(h) ? 0.0 : 0x1p-128;
}

/* ---- what it is ---- */

static bool is_whole(double v)
{
    return v >= 0 && v <= WHOLE_MAX && double_bits((double)(int64_t)v) == double_bits(v);
}

static bool side_is_whole(const struct histogram_side *side)
{
    for (size_t i = 0; i < side->bucket_count; i++) {
        if (!is_whole(side->buckets[i]))
            return false;
    }
    return true;
}

static bool all_whole(const struct histogram *h)
{
    return is_whole(h->count) && is_whole(h->zero_count) && side_is_whole(&h->positive) &&
           side_is_whole(&h->negative);
}

/* ---- writing ---- */

static size_t side_size_max(const struct histogram_side *side)
{
    return NUMBER_BYTES_MAX * (1 + side->bucket_count + 2 * side->span_count);
}

size_t histogram_pack_size_max(const struct histogram *h)
{
    return HEAD_BYTES + 2 * sizeof(double) + (size_t)4 * NUMBER_BYTES_MAX +
           side_size_max(&h->positive) + side_size_max(&h->negative) +
           h->custom_count * sizeof(double);
}

static size_t put_double(uint8_t *out, double v)
{
    uint64_t bits = double_bits(v);

    memcpy(out, &bits, sizeof bits);
    return sizeof bits;
}

static size_t put_difference(uint8_t *out, double v, double before)
{
    return varint_write(out, zigzag_encode((int64_t)v - (int64_t)before));
}

static size_t put_spans(uint8_t *out, const struct histogram_side *side)
{
    size_t n = varint_write(out, side->span_count);

    for (size_t i = 0; i < side->span_count; i++) {
        n += varint_write(out + n, zigzag_encode(side->spans[i].offset));
        n += varint_write(out + n, side->spans[i].length);
    }
    return n;
}

static size_t put_buckets(uint8_t *out, const struct histogram_side *side, bool whole)
{
    size_t n = 0;

    for (size_t i = 0; i < side->bucket_count; i++)
        n += whole ? put_difference(out + n, side->buckets[i], i == 0 ? 0 : side->buckets[i - 1])
                   : put_double(out + n, side->buckets[i]);
    return n;
}

/* Differences from the histogram before; a run of zeros is a zero and its length less one. */
static size_t put_changes(uint8_t *out, const struct histogram_side *side,
                          const struct histogram_side *before)
{
    size_t n = 0;

    for (size_t i = 0; i < side->bucket_count;) {
        size_t run = 0;

        while (i + run < side->bucket_count && side->buckets[i + run] == before->buckets[i + run])
            run++;
        if (run > 0) {
            out[n++] = 0;
            n += varint_write(out + n, run - 1);
            i += run;
            continue;
        }
        n += put_difference(out + n, side->buckets[i], before->buckets[i]);
        i++;
    }
    return n;
}

static size_t put_same(uint8_t *out, const struct histogram *h, const struct histogram *before)
{
    size_t n = put_difference(out, h->count, before->count);

    n += put_difference(out + n, h->zero_count, before->zero_count);
    n += put_changes(out + n, &h->positive, &before->positive);
    return n + put_changes(out + n, &h->negative, &before->negative);
}

static size_t put_all(uint8_t *out, const struct histogram *h, unsigned flags)
{
    bool whole = flags & FLAG_WHOLE;
    size_t n = 0;

    if (flags & FLAG_THRESHOLD)
        n += put_double(out, h->zero_threshold);
    n += whole ? varint_write(out + n, (uint64_t)h->count) : put_double(out + n, h->count);
    n +=
        whole ? varint_write(out + n, (uint64_t)h->zero_count) : put_double(out + n, h->zero_count);
    n += put_spans(out + n, &h->positive);
    n += put_buckets(out + n, &h->positive, whole);
    if (flags & FLAG_NEGATIVE) {
        n += put_spans(out + n, &h->negative);
        n += put_buckets(out + n, &h->negative, whole);
    }
    if (flags & FLAG_CUSTOM) {
        n += varint_write(out + n, h->custom_count);
        for (size_t i = 0; i < h->custom_count; i++)
            n += put_double(out + n, h->custom_values[i]);
    }
    return n;
}

size_t histogram_pack(uint8_t *out, const struct histogram *h, const struct histogram *before)
{
    bool whole = all_whole(h);
    bool same = whole && before != NULL && all_whole(before) && histogram_layout_same(h, before);
    unsigned flags = 0;
    size_t n = HEAD_BYTES;

    if (histogram_is_stale(h))
        flags |= FLAG_STALE;
    if (whole)
        flags |= FLAG_WHOLE;
    if (same)
        flags |= FLAG_SAME;
    if (!same && h->negative.span_count > 0)
        flags |= FLAG_NEGATIVE;
    if (!same && double_bits(h->zero_threshold) != double_bits(usual_threshold(h)))
        flags |= FLAG_THRESHOLD;
    if (!same && h->custom_count > 0)
        flags |= FLAG_CUSTOM;
    if (h->start_ms != (same ? before->start_ms : 0))
        flags |= FLAG_START;
    out[0] = (uint8_t)h->hint;
    out[1] = (uint8_t)flags;
    out[2] = (uint8_t)(int8_t)h->schema;
    if (!(flags & FLAG_STALE))
        n += put_double(out + n, h->sum);
    if (flags & FLAG_START)
        n += varint_write(out + n, zigzag_encode(h->start_ms));
    return n + (same ? put_same(out + n, h, before) : put_all(out + n, h, flags));
}

/* ---- reading ---- */

struct unpacker {
    struct byte_reader *in;
    struct arena *arena;
    bool whole;
    bool refused; /* by the arena */
};

static void *room(struct unpacker *u, size_t count, size_t size)
{
    void *p = arena_alloc_array(u->arena, count, size);

    u->refused |= p == NULL;
    return p;
}

static double get_double(struct byte_reader *in)
{
    return double_from_bits(reader_le64(in));
}

/* A whole number out of one that may have wrapped. */
static double whole_checked(struct byte_reader *in, uint64_t v)
{
    if (v > (uint64_t)WHOLE_MAX)
        in->failed = true;
    return (double)v;
}

static double get_count(struct unpacker *u)
{
    return u->whole ? whole_checked(u->in, reader_varint(u->in)) : get_double(u->in);
}

static double get_difference(struct byte_reader *in, double before)
{
    return whole_checked(in,
                         (uint64_t)(int64_t)before + (uint64_t)zigzag_decode(reader_varint(in)));
}

static void get_spans(struct unpacker *u, struct histogram_side *side)
{
    struct byte_reader *in = u->in;
    uint64_t count = reader_varint(in), buckets = 0;
    struct histogram_span *spans;

    if (count > reader_left(in) / 2) { /* two bytes each at least */
        in->failed = true;
        return;
    }
    spans = room(u, (size_t)count, sizeof *spans);
    for (size_t i = 0; i < count && spans != NULL && !in->failed; i++) {
        int64_t offset = zigzag_decode(reader_varint(in));
        uint64_t length = reader_varint(in);

        in->failed |= offset < INT32_MIN || offset > INT32_MAX || length > reader_left(in);
        spans[i] = (struct histogram_span){(int32_t)offset, (uint32_t)length};
        buckets += length;
    }
    in->failed |= buckets > reader_left(in); /* a byte each at least */
    side->spans = spans;
    side->span_count = (size_t)count;
    side->bucket_count = (size_t)buckets;
}

static void get_side(struct unpacker *u, struct histogram_side *side)
{
    get_spans(u, side);
    if (u->in->failed || u->refused)
        return;
    side->buckets = room(u, side->bucket_count, sizeof(double));
    for (size_t i = 0; i < side->bucket_count && side->buckets != NULL && !u->in->failed; i++)
        side->buckets[i] =
            u->whole ? get_difference(u->in, i == 0 ? 0 : side->buckets[i - 1]) : get_double(u->in);
}

static void get_custom(struct unpacker *u, struct histogram *out)
{
    uint64_t count = reader_varint(u->in);
    double *values;

    if (count > reader_left(u->in) / sizeof(double)) {
        u->in->failed = true;
        return;
    }
    values = room(u, (size_t)count, sizeof *values);
    for (size_t i = 0; i < count && values != NULL; i++)
        values[i] = get_double(u->in);
    out->custom_values = values;
    out->custom_count = (size_t)count;
}

static void get_all(struct unpacker *u, unsigned flags, struct histogram *out)
{
    out->zero_threshold = flags & FLAG_THRESHOLD ? get_double(u->in) : usual_threshold(out);
    out->count = get_count(u);
    out->zero_count = get_count(u);
    get_side(u, &out->positive);
    if ((flags & FLAG_NEGATIVE) && !u->in->failed && !u->refused)
        get_side(u, &out->negative);
    if ((flags & FLAG_CUSTOM) && !u->in->failed && !u->refused)
        get_custom(u, out);
}

static void get_changes(struct unpacker *u, const struct histogram_side *before,
                        struct histogram_side *side)
{
    struct byte_reader *in = u->in;

    *side = *before;
    side->buckets = room(u, side->bucket_count, sizeof(double));
    for (size_t i = 0; i < side->bucket_count && side->buckets != NULL && !in->failed;) {
        uint64_t change = reader_varint(in), run;

        if (change != 0) {
            side->buckets[i] = whole_checked(in, (uint64_t)(int64_t)before->buckets[i] +
                                                     (uint64_t)zigzag_decode(change));
            i++;
            continue;
        }
        run = reader_varint(in);
        if (run >= side->bucket_count - i) {
            in->failed = true;
            return;
        }
        memcpy(side->buckets + i, before->buckets + i, ((size_t)run + 1) * sizeof(double));
        i += (size_t)run + 1;
    }
}

static void get_same(struct unpacker *u, const struct histogram *before, struct histogram *out)
{
    out->zero_threshold = before->zero_threshold;
    out->custom_values = before->custom_values;
    out->custom_count = before->custom_count;
    out->count = get_difference(u->in, before->count);
    out->zero_count = get_difference(u->in, before->zero_count);
    u->in->failed |= histogram_is_custom(out) && out->zero_count != 0;
    u->in->failed |= histogram_is_float(out) && (out->zero_count != 0 || out->count != 0);
    get_changes(u, &before->positive, &out->positive);
    if (!u->refused)
        get_changes(u, &before->negative, &out->negative);
}

/* Whether the flags can stand together. */
static bool flags_are_good(unsigned flags, unsigned hint, int32_t schema,
                           const struct histogram *before)
{
    if (flags > FLAGS_KNOWN || hint > HISTOGRAM_HINT_GAUGE)
        return false;
    if (!(flags & FLAG_SAME))
        return true;
    return before != NULL && before->schema == schema && (flags & FLAG_WHOLE) &&
           !(flags & (FLAG_NEGATIVE | FLAG_THRESHOLD | FLAG_CUSTOM)) && all_whole(before);
}

enum err histogram_unpack(struct byte_reader *in, const struct histogram *before,
                          struct arena *arena, struct histogram *out)
{
    struct unpacker u = {.in = in, .arena = arena};
    unsigned hint = reader_u8(in), flags = reader_u8(in);
    int32_t schema = (int8_t)reader_u8(in); /* NOLINT(bugprone-signed-char-misuse): has a sign */
    struct histogram h = {.schema = schema, .hint = (enum histogram_hint)hint};

    if (in->failed || !flags_are_good(flags, hint, schema, before))
        return ERR_CORRUPT;
    u.whole = flags & FLAG_WHOLE;
    h.sum = flags & FLAG_STALE ? double_from_bits(STALE_NAN_BITS) : get_double(in);
    if (flags & FLAG_START)
        h.start_ms = zigzag_decode(reader_varint(in));
    else if (flags & FLAG_SAME)
        h.start_ms = before->start_ms;
    in->failed |= h.start_ms > HISTOGRAM_START_MAX_MS || h.start_ms < -HISTOGRAM_START_MAX_MS;
    if (flags & FLAG_SAME)
        get_same(&u, before, &h);
    else
        get_all(&u, flags, &h);
    if (u.refused)
        return arena_error(arena, NULL);
    if (in->failed || (!(flags & FLAG_SAME) && histogram_check_layout(&h, NULL) != ERR_OK))
        return ERR_CORRUPT;
    *out = h;
    return ERR_OK;
}

void histogram_packed_forget_hint(uint8_t *packed)
{
    packed[0] = (uint8_t)histogram_hint_at_border((enum histogram_hint)packed[0]);
}

/* ---- identity ---- */

#define BITS_HISTOGRAM UINT64_C(0xfff8000000000000)
#define BITS_HASH UINT64_C(0x0007ffffffffffff)

uint64_t histogram_packed_bits(struct bytes packed)
{
    struct byte_reader in = reader_init(packed.data, packed.size);
    unsigned flags;

    ASSERT(packed.size >= HEAD_BYTES && !(packed.data[1] & FLAG_SAME));
    flags = packed.data[1];
    if (flags & FLAG_STALE)
        return STALE_NAN_BITS;
    (void)reader_take(&in, HEAD_BYTES);
    if ((int8_t)packed.data[2] == HISTOGRAM_SCHEMA_FLOAT)
        return reader_le64(&in);
    return BITS_HISTOGRAM | (hash64_unkeyed(packed.data + 1, packed.size - 1) & BITS_HASH);
}

bool histogram_value_bits(const struct histogram *h, uint64_t *out)
{
    uint8_t *packed = malloc(histogram_pack_size_max(h));

    if (packed == NULL)
        return false;
    *out = histogram_packed_bits((struct bytes){packed, histogram_pack(packed, h, NULL)});
    free(packed);
    return true;
}
