/*
 * From series to labels. A series is a metric, known by the series' number, and an entity, known
 * by the page of references; entities stand in pages of columns. Whatever a call asks for is put in
 * the order of entities first, so that each page is decoded once.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"

/* ---- references ---- */

static enum err refs_decode(struct part *p, uint32_t index, uint32_t count, struct page **out,
                            struct errinfo *ei)
{
    struct byte_reader r;
    struct page *page, *decoded = NULL;
    enum err e = part_page_get(p, PART_SECTION_REFS, index, &page, ei);

    if (e != ERR_OK)
        return e;
    r = part_page_reader(page);
    e = part_decoded_new(p, PART_SECTION_REFS, index, count * sizeof(uint32_t), &decoded, ei);
    if (e == ERR_OK && (p->footer.info.entity_count == 0 ||
                        !part_ints_get(&r, count, p->footer.info.entity_count - 1,
                                       (uint32_t *)(void *)decoded->data) ||
                        reader_left(&r) != 0))
        e = part_page_corrupt(p, PART_SECTION_REFS, index, ei);
    page_release(page);
    if (e == ERR_OK)
        *out = part_decoded_keep(p, TAKE(decoded));
    page_release(decoded);
    return e;
}

enum err part_refs_seek(struct part *p, uint32_t series, struct part_refs *r, struct errinfo *ei)
{
    uint32_t index = series / PART_REFS_PER_PAGE, left;

    ASSERT(series < p->footer.info.series_count);
    if (r->page != NULL && r->first == index * PART_REFS_PER_PAGE)
        return ERR_OK;
    page_release(r->page);
    r->first = index * PART_REFS_PER_PAGE;
    left = p->footer.info.series_count - r->first;
    r->count = left < PART_REFS_PER_PAGE ? left : PART_REFS_PER_PAGE;
    r->page = part_decoded_find(p, PART_SECTION_REFS, index);
    if (r->page == NULL) {
        enum err e = refs_decode(p, index, r->count, &r->page, ei);

        if (e != ERR_OK)
            return e;
    }
    r->entities = (const uint32_t *)(const void *)r->page->data;
    return ERR_OK;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void sort_keys(uint64_t *keys, size_t count)
{
    bool sorted = true;

    for (size_t i = 1; i < count; i++)
        sorted &= keys[i - 1] <= keys[i];
    if (!sorted)
        qsort(keys, count, sizeof *keys, compare_keys);
}

/* Fills keys with entity << 32 | item, ascending. */
static enum err entities_of(struct part *p, const uint32_t *series, size_t count, uint64_t *keys,
                            struct errinfo *ei)
{
    struct part_refs refs = {.page = NULL};
    enum err e = ERR_OK;

    for (size_t i = 0; i < count; i++)
        keys[i] = (uint64_t)series[i] << 32 | i;
    sort_keys(keys, count);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        uint32_t s = (uint32_t)(keys[i] >> 32);

        e = part_refs_seek(p, s, &refs, ei);
        if (e == ERR_OK)
            keys[i] = (uint64_t)refs.entities[s - refs.first] << 32 | (keys[i] & UINT32_MAX);
    }
    page_release(refs.page);
    sort_keys(keys, count);
    return e;
}

/* ---- pages of entities ---- */

/* These give ERR_CORRUPT or ERR_NOMEM (the arena refused); the caller tells the story. */
static enum err schema_names_decode(const struct part *p, struct byte_reader *r,
                                    struct arena *arena, struct part_schema *s)
{
    uint64_t count = reader_varint(r);

    if (r->failed || count > reader_left(r))
        return ERR_CORRUPT;
    s->name_count = (uint32_t)count;
    s->names = ARENA_ARRAY(arena, count, uint32_t);
    if (s->names == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < s->name_count; i++) {
        uint64_t name = reader_varint(r);

        if (name >= p->footer.name_count || name == p->metric_name ||
            (i > 0 && name <= s->names[i - 1]))
            return ERR_CORRUPT;
        s->names[i] = (uint32_t)name;
    }
    return r->failed ? ERR_CORRUPT : ERR_OK;
}

static enum err schema_values_decode(const struct part *p, struct byte_reader *r,
                                     struct arena *arena, struct part_schema *s)
{
    s->values =
        arena_alloc_array(arena, (size_t)s->name_count * s->entity_count, sizeof *s->values);
    if (s->values == NULL)
        return ERR_NOMEM;
    for (uint32_t k = 0; k < s->name_count; k++) {
        if (!part_ints_get(r, s->entity_count, p->names[s->names[k]].value_count - 1,
                           s->values + (size_t)k * s->entity_count))
            return ERR_CORRUPT;
    }
    return ERR_OK;
}

