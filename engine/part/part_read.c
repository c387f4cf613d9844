/*
 * Chunks and samples of some series.
 *
 * A call goes through its series in storage order, so that each page of the chunk index is decoded
 * once and chunks of neighbours are read together. Data pages are fetched in batches; a batch is
 * decoded before the next one is read, so a call pins little of the cache.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/histogram_chunk.h"
#include "engine/part/part_store_internal.h"
#include "engine/read/column_merge_internal.h"

/* ---- which chunks ---- */

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* series << 32 | item, ascending, in the arena. */
static enum err order_new(const uint32_t *series, size_t count, struct arena *arena, uint64_t **out,
                          struct errinfo *ei)
{
    uint64_t *keys = ARENA_ARRAY(arena, count, uint64_t);
    bool sorted = true;

    if (keys == NULL)
        return arena_error(arena, ei);
    for (size_t i = 0; i < count; i++) {
        keys[i] = (uint64_t)series[i] << 32 | i;
        sorted &= i == 0 || keys[i - 1] <= keys[i];
    }
    if (!sorted)
        qsort(keys, count, sizeof *keys, compare_keys);
    *out = keys;
    return ERR_OK;
}

struct chunk_query {
    struct part *p;
    int64_t min_time_ms, max_time_ms;
    struct arena *arena; /* of the result */
    struct arena *histograms;
    struct arena scratch; /* of decoded pages of the chunk index */
    struct part_times_memo memo;
    struct errinfo *ei;
};

/* Copies the chunks of one series that overlap the range. */
static enum err chunks_of_series(struct chunk_query *q, const struct part_chunk_page *page,
                                 uint32_t row, struct part_chunk_list *out)
{
    uint32_t first = page->first_chunk[row], n = page->first_chunk[row + 1] - first;
    struct part_chunk *items = ARENA_ARRAY(q->arena, n, struct part_chunk);
    int64_t newest_ms = INT64_MIN;
    size_t count = 0;

    if (items == NULL)
        return arena_error(q->arena, q->ei);
    for (uint32_t i = 0; i < n; i++) {
        struct part_chunk c = page->chunks[first + i];
        enum err e = part_times_bounds(&q->memo, &c, q->ei);

        if (e != ERR_OK)
            return e;
        if (i > 0 && c.min_time_ms <= newest_ms)
            return part_page_corrupt(q->p, PART_SECTION_CHUNKS,
                                     page->first_series / PART_CHUNK_SERIES_PER_PAGE, q->ei);
        newest_ms = c.max_time_ms;
        if (c.max_time_ms >= q->min_time_ms && c.min_time_ms <= q->max_time_ms)
            items[count++] = c;
    }
    *out = (struct part_chunk_list){count, items};
    return ERR_OK;
}

static enum err chunks_walk(struct chunk_query *q, const uint64_t *order, size_t count,
                            struct part_chunk_list *out)
{
    struct part_chunk_page page = {.page = NULL};
    enum err e = ERR_OK;

    ASSERT(order != NULL);
    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        uint32_t series = (uint32_t)(order[i] >> 32);

        ASSERT(series < q->p->footer.info.series_count);
        if (page.page == NULL || series - page.first_series >= page.series_count) {
            page_release(page.page);
            page.page = NULL;
            arena_reset(&q->scratch);
            e = part_chunk_page_get(q->p, series / PART_CHUNK_SERIES_PER_PAGE, &q->scratch, &page,
                                    q->ei);
        }
        if (e == ERR_OK)
            e = chunks_of_series(q, &page, series - page.first_series, &out[order[i] & UINT32_MAX]);
    }
    page_release(page.page);
    return e;
}

static enum err query_init(struct chunk_query *q, struct part *p, int64_t min_time_ms,
                           int64_t max_time_ms, struct arena *arena, struct errinfo *ei)
{
    *q = (struct chunk_query){
        .p = p, .min_time_ms = min_time_ms, .max_time_ms = max_time_ms, .arena = arena, .ei = ei};
    arena_init(&q->scratch, arena->budget);
    return part_times_memo_init(&q->memo, p, arena, ei);
}

static void query_done(struct chunk_query *q)
{
    part_times_memo_done(&q->memo);
    arena_done(&q->scratch);
}

