/*
 * Opens a snapshot: its files are copied to a simulated disk of their own first.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/inspect.h"
#include "tests/compactor/life_kit.h"

struct copying {
    struct fs *from, *to;
    const char *from_dir, *to_dir; /* "" or "name/" behind which a file's name comes */
    size_t count;
};

static bool is_folder(const char *name)
{
    return strcmp(name, "wal") == 0 || strcmp(name, MANIFEST_SHARDS_DIR) == 0 ||
           strcmp(name, MANIFEST_PARTS_DIR) == 0;
}

static enum err copy_entry(void *ctx, const char *name, struct errinfo *ei)
{
    struct copying *c = ctx;
    char from[MANIFEST_PATH_SIZE], to[MANIFEST_PATH_SIZE];
    uint8_t *data;
    size_t size;

    (void)ei;
    if (is_folder(name))
        return ERR_OK;
    (void)snprintf(from, sizeof from, "%s%s", c->from_dir, name);
    (void)snprintf(to, sizeof to, "%s%s", c->to_dir, name);
    data = test_file_read(c->from, from, &size);
    test_file_create(c->to, to, data, size);
    free(data);
    c->count++;
    return ERR_OK;
}

static void copy_folder(struct copying *c, const char *path, const char *folder)
{
    char dir[MANIFEST_PATH_SIZE], from[MANIFEST_PATH_SIZE], to[MANIFEST_PATH_SIZE];
    struct errinfo ei = {0};
    bool exists;

    (void)snprintf(dir, sizeof dir, "%.100s%s%s", path, folder[0] == '\0' ? "" : "/", folder);
    CHECK_OK(fs_exists(c->from, dir, &exists, &ei), &ei);
    if (!exists)
        return;
    if (folder[0] != '\0')
        CHECK_OK(fs_mkdir(c->to, folder, &ei), &ei);
    (void)snprintf(from, sizeof from, "%.200s/", dir);
    (void)snprintf(to, sizeof to, "%.200s%s", folder, folder[0] == '\0' ? "" : "/");
    c->from_dir = from;
    c->to_dir = to;
    CHECK_OK(fs_list(c->from, dir, copy_entry, c, &ei), &ei);
}

static void damage_fails(void *ctx, const struct inspect_finding *f)
{
    const bool *log_may_be_torn = ctx;

    /* What no sync has covered may be there in any order: frames, too, behind a lost header. */
    if (*log_may_be_torn && strncmp(f->path, "wal/", 4) == 0)
        return;
    CHECK_MSG(!f->is_damage, "%s: offset %" PRIu64 ": %s", f->path, f->offset, f->what);
}

void life_verify(struct fs *fs, bool log_may_be_torn)
{
    const struct inspect_options o = {.fs = fs, .thread_count = 1};
    struct inspect_verify_result result;
    struct errinfo ei = {0};

    enum err e = inspect_verify(&o, damage_fails, &log_may_be_torn, &result, &ei);

    CHECK_MSG(e == ERR_OK || e == ERR_NOT_FOUND, "%s", ei.message); /* a crash in the first start */
}

void life_check_snapshot(struct life *l, const char *path)
{
    struct copying c = {.from = l->fs, .to = test_fs_new(1)};
    struct life copy;

    copy_folder(&c, path, "");
    copy_folder(&c, path, "wal");
    copy_folder(&c, path, MANIFEST_SHARDS_DIR);
    copy_folder(&c, path, MANIFEST_PARTS_DIR);
    CHECK(c.count > 0);
    life_verify(c.to, false);
    life_init_like(&copy, c.to, l);
    copy.shard_count = 0;
    life_model_forget(&copy.model); /* a snapshot has no purges, and nothing of what they hid */
    life_open_checked(&copy);
    life_check(&copy);
    life_check_files(&copy);
    life_done(&copy);
}
