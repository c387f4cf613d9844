/*
 * Writing series files. A batch is collected in columns, a set for each schema, and laid out and
 * written in one piece, so that a reader finds all of it or none.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "engine/sealed/sealed_format_internal.h" /* the packed integers */
#include "engine/sealed/series_file_format_internal.h"

/* A growing array of numbers. */
struct numbers {
    int64_t *items; /* owned */
    size_t count, capacity;
};

/* What a batch holds of one schema. Columns of series, of newest samples, of ended series. */
struct schema_batch {
    uint32_t name_count;
    struct numbers slots, generations, newest_ms, newest_bits;
    struct byte_writer fingerprints;
    struct numbers *values; /* owned, name_count of them */
    struct numbers newest_slots, newest_generations, newest_times, newest_values;
    struct numbers ended_slots, ended_generations;
};

/* Value definitions of one name. */
struct name_batch {
    struct numbers ids, sizes;
    struct byte_writer text;
};

struct series_file_writer {
    struct fs *fs;     /* borrowed */
    struct file *file; /* owned */
    char *dir;         /* owned: the folder to sync */
    uint64_t epoch, size, durable_size;
    uint32_t batch_count;
    bool name_durable, failed;
    struct schema_batch *schemas; /* owned, by schema id; all there ever were */
    uint32_t schema_count, schema_capacity;
    struct name_batch *names; /* owned, by name id; all there ever were */
    uint32_t name_count, name_capacity;
    /* New names and schemas of the batch. */
    uint32_t first_name, first_schema;
    struct byte_writer name_text, schema_text;
    struct byte_writer image, section; /* scratch */
    struct codec_scratch codec;
};

/* ---- arrays ---- */

static void numbers_done(struct numbers *n)
{
    free(n->items);
    *n = (struct numbers){0};
}

static bool numbers_reserve(struct numbers *n)
{
    size_t capacity = n->capacity == 0 ? 64 : 2 * n->capacity;
    int64_t *items;

    if (n->count < n->capacity)
        return true;
    items = reallocarray(n->items, capacity, sizeof *items);
    if (items == NULL)
        return false;
    n->items = items;
    n->capacity = capacity;
    return true;
}

/* Room was reserved. */
static void numbers_push(struct numbers *n, int64_t v)
{
    n->items[n->count++] = v;
}

static bool follows(const struct numbers *slots, uint32_t slot)
{
    return slot < SERIES_FILE_SLOT_MAX &&
           (slots->count == 0 || slots->items[slots->count - 1] < (int64_t)slot);
}

static void schema_batch_reset(struct schema_batch *s)
{
    struct numbers *const all[] = {
        &s->slots,        &s->generations,        &s->newest_ms,    &s->newest_bits,
        &s->newest_slots, &s->newest_generations, &s->newest_times, &s->newest_values,
        &s->ended_slots,  &s->ended_generations};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        all[i]->count = 0;
    for (uint32_t k = 0; k < s->name_count; k++)
        s->values[k].count = 0;
    writer_reset(&s->fingerprints);
}

/* Gives back all memory but the list of columns. */
static void schema_batch_trim(struct schema_batch *s)
{
    struct numbers *const all[] = {
        &s->slots,        &s->generations,        &s->newest_ms,    &s->newest_bits,
        &s->newest_slots, &s->newest_generations, &s->newest_times, &s->newest_values,
        &s->ended_slots,  &s->ended_generations};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        numbers_done(all[i]);
    for (uint32_t k = 0; k < s->name_count; k++)
        numbers_done(&s->values[k]);
    writer_done(&s->fingerprints);
}

static void name_batch_trim(struct name_batch *n)
{
    numbers_done(&n->ids);
    numbers_done(&n->sizes);
    writer_done(&n->text);
}

static void batch_reset(struct series_file_writer *w)
{
    for (uint32_t i = 0; i < w->schema_count; i++)
        schema_batch_reset(&w->schemas[i]);
    for (uint32_t i = 0; i < w->name_count; i++) {
        w->names[i].ids.count = 0;
        w->names[i].sizes.count = 0;
        writer_reset(&w->names[i].text);
    }
    writer_reset(&w->name_text);
    writer_reset(&w->schema_text);
    w->first_name = w->name_count;
    w->first_schema = w->schema_count;
}

/* ---- life ---- */

