/*
 * The series file of a seal: which series are new to it, which have gone, and the newest samples as
 * they were cut. Names, values and schemas have the numbers they have in the shard's index, so that
 * nothing has to be looked up; an index that was rebuilt needs a new file.
 *
 * A seal that fails leaves the file behind what was taken out of memory: the next one writes a new
 * file with all series, as they stand when they are cut then.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/seal/seal_internal.h"

enum {
    BATCH_SERIES = 16384, /* of an image, a batch: its columns stay below a few megabytes */
    VISIT_SERIES = 256,
    TEXTS = 256,
};

/* ---- notes ---- */

static bool rows_reserve(struct seal_rows *r, size_t more)
{
    size_t capacity = r->count + more;
    struct seal_row *grown;

    if (capacity <= r->capacity)
        return true;
    if (capacity < 2 * r->capacity)
        capacity = 2 * r->capacity;
    grown = reallocarray(r->items, capacity, sizeof *grown);
    if (grown == NULL)
        return false;
    r->items = grown;
    r->capacity = capacity;
    return true;
}

static void rows_done(struct seal_rows *r)
{
    free(r->items);
    *r = (struct seal_rows){0};
}

bool seal_series_reserve(struct seal_series *n, size_t slot_count)
{
    return rows_reserve(&n->fresh, slot_count) && rows_reserve(&n->ended, slot_count);
}

/* What stays between two seals counts against the limit. It is not refused: seals free memory. */
static void charge_settle(struct seal_series *n)
{
    size_t bytes = ((size_t)n->known_capacity + n->values_capacity) * sizeof(uint32_t);

    if (n->memory == NULL)
        return;
    if (bytes > n->charged_bytes)
        budget_force(n->memory, bytes - n->charged_bytes);
    else if (bytes < n->charged_bytes)
        budget_release(n->memory, n->charged_bytes - bytes);
    n->charged_bytes = bytes;
}

/* Forgets the file, but not its number: the next manifest drops it. */
static void file_forget(struct seal_series *n)
{
    series_file_writer_free(n->writer);
    n->writer = NULL;
    n->number = 0;
    n->names_written = n->schemas_written = 0;
    free(n->values_written);
    n->values_written = NULL;
    n->values_capacity = 0;
    free(n->known);
    n->known = NULL;
    n->known_capacity = 0;
    charge_settle(n);
}

void seal_series_begin(struct seal_series *n, const struct shard *s, bool renew)
{
    n->memory = s->memory;
    n->fresh.count = n->sealed.count = n->ended.count = 0;
    /* Only the holder of maintain_lock replaces the index. */
    if (n->index_version != s->slots.index_version || renew)
        file_forget(n);
    n->index_version = s->slots.index_version;
}

static uint32_t known_at(const struct seal_series *n, uint32_t slot)
{
    return slot < n->known_capacity ? n->known[slot] : 0;
}

void seal_series_note(struct seal_series *n, const struct shard *s, uint32_t begin, uint32_t end)
{
    for (uint32_t slot = begin; slot < end; slot++) {
        const struct series *series = series_find(&s->series, slot);
        uint32_t known = known_at(n, slot);

        if (known != 0 && (series == NULL || series->generation + 1U != known))
            n->ended.items[n->ended.count++] =
                (struct seal_row){.slot = slot, .generation = (uint16_t)(known - 1)};
        if (series != NULL && series->generation + 1U != known)
            n->fresh.items[n->fresh.count++] = (struct seal_row){
                .fingerprint = series->fingerprint,
                .newest_ms = series->newest_ms,
                .newest_bits = series->newest_bits,
                .slot = slot,
                .generation = series->generation,
            };
    }
}

