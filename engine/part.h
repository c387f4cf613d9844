/*
 * Parts: immutable files that hold the samples of one shard in one window. A part is two files, an
 * index and the chunks, named by the part's key. Format: docs/formats/part.md; how it is laid out
 * and why: engine/part/README.md.
 *
 * A part_store holds what all parts of one engine share: the file layer, a bounded cache of
 * verified pages and a bounded set of open descriptors. Everything here but a writer and an
 * iterator may be used by several threads at once; the caller keeps a part open as long as someone
 * reads it.
 *
 * Series of a part are numbered from 0 in storage order: by metric name first (none before any),
 * then by the other labels as labels_compare() orders them. A series number means nothing outside
 * of its part.
 */
#ifndef RIMSTONE_ENGINE_PART_H
#define RIMSTONE_ENGINE_PART_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/err.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "engine/labels.h"
#include "engine/querier.h"

/* ---- names ---- */

/* The whole key of the manifest. */
struct part_key {
    int64_t window_start_ms;
    uint64_t window_size_ms;
    uint64_t resolution_ms; /* 0: as ingested */
    uint64_t generation;
    uint32_t shard, shard_count;
    uint32_t retention_class;
};

enum part_file { PART_FILE_INDEX, PART_FILE_CHUNKS };
enum { PART_NAME_SIZE = 192 }; /* room for the longest file name and its NUL */

/* The file's name, without a directory. `temporary`: as a writer names it before it is complete. */
void part_name_format(const struct part_key *key, enum part_file file, bool temporary,
                      char out[PART_NAME_SIZE]);
/* Reads such a name; false for any other. Whatever is temporary, or is not in the manifest, is
 * debris. */
bool part_name_parse(const char *name, struct part_key *key, enum part_file *file, bool *temporary);

bool part_key_equal(const struct part_key *a, const struct part_key *b);

/* Whether the shards of two keys, perhaps of different counts, share hashes: a shard is as large a
 * share of them as its count says, in order. */
bool part_key_shards_meet(const struct part_key *a, const struct part_key *b);
/* Whether all hashes of a's shard are of b's. */
bool part_key_shard_within(const struct part_key *a, const struct part_key *b);
/* Whether parts of these keys may hold samples of one series and time: as shards, windows,
 * resolutions and retention classes go. Windows must be proper. */
bool part_key_meets(const struct part_key *a, const struct part_key *b);

/* Storage order: -1, 0, 1. */
int part_labels_compare(const struct labels *a, const struct labels *b);

/* ---- what all parts share ---- */

struct part_store;

struct part_store_options {
    struct fs *fs;             /* borrowed; outlives the store */
    struct budget *memory;     /* borrowed; cached pages, open parts and writers charge it */
    uint64_t cache_bytes;      /* of pages that nobody uses at the moment */
    uint32_t descriptor_count; /* files kept open, at least 2 */
};
MUST_USE enum err part_store_new(const struct part_store_options *o, struct part_store **out,
                                 struct errinfo *ei);
/* All parts must be closed. Accepts NULL. */
void part_store_free(struct part_store *s);

struct part_store_stats {
    uint64_t page_hits, page_misses, page_evictions;
    uint64_t cached_bytes, read_bytes;
    uint32_t open_descriptors;
};
void part_store_stats_get(struct part_store *s, struct part_store_stats *out);

/* ---- writing ---- */

struct part_writer;

struct part_writer_options {
    const char *dir; /* existing directory of the file layer, "" or "." for its root */
    struct part_key key;
    /* Told apart by it: the two files of one part. 0: random. */
    uint64_t id;
};

struct part_info {
    struct part_key key;
    uint64_t id;
    int64_t min_time_ms, max_time_ms; /* of the samples; min > max in a part without any */
    uint64_t highest_sequence;        /* of the log, for what went in */
    uint64_t sample_count, chunk_count;
    uint64_t index_size, chunks_size; /* bytes */
    uint32_t series_count, entity_count, times_count;
    bool has_histograms;
};

/*
 * Creates the two temporary files; those of an attempt that was cut off are removed first.
 * ERR_EXISTS when the part is there already. Not thread-safe; nothing else writes the same key.
 * After any failure of the calls below but ERR_INVALID, which changes nothing, all that is left to
 * do is part_writer_free().
 */
MUST_USE enum err part_writer_new(struct part_store *s, const struct part_writer_options *o,
                                  struct part_writer **out, struct errinfo *ei);
