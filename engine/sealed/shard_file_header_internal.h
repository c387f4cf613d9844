/*
 * The header that begins every file of a shard: sealed and late files, series files.
 */
#ifndef RIMSTONE_ENGINE_SEALED_SHARD_FILE_HEADER_INTERNAL_H
#define RIMSTONE_ENGINE_SEALED_SHARD_FILE_HEADER_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SHARD_FILE_MAGIC_SIZE = 8, SHARD_FILE_HEADER_SIZE = 64 };

struct shard_file_header {
    uint16_t version;
    uint8_t kind, codec_version; /* 0 in formats that have no use for them */
    uint32_t must_understand;
    uint32_t shard_count, shard;
    uint64_t secret_id, epoch, number;
};

void shard_file_header_encode(const uint8_t magic[SHARD_FILE_MAGIC_SIZE],
                              const struct shard_file_header *h,
                              uint8_t out[SHARD_FILE_HEADER_SIZE]);
/* Checks magic and checksum; version, features and meaning are the caller's to check, in this
 * order. `what` the file should be and `path` are for messages. ERR_CORRUPT leaves *out alone. */
MUST_USE enum err shard_file_header_decode(const uint8_t *data, size_t size,
                                           const uint8_t magic[SHARD_FILE_MAGIC_SIZE],
                                           const char *what, const char *path,
                                           struct shard_file_header *out, struct errinfo *ei);

#endif
