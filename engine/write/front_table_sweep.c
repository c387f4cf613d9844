/*
 * Taking dead entries out of the front table.
 *
 * Entries never move within a published segment, so nothing can be cut out of one: the entries that
 * stay are copied into a fresh segment of the class that fits them, which is published as a grown
 * one is. Neighbours that have become sparse are joined, else a table that has shrunk would keep
 * its smallest segments for good. The directory keeps its size: 8 bytes a place.
 *
 * Who is dead is asked without the lock, since the answer is behind the shards' locks. In between
 * others may change the segment; a target that was dead stays dead (its generation never returns
 * within a sweep), so an entry goes only if its whole second word is still the one asked about.
 */
#include <stdlib.h>

#include "engine/write/front_table_layout_internal.h"

enum {
    JOIN_MAX = FRONT_CAPACITY_MAX * 2 / 5, /* entries of a joined segment: room before it splits */
    SEGMENT_ATTEMPTS = 3,                  /* when others replace a segment meanwhile */
};

/* A segment's second words as they were when the filter was asked. */
struct sweep {
    struct front_table *table;
    const struct front_filter *filter;
    uint64_t removed;
    uint32_t capacity; /* places copied */
    bool keep[FRONT_CAPACITY_MAX];
    uint64_t words[FRONT_CAPACITY_MAX]; /* 0: an empty place; no target is 0 */
    /* Compact, for the filter. */
    front_target targets[FRONT_CAPACITY_MAX];
    bool target_keep[FRONT_CAPACITY_MAX];
};

/* Copies what stands in a segment; how many entries. Caller holds the lock. */
static size_t words_take(struct sweep *s, const struct front_segment *seg)
{
    size_t count = 0;

    s->capacity = front_class_capacity(seg->class);
    for (uint32_t i = 0; i < s->capacity; i++) {
        bool used = atomic_load_explicit(&seg->entries[i].key, memory_order_relaxed) != 0;

        s->words[i] =
            used ? atomic_load_explicit(&seg->entries[i].target, memory_order_relaxed) : 0;
        if (used)
            s->targets[count++] = s->words[i] & ~s->table->key_mask;
    }
    return count;
}

/* Asks about the copied entries; how many are dead. Caller holds no lock. */
static size_t words_judge(struct sweep *s, size_t count)
{
    size_t dead = 0, next = 0;

    s->filter->keep(s->filter->ctx, s->targets, count, s->target_keep);
    for (uint32_t i = 0; i < s->capacity; i++) {
        s->keep[i] = s->words[i] == 0 || s->target_keep[next++];
        dead += !s->keep[i];
    }
    return dead;
}

static bool entry_stays(const struct sweep *s, const struct front_segment *seg, uint32_t i)
{
    return i >= s->capacity || s->keep[i] ||
           atomic_load_explicit(&seg->entries[i].target, memory_order_relaxed) != s->words[i];
}

static void copy_entry(struct front_segment *to, const struct front_segment *from, uint32_t i)
{
    uint64_t key = atomic_load_explicit(&from->entries[i].key, memory_order_relaxed);

    if (key != 0)
        front_segment_put(to, key,
                          atomic_load_explicit(&from->entries[i].target, memory_order_relaxed));
}

/* Where the places of a segment begin in the directory, and how many they are. */
static size_t places_of(const struct front_directory *d, const struct front_segment *seg,
                        uint64_t key, size_t *first)
{
    size_t places = (size_t)1 << (d->depth - seg->depth);

    *first = front_directory_index(d->depth, key) / places * places;
    return places;
}

static void publish(struct front_table *t, const struct front_segment *seg, uint64_t key)
{
    struct front_directory *d = atomic_load_explicit(&t->directory, memory_order_relaxed);
    size_t first, places = places_of(d, seg, key, &first);

    for (size_t i = 0; i < places; i++)
        atomic_store_explicit(&d->segments[first + i], front_tag(seg), memory_order_release);
}

/* Replaces a segment by one without its dead entries. Caller holds the lock. False when memory is
 * refused: they wait for the next sweep. */
static bool segment_clean(struct sweep *s, struct front_segment *old, uint64_t key)
{
    struct front_table *t = s->table;
    uint32_t stays = 0;
    struct front_segment *seg;

    for (uint32_t i = 0; i < front_class_capacity(old->class); i++)
        stays += atomic_load_explicit(&old->entries[i].key, memory_order_relaxed) != 0 &&
                 entry_stays(s, old, i);
    if (stays == old->count)
        return true;
    seg = front_segment_new(t, old->depth, front_class_for(stays));
    if (seg == NULL)
        return false;
    for (uint32_t i = 0; i < front_class_capacity(old->class); i++)
        if (entry_stays(s, old, i))
            copy_entry(seg, old, i);
        else if (s->filter->removed != NULL)
            s->filter->removed(s->filter->ctx, s->words[i] & ~t->key_mask);
    publish(t, seg, key);
    s->removed += old->count - stays;
    atomic_fetch_sub_explicit(&t->entry_count, old->count - stays, memory_order_relaxed);
    front_segment_retire(t, old);
    return true;
}

