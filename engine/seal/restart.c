/*
 * A start from the manifest. Debris goes first. Then parts are opened, and shard by shard, in
 * parallel: sealed and late files, the set that readers see, and the series with their newest
 * samples. The log is replayed on top of that.
 *
 * A file that cannot be used is set aside and dropped from the manifest, durably, before anything
 * else is written; the start goes on without it. A newer format or an unreadable disk ends it: that
 * is no damage.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/seal/restart_internal.h"

enum { RESTART_THREADS_MAX = 64 };

/* What a start finds out; indexes are those of the manifest. */
struct restart {
    struct engine *engine;
    struct part_source **parts; /* owned, counted; NULL: set aside */
    bool *file_is_gone;         /* owned: set aside */
    _Atomic bool any_gone;
    /* Of the task list that is being worked off. */
    enum err (*task)(struct restart *r, size_t i, struct errinfo *ei);
    size_t task_count;
    _Atomic size_t next_task;
    struct mutex lock; /* guards err, story */
    enum err err;
    struct errinfo story;
};

/* ---- tasks ---- */

static void *tasks_run(void *arg)
{
    struct restart *r = arg;

    for (;;) {
        size_t i = atomic_fetch_add_explicit(&r->next_task, 1, memory_order_relaxed);
        struct errinfo ei = {0};
        enum err e;

        if (i >= r->task_count)
            return NULL;
        e = r->task(r, i, &ei);
        if (e == ERR_OK)
            continue;
        mutex_lock(&r->lock);
        if (r->err == ERR_OK) {
            r->err = e;
            r->story = ei;
        }
        mutex_unlock(&r->lock);
        atomic_store_explicit(&r->next_task, r->task_count, memory_order_relaxed);
    }
}

/* Runs a task for every i below `count`; the first failure ends it. */
static enum err tasks_do(struct restart *r, uint32_t thread_count, size_t count,
                         enum err (*task)(struct restart *r, size_t i, struct errinfo *ei),
                         struct errinfo *ei)
{
    struct thread threads[RESTART_THREADS_MAX] = {0};
    uint32_t n = thread_count == 0 ? thread_cpu_count() : thread_count;

    if (n > RESTART_THREADS_MAX)
        n = RESTART_THREADS_MAX;
    r->task = task;
    r->task_count = count;
    atomic_store_explicit(&r->next_task, 0, memory_order_relaxed);
    for (uint32_t i = 1; i < n && i < count; i++) {
        if (thread_start(&threads[i], "restart", tasks_run, r, NULL) != ERR_OK)
            break; /* slower, that is all */
    }
    (void)tasks_run(r);
    for (uint32_t i = 1; i < n; i++)
        thread_join(&threads[i]);
    if (r->err != ERR_OK && ei != NULL)
        *ei = r->story;
    return r->err;
}

/* ---- debris ---- */

static enum err debris_remove(struct engine *e, struct errinfo *ei)
{
    struct manifest_paths paths = {0};
    enum err err = manifest_debris(e->fs, &e->manifest, &paths, ei);

    for (size_t i = 0; i < paths.count && err == ERR_OK; i++) {
        struct errinfo own = {0};

        err = fs_unlink(e->fs, paths.items[i], &own);
        if (own.sys_errno == ENOTEMPTY || own.sys_errno == EEXIST) { /* a folder, not ours */
            LOG_WARN("a folder has the name of a file that was cut off; it stays",
                     LOG_STR("path", paths.items[i]));
            err = ERR_OK;
        } else if (err != ERR_OK) {
            *ei = own;
        }
    }
    manifest_paths_done(&paths);
    return err;
}

/* ---- parts ---- */

static bool is_damage(enum err e)
{
    return e == ERR_CORRUPT || e == ERR_NOT_FOUND;
}

static enum err part_task(struct restart *r, size_t i, struct errinfo *ei)
{
    struct engine *e = r->engine;
    const struct part_key *key = &e->manifest.parts[i].key;
    struct part *part = NULL;
    struct errinfo story = {0};
    enum err err = part_open(e->parts, MANIFEST_PARTS_DIR, key, &part, &story);

    if (is_damage(err)) {
        atomic_store_explicit(&r->any_gone, true, memory_order_relaxed);
        return set_aside_part(e, key, &story, ei);
    }
    if (err != ERR_OK) {
        *ei = story;
        return err;
    }
    r->parts[i] = part_source_new(e->fs, part, key->shard_count != e->shard_count);
    if (r->parts[i] == NULL) {
        part_close(part);
        return errinfo_set(ei, ERR_NOMEM, 0, "a part");
    }
    r->parts[i]->purged_generation = e->manifest.parts[i].purged_generation;
    return ERR_OK;
}

