/*
 * The chunk index and the timestamp columns of a part, decoded page by page.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"

/* ---- chunk index ---- */

/* What a page of entries holds before it becomes chunks. Decoders below give ERR_CORRUPT or
 * ERR_NOMEM (the arena refused); the caller tells the story. */
struct entry_page {
    uint64_t chunk_count, data_page_count, layout_count, first_offset;
    uint8_t layout_columns[256];
    uint8_t layout_kinds[256][PART_CHUNK_COLUMNS_MAX];
    uint32_t *chunk_counts, *page_chunks, *layouts, *times, *sizes;
    size_t size_count;
};

/* `has_histograms`: the footer announces them. */
static bool layouts_decode(struct byte_reader *r, bool has_histograms, struct entry_page *t)
{
    for (uint64_t i = 0; i < t->layout_count; i++) {
        uint8_t columns = reader_u8(r);
        const uint8_t *kinds = columns > PART_CHUNK_COLUMNS_MAX ? NULL : reader_take(r, columns);

        if (kinds == NULL || columns == 0 ||
            (!has_histograms && memchr(kinds, PART_COLUMN_HISTOGRAMS, columns) != NULL))
            return false;
        t->layout_columns[i] = columns;
        memcpy(t->layout_kinds[i], kinds, columns);
    }
    return !r->failed;
}

static enum err ints_decode(struct byte_reader *r, struct arena *arena, size_t count, uint32_t max,
                            uint32_t **out)
{
    *out = ARENA_ARRAY(arena, count, uint32_t);
    if (*out == NULL)
        return ERR_NOMEM;
    return part_ints_get(r, count, max, *out) ? ERR_OK : ERR_CORRUPT;
}

static enum err layout_numbers_decode(struct byte_reader *r, struct arena *arena,
                                      struct entry_page *t)
{
    if (t->layout_count > 1)
        return ints_decode(r, arena, t->chunk_count, (uint32_t)t->layout_count - 1, &t->layouts);
    t->layouts = arena_calloc(arena, t->chunk_count, sizeof *t->layouts);
    return t->layouts == NULL ? ERR_NOMEM : ERR_OK;
}

static enum err entries_decode(const struct part *p, struct byte_reader *r, struct arena *arena,
                               uint32_t series_count, struct entry_page *t)
{
    const struct part_info *info = &p->footer.info;
    enum err e;

    if (reader_varint(r) != series_count)
        return ERR_CORRUPT;
    t->chunk_count = reader_varint(r);
    t->data_page_count = reader_varint(r);
    t->layout_count = reader_varint(r);
    t->first_offset = reader_le64(r);
    /* The footer has bounded the number of chunks by the size of their file. */
    if (r->failed || t->chunk_count > info->chunk_count || t->data_page_count > t->chunk_count ||
        t->layout_count == 0 || t->layout_count > 256 || info->times_count == 0 ||
        !layouts_decode(r, info->has_histograms, t))
        return ERR_CORRUPT;
    if ((e = ints_decode(r, arena, series_count, UINT32_MAX, &t->chunk_counts)) != ERR_OK ||
        (e = ints_decode(r, arena, t->data_page_count, UINT32_MAX, &t->page_chunks)) != ERR_OK ||
        (e = layout_numbers_decode(r, arena, t)) != ERR_OK ||
        (e = ints_decode(r, arena, t->chunk_count, info->times_count - 1, &t->times)) != ERR_OK)
        return e;
    for (uint64_t i = 0; i < t->chunk_count; i++)
        t->size_count += t->layout_columns[t->layouts[i]];
    e = ints_decode(r, arena, t->size_count, PART_COLUMN_SIZE_MAX, &t->sizes);
    return e == ERR_OK && reader_left(r) != 0 ? ERR_CORRUPT : e;
}

/* Gives one chunk its columns and sizes; returns the sum. */
static uint64_t chunk_columns(const struct entry_page *t, size_t index, size_t *at,
                              struct part_chunk *c)
{
    uint32_t layout = t->layouts[index];
    uint64_t size = 0;

    c->times = t->times[index];
    c->column_count = t->layout_columns[layout];
    for (uint32_t k = 0; k < c->column_count; k++) {
        c->column_kind[k] = t->layout_kinds[layout][k];
        c->column_size[k] = t->sizes[(*at)++];
        size += c->column_size[k];
    }
    return size;
}

/* Places the chunks in their data pages, one after another from first_offset on. */
static bool chunks_place(const struct part *p, const struct entry_page *t,
                         struct part_chunk *chunks)
{
    uint64_t offset = t->first_offset, end = p->footer.info.chunks_size;
    size_t at = 0, chunk = 0;

