/*
 * Reading chunks of sealed and late files, in one batch. They were found by sealed_find.c.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/histogram_chunk.h"
#include "engine/sealed/sealed_format_internal.h"

enum {
    READ_GAP_BYTES = 4096,    /* bytes between two extents that are cheaper read than skipped */
    READ_RUN_BYTES = 1 << 20, /* one read, at most, unless a single extent is larger */
    VERIFY_CHUNKS = SEALED_GROUP_CHUNKS,
};

/* ---- loading ---- */

/* A page or a timestamp column, its checksum not counted. */
struct extent {
    uint64_t offset;
    uint32_t size;
    const uint8_t *data; /* once read */
    struct page *page;   /* pinned, has the data; NULL: it is in the arena */
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

        if (!sealed_is_intact(f, x->offset, x->data, x->size))
            e = sealed_corrupt(f, x->offset, "the checksum is wrong", ei);
    }
    return e;
}

/* ---- loading through the cache ---- */

/*
 * Neighbours of a metric are far apart in a sealed file, which stands by target: a query of some
 * hundred series wants a tenth of each page, batch after batch, and so does the next refresh of its
 * dashboard. Pages that were read for so little are kept; what is read nearly whole passes by.
 */
enum { KEEP_SHARE = 4 /* kept if less than a quarter of what is read is wanted */ };

static bool is_sparse(const struct sealed_chunk *chunks, size_t count,
                      const struct extent_list *list)
{
    uint64_t wanted = 0, read = 0;

    for (size_t i = 0; i < count; i++)
        wanted += chunks[i].value_size;
    for (size_t i = 0; i < list->count; i++)
        read += list->items[i].size;
    return wanted < read / KEEP_SHARE;
}

static void pages_release(const struct extent_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        page_release(list->items[i].page);
}

/* Finds an extent in the cache, or gives it a page to be read into by the op, which it then adds.
 */
static bool page_take(const struct sealed_file *f, struct extent *x, struct file_read_op *ops,
                      size_t *op_count)
{
    size_t size = x->size + SEALED_CRC_SIZE;

    x->page = page_cache_find(f->cache, f->pages_id, x->offset);
    if (x->page == NULL) {
        /* Without memory for the cache there may still be some for the query. */
        if (page_new(f->cache, f->pages_id, x->offset, size, &x->page, NULL) != ERR_OK)
            return false;
        ops[(*op_count)++] = (struct file_read_op){
            .file = f->file, .buffer = x->page->data, .size = size, .offset = x->offset};
    }
    x->data = x->page->data;
    return x->page->size == size; /* else directories lie about one page, differently */
}

/* Reads and verifies what the cache does not have. */
static enum err pages_read(const struct sealed_file *f, struct extent_list *list,
                           struct file_read_op *ops, size_t op_count, struct errinfo *ei)
{
    enum err e = op_count == 0 ? ERR_OK : fs_read_batch(f->fs, ops, op_count, ei);

    for (size_t i = 0, op = 0; op < op_count && e == ERR_OK; i++) {
        struct extent *x = &list->items[i];

        if (x->page->data != ops[op].buffer)
            continue;
        op++;
        if (!sealed_is_intact(f, x->offset, x->data, x->size))
            return sealed_corrupt(f, x->offset, "the checksum is wrong", ei);
        x->page = page_cache_enter(f->cache, x->page);
        x->data = x->page->data;
        if (x->page->size != x->size + SEALED_CRC_SIZE)
            return sealed_corrupt(f, x->offset, "pages overlap", ei);
    }
    return e;
}

/* extents_read() through the cache; *done stays false where that cannot be, and nothing is held. */
static enum err extents_keep(const struct sealed_file *f, struct extent_list *list,
                             struct arena *arena, bool *done, struct errinfo *ei)
{
    struct file_read_op *ops = ARENA_ARRAY(arena, list->count, struct file_read_op);
    size_t op_count = 0;
    bool ok = true;
    enum err e = ERR_OK;

    if (ops == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < list->count && ok; i++)
        ok = page_take(f, &list->items[i], ops, &op_count);
    if (ok)
        e = pages_read(f, list, ops, op_count, ei);
    *done = ok && e == ERR_OK;
    for (size_t i = 0; i < list->count && !*done; i++) {
        page_release(list->items[i].page);
        list->items[i].page = NULL;
    }
    return e;
}

