#include "api/http/hangup_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"

enum { EVENT_COUNT = 64, WAKE_ID = 0 };

struct hangup_watcher {
    struct mutex lock; /* guards first, next_id and the links of every watch */
    struct hangup_watch *first;
    uint64_t next_id; /* ids are never used twice, so a late event cannot hit a newer request */
    int epoll_fd, wake_fd;
    _Atomic bool ending; /* release by free, acquire by the thread */
    struct thread thread;
};

static void watch_stop(struct hangup_watcher *w, uint64_t id)
{
    mutex_lock(&w->lock);
    for (struct hangup_watch *watch = w->first; watch != NULL; watch = watch->next) {
        if (watch->id == id) {
            atomic_store_explicit(&watch->stop, true, memory_order_relaxed);
            break;
        }
    }
    mutex_unlock(&w->lock);
}

static void *watcher_run(void *arg)
{
    struct hangup_watcher *w = arg;
    struct epoll_event events[EVENT_COUNT];

    while (!atomic_load_explicit(&w->ending, memory_order_acquire)) {
        int count = epoll_wait(w->epoll_fd, events, EVENT_COUNT, -1);

        for (int i = 0; i < count; i++)
            if (events[i].data.u64 != WAKE_ID)
                watch_stop(w, events[i].data.u64);
    }
    return NULL;
}

enum err hangup_watcher_new(struct hangup_watcher **out, struct errinfo *ei)
{
    struct epoll_event wake = {.events = EPOLLIN, .data.u64 = WAKE_ID};
    struct hangup_watcher *w = calloc(1, sizeof *w);
    enum err e = ERR_OK;

    if (w == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "hang-up watcher");
    mutex_init(&w->lock);
    w->next_id = WAKE_ID + 1;
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (w->wake_fd < 0 || w->epoll_fd < 0 ||
        epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &wake) != 0) {
        e = errinfo_set(ei, ERR_IO, errno, "epoll for hang-ups");
        goto out;
    }
    e = thread_start(&w->thread, "hangup", watcher_run, w, ei);
    if (e == ERR_OK)
        *out = TAKE(w);
out:
    hangup_watcher_free(w);
    return e;
}

void hangup_watcher_free(struct hangup_watcher *w)
{
    if (w == NULL)
        return;
    atomic_store_explicit(&w->ending, true, memory_order_release);
    if (w->wake_fd >= 0)
        (void)eventfd_write(w->wake_fd, 1); /* fails only when it is readable already */
    thread_join(&w->thread);
    if (w->epoll_fd >= 0)
        (void)close(w->epoll_fd); /* nothing to lose */
    if (w->wake_fd >= 0)
        (void)close(w->wake_fd);
    mutex_done(&w->lock);
    free(w);
}

void hangup_add(struct hangup_watcher *w, struct hangup_watch *watch, int fd)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT};

    mutex_lock(&w->lock);
    watch->fd = fd;
    watch->id = w->next_id++;
    event.data.u64 = watch->id;
    watch->previous = NULL;
    watch->next = w->first;
    if (w->first != NULL)
        w->first->previous = watch;
    w->first = watch;
    watch->active = true;
    if (fd >= 0)
        (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event); /* else: it runs to its end */
    mutex_unlock(&w->lock);
}

void hangup_remove(struct hangup_watcher *w, struct hangup_watch *watch)
{
    mutex_lock(&w->lock);
    if (watch->active) {
        if (watch->fd >= 0)
            (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
        if (watch->previous != NULL)
            watch->previous->next = watch->next;
        else
            w->first = watch->next;
        if (watch->next != NULL)
            watch->next->previous = watch->previous;
        watch->active = false;
    }
    mutex_unlock(&w->lock);
}

void hangup_stop_all(struct hangup_watcher *w)
{
    mutex_lock(&w->lock);
    for (struct hangup_watch *watch = w->first; watch != NULL; watch = watch->next)
        atomic_store_explicit(&watch->stop, true, memory_order_relaxed);
    mutex_unlock(&w->lock);
}