    if (offset < PART_HEADER_SIZE || offset > end)
        return false;
    for (uint64_t i = 0; i < t->data_page_count; i++) {
        uint64_t size = 0;
        size_t first = chunk;

        if (t->page_chunks[i] == 0 || t->page_chunks[i] > t->chunk_count - chunk)
            return false;
        for (; chunk < first + t->page_chunks[i]; chunk++) {
            chunks[chunk].page_offset = offset;
            chunks[chunk].data_offset = (uint32_t)size;
            size += chunk_columns(t, chunk, &at, &chunks[chunk]);
            if (size > UINT32_MAX - PART_CRC_SIZE)
                return false;
        }
        size += PART_CRC_SIZE;
        if (size > end - offset)
            return false;
        for (size_t k = first; k < chunk; k++)
            chunks[k].page_size = (uint32_t)size;
        offset += size;
    }
    return chunk == t->chunk_count;
}

static bool series_place(const struct entry_page *t, uint32_t series_count, uint32_t *first_chunk)
{
    uint64_t chunk = 0;

    for (uint32_t i = 0; i < series_count; i++) {
        first_chunk[i] = (uint32_t)chunk;
        if (t->chunk_counts[i] == 0 || t->chunk_counts[i] > t->chunk_count - chunk)
            return false;
        chunk += t->chunk_counts[i];
    }
    first_chunk[series_count] = (uint32_t)chunk;
    return chunk == t->chunk_count;
}

static enum err chunk_page_decode(const struct part *p, struct byte_reader *r, struct arena *arena,
                                  struct part_chunk_page *out)
{
    struct entry_page t = {0};
    enum err e = entries_decode(p, r, arena, out->series_count, &t);

    if (e != ERR_OK)
        return e;
    out->chunk_count = (uint32_t)t.chunk_count;
    out->data_page_count = (uint32_t)t.data_page_count;
    out->first_chunk = ARENA_ARRAY(arena, (size_t)out->series_count + 1, uint32_t);
    out->chunks = arena_calloc(arena, t.chunk_count, sizeof *out->chunks);
    if (out->first_chunk == NULL || out->chunks == NULL)
        return ERR_NOMEM;
    return series_place(&t, out->series_count, out->first_chunk) && chunks_place(p, &t, out->chunks)
               ? ERR_OK
               : ERR_CORRUPT;
}

/* Which series a page is of; the rest is empty. */
static void page_bounds(const struct part *p, uint32_t index, struct part_chunk_page *out)
{
    memset(out, 0, sizeof *out);
    out->first_series = index * PART_CHUNK_SERIES_PER_PAGE;
    out->series_count = p->footer.info.series_count - out->first_series;
    if (out->series_count > PART_CHUNK_SERIES_PER_PAGE)
        out->series_count = PART_CHUNK_SERIES_PER_PAGE;
}

enum err part_chunk_page_read(struct part *p, uint32_t index, struct arena *arena,
                              struct part_chunk_page *out, struct errinfo *ei)
{
    struct byte_reader r;
    struct page *page;
    enum err e = part_page_get(p, PART_SECTION_CHUNKS, index, &page, ei);

    if (e != ERR_OK)
        return e;
    page_bounds(p, index, out);
    r = part_page_reader(page);
    e = chunk_page_decode(p, &r, arena, out);
    if (e != ERR_OK)
        e = e == ERR_NOMEM ? arena_error(arena, ei)
                           : part_page_corrupt(p, PART_SECTION_CHUNKS, index, ei);
    page_release(page);
    return e;
}

/* Decoded form: this, the chunks, the first chunks. */
struct decoded_entries {
    uint32_t chunk_count, data_page_count;
};

static enum err chunk_page_keep(struct part *p, uint32_t index, const struct part_chunk_page *page,
                                struct page **out, struct errinfo *ei)
{
    const struct decoded_entries head = {page->chunk_count, page->data_page_count};
    size_t chunks_size = page->chunk_count * sizeof *page->chunks;
    size_t starts_size = ((size_t)page->series_count + 1) * sizeof *page->first_chunk;
    struct page *decoded;
    enum err e = part_decoded_new(p, PART_SECTION_CHUNKS, index,
                                  sizeof head + chunks_size + starts_size, &decoded, ei);

    if (e != ERR_OK)
        return e;
    memcpy(decoded->data, &head, sizeof head);
    memcpy(decoded->data + sizeof head, page->chunks, chunks_size);
    memcpy(decoded->data + sizeof head + chunks_size, page->first_chunk, starts_size);
    *out = part_decoded_keep(p, decoded);
    return ERR_OK;
}

