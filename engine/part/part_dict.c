/*
 * The writer's dictionary: names, values and label sets as numbers in order of appearance. What
 * series share (a GPU's labels under thirty metrics) is stored once: an entity is a label set
 * without its metric name.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_writer_internal.h"

/* ---- arrays ---- */

enum err part_array_reserve(struct part_array *a, struct budget *memory, size_t item_size,
                            size_t count, struct errinfo *ei)
{
    size_t capacity = a->capacity;
    void *data;

    a->item_size = item_size;
    if (count <= capacity - a->count)
        return ERR_OK;
    if (count > SIZE_MAX / 4 / item_size - a->count)
        return errinfo_set(ei, ERR_LIMIT, 0, "array of %zu items", count);
    capacity = capacity < 64 ? 64 : capacity * 2;
    if (capacity < a->count + count)
        capacity = a->count + count;
    if (memory != NULL) {
        enum err e = budget_charge(memory, (capacity - a->capacity) * item_size, ei);

        if (e != ERR_OK)
            return e;
    }
    data = realloc(a->data, capacity * item_size);
    if (data == NULL) {
        if (memory != NULL)
            budget_release(memory, (capacity - a->capacity) * item_size);
        return errinfo_set(ei, ERR_NOMEM, 0, "array of %zu items", capacity);
    }
    a->data = data;
    a->capacity = capacity;
    return ERR_OK;
}

void part_array_done(struct part_array *a, struct budget *memory)
{
    if (memory != NULL && a->capacity > 0)
        budget_release(memory, a->capacity * a->item_size);
    free(a->data);
    memset(a, 0, sizeof *a);
}

static enum err array_push32(struct part_array *a, struct budget *memory, uint32_t v,
                             struct errinfo *ei)
{
    enum err e = part_array_reserve(a, memory, sizeof v, 1, ei);

    if (e == ERR_OK)
        ((uint32_t *)a->data)[a->count++] = v;
    return e;
}

/* ---- hash tables ---- */

/* Doubles a table that is half full. `hash_of` gives the hash of an entry's number. */
static enum err hash_grow(struct part_dict *d, struct part_hash *h,
                          uint32_t (*hash_of)(const struct part_dict *d, uint32_t number),
                          struct errinfo *ei)
{
    struct part_array grown = {0};
    size_t count = h->slots.capacity == 0 ? 256 : h->slots.capacity * 2;
    const uint32_t *old = h->slots.data;
    uint32_t *slots;
    enum err e;

    if (h->slots.capacity / 2 > h->used)
        return ERR_OK;
    e = part_array_reserve(&grown, d->memory, sizeof *slots, count, ei);
    if (e != ERR_OK)
        return e;
    slots = grown.data;
    ASSERT(slots != NULL);
    memset(slots, 0, count * sizeof *slots);
    for (size_t i = 0; i < h->slots.capacity; i++) {
        size_t at;

        if (old[i] == 0)
            continue;
        at = hash_of(d, old[i] - 1) & (count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (count - 1);
        slots[at] = old[i];
    }
    part_array_done(&h->slots, d->memory);
    h->slots = grown;
    return ERR_OK;
}

static struct part_name *name_at(const struct part_dict *d, uint32_t number)
{
    return (struct part_name *)d->names.data + number;
}
static struct part_value *value_at(const struct part_dict *d, uint32_t number)
{
    return (struct part_value *)d->values.data + number;
}

static uint32_t name_hash_of(const struct part_dict *d, uint32_t number)
{
    return name_at(d, number)->hash;
}
static uint32_t value_hash_of(const struct part_dict *d, uint32_t number)
{
    return value_at(d, number)->hash;
}

static const uint32_t *entity_at(const struct part_dict *d, uint32_t number, uint32_t *count)
{
    const uint32_t *starts = d->entity_starts.data;

    *count = starts[number + 1] - starts[number];
    return (const uint32_t *)d->entity_values.data + starts[number];
}

static uint32_t entity_hash(const struct part_dict *d, const uint32_t *values, uint32_t count)
{
    return (uint32_t)hash64_bytes(d->secret, values, count * sizeof *values);
}

static uint32_t entity_hash_of(const struct part_dict *d, uint32_t number)
{
    uint32_t count;
    const uint32_t *values = entity_at(d, number, &count);

    return entity_hash(d, values, count);
}

/* ---- adding ---- */

static enum err text_copy(struct part_dict *d, struct str from, struct str *out, struct errinfo *ei)
{
    char *copy = arena_memdup0(&d->arena, from.data, from.size);

