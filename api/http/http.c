/*
 * Requests, from libmicrohttpd's callbacks to the endpoints.
 *
 * libmicrohttpd calls: uri_begin() once the request line is in, request_access() when the headers
 * are in, then for every piece of the body and once behind it, and again after a suspended
 * connection was resumed; request_completed() at the end, whatever happened.
 *
 * A refused body is read and dropped rather than left in the socket: closing a socket with unread
 * bytes resets the connection, and the client may never see why (a sender would retry for ever
 * instead of falling back at a 415).
 */
#include "api/http/http_callbacks_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/http/http_internal.h"
#include "base/assert.h"

/*
 * Hides the parameters from libmicrohttpd, which would keep each as a header of its own that nobody
 * reads. Worse, 0.9.75 loses the error when they do not fit its pool (some 2,000 parameters do it):
 * the connection then gets no answer and stands, its request with it, until it times out. The URI
 * lies in the pool's own memory, which is not const, and is split behind this callback.
 */
static void query_hide(const char *mark)
{
    ((char *)(uintptr_t)mark)[1] = '\0';
}

void connection_changed(void *cls, struct MHD_Connection *connection, void **socket_context,
                        enum MHD_ConnectionNotificationCode how)
{
    struct api_server *s = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (how == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = info == NULL ? NULL : connections_add(s->connections, info->connect_fd);
    } else {
        connections_remove(s->connections, *socket_context);
        *socket_context = NULL;
    }
}

/* Tells the watcher of connections whether bytes of a request are awaited, and since when. */
static void client_note(struct client *client, bool receives, uint64_t begin_mono_ns)
{
    if (client == NULL)
        return;
    atomic_store_explicit(&client->begin_mono_ns, begin_mono_ns, memory_order_relaxed);
    atomic_store_explicit(&client->receives, receives, memory_order_relaxed);
}

static struct http_request *request_new(struct api_server *s, const char *uri)
{
    struct http_request *r = calloc(1, sizeof *r);
    size_t size = strlen(uri);
    char *copy = NULL;
    const char *mark = NULL;

    if (r == NULL)
        return NULL; /* request_access() closes the connection */
    r->server = s;
    r->start_mono_ns = clock_mono_ns();
    arena_init(&r->arena, &s->parameter_memory);
    atomic_fetch_add(&s->active_count, 1);
    copy = arena_memdup0(&r->arena, uri, size);
    if (copy == NULL)
        return r; /* raw_path stays empty: 503 */
    mark = memchr(copy, '?', size);
    r->raw_path = (struct str){copy, mark == NULL ? size : (size_t)(mark - copy)};
    if (mark != NULL)
        r->raw_query = (struct str){mark + 1, size - r->raw_path.size - 1};
    return r;
}

void *uri_begin(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct http_request *r = request_new(cls, uri == NULL ? "" : uri);
    const char *mark = uri == NULL ? NULL : strchr(uri, '?');
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    if (mark != NULL)
        query_hide(mark);
    if (r != NULL && info != NULL) {
        r->client = info->socket_context;
        client_note(r->client, true, r->start_mono_ns);
    }
    return r;
}

/* Takes a resumed request off the counts of suspended ones. */
static void request_unsuspend(struct http_request *r)
{
    struct api_server *s = r->server;

    r->phase = PHASE_ANSWERED;
    mutex_lock(&s->lock);
    atomic_fetch_sub(&s->suspended_count, 1);
    if (r->route->where == RUN_WRITE)
        atomic_fetch_sub(&s->write_waiting, 1);
    cond_broadcast(&s->idle);
    mutex_unlock(&s->lock);
}

void request_completed(void *cls, struct MHD_Connection *connection, void **req_cls,
                       enum MHD_RequestTerminationCode how)
{
    struct api_server *s = cls;
    struct http_request *r = *req_cls;

    (void)connection;
    (void)how; /* an unsent answer is not counted apart */
    if (r == NULL)
        return;
    *req_cls = NULL;
    ASSERT(!r->hangup.active);
    /* libmicrohttpd does not call request_access() for a resumed connection whose client has left
     * in the meantime. */
    if (r->phase == PHASE_SUSPENDED)
        request_unsuspend(r);
    client_note(r->client, true, 0);
    if (r->reply.status != 0)
        api_metrics_request_end(r);
    buffer_pool_put(&s->buffers, r->body);
    if (r->reply.source != NULL)
        r->reply.source->free(r->reply.source);
    writer_done(&r->reply.body);
    free(r->sequences);
    arena_done(&r->arena);
    free(r);
    mutex_lock(&s->lock);
    atomic_fetch_sub(&s->active_count, 1);
    cond_broadcast(&s->idle);
    mutex_unlock(&s->lock);
}