enum err part_chunk_page_get(struct part *p, uint32_t index, struct arena *scratch,
                             struct part_chunk_page *out, struct errinfo *ei)
{
    struct page *decoded = part_decoded_find(p, PART_SECTION_CHUNKS, index);
    struct decoded_entries head;
    enum err e = ERR_OK;

    if (decoded == NULL) {
        e = part_chunk_page_read(p, index, scratch, out, ei);
        if (e == ERR_OK)
            e = chunk_page_keep(p, index, out, &decoded, ei);
    }
    if (e != ERR_OK)
        return e;
    memcpy(&head, decoded->data, sizeof head);
    page_bounds(p, index, out);
    out->chunk_count = head.chunk_count;
    out->data_page_count = head.data_page_count;
    out->chunks = (struct part_chunk *)(void *)(decoded->data + sizeof head);
    out->first_chunk = (uint32_t *)(void *)(out->chunks + head.chunk_count);
    out->page = decoded;
    return ERR_OK;
}

/* ---- timestamp columns ---- */

static bool times_decode(struct byte_reader *r, uint32_t count, struct part_times_view *v)
{
    uint64_t spans[PART_TIMES_PER_PAGE], mins[PART_TIMES_PER_PAGE], total = 0;

    if (!part_ints_get(r, count, CODEC_SAMPLES_MAX, v->samples) ||
        !part_ints_get(r, count, UINT32_MAX, v->sizes) || !part_ints_get_wide(r, count, mins) ||
        !part_ints_get_wide(r, count, spans))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        v->min_times[i] = (int64_t)mins[i];
        v->max_times[i] = (int64_t)(mins[i] + spans[i]);
        if (v->samples[i] == 0 || v->sizes[i] == 0 || v->max_times[i] < v->min_times[i] ||
            spans[i] < v->samples[i] - 1 || total > reader_left(r))
            return false;
        v->starts[i] = (uint32_t)total;
        total += v->sizes[i];
    }
    v->bytes = r->pos;
    return total == reader_left(r);
}

enum err part_times_page_read(struct part *p, uint32_t index, struct arena *arena,
                              struct part_times_view *out, struct errinfo *ei)
{
    const struct part_table *table = &p->footer.tables[PART_SECTION_TIMES];
    uint32_t end =
        index + 1 < table->count ? table->pages[index + 1].key : p->footer.info.times_count;
    struct byte_reader r;
    struct page *page;
    uint64_t count;
    enum err e = part_page_get(p, PART_SECTION_TIMES, index, &page, ei);

    if (e != ERR_OK)
        return e;
    r = part_page_reader(page);
    count = reader_varint(&r);
    memset(out, 0, sizeof *out);
    out->first = table->pages[index].key;
    if (count == 0 || count > PART_TIMES_PER_PAGE || end < out->first || count != end - out->first)
        e = part_page_corrupt(p, PART_SECTION_TIMES, index, ei);
    out->count = (uint32_t)count;
    if (e == ERR_OK) {
        out->samples = ARENA_ARRAY(arena, count, uint32_t);
        out->sizes = ARENA_ARRAY(arena, count, uint32_t);
        out->starts = ARENA_ARRAY(arena, count, uint32_t);
        out->min_times = ARENA_ARRAY(arena, count, int64_t);
        out->max_times = ARENA_ARRAY(arena, count, int64_t);
        if (out->samples == NULL || out->sizes == NULL || out->starts == NULL ||
            out->min_times == NULL || out->max_times == NULL)
            e = arena_error(arena, ei);
        else if (!times_decode(&r, out->count, out))
            e = part_page_corrupt(p, PART_SECTION_TIMES, index, ei);
    }
    if (e == ERR_OK)
        out->page = TAKE(page);
    page_release(page);
    return e;
}

/* ---- memo ---- */

enum err part_times_memo_init(struct part_times_memo *m, struct part *p, struct arena *arena,
                              struct errinfo *ei)
{
    memset(m, 0, sizeof *m);
    m->part = p;
    m->arena = arena;
    m->views = arena_calloc(arena, p->footer.tables[PART_SECTION_TIMES].count, sizeof(void *));
    return m->views == NULL ? arena_error(arena, ei) : ERR_OK;
}

void part_times_memo_done(struct part_times_memo *m)
{
    if (m->views == NULL)
        return;
    for (uint32_t i = 0; i < m->part->footer.tables[PART_SECTION_TIMES].count; i++) {
        if (m->views[i] != NULL)
            page_release(m->views[i]->page);
    }
}

