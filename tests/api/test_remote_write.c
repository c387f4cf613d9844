/* The remote-write walker: what it accepts, refuses and stores, alone and against protobuf-c. */
#include "tests/lib/test_cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/remote_write_internal.h"
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
    body_bytes(&f->series, 4, "hi", 2);
    body_bytes(&f->series, 4, "hi", 2);
    add_series(f);
    body_bytes(&f->body, 3, "meta", 4);
    CHECK_OK(decode(f), &f->ei);
    CHECK(f->d.counts.exemplar_count == 1 && f->d.counts.histogram_count == 2 &&
          f->d.counts.metadata_count == 1);
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
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_budget, setup, teardown),
        cmocka_unit_test(test_random_bodies_match_protobuf_c),
        cmocka_unit_test(test_every_truncation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
