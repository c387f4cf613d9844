/*
 * The file "usage": docs/formats/usage.md.
 *
 *   0       8         12     16    20      24         28      32        36     40          44
 *   | magic | version | must | may | since | complete | names | queries | body | crc [0,40) |
 *   | names | queries | crc of both, 4 bytes |
 */
#include <inttypes.h>
#include <string.h>

#include "api/usage/usage_internal.h"
#include "base/checksum.h"

enum { HEADER_SIZE = 44, VERSION = 1, FILE_SIZE_MAX = 256 << 20 };

static const char magic[8] = {'R', 'I', 'M', 'U', 'S', 'A', 'G', 'E'};
static const char temp_path[] = USAGE_PATH ".tmp";

/* ---- writing ---- */

static void name_write(struct byte_writer *w, const struct usage_name *n)
{
    uint32_t kinds = 0;

    writer_str(w, n->name);
    for (uint32_t k = 0; k < USAGE_KIND_COUNT; k++)
        kinds |= (uint32_t)(n->count[k] > 0) << k;
    writer_varint(w, kinds);
    for (uint32_t k = 0; k < USAGE_KIND_COUNT; k++) {
        if (n->count[k] == 0)
            continue;
        writer_varint(w, n->count[k]);
        writer_varint(w, n->last_s[k]);
    }
}

static void query_write(struct byte_writer *w, const struct usage_query *q)
{
    writer_str(w, q->text);
    writer_varint(w, (uint64_t)q->is_selector | (uint64_t)q->kind << 1);
    writer_varint(w, q->count);
    writer_varint(w, q->last_s);
}

enum err usage_file_encode(const struct usage_file *f, struct byte_writer *w, struct errinfo *ei)
{
    struct byte_writer body;

    writer_init(&body);
    for (size_t i = 0; i < f->name_count; i++)
        name_write(&body, &f->names[i]);
    for (size_t i = 0; i < f->query_count; i++)
        query_write(&body, &f->queries[i]);
    writer_append(w, magic, sizeof magic);
    writer_le32(w, VERSION);
    writer_le32(w, 0); /* must understand */
    writer_le32(w, 0); /* may ignore */
    writer_le32(w, f->since_s);
    writer_le32(w, f->complete_since_s);
    writer_le32(w, (uint32_t)f->name_count);
    writer_le32(w, (uint32_t)f->query_count);
    writer_le32(w, (uint32_t)body.size);
    if (!w->failed)
        writer_le32(w, crc32c(w->data, w->size));
    writer_append(w, body.data, body.size);
    writer_le32(w, crc32c(body.data, body.size));
    body.failed |= w->failed || body.size > FILE_SIZE_MAX;
    bool failed = body.failed;
    writer_done(&body);
    return failed ? errinfo_set(ei, ERR_NOMEM, 0, "%s", USAGE_PATH) : ERR_OK;
}

/* ---- reading ---- */

struct header {
    uint32_t since_s, complete_since_s, name_count, query_count, body_size;
};

static enum err damaged(struct errinfo *ei, uint64_t offset, const char *what)
{
    return errinfo_set_at(ei, ERR_CORRUPT, USAGE_PATH, offset, "%s", what);
}

static enum err header_read(const uint8_t *data, size_t size, struct header *out,
                            struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *start = reader_take(&r, sizeof magic);
    uint32_t version, must;

    if (start == NULL || memcmp(start, magic, sizeof magic) != 0)
        return damaged(ei, 0, "magic");
    version = reader_le32(&r);
    must = reader_le32(&r);
    (void)reader_le32(&r);
    out->since_s = reader_le32(&r);
    out->complete_since_s = reader_le32(&r);
    out->name_count = reader_le32(&r);
    out->query_count = reader_le32(&r);
    out->body_size = reader_le32(&r);
    uint32_t crc = reader_le32(&r);
    if (r.failed)
        return damaged(ei, size, "it ends within the header");
    if (crc != crc32c(data, HEADER_SIZE - sizeof crc))
        return damaged(ei, HEADER_SIZE - sizeof crc, "checksum of the header");
    if (version > VERSION || must != 0)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "%s is of a newer version", USAGE_PATH);
    return ERR_OK;
}

static struct str text_read(struct byte_reader *r, size_t max)
{
    uint64_t size = reader_varint(r);
    struct str text = {"", 0};

    if (size > max) {
        r->failed = true;
        return text;
    }
    text.data = (const char *)reader_take(r, (size_t)size);
    text.size = text.data == NULL ? 0 : (size_t)size;
    return text;
}

static uint32_t number_read(struct byte_reader *r)
{
    uint64_t n = reader_varint(r);

    r->failed |= n > UINT32_MAX;
    return (uint32_t)n;
}

