/*
 * What the querier's files share: the handle, grouping of series by shard, time filters, series
 * that are only in parts.
 */
#ifndef RIMSTONE_ENGINE_READ_QUERIER_INTERNAL_H
#define RIMSTONE_ENGINE_READ_QUERIER_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/thread.h"
#include "engine/memtable/memtable_internal.h"
#include "engine/querier.h"
#include "engine/read/readers_internal.h"

enum {
    QUERIER_GROUP_MAX = 1024, /* series handled at a time by calls that go shard by shard */
    QUERIER_META_SLICE = 256,
    QUERIER_SHARDS_MAX = 4096,
};

/* ---- distinct strings ---- */

/* Copies of strings, each kept once. Not thread-safe. */
struct str_pool {
    struct arena arena;
    const struct hash_secret *secret; /* borrowed */
    struct str *places;               /* open addressing; size 0: free. NULL, or a power of two */
    size_t place_count, count;
};
void str_pool_init(struct str_pool *p, struct budget *budget, const struct hash_secret *secret);
void str_pool_done(struct str_pool *p);
/* Makes *text the pool's copy, good until str_pool_done(); *is_new tells whether it was added. An
 * empty string stays what it is. False when memory is refused: arena_error(&p->arena). */
MUST_USE bool str_pool_intern(struct str_pool *p, struct str *text, bool *is_new);

/* ---- orphans: series that have no slot ---- */

/* They ended, or were written before the last start and never since. A handle's slot is a number of
 * the querier's own table then. */
#define ORPHAN_SLOT_BIT (UINT32_C(1) << 31)

static inline bool slot_is_orphan(uint32_t slot)
{
    return (slot & ORPHAN_SLOT_BIT) != 0;
}

struct orphan {
    struct hash128 fingerprint;
    struct part_source *part; /* has its labels; counted by the table */
    uint32_t series;          /* in that part */
};

/* Of one shard; guarded by querier.lock. */
struct orphan_table {
    struct orphan *items; /* owned; by number */
    uint32_t count, capacity;
    uint32_t *places; /* owned; number + 1 by fingerprint, 0: free; a power of two */
    size_t place_count;
    struct part_source **held; /* owned; the distinct parts of the items, each counted once */
    size_t held_count, held_capacity;
    size_t charged_bytes;
};

/* What a querier keeps of one shard. */
struct querier_shard {
    struct index *index; /* the shard's when the querier was opened; stays as long as it is */
    struct orphan_table orphans;
};

struct querier {
    struct engine *engine; /* borrowed */
    const _Atomic bool *stop;
    uint64_t deadline_mono_ns; /* 0: none */
    struct budget *memory;     /* borrowed, may be NULL: for what is not in a caller's arena */
    uint32_t shard_count;
    struct reader reader;         /* in the engine's list from open to close */
    struct querier_shard *shards; /* owned */
    struct mutex lock;            /* guards all orphan tables and `texts`; a leaf */
    struct str_pool texts;        /* lent by querier_label_values_of() for orphans */
};

static inline struct index *querier_index(const struct querier *q, uint32_t shard)
{
    return q->shards[shard].index;
}

/* ERR_CANCELED once *stop is true, ERR_TIMEOUT once the deadline has passed. */
MUST_USE enum err querier_check_stop(const struct querier *q, struct errinfo *ei);

/* Slots for `count` series of one part that have no slot in their shard; a series that is known
 * already, from whichever part, gets the same again. */
MUST_USE enum err orphans_add(struct querier *q, uint32_t shard, struct part_source *part,
                              const uint32_t *series, const struct hash128 *fingerprints,
                              size_t count, uint32_t *out_slots, struct errinfo *ei);
/* Label sets of `count` orphans by their slots. */
MUST_USE enum err orphans_labels(struct querier *q, uint32_t shard, const uint32_t *slots,
                                 size_t count, struct arena *arena, struct labels *out,
                                 struct errinfo *ei);
/* As index_values_of_rows(), for orphans. */
MUST_USE enum err orphans_values(struct querier *q, uint32_t shard, const uint32_t *slots,
                                 const size_t *rows, size_t count, const struct str *names,
                                 size_t name_count, struct str *out, struct errinfo *ei);
void orphans_done(struct querier *q);

/* ---- by shard ---- */

/* Series of one shard out of a list: their slots and where they stand in the list. Orphans come
 * last. */
struct shard_group {
    uint32_t shard;
    size_t count, live_count;
    uint32_t slots[QUERIER_GROUP_MAX];
    size_t rows[QUERIER_GROUP_MAX];
};
/* Calls `run` for each shard of up to QUERIER_GROUP_MAX items; rows count from the first item. Ends
 * at the first error. */
MUST_USE enum err
querier_by_shard(struct querier *q, const struct series_handle *items, size_t count,
                 enum err (*run)(void *ctx, const struct shard_group *group, struct errinfo *ei),
                 void *ctx, struct errinfo *ei);

/* Keeps slots that may have a sample in [min, max]: for slot_filter and querier_filter_slots(). */
struct time_filter {
    struct shard *shard; /* borrowed */
    int64_t min_time_ms, max_time_ms;
};
void time_filter_keep(void *ctx, const uint32_t *slots, size_t count, bool *keep);
static inline bool time_filter_accepts(int64_t min_time_ms, int64_t max_time_ms,
                                       const struct series_meta *m)
{
    return m->min_time_ms <= m->max_time_ms && m->min_time_ms <= max_time_ms &&
           m->max_time_ms >= min_time_ms;
}

#endif
