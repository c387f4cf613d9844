/*
 * The sealed and late files of a seal: which one takes a sample, slices, what readers see of them,
 * and durability.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/seal/seal_internal.h"

/* ---- the list ---- */

static struct seal_file *files_reserve(struct shard_sealer *z, struct errinfo *ei)
{
    size_t capacity = z->file_capacity == 0 ? 8 : 2 * z->file_capacity;
    struct seal_file *grown;

    if (z->file_count < z->file_capacity)
        return &z->files[z->file_count];
    grown = reallocarray(z->files, capacity, sizeof *grown);
    if (grown == NULL) {
        (void)errinfo_set(ei, ERR_NOMEM, 0, "%zu files of a seal", capacity);
        return NULL;
    }
    z->files = grown;
    z->file_capacity = capacity;
    return &grown[z->file_count];
}

static void file_drop(struct seal_file *f)
{
    sealed_writer_free(f->writer);
    sealed_source_unref(f->source);
}

/* Creates a file; it is the last one of the list. */
static enum err file_create(struct engine *e, struct shard *s, enum sealed_kind kind,
                            uint32_t window, bool has_histograms, struct seal_file **out,
                            struct errinfo *ei)
{
    struct shard_sealer *z = s->sealer;
    struct sealed_identity identity = {.kind = kind,
                                       .shard = s->number,
                                       .shard_count = e->shard_count,
                                       .number = engine_file_number(e),
                                       .secret_id = e->secret.id,
                                       .has_histograms = has_histograms};
    struct manifest_file named = {
        .kind = kind == SEALED_LATE ? MANIFEST_LATE : MANIFEST_SEALED,
        .shard = s->number,
        .shard_count = e->shard_count,
        .number = identity.number,
    };
    struct seal_file *f = files_reserve(z, ei);
    struct seal_file made = {.window = window, .takes_more = true};
    struct sealed_file *file = NULL;
    char path[MANIFEST_PATH_SIZE];
    enum err err;

    if (f == NULL)
        return ERR_NOMEM;
    manifest_file_path(&named, path);
    err = sealed_writer_create(e->fs, path, &identity, &file, &made.writer, ei);
    if (err != ERR_OK)
        return err;
    made.source = sealed_source_new(e->fs, e->parts, file, window);
    if (made.source == NULL) {
        sealed_writer_free(made.writer);
        sealed_file_close(file);
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", path);
    }
    *f = made;
    z->file_count++;
    *out = f;
    return ERR_OK;
}

/* A file that was created for floats stays one: its header says so to older readers. */
static bool takes(const struct seal_file *f, bool histograms)
{
    return f->takes_more && (!histograms || sealed_file_identity(f->source->file)->has_histograms);
}

enum err seal_file_recent(struct engine *e, struct shard *s, uint32_t window, bool histograms,
                          struct seal_file **out, struct errinfo *ei)
{
    struct shard_sealer *z = s->sealer;

    for (size_t i = z->file_count; i-- > 0;) {
        struct seal_file *f = &z->files[i];

        if (takes(f, histograms) && f->source->kind == SEALED_RECENT && f->window == window) {
            *out = f;
            return ERR_OK;
        }
    }
    return file_create(e, s, SEALED_RECENT, window, histograms, out, ei);
}

enum err seal_file_late(struct engine *e, struct shard *s, bool after_all, bool histograms,
                        struct seal_file **out, struct errinfo *ei)
{
    struct shard_sealer *z = s->sealer;

    for (size_t i = z->file_count; i-- > 0;) {
        struct seal_file *f = &z->files[i];

        if (takes(f, histograms) && f->source->kind == SEALED_LATE) {
            *out = f;
            return ERR_OK;
        }
        /* The list ascends by number: any sealed file behind the late one is younger. */
        if (after_all && f->source->kind == SEALED_RECENT)
            break;
    }
    return file_create(e, s, SEALED_LATE, 0, histograms, out, ei);
}

/* ---- slices ---- */

static enum err slice_write(struct shard *s, struct seal_file *f, uint64_t sequence,
                            struct seal_result *result, struct errinfo *ei)
{
    struct sealed_slice *slice = NULL;
    enum err err;
    bool ok;

    DEBUG_ASSERT(f != NULL);
    err = sealed_writer_slice(f->writer, sequence, &slice, ei);
    if (err != ERR_OK || slice == NULL)
        return err;
    f->is_dirty = true;
    result->slice_count++;
    result->byte_count += slice->size;
    mutex_lock(&s->files_lock);
    ok = sealed_source_append(f->source, slice);
    mutex_unlock(&s->files_lock);
    if (ok)
        return ERR_OK;
    /* A hole in the list that the file has: it must not grow behind it. */
    free(slice);
    f->takes_more = false;
    return errinfo_set(ei, ERR_NOMEM, 0, "%s", sealed_file_path(f->source->file));
}

