/*
 * Watches the sockets of requests that run on query threads, and tells them when their client has
 * left: libmicrohttpd takes a suspended connection out of its own epoll set and notices nothing.
 *
 * A client that shuts down its sending side counts as gone, as in Go's HTTP server.
 */
#ifndef RIMSTONE_API_HTTP_HANGUP_INTERNAL_H
#define RIMSTONE_API_HTTP_HANGUP_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct hangup_watcher;

/* Part of a request. `stop` is set once by the watcher (relaxed: queries only poll it). */
struct hangup_watch {
    _Atomic bool stop;
    bool active; /* the watcher's lock */
    int fd;
    uint64_t id;
    struct hangup_watch *previous, *next; /* the watcher's lock */
};

MUST_USE enum err hangup_watcher_new(struct hangup_watcher **out, struct errinfo *ei);
/* Nothing may be watched any more. Accepts NULL. */
void hangup_watcher_free(struct hangup_watcher *w);
/* Starts watching `fd`; it must stay open until hangup_remove(). Any thread. When the kernel
 * refuses, the request just runs to its end. */
void hangup_add(struct hangup_watcher *w, struct hangup_watch *watch, int fd);
/* The watcher does not touch `watch` after this. Any thread; harmless if it was never added. */
void hangup_remove(struct hangup_watcher *w, struct hangup_watch *watch);
/* Sets every watch's stop flag: the server ends. */
void hangup_stop_all(struct hangup_watcher *w);

#endif
