#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

/* pthread calls return their error instead of setting errno; every one here means misuse. */
static void must(int rc)
{
    ASSERT(rc == 0);
}

void mutex_init(struct mutex *m)
{
    must(pthread_mutex_init(&m->handle, NULL));
}

void mutex_done(struct mutex *m)
{
    must(pthread_mutex_destroy(&m->handle));
}

void mutex_lock(struct mutex *m)
{
    must(pthread_mutex_lock(&m->handle));
}

bool mutex_trylock(struct mutex *m)
{
    int rc = pthread_mutex_trylock(&m->handle);

    ASSERT(rc == 0 || rc == EBUSY);
    return rc == 0;
}

void mutex_unlock(struct mutex *m)
{
    must(pthread_mutex_unlock(&m->handle));
}

void rwlock_init(struct rwlock *l)
{
    pthread_rwlockattr_t attr;

    must(pthread_rwlockattr_init(&attr));
    /* The default lets a steady stream of readers starve writers for good. */
    must(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
    must(pthread_rwlock_init(&l->handle, &attr));
    must(pthread_rwlockattr_destroy(&attr));
}

void rwlock_done(struct rwlock *l)
{
    must(pthread_rwlock_destroy(&l->handle));
}

void rwlock_read_lock(struct rwlock *l)
{
    must(pthread_rwlock_rdlock(&l->handle));
}

void rwlock_read_unlock(struct rwlock *l)
{
    must(pthread_rwlock_unlock(&l->handle));
}

void rwlock_write_lock(struct rwlock *l)
{
    must(pthread_rwlock_wrlock(&l->handle));
}

void rwlock_write_unlock(struct rwlock *l)
{
    must(pthread_rwlock_unlock(&l->handle));
}

void cond_init(struct cond *c)
{
    pthread_condattr_t attr;

    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(&c->handle, &attr));
    must(pthread_condattr_destroy(&attr));
}

void cond_done(struct cond *c)
{
    must(pthread_cond_destroy(&c->handle));
}

void cond_wait(struct cond *c, struct mutex *m)
{
    must(pthread_cond_wait(&c->handle, &m->handle));
}

bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                          .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000))};
    int rc = pthread_cond_timedwait(&c->handle, &m->handle, &ts);

    ASSERT(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void cond_signal(struct cond *c)
{
    must(pthread_cond_signal(&c->handle));
}

void cond_broadcast(struct cond *c)
{
    must(pthread_cond_broadcast(&c->handle));
}

enum err thread_start(struct thread *t, const char *name, void *(*run)(void *), void *arg,
                      struct errinfo *ei)
{
    sigset_t all, before;
    char short_name[16];

    t->started = false;
    /* A thread inherits its creator's mask: blocking here leaves no moment in which the new thread
     * could take a signal meant for main(). */
    must(sigfillset(&all));
    must(pthread_sigmask(SIG_SETMASK, &all, &before));
    int rc = pthread_create(&t->handle, NULL, run, arg);
    must(pthread_sigmask(SIG_SETMASK, &before, NULL));
    if (rc != 0)
        return errinfo_set(ei, rc == EAGAIN ? ERR_LIMIT : ERR_NOMEM, rc, "start thread %s", name);
    (void)snprintf(short_name, sizeof short_name, "%s", name); /* cut to what the kernel takes */
    (void)pthread_setname_np(t->handle, short_name);           /* only for ps and debuggers */
    t->started = true;
    return ERR_OK;
}

void thread_set_nice(int nice)
{
    /* On Linux a thread's id names the thread alone, against what POSIX says of processes. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice); /* only a wish */
}

void thread_join(struct thread *t)
{
    if (!t->started)
        return;
    must(pthread_join(t->handle, NULL));
    t->started = false;
}

/* CPUs in this process's affinity mask; 0 when the kernel does not say. */
static uint32_t affinity_cpu_count(void)
{
    /* The kernel refuses (EINVAL) a mask smaller than its own. */
    for (int cpu_max = 1024; cpu_max <= 1 << 20; cpu_max *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpu_max);
        size_t size = CPU_ALLOC_SIZE((size_t)cpu_max);

        if (set == NULL)
            return 0;
        int rc = sched_getaffinity(0, size, set);
        int saved = errno;
        uint32_t count = rc == 0 ? (uint32_t)CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0 || saved != EINVAL)
            return count;
    }
    return 0;
}

/* The first bytes of a small pseudo-file as text; false when there is no such file. */
static bool read_small_file(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, size - 1);
    (void)close(fd); /* read only: nothing to lose */
    if (n < 0)
        return false;
    out[n] = '\0';
    return true;
}

/* CPUs allowed by one cpu.max file ("quota period" or "max period"), rounded up; UINT32_MAX: no
 * limit. */
static uint32_t cpu_max_parse(const char *text)
{
    char *end;

    errno = 0;
    long long quota = strtoll(text, &end, 10);
    if (errno != 0 || end == text || quota <= 0)
        return UINT32_MAX;
    const char *second = end;
    long long period = strtoll(second, &end, 10);
    if (errno != 0 || end == second || period <= 0)
        return UINT32_MAX;
    long long cpus = quota / period + (quota % period != 0);
    return cpus < UINT32_MAX ? (uint32_t)cpus : UINT32_MAX;
}

/* The smallest quota from our control group (version 2) up to the root. Inside a container's
 * namespace the root is the container's own group. */
static uint32_t cgroup2_cpu_limit(void)
{
    char group[PATH_MAX / 2], path[PATH_MAX], text[64];
    uint32_t limit = UINT32_MAX;

    if (!read_small_file("/proc/self/cgroup", group, sizeof group))
        return limit;
    char *start = strstr(group, "0::/");
    if (start == NULL)
        return limit;
    start += strlen("0::");
    start[strcspn(start, "\n")] = '\0';
    for (;;) {
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", start); /* always fits */
        if (read_small_file(path, text, sizeof text)) {
            uint32_t cpus = cpu_max_parse(text);

            limit = cpus < limit ? cpus : limit;
        }
        char *slash = strrchr(start, '/');
        if (slash == NULL)
            return limit;
        *slash = '\0'; /* the parent; the empty string is the root */
    }
}

static uint32_t cgroup1_cpu_limit(void)
{
    char quota[32], period[32], both[72];

    if (!read_small_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_small_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period))
        return UINT32_MAX;
    (void)snprintf(both, sizeof both, "%s %s", quota, period); /* always fits */
    return cpu_max_parse(both);
}

uint32_t thread_cpu_count(void)
{
    uint32_t count = affinity_cpu_count();
    uint32_t limit_2 = cgroup2_cpu_limit(), limit_1 = cgroup1_cpu_limit();

    if (count == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);

        count = online > 0 ? (uint32_t)online : 1;
    }
    count = limit_2 < count ? limit_2 : count;
    count = limit_1 < count ? limit_1 : count;
    return count > 0 ? count : 1;
}