static enum http_method method_parse(const char *method)
{
    static const struct {
        const char *name;
        enum http_method method;
    } methods[] = {
        {"GET", METHOD_GET}, {"HEAD", METHOD_HEAD},       {"POST", METHOD_POST},
        {"PUT", METHOD_PUT}, {"OPTIONS", METHOD_OPTIONS}, {"DELETE", METHOD_DELETE},
    };

    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(method, methods[i].name) == 0)
            return methods[i].method;
    return METHOD_OTHER;
}

static bool path_is_api(struct str path)
{
    static const char prefix[] = "/api/v1/";

    return path.size >= sizeof prefix - 1 && memcmp(path.data, prefix, sizeof prefix - 1) == 0;
}

static void reply_method_not_allowed(struct http_request *r)
{
    unsigned methods = r->route->methods;

    reply_text(r, 405, "Method Not Allowed\n");
    if (methods == METHOD_POST)
        reply_header(r, "Allow", "POST");
    else if (methods & METHOD_DELETE)
        reply_header(r, "Allow", "GET, HEAD, DELETE, OPTIONS");
    else if (methods & METHOD_PUT)
        reply_header(r, "Allow", "OPTIONS, POST, PUT");
    else if (methods & METHOD_POST)
        reply_header(r, "Allow", "GET, POST, OPTIONS");
    else
        reply_header(r, "Allow", "GET, HEAD, OPTIONS");
}

static void reply_not_ready(struct http_request *r)
{
    bool stopping = atomic_load_explicit(&r->server->stopping, memory_order_relaxed);

    reply_text(r, 503, "Service Unavailable");
    reply_header(r, "X-Prometheus-Stopping", stopping ? "true" : "false");
    reply_header(r, "Retry-After", "1");
}

/* Finds the route and answers what headers alone decide. */
static void request_begin(struct http_request *r)
{
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    if (r->raw_path.size == 0) {
        reply_text(r, 503, "out of memory for requests\n");
        return;
    }
    e = percent_decode(r->raw_path, false, &r->arena, &r->path, &ei);
    if (e != ERR_OK) {
        reply_text(r, e == ERR_INVALID ? 400 : 503, ei.message);
        return;
    }
    r->route = route_find(r->path);
    if (r->method == METHOD_OPTIONS && path_is_api(r->path)) {
        reply_no_content(r);
        return;
    }
    if (r->route == NULL) {
        if (path_is_api(r->path))
            reply_error(r, 404, "not_found", "this server has no such endpoint");
        else
            reply_text(r, 404, "404 page not found\n");
        return;
    }
    if ((r->route->methods & r->method) == 0)
        reply_method_not_allowed(r);
    else if (r->route->gated && !server_is_ready(r->server))
        reply_not_ready(r);
    else if (r->route->where == RUN_WRITE)
        endpoint_write_begin(r);
}

/* The declared size of the body, 0 when there is none or it is not declared. */
static uint64_t declared_size(struct MHD_Connection *connection)
{
    const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    char *end = NULL;
    uint64_t v = 0;

    if (text == NULL)
        return 0;
    errno = 0;
    v = strtoull(text, &end, 10); /* libmicrohttpd has refused what is no number */
    return errno == 0 ? v : UINT64_MAX;
}

static bool body_is_wanted(const struct http_request *r)
{
    const char *type = NULL;
    static const char form[] = "application/x-www-form-urlencoded";

    if (r->route->where == RUN_WRITE)
        return true;
    if (r->method != METHOD_POST && r->method != METHOD_PUT)
        return false;
    if (r->route->takes_body)
        return true;
    type = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Content-Type");
    /* With another type the URL's parameters count alone: vmalert sends application/json and
     * nothing in it. */
    return type != NULL && strncasecmp(type, form, sizeof form - 1) == 0;
}

static size_t body_limit(const struct http_request *r)
{
    return r->route->where == RUN_WRITE ? body_compressed_max(r->server->options.max_request_bytes)
                                        : FORM_BYTES_MAX;
}

