/*
 * Reading sealed and late files: directories to find chunks, then their bytes in one batch.
 *
 * Nothing of a directory stays in memory: a query reads the few kilobytes of the groups it needs
 * (they are in the page cache, like everything that was just written), which costs less than
 * holding some twelve bytes for every chunk of every series.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/sealed_format_internal.h"

enum {
    READ_GAP_BYTES = 4096,    /* bytes between two extents that are cheaper read than skipped */
    READ_RUN_BYTES = 1 << 20, /* one read, at most, unless a single extent is larger */
    DIRECTORY_BATCH = 64,     /* directories read at once */
};

static enum err corrupt(const struct sealed_file *f, uint64_t offset, const char *what,
                        struct errinfo *ei)
{
    return errinfo_set(ei, ERR_CORRUPT, 0, "%s: offset %" PRIu64 ": %s", sealed_file_path(f),
                       offset, what);
}

static enum err slice_usable(const struct sealed_file *f, const struct sealed_slice *slice,
                             struct errinfo *ei)
{
    return slice->is_damaged ? corrupt(f, slice->offset, "the slice is damaged", ei) : ERR_OK;
}

static bool is_intact(const struct sealed_file *f, uint64_t offset, const uint8_t *data,
                      size_t size)
{
    uint32_t crc;

    memcpy(&crc, data + size, sizeof crc);
    return crc == sealed_crc(f->identity.epoch, offset, data, size);
}

/* ---- finding ---- */

/* What is looked for; keys NULL: everything. */
struct search {
    const struct sealed_key *keys;
    size_t key_count;
    int64_t min_time_ms, max_time_ms;
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

/* Walks a directory's chunks beside their places in the pages. */
struct chunk_place {
    uint64_t page_offset;
    uint32_t page_size, page, item, value_offset;
};

static void page_begin(struct chunk_place *p, const struct sealed_directory *d, uint32_t chunk)
{
    p->page_size = 0;
    for (int64_t i = 0; i < d->page_items[p->page]; i++)
        p->page_size += (uint32_t)d->sizes[chunk + (uint32_t)i];
    p->item = 0;
    p->value_offset = 0;
}

/* Steps behind chunk number `chunk`. */
static void place_next(struct chunk_place *p, const struct sealed_directory *d, uint32_t chunk)
{
    p->value_offset += (uint32_t)d->sizes[chunk];
    if (++p->item < (uint32_t)d->page_items[p->page] || p->page + 1 == d->page_count)
        return;
    p->page_offset += p->page_size + SEALED_CRC_SIZE;
    p->page++;
    page_begin(p, d, chunk + 1);
}

/* Which key chunk number i belongs to; false if none. *key only moves forward. */
static bool key_find(const struct search *s, const struct sealed_directory *d, uint32_t i,
                     size_t *key)
{
    if (s->keys == NULL)
        return true;
    while (*key < s->key_count && s->keys[*key].slot < d->slots[i])
        ++*key;
    return *key < s->key_count && s->keys[*key].slot == d->slots[i] &&
           s->keys[*key].generation == d->generations[i];
}

static enum err directory_match(const struct search *s, const struct sealed_directory *d,
                                const struct sealed_slice *slice, const struct sealed_group *g,
                                struct arena *arena, struct sealed_chunk_list *list,
                                struct errinfo *ei)
{
    struct chunk_place p = {.page_offset = slice->offset + g->offset + g->directory_size};
    size_t key = s->keys != NULL ? keys_lower_bound(s, g->first_slot) : 0;

    page_begin(&p, d, 0);
    for (uint32_t i = 0; i < d->chunk_count; place_next(&p, d, i), i++) {
        int64_t times = d->times[i];
        struct sealed_chunk *c;

        if (d->times_maxs[times] < s->min_time_ms || d->times_mins[times] > s->max_time_ms ||
            !key_find(s, d, i, &key))
            continue;
        c = list_add(list, arena);
        if (c == NULL)
            return arena_error(arena, ei);
        *c = (struct sealed_chunk){
            .min_time_ms = d->times_mins[times],
            .max_time_ms = d->times_maxs[times],
            .times_offset = slice->offset + (uint64_t)d->times_offsets[times],
            .times_size = (uint32_t)d->times_sizes[times],
            .page_offset = p.page_offset,
            .page_size = p.page_size,
            .value_offset = p.value_offset,
            .value_size = (uint32_t)d->sizes[i],
            .sample_count = (uint32_t)d->times_counts[times],
            .slot = (uint32_t)d->slots[i],
            .key_index = (uint32_t)key,
            .generation = (uint16_t)d->generations[i],
            .column = (uint8_t)d->columns[i],
        };
    }
    return ERR_OK;
}

/* Reads `count` directories of a slice in one batch and takes what matches. */
static enum err groups_search(const struct sealed_file *f, const struct sealed_slice *slice,
                              const struct sealed_group *const *groups, size_t count,
                              const struct search *s, struct arena *arena,
                              struct sealed_chunk_list *list, struct errinfo *ei)
{
    struct file_read_op ops[DIRECTORY_BATCH];
    struct sealed_directory *d = malloc(sizeof *d);
    size_t size = 0;
    uint8_t *data, *at;
    enum err e;

