/*
 * Every label set of an index, for those who judge series by several labels at once.
 */
#include "engine/index/index_internal.h"

enum { WALK_SERIES = 256 };

enum err index_walk(struct index *ix, uint32_t slot_end, struct budget *memory,
                    index_label_visitor *visit, void *ctx, struct errinfo *ei)
{
    struct labels sets[WALK_SERIES];
    uint32_t slots[WALK_SERIES];
    struct arena scratch;
    enum err e = ERR_OK;

    arena_init(&scratch, memory);
    for (uint32_t first = 0; first < slot_end && e == ERR_OK; first += WALK_SERIES) {
        size_t count = slot_end - first < WALK_SERIES ? slot_end - first : (size_t)WALK_SERIES;

        for (size_t i = 0; i < count; i++)
            slots[i] = first + (uint32_t)i;
        e = index_labels(ix, slots, count, &scratch, sets, ei);
        if (e == ERR_OK)
            e = visit(ctx, slots, sets, count, &scratch, ei);
        arena_reset(&scratch);
    }
    arena_done(&scratch);
    return e;
}
