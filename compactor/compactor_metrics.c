/*
 * The compactor's figures on /metrics. Names are Prometheus's where the meaning is the same: a part
 * is its block.
 */
#include "base/metrics.h"

#include <stdio.h>

#include "compactor/compactor_internal.h"

static const struct {
    uint64_t hours;
    const char *name;
} windows[WINDOW_CLASS_COUNT] = {{2, "2h"},   {8, "8h"},    {24, "1d"},  {72, "3d"},
                                 {216, "9d"}, {648, "27d"}, {0, "other"}};

static const double second_bounds[] = {0.01, 0.05, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800};
enum { SECOND_BOUND_COUNT = sizeof second_bounds / sizeof second_bounds[0] };

static struct metric_histogram *seconds(struct metrics_registry *m, const char *name,
                                        const char *help)
{
    return metrics_histogram(m, name, "", help, second_bounds, SECOND_BOUND_COUNT);
}

static void register_seals(struct compactor_metrics *s, struct metrics_registry *m)
{
    for (int r = SEAL_REPLAY_COST; r < SEAL_REASON_COUNT; r++) {
        char labels[64];

        (void)snprintf(labels, sizeof labels, "reason=\"%s\"",
                       seal_reason_name((enum seal_reason)r)); /* fits */
        s->seals[r] = metrics_counter(m, "rimstone_seals_total", labels,
                                      "Shards sealed by the compactor, by reason.");
    }
    s->seal_failures = metrics_counter(m, "rimstone_seal_failures_total", "", "Seals that failed.");
    s->seal_seconds = seconds(m, "rimstone_seal_duration_seconds", "How long seals took.");
    s->seal_bytes = metrics_counter(m, "rimstone_seal_bytes_total", "", "Bytes written by seals.");
    s->seal_samples = metrics_counter(m, "rimstone_seal_samples_total", "kind=\"in_order\"",
                                      "Samples that went from memory into sealed and late files.");
    s->seal_late_samples =
        metrics_counter(m, "rimstone_seal_samples_total", "kind=\"late\"",
                        "Samples that went from memory into sealed and late files.");
    s->seal_ended_series = metrics_counter(m, "rimstone_seal_ended_series_total", "",
                                           "Ended series whose slots were freed by seals.");
    s->seal_hold_max =
        metrics_gauge(m, "rimstone_seal_hold_samples_max", "",
                      "Most samples dealt with by a seal in one critical section of a shard.");
}

static void register_flushes(struct compactor_metrics *s, struct metrics_registry *m)
{
    s->flushes = metrics_counter(m, "rimstone_flushes_total", "", "Window flushes of a shard.");
    s->flush_failures =
        metrics_counter(m, "rimstone_flush_failures_total", "", "Window flushes that failed.");
    s->flush_seconds = seconds(m, "rimstone_flush_duration_seconds", "How long flushes took.");
    s->flush_samples = metrics_counter(m, "rimstone_flush_samples_total", "",
                                       "Samples that went from sealed files into parts.");
    s->flush_bytes =
        metrics_counter(m, "rimstone_flush_bytes_total", "", "Bytes of parts made by flushes.");
    s->flushed_to = metrics_gauge(m, "rimstone_flushed_timestamp_seconds", "",
                                  "Windows that end here or before are parts in every shard, but "
                                  "for late samples.");
    s->flush_parts = metrics_counter(m, "rimstone_flush_parts_total", "", "Parts made by flushes.");
    s->splits = metrics_counter(m, "rimstone_late_splits_total", "",
                                "Times the late files of a shard were split into parts.");
    s->split_failures = metrics_counter(m, "rimstone_late_split_failures_total", "",
                                        "Splits of late files that failed.");
}

static double progress_sum(const struct compactor *c, bool total)
{
    double sum = 0;

    for (uint32_t i = 0; i < c->thread_count; i++) {
        const struct merge_progress *p = &c->workers[i].progress;

        sum += (double)atomic_load_explicit(total ? &p->samples_total : &p->samples_done,
                                            memory_order_relaxed);
    }
    return sum;
}

static double read_progress_total(void *ctx)
{
    return progress_sum(ctx, true);
}

static double read_progress_done(void *ctx)
{
    return progress_sum(ctx, false);
}

