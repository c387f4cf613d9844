#include "tests/api/write_body.h"

#include <snappy-c.h>
#include <string.h>

void body_varint(struct byte_writer *w, uint64_t v, unsigned padding)
{
    while (v >= 0x80 || padding > 0) {
        if (v < 0x80)
            padding--;
        writer_u8(w, (uint8_t)(v | 0x80));
        v >>= 7;
    }
    writer_u8(w, (uint8_t)v);
}

void body_tag(struct byte_writer *w, unsigned field, unsigned wire, unsigned padding)
{
    body_varint(w, field << 3 | wire, padding);
}

void body_bytes(struct byte_writer *w, unsigned field, const void *data, size_t size)
{
    body_tag(w, field, 2, 0);
    body_varint(w, size, 0);
    writer_append(w, data, size);
}

void body_label(struct byte_writer *series, const char *name, const char *value)
{
    struct byte_writer label;

    writer_init(&label);
    if (name[0] != '\0')
        body_bytes(&label, 1, name, strlen(name));
    if (value[0] != '\0')
        body_bytes(&label, 2, value, strlen(value));
    body_bytes(series, 1, label.data, label.size);
    writer_done(&label);
}

void body_sample(struct byte_writer *series, int64_t t_ms, double value)
{
    struct byte_writer sample;

    writer_init(&sample);
    if (double_bits(value) != 0) {
        body_tag(&sample, 1, 1, 0);
        writer_le64(&sample, double_bits(value));
    }
    if (t_ms != 0) {
        body_tag(&sample, 2, 0, 0);
        body_varint(&sample, (uint64_t)t_ms, 0);
    }
    body_bytes(series, 2, sample.data, sample.size);
    writer_done(&sample);
}

static void put_double(struct byte_writer *w, unsigned field, double v)
{
    body_tag(w, field, 1, 0);
    writer_le64(w, double_bits(v));
}

static void put_varint(struct byte_writer *w, unsigned field, uint64_t v)
{
    body_tag(w, field, 0, 0);
    body_varint(w, v, 0);
}

static void put_doubles(struct byte_writer *w, unsigned field, const double *v, size_t count)
{
    struct byte_writer packed;

    writer_init(&packed);
    for (size_t i = 0; i < count; i++)
        writer_le64(&packed, double_bits(v[i]));
    if (count > 0)
        body_bytes(w, field, packed.data, packed.size);
    writer_done(&packed);
}

static void put_side(struct byte_writer *w, unsigned first_field, const struct histogram_side *side,
                     bool is_float)
{
    struct byte_writer inner;
    int64_t before = 0;

    writer_init(&inner);
    for (size_t i = 0; i < side->span_count; i++) {
        writer_reset(&inner);
        put_varint(&inner, 1, zigzag_encode(side->spans[i].offset));
        put_varint(&inner, 2, side->spans[i].length);
        body_bytes(w, first_field, inner.data, inner.size);
    }
    if (is_float)
        put_doubles(w, first_field + 2, side->buckets, side->bucket_count);
    writer_reset(&inner);
    for (size_t i = 0; i < side->bucket_count && !is_float; i++) {
        body_varint(&inner, zigzag_encode((int64_t)side->buckets[i] - before), 0);
        before = (int64_t)side->buckets[i];
    }
    if (inner.size > 0)
        body_bytes(w, first_field + 1, inner.data, inner.size);
    writer_done(&inner);
}

void body_histogram(struct byte_writer *series, int64_t t_ms, const struct histogram *h,
                    bool is_float)
{
    struct byte_writer w;

    writer_init(&w);
    if (is_float)
        put_double(&w, 2, h->count);
    else
        put_varint(&w, 1, (uint64_t)h->count);
    put_double(&w, 3, h->sum);
    put_varint(&w, 4, zigzag_encode(h->schema));
    put_double(&w, 5, h->zero_threshold);
    if (is_float)
        put_double(&w, 7, h->zero_count);
    else
        put_varint(&w, 6, (uint64_t)h->zero_count);
    put_side(&w, 8, &h->negative, is_float);
    put_side(&w, 11, &h->positive, is_float);
    put_varint(&w, 14, (uint64_t)h->hint);
    put_varint(&w, 15, (uint64_t)t_ms);
    put_doubles(&w, 16, h->custom_values, h->custom_count);
    body_bytes(series, 4, w.data, w.size);
    writer_done(&w);
}

void body_series(struct byte_writer *body, const struct byte_writer *series)
{
    body_bytes(body, 1, series->data, series->size);
}

/* Random parts. */

static unsigned padding_random(struct test_random *r)
{
    return test_random_below(r, 20) == 0 ? (unsigned)test_random_below(r, 3) : 0;
}

