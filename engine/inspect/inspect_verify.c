/*
 * Verification of a whole data directory. What the manifest names is a list of tasks that threads
 * take one after another; the log brings threads of its own. Each file is read as a start of the
 * server or a query would read it, and then to its last byte.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/inspect/inspect_internal.h"
#include "wal/wal.h"

struct verify {
    const struct inspect_options *o;
    struct manifest manifest;
    struct part_store *parts; /* owned */
    _Atomic size_t next_task; /* relaxed: hands out numbers; parts first, then files */
    struct findings findings; /* thread-safe */
    struct mutex lock;        /* guards result; a leaf */
    struct inspect_verify_result result;
};

struct sealed_identity inspect_sealed_identity(const struct manifest *m,
                                               const struct manifest_file *file)
{
    return (struct sealed_identity){.kind =
                                        file->kind == MANIFEST_LATE ? SEALED_LATE : SEALED_RECENT,
                                    .shard = file->shard,
                                    .shard_count = file->shard_count,
                                    .number = file->number,
                                    .secret_id = m->secret.id};
}

struct series_file_identity inspect_series_identity(const struct manifest *m,
                                                    const struct manifest_file *file)
{
    return (struct series_file_identity){.shard = file->shard,
                                         .shard_count = file->shard_count,
                                         .number = file->number,
                                         .secret_id = m->secret.id};
}

void inspect_part_path(const struct part_key *key, enum part_file file,
                       char out[MANIFEST_PATH_SIZE])
{
    static const char folder[] = MANIFEST_PARTS_DIR "/";

    memcpy(out, folder, sizeof folder - 1);
    part_name_format(key, file, false, out + sizeof folder - 1);
}

static bool is_stopped(const struct verify *v)
{
    /* relaxed: a flag that orders nothing */
    return v->o->stop != NULL && atomic_load_explicit(v->o->stop, memory_order_relaxed);
}

static void count_files(struct verify *v, uint64_t *kind, uint64_t files, uint64_t bytes)
{
    mutex_lock(&v->lock);
    ++*kind;
    v->result.file_count += files;
    v->result.byte_count += bytes;
    mutex_unlock(&v->lock);
}

/* ---- parts ---- */

void inspect_part_bad_path(const struct part_key *key, const struct errinfo *ei,
                           char out[MANIFEST_PATH_SIZE])
{
    inspect_part_path(key, PART_FILE_CHUNKS, out);
    if (strstr(ei->message, out) == NULL)
        inspect_part_path(key, PART_FILE_INDEX, out);
}

static void part_check(struct verify *v, const struct manifest_part *p)
{
    char path[MANIFEST_PATH_SIZE];
    struct part_info info;
    struct errinfo ei = {0};
    enum err e = part_verify(v->parts, MANIFEST_PARTS_DIR, &p->key, v->o->stop, &info, &ei);

    if (e == ERR_OK && (info.index_size != p->index_size || info.chunks_size != p->chunks_size ||
                        info.sample_count != p->sample_count ||
                        info.min_time_ms != p->min_time_ms || info.max_time_ms != p->max_time_ms)) {
        inspect_part_path(&p->key, PART_FILE_INDEX, path);
        e = errinfo_set(&ei, ERR_CORRUPT, 0, "%s: it is another part than the manifest names",
                        path);
    }
    if (e != ERR_OK) {
        inspect_part_bad_path(&p->key, &ei, path);
        findings_error(&v->findings, path, &ei);
    }
    count_files(v, &v->result.part_count, 2, p->index_size + p->chunks_size);
}

/* ---- sealed and late files ---- */

static enum err sealed_slices_check(const struct verify *v, const struct sealed_opened *o,
                                    struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < o->slice_count && e == ERR_OK; i++) {
        if (is_stopped(v))
            return errinfo_set(ei, ERR_CANCELED, 0, "verification was stopped");
        e = sealed_slice_verify(o->file, o->slices[i], ei);
    }
    return e;
}

