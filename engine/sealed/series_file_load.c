/*
 * Loading series files. One pass over the bytes decodes every batch into columns; what later
 * batches say of earlier series (newest samples, ends) is merged in as it comes, by schema and
 * ascending slot. At the end values are numbered densely and everything is checked against what it
 * refers to. Cost is nearly all in decoding integers: about ten columns a series.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/sealed/sealed_format_internal.h" /* the packed integers */
#include "engine/sealed/series_file_format_internal.h"

static_assert((int)SERIES_INTS_PIECE == (int)SEALED_INTS_PIECE, "one packing");

/* A load under way. */
struct load {
    struct series_image *image;
    const char *path;
    uint64_t epoch;
    struct errinfo *ei;
    uint32_t name_capacity, schema_capacity, batch_count;
    size_t group_capacity;
    uint8_t **ended;        /* per group: flags, NULL: none has ended; in the arena */
    size_t first_new_group; /* groups of the batch at hand begin here */
    bool *values_sorted;    /* per name: ids ascend strictly so far */
};

static enum err refused(struct load *l)
{
    return arena_error(&l->image->arena, l->ei);
}

/* Room for one more item in an arena array; false when memory is refused. */
static bool array_room(struct load *l, void **items, size_t count, size_t *capacity, size_t size)
{
    size_t wanted = *capacity == 0 ? 16 : 2 * *capacity;
    void *grown;

    if (count < *capacity)
        return true;
    grown = arena_grow_array(&l->image->arena, *items, *capacity, wanted, size);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* ---- numbers ---- */

/* `n` integers within [0, max], narrowed by `store`. False, and the reader failed, otherwise. */
static bool get_u32(struct byte_reader *r, size_t n, uint32_t max, uint32_t *out)
{
    int64_t x[SERIES_INTS_PIECE];
    uint64_t worst = 0;

    for (size_t i = 0; i < n; i += SERIES_INTS_PIECE) {
        size_t piece = n - i < SERIES_INTS_PIECE ? n - i : SERIES_INTS_PIECE;

        if (!sealed_ints_get(r, piece, x))
            return false;
        for (size_t k = 0; k < piece; k++) {
            worst = (uint64_t)x[k] > worst ? (uint64_t)x[k] : worst;
            out[i + k] = (uint32_t)x[k];
        }
    }
    if (worst > max)
        r->failed = true;
    return !r->failed;
}

static bool get_u16(struct byte_reader *r, size_t n, uint16_t *out)
{
    int64_t x[SERIES_INTS_PIECE];
    uint64_t worst = 0;

    for (size_t i = 0; i < n; i += SERIES_INTS_PIECE) {
        size_t piece = n - i < SERIES_INTS_PIECE ? n - i : SERIES_INTS_PIECE;

        if (!sealed_ints_get(r, piece, x))
            return false;
        for (size_t k = 0; k < piece; k++) {
            worst |= (uint64_t)x[k];
            out[i + k] = (uint16_t)x[k];
        }
    }
    if (worst > UINT16_MAX)
        r->failed = true;
    return !r->failed;
}

static bool get_bits(struct byte_reader *r, size_t n, uint64_t *out)
{
    double v[SERIES_INTS_PIECE];

    for (size_t i = 0; i < n; i += SERIES_INTS_PIECE) {
        size_t piece = n - i < SERIES_INTS_PIECE ? n - i : SERIES_INTS_PIECE;
        uint64_t size = reader_varint(r);
        const uint8_t *column = size <= reader_left(r) ? reader_take(r, (size_t)size) : NULL;

        if (column == NULL || !codec_values_decode(column, (size_t)size, piece, v)) {
            r->failed = true;
            return false;
        }
        memcpy(out + i, v, piece * sizeof *v);
    }
    return !r->failed;
}

static bool ascending(const uint32_t *slots, size_t n)
{
    bool ok = true;

    for (size_t i = 1; i < n; i++)
        ok &= slots[i] > slots[i - 1];
    return ok;
}

/* A count of things of which a full piece takes at least `columns` columns of two bytes or more, so
 * that a hostile count sizes no allocation. */
static size_t get_count(struct byte_reader *r, unsigned columns)
{
    uint64_t n = reader_varint(r);

    if (n == 0 || (n - 1) / SERIES_INTS_PIECE * 2 * columns > reader_left(r) ||
        n > SERIES_FILE_SLOT_MAX)
        r->failed = true;
    return r->failed ? 0 : (size_t)n;
}

/* ---- definitions ---- */

static enum err names_load(struct load *l, struct byte_reader *r)
{
    struct series_image *image = l->image;
    uint64_t count = reader_varint(r);

    for (uint64_t i = 0; i < count && !r->failed; i++) {
        uint64_t size = reader_varint(r);
        const uint8_t *text = size <= reader_left(r) ? reader_take(r, (size_t)size) : NULL;
        size_t capacity = l->name_capacity, flags = l->name_capacity;
        void *names = image->names, *sorted = l->values_sorted;

        if (text == NULL || size == 0)
            return ERR_CORRUPT;
        if (!array_room(l, &names, image->name_count, &capacity, sizeof *image->names) ||
            !array_room(l, &sorted, image->name_count, &flags, sizeof *l->values_sorted))
            return refused(l);
        image->names = names;
        l->values_sorted = sorted;
        l->name_capacity = (uint32_t)capacity;
        l->values_sorted[image->name_count] = true;
        image->names[image->name_count++] =
            (struct series_image_name){.text = {(const char *)text, (size_t)size}};
    }
    return ERR_OK;
}

static enum err name_values_load(struct load *l, struct byte_reader *r)
{
    uint64_t number = reader_varint(r);
    size_t count = get_count(r, 2), capacity, end;
    struct series_image_name *name;
    uint32_t ids[SERIES_INTS_PIECE];
    void *values;

    /* Every value has a byte of text in there. */
    if (r->failed || number >= l->image->name_count || count > reader_left(r))
        return ERR_CORRUPT;
    name = &l->image->names[number];
    end = name->value_count + count;
    if (end > UINT32_MAX / 2)
        return ERR_CORRUPT;
    values = name->values;
    for (capacity = name->value_capacity; capacity < end;)
        capacity = capacity == 0 ? count : 2 * capacity;
    if (capacity > name->value_capacity) {
        values = arena_grow_array(&l->image->arena, values, name->value_capacity, capacity,
                                  sizeof *name->values);
        if (values == NULL)
            return refused(l);
        name->values = values;
        name->value_capacity = (uint32_t)capacity;
    }
    for (size_t i = 0; i < count; i += SERIES_INTS_PIECE) {
        size_t piece = count - i < SERIES_INTS_PIECE ? count - i : SERIES_INTS_PIECE;

        if (!get_u32(r, piece, UINT32_MAX, ids))
            return ERR_CORRUPT;
        for (size_t k = 0; k < piece; k++)
            name->values[name->value_count + i + k].id = ids[k];
    }
    for (size_t i = 0; i < count; i += SERIES_INTS_PIECE) {
        size_t piece = count - i < SERIES_INTS_PIECE ? count - i : SERIES_INTS_PIECE;

        if (!get_u32(r, piece, UINT32_MAX, ids))
            return ERR_CORRUPT;
        for (size_t k = 0; k < piece; k++)
            name->values[name->value_count + i + k].text.size = ids[k];
    }
    for (size_t i = name->value_count; i < end; i++) {
        struct series_image_value *v = &name->values[i];
        const uint8_t *text = reader_take(r, v->text.size);

        if (text == NULL || v->text.size == 0)
            return ERR_CORRUPT;
        v->text.data = (const char *)text;
        if (i > 0 && v->id <= name->values[i - 1].id)
            l->values_sorted[number] = false;
    }
    name->value_count = (uint32_t)end;
    return ERR_OK;
}

static enum err values_load(struct load *l, struct byte_reader *r)
{
    enum err e = ERR_OK;

    while (reader_left(r) > 0 && e == ERR_OK)
        e = name_values_load(l, r);
    return e;
}

/* Names of a schema: in byte order, each once. */
static bool schema_possible(const struct series_image *image, const uint32_t *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (names[i] >= image->name_count)
            return false;
        if (i > 0 && str_compare(image->names[names[i - 1]].text, image->names[names[i]].text) >= 0)
            return false;
    }
    return true;
}

