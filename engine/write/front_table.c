/*
 * Readers: directory (acquire) -> tagged segment pointer (acquire) -> first word (acquire) ->
 * second word (relaxed). A writer fills the second word before it stores the first with release, so
 * a reader that sees the key sees a target. A later change of the target is one atomic store.
 * Entries never move within a published segment; growth and splits fill a private copy and publish
 * it by one pointer store, under the writers' lock.
 *
 * The class of a segment's capacity stands in the low bits of the pointer, so that a look-up knows
 * the place to prefetch without touching the segment.
 */
#include "engine/write/front_table_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/write/front_table_layout_internal.h"

enum {
    DEPTH_MAX = 26,
    FIND_AHEAD = 32, /* look-ups whose cache misses overlap */
    TARGET_SHARD_SHIFT = 44,
};

static size_t segment_bytes(uint32_t class)
{
    return sizeof(struct front_segment) + front_class_capacity(class) * sizeof(struct front_entry);
}
/* The first entry of a cache line, by the low half of the word (the directory uses the high half):
 * a look-up leaves the line that was fetched ahead only when all four entries are taken. */
static inline uint32_t entry_index(uint64_t key, uint32_t capacity)
{
    uint32_t line_count = capacity / FRONT_LINE_ENTRIES;

    return (uint32_t)(((key & 0xffffffffU) * line_count) >> 32) * FRONT_LINE_ENTRIES;
}
/* 0 marks an empty entry, so that one key in 2^64 borrows its neighbour's name. */
static inline uint64_t entry_key(struct hash128 key)
{
    return key.low == 0 ? 1 : key.low;
}

/* ---- memory ---- */

struct front_segment *front_segment_new(struct front_table *t, uint32_t depth, uint32_t class)
{
    size_t size = segment_bytes(class);
    struct front_segment *seg;

    if (t->memory != NULL && budget_charge(t->memory, size, NULL) != ERR_OK)
        return NULL;
    seg = aligned_alloc(FRONT_ALIGNMENT, size);
    if (seg == NULL) {
        if (t->memory != NULL)
            budget_release(t->memory, size);
        return NULL;
    }
    memset(seg, 0, size);
    seg->depth = depth;
    seg->class = class;
    atomic_fetch_add_explicit(&t->memory_bytes, size, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->segment_count, 1, memory_order_relaxed);
    return seg;
}

/* Takes a segment off the books; its memory goes when the last reader has left. */
static void segment_uncharge(struct front_table *t, const struct front_segment *seg)
{
    size_t size = segment_bytes(seg->class);

    if (t->memory != NULL)
        budget_release(t->memory, size);
    atomic_fetch_sub_explicit(&t->memory_bytes, size, memory_order_relaxed);
    atomic_fetch_sub_explicit(&t->segment_count, 1, memory_order_relaxed);
}

void front_segment_retire(struct front_table *t, struct front_segment *seg)
{
    segment_uncharge(t, seg);
    epoch_retire(t->epochs, seg, free);
}

static struct front_directory *directory_new(uint32_t depth)
{
    struct front_directory *d =
        malloc(sizeof *d + ((size_t)1 << depth) * sizeof(_Atomic uintptr_t));

    if (d != NULL)
        d->depth = depth;
    return d;
}

enum err front_table_new(uint32_t shard_count, struct budget *memory, struct front_table **out,
                         struct errinfo *ei)
{
    struct front_table *t = calloc(1, sizeof *t);
    struct front_directory *d = directory_new(0);
    enum err e = ERR_OK;

    if (t == NULL || d == NULL) {
        e = errinfo_set(ei, ERR_NOMEM, 0, "front table");
        goto out;
    }
    ASSERT(shard_count > 0 && (shard_count & (shard_count - 1)) == 0 && shard_count <= 4096);
    t->memory = memory;
    t->key_mask = ~(((uint64_t)shard_count << TARGET_SHARD_SHIFT) - 1);
    e = epoch_domain_new(&t->epochs, ei);
    if (e != ERR_OK)
        goto out;
    struct front_segment *seg = front_segment_new(t, 0, 0);
    if (seg == NULL) {
        epoch_domain_free(t->epochs);
        e = errinfo_set(ei, ERR_NOMEM, 0, "front table segment");
        goto out;
    }
    mutex_init(&t->lock);
    atomic_init(&d->segments[0], (uintptr_t)seg);
    atomic_init(&t->directory, TAKE(d));
    *out = TAKE(t);
out:
    free(d);
    free(t);
    return e;
}

void front_table_free(struct front_table *t)
{
    struct front_directory *d;

    if (t == NULL)
        return;
    d = atomic_load_explicit(&t->directory, memory_order_relaxed);
    for (size_t i = 0; i < (size_t)1 << d->depth;) {
        struct front_segment *seg =
            front_tagged_segment(atomic_load_explicit(&d->segments[i], memory_order_relaxed));

        i += (size_t)1 << (d->depth - seg->depth);
        segment_uncharge(t, seg);
        free(seg);
    }
    free(d);
    epoch_domain_free(t->epochs);
    mutex_done(&t->lock);
    free(t);
}

