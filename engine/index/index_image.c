/*
 * An image of an index's series, from which a smaller index is made.
 *
 * Two passes over the records, in slices under the lock: the first counts the series of each
 * schema, the second fills their columns with the index's ids. Then the ids are made dense, name
 * after name. The series asked for are there before the first pass, so everything they name is
 * below the counts that are read then, however much the index grows meanwhile.
 */
#include <string.h>

#include "engine/index/index_layout_internal.h"
#include "engine/sealed/series_file_internal.h"

struct extract {
    struct index *ix;
    const uint32_t *slots;
    size_t count;
    struct series_image image;
    struct arena scratch;
    uint32_t name_count, schema_count; /* of the index */
    uint32_t *schema_series;           /* per schema of the index: how many of the series */
    uint32_t *schema_new;              /* and its number in the image */
    uint32_t *name_new;                /* per name of the index: in the image, or DICTIONARY_NONE */
    uint32_t *name_old;                /* per name of the image */
    struct errinfo *ei;
};

static enum err scratch_refused(const struct extract *x)
{
    return arena_error(&x->scratch, x->ei);
}
static enum err image_refused(const struct extract *x)
{
    return arena_error(&x->image.arena, x->ei);
}

/* Calls `take` for the record of every slot that is there, under the lock, in slices. */
static void records_walk(struct extract *x,
                         void (*take)(struct extract *x, uint32_t slot, const uint8_t *record))
{
    for (size_t i = 0; i < x->count;) {
        size_t end = x->count - i < INDEX_SLICE_SLOTS ? x->count : i + INDEX_SLICE_SLOTS;

        rwlock_read_lock(&x->ix->lock);
        for (; i < end; i++) {
            const uint8_t *record = index_record(x->ix, x->slots[i]);

            if (record != NULL)
                take(x, x->slots[i], record);
        }
        rwlock_read_unlock(&x->ix->lock);
    }
}

/* ---- names and schemas ---- */

static void record_count(struct extract *x, uint32_t slot, const uint8_t *record)
{
    (void)slot;
    x->schema_series[record_varint(&record)]++;
}

static enum err schemas_count(struct extract *x)
{
    rwlock_read_lock(&x->ix->lock);
    x->name_count = x->ix->names.count;
    x->schema_count = x->ix->schemas.count;
    rwlock_read_unlock(&x->ix->lock);
    x->schema_series = arena_calloc(&x->scratch, x->schema_count, sizeof *x->schema_series);
    x->schema_new = ARENA_ARRAY(&x->scratch, x->schema_count, uint32_t);
    x->name_new = ARENA_ARRAY(&x->scratch, x->name_count, uint32_t);
    x->name_old = ARENA_ARRAY(&x->scratch, x->name_count, uint32_t);
    if (x->schema_series == NULL || x->schema_new == NULL || x->name_new == NULL ||
        x->name_old == NULL)
        return scratch_refused(x);
    records_walk(x, record_count);
    return ERR_OK;
}

/* Numbers what is used, in the order of the old numbers. Lock held. */
static void numbers_give(struct extract *x)
{
    memset(x->name_new, 0xff, x->name_count * sizeof *x->name_new); /* DICTIONARY_NONE */
    for (uint32_t i = 0; i < x->schema_count; i++) {
        const struct schema *s = index_schema(x->ix, i);

        if (x->schema_series[i] == 0)
            continue;
        x->schema_new[i] = x->image.schema_count++;
        for (uint32_t k = 0; k < s->name_count; k++)
            x->name_new[s->names[k]] = 0;
    }
    for (uint32_t i = 0; i < x->name_count; i++) {
        if (x->name_new[i] == DICTIONARY_NONE)
            continue;
        x->name_old[x->image.name_count] = i;
        x->name_new[i] = x->image.name_count++;
    }
}

static bool group_alloc(struct extract *x, struct series_image_group *g, uint32_t schema,
                        uint32_t series, uint32_t name_count)
{
    struct arena *a = &x->image.arena;

    *g = (struct series_image_group){.schema = schema};
    g->slots = ARENA_ARRAY(a, series, uint32_t);
    g->values = arena_alloc_array(a, series, name_count * sizeof *g->values);
    return g->slots != NULL && g->values != NULL;
}

/* A schema and its group, still empty. Lock held. */
static bool schema_make(struct extract *x, uint32_t old)
{
    const struct schema *s = index_schema(x->ix, old);
    struct series_image *image = &x->image;
    uint32_t id = x->schema_new[old];
    uint32_t *names = ARENA_ARRAY(&image->arena, s->name_count, uint32_t);

    if (names == NULL)
        return false;
    for (uint32_t k = 0; k < s->name_count; k++)
        names[k] = x->name_new[s->names[k]];
    image->schemas[id] = (struct series_image_schema){s->name_count, names};
    return group_alloc(x, &image->groups[id], id, x->schema_series[old], s->name_count);
}

static enum err schemas_make(struct extract *x)
{
    struct series_image *image = &x->image;
    bool ok = true;