static enum err schemas_load(struct load *l, struct byte_reader *r)
{
    struct series_image *image = l->image;
    uint64_t count = reader_varint(r);

    for (uint64_t i = 0; i < count; i++) {
        uint64_t name_count = reader_varint(r);
        size_t capacity = l->schema_capacity;
        void *schemas = image->schemas;
        uint32_t *names;

        if (r->failed || name_count > SERIES_FILE_NAMES_MAX || name_count > reader_left(r))
            return ERR_CORRUPT;
        names = ARENA_ARRAY(&image->arena, name_count, uint32_t);
        if (names == NULL ||
            !array_room(l, &schemas, image->schema_count, &capacity, sizeof *image->schemas))
            return refused(l);
        image->schemas = schemas;
        l->schema_capacity = (uint32_t)capacity;
        for (uint64_t k = 0; k < name_count; k++) {
            uint64_t name = reader_varint(r);

            if (r->failed || name >= image->name_count)
                return ERR_CORRUPT;
            names[k] = (uint32_t)name;
        }
        if (!schema_possible(image, names, (uint32_t)name_count))
            return ERR_CORRUPT;
        image->schemas[image->schema_count++] =
            (struct series_image_schema){(uint32_t)name_count, names};
    }
    return ERR_OK;
}

/* ---- series ---- */

