/*
 * The series of an image by value: a counting sort a name.
 *
 * Groups ascend by slot each, but not together. Each puts its values into a table by slot; walking
 * that table keeps every list ascending at the price of one sequential pass. Which places are of
 * the name at hand stands in a bitmap, so that the table is never cleared and a rare name costs a
 * bit a slot.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/sealed/series_file_internal.h"

enum err series_image_sorter_init(struct series_image_sorter *s, const struct series_image *image,
                                  struct arena *arena, struct errinfo *ei)
{
    *s = (struct series_image_sorter){.image = image, .word_count = image->slot_end / 64 + 1};
    s->by_slot = ARENA_ARRAY(arena, (size_t)image->slot_end + 1, uint32_t);
    s->seen = arena_calloc(arena, s->word_count, sizeof *s->seen);
    return s->by_slot == NULL || s->seen == NULL ? arena_error(arena, ei) : ERR_OK;
}

/* Where in a schema a name stands; UINT32_MAX if it does not. */
static uint32_t schema_position(const struct series_image_schema *schema, uint32_t name)
{
    for (uint32_t k = 0; k < schema->name_count; k++) {
        if (schema->names[k] == name)
            return k;
    }
    return UINT32_MAX;
}

/* Enters a group; values NULL: all have the value `constant`. Counts go to counts[value]. */
static void group_enter(struct series_image_sorter *s, const struct series_image_group *g,
                        const uint32_t *values, uint32_t constant, uint32_t *counts)
{
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t slot = g->slots[i], value = values == NULL ? constant : values[i];

        s->by_slot[slot] = value;
        s->seen[slot / 64] |= UINT64_C(1) << slot % 64;
        counts[value]++;
    }
}

/* Deals out what was entered: value v's next slot goes to slots[next[v]]. Clears the bitmap. */
static void deal(struct series_image_sorter *s, uint32_t *next, uint32_t *slots)
{
    for (size_t w = 0; w < s->word_count; w++) {
        uint64_t word = s->seen[w];

        s->seen[w] = 0;
        for (; word != 0; word &= word - 1) {
            uint32_t slot = (uint32_t)w * 64 + (uint32_t)__builtin_ctzll(word);

            slots[next[s->by_slot[slot]]++] = slot;
        }
    }
}

/* Lists by value. offsets[v + 2] holds the count of value v on entry. */
static enum err lists_make(struct series_image_sorter *s, uint32_t *offsets, uint32_t value_count,
                           struct arena *arena, struct series_image_postings *out,
                           struct errinfo *ei)
{
    uint32_t *slots;

    for (uint32_t v = 2; v < value_count + 2; v++)
        offsets[v] += offsets[v - 1];
    slots = ARENA_ARRAY(arena, offsets[value_count + 1], uint32_t);
    if (slots == NULL) {
        memset(s->seen, 0, s->word_count * sizeof *s->seen);
        return arena_error(arena, ei);
    }
    /* offsets[v + 1] is where the next slot of value v goes; it ends where value v + 1 begins. */
    deal(s, offsets + 1, slots);
    *out = (struct series_image_postings){offsets, slots};
    return ERR_OK;
}

enum err series_image_postings(struct series_image_sorter *s, uint32_t name, struct arena *arena,
                               struct series_image_postings *out, struct errinfo *ei)
{
    const struct series_image *image = s->image;
    uint32_t value_count = image->names[name].value_count;
    uint32_t *offsets = arena_calloc(arena, (size_t)value_count + 2, sizeof *offsets);

    if (offsets == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < image->group_count; i++) {
        const struct series_image_group *g = &image->groups[i];
        uint32_t k = schema_position(&image->schemas[g->schema], name);

        if (k != UINT32_MAX)
            group_enter(s, g, g->values + (size_t)k * g->count, 0, offsets + 2);
    }
    return lists_make(s, offsets, value_count, arena, out, ei);
}

enum err series_image_schema_postings(struct series_image_sorter *s, struct arena *arena,
                                      struct series_image_postings *out, struct errinfo *ei)
{
    const struct series_image *image = s->image;
    uint32_t *offsets = arena_calloc(arena, (size_t)image->schema_count + 2, sizeof *offsets);

    if (offsets == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < image->group_count; i++)
        group_enter(s, &image->groups[i], NULL, image->groups[i].schema, offsets + 2);
    return lists_make(s, offsets, image->schema_count, arena, out, ei);
}

void series_image_slots(struct series_image_sorter *s, uint32_t *out)
{
    uint32_t count = 0, next = 0;

    for (size_t i = 0; i < s->image->group_count; i++)
        group_enter(s, &s->image->groups[i], NULL, 0, &count);
    deal(s, &next, out);
}