static double read_memory(void *ctx)
{
    return (double)budget_used(&((struct compactor *)ctx)->memory);
}

static void register_merges(struct compactor *c, struct metrics_registry *m)
{
    static const char samples_name[] = "rimstone_merge_samples_total";
    static const char samples_help[] =
        "Samples of merges: copied, encoded anew, dropped as repeats "
        "or as deleted.";
    static const char progress_name[] = "rimstone_merge_progress_samples";
    static const char progress_help[] = "Input samples of the merges that run, done and in all.";
    struct compactor_metrics *s = &c->metrics;

    s->merges_triggered = metrics_counter(m, "prometheus_tsdb_compactions_triggered_total", "",
                                          "Total number of merges begun.");
    s->merges = metrics_counter(m, "prometheus_tsdb_compactions_total", "",
                                "Total number of merges that were executed.");
    s->merge_failures = metrics_counter(m, "prometheus_tsdb_compactions_failed_total", "",
                                        "Total number of merges that failed.");
    s->merge_seconds =
        seconds(m, "prometheus_tsdb_compaction_duration_seconds", "Duration of merges.");
    s->merges_running =
        metrics_gauge(m, "rimstone_merges_running", "", "Merges and purges at work.");
    s->merge_copied = metrics_counter(m, samples_name, "kind=\"copied\"", samples_help);
    s->merge_encoded = metrics_counter(m, samples_name, "kind=\"encoded\"", samples_help);
    s->merge_repeated = metrics_counter(m, samples_name, "kind=\"repeated\"", samples_help);
    s->merge_purged = metrics_counter(m, samples_name, "kind=\"purged\"", samples_help);
    s->merge_bytes_in =
        metrics_counter(m, "rimstone_merge_input_bytes_total", "", "Bytes of merged parts.");
    s->merge_bytes_out =
        metrics_counter(m, "rimstone_merge_output_bytes_total", "", "Bytes of merges' results.");
    s->merge_pause_ms = metrics_counter(m, "rimstone_merge_pause_milliseconds_total", "",
                                        "Time in which merges gave way to requests.");
    s->clean_seconds = seconds(m, "prometheus_tsdb_tombstone_cleanup_seconds",
                               "The time taken to rewrite parts to remove tombstones.");
    metrics_callback(m, "gauge", progress_name, "state=\"total\"", progress_help,
                     read_progress_total, c);
    metrics_callback(m, "gauge", progress_name, "state=\"done\"", progress_help, read_progress_done,
                     c);
    metrics_callback(m, "gauge", "rimstone_merge_memory_bytes", "",
                     "Memory that merges hold, page cache left out.", read_memory, c);
}

static void register_retention(struct compactor *c, struct metrics_registry *m)
{
    static const char *const labels[RETENTION_REASON_COUNT] = {"", "reason=\"time\"",
                                                               "reason=\"size\""};
    struct compactor_metrics *s = &c->metrics;

    s->retentions[RETENTION_TIME] =
        metrics_counter(m, "prometheus_tsdb_time_retentions_total", "",
                        "The number of times that parts were deleted because the maximum time "
                        "limit was exceeded.");
    s->retentions[RETENTION_SIZE] =
        metrics_counter(m, "prometheus_tsdb_size_retentions_total", "",
                        "The number of times that parts were deleted because the maximum number "
                        "of bytes was exceeded.");
    for (size_t r = RETENTION_TIME; r < RETENTION_REASON_COUNT; r++) {
        s->retained_parts[r] = metrics_counter(m, "rimstone_retention_removed_parts_total",
                                               labels[r], "Parts removed by retention.");
        s->retained_bytes[r] = metrics_counter(m, "rimstone_retention_removed_bytes_total",
                                               labels[r], "Bytes of parts removed by retention.");
    }
    metric_gauge_set(metrics_gauge(m, "prometheus_tsdb_retention_limit_seconds", "",
                                   "How long to retain data; 0 without end."),
                     (double)c->options.retention_ms / 1000);
    metric_gauge_set(metrics_gauge(m, "prometheus_tsdb_retention_limit_bytes", "",
                                   "Max number of bytes to be retained; 0 without end."),
                     (double)c->options.retention_bytes);
}