enum err part_chunks(struct part *p, const uint32_t *series, size_t count, int64_t min_time_ms,
                     int64_t max_time_ms, struct arena *arena, struct part_chunk_list *out,
                     struct errinfo *ei)
{
    struct chunk_query q;
    uint64_t *order = NULL;
    enum err e = query_init(&q, p, min_time_ms, max_time_ms, arena, ei);

    if (e == ERR_OK)
        e = order_new(series, count, arena, &order, ei);
    if (e == ERR_OK)
        e = chunks_walk(&q, order, count, out);
    query_done(&q);
    return e;
}

/* ---- samples ---- */

enum { READ_PAGES_MAX = 128 };

/* A chunk whose page has been asked for and where its samples go. */
struct read_job {
    const struct part_chunk *chunk;
    size_t request;
    double *value;
    int64_t *t_ms; /* NULL: the series has one chunk and shares the column's timestamps */
    const struct histogram **histogram; /* NULL: the series has none in the chunks at hand */
};

struct read_batch {
    struct part_page_request requests[READ_PAGES_MAX];
    size_t request_count;
    struct read_job *jobs; /* in the arena */
    size_t job_count, job_capacity;
};

static enum err column_corrupt(const struct chunk_query *q, const struct part_chunk *c,
                               const char *what)
{
    return part_corrupt(q->p, PART_FILE_CHUNKS, c->page_offset + c->data_offset, what, q->ei);
}

/* Fills the sums too. */
static enum err histograms_decode(struct chunk_query *q, const struct read_job *job,
                                  struct bytes column)
{
    const struct part_chunk *c = job->chunk;
    struct histogram *h = NULL;
    enum err e = histogram_chunk_decode(column, c->sample_count, q->histograms, &h, q->ei);

    if (e == ERR_CORRUPT)
        return column_corrupt(q, c, "a column of histograms does not decode");
    for (uint32_t i = 0; e == ERR_OK && i < c->sample_count; i++) {
        job->histogram[i] = &h[i];
        job->value[i] = h[i].sum;
    }
    return e;
}

static enum err chunk_decode(struct chunk_query *q, const struct read_job *job,
                             const struct page *page)
{
    const struct part_chunk *c = job->chunk;
    const uint8_t *at = page->data + c->data_offset;

    for (uint32_t i = 0; i < c->column_count; i++) {
        if (c->column_kind[i] == PART_COLUMN_VALUES) {
            if (!codec_values_decode(at, c->column_size[i], c->sample_count, job->value))
                return column_corrupt(q, c, "a column of values does not decode");
            return ERR_OK;
        }
        if (c->column_kind[i] == PART_COLUMN_HISTOGRAMS)
            return histograms_decode(q, job, (struct bytes){at, c->column_size[i]});
        at += c->column_size[i];
    }
    return errinfo_set(q->ei, ERR_UNSUPPORTED, 0,
                       "%s: offset %" PRIu64 ": a chunk of kind %u; a newer version wrote it",
                       q->p->paths[PART_FILE_CHUNKS], c->page_offset + c->data_offset,
                       c->column_kind[0]);
}

static enum err job_run(struct chunk_query *q, const struct read_job *job,
                        const struct part_page_request *requests)
{
    const int64_t *t = NULL;
    enum err e = chunk_decode(q, job, requests[job->request].page);

    if (e == ERR_OK && job->t_ms != NULL)
        e = part_times_column(&q->memo, job->chunk, &t, q->ei);
    if (e == ERR_OK && job->t_ms != NULL)
        memcpy(job->t_ms, t, job->chunk->sample_count * sizeof *t);
    return e;
}

static enum err batch_run(struct chunk_query *q, struct read_batch *b)
{
    enum err e = part_pages_get(q->p, b->requests, b->request_count, q->ei);

    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < b->job_count && e == ERR_OK; i++)
        e = job_run(q, &b->jobs[i], b->requests);
    part_pages_release(b->requests, b->request_count);
    b->request_count = b->job_count = 0;
    return e;
}

static enum err batch_add(struct chunk_query *q, struct read_batch *b, struct read_job job)
{
    const struct part_chunk *c = job.chunk;
    enum err e = ERR_OK;