/* ---- a shard ---- */

/* The files of one shard while its first set is put together. */
struct shard_files {
    struct sealed_source **sealed; /* owned, counted */
    size_t sealed_count;
    struct part_source **parts; /* owned; borrowed from the restart */
    size_t part_count;
    struct shard_bounds bounds;
    uint32_t slot_end; /* one above the highest slot of a slice */
};

static void bounds_add(struct shard_files *f, int64_t min_ms, int64_t max_ms)
{
    if (min_ms > max_ms)
        return;
    f->bounds.min_time_ms = min_ms < f->bounds.min_time_ms ? min_ms : f->bounds.min_time_ms;
    f->bounds.max_time_ms = max_ms > f->bounds.max_time_ms ? max_ms : f->bounds.max_time_ms;
}

static void slots_note(const struct sealed_slice *slice, struct shard_files *f)
{
    for (uint32_t i = 0; i < slice->group_count; i++) {
        if (slice->groups[i].last_slot >= f->slot_end)
            f->slot_end = slice->groups[i].last_slot + 1;
    }
}

/* Takes over the slices that the manifest covers; what lies behind is in the log. */
static enum err slices_take(struct sealed_source *source, struct sealed_opened *opened,
                            struct shard_files *f, struct errinfo *ei)
{
    for (size_t i = 0; i < opened->slice_count; i++) {
        struct sealed_slice *slice = opened->slices[i];

        if (slice->offset >= opened->durable_size)
            break;
        if (!slice->is_damaged) {
            bounds_add(f, slice->min_time_ms, slice->max_time_ms);
            if (source->window == 0 && source->kind == SEALED_RECENT)
                source->window = chunk_window(slice->min_time_ms);
            slots_note(slice, f);
        }
        if (!sealed_source_append(source, slice))
            return errinfo_set(ei, ERR_NOMEM, 0, "slices of %s", sealed_file_path(source->file));
        opened->slices[i] = NULL;
    }
    return ERR_OK;
}

static enum err source_load(struct restart *r, size_t at, struct shard_files *f, struct errinfo *ei)
{
    struct engine *e = r->engine;
    const struct manifest_file *file = &e->manifest.files[at];
    const struct sealed_identity identity = {
        .kind = file->kind == MANIFEST_LATE ? SEALED_LATE : SEALED_RECENT,
        .shard = file->shard,
        .shard_count = file->shard_count,
        .number = file->number,
        .secret_id = e->secret.id,
    };
    struct sealed_opened opened = {0};
    struct sealed_source *source;
    struct errinfo story = {0};
    char path[MANIFEST_PATH_SIZE];
    enum err err;

    manifest_file_path(file, path);
    err = sealed_open(e->fs, path, &identity, file->durable_size, &opened, &story);
    if (is_damage(err)) {
        r->file_is_gone[at] = true;
        atomic_store_explicit(&r->any_gone, true, memory_order_relaxed);
        return set_aside(e, path, &story, ei);
    }
    if (err != ERR_OK) {
        *ei = story;
        return err;
    }
    if (opened.damaged_count > 0)
        LOG_ERROR("a sealed file is damaged: reading what it held there is an error",
                  LOG_STR("file", path), LOG_U64("damaged_slices", opened.damaged_count));
    source = sealed_source_new(e->fs, e->parts, opened.file, 0);
    if (source == NULL) {
        sealed_opened_done(&opened);
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", path);
    }
    opened.file = NULL; /* the source's */
    f->sealed[f->sealed_count++] = source;
    err = slices_take(source, &opened, f, ei);
    sealed_opened_done(&opened);
    return err;
}

static enum err set_make(struct shard *s, const struct shard_files *f,
                         struct tombstone_list *tombstones, struct errinfo *ei)
{
    const struct file_set_change change = {
        .sealed_add = f->sealed,
        .sealed_add_count = f->sealed_count,
        .part_add = f->parts,
        .part_add_count = f->part_count,
        .set_tombstones = true,
        .tombstones = tombstones,
    };
    struct file_set *set = NULL, *before;
    enum err err = file_set_new(NULL, &change, &set, ei);

    if (err != ERR_OK)
        return err;
    mutex_lock(&s->lock); /* nobody contends; it orders this with later readers */
    before = s->files;
    s->files = set;
    atomic_store_explicit(&s->min_time_ms, f->bounds.min_time_ms, memory_order_relaxed);
    atomic_store_explicit(&s->max_time_ms, f->bounds.max_time_ms, memory_order_relaxed);
    mutex_unlock(&s->lock);
    file_set_unref(before);
    return ERR_OK;
}

