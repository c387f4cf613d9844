/*
 * The engine's life: open, replay, close; and what others may ask of it.
 */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/files/manifest_internal.h"
#include "engine/memtable/memtable_internal.h"

enum {
    PARTS_CACHE_MIN_BYTES = 16 << 20,
    PARTS_CACHE_SHARE = 16, /* of the memory limit */
    PARTS_DESCRIPTOR_COUNT = 256,
    SHARD_DESCRIPTOR_COUNT = 6, /* a series file, sealed files of three windows, two late ones */
    OTHER_DESCRIPTOR_COUNT = 32,
};

/* ---- open ---- */

/* A log without a manifest is damage: opened as new, its samples would be lost without a word. */
static enum err refuse_orphan_log(struct fs *fs, struct errinfo *ei)
{
    bool exists = false;
    enum err e = fs_exists(fs, "wal", &exists, ei);

    if (e == ERR_OK && exists)
        e = errinfo_set(ei, ERR_CORRUPT, 0, "%s: there is a log but no file '%s'", fs_dir(fs),
                        MANIFEST_PATH);
    return e;
}

static enum err manifest_load(struct engine *e, const struct engine_options *options,
                              struct errinfo *ei)
{
    struct manifest m = {0};
    enum err err = manifest_read(e->fs, &m, ei);

    if (err == ERR_NOT_FOUND && e->is_read_only)
        return errinfo_set(ei, ERR_NOT_FOUND, 0, "%s is no data directory: there is no file '%s'",
                           fs_dir(e->fs), MANIFEST_PATH);
    if (err == ERR_NOT_FOUND) {
        m.shard_count = options->shard_count > 0       ? options->shard_count
                        : options->new_shard_count > 0 ? options->new_shard_count
                                                       : ENGINE_SHARD_COUNT_DEFAULT;
        m.next_file_number = 1;
        hash_secret_init(&m.secret, options->hash_secret_seed);
        err = refuse_orphan_log(e->fs, ei);
        if (err == ERR_OK)
            err = manifest_write(e->fs, &m, ei);
    }
    if (err != ERR_OK) {
        manifest_done(&m);
        return err;
    }
    e->shard_count = m.shard_count;
    e->shard_bits = (uint32_t)__builtin_ctz(m.shard_count);
    e->secret = m.secret;
    e->manifest = m;
    engine_tombstones_set(e, m.tombstones);
    return ERR_OK;
}

static enum err folders_make(struct fs *fs, struct errinfo *ei)
{
    enum err err = fs_mkdir(fs, MANIFEST_SHARDS_DIR, ei);

    if (err == ERR_OK)
        err = fs_mkdir(fs, MANIFEST_PARTS_DIR, ei);
    return err == ERR_OK ? fs_sync_dir(fs, ".", ei) : err;
}

/* Folders, and what all parts share. */
static enum err files_open(struct engine *e, struct errinfo *ei)
{
    struct part_store_options o = {.fs = e->fs,
                                   .memory = e->memory,
                                   .cache_bytes = PARTS_CACHE_MIN_BYTES,
                                   .descriptor_count = PARTS_DESCRIPTOR_COUNT};
    enum err err = ERR_OK;

    if (!e->is_read_only)
        err = folders_make(e->fs, ei);
    if (err != ERR_OK)
        return err;
    if (e->memory_limit != NULL && e->memory_limit->limit_bytes != UINT64_MAX &&
        e->memory_limit->limit_bytes / PARTS_CACHE_SHARE > o.cache_bytes)
        o.cache_bytes = e->memory_limit->limit_bytes / PARTS_CACHE_SHARE;
    return part_store_new(&o, &e->parts, ei);
}

static enum err shards_open(struct engine *e, struct errinfo *ei)
{
    size_t size = e->shard_count * sizeof(struct shard);
    enum err err = ERR_OK;

    e->shards = aligned_alloc(alignof(struct shard), size);
    if (e->shards == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%u shards", e->shard_count);
    memset(e->shards, 0, size);
    for (uint32_t i = 0; i < e->shard_count && err == ERR_OK; i++)
        err = shard_init(&e->shards[i], i, &e->blocks, &e->slab, &e->logs, e->memory, ei);
    return err;
}

static enum err log_open(struct engine *e, const struct engine_options *options, struct errinfo *ei)
{
    const struct wal_options wal_options = {
        .fs = e->fs,
        .read_only = e->is_read_only,
        .shard_count = e->shard_count,
        .sync = options->wal_sync,
        .sync_interval_ms = options->wal_sync_interval_ms,
        .commit_delay_ms = options->wal_commit_delay_ms,
        .segment_size_bytes = options->wal_segment_size_bytes,
        .source = engine_log_source(e),
        .metrics = options->metrics,
    };

