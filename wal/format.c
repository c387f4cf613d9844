/*
 * The log's bytes. All integers are little-endian; checksums are CRC-32C.
 *
 * Segment header, 64 bytes:
 *   0           8     10     12          16        20
 *   | "RIMSWAL1" | ver | zero | must bits | may bits | shard count |
 *   24               28               32            40            48         60
 *   | segment number | resume segment | start epoch | resume size | zero ... | crc of [0, 60) |
 *
 * Frame, 48 bytes of header and the payload:
 *   0       4             8          12      14      15     16               24
 *   | magic | stored size | raw size | shard | codec | zero | first sequence | entry count |
 *   28               32            40            44                   48
 *   | segment number | start epoch | payload crc | crc of [0, 44)     | payload (stored size) ...
 *
 * The segment number and the random start epoch stand in every frame, so that bytes of a deleted
 * or never-synced file, which a file system may show again in a new one after a crash, cannot pass
 * for frames of this segment.
 */
#include "wal/format_internal.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/checksum.h"

static const uint8_t segment_magic[8] = {'R', 'I', 'M', 'S', 'W', 'A', 'L', '1'};
/* The first byte is no ASCII and no UTF-8, so text in payloads rarely starts a false search hit. */
const uint8_t frame_magic[FRAME_MAGIC_SIZE] = {0xf7, 'R', 'w', 0xfa};

enum {
    SEGMENT_FEATURES_MUST = 0, /* must-understand bits this version knows */
    SEGMENT_CRC_OFFSET = SEGMENT_HEADER_SIZE - 4,
    FRAME_CRC_OFFSET = FRAME_HEADER_SIZE - 4,
};

/* A cursor over a header being written; headers are small and of fixed size. */
struct put {
    uint8_t *pos;
};

static void put_le(struct put *p, uint64_t v, size_t size)
{
    for (size_t i = 0; i < size; i++)
        *p->pos++ = (uint8_t)(v >> (8 * i));
}

void segment_header_encode(const struct segment_header *header, uint8_t out[SEGMENT_HEADER_SIZE])
{
    struct put p = {out};

    memset(out, 0, SEGMENT_HEADER_SIZE);
    memcpy(p.pos, segment_magic, sizeof segment_magic);
    p.pos += sizeof segment_magic;
    put_le(&p, SEGMENT_VERSION, 2);
    put_le(&p, 0, 2);
    put_le(&p, SEGMENT_FEATURES_MUST, 4);
    put_le(&p, 0, 4); /* may-ignore bits: none yet */
    put_le(&p, header->shard_count, 4);
    put_le(&p, header->segment_number, 4);
    put_le(&p, header->resume_segment, 4);
    put_le(&p, header->start_epoch, 8);
    put_le(&p, header->resume_size, 8);
    p.pos = out + SEGMENT_CRC_OFFSET;
    put_le(&p, crc32c(out, SEGMENT_CRC_OFFSET), 4);
    ASSERT(p.pos == out + SEGMENT_HEADER_SIZE);
}

enum segment_verdict segment_header_decode(const uint8_t *data, size_t size,
                                           struct segment_header *out)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *magic = reader_take(&r, sizeof segment_magic);
    struct segment_header h = {0};
    uint32_t version, must;

    if (size < SEGMENT_HEADER_SIZE || memcmp(magic, segment_magic, sizeof segment_magic) != 0)
        return SEGMENT_DAMAGED;
    version = reader_le16(&r);
    (void)reader_le16(&r); /* zero, room for later versions */
    must = reader_le32(&r);
    (void)reader_le32(&r); /* may-ignore bits change nothing for this reader */
    h.shard_count = reader_le32(&r);
    h.segment_number = reader_le32(&r);
    h.resume_segment = reader_le32(&r);
    h.start_epoch = reader_le64(&r);
    h.resume_size = reader_le64(&r);
    (void)reader_take(&r, SEGMENT_CRC_OFFSET - 48);
    /* The checksum comes before the version: a flipped version bit is damage, not a newer format.
     * Every version keeps these 64 bytes and the checksum at their end. */
    if (crc32c(data, SEGMENT_CRC_OFFSET) != reader_le32(&r))
        return SEGMENT_DAMAGED;
    if (version != SEGMENT_VERSION || (must & ~(uint32_t)SEGMENT_FEATURES_MUST) != 0)
        return SEGMENT_UNSUPPORTED;
    *out = h;
    return SEGMENT_GOOD;
}

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_SIZE])
{
    struct put p = {out};

    memcpy(p.pos, frame_magic, sizeof frame_magic);
    p.pos += sizeof frame_magic;
    put_le(&p, header->stored_size, 4);
    put_le(&p, header->raw_size, 4);
    put_le(&p, header->shard, 2);
    put_le(&p, header->codec, 1);
    put_le(&p, 0, 1);
    put_le(&p, header->first_sequence, 8);
    put_le(&p, header->entry_count, 4);
    put_le(&p, header->segment_number, 4);
    put_le(&p, header->start_epoch, 8);
    put_le(&p, header->payload_crc, 4);
    ASSERT(p.pos == out + FRAME_CRC_OFFSET);
    put_le(&p, crc32c(out, FRAME_CRC_OFFSET), 4);
}

bool frame_header_decode(const uint8_t data[FRAME_HEADER_SIZE], struct frame_header *out)
{
    struct byte_reader r = reader_init(data, FRAME_HEADER_SIZE);
    const uint8_t *magic = reader_take(&r, sizeof frame_magic);
    struct frame_header h;

    if (memcmp(magic, frame_magic, sizeof frame_magic) != 0)
        return false;
    h.stored_size = reader_le32(&r);
    h.raw_size = reader_le32(&r);
    h.shard = reader_le16(&r);
    h.codec = reader_u8(&r);
    (void)reader_u8(&r);
    h.first_sequence = reader_le64(&r);
    h.entry_count = reader_le32(&r);
    h.segment_number = reader_le32(&r);
    h.start_epoch = reader_le64(&r);
    h.payload_crc = reader_le32(&r);
    if (crc32c(data, FRAME_CRC_OFFSET) != reader_le32(&r))
        return false;
    if (h.stored_size > WAL_PAYLOAD_SIZE_MAX || h.raw_size > WAL_PAYLOAD_SIZE_MAX)
        return false;
    if (h.entry_count == 0 || h.first_sequence == 0 ||
        h.first_sequence > UINT64_MAX - h.entry_count)
        return false;
    *out = h;
    return true;
}