/*
 * Begins a series; its chunks follow. Labels must be sorted by name and come in strictly ascending
 * storage order, else ERR_INVALID. A series that gets no chunk leaves no trace. Labels are borrowed
 * until its first chunk has been added.
 */
MUST_USE enum err part_writer_series(struct part_writer *w, const struct labels *labels,
                                     struct hash128 fingerprint, struct errinfo *ei);
/* Encodes `count` (1 to CODEC_SAMPLES_MAX) samples, strictly ascending and behind the chunks
 * before, as one chunk; else ERR_INVALID. */
MUST_USE enum err part_writer_samples(struct part_writer *w, const int64_t *t_ms,
                                      const double *value, size_t count, struct errinfo *ei);

/*
 * The same for native histograms, each of which passes histogram_check_layout(), else ERR_INVALID.
 * The caller bounds what goes into a chunk (histogram_chunk.h). The hint of a series' first sample
 * is taken for that behind a border: nothing of its source stands before it.
 */
MUST_USE enum err part_writer_histograms(struct part_writer *w, const int64_t *t_ms,
                                         const struct histogram *h, size_t count,
                                         struct errinfo *ei);

/* What a column of a chunk is. Readers step over columns of other kinds. */
enum part_column_kind {
    PART_COLUMN_VALUES = 1,     /* doubles: codec_values_decode() */
    PART_COLUMN_HISTOGRAMS = 2, /* native histograms: histogram_chunk_decode() */
};
enum { PART_CHUNK_COLUMNS_MAX = 4 };

/* A chunk as its bytes, the timestamp column and the others one after another. */
struct part_chunk_raw {
    int64_t min_time_ms, max_time_ms;
    uint32_t sample_count;
    struct bytes times;   /* codec_times_encode() */
    struct bytes columns; /* sum of column_size[] bytes */
    uint32_t column_count;
    uint32_t column_size[PART_CHUNK_COLUMNS_MAX];
    uint8_t column_kind[PART_CHUNK_COLUMNS_MAX];
};
/* Copies a chunk without decoding it. The bounds must be those of the timestamps. A series' first
 * chunk of histograms must be one that was the first of its series in another part. */
MUST_USE enum err part_writer_chunk(struct part_writer *w, const struct part_chunk_raw *chunk,
                                    struct errinfo *ei);
/* Counts of what has been fed, for progress. */
uint64_t part_writer_sample_count(const struct part_writer *w);
/*
 * Writes the index, syncs both files, gives them their names and syncs the directory. The writer
 * only waits for part_writer_free() afterwards, whatever the outcome. After a failure no name of
 * the part may be trusted: they are debris unless the manifest names the part.
 */
MUST_USE enum err part_writer_finish(struct part_writer *w, uint64_t highest_sequence,
                                     struct part_info *out, struct errinfo *ei);
/* Removes the temporary files (as far as possible) unless it was finished. Accepts NULL. */
void part_writer_free(struct part_writer *w);

/* ---- where chunks are cut ---- */

/* Samples that a chunk in a part of that window should have: 480 in 2 h, up to 3,840 from 16 h on.
 */
uint32_t part_chunk_target(uint64_t window_size_ms);

/* A window cut into equal spans. */
struct part_cuts {
    int64_t first_ms, last_ms; /* of the window, both in it */
    uint64_t span_ms;
};
/* The window, halved until a span holds target_samples (or a few more) at the rate of a series that
 * has sample_count samples from first_ms to last_ms. */
struct part_cuts part_cuts_choose(int64_t window_first_ms, int64_t window_last_ms,
                                  uint32_t target_samples, uint64_t sample_count, int64_t first_ms,
                                  int64_t last_ms);
/* Which span, counted from 0, a time of the window lies in; and that span's last moment. */
uint64_t part_cuts_number(const struct part_cuts *c, int64_t t_ms);
int64_t part_cuts_end(const struct part_cuts *c, int64_t t_ms);

/* ---- reading ---- */

struct part;

/* Checks names, sizes, header, footer and tables of pages; the pages themselves are verified when
 * they are first read. ERR_CORRUPT, ERR_UNSUPPORTED (a newer format) or ERR_NOT_FOUND name file and
 * offset. `dir` as in part_writer_options. The files must keep their names until part_close(): they
 * are opened again when descriptors are short. */
MUST_USE enum err part_open(struct part_store *s, const char *dir, const struct part_key *key,
                            struct part **out, struct errinfo *ei);
void part_close(struct part *p); /* Accepts NULL. */
const struct part_info *part_info(const struct part *p);