static void sealed_check(struct verify *v, const struct manifest_file *f, const char *path)
{
    const struct sealed_identity id = inspect_sealed_identity(&v->manifest, f);
    struct sealed_opened o = {0};
    struct errinfo ei = {0};
    enum err e = sealed_open(v->o->fs, path, &id, f->durable_size, &o, &ei);

    if (e == ERR_OK)
        e = sealed_slices_check(v, &o, &ei);
    /* A slice that is cut off is a damaged one by now, so it can only be what stands behind them.
     */
    if (e == ERR_OK && o.end < f->durable_size)
        e = errinfo_set_at(&ei, ERR_CORRUPT, path, o.end,
                           "the footer is damaged; no samples are lost with it");
    if (e != ERR_OK)
        findings_error(&v->findings, path, &ei);
    else if (o.torn_bytes > 0)
        findings_note_at(&v->findings, path, o.end,
                         "%" PRIu64 " bytes behind what counts: a torn tail", o.torn_bytes);
    count_files(v, f->kind == MANIFEST_LATE ? &v->result.late_count : &v->result.sealed_count, 1,
                o.end + o.torn_bytes);
    sealed_opened_done(&o);
}

/* ---- series files ---- */

static void series_check(struct verify *v, const struct manifest_file *f, const char *path)
{
    const struct series_file_identity id = inspect_series_identity(&v->manifest, f);
    struct series_image image;
    struct errinfo ei = {0};
    enum err e = series_file_load(v->o->fs, path, &id, f->durable_size, v->o->memory, &image, &ei);
    uint64_t bytes = 0;

    if (e == ERR_OK) {
        bytes = image.data_size;
        if (image.torn_bytes > 0)
            findings_note_at(&v->findings, path, image.end,
                             "%" PRIu64 " bytes behind what counts: a torn tail", image.torn_bytes);
        series_image_done(&image);
    } else {
        findings_error(&v->findings, path, &ei);
    }
    count_files(v, &v->result.series_file_count, 1, bytes);
}

/* ---- all files ---- */

static void file_check(struct verify *v, const struct manifest_file *f)
{
    char path[MANIFEST_PATH_SIZE];

    manifest_file_path(f, path);
    if (f->kind == MANIFEST_SERIES)
        series_check(v, f, path);
    else
        sealed_check(v, f, path);
}

static void *worker(void *arg)
{
    struct verify *v = arg;
    size_t parts = v->manifest.part_count, count = parts + v->manifest.file_count;

    while (!findings_failed(&v->findings)) {
        size_t task = atomic_fetch_add_explicit(&v->next_task, 1, memory_order_relaxed);

        if (task >= count)
            break;
        if (task < parts)
            part_check(v, &v->manifest.parts[task]);
        else
            file_check(v, &v->manifest.files[task - parts]);
    }
    return NULL;
}

static enum err files_check(struct verify *v, struct errinfo *ei)
{
    uint32_t count = v->o->thread_count > 0 ? v->o->thread_count : thread_cpu_count();
    struct thread *threads = calloc(count, sizeof *threads);
    enum err e = ERR_OK;

    if (threads == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "verification");
    for (uint32_t i = 1; i < count && e == ERR_OK; i++)
        e = thread_start(&threads[i], "verify", worker, v, ei);
    if (e == ERR_OK)
        (void)worker(v); /* always NULL */
    for (uint32_t i = 1; i < count; i++)
        thread_join(&threads[i]);
    free(threads);
    return e;
}

/* ---- names ---- */

struct folder {
    struct verify *v;
    const char *name;
};

static bool is_known(const char *folder, const char *name)
{
    static const char *const root[] = {MANIFEST_PATH, MANIFEST_TEMP_PATH, "lock", WAL_DIR,
                                       MANIFEST_SHARDS_DIR, MANIFEST_PARTS_DIR, "snapshots",
                                       /* of the server's own; each with a checksum of its own */
                                       "usage", "usage.tmp", "drop_rules", "drop_rules.tmp",
                                       "dropped_keys", "dropped_keys.tmp"};
    enum manifest_kind kind;
    enum part_file file;
    struct part_key key;
    uint64_t number;
    uint32_t small;
    bool temporary;

    if (strcmp(folder, WAL_DIR) == 0)
        return wal_segment_name_parse(name, &small);
    if (strcmp(folder, MANIFEST_SHARDS_DIR) == 0)
        return manifest_file_name_parse(name, &kind, &small, &number);
    if (strcmp(folder, MANIFEST_PARTS_DIR) == 0)
        return part_name_parse(name, &key, &file, &temporary);
    for (size_t i = 0; i < sizeof root / sizeof root[0]; i++) {
        if (strcmp(root[i], name) == 0)
            return true;
    }
    return false;
}

static enum err name_visit(void *ctx, const char *name, struct errinfo *ei)
{
    const struct folder *folder = ctx;
    char path[MANIFEST_PATH_SIZE + 256];

