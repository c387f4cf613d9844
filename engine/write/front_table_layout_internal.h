/*
 * What the front table is made of, for the files that implement it (front_table.c,
 * front_table_sweep.c).
 */
#ifndef RIMSTONE_ENGINE_WRITE_FRONT_TABLE_LAYOUT_INTERNAL_H
#define RIMSTONE_ENGINE_WRITE_FRONT_TABLE_LAYOUT_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "engine/write/front_table_internal.h"

struct front_entry {
    /* 0: empty. Set once, by release, after `target`. */
    _Atomic uint64_t key;
    _Atomic uint64_t target; /* relaxed: the key's acquire orders the first value, and a newer one
                              * is as good as an older one, since its generation is checked */
};

enum {
    FRONT_ALIGNMENT = 64,
    FRONT_LINE_ENTRIES = FRONT_ALIGNMENT / (int)sizeof(struct front_entry),
    FRONT_CAPACITY_MAX = FRONT_SEGMENT_ENTRIES_MAX,
    FRONT_CLASS_COUNT = 7,
};

/* Steps of about a quarter keep the table at 62 to 80 per cent. */
static inline uint32_t front_class_capacity(uint32_t class)
{
    static const uint32_t capacity[FRONT_CLASS_COUNT] = {
        1024, 1344, 1728, 2176, 2688, 3328, FRONT_CAPACITY_MAX};

    return capacity[class];
}
static inline uint32_t front_class_fill_max(uint32_t class)
{
    return front_class_capacity(class) / 5 * 4;
}

/* Header and entries in one allocation; only the writers read the header. */
struct front_segment {
    uint32_t depth, class, count;
    uint32_t unused[13];
    struct front_entry entries[];
};
static_assert(sizeof(struct front_segment) == FRONT_ALIGNMENT, "entries fill whole lines");
static_assert((int)FRONT_CLASS_COUNT <= (int)FRONT_ALIGNMENT,
              "a class fits the pointer's low bits");

struct front_directory {
    uint32_t depth;
    _Atomic uintptr_t segments[]; /* 2^depth tagged pointers; release / acquire */
};

struct front_table {
    _Atomic(struct front_directory *) directory; /* release / acquire */
    struct epoch_domain *epochs;                 /* owned */
    struct budget *memory;                       /* borrowed, may be NULL */
    uint64_t key_mask;                           /* the key's part of an entry's second word */
    struct mutex lock;                           /* writers: guards all changes */
    /* relaxed: statistics */
    _Atomic uint64_t entry_count, memory_bytes, segment_count;
};

static inline uint32_t front_directory_index(uint32_t depth, uint64_t key)
{
    return depth == 0 ? 0 : (uint32_t)(key >> (64 - depth));
}
static inline struct front_segment *front_tagged_segment(uintptr_t tagged)
{
    /* The tag is below the alignment. */
    return (struct front_segment *)(tagged & ~(uintptr_t)(FRONT_ALIGNMENT - 1));
}
static inline uint32_t front_tagged_capacity(uintptr_t tagged)
{
    return front_class_capacity((uint32_t)(tagged & (FRONT_ALIGNMENT - 1)));
}
static inline uintptr_t front_tag(const struct front_segment *seg)
{
    return (uintptr_t)seg | seg->class;
}

/* ---- changes, under `lock` ---- */

/* The segment that holds the keys with these high bits. */
struct front_segment *front_segment_of(struct front_table *t, uint64_t key);
/* The smallest class that holds `count` entries with room to grow. */
uint32_t front_class_for(uint32_t count);
/* An empty segment that nobody sees yet; NULL when memory is refused. */
struct front_segment *front_segment_new(struct front_table *t, uint32_t depth, uint32_t class);
/* Enters a key (of the first word) that is not there. */
void front_segment_put(struct front_segment *seg, uint64_t key, uint64_t target);
/* Takes an unlinked segment off the books; its memory goes when the last reader has left. */
void front_segment_retire(struct front_table *t, struct front_segment *seg);

#endif