    if (copy == NULL)
        return arena_error(&d->arena, ei);
    *out = (struct str){copy, from.size};
    return ERR_OK;
}

static enum err add_name(struct part_dict *d, struct str text, uint32_t *out, struct errinfo *ei)
{
    uint32_t hash = (uint32_t)hash64_bytes(d->secret, text.data, text.size);
    struct part_name name = {.hash = hash};
    uint32_t *slots;
    size_t mask, at;
    enum err e = hash_grow(d, &d->name_hash, name_hash_of, ei);

    if (e != ERR_OK)
        return e;
    slots = d->name_hash.slots.data;
    mask = d->name_hash.slots.capacity - 1;
    for (at = hash & mask; slots[at] != 0; at = (at + 1) & mask) {
        if (str_equal(name_at(d, slots[at] - 1)->text, text)) {
            *out = slots[at] - 1;
            return ERR_OK;
        }
    }
    if ((e = part_array_reserve(&d->names, d->memory, sizeof name, 1, ei)) != ERR_OK ||
        (e = text_copy(d, text, &name.text, ei)) != ERR_OK)
        return e;
    *name_at(d, (uint32_t)d->names.count) = name;
    *out = (uint32_t)d->names.count++;
    slots[at] = *out + 1;
    d->name_hash.used++;
    return ERR_OK;
}

static enum err add_value(struct part_dict *d, uint32_t name, struct str text, uint32_t *out,
                          struct errinfo *ei)
{
    uint32_t hash =
        (uint32_t)hash64_bytes(d->secret, text.data, text.size) ^ (name * UINT32_C(0x9e3779b1));
    struct part_value value = {.hash = hash, .name = name};
    uint32_t *slots;
    size_t mask, at;
    enum err e = hash_grow(d, &d->value_hash, value_hash_of, ei);

    if (e != ERR_OK)
        return e;
    slots = d->value_hash.slots.data;
    mask = d->value_hash.slots.capacity - 1;
    for (at = hash & mask; slots[at] != 0; at = (at + 1) & mask) {
        const struct part_value *v = value_at(d, slots[at] - 1);

        if (v->hash == hash && v->name == name && str_equal(v->text, text)) {
            *out = slots[at] - 1;
            return ERR_OK;
        }
    }
    if (d->values.count >= PART_ID_NONE - 1)
        return errinfo_set(ei, ERR_LIMIT, 0, "part with more than 2^32 label values");
    if ((e = part_array_reserve(&d->values, d->memory, sizeof value, 1, ei)) != ERR_OK ||
        (e = text_copy(d, text, &value.text, ei)) != ERR_OK)
        return e;
    *value_at(d, (uint32_t)d->values.count) = value;
    *out = (uint32_t)d->values.count++;
    slots[at] = *out + 1;
    d->value_hash.used++;
    name_at(d, name)->value_count++;
    return ERR_OK;
}

/* The values stand at the end of entity_values, not yet counted. */
static enum err add_entity(struct part_dict *d, uint32_t count, uint32_t *out, struct errinfo *ei)
{
    const uint32_t *values = (const uint32_t *)d->entity_values.data + d->entity_values.count;
    uint32_t hash = entity_hash(d, values, count);
    uint32_t *slots;
    size_t mask, at;
    enum err e = hash_grow(d, &d->entity_hash, entity_hash_of, ei);