    (void)ei;
    if (is_known(folder->name, name))
        return ERR_OK;
    /* Cut when too long: it is only told. */
    if (strcmp(folder->name, ".") == 0)
        (void)snprintf(path, sizeof path, "%s", name);
    else
        (void)snprintf(path, sizeof path, "%s/%s", folder->name, name);
    findings_note(&folder->v->findings, path,
                  strncmp(name, SET_ASIDE_PREFIX, sizeof SET_ASIDE_PREFIX - 1) == 0
                      ? "set aside as damaged by a start of the server"
                      : "not a file of the store");
    return ERR_OK;
}

static enum err names_check(struct verify *v, struct errinfo *ei)
{
    static const char *const folders[] = {".", WAL_DIR, MANIFEST_SHARDS_DIR, MANIFEST_PARTS_DIR};
    struct manifest_paths debris = {0};
    enum err e = manifest_debris(v->o->fs, &v->manifest, &debris, ei);

    for (size_t i = 0; i < debris.count; i++)
        findings_note(&v->findings, debris.items[i],
                      "debris that the manifest does not name; a start removes it");
    manifest_paths_done(&debris);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && e == ERR_OK; i++) {
        struct folder folder = {v, folders[i]};
        bool exists;

        e = fs_exists(v->o->fs, folders[i], &exists, ei);
        if (e == ERR_OK && exists)
            e = fs_list(v->o->fs, folders[i], name_visit, &folder, ei);
    }
    return e;
}

/* ---- the directory ---- */

/* A directory with anything of ours but no manifest has lost it. */
static enum err manifest_missing(struct verify *v, struct errinfo *ei)
{
    static const char *const folders[] = {WAL_DIR, MANIFEST_SHARDS_DIR, MANIFEST_PARTS_DIR};
    const struct errinfo missing = {.code = ERR_NOT_FOUND};
    bool exists = false;
    enum err e = ERR_OK;

    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && e == ERR_OK && !exists; i++)
        e = fs_exists(v->o->fs, folders[i], &exists, ei);
    if (e != ERR_OK)
        return e;
    if (!exists)
        return errinfo_set(ei, ERR_NOT_FOUND, 0, "%s is no data directory: there is no file '%s'",
                           fs_dir(v->o->fs), MANIFEST_PATH);
    findings_error(&v->findings, MANIFEST_PATH, &missing);
    return ERR_OK;
}

static enum err all_check(struct verify *v, struct errinfo *ei)
{
    const struct part_store_options store = {
        .fs = v->o->fs, .memory = v->o->memory, .descriptor_count = 2};
    struct errinfo manifest_ei = {0};
    enum err e = manifest_read(v->o->fs, &v->manifest, &manifest_ei);

    if (e == ERR_NOT_FOUND)
        return manifest_missing(v, ei);
    v->result.file_count++;
    if (e != ERR_OK) {
        findings_error(&v->findings, MANIFEST_PATH, &manifest_ei);
        findings_note(&v->findings, MANIFEST_PATH,
                      "nothing else was checked: only the manifest knows what counts");
        return ERR_OK;
    }
    e = part_store_new(&store, &v->parts, ei);
    if (e == ERR_OK)
        e = names_check(v, ei);
    if (e == ERR_OK)
        e = files_check(v, ei);
    if (e == ERR_OK && !findings_failed(&v->findings))
        inspect_log(v->o, &v->manifest, &v->findings, &v->result);
    part_store_free(v->parts);
    return e;
}

enum err inspect_verify(const struct inspect_options *o,
                        void (*found)(void *ctx, const struct inspect_finding *finding), void *ctx,
                        struct inspect_verify_result *out, struct errinfo *ei)
{
    struct verify v = {.o = o};
    enum err e = fs_lock_shared(o->fs, ei);

    if (e != ERR_OK)
        return e;
    mutex_init(&v.lock);
    findings_init(&v.findings);
    e = all_check(&v, ei);
    if (e == ERR_OK && !findings_failed(&v.findings))
        findings_report(&v.findings, found, ctx, &v.result);
    if (e == ERR_OK && findings_failed(&v.findings))
        e = errinfo_set(ei, v.findings.failure.code, v.findings.failure.sys_errno, "%s",
                        v.findings.failure.message);
    if (e == ERR_OK)
        *out = v.result;
    manifest_done(&v.manifest);
    findings_done(&v.findings);
    mutex_done(&v.lock);
    fs_unlock(o->fs);
    return e;
}
