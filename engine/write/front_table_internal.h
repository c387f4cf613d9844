/*
 * The front table: sender key -> series, outside the shards, read without a lock.
 *
 * An extendible hash. A segment holds up to 4,096 entries of 16 bytes and grows by steps (so that
 * memory follows the number of keys closely), then splits in two; one segment changes at a time, by
 * a copy that is published whole and an epoch that frees the old one.
 *
 * An entry keeps 84 bits of the 128-bit key less one for each bit of a shard's number: 80 bits at
 * 16 shards. Bits that only the entry's place implies would be lost when a segment grows or splits,
 * since the place must be found again from what is stored. At 10 M keys and 10^9 look-ups of new
 * ones the chance of one wrong answer is below 10^-8.
 */
#ifndef RIMSTONE_ENGINE_WRITE_FRONT_TABLE_INTERNAL_H
#define RIMSTONE_ENGINE_WRITE_FRONT_TABLE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/epoch.h"
#include "base/err.h"
#include "base/fingerprint.h"
#include "base/thread.h"

/* What a key leads to. FRONT_NONE is never stored: it is the answer for an unknown key. */
enum front_kind { FRONT_NONE = 0, FRONT_SERIES = 1, FRONT_DROPPED = 2, FRONT_REFUSED = 3 };

/*
 * What a key leads to, as front_table_find() gives it:
 *   0          26           42     44           64
 *   | slot     | generation | kind | shard      |
 * In the table, bits of the key take the room above the shard's number.
 */
typedef uint64_t front_target;

static inline front_target front_target_series(uint32_t shard, uint32_t slot, uint16_t generation)
{
    return (uint64_t)slot | (uint64_t)generation << 26 | (uint64_t)FRONT_SERIES << 42 |
           (uint64_t)shard << 44;
}
/* A series that a limit has refused: until when (seconds, modulo 2^26), and which limit. */
static inline front_target front_target_refused(uint32_t expiry_s, uint16_t tag)
{
    return (uint64_t)expiry_s | (uint64_t)tag << 26 | (uint64_t)FRONT_REFUSED << 42;
}
/* A series that rules drop: by whom (26 bits), and when its key was last used. */
static inline front_target front_target_dropped(uint32_t decider, uint16_t stamp)
{
    return (uint64_t)decider | (uint64_t)stamp << 26 | (uint64_t)FRONT_DROPPED << 42;
}
static inline enum front_kind front_target_kind(front_target t)
{
    return (enum front_kind)(t >> 42 & 3);
}
static inline uint32_t front_target_slot(front_target t)
{
    return (uint32_t)t & 0x3ffffff;
}
static inline uint16_t front_target_generation(front_target t)
{
    return (uint16_t)(t >> 26);
}
static inline uint32_t front_target_shard(front_target t)
{
    return (uint32_t)(t >> 44);
}

struct front_table;

/* `shard_count` is a power of two, at most 4,096. */
MUST_USE enum err front_table_new(uint32_t shard_count, struct budget *memory,
                                  struct front_table **out, struct errinfo *ei);
/* No reader or writer may be left. Accepts NULL. */
void front_table_free(struct front_table *t);

/*
 * Looks up `count` keys, the first at `keys` and each next one `stride_bytes` further; out[i] is 0
 * for an unknown key. Any thread, no lock; cache misses of neighbouring keys overlap.
 */
void front_table_find(struct front_table *t, const struct hash128 *keys, size_t stride_bytes,
                      size_t count, front_target *out);
/* Adds a key or replaces what it leads to. False when memory is refused: the table is a cache of
 * the slow path's answer, so the caller goes on. Any thread. *added tells a new key. */
bool front_table_put(struct front_table *t, struct hash128 key, front_target target, bool *added);

/* The same; *before tells what the key led to, 0 if it is new. */
bool front_table_exchange(struct front_table *t, struct hash128 key, front_target target,
                          front_target *before);

enum { FRONT_SEGMENT_ENTRIES_MAX = 4096 };

/* Calls visit for each segment's entries, copied: what is stored of a key is enough to put it again
 * into a table of as many shards. Changes meanwhile may be seen or not. False when visit wanted no
 * more, or memory was refused. */
struct front_copy {
    struct hash128 key;
    front_target target;
};
bool front_table_each(struct front_table *t,
                      bool (*visit)(void *ctx, const struct front_copy *entries, size_t count),
                      void *ctx);

/* Decides about targets in bulk: keep[i] tells whether targets[i] may still lead somewhere. At most
 * FRONT_SEGMENT_ENTRIES_MAX at once, with no lock held. A target it has refused once must never
 * become good again. */
struct front_filter {
    void (*keep)(void *ctx, const front_target *targets, size_t count, bool *keep);
    void *ctx;
    /* Told of each entry that is removed, under the table's lock; may be NULL. */
    void (*removed)(void *ctx, front_target target);
};
/*
 * Removes the entries the filter refuses, one segment at a time, and gives back the memory of
 * segments that became sparse; look-ups and front_table_put() go on meanwhile. An entry that is put
 * anew during the sweep stays. Where memory for a copy is refused, or others keep changing a
 * segment, its dead entries stay for the next sweep. One sweep at a time. ERR_NOMEM: nothing done.
 */
MUST_USE enum err front_table_sweep(struct front_table *t, const struct front_filter *filter,
                                    uint64_t *removed, struct errinfo *ei);

struct front_table_stats {
    uint64_t entry_count, memory_bytes, segment_count;
};
void front_table_stats_get(const struct front_table *t, struct front_table_stats *out);

#endif
