#include "api/http/query_log_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static enum err file_open(const char *path, int *out, struct errinfo *ei)
{
    /* allow(open): no file of the store's directory */
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

    if (fd < 0)
        return errinfo_set(ei, err_from_errno(errno), errno, "query log file %s", path);
    *out = fd;
    return ERR_OK;
}

enum err query_log_open(struct query_log *l, const char *path, struct errinfo *ei)
{
    *l = (struct query_log){.path = path, .fd = -1};
    return path == NULL ? ERR_OK : file_open(path, &l->fd, ei);
}

void query_log_close(struct query_log *l)
{
    if (l->path != NULL && l->fd >= 0)
        (void)close(l->fd); /* nothing to lose: the kernel has every line */
    l->path = NULL;
}

enum err query_log_reopen(struct query_log *l, struct errinfo *ei)
{
    enum err e = ERR_OK;
    int fd = -1;

    if (l->path == NULL)
        return ERR_OK;
    e = file_open(l->path, &fd, ei);
    if (e != ERR_OK)
        return e;
    /* In one step, so that writers need no lock. */
    if (dup3(fd, l->fd, O_CLOEXEC) < 0)
        e = errinfo_set(ei, ERR_IO, errno, "query log file %s", l->path);
    (void)close(fd); /* l->fd is its copy */
    return e;
}

void query_log_write(struct query_log *l, struct byte_writer *line)
{
    ssize_t size = -1;

    writer_u8(line, '\n');
    if (!line->failed)
        size = write(l->fd, line->data, line->size); /* allow(write): as above */
    if (size < 0 || (size_t)size != line->size)
        atomic_fetch_add_explicit(&l->failures, 1, memory_order_relaxed);
}

void query_log_write_time(struct byte_writer *w, int64_t t_ms)
{
    int64_t ms = t_ms % 1000 < 0 ? t_ms % 1000 + 1000 : t_ms % 1000;
    time_t seconds = (time_t)((t_ms - ms) / 1000);
    struct tm tm = {0};
    char text[64] = "";

    if (gmtime_r(&seconds, &tm) != NULL)
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm); /* fits */
    writer_printf(w, "\"%s.%03" PRId64 "Z\"", text, ms);
}