    return wal_open(&wal_options, &e->wal, ei);
}

static void engine_init(struct engine *e, const struct engine_options *options)
{
    e->fs = options->fs;
    e->clock = options->clock;
    e->retention_ms = options->retention_ms;
    e->out_of_order_window_ms = options->out_of_order_window_ms;
    e->clock_is_data = options->clock_is_data;
    e->is_read_only = options->read_only;
    e->memory_limit = options->memory;
    e->memory = &e->storage;
    budget_init(e->memory, "storage memory", UINT64_MAX, NULL);
    atomic_init(&e->is_ready, false);
    slab_init(&e->slab, e->memory);
    log_pool_init(&e->logs, e->memory);
    mutex_init(&e->manifest_lock);
    mutex_init(&e->doubtful.lock);
    mutex_init(&e->tombstones_lock);
    readers_init(&e->readers);
    limiter_init(&e->limiter);
    mutex_init(&e->tick_lock);
    mutex_init(&e->sweep_lock);
    cond_init(&e->tick_wake);
}

/* Everything but the log, which must be closed or abandoned before. Accepts a half-built engine. */
void engine_free(struct engine *e)
{
    rules_done(&e->rules);
    front_table_free(e->front);
    for (uint32_t i = 0; i < e->shard_count && e->shards != NULL; i++)
        shard_done(&e->shards[i]);
    free(e->shards);
    part_store_free(e->parts);
    manifest_done(&e->manifest);
    chunk_pool_done(&e->blocks);
    log_pool_done(&e->logs);
    slab_done(&e->slab);
    readers_done(&e->readers);
    limiter_done(&e->limiter);
    cond_done(&e->tick_wake);
    mutex_done(&e->tick_lock);
    mutex_done(&e->tombstones_lock);
    tombstone_list_unref(e->tombstones);
    mutex_done(&e->doubtful.lock);
    free(e->doubtful.keys);
    mutex_done(&e->sweep_lock);
    mutex_done(&e->manifest_lock);
    if (e->is_locked)
        fs_unlock(e->fs);
    free(e->figures);
    free(e);
}

static enum err count_check(uint32_t n, struct errinfo *ei)
{
    if (n > WAL_SHARD_COUNT_MAX || (n & (n - 1)) != 0)
        return errinfo_set(ei, ERR_INVALID, 0, "%u shards: not a power of two up to %d", n,
                           WAL_SHARD_COUNT_MAX);
    return ERR_OK;
}

/* Whether the directory has another number of shards than is wanted. Whatever is wrong with it is
 * told by whoever opens it. */
static bool count_differs(const struct engine_options *options)
{
    struct manifest m = {0};
    bool differs;

    if (options->read_only || options->shard_count == 0 ||
        manifest_read(options->fs, &m, NULL) != ERR_OK)
        return false;
    differs = m.shard_count != options->shard_count;
    manifest_done(&m);
    return differs;
}

enum err engine_open(const struct engine_options *options, struct engine **out, struct errinfo *ei)
{
    struct engine *e;
    enum err err = count_check(options->shard_count, ei);

    if (err == ERR_OK)
        err = count_check(options->new_shard_count, ei);
    if (err == ERR_OK && count_differs(options))
        err = engine_reshard(options, ei);
    if (err != ERR_OK)
        return err;
    e = aligned_alloc(alignof(struct engine), sizeof *e);
    if (e == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "engine");
    memset(e, 0, sizeof *e);
    engine_init(e, options);
    err = e->is_read_only ? fs_lock_shared(e->fs, ei) : fs_lock(e->fs, ei);
    e->is_locked = err == ERR_OK;
    if (err == ERR_OK)
        err = manifest_load(e, options, ei);
    if (err == ERR_OK)
        err = files_open(e, ei);
    if (err == ERR_OK && chunk_pool_init(&e->blocks, &e->slab) != ERR_OK)
        err = errinfo_set(ei, ERR_NOMEM, 0, "block pool");
    if (err == ERR_OK)
        err = front_table_new(e->shard_count, e->memory, &e->front, ei);
    if (err == ERR_OK)
        err = rules_init(&e->rules, ei);
    if (err == ERR_OK)
        err = shards_open(e, ei);
    if (err == ERR_OK)
        err = log_open(e, options, ei);
    if (err == ERR_OK && options->metrics != NULL)
        err = engine_metrics_register(e, options->metrics, ei);
    if (err != ERR_OK) {
        if (e->wal != NULL)
            wal_abandon(e->wal);
        engine_free(e);
        return err;
    }
    *out = e;
    return ERR_OK;
}

/* ---- replay ---- */

/* From here on the limit counts. Nobody else uses the budget yet: the log's threads start later,
 * and requests wait for is_ready. */
static void memory_attach(struct engine *e)
{
    if (e->memory_limit == NULL)
        return;
    budget_force(e->memory_limit, budget_used(e->memory));
    e->storage.parent = e->memory_limit;
}

enum err engine_replay(struct engine *e, uint32_t thread_count, struct engine_replay_result *out,
                       struct errinfo *ei)
{
    struct engine_replay_result result = {0};
    struct wal_sink sink;
    enum err err = engine_restart(e, thread_count, ei);

