/*
 * Filling an index from columns: at a restart from the series file, and when it is rebuilt.
 *
 * What index_add() does a series at a time is done here a column at a time: dictionaries first,
 * then the records group by group, then the posting lists of one name after the other by a counting
 * sort, each list made once in its final size. Nobody waits for the lock meanwhile: the index is
 * not published yet.
 */
#include <string.h>

#include "engine/index/index_layout_internal.h"
#include "engine/sealed/series_file_internal.h"

enum {
    /* Ids of values have gaps where values were entered for series that never came to be. */
    GAP_FACTOR = 4,
    GAP_FREE = 4096,
};

struct bulk {
    struct index *ix;
    const struct series_image *image;
    struct arena arena;   /* goes with the call */
    const uint32_t **ids; /* per name: id by position; NULL: they are the same */
    uint32_t *row;        /* values of one series */
    struct errinfo *ei;
};

/* ---- dictionaries ---- */

static enum err corrupt(const struct bulk *b, const char *what)
{
    return errinfo_set(b->ei, ERR_CORRUPT, 0, "index: %s in an image of series", what);
}

static enum err value_load(struct bulk *b, struct dictionary *d, const struct series_image_value *v)
{
    struct index *ix = b->ix;
    uint32_t hash = index_hash(ix, v->text), id;
    enum err e = ERR_OK;

    if (dictionary_find(d, hash, v->text) != DICTIONARY_NONE)
        return corrupt(b, "a value stands twice");
    while (d->count < v->id && e == ERR_OK)
        e = dictionary_skip(d, &ix->memory, b->ei);
    if (e == ERR_OK)
        e = dictionary_add(d, &ix->memory, &ix->slabs, hash, v->text, &id, b->ei);
    if (e == ERR_OK)
        ix->value_count++;
    return e;
}

/* A table of ids by position where they differ. */
static enum err ids_make(struct bulk *b, uint32_t name_id)
{
    const struct series_image_name *name = &b->image->names[name_id];
    uint32_t *ids;

    b->ids[name_id] = NULL;
    if (name->value_count == 0 || name->values[name->value_count - 1].id == name->value_count - 1)
        return ERR_OK; /* they ascend strictly */
    if (name->values[name->value_count - 1].id / GAP_FACTOR > name->value_count + GAP_FREE)
        return corrupt(b, "ids of values are too sparse");
    ids = ARENA_ARRAY(&b->arena, name->value_count, uint32_t);
    if (ids == NULL)
        return arena_error(&b->arena, b->ei);
    for (uint32_t v = 0; v < name->value_count; v++)
        ids[v] = name->values[v].id;
    b->ids[name_id] = ids;
    return ERR_OK;
}

static enum err names_load(struct bulk *b)
{
    for (uint32_t i = 0; i < b->image->name_count; i++) {
        const struct series_image_name *name = &b->image->names[i];
        uint32_t id;
        enum err e = index_name_ensure(b->ix, name->text, &id, b->ei);

        if (e == ERR_OK && id != i)
            e = corrupt(b, "a name stands twice");
        if (e == ERR_OK)
            e = ids_make(b, i);
        for (uint32_t v = 0; v < name->value_count && e == ERR_OK; v++)
            e = value_load(b, index_dictionary(b->ix, i), &name->values[v]);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err schemas_load(struct bulk *b)
{
    uint32_t widest = 0;

    for (uint32_t i = 0; i < b->image->schema_count; i++) {
        const struct series_image_schema *s = &b->image->schemas[i];
        struct str key = {(const char *)s->names, s->name_count * sizeof *s->names};
        uint32_t hash = index_hash(b->ix, key), id;
        enum err e;

        if (dictionary_find(&b->ix->schemas, hash, key) != DICTIONARY_NONE)
            return corrupt(b, "a schema stands twice");
        e = index_schema_add(b->ix, hash, key, s->name_count, &id, b->ei);
        if (e != ERR_OK)
            return e;
        widest = s->name_count > widest ? s->name_count : widest;
    }
    b->row = ARENA_ARRAY(&b->arena, widest, uint32_t);
    return b->row == NULL ? arena_error(&b->arena, b->ei) : ERR_OK;
}

/* ---- records ---- */

static enum err group_records(struct bulk *b, const struct series_image_group *g)
{
    const struct series_image_schema *schema = &b->image->schemas[g->schema];

    for (uint32_t i = 0; i < g->count; i++) {
        enum err e = index_record_reserve(b->ix, schema->name_count, b->ei);

        if (e == ERR_OK)
            e = paged_ensure(&b->ix->slots, &b->ix->memory, g->slots[i], b->ei);
        if (e != ERR_OK)
            return e;
        for (uint32_t k = 0; k < schema->name_count; k++) {
            uint32_t value = g->values[(size_t)k * g->count + i];
            const uint32_t *ids = b->ids[schema->names[k]];

            b->row[k] = ids == NULL ? value : ids[value];
        }
        index_record_append(b->ix, g->slots[i], g->schema, b->row, schema->name_count);
    }
    /* The newest series of a schema is a guess for the next one. */
    if (g->count > 0 && schema->name_count > 0)
        memcpy(index_schema(b->ix, g->schema)->last_values, b->row,
               schema->name_count * sizeof *b->row);
    return ERR_OK;
}

static enum err records_load(struct bulk *b)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < b->image->group_count && e == ERR_OK; i++)
        e = group_records(b, &b->image->groups[i]);
    return e;
}

