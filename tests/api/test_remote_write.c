/* The remote-write walker: what it accepts, refuses and stores, alone and against protobuf-c. */
#include "tests/lib/test_cmocka.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/remote_write/remote_write_internal.h"
#include "tests/api/write_body.h"
#include "tests/fuzz/remote_write_twin.h"
#include "tests/lib/test_support.h"

struct fixture {
    struct remote_write_decoder d;
    struct hash_secret secret;
    struct byte_writer body, series;
    struct arena arena;
    struct errinfo ei;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    CHECK(f != NULL);
    hash_secret_init(&f->secret, 7);
    CHECK_OK(remote_write_decoder_init(&f->d, &f->secret, NULL, &f->ei), &f->ei);
    writer_init(&f->body);
    writer_init(&f->series);
    arena_init(&f->arena, NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    remote_write_decoder_done(&f->d);
    writer_done(&f->body);
    writer_done(&f->series);
    arena_done(&f->arena);
    free(f);
    return 0;
}

static enum err decode(struct fixture *f)
{
    errinfo_clear(&f->ei);
    return remote_write_v1_decode(&f->d, (struct bytes){f->body.data, f->body.size}, &f->ei);
}

static void add_series(struct fixture *f)
{
    body_series(&f->body, &f->series);
    writer_reset(&f->series);
}

static void check_label(struct fixture *f, size_t series, size_t index, const char *name,
                        const char *value)
{
    struct labels labels = {0};

    CHECK(series < f->d.batch->series_count);
    CHECK(remote_write_v1_labels(NULL, f->d.batch->series[series].wire_labels, &f->arena,
                                 &labels) == ERR_OK);
    CHECK(index < labels.count);
    CHECK(str_equal(labels.items[index].name, str_from(name)));
    CHECK(str_equal(labels.items[index].value, str_from(value)));
}

static void test_common_layout(void **state)
{
    struct fixture *f = *state;
    const struct write_batch *b = f->d.batch;

    body_label(&f->series, "__name__", "up");
    body_label(&f->series, "job", "node");
    body_sample(&f->series, 1700000000123, 1.5);
    add_series(f);
    body_label(&f->series, "__name__", "down");
    body_sample(&f->series, 1700000000124, 0);
    body_sample(&f->series, 1700000000125, -0.0);
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    CHECK(b->series_count == 2 && b->sample_count == 3);
    check_label(f, 0, 0, "__name__", "up");
    check_label(f, 0, 1, "job", "node");
    check_label(f, 1, 0, "__name__", "down");
    CHECK(b->series[1].sample_first == 1 && b->series[1].sample_count == 2);
    CHECK(b->samples[0].t_ms == 1700000000123 && b->samples[0].value == 1.5);
    CHECK(double_bits(b->samples[1].value) == 0);
    CHECK(double_bits(b->samples[2].value) == double_bits(-0.0));
}

static void test_value_bits_are_kept(void **state)
{
    static const uint64_t bits[] = {STALE_NAN_BITS,     0x7ff8000000000001, 0x7ff0000000000000,
                                    0xfff0000000000000, 0x7ff4deadbeef0001, 1};
    struct fixture *f = *state;

    body_label(&f->series, "a", "b");
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++)
        body_sample(&f->series, 1700000000000, double_from_bits(bits[i]));
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++)
        CHECK(double_bits(f->d.batch->samples[i].value) == bits[i]);
}

static void test_timestamps(void **state)
{
    static const int64_t times[] = {
        0,         1,         -1,          127,           128,          34359738367,
        INT64_MAX, INT64_MIN, 34359738368, 4398046511103, 4398046511104};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        body_sample(&f->series, times[i], i % 2 == 0 ? 0 : 2);
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        CHECK(f->d.batch->samples[i].t_ms == times[i]);
}

/* Labels around samples have the key of the same labels standing together. */
static void test_split_labels_are_joined(void **state)
{
    struct fixture *f = *state;
    const struct write_batch *b = f->d.batch;

    body_label(&f->series, "a", "1");
    body_label(&f->series, "b", "2");
    body_sample(&f->series, 1, 1);
    add_series(f);
    body_label(&f->series, "a", "1");
    body_sample(&f->series, 2, 2);
    body_label(&f->series, "b", "2");
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    CHECK(b->series_count == 2);
    CHECK(hash128_equal(b->series[0].sender_key, b->series[1].sender_key));
    check_label(f, 1, 1, "b", "2");
}

