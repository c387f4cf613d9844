/*
 * Record codec. docs/formats/log-records.md has the diagrams.
 *
 * Samples are written by columns, so that zstd finds in each what it is good at: refs and times are
 * runs that cost almost nothing, tags have few different values, and the value bytes carry the
 * entropy. A tag says how a value's bytes are to be read, so that every frame stands alone:
 *
 *   00iiiiii   the integer i, no bytes
 *   010ssnnn   n + 1 bytes: zigzag integer, little-endian, at exponent s
 *   01100000   8 bytes: the raw bits
 *   01100001   a varint size and as many bytes: a packed histogram, in mixed records only
 */
#include "engine/log/record_internal.h"

#include <string.h>

#include "base/assert.h"
#include "engine/memtable/chunk_internal.h"

enum {
    SAMPLES_HEADER_BYTES = 12,
    TAG_INTEGER_COUNT = 64,
    TAG_SCALED = 0x40,
    TAG_RAW = 0x60,
    TAG_HISTOGRAM = 0x61,
    SIZE_BYTES_MAX = 5,     /* of a histogram's size */
    REF_RUN_GENERATION = 1, /* a generation follows */
    REF_RUN_STEP = 2,       /* slots go up by one; else they repeat */
    REF_BYTES_MAX = 10 + 3 + 10,
    TIME_BYTES_MAX = 10 + 10,
};

/* ---- writing ---- */

/* Starts a record; returns where its header stands. */
static size_t record_begin(struct byte_writer *out, enum record_type type)
{
    size_t at = out->size;

    writer_le32(out, (uint32_t)type);
    writer_le32(out, 0); /* the length, filled in by record_end() */
    return at;
}

static void put_le32(struct byte_writer *out, size_t at, size_t v)
{
    uint32_t v32 = (uint32_t)v;

    ASSERT(v <= UINT32_MAX);
    memcpy(out->data + at, &v32, sizeof v32);
}

static void record_end(struct byte_writer *out, size_t at)
{
    if (!out->failed)
        put_le32(out, at + 4, out->size - at - RECORD_HEADER_BYTES);
}

/* Bytes that both have at their beginning, eight at a time. */
static size_t common_prefix(struct bytes a, struct bytes b)
{
    size_t max = a.size < b.size ? a.size : b.size, n = 0;

    for (; n + sizeof(uint64_t) <= max; n += sizeof(uint64_t)) {
        uint64_t x, y;

        memcpy(&x, a.data + n, sizeof x);
        memcpy(&y, b.data + n, sizeof y);
        if (x != y)
            return n + (size_t)__builtin_ctzll(x ^ y) / 8;
    }
    while (n < max && a.data[n] == b.data[n])
        n++;
    return n;
}

/* Bytes that both have at their end, those of the common prefix left out. */
static size_t common_suffix(struct bytes a, struct bytes b, size_t prefix)
{
    size_t max = (a.size < b.size ? a.size : b.size) - prefix, n = 0;

    for (; n + sizeof(uint64_t) <= max; n += sizeof(uint64_t)) {
        uint64_t x, y;

        memcpy(&x, a.data + a.size - n - sizeof x, sizeof x);
        memcpy(&y, b.data + b.size - n - sizeof y, sizeof y);
        if (x != y)
            return n + (size_t)__builtin_clzll(x ^ y) / 8;
    }
    while (n < max && a.data[a.size - 1 - n] == b.data[b.size - 1 - n])
        n++;
    return n;
}

size_t definition_write(uint8_t *out, const struct definition *d, const struct definition *before)
{
    size_t prefix = common_prefix(d->labels, before->labels);
    size_t suffix = common_suffix(d->labels, before->labels, prefix);
    size_t middle = d->labels.size - prefix - suffix;
    size_t n = varint_write(out, zigzag_encode((int64_t)d->slot - (int64_t)before->slot));

    n += varint_write(out + n, d->generation);
    n += varint_write(out + n, prefix);
    n += varint_write(out + n, suffix);
    n += varint_write(out + n, middle);
    if (middle > 0)
        memcpy(out + n, d->labels.data + prefix, middle);
    return n + middle;
}

void record_series_write(struct byte_writer *out, struct bytes definitions, uint32_t count)
{
    size_t at = record_begin(out, RECORD_SERIES);

    writer_le32(out, count);
    writer_append(out, definitions.data, definitions.size);
    record_end(out, at);
}

/* A run of refs that is still growing. */
struct ref_run {
    uint32_t first, count;
    uint32_t step;     /* 0 or 1; chosen by the second ref */
    uint32_t expected; /* the slot behind the run before this one */
    uint16_t generation, generation_before;
};

