#include "api/config/machine_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TEXT_SIZE = 4096, READ_BYTES = 16 << 10 };

enum err machine_file_read(const char *path, size_t limit_bytes, struct byte_writer *out,
                           struct errinfo *ei)
{
    /* allow(open): no file of the store's directory */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum err e = ERR_OK;

    if (fd < 0)
        return errinfo_set(ei, err_from_errno(errno), errno, "open %s", path);
    for (;;) {
        uint8_t *to = writer_reserve(out, READ_BYTES);
        ssize_t size = to == NULL ? 0 : read(fd, to, READ_BYTES); /* allow(read): as above */

        if (to == NULL)
            e = errinfo_set(ei, ERR_NOMEM, 0, "read %s", path);
        else if (size < 0 && errno != EINTR)
            e = errinfo_set(ei, ERR_IO, errno, "read %s", path);
        else if (size > 0)
            out->size += (size_t)size;
        if (e == ERR_OK && out->size > limit_bytes)
            e = errinfo_set(ei, ERR_LIMIT, 0, "%s is larger than %zu bytes", path, limit_bytes);
        if (e != ERR_OK || size == 0)
            break;
    }
    (void)close(fd); /* read only: nothing to lose */
    return e;
}

/* Reads a small file of the kernel's as text; false when there is none. */
static bool text_read(const char *path, char out[TEXT_SIZE])
{
    struct byte_writer w;
    bool ok = false;

    writer_init(&w);
    ok = machine_file_read(path, TEXT_SIZE - 1, &w, NULL) == ERR_OK && !w.failed;
    if (ok) {
        if (w.size > 0)
            memcpy(out, w.data, w.size);
        out[w.size] = '\0';
    }
    writer_done(&w);
    return ok;
}

/* A limit file's number; UINT64_MAX for "max" or none. */
static uint64_t limit_read(const char *path)
{
    char text[TEXT_SIZE];
    char *end = NULL;
    uint64_t v = 0;

    if (!text_read(path, text))
        return UINT64_MAX;
    v = strtoull(text, &end, 10);
    return end == text || v == 0 ? UINT64_MAX : v;
}

/* The smallest limit of our control group and of those above it (version 2). */
static uint64_t cgroup_limit(void)
{
    char text[TEXT_SIZE], path[TEXT_SIZE + 64];
    uint64_t least = limit_read("/sys/fs/cgroup/memory.max");
    char *group = NULL;

    if (!text_read("/proc/self/cgroup", text) || (group = strstr(text, "0::")) == NULL)
        return least;
    group += 3;
    group[strcspn(group, "\n")] = '\0';
    while (group[0] == '/' && group[1] != '\0') {
        uint64_t v = 0;

        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group); /* fits */
        v = limit_read(path);
        least = v < least ? v : least;
        *strrchr(group, '/') = '\0';
    }
    return least;
}

uint64_t machine_memory_bytes(void)
{
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);
    uint64_t least = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t v2 = cgroup_limit();
    uint64_t v1 = limit_read("/sys/fs/cgroup/memory/memory.limit_in_bytes");

    least = v2 < least ? v2 : least;
    return v1 < least ? v1 : least;
}

uint64_t machine_fd_limit(void)
{
    struct rlimit limit = {0};

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

void machine_raise_fd_limit(void)
{
    struct rlimit limit = {0};

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* else the soft limit goes on to hold */
}