static enum MHD_Result headers_in(struct http_request *r, struct MHD_Connection *connection,
                                  const char *method)
{
    uint64_t size = declared_size(connection);

    r->connection = connection;
    r->method = method_parse(method);
    r->compression = compression_choose(
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Accept-Encoding"));
    r->phase = PHASE_BODY;
    request_begin(r);
    if (r->reply.status == 0 && body_is_wanted(r) && size > body_limit(r))
        reply_text(r, 413, "request body is too large\n");
    r->draining = r->reply.status != 0 || !body_is_wanted(r);
    if (r->draining && size > BODY_DRAIN_BYTES_MAX)
        return reply_queue(r); /* libmicrohttpd closes the connection behind it */
    return MHD_YES;
}

static void body_refuse(struct http_request *r, unsigned status, const char *text)
{
    buffer_pool_put(&r->server->buffers, r->body);
    r->body = NULL;
    r->draining = true;
    reply_text(r, status, text);
    if (status == 503)
        reply_header(r, "Retry-After", "1");
}

static enum MHD_Result body_piece(struct http_request *r, const char *data, size_t size)
{
    struct buffer_pool *pool = &r->server->buffers;
    uint64_t age_ns = clock_mono_ns() - r->start_mono_ns;

    if (age_ns > (uint64_t)BODY_SECONDS_MAX * 1000000000U)
        return MHD_NO; /* a trickle that holds memory: close */
    if (r->draining) {
        r->drained_bytes += size;
        return r->drained_bytes > BODY_DRAIN_BYTES_MAX ? MHD_NO : MHD_YES;
    }
    if (r->body == NULL)
        r->body = buffer_pool_get(pool);
    if (r->body == NULL)
        body_refuse(r, 503, "out of memory for requests\n");
    else if (size > body_limit(r) - r->body->size)
        body_refuse(r, 413, "request body is too large\n");
    else if (buffer_append(pool, r->body, data, size, NULL) != ERR_OK)
        body_refuse(r, 503, "memory for requests is used up\n");
    return MHD_YES;
}

/* Parameters of the body, then of the URL. False when a reply was made instead. */
static bool params_collect(struct http_request *r)
{
    struct errinfo ei = {0};
    enum err e = ERR_OK;

    if (r->body != NULL && !r->route->takes_body)
        e = params_parse(&r->params, (struct str){(const char *)r->body->data, r->body->size},
                         &r->arena, &ei);
    if (e == ERR_OK)
        e = params_parse(&r->params, r->raw_query, &r->arena, &ei);
    if (!r->route->takes_body) {
        buffer_pool_put(&r->server->buffers, r->body);
        r->body = NULL;
    }
    if (e != ERR_OK) {
        errinfo_prefix(&ei, "error parsing form values");
        reply_err(r, e, ei.message);
    }
    return e == ERR_OK;
}

static enum MHD_Result request_run(struct http_request *r)
{
    client_note(r->client, false, 0);
    if (r->reply.status != 0)
        return reply_queue(r);
    if (r->route->where == RUN_WRITE) {
        endpoint_write(r);
    } else if (params_collect(r)) {
        if (r->route->where == RUN_POOL || r->route->where == RUN_ADMIN)
            query_submit(r);
        else
            r->route->run(r);
    }
    /* From here on a suspended request belongs to someone else, who may be done with it already;
     * only this thread will resume it, so its phase can still be read. */
    if (r->phase == PHASE_SUSPENDED)
        return MHD_YES;
    reply_prepare(r);
    return reply_queue(r);
}

static enum MHD_Result request_resumed(struct http_request *r)
{
    request_unsuspend(r);
    if (r->route->where == RUN_WRITE) {
        endpoint_write_end(r);
        reply_prepare(r);
    }
    return reply_queue(r);
}

void request_suspend(struct http_request *r)
{
    r->phase = PHASE_SUSPENDED;
    atomic_fetch_add(&r->server->suspended_count, 1);
    if (r->route->where == RUN_WRITE)
        atomic_fetch_add(&r->server->write_waiting, 1);
    MHD_suspend_connection(r->connection);
}

enum MHD_Result request_access(void *cls, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload_data,
                               size_t *upload_data_size, void **req_cls)
{
    struct http_request *r = *req_cls;
    enum MHD_Result result = MHD_YES;

    (void)cls;
    (void)url; /* decoded our own way from the raw URI */
    (void)version;
    if (r == NULL)
        return MHD_NO;
    switch (r->phase) {
    case PHASE_HEADERS:
        return headers_in(r, connection, method);
    case PHASE_BODY:
        if (*upload_data_size == 0)
            return request_run(r);
        result = body_piece(r, upload_data, *upload_data_size);
        *upload_data_size = 0;
        return result;
    case PHASE_SUSPENDED:
        return request_resumed(r);
    case PHASE_ANSWERED:
        break;
    }
    *upload_data_size = 0; /* more of a body whose answer is on its way */
    return MHD_YES;
}
