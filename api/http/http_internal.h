/*
 * Between libmicrohttpd and the endpoints: a request with its parameters and body, where it runs,
 * and its reply.
 *
 * A request lives from the moment its URI has been read to the end of its answer. It is touched by
 * one thread at a time: the HTTP thread of its connection, and while the connection is suspended a
 * query thread, or the log's committer, which only leaves a result code.
 */
#ifndef RIMSTONE_API_HTTP_HTTP_INTERNAL_H
#define RIMSTONE_API_HTTP_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/http/connections_internal.h"
#include "api/http/hangup_internal.h"
#include "api/http/params_internal.h"
#include "api/http/query_list_internal.h"
#include "api/http/query_log_internal.h"
#include "api/remote_write/body_decode_internal.h"
#include "api/remote_write/buffer_pool_internal.h"
#include "api/remote_write/remote_write_internal.h"
#include "api/server.h"
#include "api/usage/usage_internal.h"
#include "base/arena.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/write.h"

/* A part of an answer that is made as it is sent. Runs on query and HTTP threads, one at a time,
 * and may outlive the request. */
struct stream_source {
    /* Appends the next piece to `out`, roughly STREAM_PIECE_BYTES, and sets *done behind the last.
     * An error ends the answer: with an error reply while nothing has been sent, else by closing
     * the connection without the last chunk. */
    enum err (*fill)(struct stream_source *s, struct byte_writer *out, bool *done,
                     struct errinfo *ei);
    void (*free)(struct stream_source *s);
};

enum {
    STREAM_PIECE_BYTES = 64 << 10,
    REPLY_HEADER_COUNT_MAX = 4,
    FORM_BYTES_MAX = 8 << 20,        /* a POSTed form, percent-encoded */
    BODY_DRAIN_BYTES_MAX = 64 << 20, /* of a refused body; beyond it the connection is closed */
    BODY_SECONDS_MAX = 120,          /* from a request's first byte to its last */
};

enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_DEFLATE };

struct reply {
    unsigned status; /* 0: not made yet */
    const char *content_type;
    struct byte_writer body;      /* owned */
    struct stream_source *source; /* owned, continues the body; NULL: the body is all */
    bool compressed;              /* the body is in r->compression already */
    struct {
        const char *name, *value; /* literals */
    } headers[REPLY_HEADER_COUNT_MAX];
    size_t header_count;
};

enum http_method {
    METHOD_GET = 1,
    METHOD_HEAD = 2,
    METHOD_POST = 4,
    METHOD_PUT = 8,
    METHOD_OPTIONS = 16,
    METHOD_DELETE = 32,
    METHOD_OTHER = 64,
};

enum run_where {
    RUN_HERE,  /* on the HTTP thread: short and never blocking */
    RUN_POOL,  /* on a query thread, the connection suspended */
    RUN_ADMIN, /* the same, for work that the compactor waits for: it does not give way to that */
    RUN_WRITE,
};

struct http_request;

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the columns of the router's table */
struct route {
    const char *path; /* "/api/v1/label/" matches with a name and "/values" behind it */
    unsigned methods; /* set of enum http_method */
    enum run_where where;
    bool gated; /* 503 before the store is ready */
    void (*run)(struct http_request *r);
    bool takes_body; /* of any type, in r->body; else a POST's body may hold parameters */
};

enum { ROUTE_COUNT_MAX = 48 };

enum request_phase {
    PHASE_HEADERS,
    PHASE_BODY,
    PHASE_SUSPENDED, /* someone else has it; then the reply is made */
    PHASE_ANSWERED,
};

struct http_request {
    struct api_server *server;
    struct MHD_Connection *connection; /* borrowed; NULL before the headers are in */
    struct client *client;             /* borrowed; NULL without memory */
    const struct route *route;         /* NULL: no such path */
    enum http_method method;
    enum request_phase phase;
    enum compression compression;
    struct str raw_path, raw_query; /* in the arena, still percent-encoded */
    struct str path;
    struct params params;
    struct arena arena;
    struct buffer *body; /* owned; given back as soon as it has been read */
    uint64_t drained_bytes;
    bool draining; /* the reply is made already, the rest of the body is read and dropped */
    enum body_encoding encoding; /* of a remote-write body */
    uint64_t start_mono_ns;
    uint64_t deadline_mono_ns; /* queries */
    uint64_t queue_ns;         /* time spent waiting for a query thread */
    struct hangup_watch hangup;
    struct query_entry entry; /* listed while it is on a query thread or waits for one */
    struct wal_waiter waiter;
    uint64_t *sequences; /* owned; for the waiter */
    enum err durable;    /* what the log said */
    struct reply reply;
};

