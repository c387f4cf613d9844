/*
 * The handle's life: open, start, close; admission, statistics and metrics.
 */
#include "wal/wal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "wal/wal_internal.h"

enum {
    DEFAULT_SEGMENT_SIZE_BYTES = 128 << 20,
    DEFAULT_COMMIT_SAMPLE_TARGET = 512,
    DEFAULT_COMMIT_DELAY_MS = 10,
    DEFAULT_SYNC_INTERVAL_MS = 1000,
    FIRST_BYTES_PER_ENTRY = 64, /* a guess until the first batch has been seen */
    ENCODE_THREADS_MAX = 64,
};

void wal_counter_add(struct metric_counter *c, uint64_t n)
{
    if (c != NULL)
        metric_counter_add(c, n);
}

void wal_gauge_set(struct metric_gauge *g, double v)
{
    if (g != NULL)
        metric_gauge_set(g, v);
}

void wal_histogram_observe(struct metric_histogram *h, double v)
{
    if (h != NULL)
        metric_histogram_observe(h, v);
}

void wal_metrics_register(struct wal_metrics *m, struct metrics_registry *r)
{
    static const double seconds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                     0.1,    0.25,  0.5,    1,     2.5,  5,     10};
    enum { SECONDS_COUNT = sizeof seconds / sizeof seconds[0] };

    m->bytes_written = metrics_counter(r, "rimstone_wal_bytes_written_total", "",
                                       "Bytes of log frames written, headers included.");
    m->commits = metrics_counter(r, "rimstone_wal_commits_total", "",
                                 "Group commits that wrote at least one frame.");
    m->frames = metrics_counter(r, "rimstone_wal_frames_written_total", "", "Log frames written.");
    m->samples = metrics_counter(r, "rimstone_wal_samples_written_total", "",
                                 "Samples in the log frames written.");
    m->fsync_failures =
        metrics_counter(r, "rimstone_wal_fsync_failures_total", "",
                        "Syncs, or writes with a sync, that failed other than for lack of space.");
    m->commit_failures = metrics_counter(r, "rimstone_wal_commit_failures_total", "",
                                         "Commits that failed and were tried again.");
    m->commit_seconds =
        metrics_histogram(r, "rimstone_wal_commit_duration_seconds", "",
                          "Duration of group commits, encoding included.", seconds, SECONDS_COUNT);
    m->backlog_bytes = metrics_gauge(r, "rimstone_wal_backlog_bytes", "",
                                     "Memory of log entries that are not durable yet.");
    m->lost_entries = metrics_counter(r, "rimstone_wal_replay_lost_entries_total", "",
                                      "Log entries missing in gaps at replay.");
    m->replay_seconds = metrics_gauge(r, "prometheus_tsdb_data_replay_duration_seconds", "",
                                      "Time taken to replay the data on disk.");
    m->segment_current = metrics_gauge(r, "prometheus_tsdb_wal_segment_current", "",
                                       "Write log segment index that is currently written to.");
    m->writes_failed = metrics_counter(r, "prometheus_tsdb_wal_writes_failed_total", "",
                                       "Total number of write log writes that failed.");
    m->fsync_seconds = metrics_histogram(r, "prometheus_tsdb_wal_fsync_duration_seconds", "",
                                         "Duration of write log fsync, the write before included.",
                                         seconds, SECONDS_COUNT);
    m->log_bytes = metrics_gauge(r, "prometheus_tsdb_wal_storage_size_bytes", "",
                                 "Size of the write log directory.");
    m->cuts = metrics_counter(r, "prometheus_tsdb_wal_truncations_total", "",
                              "Total number of write log truncations attempted.");
    m->cut_failures = metrics_counter(r, "prometheus_tsdb_wal_truncations_failed_total", "",
                                      "Total number of write log truncations that failed.");
    m->corruptions = metrics_counter(r, "prometheus_tsdb_wal_corruptions_total", "",
                                     "Total number of log corruptions found at replay.");
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static void options_complete(struct wal_options *o)
{
    if (o->segment_size_bytes == 0)
        o->segment_size_bytes = DEFAULT_SEGMENT_SIZE_BYTES;
    o->sync_interval_ms = or_default(o->sync_interval_ms, DEFAULT_SYNC_INTERVAL_MS);
    o->commit_sample_target = or_default(o->commit_sample_target, DEFAULT_COMMIT_SAMPLE_TARGET);
    o->commit_delay_ms = or_default(o->commit_delay_ms, DEFAULT_COMMIT_DELAY_MS);
    if (o->encode_threads == 0)
        o->encode_threads = thread_cpu_count() / 2;
    o->encode_threads = or_default(o->encode_threads, 1);
    if (o->encode_threads > ENCODE_THREADS_MAX)
        o->encode_threads = ENCODE_THREADS_MAX;
}