/* ---- posting lists ---- */

/* Gives list i to the entry ids[i] of a dictionary (NULL: i). */
static enum err lists_give(struct bulk *b, struct dictionary *d, const uint32_t *ids,
                           uint32_t count, const struct series_image_postings *lists)
{
    struct index *ix = b->ix;
    enum err e = index_memory_settle(&ix->memory, b->ei);

    for (uint32_t i = 0; i < count && e == ERR_OK; i++) {
        struct dictionary_entry *entry = dictionary_at(d, ids == NULL ? i : ids[i]);

        e = postings_fill(&ix->pool, &entry->postings, lists->slots + lists->offsets[i],
                          lists->offsets[i + 1] - lists->offsets[i], b->ei);
    }
    return e;
}

static enum err postings_load(struct bulk *b)
{
    const struct series_image *image = b->image;
    struct series_image_sorter sorter;
    struct series_image_postings lists;
    struct arena_mark mark;
    enum err e = series_image_sorter_init(&sorter, image, &b->arena, b->ei);

    if (e != ERR_OK)
        return e;
    mark = arena_mark_get(&b->arena);
    for (uint32_t i = 0; i < image->name_count && e == ERR_OK; i++) {
        e = series_image_postings(&sorter, i, &b->arena, &lists, b->ei);
        if (e == ERR_OK)
            e = lists_give(b, index_dictionary(b->ix, i), b->ids[i], image->names[i].value_count,
                           &lists);
        arena_mark_return(&b->arena, mark);
    }
    if (e == ERR_OK)
        e = series_image_schema_postings(&sorter, &b->arena, &lists, b->ei);
    if (e == ERR_OK)
        e = lists_give(b, &b->ix->schemas, NULL, image->schema_count, &lists);
    if (e == ERR_OK) {
        series_image_slots(&sorter, lists.slots); /* as many, in another order */
        e = postings_fill(&b->ix->pool, &b->ix->all, lists.slots, (uint32_t)image->series_count,
                          b->ei);
    }
    return e;
}

enum err index_load_image(struct index *ix, const struct series_image *image, struct errinfo *ei)
{
    struct bulk b = {.ix = ix, .image = image, .ei = ei};
    enum err e = ERR_OK;

    ASSERT(ix->names.count == 0 && ix->all.count == 0);
    arena_init(&b.arena, ix->memory.budget);
    b.ids = arena_calloc(&b.arena, image->name_count, sizeof *b.ids);
    if (b.ids == NULL)
        e = arena_error(&b.arena, ei);
    rwlock_write_lock(&ix->lock);
    if (e == ERR_OK)
        e = names_load(&b);
    if (e == ERR_OK)
        e = schemas_load(&b);
    if (e == ERR_OK)
        e = records_load(&b);
    if (e == ERR_OK)
        e = postings_load(&b);
    rwlock_write_unlock(&ix->lock);
    arena_done(&b.arena);
    return e;
}
