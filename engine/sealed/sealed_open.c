/*
 * Opening sealed and late files: by the footer, or by walking the slices and deciding which of them
 * count. What was synced is the only copy there is, so damage there costs its slice alone; what was
 * not is still in the log, so the first doubt ends the file.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/sealed/sealed_format_internal.h"

enum { SEARCH_WINDOW_BYTES = 1 << 20 };

void sealed_file_close(struct sealed_file *f)
{
    if (f == NULL)
        return;
    if (f->cache != NULL) {
        page_cache_drop_file(f->cache, f->directories_id);
        page_cache_drop_file(f->cache, f->pages_id);
    }
    file_close(f->file);
    free(f);
}

void sealed_file_use_cache(struct sealed_file *f, struct page_cache *cache, uint64_t id)
{
    f->cache = cache;
    f->directories_id = id;
    f->pages_id = id + 1;
}

enum err sealed_corrupt(const struct sealed_file *f, uint64_t offset, const char *what,
                        struct errinfo *ei)
{
    return errinfo_set_at(ei, ERR_CORRUPT, sealed_file_path(f), offset, "%s", what);
}

enum err sealed_slice_usable(const struct sealed_file *f, const struct sealed_slice *slice,
                             struct errinfo *ei)
{
    return slice->is_damaged ? sealed_corrupt(f, slice->offset, "the slice is damaged", ei)
                             : ERR_OK;
}

bool sealed_is_intact(const struct sealed_file *f, uint64_t offset, const uint8_t *data,
                      size_t size)
{
    uint32_t crc;

    memcpy(&crc, data + size, sizeof crc);
    return crc == sealed_crc(f->identity.epoch, offset, data, size);
}

const char *sealed_file_path(const struct sealed_file *f)
{
    return file_path(f->file);
}

const struct sealed_identity *sealed_file_identity(const struct sealed_file *f)
{
    return &f->identity;
}

void sealed_opened_done(struct sealed_opened *o)
{
    for (size_t i = 0; i < o->slice_count; i++)
        free(o->slices[i]);
    free((void *)o->slices);
    sealed_file_close(o->file);
    *o = (struct sealed_opened){0};
}

/* An opening under way. */
struct scan {
    struct sealed_opened *opened;
    struct file *file;
    uint64_t epoch, size, durable_size;
    size_t capacity;
    uint32_t next_index; /* the least the next slice may have */
    struct errinfo *ei;
};

static enum err slices_add(struct scan *s, struct sealed_slice *slice)
{
    struct sealed_opened *o = s->opened;

    if (o->slice_count == s->capacity) {
        size_t capacity = s->capacity == 0 ? 64 : s->capacity * 2;
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
        struct sealed_slice **slices = reallocarray((void *)o->slices, capacity, sizeof *slices);

        if (slices == NULL) {
            free(slice);
            return errinfo_set(s->ei, ERR_NOMEM, 0, "%zu slices of %s", capacity,
                               file_path(s->file));
        }
        o->slices = slices;
        s->capacity = capacity;
    }
    o->slices[o->slice_count++] = slice;
    o->end = slice->offset + slice->size;
    o->damaged_count += slice->is_damaged;
    return ERR_OK;
}

static enum err damaged_add(struct scan *s, uint64_t offset, uint64_t end)
{
    struct sealed_slice *slice = calloc(1, sizeof *slice);

    if (slice == NULL)
        return errinfo_set(s->ei, ERR_NOMEM, 0, "slice of %s", file_path(s->file));
    slice->offset = offset;
    slice->size = end - offset;
    slice->index = s->next_index;
    slice->min_time_ms = INT64_MIN; /* it may hold anything */
    slice->max_time_ms = INT64_MAX;
    slice->is_damaged = true;
    return slices_add(s, slice);
}

/* ---- by the footer ---- */

/* One record: ERR_CORRUPT without a story when it makes no sense. */
static enum err record_read(struct scan *s, struct byte_reader *r, uint64_t footer_offset)
{
    uint64_t offset = reader_le64(r);
    const uint8_t *header = reader_take(r, SEALED_SLICE_HEADER_SIZE), *table;
    struct sealed_slice_header h;
    struct sealed_slice *slice;
    enum err e;

