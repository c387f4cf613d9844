/*
 * The end of a part's index: what needs the order of all labels. Numbers in order of appearance
 * become numbers in label order; entities are sorted; then pages are written section by section.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_writer_internal.h"

/* One attempt to write the end; arrays are charged to the store's budget. */
struct index_build {
    struct part_writer *w;
    struct budget *memory;
    struct part_array names, values; /* numbers by rank */
    struct part_array entities;      /* entity numbers by rank */
    struct part_array pages;         /* struct name_pages by name rank */
    struct part_array scratch;       /* uint32_t, for whoever needs some */
    struct byte_writer page;
    struct byte_writer restarts;
};

struct name_pages {
    uint32_t value_page, value_pages, posting_page, posting_pages;
};

static const struct part_name *name_by_rank(const struct index_build *b, uint32_t rank)
{
    const struct part_name *names = b->w->dict.names.data;

    return &names[((const uint32_t *)b->names.data)[rank]];
}

static struct part_value *value_by_rank(const struct index_build *b, uint32_t rank)
{
    struct part_value *values = b->w->dict.values.data;

    return &values[((const uint32_t *)b->values.data)[rank]];
}

static uint32_t name_rank_of_value(const struct index_build *b, uint32_t value_rank)
{
    const struct part_name *names = b->w->dict.names.data;

    return names[value_by_rank(b, value_rank)->name].rank;
}

static struct name_pages *pages_of(const struct index_build *b, uint32_t name_rank)
{
    return (struct name_pages *)b->pages.data + name_rank;
}

static uint32_t page_count(const struct index_build *b, enum part_section section)
{
    return (uint32_t)b->w->tables[section].count;
}

static enum err page_put(struct index_build *b, enum part_section section, uint32_t key,
                         struct errinfo *ei)
{
    enum err e = part_writer_page(b->w, section, key, &b->page, ei);

    writer_reset(&b->page);
    return e;
}

static enum err scratch_take(struct index_build *b, size_t count, uint32_t **out,
                             struct errinfo *ei)
{
    enum err e = part_array_reserve(&b->scratch, b->memory, sizeof(uint32_t), count, ei);

    *out = b->scratch.data;
    return e;
}

/* ---- values: front-coded, with a whole text at each restart ---- */

static size_t shared_prefix(struct str a, struct str b)
{
    size_t n = 0, max = a.size < b.size ? a.size : b.size;

    while (n < max && a.data[n] == b.data[n])
        n++;
    return n;
}

/*
 *   | entry | entry | ... | restart offsets, le32 each | value count le32 |
 *   entry at a restart: | size varint | text |; else | shared varint | size varint | rest of text |
 */
static enum err values_page_end(struct index_build *b, uint32_t first, uint32_t count,
                                struct errinfo *ei)
{
    writer_append(&b->page, b->restarts.data, b->restarts.size);
    writer_le32(&b->page, count);
    writer_reset(&b->restarts);
    return page_put(b, PART_SECTION_VALUES, first, ei);
}

static void values_entry(struct index_build *b, struct str previous, struct str text, uint32_t n)
{
    size_t shared;

    if (n % PART_RESTART == 0) {
        writer_le32(&b->restarts, (uint32_t)b->page.size);
        writer_str(&b->page, text);
        return;
    }
    shared = shared_prefix(previous, text);
    writer_varint(&b->page, shared);
    writer_str(&b->page, (struct str){text.data + shared, text.size - shared});
}

static enum err name_values_write(struct index_build *b, uint32_t rank, struct errinfo *ei)
{
    const struct part_name *name = name_by_rank(b, rank);
    struct str previous = {NULL, 0};
    uint32_t first = 0;
    enum err e = ERR_OK;

    pages_of(b, rank)->value_page = page_count(b, PART_SECTION_VALUES);
    for (uint32_t i = 0; i < name->value_count && e == ERR_OK; i++) {
        struct str text = value_by_rank(b, name->first_rank + i)->text;

        if (i > first && b->page.size >= PART_PAGE_TARGET_BYTES &&
            (i - first) % PART_RESTART == 0) {
            e = values_page_end(b, first, i - first, ei);
            first = i;
        }
        values_entry(b, previous, text, i - first);
        previous = text;
    }
    if (e == ERR_OK && name->value_count > first)
        e = values_page_end(b, first, name->value_count - first, ei);
    pages_of(b, rank)->value_pages =
        page_count(b, PART_SECTION_VALUES) - pages_of(b, rank)->value_page;
    return e;
}

