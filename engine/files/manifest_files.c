/*
 * The manifest in memory: lists that grow and shrink, names of files, and what on disk is debris.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/files/manifest_internal.h"
#include "wal/wal.h"

void manifest_done(struct manifest *m)
{
    free(m->covered_sequences);
    free(m->files);
    free(m->parts);
    tombstone_list_unref(m->tombstones);
    purge_list_unref(m->purges);
    *m = (struct manifest){0};
}

enum err manifest_copy(const struct manifest *m, struct manifest *out, struct errinfo *ei)
{
    struct manifest copy = *m;
    bool sequences = m->covered_sequences != NULL;

    copy.covered_sequences = NULL;
    copy.tombstones = tombstone_list_ref(m->tombstones);
    copy.purges = purge_list_ref(m->purges);
    copy.file_capacity = m->file_count + 1;
    copy.part_capacity = m->part_count + 1;
    copy.files = calloc(copy.file_capacity, sizeof *copy.files);
    copy.parts = calloc(copy.part_capacity, sizeof *copy.parts);
    if (copy.files == NULL || copy.parts == NULL ||
        (sequences && manifest_sequences_reserve(&copy, NULL) != ERR_OK)) {
        manifest_done(&copy);
        return errinfo_set(ei, ERR_NOMEM, 0, "copy of the manifest");
    }
    if (m->file_count > 0)
        memcpy(copy.files, m->files, m->file_count * sizeof *copy.files);
    if (m->part_count > 0)
        memcpy(copy.parts, m->parts, m->part_count * sizeof *copy.parts);
    if (sequences)
        memcpy(copy.covered_sequences, m->covered_sequences,
               m->shard_count * sizeof *copy.covered_sequences);
    *out = copy;
    return ERR_OK;
}

enum err manifest_sequences_reserve(struct manifest *m, struct errinfo *ei)
{
    if (m->covered_sequences == NULL)
        m->covered_sequences = calloc(m->shard_count, sizeof *m->covered_sequences);
    if (m->covered_sequences == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "manifest of %" PRIu32 " shards", m->shard_count);
    return ERR_OK;
}

/* Room for one more item; NULL without memory, and the old array stays. */
static void *items_reserve(void *items, size_t count, size_t *capacity, size_t size)
{
    size_t wanted = *capacity == 0 ? 16 : *capacity * 2;
    void *grown;

    if (count < *capacity)
        return items;
    grown = reallocarray(items, wanted, size);
    if (grown != NULL)
        *capacity = wanted;
    return grown;
}

struct manifest_file *manifest_file_find(const struct manifest *m, uint64_t number)
{
    for (size_t i = 0; i < m->file_count; i++) {
        if (m->files[i].number == number)
            return &m->files[i];
    }
    return NULL;
}

enum err manifest_file_add(struct manifest *m, const struct manifest_file *file, struct errinfo *ei)
{
    struct manifest_file *files;

    ASSERT(file->number > 0 && file->number < UINT64_MAX);
    if (manifest_file_find(m, file->number) != NULL)
        return errinfo_set(ei, ERR_EXISTS, 0, "file %" PRIu64 " in the manifest", file->number);
    files = items_reserve(m->files, m->file_count, &m->file_capacity, sizeof *files);
    if (files == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "manifest of %zu files", m->file_count);
    m->files = files;
    files[m->file_count++] = *file;
    if (m->next_file_number <= file->number)
        m->next_file_number = file->number + 1;
    return ERR_OK;
}

bool manifest_file_remove(struct manifest *m, uint64_t number)
{
    struct manifest_file *f = manifest_file_find(m, number);

    if (f == NULL)
        return false;
    *f = m->files[--m->file_count];
    return true;
}

struct manifest_part *manifest_part_find(const struct manifest *m, const struct part_key *key)
{
    for (size_t i = 0; i < m->part_count; i++) {
        if (part_key_equal(&m->parts[i].key, key))
            return &m->parts[i];
    }
    return NULL;
}

enum err manifest_part_add(struct manifest *m, const struct manifest_part *part, struct errinfo *ei)
{
    struct manifest_part *parts;

    if (manifest_part_find(m, &part->key) != NULL)
        return errinfo_set(ei, ERR_EXISTS, 0, "a part of shard %" PRIu32 " in the manifest",
                           part->key.shard);
    parts = items_reserve(m->parts, m->part_count, &m->part_capacity, sizeof *parts);
    if (parts == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "manifest of %zu parts", m->part_count);
    m->parts = parts;
    parts[m->part_count++] = *part;
    return ERR_OK;
}

bool manifest_part_remove(struct manifest *m, const struct part_key *key)
{
    struct manifest_part *p = manifest_part_find(m, key);

    if (p == NULL)
        return false;
    *p = m->parts[--m->part_count];
    return true;
}

/* ---- names ---- */

static const char *const kind_suffixes[] = {
    [MANIFEST_SEALED] = ".sealed",
    [MANIFEST_LATE] = ".late",
    [MANIFEST_SERIES] = ".series",
};

