/*
 * The walk over a WriteRequest. Two layers: loops for the layout that every encoder writes
 * (one-byte tags and lengths, name before value, labels before samples), and behind them, for
 * whatever those loops do not recognise, a general walker that knows all of protobuf's freedoms.
 * The loops only ever accept what the general walker would accept with the same meaning; tests/fuzz
 * compares both with protobuf-c.
 *
 *   WriteRequest  1 timeseries, 3 metadata
 *   TimeSeries    1 labels { 1 name, 2 value }, 2 samples { 1 value (fixed64), 2 timestamp },
 *                 3 exemplars, 4 histograms
 *
 * A series is known by the hash of its label fields as they stand on the wire, tags and lengths
 * included, so a known series' labels are never copied or sorted here.
 */
#include "api/remote_write_internal.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

#define TAG(field, wire) ((uint8_t)((field) << 3 | (wire)))

enum {
    /* A batch that grew beyond this is freed after its request, not kept. */
    BATCH_KEEP_BYTES_MAX = 8 << 20,
};

/* Field number 0 stands for a tag that is none: cut short, over-long, or out of range. */
struct field {
    uint32_t number;
    unsigned wire;
};

static struct field field_read(struct byte_reader *r)
{
    uint64_t tag = reader_varint(r);

    if (r->failed || tag > UINT32_MAX)
        return (struct field){0, 0};
    return (struct field){(uint32_t)tag >> 3, (unsigned)tag & 7};
}

static struct bytes bytes_field_read(struct byte_reader *r)
{
    uint64_t size = reader_varint(r);
    const uint8_t *data = NULL;

    if (size > reader_left(r))
        r->failed = true;
    data = reader_take(r, r->failed ? 0 : (size_t)size);
    return (struct bytes){data, r->failed ? 0 : (size_t)size};
}

/* Steps over the content of a field whatever it is; false for groups and unknown wire types. */
static bool field_skip(struct byte_reader *r, unsigned wire)
{
    switch (wire) {
    case WIRE_VARINT:
        (void)reader_varint(r);
        break;
    case WIRE_FIXED64:
        (void)reader_take(r, 8);
        break;
    case WIRE_BYTES:
        (void)bytes_field_read(r);
        break;
    case WIRE_FIXED32:
        (void)reader_take(r, 4);
        break;
    default:
        return false;
    }
    return !r->failed;
}

/* Reads a Label message; false when it is none. */
static bool label_read(struct bytes message, struct label *out)
{
    struct byte_reader r = reader_init(message.data, message.size);

    *out = (struct label){0};
    while (reader_left(&r) > 0) {
        struct field f = field_read(&r);

        if (f.number == 1 || f.number == 2) {
            struct str *to = f.number == 1 ? &out->name : &out->value;
            struct bytes text = {0};

            if (f.wire != WIRE_BYTES)
                return false;
            text = bytes_field_read(&r);
            *to = (struct str){(const char *)text.data, text.size};
            if (r.failed)
                return false;
        } else if (f.number == 0 || !field_skip(&r, f.wire)) {
            return false;
        }
    }
    return true;
}

static bool sample_read(struct bytes message, struct write_sample *out)
{
    struct byte_reader r = reader_init(message.data, message.size);

    *out = (struct write_sample){0};
    while (reader_left(&r) > 0) {
        struct field f = field_read(&r);

        if (f.number == 1) {
            if (f.wire != WIRE_FIXED64)
                return false;
            out->value = double_from_bits(reader_le64(&r));
        } else if (f.number == 2) {
            if (f.wire != WIRE_VARINT)
                return false;
            out->t_ms = (int64_t)reader_varint(&r);
        } else if (f.number == 0 || !field_skip(&r, f.wire)) {
            return false;
        }
        if (r.failed)
            return false;
    }
    return true;
}

/* Growth of the batch, charged before it happens. */

static size_t batch_bytes(const struct write_batch *b)
{
    return b->series_capacity * sizeof *b->series + b->sample_capacity * sizeof *b->samples;
}

static enum err batch_charge(struct remote_write_decoder *d, size_t growth, struct errinfo *ei)
{
    struct errinfo why = {0};

    if (d->budget == NULL)
        return ERR_OK;
    if (budget_charge(d->budget, growth, &why) != ERR_OK)
        return errinfo_set(ei, ERR_UNAVAILABLE, 0, "%s", why.message);
    d->charged_bytes += growth;
    return ERR_OK;
}

