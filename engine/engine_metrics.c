/*
 * The engine's figures on /metrics. All are computed when somebody asks, from counters the engine
 * keeps anyway. Names are Prometheus's where the meaning is the same.
 */
#include <stdlib.h>

#include "engine/engine_internal.h"
#include "engine/limits/limits_internal.h"

enum figure {
    FIGURE_APPENDED,
    FIGURE_APPENDED_HISTOGRAMS,
    FIGURE_REPEATED,
    FIGURE_SERIES,
    FIGURE_CHUNKS,
    FIGURE_LATE,
    FIGURE_HISTOGRAMS,
    FIGURE_MIN_TIME,
    FIGURE_MAX_TIME,
    FIGURE_FRONT_ENTRIES,
    FIGURE_FRONT_ALIASES,
    FIGURE_FRONT_ALIASES_REFUSED,
    FIGURE_FRONT_BYTES,
    FIGURE_SLOW_PATH,
    FIGURE_LABEL_VALUES,
    FIGURE_LABEL_VALUE_BYTES,
    FIGURE_SET_ASIDE,
    FIGURE_RULES,
    FIGURE_RULES_SAMPLES,
    FIGURE_RULES_KEYS,
    FIGURE_RULES_KEYS_MAX,
    FIGURE_RULES_NOT_KEPT,
    FIGURE_RULES_ENDED,
    FIGURE_RULES_COLLISIONS,
    FIGURE_MEMORY_USED,
    FIGURE_MEMORY_PEAK,
    FIGURE_MEMORY_LIMIT,
    FIGURE_MEMORY_LOG_QUEUE,
    FIGURE_MEMORY_FREE_BLOCKS,
    FIGURE_MEMORY_LATE,
    FIGURE_MEMORY_HISTOGRAMS,
    FIGURE_REFUSED,                                /* the first of REFUSAL_COUNT */
    FIGURE_LIMIT = FIGURE_REFUSED + REFUSAL_COUNT, /* the first of three for each kind of limit */
    FIGURE_COUNT = FIGURE_LIMIT + 3 * LIMIT_KIND_COUNT,
};

struct figure_info {
    const char *kind, *name, *labels, *help;
};