    /* Chunks come in the order of the file: only the page before can be the same. */
    if (b->request_count == 0 || b->requests[b->request_count - 1].offset != c->page_offset) {
        if (b->request_count == READ_PAGES_MAX)
            e = batch_run(q, b);
        if (e != ERR_OK)
            return e;
        b->requests[b->request_count++] = (struct part_page_request){
            .file = PART_FILE_CHUNKS, .offset = c->page_offset, .size = c->page_size};
    }
    if (b->job_count == b->job_capacity) {
        size_t grown = b->job_capacity == 0 ? 512 : b->job_capacity * 2;

        b->jobs = arena_grow_array(&q->scratch, b->jobs, b->job_count, grown, sizeof *b->jobs);
        if (b->jobs == NULL)
            return arena_error(&q->scratch, q->ei);
        b->job_capacity = grown;
    }
    job.request = b->request_count - 1;
    b->jobs[b->job_count++] = job;
    return ERR_OK;
}

static bool has_histograms(const struct part *p, const struct part_chunk_list *chunks)
{
    for (size_t i = 0; p->footer.info.has_histograms && i < chunks->count; i++) {
        if (memchr(chunks->items[i].column_kind, PART_COLUMN_HISTOGRAMS,
                   chunks->items[i].column_count) != NULL)
            return true;
    }
    return false;
}

/* Gives a series its arrays and asks for its chunks. */
static enum err series_add(struct chunk_query *q, struct read_batch *b,
                           const struct part_chunk_list *chunks, struct column *out)
{
    const struct histogram **histogram = NULL;
    bool is_mixed = has_histograms(q->p, chunks);
    int64_t *t = NULL;
    double *value;
    size_t total = 0;
    enum err e = ERR_OK;

    for (size_t i = 0; i < chunks->count; i++)
        total += chunks->items[i].sample_count;
    value = ARENA_ARRAY(q->arena, total, double);
    if (chunks->count > 1)
        t = ARENA_ARRAY(q->arena, total, int64_t);
    if (is_mixed)
        histogram = arena_calloc(q->arena, total, sizeof(const struct histogram *));
    if (value == NULL || (chunks->count > 1 && t == NULL) || (is_mixed && histogram == NULL))
        return arena_error(q->arena, q->ei);
    *out = (struct column){.count = total, .t_ms = t, .value = value, .histogram = histogram};
    if (chunks->count == 1)
        e = part_times_column(&q->memo, &chunks->items[0], &out->t_ms, q->ei);
    for (size_t i = 0, at = 0; i < chunks->count && e == ERR_OK; i++) {
        struct read_job job = {.chunk = &chunks->items[i],
                               .value = value + at,
                               .t_ms = t == NULL ? NULL : t + at,
                               .histogram = histogram == NULL ? NULL : histogram + at};

        e = batch_add(q, b, job);
        at += chunks->items[i].sample_count;
    }
    return e;
}

static enum err read_all(struct chunk_query *q, const uint64_t *order, size_t count,
                         const struct part_chunk_list *chunks, struct column *out)
{
    struct read_batch b = {.request_count = 0};
    enum err e = ERR_OK;

    arena_reset(&q->scratch);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = series_add(q, &b, &chunks[order[i] & UINT32_MAX], &out[order[i] & UINT32_MAX]);
    if (e == ERR_OK)
        e = batch_run(q, &b);
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        column_trim(&out[i], q->min_time_ms, q->max_time_ms);
    return e;
}

enum err part_read(struct part *p, const uint32_t *series, size_t count, int64_t min_time_ms,
                   int64_t max_time_ms, struct arena *arena, struct arena *histograms,
                   struct column *out, struct errinfo *ei)
{
    struct part_chunk_list *chunks = ARENA_ARRAY(arena, count, struct part_chunk_list);
    struct chunk_query q;
    uint64_t *order = NULL;
    enum err e;

    if (chunks == NULL)
        return arena_error(arena, ei);
    e = query_init(&q, p, min_time_ms, max_time_ms, arena, ei);
    q.histograms = histograms;
    if (e == ERR_OK)
        e = order_new(series, count, arena, &order, ei);
    if (e == ERR_OK)
        e = chunks_walk(&q, order, count, chunks);
    if (e == ERR_OK)
        e = read_all(&q, order, count, chunks, out);
    query_done(&q);
    return e;
}
