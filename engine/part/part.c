/*
 * Opening a part: names, sizes, header, footer, tables of pages, label names and metrics are read
 * and checked here; everything else when it is first needed.
 */
#include "engine/part.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"

static enum err part_charge(struct part *p, size_t bytes, struct errinfo *ei)
{
    enum err e = p->store->memory == NULL ? ERR_OK : budget_charge(p->store->memory, bytes, ei);

    if (e == ERR_OK)
        p->charged_bytes += bytes;
    return e;
}

/* Charged and zeroed; freed with the part. */
static enum err part_alloc(struct part *p, size_t count, size_t size, void **out,
                           struct errinfo *ei)
{
    enum err e;

    if (count > SIZE_MAX / 2 / size)
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: %zu items", p->paths[PART_FILE_INDEX], count);
    e = part_charge(p, count * size, ei);
    if (e != ERR_OK)
        return e;
    *out = calloc(count + 1, size);
    if (*out == NULL) {
        (void)errinfo_set(ei, ERR_NOMEM, 0, "%s", p->paths[PART_FILE_INDEX]);
        return ERR_NOMEM;
    }
    return ERR_OK;
}

/* ---- files ---- */

static enum err header_check(struct part *p, enum part_file file, struct file *f, uint64_t size,
                             uint64_t *id, struct errinfo *ei)
{
    uint8_t header[PART_HEADER_SIZE];
    enum err e;

    if (size < PART_HEADER_SIZE)
        return part_corrupt(p, file, size, "the file ends in its header", ei);
    e = file_read(f, header, sizeof header, 0, ei);
    return e == ERR_OK ? part_header_decode(header, file, p->paths[file], id, ei) : e;
}

static enum err footer_read(struct part *p, struct file *f, uint64_t size, struct errinfo *ei)
{
    const char *name = p->paths[PART_FILE_INDEX];
    uint8_t trailer[PART_TRAILER_SIZE], *contents;
    uint32_t toc_size;
    enum err e;

    if (size < PART_HEADER_SIZE + PART_TRAILER_SIZE)
        return part_corrupt(p, PART_FILE_INDEX, size, "the file ends before its footer", ei);
    e = file_read(f, trailer, sizeof trailer, size - sizeof trailer, ei);
    if (e != ERR_OK || (e = part_trailer_decode(trailer, size, name, &toc_size, ei)) != ERR_OK)
        return e;
    contents = malloc(toc_size + sizeof trailer);
    if (contents == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", name);
    e = file_read(f, contents, toc_size + sizeof trailer, size - sizeof trailer - toc_size, ei);
    if (e == ERR_OK)
        e = part_footer_decode(contents, toc_size, size, name, &p->footer, ei);
    free(contents);
    return e;
}

static enum err table_read(struct part *p, enum part_section section, struct file *f,
                           struct errinfo *ei)
{
    struct part_table *t = &p->footer.tables[section];
    size_t size = (size_t)t->count * PART_TABLE_ENTRY_SIZE;
    void *pages = NULL;
    uint8_t *stored;
    enum err e = part_alloc(p, t->count, sizeof *t->pages, &pages, ei);

    t->pages = pages;
    if (e != ERR_OK)
        return e;
    stored = malloc(size + PART_CRC_SIZE);
    if (stored == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", p->paths[PART_FILE_INDEX]);
    e = file_read(f, stored, size + PART_CRC_SIZE, t->offset, ei);
    if (e == ERR_OK &&
        !part_page_is_intact(stored, size + PART_CRC_SIZE, p->footer.info.id, t->offset))
        e = part_corrupt(p, PART_FILE_INDEX, t->offset, "checksum of a table of pages is wrong",
                         ei);
    if (e == ERR_OK && !part_table_decode(stored, size, t->offset, t))
        e = part_corrupt(p, PART_FILE_INDEX, t->offset, "a table of pages names impossible places",
                         ei);
    free(stored);
    return e;
}

static enum err index_open(struct part *p, struct file *f, struct errinfo *ei)
{
    uint64_t size = 0, id = 0;
    enum err e;

    if ((e = file_size(f, &size, ei)) != ERR_OK ||
        (e = header_check(p, PART_FILE_INDEX, f, size, &id, ei)) != ERR_OK ||
        (e = footer_read(p, f, size, ei)) != ERR_OK)
        return e;
    if (p->footer.info.id != id)
        return part_corrupt(p, PART_FILE_INDEX, 16, "header and footer belong to different parts",
                            ei);
    for (uint32_t s = 0; s < PART_SECTION_COUNT && e == ERR_OK; s++)
        e = table_read(p, (enum part_section)s, f, ei);
    return e;
}

static enum err chunks_open(struct part *p, struct file *f, struct errinfo *ei)
{
    uint64_t size = 0, id = 0;
    enum err e;

