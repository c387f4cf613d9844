#include "tests/fuzz/remote_write_twin.h"

#include <stdlib.h>
#include <string.h>

#include "api/remote_write/remote_write_internal.h"
#include "engine/histogram/histogram_pack_internal.h"
#include "remote_write.pb-c.h"
#include "tests/lib/test_support.h"

/*
 * Where the two may differ, on purpose. protobuf-c refuses tags and lengths of more than five bytes
 * and accepts field number 0, tags above 2^32 cut to 32 bits, and varints with bits past the 64th.
 * A body with any of these, at any depth the walker looks at, is only checked for not crashing.
 */
static bool varint_is_plain(struct byte_reader *r, size_t size_max, uint64_t *out)
{
    const uint8_t *start = r->pos;
    bool whole = false;

    *out = 0;
    for (size_t i = 0; i < 10 && !whole; i++) {
        uint8_t b = reader_u8(r);

        if (r->failed || (i == 9 && b > 1))
            return false;
        *out |= (uint64_t)(b & 0x7f) << (7 * i);
        whole = b < 0x80;
    }
    return whole && (size_t)(r->pos - start) <= size_max;
}

enum level { IN_REQUEST, IN_SERIES, IN_HISTOGRAM, IN_OTHER };

/* Which message stands in a field of bytes, if one does that is looked into. */
static bool inner_of(enum level level, uint64_t field, enum level *out)
{
    *out = IN_OTHER;
    if (level == IN_REQUEST && field == 1)
        *out = IN_SERIES;
    else if (level == IN_SERIES && field == 4)
        *out = IN_HISTOGRAM;
    else
        return (level == IN_SERIES && field <= 2) ||
               (level == IN_HISTOGRAM && (field == 8 || field == 11));
    return true;
}

/* Packed varints of a histogram. */
static bool packed_is_plain(enum level level, uint64_t field, struct bytes packed)
{
    struct byte_reader r = reader_init(packed.data, packed.size);
    uint64_t v;

    if (level != IN_HISTOGRAM || (field != 9 && field != 12))
        return true;
    while (reader_left(&r) > 0) {
        if (!varint_is_plain(&r, 10, &v))
            return false;
    }
    return true;
}

/* Walks a message. */
static bool is_plain(struct bytes message, /* NOLINT(misc-no-recursion): bounded */
                     enum level level)
{
    struct byte_reader r = reader_init(message.data, message.size);

