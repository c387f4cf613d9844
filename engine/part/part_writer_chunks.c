/*
 * Chunks on their way into a part.
 *
 * Columns of consecutive chunks share a data page of about 8 KiB, which has one checksum: a reader
 * of one series reads little more than its own chunk. Timestamp columns stand apart, each distinct
 * one once in the whole part, found by a keyed hash of 128 bits; with jitter a target's column is
 * shared by its series of all metrics, which are far apart in label order.
 */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "engine/codec_histogram.h"
#include "engine/part/part_writer_chunks_internal.h"

enum { TIMES_TABLE_MAX = 1 << 18 };

/* ---- timestamp columns ---- */

static enum err times_page_end(struct part_writer *w, struct errinfo *ei)
{
    struct part_times_page *t = &w->times;
    enum err e;

    if (t->count == 0)
        return ERR_OK;
    writer_reset(&w->page);
    writer_varint(&w->page, t->count);
    part_ints_put(&w->page, w->scratch, t->samples, t->count);
    part_ints_put(&w->page, w->scratch, t->sizes, t->count);
    part_ints_put_wide(&w->page, w->scratch, t->min_times, t->count);
    part_ints_put_wide(&w->page, w->scratch, t->spans, t->count);
    writer_append(&w->page, t->bytes.data, t->bytes.size);
    if (t->bytes.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "timestamp columns");
    e = part_writer_page(w, PART_SECTION_TIMES, w->footer.info.times_count - t->count, &w->page,
                         ei);
    t->count = 0;
    writer_reset(&t->bytes);
    return e;
}

static struct part_times_entry *times_slot(struct part_writer *w, struct hash128 hash)
{
    struct part_times_entry *table = w->times_table.data;
    size_t mask = w->times_table.count - 1, at = hash.low & mask;

    while (table[at].used && !hash128_equal(table[at].hash, hash))
        at = (at + 1) & mask;
    return &table[at];
}

/* Keeps the table at most half full. Past the limit it is emptied: columns seen before are then
 * stored again, which costs room and nothing else. */
static enum err times_table_grow(struct part_writer *w, struct errinfo *ei)
{
    struct part_array old = w->times_table;
    const struct part_times_entry *entries = old.data;
    size_t count = old.count == 0 ? 1024 : old.count * 2;
    enum err e;

    if (w->times_table_used + 2 <= old.count / 2)
        return ERR_OK;
    w->times_table_used = 0;
    if (count > TIMES_TABLE_MAX) {
        memset(old.data, 0, old.count * sizeof *entries);
        return ERR_OK;
    }
    memset(&w->times_table, 0, sizeof w->times_table);
    e = part_array_reserve(&w->times_table, w->store->memory, sizeof *entries, count, ei);
    if (e != ERR_OK) {
        w->times_table = old;
        return e;
    }
    memset(w->times_table.data, 0, count * sizeof *entries);
    w->times_table.count = count;
    for (size_t i = 0; i < old.count; i++) {
        if (entries[i].used) {
            *times_slot(w, entries[i].hash) = entries[i];
            w->times_table_used++;
        }
    }
    part_array_done(&old, w->store->memory);
    return ERR_OK;
}

static void times_remember(struct part_writer *w, struct hash128 hash, uint32_t id)
{
    struct part_times_entry *slot = times_slot(w, hash);

    if (!slot->used)
        w->times_table_used++;
    *slot = (struct part_times_entry){hash, id, true};
}

/* Number of an encoded column; it is stored if it is new. */
static enum err times_add(struct part_writer *w, struct bytes column, uint32_t sample_count,
                          int64_t min_time_ms, int64_t max_time_ms, uint32_t *id,
                          struct errinfo *ei)
{
    struct part_times_page *t = &w->times;
    struct hash128 hash = hash128_bytes(&w->secret, column.data, column.size);
    const struct part_times_entry *slot;
    enum err e;

