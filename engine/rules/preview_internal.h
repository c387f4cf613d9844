/*
 * What the files of a preview share.
 */
#ifndef RIMSTONE_ENGINE_RULES_PREVIEW_INTERNAL_H
#define RIMSTONE_ENGINE_RULES_PREVIEW_INTERNAL_H

#include "engine/preview.h"
#include "engine/read/querier_internal.h"

/* Slots of one shard. */
struct slot_marks {
    uint64_t *bits;
    uint32_t slot_end;
};
static inline bool slot_is_marked(const struct slot_marks *m, uint32_t slot)
{
    return (m->bits[slot / 64] >> slot % 64 & 1) != 0;
}

struct preview {
    struct querier *q;
    struct arena *arena;
    struct slot_marks *marks; /* by shard */
    bool is_selectors;        /* all rules are */
};

/* querier_explore() of memory, of marked slots only (explore.c). */
MUST_USE enum err explore_marked(struct querier *q, const struct explore_options *options,
                                 const struct slot_marks *marks, struct arena *arena,
                                 struct explore *out, struct errinfo *ei);
/* Bytes of files (preview_disk.c). */
MUST_USE enum err preview_disk(const struct preview *p, const struct rule_set *rules, double *out,
                               struct errinfo *ei);

#endif