static void text_random(struct byte_writer *w, struct test_random *r)
{
    static const size_t limits[] = {1, 4, 12, 30, 130, 300};
    size_t size = (size_t)test_random_below(r, limits[test_random_below(r, 6)]);

    for (size_t i = 0; i < size; i++)
        writer_u8(w, (uint8_t)test_random_u64(r));
}

static void bytes_random(struct byte_writer *w, unsigned field, const struct byte_writer *content,
                         struct test_random *r)
{
    body_tag(w, field, 2, padding_random(r));
    body_varint(w, content->size, padding_random(r));
    writer_append(w, content->data, content->size);
}

static void unknown_random(struct byte_writer *w, struct test_random *r)
{
    unsigned field = 5 + (unsigned)test_random_below(r, 100000);
    struct byte_writer text;

    switch (test_random_below(r, 4)) {
    case 0:
        body_tag(w, field, 0, padding_random(r));
        body_varint(w, test_random_u64(r), 0);
        break;
    case 1:
        body_tag(w, field, 1, padding_random(r));
        writer_le64(w, test_random_u64(r));
        break;
    case 2:
        writer_init(&text);
        text_random(&text, r);
        bytes_random(w, field, &text, r);
        writer_done(&text);
        break;
    default:
        body_tag(w, field, 5, padding_random(r));
        writer_le32(w, (uint32_t)test_random_u64(r));
    }
}

static void label_random(struct byte_writer *w, bool plain, struct test_random *r)
{
    struct byte_writer label, text;
    uint64_t fields = plain ? 2 : test_random_below(r, 4);

    writer_init(&label);
    writer_init(&text);
    for (uint64_t i = 0; i < fields; i++) {
        writer_reset(&text);
        text_random(&text, r);
        bytes_random(&label, plain ? 1 + (unsigned)i : 1 + (unsigned)test_random_below(r, 2), &text,
                     r);
        if (!plain && test_random_below(r, 6) == 0)
            unknown_random(&label, r);
    }
    bytes_random(w, 1, &label, r);
    writer_done(&label);
    writer_done(&text);
}

static int64_t time_random(struct test_random *r)
{
    switch (test_random_below(r, 6)) {
    case 0:
        return (int64_t)test_random_u64(r);
    case 1:
        return (int64_t)test_random_below(r, 3) - 1;
    default:
        return 1700000000000 + (int64_t)test_random_below(r, 1000000000);
    }
}

/* As encoders write it, now and then with an odd timestamp. */
static void plain_sample_random(struct byte_writer *w, struct test_random *r)
{
    double v = test_random_below(r, 3) == 0 ? 0 : double_from_bits(test_random_u64(r));

    body_sample(w, test_random_below(r, 8) == 0 ? time_random(r) : 1700000000000 + (v > 0), v);
}

static void sample_random(struct byte_writer *w, struct test_random *r)
{
    struct byte_writer sample;
    uint64_t fields = test_random_below(r, 4);

    if (test_random_below(r, 4) != 0) {
        plain_sample_random(w, r);
        return;
    }
    writer_init(&sample);
    for (uint64_t i = 0; i < fields; i++) {
        if (test_random_below(r, 2) == 0) {
            body_tag(&sample, 1, 1, padding_random(r));
            writer_le64(&sample, test_random_u64(r));
        } else {
            body_tag(&sample, 2, 0, padding_random(r));
            body_varint(&sample, (uint64_t)time_random(r), 0);
        }
        if (test_random_below(r, 6) == 0)
            unknown_random(&sample, r);
    }
    bytes_random(w, 2, &sample, r);
    writer_done(&sample);
}

static void span_random(struct byte_writer *w, unsigned field, struct test_random *r)
{
    struct byte_writer span;

    writer_init(&span);
    if (test_random_below(r, 4) > 0)
        put_varint(&span, 1, test_random_below(r, 8) == 0 ? test_random_u64(r) : 2);
    if (test_random_below(r, 8) > 0)
        put_varint(&span, 2, test_random_below(r, 30) == 0 ? test_random_u64(r) : 1);
    bytes_random(w, field, &span, r);
    writer_done(&span);
}

/* Packed or one by one, as decoders must take both. */
static void numbers_random(struct byte_writer *w, unsigned field, bool is_double,
                           struct test_random *r)
{
    uint64_t count = 1 + test_random_below(r, 3);
    bool is_packed = test_random_below(r, 2) == 0;
    struct byte_writer packed;

