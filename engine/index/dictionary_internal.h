/*
 * A dictionary: numbers strings 0, 1, 2 ... and finds them again, and carries one posting list per
 * string. An index has one of label names, one of schemas, and one of values for each name. Text
 * and entries never move. Not thread-safe: index.lock covers it.
 *
 * The look-up table is a linear hash: every insertion adds one bucket and splits one, so no
 * insertion ever pays for a whole table (Litwin, VLDB 1980). Chains run through the entries.
 */
#ifndef RIMSTONE_ENGINE_INDEX_DICTIONARY_INTERNAL_H
#define RIMSTONE_ENGINE_INDEX_DICTIONARY_INTERNAL_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "engine/index/paged_internal.h"
#include "engine/index/postings_internal.h"

#define DICTIONARY_NONE UINT32_MAX

struct dictionary_entry {
    const char *text; /* in the slabs, 4-byte aligned, as long as the index lives */
    uint32_t size;
    uint32_t hash;
    uint32_t next; /* chain of the bucket: entry number + 1, 0 at the end */
    struct postings postings;
};

struct dictionary {
    struct paged entries;
    struct paged buckets; /* uint32_t: first entry of the chain + 1 */
    uint32_t count;       /* entries, and buckets once there are more than the first four */
};

/* Append-only text. */
struct text_slabs {
    void *chunks; /* owned, a chain */
    char *pos, *end;
    size_t next_chunk_bytes;
    uint64_t text_bytes;
};

void text_slabs_done(struct text_slabs *t);

void dictionary_init(struct dictionary *d);
/* Frees entries, buckets and posting lists; text goes with the slabs. */
void dictionary_done(struct dictionary *d);

static inline struct dictionary_entry *dictionary_at(const struct dictionary *d, uint32_t id)
{
    return paged_at(&d->entries, id);
}
static inline struct str dictionary_text(const struct dictionary *d, uint32_t id)
{
    const struct dictionary_entry *e = dictionary_at(d, id);

    return (struct str){e->text, e->size};
}

/* Number of the string whose hash is `hash`, or DICTIONARY_NONE. */
uint32_t dictionary_find(const struct dictionary *d, uint32_t hash, struct str text);
/* Adds a string that is not there; nothing changes on failure. ERR_LIMIT also at 2^32 - 2. */
MUST_USE enum err dictionary_add(struct dictionary *d, struct index_memory *m,
                                 struct text_slabs *slabs, uint32_t hash, struct str text,
                                 uint32_t *out_id, struct errinfo *ei);
/* Uses up the next number for no string: its entry has no text and is never found. */
MUST_USE enum err dictionary_skip(struct dictionary *d, struct index_memory *m, struct errinfo *ei);

#endif