/* Without its series a shard's sealed files mean nothing: they are kept for whoever may be able to
 * use them. With some of its series they stay in use as well. */
static enum err sealed_keep(struct restart *r, const struct shard *s, struct errinfo *ei)
{
    const struct manifest *m = &r->engine->manifest;
    struct errinfo story = {0};
    enum err err = ERR_OK;

    (void)errinfo_set(&story, ERR_CORRUPT, 0, "the shard's series file is damaged");
    for (size_t i = 0; i < m->file_count && err == ERR_OK; i++) {
        char path[MANIFEST_PATH_SIZE];

        if (m->files[i].shard != s->number || r->file_is_gone[i])
            continue;
        manifest_file_path(&m->files[i], path);
        if (s->series.series_count > 0) {
            err = set_aside_copy(r->engine, path, ei);
            continue;
        }
        err = set_aside(r->engine, path, &story, ei);
        r->file_is_gone[i] = true;
        atomic_store_explicit(&r->any_gone, true, memory_order_relaxed);
    }
    return err;
}

/* Slots of series that have ended, whose samples are still in sealed files, are no fresh ones. */
static void slot_end_raise(struct shard *s, uint32_t slot_end)
{
    mutex_lock(&s->lock); /* nobody contends; it orders this with later writers */
    if (s->file_slot_end < slot_end)
        s->file_slot_end = slot_end;
    if (s->series.slot_end < s->file_slot_end)
        s->series.slot_end = s->file_slot_end;
    mutex_unlock(&s->lock);
}

static enum err shard_load(struct restart *r, struct shard *s, struct shard_files *f,
                           struct errinfo *ei)
{
    const struct manifest *m = &r->engine->manifest;
    const struct part_key own = {.shard = s->number, .shard_count = m->shard_count};
    bool is_damaged = false;
    enum err err = ERR_OK;

    for (size_t i = 0; i < m->part_count; i++) {
        if (r->parts[i] == NULL || !part_key_shards_meet(&m->parts[i].key, &own))
            continue;
        f->parts[f->part_count++] = r->parts[i];
        bounds_add(f, m->parts[i].min_time_ms, m->parts[i].max_time_ms);
    }
    for (size_t i = 0; i < m->file_count && err == ERR_OK; i++) {
        if (m->files[i].shard == s->number && m->files[i].kind != MANIFEST_SERIES)
            err = source_load(r, i, f, ei);
    }
    for (size_t i = 0; i < m->file_count && err == ERR_OK; i++) {
        if (m->files[i].shard == s->number && m->files[i].kind == MANIFEST_SERIES)
            err = restart_series(r->engine, s, &m->files[i], &f->bounds, &is_damaged, ei);
    }
    if (err == ERR_OK && is_damaged) {
        /* No new series gets a slot whose series was lost and whose samples are still there. */
        s->unknown_slot_end = f->slot_end;
        err = sealed_keep(r, s, ei);
    } else if (err == ERR_OK) {
        slot_end_raise(s, f->slot_end);
    }
    if (is_damaged && s->series.series_count == 0) {
        for (size_t i = 0; i < f->sealed_count; i++)
            sealed_source_unref(f->sealed[i]);
        f->sealed_count = 0;
    }
    if (err == ERR_OK)
        err = set_make(s, f, m->tombstones, ei);
    /* Files may hold samples of the future that were deleted. */
    if (err == ERR_OK && !is_damaged && engine_is_ahead(r->engine)) {
        mutex_lock(&s->lock);
        shard_settle_newest(s);
        mutex_unlock(&s->lock);
    }
    return err;
}

static enum err shard_task(struct restart *r, size_t i, struct errinfo *ei)
{
    const struct manifest *m = &r->engine->manifest;
    struct shard *s = &r->engine->shards[i];
    struct shard_files f = {.sealed = calloc(m->file_count + 1, sizeof(struct sealed_source *)),
                            .parts = calloc(m->part_count + 1, sizeof(struct part_source *)),
                            .bounds = {INT64_MAX, INT64_MIN}};
    enum err err;

    if (f.sealed == NULL || f.parts == NULL)
        err = errinfo_set(ei, ERR_NOMEM, 0, "files of shard %zu", i);
    else
        err = shard_load(r, s, &f, ei);
    for (size_t k = 0; k < f.sealed_count; k++)
        sealed_source_unref(f.sealed[k]); /* the set has its own */
    free(f.sealed);
    free(f.parts);
    if (m->covered_sequences != NULL)
        atomic_store_explicit(&s->covered_sequence, m->covered_sequences[i], memory_order_relaxed);
    atomic_store_explicit(&s->sealed_mono_ns, clock_mono_ns(), memory_order_relaxed);
    return err;
}