    if ((e = file_size(f, &size, ei)) != ERR_OK ||
        (e = header_check(p, PART_FILE_CHUNKS, f, size, &id, ei)) != ERR_OK)
        return e;
    if (id != p->footer.info.id)
        return part_corrupt(p, PART_FILE_CHUNKS, 16, "belongs to another index", ei);
    if (size != p->footer.info.chunks_size)
        return part_corrupt(p, PART_FILE_CHUNKS,
                            size < p->footer.info.chunks_size ? size : p->footer.info.chunks_size,
                            "the file has not the size that its index names", ei);
    return ERR_OK;
}

static enum err with_file(struct part *p, enum part_file file,
                          enum err (*run)(struct part *p, struct file *f, struct errinfo *ei),
                          struct errinfo *ei)
{
    struct file *f;
    enum err e = file_cache_acquire(p->store->files, &p->files[file], &f, ei);

    if (e != ERR_OK)
        return e;
    e = run(p, f, ei);
    file_cache_release(p->store->files, &p->files[file]);
    return e;
}

/* ---- names and metrics ---- */

static bool pages_exist(const struct part *p, enum part_section section, uint64_t first,
                        uint64_t count)
{
    uint32_t total = p->footer.tables[section].count;

    return first <= total && count <= total - first;
}

/* Reads a name's numbers. A name without values cannot be; __name__ has no postings. */
static bool name_decode(const struct part *p, struct byte_reader *r, struct part_name_entry *n)
{
    uint64_t size = reader_varint(r), values, pages[4];
    const uint8_t *text = size > reader_left(r) ? NULL : reader_take(r, (size_t)size);

    values = reader_varint(r);
    for (size_t i = 0; i < 4; i++)
        pages[i] = reader_varint(r);
    if (text == NULL || r->failed || values == 0 || values >= PART_NO_VALUE ||
        !pages_exist(p, PART_SECTION_VALUES, pages[0], pages[1]) || pages[1] == 0 ||
        !pages_exist(p, PART_SECTION_POSTINGS, pages[2], pages[3]))
        return false;
    *n = (struct part_name_entry){.text = {(const char *)text, (size_t)size},
                                  .value_count = (uint32_t)values,
                                  .value_page = (uint32_t)pages[0],
                                  .value_page_count = (uint32_t)pages[1],
                                  .posting_page = (uint32_t)pages[2],
                                  .posting_page_count = (uint32_t)pages[3]};
    return true;
}

static bool names_decode(struct part *p, size_t size)
{
    struct byte_reader r = reader_init(p->names_text, size);

    p->metric_name = PART_NO_NAME;
    (void)reader_u8(&r);
    for (uint32_t i = 0; i < p->footer.name_count; i++) {
        struct part_name_entry *n = &p->names[i];

        if (!name_decode(p, &r, n) || (i > 0 && str_compare(n[-1].text, n->text) >= 0))
            return false;
        if (str_equal(n->text, LABEL_METRIC_NAME))
            p->metric_name = i;
        else if (n->posting_page_count == 0)
            return false;
    }
    return reader_left(&r) == 0 &&
           p->footer.metric_count ==
               (p->metric_name == PART_NO_NAME ? 0 : p->names[p->metric_name].value_count);
}

static enum err names_read(struct part *p, struct errinfo *ei)
{
    enum { NAME_BYTES_MIN = 6 };
    void *names = NULL, *text = NULL;
    struct page *page;
    size_t size;
    enum err e = part_page_get(p, PART_SECTION_NAMES, 0, &page, ei);

    if (e != ERR_OK)
        return e;
    size = page->size - PART_CRC_SIZE;
    if (p->footer.name_count > size / NAME_BYTES_MIN)
        e = part_page_corrupt(p, PART_SECTION_NAMES, 0, ei);
    if (e == ERR_OK)
        e = part_alloc(p, p->footer.name_count, sizeof *p->names, &names, ei);
    p->names = names;
    if (e == ERR_OK)
        e = part_alloc(p, size, 1, &text, ei);
    p->names_text = text;
    if (e == ERR_OK) {
        ASSERT(p->names_text != NULL);
        memcpy(p->names_text, page->data, size);
        if (!names_decode(p, size))
            e = part_page_corrupt(p, PART_SECTION_NAMES, 0, ei);
    }
    page_release(page);
    return e;
}

static enum err metrics_page_read(struct part *p, uint32_t index, uint32_t *series,
                                  struct errinfo *ei)
{
    uint32_t counts[PART_METRICS_PER_PAGE], first = index * PART_METRICS_PER_PAGE;
    uint32_t n = p->footer.metric_count - first;
    struct byte_reader r;
    struct page *page;
    enum err e = part_page_get(p, PART_SECTION_METRICS, index, &page, ei);

