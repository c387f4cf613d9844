/*
 * The querier: one way to read the store, for PromQL, metadata endpoints, remote read and export.
 * It gives series by matchers, their labels, and their samples as decoded columns.
 *
 * A querier sees at least every sample whose write was answered before it was opened. It may be
 * used by several threads at once, each call with an arena of its own; close it when all have
 * ended. It never holds a lock between calls; each call holds a shard's locks in short slices.
 */
#ifndef RIMSTONE_ENGINE_QUERIER_H
#define RIMSTONE_ENGINE_QUERIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "engine/labels.h"

struct engine;
struct histogram;
struct querier;

enum { QUERIER_READ_BATCH_MAX = 512 };

/* A series within one querier. Fingerprint order is arbitrary but the same on every machine with
 * the same data directory. */
struct series_handle {
    struct hash128 fingerprint; /* of the canonical label set: identity across shards and sources */
    uint32_t shard;
    uint32_t slot; /* the querier's own: says nothing outside of it */
    uint16_t generation;
};

struct series_list {
    size_t count;
    struct series_handle *items; /* in the arena of the call that made it */
};

/* One series' samples, ascending by time, one per timestamp; staleness markers are included (the
 * evaluator acts on them). Arrays live in the arena of the call. */
struct column {
    size_t count;
    const int64_t *t_ms;
    const double *value; /* of a histogram: its sum, so that staleness markers look alike */
    /* NULL: all samples are floats. Else one pointer a sample, NULL where it is a float. Histograms
     * may share layouts and are nobody's to change: histogram_copy() first. */
    const struct histogram *const *histogram;
    /* Since when each sample has counted, 0: not known. NULL: known of none. */
    const int64_t *start_ms;
};

MUST_USE enum err querier_open(struct engine *e, struct querier **out, struct errinfo *ei);
void querier_close(struct querier *q); /* Accepts NULL. */
/* Long calls look at `*stop` between slices and end with ERR_CANCELED once it is true. May be NULL
 * (never stops). Set before the first call; borrowed until querier_close(). */
void querier_set_stop(struct querier *q, const _Atomic bool *stop);
/* Likewise ERR_TIMEOUT once clock_mono_ns() has passed `mono_ns`; 0: never. */
void querier_set_deadline(struct querier *q, uint64_t mono_ns);

/*
 * Series that match all of `matchers` and may have a sample in [min_time_ms, max_time_ms] (both
 * inclusive; a superset is allowed, by bounds of chunks and files). In no particular order; sort
 * with querier_sort(). matcher_count 0 selects everything. ERR_LIMIT when the arena's budget is
 * spent.
 */
MUST_USE enum err querier_select(struct querier *q, const struct matcher *matchers,
                                 size_t matcher_count, int64_t min_time_ms, int64_t max_time_ms,
                                 struct arena *arena, struct series_list *out, struct errinfo *ei);
/* Sorts by labels_compare() order without building the label sets. */
MUST_USE enum err querier_sort(struct querier *q, struct series_list *list, struct errinfo *ei);

/* Samples in [min_time_ms, max_time_ms] of `count` <= QUERIER_READ_BATCH_MAX series. out[i] belongs
 * to items[i]. Everything that was written before the querier was opened is there, wherever it lies
 * by now; ERR_CORRUPT with file and offset when it cannot be read. Cheapest in the order in which
 * querier_select() gave them. */
MUST_USE enum err querier_read(struct querier *q, const struct series_handle *items, size_t count,
                               int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                               struct column *out, struct errinfo *ei);
/* Full label sets of `count` series, in the arena. */
MUST_USE enum err querier_labels(struct querier *q, const struct series_handle *items, size_t count,
                                 struct arena *arena, struct labels *out, struct errinfo *ei);
/* Only the values of `name_count` labels: out[i * name_count + k] is series i's value of names[k],
 * empty when it has none. Strings are borrowed from the querier until it is closed: equal values of
 * one shard share a pointer as a rule. */
MUST_USE enum err querier_label_values_of(struct querier *q, const struct series_handle *items,
                                          size_t count, const struct str *names, size_t name_count,
                                          struct str *out, struct errinfo *ei);

/* Sorted, distinct label names / values of the series that match any of the matcher sets (set_count
 * 0: of all series) and may have samples in the range. `limit` 0: all. *truncated tells whether
 * more existed. Strings live in the arena. */
struct matcher_set {
    const struct matcher *items;
    size_t count;
};
struct str_list {
    size_t count;
    struct str *items;
};
MUST_USE enum err querier_label_names(struct querier *q, const struct matcher_set *sets,
                                      size_t set_count, int64_t min_time_ms, int64_t max_time_ms,
                                      size_t limit, struct arena *arena, struct str_list *out,
                                      bool *truncated, struct errinfo *ei);
MUST_USE enum err querier_label_values(struct querier *q, struct str name,
                                       const struct matcher_set *sets, size_t set_count,
                                       int64_t min_time_ms, int64_t max_time_ms, size_t limit,
                                       struct arena *arena, struct str_list *out, bool *truncated,
                                       struct errinfo *ei);

#endif
