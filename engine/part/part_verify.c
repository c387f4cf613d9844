/*
 * Checks every byte of a part. Regions first: every page's checksum, and that header, pages, tables
 * and footer fill the files without a gap. Then meaning: order, look-up tables against what they
 * index, and every column against its entry.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/histogram_chunk.h"
#include "engine/part/part_store_internal.h"

struct verify {
    struct part *p;
    const _Atomic bool *stop;
    struct arena arena;      /* reset between steps */
    struct arena histograms; /* of one chunk */
    struct codec_column {
        int64_t t_ms[CODEC_SAMPLES_MAX];
        double value[CODEC_SAMPLES_MAX];
    } * column; /* owned */
    struct errinfo *ei;
};

static enum err check_stop(const struct verify *v)
{
    /* relaxed: a flag that orders nothing */
    if (v->stop != NULL && atomic_load_explicit(v->stop, memory_order_relaxed))
        return errinfo_set(v->ei, ERR_CANCELED, 0, "verification was stopped");
    return ERR_OK;
}

/* ---- regions ---- */

struct region {
    uint64_t offset, size;
    bool is_page; /* else a table, which part_open() has checked */
};

static int compare_regions(const void *a, const void *b)
{
    uint64_t x = ((const struct region *)a)->offset, y = ((const struct region *)b)->offset;

    return (x > y) - (x < y);
}

/* Regions ascend and touch, from the header's end to `end`. */
static enum err check_touching(struct verify *v, enum part_file file, struct region *regions,
                               size_t count, uint64_t end)
{
    uint64_t at = PART_HEADER_SIZE;

    qsort(regions, count, sizeof *regions, compare_regions);
    for (size_t i = 0; i < count; i++) {
        if (regions[i].offset != at)
            return part_corrupt(v->p, file, at < regions[i].offset ? at : regions[i].offset,
                                "pages overlap, or bytes belong to none", v->ei);
        at += regions[i].size;
    }
    return at == end
               ? ERR_OK
               : part_corrupt(v->p, file, at, "bytes behind the last page belong to none", v->ei);
}

static uint64_t footer_offset(const struct part *p)
{
    uint64_t at = 0;

    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++) {
        const struct part_table *t = &p->footer.tables[s];
        uint64_t end = t->offset + (uint64_t)t->count * PART_TABLE_ENTRY_SIZE + PART_CRC_SIZE;

        at = end > at ? end : at;
    }
    return at;
}

/* All pages and tables of the index, in no order. */
static size_t regions_collect(const struct part *p, struct region *out)
{
    const struct part_table *tables = p->footer.tables;
    size_t n = 0;

    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++) {
        for (uint32_t i = 0; i < tables[s].count; i++)
            out[n++] = (struct region){tables[s].pages[i].offset, tables[s].pages[i].size, true};
        out[n++] = (struct region){
            tables[s].offset, (uint64_t)tables[s].count * PART_TABLE_ENTRY_SIZE + PART_CRC_SIZE,
            false};
    }
    return n;
}

/* Pages by ascending offset, so that the error names the first bad one. */
static enum err regions_read(struct verify *v, const struct region *regions, size_t count)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        struct part_page_request r = {PART_FILE_INDEX, regions[i].offset, (uint32_t)regions[i].size,
                                      NULL};

        if (!regions[i].is_page)
            continue;
        e = part_pages_get(v->p, &r, 1, v->ei);
        page_release(r.page);
        if (e == ERR_OK)
            e = check_stop(v);
    }
    return e;
}

static enum err verify_index_regions(struct verify *v)
{
    struct region *regions;
    size_t count = 0;
    enum err e;

    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++)
        count += (size_t)v->p->footer.tables[s].count + 1;
    regions = calloc(count, sizeof *regions);
    if (regions == NULL)
        return errinfo_set(v->ei, ERR_NOMEM, 0, "verification");
    count = regions_collect(v->p, regions);
    e = check_touching(v, PART_FILE_INDEX, regions, count, footer_offset(v->p));
    if (e == ERR_OK)
        e = regions_read(v, regions, count);
    free(regions);
    return e;
}

/* ---- dictionaries, entities, postings ---- */

static enum err verify_values(struct verify *v, uint32_t name)
{
    struct part_value_cursor c;
    struct byte_writer previous;
    enum err e = ERR_OK;

