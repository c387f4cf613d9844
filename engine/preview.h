/*
 * What rules would drop, and what that costs: a preview over the series in memory and all parts.
 */
#ifndef RIMSTONE_ENGINE_PREVIEW_H
#define RIMSTONE_ENGINE_PREVIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/drop_rules.h"
#include "engine/explore.h"

struct querier;
struct preview;

struct preview_options {
    const struct rule_set *rules; /* borrowed */
    size_t limit;                 /* rows of lists, and examples; at least 1 */
};

struct preview_result {
    uint64_t series; /* in memory, those that have ended left out */
    double samples_per_second;
    /* Of all series in memory, by the average one; of parts and sealed files, about, what would
     * come free if what is stored were deleted too. */
    double memory_bytes, disk_bytes;
    /* Whether disk_bytes is of all series of parts that selectors find; else of those of memory
     * only, since rules that are no selectors were judged by labels in memory. */
    bool disk_is_whole;
    struct explore_list metrics;      /* all of them, most series first */
    struct explore_list label_values; /* "name=value", the `limit` with most series */
    const char *const *examples;      /* metric{labels}, at most `limit` */
    size_t example_count;
};

/*
 * Judges the series of an open querier. Rules are taken as a list on its own: what rules in effect
 * have dropped or rewritten already is not seen. With selectors alone the cost is that of selecting
 * and counting what they find; with relabelling rules each series is judged, about a microsecond
 * each. Results live in `arena`, as does the preview; it must be gone before the querier is.
 * ERR_LIMIT when the arena's budget is spent, ERR_CANCELED and ERR_TIMEOUT as for queries.
 */
MUST_USE enum err querier_preview(struct querier *q, const struct preview_options *options,
                                  struct arena *arena, struct preview_result *out,
                                  struct preview **preview, struct errinfo *ei);
/* Whether a selector finds a series in memory that would be dropped. */
MUST_USE enum err preview_meets(const struct preview *p, const struct matcher *matchers,
                                size_t count, bool *out, struct errinfo *ei);

#endif
