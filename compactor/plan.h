/*
 * What to merge next. A pure function of the live parts: no clock, no I/O, the same answer for the
 * same list in any order.
 */
#ifndef RIMSTONE_COMPACTOR_PLAN_H
#define RIMSTONE_COMPACTOR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/part.h"

struct plan_part {
    struct part_key key;
    uint64_t size_bytes; /* of both files */
    bool is_fixed;       /* never chosen; nothing is merged across it, and no window around it */
};

struct plan_options {
    uint64_t retention_ms;    /* 0: without end */
    int64_t closed_until_ms;  /* windows that end here or before have been flushed */
    uint32_t input_count_max; /* 2 to MERGE_INPUTS_MAX; 0: 32 */
    uint64_t small_bytes;     /* parts up to this are rewritten without a thought; 0: 4 MiB */
};

enum plan_reason {
    PLAN_NOTHING, /* all is well */
    PLAN_OVERLAP, /* parts whose windows overlap */
    PLAN_WINDOW,  /* the parts of a larger window */
};

struct plan {
    enum plan_reason reason;
    bool *chosen;        /* one for each part of the list; in the arena; NULL for PLAN_NOTHING */
    size_t chosen_count; /* 2 or more */
    struct part_key key; /* of the result */
};

/* The windows: 2 h, 8 h, 1 d, 3 d, 9 d, 27 d, aligned to the epoch; each a multiple of the one
 * before. The largest that is no more than a tenth of the retention, 2 h at least. */
uint64_t plan_window_max_ms(uint64_t retention_ms);

/*
 * Chooses from the parts of one shard; those of other resolutions, retention classes or shard
 * counts may be among them and are never mixed. Parts that overlap come first, the newest ones
 * before the large old part that they lie over, which is rewritten only when they have grown to an
 * eighth of it (or are small, all of them). Then the largest window whose time is over and that
 * holds several parts, none of which reaches out of it; of several, the oldest.
 *
 * Whatever it chooses passes merge_inputs_valid(). One merge a shard at a time: parts in use are
 * not known here. ERR_LIMIT when the arena refuses; ERR_INVALID for a part without a proper window.
 */
MUST_USE enum err plan_next(const struct plan_part *parts, size_t count,
                            const struct plan_options *o, struct arena *arena, struct plan *out,
                            struct errinfo *ei);

#endif