    for (size_t i = 0; i < count; i++)
        size += groups[i]->directory_size;
    data = at = malloc(size);
    if (data == NULL || d == NULL) {
        free(data);
        free(d);
        return errinfo_set(ei, ERR_NOMEM, 0, "directories of %s", sealed_file_path(f));
    }
    for (size_t i = 0; i < count; i++) {
        ops[i] = (struct file_read_op){.file = f->file,
                                       .buffer = at,
                                       .size = groups[i]->directory_size,
                                       .offset = slice->offset + groups[i]->offset};
        at += ops[i].size;
    }
    e = fs_read_batch(f->fs, ops, count, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        size_t content = ops[i].size - SEALED_CRC_SIZE;

        if (!is_intact(f, ops[i].offset, ops[i].buffer, content) ||
            !sealed_directory_decode(ops[i].buffer, content, groups[i], slice->size, d))
            e = corrupt(f, ops[i].offset, "the directory is damaged", ei);
        else
            e = directory_match(s, d, slice, groups[i], arena, list, ei);
    }
    free(data);
    free(d);
    return e;
}

enum err sealed_find(const struct sealed_file *f, const struct sealed_slice *slice,
                     const struct sealed_key *keys, size_t key_count, int64_t min_time_ms,
                     int64_t max_time_ms, struct arena *arena, struct sealed_chunk_list *list,
                     struct errinfo *ei)
{
    const struct search s = {keys, key_count, min_time_ms, max_time_ms};
    const struct sealed_group *batch[DIRECTORY_BATCH];
    size_t count = 0;
    enum err e = ERR_OK;

    if (slice->max_time_ms < min_time_ms || slice->min_time_ms > max_time_ms || key_count == 0)
        return ERR_OK;
    e = slice_usable(f, slice, ei);
    for (uint32_t i = 0; i < slice->group_count && e == ERR_OK; i++) {
        if (!group_wanted(&s, &slice->groups[i]))
            continue;
        batch[count++] = &slice->groups[i];
        if (count == DIRECTORY_BATCH) {
            e = groups_search(f, slice, batch, count, &s, arena, list, ei);
            count = 0;
        }
    }
    if (e == ERR_OK && count > 0)
        e = groups_search(f, slice, batch, count, &s, arena, list, ei);
    return e;
}

enum err sealed_group_chunks(const struct sealed_file *f, const struct sealed_slice *slice,
                             uint32_t group, struct arena *arena, struct sealed_chunk_list *list,
                             struct errinfo *ei)
{
    const struct search s = {NULL, 0, INT64_MIN, INT64_MAX};
    const struct sealed_group *g;
    enum err e = slice_usable(f, slice, ei);

    if (e != ERR_OK)
        return e;
    g = &slice->groups[group];
    return groups_search(f, slice, &g, 1, &s, arena, list, ei);
}

/* ---- loading ---- */

/* A page or a timestamp column, its checksum not counted. */
struct extent {
    uint64_t offset;
    uint32_t size;
    const uint8_t *data; /* once read */
};

struct extent_list {
    size_t count;
    struct extent *items; /* distinct, ascending by offset */
};

static int extent_compare(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

static enum err extents_collect(const struct sealed_chunk *chunks, size_t count,
                                struct arena *arena, struct extent_list *out, struct errinfo *ei)
{
    struct extent *items = ARENA_ARRAY(arena, 2 * count, struct extent);
    size_t n = 0, kept = 0;

    if (items == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < count; i++) {
        const struct sealed_chunk *c = &chunks[i];

        /* Neighbours mostly share: that keeps the sort short. */
        if (i == 0 || c->page_offset != chunks[i - 1].page_offset)
            items[n++] = (struct extent){.offset = c->page_offset, .size = c->page_size};
        if (i == 0 || c->times_offset != chunks[i - 1].times_offset)
            items[n++] = (struct extent){.offset = c->times_offset, .size = c->times_size};
    }
    qsort(items, n, sizeof *items, extent_compare);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || extent_compare(&items[kept - 1], &items[i]) != 0)
            items[kept++] = items[i];
    }
    *out = (struct extent_list){kept, items};
    return ERR_OK;
}