    writer_init(&packed);
    for (uint64_t i = 0; i < count; i++) {
        struct byte_writer *to = is_packed ? &packed : w;

        if (!is_packed)
            body_tag(w, field, is_double ? 1 : 0, padding_random(r));
        if (is_double)
            writer_le64(to, test_random_below(r, 8) == 0 ? test_random_u64(r) : double_bits(2));
        else
            body_varint(to, test_random_below(r, 8) == 0 ? test_random_u64(r) : 2 * i, 0);
    }
    if (is_packed)
        bytes_random(w, field, &packed, r);
    writer_done(&packed);
}

static void histogram_field_random(struct byte_writer *w, struct test_random *r)
{
    static const uint8_t doubles[] = {2, 3, 5, 7}, varints[] = {1, 4, 6, 14, 15};
    uint64_t small = test_random_below(r, 12);

    switch (test_random_below(r, 8)) {
    case 0:
        put_double(w, doubles[test_random_below(r, 4)],
                   test_random_below(r, 4) == 0 ? double_from_bits(test_random_u64(r))
                                                : (double)small);
        break;
    case 1:
    case 2:
        put_varint(w, varints[test_random_below(r, 5)],
                   test_random_below(r, 8) == 0 ? test_random_u64(r) : small);
        break;
    case 3:
    case 4:
        span_random(w, test_random_below(r, 2) == 0 ? 8 : 11, r);
        break;
    case 5:
        numbers_random(w, test_random_below(r, 2) == 0 ? 9 : 12, false, r);
        break;
    case 6:
        numbers_random(w, 10 + 3 * (unsigned)test_random_below(r, 3), true, r);
        break;
    default:
        put_varint(w, 17 + (unsigned)test_random_below(r, 1000), small);
    }
}

/* Messages that are well-formed, few of which are histograms that the store takes. */
static void histogram_random(struct byte_writer *w, struct test_random *r)
{
    static double buckets[4] = {1, 2, 0, 5};
    static const struct histogram_span span = {1, 4};
    struct histogram h = {.schema = 2, .count = 8, .sum = 1.5, .zero_threshold = 0.5};
    struct byte_writer message;

    if (test_random_below(r, 2) == 0) {
        h.positive = (struct histogram_side){&span, 1, buckets, 4};
        h.count += test_random_below(r, 5) == 0; /* then it does not fit */
        body_histogram(w, time_random(r), &h, test_random_below(r, 2) == 0);
        return;
    }
    writer_init(&message);
    for (uint64_t i = test_random_below(r, 8); i > 0; i--)
        histogram_field_random(&message, r);
    bytes_random(w, 4, &message, r);
    writer_done(&message);
}

static void skipped_random(struct byte_writer *w, unsigned field, struct test_random *r)
{
    struct byte_writer text;

    writer_init(&text);
    text_random(&text, r);
    bytes_random(w, field, &text, r);
    writer_done(&text);
}

static void series_random(struct byte_writer *body, struct test_random *r)
{
    struct byte_writer series;
    bool plain = test_random_below(r, 3) != 0;
    uint64_t labels = test_random_below(r, 6), samples = test_random_below(r, 4);

    writer_init(&series);
    if (plain) {
        for (uint64_t i = 0; i < labels; i++)
            label_random(&series, test_random_below(r, 16) != 0, r);
        for (uint64_t i = 0; i < samples; i++)
            plain_sample_random(&series, r);
        for (uint64_t i = test_random_below(r, 3); i > 1; i--)
            histogram_random(&series, r);
    } else {
        for (uint64_t i = test_random_below(r, 10); i > 0; i--) {
            switch (test_random_below(r, 5)) {
            case 0:
            case 1:
                label_random(&series, test_random_below(r, 2) != 0, r);
                break;
            case 2:
                sample_random(&series, r);
                break;
            case 3:
                if (test_random_below(r, 2) == 0)
                    skipped_random(&series, 3, r);
                else
                    histogram_random(&series, r);
                break;
            default:
                unknown_random(&series, r);
            }
        }
    }
    bytes_random(body, 1, &series, r);
    writer_done(&series);
}

void body_random(struct byte_writer *body, struct test_random *random)
{
    for (uint64_t i = test_random_below(random, 6); i > 0; i--) {
        switch (test_random_below(random, 10)) {
        case 0:
            skipped_random(body, 3, random);
            break;
        case 1:
            unknown_random(body, random);
            break;
        default:
            series_random(body, random);
        }
    }
}

void body_snappy(const struct byte_writer *body, struct byte_writer *out)
{
    size_t size = snappy_max_compressed_length(body->size);
    uint8_t *to = writer_reserve(out, size);

    CHECK(to != NULL);
    CHECK(snappy_compress(body->size == 0 ? "" : (const char *)body->data, body->size, (char *)to,
                          &size) == SNAPPY_OK);
    out->size += size;
}
