/*
 * A Histogram message of remote write 1.0:
 *
 *   1 count_int, 2 count_float        one of the two; the float makes it a float histogram
 *   3 sum, 4 schema (zigzag), 5 zero_threshold
 *   6 zero_count_int, 7 zero_count_float
 *   8 negative_spans, 9 negative_deltas (zigzag), 10 negative_counts
 *   11 positive_spans, 12 positive_deltas, 13 positive_counts
 *   14 reset_hint, 15 timestamp, 16 custom_values
 *   BucketSpan: 1 offset (zigzag), 2 length
 *
 * Two passes: the first counts what the repeated fields hold, packed or not, so that arrays are
 * made once and no larger than the message bears out.
 */
#include <string.h>

#include "api/remote_write/remote_write_internal.h"
#include "api/remote_write/wire_internal.h"
#include "base/assert.h"

enum {
    FIELD_COUNT_INT = 1,
    FIELD_COUNT_FLOAT = 2,
    FIELD_SUM = 3,
    FIELD_SCHEMA = 4,
    FIELD_ZERO_THRESHOLD = 5,
    FIELD_ZERO_COUNT_INT = 6,
    FIELD_ZERO_COUNT_FLOAT = 7,
    FIELD_NEGATIVE_SPANS = 8,
    FIELD_NEGATIVE_DELTAS = 9,
    FIELD_NEGATIVE_COUNTS = 10,
    FIELD_POSITIVE_SPANS = 11,
    FIELD_POSITIVE_DELTAS = 12,
    FIELD_POSITIVE_COUNTS = 13,
    FIELD_RESET_HINT = 14,
    FIELD_TIMESTAMP = 15,
    FIELD_CUSTOM_VALUES = 16,
};

/* A repeated field; `items` is made when `count` is known. */
struct repeated {
    size_t count, capacity;
    union {
        struct histogram_span *spans;
        int64_t *deltas;
        double *doubles;
    } items;
};

struct side {
    struct repeated spans, deltas, counts;
};

struct message {
    struct side negative, positive;
    struct repeated custom;
    struct write_histogram *out;
    uint64_t count_int, zero_count_int;
    double count_float, zero_count_float;
    bool is_float, zero_is_float;
};

static double double_read(struct byte_reader *r)
{
    return double_from_bits(reader_le64(r));
}

/* ---- counting ---- */

static bool doubles_count(struct byte_reader *r, unsigned wire, size_t *count)
{
    struct bytes packed;

    if (wire != WIRE_BYTES) {
        *count += 1;
        return wire == WIRE_FIXED64 && reader_take(r, sizeof(double)) != NULL;
    }
    packed = wire_bytes_read(r);
    *count += packed.size / sizeof(double);
    return !r->failed && packed.size % sizeof(double) == 0;
}

static bool varints_count(struct byte_reader *r, unsigned wire, size_t *count)
{
    struct byte_reader in;
    struct bytes packed;

    if (wire == WIRE_VARINT) {
        (void)reader_varint(r);
        *count += 1;
        return !r->failed;
    }
    if (wire != WIRE_BYTES)
        return false;
    packed = wire_bytes_read(r);
    in = reader_init(packed.data, packed.size);
    for (; reader_left(&in) > 0 && !in.failed; *count += 1)
        (void)reader_varint(&in);
    return !r->failed && !in.failed;
}

/* Steps over a field; false when it is none, or of another type than it should be. */
static bool field_count(struct message *m, struct byte_reader *r, struct wire_field f)
{
    switch (f.number) {
    case 0:
        return false;
    case FIELD_NEGATIVE_SPANS:
    case FIELD_POSITIVE_SPANS:
        (f.number == FIELD_NEGATIVE_SPANS ? &m->negative : &m->positive)->spans.capacity++;
        return f.wire == WIRE_BYTES && wire_field_skip(r, f.wire);
    case FIELD_NEGATIVE_DELTAS:
        return varints_count(r, f.wire, &m->negative.deltas.capacity);
    case FIELD_POSITIVE_DELTAS:
        return varints_count(r, f.wire, &m->positive.deltas.capacity);
    case FIELD_NEGATIVE_COUNTS:
        return doubles_count(r, f.wire, &m->negative.counts.capacity);
    case FIELD_POSITIVE_COUNTS:
        return doubles_count(r, f.wire, &m->positive.counts.capacity);
    case FIELD_CUSTOM_VALUES:
        return doubles_count(r, f.wire, &m->custom.capacity);
    case FIELD_COUNT_FLOAT:
    case FIELD_SUM:
    case FIELD_ZERO_THRESHOLD:
    case FIELD_ZERO_COUNT_FLOAT:
        return f.wire == WIRE_FIXED64 && wire_field_skip(r, f.wire);
    case FIELD_COUNT_INT:
    case FIELD_SCHEMA:
    case FIELD_ZERO_COUNT_INT:
    case FIELD_RESET_HINT:
    case FIELD_TIMESTAMP:
        return f.wire == WIRE_VARINT && wire_field_skip(r, f.wire);
    default:
        return wire_field_skip(r, f.wire);
    }
}

