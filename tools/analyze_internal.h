/*
 * `rimtool analyze`: what a data directory holds, counted (analyze_count.c) and printed
 * (analyze_print.c).
 */
#ifndef RIMSTONE_TOOLS_ANALYZE_INTERNAL_H
#define RIMSTONE_TOOLS_ANALYZE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "engine/codec.h"
#include "engine/inspect.h"
#include "tools/options_internal.h"

enum {
    CODEC_COUNT = CODEC_SPLIT + 1,
    CHUNK_CLASS_COUNT = 11,
};
#define CHURN_WINDOW_MS (INT64_C(2) * 3600 * 1000)

struct analyze_options {
    const char *dir;
    uint64_t limit;           /* lines of each list */
    struct tool_texts labels; /* none: pairs of all labels */
    int64_t min_time_ms, max_time_ms;
    bool json, no_codecs;
};

/* What a metric, a label pair or the whole comes to. */
struct tally {
    uint64_t series_count;
    uint64_t sample_count;
    uint64_t file_sample_count; /* of these, those in files: what `bytes` is about */
    double bytes;
};

/* A metric, a label name or a pair; in the counter's arena. */
struct count_item {
    struct str name, value; /* value: of pairs only */
    uint64_t value_count;   /* of label names: distinct values */
    struct tally tally;
};

/* Items by their text; open addressing. */
struct count_table {
    struct count_item **places; /* owned; a power of two, or NULL */
    size_t place_count, count;
};

struct seen_series {
    struct hash128 fingerprint;
    int32_t first_window, last_window; /* numbers of CHURN_WINDOW_MS; first > last: not used */
};

struct churn_window {
    int64_t start_ms;
    uint64_t active, appeared, disappeared;
};

struct class_count {
    uint64_t chunk_count, sample_count;
    double bytes;
};

struct counter {
    const struct analyze_options *o;
    struct arena arena;
    struct count_table metrics, pairs, names;
    struct seen_series *seen; /* owned; open addressing */
    size_t seen_places, seen_count;
    struct tally total;
    int64_t min_time_ms, max_time_ms;
    struct class_count codecs[CODEC_COUNT];
    struct class_count histograms; /* chunks of native ones, whose columns have many codecs */
    struct class_count chunk_classes[CHUNK_CLASS_COUNT]; /* by samples a chunk */
    struct inspect_kind_total kinds[INSPECT_KIND_COUNT]; /* chunks and samples in the range */
    struct churn_window *windows;                        /* owned; made by counter_finish() */
    size_t window_count;
    uint64_t damaged_count;
};

/* Samples a chunk, at most, in each class. */
extern const uint32_t chunk_class_limits[CHUNK_CLASS_COUNT];

void counter_init(struct counter *c, const struct analyze_options *o);
void counter_done(struct counter *c);
/* For struct inspect_analyzer. */
enum err counter_series(void *ctx, const struct inspect_series *series, struct errinfo *ei);
/* Makes the windows of churn. */
MUST_USE enum err counter_finish(struct counter *c, struct errinfo *ei);
/* The items of a table by descending bytes (samples where nothing is in files), or by value_count;
 * malloc()ed, NULL when memory is short. */
struct count_item **count_table_sorted(const struct count_table *t, bool by_values);

void analyze_print_text(struct counter *c, const struct inspect_analyze_result *r,
                        struct byte_writer *w);
void analyze_print_json(struct counter *c, const struct inspect_analyze_result *r,
                        struct byte_writer *w);
/* "parts", "sealed", ... */
const char *inspect_kind_text(enum inspect_kind kind);

#endif
