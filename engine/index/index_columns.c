/*
 * Reading the index by column: single labels of many slots, records for sorting, and which names
 * and values are in use.
 */
#include <string.h>

#include "engine/index/index_layout_internal.h"

/* ---- one label of many slots ---- */

static int32_t position_in_schema(const struct index *ix, uint32_t schema_id, uint32_t name_id)
{
    const struct schema *s = index_schema(ix, schema_id);

    for (uint32_t i = 0; i < s->name_count; i++) {
        if (s->names[i] == name_id)
            return (int32_t)i;
    }
    return -1;
}

/* As column_cursor_read(), of the slot with this record. */
static uint32_t read_value_id(struct column_cursor *c, const uint8_t *record)
{
    uint32_t schema_id, at;

    if (record == NULL || c->name_id == DICTIONARY_NONE)
        return DICTIONARY_NONE;
    schema_id = record_varint(&record);
    at = schema_id % (sizeof c->schemas / sizeof c->schemas[0]);
    if (c->schemas[at] != schema_id + 1) {
        c->schemas[at] = schema_id + 1;
        c->positions[at] = position_in_schema(c->ix, schema_id, c->name_id);
    }
    if (c->positions[at] < 0)
        return DICTIONARY_NONE;
    for (int32_t skip = c->positions[at]; skip > 0; record++)
        skip -= *record < 0x80;
    return record_varint(&record);
}

uint32_t column_cursor_read(struct column_cursor *c, uint32_t slot)
{
    return read_value_id(c, index_record(c->ix, slot));
}

/* At most INDEX_SLICE_SLOTS of them. */
static void read_column(struct index *ix, const uint32_t *slots, const size_t *rows, size_t count,
                        struct str name, size_t stride, struct str *out)
{
    const uint8_t *records[INDEX_SLICE_SLOTS];
    struct column_cursor cursor;
    const struct dictionary *d;

    rwlock_read_lock(&ix->lock);
    /* Slots come in label order as a rule, which is no order of memory: have the misses overlap. */
    for (size_t i = 0; i < count; i++) {
        records[i] = index_record(ix, slots[i]);
        __builtin_prefetch(records[i]);
    }
    column_cursor_init(&cursor, ix, index_find_name(ix, name));
    d = cursor.name_id == DICTIONARY_NONE ? NULL : index_dictionary(ix, cursor.name_id);
    for (size_t i = 0; i < count; i++) {
        uint32_t id = d == NULL ? DICTIONARY_NONE : read_value_id(&cursor, records[i]);
        struct str *to = &out[(rows == NULL ? i : rows[i]) * stride];

        *to = (struct str){NULL, 0};
        if (id != DICTIONARY_NONE)
            *to = dictionary_text(d, id);
    }
    rwlock_read_unlock(&ix->lock);
}

void index_values_of_rows(struct index *ix, const uint32_t *slots, const size_t *rows, size_t count,
                          const struct str *names, size_t name_count, struct str *out)
{
    for (size_t i = 0; i < count; i += INDEX_SLICE_SLOTS) {
        size_t n = count - i < INDEX_SLICE_SLOTS ? count - i : INDEX_SLICE_SLOTS;

        for (size_t k = 0; k < name_count; k++) {
            if (rows == NULL)
                read_column(ix, slots + i, NULL, n, names[k], name_count, out + i * name_count + k);
            else
                read_column(ix, slots + i, rows + i, n, names[k], name_count, out + k);
        }
    }
}

void index_values_of(struct index *ix, const uint32_t *slots, size_t count, const struct str *names,
                     size_t name_count, struct str *out)
{
    index_values_of_rows(ix, slots, NULL, count, names, name_count, out);
}

/* ---- records ---- */

