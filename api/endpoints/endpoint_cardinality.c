/*
 * /api/v1/rimstone/cardinality: where series come from, in memory or on a day of parts.
 *
 *   match[]  one selector; default: all series
 *   day      YYYY-MM-DD, in UTC; default: what is in memory
 *   label    the label whose values are wanted as a list of their own
 *   limit    rows of each list, 1 to 100,000; default 10
 */
#include <inttypes.h>
#include <string.h>

#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "engine/explore.h"
#include "engine/querier.h"
#include "promql/ast.h"

enum { ROWS_DEFAULT = 10, ROWS_MAX = 100000, DAY_TEXT_SIZE = 10 };

struct explore_request {
    struct explore_options options;
    struct str day;
    struct matcher *matchers; /* in the arena; to be done with */
};

/* ---- parameters: false when a reply was made ---- */

static bool limit_read(struct http_request *r, size_t *out)
{
    struct str text = params_get(&r->params, "limit");
    struct errinfo ei = {0};

    *out = ROWS_DEFAULT;
    if (text.size == 0)
        return true;
    if (param_limit_parse(text, out, &ei) != ERR_OK || *out == 0 || *out > ROWS_MAX) {
        reply_bad_parameter(r, "limit", "a number from 1 to 100000 is wanted");
        return false;
    }
    return true;
}

static bool day_read(struct http_request *r, struct explore_request *q)
{
    struct errinfo ei = {0};
    char text[DAY_TEXT_SIZE + 16];

    q->day = params_get(&r->params, "day");
    q->options.day_ms = EXPLORE_MEMORY;
    if (q->day.size == 0)
        return true;
    if (q->day.size == DAY_TEXT_SIZE) {
        memcpy(text, q->day.data, DAY_TEXT_SIZE);
        memcpy(text + DAY_TEXT_SIZE, "T00:00:00Z", sizeof "T00:00:00Z");
        if (time_parse(str_from(text), &q->options.day_ms, &ei) == ERR_OK)
            return true;
    }
    reply_bad_parameter(r, "day", "a day such as 2026-01-31 is wanted");
    return false;
}

static bool match_read(struct http_request *r, struct explore_request *q, struct arena *arena)
{
    struct errinfo ei = {0};
    enum err e;

    if (params_count(&r->params, "match[]") == 0)
        return true;
    if (params_count(&r->params, "match[]") > 1) {
        reply_bad_parameter(r, "match[]", "one selector at most is wanted");
        return false;
    }
    e = promql_parse_selector(params_get(&r->params, "match[]"), arena, &q->matchers,
                              &q->options.matcher_count, &ei);
    if (e == ERR_OK) {
        q->options.matchers = q->matchers;
        return true;
    }
    reply_parameter_err(r, "match[]", e, ei.message);
    return false;
}

/* ---- the answer ---- */

static void churn_write(struct byte_writer *w, const struct explore_row *row, double hours)
{
    double per_hour = hours > 0 ? 1 / hours : 0;

    writer_printf(w, ",\"created\":%" PRIu64 ",\"ended\":%" PRIu64 ",\"createdPerHour\":",
                  row->created, row->ended);
    json_write_number(w, (double)row->created * per_hour);
    json_write_raw(w, ",\"endedPerHour\":");
    json_write_number(w, (double)row->ended * per_hour);
    json_write_raw(w, ",\"growthPerHour\":");
    json_write_number(w, ((double)row->created - (double)row->ended) * per_hour);
}

static void cost_write(struct byte_writer *w, const struct explore_row *row, bool of_day)
{
    if (!of_day) {
        json_write_raw(w, ",\"samplesPerSecond\":");
        json_write_number(w, row->samples_per_second);
        return;
    }
    json_write_raw(w, ",\"samples\":");
    json_write_number(w, row->samples);
    json_write_raw(w, ",\"bytes\":");
    json_write_number(w, row->bytes);
}

enum list_kind { LIST_METRICS, LIST_LABELS, LIST_VALUES };

static void list_write(struct byte_writer *w, const char *name, const struct explore_list *list,
                       enum list_kind kind, double hours, bool of_day)
{
    writer_printf(w, ",\"%s\":[", name);
    for (size_t i = 0; i < list->count; i++) {
        const struct explore_row *row = &list->rows[i];

        json_write_raw(w, i == 0 ? "{\"name\":" : ",{\"name\":");
        json_write_string(w, row->name);
        writer_printf(w, ",\"value\":%" PRIu64, row->series);
        if (kind == LIST_LABELS)
            writer_printf(w, ",\"distinctValues\":%" PRIu64, row->values);
        churn_write(w, row, hours);
        if (kind == LIST_METRICS)
            cost_write(w, row, of_day);
        json_write_raw(w, "}");
    }
    json_write_raw(w, "]");
}

static void answer_write(struct byte_writer *w, const struct explore_request *q,
                         const struct explore *x)
{
    bool of_day = q->options.day_ms != EXPLORE_MEMORY;

    json_write_raw(w, "{\"status\":\"success\",\"data\":{\"source\":");
    json_write_raw(w, of_day ? "\"parts\",\"day\":" : "\"memory\"");
    if (of_day)
        json_write_string(w, q->day);
    writer_printf(w, ",\"series\":%" PRIu64 ",\"labelPairs\":%" PRIu64 ",\"hours\":", x->all.series,
                  x->label_pair_count);
    json_write_number(w, x->hours);
    churn_write(w, &x->all, x->hours);
    cost_write(w, &x->all, of_day);
    list_write(w, "seriesCountByMetricName", &x->by_metric, LIST_METRICS, x->hours, of_day);
    list_write(w, "seriesCountByLabelName", &x->by_label, LIST_LABELS, x->hours, of_day);
    if (q->options.focus.size > 0)
        list_write(w, "seriesCountByFocusLabelValue", &x->by_value, LIST_VALUES, x->hours, of_day);
    list_write(w, "seriesCountByLabelValuePair", &x->by_pair, LIST_VALUES, x->hours, of_day);
    json_write_raw(w, "}}");
}

static enum err explore_run(struct http_request *r, const struct explore_request *q,
                            struct arena *arena, struct explore *out, struct errinfo *ei)
{
    struct querier *querier = NULL;
    enum err e = querier_open(server_engine(r->server), &querier, ei);

    if (e != ERR_OK)
        return e;
    querier_set_stop(querier, &r->hangup.stop);
    querier_set_deadline(querier, r->deadline_mono_ns);
    e = querier_explore(querier, &q->options, arena, out, ei);
    querier_close(querier);
    return e;
}

void endpoint_cardinality(struct http_request *r)
{
    struct explore_request q = {.options.focus = params_get(&r->params, "label")};
    struct explore x;
    struct errinfo ei = {0};
    struct budget memory;
    struct arena arena;

    query_memory_begin(r->server, &memory);
    arena_init(&arena, &memory);
    if (limit_read(r, &q.options.limit) && day_read(r, &q) && match_read(r, &q, &arena)) {
        enum err e = explore_run(r, &q, &arena, &x, &ei);

        if (e == ERR_OK) {
            struct byte_writer w;

            writer_init(&w);
            answer_write(&w, &q, &x);
            reply_body(r, 200, "application/json", &w);
        } else {
            reply_err(r, e, ei.message);
        }
    }
    for (size_t i = 0; i < q.options.matcher_count; i++)
        matcher_done(&q.matchers[i]);
    arena_done(&arena);
    query_memory_end(&memory);
}