    hash.high ^= sample_count; /* the bytes alone do not say how many samples they are */
    slot = times_slot(w, hash);
    if (slot->used) {
        *id = slot->id;
        return ERR_OK;
    }
    if (w->footer.info.times_count == UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "part with more than 2^32 timestamp columns");
    if (t->count == PART_TIMES_PER_PAGE || t->bytes.size >= PART_PAGE_TARGET_BYTES) {
        e = times_page_end(w, ei);
        if (e != ERR_OK)
            return e;
    }
    t->samples[t->count] = sample_count;
    t->sizes[t->count] = (uint32_t)column.size;
    t->min_times[t->count] = (uint64_t)min_time_ms;
    t->spans[t->count] = (uint64_t)max_time_ms - (uint64_t)min_time_ms;
    writer_append(&t->bytes, column.data, column.size);
    t->count++;
    *id = w->footer.info.times_count++;
    times_remember(w, hash, *id);
    return ERR_OK;
}

static enum err times_encode(struct part_writer *w, const int64_t *t_ms, uint32_t count,
                             uint32_t *id, struct errinfo *ei)
{
    struct hash128 hash = hash128_bytes(&w->secret, t_ms, count * sizeof *t_ms);
    const struct part_times_entry *slot = times_slot(w, hash);
    uint8_t *at;
    size_t size;
    enum err e;

    if (slot->used) {
        *id = slot->id;
        return ERR_OK;
    }
    writer_reset(&w->page);
    at = writer_reserve(&w->page, codec_bound(count));
    if (at == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "timestamp column");
    size = codec_times_encode(t_ms, count, w->scratch, at);
    /* times_add() may write a page and reset w->page: the column moves to a buffer of its own. */
    writer_reset(&w->column);
    writer_append(&w->column, at, size);
    if (w->column.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "timestamp column");
    e = times_add(w, (struct bytes){w->column.data, size}, count, t_ms[0], t_ms[count - 1], id, ei);
    if (e == ERR_OK)
        times_remember(w, hash, *id);
    return e;
}

/* ---- data pages and the chunk index ---- */

static enum err push(struct part_writer *w, struct part_array *a, uint32_t v, struct errinfo *ei)
{
    enum err e = part_array_reserve(a, w->store->memory, sizeof v, 1, ei);

    if (e == ERR_OK)
        ((uint32_t *)a->data)[a->count++] = v;
    return e;
}

static enum err data_page_end(struct part_writer *w, struct errinfo *ei)
{
    struct part_output *o = &w->outputs[PART_FILE_CHUNKS];
    uint32_t crc;
    enum err e;

    if (w->data_chunks == 0)
        return ERR_OK;
    if (w->data.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "page of chunks");
    crc = part_page_crc(w->data.data, w->data.size, w->footer.info.id, o->size);
    if ((e = push(w, &w->group.page_chunks, w->data_chunks, ei)) != ERR_OK ||
        (e = part_output_append(o, w->data.data, w->data.size, ei)) != ERR_OK ||
        (e = part_output_append(o, &crc, sizeof crc, ei)) != ERR_OK)
        return e;
    w->data_chunks = 0;
    writer_reset(&w->data);
    return ERR_OK;
}

static void ints_of(struct part_writer *w, const struct part_array *a)
{
    part_ints_put(&w->page, w->scratch, a->data, a->count);
}

/*
 *   | series varint | chunks varint | data pages varint | layouts varint |
 *   | offset of the first data page, le64 | layouts: column count u8, kinds u8 ... |
 *   | chunks of each series | chunks of each data page | layout of each chunk, if there are several
 * | | timestamp column of each chunk | sizes of each chunk's columns |          (all packed)
 */
enum err part_group_end(struct part_writer *w, struct errinfo *ei)
{
    struct part_group *g = &w->group;
    enum err e;