enum err seal_files_write(struct shard *s, uint64_t sequence, struct seal_result *result,
                          struct errinfo *ei)
{
    struct shard_sealer *z = s->sealer;
    enum err err = ERR_OK;

    for (size_t i = 0; i < z->file_count && err == ERR_OK; i++) {
        if (z->files[i].writer != NULL && sealed_writer_chunk_count(z->files[i].writer) > 0)
            err = slice_write(s, &z->files[i], sequence, result, ei);
    }
    return err;
}

void seal_files_discard(struct shard_sealer *z)
{
    for (size_t i = 0; i < z->file_count; i++) {
        if (z->files[i].writer != NULL)
            sealed_writer_discard(z->files[i].writer);
    }
}

/* ---- what readers see ---- */

/* Builds the next set and swaps it in. */
static enum err set_replace(struct shard *s, const struct file_set_change *change,
                            void (*locked)(void *ctx, struct shard *s), void *ctx,
                            struct errinfo *ei)
{
    struct file_set *next = NULL, *before = NULL;
    enum err err;

    mutex_lock(&s->files_lock);
    err = file_set_new(s->files, change, &next, ei);
    if (err == ERR_OK) {
        mutex_lock(&s->lock);
        before = s->files;
        s->files = next;
        if (locked != NULL)
            locked(ctx, s);
        mutex_unlock(&s->lock);
    }
    mutex_unlock(&s->files_lock);
    file_set_unref(before);
    return err;
}

enum err seal_files_publish(struct shard *s, void (*locked)(void *ctx, struct shard *s), void *ctx,
                            struct errinfo *ei)
{
    struct shard_sealer *z = s->sealer;
    struct sealed_source **added = calloc(z->file_count + 1, sizeof(struct sealed_source *));
    struct file_set_change change = {.sealed_add = added};
    enum err err;

    if (added == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "files of a seal");
    for (size_t i = 0; i < z->file_count; i++) {
        if (!z->files[i].is_published && z->files[i].source->slice_count > 0)
            added[change.sealed_add_count++] = z->files[i].source;
    }
    err = set_replace(s, &change, locked, ctx, ei);
    for (size_t i = 0; i < z->file_count && err == ERR_OK; i++)
        z->files[i].is_published |= z->files[i].source->slice_count > 0;
    free(added);
    return err;
}

/* ---- durability ---- */

/* What is known to be on disk of a file whose sync failed, as a source of its own; NULL: nothing.
 */
static enum err durable_half(struct engine *e, const struct seal_file *f,
                             struct sealed_source **out, struct errinfo *ei)
{
    struct sealed_source *from = f->source;
    struct sealed_identity identity = *sealed_file_identity(from->file);
    struct sealed_opened opened = {0};
    uint64_t durable_size = sealed_writer_durable_size(f->writer);
    enum err err;

    *out = NULL;
    if (from->slice_count == 0 || from->slices[0]->offset + from->slices[0]->size > durable_size)
        return ERR_OK;
    err = sealed_open(e->fs, sealed_file_path(from->file), &identity, durable_size, &opened, ei);
    if (err != ERR_OK)
        return err;
    *out = sealed_source_new(e->fs, e->parts, opened.file, f->window);
    if (*out == NULL) {
        sealed_opened_done(&opened);
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", sealed_file_path(from->file));
    }
    opened.file = NULL; /* the source's */
    for (size_t i = 0; i < opened.slice_count && err == ERR_OK; i++) {
        struct sealed_slice *slice = opened.slices[i];

        if (slice->offset + slice->size > durable_size)
            break;
        if (!sealed_source_append(*out, slice))
            err = errinfo_set(ei, ERR_NOMEM, 0, "%s", sealed_file_path((*out)->file));
        else
            opened.slices[i] = NULL;
    }
    sealed_opened_done(&opened);
    if (err != ERR_OK) {
        sealed_source_unref(*out);
        *out = NULL;
    }
    return err;
}

static enum err chunk_copy(struct sealed_writer *to, const struct sealed_chunk *chunk,
                           const struct column *c, struct errinfo *ei)
{
    /* A chunk of histograms is one array. */
    return c->histogram != NULL ? sealed_writer_histograms(to, chunk->slot, chunk->generation,
                                                           c->t_ms, c->histogram[0], c->count, ei)
                                : sealed_writer_chunk(to, chunk->slot, chunk->generation, c->t_ms,
                                                      c->value, c->count, ei);
}