/* ---- look-up ---- */

struct probe {
    const struct front_entry *entries;
    uint64_t key;
    uint32_t index, capacity;
};

static inline struct hash128 key_at(const struct hash128 *keys, size_t stride_bytes, size_t i)
{
    return *(const struct hash128 *)(const void *)((const char *)(const void *)keys +
                                                   i * stride_bytes);
}

static inline struct probe probe_start(const struct front_directory *d, uint64_t key)
{
    uintptr_t tagged = atomic_load_explicit(&d->segments[front_directory_index(d->depth, key)],
                                            memory_order_acquire);
    struct probe p = {front_tagged_segment(tagged)->entries, key, 0, front_tagged_capacity(tagged)};

    p.index = entry_index(key, p.capacity);
    return p;
}

/* Where a key's line begins, which is fetched ahead. */
static inline const struct front_entry *probe_line(const struct front_directory *d, uint64_t key)
{
    struct probe p = probe_start(d, key);

    __builtin_prefetch(&p.entries[p.index]);
    return &p.entries[p.index];
}

/* `rest` are the key's bits of the second word, in place. */
static inline const struct front_entry *probe_run(struct probe p, uint64_t rest, uint64_t key_mask,
                                                  front_target *out)
{
    for (uint32_t i = p.index;;) {
        const struct front_entry *entry = &p.entries[i];
        uint64_t found = atomic_load_explicit(&entry->key, memory_order_acquire);

        if (found == 0)
            return NULL; /* the fill limit keeps some entry empty */
        if (found == p.key) {
            uint64_t target = atomic_load_explicit(&entry->target, memory_order_relaxed);

            if (((target ^ rest) & key_mask) == 0) {
                *out = target & ~key_mask;
                return entry;
            }
        }
        if (++i == p.capacity)
            i = 0;
    }
}

/* Which entries of a line have the first word; at most one has, as a rule. Without branches: where
 * a key stands in its line is a matter of chance, and a wrong guess costs more than the line. */
static inline unsigned line_match(const struct front_entry *line, uint64_t key)
{
    unsigned match = 0;

    for (unsigned i = 0; i < FRONT_LINE_ENTRIES; i++)
        match |= (unsigned)(atomic_load_explicit(&line[i].key, memory_order_acquire) == key) << i;
    return match;
}

/* Looks a key up whose line has been fetched: most stand in it. */
static inline front_target line_find(const struct front_table *t, const struct front_directory *d,
                                     const struct front_entry *line, struct hash128 hash)
{
    uint64_t key = entry_key(hash), rest = hash.high & t->key_mask;
    unsigned match = line_match(line, key);
    front_target out = 0;

    if (LIKELY(match != 0)) {
        out = atomic_load_explicit(&line[__builtin_ctz(match)].target, memory_order_relaxed);
        if (LIKELY(((out ^ rest) & t->key_mask) == 0))
            return out & ~t->key_mask;
        out = 0;
    }
    (void)probe_run(probe_start(d, key), rest, t->key_mask, &out);
    return out;
}

void front_table_find(struct front_table *t, const struct hash128 *keys, size_t stride_bytes,
                      size_t count, front_target *out)
{
    uint32_t token = epoch_enter(t->epochs);
    const struct front_directory *d = atomic_load_explicit(&t->directory, memory_order_acquire);
    const struct front_entry *lines[FIND_AHEAD]; /* on their way into the cache */
    size_t ahead = 0;

    for (size_t i = 0; i < count; i++) {
        for (; ahead < count && ahead < i + FIND_AHEAD; ahead++)
            lines[ahead % FIND_AHEAD] = probe_line(d, entry_key(key_at(keys, stride_bytes, ahead)));
        out[i] = line_find(t, d, lines[i % FIND_AHEAD], key_at(keys, stride_bytes, i));
    }
    epoch_leave(t->epochs, token);
}

/* ---- changes, under t->lock ---- */

void front_segment_put(struct front_segment *seg, uint64_t key, uint64_t target)
{
    uint32_t capacity = front_class_capacity(seg->class);
    uint32_t i = entry_index(key, capacity);

    while (atomic_load_explicit(&seg->entries[i].key, memory_order_relaxed) != 0)
        if (++i == capacity)
            i = 0;
    atomic_store_explicit(&seg->entries[i].target, target, memory_order_relaxed);
    atomic_store_explicit(&seg->entries[i].key, key, memory_order_release);
    seg->count++;
}

/* Copies the entries of `from` into one segment, or into two by the first bit of the key that
 * `from` does not share. */
static void segment_copy(struct front_segment *const half[2], const struct front_segment *from)
{
    for (uint32_t i = 0; i < front_class_capacity(from->class); i++) {
        uint64_t key = atomic_load_explicit(&from->entries[i].key, memory_order_relaxed);
        uint64_t target = atomic_load_explicit(&from->entries[i].target, memory_order_relaxed);

        if (key != 0)
            front_segment_put(half[key >> (63 - from->depth) & 1], key, target);
    }
}

