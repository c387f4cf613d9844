/*
 * Writes a part: files, series and the end. Chunks are in part_writer_chunks.c.
 *
 * Both files are written under temporary names, synced, renamed (chunks first) and made durable by
 * a sync of the directory. A crash leaves temporary names, or final names that no manifest holds:
 * debris either way.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_writer_chunks_internal.h"
#include "engine/part/part_writer_internal.h"

enum { OUTPUT_BUFFER_BYTES = 256 << 10 };

/* ---- output ---- */

enum err part_output_flush(struct part_output *o, struct errinfo *ei)
{
    struct iovec iov = {o->buffer, o->fill};
    enum err e = ERR_OK;

    if (o->fill > 0)
        e = file_write(o->file, &iov, 1, o->size - o->fill, ei);
    if (e == ERR_OK)
        o->fill = 0;
    return e;
}

enum err part_output_append(struct part_output *o, const void *data, size_t size,
                            struct errinfo *ei)
{
    const uint8_t *from = data;

    while (size > 0) {
        size_t n = OUTPUT_BUFFER_BYTES - o->fill;

        n = n < size ? n : size;
        memcpy(o->buffer + o->fill, from, n);
        o->fill += n;
        o->size += n;
        from += n;
        size -= n;
        if (o->fill == OUTPUT_BUFFER_BYTES) {
            enum err e = part_output_flush(o, ei);

            if (e != ERR_OK)
                return e;
        }
    }
    return ERR_OK;
}

enum err part_writer_page(struct part_writer *w, enum part_section section, uint32_t key,
                          const struct byte_writer *page, struct errinfo *ei)
{
    struct part_array *table = &w->tables[section];
    struct part_output *o = &w->outputs[PART_FILE_INDEX];
    struct part_page_entry entry = {.offset = o->size, .key = key};
    uint32_t crc;
    enum err e;

    if (page->failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "page of a part");
    ASSERT(page->size > 0);
    if (page->size > UINT32_MAX - PART_CRC_SIZE)
        return errinfo_set(ei, ERR_LIMIT, 0, "page of a part with %zu bytes", page->size);
    e = part_array_reserve(table, w->store->memory, sizeof entry, 1, ei);
    if (e != ERR_OK)
        return e;
    entry.size = (uint32_t)page->size + PART_CRC_SIZE;
    crc = part_page_crc(page->data, page->size, w->footer.info.id, o->size);
    if ((e = part_output_append(o, page->data, page->size, ei)) != ERR_OK ||
        (e = part_output_append(o, &crc, sizeof crc, ei)) != ERR_OK)
        return e;
    ((struct part_page_entry *)table->data)[table->count++] = entry;
    return ERR_OK;
}

/* ---- opening ---- */

static enum err remove_if_there(struct fs *fs, const char *path, struct errinfo *ei)
{
    bool exists = false;
    enum err e = fs_exists(fs, path, &exists, ei);

    return e == ERR_OK && exists ? fs_unlink(fs, path, ei) : e;
}

static enum err output_open(struct part_writer *w, enum part_file file, struct errinfo *ei)
{
    struct fs *fs = w->store->fs;
    struct part_output *o = &w->outputs[file];
    uint8_t header[PART_HEADER_SIZE];
    bool exists = false;
    enum err e;

    for (size_t temporary = 0; temporary < 2; temporary++) {
        w->names[file][temporary] =
            part_path_new(w->dir, &w->footer.info.key, file, temporary == 1);
        if (w->names[file][temporary] == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "part in %s", w->dir);
    }
    o->buffer = malloc(OUTPUT_BUFFER_BYTES);
    if (o->buffer == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", w->names[file][1]);
    if ((e = fs_exists(fs, w->names[file][0], &exists, ei)) != ERR_OK)
        return e;
    if (exists)
        return errinfo_set(ei, ERR_EXISTS, 0, "%s is there already", w->names[file][0]);
    if ((e = remove_if_there(fs, w->names[file][1], ei)) != ERR_OK ||
        (e = file_open(fs, w->names[file][1], FILE_CREATE, &o->file, ei)) != ERR_OK)
        return e;
    part_header_encode(file, w->footer.info.id, header);
    return part_output_append(o, header, sizeof header, ei);
}

static enum err writer_prepare(struct part_writer *w, const struct part_writer_options *o,
                               struct errinfo *ei)
{
    struct part_info *info = &w->footer.info;
    enum err e;