/* ---- loading, either way ---- */

static const struct extent *extent_find(const struct extent_list *list, uint64_t offset,
                                        uint32_t size)
{
    const struct extent key = {.offset = offset, .size = size};

    ASSERT(list->items != NULL);
    return bsearch(&key, list->items, list->count, sizeof key, extent_compare);
}

/* Loads chunks; *list holds their bytes, until pages_release() where the cache was used. */
static enum err chunks_load(const struct sealed_file *f, const struct sealed_chunk *chunks,
                            size_t count, bool keep, struct arena *arena, struct extent_list *list,
                            struct sealed_raw *out, struct errinfo *ei)
{
    bool done = false;
    enum err e;

    if (count == 0)
        return ERR_OK;
    e = extents_collect(chunks, count, arena, list, ei);
    if (e == ERR_OK && keep && f->cache != NULL && is_sparse(chunks, count, list))
        e = extents_keep(f, list, arena, &done, ei);
    if (e == ERR_OK && !done)
        e = extents_read(f, list, arena, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        const struct sealed_chunk *c = &chunks[i];
        const struct extent *page = extent_find(list, c->page_offset, c->page_size);
        const struct extent *times = extent_find(list, c->times_offset, c->times_size);

        out[i].times = (struct bytes){times->data, c->times_size};
        out[i].values = (struct bytes){page->data + c->value_offset, c->value_size};
    }
    return e;
}

enum err sealed_load(const struct sealed_file *f, const struct sealed_chunk *chunks, size_t count,
                     struct arena *arena, struct sealed_raw *out, struct errinfo *ei)
{
    struct extent_list list = {0};

    return chunks_load(f, chunks, count, false, arena, &list, out, ei);
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
              : sealed_corrupt(f, c->times_offset, "the timestamps are not what they should be",
                               ei);
}

static enum err values_decode(const struct sealed_file *f, const struct sealed_chunk *c,
                              const struct sealed_raw *raw, double *value, struct errinfo *ei)
{
    if (!codec_values_decode(raw->values.data, raw->values.size, c->sample_count, value))
        return sealed_corrupt(f, c->page_offset + c->value_offset, "the values are no such column",
                              ei);
    return ERR_OK;
}

/* Fills the sums too. */
static enum err histograms_decode(const struct sealed_file *f, const struct sealed_chunk *c,
                                  const struct sealed_raw *raw, struct arena *arena,
                                  struct arena *histograms, double *value,
                                  const struct histogram *const **out, struct errinfo *ei)
{
    const struct histogram **pointers =
        arena_alloc_array(arena, c->sample_count, sizeof(const struct histogram *));
    struct histogram *h = NULL;
    enum err e;

    if (pointers == NULL)
        return arena_error(arena, ei);
    e = histogram_chunk_decode(raw->values, c->sample_count, histograms, &h, ei);
    if (e == ERR_CORRUPT)
        return sealed_corrupt(f, c->page_offset + c->value_offset,
                              "the histograms are no such column", ei);
    if (e != ERR_OK)
        return e;
    for (uint32_t i = 0; i < c->sample_count; i++) {
        pointers[i] = &h[i];
        value[i] = h[i].sum;
    }
    *out = pointers;
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

/* One chunk of what was loaded. */
static enum err column_decode(const struct sealed_file *f, const struct sealed_chunk *c,
                              const struct sealed_raw *raw, struct times_cache *cache,
                              struct arena *arena, struct arena *histograms, struct column *out,
                              struct errinfo *ei)
{
    double *value = ARENA_ARRAY(arena, c->sample_count, double);
    struct column made = {.count = c->sample_count, .value = value};
    enum err e;

    if (c->column != SEALED_COLUMN_VALUES && c->column != SEALED_COLUMN_HISTOGRAMS)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, sealed_file_path(f),
                              c->page_offset + c->value_offset, "column of kind %u", c->column);
    if (value == NULL)
        return arena_error(arena, ei);
    e = times_get(f, c, raw, cache, arena, &made.t_ms, ei);
    if (e == ERR_OK && c->column == SEALED_COLUMN_HISTOGRAMS)
        e = histograms_decode(f, c, raw, arena, histograms, value, &made.histogram, ei);
    else if (e == ERR_OK)
        e = values_decode(f, c, raw, value, ei);
    if (e == ERR_OK)
        *out = made;
    return e;
}

