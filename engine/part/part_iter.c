/*
 * All series of a part in storage order with their chunks as bytes. Labels, fingerprints and chunk
 * entries are read for a group of series at a time, data pages for as many of them as fit into
 * about a megabyte.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/part/part_store_internal.h"

enum { GROUP_SERIES = 128, PINNED_BYTES = 1 << 20 };

struct part_iter {
    struct part *p;
    uint32_t next; /* the series that the next call gives */

    /* The group at hand: series [first, end). */
    uint32_t first, end;
    struct arena arena; /* of all below */
    struct part_times_memo memo;
    struct labels labels[GROUP_SERIES];
    struct hash128 prints[GROUP_SERIES];
    struct part_chunk_list chunks[GROUP_SERIES];

    /* Data pages of series [.., pinned_end). */
    uint32_t pinned_end;
    struct part_page_request *requests; /* owned */
    size_t request_count, request_capacity;

    struct part_series series;
    struct part_chunk_raw *raw; /* owned */
    size_t raw_capacity;
};

enum err part_iter_new(struct part *p, struct part_iter **out, struct errinfo *ei)
{
    struct part_iter *it = calloc(1, sizeof *it);

    if (it == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "iterator of a part");
    it->p = p;
    arena_init(&it->arena, p->store->memory);
    *out = it;
    return ERR_OK;
}

static void pages_drop(struct part_iter *it)
{
    part_pages_release(it->requests, it->request_count);
    it->request_count = 0;
}

static void group_drop(struct part_iter *it)
{
    pages_drop(it);
    part_times_memo_done(&it->memo);
    memset(&it->memo, 0, sizeof it->memo);
    arena_reset(&it->arena);
}

void part_iter_free(struct part_iter *it)
{
    if (it == NULL)
        return;
    group_drop(it);
    arena_done(&it->arena);
    free(it->requests);
    free(it->raw);
    free(it);
}

static enum err group_load(struct part_iter *it, struct errinfo *ei)
{
    uint32_t numbers[GROUP_SERIES], count = it->p->footer.info.series_count - it->next;
    enum err e;

    group_drop(it);
    count = count < GROUP_SERIES ? count : GROUP_SERIES;
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = it->next + i;
    it->first = it->end = it->pinned_end = it->next;
    if ((e = part_labels(it->p, numbers, count, &it->arena, it->labels, ei)) != ERR_OK ||
        (e = part_fingerprints(it->p, numbers, count, it->prints, ei)) != ERR_OK ||
        (e = part_chunks(it->p, numbers, count, INT64_MIN, INT64_MAX, &it->arena, it->chunks,
                         ei)) != ERR_OK ||
        (e = part_times_memo_init(&it->memo, it->p, &it->arena, ei)) != ERR_OK)
        return e;
    it->end = it->next + count;
    return ERR_OK;
}

static bool requests_reserve(struct part_iter *it, size_t count)
{
    struct part_page_request *grown;
    size_t capacity = it->request_capacity * 2;

    if (count <= it->request_capacity - it->request_count)
        return true;
    if (capacity < it->request_count + count)
        capacity = it->request_count + count + 64;
    grown = realloc(it->requests, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    it->requests = grown;
    it->request_capacity = capacity;
    return true;
}

/* Reads the pages of as many series as fit, one at least. */
static enum err pages_load(struct part_iter *it, struct errinfo *ei)
{
    size_t bytes = 0, count;
    enum err e;

    pages_drop(it);
    for (; it->pinned_end < it->end && bytes < PINNED_BYTES; it->pinned_end++) {
        const struct part_chunk_list *l = &it->chunks[it->pinned_end - it->first];

        if (!requests_reserve(it, l->count))
            return errinfo_set(ei, ERR_NOMEM, 0, "iterator of a part");
        for (size_t i = 0; i < l->count; i++) {
            const struct part_chunk *c = &l->items[i];

            if (it->request_count > 0 &&
                it->requests[it->request_count - 1].offset == c->page_offset)
                continue;
            it->requests[it->request_count++] =
                (struct part_page_request){PART_FILE_CHUNKS, c->page_offset, c->page_size, NULL};
            bytes += c->page_size;
        }
    }
    count = it->request_count;
    e = part_pages_get(it->p, it->requests, count, ei);
    if (e != ERR_OK)
        it->request_count = 0;
    return e;
}

/* The pinned page at `offset`: chunks come in the order of the file, so a search by halves. */
static const struct page *page_at(const struct part_iter *it, uint64_t offset)
{
    size_t low = 0, high = it->request_count;

    while (low + 1 < high) {
        size_t mid = low + (high - low) / 2;

        if (it->requests[mid].offset <= offset)
            low = mid;
        else
            high = mid;
    }
    return it->requests[low].page;
}

static enum err raw_fill(struct part_iter *it, const struct part_chunk *c,
                         struct part_chunk_raw *out, struct errinfo *ei)
{
    *out = (struct part_chunk_raw){.min_time_ms = c->min_time_ms,
                                   .max_time_ms = c->max_time_ms,
                                   .sample_count = c->sample_count,
                                   .column_count = c->column_count};
    for (uint32_t i = 0; i < c->column_count; i++) {
        out->column_size[i] = c->column_size[i];
        out->column_kind[i] = c->column_kind[i];
        out->columns.size += c->column_size[i];
    }
    out->columns.data = page_at(it, c->page_offset)->data + c->data_offset;
    return part_times_bytes(&it->memo, c->times, &out->times, ei);
}

enum err part_iter_next(struct part_iter *it, const struct part_series **out, struct errinfo *ei)
{
    const struct part_chunk_list *l;
    enum err e = ERR_OK;

    *out = NULL;
    if (it->next == it->p->footer.info.series_count)
        return ERR_OK;
    if (it->next == it->end)
        e = group_load(it, ei);
    if (e == ERR_OK && it->next == it->pinned_end)
        e = pages_load(it, ei);
    if (e != ERR_OK)
        return e;
    l = &it->chunks[it->next - it->first];
    if (l->count > it->raw_capacity) {
        struct part_chunk_raw *raw = realloc(it->raw, l->count * sizeof *raw);

        if (raw == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "iterator of a part");
        it->raw = raw;
        it->raw_capacity = l->count;
    }
    for (size_t i = 0; i < l->count && e == ERR_OK; i++)
        e = raw_fill(it, &l->items[i], &it->raw[i], ei);
    if (e != ERR_OK)
        return e;
    it->series = (struct part_series){.series = it->next,
                                      .labels = it->labels[it->next - it->first],
                                      .fingerprint = it->prints[it->next - it->first],
                                      .chunk_count = l->count,
                                      .chunks = it->raw};
    it->next++;
    *out = &it->series;
    return ERR_OK;
}