/* Random, so that no frame of another life of the log can carry it. */
static enum err start_epoch_draw(uint64_t *out, struct errinfo *ei)
{
    uint64_t v = 0;

    while (v == 0) {
        if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v && errno != EINTR)
            return errinfo_set(ei, ERR_IO, errno, "getrandom");
    }
    *out = v;
    return ERR_OK;
}

/* Stops nothing: threads must have ended. */
static void wal_free(struct wal *w)
{
    waiter_list_done(&w->waiters);
    commit_frames_free(w);
    encode_team_free(w->team);
    segment_close(w->segment);
    free(w->next_sequences);
    free(w->taken_sequences);
    free(w->durable_sequences);
    ledger_done(&w->ledger);
    cond_done(&w->wake);
    mutex_done(&w->lock);
    free(w);
}

static struct wal *wal_alloc(const struct wal_options *options)
{
    struct wal *w = calloc(1, sizeof *w);
    size_t n = options->shard_count;

    if (w == NULL)
        return NULL;
    mutex_init(&w->lock);
    cond_init(&w->wake);
    waiter_list_init(&w->waiters);
    ledger_init(&w->ledger);
    w->options = *options;
    options_complete(&w->options);
    w->fs = options->fs;
    w->shards_per_sweep = 1;
    atomic_store_explicit(&w->bytes_per_entry, FIRST_BYTES_PER_ENTRY, memory_order_relaxed);
    w->next_sequences = calloc(n, sizeof *w->next_sequences);
    w->taken_sequences = calloc(n, sizeof *w->taken_sequences);
    w->durable_sequences = calloc(n, sizeof *w->durable_sequences);
    if (w->next_sequences == NULL || w->taken_sequences == NULL || w->durable_sequences == NULL) {
        wal_free(w);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        w->next_sequences[i] = 1;
    return w;
}

enum err wal_open(const struct wal_options *options, struct wal **out, struct errinfo *ei)
{
    struct wal *w;
    enum err e;

    if (options->shard_count == 0 || options->shard_count > WAL_SHARD_COUNT_MAX)
        return errinfo_set(ei, ERR_INVALID, 0, "log of %u shards", options->shard_count);
    w = wal_alloc(options);
    if (w == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "log of %u shards", options->shard_count);
    if (options->metrics != NULL)
        wal_metrics_register(&w->metrics, options->metrics);
    e = start_epoch_draw(&w->start_epoch, ei);
    if (e == ERR_OK && !options->read_only)
        e = fs_mkdir(w->fs, WAL_DIR, ei);
    if (e == ERR_OK && !options->read_only)
        e = fs_sync_dir(w->fs, ".", ei);
    if (e != ERR_OK) {
        wal_free(w);
        return e;
    }
    *out = w;
    return ERR_OK;
}

enum err wal_start(struct wal *w, struct errinfo *ei)
{
    struct errinfo open_ei = {0};
    enum err e;

