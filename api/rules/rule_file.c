/*
 * The file "drop_rules": docs/formats/drop-rules.md.
 *
 *   0       8         12     16    20     24         28            32
 *   | magic | version | must | may | size | crc text | crc [0, 28) | text (JSON) ...
 */
#include "api/rules/rule_file_internal.h"

#include <string.h>

#include "base/checksum.h"

enum { HEADER_SIZE = 32, VERSION = 1 };

static const char magic[8] = {'R', 'I', 'M', 'R', 'U', 'L', 'E', 'S'};
static const char temp_path[] = RULE_FILE_PATH ".tmp";

static void header_write(struct byte_writer *w, struct str text)
{
    writer_append(w, magic, sizeof magic);
    writer_le32(w, VERSION);
    writer_le32(w, 0); /* must understand */
    writer_le32(w, 0); /* may ignore */
    writer_le32(w, (uint32_t)text.size);
    writer_le32(w, crc32c(text.data, text.size));
    if (!w->failed)
        writer_le32(w, crc32c(w->data, w->size));
}

enum err rule_file_write(struct fs *fs, struct str text, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e;

    if (text.size > RULE_FILE_TEXT_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "rules of %zu bytes: at most %d are kept", text.size,
                           (int)RULE_FILE_TEXT_MAX);
    writer_init(&w);
    header_write(&w, text);
    writer_append(&w, text.data, text.size);
    e = w.failed ? errinfo_set(ei, ERR_NOMEM, 0, "%s", RULE_FILE_PATH)
                 : fs_replace(fs, temp_path, RULE_FILE_PATH, w.data, w.size, ei);
    writer_done(&w);
    return e;
}

static enum err damaged(struct errinfo *ei, uint64_t offset, const char *what)
{
    return errinfo_set_at(ei, ERR_CORRUPT, RULE_FILE_PATH, offset, "%s", what);
}

static enum err decode(const uint8_t *data, size_t size, struct str *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *start = reader_take(&r, sizeof magic);
    uint32_t version = reader_le32(&r), must = reader_le32(&r);
    uint32_t text_size, text_crc, crc;

    (void)reader_le32(&r); /* may ignore */
    text_size = reader_le32(&r);
    text_crc = reader_le32(&r);
    crc = reader_le32(&r);
    if (start == NULL || memcmp(start, magic, sizeof magic) != 0)
        return damaged(ei, 0, "magic");
    if (r.failed)
        return damaged(ei, size, "it ends within the header");
    if (crc != crc32c(data, HEADER_SIZE - sizeof crc))
        return damaged(ei, HEADER_SIZE - sizeof crc, "checksum of the header");
    if (version > VERSION || must != 0)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "%s is of a newer version", RULE_FILE_PATH);
    if (text_size != reader_left(&r))
        return damaged(ei, size, "another size than its header says");
    if (text_crc != crc32c(r.pos, text_size))
        return damaged(ei, HEADER_SIZE, "checksum of the text");
    *out = (struct str){(const char *)r.pos, text_size};
    return ERR_OK;
}

enum err rule_file_read(struct fs *fs, struct byte_writer *out, struct errinfo *ei)
{
    struct file *file = NULL;
    struct byte_writer w;
    struct str text = {"", 0};
    uint64_t size = 0;
    bool exists = false;
    enum err e = fs_exists(fs, RULE_FILE_PATH, &exists, ei);

    if (e != ERR_OK || !exists)
        return e;
    e = file_open(fs, RULE_FILE_PATH, FILE_READ, &file, ei);
    if (e != ERR_OK)
        return e;
    writer_init(&w);
    e = file_size(file, &size, ei);
    if (e == ERR_OK && size > HEADER_SIZE + RULE_FILE_TEXT_MAX)
        e = damaged(ei, 0, "it is too large");
    if (e == ERR_OK && writer_reserve(&w, (size_t)size + 1) == NULL)
        e = errinfo_set(ei, ERR_NOMEM, 0, "%s", RULE_FILE_PATH);
    if (e == ERR_OK)
        e = file_read(file, w.data, (size_t)size, 0, ei);
    if (e == ERR_OK)
        e = decode(w.data, (size_t)size, &text, ei);
    if (e == ERR_OK) {
        writer_append(out, text.data, text.size);
        if (out->failed)
            e = errinfo_set(ei, ERR_NOMEM, 0, "%s", RULE_FILE_PATH);
    }
    file_close(file);
    writer_done(&w);
    return e;
}

enum err rule_file_set_aside(struct fs *fs, struct errinfo *ei)
{
    return fs_rename(fs, RULE_FILE_PATH, "damaged-" RULE_FILE_PATH, ei);
}
