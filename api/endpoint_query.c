/*
 * /api/v1/query and /api/v1/query_range: parameters as Prometheus reads them, one call of the
 * evaluator, and an answer that is made from the result's columns while it is sent.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http_internal.h"
#include "api/json_internal.h"
#include "base/assert.h"

enum { POINTS_MAX = 11000, ANNOTATIONS_MAX = 10 };

/* A query and its result, from the parameters to the last byte sent. */
struct query_run {
    struct stream_source source; /* first, so that the two convert */
    struct budget memory;        /* of this query */
    struct arena arena;          /* the result's */
    struct promql_handle *handle;
    struct promql_result result;
    size_t limit;
    bool truncated;  /* by `limit` */
    bool want_stats; /* `stats` was given */
    double queue_s, eval_s;
    size_t row, point; /* where the stream stands */
    bool began;        /* the row's labels are written */
    bool any_point;    /* of the row */
};

static void query_run_free(struct stream_source *source)
{
    struct query_run *q = (struct query_run *)source;

    if (q == NULL)
        return;
    promql_query_done(q->handle);
    arena_done(&q->arena);
    query_memory_end(&q->memory);
    free(q);
}

/* Text of the result. */

static void strings_write(struct byte_writer *w, const struct query_run *q,
                          enum annotation_kind kind, const char *field, const char *noun)
{
    bool truncated = kind == ANNOTATION_WARNING && q->truncated;
    size_t written = 0, skipped = 0;

    for (size_t i = 0; i < q->result.annotation_count; i++) {
        if (q->result.annotations[i].kind != kind)
            continue;
        if (written == ANNOTATIONS_MAX) {
            skipped++;
            continue;
        }
        if (written++ == 0)
            writer_printf(w, ",\"%s\":[", field);
        else
            writer_u8(w, ',');
        json_write_string(w, str_from(q->result.annotations[i].text));
    }
    if (truncated) {
        if (written++ == 0)
            writer_printf(w, ",\"%s\":[", field);
        else
            writer_u8(w, ',');
        json_write_string(w, STR_LITERAL("results truncated due to limit"));
    }
    if (skipped > 0)
        writer_printf(w, ",\"%zu more %s annotations omitted\"", skipped, noun);
    if (written > 0)
        writer_u8(w, ']');
}

static void stats_write(struct byte_writer *w, const struct query_run *q)
{
    json_write_raw(w, ",\"stats\":{\"timings\":{\"evalTotalTime\":");
    json_write_number(w, q->eval_s);
    json_write_raw(w, ",\"execQueueTime\":");
    json_write_number(w, q->queue_s);
    json_write_raw(w, ",\"execTotalTime\":");
    json_write_number(w, q->eval_s + q->queue_s);
    writer_printf(
        w, "},\"samples\":{\"totalQueryableSamples\":%" PRIu64 ",\"peakSamples\":%" PRIu64 "}}",
        q->result.samples_read, q->result.samples_peak);
}

/* Which of the four shapes the answer has. An instant query of a range vector is a matrix too. */
static const char *result_type_text(const struct promql_result *r)
{
    switch (r->type) {
    case VALUE_SCALAR:
        return "scalar";
    case VALUE_VECTOR:
        return "vector";
    case VALUE_MATRIX:
        return "matrix";
    case VALUE_STRING:
        break;
    }
    return "string";
}

static size_t row_count(const struct query_run *q)
{
    size_t count = q->result.series_count;

    return q->limit != 0 && count > q->limit ? q->limit : count;
}

/* Writes points from q->point on until the piece is full; true when the row has no more. */
static bool row_points_write(struct query_run *q, struct byte_writer *w)
{
    const struct promql_result *result = &q->result;
    const struct result_series *series = &result->series[q->row];

    if (result->raw != NULL) {
        const struct column *c = &result->raw[q->row];

        for (; q->point < c->count && w->size < STREAM_PIECE_BYTES; q->point++) {
            if (q->any_point)
                writer_u8(w, ',');
            q->any_point = true;
            json_write_point(w, c->t_ms[q->point], c->value[q->point]);
        }
        return q->point == c->count;
    }
    for (; q->point < result->step_count; q->point++) {
        if (!result_point_present(series, q->point))
            continue;
        if (w->size >= STREAM_PIECE_BYTES)
            return false;
        if (q->any_point)
            writer_u8(w, ',');
        q->any_point = true;
        json_write_point(w, result->start_ms + (int64_t)q->point * result->step_ms,
                         series->value[q->point]);
    }
    return true;
}

