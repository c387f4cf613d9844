/*
 * The promqltest runner: scripts in Prometheus's test language, run on the real engine.
 *
 *   promqltest.c          the verb: options, files, folders, counts
 *   promqltest_script.c   a script's text to commands
 *   promqltest_series.c   one line `metric{labels} points`
 *   promqltest_histogram.c histograms `{{...}}` among the points
 *   promqltest_starts.c   start timestamps of points
 *   promqltest_store.c    an engine on the simulated file layer, `load`
 *   promqltest_nhcb.c     `load_with_nhcb`: classic histograms made into native ones
 *   promqltest_age.c      a store's samples sealed, flushed and merged
 *   promqltest_twin.c     two answers that must be the same
 *   promqltest_eval.c     runs an eval in all its forms
 *   promqltest_compare.c  results and annotations against expectations
 */
#ifndef RIMSTONE_TOOLS_PROMQLTEST_INTERNAL_H
#define RIMSTONE_TOOLS_PROMQLTEST_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/regex.h"
#include "engine/engine.h"
#include "engine/histogram.h"
#include "engine/labels.h"
#include "engine/write.h"
#include "promql/promql.h"

/* A point of a series line; an omitted one (`_`) takes its place in time and nothing else. */
enum point_kind { POINT_OMITTED, POINT_FLOAT, POINT_HISTOGRAM };

struct point_histogram {
    struct histogram value;
    bool has_hint; /* a hint is given, if only "unknown": a result must have it too */
};

struct sequence {
    size_t count;
    const double *values; /* of the floats; a staleness marker is one of them */
    const uint8_t *kinds; /* enum point_kind */
    const struct point_histogram *const *histograms; /* NULL where there is none */
    bool has_histogram;
};

struct series_line {
    struct labels labels; /* sorted, without empty values */
    struct sequence points;
    const int64_t *start_offsets_ms; /* beside the points; NULL: no `@st` line was given */
};

/* Reads a series line. Everything lives in `arena`. ERR_INVALID with the reason. */
MUST_USE enum err series_line_parse(struct str line, struct arena *arena, struct series_line *out,
                                    struct errinfo *ei);
/* The metric alone, without points. */
MUST_USE enum err series_metric_parse(struct str text, struct arena *arena, struct labels *out,
                                      struct errinfo *ei);
/* The values of an `@st` line: start timestamps of samples, as distances from their times. */
struct start_offsets {
    size_t count;
    int64_t *offsets_ms; /* START_OMITTED where there is none */
};
#define START_OMITTED INT64_MIN
MUST_USE enum err start_timestamps_parse(struct str text, struct arena *arena,
                                         struct start_offsets *out, struct errinfo *ei);

struct load_command {
    int64_t step_ms;
    bool with_nhcb; /* also make histograms with custom buckets of classic ones */
    struct series_line *series;
    size_t series_count;
};

enum expect_kind {
    EXPECT_FAIL,
    EXPECT_WARN,
    EXPECT_NO_WARN,
    EXPECT_INFO,
    EXPECT_NO_INFO,
    EXPECT_ORDERED,
};

/* One `expect` line. Without message and pattern anything matches. */
struct expectation {
    enum expect_kind kind;
    struct str text;     /* message or pattern as written; empty: anything */
    struct regex *regex; /* owned by the script; NULL for a message */
};

struct expected_series {
    struct series_line line;
    size_t position; /* 1-based, for `expect ordered` */
};

struct eval_command {
    struct str expr;
    bool is_range;
    int64_t start_ms, end_ms,
        step_ms;     /* instant: start_ms only, unless a range vector is expected */
    int64_t time_ms; /* of an instant query */
    struct expectation *expectations;
    size_t expectation_count;
    struct expected_series *series;
    size_t series_count;
    bool expects_scalar;
    double scalar;
    struct str string;
    bool not_in_range_form; /* the result is no vector or scalar */
};

enum command_kind { COMMAND_CLEAR, COMMAND_LOAD, COMMAND_EVAL };

