/*
 * Snapshots: names and reports; what is copied how is the engine's.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "compactor/compactor_internal.h"

/* "20261129T194500Z-0123456789abcdef" */
static enum err name_make(const struct compactor *c, char name[COMPACTOR_SNAPSHOT_NAME_SIZE],
                          struct errinfo *ei)
{
    time_t seconds = (time_t)(clock_now_ms(c->options.clock) / 1000);
    struct tm parts;
    uint64_t random = 0;
    size_t size;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return errinfo_set(ei, ERR_IO, errno, "random bytes for a snapshot's name");
    if (gmtime_r(&seconds, &parts) == NULL)
        return errinfo_set(ei, ERR_INTERNAL, errno, "a snapshot's name");
    size = strftime(name, COMPACTOR_SNAPSHOT_NAME_SIZE, "%Y%m%dT%H%M%SZ", &parts);
    if (size == 0 || size > COMPACTOR_SNAPSHOT_NAME_SIZE - 18)
        return errinfo_set(ei, ERR_INTERNAL, 0, "the year has too many digits");
    (void)snprintf(name + size, COMPACTOR_SNAPSHOT_NAME_SIZE - size, "-%016" PRIx64, random);
    return ERR_OK;
}

/* A name of name_make(), or what is left of its snapshot: *size without the suffix. */
static bool is_left_over(const char *name, size_t *size)
{
    static const char suffix[] = ENGINE_SNAPSHOT_SUFFIX;
    static const char form[] = "00000000T000000Z-xxxxxxxxxxxxxxxx";

    *size = sizeof form - 1;
    if (strlen(name) != *size + sizeof suffix - 1 || strcmp(name + *size, suffix) != 0)
        return false;
    for (size_t i = 0; i < *size; i++) {
        const char *allowed = form[i] == '0' ? "0123456789" : "0123456789abcdef";
        bool is_fixed = form[i] != '0' && form[i] != 'x';

        if (is_fixed ? name[i] != form[i] : strchr(allowed, name[i]) == NULL)
            return false;
    }
    return true;
}

static enum err left_over_remove(void *ctx, const char *name, struct errinfo *ei)
{
    struct compactor *c = ctx;
    char path[COMPACTOR_SNAPSHOT_NAME_SIZE + 16];
    struct errinfo own = {0};
    size_t size;

    (void)ei;
    if (!is_left_over(name, &size))
        return ERR_OK;
    (void)snprintf(path, sizeof path, COMPACTOR_SNAPSHOT_DIR "/%.*s", (int)size, name); /* fits */
    if (engine_snapshot_discard(c->engine, path, &own) == ERR_OK)
        LOG_INFO("removed what a snapshot that was cut off had left", LOG_STR("path", path));
    else
        LOG_WARN("a snapshot that was cut off stays", LOG_STR("path", path),
                 LOG_STR("error", own.message));
    return ERR_OK;
}

void compactor_snapshots_sweep(struct compactor *c)
{
    struct errinfo ei = {0};
    bool exists = false;
    enum err e = fs_exists(c->options.fs, COMPACTOR_SNAPSHOT_DIR, &exists, &ei);

    if (e == ERR_OK && exists)
        e = fs_list(c->options.fs, COMPACTOR_SNAPSHOT_DIR, left_over_remove, c, &ei);
    if (e != ERR_OK)
        LOG_WARN("snapshots cannot be looked at", LOG_STR("error", ei.message));
}

enum err compactor_snapshot(struct compactor *c, const _Atomic bool *stop,
                            char name[COMPACTOR_SNAPSHOT_NAME_SIZE], struct errinfo *ei)
{
    const struct maintain_control control = {.stop = stop == NULL ? &c->stop : stop};
    uint64_t start_ns = clock_mono_ns();
    char made[COMPACTOR_SNAPSHOT_NAME_SIZE], path[COMPACTOR_SNAPSHOT_NAME_SIZE + 16];
    enum err e = name_make(c, made, ei);

    if (e == ERR_OK)
        e = fs_mkdir(c->options.fs, COMPACTOR_SNAPSHOT_DIR, ei);
    if (e == ERR_OK)
        e = fs_sync_dir(c->options.fs, ".", ei);
    if (e != ERR_OK)
        return e;
    (void)snprintf(path, sizeof path, COMPACTOR_SNAPSHOT_DIR "/%s", made); /* fits */
    e = engine_snapshot(c->engine, path, &control, ei);
    if (e != ERR_OK)
        return e;
    LOG_INFO("snapshot made", LOG_STR("path", path),
             LOG_F64("seconds", (double)(clock_mono_ns() - start_ns) / 1e9));
    memcpy(name, made, sizeof made);
    return ERR_OK;
}
