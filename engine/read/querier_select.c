/*
 * Selection over all shards: series with a slot out of the indexes, and those that are only in
 * parts.
 *
 * A series may end while we look, which moves it from the index to a part. So a shard's index is
 * asked first, then who of it is live, and only then which parts there are: whoever has gone by the
 * second step is in a part by the third. Nothing of that is done for shards whose parts do not
 * overlap the range, but for looking at their list.
 */
#include <string.h>

#include "base/assert.h"
#include "engine/engine_internal.h"
#include "engine/read/querier_internal.h"

enum { PART_SLICE = 512 };

struct slot_list {
    uint32_t *slots;
    size_t count;
};

/* A series of the shard at hand that matches, by its fingerprint. */
struct known {
    struct series_handle handle;
    bool is_given; /* stands in the result */
};

struct selection {
    struct querier *q;
    const struct matcher *matchers;
    size_t matcher_count;
    int64_t min_time_ms, max_time_ms;
    struct arena *arena;  /* of the result */
    struct arena scratch; /* goes with the call */
    struct series_list list;
    size_t capacity;
    struct errinfo *ei;

    /* Of the shard at hand, while parts overlap. */
    uint32_t shard;
    bool has_known;
    struct arena known_arena;
    struct known *known;
    size_t known_count, known_capacity;
    uint32_t *places; /* number + 1 by fingerprint; a power of two */
    size_t place_count;
    struct byte_writer canonical, rest; /* see engine_identify() */
};

/* ---- the result ---- */

static enum err list_reserve(struct selection *s, size_t count)
{
    size_t capacity = s->capacity * 2;
    struct series_handle *items;

    if (s->list.count + count <= s->capacity)
        return ERR_OK;
    if (capacity < s->list.count + count)
        capacity = s->list.count + count;
    items = arena_grow_array(s->arena, s->list.items, s->list.count, capacity, sizeof *items);
    if (items == NULL)
        return arena_error(s->arena, s->ei);
    s->list.items = items;
    s->capacity = capacity;
    return ERR_OK;
}

/* ---- who is known ---- */

static void known_reset(struct selection *s)
{
    arena_reset(&s->known_arena);
    s->known = NULL;
    s->places = NULL;
    s->known_count = s->known_capacity = s->place_count = 0;
}

static uint32_t *place_find(const struct selection *s, uint32_t *places, size_t place_count,
                            struct hash128 fingerprint)
{
    for (uint64_t i = fingerprint.low;; i++) {
        uint32_t *at = &places[i & (place_count - 1)];

        if (*at == 0 || hash128_equal(s->known[*at - 1].handle.fingerprint, fingerprint))
            return at;
    }
}

/* Room for `count` more. */
static enum err known_reserve(struct selection *s, size_t count)
{
    size_t capacity = s->known_capacity < PART_SLICE ? PART_SLICE : s->known_capacity;
    struct known *items;
    uint32_t *places;

    while (capacity < s->known_count + count)
        capacity *= 2;
    if (capacity == s->known_capacity)
        return ERR_OK;
    items = arena_grow_array(&s->known_arena, s->known, s->known_count, capacity, sizeof *items);
    places = arena_calloc(&s->known_arena, 2 * capacity, sizeof *places);
    if (items == NULL || places == NULL)
        return arena_error(&s->known_arena, s->ei);
    s->known = items;
    s->known_capacity = capacity;
    for (size_t i = 0; i < s->known_count; i++)
        *place_find(s, places, 2 * capacity, items[i].handle.fingerprint) = (uint32_t)i + 1;
    s->places = places;
    s->place_count = 2 * capacity;
    return ERR_OK;
}

/* There is room. */
static void known_add(struct selection *s, struct series_handle handle, bool is_given)
{
    s->known[s->known_count++] = (struct known){handle, is_given};
    *place_find(s, s->places, s->place_count, handle.fingerprint) = (uint32_t)s->known_count;
}

/* ---- series with a slot ---- */

/* Gives those that may have samples in the range, and notes all that are live. */
static enum err slots_give(struct selection *s, const struct slot_list *slots)
{
    struct series_meta meta[QUERIER_META_SLICE];