    hash_secret_init(&w->secret, 0);
    part_dict_init(&w->dict, w->store->memory, &w->secret);
    arena_init(&w->temp, w->store->memory);
    info->key = o->key;
    info->id = o->id != 0 ? o->id : w->secret.id;
    info->min_time_ms = INT64_MAX;
    info->max_time_ms = INT64_MIN;
    w->footer.codec_version = CODEC_VERSION;
    w->dir = strdup(o->dir);
    w->scratch = malloc(sizeof *w->scratch);
    if (w->dir == NULL || w->scratch == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "part writer");
    e = output_open(w, PART_FILE_CHUNKS, ei);
    return e == ERR_OK ? output_open(w, PART_FILE_INDEX, ei) : e;
}

enum err part_writer_new(struct part_store *s, const struct part_writer_options *o,
                         struct part_writer **out, struct errinfo *ei)
{
    struct part_writer *w = NULL;
    enum err e = s->memory == NULL ? ERR_OK : budget_charge(s->memory, PART_WRITER_BYTES, ei);

    if (e != ERR_OK)
        return e;
    w = calloc(1, sizeof *w);
    if (w == NULL) {
        if (s->memory != NULL)
            budget_release(s->memory, PART_WRITER_BYTES);
        return errinfo_set(ei, ERR_NOMEM, 0, "part writer");
    }
    w->store = s;
    e = writer_prepare(w, o, ei);
    if (e == ERR_OK)
        *out = TAKE(w);
    part_writer_free(w);
    return e;
}

/* ---- series ---- */

/* Keeps the label set to compare the next one with. The text stays in the dictionary, which is
 * where the strings of `labels` have just gone, but looking it up again costs more than a copy. */
static enum err previous_keep(struct part_writer *w, const struct labels *labels,
                              struct errinfo *ei)
{
    struct byte_writer *text = &w->previous_text;
    struct label *items;
    size_t at = 0;
    enum err e;

    w->previous.count = 0;
    e = part_array_reserve(&w->previous, w->store->memory, sizeof *items, labels->count, ei);
    if (e != ERR_OK)
        return e;
    writer_reset(text);
    for (size_t i = 0; i < labels->count; i++) {
        writer_append(text, labels->items[i].name.data, labels->items[i].name.size);
        writer_append(text, labels->items[i].value.data, labels->items[i].value.size);
    }
    if (text->failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "part writer");
    items = w->previous.data;
    for (size_t i = 0; i < labels->count; i++) {
        items[i].name = (struct str){(const char *)text->data + at, labels->items[i].name.size};
        at += items[i].name.size;
        items[i].value = (struct str){(const char *)text->data + at, labels->items[i].value.size};
        at += items[i].value.size;
    }
    w->previous.count = labels->count;
    return ERR_OK;
}

enum err part_writer_series(struct part_writer *w, const struct labels *labels,
                            struct hash128 fingerprint, struct errinfo *ei)
{
    struct labels previous = {w->previous.count, w->previous.data};

    ASSERT(!w->finished);
    if (!labels_are_canonical(labels))
        return errinfo_set(ei, ERR_INVALID, 0, "%s: labels of series %" PRIu32 " are not sorted",
                           w->names[PART_FILE_INDEX][1], w->footer.info.series_count);
    if (w->has_series && part_labels_compare(&previous, labels) >= 0)
        return errinfo_set(ei, ERR_INVALID, 0, "%s: series %" PRIu32 " is out of label order",
                           w->names[PART_FILE_INDEX][1], w->footer.info.series_count);
    w->pending = *labels;
    w->pending_print = fingerprint;
    w->has_pending = true;
    w->newest_ms = INT64_MIN;
    return ERR_OK;
}

static enum err print_add(struct part_writer *w, struct hash128 print, struct errinfo *ei)
{
    uint32_t series = w->footer.info.series_count;
    enum err e;