static uint8_t *ref_run_write(uint8_t *p, struct ref_run *run)
{
    bool is_new = run->generation != run->generation_before;
    uint64_t head = (uint64_t)(run->count - 1) << 2 | (run->step ? REF_RUN_STEP : 0) |
                    (is_new ? REF_RUN_GENERATION : 0);

    p += varint_write(p, head);
    if (is_new)
        p += varint_write(p, run->generation);
    p += varint_write(p, zigzag_encode((int64_t)run->first - (int64_t)run->expected));
    run->expected = run->first + (run->count - 1) * run->step + 1;
    run->generation_before = run->generation;
    return p;
}

static inline bool ref_run_extend(struct ref_run *run, const struct log_entry *e)
{
    uint32_t step = run->step;

    if (run->count == 0 || e->generation != run->generation)
        return false;
    if (run->count == 1 && (e->slot == run->first || e->slot == run->first + 1))
        step = e->slot - run->first;
    if (e->slot != run->first + run->count * step)
        return false;
    run->step = step;
    run->count++;
    return true;
}

static void write_refs(struct byte_writer *out, const struct log_segment *first)
{
    struct ref_run run = {.step = 1};

    for (const struct log_segment *seg = first; seg != NULL; seg = seg->next) {
        uint8_t *p = writer_reserve(out, ((size_t)seg->count + 1) * REF_BYTES_MAX);
        uint8_t *start = p;

        if (p == NULL)
            return;
        for (uint32_t i = 0; i < seg->count; i++) {
            if (ref_run_extend(&run, &seg->items[i]))
                continue;
            if (run.count > 0)
                p = ref_run_write(p, &run);
            run.first = seg->items[i].slot;
            run.generation = seg->items[i].generation;
            run.count = 1;
            run.step = 1;
        }
        if (seg->next == NULL && run.count > 0)
            p = ref_run_write(p, &run);
        out->size += (size_t)(p - start);
    }
}

static void write_times(struct byte_writer *out, const struct log_segment *first)
{
    int64_t before_ms = 0, now_ms = 0;
    uint64_t run = 0;

    for (const struct log_segment *seg = first; seg != NULL; seg = seg->next) {
        uint8_t *p = writer_reserve(out, ((size_t)seg->count + 1) * TIME_BYTES_MAX);
        uint8_t *start = p;

        if (p == NULL)
            return;
        for (uint32_t i = 0; i <= seg->count; i++) {
            bool is_end = i == seg->count;

            if (!is_end && run > 0 && seg->items[i].t_ms == now_ms) {
                run++;
                continue;
            }
            if (run > 0 && (!is_end || seg->next == NULL)) {
                p += varint_write(p, run - 1);
                p += varint_write(p,
                                  zigzag_encode((int64_t)((uint64_t)now_ms - (uint64_t)before_ms)));
                before_ms = now_ms;
                run = 0;
            }
            if (!is_end) {
                now_ms = seg->items[i].t_ms;
                run = 1;
            }
        }
        out->size += (size_t)(p - start);
    }
}

/* Writes the value's bytes at `p` (8 must fit), returns how many count. */
static inline size_t put_value(uint8_t *p, const struct log_entry *e, uint8_t *tag)
{
    int64_t i = 0;
    bool is_exact =
        e->scale < CHUNK_SCALE_COUNT && chunk_scale_round(double_from_bits(e->bits), e->scale, &i);

    if (!is_exact) {
        *tag = TAG_RAW;
        memcpy(p, &e->bits, sizeof e->bits);
        return sizeof e->bits;
    }
    DEBUG_ASSERT(double_bits(chunk_scale_value(i, e->scale)) == e->bits);
    if (e->scale == 0 && i >= 0 && i < TAG_INTEGER_COUNT) {
        *tag = (uint8_t)i;
        return 0;
    }
    uint64_t u = zigzag_encode(i);
    size_t size = u == 0 ? 1 : (71 - (size_t)__builtin_clzll(u)) / 8;
    *tag = (uint8_t)(TAG_SCALED | (unsigned)e->scale << 3 | (size - 1));
    memcpy(p, &u, sizeof u);
    return size;
}

struct bytes record_entry_histogram(const struct log_entry *e)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)e->bits; /* NOLINT(performance-no-int-to-ptr) */
    struct byte_reader in = reader_init(at, SIZE_BYTES_MAX);
    uint64_t size = reader_varint(&in);

    return (struct bytes){in.pos, (size_t)size};
}

