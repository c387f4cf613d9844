/*
 * Queries and metadata calls run on threads of their own, so that slow ones never hold up ingest,
 * which uses the HTTP threads. While a request waits or runs, its connection is suspended and its
 * socket watched (hangup_internal.h).
 */
#include "api/http_internal.h"
#include "base/assert.h"
#include "base/process.h"

enum { QUERY_LARGE_BYTES = 64 << 20 }; /* below, what the allocator keeps serves the next query */

void query_memory_end(const struct budget *memory)
{
    if (atomic_load_explicit(&memory->peak_bytes, memory_order_relaxed) >= QUERY_LARGE_BYTES)
        process_memory_trim();
}

static bool is_stopped(struct http_request *r)
{
    return atomic_load_explicit(&r->hangup.stop, memory_order_relaxed);
}

static void query_run(void *arg)
{
    struct http_request *r = arg;
    struct api_server *s = r->server;
    uint64_t now_ns = clock_mono_ns();
    struct MHD_Connection *connection = r->connection;

    atomic_fetch_sub_explicit(&s->query_waiting, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->query_running, 1, memory_order_relaxed);
    r->queue_ns = now_ns - r->queue_ns;
    metric_histogram_observe(s->metrics.query_queue, (double)r->queue_ns / 1e9);
    if (is_stopped(r))
        reply_err(r, ERR_CANCELED, "query was canceled in query queue");
    else if (now_ns >= r->deadline_mono_ns)
        reply_err(r, ERR_TIMEOUT, "query timed out in query queue");
    else
        r->route->run(r);
    reply_prepare(r);
    hangup_remove(s->hangups, &r->hangup);
    atomic_fetch_sub_explicit(&s->query_running, 1, memory_order_relaxed);
    MHD_resume_connection(connection); /* r is the HTTP thread's again */
}

void query_submit(struct http_request *r)
{
    struct api_server *s = r->server;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    uint64_t now_ns = clock_mono_ns();

    r->queue_ns = now_ns; /* becomes the time waited */
    r->deadline_mono_ns = now_ns + s->options.query_timeout_ms * 1000000U;
    request_suspend(r);
    hangup_add(s->hangups, &r->hangup, info == NULL ? -1 : info->connect_fd);
    atomic_fetch_add_explicit(&s->query_waiting, 1, memory_order_relaxed);
    if (thread_pool_submit(s->query_pool, query_run, r) == ERR_OK)
        return;
    atomic_fetch_sub_explicit(&s->query_waiting, 1, memory_order_relaxed);
    hangup_remove(s->hangups, &r->hangup);
    reply_err(r, ERR_UNAVAILABLE, "too many queries are waiting");
    reply_header(r, "Retry-After", "5");
    MHD_resume_connection(r->connection);
}