void series_file_trim(struct series_file_writer *w)
{
    for (uint32_t i = 0; i < w->schema_count; i++)
        schema_batch_trim(&w->schemas[i]);
    for (uint32_t i = 0; i < w->name_count; i++)
        name_batch_trim(&w->names[i]);
    writer_done(&w->name_text);
    writer_done(&w->schema_text);
    writer_done(&w->image);
    writer_done(&w->section);
}

void series_file_writer_free(struct series_file_writer *w)
{
    if (w == NULL)
        return;
    series_file_trim(w);
    for (uint32_t i = 0; i < w->schema_count; i++)
        free(w->schemas[i].values);
    free(w->schemas);
    free(w->names);
    file_close(w->file);
    free(w->dir);
    free(w);
}

static enum err epoch_draw(uint64_t *out, struct errinfo *ei)
{
    while (*out == 0) {
        if (getrandom(out, sizeof *out, 0) != (ssize_t)sizeof *out && errno != EINTR)
            return errinfo_set(ei, ERR_IO, errno, "getrandom");
    }
    return ERR_OK;
}

/* Without a file yet; NULL without memory. */
static struct series_file_writer *writer_new(struct fs *fs, const char *path)
{
    struct series_file_writer *w = calloc(1, sizeof *w);
    const char *slash = strrchr(path, '/');

    if (w == NULL)
        return NULL;
    w->fs = fs;
    writer_init(&w->name_text);
    writer_init(&w->schema_text);
    writer_init(&w->image);
    writer_init(&w->section);
    w->dir = slash != NULL ? strndup(path, (size_t)(slash - path)) : strdup(".");
    if (w->dir == NULL) {
        series_file_writer_free(w);
        return NULL;
    }
    return w;
}

enum err series_file_create(struct fs *fs, const char *path,
                            const struct series_file_identity *identity,
                            struct series_file_writer **out, struct errinfo *ei)
{
    struct series_file_writer *w = writer_new(fs, path);
    struct series_file_identity id = *identity;
    uint8_t header[SERIES_FILE_HEADER_SIZE];
    enum err e;

    if (w == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", path);
    e = epoch_draw(&id.epoch, ei);
    if (e == ERR_OK)
        e = file_open(fs, path, FILE_CREATE, &w->file, ei);
    if (e == ERR_OK) {
        w->epoch = id.epoch;
        w->size = sizeof header;
        series_file_header_encode(&id, header);
        e = file_write_bytes(w->file, header, sizeof header, 0, ei);
    }
    if (e != ERR_OK) {
        series_file_writer_free(w); /* the file, if any, is debris: nothing names it */
        return e;
    }
    *out = w;
    return ERR_OK;
}

/* Names and schemas that the file holds already. */
static enum err definitions_restore(struct series_file_writer *w, const struct series_image *image,
                                    struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (uint32_t i = 0; i < image->name_count && e == ERR_OK; i++)
        e = series_file_name(w, i, image->names[i].text, ei);
    for (uint32_t i = 0; i < image->schema_count && e == ERR_OK; i++)
        e = series_file_schema(w, i, image->schemas[i].names, image->schemas[i].name_count, ei);
    if (e == ERR_OK)
        batch_reset(w);
    return e;
}

static enum err tail_restore(struct series_file_writer *w, const struct series_image *image,
                             uint64_t durable_size, struct errinfo *ei)
{
    uint64_t size;
    enum err e = file_size(w->file, &size, ei);

    if (e == ERR_OK && size > image->end)
        e = file_truncate(w->file, image->end, ei);
    if (e == ERR_OK && durable_size < image->end)
        e = file_write_bytes(w->file, image->data + durable_size,
                             (size_t)(image->end - durable_size), durable_size, ei);
    if (e == ERR_OK)
        e = file_sync(w->file, ei);
    return e;
}

enum err series_file_resume(struct fs *fs, const char *path, const struct series_image *image,
                            uint64_t durable_size, struct series_file_writer **out,
                            struct errinfo *ei)
{
    struct series_file_writer *w = writer_new(fs, path);
    enum err e;

