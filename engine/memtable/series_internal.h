/*
 * The series of one shard: structs in fixed pages by slot, and the table fingerprint -> slot.
 *
 * Nothing here is ever moved as a whole. Pages stay where they are; the fingerprint table is an
 * extendible hash whose segments of 1,024 slots split one at a time, so that no insertion waits for
 * more than one segment. Guarded by the shard's lock, except that a pointer to a series may be
 * computed without it once the slot was learnt from a published place (the front table).
 */
#ifndef RIMSTONE_ENGINE_MEMTABLE_SERIES_INTERNAL_H
#define RIMSTONE_ENGINE_MEMTABLE_SERIES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "engine/memtable/chunk_internal.h"
#include "engine/memtable/slab_internal.h"

enum {
    SERIES_PAGE_SERIES = 2048,
    SERIES_PAGE_MAX = 1 << 15,
    SERIES_SLOT_MAX = SERIES_PAGE_SERIES * SERIES_PAGE_MAX, /* 2^26 in one shard */
};

struct series_table {
    struct slab *slab;     /* borrowed */
    struct series **pages; /* SERIES_PAGE_MAX of them, NULL until used; each written once */
    uint32_t slot_end;     /* one above the highest slot in use */
    uint32_t series_count;
};

MUST_USE enum err series_table_init(struct series_table *t, struct slab *slab);
void series_table_done(struct series_table *t);
/* Makes the page of `slot` exist; false when memory is refused or the slot is out of range. */
MUST_USE bool series_table_reserve(struct series_table *t, uint32_t slot);
/* The struct of a slot whose page exists. */
static inline struct series *series_at(const struct series_table *t, uint32_t slot)
{
    return &t->pages[slot / SERIES_PAGE_SERIES][slot % SERIES_PAGE_SERIES];
}
/* The series of a slot, or NULL when there is none. */
static inline struct series *series_find(const struct series_table *t, uint32_t slot)
{
    struct series *s;

    if (slot >= t->slot_end || t->pages[slot / SERIES_PAGE_SERIES] == NULL)
        return NULL;
    s = series_at(t, slot);
    return s->defined ? s : NULL;
}

/* The same, or a series that is leaving: the index must know it still, since it may come back. */
static inline struct series *series_find_any(const struct series_table *t, uint32_t slot)
{
    struct series *s;

    if (slot >= t->slot_end || t->pages[slot / SERIES_PAGE_SERIES] == NULL)
        return NULL;
    s = series_at(t, slot);
    return s->defined || s->settled ? s : NULL;
}

struct fingerprint_segment;

struct fingerprint_table {
    const struct series_table *series;      /* borrowed: holds the fingerprints themselves */
    struct budget *memory;                  /* borrowed, may be NULL */
    struct fingerprint_segment **directory; /* 2^depth; several may share one segment */
    uint32_t depth;
    size_t memory_bytes;
};

enum { FINGERPRINT_SLOT_NONE = UINT32_MAX };

MUST_USE enum err fingerprint_table_init(struct fingerprint_table *t,
                                         const struct series_table *series, struct budget *memory);
void fingerprint_table_done(struct fingerprint_table *t);
/* The slot of a fingerprint, or FINGERPRINT_SLOT_NONE. */
uint32_t fingerprint_table_find(const struct fingerprint_table *t, struct hash128 fingerprint);
/* Has the place where a fingerprint would be fetched into the cache. */
void fingerprint_table_prefetch(const struct fingerprint_table *t, struct hash128 fingerprint);
/* Adds a slot whose series struct already holds the fingerprint, which must not be there yet. False
 * when memory is refused; then nothing has changed. */
MUST_USE bool fingerprint_table_add(struct fingerprint_table *t, uint32_t slot);
/* Removes a slot that is there; the structs of it and of all others still hold their fingerprints.
 * What it held may then be overwritten. Never fails; memory stays with the table. */
void fingerprint_table_remove(struct fingerprint_table *t, uint32_t slot);

#endif
