/*
 * The log's bytes: segment header and frame header, written and checked field by field. Pure
 * functions over memory; the page for people is docs/formats/wal.md and must say the same.
 */
#ifndef RIMSTONE_WAL_FORMAT_INTERNAL_H
#define RIMSTONE_WAL_FORMAT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wal/wal.h"

enum {
    SEGMENT_VERSION = 1,
    SEGMENT_HEADER_SIZE = 64,
    FRAME_HEADER_SIZE = 48,
    FRAME_MAGIC_SIZE = 4,
    /* Below this, zstd's headers and its cold start cost more than they save. */
    FRAME_COMPRESS_MIN_BYTES = 1024,
};

enum frame_codec {
    FRAME_CODEC_RAW = 0,
    FRAME_CODEC_ZSTD = 1,
};

struct segment_header {
    uint32_t segment_number;
    uint32_t shard_count;
    uint64_t start_epoch;
    /* What lies behind (resume_segment, resume_size) in older segments was never acknowledged and
     * is written again from here on. resume_segment 0: there is no older segment. */
    uint32_t resume_segment;
    uint64_t resume_size;
};

struct frame_header {
    uint32_t stored_size; /* payload bytes in the file */
    uint32_t raw_size;    /* payload bytes once decompressed */
    uint32_t shard;
    uint32_t codec; /* enum frame_codec, unchecked: an unknown one makes only its frame bad */
    uint64_t first_sequence;
    uint32_t entry_count;
    uint32_t segment_number;
    uint64_t start_epoch;
    uint32_t payload_crc;
};

enum segment_verdict {
    SEGMENT_GOOD,
    SEGMENT_DAMAGED,     /* short, or magic or checksum wrong: read its frames nevertheless */
    SEGMENT_UNSUPPORTED, /* intact, but of a newer version or with unknown must-understand bits */
};

void segment_header_encode(const struct segment_header *header, uint8_t out[SEGMENT_HEADER_SIZE]);
/* Checks magic, checksum, version and feature bits. `out` is filled for SEGMENT_GOOD only. */
enum segment_verdict segment_header_decode(const uint8_t *data, size_t size,
                                           struct segment_header *out);

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_SIZE]);
/* False unless magic and header checksum hold and the fields make sense by themselves: sizes within
 * WAL_PAYLOAD_SIZE_MAX, entries counted from 1, no wrap of the sequence number. */
bool frame_header_decode(const uint8_t data[FRAME_HEADER_SIZE], struct frame_header *out);
/* The four bytes a frame begins with, for the search behind a bad frame. */
extern const uint8_t frame_magic[FRAME_MAGIC_SIZE];

#endif
