/*
 * Where the series of a selector come from, in memory or on a day: by metric, by label name, by the
 * values of one label, by pair of name and value, with what has come and gone. For
 * /api/v1/rimstone/cardinality.
 *
 * Series are counted by the numbers of their values; texts are looked at once for each value.
 */
#ifndef RIMSTONE_ENGINE_EXPLORE_H
#define RIMSTONE_ENGINE_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/labels.h"

struct querier;

#define EXPLORE_MEMORY INT64_MIN

struct explore_options {
    const struct matcher *matchers; /* borrowed; all must match; none: all series */
    size_t matcher_count;
    struct str focus; /* the label whose values are wanted; empty: none */
    size_t limit;     /* rows of each list, at least 1 */
    /* EXPLORE_MEMORY, or a moment of the UTC day that is wanted: its parts are looked at. */
    int64_t day_ms;
};

struct explore_row {
    struct str name; /* in the arena */
    uint64_t series;
    uint64_t created, ended; /* of these, in the time that explore.hours says */
    uint64_t values;         /* distinct ones, of a label name; else 0 */
    /* Of a metric. */
    double samples_per_second; /* in memory: by the last step of each series that goes on */
    double samples, bytes;     /* on a day: in its parts, index included, about */
};
struct explore_list {
    size_t count;
    struct explore_row *rows; /* in the arena; most series first, then by name */
};

struct explore {
    struct explore_row all; /* without a name */
    uint64_t label_pair_count;
    /* How long it takes for as many series to come or go as `created` and `ended` say. In memory: a
     * series is created if its first sample is of this 2 h window or the one before, and has ended
     * if its newest one is a staleness marker or ten minutes old; series that have left memory are
     * not among them. On a day: if it has no sample in the first, or last, ten minutes. */
    double hours;
    struct explore_list by_metric, by_label, by_value, by_pair;
};

/*
 * Counts. One label name's values at a time are held with their texts, else 12 bytes a value and
 * shard (or part), and for a day 64 bytes a series of one shard; charged to the arena's budget,
 * ERR_LIMIT when it is spent. ERR_CANCELED and ERR_TIMEOUT by the querier's flag and deadline.
 * Samples that have been deleted but not purged count on a day.
 */
MUST_USE enum err querier_explore(struct querier *q, const struct explore_options *options,
                                  struct arena *arena, struct explore *out, struct errinfo *ei);

#endif