static enum err group_room(struct load *l)
{
    struct series_image *image = l->image;
    size_t capacity = l->group_capacity, flags = l->group_capacity;
    void *groups = image->groups, *ended = (void *)l->ended;

    if (!array_room(l, &groups, image->group_count, &capacity, sizeof *image->groups) ||
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
        !array_room(l, &ended, image->group_count, &flags, sizeof *l->ended))
        return refused(l);
    image->groups = groups;
    l->ended = ended;
    l->group_capacity = capacity;
    l->ended[image->group_count] = NULL;
    return ERR_OK;
}

static bool group_alloc(struct arena *a, struct series_image_group *g, uint32_t name_count)
{
    g->slots = ARENA_ARRAY(a, g->count, uint32_t);
    g->generations = ARENA_ARRAY(a, g->count, uint16_t);
    g->fingerprints = ARENA_ARRAY(a, g->count, struct hash128);
    g->newest_ms = ARENA_ARRAY(a, g->count, int64_t);
    g->newest_bits = ARENA_ARRAY(a, g->count, uint64_t);
    g->values = arena_alloc_array(a, g->count, (name_count + 1) * sizeof *g->values);
    return g->slots != NULL && g->generations != NULL && g->fingerprints != NULL &&
           g->newest_ms != NULL && g->newest_bits != NULL && g->values != NULL;
}

static enum err group_load(struct load *l, struct byte_reader *r)
{
    struct series_image *image = l->image;
    struct series_image_group g = {0};
    uint64_t schema = reader_varint(r);
    const uint8_t *prints;
    uint32_t name_count;
    enum err e;

    if (r->failed || schema >= image->schema_count)
        return ERR_CORRUPT;
    name_count = image->schemas[schema].name_count;
    g.schema = (uint32_t)schema;
    g.count = (uint32_t)get_count(r, name_count + 2);
    /* Every series has 16 bytes of fingerprint in there. */
    if (r->failed || g.count > reader_left(r) / sizeof *g.fingerprints)
        return ERR_CORRUPT;
    e = group_room(l);
    if (e != ERR_OK)
        return e;
    if (!group_alloc(&image->arena, &g, name_count))
        return refused(l);
    if (!get_u32(r, g.count, SERIES_FILE_SLOT_MAX - 1, g.slots) || !ascending(g.slots, g.count) ||
        !get_u16(r, g.count, g.generations))
        return ERR_CORRUPT;
    prints = reader_take(r, g.count * sizeof *g.fingerprints);
    if (prints == NULL)
        return ERR_CORRUPT;
    memcpy(g.fingerprints, prints, g.count * sizeof *g.fingerprints);
    if (!sealed_ints_get(r, g.count, g.newest_ms) || !get_bits(r, g.count, g.newest_bits))
        return ERR_CORRUPT;
    for (uint32_t k = 0; k < name_count; k++) {
        if (!get_u32(r, g.count, UINT32_MAX, g.values + (size_t)k * g.count))
            return ERR_CORRUPT;
    }
    image->groups[image->group_count++] = g;
    return ERR_OK;
}

