/*
 * What queries read: for every metric name when it was last queried, how often, and by which kind
 * of endpoint; and the queries of late with the names they read.
 *
 * A selector with a name counts for that name. Any other counts for the names of the series that it
 * finds; finding them costs about what reading them does, so the names of a query's text are kept
 * for ten minutes, and a look-up that takes too long falls back on all names that the selector
 * could mean. Both tables are bounded: what was not read for longest goes first, and the time from
 * which on they are complete moves up.
 *
 * They are kept in the file "usage" of the data directory (docs/formats/usage.md), replaced
 * atomically when usage_save() is called. A file that cannot be read costs the past only.
 */
#ifndef RIMSTONE_API_USAGE_USAGE_INTERNAL_H
#define RIMSTONE_API_USAGE_USAGE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "promql/ast.h"

struct engine;
struct usage;

/* Numbers stand in the file: new kinds at the end. */
enum usage_kind {
    USAGE_QUERY,
    USAGE_QUERY_RANGE,
    USAGE_SERIES,
    USAGE_LABELS, /* label names and values */
    USAGE_EXEMPLARS,
    USAGE_REMOTE_READ,
    USAGE_FEDERATE,
    USAGE_KIND_COUNT,
};
/* "query", "query_range", ... */
const char *usage_kind_name(enum usage_kind kind);

enum {
    USAGE_NAMES_MAX = 65536,
    USAGE_QUERIES_MAX = 1024,
    USAGE_TEXT_MAX = 4096, /* longer queries are counted by name, but not kept */
    USAGE_NAME_MAX = 1024,
    USAGE_EXPAND_MS = 200,               /* longest look-up of a selector's names */
    USAGE_EXPANSION_MS = 10 * 60 * 1000, /* for so long a query's names are taken to be the same */
};

/* `fs` (borrowed) may be NULL: nothing is kept. A damaged file is told to the log. */
MUST_USE enum err usage_new(const struct clock *clock, struct fs *fs, struct usage **out,
                            struct errinfo *ei);
/* Accepts NULL. Does not save. */
void usage_free(struct usage *u);
/* Writes the file if there is something new in it. One thread at a time. */
MUST_USE enum err usage_save(struct usage *u, struct errinfo *ei);

/* A query, or a selector of match[], that has been answered. */
struct usage_read {
    enum usage_kind kind;
    bool is_selector;
    struct str text;
    int64_t min_time_ms, max_time_ms; /* of the query, lookback included, ranges not */
    const struct promql_parse_options *language;
    struct engine *engine;
    const _Atomic bool *stop; /* may be NULL: a look-up ends once it is true */
};
/* Counts it; text that cannot be parsed counts for nothing. Any thread. */
void usage_note(struct usage *u, const struct usage_read *read);

struct usage_name {
    struct str name;                                            /* in the arena */
    uint32_t count[USAGE_KIND_COUNT], last_s[USAGE_KIND_COUNT]; /* Unix seconds; 0: never */
    uint32_t newest_s;                                          /* of last_s */
};
struct usage_query {
    struct str text; /* in the arena */
    bool is_selector;
    enum usage_kind kind; /* of the last time */
    uint32_t count, last_s;
};
struct usage_snapshot {
    uint32_t since_s;          /* nothing is known of times before it */
    uint32_t complete_since_s; /* names last read before it may be missing; at least since_s */
    size_t name_count, query_count;
    struct usage_name *names;    /* sorted by name */
    struct usage_query *queries; /* the latest first */
};
/* Everything, in the arena. */
MUST_USE enum err usage_snapshot(struct usage *u, struct arena *arena, struct usage_snapshot *out,
                                 struct errinfo *ei);

/* ---- the file, for usage_file.c and its tests ---- */

struct usage_file {
    uint32_t since_s, complete_since_s;
    struct usage_name *names;
    size_t name_count;
    struct usage_query *queries;
    size_t query_count;
};
MUST_USE enum err usage_file_encode(const struct usage_file *f, struct byte_writer *w,
                                    struct errinfo *ei);
/* Texts point into `data`, arrays are in the arena. ERR_CORRUPT, ERR_UNSUPPORTED (newer). */
MUST_USE enum err usage_file_decode(const uint8_t *data, size_t size, struct arena *arena,
                                    struct usage_file *out, struct errinfo *ei);
#define USAGE_PATH "usage"
/* Replaces the file. */
MUST_USE enum err usage_file_write(struct fs *fs, const struct usage_file *f, struct errinfo *ei);
/* Its bytes in the arena; ERR_NOT_FOUND without a story when there is none. */
MUST_USE enum err usage_file_read(struct fs *fs, struct arena *arena, struct bytes *out,
                                  struct errinfo *ei);

#endif
