/*
 * The bytes of a part that writer and reader share: headers, footer, page tables, packed integers.
 * Format and diagrams: docs/formats/part.md.
 */
#ifndef RIMSTONE_ENGINE_PART_PART_FORMAT_INTERNAL_H
#define RIMSTONE_ENGINE_PART_PART_FORMAT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/err.h"
#include "engine/codec.h"
#include "engine/part.h"

enum {
    PART_VERSION = 1,
    /* Must-understand bits, of the footer: */
    PART_FEATURE_HISTOGRAMS = 1 << 0, /* chunks may be of native histograms */
    PART_FEATURES_KNOWN = PART_FEATURE_HISTOGRAMS,
    PART_HEADER_SIZE = 40,
    PART_TRAILER_SIZE = 20,
    PART_TOC_SIZE_MAX = 64 << 10,
    PART_CRC_SIZE = 4,
    PART_TABLE_ENTRY_SIZE = 16,
    PART_INTS_PIECE = 1024, /* integers in one packed column */
    PART_COLUMN_SIZE_MAX = UINT32_MAX / 8,

    PART_PRINTS_PER_PAGE = 1024, /* fingerprints */
    PART_REFS_PER_PAGE = 4096,   /* entity numbers of series */
    PART_ENTITIES_PER_PAGE = 512,
    PART_CHUNK_SERIES_PER_PAGE = 512, /* series whose chunk entries share a page */
    PART_METRICS_PER_PAGE = 4096,
    PART_POSTINGS_PER_PAGE = 8192,
    PART_RESTART = 16,             /* values between two that are not front-coded */
    PART_BUCKETS_PER_PAGE = 256,   /* of the fingerprints' table */
    PART_BUCKET_TARGET = 16,       /* series in a bucket, on average */
    PART_TIMES_PER_PAGE = 256,     /* timestamp columns */
    PART_PAGE_TARGET_BYTES = 8192, /* of chunk data, timestamp columns and values */
};

/* Sections of the index. Readers ignore those they do not know. */
enum part_section {
    PART_SECTION_NAMES,
    PART_SECTION_VALUES,
    PART_SECTION_METRICS,
    PART_SECTION_ENTITIES,
    PART_SECTION_POSTINGS,
    PART_SECTION_REFS,
    PART_SECTION_PRINTS,
    PART_SECTION_LOOKUP,
    PART_SECTION_TIMES,
    PART_SECTION_CHUNKS,
    PART_SECTION_COUNT,
};
/* For messages. */
const char *part_section_name(enum part_section section);

/* A page of the index: bytes and checksum, at least one byte more than the latter. */
struct part_page_entry {
    uint64_t offset;
    uint32_t size; /* checksum included */
    uint32_t key;  /* number of the first thing in it; what is counted is the section's matter */
};

struct part_table {
    struct part_page_entry *pages; /* owned */
    uint32_t count;
    uint32_t size; /* stored, checksum included; offset is where it stands */
    uint64_t offset;
};

struct part_footer {
    struct part_info info;
    uint32_t name_count, metric_count, unnamed_count, bucket_bits, codec_version;
    struct part_table
        tables[PART_SECTION_COUNT]; /* only offset, size and count are in the footer */
};

/* ---- checksums: cover the part's id and the page's place too, so that a page of another file or
 * of another place never passes for the right one ---- */
uint32_t part_page_crc(const uint8_t *data, size_t size, uint64_t id, uint64_t offset);
/* True if the last four bytes of a stored page are right. */
bool part_page_is_intact(const uint8_t *stored, size_t stored_size, uint64_t id, uint64_t offset);

/* ---- header, the same in both files ---- */
void part_header_encode(enum part_file file, uint64_t id, uint8_t out[PART_HEADER_SIZE]);
/* `name` is for messages. */
MUST_USE enum err part_header_decode(const uint8_t in[PART_HEADER_SIZE], enum part_file file,
                                     const char *name, uint64_t *id, struct errinfo *ei);

/* ---- footer, at the end of the index ---- */
void part_footer_encode(struct byte_writer *w, const struct part_footer *f);
/* Size of the contents in front of the trailer, checked against the file. */
MUST_USE enum err part_trailer_decode(const uint8_t in[PART_TRAILER_SIZE], uint64_t file_size,
                                      const char *name, uint32_t *toc_size, struct errinfo *ei);
/* `in` is contents and trailer. */
MUST_USE enum err part_footer_decode(const uint8_t *in, size_t toc_size, uint64_t file_size,
                                     const char *name, struct part_footer *out, struct errinfo *ei);

/* ---- tables of pages ---- */
void part_table_encode(struct byte_writer *w, const struct part_table *t);
/* Fills pages[0..t->count) from a verified table without its checksum; false when an entry lies
 * outside of [PART_HEADER_SIZE, end) or keys do not ascend. */
bool part_table_decode(const uint8_t *data, size_t size, uint64_t end, struct part_table *t);

/* ---- packed integers: codec columns of up to PART_INTS_PIECE, one after another ---- */
void part_ints_put(struct byte_writer *w, struct codec_scratch *s, const uint32_t *x, size_t n);
void part_ints_put_wide(struct byte_writer *w, struct codec_scratch *s, const uint64_t *x,
                        size_t n);
/* False (and the reader failed) when the bytes are no such columns or a number is above max. */
bool part_ints_get(struct byte_reader *r, size_t n, uint32_t max, uint32_t *out);
bool part_ints_get_wide(struct byte_reader *r, size_t n, uint64_t *out);

/* Number of pages that hold `count` things. */
static inline uint32_t part_page_count(uint64_t count, uint32_t per_page)
{
    return (uint32_t)((count + per_page - 1) / per_page);
}
/* Bits of a fingerprint that choose its bucket. */
uint32_t part_bucket_bits(uint32_t series_count);
static inline uint32_t part_bucket(struct hash128 h, uint32_t bits)
{
    return bits == 0 ? 0 : (uint32_t)(h.high >> (64 - bits));
}
/* The bits behind those: told apart without reading the fingerprint. */
static inline uint8_t part_bucket_tag(struct hash128 h, uint32_t bits)
{
    return (uint8_t)(h.high << bits >> 56);
}
/* Bytes of a series number in the fingerprints' table. */
static inline unsigned part_series_width(uint32_t series_count)
{
    return series_count <= 1U << 8    ? 1
           : series_count <= 1U << 16 ? 2
           : series_count <= 1U << 24 ? 3
                                      : 4;
}

#endif
