/*
 * /api/v1/query and /api/v1/query_range: parameters as Prometheus reads them, one call of the
 * evaluator, and an answer that is made from the result's columns while it is sent.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http/ast_json_internal.h"
#include "api/http/grid_text_internal.h"
#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "base/assert.h"
#include "compactor/compactor.h"
#include "promql/histogram_text.h"

enum { POINTS_MAX = 11000, ANNOTATIONS_MAX = 10, STORE_PATIENCE_MS = 2000, STORE_LOOK_MS = 50 };

/* A query and its result, from the parameters to the last byte sent. */
struct query_run {
    struct stream_source source; /* first, so that the two convert */
    struct budget memory;        /* of this query */
    struct promql_progress progress;
    struct arena arena; /* the result's */
    struct promql_handle *handle;
    struct promql_result result;
    size_t limit;
    bool truncated;            /* by `limit` */
    bool want_stats;           /* `stats` was given */
    const char *stats_warning; /* with a value that Prometheus will refuse; in the arena, or NULL */
    double queue_s, eval_s;
    size_t row, point;             /* where the stream stands */
    bool began;                    /* the row's labels are written */
    bool histograms_due;           /* the row's floats are written */
    bool any_point;                /* of those that are being written */
    const struct grid_time *times; /* of a matrix's steps; NULL: not yet, or no memory */
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

static void string_write(struct byte_writer *w, const char *field, size_t *written, struct str text)
{
    if ((*written)++ == 0)
        writer_printf(w, ",\"%s\":[", field);
    else
        writer_u8(w, ',');
    json_write_string(w, text);
}

static void strings_write(struct byte_writer *w, const struct query_run *q,
                          enum annotation_kind kind, const char *field, const char *noun)
{
    bool warns = kind == ANNOTATION_WARNING;
    size_t written = 0, skipped = 0;

