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
struct fs;
struct compactor;
struct rule_book;
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
    uint32_t descriptors_reserved;     /* files of the store, which connections must leave it */
    uint32_t connection_timeout_s;     /* idle or stalled; 0: 300 */
    size_t max_request_bytes;          /* decoded remote-write body */
    struct promql_settings promql;     /* memory and samples of one query; without helpers */
    bool per_step_stats;               /* stats=all counts samples by step */
    uint64_t query_timeout_ms;         /* queue wait included */
    uint32_t query_concurrency;        /* threads of the query pool */
    uint32_t query_threads;            /* of one query, helpers included; 0: one per core */
    uint64_t query_total_memory_bytes; /* of all queries together */
    struct budget *memory;             /* the process's budget, parent of ours */
    struct metrics_registry *metrics;  /* served at /metrics */
    const struct clock *clock;
    const struct api_flag *flags; /* for status/flags */
    size_t flag_count;
    struct fs *fs;                 /* where usage of metrics is kept; NULL: nowhere */
    const char *query_log_path;    /* NULL: none */
    const char *config_yaml;       /* for status/config; "" without a file */
    const char *storage_retention; /* for status/runtimeinfo, such as "15d" */
    bool admin_api;                /* --web.enable-admin-api; needs a compactor */
    struct rule_book *rules;       /* NULL: no drop rules API */
    bool lifecycle;                /* --web.enable-lifecycle; needs the two below */
    /* Reads the configuration anew; on failure nothing has changed. Any thread. */
    enum err (*reload)(void *process, struct errinfo *ei);
    void (*quit)(void *process); /* has the process end soon; returns at once */
    void *process;
};

MUST_USE enum err api_server_new(const struct api_options *options, struct api_server **out,
                                 struct errinfo *ei);
/* Opens the query log anew, after somebody has moved it away; where that fails, queries are logged
 * to the old file. */
MUST_USE enum err api_server_reopen(struct api_server *s, struct errinfo *ei);
/* Saves what queries have read, every five minutes and when `now`. To be called now and then, by
 * one thread at a time, and last behind api_server_stop(). */
MUST_USE enum err api_server_keep(struct api_server *s, bool now, struct errinfo *ei);
/* Tells how a reload went, and the new text for status/config (copied). Any thread. */
void api_server_note_reload(struct api_server *s, bool ok, const char *config_yaml);
/* The port it listens on. */
uint16_t api_server_port(const struct api_server *s);
/* Once, before api_server_set_ready(). */
void api_server_set_engine(struct api_server *s, struct engine *engine);
void api_server_set_ready(struct api_server *s);
/* Once, before api_server_set_ready(); what the admin API calls. It must outlive the requests: stop
 * it behind api_server_stop(), free it behind that. */
void api_server_set_compactor(struct api_server *s, struct compactor *compactor);
/* Requests that run or wait for a thread: those that wait for the log, and those of the admin API,
 * left out. Any thread. What the compactor gives way to. */
uint64_t api_server_load(const struct api_server *s);
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