    DEBUG_ASSERT(slots != NULL);
    for (size_t i = 0; i < slots->count; i += QUERIER_META_SLICE) {
        size_t n = slots->count - i < QUERIER_META_SLICE ? slots->count - i : QUERIER_META_SLICE;
        enum err e = querier_check_stop(s->q, s->ei);

        if (e == ERR_OK)
            e = list_reserve(s, n);
        if (e == ERR_OK && s->has_known)
            e = known_reserve(s, n);
        if (e != ERR_OK)
            return e;
        shard_series_meta(engine_shard(s->q->engine, s->shard), slots->slots + i, n, meta);
        for (size_t k = 0; k < n; k++) {
            bool accepted = time_filter_accepts(s->min_time_ms, s->max_time_ms, &meta[k]);
            struct series_handle handle = {.fingerprint = meta[k].fingerprint,
                                           .shard = s->shard,
                                           .slot = slots->slots[i + k],
                                           .generation = meta[k].generation};

            if (accepted)
                s->list.items[s->list.count++] = handle;
            if (s->has_known && meta[k].is_live)
                known_add(s, handle, accepted);
        }
    }
    return ERR_OK;
}

/* ---- series of parts ---- */

/* Whether a series of a part from another shard count belongs to this shard. */
static enum err foreign_filter(struct selection *s, struct part_source *p, uint32_t *series,
                               struct hash128 *fingerprints, size_t *count)
{
    struct arena_mark mark = arena_mark_get(&s->scratch);
    struct labels sets[PART_SLICE];
    size_t kept = 0;
    enum err e = part_labels(p->part, series, *count, &s->scratch, sets, s->ei);

    for (size_t i = 0; i < *count && e == ERR_OK; i++) {
        struct series_identity identity;

        if (!engine_identify_labels(s->q->engine, &sets[i], &s->canonical, &s->rest, &identity))
            return errinfo_set(s->ei, ERR_NOMEM, 0, "labels of a part of another shard count");
        if (identity.shard != s->shard)
            continue;
        series[kept] = series[i];
        fingerprints[kept++] = fingerprints[i];
    }
    arena_mark_return(&s->scratch, mark);
    *count = kept;
    return e;
}

/* Gives the known ones that are not given yet; the others are moved to the front, their number is
 * returned. */
static size_t known_give(struct selection *s, uint32_t *series, struct hash128 *fingerprints,
                         size_t count)
{
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t *at = place_find(s, s->places, s->place_count, fingerprints[i]);

        if (*at == 0) {
            series[left] = series[i];
            fingerprints[left++] = fingerprints[i];
        } else if (!s->known[*at - 1].is_given) {
            s->known[*at - 1].is_given = true;
            s->list.items[s->list.count++] = s->known[*at - 1].handle;
        }
    }
    return left;
}

static enum err orphans_give(struct selection *s, struct part_source *p, const uint32_t *series,
                             const struct hash128 *fingerprints, size_t count)
{
    uint32_t slots[PART_SLICE];
    enum err e = orphans_add(s->q, s->shard, p, series, fingerprints, count, slots, s->ei);

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        struct series_handle handle = {
            .fingerprint = fingerprints[i], .shard = s->shard, .slot = slots[i]};

        s->list.items[s->list.count++] = handle;
        known_add(s, handle, true);
    }
    return e;
}

/* At most PART_SLICE series, which are overwritten. */
static enum err slice_give(struct selection *s, struct part_source *p, uint32_t *series,
                           size_t count)
{
    struct hash128 fingerprints[PART_SLICE];
    enum err e = querier_check_stop(s->q, s->ei);

    if (e == ERR_OK)
        e = part_fingerprints(p->part, series, count, fingerprints, s->ei);
    if (e == ERR_OK)
        e = list_reserve(s, count);
    if (e == ERR_OK)
        e = known_reserve(s, count);
    if (e != ERR_OK)
        return e;
    count = known_give(s, series, fingerprints, count);
    if (p->is_foreign && count > 0)
        e = foreign_filter(s, p, series, fingerprints, &count);
    return e == ERR_OK && count > 0 ? orphans_give(s, p, series, fingerprints, count) : e;
}

static enum err part_give(struct selection *s, struct part_source *p)
{
    struct arena_mark mark = arena_mark_get(&s->scratch);
    uint32_t *series = NULL;
    size_t count = 0;
    enum err e = part_select(p->part, s->matchers, s->matcher_count, s->q->stop, &s->scratch,
                             &series, &count, s->ei);

