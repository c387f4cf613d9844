/*
 * The walk over a WriteRequest. Two layers: loops for the layout that every encoder writes
 * (one-byte tags and lengths, name before value, labels before samples), and behind them, for
 * whatever those loops do not recognise, a general walker that knows all of protobuf's freedoms.
 * The loops only ever accept what the general walker would accept with the same meaning; tests/fuzz
 * compares both with protobuf-c.
 *
 *   WriteRequest  1 timeseries, 3 metadata
 *   TimeSeries    1 labels { 1 name, 2 value }, 2 samples { 1 value (fixed64), 2 timestamp },
 *                 3 exemplars, 4 histograms (remote_write_histogram.c)
 *
 * A series is known by the hash of its label fields as they stand on the wire, tags and lengths
 * included, so a known series' labels are never copied or sorted here. They need not even be
 * walked: when the bytes before what looks like the last samples have a known hash, they are the
 * label fields that once had it, whole, and what follows them are samples indeed
 * (remote_write_v1_guess()).
 */
#include "api/remote_write/remote_write_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "api/remote_write/remote_write_plain_internal.h"
#include "api/remote_write/wire_internal.h"
#include "base/assert.h"

enum {
    /* A batch that grew beyond this is freed after its request, not kept. */
    BATCH_KEEP_BYTES_MAX = 8 << 20,
};

