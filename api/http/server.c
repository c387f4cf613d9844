#include "api/server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/config/machine_internal.h"
#include "api/http/http_callbacks_internal.h"
#include "api/http/http_internal.h"
#include "base/assert.h"
#include "base/log.h"

enum {
    LISTEN_BACKLOG = 1024,
    CONNECTION_LIMIT_DEFAULT = 4096,
    CONNECTION_LIMIT_LEAST = 64,
    CONNECTION_TIMEOUT_DEFAULT_S = 300,
    CONNECTION_LOOK_MS = 1000,
    /* Headers, and the piece of a body that one read gives. */
    CONNECTION_MEMORY_BYTES = 128 << 10,
    DESCRIPTORS_RESERVED = 64, /* for the watchers and files of our own */
    QUERY_QUEUE_LIMIT = 4096,
    USAGE_SAVE_S = 300,
    HELPER_QUEUE_LIMIT = 1024, /* tasks; a query does without */
    STOP_GRACE_MS = 100,
    REQUEST_MEMORY_SHARE = 4, /* bodies may take a quarter of the memory limit */
    PARAMETER_MEMORY_SHARE = 16,
    PARAMETER_MEMORY_LEAST = 3 * FORM_BYTES_MAX, /* the largest form, decoded, in an arena */
};

/* Splits "host:port", "[v6]:port" or ":port" and resolves it; the caller frees *out. */
static enum err address_resolve(const char *address, struct addrinfo **out, struct errinfo *ei)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                             .ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};
    char host[256] = {0};
    const char *colon = strrchr(address, ':');
    size_t size = colon == NULL ? 0 : (size_t)(colon - address);
    const char *start = address;
    int code = 0;

    *out = NULL;
    if (colon == NULL || size >= sizeof host)
        return errinfo_set(ei, ERR_INVALID, 0, "listen address \"%s\" is not host:port", address);
    if (size >= 2 && start[0] == '[' && start[size - 1] == ']') {
        start++;
        size -= 2;
    }
    memcpy(host, start, size);
    code = getaddrinfo(size == 0 ? NULL : host, colon + 1, &hints, out);
    if (code != 0 || *out == NULL)
        return errinfo_set(ei, ERR_INVALID, 0, "listen address \"%s\": %s", address,
                           gai_strerror(code));
    return ERR_OK;
}

static enum err socket_listen(const struct addrinfo *to, const char *address, int *out,
                              struct errinfo *ei)
{
    int one = 1;
    int fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);

    if (fd < 0)
        return errinfo_set(ei, ERR_IO, errno, "socket for %s", address);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, to->ai_addr, to->ai_addrlen) != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
        const char *hint =
            errno == EADDRINUSE ? " (--web.listen-address names another address)" : "";
        enum err e = errinfo_set(ei, ERR_IO, errno, "listen on %s%s", address, hint);

        (void)close(fd); /* never used */
        return e;
    }
    *out = fd;
    return ERR_OK;
}

static enum err server_listen(struct api_server *s, struct errinfo *ei)
{
    struct addrinfo *addresses = NULL; /* the first one is used */
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {.v6 = {0}};
    socklen_t size = sizeof bound;
    enum err e = address_resolve(s->options.listen_address, &addresses, ei);

    if (e != ERR_OK)
        return e;
    ASSERT(addresses != NULL);
    e = socket_listen(addresses, s->options.listen_address, &s->listen_fd, ei);
    freeaddrinfo(addresses);
    if (e != ERR_OK)
        return e;
    if (getsockname(s->listen_fd, &bound.any, &size) != 0)
        return errinfo_set(ei, ERR_IO, errno, "address of %s", s->options.listen_address);
    s->port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return ERR_OK;
}

/* As many as descriptors and an eighth of the memory allow: a connection's buffer is not charged.
 */