void index_visit(struct index *ix, const uint32_t *slots, size_t count, index_visitor *visit,
                 void *ctx)
{
    uint32_t values[INDEX_LABEL_COUNT_MAX];

    for (size_t i = 0; i < count;) {
        size_t end = count - i < INDEX_SLICE_SLOTS ? count : i + INDEX_SLICE_SLOTS;

        rwlock_read_lock(&ix->lock);
        for (; i < end; i++) {
            const uint8_t *record = index_record(ix, slots[i]);
            const struct schema *s;
            struct index_series series = {.item = i};

            if (record != NULL) {
                series.schema_id = record_varint(&record);
                s = index_schema(ix, series.schema_id);
                for (uint32_t k = 0; k < s->name_count; k++)
                    values[k] = record_varint(&record);
                series.name_count = s->name_count;
                series.names = s->names;
                series.values = values;
            }
            visit(ctx, &series);
        }
        rwlock_read_unlock(&ix->lock);
    }
}

uint32_t index_name_count(struct index *ix)
{
    uint32_t n;

    rwlock_read_lock(&ix->lock);
    n = ix->names.count;
    rwlock_read_unlock(&ix->lock);
    return n;
}

uint32_t index_value_count(struct index *ix, uint32_t name_id)
{
    uint32_t n;

    rwlock_read_lock(&ix->lock);
    n = name_id < ix->names.count ? index_dictionary(ix, name_id)->count : 0;
    rwlock_read_unlock(&ix->lock);
    return n;
}

uint32_t index_name_id(struct index *ix, struct str name)
{
    uint32_t id;

    rwlock_read_lock(&ix->lock);
    id = index_find_name(ix, name);
    rwlock_read_unlock(&ix->lock);
    return id;
}

struct str index_name_text(struct index *ix, uint32_t name_id)
{
    struct str text;

    rwlock_read_lock(&ix->lock);
    text = dictionary_text(&ix->names, name_id);
    rwlock_read_unlock(&ix->lock);
    return text;
}

uint32_t index_schema_count(struct index *ix)
{
    uint32_t n;

    rwlock_read_lock(&ix->lock);
    n = ix->schemas.count;
    rwlock_read_unlock(&ix->lock);
    return n;
}

const uint32_t *index_schema_names(struct index *ix, uint32_t schema_id, uint32_t *name_count)
{
    const struct schema *s;

    rwlock_read_lock(&ix->lock);
    s = index_schema(ix, schema_id);
    *name_count = s->name_count;
    rwlock_read_unlock(&ix->lock);
    return s->names;
}

void index_value_texts(struct index *ix, uint32_t name_id, uint32_t first, uint32_t count,
                       struct str *out)
{
    for (uint32_t i = 0; i < count;) {
        uint32_t end = count - i < INDEX_SLICE_SLOTS ? count : i + INDEX_SLICE_SLOTS;

        rwlock_read_lock(&ix->lock);
        for (; i < end; i++)
            out[i] = dictionary_text(index_dictionary(ix, name_id), first + i);
        rwlock_read_unlock(&ix->lock);
    }
}

/* ---- names and values in use ---- */

/* True if one of the list's slots passes. Lock not held: each slice of the list is copied. */
static bool any_slot_passes(struct index *ix, const struct dictionary *d, uint32_t id,
                            const struct slot_filter *filter)
{
    uint32_t slots[INDEX_SLICE_VALUES];
    bool keep[INDEX_SLICE_VALUES];
    uint32_t from = 0;
    /* The first slot nearly always passes, so little is read at first. */
    size_t max = 4;

    for (;;) {
        size_t n;

        rwlock_read_lock(&ix->lock);
        n = postings_read(&dictionary_at(d, id)->postings, from, slots, max);
        rwlock_read_unlock(&ix->lock);
        if (n == 0)
            return false;
        if (filter == NULL)
            return true;
        filter->keep(filter->ctx, slots, n, keep);
        if (memchr(keep, true, n) != NULL)
            return true;
        if (slots[n - 1] == UINT32_MAX)
            return false;
        from = slots[n - 1] + 1;
        max = INDEX_SLICE_VALUES;
    }
}

enum err index_names_live(struct index *ix, const struct slot_filter *filter, struct arena *arena,
                          struct str **out, size_t *out_count, struct errinfo *ei)
{
    uint32_t name_count = index_name_count(ix);
    bool *live = arena_calloc(arena, name_count, sizeof *live);
    struct str *names = ARENA_ARRAY(arena, name_count, struct str);
    uint32_t schema_count;
    size_t n = 0;