#define PART_NO_SERIES UINT32_MAX

/* Series that match all matchers, ascending, in `arena`. Looks at *stop (may be NULL) now and then
 * and ends with ERR_CANCELED. */
MUST_USE enum err part_select(struct part *p, const struct matcher *matchers, size_t matcher_count,
                              const _Atomic bool *stop, struct arena *arena, uint32_t **out,
                              size_t *out_count, struct errinfo *ei);
/* Fingerprints of `count` series. */
MUST_USE enum err part_fingerprints(struct part *p, const uint32_t *series, size_t count,
                                    struct hash128 *out, struct errinfo *ei);
/* Series by fingerprint: out[i] is PART_NO_SERIES where the part has none. */
MUST_USE enum err part_find(struct part *p, const struct hash128 *fingerprints, size_t count,
                            uint32_t *out, struct errinfo *ei);
/* Label sets of `count` series, sorted by name, copied into the arena. Cheapest in ascending
 * order. */
MUST_USE enum err part_labels(struct part *p, const uint32_t *series, size_t count,
                              struct arena *arena, struct labels *out, struct errinfo *ei);
/* Only the values of some labels: out[i * name_count + k] is series i's value of names[k], empty
 * when it has none. In the arena, equal values of one call share a pointer. */
MUST_USE enum err part_values_of(struct part *p, const uint32_t *series, size_t count,
                                 const struct str *names, size_t name_count, struct arena *arena,
                                 struct str *out, struct errinfo *ei);
/* All label names, and all values of one name, in byte order, in the arena. */
MUST_USE enum err part_label_names(struct part *p, struct arena *arena, struct str_list *out,
                                   struct errinfo *ei);
MUST_USE enum err part_label_values(struct part *p, struct str name, struct arena *arena,
                                    struct str_list *out, struct errinfo *ei);

/* One entry of the chunk index. */
struct part_chunk {
    int64_t min_time_ms, max_time_ms;
    uint32_t sample_count;
    uint32_t times; /* number of its timestamp column; equal ones are the same column */
    uint64_t page_offset;
    uint32_t page_size;   /* checksum included */
    uint32_t data_offset; /* in the page */
    uint32_t column_count;
    uint32_t column_size[PART_CHUNK_COLUMNS_MAX];
    uint8_t column_kind[PART_CHUNK_COLUMNS_MAX];
};
struct part_chunk_list {
    size_t count;
    const struct part_chunk *items; /* in the arena */
};
/* The chunks of `count` series that overlap [min_time_ms, max_time_ms], ascending by time. */
MUST_USE enum err part_chunks(struct part *p, const uint32_t *series, size_t count,
                              int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                              struct part_chunk_list *out, struct errinfo *ei);
/*
 * The samples in [min_time_ms, max_time_ms] of `count` series, in the arena; series that share
 * timestamps share the array. What histograms are goes to `histograms`, which may be `arena`: it
 * can outlive the columns. A chunk without a column of a known kind is ERR_UNSUPPORTED. Reads are
 * batched; cheapest in ascending order.
 */
MUST_USE enum err part_read(struct part *p, const uint32_t *series, size_t count,
                            int64_t min_time_ms, int64_t max_time_ms, struct arena *arena,
                            struct arena *histograms, struct column *out, struct errinfo *ei);

/* ---- walking everything ---- */

/* All series in storage order with their chunks as bytes: what a merge reads. */
struct part_iter;

struct part_series {
    uint32_t series;
    struct labels labels;
    struct hash128 fingerprint;
    size_t chunk_count;
    const struct part_chunk_raw *chunks;
};
MUST_USE enum err part_iter_new(struct part *p, struct part_iter **out, struct errinfo *ei);
/* *out is NULL after the last series; else it is borrowed until the next call. Memory stays within
 * a few hundred series. */
MUST_USE enum err part_iter_next(struct part_iter *it, const struct part_series **out,
                                 struct errinfo *ei);
void part_iter_free(struct part_iter *it); /* Accepts NULL. */

/*
 * Reads and checks every byte of a part: checksums, order of labels, fingerprints' look-up,
 * postings, and that every chunk decodes to what its entry says. Stops at the first bad region,
 * which the error names by file and offset. Nothing is cached. `stop` may be NULL.
 */
MUST_USE enum err part_verify(struct part_store *s, const char *dir, const struct part_key *key,
                              const _Atomic bool *stop, struct part_info *out, struct errinfo *ei);

#endif