    for (size_t i = 0; i < q->result.annotation_count; i++) {
        if (q->result.annotations[i].kind != kind)
            continue;
        if (written == ANNOTATIONS_MAX) {
            skipped++;
            continue;
        }
        string_write(w, field, &written, str_from(q->result.annotations[i].text));
    }
    if (warns && q->truncated)
        string_write(w, field, &written, STR_LITERAL("results truncated due to limit"));
    if (warns && q->stats_warning != NULL)
        string_write(w, field, &written, str_from(q->stats_warning));
    if (skipped > 0)
        writer_printf(w, ",\"%zu more %s annotations omitted\"", skipped, noun);
    if (written > 0)
        writer_u8(w, ']');
}

static void per_step_write(struct byte_writer *w, const struct promql_result *r)
{
    json_write_raw(w, "\"totalQueryableSamplesPerStep\":[");
    for (size_t i = 0; i < r->step_count; i++) {
        json_write_raw(w, i == 0 ? "[" : ",[");
        json_write_time(w, r->start_ms + (int64_t)i * r->step_ms);
        writer_printf(w, ",%" PRIu64 "]", r->queryable_per_step[i]);
    }
    json_write_raw(w, "],");
}

/* The object that Prometheus calls stats. */
static void stats_object_write(struct byte_writer *w, const struct query_run *q)
{
    const struct promql_result *r = &q->result;
    double prepare_s = (double)r->prepare_ns / 1e9, sort_s = (double)r->sort_ns / 1e9;
    const struct {
        const char *name;
        double seconds;
    } timings[] = {
        {"evalTotalTime", q->eval_s},        {"resultSortTime", sort_s},
        {"queryPreparationTime", prepare_s}, {"innerEvalTime", q->eval_s - prepare_s - sort_s},
        {"execQueueTime", q->queue_s},       {"execTotalTime", q->eval_s + q->queue_s},
    };

    json_write_raw(w, "{\"timings\":{");
    for (size_t i = 0; i < sizeof timings / sizeof timings[0]; i++) {
        writer_printf(w, "%s\"%s\":", i == 0 ? "" : ",", timings[i].name);
        json_write_number(w, timings[i].seconds);
    }
    json_write_raw(w, "},\"samples\":{");
    if (r->queryable_per_step != NULL)
        per_step_write(w, r);
    writer_printf(w,
                  "\"totalQueryableSamples\":%" PRIu64 ",\"samplesRead\":%" PRIu64
                  ",\"peakSamples\":%" PRIu64 "}}",
                  r->samples_queryable, r->samples_read, r->samples_peak);
}

/* A line of the query log; `error` is NULL for a query that succeeded. */
static void query_log_line(struct http_request *r, const struct query_run *q,
                           const struct promql_query *query, const char *error)
{
    struct api_server *s = r->server;
    struct byte_writer w;

    writer_init(&w);
    json_write_raw(&w, "{\"time\":");
    query_log_write_time(&w, clock_now_ms(s->options.clock));
    json_write_raw(&w, ",\"level\":\"INFO\",\"source\":\"endpoint_query.c\",\"msg\":"
                       "\"promql query logged\",\"params\":{\"end\":");
    query_log_write_time(&w, query->end_ms);
    json_write_raw(&w, ",\"query\":");
    json_write_string(&w, query->text);
    json_write_raw(&w, ",\"start\":");
    query_log_write_time(&w, query->start_ms);
    writer_printf(&w, ",\"step\":%" PRId64 "}", query->is_range ? query->step_ms / 1000 : 0);
    if (error != NULL) {
        json_write_raw(&w, ",\"error\":");
        json_write_string(&w, str_from(error));
    }
    json_write_raw(&w, ",\"stats\":");
    stats_object_write(&w, q);
    writer_printf(
        &w,
        ",\"spanID\":\"0000000000000000\",\"traceID\":\"00000000000000000000000000000000\","
        "\"httpRequest\":{\"clientIP\":\"%s\",\"method\":\"%s\",\"path\":\"%s\"}}",
        r->entry.client, r->method == METHOD_POST ? "POST" : "GET", r->route->path);
    query_log_write(&s->query_log, &w);
    writer_done(&w);
}

static size_t row_count(const struct query_run *q)
{
    size_t count = q->result.series_count;

    return q->limit != 0 && count > q->limit ? q->limit : count;
}

/* A value of a row. */
struct point {
    int64_t t_ms;
    double value;
    const struct histogram *histogram; /* NULL: a float */
};

static size_t point_limit(const struct query_run *q)
{
    return q->result.raw != NULL ? q->result.raw[q->row].count : q->result.step_count;
}

/* Point `i` of the row, of at most point_limit(); false where it is absent. */
static inline bool point_get(const struct query_run *q, size_t i, struct point *out)
{
    const struct promql_result *result = &q->result;
    const struct result_series *series = &result->series[q->row];

    if (result->raw != NULL) {
        const struct column *c = &result->raw[q->row];

        *out =
            (struct point){c->t_ms[i], c->value[i], c->histogram != NULL ? c->histogram[i] : NULL};
        return true;
    }
    if (!result_point_present(series, i))
        return false;
    *out = (struct point){result->start_ms + (int64_t)i * result->step_ms, series->value[i],
                          result_point_histogram(series, i)};
    return true;
}

static void point_write(struct byte_writer *w, const struct point *p)
{
    if (p->histogram == NULL) {
        json_write_point(w, p->t_ms, p->value);
        return;
    }
    writer_u8(w, '[');
    json_write_sample_time(w, p->t_ms);
    writer_u8(w, ',');
    histogram_write_json(w, p->histogram);
    writer_u8(w, ']');
}

/* Whether the row at hand can be written by the texts of its grid. */
static bool row_has_times(struct query_run *q)
{
    const struct promql_result *result = &q->result;

    if (result->raw != NULL || result->series[q->row].histogram != NULL || q->histograms_due)
        return false;
    if (q->times == NULL && result->series_count > 1)
        q->times = grid_times_new(&q->arena, result->start_ms, result->step_ms, result->step_count);
    return q->times != NULL;
}

/* row_points_write() for floats on a grid. */
static bool row_floats_write(struct query_run *q, struct byte_writer *w)
{
    static const char field[] = ",\"values\":[";
    bool any = q->any_point;
    size_t at = w->size;

    json_write_raw(w, any ? "" : field);
    q->point = grid_points_write(w, q->times, &q->result.series[q->row], q->point,
                                 q->result.step_count, STREAM_PIECE_BYTES, &q->any_point);
    if (!any && !q->any_point)
        w->size = at; /* no point, no field */
    if (q->point < q->result.step_count)
        return false;
    if (q->any_point)
        writer_u8(w, ']');
    q->any_point = false;
    q->point = 0;
    return true;
}

/* Writes the row's floats or its histograms, whatever is due, from q->point on until the piece is
 * full; true when the row has no more of them. */
static bool row_points_write(struct query_run *q, struct byte_writer *w)
{
    size_t limit = point_limit(q);

    if (row_has_times(q))
        return row_floats_write(q, w);
    for (; q->point < limit; q->point++) {
        struct point p;

        if (!point_get(q, q->point, &p) || (p.histogram != NULL) != q->histograms_due)
            continue;
        if (w->size >= STREAM_PIECE_BYTES)
            return false;
        if (q->any_point)
            writer_u8(w, ',');
        else
            json_write_raw(w, q->histograms_due ? ",\"histograms\":[" : ",\"values\":[");
        q->any_point = true;
        point_write(w, &p);
    }
    if (q->any_point)
        writer_u8(w, ']');
    q->any_point = false;
    q->point = 0;
    return true;
}

static bool row_has_histograms(const struct query_run *q)
{
    return q->result.raw != NULL ? q->result.raw[q->row].histogram != NULL
                                 : q->result.series[q->row].histogram != NULL;
}

/* Writes (the rest of) a matrix row, floats before histograms; true when it is complete. */
static bool matrix_row_write(struct query_run *q, struct byte_writer *w)
{
    if (!q->began) {
        if (q->row > 0)
            writer_u8(w, ',');
        json_write_raw(w, "{\"metric\":");
        json_write_labels(w, &q->result.series[q->row].labels);
        q->began = true;
    }
    if (!q->histograms_due) {
        if (!row_points_write(q, w))
            return false;
        q->histograms_due = row_has_histograms(q);
    }
    if (q->histograms_due && !row_points_write(q, w))
        return false;
    writer_u8(w, '}');
    q->began = false;
    q->histograms_due = false;
    return true;
}

static void vector_row_write(struct query_run *q, struct byte_writer *w)
{
    struct point p;

    ASSERT(point_get(q, 0, &p)); /* a vector has only what is there */
    if (q->row > 0)
        writer_u8(w, ',');
    json_write_raw(w, "{\"metric\":");
    json_write_labels(w, &q->result.series[q->row].labels);
    json_write_raw(w, p.histogram != NULL ? ",\"histogram\":" : ",\"value\":");
    point_write(w, &p);
    writer_u8(w, '}');
}

/* What stands behind the result. */
static void end_write(struct byte_writer *w, const struct query_run *q)
{
    if (q->want_stats) {
        json_write_raw(w, ",\"stats\":");
        stats_object_write(w, q);
    }
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
    /* An instant query of a range vector is a matrix too. */
    json_write_raw(&w, value_type_text(q->result.type));
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
    if (time_parse(text, out, &ei) == ERR_OK)
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

static void note_usage(struct http_request *r, const struct promql_query *query)
{
    int64_t lookback_ms = query->lookback_delta_ms != 0 ? query->lookback_delta_ms
                                                        : query->settings->lookback_delta_ms;

    request_note_usage(r, query->is_range ? USAGE_QUERY_RANGE : USAGE_QUERY, false, query->text,
                       query->start_ms - lookback_ms, query->end_ms);
}

static void param_stats(struct http_request *r, struct query_run *q, struct promql_query *query)
{
    struct str text = params_get(&r->params, "stats");
    bool all = str_equal(text, STR_LITERAL("all"));

    q->want_stats = text.size != 0;
    query->wants_steps = all && r->server->options.per_step_stats;
    if (q->want_stats && !all && !str_equal(text, STR_LITERAL("true")))
        q->stats_warning = arena_printf(
            &q->arena,
            "value \"%.*s\" for parameter \"stats\" is deprecated and will be rejected in "
            "the next major release, use \"true\" or \"all\"",
            STR_ARGS(text));
}

/* Whether an error is worth another try a moment later: not the query but the store is short of
 * memory, and somebody makes room and is not too late. */
static bool store_is_short(const struct http_request *r, const struct query_run *q,
                           const struct errinfo *ei, uint64_t until_ns)
{
    const struct budget *store = r->server->options.memory;

    return store != NULL && budget_refusing(&q->memory, ei) == store &&
           server_compactor(r->server) != NULL && clock_mono_ns() < until_ns &&
           !atomic_load_explicit(&r->hangup.stop, memory_order_relaxed);
}

/* Runs the query. When the store is short of memory it gives back all it holds, on which a seal may
 * wait, and tries again after each seal for a moment. */
static enum err query_try(struct http_request *r, struct query_run *q, struct promql_query *query,
                          struct errinfo *ei)
{
    uint64_t until_ns = clock_mono_ns() + STORE_PATIENCE_MS * (uint64_t)1000000;
    enum err e;

    if (until_ns > r->deadline_mono_ns)
        until_ns = r->deadline_mono_ns;
    for (;;) {
        arena_init(&q->arena, &q->memory);
        param_stats(r, q, query);
        *ei = (struct errinfo){0};
        e = promql_query_run(query, &q->arena, &q->result, &q->handle, ei);
        if (e == ERR_OK || !store_is_short(r, q, ei, until_ns))
            return e;
        arena_done(&q->arena);
        compactor_wait_for_seal(server_compactor(r->server),
                                clock_mono_ns() + STORE_LOOK_MS * (uint64_t)1000000);
    }
}

static void query_execute(struct http_request *r, struct query_run *q, struct promql_query *query)
{
    struct api_server *s = r->server;
    uint64_t start_ns = clock_mono_ns(), cpu_ns = 0;
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    query->engine = server_engine(s);
    query->settings = &s->options.promql;
    query->deadline_mono_ns = r->deadline_mono_ns;
    query->stop = &r->hangup.stop;
    query->memory = &q->memory;
    query->progress = &q->progress;
    query_list_show(&s->queries, &r->entry, &q->memory, &q->progress);
    e = query_try(r, q, query, &ei);
    query_list_show(&s->queries, &r->entry, NULL, NULL);
    cpu_ns = clock_mono_ns() - start_ns;
    q->eval_s = (double)cpu_ns / 1e9;
    q->queue_s = (double)r->queue_ns / 1e9;
    metric_histogram_observe(s->metrics.query_eval, q->eval_s);
    /* What cannot be parsed is no query yet, as in Prometheus. */
    if (s->query_log.path != NULL && e != ERR_INVALID && e != ERR_UNSUPPORTED)
        query_log_line(r, q, query, e == ERR_OK ? NULL : ei.message);
    if (e != ERR_INVALID && e != ERR_UNSUPPORTED && e != ERR_CANCELED)
        note_usage(r, query);
    if (e != ERR_OK) {
        reply_parameter_err(r, "query", e, ei.message);
        query_run_free(&q->source);
        return;
    }
    metric_counter_add(s->metrics.query_samples, q->result.samples_queryable);
    metric_counter_add(s->metrics.query_samples_read, q->result.samples_read);
    metric_histogram_observe(s->metrics.query_prepare, (double)q->result.prepare_ns / 1e9);
    metric_histogram_observe(s->metrics.query_sort, (double)q->result.sort_ns / 1e9);
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
    query.text = params_get(&r->params, "query");
    if (query.text.size > PROMQL_QUERY_BYTES_MAX) {
        reply_bad_parameter(r, "query", "query is longer than 1 MiB");
        return;
    }
    q = calloc(1, sizeof *q);
    if (q == NULL) {
        reply_err(r, ERR_NOMEM, "out of memory for queries");
        return;
    }
    q->source = (struct stream_source){.fill = query_fill, .free = query_run_free};
    query_memory_begin(r->server, &q->memory);
    q->limit = limit;
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