/* ---- entities ---- */

static const uint32_t *entity_ranks(const struct index_build *b, uint32_t entity, uint32_t *count)
{
    const uint32_t *starts = b->w->dict.entity_starts.data;

    *count = starts[entity + 1] - starts[entity];
    return (const uint32_t *)b->w->dict.entity_values.data + starts[entity];
}

static int compare_entities(const void *x, const void *y, void *ctx)
{
    const struct index_build *b = ctx;
    uint32_t x_count, y_count;
    const uint32_t *p = entity_ranks(b, *(const uint32_t *)x, &x_count);
    const uint32_t *q = entity_ranks(b, *(const uint32_t *)y, &y_count);

    for (uint32_t i = 0; i < x_count && i < y_count; i++) {
        if (p[i] != q[i])
            return p[i] < q[i] ? -1 : 1;
    }
    return (x_count > y_count) - (x_count < y_count);
}

/* Turns value numbers into ranks, sorts the entities, turns the series' entity numbers into ranks.
 */
static enum err entities_sort(struct index_build *b, struct errinfo *ei)
{
    struct part_dict *d = &b->w->dict;
    uint32_t count = part_dict_entity_count(d), *ids = d->entity_values.data;
    uint32_t *refs = b->w->refs.data, *by_rank, *ranks;
    const struct part_value *values = d->values.data;
    enum err e =
        part_array_reserve(&b->entities, b->memory, sizeof *by_rank, (size_t)count + 1, ei);

    if (e != ERR_OK || (e = scratch_take(b, (size_t)count + 1, &ranks, ei)) != ERR_OK)
        return e;
    for (size_t i = 0; i < d->entity_values.count; i++)
        ids[i] = values[ids[i]].rank;
    by_rank = b->entities.data;
    for (uint32_t i = 0; i < count; i++)
        by_rank[i] = i;
    b->entities.count = count;
    qsort_r(by_rank, count, sizeof *by_rank, compare_entities, b);
    for (uint32_t i = 0; i < count; i++)
        ranks[by_rank[i]] = i;
    for (size_t i = 0; i < b->w->refs.count; i++)
        refs[i] = ranks[refs[i]];
    return ERR_OK;
}

/* The schemas of the page at hand: label names of its entities. */
struct page_schemas {
    uint32_t count;
    uint32_t model[PART_ENTITIES_PER_PAGE];     /* an entity that has it */
    uint32_t of_entity[PART_ENTITIES_PER_PAGE]; /* by entity in the page */
};

static bool same_names(const struct index_build *b, uint32_t x, uint32_t y)
{
    uint32_t x_count, y_count;
    const uint32_t *p = entity_ranks(b, x, &x_count), *q = entity_ranks(b, y, &y_count);

    if (x_count != y_count)
        return false;
    for (uint32_t i = 0; i < x_count; i++) {
        if (value_by_rank(b, p[i])->name != value_by_rank(b, q[i])->name)
            return false;
    }
    return true;
}

static void find_schemas(const struct index_build *b, const uint32_t *entities, uint32_t count,
                         struct page_schemas *s)
{
    s->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        /* Neighbours mostly share it: begin with the schema of the entity before. */
        uint32_t k = i == 0 ? 0 : s->of_entity[i - 1];

        if (i == 0 || !same_names(b, s->model[k], entities[i]))
            for (k = 0; k < s->count && !same_names(b, s->model[k], entities[i]); k++)
                ;
        if (k == s->count)
            s->model[s->count++] = entities[i];
        s->of_entity[i] = k;
    }
}