void manifest_file_path(const struct manifest_file *file, char out[MANIFEST_PATH_SIZE])
{
    int n = snprintf(out, MANIFEST_PATH_SIZE, MANIFEST_SHARDS_DIR "/%04" PRIu32 "-%010" PRIu64 "%s",
                     file->shard, file->number, kind_suffixes[file->kind]);

    ASSERT(n > 0 && n < MANIFEST_PATH_SIZE);
}

/* Decimal digits up to `max`; false if there are none or too many. */
static bool digits_parse(const char **p, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    const char *start = *p;

    for (; **p >= '0' && **p <= '9'; ++*p) {
        uint64_t digit = (uint64_t)(**p - '0');

        if (v > (max - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return *p != start;
}

bool manifest_file_name_parse(const char *name, enum manifest_kind *kind, uint32_t *shard,
                              uint64_t *number)
{
    char expected[MANIFEST_PATH_SIZE];
    struct manifest_file f = {0};
    const char *p = name;
    uint64_t v;

    if (!digits_parse(&p, WAL_SHARD_COUNT_MAX - 1, &v) || *p++ != '-')
        return false;
    f.shard = (uint32_t)v;
    if (!digits_parse(&p, UINT64_MAX - 9, &f.number) || f.number == 0)
        return false;
    for (int k = MANIFEST_SEALED; k <= MANIFEST_SERIES; k++) {
        if (strcmp(p, kind_suffixes[k]) == 0)
            f.kind = (enum manifest_kind)k;
    }
    if (f.kind == 0)
        return false;
    /* Only the canonical spelling: else one file could stand there twice. */
    manifest_file_path(&f, expected);
    if (strcmp(expected + sizeof MANIFEST_SHARDS_DIR, name) != 0)
        return false;
    *kind = f.kind;
    *shard = f.shard;
    *number = f.number;
    return true;
}

/* ---- debris ---- */

struct debris {
    const struct manifest *m;
    struct manifest_paths paths;
};

void manifest_paths_done(struct manifest_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->items[i]);
    free((void *)paths->items);
    *paths = (struct manifest_paths){0};
}

static enum err paths_add(struct manifest_paths *paths, const char *dir, const char *name,
                          struct errinfo *ei)
{
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    char **items =
        items_reserve((void *)paths->items, paths->count, &paths->capacity, sizeof *items);

    if (items != NULL)
        paths->items = items;
    if (path == NULL || items == NULL) {
        free(path);
        return errinfo_set(ei, ERR_NOMEM, 0, "list of files");
    }
    (void)snprintf(path, size, "%s%s%s", dir, dir[0] != '\0' ? "/" : "", name); /* it fits */
    paths->items[paths->count++] = path;
    return ERR_OK;
}

static enum err shards_visit(void *ctx, const char *name, struct errinfo *ei)
{
    struct debris *d = ctx;
    enum manifest_kind kind;
    const struct manifest_file *f;
    uint32_t shard;
    uint64_t number;

    if (!manifest_file_name_parse(name, &kind, &shard, &number))
        return ERR_OK;
    f = manifest_file_find(d->m, number);
    if (f != NULL && f->kind == kind && f->shard == shard)
        return ERR_OK;
    return paths_add(&d->paths, MANIFEST_SHARDS_DIR, name, ei);
}

static enum err parts_visit(void *ctx, const char *name, struct errinfo *ei)
{
    struct debris *d = ctx;
    struct part_key key;
    enum part_file file;
    bool temporary;

    if (!part_name_parse(name, &key, &file, &temporary))
        return ERR_OK;
    if (!temporary && manifest_part_find(d->m, &key) != NULL)
        return ERR_OK;
    return paths_add(&d->paths, MANIFEST_PARTS_DIR, name, ei);
}

static enum err folder_visit(struct fs *fs, const char *dir,
                             enum err (*visit)(void *, const char *, struct errinfo *),
                             struct debris *d, struct errinfo *ei)
{
    bool exists;
    enum err e = fs_exists(fs, dir, &exists, ei);

    return e == ERR_OK && exists ? fs_list(fs, dir, visit, d, ei) : e;
}

enum err manifest_debris(struct fs *fs, const struct manifest *m, struct manifest_paths *out,
                         struct errinfo *ei)
{
    struct debris d = {.m = m};
    bool exists;
    enum err e = fs_exists(fs, MANIFEST_TEMP_PATH, &exists, ei);

    if (e == ERR_OK && exists)
        e = paths_add(&d.paths, "", MANIFEST_TEMP_PATH, ei);
    if (e == ERR_OK)
        e = folder_visit(fs, MANIFEST_SHARDS_DIR, shards_visit, &d, ei);
    if (e == ERR_OK)
        e = folder_visit(fs, MANIFEST_PARTS_DIR, parts_visit, &d, ei);
    if (e != ERR_OK) {
        manifest_paths_done(&d.paths);
        return e;
    }
    *out = d.paths;
    return ERR_OK;
}
