#include "tests/fuzz/remote_write_twin.h"

#include <stdlib.h>
#include <string.h>

#include "api/remote_write_internal.h"
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

/* Walks a message; `depth` 0 WriteRequest, 1 TimeSeries, 2 Label or Sample. */
static bool is_plain(struct bytes message, int depth) /* NOLINT(misc-no-recursion): three levels */
{
    struct byte_reader r = reader_init(message.data, message.size);

    while (reader_left(&r) > 0) {
        uint64_t tag = 0, v = 0;
        bool inner = false;

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
            inner = (depth == 0 && tag >> 3 == 1) || (depth == 1 && tag >> 3 <= 2);
            if (inner && !is_plain((struct bytes){r.pos, (size_t)v}, depth + 1))
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

static void compare(const struct remote_write_decoder *d, const Fuzz__WriteRequest *want,
                    const struct hash_secret *secret)
{
    struct arena arena;
    size_t next = 0, histograms = 0, exemplars = 0;

    arena_init(&arena, NULL);
    for (size_t i = 0; i < want->n_timeseries; i++) {
        const Fuzz__TimeSeries *ts = want->timeseries[i];

        histograms += ts->n_histograms;
        exemplars += ts->n_exemplars;
        if (ts->n_samples == 0)
            continue; /* leaves no trace */
        CHECK(next < d->batch->series_count);
        compare_labels(&d->batch->series[next], ts, &arena, secret);
        compare_samples(d->batch, &d->batch->series[next], ts);
        next++;
    }
    CHECK(next == d->batch->series_count);
    CHECK(d->counts.series_count == want->n_timeseries);
    CHECK(d->counts.histogram_count == histograms);
    CHECK(d->counts.exemplar_count == exemplars);
    CHECK(d->counts.metadata_count == want->n_metadata);
    arena_done(&arena);
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
    if (is_plain((struct bytes){data, size}, 0)) {
        want = fuzz__write_request__unpack(NULL, size, data);
        CHECK_MSG((want != NULL) == (e == ERR_OK), "walker: %s %s, protobuf-c: %s", err_name(e),
                  ei.message, want != NULL ? "accepts" : "refuses");
        if (want != NULL) {
            compare(&d, want, &secret);
            fuzz__write_request__free_unpacked(want, NULL);
        }
    }
    remote_write_decoder_done(&d);
    return e == ERR_OK;
}