static void test_value_before_name_and_padding(void **state)
{
    struct fixture *f = *state;
    struct byte_writer label;

    writer_init(&label);
    body_tag(&label, 2, 2, 2);
    body_varint(&label, 3, 7);
    writer_append(&label, "val", 3);
    body_bytes(&label, 1, "name", 4);
    body_bytes(&f->series, 1, label.data, label.size);
    body_sample(&f->series, 5, 5);
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    check_label(f, 0, 0, "name", "val");
    writer_done(&label);
}

static void test_series_without_samples_leaves_no_trace(void **state)
{
    struct fixture *f = *state;

    body_label(&f->series, "a", "1");
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    CHECK(f->d.batch->series_count == 0);
    CHECK(f->d.counts.series_count == 1);
}

static void test_other_kinds_are_counted(void **state)
{
    struct fixture *f = *state;

    body_label(&f->series, "a", "1");
    body_bytes(&f->series, 3, "ex", 2);
    body_bytes(&f->series, 4, "", 0);
    body_bytes(&f->series, 4, "", 0);
    add_series(f);
    body_bytes(&f->body, 3, "meta", 4);
    CHECK_OK(decode(f), &f->ei);
    CHECK(f->d.counts.exemplar_count == 1 && f->d.counts.histogram_count == 2 &&
          f->d.counts.metadata_count == 1);
}

/* ---- histograms ---- */

static const struct histogram_span two_spans[] = {{-1, 2}, {1, 1}};

static struct histogram good_histogram(double *buckets)
{
    struct histogram h = {.schema = 3,
                          .hint = HISTOGRAM_HINT_RESET,
                          .zero_threshold = 0.001,
                          .zero_count = 2,
                          .count = 12,
                          .sum = 18.25};

    buckets[0] = 3;
    buckets[1] = 1;
    buckets[2] = 6;
    h.positive = (struct histogram_side){two_spans, 2, buckets, 3};
    return h;
}

static void check_histogram(const struct write_histogram *got, int64_t t_ms,
                            const struct histogram *want)
{
    CHECK(got->t_ms == t_ms && got->value.hint == want->hint);
    CHECK(histogram_equal(&got->value, want) && histogram_layout_same(&got->value, want));
}

static void test_histograms(void **state)
{
    static const double bounds[] = {0.1, 1, 10};
    struct fixture *f = *state;
    const struct write_batch *b = f->d.batch;
    double buckets[3];
    struct histogram h = good_histogram(buckets);
    struct histogram custom = {.schema = HISTOGRAM_SCHEMA_CUSTOM,
                               .count = 10,
                               .sum = 3,
                               .positive = {(const struct histogram_span[]){{1, 3}}, 1, buckets, 3},
                               .custom_values = bounds,
                               .custom_count = 3};

    body_label(&f->series, "a", "1");
    body_histogram(&f->series, 1700000000000, &h, false);
    body_sample(&f->series, 1700000000001, 4);
    body_histogram(&f->series, 1700000000002, &h, true);
    add_series(f);
    body_label(&f->series, "a", "2");
    body_histogram(&f->series, 5, &custom, true);
    add_series(f);
    h.zero_threshold = -0.0;
    body_label(&f->series, "a", "3");
    body_histogram(&f->series, 6, &h, true);
    add_series(f);
    h.zero_threshold = 0.001;
    CHECK_OK(decode(f), &f->ei);
    CHECK(b->series_count == 3 && b->sample_count == 1 && b->histogram_count == 4);
    CHECK(!signbit(b->histograms[3].value.zero_threshold)); /* no zero is below zero */
    CHECK(b->series[0].sample_count == 1 && b->series[0].histogram_count == 2);
    CHECK(b->series[1].histogram_first == 2 && b->series[1].histogram_count == 1);
    check_histogram(&b->histograms[0], 1700000000000, &h);
    check_histogram(&b->histograms[1], 1700000000002, &h);
    check_histogram(&b->histograms[2], 5, &custom);
    CHECK(f->d.counts.histogram_count == 4 && b->invalid_count == 0);
}

