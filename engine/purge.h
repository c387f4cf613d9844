/*
 * Deletions that can be taken back: what drop rules with `purge` do to what is stored. A purge has
 * a key, the caller's, and stands until it is withdrawn. Until a flush or merge has written a file
 * anew without what is deleted, the samples are only hidden; withdrawing shows them again.
 */
#ifndef RIMSTONE_ENGINE_PURGE_H
#define RIMSTONE_ENGINE_PURGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/labels.h"
#include "engine/relabel.h"

struct engine;

/* What is to be purged, and under which key: the series that match, or that a rule drops by the
 * labels that are stored. Borrowed. */
struct purge_request {
    struct str key; /* not empty, at most 1 MiB */
    const struct matcher *matchers;
    size_t matcher_count;
    /* NULL: the matchers. Else keep, drop, keepequal or dropequal; passes relabel_config_check().
     */
    const struct relabel_config *filter;
};
/* As engine_delete() of everything stored by now (maintain.h), of each request under its key; one
 * whose key stands, or stood before in the list, is passed over. However many they are, shards are
 * sealed once, and all of them are made or none. `*made` (may be NULL): how many were. Durable when
 * it returns; after engine_replay(). */
MUST_USE enum err engine_purge(struct engine *e, const struct purge_request *requests, size_t count,
                               size_t *made, struct errinfo *ei);

/* What came of a purge until it was withdrawn. */
struct purge_withdrawn {
    uint64_t file_count; /* files that stood when it was made, of any series */
    uint64_t file_left;  /* of these, not written anew since (nor gone by retention): what they hold
                          * is back, all of it when this is file_count */
};
/* Takes a purge back; durable when it returns. A merge under way that would have applied it is
 * given up. ERR_NOT_FOUND: none of that key. */
MUST_USE enum err engine_purge_withdraw(struct engine *e, struct str key,
                                        struct purge_withdrawn *out, struct errinfo *ei);

/* Keys of all purges that stand, ascending; in `arena`. */
MUST_USE enum err engine_purges(struct engine *e, struct arena *arena, struct str **out,
                                size_t *count, struct errinfo *ei);

#endif
