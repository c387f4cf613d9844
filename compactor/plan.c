/*
 * What to merge next: see plan.h.
 *
 * Late data arrives with every seal, a few samples over a window that was merged long ago. Merging
 * at once would rewrite a day for each of them, never merging would leave readers with hundreds of
 * sources. So overlapping parts are merged from the newest generation down, as long as the next
 * older ones are not much larger than what has been gathered: each byte of a large part is then
 * rewritten at most for an eighth of its size in late data, and the number of parts over one moment
 * grows with the logarithm of the late data only.
 *
 * Windows nest, so a part lies within another's window or beside it. Generations are taken as whole
 * groups (a late file splits into parts of one generation): whatever stays is older or younger than
 * all that is merged, which is what merge_inputs_valid() asks. What cannot be merged for now (parts
 * of another number of shards, sealed files, damaged parts) stays: the parts on both sides of it
 * are merged by themselves.
 */
#include "compactor/plan.h"

#include <stdlib.h>
#include <string.h>

#include "compactor/merge_internal.h"

enum { INPUTS_DEFAULT = 32, REWRITE_RATIO = 8, RETENTION_SHARE = 10 };

static const uint64_t hour_ms = UINT64_C(3600) * 1000;
static const uint64_t small_default_bytes = UINT64_C(4) << 20;
static const uint32_t window_hours[] = {2, 8, 24, 72, 216, 648};
enum { WINDOW_COUNT = sizeof window_hours / sizeof window_hours[0] };

struct entry {
    const struct plan_part *part;
    size_t index; /* in the caller's list */
    int64_t first_ms, last_ms;
};

struct planner {
    const struct plan_options *o;
    const struct plan_part *parts;
    size_t count;
    struct entry *entries; /* by family, then window; without those that stay */
    struct entry *scratch; /* as many */
    size_t entry_count;
    uint32_t input_count_max;
    uint64_t small_bytes;
    struct plan *out;
    bool *chosen;
};

uint64_t plan_window_max_ms(uint64_t retention_ms)
{
    size_t level = WINDOW_COUNT - 1;

    while (retention_ms != 0 && level > 0 &&
           window_hours[level] * hour_ms > retention_ms / RETENTION_SHARE)
        level--;
    return window_hours[level] * hour_ms;
}

/* ---- order ---- */

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

static int compare_families(const struct part_key *a, const struct part_key *b)
{
    int c = COMPARE(a->shard_count, b->shard_count);

    c = c != 0 ? c : COMPARE(a->shard, b->shard);
    c = c != 0 ? c : COMPARE(a->resolution_ms, b->resolution_ms);
    return c != 0 ? c : COMPARE(a->retention_class, b->retention_class);
}

static int by_time(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = compare_families(&x->part->key, &y->part->key);

    c = c != 0 ? c : COMPARE(x->first_ms, y->first_ms);
    c = c != 0 ? c : COMPARE(y->last_ms, x->last_ms);
    return c != 0 ? c : COMPARE(x->part->key.generation, y->part->key.generation);
}

/* The youngest first. */
static int by_generation(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = COMPARE(y->part->key.generation, x->part->key.generation);

    return c != 0 ? c : by_time(a, b);
}

/* ---- choosing ---- */

/* Takes `count` entries; false when they may not be merged after all. */
static bool choose(struct planner *p, const struct entry *e, size_t count, enum plan_reason reason,
                   struct part_key *keys)
{
    memset(p->chosen, 0, p->count * sizeof *p->chosen);
    for (size_t i = 0; i < count; i++)
        p->chosen[e[i].index] = true;
    if (merge_inputs_valid(keys, p->chosen, p->count, &p->out->key, NULL) != ERR_OK)
        return false;
    p->out->reason = reason;
    p->out->chosen = p->chosen;
    p->out->chosen_count = count;
    return true;
}

/* ---- overlaps ---- */

/* End of the entries of one generation. */
static size_t generation_end(const struct entry *e, size_t first, size_t count)
{
    size_t end = first + 1;

    while (end < count && e[end].part->key.generation == e[first].part->key.generation)
        end++;
    return end;
}

/* Begin of the entries of the generation that `at` has. */
static size_t generation_begin(const struct entry *e, size_t at)
{
    while (at > 0 && e[at - 1].part->key.generation == e[at].part->key.generation)
        at--;
    return at;
}