#define MEMORY_HELP "Bytes of memory charged to the storage limit; limit 0 means none."
static const struct figure_info infos[FIGURE_REFUSED] = {
    [FIGURE_APPENDED] = {"counter", "prometheus_tsdb_head_samples_appended_total", "type=\"float\"",
                         "Total number of appended samples."},
    [FIGURE_APPENDED_HISTOGRAMS] = {"counter", "prometheus_tsdb_head_samples_appended_total",
                                    "type=\"histogram\"", "Total number of appended samples."},
    [FIGURE_REPEATED] = {"counter", "rimstone_samples_repeated_total", "",
                         "Samples that were already stored with the same bits."},
    [FIGURE_SERIES] = {"gauge", "prometheus_tsdb_head_series", "",
                       "Total number of series in memory."},
    [FIGURE_CHUNKS] = {"gauge", "prometheus_tsdb_head_chunks", "",
                       "Total number of chunks in memory."},
    [FIGURE_LATE] = {"gauge", "rimstone_late_samples", "",
                     "Samples in memory that were older than their series' newest."},
    [FIGURE_HISTOGRAMS] = {"gauge", "rimstone_histogram_samples", "",
                           "Native histograms in memory, late ones not counted."},
    [FIGURE_MIN_TIME] = {"gauge", "prometheus_tsdb_head_min_time", "",
                         "Time of the oldest sample in memory, in milliseconds; 0 when empty."},
    [FIGURE_MAX_TIME] = {"gauge", "prometheus_tsdb_head_max_time", "",
                         "Time of the newest sample in memory, in milliseconds; 0 when empty."},
    [FIGURE_FRONT_ENTRIES] = {"gauge", "rimstone_front_table_entries", "",
                              "Sender keys that lead to a series without parsing labels."},
    [FIGURE_FRONT_ALIASES] = {"gauge", "rimstone_front_table_aliases", "",
                              "Sender keys beyond the first of their series."},
    [FIGURE_FRONT_ALIASES_REFUSED] = {"counter", "rimstone_front_table_aliases_refused_total", "",
                                      "Sender keys that were not cached since too many are."},
    [FIGURE_FRONT_BYTES] = {"gauge", "rimstone_front_table_bytes", "",
                            "Memory of the front table."},
    [FIGURE_SLOW_PATH] = {"counter", "rimstone_slow_path_series_total", "",
                          "Series of requests whose labels had to be parsed."},
    [FIGURE_LABEL_VALUES] = {"gauge", "rimstone_label_values", "",
                             "Distinct label values, summed over shards."},
    [FIGURE_LABEL_VALUE_BYTES] = {"gauge", "rimstone_label_value_bytes", "",
                                  "Bytes of distinct label values, summed over shards."},
    [FIGURE_SET_ASIDE] = {"counter", "rimstone_files_set_aside_total", "",
                          "Damaged files that the start has set aside."},
    [FIGURE_RULES] = {"gauge", "rimstone_drop_rules", "", "Drop rules in effect."},
    [FIGURE_RULES_SAMPLES] = {"counter", "rimstone_samples_dropped_total", "",
                              "Samples that drop rules have dropped."},
    [FIGURE_RULES_KEYS] = {"gauge", "rimstone_dropped_keys", "",
                           "Sender series that are known to be dropped by rules."},
    [FIGURE_RULES_KEYS_MAX] = {"gauge", "rimstone_dropped_keys_limit", "",
                               "How many of them are remembered at most."},
    [FIGURE_RULES_NOT_KEPT] = {"counter", "rimstone_dropped_keys_not_kept_total", "",
                               "Dropped sender series that were not remembered: too many are."},
    [FIGURE_RULES_ENDED] = {"counter", "rimstone_dropped_series_ended_total", "",
                            "Stored series that got a staleness marker when a rule dropped them."},
    [FIGURE_RULES_COLLISIONS] = {"counter", "rimstone_rule_collisions_total", "",
                                 "Sender series that rules gave the labels of another one."},
    [FIGURE_MEMORY_USED] = {"gauge", "rimstone_memory_bytes", "kind=\"used\"", MEMORY_HELP},
    [FIGURE_MEMORY_PEAK] = {"gauge", "rimstone_memory_bytes", "kind=\"peak\"", MEMORY_HELP},
    [FIGURE_MEMORY_LIMIT] = {"gauge", "rimstone_memory_bytes", "kind=\"limit\"", MEMORY_HELP},
    [FIGURE_MEMORY_LOG_QUEUE] = {"gauge", "rimstone_memory_bytes", "kind=\"log_queue\"",
                                 MEMORY_HELP},
    [FIGURE_MEMORY_FREE_BLOCKS] = {"gauge", "rimstone_memory_bytes", "kind=\"free_blocks\"",
                                   MEMORY_HELP},
    [FIGURE_MEMORY_LATE] = {"gauge", "rimstone_memory_bytes", "kind=\"late\"", MEMORY_HELP},
    [FIGURE_MEMORY_HISTOGRAMS] = {"gauge", "rimstone_memory_bytes", "kind=\"histograms\"",
                                  MEMORY_HELP},
};

static const char *const refusal_labels[REFUSAL_COUNT] = {
    [REFUSAL_INVALID_LABELS] = "reason=\"invalid_labels\"",
    [REFUSAL_DUPLICATE_LABEL] = "reason=\"duplicate_label\"",
    [REFUSAL_INVALID_UTF8] = "reason=\"invalid_utf8\"",
    [REFUSAL_TOO_FAR_IN_FUTURE] = "reason=\"too_far_in_future\"",
    [REFUSAL_TOO_OLD] = "reason=\"too_old\"",
    [REFUSAL_OUT_OF_ORDER] = "reason=\"out_of_order\"",
    [REFUSAL_DUPLICATE_TIMESTAMP] = "reason=\"duplicate_timestamp\"",
    [REFUSAL_INVALID_HISTOGRAM] = "reason=\"invalid_histogram\"",
    [REFUSAL_LIMIT] = "reason=\"limit\"",
};