/* Memory of one remote-write request while it is decoded and stored. */
struct write_workspace {
    struct write_workspace *next;
    struct body_decoder body;
    struct remote_write_decoder decoder;
    struct write_result result;
};

/* Accepts NULL. */
void write_workspace_free(struct write_workspace *ws);

enum { HTTP_CODE_COUNT = 16 };

struct route_metrics {
    _Atomic uint64_t requests[HTTP_CODE_COUNT]; /* relaxed: statistics, by code_index() */
    struct metric_histogram *duration;          /* borrowed from the registry */
};

struct api_metrics {
    struct route_metrics routes[ROUTE_COUNT_MAX + 1]; /* the last: no such path */
    struct metric_counter *samples_received;
    struct metric_counter *series_received, *histograms_received, *exemplars_skipped,
        *metadata_skipped;
    struct metric_counter *write_bytes_compressed, *write_bytes_decoded;
    struct metric_counter *bad_requests;
    struct metric_histogram *query_queue, *query_eval, *query_prepare, *query_sort;
    struct metric_counter *query_samples, *query_samples_read;
    struct metric_gauge *reload_successful, *reload_success_s;
};

struct api_server {
    struct api_options options; /* constant; pointers borrowed */
    /* Owned. Release when it has started, acquire at use: its threads serve before that. */
    _Atomic(struct MHD_Daemon *) daemon;
    int listen_fd; /* owned until the daemon is stopped */
    uint16_t port;
    _Atomic(struct engine *) engine;       /* release at set_engine, acquire at use */
    _Atomic(struct compactor *) compactor; /* the same */
    _Atomic bool ready;                    /* the same */
    _Atomic bool stopping;                 /* relaxed: only tells what to answer */
    /* Requests begun and not ended. seq_cst: api_server_stop() must not miss one. */
    _Atomic uint64_t active_count;
    /* Suspended requests, and those of them that wait for the log. seq_cst: as above. */
    _Atomic uint64_t suspended_count, write_waiting;
    _Atomic uint64_t admin_running; /* relaxed: for api_server_load() */
    struct budget request_memory;   /* bodies; child of options.memory */
    /* URIs and parameters. A root: when memory is used up (a replay may end above the limit), the
     * server must still tell that it is alive and how it is. */
    struct budget parameter_memory;
    struct budget query_memory; /* all queries; child of options.memory */
    struct buffer_pool buffers;
    struct mutex lock; /* guards workspaces and reload; idle's */
    struct {
        char *text; /* owned; NULL: options.config_yaml */
        int64_t last_ms;
        bool failed;
    } reload;
    struct cond idle;                   /* a request has ended */
    struct write_workspace *workspaces; /* idle ones; owned */
    struct thread_pool *query_pool;
    _Atomic uint64_t query_running, query_waiting; /* relaxed, for /metrics */
    struct hangup_watcher *hangups;
    struct query_list queries;
    struct query_log query_log;
    struct usage *usage;          /* owned */
    uint64_t usage_saved_mono_ns; /* of the thread that calls api_server_keep() */
    struct connections *connections;
    struct MHD_Response *no_content; /* 204, shared by all answers */
    struct api_metrics metrics;
    uint64_t start_mono_ns;
    int64_t start_ms;
};

/* The budget of one query, named by its flag as error texts need it. */
void query_memory_begin(struct api_server *s, struct budget *memory);
/* To be called when `memory` of a query has been released: a large one's pages go back to the
 * kernel. The allocator would keep them, up to --query.max-memory for each query thread, and the
 * process would outgrow --storage.memory-limit although the budgets are kept. */
void query_memory_end(const struct budget *memory);

/* Replies. The first one counts; a later one is dropped. */
void reply_text(struct http_request *r, unsigned status, const char *text);
void reply_no_content(struct http_request *r);
/* Takes what `body` holds. */
void reply_body(struct http_request *r, unsigned status, const char *content_type,
                struct byte_writer *body);
/* A success envelope's beginning is in `body` (taken); `source` (taken) makes the rest. */
void reply_stream(struct http_request *r, const char *content_type, struct byte_writer *body,
                  struct stream_source *source);
/* {"status":"error","errorType":...,"error":...} */
void reply_error(struct http_request *r, unsigned status, const char *error_type,
                 const char *message);