    if (err != ERR_OK)
        return err;
    sink = engine_replay_sink(e); /* of the manifest that the restart has left */
    err = wal_replay(e->wal, &sink, thread_count, &result.wal, ei);
    if (err != ERR_OK)
        return err;
    engine_replay_finish(e, &result);
    result.files_set_aside = atomic_load_explicit(&e->files_set_aside, memory_order_relaxed);
    result.series_files_damaged =
        atomic_load_explicit(&e->series_files_damaged, memory_order_relaxed);
    err = engine_restart_finish(e, ei);
    if (err != ERR_OK)
        return err;
    if (!e->is_read_only)
        rules_keys_load(e);
    memory_attach(e);
    err = limits_replayed(e, ei);
    if (err != ERR_OK)
        return err;
    if (!e->is_read_only)
        err = wal_start(e->wal, ei);
    if (err == ERR_OK && !e->is_read_only)
        err = engine_tick_start(e, ei);
    if (err != ERR_OK)
        return err;
    *out = result;
    atomic_store_explicit(&e->is_ready, true, memory_order_release);
    return ERR_OK;
}

void engine_replay_progress(const struct engine *e, struct wal_progress *out)
{
    wal_progress_get(e->wal, out);
}

/* ---- close ---- */

/* Definitions get their second frame before the log is closed. Best effort: what it serves is
 * damage that may never happen, and a failing disk is reported by wal_close(). */
static void flush_definitions(struct engine *e)
{
    uint64_t *sequences = calloc(e->shard_count, sizeof *sequences), waiting;

    atomic_store_explicit(&e->logs.repeat_delay_ns, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < e->shard_count && sequences != NULL; i++) {
        mutex_lock(&e->shards[i].lock);
        sequences[i] = e->shards[i].log.sequence;
        mutex_unlock(&e->shards[i].lock);
    }
    if (sequences != NULL) {
        enum err ignored = wal_wait_blocking(e->wal, sequences, NULL);

        (void)ignored; /* see above */
    }
    /* All of them have had their first frame by now; closing commits what is announced. */
    waiting = atomic_load_explicit(&e->logs.recent_count, memory_order_relaxed);
    if (waiting > 0)
        wal_notify_bytes(e->wal, waiting, 0, 0);
    free(sequences);
}

enum err engine_close(struct engine *e, uint32_t deadline_ms, struct errinfo *ei)
{
    enum err err;

    if (e->is_read_only) {
        engine_abandon(e); /* there is nothing to commit */
        return ERR_OK;
    }
    if (atomic_load_explicit(&e->is_ready, memory_order_acquire)) {
        engine_tick_stop(e);
        rules_close(e);
        flush_definitions(e);
    }
    err = wal_close(e->wal, deadline_ms, ei);
    engine_free(e);
    return err;
}

void engine_log_abandon(struct engine *e)
{
    if (atomic_load_explicit(&e->is_ready, memory_order_acquire))
        engine_tick_stop(e);
    wal_abandon(e->wal);
    e->wal = NULL;
}

void engine_abandon(struct engine *e)
{
    engine_log_abandon(e);
    engine_free(e);
}

/* ---- questions ---- */

uint32_t engine_shard_count(const struct engine *e)
{
    return e->shard_count;
}

const struct hash_secret *engine_hash_secret(const struct engine *e)
{
    return &e->secret;
}

uint32_t engine_descriptor_count(uint32_t shard_count)
{
    return shard_count * SHARD_DESCRIPTOR_COUNT + PARTS_DESCRIPTOR_COUNT + OTHER_DESCRIPTOR_COUNT;
}

struct shard *engine_shard(const struct engine *e, uint32_t shard)
{
    ASSERT(shard < e->shard_count);
    return &e->shards[shard];
}

void engine_wait_durable(struct engine *e, struct wal_waiter *waiter)
{
    wal_wait(e->wal, waiter);
}

int64_t engine_newest_ms(const struct engine *e)
{
    int64_t newest = INT64_MIN;

    for (uint32_t i = 0; i < e->shard_count; i++) {
        int64_t t = atomic_load_explicit(&e->shards[i].max_time_ms, memory_order_relaxed);

        if (t > newest)
            newest = t;
    }
    return newest;
}

bool engine_is_ahead(const struct engine *e)
{
    return engine_newest_ms(e) > clock_now_ms(e->clock) + ENGINE_FUTURE_LIMIT_MS;
}

int64_t engine_now_ms(const struct engine *e)
{
    int64_t now_ms = clock_now_ms(e->clock);

    if (e->clock_is_data) {
        int64_t newest_ms = engine_newest_ms(e);

        now_ms = newest_ms < now_ms ? newest_ms : now_ms;
    }
    return now_ms < CHUNK_TIME_MIN_MS ? CHUNK_TIME_MIN_MS : now_ms;
}

/* Blocks that were given back are charged still, but the next samples go into them. */
static bool is_memory_short(const struct engine *e)
{
    uint64_t used, free_bytes = chunk_pool_free_bytes(&e->blocks);

    if (e->memory_limit == NULL || e->memory_limit->limit_bytes == UINT64_MAX)
        return false;
    used = budget_used(e->memory_limit);
    return used > free_bytes && used - free_bytes > e->memory_limit->limit_bytes / 10 * 9;
}

enum err engine_admit(const struct engine *e, struct errinfo *ei)
{
    enum err err;