/* ---- slots ---- */

/* Slots below the highest one of the shard's files that no series has: of series that ended before
 * this start. Their next series get generations that none of an earlier life is likely to have had:
 * a record of the log, which is read again until it is cut, must not name them by chance. What the
 * log alone names stays out: a slot whose series could not be recovered is given to nobody, and
 * neither is any slot of a shard in which something is missing. */
static enum err slots_bar(struct engine *e, struct shard *s, struct errinfo *ei)
{
    uint64_t next_file = e->manifest.next_file_number;
    uint16_t generation = (uint16_t)hash64_bytes(&e->secret, &next_file, sizeof next_file);
    struct slot_batch *b;
    size_t count = 0;
    enum err err = ERR_OK;

    for (uint32_t slot = 0; slot < s->file_slot_end; slot++)
        count += series_find(&s->series, slot) == NULL;
    if (count == 0 || s->unknown_ref_samples > 0 || s->unknown_slot_end > 0)
        return ERR_OK;
    b = slot_batch_new(&s->slots, count);
    if (b == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu slots", count);
    mutex_lock(&s->create_lock); /* nobody contends; it orders this with later writers */
    mutex_lock(&s->lock);
    for (uint32_t slot = 0; slot < s->file_slot_end && err == ERR_OK; slot++) {
        if (series_find(&s->series, slot) != NULL)
            continue;
        if (series_table_reserve(&s->series, slot)) {
            series_at(&s->series, slot)->generation = generation;
            slot_batch_add(b, slot);
        } else {
            err = errinfo_set(ei, ERR_NOMEM, 0, "slot %u", slot);
        }
    }
    mutex_unlock(&s->lock);
    slot_pool_bar(&s->slots, b, next_file);
    mutex_unlock(&s->create_lock);
    return err;
}

enum err engine_restart_finish(struct engine *e, struct errinfo *ei)
{
    enum err err = ERR_OK;

    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++) {
        struct shard *s = &e->shards[i];

        if (s->is_salvaged)
            err = restart_series_raise(s, ei);
        if (err == ERR_OK)
            err = slots_bar(e, s, ei);
    }
    return err;
}

/* ---- all of it ---- */

/* Drops from the manifest what was set aside. */
static enum err gone_drop(void *ctx, struct manifest *m, struct errinfo *ei)
{
    struct restart *r = ctx;
    const struct manifest *old = &r->engine->manifest;

    (void)ei;
    for (size_t i = 0; i < old->file_count; i++) {
        if (r->file_is_gone[i])
            (void)manifest_file_remove(m, old->files[i].number);
    }
    for (size_t i = 0; i < old->part_count; i++) {
        if (r->parts[i] == NULL)
            (void)manifest_part_remove(m, &old->parts[i].key);
    }
    return ERR_OK;
}

static enum err run(struct restart *r, uint32_t thread_count, struct errinfo *ei)
{
    struct engine *e = r->engine;
    enum err err = e->is_read_only ? ERR_OK : debris_remove(e, ei);

    if (err == ERR_OK)
        err = tasks_do(r, thread_count, e->manifest.part_count, part_task, ei);
    if (err == ERR_OK)
        err = tasks_do(r, thread_count, e->shard_count, shard_task, ei);
    if (err == ERR_OK && !e->is_read_only &&
        atomic_load_explicit(&r->any_gone, memory_order_relaxed)) {
        /* The names first: with them gone and the files renamed nobody would know. */
        err = fs_sync_dir(e->fs, MANIFEST_SHARDS_DIR, ei);
        if (err == ERR_OK)
            err = fs_sync_dir(e->fs, MANIFEST_PARTS_DIR, ei);
        if (err == ERR_OK)
            err = engine_manifest_update(e, gone_drop, r, ei);
    }
    return err;
}

enum err engine_restart(struct engine *e, uint32_t thread_count, struct errinfo *ei)
{
    struct restart r = {.engine = e};
    size_t part_count = e->manifest.part_count;
    enum err err;

    mutex_init(&r.lock);
    r.parts = calloc(part_count + 1, sizeof(struct part_source *));
    r.file_is_gone = calloc(e->manifest.file_count + 1, sizeof *r.file_is_gone);
    if (r.parts == NULL || r.file_is_gone == NULL)
        err = errinfo_set(ei, ERR_NOMEM, 0, "lists of files");
    else
        err = run(&r, thread_count, ei);
    for (size_t i = 0; r.parts != NULL && i < part_count; i++)
        part_source_unref(r.parts[i]); /* the sets have their own */
    free(r.parts);
    free(r.file_is_gone);
    mutex_done(&r.lock);
    return err;
}