    if (w == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", path);
    e = file_open(fs, path, FILE_READ_WRITE, &w->file, ei);
    if (e == ERR_OK)
        e = definitions_restore(w, image, ei);
    if (e == ERR_OK)
        e = tail_restore(w, image, durable_size, ei);
    if (e != ERR_OK) {
        series_file_writer_free(w);
        return e;
    }
    w->epoch = image->epoch;
    w->size = image->end;
    w->durable_size = image->end;
    w->batch_count = image->batch_count;
    *out = w;
    return ERR_OK;
}

static enum err nomem(const struct series_file_writer *w, struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOMEM, 0, "batch of %s", file_path(w->file));
}

static enum err out_of_order(const struct series_file_writer *w, const char *what, uint32_t id,
                             struct errinfo *ei)
{
    return errinfo_set(ei, ERR_INVALID, 0, "%s: %s %" PRIu32, file_path(w->file), what, id);
}

/* ---- collecting ---- */

/* Room for one more item of an array of structs, zeroed; NULL without memory. */
static void *items_grow(void *items, uint32_t count, uint32_t *capacity, size_t size)
{
    uint32_t wanted = *capacity == 0 ? 16 : 2 * *capacity;
    void *grown;

    if (count < *capacity)
        return items;
    grown = reallocarray(items, wanted, size);
    if (grown == NULL)
        return NULL;
    memset((char *)grown + *capacity * size, 0, (wanted - *capacity) * size);
    *capacity = wanted;
    return grown;
}

enum err series_file_name(struct series_file_writer *w, uint32_t name_id, struct str name,
                          struct errinfo *ei)
{
    struct name_batch *names;

    if (name_id != w->name_count || name.size == 0 || name.size > UINT32_MAX)
        return out_of_order(w, "name", name_id, ei);
    names = items_grow(w->names, w->name_count, &w->name_capacity, sizeof *names);
    if (names != NULL)
        w->names = names;
    if (names == NULL || writer_reserve(&w->name_text, name.size + 10) == NULL) {
        w->name_text.failed = false; /* what it holds is whole */
        return nomem(w, ei);
    }
    writer_str(&w->name_text, name);
    writer_init(&w->names[w->name_count++].text);
    return ERR_OK;
}

enum err series_file_value(struct series_file_writer *w, uint32_t name_id, uint32_t value_id,
                           struct str value, struct errinfo *ei)
{
    struct name_batch *n;

    if (name_id >= w->name_count || value.size == 0 || value.size > UINT32_MAX)
        return out_of_order(w, "value of name", name_id, ei);
    n = &w->names[name_id];
    if (!numbers_reserve(&n->ids) || !numbers_reserve(&n->sizes) ||
        writer_reserve(&n->text, value.size) == NULL) {
        n->text.failed = false;
        return nomem(w, ei);
    }
    numbers_push(&n->ids, value_id);
    numbers_push(&n->sizes, (int64_t)value.size);
    writer_append(&n->text, value.data, value.size);
    return ERR_OK;
}

enum err series_file_schema(struct series_file_writer *w, uint32_t schema_id,
                            const uint32_t *name_ids, uint32_t name_count, struct errinfo *ei)
{
    struct schema_batch *schemas, *s;

    if (schema_id != w->schema_count || name_count > SERIES_FILE_NAMES_MAX)
        return out_of_order(w, "schema", schema_id, ei);
    for (uint32_t i = 0; i < name_count; i++) {
        if (name_ids[i] >= w->name_count)
            return out_of_order(w, "schema with name", name_ids[i], ei);
    }
    schemas = items_grow(w->schemas, w->schema_count, &w->schema_capacity, sizeof *schemas);
    if (schemas == NULL)
        return nomem(w, ei);
    w->schemas = schemas;
    s = &w->schemas[w->schema_count];
    s->values = calloc((size_t)name_count + 1, sizeof *s->values);
    if (s->values == NULL ||
        writer_reserve(&w->schema_text, 10 * ((size_t)name_count + 1)) == NULL) {
        free(s->values);
        s->values = NULL;
        w->schema_text.failed = false;
        return nomem(w, ei);
    }
    s->name_count = name_count;
    writer_init(&s->fingerprints);
    writer_varint(&w->schema_text, name_count);
    for (uint32_t i = 0; i < name_count; i++)
        writer_varint(&w->schema_text, name_ids[i]);
    w->schema_count++;
    return ERR_OK;
}

enum err series_file_add(struct series_file_writer *w, const struct series_file_entry *entry,
                         struct errinfo *ei)
{
    struct schema_batch *s;
    bool ok;