    rwlock_read_lock(&x->ix->lock);
    numbers_give(x);
    rwlock_read_unlock(&x->ix->lock);
    image->names = arena_calloc(&image->arena, image->name_count, sizeof *image->names);
    image->schemas = ARENA_ARRAY(&image->arena, image->schema_count, struct series_image_schema);
    image->groups = ARENA_ARRAY(&image->arena, image->schema_count, struct series_image_group);
    if (image->names == NULL || image->schemas == NULL || image->groups == NULL)
        return image_refused(x);
    image->group_count = image->schema_count;
    for (uint32_t i = 0; i < x->schema_count && ok; i++) {
        if (x->schema_series[i] == 0)
            continue;
        rwlock_read_lock(&x->ix->lock); /* nobody waits for a few allocations */
        ok = schema_make(x, i);
        rwlock_read_unlock(&x->ix->lock);
    }
    return ok ? ERR_OK : image_refused(x);
}

/* ---- columns ---- */

static void record_take(struct extract *x, uint32_t slot, const uint8_t *record)
{
    uint32_t old = record_varint(&record), id = x->schema_new[old];
    struct series_image_group *g = &x->image.groups[id];
    uint32_t series = x->schema_series[old], i = g->count++;

    ASSERT(i < series);
    g->slots[i] = slot;
    for (uint32_t k = 0; k < x->image.schemas[id].name_count; k++)
        g->values[(size_t)k * series + i] = record_varint(&record);
}

/* ---- values ---- */

/* Calls `visit` for each column of a name. */
static void columns_walk(struct extract *x, uint32_t name, uint32_t *map,
                         void (*visit)(uint32_t *values, uint32_t count, uint32_t *map))
{
    for (size_t i = 0; i < x->image.group_count; i++) {
        struct series_image_group *g = &x->image.groups[i];
        const struct series_image_schema *s = &x->image.schemas[g->schema];

        for (uint32_t k = 0; k < s->name_count; k++)
            if (s->names[k] == name)
                visit(g->values + (size_t)k * g->count, g->count, map);
    }
}
static void column_mark(uint32_t *values, uint32_t count, uint32_t *map)
{
    for (uint32_t i = 0; i < count; i++)
        map[values[i]] = 1;
}
static void column_renumber(uint32_t *values, uint32_t count, uint32_t *map)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = map[values[i]];
}

/* The texts of the values that are marked in map, which gets their numbers. Lock held. */
static void texts_take(const struct dictionary *d, uint32_t first, uint32_t end, uint32_t *map,
                       struct series_image_name *name)
{
    for (uint32_t id = first; id < end; id++) {
        if (map[id] == 0)
            continue;
        map[id] = name->value_count++;
        name->values[map[id]] =
            (struct series_image_value){.text = dictionary_text(d, id), .id = map[id]};
    }
}

static enum err values_make(struct extract *x, uint32_t name_id)
{
    struct series_image_name *name = &x->image.names[name_id];
    const struct dictionary *d;
    uint32_t *map, value_count, used = 0;

    rwlock_read_lock(&x->ix->lock);
    name->text = dictionary_text(&x->ix->names, x->name_old[name_id]);
    d = index_dictionary(x->ix, x->name_old[name_id]); /* never moves */
    value_count = d->count;
    rwlock_read_unlock(&x->ix->lock);
    map = arena_calloc(&x->scratch, value_count, sizeof *map);
    if (map == NULL)
        return scratch_refused(x);
    columns_walk(x, name_id, map, column_mark);
    for (uint32_t id = 0; id < value_count; id++)
        used += map[id];
    name->values = ARENA_ARRAY(&x->image.arena, used, struct series_image_value);
    if (name->values == NULL)
        return image_refused(x);
    name->value_capacity = used;
    for (uint32_t id = 0; id < value_count;) {
        uint32_t end =
            value_count - id < INDEX_SLICE_SLOTS ? value_count : id + (uint32_t)INDEX_SLICE_SLOTS;

        rwlock_read_lock(&x->ix->lock);
        texts_take(d, id, end, map, name);
        rwlock_read_unlock(&x->ix->lock);
        id = end;
    }
    columns_walk(x, name_id, map, column_renumber);
    return ERR_OK;
}

enum err index_image(struct index *ix, const uint32_t *slots, size_t count,
                     struct series_image *out, struct errinfo *ei)
{
    struct extract x = {.ix = ix, .slots = slots, .count = count, .ei = ei};
    enum err e;

    arena_init(&x.image.arena, ix->memory.budget);
    arena_init(&x.scratch, ix->memory.budget);
    e = schemas_count(&x);
    if (e == ERR_OK)
        e = schemas_make(&x);
    if (e == ERR_OK)
        records_walk(&x, record_take);
    for (uint32_t i = 0; i < x.image.name_count && e == ERR_OK; i++) {
        struct arena_mark mark = arena_mark_get(&x.scratch);

        e = values_make(&x, i);
        arena_mark_return(&x.scratch, mark);
    }
    for (size_t i = 0; i < x.image.group_count && e == ERR_OK; i++)
        x.image.series_count += x.image.groups[i].count;
    x.image.slot_end = count == 0 ? 0 : slots[count - 1] + 1;
    arena_done(&x.scratch);
    if (e != ERR_OK)
        series_image_done(&x.image);
    else
        *out = x.image;
    return e;
}
