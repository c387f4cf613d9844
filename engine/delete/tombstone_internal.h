/*
 * Tombstones: what was deleted. Which series, a range of time, and the generation below which files
 * are filtered (LIFECYCLE.md). A list is immutable and counted; a change makes a new one.
 *
 * Series are those that all matchers match and that the filter drops, a rule of relabelling that
 * sees several labels at once; a tombstone has matchers or a filter or both.
 */
#ifndef RIMSTONE_ENGINE_DELETE_TOMBSTONE_INTERNAL_H
#define RIMSTONE_ENGINE_DELETE_TOMBSTONE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "engine/labels.h"
#include "engine/relabel.h"

struct tombstone {
    int64_t min_time_ms, max_time_ms; /* inclusive */
    uint64_t generation;              /* files of a lower generation are filtered */
    const struct matcher *matchers;   /* of `shared`, as is the filter */
    size_t matcher_count;
    const struct relabel *filter;      /* NULL: none */
    struct tombstone_matchers *shared; /* counted: lists that hold the same tombstone share it */
};

struct tombstone_list {
    _Atomic uint32_t refs;
    size_t count;
    struct tombstone *items; /* owned; ascending by generation */
};

struct tombstone_list *tombstone_list_ref(struct tombstone_list *list); /* NULL gives NULL */
void tombstone_list_unref(struct tombstone_list *list);                 /* accepts NULL */
/* A copy of `base` (NULL: empty) with one more; matchers are copied and compiled. ERR_INVALID
 * without matchers (those would delete everything) or with min > max. */
MUST_USE enum err tombstone_list_add(const struct tombstone_list *base,
                                     const struct matcher *matchers, size_t matcher_count,
                                     int64_t min_time_ms, int64_t max_time_ms, uint64_t generation,
                                     struct tombstone_list **out, struct errinfo *ei);
/* The same with the series that a rule drops: keep, drop, keepequal or dropequal, which must pass
 * relabel_config_check(). ERR_INVALID for other actions. */
MUST_USE enum err tombstone_list_add_filter(const struct tombstone_list *base,
                                            const struct relabel_config *filter,
                                            int64_t min_time_ms, int64_t max_time_ms,
                                            uint64_t generation, struct tombstone_list **out,
                                            struct errinfo *ei);
/* A copy without those for which keep[i] is false. *out is NULL when none is left. */
MUST_USE enum err tombstone_list_keep(const struct tombstone_list *base, const bool *keep,
                                      struct tombstone_list **out, struct errinfo *ei);

/* Whether any tombstone may hit samples of a file: by generation and overlap of time. */
bool tombstone_list_concerns(const struct tombstone_list *list, uint64_t generation,
                             int64_t min_time_ms, int64_t max_time_ms);
/* Whether it hits a series of these labels, all it has. False when `arena` refuses, which holds
 * nothing of this afterwards. */
MUST_USE bool tombstone_matches(const struct tombstone *t, const struct labels *labels,
                                struct arena *arena, bool *out);

/* Whether any has a filter. NULL: none. */
bool tombstone_list_has_filters(const struct tombstone_list *list);
/* As the content of the manifest's section 4, or of 6 when any has a filter
 * (docs/formats/manifest.md); appended to `w`. `list` may be NULL, and an empty list is decoded to
 * NULL. ERR_CORRUPT for anything that encode would not have written. */
MUST_USE enum err tombstone_list_encode(const struct tombstone_list *list, struct byte_writer *w,
                                        struct errinfo *ei);
MUST_USE enum err tombstone_list_decode(const uint8_t *data, size_t size, bool has_filters,
                                        struct tombstone_list **out, struct errinfo *ei);

#endif
