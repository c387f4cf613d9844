/*
 * A part store, and an open part: what the reading files share.
 */
#ifndef RIMSTONE_ENGINE_PART_PART_STORE_INTERNAL_H
#define RIMSTONE_ENGINE_PART_PART_STORE_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/files/file_cache_internal.h"
#include "engine/files/page_cache_internal.h"
#include "engine/part.h"
#include "engine/part/part_format_internal.h"

struct part_store {
    struct fs *fs;
    struct budget *memory; /* may be NULL */
    struct page_cache *pages;
    struct file_cache *files;
    _Atomic uint64_t next_file;  /* relaxed: only has to differ; names files in the page cache */
    _Atomic uint64_t read_bytes; /* relaxed: a statistic */
};

/* A label name as the names page describes it. */
struct part_name_entry {
    struct str text; /* in the part's names_text */
    uint32_t value_count, value_page, value_page_count, posting_page, posting_page_count;
};

struct part {
    struct part_store *store;
    struct part_footer footer; /* constant after part_open(), tables included */
    char *paths[2];            /* owned */
    struct cached_file files[2];
    uint64_t cache_ids[2];
    uint64_t decoded_id;           /* of pages in decoded form, see part_decoded_find() */
    struct part_name_entry *names; /* owned, in byte order */
    uint8_t *names_text;           /* owned */
    uint32_t *metric_starts;       /* owned: first series of each metric, and the end */
    uint32_t metric_name;          /* number of __name__, PART_NO_NAME without one */
    size_t charged_bytes;
};

#define PART_NO_NAME UINT32_MAX

/* `<dir>/<name>` of one of the part's files; owned. NULL when memory is short. */
char *part_path_new(const char *dir, const struct part_key *key, enum part_file file,
                    bool temporary);

/* An error about one place of one of the part's files. */
enum err part_corrupt(const struct part *p, enum part_file file, uint64_t offset, const char *what,
                      struct errinfo *ei);
/* The same about a page of the index. */
enum err part_page_corrupt(const struct part *p, enum part_section section, uint32_t index,
                           struct errinfo *ei);

/* A page to be read: pins it when it succeeds. */
struct part_page_request {
    enum part_file file;
    uint64_t offset;
    uint32_t size; /* checksum included */
    struct page *page;
};
/* Finds or reads all pages, those that are not cached in as few batches as reasonable, and checks
 * them. On failure no page is pinned. */
MUST_USE enum err part_pages_get(struct part *p, struct part_page_request *requests, size_t count,
                                 struct errinfo *ei);
void part_pages_release(struct part_page_request *requests, size_t count);

/* One page of the index, pinned. */
MUST_USE enum err part_page_get(struct part *p, enum part_section section, uint32_t index,
                                struct page **out, struct errinfo *ei);
/* A reader over its contents, checksum left out. */
static inline struct byte_reader part_page_reader(const struct page *page)
{
    return reader_init(page->data, page->size - PART_CRC_SIZE);
}
/* The page of `section` within [first, first + count) whose key is the last one <= key; `first` if
 * all are greater. */
uint32_t part_page_find(const struct part *p, enum part_section section, uint32_t first,
                        uint32_t count, uint32_t key);

/* ---- decoded pages ----
 * What a page of the index was decoded into stays in the cache beside the pages: a query of few
 * series asks every part of the range, and took most of its time to decode thousands of numbers for
 * the one or two that it needs. */

/* Pinned; NULL when it has to be made. */
struct page *part_decoded_find(struct part *p, enum part_section section, uint32_t index);
/* `size` bytes for the caller to fill, aligned for numbers. */
MUST_USE enum err part_decoded_new(struct part *p, enum part_section section, uint32_t index,
                                   size_t size, struct page **out, struct errinfo *ei);
/* Lets others find it. Returns it, or the one that another thread has made meanwhile. */
struct page *part_decoded_keep(struct part *p, struct page *page);

/* ---- dictionary ---- */

/* Number of a name, or PART_NO_NAME. */
uint32_t part_name_find(const struct part *p, struct str name);
/* Number of a value within its name, or PART_NO_VALUE. */
#define PART_NO_VALUE UINT32_MAX
MUST_USE enum err part_value_find(struct part *p, uint32_t name, struct str text, uint32_t *out,
                                  struct errinfo *ei);
/* The number of the first value that is not below `text`. */
MUST_USE enum err part_value_lower_bound(struct part *p, uint32_t name, struct str text,
                                         uint32_t *out, struct errinfo *ei);

