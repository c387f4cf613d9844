/*
 * What the writer and the reader of series files share. docs/formats/series.md.
 */
#ifndef RIMSTONE_ENGINE_SEALED_SERIES_FILE_FORMAT_INTERNAL_H
#define RIMSTONE_ENGINE_SEALED_SERIES_FILE_FORMAT_INTERNAL_H

#include "engine/sealed/series_file_internal.h"

enum series_section {
    SERIES_SECTION_NAMES = 1,
    SERIES_SECTION_VALUES = 2,
    SERIES_SECTION_SCHEMAS = 3,
    SERIES_SECTION_SERIES = 4,
    SERIES_SECTION_NEWEST = 5,
    SERIES_SECTION_ENDED = 6,
};

enum {
    SERIES_SECTION_HEAD_SIZE = 16,
    SERIES_SECTION_MUST = 1, /* flag: a reader that does not know the kind must refuse */
    SERIES_INTS_PIECE = 1024,
};

struct series_batch_header {
    uint64_t epoch, sequence;
    uint32_t index, size; /* size: of the whole batch */
    uint32_t payload_crc;
};

void series_file_header_encode(const struct series_file_identity *id,
                               uint8_t out[SERIES_FILE_HEADER_SIZE]);
/* `path` is for messages. */
MUST_USE enum err series_file_header_decode(const uint8_t *data, size_t size, const char *path,
                                            struct series_file_identity *out, struct errinfo *ei);
void series_batch_header_encode(const struct series_batch_header *h,
                                uint8_t out[SERIES_FILE_BATCH_HEADER_SIZE]);
/* False unless magic and checksum hold and the size is possible. */
bool series_batch_header_decode(const uint8_t *data, size_t size, struct series_batch_header *out);
/* Of everything behind the batch's header, with its place. */
uint32_t series_batch_crc(uint64_t epoch, uint64_t offset, const void *data, size_t size);

#endif