    if (header == NULL || !sealed_slice_header_decode(header, &h) || h.epoch != s->epoch ||
        h.index < s->next_index || offset != s->opened->end || h.size > footer_offset - offset)
        return ERR_CORRUPT;
    table = reader_take(r, h.table_size);
    if (table == NULL)
        return ERR_CORRUPT;
    e = sealed_table_decode(&h, offset, table, h.table_size - SEALED_CRC_SIZE, &slice);
    if (e != ERR_OK)
        return e;
    s->next_index = h.index + 1;
    return slices_add(s, slice);
}

static enum err footer_parse(struct scan *s, const uint8_t *data, size_t size, uint64_t offset)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *magic = reader_take(&r, SEALED_MAGIC_SIZE);
    uint32_t count = reader_le32(&r);
    enum err e = ERR_OK;

    if (memcmp(magic, sealed_footer_magic, SEALED_MAGIC_SIZE) != 0)
        return ERR_CORRUPT;
    for (uint32_t i = 0; i < count && e == ERR_OK; i++)
        e = record_read(s, &r, offset);
    if (e == ERR_OK && (reader_left(&r) != 0 || s->opened->end != offset))
        e = ERR_CORRUPT;
    return e;
}

static void slices_forget(struct scan *s)
{
    for (size_t i = 0; i < s->opened->slice_count; i++)
        free(s->opened->slices[i]);
    s->opened->slice_count = 0;
    s->opened->damaged_count = 0;
    s->opened->end = SEALED_HEADER_SIZE;
    s->next_index = 0;
}

/* ERR_CORRUPT without a story: there is no good footer. */
static enum err footer_open(struct scan *s)
{
    uint8_t bytes[SEALED_TRAILER_SIZE], *data;
    struct sealed_trailer t;
    uint64_t offset;
    enum err e;

    if (s->size < SEALED_HEADER_SIZE + SEALED_FOOTER_HEAD_SIZE + SEALED_TRAILER_SIZE)
        return ERR_CORRUPT;
    e = file_read(s->file, bytes, sizeof bytes, s->size - sizeof bytes, s->ei);
    if (e != ERR_OK)
        return e;
    if (!sealed_trailer_decode(bytes, &t) || t.epoch != s->epoch ||
        t.footer_size > s->size - SEALED_HEADER_SIZE - SEALED_TRAILER_SIZE)
        return ERR_CORRUPT;
    offset = s->size - SEALED_TRAILER_SIZE - t.footer_size;
    data = malloc(t.footer_size);
    if (data == NULL)
        return errinfo_set(s->ei, ERR_NOMEM, 0, "footer of %s", file_path(s->file));
    e = file_read(s->file, data, t.footer_size, offset, s->ei);
    if (e == ERR_OK && sealed_crc(s->epoch, offset, data, t.footer_size) != t.footer_crc)
        e = ERR_CORRUPT;
    if (e == ERR_OK)
        e = footer_parse(s, data, t.footer_size, offset);
    free(data);
    return e;
}

/* ---- by walking ---- */

static bool header_fits(const struct scan *s, const uint8_t *bytes, uint64_t offset,
                        struct sealed_slice_header *h)
{
    return sealed_slice_header_decode(bytes, h) && h->epoch == s->epoch &&
           h->index >= s->next_index && h->size <= s->size - offset;
}

/* The slice whose header stands at `offset`: its table, and with `whole` every byte, is verified.
 * ERR_CORRUPT without a story when it is bad. */
static enum err slice_read(struct scan *s, const struct sealed_slice_header *h, uint64_t offset,
                           bool whole, struct sealed_slice **out)
{
    uint64_t begin = whole ? offset + SEALED_SLICE_HEADER_SIZE : offset + h->size - h->table_size;
    size_t size = (size_t)(offset + h->size - begin), table_at = size - h->table_size;
    uint8_t *data = malloc(size);
    uint32_t crc;
    enum err e;

    if (data == NULL)
        return errinfo_set(s->ei, ERR_NOMEM, 0, "slice of %s", file_path(s->file));
    e = file_read(s->file, data, size, begin, s->ei);
    if (e == ERR_OK && whole && sealed_crc(s->epoch, offset, data, size) != h->payload_crc)
        e = ERR_CORRUPT;
    if (e == ERR_OK) {
        memcpy(&crc, data + size - SEALED_CRC_SIZE, sizeof crc);
        if (crc != sealed_crc(s->epoch, begin + table_at, data + table_at,
                              h->table_size - SEALED_CRC_SIZE))
            e = ERR_CORRUPT;
    }
    if (e == ERR_OK)
        e = sealed_table_decode(h, offset, data + table_at, h->table_size - SEALED_CRC_SIZE, out);
    free(data);
    return e;
}