/* The columns of one schema: for each name the values of the entities that have it. */
static void schema_columns(struct index_build *b, const uint32_t *entities, uint32_t count,
                           const struct page_schemas *s, uint32_t schema)
{
    uint32_t name_count, column[PART_ENTITIES_PER_PAGE];
    const uint32_t *model = entity_ranks(b, s->model[schema], &name_count);

    for (uint32_t k = 0; k < name_count; k++) {
        const struct part_name *name = name_by_rank(b, name_rank_of_value(b, model[k]));
        uint32_t n = 0;

        for (uint32_t i = 0; i < count; i++) {
            uint32_t unused;

            if (s->of_entity[i] == schema)
                column[n++] = entity_ranks(b, entities[i], &unused)[k] - name->first_rank;
        }
        part_ints_put(&b->page, b->w->scratch, column, n);
    }
}

/*
 *   | schema count varint | per schema: name count varint, name numbers varint ... |
 *   | schema of each entity, packed, if there are several | per schema, per name: values, packed |
 */
static enum err entities_page(struct index_build *b, uint32_t first, uint32_t count,
                              struct page_schemas *s, struct errinfo *ei)
{
    const uint32_t *entities = (const uint32_t *)b->entities.data + first;

    find_schemas(b, entities, count, s);
    writer_varint(&b->page, s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t name_count;
        const uint32_t *model = entity_ranks(b, s->model[i], &name_count);

        writer_varint(&b->page, name_count);
        for (uint32_t k = 0; k < name_count; k++)
            writer_varint(&b->page, name_rank_of_value(b, model[k]));
    }
    if (s->count > 1)
        part_ints_put(&b->page, b->w->scratch, s->of_entity, count);
    for (uint32_t i = 0; i < s->count; i++)
        schema_columns(b, entities, count, s, i);
    return page_put(b, PART_SECTION_ENTITIES, first, ei);
}

static enum err entities_write(struct index_build *b, struct errinfo *ei)
{
    struct page_schemas schemas;
    enum err e = ERR_OK;

    for (size_t i = 0, n; i < b->entities.count && e == ERR_OK; i += n) {
        n = b->entities.count - i;
        n = n < PART_ENTITIES_PER_PAGE ? n : PART_ENTITIES_PER_PAGE;
        e = entities_page(b, (uint32_t)i, (uint32_t)n, &schemas, ei);
    }
    return e;
}

/* ---- postings ---- */

/* | value count varint | entities of each value, packed | entities, packed | */
static enum err postings_page(struct index_build *b, uint32_t first_value, const uint32_t *counts,
                              uint32_t value_count, const uint32_t *entities, uint32_t entity_count,
                              struct errinfo *ei)
{
    writer_varint(&b->page, value_count);
    part_ints_put(&b->page, b->w->scratch, counts, value_count);
    part_ints_put(&b->page, b->w->scratch, entities, entity_count);
    return page_put(b, PART_SECTION_POSTINGS, first_value, ei);
}

/* Whole lists share a page as far as they fit; a longer one has pages of its own. `lists` is the
 * entities of the name's values, one list after another, starts[i] where that of value i begins. */
static enum err name_postings_write(struct index_build *b, uint32_t rank, const uint32_t *starts,
                                    const uint32_t *lists, struct errinfo *ei)
{
    enum { VALUES_MAX = PART_POSTINGS_PER_PAGE };
    uint32_t value_count = name_by_rank(b, rank)->value_count;
    uint32_t counts[VALUES_MAX], first = 0;
    enum err e = ERR_OK;

    while (first < value_count && e == ERR_OK) {
        uint32_t n = 0, at = starts[first];

        while (first + n < value_count && n < VALUES_MAX &&
               starts[first + n + 1] - at <= PART_POSTINGS_PER_PAGE) {
            counts[n] = starts[first + n + 1] - starts[first + n];
            n++;
        }
        if (n > 0) {
            e = postings_page(b, first, counts, n, lists + at, starts[first + n] - at, ei);
            first += n;
            continue;
        }
        for (; at < starts[first + 1] && e == ERR_OK; at += counts[0]) {
            counts[0] = starts[first + 1] - at;
            if (counts[0] > PART_POSTINGS_PER_PAGE)
                counts[0] = PART_POSTINGS_PER_PAGE;
            e = postings_page(b, first, counts, 1, lists + at, counts[0], ei);
        }
        first++;
    }
    return e;
}