static bool message_count(struct message *m, struct bytes message)
{
    struct byte_reader r = reader_init(message.data, message.size);

    while (reader_left(&r) > 0) {
        struct wire_field f = wire_field_read(&r);

        if (!field_count(m, &r, f))
            return false;
    }
    return true;
}

/* ---- arrays ---- */

static bool side_make(struct side *s, struct arena *arena)
{
    s->spans.items.spans = ARENA_ARRAY(arena, s->spans.capacity, struct histogram_span);
    s->deltas.items.deltas = ARENA_ARRAY(arena, s->deltas.capacity, int64_t);
    s->counts.items.doubles = ARENA_ARRAY(arena, s->counts.capacity, double);
    return s->spans.items.spans != NULL && s->deltas.items.deltas != NULL &&
           s->counts.items.doubles != NULL;
}

static bool arrays_make(struct message *m, struct arena *arena)
{
    m->custom.items.doubles = ARENA_ARRAY(arena, m->custom.capacity, double);
    return side_make(&m->negative, arena) && side_make(&m->positive, arena) &&
           m->custom.items.doubles != NULL;
}

/* ---- reading: every field has been stepped over before ---- */

static void doubles_read(struct byte_reader *r, unsigned wire, struct repeated *out)
{
    struct bytes packed = {r->pos, sizeof(double)};
    struct byte_reader in;

    if (wire == WIRE_BYTES)
        packed = wire_bytes_read(r);
    else
        (void)reader_take(r, sizeof(double));
    in = reader_init(packed.data, packed.size);
    while (reader_left(&in) > 0)
        out->items.doubles[out->count++] = double_read(&in);
}

static void deltas_read(struct byte_reader *r, unsigned wire, struct repeated *out)
{
    struct byte_reader in;
    struct bytes packed;

    if (wire == WIRE_VARINT) {
        out->items.deltas[out->count++] = zigzag_decode(reader_varint(r));
        return;
    }
    packed = wire_bytes_read(r);
    in = reader_init(packed.data, packed.size);
    while (reader_left(&in) > 0)
        out->items.deltas[out->count++] = zigzag_decode(reader_varint(&in));
}

/* The low 32 bits, as protobuf reads a sint32 or uint32. */
static bool span_read(struct byte_reader *outer, struct repeated *out)
{
    struct bytes message = wire_bytes_read(outer);
    struct byte_reader r = reader_init(message.data, message.size);
    struct histogram_span span = {0, 0};

    while (reader_left(&r) > 0) {
        struct wire_field f = wire_field_read(&r);

        if ((f.number == 1 || f.number == 2) && f.wire != WIRE_VARINT)
            return false;
        if (f.number == 1)
            span.offset = (int32_t)zigzag_decode((uint32_t)reader_varint(&r));
        else if (f.number == 2)
            span.length = (uint32_t)reader_varint(&r);
        else if (f.number == 0 || !wire_field_skip(&r, f.wire))
            return false;
        if (r.failed)
            return false;
    }
    out->items.spans[out->count++] = span;
    return true;
}