    writer_init(&previous);
    part_value_cursor_init(&c, v->p, name);
    for (uint32_t i = 0; i < v->p->names[name].value_count && e == ERR_OK; i++) {
        struct str text, again;

        e = part_value_cursor_get(&c, i, &text, v->ei);
        if (e == ERR_OK &&
            (text.size == 0 ||
             (i > 0 &&
              str_compare((struct str){(const char *)previous.data, previous.size}, text) >= 0)))
            e = part_page_corrupt(v->p, PART_SECTION_VALUES, c.page_index, v->ei);
        if (e != ERR_OK)
            break;
        writer_reset(&previous);
        writer_append(&previous, text.data, text.size);
        if ((i - c.page_first) % PART_RESTART != 0)
            continue;
        c.next = UINT32_MAX; /* reached by its restart, it is the same text */
        e = part_value_cursor_get(&c, i, &again, v->ei);
        if (e == ERR_OK &&
            (previous.failed ||
             !str_equal(again, (struct str){(const char *)previous.data, previous.size})))
            e = part_page_corrupt(v->p, PART_SECTION_VALUES, c.page_index, v->ei);
        if (e == ERR_OK)
            e = check_stop(v);
    }
    part_value_cursor_done(&c);
    writer_done(&previous);
    return e;
}

/* Value of `name` of every entity, PART_NO_VALUE where it has none. */
static enum err entity_values(struct verify *v, uint32_t name, uint32_t *values, uint64_t *count)
{
    struct arena scratch;
    enum err e = ERR_OK;

    *count = 0;
    arena_init(&scratch, v->p->store->memory);
    for (uint32_t i = 0; i < v->p->footer.tables[PART_SECTION_ENTITIES].count && e == ERR_OK; i++) {
        struct part_entity_page page;

        arena_reset(&scratch);
        e = part_entity_page_read(v->p, i, &scratch, &page, v->ei);
        for (uint32_t k = 0; e == ERR_OK && k < page.count; k++) {
            const struct part_schema *s = &page.schemas[page.schema[k]];

            values[page.first + k] = PART_NO_VALUE;
            for (uint32_t n = 0; n < s->name_count; n++) {
                if (s->names[n] == name)
                    values[page.first + k] = s->values[(size_t)n * s->entity_count + page.row[k]];
            }
            *count += values[page.first + k] != PART_NO_VALUE;
        }
        if (e == ERR_OK)
            e = check_stop(v);
    }
    arena_done(&scratch);
    return e;
}

/* Each posting is right, lists ascend, and there are as many as there should be: so none lacks. */
static enum err verify_postings(struct verify *v, uint32_t name)
{
    const struct part_name_entry *n = &v->p->names[name];
    uint32_t *values = ARENA_ARRAY(&v->arena, v->p->footer.info.entity_count, uint32_t);
    struct part_postings_page page = {.page = NULL};
    uint64_t expected, found = 0, last = 0; /* last: value << 32 | entity, plus 1 */
    enum err e;

    if (values == NULL)
        return arena_error(&v->arena, v->ei);
    e = entity_values(v, name, values, &expected);
    for (uint32_t i = 0; i < n->posting_page_count && e == ERR_OK; i++) {
        e = part_postings_get(v->p, n->posting_page + i, &page, v->ei);
        for (uint32_t k = 0; e == ERR_OK && k < page.value_count; k++) {
            for (uint32_t j = page.starts[k]; j < page.starts[k + 1] && e == ERR_OK; j++) {
                uint32_t value = page.first_value + k, entity = page.entities[j];
                uint64_t key = ((uint64_t)value << 32 | entity) + 1;

                if (key <= last || values[entity] != value)
                    e = part_page_corrupt(v->p, PART_SECTION_POSTINGS, n->posting_page + i, v->ei);
                last = key;
                found++;
            }
        }
        page_release(page.page);
        page.page = NULL;
    }
    if (e == ERR_OK && found != expected)
        e = part_page_corrupt(v->p, PART_SECTION_POSTINGS, n->posting_page, v->ei);
    return e;
}

static enum err verify_names(struct verify *v)
{
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < v->p->footer.name_count && e == ERR_OK; i++) {
        arena_reset(&v->arena);
        e = verify_values(v, i);
        if (e == ERR_OK && i != v->p->metric_name)
            e = verify_postings(v, i);
    }
    return e;
}

/* ---- timestamps, series, chunks ---- */

static enum err verify_times_page(struct verify *v, uint32_t index, uint32_t *next)
{
    struct part_times_view view;
    enum err e;