    if (entry->schema_id >= w->schema_count ||
        !follows(&w->schemas[entry->schema_id].slots, entry->slot))
        return out_of_order(w, "series at slot", entry->slot, ei);
    s = &w->schemas[entry->schema_id];
    ok = numbers_reserve(&s->slots) && numbers_reserve(&s->generations) &&
         numbers_reserve(&s->newest_ms) && numbers_reserve(&s->newest_bits) &&
         writer_reserve(&s->fingerprints, 16) != NULL;
    for (uint32_t k = 0; k < s->name_count && ok; k++)
        ok = numbers_reserve(&s->values[k]);
    if (!ok) {
        s->fingerprints.failed = false;
        return nomem(w, ei);
    }
    numbers_push(&s->slots, entry->slot);
    numbers_push(&s->generations, entry->generation);
    numbers_push(&s->newest_ms, entry->newest_ms);
    numbers_push(&s->newest_bits, (int64_t)entry->newest_bits);
    writer_le64(&s->fingerprints, entry->fingerprint.low);
    writer_le64(&s->fingerprints, entry->fingerprint.high);
    for (uint32_t k = 0; k < s->name_count; k++)
        numbers_push(&s->values[k], entry->value_ids[k]);
    return ERR_OK;
}

enum err series_file_newest(struct series_file_writer *w, uint32_t schema_id, uint32_t slot,
                            uint16_t generation, int64_t newest_ms, uint64_t newest_bits,
                            struct errinfo *ei)
{
    struct schema_batch *s;

    if (schema_id >= w->schema_count || !follows(&w->schemas[schema_id].newest_slots, slot))
        return out_of_order(w, "newest sample at slot", slot, ei);
    s = &w->schemas[schema_id];
    if (!numbers_reserve(&s->newest_slots) || !numbers_reserve(&s->newest_generations) ||
        !numbers_reserve(&s->newest_times) || !numbers_reserve(&s->newest_values))
        return nomem(w, ei);
    numbers_push(&s->newest_slots, slot);
    numbers_push(&s->newest_generations, generation);
    numbers_push(&s->newest_times, newest_ms);
    numbers_push(&s->newest_values, (int64_t)newest_bits);
    return ERR_OK;
}

enum err series_file_ended(struct series_file_writer *w, uint32_t schema_id, uint32_t slot,
                           uint16_t generation, struct errinfo *ei)
{
    struct schema_batch *s;

    if (schema_id >= w->schema_count || !follows(&w->schemas[schema_id].ended_slots, slot))
        return out_of_order(w, "end of slot", slot, ei);
    s = &w->schemas[schema_id];
    if (!numbers_reserve(&s->ended_slots) || !numbers_reserve(&s->ended_generations))
        return nomem(w, ei);
    numbers_push(&s->ended_slots, slot);
    numbers_push(&s->ended_generations, generation);
    return ERR_OK;
}

/* ---- laying out ---- */

static void put_numbers(struct series_file_writer *w, const struct numbers *n)
{
    sealed_ints_put(&w->section, &w->codec, n->items, n->count);
}

/* Bits of doubles: the value codec makes them smaller than integers would be. */
static void put_bits(struct series_file_writer *w, const struct numbers *n)
{
    uint8_t column[8 * SERIES_INTS_PIECE + CODEC_BOUND_SLACK];
    double v[SERIES_INTS_PIECE];

    for (size_t i = 0; i < n->count; i += SERIES_INTS_PIECE) {
        size_t piece = n->count - i < SERIES_INTS_PIECE ? n->count - i : SERIES_INTS_PIECE;
        size_t size;

        memcpy(v, n->items + i, piece * sizeof *v);
        size = codec_values_encode(v, piece, &w->codec, column);
        writer_varint(&w->section, size);
        writer_append(&w->section, column, size);
    }
}

/* Appends w->section as a section, unless it is empty. */
static void section_end(struct series_file_writer *w, enum series_section kind)
{
    if (w->section.failed)
        w->image.failed = true;
    if (w->section.size == 0)
        return;
    writer_le32(&w->image, kind);
    writer_le32(&w->image, SERIES_SECTION_MUST);
    writer_le64(&w->image, w->section.size);
    writer_append(&w->image, w->section.data, w->section.size);
    writer_reset(&w->section);
}

static void lay_definitions(struct series_file_writer *w)
{
    if (w->name_count > w->first_name) {
        writer_varint(&w->section, w->name_count - w->first_name);
        writer_append(&w->section, w->name_text.data, w->name_text.size);
    }
    section_end(w, SERIES_SECTION_NAMES);
    for (uint32_t i = 0; i < w->name_count; i++) {
        struct name_batch *n = &w->names[i];

        if (n->ids.count == 0)
            continue;
        writer_varint(&w->section, i);
        writer_varint(&w->section, n->ids.count);
        put_numbers(w, &n->ids);
        put_numbers(w, &n->sizes);
        writer_append(&w->section, n->text.data, n->text.size);
    }
    section_end(w, SERIES_SECTION_VALUES);
    if (w->schema_count > w->first_schema) {
        writer_varint(&w->section, w->schema_count - w->first_schema);
        writer_append(&w->section, w->schema_text.data, w->schema_text.size);
    }
    section_end(w, SERIES_SECTION_SCHEMAS);
}

/* Ended ones come before the series that take their slots. */
static void lay_series(struct series_file_writer *w)
{
    for (uint32_t i = 0; i < w->schema_count; i++) {
        const struct schema_batch *s = &w->schemas[i];

        if (s->newest_slots.count == 0)
            continue;
        writer_varint(&w->section, i);
        writer_varint(&w->section, s->newest_slots.count);
        put_numbers(w, &s->newest_slots);
        put_numbers(w, &s->newest_generations);
        put_numbers(w, &s->newest_times);
        put_bits(w, &s->newest_values);
    }
    section_end(w, SERIES_SECTION_NEWEST);
    for (uint32_t i = 0; i < w->schema_count; i++) {
        const struct schema_batch *s = &w->schemas[i];

        if (s->ended_slots.count == 0)
            continue;
        writer_varint(&w->section, i);
        writer_varint(&w->section, s->ended_slots.count);
        put_numbers(w, &s->ended_slots);
        put_numbers(w, &s->ended_generations);
    }
    section_end(w, SERIES_SECTION_ENDED);
    for (uint32_t i = 0; i < w->schema_count; i++) {
        const struct schema_batch *s = &w->schemas[i];

        if (s->slots.count == 0)
            continue;
        writer_varint(&w->section, i);
        writer_varint(&w->section, s->slots.count);
        put_numbers(w, &s->slots);
        put_numbers(w, &s->generations);
        writer_append(&w->section, s->fingerprints.data, s->fingerprints.size);
        put_numbers(w, &s->newest_ms);
        put_bits(w, &s->newest_bits);
        for (uint32_t k = 0; k < s->name_count; k++)
            put_numbers(w, &s->values[k]);
    }
    section_end(w, SERIES_SECTION_SERIES);
}

static enum err writer_usable(const struct series_file_writer *w, struct errinfo *ei)
{
    if (w->failed)
        return errinfo_set(ei, ERR_IO, 0, "%s: a sync failed before", file_path(w->file));
    return ERR_OK;
}

enum err series_file_batch(struct series_file_writer *w, uint64_t sequence, struct errinfo *ei)
{
    static const uint8_t zero[SERIES_FILE_BATCH_HEADER_SIZE];
    struct series_batch_header h = {
        .epoch = w->epoch, .sequence = sequence, .index = w->batch_count};
    enum err e = writer_usable(w, ei);