    if (g->series_count == 0)
        return ERR_OK;
    e = data_page_end(w, ei);
    if (e != ERR_OK)
        return e;
    writer_reset(&w->page);
    writer_varint(&w->page, g->series_count);
    writer_varint(&w->page, g->times.count);
    writer_varint(&w->page, g->page_chunks.count);
    writer_varint(&w->page, g->layout_count);
    writer_le64(&w->page, g->first_offset);
    writer_append(&w->page, g->layout_bytes.data, g->layout_bytes.size);
    part_ints_put(&w->page, w->scratch, g->chunk_counts, g->series_count);
    ints_of(w, &g->page_chunks);
    if (g->layout_count > 1)
        ints_of(w, &g->layouts);
    ints_of(w, &g->times);
    ints_of(w, &g->sizes);
    if (g->layout_bytes.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "chunk index");
    e = part_writer_page(w, PART_SECTION_CHUNKS, w->footer.info.series_count - g->series_count,
                         &w->page, ei);
    g->times.count = g->layouts.count = g->sizes.count = g->page_chunks.count = 0;
    g->series_count = g->layout_count = 0;
    writer_reset(&g->layout_bytes);
    return e;
}

void part_group_done(struct part_writer *w)
{
    part_array_done(&w->group.times, w->store->memory);
    part_array_done(&w->group.layouts, w->store->memory);
    part_array_done(&w->group.sizes, w->store->memory);
    part_array_done(&w->group.page_chunks, w->store->memory);
    writer_done(&w->group.layout_bytes);
    writer_done(&w->column);
}

enum err part_chunks_end(struct part_writer *w, struct errinfo *ei)
{
    enum err e = part_group_end(w, ei);

    return e == ERR_OK ? times_page_end(w, ei) : e;
}

/* The group's number for a chunk's list of column kinds. There are at most 256 kinds and four
 * columns, in practice one or two lists. */
static uint32_t layout_number(struct part_group *g, uint32_t column_count, const uint8_t *kinds)
{
    size_t at = 0;
    uint32_t n;

    for (n = 0; n < g->layout_count; n++) {
        const uint8_t *l = g->layout_bytes.data + at;

        if (l[0] == column_count && memcmp(l + 1, kinds, column_count) == 0)
            return n;
        at += 1 + (size_t)l[0];
    }
    writer_u8(&g->layout_bytes, (uint8_t)column_count);
    writer_append(&g->layout_bytes, kinds, column_count);
    if (!g->layout_bytes.failed)
        g->layout_count++;
    return n;
}

/* Makes room for a chunk of up to `size` bytes in the data page. */
static enum err data_reserve(struct part_writer *w, size_t size, uint8_t **out, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (w->data.size >= PART_PAGE_TARGET_BYTES)
        e = data_page_end(w, ei);
    if (e != ERR_OK)
        return e;
    if (w->group.times.count == 0)
        w->group.first_offset = w->outputs[PART_FILE_CHUNKS].size;
    *out = writer_reserve(&w->data, size);
    return *out == NULL ? errinfo_set(ei, ERR_NOMEM, 0, "page of chunks") : ERR_OK;
}

/* Enters a chunk whose bytes stand at the end of the data page, not yet counted. */
static enum err chunk_enter(struct part_writer *w, const struct part_chunk_raw *c, uint32_t times,
                            struct errinfo *ei)
{
    struct part_group *g = &w->group;
    struct part_info *info = &w->footer.info;
    enum err e;

    if ((e = push(w, &g->layouts, layout_number(g, c->column_count, c->column_kind), ei)) !=
            ERR_OK ||
        (e = push(w, &g->times, times, ei)) != ERR_OK)
        return e;
    for (uint32_t i = 0; i < c->column_count; i++) {
        e = push(w, &g->sizes, c->column_size[i], ei);
        if (e != ERR_OK)
            return e;
        w->data.size += c->column_size[i];
    }
    g->chunk_counts[g->series_count - 1]++;
    w->data_chunks++;
    info->chunk_count++;
    info->sample_count += c->sample_count;
    info->has_histograms |= memchr(c->column_kind, PART_COLUMN_HISTOGRAMS, c->column_count) != NULL;
    if (c->min_time_ms < info->min_time_ms)
        info->min_time_ms = c->min_time_ms;
    if (c->max_time_ms > info->max_time_ms)
        info->max_time_ms = c->max_time_ms;
    w->newest_ms = c->max_time_ms;
    return ERR_OK;
}