    for (size_t i = 0; i < count && e == ERR_OK; i += PART_SLICE)
        e = slice_give(s, p, series + i, count - i < PART_SLICE ? count - i : PART_SLICE);
    arena_mark_return(&s->scratch, mark);
    return e;
}

static bool parts_overlap(const struct selection *s, const struct file_set *files)
{
    for (size_t i = 0; files != NULL && i < files->part_count; i++) {
        if (part_source_overlaps(files->parts[i], s->min_time_ms, s->max_time_ms))
            return true;
    }
    return false;
}

static enum err parts_give(struct selection *s, const struct file_set *files)
{
    enum err e = known_reserve(s, 1); /* places to look in */

    for (size_t i = 0; i < files->part_count && e == ERR_OK; i++) {
        if (part_source_overlaps(files->parts[i], s->min_time_ms, s->max_time_ms))
            e = part_give(s, files->parts[i]);
    }
    return e;
}

/* ---- one shard ---- */

static enum err shard_give(struct selection *s, const struct slot_list *slots)
{
    struct shard *shard = engine_shard(s->q->engine, s->shard);
    struct file_set *files = shard_files(shard);
    size_t count_before = s->list.count;
    enum err e;

    known_reset(s);
    s->has_known = parts_overlap(s, files);
    for (;;) {
        file_set_unref(files);
        e = slots_give(s, slots);
        files = e == ERR_OK ? shard_files(shard) : NULL;
        if (e != ERR_OK || s->has_known || !parts_overlap(s, files))
            break;
        s->list.count = count_before; /* the first part came meanwhile: once more, with notes */
        s->has_known = true;
    }
    if (e == ERR_OK && s->has_known && files != NULL)
        e = parts_give(s, files);
    file_set_unref(files);
    return e;
}

/* Slots of all shards first: so the result takes one allocation as a rule. */
static enum err slots_select(struct selection *s, struct slot_list *lists)
{
    size_t total = 0;

    for (uint32_t i = 0; i < s->q->shard_count; i++) {
        enum err e = querier_check_stop(s->q, s->ei);

        if (e == ERR_OK)
            e = index_select(querier_index(s->q, i), s->matchers, s->matcher_count, s->q->stop,
                             &s->scratch, &lists[i].slots, &lists[i].count, s->ei);
        if (e != ERR_OK)
            return e;
        total += lists[i].count;
    }
    return list_reserve(s, total);
}

static enum err select_all(struct selection *s)
{
    struct slot_list *lists = arena_calloc(&s->scratch, s->q->shard_count, sizeof *lists);
    enum err e = lists == NULL ? arena_error(&s->scratch, s->ei) : slots_select(s, lists);

    for (s->shard = 0; s->shard < s->q->shard_count && e == ERR_OK; s->shard++)
        e = shard_give(s, &lists[s->shard]);
    return e;
}

enum err querier_select(struct querier *q, const struct matcher *matchers, size_t matcher_count,
                        int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                        struct series_list *out, struct errinfo *ei)
{
    struct selection s = {.q = q,
                          .matchers = matchers,
                          .matcher_count = matcher_count,
                          .min_time_ms = min_time_ms,
                          .max_time_ms = max_time_ms,
                          .arena = arena,
                          .ei = ei};
    enum err e;

    /* Slots and matching tables go before the call returns; they count against the same budget. */
    arena_init(&s.scratch, arena->budget);
    arena_init(&s.known_arena, arena->budget);
    writer_init(&s.canonical);
    writer_init(&s.rest);
    e = select_all(&s);
    if (e == ERR_OK)
        *out = s.list;
    writer_done(&s.canonical);
    writer_done(&s.rest);
    arena_done(&s.known_arena);
    arena_done(&s.scratch);
    return e;
}

void time_filter_keep(void *ctx, const uint32_t *slots, size_t count, bool *keep)
{
    const struct time_filter *f = ctx;
    struct series_meta meta[QUERIER_META_SLICE];

    for (size_t i = 0; i < count; i += QUERIER_META_SLICE) {
        size_t n = count - i < QUERIER_META_SLICE ? count - i : QUERIER_META_SLICE;

        shard_series_meta(f->shard, slots + i, n, meta);
        for (size_t k = 0; k < n; k++)
            keep[i + k] = time_filter_accepts(f->min_time_ms, f->max_time_ms, &meta[k]);
    }
}