/* Makes the charge what the batch really holds. */
static void batch_settle(struct remote_write_decoder *d)
{
    size_t held = batch_bytes(d->batch);

    if (d->budget == NULL)
        return;
    if (held > d->charged_bytes)
        budget_force(d->budget, held - d->charged_bytes);
    else
        budget_release(d->budget, d->charged_bytes - held);
    d->charged_bytes = held;
}

static enum err samples_grow(struct remote_write_decoder *d, struct errinfo *ei)
{
    enum err e = batch_charge(d, (d->batch->sample_capacity + 1) * sizeof(struct write_sample), ei);
    bool grown = false;

    if (e != ERR_OK)
        return e;
    grown = write_batch_grow_samples(d->batch);
    batch_settle(d);
    return grown ? ERR_OK : errinfo_set(ei, ERR_NOMEM, 0, "samples of a request");
}

static enum err series_grow(struct remote_write_decoder *d, struct errinfo *ei)
{
    enum err e = batch_charge(d, (d->batch->series_capacity + 1) * sizeof(struct write_series), ei);
    bool grown = false;

    if (e != ERR_OK)
        return e;
    grown = write_batch_grow_series(d->batch);
    batch_settle(d);
    return grown ? ERR_OK : errinfo_set(ei, ERR_NOMEM, 0, "series of a request");
}

static inline enum err sample_add(struct remote_write_decoder *d, struct write_sample s,
                                  struct errinfo *ei)
{
    struct write_batch *b = d->batch;

    if (UNLIKELY(b->sample_count == b->sample_capacity)) {
        enum err e = samples_grow(d, ei);

        if (e != ERR_OK)
            return e;
    }
    b->samples[b->sample_count++] = s;
    return ERR_OK;
}

/* Closes a series whose samples are those from sample_first on; without any it leaves no trace. */
static inline enum err series_add(struct remote_write_decoder *d, struct bytes wire_labels,
                                  size_t sample_first, struct errinfo *ei)
{
    struct write_batch *b = d->batch;
    size_t count = b->sample_count - sample_first;

    d->counts.series_count++;
    if (count == 0)
        return ERR_OK;
    if (UNLIKELY(b->sample_count > UINT32_MAX))
        return errinfo_set(ei, ERR_LIMIT, 0, "more than %u samples in a request", UINT32_MAX);
    if (UNLIKELY(b->series_count == b->series_capacity)) {
        enum err e = series_grow(d, ei);

        if (e != ERR_OK)
            return e;
    }
    b->series[b->series_count++] = (struct write_series){
        .sender_key = hash128_bytes(d->secret, wire_labels.data, wire_labels.size),
        .wire_labels = wire_labels,
        .sample_first = (uint32_t)sample_first,
        .sample_count = (uint32_t)count,
    };
    return ERR_OK;
}

static inline uint16_t load_le16(const uint8_t *p)
{
    uint16_t v = 0;

    memcpy(&v, p, sizeof v); /* the product is little-endian throughout */
    return v;
}

