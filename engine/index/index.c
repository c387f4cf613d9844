/*
 * The index of one shard: adding label sets and reading them back.
 *
 * index_add() is on the path of every new series, and a rollout makes millions of them, so it
 * leans on what new series have in common: the next one mostly has the label names of one of the
 * last few, and most of its values are those of the newest series with these names. Both are
 * compared before anything is hashed. Everything that can fail is done before the first posting
 * list changes; a failure leaves at most dictionary entries that no series has, which no reader
 * shows.
 *
 * No step copies a large table: arrays grow by pages, the dictionaries by one bucket an insertion,
 * so the lock is held for microseconds.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/index/index_layout_internal.h"

enum { VARINT_MAX_BYTES = 5, SCRATCH_MIN = 32 };

enum err index_new(struct budget *memory, struct index **out, struct errinfo *ei)
{
    struct index *ix = calloc(1, sizeof *ix);
    enum err e;

    if (ix == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "index");
    if (memory != NULL && (e = budget_charge(memory, sizeof *ix, ei)) != ERR_OK) {
        free(ix);
        return e;
    }
    ix->memory = (struct index_memory){.budget = memory, .charged_bytes = sizeof *ix};
    rwlock_init(&ix->lock);
    hash_secret_init(&ix->secret, 0);
    postings_pool_init(&ix->pool, &ix->memory);
    dictionary_init(&ix->names);
    dictionary_init(&ix->schemas);
    ix->values.item_size = sizeof(struct dictionary);
    ix->schema_items.item_size = sizeof(struct schema);
    ix->slots.item_size = sizeof(uint32_t);
    ix->chunks.item_size = sizeof(struct record_chunk);
    ix->record_pos = 1; /* 0 says that a slot is empty */
    *out = ix;
    return ERR_OK;
}

void index_free(struct index *ix)
{
    if (ix == NULL)
        return;
    for (uint32_t i = 0; i < ix->names.count; i++)
        dictionary_done(index_dictionary(ix, i));
    for (uint32_t i = 0; i < ix->schemas.count; i++)
        free(index_schema(ix, i)->last_values);
    for (uint32_t i = 0; i <= ix->record_pos / RECORD_CHUNK_BYTES; i++) {
        struct record_chunk *c = paged_find(&ix->chunks, i);

        if (c != NULL)
            free(c->bytes);
    }
    dictionary_done(&ix->names);
    dictionary_done(&ix->schemas);
    postings_done(&ix->all);
    paged_done(&ix->values);
    paged_done(&ix->schema_items);
    paged_done(&ix->slots);
    paged_done(&ix->chunks);
    postings_pool_done(&ix->pool);
    text_slabs_done(&ix->slabs);
    free(ix->scratch_values);
    free(ix->scratch_names);
    index_memory_done(&ix->memory);
    rwlock_done(&ix->lock);
    free(ix);
}

/* ---- adding ---- */

static enum err scratch_ensure(struct index *ix, size_t count, struct errinfo *ei)
{
    uint32_t capacity = ix->scratch_capacity < SCRATCH_MIN ? SCRATCH_MIN : ix->scratch_capacity;
    void *values, *names;
    enum err e;

    if (count <= ix->scratch_capacity)
        return ERR_OK;
    while (capacity < count)
        capacity *= 2;
    e = index_memory_alloc(&ix->memory, capacity * sizeof(uint32_t), &values, ei);
    if (e != ERR_OK)
        return e;
    e = index_memory_alloc(&ix->memory, capacity * sizeof(uint32_t), &names, ei);
    if (e != ERR_OK) {
        index_memory_free(&ix->memory, values, capacity * sizeof(uint32_t));
        return e;
    }
    index_memory_free(&ix->memory, ix->scratch_values, ix->scratch_capacity * sizeof(uint32_t));
    index_memory_free(&ix->memory, ix->scratch_names, ix->scratch_capacity * sizeof(uint32_t));
    ix->scratch_values = values;
    ix->scratch_names = names;
    ix->scratch_capacity = capacity;
    return ERR_OK;
}

static bool schema_has_names(const struct index *ix, uint32_t schema_id,
                             const struct labels *labels)
{
    const struct schema *s = index_schema(ix, schema_id);

    if (s->name_count != labels->count)
        return false;
    for (uint32_t i = 0; i < s->name_count; i++) {
        if (!str_equal(dictionary_text(&ix->names, s->names[i]), labels->items[i].name))
            return false;
    }
    return true;
}