static double relaxed(const _Atomic uint64_t *counter)
{
    return (double)atomic_load_explicit(counter, memory_order_relaxed);
}

static const char *const limit_labels[LIMIT_KIND_COUNT] = {
    [LIMIT_STORE] = "limit=\"store\"",
    [LIMIT_ACTIVE_SERIES] = "limit=\"active_series\"",
    [LIMIT_SERIES_PER_METRIC] = "limit=\"series_per_metric\"",
    [LIMIT_SERIES_PER_LABEL_VALUE] = "limit=\"series_per_label_value\"",
    [LIMIT_LABELS_PER_SERIES] = "limit=\"labels_per_series\"",
    [LIMIT_LABEL_NAME_BYTES] = "limit=\"label_name_bytes\"",
    [LIMIT_LABEL_VALUE_BYTES] = "limit=\"label_value_bytes\"",
    [LIMIT_SAMPLES_PER_REQUEST] = "limit=\"samples_per_request\"",
};
static const struct figure_info limit_infos[3] = {
    {"counter", "rimstone_limit_refusals_total", NULL,
     "Series that a limit has refused, counted when their labels were looked at."},
    {"counter", "rimstone_limit_samples_refused_total", NULL, "Samples that a limit has refused."},
    {"counter", "rimstone_limit_warnings_total", NULL,
     "Times the log told that a limit's warning threshold was reached."},
};

static double limit_figure(const struct engine *e, uint32_t which)
{
    const struct limiter *l = &e->limiter;
    const _Atomic uint64_t *figures[3] = {l->refusals, l->samples_refused, l->warnings};
    uint32_t kind = which / 3;
    double sum = relaxed(&figures[which % 3][kind]);

    for (uint32_t i = LIMIT_KIND_COUNT;
         kind == LIMIT_SERIES_PER_LABEL_VALUE && i < LIMIT_NUMBER_MAX; i++)
        sum += relaxed(&figures[which % 3][i]);
    return sum;
}

static double memory_figure(const struct engine *e, uint32_t which)
{
    if (which == FIGURE_MEMORY_LOG_QUEUE)
        return relaxed(&e->logs.memory_bytes);
    if (which == FIGURE_MEMORY_FREE_BLOCKS)
        return (double)chunk_pool_free_bytes(&e->blocks);
    if (which == FIGURE_MEMORY_USED)
        return relaxed(&e->memory->used_bytes);
    if (which == FIGURE_MEMORY_PEAK)
        return relaxed(&e->memory->peak_bytes);
    return e->memory_limit == NULL ? 0 : (double)e->memory_limit->limit_bytes;
}

static double rules_figure(struct engine *e, uint32_t which)
{
    struct rules_stats stats;

    engine_rules_stats(e, &stats);
    switch (which) {
    case FIGURE_RULES:
        return (double)stats.rule_count;
    case FIGURE_RULES_SAMPLES:
        return (double)stats.samples_dropped;
    case FIGURE_RULES_KEYS:
        return (double)stats.dropped_keys;
    case FIGURE_RULES_KEYS_MAX:
        return (double)stats.dropped_keys_max;
    case FIGURE_RULES_NOT_KEPT:
        return (double)stats.dropped_keys_not_kept;
    case FIGURE_RULES_ENDED:
        return (double)stats.series_ended;
    default:
        return (double)stats.collisions;
    }
}