    arena_reset(&v->arena);
    e = part_times_page_read(v->p, index, &v->arena, &view, v->ei);
    if (e != ERR_OK)
        return e;
    if (view.first != *next)
        e = part_page_corrupt(v->p, PART_SECTION_TIMES, index, v->ei);
    for (uint32_t i = 0; i < view.count && e == ERR_OK; i++) {
        int64_t *t = v->column->t_ms;
        uint32_t n = view.samples[i];
        bool good = codec_times_decode(view.bytes + view.starts[i], view.sizes[i], n, t) &&
                    t[0] == view.min_times[i] && t[n - 1] == view.max_times[i];

        for (uint32_t k = 1; good && k < n; k++)
            good = t[k - 1] < t[k];
        if (!good)
            e = part_page_corrupt(v->p, PART_SECTION_TIMES, index, v->ei);
    }
    *next += view.count;
    page_release(view.page);
    return e == ERR_OK ? check_stop(v) : e;
}

static enum err verify_times(struct verify *v)
{
    uint32_t next = 0;
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < v->p->footer.tables[PART_SECTION_TIMES].count && e == ERR_OK; i++)
        e = verify_times_page(v, i, &next);
    return e;
}

/* Data pages fill the chunks file, and all of them are intact. */
static enum err verify_data_pages(struct verify *v)
{
    uint64_t at = PART_HEADER_SIZE, chunks = 0;
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < v->p->footer.tables[PART_SECTION_CHUNKS].count && e == ERR_OK; i++) {
        struct part_chunk_page page;

        arena_reset(&v->arena);
        e = part_chunk_page_read(v->p, i, &v->arena, &page, v->ei);
        for (uint32_t k = 0; e == ERR_OK && k < page.chunk_count; k++) {
            const struct part_chunk *c = &page.chunks[k];
            struct part_page_request r = {PART_FILE_CHUNKS, c->page_offset, c->page_size, NULL};

            if (k > 0 && c->page_offset == page.chunks[k - 1].page_offset)
                continue;
            if (c->page_offset != at)
                e = part_page_corrupt(v->p, PART_SECTION_CHUNKS, i, v->ei);
            if (e == ERR_OK)
                e = part_pages_get(v->p, &r, 1, v->ei);
            page_release(r.page);
            at += c->page_size;
        }
        chunks += page.chunk_count;
        if (e == ERR_OK)
            e = check_stop(v);
    }
    if (e == ERR_OK &&
        (at != v->p->footer.info.chunks_size || chunks != v->p->footer.info.chunk_count))
        e = part_corrupt(v->p, PART_FILE_CHUNKS, at, "bytes behind the last page belong to none",
                         v->ei);
    return e;
}

/* Labels, by value, of the series before. */
struct previous {
    struct arena arena;
    struct labels labels;
    bool there;
};

static enum err previous_set(struct verify *v, struct previous *p, const struct labels *l)
{
    struct label *items;

    arena_reset(&p->arena);
    items = ARENA_ARRAY(&p->arena, l->count, struct label);
    if (items == NULL)
        return arena_error(&p->arena, v->ei);
    for (size_t i = 0; i < l->count; i++) {
        char *name = arena_memdup0(&p->arena, l->items[i].name.data, l->items[i].name.size);
        char *value = arena_memdup0(&p->arena, l->items[i].value.data, l->items[i].value.size);

        if (name == NULL || value == NULL)
            return arena_error(&p->arena, v->ei);
        items[i] = (struct label){{name, l->items[i].name.size}, {value, l->items[i].value.size}};
    }
    p->labels = (struct labels){l->count, items};
    p->there = true;
    return ERR_OK;
}

struct totals {
    uint64_t samples;
    int64_t min_time_ms, max_time_ms;
};

/* The entry says where it is; only errors look it up. */
static enum err chunk_corrupt(struct verify *v, const struct part_series *s, size_t index)
{
    struct part_chunk_list list = {0};
    uint64_t offset = 0;
    enum err e;

    arena_reset(&v->arena);
    e = part_chunks(v->p, &s->series, 1, INT64_MIN, INT64_MAX, &v->arena, &list, v->ei);
    if (e != ERR_OK)
        return e;
    if (index < list.count)
        offset = list.items[index].page_offset + list.items[index].data_offset;
    return errinfo_set_at(v->ei, ERR_CORRUPT, v->p->paths[PART_FILE_CHUNKS], offset,
                          "a column of values of series %" PRIu32 " does not decode", s->series);
}

/* A series' first histogram cannot know of a sample before it. */
static enum err verify_histograms(struct verify *v, const struct part_series *s, size_t index,
                                  struct bytes column)
{
    struct histogram *h = NULL;
    enum err e;

    arena_reset(&v->histograms);
    e = histogram_chunk_decode(column, s->chunks[index].sample_count, &v->histograms, &h, v->ei);
    if (e == ERR_OK && index == 0 && histogram_hint_at_border(h->hint) != h->hint)
        e = ERR_CORRUPT;
    return e == ERR_CORRUPT ? chunk_corrupt(v, s, index) : e;
}