enum err index_name_ensure(struct index *ix, struct str name, uint32_t *out, struct errinfo *ei)
{
    uint32_t hash = index_hash(ix, name);
    enum err e;

    *out = dictionary_find(&ix->names, hash, name);
    if (*out != DICTIONARY_NONE)
        return ERR_OK;
    /* The value dictionary first: once the name is there, so is its dictionary. */
    e = paged_ensure(&ix->values, &ix->memory, ix->names.count, ei);
    if (e != ERR_OK)
        return e;
    dictionary_init(index_dictionary(ix, ix->names.count));
    return dictionary_add(&ix->names, &ix->memory, &ix->slabs, hash, name, out, ei);
}

enum err index_schema_add(struct index *ix, uint32_t hash, struct str key, uint32_t name_count,
                          uint32_t *out, struct errinfo *ei)
{
    size_t size = name_count * sizeof(uint32_t);
    void *last_values = NULL;
    struct schema *s;
    enum err e = paged_ensure(&ix->schema_items, &ix->memory, ix->schemas.count, ei);

    if (e == ERR_OK && size != 0)
        e = index_memory_alloc(&ix->memory, size, &last_values, ei);
    if (e != ERR_OK)
        return e;
    if (size != 0)
        memset(last_values, 0xff, size); /* DICTIONARY_NONE */
    e = dictionary_add(&ix->schemas, &ix->memory, &ix->slabs, hash, key, out, ei);
    if (e != ERR_OK) {
        index_memory_free(&ix->memory, last_values, size);
        return e;
    }
    s = index_schema(ix, *out);
    s->name_count = name_count;
    s->names = (const uint32_t *)(const void *)dictionary_text(&ix->schemas, *out).data;
    s->last_values = last_values;
    return ERR_OK;
}

static void schema_remember(struct index *ix, uint32_t schema_id, uint32_t from)
{
    for (uint32_t i = from; i > 0; i--)
        ix->recent_schemas[i] = ix->recent_schemas[i - 1];
    ix->recent_schemas[0] = schema_id;
}

static enum err schema_ensure(struct index *ix, const struct labels *labels, uint32_t *out,
                              struct errinfo *ei)
{
    struct str key = {(const char *)ix->scratch_names, labels->count * sizeof(uint32_t)};
    uint32_t hash;
    enum err e;

    for (uint32_t i = 0; i < ix->recent_count; i++) {
        uint32_t id = ix->recent_schemas[i];

        if (schema_has_names(ix, id, labels)) {
            schema_remember(ix, id, i);
            *out = id;
            return ERR_OK;
        }
    }
    for (size_t i = 0; i < labels->count; i++) {
        e = index_name_ensure(ix, labels->items[i].name, &ix->scratch_names[i], ei);
        if (e != ERR_OK)
            return e;
    }
    hash = index_hash(ix, key);
    *out = dictionary_find(&ix->schemas, hash, key);
    if (*out == DICTIONARY_NONE) {
        e = index_schema_add(ix, hash, key, (uint32_t)labels->count, out, ei);
        if (e != ERR_OK)
            return e;
    }
    if (ix->recent_count < INDEX_RECENT_SCHEMAS)
        ix->recent_count++;
    schema_remember(ix, *out, ix->recent_count - 1);
    return ERR_OK;
}

static enum err value_id_ensure(struct index *ix, uint32_t name_id, uint32_t guess,
                                struct str value, uint32_t *out, struct errinfo *ei)
{
    struct dictionary *d = index_dictionary(ix, name_id);
    uint32_t hash;
    enum err e;

    if (guess != DICTIONARY_NONE && str_equal(dictionary_text(d, guess), value)) {
        *out = guess;
        return ERR_OK;
    }
    hash = index_hash(ix, value);
    *out = dictionary_find(d, hash, value);
    if (*out != DICTIONARY_NONE)
        return ERR_OK;
    e = dictionary_add(d, &ix->memory, &ix->slabs, hash, value, out, ei);
    if (e == ERR_OK)
        ix->value_count++;
    return e;
}

/* The first chunk grows by copying, so that a small shard stays small; every other one is whole
 * from the start. */
enum err index_record_reserve(struct index *ix, uint32_t name_count, struct errinfo *ei)
{
    uint32_t size = (name_count + 1) * VARINT_MAX_BYTES;
    uint32_t offset = ix->record_pos % RECORD_CHUNK_BYTES;
    uint32_t number = ix->record_pos / RECORD_CHUNK_BYTES;
    uint32_t capacity = RECORD_CHUNK_BYTES;
    struct record_chunk *c;
    void *bytes;
    enum err e;