/* Joins the segment of `key`, if it is the upper half of a range, with the lower one, which has
 * been swept before. False when it is not or they are too full. Caller holds the lock. */
static bool segment_join(struct front_table *t, uint64_t key)
{
    struct front_segment *upper = front_segment_of(t, key), *lower, *seg;
    uint64_t half_bit;

    if (upper->depth == 0)
        return false;
    half_bit = UINT64_C(1) << (64 - upper->depth);
    if ((key & half_bit) == 0)
        return false;
    lower = front_segment_of(t, key ^ half_bit);
    if (lower->depth != upper->depth || lower->count + upper->count > JOIN_MAX)
        return false;
    seg = front_segment_new(t, upper->depth - 1, front_class_for(lower->count + upper->count));
    if (seg == NULL)
        return false;
    for (uint32_t i = 0; i < front_class_capacity(lower->class); i++)
        copy_entry(seg, lower, i);
    for (uint32_t i = 0; i < front_class_capacity(upper->class); i++)
        copy_entry(seg, upper, i);
    publish(t, seg, key);
    front_segment_retire(t, lower);
    front_segment_retire(t, upper);
    return true;
}

/* One attempt at the segment of `key`; false when it was replaced meanwhile, or memory refused.
 * *next: the first key behind the segment, 0 at the end of the table. */
static bool segment_sweep(struct sweep *s, uint64_t key, uint64_t *next)
{
    struct front_table *t = s->table;
    const struct front_segment *seen;
    struct front_segment *seg;
    size_t count, dead;
    bool done;

    mutex_lock(&t->lock);
    seen = front_segment_of(t, key);
    count = words_take(s, seen);
    mutex_unlock(&t->lock);
    dead = words_judge(s, count);
    mutex_lock(&t->lock);
    seg = front_segment_of(t, key);
    /* Another segment at the same address does no harm: words are compared one by one. */
    done = dead == 0 || (seg == seen && segment_clean(s, seg, key));
    seg = front_segment_of(t, key);
    *next = seg->depth == 0 ? 0 : key + (UINT64_C(1) << (64 - seg->depth));
    while (done && segment_join(t, key)) {
    }
    mutex_unlock(&t->lock);
    return done;
}

enum err front_table_sweep(struct front_table *t, const struct front_filter *filter,
                           uint64_t *removed, struct errinfo *ei)
{
    struct sweep *s = calloc(1, sizeof *s);
    uint64_t key = 0;

    if (s == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "sweep of the front table");
    s->table = t;
    s->filter = filter;
    do {
        uint64_t next = 0;

        for (int i = 0; i < SEGMENT_ATTEMPTS && !segment_sweep(s, key, &next); i++) {
        }
        key = next;
    } while (key != 0);
    *removed = s->removed;
    free(s);
    return ERR_OK;
}

/* ---- copies ---- */

static size_t segment_copies(const struct front_table *t, const struct front_segment *seg,
                             struct front_copy *out)
{
    size_t count = 0;

    for (uint32_t i = 0; i < front_class_capacity(seg->class); i++) {
        uint64_t key = atomic_load_explicit(&seg->entries[i].key, memory_order_relaxed);
        uint64_t word = atomic_load_explicit(&seg->entries[i].target, memory_order_relaxed);

        if (key != 0)
            out[count++] = (struct front_copy){{key, word & t->key_mask}, word & ~t->key_mask};
    }
    return count;
}

bool front_table_each(struct front_table *t,
                      bool (*visit)(void *ctx, const struct front_copy *entries, size_t count),
                      void *ctx)
{
    struct front_copy *copies = calloc(FRONT_CAPACITY_MAX, sizeof *copies);
    uint64_t key = 0;
    bool more;

    if (copies == NULL)
        return false;
    do {
        mutex_lock(&t->lock);
        const struct front_segment *seg = front_segment_of(t, key);
        size_t count = segment_copies(t, seg, copies);
        /* A segment that was joined meanwhile may begin before `key`; to repeat does no harm. */
        key = seg->depth == 0 ? 0 : ((key >> (64 - seg->depth)) + 1) << (64 - seg->depth);
        mutex_unlock(&t->lock);
        more = visit(ctx, copies, count);
    } while (more && key != 0);
    free(copies);
    return more;
}
