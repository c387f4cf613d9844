/*
 * Finding chunks in sealed and late files, by the directories of their groups.
 *
 * A directory is decoded into an image that has what a search needs, ascending by slot, and is kept
 * in the store's cache of pages, as far as that has room: a query of few series meets a directory
 * of 512 chunks for every one or two of them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/sealed/sealed_format_internal.h"

enum { DIRECTORY_BATCH = 64 }; /* searched at once */

/* ---- images ---- */

struct image_times {
    int64_t min_time_ms, max_time_ms;
    uint32_t offset, size, count; /* the offset counts from the slice's first byte */
};

struct image_page {
    uint32_t offset, size; /* likewise; without the checksum */
};

struct image_chunk {
    uint32_t slot, value_offset, value_size;
    uint16_t generation, times, page;
    uint8_t column;
};

/* In front of its timestamp columns, pages and chunks. */
struct image {
    uint32_t chunk_count, times_count, page_count;
    uint32_t zero; /* so that what follows is aligned */
};

static size_t image_size(const struct sealed_directory *d)
{
    return sizeof(struct image) + d->times_count * sizeof(struct image_times) +
           d->page_count * sizeof(struct image_page) + d->chunk_count * sizeof(struct image_chunk);
}

static struct image_times *image_times(const struct image *i)
{
    return (struct image_times *)(uintptr_t)(i + 1);
}

static struct image_page *image_pages(const struct image *i)
{
    return (struct image_page *)(image_times(i) + i->times_count);
}

static struct image_chunk *image_chunks(const struct image *i)
{
    return (struct image_chunk *)(image_pages(i) + i->page_count);
}

/* The numbers of a directory that was decoded fit the slice, and so these types. */
static void image_fill(const struct sealed_directory *d, const struct sealed_group *g,
                       struct image *out)
{
    uint32_t offset = g->offset + g->directory_size, chunk = 0;

    *out = (struct image){d->chunk_count, d->times_count, d->page_count, 0};
    for (uint32_t i = 0; i < d->times_count; i++)
        image_times(out)[i] =
            (struct image_times){d->times_mins[i], d->times_maxs[i], (uint32_t)d->times_offsets[i],
                                 (uint32_t)d->times_sizes[i], (uint32_t)d->times_counts[i]};
    for (uint32_t page = 0; page < d->page_count; page++) {
        uint32_t end = chunk + (uint32_t)d->page_items[page], size = 0;

        for (; chunk < end; chunk++) {
            image_chunks(out)[chunk] = (struct image_chunk){
                .slot = (uint32_t)d->slots[chunk],
                .value_offset = size,
                .value_size = (uint32_t)d->sizes[chunk],
                .generation = (uint16_t)d->generations[chunk],
                .times = (uint16_t)d->times[chunk],
                .page = (uint16_t)page,
                .column = (uint8_t)d->columns[chunk],
            };
            size += (uint32_t)d->sizes[chunk];
        }
        image_pages(out)[page] = (struct image_page){offset, size};
        offset += size + SEALED_CRC_SIZE;
    }
}

/* ---- a search ---- */

/* What is looked for; keys NULL: everything. */
struct search {
    const struct sealed_file *f;
    const struct sealed_slice *slice;
    const struct sealed_key *keys;
    size_t key_count;
    int64_t min_time_ms, max_time_ms;
    struct arena *arena;
    struct sealed_chunk_list *list;
    struct errinfo *ei;
};

/* First key whose slot is at least `slot`. */
static size_t keys_lower_bound(const struct search *s, uint32_t slot)
{
    size_t low = 0, high = s->key_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->keys[middle].slot < slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool group_wanted(const struct search *s, const struct sealed_group *g)
{
    size_t key;

    if (g->max_time_ms < s->min_time_ms || g->min_time_ms > s->max_time_ms)
        return false;
    if (s->keys == NULL)
        return true;
    key = keys_lower_bound(s, g->first_slot);
    return key < s->key_count && s->keys[key].slot <= g->last_slot;
}

static struct sealed_chunk *list_add(struct sealed_chunk_list *list, struct arena *arena)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        struct sealed_chunk *items =
            arena_grow_array(arena, list->items, list->capacity, capacity, sizeof *items);

        if (items == NULL)
            return NULL;
        list->items = items;
        list->capacity = capacity;
    }
    return &list->items[list->count++];
}

