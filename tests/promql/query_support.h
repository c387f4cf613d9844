/*
 * Running queries over the fake engine, and their results as text.
 */
#ifndef RIMSTONE_TESTS_PROMQL_QUERY_SUPPORT_H
#define RIMSTONE_TESTS_PROMQL_QUERY_SUPPORT_H

#include "promql/promql.h"
#include "tests/promql/fake_engine.h"

/* One query's state; query_done() frees all of it. */
struct query_run {
    struct promql_settings settings;
    struct promql_query query;
    struct budget budget;
    struct arena arena;
    struct promql_result result;
    struct promql_handle *handle;
    struct errinfo ei;
};

void query_init(struct query_run *r, struct engine *e, const char *text);
/* Instant at `t_ms`, or a range. */
enum err query_instant(struct query_run *r, int64_t t_ms);
enum err query_range(struct query_run *r, int64_t start_ms, int64_t end_ms, int64_t step_ms);
void query_done(struct query_run *r);
/* "{labels} v v _ v" a line, `_` where nothing is; raw samples as "v@t". Histograms stand as in the
 * test language. In the run's arena. */
const char *query_text(struct query_run *r);
/* Whether row i of two results of as many rows and steps is the same: labels, steps, and every
 * value to the last bit. */
bool result_rows_equal(const struct promql_result *a, const struct promql_result *b, size_t i);

#endif
