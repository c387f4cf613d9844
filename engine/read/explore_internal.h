/*
 * What the files of the explorer share: counts by numbers of values, of one index or part each.
 */
#ifndef RIMSTONE_ENGINE_READ_EXPLORE_INTERNAL_H
#define RIMSTONE_ENGINE_READ_EXPLORE_INTERNAL_H

#include "engine/explore.h"
#include "engine/read/querier_internal.h"
#include "engine/rules/preview_internal.h"

struct explore_count {
    uint32_t series, created, ended;
};
static inline void explore_count_add(struct explore_count *c, bool created, bool ended)
{
    c->series++;
    c->created += created;
    c->ended += ended;
}

/* Of a metric. */
struct explore_cost {
    double samples_per_second, samples, bytes;
};

/* The counts of one index, or of one part. */
struct explore_source {
    struct explore_source *next;
    size_t name_count;
    struct str *names; /* by number */
    uint32_t *value_counts;
    struct explore_count **counts; /* by number of the name, then of the value; NULL: none */
    struct explore_cost *costs;    /* by number of the metric's name; NULL: none */
    /* Texts of values [first, first + count) of a name, good as long as the arena and the querier.
     */
    enum err (*texts)(const struct explore_source *s, size_t name, uint32_t first, uint32_t count,
                      struct arena *arena, struct str *out, struct errinfo *ei);
    void *of; /* struct index, struct part */
};

/* Whether a value has series here: counted, or of parts before, which cost something here too. */
static inline bool explore_is_met(const struct explore_source *s, size_t name, uint32_t value)
{
    return s->counts[name][value].series > 0 ||
           (s->costs != NULL && str_equal(s->names[name], LABEL_METRIC_NAME) &&
            s->costs[value].bytes > 0);
}

struct explore_run {
    struct querier *q;
    const struct explore_options *options;
    const struct slot_marks *marks; /* by shard: only these slots; NULL: all. Of memory */
    struct arena *arena;            /* of the answer */
    struct arena work;              /* counts: until the end */
    struct explore_source *sources; /* in `work` */
    struct file_set **sets;         /* counted, in `work`: parts that sources read; NULL: none */
    uint32_t set_count;
    struct explore_row all;
    double hours;
    struct errinfo *ei;
};

/* A source in `work` with places for `name_count` names. NULL: arena_error(&run->work). */
struct explore_source *explore_source_new(struct explore_run *run, size_t name_count);
/* explore_memory.c, explore_day.c */
MUST_USE enum err explore_memory(struct explore_run *run);
MUST_USE enum err explore_day(struct explore_run *run);

/* ---- the largest rows (explore_top.c) ---- */

/* A heap with the least of the rows, by `series` (or whatever a user puts there), on top. */
struct explore_top {
    struct explore_row *rows; /* in the arena of the answer */
    size_t count, capacity, limit;
};
/* Offers a row named `row->name`, or "label=name" where a label is given; the text is copied once
 * it is among the largest. False when the arena refuses. */
MUST_USE bool explore_top_offer(struct explore_top *t, struct arena *arena, struct str label,
                                const struct explore_row *row);
/* Sorts the heap, the largest first. */
struct explore_list explore_top_take(struct explore_top *t);

#endif
