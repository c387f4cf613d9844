/*
 * What deletions, purges and the retiring of tombstones share: how lists of them are replaced.
 */
#ifndef RIMSTONE_ENGINE_DELETE_DELETE_INTERNAL_H
#define RIMSTONE_ENGINE_DELETE_DELETE_INTERNAL_H

#include "engine/engine_internal.h"
#include "engine/files/manifest_internal.h"

/* Makes a list of tombstones the one in effect: on disk, for merges, for readers. `also` (NULL:
 * nothing) changes the same manifest further, with the new list in it. Caller holds the
 * maintain_locks of all shards. */
typedef enum err tombstones_also(void *ctx, struct manifest *m, struct errinfo *ei);
MUST_USE enum err tombstones_replace(struct engine *e, struct tombstone_list *list,
                                     tombstones_also *also, void *ctx, struct errinfo *ei);

/* The series of one tombstone: those that match, or that a rule drops. Borrowed. */
struct delete_target {
    const struct matcher *matchers;
    size_t matcher_count;
    const struct relabel *filter; /* NULL: the matchers */
};
/* engine_delete() of several with the locks held, of which all happen or none; `also` as above,
 * with the generation of each tombstone, or 0 when nothing lies in the range. */
struct delete_extra {
    enum err (*also)(void *ctx, struct manifest *m, const uint64_t *generations,
                     struct errinfo *ei);
    void *ctx;
};
MUST_USE enum err delete_locked(struct engine *e, const struct delete_target *targets,
                                size_t target_count, int64_t min_time_ms, int64_t max_time_ms,
                                const struct delete_extra *extra, struct errinfo *ei);

#endif