static unsigned connection_limit(const struct api_options *o)
{
    uint64_t count = o->connection_limit == 0 ? CONNECTION_LIMIT_DEFAULT : o->connection_limit;
    uint64_t fds = machine_fd_limit(), others = DESCRIPTORS_RESERVED + o->descriptors_reserved;

    if (fds < others || count > fds - others)
        count = fds < others ? 0 : fds - others;
    if (o->memory != NULL && count > o->memory->limit_bytes / 8 / CONNECTION_MEMORY_BYTES)
        count = o->memory->limit_bytes / 8 / CONNECTION_MEMORY_BYTES;
    return count < CONNECTION_LIMIT_LEAST ? CONNECTION_LIMIT_LEAST : (unsigned)count;
}

/* libmicrohttpd's own messages: broken connections, mostly. */
static void daemon_log(void *cls, const char *format, va_list args) PRINTF_LIKE(2, 0);
static void daemon_log(void *cls, const char *format, va_list args)
{
    char text[512];

    (void)cls;
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    (void)vsnprintf(text, sizeof text, format, args); /* may cut */
    text[strcspn(text, "\n")] = '\0';
    LOG_DEBUG("http", LOG_STR("message", text));
}

static enum err daemon_start(struct api_server *s, struct errinfo *ei)
{
    uint32_t threads = s->options.http_threads;
    unsigned timeout_s = s->options.connection_timeout_s == 0 ? CONNECTION_TIMEOUT_DEFAULT_S
                                                              : s->options.connection_timeout_s;
    unsigned limit = connection_limit(&s->options);
    struct MHD_Daemon *daemon = NULL;

    if (threads == 0)
        threads = thread_cpu_count();
    if (threads < 2)
        threads = 2;
    if (limit < threads)
        limit = threads;
    daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        request_access, s, MHD_OPTION_EXTERNAL_LOGGER, daemon_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        s->listen_fd, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)threads, MHD_OPTION_CONNECTION_LIMIT,
        limit, MHD_OPTION_CONNECTION_TIMEOUT, timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_NOTIFY_CONNECTION, connection_changed, s, MHD_OPTION_URI_LOG_CALLBACK, uri_begin,
        s, MHD_OPTION_NOTIFY_COMPLETED, request_completed, s, MHD_OPTION_END);
    if (daemon == NULL)
        return errinfo_set(ei, ERR_IO, errno, "start the HTTP server");
    atomic_store_explicit(&s->daemon, daemon, memory_order_release);
    return ERR_OK;
}

static void budgets_init(struct api_server *s)
{
    const struct api_options *o = &s->options;
    uint64_t bodies = o->memory == NULL ? UINT64_MAX : o->memory->limit_bytes;
    uint64_t parameters = bodies / PARAMETER_MEMORY_SHARE;

    if (parameters < PARAMETER_MEMORY_LEAST)
        parameters = PARAMETER_MEMORY_LEAST;
    if (bodies != UINT64_MAX) {
        uint64_t least = 2 * (uint64_t)body_compressed_max(o->max_request_bytes);

        bodies /= REQUEST_MEMORY_SHARE;
        bodies = bodies < least ? least : bodies; /* one full-size request always fits */
    }
    budget_init(&s->request_memory, "request memory", bodies, o->memory);
    budget_init(&s->parameter_memory, "memory for parameters", parameters, NULL);
    budget_init(&s->query_memory, "memory of all queries (--query.max-total-memory)",
                o->query_total_memory_bytes, o->memory);
}

/* Threads that queries share, besides their own: all cores at most, whoever uses them. */
static enum err helpers_start(struct api_server *s, struct errinfo *ei)
{
    struct promql_settings *settings = &s->options.promql;
    uint32_t threads = s->options.query_threads;

    if (threads == 0)
        threads = thread_cpu_count();
    settings->helper_count = threads - 1;
    if (threads == 1)
        return ERR_OK;
    return thread_pool_new("query-helper", threads - 1, HELPER_QUEUE_LIMIT, &settings->helpers, ei);
}

