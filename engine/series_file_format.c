/*
 * Fixed parts of a series file, little-endian. docs/formats/series.md
 *
 * Header:  0            8         10     12          16         20            24      28
 *          | "RIMSERI1" | version | zero | must bits | may bits | shard count | shard | zero |
 *          32          40      48            56     60
 *          | secret id | epoch | file number | zero | crc of [0, 60) |
 *
 * Batch:   0       4       8       16         24     28            32     44
 *          | magic | index | epoch | sequence | size | payload crc | zero | crc of [0, 44) |
 *          48
 *          | section | section | ...
 *
 * Section: | kind u32 | flags u32 | size u64 | content |
 */
#include "engine/series_file_format_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "engine/fixed_bytes_internal.h"
#include "engine/sealed_format_internal.h" /* the checksum with a place */
#include "wal/wal.h"

static const uint8_t file_magic[8] = {'R', 'I', 'M', 'S', 'E', 'R', 'I', '1'};
static const uint8_t batch_magic[4] = {0xf7, 'S', 'b', 0xfb};

enum {
    FEATURES_KNOWN = 0, /* must-understand bits; none yet */
    HEADER_CRC_AT = SERIES_FILE_HEADER_SIZE - 4,
    BATCH_CRC_AT = SERIES_FILE_BATCH_HEADER_SIZE - 4,
};

void series_file_header_encode(const struct series_file_identity *id,
                               uint8_t out[SERIES_FILE_HEADER_SIZE])
{
    memset(out, 0, SERIES_FILE_HEADER_SIZE);
    memcpy(out, file_magic, sizeof file_magic);
    fixed_put(out + 8, SERIES_FILE_VERSION, 2);
    fixed_put(out + 20, id->shard_count, 4);
    fixed_put(out + 24, id->shard, 4);
    fixed_put(out + 32, id->secret_id, 8);
    fixed_put(out + 40, id->epoch, 8);
    fixed_put(out + 48, id->number, 8);
    fixed_put(out + HEADER_CRC_AT, crc32c(out, HEADER_CRC_AT), 4);
}

enum err series_file_header_decode(const uint8_t *data, size_t size, const char *path,
                                   struct series_file_identity *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *magic = reader_take(&r, sizeof file_magic);
    struct series_file_identity id;
    uint32_t version, must, crc;

    if (magic == NULL || memcmp(magic, file_magic, sizeof file_magic) != 0)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: offset 0: not a series file", path);
    version = reader_le16(&r);
    (void)reader_le16(&r); /* zero */
    must = reader_le32(&r);
    (void)reader_le32(&r); /* may-ignore bits change nothing for this reader */
    id.shard_count = reader_le32(&r);
    id.shard = reader_le32(&r);
    (void)reader_le32(&r); /* zero */
    id.secret_id = reader_le64(&r);
    id.epoch = reader_le64(&r);
    id.number = reader_le64(&r);
    (void)reader_le32(&r); /* zero */
    /* The checksum comes before the version: every version keeps these 64 bytes. */
    crc = reader_le32(&r);
    if (r.failed || crc != crc32c(data, HEADER_CRC_AT))
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: offset 0: the header is damaged", path);
    if (version != SERIES_FILE_VERSION || (must & ~(uint32_t)FEATURES_KNOWN) != 0)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0, "%s: version %u, features %" PRIx32, path,
                           version, must);
    if (id.shard_count == 0 || id.shard_count > WAL_SHARD_COUNT_MAX || id.shard >= id.shard_count)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: shard %u of %u", path, id.shard,
                           id.shard_count);
    *out = id;
    return ERR_OK;
}

void series_batch_header_encode(const struct series_batch_header *h,
                                uint8_t out[SERIES_FILE_BATCH_HEADER_SIZE])
{
    memset(out, 0, SERIES_FILE_BATCH_HEADER_SIZE);
    memcpy(out, batch_magic, sizeof batch_magic);
    fixed_put(out + 4, h->index, 4);
    fixed_put(out + 8, h->epoch, 8);
    fixed_put(out + 16, h->sequence, 8);
    fixed_put(out + 24, h->size, 4);
    fixed_put(out + 28, h->payload_crc, 4);
    fixed_put(out + BATCH_CRC_AT, crc32c(out, BATCH_CRC_AT), 4);
}

bool series_batch_header_decode(const uint8_t *data, size_t size, struct series_batch_header *out)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *magic = reader_take(&r, sizeof batch_magic);
    struct series_batch_header h;

    h.index = reader_le32(&r);
    h.epoch = reader_le64(&r);
    h.sequence = reader_le64(&r);
    h.size = reader_le32(&r);
    h.payload_crc = reader_le32(&r);
    (void)reader_take(&r, BATCH_CRC_AT - 32); /* zero */
    if (size < SERIES_FILE_BATCH_HEADER_SIZE || memcmp(magic, batch_magic, sizeof batch_magic) != 0)
        return false;
    if (reader_le32(&r) != crc32c(data, BATCH_CRC_AT) || h.size < SERIES_FILE_BATCH_HEADER_SIZE ||
        h.size > SERIES_FILE_BATCH_SIZE_MAX)
        return false;
    *out = h;
    return true;
}

uint32_t series_batch_crc(uint64_t epoch, uint64_t offset, const void *data, size_t size)
{
    return sealed_crc(epoch, offset, data, size);
}