    if (!atomic_load_explicit(&e->is_ready, memory_order_acquire))
        return errinfo_set(ei, ERR_UNAVAILABLE, 0, "the log is being replayed");
    if (e->is_read_only)
        return errinfo_set(ei, ERR_UNAVAILABLE, 0, "the directory is open for reading only");
    if (is_memory_short(e))
        return errinfo_set(ei, ERR_UNAVAILABLE, 0, "memory is above 90 %% of its limit");
    /* A clock that jumped back must not make senders drop what they hold. */
    if (engine_is_ahead(e))
        return errinfo_set(ei, ERR_UNAVAILABLE, 0,
                           "the clock is more than 10 minutes behind the newest sample");
    err = wal_admit(e->wal);
    if (err != ERR_OK)
        return errinfo_set(ei, ERR_UNAVAILABLE, 0, "the log takes no more: %s", err_name(err));
    return ERR_OK;
}

static void add_shard_stats(struct shard *s, struct engine_stats *out)
{
    int64_t min_ms = atomic_load_explicit(&s->min_time_ms, memory_order_relaxed);
    int64_t max_ms = atomic_load_explicit(&s->max_time_ms, memory_order_relaxed);
    struct index_stats index;

    out->series_count += atomic_load_explicit(&s->series_count, memory_order_relaxed);
    out->chunk_count += atomic_load_explicit(&s->chunk_count, memory_order_relaxed);
    out->sample_count += atomic_load_explicit(&s->sample_count, memory_order_relaxed);
    out->late_sample_count += atomic_load_explicit(&s->late_count, memory_order_relaxed);
    out->late_bytes += atomic_load_explicit(&s->late_bytes, memory_order_relaxed);
    out->histogram_count += atomic_load_explicit(&s->histogram_count, memory_order_relaxed);
    out->histogram_bytes += atomic_load_explicit(&s->histogram_bytes, memory_order_relaxed);
    out->min_time_ms = min_ms < out->min_time_ms ? min_ms : out->min_time_ms;
    out->max_time_ms = max_ms > out->max_time_ms ? max_ms : out->max_time_ms;
    mutex_lock(&s->create_lock); /* else the index may be replaced and freed */
    index_stats_get(s->index, &index);
    mutex_unlock(&s->create_lock);
    out->label_value_count += index.value_count;
    out->label_value_bytes += index.value_bytes;
}

void engine_stats_get(const struct engine *e, struct engine_stats *out)
{
    struct front_table_stats front;

    *out = (struct engine_stats){.min_time_ms = INT64_MAX, .max_time_ms = INT64_MIN};
    for (uint32_t i = 0; i < e->shard_count; i++)
        add_shard_stats(&e->shards[i], out);
    out->samples_appended = atomic_load_explicit(&e->samples_appended, memory_order_relaxed);
    out->histograms_appended = atomic_load_explicit(&e->histograms_appended, memory_order_relaxed);
    out->samples_repeated = atomic_load_explicit(&e->samples_repeated, memory_order_relaxed);
    out->memory_bytes = budget_used(e->memory);
    out->free_block_bytes = chunk_pool_free_bytes(&e->blocks);
    front_table_stats_get(e->front, &front);
    out->front_table_entries = front.entry_count;
    out->front_table_aliases = engine_alias_count(e);
    wal_stats_get(e->wal, &out->wal);
}
