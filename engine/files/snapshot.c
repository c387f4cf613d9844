/*
 * Snapshots: a second directory that opens as a store, with what the first one had in files.
 *
 * After all shards are sealed, a copy of the manifest is taken and every file it names gets a
 * second name at once, while nobody exchanges files; so none of them can go. What never changes
 * again keeps that name. Files that still grow, or have something behind their durable size, are
 * copied up to it then, and only the copy stays: a file that is appended to is never shared between
 * directories.
 *
 * All of it is made under a temporary name, which is the last thing to change.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/flush/flush_internal.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/part/part_store_internal.h"
#include "engine/seal/seal_internal.h"

enum { COPY_BYTES = 1 << 20, SNAPSHOT_PATH_SIZE = 3 * MANIFEST_PATH_SIZE };

struct snapshot {
    struct engine *engine;
    const struct maintain_control *control;
    const char *path;
    char temporary[MANIFEST_PATH_SIZE];
    struct manifest manifest; /* what the snapshot is */
    bool *is_copied;          /* owned: by file of the manifest: not only linked */
    uint8_t *buffer;          /* owned */
};

static const char *const folders[] = {MANIFEST_SHARDS_DIR, MANIFEST_PARTS_DIR};
enum { FOLDER_COUNT = sizeof folders / sizeof *folders };
static const char pin_suffix[] = ".pin"; /* a file that is to be copied */

static void path_in(const struct snapshot *s, const char *name, const char *suffix,
                    char out[SNAPSHOT_PATH_SIZE])
{
    int size = snprintf(out, SNAPSHOT_PATH_SIZE, "%s/%s%s", s->temporary, name, suffix);

    ASSERT(size < SNAPSHOT_PATH_SIZE); /* names of ours are shorter than MANIFEST_PATH_SIZE */
}

/* ---- the temporary directory ---- */

struct removal {
    struct fs *fs;
    const char *dir;
};

static enum err name_remove(void *ctx, const char *name, struct errinfo *ei)
{
    const struct removal *r = ctx;
    char path[SNAPSHOT_PATH_SIZE + MANIFEST_PATH_SIZE];

    if (snprintf(path, sizeof path, "%s/%s", r->dir, name) >= (int)sizeof path)
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: a name is too long", r->dir);
    return fs_unlink(r->fs, path, ei);
}

static enum err folder_remove(struct fs *fs, const char *dir, struct errinfo *ei)
{
    struct removal r = {fs, dir};
    bool exists = false;
    enum err err = fs_exists(fs, dir, &exists, ei);

    if (err != ERR_OK || !exists)
        return err;
    err = fs_list(fs, dir, name_remove, &r, ei);
    return err == ERR_OK ? fs_unlink(fs, dir, ei) : err;
}

static enum err temporary_remove(const struct snapshot *s, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (int i = 0; i < FOLDER_COUNT && err == ERR_OK; i++) {
        char dir[SNAPSHOT_PATH_SIZE];

        path_in(s, folders[i], "", dir);
        err = folder_remove(s->engine->fs, dir, ei);
    }
    return err == ERR_OK ? folder_remove(s->engine->fs, s->temporary, ei) : err;
}

static enum err temporary_make(const struct snapshot *s, struct errinfo *ei)
{
    struct fs *fs = s->engine->fs;
    bool exists = false;
    enum err err = fs_exists(fs, s->path, &exists, ei);

    if (err == ERR_OK && exists)
        err = errinfo_set(ei, ERR_EXISTS, 0, "%s is there already", s->path);
    if (err == ERR_OK) /* of a snapshot that was cut off */
        err = temporary_remove(s, ei);
    if (err == ERR_OK)
        err = fs_mkdir(fs, s->temporary, ei);
    for (int i = 0; i < FOLDER_COUNT && err == ERR_OK; i++) {
        char dir[SNAPSHOT_PATH_SIZE];

        path_in(s, folders[i], "", dir);
        err = fs_mkdir(fs, dir, ei);
    }
    return err;
}

/* ---- second names ---- */

/* Caller holds maintain_lock. */
static bool is_growing(const struct shard *s, const struct manifest_file *f)
{
    if (f->kind == MANIFEST_SERIES)
        return true;
    for (size_t i = 0; s->sealer != NULL && i < s->sealer->file_count; i++) {
        if (s->sealer->files[i].source->number == f->number)
            return true;
    }
    return false;
}

