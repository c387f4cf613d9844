/*
 * See query_support.h.
 */
#include "tests/promql/query_support.h"

#include <string.h>

#include "promql/eval/label_sets_internal.h"
#include "promql/histogram_text.h"
#include "tests/lib/test_support.h"

void query_init(struct query_run *r, struct engine *e, const char *text)
{
    memset(r, 0, sizeof *r);
    r->settings = (struct promql_settings){.lookback_delta_ms = 300000,
                                           .default_step_ms = 60000,
                                           .max_samples = 50000000,
                                           .max_memory_bytes = 1 << 30,
                                           .language = {true, true, true}};
    budget_init(&r->budget, "query memory (--query.max-memory)", UINT64_MAX, NULL);
    arena_init(&r->arena, &r->budget);
    r->query = (struct promql_query){
        .engine = e, .settings = &r->settings, .text = str_from(text), .memory = &r->budget};
}

static enum err run(struct query_run *r)
{
    return promql_query_run(&r->query, &r->arena, &r->result, &r->handle, &r->ei);
}

enum err query_instant(struct query_run *r, int64_t t_ms)
{
    r->query.start_ms = r->query.end_ms = t_ms;
    return run(r);
}

enum err query_range(struct query_run *r, int64_t start_ms, int64_t end_ms, int64_t step_ms)
{
    r->query.is_range = true;
    r->query.start_ms = start_ms;
    r->query.end_ms = end_ms;
    r->query.step_ms = step_ms;
    return run(r);
}

void query_done(struct query_run *r)
{
    promql_query_done(r->handle);
    r->handle = NULL;
    arena_done(&r->arena);
    CHECK(budget_used(&r->budget) == 0);
}

static const char *point_text(struct query_run *r, const struct histogram *h, double value)
{
    struct byte_writer w;
    const char *text;

    if (h == NULL)
        return arena_printf(&r->arena, "%.10g", value);
    writer_init(&w);
    histogram_write_script(&w, h);
    CHECK(!w.failed);
    text = arena_memdup0(&r->arena, w.data, w.size);
    writer_done(&w);
    return text;
}

static const char *series_text(struct query_run *r, const char *text, size_t i)
{
    const struct promql_result *p = &r->result;
    const struct result_series *s = &p->series[i];

    text = arena_printf(&r->arena, "%s%s", text, labels_text(&s->labels, &r->arena));
    for (size_t k = 0; p->raw != NULL && k < p->raw[i].count; k++) {
        const struct column *c = &p->raw[i];

        text =
            arena_printf(&r->arena, "%s %s@%lld", text,
                         point_text(r, c->histogram == NULL ? NULL : c->histogram[k], c->value[k]),
                         (long long)c->t_ms[k]);
    }
    for (size_t k = 0; p->raw == NULL && k < p->step_count; k++)
        text = arena_printf(&r->arena, "%s %s", text,
                            result_point_present(s, k)
                                ? point_text(r, result_point_histogram(s, k), s->value[k])
                                : "_");
    return arena_printf(&r->arena, "%s\n", text);
}

const char *query_text(struct query_run *r)
{
    const char *text = "";

    if (r->result.type == VALUE_STRING)
        return arena_printf(&r->arena, "\"%.*s\"\n", STR_ARGS(r->result.string));
    for (size_t i = 0; i < r->result.series_count; i++)
        text = series_text(r, text, i);
    return text;
}

static bool points_equal(const struct result_series *a, const struct result_series *b, size_t step)
{
    const struct histogram *x = result_point_histogram(a, step);
    const struct histogram *y = result_point_histogram(b, step);

    if (x != NULL && y != NULL)
        return histogram_equal(x, y) && x->hint == y->hint;
    return x == y && double_bits(a->value[step]) == double_bits(b->value[step]);
}

bool result_rows_equal(const struct promql_result *a, const struct promql_result *b, size_t i)
{
    if (!labels_equal(&a->series[i].labels, &b->series[i].labels))
        return false;
    for (size_t k = 0; k < a->step_count; k++) {
        bool present = result_point_present(&a->series[i], k);

        if (present != result_point_present(&b->series[i], k) ||
            (present && !points_equal(&a->series[i], &b->series[i], k)))
            return false;
    }
    return true;
}