static enum err verify_chunk(struct verify *v, const struct part_series *s, size_t index,
                             struct totals *totals)
{
    const struct part_chunk_raw *c = &s->chunks[index];
    const uint8_t *at = c->columns.data;

    for (uint32_t k = 0; k < c->column_count; k++) {
        if (c->column_kind[k] == PART_COLUMN_VALUES &&
            !codec_values_decode(at, c->column_size[k], c->sample_count, v->column->value))
            return chunk_corrupt(v, s, index);
        if (c->column_kind[k] == PART_COLUMN_HISTOGRAMS) {
            enum err e = verify_histograms(v, s, index, (struct bytes){at, c->column_size[k]});

            if (e != ERR_OK)
                return e;
        }
        at += c->column_size[k];
    }
    totals->samples += c->sample_count;
    if (c->min_time_ms < totals->min_time_ms)
        totals->min_time_ms = c->min_time_ms;
    if (c->max_time_ms > totals->max_time_ms)
        totals->max_time_ms = c->max_time_ms;
    return ERR_OK;
}

static enum err verify_series(struct verify *v, const struct part_series *s,
                              struct previous *previous, struct totals *totals)
{
    uint32_t found = PART_NO_SERIES;
    enum err e = ERR_OK;

    if (!labels_are_canonical(&s->labels) ||
        (previous->there && part_labels_compare(&previous->labels, &s->labels) >= 0))
        return part_page_corrupt(v->p, PART_SECTION_REFS, s->series / PART_REFS_PER_PAGE, v->ei);
    e = part_find(v->p, &s->fingerprint, 1, &found, v->ei);
    if (e == ERR_OK && found != s->series)
        e = part_page_corrupt(v->p, PART_SECTION_PRINTS, s->series / PART_PRINTS_PER_PAGE, v->ei);
    for (size_t i = 0; i < s->chunk_count && e == ERR_OK; i++)
        e = verify_chunk(v, s, i, totals);
    if (e == ERR_OK)
        e = previous_set(v, previous, &s->labels);
    return e == ERR_OK ? check_stop(v) : e;
}

static enum err verify_all_series(struct verify *v)
{
    const struct part_info *info = &v->p->footer.info;
    struct totals totals = {0, INT64_MAX, INT64_MIN};
    const struct part_series *s = NULL;
    struct previous previous = {.there = false};
    struct part_iter *it = NULL;
    enum err e = part_iter_new(v->p, &it, v->ei);

    arena_init(&previous.arena, v->p->store->memory);
    while (e == ERR_OK) {
        e = part_iter_next(it, &s, v->ei);
        if (e != ERR_OK || s == NULL)
            break;
        e = verify_series(v, s, &previous, &totals);
    }
    part_iter_free(it);
    arena_done(&previous.arena);
    if (e == ERR_OK &&
        (totals.samples != info->sample_count || totals.min_time_ms != info->min_time_ms ||
         totals.max_time_ms != info->max_time_ms))
        e = part_corrupt(v->p, PART_FILE_INDEX, footer_offset(v->p),
                         "samples or times differ from what the footer says", v->ei);
    return e;
}

/* ---- all ---- */

static enum err verify_run(struct verify *v)
{
    enum err e;

    v->column = malloc(sizeof *v->column);
    if (v->column == NULL)
        return errinfo_set(v->ei, ERR_NOMEM, 0, "verification");
    arena_init(&v->arena, v->p->store->memory);
    arena_init(&v->histograms, v->p->store->memory);
    if ((e = verify_index_regions(v)) == ERR_OK && (e = verify_data_pages(v)) == ERR_OK &&
        (e = verify_times(v)) == ERR_OK && (e = verify_names(v)) == ERR_OK)
        e = verify_all_series(v);
    arena_done(&v->histograms);
    arena_done(&v->arena);
    free(v->column);
    return e;
}

enum err part_verify(struct part_store *s, const char *dir, const struct part_key *key,
                     const _Atomic bool *stop, struct part_info *out, struct errinfo *ei)
{
    /* A store of its own that caches nothing: what is checked is what stands in the file. */
    struct part_store_options o = {
        .fs = s->fs, .memory = s->memory, .cache_bytes = 0, .descriptor_count = 2};
    struct verify v = {.stop = stop, .ei = ei};
    struct part_store *own = NULL;
    enum err e = part_store_new(&o, &own, ei);

    if (e == ERR_OK)
        e = part_open(own, dir, key, &v.p, ei);
    if (e == ERR_OK)
        e = verify_run(&v);
    if (e == ERR_OK)
        *out = v.p->footer.info;
    part_close(v.p);
    part_store_free(own);
    return e;
}