    if (offset + size > RECORD_CHUNK_BYTES) {
        if (number >= UINT32_MAX / RECORD_CHUNK_BYTES)
            return errinfo_set(ei, ERR_LIMIT, 0, "index: a shard's label sets exceed 4 GiB");
        number++;
        offset = 0;
        ix->record_pos = number * RECORD_CHUNK_BYTES;
    }
    e = paged_ensure(&ix->chunks, &ix->memory, number, ei);
    if (e != ERR_OK)
        return e;
    c = paged_at(&ix->chunks, number);
    if (offset + size <= c->capacity)
        return ERR_OK;
    if (number == 0) {
        capacity = c->capacity == 0 ? RECORD_CHUNK_MIN_BYTES : c->capacity * 2;
        while (capacity < offset + size)
            capacity *= 2;
    }
    e = index_memory_alloc(&ix->memory, capacity, &bytes, ei);
    if (e != ERR_OK)
        return e;
    if (c->capacity != 0)
        memcpy(bytes, c->bytes, c->capacity);
    index_memory_free(&ix->memory, c->bytes, c->capacity);
    c->bytes = bytes;
    c->capacity = capacity;
    return ERR_OK;
}

void index_record_append(struct index *ix, uint32_t slot, uint32_t schema_id,
                         const uint32_t *values, uint32_t count)
{
    const struct record_chunk *c = paged_at(&ix->chunks, ix->record_pos / RECORD_CHUNK_BYTES);
    uint8_t *start = c->bytes + ix->record_pos % RECORD_CHUNK_BYTES;
    uint8_t *p = start + varint_write(start, schema_id);

    for (uint32_t i = 0; i < count; i++)
        p += varint_write(p, values[i]);
    *(uint32_t *)paged_at(&ix->slots, slot) = ix->record_pos;
    ix->record_pos += (uint32_t)(p - start);
}

