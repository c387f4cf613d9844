/*
 * One series: the chunks of all inputs that have it, into the chunks of the result.
 *
 * Each cursor stands before a chunk or within a decoded one; the head of a cursor is the time of
 * its next sample, or the bound of its next chunk, which no sample lies before. The first head is
 * taken: a chunk that ends before every other head overlaps nothing and may be copied; otherwise it
 * is decoded, and its samples go out in runs up to the next head. No more than one chunk of each
 * input is ever decoded, however long a series is and however the inputs overlap.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "compactor/merge_internal.h"

/* ---- cursors ---- */

static const struct part_chunk_raw *cursor_chunk(const struct merge_cursor *c)
{
    return &c->series->chunks[c->chunk];
}

static bool cursor_at_end(const struct merge_cursor *c)
{
    return !c->decoded && c->chunk == c->series->chunk_count;
}

static int64_t cursor_head(const struct merge_cursor *c)
{
    return c->decoded ? c->t_ms[c->at] : cursor_chunk(c)->min_time_ms;
}

static void cursor_step(struct merge_cursor *c, size_t samples)
{
    c->at += samples;
    c->decoded = c->at < c->count;
}

/* ---- purging ---- */

static int compare_ranges(const void *a, const void *b)
{
    int64_t x = ((const struct merge_range *)a)->min_time_ms;
    int64_t y = ((const struct merge_range *)b)->min_time_ms;

    return (x > y) - (x < y);
}

/* Sorts, drops the empty and joins what touches. */
static size_t ranges_normalize(struct merge_range *r, size_t count)
{
    size_t kept = 0;

    qsort(r, count, sizeof *r, compare_ranges);
    for (size_t i = 0; i < count; i++) {
        if (r[i].min_time_ms > r[i].max_time_ms)
            continue;
        if (kept > 0 && (r[kept - 1].max_time_ms == INT64_MAX ||
                         r[i].min_time_ms <= r[kept - 1].max_time_ms + 1)) {
            if (r[i].max_time_ms > r[kept - 1].max_time_ms)
                r[kept - 1].max_time_ms = r[i].max_time_ms;
        } else {
            r[kept++] = r[i];
        }
    }
    return kept;
}

static enum err ranges_get(struct merge *m, struct merge_cursor *c, struct errinfo *ei)
{
    const struct merge_purge *purge = &m->o->purge;
    const struct merge_range *given = NULL;
    size_t count = 0;
    enum err e;

    c->range_count = 0;
    if (purge->ranges == NULL)
        return ERR_OK;
    e = purge->ranges(purge->ctx, &c->series->labels, c->series->fingerprint,
                      part_info(c->part)->key.generation, &given, &count, ei);
    if (e != ERR_OK || count == 0)
        return e;
    if (count > c->range_capacity) {
        void *grown = NULL;

        free(c->ranges); /* its charge stays until the end of the merge: sizes at least double */
        c->ranges = NULL;
        c->range_capacity = count < 8 ? 16 : 2 * count;
        e = merge_alloc(m, c->range_capacity, sizeof *c->ranges, &grown, ei);
        c->ranges = grown;
        if (e != ERR_OK)
            return e;
    }
    memcpy(c->ranges, given, count * sizeof *given);
    c->range_count = ranges_normalize(c->ranges, count);
    return ERR_OK;
}