static void name_read(struct byte_reader *r, struct usage_name *out)
{
    uint32_t kinds;

    *out = (struct usage_name){.name = text_read(r, USAGE_NAME_MAX)};
    kinds = number_read(r);
    /* Kinds of a later program are read over. */
    for (uint32_t k = 0; k < 32 && !r->failed; k++) {
        uint32_t count, last;

        if ((kinds >> k & 1) == 0)
            continue;
        count = number_read(r);
        last = number_read(r);
        if (k >= USAGE_KIND_COUNT)
            continue;
        out->count[k] = count;
        out->last_s[k] = last;
        if (last > out->newest_s)
            out->newest_s = last;
    }
}

static void query_read(struct byte_reader *r, struct usage_query *out)
{
    uint32_t how;

    *out = (struct usage_query){.text = text_read(r, USAGE_TEXT_MAX)};
    how = number_read(r);
    out->is_selector = how & 1;
    out->kind = how >> 1 < USAGE_KIND_COUNT ? (enum usage_kind)(how >> 1) : USAGE_QUERY;
    out->count = number_read(r);
    out->last_s = number_read(r);
}

static enum err body_read(struct byte_reader *r, struct usage_file *f, struct errinfo *ei)
{
    for (size_t i = 0; i < f->name_count && !r->failed; i++) {
        name_read(r, &f->names[i]);
        r->failed |= f->names[i].name.size == 0;
    }
    for (size_t i = 0; i < f->query_count && !r->failed; i++)
        query_read(r, &f->queries[i]);
    if (r->failed || reader_left(r) > 0)
        return damaged(ei, HEADER_SIZE, "names or queries");
    return ERR_OK;
}

enum err usage_file_decode(const uint8_t *data, size_t size, struct arena *arena,
                           struct usage_file *out, struct errinfo *ei)
{
    struct usage_file f = {0};
    struct header h = {0};
    struct byte_reader r;
    const uint8_t *body;
    uint32_t crc;
    enum err e = header_read(data, size, &h, ei);

    if (e != ERR_OK)
        return e;
    r = reader_init(data + HEADER_SIZE, size - HEADER_SIZE);
    body = reader_take(&r, h.body_size);
    crc = reader_le32(&r);
    if (r.failed || reader_left(&r) > 0)
        return damaged(ei, size, "its size");
    if (crc != crc32c(body, h.body_size))
        return damaged(ei, size - sizeof crc, "checksum of the body");
    /* A name takes two bytes at least, a query four: counts are bounded by what is there. */
    if (h.name_count > h.body_size / 2 || h.query_count > h.body_size / 4)
        return damaged(ei, 28, "counts");
    f.since_s = h.since_s;
    f.complete_since_s = h.complete_since_s;
    f.name_count = h.name_count;
    f.query_count = h.query_count;
    f.names = ARENA_ARRAY(arena, f.name_count, struct usage_name);
    f.queries = ARENA_ARRAY(arena, f.query_count, struct usage_query);
    if (f.names == NULL || f.queries == NULL)
        return arena_error(arena, ei);
    r = reader_init(body, h.body_size);
    e = body_read(&r, &f, ei);
    if (e == ERR_OK)
        *out = f;
    return e;
}

/* ---- the disk ---- */

enum err usage_file_read(struct fs *fs, struct arena *arena, struct bytes *out, struct errinfo *ei)
{
    struct file *f = NULL;
    uint64_t size = 0;
    uint8_t *data = NULL;
    bool exists = false;
    enum err e = fs_exists(fs, USAGE_PATH, &exists, ei);

    if (e == ERR_OK && !exists)
        return ERR_NOT_FOUND;
    if (e == ERR_OK)
        e = file_open(fs, USAGE_PATH, FILE_READ, &f, ei);
    if (e == ERR_OK)
        e = file_size(f, &size, ei);
    if (e == ERR_OK && size > FILE_SIZE_MAX)
        e = errinfo_set_at(ei, ERR_CORRUPT, USAGE_PATH, FILE_SIZE_MAX, "%" PRIu64 " bytes", size);
    if (e == ERR_OK) {
        data = arena_alloc(arena, (size_t)size);
        e = data == NULL ? arena_error(arena, ei) : file_read(f, data, (size_t)size, 0, ei);
    }
    file_close(f);
    if (e == ERR_OK)
        *out = (struct bytes){data, (size_t)size};
    return e;
}

enum err usage_file_write(struct fs *fs, const struct usage_file *f, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e;

    writer_init(&w);
    e = usage_file_encode(f, &w, ei);
    if (e == ERR_OK)
        e = fs_replace(fs, temp_path, USAGE_PATH, w.data, w.size, ei);
    writer_done(&w);
    return e;
}
