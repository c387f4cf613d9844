/*
 * How many slots carry each value of a label: what the posting lists know without being read.
 */
#include "engine/index/index_layout_internal.h"

/* The counts of a slice of values; returns where the next slice begins. */
static uint32_t slice_counts(struct index *ix, uint32_t name_id, uint32_t first, uint32_t end,
                             struct index_count *out, size_t *count)
{
    const struct dictionary *d;

    rwlock_read_lock(&ix->lock);
    d = index_dictionary(ix, name_id);
    if (end - first > INDEX_SLICE_VALUES)
        end = first + INDEX_SLICE_VALUES;
    for (; first < end; first++) {
        uint32_t slots = dictionary_at(d, first)->postings.count;

        if (slots > 0)
            out[(*count)++] = (struct index_count){dictionary_text(d, first), slots};
    }
    rwlock_read_unlock(&ix->lock);
    return end;
}

enum err index_value_counts(struct index *ix, struct str name, struct arena *arena,
                            struct index_count **out, size_t *out_count, struct errinfo *ei)
{
    uint32_t name_id = index_name_id(ix, name), end = 0;
    struct index_count *counts;

    if (name_id != UINT32_MAX)
        end = index_value_count(ix, name_id);
    counts = ARENA_ARRAY(arena, end, struct index_count);
    if (counts == NULL)
        return arena_error(arena, ei);
    *out = counts;
    *out_count = 0;
    for (uint32_t first = 0; first < end;)
        first = slice_counts(ix, name_id, first, end, counts, out_count);
    return ERR_OK;
}