enum err api_server_new(const struct api_options *options, struct api_server **out,
                        struct errinfo *ei)
{
    struct api_server *s = calloc(1, sizeof *s);
    enum err e = ERR_OK;

    if (s == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "HTTP server");
    s->options = *options;
    s->options.promql.helpers = NULL;
    s->listen_fd = -1;
    s->start_mono_ns = clock_mono_ns();
    s->start_ms = clock_now_ms(options->clock);
    mutex_init(&s->lock);
    cond_init(&s->idle);
    query_list_init(&s->queries);
    budgets_init(s);
    buffer_pool_init(&s->buffers, &s->request_memory);
    api_metrics_register(s);
    api_server_note_reload(s, true, NULL); /* that of the start */
    s->no_content = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (s->no_content == NULL) {
        e = errinfo_set(ei, ERR_NOMEM, 0, "HTTP server");
        goto out;
    }
    s->usage_saved_mono_ns = s->start_mono_ns;
    e = usage_new(options->clock, options->fs, &s->usage, ei);
    if (e == ERR_OK)
        e = query_log_open(&s->query_log, options->query_log_path, ei);
    if (e == ERR_OK)
        e = hangup_watcher_new(&s->hangups, ei);
    if (e == ERR_OK)
        e = connections_new(CONNECTION_LOOK_MS, BODY_SECONDS_MAX * 1000, &s->connections, ei);
    if (e == ERR_OK)
        e = thread_pool_new("query", options->query_concurrency, QUERY_QUEUE_LIMIT, &s->query_pool,
                            ei);
    if (e == ERR_OK)
        e = helpers_start(s, ei);
    if (e == ERR_OK)
        e = server_listen(s, ei);
    if (e == ERR_OK)
        e = daemon_start(s, ei);
    if (e == ERR_OK)
        *out = TAKE(s);
out:
    api_server_free(s);
    return e;
}

enum err api_server_reopen(struct api_server *s, struct errinfo *ei)
{
    return query_log_reopen(&s->query_log, ei);
}

void api_server_note_reload(struct api_server *s, bool ok, const char *config_yaml)
{
    char *text = config_yaml == NULL ? NULL : strdup(config_yaml);
    int64_t now_ms = clock_now_ms(s->options.clock);
    int64_t now_s = now_ms / 1000; /* whole seconds, as in Prometheus */

    mutex_lock(&s->lock);
    s->reload.failed = !ok;
    if (ok)
        s->reload.last_ms = now_ms;
    if (ok && text != NULL) { /* without memory the old text is shown */
        free(s->reload.text);
        s->reload.text = TAKE(text);
    }
    mutex_unlock(&s->lock);
    free(text);
    metric_gauge_set(s->metrics.reload_successful, ok);
    if (ok)
        metric_gauge_set(s->metrics.reload_success_s, (double)now_s);
}

enum err api_server_keep(struct api_server *s, bool now, struct errinfo *ei)
{
    uint64_t now_ns = clock_mono_ns();

    if (!now && now_ns - s->usage_saved_mono_ns < USAGE_SAVE_S * UINT64_C(1000000000))
        return ERR_OK;
    s->usage_saved_mono_ns = now_ns;
    return usage_save(s->usage, ei);
}

uint16_t api_server_port(const struct api_server *s)
{
    return s->port;
}

void api_server_set_engine(struct api_server *s, struct engine *engine)
{
    atomic_store_explicit(&s->engine, engine, memory_order_release);
}

void api_server_set_compactor(struct api_server *s, struct compactor *compactor)
{
    atomic_store_explicit(&s->compactor, compactor, memory_order_release);
}