/* What every chunk goes through first: it belongs to a series and follows its chunks in time. */
static enum err chunk_begin(struct part_writer *w, int64_t min_time_ms, int64_t max_time_ms,
                            size_t count, struct errinfo *ei)
{
    bool first = w->has_pending;
    enum err e;

    ASSERT(!w->finished && (w->has_pending || w->has_series));
    if (count == 0 || count > CODEC_SAMPLES_MAX || min_time_ms > max_time_ms ||
        (uint64_t)max_time_ms - (uint64_t)min_time_ms < count - 1 ||
        (!first && min_time_ms <= w->newest_ms))
        return errinfo_set(ei, ERR_INVALID, 0,
                           "%s: chunk of %zu samples from %" PRId64 " to %" PRId64
                           " does not follow the one before",
                           w->names[PART_FILE_INDEX][1], count, min_time_ms, max_time_ms);
    e = times_table_grow(w, ei);
    if (e == ERR_OK && first)
        e = part_writer_series_commit(w, ei);
    return e;
}

/* A failure midway leaves buffers that must not be written. ERR_INVALID comes before any change. */
static enum err note(struct part_writer *w, enum err e)
{
    if (e != ERR_OK && e != ERR_INVALID)
        w->failed = true;
    return e;
}

static bool times_ascend(const int64_t *t_ms, size_t count)
{
    bool ascend = true;

    for (size_t i = 1; i < count; i++)
        ascend &= t_ms[i - 1] < t_ms[i];
    return ascend;
}

static enum err samples_add(struct part_writer *w, const int64_t *t_ms, const double *value,
                            uint32_t count, struct errinfo *ei)
{
    struct part_chunk_raw c = {.sample_count = count,
                               .min_time_ms = t_ms[0],
                               .max_time_ms = t_ms[count - 1],
                               .column_count = 1,
                               .column_kind = {PART_COLUMN_VALUES}};
    uint32_t times = 0;
    uint8_t *at = NULL;
    enum err e;

    if ((e = chunk_begin(w, c.min_time_ms, c.max_time_ms, count, ei)) != ERR_OK ||
        (e = times_encode(w, t_ms, count, &times, ei)) != ERR_OK ||
        (e = data_reserve(w, codec_bound(count), &at, ei)) != ERR_OK)
        return e;
    c.column_size[0] = (uint32_t)codec_values_encode(value, count, w->scratch, at);
    return chunk_enter(w, &c, times, ei);
}

enum err part_writer_samples(struct part_writer *w, const int64_t *t_ms, const double *value,
                             size_t count, struct errinfo *ei)
{
    if (count == 0 || count > CODEC_SAMPLES_MAX || !times_ascend(t_ms, count))
        return errinfo_set(ei, ERR_INVALID, 0, "%s: chunk of %zu samples, or times do not ascend",
                           w->names[PART_FILE_INDEX][1], count);
    return note(w, samples_add(w, t_ms, value, (uint32_t)count, ei));
}

/* `h`, or a copy whose first hint says nothing of a sample before it. */
static const struct histogram *first_at_border(struct part_writer *w, const struct histogram *h,
                                               size_t count)
{
    struct histogram *copy;

    if (histogram_hint_at_border(h->hint) == h->hint)
        return h;
    copy = ARENA_ARRAY(&w->temp, count, struct histogram);
    if (copy == NULL)
        return NULL;
    memcpy(copy, h, count * sizeof *copy);
    copy->hint = histogram_hint_at_border(h->hint);
    return copy;
}