/* Reads a Label message; false when it is none. */
static bool label_read(struct bytes message, struct label *out)
{
    struct byte_reader r = reader_init(message.data, message.size);

    *out = (struct label){0};
    while (reader_left(&r) > 0) {
        struct wire_field f = wire_field_read(&r);

        if (f.number == 1 || f.number == 2) {
            struct str *to = f.number == 1 ? &out->name : &out->value;
            struct bytes text = {0};

            if (f.wire != WIRE_BYTES)
                return false;
            text = wire_bytes_read(&r);
            *to = (struct str){(const char *)text.data, text.size};
            if (r.failed)
                return false;
        } else if (f.number == 0 || !wire_field_skip(&r, f.wire)) {
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
        struct wire_field f = wire_field_read(&r);

        if (f.number == 1) {
            if (f.wire != WIRE_FIXED64)
                return false;
            out->value = double_from_bits(reader_le64(&r));
        } else if (f.number == 2) {
            if (f.wire != WIRE_VARINT)
                return false;
            out->t_ms = (int64_t)reader_varint(&r);
        } else if (f.number == 0 || !wire_field_skip(&r, f.wire)) {
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
    return b->series_capacity * sizeof *b->series + b->sample_capacity * sizeof *b->samples +
           b->histogram_capacity * sizeof *b->histograms;
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

static enum err histograms_grow(struct remote_write_decoder *d, struct errinfo *ei)
{
    enum err e =
        batch_charge(d, (d->batch->histogram_capacity + 1) * sizeof(struct write_histogram), ei);
    bool grown = false;

    if (e != ERR_OK)
        return e;
    grown = write_batch_grow_histograms(d->batch);
    batch_settle(d);
    return grown ? ERR_OK : errinfo_set(ei, ERR_NOMEM, 0, "histograms of a request");
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

/* What the batch held when a series began. */
struct series_mark {
    size_t sample_count, histogram_count;
    uint64_t invalid_count, seen_count; /* of histograms */
};

static inline struct series_mark series_begin(const struct remote_write_decoder *d)
{
    return (struct series_mark){d->batch->sample_count, d->batch->histogram_count,
                                d->batch->invalid_count, d->counts.histogram_count};
}

/* Takes a series' samples back, to walk it in another way. */
static void series_undo(struct remote_write_decoder *d, const struct series_mark *mark)
{
    d->batch->sample_count = mark->sample_count;
    d->batch->histogram_count = mark->histogram_count;
    d->batch->invalid_count = mark->invalid_count;
    d->counts.histogram_count = mark->seen_count;
}

/* Closes a series whose samples are those behind the mark; without any it leaves no trace. */
static inline enum err series_add(struct remote_write_decoder *d, struct bytes wire_labels,
                                  const struct series_mark *mark, struct errinfo *ei)
{
    struct write_batch *b = d->batch;
    size_t count = b->sample_count - mark->sample_count;
    size_t histogram_count = b->histogram_count - mark->histogram_count;

    d->counts.series_count++;
    if (count + histogram_count == 0 && b->invalid_count == mark->invalid_count)
        return ERR_OK;
    if (UNLIKELY(b->sample_count > UINT32_MAX || b->histogram_count > UINT32_MAX))
        return errinfo_set(ei, ERR_LIMIT, 0, "more than %u samples in a request", UINT32_MAX);
    if (UNLIKELY(b->series_count == b->series_capacity)) {
        enum err e = series_grow(d, ei);

        if (e != ERR_OK)
            return e;
    }
    b->series[b->series_count++] = (struct write_series){
        .sender_key = hash128_bytes(d->secret, wire_labels.data, wire_labels.size),
        .wire_labels = wire_labels,
        .sample_first = (uint32_t)mark->sample_count,
        .sample_count = (uint32_t)count,
        .histogram_first = (uint32_t)mark->histogram_count,
        .histogram_count = (uint32_t)histogram_count,
    };
    return ERR_OK;
}

static enum err invalid_at(const uint8_t *body, const uint8_t *at, const char *what,
                           struct errinfo *ei)
{
    return errinfo_set(ei, ERR_INVALID, 0,
                       "body is no remote-write 1.0 message: bad %s at byte %td", what, at - body);
}

static enum err scratch_error(const struct arena *arena, struct errinfo *ei)
{
    struct errinfo why = {0};
    enum err e = arena_error(arena, &why);

    return errinfo_set(ei, e == ERR_LIMIT ? ERR_UNAVAILABLE : e, 0, "%s", why.message);
}

/* One that the store does not take is counted, the first few with what is wrong. */
static void invalid_add(struct write_batch *b, int64_t t_ms, const struct errinfo *why)
{
    uint64_t at = b->invalid_count++;

    if (at >= WRITE_EXAMPLE_COUNT)
        return;
    b->invalid[at] = (struct write_invalid){.series = (uint32_t)b->series_count, .t_ms = t_ms};
    (void)snprintf(b->invalid[at].text, sizeof b->invalid[at].text, "%.*s",
                   WRITE_INVALID_TEXT_SIZE - 1, why->message);
}

/* ERR_INVALID without a story: the bytes are no Histogram message. */
static enum err histogram_add(struct remote_write_decoder *d, struct bytes message,
                              struct errinfo *ei)
{
    struct write_batch *b = d->batch;
    struct errinfo why = {0};
    struct write_histogram h;
    bool is_message;
    enum err e = ERR_OK;

    d->counts.histogram_count++;
    if (b->histogram_count == b->histogram_capacity)
        e = histograms_grow(d, ei);
    if (e != ERR_OK)
        return e;
    e = remote_write_v1_histogram(message, &b->histogram_arena, &h, &is_message, &why);
    if (e == ERR_OK)
        b->histograms[b->histogram_count++] = h;
    else if (e == ERR_INVALID && is_message)
        invalid_add(b, h.t_ms, &why);
    else
        return e == ERR_INVALID ? e : scratch_error(&b->histogram_arena, ei);
    return ERR_OK;
}

/* Copies the label fields of a series, which do not stand together, one behind the other. The
 * series has been walked before, so every field is well-formed. */
static enum err labels_join(struct remote_write_decoder *d, struct bytes series, size_t size,
                            struct bytes *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(series.data, series.size);
    uint8_t *joined = arena_alloc(&d->scratch, size);
    size_t used = 0;

    if (joined == NULL)
        return scratch_error(&d->scratch, ei);
    while (reader_left(&r) > 0) {
        const uint8_t *start = r.pos;
        struct wire_field f = wire_field_read(&r);
        bool whole = wire_field_skip(&r, f.wire);

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
    const struct series_mark mark = series_begin(d);
    size_t label_bytes = 0;
    struct bytes wire_labels = {0};
    enum err e = ERR_OK;

    while (reader_left(&r) > 0) {
        const uint8_t *start = r.pos;
        struct wire_field f = wire_field_read(&r);
        struct bytes message = {0};

        if (f.number == 0)
            return invalid_at(body, start, "field of a series", ei);
        if (f.number > 4) {
            if (!wire_field_skip(&r, f.wire))
                return invalid_at(body, start, "field of a series", ei);
            continue;
        }
        message = wire_bytes_read(&r);
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
            e = histogram_add(d, message, ei);
            if (e != ERR_OK)
                return e == ERR_INVALID ? invalid_at(body, start, "histogram", ei) : e;
        }
    }
    wire_labels = (struct bytes){run, label_bytes};
    if (label_bytes != (size_t)(run_end - run)) {
        e = labels_join(d, series, label_bytes, &wire_labels, ei);
        if (e != ERR_OK)
            return e;
    }
    return series_add(d, wire_labels, &mark, ei);
}

/* Takes a histogram field; returns what follows it, or NULL. */
static const uint8_t *histogram_take(struct remote_write_decoder *d, const uint8_t *p,
                                     const uint8_t *end, enum err *e, struct errinfo *ei)
{
    struct byte_reader r = reader_init(p, (size_t)(end - p));
    struct bytes message;

    *e = ERR_OK;
    if (reader_u8(&r) != WIRE_TAG(4, WIRE_BYTES))
        return NULL;
    message = wire_bytes_read(&r);
    if (r.failed)
        return NULL;
    *e = histogram_add(d, message, ei);
    return *e == ERR_OK ? r.pos : NULL;
}

/* The rest of a TimeSeries whose plain labels end at `labels_end`: samples in the common layout and
 * histograms, or the general walker from the series' start. */
static inline enum err series_finish(struct remote_write_decoder *d, const uint8_t *body,
                                     struct bytes series, const uint8_t *labels_end,
                                     struct errinfo *ei)
{
    const uint8_t *end = series.data + series.size;
    const struct series_mark mark = series_begin(d);
    const uint8_t *p = labels_end;

    while (p != end) {
        struct write_sample s;
        const uint8_t *next = plain_sample_read(p, end, &s);
        enum err e = ERR_OK;

        if (LIKELY(next != NULL))
            e = sample_add(d, s, ei);
        else
            next = histogram_take(d, p, end, &e, ei);
        if (UNLIKELY(e != ERR_OK && e != ERR_INVALID))
            return e;
        if (UNLIKELY(next == NULL)) { /* it tells what is wrong, too */
            series_undo(d, &mark);
            return series_walk(d, body, series, ei);
        }
        p = next;
    }
    return series_add(d, (struct bytes){series.data, (size_t)(labels_end - series.data)}, &mark,
                      ei);
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

/* Takes a whole timeseries field off the reader and returns its content; NULL, and nothing is
 * taken, when the next field is none or does not fit. Most are 128 to 16,383 bytes long: a length
 * of two bytes. */
static inline const uint8_t *series_take(struct byte_reader *r, size_t *size)
{
    const uint8_t *p = r->pos;
    size_t left = reader_left(r);

    if (left < 3 || p[0] != WIRE_TAG(1, WIRE_BYTES))
        return NULL;
    if (LIKELY(p[1] >= 0x80 && p[2] < 0x80)) {
        *size = (size_t)(p[1] & 0x7f) | (size_t)p[2] << 7;
        p += 3;
        if (*size > left - 3)
            return NULL;
    } else {
        struct byte_reader ahead = reader_init(p + 1, left - 1);
        struct bytes message = wire_bytes_read(&ahead);

        if (ahead.failed)
            return NULL;
        p = message.data;
        *size = message.size;
    }
    r->pos = p + *size;
    return p;
}

/* Takes what stands before a series' samples for its labels, or walks the series. */
static inline enum err series_guess(struct remote_write_decoder *d, const uint8_t *body,
                                    struct bytes series, struct errinfo *ei)
{
    const uint8_t *labels_end = plain_samples_begin(series);

    if (UNLIKELY(labels_end == series.data + series.size))
        return series_decode(d, body, series, ei);
    return series_finish(d, body, series, labels_end, ei);
}

static enum err request_walk(struct remote_write_decoder *d, struct bytes body, struct errinfo *ei)
{
    struct byte_reader r = reader_init(body.data, body.size);

    while (reader_left(&r) > 0) {
        const uint8_t *start = r.pos;
        size_t size = 0, second_size = 0;
        const uint8_t *series = series_take(&r, &size), *second;
        struct bytes message;
        struct wire_field f;

        if (LIKELY(series != NULL)) {
            enum err e = ERR_OK;

            if (d->batch->labels_check != NULL)
                e = series_guess(d, body.data, (struct bytes){series, size}, ei);
            else if ((second = series_take(&r, &second_size)) != NULL)
                e = series_decode_two(d, body.data, (struct bytes){series, size},
                                      (struct bytes){second, second_size}, ei);
            else
                e = series_decode(d, body.data, (struct bytes){series, size}, ei);
            if (e != ERR_OK)
                return e;
            continue;
        }
        f = wire_field_read(&r);
        if (f.number == 1 && f.wire == WIRE_BYTES) { /* an odd spelling, or cut short */
            enum err e = ERR_OK;

            message = wire_bytes_read(&r);
            if (r.failed)
                return invalid_at(body.data, start, "series", ei);
            e = series_decode(d, body.data, message, ei);
            if (e != ERR_OK)
                return e;
            continue;
        }
        if (f.number == 0 || f.number == 1 || (f.number == 3 && f.wire != WIRE_BYTES) ||
            !wire_field_skip(&r, f.wire))
            return invalid_at(body.data, start, "field", ei);
        d->counts.metadata_count += f.number == 3;
    }
    return ERR_OK;
}

/* Whether these are label fields and nothing else. */
static bool labels_are_whole(const void *ctx, struct bytes wire)
{
    struct byte_reader r = reader_init(wire.data, wire.size);
    struct label unused;

    (void)ctx;           /* the wire format needs no state */
    if (wire.size > 0) { /* else data may be NULL */
        const uint8_t *end = wire.data + wire.size;
        const uint8_t *p = plain_labels_skip(wire.data, end);

        r = reader_init(p, (size_t)(end - p));
    }
    while (reader_left(&r) > 0) {
        struct wire_field f = wire_field_read(&r);
        struct bytes message = wire_bytes_read(&r);

        if (f.number != 1 || f.wire != WIRE_BYTES || r.failed || !label_read(message, &unused))
            return false;
    }
    return true;
}

static enum err decode(struct remote_write_decoder *d, struct bytes body, struct errinfo *ei)
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

enum err remote_write_v1_decode(struct remote_write_decoder *d, struct bytes body,
                                struct errinfo *ei)
{
    d->batch->labels_check = NULL;
    return decode(d, body, ei);
}

enum err remote_write_v1_guess(struct remote_write_decoder *d, struct bytes body,
                               struct errinfo *ei)
{
    d->batch->labels_check = labels_are_whole;
    return decode(d, body, ei);
}

static size_t labels_count(struct bytes wire)
{
    struct byte_reader r = reader_init(wire.data, wire.size);
    size_t count = 0;

    while (reader_left(&r) > 0) {
        struct wire_field f = wire_field_read(&r);

        if (f.number == 0 || !wire_field_skip(&r, f.wire))
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
        struct wire_field f = wire_field_read(&r);

        if (f.number != 1 || f.wire != WIRE_BYTES || !label_read(wire_bytes_read(&r), &items[i]))
            return ERR_INVALID;
    }
    *out = (struct labels){count, items};
    return ERR_OK;
}

/* A new batch: it parses our labels, and what its histograms take is charged. */
static void batch_prepare(const struct remote_write_decoder *d, struct write_batch *b)
{
    b->labels_parse = remote_write_v1_labels;
    arena_init(&b->histogram_arena, d->budget);
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
    batch_prepare(d, d->batch);
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
            batch_prepare(d, fresh);
            write_batch_free(d->batch);
            d->batch = fresh;
        }
        batch_settle(d);
    }
}