/* Extents [first, *next) that one read takes; returns its size. */
static size_t run_size(const struct extent_list *list, size_t first, size_t *next)
{
    uint64_t begin = list->items[first].offset;
    uint64_t end = begin + list->items[first].size + SEALED_CRC_SIZE;
    size_t i = first + 1;

    for (; i < list->count; i++) {
        const struct extent *x = &list->items[i];
        uint64_t x_end = x->offset + x->size + SEALED_CRC_SIZE;

        if (x->offset > end + READ_GAP_BYTES || x_end > begin + READ_RUN_BYTES)
            break;
        if (x_end > end)
            end = x_end;
    }
    *next = i;
    return (size_t)(end - begin);
}

static enum err runs_plan(const struct sealed_file *f, const struct extent_list *list,
                          struct arena *arena, struct file_read_op **out, size_t *out_count,
                          struct errinfo *ei)
{
    struct file_read_op *ops = ARENA_ARRAY(arena, list->count, struct file_read_op);
    size_t n = 0;

    if (ops == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0, next; i < list->count; i = next) {
        size_t size = run_size(list, i, &next);
        uint8_t *buffer = arena_alloc(arena, size);

        if (buffer == NULL)
            return arena_error(arena, ei);
        ops[n++] = (struct file_read_op){
            .file = f->file, .buffer = buffer, .size = size, .offset = list->items[i].offset};
        for (size_t k = i; k < next; k++)
            list->items[k].data = buffer + (list->items[k].offset - list->items[i].offset);
    }
    *out = ops;
    *out_count = n;
    return ERR_OK;
}

/* Reads and verifies all extents. */
static enum err extents_read(const struct sealed_file *f, const struct extent_list *list,
                             struct arena *arena, struct errinfo *ei)
{
    struct file_read_op *ops = NULL;
    size_t count = 0;
    enum err e = runs_plan(f, list, arena, &ops, &count, ei);

    if (e == ERR_OK)
        e = fs_read_batch(f->fs, ops, count, ei);
    for (size_t i = 0; i < list->count && e == ERR_OK; i++) {
        const struct extent *x = &list->items[i];

        if (!is_intact(f, x->offset, x->data, x->size))
            e = corrupt(f, x->offset, "the checksum is wrong", ei);
    }
    return e;
}

static const struct extent *extent_find(const struct extent_list *list, uint64_t offset,
                                        uint32_t size)
{
    const struct extent key = {.offset = offset, .size = size};

    ASSERT(list->items != NULL);
    return bsearch(&key, list->items, list->count, sizeof key, extent_compare);
}

enum err sealed_load(const struct sealed_file *f, const struct sealed_chunk *chunks, size_t count,
                     struct arena *arena, struct sealed_raw *out, struct errinfo *ei)
{
    struct extent_list list = {0};
    enum err e;

    if (count == 0)
        return ERR_OK;
    e = extents_collect(chunks, count, arena, &list, ei);
    if (e == ERR_OK)
        e = extents_read(f, &list, arena, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        const struct sealed_chunk *c = &chunks[i];
        const struct extent *page = extent_find(&list, c->page_offset, c->page_size);
        const struct extent *times = extent_find(&list, c->times_offset, c->times_size);

        out[i].times = (struct bytes){times->data, c->times_size};
        out[i].values = (struct bytes){page->data + c->value_offset, c->value_size};
    }
    return e;
}

/* ---- decoding ---- */

static enum err times_decode(const struct sealed_file *f, const struct sealed_chunk *c,
                             const struct sealed_raw *raw, int64_t *t_ms, struct errinfo *ei)
{
    size_t n = c->sample_count;
    bool ok = codec_times_decode(raw->times.data, raw->times.size, n, t_ms) &&
              t_ms[0] == c->min_time_ms && t_ms[n - 1] == c->max_time_ms;

    for (size_t i = 1; ok && i < n; i++)
        ok = t_ms[i] > t_ms[i - 1];
    return ok ? ERR_OK
              : corrupt(f, c->times_offset, "the timestamps are not what they should be", ei);
}

static enum err values_decode(const struct sealed_file *f, const struct sealed_chunk *c,
                              const struct sealed_raw *raw, double *value, struct errinfo *ei)
{
    if (c->column != SEALED_COLUMN_VALUES)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "%s: offset %" PRIu64 ": column of kind %u",
                           sealed_file_path(f), c->page_offset + c->value_offset, c->column);
    if (!codec_values_decode(raw->values.data, raw->values.size, c->sample_count, value))
        return corrupt(f, c->page_offset + c->value_offset, "the values are no such column", ei);
    return ERR_OK;
}

/* Timestamp columns decoded so far, by where they stand: a small table, older ones are pushed out
 * and decoded again. */
enum { TIMES_CACHE_BITS = 8 };