static void register_files(struct compactor_metrics *s, struct metrics_registry *m)
{
    s->parts =
        metrics_gauge(m, "prometheus_tsdb_blocks_loaded", "", "Number of currently loaded parts.");
    s->part_bytes = metrics_gauge(m, "prometheus_tsdb_storage_blocks_bytes", "",
                                  "The number of bytes that are used by all parts.");
    for (size_t i = 0; i < WINDOW_CLASS_COUNT; i++) {
        char labels[32];

        (void)snprintf(labels, sizeof labels, "window=\"%s\"", windows[i].name); /* fits */
        s->parts_by_window[i] =
            metrics_gauge(m, "rimstone_parts", labels, "Parts by the size of their window.");
        s->part_bytes_by_window[i] = metrics_gauge(m, "rimstone_part_bytes", labels,
                                                   "Bytes of parts by the size of their window.");
    }
    s->parts_damaged =
        metrics_gauge(m, "rimstone_parts_damaged", "",
                      "Parts in which a merge has found damage; they are set aside.");
    s->sealed_files = metrics_gauge(m, "rimstone_sealed_files", "kind=\"sealed\"",
                                    "Files that seals write, until they become parts.");
    s->late_files = metrics_gauge(m, "rimstone_sealed_files", "kind=\"late\"",
                                  "Files that seals write, until they become parts.");
    s->sealed_bytes = metrics_gauge(m, "rimstone_sealed_file_bytes", "kind=\"sealed\"",
                                    "Bytes of the files that seals write.");
    s->late_bytes = metrics_gauge(m, "rimstone_sealed_file_bytes", "kind=\"late\"",
                                  "Bytes of the files that seals write.");
    s->series_bytes = metrics_gauge(m, "rimstone_sealed_file_bytes", "kind=\"series\"",
                                    "Bytes of the files that seals write.");
    s->tombstones =
        metrics_gauge(m, "rimstone_tombstones", "", "Deletions that files are filtered by.");
}

enum err compactor_metrics_register(struct compactor *c, struct errinfo *ei)
{
    struct metrics_registry *m = c->options.metrics;

    if (m == NULL) {
        enum err e = metrics_registry_new(&c->own_registry, ei);

        if (e != ERR_OK)
            return e;
        m = c->own_registry;
    }
    register_seals(&c->metrics, m);
    register_flushes(&c->metrics, m);
    register_merges(c, m);
    register_retention(c, m);
    register_files(&c->metrics, m);
    return ERR_OK;
}

static size_t window_class(uint64_t window_size_ms)
{
    size_t i = 0;

    while (i < WINDOW_CLASS_COUNT - 1 && windows[i].hours * 3600000 != window_size_ms)
        i++;
    return i;
}

void compactor_metrics_files(struct compactor *c, const struct retention_part *parts, size_t count,
                             const struct engine_file_stats *files)
{
    struct compactor_metrics *s = &c->metrics;
    uint64_t counts[WINDOW_CLASS_COUNT] = {0}, bytes[WINDOW_CLASS_COUNT] = {0};
    uint64_t all = 0, all_bytes = 0;

    for (size_t i = 0; i < count; i++) {
        size_t w = window_class(parts[i].key.window_size_ms);

        if (parts[i].reason != RETENTION_KEEP)
            continue;
        counts[w]++;
        bytes[w] += parts[i].size_bytes;
        all++;
        all_bytes += parts[i].size_bytes;
    }
    for (size_t w = 0; w < WINDOW_CLASS_COUNT; w++) {
        metric_gauge_set(s->parts_by_window[w], (double)counts[w]);
        metric_gauge_set(s->part_bytes_by_window[w], (double)bytes[w]);
    }
    metric_gauge_set(s->parts, (double)all);
    metric_gauge_set(s->part_bytes, (double)all_bytes);
    metric_gauge_set(s->sealed_files, (double)files->sealed_count);
    metric_gauge_set(s->sealed_bytes, (double)files->sealed_bytes);
    metric_gauge_set(s->late_files, (double)files->late_count);
    metric_gauge_set(s->late_bytes, (double)files->late_bytes);
    metric_gauge_set(s->series_bytes, (double)files->series_bytes);
    atomic_store_explicit(&c->oldest_ms, files->part_min_time_ms, memory_order_relaxed);
    metric_gauge_set(s->tombstones, (double)engine_tombstone_count(c->engine));
}