    ASSERT(w->replayed && !w->started && !w->options.read_only);
    memcpy(w->taken_sequences, w->next_sequences,
           w->options.shard_count * sizeof *w->taken_sequences);
    e = encode_team_new(&w->options.source, w->options.encode_threads, &w->backlog_bytes, &w->team,
                        ei);
    if (e != ERR_OK)
        return e;
    e = commit_segment_open(w, &open_ei);
    if (e == ERR_NO_SPACE)
        commit_failed(w, &open_ei); /* queries can be served: start, and try again */
    else if (e != ERR_OK)
        return errinfo_set(ei, e, open_ei.sys_errno, "%s", open_ei.message);
    e = thread_start(&w->committer, "wal-commit", committer_thread, w, ei);
    w->started = e == ERR_OK;
    return e;
}

uint64_t wal_next_sequence(const struct wal *w, uint32_t shard)
{
    ASSERT(shard < w->options.shard_count);
    return w->next_sequences[shard];
}

enum err wal_admit(const struct wal *w)
{
    uint32_t code = atomic_load_explicit(&w->admit_code, memory_order_relaxed);

    if (code != ERR_OK)
        return (enum err)code;
    if (atomic_load_explicit(&w->backlog_bytes, memory_order_relaxed) > WAL_BACKLOG_LIMIT_BYTES)
        return ERR_UNAVAILABLE;
    return ERR_OK;
}

void wal_stats_get(const struct wal *w, struct wal_stats *out)
{
    int64_t backlog = atomic_load_explicit(&w->backlog_bytes, memory_order_relaxed);

    *out = (struct wal_stats){
        .bytes_written = atomic_load_explicit(&w->stat_bytes, memory_order_relaxed),
        .frames_written = atomic_load_explicit(&w->stat_frames, memory_order_relaxed),
        .commits = atomic_load_explicit(&w->stat_commits, memory_order_relaxed),
        .samples_written = atomic_load_explicit(&w->stat_samples, memory_order_relaxed),
        .segment_current = atomic_load_explicit(&w->stat_segment, memory_order_relaxed),
        .backlog_bytes = backlog > 0 ? (uint64_t)backlog : 0,
        .commit_failures = atomic_load_explicit(&w->stat_failures, memory_order_relaxed),
        .log_bytes = atomic_load_explicit(&w->stat_log_bytes, memory_order_relaxed),
        .segment_count = atomic_load_explicit(&w->stat_segment_count, memory_order_relaxed),
    };
}

static void committer_stop(struct wal *w, enum stop_mode mode, uint32_t deadline_ms)
{
    mutex_lock(&w->lock);
    w->stop = mode;
    w->close_deadline_ns = clock_mono_ns() + (uint64_t)deadline_ms * 1000000;
    cond_signal(&w->wake);
    mutex_unlock(&w->lock);
    thread_join(&w->committer);
}

enum err wal_close(struct wal *w, uint32_t deadline_ms, struct errinfo *ei)
{
    enum err e = ERR_OK;

    committer_stop(w, STOP_CLOSE, deadline_ms);
    if (w->pending_count > 0)
        e = errinfo_set(ei, w->last_failure, 0, "the log closes with %zu frames unwritten",
                        w->pending_count);
    else if (w->started && atomic_load_explicit(&w->notified_entries, memory_order_seq_cst) !=
                               atomic_load_explicit(&w->seen_entries, memory_order_relaxed))
        e = errinfo_set(ei, ERR_TIMEOUT, 0, "the log closes with entries queued");
    if (commit_sync_needed(w)) {
        enum err sync_e = commit_sync(w, ei);

        if (e == ERR_OK)
            e = sync_e;
    }
    waiter_list_close(w, e == ERR_OK ? ERR_CANCELED : e);
    wal_free(w);
    return e;
}

void wal_abandon(struct wal *w)
{
    committer_stop(w, STOP_ABANDON, 0);
    waiter_list_close(w, ERR_CANCELED);
    wal_free(w);
}