struct times_cache {
    const struct sealed_chunk *chunks[1 << TIMES_CACHE_BITS]; /* NULL: free */
    const int64_t *t_ms[1 << TIMES_CACHE_BITS];
};

/* All of it is compared: directories may lie about a column they share. */
static bool times_same(const struct sealed_chunk *a, const struct sealed_chunk *b)
{
    return a->times_offset == b->times_offset && a->times_size == b->times_size &&
           a->sample_count == b->sample_count && a->min_time_ms == b->min_time_ms &&
           a->max_time_ms == b->max_time_ms;
}

static enum err times_get(const struct sealed_file *f, const struct sealed_chunk *c,
                          const struct sealed_raw *raw, struct times_cache *cache,
                          struct arena *arena, const int64_t **out, struct errinfo *ei)
{
    size_t at = (c->times_offset * 0x9e3779b97f4a7c15U) >> (64 - TIMES_CACHE_BITS);
    int64_t *t_ms;
    enum err e;

    if (cache->chunks[at] != NULL && times_same(cache->chunks[at], c)) {
        *out = cache->t_ms[at];
        return ERR_OK;
    }
    t_ms = ARENA_ARRAY(arena, c->sample_count, int64_t);
    if (t_ms == NULL)
        return arena_error(arena, ei);
    e = times_decode(f, c, raw, t_ms, ei);
    if (e != ERR_OK)
        return e;
    cache->chunks[at] = c;
    cache->t_ms[at] = t_ms;
    *out = t_ms;
    return ERR_OK;
}

enum err sealed_read(const struct sealed_file *f, const struct sealed_chunk *chunks, size_t count,
                     struct arena *arena, struct column *out, struct errinfo *ei)
{
    struct sealed_raw *raw = ARENA_ARRAY(arena, count, struct sealed_raw);
    struct times_cache cache = {0};
    enum err e;

    if (raw == NULL)
        return arena_error(arena, ei);
    e = sealed_load(f, chunks, count, arena, raw, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        const struct sealed_chunk *c = &chunks[i];
        double *value = ARENA_ARRAY(arena, c->sample_count, double);
        const int64_t *t_ms = NULL;

        if (value == NULL)
            return arena_error(arena, ei);
        e = times_get(f, c, &raw[i], &cache, arena, &t_ms, ei);
        if (e == ERR_OK)
            e = values_decode(f, c, &raw[i], value, ei);
        if (e == ERR_OK)
            out[i] = (struct column){.count = c->sample_count, .t_ms = t_ms, .value = value};
    }
    return e;
}

/* ---- verifying ---- */

static enum err payload_verify(const struct sealed_file *f, const struct sealed_slice *slice,
                               struct errinfo *ei)
{
    uint8_t *data = malloc(slice->size);
    struct sealed_slice_header h;
    enum err e;

    if (data == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "slice of %s", sealed_file_path(f));
    e = file_read(f->file, data, slice->size, slice->offset, ei);
    if (e == ERR_OK && (!sealed_slice_header_decode(data, &h) || h.size != slice->size ||
                        h.epoch != f->identity.epoch))
        e = corrupt(f, slice->offset, "the slice's header is damaged", ei);
    if (e == ERR_OK && h.payload_crc != sealed_crc(f->identity.epoch, slice->offset,
                                                   data + SEALED_SLICE_HEADER_SIZE,
                                                   slice->size - SEALED_SLICE_HEADER_SIZE))
        e = corrupt(f, slice->offset, "the slice's checksum is wrong", ei);
    free(data);
    return e;
}

enum err sealed_slice_verify(const struct sealed_file *f, const struct sealed_slice *slice,
                             struct errinfo *ei)
{
    uint64_t samples = 0;
    struct arena arena;
    enum err e = slice_usable(f, slice, ei), payload_e;

    if (e != ERR_OK)
        return e;
    arena_init(&arena, NULL);
    for (uint32_t i = 0; i < slice->group_count && e == ERR_OK; i++) {
        struct sealed_chunk_list list = {0};
        struct column *columns;

        arena_reset(&arena);
        e = sealed_group_chunks(f, slice, i, &arena, &list, ei);
        columns = ARENA_ARRAY(&arena, list.count, struct column);
        if (e == ERR_OK && columns == NULL)
            e = arena_error(&arena, ei);
        if (e == ERR_OK)
            e = sealed_read(f, list.items, list.count, &arena, columns, ei);
        for (size_t k = 0; k < list.count && e == ERR_OK; k++)
            samples += columns[k].count;
    }
    arena_done(&arena);
    /* The groups first: their errors name the place. */
    payload_e = e == ERR_OK ? payload_verify(f, slice, ei) : e;
    if (payload_e == ERR_OK && samples != slice->sample_count)
        return corrupt(f, slice->offset, "the slice has another number of samples", ei);
    return payload_e;
}
