/*
 * The checkpoint of a seal: files are made durable, then one manifest names their sizes, the series
 * file and the covered sequence, then the log is cut. Until the manifest is written, a start finds
 * the checkpoint before and has the rest in the log.
 */
#include <stdlib.h>

#include "base/log.h"
#include "engine/seal/seal_run_internal.h"

static enum err file_name(struct manifest *m, struct engine *e, const struct seal_file *f,
                          struct errinfo *ei)
{
    struct manifest_file *named = manifest_file_find(m, f->source->number);
    struct manifest_file fresh = {
        .kind = f->source->kind == SEALED_LATE ? MANIFEST_LATE : MANIFEST_SEALED,
        .shard = f->source->shard,
        .shard_count = e->shard_count,
        .number = f->source->number,
        .durable_size = sealed_writer_durable_size(f->writer),
    };

    if (named == NULL)
        return manifest_file_add(m, &fresh, ei);
    named->durable_size = fresh.durable_size;
    return ERR_OK;
}

static enum err series_file_names(struct manifest *m, struct engine *e, const struct shard *s,
                                  struct errinfo *ei)
{
    const struct seal_series *n = &s->sealer->series;
    struct manifest_file fresh = {.kind = MANIFEST_SERIES,
                                  .shard = s->number,
                                  .shard_count = e->shard_count,
                                  .number = n->number};

    if (n->writer == NULL)
        return ERR_OK; /* nothing was there to be written */
    fresh.durable_size = series_file_durable_size(n->writer);
    for (size_t i = m->file_count; i-- > 0;) {
        if (m->files[i].kind == MANIFEST_SERIES && m->files[i].shard == s->number)
            (void)manifest_file_remove(m, m->files[i].number);
    }
    return manifest_file_add(m, &fresh, ei);
}

/* Changes the manifest by what the seal has made durable. */
static enum err checkpoint_change(void *ctx, struct manifest *m, struct errinfo *ei)
{
    struct seal_run *r = ctx;
    struct shard_sealer *z = r->shard->sealer;
    enum err e = manifest_sequences_reserve(m, ei);

    for (size_t i = 0; i < z->file_count && e == ERR_OK; i++) {
        if (z->files[i].is_dirty)
            e = file_name(m, r->engine, &z->files[i], ei);
    }
    if (e == ERR_OK)
        e = series_file_names(m, r->engine, r->shard, ei);
    if (e == ERR_OK && r->options->change != NULL)
        e = r->options->change(r->options->ctx, m, ei);
    if (e == ERR_OK)
        m->covered_sequences[r->shard->number] = r->sequence;
    return e;
}

/* The series file that this seal's replaces; 0: none. */
static uint64_t old_series_file(struct engine *e, const struct shard *s)
{
    uint64_t number = 0;

    mutex_lock(&e->manifest_lock);
    for (size_t i = 0; i < e->manifest.file_count; i++) {
        const struct manifest_file *f = &e->manifest.files[i];

        if (f->kind == MANIFEST_SERIES && f->shard == s->number &&
            f->number != s->sealer->series.number)
            number = f->number;
    }
    mutex_unlock(&e->manifest_lock);
    return number;
}

static void series_file_unlink(struct engine *e, const struct shard *s, uint64_t number)
{
    const struct manifest_file f = {.kind = MANIFEST_SERIES,
                                    .shard = s->number,
                                    .shard_count = e->shard_count,
                                    .number = number};
    char path[MANIFEST_PATH_SIZE];
    enum err ignored;

    manifest_file_path(&f, path);
    ignored = fs_unlink(e->fs, path, NULL);
    (void)ignored; /* debris, which the next start removes */
}

/* Late files belong to one seal. A writer that stays gives its memory back: a shard seals rarely,
 * and there are many. */
static void files_settle(struct shard_sealer *z, bool end_all)
{
    size_t kept = 0;

    for (size_t i = 0; i < z->file_count; i++) {
        struct seal_file *f = &z->files[i];

        f->is_dirty = false;
        if (f->takes_more && f->source->kind == SEALED_RECENT && !end_all) {
            sealed_writer_trim(f->writer);
            z->files[kept++] = *f;
            continue;
        }
        sealed_writer_free(f->writer);
        sealed_source_unref(f->source);
    }
    z->file_count = kept;
}

static void log_cut(struct engine *e, enum seal_reason reason)
{
    uint64_t *sequences = calloc(e->shard_count, sizeof *sequences), removed = 0;
    struct errinfo ei = {0};

    if (sequences == NULL)
        return; /* the next seal cuts */
    engine_covered_sequences(e, sequences);
    if (reason == SEAL_LOG_SIZE)
        wal_rotate(e->wal); /* the newest segment is never removed */
    if (wal_cut(e->wal, sequences, &removed, &ei) != ERR_OK)
        LOG_WARN("the log could not be cut", LOG_STR("error", ei.message));
    free(sequences);
}

enum err seal_checkpoint(struct seal_run *r, struct errinfo *ei)
{
    struct engine *e = r->engine;
    struct shard *s = r->shard;
    struct shard_sealer *z = s->sealer;
    uint64_t replaced;
    enum err err = seal_series_write(e, s, r->sequence, ei);

    if (err == ERR_OK)
        err = seal_files_sync(e, s, ei);
    if (err != ERR_OK)
        return err;
    replaced = z->series.writer != NULL ? old_series_file(e, s) : 0;
    err = engine_manifest_update(e, checkpoint_change, r, ei);
    if (err != ERR_OK)
        return err;
    if (replaced != 0)
        series_file_unlink(e, s, replaced);
    files_settle(z, r->options->end_files);
    atomic_store_explicit(&s->covered_sequence, r->sequence, memory_order_relaxed);
    atomic_store_explicit(&s->sealed_mono_ns, clock_mono_ns(), memory_order_relaxed);
    log_cut(e, r->options->reason);
    return ERR_OK;
}

/* ---- ended series only ---- */

struct ended_checkpoint {
    struct engine *engine;
    struct shard *shard;
};

static enum err ended_change(void *ctx, struct manifest *m, struct errinfo *ei)
{
    const struct ended_checkpoint *c = ctx;

    return series_file_names(m, c->engine, c->shard, ei);
}

enum err seal_ended(struct engine *e, struct shard *s, const uint32_t *slots, size_t count,
                    bool *done, struct errinfo *ei)
{
    struct ended_checkpoint c = {e, s};
    struct shard_sealer *z = s->sealer;
    enum err err;

    *done = false;
    if (z == NULL)
        return ERR_OK;
    seal_series_begin(&z->series, s, false);
    if (!seal_series_note_ended(&z->series, s, slots, count))
        return ERR_OK;
    /* Newer series are not in this batch, so it covers no more than the last one. */
    err = seal_series_write(e, s, atomic_load_explicit(&s->covered_sequence, memory_order_relaxed),
                            ei);
    if (err == ERR_OK)
        err = engine_manifest_update(e, ended_change, &c, ei);
    if (err != ERR_OK)
        seal_series_drop(e, s);
    *done = err == ERR_OK;
    return err;
}