/* Where the next valid slice header stands behind `offset`, or `limit`. */
static enum err slice_search(struct scan *s, uint64_t offset, uint64_t limit, uint64_t *out)
{
    uint8_t *window = malloc(SEARCH_WINDOW_BYTES);
    uint64_t pos = offset + 1;
    enum err e = ERR_OK;

    if (window == NULL)
        return errinfo_set(s->ei, ERR_NOMEM, 0, "search in %s", file_path(s->file));
    *out = limit;
    while (pos < limit && pos < s->size && s->size - pos >= SEALED_SLICE_HEADER_SIZE) {
        size_t size = 0, at = 0;
        bool found = false;

        e = file_read_some(s->file, window, SEARCH_WINDOW_BYTES, pos, &size, s->ei);
        if (e != ERR_OK || size < SEALED_SLICE_HEADER_SIZE)
            break;
        while (at + SEALED_SLICE_HEADER_SIZE <= size && !found) {
            const uint8_t *hit =
                memmem(window + at, size - at, sealed_slice_magic, SEALED_MAGIC_SIZE);
            struct sealed_slice_header h;

            at = hit != NULL ? (size_t)(hit - window) : size;
            found =
                at + SEALED_SLICE_HEADER_SIZE <= size && header_fits(s, window + at, pos + at, &h);
            at += !found;
        }
        if (found) {
            if (pos + at < limit)
                *out = pos + at;
            break;
        }
        /* A header may straddle two windows. */
        pos += size - SEALED_SLICE_HEADER_SIZE + 1;
    }
    free(window);
    return e;
}

/* One step of the walk from the end of what was found; *more is false where the file ends. */
static enum err walk_step(struct scan *s, bool *more)
{
    uint64_t offset = s->opened->end, next = 0;
    bool durable = offset < s->durable_size;
    uint8_t bytes[SEALED_SLICE_HEADER_SIZE];
    struct sealed_slice_header h;
    struct sealed_slice *slice = NULL;
    size_t size = 0;
    enum err e;

    e = file_read_some(s->file, bytes, sizeof bytes, offset, &size, s->ei);
    if (e != ERR_OK)
        return e;
    if (size == sizeof bytes && header_fits(s, bytes, offset, &h)) {
        bool whole = offset + h.size > s->durable_size;

        e = slice_read(s, &h, offset, whole, &slice);
        ASSERT(e != ERR_OK || slice != NULL);
        if (e == ERR_OK || (e == ERR_CORRUPT && !whole)) {
            enum err added =
                e == ERR_OK ? slices_add(s, slice) : damaged_add(s, offset, offset + h.size);

            s->next_index = h.index + 1;
            return added;
        }
        if (e != ERR_CORRUPT)
            return e;
    }
    *more = false;
    if (!durable)
        return ERR_OK;
    /* A file that was finished ends with a footer, here a bad one: no samples are lost with it. */
    if (size >= SEALED_MAGIC_SIZE && memcmp(bytes, sealed_footer_magic, SEALED_MAGIC_SIZE) == 0)
        return ERR_OK;
    e = slice_search(s, offset, s->durable_size, &next);
    if (e != ERR_OK)
        return e;
    *more = next < s->durable_size;
    return damaged_add(s, offset, next);
}

static enum err walk(struct scan *s)
{
    bool more = true;
    enum err e = ERR_OK;

    while (e == ERR_OK && more)
        e = walk_step(s, &more);
    return e;
}

/* ---- both ---- */

static enum err header_read(struct sealed_file *f, const struct sealed_identity *expected,
                            struct errinfo *ei)
{
    uint8_t bytes[SEALED_HEADER_SIZE];
    const struct sealed_identity *id = &f->identity;
    const char *path = file_path(f->file);
    size_t size = 0;
    enum err e = file_read_some(f->file, bytes, sizeof bytes, 0, &size, ei);