static enum err chunks_read(const struct sealed_file *f, const struct sealed_chunk *chunks,
                            size_t count, bool keep, struct arena *arena, struct arena *histograms,
                            struct column *out, struct errinfo *ei)
{
    struct times_cache cache = {0};
    struct extent_list list = {0};
    struct arena scratch; /* a chunk may cost a whole page of bytes: those go at once */
    struct sealed_raw *raw;
    enum err e;

    arena_init(&scratch, arena->budget);
    raw = ARENA_ARRAY(&scratch, count, struct sealed_raw);
    e = raw == NULL ? arena_error(&scratch, ei)
                    : chunks_load(f, chunks, count, keep, &scratch, &list, raw, ei);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = column_decode(f, &chunks[i], &raw[i], &cache, arena, histograms, &out[i], ei);
    pages_release(&list);
    arena_done(&scratch);
    return e;
}

enum err sealed_read(const struct sealed_file *f, const struct sealed_chunk *chunks, size_t count,
                     struct arena *arena, struct arena *histograms, struct column *out,
                     struct errinfo *ei)
{
    return chunks_read(f, chunks, count, false, arena, histograms, out, ei);
}

enum err sealed_read_kept(const struct sealed_file *f, const struct sealed_chunk *chunks,
                          size_t count, struct arena *arena, struct arena *histograms,
                          struct column *out, struct errinfo *ei)
{
    return chunks_read(f, chunks, count, true, arena, histograms, out, ei);
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
        e = sealed_corrupt(f, slice->offset, "the slice's header is damaged", ei);
    if (e == ERR_OK && h.payload_crc != sealed_crc(f->identity.epoch, slice->offset,
                                                   data + SEALED_SLICE_HEADER_SIZE,
                                                   slice->size - SEALED_SLICE_HEADER_SIZE))
        e = sealed_corrupt(f, slice->offset, "the slice's checksum is wrong", ei);
    free(data);
    return e;
}

/* Reads the chunks of a group one after the other: each is decoded in the memory of the one before.
 */
static enum err group_verify(const struct sealed_file *f, const struct sealed_slice *slice,
                             uint32_t group, struct arena *list_arena, struct arena *arena,
                             uint64_t *samples, struct errinfo *ei)
{
    struct sealed_chunk_list list = {0};
    enum err e = sealed_group_chunks(f, slice, group, list_arena, &list, ei);

    for (size_t i = 0, n; i < list.count && e == ERR_OK; i += n) {
        struct column columns[VERIFY_CHUNKS] = {0};

        n = list.items[i].column == SEALED_COLUMN_VALUES ? 0 : 1;
        while (n < VERIFY_CHUNKS && i + n < list.count &&
               list.items[i + n].column == SEALED_COLUMN_VALUES)
            n++;
        arena_reset(arena);
        e = sealed_read(f, list.items + i, n, arena, arena, columns, ei);
        for (size_t k = 0; k < n && e == ERR_OK; k++)
            *samples += columns[k].count;
    }
    return e;
}

enum err sealed_slice_verify(const struct sealed_file *f, const struct sealed_slice *slice,
                             struct errinfo *ei)
{
    uint64_t samples = 0;
    struct arena list_arena, arena;
    enum err e = sealed_slice_usable(f, slice, ei), payload_e;

    if (e != ERR_OK)
        return e;
    arena_init(&list_arena, NULL);
    arena_init(&arena, NULL);
    for (uint32_t i = 0; i < slice->group_count && e == ERR_OK; i++) {
        arena_reset(&list_arena);
        e = group_verify(f, slice, i, &list_arena, &arena, &samples, ei);
    }
    arena_done(&arena);
    arena_done(&list_arena);
    /* The groups first: their errors name the place. */
    payload_e = e == ERR_OK ? payload_verify(f, slice, ei) : e;
    if (payload_e == ERR_OK && samples != slice->sample_count)
        return sealed_corrupt(f, slice->offset, "the slice has another number of samples", ei);
    return payload_e;
}
