/*
 * The promqltest runner: scripts in Prometheus's test language, run on the real engine.
 *
 *   promqltest.c          the verb: options, files, folders, counts
 *   promqltest_script.c   a script's text to commands
 *   promqltest_series.c   one line `metric{labels} points`, with histograms' syntax
 *   promqltest_store.c    an engine on the simulated file layer, `load`, what was left out
 *   promqltest_eval.c     runs an eval in all its forms
 *   promqltest_compare.c  results and annotations against expectations
 */
#ifndef RIMSTONE_TOOLS_PROMQLTEST_INTERNAL_H
#define RIMSTONE_TOOLS_PROMQLTEST_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/regex.h"
#include "engine/engine.h"
#include "engine/labels.h"
#include "promql/promql.h"

/* A point of a series line; an omitted one (`_`) takes its place in time and nothing else. */
enum point_kind { POINT_OMITTED, POINT_FLOAT, POINT_HISTOGRAM };

struct sequence {
    size_t count;
    const double *values; /* of the floats; a staleness marker is one of them */
    const uint8_t *kinds; /* enum point_kind */
    bool has_histogram;
};

struct series_line {
    struct labels labels; /* sorted, without empty values */
    struct sequence points;
};

/* Reads a series line. Everything lives in `arena`. ERR_INVALID with the reason. */
MUST_USE enum err series_line_parse(struct str line, struct arena *arena, struct series_line *out,
                                    struct errinfo *ei);
/* The metric alone, without points. */
MUST_USE enum err series_metric_parse(struct str text, struct arena *arena, struct labels *out,
                                      struct errinfo *ei);
/* The values of an `@st` line, checked and counted, since start timestamps are not stored. */
MUST_USE enum err start_timestamps_parse(struct str text, size_t *out_count, struct errinfo *ei);

struct load_series {
    struct series_line line;
    bool has_start_timestamps;
};

struct load_command {
    int64_t step_ms;
    bool with_nhcb; /* also make histograms with custom buckets of classic ones */
    struct load_series *series;
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
    struct arena arena;
    struct command *commands;
    size_t command_count, command_capacity;
    struct regex **regexes; /* owned, in the arena's array */
    size_t regex_count, regex_capacity;
};

/* Parses `text` (borrowed until script_done()). ERR_INVALID with "path:line: reason". Call
 * script_done() in either case. */
MUST_USE enum err script_parse(const char *path, struct str text, struct script *out,
                               struct errinfo *ei);
void script_done(struct script *s);

bool eval_expects(const struct eval_command *c, enum expect_kind kind);

/* Series that are not in the engine, with why an eval that needs them is skipped. */
struct left_out {
    struct labels labels; /* in the store's arena */
    /* The floats are there, only their start timestamps are not. */
    bool only_start_timestamps;
};

struct store {
    struct arena arena;
    struct fs *fs;
    struct clock clock;
    struct engine *engine; /* fresh after every clear */
    struct left_out *left_out;
    size_t left_out_count, left_out_capacity;
};

MUST_USE enum err store_open(struct store *s, struct errinfo *ei);
void store_close(struct store *s);
/* Loads a command's float series and notes the others. ERR_INVALID when the engine refuses a
 * sample. */
MUST_USE enum err store_load(struct store *s, const struct load_command *c, struct errinfo *ei);

enum eval_outcome { EVAL_PASSED, EVAL_FAILED, EVAL_SKIPPED };

struct eval_context {
    struct store *store;
    bool experimental;
};

/* Runs an eval in all its forms; a reason for anything but success goes to `report`. */
enum eval_outcome eval_run(const struct eval_context *ctx, const struct eval_command *c,
                           struct byte_writer *report);

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