    if (live == NULL || names == NULL)
        return arena_error(arena, ei);
    rwlock_read_lock(&ix->lock);
    schema_count = ix->schemas.count;
    rwlock_read_unlock(&ix->lock);
    for (uint32_t i = 0; i < schema_count; i++) {
        const struct schema *s;

        if (!any_slot_passes(ix, &ix->schemas, i, filter))
            continue;
        rwlock_read_lock(&ix->lock);
        s = index_schema(ix, i);
        for (uint32_t k = 0; k < s->name_count; k++) {
            if (s->names[k] < name_count) /* else: newer than this call */
                live[s->names[k]] = true;
        }
        rwlock_read_unlock(&ix->lock);
    }
    for (uint32_t i = 0; i < name_count; i++) {
        if (live[i])
            names[n++] = index_name_text(ix, i);
    }
    *out = names;
    *out_count = n;
    return ERR_OK;
}

enum err index_names(struct index *ix, struct arena *arena, struct str **out, size_t *out_count,
                     struct errinfo *ei)
{
    return index_names_live(ix, NULL, arena, out, out_count, ei);
}

/* The first slots of up to a slice of values, and the texts. Returns how many values there are. */
static uint32_t first_slots(struct index *ix, const struct dictionary *d, uint32_t first,
                            uint32_t *slots, bool *has_slot, struct str *texts)
{
    uint32_t n;

    rwlock_read_lock(&ix->lock);
    n = d->count - first < INDEX_SLICE_VALUES ? d->count - first : INDEX_SLICE_VALUES;
    for (uint32_t i = 0; i < n; i++) {
        slots[i] = 0;
        has_slot[i] = postings_read(&dictionary_at(d, first + i)->postings, 0, &slots[i], 1) == 1;
        texts[i] = dictionary_text(d, first + i);
    }
    rwlock_read_unlock(&ix->lock);
    return n;
}

static const struct dictionary *find_dictionary(struct index *ix, struct str name)
{
    const struct dictionary *d = NULL;
    uint32_t id;

    rwlock_read_lock(&ix->lock);
    id = index_find_name(ix, name);
    if (id != DICTIONARY_NONE)
        d = index_dictionary(ix, id);
    rwlock_read_unlock(&ix->lock);
    return d;
}

static uint32_t dictionary_count(struct index *ix, const struct dictionary *d)
{
    uint32_t n;

    rwlock_read_lock(&ix->lock);
    n = d->count;
    rwlock_read_unlock(&ix->lock);
    return n;
}

enum err index_values_live(struct index *ix, struct str name, const struct slot_filter *filter,
                           const _Atomic bool *stop, struct arena *arena, struct str **out,
                           size_t *out_count, struct errinfo *ei)
{
    uint32_t slots[INDEX_SLICE_VALUES];
    bool has_slot[INDEX_SLICE_VALUES], keep[INDEX_SLICE_VALUES];
    struct str texts[INDEX_SLICE_VALUES];
    const struct dictionary *d = find_dictionary(ix, name); /* never moves */
    uint32_t value_count = d == NULL ? 0 : dictionary_count(ix, d);
    struct str *values = ARENA_ARRAY(arena, value_count, struct str);
    size_t n = 0;

    if (values == NULL)
        return arena_error(arena, ei);
    for (uint32_t first = 0; first < value_count;) {
        uint32_t got = first_slots(ix, d, first, slots, has_slot, texts);

        if (stop != NULL && atomic_load_explicit(stop, memory_order_relaxed))
            return errinfo_set(ei, ERR_CANCELED, 0, "reading label values was stopped");
        memset(keep, true, sizeof keep);
        if (filter != NULL)
            filter->keep(filter->ctx, slots, got, keep);
        for (uint32_t i = 0; i < got && n < value_count; i++) {
            if (has_slot[i] && (keep[i] || any_slot_passes(ix, d, first + i, filter)))
                values[n++] = texts[i];
        }
        first += got;
    }
    *out = values;
    *out_count = n;
    return ERR_OK;
}

enum err index_values(struct index *ix, struct str name, struct arena *arena, struct str **out,
                      size_t *out_count, struct errinfo *ei)
{
    return index_values_live(ix, name, NULL, NULL, arena, out, out_count, ei);
}