/* As write_values(), one at a time: a histogram may be of any size. */
static void write_mixed_values(struct byte_writer *out, const struct log_segment *first,
                               size_t count)
{
    size_t tags_at = out->size;

    if (writer_reserve(out, count) == NULL)
        return;
    out->size += count;
    for (const struct log_segment *seg = first; seg != NULL; seg = seg->next) {
        for (uint32_t i = 0; i < seg->count && !out->failed; i++) {
            const struct log_entry *e = &seg->items[i];

            if (record_entry_is_histogram(e)) {
                struct bytes packed = record_entry_histogram(e);

                out->data[tags_at++] = TAG_HISTOGRAM;
                writer_varint(out, packed.size);
                writer_append(out, packed.data, packed.size);
                continue;
            }
            uint8_t *p = writer_reserve(out, sizeof e->bits);
            if (p != NULL)
                out->size += put_value(p, e, &out->data[tags_at++]);
        }
    }
}

/* The tags' room is reserved first, the value bytes grow behind it. */
static void write_values(struct byte_writer *out, const struct log_segment *first, size_t count)
{
    size_t tags_at = out->size;

    if (writer_reserve(out, count) == NULL)
        return;
    out->size += count;
    for (const struct log_segment *seg = first; seg != NULL; seg = seg->next) {
        uint8_t *p = writer_reserve(out, (size_t)seg->count * 8);
        uint8_t *start = p;

        if (p == NULL)
            return;
        for (uint32_t i = 0; i < seg->count; i++)
            p += put_value(p, &seg->items[i], &out->data[tags_at++]);
        out->size += (size_t)(p - start);
    }
}

void record_samples_write(struct byte_writer *out, enum record_type type,
                          const struct log_segment *first)
{
    size_t at = record_begin(out, type), count = 0;
    size_t body = out->size, refs_end, times_end;

    for (const struct log_segment *seg = first; seg != NULL; seg = seg->next)
        count += seg->count;
    if (writer_reserve(out, SAMPLES_HEADER_BYTES) == NULL)
        return;
    out->size += SAMPLES_HEADER_BYTES;
    write_refs(out, first);
    refs_end = out->size;
    write_times(out, first);
    times_end = out->size;
    if (type == RECORD_MIXED || type == RECORD_LATE_MIXED)
        write_mixed_values(out, first, count);
    else
        write_values(out, first, count);
    if (out->failed)
        return;
    put_le32(out, body, count);
    put_le32(out, body + 4, refs_end - body - SAMPLES_HEADER_BYTES);
    put_le32(out, body + 8, times_end - refs_end);
    record_end(out, at);
}

/* ---- reading ---- */

bool record_next(struct byte_reader *in, struct record *out)
{
    uint32_t type, size;

    if (reader_left(in) == 0)
        return false;
    type = reader_le32(in);
    size = reader_le32(in);
    out->type = (uint8_t)type;
    out->body.data = reader_take(in, size);
    out->body.size = size;
    if (type == 0 || type > UINT8_MAX) /* the three bytes above are reserved */
        in->failed = true;
    return !in->failed;
}

bool record_series_open(struct bytes body, struct byte_reader *in, uint32_t *count)
{
    *in = reader_init(body.data, body.size);
    *count = reader_le32(in);
    return !in->failed;
}

bool record_series_next(struct byte_reader *in, const struct definition *last, struct arena *arena,
                        struct definition *out)
{
    const struct bytes before = last->labels;
    /* Unsigned: a wild difference wraps to a slot that is refused. */
    uint64_t slot = last->slot + (uint64_t)zigzag_decode(reader_varint(in));
    uint64_t generation = reader_varint(in);
    uint64_t prefix = reader_varint(in), suffix = reader_varint(in), middle = reader_varint(in);
    const uint8_t *bytes;
    uint8_t *labels;

    if (slot > UINT32_MAX || generation > UINT16_MAX || prefix > before.size ||
        suffix > before.size - prefix || middle > RECORD_LABELS_SIZE_MAX ||
        prefix + suffix > RECORD_LABELS_SIZE_MAX - middle) {
        in->failed = true;
        return false;
    }
    bytes = reader_take(in, (size_t)middle);
    if (bytes == NULL)
        return false;
    labels = arena_alloc(arena, (size_t)(prefix + middle + suffix));
    if (labels == NULL)
        return false;
    if (prefix > 0)
        memcpy(labels, before.data, (size_t)prefix);
    if (middle > 0)
        memcpy(labels + prefix, bytes, (size_t)middle);
    if (suffix > 0)
        memcpy(labels + prefix + middle, before.data + before.size - suffix, (size_t)suffix);
    out->slot = (uint32_t)slot;
    out->generation = (uint16_t)generation;
    out->labels = (struct bytes){labels, (size_t)(prefix + middle + suffix)};
    return true;
}