    if (e != ERR_OK)
        return e;
    slots = d->entity_hash.slots.data;
    mask = d->entity_hash.slots.capacity - 1;
    for (at = hash & mask; slots[at] != 0; at = (at + 1) & mask) {
        uint32_t other_count;
        const uint32_t *other = entity_at(d, slots[at] - 1, &other_count);

        if (other_count == count && memcmp(other, values, count * sizeof *values) == 0) {
            *out = slots[at] - 1;
            return ERR_OK;
        }
    }
    if (d->entity_values.count + count > UINT32_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "part with more than 2^32 labels");
    *out = part_dict_entity_count(d);
    d->entity_values.count += count;
    e = array_push32(&d->entity_starts, d->memory, (uint32_t)d->entity_values.count, ei);
    if (e != ERR_OK) {
        d->entity_values.count -= count;
        return e;
    }
    slots[at] = *out + 1;
    d->entity_hash.used++;
    return ERR_OK;
}

enum err part_dict_add(struct part_dict *d, const struct labels *labels, uint32_t *metric,
                       uint32_t *entity, struct errinfo *ei)
{
    uint32_t count = 0;
    enum err e = ERR_OK;

    if (d->entity_starts.count == 0)
        e = array_push32(&d->entity_starts, d->memory, 0, ei);
    if (e == ERR_OK) /* one more, so that there is an address even for the empty set */
        e = part_array_reserve(&d->entity_values, d->memory, sizeof(uint32_t), labels->count + 1,
                               ei);
    *metric = PART_ID_NONE;
    for (size_t i = 0; i < labels->count && e == ERR_OK; i++) {
        const struct label *l = &labels->items[i];
        uint32_t name = 0, value = 0;

        if ((e = add_name(d, l->name, &name, ei)) != ERR_OK ||
            (e = add_value(d, name, l->value, &value, ei)) != ERR_OK)
            return e;
        if (str_equal(l->name, LABEL_METRIC_NAME))
            *metric = value;
        else
            ((uint32_t *)d->entity_values.data)[d->entity_values.count + count++] = value;
    }
    return e == ERR_OK ? add_entity(d, count, entity, ei) : e;
}

/* ---- order ---- */

static int compare_names(const void *a, const void *b, void *ctx)
{
    const struct part_dict *d = ctx;

    return str_compare(name_at(d, *(const uint32_t *)a)->text,
                       name_at(d, *(const uint32_t *)b)->text);
}

static int compare_values(const void *a, const void *b, void *ctx)
{
    const struct part_dict *d = ctx;
    const struct part_value *x = value_at(d, *(const uint32_t *)a);
    const struct part_value *y = value_at(d, *(const uint32_t *)b);
    uint32_t x_name = name_at(d, x->name)->rank, y_name = name_at(d, y->name)->rank;

    if (x_name != y_name)
        return x_name < y_name ? -1 : 1;
    return str_compare(x->text, y->text);
}

/* 0, 1, ... count - 1, to be sorted. */
static enum err identity(struct part_dict *d, size_t count, struct part_array *out,
                         struct errinfo *ei)
{
    enum err e = part_array_reserve(out, d->memory, sizeof(uint32_t), count + 1, ei);

    for (size_t i = 0; i < count && e == ERR_OK; i++)
        ((uint32_t *)out->data)[out->count++] = (uint32_t)i;
    return e;
}

enum err part_dict_sort(struct part_dict *d, struct part_array *names, struct part_array *values,
                        struct errinfo *ei)
{
    uint32_t *by_rank, first = 0;
    enum err e;

    if ((e = identity(d, d->names.count, names, ei)) != ERR_OK ||
        (e = identity(d, d->values.count, values, ei)) != ERR_OK)
        return e;
    by_rank = names->data;
    qsort_r(by_rank, names->count, sizeof *by_rank, compare_names, d);
    for (uint32_t i = 0; i < names->count; i++) {
        name_at(d, by_rank[i])->rank = i;
        name_at(d, by_rank[i])->first_rank = first;
        first += name_at(d, by_rank[i])->value_count;
    }
    by_rank = values->data;
    qsort_r(by_rank, values->count, sizeof *by_rank, compare_values, d);
    for (uint32_t i = 0; i < values->count; i++)
        value_at(d, by_rank[i])->rank = i;
    return ERR_OK;
}

/* ---- life ---- */

void part_dict_init(struct part_dict *d, struct budget *memory, const struct hash_secret *secret)
{
    memset(d, 0, sizeof *d);
    d->memory = memory;
    d->secret = secret;
    arena_init(&d->arena, memory);
}

void part_dict_done(struct part_dict *d)
{
    part_array_done(&d->names, d->memory);
    part_array_done(&d->values, d->memory);
    part_array_done(&d->name_hash.slots, d->memory);
    part_array_done(&d->value_hash.slots, d->memory);
    part_array_done(&d->entity_hash.slots, d->memory);
    part_array_done(&d->entity_starts, d->memory);
    part_array_done(&d->entity_values, d->memory);
    arena_done(&d->arena);
}