/* Copies one group of chunks to another file. */
static enum err group_copy(const struct sealed_source *from, const struct sealed_slice *slice,
                           uint32_t group, struct sealed_writer *to, struct errinfo *ei)
{
    struct sealed_chunk_list list = {0};
    struct column *columns;
    struct arena arena;
    enum err err;

    arena_init(&arena, NULL);
    err = sealed_group_chunks(from->file, slice, group, &arena, &list, ei);
    columns = ARENA_ARRAY(&arena, list.count, struct column);
    if (err == ERR_OK && columns == NULL)
        err = arena_error(&arena, ei);
    if (err == ERR_OK)
        err = sealed_read(from->file, list.items, list.count, &arena, &arena, columns, ei);
    for (size_t i = 0; i < list.count && err == ERR_OK; i++)
        err = chunk_copy(to, &list.items[i], &columns[i], ei);
    arena_done(&arena);
    return err;
}

/* Writes again what a failed sync put in doubt, from what can still be read. */
static enum err doubtful_copy(struct shard *s, const struct seal_file *from, struct seal_file *to,
                              struct errinfo *ei)
{
    uint64_t durable_size = sealed_writer_durable_size(from->writer);
    const struct sealed_source *source = from->source;
    struct seal_result ignored = {0};
    enum err err = ERR_OK;

    DEBUG_ASSERT(to != NULL);
    for (size_t i = 0; i < source->slice_count && err == ERR_OK; i++) {
        const struct sealed_slice *slice = source->slices[i];

        if (slice->offset + slice->size <= durable_size)
            continue;
        for (uint32_t g = 0; g < slice->group_count && err == ERR_OK; g++)
            err = group_copy(source, slice, g, to->writer, ei);
        if (err == ERR_OK)
            err = slice_write(s, to, slice->sequence, &ignored, ei);
    }
    return err;
}

/* Replaces a file whose sync failed: by its durable half, and a new file with the rest. */
static enum err file_rescue(struct engine *e, struct shard *s, size_t at, struct errinfo *ei)
{
    struct shard_sealer *z = s->sealer;
    struct sealed_source *half = NULL, *removed = z->files[at].source, *added[2];
    struct file_set_change change = {.sealed_add = added};
    struct seal_file *fresh = NULL, failed;
    enum err err = durable_half(e, &z->files[at], &half, ei);

    if (err == ERR_OK)
        err = file_create(e, s, removed->kind, z->files[at].window,
                          sealed_file_identity(removed->file)->has_histograms, &fresh, ei);
    if (err != ERR_OK) {
        sealed_source_unref(half);
        return err;
    }
    DEBUG_ASSERT(fresh != NULL);
    err = doubtful_copy(s, &z->files[at], fresh, ei);
    if (half != NULL)
        added[change.sealed_add_count++] = half;
    added[change.sealed_add_count++] = fresh->source;
    change.sealed_remove = &removed;
    change.sealed_remove_count = z->files[at].is_published ? 1 : 0;
    if (err == ERR_OK)
        err = set_replace(s, &change, NULL, NULL, ei);
    sealed_source_unref(half); /* the set has its own */
    if (err != ERR_OK) {
        /* Never published: debris. The failed one stays and is tried again. */
        atomic_store_explicit(&fresh->source->is_removed, true, memory_order_relaxed);
        file_drop(fresh);
        z->file_count--;
        return err;
    }
    fresh->is_published = true;
    fresh->takes_more = fresh->source->kind == SEALED_RECENT && z->files[at].takes_more;
    failed = z->files[at];
    memmove(&z->files[at], &z->files[at + 1], (z->file_count - at - 1) * sizeof *z->files);
    z->file_count--;
    if (half == NULL) /* no manifest names it */
        atomic_store_explicit(&failed.source->is_removed, true, memory_order_relaxed);
    file_drop(&failed);
    return ERR_OK;
}

enum err seal_files_sync(struct engine *e, struct shard *s, struct errinfo *ei)
{
    struct shard_sealer *z = s->sealer;
    bool rescued = false;

    for (size_t i = 0; i < z->file_count;) {
        struct errinfo own = {0};
        enum err err = ERR_OK;

        if (z->files[i].is_dirty)
            err = sealed_writer_sync(z->files[i].writer, &own);
        if (err == ERR_OK) {
            i++;
            continue;
        }
        /* One new file a seal: a failing disk is not written full. */
        if (rescued || file_rescue(e, s, i, NULL) != ERR_OK) {
            if (ei != NULL)
                *ei = own;
            return err;
        }
        rescued = true;
    }
    return ERR_OK;
}