static double stats_figure(const struct engine *e, uint32_t which)
{
    struct engine_stats stats;

    engine_stats_get(e, &stats);
    bool is_empty = stats.min_time_ms > stats.max_time_ms;
    switch (which) {
    case FIGURE_SERIES:
        return (double)stats.series_count;
    case FIGURE_CHUNKS:
        return (double)stats.chunk_count;
    case FIGURE_LATE:
        return (double)stats.late_sample_count;
    case FIGURE_HISTOGRAMS:
        return (double)stats.histogram_count;
    case FIGURE_MIN_TIME:
        return is_empty ? 0 : (double)stats.min_time_ms;
    case FIGURE_MAX_TIME:
        return is_empty ? 0 : (double)stats.max_time_ms;
    case FIGURE_FRONT_ENTRIES:
        return (double)stats.front_table_entries;
    case FIGURE_LABEL_VALUES:
        return (double)stats.label_value_count;
    case FIGURE_MEMORY_HISTOGRAMS:
        return (double)stats.histogram_bytes;
    case FIGURE_MEMORY_LATE:
        return (double)stats.late_bytes;
    default:
        return (double)stats.label_value_bytes;
    }
}

static double figure_read(void *ctx)
{
    const struct engine_figure *f = ctx;
    const struct engine *e = f->engine;
    struct front_table_stats front;

    if (f->which >= FIGURE_LIMIT)
        return limit_figure(e, f->which - FIGURE_LIMIT);
    if (f->which >= FIGURE_REFUSED)
        return relaxed(&e->samples_refused[f->which - FIGURE_REFUSED]);
    switch (f->which) {
    case FIGURE_APPENDED:
        return relaxed(&e->samples_appended);
    case FIGURE_APPENDED_HISTOGRAMS:
        return relaxed(&e->histograms_appended);
    case FIGURE_REPEATED:
        return relaxed(&e->samples_repeated);
    case FIGURE_FRONT_ALIASES:
        return (double)engine_alias_count(e);
    case FIGURE_FRONT_ALIASES_REFUSED:
        return relaxed(&e->alias_refused);
    case FIGURE_FRONT_BYTES:
        front_table_stats_get(e->front, &front);
        return (double)front.memory_bytes;
    case FIGURE_SLOW_PATH:
        return relaxed(&e->slow_path_series);
    case FIGURE_SET_ASIDE:
        return relaxed(&e->files_set_aside);
    case FIGURE_RULES:
    case FIGURE_RULES_SAMPLES:
    case FIGURE_RULES_KEYS:
    case FIGURE_RULES_KEYS_MAX:
    case FIGURE_RULES_NOT_KEPT:
    case FIGURE_RULES_ENDED:
    case FIGURE_RULES_COLLISIONS:
        return rules_figure(f->engine, f->which);
    case FIGURE_MEMORY_USED:
    case FIGURE_MEMORY_PEAK:
    case FIGURE_MEMORY_LIMIT:
    case FIGURE_MEMORY_LOG_QUEUE:
    case FIGURE_MEMORY_FREE_BLOCKS:
        return memory_figure(e, f->which);
    default:
        return stats_figure(e, f->which);
    }
}

enum err engine_metrics_register(struct engine *e, struct metrics_registry *registry,
                                 struct errinfo *ei)
{
    e->figures = calloc(FIGURE_COUNT, sizeof *e->figures);
    if (e->figures == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "metrics");
    for (uint32_t i = 0; i < FIGURE_COUNT; i++) {
        struct figure_info refused = {"counter", "rimstone_samples_refused_total", NULL,
                                      "Samples that were refused, by reason."};
        const struct figure_info *info = i < FIGURE_REFUSED ? &infos[i] : &refused;

        if (i >= FIGURE_LIMIT) {
            refused = limit_infos[(i - FIGURE_LIMIT) % 3];
            refused.labels = limit_labels[(i - FIGURE_LIMIT) / 3];
        } else if (i >= FIGURE_REFUSED)
            refused.labels = refusal_labels[i - FIGURE_REFUSED];
        e->figures[i] = (struct engine_figure){e, i};
        metrics_callback(registry, info->kind, info->name, info->labels, info->help, figure_read,
                         &e->figures[i]);
    }
    return ERR_OK;
}