/* Fields of one value; of several the last one counts, as in protobuf. */
static bool value_read(struct message *m, struct byte_reader *r, struct wire_field f)
{
    struct histogram *h = &m->out->value;
    uint64_t hint;

    switch (f.number) {
    case FIELD_COUNT_INT:
        m->count_int = reader_varint(r);
        m->is_float = false;
        return true;
    case FIELD_COUNT_FLOAT:
        m->count_float = double_read(r);
        m->is_float = true;
        return true;
    case FIELD_SUM:
        h->sum = double_read(r);
        return true;
    case FIELD_SCHEMA:
        h->schema = (int32_t)zigzag_decode((uint32_t)reader_varint(r));
        return true;
    case FIELD_ZERO_THRESHOLD:
        h->zero_threshold = double_read(r) + 0.0; /* -0 is 0 */
        return true;
    case FIELD_ZERO_COUNT_INT:
        m->zero_count_int = reader_varint(r);
        m->zero_is_float = false;
        return true;
    case FIELD_ZERO_COUNT_FLOAT:
        m->zero_count_float = double_read(r);
        m->zero_is_float = true;
        return true;
    case FIELD_RESET_HINT:
        hint = reader_varint(r);
        h->hint = hint <= HISTOGRAM_HINT_GAUGE ? (enum histogram_hint)hint : HISTOGRAM_HINT_UNKNOWN;
        return true;
    case FIELD_TIMESTAMP:
        m->out->t_ms = (int64_t)reader_varint(r);
        return true;
    default:
        return wire_field_skip(r, f.wire);
    }
}

static bool field_take(struct message *m, struct byte_reader *r, struct wire_field f)
{
    switch (f.number) {
    case FIELD_NEGATIVE_SPANS:
        return span_read(r, &m->negative.spans);
    case FIELD_POSITIVE_SPANS:
        return span_read(r, &m->positive.spans);
    case FIELD_NEGATIVE_DELTAS:
        deltas_read(r, f.wire, &m->negative.deltas);
        return true;
    case FIELD_POSITIVE_DELTAS:
        deltas_read(r, f.wire, &m->positive.deltas);
        return true;
    case FIELD_NEGATIVE_COUNTS:
        doubles_read(r, f.wire, &m->negative.counts);
        return true;
    case FIELD_POSITIVE_COUNTS:
        doubles_read(r, f.wire, &m->positive.counts);
        return true;
    case FIELD_CUSTOM_VALUES:
        doubles_read(r, f.wire, &m->custom);
        return true;
    default:
        return value_read(m, r, f);
    }
}

static bool message_read(struct message *m, struct bytes message)
{
    struct byte_reader r = reader_init(message.data, message.size);

    while (reader_left(&r) > 0) {
        struct wire_field f = wire_field_read(&r);

        if (!field_take(m, &r, f))
            return false;
    }
    return true;
}

/* ---- the value ---- */

static void side_set(struct histogram_side *side, const struct side *from)
{
    side->spans = from->spans.items.spans;
    side->span_count = from->spans.count;
    side->buckets = from->counts.items.doubles;
    side->bucket_count = from->counts.count;
}

/* Prometheus takes the integers' members when there is no float count, and only these. */
static enum err value_make(struct message *m, struct arena *arena, struct errinfo *why)
{
    const struct histogram_integers integers = {
        .count = m->count_int,
        .zero_count = m->zero_is_float ? 0 : m->zero_count_int,
        .positive_deltas = m->positive.deltas.items.deltas,
        .negative_deltas = m->negative.deltas.items.deltas,
        .positive_count = m->positive.deltas.count,
        .negative_count = m->negative.deltas.count,
    };
    struct histogram *h = &m->out->value;

    side_set(&h->negative, &m->negative);
    side_set(&h->positive, &m->positive);
    h->custom_values = m->custom.items.doubles;
    h->custom_count = m->custom.count;
    if (!m->is_float)
        return histogram_from_integers(h, &integers, arena, why);
    h->count = m->count_float;
    h->zero_count = m->zero_is_float ? m->zero_count_float : 0;
    return histogram_accept(h, arena, why);
}

enum err remote_write_v1_histogram(struct bytes message, struct arena *arena,
                                   struct write_histogram *out, bool *is_message,
                                   struct errinfo *why)
{
    struct write_histogram h = {0};
    struct message m = {.out = &h};
    enum err e;

    *is_message = false;
    out->t_ms = 0;
    if (!message_count(&m, message))
        return ERR_INVALID;
    if (!arrays_make(&m, arena))
        return arena_error(arena, why);
    if (!message_read(&m, message))
        return ERR_INVALID;
    *is_message = true;
    out->t_ms = h.t_ms;
    e = value_make(&m, arena, why);
    if (e == ERR_OK)
        *out = h;
    return e;
}
