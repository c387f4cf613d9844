/*
 * The server's own metrics. Names are Prometheus's where the meaning is the same.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/config/machine_internal.h"
#include "api/http/http_internal.h"
#include "api/http/json_internal.h"
#include "base/process.h"
#include "compactor/compactor.h"
#include "engine/drop_rules.h"

/* Status codes this server sends; the last stands for any other. */
static const unsigned codes[HTTP_CODE_COUNT] = {200, 204, 400, 404, 405, 413, 415, 422,
                                                499, 500, 503, 406, 408, 403, 501, 0};

static size_t code_index(unsigned status)
{
    size_t i = 0;

    while (i < HTTP_CODE_COUNT - 1 && codes[i] != status)
        i++;
    return i;
}

void api_metrics_request_end(struct http_request *r)
{
    struct route_metrics *m = &r->server->metrics.routes[route_index(r->route)];

    atomic_fetch_add_explicit(&m->requests[code_index(r->reply.status)], 1, memory_order_relaxed);
    metric_histogram_observe(m->duration, (double)(clock_mono_ns() - r->start_mono_ns) / 1e9);
}

/* Values read when /metrics is. */

static double read_ready(void *ctx)
{
    return server_is_ready(ctx);
}

static double read_queries(void *ctx)
{
    struct api_server *s = ctx;

    return (double)(atomic_load_explicit(&s->query_running, memory_order_relaxed) +
                    atomic_load_explicit(&s->query_waiting, memory_order_relaxed));
}

static double read_query_log_enabled(void *ctx)
{
    return ((struct api_server *)ctx)->query_log.path != NULL;
}

static double read_query_log_failures(void *ctx)
{
    struct api_server *s = ctx;

    return (double)atomic_load_explicit(&s->query_log.failures, memory_order_relaxed);
}

static double read_query_waiting(void *ctx)
{
    struct api_server *s = ctx;

    return (double)atomic_load_explicit(&s->query_waiting, memory_order_relaxed);
}

static double read_query_max(void *ctx)
{
    return ((struct api_server *)ctx)->options.query_concurrency;
}

static double read_suspended(void *ctx)
{
    struct api_server *s = ctx;

    return (double)atomic_load_explicit(&s->suspended_count, memory_order_relaxed);
}

static double read_request_memory(void *ctx)
{
    return (double)budget_used(&((struct api_server *)ctx)->request_memory);
}

static double read_query_memory(void *ctx)
{
    return (double)budget_used(&((struct api_server *)ctx)->query_memory);
}

static double read_connections(void *ctx)
{
    struct api_server *s = ctx;
    struct MHD_Daemon *daemon = atomic_load_explicit(&s->daemon, memory_order_acquire);
    const union MHD_DaemonInfo *info =
        daemon == NULL ? NULL : MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

    return info == NULL ? 0 : info->num_connections;
}

static void register_callbacks(struct api_server *s)
{
    struct metrics_registry *m = s->options.metrics;
    static const char build_labels[] = "version=\"" RIMSTONE_VERSION "\",application=\"rimstone\"";

    metrics_callback(m, "gauge", "prometheus_ready", "",
                     "Whether the server is ready to serve queries.", read_ready, s);
    metrics_callback(m, "gauge", "prometheus_engine_queries", "",
                     "The current number of queries being executed or waiting.", read_queries, s);
    metrics_callback(m, "gauge", "prometheus_engine_queries_concurrent_max", "",
                     "The max number of concurrent queries.", read_query_max, s);
    metrics_callback(m, "gauge", "prometheus_engine_query_log_enabled", "",
                     "State of the query log.", read_query_log_enabled, s);
    metrics_callback(m, "counter", "prometheus_engine_query_log_failures_total", "",
                     "The number of query log failures.", read_query_log_failures, s);
    metrics_callback(m, "gauge", "rimstone_queries_waiting", "", "Queries that wait for a thread.",
                     read_query_waiting, s);
    metrics_callback(m, "gauge", "rimstone_http_suspended_requests", "",
                     "Requests that wait for the log or a query thread.", read_suspended, s);
    metrics_callback(m, "gauge", "rimstone_http_connections", "", "Open client connections.",
                     read_connections, s);
    metrics_callback(m, "gauge", "rimstone_request_memory_bytes", "",
                     "Memory of request bodies, idle buffers included.", read_request_memory, s);
    metrics_callback(m, "gauge", "rimstone_query_memory_bytes", "",
                     "Memory of queries and of answers being sent.", read_query_memory, s);
    metric_gauge_set(metrics_gauge(m, "prometheus_build_info", build_labels,
                                   "A constant 1, labelled by the version."),
                     1);
}