/* The envelope for an error code: 400 bad_data, 422 execution, 503 timeout, 499 canceled, ... */
void reply_err(struct http_request *r, enum err code, const char *message);
/* `invalid parameter "x": cause` */
void reply_bad_parameter(struct http_request *r, const char *name, const char *cause);
/* What Prometheus does not have needs --web.enable-admin-api and has it not: its text, and how to
 * enable it. */
void reply_admin_disabled(struct http_request *r);
/* A parameter that could not be read: what is wrong with it names it and is 400; a limit that was
 * met while it was read has the code of its own. */
void reply_parameter_err(struct http_request *r, const char *name, enum err code,
                         const char *message);
void reply_header(struct http_request *r, const char *name, const char *value);
/* Runs a streamed reply's first pieces, so that short answers have a length and early errors a
 * status, and compresses. Query threads call it before they give the connection back. */
void reply_prepare(struct http_request *r);
/* Hands the reply to libmicrohttpd. HTTP threads only. */
enum MHD_Result reply_queue(struct http_request *r);
/* The compression to use for an Accept-Encoding header (may be NULL). */
enum compression compression_choose(const char *accept_encoding);

/* Routes (router.c). */
const struct route *route_find(struct str path);
size_t route_index(const struct route *route); /* route_count() for NULL */
size_t route_count(void);
const char *route_label(size_t index);
/* The value of an encoding-independent parameter in the path of a label values request. */
struct str route_path_name(struct str path);

/* Endpoints. */
void endpoint_write(struct http_request *r);
/* Called when the headers are in: refuses by headers alone, or picks the encoding. */
void endpoint_write_begin(struct http_request *r);
/* Called when the log has answered. */
void endpoint_write_end(struct http_request *r);
void endpoint_query(struct http_request *r);
void endpoint_query_range(struct http_request *r);
void endpoint_cardinality(struct http_request *r);
void endpoint_usage(struct http_request *r);
void endpoint_limits(struct http_request *r);
void endpoint_rules_preview(struct http_request *r);
void endpoint_drop_rules(struct http_request *r);
void endpoint_reload(struct http_request *r);
void endpoint_quit(struct http_request *r);
void endpoint_queries(struct http_request *r);
void endpoint_query_exemplars(struct http_request *r);
void endpoint_format_query(struct http_request *r);
void endpoint_parse_query(struct http_request *r);
void endpoint_series(struct http_request *r);
void endpoint_labels(struct http_request *r);
void endpoint_label_values(struct http_request *r);
void endpoint_metadata(struct http_request *r);
void endpoint_delete_series(struct http_request *r);
void endpoint_clean_tombstones(struct http_request *r);
void endpoint_snapshot(struct http_request *r);
void endpoint_buildinfo(struct http_request *r);
void endpoint_runtimeinfo(struct http_request *r);
void endpoint_flags(struct http_request *r);
void endpoint_config(struct http_request *r);
void endpoint_tsdb(struct http_request *r);
void endpoint_walreplay(struct http_request *r);
void endpoint_rules(struct http_request *r);
void endpoint_alerts(struct http_request *r);
void endpoint_healthy(struct http_request *r);
void endpoint_ready(struct http_request *r);
void endpoint_metrics(struct http_request *r);
void endpoint_index(struct http_request *r);

/* Reads a time that bounds a call, `fallback` when it is not given. False when a reply was made. */
bool request_bound(struct http_request *r, const char *name, int64_t fallback, int64_t *out);

/* Counts what a request that was answered has read (endpoint_usage.c). */
void request_note_usage(struct http_request *r, enum usage_kind kind, bool is_selector,
                        struct str text, int64_t min_time_ms, int64_t max_time_ms);

/* Metrics (api_metrics.c). */
void api_metrics_register(struct api_server *s);
void api_metrics_request_end(struct http_request *r);
/* Appends the counters that are kept outside the registry. */
void api_metrics_write(struct api_server *s, struct byte_writer *out);

/* Takes the connection out of libmicrohttpd's hands; MHD_resume_connection() gives it back. */
void request_suspend(struct http_request *r);
/* Suspends the connection and gives the request to the query pool; replies when it is full. */
void query_submit(struct http_request *r);

static inline struct engine *server_engine(const struct api_server *s)
{
    return atomic_load_explicit(&s->engine, memory_order_acquire);
}
static inline struct compactor *server_compactor(const struct api_server *s)
{
    return atomic_load_explicit(&s->compactor, memory_order_acquire);
}
static inline bool server_is_ready(const struct api_server *s)
{
    return atomic_load_explicit(&s->ready, memory_order_acquire);
}

#endif
