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
#include "engine/sealed/series_file_format_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "engine/codec/fixed_bytes_internal.h"
#include "engine/sealed/sealed_format_internal.h" /* the checksum with a place */
#include "engine/sealed/shard_file_header_internal.h"
#include "wal/wal.h"

static_assert((int)SERIES_FILE_HEADER_SIZE == (int)SHARD_FILE_HEADER_SIZE,
              "one header serves both formats");

static const uint8_t file_magic[SHARD_FILE_MAGIC_SIZE] = {'R', 'I', 'M', 'S', 'E', 'R', 'I', '1'};
static const uint8_t batch_magic[4] = {0xf7, 'S', 'b', 0xfb};

enum {
    FEATURES_KNOWN = 0, /* must-understand bits; none yet */
    BATCH_CRC_AT = SERIES_FILE_BATCH_HEADER_SIZE - 4,
};

void series_file_header_encode(const struct series_file_identity *id,
                               uint8_t out[SERIES_FILE_HEADER_SIZE])
{
    struct shard_file_header h = {.version = SERIES_FILE_VERSION,
                                  .shard_count = id->shard_count,
                                  .shard = id->shard,
                                  .secret_id = id->secret_id,
                                  .epoch = id->epoch,
                                  .number = id->number};

    shard_file_header_encode(file_magic, &h, out);
}

enum err series_file_header_decode(const uint8_t *data, size_t size, const char *path,
                                   struct series_file_identity *out, struct errinfo *ei)
{
    struct shard_file_header h;
    enum err e = shard_file_header_decode(data, size, file_magic, "series file", path, &h, ei);

    if (e != ERR_OK)
        return e;
    if (h.version != SERIES_FILE_VERSION || (h.must_understand & ~(uint32_t)FEATURES_KNOWN) != 0)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0,
                           "%s: another version wrote it: version %u, features %" PRIx32, path,
                           h.version, h.must_understand);
    if (h.shard_count == 0 || h.shard_count > WAL_SHARD_COUNT_MAX || h.shard >= h.shard_count)
        return errinfo_set_at(ei, ERR_CORRUPT, path, 0, "shard %u of %u", h.shard, h.shard_count);
    *out = (struct series_file_identity){.shard_count = h.shard_count,
                                         .shard = h.shard,
                                         .secret_id = h.secret_id,
                                         .epoch = h.epoch,
                                         .number = h.number};
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