static enum err entity_page_decode(const struct part *p, struct byte_reader *r, struct arena *arena,
                                   struct part_entity_page *out)
{
    uint64_t schema_count = reader_varint(r);
    enum err e;

    if (r->failed || schema_count == 0 || schema_count > out->count)
        return ERR_CORRUPT;
    out->schema_count = (uint32_t)schema_count;
    out->schemas = arena_calloc(arena, schema_count, sizeof *out->schemas);
    out->schema = arena_calloc(arena, out->count, sizeof *out->schema);
    out->row = ARENA_ARRAY(arena, out->count, uint32_t);
    if (out->schemas == NULL || out->schema == NULL || out->row == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < out->schema_count; i++) {
        e = schema_names_decode(p, r, arena, &out->schemas[i]);
        if (e != ERR_OK)
            return e;
    }
    if (out->schema_count > 1 && !part_ints_get(r, out->count, out->schema_count - 1, out->schema))
        return ERR_CORRUPT;
    for (uint32_t i = 0; i < out->count; i++)
        out->row[i] = out->schemas[out->schema[i]].entity_count++;
    for (uint32_t i = 0; i < out->schema_count; i++) {
        e = schema_values_decode(p, r, arena, &out->schemas[i]);
        if (e != ERR_OK)
            return e;
    }
    return reader_left(r) == 0 ? ERR_OK : ERR_CORRUPT;
}

enum err part_entity_page_read(struct part *p, uint32_t index, struct arena *arena,
                               struct part_entity_page *out, struct errinfo *ei)
{
    struct byte_reader r;
    struct page *page;
    enum err e = part_page_get(p, PART_SECTION_ENTITIES, index, &page, ei);

    if (e != ERR_OK)
        return e;
    memset(out, 0, sizeof *out);
    out->first = index * PART_ENTITIES_PER_PAGE;
    out->count = p->footer.info.entity_count - out->first;
    if (out->count > PART_ENTITIES_PER_PAGE)
        out->count = PART_ENTITIES_PER_PAGE;
    r = part_page_reader(page);
    e = entity_page_decode(p, &r, arena, out);
    if (e != ERR_OK)
        e = e == ERR_NOMEM ? arena_error(arena, ei)
                           : part_page_corrupt(p, PART_SECTION_ENTITIES, index, ei);
    page_release(page);
    return e;
}

/* ---- texts of values, each made once a call ---- */

struct text_entry {
    uint64_t key; /* name << 32 | value, plus 1: 0 is empty */
    struct str text;
};
struct text_table {
    struct part *part;
    struct arena *arena; /* of the texts */
    struct arena own;    /* of entries and cursors; the same budget */
    struct text_entry *entries;
    size_t capacity, used;
    struct part_value_cursor *cursors; /* by name, so that neighbours are cheap */
    size_t cursor_count;
};

static enum err text_table_init(struct text_table *t, struct part *p, struct arena *arena,
                                struct errinfo *ei)
{
    memset(t, 0, sizeof *t);
    t->part = p;
    t->arena = arena;
    t->capacity = 256;
    arena_init(&t->own, arena->budget);
    t->entries = arena_calloc(&t->own, t->capacity, sizeof *t->entries);
    t->cursors = arena_calloc(&t->own, p->footer.name_count, sizeof *t->cursors);
    if (t->entries == NULL || t->cursors == NULL) {
        enum err e = arena_error(&t->own, ei);

        arena_done(&t->own);
        return e;
    }
    t->cursor_count = p->footer.name_count;
    return ERR_OK;
}

static void text_table_done(struct text_table *t)
{
    for (size_t i = 0; i < t->cursor_count; i++) {
        if (t->cursors[i].part != NULL)
            part_value_cursor_done(&t->cursors[i]);
    }
    arena_done(&t->own);
}

