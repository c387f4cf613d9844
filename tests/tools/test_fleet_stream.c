/*
 * The fleet stream: same bytes from the same seed however nodes are spread over connections, label
 * sets sorted and distinct, shares of value models as documented, churn ends series with markers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tests/lib/test_support.h"
#include "tools/fleet_stream.h"
#include "tools/load_request.h"

enum { NODES = 6, SCRAPES = 5 };

static const struct fleet_options base_options = {
    .profile = FLEET_GPU,
    .seed = 7,
    .node_count = NODES,
    .start_ms = 1700000000000,
    .interval_ms = 15000,
    .jitter_ms = 5,
    .target_offsets = true,
    .churn_per_minute = 40,
};

static uint64_t digest(uint64_t h, const void *data, size_t size)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * 0x100000001b3U;
    return h;
}

/* One number per node and scrape, made of everything the node sends. */
static void stream_digest(uint32_t first, uint32_t count, uint64_t out[][SCRAPES])
{
    struct errinfo ei = {0};
    struct fleet_template *t;
    struct fleet_nodes *n;

    CHECK_OK(fleet_template_new(FLEET_GPU, &t, &ei), &ei);
    CHECK_OK(fleet_nodes_new(t, &base_options, first, count, &n, &ei), &ei);
    for (int scrape = 0; scrape < SCRAPES; scrape++) {
        for (uint32_t i = 0; i < count; i++) {
            const struct fleet_sample *samples;
            size_t sample_count = fleet_node_scrape(n, i, &samples);
            uint64_t h = 1;

            for (size_t k = 0; k < sample_count; k++) {
                h = digest(h, samples[k].labels.data, samples[k].labels.size);
                h = digest(h, &samples[k].t_ms, sizeof samples[k].t_ms);
                h = digest(h, &samples[k].value, sizeof samples[k].value);
            }
            out[first + i][scrape] = h;
        }
    }
    fleet_nodes_free(n);
    fleet_template_free(t);
}

static void test_spread_does_not_matter(void **state)
{
    uint64_t whole[NODES][SCRAPES], split[NODES][SCRAPES];

    (void)state;
    stream_digest(0, NODES, whole);
    stream_digest(0, 2, split);
    stream_digest(2, 4, split);
    CHECK(memcmp(whole, split, sizeof whole) == 0);
    CHECK(whole[0][0] != whole[1][0] && whole[0][0] != whole[0][1]);
}

/* Reads one Label message; returns its name. */
static struct str label_read(struct byte_reader *r, struct str *value)
{
    struct byte_reader label;
    struct str name;
    const uint8_t *p;
    size_t size;

    CHECK(reader_u8(r) == 0x0a);
    size = reader_varint(r);
    p = reader_take(r, size);
    CHECK(p != NULL);
    label = reader_init(p, size);
    CHECK(reader_u8(&label) == 0x0a);
    name.size = reader_varint(&label);
    name.data = (const char *)reader_take(&label, name.size);
    CHECK(reader_u8(&label) == 0x12);
    value->size = reader_varint(&label);
    value->data = (const char *)reader_take(&label, value->size);
    CHECK(!label.failed && reader_left(&label) == 0);
    return name;
}

static int bytes_compare(const void *a, const void *b)
{
    const struct fleet_sample *x = a, *y = b;
    size_t n = x->labels.size < y->labels.size ? x->labels.size : y->labels.size;
    int c = memcmp(x->labels.data, y->labels.data, n);

    return c != 0 ? c : (x->labels.size > y->labels.size) - (x->labels.size < y->labels.size);
}

static void labels_check(enum fleet_profile profile, size_t series_per_node)
{
    struct fleet_options o = base_options;
    struct errinfo ei = {0};
    struct fleet_template *t;
    struct fleet_nodes *n;
    const struct fleet_sample *samples;
    struct fleet_sample *sorted;
    size_t count;

    o.churn_per_minute = 0;
    CHECK_OK(fleet_template_new(profile, &t, &ei), &ei);
    CHECK(fleet_series_per_node(t) == series_per_node);
    CHECK_OK(fleet_nodes_new(t, &o, 3, 1, &n, &ei), &ei);
    count = fleet_node_scrape(n, 0, &samples);
    CHECK(count == series_per_node);
    for (size_t i = 0; i < count; i++) {
        struct byte_reader r = reader_init(samples[i].labels.data, samples[i].labels.size);
        struct str last = {NULL, 0}, value;

        while (reader_left(&r) > 0) {
            struct str name = label_read(&r, &value);

            CHECK(!r.failed && value.size > 0);
            CHECK(str_compare(last, name) < 0);
            last = name;
        }
    }
    sorted = malloc(count * sizeof *sorted);
    CHECK(sorted != NULL);
    memcpy(sorted, samples, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, bytes_compare);
    for (size_t i = 1; i < count; i++)
        CHECK(bytes_compare(&sorted[i - 1], &sorted[i]) != 0);
    free(sorted);
    fleet_nodes_free(n);
    fleet_template_free(t);
}

