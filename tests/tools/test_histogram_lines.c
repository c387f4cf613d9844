/*
 * Native histograms as lines of JSON: exact text, and random ones read back bit for bit by a small
 * reader that was written from the description in docs/operations.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_text.h"
#include "tests/engine/histogram_kit.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tools/histogram_lines_internal.h"

static const struct label labels_items[] = {{LABEL_METRIC_NAME, STR_LITERAL("x")},
                                            {STR_LITERAL("a.b"), STR_LITERAL("\"\n")}};
static const struct labels series = {2, labels_items};

static void line_make(struct byte_writer *w, int64_t t_ms, const struct histogram *h)
{
    writer_reset(w);
    histogram_line_series(w, &series);
    histogram_line_sample(w, t_ms, h);
    writer_u8(w, '\0');
    CHECK(!w->failed);
}

static void test_exact_text(void **state)
{
    static const struct histogram_span spans[] = {{-1, 1}, {2, 1}};
    double buckets[] = {1, 1.5};
    const struct histogram h = {.schema = 3,
                                .hint = HISTOGRAM_HINT_GAUGE,
                                .count = 3.5,
                                .sum = double_from_bits(UINT64_C(0x7ff0000000000002)),
                                .zero_threshold = 0x1p-128,
                                .zero_count = 1,
                                .negative = {spans, 2, buckets, 2},
                                .start_ms = -5};
    static const char want[] =
        "{\"metric\":{\"__name__\":\"x\",\"a.b\":\"\\\"\\n\"},\"timestamp_ms\":1700000000001,"
        "\"start_timestamp_ms\":-5,\"schema\":3,\"counter_reset_hint\":\"gauge\",\"count\":\"3.5\","
        "\"sum\":\"NaN:7ff0000000000002\",\"zero_threshold\":\"2.938735877055719e-39\","
        "\"zero_count\":\"1\",\"negative\":{\"spans\":[[-1,1],[2,1]],\"buckets\":[\"1\",\"1.5\"]}}"
        "\n";
    struct byte_writer w;

    (void)state;
    writer_init(&w);
    line_make(&w, 1700000000001, &h);
    CHECK_MSG(strcmp((const char *)w.data, want) == 0, "%s", (const char *)w.data);
    writer_done(&w);
}

/* ---- the reader ---- */

static const char *value_of(const char *line, const char *key)
{
    char quoted[64];
    const char *at;

    (void)snprintf(quoted, sizeof quoted, ",\"%s\":", key);
    at = strstr(line, quoted);
    return at == NULL ? NULL : at + strlen(quoted);
}

/* A number in quotes; *at goes behind it. */
static double number_at(const char **at)
{
    const char *end;
    double v;

    CHECK(**at == '"');
    end = strchr(*at + 1, '"');
    CHECK(end != NULL);
    if (strncmp(*at, "\"NaN:", 5) == 0)
        v = double_from_bits(strtoull(*at + 5, NULL, 16));
    else
        CHECK(float_parse((struct str){*at + 1, (size_t)(end - *at - 1)}, &v));
    *at = end + 1;
    return v;
}

static double number_of(const char *line, const char *key)
{
    const char *at = value_of(line, key);

    CHECK(at != NULL);
    return number_at(&at);
}

static size_t numbers_at(const char *at, struct arena *arena, double **out)
{
    double *v = ARENA_ARRAY(arena, strlen(at), double);
    size_t count = 0;

    CHECK(v != NULL && *at == '[');
    for (at++; *at != ']'; at += *at == ',')
        v[count++] = number_at(&at);
    *out = v;
    return count;
}

static void side_of(const char *line, const char *key, struct arena *arena,
                    struct histogram_side *out)
{
    const char *at = value_of(line, key);
    struct histogram_span *spans;

    *out = (struct histogram_side){0};
    if (at == NULL)
        return;
    CHECK(strncmp(at, "{\"spans\":[", 10) == 0);
    spans = ARENA_ARRAY(arena, strlen(at), struct histogram_span);
    CHECK(spans != NULL);
    for (at += 10; *at == '['; at = strchr(at, ']') + 1, at += *at == ',') {
        char *end;

        spans[out->span_count].offset = (int32_t)strtol(at + 1, &end, 10);
        spans[out->span_count++].length = (uint32_t)strtoul(end + 1, NULL, 10);
    }
    out->spans = spans;
    CHECK(strncmp(at, "],\"buckets\":", 12) == 0);
    out->bucket_count = numbers_at(at + 12, arena, &out->buckets);
}

static int64_t integer_of(const char *line, const char *key)
{
    const char *at = value_of(line, key);

    return at == NULL ? 0 : strtoll(at, NULL, 10);
}

static void histogram_of(const char *line, struct arena *arena, struct histogram *out)
{
    static const char *const hints[] = {"\"unknown\"", "\"reset\"", "\"not_reset\"", "\"gauge\""};
    const char *hint = value_of(line, "counter_reset_hint");
    const char *custom = value_of(line, "custom_values");
    double *bounds = NULL;

    *out = (struct histogram){.schema = (int32_t)integer_of(line, "schema"),
                              .start_ms = integer_of(line, "start_timestamp_ms"),
                              .count = number_of(line, "count"),
                              .sum = number_of(line, "sum"),
                              .zero_threshold = number_of(line, "zero_threshold"),
                              .zero_count = number_of(line, "zero_count")};
    for (unsigned i = 0; i < 4; i++) {
        if (strncmp(hint, hints[i], strlen(hints[i])) == 0)
            out->hint = (enum histogram_hint)i;
    }
    side_of(line, "positive", arena, &out->positive);
    side_of(line, "negative", arena, &out->negative);
    if (custom != NULL)
        out->custom_count = numbers_at(custom, arena, &bounds);
    out->custom_values = bounds;
}

static void test_read_back(void **state)
{
    enum { COUNT = 60, ROUNDS = 30 };
    struct test_random r = test_random_init(8);
    struct histogram h[COUNT];
    struct byte_writer w;
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    writer_init(&w);
    for (int round = 0; round < ROUNDS; round++) {
        arena_reset(&arena);
        histograms_fill_any(&r, &arena, h, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            int64_t t_ms = (int64_t)test_random_u64(&r) / 4;
            struct histogram got;

            line_make(&w, t_ms, &h[i]);
            CHECK(strchr((const char *)w.data, '\n') == (const char *)w.data + w.size - 2);
            histogram_of((const char *)w.data, &arena, &got);
            CHECK_MSG(histogram_same_bits(&h[i], &got), "%s", (const char *)w.data);
            CHECK(integer_of((const char *)w.data, "timestamp_ms") == t_ms);
        }
    }
    writer_done(&w);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_text),
        cmocka_unit_test(test_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
