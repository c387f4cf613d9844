/*
 * Log records: what a frame's payload holds. docs/formats/log-records.md.
 *
 * A payload is a run of records, each with a type and a length, so that a reader steps over types
 * it does not know. A payload depends on no other payload.
 */
#ifndef RIMSTONE_ENGINE_RECORD_INTERNAL_H
#define RIMSTONE_ENGINE_RECORD_INTERNAL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

enum record_type {
    RECORD_SERIES = 1,  /* series definitions */
    RECORD_SAMPLES = 2, /* float samples, by columns */
};

enum {
    RECORD_HEADER_BYTES = 8,
    RECORD_LABELS_SIZE_MAX = 16 << 20, /* of one series, canonical; more is refused at the door */
};

/* One sample on its way to the log, as it is queued under the shard's lock. */
struct log_entry {
    uint32_t slot;
    uint16_t generation;
    uint8_t scale; /* an exponent's index at which the value is exact, or CHUNK_SCALE_RAW */
    uint8_t zero;
    int64_t t_ms;
    uint64_t bits;
};
static_assert(sizeof(struct log_entry) == 24, "what a queued sample costs");

enum { LOG_SEGMENT_ENTRIES = 1024 };

struct log_segment {
    struct log_segment *next;
    uint32_t count;
    struct log_entry items[LOG_SEGMENT_ENTRIES];
};

/* A series as the log names it. `labels` are canonical fields: per label the length (shortest
 * varint) and bytes of its name, then of its value, sorted by name. */
struct definition {
    uint32_t slot;
    uint16_t generation;
    struct bytes labels; /* borrowed */
};

/* Bytes that definition_write() may need. */
static inline size_t definition_size_max(size_t labels_size)
{
    return labels_size + 5 + 3 + 5 + 5 + 5;
}
/* Writes one definition at `out`; returns its size. Only what differs from `before` is written, the
 * definition in front of it in the same record; all zero for the first. */
size_t definition_write(uint8_t *out, const struct definition *d, const struct definition *before);

/* Appends a record of `count` definitions, written one behind the other. */
void record_series_write(struct byte_writer *out, struct bytes definitions, uint32_t count);
/* Appends a record of the samples of a chain of segments, in order. */
void record_samples_write(struct byte_writer *out, const struct log_segment *first);

struct record {
    uint8_t type;
    struct bytes body; /* borrowed from the payload */
};
/* Steps to the next record; false at the end, and with in->failed when the bytes are no record. */
bool record_next(struct byte_reader *in, struct record *out);

/* The number of definitions of a RECORD_SERIES body; *in is set to the first. */
bool record_series_open(struct bytes body, struct byte_reader *in, uint32_t *count);
/* Reads one definition, whose labels are put together in `arena`; `last` is the one in front of it,
 * all zero for the first. False with in->failed when the bytes are none, without it when memory is
 * refused. */
bool record_series_next(struct byte_reader *in, const struct definition *last, struct arena *arena,
                        struct definition *out);

/* The number of samples of a RECORD_SAMPLES body, checked against its size. */
bool record_samples_count(struct bytes body, size_t *count);
/* Decodes them into `out` (that many entries; `scale` is left 0). False when the body is malformed;
 * then `out` holds rubbish. */
bool record_samples_read(struct bytes body, struct log_entry *out, size_t count);

#endif
