/*
 * Dictionaries by linear hashing, and the slabs their text lives in.
 */
#include "engine/index/dictionary_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 4, SLAB_MIN_BYTES = 1024, SLAB_MAX_BYTES = 65536, TEXT_ALIGN = 4 };

struct slab {
    struct slab *next;
};

void text_slabs_done(struct text_slabs *t)
{
    struct slab *s = t->chunks;

    while (s != NULL) {
        struct slab *next = s->next;

        free(s);
        s = next;
    }
    memset(t, 0, sizeof *t);
}

/* A string too large for the current slab's rest: over an eighth of a slab it gets one of its own,
 * so that little is wasted at the end of a slab. */
static enum err slab_add(struct text_slabs *t, struct index_memory *m, size_t size,
                         struct errinfo *ei)
{
    size_t slab_size = t->next_chunk_bytes < SLAB_MIN_BYTES ? SLAB_MIN_BYTES : t->next_chunk_bytes;
    bool own = size > slab_size / 8;
    void *memory;
    struct slab *s;
    enum err e;

    if (own)
        slab_size = sizeof *s + size;
    e = index_memory_alloc(m, slab_size, &memory, ei);
    if (e != ERR_OK)
        return e;
    s = memory;
    s->next = t->chunks;
    t->chunks = s;
    t->pos = (char *)(s + 1);
    t->end = (char *)s + slab_size;
    if (!own)
        t->next_chunk_bytes = slab_size < SLAB_MAX_BYTES ? slab_size * 2 : slab_size;
    return ERR_OK;
}

static enum err slab_copy(struct text_slabs *t, struct index_memory *m, struct str text,
                          const char **out, struct errinfo *ei)
{
    size_t size = (text.size + TEXT_ALIGN - 1) & ~(size_t)(TEXT_ALIGN - 1);
    char *saved_pos = t->pos;
    char *saved_end = t->end;
    enum err e;

    if ((size_t)(t->end - t->pos) >= size) {
        if (text.size != 0)
            memcpy(t->pos, text.data, text.size);
        *out = t->pos;
        t->pos += size;
        return ERR_OK;
    }
    e = slab_add(t, m, size, ei);
    if (e != ERR_OK)
        return e;
    memcpy(t->pos, text.data, text.size); /* size 0 always fits, so there is text */
    *out = t->pos;
    t->pos += size;
    if (t->pos == t->end && saved_pos != NULL) { /* a slab of its own: go on with the old one */
        t->pos = saved_pos;
        t->end = saved_end;
    }
    return ERR_OK;
}

void dictionary_init(struct dictionary *d)
{
    memset(d, 0, sizeof *d);
    d->entries.item_size = sizeof(struct dictionary_entry);
    d->buckets.item_size = sizeof(uint32_t);
}

void dictionary_done(struct dictionary *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        postings_done(&dictionary_at(d, i)->postings);
    paged_done(&d->entries);
    paged_done(&d->buckets);
    d->count = 0;
}

static uint32_t bucket_count(uint32_t entry_count)
{
    return entry_count < FIRST_BUCKETS ? FIRST_BUCKETS : entry_count;
}

/* The largest power of two <= n. */
static uint32_t floor_power(uint32_t n)
{
    return 1U << (31U - (uint32_t)__builtin_clz(n));
}

static uint32_t bucket_of(uint32_t hash, uint32_t buckets)
{
    uint32_t low = floor_power(buckets);
    uint32_t b = hash & (low * 2 - 1); /* low * 2 wraps to 0 at 2^31: all bits, as it should be */

    return b < buckets ? b : b & (low - 1);
}

uint32_t dictionary_find(const struct dictionary *d, uint32_t hash, struct str text)
{
    uint32_t next;

    if (d->count == 0)
        return DICTIONARY_NONE;
    next = *(const uint32_t *)paged_at(&d->buckets, bucket_of(hash, bucket_count(d->count)));
    while (next != 0) {
        const struct dictionary_entry *e = dictionary_at(d, next - 1);

        if (e->hash == hash && str_equal((struct str){e->text, e->size}, text))
            return next - 1;
        next = e->next;
    }
    return DICTIONARY_NONE;
}

/* Bucket `fresh` has just come into being: takes its entries from the bucket that held them. */
static void split_into(struct dictionary *d, uint32_t fresh)
{
    uint32_t buckets = fresh + 1;
    uint32_t *to = paged_at(&d->buckets, fresh);
    uint32_t *from = paged_at(&d->buckets, fresh - floor_power(fresh));

    while (*from != 0) {
        struct dictionary_entry *e = dictionary_at(d, *from - 1);
        uint32_t rest = e->next;

        if (bucket_of(e->hash, buckets) != fresh) {
            from = &e->next;
            continue;
        }
        e->next = *to;
        *to = *from;
        *from = rest;
    }
}

/* Makes room for one more entry and bucket. */
static enum err room_ensure(struct dictionary *d, struct index_memory *m, struct errinfo *ei)
{
    enum err e;

    if (d->count >= UINT32_MAX - 1)
        return errinfo_set(ei, ERR_LIMIT, 0, "index: dictionary is full");
    e = paged_ensure(&d->entries, m, d->count, ei);
    return e != ERR_OK ? e : paged_ensure(&d->buckets, m, d->count, ei);
}

/* Takes the next number into use; there is room. */
static uint32_t number_take(struct dictionary *d)
{
    uint32_t id = d->count++;

    if (id >= FIRST_BUCKETS)
        split_into(d, id);
    return id;
}

enum err dictionary_add(struct dictionary *d, struct index_memory *m, struct text_slabs *slabs,
                        uint32_t hash, struct str text, uint32_t *out_id, struct errinfo *ei)
{
    const char *copy;
    struct dictionary_entry *entry;
    uint32_t id, *bucket;
    enum err e;

    if (text.size >= UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "index: a label of 4 GiB");
    if ((e = room_ensure(d, m, ei)) != ERR_OK ||
        (e = slab_copy(slabs, m, text, &copy, ei)) != ERR_OK)
        return e;
    slabs->text_bytes += text.size;
    id = number_take(d);
    entry = dictionary_at(d, id);
    bucket = paged_at(&d->buckets, bucket_of(hash, bucket_count(d->count)));
    *entry = (struct dictionary_entry){
        .text = copy, .size = (uint32_t)text.size, .hash = hash, .next = *bucket};
    *bucket = id + 1;
    *out_id = id;
    return ERR_OK;
}

enum err dictionary_skip(struct dictionary *d, struct index_memory *m, struct errinfo *ei)
{
    enum err e = room_ensure(d, m, ei);

    if (e == ERR_OK)
        (void)number_take(d); /* pages are zeroed: the entry is there and in no chain */
    return e;
}