/* Lists of all values by counting: starts has one entry a value and the end. */
static void postings_fill(const struct index_build *b, uint32_t *starts, uint32_t *lists)
{
    const struct part_dict *d = &b->w->dict;
    const uint32_t *ids = d->entity_values.data, *by_rank = b->entities.data;
    size_t value_count = d->values.count;

    memset(starts, 0, (value_count + 2) * sizeof *starts);
    for (size_t i = 0; i < d->entity_values.count; i++)
        starts[ids[i] + 2]++;
    for (size_t i = 2; i < value_count + 2; i++)
        starts[i] += starts[i - 1];
    /* starts[i + 1] is where list i grows; in the end it is where list i + 1 begins. */
    for (uint32_t e = 0; e < b->entities.count; e++) {
        uint32_t count;
        const uint32_t *ranks = entity_ranks(b, by_rank[e], &count);

        for (uint32_t i = 0; i < count; i++)
            lists[starts[ranks[i] + 1]++] = e;
    }
}

static enum err postings_write(struct index_build *b, struct errinfo *ei)
{
    struct part_dict *d = &b->w->dict;
    size_t value_count = d->values.count;
    uint32_t *starts;
    enum err e = scratch_take(b, value_count + 2 + d->entity_values.count, &starts, ei);

    if (e != ERR_OK)
        return e;
    postings_fill(b, starts, starts + value_count + 2);
    for (uint32_t i = 0; i < b->names.count && e == ERR_OK; i++) {
        pages_of(b, i)->posting_page = page_count(b, PART_SECTION_POSTINGS);
        if (!str_equal(name_by_rank(b, i)->text, LABEL_METRIC_NAME))
            e = name_postings_write(b, i, starts + name_by_rank(b, i)->first_rank,
                                    starts + value_count + 2, ei);
        pages_of(b, i)->posting_pages =
            page_count(b, PART_SECTION_POSTINGS) - pages_of(b, i)->posting_page;
    }
    return e;
}

/* ---- the rest ---- */

/* Series of each metric: they stand one after another. */
static enum err metrics_write(struct index_build *b, struct errinfo *ei)
{
    struct part_footer *f = &b->w->footer;
    const struct part_name *metric = NULL;
    uint32_t counts[PART_METRICS_PER_PAGE], named = 0;
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < b->names.count; i++) {
        if (str_equal(name_by_rank(b, i)->text, LABEL_METRIC_NAME))
            metric = name_by_rank(b, i);
    }
    f->metric_count = metric == NULL ? 0 : metric->value_count;
    for (uint32_t i = 0, n; i < f->metric_count && e == ERR_OK; i += n) {
        n = f->metric_count - i < PART_METRICS_PER_PAGE ? f->metric_count - i
                                                        : PART_METRICS_PER_PAGE;
        for (uint32_t k = 0; k < n; k++) {
            counts[k] = value_by_rank(b, metric->first_rank + i + k)->series_count;
            named += counts[k];
        }
        part_ints_put(&b->page, b->w->scratch, counts, n);
        e = page_put(b, PART_SECTION_METRICS, i, ei);
    }
    f->unnamed_count = f->info.series_count - named;
    return e;
}

static enum err refs_write(struct index_build *b, struct errinfo *ei)
{
    const struct part_array *refs = &b->w->refs;
    enum err e = ERR_OK;

    for (size_t i = 0, n; i < refs->count && e == ERR_OK; i += n) {
        n = refs->count - i < PART_REFS_PER_PAGE ? refs->count - i : PART_REFS_PER_PAGE;
        part_ints_put(&b->page, b->w->scratch, (const uint32_t *)refs->data + i, n);
        e = page_put(b, PART_SECTION_REFS, (uint32_t)i, ei);
    }
    return e;
}

/* | starts of the buckets and the end, le32 | tag of each series | number of each series | */
static enum err lookup_page(struct index_build *b, uint32_t first_bucket, uint32_t bucket_count,
                            const uint32_t *starts, const uint32_t *order, struct errinfo *ei)
{
    uint32_t bits = b->w->footer.bucket_bits, series_count = b->w->footer.info.series_count;
    unsigned width = part_series_width(series_count);
    const uint64_t *highs = b->w->highs.data;
    uint32_t from = starts[first_bucket], to = starts[first_bucket + bucket_count];

    for (uint32_t i = 0; i <= bucket_count; i++)
        writer_le32(&b->page, starts[first_bucket + i] - from);
    for (uint32_t i = from; i < to; i++)
        writer_u8(&b->page, part_bucket_tag((struct hash128){.high = highs[order[i]]}, bits));
    for (uint32_t i = from; i < to; i++)
        writer_append(&b->page, &order[i], width); /* little-endian: the low bytes come first */
    return page_put(b, PART_SECTION_LOOKUP, first_bucket, ei);
}