static void register_write(struct api_server *s)
{
    struct metrics_registry *m = s->options.metrics;
    struct api_metrics *a = &s->metrics;

    a->samples_received = metrics_counter(m, "rimstone_samples_received_total", "",
                                          "Samples in well-formed remote-write requests.");
    a->series_received = metrics_counter(m, "rimstone_series_received_total", "",
                                         "Series in well-formed remote-write requests.");
    a->histograms_received = metrics_counter(
        m, "rimstone_histograms_received_total", "",
        "Native histograms in well-formed remote-write requests, invalid ones too.");
    a->exemplars_skipped = metrics_counter(m, "rimstone_exemplars_skipped_total", "",
                                           "Exemplars received; they are not stored yet.");
    a->metadata_skipped = metrics_counter(m, "rimstone_metadata_skipped_total", "",
                                          "Metadata entries received; they are not stored yet.");
    a->write_bytes_compressed = metrics_counter(m, "rimstone_write_compressed_bytes_total", "",
                                                "Bytes of remote-write bodies as received.");
    a->write_bytes_decoded = metrics_counter(m, "rimstone_write_decoded_bytes_total", "",
                                             "Bytes of remote-write bodies after decompression.");
    a->bad_requests = metrics_counter(m, "rimstone_write_bad_requests_total", "",
                                      "Remote-write bodies that could not be decoded.");
}

void api_metrics_register(struct api_server *s)
{
    static const double request_bounds[] = {0.001, 0.005, 0.02, 0.1, 0.2, 0.4,
                                            1,     3,     8,    20,  60,  120};
    static const double query_bounds[] = {0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 120};
    struct metrics_registry *m = s->options.metrics;

    for (size_t i = 0; i <= route_count(); i++) {
        char labels[96];

        (void)snprintf(labels, sizeof labels, "handler=\"%s\"", route_label(i)); /* fits */
        s->metrics.routes[i].duration =
            metrics_histogram(m, "prometheus_http_request_duration_seconds", labels,
                              "Histogram of latencies for HTTP requests.", request_bounds,
                              sizeof request_bounds / sizeof request_bounds[0]);
    }
    s->metrics.query_queue = metrics_histogram(
        m, "prometheus_engine_query_duration_seconds", "slice=\"queue_time\"", "Query timings.",
        query_bounds, sizeof query_bounds / sizeof query_bounds[0]);
    s->metrics.query_eval = metrics_histogram(
        m, "prometheus_engine_query_duration_seconds", "slice=\"inner_eval\"", "Query timings.",
        query_bounds, sizeof query_bounds / sizeof query_bounds[0]);
    s->metrics.query_prepare = metrics_histogram(
        m, "prometheus_engine_query_duration_seconds", "slice=\"prepare_time\"", "Query timings.",
        query_bounds, sizeof query_bounds / sizeof query_bounds[0]);
    s->metrics.query_sort = metrics_histogram(
        m, "prometheus_engine_query_duration_seconds", "slice=\"result_sort\"", "Query timings.",
        query_bounds, sizeof query_bounds / sizeof query_bounds[0]);
    s->metrics.reload_successful =
        metrics_gauge(m, "prometheus_config_last_reload_successful", "",
                      "Whether the last configuration reload attempt was successful.");
    s->metrics.reload_success_s =
        metrics_gauge(m, "prometheus_config_last_reload_success_timestamp_seconds", "",
                      "Timestamp of the last successful configuration reload.");
    s->metrics.query_samples_read =
        metrics_counter(m, "prometheus_engine_query_samples_read_total", "",
                        "The total number of samples read by all queries.");
    s->metrics.query_samples =
        metrics_counter(m, "prometheus_engine_query_samples_total", "",
                        "The total number of samples loaded by all queries.");
    register_callbacks(s);
    register_write(s);
}

static void requests_write(struct api_server *s, struct byte_writer *out)
{
    json_write_raw(out, "# HELP prometheus_http_requests_total Counter of HTTP requests.\n"
                        "# TYPE prometheus_http_requests_total counter\n");
    for (size_t i = 0; i <= route_count(); i++) {
        for (size_t k = 0; k < HTTP_CODE_COUNT; k++) {
            uint64_t n =
                atomic_load_explicit(&s->metrics.routes[i].requests[k], memory_order_relaxed);

            if (n != 0 && codes[k] != 0)
                writer_printf(
                    out, "prometheus_http_requests_total{handler=\"%s\",code=\"%u\"} %" PRIu64 "\n",
                    route_label(i), codes[k], n);
        }
    }
}