static struct text_entry *text_slot(const struct text_table *t, uint64_t key)
{
    size_t at = (key * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (t->capacity - 1);

    while (t->entries[at].key != 0 && t->entries[at].key != key)
        at = (at + 1) & (t->capacity - 1);
    return &t->entries[at];
}

static bool text_table_grow(struct text_table *t)
{
    struct text_table grown = *t;

    if (t->used < t->capacity / 2)
        return true;
    grown.capacity = t->capacity * 2;
    grown.entries = arena_calloc(&t->own, grown.capacity, sizeof *grown.entries);
    if (grown.entries == NULL)
        return false;
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->entries[i].key != 0)
            *text_slot(&grown, t->entries[i].key) = t->entries[i];
    }
    t->entries = grown.entries; /* the old ones go with the arena: half as much at most */
    t->capacity = grown.capacity;
    return true;
}

static enum err text_get(struct text_table *t, uint32_t name, uint32_t value, struct str *out,
                         struct errinfo *ei)
{
    uint64_t key = ((uint64_t)name << 32 | value) + 1;
    struct text_entry *slot;
    struct str text;
    char *copy;
    enum err e;

    if (!text_table_grow(t))
        return arena_error(&t->own, ei);
    slot = text_slot(t, key);
    if (slot->key != 0) {
        *out = slot->text;
        return ERR_OK;
    }
    if (t->cursors[name].part == NULL)
        part_value_cursor_init(&t->cursors[name], t->part, name);
    e = part_value_cursor_get(&t->cursors[name], value, &text, ei);
    if (e != ERR_OK)
        return e;
    copy = arena_memdup0(t->arena, text.data, text.size);
    if (copy == NULL)
        return arena_error(t->arena, ei);
    *slot = (struct text_entry){key, {copy, text.size}};
    t->used++;
    *out = slot->text;
    return ERR_OK;
}

/* ---- walking the entities of some series ---- */

/* What a call does with one series: its metric and its entity in a decoded page. */
struct series_view {
    size_t item;
    uint32_t metric; /* PART_NO_VALUE: none */
    const struct part_entity_page *page;
    uint32_t entity; /* in the page */
};
struct label_request {
    struct part *part;
    const uint32_t *series;
    size_t count;
    struct arena *arena;
    struct text_table texts;
    struct errinfo *ei;
    enum err (*visit)(struct label_request *q, const struct series_view *v);
    /* of the visitor */
    struct labels *labels;
    struct str *names_text; /* texts of all names, in the arena, made as needed */
    const struct str *names;
    size_t name_count;
    uint32_t *name_numbers;
    struct str *values;
};

static enum err request_walk(struct label_request *q, const uint64_t *keys, struct arena *scratch)
{
    struct part_entity_page page = {0};
    bool loaded = false;