static enum err reserve_all(struct index *ix, uint32_t slot, uint32_t schema_id,
                            const struct schema *s, struct errinfo *ei)
{
    enum err e;

    if ((e = index_record_reserve(ix, s->name_count, ei)) != ERR_OK ||
        (e = paged_ensure(&ix->slots, &ix->memory, slot, ei)) != ERR_OK ||
        (e = postings_reserve(&ix->pool, &ix->all, ei)) != ERR_OK ||
        (e = postings_reserve(&ix->pool, &dictionary_at(&ix->schemas, schema_id)->postings, ei)) !=
            ERR_OK)
        return e;
    for (uint32_t i = 0; i < s->name_count; i++) {
        struct dictionary *d = index_dictionary(ix, s->names[i]);

        e = postings_reserve(&ix->pool, &dictionary_at(d, ix->scratch_values[i])->postings, ei);
        if (e != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err add_locked(struct index *ix, uint32_t slot, const struct labels *labels,
                           struct errinfo *ei)
{
    const uint32_t *taken = paged_find(&ix->slots, slot);
    uint32_t schema_id;
    struct schema *s;
    enum err e;

    ASSERT(taken == NULL || *taken == 0);
    if (labels->count > INDEX_LABEL_COUNT_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "index: more than %d labels", INDEX_LABEL_COUNT_MAX);
    if ((e = index_memory_settle(&ix->memory, ei)) != ERR_OK ||
        (e = scratch_ensure(ix, labels->count, ei)) != ERR_OK ||
        (e = schema_ensure(ix, labels, &schema_id, ei)) != ERR_OK)
        return e;
    s = index_schema(ix, schema_id);
    for (uint32_t i = 0; i < s->name_count; i++) {
        e = value_id_ensure(ix, s->names[i], s->last_values[i], labels->items[i].value,
                            &ix->scratch_values[i], ei);
        if (e != ERR_OK)
            return e;
    }
    e = reserve_all(ix, slot, schema_id, s, ei);
    if (e != ERR_OK)
        return e;
    index_record_append(ix, slot, schema_id, ix->scratch_values, s->name_count);
    postings_add(&ix->pool, &ix->all, slot);
    postings_add(&ix->pool, &dictionary_at(&ix->schemas, schema_id)->postings, slot);
    for (uint32_t i = 0; i < s->name_count; i++) {
        struct dictionary *d = index_dictionary(ix, s->names[i]);

        postings_add(&ix->pool, &dictionary_at(d, ix->scratch_values[i])->postings, slot);
        s->last_values[i] = ix->scratch_values[i];
    }
    return ERR_OK;
}

enum err index_add(struct index *ix, uint32_t slot, const struct labels *labels, struct errinfo *ei)
{
    enum err e;

    rwlock_write_lock(&ix->lock);
    e = add_locked(ix, slot, labels, ei);
    rwlock_write_unlock(&ix->lock);
    return e;
}

/* ---- reading label sets ---- */

/* Label items of one record into out[], whose strings are the dictionaries'. Lock held. */
static void record_labels(const struct index *ix, const uint8_t *record, const struct schema *s,
                          struct label *out)
{
    for (uint32_t i = 0; i < s->name_count; i++) {
        out[i].name = dictionary_text(&ix->names, s->names[i]);
        out[i].value = dictionary_text(index_dictionary(ix, s->names[i]), record_varint(&record));
    }
}

/* Copies the strings of one set into the arena, which gives up the borrowed ones. */
static bool own_strings(struct label *items, size_t count, struct arena *arena)
{
    size_t size = 0;
    char *text;

    for (size_t i = 0; i < count; i++)
        size += items[i].name.size + items[i].value.size;
    text = arena_alloc(arena, size);
    if (text == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct str *parts[] = {&items[i].name, &items[i].value};

        for (size_t k = 0; k < 2; k++) {
            if (parts[k]->size != 0)
                memcpy(text, parts[k]->data, parts[k]->size);
            parts[k]->data = text;
            text += parts[k]->size;
        }
    }
    return true;
}

enum err index_labels(struct index *ix, const uint32_t *slots, size_t count, struct arena *arena,
                      struct labels *out, struct errinfo *ei)
{
    bool refused = false;

    for (size_t i = 0; i < count && !refused;) {
        size_t first = i;
        size_t end = count - i < INDEX_SLICE_VALUES ? count : i + INDEX_SLICE_VALUES;

        rwlock_read_lock(&ix->lock);
        for (size_t k = first; k < end; k++)
            __builtin_prefetch(index_record(ix, slots[k])); /* so that the misses overlap */
        for (; i < end && !refused; i++) {
            const uint8_t *record = index_record(ix, slots[i]);
            const struct schema *s;
            struct label *items;

            out[i] = (struct labels){0, NULL};
            if (record == NULL)
                continue;
            s = index_schema(ix, record_varint(&record));
            items = ARENA_ARRAY(arena, s->name_count, struct label);
            refused = items == NULL;
            if (refused)
                continue;
            record_labels(ix, record, s, items);
            out[i] = (struct labels){s->name_count, items};
        }
        rwlock_read_unlock(&ix->lock);
        /* The text never moves, so it is copied without the lock. */
        for (size_t k = first; k < i && !refused; k++)
            refused =
                !own_strings((struct label *)(void *)(uintptr_t)out[k].items, out[k].count, arena);
    }
    return refused ? arena_error(arena, ei) : ERR_OK;
}

static bool equal_locked(const struct index *ix, uint32_t slot, const struct labels *labels)
{
    const uint8_t *record = index_record(ix, slot);
    const struct schema *s;

    if (record == NULL)
        return false;
    s = index_schema(ix, record_varint(&record));
    if (s->name_count != labels->count)
        return false;
    for (uint32_t i = 0; i < s->name_count; i++) {
        const struct dictionary *d = index_dictionary(ix, s->names[i]);

        if (!str_equal(dictionary_text(&ix->names, s->names[i]), labels->items[i].name) ||
            !str_equal(dictionary_text(d, record_varint(&record)), labels->items[i].value))
            return false;
    }
    return true;
}

bool index_labels_equal(struct index *ix, uint32_t slot, const struct labels *labels)
{
    bool equal;

    rwlock_read_lock(&ix->lock);
    equal = equal_locked(ix, slot, labels);
    rwlock_read_unlock(&ix->lock);
    return equal;
}

bool index_has(struct index *ix, uint32_t slot)
{
    bool found;

    rwlock_read_lock(&ix->lock);
    found = index_record(ix, slot) != NULL;
    rwlock_read_unlock(&ix->lock);
    return found;
}

void index_stats_get(struct index *ix, struct index_stats *out)
{
    rwlock_read_lock(&ix->lock);
    *out = (struct index_stats){
        .slot_count = ix->all.count,
        .value_count = ix->value_count,
        .value_bytes = ix->slabs.text_bytes,
        .memory_bytes = ix->memory.charged_bytes + ix->memory.uncharged_bytes,
    };
    rwlock_read_unlock(&ix->lock);
}
