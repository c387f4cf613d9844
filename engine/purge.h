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

enum {
    PURGE_KEY_SIZE_MAX = 1 << 20,
    PURGE_LABELS_MAX = 1024, /* matchers, or source labels of a filter */
};

/* What is to be purged, and under which key: the series that match, or that a rule drops by the
 * labels that are stored. Borrowed. */
struct purge_request {
    struct str key; /* not empty, at most PURGE_KEY_SIZE_MAX */
    const struct matcher *matchers;
    size_t matcher_count; /* at most PURGE_LABELS_MAX */
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
/* Takes purges back, all of them in one manifest or none; durable when it returns. `keys` ascend;
 * out[i] is of keys[i]. A merge under way that would have applied one is given up. ERR_NOT_FOUND:
 * one of the keys has no purge. */
MUST_USE enum err engine_purges_withdraw(struct engine *e, const struct str *keys, size_t count,
                                         struct purge_withdrawn *out, struct errinfo *ei);

/* Keys of all purges that stand, ascending; in `arena`. */
MUST_USE enum err engine_purges(struct engine *e, struct arena *arena, struct str **out,
                                size_t *count, struct errinfo *ei);

#endif