/* The first range that does not end before t_ms; range_count when there is none. */
static size_t range_at(const struct merge_cursor *c, int64_t t_ms)
{
    size_t low = 0, high = c->range_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (c->ranges[mid].max_time_ms < t_ms)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool purge_touches(const struct merge_cursor *c, const struct part_chunk_raw *raw)
{
    size_t i = range_at(c, raw->min_time_ms);

    return i < c->range_count && c->ranges[i].min_time_ms <= raw->max_time_ms;
}

/* Ranges that touch have been joined, so that one of them covers the chunk or none does. */
static bool purge_covers(const struct merge_cursor *c, const struct part_chunk_raw *raw)
{
    size_t i = range_at(c, raw->min_time_ms);

    return i < c->range_count && c->ranges[i].min_time_ms <= raw->min_time_ms &&
           c->ranges[i].max_time_ms >= raw->max_time_ms;
}

/* Steps over chunks that are dropped whole. */
static void cursor_settle(struct merge *m, struct merge_cursor *c)
{
    while (!c->decoded && c->chunk < c->series->chunk_count && purge_covers(c, cursor_chunk(c))) {
        m->stats.samples_purged += cursor_chunk(c)->sample_count;
        c->chunk++;
        c->has_gap = true;
    }
}

/* Drops what is purged from the decoded chunk. */
static void samples_purge(struct merge *m, struct merge_cursor *c)
{
    size_t range = range_at(c, c->t_ms[0]), kept = 0;
    bool has_gap = false;

    for (size_t i = 0; i < c->count; i++) {
        while (range < c->range_count && c->ranges[range].max_time_ms < c->t_ms[i])
            range++;
        if (range < c->range_count && c->ranges[range].min_time_ms <= c->t_ms[i]) {
            has_gap = true;
            continue;
        }
        c->t_ms[kept] = c->t_ms[i];
        if (c->histogram == NULL) {
            c->value[kept] = c->value[i];
        } else {
            c->histogram[kept] = c->histogram[i];
            if (has_gap)
                c->histogram[kept].hint = histogram_hint_at_border(c->histogram[kept].hint);
        }
        kept++;
        has_gap = false;
    }
    m->stats.samples_purged += c->count - kept;
    c->has_gap = has_gap;
    c->count = kept;
}

/* ---- decoding ---- */

static bool is_histograms(const struct part_chunk_raw *raw)
{
    return raw->column_count == 1 && raw->column_kind[0] == PART_COLUMN_HISTOGRAMS;
}

/* Floats or histograms; else a later version's, which is only copied. */
static bool is_known(const struct part_chunk_raw *raw)
{
    return is_histograms(raw) ||
           (raw->column_count == 1 && raw->column_kind[0] == PART_COLUMN_VALUES);
}

static bool times_are_right(const struct part_chunk_raw *raw, const int64_t *t_ms)
{
    bool ascend = true;

    for (size_t i = 1; i < raw->sample_count; i++)
        ascend &= t_ms[i - 1] < t_ms[i];
    return ascend && t_ms[0] == raw->min_time_ms && t_ms[raw->sample_count - 1] == raw->max_time_ms;
}

static enum err buffers_get(struct merge *m, struct merge_cursor *c, struct errinfo *ei)
{
    void *t_ms = c->t_ms, *value = c->value;
    enum err e = ERR_OK;

    if (t_ms == NULL)
        e = merge_alloc(m, CODEC_SAMPLES_MAX, sizeof *c->t_ms, &t_ms, ei);
    c->t_ms = t_ms;
    if (e == ERR_OK && value == NULL)
        e = merge_alloc(m, CODEC_SAMPLES_MAX, sizeof *c->value, &value, ei);
    c->value = value;
    return e;
}

static enum err histograms_decode(struct merge *m, struct merge_cursor *c,
                                  const struct part_chunk_raw *raw, struct errinfo *ei)
{
    enum err e;

    arena_reset(&c->arena);
    e = histogram_chunk_decode(raw->columns, raw->sample_count, &c->arena, &c->histogram, ei);
    if (e == ERR_CORRUPT)
        return merge_corrupt(m, c, PART_FILE_CHUNKS, "a column of histograms does not decode", ei);
    if (e == ERR_OK && c->has_gap)
        c->histogram[0].hint = histogram_hint_at_border(c->histogram[0].hint);
    return e;
}

static enum err chunk_decode(struct merge *m, struct merge_cursor *c, struct errinfo *ei)
{
    const struct part_chunk_raw *raw = cursor_chunk(c);
    enum err e = buffers_get(m, c, ei);

    if (e != ERR_OK)
        return e;
    if (!is_known(raw))
        return merge_input_error(m, c, ERR_UNSUPPORTED, PART_FILE_CHUNKS,
                                 "a chunk of this kind cannot be merged with others", ei);
    if (!codec_times_decode(raw->times.data, raw->times.size, raw->sample_count, c->t_ms) ||
        !times_are_right(raw, c->t_ms))
        return merge_corrupt(m, c, PART_FILE_INDEX, "a timestamp column does not decode", ei);
    c->histogram = NULL;
    if (is_histograms(raw)) {
        e = histograms_decode(m, c, raw, ei);
        if (e != ERR_OK)
            return e;
    } else if (!codec_values_decode(raw->columns.data, raw->columns.size, raw->sample_count,
                                    c->value)) {
        return merge_corrupt(m, c, PART_FILE_CHUNKS, "a value column does not decode", ei);
    }
    c->has_gap = false;
    m->stats.chunks_decoded++;
    c->at = 0;
    c->count = raw->sample_count;
    if (purge_touches(c, raw))
        samples_purge(m, c);
    c->chunk++;
    c->decoded = c->count > 0;
    cursor_settle(m, c);
    return merge_tick(m, raw->sample_count, ei);
}

/* ---- samples on their way out ---- */

static void cuts_choose(struct merge *m)
{
    uint64_t samples = 0;
    int64_t first = INT64_MAX, last = INT64_MIN;

    for (size_t i = 0; i < m->group_count; i++) {
        const struct part_series *s = m->group[i]->series;

        for (size_t k = 0; k < s->chunk_count; k++) {
            samples += s->chunks[k].sample_count;
            first = s->chunks[k].min_time_ms < first ? s->chunks[k].min_time_ms : first;
            last = s->chunks[k].max_time_ms > last ? s->chunks[k].max_time_ms : last;
        }
    }
    m->cuts = part_cuts_choose(m->first_ms, m->last_ms, m->target_samples, samples, first, last);
}

static enum err pending_write(struct merge *m, struct errinfo *ei)
{
    enum err e;

    if (m->count == 0)
        return ERR_OK;
    if (m->histograms.count == 0)
        e = part_writer_samples(m->writer, m->t_ms, m->value, m->count, ei);
    else
        e = part_writer_histograms(m->writer, m->t_ms, m->histograms.items, m->count, ei);
    if (e != ERR_OK)
        return e;
    histogram_chunk_builder_reset(&m->histograms);
    m->stats.chunks_encoded++;
    m->stats.samples_encoded += m->count;
    m->count = 0;
    return ERR_OK;
}

/* How many of ascending times are <= limit. */
static size_t count_up_to(const int64_t *t_ms, size_t count, int64_t limit_ms)
{
    size_t low = 0, high = count;

    if (count > 0 && t_ms[count - 1] <= limit_ms)
        return count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (t_ms[mid] <= limit_ms)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static enum err floats_put(struct merge *m, const int64_t *t_ms, const double *value, size_t count,
                           struct errinfo *ei)
{
    enum err e = m->histograms.count > 0 ? pending_write(m, ei) : ERR_OK;

    while (count > 0 && e == ERR_OK) {
        size_t room = 2 * (size_t)m->target_samples - m->count, n;

        if (m->count == 0)
            m->border_ms = part_cuts_end(&m->cuts, t_ms[0]);
        n = count_up_to(t_ms, count < room ? count : room, m->border_ms);
        memcpy(m->t_ms + m->count, t_ms, n * sizeof *t_ms);
        memcpy(m->value + m->count, value, n * sizeof *value);
        m->count += n;
        t_ms += n;
        value += n;
        count -= n;
        if (n == room || count > 0)
            e = pending_write(m, ei);
    }
    return e;
}

static enum err histogram_put(struct merge *m, int64_t t_ms, const struct histogram *h,
                              bool is_border, struct errinfo *ei)
{
    bool is_full = m->histograms.count == 0 || t_ms > m->border_ms ||
                   m->count == 2 * (size_t)m->target_samples ||
                   histogram_chunk_builder_is_full(&m->histograms);
    enum err e = is_full ? pending_write(m, ei) : ERR_OK;

    if (e == ERR_OK)
        e = histogram_chunk_builder_add(&m->histograms, h, is_border, ei);
    if (e != ERR_OK)
        return e;
    if (is_full)
        m->border_ms = part_cuts_end(&m->cuts, t_ms);
    m->t_ms[m->count++] = t_ms;
    return ERR_OK;
}

/* The next `count` samples of a cursor's decoded chunk. */
static enum err samples_put(struct merge *m, const struct merge_cursor *c, size_t count,
                            struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (c->histogram == NULL) {
        e = floats_put(m, c->t_ms + c->at, c->value + c->at, count, ei);
        m->newest = c;
        return e;
    }
    for (size_t i = c->at; i < c->at + count && e == ERR_OK; i++) {
        e = histogram_put(m, c->t_ms[i], &c->histogram[i], m->newest != c, ei);
        m->newest = c;
    }
    return e;
}

/* ---- copying ---- */

/* What comes after the chunk: false when nothing does. */
static bool next_after(const struct merge_cursor *c, bool has_other, int64_t other_ms, int64_t *out)
{
    bool more = c->chunk + 1 < c->series->chunk_count;

    *out = other_ms;
    if (more && (!has_other || c->series->chunks[c->chunk + 1].min_time_ms < other_ms))
        *out = c->series->chunks[c->chunk + 1].min_time_ms;
    return more || has_other;
}

/* Whether what the first histogram of a chunk says of the sample before it holds in the result. At
 * the beginning of a series parts hold nothing that could be wrong. */
static bool hint_holds(const struct merge *m, const struct merge_cursor *c)
{
    return !is_histograms(cursor_chunk(c)) || c->chunk == 0 || (m->newest == c && !c->has_gap);
}

static bool is_large(const struct merge *m, const struct part_chunk_raw *raw)
{
    enum { COPY_MIN_BYTES = 64 << 10 }; /* of histograms, whose chunks are cut by size as well */

    return raw->sample_count >= m->copy_min_samples || raw->columns.size >= COPY_MIN_BYTES;
}

/* Whether a chunk that overlaps nothing is copied, or decoded to be joined with its neighbours. */
static bool is_copied(const struct merge *m, const struct merge_cursor *c, bool has_other,
                      int64_t other_ms)
{
    const struct part_chunk_raw *raw = cursor_chunk(c);
    uint64_t border = part_cuts_number(&m->cuts, raw->min_time_ms);
    bool within = border == part_cuts_number(&m->cuts, raw->max_time_ms);
    bool joins_before = m->count > 0 && m->border_ms >= raw->min_time_ms &&
                        is_histograms(raw) == (m->histograms.count > 0);
    int64_t next_ms = 0;

    if (purge_touches(c, raw) || !hint_holds(m, c))
        return false;
    if (!is_known(raw))
        return true;
    /* A few samples before it would stay a chunk of their own. */
    if (within && joins_before && m->count + raw->sample_count <= m->target_samples &&
        raw->columns.size < HISTOGRAM_CHUNK_BYTES)
        return false;
    if (is_large(m, raw))
        return true;
    return within && !joins_before &&
           (!next_after(c, has_other, other_ms, &next_ms) ||
            part_cuts_number(&m->cuts, next_ms) != border);
}

static enum err chunk_copy(struct merge *m, struct merge_cursor *c, struct errinfo *ei)
{
    const struct part_chunk_raw *raw = cursor_chunk(c);
    enum err e = pending_write(m, ei);

    if (e == ERR_OK)
        e = part_writer_chunk(m->writer, raw, ei);
    /* Order and bounds have been checked: its columns' sizes do not add up. */
    if (e == ERR_INVALID)
        return merge_corrupt(m, c, PART_FILE_INDEX, "sizes of a chunk's columns do not fit", ei);
    if (e != ERR_OK)
        return e;
    m->stats.chunks_copied++;
    m->stats.samples_copied += raw->sample_count;
    m->newest = c;
    c->has_gap = false;
    c->chunk++;
    cursor_settle(m, c);
    return merge_tick(m, raw->sample_count, ei);
}

/* ---- the merge ---- */

/* The cursor with the first head, the oldest generation of several; NULL at the end. *other_ms is
 * the first head of the others. */
static struct merge_cursor *first_cursor(struct merge *m, bool *has_other, int64_t *other_ms)
{
    struct merge_cursor *first = NULL;
    int64_t first_ms = 0;

    *has_other = false;
    *other_ms = INT64_MAX;
    for (size_t i = 0; i < m->group_count; i++) {
        struct merge_cursor *c = m->group[i];
        int64_t head;

        if (cursor_at_end(c))
            continue;
        head = cursor_head(c);
        if (first == NULL) {
            first = c;
            first_ms = head;
            continue;
        }
        *has_other = true;
        if (head < first_ms) {
            *other_ms = first_ms;
            first = c;
            first_ms = head;
        } else if (head < *other_ms) {
            *other_ms = head;
        }
    }
    return first;
}

/* Several heads are the same. Bounds of chunks become samples first; then the oldest wins. */
static enum err repeat_merge(struct merge *m, struct merge_cursor *first, struct errinfo *ei)
{
    int64_t t_ms = cursor_head(first);
    enum err e;

    for (size_t i = 0; i < m->group_count; i++) {
        struct merge_cursor *c = m->group[i];

        if (!cursor_at_end(c) && !c->decoded && cursor_head(c) == t_ms)
            return chunk_decode(m, c, ei);
    }
    e = samples_put(m, first, 1, ei);
    if (e != ERR_OK)
        return e;
    for (size_t i = 0; i < m->group_count; i++) {
        struct merge_cursor *c = m->group[i];

        if (cursor_at_end(c) || cursor_head(c) != t_ms)
            continue;
        m->stats.samples_repeated += c != first;
        cursor_step(c, 1);
    }
    return ERR_OK;
}

static enum err step(struct merge *m, struct merge_cursor *c, bool has_other, int64_t other_ms,
                     struct errinfo *ei)
{
    size_t n;
    enum err e;

    if (!c->decoded) {
        if ((!has_other || cursor_chunk(c)->max_time_ms < other_ms) &&
            is_copied(m, c, has_other, other_ms))
            return chunk_copy(m, c, ei);
        return chunk_decode(m, c, ei);
    }
    if (has_other && c->t_ms[c->at] == other_ms)
        return repeat_merge(m, c, ei);
    n = c->count - c->at;
    if (has_other)
        n = count_up_to(c->t_ms + c->at, n, other_ms - 1); /* its head is smaller: no overflow */
    e = samples_put(m, c, n, ei);
    if (e == ERR_OK)
        cursor_step(c, n);
    return e;
}

static enum err chunks_check(const struct merge *m, const struct merge_cursor *c,
                             struct errinfo *ei)
{
    for (size_t i = 0; i < c->series->chunk_count; i++) {
        const struct part_chunk_raw *raw = &c->series->chunks[i];

        if (raw->min_time_ms > raw->max_time_ms || raw->min_time_ms < c->first_ms ||
            raw->max_time_ms > c->last_ms || (i > 0 && raw[-1].max_time_ms >= raw->min_time_ms) ||
            raw->sample_count == 0 || raw->sample_count > CODEC_SAMPLES_MAX ||
            (uint64_t)raw->max_time_ms - (uint64_t)raw->min_time_ms < raw->sample_count - 1)
            return merge_corrupt(m, c, PART_FILE_INDEX, "times of its chunks are impossible", ei);
    }
    return ERR_OK;
}

enum err merge_series_chunks(struct merge *m, struct errinfo *ei)
{
    struct merge_cursor *first;
    bool has_other;
    int64_t other_ms;
    enum err e = ERR_OK;

    ASSERT(m->count == 0);
    m->newest = NULL;
    for (size_t i = 0; i < m->group_count; i++) {
        struct merge_cursor *c = m->group[i];

        c->chunk = 0;
        c->decoded = c->has_gap = false;
        if ((e = chunks_check(m, c, ei)) != ERR_OK || (e = ranges_get(m, c, ei)) != ERR_OK)
            return e;
        cursor_settle(m, c);
    }
    cuts_choose(m);
    while (e == ERR_OK && (first = first_cursor(m, &has_other, &other_ms)) != NULL)
        e = step(m, first, has_other, other_ms, ei);
    return e == ERR_OK ? pending_write(m, ei) : e;
}
