/*
 * The bytes of a sealed file that writer and reader share: headers, group tables, directories,
 * footer. Pure functions over memory. docs/formats/sealed.md.
 */
#ifndef RIMSTONE_ENGINE_SEALED_SEALED_FORMAT_INTERNAL_H
#define RIMSTONE_ENGINE_SEALED_SEALED_FORMAT_INTERNAL_H

#include "engine/files/page_cache_internal.h"
#include "engine/sealed/sealed_internal.h"

enum {
    SEALED_VERSION = 1,
    SEALED_HEADER_SIZE = 64,
    SEALED_SLICE_HEADER_SIZE = 80,
    SEALED_TRAILER_SIZE = 32,
    SEALED_CRC_SIZE = 4,
    SEALED_MAGIC_SIZE = 4,
    SEALED_PAGE_TARGET_BYTES = 4096, /* a page ends with the chunk that reaches this */
    SEALED_INTS_PIECE = 1024,        /* integers in one packed column */
    SEALED_FOOTER_HEAD_SIZE = 8,     /* magic and slice count */
    SEALED_FOOTER_SIZE_MAX = 256 << 20,
    /* Of a group's directory: far above what 512 chunks can need. */
    SEALED_DIRECTORY_SIZE_MAX = 256 << 10,
};

extern const uint8_t sealed_slice_magic[SEALED_MAGIC_SIZE];
extern const uint8_t sealed_footer_magic[SEALED_MAGIC_SIZE];

struct sealed_file {
    struct fs *fs;     /* borrowed */
    struct file *file; /* owned */
    struct sealed_identity identity;
    struct page_cache *cache; /* borrowed, NULL: nothing is kept */
    uint64_t directories_id;  /* in the cache: decoded directories */
    uint64_t pages_id;        /* likewise: pages and timestamp columns as they stand, verified */
};

enum err sealed_corrupt(const struct sealed_file *f, uint64_t offset, const char *what,
                        struct errinfo *ei);
/* ERR_CORRUPT for a damaged slice. */
MUST_USE enum err sealed_slice_usable(const struct sealed_file *f, const struct sealed_slice *slice,
                                      struct errinfo *ei);
/* Whether `size` bytes from `offset` of the file have the checksum that stands behind them. */
bool sealed_is_intact(const struct sealed_file *f, uint64_t offset, const uint8_t *data,
                      size_t size);

/* Covers the place too, so that bytes of another file or offset never pass. */
uint32_t sealed_crc(uint64_t epoch, uint64_t offset, const void *data, size_t size);

/* ---- file header ---- */
void sealed_header_encode(const struct sealed_identity *id, uint8_t out[SEALED_HEADER_SIZE]);
/* `path` is for messages. */
MUST_USE enum err sealed_header_decode(const uint8_t *data, size_t size, const char *path,
                                       struct sealed_identity *id, struct errinfo *ei);

/* ---- slice header ---- */
struct sealed_slice_header {
    uint32_t index, size, chunk_count, group_count, table_size, payload_crc;
    uint64_t epoch, sequence, sample_count;
    int64_t min_time_ms, max_time_ms;
};
void sealed_slice_header_encode(const struct sealed_slice_header *h,
                                uint8_t out[SEALED_SLICE_HEADER_SIZE]);
/* False unless magic and checksum hold and the fields make sense by themselves. */
bool sealed_slice_header_decode(const uint8_t data[SEALED_SLICE_HEADER_SIZE],
                                struct sealed_slice_header *out);

/* ---- integers: columns of up to SEALED_INTS_PIECE, each behind its size ---- */
void sealed_ints_put(struct byte_writer *w, struct codec_scratch *s, const int64_t *x, size_t n);
/* False, and the reader has failed, when the bytes are no such columns. */
bool sealed_ints_get(struct byte_reader *r, size_t n, int64_t *out);

/* ---- group table: stands at the end of a slice, and again in the footer ---- */
void sealed_table_encode(struct byte_writer *w, struct codec_scratch *s,
                         const struct sealed_group *groups, uint32_t count);
/* `data` without its checksum. A slice at `offset`, owned by the caller; ERR_CORRUPT without a
 * story when the table does not fit the header. */
MUST_USE enum err sealed_table_decode(const struct sealed_slice_header *h, uint64_t offset,
                                      const uint8_t *data, size_t size, struct sealed_slice **out);

/* ---- directory of a group ---- */
struct sealed_directory {
    uint32_t chunk_count, times_count, page_count;
    int64_t slots[SEALED_GROUP_CHUNKS], generations[SEALED_GROUP_CHUNKS];
    int64_t columns[SEALED_GROUP_CHUNKS];       /* enum sealed_column */
    int64_t times[SEALED_GROUP_CHUNKS];         /* which of the timestamp columns below */
    int64_t sizes[SEALED_GROUP_CHUNKS];         /* of the value columns, in their order */
    int64_t times_offsets[SEALED_GROUP_CHUNKS]; /* from the slice's first byte */
    int64_t times_sizes[SEALED_GROUP_CHUNKS], times_counts[SEALED_GROUP_CHUNKS];
    int64_t times_mins[SEALED_GROUP_CHUNKS], times_maxs[SEALED_GROUP_CHUNKS];
    int64_t page_items[SEALED_GROUP_CHUNKS]; /* chunks of each page */
};
void sealed_directory_encode(struct byte_writer *w, struct codec_scratch *s,
                             const struct sealed_directory *d);
/* `data` without its checksum. False when anything does not fit the group, the slice or itself. */
bool sealed_directory_decode(const uint8_t *data, size_t size, const struct sealed_group *group,
                             uint64_t slice_size, struct sealed_directory *out);

/* ---- trailer: the last bytes of a finished file ---- */
struct sealed_trailer {
    uint64_t footer_size, epoch;
    uint32_t footer_crc;
};
void sealed_trailer_encode(const struct sealed_trailer *t, uint8_t out[SEALED_TRAILER_SIZE]);
bool sealed_trailer_decode(const uint8_t data[SEALED_TRAILER_SIZE], struct sealed_trailer *out);
/* A slice's record in the footer: offset, header, group table with its checksum. */
void sealed_footer_add(struct byte_writer *w, uint64_t offset, const uint8_t *header,
                       const uint8_t *table, size_t table_size);

#endif