bool record_samples_count(struct bytes body, size_t *count)
{
    struct byte_reader in = reader_init(body.data, body.size);
    uint32_t n = reader_le32(&in), refs_size = reader_le32(&in), times_size = reader_le32(&in);

    /* A tag a sample: no count larger than the body is believed. */
    if (in.failed || refs_size > reader_left(&in) || times_size > reader_left(&in) - refs_size ||
        n > reader_left(&in) - refs_size - times_size)
        return false;
    *count = n;
    return true;
}

static bool read_refs(struct byte_reader in, struct log_entry *out, size_t count)
{
    uint64_t expected = 0, generation = 0;

    for (size_t done = 0; done < count;) {
        uint64_t head = reader_varint(&in), run = (head >> 2) + 1;
        uint32_t step = head & REF_RUN_STEP ? 1 : 0;

        if (head & REF_RUN_GENERATION)
            generation = reader_varint(&in);
        uint64_t slot = expected + (uint64_t)zigzag_decode(reader_varint(&in));
        if (in.failed || generation > UINT16_MAX || run > count - done || slot > UINT32_MAX ||
            (step != 0 && run - 1 > UINT32_MAX - slot))
            return false;
        for (uint64_t i = 0; i < run; i++, done++) {
            out[done].slot = (uint32_t)(slot + i * step);
            out[done].generation = (uint16_t)generation;
            out[done].scale = out[done].is_late = 0;
        }
        expected = slot + (run - 1) * step + 1;
    }
    return reader_left(&in) == 0;
}

static bool read_times(struct byte_reader in, struct log_entry *out, size_t count)
{
    uint64_t now_ms = 0;

    for (size_t done = 0; done < count;) {
        uint64_t run = reader_varint(&in);

        now_ms += (uint64_t)zigzag_decode(reader_varint(&in));
        if (in.failed || run >= count - done)
            return false;
        for (uint64_t i = 0; i <= run; i++)
            out[done++].t_ms = (int64_t)now_ms;
    }
    return reader_left(&in) == 0;
}

static inline bool read_value(struct byte_reader *in, uint8_t tag, uint64_t *bits)
{
    uint64_t u = 0;

    if (tag < TAG_INTEGER_COUNT) {
        *bits = double_bits((double)tag);
        return true;
    }
    if (tag == TAG_RAW) {
        *bits = reader_le64(in);
        return !in->failed;
    }
    if (tag > TAG_RAW)
        return false;
    size_t size = (size_t)(tag & 7) + 1;
    if (LIKELY(reader_left(in) >= sizeof u)) {
        memcpy(&u, in->pos, sizeof u);
        u &= UINT64_MAX >> (64 - 8 * size);
        in->pos += size;
    } else {
        const uint8_t *p = reader_take(in, size);

        if (p == NULL)
            return false;
        memcpy(&u, p, size);
    }
    *bits = double_bits(chunk_scale_value(zigzag_decode(u), tag >> 3 & 3));
    return true;
}

/* Steps over a histogram and notes where it stands. */
static bool read_histogram(struct byte_reader *in, struct log_entry *out)
{
    const uint8_t *at = in->pos;
    uint64_t size = reader_varint(in);

    /* Longer spellings of the size would not be read again as this one was. */
    if (in->failed || in->pos - at > SIZE_BYTES_MAX || size > reader_left(in))
        return false;
    out->scale = RECORD_SCALE_HISTOGRAM;
    out->bits = (uintptr_t)at;
    return reader_take(in, (size_t)size) != NULL;
}

bool record_samples_read(const struct record *record, struct log_entry *out, size_t count)
{
    struct byte_reader in = reader_init(record->body.data, record->body.size);
    bool is_mixed = record->type == RECORD_MIXED || record->type == RECORD_LATE_MIXED;
    uint32_t n = reader_le32(&in), refs_size = reader_le32(&in), times_size = reader_le32(&in);
    const uint8_t *refs = reader_take(&in, refs_size), *times = reader_take(&in, times_size);
    const uint8_t *tags = reader_take(&in, n);

    if (in.failed || n != count || !read_refs(reader_init(refs, refs_size), out, count) ||
        !read_times(reader_init(times, times_size), out, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        bool ok = is_mixed && tags[i] == TAG_HISTOGRAM ? read_histogram(&in, &out[i])
                                                       : read_value(&in, tags[i], &out[i].bits);

        if (!ok)
            return false;
    }
    return reader_left(&in) == 0;
}
