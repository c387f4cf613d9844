/*
 * The HTTP server as one handle: remote write in, Prometheus's query API out.
 *
 * Life: api_server_new() listens at once and answers health checks; api_server_set_engine() gives
 * it the store, whose replay it then reports; api_server_set_ready() opens it for writes and
 * queries; api_server_stop() lets running requests end; api_server_free().
 */
#ifndef RIMSTONE_API_SERVER_H
#define RIMSTONE_API_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/metrics.h"
#include "promql/promql.h"

struct engine;
struct api_server;

/* One row of status/flags. */
struct api_flag {
    const char *name, *value;
};

/* Everything pointed to is borrowed and outlives the server. */
struct api_options {
    const char *listen_address;        /* host:port; port 0: any free one */
    uint32_t http_threads;             /* 0: one per core, at least 2 */
    uint32_t connection_limit;         /* 0: 4096, or fewer where descriptors or memory are short */
    uint32_t connection_timeout_s;     /* idle or stalled; 0: 300 */
    size_t max_request_bytes;          /* decoded remote-write body */
    struct promql_settings promql;     /* memory and samples of one query */
    uint64_t query_timeout_ms;         /* queue wait included */
    uint32_t query_concurrency;        /* threads of the query pool */
    uint64_t query_total_memory_bytes; /* of all queries together */
    struct budget *memory;             /* the process's budget, parent of ours */
    struct metrics_registry *metrics;  /* served at /metrics */
    const struct clock *clock;
    const struct api_flag *flags; /* for status/flags */
    size_t flag_count;
    const char *config_yaml;       /* for status/config; "" without a file */
    const char *storage_retention; /* for status/runtimeinfo, such as "15d" */
};

MUST_USE enum err api_server_new(const struct api_options *options, struct api_server **out,
                                 struct errinfo *ei);
/* The port it listens on. */
uint16_t api_server_port(const struct api_server *s);
/* Once, before api_server_set_ready(). */
void api_server_set_engine(struct api_server *s, struct engine *engine);
void api_server_set_ready(struct api_server *s);
enum api_stop {
    API_STOPPED,
    /* Some requests did not end in time. Their connections and the server's memory are left as they
     * are, and the process should end without api_server_free(). */
    API_STOP_QUERIES_RUN, /* only queries: everything acknowledged is durable */
    API_STOP_WRITES_WAIT, /* the log has not answered; these writes were not acknowledged */
};
/*
 * Stops accepting, waits for running requests, after half of deadline_ms tells queries to stop, and
 * closes all connections. May be called again after anything but API_STOPPED.
 */
MUST_USE enum api_stop api_server_stop(struct api_server *s, uint32_t deadline_ms);
/* After API_STOPPED, or before anything ran. Accepts NULL. */
void api_server_free(struct api_server *s);

/* The version as status/buildinfo gives it and --version prints it. */
extern const char api_version[];
/* Prometheus's API level, which clients compare with theirs. */
extern const char api_prometheus_version[];

#endif
