/*
 * Parts of another number of shards become parts of this one. A part of fewer shards is split, one
 * of more is joined with those that came out of the same part before; at most 16 for one in a step,
 * so that neither writers nor inputs are many: a part of 1 goes to 1,024 shards in three steps.
 *
 * Nothing changes sides: a part's successors keep its generation. Live parts of one generation
 * never hold the same sample, and by their keys share neither a window nor hashes (they come out of
 * one file, whose samples were divided by time and by hashes); what this makes keeps to that, since
 * all of one generation that overlap in time and lie in the shard at hand are joined at once.
 */
#ifndef RIMSTONE_COMPACTOR_REGROUP_H
#define RIMSTONE_COMPACTOR_REGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "compactor/merge.h"
#include "engine/maintain.h"

enum { REGROUP_STEP = MERGE_SPLIT_MAX };

struct regroup {
    struct part_key key;  /* of the result, or of the first of them */
    uint32_t split_count; /* parts that come of one; 0: one comes of several, or of one */
};
/*
 * What a shard of a store of `shard_count` should do next with the parts in its list; false:
 * nothing. usable[i] false: damaged, or of this shard count. Fills chosen[]. A part that several
 * shards list is split by the first of them.
 */
bool regroup_next(const struct part_key *keys, const bool *usable, size_t count, uint32_t shard,
                  uint32_t shard_count, bool *chosen, struct regroup *out);

/*
 * Does it. `o` says how, but for dir, store, key, inputs and split. ERR_NOT_FOUND when a part has
 * gone meanwhile; after any failure nothing has changed.
 */
MUST_USE enum err regroup_run(struct engine *e, const struct regroup *g,
                              const struct engine_parts *parts, const bool *chosen,
                              const struct merge_options *o, struct merge_result *out,
                              struct errinfo *ei);

#endif
