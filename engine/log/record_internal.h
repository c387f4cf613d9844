/*
 * Log records: what a frame's payload holds. docs/formats/log-records.md.
 *
 * A payload is a run of records, each with a type and a length, so that a reader steps over types
 * it does not know. A payload depends on no other payload.
 */
#ifndef RIMSTONE_ENGINE_LOG_RECORD_INTERNAL_H
#define RIMSTONE_ENGINE_LOG_RECORD_INTERNAL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

enum record_type {
    RECORD_SERIES = 1,  /* series definitions */
    RECORD_SAMPLES = 2, /* float samples, by columns; newer than their series' newest */
    RECORD_LATE = 3,    /* the same columns: samples that were older */
    RECORD_MIXED = 4,   /* as RECORD_SAMPLES, with histograms among the samples */
    RECORD_LATE_MIXED = 5,
};
/* Whether a record is one of samples, of any kind. */
static inline bool record_has_samples(unsigned type)
{
    return type >= RECORD_SAMPLES && type <= RECORD_LATE_MIXED;
}
static inline bool record_is_late(unsigned type)
{
    return type == RECORD_LATE || type == RECORD_LATE_MIXED;
}

enum {
    RECORD_HEADER_BYTES = 8,
    RECORD_LABELS_SIZE_MAX = 16 << 20, /* of one series, canonical; more is refused at the door */
};

/* One sample on its way to the log, as it is queued under the shard's lock. */
struct log_entry {
    uint32_t slot;
    uint16_t generation;
    /* An exponent's index at which the value is exact, or CHUNK_SCALE_RAW; or
     * RECORD_SCALE_HISTOGRAM (as read: only that or 0). */
    uint8_t scale;
    uint8_t is_late; /* replay only: of a RECORD_LATE */
    int64_t t_ms;
    uint64_t bits; /* of a histogram: where its form stands, behind its size as a varint */
};
static_assert(sizeof(struct log_entry) == 24, "what a queued sample costs");

enum { RECORD_SCALE_HISTOGRAM = 7 };
static inline bool record_entry_is_histogram(const struct log_entry *e)
{
    return e->scale == RECORD_SCALE_HISTOGRAM;
}
/* The packed form of a histogram's entry (histogram_pack_internal.h), which stands by itself;
 * borrowed from wherever the entry points to. */
struct bytes record_entry_histogram(const struct log_entry *e);

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
/* Appends a record of the samples of a chain of segments, in order; `type` is not RECORD_SERIES.
 * Histograms only stand in RECORD_MIXED and RECORD_LATE_MIXED. */
void record_samples_write(struct byte_writer *out, enum record_type type,
                          const struct log_segment *first);

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

/* The number of samples of a record, checked against its size. */
bool record_samples_count(struct bytes body, size_t *count);
/* Decodes them into `out` (that many entries; `scale` is left 0 but for histograms, which point
 * into the body and have not been looked into; `is_late` is left 0). False when the body is
 * malformed; then `out` holds rubbish. */
bool record_samples_read(const struct record *record, struct log_entry *out, size_t count);

#endif