/* Writes (the rest of) a matrix row; true when it is complete. */
static bool matrix_row_write(struct query_run *q, struct byte_writer *w)
{
    if (!q->began) {
        if (q->row > 0)
            writer_u8(w, ',');
        json_write_raw(w, "{\"metric\":");
        json_write_labels(w, &q->result.series[q->row].labels);
        json_write_raw(w, ",\"values\":[");
        q->began = true;
        q->any_point = false; /* not "at step 0": a row may begin with steps that have no value */
    }
    if (!row_points_write(q, w))
        return false;
    json_write_raw(w, "]}");
    q->began = false;
    q->point = 0;
    return true;
}

static void vector_row_write(struct query_run *q, struct byte_writer *w)
{
    const struct result_series *series = &q->result.series[q->row];

    if (q->row > 0)
        writer_u8(w, ',');
    json_write_raw(w, "{\"metric\":");
    json_write_labels(w, &series->labels);
    json_write_raw(w, ",\"value\":");
    json_write_point(w, q->result.start_ms, series->value[0]);
    writer_u8(w, '}');
}

/* What stands behind the result. */
static void end_write(struct byte_writer *w, const struct query_run *q)
{
    if (q->want_stats)
        stats_write(w, q);
    json_write_raw(w, "}");
    strings_write(w, q, ANNOTATION_WARNING, "warnings", "warning");
    strings_write(w, q, ANNOTATION_INFO, "infos", "info");
    json_write_raw(w, "}");
}

static enum err query_fill(struct stream_source *source, struct byte_writer *w, bool *done,
                           struct errinfo *ei)
{
    struct query_run *q = (struct query_run *)source;
    size_t rows = row_count(q);

    (void)ei; /* everything is in memory: nothing can fail but the writer */
    while (q->row < rows && w->size < STREAM_PIECE_BYTES) {
        if (q->result.type != VALUE_MATRIX)
            vector_row_write(q, w);
        else if (!matrix_row_write(q, w))
            return ERR_OK;
        q->row++;
    }
    if (q->row < rows)
        return ERR_OK;
    json_write_raw(w, "]");
    end_write(w, q);
    *done = true;
    return ERR_OK;
}

/* Scalars and strings are one pair, made at once. */
static void single_write(struct byte_writer *w, const struct query_run *q)
{
    const struct promql_result *result = &q->result;

    if (result->type == VALUE_SCALAR) {
        json_write_point_f(w, result->start_ms, result->series[0].value[0]);
    } else {
        writer_u8(w, '[');
        json_write_time(w, result->start_ms);
        writer_u8(w, ',');
        json_write_string(w, result->string);
        writer_u8(w, ']');
    }
    end_write(w, q);
}

static void result_reply(struct http_request *r, struct query_run *q)
{
    struct byte_writer w;

    writer_init(&w);
    json_write_raw(&w, "{\"status\":\"success\",\"data\":{\"resultType\":\"");
    json_write_raw(&w, result_type_text(&q->result));
    json_write_raw(&w, "\",\"result\":");
    if (q->result.type == VALUE_SCALAR || q->result.type == VALUE_STRING) {
        single_write(&w, q);
        reply_body(r, 200, "application/json", &w);
        query_run_free(&q->source);
        return;
    }
    json_write_raw(&w, "[");
    reply_stream(r, "application/json", &w, &q->source);
}

/* Parameters. */

static bool param_time(struct http_request *r, const char *name, bool is_range, int64_t fallback,
                       int64_t *out)
{
    struct str text = params_get(&r->params, name);
    struct errinfo ei = {0};

    if (text.size == 0 && !is_range) {
        *out = fallback;
        return true;
    }
    if (param_time_parse(text, out, &ei) == ERR_OK)
        return true;
    if (!is_range)
        errinfo_prefix(&ei, "invalid time value for '%s'", name);
    reply_bad_parameter(r, name, ei.message);
    return false;
}

static bool param_limit(struct http_request *r, size_t *out)
{
    struct errinfo ei = {0};

    if (param_limit_parse(params_get(&r->params, "limit"), out, &ei) == ERR_OK)
        return true;
    reply_bad_parameter(r, "limit", ei.message);
    return false;
}

/* `timeout` can only shorten the server's. */
static bool param_timeout(struct http_request *r)
{
    struct str text = params_get(&r->params, "timeout");
    struct errinfo ei = {0};
    int64_t timeout_ms = 0;
    uint64_t deadline_ns = 0;

    if (text.size == 0)
        return true;
    if (param_duration_parse(text, &timeout_ms, &ei) != ERR_OK) {
        reply_bad_parameter(r, "timeout", ei.message);
        return false;
    }
    if (timeout_ms > INT32_MAX)
        return true;
    deadline_ns = r->start_mono_ns + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000U : 0);
    if (deadline_ns < r->deadline_mono_ns)
        r->deadline_mono_ns = deadline_ns;
    return true;
}