/* One that cannot be is refused alone, and named, also where the series has nothing else. */
static void test_invalid_histograms(void **state)
{
    struct fixture *f = *state;
    const struct write_batch *b = f->d.batch;
    double buckets[3];
    struct histogram h = good_histogram(buckets);

    body_label(&f->series, "a", "1");
    body_histogram(&f->series, 1, &h, false);
    h.count++;
    body_histogram(&f->series, 2, &h, false);
    add_series(f);
    body_label(&f->series, "a", "2");
    for (int i = 0; i < 20; i++) {
        h.schema = 60 + i;
        body_histogram(&f->series, 3 + i, &h, true);
    }
    add_series(f);
    body_label(&f->series, "a", "3");
    body_sample(&f->series, 9, 4);
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    CHECK(b->series_count == 3 && b->histogram_count == 1 && b->sample_count == 1);
    CHECK(b->series[1].sample_count == 0 && b->series[1].histogram_count == 0);
    CHECK(b->invalid_count == 21 && b->invalid[0].series == 0 && b->invalid[0].t_ms == 2);
    CHECK(strcmp(b->invalid[0].text,
                 "12 observations found in buckets, but the Count field is 13: histogram's "
                 "observation count should equal the number of observations found in the buckets "
                 "(in absence of NaN)") == 0);
    CHECK(b->invalid[1].series == 1 && b->invalid[1].t_ms == 3);
    CHECK(strstr(b->invalid[9].text, "got schema 68") != NULL);
}

/* Numbers that would make huge histograms out of few bytes, sums that overflow, and the like. */
static void test_hostile_histograms(void **state)
{
    struct fixture *f = *state;
    struct budget budget;
    struct remote_write_decoder d;
    static const struct {
        const char *bytes;
        size_t size;
    } cases[] = {
#define CASE(text) {text, sizeof(text) - 1}
        CASE("\x5a\x06\x10\xff\xff\xff\xff\x0f"), /* 2^32 - 1 buckets */
        CASE("\x5a\x06\x10\xff\xff\xff\xff\x0f\x5a\x06\x10\xff\xff\xff\xff\x0f"), /* twice */
        CASE("\x5a\x06\x08\xfe\xff\xff\xff\x0f"), /* offset 2^31 - 1 */
        CASE("\x5a\x06\x08\xff\xff\xff\xff\x0f"), /* offset -2^31 */
        /* two buckets whose sum wraps to the count */
        CASE("\x08\x00\x5a\x02\x10\x02\x62\x0b\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"),
        CASE("\x62\x01\x01"), /* a negative count without a span */
        CASE("\x5a\x02\x10\x01\x62\x01\x01"),
        CASE("\x20\x69\x5a\x02\x10\x01\x62\x01\x02"), /* custom without bounds */
#undef CASE
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        writer_reset(&f->body);
        body_bytes(&f->series, 4, cases[i].bytes, cases[i].size);
        add_series(f);
        CHECK_OK(decode(f), &f->ei);
        CHECK_MSG(f->d.batch->invalid_count + f->d.batch->histogram_count == 1, "case %zu", i);
        CHECK_MSG(f->d.batch->histogram_arena.used_bytes < 1 << 20, "case %zu", i);
        CHECK(remote_write_twin_check(f->body.data, f->body.size));
    }
    /* Many empty ones: what they take is charged before it is taken. */
    writer_reset(&f->body);
    for (int i = 0; i < 100000; i++)
        body_bytes(&f->series, 4, "", 0);
    add_series(f);
    budget_init(&budget, "test memory", 4 << 20, NULL);
    CHECK_OK(remote_write_decoder_init(&d, &f->secret, &budget, &f->ei), &f->ei);
    CHECK(remote_write_v1_decode(&d, (struct bytes){f->body.data, f->body.size}, &f->ei) ==
          ERR_UNAVAILABLE);
    CHECK(d.batch->histogram_count == 0 && d.batch->series_count == 0);
    remote_write_decoder_done(&d);
    CHECK(budget_used(&budget) == 0);
    /* And one of many buckets. */
    struct byte_writer deltas;
    writer_init(&deltas);
    for (int i = 0; i < 100000; i++)
        writer_u8(&deltas, 0);
    writer_reset(&f->body);
    struct byte_writer message;
    writer_init(&message);
    body_bytes(&message, 11, "\x10\xa0\x8d\x06", 4);
    body_bytes(&message, 12, deltas.data, deltas.size);
    body_bytes(&f->series, 4, message.data, message.size);
    add_series(f);
    CHECK_OK(decode(f), &f->ei);
    CHECK(f->d.batch->histogram_count == 1);
    CHECK(f->d.batch->histogram_arena.used_bytes < 4 << 20);
    budget_init(&budget, "test memory", 1 << 20, NULL);
    CHECK_OK(remote_write_decoder_init(&d, &f->secret, &budget, &f->ei), &f->ei);
    CHECK(remote_write_v1_decode(&d, (struct bytes){f->body.data, f->body.size}, &f->ei) ==
          ERR_UNAVAILABLE);
    remote_write_decoder_done(&d);
    CHECK(budget_used(&budget) == 0);
    writer_done(&message);
    writer_done(&deltas);
}