    writer_le64(&w->prints, print.low);
    writer_le64(&w->prints, print.high);
    if ((series + 1) % PART_PRINTS_PER_PAGE != 0)
        return ERR_OK;
    e = part_writer_page(w, PART_SECTION_PRINTS, series + 1 - PART_PRINTS_PER_PAGE, &w->prints, ei);
    writer_reset(&w->prints);
    return e;
}

enum err part_writer_series_commit(struct part_writer *w, struct errinfo *ei)
{
    struct part_info *info = &w->footer.info;
    struct budget *memory = w->store->memory;
    uint32_t metric, entity;
    enum err e;

    if (info->series_count >= PART_NO_SERIES - 1)
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: more than 2^32 series", w->names[0][1]);
    if (w->group.series_count == PART_CHUNK_SERIES_PER_PAGE &&
        (e = part_group_end(w, ei)) != ERR_OK)
        return e;
    if ((e = part_array_reserve(&w->refs, memory, sizeof(uint32_t), 1, ei)) != ERR_OK ||
        (e = part_array_reserve(&w->highs, memory, sizeof(uint64_t), 1, ei)) != ERR_OK ||
        (e = part_dict_add(&w->dict, &w->pending, &metric, &entity, ei)) != ERR_OK ||
        (e = previous_keep(w, &w->pending, ei)) != ERR_OK ||
        (e = print_add(w, w->pending_print, ei)) != ERR_OK)
        return e;
    ((uint32_t *)w->refs.data)[w->refs.count++] = entity;
    ((uint64_t *)w->highs.data)[w->highs.count++] = w->pending_print.high;
    if (metric != PART_ID_NONE)
        ((struct part_value *)w->dict.values.data)[metric].series_count++;
    w->group.chunk_counts[w->group.series_count++] = 0;
    info->series_count++;
    w->has_pending = false;
    w->has_series = true;
    return ERR_OK;
}

uint64_t part_writer_sample_count(const struct part_writer *w)
{
    return w->footer.info.sample_count;
}

/* ---- the end ---- */

static enum err tables_write(struct part_writer *w, struct errinfo *ei)
{
    struct part_output *o = &w->outputs[PART_FILE_INDEX];

    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++) {
        struct part_table *t = &w->footer.tables[s];
        uint32_t crc;
        enum err e;

        t->pages = w->tables[s].data;
        t->count = (uint32_t)w->tables[s].count;
        t->offset = o->size;
        writer_reset(&w->page);
        part_table_encode(&w->page, t);
        t->pages = NULL;
        if (w->page.failed)
            return errinfo_set(ei, ERR_NOMEM, 0, "table of pages");
        crc = part_page_crc(w->page.data, w->page.size, w->footer.info.id, o->size);
        if ((e = part_output_append(o, w->page.data, w->page.size, ei)) != ERR_OK ||
            (e = part_output_append(o, &crc, sizeof crc, ei)) != ERR_OK)
            return e;
    }
    return ERR_OK;
}

static enum err footer_write(struct part_writer *w, struct errinfo *ei)
{
    struct part_output *o = &w->outputs[PART_FILE_INDEX];

    w->footer.info.chunks_size = w->outputs[PART_FILE_CHUNKS].size;
    writer_reset(&w->page);
    part_footer_encode(&w->page, &w->footer);
    if (w->page.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "footer of a part");
    return part_output_append(o, w->page.data, w->page.size, ei);
}

static enum err contents_write(struct part_writer *w, struct errinfo *ei)
{
    enum err e = part_chunks_end(w, ei);