    for (size_t i = 0; i < q->count; i++) {
        uint32_t entity = (uint32_t)(keys[i] >> 32);
        struct series_view v = {.item = keys[i] & UINT32_MAX, .page = &page};
        enum err e = ERR_OK;

        if (!loaded || entity - page.first >= page.count) {
            arena_reset(scratch);
            e = part_entity_page_read(q->part, entity / PART_ENTITIES_PER_PAGE, scratch, &page,
                                      q->ei);
            loaded = true;
        }
        if (e != ERR_OK)
            return e;
        ASSERT(page.schema != NULL && page.row != NULL);
        v.entity = entity - page.first;
        v.metric = part_metric_of(q->part, q->series[v.item]);
        e = q->visit(q, &v);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err request_run(struct label_request *q)
{
    struct arena scratch;
    uint64_t *keys;
    enum err e;

    if (q->count == 0)
        return ERR_OK;
    keys = ARENA_ARRAY(q->arena, q->count, uint64_t);
    if (keys == NULL)
        return arena_error(q->arena, q->ei);
    e = entities_of(q->part, q->series, q->count, keys, q->ei);
    if (e != ERR_OK || (e = text_table_init(&q->texts, q->part, q->arena, q->ei)) != ERR_OK)
        return e;
    arena_init(&scratch, q->arena->budget);
    e = request_walk(q, keys, &scratch);
    arena_done(&scratch);
    text_table_done(&q->texts);
    return e;
}

/* ---- whole label sets ---- */

static enum err name_text(struct label_request *q, uint32_t name, struct str *out)
{
    if (q->names_text[name].data == NULL) {
        struct str text = q->part->names[name].text;
        char *copy = arena_memdup0(q->arena, text.data, text.size);

        if (copy == NULL)
            return arena_error(q->arena, q->ei);
        q->names_text[name] = (struct str){copy, text.size};
    }
    *out = q->names_text[name];
    return ERR_OK;
}

static enum err put_label(struct label_request *q, uint32_t name, uint32_t value, struct label *out)
{
    enum err e = name_text(q, name, &out->name);

    return e == ERR_OK ? text_get(&q->texts, name, value, &out->value, q->ei) : e;
}

static enum err visit_labels(struct label_request *q, const struct series_view *v)
{
    const struct part_schema *s = &v->page->schemas[v->page->schema[v->entity]];
    uint32_t row = v->page->row[v->entity], count = 0;
    bool metric_due = v->metric != PART_NO_VALUE;
    struct label *items = ARENA_ARRAY(q->arena, (size_t)s->name_count + 1, struct label);
    enum err e = ERR_OK;

    if (items == NULL)
        return arena_error(q->arena, q->ei);
    for (uint32_t k = 0; k <= s->name_count && e == ERR_OK; k++) {
        bool last = k == s->name_count;

        if (metric_due && (last || s->names[k] > q->part->metric_name)) {
            e = put_label(q, q->part->metric_name, v->metric, &items[count++]);
            metric_due = false;
        }
        if (e == ERR_OK && !last)
            e = put_label(q, s->names[k], s->values[(size_t)k * s->entity_count + row],
                          &items[count++]);
    }
    q->labels[v->item] = (struct labels){count, items};
    return e;
}

enum err part_labels(struct part *p, const uint32_t *series, size_t count, struct arena *arena,
                     struct labels *out, struct errinfo *ei)
{
    struct label_request q = {.part = p,
                              .series = series,
                              .count = count,
                              .arena = arena,
                              .ei = ei,
                              .visit = visit_labels,
                              .labels = out};

    q.names_text = arena_calloc(arena, p->footer.name_count, sizeof *q.names_text);
    if (q.names_text == NULL)
        return arena_error(arena, ei);
    return request_run(&q);
}

/* ---- some values ---- */

static enum err visit_values(struct label_request *q, const struct series_view *v)
{
    const struct part_schema *s = &v->page->schemas[v->page->schema[v->entity]];
    uint32_t row = v->page->row[v->entity];
    struct str *out = q->values + v->item * q->name_count;

    for (size_t k = 0; k < q->name_count; k++) {
        uint32_t name = q->name_numbers[k], value = PART_NO_VALUE;
        enum err e = ERR_OK;

        out[k] = (struct str){NULL, 0};
        if (name == PART_NO_NAME)
            continue;
        if (name == q->part->metric_name)
            value = v->metric;
        for (uint32_t i = 0; i < s->name_count && s->names[i] <= name; i++) {
            if (s->names[i] == name)
                value = s->values[(size_t)i * s->entity_count + row];
        }
        if (value != PART_NO_VALUE)
            e = text_get(&q->texts, name, value, &out[k], q->ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

enum err part_values_of(struct part *p, const uint32_t *series, size_t count,
                        const struct str *names, size_t name_count, struct arena *arena,
                        struct str *out, struct errinfo *ei)
{
    struct label_request q = {.part = p,
                              .series = series,
                              .count = count,
                              .arena = arena,
                              .ei = ei,
                              .visit = visit_values,
                              .name_count = name_count,
                              .values = out};

    q.name_numbers = ARENA_ARRAY(arena, name_count, uint32_t);
    if (q.name_numbers == NULL)
        return arena_error(arena, ei);
    for (size_t k = 0; k < name_count; k++)
        q.name_numbers[k] = part_name_find(p, names[k]);
    return request_run(&q);
}

/* ---- fingerprints ---- */

static struct hash128 print_at(const struct page *page, uint32_t row)
{
    struct hash128 h;

    memcpy(&h.low, page->data + (size_t)row * 16, 8);
    memcpy(&h.high, page->data + (size_t)row * 16 + 8, 8);
    return h;
}

/* Pins the page of a series' fingerprint unless it is the one at hand. */
static enum err print_page(struct part *p, uint32_t series, struct page **page, uint32_t *index,
                           struct errinfo *ei)
{
    uint32_t wanted = series / PART_PRINTS_PER_PAGE;
    uint32_t rows = p->footer.info.series_count - wanted * PART_PRINTS_PER_PAGE;
    enum err e;

    if (*page != NULL && *index == wanted)
        return ERR_OK;
    page_release(*page);
    *page = NULL;
    e = part_page_get(p, PART_SECTION_PRINTS, wanted, page, ei);
    if (e != ERR_OK)
        return e;
    *index = wanted;
    rows = rows < PART_PRINTS_PER_PAGE ? rows : PART_PRINTS_PER_PAGE;
    if ((*page)->size != (size_t)rows * 16 + PART_CRC_SIZE)
        return part_page_corrupt(p, PART_SECTION_PRINTS, wanted, ei);
    return ERR_OK;
}

enum err part_fingerprints(struct part *p, const uint32_t *series, size_t count,
                           struct hash128 *out, struct errinfo *ei)
{
    struct page *page = NULL;
    uint32_t index = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        ASSERT(series[i] < p->footer.info.series_count);
        e = print_page(p, series[i], &page, &index, ei);
        if (e == ERR_OK)
            out[i] = print_at(page, series[i] % PART_PRINTS_PER_PAGE);
    }
    page_release(page);
    return e;
}

/* A bucket of the look-up page: its tags and series numbers. */
struct bucket {
    const uint8_t *tags, *numbers;
    uint32_t count;
};

static bool bucket_find(const struct part *p, const struct page *page, uint32_t bucket,
                        struct bucket *out)
{
    uint32_t total = UINT32_C(1) << p->footer.bucket_bits, starts[2], all;
    uint32_t first = bucket / PART_BUCKETS_PER_PAGE * PART_BUCKETS_PER_PAGE;
    uint32_t count = total - first < PART_BUCKETS_PER_PAGE ? total - first : PART_BUCKETS_PER_PAGE;
    unsigned width = part_series_width(p->footer.info.series_count);
    size_t size = page->size - PART_CRC_SIZE, head = ((size_t)count + 1) * sizeof(uint32_t);

    if (size < head)
        return false;
    memcpy(starts, page->data + (bucket - first) * sizeof(uint32_t), sizeof starts);
    memcpy(&all, page->data + head - sizeof all, sizeof all);
    if ((size - head) % (1 + width) != 0 || (size - head) / (1 + width) != all ||
        starts[0] > starts[1] || starts[1] > all)
        return false;
    out->tags = page->data + head + starts[0];
    out->numbers = page->data + head + all + (size_t)starts[0] * width;
    out->count = starts[1] - starts[0];
    return true;
}

/* The pages of the search before: a part of few series has one of each. */
struct print_search {
    struct part *p;
    struct page *prints, *lookup;
    uint32_t prints_index, lookup_index;
};

static enum err lookup_page(struct print_search *s, uint32_t wanted, struct errinfo *ei)
{
    if (s->lookup != NULL && s->lookup_index == wanted)
        return ERR_OK;
    page_release(s->lookup);
    s->lookup = NULL;
    s->lookup_index = wanted;
    return part_page_get(s->p, PART_SECTION_LOOKUP, wanted, &s->lookup, ei);
}

static enum err find_one(struct print_search *s, struct hash128 print, uint32_t *out,
                         struct errinfo *ei)
{
    struct part *p = s->p;
    uint32_t bits = p->footer.bucket_bits, bucket = part_bucket(print, bits);
    unsigned width = part_series_width(p->footer.info.series_count);
    uint8_t tag = part_bucket_tag(print, bits);
    struct bucket b = {0};
    enum err e = lookup_page(s, bucket / PART_BUCKETS_PER_PAGE, ei);

    *out = PART_NO_SERIES;
    if (e != ERR_OK)
        return e;
    if (!bucket_find(p, s->lookup, bucket, &b))
        e = part_page_corrupt(p, PART_SECTION_LOOKUP, bucket / PART_BUCKETS_PER_PAGE, ei);
    for (uint32_t i = 0; i < b.count && e == ERR_OK && *out == PART_NO_SERIES; i++) {
        uint32_t series = 0;

        if (b.tags[i] != tag)
            continue;
        memcpy(&series, b.numbers + (size_t)i * width, width);
        if (series >= p->footer.info.series_count) {
            e = part_page_corrupt(p, PART_SECTION_LOOKUP, bucket / PART_BUCKETS_PER_PAGE, ei);
            break;
        }
        e = print_page(p, series, &s->prints, &s->prints_index, ei);
        if (e == ERR_OK && hash128_equal(print_at(s->prints, series % PART_PRINTS_PER_PAGE), print))
            *out = series;
    }
    return e;
}

enum err part_find(struct part *p, const struct hash128 *fingerprints, size_t count, uint32_t *out,
                   struct errinfo *ei)
{
    struct print_search s = {.p = p};
    enum err e = ERR_OK;

    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = find_one(&s, fingerprints[i], &out[i], ei);
    page_release(s.prints);
    page_release(s.lookup);
    return e;
}