    while (reader_left(&r) > 0) {
        uint64_t tag = 0, v = 0;
        enum level inner;

        if (!varint_is_plain(&r, 5, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
            return false;
        switch (tag & 7) {
        case 0:
            if (!varint_is_plain(&r, 10, &v))
                return false;
            break;
        case 1:
            (void)reader_take(&r, 8);
            break;
        case 2:
            if (!varint_is_plain(&r, 5, &v) || v > reader_left(&r))
                return false;
            if (inner_of(level, tag >> 3, &inner) &&
                !is_plain((struct bytes){r.pos, (size_t)v}, inner))
                return false;
            if (!packed_is_plain(level, tag >> 3, (struct bytes){r.pos, (size_t)v}))
                return false;
            (void)reader_take(&r, (size_t)v);
            break;
        case 5:
            (void)reader_take(&r, 4);
            break;
        default:
            return true; /* both refuse groups and unknown wire types */
        }
        if (r.failed)
            return true; /* cut short: both must refuse */
    }
    return true;
}

static void compare_labels(const struct write_series *got, const Fuzz__TimeSeries *want,
                           struct arena *arena, const struct hash_secret *secret)
{
    struct labels labels = {0};
    struct hash128 key = hash128_bytes(secret, got->wire_labels.data, got->wire_labels.size);

    CHECK(hash128_equal(key, got->sender_key));
    CHECK(remote_write_v1_labels(NULL, got->wire_labels, arena, &labels) == ERR_OK);
    CHECK(labels.count == want->n_labels);
    for (size_t i = 0; i < labels.count; i++) {
        const Fuzz__Label *l = want->labels[i];

        CHECK(str_equal(labels.items[i].name, (struct str){(char *)l->name.data, l->name.len}));
        CHECK(str_equal(labels.items[i].value, (struct str){(char *)l->value.data, l->value.len}));
    }
}

static void compare_samples(const struct write_batch *b, const struct write_series *got,
                            const Fuzz__TimeSeries *want)
{
    CHECK(got->sample_count == want->n_samples);
    for (size_t i = 0; i < want->n_samples; i++) {
        const struct write_sample *s = &b->samples[got->sample_first + i];

        CHECK(s->t_ms == want->samples[i]->timestamp);
        CHECK(double_bits(s->value) == double_bits(want->samples[i]->value));
    }
}

static void side_of(struct histogram_side *side, Fuzz__BucketSpan *const *spans, size_t span_count,
                    double *counts, size_t count, struct arena *arena)
{
    struct histogram_span *own = ARENA_ARRAY(arena, span_count, struct histogram_span);

    CHECK(own != NULL);
    for (size_t i = 0; i < span_count; i++)
        own[i] = (struct histogram_span){spans[i]->offset, spans[i]->length};
    *side = (struct histogram_side){own, span_count, counts, count};
}

/* What the store should take of a message, or why it should not. */
static enum err value_of(const Fuzz__Histogram *m, struct arena *arena, struct histogram *out,
                         struct errinfo *ei)
{
    bool is_float = m->count_case == FUZZ__HISTOGRAM__COUNT_COUNT_FLOAT;
    bool zero_is_float = m->zero_count_case == FUZZ__HISTOGRAM__ZERO_COUNT_ZERO_COUNT_FLOAT;
    bool zero_is_int = m->zero_count_case == FUZZ__HISTOGRAM__ZERO_COUNT_ZERO_COUNT_INT;
    const struct histogram_integers integers = {
        .count = m->count_case == FUZZ__HISTOGRAM__COUNT_COUNT_INT ? m->count_int : 0,
        .zero_count = zero_is_int ? m->zero_count_int : 0,
        .positive_deltas = m->positive_deltas,
        .negative_deltas = m->negative_deltas,
        .positive_count = m->n_positive_deltas,
        .negative_count = m->n_negative_deltas,
    };

    *out = (struct histogram){.schema = m->schema,
                              .zero_threshold = m->zero_threshold + 0.0, /* -0 is 0 */
                              .sum = m->sum,
                              .custom_values = m->custom_values,
                              .custom_count = m->n_custom_values};
    if (m->reset_hint <= HISTOGRAM_HINT_GAUGE)
        out->hint = (enum histogram_hint)m->reset_hint;
    side_of(&out->negative, m->negative_spans, m->n_negative_spans, m->negative_counts,
            m->n_negative_counts, arena);
    side_of(&out->positive, m->positive_spans, m->n_positive_spans, m->positive_counts,
            m->n_positive_counts, arena);
    if (!is_float)
        return histogram_from_integers(out, &integers, arena, ei);
    out->count = m->count_float;
    out->zero_count = zero_is_float ? m->zero_count_float : 0;
    return histogram_accept(out, arena, ei);
}

/* Every bit, by way of bytes. */
static void compare_packed(const struct histogram *a, const struct histogram *b,
                           struct arena *arena)
{
    uint8_t *x = arena_alloc(arena, histogram_pack_size_max(a));
    uint8_t *y = arena_alloc(arena, histogram_pack_size_max(b));
    size_t size;

    CHECK(x != NULL && y != NULL);
    size = histogram_pack(x, a, NULL);
    CHECK(size == histogram_pack(y, b, NULL) && memcmp(x, y, size) == 0);
}

/* *invalid_before: invalid ones of the series before. */
static void compare_histograms(const struct write_batch *b, const struct write_series *got,
                               size_t series, uint64_t *invalid_before,
                               const Fuzz__TimeSeries *want, struct arena *arena)
{
    size_t valid = 0, invalid = 0;

    for (size_t i = 0; i < want->n_histograms; i++) {
        const Fuzz__Histogram *m = want->histograms[i];
        struct errinfo ei = {0};
        struct histogram h;

        if (value_of(m, arena, &h, &ei) == ERR_OK) {
            const struct write_histogram *w = &b->histograms[got->histogram_first + valid++];

            CHECK(valid <= got->histogram_count);
            CHECK(w->t_ms == m->timestamp);
            compare_packed(&w->value, &h, arena);
            continue;
        }
        uint64_t at = *invalid_before + invalid++;
        CHECK(at < b->invalid_count);
        if (at >= WRITE_EXAMPLE_COUNT)
            continue;
        CHECK(b->invalid[at].series == series && b->invalid[at].t_ms == m->timestamp);
        CHECK(strncmp(b->invalid[at].text, ei.message, WRITE_INVALID_TEXT_SIZE - 1) == 0);
    }
    CHECK(valid == got->histogram_count);
    *invalid_before += invalid;
}

static void compare(const struct remote_write_decoder *d, const Fuzz__WriteRequest *want,
                    const struct hash_secret *secret)
{
    struct arena arena;
    size_t next = 0, histograms = 0, exemplars = 0;
    uint64_t invalid = 0;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < want->n_timeseries; i++) {
        const Fuzz__TimeSeries *ts = want->timeseries[i];

        histograms += ts->n_histograms;
        exemplars += ts->n_exemplars;
        if (ts->n_samples + ts->n_histograms == 0)
            continue; /* leaves no trace */
        CHECK(next < d->batch->series_count);
        compare_labels(&d->batch->series[next], ts, &arena, secret);
        compare_samples(d->batch, &d->batch->series[next], ts);
        compare_histograms(d->batch, &d->batch->series[next], next, &invalid, ts, &arena);
        next++;
    }
    CHECK(next == d->batch->series_count && invalid == d->batch->invalid_count);
    CHECK(d->counts.series_count == want->n_timeseries);
    CHECK(d->counts.histogram_count == histograms);
    CHECK(d->counts.exemplar_count == exemplars);
    CHECK(d->counts.metadata_count == want->n_metadata);
    arena_done(&arena);
}

static void compare_series(const struct write_batch *a, const struct write_batch *b, size_t i)
{
    const struct write_series *x = &a->series[i], *y = &b->series[i];

    CHECK(hash128_equal(x->sender_key, y->sender_key));
    CHECK(x->wire_labels.size == y->wire_labels.size);
    if (x->wire_labels.size > 0)
        CHECK(memcmp(x->wire_labels.data, y->wire_labels.data, x->wire_labels.size) == 0);
    CHECK(x->sample_first == y->sample_first && x->sample_count == y->sample_count);
    CHECK(x->histogram_first == y->histogram_first && x->histogram_count == y->histogram_count);
}

/* What two walks over the same body have made of it. */
static void compare_walks(const struct remote_write_decoder *a,
                          const struct remote_write_decoder *b)
{
    const struct write_batch *x = a->batch, *y = b->batch;

    CHECK(x->series_count == y->series_count && x->sample_count == y->sample_count);
    CHECK(x->histogram_count == y->histogram_count && x->invalid_count == y->invalid_count);
    CHECK(memcmp(&a->counts, &b->counts, sizeof a->counts) == 0);
    for (size_t i = 0; i < x->series_count; i++)
        compare_series(x, y, i);
    for (size_t i = 0; i < x->sample_count; i++) {
        CHECK(x->samples[i].t_ms == y->samples[i].t_ms);
        CHECK(double_bits(x->samples[i].value) == double_bits(y->samples[i].value));
    }
}

static bool key_is_known(const struct write_batch *b, struct hash128 key)
{
    for (size_t i = 0; b != NULL && i < b->series_count; i++)
        if (hash128_equal(b->series[i].sender_key, key))
            return true;
    return false;
}

bool remote_write_guess_check(const uint8_t *data, size_t size, const struct write_batch *known,
                              const struct hash_secret *secret)
{
    struct remote_write_decoder guess, whole;
    struct errinfo ei = {0};
    const struct write_batch *b;
    bool settled;

    CHECK_OK(remote_write_decoder_init(&guess, secret, NULL, &ei), &ei);
    CHECK_OK(remote_write_decoder_init(&whole, secret, NULL, &ei), &ei);
    settled = remote_write_v1_guess(&guess, (struct bytes){data, size}, &ei) == ERR_OK;
    b = guess.batch;
    CHECK(settled || (b->series_count == 0 && b->sample_count == 0));
    for (size_t i = 0; i < b->series_count && settled; i++)
        settled = key_is_known(known, b->series[i].sender_key) ||
                  b->labels_check(b->labels_ctx, b->series[i].wire_labels);
    if (settled) {
        CHECK_OK(remote_write_v1_decode(&whole, (struct bytes){data, size}, &ei), &ei);
        CHECK(whole.batch->labels_check == NULL);
        compare_walks(&guess, &whole);
    }
    remote_write_decoder_done(&guess);
    remote_write_decoder_done(&whole);
    return settled;
}

bool remote_write_twin_check(const uint8_t *data, size_t size)
{
    struct remote_write_decoder d;
    struct hash_secret secret;
    struct errinfo ei = {0};
    Fuzz__WriteRequest *want = NULL;
    enum err e = ERR_OK;

    hash_secret_init(&secret, 1);
    CHECK_OK(remote_write_decoder_init(&d, &secret, NULL, &ei), &ei);
    e = remote_write_v1_decode(&d, (struct bytes){data, size}, &ei);
    CHECK(e == ERR_OK || e == ERR_INVALID);
    CHECK(e == ERR_OK || (d.batch->series_count == 0 && d.batch->sample_count == 0));
    if (is_plain((struct bytes){data, size}, IN_REQUEST)) {
        want = fuzz__write_request__unpack(NULL, size, data);
        CHECK_MSG((want != NULL) == (e == ERR_OK), "walker: %s %s, protobuf-c: %s", err_name(e),
                  ei.message, want != NULL ? "accepts" : "refuses");
        if (want != NULL) {
            compare(&d, want, &secret);
            fuzz__write_request__free_unpacked(want, NULL);
        }
    }
    (void)remote_write_guess_check(data, size, NULL, &secret);
    remote_write_decoder_done(&d);
    return e == ERR_OK;
}