    if (e != ERR_OK)
        return e;
    writer_reset(&w->image);
    writer_reset(&w->section);
    writer_append(&w->image, zero, sizeof zero);
    lay_definitions(w);
    lay_series(w);
    if (w->image.failed)
        return nomem(w, ei);
    if (w->image.size > SERIES_FILE_BATCH_SIZE_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: batch of %zu bytes", file_path(w->file),
                           w->image.size);
    h.size = (uint32_t)w->image.size;
    h.payload_crc = series_batch_crc(w->epoch, w->size, w->image.data + sizeof zero,
                                     w->image.size - sizeof zero);
    series_batch_header_encode(&h, w->image.data);
    e = file_write_bytes(w->file, w->image.data, w->image.size, w->size, ei);
    if (e != ERR_OK)
        return e;
    w->size += w->image.size;
    w->batch_count++;
    batch_reset(w);
    return ERR_OK;
}

/* ---- durability ---- */

enum err series_file_sync(struct series_file_writer *w, struct errinfo *ei)
{
    enum err e = writer_usable(w, ei);

    if (e != ERR_OK)
        return e;
    e = file_sync(w->file, ei);
    if (e == ERR_OK && !w->name_durable)
        e = fs_sync_dir(w->fs, w->dir, ei);
    if (e != ERR_OK) {
        w->failed = true; /* the kernel may have dropped the pages and call them clean */
        return e;
    }
    w->name_durable = true;
    w->durable_size = w->size;
    return ERR_OK;
}

uint64_t series_file_durable_size(const struct series_file_writer *w)
{
    return w->durable_size;
}