bool seal_series_note_ended(struct seal_series *n, const struct shard *s, const uint32_t *slots,
                            size_t count)
{
    if (n->writer == NULL || n->index_version != s->slots.index_version ||
        !rows_reserve(&n->ended, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (known_at(n, slots[i]) != 0)
            n->ended.items[n->ended.count++] = (struct seal_row){
                .slot = slots[i],
                .generation = (uint16_t)(known_at(n, slots[i]) - 1),
            };
    }
    return true;
}

bool seal_series_note_cuts(struct seal_series *n, const struct series_cut *cuts, size_t count)
{
    if (!rows_reserve(&n->sealed, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (known_at(n, cuts[i].slot) == cuts[i].generation + 1U)
            n->sealed.items[n->sealed.count++] = (struct seal_row){
                .newest_ms = cuts[i].newest_ms,
                .newest_bits = cuts[i].newest_bits,
                .slot = cuts[i].slot,
                .generation = cuts[i].generation,
            };
    }
    return true;
}

/* ---- the file ---- */

static void file_of(const struct engine *e, const struct shard *s, uint64_t number,
                    struct manifest_file *out)
{
    *out = (struct manifest_file){.kind = MANIFEST_SERIES,
                                  .shard = s->number,
                                  .shard_count = e->shard_count,
                                  .number = number};
}

static enum err file_begin(struct engine *e, const struct shard *s, struct errinfo *ei)
{
    struct seal_series *n = &s->sealer->series;
    struct series_file_identity identity = {.shard = s->number,
                                            .shard_count = e->shard_count,
                                            .number = engine_file_number(e),
                                            .secret_id = e->secret.id};
    struct manifest_file f;
    char path[MANIFEST_PATH_SIZE];

    file_of(e, s, identity.number, &f);
    manifest_file_path(&f, path);
    n->number = identity.number;
    return series_file_create(e->fs, path, &identity, &n->writer, ei);
}

void seal_series_drop(struct engine *e, struct shard *s)
{
    struct seal_series *n = &s->sealer->series;
    struct manifest_file f;
    char path[MANIFEST_PATH_SIZE];
    bool named = true;
    enum err ignored;

    if (n->number != 0 && engine_manifest_is_settled(e)) {
        mutex_lock(&e->manifest_lock);
        named = manifest_file_find(&e->manifest, n->number) != NULL;
        mutex_unlock(&e->manifest_lock);
    }
    file_of(e, s, n->number, &f);
    file_forget(n);
    if (named)
        return;
    manifest_file_path(&f, path);
    ignored = fs_unlink(e->fs, path, NULL);
    (void)ignored; /* debris, which the next start removes */
}

void seal_series_done(struct seal_series *n)
{
    file_forget(n);
    rows_done(&n->fresh);
    rows_done(&n->sealed);
    rows_done(&n->ended);
}

/* ---- definitions ---- */

static enum err names_write(struct seal_series *n, struct index *ix, struct errinfo *ei)
{
    uint32_t count = index_name_count(ix);
    enum err e = ERR_OK;

    for (; n->names_written < count && e == ERR_OK; n->names_written++)
        e = series_file_name(n->writer, n->names_written, index_name_text(ix, n->names_written),
                             ei);
    return e;
}

static enum err values_write(struct seal_series *n, struct index *ix, uint32_t name,
                             struct errinfo *ei)
{
    uint32_t count = index_value_count(ix, name), at = n->values_written[name];
    struct str texts[TEXTS];
    enum err e = ERR_OK;

    while (at < count && e == ERR_OK) {
        uint32_t some = count - at < TEXTS ? count - at : TEXTS;

        index_value_texts(ix, name, at, some, texts);
        for (uint32_t i = 0; i < some && e == ERR_OK; i++)
            e = series_file_value(n->writer, name, at + i, texts[i], ei);
        at += some;
    }
    n->values_written[name] = at;
    return e;
}

static enum err all_values_write(struct seal_series *n, struct index *ix, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (n->values_capacity < n->names_written) {
        uint32_t *grown = reallocarray(n->values_written, n->names_written, sizeof *grown);

        if (grown == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "%u label names", n->names_written);
        memset(grown + n->values_capacity, 0,
               (n->names_written - n->values_capacity) * sizeof *grown);
        n->values_written = grown;
        n->values_capacity = n->names_written;
    }
    for (uint32_t i = 0; i < n->names_written && e == ERR_OK; i++)
        e = values_write(n, ix, i, ei);
    return e;
}

static enum err schemas_write(struct seal_series *n, struct index *ix, uint32_t count,
                              struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (; n->schemas_written < count && e == ERR_OK; n->schemas_written++) {
        uint32_t name_count;
        const uint32_t *names = index_schema_names(ix, n->schemas_written, &name_count);

        e = series_file_schema(n->writer, n->schemas_written, names, name_count, ei);
    }
    return e;
}

/* All that the index has and the file does not. Schemas are counted first: their names and values
 * were there before them, and are then counted too. */
static enum err definitions_write(struct seal_series *n, struct index *ix, struct errinfo *ei)
{
    uint32_t schema_count = index_schema_count(ix);
    enum err e = names_write(n, ix, ei);

    if (e == ERR_OK)
        e = all_values_write(n, ix, ei);
    if (e == ERR_OK)
        e = schemas_write(n, ix, schema_count, ei);
    return e;
}

/* ---- rows ---- */

/* Series of the index, copied under its lock. */
struct visit {
    uint32_t schema_ids[VISIT_SERIES], name_counts[VISIT_SERIES];
    size_t value_first[VISIT_SERIES];
    uint32_t *values; /* owned */
    size_t value_count, value_capacity;
    bool refused;
};

static void visit_copy(void *ctx, const struct index_series *series)
{
    struct visit *v = ctx;
    size_t wanted = v->value_count + series->name_count;

    v->schema_ids[series->item] = series->schema_id;
    v->name_counts[series->item] = series->name_count;
    v->value_first[series->item] = v->value_count;
    if (wanted > v->value_capacity) {
        size_t capacity = 2 * wanted;
        uint32_t *grown = reallocarray(v->values, capacity, sizeof *grown);

        v->refused |= grown == NULL;
        if (grown == NULL)
            return;
        v->values = grown;
        v->value_capacity = capacity;
    }
    if (series->name_count > 0)
        memcpy(v->values + v->value_count, series->values, series->name_count * sizeof *v->values);
    v->value_count = wanted;
}

typedef enum err row_write(struct series_file_writer *w, const struct seal_row *row,
                           uint32_t schema_id, const uint32_t *values, struct errinfo *ei);

static enum err fresh_write(struct series_file_writer *w, const struct seal_row *row,
                            uint32_t schema_id, const uint32_t *values, struct errinfo *ei)
{
    const struct series_file_entry entry = {
        .slot = row->slot,
        .schema_id = schema_id,
        .value_ids = values,
        .fingerprint = row->fingerprint,
        .newest_ms = row->newest_ms,
        .newest_bits = row->newest_bits,
        .generation = row->generation,
    };

    return series_file_add(w, &entry, ei);
}

static enum err newest_write(struct series_file_writer *w, const struct seal_row *row,
                             uint32_t schema_id, const uint32_t *values, struct errinfo *ei)
{
    (void)values;
    return series_file_newest(w, schema_id, row->slot, row->generation, row->newest_ms,
                              row->newest_bits, ei);
}

static enum err ended_write(struct series_file_writer *w, const struct seal_row *row,
                            uint32_t schema_id, const uint32_t *values, struct errinfo *ei)
{
    (void)values;
    return series_file_ended(w, schema_id, row->slot, row->generation, ei);
}

static enum err rows_some(struct seal_series *n, struct index *ix, const struct seal_row *rows,
                          size_t count, row_write *put, struct visit *v, struct errinfo *ei)
{
    uint32_t slots[VISIT_SERIES] = {0};
    enum err e = ERR_OK;

    for (size_t i = 0; i < count; i++)
        slots[i] = rows[i].slot;
    v->value_count = 0;
    index_visit(ix, slots, count, visit_copy, v);
    if (v->refused)
        return errinfo_set(ei, ERR_NOMEM, 0, "labels of %zu series", count);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        if (v->name_counts[i] == 0)
            return errinfo_set(ei, ERR_INTERNAL, 0, "slot %u is not in its index", slots[i]);
        e = put(n->writer, &rows[i], v->schema_ids[i], v->values + v->value_first[i], ei);
    }
    return e;
}

/* Writes rows; a batch is ended whenever it is large. */
static enum err rows_write(struct seal_series *n, struct index *ix, const struct seal_rows *rows,
                           row_write *put, uint64_t sequence, struct visit *v, struct errinfo *ei)
{
    size_t in_batch = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < rows->count && e == ERR_OK;) {
        size_t some = rows->count - i < VISIT_SERIES ? rows->count - i : VISIT_SERIES;

        e = rows_some(n, ix, rows->items + i, some, put, v, ei);
        i += some;
        in_batch += some;
        if (e != ERR_OK || in_batch < BATCH_SERIES || i == rows->count)
            continue;
        e = series_file_batch(n->writer, sequence, ei);
        in_batch = 0;
    }
    return e;
}