static uint64_t bytes_of(const struct entry *e, size_t first, size_t end)
{
    uint64_t sum = 0;

    for (size_t i = first; i < end; i++) {
        uint64_t n = e[i].part->size_bytes;

        sum = n > UINT64_MAX - sum ? UINT64_MAX : sum + n;
    }
    return sum;
}

/* A group of one generation that is too large for one merge: as many of them as may be, side by
 * side within the window of the widest part, so that windows still nest. */
static bool choose_side_by_side(struct planner *p, const struct entry *e, size_t first, size_t end,
                                const struct entry *widest, struct part_key *keys)
{
    size_t from = first, n;

    while (from < end && e[from].first_ms < widest->first_ms)
        from++;
    for (n = 0; from + n < end && n < p->input_count_max; n++) {
        if (e[from + n].last_ms > widest->last_ms)
            break;
    }
    return n >= 2 && choose(p, e + from, n, PLAN_OVERLAP, keys);
}

/* Entries [first, end) by descending generation: the group at `first` and as many of the older ones
 * as are worth it. */
static bool choose_run(struct planner *p, const struct entry *e, size_t first, size_t count,
                       struct part_key *keys)
{
    size_t end = generation_end(e, first, count), taken = end, next;
    uint64_t bytes = bytes_of(e, first, end);

    if (end - first > p->input_count_max)
        return false;
    for (; taken < count; taken = next) {
        uint64_t more;

        next = generation_end(e, taken, count);
        more = bytes_of(e, taken, next);
        if (next - first > p->input_count_max ||
            (more / REWRITE_RATIO > bytes && more > p->small_bytes))
            break;
        bytes = more > UINT64_MAX - bytes ? UINT64_MAX : bytes + more;
    }
    /* What stays may lie between the younger and the older ones. */
    while (taken > end && !choose(p, e + first, taken - first, PLAN_OVERLAP, keys))
        taken = generation_begin(e, taken - 1);
    return taken > end;
}

/* Entries that are connected by overlaps: sorted by time, at least two. */
static bool choose_overlap(struct planner *p, const struct entry *connected, size_t count,
                           struct part_key *keys)
{
    struct entry *e = p->scratch;
    const struct entry *widest = &connected[0];

    for (size_t i = 1; i < count; i++) {
        if (connected[i].part->key.window_size_ms > widest->part->key.window_size_ms)
            widest = &connected[i];
    }
    memcpy(e, connected, count * sizeof *e);
    qsort(e, count, sizeof *e, by_generation);
    for (size_t first = 0, end; first < count; first = end) {
        end = generation_end(e, first, count);
        if (end - first > p->input_count_max ? choose_side_by_side(p, e, first, end, widest, keys)
                                             : choose_run(p, e, first, count, keys))
            return true;
    }
    return false;
}

static bool plan_overlaps(struct planner *p, struct part_key *keys)
{
    for (size_t first = 0, end; first < p->entry_count; first = end) {
        int64_t last_ms = p->entries[first].last_ms;

        for (end = first + 1; end < p->entry_count; end++) {
            const struct entry *e = &p->entries[end];

            if (compare_families(&e->part->key, &p->entries[first].part->key) != 0 ||
                e->first_ms > last_ms)
                break;
            last_ms = e->last_ms > last_ms ? e->last_ms : last_ms;
        }
        if (end - first >= 2 && choose_overlap(p, p->entries + first, end - first, keys))
            return true;
    }
    return false;
}

/* ---- windows ---- */

/* First and last moment of the aligned window around t_ms; false where it passes the ends of time.
 */
static bool window_around(int64_t t_ms, uint64_t size_ms, int64_t *first_ms, int64_t *last_ms)
{
    int64_t size = (int64_t)size_ms, behind = t_ms % size;

    behind = behind < 0 ? behind + size : behind;
    if (t_ms < INT64_MIN + behind || t_ms - behind > INT64_MAX - (size - 1))
        return false;
    *first_ms = t_ms - behind;
    *last_ms = *first_ms + (size - 1);
    return true;
}

/* The entries from `first` on that begin in a window of size_ms that ends at last_ms; *fits is
 * false when one of them reaches out of it, or is as large: what lies over that one is an overlap.
 */
static size_t window_end(const struct planner *p, size_t first, uint64_t size_ms, int64_t last_ms,
                         bool *fits)
{
    size_t end = first;

    *fits = true;
    for (; end < p->entry_count; end++) {
        const struct entry *e = &p->entries[end];

        if (compare_families(&e->part->key, &p->entries[first].part->key) != 0 ||
            e->first_ms > last_ms)
            break;
        *fits = *fits && e->last_ms <= last_ms && e->part->key.window_size_ms < size_ms;
    }
    return end;
}