struct command {
    enum command_kind kind;
    unsigned line; /* 1-based */
    union {
        struct load_command load;
        struct eval_command eval;
    } u;
};

struct script {
    const char *path; /* borrowed */
    struct budget memory;
    struct arena arena; /* charges it */
    struct command *commands;
    size_t command_count, command_capacity;
    struct regex **regexes; /* owned, in the arena's array */
    size_t regex_count, regex_capacity;
};

/* Parses `text` (borrowed until script_done()). ERR_INVALID with "path:line: reason"; ERR_LIMIT
 * when its points need more than `memory_bytes` (1 GiB). *out must not move, and script_done() is
 * called in either case. */
MUST_USE enum err script_parse(const char *path, struct str text, struct script *out,
                               struct errinfo *ei);
MUST_USE enum err script_parse_within(const char *path, struct str text, uint64_t memory_bytes,
                                      struct script *out, struct errinfo *ei);
void script_done(struct script *s);

bool eval_expects(const struct eval_command *c, enum expect_kind kind);

/* What store_series() takes of a series: all points, or those before its middle, or the rest. */
enum load_share { LOAD_ALL, LOAD_FIRST_HALF, LOAD_SECOND_HALF };

struct store {
    struct arena arena;
    struct fs *fs;
    struct clock clock;
    struct engine *engine; /* fresh after every clear */
    bool is_aged;          /* what is loaded is sealed, flushed and merged at once */
    enum load_share share;
};

MUST_USE enum err store_open(struct store *s, bool is_aged, struct errinfo *ei);
void store_close(struct store *s);
/* Loads a command's series; into an aged store in two halves, each of which goes its way through
 * the files. ERR_INVALID when the engine refuses a sample, or a classic histogram
 * cannot be converted. */
MUST_USE enum err store_load(struct store *s, const struct load_command *c, struct errinfo *ei);
/* One series, its points `step_ms` apart from 0 on. `b` must be empty, and is so afterwards. */
MUST_USE enum err store_series(struct store *s, struct write_batch *b,
                               const struct series_line *line, int64_t step_ms, struct errinfo *ei);
/* The histograms with custom buckets that the classic ones of a command stand for. */
MUST_USE enum err store_load_custom_buckets(struct store *s, struct write_batch *b,
                                            const struct load_command *c, struct errinfo *ei);

/* Seals everything, flushes every second shard, splits late files and merges what can be merged. */
MUST_USE enum err store_age(struct store *s, struct errinfo *ei);

enum eval_outcome { EVAL_PASSED, EVAL_FAILED, EVAL_SKIPPED };

struct eval_context {
    struct store *store;
    bool experimental;
    /* Every query runs on this one too, with the help of these threads; the answers must be the
     * same to the last bit. NULL: none does. */
    struct store *twin;
    struct thread_pool *helpers;
    uint32_t helper_count;
};

/* Runs an eval in all its forms; a reason for anything but success goes to `report`. */
enum eval_outcome eval_run(const struct eval_context *ctx, const struct eval_command *c,
                           struct byte_writer *report);

/* What differs between two answers, in a word or two; NULL: they are the same bit for bit. Without
 * is_ordered the rows of a vector may stand in any order. */
const char *results_differ(const struct promql_result *a, const struct promql_result *b,
                           bool is_ordered);

/* A query's result beside what compares it. False with the difference in `report`. */
bool compare_result(const struct eval_command *c, const struct promql_result *r,
                    struct byte_writer *report);
/* Middle step of a range query over [t - 1 min, t + 1 min] in place of an instant result. */
bool compare_middle_step(const struct eval_command *c, const struct promql_result *r,
                         enum value_type instant_type, struct byte_writer *report);
bool compare_annotations(const struct eval_command *c, const struct promql_result *r,
                         struct byte_writer *report);
bool compare_failure(const struct eval_command *c, const char *message, struct byte_writer *report);

#endif