/* Gives chunk `i` if it overlaps the range. */
static enum err chunk_give(const struct search *s, const struct sealed_group *g,
                           const struct image *image, uint32_t i, size_t key)
{
    const struct image_chunk *from = &image_chunks(image)[i];
    const struct image_times *times = &image_times(image)[from->times];
    const struct image_page *page = &image_pages(image)[from->page];
    struct sealed_chunk *c;

    if (times->max_time_ms < s->min_time_ms || times->min_time_ms > s->max_time_ms)
        return ERR_OK;
    if (from->column == SEALED_COLUMN_HISTOGRAMS && !s->f->identity.has_histograms)
        return sealed_corrupt(s->f, s->slice->offset + g->offset,
                              "the file's header knows of no histograms, its directory does",
                              s->ei);
    c = list_add(s->list, s->arena);
    if (c == NULL)
        return arena_error(s->arena, s->ei);
    *c = (struct sealed_chunk){
        .min_time_ms = times->min_time_ms,
        .max_time_ms = times->max_time_ms,
        .times_offset = s->slice->offset + times->offset,
        .times_size = times->size,
        .page_offset = s->slice->offset + page->offset,
        .page_size = page->size,
        .value_offset = from->value_offset,
        .value_size = from->value_size,
        .sample_count = times->count,
        .slot = from->slot,
        .key_index = (uint32_t)key,
        .generation = from->generation,
        .column = from->column,
    };
    return ERR_OK;
}

/* Moves `at` up to where the slot is if each has one chunk, as in most slices: nowhere, if that is
 * behind the first chunk of the slot. */
static uint32_t chunks_guess(const struct image *image, uint32_t at, uint32_t slot)
{
    const struct image_chunk *chunks = image_chunks(image);
    uint32_t guess = slot - chunks[0].slot;

    if (slot < chunks[0].slot || guess <= at || guess >= image->chunk_count ||
        chunks[guess - 1].slot >= slot)
        return at;
    return guess;
}

/* The first chunk from `at` on whose slot is at least `slot`, near ones first. */
static uint32_t chunks_seek(const struct image *image, uint32_t at, uint32_t slot)
{
    const struct image_chunk *chunks = image_chunks(image);
    uint32_t step = 1, end = image->chunk_count;

    at = at < end ? chunks_guess(image, at, slot) : end;
    while (at < end && chunks[at].slot < slot) {
        uint32_t next = at + step;

        if (next < end && chunks[next].slot < slot) {
            at = next;
            step *= 2;
        } else if (step > 1) {
            step = 1;
        } else {
            at++;
        }
    }
    return at;
}

static enum err image_search(const struct search *s, const struct sealed_group *g,
                             const struct image *image)
{
    const struct image_chunk *chunks = image_chunks(image);
    uint32_t at = 0;
    enum err e = ERR_OK;

    for (; s->keys == NULL && at < image->chunk_count && e == ERR_OK; at++)
        e = chunk_give(s, g, image, at, 0);
    if (s->keys == NULL)
        return e;
    for (size_t k = keys_lower_bound(s, g->first_slot);
         k < s->key_count && s->keys[k].slot <= g->last_slot && e == ERR_OK; k++) {
        at = chunks_seek(image, at, s->keys[k].slot);
        for (; at < image->chunk_count && chunks[at].slot == s->keys[k].slot && e == ERR_OK; at++) {
            if (chunks[at].generation == s->keys[k].generation)
                e = chunk_give(s, g, image, at, k);
        }
    }
    return e;
}

/* ---- groups in batches ---- */

struct group_image {
    const struct sealed_group *group;
    struct page *page;   /* pinned, has the image; NULL: the image is owned */
    struct image *image; /* NULL: must be read */
};

/* Directories are kept for those who look for something, not for those who walk everything. */
static struct page_cache *cache_of(const struct search *s)
{
    return s->keys == NULL ? NULL : s->f->cache;
}

static void image_find(const struct search *s, struct group_image *g)
{
    struct page_cache *cache = cache_of(s);

    if (cache != NULL)
        g->page = page_cache_find(cache, s->f->directories_id, s->slice->offset + g->group->offset);
    if (g->page != NULL)
        g->image = (struct image *)(void *)g->page->data;
}

static enum err image_make(const struct search *s, const struct sealed_directory *d,
                           struct group_image *g)
{
    struct page_cache *cache = cache_of(s);
    uint64_t offset = s->slice->offset + g->group->offset;
    enum err e = ERR_OK;