static enum err memo_view(struct part_times_memo *m, uint32_t id,
                          const struct part_times_view **out, struct errinfo *ei)
{
    const struct part_table *table = &m->part->footer.tables[PART_SECTION_TIMES];
    struct part_times_view *v;
    uint32_t index;
    enum err e;

    if (table->count == 0)
        return part_corrupt(m->part, PART_FILE_INDEX, table->offset,
                            "a chunk names a timestamp column, but there is none", ei);
    index = part_page_find(m->part, PART_SECTION_TIMES, 0, table->count, id);
    if (m->views[index] == NULL) {
        v = ARENA_NEW(m->arena, struct part_times_view);
        if (v == NULL)
            return arena_error(m->arena, ei);
        e = part_times_page_read(m->part, index, m->arena, v, ei);
        if (e != ERR_OK)
            return e;
        m->views[index] = v;
    }
    v = m->views[index];
    if (id < v->first || id - v->first >= v->count)
        return part_page_corrupt(m->part, PART_SECTION_TIMES, index, ei);
    *out = v;
    return ERR_OK;
}

enum err part_times_bounds(struct part_times_memo *m, struct part_chunk *chunk, struct errinfo *ei)
{
    const struct part_times_view *v = NULL;
    enum err e = memo_view(m, chunk->times, &v, ei);

    if (e != ERR_OK)
        return e;
    ASSERT(v != NULL);
    chunk->min_time_ms = v->min_times[chunk->times - v->first];
    chunk->max_time_ms = v->max_times[chunk->times - v->first];
    chunk->sample_count = v->samples[chunk->times - v->first];
    return ERR_OK;
}

enum err part_times_bytes(struct part_times_memo *m, uint32_t id, struct bytes *out,
                          struct errinfo *ei)
{
    const struct part_times_view *v = NULL;
    enum err e = memo_view(m, id, &v, ei);

    if (e != ERR_OK)
        return e;
    ASSERT(v != NULL);
    *out = (struct bytes){v->bytes + v->starts[id - v->first], v->sizes[id - v->first]};
    return ERR_OK;
}

static size_t memo_slot(const struct part_times_memo *m, uint32_t id)
{
    size_t at = ((uint64_t)id * UINT32_C(0x9e3779b1)) & (m->column_capacity - 1);

    while (m->columns[at] != NULL && m->column_ids[at] != id)
        at = (at + 1) & (m->column_capacity - 1);
    return at;
}

static bool memo_grow(struct part_times_memo *m)
{
    const struct part_times_memo old = *m;
    size_t capacity = old.column_capacity == 0 ? 64 : old.column_capacity * 2;

    if (m->column_used < old.column_capacity / 2)
        return true;
    m->columns = arena_calloc(m->arena, capacity, sizeof(*m->columns));
    m->column_ids = arena_calloc(m->arena, capacity, sizeof *m->column_ids);
    if (m->columns == NULL || m->column_ids == NULL) {
        *m = old;
        return false;
    }
    m->column_capacity = capacity;
    for (size_t i = 0; i < old.column_capacity; i++) {
        if (old.columns[i] != NULL) {
            size_t at = memo_slot(m, old.column_ids[i]);

            m->columns[at] = old.columns[i];
            m->column_ids[at] = old.column_ids[i];
        }
    }
    return true;
}

/* Decodes a column and holds it against its entry: the bounds were what the caller chose it by. */
static enum err column_decode(struct part_times_memo *m, const struct part_chunk *c, int64_t **out,
                              struct errinfo *ei)
{
    uint32_t n = c->sample_count;
    struct bytes bytes;
    int64_t *t;
    enum err e = part_times_bytes(m, c->times, &bytes, ei);

    if (e != ERR_OK)
        return e;
    t = ARENA_ARRAY(m->arena, n, int64_t);
    if (t == NULL)
        return arena_error(m->arena, ei);
    if (!codec_times_decode(bytes.data, bytes.size, n, t) || t[0] != c->min_time_ms ||
        t[n - 1] != c->max_time_ms)
        return part_page_corrupt(m->part, PART_SECTION_TIMES,
                                 part_page_find(m->part, PART_SECTION_TIMES, 0,
                                                m->part->footer.tables[PART_SECTION_TIMES].count,
                                                c->times),
                                 ei);
    *out = t;
    return ERR_OK;
}

enum err part_times_column(struct part_times_memo *m, const struct part_chunk *chunk,
                           const int64_t **out, struct errinfo *ei)
{
    int64_t *t = NULL;
    size_t at;
    enum err e;

    if (!memo_grow(m))
        return arena_error(m->arena, ei);
    at = memo_slot(m, chunk->times);
    if (m->columns[at] == NULL) {
        e = column_decode(m, chunk, &t, ei);
        if (e != ERR_OK)
            return e;
        m->columns[at] = t;
        m->column_ids[at] = chunk->times;
        m->column_used++;
    }
    *out = m->columns[at];
    return ERR_OK;
}