static enum err size_of(struct fs *fs, const char *path, uint64_t *out, struct errinfo *ei)
{
    struct file *file = NULL;
    enum err err = file_open(fs, path, FILE_READ, &file, ei);

    if (err == ERR_OK)
        err = file_size(file, out, ei);
    file_close(file);
    return err;
}

static enum err file_link(struct snapshot *s, size_t i, struct errinfo *ei)
{
    const struct manifest_file *f = &s->manifest.files[i];
    char path[MANIFEST_PATH_SIZE], to[SNAPSHOT_PATH_SIZE];
    uint64_t size = 0;
    enum err err;

    manifest_file_path(f, path);
    err = size_of(s->engine->fs, path, &size, ei);
    if (err != ERR_OK)
        return err;
    s->is_copied[i] = size != f->durable_size || f->shard_count != s->engine->shard_count ||
                      is_growing(&s->engine->shards[f->shard], f);
    path_in(s, path, s->is_copied[i] ? pin_suffix : "", to);
    return fs_link(s->engine->fs, path, to, ei);
}

static enum err part_link(struct snapshot *s, const struct part_key *key, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (int file = PART_FILE_INDEX; file <= PART_FILE_CHUNKS && err == ERR_OK; file++) {
        char *path = part_path_new(MANIFEST_PARTS_DIR, key, (enum part_file)file, false);
        char to[SNAPSHOT_PATH_SIZE];

        if (path == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "snapshot");
        path_in(s, path, "", to);
        err = fs_link(s->engine->fs, path, to, ei);
        free(path);
    }
    return err;
}

/* While the maintain_locks of all shards are held: what the manifest names stays. */
static enum err all_link(struct snapshot *s, struct errinfo *ei)
{
    struct engine *e = s->engine;
    enum err err;

    mutex_lock(&e->manifest_lock);
    err = manifest_copy(&e->manifest, &s->manifest, ei);
    mutex_unlock(&e->manifest_lock);
    if (err != ERR_OK)
        return err;
    /* It holds no rules that could take a purge back: what is hidden stays so. */
    purge_list_unref(s->manifest.purges);
    s->manifest.purges = NULL;
    s->is_copied = calloc(s->manifest.file_count + 1, sizeof *s->is_copied);
    if (s->is_copied == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "snapshot");
    for (size_t i = 0; i < s->manifest.file_count && err == ERR_OK; i++)
        err = file_link(s, i, ei);
    for (size_t i = 0; i < s->manifest.part_count && err == ERR_OK; i++)
        err = part_link(s, &s->manifest.parts[i].key, ei);
    return err;
}

/* ---- copies ---- */

static enum err bytes_copy(struct snapshot *s, struct file *from, struct file *to, uint64_t size,
                           struct errinfo *ei)
{
    for (uint64_t at = 0, n; at < size; at += n) {
        enum err err;

        n = size - at < COPY_BYTES ? size - at : COPY_BYTES;
        if ((err = file_read(from, s->buffer, (size_t)n, at, ei)) != ERR_OK ||
            (err = file_write_bytes(to, s->buffer, (size_t)n, at, ei)) != ERR_OK ||
            (err = maintain_tick(s->control, "stopped", ei)) != ERR_OK)
            return err;
    }
    return file_sync(to, ei);
}

static enum err file_copy(struct snapshot *s, const struct manifest_file *f, struct errinfo *ei)
{
    struct fs *fs = s->engine->fs;
    char path[MANIFEST_PATH_SIZE], pin[SNAPSHOT_PATH_SIZE], copy[SNAPSHOT_PATH_SIZE];
    struct file *from = NULL, *to = NULL;
    enum err err;

    manifest_file_path(f, path);
    path_in(s, path, pin_suffix, pin);
    path_in(s, path, "", copy);
    err = file_open(fs, pin, FILE_READ, &from, ei);
    if (err == ERR_OK)
        err = file_open(fs, copy, FILE_CREATE, &to, ei);
    if (err == ERR_OK)
        err = bytes_copy(s, from, to, f->durable_size, ei);
    file_close(from);
    file_close(to);
    return err == ERR_OK ? fs_unlink(fs, pin, ei) : err;
}