    if (e != ERR_OK)
        return e;
    n = n < PART_METRICS_PER_PAGE ? n : PART_METRICS_PER_PAGE;
    r = part_page_reader(page);
    if (!part_ints_get(&r, n, p->footer.info.series_count, counts) || reader_left(&r) != 0)
        e = part_page_corrupt(p, PART_SECTION_METRICS, index, ei);
    for (uint32_t i = 0; i < n && e == ERR_OK; i++) {
        p->metric_starts[first + i] = *series;
        if (counts[i] == 0 || counts[i] > p->footer.info.series_count - *series)
            e = part_page_corrupt(p, PART_SECTION_METRICS, index, ei);
        else
            *series += counts[i];
    }
    page_release(page);
    return e;
}

static enum err metrics_read(struct part *p, struct errinfo *ei)
{
    uint32_t series = p->footer.unnamed_count;
    void *starts = NULL;
    enum err e =
        part_alloc(p, (size_t)p->footer.metric_count + 1, sizeof *p->metric_starts, &starts, ei);

    p->metric_starts = starts;
    for (uint32_t i = 0; i < p->footer.tables[PART_SECTION_METRICS].count && e == ERR_OK; i++)
        e = metrics_page_read(p, i, &series, ei);
    if (e != ERR_OK)
        return e;
    p->metric_starts[p->footer.metric_count] = series;
    if (series != p->footer.info.series_count)
        return part_corrupt(p, PART_FILE_INDEX, p->footer.tables[PART_SECTION_METRICS].offset,
                            "series of the metrics do not add up", ei);
    return ERR_OK;
}

uint32_t part_metric_of(const struct part *p, uint32_t series)
{
    uint32_t low = 0, high = p->footer.metric_count;

    if (series < p->footer.unnamed_count)
        return PART_NO_VALUE;
    while (low + 1 < high) {
        uint32_t mid = low + (high - low) / 2;

        if (p->metric_starts[mid] <= series)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* ---- life ---- */

static enum err part_load(struct part *p, const char *dir, const struct part_key *key,
                          struct errinfo *ei)
{
    enum err e;

    for (size_t file = 0; file < 2; file++) {
        p->paths[file] = part_path_new(dir, key, (enum part_file)file, false);
        if (p->paths[file] == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "part in %s", dir);
        p->files[file].path = p->paths[file];
        /* relaxed: only has to differ */
        p->cache_ids[file] =
            atomic_fetch_add_explicit(&p->store->next_file, 1, memory_order_relaxed);
    }
    p->decoded_id = atomic_fetch_add_explicit(&p->store->next_file, 1, memory_order_relaxed);
    if ((e = with_file(p, PART_FILE_INDEX, index_open, ei)) != ERR_OK ||
        (e = with_file(p, PART_FILE_CHUNKS, chunks_open, ei)) != ERR_OK)
        return e;
    if (!part_key_equal(&p->footer.info.key, key))
        return part_corrupt(p, PART_FILE_INDEX, p->footer.info.index_size,
                            "the footer names another key than the file's name", ei);
    e = names_read(p, ei);
    return e == ERR_OK ? metrics_read(p, ei) : e;
}

enum err part_open(struct part_store *s, const char *dir, const struct part_key *key,
                   struct part **out, struct errinfo *ei)
{
    struct part *p = calloc(1, sizeof *p);
    enum err e;

    if (p == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "part in %s", dir);
    p->store = s;
    e = part_charge(p, sizeof *p, ei);
    if (e == ERR_OK)
        e = part_load(p, dir, key, ei);
    if (e == ERR_OK)
        *out = TAKE(p);
    part_close(p);
    return e;
}

void part_close(struct part *p)
{
    if (p == NULL)
        return;
    for (size_t file = 0; file < 2; file++) {
        if (p->cache_ids[file] != 0)
            page_cache_drop_file(p->store->pages, p->cache_ids[file]);
        file_cache_drop(p->store->files, &p->files[file]);
        free(p->paths[file]);
    }
    if (p->decoded_id != 0)
        page_cache_drop_file(p->store->pages, p->decoded_id);
    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++)
        free(p->footer.tables[s].pages);
    free(p->names);
    free(p->names_text);
    free(p->metric_starts);
    if (p->store->memory != NULL)
        budget_release(p->store->memory, p->charged_bytes);
    free(p);
}

const struct part_info *part_info(const struct part *p)
{
    return &p->footer.info;
}