    if (e == ERR_OK)
        e = sealed_header_decode(bytes, size, path, &f->identity, ei);
    if (e != ERR_OK)
        return e;
    if (id->kind != expected->kind || id->shard != expected->shard ||
        id->shard_count != expected->shard_count || id->number != expected->number ||
        id->secret_id != expected->secret_id)
        return errinfo_set_at(ei, ERR_CORRUPT, path, 0,
                              "the header is of file %" PRIu64 ", kind %d, shard %" PRIu32
                              " of %" PRIu32,
                              id->number, (int)id->kind, id->shard, id->shard_count);
    return ERR_OK;
}

static enum err slices_open(struct scan *s)
{
    enum err e = footer_open(s);

    if (e == ERR_OK) {
        s->opened->is_finished = true;
        s->opened->end = s->size;
        return ERR_OK;
    }
    if (e != ERR_CORRUPT || (s->ei != NULL && s->ei->code != ERR_OK))
        return e;
    slices_forget(s);
    e = walk(s);
    s->opened->torn_bytes = s->size > s->opened->end ? s->size - s->opened->end : 0;
    return e;
}

enum err sealed_open(struct fs *fs, const char *path, const struct sealed_identity *expected,
                     uint64_t durable_size, struct sealed_opened *out, struct errinfo *ei)
{
    struct sealed_file *f = calloc(1, sizeof *f);
    struct sealed_opened opened = {
        .file = f, .end = SEALED_HEADER_SIZE, .durable_size = durable_size};
    struct scan s = {.opened = &opened, .durable_size = durable_size, .ei = ei};
    enum err e;

    if (f == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", path);
    f->fs = fs;
    e = file_open(fs, path, FILE_READ, &f->file, ei);
    if (e != ERR_OK) {
        free(f);
        return e;
    }
    s.file = f->file;
    e = file_size(f->file, &s.size, ei);
    if (e == ERR_OK)
        e = header_read(f, expected, ei);
    if (e == ERR_OK) {
        s.epoch = f->identity.epoch;
        e = slices_open(&s);
    }
    if (e != ERR_OK) {
        sealed_opened_done(&opened);
        return e;
    }
    *out = opened;
    return ERR_OK;
}

/* ---- making durable ---- */

/* Writes bytes [begin, end) over themselves, so that the kernel has them to write. */
static enum err rewrite(struct file *file, uint64_t begin, uint64_t end, struct errinfo *ei)
{
    uint8_t *data = malloc(SEARCH_WINDOW_BYTES);
    enum err e = ERR_OK;

    if (data == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "rewrite of %s", file_path(file));
    while (begin < end && e == ERR_OK) {
        struct iovec iov = {data, SEARCH_WINDOW_BYTES};

        if (iov.iov_len > end - begin)
            iov.iov_len = (size_t)(end - begin);
        e = file_read(file, data, iov.iov_len, begin, ei);
        if (e == ERR_OK)
            e = file_write(file, &iov, 1, begin, ei);
        begin += iov.iov_len;
    }
    free(data);
    return e;
}

enum err sealed_opened_persist(struct fs *fs, struct sealed_opened *o, struct errinfo *ei)
{
    struct file *file = NULL;
    uint64_t size;
    enum err e;

    /* The reader's descriptor may not write. */
    e = file_open(fs, file_path(o->file->file), FILE_READ_WRITE, &file, ei);
    if (e == ERR_OK)
        e = file_size(file, &size, ei);
    /* A file that ends before what was durable has lost something; that stays as it is. */
    if (e == ERR_OK && size > o->end)
        e = file_truncate(file, o->end, ei);
    if (e == ERR_OK && size >= o->end)
        e = rewrite(file, o->durable_size, o->end, ei);
    if (e == ERR_OK)
        e = file_sync(file, ei);
    if (e != ERR_OK) {
        file_close(file);
        return e;
    }
    file_close(o->file->file);
    o->file->file = file;
    o->torn_bytes = 0;
    if (o->durable_size < o->end)
        o->durable_size = o->end;
    return ERR_OK;
}