static enum err manifest_put(struct snapshot *s, struct errinfo *ei)
{
    char path[SNAPSHOT_PATH_SIZE];
    struct file *file = NULL;
    struct byte_writer w;
    enum err err;

    writer_init(&w);
    path_in(s, MANIFEST_PATH, "", path);
    err = manifest_encode(&s->manifest, &w, ei);
    if (err == ERR_OK)
        err = file_open(s->engine->fs, path, FILE_CREATE, &file, ei);
    if (err == ERR_OK)
        err = file_write_bytes(file, w.data, w.size, 0, ei);
    if (err == ERR_OK)
        err = file_sync(file, ei);
    file_close(file);
    writer_done(&w);
    return err;
}

/* ---- all of it ---- */

static enum err shards_seal(const struct snapshot *s, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (uint32_t i = 0; i < s->engine->shard_count && err == ERR_OK; i++) {
        struct seal_result ignored;

        err = engine_seal(s->engine, i, SEAL_FLUSH, s->control, &ignored, ei);
    }
    return err;
}

static enum err contents_make(struct snapshot *s, struct errinfo *ei)
{
    struct fs *fs = s->engine->fs;
    enum err err;

    engine_maintain_lock_all(s->engine);
    err = all_link(s, ei);
    engine_maintain_unlock_all(s->engine);
    for (size_t i = 0; i < s->manifest.file_count && err == ERR_OK; i++) {
        if (s->is_copied[i])
            err = file_copy(s, &s->manifest.files[i], ei);
    }
    if (err == ERR_OK)
        err = manifest_put(s, ei);
    for (int i = 0; i < FOLDER_COUNT && err == ERR_OK; i++) {
        char dir[SNAPSHOT_PATH_SIZE];

        path_in(s, folders[i], "", dir);
        err = fs_sync_dir(fs, dir, ei);
    }
    return err == ERR_OK ? fs_sync_dir(fs, s->temporary, ei) : err;
}

/* The folder that the snapshot's name stands in. */
static void parent_of(const char *path, char out[MANIFEST_PATH_SIZE])
{
    const char *slash = strrchr(path, '/');

    size_t size = slash == NULL ? 1 : (size_t)(slash - path);

    /* engine_snapshot() has looked at its length. */
    memcpy(out, slash == NULL ? "." : path, size);
    out[size] = '\0';
}

static enum err snapshot_run(struct snapshot *s, struct errinfo *ei)
{
    char parent[MANIFEST_PATH_SIZE];
    enum err err = temporary_make(s, ei), ignored;

    if (err != ERR_OK)
        return err;
    parent_of(s->path, parent);
    err = shards_seal(s, ei);
    if (err == ERR_OK)
        err = contents_make(s, ei);
    if (err == ERR_OK)
        err = fs_rename(s->engine->fs, s->temporary, s->path, ei);
    if (err == ERR_OK)
        return fs_sync_dir(s->engine->fs, parent, ei);
    ignored = temporary_remove(s, NULL);
    (void)ignored; /* the next snapshot of that name does it */
    return err;
}

enum err engine_snapshot_discard(struct engine *e, const char *path, struct errinfo *ei)
{
    struct snapshot s = {.engine = e, .path = path};

    if (snprintf(s.temporary, sizeof s.temporary, "%s" ENGINE_SNAPSHOT_SUFFIX, path) >=
        (int)sizeof s.temporary)
        return ERR_OK; /* none of ours */
    return temporary_remove(&s, ei);
}

enum err engine_snapshot(struct engine *e, const char *path, const struct maintain_control *control,
                         struct errinfo *ei)
{
    struct snapshot s = {.engine = e, .control = control, .path = path};
    enum err err = flush_admit(e, ei);

    if (err != ERR_OK)
        return err;
    if (snprintf(s.temporary, sizeof s.temporary, "%s" ENGINE_SNAPSHOT_SUFFIX, path) >=
        (int)sizeof s.temporary)
        return errinfo_set(ei, ERR_LIMIT, 0, "the name of a snapshot is too long");
    s.buffer = malloc(COPY_BYTES);
    err = s.buffer == NULL ? errinfo_set(ei, ERR_NOMEM, 0, "snapshot") : snapshot_run(&s, ei);
    manifest_done(&s.manifest);
    free(s.is_copied);
    free(s.buffer);
    return err;
}
