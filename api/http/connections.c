#include "api/http/connections_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/thread.h"

struct connections {
    struct mutex lock; /* guards first, ending, and the links; held while sockets are looked at */
    struct cond wake;  /* ending, or a first connection */
    struct client *first; /* owned */
    bool ending;
    uint64_t interval_ns, request_ns_max;
    struct thread thread;
};

/* Nothing to read, and nothing will come. */
static bool stream_has_ended(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void client_look(const struct connections *c, struct client *client, uint64_t now_ns)
{
    uint64_t begin_ns = atomic_load_explicit(&client->begin_mono_ns, memory_order_relaxed);
    bool had_ended = client->has_ended, too_long = false;

    client->has_ended = false;
    if (!atomic_load_explicit(&client->receives, memory_order_relaxed))
        return;
    client->has_ended = stream_has_ended(client->fd);
    too_long = begin_ns != 0 && now_ns > begin_ns && now_ns - begin_ns > c->request_ns_max;
    /* An event of the kind that libmicrohttpd does not miss; it closes the socket. */
    if (too_long || (had_ended && client->has_ended))
        (void)shutdown(client->fd, SHUT_RDWR); /* fails only when it is shut already */
}

static void *connections_run(void *arg)
{
    struct connections *c = arg;

    mutex_lock(&c->lock);
    while (!c->ending) {
        uint64_t now_ns = clock_mono_ns();

        if (c->first == NULL) {
            cond_wait(&c->wake, &c->lock);
            continue;
        }
        for (struct client *client = c->first; client != NULL; client = client->next)
            client_look(c, client, now_ns);
        while (!c->ending && cond_wait_until(&c->wake, &c->lock, now_ns + c->interval_ns))
            ;
    }
    mutex_unlock(&c->lock);
    return NULL;
}

enum err connections_new(uint32_t interval_ms, uint32_t request_ms_max, struct connections **out,
                         struct errinfo *ei)
{
    struct connections *c = calloc(1, sizeof *c);
    enum err e = ERR_OK;

    if (c == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "list of connections");
    mutex_init(&c->lock);
    cond_init(&c->wake);
    c->interval_ns = (uint64_t)interval_ms * 1000000U;
    c->request_ns_max = (uint64_t)request_ms_max * 1000000U;
    e = thread_start(&c->thread, "connections", connections_run, c, ei);
    if (e == ERR_OK)
        *out = TAKE(c);
    connections_free(c);
    return e;
}

void connections_free(struct connections *c)
{
    if (c == NULL)
        return;
    mutex_lock(&c->lock);
    c->ending = true;
    cond_broadcast(&c->wake);
    mutex_unlock(&c->lock);
    thread_join(&c->thread);
    cond_done(&c->wake);
    mutex_done(&c->lock);
    free(c);
}

struct client *connections_add(struct connections *c, int fd)
{
    struct client *client = calloc(1, sizeof *client);

    if (client == NULL)
        return NULL;
    client->fd = fd;
    atomic_init(&client->receives, true);
    mutex_lock(&c->lock);
    client->next = c->first;
    if (c->first != NULL)
        c->first->previous = client;
    else
        cond_broadcast(&c->wake);
    c->first = client;
    mutex_unlock(&c->lock);
    return client;
}

void connections_remove(struct connections *c, struct client *client)
{
    if (client == NULL)
        return;
    mutex_lock(&c->lock);
    if (client->previous != NULL)
        client->previous->next = client->next;
    else
        c->first = client->next;
    if (client->next != NULL)
        client->next->previous = client->previous;
    mutex_unlock(&c->lock);
    free(client);
}