    if (e == ERR_OK && w->prints.size > 0)
        e = part_writer_page(w, PART_SECTION_PRINTS,
                             w->footer.info.series_count / PART_PRINTS_PER_PAGE *
                                 PART_PRINTS_PER_PAGE,
                             &w->prints, ei);
    if (e != ERR_OK || (e = part_writer_index(w, ei)) != ERR_OK ||
        (e = tables_write(w, ei)) != ERR_OK)
        return e;
    return footer_write(w, ei);
}

static enum err publish(struct part_writer *w, struct errinfo *ei)
{
    static const enum part_file order[] = {PART_FILE_CHUNKS, PART_FILE_INDEX};
    enum err e = ERR_OK;

    for (size_t i = 0; i < 2 && e == ERR_OK; i++) {
        struct part_output *o = &w->outputs[order[i]];

        e = part_output_flush(o, ei);
        if (e == ERR_OK)
            e = file_sync(o->file, ei);
    }
    for (size_t i = 0; i < 2 && e == ERR_OK; i++) {
        file_close(TAKE(w->outputs[order[i]].file));
        w->renaming = true;
        e = fs_rename(w->store->fs, w->names[order[i]][1], w->names[order[i]][0], ei);
    }
    if (e == ERR_OK)
        e = fs_sync_dir(w->store->fs, w->dir[0] == '\0' ? "." : w->dir, ei);
    return e;
}

enum err part_writer_finish(struct part_writer *w, uint64_t highest_sequence, struct part_info *out,
                            struct errinfo *ei)
{
    enum err e;

    ASSERT(!w->finished);
    w->finished = true;
    w->footer.info.highest_sequence = highest_sequence;
    if (w->failed)
        return errinfo_set(ei, ERR_INVALID, 0, "%s: a call before has failed",
                           w->names[PART_FILE_INDEX][1]);
    e = contents_write(w, ei);
    if (e == ERR_OK)
        e = publish(w, ei);
    if (e == ERR_OK) {
        w->published = true;
        w->footer.info.index_size = w->outputs[PART_FILE_INDEX].size;
        *out = w->footer.info;
    }
    return e;
}

/* What cannot be removed now is removed as debris at the next start. */
static void debris_remove(struct part_writer *w)
{
    for (size_t file = 0; file < 2; file++) {
        for (size_t temporary = 0; temporary < 2; temporary++) {
            const char *path = w->names[file][temporary];

            if (path != NULL && (temporary == 1 || w->renaming))
                (void)remove_if_there(w->store->fs, path, NULL);
        }
    }
}

void part_writer_free(struct part_writer *w)
{
    struct budget *memory;

    if (w == NULL)
        return;
    memory = w->store->memory;
    for (size_t file = 0; file < 2; file++)
        file_close(w->outputs[file].file);
    /* Only what this writer has made: names that were there before make part_writer_new() fail
     * with nothing created. */
    if (!w->published && w->outputs[PART_FILE_CHUNKS].size > 0)
        debris_remove(w);
    for (size_t file = 0; file < 2; file++) {
        free(w->outputs[file].buffer);
        free(w->names[file][0]);
        free(w->names[file][1]);
    }
    for (size_t s = 0; s < PART_SECTION_COUNT; s++)
        part_array_done(&w->tables[s], memory);
    part_dict_done(&w->dict);
    part_array_done(&w->refs, memory);
    part_array_done(&w->highs, memory);
    part_array_done(&w->previous, memory);
    part_array_done(&w->times_table, memory);
    part_group_done(w);
    arena_done(&w->temp);
    writer_done(&w->prints);
    writer_done(&w->previous_text);
    writer_done(&w->page);
    writer_done(&w->data);
    writer_done(&w->times.bytes);
    free(w->scratch);
    free(w->dir);
    free(w);
    if (memory != NULL)
        budget_release(memory, PART_WRITER_BYTES);
}
