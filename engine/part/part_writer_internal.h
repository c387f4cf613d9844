/*
 * What the files of the part writer share. Chunk data, timestamp columns, fingerprints and the
 * chunk index are written as they come; the rest of the index needs the order of all labels and is
 * built at the end from what the dictionary collected: about 16 bytes a series, 4 bytes a label of
 * each distinct label set (metric name left out), and the text of each distinct value once.
 */
#ifndef RIMSTONE_ENGINE_PART_PART_WRITER_INTERNAL_H
#define RIMSTONE_ENGINE_PART_PART_WRITER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "engine/part/part_format_internal.h"
#include "engine/part/part_store_internal.h"

/* A growing array charged to a budget. Zero is empty. */
struct part_array {
    void *data; /* owned */
    size_t count, capacity;
    size_t item_size;
};
/* Makes room for `count` more items; the caller then raises array->count. */
MUST_USE enum err part_array_reserve(struct part_array *a, struct budget *memory, size_t item_size,
                                     size_t count, struct errinfo *ei);
void part_array_done(struct part_array *a, struct budget *memory);

/* Appends to one file through a buffer. */
struct part_output {
    struct file *file; /* owned */
    uint8_t *buffer;   /* owned */
    size_t fill;
    uint64_t size; /* of the file, what is buffered included */
};

/* ---- the dictionary ---- */

#define PART_ID_NONE UINT32_MAX

struct part_value {
    struct str text; /* in the dictionary's arena */
    uint32_t name;   /* number of its name */
    uint32_t hash;
    uint32_t rank;         /* set by part_dict_sort(): among all values, by name, then text */
    uint32_t series_count; /* metric names only */
};
struct part_name {
    struct str text;
    uint32_t hash;
    uint32_t rank;
    uint32_t value_count;
    uint32_t first_rank; /* of its values; set by part_dict_sort() */
};
/* Open addressing; entries are numbers + 1. */
struct part_hash {
    struct part_array slots; /* uint32_t; a power of two of them, or none */
    uint32_t used;
};
struct part_dict {
    struct budget *memory;
    const struct hash_secret *secret;
    struct arena arena;
    struct part_array names, values; /* struct part_name, struct part_value; by number */
    struct part_hash name_hash, value_hash, entity_hash;
    /* Entity e is value numbers entity_values[starts[e] .. starts[e + 1]), by name. */
    struct part_array entity_starts, entity_values; /* uint32_t */
};

void part_dict_init(struct part_dict *d, struct budget *memory, const struct hash_secret *secret);
void part_dict_done(struct part_dict *d);
/* Numbers of a label set's metric name (PART_ID_NONE without one) and of the rest. */
MUST_USE enum err part_dict_add(struct part_dict *d, const struct labels *labels, uint32_t *metric,
                                uint32_t *entity, struct errinfo *ei);
static inline uint32_t part_dict_entity_count(const struct part_dict *d)
{
    return d->entity_starts.count == 0 ? 0 : (uint32_t)d->entity_starts.count - 1;
}
/* Sets the ranks. *names and *values get numbers by rank (uint32_t). */
MUST_USE enum err part_dict_sort(struct part_dict *d, struct part_array *names,
                                 struct part_array *values, struct errinfo *ei);

/* ---- the writer ---- */

/* What a writer holds whatever it writes: buffers, codec scratch, pages at hand. */
enum { PART_WRITER_BYTES = 1536 << 10 };

/* The chunk entries of the series that will share a page. */
struct part_group {
    uint32_t series_count;
    uint32_t chunk_counts[PART_CHUNK_SERIES_PER_PAGE];
    uint64_t first_offset;                                /* of its first data page */
    struct part_array times, layouts, sizes, page_chunks; /* uint32_t */
    struct byte_writer layout_bytes;                      /* count u8, kinds; one after another */
    uint32_t layout_count;
};

struct part_times_page {
    uint32_t count;
    uint32_t samples[PART_TIMES_PER_PAGE], sizes[PART_TIMES_PER_PAGE];
    uint64_t min_times[PART_TIMES_PER_PAGE], spans[PART_TIMES_PER_PAGE];
    struct byte_writer bytes;
};

/* Which timestamp columns were written, by hash of the timestamps or of their encoded form. When it
 * is full it starts afresh: some columns are then stored again. */
struct part_times_entry {
    struct hash128 hash;
    uint32_t id;
    bool used;
};

struct part_writer {
    struct part_store *store;
    struct part_footer footer;
    char *dir;         /* owned */
    char *names[2][2]; /* owned paths: [file][temporary] */
    struct hash_secret secret;
    struct part_output outputs[2];                /* by enum part_file */
    struct part_array tables[PART_SECTION_COUNT]; /* struct part_page_entry */
    struct codec_scratch *scratch;                /* owned */
    struct byte_writer page;                      /* the page at hand */

    struct part_dict dict;
    struct part_array refs;    /* uint32_t entity number by series */
    struct part_array highs;   /* uint64_t upper half of the fingerprint by series */
    struct byte_writer prints; /* the page of fingerprints at hand */
    struct part_group group;
    struct byte_writer data; /* the data page at hand */
    uint32_t data_chunks;
    struct part_times_page times;
    struct part_array times_table; /* struct part_times_entry, a power of two */
    uint32_t times_table_used;

    struct labels pending; /* borrowed: the series that has no chunk yet */
    struct hash128 pending_print;
    bool has_pending, has_series, failed, finished, renaming, published;
    struct part_array previous; /* struct label: the newest series */
    struct byte_writer previous_text;
    struct byte_writer column; /* the timestamp column at hand, then that of histograms */
    struct arena temp;         /* of histograms' columns; empty between calls */
    int64_t newest_ms;         /* of the newest series */
};

/* Appends a page with its checksum to the index and enters it into its section's table. */
MUST_USE enum err part_writer_page(struct part_writer *w, enum part_section section, uint32_t key,
                                   const struct byte_writer *page, struct errinfo *ei);
MUST_USE enum err part_output_append(struct part_output *o, const void *data, size_t size,
                                     struct errinfo *ei);
MUST_USE enum err part_output_flush(struct part_output *o, struct errinfo *ei);
/* Everything that is known only at the end: dictionaries, entities, postings, look-up. */
MUST_USE enum err part_writer_index(struct part_writer *w, struct errinfo *ei);

#endif