static void test_labels_are_sorted_and_distinct(void **state)
{
    (void)state;
    labels_check(FLEET_GPU, 1000);
    labels_check(FLEET_CADVISOR, 960);
}

/* The documented shares: 372 of a node's series never change, about 272 are no integers, ... */
static void test_value_shares(void **state)
{
    struct fleet_options o = base_options;
    struct errinfo ei = {0};
    struct fleet_template *t;
    struct fleet_nodes *n;
    const struct fleet_sample *samples;
    double first[1000];
    bool changed[1000] = {false}, fraction[1000] = {false};
    size_t constant_count = 0, fraction_count = 0;

    (void)state;
    o.churn_per_minute = 0;
    CHECK_OK(fleet_template_new(FLEET_GPU, &t, &ei), &ei);
    CHECK_OK(fleet_nodes_new(t, &o, 0, 1, &n, &ei), &ei);
    for (int scrape = 0; scrape < 20000; scrape++) {
        CHECK(fleet_node_scrape(n, 0, &samples) == 1000);
        for (size_t i = 0; i < 1000; i++) {
            if (scrape == 0)
                first[i] = samples[i].value;
            changed[i] |= samples[i].value != first[i];
            fraction[i] |= samples[i].value != floor(samples[i].value);
        }
    }
    for (size_t i = 0; i < 1000; i++) {
        constant_count += !changed[i];
        fraction_count += fraction[i];
    }
    CHECK(constant_count == 372);
    CHECK(fraction_count == 272 + 40 + 8);
    fleet_nodes_free(n);
    fleet_template_free(t);
}

static void test_churn_ends_series(void **state)
{
    struct fleet_options o = base_options;
    struct errinfo ei = {0};
    struct fleet_template *t;
    struct fleet_nodes *n;
    const struct fleet_sample *samples;
    size_t markers = 0;

    (void)state;
    o.node_count = 1;
    o.churn_per_minute = 4; /* one pod a scrape */
    CHECK_OK(fleet_template_new(FLEET_GPU, &t, &ei), &ei);
    CHECK_OK(fleet_nodes_new(t, &o, 0, 1, &n, &ei), &ei);
    for (int scrape = 0; scrape < 101; scrape++) {
        size_t count = fleet_node_scrape(n, 0, &samples);

        for (size_t i = 0; i + 1000 < count; i++) {
            CHECK(double_bits(samples[i].value) == 0x7ff0000000000002U);
            markers++;
        }
    }
    CHECK(markers == (size_t)100 * 30);
    fleet_nodes_free(n);
    fleet_template_free(t);
}

/* Staleness markers stand in the rollouts only, at the end of each period. */
static void test_rollouts(void **state)
{
    struct fleet_options o = base_options;
    struct errinfo ei = {0};
    struct fleet_template *t;
    struct fleet_nodes *n;
    const struct fleet_sample *samples;

    (void)state;
    o.node_count = 1;
    o.churn_per_minute = 4; /* one pod a scrape */
    o.churn_period_ms = 10 * o.interval_ms;
    o.churn_length_ms = 3 * o.interval_ms;
    CHECK_OK(fleet_template_new(FLEET_GPU, &t, &ei), &ei);
    CHECK_OK(fleet_nodes_new(t, &o, 0, 1, &n, &ei), &ei);
    for (int scrape = 0; scrape < 40; scrape++)
        CHECK(fleet_node_scrape(n, 0, &samples) == (scrape % 10 < 7 ? 1000 : 1030));
    fleet_nodes_free(n);
    fleet_template_free(t);
}

static void test_request_2_has_smaller_bodies(void **state)
{
    struct errinfo ei = {0};
    struct fleet_template *t;
    struct fleet_nodes *n;
    const struct fleet_sample *samples;
    size_t plain[2];

    (void)state;
    CHECK_OK(fleet_template_new(FLEET_GPU, &t, &ei), &ei);
    CHECK_OK(fleet_nodes_new(t, &base_options, 0, 1, &n, &ei), &ei);
    CHECK(fleet_node_scrape(n, 0, &samples) == 1000);
    for (int protocol = 0; protocol < 2; protocol++) {
        struct load_request *r;
        struct bytes body;

        CHECK_OK(load_request_new((enum load_protocol)protocol, LOAD_ZSTD, &r, &ei), &ei);
        for (size_t i = 0; i < 1000; i++)
            CHECK_OK(load_request_add(r, &samples[i], &ei), &ei);
        CHECK_OK(load_request_finish(r, &body, &plain[protocol], &ei), &ei);
        CHECK(load_request_sample_count(r) == 1000 && body.size > 0);
        load_request_free(r);
    }
    CHECK(plain[1] * 3 < plain[0]);
    fleet_nodes_free(n);
    fleet_template_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread_does_not_matter),
        cmocka_unit_test(test_labels_are_sorted_and_distinct),
        cmocka_unit_test(test_value_shares),
        cmocka_unit_test(test_churn_ends_series),
        cmocka_unit_test(test_rollouts),
        cmocka_unit_test(test_request_2_has_smaller_bodies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