/* Publishes half[0] and half[1] in the places that now lead to `old`, and retires it. */
static void segment_replace(struct front_table *t, struct front_segment *old, uint64_t key,
                            struct front_segment *const half[2])
{
    struct front_directory *d = atomic_load_explicit(&t->directory, memory_order_relaxed);
    size_t places = (size_t)1 << (d->depth - old->depth);
    size_t first = front_directory_index(d->depth, key) / places * places;

    for (size_t i = 0; i < places; i++) {
        const struct front_segment *seg = half[i >= places / 2 && places > 1];

        atomic_store_explicit(&d->segments[first + i], (uintptr_t)seg | seg->class,
                              memory_order_release);
    }
    front_segment_retire(t, old);
}

static bool segment_grow(struct front_table *t, struct front_segment *old, uint64_t key)
{
    struct front_segment *seg = front_segment_new(t, old->depth, old->class + 1);

    if (seg == NULL)
        return false;
    struct front_segment *const both[2] = {seg, seg};
    segment_copy(both, old);
    segment_replace(t, old, key, both);
    return true;
}

static bool directory_double(struct front_table *t)
{
    struct front_directory *old = atomic_load_explicit(&t->directory, memory_order_relaxed);
    struct front_directory *d = old->depth >= DEPTH_MAX ? NULL : directory_new(old->depth + 1);

    if (d == NULL)
        return false;
    for (size_t i = 0; i < (size_t)1 << d->depth; i++)
        atomic_init(&d->segments[i],
                    atomic_load_explicit(&old->segments[i / 2], memory_order_relaxed));
    atomic_store_explicit(&t->directory, d, memory_order_release);
    epoch_retire(t->epochs, old, free);
    return true;
}

uint32_t front_class_for(uint32_t count)
{
    uint32_t class = 0;

    while (class + 1 < FRONT_CLASS_COUNT && count >= front_class_fill_max(class))
        class ++;
    return class;
}

static bool segment_split(struct front_table *t, struct front_segment *old, uint64_t key)
{
    struct front_directory *d = atomic_load_explicit(&t->directory, memory_order_relaxed);
    struct front_segment *half[2];
    uint32_t ones = 0;

    if (old->depth == d->depth && !directory_double(t))
        return false;
    for (uint32_t i = 0; i < front_class_capacity(old->class); i++)
        ones += (uint32_t)(atomic_load_explicit(&old->entries[i].key, memory_order_relaxed) >>
                           (63 - old->depth)) &
                1;
    half[0] = front_segment_new(t, old->depth + 1, front_class_for(old->count - ones));
    half[1] = half[0] == NULL ? NULL : front_segment_new(t, old->depth + 1, front_class_for(ones));
    if (half[1] == NULL) {
        if (half[0] != NULL) {
            segment_uncharge(t, half[0]);
            free(half[0]);
        }
        return false;
    }
    segment_copy(half, old);
    segment_replace(t, old, key, half);
    return true;
}

struct front_segment *front_segment_of(struct front_table *t, uint64_t key)
{
    struct front_directory *d = atomic_load_explicit(&t->directory, memory_order_relaxed);

    return front_tagged_segment(atomic_load_explicit(
        &d->segments[front_directory_index(d->depth, key)], memory_order_relaxed));
}

bool front_table_exchange(struct front_table *t, struct hash128 hash, front_target target,
                          front_target *replaced)
{
    uint64_t key = entry_key(hash), rest = hash.high & t->key_mask;
    const struct front_entry *entry;
    struct front_segment *seg;
    front_target before = 0;
    bool ok = true;

    ASSERT((target & t->key_mask) == 0);
    mutex_lock(&t->lock);
    seg = front_segment_of(t, key);
    struct probe p = {seg->entries, key, entry_index(key, front_class_capacity(seg->class)),
                      front_class_capacity(seg->class)};
    entry = probe_run(p, rest, t->key_mask, &before);
    if (entry != NULL) {
        atomic_store_explicit(&seg->entries[entry - seg->entries].target, target | rest,
                              memory_order_relaxed);
        goto out;
    }
    /* A split may leave all entries on one side; with a keyed hash that ends at once. */
    while (seg->count >= front_class_fill_max(seg->class)) {
        ok = seg->class + 1 < FRONT_CLASS_COUNT ? segment_grow(t, seg, key)
                                                : segment_split(t, seg, key);
        if (!ok)
            goto out;
        seg = front_segment_of(t, key);
    }
    front_segment_put(seg, key, target | rest);
    atomic_fetch_add_explicit(&t->entry_count, 1, memory_order_relaxed);
out:
    *replaced = before;
    mutex_unlock(&t->lock);
    return ok;
}

bool front_table_put(struct front_table *t, struct hash128 key, front_target target, bool *added)
{
    front_target before = 0;
    bool ok = front_table_exchange(t, key, target, &before);

    *added = ok && before == 0;
    return ok;
}

void front_table_stats_get(const struct front_table *t, struct front_table_stats *out)
{
    out->entry_count = atomic_load_explicit(&t->entry_count, memory_order_relaxed);
    out->memory_bytes = atomic_load_explicit(&t->memory_bytes, memory_order_relaxed);
    out->segment_count = atomic_load_explicit(&t->segment_count, memory_order_relaxed);
}