uint64_t api_server_load(const struct api_server *s)
{
    uint64_t active = atomic_load_explicit(&s->active_count, memory_order_relaxed);
    /* Read one after the other, so that the difference may be off by a few, even below zero. */
    uint64_t others = atomic_load_explicit(&s->write_waiting, memory_order_relaxed) +
                      atomic_load_explicit(&s->admin_running, memory_order_relaxed);

    return active > others ? active - others : 0;
}

void api_server_set_ready(struct api_server *s)
{
    atomic_store_explicit(&s->ready, true, memory_order_release);
}

/* Waits until *count is 0 or the time has come. */
static bool wait_until_zero(struct api_server *s, _Atomic uint64_t *count, uint64_t deadline_ns)
{
    bool in_time = true;

    mutex_lock(&s->lock);
    while (atomic_load(count) != 0 && in_time)
        in_time = cond_wait_until(&s->idle, &s->lock, deadline_ns);
    mutex_unlock(&s->lock);
    return atomic_load(count) == 0;
}

static void grace_wait(struct api_server *s)
{
    uint64_t end_ns = clock_mono_ns() + (uint64_t)STOP_GRACE_MS * 1000000U;

    mutex_lock(&s->lock);
    while (cond_wait_until(&s->idle, &s->lock, end_ns))
        ;
    mutex_unlock(&s->lock);
}

enum api_stop api_server_stop(struct api_server *s, uint32_t deadline_ms)
{
    uint64_t now_ns = clock_mono_ns();
    uint64_t deadline_ns = now_ns + (uint64_t)deadline_ms * 1000000U;
    struct MHD_Daemon *daemon = NULL;
    int fd = -1;

    atomic_store_explicit(&s->stopping, true, memory_order_relaxed);
    atomic_store_explicit(&s->ready, false, memory_order_release);
    /* Who has connected already still gets an answer, a 503 mostly: closing the socket at once
     * would reset the connections that wait in its queue. */
    grace_wait(s);
    daemon = atomic_load_explicit(&s->daemon, memory_order_relaxed); /* only this thread stops it */
    fd = MHD_quiesce_daemon(daemon);
    if (fd >= 0)
        (void)close(fd); /* nothing is accepted any more */
    s->listen_fd = -1;
    if (!wait_until_zero(s, &s->active_count, now_ns + (deadline_ns - now_ns) / 2)) {
        hangup_stop_all(s->hangups);
        /* Half-sent requests may stay; suspended ones must come back before the daemon ends. */
        if (!wait_until_zero(s, &s->suspended_count, deadline_ns))
            return atomic_load(&s->write_waiting) == 0 ? API_STOP_QUERIES_RUN
                                                       : API_STOP_WRITES_WAIT;
    }
    thread_pool_wait(s->query_pool);
    MHD_stop_daemon(daemon);
    atomic_store_explicit(&s->daemon, NULL, memory_order_relaxed); /* nobody is left to read it */
    return API_STOPPED;
}

void api_server_free(struct api_server *s)
{
    struct MHD_Daemon *daemon = NULL;

    if (s == NULL)
        return;
    daemon = atomic_load_explicit(&s->daemon, memory_order_relaxed);
    if (daemon != NULL)
        MHD_stop_daemon(daemon);
    if (s->listen_fd >= 0)
        (void)close(s->listen_fd); /* nothing to lose */
    thread_pool_free(s->query_pool);
    thread_pool_free(s->options.promql.helpers); /* behind the queries that ask them */
    hangup_watcher_free(s->hangups);
    connections_free(s->connections);
    if (s->no_content != NULL)
        MHD_destroy_response(s->no_content);
    while (s->workspaces != NULL) {
        struct write_workspace *ws = s->workspaces;

        s->workspaces = ws->next;
        write_workspace_free(ws);
    }
    buffer_pool_done(&s->buffers);
    query_log_close(&s->query_log);
    usage_free(s->usage);
    query_list_done(&s->queries);
    cond_done(&s->idle);
    free(s->reload.text);
    mutex_done(&s->lock);
    free(s);
}
