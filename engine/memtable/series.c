/*
 * Pages of series, and the fingerprint table.
 *
 * An entry of the fingerprint table is 32 bits: 26 of the slot and 6 of the fingerprint, so that a
 * probe touches a wrong series struct (a cache miss) only once in 64 times. An extendible hash: the
 * top `depth` bits of the fingerprint's high word choose the segment, its low word the place in it.
 */
#include "engine/memtable/series_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum {
    SEGMENT_CAPACITY = 1024,
    SEGMENT_FILL_MAX = 840, /* 82 %: about four probes for a miss */
    SLOT_BITS = 26,
    ENTRY_NONE = UINT32_MAX,
    DEPTH_MAX = 28,
};
static_assert(SERIES_SLOT_MAX == 1 << SLOT_BITS, "a slot fits an entry");

struct fingerprint_segment {
    uint32_t depth; /* how many bits of the hash all entries share */
    uint32_t count;
    uint32_t entries[SEGMENT_CAPACITY];
};

/* ---- pages ---- */

enum err series_table_init(struct series_table *t, struct slab *slab)
{
    *t = (struct series_table){.slab = slab};
    t->pages = calloc(SERIES_PAGE_MAX, sizeof(struct series *));
    return t->pages == NULL ? ERR_NOMEM : ERR_OK;
}

void series_table_done(struct series_table *t)
{
    free(t->pages);
    t->pages = NULL;
}

bool series_table_reserve(struct series_table *t, uint32_t slot)
{
    struct series **page;

    /* The last slot stays free: with all tag bits set its entry would read as ENTRY_NONE. */
    if (slot >= SERIES_SLOT_MAX - 1)
        return false;
    page = &t->pages[slot / SERIES_PAGE_SERIES];
    if (*page == NULL)
        *page = slab_alloc(t->slab, SERIES_PAGE_SERIES * sizeof(struct series));
    return *page != NULL;
}

/* ---- fingerprints ---- */

static inline uint32_t directory_index(uint32_t depth, struct hash128 f)
{
    return depth == 0 ? 0 : (uint32_t)(f.high >> (64 - depth));
}
static inline uint32_t entry_tag(struct hash128 f)
{
    return (uint32_t)(f.low >> 32) << SLOT_BITS;
}
static inline uint32_t entry_slot(uint32_t entry)
{
    return entry & ((1U << SLOT_BITS) - 1);
}

static struct fingerprint_segment *segment_new(struct fingerprint_table *t, uint32_t depth)
{
    struct fingerprint_segment *seg;

    if (t->memory != NULL && budget_charge(t->memory, sizeof *seg, NULL) != ERR_OK)
        return NULL;
    seg = malloc(sizeof *seg);
    if (seg == NULL) {
        if (t->memory != NULL)
            budget_release(t->memory, sizeof *seg);
        return NULL;
    }
    t->memory_bytes += sizeof *seg;
    seg->depth = depth;
    seg->count = 0;
    memset(seg->entries, 0xff, sizeof seg->entries);
    return seg;
}

static void segment_free(struct fingerprint_table *t, struct fingerprint_segment *seg)
{
    if (seg == NULL)
        return;
    t->memory_bytes -= sizeof *seg;
    if (t->memory != NULL)
        budget_release(t->memory, sizeof *seg);
    free(seg);
}

enum err fingerprint_table_init(struct fingerprint_table *t, const struct series_table *series,
                                struct budget *memory)
{
    *t = (struct fingerprint_table){.series = series, .memory = memory};
    t->directory = malloc(sizeof(struct fingerprint_segment *));
    if (t->directory == NULL)
        return ERR_NOMEM;
    t->directory[0] = segment_new(t, 0);
    if (t->directory[0] == NULL) {
        free(t->directory);
        t->directory = NULL;
        return ERR_NOMEM;
    }
    return ERR_OK;
}

void fingerprint_table_done(struct fingerprint_table *t)
{
    if (t->directory == NULL)
        return;
    for (size_t i = 0; i < (size_t)1 << t->depth;) {
        struct fingerprint_segment *seg = t->directory[i];

        i += (size_t)1 << (t->depth - seg->depth); /* its places are neighbours */
        segment_free(t, seg);
    }
    free(t->directory);
    t->directory = NULL;
}

uint32_t fingerprint_table_find(const struct fingerprint_table *t, struct hash128 f)
{
    const struct fingerprint_segment *seg = t->directory[directory_index(t->depth, f)];
    uint32_t tag = entry_tag(f);

    for (uint32_t i = (uint32_t)f.low;; i++) {
        uint32_t entry = seg->entries[i % SEGMENT_CAPACITY];

        if (entry == ENTRY_NONE)
            return FINGERPRINT_SLOT_NONE;
        if ((entry ^ tag) >> SLOT_BITS == 0 &&
            hash128_equal(series_at(t->series, entry_slot(entry))->fingerprint, f))
            return entry_slot(entry);
    }
}