static void check_refused(struct fixture *f, const char *data, size_t size)
{
    writer_reset(&f->body);
    body_sample(&f->series, 1700000000000, 1);
    add_series(f); /* a good series before: nothing of it may stay */
    writer_append(&f->body, data, size);
    CHECK(decode(f) == ERR_INVALID);
    CHECK(strstr(f->ei.message, "at byte") != NULL);
    CHECK(f->d.batch->series_count == 0 && f->d.batch->sample_count == 0);
}

static void test_refused(void **state)
{
    struct fixture *f = *state;

#define REFUSED(bytes) check_refused(f, bytes, sizeof(bytes) - 1)
    REFUSED("\x08\x01");                                 /* timeseries as a varint */
    REFUSED("\x18\x01");                                 /* metadata as a varint */
    REFUSED("\x0b\x0c");                                 /* a group */
    REFUSED("\x2b\x2c");                                 /* an unknown group */
    REFUSED("\x0e");                                     /* wire type 6 */
    REFUSED("\x02\x00");                                 /* field number 0 */
    REFUSED("\x0a\x05\x12\x01");                         /* longer than the body */
    REFUSED("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"); /* far longer */
    REFUSED("\x0a\x02\x08\x01");                         /* labels as a varint */
    REFUSED("\x0a\x02\x10\x01");                         /* samples as a varint */
    REFUSED("\x0a\x02\x20\x01");                         /* histograms as a varint */
    REFUSED("\x0a\x04\x22\x02\x10\x01");                 /* a float count as a varint */
    REFUSED("\x0a\x04\x22\x02\x0a\x00");                 /* a count as bytes */
    REFUSED("\x0a\x05\x22\x03\x52\x01\x00");             /* counts of one byte */
    REFUSED("\x0a\x05\x22\x03\x62\x01\x80");             /* a delta cut short */
    REFUSED("\x0a\x06\x22\x04\x5a\x02\x0a\x00");         /* an offset as bytes */
    REFUSED("\x0a\x04\x22\x02\x5a\x01");                 /* a span past its histogram */
    REFUSED("\x0a\x04\x0a\x02\x08\x01");                 /* a name as a varint */
    REFUSED("\x0a\x04\x0a\x02\x0a\x05");                 /* a name past its label */
    REFUSED("\x0a\x04\x12\x02\x08\x01");                 /* a value as a varint */
    REFUSED("\x0a\x04\x12\x02\x12\x00");                 /* a timestamp as bytes */
    REFUSED("\x0a\x0d\x12\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"); /* 65 bits */
#undef REFUSED
}

/* Any body with a budget that is spent is the server's trouble, and holds nothing afterwards. */
static void test_budget(void **state)
{
    struct fixture *f = *state;
    struct budget budget;
    struct remote_write_decoder d;

    for (int i = 0; i < 100000; i++)
        body_bytes(&f->series, 2, "", 0);
    add_series(f);
    budget_init(&budget, "test memory", 64 << 10, NULL);
    CHECK_OK(remote_write_decoder_init(&d, &f->secret, &budget, &f->ei), &f->ei);
    CHECK(remote_write_v1_decode(&d, (struct bytes){f->body.data, f->body.size}, &f->ei) ==
          ERR_UNAVAILABLE);
    CHECK(d.batch->sample_count == 0);
    remote_write_decoder_done(&d);
    CHECK(budget_used(&budget) == 0);
}

static void test_random_bodies_match_protobuf_c(void **state)
{
    struct test_random random = test_random_init(20231117);
    struct byte_writer body;
    int accepted = 0;

    (void)state;
    writer_init(&body);
    for (int i = 0; i < 4000; i++) {
        writer_reset(&body);
        body_random(&body, &random);
        accepted += remote_write_twin_check(body.data, body.size);
        if (body.size == 0)
            continue;
        for (int k = 0; k < 10; k++) { /* damaged ones */
            size_t at = (size_t)test_random_below(&random, body.size);
            uint8_t before = body.data[at];

            body.data[at] = (uint8_t)test_random_u64(&random);
            (void)remote_write_twin_check(body.data, body.size);
            body.data[at] = before;
        }
    }
    CHECK(accepted == 4000);
    writer_done(&body);
}

/* A label value that ends like two samples: the guess takes them for samples, and is found wrong.
 */
static const char sample_like[] =
    "x\x12\x10\x09\x01\x02\x03\x04\x05\x06\x07\x08\x10\x80\x80\x80\x80\x80\x01"
    "\x12\x07\x10\x80\x80\x80\x80\x80\x01";

