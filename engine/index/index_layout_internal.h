/*
 * What an index is made of, for the files that implement it (index.c, index_select.c,
 * index_columns.c). Everything in here is guarded by `lock`.
 */
#ifndef RIMSTONE_ENGINE_INDEX_INDEX_LAYOUT_INTERNAL_H
#define RIMSTONE_ENGINE_INDEX_INDEX_LAYOUT_INTERNAL_H

#include <stdint.h>

#include "base/fingerprint.h"
#include "base/thread.h"
#include "engine/index/dictionary_internal.h"
#include "engine/index/index_internal.h"

enum {
    /* What a reader does under one hold of the lock: a few tens of microseconds. */
    INDEX_SLICE_SLOTS = 1024,
    INDEX_SLICE_COST = 16384, /* in units of postings_cost() */
    INDEX_SLICE_VALUES = 256,
    INDEX_RECENT_SCHEMAS = 4,
    RECORD_CHUNK_BYTES = 65536,
    RECORD_CHUNK_MIN_BYTES = 1024,
};

/* A list of label names that some series have. Its name ids are the text of its entry in
 * index.schemas, whose posting list holds the slots. */
struct schema {
    uint32_t name_count;
    const uint32_t *names; /* ids, in byte order of the names; in the slabs */
    uint32_t *last_values; /* owned: value ids of the newest series, a guess for the next */
};

struct record_chunk {
    uint8_t *bytes; /* owned */
    uint32_t capacity;
};

struct index {
    struct rwlock lock;
    struct index_memory memory;
    struct hash_secret secret; /* for dictionaries: senders choose the strings */
    struct text_slabs slabs;
    struct postings_pool pool;
    struct dictionary names;   /* of label names; posting lists unused */
    struct dictionary schemas; /* of arrays of name ids */
    struct paged values;       /* struct dictionary by name id */
    struct paged schema_items; /* struct schema by schema id */
    struct postings all;       /* every slot */
    struct paged slots;        /* uint32_t: where the slot's record is, 0: no such slot */
    struct paged chunks;       /* struct record_chunk: schema id and value ids as varints */
    uint32_t record_pos;       /* end of the records; chunk number * RECORD_CHUNK_BYTES + offset */
    uint32_t recent_schemas[INDEX_RECENT_SCHEMAS]; /* schema ids, newest first */
    uint32_t recent_count;
    uint64_t value_count;
    /* Scratch of index_add(), so that it allocates nothing; both grow together. */
    uint32_t *scratch_values, *scratch_names;
    uint32_t scratch_capacity;
};

static inline struct dictionary *index_dictionary(const struct index *ix, uint32_t name_id)
{
    return paged_at(&ix->values, name_id);
}
static inline struct schema *index_schema(const struct index *ix, uint32_t schema_id)
{
    return paged_at(&ix->schema_items, schema_id);
}
static inline uint32_t record_varint(const uint8_t **p)
{
    uint32_t v = *(*p)++;

    if (LIKELY(v < 0x80))
        return v;
    v &= 0x7f;
    for (unsigned shift = 7;; shift += 7) {
        uint32_t b = *(*p)++;

        v |= (b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
}
/* The slot's record: schema id, then one value id per name. NULL if there is no such slot. */
static inline const uint8_t *index_record(const struct index *ix, uint32_t slot)
{
    const uint32_t *at = paged_find(&ix->slots, slot);
    const struct record_chunk *c;

    if (at == NULL || *at == 0)
        return NULL;
    c = paged_at(&ix->chunks, *at / RECORD_CHUNK_BYTES);
    return c->bytes + *at % RECORD_CHUNK_BYTES;
}

static inline uint32_t index_hash(const struct index *ix, struct str text)
{
    return (uint32_t)hash64_bytes(&ix->secret, text.data, text.size);
}
static inline uint32_t index_find_name(const struct index *ix, struct str name)
{
    return dictionary_find(&ix->names, index_hash(ix, name), name);
}

/* ---- what index_add() and index_load_image() share; lock held for writing ---- */

/* The id of a name, which is added if it is not there. */
MUST_USE enum err index_name_ensure(struct index *ix, struct str name, uint32_t *out,
                                    struct errinfo *ei);
/* Adds a schema that is not there; `key` is its array of name ids, `hash` index_hash() of it. */
MUST_USE enum err index_schema_add(struct index *ix, uint32_t hash, struct str key,
                                   uint32_t name_count, uint32_t *out, struct errinfo *ei);
/* Room for one record of that many labels in one chunk. */
MUST_USE enum err index_record_reserve(struct index *ix, uint32_t name_count, struct errinfo *ei);
/* Writes the record of a slot: room is reserved, and the slot's place exists. */
void index_record_append(struct index *ix, uint32_t slot, uint32_t schema_id,
                         const uint32_t *values, uint32_t count);

/* Reads one label of many slots: where the name stands is remembered for a few schemas. */
struct column_cursor {
    const struct index *ix;
    uint32_t name_id;    /* DICTIONARY_NONE: nothing has it */
    uint32_t schemas[8]; /* schema id + 1, 0: empty */
    int32_t positions[8];
};

static inline void column_cursor_init(struct column_cursor *c, const struct index *ix,
                                      uint32_t name_id)
{
    *c = (struct column_cursor){.ix = ix, .name_id = name_id};
}
/* Value id of the cursor's name at `slot`, DICTIONARY_NONE if the slot does not have it. Lock held.
 */
uint32_t column_cursor_read(struct column_cursor *c, uint32_t slot);

#endif
