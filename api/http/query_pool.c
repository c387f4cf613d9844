/*
 * Queries and metadata calls run on threads of their own, so that slow ones never hold up ingest,
 * which uses the HTTP threads. While a request waits or runs, its connection is suspended and its
 * socket watched (hangup_internal.h).
 */
#include <arpa/inet.h>
#include <sys/socket.h>

#include "api/http/http_internal.h"
#include "base/assert.h"
#include "base/process.h"

enum { QUERY_LARGE_BYTES = 64 << 20 }; /* below, what the allocator keeps serves the next query */

void query_memory_begin(struct api_server *s, struct budget *memory)
{
    budget_init(memory, "query memory (--query.max-memory)", s->options.promql.max_memory_bytes,
                &s->query_memory);
}

void query_memory_end(const struct budget *memory)
{
    if (atomic_load_explicit(&memory->peak_bytes, memory_order_relaxed) >= QUERY_LARGE_BYTES)
        process_memory_trim();
}

static bool is_stopped(struct http_request *r)
{
    return atomic_load_explicit(&r->hangup.stop, memory_order_relaxed);
}

static void route_run(struct http_request *r)
{
    bool is_admin = r->route->where == RUN_ADMIN;

    atomic_fetch_add_explicit(&r->server->admin_running, is_admin, memory_order_relaxed);
    r->route->run(r);
    atomic_fetch_sub_explicit(&r->server->admin_running, is_admin, memory_order_relaxed);
}

static void query_run(void *arg)
{
    struct http_request *r = arg;
    struct api_server *s = r->server;
    uint64_t now_ns = clock_mono_ns();
    struct MHD_Connection *connection = r->connection;

    atomic_fetch_sub_explicit(&s->query_waiting, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->query_running, 1, memory_order_relaxed);
    query_list_run(&s->queries, &r->entry);
    r->queue_ns = now_ns - r->queue_ns;
    metric_histogram_observe(s->metrics.query_queue, (double)r->queue_ns / 1e9);
    if (is_stopped(r))
        reply_err(r, ERR_CANCELED, "query was canceled in query queue");
    else if (now_ns >= r->deadline_mono_ns)
        reply_err(r, ERR_TIMEOUT, "query timed out in query queue");
    else
        route_run(r);
    reply_prepare(r);
    hangup_remove(s->hangups, &r->hangup);
    query_list_remove(&s->queries, &r->entry);
    atomic_fetch_sub_explicit(&s->query_running, 1, memory_order_relaxed);
    MHD_resume_connection(connection); /* r is the HTTP thread's again */
}

static void client_format(struct MHD_Connection *connection, char out[INET6_ADDRSTRLEN])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info == NULL ? NULL : info->client_addr;
    union {
        const struct sockaddr *any;
        const struct sockaddr_in *v4;
        const struct sockaddr_in6 *v6;
    } a = {address};
    bool is_v6 = address != NULL && address->sa_family == AF_INET6;

    out[0] = '\0';
    if (is_v6 || (address != NULL && address->sa_family == AF_INET))
        (void)inet_ntop(address->sa_family,
                        is_v6 ? (const void *)&a.v6->sin6_addr : (const void *)&a.v4->sin_addr, out,
                        INET6_ADDRSTRLEN); /* fits */
}

static void entry_fill(struct http_request *r, uint64_t now_ns)
{
    struct str text = params_get(&r->params, "query");

    r->entry = (struct query_entry){
        .path = r->route->path,
        .text = text.size != 0 ? text : params_get(&r->params, "match[]"),
        .start_mono_ns = now_ns,
        .stop = &r->hangup.stop,
    };
    client_format(r->connection, r->entry.client);
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
    entry_fill(r, now_ns);
    query_list_add(&s->queries, &r->entry);
    atomic_fetch_add_explicit(&s->query_waiting, 1, memory_order_relaxed);
    if (thread_pool_submit(s->query_pool, query_run, r) == ERR_OK)
        return;
    atomic_fetch_sub_explicit(&s->query_waiting, 1, memory_order_relaxed);
    hangup_remove(s->hangups, &r->hangup);
    query_list_remove(&s->queries, &r->entry);
    reply_err(r, ERR_UNAVAILABLE, "too many queries are waiting");
    reply_header(r, "Retry-After", "5");
    MHD_resume_connection(r->connection);
}