static void value_write(struct byte_writer *out, const char *name, const char *kind,
                        const char *help, double value)
{
    writer_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s ", name, help, name, kind, name);
    json_write_number(out, value);
    json_write_raw(out, "\n");
}

static void process_write(struct api_server *s, struct byte_writer *out)
{
    struct process_usage p = process_usage_get(0);

    value_write(out, "process_cpu_seconds_total", "counter",
                "Total user and system CPU time spent in seconds.",
                (double)clock_process_cpu_ns() / 1e9);
    value_write(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
                (double)p.resident_bytes);
    value_write(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
                (double)p.virtual_bytes);
    value_write(out, "process_open_fds", "gauge", "Number of open file descriptors.",
                (double)p.open_fd_count);
    value_write(out, "process_max_fds", "gauge", "Maximum number of open file descriptors.",
                (double)machine_fd_limit());
    value_write(out, "process_start_time_seconds", "gauge",
                "Start time of the process since unix epoch in seconds.",
                (double)s->start_ms / 1000);
}

/* What the sidecar of Thanos asks for; everything else of the store's is in the registry. */
static void lowest_timestamp_write(const struct engine *engine, const struct compactor *compactor,
                                   struct byte_writer *out)
{
    struct engine_stats st;
    int64_t lowest_ms = compactor == NULL ? INT64_MAX : compactor_oldest_ms(compactor);

    engine_stats_get(engine, &st);
    if (st.min_time_ms <= st.max_time_ms && st.min_time_ms < lowest_ms)
        lowest_ms = st.min_time_ms;
    if (lowest_ms != INT64_MAX)
        value_write(out, "prometheus_tsdb_lowest_timestamp_seconds", "gauge",
                    "Lowest timestamp value stored in the database.",
                    floor((double)lowest_ms / 1000));
}

/* A label's value as the text format has it. */
static void label_write(struct byte_writer *out, struct str text)
{
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];

        if (c == '\n')
            json_write_raw(out, "\\n");
        else if (c == '"' || c == '\\')
            writer_printf(out, "\\%c", c);
        else
            writer_u8(out, (uint8_t)c);
    }
}

enum { RULES_SHOWN_ALL = 1000 };

static void rule_family_write(const struct drop_rule_state *states, size_t count, bool of_series,
                              struct byte_writer *out)
{
    const char *name =
        of_series ? "rimstone_drop_rule_series" : "rimstone_drop_rule_samples_dropped_total";

    writer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name,
                  of_series ? "Sender series that a drop rule is known to drop."
                            : "Samples that a drop rule has dropped.",
                  name, of_series ? "gauge" : "counter");
    for (size_t i = 0; i < count; i++) {
        /* Thousands of rules that have dropped nothing would be a burden to who scrapes. */
        if (count > RULES_SHOWN_ALL && states[i].samples_dropped == 0)
            continue;
        writer_printf(out, "%s{rule=\"", name);
        label_write(out, states[i].rule.name);
        writer_printf(out, "\",source=\"%s\"} %" PRIu64 "\n",
                      states[i].rule.origin == DROP_RULE_API ? "api" : "file",
                      of_series ? states[i].series_dropped : states[i].samples_dropped);
    }
}

/* One series a rule, for rules come and go. */
static void rules_write(struct engine *engine, struct budget *memory, struct byte_writer *out)
{
    struct drop_rule_state *states = NULL;
    struct errinfo ignored = {0};
    struct arena arena;
    size_t count = 0;

    arena_init(&arena, memory);
    /* Where memory is short, /metrics goes without them. */
    if (engine_rules_state(engine, &arena, &states, &count, &ignored) == ERR_OK && count > 0) {
        rule_family_write(states, count, true, out);
        rule_family_write(states, count, false, out);
    }
    arena_done(&arena);
}

void api_metrics_write(struct api_server *s, struct byte_writer *out)
{
    struct engine *engine = server_engine(s);

    requests_write(s, out);
    process_write(s, out);
    if (engine != NULL)
        rules_write(engine, &s->query_memory, out);
    if (engine != NULL && server_is_ready(s))
        lowest_timestamp_write(engine, server_compactor(s), out);
}

void endpoint_metrics(struct http_request *r)
{
    struct byte_writer w;
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    writer_init(&w);
    e = metrics_write_text(r->server->options.metrics, &w, &ei);
    if (e != ERR_OK) {
        writer_done(&w);
        reply_text(r, 500, ei.message);
        return;
    }
    api_metrics_write(r->server, &w);
    reply_body(r, 200, "text/plain; version=0.0.4; charset=utf-8", &w);
}
