/*
 * All client connections, and a thread that looks once a second for those which libmicrohttpd
 * forgets: its epoll mode is edge-triggered, and when the end of a stream arrives together with the
 * last bytes, a short read makes it wait for an event that has been already. Whoever breaks off
 * amid a request (a sender's time-out does) would leave its connection and half a body behind until
 * the connection times out, minutes later.
 *
 * A connection is closed when its stream ended, nothing is left to read, and it is nevertheless
 * waiting for (the rest of) a request at two looks in a row; or when a request has taken too long
 * to arrive. Connections whose request is being answered are left alone.
 */
#ifndef RIMSTONE_API_HTTP_CONNECTIONS_INTERNAL_H
#define RIMSTONE_API_HTTP_CONNECTIONS_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct connections;

/* One connection. Owned by its libmicrohttpd connection, as its socket context. */
struct client {
    /* Whether bytes of a request are awaited, rather than its answer. relaxed: a look too late or
     * too early is corrected by the next. */
    _Atomic bool receives;
    /* When the request under way began, 0 between requests. relaxed: as above. */
    _Atomic uint64_t begin_mono_ns;
    int fd;                         /* borrowed; open until connections_remove() */
    bool has_ended;                 /* at the last look; the watching thread's */
    struct client *previous, *next; /* the lock of connections */
};

/* Requests that take longer than `request_ms_max` to arrive are cut; looks come every
 * `interval_ms`. */
MUST_USE enum err connections_new(uint32_t interval_ms, uint32_t request_ms_max,
                                  struct connections **out, struct errinfo *ei);
/* All connections must have been removed. Accepts NULL. */
void connections_free(struct connections *c);
/* NULL without memory: that connection is then not looked at. Any thread. */
struct client *connections_add(struct connections *c, int fd);
/* Before the socket is closed. Accepts NULL. Any thread. */
void connections_remove(struct connections *c, struct client *client);

#endif
