/*
 * Header of a shard's file, little-endian. docs/formats/sealed.md, docs/formats/series.md
 *
 *   0       8         10     11            12          16         20            24      28
 *   | magic | version | kind | codecs' ver | must bits | may bits | shard count | shard | zero |
 *   32          40      48            56     60
 *   | secret id | epoch | file number | zero | crc of [0, 60) |
 */
#include "engine/sealed/shard_file_header_internal.h"

#include <string.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "engine/codec/fixed_bytes_internal.h"

enum { HEADER_CRC_AT = SHARD_FILE_HEADER_SIZE - 4 };

void shard_file_header_encode(const uint8_t magic[SHARD_FILE_MAGIC_SIZE],
                              const struct shard_file_header *h,
                              uint8_t out[SHARD_FILE_HEADER_SIZE])
{
    memset(out, 0, SHARD_FILE_HEADER_SIZE);
    memcpy(out, magic, SHARD_FILE_MAGIC_SIZE);
    fixed_put(out + 8, h->version, 2);
    fixed_put(out + 10, h->kind, 1);
    fixed_put(out + 11, h->codec_version, 1);
    fixed_put(out + 12, h->must_understand, 4);
    fixed_put(out + 20, h->shard_count, 4);
    fixed_put(out + 24, h->shard, 4);
    fixed_put(out + 32, h->secret_id, 8);
    fixed_put(out + 40, h->epoch, 8);
    fixed_put(out + 48, h->number, 8);
    fixed_put(out + HEADER_CRC_AT, crc32c(out, HEADER_CRC_AT), 4);
}

enum err shard_file_header_decode(const uint8_t *data, size_t size,
                                  const uint8_t magic[SHARD_FILE_MAGIC_SIZE], const char *what,
                                  const char *path, struct shard_file_header *out,
                                  struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *found = reader_take(&r, SHARD_FILE_MAGIC_SIZE);
    struct shard_file_header h;
    uint32_t crc;

    if (found == NULL || memcmp(found, magic, SHARD_FILE_MAGIC_SIZE) != 0)
        return errinfo_set_at(ei, ERR_CORRUPT, path, 0, "not a %s", what);
    h.version = reader_le16(&r);
    h.kind = reader_u8(&r);
    h.codec_version = reader_u8(&r);
    h.must_understand = reader_le32(&r);
    (void)reader_le32(&r); /* may-ignore bits change nothing for this reader */
    h.shard_count = reader_le32(&r);
    h.shard = reader_le32(&r);
    (void)reader_le32(&r); /* zero */
    h.secret_id = reader_le64(&r);
    h.epoch = reader_le64(&r);
    h.number = reader_le64(&r);
    (void)reader_le32(&r); /* zero */
    crc = reader_le32(&r);
    /* The checksum comes before the version: every version keeps these 64 bytes. */
    if (r.failed || crc != crc32c(data, HEADER_CRC_AT))
        return errinfo_set_at(ei, ERR_CORRUPT, path, 0, "the header is damaged");
    *out = h;
    return ERR_OK;
}