static bool guess_is_stored(const struct fixture *f, const struct write_batch *known)
{
    return remote_write_guess_check(f->body.data, f->body.size, known, &f->secret);
}

static void test_guess(void **state)
{
    struct fixture *f = *state;
    char *large = calloc(1, 1000);

    CHECK(large != NULL);
    memset(large, 'v', 999);
    body_label(&f->series, "__name__", "up");
    body_label(&f->series, "image", large); /* no common layout, and yet passed over */
    body_sample(&f->series, 1700000000123, 1.5);
    body_sample(&f->series, 1700000000124, 0);
    body_sample(&f->series, 1700000000125, -2);
    add_series(f);
    CHECK(guess_is_stored(f, NULL));
    CHECK_OK(remote_write_v1_guess(&f->d, (struct bytes){f->body.data, f->body.size}, &f->ei),
             &f->ei);
    CHECK(f->d.batch->series_count == 1 && f->d.batch->sample_count == 3);
    check_label(f, 0, 1, "image", large);
    free(large);

    body_label(&f->series, "a", sample_like);
    body_sample(&f->series, 1700000000123, 1.5);
    add_series(f);
    CHECK(!guess_is_stored(f, NULL)); /* the first is right, the second is not */
    CHECK_OK(remote_write_v1_guess(&f->d, (struct bytes){f->body.data, f->body.size}, &f->ei),
             &f->ei);
    CHECK(f->d.batch->series_count == 2 && f->d.batch->series[1].sample_count == 3);
    CHECK(!f->d.batch->labels_check(NULL, f->d.batch->series[1].wire_labels));
    CHECK_OK(decode(f), &f->ei);
    check_label(f, 1, 0, "a", sample_like);
    CHECK(!guess_is_stored(f, f->d.batch)); /* a known key does not make it right either */
}

/* Bodies with some bytes changed, where the series of the whole one are known. */
static void test_guesses_of_damaged_bodies(void **state)
{
    struct fixture *f = *state;
    struct test_random random = test_random_init(77);
    int stored = 0, refused = 0;

    for (int i = 0; i < 400; i++) {
        writer_reset(&f->body);
        for (int k = 0; k < 5; k++) {
            char value[48];

            (void)snprintf(value, sizeof value, "%d%s", k, k == i % 9 ? sample_like : "");
            body_label(&f->series, "__name__", "damaged");
            body_label(&f->series, "i", value);
            for (int n = 0; n <= (i + k) % 3; n++)
                body_sample(&f->series, 1700000000000 + n, n == 1 ? 0 : 1.5);
            add_series(f);
        }
        CHECK_OK(decode(f), &f->ei);
        for (int k = 0; k < 50; k++) {
            size_t at = (size_t)test_random_below(&random, f->body.size);
            uint8_t before = f->body.data[at];

            f->body.data[at] ^= (uint8_t)(1U << test_random_below(&random, 8));
            *(guess_is_stored(f, f->d.batch) ? &stored : &refused) += 1;
            f->body.data[at] = before;
        }
    }
    CHECK(stored > 1000 && refused > 1000);
}

/* Each truncation in a buffer of exactly its size, so that a sanitizer sees a byte too many read.
 */
static void test_every_truncation(void **state)
{
    struct test_random random = test_random_init(99);
    struct byte_writer body;

    (void)state;
    writer_init(&body);
    for (int i = 0; i < 40; i++) {
        writer_reset(&body);
        body_random(&body, &random);
        for (size_t size = 0; size < body.size && size < 2000; size++) {
            uint8_t *cut = malloc(size == 0 ? 1 : size);

            CHECK(cut != NULL);
            if (size > 0)
                memcpy(cut, body.data, size);
            (void)remote_write_twin_check(cut, size);
            free(cut);
        }
    }
    writer_done(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_common_layout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_value_bits_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_timestamps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_split_labels_are_joined, setup, teardown),
        cmocka_unit_test_setup_teardown(test_value_before_name_and_padding, setup, teardown),
        cmocka_unit_test_setup_teardown(test_series_without_samples_leaves_no_trace, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_other_kinds_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_histograms, setup, teardown),
        cmocka_unit_test_setup_teardown(test_invalid_histograms, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_histograms, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_budget, setup, teardown),
        cmocka_unit_test_setup_teardown(test_guess, setup, teardown),
        cmocka_unit_test_setup_teardown(test_guesses_of_damaged_bodies, setup, teardown),
        cmocka_unit_test(test_random_bodies_match_protobuf_c),
        cmocka_unit_test(test_every_truncation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