/* What a batch says of earlier series of one schema. newest_ms NULL: they have ended. */
struct changes {
    uint32_t schema;
    size_t count;
    uint32_t *slots;
    uint16_t *generations;
    int64_t *newest_ms;
    uint64_t *newest_bits;
};

/* Applies changes [*from, ...) that concern group number `group`; returns how many. */
static enum err group_change(struct load *l, size_t group, const struct changes *c, size_t *applied)
{
    const struct series_image_group *g = &l->image->groups[group];
    uint8_t *ended = l->ended[group];

    for (size_t k = 0, i = 0; k < c->count && i < g->count; k++) {
        while (i < g->count && g->slots[i] < c->slots[k])
            i++;
        if (i == g->count || g->slots[i] != c->slots[k] || g->generations[i] != c->generations[k] ||
            (ended != NULL && ended[i]))
            continue;
        ++*applied;
        if (c->newest_ms != NULL) {
            g->newest_ms[i] = c->newest_ms[k];
            g->newest_bits[i] = c->newest_bits[k];
            continue;
        }
        if (ended == NULL) {
            ended = arena_calloc(&l->image->arena, g->count, sizeof *ended);
            if (ended == NULL)
                return refused(l);
            l->ended[group] = ended;
        }
        ended[i] = 1;
    }
    return ERR_OK;
}

static enum err changes_load(struct load *l, struct byte_reader *r, bool newest)
{
    struct arena *a = &l->image->arena;
    struct arena_mark mark = arena_mark_get(a);
    uint64_t schema = reader_varint(r);
    struct changes c = {.count = get_count(r, 2)};
    size_t applied = 0;
    enum err e = ERR_OK;

    if (r->failed || schema >= l->image->schema_count)
        return ERR_CORRUPT;
    c.schema = (uint32_t)schema;
    c.slots = ARENA_ARRAY(a, c.count, uint32_t);
    c.generations = ARENA_ARRAY(a, c.count, uint16_t);
    if (newest) {
        c.newest_ms = ARENA_ARRAY(a, c.count, int64_t);
        c.newest_bits = ARENA_ARRAY(a, c.count, uint64_t);
    }
    if (c.slots == NULL || c.generations == NULL ||
        (newest && (c.newest_ms == NULL || c.newest_bits == NULL)))
        return refused(l);
    if (!get_u32(r, c.count, SERIES_FILE_SLOT_MAX - 1, c.slots) || !ascending(c.slots, c.count) ||
        !get_u16(r, c.count, c.generations))
        return ERR_CORRUPT;
    if (newest &&
        (!sealed_ints_get(r, c.count, c.newest_ms) || !get_bits(r, c.count, c.newest_bits)))
        return ERR_CORRUPT;
    for (size_t i = 0; i < l->first_new_group && e == ERR_OK; i++) {
        if (l->image->groups[i].schema == c.schema)
            e = group_change(l, i, &c, &applied);
    }
    if (newest) /* nothing of it is kept; flags of ended ones are */
        arena_mark_return(a, mark);
    if (e == ERR_OK && applied != c.count)
        e = ERR_CORRUPT; /* of no series, or of one twice */
    return e;
}

/* ---- batches ---- */

/* The order in which sections of a batch stand is that of their use. */
static enum err section_load(struct load *l, uint32_t kind, uint32_t flags, struct byte_reader *r)
{
    enum err e = ERR_OK;