static bool param_lookback(struct http_request *r, int64_t *out)
{
    struct str text = params_get(&r->params, "lookback_delta");
    struct errinfo ei = {0};

    *out = 0;
    if (text.size == 0)
        return true;
    if (param_duration_parse(text, out, &ei) != ERR_OK) {
        errinfo_prefix(&ei, "error parsing lookback delta duration");
        reply_error(r, 400, "bad_data", ei.message); /* Prometheus does not name the parameter */
        return false;
    }
    if (*out < 0)
        *out = 0; /* the setting's, as in Prometheus */
    return true;
}

static bool param_step(struct http_request *r, struct promql_query *query)
{
    struct errinfo ei = {0};
    uint64_t span_ms = 0;

    if (param_duration_parse(params_get(&r->params, "step"), &query->step_ms, &ei) != ERR_OK) {
        reply_bad_parameter(r, "step", ei.message);
        return false;
    }
    if (query->step_ms <= 0) {
        reply_bad_parameter(r, "step",
                            "zero or negative query resolution step widths are not accepted. Try a "
                            "positive integer");
        return false;
    }
    span_ms = (uint64_t)query->end_ms - (uint64_t)query->start_ms;
    if (span_ms / (uint64_t)query->step_ms > POINTS_MAX) {
        reply_error(r, 400, "bad_data",
                    "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing "
                    "the query resolution (?step=XX)");
        return false;
    }
    return true;
}

/* Fills the query's times; false when a reply was made. */
static bool params_range(struct http_request *r, struct promql_query *query)
{
    if (!param_time(r, "start", true, 0, &query->start_ms) ||
        !param_time(r, "end", true, 0, &query->end_ms))
        return false;
    if (query->end_ms < query->start_ms) {
        reply_bad_parameter(r, "end", "end timestamp must not be before start time");
        return false;
    }
    return param_step(r, query);
}

static bool params_instant(struct http_request *r, struct promql_query *query)
{
    int64_t now_ms = clock_now_ms(r->server->options.clock);

    if (!param_time(r, "time", false, now_ms, &query->start_ms))
        return false;
    query->end_ms = query->start_ms;
    query->step_ms = 1; /* one step, whatever its width */
    return true;
}

/* Which texts belong to which code is the evaluator's; a wrong query names its parameter. */
static void query_error_reply(struct http_request *r, enum err code, const char *message)
{
    if (code == ERR_INVALID || code == ERR_UNSUPPORTED)
        reply_bad_parameter(r, "query", message);
    else
        reply_err(r, code, message);
}

static void query_execute(struct http_request *r, struct query_run *q, struct promql_query *query)
{
    struct api_server *s = r->server;
    uint64_t start_ns = clock_mono_ns(), cpu_ns = 0;
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    query->engine = server_engine(s);
    query->settings = &s->options.promql;
    query->text = params_get(&r->params, "query");
    query->deadline_mono_ns = r->deadline_mono_ns;
    query->stop = &r->hangup.stop;
    query->memory = &q->memory;
    if (query->text.size > PROMQL_QUERY_BYTES_MAX) {
        reply_bad_parameter(r, "query", "query is longer than 1 MiB");
        query_run_free(&q->source);
        return;
    }
    e = promql_query_run(query, &q->arena, &q->result, &q->handle, &ei);
    cpu_ns = clock_mono_ns() - start_ns;
    q->eval_s = (double)cpu_ns / 1e9;
    q->queue_s = (double)r->queue_ns / 1e9;
    metric_histogram_observe(s->metrics.query_eval, q->eval_s);
    if (e != ERR_OK) {
        query_error_reply(r, e, ei.message);
        query_run_free(&q->source);
        return;
    }
    metric_counter_add(s->metrics.query_samples, q->result.samples_read);
    q->truncated = q->limit != 0 && q->result.series_count > q->limit &&
                   (q->result.type == VALUE_VECTOR || q->result.type == VALUE_MATRIX);
    result_reply(r, q);
}

static void query_answer(struct http_request *r, bool is_range)
{
    struct promql_query query = {.is_range = is_range};
    struct query_run *q = NULL;
    size_t limit = 0;

    if (!param_limit(r, &limit) ||
        !(is_range ? params_range(r, &query) : params_instant(r, &query)) || !param_timeout(r) ||
        !param_lookback(r, &query.lookback_delta_ms))
        return;
    q = calloc(1, sizeof *q);
    if (q == NULL) {
        reply_err(r, ERR_NOMEM, "out of memory for queries");
        return;
    }
    q->source = (struct stream_source){.fill = query_fill, .free = query_run_free};
    budget_init(&q->memory, "query memory", r->server->options.promql.max_memory_bytes,
                &r->server->query_memory);
    arena_init(&q->arena, &q->memory);
    q->limit = limit;
    q->want_stats = params_get(&r->params, "stats").size != 0;
    query_execute(r, q, &query);
}

void endpoint_query(struct http_request *r)
{
    query_answer(r, false);
}

void endpoint_query_range(struct http_request *r)
{
    query_answer(r, true);
}