static inline uint32_t load_le32(const uint8_t *p)
{
    uint32_t v = 0;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load_le64(const uint8_t *p)
{
    uint64_t v = 0;

    memcpy(&v, p, sizeof v);
    return v;
}

/* The tags of a label and of its name, one byte apart, below sizes that fit seven bits. */
#define PLAIN_LABEL_HEAD 0x000a000aU

/*
 * The end of a label field of the common layout at `p`, or NULL:
 *   0x0a size 0x0a name_size name... 0x12 value_size value...      (every size below 128)
 * The four bytes before the name are looked at as one word, the two before the value too.
 */
static inline const uint8_t *plain_label_end(const uint8_t *p, const uint8_t *end)
{
    uint32_t head = 0;
    size_t size = 0, name_size = 0;

    if (end - p < 6)
        return NULL;
    head = load_le32(p);
    size = head >> 8 & 0x7f;
    name_size = head >> 24;
    if ((head & 0x80ff80ffU) != PLAIN_LABEL_HEAD || name_size + 4 > size ||
        size + 2 > (size_t)(end - p) ||
        load_le16(p + 4 + name_size) != (TAG(2, WIRE_BYTES) | (size - name_size - 4) << 8))
        return NULL;
    return p + 2 + size;
}

static inline const uint8_t *plain_labels_skip(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *next = NULL;

    while ((next = plain_label_end(p, end)) != NULL)
        p = next;
    return p;
}

/*
 * The same for two series at once. Where a label ends is known only from the one before it, so a
 * single walk waits for its loads; two walks wait together.
 */
static inline void plain_labels_skip_two(const uint8_t **a, const uint8_t *a_end, const uint8_t **b,
                                         const uint8_t *b_end)
{
    const uint8_t *p = *a, *q = *b;

    for (;;) {
        const uint8_t *p_next = plain_label_end(p, a_end);
        const uint8_t *q_next = plain_label_end(q, b_end);

        if (p_next == NULL || q_next == NULL)
            break;
        p = p_next;
        q = q_next;
    }
    *a = plain_labels_skip(p, a_end);
    *b = plain_labels_skip(q, b_end);
}

/* Six bytes of a varint in the low 48 bits of `w`: every timestamp from 2004 to 2109. */
static inline bool varint6_read(uint64_t w, int64_t *out)
{
    if ((w & 0x808080808080U) != 0x008080808080U)
        return false;
    *out = (int64_t)((w & 0x7f) | (w >> 1 & 0x7fU << 7) | (w >> 2 & 0x7fU << 14) |
                     (w >> 3 & 0x7fU << 21) | (w >> 4 & (uint64_t)0x7f << 28) |
                     (w >> 5 & (uint64_t)0x7f << 35));
    return true;
}

/*
 * Reads one sample field of the common layouts and returns what follows it, or NULL:
 *   0x12 16 0x09 value[8] 0x10 timestamp[6]
 *   0x12  7 0x10 timestamp[6]                  a value of zero is left out by the encoder
 */
static inline const uint8_t *plain_sample_read(const uint8_t *p, const uint8_t *end,
                                               struct write_sample *out)
{
    if (end - p >= 18 && p[1] == 16) {
        if (p[0] != TAG(2, WIRE_BYTES) || p[2] != TAG(1, WIRE_FIXED64) ||
            p[11] != TAG(2, WIRE_VARINT) || !varint6_read(load_le64(p + 10) >> 16, &out->t_ms))
            return NULL;
        out->value = double_from_bits(load_le64(p + 3));
        return p + 18;
    }
    if (end - p >= 9 && p[1] == 7) {
        if (p[0] != TAG(2, WIRE_BYTES) || p[2] != TAG(2, WIRE_VARINT) ||
            !varint6_read(load_le64(p + 1) >> 16, &out->t_ms))
            return NULL;
        out->value = 0;
        return p + 9;
    }
    return NULL;
}

static enum err invalid_at(const uint8_t *body, const uint8_t *at, const char *what,
                           struct errinfo *ei)
{
    return errinfo_set(ei, ERR_INVALID, 0,
                       "body is no remote-write 1.0 message: bad %s at byte %td", what, at - body);
}

/* Copies the label fields of a series, which do not stand together, one behind the other. The
 * series has been walked before, so every field is well-formed. */
static enum err labels_join(struct remote_write_decoder *d, struct bytes series, size_t size,
                            struct bytes *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(series.data, series.size);
    uint8_t *joined = arena_alloc(&d->scratch, size);
    size_t used = 0;

    if (joined == NULL) {
        struct errinfo why = {0};
        enum err e = arena_error(&d->scratch, &why);

        return errinfo_set(ei, e == ERR_LIMIT ? ERR_UNAVAILABLE : e, 0, "%s", why.message);
    }
    while (reader_left(&r) > 0) {
        const uint8_t *start = r.pos;
        struct field f = field_read(&r);
        bool whole = field_skip(&r, f.wire);

        ASSERT(whole);
        if (f.number != 1)
            continue;
        memcpy(joined + used, start, (size_t)(r.pos - start));
        used += (size_t)(r.pos - start);
    }
    ASSERT(used == size);
    *out = (struct bytes){joined, size};
    return ERR_OK;
}

/* The general walker of one TimeSeries: any order, any encoding, from its first byte. */
static enum err series_walk(struct remote_write_decoder *d, const uint8_t *body,
                            struct bytes series, struct errinfo *ei)
{
    struct byte_reader r = reader_init(series.data, series.size);
    const uint8_t *run = NULL, *run_end = NULL; /* the label fields, while they stand together */
    size_t label_bytes = 0, sample_first = d->batch->sample_count;
    struct bytes wire_labels = {0};
    enum err e = ERR_OK;

    while (reader_left(&r) > 0) {
        const uint8_t *start = r.pos;
        struct field f = field_read(&r);
        struct bytes message = {0};

        if (f.number == 0)
            return invalid_at(body, start, "field of a series", ei);
        if (f.number > 4) {
            if (!field_skip(&r, f.wire))
                return invalid_at(body, start, "field of a series", ei);
            continue;
        }
        message = bytes_field_read(&r);
        if (f.wire != WIRE_BYTES || r.failed)
            return invalid_at(body, start, "field of a series", ei);
        if (f.number == 1) {
            struct label unused;

            if (!label_read(message, &unused))
                return invalid_at(body, start, "label", ei);
            if (run == NULL)
                run = run_end = start;
            if (run_end == start)
                run_end = r.pos;
            label_bytes += (size_t)(r.pos - start);
        } else if (f.number == 2) {
            struct write_sample s;

            if (!sample_read(message, &s))
                return invalid_at(body, start, "sample", ei);
            e = sample_add(d, s, ei);
            if (e != ERR_OK)
                return e;
        } else if (f.number == 3) {
            d->counts.exemplar_count++;
        } else {
            d->counts.histogram_count++;
        }
    }
    wire_labels = (struct bytes){run, label_bytes};
    if (label_bytes != (size_t)(run_end - run)) {
        e = labels_join(d, series, label_bytes, &wire_labels, ei);
        if (e != ERR_OK)
            return e;
    }
    return series_add(d, wire_labels, sample_first, ei);
}

/* The rest of a TimeSeries whose plain labels end at `labels_end`: samples in the common layout, or
 * the general walker from the series' start. */
static inline enum err series_finish(struct remote_write_decoder *d, const uint8_t *body,
                                     struct bytes series, const uint8_t *labels_end,
                                     struct errinfo *ei)
{
    const uint8_t *end = series.data + series.size;
    const uint8_t *p = labels_end;
    size_t sample_first = d->batch->sample_count;

    while (p != end) {
        struct write_sample s;
        enum err e = ERR_OK;

        p = plain_sample_read(p, end, &s);
        if (UNLIKELY(p == NULL)) {
            d->batch->sample_count = sample_first;
            return series_walk(d, body, series, ei);
        }
        e = sample_add(d, s, ei);
        if (UNLIKELY(e != ERR_OK))
            return e;
    }
    return series_add(d, (struct bytes){series.data, (size_t)(labels_end - series.data)},
                      sample_first, ei);
}

static enum err series_decode(struct remote_write_decoder *d, const uint8_t *body,
                              struct bytes series, struct errinfo *ei)
{
    const uint8_t *labels_end = plain_labels_skip(series.data, series.data + series.size);

    return series_finish(d, body, series, labels_end, ei);
}

static enum err series_decode_two(struct remote_write_decoder *d, const uint8_t *body,
                                  struct bytes first, struct bytes second, struct errinfo *ei)
{
    const uint8_t *a = first.data, *b = second.data;
    enum err e = ERR_OK;

    plain_labels_skip_two(&a, a + first.size, &b, b + second.size);
    e = series_finish(d, body, first, a, ei);
    return e == ERR_OK ? series_finish(d, body, second, b, ei) : e;
}

/* Takes a whole timeseries field off the reader; false, and nothing is taken, when the next field
 * is none or does not fit. Most are 128 to 16,383 bytes long: a length of two bytes. */
static inline bool series_take(struct byte_reader *r, struct bytes *out)
{
    struct byte_reader ahead = *r;

    if (reader_left(r) < 3 || r->pos[0] != TAG(1, WIRE_BYTES))
        return false;
    if (r->pos[1] >= 0x80 && r->pos[2] < 0x80) {
        size_t size = (size_t)(r->pos[1] & 0x7f) | (size_t)r->pos[2] << 7;

        ahead.pos += 3;
        *out = (struct bytes){reader_take(&ahead, size), size};
    } else {
        ahead.pos++;
        *out = bytes_field_read(&ahead);
    }
    if (ahead.failed)
        return false;
    *r = ahead;
    return true;
}

static enum err request_walk(struct remote_write_decoder *d, struct bytes body, struct errinfo *ei)
{
    struct byte_reader r = reader_init(body.data, body.size);

    while (reader_left(&r) > 0) {
        const uint8_t *start = r.pos;
        struct bytes message = {0}, second = {0};
        struct field f = {0};

        if (LIKELY(series_take(&r, &message))) {
            enum err e = series_take(&r, &second)
                             ? series_decode_two(d, body.data, message, second, ei)
                             : series_decode(d, body.data, message, ei);

            if (e != ERR_OK)
                return e;
            continue;
        }
        f = field_read(&r);
        if (f.number == 1 && f.wire == WIRE_BYTES) { /* an odd spelling, or cut short */
            enum err e = ERR_OK;

            message = bytes_field_read(&r);
            if (r.failed)
                return invalid_at(body.data, start, "series", ei);
            e = series_decode(d, body.data, message, ei);
            if (e != ERR_OK)
                return e;
            continue;
        }
        if (f.number == 0 || f.number == 1 || (f.number == 3 && f.wire != WIRE_BYTES) ||
            !field_skip(&r, f.wire))
            return invalid_at(body.data, start, "field", ei);
        d->counts.metadata_count += f.number == 3;
    }
    return ERR_OK;
}

enum err remote_write_v1_decode(struct remote_write_decoder *d, struct bytes body,
                                struct errinfo *ei)
{
    enum err e = ERR_OK;

    write_batch_reset(d->batch);
    arena_reset(&d->scratch);
    d->counts = (struct remote_write_counts){0};
    e = request_walk(d, body, ei);
    if (e != ERR_OK)
        write_batch_reset(d->batch);
    return e;
}

static size_t labels_count(struct bytes wire)
{
    struct byte_reader r = reader_init(wire.data, wire.size);
    size_t count = 0;

    while (reader_left(&r) > 0) {
        struct field f = field_read(&r);

        if (f.number == 0 || !field_skip(&r, f.wire))
            return SIZE_MAX;
        count++;
    }
    return count;
}

enum err remote_write_v1_labels(const void *ctx, struct bytes wire, struct arena *arena,
                                struct labels *out)
{
    size_t count = labels_count(wire);
    struct byte_reader r = reader_init(wire.data, wire.size);
    struct label *items = NULL;

    (void)ctx; /* the wire format needs no state */
    if (count == SIZE_MAX)
        return ERR_INVALID;
    items = ARENA_ARRAY(arena, count, struct label);
    if (items == NULL)
        return arena_error(arena, NULL);
    for (size_t i = 0; i < count; i++) {
        struct field f = field_read(&r);

        if (f.number != 1 || f.wire != WIRE_BYTES || !label_read(bytes_field_read(&r), &items[i]))
            return ERR_INVALID;
    }
    *out = (struct labels){count, items};
    return ERR_OK;
}

enum err remote_write_decoder_init(struct remote_write_decoder *d, const struct hash_secret *secret,
                                   struct budget *budget, struct errinfo *ei)
{
    enum err e = ERR_OK;

    *d = (struct remote_write_decoder){.secret = secret, .budget = budget};
    arena_init(&d->scratch, budget);
    e = write_batch_new(&d->batch, ei);
    if (e != ERR_OK)
        return e;
    d->batch->labels_parse = remote_write_v1_labels;
    batch_settle(d);
    return ERR_OK;
}

void remote_write_decoder_done(struct remote_write_decoder *d)
{
    if (d->budget != NULL)
        budget_release(d->budget, d->charged_bytes);
    write_batch_free(d->batch);
    arena_done(&d->scratch);
    *d = (struct remote_write_decoder){0};
}

void remote_write_decoder_reset(struct remote_write_decoder *d)
{
    write_batch_reset(d->batch);
    arena_reset(&d->scratch);
    if (batch_bytes(d->batch) > BATCH_KEEP_BYTES_MAX) {
        struct write_batch *fresh = NULL;

        if (write_batch_new(&fresh, NULL) == ERR_OK) { /* else the large one serves on */
            fresh->labels_parse = d->batch->labels_parse;
            write_batch_free(d->batch);
            d->batch = fresh;
        }
        batch_settle(d);
    }
}
