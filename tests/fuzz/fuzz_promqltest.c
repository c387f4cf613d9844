/*
 * Any text as a script in Prometheus's test language: it is read or refused with a reason. Of what
 * is read, every histogram can be written in the language, and is the same when it is read again.
 */
#include <stdlib.h>
#include <string.h>

#include "promql/histogram_text.h"
#include "tools/promqltest_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

enum { POINTS_LOOKED_AT = 64 };

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* Not a number is what the language calls every NaN. */
static bool same_number(double a, double b)
{
    return a == b || (a != a && b != b);
}

static bool same_side(const struct histogram_side *a, const struct histogram_side *b)
{
    if (!histogram_spans_equal(a, b))
        return false;
    for (size_t i = 0; i < a->bucket_count; i++) {
        if (!same_number(a->buckets[i], b->buckets[i]))
            return false;
    }
    return true;
}

static bool same_histogram(const struct histogram *a, const struct histogram *b)
{
    return a->schema == b->schema && same_number(a->count, b->count) &&
           same_number(a->sum, b->sum) && same_number(a->zero_count, b->zero_count) &&
           same_number(a->zero_threshold, b->zero_threshold) &&
           (!histogram_is_custom(a) || histogram_bounds_equal(a, b)) &&
           same_side(&a->positive, &b->positive) && same_side(&a->negative, &b->negative);
}

/* Written and read again. What is out of the language's bounds by then is refused. */
static void check_histogram(const struct histogram *h)
{
    struct histogram written;
    struct series_line line;
    struct byte_writer w;
    struct budget budget;
    struct arena arena;

    budget_init(&budget, "memory", 16U << 20, NULL);
    arena_init(&arena, &budget);
    writer_init(&w);
    writer_printf(&w, "m ");
    histogram_write_script(&w, h);
    if (!w.failed && w.size < 1U << 16 && histogram_copy(h, &arena, &written) == ERR_OK &&
        histogram_compact(&written, &arena) == ERR_OK &&
        series_line_parse((struct str){(char *)w.data, w.size}, &arena, &line, NULL) == ERR_OK) {
        struct histogram read;

        require(line.points.count == 1 && line.points.kinds[0] == POINT_HISTOGRAM);
        if (histogram_copy(&line.points.histograms[0]->value, &arena, &read) == ERR_OK &&
            histogram_compact(&read, &arena) == ERR_OK)
            require(same_histogram(&written, &read));
    }
    writer_done(&w);
    arena_done(&arena);
}

static void check_points(const struct sequence *s)
{
    bool has_histogram = false;

    for (size_t i = 0; i < s->count; i++) {
        require((s->kinds[i] == POINT_HISTOGRAM) == (s->histograms[i] != NULL));
        has_histogram |= s->kinds[i] == POINT_HISTOGRAM;
        if (s->kinds[i] == POINT_HISTOGRAM && i < POINTS_LOOKED_AT)
            check_histogram(&s->histograms[i]->value);
    }
    require(has_histogram == s->has_histogram);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script;
    struct errinfo ei = {0};
    enum err e = script_parse_within("fuzz", (struct str){(const char *)data, size}, 32U << 20,
                                     &script, &ei);

    require((e == ERR_OK) == (ei.message[0] == '\0'));
    for (size_t i = 0; e == ERR_OK && i < script.command_count; i++) {
        const struct command *c = &script.commands[i];

        for (size_t k = 0; c->kind == COMMAND_LOAD && k < c->u.load.series_count; k++)
            check_points(&c->u.load.series[k].points);
        for (size_t k = 0; c->kind == COMMAND_EVAL && k < c->u.eval.series_count; k++)
            check_points(&c->u.eval.series[k].line.points);
    }
    script_done(&script);
    return 0;
}