/* Walks the values of a name in order. `text` of the value at hand is good until the next step. */
struct part_value_cursor {
    struct part *part;
    uint32_t name, next; /* the value that the next step gives */
    uint32_t page_index, page_first, page_values;
    struct page *page; /* pinned; NULL before the first step */
    struct byte_reader entries;
    struct byte_writer text;
};
void part_value_cursor_init(struct part_value_cursor *c, struct part *p, uint32_t name);
void part_value_cursor_done(struct part_value_cursor *c);
/* Goes to value `index` (below the name's value_count) and gives its text. */
MUST_USE enum err part_value_cursor_get(struct part_value_cursor *c, uint32_t index,
                                        struct str *out, struct errinfo *ei);

/* ---- entities ---- */

/* Label sets without the metric name of a page of entities, in some arena. */
struct part_entity_page {
    uint32_t first, count;
    uint32_t *schema; /* by entity in the page */
    uint32_t *row;    /* by entity: its number within its schema */
    uint32_t schema_count;
    struct part_schema {
        uint32_t name_count, entity_count;
        uint32_t *names;  /* ascending */
        uint32_t *values; /* value number of name k, row r: values[k * entity_count + r] */
    } * schemas;
};
MUST_USE enum err part_entity_page_read(struct part *p, uint32_t index, struct arena *arena,
                                        struct part_entity_page *out, struct errinfo *ei);
/* Entity numbers of the series of a page of references. */
struct part_refs {
    uint32_t first, count;
    const uint32_t *entities;
    struct page *page; /* pinned; NULL: none yet */
};
/* Moves to the page of `series`, if it is not there; page_release(r->page) at the end, also after
 * an error. */
MUST_USE enum err part_refs_seek(struct part *p, uint32_t series, struct part_refs *r,
                                 struct errinfo *ei);
/* Number of the metric of a series within __name__, PART_NO_VALUE without one. */
uint32_t part_metric_of(const struct part *p, uint32_t series);

/* ---- postings ---- */

/* One page of postings: `value_count` values from `first_value` on; those of value i are
 * entities[starts[i]] to entities[starts[i + 1] - 1]. */
struct part_postings_page {
    uint32_t first_value, value_count;
    const uint32_t *starts, *entities;
    struct page *page; /* pinned */
};
MUST_USE enum err part_postings_get(struct part *p, uint32_t index, struct part_postings_page *out,
                                    struct errinfo *ei);

/* ---- chunk index ---- */

struct part_chunk_page {
    uint32_t first_series, series_count, chunk_count, data_page_count;
    uint32_t *first_chunk;     /* by series, and the end */
    struct part_chunk *chunks; /* times_ms and sample_count not yet filled */
    struct page *page;         /* pinned, has both; NULL: they are in an arena */
};
/* The page, decoded already as a rule; in `scratch` it is decoded if not. */
MUST_USE enum err part_chunk_page_get(struct part *p, uint32_t index, struct arena *scratch,
                                      struct part_chunk_page *out, struct errinfo *ei);
/* Decodes it into the arena. */
MUST_USE enum err part_chunk_page_read(struct part *p, uint32_t index, struct arena *arena,
                                       struct part_chunk_page *out, struct errinfo *ei);

/* A page of timestamp columns, its contents pinned. */
struct part_times_view {
    uint32_t first, count;
    uint32_t *samples, *sizes, *starts; /* starts: offset of the bytes */
    int64_t *min_times, *max_times;
    const uint8_t *bytes;
    struct page *page;
};
MUST_USE enum err part_times_page_read(struct part *p, uint32_t index, struct arena *arena,
                                       struct part_times_view *out, struct errinfo *ei);

/* Pages of timestamp columns and decoded columns that one call needs; ends with the arena. */
struct part_times_memo {
    struct part *part;
    struct arena *arena;
    struct part_times_view **views; /* by page; NULL: not read yet */
    const int64_t **columns;        /* by hash of the number: see part_times_column() */
    uint32_t *column_ids;
    size_t column_capacity, column_used;
};
MUST_USE enum err part_times_memo_init(struct part_times_memo *m, struct part *p,
                                       struct arena *arena, struct errinfo *ei);
void part_times_memo_done(struct part_times_memo *m);
/* Fills times bounds and count of chunks. */
MUST_USE enum err part_times_bounds(struct part_times_memo *m, struct part_chunk *chunk,
                                    struct errinfo *ei);
/* The encoded column. */
MUST_USE enum err part_times_bytes(struct part_times_memo *m, uint32_t id, struct bytes *out,
                                   struct errinfo *ei);
/* The decoded column, made once per memo. */
MUST_USE enum err part_times_column(struct part_times_memo *m, const struct part_chunk *chunk,
                                    const int64_t **out, struct errinfo *ei);

#endif