    switch (kind) {
    case SERIES_SECTION_NAMES:
        e = names_load(l, r);
        break;
    case SERIES_SECTION_VALUES:
        e = values_load(l, r);
        break;
    case SERIES_SECTION_SCHEMAS:
        e = schemas_load(l, r);
        break;
    case SERIES_SECTION_SERIES:
        while (reader_left(r) > 0 && e == ERR_OK)
            e = group_load(l, r);
        break;
    case SERIES_SECTION_NEWEST:
    case SERIES_SECTION_ENDED:
        while (reader_left(r) > 0 && e == ERR_OK)
            e = changes_load(l, r, kind == SERIES_SECTION_NEWEST);
        break;
    default:
        if ((flags & SERIES_SECTION_MUST) == 0)
            return ERR_OK;
        return errinfo_set(l->ei, ERR_UNSUPPORTED, 0,
                           "%s: unknown section %" PRIu32 "; a newer version wrote it", l->path,
                           kind);
    }
    if (e == ERR_OK && (r->failed || reader_left(r) != 0))
        e = ERR_CORRUPT;
    return e;
}

static enum err sections_load(struct load *l, const uint8_t *data, size_t size)
{
    struct byte_reader r = reader_init(data, size);
    enum err e = ERR_OK;

    l->first_new_group = l->image->group_count;
    while (reader_left(&r) > 0 && e == ERR_OK) {
        uint32_t kind = reader_le32(&r), flags = reader_le32(&r);
        uint64_t content_size = reader_le64(&r);
        const uint8_t *content =
            content_size <= reader_left(&r) ? reader_take(&r, (size_t)content_size) : NULL;
        struct byte_reader content_reader;

        if (content == NULL)
            return ERR_CORRUPT;
        content_reader = reader_init(content, (size_t)content_size);
        e = section_load(l, kind, flags, &content_reader);
    }
    return e;
}

static enum err corrupt(struct load *l, uint64_t offset, const char *what)
{
    return errinfo_set_at(l->ei, ERR_CORRUPT, l->path, offset, "%s", what);
}

/* A batch that verifies is taken at its word or refused as a whole: what makes no sense behind a
 * good checksum is our bug or somebody's forgery, wherever it stands. */
static enum err batches_load(struct load *l, uint64_t size, uint64_t durable_size)
{
    struct series_image *image = l->image;

    image->end = SERIES_FILE_HEADER_SIZE;
    for (;;) {
        const uint8_t *at = image->data + image->end;
        struct series_batch_header h;
        size_t content;
        enum err e;

        if (image->end == size)
            break;
        if (!series_batch_header_decode(at, (size_t)(size - image->end), &h) ||
            h.epoch != l->epoch || h.index != l->batch_count || h.size > size - image->end)
            break;
        content = h.size - SERIES_FILE_BATCH_HEADER_SIZE;
        if (series_batch_crc(l->epoch, image->end, at + SERIES_FILE_BATCH_HEADER_SIZE, content) !=
            h.payload_crc)
            break;
        e = sections_load(l, at + SERIES_FILE_BATCH_HEADER_SIZE, content);
        if (e == ERR_CORRUPT)
            return corrupt(l, image->end, "the batch makes no sense");
        if (e != ERR_OK)
            return e;
        image->sequence = h.sequence;
        image->end += h.size;
        l->batch_count++;
    }
    if (image->end < durable_size)
        return corrupt(l, image->end, "the batch is damaged");
    image->torn_bytes = size - image->end;
    return ERR_OK;
}

/* ---- putting in order ---- */

static int value_compare(const void *a, const void *b)
{
    const struct series_image_value *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    /* Texts stand in the file in the order they were defined. */
    return x->text.data < y->text.data ? -1 : x->text.data > y->text.data;
}

/* Ascending by id, the last definition of each. */
static void values_order(struct series_image_name *name)
{
    uint32_t kept = 0;

    qsort(name->values, name->value_count, sizeof *name->values, value_compare);
    for (uint32_t i = 0; i < name->value_count; i++) {
        if (kept > 0 && name->values[kept - 1].id == name->values[i].id)
            kept--;
        name->values[kept++] = name->values[i];
    }
    name->value_count = kept;
}

/* Drops ended series from a group, in place. */
static void group_compact(struct series_image_group *g, const uint8_t *ended, uint32_t name_count)
{
    uint32_t kept = 0, count = g->count;

    for (uint32_t i = 0; i < count; i++) {
        if (ended[i])
            continue;
        g->slots[kept] = g->slots[i];
        g->generations[kept] = g->generations[i];
        g->fingerprints[kept] = g->fingerprints[i];
        g->newest_ms[kept] = g->newest_ms[i];
        g->newest_bits[kept] = g->newest_bits[i];
        kept++;
    }
    for (uint32_t k = 0, to = 0; k < name_count; k++) {
        for (uint32_t i = 0; i < count; i++) {
            if (!ended[i])
                g->values[to++] = g->values[(size_t)k * count + i];
        }
    }
    g->count = kept;
}