/* Whether an earlier part of the family reaches into the window. */
static bool reached_into(const struct planner *p, size_t first, int64_t first_ms)
{
    for (size_t i = first; i-- > 0;) {
        const struct entry *e = &p->entries[i];

        if (compare_families(&e->part->key, &p->entries[first].part->key) != 0)
            break;
        if (e->last_ms >= first_ms)
            return true;
    }
    return false;
}

/* Whether a part that stays has hashes of the entry's shard in a window. */
static bool is_barred(const struct planner *p, const struct entry *e, int64_t first_ms,
                      uint64_t size_ms)
{
    struct part_key window = e->part->key;

    window.window_start_ms = first_ms;
    window.window_size_ms = size_ms;
    for (size_t i = 0; i < p->count; i++) {
        if (p->parts[i].is_fixed && part_key_meets(&p->parts[i].key, &window))
            return true;
    }
    return false;
}

static bool plan_windows(struct planner *p, uint64_t size_ms, struct part_key *keys)
{
    for (size_t first = 0, end; first < p->entry_count; first = end) {
        int64_t first_ms = 0, last_ms = 0;
        bool fits;

        end = first + 1;
        if (!window_around(p->entries[first].first_ms, size_ms, &first_ms, &last_ms))
            continue;
        end = window_end(p, first, size_ms, last_ms, &fits);
        /* closed_until_ms is a bound that is not itself in a closed window. */
        if (!fits || last_ms >= p->o->closed_until_ms || end - first < 2 ||
            end - first > p->input_count_max || reached_into(p, first, first_ms) ||
            is_barred(p, &p->entries[first], first_ms, size_ms) ||
            !choose(p, p->entries + first, end - first, PLAN_WINDOW, keys))
            continue;
        p->out->key.window_start_ms = first_ms;
        p->out->key.window_size_ms = size_ms;
        return true;
    }
    return false;
}

/* ---- */

static enum err entries_fill(struct planner *p, struct errinfo *ei)
{
    for (size_t i = 0; i < p->count; i++) {
        struct entry *e = &p->entries[p->entry_count];

        *e = (struct entry){.part = &p->parts[i], .index = i};
        if (!merge_window(&p->parts[i].key, &e->first_ms, &e->last_ms))
            return errinfo_set(ei, ERR_INVALID, 0, "plan: part %zu has no proper window", i);
        p->entry_count += !p->parts[i].is_fixed;
    }
    qsort(p->entries, p->entry_count, sizeof *p->entries, by_time);
    return ERR_OK;
}

enum err plan_next(const struct plan_part *parts, size_t count, const struct plan_options *o,
                   struct arena *arena, struct plan *out, struct errinfo *ei)
{
    struct planner p = {.o = o,
                        .parts = parts,
                        .count = count,
                        .entries = ARENA_ARRAY(arena, count, struct entry),
                        .scratch = ARENA_ARRAY(arena, count, struct entry),
                        .chosen = ARENA_ARRAY(arena, count, bool),
                        .input_count_max = o->input_count_max,
                        .small_bytes = o->small_bytes,
                        .out = out};
    struct part_key *keys = ARENA_ARRAY(arena, count, struct part_key);
    uint64_t window_max_ms = plan_window_max_ms(o->retention_ms);
    enum err e;

    if (p.entries == NULL || p.scratch == NULL || p.chosen == NULL || keys == NULL)
        return arena_error(arena, ei);
    *out = (struct plan){.reason = PLAN_NOTHING};
    if (p.input_count_max < 2 || p.input_count_max > MERGE_INPUTS_MAX)
        p.input_count_max = INPUTS_DEFAULT;
    if (p.small_bytes == 0)
        p.small_bytes = small_default_bytes;
    for (size_t i = 0; i < count; i++)
        keys[i] = parts[i].key;
    e = entries_fill(&p, ei);
    if (e != ERR_OK || plan_overlaps(&p, keys))
        return e;
    for (size_t level = WINDOW_COUNT; level-- > 0;) {
        uint64_t size_ms = window_hours[level] * hour_ms;

        if (size_ms <= window_max_ms && plan_windows(&p, size_ms, keys))
            return ERR_OK;
    }
    return ERR_OK;
}