static bool known_set(struct seal_series *n)
{
    uint32_t end = n->fresh.count > 0 ? n->fresh.items[n->fresh.count - 1].slot + 1 : 0;

    if (end > n->known_capacity) {
        uint32_t capacity = end + end / 8 + 64;
        uint32_t *grown = reallocarray(n->known, capacity, sizeof *grown);

        if (grown == NULL)
            return false;
        memset(grown + n->known_capacity, 0, (capacity - n->known_capacity) * sizeof *grown);
        n->known = grown;
        n->known_capacity = capacity;
    }
    for (size_t i = 0; i < n->ended.count; i++)
        n->known[n->ended.items[i].slot] = 0;
    for (size_t i = 0; i < n->fresh.count; i++)
        n->known[n->fresh.items[i].slot] = n->fresh.items[i].generation + 1U;
    return true;
}

static enum err batch_write(struct seal_series *n, struct index *ix, uint64_t sequence,
                            struct errinfo *ei)
{
    struct visit *v = calloc(1, sizeof *v);
    enum err e;

    if (v == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "labels of a seal");
    e = definitions_write(n, ix, ei);
    if (e == ERR_OK)
        e = rows_write(n, ix, &n->sealed, newest_write, sequence, v, ei);
    if (e == ERR_OK)
        e = rows_write(n, ix, &n->ended, ended_write, sequence, v, ei);
    if (e == ERR_OK)
        e = rows_write(n, ix, &n->fresh, fresh_write, sequence, v, ei);
    if (e == ERR_OK)
        e = series_file_batch(n->writer, sequence, ei);
    free(v->values);
    free(v);
    return e;
}

enum err seal_series_write(struct engine *e, struct shard *s, uint64_t sequence, struct errinfo *ei)
{
    struct seal_series *n = &s->sealer->series;
    enum err err = ERR_OK;

    if (n->fresh.count + n->sealed.count + n->ended.count == 0 && n->writer == NULL)
        return ERR_OK; /* a shard without series */
    if (n->writer == NULL)
        err = file_begin(e, s, ei);
    if (err == ERR_OK)
        err = batch_write(n, s->index, sequence, ei);
    if (err == ERR_OK)
        err = series_file_sync(n->writer, ei);
    if (err == ERR_OK && !known_set(n))
        err = errinfo_set(ei, ERR_NOMEM, 0, "%zu series of a series file", n->fresh.count);
    if (err == ERR_OK)
        series_file_trim(n->writer);
    charge_settle(n);
    rows_done(&n->fresh);
    rows_done(&n->sealed);
    rows_done(&n->ended);
    return err;
}