static enum err lookup_write(struct index_build *b, struct errinfo *ei)
{
    uint32_t series_count = b->w->footer.info.series_count, bits = part_bucket_bits(series_count);
    uint32_t bucket_count = UINT32_C(1) << bits, *starts, *order;
    const uint64_t *highs = b->w->highs.data;
    enum err e = scratch_take(b, (size_t)bucket_count + 2 + series_count, &starts, ei);

    if (e != ERR_OK)
        return e;
    b->w->footer.bucket_bits = bits;
    order = starts + bucket_count + 2;
    memset(starts, 0, ((size_t)bucket_count + 2) * sizeof *starts);
    for (uint32_t i = 0; i < series_count; i++)
        starts[part_bucket((struct hash128){.high = highs[i]}, bits) + 2]++;
    for (uint32_t i = 2; i < bucket_count + 2; i++)
        starts[i] += starts[i - 1];
    for (uint32_t i = 0; i < series_count; i++)
        order[starts[part_bucket((struct hash128){.high = highs[i]}, bits) + 1]++] = i;
    for (uint32_t i = 0, n; i < bucket_count && e == ERR_OK; i += n) {
        n = bucket_count - i < PART_BUCKETS_PER_PAGE ? bucket_count - i : PART_BUCKETS_PER_PAGE;
        e = lookup_page(b, i, n, starts, order, ei);
    }
    return e;
}

/* | per name: text with its size, value count, pages of values and of postings: varints | */
static enum err names_write(struct index_build *b, struct errinfo *ei)
{
    b->w->footer.name_count = (uint32_t)b->names.count;
    writer_u8(&b->page, 0); /* a page is never empty */
    for (uint32_t i = 0; i < b->names.count; i++) {
        const struct name_pages *p = pages_of(b, i);

        writer_str(&b->page, name_by_rank(b, i)->text);
        writer_varint(&b->page, name_by_rank(b, i)->value_count);
        writer_varint(&b->page, p->value_page);
        writer_varint(&b->page, p->value_pages);
        writer_varint(&b->page, p->posting_page);
        writer_varint(&b->page, p->posting_pages);
    }
    return page_put(b, PART_SECTION_NAMES, 0, ei);
}

static enum err build(struct index_build *b, struct errinfo *ei)
{
    enum err e = part_dict_sort(&b->w->dict, &b->names, &b->values, ei);

    if (e == ERR_OK)
        e = part_array_reserve(&b->pages, b->memory, sizeof(struct name_pages), b->names.count + 1,
                               ei);
    for (uint32_t i = 0; i < b->names.count && e == ERR_OK; i++)
        e = name_values_write(b, i, ei);
    if (e != ERR_OK || (e = entities_sort(b, ei)) != ERR_OK ||
        (e = entities_write(b, ei)) != ERR_OK || (e = postings_write(b, ei)) != ERR_OK ||
        (e = metrics_write(b, ei)) != ERR_OK || (e = refs_write(b, ei)) != ERR_OK ||
        (e = lookup_write(b, ei)) != ERR_OK)
        return e;
    return names_write(b, ei);
}

enum err part_writer_index(struct part_writer *w, struct errinfo *ei)
{
    struct index_build b = {.w = w, .memory = w->store->memory};
    enum err e;

    writer_init(&b.page);
    writer_init(&b.restarts);
    w->footer.info.entity_count = part_dict_entity_count(&w->dict);
    e = build(&b, ei);
    part_array_done(&b.names, b.memory);
    part_array_done(&b.values, b.memory);
    part_array_done(&b.entities, b.memory);
    part_array_done(&b.pages, b.memory);
    part_array_done(&b.scratch, b.memory);
    writer_done(&b.page);
    writer_done(&b.restarts);
    return e;
}