    if (cache == NULL) {
        g->image = malloc(image_size(d));
        if (g->image == NULL)
            return errinfo_set(s->ei, ERR_NOMEM, 0, "directories of %s", sealed_file_path(s->f));
        image_fill(d, g->group, g->image);
        return ERR_OK;
    }
    e = page_new(cache, s->f->directories_id, offset, image_size(d), &g->page, s->ei);
    if (e != ERR_OK)
        return e;
    image_fill(d, g->group, (struct image *)(void *)g->page->data);
    g->page = page_cache_enter(cache, g->page);
    g->image = (struct image *)(void *)g->page->data;
    return ERR_OK;
}

/* Reads `count` directories in one batch. What that takes comes from the arena and returns to it:
 * its blocks are kept, while a block of malloc() of this size would be mapped anew each time. */
static enum err images_read(const struct search *s, struct group_image *const *groups, size_t count)
{
    struct arena_mark mark = arena_mark_get(s->arena);
    struct file_read_op ops[DIRECTORY_BATCH];
    struct sealed_directory *d = ARENA_ARRAY(s->arena, 1, struct sealed_directory);
    size_t size = 0;
    uint8_t *data, *at;
    enum err e;

    for (size_t i = 0; i < count; i++)
        size += groups[i]->group->directory_size;
    data = at = d == NULL ? NULL : arena_alloc(s->arena, size);
    if (data == NULL) {
        e = arena_error(s->arena, s->ei);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        ops[i] = (struct file_read_op){.file = s->f->file,
                                       .buffer = at,
                                       .size = groups[i]->group->directory_size,
                                       .offset = s->slice->offset + groups[i]->group->offset};
        at += ops[i].size;
    }
    e = fs_read_batch(s->f->fs, ops, count, s->ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        size_t content = ops[i].size - SEALED_CRC_SIZE;

        if (!sealed_is_intact(s->f, ops[i].offset, ops[i].buffer, content) ||
            !sealed_directory_decode(ops[i].buffer, content, groups[i]->group, s->slice->size, d))
            e = sealed_corrupt(s->f, ops[i].offset, "the directory is damaged", s->ei);
        else
            e = image_make(s, d, groups[i]);
    }
out:
    arena_mark_return(s->arena, mark);
    return e;
}

static enum err groups_search(const struct search *s, struct group_image *groups, size_t count)
{
    struct group_image *missing[DIRECTORY_BATCH];
    size_t missing_count = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < count; i++) {
        image_find(s, &groups[i]);
        if (groups[i].image == NULL)
            missing[missing_count++] = &groups[i];
    }
    if (missing_count > 0)
        e = images_read(s, missing, missing_count);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        DEBUG_ASSERT(groups[i].image != NULL);
        e = image_search(s, groups[i].group, groups[i].image);
    }
    for (size_t i = 0; i < count; i++) {
        if (groups[i].page == NULL)
            free(groups[i].image);
        page_release(groups[i].page);
    }
    return e;
}

enum err sealed_find(const struct sealed_file *f, const struct sealed_slice *slice,
                     const struct sealed_key *keys, size_t key_count, int64_t min_time_ms,
                     int64_t max_time_ms, struct arena *arena, struct sealed_chunk_list *list,
                     struct errinfo *ei)
{
    const struct search s = {f, slice, keys, key_count, min_time_ms, max_time_ms, arena, list, ei};
    struct group_image batch[DIRECTORY_BATCH];
    size_t count = 0;
    enum err e = ERR_OK;

    if (slice->max_time_ms < min_time_ms || slice->min_time_ms > max_time_ms || key_count == 0)
        return ERR_OK;
    e = sealed_slice_usable(f, slice, ei);
    for (uint32_t i = 0; i < slice->group_count && e == ERR_OK; i++) {
        if (!group_wanted(&s, &slice->groups[i]))
            continue;
        batch[count++] = (struct group_image){.group = &slice->groups[i]};
        if (count == DIRECTORY_BATCH) {
            e = groups_search(&s, batch, count);
            count = 0;
        }
    }
    return e == ERR_OK && count > 0 ? groups_search(&s, batch, count) : e;
}

enum err sealed_group_chunks(const struct sealed_file *f, const struct sealed_slice *slice,
                             uint32_t group, struct arena *arena, struct sealed_chunk_list *list,
                             struct errinfo *ei)
{
    const struct search s = {
        .f = f,
        .slice = slice,
        .min_time_ms = INT64_MIN,
        .max_time_ms = INT64_MAX,
        .arena = arena,
        .list = list,
        .ei = ei,
    };
    struct group_image all;
    enum err e = sealed_slice_usable(f, slice, ei);

    if (e != ERR_OK)
        return e;
    all = (struct group_image){.group = &slice->groups[group]};
    return groups_search(&s, &all, 1);
}
