/*
 * Damaged files at a start: kept under another name for whoever wants to look, named in the log,
 * counted. The store goes on with the rest.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/seal/restart_internal.h"

/* "shards/damaged-0003-0000000042.sealed". */
static void aside_path(const char *path, char out[MANIFEST_PATH_SIZE])
{
    const char *name = strrchr(path, '/');
    int folder = name == NULL ? 0 : (int)(name + 1 - path);
    int n = snprintf(out, MANIFEST_PATH_SIZE, "%.*s" SET_ASIDE_PREFIX "%s", folder, path,
                     path + folder);

    ASSERT(n > 0 && n < MANIFEST_PATH_SIZE);
}

enum err set_aside(struct engine *e, const char *path, const struct errinfo *story,
                   struct errinfo *ei)
{
    char aside[MANIFEST_PATH_SIZE];
    bool exists = false;
    enum err err = fs_exists(e->fs, path, &exists, ei);

    aside_path(path, aside);
    if (err == ERR_OK && exists && !e->is_read_only)
        err = fs_rename(e->fs, path, aside, ei);
    if (err != ERR_OK)
        return err;
    atomic_fetch_add_explicit(&e->files_set_aside, 1, memory_order_relaxed);
    LOG_ERROR(!exists           ? "a file is missing; what only it held is lost"
              : e->is_read_only ? "a damaged file is passed over"
                                : "a damaged file is set aside; what only it holds is lost",
              LOG_STR("file", path),
              LOG_STR("set_aside_as", exists && !e->is_read_only ? aside : ""),
              LOG_STR("error", story->message));
    return ERR_OK;
}

enum err set_aside_copy(struct engine *e, const char *path, struct errinfo *ei)
{
    char aside[MANIFEST_PATH_SIZE];
    bool exists = false, done = false;
    enum err err = fs_exists(e->fs, path, &exists, ei);

    aside_path(path, aside);
    if (err == ERR_OK)
        err = fs_exists(e->fs, aside, &done, ei);
    return err == ERR_OK && exists && !done && !e->is_read_only ? fs_link(e->fs, path, aside, ei)
                                                                : err;
}

enum err set_aside_part(struct engine *e, const struct part_key *key, const struct errinfo *story,
                        struct errinfo *ei)
{
    static const enum part_file files[] = {PART_FILE_INDEX, PART_FILE_CHUNKS};
    enum err err = ERR_OK;

    for (size_t i = 0; i < sizeof files / sizeof files[0] && err == ERR_OK; i++) {
        char name[PART_NAME_SIZE], path[MANIFEST_PATH_SIZE];
        int n;

        part_name_format(key, files[i], false, name);
        n = snprintf(path, sizeof path, MANIFEST_PARTS_DIR "/%s", name);
        ASSERT(n > 0 && (size_t)n < sizeof path);
        err = set_aside(e, path, story, ei);
    }
    return err;
}