/* A table id -> index where ids are dense enough, else NULL (search then). */
static enum err table_make(struct load *l, const struct series_image_name *name, uint32_t **out,
                           uint32_t *out_size)
{
    uint64_t size =
        name->value_count == 0 ? 0 : (uint64_t)name->values[name->value_count - 1].id + 1;
    uint32_t *table;

    *out = NULL;
    *out_size = 0;
    if (size == name->value_count || size > 4 * (uint64_t)name->value_count + 1024)
        return ERR_OK;
    table = arena_calloc(&l->image->arena, size, sizeof *table);
    if (table == NULL)
        return refused(l);
    for (uint32_t i = 0; i < name->value_count; i++)
        table[name->values[i].id] = i + 1;
    *out = table;
    *out_size = (uint32_t)size;
    return ERR_OK;
}

static bool value_search(const struct series_image_name *name, uint32_t id, uint32_t *out)
{
    uint32_t low = 0, high = name->value_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (name->values[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    *out = low;
    return low < name->value_count && name->values[low].id == id;
}

struct value_table {
    uint32_t *by_id; /* index + 1 */
    uint32_t size;
    bool is_identity; /* ids are 0, 1, 2 ... */
};

/* Turns ids into indexes; false when one is not defined. */
static bool column_renumber(const struct series_image_name *name, const struct value_table *t,
                            uint32_t *column, uint32_t count)
{
    uint32_t worst = 0;

    if (t->is_identity) {
        for (uint32_t i = 0; i < count; i++)
            worst = column[i] > worst ? column[i] : worst;
        return count == 0 || worst < name->value_count;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = 0;

        if (t->by_id == NULL) {
            if (!value_search(name, column[i], &index))
                return false;
        } else {
            if (column[i] >= t->size || t->by_id[column[i]] == 0)
                return false;
            index = t->by_id[column[i]] - 1;
        }
        column[i] = index;
    }
    return true;
}

static enum err values_renumber(struct load *l)
{
    struct series_image *image = l->image;
    struct value_table *tables = ARENA_ARRAY(&image->arena, image->name_count, struct value_table);

    if (tables == NULL)
        return refused(l);
    ASSERT(image->name_count == 0 || l->values_sorted != NULL);
    for (uint32_t i = 0; i < image->name_count; i++) {
        struct series_image_name *name = &image->names[i];
        enum err e;

        if (!l->values_sorted[i])
            values_order(name);
        e = table_make(l, name, &tables[i].by_id, &tables[i].size);
        if (e != ERR_OK)
            return e;
        tables[i].is_identity = name->value_count == 0 ||
                                name->values[name->value_count - 1].id == name->value_count - 1;
    }
    for (size_t i = 0; i < image->group_count; i++) {
        struct series_image_group *g = &image->groups[i];
        const struct series_image_schema *schema = &image->schemas[g->schema];

        for (uint32_t k = 0; k < schema->name_count; k++) {
            uint32_t name = schema->names[k];

            if (!column_renumber(&image->names[name], &tables[name],
                                 g->values + (size_t)k * g->count, g->count))
                return corrupt(l, image->end, "a series has a value that is not defined");
        }
    }
    return ERR_OK;
}

/* No slot twice, now that ended series are gone. */
static enum err slots_check(struct load *l)
{
    struct series_image *image = l->image;
    struct arena_mark mark = arena_mark_get(&image->arena);
    uint64_t *seen, repeated = 0;

    for (size_t i = 0; i < image->group_count; i++) {
        const struct series_image_group *g = &image->groups[i];

        image->series_count += g->count;
        if (g->count > 0 && g->slots[g->count - 1] >= image->slot_end)
            image->slot_end = g->slots[g->count - 1] + 1;
    }
    seen = arena_calloc(&image->arena, image->slot_end / 64 + 1, sizeof *seen);
    if (seen == NULL)
        return refused(l);
    for (size_t i = 0; i < image->group_count; i++) {
        const struct series_image_group *g = &image->groups[i];

        for (uint32_t k = 0; k < g->count; k++) {
            uint64_t bit = UINT64_C(1) << (g->slots[k] & 63);

            repeated |= seen[g->slots[k] / 64] & bit;
            seen[g->slots[k] / 64] |= bit;
        }
    }
    arena_mark_return(&image->arena, mark);
    return repeated == 0 ? ERR_OK : corrupt(l, image->end, "a slot stands there twice");
}

static enum err image_finish(struct load *l)
{
    struct series_image *image = l->image;
    enum err e;

    ASSERT(image->group_count == 0 || l->ended != NULL);
    for (size_t i = 0; i < image->group_count; i++) {
        struct series_image_group *g = &image->groups[i];

        if (l->ended[i] != NULL)
            group_compact(g, l->ended[i], image->schemas[g->schema].name_count);
    }
    e = values_renumber(l);
    return e == ERR_OK ? slots_check(l) : e;
}

/* ---- the file ---- */

static enum err identity_check(struct load *l, const struct series_file_identity *expected,
                               uint64_t size)
{
    struct series_file_identity id;
    enum err e = series_file_header_decode(l->image->data, (size_t)size, l->path, &id, l->ei);

    if (e != ERR_OK)
        return e;
    if (id.shard != expected->shard || id.shard_count != expected->shard_count ||
        id.number != expected->number || id.secret_id != expected->secret_id)
        return errinfo_set_at(l->ei, ERR_CORRUPT, l->path, 0,
                              "the header is of file %" PRIu64 ", shard %" PRIu32 " of %" PRIu32,
                              id.number, id.shard, id.shard_count);
    l->epoch = id.epoch;
    return ERR_OK;
}

static enum err file_load(struct load *l, struct fs *fs, uint64_t end, uint64_t *size)
{
    struct file *f = NULL;
    enum err e = file_open(fs, l->path, FILE_READ, &f, l->ei);

    if (e == ERR_OK)
        e = file_size(f, size, l->ei);
    if (e == ERR_OK && *size > end)
        *size = end;
    if (e == ERR_OK && l->image->arena.budget != NULL)
        e = budget_charge(l->image->arena.budget, (size_t)*size, l->ei);
    if (e == ERR_OK) {
        l->image->data_size = (size_t)*size;
        l->image->data = malloc((size_t)*size + 1);
        e = l->image->data != NULL ? file_read(f, l->image->data, (size_t)*size, 0, l->ei)
                                   : errinfo_set(l->ei, ERR_NOMEM, 0, "%s", l->path);
    }
    file_close(f);
    return e;
}

enum err series_file_load(struct fs *fs, const char *path,
                          const struct series_file_identity *expected, uint64_t durable_size,
                          struct budget *memory, struct series_image *out, struct errinfo *ei)
{
    return series_file_load_prefix(fs, path, expected, durable_size, UINT64_MAX, memory, out, ei);
}

enum err series_file_load_prefix(struct fs *fs, const char *path,
                                 const struct series_file_identity *expected, uint64_t durable_size,
                                 uint64_t end, struct budget *memory, struct series_image *out,
                                 struct errinfo *ei)
{
    struct series_image image = {0};
    struct load l = {.image = &image, .path = path, .ei = ei};
    uint64_t size = 0;
    enum err e;

    arena_init(&image.arena, memory);
    e = file_load(&l, fs, end, &size);
    if (e == ERR_OK)
        e = identity_check(&l, expected, size);
    if (e == ERR_OK)
        e = batches_load(&l, size, durable_size);
    if (e == ERR_OK)
        e = image_finish(&l);
    if (e != ERR_OK) {
        series_image_done(&image);
        return e;
    }
    image.batch_count = l.batch_count;
    image.epoch = l.epoch;
    *out = image;
    return ERR_OK;
}

void series_image_done(struct series_image *image)
{
    if (image->arena.budget != NULL && image->data_size > 0)
        budget_release(image->arena.budget, image->data_size);
    free(image->data);
    arena_done(&image->arena);
    *image = (struct series_image){0};
}