static enum err histograms_encode(struct part_writer *w, const struct histogram *h, size_t count,
                                  bool is_first, struct errinfo *ei)
{
    const struct histogram *given = is_first ? first_at_border(w, h, count) : h;
    enum err e;

    writer_reset(&w->column);
    e = given == NULL ? arena_error(&w->temp, ei)
                      : codec_histograms_encode(given, count, w->scratch, &w->temp, &w->column);
    arena_reset(&w->temp);
    if (e != ERR_OK)
        return errinfo_set(ei, e, 0, "%s: a column of histograms", w->names[PART_FILE_INDEX][1]);
    return ERR_OK;
}

static enum err histograms_add(struct part_writer *w, const int64_t *t_ms,
                               const struct histogram *h, uint32_t count, struct errinfo *ei)
{
    struct part_chunk_raw c = {.sample_count = count,
                               .min_time_ms = t_ms[0],
                               .max_time_ms = t_ms[count - 1],
                               .column_count = 1,
                               .column_kind = {PART_COLUMN_HISTOGRAMS}};
    bool is_first = w->has_pending;
    uint32_t times = 0;
    uint8_t *at = NULL;
    enum err e;

    if ((e = chunk_begin(w, c.min_time_ms, c.max_time_ms, count, ei)) != ERR_OK ||
        (e = times_encode(w, t_ms, count, &times, ei)) != ERR_OK ||
        (e = histograms_encode(w, h, count, is_first, ei)) != ERR_OK)
        return e;
    if (w->column.size > PART_COLUMN_SIZE_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: a column of %zu bytes",
                           w->names[PART_FILE_INDEX][1], w->column.size);
    e = data_reserve(w, w->column.size, &at, ei);
    if (e != ERR_OK)
        return e;
    memcpy(at, w->column.data, w->column.size);
    c.column_size[0] = (uint32_t)w->column.size;
    return chunk_enter(w, &c, times, ei);
}

enum err part_writer_histograms(struct part_writer *w, const int64_t *t_ms,
                                const struct histogram *h, size_t count, struct errinfo *ei)
{
    if (count == 0 || count > CODEC_SAMPLES_MAX || !times_ascend(t_ms, count))
        return errinfo_set(ei, ERR_INVALID, 0,
                           "%s: chunk of %zu histograms, or times do not ascend",
                           w->names[PART_FILE_INDEX][1], count);
    for (size_t i = 0; i < count; i++) {
        enum err e = histogram_check_layout(&h[i], ei);

        if (e != ERR_OK)
            return e;
    }
    return note(w, histograms_add(w, t_ms, h, (uint32_t)count, ei));
}

static bool columns_fit(const struct part_chunk_raw *c)
{
    uint64_t size = 0;

    if (c->column_count == 0 || c->column_count > PART_CHUNK_COLUMNS_MAX || c->times.size == 0 ||
        c->times.size > UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < c->column_count; i++)
        size += c->column_size[i];
    return size == c->columns.size && size > 0 && size < UINT32_MAX / 2;
}

static enum err chunk_add(struct part_writer *w, const struct part_chunk_raw *c, struct errinfo *ei)
{
    uint32_t times = 0;
    uint8_t *at = NULL;
    enum err e;

    if ((e = chunk_begin(w, c->min_time_ms, c->max_time_ms, c->sample_count, ei)) != ERR_OK ||
        (e = times_add(w, c->times, c->sample_count, c->min_time_ms, c->max_time_ms, &times, ei)) !=
            ERR_OK ||
        (e = data_reserve(w, c->columns.size, &at, ei)) != ERR_OK)
        return e;
    memcpy(at, c->columns.data, c->columns.size);
    return chunk_enter(w, c, times, ei);
}

enum err part_writer_chunk(struct part_writer *w, const struct part_chunk_raw *chunk,
                           struct errinfo *ei)
{
    if (!columns_fit(chunk))
        return errinfo_set(ei, ERR_INVALID, 0, "%s: sizes of a chunk's columns do not fit",
                           w->names[PART_FILE_INDEX][1]);
    return note(w, chunk_add(w, chunk, ei));
}