void fingerprint_table_prefetch(const struct fingerprint_table *t, struct hash128 f)
{
    const struct fingerprint_segment *seg = t->directory[directory_index(t->depth, f)];

    __builtin_prefetch(&seg->entries[(uint32_t)f.low % SEGMENT_CAPACITY], 1);
}

static void segment_put(struct fingerprint_segment *seg, struct hash128 f, uint32_t slot)
{
    uint32_t i = (uint32_t)f.low;

    while (seg->entries[i % SEGMENT_CAPACITY] != ENTRY_NONE)
        i++;
    seg->entries[i % SEGMENT_CAPACITY] = entry_tag(f) | slot;
    seg->count++;
}

/* Whether the entry at `at`, whose place is `home`, may move to `hole` before it: only if a probe
 * from its place passes there. All three around the ring. */
static inline bool may_move(uint32_t home, uint32_t hole, uint32_t at)
{
    return (at - home) % SEGMENT_CAPACITY >= (at - hole) % SEGMENT_CAPACITY;
}

/* Closes the hole at `i` by what stands behind it and could not get a better place before (Knuth,
 * The Art of Computer Programming, volume 3, 6.4, algorithm R), so that look-ups need no
 * tombstones. A run is a few entries long; each costs a look at its struct. */
static void segment_cut(const struct fingerprint_table *t, struct fingerprint_segment *seg,
                        uint32_t i)
{
    uint32_t hole = i % SEGMENT_CAPACITY;

    for (uint32_t at = (hole + 1) % SEGMENT_CAPACITY; seg->entries[at] != ENTRY_NONE;
         at = (at + 1) % SEGMENT_CAPACITY) {
        const struct series *s = series_at(t->series, entry_slot(seg->entries[at]));

        if (may_move((uint32_t)s->fingerprint.low % SEGMENT_CAPACITY, hole, at)) {
            seg->entries[hole] = seg->entries[at];
            hole = at;
        }
    }
    seg->entries[hole] = ENTRY_NONE;
    seg->count--;
}

static bool directory_double(struct fingerprint_table *t)
{
    size_t count = (size_t)1 << t->depth;
    struct fingerprint_segment **grown;

    if (t->depth >= DEPTH_MAX)
        return false;
    grown = malloc(2 * count * sizeof(struct fingerprint_segment *));
    if (grown == NULL)
        return false;
    for (size_t i = 0; i < 2 * count; i++)
        grown[i] = t->directory[i / 2];
    free(t->directory);
    t->directory = grown;
    t->depth++;
    return true;
}

/* Replaces a full segment by two that know one more bit. */
static bool segment_split(struct fingerprint_table *t, struct hash128 f)
{
    struct fingerprint_segment *old = t->directory[directory_index(t->depth, f)], *half[2];

    if (old->depth == t->depth && !directory_double(t))
        return false;
    half[0] = segment_new(t, old->depth + 1);
    half[1] = half[0] == NULL ? NULL : segment_new(t, old->depth + 1);
    if (half[1] == NULL) {
        segment_free(t, half[0]);
        return false;
    }
    for (size_t i = 0; i < SEGMENT_CAPACITY; i++) {
        if (old->entries[i] == ENTRY_NONE)
            continue;
        uint32_t slot = entry_slot(old->entries[i]);
        struct hash128 g = series_at(t->series, slot)->fingerprint;

        segment_put(half[(g.high >> (63 - old->depth)) & 1], g, slot);
    }
    size_t places = (size_t)1 << (t->depth - old->depth);
    size_t first = directory_index(t->depth, f) / places * places;
    for (size_t i = 0; i < places; i++)
        t->directory[first + i] = half[i >= places / 2];
    segment_free(t, old);
    return true;
}

bool fingerprint_table_add(struct fingerprint_table *t, uint32_t slot)
{
    struct hash128 f = series_at(t->series, slot)->fingerprint;

    /* A split may leave all entries on one side; with a keyed hash that ends at once. */
    while (t->directory[directory_index(t->depth, f)]->count >= SEGMENT_FILL_MAX)
        if (!segment_split(t, f))
            return false;
    segment_put(t->directory[directory_index(t->depth, f)], f, slot);
    return true;
}

void fingerprint_table_remove(struct fingerprint_table *t, uint32_t slot)
{
    struct hash128 f = series_at(t->series, slot)->fingerprint;
    struct fingerprint_segment *seg = t->directory[directory_index(t->depth, f)];
    uint32_t entry = entry_tag(f) | slot, i = (uint32_t)f.low;

    while (seg->entries[i % SEGMENT_CAPACITY] != entry) {
        ASSERT(seg->entries[i % SEGMENT_CAPACITY] != ENTRY_NONE);
        i++;
    }
    segment_cut(t, seg, i);
}
