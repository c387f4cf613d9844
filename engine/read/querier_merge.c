/*
 * Sorting a list that has orphans: those by their label sets, all others as querier_sort.c does it,
 * then both in one order. Places are searched in steps that double, so that few orphans among many
 * series cost few label sets.
 */
#include <string.h>

#include "engine/read/querier_internal.h"
#include "engine/read/querier_sort_internal.h"

/* Series with a slot first; returns their number. `copy` has room for all. */
static size_t partition(struct series_handle *items, size_t count, struct series_handle *copy)
{
    size_t live = 0, orphans = 0;

    for (size_t i = 0; i < count; i++) {
        if (slot_is_orphan(items[i].slot))
            copy[orphans++] = items[i];
        else
            items[live++] = items[i];
    }
    memcpy(items + live, copy, orphans * sizeof *items);
    return live;
}

/* A sorted list of series with slots, and one label set to be placed in it. */
struct search {
    struct querier *q;
    const struct series_handle *live;
    size_t live_count;
    struct arena arena; /* of one label set */
    struct errinfo *ei;
};

/* Whether live series number i comes before the label set. */
static enum err is_before(struct search *s, size_t i, const struct labels *wanted, bool *out)
{
    const struct series_handle *h = &s->live[i];
    struct labels labels;
    enum err e = i % 64 == 0 ? querier_check_stop(s->q, s->ei) : ERR_OK;

    arena_reset(&s->arena);
    if (e == ERR_OK)
        e = index_labels(querier_index(s->q, h->shard), &h->slot, 1, &s->arena, &labels, s->ei);
    if (e == ERR_OK)
        *out = labels_compare(&labels, wanted) < 0;
    return e;
}

/* How many live series come before the label set; at least `from` do. */
static enum err place_find(struct search *s, size_t from, const struct labels *wanted, size_t *out)
{
    size_t low = from, high = s->live_count;
    bool before = false;
    enum err e = ERR_OK;

    for (size_t step = 1; low + step <= s->live_count && e == ERR_OK; step *= 2) {
        e = is_before(s, low + step - 1, wanted, &before);
        if (!before) {
            high = low + step - 1;
            break;
        }
        low += step;
    }
    while (low < high && e == ERR_OK) {
        size_t middle = low + (high - low) / 2;

        e = is_before(s, middle, wanted, &before);
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    *out = low;
    return e;
}

/* places[i]: how many live series come before orphan i. */
static enum err places_find(struct search *s, const struct series_handle *orphans, size_t count,
                            size_t *places)
{
    struct labels sets[QUERIER_GROUP_MAX];
    struct arena arena;
    size_t from = 0;
    enum err e = ERR_OK;

    arena_init(&arena, s->q->memory);
    for (size_t i = 0; i < count && e == ERR_OK; i += QUERIER_GROUP_MAX) {
        size_t n = count - i < QUERIER_GROUP_MAX ? count - i : QUERIER_GROUP_MAX;

        arena_reset(&arena);
        e = querier_labels(s->q, orphans + i, n, &arena, sets, s->ei);
        for (size_t k = 0; k < n && e == ERR_OK; k++) {
            e = place_find(s, from, &sets[k], &places[i + k]);
            from = places[i + k];
        }
    }
    arena_done(&arena);
    return e;
}

/* Both sorted halves of `items` made one, from the end on; `orphans` is a copy of the second. */
static void weave(struct series_handle *items, size_t live_count,
                  const struct series_handle *orphans, const size_t *places, size_t count)
{
    size_t end = live_count + count;

    for (size_t i = count; i-- > 0;) {
        size_t moved = live_count - places[i];

        end -= moved;
        memmove(items + end, items + places[i], moved * sizeof *items);
        live_count = places[i];
        items[--end] = orphans[i];
    }
}

static enum err merge(struct querier *q, struct series_handle *items, size_t live_count,
                      size_t count, struct series_handle *copy, struct arena *arena,
                      struct errinfo *ei)
{
    struct search s = {.q = q, .live = items, .live_count = live_count, .ei = ei};
    size_t *places = ARENA_ARRAY(arena, count - live_count, size_t);
    enum err e;

    if (places == NULL)
        return arena_error(arena, ei);
    memcpy(copy, items + live_count, (count - live_count) * sizeof *copy);
    arena_init(&s.arena, q->memory);
    e = places_find(&s, copy, count - live_count, places);
    arena_done(&s.arena);
    if (e == ERR_OK)
        weave(items, live_count, copy, places, count - live_count);
    return e;
}

static bool has_orphans(const struct series_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (slot_is_orphan(list->items[i].slot))
            return true;
    }
    return false;
}

static enum err sort_mixed(struct querier *q, struct series_list *list, struct arena *arena,
                           struct errinfo *ei)
{
    struct series_handle *copy = ARENA_ARRAY(arena, list->count, struct series_handle);
    struct series_list live = {0, list->items};
    enum err e;

    if (copy == NULL)
        return arena_error(arena, ei);
    live.count = partition(list->items, list->count, copy);
    e = querier_sort_live(q, &live, ei);
    if (e == ERR_OK)
        e = querier_sort_by_sets(q, list->items + live.count, list->count - live.count, ei);
    if (e == ERR_OK && live.count > 0)
        e = merge(q, list->items, live.count, list->count, copy, arena, ei);
    return e;
}

enum err querier_sort(struct querier *q, struct series_list *list, struct errinfo *ei)
{
    struct arena arena;
    enum err e;

    if (!has_orphans(list))
        return querier_sort_live(q, list, ei);
    arena_init(&arena, q->memory);
    e = sort_mixed(q, list, &arena, ei);
    arena_done(&arena);
    return e;
}
